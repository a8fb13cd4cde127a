/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Tests of attacks have a short form, and a long one for `make attack`, which tells how it goes. */
#ifndef UWARP_TESTS_ATTACK_H
#define UWARP_TESTS_ATTACK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ATTACK_SANITIZED 1
#else
#define ATTACK_SANITIZED 0
#endif

static inline bool attack_long(void)
{
	return getenv("UWARP_ATTACK_LONG");
}

static inline long attack_scale(long small, long large)
{
	return attack_long() ? large : small;
}

/* On the terminal, a line of its own that the next one takes the place of. */
static inline void attack_progress(const char *what, long done, long all)
{
	if (attack_long() && isatty(2) && done % (all / 100 + 1) == 0)
		fprintf(stderr, "\r%s: %ld of %ld\033[K%s", what, done, all, done == all ? "\n" : "");
}

/* Resident memory in KiB; 0 where a sanitizer keeps freed memory. */
static inline long attack_rss_kib(void)
{
	FILE *f = ATTACK_SANITIZED ? NULL : fopen("/proc/self/statm", "r");
	long size, resident = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%ld %ld", &size, &resident) != 2)
		resident = 0;
	fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

#endif
