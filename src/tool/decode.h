/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool: what a connection's frames say, in words. Pure: bytes in, lines out.
 */
#ifndef UWARP_TOOL_DECODE_H
#define UWARP_TOOL_DECODE_H

#include "base/base.h"
#include "rdmap/rdmap.h"

/* A decoded MPA start-up frame. */
struct tool_mpa_start {
	bool reply;
	u8 flags, rev;
	bool v2;            /* the RFC 6581 bytes are there */
	bool p2p;
	u8 rtr;             /* RDMAP_RTR_* */
	u16 ird, ord;
	u32 pdata_len;      /* without the RFC 6581 bytes */
	u32 len;            /* of the whole frame */
};

enum tool_mpa_verdict {
	TOOL_MPA_OK,
	TOOL_MPA_SHORT,      /* the beginning of one; more bytes are needed */
	TOOL_MPA_BAD_KEY,
	TOOL_MPA_BAD_LENGTH,
};
enum tool_mpa_verdict tool_mpa_start_parse(const u8 *p, u32 len, struct tool_mpa_start *out);

/* What one frame carries: a line of the ladder, with more to say below it. */
#define TOOL_TITLE 64
#define TOOL_DETAIL 200
struct tool_line {
	char title[TOOL_TITLE];
	char detail[TOOL_DETAIL];
};

/* One direction of a connection. */
enum tool_phase { TOOL_START, TOOL_FPDUS, TOOL_OPAQUE };
struct tool_half {
	bool syn;              /* SYN seen: iss is known */
	bool any;              /* nxt is known */
	u32 iss, nxt;          /* next sequence number */
	enum tool_phase phase; /* TOOL_OPAQUE: lost the thread; bytes are counted only */
	u8 start_buf[MPA_START_FRAME_MAX];
	u32 start_have;
	struct tool_mpa_start start;
	enum tool_mpa_verdict verdict;
	struct mpa_rx rx;
	bool rx_ready;
	u32 fpdus;
	struct rdmap_error term;
	bool term_seen;
	bool fin, rst;
};

/* Both; half[1] is what this side sends. Set up by zeroing; tool_flow_destroy() in the end. */
struct tool_flow {
	struct tool_half half[2];
};
void tool_flow_destroy(struct tool_flow *f);

/* About the segment itself. */
struct tool_segment {
	bool again;            /* a retransmission: nothing new in it */
	bool bare_ack;
	u32 seq, ack;          /* relative to the initial ones, where these are known */
};
/*
 * Feed a segment; lines go to @emit, in order, none for a bare ACK. Segments of one direction come in order, or again.
 */
void tool_flow_segment(struct tool_flow *f, bool out, const struct pkt *p, struct tool_segment *seg,
		       void (*emit)(void *arg, const struct tool_line *line), void *arg);

#endif
