// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: what must hold after every event of a simulation.
 *
 * After each step of the wire: every frame is somewhere; each step of a connection manager's node is one that the table below has, and begins where the last one
 * ended; of the NICs that the step touched, the counters never go back, levels are the difference of what came and went, and no more frames are
 * kept than there are nodes. Once in a while, or with params->paranoid always, such a NIC's books are recounted (cm_audit()).
 *
 * And a run must go on: so many steps within a millisecond of virtual time, or frames with nothing for any program in between, are a NIC that talks to itself.
 */
#include <stdlib.h>
#include <string.h>
#include "tool/sim_world.h"

#define AUDIT_EVERY 512u
#define STEPS_PER_MSEC (20u * 1000 * 1000)
#define IDLE_STEPS 200000u      /* without an event for a program, */
#define IDLE_STEPS_EACH 20000u  /* and for each side that is there */

/* ---- states of nodes ---- */

enum { UNKNOWN, INITED, LISTENING, SYN_RCVD, SYN_SENT, ONE_SIDE, ESTABLISHED, ACCEPTING, REQ_SENT, REQ_RCVD, REJ_RCVD, OFFLOADED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT,
       TIME_WAIT, LAST_ACK, CLOSING, LISTENER_DESTROYED, CLOSED, STATES };

/* From docs/cm.md and spec cm.md. From each a reset, a time limit or an error leads to CLOSED. */
static const struct {
	const char *name;
	u32 to;
} steps[STATES] = {
	[UNKNOWN] = { "UNKNOWN", BIT(INITED) },
	[INITED] = { "INITED", BIT(SYN_SENT) | BIT(LISTENING) },
	[LISTENING] = { "LISTENING", BIT(SYN_RCVD) },
	[SYN_RCVD] = { "SYN_RCVD", BIT(ESTABLISHED) },
	[SYN_SENT] = { "SYN_SENT", BIT(ONE_SIDE) },
	[ONE_SIDE] = { "ONE_SIDE_ESTABLISHED", BIT(REQ_SENT) },
	[ESTABLISHED] = { "ESTABLISHED", BIT(REQ_RCVD) | BIT(CLOSE_WAIT) | BIT(FIN_WAIT1) | BIT(LAST_ACK) },
	[ACCEPTING] = { "ACCEPTING", BIT(OFFLOADED) },
	[REQ_SENT] = { "MPAREQ_SENT", BIT(OFFLOADED) | BIT(REJ_RCVD) | BIT(SYN_SENT) | BIT(FIN_WAIT1) | BIT(LAST_ACK) },
	[REQ_RCVD] = { "MPAREQ_RCVD", BIT(ACCEPTING) | BIT(FIN_WAIT1) | BIT(LAST_ACK) | BIT(LISTENER_DESTROYED) },
	[REJ_RCVD] = { "MPAREJ_RCVD", BIT(CLOSE_WAIT) | BIT(FIN_WAIT1) },
	[OFFLOADED] = { "OFFLOADED", 0 },
	[FIN_WAIT1] = { "FIN_WAIT1", BIT(FIN_WAIT2) | BIT(CLOSING) | BIT(TIME_WAIT) },
	[FIN_WAIT2] = { "FIN_WAIT2", BIT(TIME_WAIT) },
	[CLOSE_WAIT] = { "CLOSE_WAIT", BIT(LAST_ACK) },
	[TIME_WAIT] = { "TIME_WAIT", 0 },
	[LAST_ACK] = { "LAST_ACK", 0 },
	[CLOSING] = { "CLOSING", BIT(TIME_WAIT) },
	[LISTENER_DESTROYED] = { "LISTENER_DESTROYED", 0 },
	[CLOSED] = { "CLOSED", 0 },
};

struct watched {
	struct hash_node hn;
	const void *node;
	u8 state;
};

static bool watched_eq(const struct hash_node *hn, const void *node)
{
	return container_of((struct hash_node *)hn, struct watched, hn)->node == node;
}

static u64 watched_hash(const void *node)
{
	static const u32 none[4];

	return hash_own((uintptr_t)node, none);
}

static struct watched *watched_find(struct sim_watch *w, const void *node)
{
	struct hash_node *hn = hash_find(&w->nodes, watched_hash(node), watched_eq, node);

	return hn ? container_of(hn, struct watched, hn) : NULL;
}

static struct watched *watched_add(struct sim_watch *w, const void *node)
{
	struct watched *n = pool_get(&w->pool);

	if (!n)
		return NULL;
	n->node = node;
	n->state = UNKNOWN;
	hash_add(&w->nodes, &n->hn, watched_hash(node));
	return n;
}

static void watched_del(struct sim_watch *w, struct watched *n)
{
	hash_del(&w->nodes, &n->hn);
	pool_put(&w->pool, n);
}

/* The CM has each name once: after the first time its address will do. */
static u8 state_by_name(struct sim_watch *w, const char *name)
{
	static_assert(ARRAY_SIZE(w->state_names) >= STATES, "an address per state");
	u32 i;

	for (i = 0; i < STATES; i++)
		if (w->state_names[i] == name)
			return (u8)i;
	for (i = 0; i < STATES; i++)
		if (!strcmp(steps[i].name, name)) {
			w->state_names[i] = name;
			return (u8)i;
		}
	return UNKNOWN;
}

static bool is_legal(u8 from, u8 to)
{
	return (steps[from].to & BIT(to)) || (to == CLOSED && from != CLOSED && from != UNKNOWN);
}

static void on_state(void *ctx, const struct irdma_cm_node *node, const struct pkt_tuple *t, const char *from, const char *to, u64 now_ns)
{
	struct sim_host *h = ctx;
	struct sim_watch *w = &h->sim->watch;
	struct watched *n = watched_find(w, node);
	u8 next = state_by_name(w, to);

	sim_watch_touch(h);
	w->states++;
	n = n ? n : watched_add(w, node);
	if (!n)
		return;
	if (n->state != state_by_name(w, from))
		sim_violation(h->sim, "states: a node goes from %s to %s, but was in %s", from, to, steps[n->state].name);
	else if (!is_legal(n->state, next))
		sim_violation(h->sim, "states: a node goes from %s to %s", from, to);
	n->state = next;
	if (next == CLOSED)
		watched_del(w, n);
}

struct cm_trace sim_watch_trace(struct sim_host *h)
{
	return (struct cm_trace){ .state = on_state, .ctx = h };
}

/* ---- NICs ---- */

void sim_watch_touch(struct sim_host *h)
{
	struct sim_watch *w = &h->sim->watch;

	if (h->touched || w->num_touched == ARRAY_SIZE(w->touched))
		return;
	h->touched = true;
	w->touched[w->num_touched++] = h;
}

static void check_levels(struct sim_host *h, const struct cm_stats *s)
{
	struct irdma_sc_vsi *vsi = &h->iwdev->vsi;
	u64 kept = vsi->small.used + vsi->large.used;

	if (s->nodes_created - s->nodes_destroyed != s->nodes_now)
		sim_violation(h->sim, "counters: host %u has %llu nodes, %llu came and %llu went", h->index, (unsigned long long)s->nodes_now,
			      (unsigned long long)s->nodes_created, (unsigned long long)s->nodes_destroyed);
	if (s->listens_created - s->listens_destroyed != s->listeners_now)
		sim_violation(h->sim, "counters: host %u has %llu listeners, %llu came and %llu went", h->index, (unsigned long long)s->listeners_now,
			      (unsigned long long)s->listens_created, (unsigned long long)s->listens_destroyed);
	if (s->half_open_now > s->nodes_now || kept > s->nodes_now)
		sim_violation(h->sim, "counters: host %u has %llu nodes, %llu half open, and keeps %llu frames", h->index, (unsigned long long)s->nodes_now,
			      (unsigned long long)s->half_open_now, (unsigned long long)kept);
}

static void check_growth(struct sim_host *h, const struct cm_stats *s)
{
	static_assert(offsetof(struct cm_stats, nodes_now) % sizeof(u64) == 0, "counters, then levels");
	const u64 *now = (const u64 *)s, *before = (const u64 *)&h->seen;
	size_t i;

	for (i = 0; i < offsetof(struct cm_stats, nodes_now) / sizeof(u64); i++)
		if (now[i] < before[i])
			sim_violation(h->sim, "counters: number %zu of host %u goes back", i, h->index);
	h->seen = *s;
}

static void audit(struct sim_host *h)
{
	char why[160];

	h->sim->r->audits++;
	if (!cm_audit(h->iwdev, why, sizeof(why)))
		sim_violation(h->sim, "books: host %u: %s", h->index, why);
}

static void check_host(struct sim_host *h)
{
	struct sim_watch *w = &h->sim->watch;
	struct cm_stats s;

	h->touched = false;
	cm_get_stats(h->iwdev, &s);
	check_levels(h, &s);
	check_growth(h, &s);
	if (h->sim->p->paranoid || ++w->since_audit >= AUDIT_EVERY) {
		w->since_audit = 0;
		audit(h);
	}
}

/* ---- the wire and the clock ---- */

static void check_frames(struct sim *sim)
{
	const struct port_wire_stats *s = port_wire_stats(sim->wire);
	u64 in = s->frames + s->duplicated, out = s->lost + s->delivered + s->unmatched + s->not_taken + s->malformed + s->bad_checksum + s->no_route + s->down;

	if (in != out + port_wire_in_flight(sim->wire))
		sim_violation(sim, "frames: %llu were sent, %llu came to an end, %zu are on their way", (unsigned long long)in, (unsigned long long)out,
			      port_wire_in_flight(sim->wire));
}

static void check_pace(struct sim *sim)
{
	struct sim_watch *w = &sim->watch;
	u64 msec = loop_now(&sim->loop) / NSEC_PER_MSEC;

	if (msec != w->msec) {
		w->msec = msec;
		w->steps_in_msec = 0;
	}
	if (++w->steps_in_msec == STEPS_PER_MSEC) {
		sim_violation(sim, "pace: %u steps in a millisecond", STEPS_PER_MSEC);
		sim->stuck = true;
	}
	if (++w->idle_steps == IDLE_STEPS + IDLE_STEPS_EACH * sim->alive) {
		sim_violation(sim, "pace: %llu steps, and nothing in them for any of %llu sides", (unsigned long long)w->idle_steps,
			      (unsigned long long)sim->alive);
		sim->stuck = true;
	}
}

void sim_watch_step(struct sim *sim)
{
	struct sim_watch *w = &sim->watch;

	sim->r->steps++;
	check_frames(sim);
	check_pace(sim);
	while (w->num_touched)
		check_host(w->touched[--w->num_touched]);
	if (sim->p->heartbeat)
		__atomic_store_n(sim->p->heartbeat, sim->r->steps, __ATOMIC_RELAXED);
}

void sim_watch_progress(struct sim *sim)
{
	sim->watch.idle_steps = 0;
}

int sim_watch_open(struct sim *sim)
{
	pool_init(&sim->watch.pool, sizeof(struct watched), 0);
	return hash_init(&sim->watch.nodes, NULL);
}

static bool forget(struct hash_node *n, void *arg)
{
	watched_del(arg, container_of(n, struct watched, hn));
	return true;
}

void sim_watch_close(struct sim *sim)
{
	if (!sim->watch.nodes.bucket)
		return;
	hash_walk(&sim->watch.nodes, forget, &sim->watch);
	hash_destroy(&sim->watch.nodes);
	pool_destroy(&sim->watch.pool);
}

/* At the end: books of all, and no node that is not CLOSED. */
void sim_watch_end(struct sim *sim)
{
	u32 i;

	for (i = 0; i < sim->p->nodes; i++)
		audit(&sim->hosts[i]);
	if (sim->watch.nodes.count)
		sim_violation(sim, "states: %zu nodes never got to CLOSED", sim->watch.nodes.count);
	sim->r->states = sim->watch.states;
}
