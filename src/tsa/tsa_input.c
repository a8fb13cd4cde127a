/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tsa: what comes in, in the order of RFC 9293 3.10.7.4 with the blind-attack rules of RFC 5961: RST, SYN, sequence
 * number, ACK, text, FIN. Each check either drops, or answers with an ACK whose number per second is limited.
 */
#include "tsa/tsa_internal.h"

/* A segment cut down to what lies in the window. */
struct seg {
	u32 seq;
	const u8 *data;
	u32 len;
	bool fin;
};

/* Both FINs were sent, nothing of ours but the FIN can be lost: RFC 9293 3.10.7.4 just closes. */
static bool nearly_closed(const struct tsa_conn *c)
{
	return (c->state == TSA_ST_CLOSING || c->state == TSA_ST_LAST_ACK) && !c->snd.len;
}

/* RFC 5961 3.2: an RST counts at rcv_nxt alone. */
static void handle_rst(struct tsa_conn *c, const struct pkt *p)
{
	c->tsa->stats.resets_in++;
	if (p->seq == c->rcv_nxt && nearly_closed(c))
		tsa_end(c, TSA_ST_CLOSED, TSA_CLOSED);
	else if (p->seq == c->rcv_nxt)
		tsa_fail(c, -ECONNRESET);
	else if (seq_gt(p->seq, c->rcv_nxt) && seq_lt(p->seq, c->rcv_adv))
		tsa_send_challenge(c);
}

/*
 * Cut @p to the window. False: nothing of it lies there. RFC 9293 would refuse a bare ACK at the right edge; but
 * that is where a sender who filled the window stands, so it is taken.
 */
static bool cut(struct tsa_conn *c, const struct pkt *p, struct seg *s)
{
	*s = (struct seg){ p->seq, p->data, p->datalen, !!(p->flags & PKT_FIN) };
	if (seq_lt(s->seq, c->rcv_nxt)) {
		u32 old = tsa_span(s->seq, c->rcv_nxt);

		if (old >= s->len + s->fin)
			return false;
		s->seq += old;
		s->data += old;
		s->len -= old;
	}
	if (seq_gt(s->seq, c->rcv_adv))
		return false;
	if (s->len > tsa_span(s->seq, c->rcv_adv)) {
		s->len = tsa_span(s->seq, c->rcv_adv);
		s->fin = false;
		c->ack_now = true;
	}
	return true;
}

/* RFC 9293 3.10.7.4 first: an ACK, then drop. Without payload two ends that disagree would answer each other for ever. */
static void unacceptable(struct tsa_conn *c, const struct pkt *p)
{
	if (p->datalen || (p->flags & PKT_FIN))
		c->ack_now = true;
	else
		tsa_send_challenge(c);
}

/*
 * RFC 9293 3.10.7.4: SND.WL1 and WL2 keep old segments from being believed. WL2 is not kept: an ACK that advances is
 * newer whatever its sequence number, which after a loss may lie below WL1 (as Linux has it).
 */
static void update_window(struct tsa_conn *c, const struct seg *s, u32 ack, u32 window)
{
	if (seq_lt(ack, c->snd_una) || (ack == c->snd_una && seq_lt(s->seq, c->snd_wl1)))
		return;
	c->snd_wl1 = s->seq;
	c->snd_wnd = window;
	if (window > c->max_snd_wnd)
		c->max_snd_wnd = window;
}

static void congestion_new_ack(struct tsa_conn *c, u32 acked)
{
	u32 flight = tsa_span(c->snd_seq, c->snd_max);

	if (!c->in_recovery) {
		if (seq_gt(c->snd_una - 1, c->recover))
			c->recover = c->snd_una - 1; /* keep it near: numbers wrap */
		if (c->cwnd < c->ssthresh)
			c->cwnd += tsa_min_u32(acked, c->mss);
		else
			c->cwnd += tsa_max_u32((u32)((u64)c->mss * c->mss / c->cwnd), 1);
		c->cwnd = tsa_min_u32(c->cwnd, TSA_BUF_MAX);
		return;
	}
	if (seq_geq(c->snd_una, c->recover)) {
		c->in_recovery = false;
		c->cwnd = tsa_min_u32(c->ssthresh, tsa_max_u32(flight, c->mss) + c->mss);
		return;
	}
	/* Partial: the next hole (RFC 6582 3.2 step 3). */
	tsa_retransmit_first(c);
	c->cwnd = c->cwnd > acked ? c->cwnd - acked : 0;
	c->cwnd = tsa_max_u32(c->cwnd + (acked >= c->mss ? c->mss : 0), c->mss);
}

/* The send ring gives up what is acknowledged. */
static void forget_acked(struct tsa_conn *c)
{
	u32 n;

	if (seq_leq(c->snd_una, c->snd_seq))
		return;
	n = tsa_span(c->snd_seq, c->snd_una);
	if (n > c->snd.len) {
		assert(c->fin_queued && n == c->snd.len + 1);
		c->fin_acked = true;
		n = c->snd.len;
	}
	tsa_ring_drop(&c->snd, n);
	c->snd_seq = c->snd_una;
	if (!c->snd.len)
		tsa_ring_free(c->tsa, &c->snd);
	if (seq_lt(c->snd_nxt, c->snd_seq))
		c->snd_nxt = c->snd_seq;
}

static void wake_writer(struct tsa_conn *c)
{
	u32 most = c->tsa->cfg.send_buf;

	if (!c->want_write || c->fin_queued || most - c->snd.len < most / 4)
		return;
	c->want_write = false;
	c->pending |= TSA_WRITABLE;
}

static void new_ack(struct tsa_conn *c, u32 ack)
{
	u32 acked = tsa_span(c->snd_una, ack);

	if (c->timing && seq_gt(ack, c->rtt_seq)) {
		c->timing = false;
		tsa_rtt_sample(c, loop_now(c->tsa->loop) - c->rtt_start_ns);
	}
	c->snd_una = ack;
	c->retries = 0;
	c->dupacks = 0;
	c->probing = false;
	forget_acked(c);
	congestion_new_ack(c, acked);
	tsa_timer_new_ack(c);
	wake_writer(c);
}

/* RFC 5681 3.2, RFC 6582 3.2. */
static void dup_ack(struct tsa_conn *c)
{
	u32 flight = tsa_span(c->snd_seq, c->snd_max);

	c->tsa->stats.dup_acks++;
	if (c->dupacks < UINT8_MAX)
		c->dupacks++;
	if (c->in_recovery) {
		c->cwnd = tsa_min_u32(c->cwnd + c->mss, TSA_BUF_MAX);
		return;
	}
	if (c->dupacks != TSA_DUPACK_THRESHOLD || !seq_gt(c->snd_una, c->recover))
		return;
	c->tsa->stats.fast_retransmits++;
	c->ssthresh = tsa_max_u32(flight / 2, 2 * c->mss);
	c->recover = c->snd_max;
	c->in_recovery = true;
	tsa_retransmit_first(c);
	c->cwnd = c->ssthresh + TSA_DUPACK_THRESHOLD * c->mss;
}

static bool is_dup_ack(const struct tsa_conn *c, const struct pkt *p, u32 window)
{
	return p->ack == c->snd_una && !p->datalen && !(p->flags & PKT_FIN) && window == c->snd_wnd &&
	       c->snd_max != c->snd_seq && !c->probing;
}

/* A window that was closed is open: what the probe carried goes out again with the rest. */
static void look_at_window(struct tsa_conn *c)
{
	if (!c->snd_wnd)
		return;
	c->probes = 0;
	if (!c->probing)
		return;
	c->probing = false;
	c->snd_nxt = c->snd_seq;
	tsa_timer_window_opened(c);
}

static void fin_acked(struct tsa_conn *c)
{
	switch (c->state) {
	case TSA_ST_FIN_WAIT1:
		tsa_set_state(c, TSA_ST_FIN_WAIT2);
		if (!c->up)
			tsa_timer_orphan_fin_wait2(c);
		break;
	case TSA_ST_CLOSING:
		tsa_time_wait_enter(c);
		break;
	case TSA_ST_LAST_ACK:
		tsa_end(c, TSA_ST_CLOSED, TSA_CLOSED);
		break;
	}
}

/* False: the ACK is not acceptable (RFC 5961 5.2), the segment is dropped. */
static bool handle_ack(struct tsa_conn *c, const struct pkt *p, const struct seg *s)
{
	u32 window = (u32)p->window << c->snd_wscale;
	bool dup = is_dup_ack(c, p, window);

	if (seq_gt(p->ack, c->snd_max) || seq_lt(p->ack, c->snd_una - c->max_snd_wnd)) {
		tsa_send_challenge(c);
		return false;
	}
	if (c->deadline == TSA_DL_PERSIST && c->up)
		c->retries = 0; /* it answers: probe on */
	update_window(c, s, p->ack, window);
	if (seq_gt(p->ack, c->snd_una))
		new_ack(c, p->ack);
	else if (dup)
		dup_ack(c);
	look_at_window(c);
	if (c->fin_acked)
		fin_acked(c);
	return true;
}

static void handle_fin(struct tsa_conn *c)
{
	c->fin_held = false;
	c->rcv_nxt++;
	if (seq_gt(c->rcv_nxt, c->rcv_adv))
		c->rcv_adv = c->rcv_nxt;
	tsa_reasm_free(c);
	c->ack_now = true;
	c->pending |= TSA_EOF;
	switch (c->state) {
	case TSA_ST_ESTABLISHED:
		tsa_set_state(c, TSA_ST_CLOSE_WAIT);
		break;
	case TSA_ST_FIN_WAIT1:
		tsa_set_state(c, TSA_ST_CLOSING);
		break;
	case TSA_ST_FIN_WAIT2:
		tsa_time_wait_enter(c);
		break;
	}
}

/* The first FIN seen in the window fixes the end of the stream, unless bytes behind it are here already. */
static void note_fin(struct tsa_conn *c, u32 seq)
{
	const struct tsa_ooo *o = c->ooo;

	c->ack_now = true;
	if (c->fin_held || (o && seq_gt(o->r[o->n - 1].end, seq)))
		return;
	c->fin_held = true;
	c->rcv_fin = seq;
}

static void handle_text(struct tsa_conn *c, struct seg *s)
{
	u32 before = c->rcv_nxt;

	if (c->fin_held && seq_gt(s->seq + s->len, c->rcv_fin))
		s->len = seq_lt(s->seq, c->rcv_fin) ? tsa_span(s->seq, c->rcv_fin) : 0;
	if (!s->len)
		return;
	c->ack_now = true;
	tsa_reasm_add(c, s->seq, s->data, s->len);
	if (c->rcv_nxt != before)
		c->pending |= TSA_READABLE;
}

static void handle_payload(struct tsa_conn *c, struct seg *s)
{
	u32 end = s->seq + s->len;

	if (!tsa_receiving(c) || (!s->len && !s->fin))
		return;
	if (s->len && !c->up && loop_now(c->tsa->loop) >= c->drain_until_ns) {
		/* Nobody will read it: say so (RFC 9293 3.6.1). */
		tsa_send_reset(c);
		tsa_end(c, TSA_ST_CLOSED, 0);
		return;
	}
	handle_text(c, s);
	if (!c->up)
		tsa_forget_unread(c);
	if (s->fin)
		note_fin(c, end);
	if (c->fin_held && c->rcv_nxt == c->rcv_fin)
		handle_fin(c);
}

static void segment_arrives(struct tsa_conn *c, const struct pkt *p)
{
	struct seg s;

	if (p->flags & PKT_RST) {
		handle_rst(c, p);
		return;
	}
	if (p->flags & PKT_SYN) {
		tsa_send_challenge(c); /* RFC 5961 4.2 */
		return;
	}
	if (!(p->flags & PKT_ACK))
		return;
	if (!cut(c, p, &s)) {
		unacceptable(c, p);
		return;
	}
	if (!handle_ack(c, p, &s) || tsa_ended(c))
		return;
	handle_payload(c, &s);
	tsa_output(c);
}

/**
 * tsa_input_hashed() - a segment came in
 * @t: the tsa
 * @p: the decoded segment, checksums verified
 * @tuple: its addresses, as this end sees them
 * @hash: tsa_hash() of them
 *
 * May report events. What is due as an answer goes out after the owner was told, so that the
 * owner's own data or FIN carries the ACK.
 *
 * Return: true if it belonged to a connection or TIME_WAIT record of this tsa; false if it is the caller's.
 */
bool tsa_input_hashed(struct tsa *t, const struct pkt *p, const struct pkt_tuple *tuple, u64 hash)
{
	struct tsa_entry *e = tsa_find(t, tuple, hash);
	struct tsa_conn *c;

	if (!e)
		return false;
	t->stats.segs_in++;
	if (e->kind == TSA_KIND_TIME_WAIT)
		return tsa_time_wait_input(t, container_of(e, struct tsa_time_wait, e), p);
	c = container_of(e, struct tsa_conn, e);
	segment_arrives(c, p);
	tsa_finish(c);
	return true;
}

/**
 * tsa_input() - a segment came in, as tsa_input_hashed()
 * @t: the tsa
 * @p: the decoded segment, checksums verified
 *
 * Return: true if it belonged to this tsa.
 */
bool tsa_input(struct tsa *t, const struct pkt *p)
{
	struct pkt_tuple tuple = {
		.loc_port = p->dport, .rem_port = p->sport, .vlan_id = p->vlan_id, .ipv4 = p->ipv4,
	};

	if (!t->table.count)
		return false;
	memcpy(tuple.loc_addr, p->dst, sizeof(tuple.loc_addr));
	memcpy(tuple.rem_addr, p->src, sizeof(tuple.rem_addr));
	return tsa_input_hashed(t, p, &tuple, tsa_hash(t, &tuple));
}
