/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The receiver of the data path: a stream in, a QP's questions and placed payload out.
 *
 * Theory of operation. Bytes are read into the staging buffer, and FPDUs are handled there once they are whole: CRC (RFC 5044 4.4), headers (RFC 5041 7.1),
 * order, ops->start, copy to where ops->sink says, ops->finish. So nothing is placed on the word of bytes that are not checked.
 *
 * With CRC off there is nothing to wait for. Once the headers of an FPDU are there and RX_DIRECT_MIN or more of its payload is not, the FPDU is started, what
 * has come of the payload is copied, and rdmap_rx_want() names the program's memory for the rest ("direct"). Behind it come a few bytes of staging, for the
 * trailer and the headers of the next FPDU, so that a stream of large FPDUs costs one read and no copy each. Messages of fixed length and
 * Terminates are never direct: the QP gets them whole.
 *
 * How much is read at a time (staging_want()): small FPDUs as many as there are; of a large one the rest and RX_AHEAD bytes of what follows it, so that
 * staging is empty or nearly so when the next one begins and next to nothing is ever moved to its front. With CRC off reads stay short for a few
 * small FPDUs after a large one, so that the next large one is direct as well: 64 KiB of a program are one FPDU of the largest size and a small one. If the last large
 * one was followed by a small one (rx->tail), as much is read behind the next, so that such a message costs one read.
 *
 * With markers mpa_rx gathers FPDUs, and they are handled like those in staging.
 *
 * Order (RFC 5041 5.3, 7.1): TCP delivers in order, so a segment of an untagged queue has the one MSN and MO that are next. All segments of a message
 * have the same opcode. Of tagged messages the QP keeps track.
 *
 * The first error stays: nothing is handled or placed after it.
 */
#include <errno.h>
#include <stdlib.h>
#include "rdmap/rdmap_internal.h"

#define RX_STAGING (80u * 1024)   /* the largest FPDU and what is read ahead; more than that is slower: it leaves the caches */
#define RX_FIRST 2048u            /* staging of a stream that has not brought half of that yet, nor announced it: many never do */
#define RX_DIRECT_MIN 8192u       /* payload still to come: below, a copy costs less than a read of its own (bench_rdmap) */
#define RX_LARGE RX_DIRECT_MIN    /* FPDUs that are read one by one */
#define RX_HDR ((u32)(MPA_LEN_SIZE + DDP_UNTAGGED_HDR))
#define RX_AHEAD 256u             /* trailer, perhaps a small FPDU, headers of the next */
#define RX_NEAR_LARGE 4           /* small FPDUs after a large one for which another large one is expected */
#define RX_SINK_PIECES 16
static_assert(RX_STAGING >= MPA_LEN_SIZE + MPA_ULPDU_MAX + MPA_TRAILER_MAX + RX_AHEAD + RX_LARGE, "an FPDU must fit");

const struct rdmap_error rdmap_rx_stop = { 0 };

static const struct rdmap_error bad_crc = { TERM_LAYER_LLP, 0, TERM_MPA_CRC };
static const struct rdmap_error bad_marker = { TERM_LAYER_LLP, 0, TERM_MPA_MARKER };
static const struct rdmap_error no_memory = { TERM_LAYER_LLP, 0, TERM_MPA_LOCAL };
static const struct rdmap_error bad_msn = { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_MSN };
static const struct rdmap_error bad_mo = { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_MO };
static const struct rdmap_error too_long = { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_TOO_LONG };
static const struct rdmap_error bad_opcode = { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE };
static const struct rdmap_error no_progress = { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM };

/**
 * rdmap_rx_init() - prepare to receive a stream
 * @rx: the receiver
 * @ops: what it asks
 * @ctx: given to @ops
 * @crc: CRCs are in use and checked
 * @markers: markers are expected
 *
 * Allocates nothing.
 */
void rdmap_rx_init(struct rdmap_rx *rx, const struct rdmap_rx_ops *ops, void *ctx, bool crc, bool markers)
{
	memset(rx, 0, sizeof(*rx));
	rx->ops = ops;
	rx->ctx = ctx;
	rx->crc = crc;
	rx->markers = markers;
	mpa_rx_init(&rx->mpa, crc, markers);
	for (size_t i = 0; i < ARRAY_SIZE(rx->msn); i++)
		rx->msn[i] = 1;
}

/**
 * rdmap_rx_destroy() - free what a receiver holds
 * @rx: the receiver; all zero is fine
 */
void rdmap_rx_destroy(struct rdmap_rx *rx)
{
	mpa_rx_destroy(&rx->mpa);
	free(rx->buf);
	rx->buf = NULL;
	rx->bad_ulpdu = NULL;
	rx->size = rx->start = rx->end = 0;
}

/* @ulpdu: quoted by the Terminate, at least its headers. Always false, as the steps below are when there is no more to do. */
static bool fail(struct rdmap_rx *rx, const struct rdmap_error *err, const u8 *ulpdu, u32 len)
{
	bool quoted = ulpdu && err != &rdmap_rx_stop && err->layer != TERM_LAYER_LLP;

	rx->error = err;
	rx->bad_ulpdu = quoted ? ulpdu : NULL;
	rx->bad_len = quoted ? len : 0;
	return false;
}

/* The next segment of its queue? An empty one that is not the last would be followed by one that looks like it: no sender has a use for that. */
static const struct rdmap_error *check_order(struct rdmap_rx *rx, const struct ddp_hdr *h)
{
	u32 q = h->qn;

	if (h->tagged)
		return NULL;
	if (h->msn != rx->msn[q])
		return &bad_msn;
	if (h->mo != rx->mo[q])
		return &bad_mo;
	if (h->mo && h->opcode != rx->opcode[q])
		return &bad_opcode;
	if (!h->last && !h->payload_len)
		return &no_progress;
	if (h->payload_len > UINT32_MAX - h->mo)
		return &too_long;
	return NULL;
}

static void advance_order(struct rdmap_rx *rx, const struct ddp_hdr *h)
{
	u32 q = h->qn;

	if (h->tagged)
		return;
	rx->opcode[q] = h->opcode;
	rx->mo[q] = h->last ? 0 : h->mo + h->payload_len;
	rx->msn[q] += h->last;
}

/* Headers of @ulpdu, which is @len bytes, but all there only if @whole. */
static bool begin(struct rdmap_rx *rx, const u8 *ulpdu, u32 len, bool whole, struct ddp_hdr *h)
{
	const struct rdmap_error *err;

	if (ddp_parse(ulpdu, len, h, &rx->found))
		return fail(rx, &rx->found, ulpdu, len);
	if (!whole)
		h->payload = NULL;
	err = check_order(rx, h);
	if (!err)
		err = rx->ops->start(rx->ctx, h);
	if (err)
		return fail(rx, err, ulpdu, len);
	advance_order(rx, h);
	return true;
}

/* Copy @len bytes at @src to the front of its payload. */
static const struct rdmap_error *place(struct rdmap_rx *rx, const struct ddp_hdr *h, const u8 *src, u32 len)
{
	struct iovec iov[RX_SINK_PIECES];
	u32 off = 0;

	while (off < len) {
		const struct rdmap_error *err = NULL;
		u32 before = off;
		int n = rx->ops->sink(rx->ctx, h, off, len - off, iov, RX_SINK_PIECES, &err);

		if (n <= 0)
			return err;
		for (int i = 0; i < n; i++) {
			u32 part = (u32)min(iov[i].iov_len, (size_t)(len - off));

			memcpy(iov[i].iov_base, src + off, part);
			off += part;
		}
		assert(off > before);
	}
	return NULL;
}

/* An FPDU that is all there, and right as far as MPA goes. */
static bool handle_ulpdu(struct rdmap_rx *rx, const u8 *ulpdu, u32 len)
{
	const struct rdmap_error *err = NULL;
	struct ddp_hdr h;

	rx->fpdus++;
	if (len == 0) {
		err = rx->ops->empty(rx->ctx);
		return err ? fail(rx, err, NULL, 0) : true;
	}
	if (!begin(rx, ulpdu, len, true, &h))
		return false;
	if (!rdmap_is_control(h.opcode))
		err = place(rx, &h, h.payload, h.payload_len);
	if (!err)
		err = rx->ops->finish(rx->ctx, &h);
	return err ? fail(rx, err, ulpdu, len) : true;
}

/* Could this opcode, known or not, be one with a program's data? */
static bool may_be_direct(u8 opcode)
{
	return opcode < RDMAP_OPCODES && !rdmap_is_control(opcode);
}

/* The FPDU in front of staging, of which @have bytes are there, is to be read straight to its place from here on. */
static bool begin_direct(struct rdmap_rx *rx, u32 ulpdu_len, u32 have)
{
	const u8 *fpdu = rx->buf + rx->start;
	const struct rdmap_error *err;
	u32 hdr_len, there;

	if (have < RX_HDR || MPA_LEN_SIZE + ulpdu_len < have + RX_DIRECT_MIN || !may_be_direct(fpdu[MPA_LEN_SIZE + 1] & RDMAP_OPCODE_MASK))
		return false;
	memcpy(rx->hdr_bytes, fpdu, sizeof(rx->hdr_bytes));
	if (!begin(rx, rx->hdr_bytes + MPA_LEN_SIZE, ulpdu_len, false, &rx->hdr))
		return false;
	hdr_len = MPA_LEN_SIZE + ulpdu_len - rx->hdr.payload_len;
	there = have - hdr_len;
	err = place(rx, &rx->hdr, fpdu + hdr_len, there);
	if (err)
		return fail(rx, err, rx->hdr_bytes + MPA_LEN_SIZE, ulpdu_len);
	rx->placed = there;
	rx->trailer = mpa_fpdu_bytes(ulpdu_len) - MPA_LEN_SIZE - ulpdu_len;
	rx->direct = true;
	rx->start = rx->end = 0;
	return true;
}

static u32 direct_left(const struct rdmap_rx *rx)
{
	return rx->direct ? rx->hdr.payload_len - rx->placed : 0;
}

/* What came, for what is read next: staging_want(), ahead(). */
static void note_size(struct rdmap_rx *rx, u32 total)
{
	bool behind_large = rx->near_large == RX_NEAR_LARGE;

	if (behind_large)
		rx->tail = total < RX_LARGE ? total : 0;
	if (total >= RX_LARGE)
		rx->near_large = RX_NEAR_LARGE;
	else if (rx->near_large)
		rx->near_large--;
}

static bool end_direct(struct rdmap_rx *rx)
{
	const struct rdmap_error *err;

	if (direct_left(rx) || rx->end - rx->start < rx->trailer)
		return false;
	rx->start += rx->trailer;
	rx->direct = false;
	note_size(rx, RX_LARGE);
	rx->fpdus++;
	err = rx->ops->finish(rx->ctx, &rx->hdr);
	return err ? fail(rx, err, rx->hdr_bytes + MPA_LEN_SIZE, get_be16(rx->hdr_bytes)) : true;
}

/* One step with what is in staging; false: more has to come first, or it failed. */
static bool step(struct rdmap_rx *rx)
{
	const u8 *fpdu = rx->buf + rx->start;
	u32 have = rx->end - rx->start, ulpdu_len, total;

	if (rx->direct)
		return end_direct(rx);
	if (have < MPA_LEN_SIZE)
		return false;
	ulpdu_len = get_be16(fpdu);
	total = mpa_fpdu_bytes(ulpdu_len);
	if (have < total)
		return !rx->crc && begin_direct(rx, ulpdu_len, have);
	if (rx->crc && !mpa_crc_ok(fpdu, total))
		return fail(rx, &bad_crc, NULL, 0);
	rx->start += total;
	note_size(rx, total);
	return handle_ulpdu(rx, fpdu + MPA_LEN_SIZE, ulpdu_len);
}

/* One step with markers, the same. @rc: -ENOMEM */
static bool step_markers(struct rdmap_rx *rx, int *rc)
{
	const u8 *ulpdu;
	u32 ulpdu_len;
	ssize_t n = mpa_rx_feed(&rx->mpa, rx->buf + rx->start, rx->end - rx->start, &ulpdu, &ulpdu_len);

	if (n == -ENOMEM) {
		*rc = -ENOMEM;
		return fail(rx, &no_memory, NULL, 0);
	}
	if (n < 0)
		return fail(rx, rx->mpa.error == TERM_MPA_CRC ? &bad_crc : &bad_marker, NULL, 0);
	rx->start += (u32)n;
	return ulpdu && handle_ulpdu(rx, ulpdu, ulpdu_len);
}

/* What is read behind a large FPDU. */
static u32 ahead(const struct rdmap_rx *rx)
{
	return RX_AHEAD + rx->tail;
}

/* Bytes that the next read into staging should take, if there is room. */
static u32 staging_want(const struct rdmap_rx *rx)
{
	u32 have = rx->end - rx->start, total;
	bool one_by_one = rx->near_large && !rx->crc;

	if (rx->direct) /* the trailer */
		return ahead(rx);
	if (have < MPA_LEN_SIZE)
		return one_by_one ? RX_AHEAD : rx->size;
	total = mpa_fpdu_bytes(get_be16(rx->buf + rx->start));
	if (rx->markers || (total < RX_LARGE && !one_by_one))
		return rx->size;
	if (!rx->crc && have < RX_HDR)
		return RX_AHEAD;
	return total - have + (total < RX_LARGE ? RX_AHEAD : ahead(rx));
}

static int want_staging(struct rdmap_rx *rx, struct iovec *iov)
{
	u32 want = staging_want(rx), have = rx->end - rx->start;

	if (rx->start && rx->size - rx->end < want) {
		memmove(rx->buf, rx->buf + rx->start, have);
		rx->start = 0;
		rx->end = have;
	}
	*iov = (struct iovec){ .iov_base = rx->buf + rx->end, .iov_len = min(want, rx->size - rx->end) };
	return 1;
}

/* Pieces of the program's memory; staging behind them only if they are all that is left. */
static int want_direct(struct rdmap_rx *rx, struct iovec *iov, int max)
{
	const struct rdmap_error *err = NULL;
	u32 left = direct_left(rx);
	size_t sum = 0;
	int n = rx->ops->sink(rx->ctx, &rx->hdr, rx->placed, left, iov, max - 1, &err);

	if (n <= 0) {
		fail(rx, err, rx->hdr_bytes + MPA_LEN_SIZE, get_be16(rx->hdr_bytes));
		return -EPROTO;
	}
	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	assert(sum > 0 && sum <= left);
	if (sum == left)
		iov[n++] = (struct iovec){ .iov_base = rx->buf, .iov_len = rx->trailer + ahead(rx) };
	return n;
}

static bool needs_all(const struct rdmap_rx *rx)
{
	if (rx->bytes >= RX_FIRST / 2)
		return true;
	return rx->end - rx->start >= MPA_LEN_SIZE && mpa_fpdu_bytes(get_be16(rx->buf + rx->start)) > RX_FIRST / 2;
}

static int make_staging(struct rdmap_rx *rx)
{
	u32 size = needs_all(rx) ? RX_STAGING : RX_FIRST;
	u8 *buf = size == rx->size ? rx->buf : realloc(rx->buf, size);

	if (!buf)
		return -ENOMEM;
	rx->buf = buf;
	rx->size = size;
	return 0;
}

/**
 * rdmap_rx_want() - where the next bytes of the stream go
 * @rx: the receiver
 * @iov: the pieces to read into, in order; valid until rdmap_rx_got()
 * @max: room in @iov, at least 2
 *
 * May be called again without rdmap_rx_got() in between if nothing was read.
 *
 * Return: number of pieces; -EPROTO: rx->error says what is wrong, or is &rdmap_rx_stop; -ENOMEM, which a later call may repair.
 */
int rdmap_rx_want(struct rdmap_rx *rx, struct iovec *iov, int max)
{
	assert(max >= 2);
	if (rx->error)
		return -EPROTO;
	if (rx->size < RX_STAGING && make_staging(rx))
		return -ENOMEM;
	if (direct_left(rx))
		return want_direct(rx, iov, max);
	return want_staging(rx, iov);
}

/**
 * rdmap_rx_got() - bytes were read into the pieces of rdmap_rx_want()
 * @rx: the receiver
 * @n: how many; at most what the pieces hold
 *
 * Handles all FPDUs that are complete.
 *
 * Return: 0; -EPROTO: rx->error says what is wrong, and rx->bad_ulpdu what to quote, or it is &rdmap_rx_stop; -ENOMEM.
 */
int rdmap_rx_got(struct rdmap_rx *rx, size_t n)
{
	u32 straight = (u32)min(n, (size_t)direct_left(rx));
	int rc = -EPROTO;

	if (rx->error)
		return -EPROTO;
	rx->bytes += n;
	rx->placed += straight;
	assert(n - straight <= rx->size - rx->end);
	rx->end += (u32)(n - straight);
	while (rx->end > rx->start && (rx->markers ? step_markers(rx, &rc) : step(rx)))
		;
	if (rx->error)
		return rc;
	if (rx->start == rx->end)
		rx->start = rx->end = 0;
	return 0;
}

/**
 * rdmap_rx_cut_off() - would the stream end within an FPDU here?
 * @rx: the receiver
 *
 * Return: true if so: a FIN now is no orderly end (RFC 5044 9.1).
 */
bool rdmap_rx_cut_off(const struct rdmap_rx *rx)
{
	return rx->direct || rx->end > rx->start || mpa_rx_begun(&rx->mpa);
}
