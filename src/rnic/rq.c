/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Receive queues: rings of receive work requests, posted by the program's threads and taken, oldest first, by whoever receives for a QP.
 * Used by QPs that have a queue of their own, and by SRQs. A request is copied in, and copied out when it is taken: the ring's slot is free
 * at once, and what the receiver works on is its own.
 */
#include <stdlib.h>
#include <string.h>
#include "rnic/rnic_internal.h"

static u32 ring_size(u32 max_wr)
{
	u32 size = max_wr ? 1 : 0;

	while (size < max_wr)
		size *= 2;
	return size;
}

static struct rnic_rwqe *slot_in(u8 *ring, u32 size, u32 stride, u32 position)
{
	return (struct rnic_rwqe *)(ring + (size_t)(position & (size - 1)) * stride);
}

static struct rnic_rwqe *slot(const struct rnic_rq *rq, u32 position)
{
	return slot_in(rq->ring, rq->size, rq->stride, position);
}

static void copy(struct rnic_rwqe *to, const struct rnic_rwqe *from)
{
	memcpy(to, from, RNIC_RWQE_SIZE(from->num_sge));
}

int rnic_rq_init(struct rnic_rq *rq, u32 max_wr, u32 max_sge)
{
	if (max_wr > RNIC_MAX_WR || max_sge > RNIC_MAX_SGE)
		return -EINVAL;
	*rq = (struct rnic_rq){ .size = ring_size(max_wr), .max_sge = max_sge, .stride = (u32)RNIC_RWQE_SIZE(max_sge) };
	if (rq->size) {
		rq->ring = malloc((size_t)rq->size * rq->stride);
		if (!rq->ring)
			return -ENOMEM;
	}
	return 0;
}

void rnic_rq_destroy(struct rnic_rq *rq)
{
	free(rq->ring);
	rq->ring = NULL;
	rq->size = 0;
}

/* Called with rq->lock held; returns the ring that is to be freed. */
static u8 *move_to(struct rnic_rq *rq, u8 *ring, u32 size)
{
	u8 *old = rq->ring;

	for (u32 i = rq->head; i != rq->tail; i++)
		copy(slot_in(ring, size, rq->stride, i), slot(rq, i));
	rq->ring = ring;
	rq->size = size;
	return old;
}

int rnic_rq_resize(struct rnic_rq *rq, u32 max_wr)
{
	u32 size = ring_size(min(max_wr, RNIC_MAX_WR));
	int rc = -EINVAL;
	u8 *ring;

	if (!max_wr || max_wr > RNIC_MAX_WR)
		return -EINVAL;
	ring = malloc((size_t)size * rq->stride);
	if (!ring)
		return -ENOMEM;
	mutex_lock(&rq->lock);
	if (rq->tail - rq->head <= size && rq->limit <= size) {
		ring = move_to(rq, ring, size);
		rc = 0;
	}
	mutex_unlock(&rq->lock);
	free(ring);
	return rc;
}

/* ---- posting ---- */

static void fill(struct rnic_rwqe *wqe, const struct ibv_recv_wr *wr)
{
	wqe->wr_id = wr->wr_id;
	wqe->length = 0;
	wqe->num_sge = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		if (!wr->sg_list[i].length)
			continue;
		wqe->length += wr->sg_list[i].length;
		wqe->sge[wqe->num_sge++] = wr->sg_list[i];
	}
}

static int post_one(struct rnic_rq *rq, const struct ibv_recv_wr *wr)
{
	if (wr->num_sge < 0 || (u32)wr->num_sge > rq->max_sge)
		return -EINVAL;
	if (rq->tail - rq->head >= rq->size)
		return -ENOMEM;
	fill(slot(rq, rq->tail), wr);
	__atomic_store_n(&rq->tail, rq->tail + 1, __ATOMIC_RELEASE);
	return 0;
}

int rnic_rq_post(struct rnic_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int rc = 0;

	mutex_lock(&rq->lock);
	for (; wr; wr = wr->next) {
		rc = post_one(rq, wr);
		if (rc) {
			*bad = wr;
			break;
		}
	}
	mutex_unlock(&rq->lock);
	return rc;
}

/* ---- taking ---- */

/* The limit works once (ibv_modify_srq(3)). Called with rq->lock held, after a request was taken. */
static bool cross_limit(struct rnic_rq *rq)
{
	if (likely(rq->tail - rq->head >= rq->limit))
		return false;
	rq->limit = 0;
	return true;
}

bool rnic_rq_take(struct rnic_rq *rq, struct rnic_rwqe *out, bool *crossed)
{
	bool have;

	if (crossed)
		*crossed = false;
	mutex_lock(&rq->lock);
	have = rq->head != rq->tail;
	if (have) {
		copy(out, slot(rq, rq->head));
		__atomic_store_n(&rq->head, rq->head + 1, __ATOMIC_RELEASE);
		if (crossed)
			*crossed = cross_limit(rq);
	}
	mutex_unlock(&rq->lock);
	return have;
}

void rnic_rq_flush(struct rnic_rq *rq, struct rnic_rwqe *scratch, void (*flush)(void *ctx, const struct rnic_rwqe *wqe), void *ctx)
{
	while (rnic_rq_take(rq, scratch, NULL))
		flush(ctx, scratch);
}
