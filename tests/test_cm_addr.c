// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Addresses, and what events say. */
#include <arpa/inet.h>
#include "cm_fixture.h"

static void copies_are_four_words_in_the_other_order(void **state)
{
	u8 wire[16];
	__be32 be[4], back[4];
	u32 host[4];

	for (int i = 0; i < 16; i++)
		wire[i] = (u8)(0xF0 + i);
	memcpy(be, wire, sizeof(be));
	irdma_copy_ip_ntohl(host, be);
	assert_int_equal(host[0], 0xF0F1F2F3u);
	assert_int_equal(host[1], 0xF4F5F6F7u);
	assert_int_equal(host[2], 0xF8F9FAFBu);
	assert_int_equal(host[3], 0xFCFDFEFFu);
	irdma_copy_ip_htonl(back, host);
	assert_memory_equal(back, wire, 16);
}

/* Blocks of exactly four words: ASan sees a fifth. */
static void copies_touch_four_words_only(void **state)
{
	__be32 *src = calloc(4, 4);
	u32 *dst = calloc(4, 4);

	src[3] = htonl(7);
	irdma_copy_ip_ntohl(dst, src);
	assert_int_equal(dst[3], 7);
	dst[0] = 9;
	irdma_copy_ip_htonl(src, dst);
	assert_int_equal(src[0], htonl(9));
	free(src);
	free(dst);
}

static struct irdma_cm_node sample_node(bool ipv4)
{
	struct irdma_cm_node node = { .ipv4 = ipv4, .vlan_id = 77, .loc_port = 0xABCD, .rem_port = 0x1234 };

	for (u32 i = 0; i < (ipv4 ? 1 : 4); i++) {
		node.loc_addr[i] = 0x20010000u + i;
		node.rem_addr[i] = 0x2001AA00u + i;
	}
	return node;
}

static void addr_info_is_cleared_and_filled(void **state)
{
	struct irdma_cm_node node = sample_node(false);
	struct irdma_cm_info info;

	memset(&info, 0xFF, sizeof(info));
	irdma_get_addr_info(&node, &info);
	assert_false(info.ipv4);
	assert_int_equal(info.vlan_id, 77);
	assert_memory_equal(info.loc_addr, node.loc_addr, 16);
	assert_memory_equal(info.rem_addr, node.rem_addr, 16);
	assert_int_equal(info.loc_port, 0xABCD);
	assert_int_equal(info.rem_port, 0x1234);
	assert_null(info.cm_id);
	assert_int_equal(info.backlog, 0);
	assert_int_equal(info.tos, 0);
	assert_int_equal(info.user_pri, 0);
	node.ipv4 = true;
	irdma_get_addr_info(&node, &info);
	assert_true(info.ipv4);
}

static void sockaddr4_is_in_network_order(void **state)
{
	struct irdma_cm_node node = sample_node(true);
	struct iw_cm_event ev;
	struct sockaddr_in *l = (struct sockaddr_in *)&ev.local_addr, *r = (struct sockaddr_in *)&ev.remote_addr;

	memset(&ev, 0xFF, sizeof(ev));
	irdma_fill_sockaddr4(&node, &ev);
	assert_int_equal(l->sin_family, AF_INET);
	assert_int_equal(l->sin_port, htons(0xABCD));
	assert_int_equal(l->sin_addr.s_addr, htonl(0x20010000));
	assert_int_equal(r->sin_family, AF_INET);
	assert_int_equal(r->sin_port, htons(0x1234));
	assert_int_equal(r->sin_addr.s_addr, htonl(0x2001AA00));
	for (size_t i = 0; i < sizeof(l->sin_zero); i++)
		assert_int_equal(l->sin_zero[i], 0);
}

static void sockaddr6_is_in_network_order(void **state)
{
	struct irdma_cm_node node = sample_node(false);
	struct iw_cm_event ev;
	struct sockaddr_in6 *l = (struct sockaddr_in6 *)&ev.local_addr, *r = (struct sockaddr_in6 *)&ev.remote_addr;
	char text[INET6_ADDRSTRLEN];

	memset(&ev, 0xFF, sizeof(ev));
	irdma_fill_sockaddr6(&node, &ev);
	assert_int_equal(l->sin6_family, AF_INET6);
	assert_int_equal(l->sin6_port, htons(0xABCD));
	assert_string_equal(inet_ntop(AF_INET6, &l->sin6_addr, text, sizeof(text)), "2001:0:2001:1:2001:2:2001:3");
	assert_int_equal(l->sin6_scope_id, 0);
	assert_int_equal(l->sin6_flowinfo, 0);
	assert_int_equal(r->sin6_port, htons(0x1234));
	assert_string_equal(inet_ntop(AF_INET6, &r->sin6_addr, text, sizeof(text)), "2001:aa00:2001:aa01:2001:aa02:2001:aa03");
}

static void link_local_addresses_carry_their_scope(void **state)
{
	struct irdma_device dev = { .iface = { .ifindex = 42 } };
	struct irdma_cm_node node = { .iwdev = &dev, .loc_addr = { 0xFE800000, 0, 0, 1 }, .rem_addr = { 0xFEC00000, 0, 0, 2 } };
	struct iw_cm_event ev;

	irdma_fill_sockaddr6(&node, &ev);
	assert_int_equal(((struct sockaddr_in6 *)&ev.local_addr)->sin6_scope_id, 42);
	assert_int_equal(((struct sockaddr_in6 *)&ev.remote_addr)->sin6_scope_id, 0);
}

static struct iw_cm_id mapped_id(void)
{
	static const u32 loc[4] = { 0x0A000001 }, rem[4] = { 0x0A000002 }, other[4] = { 0x01010101 };
	struct iw_cm_id id = { .context = NULL };

	cm_addr_to_sockaddr(true, loc, 5000, &id.m_local_addr);
	cm_addr_to_sockaddr(true, rem, 7000, &id.m_remote_addr);
	cm_addr_to_sockaddr(true, other, 1, &id.local_addr);
	cm_addr_to_sockaddr(true, other, 2, &id.remote_addr);
	return id;
}

static void event_info_takes_mapped_addresses_and_the_nodes_data(void **state)
{
	u8 pdata[3] = { 1, 2, 3 };
	struct irdma_cm_node node = { .pdata = pdata, .pdata_len = 3, .ird_size = 17, .ord_size = 18 };
	struct iw_cm_id id = mapped_id();
	struct iw_cm_event ev = { .event = IW_CM_EVENT_CONNECT_REPLY, .status = -5 };

	irdma_get_cmevent_info(&node, &id, &ev);
	assert_memory_equal(&ev.local_addr, &id.m_local_addr, sizeof(ev.local_addr));
	assert_memory_equal(&ev.remote_addr, &id.m_remote_addr, sizeof(ev.remote_addr));
	assert_ptr_equal(ev.private_data, pdata);
	assert_int_equal(ev.private_data_len, 3);
	assert_int_equal(ev.ird, 17);
	assert_int_equal(ev.ord, 18);
	assert_int_equal(ev.event, IW_CM_EVENT_CONNECT_REPLY);
	assert_int_equal(ev.status, -5);
}

static void event_info_without_a_node_is_addresses_only(void **state)
{
	struct iw_cm_id id = mapped_id();
	struct iw_cm_event ev = { .ird = 9, .ord = 8 };

	irdma_get_cmevent_info(NULL, &id, &ev);
	assert_memory_equal(&ev.local_addr, &id.m_local_addr, sizeof(ev.local_addr));
	assert_memory_equal(&ev.remote_addr, &id.m_remote_addr, sizeof(ev.remote_addr));
	assert_null(ev.private_data);
	assert_int_equal(ev.private_data_len, 0);
	assert_int_equal(ev.ird, 9);
	assert_int_equal(ev.ord, 8);
}

static void event_depths_are_capped_not_cut(void **state)
{
	static const u16 depth[] = { 0, 1, 254, 255, 256, 257, 0x3FFF, 65535 };
	struct iw_cm_id id = mapped_id();

	for (size_t i = 0; i < ARRAY_SIZE(depth); i++) {
		struct irdma_cm_node node = { .ird_size = depth[i], .ord_size = depth[i] };
		struct iw_cm_event ev = { .status = 0 };

		irdma_get_cmevent_info(&node, &id, &ev);
		assert_int_equal(ev.ird, min(depth[i], (u16)255));
		assert_int_equal(ev.ord, min(depth[i], (u16)255));
	}
}

static void depths_are_capped_at_what_the_nic_can_do(void **state)
{
	static const struct { u32 ird, ord, want_ird, want_ord; } c[] = {
		{ 0, 0, 0, 0 }, { 1, 2, 1, 2 }, { 16, 32, 16, 32 }, { 17, 33, 16, 32 }, { 0x3FFF, 0x3FFF, 16, 32 },
		{ 65536, 65536, 16, 32 }, { 0xFFFFFFFF, 0xFFFFFFFF, 16, 32 },
	};
	struct irdma_device dev = { .limits = { .max_ird = 16, .max_ord = 32 } };

	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct irdma_cm_node node = { .iwdev = &dev, .mpa = { .p2p = true, .rtr = RDMAP_RTR_ALL } };

		irdma_record_ird_ord(&node, c[i].ird, c[i].ord);
		assert_int_equal(node.ird_size, c[i].want_ird);
		assert_int_equal(node.ord_size, c[i].want_ord);
	}
}

static void ord_0_becomes_1_only_for_a_read_rtr(void **state)
{
	struct irdma_device dev = { .limits = { .max_ird = 16, .max_ord = 32 } };

	for (u8 rtr = 0; rtr <= RDMAP_RTR_ALL; rtr++)
		for (int p2p = 0; p2p < 2; p2p++) {
			struct irdma_cm_node node = { .iwdev = &dev, .mpa = { .p2p = p2p, .rtr = rtr } };

			irdma_record_ird_ord(&node, 0, 0);
			assert_int_equal(node.ord_size, p2p && rtr == RDMAP_RTR_READ ? 1 : 0);
			assert_int_equal(node.ird_size, 0);
		}
}

static void ipv4_loopback(void **state)
{
	static const struct { u32 loc, rem; bool lpb; } c[] = {
		{ 0x7F000001, 0x7F000001, true }, { 0x0A000001, 0x7FFFFFFF, true }, { 0x0A000001, 0x7F000000, true },
		{ 0x0A000001, 0x0A000001, true }, { 0x0A000001, 0x0A000002, false }, { 0x0A000001, 0x80000000, false },
		{ 0x0A000001, 0x7EFFFFFF, false }, { 0x0A000001, 0, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(c); i++)
		assert_int_equal(irdma_ipv4_is_lpb(c[i].loc, c[i].rem), c[i].lpb);
}

static void ipv6_loopback(void **state)
{
	u32 one[4] = { 0, 0, 0, 1 }, two[4] = { 0, 0, 0, 2 }, a[4] = { 0xFD000000, 0, 0, 1 }, b[4] = { 0xFD000000, 0, 1, 1 };

	assert_true(irdma_ipv6_is_lpb(one, one));
	assert_true(irdma_ipv6_is_lpb(a, one));
	assert_true(irdma_ipv6_is_lpb(a, a));
	assert_false(irdma_ipv6_is_lpb(a, b)); /* one word of four differs */
	assert_false(irdma_ipv6_is_lpb(a, two));
	assert_false(irdma_ipv6_is_lpb(two, a));
}

/* Host 0 with a VLAN interface 100 that holds 10.1.0.1 and fd01::1. */
static void vlan_up(struct fx *fx, struct net_iface *vlan)
{
	struct net_addr a = { .ipv4 = true, .addr = { 0x0A010001 }, .prefix_len = 24 };

	*vlan = (struct net_iface){ .name = "eth0.100", .mtu = 1500, .up = true, .vlan_id = 100, .lower = fx->host[0].iface.ifindex,
				    .mac = { 2, 0, 0, 0, 0, 0xAA } };
	assert_int_equal(net_sim_add_iface(fx->host[0].net, vlan), 0);
	a.ifindex = vlan->ifindex;
	assert_int_equal(net_sim_add_addr(fx->host[0].net, &a), 0);
	a = (struct net_addr){ .ifindex = vlan->ifindex, .addr = { 0xFD010000, 0, 0, 1 }, .prefix_len = 64 };
	assert_int_equal(net_sim_add_addr(fx->host[0].net, &a), 0);
}

static void vlan_of_an_ipv4_address(void **state)
{
	u32 plain = 0x0A000001, tagged = 0x0A010001, foreign = 0x0A000002;
	struct net_iface vlan;
	struct net *prev;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	vlan_up(&fx, &vlan);
	prev = net_enter(fx.host[0].net);
	assert_int_equal(irdma_get_vlan_ipv4(&plain), PKT_VLAN_NONE);
	assert_int_equal(irdma_get_vlan_ipv4(&tagged), 100);
	assert_int_equal(irdma_get_vlan_ipv4(&foreign), PKT_VLAN_NONE);
	net_enter(NULL);
	assert_int_equal(irdma_get_vlan_ipv4(&tagged), PKT_VLAN_NONE);
	net_enter(prev);
	fx_down(&fx);
}

static void vlan_and_mac_of_an_ipv6_address(void **state)
{
	static const u8 zero[6];
	u32 plain[4] = { 0xFD000000, 0, 0, 1 }, tagged[4] = { 0xFD010000, 0, 0, 1 }, foreign[4] = { 0xFD000000, 0, 0, 2 };
	struct net_iface vlan;
	struct net *prev;
	struct fx fx;
	u8 mac[6];
	u16 id = 1;

	fx_up(&fx, IRDMA_GEN_1, 1);
	vlan_up(&fx, &vlan);
	prev = net_enter(fx.host[0].net);
	irdma_get_vlan_mac_ipv6(plain, &id, mac);
	assert_int_equal(id, PKT_VLAN_NONE);
	assert_memory_equal(mac, fx.host[0].iface.mac, 6);
	irdma_get_vlan_mac_ipv6(tagged, &id, mac);
	assert_int_equal(id, 100);
	assert_memory_equal(mac, vlan.mac, 6);
	irdma_get_vlan_mac_ipv6(foreign, &id, mac);
	assert_int_equal(id, PKT_VLAN_NONE);
	assert_memory_equal(mac, zero, 6);
	irdma_get_vlan_mac_ipv6(tagged, NULL, mac);
	assert_memory_equal(mac, vlan.mac, 6);
	irdma_get_vlan_mac_ipv6(tagged, &id, NULL);
	assert_int_equal(id, 100);
	irdma_get_vlan_mac_ipv6(tagged, NULL, NULL);
	net_enter(NULL);
	memset(mac, 1, 6);
	irdma_get_vlan_mac_ipv6(tagged, &id, mac);
	assert_int_equal(id, PKT_VLAN_NONE);
	assert_memory_equal(mac, zero, 6);
	net_enter(prev);
	fx_down(&fx);
}

static void sockaddrs_there_and_back(void **state)
{
	static const u32 v4[4] = { 0xC0000201 }, v6[4] = { 0x20010DB8, 1, 2, 0xFFFFFFFF };
	struct sockaddr_storage ss;
	u32 addr[4];
	bool ipv4;
	u16 port;

	memset(&ss, 0xFF, sizeof(ss));
	cm_addr_to_sockaddr(true, v4, 65535, &ss);
	memset(addr, 0xFF, sizeof(addr));
	assert_true(cm_addr_from_sockaddr(&ss, &ipv4, addr, &port));
	assert_true(ipv4);
	assert_memory_equal(addr, v4, 16);
	assert_int_equal(port, 65535);
	cm_addr_to_sockaddr(false, v6, 0, &ss);
	assert_true(cm_addr_from_sockaddr(&ss, &ipv4, addr, &port));
	assert_false(ipv4);
	assert_memory_equal(addr, v6, 16);
	assert_int_equal(port, 0);
	ss.ss_family = AF_UNIX;
	ipv4 = true;
	assert_false(cm_addr_from_sockaddr(&ss, &ipv4, addr, &port));
	assert_true(ipv4); /* nothing was written */
}

/* The true reply of a connection on the way up carries all of it. */
static void reply_of_a_real_connection_has_addresses_and_depths(void **state)
{
	for (int ipv4 = 0; ipv4 < 2; ipv4++) {
		struct endpoint l, a, c;
		struct fx fx;

		fx_up(&fx, IRDMA_GEN_2, 1);
		ep_init(&l, &fx, 1);
		ep_init(&a, &fx, 1);
		ep_init(&c, &fx, 0);
		l.child = &a;
		l.accept_inside = true;
		l.param.ird = 3;
		l.param.ord = 4;
		ep_listen(&fx, &l, 1, ipv4, 7000);
		assert_int_equal(ep_connect(&c, 0, 1, ipv4, 5000, 7000), 0);
		fx_run(&fx, 100);
		assert_int_equal(c.nevents, 1);
		assert_memory_equal(&c.ev[0].local_addr, &c.id.m_local_addr, sizeof(struct sockaddr_in6));
		assert_memory_equal(&c.ev[0].remote_addr, &c.id.m_remote_addr, sizeof(struct sockaddr_in6));
		assert_int_equal(c.ev[0].ird, 8);
		assert_int_equal(c.ev[0].ord, 3); /* the responder's IRD */
		assert_memory_equal(&l.ev[0].remote_addr, &c.id.m_local_addr, sizeof(struct sockaddr_in6));
		assert_memory_equal(&l.ev[0].local_addr, &c.id.m_remote_addr, sizeof(struct sockaddr_in6));
		ep_fini(&fx, &c);
		ep_fini(&fx, &a);
		irdma_destroy_listen(&l.id);
		ep_fini(&fx, &l);
		fx_down(&fx);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_are_four_words_in_the_other_order),
		cmocka_unit_test(copies_touch_four_words_only),
		cmocka_unit_test(addr_info_is_cleared_and_filled),
		cmocka_unit_test(sockaddr4_is_in_network_order),
		cmocka_unit_test(sockaddr6_is_in_network_order),
		cmocka_unit_test(link_local_addresses_carry_their_scope),
		cmocka_unit_test(event_info_takes_mapped_addresses_and_the_nodes_data),
		cmocka_unit_test(event_info_without_a_node_is_addresses_only),
		cmocka_unit_test(event_depths_are_capped_not_cut),
		cmocka_unit_test(depths_are_capped_at_what_the_nic_can_do),
		cmocka_unit_test(ord_0_becomes_1_only_for_a_read_rtr),
		cmocka_unit_test(ipv4_loopback),
		cmocka_unit_test(ipv6_loopback),
		cmocka_unit_test(vlan_of_an_ipv4_address),
		cmocka_unit_test(vlan_and_mac_of_an_ipv6_address),
		cmocka_unit_test(sockaddrs_there_and_back),
		cmocka_unit_test(reply_of_a_real_connection_has_addresses_and_depths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
