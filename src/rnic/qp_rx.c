/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a QP receives: the questions of rdmap_rx, to whom each opcode concerns. Called with rx_lock held; what touches sending takes qp->lock.
 *
 * A responder in the peer-to-peer model waits for the RTR (RFC 6581 4.3) and takes nothing else first but a Terminate, with
 * which an initiator may answer our reply. In the client-server model it sends nothing before the initiator's first FPDU (RFC 5044 7.1.2): an FPDU right
 * behind the reply is taken for private data by some, Linux siw among them. A program that speaks first all the same, to an initiator that keeps silent, is held up
 * for FIRST_FPDU_NS (qp.c) only: the reply has been read by then, and both would wait for ever. Debian's ucmatose, ib_write_lat and fi_pingpong need that. Who insists on the RFC
 * sets irdma_device.responder_waits.
 *
 * A QP without queues has no buffer and no memory: a peer gets what the RFCs give to such one. A message of zero bytes names no
 * memory, so its STag is not looked at (RFC 5041 7.1, RFC 5040 5.1).
 */
#include "rnic/rnic_internal.h"

static const struct rdmap_error no_matching_rtr = { TERM_LAYER_LLP, 0, TERM_MPA_RTR };
static const struct rdmap_error bad_length = { TERM_LAYER_LLP, 0, TERM_MPA_MARKER };
static const struct rdmap_error no_sink = { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE };

typedef const struct rdmap_error *(*hdr_fn)(struct rnic_qp *q, const struct ddp_hdr *h);

/* The peer says why it gives up; nothing behind it counts. */
static const struct rdmap_error *rx_terminate(struct rnic_qp *q, const struct ddp_hdr *h)
{
	struct irdma_qp *qp = &q->qp;

	mutex_lock(&qp->lock);
	if (qp->state == RNIC_QP_RTS || qp->state == RNIC_QP_CLOSING) {
		rdmap_parse_terminate(h, &qp->term);
		log_info(ROOM, "qp %u: the peer terminates: %s", qp->qp_num, rdmap_error_str(&qp->term));
		q->term_received = true;
		qp->rtr_pending = false;
		timer_del(&qp->rtr_timer);
		rnic_qp_set_ae(qp, RNIC_AE_TERMINATE_RECEIVED);
		rnic_qp_set_state(qp, RNIC_QP_TERMINATE);
		if (q->v)
			rnic_sq_blame_terminate(q, h);
		rnic_qp_async(qp, IBV_EVENT_QP_FATAL);
		rnic_qp_flush(qp);
		if (qp->state == RNIC_QP_TERMINATE)
			rnic_tx_fin(qp);
		rnic_qp_raise(qp);
	}
	mutex_unlock(&qp->lock);
	return &rdmap_rx_stop;
}

static const struct {
	hdr_fn start;
	int (*sink)(struct rnic_qp *q, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err);
	hdr_fn finish;
} handlers[RDMAP_OPCODES] = {
	[RDMAP_WRITE] = { rnic_write_start, rnic_write_sink, rnic_write_finish },
	[RDMAP_READ_REQ] = { .finish = rnic_answer_read },
	[RDMAP_READ_RESP] = { rnic_response_start, rnic_response_sink, rnic_response_finish },
	[RDMAP_SEND] = { rnic_send_start, rnic_send_sink, rnic_send_finish },
	[RDMAP_SEND_INV] = { rnic_send_start, rnic_send_sink, rnic_send_finish },
	[RDMAP_SEND_SE] = { rnic_send_start, rnic_send_sink, rnic_send_finish },
	[RDMAP_SEND_SE_INV] = { rnic_send_start, rnic_send_sink, rnic_send_finish },
	[RDMAP_TERMINATE] = { .finish = rx_terminate },
	[RDMAP_IMM] = { .finish = rnic_imm_finish },
	[RDMAP_IMM_SE] = { .finish = rnic_imm_finish },
	[RDMAP_ATOMIC_REQ] = { .finish = rnic_answer_atomic },
	[RDMAP_ATOMIC_RESP] = { .finish = rnic_atomic_response },
};

/* ---- the initiator's first message ---- */

static bool rtr_is_pending(const struct rnic_qp *q)
{
	return __atomic_load_n(&q->qp.rtr_pending, __ATOMIC_RELAXED);
}

static void first_arrived(struct rnic_qp *q)
{
	mutex_lock(&q->qp.lock);
	__atomic_store_n(&q->qp.rtr_pending, false, __ATOMIC_RELAXED);
	__atomic_store_n(&q->first_pending, false, __ATOMIC_RELAXED);
	timer_del(&q->qp.rtr_timer);
	log_debug(ROOM, "qp %u: the initiator's first message is there", q->qp.qp_num);
	rnic_tx_run(&q->qp); /* what waited for it */
	mutex_unlock(&q->qp.lock);
}

/* The first message of a peer-to-peer initiator is whole: it is the RTR, or a Terminate. */
static const struct rdmap_error *finish_first(struct rnic_qp *q, const struct ddp_hdr *h)
{
	const struct rdmap_error *err = NULL;

	if (h->opcode == RDMAP_TERMINATE)
		return rx_terminate(q, h);
	if (!rdmap_is_rtr(h, q->qp.iw.rtr))
		return &no_matching_rtr;
	if (h->opcode == RDMAP_READ_REQ)
		err = rnic_answer_read(q, h);
	first_arrived(q);
	return err;
}

/* ---- rdmap_rx_ops ---- */

static const struct rdmap_error *op_start(void *ctx, const struct ddp_hdr *h)
{
	struct rnic_qp *q = ctx;

	if (rx_is_over(q))
		return &rdmap_rx_stop;
	if (rtr_is_pending(q)) /* one with payload is none */
		return h->payload_len && handlers[h->opcode].start ? &no_matching_rtr : NULL;
	return handlers[h->opcode].start ? handlers[h->opcode].start(q, h) : NULL;
}

static int op_sink(void *ctx, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err)
{
	struct rnic_qp *q = ctx;

	*err = &no_sink; /* of an opcode that has none; cannot be */
	if (rx_is_over(q))
		*err = &rdmap_rx_stop;
	else if (q->v && handlers[h->opcode].sink)
		return handlers[h->opcode].sink(q, h, off, len, iov, max, err);
	return 0;
}

static const struct rdmap_error *op_finish(void *ctx, const struct ddp_hdr *h)
{
	const struct rdmap_error *err;
	struct rnic_qp *q = ctx;

	if (q->v)
		rnic_recv_drop_holds(q->v);
	if (rx_is_over(q))
		return &rdmap_rx_stop;
	q->rx_msgs[h->opcode] += h->last;
	err = rtr_is_pending(q) ? finish_first(q, h) : handlers[h->opcode].finish(q, h);
	if (unlikely(__atomic_load_n(&q->first_pending, __ATOMIC_RELAXED)))
		first_arrived(q);
	if (q->v)
		rnic_recv_drop_holds(q->v);
	return err;
}

/* RFC 6581 4.3 calls the Send RTR a "zero-length FPDU": some take it at its word and send no DDP header. */
static const struct rdmap_error *op_empty(void *ctx)
{
	struct rnic_qp *q = ctx;

	if (!rtr_is_pending(q) || q->qp.iw.rtr != RDMAP_RTR_SEND)
		return &bad_length;
	first_arrived(q);
	return NULL;
}

const struct rdmap_rx_ops rnic_rx_ops = {
	.start = op_start,
	.sink = op_sink,
	.finish = op_finish,
	.empty = op_empty,
};
