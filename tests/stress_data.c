/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The stress's data: queue pairs with a book that knows what was posted, so that for each completion and each message it is known whether it may come: every
 * signalled work request completes once, a silent one only in error; a message comes once, intact, behind its sender thread's earlier ones.
 */
#include <errno.h>
#include <unistd.h>
#include "rnic/rnic_internal.h"
#include "stress.h"

#define BOOKS 4096u
#define SOON_NS (60 * NSEC_PER_SEC)
#define BULK_PART 20000u

/* What a work request is, in its id. */
enum kind { K_PLAIN, K_SEND, K_READ, K_ADD, K_SWAP, K_BIND, K_INVALIDATE, K_RECV, K_SRQ = 0xF };

struct id {
	u32 index, life, seq;
	enum kind kind;
	u32 thread;
};

struct message {
	u32 index, life;       /* the sender's book */
	u16 thread, seq;
	u16 len;
	u16 bulk;              /* look at its part of bulk_in, too */
	u8 rest[ST_BYTES - 16];
};
static_assert(sizeof(struct message) == ST_BYTES, "one buffer");

static struct st_book *books;
static u32 next_book; /* atomic */

static u64 id_make(const struct st_book *b, enum kind kind, u32 thread, u32 seq)
{
	return (u64)b->index << 48 | (u64)(b->life & 0xFFFFFF) << 24 | (u64)kind << 20 | (u64)thread << 16 | seq;
}

static struct id id_parse(u64 wr_id)
{
	return (struct id){ .index = (u32)(wr_id >> 48), .life = wr_id >> 24 & 0xFFFFFF, .kind = (enum kind)(wr_id >> 20 & 0xF),
			    .thread = wr_id >> 16 & 0xF, .seq = wr_id & 0xFFFF };
}

struct st_book *st_book_at(u32 index)
{
	return &books[index];
}

static u8 exchange(u8 *p, u8 v)
{
	return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}

/* ---- life ---- */

/* Whoever still has the number of an older life may be reading .life, and then nothing else. */
__attribute__((no_sanitize("thread"))) static void wipe(struct st_book *b)
{
	volatile u64 *p = (u64 *)b;
	size_t i;

	for (i = 0; i < sizeof(*b) / sizeof(*p); i++)
		p[i] = 0;
}
static_assert(sizeof(struct st_book) % sizeof(u64) == 0, "wiped to its end");

static struct st_book *book_new(void)
{
	u32 index = st_add(&next_book, 1) % BOOKS;
	struct st_book *b = &books[index];
	u32 life = b->life + 1;

	wipe(b);
	b->index = index;
	__atomic_store_n(&b->life, life & 0xFFFFFF, __ATOMIC_RELAXED);
	memset(b->last_sent, 0xFF, sizeof(b->last_sent));
	memset(b->last_seen, 0xFF, sizeof(b->last_seen));
	return b;
}

static void post_recv(struct st_qp *q, u32 n)
{
	struct st_book *b = q->book;
	struct ibv_sge sge = { .addr = (uintptr_t)q->mem->recv[n], .length = ST_BYTES, .lkey = st.arena[b->pd_n]->lkey };
	struct ibv_recv_wr wr = { .wr_id = id_make(b, K_RECV, 0, n), .sg_list = &sge, .num_sge = 1 }, *bad;
	u64 begin = st_now();
	int ret;

	st_add(&b->recv_posted, 1);
	ret = ibv_post_recv(q->o.p, &wr, &bad);
	st_log(begin, "post_recv", b->slot, wr.wr_id, ret);
	ST_CHECK(!ret, "post_recv: %d, with room in the queue", ret);
	st_add(&b->credits, 1);
}

static void make_window(struct st_book *b)
{
	struct st_obj *pd = &st.pd[b->pd_n];

	st_child_begins(pd);
	b->mw = ibv_alloc_mw(pd->p, IBV_MW_TYPE_2);
	ST_CHECK(b->mw, "alloc_mw: %d", errno);
	st_child_is(pd, true);
	b->mw_rkey = b->mw->rkey;
}

static void count_in(struct st_book *b, void (*fn)(struct st_obj *o))
{
	fn(&st.pd[b->pd_n]);
	fn(&b->scq->o);
	if (b->rcq != b->scq)
		fn(&b->rcq->o);
	if (b->srq)
		fn(&b->srq->o);
}

static void is_made(struct st_obj *o) { st_child_is(o, true); }
static void is_gone(struct st_obj *o) { st_child_ended(o, true); }

#define SEND_OPS \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV)

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a, bool extended)
{
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = a->send_cq, .recv_cq = a->recv_cq, .srq = a->srq, .cap = a->cap, .qp_type = a->qp_type, .sq_sig_all = a->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd, .send_ops_flags = SEND_OPS,
	};

	return extended ? ibv_create_qp_ex(pd->context, &ex) : ibv_create_qp(pd, a);
}

static struct st_book *make_on(struct st_thread *t, struct st_qp *q, u32 pd_n, struct st_cq *scq, struct st_cq *rcq, struct st_srq *srq)
{
	struct st_book *b = book_new();
	struct ibv_qp_init_attr a = {
		.send_cq = scq->o.p, .recv_cq = rcq->o.p, .srq = srq ? srq->o.p : NULL, .qp_type = IBV_QPT_RC, .sq_sig_all = st_one_in(t, 3),
		.cap = { .max_send_wr = 16 << st_below(t, 3), .max_recv_wr = ST_RECVS, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64 },
	};
	u64 begin = st_now();
	struct ibv_qp *qp;
	u32 i;

	b->slot = (u32)(q - st.qp);
	b->pd_n = pd_n;
	b->scq = scq;
	b->rcq = rcq;
	b->srq = srq;
	count_in(b, st_child_begins);
	qp = create_qp(st.pd[pd_n].p, &a, st_one_in(t, 2));
	st_log(begin, "create_qp", b->slot, b->index, qp ? (long)qp->qp_num : -errno);
	ST_CHECK(qp, "create_qp: %d", errno);
	count_in(b, is_made);
	__atomic_store_n(&b->number, qp->qp_num, __ATOMIC_RELAXED);
	q->mem->counter = 0;
	memset(q->mem->bulk_in, 0, sizeof(q->mem->bulk_in));
	__atomic_store_n(&q->book, b, __ATOMIC_RELEASE);
	q->o.p = qp;
	for (i = 0; i < ST_RECVS && !srq; i++)
		post_recv(q, i);
	if (st_one_in(t, 2))
		make_window(b);
	return b;
}

/* Guard of @q held alone. The objects that it is to stand on are held in one order, or it does without. */
static struct st_book *make_in(struct st_thread *t, struct st_qp *q)
{
	u32 pd_n = st_below(t, ST_DATA_PDS);
	struct st_cq *scq = &st.cq[st_below(t, ST_CQS)], *rcq = st_one_in(t, 2) ? scq : &st.cq[st_below(t, ST_CQS)];
	struct st_srq *srq = st_one_in(t, 2) ? &st.srq[st_below(t, ST_SRQS)] : NULL;
	struct st_book *b = NULL;

	if (!st_use(&st.pd[pd_n]))
		return NULL;
	if (st_use(&scq->o)) {
		if (rcq == scq || st_use(&rcq->o)) {
			if (!srq) {
				b = make_on(t, q, pd_n, scq, rcq, NULL);
			} else if (st_use(&srq->o)) {
				b = make_on(t, q, srq->pd_n, scq, rcq, srq);
				st_done(&srq->o);
			}
			if (rcq != scq)
				st_done(&rcq->o);
		}
		st_done(&scq->o);
	}
	st_done(&st.pd[pd_n]);
	return b;
}

struct st_book *st_qp_make(struct st_thread *t)
{
	u32 first = st_below(t, ST_QPS), i;
	struct st_book *b;

	for (i = 0; i < ST_QPS; i++) {
		struct st_qp *q = &st.qp[(first + i) % ST_QPS];

		if (!st_take(&q->o))
			continue;
		if (q->o.p) {
			st_done(&q->o);
			continue;
		}
		b = make_in(t, q);
		st_done(&q->o);
		return b;
	}
	return NULL;
}

static int modify(struct st_qp *q, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };
	u64 begin = st_now();
	int ret = ibv_modify_qp(q->o.p, &a, IBV_QP_STATE);

	st_log(begin, "modify_qp", q->book->slot, state, ret);
	return ret;
}

static void poll_of(struct st_thread *t, struct st_cq *cq)
{
	if (!st_use(&cq->o))
		return;
	st_poll(t, cq);
	st_done(&cq->o);
}

/* After an end with no posts beside it: all that is to complete completes. */
static void drain(struct st_thread *t, struct st_qp *q)
{
	struct st_book *b = q->book;
	u64 end = st_now() + SOON_NS;
	int ret = modify(q, IBV_QPS_ERR);

	ST_CHECK(!ret, "modify_qp to ERR: %d", ret);
	while (st_get(&b->posted) != st_get(&b->completed) || st_get(&b->recv_posted) != st_get(&b->recv_completed)) {
		poll_of(t, b->scq);
		if (b->rcq != b->scq)
			poll_of(t, b->rcq);
		ST_CHECK(st_now() < end, "qp %u, book %u: lost completions: %u of %u sends, %u of %u receives", b->number, b->index,
			 st_get(&b->completed), st_get(&b->posted), st_get(&b->recv_completed), st_get(&b->recv_posted));
	}
	st_add(&st_counts.drained, 1);
}

/* Who has taken completions from it has done with them, and with the memory. */
static void wait_for_pollers(struct st_cq *cq)
{
	pthread_rwlock_wrlock(&cq->o.guard);
	pthread_rwlock_unlock(&cq->o.guard);
}

static void end_window(struct st_book *b)
{
	struct st_obj *pd = &st.pd[b->pd_n];

	if (!b->mw)
		return;
	st_child_ends(pd);
	ST_CHECK(!ibv_dealloc_mw(b->mw), "dealloc_mw");
	st_child_ended(pd, true);
	b->mw = NULL;
}

/* Guard held alone. */
static void end_locked(struct st_thread *t, struct st_qp *q)
{
	struct st_book *b = q->book;
	bool window_first = st_one_in(t, 2);
	u64 begin;
	int ret;

	st_add(&b->ending, 1);
	if (st_one_in(t, 3))
		drain(t, q);
	else if (st_one_in(t, 3))
		modify(q, st_one_in(t, 2) ? IBV_QPS_SQD : IBV_QPS_ERR);
	if (window_first)
		end_window(b);
	count_in(b, st_child_ends);
	begin = st_now();
	ret = ibv_destroy_qp(q->o.p);
	st_log(begin, "destroy_qp", b->slot, b->index, ret);
	ST_CHECK(!ret, "destroy_qp: %d", ret);
	__atomic_store_n(&b->gone_ns, st_now(), __ATOMIC_RELAXED);
	count_in(b, is_gone);
	end_window(b);
	wait_for_pollers(b->scq);
	wait_for_pollers(b->rcq);
	q->o.p = NULL;
	__atomic_store_n(&q->book, NULL, __ATOMIC_RELAXED);
}

void st_qp_reap(struct st_thread *t)
{
	struct st_qp *q = &st.qp[st_below(t, ST_QPS)];
	bool any = st_one_in(t, 400);

	if (!st_take(&q->o))
		return;
	if (q->o.p && (any || st_get(&q->book->orphan)))
		end_locked(t, q);
	st_done(&q->o);
}

bool st_qp_end(struct st_thread *t, u32 index, u32 life)
{
	struct st_book *b = &books[index];
	struct st_qp *q = &st.qp[b->slot];

	if (!st_take(&q->o))
		return false;
	if (q->o.p && q->book == b && b->life == life)
		end_locked(t, q);
	st_done(&q->o);
	return true;
}

/*
 * Before it posts. One-sided: who connects may ask twice, if the listener goes between the two (the fall-back to MPA revision 1), and who answers takes each for a
 * peer of its own; only the reply says which it is.
 */
void st_qp_pair(struct st_book *b, u32 peer, u32 life)
{
	__atomic_store_n(&b->peer_life, life, __ATOMIC_RELAXED);
	__atomic_store_n(&b->peer, peer + 1, __ATOMIC_RELEASE);
}

/* ---- posting; guard held ---- */

struct order {
	struct st_thread *t;
	struct st_qp *q;
	struct st_book *b, *peer;
	struct st_mem *far;    /* the peer's memory, and its key */
	u32 rkey, seq;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
};

/* The other way to post. */
static int post_ex(struct ibv_qp_ex *ex, const struct ibv_send_wr *wr)
{
	ibv_wr_start(ex);
	ex->wr_id = wr->wr_id;
	ex->wr_flags = wr->send_flags & ~(unsigned int)IBV_SEND_INLINE;
	switch (wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(ex);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(ex, wr->invalidate_rkey);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(ex, wr->invalidate_rkey);
		break;
	default:
		ibv_wr_bind_mw(ex, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		break;
	}
	if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(ex, (void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
	else if (wr->num_sge)
		ibv_wr_set_sge(ex, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
	return ibv_wr_complete(ex);
}

static int post_any(struct order *o)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(o->q->o.p);
	struct ibv_send_wr *bad;

	return ex && st_one_in(o->t, 2) ? post_ex(ex, &o->wr) : ibv_post_send(o->q->o.p, &o->wr, &bad);
}

/* True if it was posted. */
static bool post(struct order *o, enum kind kind, bool signal)
{
	struct st_book *b = o->b;
	u32 n = o->t->n;
	u64 begin;
	int ret;

	o->wr.wr_id = id_make(b, kind, n, o->seq);
	if (signal)
		o->wr.send_flags |= IBV_SEND_SIGNALED;
	signal |= to_qp(o->q->o.p)->sq_sig_all;
	if (o->sge.length) {
		o->wr.sg_list = &o->sge;
		o->wr.num_sge = 1;
	}
	__atomic_store_n(&b->sent[n][o->seq], signal ? ST_SIGNALLED : ST_SILENT, __ATOMIC_RELAXED);
	if (signal)
		st_add(&b->posted, 1);
	begin = st_now();
	ret = post_any(o);
	st_log(begin, "post_send", b->slot, o->wr.wr_id, ret);
	ST_CHECK(ret == 0 || ret == ENOMEM, "post_send: %d, of a connected queue pair", ret);
	if (!ret) {
		b->next[n]++;
		return true;
	}
	__atomic_store_n(&b->sent[n][o->seq], ST_NOT_SENT, __ATOMIC_RELAXED);
	if (signal)
		st_sub(&b->posted, 1);
	return false;
}

/* A receive of the peer's is ours. */
static bool claim_receive(struct st_book *peer)
{
	u32 *credits = peer->srq ? &peer->srq->credits : &peer->credits, n = st_get(credits);

	while (n)
		if (__atomic_compare_exchange_n(credits, &n, n - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
	return false;
}

static u8 byte_of(u32 thread, u32 seq, u32 i)
{
	return (u8)(thread * 37 + seq * 11 + i * 7);
}

static struct message *message(struct order *o, u16 bulk)
{
	struct message *m = (void *)o->q->mem->send[o->t->n][o->seq];
	u32 len = st_below(o->t, sizeof(m->rest)), i;

	*m = (struct message){ .index = o->b->index, .life = o->b->life, .thread = (u16)o->t->n, .seq = (u16)o->seq, .len = (u16)len, .bulk = bulk };
	for (i = 0; i < len; i++)
		m->rest[i] = byte_of(o->t->n, o->seq, i);
	o->sge = (struct ibv_sge){ .addr = (uintptr_t)m, .length = 16 + len, .lkey = st.arena[o->b->pd_n]->lkey };
	return m;
}

static bool room_for(const struct order *o, u32 n)
{
	return o->b->next[o->t->n] + n <= ST_MSGS;
}

static void send_message(struct order *o, u16 bulk)
{
	if (!claim_receive(o->peer))
		return;
	o->wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .send_flags = st_one_in(o->t, 2) ? IBV_SEND_SOLICITED : 0 };
	o->seq = o->b->next[o->t->n];
	message(o, bulk);
	if (o->sge.length <= 64 && st_one_in(o->t, 2))
		o->wr.send_flags |= IBV_SEND_INLINE;
	if (post(o, K_SEND, st_one_in(o->t, 3)))
		st_add(&st_counts.sent, 1);
}

static void op_send(struct order *o)
{
	send_message(o, 0);
}

static void aim(struct order *o, const void *at, u32 rkey)
{
	o->wr.wr.rdma.remote_addr = (uintptr_t)at;
	o->wr.wr.rdma.rkey = rkey;
}

static void op_write_imm(struct order *o)
{
	if (!claim_receive(o->peer))
		return;
	o->wr = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = o->t->n << 16 | o->seq };
	o->sge = (struct ibv_sge){ 0 };
	aim(o, o->far->bulk_in, o->rkey);
	if (post(o, K_SEND, true))
		st_add(&st_counts.sent, 1);
}

/* Much, and then a message which says that it is there. Once, or the next might come while this one is looked at. */
static void op_bulk(struct order *o)
{
	u32 part = o->t->n * BULK_PART;

	if (!room_for(o, 2) || o->b->bulked[o->t->n])
		return;
	o->b->bulked[o->t->n] = true;
	o->wr = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE };
	o->sge = (struct ibv_sge){ .addr = (uintptr_t)o->q->mem->bulk_out + part, .length = BULK_PART, .lkey = st.arena[o->b->pd_n]->lkey };
	aim(o, o->far->bulk_in + part, o->rkey);
	if (post(o, K_PLAIN, false))
		send_message(o, 1);
}

static bool set_busy(struct order *o)
{
	return !__atomic_exchange_n(&o->b->busy[o->t->n], 1, __ATOMIC_ACQUIRE);
}

static void not_busy(struct st_book *b, u32 thread)
{
	__atomic_store_n(&b->busy[thread], 0, __ATOMIC_RELEASE);
}

static void op_read(struct order *o)
{
	if (!set_busy(o))
		return;
	o->wr = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_READ };
	o->sge = (struct ibv_sge){ .addr = (uintptr_t)o->q->mem->read[o->t->n], .length = ST_BYTES, .lkey = st.arena[o->b->pd_n]->lkey };
	aim(o, o->far->bulk_out, o->rkey);
	if (!post(o, K_READ, true))
		not_busy(o->b, o->t->n);
}

static void op_atomic(struct order *o)
{
	bool add = st_one_in(o->t, 2);

	if (!set_busy(o))
		return;
	o->wr = (struct ibv_send_wr){ .opcode = add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP };
	o->sge = (struct ibv_sge){ .addr = (uintptr_t)&o->q->mem->fetched[o->t->n], .length = 8, .lkey = st.arena[o->b->pd_n]->lkey };
	o->wr.wr.atomic.remote_addr = (uintptr_t)&o->far->counter;
	o->wr.wr.atomic.rkey = o->rkey;
	o->wr.wr.atomic.compare_add = add ? 1 : ~0ull; /* which it never is */
	if (add)
		st_add(&o->peer->adds, 1);
	if (!post(o, add ? K_ADD : K_SWAP, true))
		not_busy(o->b, o->t->n);
}

static bool window_step(struct st_book *b, u32 from, u32 to)
{
	return __atomic_compare_exchange_n(&b->mw_state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void op_bind(struct order *o)
{
	struct st_book *b = o->b;

	if (!b->mw || !window_step(b, ST_MW_NONE, ST_MW_BINDING))
		return;
	__atomic_store_n(&b->mw_rkey, ibv_inc_rkey(b->mw_rkey), __ATOMIC_RELAXED);
	o->wr = (struct ibv_send_wr){ .opcode = IBV_WR_BIND_MW };
	o->sge = (struct ibv_sge){ 0 };
	o->wr.bind_mw.mw = b->mw;
	o->wr.bind_mw.rkey = b->mw_rkey;
	o->wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = st.arena[b->pd_n], .addr = (uintptr_t)o->q->mem->window, .length = ST_BYTES,
							       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
	if (!post(o, K_BIND, true))
		window_step(b, ST_MW_BINDING, ST_MW_NONE);
}

static void op_invalidate(struct order *o)
{
	if (!window_step(o->b, ST_MW_BOUND, ST_MW_TAKEN))
		return;
	o->wr = (struct ibv_send_wr){ .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = o->b->mw_rkey };
	o->sge = (struct ibv_sge){ 0 };
	if (!post(o, K_INVALIDATE, true))
		window_step(o->b, ST_MW_TAKEN, ST_MW_BOUND);
}

/* Into the peer's window, which goes with the message behind. */
static void op_window(struct order *o)
{
	u32 rkey;

	if (!room_for(o, 2) || !claim_receive(o->peer) || !window_step(o->peer, ST_MW_BOUND, ST_MW_TAKEN))
		return;
	rkey = __atomic_load_n(&o->peer->mw_rkey, __ATOMIC_RELAXED);
	o->wr = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE };
	o->sge = (struct ibv_sge){ .addr = (uintptr_t)o->q->mem->bulk_out, .length = ST_BYTES, .lkey = st.arena[o->b->pd_n]->lkey };
	aim(o, o->far->window, rkey);
	if (!post(o, K_PLAIN, false))
		return;
	o->wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = rkey };
	o->seq = o->b->next[o->t->n];
	message(o, 0);
	if (post(o, K_SEND, true))
		st_add(&st_counts.sent, 1);
}

/* At a region that somebody may just be ending: it is written, or the connection ends. */
static void op_blind_write(struct order *o)
{
	u32 n = st_below(o->t, ST_MRS);

	if (!st_one_in(o->t, 30))
		return;
	o->wr = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE };
	o->sge = (struct ibv_sge){ .addr = (uintptr_t)o->q->mem->bulk_out, .length = 4096, .lkey = st.arena[o->b->pd_n]->lkey };
	aim(o, st.mr_mem[n], st_get(&st.mr_rkey[n]));
	post(o, K_PLAIN, st_one_in(o->t, 2));
}

static void op_refused(struct order *o)
{
	struct ibv_send_wr *bad;
	int ret;

	o->wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND_WITH_IMM };
	ret = ibv_post_send(o->q->o.p, &o->wr, &bad);
	ST_CHECK(ret == EOPNOTSUPP || ret == ENOMEM, "post_send of Send with Immediate: %d", ret);
}

static void op_query(struct order *o)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	u64 begin = st_now();
	int ret = ibv_query_qp(o->q->o.p, &a, IBV_QP_STATE, &init);

	st_log(begin, "query_qp", o->b->slot, a.qp_state, ret);
	ST_CHECK(!ret && a.qp_state >= IBV_QPS_RTS, "query_qp: %d, state %d of a queue pair that was connected", ret, a.qp_state);
}

/* The end from this side, in the middle of everything. */
static void op_modify(struct order *o)
{
	enum ibv_qp_state to = st_one_in(o->t, 2) ? IBV_QPS_SQD : IBV_QPS_ERR;
	int ret;

	if (!st_one_in(o->t, 30))
		return;
	ret = modify(o->q, to);
	ST_CHECK(!ret, "modify_qp to %d: %d", to, ret);
}

static void (*const ops[])(struct order *o) = {
	op_send, op_send, op_send, op_send, op_send, op_write_imm, op_write_imm, op_bulk, op_bulk, op_read, op_read, op_atomic, op_atomic, op_bind, op_bind,
	op_invalidate, op_window, op_window, op_blind_write, op_refused, op_query, op_modify,
};

static void data_on(struct st_thread *t, struct st_qp *q)
{
	struct st_book *b = q->book;
	u32 peer = __atomic_load_n(&b->peer, __ATOMIC_ACQUIRE), n = 1 + st_below(t, 8);
	struct order o = { .t = t, .q = q, .b = b };

	if (!st_get(&b->up) || !peer)
		return;
	o.peer = &books[peer - 1];
	if (st_get(&o.peer->life) != st_get(&b->peer_life))
		return;
	o.far = st.qp[o.peer->slot].mem;
	o.rkey = st.arena[o.peer->pd_n]->rkey;
	while (n-- && room_for(&o, 1)) {
		o.seq = b->next[t->n];
		ops[st_below(t, ARRAY_SIZE(ops))](&o);
	}
}

void st_data(struct st_thread *t)
{
	struct st_qp *q = &st.qp[st_below(t, ST_QPS)];

	if (!st_use(&q->o))
		return;
	data_on(t, q);
	st_done(&q->o);
}

/* ---- completions; guard of the CQ held, so that memory stays ---- */

static void check_bytes(const u8 *got, const u8 *want, u32 len, const char *what)
{
	ST_CHECK(!memcmp(got, want, len), "%s: other bytes than were sent", what);
}

/* What FetchAdd gives is a number that it gave to nobody else. */
static void add_succeeded(struct st_book *b, u64 count)
{
	struct st_book *peer = &books[st_get(&b->peer) - 1];

	if (st_get(&peer->life) != st_get(&b->peer_life))
		return;
	ST_CHECK(count < st_get(&peer->adds), "FetchAdd gave %llu, of %u that were posted", (unsigned long long)count, peer->adds);
	ST_CHECK(count >= ARRAY_SIZE(peer->added) || !__atomic_exchange_n(&peer->added[count], 1, __ATOMIC_RELAXED), "FetchAdd gave %llu twice",
		 (unsigned long long)count);
}

static void send_succeeded(struct st_book *b, const struct id *id)
{
	struct st_mem *mem = st.qp[b->slot].mem;

	switch (id->kind) {
	case K_READ:
		check_bytes(mem->read[id->thread], mem->bulk_out, ST_BYTES, "read");
		memset(mem->read[id->thread], 0, ST_BYTES);
		break;
	case K_ADD:
		add_succeeded(b, mem->fetched[id->thread]);
		break;
	case K_BIND:
		window_step(b, ST_MW_BINDING, ST_MW_BOUND);
		break;
	case K_INVALIDATE:
		window_step(b, ST_MW_TAKEN, ST_MW_NONE);
		break;
	default:
		break;
	}
}

static void send_completed(struct st_cq *cq, struct st_book *b, const struct id *id, const struct ibv_wc *wc)
{
	bool good = wc->status == IBV_WC_SUCCESS;
	u8 was = exchange(&b->sent[id->thread][id->seq], ST_COMPLETED);

	ST_CHECK(was == ST_SIGNALLED || (was == ST_SILENT && !good), "work request %#llx completed with status %d, and was %s", (unsigned long long)wc->wr_id,
		 wc->status, was == ST_COMPLETED ? "completed" : was == ST_SILENT ? "silent" : "not posted");
	if (cq->serial) {
		ST_CHECK((int)id->seq > b->last_sent[id->thread], "work request %#llx completed behind %d", (unsigned long long)wc->wr_id,
			 b->last_sent[id->thread]);
		b->last_sent[id->thread] = (int)id->seq;
	}
	ST_CHECK(!good || !st_get(&b->failed), "work request %#llx succeeded behind one that failed", (unsigned long long)wc->wr_id);
	if (good)
		send_succeeded(b, id);
	else if (cq->serial)
		__atomic_store_n(&b->failed, 1, __ATOMIC_RELAXED);
	if (id->kind == K_READ || id->kind == K_ADD || id->kind == K_SWAP)
		not_busy(b, id->thread);
	if (was == ST_SIGNALLED)
		st_add(&b->completed, 1);
}

/* A message of thread @thread of the peer's. */
static void message_seen(struct st_cq *cq, struct st_book *b, u32 thread, u32 seq)
{
	ST_CHECK(thread < ST_WORKERS && seq < ST_MSGS, "a message of thread %u, number %u", thread, seq);
	ST_CHECK(!exchange(&b->seen[thread][seq], 1), "message %u of thread %u came twice to qp %u", seq, thread, b->number);
	if (cq->serial) {
		ST_CHECK((int)seq > b->last_seen[thread], "message %u of thread %u came behind %d", seq, thread, b->last_seen[thread]);
		b->last_seen[thread] = (int)seq;
	}
	st_add(&st_counts.received, 1);
}

static void check_message(struct st_cq *cq, struct st_book *b, const struct message *m, u32 len)
{
	struct st_mem *mem = st.qp[b->slot].mem;
	struct st_book *from;
	u32 i;

	ST_CHECK(len == 16u + m->len && m->len < sizeof(m->rest), "a message of %u bytes says that it has %u", len, m->len);
	from = &books[m->index];
	ST_CHECK(m->index < BOOKS && (st_get(&from->life) != m->life || (st_get(&from->peer) == b->index + 1 && st_get(&from->peer_life) == b->life)),
		 "qp %u, book %u, got a message that book %u sent to %u", b->number, b->index, m->index, from->peer - 1);
	for (i = 0; i < m->len; i++)
		ST_CHECK(m->rest[i] == byte_of(m->thread, m->seq, i), "message %u of thread %u: byte %u", m->seq, m->thread, i);
	message_seen(cq, b, m->thread, m->seq);
	if (m->bulk)
		check_bytes(mem->bulk_in + m->thread * BULK_PART, mem->bulk_out + m->thread * BULK_PART, BULK_PART, "written");
}

static struct st_book *book_of(u32 qp_num)
{
	u32 i;

	for (i = 0; i < ST_QPS; i++) {
		struct st_book *b = __atomic_load_n(&st.qp[i].book, __ATOMIC_ACQUIRE);

		if (b && st_get(&b->number) == qp_num)
			return b;
	}
	st_fail("a completion of qp %u, which is none of ours", qp_num);
}

static void received(struct st_cq *cq, struct st_book *b, const struct ibv_wc *wc, const void *buf)
{
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		ST_CHECK(wc->wc_flags & IBV_WC_WITH_IMM, "no immediate data");
		message_seen(cq, b, wc->imm_data >> 16, wc->imm_data & 0xFFFF);
		return;
	}
	check_message(cq, b, buf, wc->byte_len);
	if (wc->wc_flags & IBV_WC_WITH_INV) {
		ST_CHECK(wc->invalidated_rkey == st_get(&b->mw_rkey), "window %#x was invalidated, not %#x", wc->invalidated_rkey, b->mw_rkey);
		check_bytes(st.qp[b->slot].mem->window, st.qp[b->slot].mem->bulk_out, ST_BYTES, "window");
		memset(st.qp[b->slot].mem->window, 0, ST_BYTES);
		ST_CHECK(window_step(b, ST_MW_TAKEN, ST_MW_NONE), "a window was invalidated, and not bound");
	}
}

static void recv_completed(struct st_cq *cq, struct st_book *b, const struct id *id, const struct ibv_wc *wc)
{
	struct st_qp *q = &st.qp[b->slot];

	if (wc->status == IBV_WC_SUCCESS)
		received(cq, b, wc, q->mem->recv[id->seq]);
	else
		ST_CHECK(wc->status == IBV_WC_WR_FLUSH_ERR, "a receive completed with %d", wc->status);
	st_add(&b->recv_completed, 1);
	if (wc->status == IBV_WC_SUCCESS && st_use(&q->o)) {
		if (q->book == b)
			post_recv(q, id->seq);
		st_done(&q->o);
	}
}

static void srq_completed(struct st_thread *t, struct st_cq *cq, const struct id *id, const struct ibv_wc *wc)
{
	struct st_srq *srq = &st.srq[id->index];

	if (wc->status == IBV_WC_SUCCESS)
		received(cq, book_of(wc->qp_num), wc, srq->mem[id->seq]);
	if (st_use(&srq->o)) {
		st_post_srq(t, srq, id->seq);
		st_done(&srq->o);
	}
}

static void one(struct st_thread *t, struct st_cq *cq, const struct ibv_wc *wc, u64 begin)
{
	struct id id = id_parse(wc->wr_id);
	struct st_book *b;
	u64 gone;

	st_log(begin, "completion", (u32)(cq - st.cq), wc->wr_id, wc->status);
	if (id.kind == K_SRQ) {
		srq_completed(t, cq, &id, wc);
		return;
	}
	b = &books[id.index];
	gone = __atomic_load_n(&b->gone_ns, __ATOMIC_RELAXED);
	ST_CHECK(b->life == id.life && (!gone || begin < gone), "completion %#llx came after destroy_qp", (unsigned long long)wc->wr_id);
	ST_CHECK(b->number == wc->qp_num, "completion %#llx says qp %u, not %u", (unsigned long long)wc->wr_id, wc->qp_num, b->number);
	if (wc->status != IBV_WC_SUCCESS)
		st_add(&st_counts.ended_in_error, 1);
	if (id.kind == K_RECV)
		recv_completed(cq, b, &id, wc);
	else
		send_completed(cq, b, &id, wc);
}

static int poll_ex(struct ibv_cq_ex *ex, int n, struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr a = { 0 };
	int i = 0, ret = ibv_start_poll(ex, &a);

	if (ret)
		return ret == ENOENT ? 0 : -ret;
	do {
		wc[i++] = (struct ibv_wc){ .wr_id = ex->wr_id, .status = ex->status, .opcode = ibv_wc_read_opcode(ex), .byte_len = ibv_wc_read_byte_len(ex),
					   .imm_data = ibv_wc_read_imm_data(ex), .qp_num = ibv_wc_read_qp_num(ex), .wc_flags = ibv_wc_read_wc_flags(ex) };
	} while (i < n && !(ret = ibv_next_poll(ex)));
	ibv_end_poll(ex);
	return ret && ret != ENOENT ? -ret : i;
}

static int poll_any(struct st_thread *t, struct st_cq *cq, int n, struct ibv_wc *wc)
{
	return cq->extended && st_one_in(t, 2) ? poll_ex((struct ibv_cq_ex *)cq->o.p, n, wc) : ibv_poll_cq(cq->o.p, n, wc);
}

void st_poll(struct st_thread *t, struct st_cq *cq)
{
	struct ibv_wc wc[8];
	u64 begin;
	int n, i;

	if (cq->serial)
		pthread_mutex_lock(&cq->order);
	begin = st_now();
	n = poll_any(t, cq, 1 + (int)st_below(t, 8), wc);
	ST_CHECK(n >= 0, "poll_cq: %d", n);
	for (i = 0; i < n; i++)
		one(t, cq, &wc[i], begin);
	if (cq->serial)
		pthread_mutex_unlock(&cq->order);
}

/* As a busy poller does, or just so. */
void st_poll_some(struct st_thread *t)
{
	struct st_cq *cq = &st.cq[st_below(t, ST_CQS)];
	u32 n = st_one_in(t, 10) ? 300 : 1 + st_below(t, 4);

	if (!st_use(&cq->o))
		return;
	while (n--)
		st_poll(t, cq);
	st_add(&st_counts.leased, st_get(&rnic_device_of(to_ctx(st.ctx)->iwdev)->lease_count) != 0);
	st_done(&cq->o);
}

/* ---- all ---- */

void st_data_open(void)
{
	u32 i, j;

	books = calloc(BOOKS, sizeof(*books));
	ST_CHECK(books, "no memory");
	for (i = 0; i < ST_QPS; i++) {
		st.qp[i].mem = &st.mem[i];
		for (j = 0; j < ST_BULK; j++)
			st.mem[i].bulk_out[j] = (u8)(j * 7 + j / 251);
	}
}

/* Threads have ended: all that is left drains and goes. */
void st_data_close(void)
{
	struct st_thread t = { .n = 0 };
	u32 i;

	rand_gen_seed(&t.g, 1);
	for (i = 0; i < ST_QPS; i++) {
		if (st.qp[i].o.p)
			end_locked(&t, &st.qp[i]);
	}
	free(books);
}
