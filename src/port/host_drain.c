/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: streams that their user has closed while the peer may still be sending. Theory of operation.
 *
 * close() answers what is unread, or arrives later, with a reset (RFC 1122 4.2.2.13), and a reset makes the peer throw away what it has not read yet: a Terminate that explains
 * why the stream ends would be lost. So the socket stays for a while. What was to be sent goes out, then FIN, and what the peer sends is read and
 * thrown away, until its FIN or reset. Then, or when the time is up, or the port is unplugged, the socket is closed as ever.
 *
 * Nobody above knows of it: no event is raised. Epoll reports the socket by level from here on, so that each turn may be short, and others
 * have theirs in between. At most HOST_DRAINS_MAX sockets are kept: they are descriptors that the program does not know of. The oldest, which has had the most time, goes first.
 *
 * A process that ends takes its sockets along: the kernel sends on what it has, but if the peer sends too, it answers with a reset and forgets the rest. So whoever ends the
 * process asks for a while whether all is through (port_host_unsent()).
 *
 * fork(): as with all sockets the child has a copy that is put by, and goes on if it adopts it; its own timer closes the copy.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "port/host_internal.h"

#define TURN_READS 4
#define TURN_BYTES 16384u /* per read */

/* ---- one turn ---- */

/* Locked. While a forked process has the socket as well, closing it would not stop the reports, and by level they come for ever. */
static void end(struct port_host *h, struct host_conn *c)
{
	TAILQ_REMOVE(&h->drains, c, waiting);
	h->ndrains--;
	if (c->fd >= 0)
		epoll_ctl(h->epfd, EPOLL_CTL_DEL, c->fd, NULL);
	host_conn_kill(h, c, c->remainder_len > 0); /* a FIN in the middle would not be true */
}

/* Locked. As recv(). */
static ssize_t read_and_forget(struct host_conn *c)
{
	u8 buf[TURN_BYTES];
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	do
		n = unlikely(host_tapped(c)) ? host_tap_recvmsg(c, &m) : recvmsg(c->fd, &m, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n;
}

/* Locked. False: nothing more can come. */
static bool drain_turn(struct host_conn *c)
{
	for (int i = 0; i < TURN_READS; i++) {
		ssize_t n = read_and_forget(c);

		if (n < 0)
			return errno == EAGAIN;
		if (n == 0)
			return false;
	}
	return true;
}

/**
 * host_drain_watch() - what is to be reported of a draining connection
 * @c: the connection
 *
 * Return: epoll events, by level.
 */
u32 host_drain_watch(const struct host_conn *c)
{
	return c->remainder_len ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

/* Locked. False: it broke. */
static bool flush(struct port_host *h, struct host_conn *c)
{
	int rc = c->remainder_len ? host_conn_flush(h, c) : 0;

	if (rc && rc != -EAGAIN)
		return false;
	if (!c->remainder_len)
		host_rewatch(h, &c->obj, c->fd, EPOLLIN);
	return true;
}

/**
 * host_drain_event() - epoll's report on a draining connection
 * @h: the instance
 * @c: the connection; may be freed
 * @epoll_events: the report
 */
void host_drain_event(struct port_host *h, struct host_conn *c, u32 epoll_events)
{
	if (epoll_events & EPOLLERR || (epoll_events & EPOLLOUT && !flush(h, c)) || !drain_turn(c))
		end(h, c);
}

/**
 * host_drain_timer() - the peer had its time
 * @h: the instance
 * @c: the connection; freed
 */
void host_drain_timer(struct port_host *h, struct host_conn *c)
{
	end(h, c);
}

/* ---- beginning and end ---- */

/* Locked. 0 or -ENOMEM. */
static int append(struct host_conn *c, const void *rest, u32 len)
{
	u8 *p;

	if (!len)
		return 0;
	p = realloc(c->remainder, c->remainder_len + len);
	if (!p)
		return -ENOMEM;
	memcpy(p + c->remainder_len, rest, len);
	c->remainder = p;
	c->remainder_len += len;
	host_tap_sent(c, rest, len);
	return 0;
}

/* Locked. No event comes any more, and nothing is left to read but what the socket has. */
static void leave_user(struct port_host *h, struct host_conn *c)
{
	host_unqueue(h, c);
	c->events = 0;
	free(c->held);
	c->held = NULL;
	c->held_len = c->left = 0;
}

/* Locked. 0 or what broke the connection. */
static int last_words(struct port_host *h, struct host_conn *c, const void *rest, u32 len)
{
	int rc;

	if (!c->fin_wanted) {
		rc = append(c, rest, len);
		if (rc)
			return rc;
		c->fin_wanted = true;
		host_tap_stream_end(c, true, PKT_FIN);
	}
	rc = host_conn_flush(h, c);
	return rc == -EAGAIN ? 0 : rc;
}

/* Locked. */
static void enter(struct port_host *h, struct host_conn *c)
{
	if (h->ndrains == HOST_DRAINS_MAX)
		end(h, TAILQ_FIRST(&h->drains));
	leave_user(h, c);
	host_conn_set_state(c, HOST_DRAIN);
	TAILQ_INSERT_TAIL(&h->drains, c, waiting);
	h->ndrains++;
	host_arm(h, &c->obj, HOST_DRAIN_MS);
	host_rewatch(h, &c->obj, c->fd, host_drain_watch(c));
}

/**
 * host_stream_drain() - port_ops.stream_drain
 * @s: the stream; gone for the caller, as with host_stream_close()
 * @rest: bytes that host_stream_send() did not take and that go out before the FIN; copied
 * @len: their number; 0 if stream_shutdown() was called
 */
void host_stream_drain(struct port_stream *s, const void *rest, u32 len)
{
	struct host_conn *c = host_conn_of_stream(s);
	struct port_host *h = c->port->host;

	pthread_mutex_lock(&h->lock);
	if (c->aborted || last_words(h, c, rest, len))
		host_conn_kill(h, c, true);
	else
		enter(h, c);
	pthread_mutex_unlock(&h->lock);
}

/* Locked. Our side ends, and the peer's TCP does not have all of it, the FIN included. */
static bool is_unsent(const struct host_conn *c)
{
	int left = 0;

	if (c->fd < 0 || !(c->fin_wanted || c->shut || c->state == HOST_DRAIN))
		return false;
	return c->remainder_len || (!ioctl(c->fd, SIOCOUTQ, &left) && left > 0);
}

/**
 * port_host_unsent() - is there something that a peer does not have yet, on connections that are being closed?
 * @h: the instance
 *
 * Looks at all of them. From any thread.
 *
 * Return: true if there is.
 */
bool port_host_unsent(struct port_host *h)
{
	bool unsent = false;

	pthread_mutex_lock(&h->lock);
	for (u32 i = 1; i < h->nslots && !unsent; i++) {
		struct host_obj *o = h->slots[i].obj;

		unsent = o && o->kind == HOST_CONN && is_unsent(container_of(o, struct host_conn, obj));
	}
	pthread_mutex_unlock(&h->lock);
	return unsent;
}

/**
 * host_drain_unplug() - a port goes, and what drains on it: what is there is read, then all are closed
 * @p: the port
 */
void host_drain_unplug(struct host_port *p)
{
	struct port_host *h = p->host;
	struct host_conn *c, *next;

	TAILQ_FOREACH_SAFE(c, &h->drains, waiting, next) {
		if (c->port != p)
			continue;
		drain_turn(c);
		end(h, c);
	}
}
