/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: fork(). Both processes have every socket then, and the epoll set, which one of them would change for the other. The child gives the set
 * up, and puts each object's socket by: its descriptor is -1 to all code here, so whatever the child does with the object by accident (a timer runs, it is destroyed) fails
 * without a trace for the parent. host_fork_adopt() undoes that, when the parent has ended or the child's user insists.
 *
 * Since close() ends nothing while another process has the socket, host_close_fd() says it explicitly from then on. Reservations' sockets are
 * not put by: binding is all that was done to them.
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

/* Locked. */
static void for_each_object(struct port_host *h, void (*fn)(struct port_host *h, struct host_obj *o))
{
	u32 i;

	for (i = 1; i < h->nslots; i++)
		if (h->slots[i].obj)
			fn(h, h->slots[i].obj);
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

	if (o->put_by < 0)
		o->put_by = *fd;
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
	host_sockets_shared |= h->nslots > 0;
	if (h->epfd >= 0)
		close(h->epfd);
	h->epfd = -1;
	for_each_object(h, put_by);
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
	h->epfd = epoll_create1(EPOLL_CLOEXEC);
	return h->epfd < 0 ? -errno : 0;
}

static void adopt(struct port_host *h, struct host_obj *o)
{
	struct host_listener *l;

	if (o->put_by < 0)
		return;
	*fd_of(o) = o->put_by;
	o->put_by = -1;
	if (o->kind == HOST_CONN) {
		host_watch(h, o, *fd_of(o), HOST_EPOLL_STREAM);
		host_queue(h, container_of(o, struct host_conn, obj));
		return;
	}
	l = container_of(o, struct host_listener, obj);
	host_watch(h, o, l->fd, l->paused ? 0 : EPOLLIN);
}

/**
 * port_host_fork_adopt() - the child serves the sockets from before the fork
 * @h: the instance, resumed
 */
void port_host_fork_adopt(struct port_host *h)
{
	pthread_mutex_lock(&h->lock);
	for_each_object(h, adopt);
	pthread_mutex_unlock(&h->lock);
}
