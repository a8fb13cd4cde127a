/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: the clock, its timers, and ordered work. A loop is run by one thread at a time: the NIC
 * thread on the host port, whoever steps the simulation on the wire port (whose virtual time it
 * then is). Timers and work may be posted from any thread; their functions run in the loop's
 * thread with no loop lock held.
 */
#ifndef UWARP_BASE_LOOP_H
#define UWARP_BASE_LOOP_H

#include <pthread.h>
#include <time.h>
#include "base/lock.h"
#include "base/types.h"
#include "base/wheel.h"

#define LOOP_TICK_NS NSEC_PER_USEC /* timers have a resolution of one microsecond */

struct loop;

struct timer_list {
	struct wheel_timer wt;
	void (*function)(struct timer_list *t);
	struct loop *loop;
};

struct work_struct {
	TAILQ_ENTRY(work_struct) entry;
	void (*func)(struct work_struct *w);
	struct workq *wq; /* queue it is on, NULL when it is not queued */
};
TAILQ_HEAD(work_list, work_struct);

/* An ordered queue: items run one at a time, in the order they were queued. */
struct workq {
	struct loop *loop;
	struct work_list items;
	TAILQ_ENTRY(workq) ready;
	bool is_ready;        /* it is on the loop's ready list: it has items */
};
TAILQ_HEAD(workq_list, workq);

struct loop {
	struct mutex lock;     /* timers, ready queues */
	u64 now_ns;               /* read once per entry; virtual on the wire port */
	struct wheel timers;      /* ticks of LOOP_TICK_NS */
	struct workq_list ready;
	void (*wake)(struct loop *l, void *arg); /* called, unlocked, when another thread should look: sooner timer or new work */
	void *wake_arg;
	pthread_t owner;          /* thread inside loop_run(), or between loop_enter() and loop_leave() */
	bool has_owner;           /* then no wake is needed: the owner looks before it sleeps */
	bool running;             /* inside loop_run() */
};

void loop_init(struct loop *l, u64 now_ns);
void loop_destroy(struct loop *l);
u64 loop_monotonic_ns(void); /* CLOCK_MONOTONIC */
static inline u64 loop_now(const struct loop *l) { return __atomic_load_n(&l->now_ns, __ATOMIC_RELAXED); }
void loop_set_now(struct loop *l, u64 now_ns);
/* Run timers due at loop_now() and all ready work, until neither is left; true if anything ran. */
bool loop_run(struct loop *l);
/*
 * Bracket what the loop's own thread does besides loop_run() (reading sockets, say), so that the
 * timers and work it posts do not wake it. Call loop_run() and loop_next_ns() before sleeping.
 */
void loop_enter(struct loop *l);
void loop_leave(struct loop *l);
/* Earliest time at which loop_run() may have something to do: now if work is ready, UINT64_MAX if nothing at all. */
u64 loop_next_ns(struct loop *l);

void timer_setup(struct timer_list *t, struct loop *l, void (*fn)(struct timer_list *));
/*
 * Arm for @expires_ns (absolute, loop time), moving an armed timer. Never runs early. A deadline
 * that has passed runs in the next loop_run(); one armed during loop_run() a tick later, so that
 * loop_run() ends.
 */
void mod_timer(struct timer_list *t, u64 expires_ns);
/* Disarm; the function may be running in the loop's thread. True if it was armed. */
bool timer_del(struct timer_list *t);

static inline void work_setup(struct work_struct *w, void (*func)(struct work_struct *))
{
	w->func = func;
	w->wq = NULL;
}

void workq_init(struct workq *q, struct loop *l);
/* Queue @w unless it is queued already (then false); @w and its queues belong to one loop. */
bool workq_queue(struct workq *q, struct work_struct *w);
/* Remove @w before it runs; false if it is not queued (it may be running). */
bool workq_cancel(struct work_struct *w);

#endif
