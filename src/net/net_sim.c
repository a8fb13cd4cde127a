// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * net: a simulated host.
 *
 * There is no kernel to ask, so the calls that change it are the truth: they change the model at once and
 * their events wait for net_process(). What the kernel derives is derived here: connected routes;
 * VLAN interfaces that go down, and away, with the interface underneath.
 *
 * Locks: net->lock, then segment->lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "net/net_sim.h"

#define SIM_LOOPBACK_MTU 65536
#define SIM_MTU 1500
#define SIM_VLAN_MAX 4094

static void sim_addr_gone(struct net *net, struct net_addr_rec *r)
{
	sim_owner_del(sim_of(net), r);
	sim_connected_del(sim_of(net), &r->a);
}

static void sim_close(struct net *net)
{
	struct net_sim *s = sim_of(net);

	net_base_destroy(net);
	sim_routes_del(s, 0);
	hash_destroy(&s->prefixes);
	sim_asked_destroy(s);
	if (s->seg)
		sim_segment_put(s->seg);
	free(s);
}

static const struct net_ops sim_ops = {
	.close = sim_close,
	.addr_gone = sim_addr_gone,
	.route_get = sim_route_get,
	.neigh_get = sim_neigh_get,
};

static int addr_add(struct net_sim *s, const struct net_addr *a)
{
	struct net_addr_rec *r;
	int err;

	if (net_model_addr(&s->net, a))
		return -EEXIST;
	err = net_model_addr_put(&s->net, a, &r);
	if (err)
		return err;
	err = sim_connected_add(s, &r->a);
	if (!err)
		err = sim_owner_add(s, &net_model_iface(&s->net, a->ifindex)->i, r);
	if (err)
		net_model_addr_drop(&s->net, r);
	return err;
}

/* As on Linux when "lo" goes up. */
static int loopback_add(struct net_sim *s)
{
	struct net_iface lo = {
		.ifindex = SIM_LOOPBACK, .name = "lo", .mtu = SIM_LOOPBACK_MTU,
		.up = true, .loopback = true, .vlan_id = PKT_VLAN_NONE,
	};
	struct net_addr a4 = { .ifindex = SIM_LOOPBACK, .ipv4 = true, .addr = { 0x7F000001 }, .prefix_len = 8 };
	struct net_addr a6 = { .ifindex = SIM_LOOPBACK, .addr = { 0, 0, 0, 1 }, .prefix_len = 128 };
	struct net_iface_rec *r;
	int err;

	err = net_model_iface_put(&s->net, &lo, &r);
	if (err)
		return err;
	r->link_up = true;
	err = addr_add(s, &a4);
	return err ? err : addr_add(s, &a6);
}

/**
 * net_open_sim() - a simulated host
 * @seg: the wire its interfaces are on; NULL: none, then no neighbour ever answers
 * @out: the network
 *
 * It has a loopback interface, number 1, with 127.0.0.1/8 and ::1/128.
 *
 * Return: 0 or -ENOMEM.
 */
int net_open_sim(struct net_segment *seg, struct net **out)
{
	struct net_sim *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	if (hash_init(&s->prefixes, NULL))
		goto free_sim;
	if (net_base_init(&s->net, &sim_ops))
		goto destroy_prefixes;
	s->next_ifindex = SIM_LOOPBACK + 1;
	if (seg) {
		sim_segment_get(seg);
		s->seg = seg;
	}
	if (loopback_add(s)) {
		sim_close(&s->net);
		return -ENOMEM;
	}
	*out = &s->net;
	return 0;

destroy_prefixes:
	hash_destroy(&s->prefixes);
free_sim:
	free(s);
	return -ENOMEM;
}

static int iface_check(const struct net_sim *s, const struct net_iface *i)
{
	if (!i->name[0] || !memchr(i->name, 0, sizeof(i->name)) || i->loopback)
		return -EINVAL;
	if (i->vlan_id != PKT_VLAN_NONE && i->vlan_id > SIM_VLAN_MAX)
		return -EINVAL;
	if (i->lower && !net_model_iface(&s->net, i->lower))
		return -ENODEV;
	if (net_model_iface(&s->net, i->ifindex) || net_model_iface_named(&s->net, i->name))
		return -EEXIST;
	return 0;
}

static void iface_complete(struct net_sim *s, struct net_iface *i)
{
	static const u8 none[6];
	const struct net_iface_rec *lower = i->lower ? net_model_iface(&s->net, i->lower) : NULL;

	if (!i->ifindex)
		i->ifindex = s->next_ifindex;
	if (!i->mtu)
		i->mtu = lower ? lower->i.mtu : SIM_MTU;
	if (!lower && !i->vlan_id)
		i->vlan_id = PKT_VLAN_NONE;
	if (lower && !memcmp(i->mac, none, 6))
		memcpy(i->mac, lower->i.mac, 6);
	if (lower && !lower->i.up)
		i->up = false;
}

static int iface_add(struct net_sim *s, struct net_iface *i)
{
	bool link_up = i->up;
	struct net_iface_rec *r;
	int err = iface_check(s, i);

	if (err)
		return err;
	iface_complete(s, i);
	err = net_model_iface_put(&s->net, i, &r);
	if (err)
		return err;
	r->link_up = link_up;
	s->next_ifindex = max(s->next_ifindex, i->ifindex + 1);
	return 0;
}

/**
 * net_sim_add_iface() - give a simulated host an interface
 * @net: the network
 * @iface: the interface; number 0: the next free one; MTU 0: 1500, or as underneath; a VLAN
 *	without MAC takes the one underneath; without VLAN, vlan_id may be 0. Written back as it became.
 *
 * Return: 0; -EINVAL: no name, a loopback, or no VLAN number; -ENODEV: nothing underneath;
 * -EEXIST: number or name taken; -ENOMEM.
 */
int net_sim_add_iface(struct net *net, struct net_iface *iface)
{
	struct net_iface i = *iface;
	int err;

	pthread_mutex_lock(&net->lock);
	err = iface_add(sim_of(net), &i);
	pthread_mutex_unlock(&net->lock);
	if (!err)
		*iface = i;
	return err;
}

static struct net_iface_rec *vlan_on(const struct net *net, u32 lower)
{
	struct net_iface_rec *r;

	TAILQ_FOREACH(r, &net->ifaces, entry) {
		if (r->i.lower == lower)
			return r;
	}
	return NULL;
}

static void iface_del(struct net_sim *s, struct net_iface_rec *r)
{
	struct net_iface_rec *upper;

	while ((upper = vlan_on(&s->net, r->i.ifindex)))
		iface_del(s, upper);
	sim_routes_del(s, r->i.ifindex);
	net_model_iface_drop(&s->net, r);
}

/**
 * net_sim_del_iface() - take an interface from a simulated host
 * @net: the network
 * @ifindex: its number
 *
 * VLAN interfaces on it go first, with their addresses; then its routes and addresses.
 *
 * Return: 0; -ENODEV; -EINVAL: the loopback interface stays.
 */
int net_sim_del_iface(struct net *net, u32 ifindex)
{
	struct net_iface_rec *r;
	int err = -ENODEV;

	if (ifindex == SIM_LOOPBACK)
		return -EINVAL;
	pthread_mutex_lock(&net->lock);
	r = net_model_iface(net, ifindex);
	if (r) {
		iface_del(sim_of(net), r);
		err = 0;
	}
	pthread_mutex_unlock(&net->lock);
	return err;
}

/* What has changed stays so when memory runs out; calling again does the rest. */
static int link_update(struct net_sim *s, struct net_iface_rec *r)
{
	const struct net_iface_rec *lower = r->i.lower ? net_model_iface(&s->net, r->i.lower) : NULL;
	struct net_iface i = r->i;
	struct net_iface_rec *upper;
	int err;

	i.up = r->link_up && (!lower || lower->i.up);
	err = net_model_iface_put(&s->net, &i, &r);
	if (err)
		return err;
	sim_owners_set_up(s, r);
	TAILQ_FOREACH(upper, &s->net.ifaces, entry) {
		if (upper->i.lower == r->i.ifindex && !err)
			err = link_update(s, upper);
	}
	return err;
}

/**
 * net_sim_set_link() - an interface goes up or down
 * @net: the network
 * @ifindex: its number
 * @up: which
 *
 * VLAN interfaces on it follow. Addresses stay, but nobody else can resolve them.
 *
 * Return: 0, -ENODEV, or -ENOMEM: calling again does what is left to do.
 */
int net_sim_set_link(struct net *net, u32 ifindex, bool up)
{
	struct net_iface_rec *r;
	int err = -ENODEV;

	pthread_mutex_lock(&net->lock);
	r = net_model_iface(net, ifindex);
	if (r) {
		r->link_up = up;
		err = link_update(sim_of(net), r);
	}
	pthread_mutex_unlock(&net->lock);
	return err;
}

static bool multicast(bool ipv4, const u32 *addr)
{
	return ipv4 ? addr[0] >> 28 == 0xE : addr[0] >> 24 == 0xFF;
}

/**
 * net_sim_add_addr() - give an interface an address
 * @net: the network
 * @a: the address; scope_id is worked out
 *
 * With it comes the route to its prefix.
 *
 * Return: 0; -EINVAL: not an address to have; -ENODEV; -EEXIST; -ENOMEM.
 */
int net_sim_add_addr(struct net *net, const struct net_addr *a)
{
	struct net_addr clean = *a;
	int err;

	net_addr_copy(a->ipv4, clean.addr, a->addr);
	if (a->prefix_len > sim_addr_bits(a->ipv4) || net_addr_any(clean.addr) || multicast(a->ipv4, clean.addr))
		return -EINVAL;
	pthread_mutex_lock(&net->lock);
	err = addr_add(sim_of(net), &clean);
	pthread_mutex_unlock(&net->lock);
	return err;
}

/**
 * net_sim_del_addr() - take an address from an interface
 * @net: the network
 * @a: the address, with its prefix length
 *
 * Return: 0 or -EADDRNOTAVAIL.
 */
int net_sim_del_addr(struct net *net, const struct net_addr *a)
{
	struct net_addr_rec *r;

	pthread_mutex_lock(&net->lock);
	r = net_model_addr(net, a);
	if (r)
		net_model_addr_drop(net, r);
	pthread_mutex_unlock(&net->lock);
	return r ? 0 : -EADDRNOTAVAIL;
}

static int route_add_static(struct net_sim *s, const struct sim_prefix_key *k, struct sim_route *like)
{
	const struct sim_route *via;
	int err;

	if (!like->ifindex) {
		via = like->has_gateway ? sim_route_find(s, k->ipv4, like->gateway, 0) : NULL;
		if (!via)
			return -ENETUNREACH;
		like->ifindex = via->ifindex;
	}
	if (!net_model_iface(&s->net, like->ifindex))
		return -ENODEV;
	err = sim_route_add(s, k, like);
	if (!err)
		net_stale(&s->net);
	return err;
}

/**
 * net_sim_add_route() - add a static route
 * @net: the network
 * @ipv4: family
 * @dst: the prefix
 * @prefix_len: its length; 0: the default route
 * @gateway: next hop; NULL: on-link
 * @ifindex: interface to leave by; 0: the one by which @gateway is reached
 *
 * Of several routes to one prefix the oldest whose interface is up counts. A route goes with its interface.
 *
 * Return: 0; -EINVAL; -ENODEV; -ENETUNREACH: no way to @gateway; -EEXIST; -ENOMEM.
 */
int net_sim_add_route(struct net *net, bool ipv4, const u32 *dst, u8 prefix_len, const u32 *gateway, u32 ifindex)
{
	struct sim_route like = { .ifindex = ifindex, .has_gateway = gateway };
	struct sim_prefix_key k;
	int err;

	if (prefix_len > sim_addr_bits(ipv4))
		return -EINVAL;
	k = sim_prefix_key(ipv4, dst, prefix_len);
	if (gateway)
		net_addr_copy(ipv4, like.gateway, gateway);
	pthread_mutex_lock(&net->lock);
	err = route_add_static(sim_of(net), &k, &like);
	pthread_mutex_unlock(&net->lock);
	return err;
}
