// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: completion queues. Polling goes straight to the NIC; a completion that a queue was armed for puts the queue into its channel.
 */
#include <stdlib.h>
#include "shim/verbs_internal.h"

int shim_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	SHIM_UNCANCELLED;

	return rnic_cq_poll(to_cq(cq)->rnic, n, wc);
}

int shim_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	SHIM_UNCANCELLED;

	return -rnic_cq_arm(to_cq(cq)->rnic, solicited_only);
}

/* ---- from the NIC, with its locks held ---- */

static void completed(void *arg)
{
	struct shim_cq *cq = arg;
	struct shim_channel *ch;

	if (!cq->ex.channel)
		return;
	ch = to_channel(cq->ex.channel);
	pthread_mutex_lock(&ch->lock);
	if (!cq->pending++)
		TAILQ_INSERT_TAIL(&ch->ready, cq, ready);
	shim_evfd_post(ch->ch.fd);
	pthread_mutex_unlock(&ch->lock);
}

static void async(void *arg, enum ibv_event_type type)
{
	struct shim_cq *cq = arg;

	shim_event_post(to_ctx(cq->ex.context), type, &cq->async);
}

/* ---- create ---- */

static void channel_users(struct ibv_comp_channel *channel, int n)
{
	if (!channel)
		return;
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt += n;
	pthread_mutex_unlock(&channel->context->mutex);
}

static bool bad_attr(const struct ibv_context *context, const struct ibv_cq_init_attr_ex *a)
{
	return !a->cqe || a->cqe > RNIC_MAX_CQE || a->comp_vector >= (u32)context->num_comp_vectors || (a->channel && a->channel->context != context);
}

static struct shim_cq *cq_new(struct ibv_context *context, const struct ibv_cq_init_attr_ex *a)
{
	const u64 stamps = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	struct shim_cq *cq = calloc(1, sizeof(*cq));
	struct rnic_cq_attr attr = {
		.cqe = (int)a->cqe, .timestamps = a->wc_flags & stamps, .ignore_overrun = a->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
		.comp = completed, .async = async, .ctx = cq,
	};
	int err = cq ? rnic_cq_create(to_ctx(context)->iwdev, &attr, &cq->rnic) : -ENOMEM;

	if (err) {
		free(cq);
		return shim_null(err);
	}
	cq->async.object = cq;
	cq->ex.context = context;
	cq->ex.channel = a->channel;
	cq->ex.cq_context = a->cq_context;
	cq->ex.handle = shim_new_handle();
	cq->ex.cqe = rnic_cq_size(cq->rnic);
	pthread_mutex_init(&cq->ex.mutex, NULL);
	pthread_cond_init(&cq->ex.cond, NULL);
	pthread_mutex_init(&cq->poll_lock, NULL);
	channel_users(a->channel, 1);
	shim_ctx_get(to_ctx(context));
	return cq;
}

SHIM_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int comp_vector)
{
	SHIM_UNCANCELLED;
	struct ibv_cq_init_attr_ex attr = { .cqe = cqe < 0 ? 0 : (u32)cqe, .cq_context = cq_context, .channel = channel, .comp_vector = (u32)comp_vector };
	struct shim_cq *cq;

	if (bad_attr(context, &attr))
		return shim_null(-EINVAL);
	cq = cq_new(context, &attr);
	return cq ? ibv_cq_ex_to_cq(&cq->ex) : NULL;
}

static int check_ex(struct ibv_context *context, const struct ibv_cq_init_attr_ex *a)
{
	const u64 flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

	if (a->comp_mask & ~(u32)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return -EINVAL;
	if (a->wc_flags & ~flags)
		return -EOPNOTSUPP; /* VLANs, flow tags, tag matching */
	if (a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && a->flags & ~(u32)(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
		return -EINVAL;
	if (a->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD && (!a->parent_domain || !to_pd(a->parent_domain)->parent))
		return -EINVAL;
	return bad_attr(context, a) ? -EINVAL : 0;
}

struct ibv_cq_ex *shim_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	SHIM_UNCANCELLED;
	struct ibv_cq_init_attr_ex a = *attr;
	int err = check_ex(context, attr);
	struct shim_cq *cq;

	if (err)
		return shim_null(err);
	if (!(a.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS))
		a.flags = 0;
	cq = cq_new(context, &a);
	if (!cq)
		return NULL;
	cq->single_threaded = a.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	if (a.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		cq->domain = to_pd(a.parent_domain);
		shim_pd_get(&cq->domain->pd);
	}
	shim_cq_ex_setup(cq, a.wc_flags);
	return &cq->ex;
}

/* ---- resize, destroy ---- */

/* One at a time: .cqe is what the last one made it. */
SHIM_EXPORT int ibv_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	SHIM_UNCANCELLED;
	struct shim_cq *cq = to_cq(ibcq);
	int err;

	pthread_mutex_lock(&ibcq->mutex);
	err = rnic_cq_resize(cq->rnic, cqe);
	if (!err)
		cq->ex.cqe = rnic_cq_size(cq->rnic);
	pthread_mutex_unlock(&ibcq->mutex);
	return -err;
}

/* Nothing comes from the NIC any more; what is in the channel and was not read goes. */
static void leave_channel(struct shim_cq *cq)
{
	struct shim_channel *ch;

	if (!cq->ex.channel)
		return;
	ch = to_channel(cq->ex.channel);
	pthread_mutex_lock(&ch->lock);
	if (cq->pending)
		TAILQ_REMOVE(&ch->ready, cq, ready);
	for (; cq->pending; cq->pending--)
		shim_evfd_drop(ch->ch.fd);
	pthread_mutex_unlock(&ch->lock);
}

SHIM_EXPORT int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	SHIM_UNCANCELLED;
	struct shim_cq *cq = to_cq(ibcq);
	struct shim_ctx *ctx = to_ctx(ibcq->context);
	int err = rnic_cq_destroy(cq->rnic);

	if (err)
		return -err;
	leave_channel(cq);
	shim_event_purge(ctx, &cq->async);
	shim_wait_acks(&ibcq->mutex, &ibcq->cond, &ibcq->comp_events_completed, cq->comp_delivered);
	shim_wait_acks(&ibcq->mutex, &ibcq->cond, &ibcq->async_events_completed, cq->async.delivered);
	channel_users(cq->ex.channel, -1);
	if (cq->domain)
		shim_pd_put(&cq->domain->pd);
	pthread_mutex_destroy(&cq->poll_lock);
	pthread_cond_destroy(&cq->ex.cond);
	pthread_mutex_destroy(&cq->ex.mutex);
	free(cq);
	shim_ctx_put(ctx);
	return 0;
}
