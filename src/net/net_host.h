/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* net, private to the two files of the host kind: net_host.c asks and listens, net_host_lookup.c keeps the answers. */
#ifndef UWARP_NET_HOST_H
#define UWARP_NET_HOST_H

#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include "net/net_internal.h"

struct net_host {
	struct net net;

	/* Used by the one thread that is in net_process(), or opens. */
	int event_fd;
	u8 *event_buf;
	bool resync;                  /* the model may be wrong: dump again */

	pthread_mutex_t req_lock;     /* next five; may be taken before net.lock, never under it */
	int req_fd;
	u8 *req_buf;
	u32 req_seq;
	bool use_denied;              /* NTF_USE needs a privilege that we lack */
	int probe_fd[2];              /* [ipv4]: UDP, for probes; -1: no such family here */

	/* Under net.lock. */
	struct hash_table neighs;
	size_t neighs_asked;          /* of them, not known */
	struct hash_table routes;
	u64 routes_gen;               /* counts flushes: an answer from before one is not kept */
};

/* Called for each message of an answer; 0 or a negative errno, which ends up as the result. */
typedef int (*host_answer_fn)(void *arg, struct nlmsghdr *nlh);

/* net_host.c */
int host_request(struct net_host *h, struct nl_msg *msg, host_answer_fn fn, void *arg);
void host_addr_in(bool ipv4, const struct nlattr *attr, u32 *addr);
int host_addr_put(struct nl_msg *msg, int type, bool ipv4, const u32 *addr);
static inline struct net_host *host_of(struct net *net) { return container_of(net, struct net_host, net); }

/* net_host_lookup.c */
int host_lookup_init(struct net_host *h);
void host_lookup_destroy(struct net_host *h);
void host_stale(struct net *net);                                        /* locked */
void host_neigh_message(struct net_host *h, struct nlmsghdr *nlh);       /* locked */
void host_neigh_clear(struct net_host *h);                               /* locked */
int host_route_get(struct net *net, bool ipv4, const u32 *src, const u32 *dst, u32 oif, struct net_route *out);
int host_neigh_get(struct net *net, u32 ifindex, bool ipv4, const u32 *addr, u8 mac[6]);

#endif
