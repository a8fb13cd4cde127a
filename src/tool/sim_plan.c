// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: what the two sides of a simulated connection say to each other, and where in their memory it goes.
 *
 * A side's memory has an area for each message: what the peer sends (one area a receive), what the peer writes, what one reads oneself.
 * No two areas touch, so whatever is put in a wrong place is found. All payload is a slice of one random pattern, another slice for
 * each message.
 */
#include <string.h>
#include "tool/sim_data.h"

#define SALT_DATA 0xDA7Aull
#define SMALL 4096u

/* ---- messages ---- */

/* Any order of magnitude is as likely as any other. */
static u32 length_below(struct rand_gen *g, u32 most)
{
	u32 bits = 0;
	u64 len;

	while (most >> bits)
		bits++;
	len = rand_gen_below(g, 1ull << rand_gen_below(g, bits + 1));
	return (u32)min(len, (u64)most);
}

static u32 random_length(const struct sim *sim, struct rand_gen *g)
{
	return length_below(g, rand_gen_below(g, 8) ? min(sim->p->largest, SMALL) : sim->p->largest);
}

static u8 random_verb(struct rand_gen *g)
{
	static const u8 dice[] = {
		SIM_SEND, SIM_SEND, SIM_SEND, SIM_WRITE, SIM_WRITE, SIM_WRITE, SIM_WRITE_IMM, SIM_WRITE_IMM, SIM_READ, SIM_READ, SIM_READ, SIM_FETCH_ADD, SIM_FETCH_ADD,
		SIM_CMP_SWAP,
	};

	return dice[rand_gen_below(g, sizeof(dice))];
}

static void set_payload(struct rand_gen *g, struct sim_msg *m, u32 len)
{
	m->len = len;
	m->src = (u32)rand_gen_below(g, SIM_PATTERN_STARTS);
	m->sges = len ? 1 + (u8)rand_gen_below(g, SIM_SGES) : 0;
	m->inlined = !sim_wants_answer(m) && len <= SIM_INLINE && rand_gen_below(g, 2);
	m->imm = (u32)rand_gen_u64(g);
}

/* @word: as those before have left it. One compare in four is wrong. */
static void set_atomic(struct rand_gen *g, struct sim_msg *m, u64 *word)
{
	m->len = sizeof(u64);
	m->sges = 1;
	m->shared = m->verb == SIM_FETCH_ADD && rand_gen_below(g, 2);
	m->operand = m->shared ? 1 + rand_gen_below(g, 1000) : rand_gen_u64(g);
	if (m->shared)
		return;
	m->before = *word;
	m->compare = *word + !rand_gen_below(g, 4);
	if (m->verb == SIM_FETCH_ADD)
		*word += m->operand;
	else if (m->compare == *word)
		*word = m->operand;
}

static void set_flags(struct rand_gen *g, struct sim_msg *m)
{
	m->solicited = !rand_gen_below(g, 3);
	m->fence = !rand_gen_below(g, 8);
	m->signaled = rand_gen_below(g, 2);
}

static void relay(struct sim_msg *m, const struct sim_msg *read)
{
	m->relays = m->fence = true;
	m->inlined = false;
	m->len = read->len;
	m->src = read->src;
	m->sges = read->sges;
}

static struct sim_msg *add_msg(struct sim_plan *p, enum tool_sim_verb verb)
{
	struct sim_msg *m = &p->msg[p->n++];

	*m = (struct sim_msg){ .verb = (u8)verb };
	return m;
}

static void add_messages(const struct sim *sim, struct rand_gen *g, struct sim_plan *p)
{
	u64 n = rand_gen_below(g, SIM_MSGS + 1), word = 0;

	while (n--) {
		struct sim_msg *m = add_msg(p, random_verb(g));

		if (sim_is_atomic(m))
			set_atomic(g, m, &word);
		else
			set_payload(g, m, random_length(sim, g));
		set_flags(g, m);
		if (m[-1].verb == SIM_READ && !sim_wants_answer(m) && rand_gen_below(g, 2)) /* the hello is in front of the first one */
			relay(m, m - 1);
	}
}

static void add_hello(struct rand_gen *g, struct sim_plan *p)
{
	struct sim_msg *m = add_msg(p, SIM_SEND);

	set_payload(g, m, sizeof(struct sim_hello));
	set_flags(g, m);
	m->hello = true;
}

static void add_bye(struct rand_gen *g, struct sim_plan *p, bool invalidates)
{
	struct sim_msg *m = add_msg(p, invalidates ? SIM_SEND_INV : SIM_SEND);

	set_payload(g, m, (u32)rand_gen_below(g, 200));
	set_flags(g, m);
	m->fence = m->signaled = true;
}

/* ---- memory ---- */

/* An area of @len bytes in the memory that @p is of. */
static u32 area(struct sim_plan *p, u32 len, u32 align)
{
	u32 at = (p->size + align - 1) & ~(align - 1);

	p->size = at + len + SIM_GAP;
	return at;
}

static void place_receives(struct rand_gen *g, struct sim_plan *from, struct sim_plan *to)
{
	for (u32 i = 0; i < from->n; i++) {
		struct sim_msg *m = &from->msg[i];

		if (!sim_takes_recv(m))
			continue;
		m->recv_len = (m->verb == SIM_WRITE_IMM ? 0 : m->len) + (rand_gen_below(g, 2) ? (u32)rand_gen_below(g, 100) : 0);
		m->recv_at = area(to, m->recv_len, 1);
		m->recv_sges = m->recv_len ? 1 + (u8)rand_gen_below(g, SIM_SGES) : 0;
		from->recvs++;
	}
}

/* The window is around all of them. */
static void place_writes(struct sim_plan *from, struct sim_plan *to)
{
	to->window_at = to->size;
	for (u32 i = 0; i < from->n; i++) {
		struct sim_msg *m = &from->msg[i];

		if (m->verb == SIM_WRITE || m->verb == SIM_WRITE_IMM)
			m->at = area(to, m->len, 1);
	}
	to->window_len = to->size - to->window_at;
	to->window = to->window && to->window_len;
}

static void place_answers(struct sim_plan *p)
{
	for (u32 i = 0; i < p->n; i++)
		if (sim_wants_answer(&p->msg[i]))
			p->msg[i].at = area(p, p->msg[i].len, 1);
}

static void set_manners(struct rand_gen *g, struct sim_plan *p)
{
	p->depth = 1 + (u32)rand_gen_below(g, 10);
	p->window = !rand_gen_below(g, 3);
	p->zero_based = rand_gen_below(g, 2);
	p->one_cq = rand_gen_below(g, 2);
	p->polls = !rand_gen_below(g, 3);
	p->qp_first = rand_gen_below(g, 2);
	p->extra_len = (u32)rand_gen_below(g, 64);
	area(p, sizeof(struct sim_hello), 8);
	p->word_at = area(p, sizeof(u64), 8);
	p->extra_at = area(p, p->extra_len, 1);
}

/* The bind comes first: where the peer may write is in the hello. */
static void begin_plan(struct rand_gen *g, const struct sim *sim, struct sim_plan *p)
{
	set_manners(g, p);
	if (p->window)
		add_msg(p, SIM_BIND);
	add_hello(g, p);
	add_messages(sim, g, p);
}

static void end_plan(struct rand_gen *g, struct sim_plan *p, struct sim_plan *peers)
{
	add_bye(g, p, peers->window);
	place_receives(g, p, peers);
}

/* Nothing to write: nothing to bind. */
static void drop_bind(struct sim_plan *p)
{
	if (p->msg[0].verb != SIM_BIND || p->window)
		return;
	p->n--;
	memmove(&p->msg[0], &p->msg[1], p->n * sizeof(p->msg[0]));
}

/* ---- something wrong ---- */

static u8 random_wrong(struct rand_gen *g, const struct sim_msg *m)
{
	switch (m->verb) {
	case SIM_SEND:
		return SIM_WRONG_LENGTH;
	case SIM_WRITE:
	case SIM_WRITE_IMM:
	case SIM_READ:
		return rand_gen_below(g, 2) ? SIM_WRONG_STAG : SIM_WRONG_BOUNDS;
	default:
		return m->shared || rand_gen_below(g, 2) ? SIM_WRONG_STAG : SIM_WRONG_ALIGNMENT; /* the counter's region ends with it */
	}
}

/* One message between hello and bye, if there is one with anything in it. */
static bool do_wrong(struct rand_gen *g, struct sim_plan *p)
{
	u32 first = p->window + 1u, n = p->n - first - 1;
	struct sim_msg *m = &p->msg[first + (n ? rand_gen_below(g, n) : 0)];

	if (!n || !m->len)
		return false;
	m->wrong = random_wrong(g, m);
	if (m->wrong == SIM_WRONG_LENGTH) {
		m->recv_len = (u32)rand_gen_below(g, m->len);
		m->recv_sges = m->recv_len ? 1 : 0;
	}
	return true;
}

/* ---- the whole ---- */

static u64 deal_salt(const struct sim *sim, u64 serial)
{
	return sim_mix(sim_mix(sim->p->seed + SALT_DATA) ^ sim_mix(serial));
}

bool sim_has_data(const struct sim *sim, u64 serial)
{
	return sim->p->data > 0 && (double)(deal_salt(sim, serial) >> 11) * 0x1p-53 < sim->p->data;
}

void sim_deal_make(const struct sim *sim, u64 serial, struct sim_deal *deal)
{
	struct sim_plan *a = &deal->plan[0], *b = &deal->plan[1];
	struct rand_gen g;

	memset(deal, 0, sizeof(*deal));
	rand_gen_seed(&g, deal_salt(sim, serial));
	deal->orderly = rand_gen_below(&g, 4);
	begin_plan(&g, sim, a);
	begin_plan(&g, sim, b);
	place_writes(a, b);
	place_writes(b, a);
	drop_bind(a);
	drop_bind(b);
	end_plan(&g, a, b);
	end_plan(&g, b, a);
	place_answers(a);
	place_answers(b);
	if (!deal->orderly && rand_gen_below(&g, 2))
		deal->wrong = do_wrong(&g, rand_gen_below(&g, 2) ? a : b);
}

void sim_pieces(u32 len, u32 n, u32 salt, u32 out[SIM_SGES])
{
	u32 left = len;

	for (u32 i = 0; i + 1 < n; i++) {
		out[i] = (u32)(sim_mix(((u64)salt << 8) + i) % (left + 1));
		left -= out[i];
	}
	if (n)
		out[n - 1] = left;
}
