/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: fork(). Both processes have every socket then, and the epoll set, which one of them would change for the other. The child gives the set
 * up, and puts each object's socket by: its descriptor is -1 to all code here, so whatever the child does with the object by accident (a timer runs, it is destroyed) fails
 * without a trace for the parent. host_fork_adopt() undoes that, when the parent has ended or the child's user insists.
 *
 * Since close() ends nothing while another process has the socket, host_close_fd() says it explicitly from then on. Reservations' sockets are
 * not put by: binding is all that was done to them.
 *
 * Listeners that two processes serve. A connection that the wrong one accepts waits for a user who does not come: a server that listens and then forks its workers only waits
 * for these to end; one that becomes a daemon ends. So a connection stays in the kernel's queue until it is clear whose it is (host_fork_yields()): it goes to a process whose user
 * waits for events just now, at once. A process whose user never asked for an event leaves it for FORK_GRACE_MS after a fork, for its child may be about to ask; and for good when a
 * child does: when that ends, another child may ask, or this user. Where several ask, one that is busy leaves it to the others for BUSY_MS. Users that sit in poll()
 * are not seen: they count as busy, or, while they have not taken any event, as not asking.
 *
 * What the child has from its parent it may close, as a program that starts another one does: see base/fd.h. What is gone then ends like a connection that was reset.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>
#include "port/host_internal.h"

#define FORK_GRACE_MS 1000u
#define BUSY_MS 1000u
#define FOR_EVER UINT64_MAX

static int *fd_of(struct host_obj *o)
{
	if (o->kind == HOST_CONN)
		return &container_of(o, struct host_conn, obj)->fd;
	return &container_of(o, struct host_listener, obj)->fd;
}

/* ---- listeners that processes share ---- */

/* Locked. Without the memory each process takes what it gets. */
static void found_family(struct port_host *h)
{
	void *p;

	if (h->family)
		return;
	p = mmap(NULL, sizeof(*h->family), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	__atomic_store_n(&h->family, p == MAP_FAILED ? NULL : p, __ATOMIC_RELEASE);
}

void host_fork_destroy(struct port_host *h)
{
	if (h->family)
		munmap(h->family, sizeof(*h->family));
}

/* Locked. */
static void each_listener(struct port_host *h, void (*fn)(struct port_host *h, struct host_listener *l))
{
	for (u32 i = 1; i < h->nslots; i++) {
		struct host_obj *o = h->slots[i].obj;

		if (o && o->kind == HOST_LISTENER)
			fn(h, container_of(o, struct host_listener, obj));
	}
}

static void share(struct port_host *h, struct host_listener *l)
{
	found_family(h);
	l->shared = l->shared || l->fd >= 0;
}

/* Other processes whose users may ask for connections: others that did, or this one's parent, which may also make more of them. */
static bool has_others(const struct port_host *h)
{
	if (__atomic_load_n(&h->family->adopters, __ATOMIC_SEQ_CST) != h->adopter)
		return true;
	return h->adopted && getppid() == h->parent;
}

/* How long a connection is left to others. */
static u64 yield_ms(const struct port_host *h)
{
	u64 end = h->forked_ms + FORK_GRACE_MS, now = host_now_ms(h);

	if (__atomic_load_n(&h->waiters, __ATOMIC_SEQ_CST) > h->given)
		return 0;
	if (__atomic_load_n(&h->asked, __ATOMIC_RELAXED))
		return has_others(h) ? BUSY_MS : 0;
	if (h->adopted)
		return BUSY_MS;
	if (has_others(h))
		return FOR_EVER;
	return now < end ? end - now : 0;
}

/**
 * host_fork_yields() - shall other processes have what waits at a listener?
 * @h: the instance
 * @l: the listener; paused if so
 *
 * Return: true if so, for now.
 */
bool host_fork_yields(struct port_host *h, struct host_listener *l)
{
	u64 ms = l->shared && h->family ? yield_ms(h) : 0;

	if (!ms || (l->yielded && ms != FOR_EVER)) {
		l->yielded = false;
		return false;
	}
	host_listener_pause(h, l, HOST_PAUSE_YIELD, true);
	if (ms != FOR_EVER)
		host_arm(h, &l->obj, ms);
	return true;
}

/**
 * host_fork_took() - a connection was accepted
 * @h: the instance
 * @l: its listener
 */
void host_fork_took(struct port_host *h, const struct host_listener *l)
{
	if (l->shared && h->given < __atomic_load_n(&h->waiters, __ATOMIC_RELAXED))
		h->given++;
}

static void stop_yielding(struct port_host *h, struct host_listener *l)
{
	if (l->paused & HOST_PAUSE_YIELD)
		host_listener_pause(h, l, HOST_PAUSE_YIELD, false);
}

/* Locked. */
static void begin_asking(struct port_host *h)
{
	if (h->adopted && !h->adopter) {
		h->adopter = true;
		__atomic_fetch_add(&h->family->adopters, 1, __ATOMIC_SEQ_CST);
	}
	each_listener(h, stop_yielding);
}

/* Locked: what was taken for the thread that ends is not for the next one. */
static void forget_given(struct port_host *h)
{
	u32 waiters = __atomic_load_n(&h->waiters, __ATOMIC_RELAXED);

	h->given = min(h->given ? h->given - 1 : 0, waiters);
}

/**
 * port_host_wait() - the user begins, or ends, to wait for what comes from listeners
 * @h: the instance
 * @begin: it begins
 */
void port_host_wait(struct port_host *h, bool begin)
{
	if (begin) {
		__atomic_store_n(&h->asked, true, __ATOMIC_RELAXED);
		__atomic_fetch_add(&h->waiters, 1, __ATOMIC_SEQ_CST);
	} else {
		__atomic_fetch_sub(&h->waiters, 1, __ATOMIC_SEQ_CST);
	}
	if (likely(!__atomic_load_n(&h->family, __ATOMIC_ACQUIRE)))
		return;
	pthread_mutex_lock(&h->lock);
	if (begin)
		begin_asking(h);
	else
		forget_given(h);
	pthread_mutex_unlock(&h->lock);
}

/* ---- fork ---- */

/**
 * port_host_fork_prepare() - this process is about to fork
 * @h: the instance; the loop's thread is not in it
 */
void port_host_fork_prepare(struct port_host *h)
{
	pthread_mutex_lock(&h->lock);
	each_listener(h, share);
}

/**
 * port_host_fork_parent() - it has forked
 * @h: the instance
 */
void port_host_fork_parent(struct port_host *h)
{
	host_sockets_shared |= h->nslots > 0;
	h->forked_ms = loop_monotonic_ns() / NSEC_PER_MSEC;
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
	h->given = h->waiters = 0;
	h->asked = h->adopted = h->adopter = false;
	h->parent = getppid();
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
	l->paused &= ~HOST_PAUSE_YIELD;
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
	h->adopted |= all;
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
