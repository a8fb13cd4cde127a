/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base: objects of one size from slabs, with a limit. Not locked: the owner locks. Under ASan each object is poisoned while free. */
#ifndef UWARP_BASE_POOL_H
#define UWARP_BASE_POOL_H

#include "base/types.h"

struct pool_free { struct pool_free *next; };
struct pool_slab { struct pool_slab *next; };
struct pool {
	size_t size;      /* bytes of one object, rounded up to 16 */
	size_t limit;     /* most objects out at once; 0: no limit */
	size_t used;      /* objects out */
	size_t peak;
	struct pool_free *free;
	struct pool_slab *slabs;
	char *bump, *bump_end; /* part of the newest slab never handed out yet */
};

void pool_init(struct pool *p, size_t size, size_t limit);
/* All objects must be back (asserted). */
void pool_destroy(struct pool *p);
void *pool_get(struct pool *p);  /* not cleared; NULL at the limit or without memory */
void pool_put(struct pool *p, void *obj);

#endif
