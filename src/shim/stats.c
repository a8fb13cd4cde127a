// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: collects what the NICs have counted, prints it when the program ends, and serves `uwarp stat`.
 *
 * The server is a thread of its own that sleeps in accept(): it costs nothing until somebody asks, and the NIC thread never waits for a reader. It has a table
 * of descriptors of its own, in which there is nothing but its socket: what the program closes, or does not expect to be open, does not concern it, and what
 * it has no part in (pipes, locks) it does not keep alive. Where the kernel does not know how (before Linux 5.9), there is no `uwarp stat`.
 */
#include <errno.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "shim/stats.h"

#define STACK_SIZE (256u << 10)
#define BACKLOG 8
#define SEND_TIMEOUT_S 1 /* a reader that does not read */
#define RETRY_NS (100 * NSEC_PER_MSEC)

static struct {
	pthread_mutex_t lock; /* held while the context is looked at */
	struct iwcm_ctx *ctx; /* NULL: nothing to tell */
	u64 since_ns;
	bool served;          /* this process has its thread, which never ends */
} self = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- collecting ---- */

static void count_device(struct irdma_device *iwdev, void *arg)
{
	u32 *n = arg;

	(void)iwdev;
	(*n)++;
}

struct collect {
	struct shim_stats *s;
	u32 room;
};

static void add_device(struct irdma_device *iwdev, void *arg)
{
	struct collect *c = arg;
	struct shim_stats_device *d = &c->s->device[c->s->devices];

	if (c->s->devices == c->room)
		return; /* came since they were counted */
	c->s->devices++;
	snprintf(d->name, sizeof(d->name), "%s", iwdev->name);
	cm_get_stats(iwdev, &d->cm);
	rnic_device_get_stats(iwdev, &d->nic);
}

static size_t stats_size(u32 devices)
{
	return sizeof(struct shim_stats) + devices * sizeof(struct shim_stats_device);
}

/* With self.lock; NULL: nothing to tell, or no memory. */
static struct shim_stats *collect(void)
{
	struct collect c = { 0 };

	if (!self.ctx)
		return NULL;
	iwcm_for_each_device(self.ctx, count_device, &c.room);
	c.room = min(c.room, SHIM_STATS_DEVICES);
	c.s = calloc(1, stats_size(c.room));
	if (!c.s)
		return NULL;
	*c.s = (struct shim_stats){
		.magic = SHIM_STATS_MAGIC,
		.version = SHIM_STATS_VERSION,
		.device_size = sizeof(struct shim_stats_device),
		.up_ns = loop_monotonic_ns() - self.since_ns,
	};
	snprintf(c.s->program, sizeof(c.s->program), "%s", program_invocation_short_name);
	iwcm_for_each_device(self.ctx, add_device, &c);
	return c.s;
}

static struct shim_stats *collect_locked(void)
{
	struct shim_stats *s;

	pthread_mutex_lock(&self.lock);
	s = collect();
	pthread_mutex_unlock(&self.lock);
	return s;
}

/* ---- the server ---- */

static bool may_know(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) && (peer.uid == geteuid() || !peer.uid);
}

static void tell(int fd)
{
	struct timeval limit = { .tv_sec = SEND_TIMEOUT_S };
	struct shim_stats *s = collect_locked();
	const char *p = (const char *)s;
	size_t left = s ? stats_size(s->devices) : 0;
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	for (; left; left -= (size_t)n, p += n) {
		n = send(fd, p, left, MSG_NOSIGNAL);
		if (n <= 0)
			break;
	}
	free(s);
}

static int make_socket(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	u64 name;

	if (fd < 0)
		return -errno;
	rand_secure(&name, sizeof(name));
	snprintf(sun.sun_path + 1, sizeof(sun.sun_path) - 1, SHIM_STATS_PREFIX "%016llx", (unsigned long long)name);
	if (!bind(fd, (struct sockaddr *)&sun, offsetof(struct sockaddr_un, sun_path) + 1 + SHIM_STATS_NAME_LEN) && !listen(fd, BACKLOG))
		return fd;
	syscall(SYS_close, fd);
	return -errno;
}

/* close() and its kind are interposed in this library, and speak of the program's descriptors: system calls here. */
static void *server(void *arg)
{
	int fd, peer;

	(void)arg;
	if (syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE))
		return NULL;
	fd = make_socket();
	if (fd < 0)
		return NULL;
	for (;;) {
		peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		if (peer < 0) { /* it went away again, or something is used up and will stay so for a while */
			nanosleep(&(struct timespec){ .tv_nsec = RETRY_NS }, NULL);
			continue;
		}
		if (may_know(peer))
			tell(peer);
		syscall(SYS_close, peer);
	}
}

/* Signals are the program's. */
static int create_thread(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, server, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return err;
}

/* ---- for core.c ---- */

/**
 * shim_stats_start() - there is something to tell
 * @ctx: what about; stays open until shim_stats_stop()
 *
 * Without memory for a thread there is no `uwarp stat`, and all else works.
 */
void shim_stats_start(struct iwcm_ctx *ctx)
{
	int err = 0;

	pthread_mutex_lock(&self.lock);
	if (!self.ctx)
		self.since_ns = loop_monotonic_ns();
	self.ctx = ctx;
	if (!self.served)
		err = create_thread();
	self.served = !err;
	pthread_mutex_unlock(&self.lock);
	if (err)
		log_warn("shim", "uwarp stat will not see this process: %s", strerror(err));
}

/* In one write: several processes may end at a time. */
static void print(const struct shim_stats *s)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	shim_stats_print(f, s, getpid());
	if (!fclose(f) && syscall(SYS_write, STDERR_FILENO, text, len) < 0)
		log_info("shim", "statistics cannot be written: %s", strerror(errno));
	free(text);
}

/**
 * shim_stats_stop() - the program ends
 * @to_stderr: print the tables, if the program used uwarp
 *
 * Waits for the server if it is collecting: the context may be closed afterwards.
 */
void shim_stats_stop(bool to_stderr)
{
	struct shim_stats *s;

	pthread_mutex_lock(&self.lock);
	s = to_stderr ? collect() : NULL;
	self.ctx = NULL;
	pthread_mutex_unlock(&self.lock);
	if (s)
		print(s);
	free(s);
}

/**
 * shim_stats_fork_child() - this is a forked child
 *
 * The server thread is the parent's, and so is its socket.
 */
void shim_stats_fork_child(void)
{
	pthread_mutex_init(&self.lock, NULL);
	self.ctx = NULL;
	self.served = false;
}
