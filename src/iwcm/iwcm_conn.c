// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm: connections: connect, accept, reject, disconnect, abort, and the CM's upcalls about them.
 *
 * An id makes its QP when it connects or accepts, and destroys it when the connection is over: at the upcall that
 * says so, or when the user destroys the id. One that was given a QP (iwcm_set_qp()) holds a reference on that instead. Promise to the user: ESTABLISHED, REJECTED or CONNECT_ERROR first,
 * then (after ESTABLISHED) DISCONNECTED, then CLOSED, once and last. CLOSED ends an id that was established
 * or came with a request; one whose connecting failed has had its last event with the error.
 */
#include <stdlib.h>
#include <string.h>
#include "iwcm/room_internal.h"

#define REJECT_PDATA_MAX 255u

/**
 * iwcm_cause_str() - why a connection failed or ended, in words
 * @cause: cause of struct iwcm_info
 *
 * Return: a sentence for people; never NULL.
 */
const char *iwcm_cause_str(int cause)
{
	return cm_cause_str((enum cm_cause)cause);
}

void iwcm_info_set(struct iwcm_id *id, const struct cm_negotiated *n)
{
	id->info = (struct iwcm_info){
		.mpa_revision = n->rev,
		.peer_revision = n->peer_rev,
		.peer_flags = n->peer_flags,
		.peer_to_peer = n->p2p,
		.crc = n->crc,
		.send_markers = n->snd_markers,
		.receive_markers = n->rcv_markers,
		.fell_back = n->fell_back,
		.rtr_offered = n->rtr_offered,
		.rtr = n->rtr,
		.ird = n->ird,
		.ord = n->ord,
		.peer_ird = n->peer_ird,
		.peer_ord = n->peer_ord,
		.mss = n->mss,
		.syn_sent = n->syn_sent,
		.mpa_sent = n->mpa_sent,
		.cause = n->cause,
	};
}

/* ---- upcalls: the loop's thread, no lock held ---- */

static void copy_addrs(struct iwcm_id *id, const struct iw_cm_event *e)
{
	if (e->local_addr.ss_family != AF_UNSPEC)
		iwcm_addr_load(&e->local_addr, &id->local);
	if (e->remote_addr.ss_family != AF_UNSPEC)
		iwcm_addr_load(&e->remote_addr, &id->remote);
}

static void copy_pdata(struct iwcm_id *id, const struct iw_cm_event *e)
{
	if (!e->private_data_len || !id->pdata)
		return;
	assert(e->private_data_len <= MPA_MAX_PRIV_DATA);
	memcpy(id->pdata, e->private_data, e->private_data_len);
	id->pdata_len = e->private_data_len;
	id->pdata_ready = true;
}

/* Each of these is called with ctx->lock held and id->state not DESTROYED. */

static struct iwcm_held on_reply(struct iwcm_id *id, const struct iw_cm_event *e)
{
	if (id->state != IWCM_ID_CONNECTING)
		return (struct iwcm_held){ 0 };
	copy_addrs(id, e);
	copy_pdata(id, e);
	iwcm_info_set(id, &e->neg);
	if (!e->status) {
		iwcm_id_set_state(id, IWCM_ID_ESTABLISHED);
		iwcm_post(id, IWCM_EVENT_ESTABLISHED, 0, e->neg.cause);
		return (struct iwcm_held){ 0 };
	}
	iwcm_id_set_state(id, IWCM_ID_FAILED);
	iwcm_post(id, e->neg.cause == CM_CAUSE_REJECTED ? IWCM_EVENT_REJECTED : IWCM_EVENT_CONNECT_ERROR, e->status, e->neg.cause);
	return iwcm_id_take(id);
}

static struct iwcm_held on_established(struct iwcm_id *id, const struct iw_cm_event *e)
{
	if (id->state != IWCM_ID_ACCEPTING)
		return (struct iwcm_held){ 0 };
	copy_addrs(id, e);
	iwcm_info_set(id, &e->neg);
	iwcm_id_set_state(id, IWCM_ID_ESTABLISHED);
	iwcm_post(id, IWCM_EVENT_ESTABLISHED, e->status, e->neg.cause);
	return (struct iwcm_held){ 0 };
}

#define UNANSWERED (BIT(IWCM_ID_REQUEST) | BIT(IWCM_ID_ACCEPTING))

static struct iwcm_held on_disconnect(struct iwcm_id *id, const struct iw_cm_event *e)
{
	if (UNANSWERED & BIT(id->state)) {
		id->end_status = e->status; /* it was never connected: CLOSED will say why */
	} else if (id->state == IWCM_ID_ESTABLISHED || id->state == IWCM_ID_CLOSING) {
		iwcm_id_set_state(id, IWCM_ID_DISCONNECTED);
		iwcm_post(id, IWCM_EVENT_DISCONNECTED, e->status, e->neg.cause);
	}
	return (struct iwcm_held){ 0 };
}

static struct iwcm_held on_close(struct iwcm_id *id, const struct iw_cm_event *e)
{
	int status = e->status ? e->status : id->end_status;
	bool request = id->state == IWCM_ID_REQUEST;
	struct iwcm_held h;

	/* Whatever the CM saw: an established connection is DISCONNECTED before it is CLOSED. */
	on_disconnect(id, e);
	if (!((UNANSWERED | BIT(IWCM_ID_DISCONNECTED)) & BIT(id->state)))
		return (struct iwcm_held){ 0 };
	id->peer_gone = request;
	iwcm_id_set_state(id, IWCM_ID_CLOSED);
	iwcm_post(id, IWCM_EVENT_CLOSED, status, e->neg.cause);
	h = iwcm_id_take(id);
	h.request = request;
	return h;
}

static struct iwcm_held (*const upcalls[])(struct iwcm_id *id, const struct iw_cm_event *e) = {
	[IW_CM_EVENT_CONNECT_REPLY] = on_reply,
	[IW_CM_EVENT_ESTABLISHED] = on_established,
	[IW_CM_EVENT_DISCONNECT] = on_disconnect,
	[IW_CM_EVENT_CLOSE] = on_close,
};

int iwcm_conn_upcall(struct iw_cm_id *cm_id, struct iw_cm_event *e)
{
	struct iwcm_id *id = container_of(cm_id, struct iwcm_id, cm);
	struct iwcm_held h = { 0 };

	if ((size_t)e->event >= ARRAY_SIZE(upcalls) || !upcalls[e->event])
		return -EINVAL;
	iwcm_id_get(id); /* what is given back may hold the CM's last reference */
	iwcm_lock(id->ctx);
	if (id->state != IWCM_ID_DESTROYED)
		h = upcalls[e->event](id, e);
	iwcm_unlock(id->ctx);
	if (h.request)
		cm_abandon(cm_id);
	iwcm_held_put(&h);
	iwcm_id_put(id);
	return 0;
}

/* ---- calls ---- */

static const struct iwcm_conn_param default_param = { .ird = IWCM_MAX, .ord = IWCM_MAX };

static int param_convert(const struct iwcm_conn_param *p, unsigned int revision, struct iw_cm_conn_param *out)
{
	size_t room = MPA_MAX_PRIV_DATA - (revision >= MPA_REV_2 ? sizeof(struct mpa_v2_data) : 0);

	if (p->private_data_len > room || (p->private_data_len && !p->private_data))
		return -EINVAL;
	*out = (struct iw_cm_conn_param){
		.private_data = p->private_data,
		.private_data_len = (u16)p->private_data_len,
		.ird = p->ird,
		.ord = p->ord,
	};
	return 0;
}

/*
 * Why an id is not in the state that a call needs. A request whose peer gave up is CLOSED before its user has heard of it; a handler's user may answer just
 * while the handler is being called.
 */
static int wrong_state(const struct iwcm_id *id, enum iwcm_id_state wanted)
{
	if (wanted == IWCM_ID_REQUEST && id->peer_gone && (id->ctx->handler || id->ev[IWCM_EVENT_CLOSED].queued))
		return -ECONNRESET;
	return id->gone ? -ENODEV : -EINVAL;
}

/* The QP that was given, with the reference that the id had; else one of the id's own. */
static int claim_qp(struct iwcm_id *id, struct iwcm_dev *dev, struct iwcm_held *h)
{
	iwcm_lock(id->ctx);
	*h = (struct iwcm_held){ .qp = id->qp, .qp_given = id->qp_given };
	id->qp = NULL;
	id->qp_given = false;
	iwcm_unlock(id->ctx);
	return h->qp ? 0 : rnic_qp_create(dev->iwdev, &h->qp);
}

/* Called with ctx->lock held. */
static void store_qp(struct iwcm_id *id, const struct iwcm_held *h)
{
	id->qp = h->qp;
	id->qp_given = h->qp_given;
}

/* From @from to @to, with a QP; *@dev gets a reference for the time of the call. */
static int claim(struct iwcm_id *id, enum iwcm_id_state from, enum iwcm_id_state to, struct iwcm_dev **dev, u32 *qpn)
{
	struct iwcm_ctx *ctx = id->ctx;
	struct iwcm_held h;
	int err = 0;

	iwcm_lock(ctx);
	if (id->state == from)
		iwcm_dev_get(*dev = id->dev);
	else
		err = wrong_state(id, from);
	iwcm_unlock(ctx);
	if (err)
		return err;
	err = claim_qp(id, *dev, &h);
	if (!err) {
		*qpn = h.qp->qp_num;
		iwcm_lock(ctx);
		if (id->state == from) {
			store_qp(id, &h);
			iwcm_id_set_state(id, to);
		} else {
			err = from == IWCM_ID_REQUEST ? wrong_state(id, from) : -ENODEV; /* it went just now */
		}
		iwcm_unlock(ctx);
		if (err)
			iwcm_held_put_qp(&h);
	}
	if (err)
		iwcm_dev_put(*dev);
	return err;
}

/**
 * iwcm_set_qp() - give a connection its QP
 * @id: id that was resolved, or that came with CONNECT_REQUEST
 * @qp: idle QP on the id's device
 *
 * For the next iwcm_connect() or iwcm_accept(); a QP that was given before is given back. The caller keeps its own reference; the id
 * has one until the connection is over.
 *
 * Return: 0; -EINVAL: another state, or another device; -ECONNRESET: the request's peer gave up; -ENODEV: its interface is gone.
 */
int iwcm_set_qp(struct iwcm_id *id, struct irdma_qp *qp)
{
	struct iwcm_held old = { 0 };
	int err = iwcm_call_begin(id);

	if (err)
		return err;
	iwcm_lock(id->ctx);
	if (!((BIT(IWCM_ID_RESOLVED) | BIT(IWCM_ID_REQUEST)) & BIT(id->state))) {
		err = wrong_state(id, IWCM_ID_REQUEST);
	} else if (id->dev && id->dev->iwdev == qp->iwdev) {
		old = (struct iwcm_held){ .qp = id->qp, .qp_given = id->qp_given };
		rnic_qp_hold(qp);
		store_qp(id, &(struct iwcm_held){ .qp = qp, .qp_given = true });
	} else {
		err = -EINVAL;
	}
	iwcm_unlock(id->ctx);
	iwcm_held_put_qp(&old);
	return iwcm_call_end(id, err);
}

static void set_port(struct sockaddr_storage *ss, u16 port)
{
	if (ss->ss_family == AF_INET)
		((struct sockaddr_in *)ss)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)ss)->sin6_port = htons(port);
}

/* The CM wants to know the local port. It takes a reservation of its own; this one bridges the time until then. */
static int connect_from_some_port(struct iwcm_id *id, struct iwcm_dev *dev, struct iw_cm_conn_param *p)
{
	u32 addr[4];
	bool ipv4;
	u16 port;
	int err;

	cm_addr_from_sockaddr(&id->cm.m_local_addr, &ipv4, addr, &port);
	if (port)
		return irdma_connect(&id->cm, p);
	err = rnic_apbvt_add(dev->iwdev, ipv4, addr, &port, true);
	if (err)
		return err;
	set_port(&id->cm.local_addr, port);
	set_port(&id->cm.m_local_addr, port);
	iwcm_lock(id->ctx);
	iwcm_addr_load(&id->cm.local_addr, &id->local);
	iwcm_unlock(id->ctx);
	err = irdma_connect(&id->cm, p);
	rnic_apbvt_del(dev->iwdev, ipv4, addr, port);
	if (err) {
		set_port(&id->cm.local_addr, 0);
		set_port(&id->cm.m_local_addr, 0);
	}
	return err;
}

static void connect_undo(struct iwcm_id *id)
{
	struct iwcm_held h = { 0 };

	iwcm_lock(id->ctx);
	if (id->state == IWCM_ID_CONNECTING) {
		h = (struct iwcm_held){ .qp = id->qp, .qp_given = id->qp_given };
		store_qp(id, &(struct iwcm_held){ 0 });
		iwcm_id_set_state(id, IWCM_ID_RESOLVED);
	}
	iwcm_unlock(id->ctx);
	iwcm_held_put_qp(&h);
}

/* Give up connecting: true if that was still going on. */
static bool abort_connect(struct iwcm_id *id, int status)
{
	struct iwcm_held h;
	bool was;

	iwcm_lock(id->ctx);
	was = id->state == IWCM_ID_CONNECTING;
	if (was) {
		iwcm_id_set_state(id, IWCM_ID_FAILED);
		iwcm_post(id, IWCM_EVENT_CONNECT_ERROR, status, CM_CAUSE_LOCAL);
		h = iwcm_id_take(id);
	}
	iwcm_unlock(id->ctx);
	if (was)
		iwcm_conn_abandon(id, IWCM_ID_CONNECTING, &h);
	return was;
}

static int begin_connect(struct iwcm_id *id, struct iw_cm_conn_param *p)
{
	struct iwcm_dev *dev;
	int err = claim(id, IWCM_ID_RESOLVED, IWCM_ID_CONNECTING, &dev, &p->qpn);

	if (err)
		return err;
	id->cm.device = dev->iwdev;
	err = connect_from_some_port(id, dev, p);
	if (err)
		connect_undo(id);
	else if (unlikely(iwcm_dev_gone(dev)))
		abort_connect(id, -ENODEV); /* too late for those who tore down what was there */
	iwcm_dev_put(dev);
	return err;
}

/**
 * iwcm_connect() - ask the peer for a connection
 * @id: id that was resolved
 * @param: private data, IRD and ORD; NULL: none, and as much as the NIC can
 *
 * ESTABLISHED, REJECTED or CONNECT_ERROR comes as an event.
 *
 * Return: 0; -EINVAL: not resolved, or too much private data; -ENODEV: its interface is gone; -EADDRINUSE; -EHOSTUNREACH;
 * -ENOMEM and other limits. After an error no event comes, and the id is as it was.
 */
int iwcm_connect(struct iwcm_id *id, const struct iwcm_conn_param *param)
{
	struct iw_cm_conn_param p;
	struct net *prev;
	int err = iwcm_call_begin(id);

	if (err)
		return err;
	err = param_convert(param ? param : &default_param, id->opt.mpa_revision, &p);
	if (!err && !id->pdata) {
		/* Now, so that what a peer says when it rejects cannot be lost for want of memory. */
		id->pdata = malloc(MPA_MAX_PRIV_DATA);
		err = id->pdata ? 0 : -ENOMEM;
	}
	if (!err) {
		prev = iwcm_enter(id->ctx);
		err = begin_connect(id, &p);
		iwcm_leave(prev);
	}
	return iwcm_call_end(id, err);
}

/* The request is answered, or lost: CLOSED ends the id. */
static void request_over(struct iwcm_id *id, int status, enum cm_cause cause)
{
	struct iwcm_held h = { 0 };

	iwcm_lock(id->ctx);
	if (id->state == IWCM_ID_REQUEST || id->state == IWCM_ID_ACCEPTING) {
		iwcm_id_set_state(id, IWCM_ID_CLOSED);
		iwcm_post(id, IWCM_EVENT_CLOSED, status, cause);
		h = iwcm_id_take(id);
	}
	iwcm_unlock(id->ctx);
	iwcm_held_put(&h);
}

/* The CM has one word for a QP that was used before, and for a listener that another thread has just destroyed, which resets the peer. */
static int why_not_accepted(struct iwcm_dev *dev, u32 qpn, int err)
{
	struct rnic_qp_info info = { .state = RNIC_QP_IDLE };
	struct irdma_qp *qp;

	if (err != -EINVAL)
		return err;
	qp = rnic_qp_find(dev->iwdev, qpn);
	if (qp) { /* else the id's own, which has ended with it */
		rnic_qp_query(qp, &info);
		rnic_qp_put(qp);
	}
	return info.state == RNIC_QP_IDLE ? -ECONNRESET : err;
}

static int begin_accept(struct iwcm_id *id, struct iw_cm_conn_param *p)
{
	struct iwcm_dev *dev;
	int err = claim(id, IWCM_ID_REQUEST, IWCM_ID_ACCEPTING, &dev, &p->qpn);

	if (err)
		return err;
	err = irdma_accept(&id->cm, p);
	if (err)
		err = why_not_accepted(dev, p->qpn, err);
	if (err)
		request_over(id, err, err == -ECONNRESET ? CM_CAUSE_RESET : CM_CAUSE_NO_RESOURCES);
	else if (unlikely(iwcm_dev_gone(dev)))
		cm_disconnect(&id->cm, true);
	iwcm_dev_put(dev);
	return err;
}

/**
 * iwcm_accept() - accept a request
 * @id: id that came with CONNECT_REQUEST
 * @param: private data of the reply, IRD and ORD; NULL: none, and as much as the NIC can
 *
 * ESTABLISHED comes as an event.
 *
 * Return: 0; -EINVAL: no pending request, or too much private data; -ENOMEM, -ENOSPC: no queue pair. After these the
 * request still waits for an answer. Any other error (-ECONNRESET: the peer gave up, or the listener is being destroyed) ended it: CLOSED comes. So does -EINVAL
 * for a queue pair of iwcm_set_qp() that was connected before.
 */
int iwcm_accept(struct iwcm_id *id, const struct iwcm_conn_param *param)
{
	struct iw_cm_conn_param p;
	unsigned int revision;
	struct net *prev;
	int err = iwcm_call_begin(id);

	if (err)
		return err;
	iwcm_lock(id->ctx);
	revision = id->info.mpa_revision;
	iwcm_unlock(id->ctx);
	err = param_convert(param ? param : &default_param, revision, &p);
	if (!err) {
		prev = iwcm_enter(id->ctx);
		err = begin_accept(id, &p);
		iwcm_leave(prev);
	}
	return iwcm_call_end(id, err);
}

static int begin_reject(struct iwcm_id *id, const void *data, u8 len)
{
	int err;

	iwcm_lock(id->ctx);
	err = id->state == IWCM_ID_REQUEST ? 0 : wrong_state(id, IWCM_ID_REQUEST);
	iwcm_unlock(id->ctx);
	if (err)
		return err;
	err = irdma_reject(&id->cm, data, len);
	request_over(id, 0, CM_CAUSE_LOCAL);
	return err;
}

/**
 * iwcm_reject() - refuse a request
 * @id: id that came with CONNECT_REQUEST
 * @private_data: what the peer is told
 * @len: its length, at most 255
 *
 * CLOSED comes as an event.
 *
 * Return: 0; -EINVAL: no pending request, or too much private data; another error if the peer could not be told, because it
 * is gone: CLOSED comes all the same.
 */
int iwcm_reject(struct iwcm_id *id, const void *private_data, size_t len)
{
	struct net *prev;
	int err;

	if (len > REJECT_PDATA_MAX || (len && !private_data))
		return -EINVAL;
	err = iwcm_call_begin(id);
	if (err)
		return err;
	prev = iwcm_enter(id->ctx);
	err = begin_reject(id, private_data, (u8)len);
	iwcm_leave(prev);
	return iwcm_call_end(id, err);
}

/* To CLOSING; -ENOTCONN if there is no connection, 1 if nothing is left to do. */
static int claim_closing(struct iwcm_id *id, u32 from)
{
	int ret = -ENOTCONN;

	iwcm_lock(id->ctx);
	if (from & BIT(id->state)) {
		if (id->state == IWCM_ID_ESTABLISHED)
			iwcm_id_set_state(id, IWCM_ID_CLOSING);
		ret = 0;
	} else if (id->state == IWCM_ID_CLOSING) {
		ret = 1;
	}
	iwcm_unlock(id->ctx);
	return ret;
}

static int end_stream(struct iwcm_id *id, u32 from, bool abort)
{
	int ret = claim_closing(id, from);
	struct net *prev;

	if (ret)
		return min(ret, 0);
	prev = iwcm_enter(id->ctx);
	cm_disconnect(&id->cm, abort); /* -ENOTCONN: it has ended by itself, and DISCONNECT is on its way */
	iwcm_leave(prev);
	return 0;
}

/**
 * iwcm_disconnect() - end a connection in order
 * @id: established id
 *
 * What was sent is delivered, then FIN. DISCONNECTED and CLOSED come as events, once the peer has closed too. Nothing happens if it was called
 * before.
 *
 * Return: 0; -ENOTCONN: not established, or over.
 */
int iwcm_disconnect(struct iwcm_id *id)
{
	int err = iwcm_call_begin(id);

	if (err)
		return err;
	return iwcm_call_end(id, end_stream(id, BIT(IWCM_ID_ESTABLISHED), false));
}

/**
 * iwcm_abort() - end a connection at once
 * @id: id that connects, was accepted or is established
 *
 * Sends RST. A connection that was being set up gets CONNECT_ERROR (-ECONNABORTED), any other DISCONNECTED and CLOSED.
 *
 * Return: 0; -ENOTCONN: no connection.
 */
int iwcm_abort(struct iwcm_id *id)
{
	u32 from = BIT(IWCM_ID_ACCEPTING) | BIT(IWCM_ID_ESTABLISHED) | BIT(IWCM_ID_CLOSING);
	int err = iwcm_call_begin(id);

	if (err)
		return err;
	if (!abort_connect(id, -ECONNABORTED))
		err = end_stream(id, from, true);
	return iwcm_call_end(id, err);
}

/*
 * What the CM must be told when the user gives up an id that was in state @prev; gives back what it held. A connection that
 * is closing needs nothing: without its QP it closes by itself, and its upcalls find DESTROYED.
 */
void iwcm_conn_abandon(struct iwcm_id *id, enum iwcm_id_state prev, struct iwcm_held *h)
{
	u32 under_way = BIT(IWCM_ID_CONNECTING) | BIT(IWCM_ID_ACCEPTING) | BIT(IWCM_ID_ESTABLISHED);
	struct net *net = iwcm_enter(id->ctx);

	if (prev == IWCM_ID_REQUEST)
		irdma_reject(&id->cm, NULL, 0);
	/* Its user may have destroyed the QP just now, which ends the stream in order: a reset would take away what is still under way. */
	if (h->qp && h->qp_given && under_way & BIT(prev) && !rnic_qp_fin_is_out(h->qp))
		rnic_qp_modify(h->qp, RNIC_QP_ERROR); /* -EINVAL: it has ended by itself */
	iwcm_held_put_qp(h);
	if (under_way & BIT(prev))
		cm_abandon(&id->cm);
	iwcm_held_put(h);
	iwcm_leave(net);
}
