/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base: objects of one size, carved from slabs; the last one put is the first one got, still warm. */
#include <assert.h>
#include <stdlib.h>
#include "base/pool.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#define POOL_ALIGN 16
#define POOL_LINE 64 /* slab header: objects whose size is a multiple of a cache line stay aligned to one */
#define POOL_SLAB_BYTES 65536

static_assert(sizeof(struct pool_slab) <= POOL_LINE, "slab header");
static_assert(sizeof(struct pool_free) <= POOL_ALIGN, "a free object holds its link");

/**
 * pool_init() - pool without memory
 * @p: the pool
 * @size: bytes of an object, rounded up to 16
 * @limit: most objects out at once; 0: no limit
 */
void pool_init(struct pool *p, size_t size, size_t limit)
{
	assert(size <= SIZE_MAX / 2);
	size = (max(size, (size_t)1) + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
	*p = (struct pool){ .size = size, .limit = limit };
}

static size_t slab_bytes(const struct pool *p)
{
	size_t one = (POOL_LINE + p->size + POOL_LINE - 1) / POOL_LINE * POOL_LINE;

	return max(one, (size_t)POOL_SLAB_BYTES);
}

static bool slab_add(struct pool *p)
{
	size_t bytes = slab_bytes(p);
	struct pool_slab *slab = aligned_alloc(POOL_LINE, bytes);

	if (!slab)
		return false;
	slab->next = p->slabs;
	p->slabs = slab;
	p->bump = (char *)slab + POOL_LINE;
	p->bump_end = (char *)slab + bytes;
	ASAN_POISON_MEMORY_REGION(p->bump, bytes - POOL_LINE);
	return true;
}

/**
 * pool_destroy() - free all slabs
 * @p: the pool; all its objects are back (asserted)
 */
void pool_destroy(struct pool *p)
{
	struct pool_slab *slab;

	assert(!p->used);
	while ((slab = p->slabs)) {
		p->slabs = slab->next;
		ASAN_UNPOISON_MEMORY_REGION(slab, slab_bytes(p));
		free(slab);
	}
	p->free = NULL;
	p->bump = p->bump_end = NULL;
}

/* The free list is empty: take an object that was never out. Rare, and kept out of the way of what is not. */
static __attribute__((noinline)) void *bump_get(struct pool *p)
{
	void *obj;

	if ((size_t)(p->bump_end - p->bump) < p->size && !slab_add(p))
		return NULL;
	obj = p->bump;
	p->bump += p->size;
	ASAN_UNPOISON_MEMORY_REGION(obj, p->size);
	return obj;
}

static void *free_get(struct pool *p)
{
	struct pool_free *obj = p->free;

	ASAN_UNPOISON_MEMORY_REGION(obj, p->size);
	p->free = obj->next;
	return obj;
}

/**
 * pool_get() - take an object
 * @p: the pool
 *
 * Return: the object, aligned to 16 bytes and not cleared; NULL at the limit or without memory.
 */
void *pool_get(struct pool *p)
{
	void *obj;

	if (unlikely(p->limit && p->used >= p->limit))
		return NULL;
	obj = likely(p->free) ? free_get(p) : bump_get(p);
	if (unlikely(!obj))
		return NULL;
	if (++p->used > p->peak)
		p->peak = p->used;
	return obj;
}

/**
 * pool_put() - give an object back
 * @p: the pool it came from
 * @obj: the object
 */
void pool_put(struct pool *p, void *obj)
{
	struct pool_free *f = obj;

	assert(p->used);
	f->next = p->free; /* under ASan this is where a second put is caught */
	p->free = f;
	p->used--;
	ASAN_POISON_MEMORY_REGION(f, p->size);
}
