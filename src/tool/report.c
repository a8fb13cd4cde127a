// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: what `uwarp connect` and `uwarp listen` say about their connections, to people and in JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tool/session.h"

#define HINT_WIDTH 74
#define AT_REVISION_1 " (with MPA revision 1, after 2 was turned down)"
#define LAST_FRAME_TRIES 20
#define LAST_FRAME_STEP_US 500

static double ms(u64 ns)
{
	return (double)ns / 1e6;
}

/* Since the first frame, as in the ladder. */
static double since_begun(const struct tool_session *s, const struct tool_conn *c)
{
	u64 from = c->rec ? c->rec->first_ns : c->begun_ns;

	return s->event_ns > from ? ms(s->event_ns - from) : 0;
}

/* ---- JSON ---- */

static void json_pdata(struct tool_json *j, const struct iwcm_event *ev)
{
	char text[MPA_MAX_PRIV_DATA + 1];

	tool_json_object(j, "private_data");
	tool_json_u64(j, "length", ev->private_data_len);
	tool_json_hex(j, "hex", ev->private_data, ev->private_data_len);
	if (tool_pdata_as_text(ev->private_data, ev->private_data_len, text))
		tool_json_str(j, "text", text);
	else
		tool_json_null(j, "text");
	tool_json_object_end(j);
}

static void json_depth(struct tool_json *j, const char *key, u32 depth)
{
	if (depth == MPA_V2_NOT_NEGOTIATED)
		tool_json_null(j, key);
	else
		tool_json_u64(j, key, depth);
}

static void json_rtr(struct tool_json *j, const char *key, u32 rtr)
{
	tool_json_array(j, key);
	if (rtr & RDMAP_RTR_SEND)
		tool_json_str(j, NULL, "send");
	if (rtr & RDMAP_RTR_WRITE)
		tool_json_str(j, NULL, "write");
	if (rtr & RDMAP_RTR_READ)
		tool_json_str(j, NULL, "read");
	tool_json_array_end(j);
}

static void json_info(struct tool_json *j, const struct iwcm_info *i)
{
	tool_json_object(j, "negotiated");
	tool_json_u64(j, "mpa_revision", i->mpa_revision);
	tool_json_u64(j, "peer_revision", i->peer_revision);
	tool_json_u64(j, "peer_flags", i->peer_flags);
	tool_json_str(j, "model", i->peer_to_peer ? "p2p" : "cs");
	json_rtr(j, "rtr", i->rtr);
	json_rtr(j, "rtr_offered", i->rtr_offered);
	tool_json_bool(j, "crc", i->crc);
	tool_json_bool(j, "send_markers", i->send_markers);
	tool_json_bool(j, "receive_markers", i->receive_markers);
	json_depth(j, "ird", i->ird);
	json_depth(j, "ord", i->ord);
	json_depth(j, "peer_ird", i->peer_ird);
	json_depth(j, "peer_ord", i->peer_ord);
	tool_json_u64(j, "mss", i->mss);
	tool_json_u64(j, "syn_sent", i->syn_sent);
	tool_json_u64(j, "mpa_sent", i->mpa_sent);
	tool_json_bool(j, "fell_back", i->fell_back);
	tool_json_object_end(j);
}

/* What became of a connection that did not come up: nothing was negotiated, but the peer may have answered. */
static void json_attempt(struct tool_json *j, const struct iwcm_event *ev)
{
	const struct iwcm_info *i = &ev->info;

	tool_json_u64(j, "syn_sent", i->syn_sent);
	tool_json_u64(j, "mpa_sent", i->mpa_sent);
	tool_json_bool(j, "fell_back", i->fell_back);
	if (!i->peer_revision)
		return;
	tool_json_u64(j, "peer_revision", i->peer_revision);
	tool_json_u64(j, "peer_flags", i->peer_flags);
	json_pdata(j, ev);
}

static void json_begin(struct tool_session *s, struct tool_json *j, const char *event, const struct tool_conn *c)
{
	char buf[TOOL_ADDRSTR];

	tool_ladder_pump(&s->ladder); /* the frames that led here stand before it */
	tool_json_begin(j, stdout);
	tool_json_str(j, "event", event);
	tool_json_u64(j, "connection", c->number);
	if (c->local.ss_family != AF_UNSPEC)
		tool_json_str(j, "local", tool_sockaddr_str(&c->local, buf));
	tool_json_str(j, "remote", tool_sockaddr_str(&c->remote, buf));
	tool_json_double(j, "ms", since_begun(s, c));
}

/* ---- text ---- */

static void print_pdata(const char *what, const struct iwcm_event *ev)
{
	if (!ev->private_data_len)
		return;
	printf("%s, %zu byte%s:\n", what, ev->private_data_len, ev->private_data_len == 1 ? "" : "s");
	tool_pdata_print(stdout, ev->private_data, ev->private_data_len);
}

/* Broken at blanks. */
static void print_hint(const char *s)
{
	const char *label = "hint: ";
	size_t cut;

	for (; s && *s; s += cut + strspn(s + cut, " "), label = "      ") {
		cut = strlen(s);
		if (cut > HINT_WIDTH)
			for (cut = HINT_WIDTH; s[cut] != ' '; cut--)
				;
		printf("%s%.*s\n", label, (int)cut, s);
	}
}

/* What the CM says, and, where it says nothing in particular, the system. */
static const char *reason(int cause, int error)
{
	return cause > CM_CAUSE_NONE && cause < CM_CAUSES ? iwcm_cause_str(cause) : strerror(-error);
}

/* The same behind the status: "timed out: ..." says the first words once. */
static const char *reason_after(enum tool_status status, int cause, int error)
{
	const char *s = tool_status_str(status), *r = reason(cause, error);
	size_t len = strlen(s);

	return !strncmp(r, s, len) && r[len] == ':' ? r + len + 2 : r;
}

/* The event comes a moment before the last frame: let that be seen first. */
static void await_last_frame(struct tool_session *s, const struct tool_conn *c)
{
	struct tool_view v;
	int i;

	for (i = 0; c->rec && i < LAST_FRAME_TRIES; i++) {
		tool_watch_view(&s->watch, c->rec, &v);
		if (v.closed)
			return;
		usleep(LAST_FRAME_STEP_US);
	}
}

/* ---- reports ---- */

/**
 * tool_report_listening() - a listener is open
 * @s: session
 * @at: its address
 */
void tool_report_listening(struct tool_session *s, const struct sockaddr_storage *at)
{
	char buf[TOOL_ADDRSTR];
	struct tool_json j;

	if (s->events) {
		tool_json_begin(&j, stdout);
		tool_json_str(&j, "event", "listening");
		tool_json_str(&j, "local", tool_sockaddr_str(at, buf));
		tool_json_u64(&j, "port", tool_sockaddr_port(at));
		tool_json_end(&j);
	} else if (!s->o->json && !s->o->quiet) {
		printf("listening on %s%s\n", tool_sockaddr_str(at, buf), s->o->reject ? ", to reject" : "");
		fflush(stdout);
	}
}

/**
 * tool_report_request() - a peer asks
 * @s: session
 * @c: connection
 * @ev: the event
 */
void tool_report_request(struct tool_session *s, struct tool_conn *c, const struct iwcm_event *ev)
{
	struct tool_json j;

	if (s->events) {
		json_begin(s, &j, "request", c);
		json_info(&j, &ev->info);
		json_pdata(&j, ev);
		tool_json_end(&j);
	} else if (s->ladders) {
		tool_ladder_focus(&s->ladder, c->rec);
		print_pdata("the request's private data", ev);
		fflush(stdout);
	}
}

/**
 * tool_report_established() - a connection is up
 * @s: session
 * @c: connection
 * @ev: the event
 */
void tool_report_established(struct tool_session *s, struct tool_conn *c, const struct iwcm_event *ev)
{
	struct tool_json j;

	if (s->events) {
		json_begin(s, &j, "established", c);
		json_info(&j, &ev->info);
		if (c->active)
			json_pdata(&j, ev);
		tool_json_end(&j);
	} else if (s->ladders) {
		tool_ladder_focus(&s->ladder, c->rec);
		printf("established after %.3f ms\n", since_begun(s, c));
		tool_print_negotiated(stdout, &ev->info);
		print_pdata("the reply's private data", ev);
		fflush(stdout);
	}
}

/* RFC 6581: what the peer has said about it, besides. */
static int terminate_of(struct tool_session *s, const struct tool_conn *c)
{
	struct tool_view v;

	if (!c->rec)
		return CM_CAUSE_NONE;
	tool_watch_view(&s->watch, c->rec, &v);
	return (int)v.terminate;
}

/**
 * tool_report_failure() - a connection did not come up
 * @s: session
 * @c: connection
 * @status: what it counts as
 * @cause: enum cm_cause
 * @error: negative errno, which is shown if there is no cause
 * @ev: the event, if what it says about the peer is worth showing, else NULL
 */
void tool_report_failure(struct tool_session *s, struct tool_conn *c, enum tool_status status, int cause, int error,
			 const struct iwcm_event *ev)
{
	int terminate = terminate_of(s, c);
	int hinted = terminate != CM_CAUSE_NONE ? terminate : cause; /* what the peer's Terminate says is finer */
	bool fell_back = ev && ev->info.fell_back;
	const char *hint = tool_hint(hinted, !c->active, fell_back);
	char buf[TOOL_ADDRSTR];
	struct tool_json j;

	if (s->events) {
		json_begin(s, &j, status == TOOL_REJECTED ? "rejected" : "error", c);
		tool_json_str(&j, "status", tool_status_str(status));
		tool_json_str(&j, "cause", tool_cause_name(cause));
		tool_json_str(&j, "message", reason(cause, error));
		if (hint)
			tool_json_str(&j, "hint", hint);
		if (terminate != CM_CAUSE_NONE)
			tool_json_str(&j, "terminate", tool_cause_name(terminate));
		if (ev)
			json_attempt(&j, ev);
		tool_json_end(&j);
	} else if (s->ladders) {
		await_last_frame(s, c);
		tool_ladder_focus(&s->ladder, c->rec);
		printf("%s after %.3f ms: %s%s\n", tool_status_str(status), since_begun(s, c), reason_after(status, cause, error),
		       fell_back ? AT_REVISION_1 : "");
		if (ev)
			print_pdata("the reply's private data", ev);
		if (terminate != CM_CAUSE_NONE && terminate != cause)
			printf("the peer's Terminate says why: %s\n", iwcm_cause_str(terminate));
		print_hint(hint);
		fflush(stdout);
	} else if (!s->o->json && s->o->count == 1) {
		tool_error("%s: %s: %s%s", tool_sockaddr_str(&c->remote, buf), tool_status_str(status),
			   reason_after(status, cause, error), fell_back ? AT_REVISION_1 : "");
	}
}

/**
 * tool_report_rejected() - this side has rejected a request
 * @s: session
 * @c: connection
 */
void tool_report_rejected(struct tool_session *s, struct tool_conn *c)
{
	struct tool_json j;

	if (s->events) {
		json_begin(s, &j, "rejected", c);
		tool_json_str(&j, "status", tool_status_str(TOOL_REJECTED));
		tool_json_str(&j, "cause", "local");
		tool_json_end(&j);
	} else if (s->ladders) {
		await_last_frame(s, c);
		tool_ladder_focus(&s->ladder, c->rec);
		printf("rejected, as asked for by --reject\n");
		fflush(stdout);
	}
}

/**
 * tool_report_next_address() - a name's next address is tried
 * @s: session
 * @c: connection
 * @cause: why the last one failed
 * @error: negative errno
 */
void tool_report_next_address(struct tool_session *s, struct tool_conn *c, int cause, int error)
{
	char buf[TOOL_ADDRSTR];
	struct tool_json j;

	if (s->events) {
		json_begin(s, &j, "next_address", c);
		tool_json_str(&j, "cause", tool_cause_name(cause));
		tool_json_str(&j, "message", reason(cause, error));
		tool_json_end(&j);
	} else if (s->ladders) {
		tool_ladder_focus(&s->ladder, c->rec);
		printf("%s: %s; the name has another address\n", tool_sockaddr_str(&c->remote, buf), reason(cause, error));
		fflush(stdout);
	}
}

#define END_SIZE 120

/* Who sent the Terminate, and what it says, where that was seen. */
static const char *terminated(struct tool_session *s, const struct tool_conn *c, char buf[END_SIZE])
{
	struct tool_view v = { .term_in = NULL };

	if (c->rec)
		tool_watch_view(&s->watch, c->rec, &v);
	if (!v.term_in && !v.term_out)
		return "by a Terminate, or an FPDU that is wrong";
	snprintf(buf, END_SIZE, "by %s Terminate: %s", v.term_in ? "the peer's" : "this side's", v.term_in ? v.term_in : v.term_out);
	return buf;
}

static const char *end_of(struct tool_session *s, const struct tool_conn *c, int status, char buf[END_SIZE])
{
	switch (-status) {
	case 0:
		return "in order";
	case ECONNRESET:
		return "by a reset";
	case EPROTO:
		return terminated(s, c, buf);
	case ETIMEDOUT:
		return "because the peer stopped acknowledging, or sent no RTR";
	case ECONNABORTED:
		return "by a reset from this side, as the peer did not close, or the interface went";
	default:
		snprintf(buf, END_SIZE, "by an error: %s", strerror(-status));
		return buf;
	}
}

/**
 * tool_rtr_turned_down() - did the peer end the connection right behind the RTR?
 * @s: session
 * @c: connection that was established
 * @ev: the event of its end
 *
 * A peer that does not like the first message resets, or sends a Terminate, at once.
 *
 * Return: so it is.
 */
bool tool_rtr_turned_down(const struct tool_session *s, const struct tool_conn *c, const struct iwcm_event *ev)
{
	return c->active && ev->info.rtr && (ev->status == -ECONNRESET || ev->status == -EPROTO) && s->event_ns - c->up_ns <= NSEC_PER_SEC;
}

static const char *end_hint(const struct tool_session *s, const struct tool_conn *c, const struct iwcm_event *ev)
{
	if (!tool_rtr_turned_down(s, c, ev))
		return NULL;
	return "the other end may not expect this RTR message, or none: try another --rtr, or --model cs";
}

/* After ESTABLISHED: how it ended. */
void tool_report_end(struct tool_session *s, struct tool_conn *c, const struct iwcm_event *ev)
{
	char buf[END_SIZE];
	const char *how, *hint = end_hint(s, c, ev);
	struct tool_json j;

	if (s->ladders)
		await_last_frame(s, c);
	how = end_of(s, c, ev->status, buf);

	if (s->events) {
		json_begin(s, &j, "disconnected", c);
		tool_json_str(&j, "how", how);
		tool_json_double(&j, "up_ms", ms(s->event_ns - c->up_ns));
		if (hint) {
			tool_json_str(&j, "status", tool_status_str(TOOL_PROTOCOL));
			tool_json_str(&j, "hint", hint);
		}
		tool_json_end(&j);
	} else if (s->ladders) {
		tool_ladder_focus(&s->ladder, c->rec);
		printf("disconnected %s, %.3f ms after it was established\n", how, ms(s->event_ns - c->up_ns));
		print_hint(hint);
		fflush(stdout);
	}
}

/**
 * tool_report_stray() - a connection to the listener is over, and no request came of it
 * @s: session
 * @rec: what was seen of it
 * @cause: why, as far as frames tell
 */
void tool_report_stray(struct tool_session *s, struct tool_rec *rec, int cause)
{
	const char *hint = tool_hint(cause, true, false);
	char buf[PKT_ADDRSTR];
	struct tool_json j;
	struct tool_view v;

	if (s->events) {
		tool_watch_view(&s->watch, rec, &v);
		tool_ladder_pump(&s->ladder);
		tool_json_begin(&j, stdout);
		tool_json_str(&j, "event", "no_request");
		tool_json_u64(&j, "connection", tool_ladder_number(&s->ladder, rec));
		tool_json_str(&j, "local", pkt_addr_str(rec->tuple.ipv4, rec->tuple.loc_addr, rec->tuple.loc_port, buf));
		tool_json_str(&j, "remote", pkt_addr_str(rec->tuple.ipv4, rec->tuple.rem_addr, rec->tuple.rem_port, buf));
		tool_json_double(&j, "ms", ms(v.lasted_ns));
		tool_json_str(&j, "status", tool_status_str(tool_status_of(IWCM_EVENT_CONNECT_ERROR, cause, 0)));
		tool_json_str(&j, "cause", tool_cause_name(cause));
		tool_json_str(&j, "message", iwcm_cause_str(cause));
		if (hint)
			tool_json_str(&j, "hint", hint);
		tool_json_end(&j);
	} else if (s->ladders) {
		tool_ladder_focus(&s->ladder, rec);
		printf("no valid request: %s\n", iwcm_cause_str(cause));
		print_hint(hint);
		fflush(stdout);
	}
}

/* ---- summary ---- */

static int compare_u32(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

static double percentile(const struct tool_tally *t, double p)
{
	size_t i = (size_t)(p / 100 * (double)t->num_us);

	return t->us[min(i, t->num_us - 1)] / 1e3;
}

static double rate_of(const struct tool_session *s)
{
	u64 ns = s->ended_ns > s->begun_ns ? s->ended_ns - s->begun_ns : 0;

	return ns ? (double)s->tally.outcomes / ((double)ns / 1e9) : 0;
}

static const double shares[] = { 0, 50, 90, 99, 100 };
static const char *const share_names[] = { "min", "median", "p90", "p99", "max" };

static void summary_json(struct tool_session *s, int status)
{
	struct tool_tally *t = &s->tally;
	struct tool_json j;
	size_t i;

	tool_json_begin(&j, stdout);
	tool_json_str(&j, "event", "summary");
	tool_json_u64(&j, "connections", t->outcomes);
	tool_json_u64(&j, "established", t->by_status[TOOL_OK]);
	tool_json_u64(&j, "rejected", t->by_status[TOOL_REJECTED]);
	tool_json_u64(&j, "refused", t->by_status[TOOL_REFUSED]);
	tool_json_u64(&j, "timed_out", t->by_status[TOOL_TIMED_OUT]);
	tool_json_u64(&j, "protocol_errors", t->by_status[TOOL_PROTOCOL]);
	tool_json_u64(&j, "local_failures", t->by_status[TOOL_LOCAL]);
	tool_json_u64(&j, "no_request", t->strays);
	tool_json_object(&j, "causes");
	for (i = 1; i < CM_CAUSES; i++)
		if (t->by_cause[i] + t->stray_causes[i])
			tool_json_u64(&j, tool_cause_name((int)i), t->by_cause[i] + t->stray_causes[i]);
	tool_json_object_end(&j);
	tool_json_double(&j, "seconds", (double)(tool_session_now() - s->begun_ns) / 1e9);
	tool_json_double(&j, "per_second", rate_of(s));
	tool_json_object(&j, "setup_ms");
	for (i = 0; i < ARRAY_SIZE(shares) && t->num_us; i++)
		tool_json_double(&j, share_names[i], percentile(t, shares[i]));
	tool_json_object_end(&j);
	tool_json_str(&j, "ended_by", s->end == TOOL_END_SIGNAL ? "signal" : s->end == TOOL_END_TIMEOUT ? "timeout" : "itself");
	tool_json_u64(&j, "exit_status", (u64)status);
	tool_json_end(&j);
}

static void summary_text(struct tool_session *s)
{
	struct tool_tally *t = &s->tally;
	size_t i;
	u64 n;

	printf("%s%llu connection%s in %.3f s, %.1f per second%s\n", s->ladders ? "\n" : "", (unsigned long long)t->outcomes,
	       t->outcomes == 1 ? "" : "s", (double)((s->ended_ns ? s->ended_ns : tool_session_now()) - s->begun_ns) / 1e9, rate_of(s),
	       s->end == TOOL_END_SIGNAL ? "; interrupted" : s->end == TOOL_END_TIMEOUT ? "; time limit reached" : "");
	for (i = 0; i < TOOL_STATUSES; i++)
		if (t->by_status[i] || !i)
			printf("    %-16s %9llu\n", tool_status_str((enum tool_status)i), (unsigned long long)t->by_status[i]);
	if (t->strays)
		printf("    %-16s %9llu\n", "without request", (unsigned long long)t->strays);
	for (i = 1; i < CM_CAUSES; i++) {
		n = t->by_cause[i] + t->stray_causes[i];
		if (n)
			printf("    %9llu times: %s\n", (unsigned long long)n, iwcm_cause_str((int)i));
	}
	if (!t->num_us)
		return;
	printf("set-up time in ms:");
	for (i = 0; i < ARRAY_SIZE(shares); i++)
		printf(" %s %.3f%s", share_names[i], percentile(t, shares[i]), i + 1 < ARRAY_SIZE(shares) ? "," : "\n");
}

/**
 * tool_report_summary() - the last words
 * @s: session
 * @status: exit status
 */
void tool_report_summary(struct tool_session *s, int status)
{
	tool_report_progress(s, true);
	if (s->tally.num_us)
		qsort(s->tally.us, s->tally.num_us, sizeof(*s->tally.us), compare_u32);
	if (s->o->json)
		summary_json(s, status);
	else if (!s->o->quiet && s->o->count != 1)
		summary_text(s);
	fflush(stdout);
}

/**
 * tool_report_progress() - the line on a terminal
 * @s: session
 * @last: remove it
 */
void tool_report_progress(struct tool_session *s, bool last)
{
	const struct tool_tally *t = &s->tally;

	if (!s->progress)
		return;
	if (last) {
		fputs("\r\033[K", stderr);
		return;
	}
	fprintf(stderr, "\r%llu", (unsigned long long)t->outcomes);
	if (s->o->count)
		fprintf(stderr, " of %llu", (unsigned long long)s->o->count);
	fprintf(stderr, " connections, %llu established, %llu under way\033[K", (unsigned long long)t->by_status[TOOL_OK],
		(unsigned long long)s->num_conns);
}
