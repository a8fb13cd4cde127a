/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * DDP and RDMAP headers (RFC 5041 4, 5040 4, 7306): one table by opcode, a pure decoder, builders, the
 * RTR messages of RFC 6581.
 *
 * The decoder checks what a segment alone can show: lengths, versions, opcode, tagged bit,
 * queue. The order of segments is the receiver's business, STags and buffers are the QP's. RFC 5041 and 5040 leave one
 * case without a code, a ULPDU too short for its own header; MPA's "ULPDU length mismatch" says it best.
 */
#include <errno.h>
#include "rdmap/rdmap_internal.h"

#define RTR_MSN 1 /* RFC 5041 5.3: the first of its queue */

const struct rdmap_op rdmap_ops[RDMAP_OPCODES] = {
	[RDMAP_WRITE]       = { "RDMA Write", true, 0, 0, RDMAP_ANY_LEN },
	[RDMAP_READ_REQ]    = { "RDMA Read Request", false, DDP_QN_READ_REQ, RDMAP_READ_REQ_SIZE, RDMAP_READ_REQ_SIZE },
	[RDMAP_READ_RESP]   = { "RDMA Read Response", true, 0, 0, RDMAP_ANY_LEN },
	[RDMAP_SEND]        = { "Send", false, DDP_QN_SEND, 0, RDMAP_ANY_LEN },
	[RDMAP_SEND_INV]    = { "Send with Invalidate", false, DDP_QN_SEND, 0, RDMAP_ANY_LEN },
	[RDMAP_SEND_SE]     = { "Send with Solicited Event", false, DDP_QN_SEND, 0, RDMAP_ANY_LEN },
	[RDMAP_SEND_SE_INV] = { "Send with Solicited Event and Invalidate", false, DDP_QN_SEND, 0, RDMAP_ANY_LEN },
	[RDMAP_TERMINATE]   = { "Terminate", false, DDP_QN_TERMINATE, 4, RDMAP_ANY_LEN },
	[RDMAP_IMM]         = { "Immediate Data", false, DDP_QN_SEND, RDMAP_IMM_SIZE, RDMAP_IMM_SIZE },
	[RDMAP_IMM_SE]      = { "Immediate Data with Solicited Event", false, DDP_QN_SEND, RDMAP_IMM_SIZE, RDMAP_IMM_SIZE },
	[RDMAP_ATOMIC_REQ]  = { "Atomic Request", false, DDP_QN_READ_REQ, RDMAP_ATOMIC_REQ_SIZE, RDMAP_ATOMIC_REQ_SIZE },
	[RDMAP_ATOMIC_RESP] = { "Atomic Response", false, DDP_QN_ATOMIC_RESP, RDMAP_ATOMIC_RESP_SIZE, RDMAP_ATOMIC_RESP_SIZE },
};

/**
 * rdmap_opcode_str() - name of an opcode
 * @opcode: enum rdmap_opcode, or anything
 *
 * Return: the name, never NULL.
 */
const char *rdmap_opcode_str(u8 opcode)
{
	return opcode < RDMAP_OPCODES ? rdmap_ops[opcode].name : "unknown opcode";
}

static int fault(struct rdmap_error *err, u8 layer, u8 etype, u8 code)
{
	*err = (struct rdmap_error){ .layer = layer, .etype = etype, .code = code };
	return -EPROTO;
}

static void parse_tagged(const u8 *p, struct ddp_hdr *h)
{
	h->stag = get_be32(p + 2);
	h->to = get_be64(p + 6);
}

static void parse_untagged(const u8 *p, struct ddp_hdr *h)
{
	h->stag = get_be32(p + 2);
	h->qn = get_be32(p + 6);
	h->msn = get_be32(p + 10);
	h->mo = get_be32(p + 14);
}

/* A message of fixed length is far below the smallest MULPDU (RFC 5044 3.1): it is one segment. */
static int check_fixed(const struct rdmap_op *op, const struct ddp_hdr *h, struct rdmap_error *err)
{
	if (op->max_len == RDMAP_ANY_LEN)
		return 0;
	if (h->mo)
		return fault(err, TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_MO);
	if (h->payload_len > op->max_len)
		return fault(err, TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_TOO_LONG);
	if (!h->last)
		return fault(err, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM);
	return 0;
}

static int check_rdmap(u8 control, const struct ddp_hdr *h, struct rdmap_error *err)
{
	const struct rdmap_op *op;

	if (control >> RDMAP_VERSION_SHIFT != RDMAP_VERSION)
		return fault(err, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_BAD_VERSION);
	if (h->opcode >= RDMAP_OPCODES)
		return fault(err, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE);
	op = &rdmap_ops[h->opcode];
	if (op->tagged != h->tagged)
		return fault(err, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE);
	if (!op->tagged && op->qn != h->qn)
		return fault(err, TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_QN);
	if (check_fixed(op, h, err))
		return -EPROTO;
	if (h->payload_len < op->min_len)
		return fault(err, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM);
	return 0;
}

/**
 * ddp_parse() - decode the headers of a ULPDU
 * @ulpdu: the ULPDU; at most its first DDP_UNTAGGED_HDR bytes are read
 * @len: its length
 * @out: the header; its payload points into @ulpdu
 * @err: on failure, what the Terminate has to say
 *
 * Return: 0, or -EPROTO.
 */
int ddp_parse(const u8 *ulpdu, u32 len, struct ddp_hdr *out, struct rdmap_error *err)
{
	u32 hdr_len;

	memset(out, 0, sizeof(*out));
	if (len < DDP_TAGGED_HDR)
		return fault(err, TERM_LAYER_LLP, 0, TERM_MPA_MARKER);
	out->tagged = ulpdu[0] & DDP_TAGGED;
	out->last = ulpdu[0] & DDP_LAST;
	out->opcode = ulpdu[1] & RDMAP_OPCODE_MASK;
	hdr_len = out->tagged ? DDP_TAGGED_HDR : DDP_UNTAGGED_HDR;
	if (len < hdr_len)
		return fault(err, TERM_LAYER_LLP, 0, TERM_MPA_MARKER);
	if (out->tagged)
		parse_tagged(ulpdu, out);
	else
		parse_untagged(ulpdu, out);
	out->payload = ulpdu + hdr_len;
	out->payload_len = len - hdr_len;
	if ((ulpdu[0] & DDP_VERSION_MASK) != DDP_VERSION)
		return out->tagged ? fault(err, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_VERSION) :
				     fault(err, TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_VERSION);
	if (!out->tagged && out->qn > DDP_QN_ATOMIC_RESP)
		return fault(err, TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_QN);
	return check_rdmap(ulpdu[1], out, err);
}

static void put_control(u8 *out, u8 ddp, u8 opcode, bool last)
{
	out[0] = (u8)(ddp | DDP_VERSION | (last ? DDP_LAST : 0));
	out[1] = (u8)(RDMAP_VERSION << RDMAP_VERSION_SHIFT | opcode);
}

/**
 * ddp_put_untagged() - header of an untagged segment
 * @out: DDP_UNTAGGED_HDR bytes
 * @opcode: enum rdmap_opcode; says the queue, too
 * @last: the last segment of its message
 * @inv_stag: STag that the peer invalidates, 0 if none
 * @msn: message sequence number of its queue
 * @mo: bytes of the message before this segment
 *
 * Return: its length.
 */
u32 ddp_put_untagged(u8 *out, u8 opcode, bool last, u32 inv_stag, u32 msn, u32 mo)
{
	put_control(out, 0, opcode, last);
	put_be32(out + 2, inv_stag);
	put_be32(out + 6, rdmap_ops[opcode].qn);
	put_be32(out + 10, msn);
	put_be32(out + 14, mo);
	return DDP_UNTAGGED_HDR;
}

/**
 * ddp_put_tagged() - header of a tagged segment
 * @out: DDP_TAGGED_HDR bytes
 * @opcode: RDMAP_WRITE or RDMAP_READ_RESP
 * @last: the last segment of its message
 * @stag: where it goes at the peer
 * @to: offset there, of this segment
 *
 * Return: its length.
 */
u32 ddp_put_tagged(u8 *out, u8 opcode, bool last, u32 stag, u64 to)
{
	put_control(out, DDP_TAGGED, opcode, last);
	put_be32(out + 2, stag);
	put_be64(out + 6, to);
	return DDP_TAGGED_HDR;
}

/**
 * rdmap_build_rtr() - the initiator's ready-to-receive message (RFC 6581 4.3)
 * @kind: one of RDMAP_RTR_SEND, RDMAP_RTR_WRITE, RDMAP_RTR_READ
 * @ulpdu: where it goes
 *
 * Its STags and offsets are zero: nobody checks those of a message without data.
 *
 * Return: length of the ULPDU, 0 for another @kind.
 */
u32 rdmap_build_rtr(u32 kind, u8 ulpdu[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE])
{
	switch (kind) {
	case RDMAP_RTR_SEND:
		return ddp_put_untagged(ulpdu, RDMAP_SEND, true, 0, RTR_MSN, 0);
	case RDMAP_RTR_WRITE:
		return ddp_put_tagged(ulpdu, RDMAP_WRITE, true, 0, 0);
	case RDMAP_RTR_READ:
		memset(ulpdu + DDP_UNTAGGED_HDR, 0, RDMAP_READ_REQ_SIZE);
		return ddp_put_untagged(ulpdu, RDMAP_READ_REQ, true, 0, RTR_MSN, 0) + RDMAP_READ_REQ_SIZE;
	default:
		return 0;
	}
}

/**
 * rdmap_is_rtr() - is this first message the agreed RTR?
 * @h: decoded by ddp_parse()
 * @kind: one of RDMAP_RTR_SEND, RDMAP_RTR_WRITE, RDMAP_RTR_READ
 *
 * Return: true if so.
 */
bool rdmap_is_rtr(const struct ddp_hdr *h, u32 kind)
{
	if (!h->last)
		return false;
	switch (kind) {
	case RDMAP_RTR_SEND:
		return h->opcode == RDMAP_SEND && h->payload_len == 0 && h->msn == RTR_MSN && h->mo == 0;
	case RDMAP_RTR_WRITE:
		return h->opcode == RDMAP_WRITE && h->payload_len == 0;
	case RDMAP_RTR_READ:
		return h->opcode == RDMAP_READ_REQ && h->msn == RTR_MSN && rdmap_read_len(h) == 0;
	default:
		return false;
	}
}

/**
 * rdmap_read_len() - how many bytes a Read Request asks for
 * @h: a Read Request, decoded by ddp_parse()
 *
 * Return: RFC 5040 4.4's RDMA Read Message Size.
 */
u32 rdmap_read_len(const struct ddp_hdr *h)
{
	return get_be32(h->payload + 12);
}

/**
 * rdmap_build_rtr_response() - answer a Read Request of zero bytes
 * @h: the request, decoded by ddp_parse()
 * @ulpdu: where the zero-length Read Response goes
 *
 * Return: length of the ULPDU.
 */
u32 rdmap_build_rtr_response(const struct ddp_hdr *h, u8 ulpdu[DDP_TAGGED_HDR])
{
	return ddp_put_tagged(ulpdu, RDMAP_READ_RESP, true, get_be32(h->payload), get_be64(h->payload + 4));
}
