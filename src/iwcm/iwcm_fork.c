/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwcm: fork(). Theory of operation.
 *
 * What a child may be: (1) one that never uses RDMA, most often on its way to exec(); (2) one that begins with RDMA of its own while the parent goes on; (3) the
 * parent's successor: a program that listens, and daemonises. Which one it is, is not known at the time of the fork.
 *
 * Hence three steps. At the fork nothing is done but to make the copy safe: the NIC thread is between two turns and nobody holds a lock (prepare); in the child the sockets are put by,
 * so that nothing can happen to the parent's connections (port/host_fork.c). The first call into iwcm starts a NIC thread with an epoll set and netlink sockets
 * of its own: case 2 works, with what it makes from then on. Only when the child's user uses ids of before the fork, or the process that served them ends, are
 * their sockets adopted: case 3. To hear of that end without being called (the user may sit in poll()), the child of a process with ids has a thread that waits on
 * a pidfd of that process, its owner; children of a child that has not adopted anything wait for the same owner.
 *
 * The gate: a lock that calls and the NIC thread's turns hold shared, and fork() alone. Calls nest (a handler calls back), so readers go before a waiting
 * writer, which is what glibc's rwlocks do by default. Locks that are also taken outside of the gate, by the data path, are taken one by one behind it. Not taken
 * are those of single QPs, queues and regions: a process with several threads that use RDMA while one of them forks has a child that may not use these.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <unistd.h>
#include "iwcm/room_internal.h"

void iwcm_fork_init(struct iwcm_ctx *ctx)
{
	pthread_rwlock_init(&ctx->fork.gate, NULL);
	pthread_mutex_init(&ctx->fork.lock, NULL);
	ctx->fork.owner_fd = ctx->fork.watch_fd = ctx->fork.stop_fd = -1;
}

static void fd_close(int *fd)
{
	fd_disown_close(*fd);
	*fd = -1;
}

void iwcm_fork_destroy(struct iwcm_ctx *ctx)
{
	fd_close(&ctx->fork.owner_fd);
	pthread_mutex_destroy(&ctx->fork.lock);
	pthread_rwlock_destroy(&ctx->fork.gate);
}

void iwcm_fork_notify(struct iwcm_ctx *ctx, void (*fn)(void *arg), void *arg)
{
	ctx->fork.notify_arg = arg;
	__atomic_store_n(&ctx->fork.notify, fn, __ATOMIC_RELEASE);
}

void iwcm_fork_wait(struct iwcm_ctx *ctx, bool begin)
{
	if (ctx->host)
		port_host_wait(ctx->host, begin);
}

unsigned int iwcm_fork_count(const struct iwcm_ctx *ctx)
{
	return port_host_forks(ctx->host);
}

/* ---- before the fork, and after it in the parent ---- */

static void lock_devices(struct iwcm_ctx *ctx)
{
	struct iwcm_dev *dev;

	pthread_mutex_lock(&ctx->dev_lock);
	TAILQ_FOREACH(dev, &ctx->devs, entry)
		rnic_fork_prepare(dev->iwdev);
}

static void unlock_devices(struct iwcm_ctx *ctx, void (*unlock)(struct irdma_device *iwdev))
{
	struct iwcm_dev *dev;

	TAILQ_FOREACH(dev, &ctx->devs, entry)
		unlock(dev->iwdev);
	pthread_mutex_unlock(&ctx->dev_lock);
}

/* This process's own, if it serves sockets that a child might have to serve after it. */
static void name_owner(struct iwcm_ctx *ctx)
{
	if (TAILQ_EMPTY(&ctx->ids) || iwcm_asleep(ctx) || ctx->fork.owner_fd >= 0)
		return;
	ctx->fork.owner_fd = fd_own_high(pidfd_open(getpid(), 0));
	if (ctx->fork.owner_fd < 0)
		log_warn("iwcm", "no pidfd: a forked process will not notice the end of this one");
}

/**
 * iwcm_fork_prepare() - this process is about to fork
 * @ctx: context on the host port
 *
 * Waits for calls in other threads to end; they are short.
 */
void iwcm_fork_prepare(struct iwcm_ctx *ctx)
{
	pthread_rwlock_wrlock(&ctx->fork.gate);
	pthread_mutex_lock(&ctx->fork.lock);
	lock_devices(ctx);
	port_host_fork_prepare(ctx->host);
	net_fork_prepare(ctx->net);
	mutex_take(&ctx->loop->lock);
	pthread_mutex_lock(&ctx->lock);
	name_owner(ctx);
}

/**
 * iwcm_fork_parent() - it has forked, or could not
 * @ctx: the context
 */
void iwcm_fork_parent(struct iwcm_ctx *ctx)
{
	pthread_mutex_unlock(&ctx->lock);
	mutex_give(&ctx->loop->lock);
	net_fork_parent(ctx->net);
	port_host_fork_parent(ctx->host);
	unlock_devices(ctx, rnic_fork_parent);
	pthread_mutex_unlock(&ctx->fork.lock);
	pthread_rwlock_unlock(&ctx->fork.gate);
}

/* ---- resuming ---- */

/* Called with fork.lock held. */
static int resume(struct iwcm_ctx *ctx)
{
	int err;

	if (!iwcm_asleep(ctx))
		return 0;
	fd_close(&ctx->fork.owner_fd); /* for what this process makes itself; the watcher has a descriptor of its own */
	err = port_host_fork_resume(ctx->host);
	if (!err)
		err = net_fork_resume(ctx->net);
	if (!err) {
		ctx->stop = false;
		__atomic_store_n(&ctx->fork.asleep, false, __ATOMIC_RELEASE);
		err = iwcm_thread_start(ctx);
	}
	if (err)
		__atomic_store_n(&ctx->fork.asleep, true, __ATOMIC_RELEASE);
	return err;
}

/**
 * iwcm_fork_resume() - a forked child begins to use its context
 * @ctx: the context
 *
 * Return: 0, also if nothing is to be done; -EMFILE, -ENOMEM, -EAGAIN: limits; it may be tried again.
 */
int iwcm_fork_resume(struct iwcm_ctx *ctx)
{
	int err;

	pthread_mutex_lock(&ctx->fork.lock);
	err = resume(ctx);
	pthread_mutex_unlock(&ctx->fork.lock);
	return err;
}

/* The thread that waits for the owner's end is of no use any more: let it end. */
static void dismiss_watcher(struct iwcm_fork *f)
{
	if (f->stop_fd >= 0)
		eventfd_write(f->stop_fd, 1);
}

static int adopt(struct iwcm_ctx *ctx, bool all)
{
	int err;

	iwcm_gate_enter(ctx);
	pthread_mutex_lock(&ctx->fork.lock);
	err = resume(ctx);
	if (!err && ctx->fork.dormant)
		ctx->fork.dormant = port_host_fork_adopt(ctx->host, all);
	if (!err && !ctx->fork.dormant)
		dismiss_watcher(&ctx->fork);
	pthread_mutex_unlock(&ctx->fork.lock);
	iwcm_gate_leave(ctx);
	return err;
}

/**
 * iwcm_fork_adopt() - a forked child takes over what its parent had
 * @ctx: the context
 *
 * If the parent lives both serve the same listeners and connections, and each request, each byte, goes to one of them.
 *
 * Return: as iwcm_fork_resume().
 */
int iwcm_fork_adopt(struct iwcm_ctx *ctx)
{
	return adopt(ctx, true);
}

/* ---- the owner's end ---- */

static void inherit(struct iwcm_ctx *ctx)
{
	void (*notify)(void *arg) = __atomic_load_n(&ctx->fork.notify, __ATOMIC_ACQUIRE);
	int err = adopt(ctx, false);

	if (err)
		log_error("iwcm", "cannot take over from the process that ended: %s", strerrordesc_np(-err));
	else if (notify)
		notify(ctx->fork.notify_arg);
}

static void *watch_owner(void *arg)
{
	struct iwcm_ctx *ctx = arg;
	struct pollfd fds[] = {
		{ .fd = ctx->fork.watch_fd, .events = POLLIN }, /* readable when the process has ended */
		{ .fd = ctx->fork.stop_fd, .events = POLLIN },
	};

	ppoll(fds, ARRAY_SIZE(fds), NULL, NULL);
	if (!fds[1].revents)
		inherit(ctx);
	return NULL;
}

static int open_watch(struct iwcm_fork *f)
{
	f->watch_fd = fd_own_high(fcntl(f->owner_fd, F_DUPFD_CLOEXEC, 0));
	f->stop_fd = fd_own_high(eventfd(0, EFD_CLOEXEC));
	return f->watch_fd < 0 || f->stop_fd < 0 ? -EMFILE : 0;
}

static void close_watch(struct iwcm_fork *f)
{
	fd_close(&f->watch_fd);
	fd_close(&f->stop_fd);
}

static void start_watcher(struct iwcm_ctx *ctx)
{
	struct iwcm_fork *f = &ctx->fork;

	if (f->owner_fd < 0)
		return;
	if (!open_watch(f) && !iwcm_thread_create(&f->watcher, watch_owner, ctx))
		return;
	log_warn("iwcm", "nothing waits for the end of the parent process");
	close_watch(f);
}

void iwcm_fork_unwatch(struct iwcm_ctx *ctx)
{
	if (ctx->fork.stop_fd < 0)
		return;
	dismiss_watcher(&ctx->fork);
	pthread_join(ctx->fork.watcher, NULL);
	close_watch(&ctx->fork);
}

/* ---- in the child ---- */

/* Threads that waited are not here; a gate that others wait at cannot be unlocked as if they were. */
static void forget_waiters(struct iwcm_ctx *ctx)
{
	pthread_cond_init(&ctx->delivered, NULL);
	ctx->waiters = ctx->to_wake = 0;
	pthread_rwlock_init(&ctx->fork.gate, NULL);
}

/* An eventfd that the user polls would be the parent's as well. */
static void renew_event_fd(struct iwcm_ctx *ctx)
{
	int fd;

	if (ctx->event_fd < 0)
		return;
	fd = eventfd(!TAILQ_EMPTY(&ctx->queue), EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return;
	dup3(fd, ctx->event_fd, O_CLOEXEC);
	close(fd);
}

/**
 * iwcm_fork_child() - it is the child of a fork
 * @ctx: the context
 *
 * Costs a few system calls; a thread more if there are ids.
 */
void iwcm_fork_child(struct iwcm_ctx *ctx)
{
	struct iwcm_fork *f = &ctx->fork;

	forget_waiters(ctx);
	renew_event_fd(ctx);
	if (!iwcm_asleep(ctx)) {
		fd_close(&ctx->wake_fd);
		f->dormant = !TAILQ_EMPTY(&ctx->ids);
	}
	if (!f->dormant)
		fd_close(&f->owner_fd);
	ctx->sleep_until_ns = 0;
	ctx->loop->wake = NULL; /* there is nobody to wake */
	close_watch(f);
	__atomic_store_n(&f->asleep, true, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&ctx->lock);
	mutex_give(&ctx->loop->lock);
	net_fork_child(ctx->net);
	port_host_fork_child(ctx->host);
	unlock_devices(ctx, rnic_fork_child);
	pthread_mutex_unlock(&f->lock);
	if (f->dormant)
		start_watcher(ctx);
}
