/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base: log lines. A sink may be set; the default writes to stderr. Level from UWARP_LOG (error, warn, info, debug). */
#ifndef UWARP_BASE_LOG_H
#define UWARP_BASE_LOG_H

#include <stdarg.h>
#include "base/types.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

extern enum log_level log_threshold; /* LOG_LEVEL_WARN by default */

typedef void (*log_sink_fn)(void *arg, enum log_level level, const char *room, const char *text);
void log_set_sink(log_sink_fn fn, void *arg); /* NULL: stderr again */
int log_set_level(const char *name);          /* 0, -EINVAL for an unknown name */
void log_write(enum log_level level, const char *room, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static inline bool log_enabled(int level)
{
	return unlikely(level <= (int)__atomic_load_n(&log_threshold, __ATOMIC_RELAXED));
}

#define log_at(level, room, ...) \
	do { if (log_enabled(level)) log_write(level, room, __VA_ARGS__); } while (0)
#define log_error(room, ...) log_at(LOG_LEVEL_ERROR, room, __VA_ARGS__)
#define log_warn(room, ...) log_at(LOG_LEVEL_WARN, room, __VA_ARGS__)
#define log_info(room, ...) log_at(LOG_LEVEL_INFO, room, __VA_ARGS__)
#define log_debug(room, ...) log_at(LOG_LEVEL_DEBUG, room, __VA_ARGS__)

/* True at most @burst times a second for each call site: for lines that a peer can cause. */
struct log_limit { u64 window_s; unsigned int count; };
bool log_allow(struct log_limit *l, unsigned int burst);

#endif
