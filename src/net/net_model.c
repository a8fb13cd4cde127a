// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * net: the model of interfaces and addresses. Every change goes through here, and posts its events, so
 * that both kinds report alike: an address always appears after its interface and goes before it.
 * All functions want net->lock held.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "net/net_internal.h"

struct local_key {
	u32 ipv4;
	u32 addr[4];
};

/* The system numbers interfaces one after the other. */
static u64 index_hash(u32 ifindex)
{
	return ifindex;
}

static bool index_eq(const struct hash_node *n, const void *key)
{
	return container_of(n, const struct net_iface_rec, by_index)->i.ifindex == *(const u32 *)key;
}

static bool name_eq(const struct hash_node *n, const void *key)
{
	return !strcmp(container_of(n, const struct net_iface_rec, by_name)->i.name, key);
}

static bool local_eq(const struct hash_node *n, const void *key)
{
	const struct net_local_rec *l = container_of(n, const struct net_local_rec, node);
	const struct local_key *k = key;

	return l->ipv4 == k->ipv4 && net_addr_same(l->addr, k->addr);
}

/**
 * net_model_iface() - find an interface by number
 * @net: the network
 * @ifindex: its number
 *
 * Return: the interface or NULL.
 */
struct net_iface_rec *net_model_iface(const struct net *net, u32 ifindex)
{
	struct hash_node *n = hash_find(&net->by_index, index_hash(ifindex), index_eq, &ifindex);

	return n ? container_of(n, struct net_iface_rec, by_index) : NULL;
}

static u64 name_hash(const struct net *net, const char *name)
{
	return hash_of(&net->by_name, name, strlen(name));
}

/**
 * net_model_iface_named() - find an interface by name
 * @net: the network
 * @name: its name
 *
 * Return: the interface or NULL.
 */
struct net_iface_rec *net_model_iface_named(const struct net *net, const char *name)
{
	struct hash_node *n = hash_find(&net->by_name, name_hash(net, name), name_eq, name);

	return n ? container_of(n, struct net_iface_rec, by_name) : NULL;
}

static int iface_add(struct net *net, const struct net_iface *i, struct net_iface_rec **out)
{
	struct net_iface_rec *r = calloc(1, sizeof(*r));
	struct net_queued *gone = calloc(1, sizeof(*gone));

	if (!r || !gone || net_post(net, NET_IFACE_ADDED, i, NULL)) {
		free(gone);
		free(r);
		return -ENOMEM;
	}
	r->i = *i;
	r->gone = gone;
	TAILQ_INIT(&r->addrs);
	TAILQ_INSERT_TAIL(&net->ifaces, r, entry);
	hash_add(&net->by_index, &r->by_index, index_hash(i->ifindex));
	hash_add(&net->by_name, &r->by_name, name_hash(net, i->name));
	if (i->loopback && !net->loopback)
		net->loopback = r;
	net_stale(net);
	*out = r;
	return 0;
}

static bool iface_equal(const struct net_iface *a, const struct net_iface *b)
{
	return !strcmp(a->name, b->name) && !memcmp(a->mac, b->mac, sizeof(a->mac)) && a->mtu == b->mtu &&
	       a->up == b->up && a->vlan_id == b->vlan_id && a->lower == b->lower;
}

static int iface_change(struct net *net, struct net_iface_rec *r, const struct net_iface *i)
{
	if (iface_equal(&r->i, i))
		return 0;
	if (r->i.up != i->up && net_post(net, i->up ? NET_IFACE_UP : NET_IFACE_DOWN, i, NULL))
		return -ENOMEM;
	hash_del(&net->by_name, &r->by_name);
	r->i = *i;
	hash_add(&net->by_name, &r->by_name, name_hash(net, i->name));
	net_stale(net);
	return 0;
}

/**
 * net_model_iface_put() - an interface is there, and looks like this
 * @net: the network
 * @i: the interface; its number says whether it is new
 * @out: its record
 *
 * A new interface that is up is reported as added alone; its event says that it is up.
 *
 * Return: 0 or -ENOMEM.
 */
int net_model_iface_put(struct net *net, const struct net_iface *i, struct net_iface_rec **out)
{
	struct net_iface_rec *r = net_model_iface(net, i->ifindex);

	if (!r)
		return iface_add(net, i, out);
	*out = r;
	return iface_change(net, r, i);
}

static void loopback_again(struct net *net)
{
	struct net_iface_rec *r;

	net->loopback = NULL;
	TAILQ_FOREACH(r, &net->ifaces, entry) {
		if (r->i.loopback) {
			net->loopback = r;
			return;
		}
	}
}

/**
 * net_model_iface_drop() - an interface is gone, and with it its addresses
 * @net: the network
 * @r: the interface; freed
 */
void net_model_iface_drop(struct net *net, struct net_iface_rec *r)
{
	struct net_addr_rec *a;

	while ((a = TAILQ_FIRST(&r->addrs)))
		net_model_addr_drop(net, a);
	hash_del(&net->by_index, &r->by_index);
	hash_del(&net->by_name, &r->by_name);
	TAILQ_REMOVE(&net->ifaces, r, entry);
	if (net->loopback == r)
		loopback_again(net);
	net_post_gone(net, r->gone, NET_IFACE_REMOVED, &r->i, NULL);
	net_stale(net);
	free(r);
}

static u64 local_key(bool ipv4, const u32 *addr, struct local_key *k)
{
	k->ipv4 = ipv4;
	net_addr_copy(ipv4, k->addr, addr);
	return hash_own(ipv4, k->addr);
}

static struct net_local_rec *local_find(const struct net *net, bool ipv4, const u32 *addr)
{
	struct local_key k;
	u64 hash = local_key(ipv4, addr, &k);
	struct hash_node *n = hash_find(&net->locals, hash, local_eq, &k);

	return n ? container_of(n, struct net_local_rec, node) : NULL;
}

static struct net_local_rec *local_get(struct net *net, bool ipv4, const u32 *addr)
{
	struct net_local_rec *l = local_find(net, ipv4, addr);
	struct local_key k;

	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->ipv4 = ipv4;
	net_addr_copy(ipv4, l->addr, addr);
	TAILQ_INIT(&l->recs);
	hash_add(&net->locals, &l->node, local_key(ipv4, addr, &k));
	return l;
}

/* Nobody holds it: it goes. */
static void local_put(struct net *net, struct net_local_rec *l)
{
	if (!TAILQ_EMPTY(&l->recs))
		return;
	hash_del(&net->locals, &l->node);
	free(l);
}

/**
 * net_model_local() - find an address of ours
 * @net: the network
 * @ipv4: family of @addr
 * @addr: the address
 * @ifindex: interface that must hold it; 0: any, the first to have it
 *
 * Return: its record or NULL.
 */
struct net_addr_rec *net_model_local(const struct net *net, bool ipv4, const u32 *addr, u32 ifindex)
{
	struct net_local_rec *l = local_find(net, ipv4, addr);
	struct net_addr_rec *r = l ? TAILQ_FIRST(&l->recs) : NULL;

	while (r && ifindex && r->a.ifindex != ifindex)
		r = TAILQ_NEXT(r, same);
	return r;
}

/**
 * net_model_addr() - find one address of one interface, with its prefix
 * @net: the network
 * @a: interface, address, prefix
 *
 * Return: its record or NULL.
 */
struct net_addr_rec *net_model_addr(const struct net *net, const struct net_addr *a)
{
	struct net_addr_rec *r = net_model_local(net, a->ipv4, a->addr, a->ifindex);

	while (r && (r->a.ifindex != a->ifindex || r->a.prefix_len != a->prefix_len))
		r = TAILQ_NEXT(r, same);
	return r;
}

static struct net_addr_rec *addr_rec_new(const struct net_addr *a)
{
	struct net_addr_rec *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->gone = calloc(1, sizeof(*r->gone));
	if (!r->gone) {
		free(r);
		return NULL;
	}
	r->a = *a;
	net_addr_copy(a->ipv4, r->a.addr, a->addr);
	r->a.scope_id = net_is_link_local(a->ipv4, a->addr) ? a->ifindex : 0;
	return r;
}

/**
 * net_model_addr_put() - an interface has an address
 * @net: the network
 * @a: the address
 * @out: its record
 *
 * Return: 0, -ENODEV for an interface that is not in the model, or -ENOMEM.
 */
int net_model_addr_put(struct net *net, const struct net_addr *a, struct net_addr_rec **out)
{
	struct net_iface_rec *i = net_model_iface(net, a->ifindex);
	struct net_local_rec *l;
	struct net_addr_rec *r;

	if (!i)
		return -ENODEV;
	*out = net_model_addr(net, a);
	if (*out)
		return 0;
	r = addr_rec_new(a);
	if (!r)
		return -ENOMEM;
	l = local_get(net, a->ipv4, a->addr);
	if (!l)
		goto free_rec;
	if (net_post(net, NET_ADDR_ADDED, &i->i, &r->a))
		goto put_local;
	r->local = l;
	TAILQ_INSERT_TAIL(&l->recs, r, same);
	TAILQ_INSERT_TAIL(&i->addrs, r, entry);
	net_stale(net);
	*out = r;
	return 0;

put_local:
	local_put(net, l);
free_rec:
	free(r->gone);
	free(r);
	return -ENOMEM;
}

/**
 * net_model_addr_drop() - an interface has an address no longer
 * @net: the network
 * @r: the address; freed
 */
void net_model_addr_drop(struct net *net, struct net_addr_rec *r)
{
	struct net_iface_rec *i = net_model_iface(net, r->a.ifindex);
	struct net_local_rec *l = r->local;

	if (net->ops->addr_gone)
		net->ops->addr_gone(net, r);
	TAILQ_REMOVE(&i->addrs, r, entry);
	TAILQ_REMOVE(&l->recs, r, same);
	local_put(net, l);
	net_post_gone(net, r->gone, NET_ADDR_REMOVED, &i->i, &r->a);
	net_stale(net);
	free(r);
}

/**
 * net_model_clear() - drop everything
 * @net: the network
 */
void net_model_clear(struct net *net)
{
	struct net_iface_rec *r;

	while ((r = TAILQ_FIRST(&net->ifaces)))
		net_model_iface_drop(net, r);
}
