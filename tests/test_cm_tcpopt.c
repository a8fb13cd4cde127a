// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* TCP options: every byte is the peer's. Options stand at the end of their memory, so that ASan sees an over-read. */
#include <arpa/inet.h>
#include "cm_fixture.h"

struct optcase {
	const char *name;
	u32 len;
	u8 bytes[44];
	int want;        /* of irdma_process_options() */
	u16 mss;         /* what comes of it on an IPv4 SYN with 1460 of our own */
	bool wscale_ok;
	u8 snd_wscale;
};

static const struct optcase good[] = {
	{ "none", 0, { 0 }, 0, 536, false, 0 },
	{ "EOL alone", 1, { 0 }, 0, 536, false, 0 },
	{ "NOPs alone", 4, { 1, 1, 1, 1 }, 0, 536, false, 0 },
	{ "MSS", 4, { 2, 4, 0x05, 0x00 }, 0, 1280, false, 0 },
	{ "MSS above ours", 4, { 2, 4, 0xFF, 0xFF }, 0, 1460, false, 0 },
	{ "MSS 0", 4, { 2, 4, 0, 0 }, 0, 536, false, 0 },
	{ "MSS 1", 4, { 2, 4, 0, 1 }, 0, 536, false, 0 },
	{ "MSS 536", 4, { 2, 4, 0x02, 0x18 }, 0, 536, false, 0 },
	{ "MSS 537", 4, { 2, 4, 0x02, 0x19 }, 0, 537, false, 0 },
	{ "window scale 0", 4, { 1, 3, 3, 0 }, 0, 536, true, 0 },
	{ "window scale 14", 4, { 1, 3, 3, 14 }, 0, 536, true, 14 },
	{ "window scale 15 counts as 14", 4, { 1, 3, 3, 15 }, 0, 536, true, 14 },
	{ "window scale 255 counts as 14", 4, { 1, 3, 3, 255 }, 0, 536, true, 14 },
	{ "SACK permitted", 4, { 1, 1, 4, 2 }, 0, 536, false, 0 },
	{ "timestamps", 12, { 1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8 }, 0, 536, false, 0 },
	{ "as Linux sends them", 20, { 2, 4, 0x05, 0xB4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7 }, 0, 1460, true, 7 },
	{ "MSS at the very end", 4, { 2, 4, 0x03, 0xE8 }, 0, 1000, false, 0 },
	{ "unknown, shortest", 6, { 253, 2, 2, 4, 0x03, 0xE8 }, 0, 1000, false, 0 },
	{ "unknown, skipped by its length", 8, { 253, 4, 3, 3, 2, 4, 0x03, 0xE8 }, 0, 1000, false, 0 },
	{ "unknown that fills all 40", 40, { 30, 40 }, 0, 536, false, 0 },
	{ "what stands behind EOL does not count", 8, { 0, 3, 3, 9, 2, 0, 0, 0 }, 0, 536, false, 0 },
	{ "garbage behind EOL", 4, { 1, 0, 2, 0 }, 0, 536, false, 0 },
	{ "the last MSS counts", 8, { 2, 4, 0x03, 0xE8, 2, 4, 0x03, 0xE9 }, 0, 1001, false, 0 },
};

/* Fault 1 is the first of these: their parser never comes back. */
static const struct optcase bad[] = {
	{ "MSS of length 0", 4, { 2, 0, 5, 180 } },
	{ "unknown of length 0", 2, { 99, 0 } },
	{ "window scale of length 0", 3, { 3, 0, 7 } },
	{ "SACK permitted of length 0", 2, { 4, 0 } },
	{ "timestamps of length 0", 10, { 8, 0 } },
	{ "length 0 behind a good one", 6, { 2, 4, 5, 180, 5, 0 } },
	{ "MSS of length 1", 4, { 2, 1, 5, 180 } },
	{ "unknown of length 1", 4, { 99, 1, 1, 1 } },
	{ "a kind without its length", 1, { 2 } },
	{ "an unknown kind without its length", 3, { 1, 1, 77 } },
	{ "MSS that overruns by two", 2, { 2, 4 } },
	{ "MSS that overruns by one", 3, { 2, 4, 5 } },
	{ "window scale that overruns", 2, { 3, 3 } },
	{ "timestamps that overrun", 9, { 8, 10, 1, 2, 3, 4, 5, 6, 7 } },
	{ "unknown that overruns", 4, { 99, 5, 0, 0 } },
	{ "unknown of length 255", 40, { 99, 255 } },
	{ "SACK of length 255 at the end", 4, { 1, 1, 5, 255 } },
	{ "MSS of length 3", 4, { 2, 3, 5, 180 } },
	{ "MSS of length 5", 8, { 2, 5, 5, 180, 0, 0, 0, 0 } },
	{ "window scale of length 2", 4, { 3, 2, 1, 1 } },
	{ "window scale of length 4", 4, { 3, 4, 7, 0 } },
	{ "SACK permitted of length 3", 4, { 4, 3, 0, 1 } },
	{ "timestamps of length 12", 12, { 8, 12 } },
	{ "timestamps of length 2", 4, { 8, 2, 1, 1 } },
};

static struct irdma_cm_node syn_node(bool ipv4)
{
	struct irdma_cm_node node = { .ipv4 = ipv4, .tcp_cntxt = { .mss = 1460, .rcv_wscale = CM_RCV_WSCALE } };

	return node;
}

static int process(struct irdma_cm_node *node, const u8 *bytes, u32 len, u32 syn)
{
	u8 *p = malloc(len);
	int err;

	if (len)
		memcpy(p, bytes, len);
	err = irdma_process_options(node, p, len, syn);
	free(p);
	return err;
}

static void good_options_are_taken(void **state)
{
	for (const struct optcase *c = good; c < good + ARRAY_SIZE(good); c++) {
		struct irdma_cm_node node = syn_node(true);

		if (process(&node, c->bytes, c->len, 1) != c->want || node.tcp_cntxt.mss != c->mss ||
		    node.tcp_cntxt.wscale_ok != c->wscale_ok || node.tcp_cntxt.snd_wscale != c->snd_wscale)
			fail_msg("%s: mss %u ok %d scale %u", c->name, node.tcp_cntxt.mss, node.tcp_cntxt.wscale_ok,
				 node.tcp_cntxt.snd_wscale);
		assert_int_equal(node.tcp_cntxt.peer_offered_wscale, c->wscale_ok);
		assert_int_equal(node.tcp_cntxt.rcv_wscale, c->wscale_ok ? CM_RCV_WSCALE : 0); /* on only if both have it */
	}
}

static void bad_options_are_refused_and_change_nothing(void **state)
{
	for (const struct optcase *c = bad; c < bad + ARRAY_SIZE(bad); c++)
		for (u32 syn = 0; syn < 2; syn++) {
			struct irdma_cm_node node = syn_node(true), before = node;

			if (process(&node, c->bytes, c->len, syn) != -EINVAL)
				fail_msg("%s: taken", c->name);
			assert_memory_equal(&node.tcp_cntxt, &before.tcp_cntxt, sizeof(node.tcp_cntxt));
		}
}

static void outside_a_syn_options_are_checked_but_set_nothing(void **state)
{
	for (const struct optcase *c = good; c < good + ARRAY_SIZE(good); c++) {
		struct irdma_cm_node node = syn_node(true), before = node;

		assert_int_equal(process(&node, c->bytes, c->len, 0), 0);
		assert_memory_equal(&node.tcp_cntxt, &before.tcp_cntxt, sizeof(node.tcp_cntxt));
	}
}

static void no_mss_means_536_or_1220(void **state)
{
	struct irdma_cm_node v4 = syn_node(true), v6 = syn_node(false);

	assert_int_equal(process(&v4, NULL, 0, 1), 0);
	assert_int_equal(v4.tcp_cntxt.mss, 536);
	assert_int_equal(process(&v6, NULL, 0, 1), 0);
	assert_int_equal(v6.tcp_cntxt.mss, 1220);
	v6.tcp_cntxt.mss = 1000; /* ours is smaller */
	assert_int_equal(process(&v6, NULL, 0, 1), 0);
	assert_int_equal(v6.tcp_cntxt.mss, 1000);
}

/* Every truncation of every good case, every single byte set to every value: an answer, and no over-read. */
static void any_bytes_get_an_answer(void **state)
{
	for (const struct optcase *c = good; c < good + ARRAY_SIZE(good); c++) {
		for (u32 len = 0; len <= c->len; len++) {
			struct irdma_cm_node node = syn_node(true);
			int err = process(&node, c->bytes, len, 1);

			assert_true(err == 0 || err == -EINVAL);
		}
		for (u32 at = 0; at < c->len; at++)
			for (int v = 0; v < 256; v++) {
				struct irdma_cm_node node = syn_node(true);
				u8 bytes[44];
				int err;

				memcpy(bytes, c->bytes, sizeof(bytes));
				bytes[at] = (u8)v;
				err = process(&node, bytes, c->len, 1);
				assert_true(err == 0 || err == -EINVAL);
				assert_true(node.tcp_cntxt.mss >= CM_MSS_DEFAULT_V4 && node.tcp_cntxt.mss <= 1460);
				assert_true(node.tcp_cntxt.snd_wscale <= CM_WIN_SCALE_MAX);
			}
	}
}

/* ---- irdma_handle_tcp_options ---- */

static struct tcphdr *header(u8 flags, u16 window, const u8 *opts, u32 len)
{
	struct tcphdr h = { .window = htons(window), .doff = 5 + len / 4 };
	u8 *p = malloc(sizeof(h) + len);

	h.th_flags = flags;
	memcpy(p, &h, sizeof(h));
	if (len)
		memcpy(p + sizeof(h), opts, len);
	return (struct tcphdr *)p;
}

/* Fault 6: the window of a SYN scaled. */
static void window_of_a_syn_is_never_scaled(void **state)
{
	static const u8 scale7[4] = { 1, 3, 3, 7 };
	struct irdma_cm_core core = { .rdma_ver = IRDMA_GEN_1 };

	for (int passive = 0; passive < 2; passive++) {
		struct irdma_cm_node node = syn_node(true);
		struct tcphdr *h = header(passive ? PKT_SYN : PKT_SYN | PKT_ACK, 4000, scale7, 4);

		node.cm_core = &core;
		assert_int_equal(irdma_handle_tcp_options(&node, h, 4, passive), 0);
		assert_int_equal(node.tcp_cntxt.snd_wscale, 7);
		assert_int_equal(node.tcp_cntxt.snd_wnd, 4000);
		assert_int_equal(node.tcp_cntxt.max_snd_wnd, 4000);
		free(h);
	}
}

static void window_of_another_segment_is_scaled_and_the_largest_kept(void **state)
{
	struct irdma_cm_node node = syn_node(true);
	struct tcphdr *h = header(PKT_ACK, 65535, NULL, 0);

	node.tcp_cntxt.snd_wscale = 14;
	assert_int_equal(irdma_handle_tcp_options(&node, h, 0, 1), 0);
	assert_int_equal(node.tcp_cntxt.snd_wnd, 65535u << 14);
	assert_int_equal(node.tcp_cntxt.max_snd_wnd, 65535u << 14);
	free(h);
	h = header(PKT_ACK, 0, NULL, 0);
	assert_int_equal(irdma_handle_tcp_options(&node, h, 0, 1), 0);
	assert_int_equal(node.tcp_cntxt.snd_wnd, 0);
	assert_int_equal(node.tcp_cntxt.max_snd_wnd, 65535u << 14);
	free(h);
}

static void bad_options_end_a_passive_node_with_a_reset(void **state)
{
	static const u8 zero_len[4] = { 2, 0, 5, 180 };

	for (int ipv4 = 0; ipv4 < 2; ipv4++) {
		struct fx_seg syn = { .flags = PKT_SYN, .seq = 1, .window = 100, .opts = zero_len, .optlen = 4 };
		struct endpoint l;
		struct fx_peer p;
		struct fx_tap tap;
		struct fx fx;

		fx_up(&fx, IRDMA_GEN_1, 1);
		fx_silence(&fx);
		ep_init(&l, &fx, 0);
		ep_listen(&fx, &l, 0, ipv4, 7000);
		fx_peer_tuple(&p, &fx, ipv4, 7000, 5000);
		fx_tap_on(&fx, 0, &tap);
		fx_feed(p.dev, &p.t, &syn);
		assert_int_equal(tap.n, 1);
		assert_int_equal(fx_last(&tap)->flags & PKT_RST, PKT_RST);
		assert_int_equal(fx_last(&tap)->ack, 2);
		assert_int_equal(fx_stats(&fx, 0).passive_errs, 1);
		assert_int_equal(fx_stats(&fx, 0).bad_segments, 1);
		assert_int_equal(fx_stats(&fx, 0).nodes_now, 0);
		assert_int_equal(fx_stats(&fx, 0).half_open_now, 0);
		assert_int_equal(l.nevents, 0);
		fx_tap_off(&tap);
		irdma_destroy_listen(&l.id);
		ep_fini(&fx, &l);
		fx_down(&fx);
	}
}

static void bad_options_abort_an_active_node(void **state)
{
	static const u8 over[4] = { 3, 5, 1, 1 };
	struct fx_seg synack = { .flags = PKT_SYN | PKT_ACK, .seq = 1, .window = 100, .opts = over, .optlen = 4 };
	struct endpoint c;
	struct fx_peer p;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_2, 1);
	fx_silence(&fx);
	ep_init(&c, &fx, 0);
	assert_int_equal(ep_connect(&c, 0, 1, true, 5000, 7000), 0);
	fx_peer_tuple(&p, &fx, true, 5000, 7000);
	fx_peer_find(&p);
	synack.ack = p.node->tcp_cntxt.loc_seq_num;
	fx_tap_on(&fx, 0, &tap);
	fx_feed(p.dev, &p.t, &synack);
	assert_int_equal(p.node->state, IRDMA_CM_STATE_CLOSED);
	assert_int_equal(tap.n, 1);
	assert_int_equal(fx_last(&tap)->flags & PKT_RST, PKT_RST);
	fx_run(&fx, 1);
	assert_int_equal(c.nevents, 1);
	assert_int_equal(c.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
	assert_int_equal(c.ev[0].status, -EPROTO);
	assert_int_equal(c.ev[0].neg.cause, CM_CAUSE_BAD_TCP);
	assert_int_equal(fx_stats(&fx, 0).connect_errs, 1);
	fx_tap_off(&tap);
	fx_peer_done(&p);
	ep_fini(&fx, &c);
	fx_down(&fx);
}

static void negative_size_is_refused(void **state)
{
	struct tcphdr *h = header(PKT_SYN, 1, NULL, 0);
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	node = fx_node(&fx, NULL, true, 1, 2);
	cm_node_hold(node);
	assert_int_equal(irdma_handle_tcp_options(node, h, -1, 1), -EINVAL);
	assert_int_equal(node->state, IRDMA_CM_STATE_CLOSED);
	assert_int_equal(node->cause, CM_CAUSE_BAD_TCP);
	irdma_rem_ref_cm_node(node);
	free(h);
	fx_down(&fx);
}

/* The MSS and scaling that came of a handshake are what the node ends up with, on both sides. */
static void handshake_agrees_on_mss_and_scaling(void **state)
{
	static const u8 full[8] = { 2, 4, 0x05, 0x00, 1, 3, 3, 5 };
	struct fx_seg syn = { .flags = PKT_SYN, .seq = FX_PEER_ISS, .window = 60000, .opts = full, .optlen = 8 };
	struct endpoint l;
	struct fx_peer p;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	ep_init(&l, &fx, 0);
	ep_listen(&fx, &l, 0, true, 7000);
	fx_peer_tuple(&p, &fx, true, 7000, 5000);
	fx_tap_on(&fx, 0, &tap);
	fx_feed(p.dev, &p.t, &syn);
	assert_int_equal(fx_last(&tap)->optlen, 8);
	fx_peer_find(&p);
	assert_int_equal(p.node->tcp_cntxt.mss, 1280);
	assert_int_equal(p.node->tcp_cntxt.snd_wnd, 60000);
	p.seq++;
	fx_peer_send(&p, PKT_ACK, NULL, 0);
	assert_int_equal(p.node->state, IRDMA_CM_STATE_ESTABLISHED);
	assert_int_equal(p.node->tcp_cntxt.snd_wnd, 8192 << 5);
	assert_int_equal(p.node->tcp_cntxt.max_snd_wnd, 8192 << 5);
	irdma_send_ack(p.node);
	assert_int_equal(fx_last(&tap)->window, CM_RX_MAX >> CM_RCV_WSCALE);
	fx_tap_off(&tap);
	irdma_cm_close(p.node);
	fx_peer_done(&p);
	irdma_destroy_listen(&l.id);
	ep_fini(&fx, &l);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_options_are_taken),
		cmocka_unit_test(bad_options_are_refused_and_change_nothing),
		cmocka_unit_test(outside_a_syn_options_are_checked_but_set_nothing),
		cmocka_unit_test(no_mss_means_536_or_1220),
		cmocka_unit_test(any_bytes_get_an_answer),
		cmocka_unit_test(window_of_a_syn_is_never_scaled),
		cmocka_unit_test(window_of_another_segment_is_scaled_and_the_largest_kept),
		cmocka_unit_test(bad_options_end_a_passive_node_with_a_reset),
		cmocka_unit_test(bad_options_abort_an_active_node),
		cmocka_unit_test(negative_size_is_refused),
		cmocka_unit_test(handshake_agrees_on_mss_and_scaling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
