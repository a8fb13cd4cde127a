// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: `uwarp perf` and `uwarp ping`: connections, one for each test, and what is printed.
 *
 * The client goes through kinds, verbs and sizes in order. The server runs each test in a thread.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tool/json.h"
#include "tool/perf.h"

#define SETUP_TIMEOUT_MS 20000
#define EVENT_SLICE_MS 200
#define WARM_UP 16u
#define BYTES_PER_TEST (1ull << 30) /* of a bandwidth test, without --count... */
#define MESSAGES_MAX 200000ull      /* ...and no more messages than this */
#define ROUND_TRIPS 10000ull
#define DEPTH 64u

struct perf_conn {
	LIST_ENTRY(perf_conn) entry;
	struct iwcm_ctx *ctx;
	struct iwcm_id *id;
	struct perf_end end;
	struct sockaddr_storage peer;
	/* server */
	pthread_t thread;
	bool serving;        /* there is one, or was */
	int error;           /* its result */
};
LIST_HEAD(perf_conn_list, perf_conn);

/* The client's side of the command. */
struct perf_run {
	struct iwcm_ctx *ctx;
	const struct tool_options *o;
	const struct sockaddr_storage *to;
	u64 measured;        /* tests or round trips whose times were printed */
};

static void on_signal(int sig)
{
	perf_stop = 1;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

/* The next event, or -EINTR, -ETIMEDOUT. @timeout_ms negative: for ever. */
static int next_event(struct iwcm_ctx *ctx, struct iwcm_event *ev, int timeout_ms)
{
	int err, waited = 0;

	do {
		if (perf_stop)
			return -EINTR;
		err = iwcm_get_event(ctx, ev, EVENT_SLICE_MS);
		waited += EVENT_SLICE_MS;
	} while ((err == -EAGAIN || err == -EINTR) && (timeout_ms < 0 || waited < timeout_ms));
	return err == -EAGAIN ? -ETIMEDOUT : err;
}

static int open_ctx(struct iwcm_ctx **ctx)
{
	int err = iwcm_open(NULL, ctx);

	if (err)
		tool_error("the NICs cannot be opened: %s", strerror(-err));
	return err;
}

/* ---- client ---- */

static int await_type(struct perf_conn *c, enum iwcm_event_type type, struct iwcm_event *ev)
{
	int err = next_event(c->ctx, ev, SETUP_TIMEOUT_MS);

	if (err || ev->type == type)
		return err;
	tool_error("%s", ev->type == IWCM_EVENT_REJECTED ? "the server does not do this test (or is no `uwarp perf --listen`)" :
		   ev->info.cause ? iwcm_cause_str(ev->info.cause) : strerror(-ev->status));
	return -ECONNABORTED;
}

static int client_connect(struct perf_conn *c, const struct tool_options *o, const struct perf_test *t)
{
	struct perf_remote own = perf_end_memory(&c->end);
	struct perf_request rq;
	struct iwcm_conn_param p = { .private_data = &rq, .private_data_len = sizeof(rq), .ird = o->ird, .ord = o->ord };
	struct iwcm_event ev;
	int err = iwcm_set_qp(c->id, c->end.qp);

	perf_request_put(&rq, t, &own);
	if (!err)
		err = iwcm_connect(c->id, &p);
	if (!err)
		err = await_type(c, IWCM_EVENT_ESTABLISHED, &ev);
	if (!err && !perf_reply_get(ev.private_data, ev.private_data_len, &c->end.peer)) {
		tool_error("the server is no `uwarp perf --listen`");
		err = -EPROTO;
	}
	return err;
}

static int client_resolve(struct perf_conn *c, const struct tool_options *o, const struct sockaddr_storage *to)
{
	struct iwcm_event ev;
	int err = iwcm_create_id(c->ctx, c, &c->id);

	if (!err)
		err = iwcm_set_options(c->id, &o->mpa);
	if (!err)
		err = iwcm_resolve(c->id, NULL, (const struct sockaddr *)to);
	return err ? err : await_type(c, IWCM_EVENT_RESOLVED, &ev);
}

static void client_disconnect(struct perf_conn *c)
{
	struct iwcm_event ev;

	if (!iwcm_disconnect(c->id))
		while (!next_event(c->ctx, &ev, SETUP_TIMEOUT_MS) && ev.type != IWCM_EVENT_CLOSED)
			;
}

static int client_open(struct perf_conn *c, const struct tool_options *o, const struct sockaddr_storage *to, const struct perf_test *t)
{
	int err = client_resolve(c, o, to);

	if (!err)
		err = perf_end_open(&c->end, c->ctx, iwcm_id_device(c->id), t);
	return err ? err : client_connect(c, o, t);
}

static void client_close(struct perf_conn *c)
{
	iwcm_destroy_id(c->id);
	perf_end_close(&c->end);
}

static int failed(const struct perf_conn *c, int err)
{
	if (err == -EINTR)
		return TOOL_OK; /* client() looks at what was measured */
	if (err == -ECONNABORTED || err == -EPROTO)
		return TOOL_PROTOCOL; /* said already */
	if (c->end.wc_status)
		tool_error("the connection ended in the middle of the test: %s",
			   c->end.wc_status == IBV_WC_WR_FLUSH_ERR ? "closed by the other side" : "a work request failed");
	else
		tool_error("%s", strerror(-err));
	return TOOL_LOCAL;
}

/* ---- what is printed ---- */

static double us(u32 ns)
{
	return ns / 1e3;
}

static double average(const struct perf_result *r)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < r->samples; i++)
		sum += r->ns[i];
	return r->samples ? (double)sum / r->samples / 1e3 : 0;
}

static u32 percentile(const struct perf_result *r, double p)
{
	return r->samples ? r->ns[(u32)(p * (r->samples - 1))] : 0;
}

static void json_latency(struct tool_json *j, const struct perf_result *r)
{
	tool_json_double(j, "min_us", us(percentile(r, 0)));
	tool_json_double(j, "median_us", us(percentile(r, 0.5)));
	tool_json_double(j, "average_us", average(r));
	tool_json_double(j, "p99_us", us(percentile(r, 0.99)));
	tool_json_double(j, "max_us", us(percentile(r, 1)));
}

static double gbits(const struct perf_test *t, const struct perf_result *r)
{
	return r->seconds > 0 ? (double)r->done * t->size * 8 / r->seconds / 1e9 : 0;
}

static void print_json(const struct perf_test *t, const struct perf_result *r)
{
	struct tool_json j;

	tool_json_begin(&j, stdout);
	tool_json_str(&j, "test", t->kind == PERF_LATENCY ? "latency" : "bandwidth");
	tool_json_str(&j, "verb", perf_verb_str(t->verb));
	tool_json_u64(&j, "bytes", t->size);
	tool_json_u64(&j, "count", r->done);
	tool_json_double(&j, "seconds", r->seconds);
	if (t->kind == PERF_LATENCY) {
		json_latency(&j, r);
	} else {
		tool_json_u64(&j, "depth", t->depth);
		tool_json_double(&j, "gbit_per_s", gbits(t, r));
		tool_json_double(&j, "messages_per_s", r->seconds > 0 ? (double)r->done / r->seconds : 0);
	}
	tool_json_end(&j);
}

static void print_head(enum perf_kind kind)
{
	if (kind == PERF_LATENCY)
		printf("round trips (send and write: there and back)\n%-6s %9s %8s %9s %9s %9s %9s %9s\n", "verb", "bytes", "count",
		       "min us", "median", "average", "99 %", "max");
	else
		printf("bandwidth\n%-6s %9s %8s %9s %9s %12s\n", "verb", "bytes", "count", "depth", "Gbit/s", "messages/s");
}

static void print_row(const struct perf_test *t, const struct perf_result *r)
{
	printf("%-6s %9u %8llu ", perf_verb_str(t->verb), t->size, (unsigned long long)r->done);
	if (t->kind == PERF_LATENCY)
		printf("%9.1f %9.1f %9.1f %9.1f %9.1f\n", us(percentile(r, 0)), us(percentile(r, 0.5)), average(r),
		       us(percentile(r, 0.99)), us(percentile(r, 1)));
	else
		printf("%9u %9.2f %12.0f\n", t->depth, gbits(t, r), r->seconds > 0 ? (double)r->done / r->seconds : 0);
	fflush(stdout);
}

/* ---- perf ---- */

static u64 default_count(const struct perf_test *t)
{
	if (t->kind == PERF_LATENCY)
		return ROUND_TRIPS;
	return max(min(BYTES_PER_TEST / t->size, MESSAGES_MAX), (u64)t->depth);
}

static int run_test(struct perf_run *run, const struct perf_test *t)
{
	struct perf_conn c = { .ctx = run->ctx, .end.comp_fd = -1 };
	struct perf_result r = { 0 };
	int err = client_open(&c, run->o, run->to, t), ret = TOOL_OK;

	if (!err)
		err = perf_client(&c.end, &r);
	if (!err && run->o->json)
		print_json(t, &r);
	else if (!err)
		print_row(t, &r);
	run->measured += !err;
	if (err)
		ret = failed(&c, err);
	else
		client_disconnect(&c);
	free(r.ns);
	client_close(&c);
	return ret;
}

static const u32 default_sizes[PERF_KINDS][4] = {
	[PERF_LATENCY] = { 8, 1024, 65536, 0 },
	[PERF_BANDWIDTH] = { 64, 4096, 65536, 1048576 },
};

/* The @i-th size of tests of that kind, 0 behind the last. */
static u32 size_at(const struct tool_perf_options *p, enum perf_kind kind, size_t i)
{
	if (p->num_sizes)
		return i < p->num_sizes ? p->size[i] : 0;
	return i < ARRAY_SIZE(default_sizes[kind]) ? default_sizes[kind][i] : 0;
}

static int run_kind(struct perf_run *run, enum perf_kind kind)
{
	const struct tool_options *o = run->o;
	struct perf_test t = { .kind = kind, .depth = o->perf.depth ? o->perf.depth : kind == PERF_LATENCY ? WARM_UP : DEPTH };
	int ret = TOOL_OK;
	size_t i;

	if (!o->json)
		print_head(kind);
	for (t.verb = 0; t.verb < PERF_VERBS; t.verb++) {
		if (o->perf.verbs && !(o->perf.verbs & BIT(t.verb)))
			continue;
		for (i = 0; (t.size = size_at(&o->perf, kind, i)) && !ret && !perf_stop; i++) {
			t.count = o->count ? o->count : default_count(&t);
			ret = run_test(run, &t);
		}
	}
	return ret;
}

static int perf_all(struct perf_run *run)
{
	const struct tool_options *o = run->o;
	enum perf_kind kind;
	int ret = TOOL_OK;

	for (kind = 0; kind < PERF_KINDS && !ret && !perf_stop; kind++)
		if (!o->perf.kinds || o->perf.kinds & BIT(kind))
			ret = run_kind(run, kind);
	return ret;
}

/* ---- ping ---- */

static void ping_line(const struct tool_options *o, const struct perf_test *t, const struct sockaddr_storage *to, u64 n, u64 ns)
{
	char addr[TOOL_ADDRSTR];
	struct tool_json j;

	if (o->quiet)
		return;
	if (!o->json) {
		printf("%u bytes by %s to %s: seq=%llu time=%.1f us\n", t->size, perf_verb_str(t->verb), tool_sockaddr_str(to, addr),
		       (unsigned long long)n, (double)ns / 1e3);
		fflush(stdout);
		return;
	}
	tool_json_begin(&j, stdout);
	tool_json_u64(&j, "seq", n);
	tool_json_double(&j, "us", (double)ns / 1e3);
	tool_json_end(&j);
}

/* The connection is looked after meanwhile. */
static int pause_until(struct perf_end *e, u64 until_ns)
{
	u64 now;
	int err = 0;

	while (!err && (now = loop_monotonic_ns()) < until_ns) {
		poll(NULL, 0, (int)min((until_ns - now) / NSEC_PER_MSEC + 1, (u64)50));
		err = perf_spin(e);
	}
	return err;
}

static int ping(struct perf_conn *c, const struct tool_options *o, const struct sockaddr_storage *to, struct perf_result *r)
{
	u64 n, begun, ns, interval_ns = (u64)(o->interval_s * 1e9);
	int err = 0;

	for (n = 0; n < c->end.test.count && !err; n++) {
		begun = loop_monotonic_ns();
		err = perf_round_trip(&c->end, n);
		ns = loop_monotonic_ns() - begun;
		if (err)
			break;
		r->ns[r->samples++ % PERF_SAMPLES] = (u32)min(ns, (u64)UINT32_MAX);
		ping_line(o, &c->end.test, to, n + 1, ns);
		if (n + 1 < c->end.test.count)
			err = pause_until(&c->end, begun + interval_ns);
	}
	r->done = n;
	return err;
}

static void ping_summary(const struct tool_options *o, struct perf_result *r)
{
	double sum = average(r);
	u32 i, low = UINT32_MAX, high = 0;

	for (i = 0; i < r->samples; i++) {
		low = min(low, r->ns[i]);
		high = max(high, r->ns[i]);
	}
	if (!o->json && r->samples)
		printf("%u round trips, min %.1f us, average %.1f us, max %.1f us\n", r->samples, us(low), sum, us(high));
}

static int ping_all(struct perf_run *run)
{
	const struct tool_options *o = run->o;
	struct perf_test t = {
		.verb = o->perf.verbs & BIT(PERF_READ) ? PERF_READ : PERF_SEND,
		.kind = PERF_LATENCY,
		.size = o->perf.num_sizes ? o->perf.size[0] : 64,
		.depth = WARM_UP,
		.count = o->count ? min(o->count, (u64)PERF_SAMPLES) : PERF_SAMPLES,
	};
	struct perf_conn c = { .ctx = run->ctx, .end.comp_fd = -1 };
	struct perf_result r = { .ns = calloc(t.count, sizeof(*r.ns)) };
	int err = r.ns ? client_open(&c, o, run->to, &t) : -ENOMEM, ret = TOOL_OK;

	if (!err)
		err = ping(&c, o, run->to, &r);
	run->measured = r.samples;
	ping_summary(o, &r);
	if (err && err != -EINTR)
		ret = failed(&c, err);
	else if (c.id)
		client_disconnect(&c);
	free(r.ns);
	client_close(&c);
	return ret;
}

/* ---- server ---- */

static int accept_test(struct perf_conn *c, const struct perf_test *t)
{
	u32 recvs = t->verb == PERF_READ ? 1 : t->verb == PERF_SEND && t->kind == PERF_BANDWIDTH ? perf_window(t) + 2 : 2;
	struct perf_remote own = perf_end_memory(&c->end);
	struct perf_reply reply;
	struct iwcm_conn_param p = { .private_data = &reply, .private_data_len = sizeof(reply), .ird = IWCM_MAX, .ord = IWCM_MAX };
	int err = iwcm_set_qp(c->id, c->end.qp);

	perf_reply_put(&reply, &own);
	if (!err)
		err = perf_post_recv(&c->end, recvs);
	return err ? err : iwcm_accept(c->id, &p);
}

/* The test runs in a thread of its own; it ends by itself when the connection does. */
static void *serve_thread(void *arg)
{
	struct perf_conn *c = arg;

	c->error = perf_server(&c->end);
	return NULL;
}

static void serve(struct perf_conn *c)
{
	int err = pthread_create(&c->thread, NULL, serve_thread, c);

	c->serving = !err;
	if (!err)
		return;
	tool_error("%s", strerror(err));
	iwcm_abort(c->id);
}

static void report(const struct perf_conn *c, const struct tool_options *o)
{
	const struct perf_test *t = &c->end.test;
	char addr[TOOL_ADDRSTR];

	if (o->quiet || o->json)
		return;
	printf("%s: %s, %s, %u bytes: %s\n", tool_sockaddr_str(&c->peer, addr), t->kind == PERF_LATENCY ? "round trips" : "bandwidth",
	       perf_verb_str(t->verb), t->size, !c->serving ? "never began" : c->error ? "broken off" : "done");
	fflush(stdout);
}

static void conn_free(struct perf_conn *c, const struct tool_options *o)
{
	iwcm_destroy_id(c->id);
	if (c->end.qp)
		rnic_qp_modify(c->end.qp, RNIC_QP_ERROR); /* if it lives still: what wakes its thread */
	if (c->serving)
		pthread_join(c->thread, NULL);
	report(c, o);
	perf_end_close(&c->end);
	LIST_REMOVE(c, entry);
	free(c);
}

static void on_request(struct iwcm_ctx *ctx, const struct iwcm_event *ev, struct perf_conn_list *conns)
{
	struct perf_conn *c = calloc(1, sizeof(*c));
	struct perf_remote peer;
	struct perf_test t;
	int err = c ? 0 : -ENOMEM;

	if (!err && !perf_request_get(ev->private_data, ev->private_data_len, &t, &peer))
		err = -EPROTO;
	if (err) {
		iwcm_reject(ev->id, NULL, 0);
		iwcm_destroy_id(ev->id);
		free(c);
		return;
	}
	c->ctx = ctx;
	c->id = ev->id;
	c->peer = ev->remote;
	iwcm_set_user(c->id, c);
	LIST_INSERT_HEAD(conns, c, entry);
	err = perf_end_open(&c->end, ctx, iwcm_id_device(c->id), &t);
	c->end.peer = peer;
	if (!err)
		err = accept_test(c, &t);
	if (!err)
		return;
	tool_error("a test cannot be served: %s", strerror(-err));
	iwcm_reject(c->id, NULL, 0); /* CLOSED comes */
}

static void server_event(struct iwcm_ctx *ctx, const struct tool_options *o, const struct iwcm_event *ev, struct perf_conn_list *conns)
{
	switch (ev->type) {
	case IWCM_EVENT_CONNECT_REQUEST:
		on_request(ctx, ev, conns);
		break;
	case IWCM_EVENT_ESTABLISHED:
		serve(iwcm_user(ev->id));
		break;
	case IWCM_EVENT_CLOSED:
		conn_free(iwcm_user(ev->id), o);
		break;
	case IWCM_EVENT_DEVICE_REMOVED:
		tool_error("an address to listen on has gone with its interface");
		break;
	default:
		break;
	}
}

static int listen_at(struct iwcm_ctx *ctx, const struct tool_options *o, const struct sockaddr_storage *at)
{
	struct sockaddr_storage local;
	char addr[TOOL_ADDRSTR];
	struct iwcm_id *id;
	int err = iwcm_create_id(ctx, NULL, &id); /* iwcm_close() destroys it */

	if (!err)
		err = iwcm_set_options(id, &o->mpa);
	if (!err)
		err = iwcm_bind(id, (const struct sockaddr *)at);
	if (!err)
		err = iwcm_listen(id, o->backlog);
	if (!err)
		err = iwcm_local_addr(id, &local);
	if (err)
		tool_error("cannot listen on %s: %s", tool_sockaddr_str(at, addr), strerror(-err));
	else if (!o->quiet && !o->json)
		printf("listening on %s\n", tool_sockaddr_str(&local, addr));
	fflush(stdout);
	return err;
}

static int server(struct iwcm_ctx *ctx, const struct tool_options *o, const struct tool_endpoint *at)
{
	struct perf_conn_list conns = LIST_HEAD_INITIALIZER(conns);
	struct iwcm_event ev;
	struct perf_conn *c;
	size_t i;
	int err = 0;

	for (i = 0; i < at->n && !err; i++)
		err = listen_at(ctx, o, &at->addr[i]);
	if (err)
		return TOOL_LOCAL;
	while (!next_event(ctx, &ev, -1))
		server_event(ctx, o, &ev, &conns);
	while ((c = LIST_FIRST(&conns)))
		conn_free(c, o);
	return TOOL_OK;
}

/* ---- the command ---- */

static int client(struct iwcm_ctx *ctx, const struct tool_options *o, const struct sockaddr_storage *to)
{
	struct perf_run run = { .ctx = ctx, .o = o, .to = to };
	int ret = o->command == TOOL_PING ? ping_all(&run) : perf_all(&run);

	if (ret || !perf_stop || run.measured)
		return ret;
	tool_error("interrupted before anything was measured");
	return TOOL_LOCAL;
}

int tool_perf(const struct tool_options *o)
{
	struct tool_endpoint where;
	struct iwcm_ctx *ctx;
	int ret = tool_endpoint_parse(o->where, o->perf.listen, o->family, &where);

	if (ret)
		return ret;
	if (open_ctx(&ctx))
		return TOOL_LOCAL;
	catch_signals();
	ret = o->perf.listen ? server(ctx, o, &where) : client(ctx, o, &where.addr[0]);
	iwcm_close(ctx);
	return ret;
}
