/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base/loop.c: order and clock in one thread, wakes, and a stress for -fsanitize=thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/loop.h"
#include "base/rand.h"

static struct loop loop;
static char trace[256];
static unsigned int wakes;

static void count_wake(struct loop *l, void *arg)
{
	assert_true(mutex_try_take(&l->lock)); /* unlocked */
	mutex_give(&l->lock);
	++*(unsigned int *)arg;
}

static int setup(void **state)
{
	(void)state;
	loop_init(&loop, 1000000);
	loop.wake = count_wake;
	loop.wake_arg = &wakes;
	wakes = 0;
	trace[0] = '\0';
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	loop_destroy(&loop);
	return 0;
}

static void note(char c)
{
	size_t n = strlen(trace);

	assert_true(mutex_try_take(&loop.lock)); /* no function runs under the lock */
	mutex_give(&loop.lock);
	assert_true(n + 1 < sizeof(trace));
	trace[n] = c;
	trace[n + 1] = '\0';
}

struct named_timer {
	struct timer_list timer;
	char name;
	u64 again_ns; /* re-arm this much later */
	u64 ran_at_ns;
};

static void timer_fn(struct timer_list *t)
{
	struct named_timer *nt = container_of(t, struct named_timer, timer);

	note(nt->name);
	nt->ran_at_ns = loop_now(t->loop);
	if (nt->again_ns)
		mod_timer(t, loop_now(t->loop) + nt->again_ns);
}

static void named_setup(struct named_timer *nt, char name)
{
	*nt = (struct named_timer){ .name = name };
	timer_setup(&nt->timer, &loop, timer_fn);
}

static void run_at(u64 now_ns, bool any, const char *expected)
{
	trace[0] = '\0';
	loop_set_now(&loop, now_ns);
	assert_int_equal(loop_run(&loop), any);
	assert_string_equal(trace, expected);
}

static void test_nothing(void **state)
{
	(void)state;
	assert_false(loop_run(&loop));
	assert_true(loop_next_ns(&loop) == UINT64_MAX);
	assert_true(loop_now(&loop) == 1000000);
	loop_set_now(&loop, 999999); /* not backwards */
	assert_true(loop_now(&loop) == 1000000);
}

static void test_monotonic(void **state)
{
	u64 a = loop_monotonic_ns(), b = loop_monotonic_ns();

	(void)state;
	assert_true(a && b >= a);
}

static void test_timer_order(void **state)
{
	struct named_timer a, b, c;

	(void)state;
	named_setup(&a, 'a');
	named_setup(&b, 'b');
	named_setup(&c, 'c');
	mod_timer(&a.timer, 3000000);
	mod_timer(&b.timer, 2000000);
	mod_timer(&c.timer, 3000000);
	assert_true(loop_next_ns(&loop) <= 2000000);
	run_at(1999999, false, "");
	run_at(2000000, true, "b");
	mod_timer(&b.timer, 2500000);
	assert_true(timer_del(&b.timer));
	assert_false(timer_del(&b.timer));
	run_at(4000000, true, "ac");
	assert_true(loop_next_ns(&loop) == UINT64_MAX);
}

/* Deadlines are rounded up to the tick, the clock down. */
static void test_never_early(void **state)
{
	struct named_timer a;

	(void)state;
	named_setup(&a, 'a');
	mod_timer(&a.timer, 1000001);
	assert_true(loop_next_ns(&loop) == 1001000);
	run_at(1000999, false, "");
	run_at(1001000, true, "a");
	mod_timer(&a.timer, 1002000);
	run_at(1001999, false, "");
	run_at(1002000, true, "a");
}

static void test_past_deadline(void **state)
{
	struct named_timer a;

	(void)state;
	named_setup(&a, 'a');
	mod_timer(&a.timer, 1000000);
	assert_true(loop_next_ns(&loop) == 1000000);
	run_at(1000000, true, "a");
	mod_timer(&a.timer, 0);
	assert_true(loop_next_ns(&loop) == 1000000);
	run_at(1000000, true, "a");
}

static void test_far_deadlines(void **state)
{
	struct named_timer a, b;

	(void)state;
	named_setup(&a, 'a');
	named_setup(&b, 'b');
	mod_timer(&a.timer, UINT64_MAX);
	mod_timer(&b.timer, 400ull * 86400 * NSEC_PER_SEC);
	run_at(399ull * 86400 * NSEC_PER_SEC, false, "");
	run_at(400ull * 86400 * NSEC_PER_SEC, true, "b");
	run_at(UINT64_MAX, false, ""); /* rounded up, it lies a tick further */
	assert_true(loop_next_ns(&loop) == UINT64_MAX);
	assert_true(timer_del(&a.timer));
}

static void rearm_now(struct timer_list *t)
{
	note('r');
	mod_timer(t, loop_now(&loop));
}

/* It would never end if "now" were now. */
static void test_rearm_for_now_ends(void **state)
{
	struct timer_list t;

	(void)state;
	timer_setup(&t, &loop, rearm_now);
	mod_timer(&t, 0);
	run_at(1000000, true, "r");
	assert_true(loop_next_ns(&loop) == 1001000);
	run_at(1001000, true, "r");
	timer_del(&t);
}

static void test_rearm(void **state)
{
	struct named_timer a;

	(void)state;
	named_setup(&a, 'a');
	a.again_ns = 5000;
	mod_timer(&a.timer, 1005000);
	run_at(1005000, true, "a");
	run_at(1009000, false, "");
	run_at(1010000, true, "a");
	assert_true(timer_del(&a.timer));
}

static void free_timer(struct timer_list *t)
{
	note('f');
	free(t);
}

static void test_timer_frees_itself(void **state)
{
	struct timer_list *t = malloc(sizeof(*t));

	(void)state;
	assert_non_null(t);
	timer_setup(t, &loop, free_timer);
	mod_timer(t, 1005000);
	run_at(1005000, true, "f");
}

static struct named_timer *victim;

static void del_victim(struct timer_list *t)
{
	(void)t;
	note('d');
	timer_del(&victim->timer);
}

/* Both are due; the first disarms the second. */
static void test_timer_deletes_due_timer(void **state)
{
	struct named_timer a;
	struct timer_list d;

	(void)state;
	named_setup(&a, 'a');
	victim = &a;
	timer_setup(&d, &loop, del_victim);
	mod_timer(&d, 1001000);
	mod_timer(&a.timer, 1001000);
	run_at(1001000, true, "d");
}

struct named_work {
	struct work_struct work;
	struct workq *requeue;
	unsigned int times;
	char name;
	bool frees;
};

static void work_fn(struct work_struct *w)
{
	struct named_work *nw = container_of(w, struct named_work, work);

	assert_null(w->wq);
	note(nw->name);
	if (nw->times && nw->times--)
		assert_true(workq_queue(nw->requeue, w));
	else if (nw->frees)
		free(nw);
}

static struct named_work *named_work(struct named_work *nw, char name)
{
	*nw = (struct named_work){ .name = name };
	work_setup(&nw->work, work_fn);
	return nw;
}

static void test_work_fifo(void **state)
{
	struct named_work w[5];
	struct workq q;
	unsigned int i;

	(void)state;
	workq_init(&q, &loop);
	for (i = 0; i < 5; i++)
		assert_true(workq_queue(&q, &named_work(&w[i], (char)('a' + i))->work));
	assert_false(workq_queue(&q, &w[2].work));
	assert_true(loop_next_ns(&loop) == loop_now(&loop));
	assert_true(workq_cancel(&w[1].work));
	assert_false(workq_cancel(&w[1].work));
	run_at(1000000, true, "acde");
	assert_false(q.is_ready);
	assert_false(workq_cancel(&w[0].work));
	assert_true(workq_queue(&q, &w[1].work));
	run_at(1000000, true, "b");
}

static void test_round_robin(void **state)
{
	struct named_work w[6];
	struct workq q[3];
	unsigned int i;

	(void)state;
	for (i = 0; i < 3; i++)
		workq_init(&q[i], &loop);
	workq_queue(&q[0], &named_work(&w[0], 'a')->work);
	workq_queue(&q[0], &named_work(&w[1], 'b')->work);
	workq_queue(&q[0], &named_work(&w[2], 'c')->work);
	workq_queue(&q[1], &named_work(&w[3], 'x')->work);
	workq_queue(&q[1], &named_work(&w[4], 'y')->work);
	workq_queue(&q[2], &named_work(&w[5], '1')->work);
	run_at(1000000, true, "ax1byc");
}

static void test_cancel_empties_queue(void **state)
{
	struct named_work a, b;
	struct workq q, r;

	(void)state;
	workq_init(&q, &loop);
	workq_init(&r, &loop);
	workq_queue(&q, &named_work(&a, 'a')->work);
	workq_queue(&r, &named_work(&b, 'b')->work);
	assert_true(workq_cancel(&a.work));
	assert_false(q.is_ready);
	run_at(1000000, true, "b");
	workq_queue(&q, &a.work);
	run_at(1000000, true, "a");
}

static void test_requeue_and_free(void **state)
{
	struct named_work *w = malloc(sizeof(*w)), b;
	struct workq q;

	(void)state;
	assert_non_null(w);
	workq_init(&q, &loop);
	named_work(w, 'w');
	w->requeue = &q;
	w->times = 2;
	w->frees = true;
	workq_queue(&q, &w->work);
	workq_queue(&q, &named_work(&b, 'b')->work);
	run_at(1000000, true, "wbww");
}

struct owned_queue {
	struct workq q;
	struct work_struct last;
};

static void free_queue(struct work_struct *w)
{
	note('q');
	free(container_of(w, struct owned_queue, last));
}

static void test_queue_freed_by_its_last_item(void **state)
{
	struct owned_queue *o = malloc(sizeof(*o));

	(void)state;
	assert_non_null(o);
	workq_init(&o->q, &loop);
	work_setup(&o->last, free_queue);
	workq_queue(&o->q, &o->last);
	run_at(1000000, true, "q");
}

static struct named_timer chained;

static void arm_chained(struct work_struct *w)
{
	(void)w;
	note('w');
	mod_timer(&chained.timer, loop_now(&loop) + 1000);
	loop_set_now(&loop, loop_now(&loop) + 1000); /* time moves on while running */
}

static void test_time_moves_while_running(void **state)
{
	struct work_struct w;
	struct workq q;

	(void)state;
	named_setup(&chained, 't');
	work_setup(&w, arm_chained);
	workq_init(&q, &loop);
	workq_queue(&q, &w);
	run_at(1000000, true, "wt");
	assert_true(chained.ran_at_ns == 1001000);
}

static void run_nested(struct work_struct *w)
{
	(void)w;
	note('(');
	loop_run(&loop);
	note(')');
}

static void test_nested(void **state)
{
	struct named_work b;
	struct work_struct w;
	struct workq q;

	(void)state;
	workq_init(&q, &loop);
	work_setup(&w, run_nested);
	workq_queue(&q, &w);
	workq_queue(&q, &named_work(&b, 'b')->work);
	run_at(1000000, true, "(b)");
	assert_false(loop.has_owner);
	assert_false(loop.running);
}

static void test_wakes(void **state)
{
	struct named_timer a, b;
	struct named_work w, v;
	struct workq q;

	(void)state;
	named_setup(&a, 'a');
	named_setup(&b, 'b');
	workq_init(&q, &loop);
	mod_timer(&a.timer, 1010000);
	assert_int_equal(wakes, 1);
	mod_timer(&b.timer, 1020000); /* later than what is slept for */
	assert_int_equal(wakes, 1);
	mod_timer(&b.timer, 1005000);
	assert_int_equal(wakes, 2);
	timer_del(&b.timer);
	assert_int_equal(wakes, 2);
	workq_queue(&q, &named_work(&w, 'w')->work);
	assert_int_equal(wakes, 3);
	workq_queue(&q, &named_work(&v, 'v')->work); /* it was woken for the first */
	assert_int_equal(wakes, 3);
	run_at(1010000, true, "awv");
	assert_int_equal(wakes, 3);
}

static struct workq owner_q;
static struct named_timer owner_timer;
static struct named_work owner_work;

static void post_all(void)
{
	named_setup(&owner_timer, 't');
	mod_timer(&owner_timer.timer, loop_now(&loop) + 1000);
	workq_queue(&owner_q, &named_work(&owner_work, 'w')->work);
}

static void post_all_fn(struct work_struct *w)
{
	(void)w;
	note('p');
	post_all();
}

static void test_owner_is_not_woken(void **state)
{
	struct work_struct poster;

	(void)state;
	workq_init(&owner_q, &loop);
	work_setup(&poster, post_all_fn);
	workq_queue(&owner_q, &poster);
	assert_int_equal(wakes, 1);
	run_at(1000000, true, "pw");
	run_at(1001000, true, "t");
	assert_int_equal(wakes, 1);
	loop_enter(&loop);
	post_all();
	loop_leave(&loop);
	assert_int_equal(wakes, 1);
	assert_true(loop_next_ns(&loop) == 1001000);
	loop_enter(&loop);
	run_at(1002000, true, "tw"); /* inside the bracket too */
	assert_true(loop.has_owner);
	loop_leave(&loop);
	assert_false(loop.has_owner);
}

static void test_no_wake_function(void **state)
{
	(void)state;
	loop.wake = NULL;
	workq_init(&owner_q, &loop);
	post_all();
	run_at(1001000, true, "tw");
}

/* Threads: one sleeps and runs as a NIC thread does, others post, and take back. */

#define POSTERS 3
#define POSTS 4000

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool woken, stop;
	u64 ran, timers; /* the loop's thread only */
} nic;

static void nic_wake(struct loop *l, void *arg)
{
	(void)l;
	(void)arg;
	pthread_mutex_lock(&nic.lock);
	nic.woken = true;
	pthread_cond_signal(&nic.cond);
	pthread_mutex_unlock(&nic.lock);
}

/* Virtual time: it jumps to what is slept for. Returns false when told to stop with nothing left. */
static bool nic_sleep(u64 next_ns)
{
	bool go_on = true;

	pthread_mutex_lock(&nic.lock);
	while (!nic.woken && !nic.stop && next_ns == UINT64_MAX)
		pthread_cond_wait(&nic.cond, &nic.lock);
	if (!nic.woken && next_ns != UINT64_MAX)
		loop_set_now(&loop, next_ns);
	else if (!nic.woken && nic.stop)
		go_on = false;
	nic.woken = false;
	pthread_mutex_unlock(&nic.lock);
	return go_on;
}

static void *nic_thread(void *arg)
{
	(void)arg;
	do
		loop_run(&loop);
	while (nic_sleep(loop_next_ns(&loop)));
	return NULL;
}

struct job {
	struct work_struct work;
	struct timer_list timer;
};

static void job_work(struct work_struct *w)
{
	nic.ran++;
	free(container_of(w, struct job, work));
}

static void job_timer(struct timer_list *t)
{
	nic.timers++;
	free(container_of(t, struct job, timer));
}

static struct workq shared_q;

struct poster {
	pthread_t thread;
	u64 seed, ran, timers; /* what should have run */
	struct workq q;
	struct work_struct work;
	struct timer_list timer;
};

static void post_work(struct poster *p, struct job *j)
{
	work_setup(&j->work, job_work);
	assert_true(workq_queue(p->seed % 2 ? &p->q : &shared_q, &j->work));
	p->ran++;
}

static void post_timer(struct poster *p, struct job *j, u64 delay_ns)
{
	timer_setup(&j->timer, &loop, job_timer);
	mod_timer(&j->timer, loop_now(&loop) + delay_ns);
	p->timers++;
}

/* These two are moved and taken back at any moment; they live until the loop's thread is gone. */
static void ignore_timer(struct timer_list *t)
{
	(void)t;
}

static void ignore_work(struct work_struct *w)
{
	(void)w;
}

static void *poster_thread(void *arg)
{
	struct poster *p = arg;
	struct rand_gen g;
	unsigned int i;

	work_setup(&p->work, ignore_work);
	timer_setup(&p->timer, &loop, ignore_timer);
	rand_gen_seed(&g, p->seed);
	for (i = 0; i < POSTS; i++) {
		if (rand_gen_chance(&g, 0.5))
			post_work(p, malloc(sizeof(struct job)));
		else
			post_timer(p, malloc(sizeof(struct job)), rand_gen_below(&g, 5000000));
		mod_timer(&p->timer, loop_now(&loop) + rand_gen_below(&g, 100000));
		workq_queue(&shared_q, &p->work);
		if (i % 3 == 0)
			timer_del(&p->timer);
		if (i % 5 == 0)
			workq_cancel(&p->work);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct poster p[POSTERS];
	pthread_t thread;
	u64 ran = 0, timers = 0;
	unsigned int i;

	(void)state;
	pthread_mutex_init(&nic.lock, NULL);
	pthread_cond_init(&nic.cond, NULL);
	loop.wake = nic_wake;
	workq_init(&shared_q, &loop);
	assert_int_equal(pthread_create(&thread, NULL, nic_thread, NULL), 0);
	for (i = 0; i < POSTERS; i++) {
		p[i] = (struct poster){ .seed = i };
		workq_init(&p[i].q, &loop);
		assert_int_equal(pthread_create(&p[i].thread, NULL, poster_thread, &p[i]), 0);
	}
	for (i = 0; i < POSTERS; i++) {
		pthread_join(p[i].thread, NULL);
		ran += p[i].ran;
		timers += p[i].timers;
	}
	pthread_mutex_lock(&nic.lock);
	nic.stop = true;
	pthread_cond_signal(&nic.cond);
	pthread_mutex_unlock(&nic.lock);
	pthread_join(thread, NULL);
	assert_true(nic.ran == ran && nic.timers == timers);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nothing),
		TEST(test_monotonic),
		TEST(test_timer_order),
		TEST(test_never_early),
		TEST(test_past_deadline),
		TEST(test_far_deadlines),
		TEST(test_rearm_for_now_ends),
		TEST(test_rearm),
		TEST(test_timer_frees_itself),
		TEST(test_timer_deletes_due_timer),
		TEST(test_work_fifo),
		TEST(test_round_robin),
		TEST(test_cancel_empties_queue),
		TEST(test_requeue_and_free),
		TEST(test_queue_freed_by_its_last_item),
		TEST(test_time_moves_while_running),
		TEST(test_nested),
		TEST(test_wakes),
		TEST(test_owner_is_not_woken),
		TEST(test_no_wake_function),
		TEST(test_threads),
	};

	return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
