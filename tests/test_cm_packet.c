// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The TCP state machine of the CM: every kind of segment in every state. The expectations are RFC 9293 3.10.7 as RFC 5961
 * changes it; rows that are not obvious say why.
 */
#include "cm_states.h"

/* ---- the segments ---- */

#define WND 8192u /* what a node announces, CM_RX_MAX */

enum kind {
	RST_EXACT, RST_INSIDE, RST_BELOW, RST_BEYOND, SYN_AGAIN, SYN_OTHER, SYNACK_RIGHT, SYNACK_WRONG, ACK_NOW, ACK_OLD, ACK_NEW, ACK_ANCIENT,
	KEEPALIVE, DATA, DATA_DUP, DATA_OVERLAP, DATA_GAP, DATA_BEYOND, FIN_NOW, FIN_DATA, FIN_GAP, FIN_OLD_ACK, FIN_NO_ACK, NO_FLAGS, FIN_SYN, RST_SYN, KINDS
};

static const char *const kind_names[] = {
	"RST exact", "RST inside", "RST below", "RST beyond", "SYN again", "SYN other", "SYN+ACK right", "SYN+ACK wrong", "ACK now", "ACK old", "ACK too new", "ACK ancient",
	"keep-alive", "data", "data dup", "data overlap", "data gap", "data beyond", "FIN", "FIN+data", "FIN gap", "FIN old ack", "FIN no ack", "no flags", "FIN+SYN", "RST+SYN",
};
static_assert(ARRAY_SIZE(kind_names) == KINDS, "a name each");

/* "now": what the node expects next. The data is the beginning of a start-up frame of either kind. */
static void make(const struct irdma_cm_node *node, enum kind k, struct fx_seg *s)
{
	static const u8 data[] = { 'x', 'x', 'M', 'P', 'A', ' ' };
	const struct irdma_cm_tcp_context *t = &node->tcp_cntxt;
	u32 now = node->state == ST(SYN_SENT) || node->state == ST(INITED) || node->state == ST(LISTENING) ? FX_PEER_ISS : t->rcv_nxt;

	*s = (struct fx_seg){ .flags = PKT_ACK, .seq = now, .ack = t->loc_seq_num, .window = 8192 };
	switch (k) {
	case RST_EXACT: s->flags = PKT_RST | PKT_ACK; break;
	case RST_INSIDE: s->flags = PKT_RST; s->seq += WND - 1; break;
	case RST_BELOW: s->flags = PKT_RST; s->seq--; break;
	case RST_BEYOND: s->flags = PKT_RST; s->seq += WND; break;
	case SYN_AGAIN: s->flags = PKT_SYN; s->seq = FX_PEER_ISS; break;
	case SYN_OTHER: s->flags = PKT_SYN; s->seq = now + 100; break;
	case SYNACK_RIGHT: s->flags |= PKT_SYN; s->seq = FX_PEER_ISS; break;
	case SYNACK_WRONG: s->flags |= PKT_SYN; s->seq = FX_PEER_ISS; s->ack++; break;
	case ACK_NOW: break;
	case ACK_OLD: s->ack = t->rem_ack_num - (node->state == ST(SYN_RCVD) ? 0 : 1); break;
	case ACK_NEW: s->ack++; break;
	case ACK_ANCIENT: s->ack = t->rem_ack_num - t->max_snd_wnd - 1; break;
	case KEEPALIVE: s->seq--; break;
	case DATA: s->data = data + 2; s->len = 4; break;
	case DATA_DUP: s->data = data; s->len = 2; s->seq -= 2; break;
	case DATA_OVERLAP: s->data = data; s->len = 6; s->seq -= 2; break;
	case DATA_GAP: s->data = data; s->len = 6; s->seq += 10; break;
	case DATA_BEYOND: s->data = data; s->len = 6; s->seq += WND; break;
	case FIN_NOW: s->flags |= PKT_FIN; break;
	case FIN_DATA: s->flags |= PKT_FIN; s->data = data + 2; s->len = 4; break;
	case FIN_GAP: s->flags |= PKT_FIN; s->seq += 4; break;
	case FIN_OLD_ACK: s->flags |= PKT_FIN; s->ack = t->rem_ack_num; break;
	case FIN_NO_ACK: s->flags = PKT_FIN; s->ack = 0; break;
	case NO_FLAGS: s->flags = 0; break;
	case FIN_SYN: s->flags = PKT_FIN | PKT_SYN; break;
	case RST_SYN: s->flags = PKT_RST | PKT_SYN | PKT_ACK; break;
	default: fail();
	}
}

/* ---- what came of it, as a string ---- */

static char reply_letter(const struct pkt *p)
{
	switch (p->flags & (PKT_SYN | PKT_ACK | PKT_RST | PKT_FIN)) {
	case PKT_SYN: return 'Y';
	case PKT_SYN | PKT_ACK: return 'S';
	case PKT_RST: return 'r';       /* for a bad acknowledgement, or nobody */
	case PKT_RST | PKT_ACK: return 'R';
	case PKT_FIN | PKT_ACK: return 'F';
	case PKT_ACK: return p->datalen ? 'D' : 'A';
	default: return '?';
	}
}

static char *add_events(char *o, const struct endpoint *ep, int from)
{
	static const char letters[] = "?QPEDC"; /* request, reply, established, disconnect, close */

	for (int i = from; i < ep->nevents; i++)
		o += sprintf(o, " %c%d", letters[ep->ev[i].event], ep->ev[i].status);
	return o;
}

struct before {
	enum irdma_cm_node_state state;
	u32 frames;
	u64 challenges, bad;
	int l, a, c;
};

static void describe(struct env *e, const struct before *b, char *o)
{
	struct cm_stats st = fx_stats(&e->fx, 0);

	o += sprintf(o, "%s ", e->p.node->state == b->state ? "=" : cm_node_state_str(e->p.node->state));
	for (u32 i = b->frames; i < e->tap.n; i++)
		*o++ = reply_letter(&e->tap.f[i].pkt);
	if (e->tap.n == b->frames)
		*o++ = '-';
	if (st.challenge_acks != b->challenges)
		*o++ = '!';
	if (st.bad_segments != b->bad)
		*o++ = '#';
	*o = 0;
	env_loop(e);
	o = add_events(o, &e->l, b->l);
	o = add_events(o, &e->a, b->a);
	add_events(o, &e->c, b->c);
}

static void cell(u8 gen, bool ipv4, enum irdma_cm_node_state state, enum kind k, char *out)
{
	struct cm_stats st;
	struct before b;
	struct fx_seg s;
	struct env e;

	env_up(&e, gen, ipv4);
	env_goto(&e, state);
	st = fx_stats(&e.fx, 0);
	b = (struct before){ state, e.tap.n, st.challenge_acks, st.bad_segments, e.l.nevents, e.a.nevents, e.c.nevents };
	make(e.p.node, k, &s);
	if (state == ST(CLOSED))
		env_process(&e, &s, 0);
	else
		fx_feed(e.p.dev, &e.p.t, &s); /* LISTENER_DESTROYED is not in the table any more: strays */
	describe(&e, &b, out);
	env_down(&e);
}

/* State after ("=": the same), what was sent, ! a challenge ACK, # a bad segment; then the events and their status. In the order of enum kind, a line per group. */
static const char *const expected[IRDMA_CM_STATES][KINDS] = {
	[ST(INITED)] = {
		"= -", "= -", "= -", "= -",
		"= -", "= -", "= -", "= -",
		"= -", "= -", "= -", "= -",
		"= -", "= -", "= -", "= -", "= -", "= -",
		"= -", "= -", "= -", "= -", "= -#",
		"= -#", "= -", "= -",
	},
	[ST(SYN_RCVD)] = {
		"CLOSED -", "= A!", "= -", "= -",
		"= S", "= A!", "= A!", "= A!",
		"ESTABLISHED -", "= r#", "= r#", "= r#",
		"ESTABLISHED A!", "ESTABLISHED A", "ESTABLISHED A", "ESTABLISHED A", "ESTABLISHED A", "= A!#",
		"LAST_ACK F", "LAST_ACK AF", "ESTABLISHED A", "= r#", "= -#",
		"= -#", "= A!", "CLOSED -",
	},
	[ST(SYN_SENT)] = {
		"CLOSED - P-111", "= -", "= -", "= -",
		"= R", "= R", "MPAREQ_SENT D", "= r#", /* a SYN alone is anybody's */
		"= -", "= r#", "= r#", "= r#",
		"= -", "= -", "= -", "= -", "= -", "= -",
		"= -", "= -", "= -", "= r#", "= -#",
		"= -#", "= R", "CLOSED - P-111",
	},
	[ST(ONE_SIDE_ESTABLISHED)] = {
		"CLOSED - P-104", "= A!", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"= -", "= -", "= A!#", "= A!#",
		"= A!", "= A", "= A", "= A", "= A", "= A!#",
		"= A", "= AA", "= A", "= A", "= -#",
		"= -#", "= A!", "CLOSED - P-104",
	},
	[ST(ESTABLISHED)] = {
		"CLOSED -", "= A!", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"= -", "= -", "= A!#", "= A!#",
		"= A!", "= A", "= A", "= A", "= A", "= A!#",
		"LAST_ACK F", "LAST_ACK AF", "= A", "LAST_ACK F", "= -#",
		"= -#", "= A!", "CLOSED -",
	},
	[ST(ACCEPTING)] = {
		"CLOSED -", "= A!", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"= -", "= -", "= A!#", "= A!#",
		"= A!", "= A", "= A", "= A", "= A", "= A!#",
		"= A", "= AA", "= A", "= A", "= -#",
		"= -#", "= A!", "CLOSED -",
	},
	[ST(MPAREQ_SENT)] = {
		"SYN_SENT Y", "= A!", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"= -", "= -", "= A!#", "= A!#",
		"= A!", "= A", "= A", "= A", "= A", "= A!#",
		"SYN_SENT ARY", "CLOSED AAR P-104", "= A", "SYN_SENT ARY", "= -#",
		"= -#", "= A!", "SYN_SENT Y",
	},
	[ST(MPAREQ_RCVD)] = {
		"CLOSED - D-104 C0", "= A!", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"= -", "= -", "= A!#", "= A!#",
		"= A!", "= A", "= A", "= A", "= A", "= A!#",
		"= A", "= AA", "= A", "= A", "= -#",
		"= -#", "= A!", "CLOSED - D-104 C0",
	},
	[ST(MPAREJ_RCVD)] = {
		"CLOSED - P-111", "= A! P-111", "= - P-111", "= - P-111",
		"= A! P-111", "= A! P-111", "= A! P-111", "= A! P-111",
		"= - P-111", "= - P-111", "= A!# P-111", "= A!# P-111",
		"= A! P-111", "= A P-111", "= A P-111", "= A P-111", "= A P-111", "= A!# P-111",
		"LAST_ACK F P-111", "LAST_ACK AF P-111", "= A P-111", "LAST_ACK F P-111", "= -# P-111",
		"= -# P-111", "= A! P-111", "CLOSED - P-111",
	},
	[ST(OFFLOADED)] = {
		"CLOSED - P-104", "= A! P0", "= - P0", "= - P0",
		"= A! P0", "= A! P0", "= A! P0", "= A! P0",
		"= - P0", "= - P0", "= A!# P0", "= A!# P0",
		"= A! P0", "= A P0", "= A P0", "= A P0", "= A P0", "= A!# P0",
		"= A P0 D0 C0", "= AA P0 D-71 C0", "= A P0", "= A P0 D0 C0", "= -# P0",
		"= -# P0", "= A! P0", "CLOSED - P-104",
	},
	[ST(FIN_WAIT1)] = {
		"CLOSED -", "= A!", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"FIN_WAIT2 -", "= -", "= A!#", "= A!#",
		"FIN_WAIT2 A!", "FIN_WAIT2 A", "FIN_WAIT2 A", "FIN_WAIT2 A", "FIN_WAIT2 A", "= A!#",
		"CLOSED A", "CLOSED AA", "FIN_WAIT2 A", "CLOSING A", "= -#",
		"= -#", "= A!", "CLOSED -",
	},
	[ST(FIN_WAIT2)] = {
		"CLOSED -", "= A!", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"= -", "= -", "= A!#", "= A!#",
		"= A!", "= A", "= A", "= A", "= A", "= A!#",
		"CLOSED A", "CLOSED AA", "= A", "CLOSED A", "= -#",
		"= -#", "= A!", "CLOSED -",
	},
	[ST(CLOSE_WAIT)] = {
		"CLOSED -", "= A!", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"= -", "= -", "= A!#", "= A!#",
		"= A!", "= A", "= A", "= A", "= A", "= A!#",
		"= A", "= AA", "= A", "= A", "= -#",
		"= -#", "= A!", "CLOSED -",
	},
	[ST(TIME_WAIT)] = {
		"= -", "= -", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"= -", "= -", "= A!#", "= A!#",
		"= A!", "= A", "= A", "= A", "= A", "= A!#",
		"= A", "= AA", "= A", "= A", "= -#",
		"= -#", "= A!", "= -",
	},
	[ST(LAST_ACK)] = {
		"CLOSED -", "= A!", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"CLOSED -", "= -", "= A!#", "= A!#",
		"CLOSED -", "CLOSED -", "CLOSED -", "CLOSED -", "CLOSED -", "= A!#",
		"CLOSED -", "CLOSED -", "CLOSED -", "= A", "= -#",
		"= -#", "= A!", "CLOSED -",
	},
	[ST(CLOSING)] = {
		"CLOSED -", "= A!", "= -", "= -",
		"= A!", "= A!", "= A!", "= A!",
		"CLOSED -", "= -", "= A!#", "= A!#",
		"CLOSED -", "CLOSED -", "CLOSED -", "CLOSED -", "CLOSED -", "= A!#",
		"CLOSED -", "CLOSED -", "CLOSED -", "= A", "= -#",
		"= -#", "= A!", "CLOSED -",
	},
	[ST(LISTENER_DESTROYED)] = {
		"= - D-104 C0", "= - D-104 C0", "= - D-104 C0", "= - D-104 C0",
		"= R D-104 C0", "= R D-104 C0", "= r D-104 C0", "= r D-104 C0",
		"= r D-104 C0", "= r D-104 C0", "= r D-104 C0", "= r D-104 C0",
		"= r D-104 C0", "= r D-104 C0", "= r D-104 C0", "= r D-104 C0", "= r D-104 C0", "= r D-104 C0",
		"= r D-104 C0", "= r D-104 C0", "= r D-104 C0", "= r D-104 C0", "= R D-104 C0",
		"= R D-104 C0", "= R D-104 C0", "= - D-104 C0",
	},
	[ST(CLOSED)] = {
		"= -", "= -", "= -", "= -",
		"= -", "= -", "= -", "= -",
		"= -", "= -", "= -", "= -",
		"= -", "= -", "= -", "= -", "= -", "= -",
		"= -", "= -", "= -", "= -", "= -#",
		"= -#", "= -", "= -",
	},
};

static void every_segment_in_every_state(u8 gen, bool ipv4)
{
	char got[256];
	int bad = 0;

	for (int s = ST(INITED); s < IRDMA_CM_STATES; s++)
		for (int k = 0; k < KINDS && s != ST(LISTENING); k++) {
			cell(gen, ipv4, s, k, got);
			if (strcmp(got, expected[s][k])) {
				print_error("%s, %s: \"%s\", expected \"%s\"\n", cm_node_state_str(s), kind_names[k], got, expected[s][k]);
				bad++;
			}
		}
	assert_int_equal(bad, 0);
}

static void gen2_v4(void **state)
{
	every_segment_in_every_state(IRDMA_GEN_2, true);
}

static void gen1_v6(void **state)
{
	every_segment_in_every_state(IRDMA_GEN_1, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gen2_v4),
		cmocka_unit_test(gen1_v6),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
