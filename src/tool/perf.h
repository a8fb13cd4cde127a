/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool: `uwarp perf` and `uwarp ping`: latency and bandwidth between two machines, for people without other programs.
 *
 * One connection is one test. What is to be measured goes to the server in the private data of the request, where to read
 * and write comes back in that of the reply; so there is no second channel, and any test can be refused.
 */
#ifndef UWARP_TOOL_PERF_H
#define UWARP_TOOL_PERF_H

#include <signal.h>
#include "iwcm/iwcm_nic.h"
#include "tool/tool.h"

#define PERF_SIZE_MAX (64u << 20)
#define PERF_DEPTH_MAX 1024u
#define PERF_COUNT_MAX 100000000ull
#define PERF_SAMPLES 1000000u /* round trips whose time is kept */

enum perf_verb { PERF_SEND, PERF_WRITE, PERF_READ, PERF_VERBS };
enum perf_kind { PERF_LATENCY, PERF_BANDWIDTH, PERF_KINDS };

struct perf_test {
	enum perf_verb verb;
	enum perf_kind kind;
	u32 size;            /* bytes of a message */
	u32 depth;           /* messages under way, bandwidth only */
	u64 count;           /* messages; latency: round trips */
};

/* Memory at the other end. */
struct perf_remote {
	u32 stag;
	u64 addr;
};

/* Private data. Network order, no padding. */
struct perf_request {
	char magic[8];
	u8 version, verb, kind, reserved;
	__be32 size, depth;
	__be64 count;
	__be32 stag;
	__be32 addr[2];
};
struct perf_reply {
	char magic[8];
	u8 version, reserved[3];
	__be32 stag;
	__be32 addr[2];
};
static_assert(sizeof(struct perf_request) == 48 && sizeof(struct perf_reply) == 24, "on the wire");
void perf_request_put(struct perf_request *r, const struct perf_test *t, const struct perf_remote *own);
/* False: not ours, or nothing that we do. */
bool perf_request_get(const void *data, size_t len, struct perf_test *t, struct perf_remote *peer);
void perf_reply_put(struct perf_reply *r, const struct perf_remote *own);
bool perf_reply_get(const void *data, size_t len, struct perf_remote *peer);
const char *perf_verb_str(enum perf_verb v);

/* ---- perf_end.c: queues and memory of one end ---- */
struct perf_end {
	struct iwcm_ctx *ctx;
	struct irdma_device *iwdev; /* with a reference */
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct rnic_mr *mr;
	struct irdma_qp *qp;
	u8 *buf;                    /* test.size bytes that are sent from, as many that are received into */
	struct perf_test test;
	struct perf_remote peer;
	int comp_fd;                /* comp() was called */
	u32 sends, recvs;           /* posted, no completion seen that counts them */
	u32 acked;                  /* receives completed and not looked at by the test */
	u32 idle_polls;             /* that found nothing, one after the other */
	u64 idle_since_ns;
	int error;                  /* negative errno; of the first failed completion */
	enum ibv_wc_status wc_status;
};
int perf_end_open(struct perf_end *e, struct iwcm_ctx *ctx, struct irdma_device *iwdev, const struct perf_test *t);
void perf_end_close(struct perf_end *e);
struct perf_remote perf_end_memory(const struct perf_end *e);
/* Receives that the server of a bandwidth test of Sends keeps posted, and after how many messages it gives the client a credit. */
#define PERF_CREDITS 4u
static inline u32 perf_window(const struct perf_test *t)
{
	return PERF_CREDITS * t->depth;
}
/* @n work requests, in lists. 0 or a negative errno. @len 0: no data. */
int perf_post_recv(struct perf_end *e, u32 n);
int perf_post(struct perf_end *e, enum ibv_wr_opcode op, u32 len, u32 n);
/* Take completions that are there; sleeps, for at most 100 ms, once nothing has come for a while. */
int perf_progress(struct perf_end *e);
int perf_spin(struct perf_end *e); /* never sleeps */

extern volatile sig_atomic_t perf_stop; /* a signal came */

/* ---- perf_run.c: the tests ---- */
struct perf_result {
	u64 done;            /* messages or round trips */
	double seconds;
	u32 *ns;             /* round trips, sorted, the caller's to free; NULL for bandwidth */
	u32 samples;
};
int perf_client(struct perf_end *e, struct perf_result *out);
int perf_server(struct perf_end *e);
int perf_round_trip(struct perf_end *e, u64 n);

#endif
