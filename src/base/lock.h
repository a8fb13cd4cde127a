/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: mutexes of one word, for what is locked for each message or connection: taking and giving a free one is an atomic instruction each, without a call. glibc's
 * mutexes need sixty more for the two, which was a fifth of what a round trip of 8 bytes and a connection cost us. Theory of operation: lock.c.
 *
 * They cost a load and a branch while the process has one thread, as a simulation has: there is nobody to keep out. glibc knows (<sys/single_threaded.h>): it
 * says so until the first thread is created.
 *
 * Rule: no thread is created while a mutex is held that was taken here, for then it is not held. So what is called under one (a
 * log sink, a trace) creates none. Who waits for a condition waits for another thread, so there is one, and the mutex is held.
 */
#ifndef UWARP_BASE_LOCK_H
#define UWARP_BASE_LOCK_H

#include "base/types.h"

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
static inline bool single_threaded(void) { return __libc_single_threaded; }
#else
static inline bool single_threaded(void) { return false; }
#endif

enum mutex_state { MUTEX_FREE, MUTEX_HELD, MUTEX_WANTED /* held, and somebody may be asleep */ };

/* All zero: free. Nothing is to be done at its end. */
struct mutex {
	u32 state; /* enum mutex_state; atomic */
};

/* Used with one mutex, and woken with that held. All zero: nobody waits. */
struct cond {
	u32 wakes;   /* atomic */
	u32 waiters; /* under the mutex */
};

/* lock.c */
void mutex_wait(struct mutex *m);
void mutex_wake(struct mutex *m);
void cond_wait(struct cond *c, struct mutex *m);
void cond_broadcast(struct cond *c);

/* Whether the process has one thread or not. True: it is taken. */
static inline bool mutex_try_take(struct mutex *m)
{
	u32 state = MUTEX_FREE;

	return __atomic_compare_exchange_n(&m->state, &state, MUTEX_HELD, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static inline void mutex_take(struct mutex *m)
{
	if (unlikely(!mutex_try_take(m)))
		mutex_wait(m);
}

/* What is loaded behind it (__ATOMIC_SEQ_CST) is no older than this: who leaves a note and then fails to take the mutex is seen. */
static inline void mutex_give(struct mutex *m)
{
	if (unlikely(__atomic_exchange_n(&m->state, MUTEX_FREE, __ATOMIC_SEQ_CST) == MUTEX_WANTED))
		mutex_wake(m);
}

static inline bool mutex_trylock(struct mutex *m)
{
	return single_threaded() || mutex_try_take(m);
}

static inline void mutex_lock(struct mutex *m)
{
	if (!single_threaded())
		mutex_take(m);
}

static inline void mutex_unlock(struct mutex *m)
{
	if (!single_threaded())
		mutex_give(m);
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
