/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "inject.h"
#include <execinfo.h>
#include <stdio.h>

#define SITE_FROM 3u  /* site(), note_site(), inject_next() */
#define SITE_FRAMES 5u
#define WEAK __attribute__((weak))

WEAK void __lsan_disable(void);
WEAK void __lsan_enable(void);

static struct inject_plan plan;
static struct inject_report *report;
static uint32_t armed;
static __thread bool counts; /* what this thread does; not while it is being born, or at work here */

void inject_init(void)
{
	void *pc[2];

	if (__lsan_disable)
		__lsan_disable();
	backtrace(pc, 2); /* loads its library, which stays */
	if (__lsan_enable)
		__lsan_enable();
}

void inject_arm(const struct inject_plan *p, struct inject_report *r)
{
	plan = *p;
	report = r;
	counts = true;
	__atomic_store_n(&armed, p->kind, __ATOMIC_RELEASE);
}

void inject_disarm(void)
{
	__atomic_store_n(&armed, INJECT_NONE, __ATOMIC_RELEASE);
}

/* The innermost callers outside of here. */
static uint64_t site(void)
{
	void *pc[SITE_FROM + SITE_FRAMES];
	int i, n = backtrace(pc, SITE_FROM + SITE_FRAMES);
	uint64_t h = 14695981039346656037u; /* FNV-1a, by words */

	for (i = SITE_FROM; i < n; i++)
		h = (h ^ (uintptr_t)pc[i]) * 1099511628211u;
	return h;
}

static void note_site(uint32_t n)
{
	counts = false;
	if (n < INJECT_SITES)
		report->site[n] = site();
	counts = true;
}

void inject_thread(void)
{
	counts = true;
}

int inject_next(enum inject_kind kind, uint32_t variants)
{
	uint32_t n;

	if (__atomic_load_n(&armed, __ATOMIC_ACQUIRE) != kind || !counts)
		return -1;
	n = __atomic_fetch_add(&report->count, 1, __ATOMIC_RELAXED);
	if (plan.n == UINT32_MAX)
		note_site(n);
	if (n < plan.n || (n > plan.n && !plan.rest))
		return -1;
	if (n == plan.n)
		report->variants = variants;
	return plan.rest ? (int)(plan.variant % variants) : plan.variant < variants ? (int)plan.variant : -1;
}

void inject_fired(const char *what, bool harmless)
{
	if (__atomic_fetch_add(&report->fired, 1, __ATOMIC_RELAXED))
		return;
	counts = false;
	report->harmless = harmless;
	snprintf(report->what, sizeof(report->what), "%s", what);
	report->depth = backtrace(report->pc, INJECT_DEPTH);
	counts = true;
}
