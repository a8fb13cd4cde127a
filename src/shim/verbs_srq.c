// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* shim: shared receive queues. */
#include <stdlib.h>
#include "shim/verbs_internal.h"

int shim_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	SHIM_UNCANCELLED;

	return -rnic_srq_post(to_srq(srq)->rnic, wr, bad);
}

static void async(void *arg, enum ibv_event_type type)
{
	struct shim_srq *srq = arg;

	shim_event_post(to_ctx(srq->srq.context), type, &srq->async);
}

static bool bad_size(const struct ibv_srq_attr *a)
{
	return !a->max_wr || a->max_wr > RNIC_MAX_WR || a->max_sge > RNIC_MAX_SGE;
}

static int srq_create(struct shim_srq *srq, struct ibv_pd *pd, struct ibv_srq_attr *a)
{
	struct rnic_srq_attr attr = { .max_wr = a->max_wr, .max_sge = a->max_sge, .async = async, .ctx = srq };
	int err = rnic_srq_create(to_pd(pd)->rnic, &attr, &srq->rnic);

	if (err)
		return err;
	a->max_wr = attr.max_wr;
	a->max_sge = attr.max_sge;
	return 0;
}

SHIM_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	SHIM_UNCANCELLED;
	struct shim_srq *srq;
	int err;

	if (bad_size(&attr->attr))
		return shim_null(-EINVAL);
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return shim_null(-ENOMEM);
	srq->srq.context = pd->context; /* before the NIC can call async() */
	srq->async.object = srq;
	err = srq_create(srq, pd, &attr->attr);
	if (err) {
		free(srq);
		return shim_null(err);
	}
	srq->srq.srq_context = attr->srq_context;
	srq->srq.pd = pd;
	srq->srq.handle = shim_new_handle();
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	shim_pd_get(pd);
	shim_ctx_get(to_ctx(pd->context));
	return &srq->srq;
}

/* What is neither basic nor has a domain: the header sends the others to ibv_create_srq(). */
struct ibv_srq *shim_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	SHIM_UNCANCELLED;
	const u32 supported = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;

	if (attr->comp_mask & ~(u32)(IBV_SRQ_INIT_ATTR_RESERVED - 1))
		return shim_null(-EINVAL);
	if (attr->comp_mask & ~supported || (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type != IBV_SRQT_BASIC))
		return shim_null(-EOPNOTSUPP); /* XRC, tag matching */
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD))
		return shim_null(-EINVAL);
	return ibv_create_srq(attr->pd, (struct ibv_srq_init_attr *)attr);
}

SHIM_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	SHIM_UNCANCELLED;

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	return -rnic_srq_modify(to_srq(srq)->rnic, attr, mask);
}

SHIM_EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	SHIM_UNCANCELLED;

	rnic_srq_query(to_srq(srq)->rnic, attr);
	return 0;
}

SHIM_EXPORT int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	SHIM_UNCANCELLED;
	struct shim_srq *srq = to_srq(ibsrq);
	struct shim_ctx *ctx = to_ctx(ibsrq->context);
	int err = rnic_srq_destroy(srq->rnic);

	if (err)
		return -err;
	shim_event_purge(ctx, &srq->async);
	shim_wait_acks(&ibsrq->mutex, &ibsrq->cond, &ibsrq->events_completed, srq->async.delivered);
	shim_pd_put(ibsrq->pd);
	pthread_cond_destroy(&ibsrq->cond);
	pthread_mutex_destroy(&ibsrq->mutex);
	free(srq);
	shim_ctx_put(ctx);
	return 0;
}
