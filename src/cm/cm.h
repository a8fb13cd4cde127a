/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm: the connection manager, as rooms above see it: the upper layer's types, with the Linux names and
 * meanings, and the calls and upcalls between them. What only the CM needs is in cm_internal.h.
 *
 * Threads: the calls below may come from any thread. Upcalls (iw_cm_id.event_handler) come from
 * the loop's thread, one at a time per device, with no lock held; they may call back into the CM.
 */
#ifndef UWARP_CM_H
#define UWARP_CM_H

#include <netinet/in.h>
#include <sys/socket.h>
#include "base/base.h"
#include "net/net.h"
#include "rnic/rnic.h"

struct irdma_cm_event;

enum iw_cm_event_type {
	IW_CM_EVENT_CONNECT_REQUEST = 1, /* passive: a peer asks; provider_data is the node to accept or reject */
	IW_CM_EVENT_CONNECT_REPLY,       /* active: done; status tells */
	IW_CM_EVENT_ESTABLISHED,         /* passive: accepted connection is up */
	IW_CM_EVENT_DISCONNECT,          /* the stream ended; status -ECONNRESET for a reset */
	IW_CM_EVENT_CLOSE,               /* last event of a cm_id, exactly once */
};

/* Why a connection did not come up, or ended: finer than an errno. First cause seen wins. */
enum cm_cause {
	CM_CAUSE_NONE,
	CM_CAUSE_REFUSED,        /* RST to our SYN */
	CM_CAUSE_REJECTED,       /* MPA reply with R */
	CM_CAUSE_NO_SYNACK,      /* nobody answers our SYN */
	CM_CAUSE_NO_MPA_REPLY,   /* TCP is up, the MPA reply did not come */
	CM_CAUSE_NO_MPA_REQUEST, /* passive */
	CM_CAUSE_NOT_ACKED,      /* peer vanished in the middle of set-up */
	CM_CAUSE_RESET,          /* RST during set-up */
	CM_CAUSE_CLOSED,         /* FIN during set-up */
	CM_CAUSE_UNREACHABLE,    /* no route, host or network unreachable */
	CM_CAUSE_BAD_TCP,        /* malformed TCP options, bad acknowledgement */
	CM_CAUSE_MPA_KEY, CM_CAUSE_MPA_REVISION, CM_CAUSE_MPA_LENGTH, CM_CAUSE_MPA_FLAGS,
	CM_CAUSE_MPA_IRD,        /* insufficient IRD, RFC 6581 */
	CM_CAUSE_MPA_RTR,        /* no matching RTR, RFC 6581 */
	CM_CAUSE_MPA_PARTIAL,    /* part of the MPA reply came, and no more */
	CM_CAUSE_NO_RESOURCES,   /* ours: memory, buffers, address handles */
	CM_CAUSE_LOCAL,          /* ours: the upper layer or an interface that went down ended it */
	CM_CAUSES
};
const char *cm_cause_str(enum cm_cause c); /* a sentence for people */

/* What a cm_id wants, or offers. Zero-initialised fields are not defaults: use cm_mpa_opts_default. */
struct cm_mpa_opts {
	u8 rev;              /* MPA_REV_1 or MPA_REV_2: what a request says; a responder answers lower ones in kind */
	bool fallback_v1;    /* active: retry with revision 1 when the peer closes after a revision 2 request */
	bool p2p;            /* peer-to-peer model wanted (RFC 6581) */
	u8 rtr;              /* RDMAP_RTR_* offered (active) or acceptable (passive) */
	bool crc;
	bool markers;        /* we want to receive markers */
	u32 mpa_timeout_ms;  /* a peer that says nothing, per stage; 0: default */
	u32 syn_timeout_ms;  /* whole SYN stage; 0: default, as retries say */
};
extern const struct cm_mpa_opts cm_mpa_opts_default; /* rev 2, fall-back, p2p, all RTRs, CRC, no markers */

/* What was said and agreed; part of events, so that the upper layer can show it. */
struct cm_negotiated {
	enum cm_cause cause;
	u8 rev;                  /* in use */
	u8 peer_rev;             /* as the peer said, 0: it said nothing */
	u8 peer_flags;           /* MPA flags byte of the peer */
	bool p2p;
	u8 rtr_offered;          /* RDMAP_RTR_* in the request */
	u8 rtr;                  /* agreed kind, 0: none */
	bool crc;
	bool snd_markers, rcv_markers;
	u16 ird, ord;            /* ours in the end */
	u16 peer_ird, peer_ord;  /* MPA_V2_NOT_NEGOTIATED if not said */
	u16 mss;
	bool fell_back;          /* revision 2 was tried before */
	u32 syn_sent, mpa_sent;  /* transmissions of each, retransmissions included */
};

struct iw_cm_event {
	enum iw_cm_event_type event;
	int status;
	struct sockaddr_storage local_addr, remote_addr;
	const void *private_data;   /* valid during the upcall */
	void *provider_data;
	u8 ord, ird;                /* capped at 255 */
	u16 private_data_len;
	struct cm_negotiated neg;
	/*
	 * CONNECT_REQUEST: the handler sets this to the new cm_id that stands for the connection (its event_handler,
	 * provider_data = event's provider_data, device and addresses filled in). The CM takes add_ref() on it when the handler
	 * returns 0; a peer that resets before irdma_accept() is then told to it as DISCONNECT (-ECONNRESET) and CLOSE.
	 * After any request that was taken, exactly one of irdma_accept(), irdma_reject(), cm_abandon() must follow; the first two also
	 * after a CLOSE (they then return -ECONNRESET and release the node).
	 */
	struct iw_cm_id *child;
};

typedef int (*iw_cm_handler)(struct iw_cm_id *cm_id, struct iw_cm_event *event);

struct iw_cm_id {
	/* The CM's own upcall. Non-zero from CONNECT_REQUEST: the CM rejects the request itself. */
	iw_cm_handler event_handler;
	void *context;
	struct irdma_device *device;
	struct sockaddr_storage local_addr, remote_addr;
	struct sockaddr_storage m_local_addr, m_remote_addr;
	void *provider_data;        /* the CM's: listener or node */
	void (*add_ref)(struct iw_cm_id *);
	void (*rem_ref)(struct iw_cm_id *);
	u8 tos;
	bool tos_set;
	u8 prio;
	struct cm_mpa_opts mpa;
};

struct iw_cm_conn_param {
	const void *private_data;
	u16 private_data_len;
	u32 ord, ird;
	u32 qpn;
};

/* Of each core; read with cm_get_stats(). */
struct cm_stats {
	u64 nodes_created, nodes_destroyed;
	u64 listens_created, listens_destroyed;
	u64 accepts, rejects;
	u64 connects;               /* irdma_connect calls that got as far as a SYN */
	u64 established_active, established_passive;
	u64 connect_errs, passive_errs;
	u64 retransmits, backlog_drops, half_open_evicted, silent_evicted, refused_evicted, loopbacks;
	u64 cookies_sent, cookies_accepted, cookies_bad; /* SYN cookies */
	u64 challenge_acks, bad_segments, mpa_fallbacks;
	u64 nodes_now, listeners_now, half_open_now; /* levels */
};

/* Watch state changes, for ladders and invariant checks. Called with the CM lock held: look, do not call. */
struct cm_trace {
	void (*state)(void *ctx, const struct irdma_cm_node *node, const struct pkt_tuple *t, const char *from, const char *to, u64 now_ns);
	void *ctx;
};

/* Create and destroy the CM of @iwdev; @rdma_ver IRDMA_GEN_1 (whole frames) or IRDMA_GEN_2. 0, -EINVAL, -ENOMEM. */
int irdma_setup_cm_core(struct irdma_device *iwdev, u8 rdma_ver);
void irdma_cleanup_cm_core(struct irdma_cm_core *core);

int irdma_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int irdma_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int irdma_reject(struct iw_cm_id *cm_id, const void *pdata, u8 pdata_len);
int irdma_create_listen(struct iw_cm_id *cm_id, int backlog);
int irdma_destroy_listen(struct iw_cm_id *cm_id);
/* The upper layer gives up a cm_id whose connection is not established yet, or whose QP is gone: no event comes after this. */
void cm_abandon(struct iw_cm_id *cm_id);
/*
 * The upper layer ends an established connection: in order (FIN, and a close timer that moves the QP to error if the peer does not
 * follow), or with @abort by RST. DISCONNECT and CLOSE come as ever. Upper layers use this and not rnic_qp_modify().
 * 0, -ENOTCONN.
 */
int cm_disconnect(struct iw_cm_id *cm_id, bool abort);

/* An address came or went, or the interface did (@ipaddr NULL). @netdev: the (VLAN) interface concerned. */
void irdma_if_notify(struct irdma_device *iwdev, const struct net_iface *netdev, u32 *ipaddr, bool ipv4, bool ifup);

void cm_get_stats(struct irdma_device *iwdev, struct cm_stats *out);
void cm_set_trace(struct irdma_device *iwdev, const struct cm_trace *trace); /* NULL: off; before traffic */

/* Recount references, lists, levels and kept frames; for simulations, in the loop's thread. False: @why says what is wrong. */
bool cm_audit(struct irdma_device *iwdev, char *why, size_t len);

/* sockaddr <-> host-order words */
bool cm_addr_from_sockaddr(const struct sockaddr_storage *ss, bool *ipv4, u32 addr[4], u16 *port); /* false: another family */
void cm_addr_to_sockaddr(bool ipv4, const u32 addr[4], u16 port, struct sockaddr_storage *ss);

#endif
