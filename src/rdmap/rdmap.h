/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdmap: MPA framing, DDP and RDMAP on a byte stream. No sockets, no threads, no memory regions: where data goes to and
 * what a QP allows is asked through struct rdmap_rx_ops.
 */
#ifndef UWARP_RDMAP_H
#define UWARP_RDMAP_H

#include <sys/uio.h>
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

/* ---- the data path, sending: FPDUs around a program's memory, without a copy ---- */

/* DDP headers with the RDMAP control byte; length written. Queue from the opcode's table row. */
u32 ddp_put_untagged(u8 *out, u8 opcode, bool last, u32 inv_stag, u32 msn, u32 mo);
u32 ddp_put_tagged(u8 *out, u8 opcode, bool last, u32 stag, u64 to);

struct rdmap_read_req {
	u32 sink_stag;
	u64 sink_to;
	u32 len;
	u32 src_stag;
	u64 src_to;
};
struct rdmap_atomic_req {
	u8 op;               /* enum rdmap_atomic_opcode */
	u32 id;
	u32 stag;
	u64 to;
	u64 data, data_mask; /* add or swap */
	u64 compare, compare_mask;
};
/* RDMAP headers, behind the DDP header; length written. Parsers take the payload of a header that ddp_parse() accepted. */
u32 rdmap_put_read_req(u8 *out, const struct rdmap_read_req *r);
u32 rdmap_put_atomic_req(u8 *out, const struct rdmap_atomic_req *r);
u32 rdmap_put_atomic_resp(u8 *out, u32 id, u64 original);
u32 rdmap_put_imm(u8 *out, u64 imm);
void rdmap_get_read_req(const u8 *payload, struct rdmap_read_req *r);
void rdmap_get_atomic_req(const u8 *payload, struct rdmap_atomic_req *r);
void rdmap_get_atomic_resp(const u8 *payload, u32 *id, u64 *original);
u64 rdmap_get_imm(const u8 *payload);
/* What an atomic operation (RFC 7306 5.1, with masks) makes of @old. */
u64 rdmap_atomic_result(const struct rdmap_atomic_req *r, u64 old);

/* Longest ULPDU whose FPDU, markers that fall into it included, fits @emss bytes of stream from here (RFC 5044 5.1); at least 128, at most MPA_ULPDU_MAX. */
u32 mpa_mulpdu(const struct mpa_stream *s, u32 emss);
/*
 * Without markers: finish an FPDU in place. @hdr: MPA_LEN_SIZE bytes for the length field, written here, then @hdr_len - MPA_LEN_SIZE bytes of DDP and RDMAP
 * header. @payload: @n pieces of a program's memory. Writes pad and CRC (zeros when off) to @trailer; returns their length. FPDU: hdr, payload, trailer.
 */
u32 mpa_seal(const struct mpa_stream *s, u8 *hdr, u32 hdr_len, const struct iovec *payload, int n, u8 trailer[MPA_TRAILER_MAX]);
/* Like mpa_fpdu_build(), from pieces; what is used with markers. */
int mpa_fpdu_build_iov(struct mpa_stream *s, const struct iovec *ulpdu, int n, u8 *out, u32 size);
/* Bytes of stream that the FPDU of a ULPDU of @len takes here, markers included. */
u32 mpa_fpdu_len(const struct mpa_stream *s, u32 len);

/* ---- the data path, receiving ---- */

/*
 * What the receiver asks its QP. All are called from rdmap_rx_want() or rdmap_rx_got(); errors are what the Terminate has to say, or
 * &rdmap_rx_stop: receive no more, without a Terminate. With CRC on, the FPDU's CRC has been found right before any of them is called.
 */
struct rdmap_rx_ops {
	/*
	 * An FPDU begins. ddp_parse()'s checks, and for untagged ones queue number, MSN and MO (RFC 5041 7.1), are done; h->mo == 0 is the first
	 * segment of a message. The payload of messages with a fixed length (Read Request, atomics, Immediate Data) and of Terminate is at h->payload
	 * in finish(), and sink() is not called for them; for the others h->payload is NULL here if the payload is not all there yet.
	 * Check rights and bounds of the whole segment here.
	 */
	const struct rdmap_error *(*start)(void *ctx, const struct ddp_hdr *h);
	/*
	 * Where bytes [@off, @off + @len) of its payload go: pieces that cover them, or as much of their front as fits @max. The memory must stay
	 * valid until rdmap_rx_got() returns. Returns the number of pieces, 0 with *@err set.
	 */
	int (*sink)(void *ctx, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err);
	/* All of it is placed. With CRC off, part of it may have been placed long before. */
	const struct rdmap_error *(*finish)(void *ctx, const struct ddp_hdr *h);
	/* An FPDU without ULPDU (RFC 6581 4.3: some send it as an RTR). */
	const struct rdmap_error *(*empty)(void *ctx);
};
extern const struct rdmap_error rdmap_rx_stop;

/*
 * Receives a stream. Call order: rdmap_rx_init; then rdmap_rx_want, read into its pieces, rdmap_rx_got with what was read, and again. With CRC off and no
 * markers a large payload is read straight into the memory that sink() names; else FPDUs are gathered in a buffer of ours, checked, and copied once. Small
 * FPDUs are read many at a time. Memory is allocated by the first rdmap_rx_want().
 */
struct rdmap_rx {
	const struct rdmap_rx_ops *ops;
	void *ctx;
	struct mpa_rx mpa;             /* markers: the gatherer */
	bool crc, markers;
	u8 *buf;                       /* staging */
	u32 start, end, size;          /* bytes in it not consumed yet */
	/* the FPDU that is being placed directly */
	struct ddp_hdr hdr;
	u8 hdr_bytes[MPA_LEN_SIZE + DDP_UNTAGGED_HDR];
	u32 placed;                    /* payload bytes */
	u32 trailer;                   /* pad and CRC bytes still to come behind it */
	bool direct;
	u8 near_large;                 /* a large FPDU may come soon: how many small ones may before that hope is given up */
	u32 tail;                      /* bytes of the small FPDU behind the last large one, 0: a large one followed */
	u32 msn[DDP_QN_ATOMIC_RESP + 1]; /* expected, RFC 5041 5.3 */
	u32 mo[DDP_QN_ATOMIC_RESP + 1];  /* expected */
	u8 opcode[DDP_QN_ATOMIC_RESP + 1]; /* of the message in progress: its segments agree */
	const struct rdmap_error *error; /* the first, or &rdmap_rx_stop; sticky */
	struct rdmap_error found;      /* what @error points to when ddp_parse() found it */
	const u8 *bad_ulpdu;           /* what the Terminate quotes, NULL: nothing */
	u32 bad_len;
	u64 fpdus, bytes;
};
void rdmap_rx_init(struct rdmap_rx *rx, const struct rdmap_rx_ops *ops, void *ctx, bool crc, bool markers);
void rdmap_rx_destroy(struct rdmap_rx *rx);
/* Where the next bytes of the stream are to be read to: number of pieces (1..@max, @max at least 2); -EPROTO (rx->error), -ENOMEM. */
int rdmap_rx_want(struct rdmap_rx *rx, struct iovec *iov, int max);
/* @n bytes were read into them, in order. 0; -EPROTO: rx->error says what is wrong, or is &rdmap_rx_stop; -ENOMEM. */
int rdmap_rx_got(struct rdmap_rx *rx, size_t n);
/* Is an FPDU begun and not complete? A FIN now is no orderly end (RFC 5044 9.1). */
bool rdmap_rx_cut_off(const struct rdmap_rx *rx);

#endif
