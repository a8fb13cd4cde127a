/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tool: lists of connections of a simulation, as text: "3,17-20". */
#ifndef UWARP_TOOL_SIM_LIST_H
#define UWARP_TOOL_SIM_LIST_H

#include <stdio.h>
#include "tool/sim_engine.h"

/* Numbers and ranges in rising order; what @out had is freed. False: it is not of that form. */
bool sim_list_parse(const char *text, struct tool_sim_list *out);
void sim_list_print(FILE *f, const struct tool_sim_list *l);

#endif
