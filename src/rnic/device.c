/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The device: one NIC on one interface, between its port and the CM. */
#include <stdio.h>
#include <stdlib.h>
#include "rnic/rnic_internal.h"

#define DEFAULT_IRD 128
#define DEFAULT_ORD 128
#define DEFAULT_ILQ_BUFS (1u << 20)
#define FIRST_QPN 2 /* 0 and 1 are the management QPs' of other fabrics */

static bool up_rx(void *ctx, const struct port_rx *rx)
{
	return rnic_ilq_receive(ctx, rx);
}

static bool up_may_accept(void *ctx, struct port_filter *f, void *filter_cookie)
{
	struct irdma_device *iwdev = ctx;
	const struct rnic_cm_ops *ops = iwdev->cm_ops;
	struct net *prev;
	bool yes;

	if (!ops || !ops->may_accept)
		return false;
	prev = net_enter(iwdev->net);
	yes = ops->may_accept(iwdev, filter_cookie);
	net_enter(prev);
	return yes;
}

const struct port_up rnic_port_up = {
	.rx = up_rx,
	.may_accept = up_may_accept,
};

static void init_limits(struct rnic_limits *l, const struct rnic_limits *wanted)
{
	*l = wanted ? *wanted : (struct rnic_limits){ 0 };
	if (!l->max_ird)
		l->max_ird = DEFAULT_IRD;
	if (!l->max_ord)
		l->max_ord = DEFAULT_ORD;
	if (!l->ilq_bufs)
		l->ilq_bufs = DEFAULT_ILQ_BUFS;
}

static void init_vsi(struct irdma_device *dev)
{
	dev->vsi.back = dev;
	pool_init(&dev->vsi.small, sizeof(struct irdma_puda_buf) + RNIC_SMALL_BUF, dev->limits.ilq_bufs);
	pool_init(&dev->vsi.large, sizeof(struct irdma_puda_buf) + RNIC_LARGE_BUF, dev->limits.ilq_bufs);
}

static int init_tables(struct irdma_device *dev)
{
	if (hash_init(&dev->qps, NULL))
		return -ENOMEM;
	if (hash_init(&dev->arp, NULL))
		goto destroy_qps;
	if (hash_init(&dev->apbvt, NULL))
		goto destroy_arp;
	if (rnic_stag_table_init(&rnic_device_of(dev)->stags))
		goto destroy_apbvt;
	return 0;

destroy_apbvt:
	hash_destroy(&dev->apbvt);
destroy_arp:
	hash_destroy(&dev->arp);
destroy_qps:
	hash_destroy(&dev->qps);
	return -ENOMEM;
}

/**
 * rnic_device_create() - a NIC on an interface
 * @loop: its loop
 * @net: the host it is in
 * @iface: the interface
 * @limits: NULL, or 0 in a field: the default
 * @out: the device
 *
 * It is not plugged in: the caller makes a port with &rnic_port_up and the device as its up side, and gives it to
 * rnic_device_attach().
 *
 * Return: 0, or -ENOMEM.
 */
int rnic_device_create(struct loop *loop, struct net *net, const struct net_iface *iface, const struct rnic_limits *limits,
		       struct irdma_device **out)
{
	struct rnic_device *d = calloc(1, sizeof(*d));
	struct irdma_device *dev;

	if (!d)
		return -ENOMEM;
	dev = &d->dev;
	if (init_tables(dev)) {
		free(d);
		return -ENOMEM;
	}
	snprintf(dev->name, sizeof(dev->name), "uwarp_%s", iface->name);
	dev->loop = loop;
	dev->net = net;
	dev->iface = *iface;
	dev->next_qpn = FIRST_QPN;
	init_limits(&dev->limits, limits);
	init_vsi(dev);
	pool_init(&d->qp_pool, sizeof(struct rnic_qp), 0);
	pool_init(&d->apbvt_pool, sizeof(struct apbvt_entry), 0);
	workq_init(&d->wq, loop);
	rnic_lease_init(d);
	*out = dev;
	return 0;
}

/**
 * rnic_device_attach() - plug the device in
 * @iwdev: the device
 * @port: its port, which the device unplugs in the end
 */
void rnic_device_attach(struct irdma_device *iwdev, struct port *port)
{
	iwdev->port = port;
}

/* References that closed streams left behind; the loop does not run any more. */
static void drain_work(struct rnic_device *d)
{
	struct work_struct *w;

	while ((w = TAILQ_FIRST(&d->wq.items))) {
		workq_cancel(w);
		w->func(w);
	}
}

static void expect_empty(const struct irdma_device *dev, const char *what, size_t count)
{
	if (count)
		log_error(ROOM, "%s: destroyed with %zu %s left", dev->name, count, what);
	assert(count == 0);
}

/**
 * rnic_device_destroy() - unplug and free a NIC
 * @iwdev: the device; its QPs, filters, address handles and port reservations are gone (logged and asserted), and
 *         its loop is this thread's or nobody's
 */
void rnic_device_destroy(struct irdma_device *iwdev)
{
	struct rnic_device *d = rnic_device_of(iwdev);

	drain_work(d);
	expect_empty(iwdev, "QPs", d->qps_created - __atomic_load_n(&d->qps_freed, __ATOMIC_ACQUIRE));
	expect_empty(iwdev, "CQs", __atomic_load_n(&d->cqs, __ATOMIC_ACQUIRE));
	expect_empty(iwdev, "protection domains", __atomic_load_n(&d->pds, __ATOMIC_ACQUIRE));
	expect_empty(iwdev, "port reservations", iwdev->apbvt.count);
	expect_empty(iwdev, "ILQ buffers", iwdev->vsi.small.used + iwdev->vsi.large.used);
	if (iwdev->port)
		iwdev->port->ops->unplug(iwdev->port);
	rnic_arp_flush(iwdev);
	rnic_stag_table_destroy(&d->stags);
	hash_destroy(&iwdev->apbvt);
	hash_destroy(&iwdev->arp);
	hash_destroy(&iwdev->qps);
	pool_destroy(&iwdev->vsi.large);
	pool_destroy(&iwdev->vsi.small);
	pool_destroy(&d->apbvt_pool);
	pool_destroy(&d->qp_pool);
	rnic_lease_destroy(d);
	free(d);
}
