// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* SYN cookies: what they carry, how long, how hard they are to guess; connections that begin with one; what a crowded listener keeps. */
#include "cm_states.h"

static void run_begins(struct env *e, size_t run)
{
	env_up(e, run & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2, run & 2);
	fx_tap_off(&e->tap); /* it does not have room for floods */
}

static void run_ends(struct env *e)
{
	env_loop(e);
	if (e->listening)
		assert_int_equal(irdma_destroy_listen(&e->l.id), 0);
	e->listening = false;
	fx_tap_on(&e->fx, 0, &e->tap);
	env_down(e);
}

#define FOR_RUNS(e) for (size_t r = 0; r < 4 && (run_begins(e, r), true); run_ends(e), r++)

/* ---- the cookie itself ---- */

static struct pkt syn_pkt(u32 seq)
{
	return (struct pkt){ .ipv4 = true, .vlan_id = PKT_VLAN_NONE, .src = { 0x0A000002 }, .dst = { 0x0A000001 }, .sport = 5000,
			     .dport = 7000, .seq = seq, .flags = PKT_SYN };
}

/* What acknowledges @cookie. */
static struct pkt ack_pkt(const struct pkt *syn, u32 cookie)
{
	struct pkt p = *syn;

	p.seq++;
	p.ack = cookie + 1;
	p.flags = PKT_ACK;
	return p;
}

static void cookie_brings_back_what_the_syn_said(void **state)
{
	static const u16 ours[] = { 536, 1220, 1440, 1460, 8960, 65495 }, theirs[] = { 536, 537, 1219, 1220, 1399, 1400, 1459, 1460, 1461, 8960 };
	struct cm_cookie in, out;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	for (size_t o = 0; o < ARRAY_SIZE(ours); o++)
		for (size_t t = 0; t < ARRAY_SIZE(theirs); t++)
			for (int scale = -1; scale <= CM_WIN_SCALE_MAX; scale++) {
				struct pkt syn = syn_pkt((u32)(o + 1000 * t)), ack;

				in = (struct cm_cookie){ min(theirs[t], ours[o]), scale >= 0, (u8)max(scale, 0) };
				ack = ack_pkt(&syn, cm_cookie_make(env_core(&e), &syn, ours[o], &in));
				assert_true(cm_cookie_check(env_core(&e), &ack, ours[o], &out));
				assert_true(out.mss <= in.mss && (out.mss == ours[o] || out.mss > in.mss / 7));
				if (in.mss == ours[o])
					assert_int_equal(out.mss, in.mss);
				assert_int_equal(out.wscale_ok, in.wscale_ok);
				assert_true(out.wscale <= in.wscale && in.wscale - out.wscale <= 3);
			}
	for (u8 scale = 6; scale <= 8; scale++) { /* the usual ones, exactly */
		struct pkt syn = syn_pkt(scale), ack;

		in = (struct cm_cookie){ 1460, true, scale };
		ack = ack_pkt(&syn, cm_cookie_make(env_core(&e), &syn, 1460, &in));
		assert_true(cm_cookie_check(env_core(&e), &ack, 1460, &out));
		assert_int_equal(out.wscale, scale);
	}
	env_down(&e);
}

static void cookie_is_for_one_syn_alone(void **state)
{
	const struct cm_cookie in = { 1460, true, 7 };
	struct pkt syn = syn_pkt(77), good, bad;
	struct cm_cookie out;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	good = ack_pkt(&syn, cm_cookie_make(env_core(&e), &syn, 1460, &in));
	assert_true(cm_cookie_check(env_core(&e), &good, 1460, &out));
#define DIFFERS(change) do { bad = good; bad.change; assert_false(cm_cookie_check(env_core(&e), &bad, 1460, &out)); } while (0)
	for (int bit = 0; bit < 32; bit++)
		for (int w = 0; w < 4; w++) {
			DIFFERS(src[w] ^= BIT(bit));
			DIFFERS(dst[w] ^= BIT(bit));
		}
	for (int bit = 0; bit < 32; bit++)
		DIFFERS(seq ^= BIT(bit));
	for (int bit = 0; bit < 16; bit++) {
		DIFFERS(sport ^= BIT(bit));
		DIFFERS(dport ^= BIT(bit));
		DIFFERS(vlan_id ^= BIT(bit));
	}
	DIFFERS(seq++);
	DIFFERS(seq--);
	for (int bit = 5; bit < 32; bit++)
		DIFFERS(ack = ((good.ack - 1) ^ BIT(bit)) + 1);
#undef DIFFERS
	env_down(&e);
}

/* A guess is right once in 2^26; this one is seeded. */
static void cookies_are_hard_to_guess(void **state)
{
	struct pkt syn = syn_pkt(1), ack = ack_pkt(&syn, 0);
	struct cm_cookie out;
	struct rand_gen g;
	struct env e;
	int right = 0;

	env_up(&e, IRDMA_GEN_2, true);
	rand_gen_seed(&g, 4);
	for (int i = 0; i < 1 << 20; i++) {
		ack.ack = (u32)rand_gen_u64(&g);
		right += cm_cookie_check(env_core(&e), &ack, 1460, &out);
	}
	assert_true(right <= 1);
	env_down(&e);
}

/* What goes over the wire is not to be told from random numbers: each bit is set about half of the time, with all SYNs alike but for the port. */
static void every_bit_of_a_cookie_varies(void **state)
{
	const struct cm_cookie in = { 1460, true, 7 };
	int set[32] = { 0 };
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	for (u16 port = 1; port <= 10000; port++) {
		struct pkt syn = syn_pkt(1);

		syn.sport = port;
		u32 cookie = cm_cookie_make(env_core(&e), &syn, 1460, &in);

		for (int bit = 0; bit < 32; bit++)
			set[bit] += !!(cookie & BIT(bit));
	}
	for (int bit = 0; bit < 32; bit++)
		assert_in_range(set[bit], 4750, 5250); /* five standard deviations */
	env_down(&e);
}

static void cookie_lives_for_one_to_two_slots(void **state)
{
	const struct cm_cookie in = { 1460, false, 0 };
	struct pkt syn = syn_pkt(1), ack;
	u32 first, other;
	struct cm_cookie out;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	fx_run(&e.fx, CM_COOKIE_SLOT_MS - loop_now(&e.fx.loop) / NSEC_PER_MSEC % CM_COOKIE_SLOT_MS); /* a slot begins */
	first = cm_cookie_make(env_core(&e), &syn, 1460, &in);
	ack = ack_pkt(&syn, first);
	fx_run(&e.fx, CM_COOKIE_SLOT_MS - 1);
	assert_int_equal(cm_cookie_make(env_core(&e), &syn, 1460, &in), first); /* a SYN sent again gets the same */
	fx_run(&e.fx, CM_COOKIE_SLOT_MS);
	assert_true(cm_cookie_check(env_core(&e), &ack, 1460, &out));
	assert_int_not_equal(cm_cookie_make(env_core(&e), &syn, 1460, &in), first);
	fx_run(&e.fx, 1);
	assert_false(cm_cookie_check(env_core(&e), &ack, 1460, &out));
	/* keys that nobody used for long are not the old ones */
	first = cm_cookie_make(env_core(&e), &syn, 1460, &in);
	ack = ack_pkt(&syn, first);
	fx_run(&e.fx, 5 * CM_COOKIE_SLOT_MS);
	assert_false(cm_cookie_check(env_core(&e), &ack, 1460, &out));
	other = cm_cookie_make(e.fx.host[2].dev->cm_core, &syn, 1460, &in);
	assert_int_not_equal(cm_cookie_make(env_core(&e), &syn, 1460, &in), other); /* each core has its own */
	env_down(&e);
}

/* ---- a crowded listener ---- */

static const u8 syn_opts[] = { 2, 4, 0x05, 0x78 /* 1400 */, 1, 3, 3, 7 };

static void listen_with(struct env *e, int backlog)
{
	u32 addr[4];

	fx_addr(e->ipv4, 0, addr);
	cm_addr_to_sockaddr(e->ipv4, addr, 7000, &e->l.id.m_local_addr);
	assert_int_equal(irdma_create_listen(&e->l.id, backlog), 0);
	e->listening = true;
}

static void feed_from(struct env *e, u16 rem_port, const struct fx_seg *s)
{
	struct fx_peer p;

	fx_peer_tuple(&p, &e->fx, e->ipv4, 7000, rem_port);
	fx_feed(e->p.dev, &p.t, s);
}

static void flood(struct env *e, u16 from, int count)
{
	for (int i = 0; i < count; i++)
		feed_from(e, (u16)(from + i), &(struct fx_seg){ .flags = PKT_SYN, .seq = FX_PEER_ISS, .window = 8192 });
}

/* SYN from @port; the sequence number of the answer. */
static u32 syn_from(struct env *e, u16 port)
{
	struct fx_seg syn = { .flags = PKT_SYN, .seq = FX_PEER_ISS, .window = 8192, .opts = syn_opts, .optlen = sizeof(syn_opts) };
	u32 n;

	fx_tap_on(&e->fx, 0, &e->tap);
	n = e->tap.n;
	feed_from(e, port, &syn);
	assert_int_equal(e->tap.n, n + 1);
	assert_int_equal(fx_last(&e->tap)->flags, PKT_SYN | PKT_ACK);
	assert_int_equal(fx_last(&e->tap)->ack, FX_PEER_ISS + 1);
	assert_int_equal(fx_last(&e->tap)->dport, port);
	fx_tap_off(&e->tap);
	return fx_last(&e->tap)->seq;
}

/* The first data of a peer at @port whose SYN was answered with @iss. Number of answers. */
static u32 says(struct env *e, u16 port, u32 iss, u8 flags, const void *data, u32 len)
{
	fx_tap_on(&e->fx, 0, &e->tap);
	feed_from(e, port, &(struct fx_seg){ .flags = PKT_ACK | flags, .seq = FX_PEER_ISS + 1, .ack = iss + 1, .window = 100, .data = data, .len = len });
	fx_tap_off(&e->tap);
	return e->tap.n;
}

static u32 asks(struct env *e, u16 port, u32 iss)
{
	u8 buf[64];

	return says(e, port, iss, PKT_PSH, buf, env_mpa(buf, false, MPA_REV_2, MPA_FLAG_CRC, "hi", 2));
}

static struct irdma_cm_node *node_at(struct env *e, u16 port)
{
	struct irdma_cm_node *node;
	struct fx_peer p;

	fx_peer_tuple(&p, &e->fx, e->ipv4, 7000, port);
	node = irdma_find_node(env_core(e), port, p.t.rem_addr, 7000, p.t.loc_addr, PKT_VLAN_NONE);
	if (node)
		irdma_rem_ref_cm_node(node);
	return node;
}

static void half_of_the_backlog_is_for_half_open_ones(void **state)
{
	static const struct { int backlog; u64 nodes; } t[] = { { 1, 1 }, { 2, 1 }, { 3, 2 }, { 4, 2 }, { 16, 8 }, { 10000, CM_HALF_OPEN_MAX } };
	struct cm_stats st;
	struct env e;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		FOR_RUNS(&e) {
			size_t bufs;

			listen_with(&e, t[i].backlog);
			flood(&e, 10000, (int)t[i].nodes);
			bufs = fx_bufs(&e.fx);
			flood(&e, 20000, 2000);
			st = fx_stats(&e.fx, 0);
			assert_int_equal(st.half_open_now, t[i].nodes);
			assert_int_equal(st.nodes_created, t[i].nodes);
			assert_int_equal(st.cookies_sent, 2000);
			assert_int_equal(st.half_open_evicted + st.backlog_drops, 0);
			assert_int_equal(fx_bufs(&e.fx), bufs); /* and what is on the wire is not the CM's */
		}
}

static void connection_begins_with_its_request(void **state)
{
	struct env e;

	FOR_RUNS(&e)
		for (int with_ack = 0; with_ack < 2; with_ack++) {
			struct irdma_cm_node *node;
			u32 iss;

			if (!with_ack)
				listen_with(&e, 2);
			flood(&e, 20000, 1);
			iss = syn_from(&e, 5000);
			assert_int_equal(syn_from(&e, 5000), iss); /* sent again */
			assert_null(node_at(&e, 5000));
			if (with_ack) {
				assert_int_equal(says(&e, 5000, iss, 0, NULL, 0), 0);
				assert_null(node_at(&e, 5000));
			}
			asks(&e, 5000, iss);
			env_loop(&e);
			node = node_at(&e, 5000);
			assert_non_null(node);
			assert_int_equal(node->state, ST(MPAREQ_RCVD));
			assert_int_equal(node->tcp_cntxt.mss, 1400);
			assert_int_equal(node->tcp_cntxt.snd_wscale, 7);
			assert_int_equal(node->tcp_cntxt.snd_wnd, 100 << 7);
			assert_true(node->tcp_cntxt.wscale_ok);
			assert_int_equal(node->tcp_cntxt.rcv_wscale, CM_RCV_WSCALE);
			assert_int_equal(node->tcp_cntxt.irs, FX_PEER_ISS);
			assert_int_equal(e.l.ev[e.l.nevents - 1].event, IW_CM_EVENT_CONNECT_REQUEST);
			assert_memory_equal(e.l.pdata[e.l.nevents - 1], "hi", 2);
			asks(&e, 5000, iss); /* sent again: seen before */
			assert_int_equal(e.l.nevents, with_ack + 1);
			if (with_ack)
				assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
			else
				assert_int_equal(irdma_reject(&e.a.id, NULL, 0), 0);
			feed_from(&e, 5000, &(struct fx_seg){ .flags = PKT_RST | PKT_ACK, .seq = node->tcp_cntxt.rcv_nxt });
			assert_int_equal(fx_stats(&e.fx, 0).cookies_accepted, with_ack + 1);
			assert_int_equal(fx_stats(&e.fx, 0).cookies_bad, 0);
		}
}

static void options_of_the_syn_decide_about_scaling(void **state)
{
	struct fx_seg syn = { .flags = PKT_SYN, .seq = FX_PEER_ISS, .window = 8192 };
	struct env e;

	FOR_RUNS(&e) {
		listen_with(&e, 2);
		flood(&e, 20000, 1);
		fx_tap_on(&e.fx, 0, &e.tap);
		feed_from(&e, 5000, &syn);
		assert_int_equal(fx_last(&e.tap)->optlen, 4); /* MSS alone */
		fx_tap_off(&e.tap);
		asks(&e, 5000, fx_last(&e.tap)->seq);
		struct irdma_cm_node *node = node_at(&e, 5000);

		assert_non_null(node);
		assert_false(node->tcp_cntxt.wscale_ok);
		assert_int_equal(node->tcp_cntxt.snd_wnd, 100);
		assert_int_equal(node->tcp_cntxt.rcv_wscale, 0);
		assert_int_equal(node->tcp_cntxt.mss, e.ipv4 ? 536 : 1220);
	}
}

static void bad_options_are_reset(void **state)
{
	static const u8 zero_len[4] = { 2, 0, 5, 180 };
	struct env e;

	FOR_RUNS(&e) {
		listen_with(&e, 2);
		flood(&e, 20000, 1);
		fx_tap_on(&e.fx, 0, &e.tap);
		feed_from(&e, 5000, &(struct fx_seg){ .flags = PKT_SYN, .seq = 1, .opts = zero_len, .optlen = 4 });
		fx_tap_off(&e.tap);
		assert_int_equal(e.tap.n, 1);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_RST | PKT_ACK);
		assert_int_equal(fx_stats(&e.fx, 0).bad_segments, 1);
		assert_int_equal(fx_stats(&e.fx, 0).cookies_sent, 0);
	}
}

/* The first of two segments was lost: a reset for the second would end a good connection. */
static void second_segment_waits_for_the_first(void **state)
{
	u8 buf[64];
	u32 len = env_mpa(buf, false, MPA_REV_2, MPA_FLAG_CRC, "hi", 2), iss;
	struct env e;

	FOR_RUNS(&e) {
		listen_with(&e, 3);
		flood(&e, 20000, 2);
		iss = syn_from(&e, 5000);
		struct fx_seg second = { .flags = PKT_ACK, .seq = FX_PEER_ISS + 1 + 10, .ack = iss + 1, .window = 100, .data = buf + 10, .len = len - 10 };

		fx_tap_on(&e.fx, 0, &e.tap);
		feed_from(&e, 5000, &second);
		fx_tap_off(&e.tap);
		assert_int_equal(e.tap.n, 0);
		assert_null(node_at(&e, 5000));
		assert_int_equal(fx_stats(&e.fx, 0).cookies_bad, 1);
		says(&e, 5000, iss, 0, buf, 10);
		assert_int_equal(node_at(&e, 5000)->state, ST(ESTABLISHED));
		feed_from(&e, 5000, &second);
		assert_int_equal(node_at(&e, 5000)->state, ST(MPAREQ_RCVD));
	}
}

static void strays_are_reset_before_and_after_the_crowd(void **state)
{
	struct env e;
	u32 iss;

	FOR_RUNS(&e) {
		listen_with(&e, 2);
		assert_int_equal(says(&e, 5000, 1, 0, "x", 1), 1); /* nobody got a cookie yet */
		assert_int_equal(fx_last(&e.tap)->flags, PKT_RST);
		flood(&e, 20000, 2);
		assert_int_equal(says(&e, 5000, 1, 0, "x", 1), 0);
		assert_int_equal(says(&e, 5000, 1, PKT_FIN, NULL, 0), 1);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_RST);
		iss = syn_from(&e, 5000);
		fx_run(&e.fx, 2 * CM_COOKIE_SLOT_MS);
		assert_int_equal(asks(&e, 5000, iss), 1); /* long gone */
		assert_int_equal(fx_last(&e.tap)->flags, PKT_RST);
		assert_int_equal(fx_stats(&e.fx, 0).cookies_accepted, 0);
		assert_int_equal(fx_stats(&e.fx, 0).half_open_now, 0);
	}
}

static void cookie_of_a_listener_that_went_is_a_stray(void **state)
{
	struct env e;
	u32 iss;

	FOR_RUNS(&e) {
		listen_with(&e, 2);
		flood(&e, 20000, 1);
		iss = syn_from(&e, 5000);
		assert_int_equal(irdma_destroy_listen(&e.l.id), 0);
		e.listening = false;
		assert_int_equal(asks(&e, 5000, iss), 1);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_RST);
	}
}

static void request_with_fin_is_a_request(void **state)
{
	u8 buf[64];
	u32 len = env_mpa(buf, false, MPA_REV_2, MPA_FLAG_CRC, "hi", 2);
	struct env e;

	FOR_RUNS(&e) {
		listen_with(&e, 2);
		flood(&e, 20000, 1);
		says(&e, 5000, syn_from(&e, 5000), PKT_FIN, buf, len);
		assert_int_equal(node_at(&e, 5000)->state, ST(MPAREQ_RCVD));
		assert_true(node_at(&e, 5000)->peer_fin);
	}
}

/* Whoever wins the upper layer's places has them; who comes behind waits, and is not turned away. */
static void request_waits_for_a_place(void **state)
{
	struct env e;
	u32 iss[3];

	FOR_RUNS(&e) {
		listen_with(&e, 2);
		e.l.child = NULL;
		flood(&e, 20000, 1);
		for (u16 i = 0; i < 3; i++)
			iss[i] = syn_from(&e, (u16)(5000 + i));
		asks(&e, 5000, iss[0]);
		asks(&e, 5001, iss[1]); /* the half-open one gives way */
		assert_int_equal(fx_stats(&e.fx, 0).half_open_evicted, 1);
		assert_int_equal(asks(&e, 5002, iss[2]), 0);
		assert_int_equal(fx_stats(&e.fx, 0).backlog_drops, 1);
		assert_null(node_at(&e, 5002));
		fx_tap_on(&e.fx, 0, &e.tap);
		flood(&e, 20001, 1); /* all that wait have said all they can: no promise to one more */
		fx_tap_off(&e.tap);
		assert_int_equal(e.tap.n, 0);
		assert_int_equal(fx_stats(&e.fx, 0).backlog_drops, 2);
		env_loop(&e); /* both are refused */
		asks(&e, 5002, iss[2]);
		assert_non_null(node_at(&e, 5002));
	}
}

static void silent_peers_give_way_to_a_request_that_is_whole(void **state)
{
	struct fx_peer p[2];
	struct env e;
	u32 iss;

	FOR_RUNS(&e) {
		listen_with(&e, 2);
		fx_peer_passive(&p[0], &e.fx, e.ipv4, 20000);
		fx_peer_passive(&p[1], &e.fx, e.ipv4, 20001);
		iss = syn_from(&e, 5000);
		assert_int_equal(says(&e, 5000, iss, 0, "M", 1), 0); /* a byte drives nobody out */
		assert_null(node_at(&e, 5000));
		assert_int_equal(fx_stats(&e.fx, 0).silent_evicted, 0);
		asks(&e, 5000, iss);
		assert_int_equal(fx_stats(&e.fx, 0).silent_evicted, 1);
		for (u32 i = 0; i < e.tap.n; i++) /* it may come back: no reset */
			assert_int_equal(e.tap.f[i].pkt.dport, 5000);
		assert_int_equal(p[0].node->state, ST(CLOSED));
		assert_int_equal(p[1].node->state, ST(ESTABLISHED));
		assert_int_equal(node_at(&e, 5000)->state, ST(MPAREQ_RCVD));
		fx_peer_done(&p[0]);
		fx_peer_done(&p[1]);
	}
}

/* Who gave way has lost nothing: its request makes it anew. Had it said something, it could not go on, and is told. */
static void who_gave_way_comes_back(void **state)
{
	struct fx_peer p[3];
	struct env e;

	FOR_RUNS(&e) {
		listen_with(&e, 3);
		fx_peer_syn(&p[0], &e.fx, e.ipv4, 20000);
		fx_peer_passive(&p[1], &e.fx, e.ipv4, 20001);
		fx_peer_passive(&p[2], &e.fx, e.ipv4, 20002);
		fx_peer_send(&p[2], PKT_ACK, "M", 1);
		u32 iss[3];

		for (u16 i = 0; i < 3; i++) {
			iss[i] = syn_from(&e, (u16)(5000 + i));
			asks(&e, (u16)(5000 + i), iss[i]);
			assert_int_equal(p[i].node->state, ST(CLOSED));
			assert_int_equal(e.tap.f[0].pkt.flags & PKT_RST ? e.tap.f[0].pkt.dport : 0, i == 2 ? 20002 : 0);
		}
		e.l.child = NULL;
		env_loop(&e); /* refused: places are free */
		for (u16 i = 0; i < 3; i++) {
			asks(&e, (u16)(20000 + i), p[i].node->tcp_cntxt.iss);
			assert_int_equal(node_at(&e, (u16)(20000 + i))->state, ST(MPAREQ_RCVD));
			fx_peer_done(&p[i]);
		}
	}
}

/* The second that a silent peer has in a crowd is over: the same. */
static void who_was_silent_for_too_long_comes_back(void **state)
{
	struct fx_peer p[2];
	struct env e;

	FOR_RUNS(&e) {
		listen_with(&e, 2);
		e.l.child = NULL;
		fx_peer_passive(&p[0], &e.fx, e.ipv4, 20000);
		fx_peer_passive(&p[1], &e.fx, e.ipv4, 20001);
		flood(&e, 21000, 1);
		fx_tap_on(&e.fx, 0, &e.tap);
		fx_run(&e.fx, CM_SILENT_MIN_MS + 2);
		fx_tap_off(&e.tap);
		assert_int_equal(e.tap.n, 0);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(p[i].node->state, ST(CLOSED));
			asks(&e, (u16)(20000 + i), p[i].node->tcp_cntxt.iss);
			assert_int_equal(node_at(&e, (u16)(20000 + i))->state, ST(MPAREQ_RCVD));
			fx_peer_done(&p[i]);
		}
	}
}

static int no_ah(struct port *p, const struct port_ah_attr *a, struct port_ah **out)
{
	return -ENOMEM;
}

static void without_means_it_is_as_good_as_lost(void **state)
{
	struct env e;
	u32 iss;

	FOR_RUNS(&e) {
		listen_with(&e, 2);
		flood(&e, 20000, 1);
		iss = syn_from(&e, 5000);
		e.p.dev->cm_core->node_pool.limit = e.p.dev->cm_core->node_pool.used;
		assert_int_equal(asks(&e, 5000, iss), 0);
		e.p.dev->cm_core->node_pool.limit = 0;
		assert_null(node_at(&e, 5000));
		if (e.fx.gen == IRDMA_GEN_2) {
			e.ops.ah_create = no_ah;
			flood(&e, 6000, 1);
			assert_int_equal(asks(&e, 5000, iss), 0);
			assert_null(node_at(&e, 5000));
			e.ops.ah_create = e.fx.host[1].dev->port->ops->ah_create;
		}
		e.p.dev->vsi.small.limit = e.p.dev->vsi.small.used + 1; /* the received one */
		flood(&e, 6000, 1);
		e.p.dev->vsi.small.limit = 0;
		assert_int_equal(fx_stats(&e.fx, 0).cookies_sent, 1);
		assert_int_equal(fx_stats(&e.fx, 0).half_open_now, 1);
		asks(&e, 5000, iss);
		assert_int_equal(node_at(&e, 5000)->state, ST(MPAREQ_RCVD));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cookie_brings_back_what_the_syn_said),
		cmocka_unit_test(cookie_is_for_one_syn_alone),
		cmocka_unit_test(cookies_are_hard_to_guess),
		cmocka_unit_test(every_bit_of_a_cookie_varies),
		cmocka_unit_test(cookie_lives_for_one_to_two_slots),
		cmocka_unit_test(half_of_the_backlog_is_for_half_open_ones),
		cmocka_unit_test(connection_begins_with_its_request),
		cmocka_unit_test(options_of_the_syn_decide_about_scaling),
		cmocka_unit_test(bad_options_are_reset),
		cmocka_unit_test(second_segment_waits_for_the_first),
		cmocka_unit_test(strays_are_reset_before_and_after_the_crowd),
		cmocka_unit_test(cookie_of_a_listener_that_went_is_a_stray),
		cmocka_unit_test(request_with_fin_is_a_request),
		cmocka_unit_test(request_waits_for_a_place),
		cmocka_unit_test(silent_peers_give_way_to_a_request_that_is_whole),
		cmocka_unit_test(who_gave_way_comes_back),
		cmocka_unit_test(who_was_silent_for_too_long_comes_back),
		cmocka_unit_test(without_means_it_is_as_good_as_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
