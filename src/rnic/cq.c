/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Completion queues.
 *
 * A ring with one lock, under which a completion is copied in or out. Head and tail are also read without it, so that a program which polls
 * an empty queue takes no lock that those who complete need.
 *
 * Polling an empty queue reads the streams of the QPs that use it (qp_poll.c), in the program's thread; so does now and then polling one that never is empty. One
 * thread at a time does so for a queue; another one that polls meanwhile does not wait for it. Who polls in vain yields the processor now and then: where there are more
 * pollers than processors the one that has something to say gets it at once, and not with the scheduler's next tick (two on one processor: 50 times the messages).
 *
 * Overrun: a completion that finds no room is lost, and the program is told by IBV_EVENT_CQ_ERR, once. What is in the queue can still be
 * polled, then polling fails for good: a lost completion cannot be made up for. With ignore_overrun the oldest one is lost instead, silently.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "rnic/rnic_internal.h"

#define YIELD_EVERY 16 /* fruitless polls in a row: who is to send what is waited for may need this processor */
#define READ_EVERY 8 /* polls: then streams are read though there are completions, for else a busy sender would never read */

static u32 ring_size(int cqe)
{
	u32 size = 1;

	while (size < (u32)cqe)
		size *= 2;
	return size;
}

/* Not cleared: pages that no completion reaches are never made. */
static struct rnic_cqe *ring_new(u32 size)
{
	return malloc((size_t)size * sizeof(struct rnic_cqe));
}

/**
 * rnic_cq_create() - a completion queue
 * @iwdev: the device
 * @attr: size, at least; what is called
 * @out: the queue
 *
 * Return: 0; -EINVAL (size not in 1..RNIC_MAX_CQE); -ENOMEM.
 */
int rnic_cq_create(struct irdma_device *iwdev, const struct rnic_cq_attr *attr, struct rnic_cq **out)
{
	struct rnic_cq *cq;

	if (attr->cqe < 1 || attr->cqe > RNIC_MAX_CQE)
		return -EINVAL;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->size = ring_size(attr->cqe);
	cq->ring = ring_new(cq->size);
	if (!cq->ring) {
		free(cq);
		return -ENOMEM;
	}
	cq->iwdev = iwdev;
	cq->attr = *attr;
	TAILQ_INIT(&cq->users);
	count_up(&rnic_device_of(iwdev)->cqs);
	*out = cq;
	return 0;
}

static bool has_users(struct rnic_cq *cq)
{
	bool yes;

	mutex_lock(&cq->users_lock);
	yes = cq->user_count > 0;
	mutex_unlock(&cq->users_lock);
	return yes;
}

/**
 * rnic_cq_destroy() - free a completion queue, and the completions in it
 * @cq: the queue; no other call on it is going on
 *
 * Return: 0, or -EBUSY while QPs use it.
 */
int rnic_cq_destroy(struct rnic_cq *cq)
{
	if (has_users(cq))
		return -EBUSY;
	count_down(&rnic_device_of(cq->iwdev)->cqs);
	free(cq->ring);
	free(cq);
	return 0;
}

/* ---- the ring; cq->lock held ---- */

static u32 count(const struct rnic_cq *cq)
{
	return cq->tail - cq->head;
}

static struct rnic_cqe *slot(const struct rnic_cq *cq, u32 position)
{
	return &cq->ring[position & (cq->size - 1)];
}

/* Released, so that who sees without the lock that the queue is not empty also sees what happened before the completion. */
static void set_head(struct rnic_cq *cq, u32 head)
{
	__atomic_store_n(&cq->head, head, __ATOMIC_RELEASE);
}

static void set_tail(struct rnic_cq *cq, u32 tail)
{
	__atomic_store_n(&cq->tail, tail, __ATOMIC_RELEASE);
}

/**
 * rnic_cq_resize() - make room for more, or less
 * @cq: the queue; completions and their order stay
 * @cqe: completions, at least
 *
 * Return: 0; -EINVAL (not in 1..RNIC_MAX_CQE, or more are in it); -ENOMEM.
 */
int rnic_cq_resize(struct rnic_cq *cq, int cqe)
{
	struct rnic_cqe *ring, *old;
	u32 size, n, i;

	if (cqe < 1 || cqe > RNIC_MAX_CQE)
		return -EINVAL;
	size = ring_size(cqe);
	ring = ring_new(size);
	if (!ring)
		return -ENOMEM;
	mutex_lock(&cq->lock);
	old = cq->ring;
	n = count(cq);
	if (n > size) {
		mutex_unlock(&cq->lock);
		free(ring);
		return -EINVAL;
	}
	for (i = cq->head; i != cq->tail; i++)
		ring[i & (size - 1)] = *slot(cq, i);
	cq->ring = ring;
	cq->size = size;
	mutex_unlock(&cq->lock);
	free(old);
	return 0;
}

/**
 * rnic_cq_size() - how many completions fit
 * @cq: the queue, which is not being resized
 *
 * Return: their number.
 */
int rnic_cq_size(const struct rnic_cq *cq)
{
	return (int)cq->size;
}

/* ---- completing ---- */

static bool disarm_for(struct rnic_cq *cq, const struct rnic_cqe *cqe)
{
	if (cq->armed == RNIC_CQ_UNARMED)
		return false;
	if (cq->armed == RNIC_CQ_SOLICITED && !cqe->solicited && cqe->wc.status == IBV_WC_SUCCESS)
		return false;
	__atomic_store_n(&cq->armed, RNIC_CQ_UNARMED, __ATOMIC_RELEASE);
	return true;
}

/* True if there is. */
static bool make_room(struct rnic_cq *cq)
{
	if (likely(count(cq) < cq->size))
		return true;
	if (!cq->attr.ignore_overrun)
		return false;
	set_head(cq, cq->head + 1);
	return true;
}

enum push_result { PUSHED, OVERRUN_NOW, OVERRUN_BEFORE };

static enum push_result push_locked(struct rnic_cq *cq, const struct rnic_cqe *cqe, u64 now_ns, bool *notify)
{
	struct rnic_cqe *s;

	if (unlikely(cq->overrun))
		return OVERRUN_BEFORE;
	if (unlikely(!make_room(cq))) {
		__atomic_store_n(&cq->overrun, true, __ATOMIC_RELEASE);
		return OVERRUN_NOW;
	}
	s = slot(cq, cq->tail);
	*s = *cqe;
	s->timestamp_ns = now_ns;
	set_tail(cq, cq->tail + 1);
	*notify = disarm_for(cq, cqe);
	return PUSHED;
}

bool rnic_cq_push(struct rnic_cq *cq, const struct rnic_cqe *cqe)
{
	u64 now_ns = cq->attr.timestamps ? loop_monotonic_ns() : 0;
	enum push_result result;
	bool notify = false;

	mutex_lock(&cq->lock);
	result = push_locked(cq, cqe, now_ns, &notify);
	mutex_unlock(&cq->lock);
	if (notify && cq->attr.comp)
		cq->attr.comp(cq->attr.ctx);
	if (result == OVERRUN_NOW) {
		log_warn(ROOM, "%s: a completion queue of %u overran", cq->iwdev->name, cq->size);
		if (cq->attr.async)
			cq->attr.async(cq->attr.ctx, IBV_EVENT_CQ_ERR);
	}
	return result == PUSHED;
}

void rnic_cq_clean(struct rnic_cq *cq, u32 qp_num)
{
	u32 from, to;

	mutex_lock(&cq->lock);
	for (from = to = cq->head; from != cq->tail; from++) {
		if (slot(cq, from)->wc.qp_num == qp_num)
			continue;
		if (from != to)
			*slot(cq, to) = *slot(cq, from);
		to++;
	}
	set_tail(cq, to);
	mutex_unlock(&cq->lock);
}

/* ---- polling ---- */

/* One of @wc and @cqe is NULL. */
static int pop(struct rnic_cq *cq, int n, struct ibv_wc *wc, struct rnic_cqe *cqe)
{
	u32 i, have;

	mutex_lock(&cq->lock);
	have = min(count(cq), (u32)n);
	for (i = 0; i < have; i++) {
		if (wc)
			wc[i] = slot(cq, cq->head + i)->wc;
		else
			cqe[i] = *slot(cq, cq->head + i);
	}
	set_head(cq, cq->head + have);
	mutex_unlock(&cq->lock);
	return (int)have;
}

static bool is_held(const struct rnic_cq *cq)
{
	return __atomic_load_n(&cq->held, __ATOMIC_RELAXED);
}

/* Send what was held back for this poll, then read what came. */
static void serve_streams(struct rnic_cq *cq, bool read)
{
	if (!mutex_trylock(&cq->users_lock))
		return;
	if (is_held(cq)) {
		__atomic_store_n(&cq->held, false, __ATOMIC_RELAXED);
		rnic_qp_send_held(cq);
	}
	if (!TAILQ_EMPTY(&cq->users) && (read || rnic_cq_is_empty(cq)))
		rnic_qp_poll_cq(cq);
	mutex_unlock(&cq->users_lock);
}

/* Ports without a thread are stepped by who polls: nobody else has to run. */
static void note_outcome(struct rnic_cq *cq, bool fruitless)
{
	u32 n = fruitless ? __atomic_load_n(&cq->fruitless, __ATOMIC_RELAXED) + 1 : 0;

	__atomic_store_n(&cq->fruitless, n, __ATOMIC_RELAXED);
	if (n && n % YIELD_EVERY == 0 && cq->iwdev->port->ops->stream_quiet)
		sched_yield();
}

static int poll_any(struct rnic_cq *cq, int n, struct ibv_wc *wc, struct rnic_cqe *cqe)
{
	u32 polls = __atomic_load_n(&cq->polls, __ATOMIC_RELAXED) + 1;
	bool read = polls % READ_EVERY == 0;

	if (n < 0)
		return -EINVAL;
	__atomic_store_n(&cq->polls, polls, __ATOMIC_RELAXED); /* two that meet may count as one */
	if (n == 0)
		return 0;
	if (read || is_held(cq) || rnic_cq_is_empty(cq))
		serve_streams(cq, read);
	if (!rnic_cq_is_empty(cq))
		n = pop(cq, n, wc, cqe);
	else
		n = 0;
	note_outcome(cq, n == 0);
	return n || !__atomic_load_n(&cq->overrun, __ATOMIC_ACQUIRE) ? n : -EOVERFLOW;
}

/**
 * rnic_cq_poll() - take completions
 * @cq: the queue
 * @n: how many at most
 * @wc: room for as many
 *
 * From any thread, without any of the NIC's locks. Reads the streams of the queue's QPs if it is empty.
 *
 * Return: how many there were; -EOVERFLOW if there are none and never will be, because the queue overran; -EINVAL (@n < 0).
 */
int rnic_cq_poll(struct rnic_cq *cq, int n, struct ibv_wc *wc)
{
	return poll_any(cq, n, wc, NULL);
}

/**
 * rnic_cq_poll_ex() - take completions with their time stamps
 * @cq: the queue
 * @n: how many at most
 * @out: room for as many
 *
 * Return: as rnic_cq_poll().
 */
int rnic_cq_poll_ex(struct rnic_cq *cq, int n, struct rnic_cqe *out)
{
	return poll_any(cq, n, NULL, out);
}

/**
 * rnic_cq_arm() - ask for a call of comp()
 * @cq: the queue
 * @solicited_only: not at the next completion, but at the next one that the peer solicited or that is in error. An arming for
 *	any completion is not taken back by this
 *
 * Without any of the NIC's locks.
 *
 * Return: 0; -EOVERFLOW if the queue overran: nothing will come any more.
 */
int rnic_cq_arm(struct rnic_cq *cq, bool solicited_only)
{
	enum rnic_cq_armed wanted = solicited_only ? RNIC_CQ_SOLICITED : RNIC_CQ_ANY;

	if (__atomic_load_n(&cq->overrun, __ATOMIC_ACQUIRE))
		return -EOVERFLOW;
	mutex_lock(&cq->lock);
	__atomic_store_n(&cq->armed, max(cq->armed, wanted), __ATOMIC_RELEASE);
	mutex_unlock(&cq->lock);
	mutex_lock(&cq->users_lock);
	if (!TAILQ_EMPTY(&cq->users))
		rnic_qp_arm_cq(cq);
	mutex_unlock(&cq->users_lock);
	return 0;
}

/* ---- who uses it ---- */

void rnic_cq_attach(struct rnic_cq *cq, struct rnic_cq_user *user, struct irdma_qp *qp, u32 queues)
{
	user->qp = qp;
	user->queues = queues;
	mutex_lock(&cq->users_lock);
	TAILQ_INSERT_TAIL(&cq->users, user, entry);
	cq->user_count++;
	mutex_unlock(&cq->users_lock);
}

/* In one breath: once its last user has gone, another thread may destroy the queue. */
void rnic_cq_detach(struct rnic_cq *cq, struct rnic_cq_user *user)
{
	mutex_lock(&cq->users_lock);
	TAILQ_REMOVE(&cq->users, user, entry);
	rnic_cq_clean(cq, user->qp->qp_num);
	cq->user_count--;
	mutex_unlock(&cq->users_lock);
}
