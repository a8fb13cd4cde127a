// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm: the NICs of a context: one per interface, VLAN interfaces excepted, which lie on one; they come and go with it.
 *
 * A device goes in two steps. When its interface is removed it leaves the list, nobody new may use it, and whoever is bound
 * there or connected is told (DEVICE_REMOVED, or DISCONNECTED and CLOSED once irdma_if_notify() has torn the
 * connection down). When the last reference is dropped, a work item in the loop's thread destroys it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "iwcm/room_internal.h"

#define VLAN_DEPTH_MAX 8

/* ---- references ---- */

void iwcm_dev_get(struct iwcm_dev *dev)
{
	__atomic_fetch_add(&dev->refs, 1, __ATOMIC_RELAXED);
}

void iwcm_dev_put(struct iwcm_dev *dev)
{
	if (dev && __atomic_fetch_sub(&dev->refs, 1, __ATOMIC_ACQ_REL) == 1)
		workq_queue(&dev->ctx->wq, &dev->reap);
}

/* ---- finding ---- */

/* The interface that carries @iface's frames: itself, unless it is a VLAN on one that we can see. */
static void base_iface(struct iwcm_ctx *ctx, const struct net_iface *iface, struct net_iface *out)
{
	struct net_iface lower;
	int i;

	*out = *iface;
	for (i = 0; i < VLAN_DEPTH_MAX && out->vlan_id != PKT_VLAN_NONE && out->lower; i++) {
		if (net_iface_by_index(ctx->net, out->lower, &lower))
			return;
		*out = lower;
	}
}

static struct iwcm_dev *find_index(struct iwcm_ctx *ctx, u32 ifindex)
{
	struct iwcm_dev *dev;

	TAILQ_FOREACH(dev, &ctx->devs, entry)
		if (dev->ifindex == ifindex)
			return dev;
	return NULL;
}

struct iwcm_dev *iwcm_dev_for_iface(struct iwcm_ctx *ctx, const struct net_iface *iface)
{
	struct net_iface base;

	base_iface(ctx, iface, &base);
	return find_index(ctx, base.ifindex);
}

static struct iwcm_dev *get_for_iface(struct iwcm_ctx *ctx, const struct net_iface *iface)
{
	struct iwcm_dev *dev;

	pthread_mutex_lock(&ctx->dev_lock);
	dev = iwcm_dev_for_iface(ctx, iface);
	if (dev)
		iwcm_dev_get(dev);
	pthread_mutex_unlock(&ctx->dev_lock);
	return dev;
}

int iwcm_dev_for_addr(struct iwcm_ctx *ctx, const struct iwcm_end *e, struct iwcm_dev **out)
{
	struct net_iface iface;
	int err = net_local(ctx->net, e->ipv4, e->addr, &iface, NULL);

	if (err)
		return err;
	*out = get_for_iface(ctx, &iface);
	return *out ? 0 : -ENODEV;
}

/* ---- watching ---- */

static void tap_frame(struct port_tap *tap, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	struct iwcm_ctx *ctx = container_of(tap, struct iwcm_dev, tap)->ctx;

	ctx->frame(ctx->frame_arg, port, out, p, now_ns);
}

void iwcm_dev_observe(struct iwcm_dev *dev)
{
	struct iwcm_ctx *ctx = dev->ctx;

	if (ctx->capture)
		port_capture_attach(ctx->capture, dev->iwdev->port);
	if (ctx->frame) {
		dev->tap.frame = tap_frame;
		port_tap_add(dev->iwdev->port, &dev->tap);
	}
	if (ctx->trace.state)
		cm_set_trace(dev->iwdev, &ctx->trace);
}

static void unobserve(struct iwcm_dev *dev)
{
	if (dev->ctx->capture)
		port_capture_detach(dev->ctx->capture, dev->iwdev->port);
	if (dev->ctx->frame)
		port_tap_del(dev->iwdev->port, &dev->tap);
}

/* ---- coming ---- */

static int plug(struct iwcm_dev *dev, const struct net_iface *iface)
{
	struct iwcm_ctx *ctx = dev->ctx;
	struct port *port;
	int err;

	if (ctx->host)
		err = port_host_plug(ctx->host, iface, &rnic_port_up, dev->iwdev, &port);
	else
		err = port_wire_plug(ctx->wire, ctx->net, iface, &rnic_port_up, dev->iwdev, &port);
	if (err)
		return err;
	rnic_device_attach(dev->iwdev, port);
	return irdma_setup_cm_core(dev->iwdev, ctx->rdma_ver);
}

static void reap(struct iwcm_dev *dev);

static void reap_work(struct work_struct *w)
{
	reap(container_of(w, struct iwcm_dev, reap));
}

static struct iwcm_dev *dev_alloc(struct iwcm_ctx *ctx, const struct net_iface *iface)
{
	struct iwcm_dev *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	dev->ctx = ctx;
	dev->ifindex = iface->ifindex;
	dev->refs = 1;
	work_setup(&dev->reap, reap_work);
	return dev;
}

/* Called with dev_lock held. */
static int dev_add(struct iwcm_ctx *ctx, const struct net_iface *iface)
{
	struct iwcm_dev *dev = dev_alloc(ctx, iface);
	int err;

	if (!dev)
		return -ENOMEM;
	err = rnic_device_create(ctx->loop, ctx->net, iface, NULL, &dev->iwdev);
	if (err)
		goto free_dev;
	dev->iwdev->owner = dev;
	err = plug(dev, iface);
	if (err)
		goto destroy_device;
	iwcm_dev_observe(dev);
	TAILQ_INSERT_TAIL(&ctx->devs, dev, entry);
	__atomic_fetch_add(&ctx->live_devs, 1, __ATOMIC_RELAXED);
	iwcm_children_join(dev);
	if (ctx->dev_watch)
		ctx->dev_watch(ctx->dev_watch_arg, dev->iwdev, true);
	return 0;

destroy_device:
	rnic_device_destroy(dev->iwdev);
free_dev:
	free(dev);
	return err;
}

static bool wanted(const struct iwcm_ctx *ctx, const struct net_iface *iface)
{
	char key[IFNAMSIZ + 3];

	if (!ctx->host && iface->loopback)
		return false;
	if (!ctx->names)
		return true;
	snprintf(key, sizeof(key), ",%s,", iface->name);
	return strstr(ctx->names, key);
}

/* Called with dev_lock held. */
static int add_if_wanted(struct iwcm_ctx *ctx, const struct net_iface *iface)
{
	struct net_iface base;

	base_iface(ctx, iface, &base);
	if (base.ifindex != iface->ifindex || !wanted(ctx, iface) || find_index(ctx, iface->ifindex))
		return 0;
	return dev_add(ctx, iface);
}

/* All interfaces there are; *@out is the caller's to free. */
static int list_ifaces(struct iwcm_ctx *ctx, struct net_iface **out, size_t *count)
{
	size_t room = 16, n;
	struct net_iface *list;

	for (;;) {
		list = calloc(room, sizeof(*list));
		if (!list)
			return -ENOMEM;
		n = net_ifaces(ctx->net, list, room);
		if (n <= room)
			break;
		free(list);
		room = n + 8;
	}
	*out = list;
	*count = n;
	return 0;
}

int iwcm_dev_add_all(struct iwcm_ctx *ctx)
{
	struct net_iface *list;
	size_t i, n;
	int err = list_ifaces(ctx, &list, &n);

	if (err)
		return err;
	pthread_mutex_lock(&ctx->dev_lock);
	for (i = 0; i < n && !err; i++)
		err = add_if_wanted(ctx, &list[i]);
	pthread_mutex_unlock(&ctx->dev_lock);
	free(list);
	return err;
}

/* ---- going ---- */

static void stats_add(struct iwcm_stats *sum, const struct cm_stats *s)
{
	sum->connects += s->connects;
	sum->accepts += s->accepts;
	sum->rejects += s->rejects;
	sum->established_active += s->established_active;
	sum->established_passive += s->established_passive;
	sum->connect_errors += s->connect_errs;
	sum->passive_errors += s->passive_errs;
	sum->retransmits += s->retransmits;
	sum->backlog_drops += s->backlog_drops;
	sum->half_open_evicted += s->half_open_evicted;
	sum->silent_evicted += s->silent_evicted;
	sum->cookies_sent += s->cookies_sent;
	sum->cookies_accepted += s->cookies_accepted;
	sum->cookies_bad += s->cookies_bad;
	sum->loopbacks += s->loopbacks;
	sum->nodes_now += s->nodes_now;
	sum->listeners_now += s->listeners_now;
}

/* What has been counted stays counted; what is there now goes. */
static void keep_stats(struct iwcm_dev *dev)
{
	struct cm_stats s;

	cm_get_stats(dev->iwdev, &s);
	s.nodes_now = s.listeners_now = 0;
	pthread_mutex_lock(&dev->ctx->dev_lock);
	stats_add(&dev->ctx->past, &s);
	pthread_mutex_unlock(&dev->ctx->dev_lock);
}

/* Nobody holds it, it is on no list: the loop's thread, or no thread runs the loop. */
static void reap(struct iwcm_dev *dev)
{
	struct iwcm_ctx *ctx = dev->ctx;

	log_info("iwcm", "%s is gone", dev->iwdev->name);
	keep_stats(dev);
	irdma_cleanup_cm_core(dev->iwdev->cm_core);
	unobserve(dev);
	rnic_device_destroy(dev->iwdev);
	free(dev);
	__atomic_fetch_sub(&ctx->live_devs, 1, __ATOMIC_RELEASE);
}

/* Ids that are on this device, but have no connection, fail; returns how many references they gave back. */
static u32 fail_ids(struct iwcm_dev *dev)
{
	u32 mask = BIT(IWCM_ID_BOUND) | BIT(IWCM_ID_RESOLVED) | BIT(IWCM_ID_LISTENING), n = 0;
	struct iwcm_id *id;

	iwcm_lock(dev->ctx);
	__atomic_store_n(&dev->removed, true, __ATOMIC_SEQ_CST);
	TAILQ_FOREACH(id, &dev->ctx->ids, entry) {
		if (id->dev != dev || !(mask & BIT(id->state)))
			continue;
		id->dev = NULL;
		id->gone = true;
		iwcm_id_set_state(id, IWCM_ID_FAILED);
		iwcm_post(id, IWCM_EVENT_DEVICE_REMOVED, -ENODEV, CM_CAUSE_LOCAL);
		n++;
	}
	iwcm_unlock(dev->ctx);
	return n;
}

/* Called with dev_lock held, which it gives up. */
static void dev_remove(struct iwcm_dev *dev)
{
	struct iwcm_ctx *ctx = dev->ctx;
	u32 n;

	TAILQ_REMOVE(&ctx->devs, dev, entry);
	n = fail_ids(dev);
	iwcm_children_part(dev);
	if (ctx->dev_watch)
		ctx->dev_watch(ctx->dev_watch_arg, dev->iwdev, false);
	pthread_mutex_unlock(&ctx->dev_lock);
	irdma_if_notify(dev->iwdev, &dev->iwdev->iface, NULL, true, false); /* addresses that went before were told of before */
	while (n--)
		iwcm_dev_put(dev);
	iwcm_dev_put(dev);
}

bool iwcm_dev_gone(const struct iwcm_dev *dev)
{
	return __atomic_load_n(&dev->removed, __ATOMIC_SEQ_CST);
}

/* Closing: the ids are destroyed. */
void iwcm_dev_remove_all(struct iwcm_ctx *ctx)
{
	struct iwcm_dev *dev;

	pthread_mutex_lock(&ctx->dev_lock);
	while ((dev = TAILQ_FIRST(&ctx->devs))) {
		dev_remove(dev);
		pthread_mutex_lock(&ctx->dev_lock);
	}
	pthread_mutex_unlock(&ctx->dev_lock);
}

/* ---- what the network tells ---- */

void iwcm_dev_note_missing(struct iwcm_ctx *ctx, int err)
{
	if (err == -ENOMEM || err == -ENOBUFS || err == -EMFILE || err == -ENFILE)
		__atomic_store_n(&ctx->devs_missing, true, __ATOMIC_RELAXED);
}

static void iface_added(struct iwcm_ctx *ctx, const struct net_iface *iface)
{
	int err;

	pthread_mutex_lock(&ctx->dev_lock);
	err = add_if_wanted(ctx, iface);
	pthread_mutex_unlock(&ctx->dev_lock);
	if (!err)
		return;
	log_warn("iwcm", "no NIC on %s: %s", iface->name, strerror(-err));
	iwcm_dev_note_missing(ctx, err);
}

void iwcm_dev_retry(struct iwcm_ctx *ctx)
{
	struct iwcm_dev *dev;

	if (!__atomic_exchange_n(&ctx->devs_missing, false, __ATOMIC_RELAXED))
		return;
	iwcm_dev_note_missing(ctx, iwcm_dev_add_all(ctx));
	pthread_mutex_lock(&ctx->dev_lock);
	TAILQ_FOREACH(dev, &ctx->devs, entry)
		iwcm_children_join(dev);
	pthread_mutex_unlock(&ctx->dev_lock);
}

static void iface_removed(struct iwcm_ctx *ctx, const struct net_iface *iface)
{
	struct iwcm_dev *dev;

	pthread_mutex_lock(&ctx->dev_lock);
	dev = find_index(ctx, iface->ifindex);
	if (dev)
		dev_remove(dev); /* gives the lock up */
	else
		pthread_mutex_unlock(&ctx->dev_lock);
}

static void notify(struct iwcm_ctx *ctx, const struct net_event *e, bool addr, bool up)
{
	struct iwcm_dev *dev = get_for_iface(ctx, &e->iface);
	struct net_addr a = e->addr;

	if (!dev)
		return;
	irdma_if_notify(dev->iwdev, &e->iface, addr ? a.addr : NULL, a.ipv4, up);
	iwcm_dev_put(dev);
}

static void flush_arp(struct irdma_device *iwdev, void *arg)
{
	rnic_arp_flush(iwdev);
}

void iwcm_net_event(struct net_watcher *w, const struct net_event *e)
{
	struct iwcm_ctx *ctx = container_of(w, struct iwcm_ctx, watcher);
	struct net *prev = iwcm_enter(ctx);

	switch (e->type) {
	case NET_IFACE_ADDED:
		iface_added(ctx, &e->iface);
		break;
	case NET_IFACE_REMOVED:
		iface_removed(ctx, &e->iface);
		break;
	case NET_IFACE_UP:
	case NET_IFACE_DOWN:
		notify(ctx, e, false, e->type == NET_IFACE_UP);
		break;
	case NET_ADDR_ADDED:
	case NET_ADDR_REMOVED:
		notify(ctx, e, true, e->type == NET_ADDR_ADDED);
		break;
	case NET_ROUTES_CHANGED:
		iwcm_for_each_device(ctx, flush_arp, NULL);
		break;
	}
	iwcm_leave(prev);
}

/* ---- what the user sees ---- */

void iwcm_for_each_device(struct iwcm_ctx *ctx, void (*fn)(struct irdma_device *iwdev, void *arg), void *arg)
{
	struct iwcm_dev *dev;

	pthread_mutex_lock(&ctx->dev_lock);
	TAILQ_FOREACH(dev, &ctx->devs, entry)
		fn(dev->iwdev, arg);
	pthread_mutex_unlock(&ctx->dev_lock);
}

static void look_for_closing(struct irdma_device *iwdev, void *arg)
{
	*(bool *)arg |= rnic_device_is_closing(iwdev);
}

bool iwcm_is_closing(struct iwcm_ctx *ctx)
{
	bool closing = false;

	iwcm_for_each_device(ctx, look_for_closing, &closing);
	return closing || (ctx->host && port_host_unsent(ctx->host));
}

/**
 * iwcm_watch_devices() - be told of NICs that come and go
 * @ctx: context; once
 * @fn: called with the device lock held: at once for those that are there, later from the loop's thread
 * @arg: handed to it
 */
void iwcm_watch_devices(struct iwcm_ctx *ctx, void (*fn)(void *arg, struct irdma_device *iwdev, bool added), void *arg)
{
	struct iwcm_dev *dev;

	pthread_mutex_lock(&ctx->dev_lock);
	ctx->dev_watch = fn;
	ctx->dev_watch_arg = arg;
	TAILQ_FOREACH(dev, &ctx->devs, entry)
		fn(arg, dev->iwdev, true);
	pthread_mutex_unlock(&ctx->dev_lock);
}

/**
 * iwcm_device_get() - keep a NIC
 * @ctx: context
 * @iwdev: one of its NICs, as far as the caller knows
 *
 * Return: @iwdev, which stays until iwcm_device_put() even if its interface goes; NULL if it has gone already.
 */
struct irdma_device *iwcm_device_get(struct iwcm_ctx *ctx, struct irdma_device *iwdev)
{
	struct iwcm_dev *dev;

	pthread_mutex_lock(&ctx->dev_lock);
	TAILQ_FOREACH(dev, &ctx->devs, entry)
		if (dev->iwdev == iwdev)
			break;
	if (dev)
		iwcm_dev_get(dev);
	pthread_mutex_unlock(&ctx->dev_lock);
	return dev ? dev->iwdev : NULL;
}

/**
 * iwcm_device_put() - give a reference of iwcm_device_get() back
 * @ctx: context
 * @iwdev: the NIC
 */
void iwcm_device_put(struct iwcm_ctx *ctx, struct irdma_device *iwdev)
{
	iwcm_dev_put(iwdev->owner);
}

/**
 * iwcm_id_device() - the NIC of an id
 * @id: the id
 *
 * Return: the NIC; NULL: none (yet), a wildcard, or it is gone. It may go unless the caller has a reference on it.
 */
struct irdma_device *iwcm_id_device(struct iwcm_id *id)
{
	struct irdma_device *iwdev;

	iwcm_lock(id->ctx);
	iwdev = id->dev ? id->dev->iwdev : NULL;
	iwcm_unlock(id->ctx);
	return iwdev;
}

static void sum_stats(struct irdma_device *iwdev, void *arg)
{
	struct cm_stats s;

	cm_get_stats(iwdev, &s);
	stats_add(arg, &s);
}

/**
 * iwcm_get_stats() - counters
 * @ctx: context
 * @out: sums over all NICs that the context has or had
 */
void iwcm_get_stats(struct iwcm_ctx *ctx, struct iwcm_stats *out)
{
	struct iwcm_stats now = { 0 };

	iwcm_for_each_device(ctx, sum_stats, &now);
	pthread_mutex_lock(&ctx->dev_lock);
	*out = ctx->past;
	pthread_mutex_unlock(&ctx->dev_lock);
	out->connects += now.connects;
	out->accepts += now.accepts;
	out->rejects += now.rejects;
	out->established_active += now.established_active;
	out->established_passive += now.established_passive;
	out->connect_errors += now.connect_errors;
	out->passive_errors += now.passive_errors;
	out->retransmits += now.retransmits;
	out->backlog_drops += now.backlog_drops;
	out->half_open_evicted += now.half_open_evicted;
	out->silent_evicted += now.silent_evicted;
	out->cookies_sent += now.cookies_sent;
	out->cookies_accepted += now.cookies_accepted;
	out->cookies_bad += now.cookies_bad;
	out->loopbacks += now.loopbacks;
	out->nodes_now += now.nodes_now;
	out->listeners_now += now.listeners_now;
}

/* The addresses of an interface and of the VLANs on it. */
static void list_addrs(struct iwcm_ctx *ctx, const struct iwcm_dev *dev, const struct net_addr *all, size_t n,
		       struct iwcm_device *out)
{
	struct net_iface iface;
	union iwcm_addr a;
	size_t i;

	for (i = 0; i < n; i++) {
		struct iwcm_end e = { .ipv4 = all[i].ipv4, .scope_id = all[i].scope_id };

		if (net_iface_by_index(ctx->net, all[i].ifindex, &iface) || iwcm_dev_for_iface(ctx, &iface) != dev)
			continue;
		if (out->num_addrs < ARRAY_SIZE(out->addr)) {
			memcpy(e.addr, all[i].addr, sizeof(e.addr));
			iwcm_end_format(&e, &a);
			iwcm_addr_store(&a, &out->addr[out->num_addrs]);
		}
		out->num_addrs++;
	}
}

static void describe(struct iwcm_ctx *ctx, const struct iwcm_dev *dev, const struct net_addr *all, size_t n, struct iwcm_device *out)
{
	struct net_iface iface = dev->iwdev->iface;

	if (net_iface_by_index(ctx->net, dev->ifindex, &iface))
		iface.up = false;
	memset(out, 0, sizeof(*out));
	memccpy(out->name, dev->iwdev->name, '\0', sizeof(out->name) - 1);
	memccpy(out->iface, iface.name, '\0', sizeof(out->iface) - 1);
	memcpy(out->mac, iface.mac, sizeof(out->mac));
	out->mtu = iface.mtu;
	out->up = iface.up;
	list_addrs(ctx, dev, all, n, out);
}

static struct net_addr *all_addrs(struct iwcm_ctx *ctx, size_t *count)
{
	struct net_addr *list = NULL;
	size_t room = 0, n;

	while ((n = net_addrs(ctx->net, 0, list, room)) > room) {
		free(list);
		room = n + 8;
		list = calloc(room, sizeof(*list));
		if (!list) {
			n = 0;
			break;
		}
	}
	*count = n;
	return list;
}

/**
 * iwcm_devices() - list the NICs
 * @ctx: context
 * @out: filled in for at most @max
 * @max: room in @out
 *
 * Return: how many there are.
 */
size_t iwcm_devices(struct iwcm_ctx *ctx, struct iwcm_device *out, size_t max)
{
	size_t num_addrs, n = 0;
	struct net_addr *addrs = all_addrs(ctx, &num_addrs);
	struct iwcm_dev *dev;

	pthread_mutex_lock(&ctx->dev_lock);
	TAILQ_FOREACH(dev, &ctx->devs, entry) {
		if (n < max)
			describe(ctx, dev, addrs, num_addrs, &out[n]);
		n++;
	}
	pthread_mutex_unlock(&ctx->dev_lock);
	free(addrs);
	return n;
}
