// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Timers on the virtual clock: when frames go out again, what expiry does in each state, and that only what is due is touched. */
#include <unistd.h>
#include "cm_fixture.h"

#define MS NSEC_PER_MSEC

static struct irdma_cm_core *core_of(const struct fx *fx)
{
	return fx->host[0].dev->cm_core;
}

static struct irdma_puda_buf *frame(struct irdma_cm_node *node)
{
	return node->cm_core->form_cm_frame(node, NULL, NULL, NULL, SET_ACK);
}

/* ---- irdma_schedule_cm_timer ---- */

static void frame_that_is_not_kept_is_sent_and_consumed(void **state)
{
	struct irdma_cm_node *node;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	node = fx_node(&fx, NULL, true, 1, 2);
	fx_tap_on(&fx, 0, &tap);
	assert_int_equal(irdma_schedule_cm_timer(node, frame(node), IRDMA_TIMER_TYPE_SEND, 0, 0), 0);
	assert_int_equal(tap.n, 1);
	assert_int_equal(fx_bufs(&fx), 0);
	assert_int_equal(node->send_entry.timetosend_ns, 0);
	assert_false(node->timer.armed);
	fx_tap_off(&tap);
	cm_node_end(node);
	fx_down(&fx);
}

static void kept_frame_is_due_in_a_second(void **state)
{
	struct irdma_puda_buf *buf;
	struct irdma_cm_node *node;
	struct fx fx;
	u64 now;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	node = fx_node(&fx, NULL, true, 1, 2);
	buf = frame(node);
	now = loop_now(&fx.loop);
	assert_int_equal(irdma_schedule_cm_timer(node, buf, IRDMA_TIMER_TYPE_SEND, 1, 1), 0);
	assert_ptr_equal(node->send_entry.sqbuf, buf);
	assert_int_equal(buf->refcount, 1);
	assert_int_equal(node->send_entry.timetosend_ns, now + 1000 * MS); /* RFC 6298 2.1 */
	assert_true(node->send_entry.close_when_complete);
	assert_true(node->timer.armed);
	assert_int_equal(core_of(&fx)->tcp_timer_at_ns, now + 1000 * MS);
	cm_node_end(node);
	fx_down(&fx);
}

static void next_kept_frame_takes_the_place_of_the_first(void **state)
{
	struct irdma_puda_buf *second;
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	node = fx_node(&fx, NULL, true, 1, 2);
	irdma_schedule_cm_timer(node, frame(node), IRDMA_TIMER_TYPE_SEND, 1, 1);
	fx_run(&fx, 400);
	second = frame(node);
	irdma_schedule_cm_timer(node, second, IRDMA_TIMER_TYPE_SEND, 1, 0);
	assert_ptr_equal(node->send_entry.sqbuf, second);
	assert_false(node->send_entry.close_when_complete);
	assert_int_equal(node->send_entry.timetosend_ns, loop_now(&fx.loop) + 1000 * MS);
	assert_int_equal(fx_bufs(&fx), 1);
	assert_int_equal(core_of(&fx)->wheel.count, 1);
	cm_node_end(node);
	fx_down(&fx);
}

static void frame_that_the_port_refuses_is_told_unless_it_is_kept(void **state)
{
	struct irdma_cm_node *node;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	node = fx_node(&fx, NULL, true, 1, 2);
	node->state = IRDMA_CM_STATE_SYN_SENT;
	port_wire_set_link(fx.host[0].dev->port, false);
	fx_tap_on(&fx, 0, &tap);
	assert_int_equal(irdma_schedule_cm_timer(node, frame(node), IRDMA_TIMER_TYPE_SEND, 0, 0), -ENETDOWN);
	assert_int_equal(fx_bufs(&fx), 0);
	assert_int_equal(irdma_schedule_cm_timer(node, frame(node), IRDMA_TIMER_TYPE_SEND, 1, 0), 0); /* as good as lost */
	port_wire_set_link(fx.host[0].dev->port, true);
	fx_run(&fx, 1001);
	assert_int_equal(tap.n, 1);
	fx_tap_off(&tap);
	cm_node_end(node);
	fx_down(&fx);
}

static void close_timer_is_armed_once(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;
	u64 at;

	fx_up(&fx, IRDMA_GEN_1, 1);
	node = fx_node(&fx, NULL, true, 1, 2);
	assert_int_equal(irdma_schedule_cm_timer(node, NULL, IRDMA_TIMER_TYPE_CLOSE, 0, 0), 0);
	at = node->close_at_ns;
	assert_int_equal(at, loop_now(&fx.loop) + CM_CLOSE_TIMEOUT_MS * MS);
	fx_run(&fx, 10);
	assert_int_equal(irdma_schedule_cm_timer(node, NULL, IRDMA_TIMER_TYPE_CLOSE, 0, 0), -EINVAL);
	assert_int_equal(node->close_at_ns, at);
	fx_run(&fx, CM_CLOSE_TIMEOUT_MS - 11);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 1);
	fx_run(&fx, 2);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 0);
	fx_down(&fx);
}

static void close_timer_of_time_wait_is_a_minute(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	node = fx_node(&fx, NULL, true, 1, 2);
	node->state = IRDMA_CM_STATE_TIME_WAIT;
	assert_int_equal(irdma_schedule_cm_timer(node, NULL, IRDMA_TIMER_TYPE_CLOSE, 0, 0), 0);
	fx_run(&fx, 59999);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 1);
	fx_run(&fx, 2);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 0);
	fx_down(&fx);
}

/* ---- forget ---- */

static void forgotten_frame_is_not_sent_again(void **state)
{
	struct irdma_cm_node *node;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	node = fx_node(&fx, NULL, true, 1, 2);
	fx_tap_on(&fx, 0, &tap);
	irdma_free_retrans_entry(node); /* none: nothing */
	for (int locked = 0; locked < 2; locked++) {
		irdma_schedule_cm_timer(node, frame(node), IRDMA_TIMER_TYPE_SEND, 1, 0);
		cm_node_stage(node, 1000000);
		if (locked)
			irdma_cleanup_retrans_entry(node);
		else
			irdma_free_retrans_entry(node);
		assert_null(node->send_entry.sqbuf);
		assert_int_equal(node->send_entry.timetosend_ns, 0);
		assert_int_equal(fx_bufs(&fx), 0);
		assert_true(node->timer.armed); /* for what is left, the stage */
		cm_node_stage(node, 0);
		assert_false(node->timer.armed);
	}
	fx_run(&fx, 100000);
	assert_int_equal(tap.n, 2);
	fx_tap_off(&tap);
	cm_node_end(node);
	fx_down(&fx);
}

static void *try_lock(void *arg)
{
	struct irdma_cm_core *core = arg;

	if (!mutex_try_take(&core->lock))
		return core;
	mutex_give(&core->lock);
	return NULL;
}

static void *cleanup(void *arg)
{
	irdma_cleanup_retrans_entry(arg);
	return NULL;
}

/* It takes the lock (so it waits for who has it) and gives it back. */
static void cleanup_takes_the_lock(void **state)
{
	struct irdma_cm_node *node;
	pthread_t waiter, taker;
	void *busy;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	node = fx_node(&fx, NULL, true, 1, 2);
	irdma_schedule_cm_timer(node, frame(node), IRDMA_TIMER_TYPE_SEND, 1, 0);
	mutex_take(&core_of(&fx)->lock); /* not cm_lock(), which takes nothing while there is one thread */
	assert_int_equal(pthread_create(&waiter, NULL, cleanup, node), 0);
	usleep(20000);
	assert_non_null(node->send_entry.sqbuf);
	cm_unlock(core_of(&fx));
	pthread_join(waiter, NULL);
	assert_null(node->send_entry.sqbuf);
	assert_int_equal(pthread_create(&taker, NULL, try_lock, core_of(&fx)), 0);
	pthread_join(taker, &busy);
	assert_null(busy);
	cm_node_end(node);
	fx_down(&fx);
}

/* The frame that waits for a buffer is a deadline without a frame: it is forgotten as well. */
static void deadline_without_a_frame_is_forgotten_too(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	node = fx_node(&fx, NULL, true, 1, 2);
	node->send_entry.timetosend_ns = loop_now(&fx.loop) + 5 * MS;
	cm_node_arm(node);
	irdma_free_retrans_entry(node);
	assert_false(node->timer.armed);
	cm_node_end(node);
	fx_down(&fx);
}

/* ---- backoff ---- */

struct expect {
	u32 at_ms[12];
	u32 n;
};

static void check_times(const struct fx_tap *tap, const struct expect *e, u8 flags)
{
	u64 first = tap->f[0].at_ns;

	assert_true(tap->n >= e->n);
	for (u32 i = 0; i < e->n; i++) {
		assert_int_equal((tap->f[i].at_ns - first) / MS, e->at_ms[i]);
		assert_int_equal(tap->f[i].pkt.flags, flags);
		assert_int_equal(tap->f[i].pkt.framelen, tap->f[0].pkt.framelen);
		assert_int_equal(tap->f[i].pkt.seq, tap->f[0].pkt.seq);
		assert_memory_equal(tap->f[i].pkt.tcph, tap->f[0].pkt.tcph, tap->f[0].pkt.optlen + 20 + tap->f[0].pkt.datalen);
	}
}

static void syn_backs_off_and_times_out(void **state)
{
	static const struct expect e = { { 0, 1000, 3000, 7000, 15000, 31000, 63000 }, 7 };

	for (u8 gen = IRDMA_GEN_1; gen <= IRDMA_GEN_2; gen++)
		for (int v4 = 0; v4 < 2; v4++) {
			struct endpoint c;
			struct fx_tap tap;
			struct fx fx;

			fx_up(&fx, gen, 1);
			fx_silence(&fx);
			ep_init(&c, &fx, 0);
			fx_tap_on(&fx, 0, &tap);
			assert_int_equal(ep_connect(&c, 0, 1, v4, 5000, 7000), 0);
			fx_run(&fx, 122999);
			assert_int_equal(c.nevents, 0);
			fx_run(&fx, 2);
			assert_int_equal(tap.n, e.n); /* and no RST: nobody is there */
			check_times(&tap, &e, PKT_SYN);
			assert_int_equal(c.nevents, 1);
			assert_int_equal(c.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
			assert_int_equal(c.ev[0].status, -ETIMEDOUT);
			assert_int_equal(c.ev[0].neg.cause, CM_CAUSE_NO_SYNACK);
			assert_int_equal(c.ev[0].neg.syn_sent, 7);
			assert_int_equal(fx_stats(&fx, 0).retransmits, 6);
			assert_int_equal(fx_stats(&fx, 0).connect_errs, 1);
			assert_int_equal(fx_stats(&fx, 0).nodes_now, 0);
			fx_tap_off(&tap);
			ep_fini(&fx, &c);
			fx_down(&fx);
		}
}

static void syn_timeout_of_the_upper_layer_comes_first(void **state)
{
	struct endpoint c;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	ep_init(&c, &fx, 0);
	c.id.mpa.syn_timeout_ms = 2500;
	fx_tap_on(&fx, 0, &tap);
	assert_int_equal(ep_connect(&c, 0, 1, true, 5000, 7000), 0);
	fx_run(&fx, 2499);
	assert_int_equal(c.nevents, 0);
	fx_run(&fx, 2);
	assert_int_equal(tap.n, 2);
	assert_int_equal(c.nevents, 1);
	assert_int_equal(c.ev[0].status, -ETIMEDOUT);
	fx_tap_off(&tap);
	ep_fini(&fx, &c);
	fx_down(&fx);
}

static void synack_backs_off_and_goes_quietly(void **state)
{
	static const struct expect e = { { 0, 1000, 3000, 7000, 15000 }, 5 };
	struct endpoint l;
	struct fx_peer p;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	ep_init(&l, &fx, 0);
	ep_listen(&fx, &l, 0, true, 7000);
	fx_tap_on(&fx, 0, &tap);
	fx_peer_syn(&p, &fx, true, 5000);
	fx_run(&fx, 30999);
	assert_int_equal(p.node->state, IRDMA_CM_STATE_SYN_RCVD);
	fx_run(&fx, 2);
	assert_int_equal(p.node->state, IRDMA_CM_STATE_CLOSED);
	assert_int_equal(tap.n, e.n);
	check_times(&tap, &e, PKT_SYN | PKT_ACK);
	assert_int_equal(l.nevents, 0);
	assert_int_equal(fx_stats(&fx, 0).passive_errs, 1);
	assert_int_equal(fx_stats(&fx, 0).half_open_now, 0);
	fx_peer_done(&p);
	fx_tap_off(&tap);
	irdma_destroy_listen(&l.id);
	ep_fini(&fx, &l);
	fx_down(&fx);
}

/* The RTO stops doubling at a minute (RFC 6298 2.5). */
static void request_backs_off_to_a_minute_at_most(void **state)
{
	static const struct expect e = { { 0, 1000, 3000, 7000, 15000, 31000, 63000, 123000 }, 8 };
	struct endpoint c;
	struct fx_peer p;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_2, 1);
	fx_silence(&fx);
	ep_init(&c, &fx, 0);
	c.id.mpa.mpa_timeout_ms = 1000000;
	fx_tap_on(&fx, 0, &tap);
	fx_peer_active(&p, &fx, &c, true, 5000);
	memmove(&tap.f[0], &tap.f[1], sizeof(tap.f[0]));
	tap.n = 1;
	assert_int_equal(pkt_parse(tap.f[0].bytes, tap.f[0].pkt.framelen, true, &tap.f[0].pkt), PKT_OK);
	fx_run(&fx, 182999);
	assert_int_equal(c.nevents, 0);
	fx_run(&fx, 2);
	check_times(&tap, &e, PKT_ACK | PKT_PSH);
	assert_int_equal(tap.n, e.n + 1);
	assert_int_equal(fx_last(&tap)->flags, PKT_RST | PKT_ACK);
	assert_int_equal(c.nevents, 1);
	assert_int_equal(c.ev[0].status, -ETIMEDOUT);
	assert_int_equal(c.ev[0].neg.cause, CM_CAUSE_NOT_ACKED);
	assert_int_equal(c.ev[0].neg.mpa_sent, 8);
	fx_peer_done(&p);
	fx_tap_off(&tap);
	ep_fini(&fx, &c);
	fx_down(&fx);
}

static void acknowledgement_stops_retransmission(void **state)
{
	struct endpoint c;
	struct fx_peer p;
	struct fx_tap tap;
	struct fx fx;
	u32 n;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	ep_init(&c, &fx, 0);
	fx_tap_on(&fx, 0, &tap);
	fx_peer_active(&p, &fx, &c, true, 5000);
	fx_run(&fx, 1500);
	n = tap.n;
	assert_int_equal(n, 3); /* SYN, request twice */
	fx_peer_send(&p, PKT_ACK, NULL, 0);
	assert_int_equal(fx_bufs(&fx), 0);
	fx_run(&fx, 8000);
	assert_int_equal(tap.n, n);
	fx_peer_done(&p);
	fx_tap_off(&tap);
	ep_fini(&fx, &c);
	fx_down(&fx);
}

/* A peer that acknowledges the request and then says nothing. */
static void silent_peer_is_given_a_limited_time(void **state)
{
	for (u32 limit = 0; limit <= 3000; limit += 3000) {
		u32 ms = limit ? limit : CM_MPA_TIMEOUT_MS;
		struct endpoint c;
		struct fx_peer p;
		struct fx fx;

		fx_up(&fx, IRDMA_GEN_1, 1);
		fx_silence(&fx);
		ep_init(&c, &fx, 0);
		c.id.mpa.mpa_timeout_ms = limit;
		fx_peer_active(&p, &fx, &c, true, 5000);
		fx_peer_send(&p, PKT_ACK, NULL, 0);
		fx_run(&fx, ms - 1);
		assert_int_equal(c.nevents, 0);
		fx_run(&fx, 2);
		assert_int_equal(c.nevents, 1);
		assert_int_equal(c.ev[0].status, -ETIMEDOUT);
		assert_int_equal(c.ev[0].neg.cause, CM_CAUSE_NO_MPA_REPLY);
		fx_peer_done(&p);
		ep_fini(&fx, &c);
		fx_down(&fx);
	}
}

/* ---- expiry by state ---- */

static const struct expiry {
	enum irdma_cm_node_state state;
	bool active, rst, connect_err, passive_err;
	enum cm_cause cause;
	bool kept; /* a frame is out that nobody acknowledged */
} expiries[] = {
	{ IRDMA_CM_STATE_SYN_RCVD, false, false, false, true, CM_CAUSE_NOT_ACKED },
	{ IRDMA_CM_STATE_CLOSING, false, false, false, false, CM_CAUSE_NOT_ACKED },
	{ IRDMA_CM_STATE_CLOSING, true, false, false, false, CM_CAUSE_NOT_ACKED },
	{ IRDMA_CM_STATE_FIN_WAIT1, false, true, false, false, CM_CAUSE_NOT_ACKED },
	{ IRDMA_CM_STATE_FIN_WAIT1, true, true, false, false, CM_CAUSE_NOT_ACKED },
	{ IRDMA_CM_STATE_LAST_ACK, false, true, false, false, CM_CAUSE_NOT_ACKED },
	{ IRDMA_CM_STATE_SYN_SENT, true, false, true, false, CM_CAUSE_NO_SYNACK, true },
	{ IRDMA_CM_STATE_SYN_SENT, true, false, true, false, CM_CAUSE_NO_RESOURCES }, /* it was never sent */
	{ IRDMA_CM_STATE_MPAREQ_SENT, true, true, true, false, CM_CAUSE_NO_MPA_REPLY },
	{ IRDMA_CM_STATE_MPAREQ_SENT, true, true, true, false, CM_CAUSE_NOT_ACKED, true },
	{ IRDMA_CM_STATE_ONE_SIDE_ESTABLISHED, true, true, true, false, CM_CAUSE_NOT_ACKED },
	{ IRDMA_CM_STATE_ESTABLISHED, false, true, false, true, CM_CAUSE_NO_MPA_REQUEST },
	{ IRDMA_CM_STATE_MPAREQ_RCVD, false, true, false, true, CM_CAUSE_NOT_ACKED },
};

static void expiry_by_state(void **state)
{
	for (const struct expiry *e = expiries; e < expiries + ARRAY_SIZE(expiries); e++) {
		struct irdma_cm_node *node;
		struct fx_tap tap;
		struct fx fx;

		fx_up(&fx, IRDMA_GEN_1, 1);
		fx_silence(&fx);
		node = fx_node(&fx, NULL, true, 1, 2);
		node->active = e->active;
		node->state = e->state;
		cm_node_hold(node);
		if (e->kept)
			irdma_schedule_cm_timer(node, frame(node), IRDMA_TIMER_TYPE_SEND, 1, 0);
		fx_tap_on(&fx, 0, &tap);
		irdma_retrans_expired(node);
		if (node->state != IRDMA_CM_STATE_CLOSED || tap.n != e->rst || node->cause != e->cause)
			fail_msg("%s: now %s, %u frames, cause %d", cm_node_state_str(e->state), cm_node_state_str(node->state), tap.n,
				 node->cause);
		if (e->rst)
			assert_int_equal(fx_last(&tap)->flags, PKT_RST | PKT_ACK);
		assert_int_equal(node->error, -ETIMEDOUT);
		assert_int_equal(fx_stats(&fx, 0).connect_errs, e->connect_err);
		assert_int_equal(fx_stats(&fx, 0).passive_errs, e->passive_err);
		assert_int_equal(node->refcount, 1);
		irdma_rem_ref_cm_node(node);
		fx_tap_off(&tap);
		fx_down(&fx);
	}
}

static void expiry_keeps_the_first_cause(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	node = fx_node(&fx, NULL, true, 1, 2);
	node->active = true;
	node->neigh_pending = true;
	node->state = IRDMA_CM_STATE_SYN_SENT;
	cm_node_hold(node);
	irdma_retrans_expired(node);
	assert_int_equal(node->cause, CM_CAUSE_UNREACHABLE);
	assert_int_equal(node->error, -EHOSTUNREACH);
	irdma_rem_ref_cm_node(node);
	node = fx_node(&fx, NULL, true, 1, 2);
	node->state = IRDMA_CM_STATE_FIN_WAIT1;
	cm_node_set_cause(node, CM_CAUSE_MPA_RTR, -EPROTO);
	cm_node_hold(node);
	irdma_retrans_expired(node);
	assert_int_equal(node->cause, CM_CAUSE_MPA_RTR);
	assert_int_equal(node->error, -EPROTO);
	irdma_rem_ref_cm_node(node);
	fx_down(&fx);
}

/* ---- the close timer ---- */

static void close_entry_without_a_qp(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	node = fx_node(&fx, NULL, true, 1, 2);
	node->close_at_ns = 5;
	irdma_handle_close_entry(node, 0);
	assert_int_equal(node->state, IRDMA_CM_STATE_INITED);
	assert_int_equal(node->close_at_ns, 0);
	cm_node_hold(node);
	irdma_handle_close_entry(node, 1);
	assert_int_equal(node->state, IRDMA_CM_STATE_CLOSED);
	irdma_rem_ref_cm_node(node);
	fx_down(&fx);
}

/* A peer that does not follow our FIN: the close timer moves the QP to error, and DISCONNECT and CLOSE come. */
static void close_entry_with_a_qp_disconnects_it(void **state)
{
	struct endpoint l, a, c;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_2, 1);
	ep_init(&l, &fx, 1);
	ep_init(&a, &fx, 1);
	ep_init(&c, &fx, 0);
	l.child = &a;
	l.accept_inside = true;
	l.param.ird = l.param.ord = 1;
	ep_listen(&fx, &l, 1, true, 7000);
	assert_int_equal(ep_connect(&c, 0, 1, true, 5000, 7000), 0);
	fx_run(&fx, 100);
	assert_int_equal(c.nevents, 1);
	fx_silence(&fx);
	assert_int_equal(cm_disconnect(&c.id, false), 0);
	assert_int_equal(ep_node(&c)->close_at_ns, loop_now(&fx.loop) + CM_CLOSE_TIMEOUT_MS * MS);
	fx_run(&fx, CM_CLOSE_TIMEOUT_MS - 1);
	assert_int_equal(c.nevents, 1);
	fx_run(&fx, 2);
	assert_int_equal(c.qp->state, RNIC_QP_ERROR);
	assert_int_equal(c.nevents, 3);
	assert_int_equal(c.ev[1].event, IW_CM_EVENT_DISCONNECT);
	assert_int_equal(c.ev[2].event, IW_CM_EVENT_CLOSE);
	ep_fini(&fx, &c);
	ep_fini(&fx, &a);
	irdma_destroy_listen(&l.id);
	ep_fini(&fx, &l);
	fx_down(&fx);
}

/* Fault 10: TIME_WAIT lasts a tenth of a second and holds a whole node. */
static void time_wait_lasts_and_holds_no_node(void **state)
{
	size_t conns, records, conn_bytes, record_bytes;
	struct endpoint l, c, a;
	struct port *port;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	ep_init(&l, &fx, 1);
	ep_init(&a, &fx, 1);
	ep_init(&c, &fx, 0);
	l.child = &a;
	ep_listen(&fx, &l, 1, true, 7000);
	assert_int_equal(ep_connect(&c, 0, 1, true, 5000, 7000), 0);
	fx_run(&fx, 100);
	assert_int_equal(irdma_reject(&a.id, NULL, 0), 0);
	fx_run(&fx, 1000);
	assert_int_equal(fx_stats(&fx, 1).nodes_now, 0);
	port = fx.host[1].dev->port;
	port_wire_tsa_usage(port, &conns, &records, &conn_bytes, &record_bytes);
	assert_int_equal(records, 1);
	assert_true(record_bytes <= 128);
	fx_run(&fx, 20000);
	port_wire_tsa_usage(port, &conns, &records, &conn_bytes, &record_bytes);
	assert_int_equal(records, 1);
	fx_run(&fx, 200000);
	port_wire_tsa_usage(port, &conns, &records, &conn_bytes, &record_bytes);
	assert_int_equal(records, 0);
	ep_fini(&fx, &c);
	ep_fini(&fx, &a);
	irdma_destroy_listen(&l.id);
	ep_fini(&fx, &l);
	fx_down(&fx);
}

/* ---- only what is due ---- */

static void list_holds_the_due_ones_in_order_each_with_a_reference(void **state)
{
	struct irdma_node_list list = TAILQ_HEAD_INITIALIZER(list);
	struct irdma_cm_node *node[5], *n;
	static const u32 limit[5] = { 30, 10, 20, 31, 0 };
	static const int order[3] = { 1, 2, 0 };
	struct fx fx;
	int i = 0;

	fx_up(&fx, IRDMA_GEN_1, 1);
	for (int k = 0; k < 5; k++) {
		node[k] = fx_node(&fx, NULL, true, 1, (u16)(10 + k));
		cm_node_stage(node[k], limit[k]);
	}
	assert_int_equal(core_of(&fx)->wheel.count, 4);
	irdma_timer_list_prep(core_of(&fx), &list);
	assert_true(TAILQ_EMPTY(&list));
	loop_set_now(&fx.loop, loop_now(&fx.loop) + 30 * MS);
	irdma_timer_list_prep(core_of(&fx), &list);
	TAILQ_FOREACH(n, &list, timer_entry) {
		assert_true(i < 3);
		assert_ptr_equal(n, node[order[i++]]);
		assert_int_equal(n->refcount, 2);
		assert_false(n->timer.armed);
	}
	assert_int_equal(i, 3);
	assert_int_equal(node[3]->refcount, 1);
	assert_int_equal(core_of(&fx)->wheel.count, 1);
	for (int k = 0; k < 5; k++) {
		if (k < 3)
			irdma_rem_ref_cm_node(node[k]);
		cm_node_end(node[k]);
	}
	fx_down(&fx);
}

/* Fault 7: a tick that walks every connection. Of 50,000 armed nodes, a tick takes up one. */
static void tick_touches_one_of_many(void **state)
{
	struct irdma_node_list list = TAILQ_HEAD_INITIALIZER(list);
	struct irdma_cm_node *due, *node;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	for (u32 i = 0; i < 50000; i++)
		cm_node_stage(fx_node(&fx, NULL, true, 1, (u16)(10 + i)), 1000000 + i);
	due = fx_node(&fx, NULL, true, 2, 1);
	due->state = IRDMA_CM_STATE_SYN_SENT;
	irdma_send_syn(due, 0);
	assert_int_equal(core_of(&fx)->wheel.count, 50001);
	loop_set_now(&fx.loop, loop_now(&fx.loop) + 1000 * MS);
	irdma_timer_list_prep(core_of(&fx), &list);
	assert_ptr_equal(TAILQ_FIRST(&list), due);
	assert_null(TAILQ_NEXT(due, timer_entry));
	irdma_rem_ref_cm_node(due);
	cm_node_arm(due);
	fx_tap_on(&fx, 0, &tap);
	irdma_cm_timer_tick(&core_of(&fx)->tcp_timer);
	assert_int_equal(tap.n, 1);
	assert_int_equal(fx_stats(&fx, 0).retransmits, 1);
	assert_int_equal(core_of(&fx)->wheel.count, 50001);
	fx_tap_off(&tap);
	while ((node = LIST_FIRST(&core_of(&fx)->nodes)))
		cm_node_end(node);
	assert_int_equal(core_of(&fx)->wheel.count, 0);
	fx_down(&fx);
}

/* ---- the tick ---- */

static void tick_arms_itself_for_the_next_deadline_and_rests_without(void **state)
{
	struct irdma_cm_core *core;
	struct irdma_cm_node *one, *two;
	struct fx fx;
	u64 now;

	fx_up(&fx, IRDMA_GEN_1, 1);
	core = core_of(&fx);
	now = loop_now(&fx.loop);
	assert_int_equal(core->tcp_timer_at_ns, UINT64_MAX);
	one = fx_node(&fx, NULL, true, 1, 1);
	two = fx_node(&fx, NULL, true, 1, 2);
	one->state = two->state = IRDMA_CM_STATE_CLOSING;
	cm_node_stage(one, 20);
	cm_node_stage(two, 10);
	assert_int_equal(core->tcp_timer_at_ns, now + 10 * MS); /* the earlier one */
	cm_node_stage(one, 25);
	assert_int_equal(core->tcp_timer_at_ns, now + 10 * MS);
	fx_run(&fx, 10);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 1);
	assert_true(core->tcp_timer_at_ns <= now + 25 * MS);
	assert_true(core->tcp_timer_at_ns > now + 10 * MS);
	fx_run(&fx, 14);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 1);
	fx_run(&fx, 1);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 0);
	assert_int_equal(core->tcp_timer_at_ns, UINT64_MAX);
	fx_down(&fx);
}

static void tick_with_nothing_due_does_nothing(void **state)
{
	struct irdma_cm_core *core;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	core = core_of(&fx);
	irdma_cm_timer_tick(&core->tcp_timer);
	assert_int_equal(core->tcp_timer_at_ns, UINT64_MAX);
	assert_int_equal(fx_stats(&fx, 0).retransmits, 0);
	fx_down(&fx);
}

/* Several deadlines of one node pass at once: close, then stage, then retransmission; each is served once. */
static void deadlines_of_one_node_do_not_hide_each_other(void **state)
{
	struct irdma_cm_node *node;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	node = fx_node(&fx, NULL, true, 1, 2);
	cm_node_hold(node);
	node->state = IRDMA_CM_STATE_LAST_ACK;
	irdma_send_fin(node);
	cm_node_stage(node, 1500);
	fx_tap_on(&fx, 0, &tap);
	fx_run(&fx, 1400);
	assert_int_equal(tap.n, 1); /* the FIN again */
	assert_int_equal(node->state, IRDMA_CM_STATE_LAST_ACK);
	fx_run(&fx, 101);
	assert_int_equal(tap.n, 2);
	assert_int_equal(fx_last(&tap)->flags, PKT_RST | PKT_ACK);
	assert_int_equal(node->state, IRDMA_CM_STATE_CLOSED);
	fx_tap_off(&tap);
	irdma_rem_ref_cm_node(node);
	fx_down(&fx);
}

/* A node that ended while it was on the tick's list is left alone. */
static void tick_leaves_ended_nodes_alone(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	node = fx_node(&fx, NULL, true, 1, 2);
	cm_node_hold(node);
	cm_node_end(node);
	node->stage_at_ns = loop_now(&fx.loop);
	cm_node_arm(node);
	fx_run(&fx, 10);
	assert_int_equal(node->state, IRDMA_CM_STATE_CLOSED);
	assert_int_equal(node->cause, CM_CAUSE_NONE);
	assert_int_equal(node->refcount, 1);
	irdma_rem_ref_cm_node(node);
	fx_down(&fx);
}

/* The tick runs in its own host's network, and gives the caller's back. */
static void tick_restores_the_callers_network(void **state)
{
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	net_enter(fx.host[2].net);
	irdma_cm_timer_tick(&core_of(&fx)->tcp_timer);
	assert_ptr_equal(net_current, fx.host[2].net);
	net_enter(NULL);
	fx_down(&fx);
}

/* A SYN that found no buffer is made again a moment later; without one for good it fails, and says why. */
static void syn_waits_for_a_buffer(void **state)
{
	for (int for_good = 0; for_good < 2; for_good++) {
		struct irdma_puda_buf *held;
		struct irdma_sc_vsi *vsi;
		struct endpoint c;
		struct fx_tap tap;
		struct fx fx;

		fx_up(&fx, IRDMA_GEN_1, 1);
		fx_silence(&fx);
		ep_init(&c, &fx, 0);
		vsi = &fx.host[0].dev->vsi;
		held = rnic_buf_get(vsi, 0);
		vsi->small.limit = 1;
		fx_tap_on(&fx, 0, &tap);
		assert_int_equal(ep_connect(&c, 0, 1, true, 5000, 7000), 0);
		fx_run(&fx, 30);
		assert_int_equal(tap.n, 0);
		if (!for_good)
			vsi->small.limit = 0;
		fx_run(&fx, for_good ? 1000000 : 100);
		assert_int_equal(tap.n, !for_good);
		assert_int_equal(c.nevents, for_good);
		if (for_good)
			assert_int_equal(c.ev[0].neg.cause, CM_CAUSE_NO_RESOURCES);
		vsi->small.limit = 0;
		rnic_buf_put(held);
		fx_tap_off(&tap);
		ep_fini(&fx, &c);
		fx_down(&fx);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frame_that_is_not_kept_is_sent_and_consumed),
		cmocka_unit_test(kept_frame_is_due_in_a_second),
		cmocka_unit_test(next_kept_frame_takes_the_place_of_the_first),
		cmocka_unit_test(frame_that_the_port_refuses_is_told_unless_it_is_kept),
		cmocka_unit_test(close_timer_is_armed_once),
		cmocka_unit_test(close_timer_of_time_wait_is_a_minute),
		cmocka_unit_test(forgotten_frame_is_not_sent_again),
		cmocka_unit_test(cleanup_takes_the_lock),
		cmocka_unit_test(deadline_without_a_frame_is_forgotten_too),
		cmocka_unit_test(syn_backs_off_and_times_out),
		cmocka_unit_test(syn_timeout_of_the_upper_layer_comes_first),
		cmocka_unit_test(synack_backs_off_and_goes_quietly),
		cmocka_unit_test(request_backs_off_to_a_minute_at_most),
		cmocka_unit_test(acknowledgement_stops_retransmission),
		cmocka_unit_test(silent_peer_is_given_a_limited_time),
		cmocka_unit_test(expiry_by_state),
		cmocka_unit_test(expiry_keeps_the_first_cause),
		cmocka_unit_test(close_entry_without_a_qp),
		cmocka_unit_test(close_entry_with_a_qp_disconnects_it),
		cmocka_unit_test(time_wait_lasts_and_holds_no_node),
		cmocka_unit_test(list_holds_the_due_ones_in_order_each_with_a_reference),
		cmocka_unit_test(tick_touches_one_of_many),
		cmocka_unit_test(tick_arms_itself_for_the_next_deadline_and_rests_without),
		cmocka_unit_test(tick_with_nothing_due_does_nothing),
		cmocka_unit_test(deadlines_of_one_node_do_not_hide_each_other),
		cmocka_unit_test(tick_leaves_ended_nodes_alone),
		cmocka_unit_test(tick_restores_the_callers_network),
		cmocka_unit_test(syn_waits_for_a_buffer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
