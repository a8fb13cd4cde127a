/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* shim: the emulated rdma_cm device, among its own files. Theory of operation: cmdev.c. */
#ifndef UWARP_CMDEV_INTERNAL_H
#define UWARP_CMDEV_INTERNAL_H

#include <netinet/in.h> /* before the kernel's */
#include <rdma/rdma_user_cm.h>
#include <sys/queue.h>
#include "shim/shim_internal.h"

struct cmdev_id;

/* Events by the numbers of enum rdma_cm_event_type, whose header does not go together with the kernel's. */
enum cmdev_event_type {
	CMDEV_ADDR_RESOLVED_EV,
	CMDEV_ADDR_ERROR_EV,
	CMDEV_ROUTE_RESOLVED_EV,
	CMDEV_CONNECT_REQUEST_EV = 4,
	CMDEV_CONNECT_ERROR_EV = 6,
	CMDEV_UNREACHABLE_EV,
	CMDEV_REJECTED_EV,
	CMDEV_ESTABLISHED_EV,
	CMDEV_DISCONNECTED_EV,
	CMDEV_DEVICE_REMOVAL_EV,
};

/* An event on its way to the program. */
struct cmdev_event {
	TAILQ_ENTRY(cmdev_event) entry;
	struct cmdev_id *id;           /* whose it is, and who counts it */
	struct cmdev_id *child;        /* CONNECT_REQUEST: the new id, until the program has fetched it */
	struct rdma_ucm_event_resp resp;
};
TAILQ_HEAD(cmdev_queue, cmdev_event);
LIST_HEAD(cmdev_id_list, cmdev_id);

/* An open of the device. */
struct cmdev_file {
	LIST_ENTRY(cmdev_file) entry;
	int fd;                        /* eventfd: a token while there are events in the queue */
	bool token;                    /* it is there, or due, or in a reader's hand */
	bool due;                      /* in the list of those that are owed it */
	LIST_ENTRY(cmdev_file) due_entry;
	u32 posting;                   /* atomic: threads that have it on its way */
	pid_t pid;                     /* process it belongs to: a vforked child's is another */
	u32 refs;                      /* atomic: the descriptor's, and calls' */
	bool closed;                   /* atomic */
	bool nonblocking;              /* it was, when it was closed */
	bool listens;                  /* atomic: it has, or had, a listener */
	bool inherited;                /* from before fork(); not used by this process yet */
	u32 fork;                      /* which one: iwcm_fork_count() */
	int kept_fd;                   /* the eventfd of before fork(), or -1... */
	bool kept_live;                /* ...which has a token while there are events, too */
	struct cmdev_queue events;
	struct cmdev_id_list ids;
};

/* cmdev_id_set_state() is the one writer. */
enum cmdev_state {
	CMDEV_IDLE,           /* bind, resolve the address */
	CMDEV_BOUND,          /* listen, resolve */
	CMDEV_ADDR_QUERY,     /* the way to the peer is looked for: ADDR_RESOLVED or ADDR_ERROR comes */
	CMDEV_ADDR_RESOLVED,  /* resolve the route */
	CMDEV_ROUTE_RESOLVED, /* connect */
	CMDEV_LISTEN,         /* CONNECT_REQUEST comes */
	CMDEV_CONNECT,        /* ESTABLISHED, REJECTED, UNREACHABLE or CONNECT_ERROR comes */
	CMDEV_REQUEST,        /* made for a request: accept, reject */
	CMDEV_ACCEPTING,      /* accept is being called: what comes is put by until it has returned */
	CMDEV_ACCEPTED,       /* ESTABLISHED or CONNECT_ERROR comes */
	CMDEV_ESTABLISHED,    /* DISCONNECTED comes */
	CMDEV_ENDED,          /* nothing comes any more */
	CMDEV_STATES
};

struct cmdev_id {
	LIST_ENTRY(cmdev_id) entry;    /* file->ids */
	struct cmdev_file *file;       /* cmdev_lock; NULL when dying */
	u32 number;
	u64 uid;                       /* librdmacm's; 0: a request that was not accepted yet */
	u32 refs;                      /* the table's, and commands' that wait for @call */
	pthread_mutex_t call;          /* one command at a time, for the whole command; never taken by the handler */
	enum cmdev_state state;        /* cmdev_lock, with these: */
	bool dying;                    /* out of the table */
	bool gone;                     /* a request whose peer gave up */
	struct cmdev_event *request;   /* a request that the program has not fetched: it does not know this id yet */
	bool bound;
	bool listens;                  /* @cm does */
	bool afonly;
	bool no_port;                  /* resolved with port 0: good for finding the device only */
	u16 ps;
	u8 qp_type, tos;
	u32 events_reported;           /* to the program, CONNECT_REQUESTs included */
	struct iwcm_id *cm;            /* NULL: of the InfiniBand port space, which is only probed for */
	struct iwcm_id *cm4;           /* IPv4 side of an IPv6 wildcard, or NULL */
	struct cmdev_queue parked;     /* see CMDEV_ACCEPTING */
	struct cmdev_queue spare;      /* memory for events that will come */
	u32 spares;
};

/* ---- cmdev.c ---- */
/* One lock for files, ids and queues: a leaf but for channels' eventfds; never held when iwcm is called. */
extern pthread_mutex_t cmdev_lock;
/* The context, once there has been an id. */
extern struct iwcm_ctx *cmdev_ctx; /* atomic: each thread that makes an id says which it is */
static inline struct iwcm_ctx *cmdev_context(void) { return __atomic_load_n(&cmdev_ctx, __ATOMIC_ACQUIRE); }

/* ---- cmdev_mem.c ---- */
/* Copy to the program's memory at @to; -EFAULT. */
int cmdev_put(u64 to, const void *from, size_t len);
/* Copy from the program's memory. */
int cmdev_get(void *to, u64 from, size_t len);

/* ---- cmdev_id.c ---- */
void cmdev_id_set_state(struct cmdev_id *id, enum cmdev_state next);           /* locked */
struct cmdev_id *cmdev_id_new(void);                                           /* one reference, in no file and no table */
int cmdev_id_add(struct cmdev_file *f, struct cmdev_id *id);                   /* locked; into the table; 0, -ENOMEM */
int cmdev_id_find(struct cmdev_file *f, u32 number, struct cmdev_id **out);    /* locked; -ENOENT (also a request not fetched), -EINVAL (another file's) */
/* Begin and end a command about the id @number of @f: it stays, and has no other command at the same time. */
int cmdev_id_begin(struct cmdev_file *f, u32 number, struct cmdev_id **out);   /* as cmdev_id_find() */
int cmdev_id_end(struct cmdev_id *id, int ret);                                /* returns @ret */
/* A step under the lock, if the id is in one of the states of the mask @from (BIT(CMDEV_...)); -EINVAL. */
int cmdev_id_step(struct cmdev_id *id, u32 from, enum cmdev_state to);
/* Is it in one of the states of @mask? Events move it at any time. */
bool cmdev_id_in(struct cmdev_id *id, u32 mask);
void cmdev_id_move(struct cmdev_id *id, struct cmdev_file *to);                /* locked; without its events */
void cmdev_id_free(struct cmdev_id *id);                                       /* in no table, iwcm has none for it */
/* Locked. Out of the table and its file, its events out of the queue; it and the ids of requests nobody fetched go to @dead. */
void cmdev_id_detach(struct cmdev_id *id, struct cmdev_id_list *dead);
void cmdev_ids_destroy(struct cmdev_id_list *dead);                            /* not locked; waits for commands and the handler */
void cmdev_ids_fork_child(void);

/* ---- cmdev_event.c ---- */
void cmdev_event_queue(struct cmdev_file *f, struct cmdev_event *e);           /* locked; wakes nobody yet */
void cmdev_event_unqueue(struct cmdev_file *f, struct cmdev_event *e);         /* locked */
void cmdev_event_drop(struct cmdev_file *f, struct cmdev_event *e);            /* locked; and frees it: a request is one that was fetched, or none any more */
void cmdev_unlock(struct cmdev_file *f);                                       /* and wakes @f's readers, if there is cause; NULL: nobody's */
void cmdev_event_close(struct cmdev_file *f);                                  /* locked: the file gets no token any more */
void cmdev_event_settle(struct cmdev_file *f);                                 /* no thread has a token of @f on its way any more */
struct cmdev_event *cmdev_event_new(struct cmdev_id *id, enum cmdev_event_type type, int status); /* NULL: no memory */
int cmdev_event_reserve(struct cmdev_id *id, u32 n);                           /* not locked; memory for so many that iwcm will post; -ENOMEM */
int cmdev_event_get(struct cmdev_file *f, u64 response, u32 out);              /* GET_EVENT */
void cmdev_event_move(struct cmdev_id *id, struct cmdev_file *to);             /* locked */
void cmdev_events_free(struct cmdev_queue *q);

/* ---- cmdev_cmd.c, cmdev_conn.c, cmdev_query.c: the commands. 0 or a negative errno ---- */
struct cmdev_call {
	struct cmdev_file *file;
	u32 in, out;                   /* bytes of the command and room for the response, as the header says */
	union {
		struct rdma_ucm_create_id create;
		struct rdma_ucm_destroy_id destroy;
		struct rdma_ucm_bind_ip bind_ip;
		struct rdma_ucm_bind bind;
		struct rdma_ucm_resolve_ip resolve_ip;
		struct rdma_ucm_resolve_addr resolve_addr;
		struct rdma_ucm_resolve_route resolve_route;
		struct rdma_ucm_query query;
		struct rdma_ucm_connect connect;
		struct rdma_ucm_listen listen;
		struct rdma_ucm_accept accept;
		struct rdma_ucm_reject reject;
		struct rdma_ucm_disconnect disconnect;
		struct rdma_ucm_init_qp_attr init_qp_attr;
		struct rdma_ucm_notify notify;
		struct rdma_ucm_join_ip_mcast join_ip;
		struct rdma_ucm_join_mcast join;
		struct rdma_ucm_get_event get_event;
		struct rdma_ucm_set_option set_option;
		struct rdma_ucm_migrate_id migrate;
	} cmd;                         /* zeroed behind @in */
};
/* The file behind another descriptor, with a reference, or NULL. Locked. */
struct cmdev_file *cmdev_file_get(int fd);
void cmdev_file_put(struct cmdev_file *f);

int cmdev_create_id(struct cmdev_call *c);
int cmdev_destroy_id(struct cmdev_call *c);
int cmdev_migrate_id(struct cmdev_call *c);
int cmdev_bind_ip(struct cmdev_call *c);
int cmdev_bind(struct cmdev_call *c);
int cmdev_resolve_ip(struct cmdev_call *c);
int cmdev_resolve_addr(struct cmdev_call *c);
int cmdev_resolve_route(struct cmdev_call *c);
int cmdev_set_option(struct cmdev_call *c);
int cmdev_listen(struct cmdev_call *c);
int cmdev_connect(struct cmdev_call *c);
int cmdev_accept(struct cmdev_call *c);
int cmdev_reject(struct cmdev_call *c);
int cmdev_disconnect(struct cmdev_call *c);
int cmdev_notify(struct cmdev_call *c);
int cmdev_join_ip_mcast(struct cmdev_call *c);
int cmdev_join_mcast(struct cmdev_call *c);
int cmdev_leave_mcast(struct cmdev_call *c);
int cmdev_query(struct cmdev_call *c);
int cmdev_query_route(struct cmdev_call *c);
int cmdev_init_qp_attr(struct cmdev_call *c);

#endif
