// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: what `uwarp sim` prints in the end. */
#include "tool/json.h"
#include "tool/sim_command.h"

static_assert(CM_CAUSES <= ARRAY_SIZE(((struct tool_sim_result *)0)->causes), "a counter per cause");

u64 sim_total(const struct tool_options *o)
{
	return o->sim.only.n ? o->sim.only.n : o->count;
}

/* ---- text ---- */

static void print_pairs(const struct tool_sim_result *r)
{
	int a, b;

	printf("outcomes, a row for the active side's, a column for the passive side's\n%-14s", "");
	for (b = 0; b < SIM_OUTCOMES; b++)
		printf(" %12s", tool_sim_outcome_str((enum tool_sim_outcome)b));
	putchar('\n');
	for (a = SIM_ESTABLISHED; a < SIM_OUTCOMES; a++) {
		printf("  %-12s", tool_sim_outcome_str((enum tool_sim_outcome)a));
		for (b = 0; b < SIM_OUTCOMES; b++)
			printf(" %12llu", (unsigned long long)r->pairs[a][b]);
		putchar('\n');
	}
}

static void print_causes(const struct tool_sim_result *r)
{
	int i;

	for (i = 0; i < CM_CAUSES; i++)
		if (r->causes[i])
			printf("  %9llu failed: %s\n", (unsigned long long)r->causes[i], iwcm_cause_str(i));
}

static void print_troubles(const struct tool_sim_result *r)
{
	printf("troubles: %llu interfaces or addresses went and came, %llu NICs fell silent, %llu programs stopped listening for a while\n",
	       (unsigned long long)r->troubles[SIM_FLAP], (unsigned long long)r->troubles[SIM_VANISH], (unsigned long long)r->troubles[SIM_RESTART]);
	printf("forged segments: %llu by the blind, %llu in the window, %llu by those on the path", (unsigned long long)r->shots[0],
	       (unsigned long long)r->shots[1], (unsigned long long)r->shots[2]);
	if (r->tampered)
		printf(", who broke %llu promises", (unsigned long long)r->tampered);
	putchar('\n');
}

static void print_checks(const struct tool_sim_result *r)
{
	printf("checked: after each of %llu steps of the wire, %llu steps of nodes, %llu events; books recounted %llu times\n", (unsigned long long)r->steps,
	       (unsigned long long)r->states, (unsigned long long)r->events, (unsigned long long)r->audits);
}

static void print_frames(const struct tool_sim_result *r)
{
	const struct port_wire_stats *w = &r->wire;
	u64 caught = w->bad_checksum + w->malformed;

	printf("frames: %llu sent, %llu delivered, %llu lost, %llu duplicated, %llu reordered,\n", (unsigned long long)w->frames,
	       (unsigned long long)w->delivered, (unsigned long long)w->lost, (unsigned long long)w->duplicated,
	       (unsigned long long)w->reordered);
	printf("        %llu corrupted (%llu caught), %llu for nobody, %llu not taken;\n", (unsigned long long)w->corrupted,
	       (unsigned long long)caught, (unsigned long long)w->unmatched,
	       (unsigned long long)w->not_taken);
	printf("        %llu retransmissions by the CM\n", (unsigned long long)r->stats.retransmits);
	if (r->stats.cookies_sent)
		printf("crowded listeners: %llu SYN cookies sent, %llu came back, %llu bad ones\n", (unsigned long long)r->stats.cookies_sent,
		       (unsigned long long)r->stats.cookies_accepted, (unsigned long long)r->stats.cookies_bad);
}

static void print_data(const struct tool_sim_result *r)
{
	int v;

	printf("data: %llu sides of connections, %llu had sent and got all of it; %llu work requests flushed,\n"
	       "      %llu of them as they were wrong\n", (unsigned long long)r->data_sides, (unsigned long long)r->data_complete,
	       (unsigned long long)r->flushed, (unsigned long long)r->blamed);
	for (v = 0; v < SIM_VERBS; v++)
		printf("  %-20s %9llu messages %12llu bytes\n", tool_sim_verb_str((enum tool_sim_verb)v), (unsigned long long)r->moved[v].messages,
		       (unsigned long long)r->moved[v].bytes);
}

void sim_print_text(const struct tool_options *o, const struct tool_sim_result *r)
{
	double wall = (double)r->wall_ns / 1e9;

	printf("%llu connections between %u hosts, generation %u, seed %llu: %llu events\n", (unsigned long long)r->started,
	       o->sim.nodes, o->sim.gen, (unsigned long long)o->sim.seed, (unsigned long long)r->events);
	print_pairs(r);
	print_causes(r);
	if (o->sim.data > 0)
		print_data(r);
	print_frames(r);
	print_troubles(r);
	print_checks(r);
	printf("left: %llu nodes, %llu listeners, %llu buffers, %llu queue pairs, %llu ports,\n", (unsigned long long)r->left_nodes,
	       (unsigned long long)r->left_listeners, (unsigned long long)r->left_bufs, (unsigned long long)r->left_qps,
	       (unsigned long long)r->left_ports);
	printf("      %llu offloaded, %llu in TIME_WAIT, %llu frames, %llu timers\n", (unsigned long long)r->left_conns,
	       (unsigned long long)r->left_time_waits, (unsigned long long)r->left_frames, (unsigned long long)r->left_timers);
	printf("time: %.3f s virtual, %.3f s real, %.0f connections per second\n", (double)r->virtual_ns / 1e9, wall,
	       wall > 0 ? (double)r->started / wall : 0);
	printf("digest: %016llx\n", (unsigned long long)r->digest);
	if (r->interrupted)
		printf("interrupted: %llu of %llu connections had ended\n", (unsigned long long)r->ended, (unsigned long long)sim_total(o));
	if (r->violations)
		printf("WRONG: %llu checks failed, the first: %s\n", (unsigned long long)r->violations, r->first_violation);
	else
		printf("all checks held\n");
}

/* ---- JSON ---- */

static void json_pairs(struct tool_json *j, const struct tool_sim_result *r)
{
	static const char *const keys[] = { "no_request", "established", "rejected", "failed", "destroyed" };
	int a, b;

	tool_json_object(j, "outcomes");
	for (a = SIM_ESTABLISHED; a < SIM_OUTCOMES; a++) {
		tool_json_object(j, keys[a]);
		for (b = 0; b < SIM_OUTCOMES; b++)
			tool_json_u64(j, keys[b], r->pairs[a][b]);
		tool_json_object_end(j);
	}
	tool_json_object_end(j);
	tool_json_object(j, "causes");
	for (a = 0; a < CM_CAUSES; a++)
		if (r->causes[a])
			tool_json_u64(j, tool_cause_name(a), r->causes[a]);
	tool_json_object_end(j);
}

static void json_frames(struct tool_json *j, const struct port_wire_stats *w)
{
	tool_json_object(j, "frames");
	tool_json_u64(j, "sent", w->frames);
	tool_json_u64(j, "delivered", w->delivered);
	tool_json_u64(j, "lost", w->lost);
	tool_json_u64(j, "duplicated", w->duplicated);
	tool_json_u64(j, "reordered", w->reordered);
	tool_json_u64(j, "corrupted", w->corrupted);
	tool_json_u64(j, "bad_checksum", w->bad_checksum);
	tool_json_u64(j, "malformed", w->malformed);
	tool_json_u64(j, "unmatched", w->unmatched);
	tool_json_u64(j, "not_taken", w->not_taken);
	tool_json_object_end(j);
}

static void json_crowd(struct tool_json *j, const struct iwcm_stats *s)
{
	tool_json_object(j, "crowded_listeners");
	tool_json_u64(j, "cookies_sent", s->cookies_sent);
	tool_json_u64(j, "cookies_accepted", s->cookies_accepted);
	tool_json_u64(j, "cookies_bad", s->cookies_bad);
	tool_json_u64(j, "half_open_evicted", s->half_open_evicted);
	tool_json_u64(j, "silent_evicted", s->silent_evicted);
	tool_json_u64(j, "backlog_drops", s->backlog_drops);
	tool_json_object_end(j);
}

static void json_data(struct tool_json *j, const struct tool_sim_result *r)
{
	static const char *const keys[] = { "send", "send_inv", "write", "write_imm", "read", "fetch_add", "cmp_swap", "bind" };
	int v;

	static_assert(ARRAY_SIZE(keys) == SIM_VERBS, "a key per verb");
	tool_json_object(j, "data");
	tool_json_u64(j, "sides", r->data_sides);
	tool_json_u64(j, "complete", r->data_complete);
	tool_json_u64(j, "flushed", r->flushed);
	tool_json_u64(j, "blamed", r->blamed);
	for (v = 0; v < SIM_VERBS; v++) {
		tool_json_object(j, keys[v]);
		tool_json_u64(j, "messages", r->moved[v].messages);
		tool_json_u64(j, "bytes", r->moved[v].bytes);
		tool_json_object_end(j);
	}
	tool_json_object_end(j);
}

static void json_checks(struct tool_json *j, const struct tool_sim_result *r)
{
	tool_json_object(j, "troubles");
	tool_json_u64(j, "flap", r->troubles[SIM_FLAP]);
	tool_json_u64(j, "vanish", r->troubles[SIM_VANISH]);
	tool_json_u64(j, "restart", r->troubles[SIM_RESTART]);
	tool_json_object_end(j);
	tool_json_object(j, "forged");
	tool_json_u64(j, "blind", r->shots[0]);
	tool_json_u64(j, "near", r->shots[1]);
	tool_json_u64(j, "on_path", r->shots[2]);
	tool_json_object_end(j);
	tool_json_object(j, "checked");
	tool_json_u64(j, "steps", r->steps);
	tool_json_u64(j, "states", r->states);
	tool_json_u64(j, "audits", r->audits);
	tool_json_object_end(j);
}

static void json_left(struct tool_json *j, const struct tool_sim_result *r)
{
	tool_json_object(j, "left");
	tool_json_u64(j, "nodes", r->left_nodes);
	tool_json_u64(j, "listeners", r->left_listeners);
	tool_json_u64(j, "buffers", r->left_bufs);
	tool_json_u64(j, "queue_pairs", r->left_qps);
	tool_json_u64(j, "ports", r->left_ports);
	tool_json_u64(j, "offloaded", r->left_conns);
	tool_json_u64(j, "time_waits", r->left_time_waits);
	tool_json_u64(j, "frames", r->left_frames);
	tool_json_u64(j, "timers", r->left_timers);
	tool_json_object_end(j);
}

void sim_print_json(const struct tool_options *o, const struct tool_sim_result *r)
{
	struct tool_json j;
	char digest[17];

	snprintf(digest, sizeof(digest), "%016llx", (unsigned long long)r->digest);
	tool_json_begin(&j, stdout);
	tool_json_str(&j, "event", "summary");
	tool_json_u64(&j, "connections", r->started);
	tool_json_u64(&j, "ended", r->ended);
	tool_json_str(&j, "ended_by", r->interrupted ? "signal" : "itself");
	tool_json_u64(&j, "hosts", o->sim.nodes);
	tool_json_u64(&j, "generation", o->sim.gen);
	tool_json_u64(&j, "seed", o->sim.seed);
	tool_json_u64(&j, "events", r->events);
	json_pairs(&j, r);
	json_data(&j, r);
	json_frames(&j, &r->wire);
	tool_json_u64(&j, "retransmits", r->stats.retransmits);
	json_crowd(&j, &r->stats);
	json_checks(&j, r);
	json_left(&j, r);
	tool_json_double(&j, "virtual_seconds", (double)r->virtual_ns / 1e9);
	tool_json_double(&j, "seconds", (double)r->wall_ns / 1e9);
	tool_json_str(&j, "digest", digest);
	tool_json_u64(&j, "tampered", r->tampered);
	tool_json_u64(&j, "violations", r->violations);
	if (r->violations)
		tool_json_str(&j, "first_violation", r->first_violation);
	tool_json_end(&j);
}
