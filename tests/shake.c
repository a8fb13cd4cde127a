/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Shakes the interleavings of a test with threads. Linked with --wrap (tests/meson.build), so that every lock, wait, wake-up and socket call of the code
 * under test comes by here, and with TSan every atomic access, too; nothing of it is in the code itself. Off unless UWARP_SHAKE=SEED is set.
 *
 * The seed chooses how (seed % 4), and all that is random:
 *   0 noise    here and there a thread yields, or sleeps for up to half a millisecond
 *   1 sites    a few places in the code, for the whole run: who comes by there often sleeps for milliseconds. Makes one narrow window wide
 *   2 ranks    as PCT does: threads have ranks, one goes on only when none above it is at work (for a while at most, since those may wait for it), and
 *              at random points of its life it falls to the bottom
 *   3 all of these
 * A run is not replayed exactly by its seed, for the kernel has its own will; what a seed has shown it shows again soon.
 *
 * Only relaxed atomics and the thread's own memory are used: TSan must see no order that the code under test does not make.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/base.h"

#define THREADS 64u
#define NOISE BIT(0)
#define SITES BIT(1)
#define RANKS BIT(2)
#define CHANGE_EVERY 2000u      /* synchronisations between two falls, on average */
#define AT_WORK_NS (200 * NSEC_PER_USEC) /* a thread that has synchronised since then is */
#define WAIT_ROUNDS 10u

extern const char __executable_start[];

static u64 seed;
static unsigned int how;
static u32 threads;
static struct {
	u32 rank;               /* all atomic, relaxed */
	u64 seen_ns;
} slot[THREADS];

static __thread struct {
	bool inside;
	u32 number;             /* from 1 */
	u64 rand;
	u64 slept_ns, born_ns;
	u32 until_fall;
} me;

static u64 mix(u64 x)
{
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
	x = (x ^ x >> 27) * 0x94D049BB133111EBu;
	return x ^ x >> 31;
}

static u64 draw(void)
{
	me.rand += 0x9E3779B97F4A7C15u;
	return mix(me.rand);
}

static u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

__attribute__((constructor)) static void shake_init(void)
{
	static const unsigned int modes[] = { NOISE, NOISE | SITES, NOISE | RANKS, NOISE | SITES | RANKS };
	const char *text = getenv("UWARP_SHAKE");

	seed = text ? strtoull(text, NULL, 0) : 0;
	if (!seed)
		return;
	how = modes[seed % 4];
	fprintf(stderr, "shake: seed %llu\n", (unsigned long long)seed);
}

/* Never more than half of a thread's life, or a test would not get on. */
static void sleep_ns(u64 ns)
{
	struct timespec ts = { .tv_nsec = (long)ns };

	if (me.slept_ns > (now_ns() - me.born_ns) / 2)
		return;
	me.slept_ns += ns;
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ts, NULL);
}

static void be_born(void)
{
	me.number = 1 + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED);
	me.rand = mix(seed * 1000003 + me.number);
	me.born_ns = now_ns();
	me.until_fall = (u32)(draw() % (2 * CHANGE_EVERY));
	__atomic_store_n(&slot[me.number % THREADS].rank, (u32)draw() | 0x80000000u, __ATOMIC_RELAXED);
}

static void noise(void)
{
	u64 r = draw();

	if (r % 256 == 0)
		sleep_ns(r / 256 % (500 * NSEC_PER_USEC));
	else if (r % 32 == 0)
		sched_yield();
}

static void site(const void *where)
{
	u64 r;

	if (mix((u64)((const char *)where - __executable_start) ^ seed << 32) % 48)
		return;
	r = draw();
	if (r % 4 == 0)
		sleep_ns(r / 4 % (3 * NSEC_PER_MSEC));
}

static bool somebody_is_above(u64 now)
{
	u32 mine = me.number % THREADS, n = min(__atomic_load_n(&threads, __ATOMIC_RELAXED), THREADS - 1), i;
	u32 rank = __atomic_load_n(&slot[mine].rank, __ATOMIC_RELAXED);

	for (i = 1; i <= n; i++)
		if (i != mine && __atomic_load_n(&slot[i].rank, __ATOMIC_RELAXED) > rank &&
		    now - __atomic_load_n(&slot[i].seen_ns, __ATOMIC_RELAXED) < AT_WORK_NS)
			return true;
	return false;
}

static void rank(void)
{
	u32 mine = me.number % THREADS, i;

	if (!me.until_fall--) {
		me.until_fall = (u32)(draw() % (2 * CHANGE_EVERY));
		__atomic_store_n(&slot[mine].rank, (u32)draw() & 0x7FFFFFFFu, __ATOMIC_RELAXED);
	}
	for (i = 0; i < WAIT_ROUNDS && somebody_is_above(now_ns()); i++)
		sleep_ns(20 * NSEC_PER_USEC);
	__atomic_store_n(&slot[mine].seen_ns, now_ns(), __ATOMIC_RELAXED);
}

static void shake(const void *where)
{
	int saved = errno;

	if (likely(!how) || me.inside)
		return;
	me.inside = true;
	if (unlikely(!me.number))
		be_born();
	noise();
	if (how & SITES)
		site(where);
	if (how & RANKS && draw() % 24 == 0)
		rank();
	me.inside = false;
	errno = saved;
}

#define HERE __builtin_return_address(0)

/* ret NAME(parameters) called with arguments: shaken before and after. */
#define WRAP(ret, name, params, args) \
	ret __real_##name params; \
	ret __wrap_##name params; \
	ret __wrap_##name params \
	{ \
		ret r; \
\
		shake(HERE); \
		r = __real_##name args; \
		shake(HERE); \
		return r; \
	}

WRAP(int, pthread_mutex_lock, (pthread_mutex_t *m), (m))
WRAP(int, pthread_mutex_trylock, (pthread_mutex_t *m), (m))
WRAP(int, pthread_mutex_unlock, (pthread_mutex_t *m), (m))
WRAP(int, pthread_cond_wait, (pthread_cond_t *c, pthread_mutex_t *m), (c, m))
WRAP(int, pthread_cond_broadcast, (pthread_cond_t *c), (c))
WRAP(int, pthread_rwlock_rdlock, (pthread_rwlock_t *l), (l))
WRAP(int, pthread_rwlock_wrlock, (pthread_rwlock_t *l), (l))
WRAP(int, pthread_rwlock_unlock, (pthread_rwlock_t *l), (l))
WRAP(int, poll, (struct pollfd *p, nfds_t n, int ms), (p, n, ms))
WRAP(int, ppoll, (struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *s), (p, n, t, s))
WRAP(int, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms))
WRAP(int, epoll_ctl, (int fd, int op, int on, struct epoll_event *e), (fd, op, on, e))
WRAP(int, eventfd_write, (int fd, eventfd_t v), (fd, v))
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
WRAP(int, accept4, (int fd, struct sockaddr *a, socklen_t *len, int flags), (fd, a, len, flags))
WRAP(int, shutdown, (int fd, int what), (fd, what))

/* Futexes. */
long __real_syscall(long n, ...);
long __wrap_syscall(long n, ...);
long __wrap_syscall(long n, ...)
{
	long a[6], r;
	va_list ap;

	va_start(ap, n);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (n != SYS_futex)
		return __real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
	shake(HERE);
	r = __real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
	shake(HERE);
	return r;
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
/* What Clang makes of atomic accesses under TSan. */
#define ATOMIC(bits) \
	WRAP(u##bits, __tsan_atomic##bits##_load, (const volatile u##bits *p, int mo), (p, mo)) \
	WRAP(u##bits, __tsan_atomic##bits##_exchange, (volatile u##bits *p, u##bits v, int mo), (p, v, mo)) \
	WRAP(u##bits, __tsan_atomic##bits##_fetch_add, (volatile u##bits *p, u##bits v, int mo), (p, v, mo)) \
	WRAP(u##bits, __tsan_atomic##bits##_fetch_sub, (volatile u##bits *p, u##bits v, int mo), (p, v, mo)) \
	WRAP(u##bits, __tsan_atomic##bits##_fetch_and, (volatile u##bits *p, u##bits v, int mo), (p, v, mo)) \
	WRAP(u##bits, __tsan_atomic##bits##_fetch_or, (volatile u##bits *p, u##bits v, int mo), (p, v, mo)) \
	WRAP(int, __tsan_atomic##bits##_compare_exchange_strong, (volatile u##bits *p, u##bits *c, u##bits v, int mo, int fail), (p, c, v, mo, fail)) \
	WRAP(int, __tsan_atomic##bits##_compare_exchange_weak, (volatile u##bits *p, u##bits *c, u##bits v, int mo, int fail), (p, c, v, mo, fail)) \
	WRAP(u##bits, __tsan_atomic##bits##_compare_exchange_val, (volatile u##bits *p, u##bits c, u##bits v, int mo, int fail), (p, c, v, mo, fail)) \
	void __real___tsan_atomic##bits##_store(volatile u##bits *p, u##bits v, int mo); \
	void __wrap___tsan_atomic##bits##_store(volatile u##bits *p, u##bits v, int mo); \
	void __wrap___tsan_atomic##bits##_store(volatile u##bits *p, u##bits v, int mo) \
	{ \
		shake(HERE); \
		__real___tsan_atomic##bits##_store(p, v, mo); \
		shake(HERE); \
	}

ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)
#endif
#endif
