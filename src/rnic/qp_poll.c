/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A program that polls moves its data itself.
 *
 * rnic_cq_poll() on an empty CQ comes here, and reads the streams of the CQ's QPs, some at a time, in turn; and sends on what a stream did not take.
 * That needs no other thread, so the NIC's should not be woken for it either.
 *
 * Lease. A QP whose CQ a program polls often (LEASE_POLLS times within LEASE_NS) is leased to it: its stream goes quiet to the NIC thread. Every LEASE_NS the loop looks
 * whether its stream still is read, and ends the lease if not; arming the CQ, which a program does before it sleeps, ends it at once. The end of a lease makes the port report
 * whatever is ready. Ports without a thread have no leases.
 *
 * Holding back. A system call for each small message is most of its cost. The first post after a poll is sent at once; those that follow, while the program does not
 * poll, wait for each other: they are sent when HOLD_WRS are there, when the program polls or arms one of the QP's CQs, disconnects or destroys the QP, forks or ends, or by the next look of the loop. So who posts one
 * message and polls for its answer never waits, and who posts many pays for a few system calls. Only leased QPs hold back, so that the loop looks. Lists
 * of work requests go out at once: there the program has gathered itself.
 *
 * Locks: rnic_cq.users_lock keeps the QPs; then each QP's own, tried only. The list of leases has a lock that is a leaf, and is not on the path of data.
 */
#include "rnic/rnic_internal.h"

#define POLL_QPS 8u      /* QPs per call */
#define LEASE_QPS 8u     /* a CQ with more of them is not read often enough */
#define LEASE_POLLS 16u
#define LEASE_NS NSEC_PER_MSEC
#define STUCK_EVERY 8u   /* polls: a stream that was full has room for more than a few bytes then */
#define HOLD_WRS 32u     /* not more than these wait, */
#define HOLD_BYTES 1024u /* and none that is larger */

static u32 polls_of(const struct rnic_cq *cq)
{
	return __atomic_load_n(&cq->polls, __ATOMIC_RELAXED);
}

/* ---- leases ---- */

static bool is_leased(const struct rnic_qp *q)
{
	return __atomic_load_n(&q->leased, __ATOMIC_RELAXED);
}

static bool is_held(const struct rnic_qp *q)
{
	return __atomic_load_n(&q->tx.held, __ATOMIC_RELAXED);
}

/* qp->lock held; the list holds the QP. */
static void lease_begin(struct rnic_qp *q)
{
	struct rnic_device *d = rnic_device_of(q->qp.iwdev);

	mutex_lock(&d->lease_lock);
	__atomic_store_n(&q->leased, true, __ATOMIC_RELAXED);
	q->lease_polls = q->polls;
	TAILQ_INSERT_TAIL(&d->leases, q, lease);
	if (__atomic_fetch_add(&d->lease_count, 1, __ATOMIC_RELAXED) == 0)
		mod_timer(&d->lease_timer, loop_monotonic_ns() + LEASE_NS);
	mutex_unlock(&d->lease_lock);
	rnic_qp_hold(&q->qp);
	q->qp.iwdev->port->ops->stream_quiet(q->qp.stream, true);
}

/* Give the list's reference up, too; the caller has another one. */
void rnic_lease_end(struct irdma_qp *qp)
{
	struct rnic_device *d = rnic_device_of(qp->iwdev);
	struct rnic_qp *q = rnic_qp_of(qp);

	if (likely(!is_leased(q)))
		return;
	mutex_lock(&d->lease_lock);
	__atomic_store_n(&q->leased, false, __ATOMIC_RELAXED);
	TAILQ_REMOVE(&d->leases, q, lease);
	__atomic_fetch_sub(&d->lease_count, 1, __ATOMIC_RELAXED);
	mutex_unlock(&d->lease_lock);
	qp->iwdev->port->ops->stream_quiet(qp->stream, false);
	rnic_qp_put(qp);
}

/* qp->lock held. */
void rnic_send_held(struct rnic_qp *q)
{
	if (!q->tx.held)
		return;
	rnic_tx_run(&q->qp);
	if (q->todo)
		rnic_qp_kick(&q->qp);
}

/* lease_lock held, and given up meanwhile. */
static void look_at(struct rnic_device *d, struct rnic_qp *q, bool unused)
{
	rnic_qp_hold(&q->qp);
	mutex_unlock(&d->lease_lock);
	mutex_lock(&q->qp.lock);
	if (unused)
		rnic_lease_end(&q->qp);
	rnic_send_held(q);
	mutex_unlock(&q->qp.lock);
	rnic_qp_put(&q->qp);
	mutex_lock(&d->lease_lock);
}

/* lease_lock held. The list may change while a QP is looked at; each that is on it all the time gets its turn. */
static void look_at_all(struct rnic_device *d)
{
	struct rnic_qp *q;

	for (u32 n = d->lease_count; n && (q = TAILQ_FIRST(&d->leases)); n--) {
		u32 polls = __atomic_load_n(&q->polls, __ATOMIC_RELAXED);
		bool unused = polls == q->lease_polls;

		q->lease_polls = polls;
		TAILQ_REMOVE(&d->leases, q, lease);
		TAILQ_INSERT_TAIL(&d->leases, q, lease);
		if (unused || is_held(q))
			look_at(d, q, unused);
	}
}

/**
 * rnic_device_send_held() - send what busy pollers' QPs hold back
 * @iwdev: the NIC
 *
 * For a program that ends and will not poll any more, or forks; any thread.
 */
void rnic_device_send_held(struct irdma_device *iwdev)
{
	struct rnic_device *d = rnic_device_of(iwdev);

	mutex_lock(&d->lease_lock);
	look_at_all(d);
	mutex_unlock(&d->lease_lock);
}

static void lease_tick(struct timer_list *t)
{
	struct rnic_device *d = container_of(t, struct rnic_device, lease_timer);

	mutex_lock(&d->lease_lock);
	look_at_all(d);
	if (d->lease_count)
		mod_timer(t, loop_monotonic_ns() + LEASE_NS);
	mutex_unlock(&d->lease_lock);
}

void rnic_lease_init(struct rnic_device *d)
{
	TAILQ_INIT(&d->leases);
	timer_setup(&d->lease_timer, d->dev.loop, lease_tick);
}

void rnic_lease_destroy(struct rnic_device *d)
{
	assert(TAILQ_EMPTY(&d->leases));
	timer_del(&d->lease_timer);
}

/* Called with rx_lock held. Enough polls, soon after each other? */
static bool is_polled_often(const struct rnic_cq *cq, struct rnic_qp *q)
{
	u32 polls = polls_of(cq);
	u64 then = q->poll_run_ns;

	if (polls - q->poll_run < LEASE_POLLS)
		return false;
	q->poll_run = polls;
	q->poll_run_ns = loop_monotonic_ns();
	return q->poll_run_ns - then < LEASE_NS;
}

static void consider_lease(struct rnic_cq *cq, struct rnic_qp *q)
{
	struct irdma_qp *qp = &q->qp;

	if (is_leased(q) || !qp->iwdev->port->ops->stream_quiet || cq->user_count > LEASE_QPS || rnic_cq_is_armed(cq) || !is_polled_often(cq, q))
		return;
	mutex_lock(&qp->lock);
	if (qp->stream && qp->state == RNIC_QP_RTS && !is_leased(q))
		lease_begin(q);
	mutex_unlock(&qp->lock);
}

/* ---- holding back ---- */

static void set_held(struct rnic_qp *q)
{
	struct rnic_verbs *v = q->v;

	__atomic_store_n(&q->tx.held, true, __ATOMIC_RELAXED);
	__atomic_store_n(&v->attr.send_cq->held, true, __ATOMIC_RELEASE);
	__atomic_store_n(&v->attr.recv_cq->held, true, __ATOMIC_RELEASE);
}

bool rnic_hold_back(struct rnic_qp *q)
{
	const struct rnic_verbs *v = q->v;
	const struct rnic_sq *sq = &v->sq;
	u32 polls;

	if (likely(!is_leased(q)))
		return false;
	polls = polls_of(v->attr.send_cq) + polls_of(v->attr.recv_cq);
	if (polls != q->tx.polls) {
		q->tx.polls = polls;
		return false;
	}
	if (sq->tail - sq->next >= HOLD_WRS || rnic_sq_at(sq, sq->tail - 1)->length > HOLD_BYTES)
		return false;
	set_held(q);
	return true;
}

/* ---- polling ---- */

static void send_on(struct rnic_qp *q)
{
	struct irdma_qp *qp = &q->qp;

	if (!mutex_trylock(&qp->lock))
		return;
	rnic_tx_run(qp);
	if (q->todo)
		rnic_qp_kick(qp);
	mutex_unlock(&qp->lock);
}

static void poll_qp(struct rnic_cq *cq, struct rnic_qp *q)
{
	enum rnic_qp_state s = rnic_qp_state(&q->qp);

	if (s != RNIC_QP_RTS && s != RNIC_QP_CLOSING)
		return;
	if (rnic_rx_trylock(q)) {
		rnic_rx_poll(q);
		__atomic_store_n(&q->polls, q->polls + 1, __ATOMIC_RELAXED);
		consider_lease(cq, q);
		rnic_rx_unlock(q);
	}
	if (__atomic_load_n(&q->tx.stuck, __ATOMIC_RELAXED) && q->polls % STUCK_EVERY == 0)
		send_on(q);
}

/* users_lock held: the CQ was found empty. */
void rnic_qp_poll_cq(struct rnic_cq *cq)
{
	for (u32 n = min(cq->user_count, POLL_QPS); n; n--) {
		struct rnic_cq_user *u = TAILQ_FIRST(&cq->users);

		if (cq->user_count > 1) {
			TAILQ_REMOVE(&cq->users, u, entry);
			TAILQ_INSERT_TAIL(&cq->users, u, entry);
		}
		poll_qp(cq, rnic_qp_of(u->qp));
		if (!rnic_cq_is_empty(cq))
			return;
	}
}

/* users_lock held. */
void rnic_qp_send_held(struct rnic_cq *cq)
{
	struct rnic_cq_user *u;

	TAILQ_FOREACH(u, &cq->users, entry) {
		if (!is_held(rnic_qp_of(u->qp)))
			continue;
		mutex_lock(&u->qp->lock);
		rnic_send_held(rnic_qp_of(u->qp));
		mutex_unlock(&u->qp->lock);
	}
}

/* users_lock held: the program is about to sleep. */
void rnic_qp_arm_cq(struct rnic_cq *cq)
{
	struct rnic_cq_user *u;

	if (!__atomic_load_n(&rnic_device_of(cq->iwdev)->lease_count, __ATOMIC_RELAXED))
		return;
	TAILQ_FOREACH(u, &cq->users, entry) {
		if (!is_leased(rnic_qp_of(u->qp)))
			continue;
		mutex_lock(&u->qp->lock);
		rnic_lease_end(u->qp);
		rnic_send_held(rnic_qp_of(u->qp));
		mutex_unlock(&u->qp->lock);
	}
}
