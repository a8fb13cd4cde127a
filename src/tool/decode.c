// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: from segments to words.
 *
 * Each direction is a small machine: it collects the MPA start-up frame, then, once the other direction's is known too (its
 * flags say whether CRCs and markers are in use), cuts FPDUs out of the bytes. Who does not speak MPA, or
 * misses a byte, is counted from there on, not decoded. Judging is the CM's business; here only what is to be seen is said.
 */
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "tool/decode.h"
#include "tool/tool.h"

#define OPAQUE_SHOWN 24u

static u16 be16(const u8 *p)
{
	return (u16)(p[0] << 8 | p[1]);
}

/* ---- MPA start-up frames ---- */

static void parse_v2(const u8 *p, struct tool_mpa_start *out)
{
	u16 ird = be16(p), ord = be16(p + 2);

	out->p2p = ird & MPA_V2_P2P;
	out->rtr = (u8)((ird & MPA_V2_RTR_SEND ? RDMAP_RTR_SEND : 0) | (ord & MPA_V2_RTR_WRITE ? RDMAP_RTR_WRITE : 0) |
			(ord & MPA_V2_RTR_READ ? RDMAP_RTR_READ : 0));
	out->ird = ird & MPA_V2_IRD_ORD_MASK;
	out->ord = ord & MPA_V2_IRD_ORD_MASK;
}

/**
 * tool_mpa_start_parse() - decode an MPA start-up frame (RFC 5044 7.1.1, RFC 6581 6)
 * @p: bytes of the stream from its beginning
 * @len: how many there are
 * @out: filled in if the header is there
 *
 * Return: whether this is one, whole or in part.
 */
enum tool_mpa_verdict tool_mpa_start_parse(const u8 *p, u32 len, struct tool_mpa_start *out)
{
	size_t n = min((size_t)len, (size_t)MPA_KEY_SIZE);
	u32 body;

	memset(out, 0, sizeof(*out));
	out->reply = memcmp(p, MPA_KEY_REQ, n) != 0;
	if (out->reply && memcmp(p, MPA_KEY_REP, n) != 0)
		return TOOL_MPA_BAD_KEY;
	if (len < sizeof(struct mpa_start_hdr))
		return TOOL_MPA_SHORT;
	out->flags = p[16];
	out->rev = p[17];
	body = be16(p + 18);
	out->len = (u32)sizeof(struct mpa_start_hdr) + body;
	out->v2 = out->rev >= MPA_REV_2 && (out->flags & MPA_FLAG_ENHANCED);
	if (body > MPA_MAX_PRIV_DATA || (out->v2 && body < sizeof(struct mpa_v2_data)))
		return TOOL_MPA_BAD_LENGTH;
	out->pdata_len = body - (out->v2 ? (u32)sizeof(struct mpa_v2_data) : 0);
	if (len < out->len)
		return TOOL_MPA_SHORT;
	if (out->v2)
		parse_v2(p + sizeof(struct mpa_start_hdr), out);
	return TOOL_MPA_OK;
}

/* ---- lines ---- */

struct writer {
	struct tool_flow *f;
	struct tool_half *half;
	bool out;
	struct tool_line held; /* the last one, which flags go behind */
	bool holding;
	void (*emit)(void *arg, const struct tool_line *line);
	void *arg;
};

__attribute__((format(printf, 3, 4)))
static void append(char *buf, size_t size, const char *fmt, ...)
{
	size_t have = strlen(buf);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf + have, size - have, fmt, ap);
	va_end(ap);
}

static void emit(struct writer *w, const struct tool_line *line)
{
	if (w->holding)
		w->emit(w->arg, &w->held);
	w->held = *line;
	w->holding = true;
}

/* All that was said, and SYN, FIN, RST behind it. */
static void emit_end(struct writer *w, const char *tcp)
{
	static const struct tool_line empty;

	if (!w->holding && !*tcp)
		return;
	if (!w->holding)
		w->held = empty;
	if (*tcp)
		append(w->held.title, sizeof(w->held.title), "%s%s", *w->held.title ? ", " : "", tcp);
	w->emit(w->arg, &w->held);
}

static void flag_names(u8 flags, char *buf, size_t size)
{
	static const struct {
		u8 flag;
		char name;
	} names[] = { { MPA_FLAG_MARKERS, 'M' }, { MPA_FLAG_CRC, 'C' }, { MPA_FLAG_REJECT, 'R' }, { MPA_FLAG_ENHANCED, 'S' } };
	size_t i;

	buf[0] = '\0';
	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (flags & names[i].flag)
			append(buf, size, " %c", names[i].name);
	if (flags & MPA_FLAG_RESERVED)
		append(buf, size, " +0x%x", flags & MPA_FLAG_RESERVED);
	if (!buf[0])
		append(buf, size, " none");
}

static void depth_str(u16 depth, char buf[16])
{
	if (depth == MPA_V2_NOT_NEGOTIATED)
		snprintf(buf, 16, "open");
	else
		snprintf(buf, 16, "%u", depth);
}

static void describe_start(const struct tool_mpa_start *m, struct tool_line *line)
{
	char flags[32], rtr[TOOL_RTRSTR], ird[16], ord[16];

	flag_names(m->flags, flags, sizeof(flags));
	append(line->title, sizeof(line->title), "MPA %s rev %u%s", m->reply ? "Reply" : "Request", m->rev,
	       m->reply && (m->flags & MPA_FLAG_REJECT) ? ", REJECT" : "");
	append(line->detail, sizeof(line->detail), "flags%s", flags);
	if (m->v2) {
		depth_str(m->ird, ird);
		depth_str(m->ord, ord);
		append(line->detail, sizeof(line->detail), "; IRD %s, ORD %s", ird, ord);
		if (m->p2p || m->rtr)
			append(line->detail, sizeof(line->detail), "; %speer-to-peer, RTR %s", m->p2p ? "" : "not ",
			       tool_rtr_str(m->rtr, rtr));
		else
			append(line->detail, sizeof(line->detail), "; client-server");
	}
	if (m->pdata_len)
		append(line->detail, sizeof(line->detail), "; private data, %u bytes", m->pdata_len);
}

static void describe_bytes(const u8 *p, u32 len, const char *what, struct tool_line *line)
{
	u32 i, n = min(len, OPAQUE_SHOWN);

	append(line->title, sizeof(line->title), "%s, %u bytes", what, len);
	append(line->detail, sizeof(line->detail), "\"");
	for (i = 0; i < n; i++)
		append(line->detail, sizeof(line->detail), p[i] >= 0x20 && p[i] <= 0x7E ? "%c" : ".", p[i]);
	append(line->detail, sizeof(line->detail), "\"%s", len > n ? " ..." : "");
}

static void describe_fpdu(struct tool_half *h, const u8 *ulpdu, u32 len, u8 rtr, struct tool_line *line)
{
	struct rdmap_error err;
	struct ddp_hdr hdr;

	if (ddp_parse(ulpdu, len, &hdr, &err)) {
		append(line->title, sizeof(line->title), "FPDU, %u bytes", len);
		append(line->detail, sizeof(line->detail), "does not decode: %s", rdmap_error_str(&err));
		return;
	}
	append(line->title, sizeof(line->title), "%s", rdmap_opcode_str(hdr.opcode));
	if (!rdmap_parse_terminate(&hdr, &h->term)) {
		h->term_seen = true;
		append(line->detail, sizeof(line->detail), "%s (layer %u, type %u, code %u)", rdmap_error_str(&h->term), h->term.layer,
		       h->term.etype, h->term.code);
		return;
	}
	append(line->title, sizeof(line->title), ", %u bytes", hdr.opcode == RDMAP_READ_REQ ? rdmap_read_len(&hdr) : hdr.payload_len);
	if (h->fpdus == 1 && rtr && rdmap_is_rtr(&hdr, rtr))
		append(line->title, sizeof(line->title), " (RTR)");
	if (!hdr.last)
		append(line->title, sizeof(line->title), ", to be continued");
}

/* ---- the stream ---- */

static void lose(struct tool_half *h)
{
	h->phase = TOOL_OPAQUE;
}

static void opaque(struct writer *w, const u8 *p, u32 len, const char *what)
{
	struct tool_line line = { "", "" };

	describe_bytes(p, len, what, &line);
	emit(w, &line);
	lose(w->half);
}

/* Bytes consumed. */
static u32 take_start(struct writer *w, const u8 *p, u32 len)
{
	struct tool_half *h = w->half;
	u32 had = h->start_have, n = min(len, (u32)sizeof(h->start_buf) - had);
	struct tool_line line = { "", "" };

	memcpy(h->start_buf + had, p, n);
	h->start_have += n;
	h->verdict = tool_mpa_start_parse(h->start_buf, h->start_have, &h->start);
	switch (h->verdict) {
	case TOOL_MPA_OK:
		describe_start(&h->start, &line);
		emit(w, &line);
		h->phase = TOOL_FPDUS;
		return h->start.len - had;
	case TOOL_MPA_SHORT:
		append(line.title, sizeof(line.title), "%s of an MPA frame, %u bytes", had ? "more" : "beginning", n);
		emit(w, &line);
		return n;
	case TOOL_MPA_BAD_LENGTH:
		describe_start(&h->start, &line);
		append(line.detail, sizeof(line.detail), "; impossible length %u", h->start.len - (u32)sizeof(struct mpa_start_hdr));
		emit(w, &line);
		lose(h);
		return len;
	case TOOL_MPA_BAD_KEY:
	default:
		opaque(w, h->start_buf, h->start_have, "not MPA");
		return len;
	}
}

/* CRCs are used if either side wants them; markers go to who wants them. */
static void rx_prepare(struct writer *w)
{
	const struct tool_half *me = w->half, *peer = &w->f->half[!w->out];

	if (w->half->rx_ready)
		return;
	mpa_rx_init(&w->half->rx, (me->start.flags | peer->start.flags) & MPA_FLAG_CRC, peer->start.flags & MPA_FLAG_MARKERS);
	w->half->rx_ready = true;
}

/* The RTR kind agreed on: what the reply says. */
static u8 rtr_of(const struct tool_flow *f)
{
	return f->half[0].start.reply ? f->half[0].start.rtr : f->half[1].start.rtr;
}

static u32 take_fpdu(struct writer *w, const u8 *p, u32 len)
{
	struct tool_half *h = w->half;
	struct tool_line line = { "", "" };
	const u8 *ulpdu;
	ssize_t n;
	u32 ulen;

	rx_prepare(w);
	n = mpa_rx_feed(&h->rx, p, len, &ulpdu, &ulen);
	if (n < 0) {
		const struct rdmap_error err = { TERM_LAYER_LLP, 0, (u8)h->rx.error };

		append(line.title, sizeof(line.title), "bad FPDU, %u bytes", len);
		append(line.detail, sizeof(line.detail), "%s", rdmap_error_str(&err));
		emit(w, &line);
		lose(h);
		return len;
	}
	if (ulpdu) {
		h->fpdus++;
		describe_fpdu(h, ulpdu, ulen, rtr_of(w->f), &line);
	} else {
		append(line.title, sizeof(line.title), "part of an FPDU, %u bytes", (u32)n);
	}
	emit(w, &line);
	return (u32)n;
}

static void take_bytes(struct writer *w, const u8 *p, u32 len)
{
	u32 n;

	while (len) {
		if (w->half->phase == TOOL_START) {
			n = take_start(w, p, len);
		} else if (w->half->phase == TOOL_FPDUS) {
			n = take_fpdu(w, p, len);
		} else {
			opaque(w, p, len, "data");
			n = len;
		}
		p += n;
		len -= n;
	}
}

/* ---- segments ---- */

/* What a SYN offers: MSS and window scale. */
static void describe_options(const struct pkt *p, char *buf, size_t size)
{
	u32 i, len;

	for (i = 0; i < p->optlen && p->opts[i] != TCPOPT_EOL; i += len) {
		if (p->opts[i] == TCPOPT_NOP) {
			len = 1;
			continue;
		}
		if (i + 2 > p->optlen || p->opts[i + 1] < 2 || i + p->opts[i + 1] > p->optlen)
			return;
		len = p->opts[i + 1];
		if (p->opts[i] == TCPOPT_MAXSEG && len == TCPOLEN_MAXSEG)
			append(buf, size, ", MSS %u", be16(p->opts + i + 2));
		else if (p->opts[i] == TCPOPT_WINDOW && len == TCPOLEN_WINDOW)
			append(buf, size, ", scale %u", p->opts[i + 2]);
	}
}

static void describe_flags(const struct pkt *p, char *buf, size_t size)
{
	buf[0] = '\0';
	if (p->flags & PKT_SYN) {
		append(buf, size, p->flags & PKT_ACK ? "SYN+ACK" : "SYN");
		describe_options(p, buf, size);
	}
	if (p->flags & PKT_FIN)
		append(buf, size, "%sFIN", *buf ? "+" : "");
	if (p->flags & PKT_RST)
		append(buf, size, "%sRST", *buf ? "+" : "");
}

/* How many bytes of payload are old; all of them and more if the segment leaves a gap, which ends decoding. */
static u32 old_bytes(struct tool_half *h, u32 seq, u32 len)
{
	if (!h->any || seq == h->nxt)
		return 0;
	if (seq_gt(seq, h->nxt)) {
		lose(h);
		return 0;
	}
	return min(h->nxt - seq, len);
}

static void note_numbers(struct tool_flow *f, bool out, const struct pkt *p, struct tool_segment *seg)
{
	struct tool_half *me = &f->half[out], *peer = &f->half[!out];

	if (p->flags & PKT_SYN) {
		me->iss = p->seq;
		me->syn = true;
	}
	seg->seq = me->syn ? p->seq - me->iss : p->seq;
	seg->ack = p->flags & PKT_ACK ? (peer->syn ? p->ack - peer->iss : p->ack) : 0;
	seg->bare_ack = !p->datalen && !(p->flags & (PKT_SYN | PKT_FIN | PKT_RST));
}

static void advance(struct tool_half *h, const struct pkt *p)
{
	u32 end = p->seq + p->datalen + !!(p->flags & PKT_SYN) + !!(p->flags & PKT_FIN);

	if (!h->any || seq_gt(end, h->nxt))
		h->nxt = end;
	h->any = true;
	h->fin |= !!(p->flags & PKT_FIN);
	h->rst |= !!(p->flags & PKT_RST);
}

/* Does @p only say again what was said? */
static bool is_again(const struct tool_half *h, const struct pkt *p)
{
	u32 used = p->datalen + !!(p->flags & PKT_SYN) + !!(p->flags & PKT_FIN);

	return h->any && used && !(p->flags & PKT_RST) && seq_leq(p->seq + used, h->nxt);
}

/**
 * tool_flow_segment() - put a segment into words
 * @f: its connection
 * @out: sent by this side
 * @p: the segment
 * @seg: what is to be said about the segment itself
 * @emit_line: called for each line
 * @arg: for @emit_line
 */
void tool_flow_segment(struct tool_flow *f, bool out, const struct pkt *p, struct tool_segment *seg,
		       void (*emit_line)(void *arg, const struct tool_line *line), void *arg)
{
	struct writer w = { .f = f, .half = &f->half[out], .out = out, .emit = emit_line, .arg = arg };
	struct tool_line line = { "", "" };
	char tcp[TOOL_TITLE];
	u32 skip;

	/* The CM tries revision 1 from the same port: another connection. */
	if ((p->flags & (PKT_SYN | PKT_ACK)) == PKT_SYN && w.half->syn && p->seq != w.half->iss)
		tool_flow_destroy(f);
	note_numbers(f, out, p, seg);
	seg->again = is_again(w.half, p);
	describe_flags(p, tcp, sizeof(tcp));
	if (seg->again) {
		append(line.title, sizeof(line.title), "again: %s%s%s", p->datalen ? "data" : "", p->datalen && *tcp ? ", " : "", tcp);
		emit_line(arg, &line);
		return;
	}
	skip = p->datalen ? old_bytes(w.half, p->seq + !!(p->flags & PKT_SYN), p->datalen) : 0;
	take_bytes(&w, p->data + skip, p->datalen - skip);
	emit_end(&w, tcp);
	advance(w.half, p);
}

/**
 * tool_flow_destroy() - forget a connection; it may then be used for the next one
 * @f: the flow
 */
void tool_flow_destroy(struct tool_flow *f)
{
	mpa_rx_destroy(&f->half[0].rx);
	mpa_rx_destroy(&f->half[1].rx);
	memset(f, 0, sizeof(*f));
}
