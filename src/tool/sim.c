// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tool/tool.h"
int tool_sim(const struct tool_options *o) { return o->count ? 0 : 1; }
