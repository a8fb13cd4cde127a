/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host, inside: the objects of the host port and what its files call of each other. The theory
 * of operation is on top of host.c.
 *
 * Locks, outermost first: port_host.lock, the taps' lock (port_taps_lock), the loop's lock. A
 * function whose comment says "locked" is called with port_host.lock held and returns with it held;
 * the few that give it up meanwhile say so.
 */
#ifndef UWARP_PORT_HOST_INTERNAL_H
#define UWARP_PORT_HOST_INTERNAL_H

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "port/port.h"

#define HOST_READ_MAX 2048u          /* payload of one segment for the CM */
#define HOST_REMAINDER_MAX 4096u     /* bytes of the CM's that wait for room in the socket */
#define HOST_WAITING_MAX 16u         /* connections per listener that the CM has not answered yet */
#define HOST_BURST_MAX 16u           /* connections accepted per readiness report */
#define HOST_EVENTS_MAX 64           /* epoll events per batch */
#define HOST_RUN_MAX 256u            /* connections served per batch */
#define HOST_DRAINS_MAX 256u         /* draining sockets: a quarter of the usual limit of 1024 descriptors */
#define HOST_BACKLOG_MIN 128         /* of the kernel's accept queue: a full one costs the peer a second */

/* The CM may be unable to take a segment for a moment: its pool of ILQ buffers is bounded. */
#define HOST_RETRY_MS 10u
/* A SYN without an answer is offered again, as a peer would send it again, at doubling intervals... */
#define HOST_OFFER_MS 200u
/* ...and after this long the peer, which thinks that it is connected, must learn that it is not. */
#define HOST_OFFER_GIVE_UP_MS 10000u
/* Out of descriptors or memory in accept(): somebody has to give some back first. */
#define HOST_ACCEPT_BACKOFF_MS 100u
/* A peer hears a Terminate and stops: some round trips, and Linux's first three retransmissions (200, 400, 800 ms), but not for ever. */
#define HOST_DRAIN_MS 2000u

/* What is reported of a connection's socket. */
#define HOST_EPOLL_STREAM (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)

/* What synthesized segments of the peer say: 64 KiB, which no CM exchange comes near. */
#define HOST_WSCALE 7u
#define HOST_WINDOW 65535u
#define HOST_WINDOW_SCALED 512u

enum host_kind {
	HOST_LISTENER,
	HOST_CONN,
};

/* What epoll and the timer wheel refer to. Freed when dead and nobody is in a callback for it. */
struct host_obj {
	enum host_kind kind;
	bool dead;                /* its owner gave it up; nothing is delivered any more */
	u32 refs;                 /* callbacks in progress with the lock given up */
	u32 slot, generation;     /* what epoll knows it by */
	int put_by;               /* its socket, while that is another process's; else -1 */
	u32 put_by_at;            /* in which fork */
	struct wheel_timer timer;
};

struct host_slot {
	struct host_obj *obj;     /* NULL: free, and .next is the next free one */
	u32 generation;           /* of the next or present occupant */
	u32 next;
};

struct host_port {
	struct port port;
	struct port_host *host;
	u16 loopback_mss[2];      /* of IPv6 and IPv4, once known; the same for all connections on loopback */
	LIST_ENTRY(host_port) entry;
};

/* A local port number that a NIC holds. */
struct host_reservation {
	struct hash_node node;    /* in port_host.reservations, by struct host_resv_key */
	struct host_port *port;
	u32 addr[4];
	u16 number;
	bool ipv4, shared;
	u32 count;
	int fd;                   /* bound, never listening; -1: a connection has adopted it */
};

/* Why a listener is not watched. */
#define HOST_PAUSE_UP 0x1u       /* may_accept() said no; until filter_kick() */
#define HOST_PAUSE_WAITING 0x2u  /* HOST_WAITING_MAX reached; until the CM answers one */
#define HOST_PAUSE_ERROR 0x4u    /* accept() failed; until the timer */
#define HOST_PAUSE_YIELD 0x8u    /* another process may want the connection more; until the timer, or the user asks (host_fork.c) */

struct host_conn;
TAILQ_HEAD(host_conn_list, host_conn);

/* struct port_filter of this port. One for a 4-tuple has no socket: the connection's own is its filter. */
struct host_listener {
	struct host_obj obj;
	struct host_port *port;
	struct port_filter_attr attr;
	int fd;
	u32 paused;               /* HOST_PAUSE_* */
	u32 kicks;                /* filter_kick() calls, to see one that comes during may_accept() */
	u32 burst;                /* connections to accept per report */
	u64 last_batch;           /* batch in which it was ready last */
	u32 waiting;              /* connections in .conns */
	struct host_conn_list conns;
	bool shared;              /* it is older than a fork() */
	bool yielded;             /* it has waited for another process, and its time is up */
};

/* What the processes of a family have in common: in memory that fork() does not copy. */
struct host_family {
	u32 adopters;             /* atomic: children that serve their parent's listeners beside it, and whose user has asked for what comes from them */
};

/*
 * A connection, as the CM (struct port_ah) or, after offload, the QP (struct port_stream) sees it.
 */
enum host_state {
	HOST_NEW,         /* address handle without a socket; takes the CM's SYN */
	HOST_CONNECTING,  /* connect() in progress; a SYN of the CM's is a retransmission */
	HOST_CONNECTED,   /* connected, SYN+ACK on its way to the CM; takes its ACK */
	HOST_PENDING,     /* accepted, SYN on its way to the CM; no address handle yet */
	HOST_ADOPTED,     /* accepted, has an address handle; takes the CM's SYN+ACK */
	HOST_OPEN,        /* both sides synchronised: data, FIN, ACK in both directions */
	HOST_STREAM,      /* offloaded: the CM's segments end, the QP's reads and writes begin */
	HOST_DRAIN,       /* the QP has closed it; what the peer still sends is thrown away (host_drain.c) */
	HOST_DEAD,        /* no socket any more; the CM's segments are answered with RST unless it reset */
	HOST_STATES
};

/* What is to be delivered to the CM. */
#define HOST_DO_SYN 0x01u
#define HOST_DO_SYNACK 0x02u
#define HOST_DO_ACK 0x04u
#define HOST_DO_RST 0x08u

struct host_conn {
	struct host_obj obj;
	struct host_port *port;
	int fd;
	enum host_state state;      /* written by host_conn_set_state() alone */
	struct pkt_tuple tuple;
	u8 tos, prio;

	struct hash_node node;      /* in port_host.conns while .hashed */
	TAILQ_ENTRY(host_conn) ready;
	TAILQ_ENTRY(host_conn) waiting; /* in listener->conns while .listener, in port_host.drains while HOST_DRAIN */
	struct host_listener *listener; /* until the CM has answered the SYN */
	u64 offered_ms, offer_interval_ms;

	u8 todo;                    /* HOST_DO_* */
	bool hashed, queued;
	bool readable;              /* the socket may hold bytes, or a FIN */
	bool rdhup;                 /* its FIN has arrived, perhaps behind such bytes */
	bool error_seen;            /* epoll reported an error */
	bool eof;                   /* the FIN has been read... */
	bool fin_delivered;         /* ...and delivered */
	bool fin_wanted;            /* shut down once the remainder is out */
	bool shut;                  /* our FIN is sent */
	bool cm_reset;              /* the CM sent RST: nothing more to tell it */
	bool wscale_on;             /* both SYNs carried window scale */
	bool noted;                 /* its number is in port_host.connected */
	bool muted;                 /* both ends are in this process: the other end's taps show it */

	/* The CM's side. Sequence numbers in [cm_nxt - remainder_len, cm_nxt) wait for the socket. */
	u32 cm_nxt;
	u32 cm_ack, cm_window;      /* window in bytes */
	u8 cm_wscale;
	u8 *remainder;
	u32 remainder_len;

	/* The peer's side, made up. */
	u32 peer_iss, peer_nxt;
	u16 mss;
	/*
	 * Bytes read and not acknowledged by the CM yet, from sequence number held_seq on, of which those
	 * before peer_nxt have been delivered. After offload: bytes that stream_recv() returns first.
	 */
	u8 *held;
	u32 held_seq, held_len;

	/* The stream. */
	const struct port_stream_up *up;
	void *ctx;
	u32 events;                 /* to be raised from the ready queue */
	u32 raised;                 /* of those that are raised once: raised already */
	bool aborted;
	int error;                  /* cause of the end, negative errno; atomic: also written on the data path */
	u32 left;                   /* of .held, not yet read; atomic for the fast path */

	/* Numbering for taps after offload; under the taps' lock. */
	u32 tap_out, tap_in;            /* next sequence numbers */
	u32 tap_out_acked, tap_in_acked; /* as shown */
	bool tap_fin_in, tap_end;
	u16 tap_ip_id;
};

struct port_host {
	struct loop *loop;
	struct net *net;
	int epfd;
	pthread_mutex_t lock;

	u32 forks;                  /* that put sockets by; host_fork.c */
	struct host_family *family; /* NULL until the first one */
	u64 forked_ms;              /* when this process did last */
	bool adopted;               /* this process serves its parent's sockets... */
	pid_t parent;
	bool adopter;               /* ...and is one of .family's */
	u32 given;                  /* connections from shared listeners for users that wait */
	u32 waiters;                /* atomic: threads of the user that wait for events of a listener */
	bool asked;                 /* atomic: one ever did, in this process */
	struct host_slot *slots;
	u32 nslots, free_slot;      /* slot 0 is never used: it ends the list of free ones */

	struct host_conn_list ready;
	bool draining;              /* the loop's thread will look at .ready before it leaves */
	struct workq workq;         /* wakes the loop's thread, or keeps it from sleeping */
	struct work_struct work;

	struct host_conn_list drains; /* oldest first */
	u32 ndrains;

	struct hash_table conns;        /* by struct host_tuple_key: pending ones; with taps also active ones */
	struct hash_table reservations;
	u32 first_number, numbers, turn; /* local port numbers to choose from, and the next one's turn */
	u32 free_tries;             /* how many to look at for one that nobody has */
	u8 connected[UINT16_MAX / 8 + 1]; /* bitmap of local port numbers of connections made from here */
	u8 reserved[UINT16_MAX + 1]; /* how many reservations each number has */
	LIST_HEAD(, host_port) ports;

	struct wheel wheel;         /* ticks of 1 ms */
	struct timer_list timer;    /* for the wheel's next deadline */
	u64 timer_ms;               /* that deadline; UINT64_MAX: none */

	u64 batch;
	struct log_limit accept_log;

	u8 segment[PKT_TCP_LEN + PKT_TCP_OPT_MAX + HOST_READ_MAX]; /* being delivered; loop thread */
};

/* A segment to be made up around what happened on the socket. */
struct host_segment {
	u32 seq, ack;
	u8 flags;
	u16 window;
	u16 mss;                    /* 0: no option */
	s32 wscale;                 /* -1: no option */
	const u8 *data;
	u32 len;
};

static inline struct host_port *host_port_of(struct port *p) { return container_of(p, struct host_port, port); }
static inline struct host_conn *host_conn_of_ah(struct port_ah *ah) { return (struct host_conn *)(void *)ah; }
static inline struct host_conn *host_conn_of_stream(struct port_stream *s) { return (struct host_conn *)(void *)s; }
static inline struct host_listener *host_listener_of(struct port_filter *f) { return (struct host_listener *)(void *)f; }
static inline u64 host_now_ms(const struct port_host *h) { return loop_now(h->loop) / NSEC_PER_MSEC; }

/* host.c */
extern const struct port_ops host_ops;
int host_obj_add(struct port_host *h, struct host_obj *o, enum host_kind kind); /* locked; 0, -ENOMEM */
void host_obj_kill(struct port_host *h, struct host_obj *o);                    /* locked; may free it */
void host_obj_get(struct host_obj *o);                                          /* locked */
void host_obj_put(struct port_host *h, struct host_obj *o);                     /* locked; may free it */
int host_watch(struct port_host *h, const struct host_obj *o, int fd, u32 events); /* 0 or a negative errno */
int host_rewatch(struct port_host *h, const struct host_obj *o, int fd, u32 events);
void host_arm(struct port_host *h, struct host_obj *o, u64 delay_ms);           /* locked */
void host_disarm(struct port_host *h, struct host_obj *o);                      /* locked */
void host_queue(struct port_host *h, struct host_conn *c);                      /* locked */
void host_unqueue(struct port_host *h, struct host_conn *c);                    /* locked */

/* host_socket.c */
extern bool host_sockets_shared; /* some process has copies of our sockets: to close them ends nothing */
socklen_t host_sockaddr(struct host_port *p, bool ipv4, const u32 *addr, u16 number, struct sockaddr_storage *ss);
void host_from_sockaddr(const struct sockaddr_storage *ss, u32 *addr, u16 *number);
int host_bound_socket(struct host_port *p, bool ipv4, const u32 *addr, u16 number); /* descriptor or negative errno */
void host_close_fd(int fd, bool abort);
int host_socket_error(int fd);                                /* SO_ERROR as negative errno, or 0 */
int host_adopt_reservation(struct host_port *p, bool ipv4, const u32 *addr, u16 number); /* locked; -1: none */
void host_note_number(struct port_host *h, u16 number, bool used); /* locked */
void host_drop_reservations(struct host_port *p);             /* locked */
void host_spare_reservations(struct port_host *h);            /* locked; in a forked child */
int host_reserve(struct port *p, bool ipv4, const u32 *addr, u16 *number, bool shared);
void host_release(struct port *p, bool ipv4, const u32 *addr, u16 number);

/* host_listen.c */
int host_filter_add(struct port *p, const struct port_filter_attr *a, struct port_filter **out);
void host_filter_del(struct port *p, struct port_filter *f);
void host_filter_kick(struct port *p, struct port_filter *f);
void host_listener_pause(struct port_host *h, struct host_listener *l, u32 reason, bool on); /* locked */
void host_listener_event(struct port_host *h, struct host_listener *l); /* locked; gives the lock up */
void host_listener_timer(struct port_host *h, struct host_listener *l); /* locked */
void host_listener_leave(struct port_host *h, struct host_conn *c);     /* locked: @c waits no longer */

/* host_fork.c */
void host_fork_destroy(struct port_host *h);
bool host_fork_yields(struct port_host *h, struct host_listener *l);    /* locked: leave what waits to other processes, for now */
void host_fork_took(struct port_host *h, const struct host_listener *l); /* locked: a connection was accepted */

/* host_conn.c: what the CM does */
struct host_conn *host_conn_new(struct host_port *p, const struct pkt_tuple *t, enum host_state s); /* locked */
void host_conn_set_state(struct host_conn *c, enum host_state s);               /* locked */
void host_conn_hash(struct port_host *h, struct host_conn *c);                  /* locked */
void host_conn_unhash(struct port_host *h, struct host_conn *c);                /* locked */
void host_conn_fail(struct port_host *h, struct host_conn *c, int error);       /* locked: RST to the CM */
void host_conn_kill(struct port_host *h, struct host_conn *c, bool abort);      /* locked; may free it */
void host_conn_free(struct host_conn *c);
int host_conn_flush(struct port_host *h, struct host_conn *c);                  /* locked; 0, -EAGAIN, error */
int host_ah_create(struct port *p, const struct port_ah_attr *a, struct port_ah **out);
void host_ah_destroy(struct port *p, struct port_ah *ah);
int host_tx_ah(struct port *p, struct port_ah *ah, const void *seg, u32 len);
struct host_conn *host_find_pending(struct port_host *h, const struct pkt_tuple *t); /* locked */
bool host_is_own_peer(struct port_host *h, const struct pkt_tuple *t);          /* locked */

/* host_deliver.c: what the CM is told */
void host_conn_run(struct port_host *h, struct host_conn *c);                   /* locked; gives the lock up */
void host_conn_event(struct port_host *h, struct host_conn *c, u32 epoll_events); /* locked; not for streams */
void host_conn_timer(struct port_host *h, struct host_conn *c);                 /* locked */
bool host_conn_has_work(const struct host_conn *c);                             /* locked */

/* host_stream.c */
int host_offload(struct port *p, struct port_ah *ah, const struct tcp_info_ho *info,
		 const struct port_stream_up *up, void *ctx, struct port_stream **out);
ssize_t host_stream_send(struct port_stream *s, const struct iovec *iov, int n);
ssize_t host_stream_recv(struct port_stream *s, const struct iovec *iov, int n);
int host_stream_shutdown(struct port_stream *s);
void host_stream_abort(struct port_stream *s);
void host_stream_close(struct port_stream *s);
int host_stream_error(struct port_stream *s);
void host_stream_quiet(struct port_stream *s, bool on);
void host_stream_event(struct port_host *h, struct host_conn *c, u32 epoll_events); /* locked; gives the lock up */
void host_stream_run(struct port_host *h, struct host_conn *c);                     /* locked; gives the lock up */
void host_stream_timer(struct port_host *h, struct host_conn *c);                   /* locked */

/* host_drain.c */
void host_stream_drain(struct port_stream *s, const void *rest, u32 len);
void host_drain_event(struct port_host *h, struct host_conn *c, u32 epoll_events);  /* locked; may free it */
void host_drain_timer(struct port_host *h, struct host_conn *c);                    /* locked; frees it */
void host_drain_unplug(struct host_port *p);                                        /* locked */
u32 host_drain_watch(const struct host_conn *c);                                    /* locked */

/* host_tap.c: what taps are shown. All but the first do nothing unless the connection is tapped. */
bool host_tapped(const struct host_conn *c);
u32 host_segment_build(const struct host_conn *c, bool out, const struct host_segment *s, u8 *buf);
void host_tap_segment(struct host_conn *c, bool out, const void *seg, u32 len);
void host_tap_made_up(struct host_conn *c, bool out, u8 flags, u32 seq, u32 ack);
void host_tap_offload(struct host_conn *c);
ssize_t host_tap_sendmsg(struct host_conn *c, const struct msghdr *m);
ssize_t host_tap_recvmsg(struct host_conn *c, struct msghdr *m);
void host_tap_sent(struct host_conn *c, const void *data, u32 len);
void host_tap_stream_end(struct host_conn *c, bool out, u8 flag);

/* port.c: for ports whose threads are many */
void port_taps_lock(void);
void port_taps_unlock(void);
bool port_is_tapped(const struct port *p);
void port_taps_show(struct port *p, bool out, const struct pkt *pkt, u64 now_ns); /* taps' lock held */

#endif
