/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool: a simulation: hosts on one wire that connect to each other at random, exchange private data, move data, disconnect, vanish; and
 * whether all of it came out as it must. Behind `uwarp sim`; tests call it, too.
 *
 * Everything follows from the parameters: two runs of the same give the same digest. One thread, which is the caller's;
 * rand_set_seed() is called for it and undone.
 */
#ifndef UWARP_TOOL_SIM_ENGINE_H
#define UWARP_TOOL_SIM_ENGINE_H

#include <signal.h>
#include "base/base.h"
#include "iwcm/iwcm.h"
#include "port/port.h"

/* Numbers of connections, in rising order. */
struct tool_sim_list {
	u64 *item;
	size_t n;
};

struct tool_sim_params {
	u32 nodes;               /* hosts, at least 2 */
	u64 connections;         /* to start, those that @only leaves out included */
	u64 duration_ns;         /* start nothing after this much virtual time; 0: no limit */
	u64 seed;
	u8 gen;                  /* IRDMA_GEN_1 or 2 */
	bool ipv4, ipv6;         /* at least one of them */
	u64 latency_ns;
	double loss, reorder, duplicate, corrupt; /* probabilities */
	double reject;           /* of a request */
	double destroy;          /* that a side gives its id up at a random moment */
	double late;             /* that a request is answered so late that the peer may have given up */
	double flap, vanish, restart; /* that during a connection one of its hosts' interface or address goes and comes, its NIC falls silent, its program stops listening */
	double attack, on_path;  /* that a connection is attacked: by those who guess; by those who know its sequence numbers */
	double data;             /* that a connection moves data */
	u32 largest;             /* bytes of a message, at most SIM_LARGEST_MAX */
	const struct tool_sim_list *only; /* the connections that there are to be, all below @connections; NULL: all */
	bool paranoid;           /* after each event recount the books of the NICs that it touched */
	bool stop_at_violation;
	u64 *heartbeat;          /* counts steps, for someone who watches; or NULL */
	struct port_capture *capture; /* sees one NIC, the first host's, or with @only that of the host that begins the first of them; or NULL */
	const volatile sig_atomic_t *stop; /* start nothing more once it is set, and end; or NULL */
	void (*progress)(void *arg, u64 over, u64 virtual_ns); /* about once in a thousand connections; or NULL */
	void *progress_arg;
};

/* How a side saw its connection end up. */
enum tool_sim_outcome {
	SIM_NONE,                /* passive: no request came */
	SIM_ESTABLISHED,         /* then disconnected and closed, or given up */
	SIM_REJECTED,
	SIM_FAILED,              /* active: an error; passive: the peer gave up before it was established */
	SIM_DESTROYED,           /* given up before it was established */
	SIM_OUTCOMES
};

/* What is posted, as the summary counts it. */
enum tool_sim_verb {
	SIM_SEND, SIM_SEND_INV, SIM_WRITE, SIM_WRITE_IMM, SIM_READ, SIM_FETCH_ADD, SIM_CMP_SWAP, SIM_BIND,
	SIM_VERBS
};
#define SIM_LARGEST_MAX (16u << 20)

enum tool_sim_trouble { SIM_FLAP, SIM_VANISH, SIM_RESTART, SIM_TROUBLES };
#define SIM_ATTACKERS 3          /* blind, near, on the path: sim_attack.c */

struct tool_sim_moved {
	u64 messages, bytes;
};

struct tool_sim_result {
	u64 started, ended;
	bool interrupted;        /* by @stop */
	u64 pairs[SIM_OUTCOMES][SIM_OUTCOMES]; /* [active][passive] */
	u64 causes[32];          /* of SIM_FAILED on the active side, by enum cm_cause */
	u64 events, steps, states, audits; /* for programs; of the wire; of the CMs' nodes; books recounted */
	u64 troubles[SIM_TROUBLES], shots[SIM_ATTACKERS];
	struct iwcm_stats stats; /* of all hosts */
	struct port_wire_stats wire;
	u64 virtual_ns, wall_ns;
	u64 digest;              /* of all events and completions, in order */
	struct tool_sim_moved moved[SIM_VERBS]; /* work requests that completed with success */
	u64 data_sides, data_complete; /* sides that were established with data; that sent and got all of it */
	u64 flushed;             /* work requests that ended with their connection, */
	u64 blamed;              /* of them with the peer's or the NIC's word that they were wrong; they were */
	u64 left_nodes, left_listeners, left_bufs, left_qps, left_ports, left_conns, left_time_waits, left_frames, left_timers;
	u64 tampered;            /* checks that did not hold for a connection that somebody on the path had a hand in */
	u64 violations;          /* checks that did not hold */
	u64 started_then;        /* connections that had been started when the first one did not */
	char first_violation[256];
};

/* 0, or a negative errno if the simulation could not be set up. Whether it went well: result->violations. */
int tool_sim_run(const struct tool_sim_params *params, struct tool_sim_result *result);
const char *tool_sim_outcome_str(enum tool_sim_outcome o);
const char *tool_sim_verb_str(enum tool_sim_verb v);

#endif
