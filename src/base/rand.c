/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base: random numbers. */
#include <assert.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include "base/rand.h"

static u64 rotl(u64 x, int k)
{
	return x << k | x >> (64 - k);
}

/**
 * rand_gen_seed() - start a generator
 * @g: the generator
 * @seed: any number; equal seeds give equal sequences
 *
 * The state comes from SplitMix64, as the authors of xoshiro advise: it cannot be all zero.
 */
void rand_gen_seed(struct rand_gen *g, u64 seed)
{
	unsigned int i;
	u64 z;

	for (i = 0; i < ARRAY_SIZE(g->s); i++) {
		z = seed += 0x9e3779b97f4a7c15ull;
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ z >> 27) * 0x94d049bb133111ebull;
		g->s[i] = z ^ z >> 31;
	}
}

/**
 * rand_gen_u64() - the next 64 bits (xoshiro256**)
 * @g: the generator
 *
 * Return: a number that is not secret.
 */
u64 rand_gen_u64(struct rand_gen *g)
{
	u64 *s = g->s;
	u64 result = rotl(s[1] * 5, 7) * 9;
	u64 t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return result;
}

/**
 * rand_gen_below() - a number in a range, without bias
 * @g: the generator
 * @n: greater than 0
 *
 * Lemire's method: the high half of a product, drawn again in the few cases that would be unfair.
 *
 * Return: uniform in [0, @n).
 */
u64 rand_gen_below(struct rand_gen *g, u64 n)
{
	unsigned __int128 product;

	assert(n);
	product = (unsigned __int128)rand_gen_u64(g) * n;
	if (unlikely((u64)product < n)) {
		u64 unfair = -n % n;

		while ((u64)product < unfair)
			product = (unsigned __int128)rand_gen_u64(g) * n;
	}
	return (u64)(product >> 64);
}

/**
 * rand_gen_chance() - a biased coin
 * @g: the generator; always advanced by one number, so that a run does not depend on @p
 * @p: probability; 0 and less is never, 1 and more is always
 *
 * Return: true with probability @p.
 */
bool rand_gen_chance(struct rand_gen *g, double p)
{
	return (double)(rand_gen_u64(g) >> 11) * 0x1p-53 < p;
}

static __thread struct rand_gen seeded;
static __thread bool is_seeded;

/**
 * rand_set_seed() - this thread is in a simulation
 * @seed: rand_secure() in this thread derives from it until rand_unset_seed()
 */
void rand_set_seed(u64 seed)
{
	rand_gen_seed(&seeded, seed);
	is_seeded = true;
}

/**
 * rand_unset_seed() - the simulation of this thread is over
 */
void rand_unset_seed(void)
{
	is_seeded = false;
}

static void fill_seeded(u8 *p, size_t len)
{
	size_t n;
	u64 word;

	for (; len; p += n, len -= n) {
		word = rand_gen_u64(&seeded);
		n = min(len, sizeof(word));
		memcpy(p, &word, n);
	}
}

/*
 * libsodium asks the kernel on each call; a key or a sequence number per connection would cost a
 * system call. So each thread keeps a little in store. A child of fork() must not hand out
 * what its parent does: it finds its store of an older generation.
 */
#define STORE_BYTES 512

static __thread struct {
	u8 bytes[STORE_BYTES];
	size_t left;
	unsigned int generation;
} store;

static unsigned int generation = 1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forked(void)
{
	generation++;
}

static void init_once(void)
{
	if (sodium_init() < 0 || pthread_atfork(NULL, NULL, forked))
		abort();
}

static void store_take(void *buf, size_t len)
{
	if (store.left < len || store.generation != generation) {
		randombytes_buf(store.bytes, sizeof(store.bytes));
		store.left = sizeof(store.bytes);
		store.generation = generation;
	}
	store.left -= len;
	memcpy(buf, store.bytes + store.left, len);
	memset(store.bytes + store.left, 0, len); /* what is out is no longer here to be read */
}

/**
 * rand_secure() - unpredictable bytes
 * @buf: where to
 * @len: how many
 *
 * libsodium's, except in a thread that called rand_set_seed().
 */
void rand_secure(void *buf, size_t len)
{
	if (is_seeded) {
		fill_seeded(buf, len);
		return;
	}
	pthread_once(&once, init_once);
	if (len <= STORE_BYTES / 8)
		store_take(buf, len);
	else
		randombytes_buf(buf, len);
}
