/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tool: `uwarp sim` itself: sim.c runs, sim_guard.c watches over a run, sim_minimise.c makes one that fails smaller, sim_report.c prints. */
#ifndef UWARP_TOOL_SIM_COMMAND_H
#define UWARP_TOOL_SIM_COMMAND_H

#include <signal.h>
#include "tool/tool.h"

/* ---- sim_report.c ---- */
u64 sim_total(const struct tool_options *o); /* connections that the run is to have */
void sim_print_text(const struct tool_options *o, const struct tool_sim_result *r);
void sim_print_json(const struct tool_options *o, const struct tool_sim_result *r);

/* ---- sim_guard.c ---- */
/*
 * A run in a process of its own, so that one that crashes or hangs is a failed run like any other: violations is 1 then, and first_violation says what it
 * was. @run: the run, in that process. @until_ns: of CLOCK_MONOTONIC, when to give up (-ETIME); 0: never. @signal: passed on when it is set. 0 or a
 * negative errno: it could not be set up.
 */
struct sim_guarded {
	int (*run)(void *arg, u64 *heartbeat, struct tool_sim_result *r);
	void *arg;
	u64 until_ns;
	const volatile sig_atomic_t *signal;
	u64 step_cpu_ns;                /* computing that a step may take; 0: a minute */
	bool quiet;                     /* what it says on standard error is not wanted */
};
int sim_guard_run(const struct sim_guarded *g, struct tool_sim_result *r);

/* ---- sim_minimise.c ---- */
/*
 * Make a failing run smaller, as long as the same thing fails, until nothing can be left out or time is over: fewer connections, fewer hosts, fewer kinds of
 * faults, shorter messages. @o is changed; @r is the failing run's result, and then the smallest one's; @runs is how many runs it took. False: it has not failed
 * a second time, and all is as it was.
 */
typedef int (*sim_try_fn)(const struct tool_options *o, u64 until_ns, struct tool_sim_result *r);
bool sim_minimise(struct tool_options *o, struct tool_sim_result *r, u64 until_ns, sim_try_fn try, unsigned int *runs);
/* The command that repeats the run. */
void sim_print_command(FILE *f, const struct tool_options *o);

#endif
