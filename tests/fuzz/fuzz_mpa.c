/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* MPA start-up in both roles, through the CM: TCP is up, and what the peer says is the input, in any pieces. */
#include "cm_world.h"

#define PIECES 300

enum { SAY_FIN = 255, SAY_RST = 254, LET_TIME_PASS = 253, ANSWER_SYN = 252, ACCEPT = 251, REJECT = 250, GIVE_UP = 249 };

static void say(struct world *w, struct peer *p, u8 flags, u32 len)
{
	struct segment s = { .flags = flags, .window = 60000, .len = len };

	peer_send(w, p, &s);
}

/* The one that the NIC connects to, or the one that connects to its listener. */
static struct peer *handshake(struct world *w, struct fuzz *f, struct party **party)
{
	u8 role = fuzz_u8(f);
	struct peer *p = &w->peer[role & 1 ? 0 : 4];

	if (role & 1) {
		*party = &w->party[WORLD_LISTENERS];
		party_connect(*party, f);
		say(w, p, PKT_SYN | PKT_ACK, 0);
	} else {
		*party = &w->party[WORLD_LISTENERS + WORLD_CONNECTORS];
		w->party[0].manner = role / 2 % MANNERS;
		party_listen(&w->party[0], 4);
		say(w, p, PKT_SYN, 0);
		say(w, p, PKT_ACK, 0);
	}
	return p;
}

static void piece(struct world *w, struct peer *p, struct party *party, struct fuzz *f)
{
	u8 bytes[GIVE_UP], n = fuzz_u8(f);

	switch (n) {
	case SAY_FIN: say(w, p, PKT_ACK | PKT_FIN, 0); break;
	case SAY_RST: say(w, p, PKT_RST, 0); break;
	case LET_TIME_PASS: world_run(w, 1u << fuzz_below(f, 15)); break;
	case ANSWER_SYN: say(w, p, PKT_SYN | PKT_ACK, 0); break;
	case ACCEPT: party_accept(party); break;
	case REJECT: party_reject(party, fuzz_u8(f)); break;
	case GIVE_UP: party_give_up(party); break;
	default:
		peer_say_bytes(p, bytes, (u32)fuzz_bytes(f, bytes, n));
		say(w, p, PKT_ACK | PKT_PSH, n);
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { data, size };
	static struct world w;
	struct party *party;
	struct peer *p;
	int n;

	world_open(&w, &f);
	p = handshake(&w, &f, &party);
	for (n = 0; n < PIECES && fuzz_more(&f); n++)
		piece(&w, p, party, &f);
	world_close(&w);
	return 0;
}
