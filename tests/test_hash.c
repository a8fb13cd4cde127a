/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base/hash.c: against an array of flags. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/rand.h"

struct item {
	struct hash_node node;
	u64 key;
	bool in;
	unsigned int seen;
};

static struct hash_table table;

static bool item_eq(const struct hash_node *n, const void *key)
{
	return container_of(n, struct item, node)->key == *(const u64 *)key;
}

static void item_add(struct item *it)
{
	hash_add(&table, &it->node, hash_of(&table, &it->key, sizeof(it->key)));
	it->in = true;
}

static void item_del(struct item *it)
{
	hash_del(&table, &it->node);
	it->in = false;
}

static struct item *item_find(u64 key)
{
	struct hash_node *n = hash_find(&table, hash_of(&table, &key, sizeof(key)), item_eq, &key);

	return n ? container_of(n, struct item, node) : NULL;
}

static struct item *items_new(size_t n)
{
	struct item *it = calloc(n, sizeof(*it));
	size_t i;

	assert_non_null(it);
	for (i = 0; i < n; i++)
		it[i].key = i * 0x10001;
	return it;
}

static void assert_finds(struct item *it, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		assert_ptr_equal(item_find(it[i].key), it[i].in ? &it[i] : NULL);
}

static void test_siphash(void **state)
{
	/* The reference vector of the SipHash paper, appendix A. */
	static const u8 expected[8] = { 0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1 };
	u8 key[HASH_KEY_BYTES], in[15];
	unsigned int i;
	u64 hash;

	(void)state;
	for (i = 0; i < sizeof(key); i++)
		key[i] = (u8)i;
	memcpy(in, key, sizeof(in));
	assert_int_equal(hash_init(&table, key), 0);
	hash = hash_of(&table, in, sizeof(in));
	assert_memory_equal(&hash, expected, sizeof(expected));
	hash_destroy(&table);
}

static void test_random_keys_differ(void **state)
{
	struct hash_table other;

	(void)state;
	assert_int_equal(hash_init(&table, NULL), 0);
	assert_int_equal(hash_init(&other, NULL), 0);
	assert_memory_not_equal(table.key, other.key, HASH_KEY_BYTES);
	assert_true(hash_of(&table, "x", 1) != hash_of(&other, "x", 1));
	hash_destroy(&table);
	hash_destroy(&other);
}

static void test_basic(void **state)
{
	struct item *it = items_new(3);

	(void)state;
	assert_int_equal(hash_init(&table, NULL), 0);
	assert_null(item_find(0));
	item_add(&it[0]);
	item_add(&it[1]);
	assert_int_equal(table.count, 2);
	assert_finds(it, 3);
	item_del(&it[0]);
	assert_finds(it, 3);
	item_del(&it[1]);
	assert_int_equal(table.count, 0);
	assert_finds(it, 3);
	hash_destroy(&table);
	free(it);
}

/* All in one chain: equal hashes are told apart by the key. */
static void test_equal_hashes(void **state)
{
	struct item *it = items_new(200);
	unsigned int i;

	(void)state;
	assert_int_equal(hash_init(&table, NULL), 0);
	for (i = 0; i < 200; i++)
		hash_add(&table, &it[i].node, 42);
	for (i = 0; i < 200; i++)
		assert_ptr_equal(hash_find(&table, 42, item_eq, &it[i].key), &it[i].node);
	for (i = 0; i < 200; i += 2)
		hash_del(&table, &it[i].node);
	for (i = 0; i < 200; i++)
		assert_ptr_equal(hash_find(&table, 42, item_eq, &it[i].key), i % 2 ? &it[i].node : NULL);
	hash_destroy(&table);
	free(it);
}

/* Every node is found at every moment of every resize. */
static void test_found_while_growing(void **state)
{
	struct item *it = items_new(1200);
	unsigned int i, drains = 0;

	(void)state;
	assert_int_equal(hash_init(&table, NULL), 0);
	for (i = 0; i < 1200; i++) {
		item_add(&it[i]);
		drains += !!table.old;
		assert_finds(it, 1200);
	}
	assert_true(drains > 100);
	assert_true(table.mask + 1 >= 1024);
	hash_destroy(&table);
	free(it);
}

/* Large enough for mapped arrays, which go away piece by piece. */
static void test_grow_and_shrink_large(void **state)
{
	const size_t n = 150000;
	struct item *it = items_new(n);
	size_t i, peak;

	(void)state;
	assert_int_equal(hash_init(&table, NULL), 0);
	for (i = 0; i < n; i++)
		item_add(&it[i]);
	assert_finds(it, n);
	peak = table.mask + 1;
	assert_true(peak >= n && peak <= 4 * n);
	for (i = 100; i < n; i++)
		item_del(&it[i]);
	/* Insertions shrink it, and deletions in between look in the right array. */
	for (i = 100; i < n && table.mask + 1 > 2048; i++) {
		item_add(&it[i]);
		assert_ptr_equal(item_find(it[i - 50].key), it[i - 50].in ? &it[i - 50] : NULL);
		item_del(&it[i]);
	}
	assert_int_equal(table.count, 100);
	assert_true(table.mask + 1 <= 2048);
	assert_finds(it, n);
	hash_destroy(&table);
	free(it);
}

static void test_destroy_while_draining(void **state)
{
	static const size_t counts[] = { 65, 70, 1030, 16400, 33000, 140000 };
	struct item *it = items_new(140000);
	size_t i, c;

	(void)state;
	for (c = 0; c < ARRAY_SIZE(counts); c++) {
		assert_int_equal(hash_init(&table, NULL), 0);
		for (i = 0; i < counts[c]; i++)
			item_add(&it[i]);
		assert_non_null(table.old);
		hash_destroy(&table);
	}
	free(it);
}

static bool see(struct hash_node *n, void *arg)
{
	container_of(n, struct item, node)->seen++;
	return --*(size_t *)arg > 0;
}

static bool see_and_del(struct hash_node *n, void *arg)
{
	struct item *it = container_of(n, struct item, node);

	it->seen++;
	if (it->key % 3 == 0) {
		hash_del(arg, n);
		memset(&it->node, 0xa5, sizeof(it->node)); /* as if freed */
		it->in = false;
	}
	return true;
}

static void test_walk(void **state)
{
	static const size_t counts[] = { 0, 1, 64, 65, 70, 500, 1030 };
	struct item *it;
	size_t c, i, left, seen;

	(void)state;
	for (c = 0; c < ARRAY_SIZE(counts); c++) {
		it = items_new(2000);
		assert_int_equal(hash_init(&table, NULL), 0);
		for (i = 0; i < counts[c]; i++)
			item_add(&it[i]);
		left = 10; /* stops early */
		hash_walk(&table, see, &left);
		for (i = seen = 0; i < 2000; i++, it[i - 1].seen = 0)
			seen += it[i].seen;
		assert_int_equal(seen, min(counts[c], (size_t)10));
		hash_walk(&table, see_and_del, &table);
		for (i = 0; i < 2000; i++)
			assert_int_equal(it[i].seen, i < counts[c]);
		assert_finds(it, 2000);
		hash_destroy(&table);
		free(it);
	}
}

static void random_round(struct rand_gen *g, size_t n)
{
	struct item *it = items_new(n);
	size_t i, count = 0;
	double fill = 0.5;

	assert_int_equal(hash_init(&table, NULL), 0);
	for (i = 0; i < 40 * n; i++) {
		struct item *x = &it[rand_gen_below(g, n)];

		if (i % (4 * n) == 0) /* tides, for growth and shrinking to meet */
			fill = (double)rand_gen_below(g, 3) / 2;
		assert_ptr_equal(item_find(x->key), x->in ? x : NULL);
		if (x->in && !rand_gen_chance(g, fill)) {
			item_del(x);
			count--;
		} else if (!x->in && rand_gen_chance(g, fill + 0.02)) {
			item_add(x);
			count++;
		}
		assert_int_equal(table.count, count);
	}
	assert_finds(it, n);
	hash_destroy(&table);
	free(it);
}

static void test_random(void **state)
{
	struct rand_gen g;
	unsigned int seed;

	(void)state;
	for (seed = 0; seed < 20; seed++) {
		rand_gen_seed(&g, seed);
		rand_set_seed(seed);
		random_round(&g, 1 + rand_gen_below(&g, 5000));
	}
	rand_unset_seed();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_siphash),
		cmocka_unit_test(test_random_keys_differ),
		cmocka_unit_test(test_basic),
		cmocka_unit_test(test_equal_hashes),
		cmocka_unit_test(test_found_while_growing),
		cmocka_unit_test(test_grow_and_shrink_large),
		cmocka_unit_test(test_destroy_while_draining),
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
