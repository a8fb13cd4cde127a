/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: so many in a second of loop time. One for each connection: a budget that connections share lets a stranger learn of another's from what
 * is left of it (RFC 5961 7 speaks of one counter; that it leaks was found later, CVE-2016-5696).
 */
#ifndef UWARP_BASE_LIMIT_H
#define UWARP_BASE_LIMIT_H

#include "base/types.h"

struct limit {
	u32 second;
	u32 count;
};

static inline bool limit_allow(struct limit *l, u64 now_ns, u32 per_second)
{
	u32 second = (u32)(now_ns / NSEC_PER_SEC);

	if (l->second != second)
		*l = (struct limit){ .second = second };
	if (l->count >= per_second)
		return false;
	l->count++;
	return true;
}

#endif
