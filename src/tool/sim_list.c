// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: lists of connections, as text: "3,17-20". */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "tool/sim_list.h"

#define ITEMS_MAX 10000000u

static bool add_range(struct tool_sim_list *l, u64 first, u64 last)
{
	u64 *grown;

	if (last < first || last > UINT32_MAX || (l->n && first <= l->item[l->n - 1]) || last - first >= ITEMS_MAX - l->n)
		return false;
	grown = realloc(l->item, (l->n + last - first + 1) * sizeof(*grown));
	if (!grown)
		return false;
	l->item = grown;
	for (; first <= last; first++)
		l->item[l->n++] = first;
	return true;
}

static bool number(const char **s, u64 *out)
{
	char *end;

	if (**s < '0' || **s > '9')
		return false;
	errno = 0;
	*out = strtoull(*s, &end, 10);
	*s = end;
	return !errno;
}

static bool parse(const char *s, struct tool_sim_list *l)
{
	u64 first, last;

	for (;; s++) {
		if (!number(&s, &first))
			return false;
		last = first;
		if (*s == '-' && (s++, !number(&s, &last)))
			return false;
		if (!add_range(l, first, last))
			return false;
		if (*s != ',')
			return !*s;
	}
}

bool sim_list_parse(const char *text, struct tool_sim_list *out)
{
	struct tool_sim_list l = { 0 };

	if (!parse(text, &l)) {
		free(l.item);
		return false;
	}
	free(out->item);
	*out = l;
	return true;
}

void sim_list_print(FILE *f, const struct tool_sim_list *l)
{
	size_t i, last;

	for (i = 0; i < l->n; i = last + 1) {
		for (last = i; last + 1 < l->n && l->item[last + 1] == l->item[last] + 1; last++)
			;
		fprintf(f, "%s%llu", i ? "," : "", (unsigned long long)l->item[i]);
		if (last > i)
			fprintf(f, "-%llu", (unsigned long long)l->item[last]);
	}
}
