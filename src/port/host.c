/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: the kernel's TCP as the NIC's offload engine. Theory of operation.
 *
 * Goals. The CM above speaks TCP segments, as to a NIC with address handles; here an address handle
 * stands for a socket. What the CM sends becomes socket calls, and what happens on the socket
 * comes back as segments that a peer might have sent: the CM needs no second state machine, and the
 * machine's own addresses, port numbers, firewall and clean-up after a dead process apply. A connection
 * must cost little more than the socket calls that a plain program would make for it.
 *
 *   from the CM                        on the socket             back to the CM
 *   SYN                                bind, connect             SYN+ACK, or RST with the true cause
 *   -                                  accept                    SYN
 *   SYN+ACK                            -                         ACK
 *   payload                            send                      ACK of what the kernel took
 *   ACK, window                        recv while it is open     PSH+ACK with data
 *   FIN                                shutdown(SHUT_WR)         ACK
 *   -                                  end of file               FIN+ACK
 *   RST                                close with linger 0       -
 *   -                                  ECONNRESET, ETIMEDOUT...  RST with the true cause
 *
 * The peer's sequence numbers are made up; the kernel's own are not visible, and never equal to these.
 * An ACK means that the kernel has taken the bytes, not that the peer has.
 *
 * Events. One epoll instance has every socket, edge triggered and registered once for all it will ever
 * report; listeners are level triggered, since they can be told to wait (host_listen.c). Epoll
 * knows sockets by slot and generation, not by pointer: a report may be older than the socket's end,
 * in this batch or, if the process forked while a socket was open, for ever after.
 *
 * Order. Nothing goes up from inside a down call: it leaves a note (host_conn.todo) and puts the connection
 * on the ready queue, which the loop's thread serves in port_host_process(), after the epoll
 * events, or, when the note is left at another time, as work of the loop. The work item also is what wakes the
 * thread, or keeps it from sleeping; so a process needs a loop with its wake function set if it calls
 * down from several threads.
 *
 * Locks. One lock per instance has all of the CM's part: at that rate contention does not matter. It is given up
 * around every up call; host_obj.refs keeps the object meanwhile. A stream's send and receive take
 * no lock at all; what they share with the loop's thread is atomic (.left, .error).
 *
 * Timeouts. A segment that the CM did not take: 10 ms. A SYN that it did not answer: 200 ms, doubling, for
 * 10 s; then the connection, which the peer takes for established, is reset. Out of descriptors in accept():
 * 100 ms. A stream that drains: 2 s (host_drain.c). All others (SYN, FIN, data) are the kernel's.
 *
 * Left out: the kernel's retransmissions and the peer's real header fields are not seen, so not shown to taps;
 * urgent data; TCP_REPAIR, which would give the real sequence numbers, but only to root.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "port/host_internal.h"

#define FIRST_SLOTS 64u

/* ---- objects and their slots ---- */

/* Locked. */
static int grow_slots(struct port_host *h)
{
	u32 i, n = h->nslots ? h->nslots * 2 : FIRST_SLOTS;
	struct host_slot *slots = reallocarray(h->slots, n, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	memset(slots + h->nslots, 0, (n - h->nslots) * sizeof(*slots));
	for (i = n - 1; i >= max(h->nslots, 1u); i--) {
		slots[i].next = h->free_slot;
		h->free_slot = i;
	}
	h->slots = slots;
	h->nslots = n;
	return 0;
}

/**
 * host_obj_add() - give an object a slot
 * @h: the instance
 * @o: the object, zeroed
 * @kind: what it is
 *
 * Return: 0 or -ENOMEM.
 */
int host_obj_add(struct port_host *h, struct host_obj *o, enum host_kind kind)
{
	struct host_slot *s;

	if (!h->free_slot && grow_slots(h))
		return -ENOMEM;
	o->kind = kind;
	o->put_by = -1;
	o->slot = h->free_slot;
	s = &h->slots[o->slot];
	h->free_slot = s->next;
	s->obj = o;
	o->generation = s->generation;
	return 0;
}

static void obj_free(struct host_obj *o)
{
	if (o->kind == HOST_CONN)
		host_conn_free(container_of(o, struct host_conn, obj));
	else
		free(container_of(o, struct host_listener, obj));
}

/**
 * host_obj_kill() - the owner gives an object up
 * @h: the instance
 * @o: the object: its descriptor is closed, it is in no list; freed now or when the last callback has returned
 */
void host_obj_kill(struct port_host *h, struct host_obj *o)
{
	struct host_slot *s = &h->slots[o->slot];

	host_disarm(h, o);
	fd_disown_close(o->put_by);
	s->obj = NULL;
	s->generation++;
	s->next = h->free_slot;
	h->free_slot = o->slot;
	o->dead = true;
	if (!o->refs)
		obj_free(o);
}

/**
 * host_obj_get() - keep an object while the lock is given up
 * @o: the object
 */
void host_obj_get(struct host_obj *o)
{
	o->refs++;
}

/**
 * host_obj_put() - end of what host_obj_get() began
 * @h: the instance
 * @o: the object; freed if it was killed meanwhile
 */
void host_obj_put(struct port_host *h, struct host_obj *o)
{
	assert(o->refs > 0);
	if (--o->refs == 0 && o->dead)
		obj_free(o);
}

/* Locked. What an epoll report is about, or NULL if that has ended. */
static struct host_obj *obj_of_event(const struct port_host *h, u64 data)
{
	u32 slot = (u32)data;

	if (slot >= h->nslots || h->slots[slot].generation != (u32)(data >> 32))
		return NULL;
	return h->slots[slot].obj;
}

static int watch(const struct port_host *h, const struct host_obj *o, int fd, int op, u32 events)
{
	struct epoll_event ev = { .events = events, .data.u64 = (u64)o->generation << 32 | o->slot };

	return epoll_ctl(h->epfd, op, fd, &ev) ? -errno : 0;
}

/**
 * host_watch() - begin to report what happens on an object's socket
 * @h: the instance
 * @o: the object
 * @fd: its socket; closing it ends the reports
 * @events: of epoll
 *
 * Return: 0 or a negative errno.
 */
int host_watch(struct port_host *h, const struct host_obj *o, int fd, u32 events)
{
	return watch(h, o, fd, EPOLL_CTL_ADD, events);
}

/**
 * host_rewatch() - change what is reported
 * @h: the instance
 * @o: the object
 * @fd: its socket
 * @events: of epoll
 *
 * Return: 0 or a negative errno.
 */
int host_rewatch(struct port_host *h, const struct host_obj *o, int fd, u32 events)
{
	return watch(h, o, fd, EPOLL_CTL_MOD, events);
}

/* ---- timers ---- */

/* Locked. */
static void arm_loop_timer(struct port_host *h)
{
	u64 next = wheel_next(&h->wheel);

	if (next >= h->timer_ms)
		return;
	h->timer_ms = next;
	mod_timer(&h->timer, next * NSEC_PER_MSEC);
}

/**
 * host_arm() - arm an object's timer
 * @h: the instance
 * @o: the object
 * @delay_ms: from now
 */
void host_arm(struct port_host *h, struct host_obj *o, u64 delay_ms)
{
	wheel_add(&h->wheel, &o->timer, host_now_ms(h) + delay_ms);
	arm_loop_timer(h);
}

/**
 * host_disarm() - disarm an object's timer
 * @h: the instance
 * @o: the object
 */
void host_disarm(struct port_host *h, struct host_obj *o)
{
	wheel_del(&h->wheel, &o->timer);
}

static void expire(struct port_host *h, struct host_obj *o)
{
	if (o->kind == HOST_CONN)
		host_conn_timer(h, container_of(o, struct host_conn, obj));
	else
		host_listener_timer(h, container_of(o, struct host_listener, obj));
}

/* Only leaves notes; deliveries follow as work. */
static void host_timer_function(struct timer_list *t)
{
	struct port_host *h = container_of(t, struct port_host, timer);
	struct wheel_timer *wt;

	pthread_mutex_lock(&h->lock);
	h->timer_ms = UINT64_MAX;
	while ((wt = wheel_expire(&h->wheel, host_now_ms(h))))
		expire(h, container_of(wt, struct host_obj, timer));
	arm_loop_timer(h);
	pthread_mutex_unlock(&h->lock);
}

/* ---- ready queue ---- */

/**
 * host_queue() - have a connection served by the loop's thread
 * @h: the instance
 * @c: the connection; harmless if it is queued
 */
void host_queue(struct port_host *h, struct host_conn *c)
{
	if (c->queued)
		return;
	c->queued = true;
	TAILQ_INSERT_TAIL(&h->ready, c, ready);
	if (!h->draining)
		workq_queue(&h->workq, &h->work);
}

/**
 * host_unqueue() - opposite of host_queue()
 * @h: the instance
 * @c: the connection; harmless if it is not queued
 */
void host_unqueue(struct port_host *h, struct host_conn *c)
{
	if (!c->queued)
		return;
	c->queued = false;
	TAILQ_REMOVE(&h->ready, c, ready);
}

/* Locked; gives the lock up. Returns how many were served, at most HOST_RUN_MAX. */
static u32 drain(struct port_host *h)
{
	struct host_conn *c;
	u32 n;

	for (n = 0; n < HOST_RUN_MAX && (c = TAILQ_FIRST(&h->ready)); n++) {
		host_unqueue(h, c);
		if (c->state == HOST_STREAM)
			host_stream_run(h, c);
		else
			host_conn_run(h, c);
	}
	return n;
}

/* Locked: from here on a note that is left needs no wake. */
static void drain_begin(struct port_host *h)
{
	h->draining = true;
}

/* Locked: the rest, if there is any, waits for the loop. */
static void drain_end(struct port_host *h)
{
	h->draining = false;
	if (!TAILQ_EMPTY(&h->ready))
		workq_queue(&h->workq, &h->work);
}

static void host_work_function(struct work_struct *w)
{
	struct port_host *h = container_of(w, struct port_host, work);

	pthread_mutex_lock(&h->lock);
	drain_begin(h);
	drain(h);
	drain_end(h);
	pthread_mutex_unlock(&h->lock);
}

/* ---- the instance ---- */

/* Locked; may give the lock up. */
static void handle_conn(struct port_host *h, struct host_conn *c, u32 epoll_events)
{
	if (c->state == HOST_STREAM)
		host_stream_event(h, c, epoll_events);
	else if (c->state == HOST_DRAIN)
		host_drain_event(h, c, epoll_events);
	else
		host_conn_event(h, c, epoll_events);
}

static void handle_event(struct port_host *h, const struct epoll_event *ev)
{
	struct host_obj *o;

	pthread_mutex_lock(&h->lock);
	o = obj_of_event(h, ev->data.u64);
	if (o && o->kind == HOST_LISTENER)
		host_listener_event(h, container_of(o, struct host_listener, obj));
	else if (o)
		handle_conn(h, container_of(o, struct host_conn, obj), ev->events);
	pthread_mutex_unlock(&h->lock);
}

/* Somebody has closed it, by a system call of his own; what has its number now may be his. */
static void lose_epoll(struct port_host *h)
{
	fd_disown(h->epfd);
	h->epfd = -1;
}

/**
 * port_host_process() - handle what happened on the sockets
 * @h: the instance
 *
 * From the loop's thread, between loop_enter() and loop_leave() or not. All up calls of the host port
 * come from here and from loop_run().
 *
 * Return: true if anything was done; there may be more then.
 */
bool port_host_process(struct port_host *h)
{
	struct epoll_event ev[HOST_EVENTS_MAX];
	int i, n;
	u32 served;

	n = epoll_wait(h->epfd, ev, HOST_EVENTS_MAX, 0);
	if (unlikely(n < 0) && (errno == EBADF || errno == EINVAL))
		lose_epoll(h);
	pthread_mutex_lock(&h->lock);
	drain_begin(h);
	h->batch++;
	pthread_mutex_unlock(&h->lock);
	for (i = 0; i < n; i++)
		handle_event(h, &ev[i]);
	pthread_mutex_lock(&h->lock);
	served = drain(h);
	drain_end(h);
	pthread_mutex_unlock(&h->lock);
	return n > 0 || served;
}

/**
 * port_host_fd() - what to sleep on
 * @h: the instance
 *
 * Return: a descriptor that polls readable when port_host_process() has work; -1: it was closed behind our back.
 */
int port_host_fd(const struct port_host *h)
{
	return h->epfd;
}

static int init_tables(struct port_host *h)
{
	int rc = hash_init(&h->conns, NULL);

	if (rc)
		return rc;
	rc = hash_init(&h->reservations, NULL);
	if (rc)
		hash_destroy(&h->conns);
	return rc;
}

/**
 * port_host_open() - the kernel's TCP as something to plug NICs into
 * @loop: whose thread calls up
 * @net: the machine's network
 * @out: the instance; one per process will do
 *
 * Return: 0, -ENOMEM, -EMFILE.
 */
int port_host_open(struct loop *loop, struct net *net, struct port_host **out)
{
	struct port_host *h = calloc(1, sizeof(*h));
	int rc;

	if (!h)
		return -ENOMEM;
	h->loop = loop;
	h->net = net;
	h->epfd = fd_own_high(epoll_create1(EPOLL_CLOEXEC));
	if (h->epfd < 0) {
		rc = -errno;
		goto free_host;
	}
	rc = init_tables(h);
	if (rc)
		goto close_epoll;
	pthread_mutex_init(&h->lock, NULL);
	TAILQ_INIT(&h->ready);
	TAILQ_INIT(&h->drains);
	LIST_INIT(&h->ports);
	workq_init(&h->workq, loop);
	work_setup(&h->work, host_work_function);
	wheel_init(&h->wheel, host_now_ms(h));
	timer_setup(&h->timer, loop, host_timer_function);
	h->timer_ms = UINT64_MAX;
	*out = h;
	return 0;
close_epoll:
	fd_disown_close(h->epfd);
free_host:
	free(h);
	return rc;
}

/**
 * port_host_close() - end an instance
 * @h: the instance; all ports are unplugged, and the loop's thread is not in it
 */
void port_host_close(struct port_host *h)
{
	assert(LIST_EMPTY(&h->ports));
	timer_del(&h->timer);
	workq_cancel(&h->work);
	hash_destroy(&h->conns);
	hash_destroy(&h->reservations);
	pthread_mutex_destroy(&h->lock);
	fd_disown_close(h->epfd);
	host_fork_destroy(h);
	free(h->slots);
	free(h);
}

/**
 * port_host_plug() - plug a NIC in
 * @h: the instance
 * @iface: interface that the NIC is for
 * @up: the NIC's functions
 * @ctx: handed to them
 * @out: the port
 *
 * Return: 0 or -ENOMEM.
 */
int port_host_plug(struct port_host *h, const struct net_iface *iface, const struct port_up *up, void *ctx, struct port **out)
{
	struct host_port *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->host = h;
	p->port.ops = &host_ops;
	p->port.loop = h->loop;
	p->port.net = h->net;
	p->port.iface = *iface;
	p->port.up = up;
	p->port.up_ctx = ctx;
	TAILQ_INIT(&p->port.taps);
	pthread_mutex_lock(&h->lock);
	LIST_INSERT_HEAD(&h->ports, p, entry);
	pthread_mutex_unlock(&h->lock);
	*out = &p->port;
	return 0;
}

/* Address handles, filters and streams are gone already; reservations, and streams that drain, need not be. */
static void host_unplug(struct port *p)
{
	struct host_port *hp = host_port_of(p);
	struct port_host *h = hp->host;

	pthread_mutex_lock(&h->lock);
	host_drain_unplug(hp);
	host_drop_reservations(hp);
	LIST_REMOVE(hp, entry);
	pthread_mutex_unlock(&h->lock);
	free(hp);
}

static int host_tx_frame(struct port *p, const void *frame, u32 len)
{
	return -EOPNOTSUPP;
}

static int host_time_wait(struct port *p, const struct tcp_info_ho *info)
{
	return 0; /* the kernel has it */
}

const struct port_ops host_ops = {
	.name = "host",
	.flags = PORT_CHECKSUMS | PORT_TIME_WAIT,
	.unplug = host_unplug,
	.tx_frame = host_tx_frame,
	.tx_ah = host_tx_ah,
	.ah_create = host_ah_create,
	.ah_destroy = host_ah_destroy,
	.filter_add = host_filter_add,
	.filter_del = host_filter_del,
	.filter_kick = host_filter_kick,
	.reserve = host_reserve,
	.release = host_release,
	.offload = host_offload,
	.time_wait = host_time_wait,
	.stream_send = host_stream_send,
	.stream_recv = host_stream_recv,
	.stream_shutdown = host_stream_shutdown,
	.stream_abort = host_stream_abort,
	.stream_close = host_stream_close,
	.stream_drain = host_stream_drain,
	.stream_error = host_stream_error,
	.stream_quiet = host_stream_quiet,
};
