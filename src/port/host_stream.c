/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: connections after offload. The socket and its epoll registration stay; who is told changes.
 *
 * Sending and receiving are one system call each, from any thread, without a lock: the user calls at most one
 * stream_send and one stream_recv of a stream at a time, and none during or after stream_close. They are made without libc: its functions are
 * cancellation points, at which a program's thread that is cancelled (rping does so) would leave the QP's locks behind; and that costs more than
 * a poll has to spare. Before the
 * socket's own bytes come those that were read for the CM and that it did not use (.left of .held).
 *
 * Epoll reports edges, so what had been reported before the offload is raised once by the ready queue.
 * An error of the socket is told by the kernel once, to whoever comes first: the thread that sends or receives, or
 * the loop's thread; .error remembers it for the other.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "port/host_internal.h"

#define RAISED_ONCE (PORT_EOF | PORT_RESET | PORT_CLOSED)
#define IOV_LIMIT 1024 /* IOV_MAX; more is a short write */

/* ---- offload ---- */

/* Locked. How many of the held bytes the CM has consumed, by what it says of itself. */
static u32 consumed(const struct host_conn *c, const struct tcp_info_ho *info)
{
	s32 n = (s32)(info->rcv_nxt - c->held_seq);

	return n < 0 ? 0 : min((u32)n, c->held_len);
}

/* Locked. .held becomes what the stream gives first. 0 or -ENOMEM. */
static int keep_left(struct host_conn *c, const struct tcp_info_ho *info)
{
	u32 skip = consumed(c, info), rest = c->held_len - skip;
	u8 *p = NULL;

	if (info->rx_len + rest) {
		p = malloc(info->rx_len + rest);
		if (!p)
			return -ENOMEM;
		if (info->rx_len)
			memcpy(p, info->rx_data, info->rx_len);
		if (rest)
			memcpy(p + info->rx_len, c->held + skip, rest);
	}
	free(c->held);
	c->held = p;
	c->held_len = info->rx_len + rest;
	__atomic_store_n(&c->left, c->held_len, __ATOMIC_RELEASE);
	return 0;
}

/* Locked. What epoll said before there was a stream. */
static u32 first_events(const struct host_conn *c)
{
	u32 ev = 0;

	if (c->held_len || c->readable || c->eof)
		ev |= PORT_READABLE;
	if (c->eof || c->rdhup)
		ev |= PORT_READABLE | PORT_EOF;
	return ev;
}

/* Locked. */
static int become_stream(struct port_host *h, struct host_conn *c, const struct tcp_info_ho *info)
{
	int rc;

	if (c->state != HOST_OPEN || c->error_seen)
		return -ECONNRESET;
	host_tap_offload(c);
	rc = keep_left(c, info);
	if (rc)
		return rc;
	c->todo = 0;
	host_unqueue(h, c);
	host_conn_unhash(h, c);
	host_disarm(h, &c->obj);
	host_conn_set_state(c, HOST_STREAM);
	c->events = first_events(c);
	if (c->events)
		host_queue(h, c);
	return 0;
}

/**
 * host_offload() - port_ops.offload
 * @p: the port
 * @ah: connection whose both ends are synchronised; consumed on success
 * @info: the CM's view: what it has consumed (rcv_nxt), what it has left over (rx_data)
 * @up: the stream's functions
 * @ctx: handed to them
 * @out: the stream
 *
 * Return: 0, -ENOMEM, -ECONNRESET.
 */
int host_offload(struct port *p, struct port_ah *ah, const struct tcp_info_ho *info,
		 const struct port_stream_up *up, void *ctx, struct port_stream **out)
{
	struct port_host *h = host_port_of(p)->host;
	struct host_conn *c = host_conn_of_ah(ah);
	int rc;

	pthread_mutex_lock(&h->lock);
	c->up = up;
	c->ctx = ctx;
	*out = (struct port_stream *)c; /* before the first event, which may come at once */
	rc = become_stream(h, c, info);
	pthread_mutex_unlock(&h->lock);
	if (rc)
		*out = NULL;
	return rc;
}

/* ---- events ---- */

/* Any thread. The first cause stays. */
static void note_error(struct host_conn *c, int error)
{
	int none = 0;

	__atomic_compare_exchange_n(&c->error, &none, error, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Locked; gives the lock up. After the end of a stream there is nothing to tell any more. */
static void raise_events(struct port_host *h, struct host_conn *c, u32 ev)
{
	if (c->aborted || c->raised & (PORT_RESET | PORT_CLOSED))
		return;
	ev &= ~(c->raised & RAISED_ONCE);
	if (!ev)
		return;
	c->raised |= ev & RAISED_ONCE;
	if (ev & PORT_RESET)
		host_tap_stream_end(c, false, PKT_RST);
	host_obj_get(&c->obj);
	pthread_mutex_unlock(&h->lock);
	c->up->event(c->ctx, ev);
	pthread_mutex_lock(&h->lock);
	host_obj_put(h, &c->obj);
}

/**
 * host_stream_run() - raise what epoll will not report again
 * @h: the instance
 * @c: the stream
 */
void host_stream_run(struct port_host *h, struct host_conn *c)
{
	u32 ev = c->events;

	c->events = 0;
	raise_events(h, c, ev);
}

/**
 * host_stream_timer() - memory that was short may be there again
 * @h: the instance
 * @c: the stream
 */
void host_stream_timer(struct port_host *h, struct host_conn *c)
{
	c->events |= PORT_READABLE | PORT_WRITABLE;
	host_queue(h, c);
}

/* Locked. Room in the socket goes to the CM's bytes first. False: none is left. */
static bool flush_remainder(struct port_host *h, struct host_conn *c)
{
	int rc = host_conn_flush(h, c);

	if (rc && rc != -EAGAIN)
		note_error(c, rc);
	return rc != -EAGAIN;
}

/* Locked. Hung up: both directions have ended, one way or the other. */
static u32 hang_up(struct host_conn *c, u32 ep)
{
	int error = ep & EPOLLERR ? host_socket_error(c->fd) : 0;

	if (error)
		note_error(c, error);
	if (c->shut && !(ep & EPOLLERR) && !__atomic_load_n(&c->error, __ATOMIC_RELAXED))
		return PORT_READABLE | PORT_EOF | PORT_CLOSED;
	note_error(c, -ECONNRESET);
	return PORT_RESET;
}

/**
 * host_stream_event() - epoll's report on a stream
 * @h: the instance
 * @c: the stream
 * @epoll_events: the report
 */
void host_stream_event(struct port_host *h, struct host_conn *c, u32 epoll_events)
{
	u32 ev = 0;

	if (epoll_events & EPOLLIN)
		ev |= PORT_READABLE;
	if (epoll_events & EPOLLOUT && flush_remainder(h, c))
		ev |= PORT_WRITABLE;
	if (epoll_events & (EPOLLERR | EPOLLHUP))
		ev |= hang_up(c, epoll_events);
	else if (epoll_events & EPOLLRDHUP)
		ev |= PORT_READABLE | PORT_EOF;
	raise_events(h, c, ev);
}

/* ---- data ---- */

/* One piece needs no msghdr, which the kernel would copy in twice. As sendmsg(). */
static ssize_t send_pieces(struct host_conn *c, const struct iovec *iov, int n)
{
	struct msghdr m;

	if (likely(n == 1 && !host_tapped(c)))
		return syscall(SYS_sendto, c->fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
	m = (struct msghdr){ .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)min(n, IOV_LIMIT) };
	return unlikely(host_tapped(c)) ? host_tap_sendmsg(c, &m) : syscall(SYS_sendmsg, c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* As recvmsg(). */
static ssize_t recv_pieces(struct host_conn *c, const struct iovec *iov, int n)
{
	struct msghdr m;

	if (likely(n == 1 && !host_tapped(c)))
		return syscall(SYS_recvfrom, c->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT, NULL, NULL);
	m = (struct msghdr){ .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)min(n, IOV_LIMIT) };
	return unlikely(host_tapped(c)) ? host_tap_recvmsg(c, &m) : syscall(SYS_recvmsg, c->fd, &m, MSG_DONTWAIT);
}

/* Out of memory for a moment, which epoll does not report the end of. */
static int try_later(struct host_conn *c)
{
	struct port_host *h = c->port->host;

	pthread_mutex_lock(&h->lock);
	host_arm(h, &c->obj, HOST_RETRY_MS);
	pthread_mutex_unlock(&h->lock);
	return -EAGAIN;
}

/* Why a send or receive failed. */
static int data_error(struct host_conn *c, int error)
{
	switch (error) {
	case EAGAIN:
		return -EAGAIN;
	case ENOMEM:
	case ENOBUFS:
		return try_later(c);
	case ENOTCONN: /* after stream_abort() */
	case EBADF:
		return -ECONNRESET;
	case EPIPE:
		error = -__atomic_load_n(&c->error, __ATOMIC_RELAXED);
		return error ? -error : -EPIPE;
	default:
		note_error(c, -error);
		return -error;
	}
}

/* False: bytes of the CM's still wait for room. */
static bool remainder_gone(struct host_conn *c)
{
	struct port_host *h = c->port->host;
	bool gone;

	pthread_mutex_lock(&h->lock);
	gone = flush_remainder(h, c);
	pthread_mutex_unlock(&h->lock);
	return gone;
}

/**
 * host_stream_send() - port_ops.stream_send
 * @s: the stream
 * @iov: what to send
 * @n: entries
 *
 * Return: bytes taken, -EAGAIN, -EPIPE after stream_shutdown(), or the cause of the end (-ECONNRESET, -ETIMEDOUT...).
 */
ssize_t host_stream_send(struct port_stream *s, const struct iovec *iov, int n)
{
	struct host_conn *c = host_conn_of_stream(s);
	ssize_t rc;

	if (unlikely(__atomic_load_n(&c->remainder_len, __ATOMIC_ACQUIRE)) && !remainder_gone(c))
		return -EAGAIN;
	do
		rc = send_pieces(c, iov, n);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? data_error(c, errno) : rc;
}

static ssize_t recv_left(struct host_conn *c, const struct iovec *iov, int n)
{
	u32 left = c->left, got = 0;
	int i;

	for (i = 0; i < n && left; i++) {
		u32 len = (u32)min(iov[i].iov_len, (size_t)left);

		memcpy(iov[i].iov_base, c->held + c->held_len - left, len);
		left -= len;
		got += len;
	}
	__atomic_store_n(&c->left, left, __ATOMIC_RELEASE);
	return got;
}

/**
 * host_stream_recv() - port_ops.stream_recv
 * @s: the stream
 * @iov: where to
 * @n: entries
 *
 * Return: bytes, 0 at the peer's FIN, -EAGAIN, or the cause of the end (-ECONNRESET, -ETIMEDOUT...).
 */
ssize_t host_stream_recv(struct port_stream *s, const struct iovec *iov, int n)
{
	struct host_conn *c = host_conn_of_stream(s);
	ssize_t rc;

	if (unlikely(__atomic_load_n(&c->left, __ATOMIC_ACQUIRE)))
		return recv_left(c, iov, n);
	do
		rc = recv_pieces(c, iov, n);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? data_error(c, errno) : rc;
}

/* ---- the end ---- */

/**
 * host_stream_shutdown() - port_ops.stream_shutdown
 * @s: the stream: FIN after what was sent
 *
 * Return: 0, also if it was called before; -ECONNRESET.
 */
int host_stream_shutdown(struct port_stream *s)
{
	struct host_conn *c = host_conn_of_stream(s);
	struct port_host *h = c->port->host;
	int rc = 0;

	pthread_mutex_lock(&h->lock);
	if (!c->fin_wanted && !c->aborted) {
		c->fin_wanted = true;
		host_tap_stream_end(c, true, PKT_FIN);
		rc = host_conn_flush(h, c);
	}
	pthread_mutex_unlock(&h->lock);
	return rc == -EAGAIN ? 0 : rc;
}

/**
 * host_stream_abort() - port_ops.stream_abort
 * @s: the stream: RST, and no event any more; what it has not read is gone
 *
 * The descriptor stays, so that another thread that is just sending hits no stranger's: connecting to
 * AF_UNSPEC is how Linux resets a connection in place.
 */
void host_stream_abort(struct port_stream *s)
{
	struct host_conn *c = host_conn_of_stream(s);
	struct port_host *h = c->port->host;
	struct sockaddr nobody = { .sa_family = AF_UNSPEC };

	pthread_mutex_lock(&h->lock);
	if (!c->aborted) {
		c->aborted = true;
		note_error(c, -ECONNABORTED);
		host_tap_stream_end(c, true, PKT_RST);
		/* Not connect(): ThreadSanitizer takes that for making a descriptor, and a receive in another thread for a race with it. */
		if (syscall(SYS_connect, c->fd, &nobody, sizeof(nobody)))
			shutdown(c->fd, SHUT_RDWR); /* and the reset when it is closed */
	}
	pthread_mutex_unlock(&h->lock);
}

/* Locked. RFC 9293 3.10.4: closing with unread data resets. The kernel knows of its own; of .left it does not. */
static bool has_unread(const struct host_conn *c)
{
	int n = 0;

	if (__atomic_load_n(&c->left, __ATOMIC_ACQUIRE))
		return true;
	return host_tapped(c) && !ioctl(c->fd, FIONREAD, &n) && n > 0;
}

/**
 * host_stream_close() - port_ops.stream_close
 * @s: the stream; gone for the caller. What is under way in the kernel goes on
 *
 * From the loop's thread, in an event or not: no event comes after. From another thread: no event begins after; one
 * that has begun may still be running, and is not waited for.
 */
void host_stream_close(struct port_stream *s)
{
	struct host_conn *c = host_conn_of_stream(s);
	struct port_host *h = c->port->host;
	bool abort;

	pthread_mutex_lock(&h->lock);
	abort = !c->aborted && has_unread(c);
	if (abort)
		host_tap_stream_end(c, true, PKT_RST);
	else if (!c->fin_wanted)
		host_tap_stream_end(c, true, PKT_FIN);
	host_conn_kill(h, c, abort || c->aborted);
	pthread_mutex_unlock(&h->lock);
}

/**
 * host_stream_error() - port_ops.stream_error
 * @s: the stream
 *
 * Return: cause of PORT_RESET as a negative errno; 0 if there is none.
 */
int host_stream_error(struct port_stream *s)
{
	return __atomic_load_n(&host_conn_of_stream(s)->error, __ATOMIC_RELAXED);
}

/**
 * host_stream_quiet() - port_ops.stream_quiet
 * @s: the stream
 * @on: report errors and the end of both directions alone; else everything again, beginning with what is ready
 */
void host_stream_quiet(struct port_stream *s, bool on)
{
	struct host_conn *c = host_conn_of_stream(s);
	struct port_host *h = c->port->host;

	pthread_mutex_lock(&h->lock);
	host_rewatch(h, &c->obj, c->fd, on ? EPOLLET : HOST_EPOLL_STREAM);
	if (!on && __atomic_load_n(&c->left, __ATOMIC_ACQUIRE)) {
		c->events |= PORT_READABLE; /* epoll knows nothing of it */
		host_queue(h, c);
	}
	pthread_mutex_unlock(&h->lock);
}
