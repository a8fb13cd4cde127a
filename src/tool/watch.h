/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool: collects, per connection, the frames and the CM's steps, for ladders.
 *
 * The callbacks run in whatever thread sends or receives, some of them with the CM's lock held: they note what they see
 * under a lock of their own, and wake the main thread, which fetches it. Memory is bounded: TOOL_RECS_MAX connections,
 * TOOL_ENTRIES_MAX entries each that were not fetched; what is beyond is counted.
 */
#ifndef UWARP_TOOL_WATCH_H
#define UWARP_TOOL_WATCH_H

#include "base/base.h"
#include "cm/cm.h"
#include "tool/decode.h"

#define TOOL_RECS_MAX 8192u
#define TOOL_ENTRIES_MAX 512u

enum tool_entry_kind { TOOL_ENTRY_FRAME, TOOL_ENTRY_STATE };

struct tool_entry {
	STAILQ_ENTRY(tool_entry) entry;
	enum tool_entry_kind kind;
	u64 ns;
	/* frame */
	bool out, first;         /* first: of the lines of one frame */
	struct tool_segment seg;
	u8 flags;
	u16 window;
	u32 len;
	struct tool_line line;
	/* state */
	const char *state;
	bool fall_back;          /* the connection begins again, with MPA revision 1 */
};
STAILQ_HEAD(tool_entries, tool_entry);

/* A connection as seen. */
struct tool_rec {
	struct hash_node hn;
	TAILQ_ENTRY(tool_rec) list;
	struct pkt_tuple tuple;
	u64 first_ns, last_ns;   /* first_ns: of the first frame */
	struct tool_flow flow;
	struct tool_entries entries;
	u32 num_entries, dropped;
	const char *state;       /* of the CM's node, NULL: none seen */
	const char *last_state;  /* before CLOSED */
	bool passive, requested; /* requested: an MPA request came through */
	bool closed;             /* the node is gone */
	bool hashed;
	bool any_frame;
	/* the main thread's */
	u64 number;              /* of the connection, as people see it; 0: none yet */
	bool shown;              /* its heading is out */
	bool attached;           /* an id stands for it, or will not come any more */
	struct tool_entries pending; /* fetched, not printed yet */
	u32 lost;                /* entries that are missing from these */
};
TAILQ_HEAD(tool_rec_list, tool_rec);

struct tool_watch {
	pthread_mutex_t lock;
	struct hash_table recs;
	struct tool_rec_list list; /* oldest first */
	u32 num_recs;
	u32 num_closed;          /* of these: the node is gone; atomic */
	u64 not_recorded;        /* connections beyond TOOL_RECS_MAX */
	int fd;                  /* eventfd: something is new */
	bool signalled;
	bool all_frames;         /* bare ACKs too */
	bool keep_entries;       /* else only states and flows */
	struct cm_trace trace;
	struct tool_rec **all;   /* the main thread's */
	size_t all_size;
};

int tool_watch_init(struct tool_watch *w, bool keep_entries, bool all_frames);
/* No callback may come any more. */
void tool_watch_destroy(struct tool_watch *w);
/* An observer for iwcm_set_observers(), whose arg is the watch. */
void tool_watch_frame(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns);

/* ---- the main thread, which alone drops records ---- */
/* What is to be known about a record that other threads write. */
struct tool_view {
	bool passive, requested, closed;
	bool at_rest;            /* nothing will happen unless somebody wants it: offloaded or closed */
	const char *state;       /* of the CM's node, or NULL */
	u64 idle_ns;             /* since the last thing seen ... */
	u64 lasted_ns;           /* ... and from the first one to that */
	enum cm_cause terminate; /* a Terminate of the peer's that turns the connection down: why */
	const char *term_in, *term_out; /* the Terminate of the peer, of this side, in words; or NULL */
	enum cm_cause cause;     /* passive and closed without a request: why, as far as frames tell */
};

/* Is there a record that may be dropped? */
static inline bool tool_watch_any_closed(const struct tool_watch *w)
{
	return __atomic_load_n(&w->num_closed, __ATOMIC_RELAXED);
}
/* Call when the descriptor is readable, before looking. */
void tool_watch_clear(struct tool_watch *w);
/* The present record of a connection, or NULL. */
struct tool_rec *tool_watch_find(struct tool_watch *w, const struct sockaddr_storage *local, const struct sockaddr_storage *remote);
/* All records, oldest first; the array is the watch's and good until the next call. */
size_t tool_watch_all(struct tool_watch *w, struct tool_rec ***out);
/* The record behind @rec, or the first one (@rec NULL), or NULL. */
struct tool_rec *tool_watch_next(struct tool_watch *w, const struct tool_rec *rec);
void tool_watch_view(struct tool_watch *w, const struct tool_rec *rec, struct tool_view *out);
/* Move what is new to rec->pending and rec->lost. */
void tool_watch_fetch(struct tool_watch *w, struct tool_rec *rec);
void tool_watch_drop(struct tool_watch *w, struct tool_rec *rec);

#endif
