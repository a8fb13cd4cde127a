// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Attacks on the host port, over 127.0.0.0/8: peers that open connections and say nothing, or next to nothing, while honest clients connect; and honest ones that
 * open and close as fast as they can.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>
#include "attack.h"
#include "netns.h"
#include "iwcm/iwcm_nic.h"

#define SOCKETS 400 /* that the attacker holds at a time */
#define SOURCES 16  /* addresses of honest clients: each has some 28,000 ports, which stay in TIME_WAIT for a minute */

static struct {
	struct iwcm_ctx *ctx;
	struct iwcm_id *listener;
	struct sockaddr_storage at;
	long started, under_way, up, served, failed;
	int sock[SOCKETS];
	long attacks;
} r;

static char client; /* its address marks ids of clients */

static struct sockaddr_storage address(u32 host, u16 port)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;

	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(host);
	in->sin_port = htons(port);
	return ss;
}

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* ---- honest ends ---- */

static void client_starts(void)
{
	struct sockaddr_storage from = address(0x7F000002u + (u32)(r.started % SOURCES), 0);
	struct iwcm_id *id;

	assert_int_equal(iwcm_create_id(r.ctx, &client, &id), 0);
	assert_int_equal(iwcm_resolve(id, (struct sockaddr *)&from, (struct sockaddr *)&r.at), 0);
	r.started++;
	r.under_way++;
}

static void client_is_over(const struct iwcm_event *ev, bool failed)
{
	if (failed)
		print_error("%s: %s, %s\n", iwcm_event_str(ev->type), strerror(-ev->status), iwcm_cause_str(ev->info.cause));
	r.failed += failed;
	r.under_way--;
	iwcm_destroy_id(ev->id);
}

static void handle(const struct iwcm_event *ev)
{
	struct iwcm_conn_param p = { .ird = 1, .ord = 1 };
	bool is_client = iwcm_user(ev->id) == &client;

	switch (ev->type) {
	case IWCM_EVENT_RESOLVED:
		if (iwcm_connect(ev->id, &p))
			client_is_over(ev, true);
		break;
	case IWCM_EVENT_CONNECT_REQUEST:
		if (iwcm_accept(ev->id, &p))
			iwcm_destroy_id(ev->id);
		break;
	case IWCM_EVENT_ESTABLISHED:
		r.up += is_client;
		r.served += !is_client;
		if (is_client)
			iwcm_disconnect(ev->id);
		break;
	case IWCM_EVENT_CLOSED:
		if (is_client)
			client_is_over(ev, false);
		else
			iwcm_destroy_id(ev->id);
		break;
	case IWCM_EVENT_DISCONNECTED:
		break;
	default:
		client_is_over(ev, true);
	}
}

static void events(int timeout_ms)
{
	struct iwcm_event ev;

	while (!iwcm_get_event(r.ctx, &ev, timeout_ms)) {
		handle(&ev);
		timeout_ms = 0;
	}
}

static void set_up(int backlog)
{
	struct iwcm_options o;

	memset(&r, 0, sizeof(r));
	memset(r.sock, -1, sizeof(r.sock));
	r.at = address(0x7F000001, 0);
	assert_int_equal(iwcm_open("lo", &r.ctx), 0);
	assert_int_equal(iwcm_create_id(r.ctx, NULL, &r.listener), 0);
	iwcm_options_init(&o);
	o.connect_timeout_ms = o.mpa_timeout_ms = 60000;
	assert_int_equal(iwcm_set_options(r.listener, &o), 0);
	assert_int_equal(iwcm_bind(r.listener, (struct sockaddr *)&r.at), 0);
	assert_int_equal(iwcm_local_addr(r.listener, &r.at), 0);
	assert_int_equal(iwcm_listen(r.listener, backlog), 0);
}

/* Whoever closed last has seen it; the other side's events may still be on their way. */
static void wait_for_quiet(void)
{
	struct iwcm_stats st;
	int i;

	for (i = 0; i < 200; i++) {
		events(50);
		iwcm_get_stats(r.ctx, &st);
		if (!r.under_way && !st.nodes_now)
			return;
	}
	fail_msg("%ld connections under way, %llu nodes", r.under_way, (unsigned long long)st.nodes_now);
}

static void tear_down(void)
{
	iwcm_destroy_id(r.listener);
	iwcm_close(r.ctx);
}

/* ---- peers that say nothing, or a byte ---- */

enum attacker { SILENT, ONE_BYTE, GONE };

static void attacker_closes(int fd, bool reset)
{
	struct linger l = { .l_onoff = reset };

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
	close(fd);
}

static void attack_once(enum attacker a)
{
	struct sockaddr_storage from = address(0x7F000042u + (u32)(r.attacks / 20000 % 64), 0);
	int i = (int)(r.attacks++ % SOCKETS), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	if (r.sock[i] >= 0)
		attacker_closes(r.sock[i], true);
	r.sock[i] = fd;
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(struct sockaddr_in)), 0);
	if (connect(fd, (struct sockaddr *)&r.at, sizeof(struct sockaddr_in)))
		assert_int_equal(errno, EINPROGRESS);
	if (a == ONE_BYTE && send(fd, "M", 1, MSG_NOSIGNAL) < 0)
		assert_true(errno == EAGAIN || errno == ECONNRESET || errno == EPIPE);
	if (a == GONE) {
		attacker_closes(fd, r.attacks & 1); /* a reset, or FIN */
		r.sock[i] = -1;
	}
}

static void attacker_leaves(void)
{
	int i;

	for (i = 0; i < SOCKETS; i++)
		if (r.sock[i] >= 0)
			close(r.sock[i]);
}

static void flooded(enum attacker a, const char *name)
{
	const long clients = attack_scale(60, 5000), per_client = 20;
	struct iwcm_stats st;
	int before, most = 0, held = a == GONE ? 0 : SOCKETS;

	set_up(4);
	before = descriptors();
	for (long i = 0; i < SOCKETS; i++)
		attack_once(a);
	while (r.up + r.failed < clients) {
		for (long i = 0; r.started < clients && i < per_client; i++)
			attack_once(a);
		if (r.started < clients && r.under_way < 8)
			client_starts();
		events(1);
		if (r.started % 16 == 0)
			most = max(most, descriptors());
		attack_progress(name, r.up, clients);
	}
	iwcm_get_stats(r.ctx, &st);
	print_message("%s: %ld connections, %ld of %ld honest clients in; %llu gave way; at most %d descriptors besides the attacker's\n", name, r.attacks, r.up,
		      r.started, (unsigned long long)st.silent_evicted, most - held - before);
	assert_int_equal(r.up, clients);
	assert_true(st.silent_evicted > 0 || a == GONE);
	assert_true(most - held - before < 400);
	attacker_leaves();
	wait_for_quiet();
	tear_down();
}

static void silent_connections(void **state)
{
	flooded(SILENT, "connections that say nothing");
}

static void connections_with_one_byte(void **state)
{
	flooded(ONE_BYTE, "connections that say one byte");
}

static void connections_that_end_at_once(void **state)
{
	flooded(GONE, "connections that end at once");
}

/* ---- opened and closed ---- */

/* Of this process: both ends. */
static double cpu_seconds(void)
{
	struct rusage u;

	assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void opened_and_closed(void **state)
{
	const long all = attack_scale(ATTACK_SANITIZED ? 2000 : 5000, 100000), settled = all / 10;
	u64 begun = loop_monotonic_ns();
	double cpu = cpu_seconds();
	int before = 0, after;
	long rss = 0;
	double s;

	set_up(128);
	while (r.started < all || r.under_way) {
		while (r.started < all && r.under_way < 64)
			client_starts();
		events(1000);
		if (!rss && r.up >= settled) { /* pools and caches are as large as they get */
			rss = attack_rss_kib();
			before = descriptors();
		}
		attack_progress("opened and closed", r.up, all);
	}
	s = (double)(loop_monotonic_ns() - begun) / NSEC_PER_SEC;
	rss = attack_rss_kib() - rss;
	wait_for_quiet();
	after = descriptors();
	cpu = cpu_seconds() - cpu;
	print_message("%ld connections opened and closed in %.1f s (%.0f per second), %.1f s of CPU, %ld failed; %d descriptors, %d at the end; %ld KiB more\n",
		      r.up, s, (double)r.up / s, cpu, r.failed, before, after, rss);
	assert_int_equal(r.failed, 0);
	assert_int_equal(r.up, all);
	assert_int_equal(r.served, all);
	assert_true(after <= before);
	assert_true(rss < 4096);
	if (attack_long() && !ATTACK_SANITIZED)
		assert_true(cpu < 60); /* on a machine that does nothing else that is a minute at most, whatever else runs here now */
	tear_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silent_connections),
		cmocka_unit_test(connections_with_one_byte),
		cmocka_unit_test(connections_that_end_at_once),
		cmocka_unit_test(opened_and_closed),
	};

	netns_enter(); /* thousands of port numbers are used up for a minute: not those of other tests, if it can be helped */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
