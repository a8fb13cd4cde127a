// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Routes, neighbours, the ARP table and address handles. */
#include "cm_fixture.h"

static struct irdma_device *dev_up(struct fx *fx)
{
	fx_up(fx, IRDMA_GEN_2, 1);
	return fx->host[0].dev;
}

static void check_mac(struct irdma_device *dev, int index, const u8 *want)
{
	u8 mac[6];

	assert_true(index >= 0);
	assert_int_equal(rnic_arp_mac(dev, index, mac), 0);
	assert_memory_equal(mac, want, 6);
}

/* Either family's, as the tests below need it. */
static int resolve_addr(struct irdma_device *dev, bool ipv4, u32 *src, u32 *dst, int arpindex)
{
	struct net *prev = net_enter(dev->net);
	int index = ipv4 ? irdma_addr_resolve_neigh(dev, src[0], dst[0], arpindex) : irdma_addr_resolve_neigh_ipv6(dev, src, dst, arpindex);

	net_enter(prev);
	return index;
}

#define FOR_FAMILIES(v) for (int v = 0; v < 2; v++)

static void neighbour_on_the_link(void **state)
{
	FOR_FAMILIES(v4) {
		u32 src[4], dst[4], any[4] = { 0 };
		struct irdma_device *dev;
		struct fx fx;
		int index;

		dev = dev_up(&fx);
		fx_addr(v4, 0, src);
		fx_addr(v4, 1, dst);
		index = resolve_addr(dev, v4, src, dst, RNIC_ARP_NONE);
		check_mac(dev, index, fx.host[1].iface.mac);
		assert_int_equal(rnic_arp_find(dev, v4, dst), index);
		assert_int_equal(resolve_addr(dev, v4, any, dst, RNIC_ARP_NONE), index); /* any source will do */
		fx_addr(v4, 2, dst);
		check_mac(dev, resolve_addr(dev, v4, any, dst, RNIC_ARP_NONE), fx.host[2].iface.mac);
		fx_down(&fx);
	}
}

static void own_address_has_the_own_mac(void **state)
{
	FOR_FAMILIES(v4) {
		struct irdma_device *dev;
		struct fx fx;
		u32 src[4];

		dev = dev_up(&fx);
		fx_addr(v4, 0, src);
		check_mac(dev, resolve_addr(dev, v4, src, src, RNIC_ARP_NONE), fx.host[0].iface.mac);
		fx_down(&fx);
	}
}

/* A look-up that is known asks neither route nor neighbour again. */
static void known_entry_needs_no_network(void **state)
{
	FOR_FAMILIES(v4) {
		struct irdma_device *dev;
		u32 src[4], dst[4];
		struct fx fx;
		int index;

		dev = dev_up(&fx);
		fx_addr(v4, 0, src);
		fx_addr(v4, 1, dst);
		index = resolve_addr(dev, v4, src, dst, RNIC_ARP_NONE);
		assert_int_equal(net_sim_set_link(fx.host[0].net, fx.host[0].iface.ifindex, false), 0);
		assert_int_equal(resolve_addr(dev, v4, src, dst, RNIC_ARP_NONE), index);
		assert_int_equal(resolve_addr(dev, v4, src, dst, index), index);
		rnic_arp_flush(dev);
		assert_true(resolve_addr(dev, v4, src, dst, index) < 0);
		fx_down(&fx);
	}
}

static void index_of_another_peer_is_not_believed(void **state)
{
	FOR_FAMILIES(v4) {
		u32 src[4], one[4], two[4];
		struct irdma_device *dev;
		struct fx fx;
		int index;

		dev = dev_up(&fx);
		fx_addr(v4, 0, src);
		fx_addr(v4, 1, one);
		fx_addr(v4, 2, two);
		index = resolve_addr(dev, v4, src, one, RNIC_ARP_NONE);
		rnic_arp_flush(dev);
		assert_int_equal(resolve_addr(dev, v4, src, two, RNIC_ARP_NONE), index); /* it has the old place now */
		check_mac(dev, resolve_addr(dev, v4, src, one, index), fx.host[1].iface.mac);
		check_mac(dev, resolve_addr(dev, v4, src, one, 1000000), fx.host[1].iface.mac);
		fx_down(&fx);
	}
}

static void behind_a_gateway_it_is_the_gateways(void **state)
{
	FOR_FAMILIES(v4) {
		u32 src[4], gw[4], dst[4] = { v4 ? 0xC6336401 : 0x20010DB8, 0, 0, v4 ? 0 : 1 };
		struct irdma_device *dev;
		struct fx fx;

		dev = dev_up(&fx);
		fx_addr(v4, 0, src);
		fx_addr(v4, 2, gw);
		assert_int_equal(net_sim_add_route(fx.host[0].net, v4, dst, v4 ? 24 : 64, gw, fx.host[0].iface.ifindex), 0);
		check_mac(dev, resolve_addr(dev, v4, src, dst, RNIC_ARP_NONE), fx.host[2].iface.mac);
		fx_down(&fx);
	}
}

static void no_route_and_no_neighbour_are_different(void **state)
{
	FOR_FAMILIES(v4) {
		u32 src[4], nobody[4], far[4] = { v4 ? 0xC6336401 : 0x20010DB8, 0, 0, v4 ? 0 : 1 };
		struct irdma_device *dev;
		struct fx fx;

		dev = dev_up(&fx);
		fx_addr(v4, 0, src);
		fx_addr(v4, 77, nobody);
		assert_int_equal(resolve_addr(dev, v4, src, far, RNIC_ARP_NONE), -ENETUNREACH);
		assert_int_equal(resolve_addr(dev, v4, src, nobody, RNIC_ARP_NONE), -EHOSTUNREACH);
		assert_int_equal(rnic_arp_find(dev, v4, far), RNIC_ARP_NONE);
		assert_int_equal(rnic_arp_find(dev, v4, nobody), RNIC_ARP_NONE);
		fx_down(&fx);
	}
}

static void unknown_neighbour_is_asked_for(void **state)
{
	FOR_FAMILIES(v4) {
		struct irdma_device *dev;
		u32 src[4], dst[4];
		struct fx fx;

		dev = dev_up(&fx);
		fx_addr(v4, 0, src);
		fx_addr(v4, 1, dst);
		net_sim_neigh_delay(fx.host[0].net, 2);
		assert_int_equal(resolve_addr(dev, v4, src, dst, RNIC_ARP_NONE), -EAGAIN);
		assert_int_equal(rnic_arp_find(dev, v4, dst), RNIC_ARP_NONE);
		assert_int_equal(resolve_addr(dev, v4, src, dst, RNIC_ARP_NONE), -EAGAIN);
		check_mac(dev, resolve_addr(dev, v4, src, dst, RNIC_ARP_NONE), fx.host[1].iface.mac);
		fx_down(&fx);
	}
}

/* ... and the SYN retries by itself. */
static void syn_waits_for_the_link_address(void **state)
{
	FOR_FAMILIES(v4) {
		struct endpoint c;
		struct fx_tap tap;
		struct fx fx;

		dev_up(&fx);
		fx_silence(&fx);
		ep_init(&c, &fx, 0);
		net_sim_neigh_delay(fx.host[0].net, 3);
		fx_tap_on(&fx, 0, &tap);
		assert_int_equal(ep_connect(&c, 0, 1, v4, 5000, 7000), 0);
		assert_true(ep_node(&c)->neigh_pending);
		assert_int_equal(ep_node(&c)->state, IRDMA_CM_STATE_SYN_SENT);
		assert_int_equal(tap.n, 0);
		fx_run(&fx, 500);
		assert_int_equal(tap.n, 1);
		assert_memory_equal(fx_last(&tap)->dmac, fx.host[1].iface.mac, 6);
		assert_false(ep_node(&c)->neigh_pending);
		assert_int_equal(c.nevents, 0);
		fx_tap_off(&tap);
		ep_fini(&fx, &c);
		fx_down(&fx);
	}
}

static void neighbour_that_never_answers_is_unreachable(void **state)
{
	struct endpoint c;
	struct fx fx;

	dev_up(&fx);
	ep_init(&c, &fx, 0);
	net_sim_neigh_delay(fx.host[0].net, 1000000);
	assert_int_equal(ep_connect(&c, 0, 1, true, 5000, 7000), 0);
	fx_run(&fx, 600000);
	assert_int_equal(c.nevents, 1);
	assert_int_equal(c.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
	assert_int_equal(c.ev[0].status, -EHOSTUNREACH);
	assert_int_equal(c.ev[0].neg.cause, CM_CAUSE_UNREACHABLE);
	ep_fini(&fx, &c);
	fx_down(&fx);
}

/* A peer that is behind the port's own stack needs no link address. */
static void port_that_needs_no_neighbour_asks_for_none(void **state)
{
	static const u8 zero[6];
	struct port_ops ops;
	const struct port_ops *old;
	struct irdma_device *dev;
	u32 src[4], nobody[4];
	struct fx fx;

	dev = dev_up(&fx);
	old = dev->port->ops;
	ops = *old;
	ops.flags &= ~PORT_NEEDS_NEIGH;
	dev->port->ops = &ops;
	fx_addr(true, 0, src);
	fx_addr(true, 77, nobody);
	check_mac(dev, resolve_addr(dev, true, src, nobody, RNIC_ARP_NONE), zero);
	dev->port->ops = old;
	fx_down(&fx);
}

/* As many forged sources as the ARP table has places: the next honest peer is served all the same. */
static void full_arp_table_locks_nobody_out(void **state)
{
	struct irdma_device *dev;
	u32 forged[4] = { 0xC0000000 };
	struct irdma_cm_node *node;
	u8 mac[6] = { 2 };
	struct fx fx;

	dev = dev_up(&fx);
	while (rnic_arp_set(dev, true, forged, mac) >= 0)
		forged[0]++;
	node = fx_node(&fx, NULL, true, 5000, 7000);
	assert_non_null(node);
	assert_memory_equal(node->rem_mac, fx.host[1].iface.mac, 6);
	assert_int_equal(rnic_arp_find(dev, true, forged), RNIC_ARP_NONE);
	cm_node_end(node);
	fx_down(&fx);
}

/* ---- irdma_get_dst_ipv6 ---- */

static void route_to_an_ipv6_destination(void **state)
{
	u32 src[4], dst[4], any[4] = { 0 }, far[4] = { 0x20010DB8, 0, 0, 1 };
	struct net_route r;
	struct net *prev;
	struct fx fx;

	dev_up(&fx);
	fx_addr(false, 0, src);
	fx_addr(false, 1, dst);
	prev = net_enter(fx.host[0].net);
	assert_int_equal(irdma_get_dst_ipv6(src, dst, &r), 0);
	assert_int_equal(r.ifindex, fx.host[0].iface.ifindex);
	assert_false(r.local);
	assert_false(r.has_gateway);
	assert_memory_equal(r.src, src, 16);
	assert_int_equal(irdma_get_dst_ipv6(any, dst, &r), 0);
	assert_memory_equal(r.src, src, 16); /* chosen */
	assert_int_equal(irdma_get_dst_ipv6(src, src, &r), 0);
	assert_true(r.local);
	assert_int_equal(irdma_get_dst_ipv6(src, far, &r), -ENETUNREACH);
	net_enter(NULL);
	assert_int_equal(irdma_get_dst_ipv6(src, dst, &r), -ENETUNREACH); /* in no network at all */
	net_enter(prev);
	fx_down(&fx);
}

/* Two interfaces, each with a link-local address: the destination is on the link of the source. */
static void link_local_goes_out_where_its_source_is(void **state)
{
	u32 one[4] = { 0xFE800000, 0, 0, 0x11 }, two[4] = { 0xFE800000, 0, 0, 0x12 }, peer[4] = { 0xFEBFFFFF, 0, 0, 2 };
	struct net_iface second = { .name = "eth1", .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE, .mac = { 2, 0, 0, 0, 1, 1 } };
	struct net_addr a = { .prefix_len = 10 };
	struct net_route r;
	struct net *prev;
	struct fx fx;

	dev_up(&fx);
	assert_int_equal(net_sim_add_iface(fx.host[0].net, &second), 0);
	a.ifindex = a.scope_id = fx.host[0].iface.ifindex;
	memcpy(a.addr, one, 16);
	assert_int_equal(net_sim_add_addr(fx.host[0].net, &a), 0);
	a.ifindex = a.scope_id = second.ifindex;
	memcpy(a.addr, two, 16);
	assert_int_equal(net_sim_add_addr(fx.host[0].net, &a), 0);
	prev = net_enter(fx.host[0].net);
	assert_int_equal(irdma_get_dst_ipv6(one, peer, &r), 0);
	assert_int_equal(r.ifindex, fx.host[0].iface.ifindex);
	assert_int_equal(irdma_get_dst_ipv6(two, peer, &r), 0);
	assert_int_equal(r.ifindex, second.ifindex);
	peer[3] = 3;
	assert_true(irdma_get_dst_ipv6(peer, peer, &r) < 0); /* the source is none of ours */
	net_enter(prev);
	fx_down(&fx);
}

/* ---- address handles ---- */

static int ah_error;
static int ah_calls, ah_frees;
static struct port_ah_attr ah_attr;

static int ah_create_stub(struct port *p, const struct port_ah_attr *a, struct port_ah **out)
{
	(void)p;
	ah_calls++;
	ah_attr = *a;
	*out = (struct port_ah *)&ah_error;
	return ah_error;
}

static void ah_destroy_stub(struct port *p, struct port_ah *ah)
{
	(void)p;
	assert_ptr_equal(ah, &ah_error);
	ah_frees++;
}

static struct port_ops stub_ops;
static const struct port_ops *true_ops;

static void stub(struct irdma_device *dev)
{
	true_ops = dev->port->ops;
	stub_ops = *true_ops;
	stub_ops.ah_create = ah_create_stub;
	stub_ops.ah_destroy = ah_destroy_stub;
	dev->port->ops = &stub_ops;
	ah_error = ah_calls = ah_frees = 0;
}

static void handle_says_who_and_how(void **state)
{
	struct irdma_cm_node *node;
	struct irdma_device *dev;
	struct pkt_tuple t;
	struct fx fx;

	dev = dev_up(&fx);
	node = fx_node(&fx, NULL, false, 5000, 7000);
	node->tos = 0x20;
	node->user_pri = 3;
	node->vlan_id = 9;
	stub(dev);
	assert_int_equal(irdma_cm_create_ah(node, true), 0);
	assert_true(node->ah.valid);
	cm_node_tuple(node, &t);
	assert_memory_equal(&ah_attr.tuple, &t, sizeof(t));
	assert_int_equal(t.loc_port, 5000);
	assert_int_equal(t.rem_port, 7000);
	assert_int_equal(t.vlan_id, 9);
	assert_memory_equal(ah_attr.dmac, fx.host[1].iface.mac, 6);
	assert_int_equal(ah_attr.tos, 0x20);
	assert_int_equal(ah_attr.prio, 3);
	assert_int_equal(ah_attr.ttl, 64);
	assert_int_equal(irdma_cm_create_ah(node, true), 0); /* keeps the one it has */
	assert_int_equal(ah_calls, 1);
	irdma_cm_free_ah(node);
	assert_false(node->ah.valid);
	irdma_cm_free_ah(node);
	assert_int_equal(ah_frees, 1);
	dev->port->ops = true_ops;
	node->vlan_id = PKT_VLAN_NONE;
	cm_node_end(node);
	fx_down(&fx);
}

static void first_generation_needs_no_handle(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	node = fx_node(&fx, NULL, true, 5000, 7000);
	stub(fx.host[0].dev);
	assert_int_equal(irdma_cm_create_ah(node, true), 0);
	assert_false(node->ah.valid);
	irdma_cm_free_ah(node);
	assert_int_equal(ah_calls + ah_frees, 0);
	fx.host[0].dev->port->ops = true_ops;
	cm_node_end(node);
	fx_down(&fx);
}

static void lack_of_resources_is_final_only_for_who_waits(void **state)
{
	static const struct { int err; int no_wait; } c[] = {
		{ -ENOMEM, 0 }, { -ENOBUFS, 0 }, { -EMFILE, 0 }, { -EACCES, -EACCES }, { -EADDRINUSE, -EADDRINUSE }, { -EADDRNOTAVAIL, -EADDRNOTAVAIL },
	};
	struct irdma_cm_node *node;
	struct irdma_device *dev;
	struct fx fx;

	dev = dev_up(&fx);
	node = fx_node(&fx, NULL, true, 5000, 7000);
	stub(dev);
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		ah_error = c[i].err;
		assert_int_equal(irdma_cm_create_ah(node, true), c[i].err);
		assert_false(node->ah.valid);
		assert_int_equal(irdma_cm_create_ah(node, false), c[i].no_wait);
		assert_false(node->ah.valid);
		assert_null(node->ah.port_ah);
	}
	dev->port->ops = true_ops;
	cm_node_end(node);
	assert_int_equal(ah_frees, 0);
	fx_down(&fx);
}

/* A handle that could not be had at once is had when the SYN is tried again. */
static void syn_waits_for_a_handle(void **state)
{
	struct irdma_device *dev;
	struct endpoint c;
	struct fx_tap tap;
	struct fx fx;

	dev = dev_up(&fx);
	fx_silence(&fx);
	ep_init(&c, &fx, 0);
	fx_tap_on(&fx, 0, &tap);
	stub(dev);
	ah_error = -EMFILE;
	assert_int_equal(ep_connect(&c, 0, 1, true, 5000, 7000), 0);
	fx_run(&fx, 50);
	assert_true(ah_calls > 1);
	assert_int_equal(tap.n, 0);
	dev->port->ops = true_ops;
	fx_run(&fx, 200);
	assert_int_equal(tap.n, 1);
	assert_int_equal(fx_last(&tap)->flags, PKT_SYN);
	fx_tap_off(&tap);
	ep_fini(&fx, &c);
	fx_down(&fx);
}

static void handle_that_is_refused_is_told(void **state)
{
	struct irdma_device *dev;
	struct endpoint c;
	struct fx fx;

	dev = dev_up(&fx);
	ep_init(&c, &fx, 0);
	stub(dev);
	ah_error = -EACCES;
	assert_int_equal(ep_connect(&c, 0, 1, true, 5000, 7000), -EACCES);
	dev->port->ops = true_ops;
	fx_run(&fx, 100);
	assert_int_equal(c.nevents, 0); /* an error, so no event, and nothing left */
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 0);
	ep_fini(&fx, &c);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(neighbour_on_the_link),
		cmocka_unit_test(own_address_has_the_own_mac),
		cmocka_unit_test(known_entry_needs_no_network),
		cmocka_unit_test(index_of_another_peer_is_not_believed),
		cmocka_unit_test(behind_a_gateway_it_is_the_gateways),
		cmocka_unit_test(no_route_and_no_neighbour_are_different),
		cmocka_unit_test(unknown_neighbour_is_asked_for),
		cmocka_unit_test(syn_waits_for_the_link_address),
		cmocka_unit_test(neighbour_that_never_answers_is_unreachable),
		cmocka_unit_test(port_that_needs_no_neighbour_asks_for_none),
		cmocka_unit_test(full_arp_table_locks_nobody_out),
		cmocka_unit_test(route_to_an_ipv6_destination),
		cmocka_unit_test(link_local_goes_out_where_its_source_is),
		cmocka_unit_test(handle_says_who_and_how),
		cmocka_unit_test(first_generation_needs_no_handle),
		cmocka_unit_test(lack_of_resources_is_final_only_for_who_waits),
		cmocka_unit_test(syn_waits_for_a_handle),
		cmocka_unit_test(handle_that_is_refused_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
