// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The end of connections: those that the NIC has, and those still being set up.
 */
#include <string.h>
#include "cm/cm_internal.h"

/* irdma_cm_disconn() with the lock held. */
void cm_disconn_queue(struct irdma_qp *iwqp)
{
	struct irdma_cm_node *node = iwqp->cm_node;

	if (!node || iwqp->disconn)
		return;
	iwqp->disconn = &node->disconn_work;
	node->disconn_work.iwqp = iwqp;
	rnic_qp_hold(iwqp);
	cm_node_hold(node);
	workq_queue(&node->cm_core->event_wq, &node->disconn_work.work);
}

/**
 * irdma_cm_disconn - queue the disconnect work, once, as the QP's stream has ended
 * @iwqp: QP; it and its node are held until the work is done. No lock held
 *
 * Called by the NIC when a stream ended, was reset or failed. The work itself runs from the ordered event queue, behind the news that the connection
 * is there.
 */
void irdma_cm_disconn(struct irdma_qp *iwqp)
{
	struct irdma_cm_core *core = iwqp->iwdev->cm_core;

	if (!core)
		return;
	cm_lock(core);
	cm_disconn_queue(iwqp);
	cm_unlock(core);
}

/**
 * irdma_disconnect_worker - run the disconnect work that irdma_cm_disconn() queued
 * @work: of the node; loop thread, no lock held
 *
 * Calls irdma_cm_disconn_true(), then drops the references on QP and node that irdma_cm_disconn() took.
 */
void irdma_disconnect_worker(struct work_struct *work)
{
	struct irdma_cm_node *node = container_of(work, struct irdma_cm_node, disconn_work.work);
	struct irdma_cm_core *core = node->cm_core;
	struct irdma_qp *qp = node->disconn_work.iwqp;
	struct net *prev = net_enter(core->iwdev->net);

	irdma_cm_disconn_true(qp);
	rnic_qp_put(qp);
	cm_lock(core);
	irdma_rem_ref_cm_node(node);
	cm_unlock(core);
	net_enter(prev);
}

/* What the upper layer is told about how the stream ended. */
static int disconnect_status(enum rnic_ae ae)
{
	switch (ae) {
	case RNIC_AE_NONE:
	case RNIC_AE_LLP_FIN_RECEIVED:
	case RNIC_AE_LLP_CLOSE_COMPLETE:
		return 0;
	case RNIC_AE_LLP_TOO_MANY_RETRIES:
	case RNIC_AE_RTR_TIMEOUT:
		return -ETIMEDOUT;
	case RNIC_AE_TERMINATE_RECEIVED:
	case RNIC_AE_TERMINATE_SENT:
		return -EPROTO;
	case RNIC_AE_QP_ERROR:
		return -ECONNABORTED;
	default:
		return -ECONNRESET;
	}
}

/**
 * irdma_qp_disconnect - let go of a QP's stream, and close its node
 * @iwqp: QP whose stream ended. No lock held
 *
 * What is left to say in order (FIN, TIME_WAIT) the port says by itself.
 */
void irdma_qp_disconnect(struct irdma_qp *iwqp)
{
	struct irdma_cm_core *core = iwqp->iwdev->cm_core;

	rnic_qp_release_stream(iwqp);
	cm_lock(core);
	if (iwqp->cm_node)
		irdma_cm_close(iwqp->cm_node);
	cm_unlock(core);
}

/* The node that is to be disconnected, with a reference; NULL: none, or not yet: then the work is queued again, behind the news. */
static struct irdma_cm_node *disconn_begin(struct irdma_qp *iwqp, struct iw_cm_id **cm_id)
{
	struct irdma_cm_core *core = iwqp->iwdev->cm_core;
	struct irdma_cm_node *node;

	cm_lock(core);
	iwqp->disconn = NULL;
	node = iwqp->cm_node;
	if (node && !node->abandoned && !node->established_up) {
		/* Active and not handed over: the CONNECTED event finds the QP as it is, and says so. */
		if (node->accelerated)
			cm_disconn_queue(iwqp);
		node = NULL;
	}
	if (node) {
		cm_node_hold(node);
		*cm_id = node->abandoned ? NULL : node->cm_id;
		if (*cm_id)
			(*cm_id)->add_ref(*cm_id);
	}
	cm_unlock(core);
	return node;
}

static void disconn_upcalls(struct irdma_cm_node *node, struct iw_cm_id *cm_id, int status)
{
	irdma_send_cm_event(node, cm_id, IW_CM_EVENT_DISCONNECT, status);
	irdma_send_cm_event(node, cm_id, IW_CM_EVENT_CLOSE, 0);
	cm_id->rem_ref(cm_id);
}

/**
 * irdma_cm_disconn_true - bring DISCONNECT and CLOSE up for a QP whose stream has ended
 * @iwqp: QP, held by the caller. No lock held
 *
 * The QP's last asynchronous event decides the status of DISCONNECT: 0 for an orderly end, -ECONNRESET for a reset; CLOSE follows. The
 * stream is released and the node closed before the upcalls, so that the upper layer may at once use the address again.
 */
void irdma_cm_disconn_true(struct irdma_qp *iwqp)
{
	struct irdma_cm_core *core = iwqp->iwdev->cm_core;
	struct iw_cm_id *cm_id = NULL;
	struct irdma_cm_node *node = disconn_begin(iwqp, &cm_id);
	enum rnic_ae ae;

	if (!node)
		return;
	mutex_lock(&iwqp->lock);
	ae = iwqp->last_ae;
	mutex_unlock(&iwqp->lock);
	log_debug("cm", "QP %u disconnected: %s", iwqp->qp_num, rnic_ae_str(ae));
	irdma_qp_disconnect(iwqp);
	if (cm_id)
		disconn_upcalls(node, cm_id, disconnect_status(ae));
	cm_lock(core);
	cm_node_untie(node);
	irdma_rem_ref_cm_node(node);
	cm_unlock(core);
}

static bool is_closing(enum irdma_cm_node_state s)
{
	return s >= IRDMA_CM_STATE_FIN_WAIT1 && s <= IRDMA_CM_STATE_CLOSING;
}

/* The peer's FIN is in, ours goes out. */
static int close_last(struct irdma_cm_node *node)
{
	int err;

	cm_node_set_state(node, IRDMA_CM_STATE_LAST_ACK);
	err = irdma_send_fin(node);
	if (err)
		irdma_send_reset(node);
	return err;
}

/**
 * irdma_cm_close - close a node in any state
 * @cm_node: node, referenced by the caller; its life's reference goes when it ends
 *
 * What is being set up is reset; after the peer's FIN we send ours; what is closing already goes on, except when the CM itself ends; everything else
 * just ends.
 *
 * Return: 0, or why an RST or FIN could not be sent: the node has ended then.
 */
int irdma_cm_close(struct irdma_cm_node *cm_node)
{
	if (is_closing(cm_node->state) && !cm_node->cm_core->closing) {
		if (cm_node->state != IRDMA_CM_STATE_CLOSE_WAIT)
			return 0;
		return close_last(cm_node);
	}
	switch (cm_node->state) {
	case IRDMA_CM_STATE_SYN_RCVD:
	case IRDMA_CM_STATE_SYN_SENT:
	case IRDMA_CM_STATE_ONE_SIDE_ESTABLISHED:
	case IRDMA_CM_STATE_ESTABLISHED:
	case IRDMA_CM_STATE_ACCEPTING:
	case IRDMA_CM_STATE_MPAREQ_SENT:
	case IRDMA_CM_STATE_MPAREQ_RCVD:
		cm_node_set_cause(cm_node, CM_CAUSE_LOCAL, -ECONNABORTED);
		return irdma_send_reset(cm_node);
	case IRDMA_CM_STATE_OFFLOADED:
		if (!cm_node->accelerated)
			return irdma_send_reset(cm_node);
		break;
	default:
		break;
	}
	cm_node_end(cm_node);
	return 0;
}

/**
 * irdma_teardown_list_prep - collect the offloaded connections of an address, or all
 * @cm_core: core
 * @teardown_list: gets them, each with a reference that the caller drops
 * @ipaddr: local address, four words; not looked at with @disconnect_all
 * @nfo: VLAN and family of the address; not looked at with @disconnect_all
 * @disconnect_all: every connection of the device
 *
 * The nodes are collected first because tearing one down changes the list that is walked. This is the one walk over all connections of a device: an address
 * that goes away is rare.
 */
void irdma_teardown_list_prep(struct irdma_cm_core *cm_core, struct irdma_node_list *teardown_list, u32 *ipaddr,
			      struct irdma_cm_info *nfo, bool disconnect_all)
{
	struct irdma_cm_node *node;

	LIST_FOREACH(node, &cm_core->nodes, all_entry) {
		if (!disconnect_all && (node->vlan_id != nfo->vlan_id || node->ipv4 != nfo->ipv4 ||
					!pkt_addr_eq(node->loc_addr, ipaddr)))
			continue;
		cm_node_hold(node);
		TAILQ_INSERT_TAIL(teardown_list, node, teardown_entry);
	}
}

static void teardown(struct irdma_cm_node *node)
{
	if (node->state == IRDMA_CM_STATE_CLOSED || node->state == IRDMA_CM_STATE_LISTENER_DESTROYED)
		return;
	cm_node_set_cause(node, CM_CAUSE_LOCAL, -ENETDOWN);
	if (node->accelerated && node->iwqp) {
		rnic_qp_modify(node->iwqp, RNIC_QP_ERROR); /* which disconnects it from the loop */
		if (node->cm_core->closing)
			cm_disconn_queue(node->iwqp); /* which does not run any more */
	} else if (is_closing(node->state)) {
		cm_node_end(node);
	} else if (node->active) {
		irdma_active_open_err(node, true);
	} else {
		cm_reset_hanging(node);
	}
}

/**
 * irdma_cm_teardown_connections - disconnect the connections of an address, or all, as it or the interface is gone
 * @iwdev: device
 * @ipaddr: the address, four words
 * @nfo: its VLAN and family
 * @disconnect_all: every connection of the device
 *
 * QPs go to error and are disconnected; what is being set up is reset and reported. No lock held.
 */
void irdma_cm_teardown_connections(struct irdma_device *iwdev, u32 *ipaddr, struct irdma_cm_info *nfo, bool disconnect_all)
{
	struct irdma_node_list list = TAILQ_HEAD_INITIALIZER(list);
	struct irdma_cm_core *core = iwdev->cm_core;
	struct irdma_cm_node *node;

	cm_lock(core);
	irdma_teardown_list_prep(core, &list, ipaddr, nfo, disconnect_all);
	while ((node = TAILQ_FIRST(&list))) {
		TAILQ_REMOVE(&list, node, teardown_entry);
		teardown(node);
		irdma_rem_ref_cm_node(node);
	}
	cm_unlock(core);
}
