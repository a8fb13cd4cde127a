// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Segments of a peer played by the test: strays, floods, hostile sources, shortage, fall-back, split start-up frames. */
#include "cm_states.h"

static const struct { u8 gen; bool ipv4; } runs[] = { { IRDMA_GEN_1, true }, { IRDMA_GEN_2, true }, { IRDMA_GEN_1, false }, { IRDMA_GEN_2, false } };

#define FOR_RUNS(e) \
	for (size_t r = 0; r < ARRAY_SIZE(runs) && (env_up(e, runs[r].gen, runs[r].ipv4), true); env_down(e), r++)

/* ---- nobody's segments ---- */

static void feed_from(struct env *e, u16 rem_port, const struct fx_seg *s)
{
	struct fx_peer p;

	fx_peer_tuple(&p, &e->fx, e->ipv4, 7000, rem_port);
	fx_feed(e->p.dev, &p.t, s);
}

static void stray_with_ack_is_reset_at_its_ack(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		feed_from(&e, 5000, &(struct fx_seg){ .flags = PKT_ACK, .seq = 100, .ack = 777 });
		assert_int_equal(e.tap.n, 1);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_RST);
		assert_int_equal(fx_last(&e.tap)->seq, 777);
		assert_int_equal(fx_last(&e.tap)->sport, 7000);
		assert_int_equal(fx_last(&e.tap)->dport, 5000);
		assert_true(pkt_addr_eq(fx_last(&e.tap)->dst, (u32[4]){ e.ipv4 ? 0x0A000002 : 0xFD000000, 0, 0, e.ipv4 ? 0 : 2 }));
	}
}

static void stray_without_ack_is_acknowledged_in_its_reset(void **state)
{
	static const struct { u8 flags; u32 len, ack; } t[] = {
		{ PKT_SYN, 0, 101 }, { 0, 5, 105 }, { PKT_FIN, 5, 106 }, { PKT_SYN | PKT_FIN, 1, 103 }, { PKT_SYN, 4, 105 },
	};
	struct env e;

	FOR_RUNS(&e)
		for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
			feed_from(&e, 5000, &(struct fx_seg){ .flags = t[i].flags, .seq = 100, .data = "abcde", .len = t[i].len });
			assert_int_equal(e.tap.n, i + 1);
			assert_int_equal(fx_last(&e.tap)->flags, PKT_RST | PKT_ACK);
			assert_int_equal(fx_last(&e.tap)->seq, 0);
			assert_int_equal(fx_last(&e.tap)->ack, t[i].ack);
		}
}

static void stray_reset_is_not_answered(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		feed_from(&e, 5000, &(struct fx_seg){ .flags = PKT_RST, .seq = 100 });
		feed_from(&e, 5000, &(struct fx_seg){ .flags = PKT_RST | PKT_ACK, .seq = 100 });
		feed_from(&e, 5000, &(struct fx_seg){ .flags = PKT_RST | PKT_SYN, .seq = 100 });
		assert_int_equal(e.tap.n, 0);
	}
}

/* RFC 1122 3.2.1.3: such sources get neither a connection nor an answer. */
static void hostile_sources_get_nothing(void **state)
{
	static const struct { bool ipv4; u32 src[4]; u16 port; } t[] = {
		{ true, { 0xE0000001 }, 5000 }, { true, { 0xFFFFFFFF }, 5000 }, { true, { 0xF0000001 }, 5000 }, { true, { 0 }, 5000 },
		{ true, { 0x0A000001 }, 7000 }, { true, { 0x0A000002 }, 0 },
		{ false, { 0xFF020000, 0, 0, 1 }, 5000 }, { false, { 0 }, 5000 }, { false, { 0xFD000000, 0, 0, 1 }, 7000 },
		{ false, { 0xFD000000, 0, 0, 2 }, 0 },
	};
	static const u8 flags[] = { PKT_SYN, PKT_ACK, PKT_FIN | PKT_ACK, PKT_SYN | PKT_ACK, 0 };
	struct env e;

	FOR_RUNS(&e) {
		env_listen(&e);
		for (size_t i = 0; i < ARRAY_SIZE(t); i++)
			for (size_t f = 0; f < ARRAY_SIZE(flags); f++) {
				struct fx_peer p;

				if (t[i].ipv4 != e.ipv4)
					continue;
				fx_peer_tuple(&p, &e.fx, e.ipv4, 7000, t[i].port);
				memcpy(p.t.rem_addr, t[i].src, sizeof(p.t.rem_addr));
				fx_feed(e.p.dev, &p.t, &(struct fx_seg){ .flags = flags[f], .seq = 1, .ack = 2 });
			}
		assert_int_equal(e.tap.n, 0);
		assert_int_equal(fx_stats(&e.fx, 0).nodes_created, 0);
	}
}

static void last_good_addresses_are_served(void **state)
{
	struct fx_peer p;
	struct env e;

	env_up(&e, IRDMA_GEN_1, true);
	env_listen(&e);
	fx_peer_tuple(&p, &e.fx, true, 7000, 7000); /* same port, another address */
	fx_feed(e.p.dev, &p.t, &(struct fx_seg){ .flags = PKT_SYN, .seq = 1 });
	assert_int_equal(fx_last(&e.tap)->flags, PKT_SYN | PKT_ACK);
	fx_peer_tuple(&p, &e.fx, true, 7000, 1);
	memcpy(p.t.rem_addr, p.t.loc_addr, sizeof(p.t.rem_addr)); /* own address, another port */
	fx_feed(e.p.dev, &p.t, &(struct fx_seg){ .flags = PKT_SYN, .seq = 1 });
	assert_int_equal(fx_stats(&e.fx, 0).half_open_now, 2);
	assert_int_equal(fx_stats(&e.fx, 0).loopbacks, 1);
	env_down(&e);
}

/* Its link address is not known yet: answered to where the SYN came from. */
static void syn_of_an_unknown_neighbour_is_answered(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		struct pkt_route route = { .vlan_id = PKT_VLAN_NONE, .ipv4 = e.ipv4, .ttl = 64, .smac = { 2, 0, 0, 0, 9, 9 } };
		u8 frame[PKT_HDR_MAX + PKT_TCP_LEN] = { 0 }, *tcp = frame + PKT_HDR_MAX, *start;
		struct tcphdr h = { .source = htons(5000), .dest = htons(7000), .doff = 5, .syn = 1 };

		env_listen(&e);
		net_sim_neigh_delay(e.fx.host[0].net, 1000);
		memcpy(tcp, &h, sizeof(h));
		memcpy(route.dmac, e.fx.host[0].iface.mac, 6);
		fx_addr(e.ipv4, 1, route.src);
		fx_addr(e.ipv4, 0, route.dst);
		start = pkt_push_headers(&route, tcp, PKT_TCP_LEN, 1);
		assert_int_equal(port_wire_inject(e.fx.wire, start, (u32)(tcp + PKT_TCP_LEN - start), 0), 0);
		fx_run(&e.fx, 10);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_SYN | PKT_ACK);
		assert_memory_equal(fx_last(&e.tap)->dmac, route.smac, 6);
	}
}

/* ---- shortage ---- */

static int no_ah(struct port *p, const struct port_ah_attr *a, struct port_ah **out)
{
	return -EMFILE;
}

static void stray_without_means_is_dropped(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	e.ops.ah_create = no_ah;
	feed_from(&e, 5000, &(struct fx_seg){ .flags = PKT_ACK, .ack = 1 });
	e.ops.ah_create = e.fx.host[1].dev->port->ops->ah_create;
	e.p.dev->vsi.small.limit = 1; /* the received one */
	feed_from(&e, 5000, &(struct fx_seg){ .flags = PKT_ACK, .ack = 1 });
	assert_int_equal(e.tap.n, 0);
	e.p.dev->vsi.small.limit = 0;
	feed_from(&e, 5000, &(struct fx_seg){ .flags = PKT_ACK, .ack = 1 });
	assert_int_equal(e.tap.n, 1);
	env_down(&e);
}

static void syn_without_means_is_as_good_as_lost(void **state)
{
	struct fx_seg syn = { .flags = PKT_SYN, .seq = 1 };
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_listen(&e);
	e.ops.ah_create = no_ah;
	feed_from(&e, 5000, &syn);
	e.ops.ah_create = e.fx.host[1].dev->port->ops->ah_create;
	e.p.dev->vsi.small.limit = 1;
	feed_from(&e, 5000, &syn);
	e.p.dev->vsi.small.limit = 0;
	assert_int_equal(e.tap.n, 0);
	assert_int_equal(fx_stats(&e.fx, 0).passive_errs, 2);
	assert_int_equal(fx_stats(&e.fx, 0).nodes_now, 0);
	assert_int_equal(fx_stats(&e.fx, 0).half_open_now, 0);
	feed_from(&e, 5000, &syn);
	assert_int_equal(fx_last(&e.tap)->flags, PKT_SYN | PKT_ACK);
	env_down(&e);
}

static void syn_without_a_node_is_dropped(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_listen(&e);
	env_core(&e)->node_pool.limit = 1;
	feed_from(&e, 5000, &(struct fx_seg){ .flags = PKT_SYN, .seq = 1 });
	feed_from(&e, 5001, &(struct fx_seg){ .flags = PKT_SYN, .seq = 1 });
	assert_int_equal(e.tap.n, 1);
	assert_int_equal(fx_stats(&e.fx, 0).nodes_now, 1);
	env_down(&e);
}

static void full_ilq_is_said_to_the_port(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	e.p.dev->vsi.small.limit = 1;
	struct irdma_puda_buf *b = rnic_buf_get(&e.p.dev->vsi, 0);
	struct port_rx rx = { .error = 0 };

	assert_false(rnic_ilq_receive(e.p.dev, &rx));
	assert_int_equal(e.p.dev->vsi.rx_dropped, 1);
	rnic_buf_put(b);
	env_down(&e);
}

static void no_buffer_for_the_request_fails_upward(void **state)
{
	struct irdma_puda_buf *b;
	struct env e;

	env_up(&e, IRDMA_GEN_1, true);
	e.c.param.private_data = "0123456789012345678901234567890123456789012345678901234567890123456789";
	e.c.param.private_data_len = 70; /* a large buffer's business */
	e.p.dev->vsi.large.limit = 1;
	b = rnic_buf_get(&e.p.dev->vsi, 200);
	env_goto(&e, ST(SYN_SENT));
	fx_peer_send(&e.p, PKT_SYN | PKT_ACK, NULL, 0);
	assert_int_equal(e.p.node->state, ST(CLOSED));
	assert_int_equal(fx_last(&e.tap)->flags, PKT_RST | PKT_ACK);
	env_loop(&e);
	assert_int_equal(e.c.nevents, 1);
	assert_int_equal(e.c.ev[0].status, -ENOMEM);
	assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_NO_RESOURCES);
	rnic_buf_put(b);
	env_down(&e);
}

/* Peer's FIN when there is no buffer for ours. */
static void no_buffer_for_the_fin_ends_the_node(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(ESTABLISHED));
	e.p.dev->vsi.small.limit = 1;
	fx_peer_send(&e.p, PKT_FIN | PKT_ACK, NULL, 0);
	assert_int_equal(e.p.node->state, ST(CLOSED));
	e.p.dev->vsi.small.limit = 0;
	env_down(&e);
}

static void bad_ack_without_a_buffer_is_only_counted(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_1, true);
	env_goto(&e, ST(SYN_SENT));
	u32 n = e.tap.n;

	e.p.dev->vsi.small.limit = e.p.dev->vsi.small.used + 1;
	fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_ACK, .ack = 12345 });
	assert_int_equal(e.tap.n, n);
	assert_int_equal(fx_stats(&e.fx, 0).bad_segments, 1);
	assert_int_equal(e.p.node->state, ST(SYN_SENT));
	e.p.dev->vsi.small.limit = 0;
	env_down(&e);
}

/* ---- options: fault 1 ---- */

static void option_of_length_zero_ends_the_attempt(void **state)
{
	static const u8 opts[4] = { 2, 0, 5, 0xB4 };
	struct env e;

	FOR_RUNS(&e) {
		struct fx_seg s = { .flags = PKT_SYN, .seq = 1, .opts = opts, .optlen = 4 };

		env_listen(&e);
		feed_from(&e, 5000, &s);
		assert_int_equal(fx_stats(&e.fx, 0).passive_errs, 1);
		assert_int_equal(fx_stats(&e.fx, 0).nodes_now, 0);
		env_goto(&e, ST(SYN_SENT));
		s.flags |= PKT_ACK;
		s.ack = e.p.node->tcp_cntxt.loc_seq_num;
		fx_feed(e.p.dev, &e.p.t, &s);
		assert_int_equal(e.p.node->state, ST(CLOSED));
		assert_true(fx_last(&e.tap)->flags & PKT_RST);
		env_loop(&e);
		assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_BAD_TCP);
	}
}

/* ---- RST: fault 4, causes ---- */

static void reset_in_syn_sent_tells_the_true_cause(void **state)
{
	static const struct { int error, status; enum cm_cause cause; } t[] = {
		{ 0, -ECONNREFUSED, CM_CAUSE_REFUSED }, { -ECONNREFUSED, -ECONNREFUSED, CM_CAUSE_REFUSED },
		{ -ECONNRESET, -ECONNRESET, CM_CAUSE_RESET }, { -ETIMEDOUT, -ETIMEDOUT, CM_CAUSE_NO_SYNACK },
		{ -EHOSTUNREACH, -EHOSTUNREACH, CM_CAUSE_UNREACHABLE }, { -ENETUNREACH, -ENETUNREACH, CM_CAUSE_UNREACHABLE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct env e;

		env_up(&e, IRDMA_GEN_2, true);
		env_goto(&e, ST(SYN_SENT));
		env_process(&e, &(struct fx_seg){ .flags = PKT_RST | PKT_ACK, .ack = e.p.node->tcp_cntxt.loc_seq_num }, t[i].error);
		env_loop(&e);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
		assert_int_equal(e.c.ev[0].status, t[i].status);
		assert_int_equal(e.c.ev[0].neg.cause, t[i].cause);
		assert_int_equal(fx_stats(&e.fx, 0).connect_errs, 1);
		env_down(&e);
	}
}

static void forged_reset_in_syn_sent_changes_nothing(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(SYN_SENT));
		u32 ack = e.p.node->tcp_cntxt.loc_seq_num;

		fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_RST, .ack = ack });
		fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_RST | PKT_ACK, .ack = ack + 1 });
		fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_RST | PKT_ACK, .ack = ack - 1 });
		assert_int_equal(e.p.node->state, ST(SYN_SENT));
		assert_int_equal(e.tap.n, 1);
	}
}

/* Every sequence number around the window, with a wrap in the middle of it. */
static void reset_counts_at_exactly_the_next_number(void **state)
{
	static const s32 off[] = { -8193, -8192, -2, -1, 1, 2, 8190, 8191, 8192, 8193, 1 << 30, -(1 << 30) };
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(ESTABLISHED));
		e.p.node->tcp_cntxt.rcv_nxt = 0xFFFFFFF0u;
		for (size_t i = 0; i < ARRAY_SIZE(off); i++) {
			u32 n = e.tap.n;
			bool inside = off[i] > 0 && off[i] < 8192;

			fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_RST, .seq = 0xFFFFFFF0u + (u32)off[i] });
			assert_int_equal(e.p.node->state, ST(ESTABLISHED));
			assert_int_equal(e.tap.n, n + inside);
			if (inside)
				assert_int_equal(fx_last(&e.tap)->ack, 0xFFFFFFF0u);
		}
		fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_RST, .seq = 0xFFFFFFF0u });
		assert_int_equal(e.p.node->state, ST(CLOSED));
	}
}

static void challenge_acks_are_limited_per_second(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(ESTABLISHED));
	fx_tap_off(&e.tap);
	for (int i = 0; i < 150; i++)
		fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_SYN, .seq = 9 });
	assert_int_equal(fx_stats(&e.fx, 0).challenge_acks, CM_CHALLENGES_PER_S);
	fx_run(&e.fx, 1000);
	fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_SYN, .seq = 9 });
	assert_int_equal(fx_stats(&e.fx, 0).challenge_acks, CM_CHALLENGES_PER_S + 1);
	fx_tap_on(&e.fx, 0, &e.tap);
	env_down(&e);
}

/* What one connection was asked for is not to be seen in the answers of another (CVE-2016-5696). */
static void challenge_acks_of_one_say_nothing_of_another(void **state)
{
	struct fx_peer other;
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(ESTABLISHED));
		fx_peer_passive(&other, &e.fx, e.ipv4, 5001);
		fx_tap_off(&e.tap);
		for (int i = 0; i < 1000; i++)
			fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_RST, .seq = e.p.node->tcp_cntxt.rcv_nxt + 1 + (u32)i });
		fx_tap_on(&e.fx, 0, &e.tap);
		for (int i = 0; i < 20; i++)
			fx_feed(e.p.dev, &other.t, &(struct fx_seg){ .flags = PKT_RST, .seq = other.node->tcp_cntxt.rcv_nxt + 1 });
		assert_int_equal(e.tap.n, CM_CHALLENGES_PER_S);
		fx_peer_done(&other);
	}
}

/* Each end's RST, which acknowledges the other's SYN, tells it. */
static void crossing_syns_end_in_error(void **state)
{
	for (int run = 0; run < 4; run++) {
		struct endpoint c[2];
		struct fx fx;

		fx_up(&fx, run & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2, 1);
		ep_init(&c[0], &fx, 0);
		ep_init(&c[1], &fx, 1);
		assert_int_equal(ep_connect(&c[0], 0, 1, run & 2, 5000, 7000), 0);
		assert_int_equal(ep_connect(&c[1], 1, 0, run & 2, 7000, 5000), 0);
		fx_run(&fx, 100);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(c[i].nevents, 1);
			assert_int_equal(c[i].ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
			assert_int_equal(c[i].ev[0].status, -ECONNREFUSED);
			ep_fini(&fx, &c[i]);
		}
		fx_down(&fx);
	}
}

/* Who knows the ports and no sequence number can neither end a connection that is being opened, nor make this end send what ends it at the peer's. */
static void blind_syn_does_not_end_an_active_node(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(SYN_SENT));
		u32 n = e.tap.n, iss = e.p.node->tcp_cntxt.iss;

		fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_SYN, .seq = 0x12345678 });
		assert_int_equal(e.p.node->state, ST(SYN_SENT));
		assert_int_equal(e.tap.n, n + 1);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_RST | PKT_ACK);
		assert_int_equal(fx_last(&e.tap)->seq, 0);
		assert_int_equal(fx_last(&e.tap)->ack, 0x12345679);
		assert_int_not_equal(iss, 0);
		fx_peer_send(&e.p, PKT_SYN | PKT_ACK, NULL, 0);
		assert_int_equal(e.p.node->state, ST(MPAREQ_SENT));
	}
}

static void retransmission_limit_of_the_port_is_told(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	e.c.id.mpa.fallback_v1 = false;
	env_goto(&e, ST(MPAREQ_SENT));
	env_process(&e, &(struct fx_seg){ .flags = PKT_RST, .seq = e.p.node->tcp_cntxt.rcv_nxt }, -ETIMEDOUT);
	env_loop(&e);
	assert_int_equal(e.c.ev[0].status, -ETIMEDOUT);
	assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_NOT_ACKED);
	env_down(&e);
}

/* ---- floods: fault 9 ---- */

static void flood(struct env *e, u16 from, int count)
{
	for (int i = 0; i < count; i++)
		feed_from(e, (u16)(from + i), &(struct fx_seg){ .flags = PKT_SYN, .seq = FX_PEER_ISS, .window = 8192 });
}

static void half_open_flood_does_not_lock_out_a_client(void **state)
{
	struct cm_stats st;
	struct env e;

	FOR_RUNS(&e) {
		fx_tap_off(&e.tap);
		cm_addr_to_sockaddr(e.ipv4, (u32[4]){ e.ipv4 ? 0x0A000001 : 0xFD000000, 0, 0, e.ipv4 ? 0 : 1 }, 7000, &e.l.id.m_local_addr);
		assert_int_equal(irdma_create_listen(&e.l.id, 4), 0);
		e.listening = true;
		env_requested(&e);
		flood(&e, 20000, 50);
		st = fx_stats(&e.fx, 0);
		assert_int_equal(st.half_open_now, 2);
		assert_int_equal(st.nodes_now, 3);
		assert_int_equal(st.cookies_sent, 48);
		assert_int_equal(st.half_open_evicted, 0);
		assert_int_equal(st.backlog_drops, 0);
		assert_int_equal(e.p.node->state, ST(MPAREQ_RCVD));
		assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
		fx_tap_on(&e.fx, 0, &e.tap);
	}
}

static void backlog_of_requests_drops_a_syn(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	cm_addr_to_sockaddr(true, (u32[4]){ 0x0A000001 }, 7000, &e.l.id.m_local_addr);
	assert_int_equal(irdma_create_listen(&e.l.id, 1), 0);
	e.listening = true;
	env_requested(&e);
	u32 n = e.tap.n;

	flood(&e, 20002, 1);
	assert_int_equal(e.tap.n, n);
	assert_int_equal(fx_stats(&e.fx, 0).backlog_drops, 1);
	assert_int_equal(irdma_reject(&e.a.id, NULL, 0), 0); /* FIN_WAIT1: nobody will accept it, so it holds no place */
	assert_int_equal(e.p.node->state, ST(FIN_WAIT1));
	flood(&e, 20002, 1);
	assert_int_equal(fx_last(&e.tap)->flags, PKT_SYN | PKT_ACK);
	assert_int_equal(fx_last(&e.tap)->dport, 20002);
	env_down(&e);
}

/* Connections that never send a request hold a place for ten seconds, but only while nobody else wants it. */
static void silent_peers_give_way_after_a_second(void **state)
{
	struct fx_peer p[2], late;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	fx_silence(&e.fx);
	cm_addr_to_sockaddr(true, (u32[4]){ 0x0A000001 }, 7000, &e.l.id.m_local_addr);
	assert_int_equal(irdma_create_listen(&e.l.id, 2), 0);
	e.listening = true;
	fx_peer_passive(&p[0], &e.fx, true, 20000);
	fx_run(&e.fx, 2000); /* a backlog that is not full has patience */
	fx_peer_passive(&p[1], &e.fx, true, 20001);
	fx_run(&e.fx, 500);
	flood(&e, 20002, 1);
	assert_int_equal(p[0].node->state, ST(ESTABLISHED));
	fx_run(&e.fx, 2);
	assert_int_equal(p[0].node->state, ST(CLOSED));
	assert_int_equal(p[0].node->cause, CM_CAUSE_NO_MPA_REQUEST);
	assert_int_equal(p[1].node->state, ST(ESTABLISHED));
	fx_run(&e.fx, 499);
	assert_int_equal(p[1].node->state, ST(CLOSED));
	fx_peer_passive(&late, &e.fx, true, 20002);
	fx_peer_done(&late);
	fx_peer_done(&p[0]);
	fx_peer_done(&p[1]);
	env_down(&e);
}

/*
 * Who asks, is refused and then vanishes is waited for for minutes; however many do so, few are kept, and those that are there get their FINs through.
 */
static void refused_peers_that_vanish_are_bounded(void **state)
{
	for (int frames = 0; frames < 2; frames++) {
		const u32 most = frames ? CM_REFUSED_MAX : CM_SILENT_MAX;
		struct env e;

		env_up(&e, IRDMA_GEN_2, true);
		fx_tap_off(&e.tap);
		env_listen(&e);
		e.l.child = NULL; /* refuses */
		if (!frames)
			e.ops.flags &= ~PORT_FRAMES;
		for (u16 i = 0; i < 3000; i++) {
			if (i)
				fx_peer_done(&e.p);
			fx_peer_passive(&e.p, &e.fx, true, (u16)(10000 + i));
			env_request(&e);
			e.l.nevents = 0;
			env_loop(&e);
			assert_int_equal(e.p.node->state, ST(FIN_WAIT1));
		}
		assert_int_equal(fx_stats(&e.fx, 0).nodes_now, most);
		assert_int_equal(fx_stats(&e.fx, 0).refused_evicted, 3000 - most);
		assert_true(e.p.dev->vsi.small.used <= most);
		fx_peer_send(&e.p, PKT_FIN | PKT_ACK, NULL, 0);
		assert_int_equal(e.p.node->state, ST(CLOSED));
		assert_int_equal(fx_stats(&e.fx, 0).nodes_now, most); /* one of them is held by the test */
		assert_int_equal(env_core(&e)->refused_now, most - 1);
		fx_run(&e.fx, 300000);
		assert_int_equal(env_core(&e)->refused_now, 0);
		e.ops.flags |= PORT_FRAMES;
		fx_tap_on(&e.fx, 0, &e.tap);
		env_down(&e);
	}
}

/* A peer that sends a byte of its request each second has ten seconds as any other. */
static void dribbling_peer_has_no_more_time_than_others(void **state)
{
	u8 buf[64];
	u32 len = env_mpa(buf, false, MPA_REV_2, MPA_FLAG_CRC, "hi", 2), i;
	struct env e;

	FOR_RUNS(&e) {
		env_passive(&e);
		for (i = 0; i < len && e.p.node->state == ST(ESTABLISHED); i++) {
			fx_peer_send(&e.p, PKT_ACK, buf + i, 1);
			fx_run(&e.fx, 1000);
		}
		assert_in_range(i, CM_MPA_TIMEOUT_MS / 1000, CM_MPA_TIMEOUT_MS / 1000 + 1);
		assert_int_equal(e.p.node->state, ST(CLOSED));
		assert_int_equal(e.p.node->cause, CM_CAUSE_NO_MPA_REQUEST);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_RST | PKT_ACK);
	}
}

/* A responder whose peer offers no RTR that it takes says so and closes: no place in the backlog either. */
static void failed_negotiation_holds_no_place(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	e.l.id.mpa.rtr = RDMAP_RTR_SEND; /* the peer offers Write and Read */
	env_passive(&e);
	env_request(&e);
	assert_int_equal(e.p.node->state, ST(FIN_WAIT1));
	assert_int_equal(e.p.node->listener->pending, 0);
	assert_int_equal(fx_stats(&e.fx, 0).passive_errs, 1);
	env_down(&e);
}

/* ---- fall-back: fault 5 ---- */

static int syns(const struct fx_tap *t)
{
	int n = 0;

	for (u32 i = 0; i < t->n; i++)
		n += t->f[i].pkt.flags == PKT_SYN;
	return n;
}

static void peer_that_closes_is_tried_with_revision_1_once(void **state)
{
	for (int how = 0; how < 2; how++) {
		struct env e;

		FOR_RUNS(&e) {
			u8 end = how ? PKT_RST | PKT_ACK : PKT_FIN | PKT_ACK;

			env_goto(&e, ST(MPAREQ_SENT));
			u32 iss = e.p.node->tcp_cntxt.iss;

			assert_int_equal(fx_last(&e.tap)->data[17], MPA_REV_2);
			fx_peer_send(&e.p, end, NULL, 0);
			assert_int_equal(e.p.node->state, ST(SYN_SENT));
			assert_int_equal(fx_last(&e.tap)->flags, PKT_SYN);
			assert_true(seq_gt(fx_last(&e.tap)->seq, iss + 0x10000));
			assert_int_equal(fx_stats(&e.fx, 0).mpa_fallbacks, 1);
			e.p.seq = FX_PEER_ISS + 500000;
			fx_peer_send(&e.p, PKT_SYN | PKT_ACK, NULL, 0);
			assert_int_equal(e.p.node->state, ST(MPAREQ_SENT));
			assert_int_equal(fx_last(&e.tap)->data[17], MPA_REV_1);
			assert_int_equal(fx_last(&e.tap)->datalen, 20);
			fx_peer_send(&e.p, end, NULL, 0);
			assert_int_equal(e.p.node->state, ST(CLOSED));
			env_loop(&e);
			assert_int_equal(e.c.nevents, 1);
			assert_int_equal(e.c.ev[0].status, -ECONNRESET);
			assert_int_equal(e.c.ev[0].neg.cause, how ? CM_CAUSE_RESET : CM_CAUSE_CLOSED);
			assert_true(e.c.ev[0].neg.fell_back);
			assert_int_equal(syns(&e.tap), 2);
		}
	}
}

static void fallen_back_connection_is_established(void **state)
{
	u8 buf[64];
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(MPAREQ_SENT));
		fx_peer_send(&e.p, PKT_FIN | PKT_ACK, NULL, 0);
		e.p.seq = FX_PEER_ISS + 500000;
		fx_peer_send(&e.p, PKT_SYN | PKT_ACK, NULL, 0);
		fx_peer_send(&e.p, PKT_ACK, buf, env_mpa(buf, true, MPA_REV_1, 0, "yes", 3));
		env_loop(&e);
		assert_int_equal(e.c.ev[0].status, 0);
		assert_int_equal(e.c.ev[0].neg.rev, MPA_REV_1);
		assert_true(e.c.ev[0].neg.fell_back);
		assert_false(e.c.ev[0].neg.p2p);
		assert_memory_equal(e.c.pdata[0], "yes", 3);
	}
}

static void no_fall_back_for(struct env *e, u8 rev, bool wanted, bool reply_began)
{
	e->c.id.mpa.rev = rev;
	e->c.id.mpa.fallback_v1 = wanted;
	env_goto(e, ST(MPAREQ_SENT));
	if (reply_began)
		fx_peer_send(&e->p, PKT_ACK, "MPA", 3);
	fx_peer_send(&e->p, PKT_FIN | PKT_ACK, NULL, 0);
	env_loop(e);
	assert_int_equal(syns(&e->tap), 1);
	assert_int_equal(e->c.nevents, 1);
	assert_int_equal(e->c.ev[0].status, -ECONNRESET);
	assert_int_equal(e->c.ev[0].neg.cause, reply_began ? CM_CAUSE_MPA_PARTIAL : CM_CAUSE_CLOSED);
	assert_int_equal(fx_stats(&e->fx, 0).mpa_fallbacks, 0);
}

/* A reset, or silence, in the middle of the reply: it is not "no reply". */
static void half_a_reply_is_called_that(void **state)
{
	for (int silent = 0; silent < 2; silent++) {
		struct env e;

		FOR_RUNS(&e) {
			env_goto(&e, ST(MPAREQ_SENT));
			fx_peer_send(&e.p, PKT_ACK, MPA_KEY_REP, 10);
			if (!silent)
				fx_peer_send(&e.p, PKT_RST, NULL, 0);
			fx_run(&e.fx, silent ? CM_MPA_TIMEOUT_MS + 1 : 1);
			assert_int_equal(e.c.nevents, 1);
			assert_int_equal(e.c.ev[0].status, silent ? -ETIMEDOUT : -ECONNRESET);
			assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_MPA_PARTIAL);
			assert_int_equal(fx_stats(&e.fx, 0).mpa_fallbacks, 0);
		}
	}
}

static void no_fall_back_where_it_makes_no_sense(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	no_fall_back_for(&e, MPA_REV_1, true, false);
	env_down(&e);
	env_up(&e, IRDMA_GEN_2, true);
	no_fall_back_for(&e, MPA_REV_2, false, false);
	env_down(&e);
	env_up(&e, IRDMA_GEN_2, true);
	no_fall_back_for(&e, MPA_REV_2, true, true);
	env_down(&e);
}

static void refused_port_is_never_retried(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(SYN_SENT));
		fx_peer_send(&e.p, PKT_RST | PKT_ACK, NULL, 0);
		fx_run(&e.fx, 200000);
		assert_int_equal(syns(&e.tap), 1);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].status, -ECONNREFUSED);
	}
}

static void fall_back_without_an_address_handle_fails_upward(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(MPAREQ_SENT));
	e.ops.ah_create = no_ah;
	fx_peer_send(&e.p, PKT_FIN | PKT_ACK, NULL, 0);
	env_loop(&e);
	fx_run(&e.fx, 400000); /* -EMFILE passes, perhaps: the SYN waits */
	assert_int_equal(e.c.nevents, 1);
	assert_int_equal(e.c.ev[0].status, -ETIMEDOUT);
	assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_NO_RESOURCES);
	assert_int_equal(syns(&e.tap), 1);
	env_down(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stray_with_ack_is_reset_at_its_ack),
		cmocka_unit_test(stray_without_ack_is_acknowledged_in_its_reset),
		cmocka_unit_test(stray_reset_is_not_answered),
		cmocka_unit_test(hostile_sources_get_nothing),
		cmocka_unit_test(last_good_addresses_are_served),
		cmocka_unit_test(syn_of_an_unknown_neighbour_is_answered),
		cmocka_unit_test(stray_without_means_is_dropped),
		cmocka_unit_test(syn_without_means_is_as_good_as_lost),
		cmocka_unit_test(syn_without_a_node_is_dropped),
		cmocka_unit_test(full_ilq_is_said_to_the_port),
		cmocka_unit_test(no_buffer_for_the_request_fails_upward),
		cmocka_unit_test(no_buffer_for_the_fin_ends_the_node),
		cmocka_unit_test(bad_ack_without_a_buffer_is_only_counted),
		cmocka_unit_test(option_of_length_zero_ends_the_attempt),
		cmocka_unit_test(reset_in_syn_sent_tells_the_true_cause),
		cmocka_unit_test(forged_reset_in_syn_sent_changes_nothing),
		cmocka_unit_test(reset_counts_at_exactly_the_next_number),
		cmocka_unit_test(challenge_acks_are_limited_per_second),
		cmocka_unit_test(challenge_acks_of_one_say_nothing_of_another),
		cmocka_unit_test(crossing_syns_end_in_error),
		cmocka_unit_test(blind_syn_does_not_end_an_active_node),
		cmocka_unit_test(retransmission_limit_of_the_port_is_told),
		cmocka_unit_test(half_open_flood_does_not_lock_out_a_client),
		cmocka_unit_test(backlog_of_requests_drops_a_syn),
		cmocka_unit_test(silent_peers_give_way_after_a_second),
		cmocka_unit_test(refused_peers_that_vanish_are_bounded),
		cmocka_unit_test(dribbling_peer_has_no_more_time_than_others),
		cmocka_unit_test(failed_negotiation_holds_no_place),
		cmocka_unit_test(peer_that_closes_is_tried_with_revision_1_once),
		cmocka_unit_test(fallen_back_connection_is_established),
		cmocka_unit_test(no_fall_back_where_it_makes_no_sense),
		cmocka_unit_test(half_a_reply_is_called_that),
		cmocka_unit_test(refused_port_is_never_retried),
		cmocka_unit_test(fall_back_without_an_address_handle_fails_upward),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
