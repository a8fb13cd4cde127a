// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: who means ill. Attackers put forged segments on the wire, SYN, RST, FIN, ACK and data, in the name of either end of a connection. All know its
 * addresses and ports. They differ in what else they know:
 *
 *   blind    nothing: sequence numbers are guesses
 *   near     about where the sequence numbers are: RSTs, SYNs and acceptable-looking data in the window, but not at the next number; acknowledgements of
 *            what was never sent (RFC 5961 3.2, 4.2, 5.2)
 *   on path  everything: next sequence number, right acknowledgement
 *
 * The first two must not change how a connection ends. The third may end it (TCP has no defence), and where there is no CRC put bytes into it; but nothing else
 * may come of it: no crash, nothing left, no byte in a program's memory that its peer did not send where there is a CRC.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tool/sim_world.h"

#define TARGETS 4096u           /* connections that are listened in on at a time */
#define SHOTS_MAX 12u
#define SHOT_SIZE_MAX 1400u
#define SHOT_LATER_NS (2 * NSEC_PER_SEC)
#define NEAR_MAX 6000u          /* inside the smallest window that there is */
#define FAR_OFF (1u << 24)      /* outside the largest */

enum attacker { BLIND, NEAR, ON_PATH };

/* What was last heard of one end. */
struct end {
	u32 addr[4];
	u16 port;
	u8 mac[6];
	bool heard;
	u32 seq, ack;           /* the next number that it will send, and that it expects */
	u16 window;
};

struct target {
	u64 ends;
	bool ipv4;
	struct end end[2];      /* active, passive */
};

struct attack {
	TAILQ_ENTRY(attack) entry;
	struct sim *sim;
	struct timer_list timer;
	struct rand_gen rand;
	struct target *target;
	u64 ends;
	enum attacker who;
	u32 left;
};

struct sim_attacks {
	struct target target[TARGETS];
	TAILQ_HEAD(, attack) all;
	u16 ip_id;
};

/* ---- listening in ---- */

static struct target *target_at(const struct sim *sim, u64 ends)
{
	return &sim->attacks->target[ends % TARGETS];
}

void sim_attack_sniff(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	struct sim *sim = ((struct sim_host *)arg)->sim;
	u64 ends = sim_ends_of(p->src, p->sport, p->dst, p->dport);
	struct target *t = target_at(sim, ends);
	struct end *e;
	u32 next = p->seq + p->datalen + !!(p->flags & PKT_SYN) + !!(p->flags & PKT_FIN);

	if (!out || t->ends != ends || (p->flags & PKT_RST))
		return;
	e = &t->end[p->sport != t->end[0].port];
	if (!e->heard || (p->flags & PKT_SYN) || seq_gt(next, e->seq))
		e->seq = next;
	if (p->flags & PKT_ACK)
		e->ack = p->ack;
	e->window = p->window;
	e->heard = true;
}

/* ---- forging ---- */

struct forged {
	u8 flags;
	u32 seq, ack, len;
	u16 window;
};

static u8 random_flags(struct rand_gen *g)
{
	static const u8 kinds[] = {
		PKT_SYN, PKT_SYN | PKT_ACK, PKT_RST, PKT_RST | PKT_ACK, PKT_FIN | PKT_ACK, PKT_ACK, PKT_ACK | PKT_PSH, PKT_ACK | PKT_PSH, 0, PKT_SYN | PKT_FIN | PKT_RST,
	};

	return kinds[rand_gen_below(g, sizeof(kinds))];
}

static struct forged forge_blind(struct rand_gen *g)
{
	struct forged f = { .flags = random_flags(g), .seq = (u32)rand_gen_u64(g), .ack = (u32)rand_gen_u64(g), .window = (u16)rand_gen_u64(g) };

	f.len = f.flags & PKT_PSH ? 1 + (u32)rand_gen_below(g, SHOT_SIZE_MAX) : 0;
	return f;
}

/* Beyond the next number, so never equal to it, now that it gets there at once. What it acknowledges is neither sent nor half recent. */
static struct forged forge_near(struct rand_gen *g, const struct end *from, const struct end *to)
{
	struct forged f = forge_blind(g);
	u32 away = FAR_OFF + (u32)rand_gen_below(g, 1u << 30);

	f.seq = from->seq + 1 + (u32)rand_gen_below(g, NEAR_MAX);
	f.ack = rand_gen_below(g, 2) ? to->seq + 1 + (u32)rand_gen_below(g, 1u << 30) : to->seq - away;
	return f;
}

static struct forged forge_on_path(struct rand_gen *g, const struct end *from, const struct end *to)
{
	struct forged f = forge_blind(g);

	f.seq = from->seq;
	f.ack = from->ack + (rand_gen_below(g, 8) ? 0 : (u32)rand_gen_below(g, 5000));
	f.window = rand_gen_below(g, 8) ? from->window : 0;
	return f;
}

static void set_route(const struct target *t, const struct end *from, const struct end *to, struct pkt_route *r)
{
	*r = (struct pkt_route){ .vlan_id = PKT_VLAN_NONE, .ipv4 = t->ipv4, .ttl = 64 };
	memcpy(r->smac, from->mac, sizeof(r->smac));
	memcpy(r->dmac, to->mac, sizeof(r->dmac));
	memcpy(r->src, from->addr, sizeof(r->src));
	memcpy(r->dst, to->addr, sizeof(r->dst));
}

static void inject(struct attack *a, const struct forged *f, const struct end *from, const struct end *to)
{
	struct tcphdr h = { .source = htons(from->port), .dest = htons(to->port), .seq = htonl(f->seq), .ack_seq = htonl(f->ack), .window = htons(f->window) };
	u8 room[PKT_HDR_MAX + PKT_TCP_LEN + SHOT_SIZE_MAX], *tcp = room + PKT_HDR_MAX, *frame;
	u32 len = PKT_TCP_LEN + f->len, i;
	struct pkt_route r;

	h.doff = PKT_TCP_LEN / 4;
	h.th_flags = f->flags;
	memcpy(tcp, &h, sizeof(h));
	for (i = PKT_TCP_LEN; i < len; i++)
		tcp[i] = (u8)rand_gen_u64(&a->rand);
	set_route(a->target, from, to, &r);
	frame = pkt_push_headers(&r, tcp, len, a->sim->attacks->ip_id++);
	port_wire_inject(a->sim->wire, frame, (u32)(tcp + len - frame), 0);
	a->sim->r->shots[a->who]++;
}

static void shoot(struct attack *a)
{
	u64 side = rand_gen_below(&a->rand, 2);
	const struct end *from = &a->target->end[side], *to = &a->target->end[!side];
	struct forged f;

	if (a->who == BLIND)
		f = forge_blind(&a->rand);
	else if (!from->heard || !to->heard)
		return;
	else
		f = a->who == NEAR ? forge_near(&a->rand, from, to) : forge_on_path(&a->rand, from, to);
	if (a->who == ON_PATH)
		sim_set_add(&a->sim->tampered, a->ends);
	inject(a, &f, from, to);
}

/* ---- its life ---- */

static void attack_free(struct attack *a)
{
	timer_del(&a->timer);
	TAILQ_REMOVE(&a->sim->attacks->all, a, entry);
	free(a);
}

static void next_shot(struct attack *a)
{
	u64 within = rand_gen_below(&a->rand, 4) ? 4 * a->sim->p->latency_ns + SIM_SOON_NS / 4 : SHOT_LATER_NS;

	mod_timer(&a->timer, loop_now(&a->sim->loop) + rand_gen_below(&a->rand, within + 1));
}

static void on_timer(struct timer_list *timer)
{
	struct attack *a = container_of(timer, struct attack, timer);

	if (a->target->ends != a->ends || a->sim->ending) {
		attack_free(a); /* its place is taken by another one */
		return;
	}
	shoot(a);
	if (--a->left)
		next_shot(a);
	else
		attack_free(a);
}

static void target_set(struct sim *sim, struct target *t, const struct sim_rec *rec, const struct sockaddr_storage *local, const struct sockaddr_storage *remote)
{
	*t = (struct target){ .ends = rec->ends };
	cm_addr_from_sockaddr(local, &t->ipv4, t->end[0].addr, &t->end[0].port);
	cm_addr_from_sockaddr(remote, &t->ipv4, t->end[1].addr, &t->end[1].port);
	memcpy(t->end[0].mac, sim->hosts[rec->from].iwdev->iface.mac, 6);
	memcpy(t->end[1].mac, sim->hosts[rec->to].iwdev->iface.mac, 6);
}

static void attack_add(struct sim *sim, struct target *t, enum attacker who, struct rand_gen *g)
{
	struct attack *a = calloc(1, sizeof(*a));

	if (!a)
		return;
	a->sim = sim;
	a->target = t;
	a->ends = t->ends;
	a->who = who;
	a->left = 1 + (u32)rand_gen_below(g, SHOTS_MAX);
	rand_gen_seed(&a->rand, rand_gen_u64(g));
	timer_setup(&a->timer, &sim->loop, on_timer);
	TAILQ_INSERT_TAIL(&sim->attacks->all, a, entry);
	next_shot(a);
}

void sim_attack_plan(struct sim *sim, u64 serial, const struct sockaddr_storage *local, const struct sockaddr_storage *remote)
{
	const struct sim_rec *rec = sim_rec(sim, serial);
	bool attack, on_path;
	struct rand_gen g;

	if (!sim->attacks)
		return;
	sim_chance(sim, serial, SIM_SALT_ATTACK, &g);
	attack = rand_gen_chance(&g, sim->p->attack);
	on_path = rand_gen_chance(&g, sim->p->on_path);
	if (!attack && !on_path)
		return;
	target_set(sim, target_at(sim, rec->ends), rec, local, remote);
	if (attack)
		attack_add(sim, target_at(sim, rec->ends), rand_gen_below(&g, 2) ? BLIND : NEAR, &g);
	if (on_path)
		attack_add(sim, target_at(sim, rec->ends), ON_PATH, &g);
}

int sim_attacks_open(struct sim *sim)
{
	sim->attacks = calloc(1, sizeof(*sim->attacks));
	if (!sim->attacks)
		return -ENOMEM;
	TAILQ_INIT(&sim->attacks->all);
	return 0;
}

void sim_attacks_close(struct sim *sim)
{
	struct attack *a;

	if (!sim->attacks)
		return;
	while ((a = TAILQ_FIRST(&sim->attacks->all)))
		attack_free(a);
	free(sim->attacks);
}
