/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Where received data goes: Sends into receive WQEs, Writes into regions, Immediate Data into completions.
 *
 * Nothing is placed before it was checked. A Write's segment is checked as a whole when it begins (STag, right, bounds, wrap: RFC 5041 7.1, RFC 5040 5.1.1); a
 * Send's length against its WQE. Memory is held from there to the end of the call that brought the bytes, and no longer, for whoever deregisters it waits; a
 * segment that goes on in the next call asks again, and finds that a region is dead. All functions are called with rx_lock held.
 */
#include <endian.h>
#include <string.h>
#include "rnic/rnic_internal.h"

static const struct rdmap_error no_buffer = { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER };
static const struct rdmap_error too_long = { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_TOO_LONG };
static const struct rdmap_error bad_stag = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG };
static const struct rdmap_error access_violation = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS };
static const struct rdmap_error cannot_invalidate = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_P_INVALIDATE };
const struct rdmap_error rnic_local_error = { TERM_LAYER_RDMAP, TERM_RDMAP_CATASTROPHIC, 0 };

/* RFC 5040 4.8: what RDMAP says of a Read's source, an atomic's target, and of missing rights. */
const struct rdmap_error *rnic_rdmap_mem_error(enum rnic_mem_status s)
{
	static const struct rdmap_error errors[] = {
		[RNIC_MEM_STAG] = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STAG },
		[RNIC_MEM_STREAM] = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STREAM_STAG },
		[RNIC_MEM_BOUNDS] = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_BOUNDS },
		[RNIC_MEM_WRAP] = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_WRAP },
		[RNIC_MEM_ACCESS] = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS },
	};

	return &errors[s];
}

/* RFC 5041 8.1: what DDP says of a tagged segment; rights are RDMAP's business. */
const struct rdmap_error *rnic_ddp_mem_error(enum rnic_mem_status s)
{
	static const struct rdmap_error errors[] = {
		[RNIC_MEM_STAG] = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG },
		[RNIC_MEM_STREAM] = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STREAM_STAG },
		[RNIC_MEM_BOUNDS] = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS },
		[RNIC_MEM_WRAP] = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_WRAP },
		[RNIC_MEM_ACCESS] = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS },
	};

	return &errors[s];
}

/* ---- memory ---- */

void rnic_recv_drop_holds(struct rnic_verbs *v)
{
	while (v->holds)
		rnic_mem_put(&v->hold[--v->holds]);
	v->has_target = false;
}

/*
 * Where bytes [@off, @off + @len) of a message go, held; as many of the first pieces as fit. @pd: an SRQ's; NULL: the QP's. 0: memory
 * cannot be had.
 */
int rnic_recv_pieces(struct rnic_qp *q, const struct ibv_sge *sge, u32 n, u64 off, u32 len, const struct rnic_pd *pd, struct iovec *iov, int max)
{
	struct rnic_verbs *v = q->v;
	int pieces = 0;

	for (u32 i = 0; i < n && len && pieces < max && v->holds < RNIC_RX_HOLDS; i++) {
		struct rnic_mem *m = &v->hold[v->holds];
		u64 addr = sge[i].addr + off;
		u32 part;

		if (off >= sge[i].length) {
			off -= sge[i].length;
			continue;
		}
		part = (u32)min((u64)len, sge[i].length - off);
		if (pd ? rnic_mem_get_local(pd, sge[i].lkey, addr, part, IBV_ACCESS_LOCAL_WRITE, m) :
			 rnic_mem_get(&q->qp, sge[i].lkey, addr, part, IBV_ACCESS_LOCAL_WRITE, m))
			return 0;
		v->holds++;
		iov[pieces++] = (struct iovec){ .iov_base = m->ptr, .iov_len = part };
		len -= part;
		off = 0;
	}
	return pieces;
}

/* ---- receive WQEs ---- */

static bool take_wqe(struct rnic_verbs *v)
{
	v->receiving = v->attr.srq ? rnic_srq_take(v->attr.srq, v->cur) : rnic_rq_take(&v->rq, v->cur, NULL);
	v->cur_status = IBV_WC_WR_FLUSH_ERR;
	return v->receiving;
}

static void push(struct rnic_qp *q, struct rnic_cqe *cqe)
{
	cqe->wc.qp_num = q->qp.qp_num;
	if (!rnic_cq_push(q->v->attr.recv_cq, cqe))
		rnic_qp_alarm(q);
}

/* @w ends without a message in it. */
void rnic_recv_complete(struct rnic_qp *q, const struct rnic_rwqe *w, enum ibv_wc_status status)
{
	struct rnic_cqe cqe = { .wc = { .wr_id = w->wr_id, .status = status, .opcode = IBV_WC_RECV }, .solicited = true };

	q->rx_failed++;
	push(q, &cqe);
}

/* ---- Sends ---- */

static bool is_solicited(u8 opcode)
{
	return opcode == RDMAP_SEND_SE || opcode == RDMAP_SEND_SE_INV || opcode == RDMAP_IMM_SE;
}

static bool invalidates(u8 opcode)
{
	return opcode == RDMAP_SEND_INV || opcode == RDMAP_SEND_SE_INV;
}

const struct rdmap_error *rnic_send_start(struct rnic_qp *q, const struct ddp_hdr *h)
{
	struct rnic_verbs *v = q->v;

	if (!v || (h->mo == 0 && !v->receiving && !take_wqe(v)))
		return &no_buffer;
	if ((u64)h->mo + h->payload_len > v->cur->length) {
		v->cur_status = IBV_WC_LOC_LEN_ERR;
		return &too_long;
	}
	return NULL;
}

int rnic_send_sink(struct rnic_qp *q, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err)
{
	struct rnic_verbs *v = q->v;
	const struct rnic_srq *srq = v->attr.srq;
	int n = rnic_recv_pieces(q, v->cur->sge, v->cur->num_sge, (u64)h->mo + off, len, srq ? srq->pd : NULL, iov, max);

	if (!n) {
		v->cur_status = IBV_WC_LOC_PROT_ERR;
		*err = &rnic_local_error;
	}
	return n;
}

const struct rdmap_error *rnic_send_finish(struct rnic_qp *q, const struct ddp_hdr *h)
{
	struct rnic_verbs *v = q->v;
	struct rnic_cqe cqe;

	if (!h->last)
		return NULL;
	memset(&cqe, 0, sizeof(cqe));
	if (invalidates(h->opcode)) {
		if (rnic_stag_invalidate(&q->qp, h->stag, true))
			return &cannot_invalidate;
		cqe.wc.wc_flags = IBV_WC_WITH_INV;
		cqe.wc.invalidated_rkey = h->stag;
	}
	cqe.wc.wr_id = v->cur->wr_id;
	cqe.wc.opcode = IBV_WC_RECV;
	cqe.wc.byte_len = h->mo + h->payload_len;
	cqe.solicited = is_solicited(h->opcode);
	v->receiving = false;
	v->write_len = 0;
	push(q, &cqe);
	return NULL;
}

/* RFC 7306 6: takes a receive WQE, too, but none of its memory. The Write that it belongs to went before. */
const struct rdmap_error *rnic_imm_finish(struct rnic_qp *q, const struct ddp_hdr *h)
{
	struct rnic_verbs *v = q->v;
	struct rnic_cqe cqe;

	if (!v || !take_wqe(v))
		return &no_buffer;
	memset(&cqe, 0, sizeof(cqe));
	cqe.wc.wr_id = v->cur->wr_id;
	cqe.wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	cqe.wc.wc_flags = IBV_WC_WITH_IMM;
	cqe.wc.imm_data = htobe32((u32)(rdmap_get_imm(h->payload) >> 32));
	cqe.wc.byte_len = v->write_len;
	cqe.solicited = is_solicited(h->opcode);
	v->receiving = false;
	v->write_len = 0;
	push(q, &cqe);
	return NULL;
}

/* ---- Writes ---- */

/* Memory for bytes [@off, end) of the segment. */
static const struct rdmap_error *hold_target(struct rnic_qp *q, const struct ddp_hdr *h, u32 off)
{
	struct rnic_verbs *v = q->v;
	enum rnic_mem_status st = rnic_mem_get(&q->qp, h->stag, h->to + off, h->payload_len - off, IBV_ACCESS_REMOTE_WRITE, &v->target);

	if (st)
		return rnic_ddp_mem_error(st);
	v->hold[v->holds++] = v->target;
	v->target_off = off;
	v->has_target = true;
	return NULL;
}

/* A segment of nothing names no memory (RFC 5041 7.1). */
const struct rdmap_error *rnic_write_start(struct rnic_qp *q, const struct ddp_hdr *h)
{
	if (!h->payload_len)
		return NULL;
	if (!q->v)
		return &bad_stag;
	if (!(__atomic_load_n(&q->access, __ATOMIC_RELAXED) & IBV_ACCESS_REMOTE_WRITE))
		return &access_violation;
	return hold_target(q, h, 0);
}

int rnic_write_sink(struct rnic_qp *q, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err)
{
	struct rnic_verbs *v = q->v;

	if (!v->has_target) {
		*err = hold_target(q, h, off);
		if (*err)
			return 0;
	}
	iov->iov_base = v->target.ptr + (off - v->target_off);
	iov->iov_len = len;
	return 1;
}

const struct rdmap_error *rnic_write_finish(struct rnic_qp *q, const struct ddp_hdr *h)
{
	struct rnic_verbs *v = q->v;

	if (!v)
		return NULL;
	if (v->write_done)
		v->write_len = 0;
	v->write_len += h->payload_len;
	v->write_done = h->last;
	return NULL;
}
