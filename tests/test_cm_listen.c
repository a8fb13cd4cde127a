// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Listeners: found, made, taken over; children of the wildcard; addresses that come and go; backlog; the end. */
#include "cm_states.h"

#define EITHER IRDMA_CM_LISTENER_EITHER_STATE
#define ACTIVE IRDMA_CM_LISTENER_ACTIVE_STATE
#define PASSIVE IRDMA_CM_LISTENER_PASSIVE_STATE

static const u32 any[4];

static struct irdma_cm_listener *find(struct env *e, const u32 *addr, u16 vlan, int state)
{
	struct irdma_cm_listener *l;

	cm_lock(env_core(e));
	l = irdma_find_listener(env_core(e), (u32 *)addr, e->ipv4, 7000, vlan, state);
	if (l)
		irdma_dec_refcnt_listen(env_core(e), l, 0, true);
	cm_unlock(env_core(e));
	return l;
}

static struct irdma_cm_listener *listener_of(struct endpoint *ep)
{
	return ep->id.provider_data;
}

static int children(struct irdma_cm_listener *l, bool with_filter)
{
	struct irdma_cm_listener *c;
	int n = 0;

	LIST_FOREACH(c, &l->children, child_entry)
		n += !with_filter || c->filter;
	return n;
}

static int listen_at(struct endpoint *ep, bool ipv4, const u32 *addr, u16 port, int backlog)
{
	cm_addr_to_sockaddr(ipv4, addr, port, &ep->id.m_local_addr);
	return irdma_create_listen(&ep->id, backlog);
}

/* Host 0 gets an address, on a VLAN interface if @vlan. */
static struct net_iface add_addr(struct env *e, u32 host, u16 vlan)
{
	struct fx_host *h = &e->fx.host[0];
	struct net_iface f = h->iface;
	struct net_addr a = { .ipv4 = e->ipv4, .prefix_len = e->ipv4 ? 24 : 64 };

	if (vlan) {
		f = (struct net_iface){ .mtu = 1500, .up = true, .vlan_id = vlan, .lower = h->iface.ifindex, .mac = { 2, 0, 0, 0, 0, 1 } };
		snprintf(f.name, sizeof(f.name), "eth0.%u", vlan);
		assert_int_equal(net_sim_add_iface(h->net, &f), 0);
	}
	a.ifindex = f.ifindex;
	fx_addr(e->ipv4, (int)host, a.addr);
	if (vlan)
		a.addr[0] += e->ipv4 ? vlan << 8 : vlan;
	assert_int_equal(net_sim_add_addr(h->net, &a), 0);
	return f;
}

static void addr_of(struct env *e, u32 host, u16 vlan, u32 *addr)
{
	fx_addr(e->ipv4, (int)host, addr);
	addr[0] += e->ipv4 ? vlan << 8 : vlan;
}

static void up_at(struct env *e, size_t i)
{
	env_up(e, i & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2, i & 2);
}

#define FOR_RUNS(e) for (size_t r = 0; r < 4 && (up_at(e, r), true); env_down(e), r++)

/* ---- find ---- */

static void exact_address_comes_before_the_wildcard(void **state)
{
	struct endpoint w;
	struct env e;
	u32 a[4];

	FOR_RUNS(&e) {
		add_addr(&e, 50, 0);
		env_listen(&e); /* 10.0.0.1 */
		ep_init(&w, &e.fx, 0);
		addr_of(&e, 50, 0, a);
		assert_int_equal(listen_at(&w, e.ipv4, a, 7000, 0), 0);
		assert_ptr_equal(find(&e, a, PKT_VLAN_NONE, EITHER), listener_of(&w));
		addr_of(&e, 0, 0, a);
		assert_ptr_equal(find(&e, a, PKT_VLAN_NONE, EITHER), listener_of(&e.l));
		assert_null(find(&e, a, 5, EITHER));
		addr_of(&e, 9, 0, a);
		assert_null(find(&e, a, PKT_VLAN_NONE, EITHER));
		assert_int_equal(irdma_destroy_listen(&w.id), 0);
		assert_int_equal(listener_of(&e.l)->refcnt, 1);
		ep_fini(&e.fx, &w);
	}
}

static void wildcard_serves_every_address_and_vlan_of_its_family(void **state)
{
	struct env e;
	u32 a[4];

	FOR_RUNS(&e) {
		add_addr(&e, 0, 5);
		assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 0), 0);
		e.listening = true;
		addr_of(&e, 0, 0, a);
		assert_ptr_equal(find(&e, a, PKT_VLAN_NONE, ACTIVE), listener_of(&e.l));
		assert_ptr_equal(find(&e, a, 5, ACTIVE), listener_of(&e.l));
		assert_null(find(&e, a, 5, PASSIVE));
		e.ipv4 = !e.ipv4;
		assert_null(find(&e, a, PKT_VLAN_NONE, EITHER));
		e.ipv4 = !e.ipv4;
		assert_null(irdma_find_listener(env_core(&e), a, e.ipv4, 7001, PKT_VLAN_NONE, EITHER));
	}
}

/* ---- make, take over ---- */

static void one_active_listener_per_address_and_port(void **state)
{
	struct endpoint w;
	struct env e;

	FOR_RUNS(&e) {
		u32 a[4];

		env_listen(&e);
		ep_init(&w, &e.fx, 0);
		addr_of(&e, 0, 0, a);
		assert_int_equal(listen_at(&w, e.ipv4, a, 7000, 0), -EADDRINUSE);
		assert_null(w.id.provider_data);
		assert_int_equal(w.refs, 0);
		assert_int_equal(listen_at(&w, e.ipv4, a, 7001, 0), 0);
		assert_int_equal(listener_of(&w)->backlog, CM_BACKLOG_DEFAULT);
		assert_int_equal(fx_stats(&e.fx, 0).listeners_now, 2);
		assert_int_equal(irdma_destroy_listen(&w.id), 0);
		assert_int_equal(fx_stats(&e.fx, 0).listeners_now, 1);
		assert_int_equal(fx_stats(&e.fx, 0).listens_created, 2);
		assert_int_equal(fx_stats(&e.fx, 0).listens_destroyed, 1);
		ep_fini(&e.fx, &w);
	}
}

static void port_can_be_bound_again_at_once(void **state)
{
	struct env e;

	FOR_RUNS(&e)
		for (int i = 0; i < 3; i++) {
			env_listen(&e);
			env_passive(&e);
			assert_int_equal(irdma_destroy_listen(&e.l.id), 0);
			e.listening = false;
			assert_int_equal(e.p.node->state, ST(CLOSED));
			assert_int_equal(rnic_apbvt_count(e.p.dev), 0);
			if (i < 2)
				fx_peer_done(&e.p);
		}
}

/* A rejected connection's FINs are under way: the listener stays, passive, and the next one takes it over with its filter. */
static void passive_listener_is_taken_over(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(FIN_WAIT1));
		struct irdma_cm_listener *l = listener_of(&e.l);
		struct port_filter *f = l->filter;

		assert_int_equal(irdma_destroy_listen(&e.l.id), 0);
		assert_int_equal(e.l.refs, 0);
		assert_int_equal(e.p.node->state, ST(FIN_WAIT1)); /* closing already: left alone */
		assert_int_equal(l->state, PASSIVE);
		assert_null(find(&e, l->loc_addr, PKT_VLAN_NONE, ACTIVE));
		assert_ptr_equal(find(&e, l->loc_addr, PKT_VLAN_NONE, PASSIVE), l);
		assert_int_equal(rnic_apbvt_count(e.p.dev), 1);
		e.listening = false;
		env_listen(&e);
		assert_ptr_equal(listener_of(&e.l), l);
		assert_ptr_equal(l->filter, f);
		assert_int_equal(l->refcnt, 2);
		assert_int_equal(fx_stats(&e.fx, 0).listeners_now, 1);
		fx_peer_send(&e.p, PKT_FIN | PKT_ACK, NULL, 0);
		assert_int_equal(e.p.node->state, ST(CLOSED));
		assert_int_equal(l->refcnt, 1);
		assert_int_equal(rnic_apbvt_count(e.p.dev), 1);
		assert_int_equal(fx_stats(&e.fx, 0).listens_created, 2);
		assert_int_equal(fx_stats(&e.fx, 0).listens_destroyed, 1);
		fx_peer_done(&e.p);
		env_passive(&e); /* it works */
	}
}

static void passive_listener_goes_with_its_last_connection(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(FIN_WAIT2));
		assert_int_equal(irdma_destroy_listen(&e.l.id), 0);
		e.listening = false;
		assert_int_equal(fx_stats(&e.fx, 0).listens_destroyed, 1);
		assert_int_equal(fx_stats(&e.fx, 0).listeners_now, 0);
		assert_false(LIST_EMPTY(&env_core(&e)->listen_list));
		fx_run(&e.fx, 6000); /* the close timer */
		assert_int_equal(e.p.node->state, ST(CLOSED));
		assert_int_equal(fx_stats(&e.fx, 0).listens_destroyed, 1);
		assert_true(LIST_EMPTY(&env_core(&e)->listen_list));
		assert_int_equal(rnic_apbvt_count(e.p.dev), 0);
	}
}

/* Clean-up while connections are closing on listeners that are there, or gone. */
static void cleanup_with_closing_connections(void **state)
{
	static const enum irdma_cm_node_state states[] = { ST(SYN_RCVD), ST(ESTABLISHED), ST(FIN_WAIT1), ST(FIN_WAIT2), ST(CLOSING), ST(TIME_WAIT), ST(LAST_ACK) };

	for (size_t i = 0; i < 2 * ARRAY_SIZE(states); i++) {
		struct env e;

		up_at(&e, i);
		env_goto(&e, states[i / 2]);
		if (i % 2)
			assert_int_equal(irdma_destroy_listen(&e.l.id), 0);
		fx_peer_done(&e.p);
		e.l.id.provider_data = NULL;
		cm_abandon(&e.a.id);
		fx_tap_off(&e.tap);
		irdma_cleanup_cm_core(env_core(&e)); /* asserts that no node is left */
		assert_int_equal(e.l.refs, 0);
		assert_int_equal(irdma_setup_cm_core(e.p.dev, IRDMA_GEN_2), 0);
		ep_fini(&e.fx, &e.a);
		ep_fini(&e.fx, &e.c);
		ep_fini(&e.fx, &e.l);
		fx_down(&e.fx);
	}
}

/* ---- API errors ---- */

static int no_filter(struct port *p, const struct port_filter_attr *a, struct port_filter **out)
{
	return -EACCES;
}

static int no_port(struct port *p, bool ipv4, const u32 *addr, u16 *number, bool shared)
{
	return -EADDRINUSE;
}

static void listen_errors_leave_nothing(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		const struct port_ops *real = e.fx.host[1].dev->port->ops;
		u32 a[4];

		addr_of(&e, 0, 0, a);
		e.l.id.m_local_addr.ss_family = AF_UNIX;
		assert_int_equal(irdma_create_listen(&e.l.id, 1), -EAFNOSUPPORT);
		assert_int_equal(listen_at(&e.l, e.ipv4, a, 0, 1), -EINVAL);
		e.ops.filter_add = no_filter;
		assert_int_equal(listen_at(&e.l, e.ipv4, a, 7000, 1), -EACCES);
		assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 1), -EACCES);
		e.ops.filter_add = real->filter_add;
		e.ops.reserve = no_port;
		assert_int_equal(listen_at(&e.l, e.ipv4, a, 7000, 1), -EADDRINUSE);
		assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 1), -EADDRINUSE);
		e.ops.reserve = real->reserve;
		addr_of(&e, 77, 0, a);
		assert_int_equal(listen_at(&e.l, e.ipv4, a, 7000, 1), -EADDRNOTAVAIL);
		assert_int_equal(irdma_destroy_listen(&e.l.id), -EINVAL);
		assert_null(e.l.id.provider_data);
		assert_int_equal(e.l.refs, 0);
		assert_int_equal(fx_stats(&e.fx, 0).listeners_now, 0);
		assert_int_equal(fx_stats(&e.fx, 0).listens_created, fx_stats(&e.fx, 0).listens_destroyed);
		assert_int_equal(rnic_apbvt_count(e.p.dev), 0);
		assert_true(LIST_EMPTY(&env_core(&e)->listen_list));
		e.l.id.tos_set = true;
		e.l.id.tos = 0x20;
		env_listen(&e); /* and all that can be done after it */
		assert_int_equal(listener_of(&e.l)->tos, 0x20);
	}
}

/* ---- children ---- */

static void wildcard_has_a_child_per_address(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		struct irdma_cm_info info = { .ipv4 = e.ipv4, .loc_port = 7000 };
		int base = 1;

		add_addr(&e, 50, 0);
		add_addr(&e, 0, 5);
		assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 0), 0);
		e.listening = true;
		assert_null(listener_of(&e.l)->filter);
		assert_int_equal(children(listener_of(&e.l), true), base + 2);
		cm_lock(env_core(&e));
		assert_int_equal(irdma_add_mqh(e.p.dev, &info, listener_of(&e.l)), 0); /* adds none twice */
		assert_int_equal(children(listener_of(&e.l), false), base + 2);
		assert_int_equal(irdma_del_multiple_qhash(e.p.dev, &info, listener_of(&e.l)), 0);
		assert_int_equal(irdma_del_multiple_qhash(e.p.dev, &info, listener_of(&e.l)), -ENOENT);
		assert_int_equal(children(listener_of(&e.l), false), 0);
		assert_int_equal(e.ipv4 ? irdma_add_mqh_4(e.p.dev, &info, listener_of(&e.l)) : irdma_add_mqh_6(e.p.dev, &info, listener_of(&e.l)), 0);
		assert_int_equal(children(listener_of(&e.l), true), base + 2);
		cm_unlock(env_core(&e));
	}
}

static int filters_left;

static int few_filters(struct port *p, const struct port_filter_attr *a, struct port_filter **out)
{
	if (!filters_left)
		return -ENOMEM;
	filters_left--;
	return container_of(p->ops, struct env, ops)->fx.host[1].dev->port->ops->filter_add(p, a, out);
}

static void half_made_children_are_taken_back(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		add_addr(&e, 50, 0);
		add_addr(&e, 51, 0);
		filters_left = 2;
		e.ops.filter_add = few_filters;
		assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 0), -ENOMEM);
		assert_int_equal(filters_left, 0);
		filters_left = 100;
		assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 0), 0);
		e.listening = true;
		assert_int_equal(children(listener_of(&e.l), true), 3);
	}
}

static int gone_filter(struct port *p, const struct port_filter_attr *a, struct port_filter **out)
{
	return -EADDRNOTAVAIL;
}

static void address_that_goes_while_we_look_is_no_error(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		e.ops.filter_add = gone_filter;
		assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 0), 0);
		e.listening = true;
		assert_int_equal(children(listener_of(&e.l), false), 0);
	}
}

static void many_addresses_and_interfaces(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		for (u32 i = 0; i < 40; i++)
			add_addr(&e, 50 + i, 0);
		for (u16 i = 1; i <= 20; i++)
			add_addr(&e, 0, i);
		assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 0), 0);
		e.listening = true;
		assert_int_equal(children(listener_of(&e.l), true), 61);
	}
}

static void interface_of_others_and_down_ones_get_no_child(void **state)
{
	struct net_iface other = { .name = "eth1", .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE, .mac = { 2, 0, 0, 0, 1, 1 } };
	struct net_addr a = { .ipv4 = true, .addr = { 0xC0A80001 }, .prefix_len = 24 };
	struct net_iface vlan;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	assert_int_equal(net_sim_add_iface(e.fx.host[0].net, &other), 0);
	a.ifindex = other.ifindex;
	assert_int_equal(net_sim_add_addr(e.fx.host[0].net, &a), 0);
	vlan = add_addr(&e, 0, 5);
	net_sim_set_link(e.fx.host[0].net, vlan.ifindex, false);
	assert_int_equal(listen_at(&e.l, true, any, 7000, 0), 0);
	e.listening = true;
	assert_int_equal(children(listener_of(&e.l), false), 1);
	env_down(&e);
}

/* ---- addresses come and go ---- */

static void wildcard_follows_addresses(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		u32 a[4];

		assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 0), 0);
		e.listening = true;
		add_addr(&e, 50, 0);
		addr_of(&e, 50, 0, a);
		assert_true(rnic_arp_set(e.p.dev, e.ipv4, a, e.fx.host[1].iface.mac) >= 0);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, e.ipv4, true);
		assert_int_equal(rnic_arp_find(e.p.dev, e.ipv4, a), RNIC_ARP_NONE); /* what was resolved before is stale */
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, e.ipv4, true); /* said twice */
		assert_int_equal(children(listener_of(&e.l), true), 2);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, !e.ipv4, false); /* the other family's */
		assert_int_equal(children(listener_of(&e.l), true), 2);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, e.ipv4, false);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, e.ipv4, false);
		assert_int_equal(children(listener_of(&e.l), true), 1);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, e.ipv4, true);
		assert_int_equal(children(listener_of(&e.l), true), 2);
		assert_int_equal(children(listener_of(&e.l), false), 2);
		addr_of(&e, 60, 0, a);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, e.ipv4, false); /* one that never was */
		assert_int_equal(children(listener_of(&e.l), true), 2);
	}
}

static void exact_listener_sleeps_while_its_address_is_gone(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		struct net_iface vlan5 = e.fx.host[0].iface;
		u32 a[4];

		vlan5.vlan_id = 5;
		env_listen(&e);
		addr_of(&e, 50, 0, a);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, e.ipv4, false); /* another one's */
		assert_non_null(listener_of(&e.l)->filter);
		addr_of(&e, 0, 0, a);
		irdma_if_notify(e.p.dev, &vlan5, a, e.ipv4, false); /* the same on a VLAN */
		assert_non_null(listener_of(&e.l)->filter);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, e.ipv4, false);
		assert_null(listener_of(&e.l)->filter);
		assert_int_equal(listener_of(&e.l)->state, ACTIVE);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, e.ipv4, true);
		assert_non_null(listener_of(&e.l)->filter);
		env_passive(&e);
	}
}

static void interface_down_and_up_moves_every_address(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		for (u32 i = 0; i < 20; i++)
			add_addr(&e, 50 + i, 0);
		add_addr(&e, 0, 5);
		assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 0), 0);
		e.listening = true;
		env_requested(&e);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, NULL, false, false);
		assert_int_equal(children(listener_of(&e.l), true), 1); /* the VLAN's */
		assert_int_equal(e.p.node->state, ST(LISTENER_DESTROYED));
		env_loop(&e);
		assert_int_equal(e.a.nevents, 2);
		assert_int_equal(e.a.ev[0].event, IW_CM_EVENT_DISCONNECT);
		irdma_if_notify(e.p.dev, &e.fx.host[0].iface, NULL, false, true);
		assert_int_equal(children(listener_of(&e.l), true), 22);
	}
}

static void passive_listener_does_not_follow_addresses(void **state)
{
	struct env e;
	u32 a[4];

	env_up(&e, IRDMA_GEN_2, true);
	assert_int_equal(listen_at(&e.l, e.ipv4, any, 7000, 0), 0);
	e.listening = true;
	env_fin_wait1(&e);
	struct irdma_cm_listener *l = listener_of(&e.l);

	assert_int_equal(irdma_destroy_listen(&e.l.id), 0);
	e.listening = false;
	add_addr(&e, 50, 0);
	addr_of(&e, 50, 0, a);
	irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, true, true);
	assert_int_equal(children(l, false), 1);
	env_down(&e);
}

static void filter_that_cannot_be_had_again_is_only_logged(void **state)
{
	struct env e;
	u32 a[4];

	env_up(&e, IRDMA_GEN_2, true);
	env_listen(&e);
	addr_of(&e, 0, 0, a);
	irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, true, false);
	e.ops.filter_add = no_filter;
	irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, true, true);
	assert_null(listener_of(&e.l)->filter);
	e.ops.filter_add = e.fx.host[1].dev->port->ops->filter_add;
	irdma_if_notify(e.p.dev, &e.fx.host[0].iface, a, true, true);
	assert_non_null(listener_of(&e.l)->filter);
	env_down(&e);
}

/* A listener on an address of a VLAN gets what comes tagged, and only that. */
static void vlan_listener_gets_its_vlan(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		struct fx_seg syn = { .flags = PKT_SYN, .seq = 1, .window = 100 };
		struct fx_peer p;

		add_addr(&e, 0, 5);
		fx_peer_tuple(&p, &e.fx, e.ipv4, 7000, 5000);
		addr_of(&e, 0, 5, p.t.loc_addr);
		addr_of(&e, 1, 5, p.t.rem_addr);
		assert_int_equal(listen_at(&e.l, e.ipv4, p.t.loc_addr, 7000, 0), 0);
		e.listening = true;
		assert_int_equal(listener_of(&e.l)->vlan_id, 5);
		fx_feed(p.dev, &p.t, &syn);
		assert_int_equal(fx_stats(&e.fx, 0).half_open_now, 0);
		p.t.vlan_id = 5;
		rnic_arp_set(p.dev, e.ipv4, p.t.rem_addr, (const u8[6]){ 2, 0, 0, 0, 0, 9 });
		fx_feed(p.dev, &p.t, &syn);
		assert_int_equal(fx_stats(&e.fx, 0).half_open_now, 1);
		assert_int_equal(fx_last(&e.tap)->vlan_id, 5);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_SYN | PKT_ACK);
	}
}

/* ---- backlog, kicks (host port) ---- */

static int kicks;
static struct port_filter *kicked;

static void count_kick(struct port *p, struct port_filter *f)
{
	kicks++;
	kicked = f;
}

static void full_backlog_holds_the_port_until_a_place_is_free(void **state)
{
	for (int wild = 0; wild < 2; wild++) {
		struct irdma_cm_listener *top, *l;
		struct fx_peer p[2];
		struct env e;

		env_up(&e, IRDMA_GEN_2, true);
		e.ops.filter_kick = count_kick;
		kicks = 0;
		assert_int_equal(listen_at(&e.l, true, wild ? any : (u32[4]){ 0x0A000001 }, 7000, 2), 0);
		e.listening = true;
		top = listener_of(&e.l);
		l = wild ? LIST_FIRST(&top->children) : top;
		assert_true(cm_listener_may_accept(e.p.dev, l));
		fx_peer_passive(&p[0], &e.fx, true, 5000);
		assert_true(cm_listener_may_accept(e.p.dev, l));
		fx_peer_passive(&p[1], &e.fx, true, 5001);
		assert_int_equal(kicks, 0);
		assert_false(cm_listener_may_accept(e.p.dev, l));
		assert_true(l->kick_wanted);
		fx_peer_send(&p[0], PKT_RST, NULL, 0);
		assert_int_equal(kicks, 1);
		assert_ptr_equal(kicked, l->filter);
		fx_peer_send(&p[1], PKT_RST, NULL, 0); /* nobody waits any more */
		assert_int_equal(kicks, 1);
		assert_true(cm_listener_may_accept(e.p.dev, l));
		fx_peer_done(&p[0]);
		fx_peer_done(&p[1]);
		env_down(&e);
	}
}

/* Host port: who says nothing keeps nobody waiting in the kernel, and is one of few. */
static void silent_peers_have_no_place_on_the_host_port(void **state)
{
	struct fx_peer p[CM_SILENT_MAX + 1];
	struct irdma_cm_listener *l;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	e.ops.filter_kick = count_kick;
	e.ops.flags &= ~PORT_FRAMES;
	kicks = 0;
	assert_int_equal(listen_at(&e.l, true, (u32[4]){ 0x0A000001 }, 7000, 1), 0);
	e.listening = true;
	l = listener_of(&e.l);
	fx_tap_off(&e.tap);
	for (u16 i = 0; i < CM_SILENT_MAX; i++) {
		assert_true(cm_listener_may_accept(e.p.dev, l));
		fx_peer_syn(&p[i], &e.fx, true, (u16)(20000 + i));
		assert_false(cm_listener_may_accept(e.p.dev, l)); /* its handshake has a place */
		fx_peer_send(&p[i], PKT_ACK, NULL, 0);
		assert_int_equal(kicks, i + 1);
	}
	assert_int_equal(l->pending, CM_SILENT_MAX);
	fx_tap_on(&e.fx, 0, &e.tap);
	fx_peer_passive(&p[CM_SILENT_MAX], &e.fx, true, 30000);
	assert_int_equal(e.tap.f[0].pkt.flags, PKT_RST | PKT_ACK);
	assert_int_equal(e.tap.f[0].pkt.dport, 20000);
	assert_int_equal(p[0].node->state, ST(CLOSED));
	assert_int_equal(fx_stats(&e.fx, 0).silent_evicted, 1);
	assert_int_equal(l->silent_now, CM_SILENT_MAX);
	e.p = p[1];
	cm_node_hold(e.p.node);
	env_request(&e);
	assert_int_equal(l->silent_now, CM_SILENT_MAX - 1);
	assert_false(cm_listener_may_accept(e.p.dev, l)); /* now it is the upper layer's turn */
	fx_tap_off(&e.tap);
	for (size_t i = 0; i < ARRAY_SIZE(p); i++) {
		if (i != 1)
			fx_feed(e.p.dev, &p[i].t, &(struct fx_seg){ .flags = PKT_RST, .seq = p[i].seq });
		fx_peer_done(&p[i]);
	}
	env_loop(&e);
	fx_tap_on(&e.fx, 0, &e.tap);
	e.ops.flags |= PORT_FRAMES;
	env_down(&e);
}

static void listener_that_ended_takes_nothing_and_kicks_nobody(void **state)
{
	struct irdma_cm_listener *l, *child;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	e.ops.filter_kick = count_kick;
	kicks = 0;
	assert_int_equal(listen_at(&e.l, true, any, 7000, 2), 0);
	l = listener_of(&e.l);
	child = LIST_FIRST(&l->children);
	e.listening = true;
	env_fin_wait1(&e);
	assert_int_equal(irdma_destroy_listen(&e.l.id), 0);
	e.listening = false;
	assert_false(cm_listener_may_accept(e.p.dev, l)); /* passive */
	assert_false(cm_listener_may_accept(e.p.dev, child));
	fx_peer_send(&e.p, PKT_RST, NULL, 0);
	assert_true(l->dead); /* freed by work that has not run yet: the port may be asking */
	assert_false(cm_listener_may_accept(e.p.dev, l));
	assert_false(cm_listener_may_accept(e.p.dev, child));
	assert_int_equal(kicks, 0);
	env_down(&e);
}

static void kick_without_a_filter_is_none(void **state)
{
	struct fx_peer p;
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	e.ops.filter_kick = count_kick;
	kicks = 0;
	assert_int_equal(listen_at(&e.l, true, (u32[4]){ 0x0A000001 }, 7000, 1), 0);
	e.listening = true;
	fx_peer_passive(&p, &e.fx, true, 5000);
	assert_false(cm_listener_may_accept(e.p.dev, listener_of(&e.l)));
	irdma_if_notify(e.p.dev, &e.fx.host[0].iface, (u32[4]){ 0x0A000001 }, true, false); /* ends the connection, too */
	assert_int_equal(p.node->state, ST(CLOSED));
	assert_int_equal(kicks, 0);
	fx_peer_done(&p);
	env_down(&e);
}

/* ---- the end, with connections in each stage ---- */

static void destroyed_with_a_connection_in_each_stage(void **state)
{
	static const struct { enum irdma_cm_node_state before, after; bool rst; int events; } t[] = {
		{ ST(SYN_RCVD), ST(CLOSED), true, 0 }, { ST(ESTABLISHED), ST(CLOSED), true, 0 },
		{ ST(MPAREQ_RCVD), ST(LISTENER_DESTROYED), true, 2 }, { ST(FIN_WAIT1), ST(FIN_WAIT1), false, 0 },
		{ ST(FIN_WAIT2), ST(FIN_WAIT2), false, 0 }, { ST(CLOSING), ST(CLOSING), false, 0 }, { ST(LAST_ACK), ST(LAST_ACK), false, 0 },
		{ ST(TIME_WAIT), ST(TIME_WAIT), false, 0 },
	};

	for (size_t i = 0; i < 4 * ARRAY_SIZE(t); i++) {
		struct env e;
		u32 n;

		up_at(&e, i % 4);
		env_goto(&e, t[i / 4].before);
		n = e.tap.n;
		assert_int_equal(irdma_destroy_listen(&e.l.id), 0);
		e.listening = false;
		assert_int_equal(irdma_destroy_listen(&e.l.id), -EINVAL);
		assert_int_equal(e.p.node->state, t[i / 4].after);
		assert_int_equal(e.tap.n, n + t[i / 4].rst);
		if (t[i / 4].rst)
			assert_true(fx_last(&e.tap)->flags & PKT_RST);
		env_loop(&e);
		assert_int_equal(e.a.nevents, t[i / 4].events);
		assert_int_equal(e.l.nevents, t[i / 4].before == ST(SYN_RCVD) || t[i / 4].before == ST(ESTABLISHED) || t[i / 4].before == ST(LAST_ACK) ? 0 : 1);
		env_down(&e);
	}
}

/* The request is queued, but not delivered, when the listener goes: it never is. */
static void no_request_after_destroy(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_passive(&e);
		env_request(&e);
		assert_int_equal(irdma_destroy_listen(&e.l.id), 0);
		e.listening = false;
		assert_int_equal(e.p.node->state, ST(CLOSED));
		env_loop(&e);
		assert_int_equal(e.l.nevents, 0);
	}
}

static void reset_list_has_what_is_not_accepted(void **state)
{
	struct irdma_node_list list = TAILQ_HEAD_INITIALIZER(list);
	struct irdma_cm_node *node;
	struct fx_peer p[3];
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_listen(&e);
	fx_peer_syn(&p[0], &e.fx, true, 5001);
	fx_peer_passive(&p[1], &e.fx, true, 5002);
	fx_peer_passive(&p[2], &e.fx, true, 5003);
	fx_peer_send(&p[2], PKT_FIN | PKT_ACK, NULL, 0);
	cm_lock(env_core(&e));
	irdma_reset_list_prep(env_core(&e), listener_of(&e.l), &list);
	for (int i = 0; i < 2; i++) {
		node = TAILQ_FIRST(&list);
		assert_ptr_equal(node, p[i].node);
		assert_int_equal(node->refcount, 3);
		TAILQ_REMOVE(&list, node, reset_entry);
		irdma_rem_ref_cm_node(node);
	}
	assert_true(TAILQ_EMPTY(&list));
	cm_unlock(env_core(&e));
	for (int i = 0; i < 3; i++)
		fx_peer_done(&p[i]);
	env_down(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exact_address_comes_before_the_wildcard),
		cmocka_unit_test(wildcard_serves_every_address_and_vlan_of_its_family),
		cmocka_unit_test(one_active_listener_per_address_and_port),
		cmocka_unit_test(port_can_be_bound_again_at_once),
		cmocka_unit_test(passive_listener_is_taken_over),
		cmocka_unit_test(passive_listener_goes_with_its_last_connection),
		cmocka_unit_test(cleanup_with_closing_connections),
		cmocka_unit_test(listen_errors_leave_nothing),
		cmocka_unit_test(wildcard_has_a_child_per_address),
		cmocka_unit_test(half_made_children_are_taken_back),
		cmocka_unit_test(address_that_goes_while_we_look_is_no_error),
		cmocka_unit_test(many_addresses_and_interfaces),
		cmocka_unit_test(interface_of_others_and_down_ones_get_no_child),
		cmocka_unit_test(wildcard_follows_addresses),
		cmocka_unit_test(exact_listener_sleeps_while_its_address_is_gone),
		cmocka_unit_test(interface_down_and_up_moves_every_address),
		cmocka_unit_test(passive_listener_does_not_follow_addresses),
		cmocka_unit_test(filter_that_cannot_be_had_again_is_only_logged),
		cmocka_unit_test(vlan_listener_gets_its_vlan),
		cmocka_unit_test(full_backlog_holds_the_port_until_a_place_is_free),
		cmocka_unit_test(silent_peers_have_no_place_on_the_host_port),
		cmocka_unit_test(listener_that_ended_takes_nothing_and_kicks_nobody),
		cmocka_unit_test(kick_without_a_filter_is_none),
		cmocka_unit_test(destroyed_with_a_connection_in_each_stage),
		cmocka_unit_test(no_request_after_destroy),
		cmocka_unit_test(reset_list_has_what_is_not_accepted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
