/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The CM behind its ILQ: segments of several peers in any order, with any flags, options, sequence numbers near the right ones and data, while time
 * goes on and programs listen, connect, answer, disconnect and give up in between.
 */
#include "cm_world.h"

#define STEPS 200

static struct party *pick(struct world *w, struct fuzz *f, u32 first, u32 n)
{
	return &w->party[first + fuzz_below(f, n)];
}

static struct party *any(struct world *w, struct fuzz *f)
{
	return pick(w, f, WORLD_LISTENERS, WORLD_PARTIES - WORLD_LISTENERS);
}

static struct peer *a_peer(struct world *w, struct fuzz *f)
{
	return &w->peer[fuzz_below(f, WORLD_PEERS)];
}

static void read_options(struct segment *s, struct fuzz *f)
{
	static const u8 usual[] = { 2, 4, 0x05, 0xB4, 1, 3, 3, 7 };
	u8 n = fuzz_u8(f);

	s->optlen = n < PKT_TCP_OPT_MAX ? n / 4 * 4u : sizeof(usual);
	if (n < PKT_TCP_OPT_MAX)
		fuzz_bytes(f, s->opts, s->optlen);
	else
		memcpy(s->opts, usual, sizeof(usual));
}

static void step_segment(struct world *w, struct fuzz *f)
{
	struct peer *p = a_peer(w, f);
	u8 how = fuzz_u8(f);
	struct segment s = { .flags = fuzz_u8(f), .window = 8192, .direct = how & 1, .bad_sum = (how & 6) == 6, .len = WORLD_PENDING };

	if (how & 8)
		s.seq_off = fuzz_near(f);
	if (how & 16)
		s.ack_off = fuzz_near(f);
	if (how & 32)
		s.window = fuzz_u16(f);
	if (how & 64)
		read_options(&s, f);
	if (how & 128)
		s.len = fuzz_u8(f);
	s.len = min(s.len, 1400u);
	peer_send(w, p, &s);
}

/* The segments of a usual handshake, as one step. */
static void step_handshake(struct world *w, struct fuzz *f)
{
	static const u8 flags[] = { PKT_SYN, PKT_SYN | PKT_ACK, PKT_ACK, PKT_ACK | PKT_PSH, PKT_ACK | PKT_FIN, PKT_RST, PKT_RST | PKT_ACK, PKT_SYN | PKT_FIN };
	struct peer *p = a_peer(w, f);
	struct segment s = { .flags = flags[fuzz_below(f, ARRAY_SIZE(flags))], .window = 60000, .len = 1400 };

	if (s.flags & PKT_SYN)
		s.len = 0;
	peer_send(w, p, &s);
}

static void step_listener(struct world *w, struct fuzz *f)
{
	struct party *p = pick(w, f, 0, WORLD_LISTENERS);
	u8 v = fuzz_u8(f);

	p->manner = v % MANNERS;
	if (v & 64)
		party_stop(p);
	if (v & 128)
		party_listen(p, fuzz_below(f, 4) + 1);
}

static void step_link(struct world *w, struct fuzz *f)
{
	u8 v = fuzz_u8(f);
	u32 *addr = v & 1 ? w->peer[0].t.loc_addr : NULL;

	irdma_if_notify(w->dev, &w->iface[0], addr, w->ipv4, v & 2);
}

static void step_disconnect(struct world *w, struct fuzz *f)
{
	struct party *p = any(w, f);

	if (p->phase == PARTY_UP || p->phase == PARTY_DISCONNECTED)
		cm_disconnect(&p->id, fuzz_u8(f) & 1);
}

/* A program destroys its QP whenever it likes. */
static void step_qp(struct world *w, struct fuzz *f)
{
	party_new_qp(any(w, f));
}

static void step(struct world *w, struct fuzz *f)
{
	switch (fuzz_below(f, 16)) {
	case 0:
	case 1: step_segment(w, f); break;
	case 2:
	case 3: step_handshake(w, f); break;
	case 4:
	case 5: peer_prepare(a_peer(w, f), f); break;
	case 6: world_run(w, 1u << fuzz_below(f, 18)); break;
	case 7: step_listener(w, f); break;
	case 8: party_connect(pick(w, f, WORLD_LISTENERS, WORLD_CONNECTORS), f); break;
	case 9: party_accept(any(w, f)); break;
	case 10: party_reject(any(w, f), fuzz_u8(f)); break;
	case 11: party_give_up(any(w, f)); break;
	case 12: step_disconnect(w, f); break;
	case 13: step_qp(w, f); break;
	case 14: step_link(w, f); break;
	case 15: loop_run(&w->loop); break;
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { data, size };
	static struct world w;
	int n;

	world_open(&w, &f);
	party_listen(&w.party[0], 3);
	for (n = 0; n < STEPS && fuzz_more(&f); n++)
		step(&w, &f);
	world_close(&w);
	return 0;
}
