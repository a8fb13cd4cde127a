// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * net: routes and neighbours of the machine.
 *
 * Routes: the kernel alone knows its policy rules, metrics and multipath, so it is asked for each (source,
 * destination, interface), and the answer, a refusal too, is kept. Setting up many connections
 * to the same peers then costs no system call. All answers go when a link, address, route or rule
 * changes, or when there are too many. Some changes are announced before they take effect, and the
 * path MTU is not announced at all; so an answer is also not used for longer than ROUTE_AGE_ms.
 *
 * Neighbours: the table of the kernel is mirrored, those entries of it that have a usable link address. One
 * that is missing is asked for: with NTF_USE, which needs CAP_NET_ADMIN, else by an empty UDP
 * datagram to the discard port (RFC 863), which makes the kernel resolve its address. That
 * it failed is told once; whoever calls again has it tried again.
 */
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netlink/attr.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "net/net_host.h"

#define ROUTES_MAX 4096
#define ROUTE_AGE_ms 5000
#define NEIGH_ASK_AGAIN_ms 1000
/* Neighbours asked for that did not answer; nobody may ever come back for them, so their number is bounded. */
#define NEIGH_ASKED_MAX 1024
#define DISCARD_PORT 9

#define NUD_USABLE (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP)

struct route_key {
	u32 ipv4, oif;
	u32 src[4], dst[4];
};

struct route_rec {
	struct hash_node node;
	struct route_key key;
	u64 at_ns;
	int err;
	struct net_route route;
};

struct neigh_key {
	u32 ifindex, ipv4;
	u32 addr[4];
};

enum neigh_state {
	NEIGH_KNOWN,  /* mac is valid */
	NEIGH_ASKED,  /* resolution was started by us at at_ns */
	NEIGH_FAILED, /* it was, and failed; the next to ask is told */
};

struct neigh_rec {
	struct hash_node node;
	struct neigh_key key;
	enum neigh_state state;
	u64 at_ns;
	u8 mac[6];
};

/* ---- routes ---- */

static bool route_eq(const struct hash_node *n, const void *key)
{
	return !memcmp(&container_of(n, const struct route_rec, node)->key, key, sizeof(struct route_key));
}

static struct route_rec *route_find(struct net_host *h, const struct route_key *k)
{
	struct hash_node *n = hash_find(&h->routes, hash_of(&h->routes, k, sizeof(*k)), route_eq, k);

	return n ? container_of(n, struct route_rec, node) : NULL;
}

static bool route_free(struct hash_node *n, void *arg)
{
	struct net_host *h = arg;

	hash_del(&h->routes, n);
	free(container_of(n, struct route_rec, node));
	return true;
}

static void routes_flush(struct net_host *h)
{
	if (h->routes.count)
		hash_walk(&h->routes, route_free, h);
}

/**
 * host_stale() - routes may have changed
 * @net: the network, locked
 */
void host_stale(struct net *net)
{
	struct net_host *h = host_of(net);

	h->routes_gen++;
	routes_flush(h);
}

static bool route_cached(struct net_host *h, const struct route_key *k, struct net_route *out, int *err)
{
	struct route_rec *r = route_find(h, k);

	if (!r)
		return false;
	if (loop_monotonic_ns() - r->at_ns > ROUTE_AGE_ms * NSEC_PER_MSEC) {
		route_free(&r->node, h);
		return false;
	}
	*err = r->err;
	if (!r->err)
		*out = r->route;
	return true;
}

/* Another thread may have asked the same meanwhile: the newer answer stays. Without memory there is no cache. */
static void route_keep(struct net_host *h, const struct route_key *k, const struct net_route *route, int err)
{
	struct route_rec *r = route_find(h, k);

	if (r)
		route_free(&r->node, h);
	if (h->routes.count >= ROUTES_MAX)
		routes_flush(h);
	r = calloc(1, sizeof(*r));
	if (!r)
		return;
	r->key = *k;
	r->at_ns = loop_monotonic_ns();
	r->err = err;
	r->route = *route;
	hash_add(&h->routes, &r->node, hash_of(&h->routes, k, sizeof(*k)));
}

static struct nla_policy route_policy[RTA_MAX + 1] = {
	[RTA_OIF] = { .type = NLA_U32 },
	[RTA_METRICS] = { .type = NLA_NESTED },
};

static struct nla_policy metrics_policy[RTAX_MAX + 1] = { [RTAX_MTU] = { .type = NLA_U32 } };

static u32 route_mtu(struct nlattr **tb)
{
	struct nlattr *metrics[RTAX_MAX + 1];

	if (!tb[RTA_METRICS] || nla_parse_nested(metrics, RTAX_MAX, tb[RTA_METRICS], metrics_policy))
		return 0;
	return metrics[RTAX_MTU] ? nla_get_u32(metrics[RTAX_MTU]) : 0;
}

/* RTA_VIA (RFC 8950): an IPv6 gateway of an IPv4 route. Its words 1 to 3 tell it from an IPv4 address. */
static void route_gateway(bool ipv4, struct nlattr **tb, struct net_route *r)
{
	struct rtvia *via = tb[RTA_VIA] ? nla_data(tb[RTA_VIA]) : NULL;
	__be32 raw[4];

	if (tb[RTA_GATEWAY]) {
		host_addr_in(ipv4, tb[RTA_GATEWAY], r->gateway);
		r->has_gateway = true;
	} else if (via && nla_len(tb[RTA_VIA]) >= (int)(sizeof(*via) + sizeof(raw)) && via->rtvia_family == AF_INET6) {
		memcpy(raw, via->rtvia_addr, sizeof(raw));
		for (int i = 0; i < 4; i++)
			r->gateway[i] = be32toh(raw[i]);
		r->has_gateway = true;
	}
}

static int route_type_errno(u8 type)
{
	switch (type) {
	case RTN_UNREACHABLE:
		return -EHOSTUNREACH;
	case RTN_PROHIBIT:
		return -EACCES;
	case RTN_BLACKHOLE:
	case RTN_THROW:
		return -ENETUNREACH;
	default:
		return 0;
	}
}

struct route_answer {
	bool ipv4, found;
	struct net_route *out;
};

static int route_message(void *arg, struct nlmsghdr *nlh)
{
	struct route_answer *a = arg;
	struct nlattr *tb[RTA_MAX + 1];
	struct rtmsg *rtm = nlmsg_data(nlh);
	int err;

	if (nlh->nlmsg_type != RTM_NEWROUTE)
		return 0;
	if (nlmsg_parse(nlh, sizeof(*rtm), tb, RTA_MAX, route_policy))
		return -EBADMSG;
	err = route_type_errno(rtm->rtm_type);
	if (err)
		return err;
	a->found = true;
	a->out->local = rtm->rtm_type == RTN_LOCAL;
	a->out->ifindex = tb[RTA_OIF] ? nla_get_u32(tb[RTA_OIF]) : 0;
	a->out->mtu = route_mtu(tb);
	if (tb[RTA_PREFSRC])
		host_addr_in(a->ipv4, tb[RTA_PREFSRC], a->out->src);
	route_gateway(a->ipv4, tb, a->out);
	return 0;
}

static struct nl_msg *route_request(const struct route_key *k)
{
	u8 bits = k->ipv4 ? 32 : 128;
	bool has_src = !net_addr_any(k->src);
	struct rtmsg rtm = {
		.rtm_family = k->ipv4 ? AF_INET : AF_INET6,
		.rtm_dst_len = bits,
		.rtm_src_len = has_src ? bits : 0,
	};
	struct nl_msg *msg = nlmsg_alloc_simple(RTM_GETROUTE, 0);

	if (!msg)
		return NULL;
	if (nlmsg_append(msg, &rtm, sizeof(rtm), NLMSG_ALIGNTO) || host_addr_put(msg, RTA_DST, k->ipv4, k->dst))
		goto free_msg;
	if (has_src && host_addr_put(msg, RTA_SRC, k->ipv4, k->src))
		goto free_msg;
	if (k->oif && nla_put_u32(msg, RTA_OIF, k->oif))
		goto free_msg;
	return msg;

free_msg:
	nlmsg_free(msg);
	return NULL;
}

static int route_ask(struct net_host *h, const struct route_key *k, struct net_route *out)
{
	struct route_answer a = { .ipv4 = k->ipv4, .out = out };
	struct nl_msg *msg = route_request(k);
	int err;

	if (!msg)
		return -ENOMEM;
	err = host_request(h, msg, route_message, &a);
	nlmsg_free(msg);
	if (!err && !a.found)
		return -ENETUNREACH;
	return err;
}

/* What the kernel leaves to the reader. */
static void route_complete(struct net_host *h, const struct route_key *k, struct net_route *r)
{
	struct net_iface_rec *i;

	if (r->local && h->net.loopback)
		r->ifindex = h->net.loopback->i.ifindex;
	i = net_model_iface(&h->net, r->ifindex);
	if (i && (!r->mtu || r->mtu > i->i.mtu))
		r->mtu = i->i.mtu;
	if (!net_addr_any(k->src))
		net_addr_copy(k->ipv4, r->src, k->src);
	else if (r->local && net_addr_any(r->src))
		net_addr_copy(k->ipv4, r->src, k->dst);
}

/*
 * The kernel says EINVAL for a blackhole, and, depending on its version, EINVAL or ENETUNREACH for an
 * IPv4 source that is not ours.
 */
static int route_errno(struct net_host *h, const struct route_key *k, int err)
{
	bool foreign = !net_addr_any(k->src) && !net_in_127(k->ipv4, k->src) &&
		       !net_model_local(&h->net, k->ipv4, k->src, 0);

	if (err != -EINVAL && err != -ENETUNREACH)
		return err;
	return foreign ? -EADDRNOTAVAIL : -ENETUNREACH;
}

/* Answers about the route, not about the asking. */
static bool route_is_answer(int err)
{
	return !err || err == -ENETUNREACH || err == -EHOSTUNREACH || err == -EACCES;
}

/**
 * host_route_get() - net_route_get() for the machine
 * @net: the network
 * @ipv4: family
 * @src: source or NULL
 * @dst: destination
 * @oif: interface or 0
 * @out: filled on success
 *
 * Return: as net_route_get().
 */
int host_route_get(struct net *net, bool ipv4, const u32 *src, const u32 *dst, u32 oif, struct net_route *out)
{
	struct net_host *h = host_of(net);
	struct route_key k = { .ipv4 = ipv4, .oif = oif };
	u64 gen;
	int err;

	net_addr_copy(ipv4, k.dst, dst);
	if (src)
		net_addr_copy(ipv4, k.src, src);
	pthread_mutex_lock(&net->lock);
	if (route_cached(h, &k, out, &err))
		goto unlock;
	gen = h->routes_gen;
	pthread_mutex_unlock(&net->lock);

	err = route_ask(h, &k, out);

	pthread_mutex_lock(&net->lock);
	err = route_errno(h, &k, err);
	if (!err)
		route_complete(h, &k, out);
	if (route_is_answer(err) && gen == h->routes_gen)
		route_keep(h, &k, out, err);
unlock:
	pthread_mutex_unlock(&net->lock);
	return err;
}

/* ---- neighbours ---- */

static bool neigh_eq(const struct hash_node *n, const void *key)
{
	return !memcmp(&container_of(n, const struct neigh_rec, node)->key, key, sizeof(struct neigh_key));
}

static struct neigh_rec *neigh_find(struct net_host *h, const struct neigh_key *k)
{
	struct hash_node *n = hash_find(&h->neighs, hash_of(&h->neighs, k, sizeof(*k)), neigh_eq, k);

	return n ? container_of(n, struct neigh_rec, node) : NULL;
}

static bool neigh_free(struct hash_node *n, void *arg)
{
	struct neigh_rec *r = container_of(n, struct neigh_rec, node);
	struct net_host *h = arg;

	if (r->state != NEIGH_KNOWN)
		h->neighs_asked--;
	hash_del(&h->neighs, n);
	free(r);
	return true;
}

static bool neigh_free_asked(struct hash_node *n, void *arg)
{
	return container_of(n, struct neigh_rec, node)->state == NEIGH_KNOWN || neigh_free(n, arg);
}

static struct neigh_rec *neigh_get(struct net_host *h, const struct neigh_key *k)
{
	struct neigh_rec *r = neigh_find(h, k);

	if (r)
		return r;
	if (h->neighs_asked >= NEIGH_ASKED_MAX)
		hash_walk(&h->neighs, neigh_free_asked, h);
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->key = *k;
	r->state = NEIGH_ASKED;
	h->neighs_asked++;
	hash_add(&h->neighs, &r->node, hash_of(&h->neighs, k, sizeof(*k)));
	return r;
}

/**
 * host_neigh_clear() - forget all neighbours: a dump follows
 * @h: the host, locked
 */
void host_neigh_clear(struct net_host *h)
{
	hash_walk(&h->neighs, neigh_free, h);
}

static void neigh_known(struct net_host *h, const struct neigh_key *k, const u8 *mac)
{
	struct neigh_rec *r = neigh_get(h, k);

	/* The kernel tells each change between reachable and stale; only a new address is news. */
	if (!r || (r->state == NEIGH_KNOWN && !memcmp(r->mac, mac, sizeof(r->mac))))
		return;
	if (r->state != NEIGH_KNOWN)
		h->neighs_asked--;
	r->state = NEIGH_KNOWN;
	memcpy(r->mac, mac, sizeof(r->mac));
	net_stale(&h->net);
}

/* Of those that fail, only the ones that somebody here waits for are kept. */
static void neigh_lost(struct net_host *h, const struct neigh_key *k, bool failed)
{
	struct neigh_rec *r = neigh_find(h, k);

	if (!r)
		return;
	if (r->state == NEIGH_KNOWN)
		neigh_free(&r->node, h);
	else if (failed)
		r->state = NEIGH_FAILED;
	else
		return;
	net_stale(&h->net);
}

/* Bridge forwarding entries come as neighbours of their own family; proxies are not neighbours. */
static bool neigh_parse(struct nlmsghdr *nlh, struct neigh_key *k, struct nlattr **lladdr)
{
	struct nlattr *tb[NDA_MAX + 1];
	struct ndmsg *ndm = nlmsg_data(nlh);

	if (nlmsg_parse(nlh, sizeof(*ndm), tb, NDA_MAX, NULL) || !tb[NDA_DST] || (ndm->ndm_flags & NTF_PROXY))
		return false;
	if (ndm->ndm_family != AF_INET && ndm->ndm_family != AF_INET6)
		return false;
	memset(k, 0, sizeof(*k));
	k->ifindex = (u32)ndm->ndm_ifindex;
	k->ipv4 = ndm->ndm_family == AF_INET;
	host_addr_in(k->ipv4, tb[NDA_DST], k->addr);
	*lladdr = tb[NDA_LLADDR];
	return true;
}

/**
 * host_neigh_message() - the kernel says how a neighbour is
 * @h: the host, locked
 * @nlh: RTM_NEWNEIGH or RTM_DELNEIGH, from a dump or a notification
 */
void host_neigh_message(struct net_host *h, struct nlmsghdr *nlh)
{
	struct ndmsg *ndm = nlmsg_data(nlh);
	struct nlattr *lladdr;
	struct neigh_key k;

	if (!neigh_parse(nlh, &k, &lladdr))
		return;
	if (nlh->nlmsg_type == RTM_DELNEIGH || !(ndm->ndm_state & NUD_USABLE))
		neigh_lost(h, &k, ndm->ndm_state & NUD_FAILED);
	else if (lladdr && nla_len(lladdr) == 6)
		neigh_known(h, &k, nla_data(lladdr));
}

static int probe_use(struct net_host *h, const struct neigh_key *k)
{
	struct ndmsg ndm = {
		.ndm_family = k->ipv4 ? AF_INET : AF_INET6,
		.ndm_ifindex = (int)k->ifindex,
		.ndm_state = NUD_NONE,
		.ndm_flags = NTF_USE,
	};
	struct nl_msg *msg = nlmsg_alloc_simple(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
	int err = -ENOMEM;

	if (!msg)
		return -ENOMEM;
	if (!nlmsg_append(msg, &ndm, sizeof(ndm), NLMSG_ALIGNTO) && !host_addr_put(msg, NDA_DST, k->ipv4, k->addr))
		err = host_request(h, msg, NULL, NULL);
	nlmsg_free(msg);
	return err;
}

static int probe_send4(int fd, const struct neigh_key *k)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(DISCARD_PORT) };
	__be32 index = htobe32(k->ifindex);

	to.sin_addr.s_addr = htobe32(k->addr[0]);
	if (setsockopt(fd, IPPROTO_IP, IP_UNICAST_IF, &index, sizeof(index)))
		return -errno;
	return sendto(fd, NULL, 0, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) < 0 ? -errno : 0;
}

static int probe_send6(int fd, const struct neigh_key *k)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = htons(DISCARD_PORT) };
	__be32 index = htobe32(k->ifindex);

	for (int i = 0; i < 4; i++)
		to.sin6_addr.s6_addr32[i] = htobe32(k->addr[i]);
	if (net_is_link_local(false, k->addr))
		to.sin6_scope_id = k->ifindex;
	if (setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_IF, &index, sizeof(index)))
		return -errno;
	return sendto(fd, NULL, 0, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) < 0 ? -errno : 0;
}

/* The interface is set on a shared socket, hence the lock. */
static int probe_udp(struct net_host *h, const struct neigh_key *k)
{
	int fd = h->probe_fd[k->ipv4], err;

	if (fd < 0)
		return -EAFNOSUPPORT;
	pthread_mutex_lock(&h->req_lock);
	err = k->ipv4 ? probe_send4(fd, k) : probe_send6(fd, k);
	pthread_mutex_unlock(&h->req_lock);
	return err;
}

/* Errors are no answer about the neighbour: the caller goes on waiting, and will ask again. */
static void probe(struct net_host *h, const struct neigh_key *k)
{
	int err = -EPERM;

	if (!__atomic_load_n(&h->use_denied, __ATOMIC_RELAXED))
		err = probe_use(h, k);
	if (err == -EPERM) {
		__atomic_store_n(&h->use_denied, true, __ATOMIC_RELAXED);
		err = probe_udp(h, k);
	}
	if (err)
		log_debug("net", "cannot start resolution: %s", strerror(-err));
}

static bool neigh_ask_due(struct neigh_rec *r)
{
	u64 now = loop_monotonic_ns();

	if (r->at_ns && now - r->at_ns < NEIGH_ASK_AGAIN_ms * NSEC_PER_MSEC)
		return false;
	r->at_ns = now;
	return true;
}

static int neigh_asked(struct net_host *h, const struct neigh_key *k, u8 mac[6], bool *ask)
{
	struct neigh_rec *r = neigh_get(h, k);

	if (!r)
		return -ENOMEM;
	switch (r->state) {
	case NEIGH_KNOWN:
		memcpy(mac, r->mac, sizeof(r->mac));
		return 0;
	case NEIGH_FAILED:
		neigh_free(&r->node, h);
		return -EHOSTUNREACH;
	case NEIGH_ASKED:
		*ask = neigh_ask_due(r);
		return -EAGAIN;
	}
	return -EINVAL;
}

static int neigh_locked(struct net_host *h, const struct neigh_key *k, u8 mac[6], bool *ask)
{
	struct net_iface_rec *i = net_model_iface(&h->net, k->ifindex);

	if (!i)
		return -ENODEV;
	/* On a link without resolution the kernel uses the interface's own address, zeros for loopback. */
	if (i->i.loopback || i->noarp) {
		memcpy(mac, i->i.mac, sizeof(i->i.mac));
		return 0;
	}
	if (!i->i.up)
		return -EHOSTUNREACH;
	return neigh_asked(h, k, mac, ask);
}

/**
 * host_neigh_get() - net_neigh_get() for the machine
 * @net: the network
 * @ifindex: interface
 * @ipv4: family
 * @addr: the neighbour
 * @mac: filled on success
 *
 * The answer to what it starts comes with net_process().
 *
 * Return: as net_neigh_get().
 */
int host_neigh_get(struct net *net, u32 ifindex, bool ipv4, const u32 *addr, u8 mac[6])
{
	struct net_host *h = host_of(net);
	struct neigh_key k = { .ifindex = ifindex, .ipv4 = ipv4 };
	bool ask = false;
	int err;

	net_addr_copy(ipv4, k.addr, addr);
	pthread_mutex_lock(&net->lock);
	err = neigh_locked(h, &k, mac, &ask);
	pthread_mutex_unlock(&net->lock);
	if (ask)
		probe(h, &k);
	return err;
}

/* ---- both ---- */

/**
 * host_lookup_init() - empty caches
 * @h: the host
 *
 * Return: 0 or -ENOMEM.
 */
int host_lookup_init(struct net_host *h)
{
	if (hash_init(&h->routes, NULL))
		return -ENOMEM;
	if (!hash_init(&h->neighs, NULL))
		return 0;
	hash_destroy(&h->routes);
	return -ENOMEM;
}

/**
 * host_lookup_destroy() - free the caches
 * @h: the host
 */
void host_lookup_destroy(struct net_host *h)
{
	routes_flush(h);
	host_neigh_clear(h);
	hash_destroy(&h->routes);
	hash_destroy(&h->neighs);
}
