/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool: prints connections as ladders: two columns, an arrow per frame, the CM's steps beside it.
 *
 * What happens is printed as it happens, for one connection at a time: the one in focus. While another one is in the middle
 * of something its lines wait; it gets the focus, with a heading, when the first one is at rest, or when
 * there is something to report about it.
 */
#ifndef UWARP_TOOL_LADDER_H
#define UWARP_TOOL_LADDER_H

#include <stdio.h>
#include "tool/watch.h"

struct tool_ladder {
	FILE *f;
	struct tool_watch *w;
	bool json;               /* lines of JSON instead, which need no focus */
	bool verbose;            /* sequence numbers */
	u64 last_number;         /* connections numbered so far */
	struct tool_rec *focus;
};

/* Print what is due. When to call again though nothing new is seen: UINT64_MAX, or a time of loop_monotonic_ns(). */
u64 tool_ladder_pump(struct tool_ladder *l);
/* Print all that there is about @rec; what is printed next is about it too. NULL: nothing in particular. */
void tool_ladder_focus(struct tool_ladder *l, struct tool_rec *rec);
/* @rec is about to be dropped. */
void tool_ladder_forget(struct tool_ladder *l, const struct tool_rec *rec);
/* Give it a number unless it has one. */
u64 tool_ladder_number(struct tool_ladder *l, struct tool_rec *rec);

#endif
