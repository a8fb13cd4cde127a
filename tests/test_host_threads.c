/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The host port from many threads, for TSan: one runs the loop; workers connect, and others accept what the loop's
 * thread has been told of, move data on streams and end them while events come; a capture comes and goes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "port/port.h"

#define WORKERS 3
#define ROUNDS 60
#define MESSAGES 5
#define MESSAGE 3000

/* One end of a connection. Never freed before the end of the test: an event may still be running after stream_close. */
struct end {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct port_ah *ah;
	struct pkt_tuple tuple;
	u32 snd_nxt, rcv_nxt;
	bool passive, open, dead, taken;
	u32 events;
	TAILQ_ENTRY(end) entry, accepted;
};
TAILQ_HEAD(end_list, end);

static struct loop loop;
static struct port_host *host;
static struct port *port;
static int wake_fd;
static bool stopping;
static u16 number;

static pthread_mutex_t ends_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ends_cond = PTHREAD_COND_INITIALIZER;
static struct end_list ends = TAILQ_HEAD_INITIALIZER(ends), accepted = TAILQ_HEAD_INITIALIZER(accepted);
static bool no_more;

static void check(bool ok, int line)
{
	if (!ok) { /* cmocka's asserts are for its own thread */
		fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, line, strerror(errno));
		abort();
	}
}
#define CHECK(x) check(x, __LINE__)

/* ---- the CM ---- */

static struct end *end_new(const struct pkt_tuple *t, bool passive)
{
	struct end *e = calloc(1, sizeof(*e));

	CHECK(e);
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->cond, NULL);
	e->tuple = *t;
	e->passive = passive;
	e->snd_nxt = 1000;
	pthread_mutex_lock(&ends_lock);
	TAILQ_INSERT_HEAD(&ends, e, entry);
	pthread_mutex_unlock(&ends_lock);
	return e;
}

static void send_segment(struct end *e, u8 flags, const char *text)
{
	u32 len = (u32)strlen(text), seq = htonl(e->snd_nxt), ack = htonl(e->rcv_nxt);
	u16 sport = htons(e->tuple.loc_port), dport = htons(e->tuple.rem_port);
	u8 seg[64] = { 0 };

	memcpy(seg, &sport, 2);
	memcpy(seg + 2, &dport, 2);
	memcpy(seg + 4, &seq, 4);
	memcpy(seg + 8, &ack, 4);
	seg[12] = 0x50;
	seg[13] = flags;
	seg[14] = 0xFF;
	memcpy(seg + 20, text, len);
	e->snd_nxt += len + !!(flags & (PKT_SYN | PKT_FIN));
	CHECK(!port->ops->tx_ah(port, e->ah, seg, 20 + len));
}

static struct end *find_end(const struct pkt *p)
{
	struct end *e;

	pthread_mutex_lock(&ends_lock);
	TAILQ_FOREACH(e, &ends, entry)
		if (e->tuple.loc_port == p->dport && e->tuple.rem_port == p->sport && !__atomic_load_n(&e->taken, __ATOMIC_ACQUIRE))
			break;
	pthread_mutex_unlock(&ends_lock);
	return e;
}

static void take_syn(const struct port_rx *rx)
{
	struct port_ah_attr a = { .tuple = { .vlan_id = PKT_VLAN_NONE, .ipv4 = true } };
	struct end *e;

	a.tuple.loc_port = rx->pkt.dport;
	a.tuple.rem_port = rx->pkt.sport;
	a.tuple.loc_addr[0] = rx->pkt.dst[0];
	a.tuple.rem_addr[0] = rx->pkt.src[0];
	e = end_new(&a.tuple, true);
	e->rcv_nxt = rx->pkt.seq + 1;
	CHECK(!port->ops->ah_create(port, &a, &e->ah));
	send_segment(e, PKT_SYN | PKT_ACK, "");
}

/* The passive side's request: somebody else will accept. */
static void to_acceptor(struct end *e)
{
	pthread_mutex_lock(&ends_lock);
	TAILQ_INSERT_TAIL(&accepted, e, accepted);
	pthread_cond_signal(&ends_cond);
	pthread_mutex_unlock(&ends_lock);
}

static bool rx(void *ctx, const struct port_rx *rx)
{
	struct end *e = find_end(&rx->pkt);
	bool request = false;

	if (!e) {
		if (rx->pkt.flags == PKT_SYN)
			take_syn(rx);
		return true;
	}
	pthread_mutex_lock(&e->lock);
	if (rx->pkt.flags & PKT_RST)
		e->dead = true;
	if (rx->pkt.flags & PKT_SYN)
		e->rcv_nxt = rx->pkt.seq + 1;
	if (rx->pkt.datalen) {
		request = e->passive && !e->open;
		e->open = true;
		e->rcv_nxt = rx->pkt.seq + rx->pkt.datalen;
	}
	if (rx->pkt.flags == (PKT_SYN | PKT_ACK)) {
		send_segment(e, PKT_ACK, "");
		send_segment(e, PKT_ACK | PKT_PSH, "request");
	}
	pthread_cond_signal(&e->cond);
	pthread_mutex_unlock(&e->lock);
	if (request)
		to_acceptor(e);
	return true;
}

static const struct port_up up = { .rx = rx };

/* ---- the loop ---- */

static void wake(struct loop *l, void *arg)
{
	u64 one = 1;

	CHECK(write(wake_fd, &one, sizeof(one)) == sizeof(one));
}

static void sleep_for_work(void)
{
	struct pollfd pfd[2] = { { .fd = port_host_fd(host), .events = POLLIN }, { .fd = wake_fd, .events = POLLIN } };
	u64 now = loop_monotonic_ns(), next = loop_next_ns(&loop), count;
	int ms = next <= now ? 0 : (int)min((next - now) / NSEC_PER_MSEC + 1, 1000ull);

	poll(pfd, 2, ms);
	if (pfd[1].revents)
		CHECK(read(wake_fd, &count, sizeof(count)) == sizeof(count));
}

static void *loop_thread(void *arg)
{
	while (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE)) {
		loop_set_now(&loop, loop_monotonic_ns());
		loop_enter(&loop);
		port_host_process(host);
		loop_leave(&loop);
		loop_run(&loop);
		sleep_for_work();
	}
	return NULL;
}

/* ---- streams ---- */

static void event(void *ctx, u32 events)
{
	struct end *e = ctx;

	pthread_mutex_lock(&e->lock);
	e->events |= events;
	pthread_cond_signal(&e->cond);
	pthread_mutex_unlock(&e->lock);
}

static const struct port_stream_up stream_up = { .event = event };

static struct port_stream *take_over(struct end *e)
{
	struct tcp_info_ho info = { 0 };
	struct port_stream *s = NULL;

	pthread_mutex_lock(&e->lock);
	info.rcv_nxt = e->rcv_nxt;
	pthread_mutex_unlock(&e->lock);
	__atomic_store_n(&e->taken, true, __ATOMIC_RELEASE);
	if (port->ops->offload(port, e->ah, &info, &stream_up, e, &s))
		port->ops->ah_destroy(port, e->ah);
	return s;
}

static void wait_event(struct end *e)
{
	pthread_mutex_lock(&e->lock);
	while (!e->events)
		pthread_cond_wait(&e->cond, &e->lock);
	e->events &= PORT_EOF | PORT_RESET;
	pthread_mutex_unlock(&e->lock);
}

/* False: the stream has ended. */
static bool move(struct end *e, struct port_stream *s, u8 *buf, size_t len, bool send)
{
	size_t done = 0;

	while (done < len) {
		struct iovec iov = { buf + done, len - done };
		ssize_t n = send ? port->ops->stream_send(s, &iov, 1) : port->ops->stream_recv(s, &iov, 1);

		if (n == -EAGAIN)
			wait_event(e);
		else if (n <= 0)
			return false;
		else
			done += (size_t)n;
	}
	return true;
}

static void *acceptor(void *arg)
{
	u8 buf[MESSAGE];

	for (;;) {
		struct port_stream *s;
		struct end *e;

		pthread_mutex_lock(&ends_lock);
		while (!(e = TAILQ_FIRST(&accepted)) && !no_more)
			pthread_cond_wait(&ends_cond, &ends_lock);
		if (e)
			TAILQ_REMOVE(&accepted, e, accepted);
		pthread_mutex_unlock(&ends_lock);
		if (!e)
			return NULL;
		s = take_over(e);
		if (!s)
			continue;
		memcpy(buf, "reply", 5);
		if (move(e, s, buf, 5, true))
			while (move(e, s, buf, MESSAGE, false) && move(e, s, buf, MESSAGE, true))
				;
		port->ops->stream_shutdown(s);
		port->ops->stream_close(s);
	}
}

static struct end *begin_connect(void)
{
	struct port_ah_attr a = { .tuple = { .rem_port = number, .vlan_id = PKT_VLAN_NONE, .ipv4 = true } };
	struct end *e;

	a.tuple.loc_addr[0] = a.tuple.rem_addr[0] = INADDR_LOOPBACK;
	CHECK(!port->ops->reserve(port, true, a.tuple.loc_addr, &a.tuple.loc_port, false));
	e = end_new(&a.tuple, false);
	pthread_mutex_lock(&e->lock);
	CHECK(!port->ops->ah_create(port, &a, &e->ah));
	send_segment(e, PKT_SYN, "");
	while (!e->open && !e->dead)
		pthread_cond_wait(&e->cond, &e->lock);
	pthread_mutex_unlock(&e->lock);
	port->ops->release(port, true, a.tuple.loc_addr, a.tuple.loc_port);
	return e;
}

static void *connector(void *arg)
{
	u8 buf[MESSAGE];
	int round, i;

	for (round = 0; round < ROUNDS; round++) {
		struct end *e = begin_connect();
		struct port_stream *s;

		CHECK(e->open);
		s = take_over(e);
		CHECK(s);
		memset(buf, round, sizeof(buf));
		for (i = 0; i < MESSAGES; i++) {
			CHECK(move(e, s, buf, MESSAGE, true));
			CHECK(move(e, s, buf, MESSAGE, false));
			CHECK(buf[0] == round && buf[MESSAGE - 1] == round);
		}
		switch (round % 4) {
		case 0:
			port->ops->stream_shutdown(s);
			CHECK(!move(e, s, buf, 1, false));
			break;
		case 1:
			port->ops->stream_abort(s);
			break;
		case 2: /* unread bytes: reset */
			CHECK(move(e, s, buf, MESSAGE, true));
			break;
		}
		port->ops->stream_close(s);
	}
	return NULL;
}

/* ---- the test ---- */

static void start(void)
{
	struct net_iface lo = { .ifindex = 1, .name = "lo", .vlan_id = PKT_VLAN_NONE };

	wake_fd = eventfd(0, EFD_CLOEXEC);
	loop_init(&loop, loop_monotonic_ns());
	loop.wake = wake;
	assert_int_equal(port_host_open(&loop, NULL, &host), 0);
	assert_int_equal(port_host_plug(host, &lo, &up, NULL, &port), 0);
}

static struct port_filter *listen_any(void)
{
	struct port_filter_attr a = { .ipv4 = true, .tuple = { .vlan_id = PKT_VLAN_NONE, .ipv4 = true }, .backlog = 10 };
	struct port_filter *f;

	a.tuple.loc_addr[0] = INADDR_LOOPBACK;
	assert_int_equal(port->ops->reserve(port, true, a.tuple.loc_addr, &number, false), 0);
	a.tuple.loc_port = number;
	assert_int_equal(port->ops->filter_add(port, &a, &f), 0);
	return f;
}

static void free_ends(void)
{
	struct end *e, *next;

	TAILQ_FOREACH_SAFE(e, &ends, entry, next)
		free(e);
	TAILQ_INIT(&ends);
}

static void test_threads(void **state)
{
	pthread_t loop_id, connectors[WORKERS], acceptors[WORKERS];
	struct port_capture *c;
	struct port_filter *f;
	char err[256];
	int i;

	start();
	f = listen_any();
	pthread_create(&loop_id, NULL, loop_thread, NULL);
	for (i = 0; i < WORKERS; i++) {
		pthread_create(&acceptors[i], NULL, acceptor, NULL);
		pthread_create(&connectors[i], NULL, connector, NULL);
	}
	assert_int_equal(port_capture_open("/dev/null", &c, err, sizeof(err)), 0);
	for (i = 0; i < 20; i++) {
		usleep(2000);
		port_capture_attach(c, port);
		port->ops->filter_kick(port, f);
		usleep(2000);
		port_capture_detach(c, port);
	}
	assert_int_equal(port_capture_close(c), 0);
	for (i = 0; i < WORKERS; i++)
		pthread_join(connectors[i], NULL);
	pthread_mutex_lock(&ends_lock);
	no_more = true;
	pthread_cond_broadcast(&ends_cond);
	pthread_mutex_unlock(&ends_lock);
	for (i = 0; i < WORKERS; i++)
		pthread_join(acceptors[i], NULL);
	port->ops->filter_del(port, f);
	__atomic_store_n(&stopping, true, __ATOMIC_RELEASE);
	wake(&loop, NULL);
	pthread_join(loop_id, NULL);
	port->ops->unplug(port);
	port_host_close(host);
	loop_destroy(&loop);
	close(wake_fd);
	free_ends();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads) };

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
