// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Addresses, and what an upper-layer event says. Addresses are u32[4] in host order; IPv4 uses word 0.
 */
#include <arpa/inet.h>
#include <string.h>
#include "cm/cm_internal.h"

/**
 * irdma_copy_ip_ntohl - copy an address from network to host order
 * @dst: four words in host order
 * @src: four words in network order
 *
 * Both are always four words, whatever the family.
 */
void irdma_copy_ip_ntohl(u32 *dst, __be32 *src)
{
	for (int i = 0; i < 4; i++)
		dst[i] = ntohl(src[i]);
}

/**
 * irdma_copy_ip_htonl - copy an address from host to network order
 * @dst: four words in network order
 * @src: four words in host order
 *
 * The reverse of irdma_copy_ip_ntohl(); both are always four words, whatever the family.
 */
void irdma_copy_ip_htonl(__be32 *dst, u32 *src)
{
	for (int i = 0; i < 4; i++)
		dst[i] = htonl(src[i]);
}

/**
 * irdma_get_addr_info - copy a node's addressing into a struct irdma_cm_info
 * @cm_node: node
 * @cm_info: cleared, then filled with the node's family, vlan, addresses and ports
 *
 * What is not addressing (cm_id, backlog, tos, priority) is left cleared. Events carry such a copy, so that they
 * can be told apart after the node is gone.
 */
void irdma_get_addr_info(struct irdma_cm_node *cm_node, struct irdma_cm_info *cm_info)
{
	memset(cm_info, 0, sizeof(*cm_info));
	cm_info->ipv4 = cm_node->ipv4;
	cm_info->vlan_id = cm_node->vlan_id;
	memcpy(cm_info->loc_addr, cm_node->loc_addr, sizeof(cm_info->loc_addr));
	memcpy(cm_info->rem_addr, cm_node->rem_addr, sizeof(cm_info->rem_addr));
	cm_info->loc_port = cm_node->loc_port;
	cm_info->rem_port = cm_node->rem_port;
}

static void fill_sin(struct sockaddr_storage *ss, u32 addr, u16 port)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)ss;

	memset(sin, 0, sizeof(*sin));
	sin->sin_family = AF_INET;
	sin->sin_port = htons(port);
	sin->sin_addr.s_addr = htonl(addr);
}

static void fill_sin6(struct sockaddr_storage *ss, const u32 *addr, u16 port)
{
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ss;
	__be32 words[4];

	irdma_copy_ip_htonl(words, (u32 *)addr);
	memset(sin6, 0, sizeof(*sin6));
	sin6->sin6_family = AF_INET6;
	sin6->sin6_port = htons(port);
	memcpy(&sin6->sin6_addr, words, sizeof(words));
}

/* A link-local address means nothing without the interface it belongs to. */
static void fill_scope(struct sockaddr_storage *ss, const struct irdma_device *iwdev)
{
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ss;

	if (iwdev && IN6_IS_ADDR_LINKLOCAL(&sin6->sin6_addr))
		sin6->sin6_scope_id = iwdev->iface.ifindex;
}

/**
 * irdma_fill_sockaddr4 - put a node's IPv4 addresses into an event
 * @cm_node: node whose addresses and ports are used
 * @event: its local_addr and remote_addr become sockaddr_in
 *
 * Used for CONNECT_REQUEST, where the upper layer learns the peer's address from the event. Ports included, all in network order.
 */
void irdma_fill_sockaddr4(struct irdma_cm_node *cm_node, struct iw_cm_event *event)
{
	fill_sin(&event->local_addr, cm_node->loc_addr[0], cm_node->loc_port);
	fill_sin(&event->remote_addr, cm_node->rem_addr[0], cm_node->rem_port);
}

/**
 * irdma_fill_sockaddr6 - put a node's IPv6 addresses into an event
 * @cm_node: node whose addresses and ports are used
 * @event: its local_addr and remote_addr become sockaddr_in6, with scope ids for link-local addresses
 *
 * As irdma_fill_sockaddr4(). A link-local address (RFC 4291 2.5.6) means nothing without its interface, so its
 * scope id is the device's.
 */
void irdma_fill_sockaddr6(struct irdma_cm_node *cm_node, struct iw_cm_event *event)
{
	fill_sin6(&event->local_addr, cm_node->loc_addr, cm_node->loc_port);
	fill_sin6(&event->remote_addr, cm_node->rem_addr, cm_node->rem_port);
	fill_scope(&event->local_addr, cm_node->iwdev);
	fill_scope(&event->remote_addr, cm_node->iwdev);
}

/**
 * irdma_get_cmevent_info - fill an event for the upcall
 * @cm_node: node, or NULL: then only the addresses are filled in
 * @cm_id: cm_id whose mapped addresses are those that the connection really uses
 * @event: gets the addresses; from the node private data, its length, IRD and ORD (each capped at 255, the
 *	width of the event's fields)
 *
 * The private data belongs to the node and is valid as long as the node is, that is during the upcall.
 */
void irdma_get_cmevent_info(struct irdma_cm_node *cm_node, struct iw_cm_id *cm_id, struct iw_cm_event *event)
{
	event->local_addr = cm_id->m_local_addr;
	event->remote_addr = cm_id->m_remote_addr;
	if (!cm_node)
		return;
	event->private_data = cm_node->pdata;
	event->private_data_len = cm_node->pdata_len;
	event->ird = (u8)min((u32)cm_node->ird_size, 255u);
	event->ord = (u8)min((u32)cm_node->ord_size, 255u);
}

/**
 * irdma_record_ird_ord - store the read depths that the upper layer asks for
 * @cm_node: node
 * @conn_ird: inbound reads wanted; capped at what the NIC can do
 * @conn_ord: outbound reads wanted; capped likewise. 0 becomes 1 when the RTR offered is a zero-length Read alone,
 *	which is itself an outbound read (RFC 6581 4.3)
 *
 * Called with what connect or accept asks for, before the start-up frame that announces it is built; negotiation
 * (irdma_negotiate_mpa_v2_ird_ord()) may lower the values further.
 */
void irdma_record_ird_ord(struct irdma_cm_node *cm_node, u32 conn_ird, u32 conn_ord)
{
	const struct rnic_limits *lim = &cm_node->iwdev->limits;

	if (!conn_ord && cm_node->mpa.p2p && cm_node->mpa.rtr == RDMAP_RTR_READ)
		conn_ord = 1;
	cm_node->ird_size = (u16)min(conn_ird, (u32)lim->max_ird);
	cm_node->ord_size = (u16)min(conn_ord, (u32)lim->max_ord);
}

/**
 * irdma_ipv4_is_lpb - tell whether an IPv4 connection stays on this host
 * @loc_addr: local address
 * @rem_addr: remote address
 *
 * Only counted (the loopbacks counter): such connections take the same way through the NIC as all others.
 *
 * Return: true if the remote address is in 127.0.0.0/8 (RFC 1122 3.2.1.3) or equals the local one.
 */
bool irdma_ipv4_is_lpb(u32 loc_addr, u32 rem_addr)
{
	return (rem_addr >> 24) == 127 || loc_addr == rem_addr;
}

/**
 * irdma_ipv6_is_lpb - tell whether an IPv6 connection stays on this host
 * @loc_addr: local address, four words
 * @rem_addr: remote address, four words
 *
 * Only counted (the loopbacks counter): such connections take the same way through the NIC as all others.
 *
 * Return: true if the remote address is ::1 (RFC 4291 2.5.3) or equals the local one.
 */
bool irdma_ipv6_is_lpb(u32 *loc_addr, u32 *rem_addr)
{
	static const u32 loopback[4] = { 0, 0, 0, 1 };

	return pkt_addr_eq(rem_addr, loopback) || pkt_addr_eq(loc_addr, rem_addr);
}

/**
 * irdma_get_vlan_ipv4 - tell the VLAN of the interface that has a local IPv4 address
 * @addr: address, one word, in the calling thread's current network (net_enter())
 *
 * One hash look-up. Used when a connection or listener begins, so that its frames carry the right tag.
 *
 * Return: vlan id of the interface that holds it; 0xFFFF if that is no VLAN interface, or there is none.
 */
u16 irdma_get_vlan_ipv4(u32 *addr)
{
	const u32 words[4] = { addr[0], 0, 0, 0 };
	struct net_iface iface;

	if (!net_current || net_local(net_current, true, words, &iface, NULL))
		return PKT_VLAN_NONE;
	return iface.vlan_id;
}

/**
 * irdma_get_vlan_mac_ipv6 - tell VLAN and link address of the interface that has a local IPv6 address
 * @addr: address, four words, in the calling thread's current network (net_enter())
 * @vlan_id: vlan id of the interface that holds it, 0xFFFF if none; may be NULL
 * @mac: its six-byte link address, zeros if there is no such interface; may be NULL
 *
 * One hash look-up. Used when a connection or listener begins, so that its frames carry the right tag.
 */
void irdma_get_vlan_mac_ipv6(u32 *addr, u16 *vlan_id, u8 *mac)
{
	struct net_iface iface = { .vlan_id = PKT_VLAN_NONE };

	if (!net_current || net_local(net_current, false, addr, &iface, NULL))
		iface = (struct net_iface){ .vlan_id = PKT_VLAN_NONE };
	if (vlan_id)
		*vlan_id = iface.vlan_id;
	if (mac)
		memcpy(mac, iface.mac, sizeof(iface.mac));
}

/**
 * cm_addr_from_sockaddr - host-order words from a socket address
 * @ss: AF_INET or AF_INET6
 * @ipv4: set to whether it is IPv4
 * @addr: four words; unused ones are 0
 * @port: port, host order
 *
 * Return: false for another family.
 */
bool cm_addr_from_sockaddr(const struct sockaddr_storage *ss, bool *ipv4, u32 addr[4], u16 *port)
{
	const struct sockaddr_in *sin = (const struct sockaddr_in *)ss;
	const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)ss;
	__be32 words[4] = { 0 };

	if (ss->ss_family == AF_INET) {
		words[0] = sin->sin_addr.s_addr;
		*port = ntohs(sin->sin_port);
	} else if (ss->ss_family == AF_INET6) {
		memcpy(words, &sin6->sin6_addr, sizeof(words));
		*port = ntohs(sin6->sin6_port);
	} else {
		return false;
	}
	*ipv4 = ss->ss_family == AF_INET;
	irdma_copy_ip_ntohl(addr, words);
	return true;
}

/**
 * cm_addr_to_sockaddr - socket address from host-order words
 * @ipv4: family
 * @addr: four words
 * @port: port, host order
 * @ss: filled in
 */
void cm_addr_to_sockaddr(bool ipv4, const u32 addr[4], u16 port, struct sockaddr_storage *ss)
{
	memset(ss, 0, sizeof(*ss));
	if (ipv4)
		fill_sin(ss, addr[0], port);
	else
		fill_sin6(ss, addr, port);
}
