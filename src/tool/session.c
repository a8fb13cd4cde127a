// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "iwcm/iwcm_nic.h"
#include "tool/session.h"

#define GRACE_NS (2 * NSEC_PER_SEC)         /* for an end in order after a signal or the time limit */
#define DRAIN_NS NSEC_PER_SEC               /* for the last frames, after all connections are over */
#define DRAIN_STEP_US 2000
#define SCAN_NS (20 * NSEC_PER_MSEC)        /* between two looks at all records */
#define LINGER_NS (200 * NSEC_PER_MSEC)     /* a record stays this long after the end, for frames that come late */
#define REQUEST_WAIT_NS NSEC_PER_SEC        /* from the MPA request to its event, at most */
#define SAME_SIGNAL_NS (300 * NSEC_PER_MSEC)
#define EVENTS_PER_TURN 256

/**
 * tool_session_now() - the time that sessions go by
 *
 * Return: CLOCK_MONOTONIC in nanoseconds.
 */
u64 tool_session_now(void)
{
	return loop_monotonic_ns();
}

/* ---- opening ---- */

static int open_signals(struct tool_session *s)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signal_fd < 0 ? -errno : 0;
}

static int open_capture(struct tool_session *s)
{
	char err[256];

	if (!s->o->pcap || !port_capture_open(s->o->pcap, &s->capture, err, sizeof(err)))
		return 0;
	tool_error("capture: %s", err); /* which names the file */
	return TOOL_LOCAL;
}

static int open_context(struct tool_session *s)
{
	bool watch = s->ladders || s->o->command == TOOL_LISTEN || (s->events && s->o->verbose);
	int err = iwcm_open(NULL, &s->ctx);

	if (err) {
		tool_error("the NICs cannot be opened: %s", strerror(-err));
		return TOOL_LOCAL;
	}
	err = iwcm_event_fd(s->ctx); /* now: without it nothing would wake us */
	if (err < 0) {
		tool_error("%s", strerror(-err));
		return TOOL_LOCAL;
	}
	iwcm_set_observers(s->ctx, s->capture, watch ? tool_watch_frame : NULL, watch ? &s->watch.trace : NULL, &s->watch);
	return 0;
}

static void prepare(struct tool_session *s, bool single)
{
	const struct tool_options *o = s->o;

	s->begun_ns = tool_session_now();
	s->deadline_ns = o->timeout_s > 0 ? s->begun_ns + (u64)(o->timeout_s * 1e9) : UINT64_MAX;
	s->grace_ns = UINT64_MAX;
	s->signal_fd = -1;
	TAILQ_INIT(&s->conns);
	TAILQ_INIT(&s->holding);
	s->ladders = !o->json && !o->quiet && (single || o->verbose);
	s->events = o->json && !o->quiet;
	s->progress = !o->quiet && !s->ladders && !s->events && isatty(STDERR_FILENO);
	s->ladder = (struct tool_ladder){
		.f = stdout, .w = &s->watch, .json = o->json, .verbose = o->verbose,
	};
}

/**
 * tool_session_open() - begin
 * @s: filled in
 * @o: the command line
 * @ops: what the command does
 * @single: at most one connection is expected
 *
 * Return: 0, or an exit status after a message; tool_session_close() must follow either way.
 */
int tool_session_open(struct tool_session *s, const struct tool_options *o, const struct tool_session_ops *ops, bool single)
{
	int err;

	memset(s, 0, sizeof(*s));
	s->o = o;
	s->ops = ops;
	prepare(s, single);
	err = open_signals(s);
	if (!err)
		err = tool_watch_init(&s->watch, s->ladders || (s->events && o->verbose), o->verbose);
	if (err) {
		tool_error("%s", strerror(-err));
		return TOOL_LOCAL;
	}
	err = open_capture(s);
	if (!err)
		err = open_context(s);
	return err;
}

/* ---- connections ---- */

/**
 * tool_conn_new() - note a connection
 * @s: session
 * @id: its id; may be set later
 * @active: this side connects
 *
 * Return: the connection, or NULL without memory.
 */
struct tool_conn *tool_conn_new(struct tool_session *s, struct iwcm_id *id, bool active)
{
	struct tool_conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->id = id;
	c->active = active;
	c->begun_ns = tool_session_now();
	TAILQ_INSERT_TAIL(&s->conns, c, entry);
	s->num_conns++;
	return c;
}

/**
 * tool_conn_find_rec() - tie a connection to what the watch has seen of it
 * @s: session
 * @c: connection with both addresses
 */
void tool_conn_find_rec(struct tool_session *s, struct tool_conn *c)
{
	if (!c->rec)
		c->rec = tool_watch_find(&s->watch, &c->local, &c->remote);
	if (!c->rec) {
		if (!c->number)
			c->number = ++s->ladder.last_number;
		return;
	}
	c->rec->attached = true;
	if (c->number)
		c->rec->number = c->number;
	else
		c->number = tool_ladder_number(&s->ladder, c->rec);
}

static void unhold(struct tool_session *s, struct tool_conn *c)
{
	if (c->holding)
		TAILQ_REMOVE(&s->holding, c, hold_entry);
	c->holding = false;
}

/**
 * tool_conn_free() - forget a connection, and destroy its id
 * @s: session
 * @c: connection
 */
void tool_conn_free(struct tool_session *s, struct tool_conn *c)
{
	unhold(s, c);
	iwcm_destroy_id(c->id);
	TAILQ_REMOVE(&s->conns, c, entry);
	s->num_conns--;
	free(c);
}

/**
 * tool_conn_up() - a connection was established
 * @s: session
 * @c: connection
 * @hold_s: how long it stays so; negative: until the peer disconnects
 */
void tool_conn_up(struct tool_session *s, struct tool_conn *c, double hold_s)
{
	c->up = true;
	c->up_ns = s->event_ns;
	if (s->end != TOOL_END_NONE || hold_s == 0) {
		iwcm_disconnect(c->id);
		return;
	}
	if (hold_s < 0)
		return;
	c->hold_until_ns = c->up_ns + (u64)(hold_s * 1e9);
	c->holding = true;
	TAILQ_INSERT_TAIL(&s->holding, c, hold_entry);
}

static u64 end_holds(struct tool_session *s, u64 now_ns)
{
	struct tool_conn *c;

	while ((c = TAILQ_FIRST(&s->holding))) {
		if (c->hold_until_ns > now_ns)
			return c->hold_until_ns;
		unhold(s, c);
		iwcm_disconnect(c->id);
	}
	return UINT64_MAX;
}

/* ---- counting ---- */

static void note_time(struct tool_tally *t, u64 ns)
{
	u32 *grown;

	if (t->num_us == t->size_us) {
		grown = realloc(t->us, max(2 * t->size_us, (size_t)64) * sizeof(*grown));
		if (!grown)
			return;
		t->us = grown;
		t->size_us = max(2 * t->size_us, (size_t)64);
	}
	t->us[t->num_us++] = (u32)min(ns / NSEC_PER_USEC, (u64)UINT32_MAX);
}

/**
 * tool_session_count() - count the outcome of a connection, once
 * @s: session
 * @c: connection
 * @status: the outcome
 * @cause: enum cm_cause
 */
void tool_session_count(struct tool_session *s, struct tool_conn *c, enum tool_status status, int cause)
{
	struct tool_tally *t = &s->tally;

	if (c->counted)
		return;
	c->counted = true;
	t->outcomes++;
	t->by_status[status]++;
	if (status == TOOL_OK)
		note_time(t, s->event_ns - c->begun_ns);
	else if (cause >= 0 && cause < CM_CAUSES)
		t->by_cause[cause]++;
	s->ended_ns = s->event_ns;
}

/**
 * tool_session_recount() - a connection that was counted as established turns out to be none
 * @s: session
 * @status: what it is
 * @cause: enum cm_cause
 */
void tool_session_recount(struct tool_session *s, enum tool_status status, int cause)
{
	s->tally.by_status[TOOL_OK]--;
	s->tally.by_status[status]++;
	s->tally.by_cause[cause]++;
}

/**
 * tool_session_worst() - highest status that was counted
 * @s: session
 *
 * Return: the status, %TOOL_OK if there is none.
 */
int tool_session_worst(const struct tool_session *s)
{
	int i;

	for (i = TOOL_STATUSES - 1; i > 0; i--)
		if (s->tally.by_status[i])
			return i;
	return TOOL_OK;
}

/* ---- records without a connection ---- */

static bool judge_stray(struct tool_session *s, struct tool_rec *rec, const struct tool_view *v)
{
	if (rec->attached || !v->closed || !v->passive)
		return rec->attached;
	if (v->requested && v->idle_ns < REQUEST_WAIT_NS)
		return false;
	rec->attached = true;
	s->tally.strays++;
	if (v->cause < CM_CAUSES)
		s->tally.stray_causes[v->cause]++;
	tool_report_stray(s, rec, (int)v->cause);
	return true;
}

static bool has_conn(const struct tool_session *s, const struct tool_rec *rec)
{
	const struct tool_conn *c;

	TAILQ_FOREACH(c, &s->conns, entry)
		if (c->rec == rec)
			return true;
	return false;
}

static void scan(struct tool_session *s, u64 now_ns)
{
	u64 linger = s->watch.keep_entries ? LINGER_NS : 0;
	struct tool_rec *rec, *next;
	struct tool_view v;

	s->scan_ns = now_ns + SCAN_NS;
	/* Not over tool_watch_all()'s array: to report a stray, the ladder asks for it, too. */
	for (rec = tool_watch_next(&s->watch, NULL); rec; rec = next) {
		next = tool_watch_next(&s->watch, rec);
		tool_watch_view(&s->watch, rec, &v);
		if (!v.closed || !judge_stray(s, rec, &v) || v.idle_ns < linger || !STAILQ_EMPTY(&rec->pending) || has_conn(s, rec))
			continue;
		tool_ladder_forget(&s->ladder, rec);
		tool_watch_drop(&s->watch, rec);
	}
}

/* ---- the loop ---- */

/* Why no request came of it stands under its own ladder, before an event turns to another connection. */
static void judge_focus(struct tool_session *s)
{
	struct tool_rec *rec = s->ladder.focus;
	struct tool_view v;

	if (!rec || rec->attached)
		return;
	tool_watch_view(&s->watch, rec, &v);
	judge_stray(s, rec, &v);
}

static bool take_events(struct tool_session *s)
{
	struct iwcm_event ev;
	int i;

	for (i = 0; i < EVENTS_PER_TURN; i++) {
		if (iwcm_get_event(s->ctx, &ev, 0))
			return false;
		judge_focus(s);
		s->event_ns = tool_session_now();
		s->ops->event(s, &ev);
	}
	return true;
}

static void stop(struct tool_session *s, enum tool_end why)
{
	struct tool_conn *c, *next;

	if (s->end != TOOL_END_NONE)
		return;
	s->end = why;
	s->deadline_ns = UINT64_MAX;
	s->event_ns = tool_session_now();
	s->grace_ns = s->event_ns + GRACE_NS;
	while (take_events(s)) /* what has happened before */
		;
	s->ops->stop(s);
	TAILQ_FOREACH_SAFE(c, &s->conns, entry, next) {
		unhold(s, c);
		if (c->up)
			iwcm_disconnect(c->id);
	}
}

static void take_signals(struct tool_session *s)
{
	struct signalfd_siginfo info;

	while (read(s->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		/* Asked twice: at once. Not if one Ctrl-C comes by two ways, as under timeout(1). */
		if (s->end == TOOL_END_SIGNAL && tool_session_now() > s->signal_ns + SAME_SIGNAL_NS)
			_exit(128 + (int)info.ssi_signo);
		s->signal_ns = tool_session_now();
		stop(s, TOOL_END_SIGNAL);
	}
}

static void sleep_until(struct tool_session *s, u64 until_ns)
{
	struct pollfd p[] = {
		{ .fd = iwcm_event_fd(s->ctx), .events = POLLIN },
		{ .fd = s->signal_fd, .events = POLLIN },
		{ .fd = s->watch.fd, .events = POLLIN },
	};
	u64 now_ns = tool_session_now(), ns = until_ns > now_ns ? until_ns - now_ns : 0;
	struct timespec ts = { .tv_sec = (time_t)(ns / NSEC_PER_SEC), .tv_nsec = (long)(ns % NSEC_PER_SEC) };

	ppoll(p, ARRAY_SIZE(p), until_ns == UINT64_MAX ? NULL : &ts, NULL);
}

/* Everything that is due. Returns when to come again at the latest. */
static u64 turn(struct tool_session *s)
{
	u64 next = UINT64_MAX, now_ns;
	bool more;

	take_signals(s);
	tool_watch_clear(&s->watch);
	more = take_events(s);
	now_ns = tool_session_now();
	if (now_ns >= s->deadline_ns)
		stop(s, TOOL_END_TIMEOUT);
	next = min(next, end_holds(s, now_ns));
	next = min(next, s->ops->tick(s, now_ns));
	next = min(next, tool_ladder_pump(&s->ladder));
	if (tool_watch_any_closed(&s->watch)) { /* the first one wakes us */
		if (now_ns >= s->scan_ns)
			scan(s, now_ns);
		next = min(next, s->scan_ns);
	}
	if (s->progress && now_ns >= s->progress_ns) {
		tool_report_progress(s, false);
		s->progress_ns = now_ns + 200 * NSEC_PER_MSEC;
	}
	if (s->progress)
		next = min(next, s->progress_ns);
	next = min(next, s->deadline_ns);
	next = min(next, s->grace_ns);
	return more ? 0 : next;
}

/**
 * tool_session_run() - until all is done, or has ended
 * @s: session
 */
void tool_session_run(struct tool_session *s)
{
	u64 next;

	s->ran = true;
	for (;;) {
		next = turn(s);
		if (s->ops->done(s) || tool_session_now() >= s->grace_ns)
			return;
		sleep_until(s, next);
	}
}

/* ---- the end ---- */

/* FINs may still be under way: leaving now would reset. */
static void drain(struct tool_session *s)
{
	u64 until = tool_session_now() + DRAIN_NS;
	struct iwcm_stats st;

	for (;;) {
		iwcm_get_stats(s->ctx, &st);
		tool_ladder_pump(&s->ladder);
		if (!st.nodes_now || tool_session_now() >= until)
			break;
		usleep(DRAIN_STEP_US);
	}
	scan(s, tool_session_now());
	tool_ladder_focus(&s->ladder, s->ladder.focus);
}

static int close_capture(struct tool_session *s, int status)
{
	int err = s->capture ? port_capture_close(s->capture) : 0;

	return err && !status ? TOOL_LOCAL : status; /* the log has said it */
}

/**
 * tool_session_close() - wait for the last frames, close everything, print the summary
 * @s: session
 * @status: exit status so far
 *
 * Return: the exit status.
 */
int tool_session_close(struct tool_session *s, int status)
{
	struct tool_conn *c;

	if (s->ctx) {
		while ((c = TAILQ_FIRST(&s->conns))) {
			tool_session_count(s, c, TOOL_LOCAL, CM_CAUSE_LOCAL);
			tool_conn_free(s, c);
		}
		drain(s);
		iwcm_close(s->ctx);
		tool_ladder_pump(&s->ladder);
	}
	status = close_capture(s, status);
	if (s->ran)
		tool_report_summary(s, status);
	if (s->watch.fd > 0)
		tool_watch_destroy(&s->watch);
	if (s->signal_fd >= 0)
		close(s->signal_fd);
	free(s->tally.us);
	return status;
}
