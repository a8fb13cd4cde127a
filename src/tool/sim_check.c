// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: what must hold when a simulation has come to its end: the two sides of each connection tell one story; counters agree with what was called and
 * seen; nothing is left.
 */
#include "iwcm/iwcm_nic.h"
#include "tool/sim_data.h"

bool sim_no_rtr(const struct sim *sim, const struct sim_rec *rec)
{
	const struct iwcm_options *o = &sim->hosts[rec->to].opt;

	return rec->rev == MPA_REV_2 && o->mpa_revision == MPA_REV_2 && rec->p2p && rec->rtr && o->peer_to_peer && !(rec->rtr & o->rtr);
}

bool sim_is_clean(const struct tool_sim_params *p)
{
	return p->loss == 0 && p->reorder == 0 && p->duplicate == 0 && p->corrupt == 0;
}

/* ---- what is left ---- */

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

/* ---- counters ---- */

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

/* ---- pairs ---- */

/* Which outcomes go together. What depends on calls is checked beside it. */
static const u32 pairs_allowed[SIM_OUTCOMES] = {
	[SIM_ESTABLISHED] = BIT(SIM_ESTABLISHED) | BIT(SIM_FAILED) | BIT(SIM_DESTROYED),
	[SIM_REJECTED] = BIT(SIM_REJECTED) | BIT(SIM_DESTROYED),
	[SIM_FAILED] = BIT(SIM_NONE) | BIT(SIM_ESTABLISHED) | BIT(SIM_REJECTED) | BIT(SIM_FAILED) | BIT(SIM_DESTROYED),
	[SIM_DESTROYED] = BIT(SIM_NONE) | BIT(SIM_ESTABLISHED) | BIT(SIM_REJECTED) | BIT(SIM_FAILED) | BIT(SIM_DESTROYED),
};

/* Programs that answer late can keep a short backlog full, as long as others have patience. */
static bool is_crowded_out(const struct sim *sim, const struct sim_rec *rec)
{
	return sim->hosts[rec->to].backlog <= SIM_SHORT_BACKLOG && (rec->active.cause == CM_CAUSE_NO_SYNACK || rec->active.cause == CM_CAUSE_NOT_ACKED);
}

/* On a clean wire only what cannot work may fail, or what was answered too late, or came to a crowd. */
static bool may_fail(const struct sim *sim, const struct sim_rec *rec)
{
	const struct iwcm_options *o = &sim->hosts[rec->to].opt;

	if (!sim_is_calm(sim, rec) || rec->active.cause == CM_CAUSE_NO_MPA_REPLY || is_crowded_out(sim, rec))
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
	u64 k, serial;

	for (k = 0; k < sim->r->started; k++) {
		serial = sim_serial(sim, k);
		rec = &sim->recs[serial];
		sim->r->pairs[rec->active.outcome][rec->passive.outcome]++;
		check_pair(sim, serial, rec);
	}
}

void sim_check_end(struct sim *sim)
{
	count_left(sim);
	check_left(sim);
	check_pairs(sim);
	check_counters(sim);
	sim_data_check_hosts(sim);
	sim_watch_end(sim);
}
