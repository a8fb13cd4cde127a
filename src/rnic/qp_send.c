/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From work requests to FPDUs: the sender.
 *
 * rnic_tx_run() fills the batch (qp_tx.c) and sends it, in turn, until the stream is full or nothing more may be said. Messages are chosen in turn from the
 * send queue and from the answers that the peer waits for (qp_read.c); once begun, a message is sent to its end, as segments of two messages may not be mixed
 * (RFC 5041 5.3, 5040 5.5).
 *
 * What holds a work request back: the RTR, which goes first (RFC 6581 4.3); a fence, or the ORD, behind outstanding Reads and atomics; a local operation waits until
 * what was posted before it has left, as it may take away the memory of that. A work request whose memory cannot be had is not found out
 * before all ahead of it has left: those complete well.
 *
 * One run is bounded, so that a fast peer cannot keep the lock, or the thread that posts.
 */
#include <endian.h>
#include "rnic/rnic_internal.h"

#define RUN_BUDGET (4u << 20) /* bytes of stream */
#define PAGE 4096u
#define MANY_PAGES (8 * PAGE)
#define BATCH_BYTES (512u << 10) /* one call of the stream */

enum build { BUILT, NOTHING, NO_ROOM, FAULT };

/* ---- FPDUs of a work request ---- */

/* Payload of one segment behind a DDP header of @hdr_len: as much as fits; if that is many pages, whole ones, for what is aligned is copied faster. */
u32 rnic_tx_payload(const struct rnic_qp *q, u32 hdr_len)
{
	u32 most = mpa_mulpdu(&q->tx.mpa, q->tx.emss) - hdr_len;

	return most < MANY_PAGES ? most : most & ~(PAGE - 1);
}

/* Pieces of SGE memory for bytes [@off, @off + @len) of the message, held. Their number; 0: some of it cannot be had. */
static u32 sge_pieces(struct rnic_qp *q, const struct rnic_swqe *w, u32 off, u32 len, struct rnic_piece *p)
{
	u32 n = 0;

	for (u32 i = 0; i < w->num_sge && len; i++) {
		const struct ibv_sge *s = &w->sge[i];
		u32 part;

		if (off >= s->length) {
			off -= s->length;
			continue;
		}
		part = min(len, s->length - off);
		p[n].addr = s->addr + off;
		p[n].stag = s->lkey;
		p[n].len = part;
		if (rnic_mem_get(&q->qp, s->lkey, s->addr + off, part, 0, &p[n].mem)) {
			while (n--)
				rnic_mem_put(&p[n].mem);
			return 0;
		}
		p[n].ptr = p[n].mem.ptr;
		n++;
		len -= part;
		off = 0;
	}
	return n;
}

static u32 payload_pieces(struct rnic_qp *q, const struct rnic_swqe *w, u32 off, u32 len, struct rnic_piece *p)
{
	if (!w->inlined)
		return sge_pieces(q, w, off, len, p);
	*p = (struct rnic_piece){ .ptr = (const u8 *)w->sge + off, .len = len };
	return 1;
}

/* The memory cannot be had; what is ahead has left before that counts. */
static enum build wqe_fault(struct rnic_qp *q, struct rnic_swqe *w, enum ibv_wc_status status)
{
	if (!rnic_tx_is_empty(q))
		return NO_ROOM;
	w->status = (u8)status;
	return FAULT;
}

static u8 send_opcode(const struct rnic_swqe *w)
{
	if (w->opcode == IBV_WR_SEND_WITH_INV)
		return w->solicited ? RDMAP_SEND_SE_INV : RDMAP_SEND_INV;
	return w->solicited ? RDMAP_SEND_SE : RDMAP_SEND;
}

static bool is_write(const struct rnic_swqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Work requests are built one at a time: this one is. */
static void wqe_built(struct rnic_qp *q, struct rnic_swqe *w)
{
	w->end = q->tx.built;
	q->v->sq.off = 0;
	q->v->sq.next++;
	q->tx.source = RNIC_TX_NONE;
	q->tx.answer_turn = true;
}

/* One segment of a Send or Write. */
static enum build build_segment(struct rnic_qp *q, struct rnic_swqe *w)
{
	bool write = is_write(w);
	u32 hdr_len = write ? DDP_TAGGED_HDR : DDP_UNTAGGED_HDR;
	struct rnic_sq *sq = &q->v->sq;
	u32 off = sq->off, len = min(w->length - off, rnic_tx_payload(q, hdr_len)), n = 0;
	bool last = off + len == w->length;
	struct rnic_piece p[RNIC_MAX_SGE];
	u8 hdr[RDMAP_HDR_MAX];
	u8 opcode;

	if (!rnic_tx_room(q, w->num_sge, len))
		return NO_ROOM;
	if (len) {
		n = payload_pieces(q, w, off, len, p);
		if (!n)
			return wqe_fault(q, w, IBV_WC_LOC_PROT_ERR);
	}
	opcode = write ? RDMAP_WRITE : send_opcode(w);
	if (write)
		ddp_put_tagged(hdr + MPA_LEN_SIZE, opcode, last, w->rkey, w->remote_addr + off);
	else
		ddp_put_untagged(hdr + MPA_LEN_SIZE, opcode, last, w->opcode == IBV_WR_SEND_WITH_INV ? w->rkey : 0, sq->send_msn, off);
	rnic_tx_add(q, hdr, MPA_LEN_SIZE + hdr_len, p, n, len, 0);
	q->tx.source = RNIC_TX_WQE;
	sq->off += len;
	if (!last)
		return BUILT;
	q->tx_msgs[opcode]++;
	if (!write)
		w->msn = sq->send_msn++;
	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		sq->imm_due = true;
	else
		wqe_built(q, w);
	return BUILT;
}

/* RFC 7306 6: behind the Write; its upper four bytes are what verbs know as immediate data. */
static enum build build_imm(struct rnic_qp *q, struct rnic_swqe *w)
{
	u8 opcode = w->solicited ? RDMAP_IMM_SE : RDMAP_IMM;
	struct rnic_sq *sq = &q->v->sq;
	u8 hdr[RDMAP_HDR_MAX];
	u32 len = MPA_LEN_SIZE;

	if (!rnic_tx_room(q, 0, 0))
		return NO_ROOM;
	w->msn = sq->send_msn++;
	len += ddp_put_untagged(hdr + len, opcode, true, 0, w->msn, 0);
	len += rdmap_put_imm(hdr + len, (u64)be32toh(w->imm) << 32);
	rnic_tx_add(q, hdr, len, NULL, 0, 0, 0);
	q->tx_msgs[opcode]++;
	sq->imm_due = false;
	wqe_built(q, w);
	return BUILT;
}

static u32 put_atomic(const struct rnic_swqe *w, u8 *out)
{
	struct rdmap_atomic_req r = { .op = RDMAP_FETCH_ADD, .id = w->sink_stag, .stag = w->rkey, .to = w->remote_addr, .data = w->compare_add };

	if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		r.op = RDMAP_CMP_SWAP;
		r.data = w->swap;
		r.compare = w->compare_add;
		r.data_mask = r.compare_mask = UINT64_MAX;
	}
	return rdmap_put_atomic_req(out, &r);
}

static u32 put_read(const struct rnic_swqe *w, u8 *out)
{
	struct rdmap_read_req r = { .sink_stag = w->sink_stag, .len = w->length, .src_stag = w->rkey, .src_to = w->remote_addr };

	return rdmap_put_read_req(out, &r);
}

/* The sink's STag is one that lives as long as this Read and is nobody else's: the peer learns nothing of our memory. */
static enum build build_request(struct rnic_qp *q, struct rnic_swqe *w)
{
	u8 opcode = w->opcode == IBV_WR_RDMA_READ ? RDMAP_READ_REQ : RDMAP_ATOMIC_REQ;
	struct rnic_sq *sq = &q->v->sq;
	u8 hdr[RDMAP_HDR_MAX];
	u32 len = MPA_LEN_SIZE;

	if (sq->reads + q->rtr_resp_due >= q->qp.iw.ord)
		return NOTHING;
	if (!rnic_tx_room(q, 0, 0))
		return NO_ROOM;
	rand_secure(&w->sink_stag, sizeof(w->sink_stag));
	w->msn = sq->read_msn++;
	len += ddp_put_untagged(hdr + len, opcode, true, 0, w->msn, 0);
	len += opcode == RDMAP_READ_REQ ? put_read(w, hdr + len) : put_atomic(w, hdr + len);
	rnic_tx_add(q, hdr, len, NULL, 0, 0, 0);
	q->tx_msgs[opcode]++;
	sq->reads++;
	wqe_built(q, w);
	return BUILT;
}

static enum build run_local(struct rnic_qp *q, struct rnic_swqe *w)
{
	if (!rnic_tx_is_empty(q))
		return NO_ROOM;
	if (w->opcode == IBV_WR_LOCAL_INV) {
		if (rnic_stag_invalidate(&q->qp, w->rkey, false))
			return wqe_fault(q, w, IBV_WC_LOC_PROT_ERR);
	} else if (rnic_bind_execute(&q->qp, &w->bind)) {
		return wqe_fault(q, w, IBV_WC_MW_BIND_ERR);
	}
	w->done = true;
	wqe_built(q, w);
	q->tx.answer_turn = false;
	return BUILT;
}

static enum build build_wqe(struct rnic_qp *q)
{
	struct rnic_sq *sq = &q->v->sq;
	struct rnic_swqe *w = rnic_sq_at(sq, sq->next);

	if (sq->imm_due)
		return build_imm(q, w);
	if (!sq->off && w->status != IBV_WC_SUCCESS) { /* posted too late: completed in its turn */
		w->done = true;
		wqe_built(q, w);
		return BUILT;
	}
	if (!sq->off && w->fence && sq->reads + q->rtr_resp_due)
		return NOTHING;
	switch (w->opcode) {
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return run_local(q, w);
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return build_request(q, w);
	default:
		return build_segment(q, w);
	}
}

/* ---- choosing ---- */

/* May anything but control bytes be sent? */
static bool may_talk(const struct rnic_qp *q)
{
	const struct irdma_qp *qp = &q->qp;

	if (qp->state != RNIC_QP_RTS && qp->state != RNIC_QP_CLOSING)
		return false;
	return !qp->rtr_pending && !q->first_pending && !q->tx.fin_sent && (!qp->iw.initiator || !qp->iw.rtr || q->rtr_sent);
}

static bool has_wqe(const struct rnic_qp *q)
{
	return q->v && q->v->sq.next != q->v->sq.tail;
}

static bool has_answer(const struct rnic_qp *q)
{
	return q->answers.head != q->answers.tail;
}

static enum build build_answer(struct rnic_qp *q, const struct rdmap_error **err)
{
	bool built;

	*err = rnic_answer_build(q, &built);
	if (*err)
		return rnic_tx_is_empty(q) ? FAULT : NO_ROOM;
	return built ? BUILT : NO_ROOM;
}

/* The next FPDU into the batch. */
static enum build build_next(struct rnic_qp *q, const struct rdmap_error **err)
{
	enum build r = NOTHING;

	*err = &rnic_local_error;
	if (q->tx.source == RNIC_TX_ANSWER || (q->tx.source == RNIC_TX_NONE && has_answer(q) && (q->tx.answer_turn || !has_wqe(q))))
		return build_answer(q, err);
	if (has_wqe(q))
		r = build_wqe(q);
	if (r == NOTHING && q->tx.source == RNIC_TX_NONE && has_answer(q))
		r = build_answer(q, err);
	return r;
}

/* Fill the batch. FAULT only if there is nothing in it. */
static enum build build_batch(struct rnic_qp *q, const struct rdmap_error **err)
{
	u64 limit = q->tx.taken + BATCH_BYTES;
	enum build r;

	do
		r = build_next(q, err);
	while (r == BUILT && q->tx.built < limit);
	return r;
}

/* What is left over waits for the loop's turn, or a poller's. */
static void go_on_later(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	q->events |= PORT_WRITABLE;
	rnic_qp_kick(qp);
}

static void retire(struct rnic_qp *q)
{
	if (q->v)
		rnic_sq_retire(q);
}

/* Build and send, until the stream is full, nothing is left to say, or the budget is spent. */
void rnic_tx_run(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	u64 limit = q->tx.taken + RUN_BUDGET;
	const struct rdmap_error *err;
	enum build r = NOTHING;

	if (q->tx.held)
		__atomic_store_n(&q->tx.held, false, __ATOMIC_RELAXED);
	if (!qp->stream || qp->state == RNIC_QP_ERROR)
		return;
	for (;;) {
		if (!rnic_tx_is_empty(q) && rnic_tx_send(qp) != RNIC_TX_GO_ON)
			break;
		if (q->tx.taken >= limit) {
			go_on_later(qp);
			break;
		}
		if (!may_talk(q) || (!has_wqe(q) && !has_answer(q)))
			break;
		if (!rnic_tx_prepare(q)) {
			rnic_qp_abort(qp, RNIC_AE_QP_ERROR);
			break;
		}
		r = build_batch(q, &err);
		if (r == FAULT) {
			retire(q);
			rnic_tx_terminate(qp, err, NULL, 0);
			break;
		}
		if (rnic_tx_is_empty(q) && r == NOTHING)
			break;
	}
	retire(q);
	if (rnic_tx_is_empty(q))
		rnic_tx_set_stuck(q, false);
	if (qp->stream && qp->state != RNIC_QP_ERROR)
		rnic_tx_fin_if_due(qp);
}
