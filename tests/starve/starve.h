/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A program under starvation: scenarios, each of which uses as much of the library as it can, and a runner (starve.c) that lets each allocation and each system call in it
 * fail once, in a process of its own each time.
 */
#ifndef UWARP_TESTS_STARVE_H
#define UWARP_TESTS_STARVE_H

#include "inject.h"

struct starve_scenario {
	const char *name;
	/*
	 * 0; the negative errno that some call or event gave; or -ETIME: what must come in any case did not. Takes down what it made, in any case. Says on stderr
	 * what went wrong.
	 */
	int (*run)(void);
	uint32_t limit_s;          /* one run never takes longer, on whatever machine */
	const char *(*missing)(void); /* what it needs and is not here, or NULL; called in a process of its own. NULL: it needs nothing */
};

int starve_main(int argc, char **argv, const struct starve_scenario *scenarios, size_t n);

#endif
