// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Listeners. One that listens on an address has one filter; one on the wildcard has a child, with a filter, for every up address of the
 * interface and of its VLANs. Accounting (backlog, half-open) is the parent's.
 *
 * A listener holds its life's reference while ACTIVE; each node that still needs its filter (set-up, or the FINs of a
 * rejected connection) holds one more. With the last one the filters and the port reservation go. The memory itself is
 * freed in the loop's thread, because the port may be asking may_accept() about it at that moment.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "cm/cm_internal.h"

#define FEW 16 /* addresses of an interface, mostly */
#define FILTER_RETRY_NS NSEC_PER_SEC

struct listen_key {
	u32 addr[4];
	u16 port, vlan_id;
	u32 ipv4;
};
static_assert(sizeof(struct listen_key) == 24, "no padding");

static void key_of(struct listen_key *key, const u32 *addr, bool ipv4, u16 port, u16 vlan_id)
{
	memcpy(key->addr, addr, sizeof(key->addr));
	key->port = port;
	key->vlan_id = vlan_id;
	key->ipv4 = ipv4;
}

static bool listener_eq(const struct hash_node *hn, const void *p)
{
	const struct irdma_cm_listener *l = container_of((struct hash_node *)hn, struct irdma_cm_listener, hn);
	struct listen_key key;

	key_of(&key, l->loc_addr, l->ipv4, l->loc_port, l->wildcard ? PKT_VLAN_NONE : l->vlan_id);
	return !memcmp(&key, p, sizeof(key));
}

static struct irdma_cm_listener *lookup(struct irdma_cm_core *core, const struct listen_key *key, enum irdma_cm_listener_state state)
{
	struct irdma_cm_listener *l;
	struct hash_node *hn;

	hn = hash_find(&core->listeners_ht, hash_of(&core->listeners_ht, key, sizeof(*key)), listener_eq, key);
	if (!hn)
		return NULL;
	l = container_of(hn, struct irdma_cm_listener, hn);
	return l->state & state ? l : NULL;
}

/**
 * irdma_find_listener - find the listener for a destination address and port
 * @cm_core: core
 * @dst_addr: local address, four words
 * @ipv4: its family
 * @dst_port: local port, host order
 * @vlan_id: VLAN, 0xFFFF for untagged
 * @listener_state: mask of states that will do
 *
 * Exact address first, then the wildcard, which serves every VLAN of the interface. Two hash look-ups at most.
 *
 * Return: the listener with a reference taken, or NULL.
 */
struct irdma_cm_listener *irdma_find_listener(struct irdma_cm_core *cm_core, u32 *dst_addr, bool ipv4, u16 dst_port, u16 vlan_id,
					      enum irdma_cm_listener_state listener_state)
{
	static const u32 any[4];
	struct irdma_cm_listener *l;
	struct listen_key key;

	key_of(&key, dst_addr, ipv4, dst_port, vlan_id);
	l = lookup(cm_core, &key, listener_state);
	if (!l) {
		key_of(&key, any, ipv4, dst_port, PKT_VLAN_NONE);
		l = lookup(cm_core, &key, listener_state);
	}
	if (l)
		l->refcnt++;
	return l;
}

static void free_listener_work(struct work_struct *w)
{
	free(container_of(w, struct irdma_cm_listener, free_work));
}

static struct irdma_cm_listener *alloc_listener(struct irdma_device *iwdev, const struct irdma_cm_info *info)
{
	struct irdma_cm_listener *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->refcnt = 1;
	l->cm_core = iwdev->cm_core;
	l->iwdev = iwdev;
	l->ipv4 = info->ipv4;
	l->loc_port = info->loc_port;
	l->vlan_id = info->vlan_id;
	memcpy(l->loc_addr, info->loc_addr, sizeof(l->loc_addr));
	work_setup(&l->free_work, free_listener_work);
	LIST_INIT(&l->children);
	TAILQ_INIT(&l->nodes);
	TAILQ_INIT(&l->half_open);
	TAILQ_INIT(&l->silent);
	return l;
}

/* What a listener that begins, or takes over, gets from the upper layer. */
static void listener_activate(struct irdma_cm_listener *l, const struct irdma_cm_info *info)
{
	l->cm_id = info->cm_id;
	l->tos = info->tos;
	l->user_pri = info->user_pri;
	l->backlog = info->backlog > 0 ? info->backlog : CM_BACKLOG_DEFAULT;
	l->state = IRDMA_CM_LISTENER_ACTIVE_STATE;
	if (l->cm_id)
		l->cm_id->add_ref(l->cm_id);
	l->cm_core->stats.listens_created++;
	l->cm_core->stats.listeners_now++;
}

/**
 * irdma_make_listen_node - make the listener for an address and port, or take a passive one over
 * @cm_core: core
 * @iwdev: device
 * @cm_info: address (all zero: wildcard), port, VLAN, cm_id, backlog (not positive: 128)
 *
 * One active listener per address and port. A passive one, which has connections left from before, is taken over with
 * its filters.
 *
 * Return: the listener with its life's reference; NULL if an active one is there, or without memory.
 */
struct irdma_cm_listener *irdma_make_listen_node(struct irdma_cm_core *cm_core, struct irdma_device *iwdev, struct irdma_cm_info *cm_info)
{
	bool wildcard = pkt_addr_is_any(cm_info->loc_addr);
	struct irdma_cm_listener *l;
	struct listen_key key;

	key_of(&key, cm_info->loc_addr, cm_info->ipv4, cm_info->loc_port, wildcard ? PKT_VLAN_NONE : cm_info->vlan_id);
	l = lookup(cm_core, &key, IRDMA_CM_LISTENER_EITHER_STATE);
	if (l && l->state == IRDMA_CM_LISTENER_ACTIVE_STATE)
		return NULL;
	if (l) {
		l->refcnt++;
		listener_activate(l, cm_info);
		return l;
	}
	l = alloc_listener(iwdev, cm_info);
	if (!l)
		return NULL;
	l->wildcard = wildcard;
	hash_add(&cm_core->listeners_ht, &l->hn, hash_of(&cm_core->listeners_ht, &key, sizeof(key)));
	l->hashed = true;
	LIST_INSERT_HEAD(&cm_core->listen_list, l, list);
	listener_activate(l, cm_info);
	return l;
}

/* ---- filters ---- */

static int filter_enable(struct irdma_cm_listener *l, int backlog)
{
	struct port_filter_attr attr = { .ipv4 = l->ipv4, .backlog = backlog, .cookie = l };

	if (l->filter)
		return 0;
	attr.tuple.ipv4 = l->ipv4;
	attr.tuple.loc_port = l->loc_port;
	attr.tuple.vlan_id = l->vlan_id;
	memcpy(attr.tuple.loc_addr, l->loc_addr, sizeof(l->loc_addr));
	return rnic_filter_add(l->iwdev, &attr, &l->filter);
}

static void filter_disable(struct irdma_cm_listener *l)
{
	if (l->filter)
		rnic_filter_del(l->iwdev, l->filter);
	l->filter = NULL;
	l->kick_wanted = false;
}

static void bury(struct irdma_cm_listener *l)
{
	l->dead = true;
	workq_queue(&l->cm_core->event_wq, &l->free_work);
}

static void del_child(struct irdma_cm_listener *child)
{
	filter_disable(child);
	LIST_REMOVE(child, child_entry);
	bury(child);
}

static struct irdma_cm_listener *find_child(struct irdma_cm_listener *parent, const u32 *addr, u16 vlan_id)
{
	struct irdma_cm_listener *child;

	LIST_FOREACH(child, &parent->children, child_entry)
		if (child->vlan_id == vlan_id && pkt_addr_eq(child->loc_addr, addr))
			return child;
	return NULL;
}

/* A child and its filter for one address; one that is there already is only enabled. */
static int add_child(struct irdma_cm_listener *parent, const struct irdma_cm_info *info, const u32 *addr, u16 vlan_id)
{
	struct irdma_cm_listener *child = find_child(parent, addr, vlan_id);
	struct irdma_cm_info cinfo = *info;
	int err;

	if (!child) {
		memcpy(cinfo.loc_addr, addr, sizeof(cinfo.loc_addr));
		cinfo.vlan_id = vlan_id;
		child = alloc_listener(parent->iwdev, &cinfo);
		if (!child)
			return -ENOMEM;
		child->parent = parent;
		child->state = IRDMA_CM_LISTENER_ACTIVE_STATE;
		LIST_INSERT_HEAD(&parent->children, child, child_entry);
	}
	err = filter_enable(child, parent->backlog);
	if (err)
		del_child(child);
	return err;
}

/* All addresses of one interface; the snapshot grows until it holds them all. */
static struct net_addr *addrs_of(struct net *net, u32 ifindex, size_t *count)
{
	size_t room = 16;

	for (;;) {
		struct net_addr *a = calloc(room, sizeof(*a));

		if (!a)
			return NULL;
		*count = net_addrs(net, ifindex, a, room);
		if (*count <= room)
			return a;
		room = *count;
		free(a);
	}
}

static int add_children_on(struct irdma_cm_listener *parent, const struct irdma_cm_info *info, const struct net_iface *iface)
{
	size_t count, i;
	struct net_addr *a = addrs_of(parent->iwdev->net, iface->ifindex, &count);
	int err = 0, ret;

	if (!a)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		if (a[i].ipv4 != info->ipv4)
			continue;
		ret = add_child(parent, info, a[i].addr, iface->vlan_id);
		if (ret && ret != -EADDRNOTAVAIL) /* it went away just now */
			err = ret;
	}
	free(a);
	return err;
}

static bool belongs(const struct irdma_device *iwdev, const struct net_iface *iface)
{
	return iface->ifindex == iwdev->iface.ifindex || iface->lower == iwdev->iface.ifindex;
}

static struct net_iface *ifaces_of(struct net *net, size_t *count)
{
	size_t room = 16;

	for (;;) {
		struct net_iface *f = calloc(room, sizeof(*f));

		if (!f)
			return NULL;
		*count = net_ifaces(net, f, room);
		if (*count <= room)
			return f;
		room = *count;
		free(f);
	}
}

/* A child and a filter for every up address of the interface and of its VLANs. */
static int add_children(struct irdma_cm_listener *parent, const struct irdma_cm_info *info)
{
	struct irdma_device *iwdev = parent->iwdev;
	size_t count, i;
	struct net_iface *f = ifaces_of(iwdev->net, &count);
	int err = f ? 0 : -ENOMEM;

	for (i = 0; f && !err && i < count; i++)
		if (f[i].up && belongs(iwdev, &f[i]))
			err = add_children_on(parent, info, &f[i]);
	free(f);
	return err;
}

/**
 * irdma_add_mqh_4 - add filters and child listeners of an IPv4 wildcard listener
 * @iwdev: device
 * @cm_info: port, backlog
 * @cm_parent_listen_node: the wildcard listener; gets a child for each address
 *
 * VLAN interfaces on top of the device's interface count. Addresses that come later are added by irdma_qhash_ctrl().
 *
 * Return: 0, or why a filter could not be made; then none is left.
 */
int irdma_add_mqh_4(struct irdma_device *iwdev, struct irdma_cm_info *cm_info, struct irdma_cm_listener *cm_parent_listen_node)
{
	int err = add_children(cm_parent_listen_node, cm_info);

	if (err)
		irdma_del_multiple_qhash(iwdev, cm_info, cm_parent_listen_node);
	return err;
}

/**
 * irdma_add_mqh_6 - add filters and child listeners of an IPv6 wildcard listener
 * @iwdev: device
 * @cm_info: port, backlog
 * @cm_parent_listen_node: the wildcard listener; gets a child for each usable address, link-local ones included
 *
 * VLAN interfaces on top of the device's interface count, link-local addresses too. Addresses that come later are added by irdma_qhash_ctrl().
 *
 * Return: 0, or why a filter could not be made; then none is left.
 */
int irdma_add_mqh_6(struct irdma_device *iwdev, struct irdma_cm_info *cm_info, struct irdma_cm_listener *cm_parent_listen_node)
{
	int err = add_children(cm_parent_listen_node, cm_info);

	if (err)
		irdma_del_multiple_qhash(iwdev, cm_info, cm_parent_listen_node);
	return err;
}

/**
 * irdma_add_mqh - add filters and child listeners of a wildcard listener, by its address family
 * @iwdev: device
 * @cm_info: family, port, backlog
 * @cm_listen_node: the wildcard listener
 *
 * A filter is always for one exact address, so a wildcard listener has one for each (the host port: a listening socket).
 *
 * Return: 0, or why a filter could not be made; then none is left.
 */
int irdma_add_mqh(struct irdma_device *iwdev, struct irdma_cm_info *cm_info, struct irdma_cm_listener *cm_listen_node)
{
	if (cm_info->ipv4)
		return irdma_add_mqh_4(iwdev, cm_info, cm_listen_node);
	return irdma_add_mqh_6(iwdev, cm_info, cm_listen_node);
}

/**
 * irdma_del_multiple_qhash - remove a wildcard listener's children and their filters
 * @iwdev: device
 * @cm_info: not used beyond its port, which the log names; may be NULL
 * @cm_parent_listen_node: the wildcard listener
 *
 * Each child's filter is removed at once: no segment for it reaches the CM any more. The memory of the children goes in the loop's thread.
 *
 * Return: 0; -ENOENT if it had none.
 */
int irdma_del_multiple_qhash(struct irdma_device *iwdev, struct irdma_cm_info *cm_info, struct irdma_cm_listener *cm_parent_listen_node)
{
	struct irdma_cm_listener *child, *next;
	int ret = -ENOENT;

	LIST_FOREACH_SAFE(child, &cm_parent_listen_node->children, child_entry, next) {
		del_child(child);
		ret = 0;
	}
	log_debug("cm", "%s: filters of port %u removed", iwdev->name,
		  cm_info ? cm_info->loc_port : cm_parent_listen_node->loc_port);
	return ret;
}

/* ---- addresses come and go ---- */

/* Something is used up, and may be there again later. */
static bool is_shortage(int err)
{
	return err == -ENOMEM || err == -ENOBUFS || err == -EMFILE || err == -ENFILE;
}

static void retry_later(struct irdma_cm_core *core)
{
	mod_timer(&core->filter_timer, loop_now(core->iwdev->loop) + FILTER_RETRY_NS);
}

/* What it should have by now. */
static int complete_filters(struct irdma_cm_listener *l)
{
	struct irdma_cm_info info = { .loc_port = l->loc_port, .ipv4 = l->ipv4, .backlog = l->backlog, .vlan_id = PKT_VLAN_NONE };
	struct net_iface iface;

	if (l->state != IRDMA_CM_LISTENER_ACTIVE_STATE)
		return 0;
	if (l->wildcard)
		return add_children(l, &info);
	if (net_local(l->iwdev->net, l->ipv4, l->loc_addr, &iface, NULL) || !iface.up)
		return 0;
	return filter_enable(l, l->backlog);
}

/* Loop thread: nobody waits for a filter whose address came while something was used up. */
void cm_filters_retry(struct timer_list *t)
{
	struct irdma_cm_core *core = container_of(t, struct irdma_cm_core, filter_timer);
	struct net *prev = net_enter(core->iwdev->net);
	struct irdma_cm_listener *l;
	bool again = false;

	cm_lock(core);
	LIST_FOREACH(l, &core->listen_list, list)
		again |= is_shortage(complete_filters(l));
	if (again)
		retry_later(core);
	cm_unlock(core);
	net_enter(prev);
}

/**
 * irdma_qhash_ctrl - switch a wildcard listener's child on or off as its address comes or goes
 * @iwdev: device
 * @parent_listen_node: wildcard listener, or one on exactly this address
 * @nfo: port, VLAN of the interface, backlog
 * @ipaddr: the address, four words
 * @ipv4: its family
 * @ifup: true: enable the matching child's filter, adding a child that is missing; false: disable it
 *
 * A listener of the other family, or on another address, is left alone. A filter that cannot be made is logged, and tried again if memory or descriptors were short: the rest
 * of the listener goes on.
 */
void irdma_qhash_ctrl(struct irdma_device *iwdev, struct irdma_cm_listener *parent_listen_node, struct irdma_cm_info *nfo,
		      u32 *ipaddr, bool ipv4, bool ifup)
{
	struct irdma_cm_listener *l = parent_listen_node;
	int err = 0;

	if (l->ipv4 != ipv4)
		return;
	if (!l->wildcard && (l->vlan_id != nfo->vlan_id || !pkt_addr_eq(l->loc_addr, ipaddr)))
		return;
	if (l->wildcard && ifup)
		err = add_child(l, nfo, ipaddr, nfo->vlan_id);
	else if (ifup)
		err = filter_enable(l, l->backlog);
	else
		l = l->wildcard ? find_child(l, ipaddr, nfo->vlan_id) : l;
	if (!ifup && l)
		filter_disable(l);
	if (err)
		log_warn("cm", "%s: no filter for port %u: %s", iwdev->name, nfo->loc_port, strerror(-err));
	if (is_shortage(err))
		retry_later(iwdev->cm_core);
}

static void notify_listener(struct irdma_cm_listener *l, const struct net_iface *netdev, u32 *ipaddr, bool ipv4, bool ifup)
{
	struct irdma_cm_info nfo = {
		.loc_port = l->loc_port, .vlan_id = netdev->vlan_id, .ipv4 = ipv4, .backlog = l->backlog,
	};

	if (l->state == IRDMA_CM_LISTENER_ACTIVE_STATE)
		irdma_qhash_ctrl(l->iwdev, l, &nfo, ipaddr, ipv4, ifup);
}

static void notify_addr(struct irdma_device *iwdev, const struct net_iface *netdev, u32 *ipaddr, bool ipv4, bool ifup)
{
	struct irdma_cm_info nfo = { .vlan_id = netdev->vlan_id, .ipv4 = ipv4 };
	struct irdma_cm_core *core = iwdev->cm_core;
	struct irdma_cm_listener *l;

	cm_lock(core);
	LIST_FOREACH(l, &core->listen_list, list)
		notify_listener(l, netdev, ipaddr, ipv4, ifup);
	cm_unlock(core);
	if (!ifup)
		irdma_cm_teardown_connections(iwdev, ipaddr, &nfo, false);
}

/* Connections of an interface that is gone end even without memory; with more addresses than FEW, those of the first ones. */
static void notify_all(struct irdma_device *iwdev, const struct net_iface *netdev, bool ifup)
{
	struct net_addr few[FEW], *all = NULL, *a = few;
	size_t i, count = net_addrs(iwdev->net, netdev->ifindex, few, FEW);

	if (count > FEW) {
		all = addrs_of(iwdev->net, netdev->ifindex, &count);
		if (all)
			a = all;
		else
			retry_later(iwdev->cm_core);
	}
	for (i = 0; i < (all ? count : min(count, (size_t)FEW)); i++)
		notify_addr(iwdev, netdev, a[i].addr, a[i].ipv4, ifup);
	free(all);
}

/**
 * irdma_if_notify - adjust listeners and connections as an interface, or an address of it, comes or goes
 * @iwdev: device
 * @netdev: the interface concerned: the device's own or one of its VLANs
 * @ipaddr: address, four words; NULL: all addresses of @netdev
 * @ipv4: its family
 * @ifup: it is there, or it is gone
 *
 * Every listener concerned gets or loses its filter; connections from an address that is gone are torn down. No lock held.
 */
void irdma_if_notify(struct irdma_device *iwdev, const struct net_iface *netdev, u32 *ipaddr, bool ipv4, bool ifup)
{
	struct net *prev = net_enter(iwdev->net);

	rnic_arp_flush(iwdev);
	if (ipaddr)
		notify_addr(iwdev, netdev, ipaddr, ipv4, ifup);
	else
		notify_all(iwdev, netdev, ifup);
	net_enter(prev);
}

/* ---- the end of a listener ---- */

/**
 * irdma_reset_list_prep - collect a listener's nodes that are not offloaded
 * @cm_core: core
 * @listener: listener
 * @reset_list: gets them, each with a reference that the caller drops. Nodes that are closing already are left alone
 *
 * Costs as much as the listener has nodes, however many the device has. The nodes are collected first because resetting one takes it off
 * the listener's list.
 */
void irdma_reset_list_prep(struct irdma_cm_core *cm_core, struct irdma_cm_listener *listener, struct irdma_node_list *reset_list)
{
	struct irdma_cm_node *node;

	(void)cm_core;
	TAILQ_FOREACH(node, &listener->nodes, listener_entry) {
		if (node->state >= IRDMA_CM_STATE_FIN_WAIT1 && node->state <= IRDMA_CM_STATE_CLOSING)
			continue;
		cm_node_hold(node);
		TAILQ_INSERT_TAIL(reset_list, node, reset_entry);
	}
}

/*
 * The upper layer may still hold a request: the node stays for it in LISTENER_DESTROYED until it is answered, and it is told that
 * the connection is gone.
 */
void cm_reset_hanging(struct irdma_cm_node *node)
{
	cm_node_set_cause(node, CM_CAUSE_LOCAL, -ECONNABORTED);
	if (!node->request_up) {
		irdma_passive_open_err(node, true);
		return;
	}
	cm_send_rst(node);
	irdma_free_retrans_entry(node);
	irdma_create_event(node, IRDMA_CM_EVENT_RESET);
	cm_node_set_state(node, IRDMA_CM_STATE_LISTENER_DESTROYED);
	cm_node_unhash(node);
	irdma_cm_free_ah(node);
	cm_node_leave_listener(node);
}

static void reset_all_hanging(struct irdma_cm_core *core, struct irdma_cm_listener *listener)
{
	struct irdma_node_list list = TAILQ_HEAD_INITIALIZER(list);
	struct irdma_cm_node *node;

	irdma_reset_list_prep(core, listener, &list);
	while ((node = TAILQ_FIRST(&list))) {
		TAILQ_REMOVE(&list, node, reset_entry);
		cm_reset_hanging(node);
		irdma_rem_ref_cm_node(node);
	}
}

static void release_port(struct irdma_cm_listener *l)
{
	if (l->apbvt_held)
		rnic_apbvt_del(l->iwdev, l->ipv4, l->loc_addr, l->loc_port);
	l->apbvt_held = false;
}

static void destroy_listener(struct irdma_cm_core *core, struct irdma_cm_listener *l, bool apbvt_del)
{
	if (l->hashed) {
		hash_del(&core->listeners_ht, &l->hn);
		LIST_REMOVE(l, list);
	}
	l->hashed = false;
	irdma_del_multiple_qhash(l->iwdev, NULL, l);
	filter_disable(l);
	if (apbvt_del)
		release_port(l);
	bury(l);
}

/**
 * irdma_dec_refcnt_listen - drop a reference to a listener; the last one frees it
 * @cm_core: core
 * @listener: listener
 * @free_hanging_nodes: first reset its nodes that are not accepted yet
 * @apbvt_del: give the port reservation back with the last reference
 *
 * With the last reference the filters go, too.
 *
 * Return: 0 if that was the last reference, 1 if there are more.
 */
int irdma_dec_refcnt_listen(struct irdma_cm_core *cm_core, struct irdma_cm_listener *listener, int free_hanging_nodes, bool apbvt_del)
{
	if (free_hanging_nodes)
		reset_all_hanging(cm_core, listener);
	assert(listener->refcnt);
	if (--listener->refcnt)
		return 1;
	destroy_listener(cm_core, listener, apbvt_del);
	return 0;
}

/*
 * A place in the backlog. On the host port who finished the handshake and says nothing has none: it would keep the requests of others waiting in the kernel,
 * behind it. CM_SILENT_MAX bounds those.
 */
bool cm_listener_has_place(const struct irdma_cm_listener *l)
{
	bool frames = l->iwdev->port->ops->flags & PORT_FRAMES;

	return l->pending - (frames ? 0 : l->silent_now) < (u32)l->backlog;
}

static void kick_if_wanted(struct irdma_cm_listener *l)
{
	if (!l->kick_wanted || !l->filter)
		return;
	l->kick_wanted = false;
	rnic_filter_kick(l->iwdev, l->filter);
}

/* A place in the backlog is free, which the host port may be waiting for. */
void cm_listener_kick(struct irdma_cm_listener *listener)
{
	struct irdma_cm_listener *child;

	if (listener->state != IRDMA_CM_LISTENER_ACTIVE_STATE)
		return;
	kick_if_wanted(listener);
	LIST_FOREACH(child, &listener->children, child_entry)
		kick_if_wanted(child);
}

/*
 * A full backlog has less patience: peers that finished the handshake and never send their request hold places that others want. The oldest
 * few may stay until CM_SILENT_MIN_MS after they could have sent it; their timers do the rest.
 */
void cm_listener_hurry(struct irdma_cm_listener *listener)
{
	struct irdma_cm_node *node;
	int few = 16;
	u64 limit;

	TAILQ_FOREACH(node, &listener->silent, half_open_entry) {
		limit = node->silent_since_ns + CM_SILENT_MIN_MS * NSEC_PER_MSEC;
		if (!few--)
			break;
		if (limit >= node->stage_at_ns)
			continue;
		node->stage_at_ns = limit;
		cm_node_arm(node);
	}
}

/**
 * irdma_cm_del_listen - stop a listener: reset what is not accepted yet, remove filters and port reservation
 * @cm_core: core
 * @listener: active listener
 * @apbvt_del: give the port reservation back when its last connection is gone
 *
 * What is not accepted yet is reset. Connections that are closing keep the listener, now passive, and its filters until they are through.
 *
 * Return: 0 if the listener is gone, 1 if connections are left.
 */
int irdma_cm_del_listen(struct irdma_cm_core *cm_core, struct irdma_cm_listener *listener, bool apbvt_del)
{
	struct iw_cm_id *cm_id = listener->cm_id;

	listener->state = IRDMA_CM_LISTENER_PASSIVE_STATE;
	listener->cm_id = NULL;
	cm_core->stats.listens_destroyed++; /* the listening; one that is taken over begins another */
	cm_core->stats.listeners_now--;
	if (cm_id)
		cm_id->rem_ref(cm_id);
	return irdma_dec_refcnt_listen(cm_core, listener, 1, apbvt_del);
}

/*
 * Host port: may it take one more connection from the kernel? If not, it waits there until a node leaves.
 */
bool cm_listener_may_accept(struct irdma_device *iwdev, void *cookie)
{
	struct irdma_cm_core *core = iwdev->cm_core;
	struct irdma_cm_listener *l = cookie, *top;
	bool room;

	cm_lock(core);
	top = l->parent && !l->dead ? l->parent : l;
	room = !l->dead && top->state == IRDMA_CM_LISTENER_ACTIVE_STATE && cm_listener_has_place(top);
	if (!room && !l->dead)
		l->kick_wanted = true;
	cm_unlock(core);
	return room;
}

/* ---- API ---- */

static int listen_info(struct iw_cm_id *cm_id, int backlog, struct irdma_cm_info *info)
{
	struct net_iface iface;

	*info = (struct irdma_cm_info){ .cm_id = cm_id, .backlog = backlog, .vlan_id = PKT_VLAN_NONE, .user_pri = cm_id->prio };
	if (!cm_addr_from_sockaddr(&cm_id->m_local_addr, &info->ipv4, info->loc_addr, &info->loc_port))
		return -EAFNOSUPPORT;
	if (!info->loc_port)
		return -EINVAL;
	info->tos = cm_id->tos_set ? cm_id->tos : 0;
	if (pkt_addr_is_any(info->loc_addr))
		return 0;
	if (net_local(cm_id->device->net, info->ipv4, info->loc_addr, &iface, NULL))
		return -EADDRNOTAVAIL;
	if (info->ipv4)
		info->vlan_id = irdma_get_vlan_ipv4(info->loc_addr);
	else
		irdma_get_vlan_mac_ipv6(info->loc_addr, &info->vlan_id, NULL);
	return 0;
}

static int listener_start(struct irdma_cm_listener *l, struct irdma_cm_info *info)
{
	u16 port = info->loc_port;
	int err;

	if (!l->apbvt_held) {
		err = rnic_apbvt_add(l->iwdev, info->ipv4, info->loc_addr, &port, true);
		if (err)
			return err;
		l->apbvt_held = true;
	}
	return l->wildcard ? irdma_add_mqh(l->iwdev, info, l) : filter_enable(l, l->backlog);
}

/* Why irdma_make_listen_node() made none. */
static int no_listener(struct irdma_cm_core *core, const struct irdma_cm_info *info)
{
	u16 vlan_id = pkt_addr_is_any(info->loc_addr) ? PKT_VLAN_NONE : info->vlan_id;
	struct listen_key key;

	key_of(&key, info->loc_addr, info->ipv4, info->loc_port, vlan_id);
	return lookup(core, &key, IRDMA_CM_LISTENER_ACTIVE_STATE) ? -EADDRINUSE : -ENOMEM;
}

static int create_listen(struct iw_cm_id *cm_id, int backlog)
{
	struct irdma_device *iwdev = cm_id->device;
	struct irdma_cm_core *core = iwdev->cm_core;
	struct irdma_cm_listener *l;
	struct irdma_cm_info info;
	int err = listen_info(cm_id, backlog, &info);

	if (err)
		return err;
	cm_lock(core);
	l = irdma_make_listen_node(core, iwdev, &info);
	err = l ? listener_start(l, &info) : no_listener(core, &info);
	if (l && err)
		irdma_cm_del_listen(core, l, true);
	else if (l)
		cm_id->provider_data = l;
	cm_unlock(core);
	return err;
}

/**
 * irdma_create_listen - start listening on one address, or on all
 * @cm_id: its m_local_addr says where: an address of the device, or the wildcard address of a family for all of them, now and later;
 *	its mpa options are those of the connections
 * @backlog: requests that may wait to be answered, those being set up included; not positive: 128
 *
 * Reserves the port, makes the listener (irdma_make_listen_node()) and its filter, or a child with a filter for each address. On error nothing
 * is left behind.
 *
 * Return: 0; -EADDRINUSE, -EADDRNOTAVAIL, -EACCES (privileged port), -EAFNOSUPPORT, -EINVAL (port 0), -ENOMEM.
 */
int irdma_create_listen(struct iw_cm_id *cm_id, int backlog)
{
	struct net *prev = net_enter(cm_id->device->net);
	int err = create_listen(cm_id, backlog);

	net_enter(prev);
	return err;
}

/**
 * irdma_destroy_listen - stop listening, on behalf of the upper layer
 * @cm_id: what irdma_create_listen() started
 *
 * No CONNECT_REQUEST for it is delivered after this returns, except to a caller inside one. Requests that were not answered are reset.
 *
 * Return: 0; -EINVAL if it does not listen.
 */
int irdma_destroy_listen(struct iw_cm_id *cm_id)
{
	struct irdma_cm_core *core = cm_id->device->cm_core;
	struct net *prev = net_enter(cm_id->device->net);
	struct irdma_cm_listener *l;

	cm_lock(core);
	l = cm_id->provider_data;
	cm_id->provider_data = NULL;
	if (l) {
		irdma_cm_del_listen(core, l, true);
		cm_upcall_wait(core, cm_id, NULL);
	}
	cm_unlock(core);
	net_enter(prev);
	return l ? 0 : -EINVAL;
}
