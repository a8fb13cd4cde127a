// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * net: the segment that simulated hosts share, and neighbours on it.
 *
 * The segment knows which interface owns which address, per VLAN. Nothing is cached, so a host whose
 * link goes down is gone at once. Only with net_sim_neigh_delay() does a host remember whom it has
 * asked how often.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "net/net_sim.h"

struct net_segment {
	pthread_mutex_t lock;
	u32 refs;                 /* its creator, and each host on it */
	struct hash_table owners;
};

struct owner_key {
	u32 ipv4, vlan_id;
	u32 addr[4];
};

/* Two hosts may hold one address; the one whose link is up answers. */
struct sim_owner {
	struct hash_node node;
	struct owner_key key;
	u8 mac[6];
	bool up;
};

/* A neighbour being asked for, or known after that. */
struct sim_asked {
	struct hash_node node;
	struct asked_key {
		u32 ifindex, ipv4;
		u32 addr[4];
	} key;
	u32 times;
};

/* ---- segment ---- */

/**
 * net_segment_create() - a wire to which simulated hosts can be attached
 *
 * Return: the segment, or NULL without memory.
 */
struct net_segment *net_segment_create(void)
{
	struct net_segment *seg = calloc(1, sizeof(*seg));

	if (!seg)
		return NULL;
	if (hash_init(&seg->owners, NULL)) {
		free(seg);
		return NULL;
	}
	pthread_mutex_init(&seg->lock, NULL);
	seg->refs = 1;
	return seg;
}

void sim_segment_get(struct net_segment *seg)
{
	pthread_mutex_lock(&seg->lock);
	seg->refs++;
	pthread_mutex_unlock(&seg->lock);
}

void sim_segment_put(struct net_segment *seg)
{
	bool last;

	pthread_mutex_lock(&seg->lock);
	last = --seg->refs == 0;
	pthread_mutex_unlock(&seg->lock);
	if (!last)
		return;
	assert(!seg->owners.count);
	hash_destroy(&seg->owners);
	pthread_mutex_destroy(&seg->lock);
	free(seg);
}

/**
 * net_segment_destroy() - drop the creator's reference
 * @seg: the segment, or NULL; lives on until the last host on it is closed
 */
void net_segment_destroy(struct net_segment *seg)
{
	if (seg)
		sim_segment_put(seg);
}

static bool owner_up_eq(const struct hash_node *n, const void *key)
{
	const struct sim_owner *o = container_of(n, const struct sim_owner, node);

	return o->up && !memcmp(&o->key, key, sizeof(o->key));
}

static struct owner_key owner_key(u16 vlan_id, bool ipv4, const u32 *addr)
{
	struct owner_key k = { .ipv4 = ipv4, .vlan_id = vlan_id };

	net_addr_copy(ipv4, k.addr, addr);
	return k;
}

static bool segment_find(struct net_segment *seg, const struct owner_key *k, u8 mac[6])
{
	struct hash_node *n;

	pthread_mutex_lock(&seg->lock);
	n = hash_find(&seg->owners, hash_of(&seg->owners, k, sizeof(*k)), owner_up_eq, k);
	if (n)
		memcpy(mac, container_of(n, struct sim_owner, node)->mac, 6);
	pthread_mutex_unlock(&seg->lock);
	return n;
}

int sim_owner_add(struct net_sim *s, const struct net_iface *i, struct net_addr_rec *r)
{
	struct sim_owner *o;

	if (i->loopback || !s->seg)
		return 0;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->key = owner_key(i->vlan_id, r->a.ipv4, r->a.addr);
	o->up = i->up;
	memcpy(o->mac, i->mac, 6);
	r->owner = o;
	pthread_mutex_lock(&s->seg->lock);
	hash_add(&s->seg->owners, &o->node, hash_of(&s->seg->owners, &o->key, sizeof(o->key)));
	pthread_mutex_unlock(&s->seg->lock);
	return 0;
}

void sim_owner_del(struct net_sim *s, struct net_addr_rec *r)
{
	if (!r->owner)
		return;
	pthread_mutex_lock(&s->seg->lock);
	hash_del(&s->seg->owners, &r->owner->node);
	pthread_mutex_unlock(&s->seg->lock);
	free(r->owner);
	r->owner = NULL;
}

void sim_owners_set_up(struct net_sim *s, struct net_iface_rec *i)
{
	struct net_addr_rec *r;

	if (!s->seg)
		return;
	pthread_mutex_lock(&s->seg->lock);
	TAILQ_FOREACH(r, &i->addrs, entry) {
		if (r->owner)
			r->owner->up = i->i.up;
	}
	pthread_mutex_unlock(&s->seg->lock);
}

/* ---- neighbours ---- */

static bool asked_eq(const struct hash_node *n, const void *key)
{
	return !memcmp(&container_of(n, const struct sim_asked, node)->key, key, sizeof(struct asked_key));
}

static struct sim_asked *asked_get(struct net_sim *s, const struct asked_key *k)
{
	u64 hash = hash_of(&s->asked, k, sizeof(*k));
	struct hash_node *n = hash_find(&s->asked, hash, asked_eq, k);
	struct sim_asked *a;

	if (n)
		return container_of(n, struct sim_asked, node);
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->key = *k;
	hash_add(&s->asked, &a->node, hash);
	return a;
}

static bool asked_free(struct hash_node *n, void *arg)
{
	struct net_sim *s = arg;

	hash_del(&s->asked, n);
	free(container_of(n, struct sim_asked, node));
	return true;
}

static int neigh_answer(struct net_sim *s, const struct net_iface *i, bool ipv4, const u32 *addr, u8 mac[6])
{
	struct owner_key k = owner_key(i->vlan_id, ipv4, addr);

	return s->seg && segment_find(s->seg, &k, mac) ? 0 : -EHOSTUNREACH;
}

static int neigh_delayed(struct net_sim *s, const struct net_iface *i, bool ipv4, const u32 *addr, u8 mac[6])
{
	struct asked_key k = { .ifindex = i->ifindex, .ipv4 = ipv4 };
	struct sim_asked *a;
	int err;

	net_addr_copy(ipv4, k.addr, addr);
	a = asked_get(s, &k);
	if (!a)
		return -ENOMEM;
	if (a->times < s->neigh_delay) {
		/* The answer is there from now on: have those who wait for it look again. */
		if (++a->times == s->neigh_delay)
			net_stale(&s->net);
		return -EAGAIN;
	}
	err = neigh_answer(s, i, ipv4, addr, mac);
	if (err)
		asked_free(&a->node, s);
	return err;
}

static int neigh_locked(struct net_sim *s, u32 ifindex, bool ipv4, const u32 *addr, u8 mac[6])
{
	struct net_iface_rec *i = net_model_iface(&s->net, ifindex);

	if (!i)
		return -ENODEV;
	if (!i->i.up)
		return -EHOSTUNREACH;
	if (i->i.loopback) {
		memset(mac, 0, 6);
		return 0;
	}
	if (s->neigh_delay)
		return neigh_delayed(s, &i->i, ipv4, addr, mac);
	return neigh_answer(s, &i->i, ipv4, addr, mac);
}

int sim_neigh_get(struct net *net, u32 ifindex, bool ipv4, const u32 *addr, u8 mac[6])
{
	int err;

	pthread_mutex_lock(&net->lock);
	err = neigh_locked(sim_of(net), ifindex, ipv4, addr, mac);
	pthread_mutex_unlock(&net->lock);
	return err;
}

/**
 * net_sim_neigh_delay() - make neighbours slow to answer
 * @net: a simulated network
 * @n: so many look-ups of each neighbour give -EAGAIN from now on, before it is known
 *
 * After the n-th a NET_ROUTES_CHANGED is due. A neighbour that did not answer is asked anew.
 */
void net_sim_neigh_delay(struct net *net, u32 n)
{
	struct net_sim *s = sim_of(net);

	pthread_mutex_lock(&net->lock);
	if (s->asked_ready)
		hash_walk(&s->asked, asked_free, s);
	else if (n)
		s->asked_ready = !hash_init(&s->asked, NULL);
	s->neigh_delay = s->asked_ready ? n : 0;
	pthread_mutex_unlock(&net->lock);
}

/* Forget who was asked, and the table. */
void sim_asked_destroy(struct net_sim *s)
{
	if (!s->asked_ready)
		return;
	hash_walk(&s->asked, asked_free, s);
	hash_destroy(&s->asked);
}
