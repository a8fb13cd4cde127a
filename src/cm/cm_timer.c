// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Timers: one wheel entry a node, filed for the earliest of its deadlines (retransmission, stage limit, close
 * timer, delayed ACK); one loop timer a core, armed for the wheel. A tick touches only what is due.
 */
#include "cm/cm_internal.h"

static u64 to_ticks(u64 ns)
{
	return (ns + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;
}

static u64 earliest(u64 a, u64 b)
{
	if (!a || !b)
		return a ? a : b;
	return min(a, b);
}

/* Arm the core's loop timer for @at_ns unless it already fires by then. */
static void core_arm(struct irdma_cm_core *core, u64 at_ns)
{
	if (at_ns >= core->tcp_timer_at_ns)
		return;
	core->tcp_timer_at_ns = at_ns;
	mod_timer(&core->tcp_timer, at_ns);
}

void cm_node_arm(struct irdma_cm_node *node)
{
	struct irdma_cm_core *core = node->cm_core;
	u64 at = earliest(earliest(node->send_entry.timetosend_ns, node->stage_at_ns), earliest(node->close_at_ns, node->ack_at_ns));

	if (!at) {
		wheel_del(&core->wheel, &node->timer);
		return;
	}
	wheel_add(&core->wheel, &node->timer, to_ticks(at));
	core_arm(core, to_ticks(at) * NSEC_PER_MSEC);
}

void cm_node_stage(struct irdma_cm_node *node, u32 limit_ms)
{
	node->stage_at_ns = limit_ms ? cm_now(node->cm_core) + limit_ms * NSEC_PER_MSEC : 0;
	cm_node_arm(node);
}

/*
 * RFC 9293 3.8.6.3: the answer to an MPA request follows at once in most cases, and carries the ACK. For the upper layer that takes
 * its time the timer sends one.
 */
void cm_node_delay_ack(struct irdma_cm_node *node)
{
	node->ack_at_ns = cm_now(node->cm_core) + CM_DELAYED_ACK_MS * NSEC_PER_MSEC;
	cm_node_arm(node);
}

static void delayed_ack(struct irdma_cm_node *node)
{
	node->ack_at_ns = 0;
	if (!node->accelerated && node->tcp_cntxt.loc_ack_num != node->tcp_cntxt.rcv_nxt)
		irdma_send_ack(node);
}

static u32 retries_of(const struct irdma_cm_node *node)
{
	switch (node->state) {
	case IRDMA_CM_STATE_SYN_SENT:
		return CM_SYN_RETRIES;
	case IRDMA_CM_STATE_SYN_RCVD:
		return CM_SYNACK_RETRIES;
	default:
		return CM_DATA_RETRIES;
	}
}

static void keep_for_retransmission(struct irdma_cm_node *node, struct irdma_puda_buf *sqbuf, int close_when_complete)
{
	struct irdma_timer_entry *e = &node->send_entry;
	u64 now = cm_now(node->cm_core);

	irdma_free_retrans_entry(node);
	*e = (struct irdma_timer_entry){
		.sqbuf = sqbuf,
		.timetosend_ns = now + CM_RTO_INIT_MS * NSEC_PER_MSEC,
		.retranscount = retries_of(node),
		.rto_ms = CM_RTO_INIT_MS,
		.close_when_complete = close_when_complete,
	};
	cm_node_arm(node);
}

/**
 * irdma_schedule_cm_timer - send a frame, or arm the close timer
 * @cm_node: node
 * @sqbuf: %IRDMA_TIMER_TYPE_SEND: the frame, with the caller's reference, which is consumed
 * @type: %IRDMA_TIMER_TYPE_SEND: transmit now; %IRDMA_TIMER_TYPE_CLOSE: arm the close timer, CM_CLOSE_TIMEOUT_MS or, in
 *	TIME_WAIT, CM_TIME_WAIT_MS from now
 * @send_retrans: keep the frame and retransmit it, first after one second (RFC 6298 2.1), until it is acknowledged.
 *	It takes the place of a frame kept before
 * @close_when_complete: the node ends when the frame is acknowledged: so it is with the FIN of LAST_ACK (RFC 9293 3.10.7.4)
 *
 * A frame that the NIC could not take is as good as lost on the wire: if it is kept, the timer sends it again.
 *
 * Return: 0; what the port said for a frame that is not kept; -EINVAL if the close timer is armed already.
 */
int irdma_schedule_cm_timer(struct irdma_cm_node *cm_node, struct irdma_puda_buf *sqbuf, enum irdma_timer_type type,
			    int send_retrans, int close_when_complete)
{
	u32 close_ms = cm_node->state == IRDMA_CM_STATE_TIME_WAIT ? CM_TIME_WAIT_MS : CM_CLOSE_TIMEOUT_MS;
	int err;

	if (type == IRDMA_TIMER_TYPE_CLOSE) {
		if (cm_node->close_at_ns)
			return -EINVAL;
		cm_node->close_at_ns = cm_now(cm_node->cm_core) + close_ms * NSEC_PER_MSEC;
		cm_node_arm(cm_node);
		return 0;
	}
	err = rnic_ilq_send(&cm_node->iwdev->vsi, sqbuf);
	if (!send_retrans) {
		irdma_free_sqbuf(&cm_node->iwdev->vsi, sqbuf);
		return err;
	}
	keep_for_retransmission(cm_node, sqbuf, close_when_complete);
	return 0;
}

/**
 * irdma_free_retrans_entry - forget the frame kept for retransmission
 * @cm_node: node; core lock held. Without a kept frame nothing happens
 *
 * Called when everything sent is acknowledged, when another frame takes its place, and at the end of a node. The frame's reference
 * is dropped and the node's timer filed anew for what else it waits for. Core lock held.
 */
void irdma_free_retrans_entry(struct irdma_cm_node *cm_node)
{
	struct irdma_puda_buf *sqbuf = cm_node->send_entry.sqbuf;

	if (!sqbuf && !cm_node->send_entry.timetosend_ns)
		return;
	cm_node->send_entry = (struct irdma_timer_entry){ 0 };
	if (sqbuf)
		irdma_free_sqbuf(&cm_node->iwdev->vsi, sqbuf);
	if (cm_node->timer.armed)
		cm_node_arm(cm_node);
}

/**
 * irdma_cleanup_retrans_entry - forget the frame kept for retransmission, taking the core lock
 * @cm_node: node, referenced by the caller
 *
 * As irdma_free_retrans_entry(), for callers without the lock. Nearly everything that forgets a frame is a step of the state machine,
 * and has the lock. The one caller without it is the event queue, in irdma_cm_event_reset(): between the peer's reset and that event
 * the lock was free, and what the upper layer is told must be true: that nothing more is sent.
 */
void irdma_cleanup_retrans_entry(struct irdma_cm_node *cm_node)
{
	cm_lock(cm_node->cm_core);
	irdma_free_retrans_entry(cm_node);
	cm_unlock(cm_node->cm_core);
}

/**
 * irdma_timer_list_prep - collect the nodes whose timer is due
 * @cm_core: core
 * @timer_list: gets them, each with a reference that the caller drops
 *
 * The wheel hands out due timers only; the cost does not grow with the number of nodes.
 */
void irdma_timer_list_prep(struct irdma_cm_core *cm_core, struct irdma_node_list *timer_list)
{
	u64 now = cm_now(cm_core) / NSEC_PER_MSEC;
	struct wheel_timer *wt;

	while ((wt = wheel_expire(&cm_core->wheel, now))) {
		struct irdma_cm_node *node = container_of(wt, struct irdma_cm_node, timer);

		cm_node_hold(node);
		TAILQ_INSERT_TAIL(timer_list, node, timer_entry);
	}
}

static enum cm_cause expiry_cause(const struct irdma_cm_node *node)
{
	switch (node->state) {
	case IRDMA_CM_STATE_SYN_SENT:
		if (node->neigh_pending)
			return CM_CAUSE_UNREACHABLE;
		return node->send_entry.sqbuf ? CM_CAUSE_NO_SYNACK : CM_CAUSE_NO_RESOURCES; /* it was never sent */
	case IRDMA_CM_STATE_MPAREQ_SENT:
		if (node->rx_len)
			return CM_CAUSE_MPA_PARTIAL;
		return node->send_entry.sqbuf ? CM_CAUSE_NOT_ACKED : CM_CAUSE_NO_MPA_REPLY;
	case IRDMA_CM_STATE_ESTABLISHED:
		return CM_CAUSE_NO_MPA_REQUEST;
	default:
		return CM_CAUSE_NOT_ACKED;
	}
}

/**
 * irdma_retrans_expired - give a node up whose frame was sent as often as it may, or whose stage took too long
 * @cm_node: node
 *
 * Half-open and closing nodes go quietly: nobody is there to be told. A closing handshake that the peer
 * leaves hanging is reset. Everything else resets, but for a peer that may come back with its SYN cookie, and on the active side aborts upward with -ETIMEDOUT.
 */
void irdma_retrans_expired(struct irdma_cm_node *cm_node)
{
	cm_node_set_cause(cm_node, expiry_cause(cm_node),
			  cm_node->neigh_pending ? -EHOSTUNREACH : -ETIMEDOUT);
	switch (cm_node->state) {
	case IRDMA_CM_STATE_SYN_RCVD:
		cm_node->cm_core->stats.passive_errs++;
		cm_node_end(cm_node);
		break;
	case IRDMA_CM_STATE_CLOSING:
		cm_node_end(cm_node);
		break;
	case IRDMA_CM_STATE_FIN_WAIT1:
	case IRDMA_CM_STATE_LAST_ACK:
		irdma_send_reset(cm_node);
		break;
	default:
		if (cm_node->active)
			irdma_active_open_err(cm_node, cm_node->state != IRDMA_CM_STATE_SYN_SENT);
		else
			irdma_passive_open_err(cm_node, !cm_node_may_return(cm_node));
	}
}

/**
 * irdma_handle_close_entry - end what the close timer was armed for, when it fires
 * @cm_node: node
 * @rem_node: a node without a QP ends here and its life's reference is dropped
 *
 * A QP that is still attached goes to error, which disconnects it. Without one it is a FIN_WAIT2 whose peer never closed,
 * or a TIME_WAIT that is over.
 */
void irdma_handle_close_entry(struct irdma_cm_node *cm_node, u32 rem_node)
{
	cm_node->close_at_ns = 0;
	if (cm_node->iwqp)
		rnic_qp_modify(cm_node->iwqp, RNIC_QP_ERROR);
	else if (rem_node)
		cm_node_end(cm_node);
}

static void retransmit(struct irdma_cm_node *node, u64 now)
{
	struct irdma_timer_entry *e = &node->send_entry;

	if (!e->retranscount) {
		irdma_retrans_expired(node);
		return;
	}
	e->retranscount--;
	e->rto_ms = min(e->rto_ms * 2, CM_RTO_MAX_MS); /* RFC 6298 5.5 */
	e->timetosend_ns = now + e->rto_ms * NSEC_PER_MSEC;
	node->cm_core->stats.retransmits++;
	if (node->state == IRDMA_CM_STATE_SYN_SENT)
		node->syn_sent++;
	else if (node->state == IRDMA_CM_STATE_MPAREQ_SENT)
		node->mpa_sent++;
	rnic_ilq_send(&node->iwdev->vsi, e->sqbuf);
}

static bool due(u64 at, u64 now)
{
	return at && at <= now;
}

static void node_tick(struct irdma_cm_node *node, u64 now)
{
	if (node->state == IRDMA_CM_STATE_CLOSED)
		return;
	if (due(node->ack_at_ns, now))
		delayed_ack(node);
	if (due(node->close_at_ns, now)) {
		irdma_handle_close_entry(node, 1);
	} else if (due(node->stage_at_ns, now)) {
		node->stage_at_ns = 0;
		irdma_retrans_expired(node);
	} else if (due(node->send_entry.timetosend_ns, now)) {
		if (node->send_entry.sqbuf)
			retransmit(node, now);
		else
			cm_syn_attempt(node); /* the SYN that waits for a link address or a buffer */
	}
	if (node->state != IRDMA_CM_STATE_CLOSED)
		cm_node_arm(node);
}

/**
 * irdma_cm_timer_tick - retransmit or expire what is due, when the timer fires
 * @t: the core's tcp_timer; loop thread, no lock held
 *
 * Retransmits or expires what is due, doubling each node's RTO (RFC 6298 5.5), and re-arms for the next deadline.
 */
void irdma_cm_timer_tick(struct timer_list *t)
{
	struct irdma_cm_core *core = container_of(t, struct irdma_cm_core, tcp_timer);
	struct irdma_node_list list = TAILQ_HEAD_INITIALIZER(list);
	struct net *prev = net_enter(core->iwdev->net);
	struct irdma_cm_node *node;
	u64 now, next;

	cm_lock(core);
	core->tcp_timer_at_ns = UINT64_MAX;
	now = cm_now(core);
	irdma_timer_list_prep(core, &list);
	while ((node = TAILQ_FIRST(&list))) {
		TAILQ_REMOVE(&list, node, timer_entry);
		node_tick(node, now);
		irdma_rem_ref_cm_node(node);
	}
	next = wheel_next(&core->wheel);
	if (next != UINT64_MAX)
		core_arm(core, next * NSEC_PER_MSEC);
	cm_unlock(core);
	net_enter(prev);
}
