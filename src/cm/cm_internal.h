/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm: what only the connection manager sees. Theory of operation: docs/architecture.md, cm_core.c.
 *
 * Locks: one per core (struct irdma_cm_core.lock), for nodes, listeners, table, timers, counters. Unless its
 * comment says "any context", a function below is called with it held and never drops it. Upcalls are made from the
 * ordered event queue with no lock. Ports never call up from a down call, so port calls are made under the lock.
 */
#ifndef UWARP_CM_INTERNAL_H
#define UWARP_CM_INTERNAL_H

#include <errno.h>
#include "cm/cm.h"

#define CM_WIN_SCALE_MAX 14         /* RFC 7323 2.3 */
#define CM_MSS_DEFAULT_V4 536       /* RFC 9293 3.7.1 */
#define CM_MSS_DEFAULT_V6 1220
#define CM_RCV_WND 65535u           /* the most an unscaled window says; what a node buffers is bounded by CM_RX_MAX */
#define CM_RCV_WSCALE 2
#define CM_RX_MAX 8192u             /* bytes a node keeps: MPA frame and what follows it before offload */
#define CM_RTO_INIT_MS 1000u        /* RFC 6298 2.1 */
#define CM_RTO_MAX_MS 60000u
#define CM_DELAYED_ACK_MS 40u      /* RFC 1122 4.2.3.2: less than 500 */
#define CM_SYN_RETRIES 6u           /* as Linux tcp_syn_retries; 123 s in all, as the RTO stops at 60 s */
#define CM_SYNACK_RETRIES 4u
#define CM_DATA_RETRIES 7u
#define CM_MPA_TIMEOUT_MS 10000u    /* a peer that says nothing in the MPA stage */
#define CM_CLOSE_TIMEOUT_MS 5000u   /* FIN_WAIT2, CLOSING and a QP that should be gone */
#define CM_TIME_WAIT_MS 60000u      /* as Linux; only where no time-wait record could be had */
#define CM_SILENT_MIN_MS 1000u      /* ... and what it has when the backlog is full */
#define CM_CHALLENGES_PER_S 10u     /* RFC 5961 7, per connection */
#define CM_BACKLOG_DEFAULT 128
#define CM_SILENT_MAX 256u          /* host port: silent connections of a listener, each of which is a descriptor */
#define CM_REFUSED_MAX 1024u        /* passive connections that were refused and wait for FINs, per device; host port: CM_SILENT_MAX */
#define CM_HALF_OPEN_MAX 1024u      /* nodes in SYN_RCVD per device: beyond, SYNs get cookies */
#define CM_COOKIE_SLOT_MS 64000u    /* a cookie is good for one to two of them: longer than an initiator waits */

/* Each state says what may happen in it. cm_node_set_state() is the one writer. */
enum irdma_cm_node_state {
	IRDMA_CM_STATE_UNKNOWN,
	IRDMA_CM_STATE_INITED,               /* made; nothing sent */
	IRDMA_CM_STATE_LISTENING,            /* passive: made for a SYN that is being checked */
	IRDMA_CM_STATE_SYN_RCVD,             /* SYN+ACK sent, retransmitted until its ACK */
	IRDMA_CM_STATE_SYN_SENT,             /* SYN sent, retransmitted */
	IRDMA_CM_STATE_ONE_SIDE_ESTABLISHED, /* active: SYN+ACK came, ACK and MPA request on their way out */
	IRDMA_CM_STATE_ESTABLISHED,          /* passive: handshake done, waiting for the MPA request */
	IRDMA_CM_STATE_ACCEPTING,            /* passive: irdma_accept is at work */
	IRDMA_CM_STATE_MPAREQ_SENT,          /* active: request out, waiting for the reply */
	IRDMA_CM_STATE_MPAREQ_RCVD,          /* passive: CONNECT_REQUEST is the upper layer's to answer */
	IRDMA_CM_STATE_MPAREJ_RCVD,          /* active: rejected; upcall due, FINs under way */
	IRDMA_CM_STATE_OFFLOADED,            /* the NIC owns the stream */
	IRDMA_CM_STATE_FIN_WAIT1,
	IRDMA_CM_STATE_FIN_WAIT2,
	IRDMA_CM_STATE_CLOSE_WAIT,
	IRDMA_CM_STATE_TIME_WAIT,
	IRDMA_CM_STATE_LAST_ACK,
	IRDMA_CM_STATE_CLOSING,
	IRDMA_CM_STATE_LISTENER_DESTROYED,   /* passive: its listener went; the upper layer still has to answer */
	IRDMA_CM_STATE_CLOSED,
	IRDMA_CM_STATES
};
const char *cm_node_state_str(enum irdma_cm_node_state s);

enum irdma_cm_listener_state {
	IRDMA_CM_LISTENER_PASSIVE_STATE = 1,
	IRDMA_CM_LISTENER_ACTIVE_STATE = 2,
	IRDMA_CM_LISTENER_EITHER_STATE = 3, /* a mask */
};

enum irdma_cm_event_type {
	IRDMA_CM_EVENT_UNKNOWN,
	IRDMA_CM_EVENT_ESTABLISHED,   /* passive: irdma_accept done, ESTABLISHED goes up */
	IRDMA_CM_EVENT_MPA_REQ,
	IRDMA_CM_EVENT_MPA_CONNECT,   /* intermediate names */
	IRDMA_CM_EVENT_MPA_ACCEPT,
	IRDMA_CM_EVENT_MPA_REJECT,
	IRDMA_CM_EVENT_MPA_ESTABLISHED,
	IRDMA_CM_EVENT_CONNECTED,
	IRDMA_CM_EVENT_RESET,
	IRDMA_CM_EVENT_ABORTED,
	IRDMA_CM_EVENTS
};

enum irdma_timer_type { IRDMA_TIMER_TYPE_SEND, IRDMA_TIMER_TYPE_CLOSE };

struct irdma_kmem_info { void *addr; u32 size; };
struct irdma_mpa_priv_info { const void *addr; u32 size; };
#define SET_ACK 0x1
#define SET_SYN 0x2
#define SET_FIN 0x4
#define SET_RST 0x8

#define MPA_KEY_REQUEST 1 /* "key" argument of the builders */
#define MPA_KEY_REPLY 2

struct irdma_cm_info {
	struct iw_cm_id *cm_id;
	u32 loc_addr[4], rem_addr[4];
	u16 loc_port, rem_port;
	u16 vlan_id;
	u8 tos, user_pri;
	int backlog;
	bool ipv4;
};

/* RFC 9293 3.3.1 */
struct irdma_cm_tcp_context {
	u32 iss, irs;
	u32 loc_seq_num;      /* SND.NXT */
	u32 loc_ack_num;      /* what we acknowledged last */
	u32 rem_ack_num;      /* SND.UNA */
	u32 rcv_nxt;
	u32 rcv_wnd;          /* bytes, unscaled */
	u32 snd_wnd;          /* bytes, scaled */
	u32 max_snd_wnd;
	u16 mss;
	u8 snd_wscale, rcv_wscale;
	bool wscale_ok;       /* both SYNs carried the option */
	bool peer_offered_wscale;
};

/* The frame kept for retransmission. */
struct irdma_timer_entry {
	struct irdma_puda_buf *sqbuf; /* NULL: none kept */
	u64 timetosend_ns;
	u32 retranscount;             /* left */
	u32 rto_ms;
	bool close_when_complete;     /* its acknowledgement is the end of the node */
};

struct irdma_cm_listener {
	struct hash_node hn;
	LIST_ENTRY(irdma_cm_listener) list;         /* core->listen_list: parents */
	LIST_ENTRY(irdma_cm_listener) child_entry;
	LIST_HEAD(, irdma_cm_listener) children;    /* wildcard: one per local address */
	struct irdma_cm_listener *parent;
	struct irdma_cm_core *cm_core;
	struct irdma_device *iwdev;
	struct iw_cm_id *cm_id;
	u32 refcnt;
	u32 loc_addr[4];
	u16 loc_port, vlan_id;
	bool ipv4, wildcard;
	u8 tos, user_pri;
	int backlog;
	enum irdma_cm_listener_state state;
	struct port_filter *filter;                 /* children and exact listeners */
	bool apbvt_held, hashed;
	u32 pending;                                /* nodes from SYN until accept, reject or end; on the parent */
	u32 waiting_accept;                         /* of these: CONNECT_REQUEST is up */
	TAILQ_HEAD(, irdma_cm_node) nodes;          /* not offloaded, oldest first; on the parent */
	TAILQ_HEAD(irdma_half_list, irdma_cm_node) half_open; /* of these in SYN_RCVD, oldest first: what a flood evicts */
	u32 half_open_now;                          /* length of half_open */
	u64 cookies_until_ns;                       /* SYN cookies of this listener may come back until then */
	struct irdma_half_list silent;              /* ... and ESTABLISHED without a whole request, oldest first */
	u32 silent_now;
	bool kick_wanted;                           /* host port was told there is no room */
	bool dead;                                  /* last reference is gone; freed by free_work in the loop's thread */
	struct work_struct free_work;
};

struct irdma_disconn_work {
	struct work_struct work;
	struct irdma_qp *iwqp;
};

struct irdma_cm_node {
	struct hash_node hn;
	u32 refcount;
	u16 loc_port, rem_port, vlan_id; /* up to rem_addr: all that a look-up reads, in one cache line */
	u32 loc_addr[4], rem_addr[4];
	enum irdma_cm_node_state state;
	bool ipv4, active;           /* active: we sent the SYN */
	bool hashed, apbvt_set;
	bool accelerated;            /* the NIC has the stream */
	bool on_listener, on_half_open, on_silent, on_refused;
	bool established_up;         /* CONNECT_REPLY/ESTABLISHED was delivered */
	bool abandoned;              /* upper layer destroyed the cm_id: no more upcalls */
	bool request_up;             /* CONNECT_REQUEST was delivered and taken: the upper layer holds a reference */
	bool peer_fin;               /* FIN received */
	bool neigh_pending;          /* active: link address not known yet, the SYN waits for it */
	u8 loc_mac[6], rem_mac[6];
	u8 tos, user_pri;
	enum cm_cause cause;         /* first one wins: cm_node_set_cause() */
	int error;                   /* errno that goes with it */

	struct irdma_device *iwdev;
	struct irdma_cm_core *cm_core;
	struct irdma_cm_listener *listener; /* holds a reference; passive, until accepted/closed */
	struct iw_cm_id *cm_id;      /* holds cm_id->add_ref */
	struct irdma_qp *iwqp;       /* holds a reference while offloaded/connecting */
	struct irdma_sc_ah ah;
	struct port_filter *quad;    /* active: filter for the 4-tuple */

	struct irdma_cm_tcp_context tcp_cntxt;
	struct irdma_timer_entry send_entry;
	u64 close_at_ns;             /* close timer, 0: not armed */
	u64 stage_at_ns;             /* time limit of the present stage, 0: none */
	u64 ack_at_ns;               /* delayed ACK, 0: none is due */
	u64 silent_since_ns;
	struct limit challenge;      /* CM_CHALLENGES_PER_S */
	struct wheel_timer timer;    /* earliest of these deadlines */
	TAILQ_ENTRY(irdma_cm_node) timer_entry, reset_entry, teardown_entry; /* *_list_prep() lists */
	TAILQ_ENTRY(irdma_cm_node) listener_entry;
	TAILQ_ENTRY(irdma_cm_node) half_open_entry; /* of the one of half_open, silent, refused that it is on */
	LIST_ENTRY(irdma_cm_node) all_entry;        /* core->nodes */

	/* MPA */
	struct cm_mpa_opts mpa;
	u8 mpa_rev;                  /* what we speak now */
	u8 peer_rev, peer_flags;
	bool peer_v2_data;
	bool p2p;                    /* agreed */
	u8 rtr_offered, rtr;         /* RDMAP_RTR_* */
	bool mpa_reject;
	bool crc, snd_markers, rcv_markers;
	bool fell_back;
	u16 ird_size, ord_size;      /* ours */
	u16 peer_ird, peer_ord;
	u32 syn_sent, mpa_sent;
	u16 pdata_len;               /* the peer's private data */
	u8 *pdata;
	u16 tx_pdata_len;            /* ours */
	u8 *tx_pdata;                /* kept for a fall-back */
	u8 *rx_buf;                  /* MPA frame being assembled, then the stream bytes behind it */
	u32 rx_len, rx_size;
	u32 mpa_frame_len;           /* of rx_buf: complete start-up frame, 0: not complete */
	u8 *lsmm;                    /* MPA reply until it is on the wire */
	u32 lsmm_len;

	struct irdma_cm_event *spare; /* so that the news of a failure cannot fail for lack of memory */
	struct irdma_disconn_work disconn_work;
};
TAILQ_HEAD(irdma_node_list, irdma_cm_node);

struct irdma_cm_event {
	enum irdma_cm_event_type type;
	struct irdma_cm_info cm_info;
	struct irdma_cm_node *cm_node;
	struct work_struct event_work;
};

/* What a SYN cookie carries. */
struct cm_cookie {
	u16 mss;                        /* the smaller one of both ends */
	bool wscale_ok;                 /* the SYN had the option */
	u8 wscale;
};

/* Keys of the present time slot and of the one before: key[slot & 1]. */
struct cm_cookie_keys {
	u8 key[2][16];
	u32 slot;                       /* 0: none yet */
};

struct irdma_cm_core {
	struct mutex lock;
	struct irdma_device *iwdev;
	u8 rdma_ver;
	u8 isn_key[16];                 /* RFC 6528 */
	struct cm_cookie_keys cookies;
	u64 cookies_until_ns;           /* SYN cookies of any listener may come back until then */
	struct iw_cm_id *upcall_id;     /* an upcall for it ... */
	struct irdma_cm_node *upcall_node; /* ... and this node is running ... */
	pthread_t upcall_thread;        /* ... in this thread */
	struct cond upcall_done;
	struct hash_table nodes_ht;     /* 4-tuple + vlan */
	struct hash_table listeners_ht; /* address + port + vlan, any-address for wildcard parents */
	LIST_HEAD(, irdma_cm_listener) listen_list;
	LIST_HEAD(, irdma_cm_node) nodes;
	struct irdma_half_list refused; /* passive, refused, FINs under way; oldest first */
	u32 refused_now;
	struct wheel wheel;             /* ticks of one millisecond */
	struct timer_list tcp_timer;    /* armed for wheel_next() */
	u64 tcp_timer_at_ns;            /* what it is armed for, UINT64_MAX: not */
	struct timer_list filter_timer; /* filters of addresses that came when something was used up: again */
	struct workq event_wq;
	struct pool node_pool, event_pool;
	struct cm_stats stats;
	struct cm_trace trace;
	bool closing;
	struct irdma_puda_buf *(*form_cm_frame)(struct irdma_cm_node *, struct irdma_kmem_info *options,
						struct irdma_kmem_info *hdr, struct irdma_mpa_priv_info *pdata, u8 flags);
};

/* ---- helpers that are not of the 92 ---- */
void cm_filters_retry(struct timer_list *t);
void cm_node_set_state(struct irdma_cm_node *node, enum irdma_cm_node_state next);
void cm_node_set_cause(struct irdma_cm_node *node, enum cm_cause cause, int error);
void cm_node_hold(struct irdma_cm_node *node);
void cm_node_arm(struct irdma_cm_node *node);      /* re-file node->timer for the earliest of its deadlines */
void cm_node_stage(struct irdma_cm_node *node, u32 limit_ms); /* time limit from now; 0: none */
void cm_node_delay_ack(struct irdma_cm_node *node); /* of what was received */
void cm_node_leave_backlog(struct irdma_cm_node *node);
void cm_node_half_open(struct irdma_cm_node *node, bool on); /* SYN_RCVD */
void cm_node_silent(struct irdma_cm_node *node, bool on); /* ESTABLISHED, waiting for the request */
void cm_node_leave_listener(struct irdma_cm_node *node);
void cm_node_closing(struct irdma_cm_node *node);
void cm_node_release_id(struct irdma_cm_node *node);
void cm_listener_kick(struct irdma_cm_listener *listener);
void cm_listener_hurry(struct irdma_cm_listener *listener);
bool cm_listener_has_place(const struct irdma_cm_listener *listener);
void cm_node_unhash(struct irdma_cm_node *node);
void cm_node_untie(struct irdma_cm_node *node);    /* QP and cm_id go their own way */
void cm_node_end(struct irdma_cm_node *node);      /* CLOSED, timers off, and the life reference dropped */
void cm_disconn_queue(struct irdma_qp *iwqp);      /* irdma_cm_disconn() with the lock held */
/* Wait until no other thread is in an upcall for @cm_id or @node; drops the lock meanwhile. */
void cm_upcall_wait(struct irdma_cm_core *core, struct iw_cm_id *cm_id, struct irdma_cm_node *node);
void cm_send_rst(struct irdma_cm_node *node);      /* RST alone: the node stays as it is */
void cm_reset_hanging(struct irdma_cm_node *node); /* passive node that is not accepted yet: RST, and the upper layer is told if it knows of it */
void cm_node_init_tcp(struct irdma_cm_node *node);
void cm_tcp_init(struct irdma_cm_tcp_context *tcp, u16 own_mss); /* all but sequence numbers */
u16 cm_own_mss(const struct irdma_device *iwdev, bool ipv4);
bool cm_mpa_is_whole(const u8 *data, u32 len);
int cm_send_synack_once(struct irdma_cm_node *node);
void cm_node_use_cookie(struct irdma_cm_node *node, const struct pkt *syn); /* as initial sequence number; options taken over already */
bool cm_node_may_return(const struct irdma_cm_node *node); /* passive, not OFFLOADED: if it is forgotten, the peer's request makes it anew */
void cm_reset_stray(struct irdma_cm_core *core, const struct pkt *pkt); /* RST, as RFC 9293 3.10.7.1 says, unless it is one */
/* A segment that no node is for: the node that it is the first for, with a reference, or NULL when it is dealt with. */
struct irdma_cm_node *cm_stray_node(struct irdma_cm_core *core, const struct pkt *pkt);
/* A cookie for a SYN with these options, in the present time slot; and is what @ack acknowledges (less one) one of this or the last slot's? */
u32 cm_cookie_make(struct irdma_cm_core *core, const struct pkt *syn, u16 our_mss, const struct cm_cookie *c);
bool cm_cookie_check(struct irdma_cm_core *core, const struct pkt *ack, u16 our_mss, struct cm_cookie *out);
int cm_node_resolve(struct irdma_cm_node *node);
void cm_challenge_ack(struct irdma_cm_node *node); /* RFC 5961, rate limited */
void cm_ack_received(struct irdma_cm_node *node, const struct pkt *pkt);
u32 cm_rcv_room(const struct irdma_cm_node *node);
int cm_syn_attempt(struct irdma_cm_node *node);    /* resolve what is missing, then the SYN */
int cm_send_terminate(struct irdma_cm_node *node, u8 code); /* LLP/MPA error on a stream not offloaded, then FIN */
void cm_cap_ird_ord(struct irdma_cm_node *node);
void cm_node_tuple(const struct irdma_cm_node *node, struct pkt_tuple *t);
void cm_node_negotiated(const struct irdma_cm_node *node, struct cm_negotiated *out);
void cm_node_time_wait(struct irdma_cm_node *node); /* hand over to a record, or linger */
int cm_node_retry_v1(struct irdma_cm_node *node);
static inline u64 cm_now(const struct irdma_cm_core *core) { return loop_now(core->iwdev->loop); }
static inline void cm_lock(struct irdma_cm_core *core) { mutex_lock(&core->lock); }
static inline void cm_unlock(struct irdma_cm_core *core) { mutex_unlock(&core->lock); }

/* ---- addresses and event contents: cm_addr.c ---- */
void irdma_copy_ip_ntohl(u32 *dst, __be32 *src);
void irdma_copy_ip_htonl(__be32 *dst, u32 *src);
void irdma_get_addr_info(struct irdma_cm_node *cm_node, struct irdma_cm_info *cm_info);
void irdma_fill_sockaddr4(struct irdma_cm_node *cm_node, struct iw_cm_event *event);
void irdma_fill_sockaddr6(struct irdma_cm_node *cm_node, struct iw_cm_event *event);
void irdma_get_cmevent_info(struct irdma_cm_node *cm_node, struct iw_cm_id *cm_id, struct iw_cm_event *event);
void irdma_record_ird_ord(struct irdma_cm_node *cm_node, u32 conn_ird, u32 conn_ord);
bool irdma_ipv4_is_lpb(u32 loc_addr, u32 rem_addr);
bool irdma_ipv6_is_lpb(u32 *loc_addr, u32 *rem_addr);
u16 irdma_get_vlan_ipv4(u32 *addr);                              /* in net_current */
void irdma_get_vlan_mac_ipv6(u32 *addr, u16 *vlan_id, u8 *mac);  /* in net_current */

/* ---- upcalls and the event queue: cm_event.c ---- */
int irdma_send_cm_event(struct irdma_cm_node *cm_node, struct iw_cm_id *cm_id, enum iw_cm_event_type type, int status); /* no lock */
struct irdma_cm_event *irdma_create_event(struct irdma_cm_node *cm_node, enum irdma_cm_event_type type);
void irdma_cm_post_event(struct irdma_cm_event *event);
void irdma_cm_event_handler(struct work_struct *work);      /* no lock */
void irdma_cm_event_connected(struct irdma_cm_event *event); /* no lock */
void irdma_cm_event_reset(struct irdma_cm_event *event);     /* no lock */
void irdma_event_connect_error(struct irdma_cm_event *event); /* no lock */
void irdma_active_open_err(struct irdma_cm_node *cm_node, bool reset);
void irdma_passive_open_err(struct irdma_cm_node *cm_node, bool reset);

/* ---- frames: cm_frame.c ---- */
void irdma_free_sqbuf(struct irdma_sc_vsi *vsi, void *bufp); /* any context */
struct irdma_puda_buf *irdma_form_ah_cm_frame(struct irdma_cm_node *cm_node, struct irdma_kmem_info *options,
	struct irdma_kmem_info *hdr, struct irdma_mpa_priv_info *pdata, u8 flags);
struct irdma_puda_buf *irdma_form_uda_cm_frame(struct irdma_cm_node *cm_node, struct irdma_kmem_info *options,
	struct irdma_kmem_info *hdr, struct irdma_mpa_priv_info *pdata, u8 flags);
int irdma_send_syn(struct irdma_cm_node *cm_node, u32 sendack);
void irdma_send_ack(struct irdma_cm_node *cm_node);
int irdma_send_fin(struct irdma_cm_node *cm_node);
int irdma_send_reset(struct irdma_cm_node *cm_node);
int irdma_process_options(struct irdma_cm_node *cm_node, u8 *loc, u32 optionsize, u32 syn_pkt);
int irdma_handle_tcp_options(struct irdma_cm_node *cm_node, struct tcphdr *tcph, int optionsize, int passive);

/* ---- MPA: cm_mpa.c ---- */
void irdma_build_mpa_v1(struct irdma_cm_node *cm_node, void *start_addr, u8 mpa_key);
void irdma_build_mpa_v2(struct irdma_cm_node *cm_node, void *start_addr, u8 mpa_key);
int irdma_cm_build_mpa_frame(struct irdma_cm_node *cm_node, struct irdma_kmem_info *mem, u8 mpa_key);
int irdma_send_mpa_request(struct irdma_cm_node *cm_node);
int irdma_send_mpa_reject(struct irdma_cm_node *cm_node, const void *pdata, u8 plen);
int irdma_negotiate_mpa_v2_ird_ord(struct irdma_cm_node *cm_node, u8 *buf);
int irdma_parse_mpa(struct irdma_cm_node *cm_node, u8 *buf, u32 *type, u32 len);
void irdma_handle_rcv_mpa(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf);
#define IRDMA_MPA_REQUEST_ACCEPT 1 /* *type of irdma_parse_mpa() */
#define IRDMA_MPA_REQUEST_REJECT 2

/* ---- timers: cm_timer.c ---- */
int irdma_schedule_cm_timer(struct irdma_cm_node *cm_node, struct irdma_puda_buf *sqbuf, enum irdma_timer_type type,
			    int send_retrans, int close_when_complete);
void irdma_timer_list_prep(struct irdma_cm_core *cm_core, struct irdma_node_list *timer_list);
void irdma_cm_timer_tick(struct timer_list *t);                         /* no lock */
void irdma_free_retrans_entry(struct irdma_cm_node *cm_node);
void irdma_cleanup_retrans_entry(struct irdma_cm_node *cm_node);        /* no lock: takes it */
void irdma_retrans_expired(struct irdma_cm_node *cm_node);
void irdma_handle_close_entry(struct irdma_cm_node *cm_node, u32 rem_node);

/* ---- listeners: cm_listen.c ---- */
struct irdma_cm_listener *irdma_find_listener(struct irdma_cm_core *cm_core, u32 *dst_addr, bool ipv4, u16 dst_port,
					      u16 vlan_id, enum irdma_cm_listener_state listener_state);
struct irdma_cm_listener *irdma_make_listen_node(struct irdma_cm_core *cm_core, struct irdma_device *iwdev, struct irdma_cm_info *cm_info);
int irdma_cm_del_listen(struct irdma_cm_core *cm_core, struct irdma_cm_listener *listener, bool apbvt_del);
int irdma_dec_refcnt_listen(struct irdma_cm_core *cm_core, struct irdma_cm_listener *listener, int free_hanging_nodes, bool apbvt_del);
void irdma_reset_list_prep(struct irdma_cm_core *cm_core, struct irdma_cm_listener *listener, struct irdma_node_list *reset_list);
int irdma_add_mqh(struct irdma_device *iwdev, struct irdma_cm_info *cm_info, struct irdma_cm_listener *cm_listen_node);
int irdma_add_mqh_4(struct irdma_device *iwdev, struct irdma_cm_info *cm_info, struct irdma_cm_listener *cm_parent_listen_node);
int irdma_add_mqh_6(struct irdma_device *iwdev, struct irdma_cm_info *cm_info, struct irdma_cm_listener *cm_parent_listen_node);
int irdma_del_multiple_qhash(struct irdma_device *iwdev, struct irdma_cm_info *cm_info, struct irdma_cm_listener *cm_parent_listen_node);
void irdma_qhash_ctrl(struct irdma_device *iwdev, struct irdma_cm_listener *parent_listen_node, struct irdma_cm_info *nfo,
		      u32 *ipaddr, bool ipv4, bool ifup);
bool cm_listener_may_accept(struct irdma_device *iwdev, void *cookie); /* no lock; rnic_cm_ops.may_accept */

/* ---- nodes: cm_node.c, cm_neigh.c ---- */
struct irdma_cm_node *irdma_find_node(struct irdma_cm_core *cm_core, u16 rem_port, u32 *rem_addr, u16 loc_port, u32 *loc_addr, u16 vlan_id);
void irdma_add_hte_node(struct irdma_cm_core *cm_core, struct irdma_cm_node *cm_node);
struct irdma_cm_node *irdma_make_cm_node(struct irdma_cm_core *cm_core, struct irdma_device *iwdev, struct irdma_cm_info *cm_info,
					 struct irdma_cm_listener *listener);
int irdma_create_cm_node(struct irdma_cm_core *cm_core, struct irdma_device *iwdev, struct iw_cm_conn_param *conn_param,
			 struct irdma_cm_info *cm_info, struct irdma_cm_node **caller_cm_node);
void irdma_rem_ref_cm_node(struct irdma_cm_node *cm_node);
int irdma_cm_create_ah(struct irdma_cm_node *cm_node, bool wait);
void irdma_cm_free_ah(struct irdma_cm_node *cm_node);
int irdma_addr_resolve_neigh(struct irdma_device *iwdev, u32 src_ip, u32 dst_ip, int arpindex);
int irdma_get_dst_ipv6(const u32 *src_addr, const u32 *dst_addr, struct net_route *dst); /* in net_current */
int irdma_addr_resolve_neigh_ipv6(struct irdma_device *iwdev, u32 *src, u32 *dest, int arpindex);

/* ---- packets: cm_packet.c ---- */
void irdma_receive_ilq(struct irdma_sc_vsi *vsi, struct irdma_puda_buf *rbuf); /* no lock */
void irdma_process_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf);
void irdma_handle_syn_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf);
void irdma_handle_synack_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf);
int irdma_handle_ack_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf);
void irdma_handle_fin_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf);
void irdma_handle_rst_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf);
int irdma_check_syn(struct irdma_cm_node *cm_node, struct tcphdr *tcph);
int irdma_check_seq(struct irdma_cm_node *cm_node, struct tcphdr *tcph);

/* ---- offload, disconnect, API: cm_offload.c, cm_disconn.c, cm_api.c ---- */
void irdma_init_tcp_ctx(struct irdma_cm_node *cm_node, struct tcp_info_ho *tcp_info, struct irdma_qp *iwqp);
int irdma_cm_init_tsa_conn(struct irdma_qp *iwqp, struct irdma_cm_node *cm_node);
void irdma_cm_disconn(struct irdma_qp *iwqp);        /* no lock */
void irdma_disconnect_worker(struct work_struct *work); /* no lock */
void irdma_cm_disconn_true(struct irdma_qp *iwqp);   /* no lock */
void irdma_qp_disconnect(struct irdma_qp *iwqp);     /* no lock */
int irdma_cm_close(struct irdma_cm_node *cm_node);
void irdma_free_lsmm_rsrc(struct irdma_qp *iwqp);    /* no lock */
int irdma_cm_reject(struct irdma_cm_node *cm_node, const void *pdata, u8 plen);
void irdma_teardown_list_prep(struct irdma_cm_core *cm_core, struct irdma_node_list *teardown_list, u32 *ipaddr,
			      struct irdma_cm_info *nfo, bool disconnect_all);
void irdma_cm_teardown_connections(struct irdma_device *iwdev, u32 *ipaddr, struct irdma_cm_info *nfo, bool disconnect_all);

#endif
