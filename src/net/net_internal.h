/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * net, private to the room: the model of interfaces and addresses that both kinds keep, and what a
 * kind has to supply. Functions marked "locked" want net->lock held.
 */
#ifndef UWARP_NET_INTERNAL_H
#define UWARP_NET_INTERNAL_H

#include <pthread.h>
#include "net/net.h"

struct sim_owner;

/* A change on its way to the watchers. */
struct net_queued {
	STAILQ_ENTRY(net_queued) entry;
	struct net_event e;
};

/* An address of ours. The same address may sit on several interfaces (IPv6 link-local). */
struct net_addr_rec {
	TAILQ_ENTRY(net_addr_rec) entry;      /* addresses of the interface */
	TAILQ_ENTRY(net_addr_rec) same;       /* records of one address, oldest first */
	struct net_local_rec *local;
	struct net_addr a;
	struct net_queued *gone;              /* memory to say so one day */
	struct sim_owner *owner;              /* simulated: how the segment knows it */
	bool seen;                            /* scratch of a re-dump */
};
TAILQ_HEAD(net_addr_list, net_addr_rec);

/* One address, whoever holds it: what net_local() finds. */
struct net_local_rec {
	struct hash_node node;
	bool ipv4;
	u32 addr[4];
	struct net_addr_list recs;
};

struct net_iface_rec {
	struct hash_node by_index, by_name;
	TAILQ_ENTRY(net_iface_rec) entry;
	struct net_iface i;
	struct net_addr_list addrs;
	struct net_queued *gone;              /* memory to say so one day */
	bool noarp;                           /* no neighbour resolution on this interface */
	bool link_up;                         /* simulated: its own link, apart from the one underneath */
	bool seen;                            /* scratch of a re-dump */
};
TAILQ_HEAD(net_iface_list, net_iface_rec);

struct net_ops {
	void (*close)(struct net *net);       /* frees @net too */
	int (*fd)(const struct net *net);     /* NULL: none */
	void (*poll)(struct net *net);        /* unlocked: bring the model up to date; NULL: it is */
	void (*addr_gone)(struct net *net, struct net_addr_rec *r); /* locked; about to be freed; may be NULL */
	void (*stale)(struct net *net);       /* locked: forget cached routes; may be NULL */
	int (*route_get)(struct net *net, bool ipv4, const u32 *src, const u32 *dst, u32 oif,
			 struct net_route *out);
	int (*neigh_get)(struct net *net, u32 ifindex, bool ipv4, const u32 *addr, u8 mac[6]);
};

struct net {
	const struct net_ops *ops;
	pthread_mutex_t lock;                 /* all below */
	struct hash_table by_index, by_name, locals;
	struct net_iface_list ifaces;
	struct net_iface_rec *loopback;

	TAILQ_HEAD(, net_watcher) watchers;
	STAILQ_HEAD(, net_queued) events;
	bool behind;                          /* atomic: changes were lost, and could not be read again yet */
	bool routes_stale;                    /* a NET_ROUTES_CHANGED follows the queued events */
	bool processing, again;               /* a thread is in net_process(); it shall look once more */
	pthread_t processor;
	struct net_watcher *cursor;           /* next to be called for the event in delivery */
	struct net_watcher *calling;          /* inside its callback now */
	pthread_cond_t called;
};

/* net.c */
int net_base_init(struct net *net, const struct net_ops *ops);
void net_base_destroy(struct net *net);
/* Locked: */
int net_post(struct net *net, enum net_event_type type, const struct net_iface *i, const struct net_addr *a);
void net_post_gone(struct net *net, struct net_queued *q, enum net_event_type type, const struct net_iface *i, const struct net_addr *a);
void net_stale(struct net *net);

/* net_model.c; all locked */
struct net_iface_rec *net_model_iface(const struct net *net, u32 ifindex);
struct net_iface_rec *net_model_iface_named(const struct net *net, const char *name);
int net_model_iface_put(struct net *net, const struct net_iface *i, struct net_iface_rec **out);
void net_model_iface_drop(struct net *net, struct net_iface_rec *r);
struct net_addr_rec *net_model_addr(const struct net *net, const struct net_addr *a);
struct net_addr_rec *net_model_local(const struct net *net, bool ipv4, const u32 *addr, u32 ifindex);
int net_model_addr_put(struct net *net, const struct net_addr *a, struct net_addr_rec **out);
void net_model_addr_drop(struct net *net, struct net_addr_rec *r);
void net_model_clear(struct net *net);

static inline bool net_in_127(bool ipv4, const u32 *addr) { return ipv4 && addr[0] >> 24 == 127; }
/* fe80::/10; IPv4 link-local addresses are ordinary ones here, as in the kernel. */
static inline bool net_is_link_local(bool ipv4, const u32 *addr)
{
	return !ipv4 && (addr[0] & 0xFFC00000u) == 0xFE800000u;
}
/* Copy an address; the words that IPv4 does not use become 0. */
static inline void net_addr_copy(bool ipv4, u32 *to, const u32 *from)
{
	to[0] = from[0];
	to[1] = ipv4 ? 0 : from[1];
	to[2] = ipv4 ? 0 : from[2];
	to[3] = ipv4 ? 0 : from[3];
}
static inline bool net_addr_same(const u32 *a, const u32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}
static inline bool net_addr_any(const u32 *a) { return !(a[0] | a[1] | a[2] | a[3]); }

#endif
