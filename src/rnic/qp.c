/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs: their life, their state, and what the upper layer wants of them.
 *
 * References. The creator holds one, the stream holds one from the offload on, whoever looks a QP up holds one. A closed
 * stream's goes to the work item, to be dropped by the loop's thread, whichever thread closed it: events and
 * timers of the loop's thread which are under way at that time still find their QP, and need no reference of their own.
 *
 * Telling the CM. A cause is recorded where it is seen (todo), under the QP's lock; the loop's thread delivers
 * it with no lock held, at once if it is the one that saw it, else from a work item. The CM hears of a
 * stream's end at most once, and exactly once unless it released the stream before.
 */
#include <stdlib.h>
#include <string.h>
#include "rnic/rnic_internal.h"

#define QPN_MASK 0xFFFFFFu
#define FIRST_FPDU_NS (100 * NSEC_PER_MSEC) /* see qp_rx.c */

static const char *const state_names[] = {
	[RNIC_QP_IDLE] = "IDLE",
	[RNIC_QP_RTS] = "RTS",
	[RNIC_QP_CLOSING] = "CLOSING",
	[RNIC_QP_TERMINATE] = "TERMINATE",
	[RNIC_QP_ERROR] = "ERROR",
};
static_assert(ARRAY_SIZE(state_names) == RNIC_QP_STATES, "a name for each state");

/* Legal steps; there is no way back to IDLE: a QP lives once. */
static const u32 legal_steps[RNIC_QP_STATES] = {
	[RNIC_QP_IDLE] = BIT(RNIC_QP_RTS) | BIT(RNIC_QP_ERROR),
	[RNIC_QP_RTS] = BIT(RNIC_QP_CLOSING) | BIT(RNIC_QP_TERMINATE) | BIT(RNIC_QP_ERROR),
	[RNIC_QP_CLOSING] = BIT(RNIC_QP_TERMINATE) | BIT(RNIC_QP_ERROR),
	[RNIC_QP_TERMINATE] = BIT(RNIC_QP_ERROR),
	[RNIC_QP_ERROR] = 0,
};

static const struct {
	const char *name;
	bool fatal; /* the first of these stays */
} ae_table[] = {
	[RNIC_AE_NONE] = { "none", false },
	[RNIC_AE_LLP_FIN_RECEIVED] = { "FIN received", false },
	[RNIC_AE_LLP_CLOSE_COMPLETE] = { "close complete", false },
	[RNIC_AE_LLP_CONNECTION_RESET] = { "connection reset", true },
	[RNIC_AE_LLP_TOO_MANY_RETRIES] = { "too many retries", true },
	[RNIC_AE_TERMINATE_RECEIVED] = { "Terminate received", true },
	[RNIC_AE_TERMINATE_SENT] = { "Terminate sent", true },
	[RNIC_AE_QP_ERROR] = { "moved to ERROR", true },
	[RNIC_AE_RTR_TIMEOUT] = { "no RTR in time", true },
};
static_assert(ARRAY_SIZE(ae_table) == RNIC_AE_RTR_TIMEOUT + 1, "a row for each event");

/**
 * rnic_qp_state_str() - name of a state
 * @s: the state
 *
 * Return: its name.
 */
const char *rnic_qp_state_str(enum rnic_qp_state s)
{
	return (size_t)s < ARRAY_SIZE(state_names) ? state_names[s] : "?";
}

/**
 * rnic_ae_str() - name of an asynchronous event
 * @ae: the event
 *
 * Return: its name.
 */
const char *rnic_ae_str(enum rnic_ae ae)
{
	return (size_t)ae < ARRAY_SIZE(ae_table) ? ae_table[ae].name : "?";
}

/* ---- state; qp->lock held ---- */

bool rnic_qp_may_step(enum rnic_qp_state from, enum rnic_qp_state to)
{
	return (size_t)to < RNIC_QP_STATES && legal_steps[from] & BIT(to);
}

/* The only place that writes the state. */
void rnic_qp_set_state(struct irdma_qp *qp, enum rnic_qp_state next)
{
	assert(rnic_qp_may_step(qp->state, next));
	log_debug(ROOM, "qp %u: %s -> %s", qp->qp_num, rnic_qp_state_str(qp->state), rnic_qp_state_str(next));
	__atomic_store_n(&qp->state, next, __ATOMIC_RELAXED); /* whoever reads the stream glances at it */
}

void rnic_qp_set_ae(struct irdma_qp *qp, enum rnic_ae ae)
{
	if (ae_table[qp->last_ae].fatal)
		return;
	log_debug(ROOM, "qp %u: %s", qp->qp_num, rnic_ae_str(ae));
	qp->last_ae = ae;
}

void rnic_qp_raise(struct irdma_qp *qp)
{
	if (qp->disconn_raised)
		return;
	qp->disconn_raised = true;
	rnic_qp_set_todo(rnic_qp_of(qp), rnic_qp_of(qp)->todo | RNIC_TODO_DISCONNECT);
}

void rnic_qp_kick(struct irdma_qp *qp)
{
	rnic_qp_hold(qp);
	if (!workq_queue(&rnic_device_of(qp->iwdev)->wq, &rnic_qp_of(qp)->work))
		rnic_qp_put(qp);
}

void rnic_qp_fail(struct irdma_qp *qp, enum rnic_ae ae)
{
	rnic_qp_set_ae(qp, ae);
	if (qp->state != RNIC_QP_ERROR)
		rnic_qp_set_state(qp, RNIC_QP_ERROR);
	timer_del(&qp->rtr_timer);
	rnic_tx_drop(qp);
	rnic_qp_flush(qp);
	if (qp->stream)
		rnic_qp_raise(qp);
}

void rnic_qp_alarm(struct rnic_qp *q)
{
	__atomic_store_n(&q->alarm, 1, __ATOMIC_RELEASE);
	rnic_qp_kick(&q->qp);
}

void rnic_qp_abort(struct irdma_qp *qp, enum rnic_ae ae)
{
	rnic_qp_fail(qp, ae);
	if (qp->stream)
		qp->iwdev->port->ops->stream_abort(qp->stream);
}

/* ---- life ---- */

/* QPNs are ours, not a peer's to choose: no keyed hash is needed. */
static u64 qpn_hash(u32 qp_num)
{
	return qp_num * 0x9E3779B97F4A7C15ull;
}

static bool qpn_eq(const struct hash_node *n, const void *key)
{
	return container_of(n, struct irdma_qp, hn)->qp_num == *(const u32 *)key;
}

static struct irdma_qp *qpn_lookup(struct irdma_device *iwdev, u32 qp_num)
{
	struct hash_node *n = hash_find(&iwdev->qps, qpn_hash(qp_num), qpn_eq, &qp_num);

	return n ? container_of(n, struct irdma_qp, hn) : NULL;
}

/* Called with the device's lock held. */
static u32 next_qpn(struct irdma_device *iwdev)
{
	u32 n;

	do {
		n = iwdev->next_qpn++ & QPN_MASK;
	} while (n < 2 || qpn_lookup(iwdev, n));
	return n;
}

static struct rnic_qp *memory_get(struct irdma_device *iwdev)
{
	struct rnic_qp *q;

	mutex_lock(&iwdev->lock);
	q = pool_get(&rnic_device_of(iwdev)->qp_pool);
	mutex_unlock(&iwdev->lock);
	return q;
}

static void memory_put(struct irdma_device *iwdev, struct rnic_qp *q)
{
	mutex_lock(&iwdev->lock);
	pool_put(&rnic_device_of(iwdev)->qp_pool, q);
	mutex_unlock(&iwdev->lock);
}

static int table_add(struct irdma_qp *qp)
{
	struct irdma_device *iwdev = qp->iwdev;
	int rc = 0;

	mutex_lock(&iwdev->lock);
	if (iwdev->qps.count >= QPN_MASK / 2) {
		rc = -ENOSPC;
	} else {
		qp->qp_num = next_qpn(iwdev);
		hash_add(&iwdev->qps, &qp->hn, qpn_hash(qp->qp_num));
		rnic_device_of(iwdev)->qps_created++;
		rnic_device_of(iwdev)->made++;
	}
	mutex_unlock(&iwdev->lock);
	return rc;
}

/* A QP in IDLE, with @v's queues, or without any. */
int rnic_qp_make(struct irdma_device *iwdev, struct rnic_verbs *v, struct irdma_qp **out)
{
	struct rnic_qp *q = memory_get(iwdev);
	int rc;

	if (!q)
		return -ENOMEM;
	memset(q, 0, sizeof(*q));
	q->qp.iwdev = iwdev;
	q->qp.refcount = 1;
	q->v = v;
	work_setup(&q->work, rnic_qp_work);
	timer_setup(&q->qp.rtr_timer, iwdev->loop, rnic_qp_rtr_timeout);
	if (v) {
		q->qp.pd = v->attr.pd;
		q->access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	}
	rc = table_add(&q->qp);
	if (rc) {
		memory_put(iwdev, q);
		return rc;
	}
	*out = &q->qp;
	return 0;
}

/**
 * rnic_qp_create() - a queue pair in IDLE, without queues: for connections that carry no data
 * @iwdev: the device
 * @out: the QP, with one reference, which rnic_qp_destroy() drops
 *
 * Return: 0, -ENOMEM, or -ENOSPC if there are too many.
 */
int rnic_qp_create(struct irdma_device *iwdev, struct irdma_qp **out)
{
	return rnic_qp_make(iwdev, NULL, out);
}

/**
 * rnic_qp_hold() - take a reference
 * @qp: the QP
 */
void rnic_qp_hold(struct irdma_qp *qp)
{
	count_up(&qp->refcount);
}

/* What it did goes into the device's sums, except for what they have already. */
static void qp_free(struct irdma_qp *qp)
{
	struct irdma_device *iwdev = qp->iwdev;
	struct rnic_device *d = rnic_device_of(iwdev);
	struct rnic_qp *q = rnic_qp_of(qp);
	struct rnic_qp_stats rest = { 0 };

	assert(qp->destroying && !qp->stream);
	rnic_tx_drop(qp);
	rdmap_rx_destroy(&q->rx);
	free(q->answers.ring);
	rnic_qp_add_stats(qp, &rest);
	if (q->v) {
		rnic_stats_move(&rest, &q->v->counted, true);
		rnic_verbs_free(q->v);
	}
	mutex_lock(&iwdev->lock);
	rnic_stats_move(&d->gone, &rest, false);
	pool_put(&d->qp_pool, q);
	mutex_unlock(&iwdev->lock);
}

/**
 * rnic_qp_put() - drop a reference; the last one frees the QP
 * @qp: the QP
 */
void rnic_qp_put(struct irdma_qp *qp)
{
	struct rnic_device *d = rnic_device_of(qp->iwdev);
	u32 before = count_down(&qp->refcount);

	assert(before > 0);
	if (before > 1)
		return;
	qp_free(qp);
	__atomic_fetch_add(&d->qps_freed, 1, __ATOMIC_RELEASE);
}

/**
 * rnic_qp_find() - look a QP up
 * @iwdev: the device
 * @qp_num: its number
 *
 * Return: the QP with a reference; NULL if there is none, or it was destroyed.
 */
struct irdma_qp *rnic_qp_find(struct irdma_device *iwdev, u32 qp_num)
{
	struct irdma_qp *qp;

	mutex_lock(&iwdev->lock);
	qp = qpn_lookup(iwdev, qp_num);
	if (qp)
		rnic_qp_hold(qp);
	mutex_unlock(&iwdev->lock);
	return qp;
}

/* Nothing is half done in either direction, and nothing waits. */
static bool is_at_rest(const struct rnic_qp *q)
{
	const struct rnic_iwarp_info *iw = &q->qp.iw;

	return q->v && q->qp.stream && (iw->initiator ? !iw->rtr || q->rtr_sent : !q->qp.rtr_pending) && rnic_tx_is_empty(q) &&
	       rnic_sq_is_empty(q) && q->answers.head == q->answers.tail && !rdmap_rx_cut_off(&q->rx);
}

/*
 * A stream whose orderly end or Terminate is on its way is not reset: closing it lets that go on. Nor is one that is at rest: programs destroy the QP right behind their
 * last Send, and a reset would overtake it, or the peer's completion of its own.
 */
static void destroy_locked(struct irdma_qp *qp)
{
	rnic_send_held(rnic_qp_of(qp));
	if (qp->state == RNIC_QP_RTS && is_at_rest(rnic_qp_of(qp))) {
		rnic_qp_set_state(qp, RNIC_QP_CLOSING);
		rnic_qp_of(qp)->tx.fin = true;
	}
	switch (qp->state) {
	case RNIC_QP_IDLE:
	case RNIC_QP_RTS:
		rnic_qp_abort(qp, RNIC_AE_QP_ERROR);
		break;
	case RNIC_QP_CLOSING:
	case RNIC_QP_TERMINATE:
		if (qp->last_ae == RNIC_AE_NONE)
			rnic_qp_set_ae(qp, RNIC_AE_QP_ERROR);
		rnic_qp_flush(qp);
		if (qp->stream && qp->state == RNIC_QP_CLOSING)
			rnic_tx_fin_if_due(qp);
		if (qp->stream)
			rnic_qp_raise(qp);
		break;
	default:
		break;
	}
}

/* True if the creator's was the only reference: nobody can get another one any more. The CM may keep it for long: the sums have it from here on. */
static bool table_del(struct irdma_qp *qp)
{
	struct irdma_device *iwdev = qp->iwdev;
	struct rnic_verbs *v = rnic_qp_of(qp)->v;
	bool sole;

	mutex_lock(&iwdev->lock);
	hash_del(&iwdev->qps, &qp->hn);
	if (v)
		rnic_stats_move(&rnic_device_of(iwdev)->gone, &v->counted, false);
	sole = __atomic_load_n(&qp->refcount, __ATOMIC_ACQUIRE) == 1;
	if (sole)
		rnic_device_of(iwdev)->qps_created--;
	mutex_unlock(&iwdev->lock);
	return sole;
}

/**
 * rnic_qp_destroy() - the creator is done with the QP
 * @qp: the QP
 *
 * From any thread, also from inside the CM's callbacks. When it returns, the program's memory, its CQs, SRQ and PD are touched no more, and its completions are gone
 * from the CQs. The stream of a QP in RTS is closed in order if nothing is under way, else reset. A CM that holds a stream of
 * this QP is told, and releases it; the memory goes with the last reference.
 */
void rnic_qp_destroy(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	rnic_rx_lock(q); /* who is just reading is waited for */
	mutex_lock(&qp->lock);
	assert(!qp->destroying);
	__atomic_store_n(&qp->destroying, true, __ATOMIC_RELAXED);
	if (q->v)
		q->v->attr.async = NULL;
	destroy_locked(qp);
	if (q->todo)
		rnic_qp_kick(qp);
	mutex_unlock(&qp->lock);
	rnic_rx_unlock(q);
	if (q->v) {
		rnic_qp_forget(qp);
		rnic_qp_count(qp);
	}
	if (table_del(qp))
		qp_free(qp);
	else
		rnic_qp_put(qp);
}

/* ---- offload ---- */

/* Called with qp->lock held and the stream in place. */
static void start_stream(struct irdma_qp *qp, const struct tcp_info_ho *tcp, const struct rnic_iwarp_info *iw)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	qp->iw = *iw;
	qp->iw.lsmm = NULL; /* the caller's */
	rdmap_rx_init(&q->rx, &rnic_rx_ops, q, iw->crc, iw->rcv_markers);
	mpa_stream_init(&q->tx.mpa, iw->crc, iw->snd_markers);
	q->tx.emss = tcp->mss;
	if (q->v && iw->initiator && iw->rtr == RDMAP_RTR_SEND)
		q->v->sq.send_msn++; /* the RTR takes the first one */
	if (q->v && iw->initiator && iw->rtr == RDMAP_RTR_READ)
		q->v->sq.read_msn++;
	rnic_qp_set_state(qp, RNIC_QP_RTS);
	qp->rtr_pending = !iw->initiator && iw->rtr;
	if (qp->rtr_pending && iw->rtr_timeout_ms)
		mod_timer(&qp->rtr_timer, loop_now(qp->iwdev->loop) + iw->rtr_timeout_ms * NSEC_PER_MSEC);
	q->first_pending = q->v && !iw->initiator && !iw->rtr;
	if (q->first_pending && !qp->iwdev->responder_waits)
		mod_timer(&qp->rtr_timer, loop_now(qp->iwdev->loop) + FIRST_FPDU_NS);
	rnic_nudge_start(qp);
	if (iw->lsmm_len) {
		q->lsmm_left = iw->lsmm_len;
		rnic_tx_bytes(qp, iw->lsmm, iw->lsmm_len);
	}
	if (tcp->rx_len || tcp->peer_fin)
		q->events |= PORT_READABLE; /* no edge will announce what came before */
	if (q->todo || q->events)
		rnic_qp_kick(qp);
}

static int offload_locked(struct irdma_qp *qp, struct irdma_sc_ah *ah, const struct tcp_info_ho *tcp,
			  const struct rnic_iwarp_info *iw)
{
	struct port *port = qp->iwdev->port;
	int rc;

	if (qp->state != RNIC_QP_IDLE || qp->destroying)
		return -EINVAL;
	if (!ah->valid && !(port->ops->flags & PORT_FRAMES)) /* whole-frame NICs have no address handles */
		return -EINVAL;
	rc = port->ops->offload(port, ah->valid ? ah->port_ah : NULL, tcp, &rnic_stream_up, rnic_qp_of(qp), &qp->stream);
	if (rc) {
		qp->stream = NULL;
		return rc;
	}
	ah->port_ah = NULL;
	ah->valid = false;
	rnic_qp_hold(qp);
	start_stream(qp, tcp, iw);
	return 0;
}

/**
 * rnic_qp_offload() - take a connection over: IDLE -> RTS
 * @qp: the QP
 * @ah: address handle of the connection, consumed on success; not valid with whole-frame NICs, which have none
 * @tcp: state of the connection, and bytes that were received behind the start-up frame
 * @iw: iWARP parameters; lsmm goes out first and is copied
 *
 * Return: 0; -EINVAL if the QP is not IDLE or being destroyed, or @ah is missing; -ECONNRESET; -ENOMEM.
 */
int rnic_qp_offload(struct irdma_qp *qp, struct irdma_sc_ah *ah, const struct tcp_info_ho *tcp, const struct rnic_iwarp_info *iw)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	int rc;

	rnic_rx_lock(q);
	mutex_lock(&qp->lock);
	rc = offload_locked(qp, ah, tcp, iw);
	mutex_unlock(&qp->lock);
	rnic_rx_unlock(q);
	if (!rc)
		__atomic_fetch_add(&rnic_device_of(qp->iwdev)->connections, 1, __ATOMIC_RELAXED);
	return rc;
}

/**
 * rnic_qp_send_rtr() - initiator in the peer-to-peer model: send the RTR that the peers agreed on
 * @qp: the QP, in RTS
 *
 * Return: 0; -EINVAL if none is due; -ENOTCONN if the stream has ended meanwhile.
 */
int rnic_qp_send_rtr(struct irdma_qp *qp)
{
	u8 ulpdu[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE];
	struct rnic_qp *q = rnic_qp_of(qp);
	int rc = 0;
	u32 len;

	mutex_lock(&qp->lock);
	len = rdmap_build_rtr(qp->iw.rtr, ulpdu);
	if (!qp->iw.initiator || !len || q->rtr_sent) {
		rc = -EINVAL;
	} else if (qp->state != RNIC_QP_RTS) {
		rc = -ENOTCONN;
	} else {
		q->rtr_sent = true;
		q->rtr_resp_due = qp->iw.rtr == RDMAP_RTR_READ;
		rnic_tx_ulpdu(qp, ulpdu, len);
		rnic_tx_run(qp);
		if (q->todo)
			rnic_qp_kick(qp);
	}
	mutex_unlock(&qp->lock);
	return rc;
}

/* ---- the upper layer's wishes ---- */

static void modify_locked(struct irdma_qp *qp, enum rnic_qp_state next)
{
	static const struct rdmap_error local = { TERM_LAYER_RDMAP, TERM_RDMAP_CATASTROPHIC, 0 };

	switch (next) {
	case RNIC_QP_CLOSING:
		rnic_qp_set_state(qp, RNIC_QP_CLOSING);
		rnic_send_held(rnic_qp_of(qp));
		rnic_tx_fin(qp);
		break;
	case RNIC_QP_TERMINATE:
		rnic_tx_terminate(qp, &local, NULL, 0);
		break;
	default:
		rnic_qp_abort(qp, RNIC_AE_QP_ERROR);
		break;
	}
}

/**
 * rnic_qp_modify() - move a QP to another state
 * @qp: the QP
 * @next: RNIC_QP_CLOSING: FIN after what is queued; RNIC_QP_TERMINATE: Terminate, then FIN; RNIC_QP_ERROR: RST;
 *        the state it is in already: nothing
 *
 * From any thread.
 *
 * Return: 0, or -EINVAL for an illegal step. RNIC_QP_RTS is reached through rnic_qp_offload() alone.
 */
int rnic_qp_modify(struct irdma_qp *qp, enum rnic_qp_state next)
{
	int rc = 0;

	mutex_lock(&qp->lock);
	if (next == qp->state)
		goto unlock;
	if (next == RNIC_QP_RTS || !rnic_qp_may_step(qp->state, next)) {
		rc = -EINVAL;
		goto unlock;
	}
	modify_locked(qp, next);
	if (rnic_qp_of(qp)->todo)
		rnic_qp_kick(qp);
unlock:
	mutex_unlock(&qp->lock);
	return rc;
}

/**
 * rnic_qp_fin_is_out() - nothing of this side is to be sent any more
 * @qp: the QP
 *
 * Return: true in CLOSING when all that was posted, and FIN behind it, has been handed to the stream.
 */
bool rnic_qp_fin_is_out(struct irdma_qp *qp)
{
	bool out;

	mutex_lock(&qp->lock);
	out = qp->state == RNIC_QP_CLOSING && rnic_qp_of(qp)->tx.fin_sent;
	mutex_unlock(&qp->lock);
	return out;
}
