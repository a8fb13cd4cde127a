/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base/rand.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/rand.h"

static void test_splitmix(void **state)
{
	static const u64 expected[] = { 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f,
					0xf88bb8a8724c81ec };
	struct rand_gen g;

	(void)state;
	rand_gen_seed(&g, 0);
	assert_memory_equal(g.s, expected, sizeof(expected));
}

static void test_xoshiro(void **state)
{
	static const u64 expected[] = { 11520, 0, 1509978240, 1215971899390074240 };
	struct rand_gen g = { { 1, 2, 3, 4 } };
	unsigned int i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(expected); i++)
		assert_true(rand_gen_u64(&g) == expected[i]);
}

static void test_below(void **state)
{
	static const u64 bounds[] = { 1, 2, 3, 1000, 1ull << 32, (1ull << 63) + 1, UINT64_MAX };
	struct rand_gen g;
	unsigned int i, j;

	(void)state;
	rand_gen_seed(&g, 1);
	for (i = 0; i < ARRAY_SIZE(bounds); i++)
		for (j = 0; j < 10000; j++)
			assert_true(rand_gen_below(&g, bounds[i]) < bounds[i]);
}

static void test_below_is_uniform(void **state)
{
	unsigned int count[7] = { 0 }, thirds[3] = { 0 }, i;
	u64 n = 3ull << 62; /* where a plain remainder would favour the lowest third */
	struct rand_gen g;

	(void)state;
	rand_gen_seed(&g, 2);
	for (i = 0; i < 70000; i++)
		count[rand_gen_below(&g, 7)]++;
	for (i = 0; i < 7; i++)
		assert_in_range(count[i], 9500, 10500);
	for (i = 0; i < 30000; i++)
		thirds[rand_gen_below(&g, n) >> 62]++;
	for (i = 0; i < 3; i++)
		assert_in_range(thirds[i], 9500, 10500);
}

static void test_chance(void **state)
{
	struct rand_gen g;
	unsigned int i, hits = 0;

	(void)state;
	rand_gen_seed(&g, 3);
	for (i = 0; i < 10000; i++) {
		assert_false(rand_gen_chance(&g, 0));
		assert_false(rand_gen_chance(&g, -1));
		assert_true(rand_gen_chance(&g, 1));
		hits += rand_gen_chance(&g, 0.1);
	}
	assert_in_range(hits, 850, 1150);
}

static void test_seeded_is_repeatable(void **state)
{
	u8 a[100], b[100], c[100];

	(void)state;
	rand_set_seed(7);
	rand_secure(a, 33);
	rand_secure(a + 33, 67);
	rand_set_seed(7);
	rand_secure(b, 33);
	rand_secure(b + 33, 67);
	rand_set_seed(8);
	rand_secure(c, sizeof(c));
	assert_memory_equal(a, b, sizeof(a));
	assert_memory_not_equal(a, c, sizeof(a));
	rand_unset_seed();
	rand_secure(b, sizeof(b));
	rand_secure(c, sizeof(c));
	assert_memory_not_equal(b, c, sizeof(b));
}

static void *secure_in_thread(void *buf)
{
	rand_secure(buf, 16);
	return NULL;
}

static void test_seed_is_per_thread(void **state)
{
	u8 here[16], there[16];
	pthread_t thread;

	(void)state;
	rand_set_seed(7);
	assert_int_equal(pthread_create(&thread, NULL, secure_in_thread, there), 0);
	pthread_join(thread, NULL);
	rand_secure(here, sizeof(here));
	rand_unset_seed();
	assert_memory_not_equal(here, there, sizeof(here));
}

/* Exactly @len bytes are written, for all lengths on both sides of the store's limits. */
static void test_lengths(void **state)
{
	static const size_t lens[] = { 0, 1, 3, 4, 7, 8, 9, 63, 64, 65, 511, 512, 513 };
	u8 buf[600], zero[600] = { 0 };
	unsigned int i, j, seeded;

	(void)state;
	for (seeded = 0; seeded < 2; seeded++) {
		if (seeded)
			rand_set_seed(1);
		for (i = 0; i < ARRAY_SIZE(lens); i++) {
			for (j = 0; j < 50; j++) {
				memset(buf, 0, sizeof(buf));
				rand_secure(buf, lens[i]);
				assert_memory_equal(buf + lens[i], zero, sizeof(buf) - lens[i]);
				if (lens[i] >= 8)
					assert_memory_not_equal(buf, zero, lens[i]);
			}
		}
	}
	rand_unset_seed();
}

static void test_no_repeats(void **state)
{
	static u64 v[2000];
	unsigned int i, j;

	(void)state;
	for (i = 0; i < 2000; i++) {
		rand_secure(&v[i], sizeof(v[i]));
		for (j = 0; j < i; j++)
			assert_true(v[i] != v[j]);
	}
}

static void test_fork(void **state)
{
	u8 mine[16], theirs[16];
	int fd[2], status;
	pid_t pid;

	(void)state;
	rand_secure(mine, sizeof(mine)); /* the store is filled */
	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (!pid) {
		rand_secure(theirs, sizeof(theirs));
		_exit(write(fd[1], theirs, sizeof(theirs)) != sizeof(theirs));
	}
	assert_true(pid > 0);
	rand_secure(mine, sizeof(mine));
	assert_int_equal(read(fd[0], theirs, sizeof(theirs)), sizeof(theirs));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_memory_not_equal(mine, theirs, sizeof(mine));
	close(fd[0]);
	close(fd[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_splitmix),
		cmocka_unit_test(test_xoshiro),
		cmocka_unit_test(test_below),
		cmocka_unit_test(test_below_is_uniform),
		cmocka_unit_test(test_chance),
		cmocka_unit_test(test_seeded_is_repeatable),
		cmocka_unit_test(test_seed_is_per_thread),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_no_repeats),
		cmocka_unit_test(test_fork),
	};

	return cmocka_run_group_tests_name("rand", tests, NULL, NULL);
}
