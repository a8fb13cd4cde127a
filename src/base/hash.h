/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: keyed (SipHash-2-4) intrusive hash table that grows, and
 * shrinks, with its load, a few buckets per insertion, so that no single call stalls. The key
 * is secret to the table: a peer cannot choose collisions.
 */
#ifndef UWARP_BASE_HASH_H
#define UWARP_BASE_HASH_H

#include "base/types.h"

#define HASH_KEY_BYTES 16

struct hash_node {
	struct hash_node *next;
	u64 hash;
};

struct hash_table {
	u8 key[HASH_KEY_BYTES];
	struct hash_node **bucket;      /* current array */
	struct hash_node **old;         /* array being drained, or NULL */
	size_t mask, old_mask;
	size_t drained;                 /* next old bucket to move */
	size_t count;
};

typedef bool (*hash_eq_fn)(const struct hash_node *n, const void *key);

/* @key: HASH_KEY_BYTES secret bytes, NULL for random ones. 0 or -ENOMEM. */
int hash_init(struct hash_table *t, const u8 *key);
/* Frees the arrays; nodes are the caller's. */
void hash_destroy(struct hash_table *t);
/* SipHash-2-4 of @len bytes under the table's key. */
u64 hash_of(const struct hash_table *t, const void *key, size_t len);
/*
 * Without a key, and cheaper: for tables whose entries this process chooses by itself (its own addresses and
 * numbers), so that no peer can fill a chain. @addr: four words.
 */
static inline u64 hash_own(u64 number, const u32 *addr)
{
	u64 h = (number ^ ((u64)addr[0] << 32 | addr[1])) * 0x9E3779B97F4A7C15ull;

	h = (h ^ h >> 32 ^ ((u64)addr[2] << 32 | addr[3])) * 0x9E3779B97F4A7C15ull;
	return h ^ h >> 32;
}
/* Insert; duplicates are the caller's to avoid. Cannot fail: without memory to grow, chains get longer. */
void hash_add(struct hash_table *t, struct hash_node *n, u64 hash);
void hash_del(struct hash_table *t, struct hash_node *n);

/* The one chain @hash can be in: buckets of the old array from t->drained on are still in use. */
static inline struct hash_node **hash_chain(const struct hash_table *t, u64 hash)
{
	if (unlikely(t->old) && (hash & t->old_mask) >= t->drained)
		return &t->old[hash & t->old_mask];
	return &t->bucket[hash & t->mask];
}

/**
 * hash_find() - look a node up
 * @t: the table
 * @hash: hash_of() the key
 * @eq: compares a node with @key; called only for nodes whose hash is @hash
 * @key: handed to @eq
 *
 * Inline, so that @eq can be inlined too.
 *
 * Return: the first node that matches, or NULL.
 */
static inline struct hash_node *hash_find(const struct hash_table *t, u64 hash, hash_eq_fn eq,
					  const void *key)
{
	struct hash_node *n;

	for (n = *hash_chain(t, hash); n; n = n->next)
		if (n->hash == hash && likely(eq(n, key)))
			return n;
	return NULL;
}

/* Walk all: @fn may delete the node it is given and nothing else; stops when @fn returns false. */
void hash_walk(struct hash_table *t, bool (*fn)(struct hash_node *n, void *arg), void *arg);

#endif
