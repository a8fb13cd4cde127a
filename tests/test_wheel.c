/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base/wheel.c: against a naive model that looks at every timer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include "base/rand.h"
#include "base/wheel.h"

#define REACH ((1ull << 42) - (1ull << 36)) /* beyond it, order within a tick is not promised */

static struct wheel wheel;

static void assert_expires(u64 now, struct wheel_timer *t)
{
	assert_ptr_equal(wheel_expire(&wheel, now), t);
}

static void test_empty(void **state)
{
	(void)state;
	wheel_init(&wheel, 5);
	assert_true(wheel_next(&wheel) == UINT64_MAX);
	assert_expires(1ull << 60, NULL);
	assert_true(wheel.now == 1ull << 60);
	assert_expires(7, NULL); /* never backwards */
	assert_true(wheel.now == 1ull << 60);
}

static void test_one(void **state)
{
	struct wheel_timer t = { 0 };

	(void)state;
	wheel_init(&wheel, 100);
	wheel_del(&wheel, &t);
	wheel_add(&wheel, &t, 110);
	assert_true(t.armed);
	assert_int_equal(wheel.count, 1);
	assert_true(wheel_next(&wheel) == 110);
	assert_expires(109, NULL);
	assert_expires(110, &t);
	assert_false(t.armed);
	assert_int_equal(wheel.count, 0);
	assert_expires(110, NULL);
	wheel_add(&wheel, &t, 120);
	wheel_del(&wheel, &t);
	wheel_del(&wheel, &t);
	assert_true(wheel_next(&wheel) == UINT64_MAX);
	assert_expires(1000, NULL);
}

static void test_past_is_due(void **state)
{
	struct wheel_timer t[3] = { 0 };

	(void)state;
	wheel_init(&wheel, 100);
	wheel_add(&wheel, &t[0], 0);
	wheel_add(&wheel, &t[1], 101);
	wheel_add(&wheel, &t[2], 100);
	assert_true(wheel_next(&wheel) == 100);
	assert_expires(100, &t[0]);
	assert_expires(100, &t[2]);
	assert_expires(100, NULL);
	assert_true(wheel_next(&wheel) == 101);
	assert_expires(101, &t[1]);
}

static void test_fifo_within_tick(void **state)
{
	struct wheel_timer t[20] = { 0 };
	unsigned int i;

	(void)state;
	wheel_init(&wheel, 0);
	/* Filed on different levels: time passes between the additions. */
	for (i = 0; i < 20; i++) {
		wheel_add(&wheel, &t[i], 1000000);
		assert_expires((i + 1) * 49999, NULL);
	}
	wheel_add(&wheel, &t[3], 1000000); /* moved to the end */
	for (i = 0; i < 20; i++)
		if (i != 3)
			assert_expires(1000000, &t[i]);
	assert_expires(1000000, &t[3]);
	assert_expires(1000000, NULL);
}

static void test_rearm_moves(void **state)
{
	struct wheel_timer t = { 0 };

	(void)state;
	wheel_init(&wheel, 0);
	wheel_add(&wheel, &t, 50);
	wheel_add(&wheel, &t, 70);
	assert_int_equal(wheel.count, 1);
	assert_expires(69, NULL);
	wheel_add(&wheel, &t, 75);
	assert_expires(74, NULL);
	assert_expires(75, &t);
}

/* Around each level's border, from each side of it. */
static void test_borders(void **state)
{
	static const s64 offset[] = { -2, -1, 0, 1, 2 };
	struct wheel_timer t = { 0 };
	unsigned int bits, i, j;

	(void)state;
	for (bits = 3; bits < 50; bits++) {
		for (i = 0; i < 5; i++) {
			for (j = i; j < 5; j++) {
				u64 now = (1ull << bits) + (u64)offset[i];
				u64 due = (1ull << bits) + (u64)offset[j];

				wheel_init(&wheel, now);
				wheel_add(&wheel, &t, due);
				assert_true(wheel_next(&wheel) <= due);
				if (due > now)
					assert_expires(due - 1, NULL);
				assert_expires(due, &t);
			}
		}
	}
}

static void test_beyond_reach(void **state)
{
	static const u64 distance[] = { REACH - 1, REACH, REACH + 1, 1ull << 42, 1ull << 43, 1ull << 50 };
	struct wheel_timer t = { 0 }, never = { 0 };
	unsigned int i;
	u64 now = 12345;

	(void)state;
	wheel_init(&wheel, now);
	wheel_add(&wheel, &never, UINT64_MAX);
	for (i = 0; i < ARRAY_SIZE(distance); i++) {
		wheel_add(&wheel, &t, now + distance[i]);
		assert_expires(now + distance[i] - 1, NULL);
		now += distance[i];
		assert_expires(now, &t);
		assert_expires(now, NULL);
	}
	assert_true(never.armed);
	assert_expires(UINT64_MAX - 1, NULL);
	assert_expires(UINT64_MAX, &never);
	assert_expires(UINT64_MAX, NULL);
}

/* A jump must not cost a step per tick: this would take years. */
static void test_huge_jump(void **state)
{
	struct wheel_timer t[2] = { 0 };
	unsigned int i;

	(void)state;
	wheel_init(&wheel, 0);
	for (i = 0; i < 100000; i++) {
		u64 now = wheel.now;

		wheel_add(&wheel, &t[0], now + 3600000000ull);
		wheel_add(&wheel, &t[1], now + 7200000000ull);
		assert_expires(now + 90000000000ull, &t[0]);
		assert_expires(now + 90000000000ull, &t[1]);
		assert_expires(now + 90000000000ull, NULL);
	}
}

/* What is added while a jump is handed out still comes in its order; what is deleted does not. */
static void test_change_between_calls(void **state)
{
	struct wheel_timer t[5] = { 0 };

	(void)state;
	wheel_init(&wheel, 0);
	wheel_add(&wheel, &t[0], 100);
	wheel_add(&wheel, &t[1], 100);
	wheel_add(&wheel, &t[2], 90000);
	assert_expires(100000, &t[0]);
	wheel_add(&wheel, &t[0], 5000);
	wheel_add(&wheel, &t[3], 95000);
	wheel_del(&wheel, &t[1]);
	assert_expires(100000, &t[0]);
	wheel_add(&wheel, &t[4], 4999); /* past by now: next */
	wheel_del(&wheel, &t[2]);
	assert_expires(100000, &t[4]);
	assert_expires(100000, &t[3]);
	assert_expires(100000, NULL);
}

/* The model. */

#define MODEL_TIMERS 200

static struct model_timer {
	struct wheel_timer t;
	u64 order; /* of the last addition */
	bool armed;
} model[MODEL_TIMERS];
static u64 model_order, model_now;

static struct model_timer *model_first(void)
{
	struct model_timer *best = NULL, *m;

	for (m = model; m < model + MODEL_TIMERS; m++) {
		if (!m->armed)
			continue;
		if (!best || m->t.expires < best->t.expires ||
		    (m->t.expires == best->t.expires && m->order < best->order))
			best = m;
	}
	return best;
}

static void model_add(struct rand_gen *g, struct model_timer *m)
{
	/* Any magnitude up to @magnitude bits; often few, so that ticks are shared. */
	u64 distance = 1 + rand_gen_below(g, 1ull << rand_gen_below(g, 41));

	wheel_add(&wheel, &m->t, model_now + distance);
	m->armed = true;
	m->order = model_order++;
}

static void model_advance(u64 now)
{
	struct wheel_timer *t;
	struct model_timer *m;

	model_now = now;
	while ((t = wheel_expire(&wheel, now))) {
		m = model_first();
		assert_ptr_equal(t, &m->t);
		assert_true(t->expires <= now);
		m->armed = false;
	}
	m = model_first();
	assert_true(!m || m->t.expires > now);
}

static void model_check(void)
{
	struct model_timer *first = model_first(), *m;
	u64 next = wheel_next(&wheel);
	size_t armed = 0;

	for (m = model; m < model + MODEL_TIMERS; m++) {
		assert_int_equal(m->armed, m->t.armed);
		armed += m->armed;
	}
	assert_int_equal(armed, wheel.count);
	assert_true(first ? next > model_now && next <= first->t.expires : next == UINT64_MAX);
}

static void model_step(struct rand_gen *g)
{
	struct model_timer *m = &model[rand_gen_below(g, MODEL_TIMERS)];

	switch (rand_gen_below(g, 8)) {
	case 0:
		wheel_del(&wheel, &m->t);
		m->armed = false;
		break;
	case 1:
		model_advance(model_now + rand_gen_below(g, 1ull << rand_gen_below(g, 41)));
		break;
	case 2:
		if (wheel.count)
			model_advance(wheel_next(&wheel));
		break;
	default:
		model_add(g, m);
	}
}

static void test_random(void **state)
{
	struct rand_gen g;
	unsigned int seed, i;

	(void)state;
	for (seed = 0; seed < 50; seed++) {
		rand_gen_seed(&g, seed);
		model_now = rand_gen_below(&g, 1ull << (1 + rand_gen_below(&g, 50)));
		wheel_init(&wheel, model_now);
		for (i = 0; i < MODEL_TIMERS; i++)
			model[i] = (struct model_timer){ .armed = false };
		for (i = 0; i < 4000; i++) {
			model_step(&g);
			if (i % 16 == 0)
				model_check();
		}
		model_advance(model_now + (1ull << 43));
		assert_int_equal(wheel.count, 0);
	}
}

/* Beyond the reach only the tick is promised. */
static void test_random_far(void **state)
{
	static struct wheel_timer t[500];
	struct wheel_timer *due;
	struct rand_gen g;
	unsigned int i, n = 0;
	u64 last = 0;

	(void)state;
	rand_gen_seed(&g, 1);
	wheel_init(&wheel, 1ull << 41);
	for (i = 0; i < 500; i++)
		wheel_add(&wheel, &t[i], rand_gen_below(&g, 1ull << (20 + rand_gen_below(&g, 44))));
	while ((due = wheel_expire(&wheel, UINT64_MAX)) && n++ < 500) {
		u64 tick = max(due->expires, 1ull << 41);

		assert_true(tick >= last && wheel.now == tick);
		last = tick;
	}
	assert_int_equal(n, 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_one),
		cmocka_unit_test(test_past_is_due),
		cmocka_unit_test(test_fifo_within_tick),
		cmocka_unit_test(test_rearm_moves),
		cmocka_unit_test(test_borders),
		cmocka_unit_test(test_beyond_reach),
		cmocka_unit_test(test_huge_jump),
		cmocka_unit_test(test_change_between_calls),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_random_far),
	};

	return cmocka_run_group_tests_name("wheel", tests, NULL, NULL);
}
