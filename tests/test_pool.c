/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base/pool.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/pool.h"
#include "base/rand.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define IS_POISONED(p) __asan_address_is_poisoned(p)
#else
#define IS_POISONED(p) ((void)(p), 1)
#endif

static void test_sizes(void **state)
{
	static const size_t sizes[] = { 0, 1, 8, 15, 16, 17, 64, 1000, 65535, 65536, 200000 };
	struct pool pool;
	size_t i, j;
	u8 *obj[5];

	(void)state;
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		pool_init(&pool, sizes[i], 0);
		assert_true(pool.size >= sizes[i] && pool.size >= 16 && pool.size % 16 == 0);
		for (j = 0; j < 5; j++) {
			obj[j] = pool_get(&pool);
			assert_non_null(obj[j]);
			assert_int_equal((uintptr_t)obj[j] % 16, 0);
			memset(obj[j], (int)j, pool.size);
		}
		for (j = 0; j < 5; j++) {
			assert_int_equal(obj[j][0], j); /* nobody else's */
			assert_int_equal(obj[j][pool.size - 1], j);
			pool_put(&pool, obj[j]);
		}
		pool_destroy(&pool);
	}
}

static void test_cache_line(void **state)
{
	struct pool pool;
	void *obj[2000];
	unsigned int i;

	(void)state;
	pool_init(&pool, 192, 0);
	for (i = 0; i < 2000; i++) {
		obj[i] = pool_get(&pool);
		assert_int_equal((uintptr_t)obj[i] % 64, 0);
	}
	for (i = 0; i < 2000; i++)
		pool_put(&pool, obj[i]);
	pool_destroy(&pool);
}

static void test_limit(void **state)
{
	struct pool pool;
	void *a, *b;

	(void)state;
	pool_init(&pool, 100, 2);
	a = pool_get(&pool);
	b = pool_get(&pool);
	assert_null(pool_get(&pool));
	assert_int_equal(pool.used, 2);
	pool_put(&pool, a);
	assert_ptr_equal(pool_get(&pool), a);
	assert_null(pool_get(&pool));
	pool_put(&pool, a);
	pool_put(&pool, b);
	assert_int_equal(pool.used, 0);
	assert_int_equal(pool.peak, 2);
	pool_destroy(&pool);
}

static void test_no_memory(void **state)
{
	struct pool pool;

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || defined(__SANITIZE_THREAD__) || \
	__has_feature(thread_sanitizer)
	skip(); /* sanitizers abort rather than return NULL */
#endif
	pool_init(&pool, SIZE_MAX / 2, 0);
	assert_null(pool_get(&pool));
	assert_int_equal(pool.used, 0);
	pool_destroy(&pool);
}

static void test_poison(void **state)
{
	struct pool pool;
	u8 *a, *b;

	(void)state;
	pool_init(&pool, 100, 0);
	a = pool_get(&pool);
	assert_true(IS_POISONED(a + pool.size)); /* the neighbour, never out */
	b = pool_get(&pool);
	memset(b, 0, pool.size);
	pool_put(&pool, a);
	assert_true(IS_POISONED(a));
	assert_true(IS_POISONED(a + pool.size - 1));
	a = pool_get(&pool);
	memset(a, 0, pool.size);
	pool_put(&pool, a);
	pool_put(&pool, b);
	pool_destroy(&pool);
}

static void test_destroy_and_again(void **state)
{
	struct pool pool;
	void *obj;

	(void)state;
	pool_init(&pool, 64, 0);
	pool_destroy(&pool);
	obj = pool_get(&pool); /* an emptied pool still works */
	assert_non_null(obj);
	pool_put(&pool, obj);
	pool_destroy(&pool);
}

/* Each object out carries its own number all over; overlaps would show. */
static void test_random(void **state)
{
	enum { SLOTS = 3000, WORDS = 13 };
	static u64 *out[SLOTS];
	struct pool pool;
	struct rand_gen g;
	size_t i, j, used = 0;

	(void)state;
	rand_gen_seed(&g, 1);
	pool_init(&pool, WORDS * sizeof(u64), 2500);
	for (i = 0; i < 200000; i++) {
		size_t k = rand_gen_below(&g, SLOTS);

		if (out[k]) {
			for (j = 0; j < WORDS; j++)
				assert_true(out[k][j] == k);
			pool_put(&pool, out[k]);
			out[k] = NULL;
			used--;
		} else if ((out[k] = pool_get(&pool))) {
			for (j = 0; j < WORDS; j++)
				out[k][j] = k;
			used++;
		} else {
			assert_int_equal(used, 2500);
		}
		assert_int_equal(pool.used, used);
	}
	for (i = 0; i < SLOTS; i++)
		if (out[i])
			pool_put(&pool, out[i]);
	pool_destroy(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_cache_line),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_poison),
		cmocka_unit_test(test_destroy_and_again),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
