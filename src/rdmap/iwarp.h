/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdmap: iWARP on the wire and nothing else: RFC 5044 (MPA), 6581 (MPA revision 2), 5041 (DDP),
 * 5040 (RDMAP), 7306 (extensions). All multi-byte fields are big-endian.
 */
#ifndef UWARP_RDMAP_IWARP_H
#define UWARP_RDMAP_IWARP_H

#include <assert.h>
#include "base/base.h"

/* RFC 5044 7.1.1 */
#define MPA_KEY_SIZE 16
#define MPA_KEY_REQ "MPA ID Req Frame"
#define MPA_KEY_REP "MPA ID Rep Frame"
#define MPA_FLAG_MARKERS 0x80 /* M: the sender wants to receive markers */
#define MPA_FLAG_CRC 0x40     /* C */
#define MPA_FLAG_REJECT 0x20  /* R: replies only */
#define MPA_FLAG_ENHANCED 0x10 /* S, RFC 6581 6: the four bytes below follow */
#define MPA_FLAG_RESERVED 0x0F
#define MPA_REV_1 1
#define MPA_REV_2 2
#define MPA_MAX_PRIV_DATA 512 /* includes the four RFC 6581 bytes */

struct mpa_start_hdr {
	u8 key[MPA_KEY_SIZE];
	u8 flags;
	u8 rev;
	__be16 priv_len;
};
static_assert(sizeof(struct mpa_start_hdr) == 20, "RFC 5044 7.1.1");

/* RFC 6581 6 */
#define MPA_V2_P2P 0x8000       /* A in the IRD word */
#define MPA_V2_RTR_SEND 0x4000  /* B in the IRD word: zero-length FPDU */
#define MPA_V2_RTR_WRITE 0x8000 /* C in the ORD word */
#define MPA_V2_RTR_READ 0x4000  /* D in the ORD word */
#define MPA_V2_IRD_ORD_MASK 0x3FFF
#define MPA_V2_NOT_NEGOTIATED 0x3FFF
struct mpa_v2_data {
	__be16 ird;
	__be16 ord;
};
static_assert(sizeof(struct mpa_v2_data) == 4, "RFC 6581 6");

#define MPA_START_HDR_MAX (sizeof(struct mpa_start_hdr) + sizeof(struct mpa_v2_data))
#define MPA_START_FRAME_MAX (sizeof(struct mpa_start_hdr) + MPA_MAX_PRIV_DATA)

/* RFC 5044 4 */
#define MPA_LEN_SIZE 2
#define MPA_CRC_SIZE 4
#define MPA_MARKER_SIZE 4
#define MPA_MARKER_SPACING 512

/* RFC 5041 4, RFC 5040 4 */
#define DDP_TAGGED 0x80
#define DDP_LAST 0x40
#define DDP_VERSION_MASK 0x03
#define DDP_VERSION 1
#define RDMAP_VERSION_SHIFT 6
#define RDMAP_VERSION 1
#define RDMAP_OPCODE_MASK 0x0F
#define DDP_TAGGED_HDR 14
#define DDP_UNTAGGED_HDR 18
#define RDMAP_READ_REQ_SIZE 28
#define RDMAP_IMM_SIZE 8          /* RFC 7306 6.1 */
#define RDMAP_ATOMIC_REQ_SIZE 52  /* RFC 7306 5.2 */
#define RDMAP_ATOMIC_RESP_SIZE 12 /* RFC 7306 5.3 */
#define MPA_TRAILER_MAX (3 + MPA_CRC_SIZE) /* pad and CRC */
#define MPA_ULPDU_MAX UINT16_MAX
/* Length field, DDP header and the longest RDMAP header: all of an FPDU that is not a program's data. */
#define RDMAP_HDR_MAX (MPA_LEN_SIZE + DDP_UNTAGGED_HDR + RDMAP_ATOMIC_REQ_SIZE)

enum ddp_queue { DDP_QN_SEND, DDP_QN_READ_REQ, DDP_QN_TERMINATE, DDP_QN_ATOMIC_RESP };

enum rdmap_opcode {
	RDMAP_WRITE, RDMAP_READ_REQ, RDMAP_READ_RESP, RDMAP_SEND, RDMAP_SEND_INV, RDMAP_SEND_SE, RDMAP_SEND_SE_INV,
	RDMAP_TERMINATE, RDMAP_IMM, RDMAP_IMM_SE, RDMAP_ATOMIC_REQ, RDMAP_ATOMIC_RESP, RDMAP_OPCODES
};

enum rdmap_atomic_opcode { RDMAP_FETCH_ADD = 0, RDMAP_CMP_SWAP = 2 }; /* RFC 7306 5.2.1 */

/* Terminate, RFC 5040 4.8 */
enum rdmap_layer { TERM_LAYER_RDMAP, TERM_LAYER_DDP, TERM_LAYER_LLP };
#define TERM_HDRCT_M 0x80 /* DDP segment length follows */
#define TERM_HDRCT_D 0x40 /* DDP header follows */
#define TERM_HDRCT_R 0x20 /* RDMAP header follows */
/* types and codes: spec of each layer */
enum term_rdmap_type { TERM_RDMAP_CATASTROPHIC, TERM_RDMAP_PROTECTION, TERM_RDMAP_OPERATION };
enum term_ddp_type { TERM_DDP_CATASTROPHIC, TERM_DDP_TAGGED, TERM_DDP_UNTAGGED };
/* codes that this NIC sends; all of them: rdmap_error_str() */
enum term_rdmap_protection_code { TERM_RDMAP_STAG, TERM_RDMAP_BOUNDS, TERM_RDMAP_ACCESS, TERM_RDMAP_STREAM_STAG, TERM_RDMAP_WRAP, TERM_RDMAP_P_INVALIDATE = 9 };
enum term_rdmap_operation_code { TERM_RDMAP_BAD_VERSION = 5, TERM_RDMAP_OPCODE, TERM_RDMAP_STREAM, TERM_RDMAP_GLOBAL, TERM_RDMAP_O_INVALIDATE };
enum term_ddp_tagged_code { TERM_DDP_T_STAG, TERM_DDP_T_BOUNDS, TERM_DDP_T_STREAM_STAG, TERM_DDP_T_WRAP, TERM_DDP_T_VERSION };
enum term_ddp_untagged_code { TERM_DDP_U_QN = 1, TERM_DDP_U_NO_BUFFER, TERM_DDP_U_MSN, TERM_DDP_U_MO, TERM_DDP_U_TOO_LONG, TERM_DDP_U_VERSION };
enum term_llp_code { TERM_MPA_CONN_LOST = 1, TERM_MPA_CRC, TERM_MPA_MARKER, TERM_MPA_BAD_START, TERM_MPA_LOCAL, TERM_MPA_IRD, TERM_MPA_RTR };

#endif
