/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: fork(). Both processes have every socket then, and the epoll set, which one of them would change for the other. The child gives the set
 * up, and puts each object's socket by: its descriptor is -1 to all code here, so whatever the child does with the object by accident (a timer runs, it is destroyed) fails
 * without a trace for the parent. host_fork_adopt() undoes that, when the parent has ended or the child's user insists.
 *
 * Since close() ends nothing while another process has the socket, host_close_fd() says it explicitly from then on. Reservations' sockets are
 * not put by: binding is all that was done to them.
 *
 * What the child has from its parent it may close, as a program that starts another one does: see base/fd.h. What is gone then ends like a connection that was reset.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "port/host_internal.h"

static int *fd_of(struct host_obj *o)
{
	if (o->kind == HOST_CONN)
		return &container_of(o, struct host_conn, obj)->fd;
	return &container_of(o, struct host_listener, obj)->fd;
}

/**
 * port_host_fork_prepare() - this process is about to fork
 * @h: the instance; the loop's thread is not in it
 */
void port_host_fork_prepare(struct port_host *h)
{
	pthread_mutex_lock(&h->lock);
}

/**
 * port_host_fork_parent() - it has forked
 * @h: the instance
 */
void port_host_fork_parent(struct port_host *h)
{
	host_sockets_shared |= h->nslots > 0;
	pthread_mutex_unlock(&h->lock);
}

static void put_by(struct port_host *h, struct host_obj *o)
{
	int *fd = fd_of(o);

	if (o->put_by < 0) {
		o->put_by = *fd;
		o->put_by_at = h->forks;
		fd_spare(*fd);
	}
	*fd = -1;
	/* What it was about to do waits, too. */
	if (o->kind == HOST_CONN)
		host_unqueue(h, container_of(o, struct host_conn, obj));
}

/**
 * port_host_fork_child() - it is the child of a fork
 * @h: the instance
 */
void port_host_fork_child(struct port_host *h)
{
	u32 i;

	host_sockets_shared |= h->nslots > 0;
	if (h->epfd >= 0) { /* else the parent was not resumed itself, and serves nothing */
		fd_disown_close(h->epfd);
		h->forks++;
	}
	h->epfd = -1;
	for (i = 1; i < h->nslots; i++)
		if (h->slots[i].obj)
			put_by(h, h->slots[i].obj);
	host_spare_reservations(h);
	pthread_mutex_unlock(&h->lock);
}

/**
 * port_host_fork_resume() - the child begins to use the port
 * @h: the instance
 *
 * Return: 0, -EMFILE, -ENOMEM.
 */
int port_host_fork_resume(struct port_host *h)
{
	h->epfd = fd_own_high(epoll_create1(EPOLL_CLOEXEC));
	return h->epfd < 0 ? -errno : 0;
}

/* Locked. The child closed it. A listener just hears no more. */
static void lost(struct port_host *h, struct host_obj *o)
{
	struct host_conn *c = container_of(o, struct host_conn, obj);

	o->put_by = -1;
	if (o->kind != HOST_CONN)
		return;
	if (c->state != HOST_STREAM) {
		host_conn_fail(h, c, -ECONNRESET);
		return;
	}
	__atomic_store_n(&c->error, -ECONNRESET, __ATOMIC_RELAXED);
	c->events |= PORT_RESET;
	host_queue(h, c);
}

/* Locked. */
static void adopt(struct port_host *h, struct host_obj *o)
{
	struct host_conn *c = o->kind == HOST_CONN ? container_of(o, struct host_conn, obj) : NULL;
	struct host_listener *l;

	if (!fd_reown(o->put_by)) {
		lost(h, o);
		return;
	}
	*fd_of(o) = o->put_by;
	o->put_by = -1;
	if (c && c->state == HOST_DRAIN) {
		host_watch(h, o, c->fd, host_drain_watch(c));
		return;
	}
	if (c) {
		host_watch(h, o, c->fd, HOST_EPOLL_STREAM);
		host_queue(h, c);
		return;
	}
	l = container_of(o, struct host_listener, obj);
	host_watch(h, o, l->fd, l->paused ? 0 : EPOLLIN);
}

/**
 * port_host_fork_adopt() - the child serves the sockets from before the fork
 * @h: the instance, resumed
 * @all: also those that its parent had not adopted from its own
 *
 * Return: true if there are some of the latter, and they stay put by.
 */
bool port_host_fork_adopt(struct port_host *h, bool all)
{
	bool left = false;
	u32 i;

	pthread_mutex_lock(&h->lock);
	for (i = 1; i < h->nslots; i++) {
		struct host_obj *o = h->slots[i].obj;

		if (!o || o->put_by < 0)
			continue;
		if (all || o->put_by_at == h->forks)
			adopt(h, o);
		else
			left = true;
	}
	pthread_mutex_unlock(&h->lock);
	return left;
}

/**
 * port_host_forks() - how often this process's line has forked
 * @h: the instance
 *
 * Return: forks whose parent was resumed, the first process included.
 */
u32 port_host_forks(const struct port_host *h)
{
	return h->forks;
}
