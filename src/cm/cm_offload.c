// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Handing a connection to the NIC.
 */
#include <string.h>
#include <stdlib.h>
#include "cm/cm_internal.h"

/**
 * irdma_init_tcp_ctx - write the TCP state that the NIC continues from
 * @cm_node: node with the handshake done
 * @tcp_info: filled in: sequence numbers, windows and scales, MSS, ttl, tos, vlan, addresses, and the stream bytes that came after the MPA frame
 * @iwqp: QP that takes the connection over
 *
 * The bytes at rx_data are the node's; whoever takes over copies them.
 */
void irdma_init_tcp_ctx(struct irdma_cm_node *cm_node, struct tcp_info_ho *tcp_info, struct irdma_qp *iwqp)
{
	const struct irdma_cm_tcp_context *tcp = &cm_node->tcp_cntxt;

	memset(tcp_info, 0, sizeof(*tcp_info));
	cm_node_tuple(cm_node, &tcp_info->tuple);
	memcpy(tcp_info->loc_mac, cm_node->loc_mac, sizeof(tcp_info->loc_mac));
	memcpy(tcp_info->rem_mac, cm_node->rem_mac, sizeof(tcp_info->rem_mac));
	tcp_info->ttl = 64;
	tcp_info->tos = cm_node->tos;
	tcp_info->prio = cm_node->user_pri;
	tcp_info->snd_una = tcp->rem_ack_num;
	tcp_info->snd_nxt = tcp_info->snd_max = tcp->loc_seq_num;
	tcp_info->snd_wnd = tcp->snd_wnd;
	tcp_info->max_snd_wnd = tcp->max_snd_wnd;
	tcp_info->rcv_nxt = tcp->rcv_nxt;
	tcp_info->rcv_wnd = cm_rcv_room(cm_node);
	tcp_info->snd_wscale = tcp->snd_wscale;
	tcp_info->rcv_wscale = tcp->wscale_ok ? tcp->rcv_wscale : 0;
	tcp_info->mss = tcp->mss;
	tcp_info->peer_fin = cm_node->peer_fin;
	tcp_info->rx_data = cm_node->rx_buf;
	tcp_info->rx_len = cm_node->rx_len;
	log_debug("cm", "QP %u takes port %u over", iwqp->qp_num, cm_node->loc_port);
}

static void iwarp_info(const struct irdma_cm_node *node, struct rnic_iwarp_info *iw)
{
	*iw = (struct rnic_iwarp_info){
		.ird = node->ird_size,
		.ord = node->ord_size,
		.crc = node->crc,
		.snd_markers = node->snd_markers,
		.rcv_markers = node->rcv_markers,
		.initiator = node->active,
		.rtr = node->rtr,
		.rtr_timeout_ms = node->mpa.mpa_timeout_ms ? node->mpa.mpa_timeout_ms : CM_MPA_TIMEOUT_MS,
		.lsmm = node->lsmm,
		.lsmm_len = node->lsmm_len,
	};
}

static void release_rx(struct irdma_cm_node *node)
{
	free(node->rx_buf);
	node->rx_buf = NULL;
	node->rx_len = node->rx_size = 0;
}

/**
 * irdma_cm_init_tsa_conn - give a connection to the NIC: iWARP parameters, TCP state, stream
 * @iwqp: QP, idle
 * @cm_node: node: active in OFFLOADED, passive in ACCEPTING with its reply built
 *
 * iWARP parameters (IRD, ORD, CRC, markers, which begin right behind the start-up frame, RTR) and the TCP state go to the QP, whose first bytes
 * are the MPA reply. From here on segments of the 4-tuple are the NIC's: the node leaves the table, and is OFFLOADED.
 *
 * Return: 0; -ECONNRESET if the stream died meanwhile, -EINVAL for a QP that is not idle, -ENOMEM.
 */
int irdma_cm_init_tsa_conn(struct irdma_qp *iwqp, struct irdma_cm_node *cm_node)
{
	struct rnic_iwarp_info iw;
	struct tcp_info_ho tcp;
	int err;

	irdma_init_tcp_ctx(cm_node, &tcp, iwqp);
	iwarp_info(cm_node, &iw);
	err = rnic_qp_offload(iwqp, &cm_node->ah, &tcp, &iw);
	if (err)
		return err;
	irdma_free_retrans_entry(cm_node);
	cm_node_set_state(cm_node, IRDMA_CM_STATE_OFFLOADED);
	cm_node->accelerated = true;
	cm_node_unhash(cm_node);
	if (cm_node->quad)
		rnic_filter_del(cm_node->iwdev, cm_node->quad);
	cm_node->quad = NULL;
	release_rx(cm_node);
	return 0;
}

/**
 * irdma_free_lsmm_rsrc - free the buffer of the MPA reply, which is on the wire
 * @iwqp: QP that sent it as its first bytes; loop thread, no lock held
 *
 * Frees the buffer; called again, or after the node went its way, it does nothing.
 */
void irdma_free_lsmm_rsrc(struct irdma_qp *iwqp)
{
	struct irdma_cm_core *core = iwqp->iwdev->cm_core;
	struct irdma_cm_node *node;

	if (!core)
		return;
	cm_lock(core);
	node = iwqp->cm_node;
	if (node) {
		free(node->lsmm);
		node->lsmm = NULL;
		node->lsmm_len = 0;
	}
	cm_unlock(core);
}

/* TIME_WAIT lasts a minute and needs a few bytes: the port keeps it, the node need not. */
void cm_node_time_wait(struct irdma_cm_node *node)
{
	const struct port_ops *ops = node->iwdev->port->ops;
	static struct irdma_qp nobody;
	struct tcp_info_ho tcp;

	cm_node_set_state(node, IRDMA_CM_STATE_TIME_WAIT);
	node->close_at_ns = 0;
	irdma_free_retrans_entry(node);
	irdma_init_tcp_ctx(node, &tcp, &nobody);
	if ((ops->flags & PORT_TIME_WAIT) || !ops->time_wait(node->iwdev->port, &tcp))
		cm_node_end(node);
	else
		irdma_schedule_cm_timer(node, NULL, IRDMA_TIMER_TYPE_CLOSE, 0, 0);
}
