/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tsa: byte rings that grow on demand.
 *
 * An idle connection holds no buffer. The first bytes get 256; when they do not fit, the ring moves
 * to the next size of 256 * 4^n. Small sizes come from the tsa's pools, which connections share.
 */
#include <stdlib.h>
#include "tsa/tsa_internal.h"

/* Smallest class with room for @need; @pool is its number. */
static u32 ring_class(u32 need, unsigned int *pool)
{
	u32 cap = TSA_BUF_CLASS_MIN;

	assert(need <= TSA_BUF_MAX);
	for (*pool = 0; cap < need; (*pool)++)
		cap <<= 2;
	return cap;
}

static u8 *buf_get(struct tsa *t, u32 cap, unsigned int pool)
{
	return pool < TSA_BUF_POOLS ? pool_get(&t->buf_pool[pool]) : malloc(cap);
}

static void buf_put(struct tsa *t, u8 *buf, u32 cap)
{
	unsigned int pool;

	ring_class(cap, &pool);
	if (pool < TSA_BUF_POOLS)
		pool_put(&t->buf_pool[pool], buf);
	else
		free(buf);
}

int tsa_ring_reserve(struct tsa *t, struct tsa_ring *r, u32 need)
{
	unsigned int pool;
	u32 cap;
	u8 *buf;

	if (likely(need <= r->cap))
		return 0;
	cap = ring_class(need, &pool);
	buf = buf_get(t, cap, pool);
	if (!buf)
		return -ENOMEM;
	if (r->buf) {
		/* All of it: bytes out of order lie behind len. */
		tsa_ring_read(r, 0, buf, r->cap);
		buf_put(t, r->buf, r->cap);
	}
	r->buf = buf;
	r->cap = cap;
	r->head = 0;
	return 0;
}

void tsa_ring_write(struct tsa_ring *r, u32 off, const u8 *src, u32 n)
{
	u32 pos = (r->head + off) & (r->cap - 1);
	u32 first = tsa_min_u32(n, r->cap - pos);

	assert(off <= r->cap && n <= r->cap - off);
	memcpy(r->buf + pos, src, first);
	if (unlikely(n > first))
		memcpy(r->buf, src + first, n - first);
}

void tsa_ring_read(const struct tsa_ring *r, u32 off, u8 *dst, u32 n)
{
	u32 pos = (r->head + off) & (r->cap - 1);
	u32 first = tsa_min_u32(n, r->cap - pos);

	assert(off <= r->cap && n <= r->cap - off);
	memcpy(dst, r->buf + pos, first);
	if (unlikely(n > first))
		memcpy(dst + first, r->buf, n - first);
}

void tsa_ring_drop(struct tsa_ring *r, u32 n)
{
	assert(n <= r->len);
	if (!n)
		return;
	r->head = (r->head + n) & (r->cap - 1);
	r->len -= n;
}

void tsa_ring_free(struct tsa *t, struct tsa_ring *r)
{
	if (r->buf)
		buf_put(t, r->buf, r->cap);
	*r = (struct tsa_ring){ 0 };
}
