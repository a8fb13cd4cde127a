/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tsa: TIME_WAIT (RFC 9293 3.3.2, 3.10.7.4; RFC 1122 4.2.2.13; RFC 1337).
 *
 * A record of at most 128 bytes answers for a connection that is over: the peer's FIN, sent again
 * because our last ACK was lost, gets that ACK again and the time starts anew; an RST changes nothing (RFC 1337);
 * a SYN above what we received opens the pair anew, and the record makes way. All live
 * equally long, so they sit in one list by expiry with one timer; beyond cfg.max_time_wait the oldest goes.
 */
#include "tsa/tsa_internal.h"

void tsa_time_wait_del(struct tsa *t, struct tsa_time_wait *tw)
{
	hash_del(&t->table, &tw->e.node);
	TAILQ_REMOVE(&t->time_waits, tw, entry);
	t->n_time_waits--;
	pool_put(&t->time_wait_pool, tw);
}

static void arm(struct tsa *t)
{
	struct tsa_time_wait *first = TAILQ_FIRST(&t->time_waits);

	if (t->time_wait_armed || !first)
		return;
	t->time_wait_armed = true;
	mod_timer(&t->time_wait_timer, first->expires_ns);
}

/* To the end of the list: a whole time is left from now on. */
static void append(struct tsa *t, struct tsa_time_wait *tw)
{
	tw->expires_ns = loop_now(t->loop) + t->cfg.time_wait_ns;
	TAILQ_INSERT_TAIL(&t->time_waits, tw, entry);
	arm(t);
}

void tsa_time_wait_expire(struct timer_list *timer)
{
	struct tsa *t = container_of(timer, struct tsa, time_wait_timer);
	struct tsa_time_wait *tw;

	t->time_wait_armed = false;
	while ((tw = TAILQ_FIRST(&t->time_waits)) && tw->expires_ns <= loop_now(t->loop))
		tsa_time_wait_del(t, tw);
	arm(t);
}

static struct tsa_time_wait *record_get(struct tsa *t)
{
	struct tsa_time_wait *tw;

	if (t->n_time_waits >= t->cfg.max_time_wait && t->n_time_waits)
		tsa_time_wait_del(t, TAILQ_FIRST(&t->time_waits));
	tw = pool_get(&t->time_wait_pool);
	if (!tw)
		return NULL;
	t->n_time_waits++;
	t->stats.time_waits++;
	tw->limit = (struct limit){ 0 };
	return tw;
}

void tsa_time_wait_enter(struct tsa_conn *c)
{
	struct tsa *t = c->tsa;
	struct tsa_time_wait *tw;
	u64 hash = c->e.node.hash;

	tsa_end(c, TSA_ST_TIME_WAIT, TSA_CLOSED);
	tw = t->cfg.max_time_wait ? record_get(t) : NULL;
	if (!tw)
		return;
	tw->e = c->e;
	tw->e.kind = TSA_KIND_TIME_WAIT;
	tw->snd_nxt = c->snd_max;
	tw->rcv_nxt = c->rcv_nxt;
	tw->window = (u16)tsa_min_u32(tsa_span(c->rcv_nxt, c->rcv_adv) >> c->rcv_wscale, 0xFFFF);
	hash_add(&t->table, &tw->e.node, hash);
	append(t, tw);
}

/**
 * tsa_time_wait_add() - remember a connection that reached TIME_WAIT under the CM
 * @t: the tsa
 * @info: its last state; snd_nxt and rcv_nxt count both FINs
 *
 * Return: 0, -ENOMEM, or -EEXIST while a live connection has the same addresses.
 */
int tsa_time_wait_add(struct tsa *t, const struct tcp_info_ho *info)
{
	u64 hash = tsa_hash(t, &info->tuple);
	struct tsa_entry *e = tsa_find(t, &info->tuple, hash);
	struct tsa_time_wait *tw;

	if (e && e->kind == TSA_KIND_CONN)
		return -EEXIST;
	if (e)
		tsa_time_wait_del(t, container_of(e, struct tsa_time_wait, e));
	if (!t->cfg.max_time_wait)
		return 0;
	tw = record_get(t);
	if (!tw)
		return -ENOMEM;
	tsa_entry_init(&tw->e, TSA_KIND_TIME_WAIT, info);
	tw->snd_nxt = info->snd_nxt;
	tw->rcv_nxt = info->rcv_nxt;
	tw->window = (u16)tsa_min_u32(info->rcv_wnd >> tsa_min_u32(info->rcv_wscale, 14), 0xFFFF);
	hash_add(&t->table, &tw->e.node, hash);
	append(t, tw);
	return 0;
}

/**
 * tsa_time_wait_forget_hashed() - a new connection with these addresses is opened from this end
 * @t: the tsa
 * @u: its addresses
 * @hash: tsa_hash() of them
 *
 * RFC 6528 keeps the new sequence numbers above the old ones.
 *
 * Return: true if there was a record.
 */
bool tsa_time_wait_forget_hashed(struct tsa *t, const struct pkt_tuple *u, u64 hash)
{
	struct tsa_entry *e = t->n_time_waits ? tsa_find(t, u, hash) : NULL;

	if (!e || e->kind != TSA_KIND_TIME_WAIT)
		return false;
	t->stats.time_wait_reuse++;
	tsa_time_wait_del(t, container_of(e, struct tsa_time_wait, e));
	return true;
}

/**
 * tsa_time_wait_forget() - tsa_time_wait_forget_hashed() for who has no hash
 * @t: the tsa
 * @u: its addresses
 *
 * Return: true if there was a record.
 */
bool tsa_time_wait_forget(struct tsa *t, const struct pkt_tuple *u)
{
	return tsa_time_wait_forget_hashed(t, u, tsa_hash(t, u));
}

static void answer(struct tsa *t, struct tsa_time_wait *tw)
{
	tsa_emit_bare(t, &tw->e, tw->snd_nxt, tw->rcv_nxt, PKT_ACK, tw->window);
}

bool tsa_time_wait_input(struct tsa *t, struct tsa_time_wait *tw, const struct pkt *p)
{
	u32 end = p->seq + p->datalen + !!(p->flags & PKT_FIN);

	if (p->flags & PKT_RST)
		return true; /* RFC 1337 */
	if ((p->flags & (PKT_SYN | PKT_ACK)) == PKT_SYN && seq_gt(p->seq, tw->rcv_nxt)) {
		t->stats.time_wait_reuse++;
		tsa_time_wait_del(t, tw);
		return false;
	}
	if ((p->flags & (PKT_FIN | PKT_SYN)) == PKT_FIN && end == tw->rcv_nxt) {
		answer(t, tw);
		TAILQ_REMOVE(&t->time_waits, tw, entry);
		append(t, tw);
		return true;
	}
	if (!(p->flags & PKT_SYN) && p->seq == tw->rcv_nxt && end == p->seq)
		return true; /* a plain ACK where it belongs: an answer would come back for ever */
	if (limit_allow(&tw->limit, loop_now(t->loop), TSA_CHALLENGES_PER_S)) {
		t->stats.challenge_acks++;
		answer(t, tw);
	}
	return true;
}
