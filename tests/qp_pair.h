/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two queue pairs with a connection between them and no CM: on a wire that the test steps, or on the host port over 127.0.0.1; or one queue pair and a plain
 * socket, whose FPDUs the test makes up.
 */
#ifndef UWARP_TESTS_QP_PAIR_H
#define UWARP_TESTS_QP_PAIR_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>
#include <semaphore.h>
#include <cmocka.h>
#include "host_cm.h"
#include "rnic/rnic.h"

#define PAIR_MEM (4u << 20)
#define PAIR_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

enum pair_port { PAIR_WIRE, PAIR_HOST, PAIR_RAW };

struct pair_end {
	struct irdma_device *dev;
	struct rnic_pd *pd;
	struct rnic_cq *scq, *rcq;
	struct rnic_srq *srq;
	struct rnic_mr *mr;
	u8 *mem;
	u32 stag;
	struct irdma_qp *qp;
	int events[IBV_EVENT_WQ_FATAL + 1]; /* asynchronous ones of the QP */
	int disconnects;
	sem_t comp;              /* posted by comp() of both CQs */
};

struct pair_options {
	enum pair_port port;
	bool crc, markers;
	u16 ird, ord;            /* 0: 8; of end 0. Its peer has them swapped */
	bool no_ord;             /* end 0 may not read */
	u32 rtr;                 /* end 0 initiates */
	u16 mss;                 /* 0: 1460 on the wire, 65483 elsewhere */
	u32 max_send_wr, max_recv_wr; /* 0: 64 */
	u32 inline_data;
	bool srq, sq_sig_all, one_cq;
	u32 cqe;                 /* 0: 4096 */
	const struct port_wire_path *path;
};

struct pair {
	struct pair_options o;
	struct loop loop;        /* wire */
	struct port_wire *wire;
	struct cm cm;            /* host */
	struct port_filter *listener;
	struct pair_end e[2];
	/* raw: the peer */
	int fd, lfd;
	struct mpa_stream raw_tx;
	struct mpa_rx raw_rx;
	u8 raw_buf[65536];
	size_t raw_have, raw_used;
	/* the NIC thread */
	pthread_t thread;
	int wake_fd;
	bool stop;
};

void pair_open(struct pair *p, const struct pair_options *o);
void pair_close(struct pair *p);
void pair_make_qp(struct pair *p, int i);   /* another one in the place of e[i].qp */
void pair_connect(struct pair *p);          /* both QPs, which are in IDLE */
void pair_step(struct pair *p);
#define pair_until(p, cond) do { \
		u64 end_ = loop_monotonic_ns() + 10 * NSEC_PER_SEC; \
		while (!(cond) && loop_monotonic_ns() < end_) \
			pair_step(p); \
		if (!(cond)) \
			fail_msg("did not happen: %s", #cond); \
	} while (0)
void pair_settle(struct pair *p);           /* until nothing happens */

/* From here to the end a thread of its own runs the loop; the test must not step. PAIR_HOST. */
void pair_thread_start(struct pair *p);
void pair_thread_stop(struct pair *p);

/* Work requests on memory of @e at @off. */
struct ibv_sge pair_sge(struct pair_end *e, u32 off, u32 len);
int pair_recv(struct pair_end *e, u64 id, u32 off, u32 len);
/* @flags: IBV_SEND_*; @roff: in the peer's memory @to. */
int pair_send(struct pair_end *e, u64 id, enum ibv_wr_opcode op, u32 off, u32 len, const struct pair_end *to, u32 roff, unsigned int flags);
void pair_fill(struct pair_end *e, u32 off, u32 len, u8 seed);
void pair_expect(struct pair_end *e, u32 off, u32 len, u8 seed);
/* The next completion, waited for. */
struct ibv_wc pair_wc(struct pair *p, struct rnic_cq *cq);
struct ibv_wc pair_wc_is(struct pair *p, struct rnic_cq *cq, u64 id, enum ibv_wc_status status);
void pair_no_wc(struct rnic_cq *cq);

/* The raw peer. */
void pair_raw_says(struct pair *p, const u8 *ulpdu, u32 len);
void pair_raw_bytes(struct pair *p, const void *bytes, size_t len);
bool pair_raw_hears(struct pair *p, struct ddp_hdr *h, int timeout_ms); /* false: nothing, or the stream's end */

#endif
