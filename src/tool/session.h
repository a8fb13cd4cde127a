/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool: what `uwarp connect` and `uwarp listen` have in common: a context, its connections, the loop of the main thread, the
 * reports, and the end: by itself, by a signal or at the time limit.
 *
 * The main thread sleeps in poll(): events of the library, what the watch has seen, signals, the next deadline.
 */
#ifndef UWARP_TOOL_SESSION_H
#define UWARP_TOOL_SESSION_H

#include "tool/json.h"
#include "tool/ladder.h"
#include "tool/tool.h"
#include "tool/watch.h"

struct tool_conn {
	TAILQ_ENTRY(tool_conn) entry, hold_entry;
	struct iwcm_id *id;
	struct tool_rec *rec;        /* what the watch has, if any */
	u64 number;
	u64 begun_ns, up_ns, hold_until_ns;
	bool active, up, holding;
	bool counted;                /* its outcome is known */
	size_t target;               /* connect: which of the addresses */
	struct sockaddr_storage local, remote;
};
TAILQ_HEAD(tool_conn_list, tool_conn);

struct tool_tally {
	u64 by_status[TOOL_STATUSES];
	u64 by_cause[CM_CAUSES];
	u64 strays;                  /* listen: connections that ended without a request */
	u64 stray_causes[CM_CAUSES];
	u64 outcomes;
	u32 *us;                     /* set-up times of those established */
	size_t num_us, size_us;
};

enum tool_end { TOOL_END_NONE, TOOL_END_SIGNAL, TOOL_END_TIMEOUT };

struct tool_session;
struct tool_session_ops {
	void (*event)(struct tool_session *s, const struct iwcm_event *ev);
	u64 (*tick)(struct tool_session *s, u64 now_ns); /* what is due; when to come again */
	bool (*done)(struct tool_session *s);
	void (*stop)(struct tool_session *s);            /* begin nothing more */
};

struct tool_session {
	const struct tool_options *o;
	const struct tool_session_ops *ops;
	bool ladders;                /* text about each connection */
	bool events;                 /* JSON about each connection */
	bool progress;
	struct iwcm_ctx *ctx;
	struct port_capture *capture;
	struct tool_watch watch;
	struct tool_ladder ladder;
	int signal_fd;
	u64 event_ns;                /* when the event in hand was taken */
	u64 begun_ns, ended_ns, deadline_ns, grace_ns, scan_ns, progress_ns, signal_ns;
	enum tool_end end;
	bool ran;                    /* there is something to sum up */
	struct tool_conn_list conns;
	struct tool_conn_list holding;   /* all are held equally long: in order of time */
	u64 num_conns;
	struct tool_tally tally;
};

/* ---- session.c ---- */
/* 0, or an exit status after a message. @single: at most one connection is expected. */
int tool_session_open(struct tool_session *s, const struct tool_options *o, const struct tool_session_ops *ops, bool single);
void tool_session_run(struct tool_session *s);
/* Waits for the last frames, closes everything. @status: of the exit so far; returns what it is now. */
int tool_session_close(struct tool_session *s, int status);
struct tool_conn *tool_conn_new(struct tool_session *s, struct iwcm_id *id, bool active);
void tool_conn_find_rec(struct tool_session *s, struct tool_conn *c);
void tool_conn_free(struct tool_session *s, struct tool_conn *c); /* destroys its id */
void tool_conn_up(struct tool_session *s, struct tool_conn *c, double hold_s); /* negative: no end */
/* Count the outcome of a connection, once. */
void tool_session_count(struct tool_session *s, struct tool_conn *c, enum tool_status status, int cause);
/* One that was counted as established is none. */
void tool_session_recount(struct tool_session *s, enum tool_status status, int cause);
int tool_session_worst(const struct tool_session *s); /* highest status that was counted, TOOL_OK if none */
u64 tool_session_now(void);

/* ---- report.c ---- */
void tool_report_listening(struct tool_session *s, const struct sockaddr_storage *at);
void tool_report_request(struct tool_session *s, struct tool_conn *c, const struct iwcm_event *ev);
void tool_report_established(struct tool_session *s, struct tool_conn *c, const struct iwcm_event *ev);
/* @cause, @error: as in an event; @ev: it, if what it says about the peer is worth showing, else NULL. */
void tool_report_failure(struct tool_session *s, struct tool_conn *c, enum tool_status status, int cause, int error,
			 const struct iwcm_event *ev);
void tool_report_rejected(struct tool_session *s, struct tool_conn *c); /* by this side */
void tool_report_next_address(struct tool_session *s, struct tool_conn *c, int cause, int error);
bool tool_rtr_turned_down(const struct tool_session *s, const struct tool_conn *c, const struct iwcm_event *ev);
void tool_report_end(struct tool_session *s, struct tool_conn *c, const struct iwcm_event *ev);
void tool_report_stray(struct tool_session *s, struct tool_rec *rec, int cause);
void tool_report_summary(struct tool_session *s, int status);
void tool_report_progress(struct tool_session *s, bool last);

#endif
