// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: `uwarp sim`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tool/json.h"
#include "tool/sim_command.h"
#include "tool/sim_list.h"

static void on_progress(void *arg, u64 over, u64 virtual_ns)
{
	const struct tool_options *o = arg;

	fprintf(stderr, "\r%llu of %llu connections, %.1f s of virtual time\033[K", (unsigned long long)over,
		(unsigned long long)sim_total(o), (double)virtual_ns / 1e9);
}

static void set_params(const struct tool_options *o, struct tool_sim_params *p)
{
	const struct tool_sim_options *s = &o->sim;

	*p = (struct tool_sim_params){
		.nodes = s->nodes,
		.connections = o->count,
		.duration_ns = (u64)(s->duration_s * 1e9),
		.seed = s->seed,
		.gen = (u8)s->gen,
		.ipv4 = !s->ipv6,
		.ipv6 = true,
		.latency_ns = (u64)(s->latency_ms * 1e6),
		.loss = s->loss / 100,
		.reorder = s->reorder / 100,
		.duplicate = s->duplicate / 100,
		.corrupt = s->corrupt / 100,
		.reject = s->reject / 100,
		.late = s->late / 100,
		.destroy = s->destroy / 100,
		.flap = s->flap / 100,
		.vanish = s->vanish / 100,
		.restart = s->restart / 100,
		.attack = s->attack / 100,
		.on_path = s->on_path / 100,
		.data = s->data / 100,
		.largest = s->largest,
		.paranoid = s->paranoid,
		.only = s->only.n ? &s->only : NULL,
		.progress = isatty(STDERR_FILENO) && !o->json ? on_progress : NULL,
		.progress_arg = (void *)o,
	};
}

/* ---- signals ---- */

#define TWICE_NS (300 * NSEC_PER_MSEC) /* timeout(1) delivers a signal twice */

static volatile sig_atomic_t interrupted;
static u64 interrupted_ns;

/* The first signal ends the simulation in order, with its summary; a second one ends the program. */
static void on_signal(int signal)
{
	u64 now = loop_monotonic_ns();

	if (interrupted && now - interrupted_ns > TWICE_NS)
		_exit(128 + signal);
	if (!interrupted)
		interrupted_ns = now;
	interrupted = signal;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

/* ---- a run ---- */

struct run {
	const struct tool_options *o;
	bool small;             /* it is known to fail, and is to end with that */
	const char *pcap;
};

static int open_capture(const struct run *run, struct tool_sim_params *p)
{
	char text[256];
	int err;

	if (!run->pcap)
		return 0;
	err = port_capture_open(run->pcap, &p->capture, text, sizeof(text));
	if (err)
		tool_error("capture: %s", text); /* which names the file */
	return err;
}

static int close_capture(const struct tool_sim_params *p)
{
	return p->capture ? port_capture_close(p->capture) : 0; /* the log has said what went wrong */
}

/* In a process of its own: sim_guard.c. */
static int run_here(void *arg, u64 *heartbeat, struct tool_sim_result *r)
{
	const struct run *run = arg;
	struct tool_sim_params p;
	int err, closed;

	set_params(run->o, &p);
	p.stop = &interrupted;
	p.heartbeat = heartbeat;
	p.stop_at_violation = run->small;
	err = open_capture(run, &p);
	if (err)
		return err;
	err = tool_sim_run(&p, r);
	closed = close_capture(&p);
	if (p.progress)
		fputs("\r\033[K", stderr);
	if (err)
		tool_error("the simulation cannot be set up: %s", strerror(-err));
	return err ? err : closed;
}

static int guarded(struct run *run, u64 until_ns, bool quiet, struct tool_sim_result *r)
{
	const struct sim_guarded g = { .run = run_here, .arg = run, .until_ns = until_ns, .signal = &interrupted, .quiet = quiet };

	return sim_guard_run(&g, r);
}

/* ---- a run that fails ---- */

static int try_smaller(const struct tool_options *o, u64 until_ns, struct tool_sim_result *r)
{
	struct run run = { .o = o, .small = true };

	return interrupted ? -EINTR : guarded(&run, until_ns, true, r);
}

static void say_command(const struct tool_options *o, const char *what, const struct tool_options *run)
{
	struct tool_json j;
	char *text = NULL;
	size_t len = 0;
	FILE *f;

	if (!o->json) {
		printf("%s: ", what);
		sim_print_command(stdout, run);
		return;
	}
	f = open_memstream(&text, &len);
	if (!f)
		return;
	sim_print_command(f, run);
	fclose(f);
	text[strcspn(text, "\n")] = '\0';
	tool_json_begin(&j, stdout);
	tool_json_str(&j, "event", what);
	tool_json_str(&j, "command", text);
	tool_json_end(&j);
	free(text);
}

static void capture_smallest(const struct tool_options *o)
{
	struct run run = { .o = o, .small = true, .pcap = o->pcap };
	struct tool_sim_result r;

	if (o->pcap && strcmp(o->pcap, "-"))
		guarded(&run, 0, true, &r);
}

static void say_smallest(const struct tool_options *o, const struct tool_options *small, const struct tool_sim_result *r, unsigned int runs)
{
	say_command(o, "smallest", small);
	if (!o->json && small->sim.only.n)
		printf("%u runs, %zu connections: %s\n", runs, small->sim.only.n, r->first_violation);
	else if (!o->json)
		printf("%u runs: %s\n", runs, r->first_violation);
	capture_smallest(small);
}

static void copy_list(struct tool_sim_list *l)
{
	u64 *item = l->n ? malloc(l->n * sizeof(*item)) : NULL;

	if (item)
		memcpy(item, l->item, l->n * sizeof(*item));
	*l = (struct tool_sim_list){ .item = item, .n = item ? l->n : 0 };
}

/* Chance from elsewhere than the seed, the machine's memory or time: or no time to see. */
static void say_not_again(const struct tool_options *o, unsigned int runs, bool late)
{
	const char *text = interrupted ? "interrupted" : late ? "no time to see whether it happens again" : "it did not happen again";
	struct tool_json j;

	if (!o->json) {
		printf("%u runs: %s\n", runs, text);
		return;
	}
	tool_json_begin(&j, stdout);
	tool_json_str(&j, "event", "not_again");
	tool_json_u64(&j, "runs", runs);
	tool_json_str(&j, "message", text);
	tool_json_end(&j);
}

static void explain(const struct tool_options *o, struct tool_sim_result *r)
{
	u64 until_ns = loop_monotonic_ns() + (u64)(o->sim.minimise_s * 1e9);
	struct tool_options small = *o;
	unsigned int runs;

	say_command(o, "again", o);
	if (o->sim.minimise_s == 0 || interrupted)
		return;
	fflush(stdout);
	copy_list(&small.sim.only);
	if (sim_minimise(&small, r, until_ns, try_smaller, &runs))
		say_smallest(o, &small, r, runs);
	else
		say_not_again(o, runs, loop_monotonic_ns() >= until_ns);
	free(small.sim.only.item);
}

/* ---- the command ---- */

int tool_sim(const struct tool_options *o)
{
	struct run run = { .o = o, .pcap = o->pcap };
	struct tool_sim_result r;
	int err;

	catch_signals();
	err = guarded(&run, 0, false, &r);
	if (err)
		return TOOL_LOCAL;
	if (o->json)
		sim_print_json(o, &r);
	else
		sim_print_text(o, &r);
	if (!r.violations)
		return TOOL_OK;
	explain(o, &r);
	return TOOL_PROTOCOL;
}
