// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* iwcm on the host port: the kernel's TCP on 127.0.0.0/8 and ::1, with the NIC thread; bare sockets as peers that misbehave. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>
#include "iwcm/iwcm_nic.h"

#define WAIT_MS 20000

static struct iwcm_ctx *ctx;

static int setup(void **state)
{
	return iwcm_open(NULL, &ctx);
}

static int teardown(void **state)
{
	iwcm_close(ctx);
	return 0;
}

static void expect_on(struct iwcm_ctx *c, struct iwcm_event *ev, enum iwcm_event_type type, struct iwcm_id *id)
{
	assert_int_equal(iwcm_get_event(c, ev, WAIT_MS), 0);
	if (ev->type != type)
		fail_msg("%s (%s, %s) and not %s", iwcm_event_str(ev->type), strerror(-ev->status), iwcm_cause_str(ev->info.cause),
			 iwcm_event_str(type));
	if (id)
		assert_ptr_equal(ev->id, id);
}

static void expect(struct iwcm_event *ev, enum iwcm_event_type type, struct iwcm_id *id)
{
	expect_on(ctx, ev, type, id);
}

/* These events, in any order between ids. */
static void expect_both(enum iwcm_event_type type, struct iwcm_id *a, struct iwcm_id *b)
{
	unsigned int got[2] = { 0 };
	struct iwcm_event ev;

	while (!got[0] || !got[1]) {
		assert_int_equal(iwcm_get_event(ctx, &ev, WAIT_MS), 0);
		assert_true(ev.id == a || ev.id == b);
		if (ev.type == type)
			got[ev.id == b]++;
		else
			assert_int_equal(ev.type, IWCM_EVENT_DISCONNECTED);
	}
}

static struct sockaddr_storage addr(const char *text, u16 port)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
	}
	return ss;
}


static u16 get_port(const struct sockaddr_storage *ss)
{
	return ntohs(((const struct sockaddr_in *)ss)->sin_port);
}

static const struct sockaddr *sa(const struct sockaddr_storage *ss)
{
	return (const struct sockaddr *)ss;
}

static struct iwcm_id *make_id(void)
{
	struct iwcm_id *id;

	assert_int_equal(iwcm_create_id(ctx, NULL, &id), 0);
	return id;
}

/* A listener on a port of the kernel's choice, which is returned. */
static struct iwcm_id *listen_on(const char *text, u16 *port)
{
	struct sockaddr_storage ss = addr(text, *port);
	struct iwcm_id *id = make_id();

	assert_int_equal(iwcm_bind(id, sa(&ss)), 0);
	assert_int_equal(iwcm_local_addr(id, &ss), 0);
	*port = get_port(&ss);
	assert_int_equal(iwcm_listen(id, 8), 0);
	return id;
}

static struct iwcm_id *resolve_to(const char *text, u16 port)
{
	struct sockaddr_storage ss = addr(text, port);
	struct iwcm_id *id = make_id();
	struct iwcm_event ev;

	assert_int_equal(iwcm_resolve(id, NULL, sa(&ss)), 0);
	expect(&ev, IWCM_EVENT_RESOLVED, id);
	return id;
}

/* Server and client of one context, up to ESTABLISHED on both. */
static void establish(const char *text, u16 port, struct iwcm_id **client, struct iwcm_id **server)
{
	struct iwcm_conn_param p = { .private_data = "ping", .private_data_len = 4, .ird = 7, .ord = 9 };
	struct iwcm_event ev;
	int up;

	*client = resolve_to(text, port);
	assert_int_equal(iwcm_connect(*client, &p), 0);
	expect(&ev, IWCM_EVENT_CONNECT_REQUEST, NULL);
	*server = ev.id;
	assert_int_equal(ev.private_data_len, 4);
	assert_memory_equal(ev.private_data, "ping", 4);
	assert_int_equal(ev.info.peer_ird, 7);
	assert_int_equal(ev.info.peer_ord, 9);
	p.private_data = "pong!";
	p.private_data_len = 5;
	assert_int_equal(iwcm_accept(*server, &p), 0);
	for (up = 0; up < 2; up++) {
		expect(&ev, IWCM_EVENT_ESTABLISHED, NULL);
		if (ev.id != *client)
			continue;
		assert_int_equal(ev.private_data_len, 5);
		assert_memory_equal(ev.private_data, "pong!", 5);
	}
}

static void end(struct iwcm_id *client, struct iwcm_id *server)
{
	assert_int_equal(iwcm_disconnect(client), 0);
	expect_both(IWCM_EVENT_CLOSED, client, server);
	iwcm_destroy_id(client);
	iwcm_destroy_id(server);
}

static void connect_and_end(const char *listen, const char *to)
{
	u16 port = 0;
	struct iwcm_id *listener = listen_on(listen, &port), *client, *server;

	establish(to, port, &client, &server);
	end(client, server);
	iwcm_destroy_id(listener);
}

static bool have_ipv6(void)
{
	struct sockaddr_storage ss = addr("::1", 0);
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	bool yes = fd >= 0 && !bind(fd, sa(&ss), sizeof(struct sockaddr_in6));

	if (fd >= 0)
		close(fd);
	return yes;
}

/* ---- tests ---- */

static void test_open(void **state)
{
	struct iwcm_device dev[64];
	struct iwcm_ctx *c;
	size_t i, n;
	bool lo = false;

	n = iwcm_devices(ctx, dev, ARRAY_SIZE(dev));
	for (i = 0; i < n && i < ARRAY_SIZE(dev); i++)
		lo |= !strcmp(dev[i].iface, "lo") && !strcmp(dev[i].name, "uwarp_lo") && dev[i].up && dev[i].num_addrs;
	assert_true(lo);
	assert_int_equal(iwcm_open("no-such-if", &c), -ENODEV);
	assert_int_equal(iwcm_open("lo,", &c), 0);
	assert_int_equal(iwcm_devices(c, dev, 1), 1);
	iwcm_close(c);
	assert_int_equal(iwcm_open("", &c), -ENODEV);
	iwcm_close(NULL);
	iwcm_destroy_id(NULL);
}

static void test_ipv4(void **state)
{
	connect_and_end("127.0.0.1", "127.0.0.1");
	connect_and_end("127.0.0.3", "127.0.0.3");
	connect_and_end("0.0.0.0", "127.0.0.1");
}

static void test_ipv6(void **state)
{
	if (!have_ipv6())
		skip();
	connect_and_end("::1", "::1");
	connect_and_end("::", "::1");
}

/* All addresses of this machine, to themselves, against a wildcard listener. */
static void test_every_address(void **state)
{
	u16 port4 = 0, port6 = 0;
	struct iwcm_id *l4 = listen_on("0.0.0.0", &port4), *l6 = have_ipv6() ? listen_on("::", &port6) : NULL;
	struct iwcm_device dev[16];
	size_t n = iwcm_devices(ctx, dev, ARRAY_SIZE(dev)), i, k;

	for (i = 0; i < min(n, ARRAY_SIZE(dev)); i++) {
		for (k = 0; dev[i].up && k < min((size_t)dev[i].num_addrs, ARRAY_SIZE(dev[i].addr)); k++) {
			bool v4 = dev[i].addr[k].ss_family == AF_INET;
			struct iwcm_id *client, *server;
			char text[INET6_ADDRSTRLEN];

			if ((!v4 && !l6) || (!v4 && ((struct sockaddr_in6 *)&dev[i].addr[k])->sin6_scope_id))
				continue;
			inet_ntop(dev[i].addr[k].ss_family, v4 ? (void *)&((struct sockaddr_in *)&dev[i].addr[k])->sin_addr :
				  (void *)&((struct sockaddr_in6 *)&dev[i].addr[k])->sin6_addr, text, sizeof(text));
			establish(text, v4 ? port4 : port6, &client, &server);
			end(client, server);
		}
	}
	iwcm_destroy_id(l4);
	iwcm_destroy_id(l6);
}

static void test_two_contexts(void **state)
{
	u16 port = 0;
	struct iwcm_id *listener = listen_on("127.0.0.1", &port), *client;
	struct sockaddr_storage to = addr("127.0.0.1", port);
	struct iwcm_ctx *other;
	struct iwcm_event ev;

	assert_int_equal(iwcm_open("lo", &other), 0);
	assert_int_equal(iwcm_create_id(other, NULL, &client), 0);
	assert_int_equal(iwcm_bind(client, sa(&to)), -EADDRINUSE); /* somebody listens there */
	assert_int_equal(iwcm_resolve(client, NULL, sa(&to)), 0);
	expect_on(other, &ev, IWCM_EVENT_RESOLVED, client);
	assert_int_equal(iwcm_connect(client, NULL), 0);
	expect(&ev, IWCM_EVENT_CONNECT_REQUEST, NULL);
	assert_int_equal(iwcm_reject(ev.id, "no", 2), 0);
	expect(&ev, IWCM_EVENT_CLOSED, ev.id);
	iwcm_destroy_id(ev.id);
	expect_on(other, &ev, IWCM_EVENT_REJECTED, client);
	assert_memory_equal(ev.private_data, "no", ev.private_data_len);
	iwcm_close(other); /* with its id */
	iwcm_destroy_id(listener);
}

static void test_close_peer(void **state)
{
	u16 port = 0;
	struct iwcm_id *listener = listen_on("127.0.0.1", &port), *client;
	struct sockaddr_storage to = addr("127.0.0.1", port);
	struct iwcm_ctx *other;
	struct iwcm_event ev;

	assert_int_equal(iwcm_open("lo", &other), 0);
	assert_int_equal(iwcm_create_id(other, NULL, &client), 0);
	assert_int_equal(iwcm_resolve(client, NULL, sa(&to)), 0);
	expect_on(other, &ev, IWCM_EVENT_RESOLVED, client);
	assert_int_equal(iwcm_connect(client, NULL), 0);
	expect(&ev, IWCM_EVENT_CONNECT_REQUEST, NULL);
	assert_int_equal(iwcm_accept(ev.id, NULL), 0);
	expect(&ev, IWCM_EVENT_ESTABLISHED, NULL);
	expect_on(other, &ev, IWCM_EVENT_ESTABLISHED, client);
	iwcm_close(other); /* an established connection: reset */
	expect(&ev, IWCM_EVENT_DISCONNECTED, NULL);
	assert_int_equal(ev.status, -ECONNRESET);
	expect(&ev, IWCM_EVENT_CLOSED, NULL);
	iwcm_destroy_id(ev.id);
	iwcm_destroy_id(listener);
}

static void test_refused(void **state)
{
	u16 port = 0;
	struct iwcm_id *listener = listen_on("127.0.0.1", &port), *client;
	struct iwcm_event ev;

	iwcm_destroy_id(listener);
	client = resolve_to("127.0.0.1", port);
	assert_int_equal(iwcm_connect(client, NULL), 0);
	expect(&ev, IWCM_EVENT_CONNECT_ERROR, client);
	assert_int_equal(ev.status, -ECONNREFUSED);
	assert_int_equal(ev.info.cause, CM_CAUSE_REFUSED);
	iwcm_destroy_id(client);
}

/* A bare socket that listens. */
static int bare_listener(u16 *port)
{
	struct sockaddr_storage ss = addr("127.0.0.1", 0);
	socklen_t len = sizeof(ss);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, sa(&ss), sizeof(struct sockaddr_in)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&ss, &len), 0);
	*port = get_port(&ss);
	return fd;
}

static void set_options(struct iwcm_id *id, bool fall_back, unsigned int mpa_timeout_ms)
{
	struct iwcm_options o;

	iwcm_options_init(&o);
	o.fall_back = fall_back;
	o.mpa_timeout_ms = mpa_timeout_ms;
	assert_int_equal(iwcm_set_options(id, &o), 0);
}

static void test_silent_peer(void **state)
{
	struct iwcm_event ev;
	struct iwcm_id *client;
	u16 port;
	int fd = bare_listener(&port);

	client = resolve_to("127.0.0.1", port);
	set_options(client, true, 300);
	assert_int_equal(iwcm_connect(client, NULL), 0);
	expect(&ev, IWCM_EVENT_CONNECT_ERROR, client);
	assert_int_equal(ev.status, -ETIMEDOUT);
	assert_int_equal(ev.info.cause, CM_CAUSE_NO_MPA_REPLY);
	iwcm_destroy_id(client);
	close(fd);
}

static void test_peer_answers(const char *what, size_t len, bool reset, int status, int cause)
{
	struct linger now = { .l_onoff = 1 };
	struct iwcm_event ev;
	struct iwcm_id *client;
	char buf[64];
	u16 port;
	int fd = bare_listener(&port), conn;

	client = resolve_to("127.0.0.1", port);
	set_options(client, false, 5000);
	assert_int_equal(iwcm_connect(client, NULL), 0);
	conn = accept(fd, NULL, NULL);
	assert_true(conn >= 0);
	assert_true(recv(conn, buf, sizeof(buf), 0) > 0);
	if (len)
		assert_int_equal(send(conn, what, len, MSG_NOSIGNAL), len);
	if (reset)
		setsockopt(conn, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(conn);
	expect(&ev, IWCM_EVENT_CONNECT_ERROR, client);
	assert_int_equal(ev.status, status);
	assert_int_equal(ev.info.cause, cause);
	iwcm_destroy_id(client);
	close(fd);
}

static void test_rude_peers(void **state)
{
	test_peer_answers("HTTP/1.1 400 Bad Request\r\n\r\n", 28, false, -EPROTO, CM_CAUSE_MPA_KEY);
	test_peer_answers(NULL, 0, true, -ECONNRESET, CM_CAUSE_RESET);
	test_peer_answers(NULL, 0, false, -ECONNRESET, CM_CAUSE_CLOSED);
}

/* Peers that open TCP and say nothing, or nonsense, do not keep others out. */
static void test_rude_clients(void **state)
{
	u16 port = 0;
	struct iwcm_id *listener = listen_on("127.0.0.1", &port), *client, *server;
	struct sockaddr_storage to = addr("127.0.0.1", port);
	int fd[4], i;

	for (i = 0; i < 4; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(fd[i], sa(&to), sizeof(struct sockaddr_in)), 0);
		if (i & 1)
			assert_int_equal(send(fd[i], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 18);
	}
	establish("127.0.0.1", port, &client, &server);
	for (i = 0; i < 4; i++)
		close(fd[i]);
	end(client, server);
	iwcm_destroy_id(listener);
}

/* A server may start again at once, although old connections are in TIME_WAIT. */
static void test_restart(void **state)
{
	struct iwcm_id *listener, *client, *server;
	u16 port = 0;
	int i;

	for (i = 0; i < 5; i++) {
		listener = listen_on(i & 1 ? "0.0.0.0" : "127.0.0.1", &port);
		establish("127.0.0.1", port, &client, &server);
		assert_int_equal(iwcm_disconnect(server), 0);
		expect_both(IWCM_EVENT_CLOSED, client, server);
		iwcm_destroy_id(client);
		iwcm_destroy_id(server);
		iwcm_destroy_id(listener);
	}
}

/* Somebody else has the port. */
static void test_port_taken(void **state)
{
	struct iwcm_id *id = make_id();
	struct sockaddr_storage at;
	u16 port;
	int fd = bare_listener(&port);

	at = addr("127.0.0.1", port);
	assert_int_equal(iwcm_bind(id, sa(&at)), -EADDRINUSE);
	at = addr("0.0.0.0", port);
	assert_int_equal(iwcm_bind(id, sa(&at)), -EADDRINUSE);
	close(fd);
	assert_int_equal(iwcm_bind(id, sa(&at)), 0);
	iwcm_destroy_id(id);
}

static void test_bound_client(void **state)
{
	u16 port = 0, from_port = 0;
	struct iwcm_id *listener = listen_on("0.0.0.0", &port), *id = make_id(), *server;
	struct sockaddr_storage from = addr("127.0.0.1", 0), to = addr("127.0.0.1", port);
	struct iwcm_event ev;

	assert_int_equal(iwcm_bind(id, sa(&from)), 0);
	assert_int_equal(iwcm_local_addr(id, &from), 0);
	from_port = get_port(&from);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&to)), 0);
	expect(&ev, IWCM_EVENT_RESOLVED, id);
	assert_int_equal(iwcm_connect(id, NULL), 0);
	expect(&ev, IWCM_EVENT_CONNECT_REQUEST, NULL);
	server = ev.id;
	assert_int_equal(get_port(&ev.remote), from_port);
	iwcm_destroy_id(server);
	expect(&ev, IWCM_EVENT_REJECTED, id);
	iwcm_destroy_id(id);

	/* Bound to the wildcard. */
	id = make_id();
	from = addr("0.0.0.0", 0);
	assert_int_equal(iwcm_bind(id, sa(&from)), 0);
	assert_int_equal(iwcm_local_addr(id, &from), 0);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&to)), 0);
	expect(&ev, IWCM_EVENT_RESOLVED, id);
	assert_int_equal(iwcm_connect(id, NULL), 0);
	expect(&ev, IWCM_EVENT_CONNECT_REQUEST, NULL);
	assert_int_equal(get_port(&ev.remote), get_port(&from));
	iwcm_destroy_id(ev.id);
	expect(&ev, IWCM_EVENT_REJECTED, id);
	iwcm_destroy_id(id);
	iwcm_destroy_id(listener);
}

static void test_unreachable(void **state)
{
	struct sockaddr_storage to = addr("192.0.2.1", 1), from = addr("127.0.0.1", 0), foreign = addr("192.0.2.7", 0);
	struct iwcm_id *id = make_id();
	struct iwcm_event ev;

	assert_int_equal(iwcm_resolve(id, sa(&foreign), sa(&to)), 0);
	expect(&ev, IWCM_EVENT_RESOLVE_ERROR, id);
	assert_true(ev.status < 0);
	iwcm_destroy_id(id);
	assert_non_null(sa(&from));
}

static void test_event_fd(void **state)
{
	struct pollfd p = { .fd = iwcm_event_fd(ctx), .events = POLLIN };
	u16 port = 0;
	struct iwcm_id *listener = listen_on("127.0.0.1", &port), *client = resolve_to("127.0.0.1", port);
	struct iwcm_event ev;

	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(iwcm_connect(client, NULL), 0);
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	expect(&ev, IWCM_EVENT_CONNECT_REQUEST, NULL);
	assert_int_equal(poll(&p, 1, 0), 0);
	iwcm_destroy_id(ev.id);
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	expect(&ev, IWCM_EVENT_REJECTED, client);
	iwcm_destroy_id(client);
	iwcm_destroy_id(listener);
}

static void on_alarm(int sig)
{
}

static void test_signal(void **state)
{
	struct sigaction act = { .sa_handler = on_alarm }, old;
	struct itimerval in = { .it_value = { .tv_usec = 50000 }, .it_interval = { .tv_usec = 50000 } }, off = { 0 };
	struct iwcm_event ev;

	sigaction(SIGALRM, &act, &old);
	setitimer(ITIMER_REAL, &in, NULL);
	assert_int_equal(iwcm_get_event(ctx, &ev, -1), -EINTR);
	assert_int_equal(iwcm_get_event(ctx, &ev, WAIT_MS), -EINTR);
	setitimer(ITIMER_REAL, &off, NULL);
	sigaction(SIGALRM, &old, NULL);
	assert_int_equal(iwcm_get_event(ctx, &ev, 1), -EAGAIN);
}

/* An idle NIC thread takes no time, and a timer set in another thread is kept. */
static void test_timeout_from_idle(void **state)
{
	u64 began;
	u16 port;
	int fd = bare_listener(&port);
	struct iwcm_id *client = resolve_to("127.0.0.1", port);
	struct iwcm_event ev;

	usleep(2500000);
	set_options(client, false, 200);
	began = loop_monotonic_ns();
	assert_int_equal(iwcm_connect(client, NULL), 0);
	expect(&ev, IWCM_EVENT_CONNECT_ERROR, client);
	assert_int_equal(ev.status, -ETIMEDOUT);
	assert_true(loop_monotonic_ns() - began > 150 * NSEC_PER_MSEC);
	assert_true(loop_monotonic_ns() - began < 2 * NSEC_PER_SEC);
	iwcm_destroy_id(client);
	close(fd);
}

/* ---- handler mode: everything from inside the handler ---- */

struct served {
	struct iwcm_ctx *c;
	struct iwcm_id *client;
	unsigned int rounds, closed;
	struct sockaddr_storage to;
	pthread_mutex_t lock;
	pthread_cond_t done;
};

static void next_client(struct served *s)
{
	assert_int_equal(iwcm_create_id(s->c, NULL, &s->client), 0);
	assert_int_equal(iwcm_resolve(s->client, NULL, sa(&s->to)), 0);
}

static void closed(struct served *s)
{
	pthread_mutex_lock(&s->lock);
	s->closed++;
	pthread_cond_signal(&s->done);
	pthread_mutex_unlock(&s->lock);
}

static void handler(void *arg, const struct iwcm_event *ev)
{
	struct served *s = arg;

	switch (ev->type) {
	case IWCM_EVENT_RESOLVED:
		iwcm_connect(ev->id, NULL);
		break;
	case IWCM_EVENT_CONNECT_REQUEST:
		iwcm_accept(ev->id, NULL);
		break;
	case IWCM_EVENT_ESTABLISHED:
		if (ev->id == s->client)
			iwcm_disconnect(ev->id);
		break;
	case IWCM_EVENT_CLOSED:
		iwcm_destroy_id(ev->id);
		if (ev->id == s->client && --s->rounds)
			next_client(s);
		closed(s);
		break;
	default:
		break;
	}
}

static void test_handler(void **state)
{
	struct served s = { .rounds = 20, .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER };
	struct iwcm_id *listener;

	assert_int_equal(iwcm_open("lo", &s.c), 0);
	iwcm_set_handler(s.c, handler, NULL, &s);
	s.to = addr("127.0.0.1", 0);
	assert_int_equal(iwcm_create_id(s.c, NULL, &listener), 0);
	assert_int_equal(iwcm_bind(listener, sa(&s.to)), 0);
	assert_int_equal(iwcm_local_addr(listener, &s.to), 0);
	assert_int_equal(iwcm_listen(listener, 0), 0);
	next_client(&s);
	pthread_mutex_lock(&s.lock);
	while (s.closed < 40)
		pthread_cond_wait(&s.done, &s.lock);
	pthread_mutex_unlock(&s.lock);
	iwcm_close(s.c);
}

static void test_sequence(void **state)
{
	u16 port = 0;
	struct iwcm_id *listener = listen_on("127.0.0.1", &port), *client, *server;
	struct iwcm_stats before, after;
	int i;

	iwcm_get_stats(ctx, &before);
	for (i = 0; i < 300; i++) {
		establish("127.0.0.1", port, &client, &server);
		end(client, server);
	}
	iwcm_get_stats(ctx, &after);
	assert_int_equal(after.established_active - before.established_active, 300);
	assert_int_equal(after.established_passive - before.established_passive, 300);
	for (i = 0; i < 1000 && after.nodes_now != before.nodes_now; i++) { /* CLOSED comes a moment before the node goes */
		usleep(1000);
		iwcm_get_stats(ctx, &after);
	}
	assert_int_equal(after.nodes_now, before.nodes_now);
	iwcm_destroy_id(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_ipv4),
		cmocka_unit_test(test_ipv6),
		cmocka_unit_test(test_every_address),
		cmocka_unit_test(test_two_contexts),
		cmocka_unit_test(test_close_peer),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_silent_peer),
		cmocka_unit_test(test_rude_peers),
		cmocka_unit_test(test_rude_clients),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_port_taken),
		cmocka_unit_test(test_bound_client),
		cmocka_unit_test(test_unreachable),
		cmocka_unit_test(test_event_fd),
		cmocka_unit_test(test_signal),
		cmocka_unit_test(test_timeout_from_idle),
		cmocka_unit_test(test_handler),
		cmocka_unit_test(test_sequence),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
