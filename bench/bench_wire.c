// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The wire port, one core, no faults: two NICs, CM to CM.
 *
 * Connections per second: a connection is SYN to TIME_WAIT on both sides, with MPA request and reply, RTR and FINs; two QPs and two
 * cm_ids are made and destroyed for each. Per second of the clock, and of this process's CPU time: machines are shared.
 *
 * Bytes per connection, both ends, while many are being set up, are established, or are in TIME_WAIT: what malloc gave out (slabs of
 * pools included) and the arrays of the hash tables; not the benchmark's own cm_ids.
 *
 * What irdma_find_node() and irdma_cm_timer_tick() cost with 1,000 and 1,000,000 nodes.
 */
#include <assert.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cm/cm_internal.h"
#include "port/wire_internal.h"
#include "tsa/tsa_internal.h"

#define PORT_LISTEN 7000
#define WINDOW 64 /* connections under way at once */
#define MANY 100000 /* connections whose memory is measured */
#define ROUNDS 5 /* the best counts: others use this machine, too */
#define LOOKUPS 200000
#define TICKS 10000

struct host {
	struct net *net;
	struct net_iface iface;
	struct irdma_device *dev;
};

struct conn {
	struct iw_cm_id id;
	struct irdma_qp *qp;
	struct conn *next_free;
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
	struct conn *free_conns;
};

static struct bench b;

static double seconds(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double cpu_s(void) { return seconds(CLOCK_PROCESS_CPUTIME_ID); }

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
	struct conn *c = b.free_conns;

	assert(c);
	b.free_conns = c->next_free;
	memset(c, 0, sizeof(*c));
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
	c->next_free = b.free_conns;
	b.free_conns = c;
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

/* Frames and work of the present moment and what follows, until @what is @count. */
static void run_until(const u64 *what, u64 count)
{
	loop_enter(&b.loop);
	while (*what + b.failed < count && port_wire_step(b.wire, UINT64_MAX - 1))
		;
	loop_leave(&b.loop);
	if (!b.failed && *what == count)
		return;
	fprintf(stderr, "bench_wire: %llu failed, %llu of %llu came\n", (unsigned long long)b.failed, (unsigned long long)*what,
		(unsigned long long)count);
	exit(1);
}

/* Everybody's cm_ids, ahead of what is measured. */
static struct conn *conns_alloc(u64 n)
{
	struct conn *all = calloc(n, sizeof(*all));

	assert(all);
	for (u64 i = 0; i < n; i++) {
		all[i].next_free = b.free_conns;
		b.free_conns = &all[i];
	}
	return all;
}

static void start_some(u64 n)
{
	while (n-- && b.to_start)
		start_one();
}

/* ---- connections per second ---- */

static void rate(u8 gen, u64 count)
{
	struct conn *conns;
	double wall, cpu;

	up(gen);
	conns = conns_alloc(4 * WINDOW);
	b.to_start = count;
	wall = seconds(CLOCK_MONOTONIC);
	cpu = cpu_s();
	start_some(WINDOW);
	run_until(&b.closed, count);
	cpu = cpu_s() - cpu;
	wall = seconds(CLOCK_MONOTONIC) - wall;
	down();
	free(conns);
	printf("wire port, generation %u: %.0f connections/s, %.0f per CPU second (%llu connections, one core)\n", gen, (double)count / wall,
	       (double)count / cpu, (unsigned long long)count);
}

/* ---- bytes per connection ---- */

static size_t array_bytes(const struct hash_table *t)
{
	return (t->mask + 1 + (t->old ? t->old_mask + 1 : 0)) * sizeof(*t->bucket);
}

/* Small arrays are malloc's, and a little is counted twice. */
static size_t bytes_now(void)
{
	struct mallinfo2 m = mallinfo2();
	size_t sum = m.uordblks + m.hblkhd;

	for (int i = 0; i < 2; i++) {
		const struct irdma_device *dev = b.host[i].dev;
		const struct wire_port *p = wire_port_of(dev->port);

		sum += array_bytes(&dev->cm_core->nodes_ht) + array_bytes(&dev->qps) + array_bytes(&dev->apbvt) +
		       array_bytes(&p->quads) + array_bytes(&p->tsa->table);
	}
	return sum;
}

/* SYN+ACKs are lost: SYN_SENT on one side, SYN_RCVD on the other. */
static void set_up_half(void)
{
	struct port_wire_path cut = { .down = true };
	struct cm_stats st;

	port_wire_set_path(b.host[1].dev->port, true, &cut);
	while (b.to_start) {
		start_some(WINDOW);
		while (port_wire_in_flight(b.wire))
			port_wire_step(b.wire, UINT64_MAX - 1);
	}
	cm_get_stats(b.host[1].dev, &st);
	assert(st.half_open_now == MANY);
}

static void set_up_whole(void)
{
	b.hold = true;
	start_some(WINDOW);
	run_until(&b.established, MANY);
	while (port_wire_in_flight(b.wire))
		port_wire_step(b.wire, UINT64_MAX - 1);
}

static void set_up_and_close(void)
{
	size_t records;

	start_some(WINDOW);
	run_until(&b.closed, MANY);
	while (port_wire_in_flight(b.wire))
		port_wire_step(b.wire, UINT64_MAX - 1);
	port_wire_tsa_usage(b.host[0].dev->port, NULL, &records, NULL, NULL);
	assert(records == MANY);
}

static void close_all(struct conn *conns, u64 n)
{
	for (u64 i = 0; i < n; i++) {
		if (!conns[i].qp)
			continue;
		cm_abandon(&conns[i].id);
		rnic_qp_destroy(conns[i].qp);
	}
}

static void memory(u8 gen, const char *stage, void (*reach)(void), bool leaves_conns)
{
	struct conn *conns;
	size_t before, bytes;

	up(gen);
	conns = conns_alloc(2 * MANY + 4 * WINDOW);
	b.to_start = MANY;
	before = bytes_now();
	reach();
	bytes = bytes_now() - before;
	printf("  %-42s %6.0f bytes per connection, %6.0f per end\n", stage, (double)bytes / MANY, (double)bytes / MANY / 2);
	if (leaves_conns)
		close_all(conns, 2 * MANY + 4 * WINDOW);
	down();
	free(conns);
}

/* ---- cost with many nodes ---- */

static void node_info(u32 i, struct irdma_cm_info *info)
{
	*info = (struct irdma_cm_info){ .ipv4 = true, .vlan_id = PKT_VLAN_NONE, .loc_port = (u16)(1024 + i / 32), .rem_port = PORT_LISTEN };
	info->loc_addr[0] = 0x0A000001 + i % 32;
	info->rem_addr[0] = 0x0A000101;
}

/* With deadlines that do not come while we look. */
static void make_nodes(struct irdma_cm_core *core, u32 n)
{
	struct irdma_cm_info info;
	struct irdma_cm_node *node;

	cm_lock(core);
	for (u32 i = 0; i < n; i++) {
		node_info(i, &info);
		node = irdma_make_cm_node(core, core->iwdev, &info, NULL);
		assert(node);
		cm_node_stage(node, 100000 + i % 60000); /* the ticks below take half of that */
	}
	cm_unlock(core);
}

/* Any of the first @n nodes. */
static double find_ns(struct irdma_cm_core *core, u32 n)
{
	struct irdma_cm_info info;
	struct irdma_cm_node *node;
	struct rand_gen gen;
	double t;

	rand_gen_seed(&gen, loop_now(&b.loop) + n);
	cm_lock(core);
	t = cpu_s();
	for (u32 i = 0; i < LOOKUPS; i++) {
		node_info((u32)rand_gen_below(&gen, n), &info);
		node = irdma_find_node(core, info.rem_port, info.rem_addr, info.loc_port, info.loc_addr, info.vlan_id);
		assert(node);
		irdma_rem_ref_cm_node(node);
	}
	t = cpu_s() - t;
	cm_unlock(core);
	return t * 1e9 / LOOKUPS;
}

/* A node in SYN_SENT, whose SYN goes no further than the port: the cable is out. */
static void make_due_node(struct irdma_cm_core *core)
{
	struct irdma_cm_node *node = LIST_FIRST(&core->nodes);

	port_wire_set_link(core->iwdev->port, false);
	cm_lock(core);
	node->neigh_pending = false;
	assert(!irdma_cm_create_ah(node, true));
	cm_node_set_state(node, IRDMA_CM_STATE_SYN_SENT);
	irdma_send_syn(node, 0);
	cm_unlock(core);
}

/* In each tick its SYN is due, and is sent again; arming it for that is in the number. */
static double tick_ns(struct irdma_cm_core *core, u32 n)
{
	struct irdma_cm_node *node = LIST_FIRST(&core->nodes);
	double t = cpu_s();

	for (int i = 0; i < TICKS; i++) {
		loop_set_now(&b.loop, loop_now(&b.loop) + NSEC_PER_MSEC);
		node->send_entry.retranscount = CM_SYN_RETRIES;
		node->send_entry.rto_ms = CM_RTO_INIT_MS;
		node->send_entry.timetosend_ns = loop_now(&b.loop);
		cm_node_arm(node);
		irdma_cm_timer_tick(&core->tcp_timer);
		assert(node->send_entry.timetosend_ns > loop_now(&b.loop));
	}
	return (cpu_s() - t) * 1e9 / TICKS;
}

static double best(double (*round_ns)(struct irdma_cm_core *core, u32 n), struct irdma_cm_core *core, u32 n)
{
	double ns = round_ns(core, n);

	for (int i = 1; i < ROUNDS; i++) {
		double again = round_ns(core, n);

		ns = min(ns, again);
	}
	return ns;
}

struct cost {
	double find, find_again, tick;
};

static struct cost cost_with(u32 n)
{
	struct cost c;
	struct irdma_cm_core *core;
	struct irdma_cm_node *node;

	up(IRDMA_GEN_2);
	core = b.host[0].dev->cm_core;
	make_nodes(core, n);
	c.find = best(find_ns, core, n);
	c.find_again = best(find_ns, core, 1000);
	make_due_node(core);
	c.tick = best(tick_ns, core, n);
	cm_lock(core);
	while ((node = LIST_FIRST(&core->nodes)))
		cm_node_end(node);
	cm_unlock(core);
	down();
	return c;
}

static void row(const char *what, double few, double many)
{
	printf("  %-44s %8.0f ns %13.0f ns %9.2f\n", what, few, many, many / few);
}

static void costs(void)
{
	struct cost few = cost_with(1000), many = cost_with(1000000);

	printf("cost, CPU time %31s %11s %16s %9s\n", "", "1,000 nodes", "1,000,000 nodes", "ratio");
	row("irdma_find_node(), always the same 1,000", few.find_again, many.find_again);
	row("  any of them, which caches do not hold", few.find, many.find);
	row("irdma_cm_timer_tick(), one of them due", few.tick, many.tick);
}

/* bench_wire [connections [generation]]: with a generation, only its rate. */
int main(int argc, char **argv)
{
	u64 count = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;

	if (argc > 2) {
		rate((u8)atoi(argv[2]), count);
		return 0;
	}
	rate(IRDMA_GEN_1, count);
	rate(IRDMA_GEN_2, count);
	printf("memory, generation 2, %d connections, both ends with QPs\n", MANY);
	memory(IRDMA_GEN_2, "being set up (SYN_SENT and SYN_RCVD)", set_up_half, true);
	memory(IRDMA_GEN_2, "established", set_up_whole, true);
	memory(IRDMA_GEN_2, "TIME_WAIT (one end; the other is gone)", set_up_and_close, false);
	costs();
	return 0;
}
