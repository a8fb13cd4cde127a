// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: `uwarp connect`.
 *
 * Each connection is: make an id, resolve, RESOLVED, connect, ESTABLISHED or a failure, hold, disconnect, CLOSED. A name with
 * several addresses: one after the other, as long as TCP does not come up; what has worked once is where the next
 * connection begins.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "tool/session.h"

#define TCP_TIMEOUT_MS 20000u    /* without --timeout */
#define LEAD_MS 100              /* the CM's time limits come so much before ours */
#define STARTS_PER_TURN 64

static struct {
	struct tool_endpoint to, from;
	size_t target;           /* first address that may work */
	u64 started;
	u64 next_start_ns;
	bool stopped;
} run;

static const struct sockaddr *source_for(const struct sockaddr_storage *to)
{
	size_t i;

	for (i = 0; i < run.from.n; i++)
		if (run.from.addr[i].ss_family == to->ss_family)
			return (const struct sockaddr *)&run.from.addr[i];
	return NULL;
}

/* The time limit of everything bounds each stage of this one: then the CM says which one it was. */
static void set_options(struct tool_session *s, struct iwcm_id *id)
{
	struct iwcm_options o = s->o->mpa;
	u64 now_ns = tool_session_now(), left_ms;

	o.connect_timeout_ms = TCP_TIMEOUT_MS;
	if (s->deadline_ns != UINT64_MAX) {
		left_ms = s->deadline_ns > now_ns ? (s->deadline_ns - now_ns) / NSEC_PER_MSEC : 0;
		left_ms -= min(left_ms / 4, (u64)LEAD_MS);
		o.connect_timeout_ms = o.mpa_timeout_ms = (unsigned int)min(max(left_ms, (u64)1), (u64)INT32_MAX);
	}
	iwcm_set_options(id, &o);
}

static void over(struct tool_session *s, struct tool_conn *c, enum tool_status status, int cause, int error, const struct iwcm_event *ev)
{
	tool_session_count(s, c, status, cause);
	tool_report_failure(s, c, status, cause, error, ev);
	tool_conn_free(s, c);
}

static int begin(struct tool_session *s, struct tool_conn *c)
{
	const struct sockaddr *from;
	int err;

	c->remote = run.to.addr[c->target];
	memset(&c->local, 0, sizeof(c->local));
	from = source_for(&c->remote);
	if (run.from.n && !from)
		return -EAFNOSUPPORT;
	err = iwcm_create_id(s->ctx, c, &c->id);
	if (err)
		return err;
	set_options(s, c->id);
	return iwcm_resolve(c->id, from, (const struct sockaddr *)&c->remote);
}

/* Did it fail before TCP was up, and is there another address? Then begin again with that one. */
static bool try_next(struct tool_session *s, struct tool_conn *c, enum iwcm_event_type type, int cause, int error)
{
	bool no_tcp = type == IWCM_EVENT_RESOLVE_ERROR || cause == CM_CAUSE_REFUSED || cause == CM_CAUSE_NO_SYNACK ||
		      cause == CM_CAUSE_UNREACHABLE || (cause == CM_CAUSE_NONE && error == -EAFNOSUPPORT);

	if (!no_tcp || c->target + 1 >= run.to.n || s->end != TOOL_END_NONE)
		return false;
	tool_report_next_address(s, c, cause, error);
	iwcm_destroy_id(c->id);
	c->id = NULL;
	c->rec = NULL;
	c->target++;
	if (s->tally.by_status[TOOL_OK] == 0)
		run.target = max(run.target, c->target);
	return true;
}

static void fail(struct tool_session *s, struct tool_conn *c, enum iwcm_event_type type, int cause, int error, const struct iwcm_event *ev)
{
	while (try_next(s, c, type, cause, error)) {
		error = begin(s, c);
		if (!error)
			return;
		type = IWCM_EVENT_CONNECT_ERROR;
		cause = CM_CAUSE_NONE;
		ev = NULL;
	}
	if (cause == CM_CAUSE_NONE && (error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOBUFS))
		cause = CM_CAUSE_NO_RESOURCES; /* a call that failed has none of its own */
	over(s, c, tool_status_of(type, cause, error), cause, error, ev);
}

static void start(struct tool_session *s)
{
	struct tool_conn *c = tool_conn_new(s, NULL, true);
	int err;

	s->event_ns = tool_session_now();
	run.started++;
	if (!c) {
		tool_error("%s", strerror(ENOMEM));
		s->ops->stop(s);
		return;
	}
	c->number = ++s->ladder.last_number;
	c->target = run.target;
	err = begin(s, c);
	if (err)
		fail(s, c, IWCM_EVENT_CONNECT_ERROR, CM_CAUSE_NONE, err, NULL);
}

static void on_resolved(struct tool_session *s, struct tool_conn *c)
{
	const struct iwcm_conn_param p = {
		.private_data = s->o->pdata.data,
		.private_data_len = s->o->pdata.len,
		.ird = s->o->ird,
		.ord = s->o->ord,
	};
	int err = iwcm_connect(c->id, &p);

	if (err) {
		fail(s, c, IWCM_EVENT_CONNECT_ERROR, CM_CAUSE_NONE, err, NULL);
		return;
	}
	iwcm_local_addr(c->id, &c->local);
	tool_conn_find_rec(s, c);
}

/*
 * A FIN right behind the RTR stops the kernel of a Linux 6.1 siw responder (BUG in iwcm.c): by default the peer gets a moment to say that it is
 * established.
 */
static double default_hold_s(const struct iwcm_event *ev)
{
	return ev->info.rtr ? 0.2 : 0;
}

/* RFC 6581 lets a responder that cannot go along accept, so to say, and send a Terminate right behind the reply. */
static void on_established(struct tool_session *s, struct tool_conn *c, const struct iwcm_event *ev)
{
	struct tool_view v = { .terminate = CM_CAUSE_NONE };

	if (c->rec)
		tool_watch_view(&s->watch, c->rec, &v);
	if (v.terminate == CM_CAUSE_NONE) {
		tool_session_count(s, c, TOOL_OK, 0);
		tool_report_established(s, c, ev);
		tool_conn_up(s, c, s->o->hold_s < 0 ? default_hold_s(ev) : s->o->hold_s);
		return;
	}
	tool_session_count(s, c, TOOL_PROTOCOL, (int)v.terminate);
	iwcm_disconnect(c->id);
	tool_report_failure(s, c, TOOL_PROTOCOL, (int)v.terminate, -EPROTO, ev);
}

static void on_event(struct tool_session *s, const struct iwcm_event *ev)
{
	struct tool_conn *c = iwcm_user(ev->id);

	switch (ev->type) {
	case IWCM_EVENT_RESOLVED:
		on_resolved(s, c);
		break;
	case IWCM_EVENT_ESTABLISHED:
		on_established(s, c, ev);
		break;
	case IWCM_EVENT_RESOLVE_ERROR:
	case IWCM_EVENT_REJECTED:
	case IWCM_EVENT_CONNECT_ERROR:
		fail(s, c, ev->type, ev->info.cause, ev->status, ev);
		break;
	case IWCM_EVENT_DEVICE_REMOVED:
		fail(s, c, ev->type, CM_CAUSE_LOCAL, ev->status, NULL);
		break;
	case IWCM_EVENT_DISCONNECTED:
		if (!c->up)
			break;
		if (tool_rtr_turned_down(s, c, ev))
			tool_session_recount(s, TOOL_PROTOCOL, ev->status == -ECONNRESET ? CM_CAUSE_RESET : CM_CAUSE_NONE);
		tool_report_end(s, c, ev);
		break;
	case IWCM_EVENT_CLOSED:
		tool_conn_free(s, c);
		break;
	case IWCM_EVENT_CONNECT_REQUEST:
	default:
		break;
	}
}

/* Start what is due. */
static u64 on_tick(struct tool_session *s, u64 now_ns)
{
	const struct tool_options *o = s->o;
	int i;

	for (i = 0; i < STARTS_PER_TURN; i++) {
		if (run.stopped || run.started >= o->count || s->num_conns >= o->parallel)
			return UINT64_MAX;
		if (o->rate > 0) {
			if (run.next_start_ns > now_ns)
				return run.next_start_ns;
			run.next_start_ns += (u64)(1e9 / o->rate);
		}
		start(s);
	}
	return 0;
}

static bool is_done(struct tool_session *s)
{
	return TAILQ_EMPTY(&s->conns) && (run.stopped || run.started >= s->o->count);
}

/* What a connection that is given up was waiting for. */
static int pending_cause(struct tool_session *s, const struct tool_conn *c)
{
	struct tool_view v;

	if (s->end == TOOL_END_SIGNAL)
		return CM_CAUSE_LOCAL;
	if (!c->rec)
		return CM_CAUSE_NONE;
	tool_watch_view(&s->watch, c->rec, &v);
	return v.state && !strcmp(v.state, "MPAREQ_SENT") ? CM_CAUSE_NO_MPA_REPLY : CM_CAUSE_NO_SYNACK;
}

static void on_stop(struct tool_session *s)
{
	struct tool_conn *c, *next;
	int cause;

	run.stopped = true;
	TAILQ_FOREACH_SAFE(c, &s->conns, entry, next) {
		if (c->up)
			continue;
		cause = pending_cause(s, c);
		over(s, c, s->end == TOOL_END_SIGNAL ? TOOL_LOCAL : TOOL_TIMED_OUT, cause, -ETIMEDOUT, NULL);
	}
}

static const struct tool_session_ops ops = { on_event, on_tick, is_done, on_stop };

/* ADDR, ADDR:PORT, [V6]:PORT; a bare IPv6 address, too. */
static int parse_bind(const struct tool_options *o)
{
	const char *text = o->bind, *colon = strchr(text, ':');
	char buf[300];

	if (*text != '[' && colon && strchr(colon + 1, ':'))
		snprintf(buf, sizeof(buf), "[%s]:0", text);
	else if (!colon || text[strlen(text) - 1] == ']')
		snprintf(buf, sizeof(buf), "%s:0", text);
	else
		snprintf(buf, sizeof(buf), "%s", text);
	return tool_endpoint_parse(buf, true, o->family, &run.from);
}

static int exit_status(const struct tool_session *s)
{
	if (s->tally.by_status[TOOL_OK] == s->o->count)
		return TOOL_OK;
	if (tool_session_worst(s))
		return tool_session_worst(s);
	return s->end == TOOL_END_TIMEOUT ? TOOL_TIMED_OUT : TOOL_LOCAL; /* some were never begun */
}

int tool_connect(const struct tool_options *o)
{
	struct tool_session s;
	int ret = tool_endpoint_parse(o->where, false, o->family, &run.to);

	if (!ret && o->bind)
		ret = parse_bind(o);
	if (ret)
		return ret;
	ret = tool_session_open(&s, o, &ops, o->count == 1);
	if (ret)
		return tool_session_close(&s, ret);
	run.next_start_ns = s.begun_ns;
	tool_session_run(&s);
	return tool_session_close(&s, exit_status(&s));
}
