/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tool: the program that `uwarp run` starts: where it is, and whether the loader will preload anything into it. */
#ifndef UWARP_TOOL_PROGRAM_H
#define UWARP_TOOL_PROGRAM_H

#include <limits.h>
#include "base/base.h"

/* Where execvp() finds @name. 0; -ENOENT; -EACCES: there, but not executable. */
int tool_program_find(const char *name, char path[PATH_MAX]);
/* Why LD_PRELOAD will have no effect on it, or NULL. */
const char *tool_program_obstacle(const char *path);

#endif
