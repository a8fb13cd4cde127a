/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The receiver of FPDUs, DDP and RDMAP by itself. The input is a stream: FPDUs with right CRCs and markers around any ULPDU, any bytes, and
 * damage; and how it is split. However it is split, the receiver has to say and place the same as when it gets the whole at once.
 */
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "rdmap/rdmap_internal.h"

#define STREAM_MAX (128u << 10)
#define MEM_SIZE (64u << 10)
#define PAYLOAD_MAX 40000u /* large ones are read straight to where they belong */
#define CALLS_MAX 1024u
#define PIECES 8

struct stream {
	struct mpa_stream s;
	u8 bytes[STREAM_MAX];
	u32 len;
};

/* What a receiver was asked, and where bytes went. */
struct receiver {
	struct rdmap_rx rx;
	u8 mem[MEM_SIZE];
	struct call { char what; struct ddp_hdr h; } calls[CALLS_MAX];
	u32 ncalls;
	struct ddp_hdr now;
	u32 sunk;
	int result;
};

/* ---- the stream ---- */

static void add_fpdu(struct stream *s, const u8 *ulpdu, u32 len)
{
	struct mpa_stream before = s->s;
	int n = mpa_fpdu_build(&s->s, ulpdu, len, s->bytes + s->len, STREAM_MAX - s->len);

	if (n > 0)
		s->len += (u32)n;
	else
		s->s = before;
}

/* A header that is right but for a field or two, and some payload. */
static void add_segment(struct stream *s, struct fuzz *f)
{
	static u8 ulpdu[DDP_UNTAGGED_HDR + PAYLOAD_MAX];
	u8 opcode = fuzz_u8(f), bits = fuzz_u8(f);
	u32 len = bits & 32 ? fuzz_u16(f) % PAYLOAD_MAX : fuzz_u8(f), n, i;

	if (bits & 1)
		n = ddp_put_tagged(ulpdu, opcode & RDMAP_OPCODE_MASK, bits & 2, fuzz_u8(f), fuzz_u16(f));
	else
		n = ddp_put_untagged(ulpdu, opcode % RDMAP_OPCODES, bits & 2, fuzz_u8(f), fuzz_u8(f), bits & 4 ? fuzz_u16(f) : 0);
	if (bits & 8)
		len = rdmap_ops[opcode % RDMAP_OPCODES].min_len;
	for (i = 0; i < len; i++)
		ulpdu[n + i] = (u8)(i * 7 + i / 256 + s->len);
	fuzz_bytes(f, ulpdu + n, min(len, 64u));
	if (bits & 16)
		ulpdu[fuzz_below(f, n)] ^= fuzz_u8(f);
	add_fpdu(s, ulpdu, n + len);
}

static void add_raw(struct stream *s, struct fuzz *f, bool framed)
{
	u8 bytes[UINT8_MAX];
	u32 n = (u32)fuzz_bytes(f, bytes, fuzz_u8(f));

	if (framed) {
		add_fpdu(s, bytes, n);
		return;
	}
	n = min(n, STREAM_MAX - s->len);
	memcpy(s->bytes + s->len, bytes, n);
	s->len += n;
}

static void read_stream(struct stream *s, struct fuzz *f)
{
	u32 n = fuzz_below(f, 32);

	s->len = 0;
	while (n-- && fuzz_more(f)) {
		u8 what = fuzz_u8(f);

		if (what < 160)
			add_segment(s, f);
		else if (what < 200)
			add_raw(s, f, true);
		else if (what < 230)
			add_raw(s, f, false);
		else if (s->len)
			s->bytes[fuzz_u16(f) % s->len] ^= what;
	}
}

/* ---- the QP ---- */

static const struct rdmap_error refused = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG };

static void record(struct receiver *r, char what, const struct ddp_hdr *h)
{
	struct call *c = &r->calls[r->ncalls++];

	assert(r->ncalls <= CALLS_MAX);
	memset(c, 0, sizeof(*c));
	c->what = what;
	if (!h)
		return;
	c->h.tagged = h->tagged;
	c->h.last = h->last;
	c->h.opcode = h->opcode;
	c->h.stag = h->stag;
	c->h.to = h->to;
	c->h.qn = h->qn;
	c->h.msn = h->msn;
	c->h.mo = h->mo;
	c->h.payload_len = h->payload_len;
}

static bool same_header(const struct ddp_hdr *a, const struct ddp_hdr *b)
{
	return a->opcode == b->opcode && a->stag == b->stag && a->to == b->to && a->msn == b->msn && a->mo == b->mo && a->payload_len == b->payload_len;
}

static u32 place_of(const struct ddp_hdr *h)
{
	return (u32)(h->tagged ? h->to : h->msn * 256ull + h->mo) % MEM_SIZE;
}

static const struct rdmap_error *on_start(void *ctx, const struct ddp_hdr *h)
{
	struct receiver *r = ctx;

	record(r, 's', h);
	r->now = *h;
	r->sunk = 0;
	if ((h->tagged && h->stag == 0xBD) || (!rdmap_is_control(h->opcode) && place_of(h) + (u64)h->payload_len > MEM_SIZE))
		return &refused;
	return h->stag == 0xBE ? &rdmap_rx_stop : NULL;
}

/* In pieces of odd sizes, as many as there is room for. */
static int on_sink(void *ctx, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err)
{
	struct receiver *r = ctx;
	u8 *at = r->mem + place_of(h) + off;
	int n;

	assert(same_header(h, &r->now) && off >= r->sunk && len && off + len <= h->payload_len && max > 0);
	r->sunk = off;
	for (n = 0; n < max && len; n++) {
		iov[n].iov_base = at;
		iov[n].iov_len = min(len, 7777u);
		at += iov[n].iov_len;
		len -= (u32)iov[n].iov_len;
	}
	return n;
}

static const struct rdmap_error *on_finish(void *ctx, const struct ddp_hdr *h)
{
	struct receiver *r = ctx;

	assert(same_header(h, &r->now));
	record(r, 'f', h);
	if (rdmap_is_control(h->opcode) && h->payload_len) {
		assert(h->payload);
		r->mem[0] ^= h->payload[h->payload_len - 1];
	}
	return h->stag == 0xBF ? &refused : NULL;
}

static const struct rdmap_error *on_empty(void *ctx)
{
	record(ctx, 'e', NULL);
	return NULL;
}

static const struct rdmap_rx_ops ops = { .start = on_start, .sink = on_sink, .finish = on_finish, .empty = on_empty };

/* One read of at most @most bytes. */
static int receive(struct receiver *r, const u8 *bytes, u32 most, u32 *used)
{
	struct iovec iov[PIECES];
	int n = rdmap_rx_want(&r->rx, iov, PIECES), i;

	*used = 0;
	if (n < 0)
		return n;
	assert(n >= 1 && n <= PIECES);
	for (i = 0; i < n; i++) {
		u32 part = min((u32)iov[i].iov_len, most - *used);

		assert(iov[i].iov_len);
		memcpy(iov[i].iov_base, bytes + *used, part);
		*used += part;
	}
	return rdmap_rx_got(&r->rx, *used);
}

/* Bytes of one read; 0: as many as are wanted. */
static u32 piece(struct fuzz *split)
{
	u8 n = fuzz_u8(split);

	return n < 128 ? n : (n - 127u) * 331u;
}

static void receive_all(struct receiver *r, const struct stream *s, struct fuzz *split)
{
	u32 pos, used;

	memset(r->mem, 0, sizeof(r->mem));
	r->ncalls = r->sunk = 0;
	r->result = 0;
	rdmap_rx_init(&r->rx, &ops, r, s->s.crc, s->s.markers);
	for (pos = 0; pos < s->len && !r->result; pos += used) {
		u32 n = split ? piece(split) : 0;

		r->result = receive(r, s->bytes + pos, n ? min(n, s->len - pos) : s->len - pos, &used);
	}
}

static bool same_error(const struct rdmap_rx *a, const struct rdmap_rx *b)
{
	return a->error && b->error && a->error->layer == b->error->layer && a->error->etype == b->error->etype && a->error->code == b->error->code &&
	       a->bad_len == b->bad_len;
}

/*
 * With CRC off, a large segment is started, and perhaps refused, as soon as its headers are there, if much of it is still to come; else when it is complete. Of one that the
 * stream ends in, one receiver may therefore know more than the other.
 */
static void compare(const struct receiver *a, const struct receiver *b)
{
	const struct receiver *more = a->ncalls > b->ncalls ? a : b;
	u32 n = min(a->ncalls, b->ncalls), i;

	for (i = 0; i < n; i++)
		assert(a->calls[i].what == b->calls[i].what && same_header(&a->calls[i].h, &b->calls[i].h));
	if (a->ncalls != b->ncalls) {
		assert(!a->rx.crc && more->ncalls == n + 1 && more->calls[n].what == 's' && rdmap_rx_cut_off(more == a ? &b->rx : &a->rx));
		return;
	}
	if (!a->rx.crc && a->result != b->result) {
		const struct receiver *less = a->result ? b : a;

		assert(!less->result && rdmap_rx_cut_off(&less->rx)); /* refused by its headers */
		return;
	}
	assert(a->result == b->result && (a->result || a->rx.fpdus == b->rx.fpdus));
	assert(a->result ? same_error(&a->rx, &b->rx) : rdmap_rx_cut_off(&a->rx) == rdmap_rx_cut_off(&b->rx));
	/* ... and have placed more of it. */
	if (a->rx.crc || !rdmap_rx_cut_off(&a->rx))
		assert(a->result || !memcmp(a->mem, b->mem, MEM_SIZE));
	assert(!a->rx.crc || !memcmp(a->mem, b->mem, MEM_SIZE));
}

/* ---- what is built from headers that came in ---- */

static void quote(const u8 *ulpdu, u32 len)
{
	u8 term[RDMAP_TERM_MAX];
	struct rdmap_error err, parsed;
	struct ddp_hdr h;
	u32 n;

	if (!ddp_parse(ulpdu, len, &h, &err)) {
		assert(h.payload >= ulpdu && h.payload + h.payload_len == ulpdu + len);
		assert(rdmap_opcode_str(h.opcode));
		if (!rdmap_parse_terminate(&h, &parsed))
			assert(rdmap_error_str(&parsed));
		err = refused;
	}
	n = rdmap_build_terminate(&err, 1, ulpdu, len, term);
	assert(n <= sizeof(term));
	assert(!ddp_parse(term, n, &h, &parsed) && h.opcode == RDMAP_TERMINATE && !rdmap_parse_terminate(&h, &parsed));
	assert(parsed.layer == err.layer && parsed.etype == err.etype && parsed.code == err.code);
}

/* The plain gatherer, used for markers and by the tool. */
static void gather(const struct stream *s, struct fuzz *split)
{
	struct mpa_rx rx;
	const u8 *ulpdu;
	u32 pos, len;
	ssize_t n;

	mpa_rx_init(&rx, s->s.crc, s->s.markers);
	for (pos = 0; pos < s->len; pos += (u32)n) {
		n = piece(split);
		n = mpa_rx_feed(&rx, s->bytes + pos, n ? min((size_t)n, (size_t)(s->len - pos)) : s->len - pos, &ulpdu, &len);
		if (n <= 0)
			break;
		if (ulpdu)
			quote(ulpdu, len);
	}
	assert(pos == s->len || rx.error);
	mpa_rx_destroy(&rx);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static struct receiver whole, split;
	static struct stream s;
	struct fuzz f = { data, size }, again;
	u8 mode = fuzz_u8(&f);

	mpa_stream_init(&s.s, mode & 1, mode & 2);
	read_stream(&s, &f);
	again = f;
	receive_all(&whole, &s, NULL);
	receive_all(&split, &s, &f);
	compare(&whole, &split);
	rdmap_rx_destroy(&whole.rx);
	rdmap_rx_destroy(&split.rx);
	gather(&s, &again);
	return 0;
}
