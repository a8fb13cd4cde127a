// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: the world of a simulation, and the checks.
 *
 * Checked while it runs (sim_side.c): the order of each id's events, none after it was destroyed, every byte of private
 * data. Checked at the end, here: the two sides of each connection tell one story; counters agree with what was
 * called and seen; each frame has gone somewhere; nothing is left.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "iwcm/iwcm_nic.h"
#include "tool/sim_data.h"

#define SIDES_PER_HOST 64u       /* connections that a host has under way, about */
#define UNDER_WAY_MAX 4096u
#define STUCK_NS (3600 * NSEC_PER_SEC)   /* of virtual time in which no connection ended */
#define QUIET_NS (1800 * NSEC_PER_SEC)   /* for the last timers: TIME_WAIT and retransmissions of FINs */
#define MTU 1500

/* ---- what sim_side.c needs ---- */

__attribute__((format(printf, 2, 0)))
static void violation(struct sim *sim, const char *fmt, va_list ap)
{
	struct tool_sim_result *r = sim->r;

	if (!r->violations++)
		vsnprintf(r->first_violation, sizeof(r->first_violation), fmt, ap);
}

void sim_violation(struct sim *sim, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	violation(sim, fmt, ap);
	va_end(ap);
}

void sim_violation_on(struct sim *sim, u64 ends, const char *fmt, ...)
{
	va_list ap;

	if (sim_is_damaged(sim, ends)) {
		sim->r->damaged++;
		return;
	}
	va_start(ap, fmt);
	violation(sim, fmt, ap);
	va_end(ap);
}

struct sim_rec *sim_rec(struct sim *sim, u64 serial)
{
	struct sim_rec *grown;
	u64 size = max(2 * sim->size_recs, (u64)4096);

	if (serial >= sim->size_recs) {
		grown = realloc(sim->recs, size * sizeof(*grown));
		if (!grown)
			return NULL;
		memset(grown + sim->size_recs, 0, (size - sim->size_recs) * sizeof(*grown));
		sim->recs = grown;
		sim->size_recs = size;
	}
	return &sim->recs[serial];
}

bool sim_no_rtr(const struct sim *sim, const struct sim_rec *rec)
{
	const struct iwcm_options *o = &sim->hosts[rec->to].opt;

	return rec->rev == MPA_REV_2 && o->mpa_revision == MPA_REV_2 && rec->p2p && rec->rtr && o->peer_to_peer && !(rec->rtr & o->rtr);
}

bool sim_is_clean(const struct tool_sim_params *p)
{
	return p->loss == 0 && p->reorder == 0 && p->duplicate == 0 && p->corrupt == 0 && p->destroy == 0;
}

/* FNV-1a over words, with a stir so that high bits reach low ones. */
void sim_digest(struct sim *sim, u64 word)
{
	u64 h = (sim->r->digest ^ word) * 0x100000001B3ull;

	sim->r->digest = h ^ h >> 29;
}

/* ---- hosts ---- */

static int add_addrs(struct sim_host *h, u32 ifindex)
{
	struct net_addr a = { .ifindex = ifindex, .ipv4 = true, .prefix_len = 8 };
	struct net_addr b = { .ifindex = ifindex, .prefix_len = 64 };
	int err = 0;

	h->addr4[0] = 10u << 24 | (h->index + 1);
	h->addr6[0] = 0xFD000000u;
	h->addr6[3] = h->index + 1;
	memcpy(a.addr, h->addr4, sizeof(a.addr));
	memcpy(b.addr, h->addr6, sizeof(b.addr));
	if (h->sim->p->ipv4)
		err = net_sim_add_addr(h->net, &a);
	if (!err && h->sim->p->ipv6)
		err = net_sim_add_addr(h->net, &b);
	return err;
}

static int host_open_net(struct sim_host *h)
{
	struct net_iface iface = {
		.name = "eth0",
		.mac = { 2, 0, 0, 0, (u8)(h->index >> 8), (u8)h->index },
		.mtu = MTU,
		.up = true,
		.vlan_id = PKT_VLAN_NONE,
	};
	int err = net_open_sim(h->sim->segment, &h->net);

	if (!err)
		err = net_sim_add_iface(h->net, &iface);
	if (!err)
		err = add_addrs(h, iface.ifindex);
	if (!err)
		net_process(h->net);
	return err;
}

/* Mostly what anybody can connect to. */
static void listener_options(struct sim_host *h)
{
	struct rand_gen *g = &h->sim->rand;

	iwcm_options_init(&h->opt);
	h->opt.mpa_revision = rand_gen_below(g, 6) ? 2 : 1;
	h->opt.peer_to_peer = rand_gen_below(g, 5);
	h->opt.rtr = rand_gen_below(g, 3) ? IWCM_RTR_ALL : 1 + (unsigned int)rand_gen_below(g, 7);
	h->opt.crc = rand_gen_below(g, 2);
	h->opt.markers = !rand_gen_below(g, 4);
}

static int listen_at(struct sim_host *h, int i, bool ipv4, const u32 *addr, u16 port)
{
	struct sockaddr_storage ss;
	int err;

	cm_addr_to_sockaddr(ipv4, addr, port, &ss);
	err = iwcm_create_id(h->ctx, NULL, &h->listener[i]);
	if (!err)
		err = iwcm_set_options(h->listener[i], &h->opt);
	if (!err)
		err = iwcm_bind(h->listener[i], (const struct sockaddr *)&ss);
	if (!err)
		err = iwcm_listen(h->listener[i], 1024);
	return err;
}

static int host_listen(struct sim_host *h)
{
	static const u32 any[4] = { 0 };
	int err = 0;

	listener_options(h);
	if (h->sim->p->ipv4)
		err = listen_at(h, 0, true, any, SIM_PORT);
	if (!err && h->sim->p->ipv6)
		err = listen_at(h, 1, false, any, SIM_PORT);
	if (!err)
		err = listen_at(h, 2, h->sim->p->ipv4, h->sim->p->ipv4 ? h->addr4 : h->addr6, SIM_PORT + 1);
	return err;
}

static int host_open(struct sim *sim, u32 index)
{
	struct sim_host *h = &sim->hosts[index];
	int err;

	h->sim = sim;
	h->index = index;
	err = host_open_net(h);
	if (!err)
		err = iwcm_open_wire(sim->wire, &sim->loop, h->net, sim->p->gen, &h->ctx);
	if (err)
		return err;
	iwcm_set_observers(h->ctx, index == 0 ? sim->p->capture : NULL, sim->p->corrupt > 0 ? sim_watch_frame : NULL, NULL, h);
	iwcm_set_handler(h->ctx, sim_on_event, NULL, h);
	err = sim->p->data > 0 ? sim_host_data_open(h) : 0;
	return err ? err : host_listen(h);
}

/* ---- the world ---- */

static int world_open(struct sim *sim)
{
	const struct tool_sim_params *p = sim->p;
	const struct port_wire_path path = {
		.latency_ns = p->latency_ns,
		.jitter_ns = p->latency_ns / 4,
		.loss = p->loss,
		.duplicate = p->duplicate,
		.corrupt = p->corrupt,
		.reorder = p->reorder,
		.reorder_ns = 4 * p->latency_ns + NSEC_PER_MSEC,
	};
	u32 i;
	int err = port_wire_create(&sim->loop, p->seed, &sim->wire);

	if (err)
		return err;
	port_wire_set_default(sim->wire, &path);
	sim->segment = net_segment_create();
	sim->hosts = calloc(p->nodes, sizeof(*sim->hosts));
	if (!sim->segment || !sim->hosts)
		return -ENOMEM;
	err = p->data > 0 ? sim_pattern_make(sim) : 0;
	for (i = 0; i < p->nodes && !err; i++)
		err = host_open(sim, i);
	return err;
}

static void close_listeners(struct sim *sim)
{
	u32 i;
	int j;

	for (i = 0; i < sim->p->nodes; i++)
		for (j = 0; j < SIM_LISTENERS; j++) {
			iwcm_destroy_id(sim->hosts[i].listener[j]);
			sim->hosts[i].listener[j] = NULL;
		}
}

static void world_close(struct sim *sim)
{
	u64 i;

	for (i = 0; i < sim->num_sides; i++)
		sim_side_free(sim->sides[i]);
	free(sim->sides);
	for (i = 0; sim->hosts && i < sim->p->nodes; i++) {
		sim_host_data_close(&sim->hosts[i]);
		iwcm_close(sim->hosts[i].ctx);
		if (sim->hosts[i].net)
			net_close(sim->hosts[i].net);
	}
	free(sim->hosts);
	for (i = 0; i < sim->size_recs; i++)
		free(sim->recs[i].counted);
	free(sim->recs);
	free(sim->pattern);
	sim_set_free(&sim->sent);
	sim_set_free(&sim->damaged);
	if (sim->segment)
		net_segment_destroy(sim->segment);
	if (sim->wire)
		port_wire_destroy(sim->wire);
}

/* ---- running ---- */

static void run_connections(struct sim *sim)
{
	u64 progress_at = 0, seen = UINT64_MAX;

	while (sim->alive) {
		if (sim->over != seen) {
			seen = sim->over;
			progress_at = loop_now(&sim->loop) + STUCK_NS;
		}
		if (port_wire_step(sim->wire, progress_at))
			continue;
		sim_violation(sim, "%llu sides never came to an end", (unsigned long long)sim->alive);
		return;
	}
}

static void run(struct sim *sim)
{
	u64 n = min((u64)sim->p->nodes * SIDES_PER_HOST, (u64)UNDER_WAY_MAX), i;

	n = min(n, sim->p->connections);
	for (i = 0; i < n; i++)
		sim_start(sim, 20 * NSEC_PER_MSEC + 8 * sim->p->latency_ns);
	run_connections(sim);
	sim->r->virtual_ns = loop_now(&sim->loop);
	sim->ending = true;
	close_listeners(sim);
	port_wire_run(sim->wire, loop_now(&sim->loop) + QUIET_NS);
}

/* ---- checks: what is left ---- */

static void count_device(struct irdma_device *iwdev, void *arg)
{
	struct tool_sim_result *r = arg;
	size_t conns, time_waits, conn_bytes, time_wait_bytes;

	port_wire_tsa_usage(iwdev->port, &conns, &time_waits, &conn_bytes, &time_wait_bytes);
	r->left_conns += conns;
	r->left_time_waits += time_waits;
	r->left_ports += rnic_apbvt_count(iwdev);
	r->left_bufs += iwdev->vsi.small.used + iwdev->vsi.large.used;
	r->left_qps += iwdev->qps.count;
}

static void add_stats(struct iwcm_stats *sum, const struct iwcm_stats *s)
{
	static_assert(sizeof(*sum) % sizeof(u64) == 0, "counters and nothing else");
	const u64 *from = (const u64 *)s;
	u64 *to = (u64 *)sum;
	size_t i;

	for (i = 0; i < sizeof(*sum) / sizeof(u64); i++)
		to[i] += from[i];
}

static void count_left(struct sim *sim)
{
	struct tool_sim_result *r = sim->r;
	struct iwcm_stats s;
	u32 i;

	for (i = 0; i < sim->p->nodes; i++) {
		iwcm_get_stats(sim->hosts[i].ctx, &s);
		add_stats(&r->stats, &s);
		iwcm_for_each_device(sim->hosts[i].ctx, count_device, r);
	}
	r->left_nodes = r->stats.nodes_now;
	r->left_listeners = r->stats.listeners_now;
	r->left_frames = port_wire_in_flight(sim->wire);
	r->left_timers = loop_next_ns(&sim->loop) != UINT64_MAX;
	r->wire = *port_wire_stats(sim->wire);
}

static void check_left(struct sim *sim)
{
	const struct tool_sim_result *r = sim->r;
	const struct {
		const char *what;
		u64 n;
	} left[] = {
		{ "CM nodes", r->left_nodes }, { "listeners", r->left_listeners }, { "ILQ buffers", r->left_bufs },
		{ "queue pairs", r->left_qps }, { "port reservations", r->left_ports }, { "offloaded connections", r->left_conns },
		{ "TIME_WAIT records", r->left_time_waits }, { "frames", r->left_frames }, { "timers", r->left_timers },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(left); i++)
		if (left[i].n)
			sim_violation(sim, "%llu %s are left", (unsigned long long)left[i].n, left[i].what);
}

/* ---- checks: counters ---- */

static void check_equal(struct sim *sim, const char *what, u64 got, u64 want)
{
	if (got != want)
		sim_violation(sim, "%s: %llu, not %llu", what, (unsigned long long)got, (unsigned long long)want);
}

static u64 count(const struct tool_sim_result *r, int active, int passive)
{
	u64 sum = 0;
	int a, b;

	for (a = 0; a < SIM_OUTCOMES; a++)
		for (b = 0; b < SIM_OUTCOMES; b++)
			if ((active < 0 || a == active) && (passive < 0 || b == passive))
				sum += r->pairs[a][b];
	return sum;
}

static void check_counters(struct sim *sim)
{
	const struct tool_sim_result *r = sim->r;
	const struct iwcm_stats *s = &r->stats;
	u64 active_up = count(r, SIM_ESTABLISHED, -1);

	check_equal(sim, "connects counted", s->connects, sim->connect_calls);
	check_equal(sim, "accepts counted", s->accepts, sim->accept_calls);
	check_equal(sim, "passive side established and accepts", s->established_passive, s->accepts);
	if (s->rejects < sim->reject_calls)
		sim_violation(sim, "%llu rejects counted, %llu made", (unsigned long long)s->rejects, (unsigned long long)sim->reject_calls);
	if (s->established_active < active_up)
		sim_violation(sim, "%llu established counted, %llu seen", (unsigned long long)s->established_active,
			      (unsigned long long)active_up);
	if (s->established_active > s->established_passive)
		sim_violation(sim, "%llu established on the active side, %llu on the passive side",
			      (unsigned long long)s->established_active, (unsigned long long)s->established_passive);
	if (sim->p->destroy == 0)
		check_equal(sim, "established on the active side", s->established_active, active_up);
}

static void check_frames(struct sim *sim)
{
	const struct port_wire_stats *w = &sim->r->wire;

	check_equal(sim, "frames accounted for",
		    w->lost + w->delivered + w->unmatched + w->not_taken + w->malformed + w->bad_checksum + w->no_route + w->down +
		    sim->r->left_frames, w->frames + w->duplicated);
}

/* ---- checks: pairs ---- */

/* Which outcomes go together. What depends on calls is checked beside it. */
static const u32 pairs_allowed[SIM_OUTCOMES] = {
	[SIM_ESTABLISHED] = BIT(SIM_ESTABLISHED) | BIT(SIM_FAILED) | BIT(SIM_DESTROYED),
	[SIM_REJECTED] = BIT(SIM_REJECTED) | BIT(SIM_DESTROYED),
	[SIM_FAILED] = BIT(SIM_NONE) | BIT(SIM_ESTABLISHED) | BIT(SIM_REJECTED) | BIT(SIM_FAILED) | BIT(SIM_DESTROYED),
	[SIM_DESTROYED] = BIT(SIM_NONE) | BIT(SIM_ESTABLISHED) | BIT(SIM_REJECTED) | BIT(SIM_FAILED) | BIT(SIM_DESTROYED),
};

/* On a clean wire only what cannot work may fail, or what was answered too late. */
static bool may_fail(const struct sim *sim, const struct sim_rec *rec)
{
	const struct iwcm_options *o = &sim->hosts[rec->to].opt;

	if (!sim_is_clean(sim->p) || rec->active.cause == CM_CAUSE_NO_MPA_REPLY)
		return true;
	if (rec->rev > o->mpa_revision)
		return !rec->fall_back;
	return sim_no_rtr(sim, rec);
}

static bool same_terms(const struct sim_view *a, const struct sim_view *b)
{
	if (a->rev != b->rev || a->p2p != b->p2p || a->rtr != b->rtr || a->crc != b->crc)
		return false;
	if (a->snd_markers != b->rcv_markers || a->rcv_markers != b->snd_markers)
		return false;
	if (a->rev == MPA_REV_1)
		return true;
	return a->peer_ird == b->ird && a->ord <= b->ird && b->ord <= a->ird;
}

static void check_pair(struct sim *sim, u64 serial, const struct sim_rec *rec)
{
	const struct sim_view *a = &rec->active, *b = &rec->passive;
	unsigned long long n = serial;

	if (a->outcome == SIM_REJECTED && b->outcome == SIM_NONE && sim_no_rtr(sim, rec))
		return; /* the responder's CM says no by itself */
	if (!(pairs_allowed[a->outcome] & BIT(b->outcome)))
		sim_violation_on(sim, rec->ends, "connection %llu: %s for one side, %s for the other", n, tool_sim_outcome_str(a->outcome),
			      tool_sim_outcome_str(b->outcome));
	if (a->outcome == SIM_ESTABLISHED && !rec->accepted)
		sim_violation_on(sim, rec->ends, "connection %llu: established, but never accepted", n);
	if (a->outcome == SIM_FAILED && !may_fail(sim, rec))
		sim_violation_on(sim, rec->ends, "connection %llu: fails on a clean wire: %s", n, iwcm_cause_str(a->cause));
	if (a->outcome == SIM_ESTABLISHED && b->outcome == SIM_ESTABLISHED && !same_terms(a, b))
		sim_violation_on(sim, rec->ends, "connection %llu: the sides disagree about what was negotiated: revision %u/%u, RTR %u/%u, "
			      "IRD %u/%u, ORD %u/%u", n, a->rev, b->rev, a->rtr, b->rtr, a->ird, b->ird, a->ord, b->ord);
}

static void check_pairs(struct sim *sim)
{
	const struct sim_rec *rec;
	u64 i;

	for (i = 0; i < sim->r->started; i++) {
		rec = &sim->recs[i];
		sim->r->pairs[rec->active.outcome][rec->passive.outcome]++;
		check_pair(sim, i, rec);
	}
}

/* ---- the whole ---- */

static void simulate(struct sim *sim)
{
	run(sim);
	count_left(sim);
	check_left(sim);
	check_pairs(sim);
	check_counters(sim);
	check_frames(sim);
	sim_data_check_hosts(sim);
	sim_digest(sim, sim->r->wire.frames);
	sim_digest(sim, sim->r->wire.delivered);
	sim_digest(sim, sim->r->virtual_ns);
}

/**
 * tool_sim_run() - run a simulation
 * @params: what it is to be like
 * @result: what came of it
 *
 * Return: 0, or a negative errno if it could not be set up; whether it went well is in @result->violations.
 */
int tool_sim_run(const struct tool_sim_params *params, struct tool_sim_result *result)
{
	struct sim sim = { .p = params, .r = result };
	u64 begun_ns = loop_monotonic_ns();
	int err;

	if (params->nodes < 2 || (!params->ipv4 && !params->ipv6) || params->connections > UINT32_MAX || params->largest > SIM_LARGEST_MAX)
		return -EINVAL;
	memset(result, 0, sizeof(*result));
	result->digest = 0xCBF29CE484222325ull;
	TAILQ_INIT(&sim.all_free);
	rand_set_seed(params->seed);
	rand_gen_seed(&sim.rand, params->seed ^ 0x5EED);
	loop_init(&sim.loop, 0);
	err = world_open(&sim);
	if (!err)
		simulate(&sim);
	world_close(&sim);
	loop_destroy(&sim.loop);
	rand_unset_seed();
	result->wall_ns = loop_monotonic_ns() - begun_ns;
	return err;
}

/**
 * tool_sim_outcome_str() - an outcome in words
 * @o: outcome
 *
 * Return: the words, never NULL.
 */
const char *tool_sim_outcome_str(enum tool_sim_outcome o)
{
	static const char *const names[] = { "no request", "established", "rejected", "failed", "destroyed" };

	static_assert(ARRAY_SIZE(names) == SIM_OUTCOMES, "a name per outcome");
	return (unsigned int)o < SIM_OUTCOMES ? names[o] : "?";
}

/**
 * tool_sim_verb_str() - what was posted, in words
 * @v: verb
 *
 * Return: the words, never NULL.
 */
const char *tool_sim_verb_str(enum tool_sim_verb v)
{
	static const char *const names[] = {
		[SIM_SEND] = "Send", [SIM_SEND_INV] = "Send with Invalidate", [SIM_WRITE] = "Write", [SIM_WRITE_IMM] = "Write with Immediate",
		[SIM_READ] = "Read", [SIM_FETCH_ADD] = "Fetch and Add", [SIM_CMP_SWAP] = "Compare and Swap", [SIM_BIND] = "bind",
	};

	static_assert(ARRAY_SIZE(names) == SIM_VERBS, "a name per verb");
	return (unsigned int)v < SIM_VERBS ? names[v] : "?";
}
