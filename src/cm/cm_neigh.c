// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Route and neighbour look-up into the NIC's ARP table, and the address handles that are made from it.
 */
#include <string.h>
#include "cm/cm_internal.h"

/*
 * What both families do. An entry is kept per destination, so that a connection set-up costs one hash look-up; the
 * table is flushed when routes or neighbours change.
 */
static int resolve(struct irdma_device *iwdev, bool ipv4, const u32 *src, const u32 *dst, const struct net_route *route)
{
	const u32 *hop = route->has_gateway ? route->gateway : dst;
	u8 mac[6] = { 0 };
	int err, index;

	(void)src;
	if (route->local) {
		memcpy(mac, iwdev->iface.mac, sizeof(mac));
	} else if (iwdev->port->ops->flags & PORT_NEEDS_NEIGH) {
		err = net_neigh_get(iwdev->net, route->ifindex, ipv4, hop, mac);
		if (err)
			return err;
	}
	index = rnic_arp_set(iwdev, ipv4, dst, mac);
	if (index != -ENOSPC)
		return index;
	rnic_arp_flush(iwdev); /* forged sources behind a gateway must not lock everybody else out */
	return rnic_arp_set(iwdev, ipv4, dst, mac);
}

/* The table may have been flushed since @arpindex was known, and the index be another peer's: it is looked up, whatever it was. */
static int known(struct irdma_device *iwdev, bool ipv4, const u32 *dst, int arpindex)
{
	int index = rnic_arp_find(iwdev, ipv4, dst);

	if (arpindex != RNIC_ARP_NONE && arpindex != index)
		log_debug("cm", "%s: ARP index %d is stale", iwdev->name, arpindex);
	return index;
}

/**
 * irdma_addr_resolve_neigh - find an IPv4 peer's link address, as an index into the NIC's ARP table
 * @iwdev: device
 * @src_ip: local address
 * @dst_ip: peer
 * @arpindex: index known from before, or %RNIC_ARP_NONE
 *
 * Where the neighbour is not known, resolution is started; the SYN retries (RFC 1122 2.3.2.2 asks to keep at
 * least the latest packet: here the SYN is made again).
 *
 * Return: index >= 0; -EAGAIN: being resolved; -ENETUNREACH, -EHOSTUNREACH; -ENOMEM.
 */
int irdma_addr_resolve_neigh(struct irdma_device *iwdev, u32 src_ip, u32 dst_ip, int arpindex)
{
	const u32 src[4] = { src_ip }, dst[4] = { dst_ip };
	struct net_route route;
	int index = known(iwdev, true, dst, arpindex);

	if (index >= 0)
		return index;
	index = net_route_get(iwdev->net, true, src_ip ? src : NULL, dst, 0, &route);
	return index ? index : resolve(iwdev, true, src, dst, &route);
}

/* IPv6 link-local destinations have a route only through a given interface. */
static bool is_link_local(const u32 *addr)
{
	return (addr[0] & 0xFFC00000) == 0xFE800000; /* RFC 4291 2.5.6 */
}

/**
 * irdma_get_dst_ipv6 - look up the route to an IPv6 destination
 * @src_addr: local address, four words, or all zero
 * @dst_addr: destination, four words
 * @dst: the route, filled in
 *
 * Looks in the calling thread's current network (net_enter()). A link-local destination goes out through the
 * interface that holds the source address.
 *
 * Return: 0, -ENETUNREACH, -EHOSTUNREACH.
 */
int irdma_get_dst_ipv6(const u32 *src_addr, const u32 *dst_addr, struct net_route *dst)
{
	struct net_iface iface;
	u32 oif = 0;

	if (!net_current)
		return -ENETUNREACH;
	if (is_link_local(dst_addr) && !net_local(net_current, false, src_addr, &iface, NULL))
		oif = iface.ifindex;
	return net_route_get(net_current, false, pkt_addr_is_any(src_addr) ? NULL : src_addr, dst_addr, oif, dst);
}

/**
 * irdma_addr_resolve_neigh_ipv6 - find an IPv6 peer's link address, as an index into the NIC's ARP table
 * @iwdev: device
 * @src: local address, four words
 * @dest: peer, four words
 * @arpindex: index known from before, or %RNIC_ARP_NONE
 *
 * As irdma_addr_resolve_neigh(); the route is looked up by irdma_get_dst_ipv6(), which knows how link-local destinations are reached.
 *
 * Return: as irdma_addr_resolve_neigh().
 */
int irdma_addr_resolve_neigh_ipv6(struct irdma_device *iwdev, u32 *src, u32 *dest, int arpindex)
{
	struct net_route route;
	int index = known(iwdev, false, dest, arpindex);

	if (index >= 0)
		return index;
	index = irdma_get_dst_ipv6(src, dest, &route);
	return index ? index : resolve(iwdev, false, src, dest, &route);
}

/**
 * irdma_cm_create_ah - make the address handle towards a node's peer
 * @cm_node: node with its addresses and the peer's link address
 * @wait: the caller cannot go on without the handle. Ports make handles at once, so that a failure is final; without
 *	@wait a lack of resources (-ENOMEM, -ENOBUFS, -EMFILE) is not an error: the next attempt to send tries again
 *
 * A node that has a valid handle keeps it. Whole-frame devices need none.
 *
 * Return: 0, or the port's negative errno.
 */
int irdma_cm_create_ah(struct irdma_cm_node *cm_node, bool wait)
{
	struct port_ah_attr attr = { .ttl = 64, .tos = cm_node->tos, .prio = cm_node->user_pri };
	int err;

	if (cm_node->ah.valid || cm_node->cm_core->rdma_ver == IRDMA_GEN_1)
		return 0;
	cm_node_tuple(cm_node, &attr.tuple);
	memcpy(attr.dmac, cm_node->rem_mac, sizeof(attr.dmac));
	err = rnic_ah_create(cm_node->iwdev, &attr, &cm_node->ah);
	if (!wait && (err == -ENOMEM || err == -ENOBUFS || err == -EMFILE))
		return 0;
	return err;
}

/**
 * irdma_cm_free_ah - give the address handle of a node back
 * @cm_node: node; one without a handle is ignored
 *
 * On the host port this closes the socket, unless the connection was offloaded.
 */
void irdma_cm_free_ah(struct irdma_cm_node *cm_node)
{
	if (!cm_node->ah.valid)
		return;
	rnic_ah_destroy(cm_node->iwdev, &cm_node->ah);
	cm_node->ah = (struct irdma_sc_ah){ 0 };
}
