// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* net: the model, watchers, and simulated hosts. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "net/net.h"

#define IP4(a, b, c, d) ((const u32[4]){ (u32)(a) << 24 | (b) << 16 | (c) << 8 | (d) })
#define IP6(a, b, c, d) ((const u32[4]){ a, b, c, d })

/* ---- helpers ---- */

struct recorder {
	struct net_watcher w;
	struct net *net;
	struct net_event e[64];
	size_t n;
	bool leave;               /* unwatch at the first event */
	struct recorder *evict;   /* and this one with it */
};

static void record(struct net_watcher *w, const struct net_event *e)
{
	struct recorder *r = container_of(w, struct recorder, w);

	assert_true(r->n < ARRAY_SIZE(r->e));
	r->e[r->n++] = *e;
	if (r->leave)
		net_unwatch(r->net, w);
	if (r->evict)
		net_unwatch(r->net, &r->evict->w);
	r->evict = NULL;
}

static void watch(struct recorder *r, struct net *net)
{
	memset(r, 0, sizeof(*r));
	r->w.event = record;
	r->net = net;
	net_watch(net, &r->w);
}

/* Events since the last call are exactly these; -1 ends the list. */
static void expect(struct recorder *r, ...)
{
	va_list ap;
	size_t i = 0;
	int type;

	net_process(r->net);
	va_start(ap, r);
	while ((type = va_arg(ap, int)) >= 0) {
		assert_true(i < r->n);
		assert_int_equal(r->e[i++].type, type);
	}
	va_end(ap);
	assert_int_equal(r->n, i);
	r->n = 0;
}

static struct net *host(struct net_segment *seg)
{
	struct net *net;

	assert_int_equal(net_open_sim(seg, &net), 0);
	return net;
}

static u32 add_iface(struct net *net, const char *name, u8 mac)
{
	struct net_iface i = { .mac = { 2, 0, 0, 0, 0, mac }, .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE };

	strcpy(i.name, name);
	assert_int_equal(net_sim_add_iface(net, &i), 0);
	return i.ifindex;
}

static u32 add_vlan(struct net *net, const char *name, u32 lower, u16 vlan_id)
{
	struct net_iface i = { .up = true, .vlan_id = vlan_id, .lower = lower };

	strcpy(i.name, name);
	assert_int_equal(net_sim_add_iface(net, &i), 0);
	return i.ifindex;
}

static struct net_addr addr_of(u32 ifindex, bool ipv4, const u32 *addr, u8 len)
{
	struct net_addr a = { .ifindex = ifindex, .ipv4 = ipv4, .prefix_len = len };

	memcpy(a.addr, addr, sizeof(a.addr));
	return a;
}

static int try_addr(struct net *net, u32 ifindex, bool ipv4, const u32 *addr, u8 len)
{
	struct net_addr a = addr_of(ifindex, ipv4, addr, len);

	return net_sim_add_addr(net, &a);
}

static void add_addr(struct net *net, u32 ifindex, bool ipv4, const u32 *addr, u8 len)
{
	assert_int_equal(try_addr(net, ifindex, ipv4, addr, len), 0);
}

static int del_addr(struct net *net, u32 ifindex, bool ipv4, const u32 *addr, u8 len)
{
	struct net_addr a = addr_of(ifindex, ipv4, addr, len);

	return net_sim_del_addr(net, &a);
}

static void assert_addr(const u32 *a, const u32 *b) { assert_memory_equal(a, b, 4 * sizeof(u32)); }

/* ---- tests ---- */

static void test_loopback(void **state)
{
	struct net *net = host(NULL);
	u8 mac[6], zero[6] = { 0 };
	struct net_iface i;
	struct net_addr a;
	struct net_route r;

	assert_int_equal(net_fd(net), -1);
	assert_int_equal(net_ifaces(net, &i, 1), 1);
	assert_true(i.loopback && i.up && i.ifindex == 1 && i.vlan_id == PKT_VLAN_NONE);
	assert_string_equal(i.name, "lo");

	assert_int_equal(net_local(net, true, IP4(127, 0, 0, 1), &i, &a), 0);
	assert_int_equal(net_local(net, true, IP4(127, 9, 8, 7), &i, &a), 0);
	assert_int_equal(i.ifindex, 1);
	assert_addr(a.addr, IP4(127, 9, 8, 7));
	assert_int_equal(net_local(net, false, IP6(0, 0, 0, 1), NULL, NULL), 0);
	assert_int_equal(net_local(net, false, IP6(0x7F000001, 0, 0, 0), NULL, NULL), -EADDRNOTAVAIL);
	assert_int_equal(net_local(net, true, IP4(10, 0, 0, 1), NULL, NULL), -EADDRNOTAVAIL);

	assert_int_equal(net_route_get(net, true, NULL, IP4(127, 5, 5, 5), 0, &r), 0);
	assert_true(r.local && r.ifindex == 1 && r.mtu == 65536 && !r.has_gateway);
	assert_int_equal(net_route_get(net, true, NULL, IP4(0, 0, 0, 0), 0, &r), 0);
	assert_true(r.local);
	assert_addr(r.src, IP4(127, 0, 0, 1));
	assert_int_equal(net_route_get(net, false, NULL, IP6(0, 0, 0, 0), 0, &r), 0);
	assert_addr(r.src, IP6(0, 0, 0, 1));
	assert_int_equal(net_route_get(net, true, NULL, IP4(10, 0, 0, 1), 0, &r), -ENETUNREACH);

	memset(mac, 0xFF, 6);
	assert_int_equal(net_neigh_get(net, 1, true, IP4(127, 0, 0, 1), mac), 0);
	assert_memory_equal(mac, zero, 6);
	assert_int_equal(net_sim_del_iface(net, 1), -EINVAL);
	net_close(net);
	net_close(NULL);
}

static void test_ifaces(void **state)
{
	struct net_iface i = { .name = "eth0", .ifindex = 7, .mac = { 2 }, .up = true };
	struct net *net = host(NULL);
	struct net_iface out[4];

	assert_int_equal(net_sim_add_iface(net, &i), 0);
	assert_int_equal(i.mtu, 1500);
	assert_int_equal(i.vlan_id, PKT_VLAN_NONE);
	assert_int_equal(net_sim_add_iface(net, &i), -EEXIST);
	i.ifindex = 0;
	assert_int_equal(net_sim_add_iface(net, &i), -EEXIST);
	strcpy(i.name, "eth1");
	assert_int_equal(net_sim_add_iface(net, &i), 0);
	assert_int_equal(i.ifindex, 8);
	i = (struct net_iface){ .name = "x", .loopback = true };
	assert_int_equal(net_sim_add_iface(net, &i), -EINVAL);
	i = (struct net_iface){ .name = "x", .vlan_id = 4095 };
	assert_int_equal(net_sim_add_iface(net, &i), -EINVAL);
	i = (struct net_iface){ .name = "x", .vlan_id = 5, .lower = 99 };
	assert_int_equal(net_sim_add_iface(net, &i), -ENODEV);
	i = (struct net_iface){ .mtu = 9000 };
	assert_int_equal(net_sim_add_iface(net, &i), -EINVAL);

	assert_int_equal(net_ifaces(net, NULL, 0), 3);
	assert_int_equal(net_ifaces(net, out, 2), 3);
	assert_int_equal(out[1].ifindex, 7);
	assert_int_equal(net_iface_by_index(net, 7, &i), 0);
	assert_string_equal(i.name, "eth0");
	assert_int_equal(net_iface_by_index(net, 9, &i), -ENODEV);
	assert_int_equal(net_iface_by_name(net, "eth1", &i), 0);
	assert_int_equal(i.ifindex, 8);
	assert_int_equal(net_iface_by_name(net, "eth", &i), -ENODEV);
	assert_int_equal(net_sim_del_iface(net, 7), 0);
	assert_int_equal(net_sim_del_iface(net, 7), -ENODEV);
	assert_int_equal(net_iface_by_name(net, "eth0", NULL), -ENODEV);
	assert_int_equal(net_sim_set_link(net, 7, true), -ENODEV);
	net_close(net);
}

static void test_addrs(void **state)
{
	struct net *net = host(NULL);
	u32 a = add_iface(net, "a", 1), b = add_iface(net, "b", 2);
	const u32 *ll = IP6(0xFE800000, 0, 0, 9);
	struct net_addr out[8];
	struct net_iface i;

	add_addr(net, a, true, IP4(10, 0, 0, 1), 24);
	add_addr(net, a, true, IP4(10, 0, 0, 2), 24);
	add_addr(net, b, false, ll, 64);
	add_addr(net, a, false, ll, 64);
	assert_int_equal(try_addr(net, a, true, IP4(10, 0, 0, 1), 24), -EEXIST);
	assert_int_equal(try_addr(net, 99, true, IP4(10, 0, 0, 3), 24), -ENODEV);
	assert_int_equal(try_addr(net, a, true, IP4(10, 0, 0, 3), 33), -EINVAL);
	assert_int_equal(try_addr(net, a, true, IP4(0, 0, 0, 0), 24), -EINVAL);
	assert_int_equal(try_addr(net, a, true, IP4(224, 0, 0, 1), 24), -EINVAL);
	assert_int_equal(try_addr(net, a, false, IP6(0xFF020000, 0, 0, 1), 64), -EINVAL);

	assert_int_equal(net_addrs(net, a, out, 8), 3);
	assert_int_equal(out[2].scope_id, a);
	assert_int_equal(out[0].scope_id, 0);
	assert_int_equal(net_addrs(net, 0, out, 1), 6);
	assert_int_equal(net_addrs(net, 99, out, 1), 0);

	assert_int_equal(net_local(net, true, IP4(10, 0, 0, 2), &i, &out[0]), 0);
	assert_int_equal(i.ifindex, a);
	assert_int_equal(out[0].prefix_len, 24);

	/* The first to have it wins, until it has it no longer. */
	assert_int_equal(net_local(net, false, ll, &i, &out[0]), 0);
	assert_int_equal(i.ifindex, b);
	assert_int_equal(out[0].scope_id, b);
	assert_int_equal(del_addr(net, b, false, ll, 64), 0);
	assert_int_equal(net_local(net, false, ll, &i, NULL), 0);
	assert_int_equal(i.ifindex, a);
	assert_int_equal(del_addr(net, b, false, ll, 64), -EADDRNOTAVAIL);
	assert_int_equal(del_addr(net, a, false, ll, 63), -EADDRNOTAVAIL);
	assert_int_equal(del_addr(net, a, false, ll, 64), 0);
	assert_int_equal(net_local(net, false, ll, &i, NULL), -EADDRNOTAVAIL);
	net_close(net);
}

static void test_events(void **state)
{
	struct net *net = host(NULL);
	struct recorder r;
	u32 a, v;

	add_iface(net, "early", 9); /* nobody watches: not reported */
	watch(&r, net);
	expect(&r, -1);
	a = add_iface(net, "a", 1);
	assert_int_equal(r.n, 0);
	expect(&r, NET_IFACE_ADDED, NET_ROUTES_CHANGED, -1);
	assert_string_equal(r.e[0].iface.name, "a");

	v = add_vlan(net, "a.5", a, 5);
	add_addr(net, v, true, IP4(10, 5, 0, 1), 24);
	expect(&r, NET_IFACE_ADDED, NET_ADDR_ADDED, NET_ROUTES_CHANGED, -1);
	assert_int_equal(r.e[0].iface.vlan_id, 5);
	assert_int_equal(r.e[1].iface.ifindex, v);
	assert_addr(r.e[1].addr.addr, IP4(10, 5, 0, 1));

	net_sim_set_link(net, a, false);
	expect(&r, NET_IFACE_DOWN, NET_IFACE_DOWN, NET_ROUTES_CHANGED, -1);
	assert_int_equal(r.e[0].iface.ifindex, a);
	assert_int_equal(r.e[1].iface.ifindex, v);
	net_sim_set_link(net, a, false);
	expect(&r, -1);
	net_sim_set_link(net, v, false);
	net_sim_set_link(net, a, true);
	expect(&r, NET_IFACE_UP, NET_ROUTES_CHANGED, -1);
	net_sim_set_link(net, v, true);
	expect(&r, NET_IFACE_UP, NET_ROUTES_CHANGED, -1);

	assert_int_equal(net_sim_add_route(net, true, IP4(0, 0, 0, 0), 0, IP4(10, 5, 0, 9), v), 0);
	expect(&r, NET_ROUTES_CHANGED, -1);
	net_sim_del_iface(net, a);
	expect(&r, NET_ADDR_REMOVED, NET_IFACE_REMOVED, NET_IFACE_REMOVED, NET_ROUTES_CHANGED, -1);
	assert_int_equal(r.e[1].iface.ifindex, v);
	assert_int_equal(r.e[2].iface.ifindex, a);
	net_unwatch(net, &r.w);
	add_iface(net, "late", 3);
	net_process(net);
	assert_int_equal(r.n, 0);
	net_close(net);
}

static void test_unwatch_inside(void **state)
{
	struct net *net = host(NULL);
	struct recorder a, b, c;

	watch(&a, net);
	watch(&b, net);
	watch(&c, net);
	a.leave = true;
	a.evict = &b; /* the next in line */
	add_iface(net, "x", 1);
	net_process(net);
	assert_int_equal(a.n, 1);
	assert_int_equal(b.n, 0);
	expect(&c, NET_IFACE_ADDED, NET_ROUTES_CHANGED, -1);
	net_unwatch(net, &c.w);
	net_close(net);
}

struct changer { struct net_watcher w; struct net *net; u32 ifindex; unsigned int downs, ups; };

static void change_inside(struct net_watcher *w, const struct net_event *e)
{
	struct changer *c = container_of(w, struct changer, w);

	c->downs += e->type == NET_IFACE_DOWN;
	c->ups += e->type == NET_IFACE_UP;
	if (e->type == NET_IFACE_DOWN)
		net_sim_set_link(c->net, c->ifindex, true);
	net_process(c->net); /* returns at once: we are inside it */
}

static void test_change_inside(void **state)
{
	struct changer c = { .w.event = change_inside, .net = host(NULL) };

	c.ifindex = add_iface(c.net, "x", 1);
	net_watch(c.net, &c.w);
	net_sim_set_link(c.net, c.ifindex, false);
	net_process(c.net);
	assert_int_equal(c.downs, 1);
	assert_int_equal(c.ups, 1);
	net_unwatch(c.net, &c.w);
	net_close(c.net);
}

struct slow { struct net_watcher w; atomic_int inside, done; };

static void slow_event(struct net_watcher *w, const struct net_event *e)
{
	struct slow *s = container_of(w, struct slow, w);

	s->inside = 1;
	usleep(20000);
	s->done = 1;
}

static void *process_thread(void *net)
{
	net_process(net);
	return NULL;
}

static void test_unwatch_waits(void **state)
{
	struct slow s = { .w.event = slow_event };
	struct net *net = host(NULL);
	pthread_t t;

	net_watch(net, &s.w);
	add_iface(net, "x", 1);
	assert_int_equal(pthread_create(&t, NULL, process_thread, net), 0);
	while (!s.inside)
		usleep(100);
	net_unwatch(net, &s.w);
	assert_int_equal(s.done, 1);
	pthread_join(t, NULL);
	net_close(net);
}

static void test_routes(void **state)
{
	struct net *net = host(NULL);
	u32 a = add_iface(net, "a", 1), b = add_iface(net, "b", 2);
	struct net_route r;

	add_addr(net, a, true, IP4(10, 0, 0, 1), 24);
	add_addr(net, b, true, IP4(10, 1, 0, 1), 24);
	add_addr(net, b, true, IP4(10, 1, 0, 2), 24);
	assert_int_equal(net_route_get(net, true, NULL, IP4(10, 0, 0, 77), 0, &r), 0);
	assert_true(r.ifindex == a && !r.has_gateway && !r.local && r.mtu == 1500);
	assert_addr(r.src, IP4(10, 0, 0, 1));
	assert_int_equal(net_route_get(net, true, NULL, IP4(10, 0, 0, 77), b, &r), -ENETUNREACH);
	assert_int_equal(net_route_get(net, true, NULL, IP4(172, 16, 0, 1), 0, &r), -ENETUNREACH);

	/* Our own address, whatever the interface. */
	assert_int_equal(net_route_get(net, true, NULL, IP4(10, 1, 0, 2), a, &r), 0);
	assert_true(r.local && r.ifindex == 1);
	assert_addr(r.src, IP4(10, 1, 0, 2));

	assert_int_equal(net_sim_add_route(net, true, IP4(0, 0, 0, 0), 0, IP4(10, 0, 0, 254), 0), 0);
	assert_int_equal(net_sim_add_route(net, true, IP4(172, 16, 0, 0), 12, IP4(10, 1, 0, 254), b), 0);
	assert_int_equal(net_sim_add_route(net, true, IP4(172, 16, 5, 0), 24, NULL, a), 0);
	assert_int_equal(net_sim_add_route(net, true, IP4(172, 16, 5, 0), 24, NULL, a), -EEXIST);
	assert_int_equal(net_sim_add_route(net, true, IP4(172, 16, 5, 0), 33, NULL, a), -EINVAL);
	assert_int_equal(net_sim_add_route(net, true, IP4(172, 16, 5, 0), 24, NULL, 99), -ENODEV);
	assert_int_equal(net_sim_add_route(net, false, IP6(0, 0, 0, 0), 0, IP6(0xFE800000, 0, 0, 1), 0), -ENETUNREACH);

	assert_int_equal(net_route_get(net, true, NULL, IP4(8, 8, 8, 8), 0, &r), 0);
	assert_true(r.ifindex == a && r.has_gateway);
	assert_addr(r.gateway, IP4(10, 0, 0, 254));
	assert_int_equal(net_route_get(net, true, NULL, IP4(172, 17, 0, 1), 0, &r), 0);
	assert_addr(r.gateway, IP4(10, 1, 0, 254));
	assert_addr(r.src, IP4(10, 1, 0, 1));
	assert_int_equal(net_route_get(net, true, NULL, IP4(172, 16, 5, 1), 0, &r), 0);
	assert_true(r.ifindex == a && !r.has_gateway);

	/* A source that is asked for stays; a foreign one is refused; zero means none. */
	assert_int_equal(net_route_get(net, true, IP4(10, 1, 0, 2), IP4(172, 17, 0, 1), 0, &r), 0);
	assert_addr(r.src, IP4(10, 1, 0, 2));
	assert_int_equal(net_route_get(net, true, IP4(10, 9, 0, 2), IP4(172, 17, 0, 1), 0, &r), -EADDRNOTAVAIL);
	assert_int_equal(net_route_get(net, true, IP4(0, 0, 0, 0), IP4(172, 17, 0, 1), 0, &r), 0);
	assert_addr(r.src, IP4(10, 1, 0, 1));

	/* The longer prefix is out of use while its interface is down, and gone with it. */
	net_sim_set_link(net, a, false);
	assert_int_equal(net_route_get(net, true, NULL, IP4(172, 16, 5, 1), 0, &r), 0);
	assert_int_equal(r.ifindex, b);
	assert_int_equal(net_route_get(net, true, NULL, IP4(8, 8, 8, 8), 0, &r), -ENETUNREACH);
	net_sim_set_link(net, a, true);
	assert_int_equal(net_route_get(net, true, NULL, IP4(8, 8, 8, 8), 0, &r), 0);
	net_sim_del_iface(net, a);
	assert_int_equal(net_route_get(net, true, NULL, IP4(8, 8, 8, 8), 0, &r), -ENETUNREACH);

	/* The connected route stays as long as one address of its prefix does. */
	assert_int_equal(del_addr(net, b, true, IP4(10, 1, 0, 1), 24), 0);
	assert_int_equal(net_route_get(net, true, NULL, IP4(10, 1, 0, 9), 0, &r), 0);
	assert_addr(r.src, IP4(10, 1, 0, 2));
	assert_int_equal(del_addr(net, b, true, IP4(10, 1, 0, 2), 24), 0);
	assert_int_equal(net_route_get(net, true, NULL, IP4(10, 1, 0, 9), 0, &r), -ENETUNREACH);
	net_close(net);
}

static void test_routes6(void **state)
{
	struct net *net = host(NULL);
	u32 a = add_iface(net, "a", 1), b = add_iface(net, "b", 2);
	const u32 *ll = IP6(0xFE800000, 0, 0, 0xA), *gw = IP6(0xFE800000, 0, 0, 0xFF);
	const u32 *global = IP6(0x20010DB8, 0, 0, 1);
	struct net_route r;

	add_addr(net, a, false, ll, 64);
	add_addr(net, a, false, global, 64);
	add_addr(net, b, false, IP6(0xFE800000, 0, 0, 0xB), 64);
	assert_int_equal(net_route_get(net, false, NULL, IP6(0xFE800000, 0, 0, 1), b, &r), 0);
	assert_int_equal(r.ifindex, b);
	assert_addr(r.src, IP6(0xFE800000, 0, 0, 0xB));
	assert_int_equal(net_route_get(net, false, NULL, IP6(0x20010DB8, 0, 0, 2), 0, &r), 0);
	assert_addr(r.src, global);

	/* A global destination behind a link-local gateway: a global source. */
	assert_int_equal(net_sim_add_route(net, false, IP6(0, 0, 0, 0), 0, gw, a), 0);
	assert_int_equal(net_route_get(net, false, NULL, IP6(0x20010DB9, 0, 0, 1), 0, &r), 0);
	assert_addr(r.gateway, gw);
	assert_addr(r.src, global);

	/* Our link-local address on one link may be somebody else's on another. */
	assert_int_equal(net_route_get(net, false, NULL, ll, a, &r), 0);
	assert_true(r.local);
	assert_int_equal(net_route_get(net, false, NULL, ll, 0, &r), 0);
	assert_true(r.local);
	assert_int_equal(net_route_get(net, false, NULL, ll, b, &r), 0);
	assert_false(r.local);
	net_close(net);
}

static void test_neighbours(void **state)
{
	struct net_segment *seg = net_segment_create();
	struct net *h1 = host(seg), *h2 = host(seg);
	u32 i1 = add_iface(h1, "e", 1), i2 = add_iface(h2, "e", 2), v1, v2;
	u8 mac[6], m2[6] = { 2, 0, 0, 0, 0, 2 };

	net_segment_destroy(seg); /* lives on with its hosts */
	add_addr(h1, i1, true, IP4(10, 0, 0, 1), 24);
	add_addr(h2, i2, true, IP4(10, 0, 0, 2), 24);
	assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 2), mac), 0);
	assert_memory_equal(mac, m2, 6);
	assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 3), mac), -EHOSTUNREACH);
	assert_int_equal(net_neigh_get(h1, 99, true, IP4(10, 0, 0, 2), mac), -ENODEV);

	net_sim_set_link(h2, i2, false);
	assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 2), mac), -EHOSTUNREACH);
	net_sim_set_link(h2, i2, true);
	assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 2), mac), 0);
	net_sim_set_link(h1, i1, false);
	assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 2), mac), -EHOSTUNREACH);
	net_sim_set_link(h1, i1, true);

	/* Each VLAN is a link of its own. */
	v1 = add_vlan(h1, "e.7", i1, 7);
	v2 = add_vlan(h2, "e.7", i2, 7);
	add_addr(h1, v1, true, IP4(10, 7, 0, 1), 24);
	add_addr(h2, v2, true, IP4(10, 7, 0, 2), 24);
	assert_int_equal(net_neigh_get(h1, v1, true, IP4(10, 7, 0, 2), mac), 0);
	assert_memory_equal(mac, m2, 6);
	assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 7, 0, 2), mac), -EHOSTUNREACH);
	net_sim_set_link(h2, i2, false);
	assert_int_equal(net_neigh_get(h1, v1, true, IP4(10, 7, 0, 2), mac), -EHOSTUNREACH);

	/* Of two owners the one that is up answers. */
	add_addr(h1, i1, true, IP4(10, 0, 0, 2), 24);
	assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 2), mac), 0);
	assert_int_equal(mac[5], 1);
	net_close(h2);
	net_close(h1);
}

static void test_neigh_delay(void **state)
{
	struct net_segment *seg = net_segment_create();
	struct net *h1 = host(seg), *h2 = host(seg);
	u32 i1 = add_iface(h1, "e", 1), i2 = add_iface(h2, "e", 2);
	struct recorder r;
	u8 mac[6];

	add_addr(h2, i2, true, IP4(10, 0, 0, 2), 24);
	add_addr(h1, i1, true, IP4(10, 0, 0, 1), 24);
	watch(&r, h1);
	net_sim_neigh_delay(h1, 2);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 2), mac), -EAGAIN);
		expect(&r, -1);
		assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 2), mac), -EAGAIN);
		expect(&r, NET_ROUTES_CHANGED, -1);
		assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 2), mac), 0);
		assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 2), mac), 0);
		net_sim_neigh_delay(h1, 2); /* from now on, again */
	}
	/* One that does not answer is asked anew. */
	for (int round = 0; round < 2; round++) {
		assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 3), mac), -EAGAIN);
		assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 3), mac), -EAGAIN);
		assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 3), mac), -EHOSTUNREACH);
	}
	net_sim_neigh_delay(h1, 0);
	assert_int_equal(net_neigh_get(h1, i1, true, IP4(10, 0, 0, 2), mac), 0);
	net_unwatch(h1, &r.w);
	net_close(h1);
	net_close(h2);
	net_segment_destroy(seg);
	net_segment_destroy(NULL);
}

static void test_many_hosts(void **state)
{
	enum { HOSTS = 10000 };
	struct net_segment *seg = net_segment_create();
	struct net **h = calloc(HOSTS, sizeof(*h));
	u64 start = loop_monotonic_ns();
	u8 mac[6];

	for (u32 i = 0; i < HOSTS; i++) {
		h[i] = host(seg);
		add_addr(h[i], add_iface(h[i], "e", (u8)i), true, IP4(10, 0, i >> 8, i & 255), 8);
	}
	for (u32 i = 0; i < HOSTS; i++)
		assert_int_equal(net_neigh_get(h[0], 2, true, IP4(10, 0, i >> 8, i & 255), mac), 0);
	print_message("%d hosts in %llu ms\n", HOSTS, (unsigned long long)((loop_monotonic_ns() - start) / NSEC_PER_MSEC));
	for (u32 i = 0; i < HOSTS; i++)
		net_close(h[i]);
	free(h);
	net_segment_destroy(seg);
}

static void test_current(void **state)
{
	struct net *a = host(NULL), *b = host(NULL), *prev;

	assert_null(net_current);
	assert_null(net_enter(a));
	prev = net_enter(b);
	assert_ptr_equal(prev, a);
	assert_ptr_equal(net_current, b);
	net_enter(NULL);
	net_close(a);
	net_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loopback), cmocka_unit_test(test_ifaces), cmocka_unit_test(test_addrs),
		cmocka_unit_test(test_events), cmocka_unit_test(test_unwatch_inside),
		cmocka_unit_test(test_change_inside), cmocka_unit_test(test_unwatch_waits),
		cmocka_unit_test(test_routes), cmocka_unit_test(test_routes6), cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_neigh_delay), cmocka_unit_test(test_many_hosts), cmocka_unit_test(test_current),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
