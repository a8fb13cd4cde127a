/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The Terminate message (RFC 5040 4.8): how one end tells the other why it gives the stream up.
 */
#include <errno.h>
#include "rdmap/rdmap_internal.h"

/*
 * What is quoted, RFC 5040 figure 10: errors of the LLP and local catastrophic ones quote nothing, all
 * other errors the DDP header with the length of its segment, RDMAP's the Read Request too.
 */
static u8 quoted(const struct rdmap_error *err, const u8 *ulpdu, u32 len)
{
	u32 hdr_len;

	if (!ulpdu || err->layer == TERM_LAYER_LLP || err->etype == TERM_RDMAP_CATASTROPHIC || len < DDP_TAGGED_HDR)
		return 0;
	hdr_len = ulpdu[0] & DDP_TAGGED ? DDP_TAGGED_HDR : DDP_UNTAGGED_HDR;
	if (len < hdr_len)
		return 0;
	if (err->layer != TERM_LAYER_RDMAP || ulpdu[0] & DDP_TAGGED ||
	    (ulpdu[1] & RDMAP_OPCODE_MASK) != RDMAP_READ_REQ || len < hdr_len + RDMAP_READ_REQ_SIZE)
		return TERM_HDRCT_M | TERM_HDRCT_D;
	return TERM_HDRCT_M | TERM_HDRCT_D | TERM_HDRCT_R;
}

/**
 * rdmap_build_terminate() - the ULPDU of a Terminate
 * @err: what happened
 * @msn: message sequence number on queue 2
 * @ulpdu: the offending ULPDU, NULL if there is none
 * @len: its length
 * @out: where it goes
 *
 * Return: its length.
 */
u32 rdmap_build_terminate(const struct rdmap_error *err, u32 msn, const u8 *ulpdu, u32 len, u8 out[RDMAP_TERM_MAX])
{
	u8 hdrct = quoted(err, ulpdu, len);
	u32 pos = ddp_put_untagged(out, RDMAP_TERMINATE, true, 0, msn, 0);
	u32 n;

	out[pos++] = (u8)(err->layer << 4 | (err->etype & 0xF));
	out[pos++] = err->code;
	out[pos++] = hdrct;
	out[pos++] = 0;
	if (!hdrct)
		return pos;
	put_be16(out + pos, (u16)len);
	pos += 2;
	n = ulpdu[0] & DDP_TAGGED ? DDP_TAGGED_HDR : DDP_UNTAGGED_HDR;
	if (hdrct & TERM_HDRCT_R)
		n += RDMAP_READ_REQ_SIZE;
	memcpy(out + pos, ulpdu, n);
	return pos + n;
}

/**
 * rdmap_parse_terminate() - what the peer says
 * @h: a Terminate, decoded by ddp_parse()
 * @err: its cause
 *
 * Return: 0, or -EPROTO if this is no Terminate.
 */
int rdmap_parse_terminate(const struct ddp_hdr *h, struct rdmap_error *err)
{
	if (h->tagged || h->opcode != RDMAP_TERMINATE || h->payload_len < rdmap_ops[RDMAP_TERMINATE].min_len)
		return -EPROTO;
	err->layer = h->payload[0] >> 4;
	err->etype = h->payload[0] & 0xF;
	err->code = h->payload[1];
	return 0;
}

static const struct {
	struct rdmap_error err;
	const char *text;
} error_names[] = {
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_CATASTROPHIC, 0 }, "RDMAP: local catastrophic error" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STAG }, "RDMAP remote protection: invalid STag" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_BOUNDS }, "RDMAP remote protection: base or bounds violation" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS }, "RDMAP remote protection: access rights violation" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STREAM_STAG }, "RDMAP remote protection: STag not associated with this stream" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_WRAP }, "RDMAP remote protection: tagged offset wraps" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_P_INVALIDATE }, "RDMAP remote protection: STag cannot be invalidated" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, 255 }, "RDMAP remote protection: unspecified" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_BAD_VERSION }, "RDMAP remote operation: invalid version" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE }, "RDMAP remote operation: unexpected opcode" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM }, "RDMAP remote operation: catastrophic, this stream" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_GLOBAL }, "RDMAP remote operation: catastrophic, global" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_O_INVALIDATE }, "RDMAP remote operation: STag cannot be invalidated" },
	{ { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, 255 }, "RDMAP remote operation: unspecified" },
	{ { TERM_LAYER_DDP, TERM_DDP_CATASTROPHIC, 0 }, "DDP: local catastrophic error" },
	{ { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG }, "DDP tagged buffer: invalid STag" },
	{ { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS }, "DDP tagged buffer: base or bounds violation" },
	{ { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STREAM_STAG }, "DDP tagged buffer: STag not associated with this stream" },
	{ { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_WRAP }, "DDP tagged buffer: tagged offset wraps" },
	{ { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_VERSION }, "DDP tagged buffer: invalid version" },
	{ { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_QN }, "DDP untagged buffer: invalid queue number" },
	{ { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER }, "DDP untagged buffer: no buffer" },
	{ { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_MSN }, "DDP untagged buffer: message sequence number out of range" },
	{ { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_MO }, "DDP untagged buffer: invalid message offset" },
	{ { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_TOO_LONG }, "DDP untagged buffer: message too long for its buffer" },
	{ { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_VERSION }, "DDP untagged buffer: invalid version" },
	{ { TERM_LAYER_LLP, 0, TERM_MPA_CONN_LOST }, "MPA: connection closed, terminated or lost" },
	{ { TERM_LAYER_LLP, 0, TERM_MPA_CRC }, "MPA: CRC error" },
	{ { TERM_LAYER_LLP, 0, TERM_MPA_MARKER }, "MPA: marker and ULPDU length mismatch" },
	{ { TERM_LAYER_LLP, 0, TERM_MPA_BAD_START }, "MPA: invalid start-up frame" },
	{ { TERM_LAYER_LLP, 0, TERM_MPA_LOCAL }, "MPA: local catastrophic error" },
	{ { TERM_LAYER_LLP, 0, TERM_MPA_IRD }, "MPA: insufficient IRD resources" },
	{ { TERM_LAYER_LLP, 0, TERM_MPA_RTR }, "MPA: no matching RTR option" },
};

/**
 * rdmap_error_str() - the cause of a Terminate in words
 * @err: the cause, from whichever side
 *
 * Return: the words, never NULL.
 */
const char *rdmap_error_str(const struct rdmap_error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(error_names); i++) {
		const struct rdmap_error *e = &error_names[i].err;

		if (e->layer == err->layer && e->etype == err->etype && e->code == err->code)
			return error_names[i].text;
	}
	return "unknown error";
}
