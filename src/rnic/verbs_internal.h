/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rnic: protection domains, memory, completion queues and receive queues, as the QPs' code sees them.
 *
 * Locks, from the outside in. The first is taken with no QP's lock held, all others may be taken with one held; none is held while anything
 * is called but what stands under it here:
 *   rnic_cq.users_lock     who uses the CQ; held while its QPs' streams are read for a program that polls (rnic_qp_poll_cq)
 *   irdma_qp.lock          (rnic_internal.h)
 *   rnic_rq.lock           one receive queue; leaf
 *   rnic_cq.lock           ring and arming of one CQ; leaf
 *   rnic_stag_table.bind_lock
 *   a shard of the STag table; leaf, and never two of them at a time
 * comp() of a CQ and async() of CQs and SRQs are called with none of the leaf locks held, but with the QP's that the caller holds.
 */
#ifndef UWARP_RNIC_VERBS_INTERNAL_H
#define UWARP_RNIC_VERBS_INTERNAL_H

#include "rnic/rnic.h"

/* ---- protection domains (pd.c) ---- */
/* QPs (SRQs, regions, windows) hold their protection domain. */
static inline void rnic_pd_hold(struct rnic_pd *pd)
{
	count_up(&pd->users);
}

static inline void rnic_pd_put(struct rnic_pd *pd)
{
	count_down(&pd->users);
}

/* ---- the STag table (stag.c) ---- */
/*
 * An STag is an index of 24 bits and a key of 8, in the words of the RDMA verbs. Both are random. An index belongs to one region or window
 * for all its life, so that a consumer who chooses the key of a type 2 window never hits another STag.
 */
#define RNIC_STAG_INDEX(stag) ((stag) >> 8)
#define RNIC_STAG_KEY 0xFFu
#define RNIC_STAG_SHARDS 32u    /* each with a lock of its own */
#define RNIC_MAX_STAGS (1u << 22) /* regions and windows of a device */

enum rnic_stag_kind { RNIC_STAG_REGION, RNIC_STAG_WINDOW_1, RNIC_STAG_WINDOW_2 };

/*
 * What an STag names. Fields up to @region are under the shard's lock; a region's do not change while it is @bindable and bind_lock is held.
 * What an access needs is in here for windows as well: @ptr points into their region.
 */
struct rnic_stag {
	struct hash_node hn;
	struct rnic_stag_shard *shard; /* where it is entered */
	u32 stag;              /* atomic for those who only report it */
	enum rnic_stag_kind kind;
	bool valid;            /* a window: it is bound */
	int access;            /* IBV_ACCESS_* */
	u32 qp_num;            /* type 2: the QP it is bound to */
	struct rnic_pd *pd;
	u64 base;              /* address of the first byte, as peers and SGEs give it */
	u64 length;
	u8 *ptr;               /* where that is */
	struct rnic_stag *region; /* bound window: whose memory it is */
	u32 users;             /* atomic: accesses that are going on; RNIC_STAG_DYING */
	u32 bound;             /* region: windows bound to it; atomic, goes up under bind_lock alone */
	bool bindable;         /* region: entered; under bind_lock */
};
#define RNIC_STAG_DYING 0x80000000u

struct rnic_stag_shard {
	struct mutex lock;
	struct cond idle;      /* the last access to something dying is over */
	struct hash_table table;
};

struct rnic_stag_table {
	struct rnic_stag_shard shard[RNIC_STAG_SHARDS];
	u32 count;             /* atomic */
	struct mutex bind_lock; /* binding of windows against the end or change of regions; outside the shards' locks */
};

struct rnic_mr {
	struct rnic_stag s;
};

struct rnic_mw {
	struct rnic_stag s;
};

int rnic_stag_table_init(struct rnic_stag_table *t); /* 0, -ENOMEM */
void rnic_stag_table_destroy(struct rnic_stag_table *t);
struct rnic_stag_table *rnic_stag_table_of(const struct irdma_device *iwdev);
/* Give @s (pd, kind and the rest set) an STag and enter it; it holds its protection domain. 0, -ENOSPC. */
int rnic_stag_add(struct rnic_stag *s);
/* Take it out for good and wait for accesses. -EBUSY: a region to which windows are bound; then nothing happened. */
int rnic_stag_del(struct rnic_stag *s);
/*
 * Let @change do its work on a region. @renew: it is taken out, accesses are waited for, and it comes back under a new STag; else it
 * changes between two accesses. -EBUSY: windows are bound to it; then nothing happened.
 */
int rnic_stag_change(struct rnic_stag *s, bool renew, void (*change)(struct rnic_stag *s, const void *arg), const void *arg);
/* The entry with the index of @stag, or NULL; the shard's lock is held, which is the one returned by rnic_stag_lock(). */
struct rnic_stag *rnic_stag_find(struct rnic_stag_shard *shard, u32 stag);
struct rnic_stag_shard *rnic_stag_lock(const struct irdma_device *iwdev, u32 stag);
/* Another random key under the same index. */
u32 rnic_stag_new_key(u32 stag);

/*
 * IBV_WR_BIND_MW as it waits in a send queue: by STags, so that windows and regions which the program destroys meanwhile are missed,
 * not used. rnic_mw_bind() is both in turn.
 */
struct rnic_bind {
	u32 window, region, rkey;
	int access;
	u64 addr, length;
};
/* When it is posted. 0, -EINVAL (no window; no region and a length). */
int rnic_bind_get(const struct ibv_send_wr *wr, struct rnic_bind *b);
/* In its turn. 0, -EINVAL: as rnic_mw_bind(). */
int rnic_bind_execute(const struct irdma_qp *qp, const struct rnic_bind *b);

/* ---- completion queues (cq.c) ---- */
#define RNIC_CQ_SEND 0x1u
#define RNIC_CQ_RECV 0x2u

/*
 * A QP's use of a CQ. In the QP; a QP whose both queues complete to one CQ attaches once, with both flags. Attach and detach without
 * qp.lock: a poller holds cq.users_lock while it takes qp.lock. After detach no poller looks at the QP, and
 * none of its completions is left.
 */
struct rnic_cq_user {
	TAILQ_ENTRY(rnic_cq_user) entry;
	struct irdma_qp *qp;
	u32 queues;            /* RNIC_CQ_* */
};

enum rnic_cq_armed { RNIC_CQ_UNARMED, RNIC_CQ_SOLICITED, RNIC_CQ_ANY };

struct rnic_cq {
	struct irdma_device *iwdev;
	struct rnic_cq_attr attr;
	struct mutex lock;  /* up to armed */
	struct rnic_cqe *ring;
	u32 size;              /* a power of two */
	u32 head, tail;        /* free running; atomic for rnic_cq_is_empty() */
	bool overrun;          /* atomic; what is in it can be polled, then -EOVERFLOW */
	enum rnic_cq_armed armed; /* atomic for rnic_cq_is_armed() */
	u32 polls;             /* atomic: calls of rnic_cq_poll(); who sees it stand still knows that nobody polls */
	u32 fruitless;         /* atomic: of those, how many since one that found something */
	bool held;             /* atomic: work requests of its QPs wait for the next poll */
	struct mutex users_lock; /* all below */
	TAILQ_HEAD(rnic_cq_users, rnic_cq_user) users; /* order is qp_poll.c's to choose */
	u32 user_count;
};

void rnic_cq_attach(struct rnic_cq *cq, struct rnic_cq_user *user, struct irdma_qp *qp, u32 queues);
void rnic_cq_detach(struct rnic_cq *cq, struct rnic_cq_user *user);
/*
 * Add a completion; qp.lock may be held. Sets @cqe's time stamp if the CQ wants them. False: the CQ has overrun, now (async() was called) or before;
 * the completion is lost, and the QP is to go to ERROR.
 */
bool rnic_cq_push(struct rnic_cq *cq, const struct rnic_cqe *cqe);
/* Remove the completions of a QP: rnic_cq_detach() does. */
void rnic_cq_clean(struct rnic_cq *cq, u32 qp_num);

/* Without a lock: may be outdated as soon as it returns. */
static inline bool rnic_cq_is_empty(const struct rnic_cq *cq)
{
	return __atomic_load_n(&cq->tail, __ATOMIC_ACQUIRE) == __atomic_load_n(&cq->head, __ATOMIC_ACQUIRE);
}

static inline bool rnic_cq_is_armed(const struct rnic_cq *cq)
{
	return __atomic_load_n(&cq->armed, __ATOMIC_ACQUIRE) != RNIC_CQ_UNARMED;
}

/*
 * qp_poll.c; called by cq.c with users_lock held, so cq->users can be walked and reordered, and no other lock.
 * rnic_qp_poll_cq: a program polls, and found the CQ empty, or has not for many polls; one thread at a time is in it, others that poll meanwhile find the CQ empty.
 * rnic_qp_send_held: the program polls, and cq->held was set.
 * rnic_qp_arm_cq: the CQ was just armed: from now on the NIC thread reads its QPs' streams, what has arrived included.
 */
void rnic_qp_poll_cq(struct rnic_cq *cq);
void rnic_qp_send_held(struct rnic_cq *cq);
void rnic_qp_arm_cq(struct rnic_cq *cq);

/* ---- receive queues (rq.c), a QP's own and those in SRQs ---- */
/* A receive work request, checked; SGEs of length 0 are left out. */
struct rnic_rwqe {
	u64 wr_id;
	u64 length;            /* sum of the SGEs' */
	u32 num_sge;
	struct ibv_sge sge[];
};
/* Bytes of one with room for @max_sge SGEs: whoever takes them allocates that once. */
#define RNIC_RWQE_SIZE(max_sge) (sizeof(struct rnic_rwqe) + (max_sge) * sizeof(struct ibv_sge))

struct rnic_rq {
	struct mutex lock;
	u8 *ring;              /* size * stride bytes */
	u32 stride;
	u32 size;              /* a power of two, or 0: nothing can be posted */
	u32 max_sge;
	u32 head, tail;        /* free running; atomic for rnic_rq_used() */
	u32 limit;             /* SRQ: event when fewer are left; 0: not armed */
};

/* @max_wr is rounded up to a power of two; 0: none. 0, -EINVAL (above RNIC_MAX_WR, RNIC_MAX_SGE), -ENOMEM. */
int rnic_rq_init(struct rnic_rq *rq, u32 max_wr, u32 max_sge);
void rnic_rq_destroy(struct rnic_rq *rq);
/* -EINVAL: more are posted than @max_wr, or it is out of range, or less than the limit; -ENOMEM. */
int rnic_rq_resize(struct rnic_rq *rq, u32 max_wr);
/* A chain of work requests; as rnic_post_recv(): those before *@bad are posted. Any thread. 0, -EINVAL, -ENOMEM (full). */
int rnic_rq_post(struct rnic_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/*
 * The oldest one, copied to @out, which has room for rq->max_sge SGEs; false: none. @crossed, unless NULL: the limit was armed, and fewer
 * are left now.
 */
bool rnic_rq_take(struct rnic_rq *rq, struct rnic_rwqe *out, bool *crossed);
/* Drop all, calling @flush for each in order with no lock held: how a QP in ERROR completes them. One buffer for rq->max_sge SGEs is @scratch. */
void rnic_rq_flush(struct rnic_rq *rq, struct rnic_rwqe *scratch, void (*flush)(void *ctx, const struct rnic_rwqe *wqe), void *ctx);

static inline u32 rnic_rq_used(const struct rnic_rq *rq)
{
	return __atomic_load_n(&rq->tail, __ATOMIC_ACQUIRE) - __atomic_load_n(&rq->head, __ATOMIC_ACQUIRE);
}

/* ---- shared receive queues (srq.c) ---- */
struct rnic_srq {
	struct rnic_pd *pd;    /* of its SGEs' regions: rnic_mem_get_local() */
	struct rnic_rq rq;
	u32 users;             /* atomic: QPs */
	void (*async)(void *ctx, enum ibv_event_type t);
	void *ctx;
};

static inline void rnic_srq_hold(struct rnic_srq *srq)
{
	count_up(&srq->users);
}

static inline void rnic_srq_put(struct rnic_srq *srq)
{
	count_down(&srq->users);
}

/* As rnic_rq_take(), with the limit event. @out has room for srq->rq.max_sge SGEs. */
bool rnic_srq_take(struct rnic_srq *srq, struct rnic_rwqe *out);

#endif
