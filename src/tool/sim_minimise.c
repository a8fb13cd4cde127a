// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: make a failing simulation smaller, by delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input"). The elements are the connections,
 * each of which brings its troubles and attackers with it; around that, kinds of faults are left out and numbers made smaller. Each try is a run of its own, so
 * the result does not depend on luck, only on time. The same thing must fail: the same words, whatever the numbers in them.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "tool/sim_command.h"
#include "tool/sim_list.h"

struct minimise {
	struct tool_options *best;
	struct tool_sim_result *r;     /* of the best */
	u64 until_ns;
	sim_try_fn try;
	unsigned int runs;
};

/* ---- trying ---- */

static const char *skip_number(const char *s)
{
	while (isxdigit((unsigned char)*s))
		s++;
	return s;
}

/* Digits do not matter. */
static bool same_words(const char *a, const char *b)
{
	for (; *a && *b; a++, b++) {
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			a = skip_number(a) - 1;
			b = skip_number(b) - 1;
		} else if (*a != *b) {
			return false;
		}
	}
	return *a == *b;
}

static bool is_over(const struct minimise *m)
{
	return loop_monotonic_ns() >= m->until_ns;
}

/* True: it fails the same way, and is the best now. */
static bool try(struct minimise *m, const struct tool_options *o)
{
	struct tool_sim_result r;

	if (is_over(m))
		return false;
	m->runs++;
	if (m->try(o, m->until_ns, &r) || !r.violations || !same_words(r.first_violation, m->r->first_violation))
		return false;
	*m->best = *o;
	*m->r = r;
	return true;
}

/* ---- connections ---- */

static void list_set(struct tool_sim_list *to, const u64 *item, size_t n)
{
	to->item = malloc(max(n, (size_t)1) * sizeof(*item));
	to->n = to->item ? n : 0;
	if (n && to->item)
		memcpy(to->item, item, n * sizeof(*item));
}

/* All but @n of them from @at on. */
static bool try_without(struct minimise *m, size_t at, size_t n)
{
	const struct tool_sim_list *all = &m->best->sim.only;
	struct tool_sim_list old = *all;
	struct tool_options o = *m->best;

	list_set(&o.sim.only, all->item, all->n);
	if (o.sim.only.n != all->n) {
		free(o.sim.only.item);
		return false;
	}
	memmove(o.sim.only.item + at, o.sim.only.item + at + n, (all->n - at - n) * sizeof(u64));
	o.sim.only.n -= n;
	if (try(m, &o)) {
		free(old.item);
		return true;
	}
	free(o.sim.only.item);
	return false;
}

/* Leave out chunks, ever smaller ones, as long as it goes on failing. From the end: what came last is mostly what is needed least. */
static bool fewer_connections(struct minimise *m)
{
	size_t chunk, end, before = m->best->sim.only.n;

	for (chunk = (before + 1) / 2; chunk; chunk /= 2)
		for (end = m->best->sim.only.n; end >= chunk && m->best->sim.only.n > chunk && !is_over(m); end -= chunk)
			try_without(m, end - chunk, chunk);
	return m->best->sim.only.n < before;
}

/* Those that had been started when it failed, as a list. */
static bool name_connections(struct minimise *m)
{
	struct tool_options o = *m->best;
	struct tool_sim_list old = o.sim.only;
	u64 i;

	o.sim.only.n = old.n ? min(m->r->started_then, (u64)old.n) : m->r->started_then;
	o.sim.only.item = calloc(o.sim.only.n + 1, sizeof(u64));
	if (!o.sim.only.item)
		return false;
	for (i = 0; i < o.sim.only.n; i++)
		o.sim.only.item[i] = old.n ? old.item[i] : i;
	if (o.sim.only.n && try(m, &o)) {
		free(old.item);
		return true;
	}
	free(o.sim.only.item);
	return false;
}

/* ---- everything else ---- */

static bool zero(struct minimise *m, size_t offset)
{
	struct tool_options o = *m->best;
	double *d = (double *)((char *)&o.sim + offset);

	if (*d == 0)
		return false;
	*d = 0;
	return try(m, &o);
}

static bool fewer_faults(struct minimise *m)
{
#define F(x) offsetof(struct tool_sim_options, x)
	static const size_t kinds[] = {
		F(on_path), F(attack), F(flap), F(vanish), F(restart), F(corrupt), F(duplicate), F(reorder), F(loss), F(destroy), F(late), F(reject), F(data),
	};
#undef F
	bool any = false;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		any |= zero(m, kinds[i]);
	return any;
}

static bool smaller(struct minimise *m, u32 least, size_t offset)
{
	bool any = false;
	u32 *v;

	for (;;) {
		struct tool_options o = *m->best;

		v = (u32 *)(void *)((char *)&o.sim + offset);
		if (*v <= least)
			return any;
		*v = max(*v / 2, least);
		if (!try(m, &o))
			return any;
		any = true;
	}
}

static bool smaller_numbers(struct minimise *m)
{
	bool any = smaller(m, 2, offsetof(struct tool_sim_options, nodes));

	if (m->best->sim.data > 0)
		any |= smaller(m, 0, offsetof(struct tool_sim_options, largest));
	return any;
}

/* Those connections may not be what it takes; the run as it was must do. */
static bool fails_again(struct minimise *m)
{
	const struct tool_options same = *m->best;

	return name_connections(m) || try(m, &same);
}

bool sim_minimise(struct tool_options *o, struct tool_sim_result *r, u64 until_ns, sim_try_fn try_one, unsigned int *runs)
{
	struct minimise m = { .best = o, .r = r, .until_ns = until_ns, .try = try_one };
	bool any = fails_again(&m), again = any;

	while (any && !is_over(&m)) {
		any = fewer_connections(&m);
		any |= fewer_faults(&m);
		any |= smaller_numbers(&m);
	}
	*runs = m.runs;
	return again;
}

/* ---- saying it ---- */

static void print_percent(FILE *f, const char *name, double v)
{
	fprintf(f, " --%s %.15g", name, v);
}

void sim_print_command(FILE *f, const struct tool_options *o)
{
	const struct tool_sim_options *s = &o->sim;
	const struct {
		const char *name;
		double v;
	} rates[] = {
		{ "loss", s->loss }, { "reorder", s->reorder }, { "duplicate", s->duplicate }, { "corrupt", s->corrupt }, { "reject", s->reject }, { "late", s->late },
		{ "destroy", s->destroy }, { "flap", s->flap }, { "vanish", s->vanish }, { "restart", s->restart }, { "attack", s->attack },
		{ "on-path", s->on_path }, { "data", s->data }, { "latency", s->latency_ms },
	};
	size_t i;

	fprintf(f, "uwarp sim --seed %llu --nodes %u --connections %llu --gen %u", (unsigned long long)s->seed, s->nodes,
		(unsigned long long)o->count, s->gen);
	for (i = 0; i < ARRAY_SIZE(rates); i++)
		print_percent(f, rates[i].name, rates[i].v);
	fprintf(f, " --largest %u%s%s", s->largest, s->ipv6 ? " --ipv6" : "", s->paranoid ? " --paranoid" : "");
	if (s->duration_s > 0)
		fprintf(f, " --duration %.15g", s->duration_s);
	if (s->only.n) {
		fputs(" --only ", f);
		sim_list_print(f, &s->only);
	}
	putc('\n', f);
}
