// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Mutexes and conditions on futexes.
 *
 * A mutex is free, held, or wanted: held, and somebody may be asleep for it. Who has to wait makes it wanted before he sleeps, and takes it as wanted when he wakes, for he does not
 * know whether he was the only one; so who gives a wanted one wakes one sleeper, and a wake-up too many is the worst that comes of it. The memory may be
 * gone by the time of the wake-up, if the next holder frees it: the kernel takes the address as a name only.
 *
 * A condition counts its wake-ups. Who waits reads the count with the mutex held, and does not fall asleep if it has changed since.
 *
 * The system calls are no cancellation points, and errno stays as it was: a program's thread may be in here.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/lock.h"

static void futex(u32 *word, int op, u32 value)
{
	int saved = errno;

	syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
	errno = saved;
}

/**
 * mutex_wait() - take a mutex that was not free
 * @m: the mutex
 */
void mutex_wait(struct mutex *m)
{
	while (__atomic_exchange_n(&m->state, MUTEX_WANTED, __ATOMIC_SEQ_CST) != MUTEX_FREE)
		futex(&m->state, FUTEX_WAIT, MUTEX_WANTED);
}

/**
 * mutex_wake() - somebody was waiting for a mutex that was given up
 * @m: the mutex, or where it was
 */
void mutex_wake(struct mutex *m)
{
	futex(&m->state, FUTEX_WAKE, 1);
}

/**
 * cond_wait() - wait for cond_broadcast()
 * @c: the condition
 * @m: its mutex, held; given up meanwhile
 *
 * May return without cause: whoever calls looks again.
 */
void cond_wait(struct cond *c, struct mutex *m)
{
	u32 wakes = __atomic_load_n(&c->wakes, __ATOMIC_RELAXED);

	c->waiters++;
	mutex_give(m);
	futex(&c->wakes, FUTEX_WAIT, wakes);
	mutex_take(m);
	c->waiters--;
}

/**
 * cond_broadcast() - wake all who wait
 * @c: the condition, its mutex held
 */
void cond_broadcast(struct cond *c)
{
	if (!c->waiters)
		return;
	__atomic_fetch_add(&c->wakes, 1, __ATOMIC_RELAXED);
	futex(&c->wakes, FUTEX_WAKE, INT_MAX);
}
