// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: private data, as people write and read it. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "tool/tool.h"

#define HEX_PER_LINE 16

/**
 * tool_pdata_text() - private data from text
 * @p: filled in
 * @text: the text; its end mark is not sent
 *
 * Return: 0; -EMSGSIZE: more than any MPA frame carries.
 */
int tool_pdata_text(struct tool_pdata *p, const char *text)
{
	size_t len = strlen(text);

	if (len > sizeof(p->data))
		return -EMSGSIZE;
	memcpy(p->data, text, len);
	p->len = len;
	p->given = true;
	return 0;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/**
 * tool_pdata_hex() - private data from hexadecimal digits
 * @p: filled in
 * @hex: pairs of digits; blanks, colons and commas between pairs are skipped
 *
 * Return: 0; -EINVAL; -EMSGSIZE: more than any MPA frame carries.
 */
int tool_pdata_hex(struct tool_pdata *p, const char *hex)
{
	size_t len = 0;

	for (; *hex; hex += 2) {
		int high, low;

		hex += strspn(hex, " :,\t\n");
		if (!*hex)
			break;
		high = digit(hex[0]);
		low = high < 0 ? -1 : digit(hex[1]);
		if (low < 0)
			return -EINVAL;
		if (len == sizeof(p->data))
			return -EMSGSIZE;
		p->data[len++] = (u8)(high * 16 + low);
	}
	p->len = len;
	p->given = true;
	return 0;
}

/**
 * tool_pdata_file() - private data from a file
 * @p: filled in
 * @path: the file, - for standard input
 *
 * Return: 0; -EMSGSIZE: more than any MPA frame carries; what opening or reading says.
 */
int tool_pdata_file(struct tool_pdata *p, const char *path)
{
	FILE *f = strcmp(path, "-") ? fopen(path, "rbe") : stdin;
	int err = 0;

	if (!f)
		return -errno;
	errno = 0;
	p->len = fread(p->data, 1, sizeof(p->data), f);
	if (ferror(f))
		err = errno > 0 ? -errno : -EIO;
	else if (p->len == sizeof(p->data) && getc(f) != EOF)
		err = -EMSGSIZE;
	if (f != stdin)
		fclose(f);
	p->given = true;
	return err;
}

/**
 * tool_pdata_as_text() - is this text?
 * @data: the bytes
 * @len: how many
 * @buf: room for @len + 1
 *
 * Return: @buf with the text, without NULs at its end; NULL: not all of it can be printed.
 */
const char *tool_pdata_as_text(const u8 *data, size_t len, char *buf)
{
	size_t i;

	/* Programs like to send the NUL that ends a string, too. */
	while (len && !data[len - 1])
		len--;
	for (i = 0; i < len; i++)
		if (data[i] < 0x20 || data[i] > 0x7E)
			return NULL;
	memcpy(buf, data, len);
	buf[len] = '\0';
	return len ? buf : NULL;
}

/**
 * tool_pdata_print() - private data for people: as text if it is some, and its bytes
 * @f: where to
 * @data: the bytes
 * @len: how many, at most MPA_MAX_PRIV_DATA
 */
void tool_pdata_print(FILE *f, const u8 *data, size_t len)
{
	char text[MPA_MAX_PRIV_DATA + 1];
	size_t i;

	if (tool_pdata_as_text(data, len, text))
		fprintf(f, "    \"%s\"\n", text);
	for (i = 0; i < len; i++) {
		if (i % HEX_PER_LINE == 0)
			fprintf(f, "%s    %04zx ", i ? "\n" : "", i);
		fprintf(f, " %02x", data[i]);
	}
	if (len)
		putc('\n', f);
}
