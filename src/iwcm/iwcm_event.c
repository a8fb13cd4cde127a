// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm: the event queue, and the other way to deliver: the handler.
 *
 * Every type of event has its place inside the id that it is about, so posting cannot fail, and destroying an id takes
 * what is queued of it out, in constant time. What an event says is copied when it is delivered, under the lock; what may
 * change between two events of an id (status, cause) is kept in the place.
 *
 * Waking costs nothing when nobody waits: sleepers in iwcm_get_event() are counted and woken through a futex (which a
 * signal interrupts, as a condition variable's wait is not), and the descriptor is made when somebody asks for it.
 */
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "iwcm/room_internal.h"

static const char *const event_names[] = {
	[IWCM_EVENT_RESOLVED] = "RESOLVED",
	[IWCM_EVENT_RESOLVE_ERROR] = "RESOLVE_ERROR",
	[IWCM_EVENT_CONNECT_REQUEST] = "CONNECT_REQUEST",
	[IWCM_EVENT_ESTABLISHED] = "ESTABLISHED",
	[IWCM_EVENT_REJECTED] = "REJECTED",
	[IWCM_EVENT_CONNECT_ERROR] = "CONNECT_ERROR",
	[IWCM_EVENT_DISCONNECTED] = "DISCONNECTED",
	[IWCM_EVENT_CLOSED] = "CLOSED",
	[IWCM_EVENT_DEVICE_REMOVED] = "DEVICE_REMOVED",
};
static_assert(ARRAY_SIZE(event_names) == IWCM_EVENTS, "a name per event");

#define DELIVER_MAX 64

/* Events that say what the peer sent. */
#define CARRIES_PDATA (BIT(IWCM_EVENT_CONNECT_REQUEST) | BIT(IWCM_EVENT_ESTABLISHED) | BIT(IWCM_EVENT_REJECTED))

/**
 * iwcm_event_str() - name of an event type
 * @type: the type
 *
 * Return: its name without the prefix; never NULL.
 */
const char *iwcm_event_str(enum iwcm_event_type type)
{
	return (unsigned int)type < IWCM_EVENTS ? event_names[type] : "?";
}

static struct iwcm_id *queued_id(struct iwcm_queued *q)
{
	return container_of(q - q->type, struct iwcm_id, ev[0]);
}

static void fd_set_readable(struct iwcm_ctx *ctx, bool readable)
{
	u64 count = 1;
	ssize_t n;

	if (ctx->event_fd < 0)
		return;
	n = readable ? write(ctx->event_fd, &count, sizeof(count)) : read(ctx->event_fd, &count, sizeof(count));
	assert(n == sizeof(count));
}

/* To the end of the queue. No type repeats in an id's life but RESOLVE_ERROR, and iwcm_resolve() sees to that. */
void iwcm_post(struct iwcm_id *id, enum iwcm_event_type type, int status, enum cm_cause cause)
{
	struct iwcm_ctx *ctx = id->ctx;
	struct iwcm_queued *q = &id->ev[type];

	assert(id->state != IWCM_ID_DESTROYED && !q->queued);
	if (id->orphan)
		return;
	q->type = (u8)type;
	q->status = status;
	q->cause = (u8)cause;
	q->queued = true;
	if (TAILQ_EMPTY(&ctx->queue))
		fd_set_readable(ctx, true);
	TAILQ_INSERT_TAIL(&ctx->queue, q, entry);
	if (ctx->waiters) {
		ctx->seq++;
		ctx->to_wake++;
	}
	log_debug("iwcm", "id %p %s, status %d", (void *)id, event_names[type], status);
}

static void untake(struct iwcm_id *id)
{
	if (!id->listener)
		return;
	LIST_REMOVE(id, untaken_entry);
	id->listener = NULL;
}

static void dequeue(struct iwcm_ctx *ctx, struct iwcm_queued *q)
{
	TAILQ_REMOVE(&ctx->queue, q, entry);
	q->queued = false;
	if (TAILQ_EMPTY(&ctx->queue))
		fd_set_readable(ctx, false);
}

/* Take all of @id's events out of the queue. */
void iwcm_purge(struct iwcm_id *id)
{
	int i;

	for (i = 0; i < IWCM_EVENTS; i++)
		if (id->ev[i].queued)
			dequeue(id->ctx, &id->ev[i]);
	untake(id);
}

static void fill_pdata(struct iwcm_id *id, const struct iwcm_queued *q, struct iwcm_event *out)
{
	out->private_data_len = 0;
	if (!(CARRIES_PDATA & BIT(q->type)) || !id->pdata_ready)
		return;
	out->private_data_len = id->pdata_len;
	memcpy(out->private_data, id->pdata, id->pdata_len);
	free(id->pdata);
	id->pdata = NULL;
	id->pdata_ready = false;
}

static void fill(struct iwcm_id *id, const struct iwcm_queued *q, struct iwcm_event *out)
{
	out->type = q->type;
	out->status = q->status;
	out->id = id;
	out->listener = id->listener;
	iwcm_addr_store(&id->local, &out->local);
	iwcm_addr_store(&id->remote, &out->remote);
	out->info = id->info;
	out->info.cause = q->cause;
	fill_pdata(id, q, out);
}

/* The first event goes to @out; false if there is none. */
static bool take(struct iwcm_ctx *ctx, struct iwcm_event *out)
{
	struct iwcm_queued *q = TAILQ_FIRST(&ctx->queue);
	struct iwcm_id *id;

	if (!q)
		return false;
	id = queued_id(q);
	dequeue(ctx, q);
	fill(id, q, out);
	if (q->type == IWCM_EVENT_CONNECT_REQUEST)
		untake(id);
	return true;
}

static void futex_wake(u32 *word, u32 n)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static int futex_wait(u32 *word, u32 seen, const struct timespec *until)
{
	return syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, until, NULL, FUTEX_BITSET_MATCH_ANY) ? -errno : 0;
}

void iwcm_unlock(struct iwcm_ctx *ctx)
{
	bool deliver = ctx->handler && !TAILQ_EMPTY(&ctx->queue) && !ctx->deliver_queued;
	u32 n = ctx->to_wake;

	ctx->to_wake = 0;
	ctx->deliver_queued |= deliver;
	pthread_mutex_unlock(&ctx->lock);
	if (n)
		futex_wake(&ctx->seq, n);
	if (deliver)
		workq_queue(&ctx->wq, &ctx->deliver_work);
}

/* Called with ctx->lock held, and returns with it; the handler runs without. */
static void deliver_one(struct iwcm_ctx *ctx, const struct iwcm_event *ev)
{
	iwcm_id_get(ev->id);
	if (ev->listener)
		iwcm_id_get(ev->listener);
	ctx->now_id = ev->id;
	ctx->now_listener = ev->listener;
	pthread_mutex_unlock(&ctx->lock);
	ctx->handler(ctx->handler_arg, ev);
	pthread_mutex_lock(&ctx->lock);
	ctx->now_id = ctx->now_listener = NULL;
	pthread_cond_broadcast(&ctx->delivered);
	iwcm_id_put(ev->id);
	if (ev->listener)
		iwcm_id_put(ev->listener);
}

/*
 * With a handler: a work item of its own, in the loop's thread, right behind what posted. Not from inside the CM's
 * upcalls: whoever gives an id up waits for these, and the handler may want what he holds. So many at
 * a time, that threads that post without pause cannot keep the loop from the network.
 */
void iwcm_deliver_work(struct work_struct *w)
{
	struct iwcm_ctx *ctx = container_of(w, struct iwcm_ctx, deliver_work);
	struct iwcm_event ev;
	int n;

	iwcm_lock(ctx);
	ctx->deliverer = pthread_self();
	for (n = 0; n < DELIVER_MAX && take(ctx, &ev); n++)
		deliver_one(ctx, &ev);
	ctx->deliver_queued = ctx->deliver_rest = ctx->host && !TAILQ_EMPTY(&ctx->queue);
	iwcm_unlock(ctx);
	if (ctx->handler_done)
		ctx->handler_done(ctx->handler_arg);
}

/* The NIC thread, when it has looked at the network: go on with what was left. True if anything was. */
bool iwcm_deliver_rest(struct iwcm_ctx *ctx)
{
	if (likely(!ctx->deliver_rest))
		return false;
	ctx->deliver_rest = false;
	workq_queue(&ctx->wq, &ctx->deliver_work);
	return true;
}

void iwcm_wait_delivered(struct iwcm_id *id)
{
	struct iwcm_ctx *ctx = id->ctx;

	if (!ctx->handler)
		return;
	iwcm_lock(ctx);
	while ((ctx->now_id == id || ctx->now_listener == id) && !pthread_equal(ctx->deliverer, pthread_self()))
		pthread_cond_wait(&ctx->delivered, &ctx->lock);
	iwcm_unlock(ctx);
}

void iwcm_set_handler(struct iwcm_ctx *ctx, void (*fn)(void *arg, const struct iwcm_event *ev), void (*done)(void *arg), void *arg)
{
	iwcm_lock(ctx);
	assert(TAILQ_EMPTY(&ctx->ids));
	ctx->handler = fn;
	ctx->handler_done = done;
	ctx->handler_arg = arg;
	iwcm_unlock(ctx);
}

/* Sleep until an event was posted. Called with the lock held, and returns with it. 0, -ETIMEDOUT, -EINTR. */
static int wait_posted(struct iwcm_ctx *ctx, const struct timespec *until)
{
	u32 seen = ctx->seq;
	int err;

	ctx->waiters++;
	pthread_mutex_unlock(&ctx->lock);
	err = futex_wait(&ctx->seq, seen, until);
	pthread_mutex_lock(&ctx->lock);
	ctx->waiters--;
	return err == -EAGAIN ? 0 : err;
}

static void deadline_in(int timeout_ms, struct timespec *until)
{
	u64 at = loop_monotonic_ns() + (u64)timeout_ms * NSEC_PER_MSEC;

	until->tv_sec = (time_t)(at / NSEC_PER_SEC);
	until->tv_nsec = (long)(at % NSEC_PER_SEC);
}

/**
 * iwcm_get_event() - take the next event
 * @ctx: context
 * @out: where it is copied
 * @timeout_ms: how long to wait for one: 0 not at all, negative for ever
 *
 * Any number of threads may wait; each event goes to one of them.
 *
 * Return: 0; -EAGAIN: none in time; -EINTR: a signal handler ran (one that was installed without %SA_RESTART).
 */
int iwcm_get_event(struct iwcm_ctx *ctx, struct iwcm_event *out, int timeout_ms)
{
	struct timespec until;
	bool taken;
	int err = 0;

	if (timeout_ms > 0)
		deadline_in(timeout_ms, &until);
	iwcm_fork_wait(ctx, true);
	iwcm_lock(ctx);
	while (!(taken = take(ctx, out)) && !err)
		err = timeout_ms ? wait_posted(ctx, timeout_ms > 0 ? &until : NULL) : -ETIMEDOUT;
	iwcm_unlock(ctx);
	iwcm_fork_wait(ctx, false);
	if (taken) /* even at the very end of the time */
		return 0;
	return err == -ETIMEDOUT ? -EAGAIN : err;
}

/**
 * iwcm_event_fd() - a descriptor to poll
 * @ctx: context
 *
 * For programs that wait for other things too. It is the context's: poll it, do not read or close it.
 *
 * Return: a descriptor that is readable while events are queued, or a negative errno.
 */
int iwcm_event_fd(const struct iwcm_ctx *ctx)
{
	struct iwcm_ctx *c = (struct iwcm_ctx *)ctx; /* made at the first call, which is not for the caller to see */
	int fd;

	iwcm_lock(c);
	if (c->event_fd < 0) {
		fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		c->event_fd = fd < 0 ? -errno : fd;
		if (fd >= 0 && !TAILQ_EMPTY(&c->queue))
			fd_set_readable(c, true);
	}
	fd = c->event_fd;
	iwcm_unlock(c);
	return fd;
}
