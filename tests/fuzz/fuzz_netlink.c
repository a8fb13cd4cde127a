/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What comes over rtnetlink: notifications of links, addresses, routes and neighbours, and the answers to requests, with attributes of any kind and length. The kernel is
 * not hostile, but its versions differ. The event socket is not there, the request socket's other end is the input.
 */
#include <netlink/netlink.h>
#include <netinet/in.h>
#include "fuzz.h"
#include "net/net_host.c"

#define MESSAGES 40
#define MESSAGE_MAX 1024u
#define LINKS 4

static const u16 types[] = {
	RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR, RTM_DELADDR, RTM_NEWNEIGH, RTM_DELNEIGH, RTM_NEWROUTE, RTM_DELROUTE, RTM_NEWRULE, NLMSG_ERROR, NLMSG_DONE,
};

struct buf {
	u8 bytes[HOST_BUF_BYTES];
	u32 len;
};

static struct buf buf;

static void put(const void *bytes, u32 len)
{
	assert(buf.len + len <= sizeof(buf.bytes));
	memcpy(buf.bytes + buf.len, bytes, len);
	buf.len += len;
}

static void align(void)
{
	static const u8 zero[NLMSG_ALIGNTO];

	put(zero, NLMSG_ALIGN(buf.len) - buf.len);
}

static void put_attr(struct fuzz *f)
{
	u8 value[32], lie = fuzz_u8(f);
	struct nlattr a = { .nla_type = fuzz_u8(f) % 64 };
	u32 len = (u32)fuzz_bytes(f, value, fuzz_u8(f) % sizeof(value));

	a.nla_len = (u16)(NLA_HDRLEN + len + (lie == 0xEE ? fuzz_near(f) : 0));
	put(&a, sizeof(a));
	put(value, len);
	align();
}

/* The header of the type, of few interfaces so that messages are about the same ones. */
static void put_header(struct fuzz *f, u16 type)
{
	u8 family = fuzz_u8(f) % 3 == 0 ? AF_UNSPEC : fuzz_u8(f) & 1 ? AF_INET : AF_INET6;
	struct ifinfomsg link = { .ifi_family = fuzz_u8(f) == 7, .ifi_index = (int)fuzz_below(f, LINKS), .ifi_flags = fuzz_u8(f) };
	struct ifaddrmsg addr = { .ifa_family = family, .ifa_prefixlen = fuzz_u8(f), .ifa_flags = fuzz_u8(f), .ifa_index = fuzz_below(f, LINKS) };
	struct ndmsg neigh = { .ndm_family = family, .ndm_ifindex = (int)fuzz_below(f, LINKS), .ndm_state = fuzz_u8(f), .ndm_type = fuzz_u8(f) };
	struct rtmsg route = { .rtm_family = family, .rtm_type = fuzz_u8(f) % 12, .rtm_flags = fuzz_u8(f) == 7 ? RTM_F_CLONED : 0 };
	int err = -(int)fuzz_u8(f);

	switch (type) {
	case RTM_NEWLINK: case RTM_DELLINK: put(&link, sizeof(link)); break;
	case RTM_NEWADDR: case RTM_DELADDR: put(&addr, sizeof(addr)); break;
	case RTM_NEWNEIGH: case RTM_DELNEIGH: put(&neigh, sizeof(neigh)); break;
	case RTM_NEWROUTE: case RTM_DELROUTE: put(&route, sizeof(route)); break;
	default: put(&err, sizeof(err)); break;
	}
	align();
}

/* A name and an MTU, without which a link is none. */
static void put_usual(struct fuzz *f, u16 type)
{
	struct nlattr name = { .nla_len = NLA_HDRLEN + 4, .nla_type = IFLA_IFNAME }, mtu = { .nla_len = NLA_HDRLEN + 4, .nla_type = IFLA_MTU };
	struct nlattr addr = { .nla_len = NLA_HDRLEN + 16, .nla_type = IFA_ADDRESS };
	u8 which = fuzz_below(f, LINKS), in6[16] = { 0xfd, which };

	if (type == RTM_NEWLINK || type == RTM_DELLINK) {
		put(&name, sizeof(name));
		put((char[]){ 'e', 't', (char)('0' + which), 0 }, 4);
		put(&mtu, sizeof(mtu));
		put(&(u32){ 1500 }, 4);
	} else if (type == RTM_NEWADDR || type == RTM_DELADDR || type == RTM_NEWNEIGH) {
		put(&addr, sizeof(addr));
		put(in6, sizeof(in6));
	}
}

static void put_message(struct fuzz *f, u32 seq)
{
	struct nlmsghdr h = { .nlmsg_type = types[fuzz_below(f, ARRAY_SIZE(types))], .nlmsg_seq = seq };
	u8 lie = fuzz_u8(f);
	u32 at = buf.len, n = fuzz_below(f, 8);

	if (lie == 0xEF)
		h.nlmsg_flags = NLM_F_DUMP_INTR;
	put(&h, sizeof(h));
	put_header(f, h.nlmsg_type);
	if (!(lie & 1))
		put_usual(f, h.nlmsg_type);
	while (n-- && fuzz_more(f))
		put_attr(f);
	h.nlmsg_len = buf.len - at + (lie == 0xEE ? fuzz_near(f) : 0);
	memcpy(buf.bytes + at, &h, sizeof(h));
}

/* ---- what the room does with it ---- */

static void notify(struct fuzz *f, struct net_host *h)
{
	buf.len = 0;
	put_message(f, 0);
	free(h->event_buf);
	h->event_buf = fuzz_copy(buf.bytes, buf.len);
	events_apply(h, buf.len);
	net_process(&h->net);
}

/* Up to three messages in one datagram, and an end behind them, so that nobody waits for one. */
static void put_answers(struct fuzz *f, const struct net_host *h, int fd)
{
	struct { struct nlmsghdr h; int err; } end = { { .nlmsg_len = sizeof(end), .nlmsg_type = NLMSG_DONE, .nlmsg_seq = h->req_seq + 1 }, 0 };
	u32 n = fuzz_below(f, 4);

	buf.len = 0;
	while (n--) {
		put_message(f, h->req_seq + 1);
		align();
	}
	if (buf.len)
		assert(send(fd, buf.bytes, buf.len, 0) == (ssize_t)buf.len);
	assert(send(fd, &end, sizeof(end), 0) == sizeof(end));
}

static void drain(int fd)
{
	while (recv(fd, buf.bytes, sizeof(buf.bytes), MSG_DONTWAIT) >= 0)
		;
}

static void ask(struct fuzz *f, struct net_host *h, int fd)
{
	u32 dst[4] = { fuzz_u8(f) ? 0xFD000000u | (u32)fuzz_u8(f) << 16 : 0x0A000001u, 0, 0, 0 };
	bool ipv4 = fuzz_u8(f) & 1;
	struct net_route route;
	u8 mac[6], what = fuzz_u8(f);
	int err;

	put_answers(f, h, fd);
	if (what & 1) {
		err = net_route_get(&h->net, ipv4, NULL, dst, fuzz_below(f, LINKS), &route);
	} else if (what & 2) {
		err = net_neigh_get(&h->net, fuzz_below(f, LINKS), ipv4, dst, mac);
	} else {
		err = dump_all(h);
		net_process(&h->net);
	}
	assert(err <= 0);
	drain(fd);
	drain(h->req_fd);
	host_stale(&h->net);
}

static struct net_host *open_host(int *fd)
{
	struct net_host *h = host_alloc();
	int pair[2];

	assert(h && !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair)); /* what is not there will not come */
	h->req_fd = pair[0];
	*fd = pair[1];
	return h;
}

static void close_host(struct net_host *h, int fd)
{
	close(h->req_fd);
	close(fd);
	h->req_fd = -1;
	net_close(&h->net);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { data, size };
	int fd, n;
	struct net_host *h = open_host(&fd);

	for (n = 0; n < MESSAGES && fuzz_more(&f); n++) {
		if (fuzz_u8(&f) % 4)
			notify(&f, h);
		else
			ask(&f, h, fd);
	}
	close_host(h, fd);
	return 0;
}
