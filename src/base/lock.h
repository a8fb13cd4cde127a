/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: mutexes that cost a load and a branch while the process has one thread, as a simulation has: there is nobody to keep
 * out. glibc knows (<sys/single_threaded.h>): it says so until the first thread is created.
 *
 * Rule: no thread is created while a mutex is held that was taken here, for then it is not held. So what is called under one (a
 * log sink, a trace) creates none. Who waits on a condition variable waits for another thread, so there is one, and the mutex is held.
 */
#ifndef UWARP_BASE_LOCK_H
#define UWARP_BASE_LOCK_H

#include <pthread.h>
#include "base/types.h"

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
static inline bool single_threaded(void) { return __libc_single_threaded; }
#else
static inline bool single_threaded(void) { return false; }
#endif

static inline void mutex_lock(pthread_mutex_t *m)
{
	if (!single_threaded())
		pthread_mutex_lock(m);
}

static inline void mutex_unlock(pthread_mutex_t *m)
{
	if (!single_threaded())
		pthread_mutex_unlock(m);
}

/* Add to a counter that several threads may change; the value before. The order is for reference counts. */
static inline u32 count_up(u32 *n)
{
	return single_threaded() ? (*n)++ : __atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
}

static inline u32 count_down(u32 *n)
{
	return single_threaded() ? (*n)-- : __atomic_fetch_sub(n, 1, __ATOMIC_ACQ_REL);
}

#endif
