/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tool: writes JSON, one object per line. Keys are the caller's and need no escaping. */
#ifndef UWARP_TOOL_JSON_H
#define UWARP_TOOL_JSON_H

#include <stdio.h>
#include "base/base.h"

struct tool_json {
	FILE *f;
	bool comma; /* something stands before, at this depth */
};

void tool_json_begin(struct tool_json *j, FILE *f);
void tool_json_end(struct tool_json *j); /* newline, flushed */
void tool_json_object(struct tool_json *j, const char *key); /* key NULL: element of an array */
void tool_json_object_end(struct tool_json *j);
void tool_json_array(struct tool_json *j, const char *key);
void tool_json_array_end(struct tool_json *j);
void tool_json_str(struct tool_json *j, const char *key, const char *value);
void tool_json_u64(struct tool_json *j, const char *key, u64 value);
void tool_json_bool(struct tool_json *j, const char *key, bool value);
void tool_json_double(struct tool_json *j, const char *key, double value); /* three decimals */
void tool_json_null(struct tool_json *j, const char *key);
void tool_json_hex(struct tool_json *j, const char *key, const u8 *data, size_t len);

#endif
