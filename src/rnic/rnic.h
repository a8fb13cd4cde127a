/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rnic: the NIC: device, ILQ, filters, port reservations, ARP table, address handles, queue pairs.
 * One struct irdma_device per network interface.
 */
#ifndef UWARP_RNIC_H
#define UWARP_RNIC_H

#include "base/base.h"
#include "net/net.h"
#include "port/port.h"
#include "rdmap/rdmap.h"

struct irdma_device;
struct irdma_cm_core;
struct irdma_cm_node;
struct iw_cm_id;
struct irdma_qp;

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
	pthread_mutex_t lock;       /* pools and refcounts */
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
	u32 qp_num;
	u32 refcount;              /* atomic */
	pthread_mutex_t lock;      /* all below up to the CM's part */
	enum rnic_qp_state state;
	enum rnic_ae last_ae;
	bool destroying;           /* rnic_qp_destroy() was called; read without the lock by rnic_qp_is_going() */
	bool reset_seen;
	bool disconn_raised;       /* CM told that the stream ended */
	struct port_stream *stream;
	struct rnic_iwarp_info iw;
	struct mpa_rx rx;
	struct mpa_stream tx;
	u8 *txbuf;                 /* what the stream did not take yet: start-up reply, RTR, Terminate */
	u32 tx_off, tx_len, tx_size;
	bool tx_fin;               /* shut down once txbuf is out */
	bool lsmm_sent;
	bool rtr_pending;          /* responder waits for the RTR: sends nothing before */
	struct timer_list rtr_timer;
	struct rdmap_error term;   /* sent or received */
	u64 rx_fpdus, tx_fpdus, rx_bytes, tx_bytes;
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
	const struct rnic_cm_ops *cm_ops; /* set by irdma_setup_cm_core() */
	struct irdma_cm_core *cm_core;
	pthread_mutex_t lock;   /* tables below */
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

#endif
