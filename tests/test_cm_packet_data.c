// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Start-up frames in pieces, what follows them, windows, acknowledgements; and whole connections that lose each of their frames once. */
#include "cm_states.h"

static const struct { u8 gen; bool ipv4; } runs[] = { { IRDMA_GEN_1, true }, { IRDMA_GEN_2, true }, { IRDMA_GEN_1, false }, { IRDMA_GEN_2, false } };

#define FOR_RUNS(e) \
	for (size_t r = 0; r < ARRAY_SIZE(runs) && (env_up(e, runs[r].gen, runs[r].ipv4), true); env_down(e), r++)

/* ---- start-up frames in pieces: faults 2 and 3 ---- */

static void request_split_at_every_byte_is_understood(void **state)
{
	u8 buf[64];
	u32 len = env_mpa(buf, false, MPA_REV_2, MPA_FLAG_CRC, "hi", 2);

	assert_int_equal(len, 26);
	for (u32 i = 1; i < len; i++) {
		struct env e;

		env_up(&e, i % 2 ? IRDMA_GEN_1 : IRDMA_GEN_2, true);
		env_passive(&e);
		fx_peer_send(&e.p, PKT_ACK, buf, i);
		assert_int_equal(e.p.node->state, ST(ESTABLISHED));
		assert_int_equal(fx_last(&e.tap)->ack, FX_PEER_ISS + 1 + i);
		fx_peer_send(&e.p, PKT_ACK, buf + i, len - i);
		assert_int_equal(e.p.node->state, ST(MPAREQ_RCVD));
		env_loop(&e);
		assert_int_equal(e.l.nevents, 1);
		assert_int_equal(e.l.ev[0].private_data_len, 2);
		assert_memory_equal(e.l.pdata[0], "hi", 2);
		env_down(&e);
	}
}

static void reply_byte_by_byte_is_understood(void **state)
{
	u8 buf[64];
	u32 len = env_mpa(buf, true, MPA_REV_2, MPA_FLAG_CRC, "hi", 2);
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(MPAREQ_SENT));
		for (u32 i = 0; i < len; i++)
			fx_peer_send(&e.p, PKT_ACK, buf + i, 1);
		assert_int_equal(e.p.node->state, ST(OFFLOADED));
		env_loop(&e);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].status, 0);
		assert_int_equal(e.c.ev[0].private_data_len, 2);
		assert_memory_equal(e.c.pdata[0], "hi", 2);
	}
}

/* Overlapping segments, the second in front of the first, and the first again. */
static void overlapping_pieces_are_counted_once(void **state)
{
	u8 buf[64];
	u32 len = env_mpa(buf, false, MPA_REV_1, 0, "overlap", 7), seq;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_passive(&e);
	seq = e.p.seq;
	struct fx_seg s = { .flags = PKT_ACK, .ack = e.p.node->tcp_cntxt.loc_seq_num, .window = 8192 };

	s.seq = seq + 10, s.data = buf + 10, s.len = len - 10; /* a gap: not kept */
	fx_feed(e.p.dev, &e.p.t, &s);
	assert_int_equal(fx_last(&e.tap)->ack, seq);
	s.seq = seq, s.data = buf, s.len = 15;
	fx_feed(e.p.dev, &e.p.t, &s);
	fx_feed(e.p.dev, &e.p.t, &s);
	assert_int_equal(fx_last(&e.tap)->ack, seq + 15);
	s.seq = seq + 5, s.data = buf + 5, s.len = len - 5;
	fx_feed(e.p.dev, &e.p.t, &s);
	assert_int_equal(e.p.node->tcp_cntxt.rcv_nxt, seq + len);
	env_loop(&e);
	assert_int_equal(e.l.nevents, 1);
	assert_memory_equal(e.l.pdata[0], "overlap", 7);
	env_down(&e);
}

static u32 terminate_fpdu(u8 *out, u32 size)
{
	const struct rdmap_error err = { TERM_LAYER_RDMAP, TERM_RDMAP_CATASTROPHIC, 0 };
	u8 ulpdu[RDMAP_TERM_MAX];
	struct mpa_stream stream;
	int n;

	mpa_stream_init(&stream, true, false);
	n = mpa_fpdu_build(&stream, ulpdu, rdmap_build_terminate(&err, 1, NULL, 0, ulpdu), out, size);
	assert_true(n > 0);
	return (u32)n;
}

/* A Terminate right behind the reply, cut at every byte of both: the QP must read it whole. */
static void stream_bytes_behind_the_reply_reach_the_qp(void **state)
{
	u8 buf[256];
	u32 reply = env_mpa(buf, true, MPA_REV_2, MPA_FLAG_CRC, "hi", 2);
	u32 len = reply + terminate_fpdu(buf + reply, sizeof(buf) - reply);

	for (u32 i = 1; i <= len; i++) {
		struct env e;

		env_up(&e, i % 2 ? IRDMA_GEN_1 : IRDMA_GEN_2, true);
		env_goto(&e, ST(MPAREQ_SENT));
		fx_peer_send(&e.p, PKT_ACK, buf, i);
		if (i < len)
			fx_peer_send(&e.p, PKT_ACK, buf + i, len - i);
		assert_int_equal(e.p.node->rx_len, len - reply);
		env_loop(&e);
		assert_int_equal(e.c.nevents, 3);
		assert_int_equal(e.c.ev[0].status, 0);
		assert_int_equal(e.c.ev[0].private_data_len, 2);
		assert_int_equal(e.c.ev[1].event, IW_CM_EVENT_DISCONNECT);
		assert_int_equal(e.c.ev[1].status, -EPROTO);
		assert_int_equal(e.c.ev[2].event, IW_CM_EVENT_CLOSE);
		env_down(&e);
	}
}

static void stream_bytes_behind_the_request_reach_the_qp(void **state)
{
	u8 buf[256];
	u32 req = env_mpa(buf, false, MPA_REV_2, MPA_FLAG_CRC, "hi", 2);
	u32 len = req + terminate_fpdu(buf + req, sizeof(buf) - req);
	struct env e;

	FOR_RUNS(&e) {
		env_passive(&e);
		fx_peer_send(&e.p, PKT_ACK, buf, len);
		env_loop(&e);
		assert_int_equal(e.p.node->rx_len, len - req);
		assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
		assert_null(e.p.node->rx_buf);
		env_loop(&e);
		assert_int_equal(e.a.nevents, 3);
		assert_int_equal(e.a.ev[1].status, -EPROTO);
	}
}

/* ---- window ---- */

static void node_keeps_no_more_than_its_window(void **state)
{
	static u8 junk[1400];
	struct env e;

	FOR_RUNS(&e) {
		env_requested(&e);
		u32 start = e.p.node->tcp_cntxt.rcv_nxt;

		for (int i = 0; i < 7; i++) /* 9800 bytes */
			fx_peer_send(&e.p, PKT_ACK, junk, sizeof(junk));
		assert_int_equal(e.p.node->rx_len, CM_RX_MAX);
		assert_int_equal(fx_last(&e.tap)->ack, start + CM_RX_MAX);
		assert_int_equal(fx_last(&e.tap)->window, 0);
		fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_ACK | PKT_FIN, .seq = start + CM_RX_MAX,
			.ack = e.p.node->tcp_cntxt.loc_seq_num, .data = junk, .len = 1 });
		assert_int_equal(fx_last(&e.tap)->ack, start + CM_RX_MAX); /* a zero-window probe; its FIN is behind a gap */
		assert_false(e.p.node->peer_fin);
	}
}

static void old_segments_do_not_change_the_send_window(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(MPAREQ_RCVD));
	const struct irdma_cm_tcp_context *t = &e.p.node->tcp_cntxt;
	struct fx_seg s = { .flags = PKT_ACK, .seq = t->rcv_nxt, .ack = t->loc_seq_num, .window = 3000 };

	fx_feed(e.p.dev, &e.p.t, &s);
	assert_int_equal(t->snd_wnd, 3000);
	assert_int_equal(t->max_snd_wnd, 8192);
	s.window = 10, s.seq -= 5, s.data = "xxx", s.len = 3;
	fx_feed(e.p.dev, &e.p.t, &s);
	assert_int_equal(t->snd_wnd, 3000);
	s.seq = t->rcv_nxt, s.len = 0, s.ack--; /* an old acknowledgement */
	fx_feed(e.p.dev, &e.p.t, &s);
	assert_int_equal(t->snd_wnd, 3000);
	assert_int_equal(t->rem_ack_num, t->loc_seq_num);
	env_down(&e);
}

/* Fault 6: the window of a SYN is not scaled, that of the next segment is. */
static void syn_window_is_not_scaled(void **state)
{
	static const u8 opts[8] = { 2, 4, 5, 0xB4, 1, 3, 3, 7 };
	struct fx_seg s = { .flags = PKT_SYN, .seq = FX_PEER_ISS, .window = 100, .opts = opts, .optlen = 8 };
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_listen(&e);
	fx_peer_tuple(&e.p, &e.fx, true, 7000, 5000);
	fx_feed(e.p.dev, &e.p.t, &s);
	fx_peer_find(&e.p);
	assert_int_equal(e.p.node->tcp_cntxt.snd_wnd, 100);
	e.p.seq++;
	fx_peer_send(&e.p, PKT_ACK, NULL, 0);
	assert_int_equal(e.p.node->tcp_cntxt.snd_wnd, 8192u << 7);
	assert_int_equal(e.p.node->tcp_cntxt.max_snd_wnd, 8192u << 7);
	env_down(&e);
}

/* ---- the checks themselves ---- */

static int check_seq(struct env *e, s32 seq, bool has_ack, u32 ack)
{
	struct tcphdr h = { .seq = htonl(e->p.node->tcp_cntxt.rcv_nxt + (u32)seq), .ack = has_ack, .ack_seq = htonl(ack) };
	int ret;

	cm_lock(env_core(e));
	ret = irdma_check_seq(e->p.node, &h);
	cm_unlock(env_core(e));
	return ret;
}

static void check_seq_at_its_borders(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(MPAREQ_RCVD));
	u32 snd = e.p.node->tcp_cntxt.loc_seq_num, una = e.p.node->tcp_cntxt.rem_ack_num, wnd = e.p.node->tcp_cntxt.max_snd_wnd;

	assert_int_equal(wnd, 8192);
	assert_int_equal(check_seq(&e, 0, true, snd), 0);
	assert_int_equal(check_seq(&e, 8191, true, snd), 0);
	assert_int_equal(check_seq(&e, 8192, true, snd), -EINVAL);
	assert_int_equal(check_seq(&e, -8192, true, snd), 0);
	assert_int_equal(check_seq(&e, -8193, true, snd), -EINVAL);
	assert_int_equal(check_seq(&e, 0, true, snd + 1), -EINVAL);
	assert_int_equal(check_seq(&e, 0, true, una - wnd), 0);
	assert_int_equal(check_seq(&e, 0, true, una - wnd - 1), -EINVAL);
	assert_int_equal(check_seq(&e, 0, false, snd), -EINVAL);
	assert_int_equal(fx_stats(&e.fx, 0).bad_segments, 5);
	assert_int_equal(fx_stats(&e.fx, 0).challenge_acks, 5);
	env_down(&e);
}

static void check_syn_wants_exactly_our_syn(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(SYN_SENT));
	u32 snd = e.p.node->tcp_cntxt.loc_seq_num;
	struct tcphdr h = { .ack = 1, .ack_seq = htonl(snd) };

	cm_lock(env_core(&e));
	assert_int_equal(irdma_check_syn(e.p.node, &h), 0);
	assert_int_equal(e.tap.n, 1);
	h.ack_seq = htonl(snd + 1);
	assert_int_equal(irdma_check_syn(e.p.node, &h), -EINVAL);
	assert_int_equal(fx_last(&e.tap)->flags, PKT_RST);
	assert_int_equal(fx_last(&e.tap)->seq, snd + 1);
	h.ack_seq = htonl(snd - 1);
	assert_int_equal(irdma_check_syn(e.p.node, &h), -EINVAL);
	assert_int_equal(fx_last(&e.tap)->seq, snd - 1);
	h.ack = 0;
	h.ack_seq = htonl(snd);
	assert_int_equal(irdma_check_syn(e.p.node, &h), -EINVAL);
	assert_int_equal(e.p.node->tcp_cntxt.loc_seq_num, snd);
	cm_unlock(env_core(&e));
	env_down(&e);
}

static void repeated_syn_is_answered_with_the_kept_synack(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		struct fx_seg syn = { .flags = PKT_SYN, .seq = FX_PEER_ISS, .window = 8192 };
		u32 seq;

		env_goto(&e, ST(SYN_RCVD));
		seq = fx_last(&e.tap)->seq;
		fx_feed(e.p.dev, &e.p.t, &syn);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_SYN | PKT_ACK);
		assert_int_equal(fx_last(&e.tap)->seq, seq);
		assert_int_equal(e.tap.n, 2);
		irdma_cleanup_retrans_entry(e.p.node);
		fx_feed(e.p.dev, &e.p.t, &syn);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_ACK);
		assert_int_equal(fx_stats(&e.fx, 0).nodes_created, 1);
	}
}

static void time_wait_begins_again_with_a_fin(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(TIME_WAIT));
	fx_run(&e.fx, 50000);
	fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_FIN | PKT_ACK, .seq = e.p.seq - 1, .ack = e.p.node->tcp_cntxt.loc_seq_num });
	fx_run(&e.fx, 50000);
	assert_int_equal(e.p.node->state, ST(TIME_WAIT));
	fx_run(&e.fx, 11000);
	assert_int_equal(e.p.node->state, ST(CLOSED));
	env_down(&e);
}

/* ---- whole connections, each frame of the CM's lost once ---- */

static struct {
	struct port_ops ops[2];
	const struct port_ops *real;
	int sent[2], drop[2];
} lossy;

static bool lose(struct port *p)
{
	int side = p->ops == &lossy.ops[1];

	return lossy.sent[side]++ == lossy.drop[side];
}

static int lossy_tx_frame(struct port *p, const void *frame, u32 len)
{
	return lose(p) ? 0 : lossy.real->tx_frame(p, frame, len);
}

static int lossy_tx_ah(struct port *p, struct port_ah *ah, const void *seg, u32 len)
{
	return lose(p) ? 0 : lossy.real->tx_ah(p, ah, seg, len);
}

static void lossy_up(struct fx *fx, int drop0, int drop1)
{
	memset(&lossy, 0, sizeof(lossy));
	lossy.real = fx->host[0].dev->port->ops;
	lossy.drop[0] = drop0;
	lossy.drop[1] = drop1;
	for (int i = 0; i < 2; i++) {
		lossy.ops[i] = *lossy.real;
		lossy.ops[i].tx_frame = lossy_tx_frame;
		lossy.ops[i].tx_ah = lossy_tx_ah;
		fx->host[i].dev->port->ops = &lossy.ops[i];
	}
}

/* Host 0 connects to host 1, which loses its frame number @drop1; returns how many frames both sent. */
static int one_lost(u8 gen, bool ipv4, int drop0, int drop1, bool reject)
{
	struct fx fx;
	struct endpoint l, c, a;

	fx_up(&fx, gen, 1);
	lossy_up(&fx, drop0, drop1);
	ep_init(&l, &fx, 1);
	ep_init(&a, &fx, 1);
	ep_init(&c, &fx, 0);
	l.child = &a;
	ep_listen(&fx, &l, 1, ipv4, 7000);
	assert_int_equal(ep_connect(&c, 0, 1, ipv4, 5000, 7000), 0);
	fx_run(&fx, 8000);
	assert_int_equal(l.nevents, 1);
	assert_int_equal(reject ? irdma_reject(&a.id, "no", 2) : irdma_accept(&a.id, &a.param), 0);
	fx_run(&fx, 8000);
	assert_int_equal(c.nevents, 1);
	assert_int_equal(c.ev[0].status, reject ? -ECONNREFUSED : 0);
	if (!reject) {
		assert_int_equal(a.ev[0].event, IW_CM_EVENT_ESTABLISHED);
		assert_int_equal(cm_disconnect(&c.id, false), 0);
		fx_run(&fx, 4000);
		assert_int_equal(c.nevents, 3);
		assert_int_equal(c.ev[1].status, 0);
		assert_int_equal(a.nevents, 3);
	}
	fx_run(&fx, 400000);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fx_stats(&fx, i).nodes_now, 0);
		assert_int_equal(fx_stats(&fx, i).nodes_created, 1);
	}
	ep_fini(&fx, &c);
	ep_fini(&fx, &a);
	assert_int_equal(irdma_destroy_listen(&l.id), 0);
	ep_fini(&fx, &l);
	fx_down(&fx);
	return max(lossy.sent[0] > drop0 ? 1 : 0, lossy.sent[1] > drop1 ? 1 : 0);
}

static void each_frame_lost_once(bool reject)
{
	for (size_t r = 0; r < ARRAY_SIZE(runs); r++)
		for (int side = 0; side < 2; side++) {
			int n = 0;

			while (one_lost(runs[r].gen, runs[r].ipv4, side ? 1000 : n, side ? n : 1000, reject))
				n++;
			assert_true(n >= 2);
		}
}

static void accepted_whichever_frame_is_lost(void **state)
{
	each_frame_lost_once(false);
}

static void rejected_whichever_frame_is_lost(void **state)
{
	each_frame_lost_once(true);
}

/* The reply and the FINs of an established connection are the NIC's to repeat; the link goes for a moment. */
static void lost_reply_and_fin_are_repeated(void **state)
{
	for (size_t r = 0; r < ARRAY_SIZE(runs); r++) {
		struct fx fx;
		struct endpoint l, c, a;

		fx_up(&fx, runs[r].gen, 1);
		ep_init(&l, &fx, 1);
		ep_init(&a, &fx, 1);
		ep_init(&c, &fx, 0);
		l.child = &a;
		ep_listen(&fx, &l, 1, runs[r].ipv4, 7000);
		assert_int_equal(ep_connect(&c, 0, 1, runs[r].ipv4, 5000, 7000), 0);
		fx_run(&fx, 100);
		port_wire_set_link(fx.host[1].dev->port, false);
		assert_int_equal(irdma_accept(&a.id, &a.param), 0);
		loop_run(&fx.loop);
		port_wire_set_link(fx.host[1].dev->port, true);
		fx_run(&fx, 100);
		assert_int_equal(c.nevents, 0);
		fx_run(&fx, 3000);
		assert_int_equal(c.nevents, 1);
		assert_int_equal(c.ev[0].status, 0);
		port_wire_set_link(fx.host[0].dev->port, false);
		assert_int_equal(cm_disconnect(&c.id, false), 0);
		loop_run(&fx.loop);
		port_wire_set_link(fx.host[0].dev->port, true);
		fx_run(&fx, 100);
		assert_int_equal(a.nevents, 1);
		fx_run(&fx, 4000);
		assert_int_equal(c.nevents, 3);
		assert_int_equal(a.nevents, 3);
		assert_int_equal(a.ev[1].status, 0);
		ep_fini(&fx, &c);
		ep_fini(&fx, &a);
		irdma_destroy_listen(&l.id);
		ep_fini(&fx, &l);
		fx_down(&fx);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_split_at_every_byte_is_understood),
		cmocka_unit_test(reply_byte_by_byte_is_understood),
		cmocka_unit_test(overlapping_pieces_are_counted_once),
		cmocka_unit_test(stream_bytes_behind_the_reply_reach_the_qp),
		cmocka_unit_test(stream_bytes_behind_the_request_reach_the_qp),
		cmocka_unit_test(node_keeps_no_more_than_its_window),
		cmocka_unit_test(old_segments_do_not_change_the_send_window),
		cmocka_unit_test(syn_window_is_not_scaled),
		cmocka_unit_test(check_seq_at_its_borders),
		cmocka_unit_test(check_syn_wants_exactly_our_syn),
		cmocka_unit_test(repeated_syn_is_answered_with_the_kept_synack),
		cmocka_unit_test(time_wait_begins_again_with_a_fin),
		cmocka_unit_test(accepted_whichever_frame_is_lost),
		cmocka_unit_test(rejected_whichever_frame_is_lost),
		cmocka_unit_test(lost_reply_and_fin_are_repeated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
