// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * net: routes of a simulated host: a connected one per prefix of an address, and static ones.
 *
 * They sit in a hash table by (family, prefix length, prefix); a look-up tries the lengths in use, longest
 * first. So its cost does not grow with the number of routes, and no route cache is needed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "net/net_sim.h"

/* Routes to one prefix; the oldest usable one is taken. */
struct sim_prefix {
	struct hash_node node;
	struct sim_prefix_key key;
	TAILQ_HEAD(, sim_route) routes;
};

static void addr_mask(bool ipv4, u32 *to, const u32 *from, u32 len)
{
	net_addr_copy(ipv4, to, from);
	for (u32 w = 0; w < 4; w++) {
		u32 bits = len > w * 32 ? min(len - w * 32, 32u) : 0;

		to[w] &= bits ? ~0u << (32 - bits) : 0;
	}
}

static bool addr_in(bool ipv4, const u32 *addr, const u32 *prefix, u32 len)
{
	u32 a[4], p[4];

	addr_mask(ipv4, a, addr, len);
	addr_mask(ipv4, p, prefix, len);
	return net_addr_same(a, p);
}

static bool prefix_eq(const struct hash_node *n, const void *key)
{
	return !memcmp(&container_of(n, const struct sim_prefix, node)->key, key, sizeof(struct sim_prefix_key));
}

struct sim_prefix_key sim_prefix_key(bool ipv4, const u32 *addr, u32 len)
{
	struct sim_prefix_key k = { .ipv4 = ipv4, .len = len };

	addr_mask(ipv4, k.addr, addr, len);
	return k;
}

static struct sim_prefix *prefix_find(const struct net_sim *s, const struct sim_prefix_key *k)
{
	struct hash_node *n = hash_find(&s->prefixes, hash_of(&s->prefixes, k, sizeof(*k)), prefix_eq, k);

	return n ? container_of(n, struct sim_prefix, node) : NULL;
}

static struct sim_prefix *prefix_get(struct net_sim *s, const struct sim_prefix_key *k)
{
	struct sim_prefix *p = prefix_find(s, k);

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->key = *k;
	TAILQ_INIT(&p->routes);
	hash_add(&s->prefixes, &p->node, hash_of(&s->prefixes, k, sizeof(*k)));
	s->prefixes_of_len[k->ipv4][k->len]++;
	return p;
}

static void prefix_put(struct net_sim *s, struct sim_prefix *p)
{
	if (!TAILQ_EMPTY(&p->routes))
		return;
	s->prefixes_of_len[p->key.ipv4][p->key.len]--;
	hash_del(&s->prefixes, &p->node);
	free(p);
}

static struct sim_route *route_same(struct sim_prefix *p, const struct sim_route *like)
{
	struct sim_route *r;

	TAILQ_FOREACH(r, &p->routes, entry) {
		if (r->ifindex == like->ifindex && r->connected == like->connected &&
		    r->has_gateway == like->has_gateway && net_addr_same(r->gateway, like->gateway))
			return r;
	}
	return NULL;
}

int sim_route_add(struct net_sim *s, const struct sim_prefix_key *k, const struct sim_route *like)
{
	struct sim_prefix *p = prefix_get(s, k);
	struct sim_route *r;

	if (!p)
		return -ENOMEM;
	r = route_same(p, like);
	if (r && !r->connected)
		return -EEXIST;
	if (r) {
		r->refs++;
		return 0;
	}
	r = malloc(sizeof(*r));
	if (!r) {
		prefix_put(s, p);
		return -ENOMEM;
	}
	*r = *like;
	r->refs = 1;
	TAILQ_INSERT_TAIL(&p->routes, r, entry);
	return 0;
}

/* Linux has no connected route for a lone address either: it is in the local table. */
static bool has_connected(const struct net_addr *a) { return a->prefix_len < sim_addr_bits(a->ipv4); }

int sim_connected_add(struct net_sim *s, const struct net_addr *a)
{
	struct sim_route like = { .ifindex = a->ifindex, .connected = true };
	struct sim_prefix_key k = sim_prefix_key(a->ipv4, a->addr, a->prefix_len);

	return has_connected(a) ? sim_route_add(s, &k, &like) : 0;
}

void sim_connected_del(struct net_sim *s, const struct net_addr *a)
{
	struct sim_route *r, like = { .ifindex = a->ifindex, .connected = true };
	struct sim_prefix_key k = sim_prefix_key(a->ipv4, a->addr, a->prefix_len);
	struct sim_prefix *p = has_connected(a) ? prefix_find(s, &k) : NULL;

	r = p ? route_same(p, &like) : NULL;
	if (!r || --r->refs)
		return;
	TAILQ_REMOVE(&p->routes, r, entry);
	free(r);
	prefix_put(s, p);
}

struct routes_del { struct net_sim *s; u32 ifindex; /* 0: all */ };

static bool prefix_routes_del(struct hash_node *n, void *arg)
{
	struct sim_prefix *p = container_of(n, struct sim_prefix, node);
	struct routes_del *d = arg;
	struct sim_route *r, *next;

	TAILQ_FOREACH_SAFE(r, &p->routes, entry, next) {
		if (d->ifindex && r->ifindex != d->ifindex)
			continue;
		TAILQ_REMOVE(&p->routes, r, entry);
		free(r);
	}
	prefix_put(d->s, p);
	return true;
}

void sim_routes_del(struct net_sim *s, u32 ifindex)
{
	struct routes_del d = { s, ifindex };

	hash_walk(&s->prefixes, prefix_routes_del, &d);
}

static struct sim_route *route_usable(const struct net_sim *s, const struct sim_prefix *p, u32 oif)
{
	struct sim_route *r;

	TAILQ_FOREACH(r, &p->routes, entry) {
		if (oif && r->ifindex != oif)
			continue;
		if (net_model_iface(&s->net, r->ifindex)->i.up)
			return r;
	}
	return NULL;
}

struct sim_route *sim_route_find(const struct net_sim *s, bool ipv4, const u32 *dst, u32 oif)
{
	for (s32 len = (s32)sim_addr_bits(ipv4); len >= 0; len--) {
		struct sim_prefix *p;
		struct sim_route *r;
		struct sim_prefix_key k;

		if (!s->prefixes_of_len[ipv4][len])
			continue;
		k = sim_prefix_key(ipv4, dst, (u32)len);
		p = prefix_find(s, &k);
		r = p ? route_usable(s, p, oif) : NULL;
		if (r)
			return r;
	}
	return NULL;
}

static const struct net_addr *iface_src(const struct net_iface_rec *i, bool ipv4, const u32 *to)
{
	const struct net_addr *same_scope = NULL;
	struct net_addr_rec *r;

	TAILQ_FOREACH(r, &i->addrs, entry) {
		if (r->a.ipv4 != ipv4 || net_is_link_local(ipv4, r->a.addr) != net_is_link_local(ipv4, to))
			continue;
		if (addr_in(ipv4, to, r->a.addr, r->a.prefix_len))
			return &r->a;
		if (!same_scope)
			same_scope = &r->a;
	}
	return same_scope;
}

/*
 * The source as Linux would choose it, roughly: on the outgoing interface, of the scope of the
 * destination and if possible of the prefix of the next hop; else an address of another interface.
 */
static const struct net_addr *choose_src(const struct net_sim *s, u32 oif, bool ipv4, const u32 *dst, const u32 *hop)
{
	struct net_iface_rec *i = net_model_iface(&s->net, oif);
	const struct net_addr *a;

	if (net_is_link_local(ipv4, dst) == net_is_link_local(ipv4, hop)) {
		a = iface_src(i, ipv4, hop);
		if (a)
			return a;
	}
	a = iface_src(i, ipv4, dst);
	if (a)
		return a;
	TAILQ_FOREACH(i, &s->net.ifaces, entry) {
		a = i->i.loopback ? NULL : iface_src(i, ipv4, dst);
		if (a)
			return a;
	}
	return NULL;
}

static bool is_local(const struct net *net, bool ipv4, const u32 *addr, u32 oif)
{
	/* A link-local address means another host when it is looked for on another link. */
	u32 on = net_is_link_local(ipv4, addr) && oif != SIM_LOOPBACK ? oif : 0;

	return net_in_127(ipv4, addr) || net_model_local(net, ipv4, addr, on);
}

static int route_local(const struct net_sim *s, bool ipv4, const u32 *src, const u32 *dst, struct net_route *out)
{
	out->ifindex = SIM_LOOPBACK;
	out->local = true;
	out->mtu = net_model_iface(&s->net, SIM_LOOPBACK)->i.mtu;
	net_addr_copy(ipv4, out->src, src ? src : dst);
	return 0;
}

/* connect() to the unspecified address reaches the host itself, on Linux. */
static void any_is_loopback(bool ipv4, u32 *dst)
{
	if (ipv4)
		dst[0] = 0x7F000001;
	else
		dst[3] = 1;
}

static int route_out(const struct net_sim *s, bool ipv4, const u32 *src, const u32 *dst, u32 oif,
		     struct net_route *out)
{
	const struct sim_route *r = sim_route_find(s, ipv4, dst, oif);
	const struct net_addr *a;

	if (!r)
		return -ENETUNREACH;
	out->ifindex = r->ifindex;
	out->mtu = net_model_iface(&s->net, r->ifindex)->i.mtu;
	out->has_gateway = r->has_gateway;
	net_addr_copy(ipv4, out->gateway, r->gateway);
	if (!src) {
		a = choose_src(s, r->ifindex, ipv4, dst, r->has_gateway ? r->gateway : dst);
		if (!a)
			return -ENETUNREACH;
		src = a->addr;
	}
	net_addr_copy(ipv4, out->src, src);
	return 0;
}

int sim_route_get(struct net *net, bool ipv4, const u32 *src, const u32 *dst, u32 oif,
			 struct net_route *out)
{
	struct net_sim *s = sim_of(net);
	u32 to[4];
	int err;

	net_addr_copy(ipv4, to, dst);
	if (net_addr_any(to))
		any_is_loopback(ipv4, to);
	pthread_mutex_lock(&net->lock);
	if (src && !is_local(net, ipv4, src, 0))
		err = -EADDRNOTAVAIL;
	else if (is_local(net, ipv4, to, oif))
		err = route_local(s, ipv4, src, to, out);
	else
		err = route_out(s, ipv4, src, to, oif, out);
	pthread_mutex_unlock(&net->lock);
	return err;
}
