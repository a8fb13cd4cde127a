// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: the ibv_wr_*() way to post: wr_start() locks, each further call adds to a batch, wr_complete() posts it whole or not at all.
 *
 * Entries and inline bytes grow as they are needed and stay for the next batch. As they may move while they grow, a request names its
 * pieces by number until the end.
 */
#include <stdlib.h>
#include <string.h>
#include "shim/verbs_internal.h"

struct grown {
	void *mem;
	size_t used, room;         /* elements */
};

struct shim_wr {
	pthread_mutex_t lock;      /* from wr_start to wr_complete or wr_abort */
	struct grown wrs, sges, bytes;
	int error;                 /* the first, negative */
};

/* @n more elements of @size bytes, zeroed; their first index, -1: no memory. */
static ssize_t grow(struct grown *g, size_t n, size_t size)
{
	size_t first = g->used, room = max(g->room * 2, g->used + n);
	void *mem;

	if (g->used + n > g->room) {
		mem = reallocarray(g->mem, room, size);
		if (!mem)
			return -1;
		g->mem = mem;
		g->room = room;
	}
	g->used += n;
	if (n)
		memset((u8 *)g->mem + first * size, 0, n * size);
	return (ssize_t)first;
}

static struct ibv_send_wr *wrs(const struct shim_wr *w)
{
	return w->wrs.mem;
}

static struct ibv_sge *sges(const struct shim_wr *w)
{
	return w->sges.mem;
}

static void fail(struct shim_wr *w, int err)
{
	if (!w->error)
		w->error = err;
}

/* ---- requests ---- */

/* A request that fails to be added is written here. */
static __thread struct ibv_send_wr nowhere;

static struct ibv_send_wr *add(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct shim_wr *w = to_qp_ex(ex)->wr;
	ssize_t i = grow(&w->wrs, 1, sizeof(struct ibv_send_wr));
	struct ibv_send_wr *wr = &nowhere;

	if (i < 0)
		fail(w, -ENOMEM);
	else
		wr = &wrs(w)[i];
	wr->wr_id = ex->wr_id;
	wr->send_flags = ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE; /* wr_set_inline_data() says so */
	wr->opcode = opcode;
	return wr;
}

static struct ibv_send_wr *add_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, u32 rkey, u64 remote_addr)
{
	struct ibv_send_wr *wr = add(ex, opcode);

	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = remote_addr;
	return wr;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, u32 rkey, u64 remote_addr)
{
	add_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, u32 rkey, u64 remote_addr, __be32 imm)
{
	add_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr)->imm_data = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, u32 rkey, u64 remote_addr)
{
	add_rdma(ex, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	add(ex, IBV_WR_SEND);
}

static void wr_send_inv(struct ibv_qp_ex *ex, u32 rkey)
{
	add(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *ex, u32 rkey)
{
	add(ex, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, u32 rkey, u64 remote_addr, u64 compare, u64 swap)
{
	struct ibv_send_wr *wr = add(ex, IBV_WR_ATOMIC_CMP_AND_SWP);

	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add = compare;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, u32 rkey, u64 remote_addr, u64 value)
{
	struct ibv_send_wr *wr = add(ex, IBV_WR_ATOMIC_FETCH_AND_ADD);

	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add = value;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, u32 rkey, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = add(ex, IBV_WR_BIND_MW);

	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

/* ---- what this transport does not have ---- */

static void refuse(struct ibv_qp_ex *ex)
{
	fail(to_qp_ex(ex)->wr, -EOPNOTSUPP);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	refuse(ex); /* RFC 7306 has Immediate Data with Writes alone */
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, u16 hdr_sz, u16 mss)
{
	refuse(ex);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, u32 qpn, u32 qkey)
{
	refuse(ex);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, u32 srqn)
{
	refuse(ex);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, u32 rkey, u64 remote_addr, const void *value)
{
	refuse(ex);
}

/* ---- data of the last request ---- */

/* Room for @n pieces of it; NULL: it failed. */
static struct ibv_sge *add_sges(struct shim_qp *qp, size_t n)
{
	struct shim_wr *w = qp->wr;
	struct ibv_send_wr *wr;
	ssize_t first;

	if (!w->wrs.used || n > qp->cap.max_send_sge) {
		fail(w, -EINVAL);
		return NULL;
	}
	first = grow(&w->sges, n, sizeof(struct ibv_sge));
	if (first < 0) {
		fail(w, -ENOMEM);
		return NULL;
	}
	wr = &wrs(w)[w->wrs.used - 1];
	wr->sg_list = (struct ibv_sge *)(uintptr_t)first; /* a number until link_up() */
	wr->num_sge = (int)n;
	return n ? &sges(w)[first] : NULL;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct ibv_sge *sge = add_sges(to_qp_ex(ex), n);

	if (sge)
		memcpy(sge, list, n * sizeof(*list));
}

static void wr_set_sge(struct ibv_qp_ex *ex, u32 lkey, u64 addr, u32 length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

/* Bytes of all pieces; SIZE_MAX: more than fit. */
static size_t inline_len(const struct shim_qp *qp, size_t n, const struct ibv_data_buf *list)
{
	size_t i, sum = 0;

	for (i = 0; i < n; i++) {
		if (list[i].length > qp->cap.max_inline_data - sum)
			return SIZE_MAX;
		sum += list[i].length;
	}
	return sum;
}

/* The bytes are taken now: the program may reuse its memory at once. One piece stands for all. */
static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct shim_qp *qp = to_qp_ex(ex);
	struct shim_wr *w = qp->wr;
	size_t len = inline_len(qp, n, list), i;
	ssize_t at = len == SIZE_MAX ? 0 : grow(&w->bytes, len, 1);
	struct ibv_sge *sge;

	if (len == SIZE_MAX || at < 0) {
		fail(w, len == SIZE_MAX ? -EINVAL : -ENOMEM);
		return;
	}
	sge = add_sges(qp, 1);
	if (!sge)
		return;
	sge->addr = (u64)at; /* as above */
	sge->length = (u32)len;
	wrs(w)[w->wrs.used - 1].send_flags |= IBV_SEND_INLINE;
	for (i = 0; i < n; i++) {
		if (list[i].length)
			memcpy((u8 *)w->bytes.mem + at, list[i].addr, list[i].length);
		at += (ssize_t)list[i].length;
	}
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &buf);
}

/* ---- the batch ---- */

static void wr_start(struct ibv_qp_ex *ex)
{
	struct shim_wr *w = to_qp_ex(ex)->wr;

	pthread_mutex_lock(&w->lock);
	w->wrs.used = w->sges.used = w->bytes.used = 0;
	w->error = 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&to_qp_ex(ex)->wr->lock);
}

/* Nothing moves any more: numbers become pointers. */
static void link_up(struct shim_wr *w)
{
	struct ibv_send_wr *wr = wrs(w);
	size_t i;

	for (i = 0; i < w->wrs.used; i++) {
		wr[i].next = i + 1 < w->wrs.used ? &wr[i + 1] : NULL;
		if (!wr[i].num_sge)
			continue;
		wr[i].sg_list = sges(w) + (uintptr_t)wr[i].sg_list;
		if (wr[i].send_flags & IBV_SEND_INLINE)
			wr[i].sg_list->addr += (uintptr_t)w->bytes.mem;
	}
}

/*
 * Only a whole batch is posted. (One that others fill up meanwhile, with ibv_post_send() on the same queue, is cut short: then the program
 * has two posters and no order.)
 */
static int post(struct shim_qp *qp)
{
	struct shim_wr *w = qp->wr;
	struct rnic_qp_info info;
	struct ibv_send_wr *bad;

	if (w->error)
		return w->error;
	if (!w->wrs.used)
		return 0;
	if (w->wrs.used > 1) {
		rnic_qp_query(qp->rnic, &info);
		if (w->wrs.used > qp->cap.max_send_wr - min(info.sq_used, qp->cap.max_send_wr))
			return -ENOMEM;
	}
	link_up(w);
	return rnic_post_send(qp->rnic, wrs(w), &bad);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	SHIM_UNCANCELLED;
	struct shim_qp *qp = to_qp_ex(ex);
	int err = post(qp);

	pthread_mutex_unlock(&qp->wr->lock);
	return -err;
}

/* ---- life ---- */

#define SUPPORTED                                                                                                              \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ |      \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |                                              \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV)

static void fill_calls(struct ibv_qp_ex *ex)
{
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_atomic_write = wr_atomic_write;
}

int shim_wr_setup(struct shim_qp *qp, u64 ops)
{
	if (ops & ~(u64)SUPPORTED)
		return -EOPNOTSUPP;
	qp->wr = calloc(1, sizeof(*qp->wr));
	if (!qp->wr)
		return -ENOMEM;
	pthread_mutex_init(&qp->wr->lock, NULL);
	fill_calls(&qp->ex);
	qp->extended = true;
	return 0;
}

void shim_wr_free(struct shim_qp *qp)
{
	if (!qp->wr)
		return;
	pthread_mutex_destroy(&qp->wr->lock);
	free(qp->wr->wrs.mem);
	free(qp->wr->sges.mem);
	free(qp->wr->bytes.mem);
	free(qp->wr);
}
