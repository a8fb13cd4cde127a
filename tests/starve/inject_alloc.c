/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Allocations that fail. The real ones are the sanitizer's, or else libc's; pool_get() counts as well, since a slab hides what would have failed. */
#include "inject.h"
#include <errno.h>
#include <stdlib.h>
#include "base/pool.h"

#define WEAK __attribute__((weak))

/* glibc's names for those who replace them, and the sanitizer's. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);
WEAK void *__interceptor_malloc(size_t n);
WEAK void *__interceptor_calloc(size_t n, size_t size);
WEAK void *__interceptor_realloc(void *p, size_t n);
WEAK void *__interceptor_memalign(size_t align, size_t n);
WEAK void __interceptor_free(void *p);

static long live;

long inject_live(void)
{
	return __atomic_load_n(&live, __ATOMIC_RELAXED);
}

static bool fails(const char *what)
{
	if (inject_next(INJECT_ALLOC, 1) < 0)
		return false;
	inject_fired(what, false);
	errno = ENOMEM;
	return true;
}

static void *got(void *p)
{
	if (p)
		__atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
	return p;
}

void *malloc(size_t n)
{
	if (fails("malloc"))
		return NULL;
	return got(__interceptor_malloc ? __interceptor_malloc(n) : __libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
	if (fails("calloc"))
		return NULL;
	return got(__interceptor_calloc ? __interceptor_calloc(n, size) : __libc_calloc(n, size));
}

void *realloc(void *p, size_t n)
{
	void *q;

	if (n && fails("realloc"))
		return NULL;
	q = __interceptor_realloc ? __interceptor_realloc(p, n) : __libc_realloc(p, n);
	if (!p)
		got(q);
	else if (!n)
		__atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
	return q;
}

void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (!__builtin_mul_overflow(n, size, &bytes))
		return realloc(p, bytes);
	errno = ENOMEM;
	return NULL;
}

void *memalign(size_t align, size_t n);
void *memalign(size_t align, size_t n)
{
	if (fails("memalign"))
		return NULL;
	return got(__interceptor_memalign ? __interceptor_memalign(align, n) : __libc_memalign(align, n));
}

void *aligned_alloc(size_t align, size_t n)
{
	return memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
	void *p = memalign(align, n);

	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}

void free(void *p)
{
	if (p)
		__atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
	if (__interceptor_free)
		__interceptor_free(p);
	else
		__libc_free(p);
}

/* ---- pools ---- */

void *__real_pool_get(struct pool *p);
void *__wrap_pool_get(struct pool *p);

void *__wrap_pool_get(struct pool *p)
{
	return fails("pool_get") ? NULL : __real_pool_get(p);
}
