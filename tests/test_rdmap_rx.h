/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * For tests of the receiver: a stream writer that keeps a plain record of what it wrote, and a QP that keeps one of what it was asked and where
 * bytes went. Tagged messages go to mem at their offset, Sends to mem at MSG_ROOM for each MSN.
 */
#ifndef UWARP_TEST_RDMAP_RX_H
#define UWARP_TEST_RDMAP_RX_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "rdmap/rdmap.h"

#define STREAM_MAX (1u << 20)
#define TAGGED_ROOM (512u * 1024)
#define MSG_ROOM (160u * 1024)
#define MSGS 6u
#define MEM_SIZE (TAGGED_ROOM + MSGS * MSG_ROOM)
#define LOG_MAX 65536u

struct log {
	char text[LOG_MAX];
	size_t len;
};

__attribute__((format(printf, 2, 3))) static inline void log_add(struct log *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	l->len += (size_t)vsnprintf(l->text + l->len, LOG_MAX - l->len, fmt, ap);
	va_end(ap);
	assert_true(l->len < LOG_MAX);
}

static inline u32 mem_offset(const struct ddp_hdr *h)
{
	return h->tagged ? (u32)h->to : TAGGED_ROOM + (h->msn - 1) % MSGS * MSG_ROOM + h->mo;
}

/* ---- the writer ---- */

struct writer {
	struct mpa_stream s;
	u8 stream[STREAM_MAX];
	u32 len;
	u32 ends[512], fpdus;  /* where each FPDU ends */
	struct log log;
	u8 mem[MEM_SIZE];
	struct rand_gen g;
};

static inline struct writer *writer_new(bool crc, bool markers, u64 seed)
{
	struct writer *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	mpa_stream_init(&w->s, crc, markers);
	rand_gen_seed(&w->g, seed);
	return w;
}

/* Frames header and payload, by the one or the other function. */
static inline void write_fpdu(struct writer *w, const u8 *hdr, u32 hdr_len, const u8 *payload, u32 len)
{
	struct iovec iov[2] = { { (void *)hdr, hdr_len }, { (void *)payload, len } };
	u8 *out = w->stream + w->len, sealed[MPA_LEN_SIZE + DDP_UNTAGGED_HDR + RDMAP_ATOMIC_REQ_SIZE];
	u32 room = STREAM_MAX - w->len;
	int n;

	if (w->s.markers) {
		n = mpa_fpdu_build_iov(&w->s, iov, 2, out, room);
		assert_true(n > 0);
		w->len += (u32)n;
	} else {
		assert_true(room > MPA_LEN_SIZE + hdr_len + len + MPA_TRAILER_MAX);
		if (hdr_len)
			memcpy(sealed + MPA_LEN_SIZE, hdr, hdr_len);
		n = (int)mpa_seal(&w->s, sealed, MPA_LEN_SIZE + hdr_len, &iov[1], 1, out + MPA_LEN_SIZE + hdr_len + len);
		memcpy(out, sealed, MPA_LEN_SIZE + hdr_len);
		if (len)
			memcpy(out + MPA_LEN_SIZE + hdr_len, payload, len);
		w->len += MPA_LEN_SIZE + hdr_len + len + (u32)n;
	}
	assert_true(w->fpdus < ARRAY_SIZE(w->ends));
	w->ends[w->fpdus++] = w->len;
}

/* One segment with random payload; what a receiver must make of it goes into the record. */
static inline void write_segment(struct writer *w, struct ddp_hdr h)
{
	u8 hdr[DDP_UNTAGGED_HDR], *payload = malloc(h.payload_len + 1);
	u32 n;

	for (u32 i = 0; i < h.payload_len; i++)
		payload[i] = (u8)rand_gen_u64(&w->g);
	if (h.tagged)
		n = ddp_put_tagged(hdr, h.opcode, h.last, h.stag, h.to);
	else
		n = ddp_put_untagged(hdr, h.opcode, h.last, h.stag, h.msn, h.mo);
	write_fpdu(w, hdr, n, payload, h.payload_len);
	log_add(&w->log, "%u %u %x %llx %u %u %u; ", h.opcode, h.last, h.stag, (unsigned long long)h.to, h.msn, h.mo, h.payload_len);
	if (h.payload_len)
		memcpy(w->mem + mem_offset(&h), payload, h.payload_len);
	free(payload);
}

/* A message in segments of at most @seg bytes. */
static inline void write_message(struct writer *w, u8 opcode, u32 stag, u64 to, u32 msn, u32 len, u32 seg)
{
	bool tagged = opcode == RDMAP_WRITE || opcode == RDMAP_READ_RESP;
	u32 off = 0;

	do {
		u32 part = min(len - off, seg);

		write_segment(w, (struct ddp_hdr){ .tagged = tagged, .opcode = opcode, .last = off + part == len, .stag = stag,
						   .to = tagged ? to + off : 0, .msn = tagged ? 0 : msn, .mo = tagged ? 0 : off,
						   .payload_len = part });
		off += part;
	} while (off < len);
}

/* A message of fixed length, or a Terminate. */
static inline void write_control(struct writer *w, u8 opcode, u32 msn, const u8 *body, u32 len)
{
	u8 hdr[DDP_UNTAGGED_HDR];

	write_fpdu(w, hdr, ddp_put_untagged(hdr, opcode, true, 0, msn, 0), body, len);
	log_add(&w->log, "%u %u %x %llx %u %u %u: ", opcode, true, 0, 0ull, msn, 0, len);
	for (u32 i = 0; i < len; i++)
		log_add(&w->log, "%02x", body[i]);
	log_add(&w->log, "; ");
}

static inline void write_empty(struct writer *w)
{
	write_fpdu(w, NULL, 0, NULL, 0);
	log_add(&w->log, "empty; ");
}

/* ---- the QP ---- */

struct qp {
	struct rdmap_rx rx;
	struct log log;
	u8 mem[MEM_SIZE];
	u32 starts, finishes, sinks;
	u32 piece;             /* largest piece that sink() hands out */
	bool begun;            /* start() without its finish() */
	u64 straight;          /* bytes read into mem by the test's read */
	u32 reads;
	/* what goes wrong */
	const struct rdmap_error *start_err, *sink_err, *finish_err, *empty_err;
	u32 sink_err_at;       /* payload offset */
	struct rand_gen g;
};

static inline const struct rdmap_error *qp_start(void *ctx, const struct ddp_hdr *h)
{
	struct qp *qp = ctx;

	qp->starts++;
	assert_false(qp->begun);
	if (qp->start_err)
		return qp->start_err;
	qp->begun = true;
	log_add(&qp->log, "%u %u %x %llx %u %u %u", h->opcode, h->last, h->stag, (unsigned long long)h->to, h->msn, h->mo, h->payload_len);
	return NULL;
}

static inline int qp_sink(void *ctx, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err)
{
	struct qp *qp = ctx;
	int n = 0;

	qp->sinks++;
	assert_true(qp->begun && len > 0 && max > 0);
	assert_true(off < h->payload_len && len <= h->payload_len - off);
	if (qp->sink_err && off + len > qp->sink_err_at) {
		*err = qp->sink_err;
		return 0;
	}
	while (len && n < max) {
		u32 part = min(len, qp->piece);

		assert_true(mem_offset(h) + off + part <= MEM_SIZE);
		iov[n++] = (struct iovec){ qp->mem + mem_offset(h) + off, part };
		off += part;
		len -= part;
	}
	return n;
}

static inline const struct rdmap_error *qp_finish(void *ctx, const struct ddp_hdr *h)
{
	struct qp *qp = ctx;

	assert_true(qp->begun);
	qp->begun = false;
	qp->finishes++;
	if (!h->tagged && h->opcode != RDMAP_SEND && h->opcode != RDMAP_SEND_INV && h->opcode != RDMAP_SEND_SE && h->opcode != RDMAP_SEND_SE_INV) {
		log_add(&qp->log, ": ");
		for (u32 i = 0; i < h->payload_len; i++)
			log_add(&qp->log, "%02x", h->payload[i]);
	}
	log_add(&qp->log, "; ");
	return qp->finish_err;
}

static inline const struct rdmap_error *qp_empty(void *ctx)
{
	struct qp *qp = ctx;

	log_add(&qp->log, "empty; ");
	return qp->empty_err;
}

static const struct rdmap_rx_ops qp_ops = { .start = qp_start, .sink = qp_sink, .finish = qp_finish, .empty = qp_empty };

static inline struct qp *qp_new(bool crc, bool markers)
{
	struct qp *qp = calloc(1, sizeof(*qp));

	assert_non_null(qp);
	rdmap_rx_init(&qp->rx, &qp_ops, qp, crc, markers);
	qp->piece = UINT32_MAX;
	rand_gen_seed(&qp->g, 1);
	return qp;
}

static inline void qp_free(struct qp *qp)
{
	rdmap_rx_destroy(&qp->rx);
	free(qp);
}

static inline bool in_mem(const struct qp *qp, const void *p)
{
	return (const u8 *)p >= qp->mem && (const u8 *)p < qp->mem + MEM_SIZE;
}

/* One read of at most @most bytes, as a socket does it. Bytes read, negative errno. */
static inline ssize_t qp_read(struct qp *qp, const u8 *data, u32 most)
{
	struct iovec iov[8];
	int max = 2 + (int)rand_gen_below(&qp->g, 7), n = rdmap_rx_want(&qp->rx, iov, max), rc;
	u32 used = 0;

	if (n < 0)
		return n;
	assert_in_range(n, 1, max);
	for (int i = 0; i < n; i++) {
		u32 part = (u32)min(iov[i].iov_len, (size_t)(most - used));

		assert_true(iov[i].iov_len > 0);
		memcpy(iov[i].iov_base, data + used, part);
		if (in_mem(qp, iov[i].iov_base)) {
			assert_false(qp->rx.crc || qp->rx.markers);
			qp->straight += part;
		}
		used += part;
	}
	qp->reads++;
	rc = rdmap_rx_got(&qp->rx, used);
	return rc ? rc : (ssize_t)used;
}

/* Reads of @chunk bytes, 0: of random sizes. 0 or the error. */
static inline int qp_feed(struct qp *qp, const u8 *data, u32 len, u32 chunk)
{
	for (u32 pos = 0; pos < len;) {
		u32 most = chunk ? chunk : 1 + (u32)rand_gen_below(&qp->g, rand_gen_chance(&qp->g, 0.5) ? 100 : 30000);
		ssize_t n = qp_read(qp, data + pos, min(most, len - pos));

		if (n < 0)
			return (int)n;
		pos += (u32)n;
	}
	return 0;
}

/* All of it arrived, as it was written. */
static inline void qp_check(const struct qp *qp, const struct writer *w)
{
	assert_string_equal(qp->log.text, w->log.text);
	assert_memory_equal(qp->mem, w->mem, MEM_SIZE);
	assert_int_equal(qp->rx.fpdus, w->fpdus);
	assert_int_equal(qp->rx.bytes, w->len);
	assert_false(rdmap_rx_cut_off(&qp->rx));
	assert_null(qp->rx.error);
}

static inline bool mem_untouched(const struct qp *qp)
{
	for (u32 i = 0; i < MEM_SIZE; i++)
		if (qp->mem[i])
			return false;
	return true;
}

#endif
