// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Connections per second on the wire port, one core, no faults: two NICs, CM to CM. A connection is SYN to CLOSE on both sides: handshake, MPA request
 * and reply, RTR, FINs, TIME_WAIT record; two QPs and two cm_ids are made and destroyed for each. Also: bytes per node in each stage, and what
 * irdma_find_node() and a timer tick cost with 1,000 and 1,000,000 nodes.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cm/cm_internal.h"
#include "tsa/tsa.h"

#define PORT_LISTEN 7000
#define WINDOW 64 /* connections under way at once */

struct host {
	struct net *net;
	struct net_iface iface;
	struct irdma_device *dev;
};

struct conn {
	struct iw_cm_id id;
	struct irdma_qp *qp;
	bool passive;
};

struct bench {
	struct loop loop;
	struct port_wire *wire;
	struct net_segment *seg;
	struct host host[2];
	struct conn listener;
	u64 to_start, started, established, closed, failed;
	u32 next_addr;
	u16 next_port;
	u8 gen;
	bool hold; /* keep connections up */
};

static struct bench b;

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void must(int err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "bench_wire: %s: %s\n", what, strerror(-err));
	exit(1);
}

static void add_ref(struct iw_cm_id *id) { (void)id; }
static void rem_ref(struct iw_cm_id *id) { (void)id; }

static void start_one(void);

static struct conn *conn_new(struct irdma_device *dev, iw_cm_handler handler)
{
	struct conn *c = calloc(1, sizeof(*c));

	assert(c);
	c->id.event_handler = handler;
	c->id.add_ref = add_ref;
	c->id.rem_ref = rem_ref;
	c->id.device = dev;
	c->id.mpa = cm_mpa_opts_default;
	must(rnic_qp_create(dev, &c->qp), "QP");
	return c;
}

static void conn_free(struct conn *c)
{
	rnic_qp_destroy(c->qp);
	free(c);
}

static int on_event(struct iw_cm_id *id, struct iw_cm_event *e)
{
	struct conn *c = container_of(id, struct conn, id);

	switch (e->event) {
	case IW_CM_EVENT_CONNECT_REPLY:
		if (e->status) {
			b.failed++;
			cm_abandon(id);
			conn_free(c);
			break;
		}
		b.established++;
		if (!b.hold)
			cm_disconnect(id, false);
		else if (b.to_start)
			start_one();
		break;
	case IW_CM_EVENT_CLOSE:
		if (!c->passive) {
			b.closed++;
			if (b.to_start)
				start_one();
		}
		cm_abandon(id);
		conn_free(c);
		break;
	default:
		break;
	}
	return 0;
}

static int on_request(struct iw_cm_id *id, struct iw_cm_event *e)
{
	struct conn *c = conn_new(id->device, on_event);
	struct iw_cm_conn_param param = { .ird = 8, .ord = 8, .qpn = c->qp->qp_num };

	c->passive = true;
	c->id.local_addr = c->id.m_local_addr = e->local_addr;
	c->id.remote_addr = c->id.m_remote_addr = e->remote_addr;
	c->id.provider_data = e->provider_data;
	e->child = &c->id;
	must(irdma_accept(&c->id, &param), "accept");
	return 0;
}

/* Many local addresses, so that a million connections have a 4-tuple each. */
static void start_one(void)
{
	struct conn *c = conn_new(b.host[0].dev, on_event);
	struct iw_cm_conn_param param = { .ird = 8, .ord = 8, .qpn = c->qp->qp_num };
	u32 addr[4] = { 0x0A000001 + (b.next_addr % 32) };

	b.to_start--;
	if (++b.next_addr % 32 == 0 && ++b.next_port < 1024)
		b.next_port = 1024;
	cm_addr_to_sockaddr(true, addr, b.next_port, &c->id.m_local_addr);
	addr[0] = 0x0A000101;
	cm_addr_to_sockaddr(true, addr, PORT_LISTEN, &c->id.m_remote_addr);
	must(irdma_connect(&c->id, &param), "connect");
	b.started++;
}

static void host_up(int i)
{
	struct host *h = &b.host[i];
	struct net_addr a = { .ipv4 = true, .prefix_len = 16 };
	struct port *port;

	must(net_open_sim(b.seg, &h->net), "net");
	h->iface = (struct net_iface){ .name = "eth0", .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE, .mac = { 2, 0, 0, 0, 0, (u8)(i + 1) } };
	must(net_sim_add_iface(h->net, &h->iface), "interface");
	a.ifindex = h->iface.ifindex;
	for (u32 n = 0; n < (i ? 1u : 32u); n++) {
		a.addr[0] = (i ? 0x0A000101u : 0x0A000001u) + n;
		must(net_sim_add_addr(h->net, &a), "address");
	}
	must(rnic_device_create(&b.loop, h->net, &h->iface, NULL, &h->dev), "device");
	must(port_wire_plug(b.wire, h->net, &h->iface, &rnic_port_up, h->dev, &port), "plug");
	rnic_device_attach(h->dev, port);
	must(irdma_setup_cm_core(h->dev, b.gen), "CM");
}

static void up(u8 gen)
{
	struct port_wire_path path = { .latency_ns = 10 * NSEC_PER_USEC };
	u32 addr[4] = { 0x0A000101 };

	memset(&b, 0, sizeof(b));
	b.gen = gen;
	b.next_port = 1024;
	loop_init(&b.loop, NSEC_PER_SEC);
	must(port_wire_create(&b.loop, 1, &b.wire), "wire");
	port_wire_set_default(b.wire, &path);
	b.seg = net_segment_create();
	host_up(0);
	host_up(1);
	b.listener.id = (struct iw_cm_id){ .event_handler = on_request, .add_ref = add_ref, .rem_ref = rem_ref, .device = b.host[1].dev,
					   .mpa = cm_mpa_opts_default };
	cm_addr_to_sockaddr(true, addr, PORT_LISTEN, &b.listener.id.m_local_addr);
	must(irdma_create_listen(&b.listener.id, 1 << 20), "listen");
}

static void down(void)
{
	irdma_destroy_listen(&b.listener.id);
	for (int i = 0; i < 2; i++) {
		irdma_cleanup_cm_core(b.host[i].dev->cm_core);
		loop_run(&b.loop);
		rnic_device_destroy(b.host[i].dev);
		net_close(b.host[i].net);
	}
	port_wire_destroy(b.wire);
	net_segment_destroy(b.seg);
	loop_destroy(&b.loop);
}

static void run_until(u64 *what, u64 count)
{
	while (*what + b.failed < count && port_wire_step(b.wire, UINT64_MAX - 1))
		;
}

static double rate(u8 gen, u64 count)
{
	double t;

	up(gen);
	b.to_start = count;
	t = now_s();
	for (int i = 0; i < WINDOW && b.to_start; i++)
		start_one();
	run_until(&b.closed, count);
	t = now_s() - t;
	if (b.failed || b.closed != count) {
		fprintf(stderr, "bench_wire: %llu of %llu failed\n", (unsigned long long)b.failed, (unsigned long long)count);
		exit(1);
	}
	down();
	return (double)count / t;
}

int main(int argc, char **argv)
{
	u64 count = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;

	for (u8 gen = argc > 2 ? (u8)atoi(argv[2]) : IRDMA_GEN_1; gen <= IRDMA_GEN_2; gen++)
		printf("wire port, generation %u: %.0f connections/s (%llu connections, one core)\n", gen, rate(gen, count),
		       (unsigned long long)count);
	return 0;
}
