/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: verbs objects. Each begins with the structure that the program sees and adds what stands behind it in the NIC.
 *
 * Life. An object counts itself in what it is made from (a context, a domain, a channel); who is counted cannot be destroyed: EBUSY. A
 * context that is closed with objects left goes with the last of them. Events: a queue's descriptor is an eventfd whose value is the number
 * of events in the queue; what was delivered and not acknowledged keeps the object's destroyer waiting.
 */
#ifndef UWARP_VERBS_INTERNAL_H
#define UWARP_VERBS_INTERNAL_H

#include <sys/queue.h>
#include "shim/shim_internal.h"

/* An asynchronous event in the queue of a context. */
struct shim_event {
	TAILQ_ENTRY(shim_event) entry;
	struct shim_source *source;
	enum ibv_event_type type;
	u32 types;                 /* a source's own: a bit per type; 0: not queued */
};

/* What asynchronous events are about; under the context's ev_lock. */
struct shim_source {
	void *object;              /* NULL: the port or the device */
	u32 delivered;             /* events that the program has, to be acknowledged */
	struct shim_event own;     /* when there is no memory for one: the same type twice is told once then */
};

/* What cmd_fd stands for: an open device, shared by the contexts that were imported from it. */
struct shim_file {
	u32 refs;
	u64 dev, ino;              /* of cmd_fd: how a duplicate of it is recognised */
	pthread_mutex_t lock;
	LIST_HEAD(, shim_pd) pds;  /* to be imported */
	LIST_HEAD(, shim_mr) mrs;
};

struct shim_ctx {
	struct verbs_context v;
	LIST_ENTRY(shim_ctx) entry;
	struct shim_device *dev;
	struct irdma_device *iwdev; /* with a reference */
	struct shim_file *file;
	u32 refs;                   /* the program's, and one for each object */
	bool closed;
	LIST_HEAD(, shim_channel) channels;
	LIST_HEAD(, shim_qp) qps;
	pthread_mutex_t ev_lock;    /* leaf */
	TAILQ_HEAD(, shim_event) events;
	struct shim_source async;   /* the port and the device */
};

struct shim_td {
	struct ibv_td td;
	u32 users;                  /* parent domains */
};

struct shim_pd {
	struct ibv_pd pd;
	LIST_ENTRY(shim_pd) entry;  /* of its file; originals only */
	struct rnic_pd *rnic;
	struct shim_pd *of;         /* parent domain: what it is made from; imported: the original */
	struct shim_td *td;
	bool imported, parent;
	u32 users;                  /* imported: the program is one until it gives it up, and the last one frees it */
};

struct shim_mr {
	struct ibv_mr mr;
	LIST_ENTRY(shim_mr) entry;
	struct rnic_mr *rnic;
	struct shim_mr *of;         /* imported: the original */
	u64 iova;
	int access;
	u32 users;                  /* imports */
};

struct shim_mw {
	struct ibv_mw mw;
	struct rnic_mw *rnic;
};

struct shim_channel {
	struct ibv_comp_channel ch;
	LIST_ENTRY(shim_channel) entry;
	pthread_mutex_t lock;       /* leaf */
	TAILQ_HEAD(, shim_cq) ready;
};

struct shim_cq {
	struct ibv_cq_ex ex;        /* its front is a struct ibv_cq */
	struct rnic_cq *rnic;
	struct shim_pd *domain;     /* parent domain it was made in, or NULL */
	TAILQ_ENTRY(shim_cq) ready; /* in its channel while pending */
	u32 pending;                /* events in the channel's queue */
	u32 comp_delivered;         /* channel's lock */
	struct shim_source async;
	bool single_threaded;
	pthread_mutex_t poll_lock;  /* from start_poll to end_poll */
	struct rnic_cqe now;        /* what read_*() read */
};

struct shim_srq {
	struct ibv_srq srq;
	struct rnic_srq *rnic;
	struct shim_source async;
};

struct shim_wr;                 /* verbs_wr.c */

struct shim_qp {
	struct ibv_qp_ex ex;        /* its front is a struct ibv_qp */
	LIST_ENTRY(shim_qp) entry;
	struct irdma_qp *rnic;
	struct ibv_qp_cap cap;
	int sq_sig_all;
	enum ibv_qp_state state;    /* INIT or RTR, as the program set it; counts while the NIC's is IDLE; atomic */
	int access;                 /* atomic */
	bool extended;              /* made with send_ops_flags */
	struct shim_wr *wr;
	struct shim_source async;
};

static inline struct shim_ctx *to_ctx(struct ibv_context *c) { return container_of(c, struct shim_ctx, v.context); }
static inline struct shim_device *to_device(struct ibv_device *d) { return container_of(d, struct shim_device, ibdev); }
static inline struct shim_pd *to_pd(struct ibv_pd *pd) { return container_of(pd, struct shim_pd, pd); }
static inline struct shim_mr *to_mr(struct ibv_mr *mr) { return container_of(mr, struct shim_mr, mr); }
static inline struct shim_mw *to_mw(struct ibv_mw *mw) { return container_of(mw, struct shim_mw, mw); }
static inline struct shim_channel *to_channel(struct ibv_comp_channel *ch) { return container_of(ch, struct shim_channel, ch); }
static inline struct shim_cq *to_cq_ex(struct ibv_cq_ex *cq) { return container_of(cq, struct shim_cq, ex); }
static inline struct shim_cq *to_cq(struct ibv_cq *cq) { return (struct shim_cq *)cq; }
static inline struct shim_srq *to_srq(struct ibv_srq *srq) { return container_of(srq, struct shim_srq, srq); }
static inline struct shim_qp *to_qp(struct ibv_qp *qp) { return container_of(qp, struct shim_qp, ex.qp_base); }
static inline struct shim_qp *to_qp_ex(struct ibv_qp_ex *qp) { return container_of(qp, struct shim_qp, ex); }

/* The ways verbs fail: NULL with errno, -1 with errno; @err is a negative errno. */
static inline void *shim_null(int err)
{
	errno = -err;
	return NULL;
}

static inline int shim_minus_one(int err)
{
	errno = -err;
	return -1;
}

static inline void users_inc(u32 *n) { __atomic_fetch_add(n, 1, __ATOMIC_RELAXED); }
static inline u32 users_dec(u32 *n) { return __atomic_sub_fetch(n, 1, __ATOMIC_ACQ_REL); }
static inline u32 users_now(const u32 *n) { return __atomic_load_n(n, __ATOMIC_ACQUIRE); }

/* ---- verbs_device.c ---- */
/* Told by core.c of the context's NICs (iwcm_watch_devices). */
void shim_device_changed(void *arg, struct irdma_device *iwdev, bool added);
/* Its interface came up or went down. */
void shim_device_port(u32 ifindex, bool up);
void shim_devices_lock(void);   /* for fork */
void shim_devices_unlock(void);

/* ---- verbs_context.c ---- */
extern pthread_mutex_t shim_ctxs_lock; /* list of contexts, of their channels and QPs; outside ev_lock and channels' locks */
LIST_HEAD(shim_ctx_list, shim_ctx);
extern struct shim_ctx_list shim_ctxs;
void shim_ctx_get(struct shim_ctx *ctx);
void shim_ctx_put(struct shim_ctx *ctx);
/* A number that no other object of this process has. */
u32 shim_new_handle(void);

/* ---- verbs_event.c ---- */
/* An eventfd that counts; descriptor or negative errno. */
int shim_evfd_open(u64 count);
void shim_evfd_post(int fd);
/* Take one, waiting as the descriptor's flags say; 0 or negative errno. */
int shim_evfd_take(int fd);
/* Take one if there is one. */
bool shim_evfd_drop(int fd);
/* In a forked child: @fd becomes one of its own, flags as they were. */
void shim_evfd_renew(int fd, u64 count);
/* Queue an event about @src, whose .object is set. Leaf locks only. */
void shim_event_post(struct shim_ctx *ctx, enum ibv_event_type type, struct shim_source *src);
/* To all contexts of a device. */
void shim_event_device(const struct shim_device *dev, enum ibv_event_type type);
/* What @src stands for goes: its events leave the queue. NULL: all events. */
void shim_event_purge(struct shim_ctx *ctx, const struct shim_source *src);
/* Wait until the @completed events of an object, protected by @mutex, are as many as were @delivered. */
void shim_wait_acks(pthread_mutex_t *mutex, pthread_cond_t *cond, const u32 *completed, u32 delivered);
void shim_verbs_fork_prepare(void);
void shim_verbs_fork_done(void);

/* ---- verbs_query.c ---- */
int shim_query_port(struct ibv_context *context, u8 port_num, struct ibv_port_attr *attr, size_t len);
int shim_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t len);
int shim_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
enum ibv_mtu shim_mtu(u32 bytes); /* largest that fits */

/* ---- verbs_pd.c ---- */
/* Whoever is made in a domain is a user of it. */
void shim_pd_get(struct ibv_pd *pd);
void shim_pd_put(struct ibv_pd *pd);
struct ibv_td *shim_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int shim_dealloc_td(struct ibv_td *td);
struct ibv_pd *shim_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr);

/* ---- verbs_mr.c ---- */
struct ibv_mw *shim_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int shim_dealloc_mw(struct ibv_mw *mw);
int shim_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
extern const struct rnic_bind_ops shim_bind_ops;

/* ---- verbs_cq.c, verbs_cq_ex.c ---- */
int shim_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int shim_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *shim_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
void shim_cq_ex_setup(struct shim_cq *cq, u64 wc_flags);

/* ---- verbs_srq.c ---- */
struct ibv_srq *shim_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int shim_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- verbs_qp.c, verbs_modify.c, verbs_wr.c ---- */
struct ibv_qp *shim_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int shim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int shim_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* As verbs has it: the NIC's state, or, before a connection, what the program set. */
enum ibv_qp_state shim_qp_state(const struct shim_qp *qp, enum rnic_qp_state state);
/* Make the ibv_wr_*() calls of @ops (IBV_QP_EX_WITH_*) work; 0, -EOPNOTSUPP, -ENOMEM. */
int shim_wr_setup(struct shim_qp *qp, u64 ops);
void shim_wr_free(struct shim_qp *qp);

/* ---- verbs_absent.c ---- */
int shim_close_xrcd(struct ibv_xrcd *xrcd);
void *shim_absent_null(void);
int shim_absent_int(void);

/* Exported, but in no public header of libibverbs. */
struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;
struct ib_user_path_rec;
struct ibv_sa_path_rec;
enum shim_gid_type { SHIM_GID_IB_ROCE_V1, SHIM_GID_ROCE_V2 };
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int ibv_query_gid_type(struct ibv_context *context, u8 port_num, unsigned int index, enum shim_gid_type *type);
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

#endif
