/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Starvation: the n-th allocation, or the n-th system call, of a program fails, once; or everything from the n-th on. Tests link this in, production code knows
 * nothing of it: the malloc family is interposed in the executable (inject_alloc.c), which libraries and libc use as well; system calls are those of our own
 * code, renamed by the linker (--wrap: inject_calls.c, meson.build).
 */
#ifndef UWARP_TESTS_INJECT_H
#define UWARP_TESTS_INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum inject_kind { INJECT_NONE, INJECT_ALLOC, INJECT_CALLS };

#define INJECT_DEPTH 24
#define INJECT_SITES 16384

/* In memory that the runner shares with the process under test. */
struct inject_report {
	uint32_t count;              /* calls that could have failed */
	uint32_t fired;
	uint32_t variants;           /* ways in which the one that failed can */
	bool harmless;               /* nobody may notice: interrupted, short, not ready */
	char what[64];
	int depth;
	void *pc[INJECT_DEPTH];      /* who called it */
	uint64_t site[INJECT_SITES]; /* of each call, when they are only counted: the same for the same callers */
};

struct inject_plan {
	enum inject_kind kind;
	uint32_t n;                  /* from 0; UINT32_MAX: count only */
	uint32_t variant;
	bool rest;                   /* all from the n-th on */
};

void inject_init(void);            /* once, before any thread */
void inject_arm(const struct inject_plan *plan, struct inject_report *report);
void inject_disarm(void);
long inject_live(void);            /* blocks allocated and not freed */

/* ---- for the two layers ---- */
void inject_thread(void);          /* begins: before, it is the sanitizer that allocates */
/* The next call of @kind: -1, it goes on; else it fails in its variant of that number, of @variants. */
int inject_next(enum inject_kind kind, uint32_t variants);
void inject_fired(const char *what, bool harmless);

#endif
