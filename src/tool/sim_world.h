/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool: what the files of the simulation share. sim_engine.c: the world; sim_check.c: what must hold in the end; sim_watch.c: after every event; sim_side.c: what
 * programs do; sim_order.c: the order of what they see; sim_trouble.c: what befalls hosts; sim_attack.c: who means ill; sim_data.h: data on connections.
 *
 * All chance of a connection comes from the seed and the connection's number alone, whatever the others do: so a failing run
 * can be made smaller by leaving connections out.
 */
#ifndef UWARP_TOOL_SIM_WORLD_H
#define UWARP_TOOL_SIM_WORLD_H

#include "cm/cm.h"
#include "tool/sim_engine.h"

#define SIM_PORT 7174
#define SIM_LISTENERS 3
#define SIM_SHORT_BACKLOG 32
#define SIM_SOON_NS (2 * NSEC_PER_MSEC)

struct sim;
struct sim_attacks;
struct sim_data;
struct sim_region;
struct rnic_qp_stats;

struct sim_host {
	struct sim *sim;
	u32 index;
	u32 addr4[4], addr6[4];
	u32 ifindex;
	struct net *net;
	struct iwcm_ctx *ctx;
	struct irdma_device *iwdev;
	struct iwcm_id *listener[SIM_LISTENERS]; /* IPv4 wildcard, IPv6 wildcard, exact address on the next port */
	struct iwcm_options opt;                 /* of its listeners, */
	int backlog;                             /* of each */
	/* sim_trouble.c */
	bool in_trouble;
	u32 troubles, restarts;                  /* so far; of them those of listeners */
	/* sim_watch.c */
	bool touched;
	struct cm_stats seen;
	/* data, sim_data.c */
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
	bool begun;
	bool accepted, rejected;  /* the passive side called this, and it succeeded */
	bool over;                /* active side */
	bool aborted;             /* a side called that */
	bool given_up;            /* a side is, or is to be */
	bool disturbed;           /* one of its hosts had trouble meanwhile */
	u32 troubles;             /* of both hosts when it began */
	struct rnic_qp_stats *counted; /* of the side that ended in order first, until the other one has */
	u8 requests;
};

/* What an id has been through: sim_order.c. */
enum sim_life {
	SIM_LIFE_NONE, SIM_LIFE_NEW, SIM_LIFE_RESOLVING, SIM_LIFE_RESOLVED, SIM_LIFE_CONNECTING, SIM_LIFE_ASKED, SIM_LIFE_ACCEPTED, SIM_LIFE_REJECTED,
	SIM_LIFE_UP, SIM_LIFE_DOWN, SIM_LIFE_OVER, SIM_LIVES
};
enum sim_step {
	SIM_DID_RESOLVE, SIM_DID_CONNECT, SIM_DID_ACCEPT, SIM_DID_REJECT, SIM_GOT_RESOLVED, SIM_GOT_RESOLVE_ERROR, SIM_GOT_REQUEST, SIM_GOT_ESTABLISHED,
	SIM_GOT_REJECTED, SIM_GOT_CONNECT_ERROR, SIM_GOT_DISCONNECTED, SIM_GOT_CLOSED, SIM_STEPS
};

/* One side of a connection that is alive: an id. Never freed before the end, so that an event that comes too late is seen. */
struct sim_side {
	TAILQ_ENTRY(sim_side) entry; /* sim->free */
	struct sim *sim;
	struct sim_host *host;
	struct iwcm_id *id;
	u64 serial;
	struct rand_gen rand;
	enum sim_life life;
	bool active, alive, up, disconnected;
	enum sim_life kill_in;    /* given up as soon as it gets there */
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

struct sim_watch {
	struct hash_table nodes;
	struct pool pool;
	const char *state_names[24];
	u64 states;
	struct sim_host *touched[16];
	size_t num_touched;
	u32 since_audit, steps_in_msec;
	u64 msec, idle_steps;
};

struct sim_trouble;
TAILQ_HEAD(sim_troubles, sim_trouble);

struct sim {
	const struct tool_sim_params *p;
	struct tool_sim_result *r;
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
	struct timer_list starter;
	bool ending;              /* start no more */
	bool stuck;               /* do not go on */
	struct sim_set tampered;  /* connections */
	struct sim_watch watch;
	struct sim_troubles troubles;
	u32 gone;                 /* hosts that do not come back */
	struct sim_attacks *attacks;
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

/* The chance of one thing about one connection. */
enum sim_salt { SIM_SALT_START = 1, SIM_SALT_ACTIVE, SIM_SALT_PASSIVE, SIM_SALT_TROUBLE, SIM_SALT_ATTACK };
void sim_chance(const struct sim *sim, u64 serial, enum sim_salt salt, struct rand_gen *g);

/* sim_side.c */
void sim_on_event(void *arg, const struct iwcm_event *ev); /* arg: the host */
/* The active side of a connection, soon. False: no memory. */
bool sim_side_begin(struct sim *sim, u64 serial);
void sim_side_free(struct sim_side *s);
/* All is done: the side may hang up. */
void sim_side_done(struct sim_side *s);

/* sim_order.c: false, and a violation: this must not be */
bool sim_order_did(struct sim_side *s, enum sim_step step);
bool sim_order_got(struct sim_side *s, enum iwcm_event_type type);

/* sim_pdata.c */
#define SIM_PDATA_MAX 508u
#define SIM_PDATA_REJECT_MAX 255u
enum sim_pdata { SIM_PDATA_REQUEST, SIM_PDATA_ACCEPT, SIM_PDATA_REJECT };
u32 sim_pdata_make(const struct sim *sim, u64 serial, enum sim_pdata kind, u8 out[SIM_PDATA_MAX]);
bool sim_pdata_check(struct sim *sim, u64 serial, enum sim_pdata kind, const struct iwcm_event *ev);

/* sim_tamper.c */
/* Who talks to whom, the same for both sides. */
u64 sim_ends(const struct sockaddr_storage *local, const struct sockaddr_storage *remote);
u64 sim_ends_of(const u32 a[4], u16 a_port, const u32 b[4], u16 b_port);
bool sim_is_tampered(const struct sim *sim, u64 ends);
void sim_set_add(struct sim_set *set, u64 h);
bool sim_set_has(const struct sim_set *set, u64 h);
void sim_set_free(struct sim_set *set);

/* sim_watch.c */
int sim_watch_open(struct sim *sim);
void sim_watch_close(struct sim *sim);
struct cm_trace sim_watch_trace(struct sim_host *h);
void sim_watch_touch(struct sim_host *h); /* look at it when the step is over */
void sim_watch_step(struct sim *sim);
void sim_watch_progress(struct sim *sim); /* something came for a program */
void sim_watch_end(struct sim *sim);

/* sim_trouble.c */
/* What connection @serial brings with it for its hosts, from now on. */
void sim_trouble_plan(struct sim *sim, u64 serial);
void sim_troubles_free(struct sim *sim);
/* Did nothing but the programs of @rec have to do with how it went? */
bool sim_is_calm(const struct sim *sim, const struct sim_rec *rec);
void sim_note_troubles(struct sim *sim, struct sim_rec *rec);

/* sim_attack.c */
int sim_attacks_open(struct sim *sim);
void sim_attacks_close(struct sim *sim);
/* An observer of each NIC, arg: the host; only needed where there are attackers. */
void sim_attack_sniff(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns);
/* Connection @serial is under way from @local to @remote. */
void sim_attack_plan(struct sim *sim, u64 serial, const struct sockaddr_storage *local, const struct sockaddr_storage *remote);

/* sim_engine.c */
__attribute__((format(printf, 2, 3))) void sim_violation(struct sim *sim, const char *fmt, ...);
/* The same, unless an attacker on the path had a hand in the connection. */
__attribute__((format(printf, 3, 4))) void sim_violation_on(struct sim *sim, u64 ends, const char *fmt, ...);
struct sim_rec *sim_rec(struct sim *sim, u64 serial);
u32 sim_first_host(const struct sim *sim, u64 serial); /* who begins it */
void sim_start_more(struct sim *sim); /* connections whose time has come */
int sim_host_listen(struct sim_host *h);
void sim_host_close_listeners(struct sim_host *h);
/* The number of the @k-th connection. */
u64 sim_serial(const struct sim *sim, u64 k);
u64 sim_num_connections(const struct sim *sim);
void sim_digest(struct sim *sim, u64 word);

/* sim_check.c */
/* Both want the peer-to-peer model, and there is no RTR that both can do: the responder says so in a Terminate behind its reply. */
bool sim_no_rtr(const struct sim *sim, const struct sim_rec *rec);
bool sim_is_clean(const struct tool_sim_params *p);
void sim_check_end(struct sim *sim);

#endif
