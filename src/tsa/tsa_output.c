/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tsa: what goes out.
 *
 * snd_nxt runs over the send ring; a retransmission timeout sets it back to the first byte not
 * acknowledged (go back n), fast retransmit sends that one again without moving it. The FIN is
 * the byte behind the ring. Nagle's algorithm is off: RDMA messages want their latency; the sender's
 * side of silly window avoidance (RFC 9293 3.8.6.2.1) stays.
 */
#include <arpa/inet.h>
#include "tsa/tsa_internal.h"

static u8 *segment(struct tsa *t) { return t->out + PKT_HDR_MAX; }

/* Header in front of @len payload bytes that are in place, and off it goes. */
static void emit(struct tsa *t, const struct tsa_entry *e, u32 seq, u32 ack, u8 flags, u16 window, u32 len)
{
	struct tcphdr h = {
		.source = htons(e->loc_port),
		.dest = htons(e->rem_port),
		.seq = htonl(seq),
		.ack_seq = htonl(ack),
		.window = htons(window),
	};

	h.doff = PKT_TCP_LEN / 4;
	((u8 *)&h)[13] = flags;
	memcpy(segment(t), &h, sizeof(h));
	t->stats.segs_out++;
	t->stats.bytes_out += len;
	t->up.output(t->ctx, &e->route, segment(t), PKT_TCP_LEN + len);
}

void tsa_emit_bare(struct tsa *t, const struct tsa_entry *e, u32 seq, u32 ack, u8 flags, u16 window)
{
	emit(t, e, seq, ack, flags, window, 0);
}

/* Right edge that the buffer allows, moved only in worthwhile steps (RFC 9293 3.8.6.2.2), never to the left. */
static u32 window_edge(const struct tsa_conn *c, u32 least_gain)
{
	u32 edge = c->rcv_nxt + (c->rcv_cap - c->rcv.len);

	if (seq_leq(edge, c->rcv_adv) || tsa_span(c->rcv_adv, edge) < least_gain)
		return c->rcv_adv;
	return edge;
}

static u16 window_field(const struct tsa_conn *c, u32 edge)
{
	return (u16)tsa_min_u32(tsa_span(c->rcv_nxt, edge) >> c->rcv_wscale, 0xFFFF);
}

static u16 window_tell(struct tsa_conn *c)
{
	u16 field = window_field(c, window_edge(c, tsa_min_u32(c->mss, c->rcv_cap / 2)));
	u32 told = c->rcv_nxt + ((u32)field << c->rcv_wscale);

	if (seq_gt(told, c->rcv_adv))
		c->rcv_adv = told;
	return field;
}

bool tsa_window_worth_telling(const struct tsa_conn *c)
{
	u32 least = tsa_min_u32(2 * c->mss, c->rcv_cap / 2);
	u32 told = c->rcv_nxt + ((u32)window_field(c, window_edge(c, least)) << c->rcv_wscale);

	return seq_gt(told, c->rcv_adv) && tsa_span(c->rcv_adv, told) >= least;
}

/* @len bytes of the ring from @off, which has number @seq. */
static void emit_conn(struct tsa_conn *c, u32 seq, u32 off, u32 len, u8 flags)
{
	struct tsa *t = c->tsa;

	if (len)
		tsa_ring_read(&c->snd, off, segment(t) + PKT_TCP_LEN, len);
	c->ack_now = false;
	emit(t, &c->e, seq, c->rcv_nxt, flags | PKT_ACK, window_tell(c), len);
}

void tsa_send_ack(struct tsa_conn *c)
{
	emit_conn(c, c->snd_max, 0, 0, 0);
}

void tsa_send_challenge(struct tsa_conn *c)
{
	if (!limit_allow(&c->challenge, loop_now(c->tsa->loop), TSA_CHALLENGES_PER_S))
		return;
	c->tsa->stats.challenge_acks++;
	tsa_send_ack(c);
}

/* The peer heeds an RST at its rcv_nxt alone; what lies beyond its window (a probe) has not moved that. */
void tsa_send_reset(struct tsa_conn *c)
{
	u32 edge = c->snd_una + c->snd_wnd;

	c->tsa->stats.resets_out++;
	emit_conn(c, seq_leq(c->snd_max, edge) ? c->snd_max : edge, 0, 0, PKT_RST);
}

/* RFC 5681 3.1 */
u32 tsa_initial_window(const struct tsa_conn *c)
{
	return c->mss * (c->mss > 2190 ? 2u : c->mss > 1095 ? 3u : 4u);
}

/* Does the FIN follow right behind @off bytes of the ring? */
static bool fin_at(const struct tsa_conn *c, u32 off)
{
	return c->fin_queued && !c->fin_acked && off == c->snd.len;
}

/* Bytes that the peer's window leaves beyond snd_nxt. */
static u32 window_room(const struct tsa_conn *c)
{
	u32 edge = c->snd_una + c->snd_wnd;

	return seq_gt(edge, c->snd_nxt) ? tsa_span(c->snd_nxt, edge) : 0;
}

static u32 congestion_room(const struct tsa_conn *c)
{
	u32 flight = tsa_span(c->snd_seq, c->snd_nxt);
	u32 cwnd = c->cwnd;

	if (!c->in_recovery && c->dupacks < TSA_DUPACK_THRESHOLD)
		cwnd += c->dupacks * c->mss; /* RFC 3042 */
	return cwnd > flight ? cwnd - flight : 0;
}

static bool silly(const struct tsa_conn *c, u32 len, u32 avail)
{
	return len < c->mss && len < avail && len < c->max_snd_wnd / 2;
}

static void sent(struct tsa_conn *c, u32 n)
{
	bool again = seq_lt(c->snd_nxt, c->snd_max);

	c->last_send_ns = loop_now(c->tsa->loop);
	if (again) {
		c->tsa->stats.retransmits++;
		c->timing = false; /* Karn: an ACK could be for either */
	} else if (!c->timing) {
		c->timing = true;
		c->rtt_seq = c->snd_nxt;
		c->rtt_start_ns = c->last_send_ns;
	}
	c->snd_nxt += n;
	if (seq_gt(c->snd_nxt, c->snd_max))
		c->snd_max = c->snd_nxt;
}

/* One segment at snd_nxt, if there is one that may go now. */
static bool send_next(struct tsa_conn *c)
{
	u32 off = tsa_span(c->snd_seq, c->snd_nxt);
	u32 seq = c->snd_nxt, avail, room, len;
	u8 flags = 0;

	if (off > c->snd.len)
		return false; /* the FIN is out */
	avail = c->snd.len - off;
	if (!avail && !fin_at(c, off))
		return false;
	room = tsa_min_u32(window_room(c), congestion_room(c));
	len = tsa_min_u32(tsa_min_u32(avail, room), c->mss);
	if (!room || silly(c, len, avail))
		return false;
	if (fin_at(c, off + len) && room > len)
		flags |= PKT_FIN;
	if (len && len == avail)
		flags |= PKT_PSH;
	sent(c, len + !!(flags & PKT_FIN));
	emit_conn(c, seq, off, len, flags);
	tsa_timer_sent(c);
	return true;
}

static void restart_after_idle(struct tsa_conn *c)
{
	if (c->snd_max != c->snd_seq || loop_now(c->tsa->loop) - c->last_send_ns <= c->rto_ns)
		return;
	c->cwnd = tsa_min_u32(c->cwnd, tsa_initial_window(c)); /* RFC 5681 4.1 */
}

void tsa_output(struct tsa_conn *c)
{
	if (tsa_ended(c))
		return;
	if (c->probing)
		return; /* the answer, or the persist timer, goes on */
	restart_after_idle(c);
	while (send_next(c))
		;
	if (c->snd_nxt == c->snd_seq && (c->snd.len || fin_at(c, 0)))
		tsa_timer_window_closed(c);
}

/* Send the first segment that is not acknowledged once more; snd_nxt stays. */
void tsa_retransmit_first(struct tsa_conn *c)
{
	u32 len = tsa_min_u32(tsa_min_u32(c->snd.len, c->mss), tsa_span(c->snd_seq, c->snd_max));
	u8 flags = 0;

	if (c->snd_seq == c->snd_max)
		return;
	if (fin_at(c, len) && seq_gt(c->snd_max, tsa_fin_seq(c)))
		flags |= PKT_FIN;
	if (len == c->snd.len)
		flags |= PKT_PSH;
	c->timing = false;
	c->tsa->stats.retransmits++;
	emit_conn(c, c->snd_seq, 0, len, flags);
}

/* The persist timer: what little the window takes, or one byte (or the FIN) beyond it (RFC 9293 3.8.6.1). */
void tsa_send_probe(struct tsa_conn *c)
{
	u32 room, len;
	u8 flags = 0;

	c->snd_nxt = c->snd_seq;
	room = window_room(c);
	len = tsa_min_u32(tsa_min_u32(c->snd.len, tsa_max_u32(room, 1)), c->mss);
	if (!len && !fin_at(c, 0))
		return;
	if (!len)
		flags |= PKT_FIN;
	c->tsa->stats.window_probes++;
	c->probing = !room;
	sent(c, len + !!flags);
	c->timing = false;
	emit_conn(c, c->snd_seq, 0, len, flags);
	if (room)
		tsa_timer_sent(c);
}
