/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two hosts, or more, with one NIC each on a wire, and a bare CM on each: what the tests of the CM stand on. The upper layer is here: a
 * struct endpoint is a cm_id that records its events.
 *
 *   host 0: 10.0.0.1, fd00::1     host 1: 10.0.0.2, fd00::2     ...
 */
#ifndef UWARP_TESTS_CM_FIXTURE_H
#define UWARP_TESTS_CM_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cm/cm_internal.h"

#define FX_HOSTS 3
#define FX_EVENTS 16

struct fx_host {
	struct net *net;
	struct net_iface iface;
	struct irdma_device *dev;
};

struct fx {
	struct loop loop;
	struct port_wire *wire;
	struct net_segment *seg;
	struct fx_host host[FX_HOSTS];
	u8 gen;
};

/* A cm_id with a memory. */
struct endpoint {
	struct iw_cm_id id;
	struct irdma_qp *qp;
	int refs;
	int nevents;
	struct iw_cm_event ev[FX_EVENTS];
	u8 pdata[FX_EVENTS][512];
	/* a listener's: what to do with requests */
	struct endpoint *child;   /* taken for the next request; NULL: refuse */
	bool accept_inside;       /* accept in the upcall */
	struct iw_cm_conn_param param;
};

static void fx_add_ref(struct iw_cm_id *id)
{
	container_of(id, struct endpoint, id)->refs++;
}

static void fx_rem_ref(struct iw_cm_id *id)
{
	struct endpoint *ep = container_of(id, struct endpoint, id);

	assert_true(ep->refs > 0);
	ep->refs--;
}

static int fx_handler(struct iw_cm_id *id, struct iw_cm_event *e)
{
	struct endpoint *ep = container_of(id, struct endpoint, id);

	assert_true(ep->nevents < FX_EVENTS);
	ep->ev[ep->nevents] = *e;
	if (e->private_data_len)
		memcpy(ep->pdata[ep->nevents], e->private_data, e->private_data_len);
	ep->nevents++;
	if (e->event != IW_CM_EVENT_CONNECT_REQUEST)
		return 0;
	if (!ep->child)
		return -ECONNREFUSED;
	ep->child->id.device = id->device;
	ep->child->id.mpa = id->mpa;
	ep->child->id.local_addr = ep->child->id.m_local_addr = e->local_addr;
	ep->child->id.remote_addr = ep->child->id.m_remote_addr = e->remote_addr;
	ep->child->id.provider_data = e->provider_data;
	e->child = &ep->child->id;
	if (ep->accept_inside) {
		ep->param.qpn = ep->child->qp->qp_num;
		assert_int_equal(irdma_accept(&ep->child->id, &ep->param), 0);
	}
	return 0;
}

static void fx_addr(bool ipv4, int host, u32 addr[4])
{
	memset(addr, 0, 16);
	if (ipv4) {
		addr[0] = 0x0A000001u + (u32)host;
	} else {
		addr[0] = 0xFD000000u;
		addr[3] = 1u + (u32)host;
	}
}

static void fx_host_up(struct fx *fx, int i)
{
	struct fx_host *h = &fx->host[i];
	struct net_addr a = { 0 };
	struct port *port;

	assert_int_equal(net_open_sim(fx->seg, &h->net), 0);
	h->iface = (struct net_iface){ .name = "eth0", .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE,
				       .mac = { 2, 0, 0, 0, 0, (u8)(i + 1) } };
	assert_int_equal(net_sim_add_iface(h->net, &h->iface), 0);
	for (int v4 = 0; v4 < 2; v4++) {
		a.ifindex = h->iface.ifindex;
		a.ipv4 = v4;
		a.prefix_len = v4 ? 24 : 64;
		fx_addr(v4, i, a.addr);
		assert_int_equal(net_sim_add_addr(h->net, &a), 0);
	}
	assert_int_equal(rnic_device_create(&fx->loop, h->net, &h->iface, NULL, &h->dev), 0);
	assert_int_equal(port_wire_plug(fx->wire, h->net, &h->iface, &rnic_port_up, h->dev, &port), 0);
	rnic_device_attach(h->dev, port);
	assert_int_equal(irdma_setup_cm_core(h->dev, fx->gen), 0);
}

static void fx_up(struct fx *fx, u8 gen, u64 seed)
{
	memset(fx, 0, sizeof(*fx));
	fx->gen = gen;
	rand_set_seed(seed);
	loop_init(&fx->loop, NSEC_PER_SEC);
	assert_int_equal(port_wire_create(&fx->loop, seed, &fx->wire), 0);
	fx->seg = net_segment_create();
	assert_non_null(fx->seg);
	for (int i = 0; i < FX_HOSTS; i++)
		fx_host_up(fx, i);
}

/* Takes everything down and asserts that nothing is left. */
static void fx_down(struct fx *fx)
{
	for (int i = 0; i < FX_HOSTS; i++) {
		struct fx_host *h = &fx->host[i];

		irdma_cleanup_cm_core(h->dev->cm_core);
		loop_run(&fx->loop);
		assert_int_equal(rnic_apbvt_count(h->dev), 0);
		assert_int_equal(h->dev->vsi.small.used + h->dev->vsi.large.used, 0);
		rnic_device_destroy(h->dev);
		net_close(h->net);
	}
	port_wire_destroy(fx->wire);
	net_segment_destroy(fx->seg);
	loop_destroy(&fx->loop);
	rand_unset_seed();
}

/* Run for at most @ms of virtual time. */
static void fx_run(struct fx *fx, u64 ms)
{
	port_wire_run(fx->wire, loop_now(&fx->loop) + ms * NSEC_PER_MSEC);
}

static void ep_init(struct endpoint *ep, struct fx *fx, int host)
{
	memset(ep, 0, sizeof(*ep));
	ep->id.event_handler = fx_handler;
	ep->id.add_ref = fx_add_ref;
	ep->id.rem_ref = fx_rem_ref;
	ep->id.device = fx->host[host].dev;
	ep->id.mpa = cm_mpa_opts_default;
	assert_int_equal(rnic_qp_create(ep->id.device, &ep->qp), 0);
	ep->param.qpn = ep->qp->qp_num;
	ep->param.ird = ep->param.ord = 8;
}

/* The upper layer lets go of everything; nothing of the CM refers to it any more. */
static void ep_fini(struct fx *fx, struct endpoint *ep)
{
	cm_abandon(&ep->id);
	if (ep->qp)
		rnic_qp_destroy(ep->qp);
	ep->qp = NULL;
	loop_run(&fx->loop);
	assert_int_equal(ep->refs, 0);
}

static void ep_listen_at(struct endpoint *ep, bool ipv4, const u32 *addr, u16 port)
{
	cm_addr_to_sockaddr(ipv4, addr, port, &ep->id.m_local_addr);
	ep->id.local_addr = ep->id.m_local_addr;
	assert_int_equal(irdma_create_listen(&ep->id, 16), 0);
}

static void ep_listen(struct fx *fx, struct endpoint *ep, int host, bool ipv4, u16 port)
{
	u32 addr[4];

	(void)fx;
	fx_addr(ipv4, host, addr);
	ep_listen_at(ep, ipv4, addr, port);
}

static int ep_connect(struct endpoint *ep, int from, int to, bool ipv4, u16 loc_port, u16 rem_port)
{
	u32 addr[4];

	fx_addr(ipv4, from, addr);
	cm_addr_to_sockaddr(ipv4, addr, loc_port, &ep->id.m_local_addr);
	fx_addr(ipv4, to, addr);
	cm_addr_to_sockaddr(ipv4, addr, rem_port, &ep->id.m_remote_addr);
	ep->id.local_addr = ep->id.m_local_addr;
	ep->id.remote_addr = ep->id.m_remote_addr;
	return irdma_connect(&ep->id, &ep->param);
}

static inline struct irdma_cm_node *ep_node(struct endpoint *ep)
{
	return ep->id.provider_data;
}

#endif
