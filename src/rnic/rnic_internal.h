/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rnic: what only this room needs.
 *
 * Locks, from the outside in; a lock is never taken while one further down is held:
 *   the CM's and other callers' locks
 *   rnic_cq.users_lock     a program that polls is looking at the QPs of its CQ
 *   rnic_qp.rx_lock        whoever reads a QP's stream; see qp_stream.c
 *   irdma_qp.lock          one QP: state, send queue, all that is sent
 *   irdma_device.lock      QP table, ARP table, port reservations; never on the data path
 *   irdma_sc_vsi.lock      ILQ pools
 *   locks of port/, net/ and base/
 * Down calls into the port and the loop may be made with any of these held: neither calls back from inside.
 * Up calls to the CM are made with none of them held, and from the loop's thread alone.
 */
#ifndef UWARP_RNIC_INTERNAL_H
#define UWARP_RNIC_INTERNAL_H

#include <assert.h>
#include <errno.h>
#include "rnic/rnic.h"
#include "rnic/verbs_internal.h"

#define ROOM "rnic"

struct apbvt_key {
	u32 addr[4];
	u16 number;
	u16 ipv4;
};

struct apbvt_entry {
	struct hash_node hn;
	struct apbvt_key key;
	u32 refs;
};

struct rnic_device {
	struct irdma_device dev;
	struct workq wq;       /* the QPs' deferred work */
	struct pool qp_pool, apbvt_pool; /* under the device's lock */
	size_t qps_created;    /* under the device's lock */
	size_t qps_freed;      /* atomic */
	struct rnic_stag_table stags;
	struct rnic_qp_stats gone; /* under the device's lock: sums of the QPs that are no more */
	u64 made;                  /* under the device's lock */
	u64 connections;           /* atomic */
	struct mutex lease_lock; /* leaf */
	TAILQ_HEAD(, rnic_qp) leases; /* under lease_lock */
	u32 lease_count;           /* atomic for a look */
	struct timer_list lease_timer;
	u32 pds, cqs;          /* atomic: how many there are */
};

static inline struct rnic_device *rnic_device_of(struct irdma_device *dev)
{
	return container_of(dev, struct rnic_device, dev);
}

/* What the loop's thread has to do for a QP once the QP's lock is dropped. */
#define RNIC_TODO_LSMM 0x1u       /* tell the CM that the start-up reply is out */
#define RNIC_TODO_DISCONNECT 0x2u /* tell the CM that the stream ended */

/* ---- what a QP sends: FPDUs that are built and not taken by the stream yet (qp_tx.c) ---- */
#define RNIC_TX_SEGS 256u
#define RNIC_TX_STAGE 32768u

/* A piece of an FPDU: bytes in .stage, which follow those of the segment before, or memory of a program's. */
struct rnic_tx_seg {
	u64 addr;              /* memory: as its STag counts */
	u32 stag, len;         /* what is left of it */
	u32 access;
	u16 marker;            /* where the next marker was due when the FPDU began */
	bool mem, held;
	bool control;          /* goes out whatever happens: start-up reply, RTR, Terminate */
	bool last;             /* of its FPDU */
};

struct rnic_tx_batch {
	u32 head, segs;        /* seg[head, segs) */
	u32 stage_head, stage_len, stage_size;
	u8 *stage;
	struct rnic_tx_seg seg[RNIC_TX_SEGS];
	struct rnic_mem hold[RNIC_TX_SEGS]; /* of seg[], while .held: from building to the end of the send */
};

enum rnic_tx_source { RNIC_TX_NONE, RNIC_TX_WQE, RNIC_TX_ANSWER };

/* A piece of payload: a program's memory. */
struct rnic_piece {
	const u8 *ptr;
	u64 addr;
	u32 stag, len;
	struct rnic_mem mem;
};

struct rnic_tx {
	struct mpa_stream mpa;
	u64 built, taken;      /* bytes of stream: put into the batch, taken by the stream */
	struct rnic_tx_batch *batch; /* NULL: nothing was ever queued */
	u32 emss;
	enum rnic_tx_source source; /* of the message that is being sent */
	bool answer_turn;      /* fairness: the next message is an answer, if there is one */
	bool mid;              /* the stream took a part of the FPDU in front */
	bool stuck;            /* the stream was full; atomic for pollers */
	bool held;             /* work requests wait for more of them, or for the program to poll; atomic for pollers */
	u32 polls;             /* of both CQs, when something was posted last */
	bool fin;              /* FIN once nothing is left to say */
	bool fin_sent;
};

/* A Read Request or Atomic Request that is to be answered. */
struct rnic_answer {
	bool atomic;
	struct rdmap_read_req read;
	struct rdmap_atomic_req op;
};

struct rnic_answers {
	struct rnic_answer *ring; /* NULL: none was ever asked for */
	u32 size, head, tail;     /* free running; size is the IRD */
	u32 off;                  /* bytes of the first one that are built */
};

/* ---- send queue (sq.c) ---- */
/* A work request. Its SGEs or inline bytes follow. */
struct rnic_swqe {
	u64 wr_id;
	u64 end;               /* built: stream position behind its last byte */
	u64 remote_addr;
	union {
		struct { u64 compare_add, swap; };
		struct rnic_bind bind; /* resolved when it was posted */
	};
	u32 rkey;              /* remote STag, or STag to invalidate */
	u32 imm;               /* network byte order */
	u32 length;            /* bytes of the message */
	u32 msn;               /* of its queue, once built */
	u32 sink_stag;         /* Read: on the wire; atomic: request id */
	u32 placed;            /* Read: bytes of the response that are there */
	u16 num_sge;
	u8 opcode;             /* enum ibv_wr_opcode */
	u8 status;             /* enum ibv_wc_status */
	bool signaled, solicited, fence, inlined;
	bool expects;          /* a response */
	bool done;             /* whatever the stream has taken */
	struct ibv_sge sge[];
};

struct rnic_sq {
	u8 *ring;
	u32 stride, mask;
	u32 max_wr, max_sge, max_inline;
	u32 head, next, tail;  /* free running: oldest, first not wholly built, first free */
	u32 read_head;         /* where the search for the oldest outstanding Read or atomic begins */
	u32 reads;             /* outstanding */
	u32 off;               /* bytes of .next that are built */
	bool imm_due;          /* the Write of a Write with Immediate is built */
	u32 send_msn, read_msn; /* next ones, RFC 5041 5.3 */
};

/* ---- what only a QP with queues has ---- */
#define RNIC_RX_HOLDS 64u
struct rnic_verbs {
	struct rnic_qp_attr attr;
	struct rnic_cq_user user[2]; /* the second one if there are two CQs */
	struct rnic_sq sq;         /* under qp.lock */
	struct rnic_qp_stats counted; /* what the device's sums have of it since it was destroyed */
	bool sq_flushed;
	/* under rx_lock */
	struct rnic_rq rq;         /* unused with an SRQ */
	struct rnic_rwqe *cur;     /* the receive WQE that is being filled */
	bool receiving;            /* there is one */
	enum ibv_wc_status cur_status; /* what it fails with, if it does */
	u32 write_len;             /* bytes of the last Write, for the Immediate Data behind it */
	bool write_done;
	u32 holds;
	struct rnic_mem hold[RNIC_RX_HOLDS];
	struct rnic_mem target;    /* of the tagged segment in progress, one of .hold */
	u32 target_off;            /* where in the segment it begins */
	bool has_target;
};

#define RNIC_NOTE_READ 0x1u  /* something came while another thread was reading */
#define RNIC_NOTE_FLUSH 0x2u /* the receive queue is to be flushed */

struct rnic_qp {
	struct irdma_qp qp;
	struct work_struct work;
	struct rnic_verbs *v;   /* NULL: a QP without queues */
	int access;             /* IBV_ACCESS_REMOTE_*; atomic */
	u32 alarm;              /* atomic: a CQ has overrun */
	/* reading; see qp_stream.c */
	struct mutex rx_lock;
	bool rx_held;           /* rx_lock is held */
	u32 rx_notes;           /* atomic: RNIC_NOTE_* for who holds rx_lock */
	bool rx_flushed;        /* atomic: receive nothing more */
	bool rx_dry;            /* the stream once had nothing more: from then on a short read means that */
	struct rdmap_rx rx;
	bool rx_asked;          /* there are new answers to send */
	int rx_error;           /* what a poller was told, for the loop's thread */
	u64 rx_msgs[RDMAP_OPCODES];
	u64 rx_failed;          /* completions in error */
	/* a program that polls (qp_poll.c) */
	TAILQ_ENTRY(rnic_qp) lease;  /* under the device's lease_lock, as .leased */
	bool leased;            /* atomic for a look */
	u32 polls, lease_polls; /* atomic: reads by pollers; what they were at the last tick */
	u32 poll_run;           /* under rx_lock: polls of the CQ that were counted at poll_run_ns */
	u64 poll_run_ns;
	/* under qp.lock */
	u32 todo;             /* RNIC_TODO_*; atomic for a look */
	u32 events;           /* PORT_* still to be handled: the reading budget was spent, or a send failed */
	int tx_error;         /* why a send failed */
	u32 lsmm_left;        /* bytes of the start-up reply that the stream did not take yet */
	struct rnic_tx tx;
	struct rnic_answers answers;
	u32 atomic_msn;       /* Atomic Responses sent */
	u64 tx_msgs[RDMAP_OPCODES];
	u64 tx_failed;        /* completions in error */
	bool term_sent, term_received;
	bool flushed;         /* rnic_qp_flush() was here */
	bool eof;             /* the peer's FIN was read */
	u32 nudges;           /* sent so far (qp_nudge.c) */
	bool first_pending;   /* client-server responder: nothing is sent yet (qp_rx.c); atomic for a look */
	bool rtr_sent;
	bool rtr_resp_due;    /* initiator sent a Read RTR, its response is not in yet */
};

static inline struct rnic_qp *rnic_qp_of(struct irdma_qp *qp)
{
	return container_of(qp, struct rnic_qp, qp);
}

/* Nothing more is received for the program. */
static inline bool rx_is_over(const struct rnic_qp *q)
{
	return __atomic_load_n(&q->rx_flushed, __ATOMIC_SEQ_CST);
}

/* qp->lock held. */
static inline void rnic_qp_set_todo(struct rnic_qp *q, u32 todo)
{
	__atomic_store_n(&q->todo, todo, __ATOMIC_RELAXED);
}

#define rnic_count(counter) (single_threaded() ? (void)++(counter) : (void)__atomic_fetch_add(&(counter), 1, __ATOMIC_RELAXED))

/* qp.c; all with qp->lock held */
bool rnic_qp_may_step(enum rnic_qp_state from, enum rnic_qp_state to);
void rnic_qp_set_state(struct irdma_qp *qp, enum rnic_qp_state next);
void rnic_qp_set_ae(struct irdma_qp *qp, enum rnic_ae ae);
void rnic_qp_raise(struct irdma_qp *qp); /* the CM is to be told, once */
void rnic_qp_kick(struct irdma_qp *qp);  /* let the loop's thread look at todo and events; the lock is not needed */
void rnic_qp_fail(struct irdma_qp *qp, enum rnic_ae ae);  /* the stream is dead: to ERROR */
void rnic_qp_abort(struct irdma_qp *qp, enum rnic_ae ae); /* RST, to ERROR */
void rnic_qp_alarm(struct rnic_qp *q);   /* any locks: a CQ has overrun, the QP goes to ERROR */
int rnic_qp_make(struct irdma_device *iwdev, struct rnic_verbs *v, struct irdma_qp **out); /* no lock */
/* Without the lock: a glance at the state. */
static inline enum rnic_qp_state rnic_qp_state(const struct irdma_qp *qp)
{
	return __atomic_load_n(&qp->state, __ATOMIC_RELAXED);
}

/* qp_verbs.c */
void rnic_verbs_free(struct rnic_verbs *v);
void rnic_qp_forget(struct irdma_qp *qp);  /* no lock held: its CQs and completions, PD, SRQ */
void rnic_qp_async(struct irdma_qp *qp, enum ibv_event_type type);
void rnic_qp_count(struct irdma_qp *qp); /* for the device's sums: rnic_qp_destroy() */
void rnic_stats_move(struct rnic_qp_stats *sum, const struct rnic_qp_stats *part, bool back); /* add, or subtract */
void rnic_qp_add_stats(struct irdma_qp *qp, struct rnic_qp_stats *sum); /* rx_lock and qp->lock held, or nobody else has the QP */

/* qp_stream.c */
extern const struct port_stream_up rnic_stream_up;
void rnic_qp_work(struct work_struct *work);
void rnic_qp_rtr_timeout(struct timer_list *t);
void rnic_rx_lock(struct rnic_qp *q);
bool rnic_rx_trylock(struct rnic_qp *q);
void rnic_rx_unlock(struct rnic_qp *q);   /* no lock but rx_lock is held */
void rnic_rx_leave_note(struct rnic_qp *q, u32 note); /* qp->lock held; serves it at once if nobody reads */
bool rnic_rx_poll(struct rnic_qp *q);     /* rx_lock held: read for a program; true if something came */

/* qp_rx.c; with rx_lock held */
extern const struct rdmap_rx_ops rnic_rx_ops;

/* qp_tx.c; all with qp->lock held */
void rnic_tx_bytes(struct irdma_qp *qp, const u8 *bytes, u32 len);  /* control bytes; at once if nothing is queued */
void rnic_tx_ulpdu(struct irdma_qp *qp, const u8 *ulpdu, u32 len);  /* the same as an FPDU */
void rnic_tx_terminate(struct irdma_qp *qp, const struct rdmap_error *err, const u8 *ulpdu, u32 len);
void rnic_tx_fin(struct irdma_qp *qp);  /* after what is queued */
void rnic_tx_fin_if_due(struct irdma_qp *qp);
void rnic_tx_set_stuck(struct rnic_qp *q, bool stuck);
void rnic_tx_drop(struct irdma_qp *qp);
u32 rnic_tx_rest(struct irdma_qp *qp, const u8 **bytes); /* number of bytes that the stream did not take and that must go out */
void rnic_tx_detach(struct irdma_qp *qp); /* keep what must go out, and nothing of the program's memory */
bool rnic_tx_prepare(struct rnic_qp *q);  /* there is a batch */
bool rnic_tx_room(const struct rnic_qp *q, u32 pieces, u32 payload);
void rnic_tx_add(struct rnic_qp *q, u8 *hdr, u32 hdr_len, struct rnic_piece *p, u32 n, u32 payload, int access);
enum rnic_tx_result { RNIC_TX_GO_ON, RNIC_TX_FULL, RNIC_TX_ENDED };
enum rnic_tx_result rnic_tx_send(struct irdma_qp *qp);
static inline bool rnic_tx_is_empty(const struct rnic_qp *q)
{
	return !q->tx.batch || q->tx.batch->head == q->tx.batch->segs;
}

/* qp_send.c; qp->lock held */
void rnic_tx_run(struct irdma_qp *qp);
u32 rnic_tx_payload(const struct rnic_qp *q, u32 hdr_len);

/* qp_nudge.c; qp->lock held */
void rnic_nudge_start(struct irdma_qp *qp);
void rnic_nudge(struct irdma_qp *qp);

/* qp_read.c: both ends of Reads and atomics */
const struct rdmap_error *rnic_answer_read(struct rnic_qp *q, const struct ddp_hdr *h);
const struct rdmap_error *rnic_answer_atomic(struct rnic_qp *q, const struct ddp_hdr *h);
const struct rdmap_error *rnic_answer_build(struct rnic_qp *q, bool *built); /* qp->lock held */
const struct rdmap_error *rnic_response_start(struct rnic_qp *q, const struct ddp_hdr *h);
int rnic_response_sink(struct rnic_qp *q, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err);
const struct rdmap_error *rnic_response_finish(struct rnic_qp *q, const struct ddp_hdr *h);
const struct rdmap_error *rnic_atomic_response(struct rnic_qp *q, const struct ddp_hdr *h);

/* qp_recv.c; rx_lock held */
void rnic_recv_drop_holds(struct rnic_verbs *v);
int rnic_recv_pieces(struct rnic_qp *q, const struct ibv_sge *sge, u32 n, u64 off, u32 len, const struct rnic_pd *pd, struct iovec *iov, int max);
const struct rdmap_error *rnic_send_start(struct rnic_qp *q, const struct ddp_hdr *h);
int rnic_send_sink(struct rnic_qp *q, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err);
const struct rdmap_error *rnic_send_finish(struct rnic_qp *q, const struct ddp_hdr *h);
const struct rdmap_error *rnic_write_start(struct rnic_qp *q, const struct ddp_hdr *h);
int rnic_write_sink(struct rnic_qp *q, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err);
const struct rdmap_error *rnic_write_finish(struct rnic_qp *q, const struct ddp_hdr *h);
const struct rdmap_error *rnic_imm_finish(struct rnic_qp *q, const struct ddp_hdr *h);
void rnic_recv_complete(struct rnic_qp *q, const struct rnic_rwqe *w, enum ibv_wc_status status);

/* What a Terminate says of memory that a peer named. */
const struct rdmap_error *rnic_rdmap_mem_error(enum rnic_mem_status s);
const struct rdmap_error *rnic_ddp_mem_error(enum rnic_mem_status s);
extern const struct rdmap_error rnic_local_error; /* RDMAP: local catastrophic */

/* sq.c; qp->lock held */
int rnic_sq_init(struct rnic_sq *sq, struct ibv_qp_cap *cap);
static inline struct rnic_swqe *rnic_sq_at(const struct rnic_sq *sq, u32 i)
{
	return (struct rnic_swqe *)(void *)(sq->ring + (size_t)(i & sq->mask) * sq->stride);
}
static inline bool rnic_sq_is_empty(const struct rnic_qp *q)
{
	return !q->v || q->v->sq.head == q->v->sq.tail;
}
int rnic_sq_post(struct rnic_qp *q, const struct ibv_send_wr *wr);
struct rnic_swqe *rnic_sq_oldest_read(struct rnic_sq *sq);
void rnic_sq_blame_sending(struct rnic_qp *q, enum ibv_wc_status status);
void rnic_sq_retire(struct rnic_qp *q);
void rnic_sq_complete(struct rnic_qp *q, const struct rnic_swqe *w, enum ibv_wc_status status);

/* qp_flush.c */
void rnic_qp_flush(struct irdma_qp *qp);     /* qp->lock held: both queues, once */
void rnic_rx_flush(struct rnic_qp *q);       /* rx_lock held */
void rnic_sq_blame_terminate(struct rnic_qp *q, const struct ddp_hdr *h); /* qp->lock held: which WQE the peer means */
void rnic_qp_term_event(struct irdma_qp *qp, const struct rdmap_error *err); /* one that we send */

/* qp_poll.c */
void rnic_lease_init(struct rnic_device *d);
void rnic_lease_destroy(struct rnic_device *d);
void rnic_lease_end(struct irdma_qp *qp);    /* qp->lock held: the stream's events are the loop's again */
bool rnic_hold_back(struct rnic_qp *q);      /* qp->lock held, something was posted: may it wait? Then it is noted */
void rnic_send_held(struct rnic_qp *q);       /* qp->lock held: what was held back goes out now */

#endif
