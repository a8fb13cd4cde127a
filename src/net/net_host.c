// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * net: the machine's own network, through rtnetlink.
 *
 * Two sockets. One is subscribed to the groups of links, addresses, routes, rules and neighbours, and
 * is only ever read. The other sends requests, one at a time, and reads their answers. libnl
 * builds and parses the messages; the sockets are read here, because libnl folds errno into codes
 * of its own, and ENETUNREACH against EHOSTUNREACH, or ENOBUFS against ENOMEM, matter.
 *
 * Subscribe first, dump then: whatever changes during the dump is in the queue behind it, and messages
 * are idempotent. When the kernel could not queue a message (ENOBUFS), the queue is thrown away, since
 * what it holds may be older than what is missing, everything is dumped again, and the difference to
 * the model becomes events.
 *
 * Not followed: routing tables as such. The kernel is asked per destination, see net_host_lookup.c.
 */
#include <endian.h>
#include <errno.h>
#include <linux/if_link.h>
#include <netlink/attr.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "net/net_host.h"

/* The kernel sends at most 32 KiB of a dump at once, and single messages far smaller. */
#define HOST_BUF_BYTES 65536
/* Room for bursts, such as a thousand links at once. The kernel caps it at net.core.rmem_max. */
#define HOST_EVENT_RCVBUF (4 << 20)
/* The kernel answers within send(); this only keeps a broken one from stopping the caller. */
#define HOST_ANSWER_TIMEOUT_s 2
/* A dump that changes under the reader is read again; in the end the notifications repair it. */
#define HOST_DUMP_TRIES 5
/* Read errors in a row, other than overflow, before net_process() gives up until next time. */
#define HOST_READ_TRIES 8

static const u32 host_groups[] = {
	RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE,
	RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE, RTNLGRP_NEIGH,
};

/* What a dump brought, until it is compared with the model. */
struct host_dump {
	struct host_link { struct net_iface i; bool noarp; } *links;
	struct net_addr *addrs;
	size_t nr_links, nr_addrs;
};

/* ---- requests ---- */

/* Kernel order to ours. A malformed length leaves the rest 0. */
void host_addr_in(bool ipv4, const struct nlattr *attr, u32 *addr)
{
	__be32 raw[4] = { 0 };
	size_t want = ipv4 ? 4 : 16;

	memcpy(raw, nla_data(attr), min(want, (size_t)nla_len(attr)));
	for (int i = 0; i < 4; i++)
		addr[i] = be32toh(raw[i]);
}

int host_addr_put(struct nl_msg *msg, int type, bool ipv4, const u32 *addr)
{
	__be32 raw[4];

	for (int i = 0; i < 4; i++)
		raw[i] = htobe32(addr[i]);
	return nla_put(msg, type, ipv4 ? 4 : 16, raw) ? -ENOMEM : 0;
}

struct answer {
	u32 seq;
	bool dump, done, interrupted;
	int err;
	host_answer_fn fn;
	void *arg;
};

/* NLMSG_ERROR (an acknowledgement if 0) and NLMSG_DONE both begin with an errno. */
static int message_errno(struct nlmsghdr *nlh)
{
	int err = 0;

	if (nlmsg_datalen(nlh) >= (int)sizeof(err))
		memcpy(&err, nlmsg_data(nlh), sizeof(err));
	return err < 0 ? err : 0;
}

static void answer_message(struct answer *a, struct nlmsghdr *nlh)
{
	if (nlh->nlmsg_flags & NLM_F_DUMP_INTR)
		a->interrupted = true;
	if (nlh->nlmsg_type == NLMSG_ERROR || nlh->nlmsg_type == NLMSG_DONE) {
		a->done = true;
		if (!a->err)
			a->err = message_errno(nlh);
	} else if (nlh->nlmsg_type >= NLMSG_MIN_TYPE && a->fn && !a->err) {
		a->err = a->fn(a->arg, nlh);
	}
}

/* Left-overs of a request that timed out carry another number and are passed over. */
static int answer_read(struct net_host *h, struct answer *a)
{
	ssize_t n = recv(h->req_fd, h->req_buf, HOST_BUF_BYTES, MSG_TRUNC);
	struct nlmsghdr *nlh = (void *)h->req_buf;
	int left;

	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : errno == EINTR ? 0 : -errno;
	if (n > HOST_BUF_BYTES)
		return -EMSGSIZE;
	for (left = (int)n; nlmsg_ok(nlh, left) && !a->done; nlh = nlmsg_next(nlh, &left)) {
		if (nlh->nlmsg_seq == a->seq)
			answer_message(a, nlh);
	}
	return 0;
}

static int request_locked(struct net_host *h, struct nl_msg *msg, struct answer *a)
{
	struct nlmsghdr *nlh = nlmsg_hdr(msg);
	ssize_t sent;
	int err = 0;

	a->seq = ++h->req_seq;
	a->dump = (nlh->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
	nlh->nlmsg_seq = a->seq;
	nlh->nlmsg_flags |= NLM_F_REQUEST | (a->dump ? 0 : NLM_F_ACK);
	do
		sent = send(h->req_fd, nlh, nlh->nlmsg_len, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return -errno;
	while (!a->done && !err)
		err = answer_read(h, a);
	if (!err)
		err = a->err;
	return !err && a->interrupted ? -EINTR : err;
}

/**
 * host_request() - send a request and read the whole answer
 * @h: the host; req_lock is taken
 * @msg: the request; stays the caller's
 * @fn: called for each message of the answer; may be NULL
 * @arg: handed to @fn
 *
 * Return: 0; what the kernel, a socket call or @fn said; -ETIMEDOUT; -EINTR: the dump changed meanwhile.
 */
int host_request(struct net_host *h, struct nl_msg *msg, host_answer_fn fn, void *arg)
{
	struct answer a = { .fn = fn, .arg = arg };
	int err;

	pthread_mutex_lock(&h->req_lock);
	err = request_locked(h, msg, &a);
	pthread_mutex_unlock(&h->req_lock);
	return err;
}

/* ---- messages to model ---- */

static struct nla_policy link_policy[IFLA_MAX + 1] = {
	[IFLA_IFNAME] = { .type = NLA_STRING, .maxlen = IFNAMSIZ },
	[IFLA_MTU] = { .type = NLA_U32 },
	[IFLA_LINK] = { .type = NLA_U32 },
	[IFLA_LINKINFO] = { .type = NLA_NESTED },
};

static struct nla_policy info_policy[IFLA_INFO_MAX + 1] = {
	[IFLA_INFO_KIND] = { .type = NLA_STRING },
	[IFLA_INFO_DATA] = { .type = NLA_NESTED },
};

static struct nla_policy vlan_policy[IFLA_VLAN_MAX + 1] = { [IFLA_VLAN_ID] = { .type = NLA_U16 } };
static struct nla_policy addr_policy[IFA_MAX + 1] = { [IFA_FLAGS] = { .type = NLA_U32 } };

static void link_vlan(struct nlattr **tb, struct net_iface *i)
{
	struct nlattr *info[IFLA_INFO_MAX + 1], *vlan[IFLA_VLAN_MAX + 1];

	i->vlan_id = PKT_VLAN_NONE;
	if (!tb[IFLA_LINKINFO] || nla_parse_nested(info, IFLA_INFO_MAX, tb[IFLA_LINKINFO], info_policy))
		return;
	if (!info[IFLA_INFO_KIND] || nla_strcmp(info[IFLA_INFO_KIND], "vlan") || !info[IFLA_INFO_DATA])
		return;
	if (nla_parse_nested(vlan, IFLA_VLAN_MAX, info[IFLA_INFO_DATA], vlan_policy) || !vlan[IFLA_VLAN_ID])
		return;
	i->vlan_id = nla_get_u16(vlan[IFLA_VLAN_ID]);
	/* With a namespace id, the number counts in that other namespace. */
	if (tb[IFLA_LINK] && !tb[IFLA_LINK_NETNSID])
		i->lower = nla_get_u32(tb[IFLA_LINK]);
}

/*
 * False for what is not about the link itself: bridge ports and IPv6 settings come as links of their
 * families, wireless events carry a name and little else.
 */
static bool link_parse(struct nlmsghdr *nlh, struct host_link *l)
{
	struct nlattr *tb[IFLA_MAX + 1];
	struct ifinfomsg *ifi = nlmsg_data(nlh);

	if (nlmsg_parse(nlh, sizeof(*ifi), tb, IFLA_MAX, link_policy) || ifi->ifi_family != AF_UNSPEC)
		return false;
	if (!tb[IFLA_IFNAME] || !tb[IFLA_MTU] || tb[IFLA_WIRELESS])
		return false;
	memset(l, 0, sizeof(*l));
	l->i.ifindex = (u32)ifi->ifi_index;
	l->i.mtu = nla_get_u32(tb[IFLA_MTU]);
	l->i.up = ifi->ifi_flags & IFF_UP; /* without carrier, too: its addresses are still this machine's */
	l->i.loopback = ifi->ifi_flags & IFF_LOOPBACK;
	l->noarp = ifi->ifi_flags & IFF_NOARP;
	nla_strlcpy(l->i.name, tb[IFLA_IFNAME], sizeof(l->i.name));
	if (tb[IFLA_ADDRESS] && nla_len(tb[IFLA_ADDRESS]) == sizeof(l->i.mac))
		memcpy(l->i.mac, nla_data(tb[IFLA_ADDRESS]), sizeof(l->i.mac));
	link_vlan(tb, &l->i);
	return true;
}

static int link_put(struct net *net, const struct host_link *l, bool seen)
{
	struct net_iface_rec *r;
	int err = net_model_iface_put(net, &l->i, &r);

	if (err)
		return err;
	r->noarp = l->noarp;
	r->seen = seen;
	return 0;
}

static int link_message(struct net *net, struct nlmsghdr *nlh)
{
	struct net_iface_rec *r;
	struct host_link l;

	if (!link_parse(nlh, &l))
		return 0;
	if (nlh->nlmsg_type == RTM_NEWLINK)
		return link_put(net, &l, true);
	r = net_model_iface(net, l.i.ifindex);
	if (r)
		net_model_iface_drop(net, r);
	return 0;
}

/* An address that is still being checked for duplicates, or failed that, cannot be used (RFC 4862 5.4). */
static bool addr_usable(const struct ifaddrmsg *ifa, struct nlattr **tb)
{
	u32 flags = tb[IFA_FLAGS] ? nla_get_u32(tb[IFA_FLAGS]) : ifa->ifa_flags;

	if (flags & IFA_F_DADFAILED)
		return false;
	return !(flags & IFA_F_TENTATIVE) || (flags & IFA_F_OPTIMISTIC);
}

static bool addr_parse(struct nlmsghdr *nlh, struct net_addr *a, bool *usable)
{
	struct nlattr *attr, *tb[IFA_MAX + 1];
	struct ifaddrmsg *ifa = nlmsg_data(nlh);

	if (nlmsg_parse(nlh, sizeof(*ifa), tb, IFA_MAX, addr_policy))
		return false;
	/* On a point-to-point link IFA_ADDRESS is the other end. */
	attr = tb[IFA_LOCAL] ? tb[IFA_LOCAL] : tb[IFA_ADDRESS];
	if (!attr || (ifa->ifa_family != AF_INET && ifa->ifa_family != AF_INET6))
		return false;
	memset(a, 0, sizeof(*a));
	a->ifindex = ifa->ifa_index;
	a->ipv4 = ifa->ifa_family == AF_INET;
	a->prefix_len = ifa->ifa_prefixlen;
	host_addr_in(a->ipv4, attr, a->addr);
	*usable = addr_usable(ifa, tb);
	return true;
}

/* An address of a link that is not known yet, or no longer, is none of the model's. */
static int addr_put(struct net *net, const struct net_addr *a, bool seen)
{
	struct net_addr_rec *r;
	int err = net_model_addr_put(net, a, &r);

	if (err)
		return err == -ENODEV ? 0 : err;
	r->seen = seen;
	return 0;
}

static int addr_message(struct net *net, struct nlmsghdr *nlh)
{
	struct net_addr_rec *r;
	struct net_addr a;
	bool usable;

	if (!addr_parse(nlh, &a, &usable))
		return 0;
	if (nlh->nlmsg_type == RTM_NEWADDR && usable)
		return addr_put(net, &a, true);
	r = net_model_addr(net, &a);
	if (r)
		net_model_addr_drop(net, r);
	return 0;
}

/* Entries that the kernel makes for its own use, per destination, are no change of the table. */
static void route_message(struct net *net, struct nlmsghdr *nlh)
{
	struct rtmsg *rtm = nlmsg_data(nlh);

	if (nlmsg_valid_hdr(nlh, sizeof(*rtm)) && !(rtm->rtm_flags & RTM_F_CLONED))
		net_stale(net);
}

static int event_message(struct net_host *h, struct nlmsghdr *nlh)
{
	switch (nlh->nlmsg_type) {
	case RTM_NEWLINK:
	case RTM_DELLINK:
		return link_message(&h->net, nlh);
	case RTM_NEWADDR:
	case RTM_DELADDR:
		return addr_message(&h->net, nlh);
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
		route_message(&h->net, nlh);
		return 0;
	case RTM_NEWRULE:
	case RTM_DELRULE:
		net_stale(&h->net);
		return 0;
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		host_neigh_message(h, nlh);
		return 0;
	default:
		return 0;
	}
}

/* ---- dumps ---- */

static void *array_grow(void *array, size_t n, size_t size)
{
	/* Powers of two: grow when the next element would be the first beyond one. */
	if (n & (n - 1))
		return array;
	return reallocarray(array, n ? 2 * n : 1, size);
}

static int dump_link(void *arg, struct nlmsghdr *nlh)
{
	struct host_dump *d = arg;
	struct host_link *grown, l;

	if (nlh->nlmsg_type != RTM_NEWLINK || !link_parse(nlh, &l))
		return 0;
	grown = array_grow(d->links, d->nr_links, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	d->links = grown;
	d->links[d->nr_links++] = l;
	return 0;
}

static int dump_addr(void *arg, struct nlmsghdr *nlh)
{
	struct host_dump *d = arg;
	struct net_addr *grown, a;
	bool usable;

	if (nlh->nlmsg_type != RTM_NEWADDR || !addr_parse(nlh, &a, &usable) || !usable)
		return 0;
	grown = array_grow(d->addrs, d->nr_addrs, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	d->addrs = grown;
	d->addrs[d->nr_addrs++] = a;
	return 0;
}

static int dump_neigh(void *arg, struct nlmsghdr *nlh)
{
	struct net_host *h = arg;

	pthread_mutex_lock(&h->net.lock);
	host_neigh_message(h, nlh);
	pthread_mutex_unlock(&h->net.lock);
	return 0;
}

static int dump_once(struct net_host *h, int type, size_t header_bytes, host_answer_fn fn, void *arg)
{
	struct nl_msg *msg = nlmsg_alloc_simple(type, NLM_F_DUMP);
	int err = -ENOMEM;

	if (!msg)
		return -ENOMEM;
	/* All zero asks for every family and every interface. */
	if (nlmsg_reserve(msg, header_bytes, NLMSG_ALIGNTO))
		err = host_request(h, msg, fn, arg);
	nlmsg_free(msg);
	return err;
}

/* @restart: forget what an interrupted dump brought. */
static int dump(struct net_host *h, int type, size_t header_bytes, host_answer_fn fn, void *arg, size_t *restart)
{
	int err = -EINTR;

	for (int i = 0; i < HOST_DUMP_TRIES && err == -EINTR; i++) {
		if (restart)
			*restart = 0;
		err = dump_once(h, type, header_bytes, fn, arg);
	}
	return err == -EINTR ? 0 : err;
}

static void seen_clear(struct net *net)
{
	struct net_iface_rec *i;
	struct net_addr_rec *r;

	TAILQ_FOREACH(i, &net->ifaces, entry) {
		i->seen = false;
		TAILQ_FOREACH(r, &i->addrs, entry)
			r->seen = false;
	}
}

static void seen_mark(struct net *net, const struct host_dump *d)
{
	struct net_iface_rec *i;
	struct net_addr_rec *r;

	for (size_t n = 0; n < d->nr_links; n++) {
		i = net_model_iface(net, d->links[n].i.ifindex);
		if (i)
			i->seen = true;
	}
	for (size_t n = 0; n < d->nr_addrs; n++) {
		r = net_model_addr(net, &d->addrs[n]);
		if (r)
			r->seen = true;
	}
}

static void unseen_drop(struct net *net)
{
	struct net_iface_rec *i, *next_iface;
	struct net_addr_rec *r, *next;

	TAILQ_FOREACH_SAFE(i, &net->ifaces, entry, next_iface) {
		TAILQ_FOREACH_SAFE(r, &i->addrs, entry, next) {
			if (!r->seen)
				net_model_addr_drop(net, r);
		}
		if (!i->seen)
			net_model_iface_drop(net, i);
	}
}

/* What is gone goes first: a new interface may have an old one's name, or its address. */
static int dump_apply(struct net *net, const struct host_dump *d)
{
	int err = 0;

	seen_clear(net);
	seen_mark(net, d);
	unseen_drop(net);
	for (size_t n = 0; n < d->nr_links && !err; n++)
		err = link_put(net, &d->links[n], true);
	for (size_t n = 0; n < d->nr_addrs && !err; n++)
		err = addr_put(net, &d->addrs[n], true);
	net_stale(net);
	return err;
}

static int dump_all(struct net_host *h)
{
	struct host_dump d = { 0 };
	int err;

	err = dump(h, RTM_GETLINK, sizeof(struct ifinfomsg), dump_link, &d, &d.nr_links);
	if (!err)
		err = dump(h, RTM_GETADDR, sizeof(struct ifaddrmsg), dump_addr, &d, &d.nr_addrs);
	if (!err) {
		pthread_mutex_lock(&h->net.lock);
		err = dump_apply(&h->net, &d);
		host_neigh_clear(h);
		pthread_mutex_unlock(&h->net.lock);
	}
	if (!err)
		err = dump(h, RTM_GETNEIGH, sizeof(struct ndmsg), dump_neigh, h, NULL);
	free(d.links);
	free(d.addrs);
	return err;
}

/* ---- notifications ---- */

/* Bytes, 0: nothing left, or a negative errno; -ENOBUFS: something was lost. */
static ssize_t events_recv(struct net_host *h, struct sockaddr_nl *from)
{
	socklen_t len = sizeof(*from);
	ssize_t n;

	do {
		n = recvfrom(h->event_fd, h->event_buf, HOST_BUF_BYTES, MSG_TRUNC | MSG_DONTWAIT,
			     (struct sockaddr *)from, &len);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	return n > HOST_BUF_BYTES ? -ENOBUFS : n;
}

static int events_apply(struct net_host *h, size_t bytes)
{
	struct nlmsghdr *nlh = (void *)h->event_buf;
	int err = 0;

	pthread_mutex_lock(&h->net.lock);
	for (int left = (int)bytes; nlmsg_ok(nlh, left) && !err; nlh = nlmsg_next(nlh, &left))
		err = event_message(h, nlh);
	pthread_mutex_unlock(&h->net.lock);
	return err;
}

/*
 * Read until nothing is left. Once something was lost, what comes is only thrown away, see above.
 * What does not come from the kernel (port 0) is no notification.
 */
static void events_read(struct net_host *h)
{
	struct sockaddr_nl from = { 0 };
	int errors = 0;
	ssize_t n;

	while (errors < HOST_READ_TRIES && (n = events_recv(h, &from))) {
		if (n < 0) {
			log_info("net", "notifications lost (%s): dumping again", strerror((int)-n));
			h->resync = true;
			errors = n == -ENOBUFS ? 0 : errors + 1;
		} else if (!h->resync && !from.nl_pid && events_apply(h, (size_t)n)) {
			h->resync = true;
		}
	}
}

/* An overflow while the dump was read shows only behind it, hence the loop. */
static void host_poll(struct net *net)
{
	struct net_host *h = host_of(net);
	int err = 0;

	events_read(h);
	for (int i = 0; i < HOST_DUMP_TRIES && h->resync && !err; i++) {
		err = dump_all(h);
		if (!err) {
			h->resync = false;
			events_read(h);
		}
	}
	if (err)
		log_error("net", "cannot read interfaces and addresses (%s), will try again", strerror(-err));
	__atomic_store_n(&net->behind, h->resync, __ATOMIC_RELAXED);
}

/* ---- open and close ---- */

static int netlink_socket(int type)
{
	struct sockaddr_nl any = { .nl_family = AF_NETLINK };
	int err, fd = fd_own_high(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | type, NETLINK_ROUTE));

	if (fd < 0)
		return -errno;
	if (!bind(fd, (struct sockaddr *)&any, sizeof(any)))
		return fd;
	err = -errno;
	fd_disown_close(fd);
	return err;
}

static int event_socket(void)
{
	int size = HOST_EVENT_RCVBUF, fd = netlink_socket(SOCK_NONBLOCK);

	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	for (size_t i = 0; i < ARRAY_SIZE(host_groups); i++) {
		if (setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &host_groups[i], sizeof(host_groups[i]))) {
			int err = -errno;

			fd_disown_close(fd);
			return err;
		}
	}
	return fd;
}

static int request_socket(void)
{
	struct timeval tv = { .tv_sec = HOST_ANSWER_TIMEOUT_s };
	int fd = netlink_socket(0);

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	return fd;
}

/* A family that is not there, or not allowed, is done without: then *@fd is -1. */
static int probe_socket(int family, int *fd)
{
	*fd = fd_own_high(socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (*fd >= 0 || errno == EAFNOSUPPORT || errno == EPERM || errno == EACCES)
		return 0;
	return -errno;
}

/* All sockets now: a thread may change its namespace later. */
static int sockets_open(struct net_host *h)
{
	int err;

	h->event_fd = event_socket();
	if (h->event_fd < 0)
		return h->event_fd;
	h->req_fd = request_socket();
	if (h->req_fd < 0)
		return h->req_fd;
	err = probe_socket(AF_INET6, &h->probe_fd[false]);
	return err ? err : probe_socket(AF_INET, &h->probe_fd[true]);
}

static void sockets_close(struct net_host *h)
{
	fd_disown_close(h->event_fd);
	fd_disown_close(h->req_fd);
	fd_disown_close(h->probe_fd[0]);
	fd_disown_close(h->probe_fd[1]);
}

static void host_close(struct net *net)
{
	struct net_host *h = host_of(net);

	net_base_destroy(net);
	host_lookup_destroy(h);
	sockets_close(h);
	pthread_mutex_destroy(&h->req_lock);
	free(h->event_buf);
	free(h->req_buf);
	free(h);
}

static int host_fd(const struct net *net)
{
	return container_of(net, const struct net_host, net)->event_fd;
}

static const struct net_ops host_ops = {
	.close = host_close,
	.fd = host_fd,
	.poll = host_poll,
	.stale = host_stale,
	.route_get = host_route_get,
	.neigh_get = host_neigh_get,
};

static struct net_host *host_alloc(void)
{
	struct net_host *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->event_fd = h->req_fd = h->probe_fd[0] = h->probe_fd[1] = -1;
	h->event_buf = malloc(HOST_BUF_BYTES);
	h->req_buf = malloc(HOST_BUF_BYTES);
	if (!h->event_buf || !h->req_buf || host_lookup_init(h))
		goto free_host;
	if (net_base_init(&h->net, &host_ops))
		goto destroy_lookup;
	pthread_mutex_init(&h->req_lock, NULL);
	return h;

destroy_lookup:
	host_lookup_destroy(h);
free_host:
	free(h->event_buf);
	free(h->req_buf);
	free(h);
	return NULL;
}

/**
 * net_open_host() - the network namespace that the calling thread is in
 * @out: the network; its interfaces and addresses are complete
 *
 * Needs no privilege, but a container may forbid netlink.
 *
 * Return: 0, -ENOMEM, or what the kernel said.
 */
int net_open_host(struct net **out)
{
	struct net_host *h = host_alloc();
	int err;

	if (!h)
		return -ENOMEM;
	err = sockets_open(h);
	if (!err)
		err = dump_all(h);
	if (err) {
		host_close(&h->net);
		return err;
	}
	host_poll(&h->net);
	*out = &h->net;
	return 0;
}

/* ---- fork ---- */

/**
 * net_fork_prepare() - this process is about to fork
 * @net: from net_open_host()
 */
void net_fork_prepare(struct net *net)
{
	pthread_mutex_lock(&host_of(net)->req_lock);
	pthread_mutex_lock(&net->lock);
}

/**
 * net_fork_parent() - it has forked
 * @net: the network
 */
void net_fork_parent(struct net *net)
{
	pthread_mutex_unlock(&net->lock);
	pthread_mutex_unlock(&host_of(net)->req_lock);
}

/**
 * net_fork_child() - it is the child of a fork
 * @net: the network; its sockets are the parent's: answers would go to either
 */
void net_fork_child(struct net *net)
{
	struct net_host *h = host_of(net);

	sockets_close(h);
	h->event_fd = h->req_fd = h->probe_fd[0] = h->probe_fd[1] = -1;
	pthread_cond_init(&net->called, NULL);
	net_fork_parent(net);
}

/**
 * net_fork_resume() - the child begins to use it
 * @net: the network
 *
 * Return: 0, or what the kernel said; it may be tried again.
 */
int net_fork_resume(struct net *net)
{
	struct net_host *h = host_of(net);
	int err = sockets_open(h);

	if (!err) {
		h->resync = true;
		return 0;
	}
	sockets_close(h);
	h->event_fd = h->req_fd = h->probe_fd[0] = h->probe_fd[1] = -1;
	return err;
}
