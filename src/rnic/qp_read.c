/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * RDMA Reads and atomic operations, both ends of them (RFC 5040 5.3, RFC 7306 5).
 *
 * As data source: requests wait in a ring of the negotiated IRD; who asks for more at a time is terminated. The sender answers them in order, between
 * messages of the send queue. Memory is checked when the request arrives, as RFC 5040 5.3 asks, and again for each segment that is sent: it may
 * have been deregistered. Atomic operations are executed in their turn, by a compare-and-swap on the program's memory, so that they are atomic to all
 * QPs of this process and to its own atomic instructions.
 *
 * As data sink: responses come in the order of the requests. A segment must name the STag that the oldest outstanding Read made up, continue exactly where
 * the last one ended, and carry L exactly at the end of what was asked for: whatever else a peer sends finds no memory.
 */
#include <stdlib.h>
#include <string.h>
#include "rnic/rnic_internal.h"

#define ATOMIC_SIZE 8u

static const struct rdmap_error stream_lost = { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM };
static const struct rdmap_error unexpected = { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE };
static const struct rdmap_error access_violation = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS };
static const struct rdmap_error no_buffer = { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER };
static const struct rdmap_error bad_stag = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG };
static const struct rdmap_error bad_bounds = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS };

/* ---- data source: what the peer asks for ---- */

static const struct rdmap_error *check_source(struct rnic_qp *q, u32 stag, u64 to, u32 len, int access)
{
	enum rnic_mem_status st = RNIC_MEM_STAG;
	struct rnic_mem mem;

	if (q->qp.pd && !rx_is_over(q))
		st = rnic_mem_get(&q->qp, stag, to, len, access, &mem);
	if (st)
		return rnic_rdmap_mem_error(st);
	rnic_mem_put(&mem);
	return NULL;
}

static bool allowed(const struct rnic_qp *q, int access)
{
	return !q->v || __atomic_load_n(&q->access, __ATOMIC_RELAXED) & access;
}

/* qp->lock held. A free place in the ring, NULL: more than the IRD. */
static struct rnic_answer *answer_add(struct rnic_qp *q)
{
	struct rnic_answers *a = &q->answers;

	if (!a->ring) {
		a->size = max((u32)q->qp.iw.ird, q->qp.iw.rtr == RDMAP_RTR_READ ? 1u : 0u);
		if (!a->size)
			return NULL;
		a->ring = calloc(a->size, sizeof(*a->ring));
		if (!a->ring)
			return NULL;
	}
	if (a->tail - a->head == a->size)
		return NULL;
	return &a->ring[a->tail++ % a->size];
}

static const struct rdmap_error *answer_queue(struct rnic_qp *q, const struct rnic_answer *wanted)
{
	const struct rdmap_error *err = NULL;
	struct rnic_answer *a;

	q->rx_asked = true;
	mutex_lock(&q->qp.lock);
	if (!q->tx.fin_sent) { /* nothing may follow our FIN */
		a = answer_add(q);
		if (a)
			*a = *wanted;
		else
			err = &stream_lost;
	}
	mutex_unlock(&q->qp.lock);
	return err;
}

/* A Read of nothing names no memory (RFC 5040 5.3). */
const struct rdmap_error *rnic_answer_read(struct rnic_qp *q, const struct ddp_hdr *h)
{
	struct rnic_answer a = { .atomic = false };
	const struct rdmap_error *err;

	rdmap_get_read_req(h->payload, &a.read);
	if (a.read.len) {
		if (!allowed(q, IBV_ACCESS_REMOTE_READ))
			return &access_violation;
		err = check_source(q, a.read.src_stag, a.read.src_to, a.read.len, IBV_ACCESS_REMOTE_READ);
		if (err)
			return err;
	}
	return answer_queue(q, &a);
}

const struct rdmap_error *rnic_answer_atomic(struct rnic_qp *q, const struct ddp_hdr *h)
{
	struct rnic_answer a = { .atomic = true };
	const struct rdmap_error *err;

	rdmap_get_atomic_req(h->payload, &a.op);
	if (!allowed(q, IBV_ACCESS_REMOTE_ATOMIC))
		return &access_violation;
	err = check_source(q, a.op.stag, a.op.to, ATOMIC_SIZE, IBV_ACCESS_REMOTE_ATOMIC);
	if (err)
		return err;
	if (a.op.to % ATOMIC_SIZE || (a.op.op != RDMAP_FETCH_ADD && a.op.op != RDMAP_CMP_SWAP))
		return &stream_lost;
	return answer_queue(q, &a);
}

static void answer_done(struct rnic_qp *q, u8 opcode)
{
	q->tx_msgs[opcode]++;
	q->answers.head++;
	q->answers.off = 0;
	q->tx.source = RNIC_TX_NONE;
	q->tx.answer_turn = false;
}

static const struct rdmap_error *build_response(struct rnic_qp *q, const struct rdmap_read_req *r, bool *built)
{
	u32 off = q->answers.off, len = min(r->len - off, rnic_tx_payload(q, DDP_TAGGED_HDR));
	struct rnic_piece p = { .addr = r->src_to + off, .stag = r->src_stag, .len = len };
	bool last = off + len == r->len;
	enum rnic_mem_status st;
	u8 hdr[RDMAP_HDR_MAX];

	if (!rnic_tx_room(q, 1, len))
		return NULL;
	if (len) {
		st = rnic_mem_get(&q->qp, p.stag, p.addr, len, IBV_ACCESS_REMOTE_READ, &p.mem);
		if (st)
			return rnic_rdmap_mem_error(st);
		p.ptr = p.mem.ptr;
	}
	ddp_put_tagged(hdr + MPA_LEN_SIZE, RDMAP_READ_RESP, last, r->sink_stag, r->sink_to + off);
	rnic_tx_add(q, hdr, MPA_LEN_SIZE + DDP_TAGGED_HDR, &p, len ? 1 : 0, len, IBV_ACCESS_REMOTE_READ);
	*built = true;
	q->tx.source = RNIC_TX_ANSWER;
	q->answers.off += len;
	if (last)
		answer_done(q, RDMAP_READ_RESP);
	return NULL;
}

static u64 execute(const struct rdmap_atomic_req *r, u64 *at)
{
	u64 old = __atomic_load_n(at, __ATOMIC_SEQ_CST);

	while (!__atomic_compare_exchange_n(at, &old, rdmap_atomic_result(r, old), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}

static const struct rdmap_error *build_atomic(struct rnic_qp *q, const struct rdmap_atomic_req *r, bool *built)
{
	enum rnic_mem_status st;
	struct rnic_mem mem;
	u8 hdr[RDMAP_HDR_MAX];
	u32 len = MPA_LEN_SIZE;
	u64 original;

	if (!rnic_tx_room(q, 0, 0))
		return NULL;
	st = rnic_mem_get(&q->qp, r->stag, r->to, ATOMIC_SIZE, IBV_ACCESS_REMOTE_ATOMIC, &mem);
	if (st)
		return rnic_rdmap_mem_error(st);
	if ((uintptr_t)mem.ptr % ATOMIC_SIZE) { /* an iova that is aligned when its memory is not */
		rnic_mem_put(&mem);
		return &stream_lost;
	}
	original = execute(r, (u64 *)(void *)mem.ptr);
	rnic_mem_put(&mem);
	len += ddp_put_untagged(hdr + len, RDMAP_ATOMIC_RESP, true, 0, ++q->atomic_msn, 0);
	len += rdmap_put_atomic_resp(hdr + len, r->id, original);
	rnic_tx_add(q, hdr, len, NULL, 0, 0, 0);
	*built = true;
	answer_done(q, RDMAP_ATOMIC_RESP);
	return NULL;
}

/* qp->lock held. The next FPDU of the oldest answer; @built false: no room in the batch. An error: its memory is gone. */
const struct rdmap_error *rnic_answer_build(struct rnic_qp *q, bool *built)
{
	const struct rnic_answer *a = &q->answers.ring[q->answers.head % q->answers.size];

	*built = false;
	return a->atomic ? build_atomic(q, &a->op, built) : build_response(q, &a->read, built);
}

/* ---- data sink: what we asked for ---- */

/* qp->lock held. The oldest outstanding request, if the kind fits. */
static struct rnic_swqe *oldest(struct rnic_qp *q, bool read)
{
	struct rnic_swqe *w = q->v && !q->v->sq_flushed ? rnic_sq_oldest_read(&q->v->sq) : NULL;

	return w && (w->opcode == IBV_WR_RDMA_READ) == read ? w : NULL;
}

/* The response to a Read RTR, of nothing, comes before all others. */
static const struct rdmap_error *check_response(struct rnic_qp *q, const struct ddp_hdr *h)
{
	const struct rnic_swqe *w;

	if (q->rtr_resp_due)
		return h->payload_len ? &bad_stag : h->last ? NULL : &unexpected;
	w = oldest(q, true);
	if (!w)
		return h->payload_len ? &bad_stag : &unexpected;
	if (h->stag != w->sink_stag)
		return &bad_stag;
	if (h->to != w->placed || h->payload_len > w->length - w->placed)
		return &bad_bounds;
	if (h->last != (h->payload_len == w->length - w->placed))
		return &stream_lost;
	return NULL;
}

const struct rdmap_error *rnic_response_start(struct rnic_qp *q, const struct ddp_hdr *h)
{
	const struct rdmap_error *err;

	mutex_lock(&q->qp.lock);
	err = check_response(q, h);
	mutex_unlock(&q->qp.lock);
	return err;
}

/* qp->lock held. Our own memory cannot be had: that is nothing a peer could help. */
static const struct rdmap_error *local_fault(struct rnic_swqe *w)
{
	w->status = IBV_WC_LOC_PROT_ERR;
	return &rnic_local_error;
}

int rnic_response_sink(struct rnic_qp *q, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err)
{
	struct rnic_swqe *w;
	int n = 0;

	mutex_lock(&q->qp.lock);
	w = oldest(q, true);
	if (!w || rx_is_over(q)) {
		*err = &rdmap_rx_stop;
	} else {
		n = rnic_recv_pieces(q, w->sge, w->num_sge, (u64)w->placed + off, len, NULL, iov, max);
		if (!n)
			*err = local_fault(w);
	}
	mutex_unlock(&q->qp.lock);
	return n;
}

/* qp->lock held. */
static void request_done(struct rnic_qp *q, struct rnic_swqe *w)
{
	w->done = true;
	q->v->sq.reads--;
	rnic_tx_run(&q->qp); /* completes it, and goes on with what waited for it */
}

const struct rdmap_error *rnic_response_finish(struct rnic_qp *q, const struct ddp_hdr *h)
{
	struct rnic_swqe *w;

	mutex_lock(&q->qp.lock);
	if (q->rtr_resp_due) {
		q->rtr_resp_due = false;
		rnic_tx_run(&q->qp);
	} else {
		w = oldest(q, true);
		if (w) {
			w->placed += h->payload_len;
			if (h->last)
				request_done(q, w);
		}
	}
	mutex_unlock(&q->qp.lock);
	return NULL;
}

/* qp->lock held. */
static const struct rdmap_error *place_original(struct rnic_qp *q, struct rnic_swqe *w, u64 original)
{
	struct iovec iov[ATOMIC_SIZE];
	const u8 *from = (const u8 *)&original;
	int n = rnic_recv_pieces(q, w->sge, w->num_sge, 0, ATOMIC_SIZE, NULL, iov, ATOMIC_SIZE);

	if (!n)
		return local_fault(w);
	for (int i = 0; i < n; i++) {
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
		from += iov[i].iov_len;
	}
	return NULL;
}

const struct rdmap_error *rnic_atomic_response(struct rnic_qp *q, const struct ddp_hdr *h)
{
	const struct rdmap_error *err = NULL;
	struct rnic_swqe *w;
	u64 original;
	u32 id;

	rdmap_get_atomic_resp(h->payload, &id, &original);
	mutex_lock(&q->qp.lock);
	w = oldest(q, false);
	if (!w)
		err = &no_buffer;
	else if (w->sink_stag != id)
		err = &stream_lost;
	else
		err = place_original(q, w, original);
	if (!err)
		request_done(q, w);
	mutex_unlock(&q->qp.lock);
	return err;
}
