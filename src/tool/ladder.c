// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <stdlib.h>
#include <string.h>
#include "tool/json.h"
#include "tool/ladder.h"
#include "tool/tool.h"

#define INNER 46           /* columns between the two posts */
#define DETAIL_INDENT 4
#define SETTLE_NS (4 * NSEC_PER_MSEC) /* how long the last frame waits for the step that it causes */

static double ms_since(const struct tool_rec *rec, u64 ns)
{
	return ns > rec->first_ns ? (double)(ns - rec->first_ns) / 1e6 : 0;
}

/* ---- text ---- */

static void heading(struct tool_ladder *l, struct tool_rec *rec, const struct tool_view *v)
{
	char a[PKT_ADDRSTR], b[PKT_ADDRSTR];
	u64 n = tool_ladder_number(l, rec);

	fprintf(l->f, "\nconnection %llu%s: %s %s %s\n", (unsigned long long)n, rec->shown ? ", continued" : "",
		pkt_addr_str(rec->tuple.ipv4, rec->tuple.loc_addr, rec->tuple.loc_port, a), v->passive ? "<-" : "->",
		pkt_addr_str(rec->tuple.ipv4, rec->tuple.rem_addr, rec->tuple.rem_port, b));
	fprintf(l->f, "%9s  %-*s%s  %s\n", "ms", INNER - 4, "this side", "peer", "state");
	rec->shown = true;
}

static void post_line(struct tool_ladder *l, const char *text, const char *state)
{
	if (state)
		fprintf(l->f, "%9s |%-*s| %s\n", "", INNER, text, state);
	else
		fprintf(l->f, "%9s |%-*s|\n", "", INNER, text);
}

/* Break at blanks. */
static void details(struct tool_ladder *l, const char *text)
{
	char line[INNER + 1];
	size_t room = INNER - DETAIL_INDENT - 1, len, cut;

	while (*text) {
		len = cut = strlen(text);
		if (len > room) {
			for (cut = room; cut && text[cut] != ' '; cut--)
				;
			cut = cut ? cut : room;
		}
		snprintf(line, sizeof(line), "%*s%.*s", DETAIL_INDENT, "", (int)cut, text);
		post_line(l, line, NULL);
		text += cut;
		text += strspn(text, " ");
	}
}

/* "|--- SYN ------------->|" or the other way. */
static void arrow(struct tool_ladder *l, const struct tool_rec *rec, const struct tool_entry *e, const char *state)
{
	char body[INNER + 1];
	int len = (int)min(strlen(e->line.title), (size_t)INNER - 8);

	memset(body, '-', INNER);
	body[INNER] = '\0';
	body[e->out ? INNER - 1 : 0] = e->out ? '>' : '<';
	body[3] = ' ';
	memcpy(body + 4, e->line.title, (size_t)len);
	body[4 + len] = ' ';
	if (e->first)
		fprintf(l->f, "%9.3f |%s|", ms_since(rec, e->ns), body);
	else
		fprintf(l->f, "%9s |%s|", "", body);
	if (state)
		fprintf(l->f, " %s", state);
	putc('\n', l->f);
}

static void numbers(struct tool_ladder *l, const struct tool_entry *e)
{
	char text[INNER + 1];

	if (!l->verbose || !e->first)
		return;
	snprintf(text, sizeof(text), "%*sseq %u ack %u win %u len %u", DETAIL_INDENT, "", e->seg.seq, e->seg.ack, e->window, e->len);
	post_line(l, text, NULL);
}

static void print_frame(struct tool_ladder *l, const struct tool_rec *rec, const struct tool_entry *e, const char *state)
{
	arrow(l, rec, e, state);
	numbers(l, e);
	details(l, e->line.detail);
}

static void print_state(struct tool_ladder *l, const struct tool_rec *rec, const struct tool_entry *e)
{
	fprintf(l->f, "%9.3f |%*s| %s\n", ms_since(rec, e->ns), INNER, "", e->state);
}

/* ---- JSON ---- */

static void json_frame(struct tool_json *j, const struct tool_entry *e)
{
	char flags[8] = "";
	static const char letters[] = "FSRPAU";
	size_t i, n = 0;

	for (i = 0; i < sizeof(letters) - 1; i++)
		if (e->flags & BIT(i))
			flags[n++] = letters[i];
	tool_json_str(j, "direction", e->out ? "out" : "in");
	tool_json_str(j, "what", e->line.title);
	if (*e->line.detail)
		tool_json_str(j, "detail", e->line.detail);
	tool_json_str(j, "tcp_flags", flags);
	tool_json_u64(j, "seq", e->seg.seq);
	tool_json_u64(j, "ack", e->seg.ack);
	tool_json_u64(j, "window", e->window);
	tool_json_u64(j, "payload", e->len);
	tool_json_bool(j, "again", e->seg.again);
}

static void print_json(struct tool_ladder *l, struct tool_rec *rec, const struct tool_entry *e)
{
	struct tool_json j;

	tool_json_begin(&j, l->f);
	tool_json_str(&j, "event", e->kind == TOOL_ENTRY_FRAME ? "frame" : "state");
	tool_json_u64(&j, "connection", tool_ladder_number(l, rec));
	tool_json_double(&j, "ms", ms_since(rec, e->ns));
	if (e->kind == TOOL_ENTRY_FRAME)
		json_frame(&j, e);
	else
		tool_json_str(&j, "state", e->state);
	if (e->fall_back)
		tool_json_bool(&j, "fall_back", true);
	tool_json_end(&j);
}

/* ---- what to print, and when ---- */

static void pop(struct tool_rec *rec)
{
	struct tool_entry *e = STAILQ_FIRST(&rec->pending);

	STAILQ_REMOVE_HEAD(&rec->pending, entry);
	free(e);
}

static bool follows(const struct tool_entry *e, const struct tool_entry *next)
{
	return next && next->ns - e->ns < NSEC_PER_MSEC;
}

static bool is_state(const struct tool_entry *e)
{
	return e->kind == TOOL_ENTRY_STATE;
}

/* A state that a node passes through before anything is on the wire. */
static bool is_passing(const struct tool_entry *e)
{
	return is_state(e) && (!strcmp(e->state, "INITED") || !strcmp(e->state, "LISTENING"));
}

/* Is it the step with which the next frame is sent? */
static bool leads(const struct tool_entry *e)
{
	const struct tool_entry *next = STAILQ_NEXT(e, entry);

	return follows(e, next) && next->kind == TOOL_ENTRY_FRAME && next->out;
}

/* A step stands beside the frame that causes it, or that it sends. */
static void print_text(struct tool_ladder *l, struct tool_rec *rec, const struct tool_entry *e)
{
	const struct tool_entry *next = STAILQ_NEXT(e, entry);
	bool both = false;

	if (is_state(e)) {
		if (e->fall_back)
			post_line(l, "    (again, with MPA revision 1)", NULL);
		both = leads(e);
		if (both)
			print_frame(l, rec, next, e->state);
		else if (l->verbose || !is_passing(e))
			print_state(l, rec, e);
	} else {
		both = follows(e, next) && is_state(next) && !is_passing(next) && !next->fall_back && !(e->out && leads(next));
		print_frame(l, rec, e, both ? next->state : NULL);
	}
	if (both)
		pop(rec);
	pop(rec);
}

static bool must_wait(const struct tool_entry *e, u64 now_ns)
{
	return !STAILQ_NEXT(e, entry) && now_ns < e->ns + SETTLE_NS;
}

/* Time at which the rest may be printed, UINT64_MAX if nothing is left. */
static u64 print_pending(struct tool_ladder *l, struct tool_rec *rec, bool force)
{
	u64 now_ns = loop_monotonic_ns();
	struct tool_entry *e;

	while ((e = STAILQ_FIRST(&rec->pending))) {
		if (l->json) {
			print_json(l, rec, e);
			pop(rec);
		} else if (!force && must_wait(e, now_ns)) {
			fflush(l->f);
			return e->ns + SETTLE_NS;
		} else {
			print_text(l, rec, e);
		}
	}
	if (rec->lost && !l->json)
		fprintf(l->f, "%9s |  %u more, not shown\n", "...", rec->lost);
	rec->lost = 0;
	fflush(l->f);
	return UINT64_MAX;
}

/**
 * tool_ladder_number() - number of a connection
 * @l: ladder
 * @rec: the connection; gets the next number unless it has one
 *
 * Return: its number.
 */
u64 tool_ladder_number(struct tool_ladder *l, struct tool_rec *rec)
{
	if (!rec->number)
		rec->number = ++l->last_number;
	return rec->number;
}

static u64 focus(struct tool_ladder *l, struct tool_rec *rec, bool force)
{
	struct tool_rec *old = l->focus;
	struct tool_view v;

	l->focus = rec;
	if (old && old != rec && !l->json) {
		tool_watch_fetch(l->w, old);
		print_pending(l, old, true);
	}
	if (!rec || !l->w->keep_entries)
		return UINT64_MAX;
	tool_watch_view(l->w, rec, &v);
	if (old != rec && !l->json)
		heading(l, rec, &v);
	tool_watch_fetch(l->w, rec);
	return print_pending(l, rec, force);
}

/**
 * tool_ladder_focus() - print all that there is about a connection
 * @l: ladder
 * @rec: the connection, which what is printed next is about, too; NULL: nothing in particular
 */
void tool_ladder_focus(struct tool_ladder *l, struct tool_rec *rec)
{
	focus(l, rec, true);
}

/**
 * tool_ladder_forget() - a record is about to be dropped
 * @l: ladder
 * @rec: the record
 */
void tool_ladder_forget(struct tool_ladder *l, const struct tool_rec *rec)
{
	if (l->focus == rec)
		l->focus = NULL;
}

static bool may_lose_focus(struct tool_ladder *l)
{
	struct tool_view v;

	if (!l->focus)
		return true;
	tool_watch_view(l->w, l->focus, &v);
	if (v.closed && v.passive && !v.requested && !l->focus->attached)
		return false; /* the session is about to say why no request came of it */
	return v.at_rest && STAILQ_EMPTY(&l->focus->pending);
}

/**
 * tool_ladder_pump() - print what is due
 * @l: ladder
 *
 * Return: when to call again though nothing new is seen: UINT64_MAX, or a time of loop_monotonic_ns().
 */
u64 tool_ladder_pump(struct tool_ladder *l)
{
	struct tool_rec **all;
	u64 again = UINT64_MAX;
	size_t n, i;

	if (!l->w->keep_entries)
		return again;
	n = tool_watch_all(l->w, &all);
	for (i = 0; i < n; i++) {
		tool_watch_fetch(l->w, all[i]);
		if (l->json)
			print_pending(l, all[i], true);
	}
	if (l->json)
		return again;
	if (l->focus)
		again = print_pending(l, l->focus, false);
	for (i = 0; i < n && again == UINT64_MAX; i++) {
		if (all[i] == l->focus || STAILQ_EMPTY(&all[i]->pending) || !may_lose_focus(l))
			continue;
		again = focus(l, all[i], false);
	}
	return again;
}
