/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The stress of verbs and CM from many threads (test_shim_stress_threads.c): what its parts share. Its theory is there.
 *
 * Of the model nothing but guards orders threads: counters are relaxed, so that TSan sees the orders that the NIC makes, and no others.
 */
#ifndef UWARP_TESTS_STRESS_H
#define UWARP_TESTS_STRESS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "base/rand.h"
#include "shim/cmdev_internal.h"
#include "shim/verbs_internal.h"

/* ---- stress_log.c: the history ---- */
u64 st_now(void);
/* A call that began at @begin has ended just now; @n: which object of its kind. The thread's own record. */
void st_log(u64 begin, const char *call, u32 n, u64 arg, long result);
/* A result that cannot be: says so, prints the history of all threads and aborts. */
__attribute__((format(printf, 1, 2))) _Noreturn void st_fail(const char *fmt, ...);
#define ST_CHECK(cond, ...) \
	do { \
		if (!(cond)) \
			st_fail(__VA_ARGS__); \
	} while (0)

static inline u32 st_get(const u32 *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }
static inline u32 st_add(u32 *n, u32 by) { return __atomic_fetch_add(n, by, __ATOMIC_RELAXED); }
static inline u32 st_sub(u32 *n, u32 by) { return __atomic_fetch_sub(n, by, __ATOMIC_RELAXED); }

/* ---- objects ---- */
/*
 * A place for an object. Calls on it hold the guard shared; who makes or destroys it has it alone: verbs forbid overlapping those. All but the end of the run
 * only try.
 *
 * @lo, @hi: objects that stand on this one: made and not being destroyed, and perhaps there. With the guard held alone @lo does not rise.
 * So destroying it may succeed only if @lo is 0 afterwards, and be EBUSY only if @hi was not 0 before.
 */
struct st_obj {
	pthread_rwlock_t guard;
	void *p;                /* NULL: none */
	u32 lo, hi;
};

static inline bool st_use(struct st_obj *o)
{
	if (pthread_rwlock_tryrdlock(&o->guard))
		return false;
	if (o->p)
		return true;
	pthread_rwlock_unlock(&o->guard);
	return false;
}

static inline bool st_take(struct st_obj *o) { return !pthread_rwlock_trywrlock(&o->guard); }
static inline void st_done(struct st_obj *o) { pthread_rwlock_unlock(&o->guard); }
static inline void st_child_begins(struct st_obj *o) { st_add(&o->hi, 1); }
static inline void st_child_is(struct st_obj *o, bool made)
{
	if (made)
		st_add(&o->lo, 1);
	else
		st_sub(&o->hi, 1);
}
static inline void st_child_ends(struct st_obj *o) { st_sub(&o->lo, 1); }
static inline void st_child_ended(struct st_obj *o, bool gone)
{
	if (gone)
		st_sub(&o->hi, 1);
	else
		st_add(&o->lo, 1);
}
/* Is @ret right for destroying @o, whose .hi was @hi before? */
static inline void st_check_destroy(const struct st_obj *o, const char *call, u32 hi, int ret)
{
	u32 lo = st_get(&o->lo);

	ST_CHECK((ret == 0 && !lo) || (ret == EBUSY && hi), "%s: %d, with %u that stand on it, or %u", call, ret, lo, hi);
}

/* ---- sizes ---- */
#define ST_WORKERS 6u
#define ST_THREADS 16u      /* workers, event threads, main */
#define ST_PDS 4u           /* the first two stay, and carry data */
#define ST_DATA_PDS 2u
#define ST_CHANNELS 3u
#define ST_CQS 6u
#define ST_SRQS 3u
#define ST_MRS 8u
#define ST_QPS 40u
#define ST_IDS 48u
#define ST_FILES 3u
#define ST_MSGS 32u         /* of one thread on one QP */
#define ST_BYTES 256u       /* of a message at most */
#define ST_RECVS 24u
#define ST_BULK 131072u

struct st_cq {
	struct st_obj o;
	struct st_obj *channel;   /* or NULL */
	struct st_notify *notify; /* cq_context: of this life of the queue */
	pthread_mutex_t order;    /* every second queue: held while completions are taken and looked at, so that their order is known */
	bool serial;
	bool extended;            /* struct ibv_cq_ex; changes with its life */
};

/* A life of a CQ with a channel, as the channel's events know it. Never freed. */
struct st_notify {
	struct st_notify *next;
	u64 gone_ns;              /* atomic; 0: it lives */
	u32 events;               /* atomic */
};

struct st_srq {
	struct st_obj o;
	struct st_obj *pd;
	u32 pd_n;
	u32 credits;              /* receives that no sender has claimed */
	u8 (*mem)[ST_BYTES];
};

/* What a QP slot owns for good: memory. Layout of what the NIC may touch. */
struct st_mem {
	u8 recv[ST_RECVS][ST_BYTES];
	u8 send[ST_WORKERS][ST_MSGS][ST_BYTES];
	u8 read[ST_WORKERS][ST_BYTES];
	u8 window[ST_BYTES];
	u64 counter, fetched[ST_WORKERS];
	u8 bulk_in[ST_BULK], bulk_out[ST_BULK]; /* the latter never changes */
};

/* A life of a QP: its book. From a pool that is used in turn, so late completions find it still. */
struct st_book {
	u32 index, life;          /* a completion of another life is late */
	u32 slot;
	u32 pd_n;
	struct st_cq *scq, *rcq;
	struct st_srq *srq;
	u64 gone_ns;              /* atomic; 0: it lives */
	u32 peer, peer_life;      /* index + 1 of the peer's; atomic */
	u32 up;                   /* both ends are in RTS; atomic */
	u32 number;
	u32 credits;              /* as in st_srq, unless it has one */
	u32 posted, completed;    /* signalled work requests; receives, unless of an SRQ */
	u32 recv_posted, recv_completed;
	u32 failed;               /* a completion was in error; atomic */
	u8 sent[ST_WORKERS][ST_MSGS];   /* atomic: ST_SENT_* */
	u8 seen[ST_WORKERS][ST_MSGS];   /* by the peer's thread and message: it came; atomic */
	u32 next[ST_WORKERS];     /* each the thread's own */
	u32 adds, added[256];     /* FetchAdd on our counter: posted by the peer; results that were seen */
	bool bulked[ST_WORKERS];  /* the thread's own */
	u32 orphan;               /* its id is gone; atomic */
	u32 ending;               /* it is being destroyed, or moved to ERR before; atomic */
	u32 busy[ST_WORKERS];     /* a Read or atomic of the thread is under way; atomic */
	/* when the send and receive queues complete to serial queues */
	int last_sent[ST_WORKERS], last_seen[ST_WORKERS];
	struct ibv_mw *mw;
	u32 mw_state;             /* atomic: ST_MW_* */
	u32 mw_rkey;              /* atomic */
};

enum { ST_NOT_SENT, ST_SILENT, ST_SIGNALLED, ST_COMPLETED };
enum { ST_MW_NONE, ST_MW_BINDING, ST_MW_BOUND, ST_MW_TAKEN };

struct st_qp {
	struct st_obj o;
	struct st_book *book;
	struct st_mem *mem;
};

struct st_thread {
	u32 n;                    /* below ST_WORKERS for workers */
	struct rand_gen g;
};

struct stress {
	struct ibv_context *ctx;
	struct st_obj pd[ST_PDS], channel[ST_CHANNELS], mr[ST_MRS];
	struct st_obj *mr_pd[ST_MRS];
	u8 *mr_mem[ST_MRS];
	u32 mr_rkey[ST_MRS];      /* atomic; what others may aim at */
	struct st_cq cq[ST_CQS];
	struct st_srq srq[ST_SRQS];
	struct st_qp qp[ST_QPS];
	struct st_mem *mem;       /* of all QP slots */
	struct ibv_mr *arena[ST_DATA_PDS], *srq_arena[ST_DATA_PDS];
	u8 *srq_mem;
	bool stop;                /* atomic */
	bool calm;                /* atomic: nothing new is begun, all is left to end */
};
extern struct stress st;

static inline bool st_stopping(void) { return __atomic_load_n(&st.stop, __ATOMIC_RELAXED); }
static inline bool st_calm(void) { return __atomic_load_n(&st.calm, __ATOMIC_RELAXED); }
static inline u32 st_below(struct st_thread *t, u32 n) { return (u32)rand_gen_below(&t->g, n); }
static inline bool st_one_in(struct st_thread *t, u32 n) { return !st_below(t, n); }

/* ---- stress_verbs.c: objects that come and go ---- */
void st_verbs_open(void);
void st_verbs_close(void);
void st_churn(struct st_thread *t);
bool st_post_srq(struct st_thread *t, struct st_srq *srq, u32 n);
void *st_channel_thread(void *arg);
void *st_async_thread(void *arg);

/* ---- stress_data.c: queue pairs, work requests, completions ---- */
void st_data_open(void);
void st_data_close(void);
/* A QP with receives posted; NULL: no place, or nothing to stand on. */
struct st_book *st_qp_make(struct st_thread *t);
struct st_book *st_book_at(u32 index);
void st_data(struct st_thread *t);             /* something on some QP */
void st_poll(struct st_thread *t, struct st_cq *cq); /* guard held */
void st_poll_some(struct st_thread *t);
/* The QP of this life, if it is there still. False: the guard was not to be had. */
bool st_qp_end(struct st_thread *t, u32 index, u32 life);
void st_qp_reap(struct st_thread *t);          /* one whose id is gone; now and then another */
void st_qp_pair(struct st_book *b, u32 peer, u32 life);

/* ---- stress_cm.c: ids of the rdma_cm device ---- */
void st_cm_open(void);
void st_cm_destroy_all(void);
void st_cm_close(void);
void st_cm(struct st_thread *t);
void *st_cm_thread(void *arg);
bool st_cm_is_quiet(void);

struct st_counts {
	u32 established, rejected, ended, sent, received, ended_in_error, forks, migrated, drained, leased;
};
extern struct st_counts st_counts;

#endif
