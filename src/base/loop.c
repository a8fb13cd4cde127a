/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: the loop. One lock covers the wheel, the queues and who owns the loop; it is held for a
 * few instructions at a time, and never around a function of the user's.
 *
 * Waking: the thread that runs the loop sleeps until loop_next_ns(), so a wake is due when
 * that time becomes earlier while nobody owns the loop. While somebody does, none is: the owner
 * gives the loop up under the lock, and looks at loop_next_ns() after that.
 */
#include <assert.h>
#include "base/loop.h"

/**
 * loop_init() - loop without timers or work
 * @l: the loop
 * @now_ns: its time
 *
 * The caller sets wake and wake_arg if another thread will run the loop.
 */
void loop_init(struct loop *l, u64 now_ns)
{
	l->now_ns = now_ns;
	l->wake = NULL;
	l->wake_arg = NULL;
	l->has_owner = false;
	l->running = false;
	l->lock = (struct mutex){ 0 };
	wheel_init(&l->timers, now_ns / LOOP_TICK_NS);
	TAILQ_INIT(&l->ready);
}

/**
 * loop_destroy() - end a loop that nobody runs
 * @l: the loop; what is still armed or queued is forgotten
 */
void loop_destroy(struct loop *l)
{
	assert(!l->has_owner);
}

/**
 * loop_monotonic_ns() - the real clock, for loops that run on it
 *
 * Return: CLOCK_MONOTONIC in nanoseconds.
 */
u64 loop_monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

/**
 * loop_set_now() - move the loop's time
 * @l: the loop, of this thread
 * @now_ns: the time; an earlier one than loop_now() is ignored
 */
void loop_set_now(struct loop *l, u64 now_ns)
{
	if (now_ns > loop_now(l))
		__atomic_store_n(&l->now_ns, now_ns, __ATOMIC_RELAXED);
}

/* The two below are called with the lock held, call the user without it, and return with it. */

static bool run_timer(struct loop *l)
{
	void (*function)(struct timer_list *t);
	struct wheel_timer *wt = wheel_expire(&l->timers, loop_now(l) / LOOP_TICK_NS);
	struct timer_list *t;

	if (!wt)
		return false;
	t = container_of(wt, struct timer_list, wt);
	function = t->function;
	mutex_unlock(&l->lock);
	function(t);
	mutex_lock(&l->lock);
	return true;
}

static void queue_not_ready(struct loop *l, struct workq *q)
{
	TAILQ_REMOVE(&l->ready, q, ready);
	q->is_ready = false;
}

static void item_remove(struct workq *q, struct work_struct *w)
{
	TAILQ_REMOVE(&q->items, w, entry);
	__atomic_store_n(&w->wq, NULL, __ATOMIC_RELAXED);
}

/* One item of the first ready queue; both may be gone after its function. */
static bool run_work(struct loop *l)
{
	struct workq *q = TAILQ_FIRST(&l->ready);
	void (*func)(struct work_struct *w);
	struct work_struct *w;

	if (!q)
		return false;
	w = TAILQ_FIRST(&q->items);
	item_remove(q, w);
	if (TAILQ_EMPTY(&q->items)) {
		queue_not_ready(l, q);
	} else if (TAILQ_NEXT(q, ready)) {
		TAILQ_REMOVE(&l->ready, q, ready);
		TAILQ_INSERT_TAIL(&l->ready, q, ready);
	}
	func = w->func;
	mutex_unlock(&l->lock);
	func(w);
	mutex_lock(&l->lock);
	return true;
}

/* Returns whether this thread owned the loop before: calls may nest. */
static bool own(struct loop *l)
{
	bool owned = l->has_owner;

	assert(!owned || pthread_equal(l->owner, pthread_self()));
	l->owner = pthread_self();
	l->has_owner = true;
	return owned;
}

/**
 * loop_run() - run what is due
 * @l: the loop; no other thread may be running it (asserted)
 *
 * Due timers go first, in the order of their deadlines, then one item of each ready queue in turn.
 *
 * Return: true if anything ran; nothing that is due is left then or otherwise.
 */
bool loop_run(struct loop *l)
{
	bool owned, running, any = false;

	mutex_lock(&l->lock);
	owned = own(l);
	running = l->running;
	l->running = true;
	while (run_timer(l) || run_work(l))
		any = true;
	l->running = running;
	l->has_owner = owned;
	mutex_unlock(&l->lock);
	return any;
}

/**
 * loop_enter() - the loop's thread begins to do other things than loop_run()
 * @l: the loop
 *
 * Until loop_leave() nothing posted to the loop, by any thread, calls wake().
 */
void loop_enter(struct loop *l)
{
	mutex_lock(&l->lock);
	assert(!l->has_owner);
	own(l);
	mutex_unlock(&l->lock);
}

/**
 * loop_leave() - the end of what loop_enter() began
 * @l: the loop; its thread calls loop_run() and loop_next_ns() before it sleeps
 */
void loop_leave(struct loop *l)
{
	mutex_lock(&l->lock);
	assert(l->has_owner && pthread_equal(l->owner, pthread_self()));
	l->has_owner = false;
	mutex_unlock(&l->lock);
}

/* A tick in nanoseconds; UINT64_MAX stays what it is. */
static u64 tick_ns(u64 tick)
{
	return tick > UINT64_MAX / LOOP_TICK_NS ? UINT64_MAX : tick * LOOP_TICK_NS;
}

/**
 * loop_next_ns() - how long to sleep
 * @l: the loop
 *
 * Return: the earliest time, in nanoseconds, at which loop_run() may have something to do: now if
 * work is ready or a deadline has passed, UINT64_MAX if there is nothing at all.
 */
u64 loop_next_ns(struct loop *l)
{
	u64 now = loop_now(l), next = now;

	mutex_lock(&l->lock);
	if (TAILQ_EMPTY(&l->ready))
		next = tick_ns(wheel_next(&l->timers));
	mutex_unlock(&l->lock);
	return max(next, now);
}

static void wake(struct loop *l)
{
	if (l->wake)
		l->wake(l, l->wake_arg);
}

/**
 * timer_setup() - prepare a timer that is not armed
 * @t: the timer
 * @l: loop whose time and thread it uses
 * @fn: called when due, with no lock held and @t disarmed: it may arm or free it
 */
void timer_setup(struct timer_list *t, struct loop *l, void (*fn)(struct timer_list *))
{
	t->wt = (struct wheel_timer){ .armed = false };
	t->function = fn;
	t->loop = l;
}

/* Called with the lock held. */
static u64 deadline_tick(const struct loop *l, u64 expires_ns)
{
	u64 tick = expires_ns / LOOP_TICK_NS + !!(expires_ns % LOOP_TICK_NS);

	/* Or a function that arms its timer for now would keep loop_run() for ever. */
	if (l->running)
		tick = max(tick, loop_now(l) / LOOP_TICK_NS + 1);
	return tick;
}

/**
 * mod_timer() - arm a timer, or move an armed one
 * @t: the timer
 * @expires_ns: absolute loop time, rounded up to the next microsecond: it never runs early
 *
 * From any thread. A deadline that has passed runs in the next loop_run(); one armed during
 * loop_run() runs a tick later.
 */
void mod_timer(struct timer_list *t, u64 expires_ns)
{
	struct loop *l = t->loop;
	bool sooner;
	u64 tick;

	mutex_lock(&l->lock);
	tick = deadline_tick(l, expires_ns);
	sooner = !l->has_owner && tick < wheel_next(&l->timers);
	wheel_add(&l->timers, &t->wt, tick);
	mutex_unlock(&l->lock);
	if (sooner)
		wake(l);
}

/**
 * timer_del() - disarm a timer
 * @t: the timer
 *
 * From any thread. Does not wait: when it returns false in another thread than the loop's, the
 * function may be about to run, or running.
 *
 * Return: true if it was armed; its function will not run then.
 */
bool timer_del(struct timer_list *t)
{
	struct loop *l = t->loop;
	bool armed;

	/* Who armed it before this call, by the caller's own ordering, is seen without the lock. */
	if (!__atomic_load_n(&t->wt.armed, __ATOMIC_RELAXED))
		return false;
	mutex_lock(&l->lock);
	armed = t->wt.armed;
	wheel_del(&l->timers, &t->wt);
	mutex_unlock(&l->lock);
	return armed;
}

/**
 * workq_init() - empty queue
 * @q: the queue; it may be freed as soon as it is empty, even by its last item's function
 * @l: loop that runs it
 */
void workq_init(struct workq *q, struct loop *l)
{
	q->loop = l;
	q->is_ready = false;
	TAILQ_INIT(&q->items);
}

/**
 * workq_queue() - queue an item
 * @q: the queue
 * @w: set up with work_setup(); off the queue before its function runs, which may queue or free it
 *
 * From any thread. Items of a queue run in the order queued.
 *
 * Return: false if @w is queued already; then it stays where it is.
 */
bool workq_queue(struct workq *q, struct work_struct *w)
{
	struct loop *l = q->loop;
	bool first;

	mutex_lock(&l->lock);
	if (w->wq) {
		mutex_unlock(&l->lock);
		return false;
	}
	__atomic_store_n(&w->wq, q, __ATOMIC_RELAXED);
	TAILQ_INSERT_TAIL(&q->items, w, entry);
	first = !l->has_owner && TAILQ_EMPTY(&l->ready);
	if (!q->is_ready) {
		TAILQ_INSERT_TAIL(&l->ready, q, ready);
		q->is_ready = true;
	}
	mutex_unlock(&l->lock);
	if (first)
		wake(l);
	return true;
}

/* Called with the lock held; false if @w is not on @q any more. */
static bool cancel_locked(struct workq *q, struct work_struct *w)
{
	if (w->wq != q)
		return false;
	item_remove(q, w);
	if (TAILQ_EMPTY(&q->items))
		queue_not_ready(q->loop, q);
	return true;
}

/**
 * workq_cancel() - take an item off its queue
 * @w: the item
 *
 * From any thread. Does not wait for a function that runs.
 *
 * Return: true if it was queued; it will not run then.
 */
bool workq_cancel(struct work_struct *w)
{
	struct workq *q;
	bool done = false;

	/* Again if it ran, and was queued elsewhere, between the look and the lock. */
	while (!done && (q = __atomic_load_n(&w->wq, __ATOMIC_RELAXED))) {
		struct loop *l = q->loop;

		mutex_lock(&l->lock);
		done = cancel_locked(q, w);
		mutex_unlock(&l->lock);
	}
	return done;
}
