// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Upcalls and the ordered event queue.
 *
 * What happens under the lock is posted as an event; the loop runs the events in order and makes the upcalls with no lock held. That
 * is the whole of the ordering promise: CONNECT_REPLY or ESTABLISHED before DISCONNECT before CLOSE, CLOSE once and last. An
 * upcall checks, under the lock, that the upper layer has not given the connection up (node->abandoned), and whoever
 * gives one up waits for the upcall that is running for it (cm_upcall_wait()).
 */
#include <string.h>
#include "cm/cm_internal.h"

void cm_upcall_wait(struct irdma_cm_core *core, struct iw_cm_id *cm_id, struct irdma_cm_node *node)
{
	while ((core->upcall_id == cm_id || (node && core->upcall_node == node)) &&
	       core->upcall_id && !pthread_equal(core->upcall_thread, pthread_self()))
		cond_wait(&core->upcall_done, &core->lock);
}

/* A request that was taken is the new cm_id's from here on; irdma_accept() may have been quicker. */
static void adopt_child(struct irdma_cm_node *node, struct iw_cm_id *listen_id, struct iw_cm_id *child)
{
	if (!child || node->abandoned || node->cm_id != listen_id)
		return;
	child->add_ref(child);
	node->cm_id = child;
	listen_id->rem_ref(listen_id);
}

static void upcall_end(struct irdma_cm_node *node, struct iw_cm_id *cm_id, struct iw_cm_id *child)
{
	struct irdma_cm_core *core = node->cm_core;

	cm_lock(core);
	adopt_child(node, cm_id, child);
	core->upcall_id = NULL;
	core->upcall_node = NULL;
	cond_broadcast(&core->upcall_done);
	cm_unlock(core);
}

static void fill_request(struct irdma_cm_node *node, struct iw_cm_event *event)
{
	if (node->ipv4)
		irdma_fill_sockaddr4(node, event);
	else
		irdma_fill_sockaddr6(node, event);
	event->provider_data = node;
	event->private_data = node->pdata;
	event->private_data_len = node->pdata_len;
	event->ird = (u8)min((u32)node->ird_size, 255u);
	event->ord = (u8)min((u32)node->ord_size, 255u);
}

static void fill_event(struct irdma_cm_node *node, struct iw_cm_id *cm_id, struct iw_cm_event *event)
{
	switch (event->event) {
	case IW_CM_EVENT_CONNECT_REQUEST:
		fill_request(node, event);
		break;
	case IW_CM_EVENT_CONNECT_REPLY:
		irdma_get_cmevent_info(node, cm_id, event);
		break;
	case IW_CM_EVENT_ESTABLISHED:
		irdma_get_cmevent_info(node, cm_id, event);
		event->private_data = NULL; /* the upper layer had it with the request */
		event->private_data_len = 0;
		break;
	default:
		irdma_get_cmevent_info(NULL, cm_id, event);
	}
	cm_node_negotiated(node, &event->neg);
}

/* DISCONNECT and CLOSE come after the news that there is a connection, or a request. */
static bool too_early(const struct irdma_cm_node *node, enum iw_cm_event_type type)
{
	if (type != IW_CM_EVENT_DISCONNECT && type != IW_CM_EVENT_CLOSE)
		return false;
	return !(node->established_up || node->request_up);
}

/* Given up; or a request whose peer reset it, or whose listener was destroyed, since it was queued. */
static bool overtaken(const struct irdma_cm_node *node, enum iw_cm_event_type type)
{
	return node->abandoned || (type == IW_CM_EVENT_CONNECT_REQUEST &&
				   (node->state == IRDMA_CM_STATE_LISTENER_DESTROYED || node->state == IRDMA_CM_STATE_CLOSED));
}

/* Decided under the lock: once a request was answered or its listener destroyed, nothing about it may come any more. */
static int upcall_begin(struct irdma_cm_node *node, struct iw_cm_id *cm_id, struct iw_cm_event *event)
{
	struct irdma_cm_core *core = node->cm_core;
	int ret = 0;

	cm_lock(core);
	if (too_early(node, event->event))
		ret = -EAGAIN;
	else if (overtaken(node, event->event))
		ret = -ECANCELED;
	if (!ret) {
		core->upcall_id = cm_id;
		core->upcall_node = node;
		core->upcall_thread = pthread_self();
		fill_event(node, cm_id, event); /* not before: from here on the cm_id stays alive */
	}
	cm_unlock(core);
	return ret;
}

/**
 * irdma_send_cm_event - build one event and call the upper layer with it
 * @cm_node: node, referenced by the caller
 * @cm_id: whose event_handler is called; the caller knows that it is alive
 * @type: event
 * @status: 0 or a negative errno, passed on
 *
 * CONNECT_REQUEST carries addresses, private data, IRD, ORD and the node as provider data; if the handler takes it, the cm_id that it names
 * becomes the node's. CONNECT_REPLY is filled by irdma_get_cmevent_info(). ESTABLISHED carries IRD and ORD. No lock held; loop thread.
 *
 * Return: what the handler says; -EINVAL for another type; -EAGAIN for DISCONNECT and CLOSE while CONNECT_REPLY, ESTABLISHED or CONNECT_REQUEST
 * is still to be delivered: the caller queues itself behind it; -ECANCELED if the upper layer gave the connection up, or a request is none any more.
 */
int irdma_send_cm_event(struct irdma_cm_node *cm_node, struct iw_cm_id *cm_id, enum iw_cm_event_type type, int status)
{
	struct iw_cm_event event = { .event = type, .status = status };
	int ret;

	if (type < IW_CM_EVENT_CONNECT_REQUEST || type > IW_CM_EVENT_CLOSE)
		return -EINVAL;
	ret = upcall_begin(cm_node, cm_id, &event);
	if (ret)
		return ret;
	ret = cm_id->event_handler(cm_id, &event);
	upcall_end(cm_node, cm_id, ret ? NULL : event.child);
	return ret;
}

/**
 * irdma_create_event - make an event of a node, and post it
 * @cm_node: node
 * @type: what happened
 *
 * The event has a copy of the node's addressing. Each node keeps a spare, so that the first event cannot fail for lack of memory.
 *
 * Return: the event, which belongs to the queue; NULL if the node has no cm_id, or no memory.
 */
struct irdma_cm_event *irdma_create_event(struct irdma_cm_node *cm_node, enum irdma_cm_event_type type)
{
	struct irdma_cm_event *event;

	if (!cm_node->cm_id)
		return NULL;
	event = pool_get(&cm_node->cm_core->event_pool);
	if (!event) {
		event = cm_node->spare;
		cm_node->spare = NULL;
	}
	if (!event)
		return NULL;
	event->type = type;
	event->cm_node = cm_node;
	irdma_get_addr_info(cm_node, &event->cm_info);
	event->cm_info.cm_id = cm_node->cm_id;
	work_setup(&event->event_work, irdma_cm_event_handler);
	irdma_cm_post_event(event);
	return event;
}

/**
 * irdma_cm_post_event - append an event to the ordered queue, with a reference to its node
 * @event: event; holds a reference on its node until it has been handled
 *
 * The queue is run by the loop in the order in which events were posted, one at a time, with no lock held.
 */
void irdma_cm_post_event(struct irdma_cm_event *event)
{
	cm_node_hold(event->cm_node);
	workq_queue(&event->cm_node->cm_core->event_wq, &event->event_work);
}

/* ---- open errors ---- */

/**
 * irdma_active_open_err - end a connection that the active side could not set up, and tell the upper layer
 * @cm_node: node; its life ends here, the event keeps it until the upper layer is told
 * @reset: send the peer an RST
 *
 * Stops retransmitting, counts, posts ABORTED. The cause is what was recorded first; without one: reset.
 */
void irdma_active_open_err(struct irdma_cm_node *cm_node, bool reset)
{
	irdma_free_retrans_entry(cm_node);
	cm_node->cm_core->stats.connect_errs++;
	cm_node_set_cause(cm_node, CM_CAUSE_RESET, -ECONNRESET);
	irdma_create_event(cm_node, IRDMA_CM_EVENT_ABORTED);
	if (reset)
		irdma_send_reset(cm_node);
	else
		cm_node_end(cm_node);
}

/**
 * irdma_passive_open_err - end a connection that the passive side could not set up and the upper layer does not know
 * @cm_node: node; its life ends here
 * @reset: send the peer an RST
 *
 * Stops retransmitting, counts the error, logs its cause, and ends the node: with an RST, or quietly where the peer is not there
 * to hear it. The upper layer never heard of the connection, so no event goes up.
 */
void irdma_passive_open_err(struct irdma_cm_node *cm_node, bool reset)
{
	irdma_free_retrans_entry(cm_node);
	cm_node->cm_core->stats.passive_errs++;
	log_info("cm", "port %u: connection failed: %s", cm_node->loc_port, cm_cause_str(cm_node->cause));
	if (reset)
		irdma_send_reset(cm_node);
	else
		cm_node_end(cm_node);
}

/* ---- events ---- */

static void mark_established(struct irdma_cm_node *node)
{
	cm_lock(node->cm_core);
	node->established_up = true;
	cm_unlock(node->cm_core);
}

static void event_established(struct irdma_cm_event *event)
{
	struct irdma_cm_node *node = event->cm_node;

	irdma_send_cm_event(node, event->cm_info.cm_id, IW_CM_EVENT_ESTABLISHED, 0);
	mark_established(node);
}

/* The upper layer's reference, held from here until it accepts, rejects or abandons the request. */
static bool request_begin(struct irdma_cm_node *node)
{
	bool ok;

	cm_lock(node->cm_core);
	ok = node->state == IRDMA_CM_STATE_MPAREQ_RCVD && !node->abandoned;
	if (ok) {
		node->request_up = true;
		cm_node_hold(node);
	}
	cm_unlock(node->cm_core);
	return ok;
}

static void request_refused(struct irdma_cm_node *node)
{
	cm_lock(node->cm_core);
	if (node->request_up) {
		node->request_up = false;
		irdma_cm_reject(node, NULL, 0);
		irdma_rem_ref_cm_node(node);
	}
	cm_unlock(node->cm_core);
}

static void event_mpa_req(struct irdma_cm_event *event)
{
	struct irdma_cm_node *node = event->cm_node;

	if (!request_begin(node))
		return;
	if (irdma_send_cm_event(node, event->cm_info.cm_id, IW_CM_EVENT_CONNECT_REQUEST, 0))
		request_refused(node);
}

/* Active side: the one CONNECT_REPLY that there is has been given, or nobody wants it. */
static bool reply_begin(struct irdma_cm_node *node)
{
	bool ok;

	cm_lock(node->cm_core);
	ok = !node->abandoned && !node->established_up;
	cm_unlock(node->cm_core);
	return ok;
}

static void reply_error(struct irdma_cm_event *event, int status)
{
	struct irdma_cm_node *node = event->cm_node;

	if (!reply_begin(node))
		return;
	irdma_send_cm_event(node, event->cm_info.cm_id, IW_CM_EVENT_CONNECT_REPLY, status);
	cm_lock(node->cm_core);
	node->established_up = true;
	cm_node_untie(node);
	cm_unlock(node->cm_core);
}

/* The rejecting peer has sent its FIN, or will; ours ends the connection. */
static void event_mpa_reject(struct irdma_cm_event *event)
{
	struct irdma_cm_node *node = event->cm_node;

	reply_error(event, -ECONNREFUSED);
	cm_lock(node->cm_core);
	if (node->state == IRDMA_CM_STATE_MPAREJ_RCVD) {
		cm_node_set_state(node, IRDMA_CM_STATE_FIN_WAIT1);
		if (irdma_send_fin(node))
			irdma_send_reset(node);
	}
	cm_unlock(node->cm_core);
}

/**
 * irdma_event_connect_error - tell the upper layer that the active side failed
 * @event: ABORTED event; no lock held
 *
 * CONNECT_REPLY with the true cause: -ECONNREFUSED for a refused port, -ETIMEDOUT for no answer, -ECONNRESET for a reset, -EPROTO for a bad MPA
 * reply, what the port or the route said otherwise. QP and cm_id are untied from the node; the event's is its last reference.
 */
void irdma_event_connect_error(struct irdma_cm_event *event)
{
	struct irdma_cm_node *node = event->cm_node;
	int error;

	cm_lock(node->cm_core);
	error = node->error ? node->error : -ECONNRESET;
	cm_unlock(node->cm_core);
	reply_error(event, error);
}

/**
 * irdma_cm_event_reset - tell the upper layer that the peer reset a connection that it has not answered yet
 * @event: RESET event; no lock held
 *
 * DISCONNECT with -ECONNRESET, then CLOSE, to the cm_id that took the request.
 */
void irdma_cm_event_reset(struct irdma_cm_event *event)
{
	struct irdma_cm_node *node = event->cm_node;
	struct iw_cm_id *cm_id;

	cm_lock(node->cm_core);
	cm_id = node->request_up ? node->cm_id : NULL;
	if (cm_id)
		cm_id->add_ref(cm_id);
	cm_unlock(node->cm_core);
	irdma_cleanup_retrans_entry(node); /* from here on nothing more is sent: that is what is told */
	if (!cm_id)
		return;
	irdma_send_cm_event(node, cm_id, IW_CM_EVENT_DISCONNECT, -ECONNRESET);
	irdma_send_cm_event(node, cm_id, IW_CM_EVENT_CLOSE, 0);
	cm_id->rem_ref(cm_id);
}

/* Hand the stream over and say the first word. Core lock held. */
static int start_data(struct irdma_cm_node *node)
{
	struct irdma_qp *qp = node->iwqp;
	int err;

	if (!qp || rnic_qp_is_going(qp))
		return -ETIMEDOUT;
	err = irdma_cm_init_tsa_conn(qp, node);
	if (err == -EINVAL && rnic_qp_is_going(qp)) /* just now */
		return -ETIMEDOUT;
	if (!err && node->rtr)
		err = rnic_qp_send_rtr(qp);
	return err;
}

static void connected_failed(struct irdma_cm_node *node, int err)
{
	cm_node_set_cause(node, err == -ECONNRESET ? CM_CAUSE_RESET : CM_CAUSE_LOCAL, err);
	node->cm_core->stats.connect_errs++;
	if (node->accelerated) {
		rnic_qp_release_stream(node->iwqp);
		cm_node_end(node);
	} else {
		irdma_send_reset(node);
	}
}

/**
 * irdma_cm_event_connected - the peer accepted: give the stream to the QP, and tell the upper layer
 * @event: CONNECTED event; no lock held
 *
 * Hands the TCP state to the QP, moves it to RTS, sends the RTR that the peers agreed on (RFC 6581 4.3), then CONNECT_REPLY 0. A QP
 * that is being destroyed gives CONNECT_REPLY -ETIMEDOUT, a stream that died meanwhile what it died of.
 */
void irdma_cm_event_connected(struct irdma_cm_event *event)
{
	struct irdma_cm_node *node = event->cm_node;
	struct irdma_cm_core *core = node->cm_core;
	int err;

	cm_lock(core);
	if (node->state != IRDMA_CM_STATE_OFFLOADED || node->abandoned) {
		cm_unlock(core);
		irdma_event_connect_error(event); /* overtaken: reset, or given up. The ABORTED event behind may be missing for lack of memory */
		return;
	}
	err = start_data(node);
	if (err)
		connected_failed(node, err);
	else
		core->stats.established_active++;
	cm_unlock(core);
	if (err) {
		reply_error(event, err);
		return;
	}
	irdma_send_cm_event(node, event->cm_info.cm_id, IW_CM_EVENT_CONNECT_REPLY, 0);
	mark_established(node);
}

static void run_event(struct irdma_cm_event *event)
{
	switch (event->type) {
	case IRDMA_CM_EVENT_ESTABLISHED:
		event_established(event);
		break;
	case IRDMA_CM_EVENT_MPA_REQ:
		event_mpa_req(event);
		break;
	case IRDMA_CM_EVENT_CONNECTED:
		irdma_cm_event_connected(event);
		break;
	case IRDMA_CM_EVENT_MPA_REJECT:
		event_mpa_reject(event);
		break;
	case IRDMA_CM_EVENT_ABORTED:
		irdma_event_connect_error(event);
		break;
	case IRDMA_CM_EVENT_RESET:
		irdma_cm_event_reset(event);
		break;
	default:
		log_error("cm", "event %d is none that is queued", event->type);
	}
}

/**
 * irdma_cm_event_handler - run one event of the ordered queue
 * @work: of the event; loop thread, no lock held
 *
 * MPA_REQ becomes CONNECT_REQUEST, CONNECTED irdma_cm_event_connected(), MPA_REJECT CONNECT_REPLY with -ECONNREFUSED, ABORTED
 * irdma_event_connect_error(), RESET irdma_cm_event_reset(). Events overtaken by a state change are dropped. The event's reference on its
 * node goes in the end.
 */
void irdma_cm_event_handler(struct work_struct *work)
{
	struct irdma_cm_event *event = container_of(work, struct irdma_cm_event, event_work);
	struct irdma_cm_node *node = event->cm_node;
	struct irdma_cm_core *core = node->cm_core;
	struct net *prev = net_enter(core->iwdev->net);

	run_event(event);
	cm_lock(core);
	if (node->spare)
		pool_put(&core->event_pool, event);
	else
		node->spare = event;
	irdma_rem_ref_cm_node(node);
	cm_unlock(core);
	net_enter(prev);
}
