/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tsa: timers of a connection.
 *
 * One loop timer serves them all, because only one reason to wait exists at a time (enum tsa_deadline). It is lazy: a
 * deadline that moves away leaves the timer where it is, and the timer, when it fires early, goes to
 * the deadline. So a connection that lives for a few segments arms it once.
 *
 * Timeouts: retransmission RTO of RFC 6298, 1 s before the first measurement, doubled each time
 * up to cfg.max_rto_ns, given up after cfg.max_retries; window probe the same, but for ever
 * while the peer answers and an owner is there; FIN_WAIT2 without owner TSA_FIN_WAIT2_NS.
 */
#include "tsa/tsa_internal.h"

static void arm(struct tsa_conn *c, u64 at_ns)
{
	if (!at_ns)
		at_ns = 1;
	if (c->armed_ns && c->armed_ns <= at_ns)
		return;
	c->armed_ns = at_ns;
	mod_timer(&c->timer, at_ns);
}

static void wait_for(struct tsa_conn *c, enum tsa_deadline what, u64 delay_ns)
{
	c->deadline = (u8)what;
	if (what == TSA_DL_NONE)
		return;
	c->deadline_ns = loop_now(c->tsa->loop) + delay_ns;
	arm(c, c->deadline_ns);
}

static u64 backed_off(const struct tsa_conn *c, unsigned int times)
{
	u64 max_ns = c->tsa->cfg.max_rto_ns;
	u64 rto = c->rto_ns;

	while (times-- && rto < max_ns)
		rto <<= 1;
	return rto < max_ns ? rto : max_ns;
}

void tsa_timer_sent(struct tsa_conn *c)
{
	if (c->deadline != TSA_DL_RETRANSMIT)
		wait_for(c, TSA_DL_RETRANSMIT, c->rto_ns);
}

void tsa_timer_new_ack(struct tsa_conn *c)
{
	if (seq_gt(c->snd_max, c->snd_seq))
		wait_for(c, TSA_DL_RETRANSMIT, c->rto_ns); /* RFC 6298 5.3 */
	else
		wait_for(c, TSA_DL_NONE, 0);
}

void tsa_timer_window_closed(struct tsa_conn *c)
{
	if (c->deadline != TSA_DL_PERSIST)
		wait_for(c, TSA_DL_PERSIST, backed_off(c, c->probes));
}

void tsa_timer_window_opened(struct tsa_conn *c)
{
	if (c->deadline == TSA_DL_PERSIST)
		wait_for(c, TSA_DL_NONE, 0);
}

void tsa_timer_orphan_fin_wait2(struct tsa_conn *c)
{
	wait_for(c, TSA_DL_FIN_WAIT2, TSA_FIN_WAIT2_NS);
}

void tsa_timer_report(struct tsa_conn *c)
{
	arm(c, loop_now(c->tsa->loop));
}

void tsa_timer_stop(struct tsa_conn *c)
{
	c->deadline = TSA_DL_NONE;
	if (c->armed_ns)
		timer_del(&c->timer);
	c->armed_ns = 0;
}

/* RFC 6298 2.2 and 2.3; the clock's granularity is the loop's tick. */
void tsa_rtt_sample(struct tsa_conn *c, u64 rtt_ns)
{
	const struct tsa_config *cfg = &c->tsa->cfg;
	u64 var;

	if (!c->srtt_ns) {
		c->srtt_ns = rtt_ns ? rtt_ns : 1;
		c->rttvar_ns = rtt_ns / 2;
	} else {
		u64 off = c->srtt_ns > rtt_ns ? c->srtt_ns - rtt_ns : rtt_ns - c->srtt_ns;

		c->rttvar_ns = (3 * c->rttvar_ns + off) / 4;
		c->srtt_ns = (7 * c->srtt_ns + rtt_ns) / 8;
	}
	var = 4 * c->rttvar_ns;
	c->rto_ns = c->srtt_ns + (var > LOOP_TICK_NS ? var : LOOP_TICK_NS);
	if (c->rto_ns < cfg->min_rto_ns)
		c->rto_ns = cfg->min_rto_ns;
	if (c->rto_ns > cfg->max_rto_ns)
		c->rto_ns = cfg->max_rto_ns;
}

static void give_up(struct tsa_conn *c)
{
	tsa_send_reset(c);
	tsa_fail(c, -ETIMEDOUT);
}

/* RFC 6298 5.4 to 5.6, RFC 5681 3.1, RFC 6582 3.2 step 6. */
static void retransmit_due(struct tsa_conn *c)
{
	u32 flight = tsa_span(c->snd_seq, c->snd_max);

	c->tsa->stats.rto_fired++;
	if (c->retries >= c->tsa->cfg.max_retries) {
		give_up(c);
		return;
	}
	if (c->retries++ == 0)
		c->ssthresh = tsa_max_u32(flight / 2, 2 * c->mss);
	c->cwnd = c->mss;
	c->in_recovery = false;
	c->dupacks = 0;
	c->recover = c->snd_max;
	c->timing = false; /* Karn */
	c->rto_ns = backed_off(c, 1);
	c->snd_nxt = c->snd_seq;
	tsa_output(c);
}

static void persist_due(struct tsa_conn *c)
{
	u32 most = c->tsa->cfg.max_retries;

	if (c->retries >= most || (!c->up && c->probes >= most)) {
		give_up(c);
		return;
	}
	c->retries++;
	if (c->probes < UINT8_MAX)
		c->probes++;
	tsa_send_probe(c);
	if (c->probing)
		tsa_timer_window_closed(c);
}

void tsa_timer_fired(struct timer_list *timer)
{
	struct tsa_conn *c = container_of(timer, struct tsa_conn, timer);
	u8 what = c->deadline;

	c->armed_ns = 0;
	if (what != TSA_DL_NONE && loop_now(c->tsa->loop) < c->deadline_ns) {
		arm(c, c->deadline_ns);
		what = TSA_DL_NONE;
	}
	if (what != TSA_DL_NONE)
		c->deadline = TSA_DL_NONE;
	if (what == TSA_DL_RETRANSMIT)
		retransmit_due(c);
	else if (what == TSA_DL_PERSIST)
		persist_due(c);
	else if (what == TSA_DL_FIN_WAIT2)
		tsa_end(c, TSA_ST_CLOSED, 0);
	tsa_finish(c);
}
