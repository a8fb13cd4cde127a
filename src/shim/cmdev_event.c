/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: events of the rdma_cm device: what iwcm says, in the words of rdma_get_cm_event(3), and the queues of files.
 *
 *   iwcm                       rdma_cm
 *   RESOLVED, RESOLVE_ERROR    ADDR_RESOLVED, ADDR_ERROR
 *   CONNECT_REQUEST            CONNECT_REQUEST, with a new id
 *   ESTABLISHED                ESTABLISHED
 *   REJECTED                   REJECTED, -ECONNREFUSED, with what the peer said
 *   CONNECT_ERROR              as the kernel's CM has it for iWARP: REJECTED if it was refused or reset, UNREACHABLE if
 *                              nobody answered or there is no way, else CONNECT_ERROR
 *   DISCONNECTED               DISCONNECTED
 *   CLOSED                     nothing, but CONNECT_ERROR if the request was accepted and the connection did not come up
 *   DEVICE_REMOVED             DEVICE_REMOVAL
 *
 * ROUTE_RESOLVED is made by RESOLVE_ROUTE itself: with the address the route is known.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shim/cmdev_internal.h"
#include "shim/verbs_internal.h"

#define DEPTH_MAX 128u         /* what a NIC can; stands for what was not negotiated */
#define PDATA_MAX 255u         /* private_data_len is a byte */

/* ---- queues ---- */

void cmdev_event_queue(struct cmdev_file *f, struct cmdev_event *e)
{
	TAILQ_INSERT_TAIL(&f->events, e, entry);
	shim_evfd_post(f->fd);
	if (unlikely(f->kept_live))
		shim_evfd_post(f->kept_fd);
}

/* @taken: the reader has the token of the file's descriptor already. */
static void unqueue(struct cmdev_file *f, struct cmdev_event *e, bool taken)
{
	TAILQ_REMOVE(&f->events, e, entry);
	if (!taken)
		shim_evfd_drop(f->fd);
	if (unlikely(f->kept_live))
		shim_evfd_drop(f->kept_fd);
}

void cmdev_event_unqueue(struct cmdev_file *f, struct cmdev_event *e)
{
	unqueue(f, e, false);
}

void cmdev_events_free(struct cmdev_queue *q)
{
	struct cmdev_event *e;

	while ((e = TAILQ_FIRST(q))) {
		TAILQ_REMOVE(q, e, entry);
		free(e);
	}
}

void cmdev_event_move(struct cmdev_id *id, struct cmdev_file *to)
{
	struct cmdev_file *from = id->file;
	struct cmdev_event *e, *next;

	for (e = TAILQ_FIRST(&from->events); e; e = next) {
		next = TAILQ_NEXT(e, entry);
		if (e->id != id)
			continue;
		cmdev_event_unqueue(from, e);
		cmdev_event_queue(to, e);
	}
}

struct cmdev_event *cmdev_event_new(struct cmdev_id *id, enum cmdev_event_type type, int status)
{
	struct cmdev_event *e = calloc(1, sizeof(*e));

	if (!e) {
		log_error("shim", "no memory for event %d", type);
		return NULL;
	}
	e->id = id;
	e->resp.event = type;
	e->resp.status = (u32)status;
	return e;
}

/* ---- GET_EVENT ---- */

/* Locked. What is only now certain: ACCEPT gives the uid, and a request belongs to the file that it was fetched from. */
static int deliver(struct cmdev_file *f, struct cmdev_event *e, u64 response, u32 out, bool token)
{
	struct cmdev_id *child = e->child;
	int err;

	e->resp.uid = e->id->uid;
	e->resp.id = child ? child->number : e->id->number;
	err = cmdev_put(response, &e->resp, min((size_t)out, sizeof(e->resp)));
	if (err)
		return err;
	e->id->events_reported++;
	unqueue(f, e, token);
	if (child && child->file != f) {
		LIST_REMOVE(child, entry);
		LIST_INSERT_HEAD(&f->ids, child, entry);
		child->file = f;
	}
	free(e);
	return 0;
}

/* Locked. 1: there is none. */
static int get_locked(struct cmdev_file *f, u64 response, u32 out, bool token)
{
	struct cmdev_event *e = TAILQ_FIRST(&f->events);
	int err;

	if (f->closed)
		return -EBADF;
	if (!e)
		return 1;
	err = deliver(f, e, response, out, token);
	if (err && token)
		shim_evfd_post(f->fd);
	return err;
}

int cmdev_event_get(struct cmdev_file *f, u64 response, u32 out)
{
	bool token = false;
	int ret;

	pthread_mutex_lock(&cmdev_lock);
	while ((ret = get_locked(f, response, out, token)) == 1) {
		pthread_mutex_unlock(&cmdev_lock);
		ret = shim_evfd_take(f->fd); /* waits unless O_NONBLOCK is set */
		pthread_mutex_lock(&cmdev_lock);
		token = !ret;
		if (ret)
			break;
	}
	pthread_mutex_unlock(&cmdev_lock);
	return ret;
}

/* ---- from iwcm ---- */

static u8 depth(unsigned int n)
{
	return (u8)min(n, DEPTH_MAX);
}

static void conn_param(const struct iwcm_event *ev, struct rdma_ucm_conn_param *p)
{
	bool request = ev->type == IWCM_EVENT_CONNECT_REQUEST;

	p->private_data_len = (u8)min(ev->private_data_len, (size_t)PDATA_MAX);
	memcpy(p->private_data, ev->private_data, p->private_data_len);
	/* In a request: what the peer asks for. Later: what was agreed. */
	p->responder_resources = depth(request ? ev->info.peer_ord : ev->info.ird);
	p->initiator_depth = depth(request ? ev->info.peer_ird : ev->info.ord);
}

static enum cmdev_event_type connect_error(int status)
{
	switch (status) {
	case -ECONNREFUSED:
	case -ECONNRESET:
		return CMDEV_REJECTED_EV;
	case -ETIMEDOUT:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		return CMDEV_UNREACHABLE_EV;
	default:
		return CMDEV_CONNECT_ERROR_EV;
	}
}

/* Locked. */
static void post(struct cmdev_id *id, const struct iwcm_event *ev, enum cmdev_event_type type, int status)
{
	struct cmdev_event *e = cmdev_event_new(id, type, status);

	if (!e)
		return;
	if (type == CMDEV_ESTABLISHED_EV || type == CMDEV_REJECTED_EV)
		conn_param(ev, &e->resp.param.conn);
	if (id->state == CMDEV_ACCEPTING)
		TAILQ_INSERT_TAIL(&id->parked, e, entry);
	else
		cmdev_event_queue(id->file, e);
}

/* Each of these: locked, the id is not dying. */

static void on_resolved(struct cmdev_id *id, const struct iwcm_event *ev)
{
	if (id->state != CMDEV_ADDR_QUERY)
		return;
	cmdev_id_set_state(id, CMDEV_ADDR_RESOLVED);
	post(id, ev, CMDEV_ADDR_RESOLVED_EV, 0);
}

static void on_resolve_error(struct cmdev_id *id, const struct iwcm_event *ev)
{
	if (id->state != CMDEV_ADDR_QUERY)
		return;
	cmdev_id_set_state(id, id->bound ? CMDEV_BOUND : CMDEV_IDLE);
	post(id, ev, CMDEV_ADDR_ERROR_EV, ev->status);
}

static void on_established(struct cmdev_id *id, const struct iwcm_event *ev)
{
	if (id->state != CMDEV_ACCEPTING)
		cmdev_id_set_state(id, CMDEV_ESTABLISHED);
	post(id, ev, CMDEV_ESTABLISHED_EV, 0);
}

static void on_rejected(struct cmdev_id *id, const struct iwcm_event *ev)
{
	cmdev_id_set_state(id, CMDEV_ENDED);
	post(id, ev, CMDEV_REJECTED_EV, -ECONNREFUSED);
}

static void on_connect_error(struct cmdev_id *id, const struct iwcm_event *ev)
{
	cmdev_id_set_state(id, CMDEV_ENDED);
	post(id, ev, connect_error(ev->status), ev->status);
}

static void on_disconnected(struct cmdev_id *id, const struct iwcm_event *ev)
{
	if (id->state != CMDEV_ACCEPTING)
		cmdev_id_set_state(id, CMDEV_ENDED);
	post(id, ev, CMDEV_DISCONNECTED_EV, 0);
}

/* Of a request that was rejected, or whose peer went before it was answered, nobody hears: ACCEPT will say so. */
static void on_closed(struct cmdev_id *id, const struct iwcm_event *ev)
{
	id->gone = id->state == CMDEV_REQUEST;
	if (id->state == CMDEV_ACCEPTED)
		cmdev_id_set_state(id, CMDEV_ENDED);
	else if (id->state != CMDEV_ACCEPTING || !TAILQ_EMPTY(&id->parked))
		return;
	post(id, ev, CMDEV_CONNECT_ERROR_EV, ev->status ? ev->status : -ECONNABORTED);
}

static void on_device_removed(struct cmdev_id *id, const struct iwcm_event *ev)
{
	post(id, ev, CMDEV_DEVICE_REMOVAL_EV, 0);
}

static void (*const handlers[])(struct cmdev_id *id, const struct iwcm_event *ev) = {
	[IWCM_EVENT_RESOLVED] = on_resolved,
	[IWCM_EVENT_RESOLVE_ERROR] = on_resolve_error,
	[IWCM_EVENT_ESTABLISHED] = on_established,
	[IWCM_EVENT_REJECTED] = on_rejected,
	[IWCM_EVENT_CONNECT_ERROR] = on_connect_error,
	[IWCM_EVENT_DISCONNECTED] = on_disconnected,
	[IWCM_EVENT_CLOSED] = on_closed,
	[IWCM_EVENT_DEVICE_REMOVED] = on_device_removed,
};

/* ---- a peer asks ---- */

/* Locked. */
static int request_add(struct cmdev_id *listener, struct cmdev_id *child, struct cmdev_event *e)
{
	int err;

	if (listener->dying)
		return -ECONNREFUSED;
	err = cmdev_id_add(listener->file, child);
	if (err)
		return err;
	e->child = child;
	cmdev_event_queue(listener->file, e);
	return 0;
}

static int request(struct cmdev_id *listener, const struct iwcm_event *ev)
{
	struct cmdev_event *e = cmdev_event_new(listener, CMDEV_CONNECT_REQUEST_EV, 0);
	struct cmdev_id *child = cmdev_id_new();
	int err = -ENOMEM;

	if (e && child) {
		conn_param(ev, &e->resp.param.conn);
		child->cm = ev->id;
		child->ps = listener->ps;
		child->qp_type = listener->qp_type;
		iwcm_set_user(ev->id, child);
		pthread_mutex_lock(&cmdev_lock);
		cmdev_id_set_state(child, CMDEV_REQUEST);
		err = request_add(listener, child, e);
		pthread_mutex_unlock(&cmdev_lock);
	}
	if (err) {
		free(e);
		if (child)
			cmdev_id_free(child);
	}
	return err;
}

/**
 * shim_cmdev_event() - an event of iwcm
 * @arg: unused
 * @ev: the event
 *
 * NIC thread, no lock held.
 */
void shim_cmdev_event(void *arg, const struct iwcm_event *ev)
{
	struct cmdev_id *id = iwcm_user(ev->listener ? ev->listener : ev->id);

	if (ev->type == IWCM_EVENT_CONNECT_REQUEST) {
		if (request(id, ev))
			iwcm_destroy_id(ev->id);
		return;
	}
	pthread_mutex_lock(&cmdev_lock);
	if (!id->dying)
		handlers[ev->type](id, ev);
	pthread_mutex_unlock(&cmdev_lock);
}
