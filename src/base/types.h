/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base: integer names, container_of and friends. */
#ifndef UWARP_BASE_TYPES_H
#define UWARP_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/queue.h>
#include <linux/types.h> /* __be16, __be32 */

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define BIT(n) (1u << (n))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Each argument is evaluated once; names are unique, so that they may be nested. */
#define MIN_MAX_CAT_(a, b) a##b
#define MIN_MAX_CAT(a, b) MIN_MAX_CAT_(a, b)
#define MIN_MAX_OF(op, a, b, x, y) \
	({ __auto_type x = (a); __auto_type y = (b); x op y ? x : y; })
#define MIN_MAX(op, a, b, n) MIN_MAX_OF(op, a, b, MIN_MAX_CAT(x_, n), MIN_MAX_CAT(y_, n))
#define min(a, b) MIN_MAX(<, a, b, __COUNTER__)
#define max(a, b) MIN_MAX(>, a, b, __COUNTER__)

/* sys/queue.h of glibc has no _SAFE walks. */
#define TAILQ_FOREACH_SAFE(var, head, field, next) \
	for ((var) = TAILQ_FIRST(head); \
	     (var) && ((next) = TAILQ_NEXT(var, field), 1); (var) = (next))
#define LIST_FOREACH_SAFE(var, head, field, next) \
	for ((var) = LIST_FIRST(head); \
	     (var) && ((next) = LIST_NEXT(var, field), 1); (var) = (next))

#define NSEC_PER_USEC 1000ull
#define NSEC_PER_MSEC 1000000ull
#define NSEC_PER_SEC 1000000000ull

#endif
