/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tsa: reassembly. Bytes go to their place in the receive ring at once, in order or not; what is out of
 * order is remembered as ranges of sequence numbers, at most TSA_OOO_RANGES. So memory
 * per connection is bounded by the window that the peer was given, however it cuts its segments.
 */
#include "tsa/tsa_internal.h"

void tsa_reasm_free(struct tsa_conn *c)
{
	if (c->ooo)
		pool_put(&c->tsa->ooo_pool, c->ooo);
	c->ooo = NULL;
}

static bool ooo_get(struct tsa_conn *c)
{
	if (!c->ooo) {
		c->ooo = pool_get(&c->tsa->ooo_pool);
		if (!c->ooo)
			return false;
		c->ooo->n = 0;
	}
	return true;
}

static void range_del(struct tsa_ooo *o, u32 from, u32 to)
{
	memmove(&o->r[from], &o->r[to], (o->n - to) * sizeof(o->r[0]));
	o->n -= to - from;
}

/* Add [seq, end), joining what it touches. False if that would be one range too many. */
static bool range_add(struct tsa_ooo *o, u32 seq, u32 end)
{
	u32 i = 0, j;

	while (i < o->n && seq_lt(o->r[i].end, seq))
		i++;
	for (j = i; j < o->n && seq_leq(o->r[j].seq, end); j++) {
		if (seq_lt(o->r[j].seq, seq))
			seq = o->r[j].seq;
		if (seq_gt(o->r[j].end, end))
			end = o->r[j].end;
	}
	if (i == j) {
		if (o->n == TSA_OOO_RANGES)
			return false;
		memmove(&o->r[i + 1], &o->r[i], (o->n - i) * sizeof(o->r[0]));
		o->n++;
	} else {
		range_del(o, i + 1, j);
	}
	o->r[i] = (struct tsa_range){ seq, end };
	return true;
}

/* rcv_nxt and the ring's length move to @end, and over ranges that are now in order. */
static void advance(struct tsa_conn *c, u32 end)
{
	struct tsa_ooo *o = c->ooo;
	u32 i = 0;

	for (; o && i < o->n && seq_leq(o->r[i].seq, end); i++)
		if (seq_gt(o->r[i].end, end))
			end = o->r[i].end;
	c->rcv.len += tsa_span(c->rcv_nxt, end);
	c->tsa->stats.bytes_in += tsa_span(c->rcv_nxt, end);
	c->rcv_nxt = end;
	if (!o)
		return;
	range_del(o, 0, i);
	if (!o->n)
		tsa_reasm_free(c);
}

bool tsa_reasm_add(struct tsa_conn *c, u32 seq, const u8 *data, u32 len)
{
	u32 off = c->rcv.len + tsa_span(c->rcv_nxt, seq);

	assert(seq_geq(seq, c->rcv_nxt) && seq_leq(seq + len, c->rcv_adv));
	assert(off + len <= c->rcv_cap);
	if (tsa_ring_reserve(c->tsa, &c->rcv, off + len))
		return false;
	if (seq != c->rcv_nxt) {
		c->tsa->stats.out_of_order++;
		if (!ooo_get(c))
			return false;
		if (!range_add(c->ooo, seq, seq + len))
			return false;
	}
	tsa_ring_write(&c->rcv, off, data, len);
	if (seq == c->rcv_nxt)
		advance(c, seq + len);
	return true;
}
