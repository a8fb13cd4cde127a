/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * All verbs and all commands of the rdma_cm device, from many threads, on objects that they share, over loopback.
 *
 * Workers draw what to do: make, use and destroy domains, channels, queues, regions, windows (stress_verbs.c); connect, answer, end and migrate ids
 * (stress_cm.c); post, poll and end queue pairs (stress_data.c). Other threads wait for events. What verbs call the program's fault does not happen: calls on an object
 * that another thread is destroying. A model beside it (stress.h) knows what each call may give, and what may come; what may not ends the run with the history of
 * all threads. TSan and ASan look for the rest, and at the end nothing may be left.
 *
 * UWARP_STRESS_SECONDS: how long (5); UWARP_STRESS_SEED: of the workers (from the clock); UWARP_SHAKE: tests/shake.c.
 */
#include <sys/wait.h>
#include <unistd.h>
#include "stress.h"

#define SOON_NS (120 * NSEC_PER_SEC)
#define FORK_EVERY_NS NSEC_PER_SEC

/* In place of src/shim/preload.c, whose close() TSan would not see. */
int (*real_close)(int fd) = close;
ssize_t (*real_write)(int fd, const void *buf, size_t n) = write;
int (*real_dup3)(int old, int fd, int flags) = dup3;

struct stress st;
struct st_counts st_counts;

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1 /* it allows a child of a process with threads no thread */
#endif
#endif

/* ---- fork ---- */

/* ASan copies the locks of its allocator as they are, so with it there is no fork while others work. */
static bool may_fork(void)
{
#ifdef __SANITIZE_ADDRESS__
	return false;
#else
	return true;
#endif
}

static void child(void)
{
	struct ibv_context *c;
	struct ibv_device **list;
	struct ibv_cq *cq;
	int fd;

	alarm(60);
#ifdef TSAN
	_exit(0);
#endif
	list = ibv_get_device_list(NULL);
	c = list && list[0] ? ibv_open_device(list[0]) : NULL;
	cq = c ? ibv_create_cq(c, 16, NULL, NULL, 0) : NULL;
	fd = shim_cmdev_open(0);
	_exit(cq && fd >= 0 && !ibv_destroy_cq(cq) ? 0 : 1);
}

static void fork_once(void)
{
	u64 begin = st_now();
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid)
		child();
	ST_CHECK(pid > 0, "fork");
	st_log(begin, "fork", 0, (u64)pid, 0);
	ST_CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
	ST_CHECK(!status, "the forked child ended with %#x", status);
	st_add(&st_counts.forks, 1);
}

/* ---- threads ---- */

static u64 seed;

static void *worker(void *arg)
{
	struct st_thread t = { .n = (u32)(uintptr_t)arg };

	rand_gen_seed(&t.g, seed * 100 + t.n);
	while (!st_calm()) {
		switch (st_below(&t, 8)) {
		case 0:
			st_churn(&t);
			break;
		case 1:
		case 2:
			st_cm(&t);
			break;
		case 3:
		case 4:
			st_data(&t);
			break;
		default:
			st_poll_some(&t);
		}
	}
	return NULL;
}

static bool little_happened(void)
{
	return st_get(&st_counts.established) < 4 || st_get(&st_counts.received) < 20;
}

/* Longer where the machine is slow. */
static void run_for(u64 ns)
{
	u64 end = st_now() + ns, next_fork = st_now() + FORK_EVERY_NS / 2;

	while (st_now() < end || (little_happened() && st_now() < end + SOON_NS)) {
		usleep(50000);
		if (st_now() < next_fork || !may_fork())
			continue;
		fork_once();
		next_fork = st_now() + FORK_EVERY_NS;
	}
}

static void start(pthread_t *t, void *(*fn)(void *), u32 n)
{
	ST_CHECK(!pthread_create(t, NULL, fn, (void *)(uintptr_t)n), "no thread");
}

static void wait_until_quiet(void)
{
	u64 end = st_now() + SOON_NS;
	struct st_thread t = { .n = 0 };

	rand_gen_seed(&t.g, 1);
	while (!st_cm_is_quiet()) {
		ST_CHECK(st_now() < end, "connections do not end");
		st_poll_some(&t);
		usleep(20000);
	}
}

static void run(u64 ns)
{
	pthread_t workers[ST_WORKERS], others[ST_FILES + 3];
	u32 i, n = 0;

	for (i = 0; i < ST_FILES; i++)
		start(&others[n++], st_cm_thread, i);
	start(&others[n++], st_channel_thread, 0);
	start(&others[n++], st_channel_thread, 1);
	start(&others[n++], st_async_thread, 0);
	for (i = 0; i < ST_WORKERS; i++)
		start(&workers[i], worker, i);
	run_for(ns);
	__atomic_store_n(&st.calm, true, __ATOMIC_RELAXED);
	for (i = 0; i < ST_WORKERS; i++)
		pthread_join(workers[i], NULL);
	wait_until_quiet();
	st_cm_destroy_all();
	__atomic_store_n(&st.stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < n; i++)
		pthread_join(others[i], NULL);
	st_cm_close();
	st_data_close();
	st_verbs_close();
}

static u64 number(const char *name, u64 otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

/* Guards nest in many orders, which is no deadlock, for all but one only try. TSan cannot know. A forked child makes a thread. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "detect_deadlocks=0:die_after_fork=0";
}

int main(void)
{
	seed = number("UWARP_STRESS_SEED", st_now() / NSEC_PER_USEC);
	printf("stress: seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	st_verbs_open();
	st_data_open();
	st_cm_open();
	run(number("UWARP_STRESS_SECONDS", 5) * NSEC_PER_SEC);
	printf("%u came up, %u were rejected, %u ended; %u messages sent, %u received; %u completions in error, %u queue pairs drained; %u forks, %u ids migrated, %u polls saw a lease\n",
	       st_counts.established, st_counts.rejected, st_counts.ended, st_counts.sent, st_counts.received, st_counts.ended_in_error, st_counts.drained,
	       st_counts.forks, st_counts.migrated, st_counts.leased);
	ST_CHECK(!little_happened(), "little happened");
	return 0;
}
