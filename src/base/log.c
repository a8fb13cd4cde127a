/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base: log lines. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/log.h"

#define LOG_LINE_MAX 1024

static const char *const level_name[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};
static_assert(ARRAY_SIZE(level_name) == LOG_LEVEL_DEBUG + 1, "a name per level");

enum log_level log_threshold = LOG_LEVEL_WARN;

static void to_stderr(void *arg, enum log_level level, const char *room, const char *text)
{
	(void)arg;
	/* One call: stdio keeps lines of several threads apart. */
	fprintf(stderr, "uwarp: %s: %s: %s\n", level_name[level], room, text);
}

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink_fn sink = to_stderr;
static void *sink_arg;

/**
 * log_set_sink() - choose where lines go
 * @fn: called for each line, from any thread, with no lock held; NULL: stderr again
 * @arg: handed to @fn; another thread may still be in the old sink when this returns
 */
void log_set_sink(log_sink_fn fn, void *arg)
{
	pthread_mutex_lock(&sink_lock);
	sink = fn ? fn : to_stderr;
	sink_arg = arg;
	pthread_mutex_unlock(&sink_lock);
}

/**
 * log_set_level() - choose which lines are written
 * @name: "error", "warn", "info" or "debug": that level and the graver ones
 *
 * Return: 0, or -EINVAL for an unknown name, which changes nothing.
 */
int log_set_level(const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(level_name); i++) {
		if (strcmp(name, level_name[i]) != 0)
			continue;
		__atomic_store_n(&log_threshold, (enum log_level)i, __ATOMIC_RELAXED);
		return 0;
	}
	return -EINVAL;
}

/* A constructor: a preloaded library has no other place to read its environment first. */
__attribute__((constructor)) static void level_from_env(void)
{
	const char *name = getenv("UWARP_LOG");

	if (name && *name && log_set_level(name))
		fprintf(stderr, "uwarp: UWARP_LOG: not error, warn, info or debug\n");
}

/* What a peer sent may be in the line: it must not move the cursor or fake another line. */
static void make_printable(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			*s = '.';
}

/**
 * log_write() - write one line, whatever the threshold; rooms use log_error() and its kin
 * @level: how grave
 * @room: folder that speaks
 * @fmt: printf format, without a newline; cut at 1023 bytes, control characters become dots
 *
 * Keeps errno.
 */
void log_write(enum log_level level, const char *room, const char *fmt, ...)
{
	char text[LOG_LINE_MAX];
	int saved_errno = errno;
	log_sink_fn fn;
	va_list ap;
	void *arg;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	make_printable(text);
	pthread_mutex_lock(&sink_lock);
	fn = sink;
	arg = sink_arg;
	pthread_mutex_unlock(&sink_lock);
	fn(arg, level, room, text);
	errno = saved_errno;
}

/**
 * log_allow() - limit the lines that a peer can cause
 * @l: one static, zeroed struct log_limit per call site
 * @burst: lines a second
 *
 * Threads that race at the turn of a second may get a line more.
 *
 * Return: true if the line may be written.
 */
bool log_allow(struct log_limit *l, unsigned int burst)
{
	struct timespec ts;
	u64 now_s;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now_s = (u64)ts.tv_sec;
	if (__atomic_load_n(&l->window_s, __ATOMIC_RELAXED) != now_s) {
		__atomic_store_n(&l->count, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&l->window_s, now_s, __ATOMIC_RELAXED);
	}
	/* Not counted once over the limit: the counter cannot wrap. */
	if (__atomic_load_n(&l->count, __ATOMIC_RELAXED) >= burst)
		return false;
	return __atomic_fetch_add(&l->count, 1, __ATOMIC_RELAXED) < burst;
}
