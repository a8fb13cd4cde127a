// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * net: queries on the model, and watchers.
 *
 * Changes reach the model under net->lock and leave an event in a queue; net_process() alone takes
 * events out and calls the watchers, one event at a time, without the lock. Only one thread
 * delivers at a time, so every watcher sees events in the order in which they happened; a
 * second thread (or a callback) that calls net_process() meanwhile makes the first look again.
 *
 * "Routes are stale" is a flag, not a queued event: however many changes a batch holds, the
 * watchers are told once, behind them.
 *
 * Without a watcher nothing is queued: whoever registers later reads the state as it is then.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "net/net_internal.h"

__thread struct net *net_current;

/**
 * net_base_init() - set up what both kinds share
 * @net: zeroed memory
 * @ops: the kind
 *
 * Return: 0 or -ENOMEM, then nothing needs undoing.
 */
int net_base_init(struct net *net, const struct net_ops *ops)
{
	net->ops = ops;
	TAILQ_INIT(&net->ifaces);
	TAILQ_INIT(&net->watchers);
	STAILQ_INIT(&net->events);
	if (hash_init(&net->by_index, NULL))
		return -ENOMEM;
	if (hash_init(&net->by_name, NULL))
		goto destroy_by_index;
	if (hash_init(&net->locals, NULL))
		goto destroy_by_name;
	pthread_mutex_init(&net->lock, NULL);
	pthread_cond_init(&net->called, NULL);
	return 0;

destroy_by_name:
	hash_destroy(&net->by_name);
destroy_by_index:
	hash_destroy(&net->by_index);
	return -ENOMEM;
}

static struct net_queued *events_take(struct net *net)
{
	struct net_queued *q = STAILQ_FIRST(&net->events);

	if (q)
		STAILQ_REMOVE_HEAD(&net->events, entry);
	return q;
}

/**
 * net_base_destroy() - free what both kinds share; not @net itself
 * @net: the network; no other thread uses it any more
 */
void net_base_destroy(struct net *net)
{
	struct net_queued *q;

	pthread_mutex_lock(&net->lock);
	net_model_clear(net);
	while ((q = events_take(net)))
		free(q);
	pthread_mutex_unlock(&net->lock);
	hash_destroy(&net->locals);
	hash_destroy(&net->by_name);
	hash_destroy(&net->by_index);
	pthread_cond_destroy(&net->called);
	pthread_mutex_destroy(&net->lock);
}

/**
 * net_post() - queue an event for the watchers
 * @net: the network, locked
 * @type: what is about to happen
 * @i: interface concerned, as it will be
 * @a: address concerned, or NULL
 *
 * Before the model changes: a change that cannot be told must not happen.
 *
 * Return: 0 or -ENOMEM.
 */
int net_post(struct net *net, enum net_event_type type, const struct net_iface *i, const struct net_addr *a)
{
	struct net_queued *q;

	if (TAILQ_EMPTY(&net->watchers))
		return 0;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	net_post_gone(net, q, type, i, a);
	return 0;
}

/**
 * net_post_gone() - the same for what cannot be kept from happening
 * @net: the network, locked
 * @q: memory that was taken when the interface or address came; freed if nobody watches
 * @type: what happens
 * @i: interface concerned
 * @a: address concerned, or NULL
 */
void net_post_gone(struct net *net, struct net_queued *q, enum net_event_type type, const struct net_iface *i, const struct net_addr *a)
{
	if (TAILQ_EMPTY(&net->watchers)) {
		free(q);
		return;
	}
	q->e = (struct net_event){ .type = type, .iface = *i };
	if (a)
		q->e.addr = *a;
	STAILQ_INSERT_TAIL(&net->events, q, entry);
}

/**
 * net_stale() - routes or neighbours are not what they were
 * @net: the network, locked
 */
void net_stale(struct net *net)
{
	if (net->ops->stale)
		net->ops->stale(net);
	if (!TAILQ_EMPTY(&net->watchers))
		net->routes_stale = true;
}

/**
 * net_close() - forget a network
 * @net: the network, or NULL; its watchers are gone, no other thread uses it
 */
void net_close(struct net *net)
{
	if (!net)
		return;
	assert(!net->processing);
	net->ops->close(net);
}

/**
 * net_fd() - descriptor to poll
 * @net: the network
 *
 * Return: a descriptor that is readable when net_process() has work; -1: there is none.
 */
int net_fd(const struct net *net)
{
	return net->ops->fd ? net->ops->fd(net) : -1;
}

/**
 * net_is_behind() - is the model out of date, and nothing going to tell?
 * @net: the network
 *
 * Return: true: net_process() should be called again, in a while.
 */
bool net_is_behind(const struct net *net)
{
	return __atomic_load_n(&net->behind, __ATOMIC_RELAXED);
}

/* The lock is dropped around each callback, so the walk goes by a cursor that net_unwatch() moves on. */
static void deliver(struct net *net, const struct net_event *e)
{
	struct net_watcher *w;

	net->cursor = TAILQ_FIRST(&net->watchers);
	while ((w = net->cursor)) {
		net->cursor = TAILQ_NEXT(w, entry);
		net->calling = w;
		pthread_mutex_unlock(&net->lock);
		w->event(w, e);
		pthread_mutex_lock(&net->lock);
		net->calling = NULL;
		pthread_cond_broadcast(&net->called);
	}
}

static void deliver_queue(struct net *net)
{
	struct net_event stale = { .type = NET_ROUTES_CHANGED };
	struct net_queued *q;

	while ((q = events_take(net)) || net->routes_stale) {
		if (!q)
			net->routes_stale = false;
		deliver(net, q ? &q->e : &stale);
		free(q);
	}
}

/**
 * net_process() - read what changed and call the watchers
 * @net: the network
 *
 * Returns at once if this or another thread is already in it: that one then looks again.
 */
void net_process(struct net *net)
{
	pthread_mutex_lock(&net->lock);
	net->again = true;
	if (net->processing)
		goto unlock;
	net->processing = true;
	net->processor = pthread_self();
	while (net->again) {
		net->again = false;
		if (net->ops->poll) {
			pthread_mutex_unlock(&net->lock);
			net->ops->poll(net);
			pthread_mutex_lock(&net->lock);
		}
		deliver_queue(net);
	}
	net->processing = false;
unlock:
	pthread_mutex_unlock(&net->lock);
}

/**
 * net_watch() - have changes reported
 * @net: the network
 * @w: the watcher, its callback set; stays the caller's
 *
 * To miss nothing, watch first, then read the state; a change in between is then seen twice.
 */
void net_watch(struct net *net, struct net_watcher *w)
{
	pthread_mutex_lock(&net->lock);
	TAILQ_INSERT_TAIL(&net->watchers, w, entry);
	pthread_mutex_unlock(&net->lock);
}

/**
 * net_unwatch() - have changes no longer reported
 * @net: the network
 * @w: the watcher; its memory is the caller's again
 *
 * A callback may unwatch itself or others. From another thread it waits for a running callback
 * of @w, so the caller must hold no lock which that callback takes.
 */
void net_unwatch(struct net *net, struct net_watcher *w)
{
	pthread_mutex_lock(&net->lock);
	if (net->cursor == w)
		net->cursor = TAILQ_NEXT(w, entry);
	TAILQ_REMOVE(&net->watchers, w, entry);
	while (net->calling == w && !pthread_equal(net->processor, pthread_self()))
		pthread_cond_wait(&net->called, &net->lock);
	pthread_mutex_unlock(&net->lock);
}

/**
 * net_ifaces() - all interfaces
 * @net: the network
 * @out: room for @max, or NULL if that is 0
 * @max: how many to write at most
 *
 * Return: how many there are.
 */
size_t net_ifaces(struct net *net, struct net_iface *out, size_t max)
{
	struct net_iface_rec *r;
	size_t n = 0;

	pthread_mutex_lock(&net->lock);
	TAILQ_FOREACH(r, &net->ifaces, entry) {
		if (n < max)
			out[n] = r->i;
		n++;
	}
	pthread_mutex_unlock(&net->lock);
	return n;
}

static size_t addrs_of(const struct net_iface_rec *i, struct net_addr *out, size_t max, size_t n)
{
	struct net_addr_rec *r;

	TAILQ_FOREACH(r, &i->addrs, entry) {
		if (n < max)
			out[n] = r->a;
		n++;
	}
	return n;
}

/**
 * net_addrs() - all addresses, or those of one interface
 * @net: the network
 * @ifindex: the interface, 0: all
 * @out: room for @max, or NULL if that is 0
 * @max: how many to write at most
 *
 * Return: how many there are.
 */
size_t net_addrs(struct net *net, u32 ifindex, struct net_addr *out, size_t max)
{
	struct net_iface_rec *i;
	size_t n = 0;

	pthread_mutex_lock(&net->lock);
	if (ifindex) {
		i = net_model_iface(net, ifindex);
		if (i)
			n = addrs_of(i, out, max, n);
	} else {
		TAILQ_FOREACH(i, &net->ifaces, entry)
			n = addrs_of(i, out, max, n);
	}
	pthread_mutex_unlock(&net->lock);
	return n;
}

static int iface_copy(const struct net_iface_rec *r, struct net_iface *out)
{
	if (!r)
		return -ENODEV;
	if (out)
		*out = r->i;
	return 0;
}

/**
 * net_iface_by_index() - find an interface
 * @net: the network
 * @ifindex: its number
 * @out: filled; may be NULL
 *
 * Return: 0 or -ENODEV.
 */
int net_iface_by_index(struct net *net, u32 ifindex, struct net_iface *out)
{
	int err;

	pthread_mutex_lock(&net->lock);
	err = iface_copy(net_model_iface(net, ifindex), out);
	pthread_mutex_unlock(&net->lock);
	return err;
}

/**
 * net_iface_by_name() - find an interface
 * @net: the network
 * @name: its name
 * @out: filled; may be NULL
 *
 * Return: 0 or -ENODEV.
 */
int net_iface_by_name(struct net *net, const char *name, struct net_iface *out)
{
	int err;

	pthread_mutex_lock(&net->lock);
	err = iface_copy(net_model_iface_named(net, name), out);
	pthread_mutex_unlock(&net->lock);
	return err;
}

/* Any of 127.0.0.0/8 is ours, though the interface lists 127.0.0.1 alone. */
static bool local_127(const struct net *net, const u32 *addr, struct net_addr *a)
{
	if (!net->loopback)
		return false;
	*a = (struct net_addr){ .ifindex = net->loopback->i.ifindex, .ipv4 = true, .prefix_len = 8 };
	net_addr_copy(true, a->addr, addr);
	return true;
}

static bool local_find(const struct net *net, bool ipv4, const u32 *addr, struct net_addr *a)
{
	struct net_addr_rec *r = net_model_local(net, ipv4, addr, 0);

	if (!r)
		return net_in_127(ipv4, addr) && local_127(net, addr, a);
	*a = r->a;
	return true;
}

/**
 * net_local() - which interface holds an address of ours
 * @net: the network
 * @ipv4: family of @addr
 * @addr: the address
 * @iface: filled; may be NULL
 * @a: filled; may be NULL
 *
 * Of several interfaces that hold @addr, the one that had it first.
 *
 * Return: 0 or -EADDRNOTAVAIL.
 */
int net_local(struct net *net, bool ipv4, const u32 *addr, struct net_iface *iface, struct net_addr *a)
{
	struct net_addr found;
	bool ok;

	pthread_mutex_lock(&net->lock);
	ok = local_find(net, ipv4, addr, &found);
	if (ok && iface)
		iface_copy(net_model_iface(net, found.ifindex), iface);
	pthread_mutex_unlock(&net->lock);
	if (!ok)
		return -EADDRNOTAVAIL;
	if (a)
		*a = found;
	return 0;
}

/**
 * net_route_get() - the way to a destination
 * @net: the network
 * @ipv4: family of the addresses
 * @src: the source that will be used; NULL or all zero: choose one
 * @dst: the destination
 * @oif: interface to leave by; 0: any
 * @out: filled on success
 *
 * Return: 0; -ENETUNREACH (no route, or a blackhole); -EHOSTUNREACH (an unreachable route);
 * -EACCES (a prohibit route); -EADDRNOTAVAIL (@src is not ours); the kernel may have other reasons.
 */
int net_route_get(struct net *net, bool ipv4, const u32 *src, const u32 *dst, u32 oif, struct net_route *out)
{
	u32 from[4], to[4];

	net_addr_copy(ipv4, to, dst);
	if (src)
		net_addr_copy(ipv4, from, src);
	if (src && net_addr_any(from))
		src = NULL;
	memset(out, 0, sizeof(*out));
	return net->ops->route_get(net, ipv4, src ? from : NULL, to, oif, out);
}

/**
 * net_neigh_get() - link address of an on-link address
 * @net: the network
 * @ifindex: interface it is reached by
 * @ipv4: family of @addr; IPv4 with words 1 to 3 set is the IPv6 gateway of an IPv4 route (RFC 8950)
 * @addr: the neighbour
 * @mac: filled on success; zeros on the loopback interface
 *
 * Return: 0; -EAGAIN: not known yet, it is being asked for; -EHOSTUNREACH: it did not answer (the next
 * call asks anew), or the interface is down; -ENODEV.
 */
int net_neigh_get(struct net *net, u32 ifindex, bool ipv4, const u32 *addr, u8 mac[6])
{
	if (ipv4 && (addr[1] | addr[2] | addr[3]))
		ipv4 = false;
	return net->ops->neigh_get(net, ifindex, ipv4, addr, mac);
}
