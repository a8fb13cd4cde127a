/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The send queue: a ring of work requests, checked and copied when they are posted.
 *
 * [head, next) is built or executed and waits for its end: the stream takes the last byte (Send, Write), the response is complete (Read, atomics). [next, tail)
 * is still to be built; of the first of them a part may be. Work requests complete in the order they were posted (RFC 5040 5.5, rule 13 ff. leaves it to verbs,
 * which ask for it), so a Send behind a Read completes after it. All functions are called with qp->lock held.
 */
#include <stdlib.h>
#include <string.h>
#include "rnic/rnic_internal.h"

#define ATOMIC_SIZE 8u
#define INLINE_MIN 64u
#define FLAGS_ALL (IBV_SEND_SIGNALED | IBV_SEND_FENCE)

/* What each opcode may have. */
static const struct {
	u32 flags;             /* besides FLAGS_ALL */
	enum ibv_wc_opcode wc;
	bool known;
	bool data;             /* SGEs */
	bool expects;          /* a response, counted against the ORD */
} kinds[] = {
	[IBV_WR_SEND] = { IBV_SEND_SOLICITED | IBV_SEND_INLINE, IBV_WC_SEND, true, true },
	[IBV_WR_SEND_WITH_INV] = { IBV_SEND_SOLICITED | IBV_SEND_INLINE, IBV_WC_SEND, true, true },
	[IBV_WR_RDMA_WRITE] = { IBV_SEND_SOLICITED | IBV_SEND_INLINE, IBV_WC_RDMA_WRITE, true, true },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { IBV_SEND_SOLICITED | IBV_SEND_INLINE, IBV_WC_RDMA_WRITE, true, true },
	[IBV_WR_RDMA_READ] = { IBV_SEND_SOLICITED, IBV_WC_RDMA_READ, true, true, true },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = { IBV_SEND_SOLICITED, IBV_WC_COMP_SWAP, true, true, true },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { IBV_SEND_SOLICITED, IBV_WC_FETCH_ADD, true, true, true },
	[IBV_WR_LOCAL_INV] = { 0, IBV_WC_LOCAL_INV, true },
	[IBV_WR_BIND_MW] = { 0, IBV_WC_BIND_MW, true },
};

/* As much inline data as the room of the SGEs holds anyway; rsockets count on some, whatever they ask for. */
static u32 inline_room(const struct ibv_qp_cap *cap)
{
	u32 sges = cap->max_send_sge * (u32)sizeof(struct ibv_sge);

	return max(max(sges, INLINE_MIN), (cap->max_inline_data + 7) & ~7u);
}

int rnic_sq_init(struct rnic_sq *sq, struct ibv_qp_cap *cap)
{
	u32 size = 1;

	memset(sq, 0, sizeof(*sq));
	while (size < cap->max_send_wr)
		size *= 2;
	sq->max_wr = cap->max_send_wr;
	sq->max_sge = cap->max_send_sge;
	sq->max_inline = cap->max_inline_data = inline_room(cap);
	sq->mask = size - 1;
	sq->stride = (u32)sizeof(struct rnic_swqe) + sq->max_inline;
	sq->send_msn = sq->read_msn = 1;
	sq->ring = calloc(size, sq->stride);
	return sq->ring ? 0 : -ENOMEM;
}

/* ---- posting ---- */

static bool is_atomic(unsigned int opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static int check(const struct rnic_qp *q, const struct ibv_send_wr *wr)
{
	const struct rnic_sq *sq = &q->v->sq;
	unsigned int op = wr->opcode;

	if (op == IBV_WR_SEND_WITH_IMM)
		return -EOPNOTSUPP; /* iWARP has no message for it */
	if (op >= ARRAY_SIZE(kinds) || !kinds[op].known || wr->send_flags & ~(FLAGS_ALL | kinds[op].flags))
		return -EINVAL;
	if (kinds[op].data && (wr->num_sge < 0 || (wr->num_sge > (int)sq->max_sge && !(wr->send_flags & IBV_SEND_INLINE))))
		return -EINVAL;
	if (kinds[op].expects && !q->qp.iw.ord)
		return -EINVAL; /* the peer takes none */
	return 0;
}

/* Copies the payload. Its length, or -EINVAL. */
static int copy_inline(const struct rnic_sq *sq, const struct ibv_send_wr *wr, u8 *out)
{
	u32 len = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length > sq->max_inline - len)
			return -EINVAL;
		if (wr->sg_list[i].length)
			memcpy(out + len, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		len += wr->sg_list[i].length;
	}
	return (int)len;
}

static int copy_sges(const struct ibv_send_wr *wr, struct rnic_swqe *w)
{
	u64 len = 0;

	w->num_sge = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		if (!wr->sg_list[i].length)
			continue;
		w->sge[w->num_sge++] = wr->sg_list[i];
		len += wr->sg_list[i].length;
	}
	return len > RNIC_MAX_MSG ? -EINVAL : (int)len;
}

static int copy_data(const struct rnic_sq *sq, const struct ibv_send_wr *wr, struct rnic_swqe *w)
{
	int len;

	w->inlined = wr->send_flags & IBV_SEND_INLINE;
	len = w->inlined ? copy_inline(sq, wr, (u8 *)w->sge) : copy_sges(wr, w);
	if (len < 0 || (is_atomic(wr->opcode) && len != ATOMIC_SIZE))
		return -EINVAL;
	w->length = (u32)len;
	return 0;
}

static int copy_operands(const struct ibv_send_wr *wr, struct rnic_swqe *w)
{
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		w->rkey = wr->invalidate_rkey;
		break;
	case IBV_WR_BIND_MW:
		return rnic_bind_ops ? rnic_bind_get(wr, &w->bind) : -EINVAL;
	default:
		w->imm = wr->imm_data; /* of those that have it */
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
		break;
	}
	return 0;
}

/* 0, -EINVAL, -EOPNOTSUPP, -ENOMEM: the queue is full. */
int rnic_sq_post(struct rnic_qp *q, const struct ibv_send_wr *wr)
{
	struct rnic_sq *sq = &q->v->sq;
	struct rnic_swqe *w = rnic_sq_at(sq, sq->tail);
	int rc = check(q, wr);

	if (rc)
		return rc;
	if (sq->tail - sq->head >= sq->max_wr)
		return -ENOMEM;
	w->num_sge = 0;
	w->inlined = false;
	w->length = 0;
	rc = kinds[wr->opcode].data ? copy_data(sq, wr, w) : 0;
	if (!rc)
		rc = copy_operands(wr, w);
	if (rc)
		return rc;
	w->wr_id = wr->wr_id;
	w->opcode = (u8)wr->opcode;
	w->status = IBV_WC_SUCCESS;
	w->signaled = wr->send_flags & IBV_SEND_SIGNALED || q->v->attr.sq_sig_all;
	w->solicited = wr->send_flags & IBV_SEND_SOLICITED;
	w->fence = wr->send_flags & IBV_SEND_FENCE;
	w->expects = kinds[wr->opcode].expects;
	w->done = false;
	w->placed = 0;
	sq->tail++;
	return 0;
}

/* ---- completing ---- */

void rnic_sq_complete(struct rnic_qp *q, const struct rnic_swqe *w, enum ibv_wc_status status)
{
	struct rnic_cqe cqe;

	if (status == IBV_WC_SUCCESS && !w->signaled)
		return;
	memset(&cqe, 0, sizeof(cqe));
	cqe.wc.wr_id = w->wr_id;
	cqe.wc.status = status;
	cqe.wc.opcode = kinds[w->opcode].wc;
	cqe.wc.byte_len = w->length;
	cqe.wc.qp_num = q->qp.qp_num;
	if (status != IBV_WC_SUCCESS)
		q->tx_failed++;
	if (!rnic_cq_push(q->v->attr.send_cq, &cqe))
		rnic_qp_alarm(q);
}

static bool is_done(const struct rnic_qp *q, const struct rnic_swqe *w)
{
	return w->done || (!w->expects && w->end <= q->tx.taken);
}

void rnic_sq_retire(struct rnic_qp *q)
{
	struct rnic_sq *sq = &q->v->sq;

	while (sq->head != sq->next) {
		const struct rnic_swqe *w = rnic_sq_at(sq, sq->head);

		if (!is_done(q, w))
			return;
		sq->head++; /* first: who sees the completion may post */
		rnic_sq_complete(q, w, w->status);
	}
}

/* The work request that the stream is taking. */
void rnic_sq_blame_sending(struct rnic_qp *q, enum ibv_wc_status status)
{
	struct rnic_sq *sq = &q->v->sq;

	for (u32 i = sq->head; i != sq->tail; i++) {
		struct rnic_swqe *w = rnic_sq_at(sq, i);

		if (i == sq->next || (!w->expects && !is_done(q, w))) {
			w->status = (u8)status;
			return;
		}
	}
}

/* The oldest Read or atomic whose response is not complete; NULL: none. */
struct rnic_swqe *rnic_sq_oldest_read(struct rnic_sq *sq)
{
	if (!sq->reads)
		return NULL;
	if ((s32)(sq->read_head - sq->head) < 0)
		sq->read_head = sq->head;
	for (;; sq->read_head++) {
		struct rnic_swqe *w = rnic_sq_at(sq, sq->read_head);

		if (w->expects && !w->done)
			return w;
	}
}
