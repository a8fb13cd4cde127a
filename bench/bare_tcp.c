// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * bench: bare TCP connections that carry the bytes of an MPA start-up, for comparison: one thread for the client, one for the server,
 * BARE_WINDOW under way.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include "bare_tcp.h"

#define REQUEST 24
#define REPLY 24
#define RTR 20

double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void die(const char *what, int err)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(err));
	exit(1);
}

static int cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(double *v, unsigned int n)
{
	qsort(v, n, sizeof(*v), cmp);
	return v[n / 2];
}

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

	for (int i = 0; i < BARE_WINDOW && s->left; i++)
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

double bare_round(unsigned int count)
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
