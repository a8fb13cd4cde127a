// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm: listening, and what a bound id has on each device.
 *
 * A child is an id's presence on one device: a reserved port, and an iw_cm_id of its own that the CM listens with. An id
 * bound to one address has one; an id bound to the wildcard has one per device, and devices
 * that appear later are joined. The CM has in turn a listener per address below a child, and follows addresses.
 * Children change under dev_lock only, so that a device cannot come or go in the middle of iwcm_listen().
 */
#include <stdlib.h>
#include <string.h>
#include "iwcm/room_internal.h"

/* ---- children ---- */

static struct iwcm_child *child_of(struct iw_cm_id *cm)
{
	return container_of(cm, struct iwcm_child, cm);
}

static void child_add_ref(struct iw_cm_id *cm)
{
	__atomic_fetch_add(&child_of(cm)->refs, 1, __ATOMIC_RELAXED);
}

static void child_rem_ref(struct iw_cm_id *cm)
{
	struct iwcm_child *c = child_of(cm);

	if (__atomic_fetch_sub(&c->refs, 1, __ATOMIC_ACQ_REL) != 1)
		return;
	iwcm_dev_put(c->dev);
	iwcm_id_put(c->id);
	free(c);
}

static int request_upcall(struct iw_cm_id *cm, struct iw_cm_event *e);

static struct iwcm_child *child_alloc(struct iwcm_id *id, struct iwcm_dev *dev)
{
	struct iwcm_child *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->refs = 1;
	c->id = id;
	iwcm_id_get(id);
	c->dev = dev;
	iwcm_dev_get(dev);
	c->cm.event_handler = request_upcall;
	c->cm.add_ref = child_add_ref;
	c->cm.rem_ref = child_rem_ref;
	c->cm.device = dev->iwdev;
	return c;
}

int iwcm_child_add(struct iwcm_id *id, struct iwcm_dev *dev, struct iwcm_end *at)
{
	struct iwcm_child *c = child_alloc(id, dev);
	int err;

	if (!c)
		return -ENOMEM;
	/* Shared: a server that starts again finds its port although old connections are in TIME_WAIT. */
	err = rnic_apbvt_add(dev->iwdev, at->ipv4, at->addr, &at->port, true);
	if (err) {
		child_rem_ref(&c->cm);
		return err;
	}
	c->at = *at;
	cm_addr_to_sockaddr(at->ipv4, at->addr, at->port, &c->cm.local_addr);
	c->cm.m_local_addr = c->cm.local_addr;
	LIST_INSERT_HEAD(&id->children, c, entry);
	return 0;
}

int iwcm_child_listen(struct iwcm_child *c)
{
	int err;

	c->cm.mpa = c->id->cm.mpa;
	c->cm.tos = c->id->cm.tos;
	c->cm.tos_set = c->id->cm.tos_set;
	err = irdma_create_listen(&c->cm, c->id->backlog);
	c->listening = !err;
	return err;
}

static void child_unlisten(struct iwcm_child *c)
{
	if (c->listening)
		irdma_destroy_listen(&c->cm);
	c->listening = false;
}

void iwcm_child_del(struct iwcm_child *c)
{
	child_unlisten(c);
	rnic_apbvt_del(c->dev->iwdev, c->at.ipv4, c->at.addr, c->at.port);
	LIST_REMOVE(c, entry);
	child_rem_ref(&c->cm);
}

void iwcm_children_del(struct iwcm_id *id)
{
	struct iwcm_child *c;

	while ((c = LIST_FIRST(&id->children)))
		iwcm_child_del(c);
}

/* ---- devices come and go ---- */

static struct iwcm_child *child_on(const struct iwcm_id *id, const struct iwcm_dev *dev)
{
	struct iwcm_child *c;

	LIST_FOREACH(c, &id->children, entry)
		if (c->dev == dev)
			return c;
	return NULL;
}

/* Does what is still to do: it may have failed half-way before. */
static void join(struct iwcm_id *id, struct iwcm_dev *dev)
{
	struct iwcm_end at = id->src;
	bool listening;
	int err = child_on(id, dev) ? 0 : iwcm_child_add(id, dev, &at);

	iwcm_lock(id->ctx);
	listening = id->state == IWCM_ID_LISTENING;
	iwcm_unlock(id->ctx);
	if (!err && listening && !child_on(id, dev)->listening)
		err = iwcm_child_listen(child_on(id, dev));
	if (!err)
		return;
	log_warn("iwcm", "port %u is not to be had on %s: %s", at.port, dev->iwdev->name, strerror(-err));
	iwcm_dev_note_missing(id->ctx, err);
}

void iwcm_children_join(struct iwcm_dev *dev)
{
	struct iwcm_id *id;
	size_t i;

	for (i = 0; i < IWCM_PORT_BUCKETS; i++)
		LIST_FOREACH(id, &dev->ctx->bound[i], bound_entry)
			if (id->wildcard)
				join(id, dev);
}

static void part(struct iwcm_id *id, struct iwcm_dev *dev)
{
	struct iwcm_child *c, *next;

	LIST_FOREACH_SAFE(c, &id->children, entry, next)
		if (c->dev == dev)
			iwcm_child_del(c);
}

void iwcm_children_part(struct iwcm_dev *dev)
{
	struct iwcm_id *id;
	size_t i;

	for (i = 0; i < IWCM_PORT_BUCKETS; i++)
		LIST_FOREACH(id, &dev->ctx->bound[i], bound_entry)
			part(id, dev);
}

/* ---- listening ---- */

static int listen_children(struct iwcm_id *id)
{
	struct iwcm_child *c;
	int err = 0;

	LIST_FOREACH(c, &id->children, entry) {
		err = iwcm_child_listen(c);
		if (err)
			break;
	}
	if (err)
		LIST_FOREACH(c, &id->children, entry)
			child_unlisten(c);
	return err;
}

/* From BOUND to LISTENING, before the first request can come up. */
static int listen_claim(struct iwcm_id *id)
{
	int err = -EINVAL;

	iwcm_lock(id->ctx);
	if (id->gone) {
		err = -ENODEV;
	} else if (id->state == IWCM_ID_BOUND) {
		iwcm_id_set_state(id, IWCM_ID_LISTENING);
		err = 0;
	}
	iwcm_unlock(id->ctx);
	return err;
}

/* Requests that came before the CM refused on another device; the user never hears of them. */
static void listen_undo(struct iwcm_id *id)
{
	struct iwcm_id *req;

	iwcm_lock(id->ctx);
	iwcm_id_set_state(id, IWCM_ID_BOUND);
	while ((req = LIST_FIRST(&id->untaken))) {
		iwcm_purge(req);
		req->orphan = true;
		iwcm_unlock(id->ctx);
		iwcm_destroy_id(req);
		iwcm_lock(id->ctx);
	}
	iwcm_unlock(id->ctx);
}

/**
 * iwcm_listen() - let peers connect
 * @id: bound id; its options say what its connections want
 * @backlog: requests that may wait: being set up, or not answered yet; 0 or less: 128
 *
 * CONNECT_REQUEST comes for each peer that asks, with an id for the connection that is the caller's to accept, reject or
 * destroy. A listener on the wildcard address follows the addresses and interfaces of the machine as they come and go; one
 * on a single address gets DEVICE_REMOVED if its interface goes.
 *
 * Return: 0; -EINVAL: not bound, or listening already; -ENODEV: its interface is gone; -EADDRINUSE, -EMFILE, -ENOMEM.
 */
int iwcm_listen(struct iwcm_id *id, int backlog)
{
	struct net *prev;
	int err = iwcm_call_begin(id);

	if (err)
		return err;
	prev = iwcm_enter(id->ctx);
	pthread_mutex_lock(&id->ctx->dev_lock);
	err = listen_claim(id);
	if (!err) {
		id->backlog = max(backlog, 0);
		err = listen_children(id);
		if (err)
			listen_undo(id);
	}
	pthread_mutex_unlock(&id->ctx->dev_lock);
	iwcm_leave(prev);
	return iwcm_call_end(id, err);
}

/* ---- a peer asks ---- */

static int request_fill(struct iwcm_id *req, struct iwcm_child *c, const struct iw_cm_event *e)
{
	req->cm.device = c->cm.device;
	req->cm.provider_data = e->provider_data;
	req->cm.mpa = c->cm.mpa;
	req->cm.tos = c->cm.tos;
	req->cm.tos_set = c->cm.tos_set;
	req->cm.local_addr = req->cm.m_local_addr = e->local_addr;
	req->cm.remote_addr = req->cm.m_remote_addr = e->remote_addr;
	iwcm_addr_load(&e->local_addr, &req->local);
	iwcm_addr_load(&e->remote_addr, &req->remote);
	iwcm_info_set(req, &e->neg);
	if (!e->private_data_len)
		return 0;
	req->pdata = malloc(e->private_data_len);
	if (!req->pdata)
		return -ENOMEM;
	memcpy(req->pdata, e->private_data, e->private_data_len);
	req->pdata_len = e->private_data_len;
	req->pdata_ready = true;
	return 0;
}

/* Into the listener's list and the queue; -ECONNREFUSED if nobody listens any more. */
static int request_post(struct iwcm_id *req, struct iwcm_child *c, struct iw_cm_event *e)
{
	struct iwcm_id *listener = c->id;
	struct iwcm_ctx *ctx = req->ctx;

	iwcm_lock(ctx);
	if (listener->state != IWCM_ID_LISTENING) {
		iwcm_unlock(ctx);
		return -ECONNREFUSED;
	}
	iwcm_dev_get(c->dev);
	req->dev = c->dev;
	req->listener = listener;
	LIST_INSERT_HEAD(&listener->untaken, req, untaken_entry);
	iwcm_id_link(req);
	iwcm_post(req, IWCM_EVENT_CONNECT_REQUEST, 0, e->neg.cause);
	e->child = &req->cm; /* the CM makes it the connection's unless somebody has answered until then */
	iwcm_unlock(ctx);
	return 0;
}

/* Non-zero: the CM rejects the request by itself. */
static int request_upcall(struct iw_cm_id *cm, struct iw_cm_event *e)
{
	struct iwcm_child *c = child_of(cm);
	struct iwcm_id *req;
	int err;

	if (e->event != IW_CM_EVENT_CONNECT_REQUEST)
		return 0;
	req = iwcm_id_alloc(c->id->ctx, iwcm_user(c->id), IWCM_ID_REQUEST);
	if (!req)
		return -ENOMEM;
	err = request_fill(req, c, e);
	if (!err)
		err = request_post(req, c, e);
	if (err)
		iwcm_id_put(req);
	return err;
}
