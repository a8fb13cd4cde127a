// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <math.h>
#include <string.h>
#include "tool/json.h"

static void key_put(struct tool_json *j, const char *key)
{
	if (j->comma)
		putc(',', j->f);
	j->comma = true;
	if (key)
		fprintf(j->f, "\"%s\":", key);
}

/* Bytes of the UTF-8 sequence at @s, 0 if there is none (RFC 3629 4). */
static size_t utf8_len(const u8 *s)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
	size_t i;

	for (i = 1; i < n; i++)
		if ((s[i] & 0xC0) != 0x80)
			return 0;
	if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
	    (s[0] == 0xF4 && s[1] > 0x8F))
		return 0;
	return n;
}

static void string_put(FILE *f, const char *value)
{
	const u8 *s = (const u8 *)value;
	size_t n;

	putc('"', f);
	for (; *s; s += n) {
		n = utf8_len(s);
		if (!n) {
			fputs("\\ufffd", f);
			n = 1;
		} else if (*s == '"' || *s == '\\') {
			fprintf(f, "\\%c", *s);
		} else if (*s < 0x20 || *s == 0x7F) {
			fprintf(f, "\\u%04x", *s);
		} else {
			fwrite(s, 1, n, f);
		}
	}
	putc('"', f);
}

/**
 * tool_json_begin() - start a line
 * @j: writer
 * @f: where it goes
 */
void tool_json_begin(struct tool_json *j, FILE *f)
{
	j->f = f;
	j->comma = false;
	putc('{', f);
}

/**
 * tool_json_end() - end a line
 * @j: writer
 */
void tool_json_end(struct tool_json *j)
{
	fputs("}\n", j->f);
	fflush(j->f);
}

/**
 * tool_json_object() - open a nested object
 * @j: writer
 * @key: its name, NULL inside an array
 */
void tool_json_object(struct tool_json *j, const char *key)
{
	key_put(j, key);
	putc('{', j->f);
	j->comma = false;
}

/**
 * tool_json_object_end() - close it
 * @j: writer
 */
void tool_json_object_end(struct tool_json *j)
{
	putc('}', j->f);
	j->comma = true;
}

/**
 * tool_json_array() - open a nested array
 * @j: writer
 * @key: its name, NULL inside an array
 */
void tool_json_array(struct tool_json *j, const char *key)
{
	key_put(j, key);
	putc('[', j->f);
	j->comma = false;
}

/**
 * tool_json_array_end() - close it
 * @j: writer
 */
void tool_json_array_end(struct tool_json *j)
{
	putc(']', j->f);
	j->comma = true;
}

/**
 * tool_json_str() - write a string
 * @j: writer
 * @key: its name, NULL inside an array
 * @value: the string; what is not UTF-8 becomes U+FFFD
 */
void tool_json_str(struct tool_json *j, const char *key, const char *value)
{
	key_put(j, key);
	string_put(j->f, value);
}

/**
 * tool_json_u64() - write a whole number
 * @j: writer
 * @key: its name, NULL inside an array
 * @value: the number
 */
void tool_json_u64(struct tool_json *j, const char *key, u64 value)
{
	key_put(j, key);
	fprintf(j->f, "%llu", (unsigned long long)value);
}

/**
 * tool_json_bool() - write true or false
 * @j: writer
 * @key: its name, NULL inside an array
 * @value: which
 */
void tool_json_bool(struct tool_json *j, const char *key, bool value)
{
	key_put(j, key);
	fputs(value ? "true" : "false", j->f);
}

/**
 * tool_json_double() - write a number with three decimals
 * @j: writer
 * @key: its name, NULL inside an array
 * @value: the number; null if it is not finite, as JSON has no infinities (RFC 8259 6)
 */
void tool_json_double(struct tool_json *j, const char *key, double value)
{
	key_put(j, key);
	if (isfinite(value))
		fprintf(j->f, "%.3f", value);
	else
		fputs("null", j->f);
}

/**
 * tool_json_null() - write null
 * @j: writer
 * @key: its name, NULL inside an array
 */
void tool_json_null(struct tool_json *j, const char *key)
{
	key_put(j, key);
	fputs("null", j->f);
}

/**
 * tool_json_hex() - write bytes as a string of hexadecimal digits
 * @j: writer
 * @key: its name, NULL inside an array
 * @data: the bytes
 * @len: how many
 */
void tool_json_hex(struct tool_json *j, const char *key, const u8 *data, size_t len)
{
	size_t i;

	key_put(j, key);
	putc('"', j->f);
	for (i = 0; i < len; i++)
		fprintf(j->f, "%02x", data[i]);
	putc('"', j->f);
}
