// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The end of connections: by either side, in order or not, of those that the NIC has and of those being set up. */
#include "cm_states.h"

static void up_at(struct env *e, size_t i)
{
	env_up(e, i & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2, i & 2);
}

#define FOR_RUNS(e) for (size_t r = 0; r < 4 && (up_at(e, r), true); env_down(e), r++)

static void env_established(struct env *e, bool active)
{
	if (active) {
		env_goto(e, ST(OFFLOADED));
		env_loop(e);
		assert_int_equal(e->c.nevents, 1);
	} else {
		env_requested(e);
		assert_int_equal(irdma_accept(&e->a.id, &e->a.param), 0);
		env_loop(e);
		assert_int_equal(e->a.nevents, 1);
	}
}

/* ---- two real hosts ---- */

struct pair {
	struct fx fx;
	struct endpoint l, a, c;
};

static void pair_up(struct pair *p, size_t run)
{
	bool ipv4 = run & 2;

	fx_up(&p->fx, run & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2, 7);
	ep_init(&p->l, &p->fx, 1);
	ep_init(&p->a, &p->fx, 1);
	ep_init(&p->c, &p->fx, 0);
	p->l.child = &p->a;
	p->l.accept_inside = true;
	ep_listen(&p->fx, &p->l, 1, ipv4, 7000);
	assert_int_equal(ep_connect(&p->c, 0, 1, ipv4, 5000, 7000), 0);
	fx_run(&p->fx, 100);
	assert_int_equal(p->c.nevents, 1);
	assert_int_equal(p->c.ev[0].status, 0);
	assert_int_equal(p->a.nevents, 1); /* ESTABLISHED, to the one that accepted inside */
}

static void pair_down(struct pair *p)
{
	ep_fini(&p->fx, &p->c);
	ep_fini(&p->fx, &p->a);
	assert_int_equal(irdma_destroy_listen(&p->l.id), 0);
	fx_run(&p->fx, 300000);
	ep_fini(&p->fx, &p->l);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fx_stats(&p->fx, i).nodes_now, 0);
	fx_down(&p->fx);
}

static void assert_ended(const struct endpoint *ep, int status)
{
	assert_int_equal(ep->nevents, 3);
	assert_int_equal(ep->ev[1].event, IW_CM_EVENT_DISCONNECT);
	assert_int_equal(ep->ev[1].status, status);
	assert_int_equal(ep->ev[2].event, IW_CM_EVENT_CLOSE);
	assert_int_equal(ep->ev[2].status, 0);
	assert_int_equal(ep->refs, 0);
	assert_null(ep->qp->cm_node);
	assert_null(ep->qp->stream);
}

static void either_side_may_end_it(void **state)
{
	for (size_t run = 0; run < 16; run++) {
		bool abort = run & 4, passive = run & 8;
		struct pair p;

		pair_up(&p, run);
		struct endpoint *first = passive ? &p.a : &p.c, *second = passive ? &p.c : &p.a;

		assert_int_equal(cm_disconnect(&first->id, abort), 0);
		fx_run(&p.fx, 1000);
		assert_ended(first, abort ? -ECONNABORTED : 0);
		assert_ended(second, abort ? -ECONNRESET : 0);
		assert_int_equal(cm_disconnect(&first->id, abort), -ENOTCONN);
		pair_down(&p);
	}
}

static void both_sides_may_end_it_at_once(void **state)
{
	for (size_t run = 0; run < 4; run++) {
		struct pair p;

		pair_up(&p, run);
		assert_int_equal(cm_disconnect(&p.c.id, false), 0);
		assert_int_equal(cm_disconnect(&p.a.id, false), 0);
		assert_int_equal(cm_disconnect(&p.a.id, false), 0); /* said twice: nothing new */
		fx_run(&p.fx, 2000);
		assert_ended(&p.c, 0);
		assert_ended(&p.a, 0);
		pair_down(&p);
	}
}

static void orderly_end_may_become_an_abort(void **state)
{
	struct pair p;

	pair_up(&p, 0);
	port_wire_set_link(p.fx.host[1].dev->port, false);
	assert_int_equal(cm_disconnect(&p.c.id, false), 0);
	fx_run(&p.fx, 100);
	assert_int_equal(p.c.nevents, 1);
	assert_int_equal(cm_disconnect(&p.c.id, true), 0);
	fx_run(&p.fx, 100);
	assert_ended(&p.c, -ECONNABORTED);
	port_wire_set_link(p.fx.host[1].dev->port, true);
	cm_disconnect(&p.a.id, true);
	fx_run(&p.fx, 100);
	pair_down(&p);
}

/* CM_CLOSE_TIMEOUT_MS after the FIN that nobody answers. */
static void peer_that_vanishes_after_disconnect_is_given_up(void **state)
{
	for (size_t run = 0; run < 4; run++) {
		struct pair p;

		pair_up(&p, run);
		port_wire_set_link(p.fx.host[1].dev->port, false);
		assert_int_equal(cm_disconnect(&p.c.id, false), 0);
		fx_run(&p.fx, CM_CLOSE_TIMEOUT_MS - 100);
		assert_int_equal(p.c.nevents, 1);
		fx_run(&p.fx, 200);
		assert_ended(&p.c, -ECONNABORTED);
		port_wire_set_link(p.fx.host[1].dev->port, true);
		pair_down(&p);
	}
}

static void destroying_the_qp_ends_it(void **state)
{
	for (size_t run = 0; run < 4; run++) {
		struct pair p;

		pair_up(&p, run);
		rnic_qp_destroy(p.c.qp);
		p.c.qp = NULL;
		fx_run(&p.fx, 100);
		assert_int_equal(p.c.nevents, 3);
		assert_int_equal(p.c.ev[1].event, IW_CM_EVENT_DISCONNECT);
		assert_int_equal(p.c.ev[1].status, -ECONNABORTED);
		assert_int_equal(p.c.ev[2].event, IW_CM_EVENT_CLOSE);
		assert_ended(&p.a, -ECONNRESET);
		pair_down(&p);
	}
}

static void nic_may_talk_to_itself(void **state)
{
	for (size_t run = 0; run < 4; run++) {
		struct endpoint l, a, c;
		struct fx fx;

		fx_up(&fx, run & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2, 7);
		ep_init(&l, &fx, 0);
		ep_init(&a, &fx, 0);
		ep_init(&c, &fx, 0);
		l.child = &a;
		l.accept_inside = true;
		ep_listen(&fx, &l, 0, run & 2, 7000);
		assert_int_equal(ep_connect(&c, 0, 0, run & 2, 5000, 7000), 0);
		fx_run(&fx, 100);
		assert_int_equal(c.nevents, 1);
		assert_int_equal(c.ev[0].status, 0);
		assert_int_equal(fx_stats(&fx, 0).loopbacks, 2);
		assert_int_equal(cm_disconnect(&a.id, false), 0);
		fx_run(&fx, 1000);
		assert_ended(&c, 0);
		assert_ended(&a, 0);
		ep_fini(&fx, &c);
		ep_fini(&fx, &a);
		assert_int_equal(irdma_destroy_listen(&l.id), 0);
		ep_fini(&fx, &l);
		fx_down(&fx);
	}
}

/* ---- status, once ---- */

static void last_event_of_the_qp_decides_the_status(void **state)
{
	static const struct { enum rnic_ae ae; int status; } t[] = {
		{ RNIC_AE_NONE, 0 }, { RNIC_AE_LLP_FIN_RECEIVED, 0 }, { RNIC_AE_LLP_CLOSE_COMPLETE, 0 }, { RNIC_AE_LLP_CONNECTION_RESET, -ECONNRESET },
		{ RNIC_AE_LLP_TOO_MANY_RETRIES, -ETIMEDOUT }, { RNIC_AE_TERMINATE_RECEIVED, -EPROTO }, { RNIC_AE_TERMINATE_SENT, -EPROTO },
		{ RNIC_AE_QP_ERROR, -ECONNABORTED }, { RNIC_AE_RTR_TIMEOUT, -ETIMEDOUT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct env e;

		env_up(&e, IRDMA_GEN_2, true);
		env_established(&e, true);
		e.c.qp->last_ae = t[i].ae;
		irdma_cm_disconn(e.c.qp);
		irdma_cm_disconn(e.c.qp); /* queued once */
		assert_int_equal(e.c.nevents, 1);
		env_loop(&e);
		assert_ended(&e.c, t[i].status);
		irdma_cm_disconn(e.c.qp);
		irdma_cm_disconn_true(e.c.qp);
		irdma_qp_disconnect(e.c.qp);
		env_loop(&e);
		assert_int_equal(e.c.nevents, 3);
		env_down(&e);
	}
}

static void peers_reset_is_told(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		struct pkt_route route = { .vlan_id = PKT_VLAN_NONE, .ipv4 = e.ipv4, .ttl = 64 };
		u8 frame[PKT_HDR_MAX + PKT_TCP_LEN] = { 0 }, *tcp = frame + PKT_HDR_MAX, *start;
		struct tcphdr h = { .source = htons(7000), .dest = htons(5000), .doff = 5, .rst = 1 };

		env_established(&e, true);
		h.seq = htonl(e.p.seq);
		memcpy(tcp, &h, sizeof(h));
		memcpy(route.dmac, e.fx.host[0].iface.mac, 6);
		memcpy(route.smac, e.fx.host[1].iface.mac, 6);
		memcpy(route.src, e.p.t.rem_addr, 16);
		memcpy(route.dst, e.p.t.loc_addr, 16);
		start = pkt_push_headers(&route, tcp, PKT_TCP_LEN, 1);
		assert_int_equal(port_wire_inject(e.fx.wire, start, (u32)(tcp + PKT_TCP_LEN - start), 0), 0);
		fx_run(&e.fx, 10);
		assert_ended(&e.c, -ECONNRESET);
	}
}

static void disconnect_without_node_or_cm_is_nothing(void **state)
{
	struct irdma_cm_core *core;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	irdma_cm_disconn(e.c.qp);
	irdma_free_lsmm_rsrc(e.c.qp);
	core = e.p.dev->cm_core;
	e.p.dev->cm_core = NULL;
	irdma_cm_disconn(e.c.qp);
	irdma_free_lsmm_rsrc(e.c.qp);
	e.p.dev->cm_core = core;
	env_loop(&e);
	assert_int_equal(e.c.nevents, 0);
	env_down(&e);
}

/* Before the hand-over the node is not the QP's to end: CONNECTED will find it in whatever state it is. */
static void disconnect_before_hand_over_leaves_the_node(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(MPAREQ_SENT));
		irdma_cm_disconn(e.c.qp);
		env_loop(&e);
		assert_int_equal(e.p.node->state, ST(MPAREQ_SENT));
		assert_int_equal(e.c.nevents, 0);
		assert_null(e.c.qp->disconn);
	}
}

static int early_handler(struct iw_cm_id *id, struct iw_cm_event *ev)
{
	struct endpoint *ep = container_of(id, struct endpoint, id);

	fx_handler(id, ev);
	if (ev->event < IW_CM_EVENT_DISCONNECT)
		irdma_cm_disconn_true(ep->qp); /* the news is not delivered yet */
	return 0;
}

static void disconnect_during_the_news_waits_for_its_end(void **state)
{
	for (int active = 0; active < 2; active++) {
		struct env e;

		FOR_RUNS(&e) {
			struct endpoint *ep = active ? &e.c : &e.a;

			ep->id.event_handler = early_handler;
			if (active) {
				env_goto(&e, ST(OFFLOADED));
			} else {
				env_requested(&e);
				assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
			}
			env_loop(&e);
			assert_ended(ep, 0);
		}
	}
}

static int nosy_handler(struct iw_cm_id *id, struct iw_cm_event *ev)
{
	struct endpoint *ep = container_of(id, struct endpoint, id);

	fx_handler(id, ev);
	if (ev->event < IW_CM_EVENT_DISCONNECT)
		return 0;
	assert_null(ep->qp->stream); /* released and closed before the upcall */
	assert_int_equal(cm_disconnect(id, true), -ENOTCONN);
	irdma_cm_disconn(ep->qp);
	rnic_qp_modify(ep->qp, RNIC_QP_ERROR);
	return 0;
}

static void close_comes_once_whatever_the_handler_does(void **state)
{
	for (int active = 0; active < 2; active++) {
		struct env e;

		FOR_RUNS(&e) {
			struct endpoint *ep = active ? &e.c : &e.a;

			ep->id.event_handler = nosy_handler;
			env_established(&e, active);
			assert_int_equal(cm_disconnect(&ep->id, true), 0);
			env_loop(&e);
			assert_ended(ep, -ECONNABORTED);
		}
	}
}

/* ---- irdma_cm_close ---- */

static void close_in_every_state(void **state)
{
	static const struct { enum irdma_cm_node_state before, after; int ret; char sent; } t[] = {
		{ ST(INITED), ST(CLOSED), 0, '-' }, { ST(LISTENING), ST(CLOSED), 0, '-' },
		{ ST(SYN_RCVD), ST(CLOSED), 0, 'R' }, { ST(SYN_SENT), ST(CLOSED), 0, 'R' }, { ST(ONE_SIDE_ESTABLISHED), ST(CLOSED), 0, 'R' },
		{ ST(ESTABLISHED), ST(CLOSED), 0, 'R' }, { ST(ACCEPTING), ST(CLOSED), 0, 'R' }, { ST(MPAREQ_SENT), ST(CLOSED), 0, 'R' },
		{ ST(MPAREQ_RCVD), ST(CLOSED), 0, 'R' }, { ST(MPAREJ_RCVD), ST(CLOSED), 0, '-' }, { ST(OFFLOADED), ST(CLOSED), 0, 'R' },
		{ ST(FIN_WAIT1), ST(FIN_WAIT1), 0, '-' }, { ST(FIN_WAIT2), ST(FIN_WAIT2), 0, '-' }, { ST(CLOSE_WAIT), ST(LAST_ACK), 0, 'F' },
		{ ST(TIME_WAIT), ST(TIME_WAIT), 0, '-' }, { ST(LAST_ACK), ST(LAST_ACK), 0, '-' }, { ST(CLOSING), ST(CLOSING), 0, '-' },
		{ ST(LISTENER_DESTROYED), ST(CLOSED), 0, '-' }, { ST(CLOSED), ST(CLOSED), 0, '-' },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct env e;

		FOR_RUNS(&e) {
			u32 n;

			env_goto(&e, t[i].before);
			n = e.tap.n;
			cm_lock(env_core(&e));
			assert_int_equal(irdma_cm_close(e.p.node), t[i].ret);
			cm_unlock(env_core(&e));
			assert_int_equal(e.p.node->state, t[i].after);
			assert_int_equal(e.tap.n, n + (t[i].sent != '-'));
			if (t[i].sent != '-')
				assert_int_equal(fx_last(&e.tap)->flags, PKT_ACK | (t[i].sent == 'R' ? PKT_RST : PKT_FIN));
			if (t[i].sent == 'R' && t[i].before != ST(OFFLOADED))
				assert_int_equal(e.p.node->cause, CM_CAUSE_LOCAL);
		}
	}
}

static void close_of_the_whole_cm_waits_for_no_fin(void **state)
{
	static const enum irdma_cm_node_state states[] = { ST(FIN_WAIT1), ST(FIN_WAIT2), ST(CLOSE_WAIT), ST(TIME_WAIT), ST(LAST_ACK), ST(CLOSING) };

	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct env e;

		env_up(&e, IRDMA_GEN_2, true);
		env_goto(&e, states[i]);
		cm_lock(env_core(&e));
		env_core(&e)->closing = true;
		assert_int_equal(irdma_cm_close(e.p.node), 0);
		env_core(&e)->closing = false;
		cm_unlock(env_core(&e));
		assert_int_equal(e.p.node->state, ST(CLOSED));
		env_down(&e);
	}
}

static void close_without_a_buffer_still_ends(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_1, true);
	env_goto(&e, ST(ESTABLISHED));
	e.p.dev->vsi.small.limit = 1;
	struct irdma_puda_buf *b = rnic_buf_get(&e.p.dev->vsi, 0);

	cm_lock(env_core(&e));
	assert_int_equal(irdma_cm_close(e.p.node), -ENOMEM);
	cm_unlock(env_core(&e));
	assert_int_equal(e.p.node->state, ST(CLOSED));
	rnic_buf_put(b);
	e.p.dev->vsi.small.limit = 0;
	env_down(&e);
}

/* ---- teardown ---- */

static void teardown_list_matches_address_family_and_vlan(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		struct irdma_node_list list = TAILQ_HEAD_INITIALIZER(list);
		struct irdma_cm_info nfo = { .vlan_id = PKT_VLAN_NONE, .ipv4 = e.ipv4 };
		struct irdma_cm_core *core = env_core(&e);
		u32 addr[4], other[4];

		env_goto(&e, ST(SYN_SENT));
		fx_addr(e.ipv4, 0, addr);
		fx_addr(e.ipv4, 1, other);
		cm_lock(core);
		irdma_teardown_list_prep(core, &list, other, &nfo, false);
		nfo.vlan_id = 5;
		irdma_teardown_list_prep(core, &list, addr, &nfo, false);
		nfo.vlan_id = PKT_VLAN_NONE;
		nfo.ipv4 = !e.ipv4;
		irdma_teardown_list_prep(core, &list, addr, &nfo, false);
		assert_true(TAILQ_EMPTY(&list));
		nfo.ipv4 = e.ipv4;
		u32 refs = e.p.node->refcount;

		irdma_teardown_list_prep(core, &list, addr, &nfo, false);
		assert_ptr_equal(TAILQ_FIRST(&list), e.p.node);
		assert_int_equal(e.p.node->refcount, refs + 1);
		irdma_rem_ref_cm_node(e.p.node);
		TAILQ_INIT(&list);
		irdma_teardown_list_prep(core, &list, NULL, NULL, true);
		assert_ptr_equal(TAILQ_FIRST(&list), e.p.node);
		irdma_rem_ref_cm_node(e.p.node);
		cm_unlock(core);
	}
}

static void address_that_goes_tears_down_every_state(void **state)
{
	static const struct { enum irdma_cm_node_state before, after; bool rst; int c_status, a_events; } t[] = {
		{ ST(SYN_SENT), ST(CLOSED), true, -ENETDOWN, 0 }, { ST(ONE_SIDE_ESTABLISHED), ST(CLOSED), true, -ENETDOWN, 0 },
		{ ST(MPAREQ_SENT), ST(CLOSED), true, -ENETDOWN, 0 }, { ST(OFFLOADED), ST(CLOSED), true, -ENETDOWN, 0 },
		{ ST(MPAREJ_RCVD), ST(CLOSED), true, -ECONNREFUSED, 0 }, /* it was rejected first */
		{ ST(SYN_RCVD), ST(CLOSED), true, 0, 0 }, { ST(ESTABLISHED), ST(CLOSED), true, 0, 0 }, { ST(MPAREQ_RCVD), ST(LISTENER_DESTROYED), true, 0, 2 },
		{ ST(FIN_WAIT1), ST(CLOSED), false, 0, 0 }, { ST(FIN_WAIT2), ST(CLOSED), false, 0, 0 }, { ST(CLOSING), ST(CLOSED), false, 0, 0 },
		{ ST(TIME_WAIT), ST(CLOSED), false, 0, 0 }, { ST(LAST_ACK), ST(CLOSED), false, 0, 0 },
		{ ST(LISTENER_DESTROYED), ST(LISTENER_DESTROYED), false, 0, 2 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct env e;

		FOR_RUNS(&e) {
			u32 addr[4], n;

			env_goto(&e, t[i].before);
			n = e.tap.n;
			fx_addr(e.ipv4, 0, addr);
			irdma_if_notify(e.p.dev, &e.fx.host[0].iface, addr, e.ipv4, false);
			assert_int_equal(e.p.node->state, t[i].after);
			assert_int_equal(e.tap.n, n + t[i].rst);
			env_loop(&e);
			assert_int_equal(e.c.nevents, t[i].c_status ? 1 : 0);
			if (t[i].c_status)
				assert_int_equal(e.c.ev[0].status, t[i].c_status);
			assert_int_equal(e.a.nevents, t[i].a_events);
			irdma_if_notify(e.p.dev, &e.fx.host[0].iface, addr, e.ipv4, true);
		}
	}
}

static void address_that_goes_ends_established_connections(void **state)
{
	for (int active = 0; active < 2; active++) {
		struct env e;

		FOR_RUNS(&e) {
			u32 addr[4];

			env_established(&e, active);
			fx_addr(e.ipv4, 1, addr);
			irdma_if_notify(e.p.dev, &e.fx.host[0].iface, addr, e.ipv4, false); /* not this one */
			assert_int_equal(e.p.node->state, ST(OFFLOADED));
			fx_addr(e.ipv4, 0, addr);
			irdma_if_notify(e.p.dev, &e.fx.host[0].iface, addr, e.ipv4, false);
			env_loop(&e);
			assert_ended(active ? &e.c : &e.a, -ECONNABORTED);
		}
	}
}

static void teardown_of_all_ignores_addresses(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_established(&e, true);
		irdma_cm_teardown_connections(e.p.dev, NULL, NULL, true);
		env_loop(&e);
		assert_ended(&e.c, -ECONNABORTED);
	}
}

/* The QP's stream ended, but the node is accelerated without a QP: only for a moment in irdma_cm_disconn_true(). */
static void clean_up_ends_what_is_established(void **state)
{
	for (int active = 0; active < 2; active++) {
		struct env e;

		env_up(&e, IRDMA_GEN_2, true);
		struct endpoint *ep = active ? &e.c : &e.a;

		env_established(&e, active);
		fx_peer_done(&e.p);
		fx_tap_off(&e.tap);
		irdma_cleanup_cm_core(env_core(&e));
		assert_ended(ep, -ECONNABORTED);
		assert_int_equal(irdma_setup_cm_core(e.p.dev, IRDMA_GEN_2), 0);
		e.l.id.provider_data = NULL;
		ep_fini(&e.fx, &e.a);
		ep_fini(&e.fx, &e.c);
		ep_fini(&e.fx, &e.l);
		fx_down(&e.fx);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(either_side_may_end_it),
		cmocka_unit_test(both_sides_may_end_it_at_once),
		cmocka_unit_test(orderly_end_may_become_an_abort),
		cmocka_unit_test(peer_that_vanishes_after_disconnect_is_given_up),
		cmocka_unit_test(destroying_the_qp_ends_it),
		cmocka_unit_test(nic_may_talk_to_itself),
		cmocka_unit_test(last_event_of_the_qp_decides_the_status),
		cmocka_unit_test(peers_reset_is_told),
		cmocka_unit_test(disconnect_without_node_or_cm_is_nothing),
		cmocka_unit_test(disconnect_before_hand_over_leaves_the_node),
		cmocka_unit_test(disconnect_during_the_news_waits_for_its_end),
		cmocka_unit_test(close_comes_once_whatever_the_handler_does),
		cmocka_unit_test(close_in_every_state),
		cmocka_unit_test(close_of_the_whole_cm_waits_for_no_fin),
		cmocka_unit_test(close_without_a_buffer_still_ends),
		cmocka_unit_test(teardown_list_matches_address_family_and_vlan),
		cmocka_unit_test(address_that_goes_tears_down_every_state),
		cmocka_unit_test(address_that_goes_ends_established_connections),
		cmocka_unit_test(teardown_of_all_ignores_addresses),
		cmocka_unit_test(clean_up_ends_what_is_established),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
