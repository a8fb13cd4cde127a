/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs as verbs see them: made with queues, posted to, asked how they are.
 */
#include <stdlib.h>
#include <string.h>
#include "rnic/rnic_internal.h"

/* ---- life ---- */

void rnic_verbs_free(struct rnic_verbs *v)
{
	free(v->sq.ring);
	rnic_rq_destroy(&v->rq);
	free(v->cur);
	free(v);
}

static int check_caps(const struct ibv_qp_cap *cap)
{
	if (cap->max_send_wr > RNIC_MAX_WR || cap->max_recv_wr > RNIC_MAX_WR || cap->max_send_sge > RNIC_MAX_SGE ||
	    cap->max_recv_sge > RNIC_MAX_SGE || cap->max_inline_data > RNIC_MAX_INLINE)
		return -EINVAL;
	return 0;
}

static int make_queues(struct rnic_verbs *v)
{
	struct ibv_qp_cap *cap = &v->attr.cap;
	bool own_rq = !v->attr.srq;
	u32 sges;
	int rc;

	if (!own_rq)
		cap->max_recv_wr = cap->max_recv_sge = 0;
	rc = rnic_rq_init(&v->rq, cap->max_recv_wr, cap->max_recv_sge);
	if (rc)
		return rc;
	if (own_rq && v->rq.size) {
		cap->max_recv_wr = v->rq.size;
		cap->max_recv_sge = v->rq.max_sge;
	}
	sges = own_rq ? v->rq.max_sge : v->attr.srq->rq.max_sge;
	v->cur = calloc(1, RNIC_RWQE_SIZE(sges));
	if (!v->cur)
		return -ENOMEM;
	return rnic_sq_init(&v->sq, cap);
}

static void attach(struct irdma_qp *qp, struct rnic_verbs *v)
{
	bool one = v->attr.send_cq == v->attr.recv_cq;

	rnic_pd_hold(v->attr.pd);
	if (v->attr.srq)
		rnic_srq_hold(v->attr.srq);
	rnic_cq_attach(v->attr.send_cq, &v->user[0], qp, one ? RNIC_CQ_SEND | RNIC_CQ_RECV : RNIC_CQ_SEND);
	if (!one)
		rnic_cq_attach(v->attr.recv_cq, &v->user[1], qp, RNIC_CQ_RECV);
}

/**
 * rnic_qp_create_verbs() - a queue pair with queues, in IDLE
 * @iwdev: the device, of which @attr's objects are
 * @attr: what it is to have; .cap is rounded up on return
 * @out: the QP, with one reference, which rnic_qp_destroy() drops
 *
 * Return: 0, -EINVAL (limits), -ENOMEM, -ENOSPC.
 */
int rnic_qp_create_verbs(struct irdma_device *iwdev, struct rnic_qp_attr *attr, struct irdma_qp **out)
{
	struct rnic_verbs *v;
	int rc = check_caps(&attr->cap);

	if (rc)
		return rc;
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->attr = *attr;
	v->write_done = true;
	rc = make_queues(v);
	if (!rc)
		rc = rnic_qp_make(iwdev, v, out);
	if (rc) {
		rnic_verbs_free(v);
		return rc;
	}
	attr->cap = v->attr.cap;
	attach(*out, v);
	return 0;
}

/* rnic_qp_destroy() has flushed it: nothing is pushed any more. What it used may be destroyed by others as soon as it is given back. */
void rnic_qp_forget(struct irdma_qp *qp)
{
	struct rnic_verbs *v = rnic_qp_of(qp)->v;

	rnic_cq_detach(v->attr.send_cq, &v->user[0]);
	if (v->attr.recv_cq != v->attr.send_cq)
		rnic_cq_detach(v->attr.recv_cq, &v->user[1]);
	if (v->attr.srq)
		rnic_srq_put(v->attr.srq);
	rnic_pd_put(v->attr.pd);
}

/* Called with rx_lock or qp->lock held: then rnic_qp_destroy() is not over. */
void rnic_qp_async(struct irdma_qp *qp, enum ibv_event_type type)
{
	const struct rnic_verbs *v = rnic_qp_of(qp)->v;
	void (*async)(void *ctx, enum ibv_event_type t) = v ? v->attr.async : NULL;

	if (async)
		async(v->attr.ctx, type);
}

/**
 * rnic_qp_set_access() - which requests of the peer this QP serves
 * @qp: the QP
 * @access: IBV_ACCESS_REMOTE_WRITE, _READ, _ATOMIC; a region must allow it, too
 */
void rnic_qp_set_access(struct irdma_qp *qp, int access)
{
	__atomic_store_n(&rnic_qp_of(qp)->access, access, __ATOMIC_RELAXED);
}

/* ---- posting; qp->lock held ---- */

/* Behind those that were posted before: in the ring while there are any, else at once. */
static int post_late(struct rnic_qp *q, const struct ibv_send_wr *wr)
{
	struct rnic_sq *sq = &q->v->sq;
	struct rnic_swqe *w = rnic_sq_at(sq, sq->tail);
	int rc = rnic_sq_post(q, wr);

	if (rc)
		return rc;
	w->status = IBV_WC_WR_FLUSH_ERR;
	if (sq->tail - sq->head == 1) {
		sq->next = sq->head = sq->tail;
		rnic_sq_complete(q, w, IBV_WC_WR_FLUSH_ERR);
	}
	return 0;
}

static int post_chain(struct rnic_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	bool late = q->qp.state != RNIC_QP_RTS;
	int rc;

	for (; wr; wr = wr->next) {
		rc = late ? post_late(q, wr) : rnic_sq_post(q, wr);
		if (rc) {
			*bad = wr;
			return rc;
		}
	}
	return 0;
}

/**
 * rnic_post_send() - work requests into the send queue
 * @qp: the QP
 * @wr: a chain of them; inline data is copied, SGEs must stay until the completion
 * @bad: set on failure: the first one that was not posted
 *
 * If nothing is queued ahead, they are sent in the caller's thread, at once but for a busy poller's small ones (qp_poll.c).
 *
 * Return: 0; -EINVAL (opcode, flags, number of SGEs, inline too long, state before RTS), -EOPNOTSUPP (Send with Immediate), -ENOMEM (full).
 */
int rnic_post_send(struct irdma_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	int rc;

	*bad = wr;
	if (!q->v)
		return -EINVAL;
	mutex_lock(&qp->lock);
	if (qp->state == RNIC_QP_IDLE) {
		rc = -EINVAL;
	} else {
		rc = post_chain(q, wr, bad);
		if (!q->tx.stuck && !(rc == 0 && !wr->next && rnic_hold_back(q)))
			rnic_tx_run(qp);
		if (unlikely(q->todo))
			rnic_qp_kick(qp);
	}
	mutex_unlock(&qp->lock);
	return rc;
}

/**
 * rnic_post_recv() - work requests into the receive queue
 * @qp: the QP, in any state, without SRQ
 * @wr: a chain of them
 * @bad: set on failure: the first one that was not posted
 *
 * Return: 0, -EINVAL (too many SGEs, SRQ), -ENOMEM (full).
 */
int rnic_post_recv(struct irdma_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	int rc;

	*bad = wr;
	if (!q->v || q->v->attr.srq)
		return -EINVAL;
	rc = rnic_rq_post(&q->v->rq, wr, bad);
	if (unlikely(rx_is_over(q))) { /* the flush was over, or saw them: once more does no harm */
		rnic_rx_lock(q);
		rnic_rx_flush(q);
		rnic_rx_unlock(q);
	}
	return rc;
}

/* ---- how it is ---- */

void rnic_qp_add_stats(struct irdma_qp *qp, struct rnic_qp_stats *sum)
{
	const struct rnic_qp *q = rnic_qp_of(qp);

	sum->tx_bytes += qp->tx_bytes;
	sum->rx_bytes += qp->rx_bytes;
	sum->tx_fpdus += qp->tx_fpdus;
	sum->rx_fpdus += qp->rx_fpdus;
	for (size_t i = 0; i < RDMAP_OPCODES; i++) {
		sum->tx_msgs[i] += q->tx_msgs[i];
		sum->rx_msgs[i] += q->rx_msgs[i];
	}
	sum->terminates_sent += q->term_sent;
	sum->terminates_received += q->term_received;
	sum->completions_in_error += q->tx_failed + q->rx_failed;
}

static_assert(sizeof(struct rnic_qp_stats) % sizeof(u64) == 0, "nothing but counters");

void rnic_stats_move(struct rnic_qp_stats *sum, const struct rnic_qp_stats *part, bool back)
{
	u64 *to = (u64 *)sum;
	const u64 *from = (const u64 *)part;
	const size_t n = sizeof(*sum) / sizeof(*to);

	if (back)
		for (size_t i = 0; i < n; i++)
			to[i] -= from[i];
	else
		for (size_t i = 0; i < n; i++)
			to[i] += from[i];
}

void rnic_qp_count(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	rnic_rx_lock(q);
	mutex_lock(&qp->lock);
	rnic_qp_add_stats(qp, &q->v->counted);
	mutex_unlock(&qp->lock);
	rnic_rx_unlock(q);
}

/**
 * rnic_qp_query() - state and counters of a QP
 * @qp: the QP
 * @out: filled in
 */
void rnic_qp_query(struct irdma_qp *qp, struct rnic_qp_info *out)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	memset(out, 0, sizeof(*out));
	rnic_rx_lock(q);
	mutex_lock(&qp->lock);
	out->state = qp->state;
	out->last_ae = qp->last_ae;
	out->term = qp->term;
	out->term_sent = q->term_sent;
	out->term_received = q->term_received;
	out->iw = qp->iw;
	if (q->v) {
		out->cap = q->v->attr.cap;
		out->sq_used = q->v->sq.tail - q->v->sq.head;
		out->rq_used = rnic_rq_used(&q->v->rq);
	}
	rnic_qp_add_stats(qp, &out->stats);
	mutex_unlock(&qp->lock);
	rnic_rx_unlock(q);
}

struct qp_list {
	struct irdma_qp **qp;
	size_t n, size;
};

static bool hold_one(struct hash_node *n, void *arg)
{
	struct qp_list *l = arg;

	l->qp[l->n] = container_of(n, struct irdma_qp, hn);
	rnic_qp_hold(l->qp[l->n++]);
	return l->n < l->size;
}

/* Device's lock held. */
static void hold_all(struct irdma_device *iwdev, struct qp_list *l)
{
	l->size = iwdev->qps.count;
	l->qp = calloc(l->size + 1, sizeof(*l->qp));
	if (l->qp && l->size)
		hash_walk(&iwdev->qps, hold_one, l);
}

static bool is_closing(struct irdma_qp *qp)
{
	const struct rnic_tx *tx = &rnic_qp_of(qp)->tx;
	bool closing;

	mutex_lock(&qp->lock);
	closing = qp->stream && qp->state != RNIC_QP_ERROR && tx->fin && !tx->fin_sent;
	mutex_unlock(&qp->lock);
	return closing;
}

/**
 * rnic_device_is_closing() - do streams still have to be given something that was posted before their end?
 * @iwdev: the device
 *
 * For a program that has disconnected and ends.
 *
 * Return: true if a QP's FIN waits for its send queue.
 */
bool rnic_device_is_closing(struct irdma_device *iwdev)
{
	struct qp_list l = { 0 };
	bool closing = false;

	mutex_lock(&iwdev->lock);
	hold_all(iwdev, &l);
	mutex_unlock(&iwdev->lock);
	for (size_t i = 0; i < l.n; i++) {
		closing |= is_closing(l.qp[i]);
		rnic_qp_put(l.qp[i]);
	}
	free(l.qp);
	return closing;
}

static void add_and_put(struct irdma_qp *qp, struct rnic_qp_stats *sum)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	rnic_rx_lock(q);
	mutex_lock(&qp->lock);
	rnic_qp_add_stats(qp, sum);
	mutex_unlock(&qp->lock);
	rnic_rx_unlock(q);
	rnic_qp_put(qp);
}

/**
 * rnic_device_get_stats() - what a NIC has done
 * @iwdev: the device
 * @out: sums of all QPs that it has and had; QPs that are made or freed meanwhile may be missing
 */
void rnic_device_get_stats(struct irdma_device *iwdev, struct rnic_device_stats *out)
{
	struct rnic_device *d = rnic_device_of(iwdev);
	struct qp_list l = { 0 };

	mutex_lock(&iwdev->lock);
	out->qp = d->gone;
	out->qps_created = d->made;
	out->qps_now = iwdev->qps.count;
	out->connections = __atomic_load_n(&d->connections, __ATOMIC_RELAXED);
	hold_all(iwdev, &l);
	mutex_unlock(&iwdev->lock);
	for (size_t i = 0; i < l.n; i++)
		add_and_put(l.qp[i], &out->qp);
	free(l.qp);
}
