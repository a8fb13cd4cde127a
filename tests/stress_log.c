/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The stress's history: each thread writes its calls into a ring of its own; put together by time when something went wrong. */
#include <stdarg.h>
#include <time.h>
#include "stress.h"

#define RING 512u
#define SHOWN 400u

struct record {
	u64 begin, end;
	const char *call;
	u64 arg;
	long result;
	u32 n, thread;
};

static struct record ring[ST_THREADS][RING];
static u32 used[ST_THREADS];
static u32 threads;
static __thread u32 mine; /* from 1 */

u64 st_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

void st_log(u64 begin, const char *call, u32 n, u64 arg, long result)
{
	if (!mine)
		mine = 1 + st_add(&threads, 1) % ST_THREADS;
	ring[mine - 1][used[mine - 1]++ % RING] =
		(struct record){ .begin = begin, .end = st_now(), .call = call, .arg = arg, .result = result, .n = n, .thread = mine };
}

static int by_end(const void *a, const void *b)
{
	const struct record *x = a, *y = b;

	return x->end < y->end ? -1 : x->end > y->end;
}

/* Others go on writing; what they spoil is a line or two. */
__attribute__((no_sanitize("thread"))) static void print_history(void)
{
	static struct record all[ST_THREADS * RING];
	u32 n = 0, i;

	for (i = 0; i < ST_THREADS * RING; i++)
		if (ring[i / RING][i % RING].call)
			all[n++] = ring[i / RING][i % RING];
	qsort(all, n, sizeof(*all), by_end);
	fprintf(stderr, "%12s %12s thread  call\n", "from us", "to us");
	for (i = n > SHOWN ? n - SHOWN : 0; i < n; i++)
		fprintf(stderr, "%12.1f %12.1f %6u  %s(%u, %#llx) = %ld\n", (double)(all[i].begin - all[0].begin) / 1000,
			(double)(all[i].end - all[0].begin) / 1000, all[i].thread, all[i].call, all[i].n, (unsigned long long)all[i].arg, all[i].result);
}

void st_fail(const char *fmt, ...)
{
	static u32 failed;
	va_list ap;

	if (st_add(&failed, 1)) /* one is enough */
		for (;;)
			pthread_exit(NULL);
	print_history();
	fprintf(stderr, "thread %u: ", mine);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}
