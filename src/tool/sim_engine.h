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

struct tool_sim_params {
	u32 nodes;               /* hosts, at least 2 */
	u64 connections;         /* to start */
	u64 duration_ns;         /* start nothing after this much virtual time; 0: no limit */
	u64 seed;
	u8 gen;                  /* IRDMA_GEN_1 or 2 */
	bool ipv4, ipv6;         /* at least one of them */
	u64 latency_ns;
	double loss, reorder, duplicate, corrupt; /* probabilities */
	double reject;           /* of a request */
	double destroy;          /* that a side gives its id up at a random moment */
	double data;             /* that a connection moves data */
	u32 largest;             /* bytes of a message, at most SIM_LARGEST_MAX */
	struct port_capture *capture; /* sees the first host's NIC; or NULL */
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

struct tool_sim_moved {
	u64 messages, bytes;
};

struct tool_sim_result {
	u64 started;
	u64 pairs[SIM_OUTCOMES][SIM_OUTCOMES]; /* [active][passive] */
	u64 causes[32];          /* of SIM_FAILED on the active side, by enum cm_cause */
	u64 events;
	struct iwcm_stats stats; /* of all hosts */
	struct port_wire_stats wire;
	u64 virtual_ns, wall_ns;
	u64 digest;              /* of all events and completions, in order */
	struct tool_sim_moved moved[SIM_VERBS]; /* work requests that completed with success */
	u64 data_sides, data_complete; /* sides that were established with data; that sent and got all of it */
	u64 flushed;             /* work requests that ended with their connection, */
	u64 blamed;              /* of them with the peer's or the NIC's word that they were wrong; they were */
	u64 left_nodes, left_listeners, left_bufs, left_qps, left_ports, left_conns, left_time_waits, left_frames, left_timers;
	u64 damaged;             /* checks that did not hold because of corruption that no checksum shows */
	u64 violations;          /* checks that did not hold */
	char first_violation[256];
};

/* 0, or a negative errno if the simulation could not be set up. Whether it went well: result->violations. */
int tool_sim_run(const struct tool_sim_params *params, struct tool_sim_result *result);
const char *tool_sim_outcome_str(enum tool_sim_outcome o);
const char *tool_sim_verb_str(enum tool_sim_verb v);

#endif
