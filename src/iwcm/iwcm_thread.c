// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm: the NIC thread, which runs the loop of a context on the host port.
 *
 * It sleeps in one ppoll() on the host port, rtnetlink and an eventfd, until the loop's next deadline, and touches only
 * what is ready; while the port is busy it does not ask, but goes on with the port. Threads that call the library wake it through the eventfd, but only if it sleeps past what they posted: a
 * connection's timers, armed in the caller's thread, are further away than the thread ever sleeps while there
 * is traffic (NAP_NS), so setting up a connection costs no wake-up. After QUIET_NS without work it sleeps
 * until there is some.
 *
 * The descriptors are the NIC's alone (base/fd.h). A program that closes them all the same, by system calls of its own, loses its NIC: the thread says so, and ends.
 *
 * No wake-up is lost: the thread announces how long it is going to sleep before it looks at the loop for the last time,
 * and whoever posts looks at the announcement after posting; the loop's lock orders the two.
 */
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "iwcm/room_internal.h"

#define NAP_NS (200 * NSEC_PER_MSEC)
#define QUIET_NS (2 * NSEC_PER_SEC)
#define RETRY_NS NSEC_PER_SEC /* what failed for want of memory or descriptors, and nobody waits for */
#define BUSY_TURNS 16 /* of the port alone, before rtnetlink is looked at again */

static void wake(struct iwcm_ctx *ctx)
{
	u64 one = 1;

	if (!__atomic_exchange_n(&ctx->sleep_until_ns, 0, __ATOMIC_SEQ_CST))
		return;
	if (write(ctx->wake_fd, &one, sizeof(one)) != sizeof(one))
		log_error("iwcm", "cannot wake the NIC thread");
}

static void loop_wake(struct loop *l, void *arg)
{
	struct iwcm_ctx *ctx = arg;
	u64 until = __atomic_load_n(&ctx->sleep_until_ns, __ATOMIC_SEQ_CST);

	if (until && (until == UINT64_MAX || loop_next_ns(l) < until))
		wake(ctx);
}

static bool is_behind(const struct iwcm_ctx *ctx)
{
	return net_is_behind(ctx->net) || __atomic_load_n(&ctx->devs_missing, __ATOMIC_RELAXED);
}

/* Until when to sleep, announced. */
static u64 fall_asleep(struct iwcm_ctx *ctx, u64 now, u64 busy_at)
{
	u64 until = now - busy_at < QUIET_NS || unlikely(is_behind(ctx)) ? now + NAP_NS : UINT64_MAX;

	__atomic_store_n(&ctx->sleep_until_ns, until, __ATOMIC_SEQ_CST);
	return min(until, loop_next_ns(ctx->loop));
}

static void sleep_until(struct iwcm_ctx *ctx, struct pollfd *fds, size_t n, u64 now, u64 until)
{
	u64 ns = until > now ? until - now : 0;
	struct timespec ts = { .tv_sec = (time_t)(ns / NSEC_PER_SEC), .tv_nsec = (long)(ns % NSEC_PER_SEC) };

	ppoll(fds, n, until == UINT64_MAX ? NULL : &ts, NULL); /* cannot fail: no signals, no memory needed */
	__atomic_store_n(&ctx->sleep_until_ns, 0, __ATOMIC_SEQ_CST);
}

static void drain_wake(struct iwcm_ctx *ctx)
{
	u64 count;

	/* Nothing to read if the writer is not there yet: it is level, and comes back. */
	if (read(ctx->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_error("iwcm", "wake descriptor: errno %d", errno);
}

enum { FD_PORT, FD_NET, FD_WAKE, FDS };

/* Once in a while. */
static void catch_up(struct iwcm_ctx *ctx)
{
	u64 now = loop_monotonic_ns();

	if (now < ctx->retry_ns)
		return;
	ctx->retry_ns = now + RETRY_NS;
	net_process(ctx->net);
	iwcm_dev_retry(ctx);
}

/* True if the port had something: then it is worth looking again without asking. */
static bool serve(struct iwcm_ctx *ctx, const struct pollfd *fds, u64 *busy_at)
{
	bool more = fds[FD_PORT].revents && port_host_process(ctx->host);

	if (fds[FD_NET].revents)
		net_process(ctx->net);
	if (fds[FD_WAKE].revents)
		drain_wake(ctx);
	if (unlikely(is_behind(ctx)))
		catch_up(ctx);
	if (loop_run(ctx->loop) || more)
		*busy_at = loop_now(ctx->loop);
	return more;
}

/* What is ready goes to @fds. While the port is busy, @streak turns long, the others are asked for now and then. */
static void wait_ready(struct iwcm_ctx *ctx, struct pollfd *fds, u64 busy_at, unsigned int streak)
{
	bool rest = iwcm_deliver_rest(ctx);
	u64 now = loop_monotonic_ns();

	fds[FD_PORT].revents = POLLIN;
	fds[FD_NET].revents = fds[FD_WAKE].revents = 0;
	if (streak % BUSY_TURNS == 0)
		sleep_until(ctx, fds, FDS, now, streak || rest ? now : fall_asleep(ctx, now, busy_at));
}

/* For sleep_until_ns is 0 from here on, nobody writes to the wake descriptor, which may be somebody else's now. */
static bool descriptors_gone(struct iwcm_ctx *ctx, const struct pollfd *fds)
{
	if (likely(!((fds[FD_PORT].revents | fds[FD_NET].revents | fds[FD_WAKE].revents) & POLLNVAL) && port_host_fd(ctx->host) >= 0))
		return false;
	log_error("iwcm", "the NIC's descriptors were closed behind its back: it stops");
	return true;
}

static void *nic_thread(void *arg)
{
	struct iwcm_ctx *ctx = arg;
	struct pollfd fds[FDS] = {
		[FD_PORT] = { .fd = port_host_fd(ctx->host), .events = POLLIN },
		[FD_NET] = { .fd = net_fd(ctx->net), .events = POLLIN },
		[FD_WAKE] = { .fd = ctx->wake_fd, .events = POLLIN },
	};
	u64 busy_at = loop_monotonic_ns();
	unsigned int streak = 0;

	fds[FD_NET].revents = POLLIN; /* what changed before there was a thread */
	while (!__atomic_load_n(&ctx->stop, __ATOMIC_ACQUIRE) && !descriptors_gone(ctx, fds)) {
		iwcm_gate_enter(ctx); /* fork() waits for the end of a turn */
		loop_enter(ctx->loop);
		iwcm_enter(ctx);
		streak = serve(ctx, fds, &busy_at) ? streak + 1 : 0;
		loop_leave(ctx->loop);
		iwcm_gate_leave(ctx);
		wait_ready(ctx, fds, busy_at, streak);
	}
	return NULL;
}

/* Signals are the program's. */
int iwcm_thread_create(pthread_t *t, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(t, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

int iwcm_thread_start(struct iwcm_ctx *ctx)
{
	int err;

	ctx->wake_fd = fd_own_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (ctx->wake_fd < 0)
		return -errno;
	ctx->loop->wake_arg = ctx;
	ctx->loop->wake = loop_wake;
	err = iwcm_thread_create(&ctx->thread, nic_thread, ctx);
	if (!err)
		return 0;
	ctx->loop->wake = NULL;
	fd_disown_close(ctx->wake_fd);
	return err;
}

void iwcm_thread_stop(struct iwcm_ctx *ctx)
{
	__atomic_store_n(&ctx->stop, true, __ATOMIC_SEQ_CST);
	wake(ctx);
	pthread_join(ctx->thread, NULL);
	ctx->loop->wake = NULL;
	fd_disown_close(ctx->wake_fd);
}
