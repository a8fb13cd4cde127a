// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: events: descriptors that count, the queue behind async_fd, acknowledgements, and what fork() does to them.
 *
 * An eventfd in semaphore mode holds one token for each queued event. A reader takes a token first, then an event; whoever removes events
 * (an object is destroyed) takes their tokens back. A reader that finds no event for its token lost that race and waits again.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>
#include "shim/verbs_internal.h"

/* ---- descriptors ---- */

int shim_evfd_open(u64 count)
{
	int fd = eventfd((unsigned int)count, EFD_SEMAPHORE | EFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* The program's errno survives: this runs inside its posts and polls. */
void shim_evfd_post(int fd)
{
	int saved = errno;

	eventfd_write(fd, 1);
	errno = saved;
}

int shim_evfd_take(int fd)
{
	u64 one;

	return read(fd, &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

bool shim_evfd_drop(int fd)
{
	struct iovec iov;
	u64 one;

	iov.iov_base = &one;
	iov.iov_len = sizeof(one);
	if (preadv2(fd, &iov, 1, -1, RWF_NOWAIT) > 0)
		return true;
	log_debug("shim", "no token to take from descriptor %d", fd);
	return false;
}

void shim_evfd_renew(int fd, u64 count)
{
	int fresh = shim_evfd_open(count), cloexec = fcntl(fd, F_GETFD), flags = fcntl(fd, F_GETFL);

	if (fresh < 0 || cloexec < 0 || flags < 0) {
		log_warn("shim", "descriptor %d stays shared with the parent process", fd);
		if (fresh >= 0)
			real_close(fresh);
		return;
	}
	fcntl(fresh, F_SETFL, flags);
	dup3(fresh, fd, cloexec & FD_CLOEXEC ? O_CLOEXEC : 0);
	real_close(fresh);
}

/* ---- asynchronous events ---- */

/* ev_lock held. The source's own place; false: the program will be told of this type anyway. */
static bool use_own(struct shim_ctx *ctx, enum ibv_event_type type, struct shim_source *src)
{
	struct shim_event *e = &src->own;

	if (e->types & BIT(type))
		return false;
	e->source = src;
	if (!e->types)
		TAILQ_INSERT_TAIL(&ctx->events, e, entry);
	e->types |= BIT(type);
	return true;
}

static bool enqueue(struct shim_ctx *ctx, enum ibv_event_type type, struct shim_source *src)
{
	struct shim_event *e = calloc(1, sizeof(*e));

	if (!e)
		return use_own(ctx, type, src);
	e->source = src;
	e->type = type;
	TAILQ_INSERT_TAIL(&ctx->events, e, entry);
	return true;
}

void shim_event_post(struct shim_ctx *ctx, enum ibv_event_type type, struct shim_source *src)
{
	pthread_mutex_lock(&ctx->ev_lock);
	if (enqueue(ctx, type, src))
		shim_evfd_post(ctx->v.context.async_fd);
	pthread_mutex_unlock(&ctx->ev_lock);
}

void shim_event_device(const struct shim_device *dev, enum ibv_event_type type)
{
	struct shim_ctx *ctx;

	pthread_mutex_lock(&shim_ctxs_lock);
	LIST_FOREACH(ctx, &shim_ctxs, entry)
		if (ctx->dev == dev && !ctx->closed)
			shim_event_post(ctx, type, &ctx->async);
	pthread_mutex_unlock(&shim_ctxs_lock);
}

/* ev_lock held. One event of @e, which is freed or leaves the queue with its last one. */
static enum ibv_event_type take_one(struct shim_ctx *ctx, struct shim_event *e)
{
	enum ibv_event_type type = e->types ? (enum ibv_event_type)__builtin_ctz(e->types) : e->type;
	bool own = e->types;

	if (own)
		e->types &= e->types - 1;
	if (own && e->types)
		return type;
	TAILQ_REMOVE(&ctx->events, e, entry);
	if (!own)
		free(e);
	return type;
}

/* ev_lock held. */
static void drop(struct shim_ctx *ctx, struct shim_event *e)
{
	bool more;

	do {
		more = e->types & (e->types - 1);
		take_one(ctx, e);
		shim_evfd_drop(ctx->v.context.async_fd);
	} while (more);
}

void shim_event_purge(struct shim_ctx *ctx, const struct shim_source *src)
{
	struct shim_event *e, *next;

	pthread_mutex_lock(&ctx->ev_lock);
	for (e = TAILQ_FIRST(&ctx->events); e; e = next) {
		next = TAILQ_NEXT(e, entry);
		if (!src || e->source == src)
			drop(ctx, e);
	}
	pthread_mutex_unlock(&ctx->ev_lock);
}

/* False: somebody else had it. */
static bool event_pop(struct shim_ctx *ctx, struct ibv_async_event *out)
{
	struct shim_source *src;
	struct shim_event *e;

	pthread_mutex_lock(&ctx->ev_lock);
	e = TAILQ_FIRST(&ctx->events);
	if (e) {
		src = e->source;
		src->delivered++;
		if (src->object)
			out->element.qp = src->object; /* a union of pointers */
		else
			out->element.port_num = 1;
		out->event_type = take_one(ctx, e);
	}
	pthread_mutex_unlock(&ctx->ev_lock);
	return e;
}

SHIM_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	int err;

	do {
		err = shim_evfd_take(context->async_fd);
		if (err)
			return shim_minus_one(err);
	} while (!event_pop(to_ctx(context), event));
	return 0;
}

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, u32 *completed, u32 n)
{
	pthread_mutex_lock(mutex);
	*completed += n;
	pthread_cond_broadcast(cond);
	pthread_mutex_unlock(mutex);
}

SHIM_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = event->element.qp;
	struct ibv_srq *srq = event->element.srq;

	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		ack(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		ack(&qp->mutex, &qp->cond, &qp->events_completed, 1);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ack(&srq->mutex, &srq->cond, &srq->events_completed, 1);
		break;
	default: /* of the port or the device: nobody waits */
		break;
	}
}

void shim_wait_acks(pthread_mutex_t *mutex, pthread_cond_t *cond, const u32 *completed, u32 delivered)
{
	pthread_mutex_lock(mutex);
	while (*completed != delivered)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

/* ---- completion channels ---- */

SHIM_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	SHIM_UNCANCELLED;
	struct shim_ctx *ctx = to_ctx(context);
	struct shim_channel *ch = calloc(1, sizeof(*ch));
	int fd;

	if (!ch)
		return shim_null(-ENOMEM);
	fd = shim_evfd_open(0);
	if (fd < 0) {
		free(ch);
		return shim_null(fd);
	}
	ch->ch.context = context;
	ch->ch.fd = fd;
	pthread_mutex_init(&ch->lock, NULL);
	TAILQ_INIT(&ch->ready);
	shim_ctx_get(ctx);
	pthread_mutex_lock(&shim_ctxs_lock);
	LIST_INSERT_HEAD(&ctx->channels, ch, entry);
	pthread_mutex_unlock(&shim_ctxs_lock);
	return &ch->ch;
}

SHIM_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	SHIM_UNCANCELLED;
	struct shim_channel *ch = to_channel(channel);
	struct shim_ctx *ctx = to_ctx(channel->context);
	bool busy;

	pthread_mutex_lock(&channel->context->mutex);
	busy = channel->refcnt;
	pthread_mutex_unlock(&channel->context->mutex);
	if (busy)
		return EBUSY;
	pthread_mutex_lock(&shim_ctxs_lock);
	LIST_REMOVE(ch, entry);
	pthread_mutex_unlock(&shim_ctxs_lock);
	real_close(channel->fd);
	pthread_mutex_destroy(&ch->lock);
	free(ch);
	shim_ctx_put(ctx);
	return 0;
}

/* The queue that has waited longest; one with more events waits again. */
static struct shim_cq *channel_pop(struct shim_channel *ch)
{
	struct shim_cq *cq;

	pthread_mutex_lock(&ch->lock);
	cq = TAILQ_FIRST(&ch->ready);
	if (cq) {
		TAILQ_REMOVE(&ch->ready, cq, ready);
		if (--cq->pending)
			TAILQ_INSERT_TAIL(&ch->ready, cq, ready);
		cq->comp_delivered++;
	}
	pthread_mutex_unlock(&ch->lock);
	return cq;
}

SHIM_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct shim_cq *got;
	int err;

	do {
		err = shim_evfd_take(channel->fd);
		if (err)
			return shim_minus_one(err);
		got = channel_pop(to_channel(channel));
	} while (!got);
	*cq = ibv_cq_ex_to_cq(&got->ex);
	*cq_context = got->ex.cq_context;
	return 0;
}

SHIM_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (nevents)
		ack(&cq->mutex, &cq->cond, &cq->comp_events_completed, nevents);
}

/* ---- fork ---- */

/* Whatever a thread is doing to these queues is finished first: in the child there is nobody to finish it. */
void shim_verbs_fork_prepare(void)
{
	struct shim_channel *ch;
	struct shim_ctx *ctx;

	pthread_mutex_lock(&shim_ctxs_lock);
	LIST_FOREACH(ctx, &shim_ctxs, entry) {
		pthread_mutex_lock(&ctx->ev_lock);
		LIST_FOREACH(ch, &ctx->channels, entry)
			pthread_mutex_lock(&ch->lock);
	}
}

void shim_verbs_fork_done(void)
{
	struct shim_channel *ch;
	struct shim_ctx *ctx;

	LIST_FOREACH(ctx, &shim_ctxs, entry) {
		LIST_FOREACH(ch, &ctx->channels, entry)
			pthread_mutex_unlock(&ch->lock);
		pthread_mutex_unlock(&ctx->ev_lock);
	}
	pthread_mutex_unlock(&shim_ctxs_lock);
}

static u64 channel_events(const struct shim_channel *ch)
{
	struct shim_cq *cq;
	u64 n = 0;

	TAILQ_FOREACH(cq, &ch->ready, ready)
		n += cq->pending;
	return n;
}

static u64 async_events(const struct shim_ctx *ctx)
{
	struct shim_event *e;
	u64 n = 0;

	TAILQ_FOREACH(e, &ctx->events, entry)
		n += e->types ? (u64)__builtin_popcount(e->types) : 1;
	return n;
}

void shim_verbs_fork_child(void)
{
	struct shim_channel *ch;
	struct shim_ctx *ctx;

	LIST_FOREACH(ctx, &shim_ctxs, entry) {
		shim_evfd_renew(ctx->v.context.async_fd, async_events(ctx));
		LIST_FOREACH(ch, &ctx->channels, entry)
			shim_evfd_renew(ch->ch.fd, channel_events(ch));
	}
}
