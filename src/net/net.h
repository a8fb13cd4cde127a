/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * net: what a host knows of its network: interfaces, addresses, routes, neighbours. Two kinds
 * behind one API: the machine's own, through rtnetlink (libnl), and a simulated one per host of the wire port.
 *
 * Addresses are u32[4] in host order. All calls may come from any thread; answers are copies.
 * Change callbacks come from net_process() alone, with no lock of this room held.
 */
#ifndef UWARP_NET_H
#define UWARP_NET_H

#include <net/if.h>
#include "base/base.h"

struct net;

struct net_iface {
	u32 ifindex;
	char name[IFNAMSIZ];
	u8 mac[6];
	u32 mtu;
	bool up;          /* administratively up; carrier may come and go, as it may under any TCP connection */
	bool loopback;
	u16 vlan_id;      /* PKT_VLAN_NONE unless this is a VLAN interface */
	u32 lower;        /* VLAN: ifindex of the interface underneath, else 0 */
};

struct net_addr {
	u32 ifindex;      /* interface that holds it (a VLAN interface counts itself) */
	bool ipv4;
	u32 addr[4];
	u8 prefix_len;
	u32 scope_id;     /* IPv6 link-local: ifindex, else 0 */
};

struct net_route {
	u32 ifindex;      /* outgoing; for one of our own addresses: the loopback interface */
	bool local;       /* destination is one of our own addresses */
	bool has_gateway;
	u32 gateway[4];
	u32 src[4];       /* preferred source address */
	u32 mtu;          /* of the path as known, bytes of IP packet */
};

enum net_event_type {
	NET_IFACE_ADDED, NET_IFACE_REMOVED, NET_IFACE_UP, NET_IFACE_DOWN,
	NET_ADDR_ADDED, NET_ADDR_REMOVED,
	NET_ROUTES_CHANGED,               /* any route or neighbour: cached look-ups are stale */
};

struct net_event {
	enum net_event_type type;
	struct net_iface iface;           /* interface concerned (unset for NET_ROUTES_CHANGED) */
	struct net_addr addr;             /* NET_ADDR_* only */
};

struct net_watcher {
	TAILQ_ENTRY(net_watcher) entry;
	void (*event)(struct net_watcher *w, const struct net_event *e);
};

/* The machine's own network. 0 or a negative errno. */
int net_open_host(struct net **out);
void net_close(struct net *net);
/*
 * fork(), of the machine's own network: no thread is in net_process(). Prepare takes its locks, parent and child give them back; in the child nothing is asked until resume
 * has opened sockets of its own. What changed meanwhile comes with the next net_process(), which the caller sees to.
 */
void net_fork_prepare(struct net *net);
void net_fork_parent(struct net *net);
void net_fork_child(struct net *net);
int net_fork_resume(struct net *net); /* 0 or a negative errno */
/* Descriptor that polls readable when net_process() has work; -1 for a simulated net. */
int net_fd(const struct net *net);
/* Something was lost, and could not be read again for want of memory or descriptors: call net_process() again, in a while. */
bool net_is_behind(const struct net *net);
/* Read what changed and call the watchers. Simulated: delivers queued changes. */
void net_process(struct net *net);
void net_watch(struct net *net, struct net_watcher *w);
void net_unwatch(struct net *net, struct net_watcher *w);

/* The i-th ... as of now: fill at most @max, return how many there are. */
size_t net_ifaces(struct net *net, struct net_iface *out, size_t max);
size_t net_addrs(struct net *net, u32 ifindex /* 0: all */, struct net_addr *out, size_t max);
int net_iface_by_index(struct net *net, u32 ifindex, struct net_iface *out);  /* 0 or -ENODEV */
int net_iface_by_name(struct net *net, const char *name, struct net_iface *out);
/* Interface holding local address @addr. O(1). 127.0.0.0/8 as a whole belongs to the loopback interface. @a may be NULL. 0 or -EADDRNOTAVAIL. */
int net_local(struct net *net, bool ipv4, const u32 *addr, struct net_iface *iface, struct net_addr *a);
/* Route towards @dst; @src may be NULL; @oif 0: any. 0, -ENETUNREACH, -EHOSTUNREACH. Cached until routes change. */
int net_route_get(struct net *net, bool ipv4, const u32 *src, const u32 *dst, u32 oif, struct net_route *out);
/*
 * Link address of on-link @addr. 0; -EAGAIN: not known yet, resolution was started where this host can
 * start it; -EHOSTUNREACH: resolution failed. Loopback: zeros.
 */
int net_neigh_get(struct net *net, u32 ifindex, bool ipv4, const u32 *addr, u8 mac[6]);

/*
 * The network of the host on whose behalf this thread runs, as the kernel's current->nsproxy->net_ns
 * is: functions of spec cm.md that take an address alone look it up here. Set by whoever
 * enters a NIC (see net_enter()); restored after.
 */
extern __thread struct net *net_current;
static inline struct net *net_enter(struct net *net)
{
	struct net *prev = net_current;

	net_current = net;
	return prev;
}

/* ---- simulated ---- */
struct net_segment; /* who has which address, shared by the hosts of one wire */

struct net_segment *net_segment_create(void);
void net_segment_destroy(struct net_segment *seg);

/* A simulated host, with a loopback interface (ifindex 1) and nothing else. */
int net_open_sim(struct net_segment *seg, struct net **out);
/* Add an interface; iface->ifindex 0: the next free one, written back. Up as iface->up says. */
int net_sim_add_iface(struct net *net, struct net_iface *iface);
int net_sim_del_iface(struct net *net, u32 ifindex);
int net_sim_set_link(struct net *net, u32 ifindex, bool up);
int net_sim_add_addr(struct net *net, const struct net_addr *a);
int net_sim_del_addr(struct net *net, const struct net_addr *a);
int net_sim_add_route(struct net *net, bool ipv4, const u32 *dst, u8 prefix_len, const u32 *gateway, u32 ifindex);
/* From now on the first @n look-ups of each neighbour give -EAGAIN before it is known (default 0). */
void net_sim_neigh_delay(struct net *net, u32 n);

#endif
