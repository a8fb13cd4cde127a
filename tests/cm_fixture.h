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
#include "capture_dir.h"

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

static inline void fx_add_ref(struct iw_cm_id *id)
{
	container_of(id, struct endpoint, id)->refs++;
}

static inline void fx_rem_ref(struct iw_cm_id *id)
{
	struct endpoint *ep = container_of(id, struct endpoint, id);

	assert_true(ep->refs > 0);
	ep->refs--;
}

static inline int fx_handler(struct iw_cm_id *id, struct iw_cm_event *e)
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

static inline void fx_addr(bool ipv4, int host, u32 addr[4])
{
	memset(addr, 0, 16);
	if (ipv4) {
		addr[0] = 0x0A000001u + (u32)host;
	} else {
		addr[0] = 0xFD000000u;
		addr[3] = 1u + (u32)host;
	}
}

static inline void fx_host_up(struct fx *fx, int i)
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
	if (i == 0 && test_capture_open())
		port_capture_attach(test_capture.pcap, port);
	assert_int_equal(irdma_setup_cm_core(h->dev, fx->gen), 0);
}

static inline void fx_up(struct fx *fx, u8 gen, u64 seed)
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
static inline void fx_down(struct fx *fx)
{
	for (int i = 0; i < FX_HOSTS; i++) {
		struct fx_host *h = &fx->host[i];

		irdma_cleanup_cm_core(h->dev->cm_core);
		loop_run(&fx->loop);
		if (i == 0)
			test_capture_close();
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
static inline void fx_run(struct fx *fx, u64 ms)
{
	port_wire_run(fx->wire, loop_now(&fx->loop) + ms * NSEC_PER_MSEC);
}

static inline void ep_init(struct endpoint *ep, struct fx *fx, int host)
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
static inline void ep_fini(struct fx *fx, struct endpoint *ep)
{
	cm_abandon(&ep->id);
	if (ep->qp)
		rnic_qp_destroy(ep->qp);
	ep->qp = NULL;
	loop_run(&fx->loop);
	assert_int_equal(ep->refs, 0);
}

static inline void ep_listen_at(struct endpoint *ep, bool ipv4, const u32 *addr, u16 port)
{
	cm_addr_to_sockaddr(ipv4, addr, port, &ep->id.m_local_addr);
	ep->id.local_addr = ep->id.m_local_addr;
	assert_int_equal(irdma_create_listen(&ep->id, 16), 0);
}

static inline void ep_listen(struct fx *fx, struct endpoint *ep, int host, bool ipv4, u16 port)
{
	u32 addr[4];

	(void)fx;
	fx_addr(ipv4, host, addr);
	ep_listen_at(ep, ipv4, addr, port);
}

static inline int ep_connect(struct endpoint *ep, int from, int to, bool ipv4, u16 loc_port, u16 rem_port)
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

/* ---- a peer played by the test: host 1, whose NIC is off; what it says is fed into host 0's ILQ ---- */

static inline void fx_silence(struct fx *fx)
{
	port_wire_set_link(fx->host[1].dev->port, false);
}

#define FX_FRAMES 64

/* What a NIC sends; every frame has been through pkt_parse() with its checksums checked. */
struct fx_tap {
	struct port_tap tap;
	struct port *port;
	u32 n;
	struct fx_frame {
		u64 at_ns;
		struct pkt pkt;
		u8 bytes[PKT_HDR_MAX + PKT_TCP_LEN + PKT_TCP_OPT_MAX + MPA_START_FRAME_MAX + 64];
	} f[FX_FRAMES];
};

static inline void fx_tap_frame(struct port_tap *tap, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	struct fx_tap *t = container_of(tap, struct fx_tap, tap);
	struct fx_frame *f = &t->f[t->n];

	(void)port;
	if (!out)
		return;
	assert_true(t->n < FX_FRAMES && p->framelen <= sizeof(f->bytes));
	memcpy(f->bytes, p->frame, p->framelen);
	assert_int_equal(pkt_parse(f->bytes, p->framelen, true, &f->pkt), PKT_OK);
	f->at_ns = now_ns;
	t->n++;
}

static inline void fx_tap_on(struct fx *fx, int host, struct fx_tap *t)
{
	t->n = 0;
	t->port = fx->host[host].dev->port;
	t->tap.frame = fx_tap_frame;
	port_tap_add(t->port, &t->tap);
}

static inline void fx_tap_off(struct fx_tap *t)
{
	port_tap_del(t->port, &t->tap);
}

static inline const struct pkt *fx_last(const struct fx_tap *t)
{
	assert_true(t->n > 0);
	return &t->f[t->n - 1].pkt;
}

struct fx_seg {
	u8 flags;
	u32 seq, ack;
	u16 window;
	const void *opts, *data;
	u32 optlen, len;
};

/* A segment into the ILQ of @dev; its bytes end where their memory ends. @t as the NIC sees it. */
static inline void fx_feed(struct irdma_device *dev, const struct pkt_tuple *t, const struct fx_seg *s)
{
	u32 hdrlen = PKT_TCP_LEN + s->optlen;
	u8 *p = malloc(hdrlen + s->len);
	struct port_rx rx = { .error = 0 };
	struct tcphdr h = {
		.source = __builtin_bswap16(t->rem_port), .dest = __builtin_bswap16(t->loc_port),
		.seq = __builtin_bswap32(s->seq), .ack_seq = __builtin_bswap32(s->ack),
		.window = __builtin_bswap16(s->window), .doff = hdrlen / 4,
	};

	assert_non_null(p);
	h.th_flags = s->flags;
	memcpy(p, &h, sizeof(h));
	if (s->optlen)
		memcpy(p + PKT_TCP_LEN, s->opts, s->optlen);
	if (s->len)
		memcpy(p + hdrlen, s->data, s->len);
	test_capture_feed(dev->port, t, p, hdrlen + s->len);
	assert_int_equal(pkt_parse_segment(p, hdrlen + s->len, t, &rx.pkt), PKT_OK);
	assert_true(rnic_ilq_receive(dev, &rx));
	free(p);
}

#define FX_PEER_ISS 0x70000000u

struct fx_peer {
	struct irdma_device *dev;
	struct irdma_cm_node *node; /* held until fx_peer_done() */
	struct pkt_tuple t;
	u32 seq;                    /* next */
};

/* The next segment of the peer; acknowledges all that the node sent. */
static inline void fx_peer_send(struct fx_peer *p, u8 flags, const void *data, u32 len)
{
	struct fx_seg s = { .flags = flags, .seq = p->seq, .ack = p->node->tcp_cntxt.loc_seq_num, .window = 8192, .data = data, .len = len };

	p->seq += len + !!(flags & PKT_SYN) + !!(flags & PKT_FIN);
	fx_feed(p->dev, &p->t, &s);
}

static inline void fx_peer_tuple(struct fx_peer *p, struct fx *fx, bool ipv4, u16 loc_port, u16 rem_port)
{
	*p = (struct fx_peer){ .dev = fx->host[0].dev, .seq = FX_PEER_ISS };
	p->t = (struct pkt_tuple){ .ipv4 = ipv4, .vlan_id = PKT_VLAN_NONE, .loc_port = loc_port, .rem_port = rem_port };
	fx_addr(ipv4, 0, p->t.loc_addr);
	fx_addr(ipv4, 1, p->t.rem_addr);
}

static inline void fx_peer_find(struct fx_peer *p)
{
	p->node = irdma_find_node(p->dev->cm_core, p->t.rem_port, p->t.rem_addr, p->t.loc_port, p->t.loc_addr, p->t.vlan_id);
	assert_non_null(p->node);
}

/* @ep of host 0 connects; the peer's SYN+ACK came: the node is in MPAREQ_SENT. */
static inline void fx_peer_active(struct fx_peer *p, struct fx *fx, struct endpoint *ep, bool ipv4, u16 loc_port)
{
	fx_peer_tuple(p, fx, ipv4, loc_port, 7000);
	assert_int_equal(ep_connect(ep, 0, 1, ipv4, loc_port, 7000), 0);
	fx_peer_find(p);
	fx_peer_send(p, PKT_SYN | PKT_ACK, NULL, 0);
	assert_int_equal(p->node->state, IRDMA_CM_STATE_MPAREQ_SENT);
}

/* The peer's SYN came to a listener on host 0's port 7000: the node is in SYN_RCVD. */
static inline void fx_peer_syn(struct fx_peer *p, struct fx *fx, bool ipv4, u16 rem_port)
{
	struct fx_seg syn = { .flags = PKT_SYN, .seq = FX_PEER_ISS, .window = 8192 };

	fx_peer_tuple(p, fx, ipv4, 7000, rem_port);
	fx_feed(p->dev, &p->t, &syn);
	fx_peer_find(p);
	p->seq++;
}

/* ... and its ACK: the node is ESTABLISHED. */
static inline void fx_peer_passive(struct fx_peer *p, struct fx *fx, bool ipv4, u16 rem_port)
{
	fx_peer_syn(p, fx, ipv4, rem_port);
	fx_peer_send(p, PKT_ACK, NULL, 0);
	assert_int_equal(p->node->state, IRDMA_CM_STATE_ESTABLISHED);
}

static inline void fx_peer_done(struct fx_peer *p)
{
	irdma_rem_ref_cm_node(p->node);
}

/* A bare node of host 0 towards host 1, in INITED, with the options of @cm_id (NULL: default); cm_node_end() is its end. */
static inline struct irdma_cm_node *fx_node(struct fx *fx, struct iw_cm_id *cm_id, bool ipv4, u16 loc_port, u16 rem_port)
{
	struct irdma_cm_info info = { .cm_id = cm_id, .ipv4 = ipv4, .vlan_id = PKT_VLAN_NONE, .loc_port = loc_port, .rem_port = rem_port };
	struct irdma_device *dev = fx->host[0].dev;
	struct net *prev = net_enter(dev->net);
	struct irdma_cm_node *node;

	fx_addr(ipv4, 0, info.loc_addr);
	fx_addr(ipv4, 1, info.rem_addr);
	node = irdma_make_cm_node(dev->cm_core, dev, &info, NULL);
	net_enter(prev);
	return node;
}

/* Buffers and nodes out, of host 0. */
static inline size_t fx_bufs(const struct fx *fx)
{
	return fx->host[0].dev->vsi.small.used + fx->host[0].dev->vsi.large.used;
}

static inline struct cm_stats fx_stats(const struct fx *fx, int host)
{
	struct cm_stats st;

	cm_get_stats(fx->host[host].dev, &st);
	return st;
}

#endif
