// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Upcalls: what each carries, their order, none after the end, without memory, and handlers that call back into the CM. */
#include "cm_states.h"

static void up_at(struct env *e, size_t i)
{
	env_up(e, i & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2, i & 2);
}

#define FOR_RUNS(e) for (size_t r = 0; r < 4 && (up_at(e, r), true); env_down(e), r++)

static void assert_addr(const struct sockaddr_storage *ss, bool ipv4, u32 host, u16 port)
{
	u32 want[4], addr[4];
	bool v4;
	u16 n;

	assert_true(cm_addr_from_sockaddr(ss, &v4, addr, &n));
	fx_addr(ipv4, (int)host, want);
	assert_int_equal(v4, ipv4);
	assert_int_equal(n, port);
	assert_true(pkt_addr_eq(addr, want));
}

/* ---- contents ---- */

static void request_carries_addresses_data_depths_and_node(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		const struct iw_cm_event *ev = &e.l.ev[0];

		env_requested(&e);
		assert_int_equal(ev->event, IW_CM_EVENT_CONNECT_REQUEST);
		assert_int_equal(ev->status, 0);
		assert_ptr_equal(ev->provider_data, e.p.node);
		assert_int_equal(ev->private_data_len, 2);
		assert_memory_equal(e.l.pdata[0], "hi", 2);
		assert_addr(&ev->local_addr, e.ipv4, 0, 7000);
		assert_addr(&ev->remote_addr, e.ipv4, 1, 5000);
		assert_int_equal(ev->ord, 8); /* the peer's IRD */
		assert_int_equal(ev->ird, 128);
		assert_int_equal(ev->neg.peer_rev, MPA_REV_2);
		assert_int_equal(ev->neg.peer_ird, 8);
		assert_int_equal(ev->neg.rtr, RDMAP_RTR_WRITE);
	}
}

static void depths_above_255_are_capped_in_events(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	e.p.dev->limits.max_ird = 1000;
	e.p.dev->limits.max_ord = 1000;
	env_requested(&e);
	assert_int_equal(e.l.ev[0].ird, 255);
	assert_int_equal(e.l.ev[0].neg.ird, 1000);
	env_down(&e);
}

static void established_carries_depths_but_no_data(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_requested(&e);
		e.a.param.ird = 3;
		e.a.param.ord = 20;
		assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
		env_loop(&e);
		assert_int_equal(e.a.nevents, 1);
		assert_int_equal(e.a.ev[0].event, IW_CM_EVENT_ESTABLISHED);
		assert_int_equal(e.a.ev[0].status, 0);
		assert_int_equal(e.a.ev[0].private_data_len, 0);
		assert_int_equal(e.a.ev[0].ird, 3);
		assert_int_equal(e.a.ev[0].ord, 8);
		assert_addr(&e.a.ev[0].local_addr, e.ipv4, 0, 7000);
		assert_addr(&e.a.ev[0].remote_addr, e.ipv4, 1, 5000);
	}
}

static void reply_and_end_carry_addresses(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(OFFLOADED));
		env_loop(&e);
		assert_int_equal(cm_disconnect(&e.c.id, true), 0);
		env_loop(&e);
		assert_int_equal(e.c.nevents, 3);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(e.c.ev[i].event, IW_CM_EVENT_CONNECT_REPLY + (i ? i + 1 : 0));
			assert_addr(&e.c.ev[i].local_addr, e.ipv4, 0, 5000);
			assert_addr(&e.c.ev[i].remote_addr, e.ipv4, 1, 7000);
		}
		assert_memory_equal(e.c.pdata[0], "hi", 2);
		assert_int_equal(e.c.ev[1].private_data_len, 0);
		assert_int_equal(e.c.ev[1].status, -ECONNABORTED);
		assert_int_equal(e.c.ev[2].status, 0);
	}
}

/* ---- irdma_send_cm_event itself ---- */

static void send_cm_event_checks_type_and_order(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(MPAREQ_SENT));
	assert_int_equal(irdma_send_cm_event(e.p.node, &e.c.id, 0, 0), -EINVAL);
	assert_int_equal(irdma_send_cm_event(e.p.node, &e.c.id, IW_CM_EVENT_CLOSE + 1, 0), -EINVAL);
	assert_int_equal(irdma_send_cm_event(e.p.node, &e.c.id, IW_CM_EVENT_DISCONNECT, 0), -EAGAIN);
	assert_int_equal(irdma_send_cm_event(e.p.node, &e.c.id, IW_CM_EVENT_CLOSE, 0), -EAGAIN);
	assert_int_equal(e.c.nevents, 0);
	e.p.node->established_up = true;
	assert_int_equal(irdma_send_cm_event(e.p.node, &e.c.id, IW_CM_EVENT_DISCONNECT, -ECONNRESET), 0);
	assert_int_equal(e.c.nevents, 1);
	e.p.node->established_up = false;
	e.p.node->request_up = true; /* a request is news, too */
	assert_int_equal(irdma_send_cm_event(e.p.node, &e.c.id, IW_CM_EVENT_CLOSE, 0), 0);
	e.p.node->request_up = false;
	e.p.node->abandoned = true;
	assert_int_equal(irdma_send_cm_event(e.p.node, &e.c.id, IW_CM_EVENT_CONNECT_REPLY, 0), -ECANCELED);
	e.p.node->abandoned = false;
	assert_int_equal(e.c.nevents, 2);
	env_down(&e);
}

static void request_that_is_none_any_more_is_not_delivered(void **state)
{
	static const enum irdma_cm_node_state states[] = { ST(LISTENER_DESTROYED), ST(CLOSED) };

	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct env e;
		int n;

		env_up(&e, IRDMA_GEN_2, true);
		env_goto(&e, states[i]);
		n = e.l.nevents;
		assert_int_equal(irdma_send_cm_event(e.p.node, &e.l.id, IW_CM_EVENT_CONNECT_REQUEST, 0), -ECANCELED);
		assert_int_equal(e.l.nevents, n);
		env_down(&e);
	}
}

static void what_the_handler_says_is_returned(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(ESTABLISHED));
	e.l.child = NULL;
	assert_int_equal(irdma_send_cm_event(e.p.node, &e.l.id, IW_CM_EVENT_CONNECT_REQUEST, 0), -ECONNREFUSED);
	assert_ptr_equal(e.p.node->cm_id, &e.l.id);
	env_down(&e);
}

/* ---- creation, memory ---- */

static void no_event_without_a_cm_id(void **state)
{
	struct irdma_cm_node *node;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	cm_lock(env_core(&e));
	node = fx_node(&e.fx, NULL, true, 1, 2);
	assert_null(irdma_create_event(node, IRDMA_CM_EVENT_ABORTED));
	cm_node_end(node);
	cm_unlock(env_core(&e));
	env_down(&e);
}

static void event_has_a_copy_of_the_addressing(void **state)
{
	struct irdma_cm_event *ev;
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(MPAREQ_SENT));
		cm_lock(env_core(&e));
		u32 refs = e.p.node->refcount;

		ev = irdma_create_event(e.p.node, IRDMA_CM_EVENT_UNKNOWN);
		assert_non_null(ev);
		assert_int_equal(e.p.node->refcount, refs + 1);
		assert_ptr_equal(ev->cm_info.cm_id, &e.c.id);
		assert_int_equal(ev->cm_info.ipv4, e.ipv4);
		assert_int_equal(ev->cm_info.loc_port, 5000);
		assert_int_equal(ev->cm_info.rem_port, 7000);
		assert_true(pkt_addr_eq(ev->cm_info.rem_addr, e.p.node->rem_addr));
		cm_unlock(env_core(&e));
		env_loop(&e);
		assert_int_equal(e.p.node->refcount, refs);
		assert_int_equal(e.c.nevents, 0); /* of no known type: logged and dropped */
	}
}

static void intermediate_events_bring_nothing_up(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(MPAREQ_SENT));
	for (int t = 0; t < IRDMA_CM_EVENTS; t++) {
		if (t != IRDMA_CM_EVENT_UNKNOWN && t != IRDMA_CM_EVENT_MPA_CONNECT && t != IRDMA_CM_EVENT_MPA_ACCEPT && t != IRDMA_CM_EVENT_MPA_ESTABLISHED)
			continue;
		cm_lock(env_core(&e));
		assert_non_null(irdma_create_event(e.p.node, t));
		cm_unlock(env_core(&e));
	}
	env_loop(&e);
	assert_int_equal(e.c.nevents, 0);
	assert_int_equal(e.p.node->state, ST(MPAREQ_SENT));
	env_down(&e);
}

/* Every event comes although there is no memory for one: the node's spare does, and goes back to it. */
static void spare_event_brings_all_the_news(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_passive(&e);
		env_core(&e)->event_pool.limit = 1; /* the spare */
		env_request(&e);
		env_loop(&e);
		assert_int_equal(e.l.nevents, 1);
		assert_non_null(e.p.node->spare);
		fx_peer_send(&e.p, PKT_RST, NULL, 0);
		env_loop(&e);
		assert_int_equal(e.a.nevents, 2);
		assert_int_equal(e.a.ev[0].event, IW_CM_EVENT_DISCONNECT);
		assert_int_equal(e.a.ev[1].event, IW_CM_EVENT_CLOSE);
		env_core(&e)->event_pool.limit = 0;
	}
}

/* CONNECTED is queued with the spare; then the peer resets, and there is no memory for ABORTED. */
static void overtaken_success_is_told_as_failure(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(MPAREQ_SENT));
		env_core(&e)->event_pool.limit = 1;
		env_reply(&e, 0);
		fx_peer_send(&e.p, PKT_RST, NULL, 0);
		env_loop(&e);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
		assert_int_equal(e.c.ev[0].status, -ECONNRESET);
		assert_int_equal(e.c.refs, 0);
		env_core(&e)->event_pool.limit = 0;
	}
}

static void request_without_any_event_is_reset(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_passive(&e);
	env_core(&e)->event_pool.limit = 1;
	cm_lock(env_core(&e));
	pool_put(&env_core(&e)->event_pool, e.p.node->spare);
	e.p.node->spare = NULL;
	env_core(&e)->event_pool.limit = 1;
	struct irdma_cm_event *taken = pool_get(&env_core(&e)->event_pool);

	cm_unlock(env_core(&e));
	env_request(&e);
	assert_int_equal(e.p.node->state, ST(CLOSED));
	assert_int_equal(e.p.node->cause, CM_CAUSE_NO_RESOURCES);
	assert_true(fx_last(&e.tap)->flags & PKT_RST);
	pool_put(&env_core(&e)->event_pool, taken);
	env_core(&e)->event_pool.limit = 0;
	env_down(&e);
}

static void accept_needs_an_event_beforehand(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_requested(&e);
	cm_lock(env_core(&e));
	pool_put(&env_core(&e)->event_pool, e.p.node->spare);
	e.p.node->spare = NULL;
	env_core(&e)->event_pool.limit = 1;
	struct irdma_cm_event *taken = pool_get(&env_core(&e)->event_pool);

	cm_unlock(env_core(&e));
	assert_int_equal(irdma_accept(&e.a.id, &e.a.param), -ENOMEM);
	assert_int_equal(e.p.node->state, ST(CLOSED));
	assert_int_equal(e.a.refs, 0);
	pool_put(&env_core(&e)->event_pool, taken);
	env_core(&e)->event_pool.limit = 0;
	env_down(&e);
}

/* ---- open errors ---- */

static void open_errors_count_and_reset_as_asked(void **state)
{
	for (int reset = 0; reset < 2; reset++) {
		struct env e;

		FOR_RUNS(&e) {
			u32 n;

			env_goto(&e, ST(MPAREQ_SENT));
			n = e.tap.n;
			cm_lock(env_core(&e));
			irdma_active_open_err(e.p.node, reset);
			cm_unlock(env_core(&e));
			assert_int_equal(e.tap.n, n + (u32)reset);
			assert_int_equal(e.p.node->state, ST(CLOSED));
			assert_null(e.p.node->send_entry.sqbuf);
			env_loop(&e);
			assert_int_equal(e.c.ev[0].status, -ECONNRESET); /* no cause was recorded */
			assert_int_equal(fx_stats(&e.fx, 0).connect_errs, 1);
			fx_peer_done(&e.p);
			env_goto(&e, ST(SYN_RCVD));
			n = e.tap.n;
			cm_lock(env_core(&e));
			irdma_passive_open_err(e.p.node, reset);
			cm_unlock(env_core(&e));
			assert_int_equal(e.tap.n, n + (u32)reset);
			assert_int_equal(e.p.node->state, ST(CLOSED));
			assert_int_equal(fx_stats(&e.fx, 0).passive_errs, 1);
			env_loop(&e);
			assert_int_equal(e.l.nevents, 0);
		}
	}
}

/* ---- order ---- */

/* Everything happens before the loop runs once: still the promised order, each once. */
static void events_of_one_moment_keep_their_order(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(OFFLOADED));
		env_core(&e);
		fx_peer_send(&e.p, PKT_FIN | PKT_ACK, NULL, 0);
		assert_int_equal(e.c.nevents, 0);
		env_loop(&e);
		assert_int_equal(e.c.nevents, 3);
		assert_int_equal(e.c.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
		assert_int_equal(e.c.ev[1].event, IW_CM_EVENT_DISCONNECT);
		assert_int_equal(e.c.ev[2].event, IW_CM_EVENT_CLOSE);
	}
}

static void qp_that_fails_right_after_accept_waits_for_established(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_requested(&e);
		assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
		irdma_cm_disconn(e.a.qp); /* queued behind ESTABLISHED? no: before it was delivered */
		rnic_qp_modify(e.a.qp, RNIC_QP_ERROR);
		env_loop(&e);
		assert_int_equal(e.a.nevents, 3);
		assert_int_equal(e.a.ev[0].event, IW_CM_EVENT_ESTABLISHED);
		assert_int_equal(e.a.ev[1].event, IW_CM_EVENT_DISCONNECT);
		assert_int_equal(e.a.ev[1].status, -ECONNABORTED);
		assert_int_equal(e.a.ev[2].event, IW_CM_EVENT_CLOSE);
	}
}

/* ---- requests overtaken or refused ---- */

static void request_of_a_peer_that_reset_is_dropped(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_passive(&e);
		env_request(&e);
		fx_peer_send(&e.p, PKT_RST, NULL, 0);
		env_loop(&e);
		assert_int_equal(e.l.nevents, 0);
		assert_int_equal(fx_stats(&e.fx, 0).passive_errs, 1);
	}
}

static void refusing_handler_rejects(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		e.l.child = NULL;
		env_passive(&e);
		env_request(&e);
		env_loop(&e);
		assert_int_equal(e.l.nevents, 1);
		assert_int_equal(e.p.node->state, ST(FIN_WAIT1));
		assert_true(fx_last(&e.tap)->flags & PKT_FIN);
		assert_true(fx_last(&e.tap)->data[16] & MPA_FLAG_REJECT);
		assert_int_equal(fx_stats(&e.fx, 0).rejects, 1);
		assert_null(e.p.node->cm_id);
		fx_peer_send(&e.p, PKT_FIN | PKT_ACK, NULL, 0);
	}
}

/* ---- handlers that call back ---- */

enum inside { ACCEPT, REJECT, ABANDON, DESTROY_LISTEN, REJECT_AND_REFUSE, ABANDON_AND_REFUSE };

struct caller {
	struct endpoint *ep; /* the cm_id that stands for the request */
	enum inside what;
	int ret;
};

static int calling_handler(struct iw_cm_id *id, struct iw_cm_event *ev)
{
	struct caller *c = id->context;
	int ret = fx_handler(id, ev);

	if (ev->event != IW_CM_EVENT_CONNECT_REQUEST)
		return ret;
	switch (c->what) {
	case ACCEPT: c->ret = irdma_accept(&c->ep->id, &c->ep->param); break;
	case REJECT: c->ret = irdma_reject(&c->ep->id, "in", 2); break;
	case REJECT_AND_REFUSE: c->ret = irdma_reject(&c->ep->id, "in", 2); return -EBUSY;
	case ABANDON: cm_abandon(&c->ep->id); break;
	case ABANDON_AND_REFUSE: cm_abandon(&c->ep->id); return -EBUSY;
	case DESTROY_LISTEN: c->ret = irdma_destroy_listen(id); break;
	}
	return ret;
}

static void request_handlers_may_call_back(void **state)
{
	static const struct { enum inside what; enum irdma_cm_node_state after; int events; } t[] = {
		{ ACCEPT, ST(OFFLOADED), 1 }, { REJECT, ST(FIN_WAIT1), 0 }, { REJECT_AND_REFUSE, ST(FIN_WAIT1), 0 },
		{ ABANDON, ST(CLOSED), 0 }, { ABANDON_AND_REFUSE, ST(CLOSED), 0 }, { DESTROY_LISTEN, ST(LISTENER_DESTROYED), 2 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct caller c = { .what = t[i].what };
		struct env e;

		FOR_RUNS(&e) {
			c.ep = &e.a;
			e.l.id.event_handler = calling_handler;
			e.l.id.context = &c;
			env_passive(&e);
			env_request(&e);
			env_loop(&e);
			if (c.what == DESTROY_LISTEN)
				e.listening = false;
			assert_int_equal(c.ret, 0);
			assert_int_equal(e.l.nevents, 1);
			assert_int_equal(e.p.node->state, t[i].after);
			assert_int_equal(e.a.nevents, t[i].events);
			if (c.what != ACCEPT && c.what != DESTROY_LISTEN)
				assert_int_equal(e.a.refs, 0);
			if (c.what == DESTROY_LISTEN)
				assert_int_equal(irdma_accept(&e.a.id, &e.a.param), -EINVAL);
		}
	}
}

struct ender {
	enum iw_cm_event_type at;
	bool disconnect; /* else abandon */
	struct endpoint *again;
	struct fx *fx;
};

static int ending_handler(struct iw_cm_id *id, struct iw_cm_event *ev)
{
	struct ender *en = id->context;

	fx_handler(id, ev);
	if (ev->event != en->at)
		return 0;
	if (en->disconnect)
		assert_int_equal(cm_disconnect(id, true), 0);
	else
		cm_abandon(id);
	if (en->again)
		assert_int_equal(ep_connect(en->again, 0, 1, true, 5001, 7000), 0);
	return 0;
}

static void nothing_comes_after_abandon_inside_a_handler(void **state)
{
	static const struct { enum iw_cm_event_type at; bool active; } t[] = {
		{ IW_CM_EVENT_CONNECT_REPLY, true }, { IW_CM_EVENT_ESTABLISHED, false }, { IW_CM_EVENT_DISCONNECT, true }, { IW_CM_EVENT_DISCONNECT, false },
		{ IW_CM_EVENT_CLOSE, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct ender en = { .at = t[i].at };
		struct env e;

		FOR_RUNS(&e) {
			struct endpoint *ep = t[i].active ? &e.c : &e.a;

			en.fx = &e.fx;
			ep->id.event_handler = ending_handler;
			ep->id.context = &en;
			if (t[i].active) {
				env_goto(&e, ST(OFFLOADED));
			} else {
				env_requested(&e);
				assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
			}
			env_loop(&e);
			if (t[i].at >= IW_CM_EVENT_DISCONNECT)
				assert_int_equal(cm_disconnect(&ep->id, true), 0);
			env_loop(&e);
			fx_run(&e.fx, 30000);
			assert_true(ep->nevents > 0);
			assert_int_equal(ep->ev[ep->nevents - 1].event, t[i].at);
			assert_int_equal(ep->refs, 0);
			assert_null(ep->qp->cm_node);
		}
	}
}

static void handler_may_disconnect_and_connect_again(void **state)
{
	struct endpoint again;
	struct ender en = { .at = IW_CM_EVENT_CONNECT_REPLY, .disconnect = true, .again = &again };
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	ep_init(&again, &e.fx, 0);
	en.fx = &e.fx;
	e.c.id.event_handler = ending_handler;
	e.c.id.context = &en;
	env_goto(&e, ST(OFFLOADED));
	env_loop(&e);
	assert_int_equal(e.c.nevents, 3);
	assert_int_equal(e.c.ev[1].event, IW_CM_EVENT_DISCONNECT);
	assert_int_equal(e.c.ev[2].event, IW_CM_EVENT_CLOSE);
	assert_int_equal(ep_node(&again)->state, ST(SYN_SENT));
	ep_fini(&e.fx, &again);
	env_down(&e);
}

/* ---- a QP that goes between reply and hand-over ---- */

static void destroyed_qp_gives_timed_out(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(OFFLOADED));
		rnic_qp_destroy(e.c.qp);
		e.c.qp = NULL;
		env_loop(&e);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
		assert_int_equal(e.c.ev[0].status, -ETIMEDOUT);
		assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_LOCAL);
		assert_int_equal(e.p.node->state, ST(CLOSED));
		assert_true(fx_last(&e.tap)->flags & PKT_RST);
		assert_int_equal(fx_stats(&e.fx, 0).established_active, 0);
	}
}

static int dead_offload(struct port *p, struct port_ah *ah, const struct tcp_info_ho *info, const struct port_stream_up *up, void *ctx,
			struct port_stream **out)
{
	return -ECONNRESET;
}

static void stream_that_died_before_hand_over_is_a_reset(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(OFFLOADED));
		e.ops.offload = dead_offload;
		env_loop(&e);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].status, -ECONNRESET);
		assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_RESET);
		assert_int_equal(fx_stats(&e.fx, 0).connect_errs, 1);
	}
}

/* The QP leaves RTS within the hand-over itself: the RTR cannot go out. */
static int failing_offload(struct port *p, struct port_ah *ah, const struct tcp_info_ho *info, const struct port_stream_up *up, void *ctx,
			   struct port_stream **out)
{
	struct env *e = container_of(p->ops, struct env, ops);

	e->c.qp->iw.rtr = 0;
	((struct irdma_cm_node *)e->p.node)->mpa.p2p = true;
	return e->fx.host[1].dev->port->ops->offload(p, ah, info, up, ctx, out);
}

static void rtr_that_cannot_be_sent_fails_the_connection(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(OFFLOADED));
		e.ops.offload = failing_offload;
		e.p.node->rtr = 0x80; /* of no kind that there is */
		env_loop(&e);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].status, -EINVAL);
		assert_int_equal(e.p.node->state, ST(CLOSED));
		assert_null(e.c.qp->stream);
		assert_null(e.c.qp->cm_node);
	}
}

/* ---- MPA_REJECT ---- */

static void reject_is_told_and_answered_with_fin(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(MPAREJ_RCVD));
		env_loop(&e);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].status, -ECONNREFUSED);
		assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_REJECTED);
		assert_memory_equal(e.c.pdata[0], "hi", 2);
		assert_int_equal(e.p.node->state, ST(FIN_WAIT1));
		assert_int_equal(fx_last(&e.tap)->flags, PKT_FIN | PKT_ACK);
		assert_int_equal(e.c.refs, 0);
	}
}

static void reject_without_a_buffer_for_the_fin_ends(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_1, true);
	env_goto(&e, ST(MPAREJ_RCVD));
	struct irdma_puda_buf *b = rnic_buf_get(&e.p.dev->vsi, 0);

	e.p.dev->vsi.small.limit = e.p.dev->vsi.small.used;
	env_loop(&e);
	assert_int_equal(e.c.nevents, 1);
	assert_int_equal(e.p.node->state, ST(CLOSED));
	e.p.dev->vsi.small.limit = 0;
	rnic_buf_put(b);
	env_down(&e);
}

static void reject_to_one_that_gave_up_is_silent(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(MPAREJ_RCVD));
		cm_abandon(&e.c.id);
		env_loop(&e);
		assert_int_equal(e.c.nevents, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_carries_addresses_data_depths_and_node),
		cmocka_unit_test(depths_above_255_are_capped_in_events),
		cmocka_unit_test(established_carries_depths_but_no_data),
		cmocka_unit_test(reply_and_end_carry_addresses),
		cmocka_unit_test(send_cm_event_checks_type_and_order),
		cmocka_unit_test(request_that_is_none_any_more_is_not_delivered),
		cmocka_unit_test(what_the_handler_says_is_returned),
		cmocka_unit_test(no_event_without_a_cm_id),
		cmocka_unit_test(event_has_a_copy_of_the_addressing),
		cmocka_unit_test(intermediate_events_bring_nothing_up),
		cmocka_unit_test(spare_event_brings_all_the_news),
		cmocka_unit_test(overtaken_success_is_told_as_failure),
		cmocka_unit_test(request_without_any_event_is_reset),
		cmocka_unit_test(accept_needs_an_event_beforehand),
		cmocka_unit_test(open_errors_count_and_reset_as_asked),
		cmocka_unit_test(events_of_one_moment_keep_their_order),
		cmocka_unit_test(qp_that_fails_right_after_accept_waits_for_established),
		cmocka_unit_test(request_of_a_peer_that_reset_is_dropped),
		cmocka_unit_test(refusing_handler_rejects),
		cmocka_unit_test(request_handlers_may_call_back),
		cmocka_unit_test(nothing_comes_after_abandon_inside_a_handler),
		cmocka_unit_test(handler_may_disconnect_and_connect_again),
		cmocka_unit_test(destroyed_qp_gives_timed_out),
		cmocka_unit_test(stream_that_died_before_hand_over_is_a_reset),
		cmocka_unit_test(rtr_that_cannot_be_sent_fails_the_connection),
		cmocka_unit_test(reject_is_told_and_answered_with_fin),
		cmocka_unit_test(reject_without_a_buffer_for_the_fin_ends),
		cmocka_unit_test(reject_to_one_that_gave_up_is_silent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
