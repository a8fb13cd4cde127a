// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Nodes: made, found, referenced, freed. The file under test is compiled in here, with memory that fails when told to; the linker then
 * takes these functions and not the archive's.
 */
#include "cm_fixture.h"

static bool no_memory;

static void *mem_get(size_t n) { return no_memory ? NULL : malloc(n); }

#define malloc mem_get
#include "cm/cm_node.c"
#undef malloc

#define MANY 100000

static struct irdma_cm_core *core_of(const struct fx *fx)
{
	return fx->host[0].dev->cm_core;
}

static struct irdma_cm_node *find(struct fx *fx, bool ipv4, u16 loc_port, u16 rem_port, u16 vlan_id)
{
	u32 loc[4], rem[4];

	fx_addr(ipv4, 0, loc);
	fx_addr(ipv4, 1, rem);
	return irdma_find_node(core_of(fx), rem_port, rem, loc_port, loc, vlan_id);
}

/* ---- table ---- */

static void found_with_a_reference(void **state)
{
	for (int v4 = 0; v4 < 2; v4++) {
		struct irdma_cm_node *node;
		struct fx fx;

		fx_up(&fx, IRDMA_GEN_1, 1);
		assert_null(find(&fx, v4, 5000, 7000, PKT_VLAN_NONE));
		node = fx_node(&fx, NULL, v4, 5000, 7000);
		assert_int_equal(node->refcount, 1);
		assert_ptr_equal(find(&fx, v4, 5000, 7000, PKT_VLAN_NONE), node);
		assert_int_equal(node->refcount, 2);
		irdma_rem_ref_cm_node(node);
		cm_node_end(node);
		assert_null(find(&fx, v4, 5000, 7000, PKT_VLAN_NONE));
		fx_down(&fx);
	}
}

static void every_part_of_the_tuple_counts(void **state)
{
	u32 loc[4], rem[4], other[4];
	struct irdma_cm_core *core;
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	core = core_of(&fx);
	node = fx_node(&fx, NULL, false, 5000, 7000);
	fx_addr(false, 0, loc);
	fx_addr(false, 1, rem);
	assert_null(irdma_find_node(core, 7001, rem, 5000, loc, PKT_VLAN_NONE));
	assert_null(irdma_find_node(core, 7000, rem, 5001, loc, PKT_VLAN_NONE));
	assert_null(irdma_find_node(core, 5000, rem, 7000, loc, PKT_VLAN_NONE));
	assert_null(irdma_find_node(core, 7000, loc, 5000, rem, PKT_VLAN_NONE));
	assert_null(irdma_find_node(core, 7000, rem, 5000, loc, 1));
	for (int w = 0; w < 4; w++) {
		memcpy(other, rem, sizeof(other));
		other[w] ^= 0x100;
		assert_null(irdma_find_node(core, 7000, other, 5000, loc, PKT_VLAN_NONE));
		memcpy(other, loc, sizeof(other));
		other[w] ^= 0x100;
		assert_null(irdma_find_node(core, 7000, rem, 5000, other, PKT_VLAN_NONE));
	}
	assert_int_equal(node->refcount, 1);
	cm_node_end(node);
	fx_down(&fx);
}

/* A chain holds nodes of one hash; the comparison tells them apart by each field. */
static void nodes_of_one_hash_are_told_apart(void **state)
{
	struct irdma_cm_node node = { .loc_port = 1, .rem_port = 2, .vlan_id = 3, .loc_addr = { 4 }, .rem_addr = { 5 } };
	const struct node_id same = { node.loc_addr, node.rem_addr, 1, 2, 3 };
	struct node_id id = same;
	u32 other[4];

	assert_true(node_eq(&node.hn, &same));
	id.loc_port++;
	assert_false(node_eq(&node.hn, &id));
	id = same;
	id.rem_port++;
	assert_false(node_eq(&node.hn, &id));
	id = same;
	id.vlan_id++;
	assert_false(node_eq(&node.hn, &id));
	for (int w = 0; w < 4; w++) {
		memcpy(other, node.loc_addr, sizeof(other));
		other[w]++;
		id = same;
		id.loc_addr = other;
		assert_false(node_eq(&node.hn, &id));
		memcpy(other, node.rem_addr, sizeof(other));
		other[w]++;
		id = same;
		id.rem_addr = other;
		assert_false(node_eq(&node.hn, &id));
	}
}

/* Every word of an IPv6 address goes into the hash, or one host's addresses would share a chain. */
static void every_part_of_the_tuple_is_hashed(void **state)
{
	u32 loc[4] = { 0xFD000000, 0, 0, 1 }, rem[4] = { 0xFD000000, 0, 0, 2 };
	struct node_key key, other;
	size_t len, other_len;

	memset(&key, 0x55, sizeof(key));
	len = key_of(&key, 7000, rem, 5000, loc, 9);
	for (int i = 0; i < 11; i++) {
		u32 l[4], r[4];

		memcpy(l, loc, sizeof(l));
		memcpy(r, rem, sizeof(r));
		if (i < 4)
			l[i]++;
		else if (i < 8)
			r[i - 4]++;
		memset(&other, 0x55, sizeof(other));
		other_len = key_of(&other, 7000 + (i == 8), r, 5000 + (i == 9), l, 9 + (i == 10));
		assert_false(other_len == len && !memcmp(&other, &key, len));
	}
}

/* Fault 7: the hash key is the table's secret, so a peer cannot choose collisions. */
static void hash_key_is_secret_and_each_cores_own(void **state)
{
	struct hash_table *a, *b;
	struct fx fx;
	int same = 0;

	fx_up(&fx, IRDMA_GEN_1, 1);
	a = &fx.host[0].dev->cm_core->nodes_ht;
	b = &fx.host[1].dev->cm_core->nodes_ht;
	assert_memory_not_equal(a->key, b->key, HASH_KEY_BYTES);
	for (u32 i = 0; i < 1000; i++)
		same += (hash_of(a, &i, sizeof(i)) & 1023) == (hash_of(b, &i, sizeof(i)) & 1023);
	assert_true(same < 20);
	fx_down(&fx);
}

static size_t longest_chain(const struct hash_table *t)
{
	size_t longest = 0, n;

	for (size_t i = 0; i <= t->mask; i++) {
		n = 0;
		for (const struct hash_node *hn = t->bucket[i]; hn; hn = hn->next)
			n++;
		longest = max(longest, n);
	}
	return longest;
}

/* Fault 7 too: the tuples are as regular as a peer can make them. */
static void table_grows_and_chains_stay_short(void **state)
{
	struct irdma_cm_core *core;
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	core = core_of(&fx);
	for (u32 i = 0; i < MANY; i++) {
		node = fx_node(&fx, NULL, true, (u16)(1 + i / 50000), (u16)(i % 50000));
		assert_non_null(node);
	}
	assert_int_equal(core->nodes_ht.count, MANY);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, MANY);
	assert_true(core->nodes_ht.mask + 1 >= MANY / 4);
	assert_true(longest_chain(&core->nodes_ht) < 24);
	for (u32 i = 0; i < MANY; i++) {
		node = find(&fx, true, (u16)(1 + i / 50000), (u16)(i % 50000), PKT_VLAN_NONE);
		assert_non_null(node);
		assert_int_equal(node->rem_port, i % 50000);
		irdma_rem_ref_cm_node(node);
		if (i % 2)
			cm_node_end(node);
	}
	assert_int_equal(core->nodes_ht.count, MANY / 2);
	while ((node = LIST_FIRST(&core->nodes)))
		cm_node_end(node);
	assert_int_equal(core->nodes_ht.count, 0);
	assert_int_equal(core->node_pool.used, 0);
	assert_int_equal(core->event_pool.used, 0);
	assert_int_equal(fx_stats(&fx, 0).nodes_destroyed, MANY);
	fx_down(&fx);
}

static void removed_from_the_table_it_is_still_alive(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	node = fx_node(&fx, NULL, true, 5000, 7000);
	assert_true(node->hashed);
	cm_node_unhash(node);
	cm_node_unhash(node); /* once more is nothing */
	assert_false(node->hashed);
	assert_null(find(&fx, true, 5000, 7000, PKT_VLAN_NONE));
	irdma_add_hte_node(core_of(&fx), node);
	assert_ptr_equal(find(&fx, true, 5000, 7000, PKT_VLAN_NONE), node);
	irdma_rem_ref_cm_node(node);
	cm_node_end(node);
	fx_down(&fx);
}

/* ---- made ---- */

static void new_node_has_all_of_its_addressing(void **state)
{
	for (int v4 = 0; v4 < 2; v4++) {
		struct irdma_cm_info info = { .ipv4 = v4, .vlan_id = 100, .loc_port = 5000, .rem_port = 7000, .tos = 0x1C, .user_pri = 6 };
		struct irdma_cm_node *node;
		struct irdma_device *dev;
		struct iw_cm_id id = { .mpa = cm_mpa_opts_default };
		struct net *prev;
		struct fx fx;

		fx_up(&fx, IRDMA_GEN_1, 1);
		dev = fx.host[0].dev;
		prev = net_enter(dev->net);
		fx_addr(v4, 0, info.loc_addr);
		fx_addr(v4, 1, info.rem_addr);
		info.cm_id = &id;
		id.mpa.rev = MPA_REV_1;
		id.mpa.crc = false;
		node = irdma_make_cm_node(dev->cm_core, dev, &info, NULL);
		assert_non_null(node);
		assert_int_equal(node->state, IRDMA_CM_STATE_INITED);
		assert_int_equal(node->refcount, 1);
		assert_int_equal(node->ipv4, v4);
		assert_int_equal(node->vlan_id, 100);
		assert_int_equal(node->tos, 0x1C);
		assert_int_equal(node->user_pri, 6);
		assert_int_equal(node->loc_port, 5000);
		assert_int_equal(node->rem_port, 7000);
		assert_memory_equal(node->loc_addr, info.loc_addr, 16);
		assert_memory_equal(node->rem_addr, info.rem_addr, 16);
		assert_memory_equal(node->loc_mac, fx.host[0].iface.mac, 6);
		assert_memory_equal(node->rem_mac, fx.host[1].iface.mac, 6);
		assert_int_equal(node->mpa_rev, MPA_REV_1);
		assert_false(node->crc);
		assert_int_equal(node->peer_ird, MPA_V2_NOT_NEGOTIATED);
		assert_int_equal(node->ird_size, dev->limits.max_ird);
		assert_null(node->cm_id); /* tied by who made it */
		assert_null(node->listener);
		assert_non_null(node->spare);
		assert_int_equal(node->tcp_cntxt.loc_seq_num, node->tcp_cntxt.iss);
		assert_int_equal(node->tcp_cntxt.rem_ack_num, node->tcp_cntxt.iss);
		assert_int_equal(fx_stats(&fx, 0).nodes_created, 1);
		assert_int_equal(fx_stats(&fx, 0).loopbacks, 0);
		cm_node_end(node);
		net_enter(prev);
		fx_down(&fx);
	}
}

static void mss_follows_the_mtu(void **state)
{
	static const struct { u32 mtu; u16 v4, v6; } c[] = {
		{ 0, 536, 536 }, { 100, 536, 536 }, { 576, 536, 536 }, { 577, 537, 536 }, { 1280, 1240, 1220 }, { 1500, 1460, 1440 }, { 9000, 8960, 8940 },
		{ 65535, 65495, 65475 }, { 65536, 65495, 65475 }, { 0xFFFFFFFF, 65495, 65475 },
	};
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	for (size_t i = 0; i < ARRAY_SIZE(c); i++)
		for (int v4 = 0; v4 < 2; v4++) {
			struct irdma_cm_node *node;

			fx.host[0].dev->iface.mtu = c[i].mtu;
			node = fx_node(&fx, NULL, v4, 5000, 7000);
			assert_int_equal(node->tcp_cntxt.mss, v4 ? c[i].v4 : c[i].v6);
			cm_node_end(node);
		}
	fx.host[0].dev->iface.mtu = 1500;
	fx_down(&fx);
}

static u32 iss_of(struct fx *fx, bool ipv4, u16 loc_port, u16 rem_port)
{
	struct irdma_cm_node *node = fx_node(fx, NULL, ipv4, loc_port, rem_port);
	u32 iss = node->tcp_cntxt.iss;

	cm_node_end(node);
	return iss;
}

/* RFC 6528 3 */
static void initial_sequence_number_moves_with_the_clock(void **state)
{
	struct fx fx;
	u32 first;

	fx_up(&fx, IRDMA_GEN_1, 1);
	first = iss_of(&fx, true, 5000, 7000);
	assert_int_equal(iss_of(&fx, true, 5000, 7000), first);
	fx_run(&fx, 1000);
	assert_int_equal(iss_of(&fx, true, 5000, 7000) - first, 250000); /* a step every 4 us */
	fx_down(&fx);
}

static void initial_sequence_number_is_a_secret_of_the_tuple(void **state)
{
	u32 seen[64], steps = 0;
	struct fx fx, fx2;

	fx_up(&fx, IRDMA_GEN_1, 1);
	for (u32 i = 0; i < 64; i++) {
		seen[i] = iss_of(&fx, i & 1, 5000, (u16)(7000 + i));
		for (u32 j = 0; j < i; j++)
			assert_int_not_equal(seen[i], seen[j]);
		if (i > 1 && seen[i] - seen[i - 1] == seen[i - 1] - seen[i - 2])
			steps++;
	}
	assert_int_equal(steps, 0); /* nothing to extrapolate */
	assert_int_not_equal(iss_of(&fx, true, 5001, 7001), seen[1]);
	fx_down(&fx);
	fx_up(&fx2, IRDMA_GEN_1, 2); /* another secret */
	assert_int_not_equal(iss_of(&fx2, true, 5000, 7001), seen[1]);
	fx_down(&fx2);
}

static void unreachable_peer_gives_no_node_and_leaves_nothing(void **state)
{
	for (int v4 = 0; v4 < 2; v4++) {
		struct irdma_cm_info info = { .ipv4 = v4, .vlan_id = PKT_VLAN_NONE, .loc_port = 1, .rem_port = 2 };
		struct irdma_cm_core *core;
		struct net *prev;
		struct fx fx;

		fx_up(&fx, IRDMA_GEN_1, 1);
		core = core_of(&fx);
		prev = net_enter(fx.host[0].net);
		fx_addr(v4, 0, info.loc_addr);
		info.rem_addr[0] = v4 ? 0xC0000201 : 0x20010DB8;
		assert_null(irdma_make_cm_node(core, fx.host[0].dev, &info, NULL));
		fx_addr(v4, 99, info.rem_addr);
		assert_null(irdma_make_cm_node(core, fx.host[0].dev, &info, NULL));
		assert_int_equal(core->node_pool.used + core->event_pool.used, 0);
		assert_int_equal(core->nodes_ht.count, 0);
		assert_int_equal(fx_stats(&fx, 0).nodes_created, 0);
		net_enter(prev);
		fx_down(&fx);
	}
}

static void no_room_gives_no_node_and_leaves_nothing(void **state)
{
	struct irdma_cm_core *core;
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	core = core_of(&fx);
	node = fx_node(&fx, NULL, true, 1, 1);
	core->node_pool.limit = 1;
	assert_null(fx_node(&fx, NULL, true, 1, 2));
	core->node_pool.limit = 0;
	core->event_pool.limit = 1;
	assert_null(fx_node(&fx, NULL, true, 1, 2));
	core->event_pool.limit = 0;
	assert_int_equal(core->node_pool.used, 1);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 1);
	cm_node_end(node);
	fx_down(&fx);
}

static void link_address_that_is_not_known_yet_does_not_fail(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	net_sim_neigh_delay(fx.host[0].net, 1);
	node = fx_node(&fx, NULL, true, 1, 1);
	assert_non_null(node);
	assert_true(node->neigh_pending);
	assert_int_equal(cm_node_resolve(node), 0);
	assert_memory_equal(node->rem_mac, fx.host[1].iface.mac, 6);
	cm_node_end(node);
	fx_down(&fx);
}

static void connection_to_oneself_is_counted(void **state)
{
	for (int v4 = 0; v4 < 2; v4++) {
		struct irdma_cm_info info = { .ipv4 = v4, .vlan_id = PKT_VLAN_NONE, .loc_port = 1, .rem_port = 2 };
		struct irdma_cm_node *node;
		struct net *prev;
		struct fx fx;

		fx_up(&fx, IRDMA_GEN_1, 1);
		prev = net_enter(fx.host[0].net);
		fx_addr(v4, 0, info.loc_addr);
		fx_addr(v4, 0, info.rem_addr);
		node = irdma_make_cm_node(core_of(&fx), fx.host[0].dev, &info, NULL);
		assert_int_equal(fx_stats(&fx, 0).loopbacks, 1);
		assert_memory_equal(node->rem_mac, node->loc_mac, 6);
		cm_node_end(node);
		net_enter(prev);
		fx_down(&fx);
	}
}

/* ---- active side ---- */

static int create(struct fx *fx, struct endpoint *ep, u32 len, const void *pdata, struct irdma_cm_node **node)
{
	struct irdma_cm_info info = { .cm_id = ep ? &ep->id : NULL, .ipv4 = true, .vlan_id = PKT_VLAN_NONE, .loc_port = 5000, .rem_port = 7000 };
	struct iw_cm_conn_param param = { .private_data = pdata, .private_data_len = (u16)len, .ird = 300, .ord = 7 };

	fx_addr(true, 0, info.loc_addr);
	fx_addr(true, 1, info.rem_addr);
	return irdma_create_cm_node(core_of(fx), fx->host[0].dev, &param, &info, node);
}

static void active_node_is_a_client_with_depths_and_private_data(void **state)
{
	struct irdma_cm_node *node = NULL;
	struct fx fx;
	u8 data[5] = "12345";

	fx_up(&fx, IRDMA_GEN_1, 1);
	assert_int_equal(create(&fx, NULL, 5, data, &node), 0);
	assert_true(node->active);
	assert_int_equal(node->ird_size, 128); /* what the NIC can do */
	assert_int_equal(node->ord_size, 7);
	assert_int_equal(node->tx_pdata_len, 5);
	assert_ptr_not_equal(node->tx_pdata, data);
	assert_memory_equal(node->tx_pdata, "12345", 5);
	assert_int_equal(node->mpa_rev, MPA_REV_2); /* by default */
	cm_node_end(node);
	fx_down(&fx);
}

static void private_data_is_bounded_by_the_revision(void **state)
{
	static const struct { u8 rev; u32 len; int want; } c[] = {
		{ 1, 0, 0 }, { 1, 1, 0 }, { 1, 512, 0 }, { 1, 513, -EINVAL }, { 1, 65535, -EINVAL },
		{ 2, 0, 0 }, { 2, 508, 0 }, { 2, 509, -EINVAL }, { 2, 512, -EINVAL }, { 2, 65535, -EINVAL },
	};
	static u8 data[65535];
	struct endpoint ep;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	ep_init(&ep, &fx, 0);
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct irdma_cm_node *node = NULL;

		ep.id.mpa.rev = c[i].rev;
		assert_int_equal(create(&fx, &ep, c[i].len, data, &node), c[i].want);
		assert_int_equal(!!node, !c[i].want);
		assert_int_equal(fx_stats(&fx, 0).nodes_now, !c[i].want);
		if (node) {
			assert_int_equal(node->tx_pdata_len, c[i].len);
			cm_node_end(node);
		}
	}
	ep_fini(&fx, &ep);
	fx_down(&fx);
}

static void tuple_in_use_is_refused(void **state)
{
	struct irdma_cm_node *node, *second = NULL;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	assert_int_equal(create(&fx, NULL, 0, NULL, &node), 0);
	assert_int_equal(create(&fx, NULL, 0, NULL, &second), -EADDRINUSE);
	assert_null(second);
	assert_int_equal(node->refcount, 1);
	cm_node_end(node);
	assert_int_equal(create(&fx, NULL, 0, NULL, &node), 0); /* free again */
	cm_node_end(node);
	fx_down(&fx);
}

static void create_without_memory_leaves_nothing(void **state)
{
	struct irdma_cm_node *node = NULL;
	struct irdma_cm_core *core;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	core = core_of(&fx);
	no_memory = true;
	assert_int_equal(create(&fx, NULL, 3, "abc", &node), -ENOMEM);
	no_memory = false;
	assert_null(node);
	assert_int_equal(core->node_pool.used + core->event_pool.used, 0);
	assert_null(find(&fx, true, 5000, 7000, PKT_VLAN_NONE));
	fx_down(&fx);
}

static void create_towards_nobody_is_unreachable(void **state)
{
	struct irdma_cm_node *node = NULL;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	assert_int_equal(net_sim_set_link(fx.host[0].net, fx.host[0].iface.ifindex, false), 0);
	assert_int_equal(create(&fx, NULL, 0, NULL, &node), -ENETUNREACH);
	assert_null(node);
	fx_down(&fx);
}

/* ---- references, end ---- */

static void end_comes_once_and_references_outlive_it(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	node = fx_node(&fx, NULL, true, 5000, 7000);
	cm_node_hold(node);
	assert_int_equal(irdma_schedule_cm_timer(node, NULL, IRDMA_TIMER_TYPE_CLOSE, 0, 0), 0);
	cm_node_stage(node, 100);
	irdma_send_syn(node, 0);
	cm_node_end(node);
	assert_int_equal(node->state, IRDMA_CM_STATE_CLOSED);
	assert_int_equal(node->refcount, 1);
	assert_false(node->hashed);
	assert_false(node->timer.armed);
	assert_null(node->send_entry.sqbuf);
	assert_int_equal(node->close_at_ns + node->stage_at_ns, 0);
	cm_node_end(node);
	assert_int_equal(node->refcount, 1);
	assert_int_equal(fx_stats(&fx, 0).nodes_destroyed, 0);
	irdma_rem_ref_cm_node(node);
	assert_int_equal(fx_stats(&fx, 0).nodes_destroyed, 1);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 0);
	fx_down(&fx);
}

/* ASan's leak check and fx_down() see what is left: everything that a node can hold goes with its last reference. */
static void last_reference_frees_everything(void **state)
{
	for (u8 gen = IRDMA_GEN_1; gen <= IRDMA_GEN_2; gen++) {
		struct irdma_cm_node *node;
		struct endpoint ep;
		struct fx fx;

		fx_up(&fx, gen, 1);
		fx_silence(&fx);
		ep_init(&ep, &fx, 0);
		ep.param.private_data = "x";
		ep.param.private_data_len = 1;
		assert_int_equal(ep_connect(&ep, 0, 1, true, 5000, 7000), 0);
		node = ep_node(&ep);
		node->pdata = malloc(10);
		node->rx_buf = malloc(10);
		node->lsmm = malloc(10);
		assert_non_null(node->quad);
		assert_int_equal(node->ah.valid, gen == IRDMA_GEN_2);
		assert_int_equal(rnic_apbvt_count(fx.host[0].dev), 1);
		assert_int_equal(ep.refs, 1);
		irdma_rem_ref_cm_node(node); /* the only one: nothing was closed before */
		assert_int_equal(ep.refs, 0);
		assert_null(ep.id.provider_data);
		assert_null(ep.qp->cm_node);
		assert_null(ep.qp->cm_id);
		assert_int_equal(ep.qp->refcount, 1);
		assert_int_equal(rnic_apbvt_count(fx.host[0].dev), 0);
		assert_int_equal(fx_bufs(&fx), 0);
		assert_int_equal(core_of(&fx)->nodes_ht.count, 0);
		assert_int_equal(core_of(&fx)->wheel.count, 0);
		ep_fini(&fx, &ep);
		fx_down(&fx);
	}
}

static void id_of_another_node_is_left_alone(void **state)
{
	struct irdma_cm_node *node;
	struct endpoint ep;
	struct fx fx;
	int other;

	fx_up(&fx, IRDMA_GEN_1, 1);
	ep_init(&ep, &fx, 0);
	node = fx_node(&fx, &ep.id, true, 5000, 7000);
	node->cm_id = &ep.id;
	fx_add_ref(&ep.id);
	ep.id.provider_data = &other; /* a listener, say */
	cm_node_release_id(node);
	assert_ptr_equal(ep.id.provider_data, &other);
	assert_int_equal(ep.refs, 0);
	assert_null(node->cm_id);
	cm_node_release_id(node); /* once */
	cm_node_untie(node);
	ep.id.provider_data = NULL;
	cm_node_end(node);
	ep_fini(&fx, &ep);
	fx_down(&fx);
}

static void untied_qp_and_id_go_their_own_way(void **state)
{
	struct irdma_cm_node *node;
	struct endpoint ep;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	ep_init(&ep, &fx, 0);
	assert_int_equal(ep_connect(&ep, 0, 1, true, 5000, 7000), 0);
	node = ep_node(&ep);
	assert_int_equal(ep.qp->refcount, 2);
	cm_node_untie(node);
	assert_int_equal(ep.qp->refcount, 1);
	assert_int_equal(ep.refs, 0);
	assert_null(ep.qp->cm_node);
	assert_null(node->iwqp);
	assert_int_equal(node->refcount, 1);
	cm_node_end(node);
	ep_fini(&fx, &ep);
	fx_down(&fx);
}

/* ---- listeners ---- */

static void passive_node_is_its_listeners_until_it_ends(void **state)
{
	struct irdma_cm_listener *l;
	struct endpoint ep;
	struct fx_peer p;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	ep_init(&ep, &fx, 0);
	ep_listen(&fx, &ep, 0, true, 7000);
	l = ep.id.provider_data;
	assert_int_equal(l->refcnt, 1);
	fx_peer_syn(&p, &fx, true, 5000);
	assert_false(p.node->active);
	assert_ptr_equal(p.node->listener, l);
	assert_ptr_equal(p.node->cm_id, &ep.id);
	assert_int_equal(ep.refs, 2);
	assert_int_equal(l->refcnt, 2);
	assert_int_equal(l->pending, 1);
	assert_int_equal(fx_stats(&fx, 0).half_open_now, 1);
	cm_node_leave_backlog(p.node);
	assert_int_equal(l->pending, 0);
	assert_int_equal(l->refcnt, 2); /* its filter is still needed */
	assert_int_equal(fx_stats(&fx, 0).half_open_now, 0);
	cm_node_leave_backlog(p.node); /* once */
	assert_int_equal(l->pending, 0);
	cm_node_leave_listener(p.node);
	assert_int_equal(l->refcnt, 1);
	assert_null(p.node->listener);
	cm_node_leave_listener(p.node); /* once */
	assert_int_equal(l->refcnt, 1);
	cm_node_end(p.node);
	fx_peer_done(&p);
	irdma_destroy_listen(&ep.id);
	ep_fini(&fx, &ep);
	fx_down(&fx);
}

/* A peer that closes, or is told a Terminate, and then says nothing must not keep a place, nor the listener's id. */
static void closing_node_lets_go_of_backlog_and_id(void **state)
{
	for (int frames = 0; frames < 2; frames++) {
		const struct port_ops *old;
		struct irdma_cm_listener *l;
		struct port_ops ops;
		struct endpoint ep;
		struct fx_peer p;
		struct fx fx;

		fx_up(&fx, IRDMA_GEN_1, 1);
		fx_silence(&fx);
		ep_init(&ep, &fx, 0);
		ep_listen(&fx, &ep, 0, true, 7000);
		l = ep.id.provider_data;
		fx_peer_passive(&p, &fx, true, 5000);
		old = fx.host[0].dev->port->ops;
		ops = *old;
		if (!frames)
			ops.flags &= ~PORT_FRAMES;
		fx.host[0].dev->port->ops = &ops;
		fx_peer_send(&p, PKT_FIN | PKT_ACK, NULL, 0);
		assert_int_equal(p.node->state, IRDMA_CM_STATE_LAST_ACK);
		assert_int_equal(l->pending, 0);
		assert_int_equal(ep.refs, 1);
		assert_int_equal(!!p.node->listener, frames);
		fx.host[0].dev->port->ops = old;
		irdma_destroy_listen(&ep.id);
		assert_int_equal(ep.refs, 0);
		cm_node_end(p.node);
		fx_peer_done(&p);
		ep_fini(&fx, &ep);
		fx_down(&fx);
	}
}

/* Fault 9: a half-open flood fills the backlog for good. */
static void half_open_flood_is_bounded_and_ends_by_itself(void **state)
{
	struct endpoint ep;
	struct fx_peer p;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	ep_init(&ep, &fx, 0);
	ep_listen(&fx, &ep, 0, true, 7000); /* a backlog of 16 */
	for (u16 i = 0; i < 100; i++) {
		fx_peer_tuple(&p, &fx, true, 7000, (u16)(1000 + i));
		fx_feed(p.dev, &p.t, &(struct fx_seg){ .flags = PKT_SYN, .seq = FX_PEER_ISS, .window = 8192 });
	}
	assert_int_equal(fx_stats(&fx, 0).half_open_now, 8);
	assert_int_equal(fx_stats(&fx, 0).cookies_sent, 92);
	fx_run(&fx, 120000);
	assert_int_equal(fx_stats(&fx, 0).half_open_now, 0);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 0);
	fx_peer_passive(&p, &fx, true, 9999);
	fx_peer_done(&p);
	irdma_destroy_listen(&ep.id);
	ep_fini(&fx, &ep);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(found_with_a_reference),
		cmocka_unit_test(every_part_of_the_tuple_counts),
		cmocka_unit_test(nodes_of_one_hash_are_told_apart),
		cmocka_unit_test(every_part_of_the_tuple_is_hashed),
		cmocka_unit_test(hash_key_is_secret_and_each_cores_own),
		cmocka_unit_test(table_grows_and_chains_stay_short),
		cmocka_unit_test(removed_from_the_table_it_is_still_alive),
		cmocka_unit_test(new_node_has_all_of_its_addressing),
		cmocka_unit_test(mss_follows_the_mtu),
		cmocka_unit_test(initial_sequence_number_moves_with_the_clock),
		cmocka_unit_test(initial_sequence_number_is_a_secret_of_the_tuple),
		cmocka_unit_test(unreachable_peer_gives_no_node_and_leaves_nothing),
		cmocka_unit_test(no_room_gives_no_node_and_leaves_nothing),
		cmocka_unit_test(link_address_that_is_not_known_yet_does_not_fail),
		cmocka_unit_test(connection_to_oneself_is_counted),
		cmocka_unit_test(active_node_is_a_client_with_depths_and_private_data),
		cmocka_unit_test(private_data_is_bounded_by_the_revision),
		cmocka_unit_test(tuple_in_use_is_refused),
		cmocka_unit_test(create_without_memory_leaves_nothing),
		cmocka_unit_test(create_towards_nobody_is_unreachable),
		cmocka_unit_test(end_comes_once_and_references_outlive_it),
		cmocka_unit_test(last_reference_frees_everything),
		cmocka_unit_test(id_of_another_node_is_left_alone),
		cmocka_unit_test(untied_qp_and_id_go_their_own_way),
		cmocka_unit_test(passive_node_is_its_listeners_until_it_ends),
		cmocka_unit_test(closing_node_lets_go_of_backlog_and_id),
		cmocka_unit_test(half_open_flood_is_bounded_and_ends_by_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
