/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a QP receives: FPDUs, to the handler of their opcode.
 *
 * A responder in the peer-to-peer model waits for the RTR (RFC 6581 4.3) and takes nothing else first but a Terminate, with
 * which an initiator may answer our reply.
 *
 * There is no receive queue and no memory region yet. A peer therefore gets what the RFCs give to a QP
 * that has posted no buffer and registered no memory. A message of zero bytes names no memory,
 * so its STag is not looked at (RFC 5041 7.1, RFC 5040 5.1).
 */
#include "rnic/rnic_internal.h"

/* Responses that may wait for a peer that does not read them; one who asks on beyond that is not playing by its ORD. */
#define RESPONSE_BACKLOG 32768u

static const struct rdmap_error ddp_no_buffer = { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER };
static const struct rdmap_error ddp_bad_msn = { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_MSN };
static const struct rdmap_error ddp_bad_stag = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG };
static const struct rdmap_error rdmap_bad_stag = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STAG };
static const struct rdmap_error rdmap_unexpected = { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE };
static const struct rdmap_error rdmap_stream_lost = { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM };
static const struct rdmap_error no_matching_rtr = { TERM_LAYER_LLP, 0, TERM_MPA_RTR };

/* Handlers return the error that the Terminate has to say, or NULL. */

static const struct rdmap_error *rx_untagged(struct irdma_qp *qp, const struct ddp_hdr *h)
{
	return &ddp_no_buffer;
}

static const struct rdmap_error *rx_write(struct irdma_qp *qp, const struct ddp_hdr *h)
{
	return h->payload_len ? &ddp_bad_stag : NULL;
}

static const struct rdmap_error *rx_read_req(struct irdma_qp *qp, const struct ddp_hdr *h)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	u8 resp[DDP_TAGGED_HDR];

	if (h->msn != q->read_msn)
		return &ddp_bad_msn;
	q->read_msn++;
	if (rdmap_read_len(h))
		return &rdmap_bad_stag;
	if (qp->tx_fin)
		return NULL; /* nothing may follow our FIN */
	if (rnic_tx_queued(qp) > RESPONSE_BACKLOG)
		return &rdmap_stream_lost;
	rnic_tx_ulpdu(qp, resp, rdmap_build_rtr_response(h, resp));
	return NULL;
}

static const struct rdmap_error *rx_read_resp(struct irdma_qp *qp, const struct ddp_hdr *h)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	if (h->payload_len)
		return &ddp_bad_stag;
	if (!q->rtr_resp_due || !h->last)
		return &rdmap_unexpected;
	q->rtr_resp_due = false;
	return NULL;
}

static const struct rdmap_error *rx_atomic_req(struct irdma_qp *qp, const struct ddp_hdr *h)
{
	return h->msn == rnic_qp_of(qp)->read_msn ? &rdmap_bad_stag : &ddp_bad_msn;
}

static const struct rdmap_error *rx_terminate(struct irdma_qp *qp, const struct ddp_hdr *h)
{
	rdmap_parse_terminate(h, &qp->term);
	log_info(ROOM, "qp %u: the peer terminates: %s", qp->qp_num, rdmap_error_str(&qp->term));
	qp->rtr_pending = false;
	timer_del(&qp->rtr_timer);
	rnic_qp_set_ae(qp, RNIC_AE_TERMINATE_RECEIVED);
	rnic_qp_set_state(qp, RNIC_QP_TERMINATE);
	rnic_tx_fin(qp);
	rnic_qp_raise(qp);
	return NULL;
}

static const struct rdmap_error *(*const handlers[RDMAP_OPCODES])(struct irdma_qp *, const struct ddp_hdr *) = {
	[RDMAP_WRITE] = rx_write,
	[RDMAP_READ_REQ] = rx_read_req,
	[RDMAP_READ_RESP] = rx_read_resp,
	[RDMAP_SEND] = rx_untagged,
	[RDMAP_SEND_INV] = rx_untagged,
	[RDMAP_SEND_SE] = rx_untagged,
	[RDMAP_SEND_SE_INV] = rx_untagged,
	[RDMAP_TERMINATE] = rx_terminate,
	[RDMAP_IMM] = rx_untagged,
	[RDMAP_IMM_SE] = rx_untagged,
	[RDMAP_ATOMIC_REQ] = rx_atomic_req,
	[RDMAP_ATOMIC_RESP] = rx_untagged,
};

static void rtr_arrived(struct irdma_qp *qp)
{
	qp->rtr_pending = false;
	timer_del(&qp->rtr_timer);
	log_debug(ROOM, "qp %u: RTR received", qp->qp_num);
}

/* The first message of a peer-to-peer initiator. */
static const struct rdmap_error *rx_first(struct irdma_qp *qp, const struct ddp_hdr *h)
{
	if (h->opcode == RDMAP_TERMINATE)
		return rx_terminate(qp, h);
	if (!rdmap_is_rtr(h, qp->iw.rtr))
		return &no_matching_rtr;
	rtr_arrived(qp);
	return qp->iw.rtr == RDMAP_RTR_READ ? rx_read_req(qp, h) : NULL;
}

static void rx_ulpdu(struct irdma_qp *qp, const u8 *ulpdu, u32 len)
{
	const struct rdmap_error *fault;
	struct rdmap_error err;
	struct ddp_hdr h;

	qp->rx_fpdus++;
	/* RFC 6581 4.3 calls this RTR a "zero-length FPDU": some take it at its word and send no DDP header. */
	if (len == 0 && qp->rtr_pending && qp->iw.rtr == RDMAP_RTR_SEND) {
		rtr_arrived(qp);
		return;
	}
	if (ddp_parse(ulpdu, len, &h, &err)) {
		rnic_tx_terminate(qp, &err, ulpdu, len);
		return;
	}
	fault = qp->rtr_pending ? rx_first(qp, &h) : handlers[h.opcode](qp, &h);
	if (fault)
		rnic_tx_terminate(qp, fault, ulpdu, len);
}

/* States in which what comes in still counts; else it is read and forgotten. */
static bool rx_open(const struct irdma_qp *qp)
{
	return qp->state == RNIC_QP_RTS || qp->state == RNIC_QP_CLOSING;
}

void rnic_rx_bytes(struct irdma_qp *qp, const u8 *data, size_t len)
{
	qp->rx_bytes += len;
	while (len && rx_open(qp)) {
		const u8 *ulpdu;
		u32 ulpdu_len;
		ssize_t n = mpa_rx_feed(&qp->rx, data, len, &ulpdu, &ulpdu_len);

		if (n < 0) {
			const struct rdmap_error err = { TERM_LAYER_LLP, 0, (u8)qp->rx.error };

			rnic_tx_terminate(qp, &err, NULL, 0);
			return;
		}
		data += n;
		len -= (size_t)n;
		if (ulpdu)
			rx_ulpdu(qp, ulpdu, ulpdu_len);
	}
}
