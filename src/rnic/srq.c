/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Shared receive queues: a receive queue (rq.c) from which many QPs take, each a request with the first segment of a message, and its limit
 * event.
 */
#include <stdlib.h>
#include "rnic/rnic_internal.h"

/**
 * rnic_srq_create() - a shared receive queue
 * @pd: protection domain of the regions in its work requests
 * @attr: sizes; on return what was given, at least that. The limit means nothing here (ibv_create_srq(3)), and is 0 on return
 * @out: the queue
 *
 * Return: 0; -EINVAL (max_wr not in 1..RNIC_MAX_WR, max_sge above RNIC_MAX_SGE); -ENOMEM.
 */
int rnic_srq_create(struct rnic_pd *pd, struct rnic_srq_attr *attr, struct rnic_srq **out)
{
	struct rnic_srq *srq;
	int rc;

	if (!attr->max_wr)
		return -EINVAL;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	rc = rnic_rq_init(&srq->rq, attr->max_wr, attr->max_sge);
	if (rc) {
		free(srq);
		return rc;
	}
	srq->pd = pd;
	srq->async = attr->async;
	srq->ctx = attr->ctx;
	rnic_pd_hold(pd);
	attr->max_wr = srq->rq.size;
	attr->limit = 0;
	*out = srq;
	return 0;
}

/**
 * rnic_srq_destroy() - free a shared receive queue, and the work requests in it
 * @srq: the queue
 *
 * Return: 0, or -EBUSY while QPs use it.
 */
int rnic_srq_destroy(struct rnic_srq *srq)
{
	if (__atomic_load_n(&srq->users, __ATOMIC_ACQUIRE))
		return -EBUSY;
	rnic_pd_put(srq->pd);
	rnic_rq_destroy(&srq->rq);
	free(srq);
	return 0;
}

static int set_limit(struct rnic_rq *rq, u32 limit)
{
	int rc = 0;

	mutex_lock(&rq->lock);
	if (limit > rq->size)
		rc = -EINVAL;
	else
		rq->limit = limit;
	mutex_unlock(&rq->lock);
	return rc;
}

/**
 * rnic_srq_modify() - resize, or arm the limit
 * @srq: the queue
 * @attr: max_wr, srq_limit: the event comes, once, when a work request is taken and fewer than so many are left; 0: never
 * @mask: IBV_SRQ_MAX_WR, IBV_SRQ_LIMIT: which of them count. Both: the limit is of the new size, and armed only if resizing worked
 *
 * Return: 0; -EINVAL (mask; out of range; more are posted than max_wr; a limit above max_wr); -ENOMEM.
 */
int rnic_srq_modify(struct rnic_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	int rc = 0;

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return -EINVAL;
	if (mask == (IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) && attr->srq_limit > attr->max_wr)
		return -EINVAL;
	if (mask & IBV_SRQ_MAX_WR)
		rc = rnic_rq_resize(&srq->rq, attr->max_wr);
	if (!rc && (mask & IBV_SRQ_LIMIT))
		rc = set_limit(&srq->rq, attr->srq_limit);
	return rc;
}

/**
 * rnic_srq_query() - sizes, and the limit
 * @srq: the queue
 * @attr: filled; a limit of 0: not armed
 */
void rnic_srq_query(struct rnic_srq *srq, struct ibv_srq_attr *attr)
{
	mutex_lock(&srq->rq.lock);
	attr->max_wr = srq->rq.size;
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = srq->rq.limit;
	mutex_unlock(&srq->rq.lock);
}

/**
 * rnic_srq_post() - post receive work requests
 * @srq: the queue
 * @wr: a chain of them, copied
 * @bad: on failure, the first that was not posted
 *
 * From any thread.
 *
 * Return: 0; -EINVAL (too many SGEs); -ENOMEM (full).
 */
int rnic_srq_post(struct rnic_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return rnic_rq_post(&srq->rq, wr, bad);
}

bool rnic_srq_take(struct rnic_srq *srq, struct rnic_rwqe *out)
{
	bool crossed, have = rnic_rq_take(&srq->rq, out, &crossed);

	if (crossed && srq->async)
		srq->async(srq->ctx, IBV_EVENT_SRQ_LIMIT_REACHED);
	return have;
}
