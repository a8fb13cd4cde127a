/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tool: what the files of the simulation share. sim_engine.c: the world and the checks; sim_side.c: what hosts do; sim_data.h: data on their connections. */
#ifndef UWARP_TOOL_SIM_WORLD_H
#define UWARP_TOOL_SIM_WORLD_H

#include "cm/cm.h"
#include "tool/sim_engine.h"

#define SIM_PORT 7174
#define SIM_LISTENERS 3

struct sim;
struct sim_data;
struct sim_region;
struct rnic_qp_stats;

struct sim_host {
	struct sim *sim;
	u32 index;
	u32 addr4[4], addr6[4];
	struct net *net;
	struct iwcm_ctx *ctx;
	struct iwcm_id *listener[SIM_LISTENERS]; /* IPv4 wildcard, IPv6 wildcard, exact address on the next port */
	struct iwcm_options opt;                 /* of its listeners */
	/* data, sim_data.c */
	struct irdma_device *iwdev;
	struct rnic_pd *pd;
	struct rnic_mr *pattern_mr, *counter_mr;
	u64 counter;                             /* peers add to it, */
	u64 added_posted, added_done;            /* so much at most, and at least */
};

/* What a side says about a connection. */
struct sim_view {
	u8 outcome, cause;
	u8 rev, rtr;
	bool p2p, crc, snd_markers, rcv_markers;
	u16 ird, ord, peer_ird, peer_ord;
};

/* A connection, for the checks at the end. */
struct sim_rec {
	u64 ends;                 /* sim_ends() */
	struct sim_view active, passive;
	u16 from, to;             /* hosts */
	u8 rev, rtr;              /* what the active side asked for */
	bool p2p, fall_back;
	bool accepted, rejected;  /* the passive side called this, and it succeeded */
	bool over;                /* active side */
	bool aborted;             /* a side called that */
	struct rnic_qp_stats *counted; /* of the side that ended in order first, until the other one has */
	u8 requests;
};

/* One side of a connection that is alive: an id. Never freed before the end, so that an event that comes too late is seen. */
struct sim_side {
	TAILQ_ENTRY(sim_side) entry; /* sim->free */
	struct sim *sim;
	struct sim_host *host;
	struct iwcm_id *id;
	u64 serial;
	bool active, alive, up, disconnected, waiting_for_reply;
	struct timer_list act;    /* begin, answer, hang up, or give up waiting */
	struct timer_list kill;   /* the id is given up, whatever it does */
	struct sim_data *data;    /* NULL: it moves none */
	void (*next)(struct sim_side *s);
};
TAILQ_HEAD(sim_sides, sim_side);

struct sim_set {
	u64 *slot;
	size_t size, n;
};

struct sim {
	const struct tool_sim_params *p;
	struct tool_sim_result *r;
	struct rand_gen rand;
	struct loop loop;
	struct port_wire *wire;
	struct net_segment *segment;
	struct sim_host *hosts;
	struct sim_rec *recs;     /* by serial */
	u64 size_recs;
	struct sim_sides all_free;
	struct sim_side **sides;  /* all that were ever made */
	u64 num_sides, size_sides;
	u64 alive;
	u64 connect_calls, accept_calls, reject_calls; /* that succeeded */
	u64 over;
	bool ending;              /* start no more */
	struct sim_set sent, damaged; /* segments; connections */
	u8 *pattern;              /* all payload is a slice of it */
	u32 pattern_len;
};

static inline u64 sim_mix(u64 x)
{
	x ^= x >> 30;
	x *= 0xBF58476D1CE4E5B9ull;
	x ^= x >> 27;
	x *= 0x94D049BB133111EBull;
	return x ^ x >> 31;
}

/* sim_side.c */
void sim_on_event(void *arg, const struct iwcm_event *ev); /* arg: the host */
/* A connection that begins after a random pause of up to @within_ns; nothing if all have begun. */
void sim_start(struct sim *sim, u64 within_ns);
void sim_side_free(struct sim_side *s);
/* All is done: the side may hang up. */
void sim_side_done(struct sim_side *s);

/* sim_damage.c */
/* An observer of each NIC, arg: the host; only needed where frames are corrupted. */
void sim_watch_frame(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns);
/* Who talks to whom, the same for both sides. */
u64 sim_ends(const struct sockaddr_storage *local, const struct sockaddr_storage *remote);
bool sim_is_damaged(const struct sim *sim, u64 ends);
void sim_set_free(struct sim_set *set);

/* sim_engine.c */
__attribute__((format(printf, 2, 3))) void sim_violation(struct sim *sim, const char *fmt, ...);
/* The same, unless the connection got damage that no checksum shows. */
__attribute__((format(printf, 3, 4))) void sim_violation_on(struct sim *sim, u64 ends, const char *fmt, ...);
struct sim_rec *sim_rec(struct sim *sim, u64 serial);
/* Both want the peer-to-peer model, and there is no RTR that both can do: the responder says so in a Terminate behind its reply. */
bool sim_no_rtr(const struct sim *sim, const struct sim_rec *rec);
bool sim_is_clean(const struct tool_sim_params *p);
void sim_digest(struct sim *sim, u64 word);

#endif
