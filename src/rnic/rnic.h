/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rnic: the NIC. One struct irdma_device per network interface. First what the CM stands on: ILQ, filters, port reservations, ARP table, address
 * handles, the life of a queue pair; then the verbs: protection domains, memory, completion queues, work requests.
 *
 * Verbs types are those of <infiniband/verbs.h>: programs' work requests and completions need no translation. Functions return negative errnos.
 */
#ifndef UWARP_RNIC_H
#define UWARP_RNIC_H

#include <infiniband/verbs.h>
#include "base/base.h"
#include "net/net.h"
#include "port/port.h"
#include "rdmap/rdmap.h"

struct irdma_device;
struct irdma_cm_core;
struct irdma_cm_node;
struct iw_cm_id;
struct irdma_qp;
struct rnic_pd;

#define IRDMA_GEN_1 1 /* whole-frame CM frames */
#define IRDMA_GEN_2 2 /* address-handle CM frames */

/* ---- ILQ buffers ---- */
/*
 * One frame on the ILQ. Received: @pkt points at the port's decoded frame and is valid until
 * irdma_receive_ilq() returns. Sent: @mem holds headroom, then the frame from @data on.
 */
struct irdma_puda_buf {
	TAILQ_ENTRY(irdma_puda_buf) list;
	struct irdma_sc_vsi *vsi;
	u32 refcount;
	u32 seqnum;          /* sent: first sequence number; retransmission needs it */
	/* sent */
	struct irdma_sc_ah *ah;    /* address-handle frame, else a whole frame */
	u8 *data;            /* first byte to send (Ethernet or TCP header) */
	u8 *tcph;
	u32 totallen;
	u16 tcphlen;
	bool large;
	/* received */
	const struct pkt *pkt;
	struct port_filter *filter;
	int error;           /* true cause behind an RST, negative errno */
	u8 mem[];
};
TAILQ_HEAD(irdma_puda_list, irdma_puda_buf);

/* Largest frame that the CM sends: layers 2 and 3, TCP with options, MPA start-up frame. */
#define RNIC_SMALL_BUF (PKT_HDR_MAX + PKT_TCP_LEN + PKT_TCP_OPT_MAX + 64)
#define RNIC_LARGE_BUF (PKT_HDR_MAX + PKT_TCP_LEN + PKT_TCP_OPT_MAX + MPA_START_FRAME_MAX + 64)

/* The ILQ and what it needs. */
struct irdma_sc_vsi {
	struct irdma_device *back;
	struct pool small, large;   /* bounded: dev->limits.ilq_bufs each */
	struct mutex lock;       /* pools and refcounts */
	u64 tx_frames, tx_errors, rx_frames, rx_dropped;
};

/* Buffer with one reference and room for a frame with @len bytes behind its TCP options; NULL when the pool is empty. */
struct irdma_puda_buf *rnic_buf_get(struct irdma_sc_vsi *vsi, u32 len);
void rnic_buf_hold(struct irdma_puda_buf *buf);
void rnic_buf_put(struct irdma_puda_buf *buf);
/* Send on the ILQ; consumes no reference. 0 or what the port says. */
int rnic_ilq_send(struct irdma_sc_vsi *vsi, struct irdma_puda_buf *buf);
/* Feed a received segment/frame into the ILQ as the port does (decoded; tests and fuzzers use it too). */
bool rnic_ilq_receive(struct irdma_device *iwdev, const struct port_rx *rx);

/* ---- address handles ---- */
struct irdma_sc_ah {
	struct port_ah *port_ah;
	bool valid;
};
int rnic_ah_create(struct irdma_device *iwdev, const struct port_ah_attr *attr, struct irdma_sc_ah *ah);
void rnic_ah_destroy(struct irdma_device *iwdev, struct irdma_sc_ah *ah);

/* ---- ARP table ---- */
#define RNIC_ARP_NONE (-1)
/* Index of the entry for @addr, or RNIC_ARP_NONE. */
int rnic_arp_find(struct irdma_device *iwdev, bool ipv4, const u32 *addr);
/* Add or change; index, or -ENOMEM/-ENOSPC. */
int rnic_arp_set(struct irdma_device *iwdev, bool ipv4, const u32 *addr, const u8 *mac);
void rnic_arp_flush(struct irdma_device *iwdev);
int rnic_arp_mac(struct irdma_device *iwdev, int index, u8 mac[6]); /* 0 or -ENOENT */

/* ---- filters, port reservations ---- */
int rnic_filter_add(struct irdma_device *iwdev, const struct port_filter_attr *attr, struct port_filter **out);
void rnic_filter_del(struct irdma_device *iwdev, struct port_filter *f);
void rnic_filter_kick(struct irdma_device *iwdev, struct port_filter *f);
/*
 * Accelerated port table, reference counted per (family, address, number). *@number 0 chooses one. @addr all-zero: any.
 * 0, -EADDRINUSE (somebody outside this table has it), -EACCES, ...
 */
int rnic_apbvt_add(struct irdma_device *iwdev, bool ipv4, const u32 *addr, u16 *number, bool shared);
void rnic_apbvt_del(struct irdma_device *iwdev, bool ipv4, const u32 *addr, u16 number);
size_t rnic_apbvt_count(struct irdma_device *iwdev);

/* ---- queue pairs ---- */
/* IDLE -> RTS -> CLOSING | TERMINATE | ERROR; any -> ERROR; ERROR/CLOSING -> IDLE never: a QP lives once. */
enum rnic_qp_state { RNIC_QP_IDLE, RNIC_QP_RTS, RNIC_QP_CLOSING, RNIC_QP_TERMINATE, RNIC_QP_ERROR, RNIC_QP_STATES };

/* The last thing that happened to the stream; the first fatal one stays. */
enum rnic_ae {
	RNIC_AE_NONE,
	RNIC_AE_LLP_FIN_RECEIVED,      /* peer closed in order */
	RNIC_AE_LLP_CLOSE_COMPLETE,    /* both directions closed in order */
	RNIC_AE_LLP_CONNECTION_RESET,  /* RST from the peer */
	RNIC_AE_LLP_TOO_MANY_RETRIES,
	RNIC_AE_TERMINATE_RECEIVED,
	RNIC_AE_TERMINATE_SENT,
	RNIC_AE_QP_ERROR,              /* moved to ERROR by the upper layer */
	RNIC_AE_RTR_TIMEOUT,           /* peer-to-peer: the initiator's first FPDU did not come */
};

struct rnic_iwarp_info {
	u16 ird, ord;
	bool crc;
	bool snd_markers, rcv_markers; /* we insert / expect them */
	bool initiator;
	u32 rtr;            /* RDMAP_RTR_* that the peers agreed on, 0: client-server model */
	u32 rtr_timeout_ms; /* responder: how long to wait for the RTR */
	const void *lsmm;   /* stream bytes that go out first (MPA reply), copied */
	u32 lsmm_len;
};

struct irdma_qp {
	struct hash_node hn;
	struct irdma_device *iwdev;
	struct rnic_pd *pd;        /* NULL: a QP without verbs; set when it is made */
	u32 qp_num;
	u32 refcount;              /* atomic */
	struct mutex lock;      /* all below up to the CM's part */
	enum rnic_qp_state state;
	enum rnic_ae last_ae;
	bool destroying;           /* rnic_qp_destroy() was called; read without the lock by rnic_qp_is_going() */
	bool reset_seen;
	bool disconn_raised;       /* CM told that the stream ended */
	struct port_stream *stream; /* changed with the QP's rx lock held, too */
	struct rnic_iwarp_info iw;
	bool lsmm_sent;
	bool rtr_pending;          /* responder waits for the RTR: sends nothing before */
	struct timer_list rtr_timer; /* responder: until the RTR is there; initiator: qp_nudge.c */
	struct rdmap_error term;   /* sent or received */
	u64 rx_fpdus, tx_fpdus, rx_bytes, tx_bytes; /* rx_*: under the rx lock */
	/* the CM's, under its lock */
	struct iw_cm_id *cm_id;
	struct irdma_cm_node *cm_node;
	struct irdma_disconn_work *disconn; /* queued once */
};

int rnic_qp_create(struct irdma_device *iwdev, struct irdma_qp **out); /* one reference: the creator's */
/* Moves to ERROR if need be, raises what the CM must know, drops the creator's reference. */
void rnic_qp_destroy(struct irdma_qp *qp);
struct irdma_qp *rnic_qp_find(struct irdma_device *iwdev, u32 qp_num); /* with a reference, or NULL */
/* Was rnic_qp_destroy() called? A hint to the CM: rnic_qp_offload() decides, under the lock. */
static inline bool rnic_qp_is_going(const struct irdma_qp *qp)
{
	return __atomic_load_n(&qp->destroying, __ATOMIC_RELAXED);
}
bool rnic_qp_fin_is_out(struct irdma_qp *qp); /* CLOSING, and all that was posted, and FIN behind it, is the stream's */
void rnic_qp_hold(struct irdma_qp *qp);
void rnic_qp_put(struct irdma_qp *qp);
/*
 * Take the connection over: the port's stream, iWARP parameters, lsmm out first; IDLE -> RTS. Consumes @ah on success.
 * Errors: -EINVAL (not IDLE, being destroyed), -ECONNRESET, -ENOMEM.
 */
int rnic_qp_offload(struct irdma_qp *qp, struct irdma_sc_ah *ah, const struct tcp_info_ho *tcp, const struct rnic_iwarp_info *iw);
/* Initiator: the RTR FPDU. */
int rnic_qp_send_rtr(struct irdma_qp *qp);
/* Upper layer's (or the CM's) wish: CLOSING: FIN after what is queued; ERROR: flush, RST. 0, -EINVAL for an illegal step. */
int rnic_qp_modify(struct irdma_qp *qp, enum rnic_qp_state next);
/* The stream is over: close it. Called by the CM from irdma_cm_disconn_true(). */
void rnic_qp_release_stream(struct irdma_qp *qp);
const char *rnic_qp_state_str(enum rnic_qp_state s);
const char *rnic_ae_str(enum rnic_ae ae);

/* ---- verbs: protection domains ---- */
struct rnic_pd {
	struct irdma_device *iwdev;
	u32 users;             /* atomic: regions, windows, SRQs, QPs */
};
int rnic_pd_create(struct irdma_device *iwdev, struct rnic_pd **out);
int rnic_pd_destroy(struct rnic_pd *pd); /* -EBUSY while it has users */

/* ---- verbs: memory (mr.c, mw.c, stag.c) ---- */
/*
 * An STag is 32 random bits; lkey and rkey of a region are the same one. Regions and bound windows live in the device's STag table. Rights are
 * IBV_ACCESS_*.
 */
struct rnic_mr;
struct rnic_mw;
struct rnic_mr_attr {
	void *addr;            /* in this process */
	u64 length;
	u64 iova;              /* address that peers and SGEs use; IBV_ACCESS_ZERO_BASED: 0 */
	int access;
};
/* -EINVAL (remote write or atomic without local write, wrap, unknown right), -EFAULT (not mapped), -ENOMEM, -ENOSPC. */
int rnic_mr_create(struct rnic_pd *pd, const struct rnic_mr_attr *attr, struct rnic_mr **out);
/* IBV_REREG_MR_* in @flags; the STag stays unless the translation changes. On failure (-EBUSY: windows are bound) the region is as it was. */
int rnic_mr_change(struct rnic_mr *mr, int flags, struct rnic_pd *pd, const struct rnic_mr_attr *attr);
/* -EBUSY while windows are bound to it. Afterwards nobody touches its memory: waits for accesses that are just going on. */
int rnic_mr_destroy(struct rnic_mr *mr);
u32 rnic_mr_stag(const struct rnic_mr *mr);
int rnic_mw_create(struct rnic_pd *pd, enum ibv_mw_type type, struct rnic_mw **out);
int rnic_mw_destroy(struct rnic_mw *mw); /* unbinds */
u32 rnic_mw_rkey(const struct rnic_mw *mw); /* as the last bind that was executed set it */
/* What ibv_bind_mw() puts into its work request and into the program's window: the index stays, the key is random and another one. */
u32 rnic_mw_new_rkey(const struct rnic_mw *mw);

/* Why memory cannot be accessed; the QP turns it into a Terminate or a status. */
enum rnic_mem_status {
	RNIC_MEM_OK,
	RNIC_MEM_STAG,         /* no such STag, or it is invalid */
	RNIC_MEM_STREAM,       /* another protection domain, or another QP's window */
	RNIC_MEM_BOUNDS,
	RNIC_MEM_WRAP,         /* address + length wraps */
	RNIC_MEM_ACCESS,       /* right missing */
};
struct rnic_mem {
	u8 *ptr;               /* what the address stands for */
	struct rnic_stag *region, *window; /* what is held */
};
/*
 * Access @len > 0 bytes at @addr of @stag with the rights @access (all of them; 0: local read), by @qp. On RNIC_MEM_OK the memory stays until
 * rnic_mem_put(), which must come soon: whoever deregisters waits for it. Lock-free or on a lock that is per STag, never shared by all.
 */
enum rnic_mem_status rnic_mem_get(const struct irdma_qp *qp, u32 stag, u64 addr, u64 len, int access, struct rnic_mem *out);
/* The same for a protection domain alone (SRQs): windows are not looked at. */
enum rnic_mem_status rnic_mem_get_local(const struct rnic_pd *pd, u32 stag, u64 addr, u64 len, int access, struct rnic_mem *out);
void rnic_mem_put(struct rnic_mem *m);
/* Work requests and Send with Invalidate. @remote: asked for by the peer (a region must have been made for that: IBV_ACCESS_REMOTE_*). */
enum rnic_mem_status rnic_stag_invalidate(const struct irdma_qp *qp, u32 stag, bool remote);
/*
 * IBV_WR_BIND_MW, executed in the QP's send queue order. The rkey has the window's index; type 1: 0 stands for rnic_mw_new_rkey(), and length 0 unbinds. 0, or
 * -EINVAL: another protection domain, range, rights, an rkey of something else, a type 2 window that is bound.
 */
int rnic_mw_bind(const struct irdma_qp *qp, const struct ibv_send_wr *wr);
/* The shim keeps its own objects: how a struct ibv_mw / ibv_mr of a work request is found. Set once, before any bind. */
struct rnic_bind_ops {
	struct rnic_mw *(*mw)(const struct ibv_mw *mw);
	struct rnic_mr *(*mr)(const struct ibv_mr *mr);
};
extern const struct rnic_bind_ops *rnic_bind_ops;

/* ---- verbs: completion queues (cq.c) ---- */
struct rnic_cq;
struct rnic_cqe {
	struct ibv_wc wc;
	u64 timestamp_ns;      /* CLOCK_MONOTONIC; 0 unless the queue was made with timestamps */
	bool solicited;
};
struct rnic_cq_attr {
	int cqe;               /* at least */
	bool timestamps, ignore_overrun;
	/* Both are called with a QP's or CQ's lock held: they must not call the NIC, and take leaf locks only. */
	void (*comp)(void *ctx);                         /* armed, and a completion came */
	void (*async)(void *ctx, enum ibv_event_type t); /* IBV_EVENT_CQ_ERR: it overran */
	void *ctx;
};
int rnic_cq_create(struct irdma_device *iwdev, const struct rnic_cq_attr *attr, struct rnic_cq **out);
int rnic_cq_destroy(struct rnic_cq *cq);           /* -EBUSY while QPs use it */
int rnic_cq_resize(struct rnic_cq *cq, int cqe);   /* -EINVAL: more are in it; -ENOMEM */
int rnic_cq_size(const struct rnic_cq *cq);
/* Up to @n completions. An empty queue first reads the streams of its QPs (qp_poll.c). -EOVERFLOW: it overran, and what was in it is taken. */
int rnic_cq_poll(struct rnic_cq *cq, int n, struct ibv_wc *wc);
/* The same with time stamps; for extended CQs. */
int rnic_cq_poll_ex(struct rnic_cq *cq, int n, struct rnic_cqe *out);
/* comp() once, at the next completion, or next solicited one; completions that are there already and were not polled do not count. */
int rnic_cq_arm(struct rnic_cq *cq, bool solicited_only);

/* ---- verbs: shared receive queues (srq.c) ---- */
struct rnic_srq;
struct rnic_srq_attr {
	u32 max_wr, max_sge;   /* rounded up on return */
	u32 limit;             /* means nothing when a queue is made (ibv_create_srq(3)); 0 on return */
	void (*async)(void *ctx, enum ibv_event_type t); /* SRQ_LIMIT_REACHED; as in rnic_cq_attr */
	void *ctx;
};
int rnic_srq_create(struct rnic_pd *pd, struct rnic_srq_attr *attr, struct rnic_srq **out);
int rnic_srq_modify(struct rnic_srq *srq, const struct ibv_srq_attr *attr, int mask);
void rnic_srq_query(struct rnic_srq *srq, struct ibv_srq_attr *attr);
int rnic_srq_destroy(struct rnic_srq *srq);        /* -EBUSY while QPs use it */
int rnic_srq_post(struct rnic_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad); /* -ENOMEM: full; -EINVAL */

/* ---- verbs: queue pairs with data (qp_verbs.c, sq.c, rq.c, qp_tx.c, qp_rx.c, qp_poll.c) ---- */
struct rnic_qp_attr {
	struct rnic_pd *pd;
	struct rnic_cq *send_cq, *recv_cq;
	struct rnic_srq *srq;  /* or NULL */
	struct ibv_qp_cap cap; /* what was given, on return */
	bool sq_sig_all;
	/* Asynchronous events of the QP; may come from any thread, with locks of the NIC's held: leaf locks only. */
	void (*async)(void *ctx, enum ibv_event_type t);
	void *ctx;
};
#define RNIC_MAX_WR 16384u
#define RNIC_MAX_SGE 30u
#define RNIC_MAX_INLINE 1024u
#define RNIC_MAX_CQE (1 << 22)
#define RNIC_MAX_MSG 0x7FFFFFFFu /* bytes of one message: 2 GiB - 1 */
/* Like rnic_qp_create(), with queues. -EINVAL (limits), -ENOMEM. */
int rnic_qp_create_verbs(struct irdma_device *iwdev, struct rnic_qp_attr *attr, struct irdma_qp **out);
/*
 * Negative errno with *@bad the first one not posted: -EINVAL (opcode, flags, state before RTS, too many SGEs, inline too long), -ENOMEM (full). In
 * CLOSING, TERMINATE and ERROR they are taken and flushed.
 */
int rnic_post_send(struct irdma_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int rnic_post_recv(struct irdma_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Rights of the QP that modify_qp sets (IBV_ACCESS_REMOTE_*: Write, Read, atomics; default all). */
void rnic_qp_set_access(struct irdma_qp *qp, int access);

struct rnic_qp_stats {
	u64 tx_bytes, rx_bytes, tx_fpdus, rx_fpdus;              /* of the stream; FPDUs */
	u64 tx_msgs[RDMAP_OPCODES], rx_msgs[RDMAP_OPCODES];      /* by enum rdmap_opcode */
	u64 terminates_sent, terminates_received, completions_in_error;
};
struct rnic_qp_info {
	enum rnic_qp_state state;
	enum rnic_ae last_ae;
	struct rdmap_error term;
	bool term_sent, term_received;
	struct rnic_iwarp_info iw;  /* valid from RTS on; without lsmm */
	struct ibv_qp_cap cap;
	u32 sq_used, rq_used;
	struct rnic_qp_stats stats;
};
void rnic_qp_query(struct irdma_qp *qp, struct rnic_qp_info *out);
/* Of all QPs that the device has and had. Costs a walk over its QPs. */
struct rnic_device_stats {
	u64 qps_created, qps_now, connections;
	struct rnic_qp_stats qp;
};
void rnic_device_send_held(struct irdma_device *iwdev);
bool rnic_device_is_closing(struct irdma_device *iwdev);
void rnic_device_get_stats(struct irdma_device *iwdev, struct rnic_device_stats *out);

/* ---- device ---- */
/* From the NIC to the CM; loop thread, no rnic lock held. */
struct rnic_cm_ops {
	void (*receive)(struct irdma_sc_vsi *vsi, struct irdma_puda_buf *rbuf); /* irdma_receive_ilq */
	bool (*may_accept)(struct irdma_device *iwdev, void *filter_cookie);
	void (*disconnect)(struct irdma_qp *qp);   /* the QP's stream ended or failed: irdma_cm_disconn */
	void (*lsmm_done)(struct irdma_qp *qp);    /* irdma_free_lsmm_rsrc */
};

struct rnic_limits {
	u16 max_ird, max_ord;   /* default 128 each */
	u32 ilq_bufs;           /* default 1 << 20 */
};

struct irdma_device {
	char name[32];          /* uwarp_<interface> */
	struct loop *loop;
	struct net *net;
	struct net_iface iface;
	struct port *port;
	struct irdma_sc_vsi vsi;
	struct rnic_limits limits;
	bool responder_waits;   /* client-server: for the initiator's first FPDU, however long it takes; set before there are connections */
	const struct rnic_cm_ops *cm_ops; /* set by irdma_setup_cm_core() */
	struct irdma_cm_core *cm_core;
	struct mutex lock;   /* tables below */
	struct hash_table qps, arp, apbvt;
	u32 next_qpn;
	struct rnic_arp_entry **arp_by_index;
	u32 arp_size, arp_free;
	void *owner;            /* the upper layer's */
};

/* A device on interface @iface; the port is plugged in by the caller with rnic_port_up/iwdev as its up side and given here. */
extern const struct port_up rnic_port_up;
int rnic_device_create(struct loop *loop, struct net *net, const struct net_iface *iface, const struct rnic_limits *limits, struct irdma_device **out);
void rnic_device_attach(struct irdma_device *iwdev, struct port *port);
/* Unplugs the port; all QPs, filters, AHs, reservations must be gone (logged and asserted). */
void rnic_device_destroy(struct irdma_device *iwdev);

/* ---- fork (fork.c): the NIC's locks, but not those of single QPs and queues ---- */
void rnic_fork_prepare(struct irdma_device *iwdev);
void rnic_fork_parent(struct irdma_device *iwdev);
void rnic_fork_child(struct irdma_device *iwdev);

#endif
