/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The end of a QP's queues: every work request completes, in order, exactly once.
 *
 * rnic_qp_flush() is the one place, whatever the end is: Terminate, reset, FIN, the upper layer's wish, rnic_qp_destroy(). The send queue is under the QP's lock and
 * is flushed at once; the receive queue belongs to whoever reads the stream, who gets a note if that is another thread just now. The
 * work request that is to blame has got its status before; all others are IBV_WC_WR_FLUSH_ERR. Completions that a peer may have seen happen keep their success.
 */
#include "rnic/rnic_internal.h"

#define TERM_QUOTE 6u /* where the quoted header begins */

/* qp->lock held. What the stream has taken is done, if nobody answers to it. */
static void flush_sq(struct rnic_qp *q)
{
	struct rnic_verbs *v = q->v;
	struct rnic_sq *sq = &v->sq;

	rnic_sq_retire(q);
	v->sq_flushed = true;
	while (sq->head != sq->tail) {
		const struct rnic_swqe *w = rnic_sq_at(sq, sq->head++);

		rnic_sq_complete(q, w, w->status != IBV_WC_SUCCESS ? w->status : IBV_WC_WR_FLUSH_ERR);
	}
	sq->next = sq->read_head = sq->tail;
	sq->reads = sq->off = 0;
	sq->imm_due = false;
}

void rnic_qp_flush(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	if (q->flushed)
		return;
	q->flushed = true;
	rnic_tx_detach(qp);
	q->answers.head = q->answers.tail;
	q->answers.off = 0;
	if (q->v)
		flush_sq(q);
	rnic_rx_leave_note(q, RNIC_NOTE_FLUSH);
}

static void flush_one(void *ctx, const struct rnic_rwqe *w)
{
	rnic_recv_complete(ctx, w, IBV_WC_WR_FLUSH_ERR);
}

/* rx_lock held. Again when something was posted just when it ran. */
void rnic_rx_flush(struct rnic_qp *q)
{
	struct rnic_verbs *v = q->v;
	bool first = !q->rx_flushed;

	__atomic_store_n(&q->rx_flushed, true, __ATOMIC_SEQ_CST);
	if (!v)
		return;
	if (v->receiving)
		rnic_recv_complete(q, v->cur, v->cur_status);
	v->receiving = false;
	if (!v->attr.srq)
		rnic_rq_flush(&v->rq, v->cur, flush_one, q);
	else if (first)
		rnic_qp_async(&q->qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

/* ---- whose fault it was ---- */

/* What the program learns of a Terminate that we send: verbs' affiliated errors. */
void rnic_qp_term_event(struct irdma_qp *qp, const struct rdmap_error *err)
{
	enum ibv_event_type type = IBV_EVENT_QP_REQ_ERR;

	if ((err->layer == TERM_LAYER_RDMAP && err->etype == TERM_RDMAP_PROTECTION) || (err->layer == TERM_LAYER_DDP && err->etype == TERM_DDP_TAGGED))
		type = IBV_EVENT_QP_ACCESS_ERR;
	else if (err->layer != TERM_LAYER_LLP && err->etype == TERM_RDMAP_CATASTROPHIC)
		type = IBV_EVENT_QP_FATAL;
	rnic_qp_async(qp, type);
}

static enum ibv_wc_status remote_status(const struct rdmap_error *err)
{
	if (err->layer == TERM_LAYER_RDMAP && err->etype == TERM_RDMAP_PROTECTION)
		return IBV_WC_REM_ACCESS_ERR;
	if (err->layer == TERM_LAYER_DDP && err->etype == TERM_DDP_TAGGED)
		return IBV_WC_REM_ACCESS_ERR;
	if (err->layer == TERM_LAYER_DDP && err->etype == TERM_DDP_UNTAGGED)
		return IBV_WC_REM_INV_REQ_ERR;
	return IBV_WC_REM_OP_ERR;
}

/* The header that a Terminate quotes behind its control field and, with M, the length of the segment (RFC 5040 4.8). */
static bool quoted_header(const struct ddp_hdr *term, struct ddp_hdr *h)
{
	const u8 *p = term->payload;
	struct rdmap_error err;
	u32 hdr_len;

	if ((p[2] & (TERM_HDRCT_M | TERM_HDRCT_D)) != (TERM_HDRCT_M | TERM_HDRCT_D) || term->payload_len < TERM_QUOTE + DDP_TAGGED_HDR)
		return false;
	hdr_len = p[TERM_QUOTE] & DDP_TAGGED ? DDP_TAGGED_HDR : DDP_UNTAGGED_HDR;
	if (term->payload_len < TERM_QUOTE + hdr_len)
		return false;
	return ddp_parse(p + TERM_QUOTE, (u32)p[4] << 8 | p[5], h, &err) == 0;
}

static bool is_meant(const struct rnic_swqe *w, const struct ddp_hdr *h)
{
	switch (h->opcode) {
	case RDMAP_WRITE:
		return (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) && w->rkey == h->stag &&
		       h->to - w->remote_addr <= w->length;
	case RDMAP_READ_REQ:
	case RDMAP_ATOMIC_REQ:
		return w->expects && w->msn == h->msn;
	case RDMAP_SEND:
	case RDMAP_SEND_INV:
	case RDMAP_SEND_SE:
	case RDMAP_SEND_SE_INV:
		return (w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_INV) && w->msn == h->msn;
	default:
		return false;
	}
}

/* The peer terminates: the work request that it names, if it is still outstanding, fails for its reason. */
void rnic_sq_blame_terminate(struct rnic_qp *q, const struct ddp_hdr *term)
{
	struct rnic_sq *sq = &q->v->sq;
	struct ddp_hdr h;

	if (!quoted_header(term, &h))
		return;
	rnic_sq_retire(q);
	for (u32 i = sq->head; i != sq->tail; i++) {
		struct rnic_swqe *w = rnic_sq_at(sq, i);

		if ((i != sq->next || sq->off) && (s32)(i - sq->next) <= 0 && is_meant(w, &h)) {
			w->status = (u8)remote_status(&q->qp.term);
			return;
		}
	}
}
