// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Connections per second on the host port over loopback, beside bare TCP connections that carry the same bytes in the same run.
 *
 * Both sides of both have one thread each for the client and for the server, and the same number of connections under way. A connection is: connect, request
 * (24 bytes), reply (24), RTR (20), close from the client's side, close from the server's. The rounds alternate, so that whatever else the machine does meets both.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include "iwcm/iwcm_nic.h"

#define REQUEST 24
#define REPLY 24
#define RTR 20
#define WINDOW 16
#define ROUNDS 5

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *what, int err)
{
	fprintf(stderr, "bench_host: %s: %s\n", what, strerror(err));
	exit(1);
}

static void must(int err, const char *what)
{
	if (err)
		die(what, -err);
}

/* ---- bare TCP ---- */

struct tcp {
	int fd;
	unsigned int got; /* bytes read */
};

struct tcp_side {
	int ep;
	unsigned int left, done;
	struct sockaddr_in to;
};

static void watch(int ep, int fd, void *ptr)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = ptr };

	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev))
		die("epoll_ctl", errno);
}

static struct tcp *tcp_new(int fd)
{
	struct tcp *t = calloc(1, sizeof(*t));
	int one = 1;

	if (!t)
		die("memory", ENOMEM);
	t->fd = fd;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return t;
}

static void tcp_say(struct tcp *t, size_t len)
{
	static const char data[64];

	if (write(t->fd, data, len) != (ssize_t)len)
		die("write", errno);
}

static void tcp_start(struct tcp_side *s)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct tcp *t;

	if (fd < 0)
		die("socket", errno);
	t = tcp_new(fd);
	if (connect(fd, (struct sockaddr *)&s->to, sizeof(s->to)) && errno != EINPROGRESS)
		die("connect", errno);
	t->got = UINT32_MAX; /* not connected */
	watch(s->ep, fd, t);
	s->left--;
}

/* 1: more to come; 0: end of file */
static int tcp_read(struct tcp *t)
{
	char buf[256];
	ssize_t n;

	while ((n = read(t->fd, buf, sizeof(buf))) > 0)
		t->got += (unsigned int)n;
	if (n < 0 && errno != EAGAIN)
		die("read", errno);
	return n != 0;
}

static bool client_event(struct tcp *t, uint32_t events)
{
	unsigned int had;

	if (t->got == UINT32_MAX) {
		if (!(events & EPOLLOUT))
			return false;
		t->got = 0;
		tcp_say(t, REQUEST);
		return false;
	}
	had = t->got;
	if (!tcp_read(t))
		return true;
	if (had < REPLY && t->got >= REPLY) {
		tcp_say(t, RTR);
		shutdown(t->fd, SHUT_WR);
	}
	return false;
}

static bool server_event(struct tcp *t, uint32_t events)
{
	unsigned int had = t->got;
	int more = tcp_read(t);

	(void)events;
	if (had < REQUEST && t->got >= REQUEST)
		tcp_say(t, REPLY);
	return !more;
}

static void tcp_accept(int ep, int lfd)
{
	int fd;

	while ((fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		watch(ep, fd, tcp_new(fd));
}

struct tcp_server {
	int lfd, ep;
	unsigned int count;
};

static void *tcp_server_run(void *arg)
{
	struct tcp_server *s = arg;
	struct epoll_event ev[64];
	unsigned int done = 0;

	watch(s->ep, s->lfd, NULL);
	while (done < s->count) {
		int n = epoll_wait(s->ep, ev, 64, -1);

		for (int i = 0; i < n; i++) {
			struct tcp *t = ev[i].data.ptr;

			if (!t) {
				tcp_accept(s->ep, s->lfd);
			} else if (server_event(t, ev[i].events)) {
				close(t->fd);
				free(t);
				done++;
			}
		}
	}
	return NULL;
}

static void tcp_client_run(struct tcp_side *s, unsigned int count)
{
	struct epoll_event ev[64];

	for (int i = 0; i < WINDOW && s->left; i++)
		tcp_start(s);
	while (s->done < count) {
		int n = epoll_wait(s->ep, ev, 64, -1);

		for (int i = 0; i < n; i++) {
			struct tcp *t = ev[i].data.ptr;

			if (!client_event(t, ev[i].events))
				continue;
			close(t->fd);
			free(t);
			s->done++;
			if (s->left)
				tcp_start(s);
		}
	}
}

static double bare_round(unsigned int count)
{
	struct tcp_side c = { .ep = epoll_create1(0), .left = count };
	struct tcp_server s = { .lfd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .ep = epoll_create1(0), .count = count };
	socklen_t len = sizeof(c.to);
	int one = 1;
	pthread_t th;
	double t;

	setsockopt(s.lfd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	c.to = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (bind(s.lfd, (struct sockaddr *)&c.to, len) || listen(s.lfd, 1024) || getsockname(s.lfd, (struct sockaddr *)&c.to, &len))
		die("listen", errno);
	pthread_create(&th, NULL, tcp_server_run, &s);
	t = now_s();
	tcp_client_run(&c, count);
	t = now_s() - t;
	pthread_join(th, NULL);
	close(s.lfd);
	close(s.ep);
	close(c.ep);
	return count / t;
}

/* ---- uwarp: two contexts, each with its NIC thread, in which the handlers run ---- */

struct uw {
	struct iwcm_ctx *ctx;
	struct sockaddr_in to;
	unsigned int left, failed;
	unsigned int done; /* atomic */
};

static struct uw client, server;

static void uw_start(struct uw *u)
{
	struct iwcm_id *id;

	u->left--;
	must(iwcm_create_id(u->ctx, NULL, &id), "id");
	must(iwcm_resolve(id, NULL, (struct sockaddr *)&u->to), "resolve");
}

static void client_handler(void *arg, const struct iwcm_event *ev)
{
	struct uw *u = arg;
	struct iwcm_conn_param param = { .ird = 1, .ord = 1 };

	switch (ev->type) {
	case IWCM_EVENT_RESOLVED:
		must(iwcm_connect(ev->id, &param), "connect");
		break;
	case IWCM_EVENT_ESTABLISHED:
		must(iwcm_disconnect(ev->id), "disconnect");
		break;
	case IWCM_EVENT_DISCONNECTED:
		break;
	default:
		if (ev->type != IWCM_EVENT_CLOSED) {
			u->failed++;
			fprintf(stderr, "bench_host: %s: %s (%s)\n", iwcm_event_str(ev->type), strerror(-ev->status), iwcm_cause_str(ev->info.cause));
		}
		iwcm_destroy_id(ev->id);
		if (u->left)
			uw_start(u);
		__atomic_add_fetch(&u->done, 1, __ATOMIC_RELEASE);
	}
}

static void server_handler(void *arg, const struct iwcm_event *ev)
{
	struct iwcm_conn_param param = { .ird = 1, .ord = 1 };

	(void)arg;
	if (ev->type == IWCM_EVENT_CONNECT_REQUEST) {
		if (iwcm_accept(ev->id, &param))
			iwcm_destroy_id(ev->id);
	} else if (ev->type == IWCM_EVENT_CLOSED) {
		iwcm_destroy_id(ev->id);
	}
}

static double uw_round(unsigned int count)
{
	struct timespec nap = { .tv_nsec = 200000 };
	double t = now_s();

	client.left = count;
	__atomic_store_n(&client.done, 0, __ATOMIC_RELEASE);
	for (unsigned int i = 0, n = count < WINDOW ? count : WINDOW; i < n; i++)
		uw_start(&client);
	while (__atomic_load_n(&client.done, __ATOMIC_ACQUIRE) < count)
		nanosleep(&nap, NULL);
	return count / (now_s() - t);
}

static void uw_up(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_storage got;
	struct iwcm_id *id;

	must(iwcm_open("lo", &server.ctx), "open");
	must(iwcm_open("lo", &client.ctx), "open");
	iwcm_set_handler(server.ctx, server_handler, &server);
	iwcm_set_handler(client.ctx, client_handler, &client);
	must(iwcm_create_id(server.ctx, NULL, &id), "id");
	must(iwcm_bind(id, (struct sockaddr *)&at), "bind");
	must(iwcm_listen(id, 1024), "listen");
	must(iwcm_local_addr(id, &got), "address");
	memcpy(&client.to, &got, sizeof(client.to));
}

static int cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), cmp);
	return v[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	unsigned int count = argc > 1 ? (unsigned int)atoi(argv[1]) : 4000;
	double bare[ROUNDS], uw[ROUNDS], ratio[ROUNDS];

	uw_up();
	for (int i = 0; i < ROUNDS; i++) {
		bare[i] = bare_round(count);
		uw[i] = uw_round(count);
		ratio[i] = uw[i] / bare[i];
	}
	printf("host port, loopback: %.0f connections/s, bare TCP %.0f/s; ratio %.2f (medians of %d rounds of %u, %d under way, %u failed)\n",
	       median(uw), median(bare), median(ratio), ROUNDS, count, WINDOW, client.failed);
	iwcm_close(client.ctx);
	iwcm_close(server.ctx);
	return client.failed != 0;
}
