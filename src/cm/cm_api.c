// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * What the upper layer calls: connect, accept, reject, disconnect, abandon. (Listening: cm_listen.c.)
 */
#include <stdlib.h>
#include <string.h>
#include "cm/cm_internal.h"

/* ---- connect ---- */

static bool is_multicast(bool ipv4, const u32 *addr)
{
	return ipv4 ? addr[0] >> 28 >= 0xE : addr[0] >> 24 == 0xFF; /* broadcast included */
}

static int connect_info(struct iw_cm_id *cm_id, struct irdma_cm_info *info)
{
	bool rem_ipv4;

	*info = (struct irdma_cm_info){ .cm_id = cm_id, .vlan_id = PKT_VLAN_NONE, .user_pri = cm_id->prio };
	if (!cm_addr_from_sockaddr(&cm_id->m_local_addr, &info->ipv4, info->loc_addr, &info->loc_port) ||
	    !cm_addr_from_sockaddr(&cm_id->m_remote_addr, &rem_ipv4, info->rem_addr, &info->rem_port))
		return -EAFNOSUPPORT;
	if (info->ipv4 != rem_ipv4)
		return -EAFNOSUPPORT;
	if (!info->loc_port || !info->rem_port || pkt_addr_is_any(info->loc_addr) || pkt_addr_is_any(info->rem_addr) ||
	    is_multicast(info->ipv4, info->rem_addr))
		return -EINVAL;
	if (cm_id->mpa.rev != MPA_REV_1 && cm_id->mpa.rev != MPA_REV_2)
		return -EINVAL;
	info->tos = cm_id->tos_set ? cm_id->tos : 0;
	if (info->ipv4)
		info->vlan_id = irdma_get_vlan_ipv4(info->loc_addr);
	else
		irdma_get_vlan_mac_ipv6(info->loc_addr, &info->vlan_id, NULL);
	return 0;
}

/* Nothing was sent yet: look again in a moment, as often as a SYN would be retransmitted. */
static int syn_wait(struct irdma_cm_node *node)
{
	struct irdma_timer_entry *e = &node->send_entry;

	if (!e->timetosend_ns) {
		e->rto_ms = 5; /* resolution usually takes a round trip */
		e->retranscount = CM_SYN_RETRIES + 8;
	}
	if (!e->retranscount) {
		irdma_retrans_expired(node);
		return -EHOSTUNREACH;
	}
	e->retranscount--;
	e->rto_ms *= 2;
	e->timetosend_ns = cm_now(node->cm_core) + e->rto_ms * NSEC_PER_MSEC;
	cm_node_arm(node);
	return 0;
}

static int syn_impossible(struct irdma_cm_node *node, enum cm_cause cause, int err)
{
	cm_node_set_cause(node, cause, err);
	irdma_active_open_err(node, false);
	return err;
}

/*
 * Resolve what is missing, then the SYN. Called again by the timer while the link address or a buffer is missing. On error the node
 * has failed, and its ABORTED event is posted.
 */
int cm_syn_attempt(struct irdma_cm_node *node)
{
	int err = node->neigh_pending ? cm_node_resolve(node) : 0;

	if (err == -EAGAIN)
		return syn_wait(node);
	if (err)
		return syn_impossible(node, CM_CAUSE_UNREACHABLE, err);
	node->neigh_pending = false;
	err = irdma_cm_create_ah(node, false);
	if (err)
		return syn_impossible(node, CM_CAUSE_NO_RESOURCES, err);
	return irdma_send_syn(node, 0) ? syn_wait(node) : 0;
}

static int add_quad_filter(struct irdma_cm_node *node)
{
	struct port_filter_attr attr = { .ipv4 = node->ipv4, .quad = true, .cookie = node };

	cm_node_tuple(node, &attr.tuple);
	return rnic_filter_add(node->iwdev, &attr, &node->quad);
}

static int reserve_port(struct irdma_cm_node *node)
{
	u16 port = node->loc_port;
	int err = rnic_apbvt_add(node->iwdev, node->ipv4, node->loc_addr, &port, true);

	node->apbvt_set = !err;
	return err;
}

/* Port reservation, address handle, filter: the node frees what it has when it goes. */
static int node_equip(struct irdma_cm_node *node)
{
	int err = reserve_port(node);

	if (!err && !node->neigh_pending)
		err = irdma_cm_create_ah(node, false);
	return err ? err : add_quad_filter(node);
}

static void tie(struct irdma_cm_node *node, struct iw_cm_id *cm_id, struct irdma_qp *qp)
{
	cm_id->add_ref(cm_id);
	cm_id->provider_data = node;
	node->cm_id = cm_id;
	rnic_qp_hold(qp);
	node->iwqp = qp;
	qp->cm_node = node;
	qp->cm_id = cm_id;
}

static int connect_node(struct iw_cm_id *cm_id, struct irdma_qp *qp, struct iw_cm_conn_param *param, struct irdma_cm_info *info)
{
	struct irdma_device *iwdev = cm_id->device;
	struct irdma_cm_core *core = iwdev->cm_core;
	struct irdma_cm_node *node;
	int err = irdma_create_cm_node(core, iwdev, param, info, &node);

	if (err)
		return err;
	err = node_equip(node);
	if (err) {
		cm_node_end(node);
		return err;
	}
	tie(node, cm_id, qp);
	core->stats.connects++;
	cm_node_set_state(node, IRDMA_CM_STATE_SYN_SENT);
	if (node->mpa.syn_timeout_ms)
		cm_node_stage(node, node->mpa.syn_timeout_ms);
	cm_syn_attempt(node); /* what fails from here on is told by CONNECT_REPLY */
	return 0;
}

/**
 * irdma_connect - connect a cm_id to its remote address
 * @cm_id: device, mapped addresses with both ports, MPA options
 * @param: QP number, private data, IRD, ORD
 *
 * The outcome is told by CONNECT_REPLY; it may come before this returns. On error nothing is left behind and no event comes.
 *
 * Return: 0; -EINVAL (unknown QP or one in use, addresses that are none, private data that does not fit), -EAFNOSUPPORT, -EADDRINUSE,
 * -EHOSTUNREACH, -EMFILE, -ENOMEM and what else the port says.
 */
int irdma_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	struct irdma_device *iwdev = cm_id->device;
	struct irdma_cm_core *core = iwdev->cm_core;
	struct net *prev = net_enter(iwdev->net);
	struct irdma_qp *qp = rnic_qp_find(iwdev, param->qpn);
	struct irdma_cm_info info;
	int err = qp ? connect_info(cm_id, &info) : -EINVAL;

	if (!err) {
		cm_lock(core);
		err = qp->cm_node || rnic_qp_is_going(qp) ? -EINVAL : connect_node(cm_id, qp, param, &info);
		cm_unlock(core);
	}
	if (qp)
		rnic_qp_put(qp);
	net_enter(prev);
	return err;
}

/* ---- accept ---- */

static int build_reply(struct irdma_cm_node *node, const struct iw_cm_conn_param *param)
{
	u32 room = MPA_MAX_PRIV_DATA - (node->peer_v2_data ? sizeof(struct mpa_v2_data) : 0);
	struct irdma_kmem_info mem;
	int len;

	if (param->private_data_len > room)
		return -EINVAL;
	node->lsmm = malloc(MPA_START_HDR_MAX + param->private_data_len);
	if (!node->lsmm)
		return -ENOMEM;
	mem = (struct irdma_kmem_info){ node->lsmm, 0 };
	node->tx_pdata_len = param->private_data_len;
	len = irdma_cm_build_mpa_frame(node, &mem, MPA_KEY_REPLY);
	if (param->private_data_len)
		memcpy(node->lsmm + len, param->private_data, param->private_data_len);
	node->lsmm_len = (u32)len + param->private_data_len;
	return 0;
}

/* The request may have been adopted by this very cm_id already, or still be the listener's. */
static void retie(struct irdma_cm_node *node, struct iw_cm_id *cm_id, struct irdma_qp *qp)
{
	struct iw_cm_id *old = node->cm_id;

	tie(node, cm_id, qp);
	if (old)
		old->rem_ref(old);
}

static int accept_node(struct irdma_cm_node *node, struct iw_cm_id *cm_id, struct irdma_qp *qp, struct iw_cm_conn_param *param)
{
	int err;

	if (!node->spare) /* inside the upcall of a request that took it: ESTABLISHED must not fail for lack of memory */
		node->spare = pool_get(&node->cm_core->event_pool);
	if (!node->spare)
		return -ENOMEM;
	irdma_record_ird_ord(node, param->ird, param->ord);
	cm_cap_ird_ord(node);
	err = build_reply(node, param);
	if (err)
		return err;
	cm_node_set_state(node, IRDMA_CM_STATE_ACCEPTING);
	retie(node, cm_id, qp);
	err = irdma_cm_init_tsa_conn(qp, node);
	if (err)
		return err;
	cm_node_leave_listener(node);
	node->cm_core->stats.accepts++;
	node->cm_core->stats.established_passive++;
	irdma_create_event(node, IRDMA_CM_EVENT_ESTABLISHED);
	return 0;
}

static int try_accept(struct irdma_cm_node *node, struct iw_cm_id *cm_id, struct irdma_qp *qp, struct iw_cm_conn_param *param)
{
	if (node->state == IRDMA_CM_STATE_LISTENER_DESTROYED)
		return -EINVAL;
	if (node->state != IRDMA_CM_STATE_MPAREQ_RCVD)
		return -ECONNRESET;
	if (!qp || qp->cm_node || rnic_qp_is_going(qp))
		return -EINVAL;
	return accept_node(node, cm_id, qp, param);
}

/* The pending request behind a cm_id, and the reference that the upper layer holds on it until now. */
static struct irdma_cm_node *take_request(struct iw_cm_id *cm_id)
{
	struct irdma_cm_node *node = cm_id->provider_data;

	if (!node || !node->request_up)
		return NULL;
	node->request_up = false;
	cm_id->provider_data = NULL; /* inside the upcall it is not the node's cm_id yet: nobody else would */
	return node;
}

static void request_failed(struct irdma_cm_node *node)
{
	switch (node->state) {
	case IRDMA_CM_STATE_MPAREQ_RCVD:
	case IRDMA_CM_STATE_ACCEPTING:
		irdma_passive_open_err(node, true);
		break;
	case IRDMA_CM_STATE_LISTENER_DESTROYED:
		cm_node_end(node);
		break;
	default:
		break;
	}
	cm_node_untie(node);
}

/**
 * irdma_accept - accept a connection request: the MPA reply, and the stream to the NIC
 * @cm_id: the new cm_id: its provider_data is the node from CONNECT_REQUEST
 * @param: QP number, private data (at most 512 bytes, 508 for a revision 2 peer), IRD, ORD
 *
 * Builds the MPA reply and gives the QP the stream with it as its first bytes; the QP is in RTS, ESTABLISHED goes up. The node is released on
 * every error, and the peer reset.
 *
 * Return: 0; -ECONNRESET if the peer reset meanwhile; -EINVAL for an unknown QP or one in use, a destroyed listener, private data that does
 * not fit, or no request; -ENOMEM.
 */
int irdma_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	struct irdma_device *iwdev = cm_id->device;
	struct irdma_cm_core *core = iwdev->cm_core;
	struct net *prev = net_enter(iwdev->net);
	struct irdma_qp *qp = rnic_qp_find(iwdev, param->qpn);
	struct irdma_cm_node *node;
	int err = -EINVAL;

	cm_lock(core);
	node = take_request(cm_id);
	if (node) {
		err = try_accept(node, cm_id, qp, param);
		if (err)
			request_failed(node);
		irdma_rem_ref_cm_node(node);
	}
	cm_unlock(core);
	if (qp)
		rnic_qp_put(qp);
	net_enter(prev);
	return err;
}

/* ---- reject ---- */

/**
 * irdma_cm_reject - refuse a pending request with private data, by its node
 * @cm_node: node; core lock held
 * @pdata: private data, or NULL
 * @plen: its length in bytes
 *
 * The reply with R and FIN goes out, the node closes by itself. Without a buffer for it, or with the listener gone, the peer is reset instead.
 *
 * Return: 0; -ECONNRESET if the peer reset meanwhile; -ENOMEM.
 */
int irdma_cm_reject(struct irdma_cm_node *cm_node, const void *pdata, u8 plen)
{
	int err;

	if (cm_node->state != IRDMA_CM_STATE_MPAREQ_RCVD) {
		request_failed(cm_node);
		return -ECONNRESET;
	}
	cm_node->cm_core->stats.rejects++;
	cm_node_set_cause(cm_node, CM_CAUSE_LOCAL, -ECONNREFUSED);
	err = irdma_send_mpa_reject(cm_node, pdata, plen);
	if (err)
		irdma_send_reset(cm_node);
	else
		cm_node_closing(cm_node);
	cm_node_untie(cm_node);
	return err;
}

/**
 * irdma_reject - refuse a connection request with private data
 * @cm_id: the new cm_id: its provider_data is the node from CONNECT_REQUEST
 * @pdata: private data, or NULL
 * @pdata_len: its length in bytes
 *
 * Sends the MPA reply with R and the private data, then FIN; the connection closes by itself. No event comes for @cm_id afterwards.
 *
 * Return: 0; -EINVAL if there is no request; -ECONNRESET if the peer reset meanwhile; -ENOMEM. The node is released in any case.
 */
int irdma_reject(struct iw_cm_id *cm_id, const void *pdata, u8 pdata_len)
{
	struct irdma_cm_core *core = cm_id->device->cm_core;
	struct net *prev = net_enter(cm_id->device->net);
	struct irdma_cm_node *node;
	int err = -EINVAL;

	cm_lock(core);
	node = take_request(cm_id);
	if (node) {
		err = irdma_cm_reject(node, pdata, pdata_len);
		irdma_rem_ref_cm_node(node);
	}
	cm_unlock(core);
	net_enter(prev);
	return err;
}

/* ---- disconnect, abandon ---- */

/**
 * cm_disconnect - end an established connection
 * @cm_id: of a connection, not of a listener
 * @abort: RST instead of FIN
 *
 * In order: FIN after what is queued; a peer that does not follow within CM_CLOSE_TIMEOUT_MS is reset. DISCONNECT and CLOSE
 * come as ever.
 *
 * Return: 0; -ENOTCONN.
 */
int cm_disconnect(struct iw_cm_id *cm_id, bool abort)
{
	struct irdma_cm_core *core = cm_id->device->cm_core;
	struct irdma_cm_node *node;
	int err = -ENOTCONN;

	cm_lock(core);
	node = cm_id->provider_data;
	if (node && node->accelerated && node->iwqp && node->state == IRDMA_CM_STATE_OFFLOADED)
		err = rnic_qp_modify(node->iwqp, abort ? RNIC_QP_ERROR : RNIC_QP_CLOSING);
	if (!err && !abort)
		irdma_schedule_cm_timer(node, NULL, IRDMA_TIMER_TYPE_CLOSE, 0, 0);
	cm_unlock(core);
	return err ? -ENOTCONN : 0;
}

static void abandon(struct irdma_cm_node *node)
{
	bool pending = node->request_up;

	node->abandoned = true;
	node->request_up = false;
	cm_node_set_cause(node, CM_CAUSE_LOCAL, -ECONNABORTED);
	if (node->accelerated && node->iwqp) {
		/* Either way the disconnect work ends QP and node. A reset would take away what the kernel or the wire still has. */
		if (rnic_qp_fin_is_out(node->iwqp))
			cm_disconn_queue(node->iwqp);
		else
			rnic_qp_modify(node->iwqp, RNIC_QP_ERROR);
		cm_node_release_id(node);
	} else {
		irdma_cm_close(node);
		cm_node_untie(node);
	}
	if (pending)
		irdma_rem_ref_cm_node(node);
}

/**
 * cm_abandon - the upper layer gives up a connection, in whatever state
 * @cm_id: of a connection, not of a listener
 *
 * What is being set up is reset, an established stream aborted unless our FIN is out already, a pending request reset. No event for @cm_id comes after this returns; an upcall that runs for
 * it in another thread is waited for, so no lock that the upcall takes may be held.
 */
void cm_abandon(struct iw_cm_id *cm_id)
{
	struct irdma_cm_core *core = cm_id->device->cm_core;
	struct net *prev = net_enter(cm_id->device->net);
	struct irdma_cm_node *node;

	cm_lock(core);
	node = cm_id->provider_data;
	if (node)
		cm_node_hold(node);
	cm_upcall_wait(core, cm_id, node);
	if (node && cm_id->provider_data == node)
		abandon(node);
	if (node && cm_id->provider_data == node)
		cm_id->provider_data = NULL; /* inside the upcall of its request it is not the node's cm_id yet */
	if (node)
		irdma_rem_ref_cm_node(node);
	cm_unlock(core);
	net_enter(prev);
}

/* The peer closed after a revision 2 request: perhaps it speaks only revision 1 (RFC 6581 10). One new connection, never for a refused port. */
int cm_node_retry_v1(struct irdma_cm_node *node)
{
	u32 last = node->tcp_cntxt.loc_seq_num;

	if (node->mpa_rev != MPA_REV_2 || !node->mpa.fallback_v1 || node->fell_back || node->rx_len || node->abandoned)
		return -EINVAL;
	node->cm_core->stats.mpa_fallbacks++;
	irdma_free_retrans_entry(node);
	if (node->peer_fin)
		cm_send_rst(node);
	irdma_cm_free_ah(node);
	cm_node_init_tcp(node);
	node->tcp_cntxt.iss = last + 0x10000; /* above the old connection's, which the peer may remember */
	node->tcp_cntxt.loc_seq_num = node->tcp_cntxt.rem_ack_num = node->tcp_cntxt.iss;
	node->mpa_rev = MPA_REV_1;
	node->fell_back = true;
	node->peer_fin = false;
	node->p2p = false;
	node->rtr = node->rtr_offered = 0;
	cm_node_stage(node, node->mpa.syn_timeout_ms);
	cm_node_set_state(node, IRDMA_CM_STATE_SYN_SENT);
	cm_syn_attempt(node);
	return 0;
}
