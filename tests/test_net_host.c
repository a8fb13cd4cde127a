// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * net: the machine's own network. The tests run in a network namespace of their own, some with a second one
 * behind a veth pair. Without privileges only those run that change nothing.
 *
 *	this namespace                       child process "peer"
 *	v0 10.0.0.1/24 fd00::1/64 ---------- v1 10.0.0.2/24 fd00::2/64
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <linux/rtnetlink.h>
#include <linux/if_link.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include "net/net.h"

#define IP4(a, b, c, d) ((const u32[4]){ (u32)(a) << 24 | (b) << 16 | (c) << 8 | (d) })
#define IP6(a, b, c, d) ((const u32[4]){ a, b, c, d })
#define WAIT_ms 5000

static const char *no_namespace; /* why the tests cannot have one; NULL: they do */

/* ---- helpers ---- */

static void sh(const char *cmd)
{
	int rc = system(cmd);

	if (rc)
		fail_msg("'%s' gave %d", cmd, rc);
}

struct recorder {
	struct net_watcher w;
	struct net *net;
	struct net_event *e;
	size_t n;
};

static void record(struct net_watcher *w, const struct net_event *e)
{
	struct recorder *r = container_of(w, struct recorder, w);

	r->e = reallocarray(r->e, r->n + 1, sizeof(*r->e));
	assert_non_null(r->e);
	r->e[r->n++] = *e;
}

static void start(struct recorder *r)
{
	int err;

	memset(r, 0, sizeof(*r));
	r->w.event = record;
	err = net_open_host(&r->net);
	if (err) {
		print_message("skipped: netlink: %s\n", strerror(-err));
		skip();
	}
	net_watch(r->net, &r->w);
}

static void stop(struct recorder *r)
{
	net_unwatch(r->net, &r->w);
	net_close(r->net);
	free(r->e);
}

static void step(struct recorder *r, int timeout_ms)
{
	struct pollfd p = { .fd = net_fd(r->net), .events = POLLIN };

	poll(&p, 1, timeout_ms);
	net_process(r->net);
}

static const struct net_event *find(const struct recorder *r, size_t from, int type, const char *name, size_t *at)
{
	for (size_t i = from; i < r->n; i++) {
		if ((int)r->e[i].type == type && (!name || !strcmp(r->e[i].iface.name, name))) {
			if (at)
				*at = i;
			return &r->e[i];
		}
	}
	return NULL;
}

/* Wait for an event of this kind behind @from. */
static struct net_event await(struct recorder *r, size_t from, int type, const char *name, size_t *at)
{
	u64 end = loop_monotonic_ns() + WAIT_ms * NSEC_PER_MSEC;
	const struct net_event *e;

	while (!(e = find(r, from, type, name, at))) {
		if (loop_monotonic_ns() > end)
			fail_msg("no event %d for %s", type, name ? name : "any");
		step(r, 100);
	}
	return *e;
}

static void need_namespace(void)
{
	if (!no_namespace)
		return;
	print_message("skipped: %s\n", no_namespace);
	skip();
}

static void assert_addr(const u32 *a, const u32 *b) { assert_memory_equal(a, b, 4 * sizeof(u32)); }

static pid_t peer;

/* A process that only holds a namespace. */
static void peer_start(void)
{
	int ready[2];
	char c;

	assert_int_equal(pipe(ready), 0);
	peer = fork();
	assert_true(peer >= 0);
	if (!peer) {
		int failed = unshare(CLONE_NEWNET);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (failed || write(ready[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
}

static int setup_veth(void **state)
{
	char cmd[256];

	if (no_namespace)
		return 0;
	peer_start();
	sh("ip link add v0 type veth peer name v1");
	snprintf(cmd, sizeof(cmd), "ip link set v1 netns %d", peer);
	sh(cmd);
	snprintf(cmd, sizeof(cmd), "nsenter -t %d -n sh -c 'ip addr add 10.0.0.2/24 dev v1 && "
		 "ip addr add fd00::2/64 dev v1 nodad && ip link set v1 up'", peer);
	sh(cmd);
	sh("ip addr add 10.0.0.1/24 dev v0 && ip addr add fd00::1/64 dev v0 nodad && ip link set v0 up");
	return 0;
}

static int teardown_veth(void **state)
{
	if (no_namespace)
		return 0;
	sh("ip link del v0");
	kill(peer, SIGKILL);
	waitpid(peer, NULL, 0);
	return 0;
}

/* ---- tests ---- */

static void test_loopback(void **state)
{
	u8 mac[6] = { 1 }, zero[6] = { 0 };
	struct net_iface lo, again;
	struct net *net;
	int err = net_open_host(&net);

	if (err) {
		print_message("skipped: netlink: %s\n", strerror(-err));
		skip();
	}
	assert_true(net_fd(net) >= 0);
	assert_true(net_ifaces(net, NULL, 0) >= 1);
	assert_int_equal(net_iface_by_name(net, "lo", &lo), 0);
	assert_true(lo.loopback);
	assert_int_equal(lo.vlan_id, PKT_VLAN_NONE);
	assert_int_equal(net_iface_by_index(net, lo.ifindex, &again), 0);
	assert_int_equal(net_local(net, true, IP4(127, 1, 2, 3), &again, NULL), 0);
	assert_int_equal(again.ifindex, lo.ifindex);
	assert_int_equal(net_neigh_get(net, lo.ifindex, true, IP4(127, 0, 0, 1), mac), 0);
	assert_memory_equal(mac, zero, 6);
	assert_int_equal(net_iface_by_name(net, "no such one", NULL), -ENODEV);
	net_process(net);
	net_close(net);
}

static void test_events(void **state)
{
	struct recorder r;
	struct net_event e;
	struct net_addr a;
	struct net_iface i;
	size_t at;

	need_namespace();
	start(&r);
	sh("ip link add name d0 type veth peer name d1 && ip link set d1 up");
	e = await(&r, 0, NET_IFACE_ADDED, "d0", &at);
	assert_false(e.iface.up);
	assert_int_equal(net_iface_by_name(r.net, "d0", &i), 0);
	sh("ip link set d0 up");
	await(&r, at, NET_IFACE_UP, "d0", &at);
	sh("ip addr add 10.1.0.1/24 dev d0");
	e = await(&r, at, NET_ADDR_ADDED, "d0", &at);
	while (!e.addr.ipv4) /* the link-local address may come first */
		e = await(&r, at + 1, NET_ADDR_ADDED, "d0", &at);
	assert_addr(e.addr.addr, IP4(10, 1, 0, 1));
	assert_int_equal(e.addr.prefix_len, 24);
	await(&r, at, NET_ROUTES_CHANGED, NULL, NULL);
	sh("ip addr add 10.1.0.2/24 dev d0 && ip addr add fd01::1/64 dev d0 nodad");
	at = r.n;
	while (net_local(r.net, false, IP6(0xFD010000, 0, 0, 1), &i, &a))
		step(&r, 100);
	assert_int_equal(a.prefix_len, 64);
	assert_int_equal(net_local(r.net, true, IP4(10, 1, 0, 2), &i, &a), 0); /* secondary */
	assert_string_equal(i.name, "d0");
	assert_true(net_addrs(r.net, i.ifindex, NULL, 0) >= 3);

	at = r.n;
	sh("ip addr del 10.1.0.2/24 dev d0");
	e = await(&r, at, NET_ADDR_REMOVED, "d0", &at);
	assert_addr(e.addr.addr, IP4(10, 1, 0, 2));
	assert_int_equal(net_local(r.net, true, IP4(10, 1, 0, 2), NULL, NULL), -EADDRNOTAVAIL);
	sh("ip link set d0 down");
	await(&r, at, NET_IFACE_DOWN, "d0", &at);
	sh("ip link del d0");
	await(&r, at, NET_IFACE_REMOVED, "d0", &at);
	assert_null(find(&r, at, NET_ADDR_REMOVED, "d0", NULL));
	assert_int_equal(net_local(r.net, true, IP4(10, 1, 0, 1), NULL, NULL), -EADDRNOTAVAIL);
	stop(&r);
}

static void test_open_is_complete(void **state)
{
	struct net_iface i;
	struct recorder r;

	need_namespace();
	sh("ip link add name d0 type veth peer name d1 && ip link set d1 up && "
	   "ip link set d0 address 02:00:00:00:00:07 mtu 9000 up && ip addr add 10.1.0.1/24 dev d0 && "
	   "ip addr add 10.9.0.1 peer 10.9.0.2/32 dev d0");
	start(&r);
	assert_int_equal(net_iface_by_name(r.net, "d0", &i), 0);
	assert_true(i.up && !i.loopback && i.mtu == 9000 && i.mac[5] == 7 && !i.lower && i.vlan_id == PKT_VLAN_NONE);
	assert_int_equal(net_local(r.net, true, IP4(10, 1, 0, 1), &i, NULL), 0);
	assert_string_equal(i.name, "d0");
	assert_int_equal(net_local(r.net, true, IP4(10, 9, 0, 1), NULL, NULL), 0);
	assert_int_equal(net_local(r.net, true, IP4(10, 9, 0, 2), NULL, NULL), -EADDRNOTAVAIL);

	sh("ip link set d0 down && ip link set d0 name d9 && ip link set d9 up");
	await(&r, 0, NET_IFACE_UP, "d9", NULL);
	assert_int_equal(net_iface_by_name(r.net, "d0", NULL), -ENODEV);
	assert_int_equal(net_iface_by_name(r.net, "d9", NULL), 0);
	/* Without carrier its addresses are still this machine's. */
	sh("ip link set d1 down");
	for (int n = 0; n < 3; n++)
		step(&r, 100);
	assert_int_equal(net_iface_by_name(r.net, "d9", &i), 0);
	assert_true(i.up);
	sh("ip link set d9 down");
	await(&r, 0, NET_IFACE_DOWN, "d9", NULL);
	sh("ip link del d9");
	await(&r, 0, NET_IFACE_REMOVED, "d9", NULL);
	stop(&r);
}

static void test_vlan(void **state)
{
	struct net_iface i, v;
	struct net_addr a;
	struct recorder r;

	need_namespace();
	sh("ip link add name d0 type veth peer name d1 && ip link set d0 up && ip link set d1 up");
	if (system("ip link add link d0 name d0.42 type vlan id 42 2>/dev/null")) {
		sh("ip link del d0");
		print_message("skipped: this kernel has no VLAN interfaces\n");
		skip();
	}
	sh("ip link set d0.42 up && ip addr add 10.42.0.1/24 dev d0.42");
	start(&r);
	assert_int_equal(net_iface_by_name(r.net, "d0", &i), 0);
	assert_int_equal(net_local(r.net, true, IP4(10, 42, 0, 1), &v, &a), 0);
	assert_int_equal(v.vlan_id, 42);
	assert_int_equal(v.lower, i.ifindex);
	assert_int_equal(a.ifindex, v.ifindex);
	sh("ip link del d0");
	await(&r, 0, NET_IFACE_REMOVED, "d0.42", NULL);
	stop(&r);
}

static void test_tentative(void **state)
{
	struct recorder r;
	size_t at = 0;

	need_namespace();
	start(&r);
	/* Duplicate address detection takes a second or two; until then the address is not ours. */
	sh("ip addr add fd00::77/64 dev v0");
	step(&r, 200);
	assert_int_equal(net_local(r.net, false, IP6(0xFD000000, 0, 0, 0x77), NULL, NULL), -EADDRNOTAVAIL);
	while (await(&r, at, NET_ADDR_ADDED, "v0", &at).addr.addr[3] != 0x77)
		at++;
	assert_int_equal(net_local(r.net, false, IP6(0xFD000000, 0, 0, 0x77), NULL, NULL), 0);
	/* The peer has this one. */
	sh("ip addr add fd00::2/64 dev v0");
	for (int i = 0; i < 25; i++)
		step(&r, 100);
	assert_int_equal(net_local(r.net, false, IP6(0xFD000000, 0, 0, 2), NULL, NULL), -EADDRNOTAVAIL);
	stop(&r);
}

static void test_routes(void **state)
{
	struct net_iface v0, lo;
	struct recorder r;
	struct net_route rt;
	size_t at;

	need_namespace();
	start(&r);
	assert_int_equal(net_iface_by_name(r.net, "v0", &v0), 0);
	assert_int_equal(net_iface_by_name(r.net, "lo", &lo), 0);
	assert_int_equal(net_route_get(r.net, true, NULL, IP4(10, 0, 0, 2), 0, &rt), 0);
	assert_true(rt.ifindex == v0.ifindex && !rt.local && !rt.has_gateway && rt.mtu == 1500);
	assert_addr(rt.src, IP4(10, 0, 0, 1));
	assert_int_equal(net_route_get(r.net, false, NULL, IP6(0xFD000000, 0, 0, 2), 0, &rt), 0);
	assert_true(rt.ifindex == v0.ifindex && !rt.local && !rt.has_gateway);
	assert_addr(rt.src, IP6(0xFD000000, 0, 0, 1));
	assert_int_equal(net_route_get(r.net, true, NULL, IP4(10, 0, 0, 1), 0, &rt), 0);
	assert_true(rt.local && rt.ifindex == lo.ifindex);
	assert_addr(rt.src, IP4(10, 0, 0, 1));
	assert_int_equal(net_route_get(r.net, false, NULL, IP6(0xFD000000, 0, 0, 1), 0, &rt), 0);
	assert_true(rt.local && rt.ifindex == lo.ifindex);
	assert_addr(rt.src, IP6(0xFD000000, 0, 0, 1));
	assert_int_equal(net_route_get(r.net, true, NULL, IP4(8, 8, 8, 8), 0, &rt), -ENETUNREACH);
	assert_int_equal(net_route_get(r.net, false, NULL, IP6(0x20010DB8, 0, 0, 1), 0, &rt), -ENETUNREACH);
	assert_int_equal(net_route_get(r.net, true, IP4(10, 99, 0, 1), IP4(10, 0, 0, 2), 0, &rt), -EADDRNOTAVAIL);

	/* The refusal was kept; the new route does away with it. */
	at = r.n;
	sh("ip route add default via 10.0.0.2 mtu 1400 && ip route add unreachable 192.0.2.0/26 && "
	   "ip route add prohibit 192.0.2.64/26 && ip route add blackhole 192.0.2.128/26 && "
	   "ip -6 route add default via fd00::2 && ip -6 route add unreachable 2001:db8:1::/48 && "
	   "ip -6 route add prohibit 2001:db8:2::/48 && ip -6 route add blackhole 2001:db8:3::/48 && "
	   "ip route add 198.51.100.0/24 via inet6 fd00::2");
	await(&r, at, NET_ROUTES_CHANGED, NULL, NULL);
	for (int i = 0; i < 3; i++)
		step(&r, 50);
	assert_int_equal(net_route_get(r.net, true, NULL, IP4(8, 8, 8, 8), 0, &rt), 0);
	assert_true(rt.has_gateway && rt.ifindex == v0.ifindex && rt.mtu == 1400);
	assert_addr(rt.gateway, IP4(10, 0, 0, 2));
	assert_int_equal(net_route_get(r.net, true, IP4(10, 0, 0, 1), IP4(8, 8, 8, 8), v0.ifindex, &rt), 0);
	assert_addr(rt.src, IP4(10, 0, 0, 1));
	assert_int_equal(net_route_get(r.net, true, NULL, IP4(192, 0, 2, 1), 0, &rt), -EHOSTUNREACH);
	assert_int_equal(net_route_get(r.net, true, NULL, IP4(192, 0, 2, 65), 0, &rt), -EACCES);
	assert_int_equal(net_route_get(r.net, true, NULL, IP4(192, 0, 2, 129), 0, &rt), -ENETUNREACH);
	assert_int_equal(net_route_get(r.net, false, NULL, IP6(0x20010DB8, 0x00010000, 0, 1), 0, &rt), -EHOSTUNREACH);
	assert_int_equal(net_route_get(r.net, false, NULL, IP6(0x20010DB8, 0x00020000, 0, 1), 0, &rt), -EACCES);
	assert_int_equal(net_route_get(r.net, false, NULL, IP6(0x20010DB8, 0x00030000, 0, 1), 0, &rt), -ENETUNREACH);
	assert_int_equal(net_route_get(r.net, false, NULL, IP6(0x20010DB8, 0x00040000, 0, 1), 0, &rt), 0);
	assert_addr(rt.gateway, IP6(0xFD000000, 0, 0, 2));
	assert_int_equal(net_route_get(r.net, true, NULL, IP4(198, 51, 100, 1), 0, &rt), 0);
	assert_true(rt.has_gateway);
	assert_addr(rt.gateway, IP6(0xFD000000, 0, 0, 2));

	at = r.n;
	sh("ip link set v0 down");
	await(&r, at, NET_IFACE_DOWN, "v0", NULL);
	assert_int_equal(net_route_get(r.net, true, NULL, IP4(8, 8, 8, 8), 0, &rt), -ENETUNREACH);
	stop(&r);
}

/* Cached answers cost no system call: 100,000 of them take well under a second. */
static void test_route_cache(void **state)
{
	struct net_route rt;
	struct recorder r;
	u64 begin, cached_ns, asked_ns;

	need_namespace();
	start(&r);
	begin = loop_monotonic_ns();
	for (u32 i = 0; i < 10000; i++) /* more than the cache holds */
		assert_int_equal(net_route_get(r.net, true, NULL, IP4(10, 0, 0, 2 + i % 250), 0, &rt), 0);
	cached_ns = loop_monotonic_ns() - begin;
	begin = loop_monotonic_ns();
	for (u32 i = 0; i < 10000; i++)
		assert_int_equal(net_route_get(r.net, true, NULL, IP4(127, 0, i >> 8, i & 255), 0, &rt), 0);
	asked_ns = loop_monotonic_ns() - begin;
	print_message("per look-up: %llu ns cached, %llu ns asked\n", (unsigned long long)(cached_ns / 10000),
		      (unsigned long long)(asked_ns / 10000));
	stop(&r);
}

static int ask_neigh(struct recorder *r, u32 ifindex, bool ipv4, const u32 *addr, u8 mac[6])
{
	u64 end = loop_monotonic_ns() + 2 * WAIT_ms * NSEC_PER_MSEC;
	int err;

	while ((err = net_neigh_get(r->net, ifindex, ipv4, addr, mac)) == -EAGAIN) {
		assert_true(loop_monotonic_ns() < end);
		step(r, 100);
	}
	return err;
}

static void test_neighbours(void **state)
{
	u8 mac[6], mac6[6], zero[6] = { 0 };
	struct net_iface v0;
	struct recorder r;

	need_namespace();
	sh("ip neigh del 10.0.0.2 dev v0 2>/dev/null || true"); /* the kernel may have tried, and failed, while the link came up */
	start(&r);
	assert_int_equal(net_iface_by_name(r.net, "v0", &v0), 0);
	assert_int_equal(net_neigh_get(r.net, v0.ifindex, true, IP4(10, 0, 0, 2), mac), -EAGAIN);
	assert_int_equal(ask_neigh(&r, v0.ifindex, true, IP4(10, 0, 0, 2), mac), 0);
	assert_memory_not_equal(mac, zero, 6);
	assert_int_equal(ask_neigh(&r, v0.ifindex, false, IP6(0xFD000000, 0, 0, 2), mac6), 0);
	assert_memory_equal(mac, mac6, 6);
	/* An IPv6 gateway of an IPv4 route. */
	assert_int_equal(net_neigh_get(r.net, v0.ifindex, true, IP6(0xFD000000, 0, 0, 2), mac6), 0);
	/* Nobody there: told once, then asked anew. */
	assert_int_equal(ask_neigh(&r, v0.ifindex, true, IP4(10, 0, 0, 9), mac), -EHOSTUNREACH);
	assert_int_equal(net_neigh_get(r.net, v0.ifindex, true, IP4(10, 0, 0, 9), mac), -EAGAIN);
	assert_int_equal(net_neigh_get(r.net, 9999, true, IP4(10, 0, 0, 9), mac), -ENODEV);

	/* A new hardware address is news. */
	sh("ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:55 dev v0");
	for (int i = 0; i < 20 && mac[5] != 0x55; i++) {
		step(&r, 100);
		assert_int_equal(net_neigh_get(r.net, v0.ifindex, true, IP4(10, 0, 0, 2), mac), 0);
	}
	assert_int_equal(mac[5], 0x55);
	stop(&r);
}

/* A process without privileges has the kernel resolve by a datagram. */
static void test_neighbours_unprivileged(void **state)
{
	int status;
	pid_t pid;

	need_namespace();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct net *net;
		struct net_iface v0;
		u8 mac[6];
		int err = -EAGAIN, err6 = -EAGAIN;

		if (setuid(65534) || net_open_host(&net) || net_iface_by_name(net, "v0", &v0))
			_exit(1);
		for (int i = 0; i < 50 && (err || err6); i++) {
			struct pollfd p = { .fd = net_fd(net), .events = POLLIN };

			err = net_neigh_get(net, v0.ifindex, true, IP4(10, 0, 0, 2), mac);
			err6 = net_neigh_get(net, v0.ifindex, false, IP6(0xFD000000, 0, 0, 2), mac);
			poll(&p, 1, 100);
			net_process(net);
		}
		net_close(net);
		_exit(err || err6 ? 2 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- messages that no kernel here sends ---- */

/* Put one end of a socket pair in the place of the socket that net_process() reads; returns the other. */
static int take_over(struct net *net)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
	assert_true(dup2(pair[0], net_fd(net)) >= 0);
	close(pair[0]);
	return pair[1];
}

static void send_msg(struct net *net, int fd, struct nl_msg *msg)
{
	struct nlmsghdr *nlh = nlmsg_hdr(msg);

	assert_int_equal(send(fd, nlh, nlh->nlmsg_len, 0), (int)nlh->nlmsg_len);
	nlmsg_free(msg);
	net_process(net);
}

#define TEST_IFINDEX 4000

static struct nl_msg *link_msg(int type, u8 family, u32 ifindex, const char *name)
{
	struct ifinfomsg ifi = { .ifi_family = family, .ifi_index = (int)ifindex, .ifi_flags = IFF_UP | IFF_RUNNING };
	struct nl_msg *msg = nlmsg_alloc_simple(type, 0);

	assert_non_null(msg);
	assert_int_equal(nlmsg_append(msg, &ifi, sizeof(ifi), NLMSG_ALIGNTO), 0);
	assert_int_equal(nla_put_string(msg, IFLA_IFNAME, name), 0);
	assert_int_equal(nla_put_u32(msg, IFLA_MTU, 1500), 0);
	return msg;
}

static struct nl_msg *vlan_msg(u32 ifindex, const char *name, u16 vlan_id, u32 lower)
{
	struct nl_msg *msg = link_msg(RTM_NEWLINK, AF_UNSPEC, ifindex, name);
	struct nlattr *info, *data;

	nla_put_u32(msg, IFLA_LINK, lower);
	info = nla_nest_start(msg, IFLA_LINKINFO);
	nla_put_string(msg, IFLA_INFO_KIND, "vlan");
	data = nla_nest_start(msg, IFLA_INFO_DATA);
	nla_put_u16(msg, IFLA_VLAN_ID, vlan_id);
	nla_nest_end(msg, data);
	nla_nest_end(msg, info);
	return msg;
}

static struct nl_msg *addr_msg(int type, u32 ifindex, u32 flags)
{
	struct ifaddrmsg ifa = { .ifa_family = AF_INET6, .ifa_prefixlen = 64, .ifa_index = ifindex };
	struct nl_msg *msg = nlmsg_alloc_simple(type, 0);
	u8 addr[16] = { 0xFE, 0x80, [15] = 1 };

	assert_int_equal(nlmsg_append(msg, &ifa, sizeof(ifa), NLMSG_ALIGNTO), 0);
	assert_int_equal(nla_put(msg, IFA_ADDRESS, sizeof(addr), addr), 0);
	assert_int_equal(nla_put_u32(msg, IFA_FLAGS, flags), 0);
	return msg;
}

static bool have_ll(struct net *net)
{
	struct net_addr a;

	if (net_local(net, false, IP6(0xFE800000, 0, 0, 1), NULL, &a))
		return false;
	assert_int_equal(a.scope_id, a.ifindex);
	return true;
}

static void test_messages(void **state)
{
	struct net_iface i;
	struct recorder r;
	int fd;

	start(&r);
	fd = take_over(r.net);
	send_msg(r.net, fd, link_msg(RTM_NEWLINK, AF_UNSPEC, TEST_IFINDEX, "t0"));
	send_msg(r.net, fd, vlan_msg(TEST_IFINDEX + 1, "t0.9", 9, TEST_IFINDEX));
	assert_int_equal(net_iface_by_name(r.net, "t0.9", &i), 0);
	assert_true(i.up && i.vlan_id == 9 && i.lower == TEST_IFINDEX);

	/* A bridge port, and IPv6 settings, come and go: not the link. */
	send_msg(r.net, fd, link_msg(RTM_DELLINK, AF_BRIDGE, TEST_IFINDEX, "t0"));
	send_msg(r.net, fd, link_msg(RTM_DELLINK, AF_INET6, TEST_IFINDEX, "t0"));
	send_msg(r.net, fd, link_msg(RTM_NEWLINK, AF_BRIDGE, TEST_IFINDEX + 2, "t2"));
	assert_int_equal(net_iface_by_name(r.net, "t0", NULL), 0);
	assert_int_equal(net_iface_by_name(r.net, "t2", NULL), -ENODEV);

	send_msg(r.net, fd, addr_msg(RTM_NEWADDR, TEST_IFINDEX, IFA_F_TENTATIVE));
	assert_false(have_ll(r.net));
	send_msg(r.net, fd, addr_msg(RTM_NEWADDR, TEST_IFINDEX, IFA_F_TENTATIVE | IFA_F_OPTIMISTIC));
	assert_true(have_ll(r.net));
	send_msg(r.net, fd, addr_msg(RTM_NEWADDR, TEST_IFINDEX, IFA_F_PERMANENT | IFA_F_DEPRECATED));
	assert_true(have_ll(r.net));
	send_msg(r.net, fd, addr_msg(RTM_NEWADDR, TEST_IFINDEX, IFA_F_TENTATIVE | IFA_F_DADFAILED));
	assert_false(have_ll(r.net));
	send_msg(r.net, fd, addr_msg(RTM_NEWADDR, TEST_IFINDEX + 7, 0)); /* of a link that is not there */
	assert_false(have_ll(r.net));
	send_msg(r.net, fd, addr_msg(RTM_NEWADDR, TEST_IFINDEX, 0));

	/* The link alone is said to go: its address goes first. */
	r.n = 0;
	send_msg(r.net, fd, link_msg(RTM_DELLINK, AF_UNSPEC, TEST_IFINDEX, "t0"));
	assert_int_equal(r.n, 3);
	assert_int_equal(r.e[0].type, NET_ADDR_REMOVED);
	assert_int_equal(r.e[1].type, NET_IFACE_REMOVED);
	assert_int_equal(r.e[2].type, NET_ROUTES_CHANGED);
	close(fd);
	stop(&r);
}

/* Broken messages are passed over. Run under a sanitizer, this is the point. */
static void test_broken_messages(void **state)
{
	struct rand_gen g;
	struct recorder r;
	int fd;

	start(&r);
	fd = take_over(r.net);
	rand_gen_seed(&g, 1);
	for (int i = 0; i < 20000; i++) {
		struct nl_msg *msg = i & 1 ? vlan_msg(TEST_IFINDEX, "t0", 9, 1) : addr_msg(RTM_NEWADDR, 1, 0);
		struct nlmsghdr *nlh = nlmsg_hdr(msg);
		size_t len = nlh->nlmsg_len;

		for (u64 n = rand_gen_below(&g, 8); n; n--)
			((u8 *)nlh)[rand_gen_below(&g, len)] = (u8)rand_gen_u64(&g);
		nlh->nlmsg_type = (u16)(RTM_NEWLINK + rand_gen_below(&g, 24));
		send(fd, nlh, rand_gen_below(&g, len + 1), 0);
		nlmsg_free(msg);
		net_process(r.net);
		r.n = 0;
	}
	close(fd);
	stop(&r);
}

/* More notifications than the socket holds: the model is right in the end, and the events fit it. */
static void test_overflow(void **state)
{
	int small = 1; /* the kernel makes it its minimum */
	struct net_iface i;
	struct recorder r;
	size_t at;

	need_namespace();
	sh("ip link add name old type veth peer name oldp && ip addr add 10.3.0.1/24 dev old && "
	   "ip link add name keep type veth peer name keepp && ip link set keep up && ip link set keepp up");
	start(&r);
	assert_int_equal(setsockopt(net_fd(r.net), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	sh("for i in $(seq 20); do ip link add name x$i type veth peer name y$i; ip addr add 10.4.$i.1/24 dev x$i; done; "
	   "for i in $(seq 19); do ip link del x$i; done; ip link set keep down; ip link del old; "
	   "ip link add name old type veth peer name oldp; ip addr add 10.3.0.2/24 dev old");
	net_process(r.net);
	assert_int_equal(net_iface_by_name(r.net, "x7", NULL), -ENODEV);
	assert_int_equal(net_local(r.net, true, IP4(10, 4, 20, 1), &i, NULL), 0);
	assert_string_equal(i.name, "x20");
	assert_int_equal(net_local(r.net, true, IP4(10, 3, 0, 1), NULL, NULL), -EADDRNOTAVAIL);
	assert_int_equal(net_local(r.net, true, IP4(10, 3, 0, 2), NULL, NULL), 0);
	assert_int_equal(net_iface_by_name(r.net, "keep", &i), 0);
	assert_false(i.up);
	await(&r, 0, NET_IFACE_DOWN, "keep", NULL);
	await(&r, 0, NET_ADDR_ADDED, "x20", NULL);
	/* "old" went with its address before "old" came. */
	await(&r, 0, NET_ADDR_REMOVED, "old", &at);
	await(&r, at, NET_IFACE_REMOVED, "old", &at);
	await(&r, at, NET_IFACE_ADDED, "old", &at);
	await(&r, at, NET_ADDR_ADDED, "old", NULL);
	stop(&r);
	sh("ip link del old; ip link del keep; ip link del x20");
}

/* What the tests do must not reach the machine's own network. */
static const char *enter_namespace(void)
{
	if (geteuid())
		return "not root, so no network namespace";
	if (unshare(CLONE_NEWNET))
		return strerror(errno);
	if (system("ip link set lo up"))
		return "no ip command";
	return NULL;
}

static int setup_namespace(void **state)
{
	no_namespace = enter_namespace();
	return 0;
}

int main(void)
{
	const struct CMUnitTest outside[] = { cmocka_unit_test(test_loopback) };
	const struct CMUnitTest inside[] = {
		cmocka_unit_test(test_loopback),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_open_is_complete),
		cmocka_unit_test(test_vlan),
		cmocka_unit_test_setup_teardown(test_tentative, setup_veth, teardown_veth),
		cmocka_unit_test_setup_teardown(test_routes, setup_veth, teardown_veth),
		cmocka_unit_test_setup_teardown(test_route_cache, setup_veth, teardown_veth),
		cmocka_unit_test_setup_teardown(test_neighbours, setup_veth, teardown_veth),
		cmocka_unit_test_setup_teardown(test_neighbours_unprivileged, setup_veth, teardown_veth),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_broken_messages),
		cmocka_unit_test(test_overflow),
	};
	int failed = cmocka_run_group_tests_name("machine", outside, NULL, NULL);

	return failed + cmocka_run_group_tests_name("namespace", inside, setup_namespace, NULL);
}
