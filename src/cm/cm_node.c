// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Nodes: made, found, referenced, freed.
 *
 * A node begins with one reference, its life's; cm_node_end() drops it. The table of nodes does not count: a node leaves
 * it when it is offloaded (the NIC then owns the 4-tuple) or ends.
 */
#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include "cm/cm_internal.h"

/* What identifies a connection on one device; hashed as bytes, so without padding: of IPv4 only the first half. */
struct node_key {
	u32 loc_addr0, rem_addr0;
	u16 loc_port, rem_port;
	u16 vlan_id;
	u16 zero;
	u32 loc_rest[3], rem_rest[3];
};
#define NODE_KEY_IP4 offsetof(struct node_key, loc_rest)
static_assert(sizeof(struct node_key) == 40 && NODE_KEY_IP4 == 16, "no padding");

/* Returns how many of its bytes are to be hashed. */
static size_t key_of(struct node_key *key, u16 rem_port, const u32 *rem_addr, u16 loc_port, const u32 *loc_addr, u16 vlan_id)
{
	key->loc_addr0 = loc_addr[0];
	key->rem_addr0 = rem_addr[0];
	key->loc_port = loc_port;
	key->rem_port = rem_port;
	key->vlan_id = vlan_id;
	key->zero = 0;
	if (!(loc_addr[1] | loc_addr[2] | loc_addr[3] | rem_addr[1] | rem_addr[2] | rem_addr[3]))
		return NODE_KEY_IP4;
	memcpy(key->loc_rest, &loc_addr[1], sizeof(key->loc_rest));
	memcpy(key->rem_rest, &rem_addr[1], sizeof(key->rem_rest));
	return sizeof(*key);
}

struct node_id {
	const u32 *loc_addr, *rem_addr;
	u16 loc_port, rem_port, vlan_id;
};

static bool node_eq(const struct hash_node *hn, const void *p)
{
	const struct irdma_cm_node *node = container_of((struct hash_node *)hn, struct irdma_cm_node, hn);
	const struct node_id *id = p;

	return node->loc_port == id->loc_port && node->rem_port == id->rem_port && node->vlan_id == id->vlan_id &&
	       pkt_addr_eq(node->loc_addr, id->loc_addr) && pkt_addr_eq(node->rem_addr, id->rem_addr);
}

/**
 * irdma_find_node - find the node of a connection by its addresses, ports and VLAN
 * @cm_core: core
 * @rem_port: remote port, host order
 * @rem_addr: remote address, four words
 * @loc_port: local port, host order
 * @loc_addr: local address, four words
 * @vlan_id: VLAN, 0xFFFF for untagged
 *
 * The hash is keyed with a secret (SipHash), so that a peer cannot aim for one chain; cost does not depend on how
 * many nodes there are.
 *
 * Return: the node with a reference taken, or NULL.
 */
struct irdma_cm_node *irdma_find_node(struct irdma_cm_core *cm_core, u16 rem_port, u32 *rem_addr, u16 loc_port, u32 *loc_addr,
				      u16 vlan_id)
{
	const struct node_id id = { loc_addr, rem_addr, loc_port, rem_port, vlan_id };
	struct irdma_cm_node *node;
	struct hash_node *hn;
	struct node_key key;
	size_t len = key_of(&key, rem_port, rem_addr, loc_port, loc_addr, vlan_id);

	hn = hash_find(&cm_core->nodes_ht, hash_of(&cm_core->nodes_ht, &key, len), node_eq, &id);
	if (!hn)
		return NULL;
	node = container_of(hn, struct irdma_cm_node, hn);
	cm_node_hold(node);
	return node;
}

/**
 * irdma_add_hte_node - insert a node into the connection manager's table
 * @cm_core: core
 * @cm_node: node; its 4-tuple must not be in the table. The table grows with its load and takes no reference
 *
 * Growing moves a few buckets at a time, so that no single connection pays for all. The node leaves the table when the NIC takes its stream over, or when it ends.
 */
void irdma_add_hte_node(struct irdma_cm_core *cm_core, struct irdma_cm_node *cm_node)
{
	struct node_key key;
	size_t len = key_of(&key, cm_node->rem_port, cm_node->rem_addr, cm_node->loc_port, cm_node->loc_addr, cm_node->vlan_id);

	assert(!cm_node->hashed);
	hash_add(&cm_core->nodes_ht, &cm_node->hn, hash_of(&cm_core->nodes_ht, &key, len));
	cm_node->hashed = true;
}

void cm_node_unhash(struct irdma_cm_node *node)
{
	if (!node->hashed)
		return;
	hash_del(&node->cm_core->nodes_ht, &node->hn);
	node->hashed = false;
}

void cm_node_hold(struct irdma_cm_node *node)
{
	node->refcount++;
}

/*
 * RFC 6528 3: a clock of 4 us steps plus a keyed hash of the 4-tuple.
 */
static u32 initial_sequence(struct irdma_cm_core *core, const struct irdma_cm_node *node)
{
	struct node_key key;
	u8 out[crypto_shorthash_BYTES];
	size_t len = key_of(&key, node->rem_port, node->rem_addr, node->loc_port, node->loc_addr, node->vlan_id);
	u32 f;

	static_assert(sizeof(core->isn_key) == crypto_shorthash_KEYBYTES, "key size");
	crypto_shorthash(out, (const u8 *)&key, len, core->isn_key);
	memcpy(&f, out, sizeof(f));
	return (u32)(cm_now(core) / 4000) + f;
}

u16 cm_own_mss(const struct irdma_device *iwdev, bool ipv4)
{
	u32 headers = ipv4 ? PKT_IP4_LEN + PKT_TCP_LEN : PKT_IP6_LEN + PKT_TCP_LEN;
	u32 mtu = min(iwdev->iface.mtu, 65535u);

	return (u16)(mtu > headers + CM_MSS_DEFAULT_V4 ? mtu - headers : CM_MSS_DEFAULT_V4);
}

void cm_tcp_init(struct irdma_cm_tcp_context *tcp, u16 own_mss)
{
	*tcp = (struct irdma_cm_tcp_context){ .rcv_wscale = CM_RCV_WSCALE, .rcv_wnd = CM_RX_MAX, .mss = own_mss };
}

void cm_node_init_tcp(struct irdma_cm_node *node)
{
	struct irdma_cm_tcp_context *tcp = &node->tcp_cntxt;

	cm_tcp_init(tcp, cm_own_mss(node->iwdev, node->ipv4));
	tcp->iss = tcp->loc_seq_num = tcp->rem_ack_num = initial_sequence(node->cm_core, node);
}

int cm_node_resolve(struct irdma_cm_node *node)
{
	struct irdma_device *iwdev = node->iwdev;
	int index;

	if (node->ipv4)
		index = irdma_addr_resolve_neigh(iwdev, node->loc_addr[0], node->rem_addr[0], RNIC_ARP_NONE);
	else
		index = irdma_addr_resolve_neigh_ipv6(iwdev, node->loc_addr, node->rem_addr, RNIC_ARP_NONE);
	if (index < 0)
		return index;
	return rnic_arp_mac(iwdev, index, node->rem_mac);
}

static bool is_loopback(struct irdma_cm_node *node)
{
	return node->ipv4 ? irdma_ipv4_is_lpb(node->loc_addr[0], node->rem_addr[0])
			  : irdma_ipv6_is_lpb(node->loc_addr, node->rem_addr);
}

static void node_init(struct irdma_cm_node *node, struct irdma_cm_core *core, struct irdma_device *iwdev,
		      const struct irdma_cm_info *info)
{
	memset(node, 0, sizeof(*node));
	node->refcount = 1;
	node->iwdev = iwdev;
	node->cm_core = core;
	node->ipv4 = info->ipv4;
	node->vlan_id = info->vlan_id;
	node->tos = info->tos;
	node->user_pri = info->user_pri;
	node->loc_port = info->loc_port;
	node->rem_port = info->rem_port;
	memcpy(node->loc_addr, info->loc_addr, sizeof(node->loc_addr));
	memcpy(node->rem_addr, info->rem_addr, sizeof(node->rem_addr));
	memcpy(node->loc_mac, iwdev->iface.mac, sizeof(node->loc_mac));
	node->mpa = info->cm_id ? info->cm_id->mpa : cm_mpa_opts_default;
	node->mpa_rev = node->mpa.rev;
	node->crc = node->mpa.crc;
	node->peer_ird = node->peer_ord = MPA_V2_NOT_NEGOTIATED;
	node->ird_size = iwdev->limits.max_ird;
	node->ord_size = iwdev->limits.max_ord;
}

/* Until it is accepted or ends, the node is the listener's, and events go to the listener's cm_id. */
static void join_listener(struct irdma_cm_node *node, struct irdma_cm_listener *listener)
{
	node->listener = listener;
	listener->refcnt++;
	listener->pending++;
	TAILQ_INSERT_TAIL(&listener->nodes, node, listener_entry);
	node->on_listener = true;
	node->cm_id = listener->cm_id;
	if (node->cm_id)
		node->cm_id->add_ref(node->cm_id);
}

/* What may fail. */
static int node_prepare(struct irdma_cm_node *node)
{
	int err = cm_node_resolve(node);

	if (err && err != -EAGAIN) {
		log_info("cm", "peer unreachable: %s", strerror(-err));
		return err;
	}
	node->neigh_pending = err == -EAGAIN;
	node->spare = pool_get(&node->cm_core->event_pool);
	return node->spare ? 0 : -ENOMEM;
}

/**
 * irdma_make_cm_node - make the node of a connection: sequence number, link address, place in the table
 * @cm_core: core
 * @iwdev: device
 * @cm_info: addressing; its cm_id's MPA options are the node's
 * @listener: listener that the SYN came for, NULL on the active side. The node takes a reference on it
 *
 * Sets the initial sequence number (RFC 6528), resolves the peer's link address and inserts the node into the table.
 * Where the link address is not known yet, resolution is under way: an active node then holds its SYN back
 * (neigh_pending), a passive one is answered to where its SYN came from.
 *
 * Return: a node in state INITED with its life's reference, or NULL with errno set: ENOMEM, or why the peer is unreachable.
 */
struct irdma_cm_node *irdma_make_cm_node(struct irdma_cm_core *cm_core, struct irdma_device *iwdev, struct irdma_cm_info *cm_info,
					 struct irdma_cm_listener *listener)
{
	struct irdma_cm_node *node = pool_get(&cm_core->node_pool);
	int err;

	if (!node) {
		errno = ENOMEM;
		return NULL;
	}
	node_init(node, cm_core, iwdev, cm_info);
	err = node_prepare(node);
	if (err) {
		pool_put(&cm_core->node_pool, node);
		errno = -err;
		return NULL;
	}
	cm_node_init_tcp(node);
	work_setup(&node->disconn_work.work, irdma_disconnect_worker);
	if (listener)
		join_listener(node, listener);
	LIST_INSERT_HEAD(&cm_core->nodes, node, all_entry);
	cm_core->stats.nodes_created++;
	cm_core->stats.nodes_now++;
	if (is_loopback(node))
		cm_core->stats.loopbacks++;
	irdma_add_hte_node(cm_core, node);
	cm_node_set_state(node, IRDMA_CM_STATE_INITED);
	return node;
}

static int copy_pdata(struct irdma_cm_node *node, const struct iw_cm_conn_param *param)
{
	if (!param->private_data_len)
		return 0;
	node->tx_pdata = malloc(param->private_data_len);
	if (!node->tx_pdata)
		return -ENOMEM;
	memcpy(node->tx_pdata, param->private_data, param->private_data_len);
	node->tx_pdata_len = param->private_data_len;
	return 0;
}

/**
 * irdma_create_cm_node - make the node of a connection that this side begins
 * @cm_core: core
 * @iwdev: device
 * @conn_param: private data (at most 512 bytes, 508 with MPA revision 2), IRD and ORD
 * @cm_info: addressing and cm_id
 * @caller_cm_node: the node, on success
 *
 * The node is made by irdma_make_cm_node() and marked active; IRD and ORD are recorded; the private data is copied, for the caller's may
 * be gone when the MPA request is sent. Nothing is sent yet.
 *
 * Return: 0; -EINVAL for private data that does not fit; -EADDRINUSE if the 4-tuple is in use; -EHOSTUNREACH, -ENETUNREACH
 * and what else the route look-up says; -ENOMEM.
 */
int irdma_create_cm_node(struct irdma_cm_core *cm_core, struct irdma_device *iwdev, struct iw_cm_conn_param *conn_param,
			 struct irdma_cm_info *cm_info, struct irdma_cm_node **caller_cm_node)
{
	u8 rev = cm_info->cm_id ? cm_info->cm_id->mpa.rev : cm_mpa_opts_default.rev;
	u32 room = MPA_MAX_PRIV_DATA - (rev == MPA_REV_2 ? sizeof(struct mpa_v2_data) : 0);
	struct irdma_cm_node *node;

	if (conn_param->private_data_len > room)
		return -EINVAL;
	node = irdma_find_node(cm_core, cm_info->rem_port, cm_info->rem_addr, cm_info->loc_port, cm_info->loc_addr, cm_info->vlan_id);
	if (node) {
		irdma_rem_ref_cm_node(node);
		return -EADDRINUSE;
	}
	node = irdma_make_cm_node(cm_core, iwdev, cm_info, NULL);
	if (!node)
		return -errno;
	node->active = true;
	irdma_record_ird_ord(node, conn_param->ird, conn_param->ord);
	if (copy_pdata(node, conn_param)) {
		cm_node_end(node);
		return -ENOMEM;
	}
	*caller_cm_node = node;
	return 0;
}

void cm_node_half_open(struct irdma_cm_node *node, bool on)
{
	struct irdma_cm_listener *listener = node->listener;

	if (node->on_half_open == on)
		return;
	node->on_half_open = on;
	if (on) {
		TAILQ_INSERT_TAIL(&listener->half_open, node, half_open_entry);
		listener->half_open_now++;
		node->cm_core->stats.half_open_now++;
	} else {
		TAILQ_REMOVE(&listener->half_open, node, half_open_entry);
		listener->half_open_now--;
		node->cm_core->stats.half_open_now--;
	}
}

void cm_node_silent(struct irdma_cm_node *node, bool on)
{
	struct irdma_cm_listener *listener = node->listener;

	if (node->on_silent == on)
		return;
	node->on_silent = on;
	if (!on) {
		TAILQ_REMOVE(&listener->silent, node, half_open_entry);
		listener->silent_now--;
		return;
	}
	node->silent_since_ns = cm_now(node->cm_core);
	TAILQ_INSERT_TAIL(&listener->silent, node, half_open_entry);
	listener->silent_now++;
	cm_listener_kick(listener);
}

/* The listener's accounting ends here: accepted, rejected, failed or evicted. Its place may be what the host port waits for. */
void cm_node_leave_backlog(struct irdma_cm_node *node)
{
	struct irdma_cm_listener *listener = node->listener;

	cm_node_half_open(node, false);
	cm_node_silent(node, false);
	if (!node->on_listener)
		return;
	TAILQ_REMOVE(&listener->nodes, node, listener_entry);
	node->on_listener = false;
	listener->pending--;
	cm_listener_kick(listener);
}

/* ... and with it the need for its filter. */
void cm_node_leave_listener(struct irdma_cm_node *node)
{
	struct irdma_cm_listener *listener = node->listener;

	if (!listener)
		return;
	cm_node_leave_backlog(node);
	node->listener = NULL;
	irdma_dec_refcnt_listen(node->cm_core, listener, 0, true);
}

static void leave_refused(struct irdma_cm_node *node)
{
	if (!node->on_refused)
		return;
	node->on_refused = false;
	TAILQ_REMOVE(&node->cm_core->refused, node, half_open_entry);
	node->cm_core->refused_now--;
}

/* Peers that ask, are refused, and do not answer FINs: some are waited for, for as long as retries last; the oldest gives way. */
static void join_refused(struct irdma_cm_node *node)
{
	struct irdma_cm_core *core = node->cm_core;
	bool frames = node->iwdev->port->ops->flags & PORT_FRAMES;

	if (core->refused_now >= (frames ? CM_REFUSED_MAX : CM_SILENT_MAX)) {
		core->stats.refused_evicted++;
		irdma_send_reset(TAILQ_FIRST(&core->refused));
	}
	TAILQ_INSERT_TAIL(&core->refused, node, half_open_entry);
	node->on_refused = true;
	core->refused_now++;
}

/*
 * Nobody will accept it any more: what is left are FINs, for which a frame port still needs the listener's filter. The upper layer's
 * id is let go: it may be the listener's, and a peer that does not answer FINs must not keep it.
 */
void cm_node_closing(struct irdma_cm_node *node)
{
	if (!node->active)
		cm_node_release_id(node);
	if (node->iwdev->port->ops->flags & PORT_FRAMES)
		cm_node_leave_backlog(node);
	else
		cm_node_leave_listener(node);
	if (!node->active && !node->on_refused && node->state != IRDMA_CM_STATE_CLOSED)
		join_refused(node);
}

void cm_node_release_id(struct irdma_cm_node *node)
{
	struct iw_cm_id *cm_id = node->cm_id;

	node->cm_id = NULL;
	if (!cm_id)
		return;
	if (cm_id->provider_data == node)
		cm_id->provider_data = NULL;
	if (node->iwqp)
		node->iwqp->cm_id = NULL;
	cm_id->rem_ref(cm_id);
}

/* The QP and the cm_id go their own way. */
void cm_node_untie(struct irdma_cm_node *node)
{
	struct irdma_qp *qp = node->iwqp;

	cm_node_release_id(node);
	node->iwqp = NULL;
	if (!qp)
		return;
	qp->cm_node = NULL;
	rnic_qp_put(qp);
}

/*
 * The end of a node's life: no timer, no filter, no place in any table; whoever still holds a reference sees CLOSED.
 */
void cm_node_end(struct irdma_cm_node *node)
{
	if (node->state == IRDMA_CM_STATE_CLOSED)
		return;
	irdma_free_retrans_entry(node);
	node->close_at_ns = node->stage_at_ns = node->ack_at_ns = 0;
	wheel_del(&node->cm_core->wheel, &node->timer);
	cm_node_set_state(node, IRDMA_CM_STATE_CLOSED);
	cm_node_unhash(node);
	leave_refused(node);
	cm_node_leave_listener(node);
	irdma_rem_ref_cm_node(node);
}

static void node_release_filter(struct irdma_cm_node *node)
{
	if (node->quad)
		rnic_filter_del(node->iwdev, node->quad);
	node->quad = NULL;
	if (node->apbvt_set)
		rnic_apbvt_del(node->iwdev, node->ipv4, node->loc_addr, node->loc_port);
	node->apbvt_set = false;
}

/**
 * irdma_rem_ref_cm_node - drop a reference to a node; the last one frees it
 * @cm_node: node
 *
 * The last one removes the node from the table and frees all it holds: kept frame, address handle, filter, port
 * reservation, buffers, its ties to listener, QP and cm_id.
 */
void irdma_rem_ref_cm_node(struct irdma_cm_node *cm_node)
{
	struct irdma_cm_core *core = cm_node->cm_core;

	assert(cm_node->refcount);
	if (--cm_node->refcount)
		return;
	irdma_free_retrans_entry(cm_node);
	wheel_del(&core->wheel, &cm_node->timer);
	cm_node_unhash(cm_node);
	cm_node_leave_listener(cm_node);
	cm_node_untie(cm_node);
	irdma_cm_free_ah(cm_node);
	node_release_filter(cm_node);
	LIST_REMOVE(cm_node, all_entry);
	free(cm_node->pdata);
	free(cm_node->tx_pdata);
	free(cm_node->rx_buf);
	free(cm_node->lsmm);
	if (cm_node->spare)
		pool_put(&core->event_pool, cm_node->spare);
	core->stats.nodes_destroyed++;
	core->stats.nodes_now--;
	pool_put(&core->node_pool, cm_node);
}
