// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: the world of a simulation: hosts, their wire, its clock. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "iwcm/iwcm_nic.h"
#include "tool/sim_data.h"

#define STARTS_PER_HOST 100u     /* in a second */
#define ALIVE_MAX 16384u         /* sides */
#define STUCK_NS (3600 * NSEC_PER_SEC)   /* of virtual time in which no connection ended */
#define QUIET_NS (1800 * NSEC_PER_SEC)   /* for the last timers: TIME_WAIT and retransmissions of FINs */
#define MTU 1500

/* ---- what sim_side.c needs ---- */

__attribute__((format(printf, 2, 0)))
static void violation(struct sim *sim, const char *fmt, va_list ap)
{
	struct tool_sim_result *r = sim->r;

	if (r->violations++)
		return;
	r->started_then = r->started;
	vsnprintf(r->first_violation, sizeof(r->first_violation), fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized): the callers begin it */
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

	if (sim_is_tampered(sim, ends)) {
		sim->r->tampered++;
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

	while (size <= serial)
		size *= 2;
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

u64 sim_num_connections(const struct sim *sim)
{
	return sim->p->only ? sim->p->only->n : sim->p->connections;
}

u64 sim_serial(const struct sim *sim, u64 k)
{
	return sim->p->only ? sim->p->only->item[k] : k;
}

void sim_chance(const struct sim *sim, u64 serial, enum sim_salt salt, struct rand_gen *g)
{
	rand_gen_seed(g, sim_mix(sim_mix(sim->p->seed + 0x5EED) ^ sim_mix(serial * 16 + salt)));
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
	h->ifindex = iface.ifindex;
	if (!err)
		net_process(h->net);
	return err;
}

/* Mostly what anybody can connect to. */
static void listener_options(struct sim_host *h)
{
	struct rand_gen own, *g = &own;

	rand_gen_seed(g, sim_mix(sim_mix(h->sim->p->seed + 0x5EED) + h->index));
	iwcm_options_init(&h->opt);
	h->opt.mpa_revision = rand_gen_below(g, 6) ? 2 : 1;
	h->opt.peer_to_peer = rand_gen_below(g, 5);
	h->opt.rtr = rand_gen_below(g, 3) ? IWCM_RTR_ALL : 1 + (unsigned int)rand_gen_below(g, 7);
	h->opt.crc = rand_gen_below(g, 2);
	h->opt.markers = !rand_gen_below(g, 4);
	h->backlog = rand_gen_below(g, 4) ? 1024 : 1 + (int)rand_gen_below(g, SIM_SHORT_BACKLOG);
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
		err = iwcm_listen(h->listener[i], h->backlog);
	return err;
}

int sim_host_listen(struct sim_host *h)
{
	static const u32 any[4] = { 0 };
	int err = 0;

	if (h->sim->p->ipv4)
		err = listen_at(h, 0, true, any, SIM_PORT);
	if (!err && h->sim->p->ipv6)
		err = listen_at(h, 1, false, any, SIM_PORT);
	if (!err)
		err = listen_at(h, 2, h->sim->p->ipv4, h->sim->p->ipv4 ? h->addr4 : h->addr6, SIM_PORT + 1);
	return err;
}

void sim_host_close_listeners(struct sim_host *h)
{
	int i;

	for (i = 0; i < SIM_LISTENERS; i++) {
		iwcm_destroy_id(h->listener[i]);
		h->listener[i] = NULL;
	}
}

u32 sim_first_host(const struct sim *sim, u64 serial)
{
	struct rand_gen g;

	sim_chance(sim, serial, SIM_SALT_START, &g);
	return (u32)rand_gen_below(&g, sim->p->nodes);
}

static u32 captured_host(const struct sim *sim)
{
	return sim->p->only && sim->p->only->n ? sim_first_host(sim, sim->p->only->item[0]) : 0;
}

static void find_device(struct irdma_device *iwdev, void *arg)
{
	*(struct irdma_device **)arg = iwdev;
}

static int host_device(struct sim_host *h)
{
	struct irdma_device *iwdev = NULL;

	iwcm_for_each_device(h->ctx, find_device, &iwdev);
	h->iwdev = iwdev ? iwcm_device_get(h->ctx, iwdev) : NULL;
	return h->iwdev ? 0 : -ENODEV;
}

static int host_open(struct sim *sim, u32 index)
{
	struct sim_host *h = &sim->hosts[index];
	struct cm_trace trace = sim_watch_trace(h);
	int err;

	h->sim = sim;
	h->index = index;
	err = host_open_net(h);
	if (!err)
		err = iwcm_open_wire(sim->wire, &sim->loop, h->net, sim->p->gen, &h->ctx);
	if (!err)
		err = host_device(h);
	if (err)
		return err;
	iwcm_set_observers(h->ctx, index == captured_host(sim) ? sim->p->capture : NULL, sim->attacks ? sim_attack_sniff : NULL, &trace, h);
	iwcm_set_handler(h->ctx, sim_on_event, NULL, h);
	if (sim->p->data > 0)
		err = sim_host_data_open(h);
	listener_options(h);
	return err ? err : sim_host_listen(h);
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
	err = sim_watch_open(sim);
	if (!err && (p->attack > 0 || p->on_path > 0))
		err = sim_attacks_open(sim);
	if (!err && p->data > 0)
		err = sim_pattern_make(sim);
	for (i = 0; i < p->nodes && !err; i++)
		err = host_open(sim, i);
	return err;
}

static void close_listeners(struct sim *sim)
{
	u32 i;

	for (i = 0; i < sim->p->nodes; i++)
		sim_host_close_listeners(&sim->hosts[i]);
}

static void world_close(struct sim *sim)
{
	u64 i;

	sim_troubles_free(sim);
	sim_attacks_close(sim);
	for (i = 0; i < sim->num_sides; i++)
		sim_side_free(sim->sides[i]);
	free(sim->sides);
	for (i = 0; sim->hosts && i < sim->p->nodes; i++) {
		sim_host_data_close(&sim->hosts[i]);
		if (sim->hosts[i].iwdev)
			iwcm_device_put(sim->hosts[i].ctx, sim->hosts[i].iwdev);
		iwcm_close(sim->hosts[i].ctx);
		if (sim->hosts[i].net)
			net_close(sim->hosts[i].net);
	}
	free(sim->hosts);
	for (i = 0; i < sim->size_recs; i++)
		free(sim->recs[i].counted);
	free(sim->recs);
	free(sim->pattern);
	sim_set_free(&sim->tampered);
	sim_watch_close(sim);
	if (sim->segment)
		net_segment_destroy(sim->segment);
	if (sim->wire)
		port_wire_destroy(sim->wire);
}

/* ---- running ---- */

/* False: nothing is left to happen before @until_ns, or it is not worth to go on. */
static bool step(struct sim *sim, u64 until_ns)
{
	if (sim->stuck || (sim->r->violations && sim->p->stop_at_violation) || !port_wire_step(sim->wire, until_ns))
		return false;
	sim_watch_step(sim);
	return true;
}

static bool starts_more(struct sim *sim)
{
	if (sim->p->duration_ns && loop_now(&sim->loop) >= sim->p->duration_ns)
		sim->ending = true;
	if (sim->p->stop && *sim->p->stop)
		sim->r->interrupted = sim->ending = true;
	return !sim->ending && sim->r->started < sim_num_connections(sim);
}

/* Each has its time, whatever became of the others; but so many at once are enough. */
void sim_start_more(struct sim *sim)
{
	u64 gap = NSEC_PER_SEC / (sim->p->nodes * STARTS_PER_HOST), serial;

	while (starts_more(sim) && sim->alive < ALIVE_MAX) {
		serial = sim_serial(sim, sim->r->started);
		if (serial * gap > loop_now(&sim->loop)) {
			mod_timer(&sim->starter, serial * gap);
			return;
		}
		if (!sim_side_begin(sim, serial)) {
			sim_violation(sim, "out of memory after %llu connections", (unsigned long long)sim->r->started);
			sim->ending = true;
			return;
		}
		sim->r->started++;
	}
}

static void run_connections(struct sim *sim)
{
	u64 progress_at = 0, seen = UINT64_MAX;

	while (sim->alive || starts_more(sim)) {
		if (sim->over != seen) {
			seen = sim->over;
			progress_at = loop_now(&sim->loop) + STUCK_NS;
		}
		if (step(sim, progress_at))
			continue;
		if (!sim->r->violations)
			sim_violation(sim, "pace: %llu sides never came to an end", (unsigned long long)sim->alive);
		return;
	}
}

static void on_starter(struct timer_list *t)
{
	sim_start_more(container_of(t, struct sim, starter));
}

static void run(struct sim *sim)
{
	timer_setup(&sim->starter, &sim->loop, on_starter);
	sim_start_more(sim);
	run_connections(sim);
	sim->r->virtual_ns = loop_now(&sim->loop);
	sim->r->ended = sim->over;
	sim->ending = true;
	timer_del(&sim->starter);
	close_listeners(sim);
	while (step(sim, sim->r->virtual_ns + QUIET_NS))
		;
}

/* ---- the whole ---- */

static void simulate(struct sim *sim)
{
	run(sim);
	if (sim->r->violations && sim->p->stop_at_violation)
		return;
	sim_check_end(sim);
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
	TAILQ_INIT(&sim.troubles);
	rand_set_seed(params->seed);
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
