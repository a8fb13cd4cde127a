// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * bench: round trips over bare TCP on loopback, both ends busy-polling: what latency of the NIC is compared with.
 *
 *	tcp_pingpong BYTES COUNT	prints the median round trip in microseconds
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bare_tcp.h"

#define BYTES_MAX 65536

static char buf[BYTES_MAX];

static void take(int fd, size_t len)
{
	size_t got = 0;
	ssize_t n;

	while (got < len) {
		n = recv(fd, buf, len - got, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			die("recv", n ? errno : ECONNRESET);
		got += n > 0 ? (size_t)n : 0;
	}
}

static void give(int fd, size_t len)
{
	if (send(fd, buf, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("send", errno);
}

static void no_delay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void serve(int lfd, size_t len, long count)
{
	int fd = accept(lfd, NULL, NULL);

	if (fd < 0)
		die("accept", errno);
	no_delay(fd);
	while (count--) {
		take(fd, len);
		give(fd, len);
	}
	_exit(0);
}

static double measure(int fd, size_t len, long count)
{
	double *us = calloc((size_t)count, sizeof(*us)), then = now_s(), now;
	double m;

	if (!us)
		die("memory", ENOMEM);
	for (long i = 0; i < count; i++) {
		give(fd, len);
		take(fd, len);
		now = now_s();
		us[i] = (now - then) * 1e6;
		then = now;
	}
	m = median(us, (unsigned int)count);
	free(us);
	return m;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	size_t len = argc > 1 ? strtoul(argv[1], NULL, 10) : 32;
	long count = argc > 2 ? strtol(argv[2], NULL, 10) : 10000;
	int lfd = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t size = sizeof(at);
	pid_t pid;

	if (len < 1 || len > BYTES_MAX || count < 1)
		die("usage: tcp_pingpong BYTES COUNT", EINVAL);
	if (bind(lfd, (struct sockaddr *)&at, size) || listen(lfd, 1) || getsockname(lfd, (struct sockaddr *)&at, &size))
		die("listen", errno);
	pid = fork();
	if (pid < 0)
		die("fork", errno);
	if (!pid)
		serve(lfd, len, count);
	if (connect(fd, (struct sockaddr *)&at, size))
		die("connect", errno);
	no_delay(fd);
	printf("%.2f\n", measure(fd, len, count));
	waitpid(pid, NULL, 0);
	return 0;
}
