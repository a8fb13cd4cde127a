/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: hash table. While it resizes there are two arrays. Each insertion drains a little of the
 * old one into the new one, from bucket 0 upwards; a node whose old bucket is not drained yet lives,
 * and is inserted, in the old array. So a hash alone tells which chain a node is in. Only
 * insertions resize: deletion moves nothing, and is safe inside a walk.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/hash.h"
#include "base/rand.h"

#define HASH_MIN_BUCKETS 64u

/*
 * Work of one insertion while draining. A growing table holds one node per bucket and is drained
 * after at most half as many insertions as it had nodes; a shrinking one is nearly empty, and
 * drained long before it could fill the smaller array.
 */
#define HASH_DRAIN_NODES 2u
#define HASH_DRAIN_BUCKETS 16u

/*
 * Arrays from here on are mapped: no memset when they come, and given back piece by piece while
 * they drain, not in one long call. It is also the size of a piece: 64 KiB, a whole number of pages.
 */
#define HASH_PIECE_BUCKETS (65536u / sizeof(struct hash_node *))

static struct hash_node **array_new(size_t buckets)
{
	size_t bytes = buckets * sizeof(struct hash_node *);
	void *p;

	if (buckets <= HASH_PIECE_BUCKETS)
		return calloc(1, bytes);
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

/* @drained: buckets whose pieces array_drained() has given back already. */
static void array_free(struct hash_node **a, size_t buckets, size_t drained)
{
	size_t gone = drained - drained % HASH_PIECE_BUCKETS;

	if (buckets <= HASH_PIECE_BUCKETS)
		free(a);
	else if (buckets > gone)
		munmap(a + gone, (buckets - gone) * sizeof(*a));
}

/* Give the piece before bucket @drained back if that was its end. */
static void array_drained(struct hash_node **a, size_t buckets, size_t drained)
{
	if (buckets <= HASH_PIECE_BUCKETS || drained % HASH_PIECE_BUCKETS)
		return;
	munmap(a + drained - HASH_PIECE_BUCKETS, HASH_PIECE_BUCKETS * sizeof(*a));
}

/**
 * hash_init() - empty table
 * @t: the table
 * @key: HASH_KEY_BYTES secret bytes, NULL for random ones
 *
 * Return: 0, or -ENOMEM.
 */
int hash_init(struct hash_table *t, const u8 *key)
{
	*t = (struct hash_table){ .mask = HASH_MIN_BUCKETS - 1 };
	if (key)
		memcpy(t->key, key, sizeof(t->key));
	else
		rand_secure(t->key, sizeof(t->key));
	t->bucket = array_new(HASH_MIN_BUCKETS);
	return t->bucket ? 0 : -ENOMEM;
}

/**
 * hash_destroy() - free the arrays
 * @t: the table; its nodes are the caller's
 */
void hash_destroy(struct hash_table *t)
{
	if (t->old)
		array_free(t->old, t->old_mask + 1, t->drained);
	if (t->bucket)
		array_free(t->bucket, t->mask + 1, 0);
	sodium_memzero(t->key, sizeof(t->key));
	t->bucket = t->old = NULL;
	t->count = 0;
}

/*
 * SipHash-2-4 (Aumasson and Bernstein, 2012). libsodium has it too, but half of what that costs for a key of two words is
 * the way there.
 */

struct sip { u64 a, b, c, d; };

static inline u64 rotl(u64 x, int n)
{
	return x << n | x >> (64 - n);
}

static inline void sip_round(struct sip *s)
{
	s->a += s->b;
	s->c += s->d;
	s->b = rotl(s->b, 13) ^ s->a;
	s->d = rotl(s->d, 16) ^ s->c;
	s->a = rotl(s->a, 32);
	s->c += s->b;
	s->a += s->d;
	s->b = rotl(s->b, 17) ^ s->c;
	s->d = rotl(s->d, 21) ^ s->a;
	s->c = rotl(s->c, 32);
}

static inline void sip_word(struct sip *s, u64 word)
{
	s->d ^= word;
	sip_round(s);
	sip_round(s);
	s->a ^= word;
}

static inline u64 load_le(const u8 *p, size_t len)
{
	u64 v = 0;

	memcpy(&v, p, len);
	return le64toh(v);
}

/**
 * hash_of() - SipHash-2-4 under the table's key
 * @t: the table
 * @key: bytes to hash; padding in a struct must have been cleared
 * @len: how many
 *
 * Return: the hash, for hash_add() and hash_find().
 */
u64 hash_of(const struct hash_table *t, const void *key, size_t len)
{
	u64 k0 = load_le(t->key, 8), k1 = load_le(t->key + 8, 8);
	struct sip s = {
		k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull,
		k0 ^ 0x6c7967656e657261ull, k1 ^ 0x7465646279746573ull,
	};
	u64 last = (u64)len << 56;
	const u8 *p = key;

	for (; len >= 8; p += 8, len -= 8)
		sip_word(&s, load_le(p, 8));
	if (len)
		last |= load_le(p, len);
	sip_word(&s, last);
	s.c ^= 0xff;
	sip_round(&s);
	sip_round(&s);
	sip_round(&s);
	sip_round(&s);
	return htole64(s.a ^ s.b ^ s.c ^ s.d);
}

static void chain_push(struct hash_node **chain, struct hash_node *n)
{
	n->next = *chain;
	*chain = n;
}

/* Move the next old bucket over; returns the number of nodes it held. */
static unsigned int drain_bucket(struct hash_table *t)
{
	struct hash_node *n, *next;
	unsigned int moved = 0;

	for (n = t->old[t->drained]; n; n = next) {
		next = n->next;
		chain_push(&t->bucket[n->hash & t->mask], n);
		moved++;
	}
	t->drained++;
	array_drained(t->old, t->old_mask + 1, t->drained);
	return moved;
}

static void drain_some(struct hash_table *t)
{
	unsigned int buckets = 0, nodes = 0;

	while (buckets++ < HASH_DRAIN_BUCKETS && nodes < HASH_DRAIN_NODES) {
		nodes += drain_bucket(t);
		if (t->drained > t->old_mask) {
			array_free(t->old, t->old_mask + 1, t->drained);
			t->old = NULL;
			return;
		}
	}
}

/* Without memory for the new array everything stays, with longer chains. */
static void resize(struct hash_table *t, size_t buckets)
{
	struct hash_node **a = array_new(buckets);

	if (!a)
		return;
	t->old = t->bucket;
	t->old_mask = t->mask;
	t->drained = 0;
	t->bucket = a;
	t->mask = buckets - 1;
}

/* A quarter when less than an eighth is used: wide enough apart not to go to and fro. */
static void balance(struct hash_table *t)
{
	size_t buckets = t->mask + 1;

	if (unlikely(t->old))
		drain_some(t);
	else if (unlikely(t->count >= buckets))
		resize(t, 2 * buckets);
	else if (unlikely(t->count < buckets / 8) && buckets > HASH_MIN_BUCKETS)
		resize(t, max(buckets / 4, (size_t)HASH_MIN_BUCKETS));
}

/**
 * hash_add() - insert a node
 * @t: the table
 * @n: node that is in no table; duplicates of a key are the caller's to avoid
 * @hash: hash_of() its key
 *
 * Cannot fail. Does a bounded part of a resize that is under way.
 */
void hash_add(struct hash_table *t, struct hash_node *n, u64 hash)
{
	balance(t);
	n->hash = hash;
	chain_push(hash_chain(t, hash), n);
	t->count++;
}

/**
 * hash_del() - remove a node
 * @t: the table
 * @n: node that is in @t (asserted)
 */
void hash_del(struct hash_table *t, struct hash_node *n)
{
	struct hash_node **p = hash_chain(t, n->hash);

	while (*p && *p != n)
		p = &(*p)->next;
	assert(*p);
	*p = n->next;
	n->next = NULL;
	t->count--;
}

static bool walk_array(struct hash_node **a, size_t from, size_t to,
		       bool (*fn)(struct hash_node *n, void *arg), void *arg)
{
	struct hash_node *n, *next;

	for (; from < to; from++) {
		for (n = a[from]; n; n = next) {
			next = n->next;
			if (!fn(n, arg))
				return false;
		}
	}
	return true;
}

/**
 * hash_walk() - visit all nodes, in no order
 * @t: the table
 * @fn: may delete (and free) the node it is given, and change nothing else; false stops the walk
 * @arg: handed to @fn
 */
void hash_walk(struct hash_table *t, bool (*fn)(struct hash_node *n, void *arg), void *arg)
{
	if (t->old && !walk_array(t->old, t->drained, t->old_mask + 1, fn, arg))
		return;
	walk_array(t->bucket, 0, t->mask + 1, fn, arg);
}
