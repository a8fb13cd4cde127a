/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * net, private to the three files of the simulated kind: net_sim.c is the host, net_sim_route.c its routes,
 * net_sim_neigh.c the segment and what a host knows of its neighbours. All want net->lock held, but for the two
 * functions that stand behind net_ops.
 */
#ifndef UWARP_NET_SIM_H
#define UWARP_NET_SIM_H

#include "net/net_internal.h"

#define SIM_LOOPBACK 1 /* its ifindex, as on Linux */

struct sim_prefix_key {
	u32 ipv4, len;
	u32 addr[4];
};

struct sim_route {
	TAILQ_ENTRY(sim_route) entry;
	u32 ifindex;
	u32 refs;                 /* connected: addresses that stand for it; static: 1 */
	bool connected;
	bool has_gateway;
	u32 gateway[4];
};

struct net_sim {
	struct net net;
	struct net_segment *seg;
	u32 next_ifindex;
	struct hash_table prefixes;
	u32 prefixes_of_len[2][129]; /* [ipv4][length]: how many are in the table */
	bool asked_ready;            /* the table exists: made with the first delay */
	struct hash_table asked;
	u32 neigh_delay;
};

static inline struct net_sim *sim_of(struct net *net) { return container_of(net, struct net_sim, net); }
static inline u32 sim_addr_bits(bool ipv4) { return ipv4 ? 32 : 128; }

/* net_sim_route.c */
struct sim_prefix_key sim_prefix_key(bool ipv4, const u32 *addr, u32 len);
int sim_route_add(struct net_sim *s, const struct sim_prefix_key *k, const struct sim_route *like);
void sim_routes_del(struct net_sim *s, u32 ifindex /* 0: all */);
int sim_connected_add(struct net_sim *s, const struct net_addr *a);
void sim_connected_del(struct net_sim *s, const struct net_addr *a);
struct sim_route *sim_route_find(const struct net_sim *s, bool ipv4, const u32 *dst, u32 oif);
int sim_route_get(struct net *net, bool ipv4, const u32 *src, const u32 *dst, u32 oif, struct net_route *out);

/* net_sim_neigh.c */
void sim_segment_get(struct net_segment *seg);
void sim_segment_put(struct net_segment *seg);
int sim_owner_add(struct net_sim *s, const struct net_iface *i, struct net_addr_rec *r);
void sim_owner_del(struct net_sim *s, struct net_addr_rec *r);
void sim_owners_set_up(struct net_sim *s, struct net_iface_rec *i);
void sim_asked_destroy(struct net_sim *s);
int sim_neigh_get(struct net *net, u32 ifindex, bool ipv4, const u32 *addr, u8 mac[6]);

#endif
