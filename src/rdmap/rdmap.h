/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdmap: MPA framing, DDP and RDMAP on a byte stream. No sockets, no threads. This first part knows
 * FPDUs, the RTR message and Terminate; placing data comes with the data path.
 */
#ifndef UWARP_RDMAP_H
#define UWARP_RDMAP_H

#include "rdmap/iwarp.h"

/* RTR kinds (RFC 6581 4.3), as a mask when several are offered. */
#define RDMAP_RTR_SEND 0x1
#define RDMAP_RTR_WRITE 0x2
#define RDMAP_RTR_READ 0x4
#define RDMAP_RTR_ALL 0x7

/* One direction of FPDUs. Set up by mpa_stream_init() after the start-up frame; carries the marker position. */
struct mpa_stream {
	bool crc;
	bool markers;
	u32 next_marker;   /* bytes of stream until the next marker, 0: now (RFC 5044 4.3) */
};
void mpa_stream_init(struct mpa_stream *s, bool crc, bool markers);

/*
 * mpa_fpdu_build(): frame @ulpdu (at most 65535 - bytes) as an FPDU with padding, CRC and the markers due.
 * Returns its length, or -EMSGSIZE if @size is too small.
 */
int mpa_fpdu_build(struct mpa_stream *s, const void *ulpdu, u32 len, u8 *out, u32 size);

/* Receives FPDUs from bytes at any split. Call order: mpa_rx_init, then mpa_rx_feed until it consumed all. */
struct mpa_rx {
	struct mpa_stream stream;
	u8 *buf;           /* ULPDU length, ULPDU, pad, CRC of the FPDU being assembled, markers removed */
	u32 have, need, size;
	u32 fpdu_start;    /* stream bytes (markers included) since the FPDU began: what a marker must point back over */
	u8 marker[MPA_MARKER_SIZE];
	u32 marker_have;
	u32 crc_acc;       /* CRC32C of the FPDU so far, markers included, not inverted yet */
	int error;         /* first protocol error: enum term_llp_code; sticky */
};
void mpa_rx_init(struct mpa_rx *rx, bool crc, bool markers);
void mpa_rx_destroy(struct mpa_rx *rx);
/*
 * Consume up to @len bytes; stops after a complete FPDU: then @ulpdu and @ulpdu_len are set (valid until the next call).
 * Returns bytes consumed, or -EPROTO (see rx->error), -ENOMEM.
 */
ssize_t mpa_rx_feed(struct mpa_rx *rx, const u8 *data, size_t len, const u8 **ulpdu, u32 *ulpdu_len);

/* A decoded DDP/RDMAP header. */
struct ddp_hdr {
	bool tagged, last;
	u8 opcode;         /* enum rdmap_opcode */
	u32 stag;          /* tagged: STag; untagged: invalidate STag */
	u64 to;            /* tagged */
	u32 qn, msn, mo;   /* untagged */
	const u8 *payload;
	u32 payload_len;
};
/* What goes into a Terminate. */
struct rdmap_error {
	u8 layer, etype, code;
};
/* 0 or -EPROTO with @err saying which Terminate is due. Checks versions, opcode, tagged bit and queue against the opcode's table row. */
int ddp_parse(const u8 *ulpdu, u32 len, struct ddp_hdr *out, struct rdmap_error *err);

/* ULPDU of the RTR @kind (one of RDMAP_RTR_*): zero-length Send, Write or Read Request. Returns its length. */
u32 rdmap_build_rtr(u32 kind, u8 ulpdu[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE]);
/* Is this ULPDU the RTR @kind? */
bool rdmap_is_rtr(const struct ddp_hdr *h, u32 kind);
/* Bytes that Read Request @h asks for. */
u32 rdmap_read_len(const struct ddp_hdr *h);
/* Zero-length Read Response that answers RTR Read Request @h. */
u32 rdmap_build_rtr_response(const struct ddp_hdr *h, u8 ulpdu[DDP_TAGGED_HDR]);
/* ULPDU of a Terminate; @ulpdu/@len: the offending ULPDU whose header is quoted, NULL if none. At most RDMAP_TERM_MAX bytes. */
#define RDMAP_TERM_MAX (DDP_UNTAGGED_HDR + 4 + 2 + DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE)
u32 rdmap_build_terminate(const struct rdmap_error *err, u32 msn, const u8 *ulpdu, u32 len, u8 out[RDMAP_TERM_MAX]);
/* Parse a received Terminate payload. 0 or -EPROTO. */
int rdmap_parse_terminate(const struct ddp_hdr *h, struct rdmap_error *err);
/* "DDP untagged: no buffer" etc.; never NULL. */
const char *rdmap_error_str(const struct rdmap_error *err);
const char *rdmap_opcode_str(u8 opcode);

#endif
