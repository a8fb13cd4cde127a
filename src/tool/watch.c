// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: the collector behind the ladders. Theory of operation: watch.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "tool/watch.h"

struct ends_key {
	u32 loc_addr[4], rem_addr[4];
	u16 loc_port, rem_port;
};
static_assert(sizeof(struct ends_key) == 36, "no padding in what is hashed");

static struct ends_key key_of(const struct pkt_tuple *t)
{
	struct ends_key k = { .loc_port = t->loc_port, .rem_port = t->rem_port };

	memcpy(k.loc_addr, t->loc_addr, sizeof(k.loc_addr));
	memcpy(k.rem_addr, t->rem_addr, sizeof(k.rem_addr));
	return k;
}

static bool rec_eq(const struct hash_node *n, const void *key)
{
	struct ends_key k = key_of(&container_of(n, struct tool_rec, hn)->tuple);

	return !memcmp(&k, key, sizeof(k));
}

/* ---- locked ---- */

static struct tool_rec *find(struct tool_watch *w, const struct pkt_tuple *t)
{
	struct ends_key k = key_of(t);
	struct hash_node *n = hash_find(&w->recs, hash_of(&w->recs, &k, sizeof(k)), rec_eq, &k);

	return n ? container_of(n, struct tool_rec, hn) : NULL;
}

static void unhash(struct tool_watch *w, struct tool_rec *rec)
{
	if (rec->hashed)
		hash_del(&w->recs, &rec->hn);
	rec->hashed = false;
}

static struct tool_rec *rec_new(struct tool_watch *w, const struct pkt_tuple *t, u64 now_ns)
{
	struct tool_rec *rec = w->num_recs < TOOL_RECS_MAX ? calloc(1, sizeof(*rec)) : NULL;
	struct ends_key k = key_of(t);

	if (!rec) {
		w->not_recorded++;
		return NULL;
	}
	rec->tuple = *t;
	rec->first_ns = now_ns;
	STAILQ_INIT(&rec->entries);
	STAILQ_INIT(&rec->pending);
	hash_add(&w->recs, &rec->hn, hash_of(&w->recs, &k, sizeof(k)));
	rec->hashed = true;
	TAILQ_INSERT_TAIL(&w->list, rec, list);
	w->num_recs++;
	return rec;
}

/* @begin: this is how a connection begins; where one has ended on the same addresses and ports, it is another one. */
static struct tool_rec *get(struct tool_watch *w, const struct pkt_tuple *t, bool begin, u64 now_ns)
{
	struct tool_rec *rec = find(w, t);

	if (rec && rec->closed && begin) {
		unhash(w, rec);
		rec = NULL;
	}
	if (!rec && begin)
		rec = rec_new(w, t, now_ns);
	if (rec)
		rec->last_ns = now_ns;
	return rec;
}

static void wake(struct tool_watch *w)
{
	const u64 one = 1;

	if (w->signalled)
		return;
	w->signalled = write(w->fd, &one, sizeof(one)) == sizeof(one);
}

static struct tool_entry *entry_new(struct tool_watch *w, struct tool_rec *rec, u64 now_ns)
{
	struct tool_entry *e;

	if (!w->keep_entries)
		return NULL;
	e = rec->num_entries < TOOL_ENTRIES_MAX ? calloc(1, sizeof(*e)) : NULL;
	if (!e) {
		rec->dropped++;
		return NULL;
	}
	e->ns = now_ns;
	STAILQ_INSERT_TAIL(&rec->entries, e, entry);
	rec->num_entries++;
	wake(w);
	return e;
}

/* ---- frames ---- */

static void tuple_of(const struct pkt *p, bool out, struct pkt_tuple *t)
{
	memset(t, 0, sizeof(*t));
	memcpy(t->loc_addr, out ? p->src : p->dst, sizeof(t->loc_addr));
	memcpy(t->rem_addr, out ? p->dst : p->src, sizeof(t->rem_addr));
	t->loc_port = out ? p->sport : p->dport;
	t->rem_port = out ? p->dport : p->sport;
	t->vlan_id = p->vlan_id;
	t->ipv4 = p->ipv4;
}

struct emitter {
	struct tool_watch *w;
	struct tool_rec *rec;
	const struct pkt *p;
	struct tool_segment *seg;
	bool out, first;
	u64 now_ns;
};

static void on_line(void *arg, const struct tool_line *line)
{
	struct emitter *em = arg;
	struct tool_entry *e = entry_new(em->w, em->rec, em->now_ns);

	if (!e)
		return;
	e->kind = TOOL_ENTRY_FRAME;
	e->out = em->out;
	e->first = em->first;
	e->seg = *em->seg;
	e->flags = em->p->flags;
	e->window = em->p->window;
	e->len = em->p->datalen;
	e->line = *line;
	em->first = false;
}

/**
 * tool_watch_frame() - an observer for iwcm_set_observers()
 * @arg: the watch
 * @port: not used
 * @out: direction
 * @p: the frame
 * @now_ns: not used: the loop's time stands still while it works
 */
void tool_watch_frame(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	static const struct tool_line ack = { "ACK", "" };
	struct tool_watch *w = arg;
	bool begin = (p->flags & (PKT_SYN | PKT_ACK)) == PKT_SYN;
	struct tool_segment seg;
	struct emitter em = { .w = w, .p = p, .seg = &seg, .out = out, .first = true, .now_ns = loop_monotonic_ns() };
	struct pkt_tuple t;

	tuple_of(p, out, &t);
	pthread_mutex_lock(&w->lock);
	em.rec = get(w, &t, begin, em.now_ns);
	if (em.rec) {
		em.rec->passive |= begin && !out;
		if (!em.rec->any_frame)
			em.rec->first_ns = em.now_ns;
		em.rec->any_frame = true;
		tool_flow_segment(&em.rec->flow, out, p, &seg, on_line, &em);
		if (seg.bare_ack && w->all_frames)
			on_line(&em, &ack);
	}
	pthread_mutex_unlock(&w->lock);
}

/* ---- states ---- */

static void on_state(void *ctx, const struct irdma_cm_node *node, const struct pkt_tuple *t, const char *from, const char *to, u64 now_ns)
{
	struct tool_watch *w = ctx;
	u64 seen_ns = loop_monotonic_ns(); /* the loop's own time stands still while it works */
	bool closed = !strcmp(to, "CLOSED");
	struct tool_entry *e;
	struct tool_rec *rec;

	pthread_mutex_lock(&w->lock);
	rec = get(w, t, !closed, seen_ns);
	if (rec) {
		rec->passive |= !strcmp(to, "LISTENING");
		rec->requested |= !strcmp(to, "MPAREQ_RCVD");
		rec->last_state = from;
		rec->state = to;
		if (closed && !rec->closed)
			__atomic_fetch_add(&w->num_closed, 1, __ATOMIC_RELAXED);
		rec->closed = closed;
		e = entry_new(w, rec, seen_ns);
		if (e) {
			e->kind = TOOL_ENTRY_STATE;
			e->state = to;
			e->fall_back = from && !strcmp(from, "MPAREQ_SENT") && !strcmp(to, "SYN_SENT");
		}
		if (closed)
			wake(w);
	}
	pthread_mutex_unlock(&w->lock);
}

/* ---- the main thread ---- */

/**
 * tool_watch_init() - make a collector
 * @w: filled in; w->trace is what iwcm_set_observers() wants
 * @keep_entries: keep entries for ladders
 * @all_frames: bare ACKs too
 *
 * Return: 0 or a negative errno.
 */
int tool_watch_init(struct tool_watch *w, bool keep_entries, bool all_frames)
{
	int err;

	memset(w, 0, sizeof(*w));
	err = hash_init(&w->recs, NULL);
	if (err)
		return err;
	w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->fd < 0) {
		err = -errno;
		hash_destroy(&w->recs);
		return err;
	}
	pthread_mutex_init(&w->lock, NULL);
	TAILQ_INIT(&w->list);
	w->keep_entries = keep_entries;
	w->all_frames = all_frames;
	w->trace = (struct cm_trace){ .state = on_state, .ctx = w };
	return 0;
}

static void entries_free(struct tool_entries *list)
{
	struct tool_entry *e;

	while ((e = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, entry);
		free(e);
	}
}

static void rec_free(struct tool_watch *w, struct tool_rec *rec)
{
	unhash(w, rec);
	TAILQ_REMOVE(&w->list, rec, list);
	w->num_recs--;
	if (rec->closed)
		__atomic_fetch_sub(&w->num_closed, 1, __ATOMIC_RELAXED);
	tool_flow_destroy(&rec->flow);
	entries_free(&rec->entries);
	entries_free(&rec->pending);
	free(rec);
}

/**
 * tool_watch_destroy() - opposite of tool_watch_init()
 * @w: the watch; no callback may come any more
 */
void tool_watch_destroy(struct tool_watch *w)
{
	struct tool_rec *rec;

	while ((rec = TAILQ_FIRST(&w->list)))
		rec_free(w, rec);
	free(w->all);
	hash_destroy(&w->recs);
	close(w->fd);
	pthread_mutex_destroy(&w->lock);
}

/**
 * tool_watch_clear() - the descriptor was readable
 * @w: the watch; look at it after this
 */
void tool_watch_clear(struct tool_watch *w)
{
	u64 n;

	pthread_mutex_lock(&w->lock);
	if (w->signalled && read(w->fd, &n, sizeof(n)) == sizeof(n))
		w->signalled = false;
	pthread_mutex_unlock(&w->lock);
}

/**
 * tool_watch_find() - present record of a connection
 * @w: the watch
 * @local: this side's address
 * @remote: the peer's
 *
 * Return: the record, or NULL.
 */
struct tool_rec *tool_watch_find(struct tool_watch *w, const struct sockaddr_storage *local, const struct sockaddr_storage *remote)
{
	struct pkt_tuple t = { 0 };
	struct tool_rec *rec;
	bool ipv4;

	if (!cm_addr_from_sockaddr(local, &t.ipv4, t.loc_addr, &t.loc_port) ||
	    !cm_addr_from_sockaddr(remote, &ipv4, t.rem_addr, &t.rem_port))
		return NULL;
	pthread_mutex_lock(&w->lock);
	rec = find(w, &t);
	pthread_mutex_unlock(&w->lock);
	return rec;
}

/**
 * tool_watch_next() - walk through the records, oldest first
 * @w: the watch
 * @rec: where the walk is; NULL: it begins
 *
 * Return: the record behind @rec, or NULL. It stays until the main thread drops it.
 */
struct tool_rec *tool_watch_next(struct tool_watch *w, const struct tool_rec *rec)
{
	struct tool_rec *next;

	pthread_mutex_lock(&w->lock);
	next = rec ? TAILQ_NEXT(rec, list) : TAILQ_FIRST(&w->list);
	pthread_mutex_unlock(&w->lock);
	return next;
}

/**
 * tool_watch_all() - all records, oldest first
 * @w: the watch
 * @out: an array that is the watch's and good until the next call
 *
 * Return: how many.
 */
size_t tool_watch_all(struct tool_watch *w, struct tool_rec ***out)
{
	struct tool_rec *rec, **grown;
	size_t n = 0;

	pthread_mutex_lock(&w->lock);
	if (w->all_size < w->num_recs) {
		grown = realloc(w->all, 2 * (size_t)w->num_recs * sizeof(*grown));
		if (grown) {
			w->all = grown;
			w->all_size = 2 * (size_t)w->num_recs;
		}
	}
	TAILQ_FOREACH(rec, &w->list, list)
		if (n < w->all_size)
			w->all[n++] = rec;
	pthread_mutex_unlock(&w->lock);
	*out = w->all;
	return n;
}

/* RFC 6581: how a responder, or an initiator, says that it cannot go along. */
static enum cm_cause turned_down(const struct tool_half *h)
{
	if (!h->term_seen || h->term.layer != TERM_LAYER_LLP)
		return CM_CAUSE_NONE;
	return h->term.code == TERM_MPA_IRD ? CM_CAUSE_MPA_IRD : h->term.code == TERM_MPA_RTR ? CM_CAUSE_MPA_RTR : CM_CAUSE_NONE;
}

/*
 * Why a peer never got as far as a good MPA request. The CM tells no one above it, as there is nobody to tell; but the
 * frames are as good a witness.
 */
static enum cm_cause judge(const struct tool_rec *rec)
{
	const struct tool_half *in = &rec->flow.half[0], *out = &rec->flow.half[1];

	if (in->verdict == TOOL_MPA_BAD_KEY || (in->start_have && in->start.reply))
		return CM_CAUSE_MPA_KEY;
	if (in->verdict == TOOL_MPA_BAD_LENGTH)
		return CM_CAUSE_MPA_LENGTH;
	if (turned_down(out) != CM_CAUSE_NONE)
		return turned_down(out);
	if (in->phase == TOOL_FPDUS && in->start.flags & MPA_FLAG_REJECT)
		return CM_CAUSE_MPA_FLAGS;
	if (in->phase == TOOL_FPDUS && !in->rst && !in->fin)
		return CM_CAUSE_MPA_REVISION;
	if (in->rst)
		return CM_CAUSE_RESET;
	if (in->fin)
		return CM_CAUSE_CLOSED;
	return rec->last_state && !strcmp(rec->last_state, "SYN_RCVD") ? CM_CAUSE_NOT_ACKED : CM_CAUSE_NO_MPA_REQUEST;
}

/**
 * tool_watch_view() - what other threads have noted about a connection
 * @w: the watch
 * @rec: the connection
 * @out: filled in
 */
void tool_watch_view(struct tool_watch *w, const struct tool_rec *rec, struct tool_view *out)
{
	u64 now_ns = loop_monotonic_ns();

	pthread_mutex_lock(&w->lock);
	*out = (struct tool_view){
		.passive = rec->passive,
		.requested = rec->requested,
		.closed = rec->closed,
		.at_rest = rec->closed || !rec->state || !strcmp(rec->state, "OFFLOADED"),
		.state = rec->state,
		.idle_ns = now_ns > rec->last_ns ? now_ns - rec->last_ns : 0,
		.lasted_ns = rec->last_ns > rec->first_ns ? rec->last_ns - rec->first_ns : 0,
		.terminate = turned_down(&rec->flow.half[0]),
		.term_in = rec->flow.half[0].term_seen ? rdmap_error_str(&rec->flow.half[0].term) : NULL,
		.term_out = rec->flow.half[1].term_seen ? rdmap_error_str(&rec->flow.half[1].term) : NULL,
		.cause = judge(rec),
	};
	pthread_mutex_unlock(&w->lock);
}

/**
 * tool_watch_fetch() - move what is new to rec->pending and rec->lost
 * @w: the watch
 * @rec: the connection
 */
void tool_watch_fetch(struct tool_watch *w, struct tool_rec *rec)
{
	pthread_mutex_lock(&w->lock);
	STAILQ_CONCAT(&rec->pending, &rec->entries);
	rec->lost += rec->dropped;
	rec->num_entries = rec->dropped = 0;
	pthread_mutex_unlock(&w->lock);
}

/**
 * tool_watch_drop() - forget a connection
 * @w: the watch
 * @rec: the connection
 */
void tool_watch_drop(struct tool_watch *w, struct tool_rec *rec)
{
	pthread_mutex_lock(&w->lock);
	rec_free(w, rec);
	pthread_mutex_unlock(&w->lock);
}
