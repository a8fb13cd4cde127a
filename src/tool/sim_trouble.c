// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: what befalls the hosts of a simulation: interfaces that go down and up, addresses that go and come back, NICs that fall silent and come back,
 * or never do, programs that stop listening and begin again.
 *
 * Each is some connection's: its number decides whether, what, when, and which of its two hosts. A host has one trouble at a time.
 */
#include <stdlib.h>
#include <string.h>
#include "tool/sim_world.h"

#define GONE_SHARE 8u                        /* at most one host of so many never comes back */
#define FLAP_MAX_NS (3 * NSEC_PER_SEC)
#define SILENCE_MAX_NS (100 * NSEC_PER_SEC)
#define RESTART_MAX_NS (NSEC_PER_SEC / 2)
#define LATER_NS (3 * NSEC_PER_SEC)

enum trouble_kind { LINK, ADDR4, ADDR6, SILENCE, RESTART };

struct sim_trouble {
	TAILQ_ENTRY(sim_trouble) entry;
	struct sim_host *host;
	struct timer_list timer;
	enum trouble_kind kind;
	u64 lasts_ns;
	bool on, for_good;
};

/* ---- what there is ---- */

static void set_link(struct sim_host *h, bool up)
{
	port_wire_set_link(h->iwdev->port, up);
	net_sim_set_link(h->net, h->ifindex, up);
	net_process(h->net);
}

static void set_addr(struct sim_host *h, bool ipv4, bool there)
{
	struct net_addr a = { .ifindex = h->ifindex, .ipv4 = ipv4, .prefix_len = ipv4 ? 8 : 64 };

	memcpy(a.addr, ipv4 ? h->addr4 : h->addr6, sizeof(a.addr));
	if (there ? net_sim_add_addr(h->net, &a) : net_sim_del_addr(h->net, &a))
		sim_violation(h->sim, "host %u: its address does not come or go", h->index);
	net_process(h->net);
}

/* The host does not know. */
static void set_silent(struct sim_host *h, bool silent)
{
	static const struct port_wire_path down = { .down = true };

	port_wire_set_path(h->iwdev->port, true, silent ? &down : NULL);
	port_wire_set_path(h->iwdev->port, false, silent ? &down : NULL);
}

static void set_listening(struct sim_host *h, bool on)
{
	int err = 0;

	if (!on)
		sim_host_close_listeners(h);
	else if (!h->sim->ending)
		err = sim_host_listen(h);
	if (err)
		sim_violation(h->sim, "host %u: listening again gives %d", h->index, err);
}

static void change(struct sim_trouble *t, bool on)
{
	switch (t->kind) {
	case LINK:
		set_link(t->host, !on);
		break;
	case ADDR4:
	case ADDR6:
		set_addr(t->host, t->kind == ADDR4, !on);
		break;
	case SILENCE:
		set_silent(t->host, on);
		break;
	case RESTART:
		set_listening(t->host, !on);
		break;
	}
	t->on = on;
	t->host->in_trouble = on;
	sim_watch_touch(t->host);
}

/* ---- its life ---- */

static void trouble_free(struct sim_trouble *t)
{
	timer_del(&t->timer);
	TAILQ_REMOVE(&t->host->sim->troubles, t, entry);
	free(t);
}

static bool may_begin(struct sim_trouble *t)
{
	struct sim *sim = t->host->sim;

	if (sim->ending || t->host->in_trouble)
		return false;
	t->for_good &= sim->gone < sim->p->nodes / GONE_SHARE;
	sim->gone += t->for_good;
	return true;
}

static void on_timer(struct timer_list *timer)
{
	struct sim_trouble *t = container_of(timer, struct sim_trouble, timer);
	struct sim *sim = t->host->sim;

	if (t->on) {
		change(t, false);
		trouble_free(t);
		return;
	}
	if (!may_begin(t)) {
		trouble_free(t);
		return;
	}
	t->host->troubles++;
	t->host->restarts += t->kind == RESTART;
	sim->r->troubles[t->kind == LINK || t->kind == ADDR4 || t->kind == ADDR6 ? SIM_FLAP : t->kind == SILENCE ? SIM_VANISH : SIM_RESTART]++;
	change(t, true);
	if (!t->for_good)
		mod_timer(&t->timer, loop_now(&sim->loop) + t->lasts_ns);
}

/* Any order of magnitude up to @most is as likely as any other. */
static u64 random_time(struct rand_gen *g, u64 most)
{
	u64 part = most >> rand_gen_below(g, 16);

	return rand_gen_below(g, part + 1);
}

static enum trouble_kind random_flap(const struct sim *sim, struct rand_gen *g)
{
	u64 dice = rand_gen_below(g, 4);

	if (dice < 2)
		return LINK;
	return sim->p->ipv4 && (dice == 2 || !sim->p->ipv6) ? ADDR4 : ADDR6;
}

static void trouble_add(struct sim *sim, struct sim_rec *rec, enum trouble_kind kind, u64 most_ns, struct rand_gen *g)
{
	struct sim_trouble *t = calloc(1, sizeof(*t));
	u64 within = rand_gen_below(g, 2) ? 8 * sim->p->latency_ns + SIM_SOON_NS : LATER_NS;

	if (!t)
		return;
	t->host = &sim->hosts[rand_gen_below(g, 2) ? rec->from : rec->to];
	t->kind = kind;
	t->lasts_ns = random_time(g, most_ns);
	t->for_good = kind == SILENCE && !rand_gen_below(g, 4);
	timer_setup(&t->timer, &sim->loop, on_timer);
	TAILQ_INSERT_TAIL(&sim->troubles, t, entry);
	mod_timer(&t->timer, loop_now(&sim->loop) + rand_gen_below(g, within));
}

void sim_trouble_plan(struct sim *sim, u64 serial)
{
	const struct tool_sim_params *p = sim->p;
	struct sim_rec *rec = sim_rec(sim, serial);
	struct rand_gen g;

	rec->troubles = sim->hosts[rec->from].troubles + sim->hosts[rec->to].troubles;
	rec->disturbed = sim->hosts[rec->from].in_trouble || sim->hosts[rec->to].in_trouble;
	sim_chance(sim, serial, SIM_SALT_TROUBLE, &g);
	if (rand_gen_chance(&g, p->flap))
		trouble_add(sim, rec, random_flap(sim, &g), FLAP_MAX_NS, &g);
	if (rand_gen_chance(&g, p->vanish))
		trouble_add(sim, rec, SILENCE, SILENCE_MAX_NS, &g);
	if (rand_gen_chance(&g, p->restart))
		trouble_add(sim, rec, RESTART, RESTART_MAX_NS, &g);
}

void sim_troubles_free(struct sim *sim)
{
	struct sim_trouble *t;

	while ((t = TAILQ_FIRST(&sim->troubles)))
		trouble_free(t);
}

/* ---- who had a part in it ---- */

void sim_note_troubles(struct sim *sim, struct sim_rec *rec)
{
	if (sim->hosts[rec->from].troubles + sim->hosts[rec->to].troubles != rec->troubles)
		rec->disturbed = true;
}

bool sim_is_calm(const struct sim *sim, const struct sim_rec *rec)
{
	return sim_is_clean(sim->p) && !rec->given_up && !rec->disturbed && !sim_is_tampered(sim, rec->ends);
}
