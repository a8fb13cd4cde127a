/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: listeners. A listener's filter is a listening socket on one exact address, so that accept4() tells all
 * of a connection's 4-tuple.
 *
 * The socket is level triggered: what is not accepted now is reported again. It is not watched while there is a
 * reason not to accept (HOST_PAUSE_*); connections wait in the kernel's queue then, established and not reset.
 * Each accepted connection is offered to the CM as a SYN before the next one is accepted, so that may_accept() counts it.
 *
 * accept() is called once per report, for a connection at a time is what a busy server sees, and a second
 * call would mostly find nothing; when reports come in one batch after the other the number is doubled.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "port/host_internal.h"

/* Locked. Watches the socket if there is no reason left not to. */
static void set_paused(struct port_host *h, struct host_listener *l, u32 paused)
{
	bool was = l->paused;

	l->paused = paused;
	if (was != !!paused && l->fd >= 0)
		host_rewatch(h, &l->obj, l->fd, paused ? 0 : EPOLLIN);
}

/**
 * host_listener_pause() - one more reason not to accept, or one less
 * @h: the instance
 * @l: the listener
 * @reason: HOST_PAUSE_*
 * @on: more
 */
void host_listener_pause(struct port_host *h, struct host_listener *l, u32 reason, bool on)
{
	set_paused(h, l, on ? l->paused | reason : l->paused & ~reason);
}

/**
 * host_listener_leave() - a connection does not wait for the CM's answer any more
 * @h: the instance
 * @c: the connection; harmless if it did not wait
 */
void host_listener_leave(struct port_host *h, struct host_conn *c)
{
	struct host_listener *l = c->listener;

	if (!l)
		return;
	c->listener = NULL;
	TAILQ_REMOVE(&l->conns, c, waiting);
	if (l->waiting-- == HOST_WAITING_MAX)
		set_paused(h, l, l->paused & ~HOST_PAUSE_WAITING);
}

/* Locked; gives the lock up. Pauses the listener if the CM has no room. */
static bool may_accept(struct port_host *h, struct host_listener *l)
{
	const struct port *p = &l->port->port;
	u32 kicks = l->kicks;
	bool ok = true;

	if (l->waiting >= HOST_WAITING_MAX) {
		set_paused(h, l, l->paused | HOST_PAUSE_WAITING);
		return false;
	}
	if (p->up->may_accept) {
		pthread_mutex_unlock(&h->lock);
		ok = p->up->may_accept(p->up_ctx, (struct port_filter *)l, l->attr.cookie);
		pthread_mutex_lock(&h->lock);
	}
	/* A kick that came before the answer may be what the answer has not seen. */
	if (!ok && !l->obj.dead && kicks == l->kicks)
		set_paused(h, l, l->paused | HOST_PAUSE_UP);
	return ok && !l->obj.dead;
}

/* Locked. The kernel's queue keeps what is in it; try when somebody may have given something back. */
static void accept_failed(struct port_host *h, struct host_listener *l, int error)
{
	if (log_allow(&h->accept_log, 1))
		log_warn("port", "accept: %s; trying again in %u ms", strerrordesc_np(error), HOST_ACCEPT_BACKOFF_MS);
	set_paused(h, l, l->paused | HOST_PAUSE_ERROR);
	host_arm(h, &l->obj, HOST_ACCEPT_BACKOFF_MS);
}

/**
 * host_listener_timer() - accept() may work again, or other processes had their time
 * @h: the instance
 * @l: the listener
 */
void host_listener_timer(struct port_host *h, struct host_listener *l)
{
	l->yielded |= !!(l->paused & HOST_PAUSE_YIELD);
	set_paused(h, l, l->paused & ~(HOST_PAUSE_ERROR | HOST_PAUSE_YIELD));
}

/* Locked. Local address and number are the listener's, unless that is on every address. */
static void child_tuple(const struct host_listener *l, int fd, const struct sockaddr_storage *peer, struct pkt_tuple *t)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	*t = l->attr.tuple;
	t->ipv4 = l->attr.ipv4;
	host_from_sockaddr(peer, t->rem_addr, &t->rem_port);
	if (pkt_addr_is_any(t->loc_addr) && !getsockname(fd, (struct sockaddr *)&ss, &len))
		host_from_sockaddr(&ss, t->loc_addr, &t->loc_port);
}

/* Locked. A connection for the 4-tuple that is still pending was reset: its peer would not have the number otherwise. */
static struct host_conn *child_new(struct port_host *h, struct host_listener *l, int fd, const struct pkt_tuple *t)
{
	struct host_conn *old = host_find_pending(h, t);
	struct host_conn *c;

	if (old)
		host_conn_kill(h, old, true);
	c = host_conn_new(l->port, t, HOST_PENDING);
	if (!c)
		return NULL;
	c->fd = fd;
	c->listener = l;
	TAILQ_INSERT_TAIL(&l->conns, c, waiting);
	l->waiting++;
	c->muted = host_is_own_peer(h, t);
	host_conn_hash(h, c);
	return c;
}

/* Locked; gives the lock up. */
static void accepted(struct port_host *h, struct host_listener *l, int fd, const struct sockaddr_storage *peer)
{
	struct pkt_tuple t;
	struct host_conn *c;

	child_tuple(l, fd, peer, &t);
	c = child_new(h, l, fd, &t);
	if (!c) {
		host_close_fd(fd, true);
		return;
	}
	if (host_watch(h, &c->obj, fd, HOST_EPOLL_STREAM)) {
		host_conn_kill(h, c, true);
		return;
	}
	c->offered_ms = host_now_ms(h);
	c->offer_interval_ms = HOST_OFFER_MS;
	c->todo = HOST_DO_SYN;
	host_conn_run(h, c);
}

/* Locked; gives the lock up. False: no more for now. */
static bool accept_one(struct port_host *h, struct host_listener *l)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int fd = accept4(l->fd, (struct sockaddr *)&ss, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0) {
		host_fork_took(h, l);
		fd_own(fd);
		accepted(h, l, fd, &ss);
		return true;
	}
	switch (errno) {
	case EAGAIN:
		l->burst = max(l->burst / 2, 1u);
		return false;
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
		accept_failed(h, l, errno);
		return false;
	default:
		return true; /* the connection's fault (accept(2)): the next one may be better */
	}
}

/**
 * host_listener_event() - connections are waiting in the kernel
 * @h: the instance
 * @l: the listener
 */
void host_listener_event(struct port_host *h, struct host_listener *l)
{
	u32 i;

	if (l->last_batch + 1 == h->batch)
		l->burst = min(l->burst * 2, HOST_BURST_MAX);
	l->last_batch = h->batch;
	host_obj_get(&l->obj);
	for (i = 0; i < l->burst && !l->paused; i++)
		if (host_fork_yields(h, l) || !may_accept(h, l) || !accept_one(h, l) || l->obj.dead)
			break;
	host_obj_put(h, &l->obj);
}

static int open_listener(struct host_listener *l)
{
	const struct port_filter_attr *a = &l->attr;
	int fd = host_bound_socket(l->port, a->ipv4, a->tuple.loc_addr, a->tuple.loc_port);
	int on = 1;

	if (fd < 0)
		return fd;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* accepted sockets inherit it */
	if (listen(fd, max(a->backlog, HOST_BACKLOG_MIN))) {
		int rc = -errno;

		fd_disown_close(fd);
		return rc;
	}
	l->fd = fd;
	return 0;
}

/* Locked. */
static int add_listener(struct port_host *h, struct host_listener *l)
{
	int rc = host_obj_add(h, &l->obj, HOST_LISTENER);

	if (rc) {
		host_close_fd(l->fd, false);
		free(l);
		return rc;
	}
	rc = l->fd >= 0 ? host_watch(h, &l->obj, l->fd, EPOLLIN) : 0;
	if (rc) {
		host_close_fd(l->fd, false);
		host_obj_kill(h, &l->obj);
	}
	return rc;
}

/**
 * host_filter_add() - port_ops.filter_add
 * @p: the port
 * @a: a listener, or a connection's 4-tuple, for which nothing has to be done here
 * @out: the filter
 *
 * Return: 0, -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EMFILE, -ENOMEM.
 */
int host_filter_add(struct port *p, const struct port_filter_attr *a, struct port_filter **out)
{
	struct port_host *h = host_port_of(p)->host;
	struct host_listener *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->port = host_port_of(p);
	l->attr = *a;
	l->fd = -1;
	l->burst = 1;
	TAILQ_INIT(&l->conns);
	rc = a->quad ? 0 : open_listener(l);
	if (rc) {
		free(l);
		return rc;
	}
	pthread_mutex_lock(&h->lock);
	rc = add_listener(h, l);
	if (!rc) /* the caller takes what is there for a filter */
		*out = (struct port_filter *)l;
	pthread_mutex_unlock(&h->lock);
	return rc;
}

/* Locked. The CM has not heard of a pending connection or cannot answer it; an adopted one is its own. */
static void leave_conns(struct port_host *h, struct host_listener *l)
{
	struct host_conn *c;

	while ((c = TAILQ_FIRST(&l->conns))) {
		if (c->state == HOST_PENDING)
			host_conn_kill(h, c, true);
		else
			host_listener_leave(h, c);
	}
}

/**
 * host_filter_del() - port_ops.filter_del
 * @p: the port
 * @f: the filter; connections that wait for it, in the kernel or here, are reset
 */
void host_filter_del(struct port *p, struct port_filter *f)
{
	struct port_host *h = host_port_of(p)->host;
	struct host_listener *l = host_listener_of(f);

	pthread_mutex_lock(&h->lock);
	leave_conns(h, l);
	host_close_fd(l->fd, false);
	l->fd = -1;
	host_obj_kill(h, &l->obj);
	pthread_mutex_unlock(&h->lock);
}

/**
 * host_filter_kick() - port_ops.filter_kick
 * @p: the port
 * @f: a listener whose backlog has room again
 */
void host_filter_kick(struct port *p, struct port_filter *f)
{
	struct port_host *h = host_port_of(p)->host;
	struct host_listener *l = host_listener_of(f);

	pthread_mutex_lock(&h->lock);
	l->kicks++;
	set_paused(h, l, l->paused & ~HOST_PAUSE_UP);
	pthread_mutex_unlock(&h->lock);
}
