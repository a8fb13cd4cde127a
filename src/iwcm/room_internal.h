/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwcm: what only this room sees. Theory of operation: iwcm_id.c (ids), iwcm_ctx.c (contexts, the NIC thread).
 *
 * Locks, outermost first:
 *   ctx->fork.gate held shared by calls and by the NIC thread's turns (they nest), alone by fork()
 *   id->call       one call on an id at a time, for the whole call. Never taken by an upcall.
 *   ctx->dev_lock  the set of devices, and which ids are bound or listen on them (children). Never taken by an upcall.
 *   the CM's core lock, then those of rnic, port, net
 *   ctx->lock      a leaf, for a few instructions: ids' states, the event queue. Upcalls take this one alone.
 * So no irdma_* or rnic_* call is made with a lock held that an upcall takes.
 */
#ifndef UWARP_IWCM_ROOM_INTERNAL_H
#define UWARP_IWCM_ROOM_INTERNAL_H

#include <assert.h>
#include <errno.h>
#include "iwcm/iwcm_nic.h"

#pragma GCC visibility push(hidden)

#define IWCM_EVENTS (IWCM_EVENT_DEVICE_REMOVED + 1)
#define IWCM_PORT_BUCKETS 256u

/* What a user's id is, and what may happen to it. iwcm_id_set_state() is the one writer. */
enum iwcm_id_state {
	IWCM_ID_IDLE,         /* made: bind, resolve */
	IWCM_ID_BOUND,        /* has a local port: resolve, listen; its device may go */
	IWCM_ID_RESOLVED,     /* knows its device and both addresses: connect; its device may go */
	IWCM_ID_LISTENING,    /* requests come up; only destroy ends it, or its device going (unless it is a wildcard) */
	IWCM_ID_CONNECTING,   /* irdma_connect was called: its reply comes up; abort */
	IWCM_ID_REQUEST,      /* made for a request: accept, reject */
	IWCM_ID_ACCEPTING,    /* irdma_accept was called: ESTABLISHED comes up; abort */
	IWCM_ID_ESTABLISHED,  /* the NIC owns the stream: disconnect, abort; DISCONNECT comes up */
	IWCM_ID_CLOSING,      /* disconnect or abort was called: DISCONNECT comes up */
	IWCM_ID_DISCONNECTED, /* DISCONNECT came up, CLOSE follows */
	IWCM_ID_CLOSED,       /* over, CLOSED is the last event: destroy */
	IWCM_ID_FAILED,       /* never came up, or its device went; the event that said so is the last: destroy */
	IWCM_ID_DESTROYED,    /* the user has no right to it any more; memory stays while the CM has references */
	IWCM_ID_STATES
};
const char *iwcm_id_state_str(enum iwcm_id_state s);

/* A place in the event queue. Each id has one for each type of event, so that none is lost for want of memory. */
struct iwcm_queued {
	TAILQ_ENTRY(iwcm_queued) entry;
	int status;
	u8 cause;            /* enum cm_cause */
	u8 type;             /* its index in id->ev[], too */
	bool queued;
};
TAILQ_HEAD(iwcm_queue, iwcm_queued);

union iwcm_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* An address and port in the house's own form. */
struct iwcm_end {
	bool ipv4;
	u32 addr[4];
	u16 port;
	u32 scope_id;
};

/* A NIC. References: the context's list, and each id or child that uses it. Goes when it is removed and nobody holds it. */
struct iwcm_dev {
	TAILQ_ENTRY(iwcm_dev) entry;   /* ctx->devs */
	struct iwcm_ctx *ctx;
	struct irdma_device *iwdev;
	u32 ifindex;
	u32 refs;                      /* atomic */
	bool removed;                  /* atomic; set with dev_lock and ctx->lock held */
	struct port_tap tap;
	struct work_struct reap;
};

/* A bound or listening id's presence on one device: its port reservation and its iw_cm_id that listens. Under dev_lock. */
struct iwcm_child {
	struct iw_cm_id cm;
	LIST_ENTRY(iwcm_child) entry;  /* id->children */
	struct iwcm_id *id;            /* with a reference */
	struct iwcm_dev *dev;          /* with a reference */
	struct iwcm_end at;            /* what is reserved */
	u32 refs;                      /* atomic: id->children, and the CM's */
	bool listening;
};

struct iwcm_id {
	struct iw_cm_id cm;            /* of the connection */
	struct iwcm_ctx *ctx;
	void *user;                    /* atomic */
	u32 refs;                      /* atomic: the user's, the CM's, children's, calls' and deliveries' */
	pthread_mutex_t call;
	/* id->call */
	struct iwcm_options opt;
	int backlog;
	bool destroyed;                /* as the state says, but without ctx->lock */

	/* ctx->dev_lock */
	LIST_ENTRY(iwcm_id) bound_entry; /* ctx->bound[port] */
	LIST_HEAD(, iwcm_child) children;
	bool bound, wildcard;
	struct iwcm_end src;

	/* ctx->lock */
	enum iwcm_id_state state;
	TAILQ_ENTRY(iwcm_id) entry;    /* ctx->ids, until destroyed */
	struct iwcm_dev *dev;          /* with a reference, until CLOSED, FAILED or destroyed; NULL for a wildcard */
	struct irdma_qp *qp;           /* from connect or accept until CLOSED, FAILED or destroyed: ours to destroy, unless it was... */
	bool qp_given;                 /* ...given by iwcm_set_qp(): then one reference; set from that call on, .qp too */
	union iwcm_addr local, remote;
	struct iwcm_queued ev[IWCM_EVENTS];
	struct iwcm_info info;
	bool gone;                     /* FAILED because its device went */
	bool orphan;                   /* request that nobody fetched, of a listener that is destroyed: no event of it any more */
	bool peer_gone;                /* a request's, before it was answered */
	int end_status;                /* of a request whose peer gave up */
	u8 *pdata;                     /* the peer's; goes up with the next event that may carry it */
	u16 pdata_len;
	bool pdata_ready;
	struct iwcm_id *listener;      /* CONNECT_REQUEST not fetched yet: who listens; else NULL */
	LIST_ENTRY(iwcm_id) untaken_entry;
	LIST_HEAD(iwcm_id_list, iwcm_id) untaken; /* listener: requests not fetched yet */
};

/* What fork() needs: iwcm_fork.c. */
struct iwcm_fork {
	pthread_rwlock_t gate;
	pthread_mutex_t lock;          /* resume, adopt */
	bool asleep;                   /* atomic: forked, and no NIC thread yet */
	bool dormant;                  /* sockets of before the fork are put by */
	int owner_fd;                  /* pidfd of the process that has them; this one's own, made at its first fork, or -1 */
	pthread_t watcher;             /* waits for the owner to end... */
	int watch_fd, stop_fd;         /* ...or to be told that it need not; -1: there is none */
	void (*notify)(void *arg);     /* atomic */
	void *notify_arg;
};

struct iwcm_ctx {
	struct loop *loop;
	struct net *net;
	struct port_host *host;        /* NULL on a wire */
	struct port_wire *wire;
	u8 rdma_ver;
	char *names;                   /* interfaces wanted, ",a,b,"; NULL: all */
	struct net_watcher watcher;

	pthread_mutex_t dev_lock;
	TAILQ_HEAD(, iwcm_dev) devs;
	struct iwcm_id_list bound[IWCM_PORT_BUCKETS]; /* by port */
	struct iwcm_stats past;        /* of devices that are gone */
	void (*dev_watch)(void *arg, struct irdma_device *iwdev, bool added);
	void *dev_watch_arg;
	bool devs_missing;             /* atomic: a NIC, or a listener on one, could not be made for want of memory or descriptors: retried */
	u64 retry_ns;                  /* the NIC thread's own: not before */
	u32 live_devs;                 /* atomic: listed, or removed and still held */

	pthread_mutex_t lock;
	TAILQ_HEAD(, iwcm_id) ids;
	u32 live_ids;                  /* atomic: memory not freed yet */
	struct iwcm_queue queue;
	u32 waiters, to_wake;          /* threads in iwcm_get_event() */
	u32 seq;                       /* futex: counts events while there are waiters */
	int event_fd;                  /* made when first asked for, else -1 */
	void (*handler)(void *arg, const struct iwcm_event *ev);
	void (*handler_done)(void *arg);
	void *handler_arg;
	pthread_t deliverer;           /* thread that calls the handler */
	bool deliver_queued;           /* it will look at the queue */
	bool deliver_rest;             /* the NIC thread's own: it has stopped in the middle */
	struct iwcm_id *now_id, *now_listener; /* whose event the handler has */
	pthread_cond_t delivered;

	struct workq wq;
	struct work_struct deliver_work;

	/* the NIC thread: host only */
	struct loop own_loop;
	pthread_t thread;
	int wake_fd;
	u64 sleep_until_ns;            /* atomic; 0: awake */
	bool stop;                     /* atomic */
	struct iwcm_fork fork;

	struct port_capture *capture;
	void (*frame)(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns);
	void *frame_arg;
	struct cm_trace trace;
};

/* ---- iwcm_ctx.c ---- */
/* Before a call into the CM or the NIC: the loop's time, which only its own thread reads otherwise, and the host's network. */
struct net *iwcm_enter(struct iwcm_ctx *ctx);
void iwcm_leave(struct net *prev);

/* ---- iwcm_thread.c ---- */
int iwcm_thread_start(struct iwcm_ctx *ctx);
void iwcm_thread_stop(struct iwcm_ctx *ctx);

int iwcm_thread_create(pthread_t *t, void *(*fn)(void *arg), void *arg); /* with all signals blocked; 0 or -EAGAIN */

/* ---- iwcm_fork.c ---- */
void iwcm_fork_init(struct iwcm_ctx *ctx);
void iwcm_fork_destroy(struct iwcm_ctx *ctx);
void iwcm_fork_unwatch(struct iwcm_ctx *ctx);
static inline bool iwcm_asleep(const struct iwcm_ctx *ctx) { return unlikely(__atomic_load_n(&ctx->fork.asleep, __ATOMIC_ACQUIRE)); }
static inline void iwcm_gate_enter(struct iwcm_ctx *ctx)
{
	if (ctx->host)
		pthread_rwlock_rdlock(&ctx->fork.gate);
}
static inline void iwcm_gate_leave(struct iwcm_ctx *ctx)
{
	if (ctx->host)
		pthread_rwlock_unlock(&ctx->fork.gate);
}

/* ---- iwcm_dev.c ---- */
int iwcm_dev_add_all(struct iwcm_ctx *ctx);
/* What could not be made when it came: try again. */
void iwcm_dev_retry(struct iwcm_ctx *ctx);
/* @err means that something is used up, and may be there again later: then there will be iwcm_dev_retry(). */
void iwcm_dev_note_missing(struct iwcm_ctx *ctx, int err);
void iwcm_dev_remove_all(struct iwcm_ctx *ctx);
void iwcm_net_event(struct net_watcher *w, const struct net_event *e);
struct iwcm_dev *iwcm_dev_for_iface(struct iwcm_ctx *ctx, const struct net_iface *iface); /* dev_lock held; no reference */
int iwcm_dev_for_addr(struct iwcm_ctx *ctx, const struct iwcm_end *e, struct iwcm_dev **out); /* with a reference */
void iwcm_dev_get(struct iwcm_dev *dev);
void iwcm_dev_put(struct iwcm_dev *dev); /* NULL is ignored */
void iwcm_dev_observe(struct iwcm_dev *dev);
bool iwcm_dev_gone(const struct iwcm_dev *dev);

/* ---- iwcm_event.c ---- */
static inline void iwcm_lock(struct iwcm_ctx *ctx) { pthread_mutex_lock(&ctx->lock); }
void iwcm_unlock(struct iwcm_ctx *ctx);           /* and wakes who waits for what was posted */
void iwcm_post(struct iwcm_id *id, enum iwcm_event_type type, int status, enum cm_cause cause); /* ctx->lock held */
void iwcm_purge(struct iwcm_id *id);                                                            /* ctx->lock held */
void iwcm_deliver_work(struct work_struct *w); /* handler mode: call it for what is queued */
bool iwcm_deliver_rest(struct iwcm_ctx *ctx);
void iwcm_wait_delivered(struct iwcm_id *id); /* until no other thread is in the handler for @id */

/* ---- iwcm_id.c ---- */
void iwcm_id_set_state(struct iwcm_id *id, enum iwcm_id_state next); /* ctx->lock held */
struct iwcm_id *iwcm_id_alloc(struct iwcm_ctx *ctx, void *user, enum iwcm_id_state state);
void iwcm_id_link(struct iwcm_id *id);                               /* ctx->lock held */
void iwcm_id_get(struct iwcm_id *id);
void iwcm_id_put(struct iwcm_id *id);
/* Begin a call: serialised, with a reference; -EINVAL if the id is destroyed. */
int iwcm_call_begin(struct iwcm_id *id);
int iwcm_call_end(struct iwcm_id *id, int ret);                      /* returns @ret */
/* What a connection held, taken out of the id under ctx->lock, to be given back without it. */
struct iwcm_held {
	struct irdma_qp *qp;
	bool qp_given;
	struct iwcm_dev *dev;
	bool request;        /* the CM still keeps the request for an answer */
};
struct iwcm_held iwcm_id_take(struct iwcm_id *id);                   /* ctx->lock held */
void iwcm_held_put(struct iwcm_held *h);
void iwcm_held_put_qp(struct iwcm_held *h);

/* ---- iwcm_addr.c ---- */
int iwcm_end_parse(const struct sockaddr *sa, struct iwcm_end *out); /* 0, -EINVAL, -EAFNOSUPPORT */
void iwcm_end_format(const struct iwcm_end *e, union iwcm_addr *out);
void iwcm_addr_store(const union iwcm_addr *a, struct sockaddr_storage *out);
void iwcm_addr_load(const struct sockaddr_storage *ss, union iwcm_addr *out);
void iwcm_unbind(struct iwcm_id *id);                                /* id->call held */

/* ---- iwcm_listen.c: all with dev_lock held ---- */
int iwcm_child_add(struct iwcm_id *id, struct iwcm_dev *dev, struct iwcm_end *at); /* at->port 0: one is chosen */
int iwcm_child_listen(struct iwcm_child *c);
void iwcm_child_del(struct iwcm_child *c);
void iwcm_children_join(struct iwcm_dev *dev);  /* wildcards onto a new device */
void iwcm_children_part(struct iwcm_dev *dev);  /* everybody off a device that goes */
void iwcm_children_del(struct iwcm_id *id);

/* ---- iwcm_conn.c ---- */
int iwcm_conn_upcall(struct iw_cm_id *cm_id, struct iw_cm_event *e);
void iwcm_conn_abandon(struct iwcm_id *id, enum iwcm_id_state prev, struct iwcm_held *h);
void iwcm_info_set(struct iwcm_id *id, const struct cm_negotiated *n);

#pragma GCC visibility pop

#endif
