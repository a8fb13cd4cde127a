/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The wire: delivery, faults and their statistics, repeatability, filters, resets, port numbers, streams.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <cmocka.h>
#include "port/wire_internal.h"

#define US NSEC_PER_USEC
#define MS NSEC_PER_MSEC

struct nic {
	struct port *port;
	u32 rx;
	bool refuse;
	struct pkt last;
	u8 data[4];
	struct port_filter *filter;
	u64 last_ns;
	u32 serial[200000];   /* the sequence numbers of what came, in order */
};

static struct {
	struct loop loop;
	struct port_wire *wire;
	struct nic nic[3];
} x;

static bool rx(void *ctx, const struct port_rx *r)
{
	struct nic *n = ctx;

	if (n->refuse)
		return false;
	assert_int_equal(r->error, 0);
	if (n->rx < ARRAY_SIZE(n->serial))
		n->serial[n->rx] = r->pkt.seq;
	n->rx++;
	n->last = r->pkt;
	n->filter = r->filter;
	n->last_ns = loop_now(&x.loop);
	memcpy(n->data, r->pkt.data, r->pkt.datalen < 4 ? r->pkt.datalen : 4);
	return true;
}

static const struct port_up up = { .rx = rx };

static struct net_iface iface_of(u32 i)
{
	return (struct net_iface){
		.ifindex = 2, .name = "eth0", .mac = { 2, 0, 0, 0, (u8)(i >> 8), (u8)i }, .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE,
	};
}

static void wire_up(u64 seed)
{
	u32 i;

	memset(&x, 0, sizeof(x));
	rand_set_seed(seed);
	loop_init(&x.loop, 0);
	assert_int_equal(port_wire_create(&x.loop, seed, &x.wire), 0);
	for (i = 0; i < 3; i++) {
		struct net_iface iface = iface_of(i);

		assert_int_equal(port_wire_plug(x.wire, NULL, &iface, &up, &x.nic[i], &x.nic[i].port), 0);
	}
}

static void wire_down(void)
{
	u32 i;

	for (i = 0; i < 3; i++)
		if (x.nic[i].port)
			x.nic[i].port->ops->unplug(x.nic[i].port);
	port_wire_destroy(x.wire);
	assert_int_equal(x.loop.timers.count, 0);
	loop_destroy(&x.loop);
	rand_unset_seed();
}

static const struct port_wire_stats *stats(void) { return port_wire_stats(x.wire); }

/* Every frame ended somewhere. */
static void check_sum(void)
{
	const struct port_wire_stats *s = stats();

	assert_int_equal(s->frames + s->duplicated,
			 s->lost + s->delivered + s->unmatched + s->not_taken + s->malformed + s->bad_checksum +
				 s->no_route + s->down + port_wire_in_flight(x.wire));
}

static u32 addr_of(u32 i) { return 0x0A000001 + i; }

static struct pkt_tuple tuple_of(u32 from, u32 to)
{
	return (struct pkt_tuple){
		.loc_addr = { addr_of(from) }, .rem_addr = { addr_of(to) }, .loc_port = (u16)(100 + from),
		.rem_port = (u16)(100 + to), .vlan_id = PKT_VLAN_NONE, .ipv4 = true,
	};
}

static struct port_filter *quad(u32 at, u32 from)
{
	struct port_filter_attr a = { .ipv4 = true, .quad = true, .tuple = tuple_of(at, from) };
	struct port_filter *f;

	assert_int_equal(x.nic[at].port->ops->filter_add(x.nic[at].port, &a, &f), 0);
	return f;
}

struct frame { u8 bytes[1600]; u8 *start; u32 len; };

static struct frame frame_of(u32 from, u32 to, u32 seq, u8 flags, u32 datalen, u16 vlan)
{
	struct pkt_tuple t = tuple_of(from, to);
	struct pkt_route r = { .vlan_id = vlan, .prio = 5, .ipv4 = true, .ttl = 64 };
	struct tcphdr h = { .source = htons(t.loc_port), .dest = htons(t.rem_port), .seq = htonl(seq), .ack_seq = htonl(77) };
	struct frame f = { .len = PKT_TCP_LEN + datalen };
	struct net_iface a = iface_of(from), b = iface_of(to);
	u8 *tcp = f.bytes + PKT_HDR_MAX;

	h.doff = 5;
	((u8 *)&h)[13] = flags;
	memcpy(tcp, &h, sizeof(h));
	memset(tcp + PKT_TCP_LEN, 'd', datalen);
	memcpy(r.smac, a.mac, 6);
	memcpy(r.dmac, b.mac, 6);
	memcpy(r.src, t.loc_addr, sizeof(r.src));
	memcpy(r.dst, t.rem_addr, sizeof(r.dst));
	f.len += pkt_header_len(&r);
	f.start = pkt_push_headers(&r, tcp, PKT_TCP_LEN + datalen, 0);
	memmove(f.bytes, f.start, f.len);
	f.start = NULL;
	return f;
}

static int send_flags(u32 from, u32 to, u32 seq, u8 flags, u32 datalen)
{
	struct frame f = frame_of(from, to, seq, flags, datalen, PKT_VLAN_NONE);

	return x.nic[from].port->ops->tx_frame(x.nic[from].port, f.bytes, f.len);
}

static void send_one(u32 from, u32 to, u32 seq) { assert_int_equal(send_flags(from, to, seq, PKT_ACK, 16), 0); }

static void run(void) { port_wire_run(x.wire, UINT64_MAX); }

/* ---- delivery ---- */

static void test_delivery(void **state)
{
	struct port_wire_path path = { .latency_ns = 10 * US };

	wire_up(1);
	port_wire_set_default(x.wire, &path);
	quad(1, 0);
	send_one(0, 1, 42);
	assert_int_equal(x.nic[1].rx, 0); /* never from inside a down call */
	assert_int_equal(port_wire_in_flight(x.wire), 1);
	assert_false(port_wire_step(x.wire, 10 * US - 1));
	assert_int_equal(loop_now(&x.loop), 10 * US - 1);
	assert_true(port_wire_step(x.wire, 10 * US));
	assert_int_equal(x.nic[1].rx, 1);
	assert_int_equal(x.nic[1].last_ns, 10 * US);
	assert_int_equal(x.nic[1].last.seq, 42);
	assert_int_equal(x.nic[1].last.datalen, 16);
	assert_memory_equal(x.nic[1].data, "dddd", 4);
	assert_null(x.nic[1].filter);
	assert_false(port_wire_step(x.wire, UINT64_MAX));
	assert_int_equal(loop_now(&x.loop), 10 * US);
	assert_int_equal(stats()->delivered, 1);
	check_sum();
	/* To itself. */
	quad(0, 0);
	send_one(0, 0, 43);
	run();
	assert_int_equal(x.nic[0].rx, 1);
	/* To nobody, to a group, to everybody. */
	send_one(0, 200, 44);
	run();
	assert_int_equal(stats()->no_route, 1);
	check_sum();
	wire_down();
}

static void test_address_handles(void **state)
{
	struct port_ah_attr a = { .tuple = tuple_of(0, 1), .ttl = 9, .tos = 3, .prio = 6 };
	const struct port_ops *ops;
	struct net_iface to = iface_of(1);
	struct frame f = frame_of(0, 1, 7, PKT_ACK, 100, PKT_VLAN_NONE);
	u8 big[3000] = { 0 };
	struct port_ah *ah;
	u32 l2l3 = PKT_ETH_LEN + PKT_IP4_LEN;

	wire_up(1);
	ops = x.nic[0].port->ops;
	assert_int_equal(ops->flags, PORT_FRAMES | PORT_NEEDS_NEIGH | PORT_CHECKSUMS);
	quad(1, 0);
	memcpy(a.dmac, to.mac, 6);
	assert_int_equal(ops->ah_create(x.nic[0].port, &a, &ah), 0);
	memset(f.bytes + l2l3 + 16, 0xEE, 2); /* the port makes the checksum */
	assert_int_equal(ops->tx_ah(x.nic[0].port, ah, f.bytes + l2l3, f.len - l2l3), 0);
	run();
	assert_int_equal(x.nic[1].rx, 1);
	assert_int_equal(x.nic[1].last.ttl, 9);
	assert_int_equal(x.nic[1].last.tos, 3);
	assert_int_equal(x.nic[1].last.datalen, 100);
	assert_int_equal(ops->tx_ah(x.nic[0].port, ah, big, 19), -EMSGSIZE);
	assert_int_equal(ops->tx_ah(x.nic[0].port, ah, big, 1481), -EMSGSIZE);
	assert_int_equal(ops->tx_ah(x.nic[0].port, ah, big, 1480), 0);
	assert_int_equal(ops->tx_frame(x.nic[0].port, big, 13), -EMSGSIZE);
	assert_int_equal(ops->tx_frame(x.nic[0].port, big, 1519), -EMSGSIZE);
	ops->ah_destroy(x.nic[0].port, ah);
	/* One that is left behind goes with its NIC. */
	assert_int_equal(ops->ah_create(x.nic[0].port, &a, &ah), 0);
	wire_down();
}

static void test_vlan(void **state)
{
	struct port_filter_attr a = { .ipv4 = true, .quad = true, .tuple = tuple_of(1, 0) };
	struct frame tagged = frame_of(0, 1, 1, PKT_ACK, 4, 99), plain = frame_of(0, 1, 2, PKT_ACK, 4, PKT_VLAN_NONE);
	const struct port_ops *ops;
	struct port_filter *f;

	wire_up(1);
	ops = x.nic[1].port->ops;
	a.tuple.vlan_id = 99;
	assert_int_equal(ops->filter_add(x.nic[1].port, &a, &f), 0);
	assert_int_equal(ops->tx_frame(x.nic[0].port, plain.bytes, plain.len), 0);
	run();
	assert_int_equal(x.nic[1].rx, 0);
	assert_int_equal(ops->tx_frame(x.nic[0].port, tagged.bytes, tagged.len), 0);
	run();
	assert_int_equal(x.nic[1].rx, 1);
	assert_int_equal(x.nic[1].last.vlan_id, 99);
	assert_int_equal(x.nic[1].last.prio, 5);
	wire_down();
}

static void test_checksums(void **state)
{
	u32 bit;

	wire_up(1);
	quad(1, 0);
	for (bit = 6 * 8; bit < (PKT_ETH_LEN + 40 + 16) * 8; bit++) {
		struct frame f = frame_of(0, 1, 1, PKT_ACK, 16, PKT_VLAN_NONE);

		if (bit / 8 < PKT_ETH_LEN)
			continue; /* no checksum covers the source MAC */
		f.bytes[bit / 8] ^= (u8)(1 << bit % 8);
		assert_int_equal(port_wire_inject(x.wire, f.bytes, f.len, 0), 0);
	}
	run();
	assert_int_equal(x.nic[1].rx, 0);
	assert_true(stats()->bad_checksum > 300);
	check_sum();
	wire_down();
}

static void test_inject(void **state)
{
	struct frame f = frame_of(0, 1, 1, PKT_ACK, 16, PKT_VLAN_NONE);
	static u8 big[WIRE_FRAME_MAX + 1];

	wire_up(1);
	quad(1, 0);
	assert_int_equal(port_wire_inject(x.wire, f.bytes, f.len, 5 * MS), 0);
	run();
	assert_int_equal(x.nic[1].last_ns, 5 * MS);
	assert_int_equal(port_wire_inject(x.wire, f.bytes, 13, 0), -EMSGSIZE);
	memcpy(big, f.bytes, 14);
	assert_int_equal(port_wire_inject(x.wire, big, sizeof(big), 0), -EMSGSIZE);
	assert_int_equal(port_wire_inject(x.wire, big, WIRE_FRAME_MAX, 0), 0);
	f.bytes[0] = 0xFF;
	assert_int_equal(port_wire_inject(x.wire, f.bytes, f.len, 0), 0);
	run();
	assert_int_equal(stats()->no_route, 1);
	assert_int_equal(stats()->malformed, 1);
	check_sum();
	wire_down();
}

static u32 disorder(const struct nic *n)
{
	u32 i, found = 0;

	for (i = 1; i < n->rx; i++)
		found += n->serial[i] < n->serial[i - 1];
	return found;
}

/* Frames come in the order of their time, and of their sending within one, whatever order they were queued in. */
static void test_queue_order(void **state)
{
	struct rand_gen g;
	u32 i;

	wire_up(1);
	quad(1, 0);
	rand_gen_seed(&g, 3);
	for (i = 0; i < 3000; i++) {
		u32 slot = (u32)rand_gen_below(&g, 100);
		struct frame f = frame_of(0, 1, slot * 10000 + i, PKT_ACK, 0, PKT_VLAN_NONE);

		assert_int_equal(port_wire_inject(x.wire, f.bytes, f.len, slot * US), 0);
	}
	run();
	assert_int_equal(x.nic[1].rx, 3000);
	assert_int_equal(disorder(&x.nic[1]), 0);
	wire_down();
}

/* Anything at all, at any length. */
static void test_hostile_frames(void **state)
{
	struct rand_gen g;
	u32 i, k;

	wire_up(1);
	quad(1, 0);
	rand_gen_seed(&g, 9);
	for (i = 0; i < 20000; i++) {
		struct frame f = frame_of(0, 1, 1, (u8)rand_gen_below(&g, 64), 16, rand_gen_chance(&g, 0.5) ? 1 : PKT_VLAN_NONE);
		u32 len = PKT_ETH_LEN + (u32)rand_gen_below(&g, f.len - PKT_ETH_LEN + 1);

		for (k = (u32)rand_gen_below(&g, 5); k; k--)
			f.bytes[12 + rand_gen_below(&g, 50)] = (u8)rand_gen_u64(&g);
		assert_int_equal(port_wire_inject(x.wire, f.bytes, len, 0), 0);
	}
	run();
	check_sum();
	wire_down();
}

/* ---- faults ---- */

static void test_link(void **state)
{
	struct port_wire_path down = { .down = true };

	wire_up(1);
	quad(1, 0);
	port_wire_set_link(x.nic[1].port, false);
	send_one(0, 1, 1);
	run();
	port_wire_set_link(x.nic[1].port, true);
	port_wire_set_link(x.nic[0].port, false);
	assert_int_equal(send_flags(0, 1, 2, PKT_ACK, 1), -ENETDOWN);
	port_wire_set_link(x.nic[0].port, true);
	port_wire_set_path(x.nic[0].port, true, &down);
	send_one(0, 1, 3);
	port_wire_set_path(x.nic[0].port, true, NULL);
	port_wire_set_path(x.nic[1].port, false, &down);
	send_one(0, 1, 4);
	run();
	assert_int_equal(x.nic[1].rx, 0);
	assert_int_equal(stats()->down, 4);
	port_wire_set_path(x.nic[1].port, false, NULL);
	send_one(0, 1, 5);
	run();
	assert_int_equal(x.nic[1].rx, 1);
	check_sum();
	wire_down();
}

/* What is sent and what is received have a path each; both count. */
static void test_two_paths(void **state)
{
	struct port_wire_path def = { .latency_ns = MS }, out = { .latency_ns = 10 * MS }, in = { .latency_ns = 100 * MS };

	wire_up(1);
	quad(1, 0);
	quad(0, 1);
	port_wire_set_default(x.wire, &def);
	port_wire_set_path(x.nic[0].port, true, &out);
	port_wire_set_path(x.nic[1].port, false, &in);
	send_one(0, 1, 1);
	send_one(1, 0, 1);
	run();
	assert_int_equal(x.nic[1].last_ns, 110 * MS);
	assert_int_equal(x.nic[0].last_ns, MS);
	wire_down();
}

static bool about(u64 n, u64 of, double p)
{
	double mean = (double)of * p;

	return (double)n > mean * 0.9 && (double)n < mean * 1.1;
}

static void send_many(u32 n, u64 every_ns)
{
	u32 i;

	for (i = 0; i < n; i++) {
		send_one(0, 1, i);
		port_wire_run(x.wire, loop_now(&x.loop) + every_ns);
	}
	run();
}

static void test_fault_statistics(void **state)
{
	struct port_wire_path path = { .latency_ns = 50 * US, .loss = 0.05, .duplicate = 0.02, .corrupt = 0.03, .reorder = 0.04,
				       .reorder_ns = 100 * US };
	const u32 n = 50000;

	wire_up(7);
	quad(1, 0);
	port_wire_set_reset_unmatched(x.nic[1].port, false);
	port_wire_set_default(x.wire, &path);
	send_many(n, 5 * US);
	assert_int_equal(stats()->frames, n);
	assert_true(about(stats()->lost, n, 0.05));
	assert_true(about(stats()->duplicated, n, 0.95 * 0.02));
	assert_true(about(stats()->corrupted, n, 0.95 * 1.02 * 0.03));
	assert_true(about(stats()->reordered, n, 0.95 * 1.02 * 0.04));
	assert_true(disorder(&x.nic[1]) > n / 50);
	/* The 14 bytes of Ethernet header have no checksum: half of them go elsewhere or matter to nobody. */
	assert_true(stats()->bad_checksum > stats()->corrupted / 2);
	assert_true(stats()->no_route > 0);
	check_sum();
	wire_down();
}

static void test_jitter_keeps_order(void **state)
{
	struct port_wire_path path = { .latency_ns = 50 * US, .jitter_ns = 400 * US };

	wire_up(1);
	quad(1, 0);
	port_wire_set_default(x.wire, &path);
	send_many(5000, 5 * US);
	assert_int_equal(x.nic[1].rx, 5000);
	assert_int_equal(disorder(&x.nic[1]), 0);
	/* A path that gets faster does not overtake itself either. */
	path = (struct port_wire_path){ .latency_ns = 10 * MS };
	x.nic[1].rx = 0;
	port_wire_set_default(x.wire, &path);
	send_one(0, 1, 1);
	path.latency_ns = 0;
	port_wire_set_default(x.wire, &path);
	send_one(0, 1, 2);
	run();
	assert_int_equal(x.nic[1].rx, 2);
	assert_int_equal(disorder(&x.nic[1]), 0);
	wire_down();
}

static void test_bandwidth(void **state)
{
	struct port_wire_path path = { .latency_ns = MS, .bits_per_s = 1000000 };
	u32 i;

	wire_up(1);
	quad(1, 0);
	port_wire_set_default(x.wire, &path);
	for (i = 0; i < 100; i++)
		assert_int_equal(send_flags(0, 1, i, PKT_ACK, 1250 - 54), 0); /* 10 ms each */
	run();
	assert_int_equal(x.nic[1].rx, 100);
	assert_int_equal(x.nic[1].last_ns, 1000 * MS + MS);
	wire_down();
}

/* ---- repeatability ---- */

struct trace { u64 hash; u64 n; };

static struct trace trace;
static u32 tap_frames[2];

static void trace_frame(struct port_tap *tap, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	u32 i;

	trace.n++;
	tap_frames[out]++;
	trace.hash = (trace.hash ^ now_ns) * 0x100000001B3ull;
	for (i = 0; i < p->framelen; i++)
		trace.hash = (trace.hash ^ p->frame[i]) * 0x100000001B3ull;
}

/* An endless talker: answers everything, now and then from work or a timer. */
static struct { struct work_struct work; struct workq q; struct timer_list timer; u32 budget, me; } talker[2];

static void talk(u32 me)
{
	if (talker[me].budget)
		talker[me].budget--, send_one(me, !me, talker[me].budget);
}

static void talk_work(struct work_struct *w) { talk(w == &talker[1].work); }
static void talk_timer(struct timer_list *t) { talk(t == &talker[1].timer); }

static bool talk_rx(void *ctx, const struct port_rx *r)
{
	u32 me = ctx == &x.nic[1];

	if (r->pkt.seq % 3 == 0)
		mod_timer(&talker[me].timer, loop_now(&x.loop) + 3 * US);
	else
		workq_queue(&talker[me].q, &talker[me].work);
	talk(me);
	return true;
}

static struct trace talking(u64 seed)
{
	static const struct port_up talk_up = { .rx = talk_rx };
	struct port_wire_path path = { .latency_ns = 20 * US, .jitter_ns = 30 * US, .loss = 0.02, .duplicate = 0.3, .corrupt = 0.05,
				       .reorder = 0.2, .bits_per_s = 1000000000 };
	struct port_tap tap[2];
	u32 i;

	wire_up(seed);
	trace = (struct trace){ 0 };
	for (i = 0; i < 2; i++) {
		x.nic[i].port->up = &talk_up;
		quad(i, !i);
		tap[i].frame = trace_frame;
		TAILQ_INSERT_TAIL(&x.nic[i].port->taps, &tap[i], entry);
		talker[i].budget = 3000;
		work_setup(&talker[i].work, talk_work);
		workq_init(&talker[i].q, &x.loop);
		timer_setup(&talker[i].timer, &x.loop, talk_timer);
	}
	port_wire_set_default(x.wire, &path);
	port_wire_set_path(x.nic[1].port, false, &path);
	for (i = 0; i < 50; i++)
		send_one(0, 1, i);
	run();
	check_sum();
	trace.hash ^= stats()->lost * 31 + stats()->reordered;
	wire_down();
	return trace;
}

static void test_same_seed_same_run(void **state)
{
	struct trace a = talking(5), b, c;
	void *shift = malloc(12345); /* other addresses in memory */

	b = talking(5);
	c = talking(6);
	assert_true(a.n > 1000);
	assert_int_equal(a.n, b.n);
	assert_int_equal(a.hash, b.hash);
	assert_int_not_equal(a.hash, c.hash);
	free(shift);
}

static void test_taps(void **state)
{
	struct port_tap tap = { .frame = trace_frame };

	wire_up(1);
	quad(1, 0);
	memset(tap_frames, 0, sizeof(tap_frames));
	TAILQ_INSERT_TAIL(&x.nic[1].port->taps, &tap, entry);
	send_one(0, 1, 1);
	send_one(1, 0, 1); /* unmatched there: RST comes back */
	run();
	assert_int_equal(tap_frames[true], 1);
	assert_int_equal(tap_frames[false], 2);
	TAILQ_REMOVE(&x.nic[1].port->taps, &tap, entry);
	send_one(0, 1, 1);
	run();
	assert_int_equal(tap_frames[false], 2);
	wire_down();
}

/* Frames first; but work runs right after the frame that queued it, and timers that are due before that work. */
static char order[16];

static void note(char c)
{
	size_t n = strlen(order);

	if (n + 1 < sizeof(order))
		order[n] = c;
}

static void note_work(struct work_struct *w) { note('w'); }
static void note_timer(struct timer_list *t) { note('t'); }

static bool note_rx(void *ctx, const struct port_rx *r)
{
	note((char)('0' + r->pkt.seq));
	if (r->pkt.seq == 1)
		workq_queue(&talker[0].q, &talker[0].work);
	return true;
}

static void test_order_of_events(void **state)
{
	static const struct port_up note_up = { .rx = note_rx };
	struct port_wire_path path = { .latency_ns = MS };

	wire_up(1);
	x.nic[1].port->up = &note_up;
	quad(1, 0);
	port_wire_set_default(x.wire, &path);
	work_setup(&talker[0].work, note_work);
	workq_init(&talker[0].q, &x.loop);
	timer_setup(&talker[0].timer, &x.loop, note_timer);
	memset(order, 0, sizeof(order));
	mod_timer(&talker[0].timer, MS);
	send_one(0, 1, 1);
	send_one(0, 1, 2);
	run();
	assert_string_equal(order, "1tw2");
	memset(order, 0, sizeof(order));
	mod_timer(&talker[0].timer, 5 * MS);
	port_wire_run(x.wire, 4 * MS);
	send_one(0, 1, 3);
	send_one(0, 1, 4);
	run();
	assert_string_equal(order, "34t");
	wire_down();
}

/* ---- filters ---- */

static void test_filters(void **state)
{
	struct port_filter_attr a = { .ipv4 = true, .tuple = { .loc_addr = { addr_of(1) }, .loc_port = 101, .vlan_id = PKT_VLAN_NONE } };
	struct port_filter *exact, *any, *q, *again;
	struct nic *n = &x.nic[1];

	wire_up(1);
	assert_int_equal(n->port->ops->filter_add(n->port, &a, &exact), 0);
	assert_int_equal(n->port->ops->filter_add(n->port, &a, &again), -EADDRINUSE);
	a.tuple.loc_addr[0] = 0;
	assert_int_equal(n->port->ops->filter_add(n->port, &a, &any), 0);
	send_flags(0, 1, 1, PKT_SYN, 0);
	run();
	assert_ptr_equal(n->filter, exact);
	q = quad(1, 0);
	send_flags(0, 1, 1, PKT_SYN, 0);
	run();
	assert_int_equal(n->rx, 2);
	assert_null(n->filter);
	n->port->ops->filter_del(n->port, q);
	n->port->ops->filter_kick(n->port, exact);
	n->port->ops->filter_del(n->port, exact);
	send_flags(0, 1, 1, PKT_SYN, 0);
	run();
	assert_ptr_equal(n->filter, any);
	n->refuse = true;
	send_flags(0, 1, 1, PKT_SYN, 0);
	run();
	assert_int_equal(stats()->not_taken, 1);
	n->port->ops->filter_del(n->port, any);
	send_flags(0, 1, 1, PKT_SYN, 0);
	run();
	assert_int_equal(stats()->unmatched, 2); /* and the RST, at the other end */
	check_sum();
	wire_down();
}

/* RFC 9293 3.10.7.1 */
static void test_reset_unmatched(void **state)
{
	static const struct { u8 flags; u32 len, seq, ack; u8 answer; } rows[] = {
		{ PKT_SYN, 0, 0, 1001, PKT_RST | PKT_ACK },
		{ PKT_SYN, 10, 0, 1011, PKT_RST | PKT_ACK },
		{ PKT_FIN, 5, 0, 1006, PKT_RST | PKT_ACK },
		{ PKT_ACK, 10, 77, 0, PKT_RST },
		{ PKT_SYN | PKT_ACK, 0, 77, 0, PKT_RST },
		{ PKT_RST, 0, 0, 0, 0 },
		{ PKT_RST | PKT_ACK, 0, 0, 0, 0 },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct nic *n = &x.nic[0];

		wire_up(1);
		quad(0, 1);
		send_flags(0, 1, 1000, rows[i].flags, rows[i].len);
		run();
		assert_int_equal(stats()->unmatched, 1);
		assert_int_equal(n->rx, rows[i].answer != 0);
		if (rows[i].answer) {
			assert_int_equal(n->last.flags, rows[i].answer);
			assert_int_equal(n->last.seq, rows[i].seq);
			assert_int_equal(n->last.ack, rows[i].ack);
			assert_int_equal(n->last.datalen, 0);
		}
		port_wire_set_reset_unmatched(x.nic[1].port, false);
		n->rx = 0;
		send_flags(0, 1, 1000, rows[i].flags, rows[i].len);
		run();
		assert_int_equal(n->rx, 0);
		wire_down();
	}
}

static void test_ipv6(void **state)
{
	struct pkt_tuple there = { .loc_addr = { 1, 2, 3, 4 }, .rem_addr = { 1, 2, 3, 5 }, .loc_port = 7, .rem_port = 8, .vlan_id = 6 };
	struct pkt_tuple here = { .loc_addr = { 1, 2, 3, 5 }, .rem_addr = { 1, 2, 3, 4 }, .loc_port = 8, .rem_port = 7, .vlan_id = 6 };
	struct port_filter_attr a = { .quad = true, .tuple = there }, listener = { .tuple = there };
	struct port_ah_attr ah_attr = { .tuple = here, .ttl = 64, .prio = 3 };
	struct net_iface to = iface_of(1);
	struct tcphdr syn = { .source = htons(8), .dest = htons(7), .syn = 1 };
	const struct port_ops *ops;
	struct port_filter *f, *back;
	struct port_ah *ah;

	wire_up(1);
	ops = x.nic[0].port->ops;
	syn.doff = 5;
	memcpy(ah_attr.dmac, to.mac, 6);
	assert_int_equal(ops->ah_create(x.nic[0].port, &ah_attr, &ah), 0);
	assert_int_equal(ops->filter_add(x.nic[1].port, &a, &f), 0);
	assert_int_equal(ops->tx_ah(x.nic[0].port, ah, &syn, sizeof(syn)), 0);
	run();
	assert_int_equal(x.nic[1].rx, 1);
	assert_false(x.nic[1].last.ipv4);
	assert_int_equal(x.nic[1].last.vlan_id, 6);
	/* Another address, another family with the same words: not that filter. */
	ops->filter_del(x.nic[1].port, f);
	a.tuple.rem_addr[3]++;
	assert_int_equal(ops->filter_add(x.nic[1].port, &a, &f), 0);
	listener.tuple.loc_addr[2]++;
	assert_int_equal(ops->filter_add(x.nic[1].port, &listener, &f), 0);
	a.tuple = here;
	assert_int_equal(ops->filter_add(x.nic[0].port, &a, &back), 0);
	assert_int_equal(ops->tx_ah(x.nic[0].port, ah, &syn, sizeof(syn)), 0);
	run();
	assert_int_equal(x.nic[1].rx, 1);
	assert_int_equal(x.nic[0].rx, 1); /* RST */
	assert_int_equal(x.nic[0].last.prio, 3);
	/* The wildcard hears it. */
	memset(listener.tuple.loc_addr, 0, sizeof(listener.tuple.loc_addr));
	assert_int_equal(ops->filter_add(x.nic[1].port, &listener, &f), 0);
	assert_int_equal(ops->tx_ah(x.nic[0].port, ah, &syn, sizeof(syn)), 0);
	run();
	assert_int_equal(x.nic[1].rx, 2);
	assert_ptr_equal(x.nic[1].filter, f);
	wire_down();
}

/* A host does not answer for an address that is not its own. */
static void test_reset_own_address(void **state)
{
	struct net_segment *seg = net_segment_create();
	struct net_iface iface = iface_of(1);
	struct net_addr addr = { .ipv4 = true, .addr = { addr_of(1) }, .prefix_len = 24 };
	struct frame f = frame_of(0, 1, 1, PKT_SYN, 0, PKT_VLAN_NONE);
	struct net *net;

	wire_up(1);
	x.nic[1].port->ops->unplug(x.nic[1].port);
	assert_int_equal(net_open_sim(seg, &net), 0);
	assert_int_equal(net_sim_add_iface(net, &iface), 0);
	addr.ifindex = iface.ifindex;
	assert_int_equal(net_sim_add_addr(net, &addr), 0);
	assert_int_equal(port_wire_plug(x.wire, net, &iface, &up, &x.nic[1], &x.nic[1].port), 0);
	assert_int_equal(port_wire_inject(x.wire, f.bytes, f.len, 0), 0);
	run();
	assert_int_equal(stats()->frames, 2);
	assert_int_equal(net_sim_del_addr(net, &addr), 0);
	assert_int_equal(port_wire_inject(x.wire, f.bytes, f.len, 0), 0);
	run();
	assert_int_equal(stats()->frames, 3);
	wire_down();
	net_close(net);
	net_segment_destroy(seg);
}

/* ---- plugging ---- */

static void test_plug(void **state)
{
	struct net_iface iface = iface_of(1);
	struct port *p;

	wire_up(1);
	assert_int_equal(port_wire_plug(x.wire, NULL, &iface, &up, NULL, &p), -EEXIST);
	iface.mac[0] = 3;
	assert_int_equal(port_wire_plug(x.wire, NULL, &iface, &up, NULL, &p), -EINVAL);
	memset(iface.mac, 0, 6);
	assert_int_equal(port_wire_plug(x.wire, NULL, &iface, &up, NULL, &p), -EINVAL);
	/* Unplugged with frames on their way there, and back again: those frames are gone. */
	quad(1, 0);
	send_one(0, 1, 1);
	send_one(1, 1, 1);
	x.nic[1].port->ops->unplug(x.nic[1].port);
	iface = iface_of(1);
	assert_int_equal(port_wire_plug(x.wire, NULL, &iface, &up, &x.nic[1], &x.nic[1].port), 0);
	quad(1, 0);
	send_one(0, 1, 2);
	run();
	assert_int_equal(x.nic[1].rx, 1);
	assert_int_equal(stats()->no_route, 2);
	/* Destroyed with frames on their way. */
	send_one(0, 1, 3);
	wire_down();
}

static void test_many_nics(void **state)
{
	enum { N = 20000 };
	struct port **p = calloc(N, sizeof(struct port *));
	u32 i;

	wire_up(1);
	for (i = 0; i < N; i++) {
		struct net_iface iface = iface_of(100 + i);

		iface.mac[1] = 1;
		assert_int_equal(port_wire_plug(x.wire, NULL, &iface, &up, &x.nic[2], &p[i]), 0);
	}
	for (i = 0; i < N; i++) {
		struct frame f = frame_of(0, 100 + (i * 7) % N, 1, PKT_SYN, 0, PKT_VLAN_NONE);

		f.bytes[1] = 1;
		assert_int_equal(x.nic[0].port->ops->tx_frame(x.nic[0].port, f.bytes, f.len), 0);
	}
	run();
	assert_int_equal(stats()->unmatched, 2 * N); /* each SYN, each RST */
	for (i = 0; i < N; i++)
		p[i]->ops->unplug(p[i]);
	free(p);
	wire_down();
}

/* ---- port numbers ---- */

static int reserve(u32 addr, u16 *number, bool shared)
{
	u32 a[4] = { addr };

	return x.nic[0].port->ops->reserve(x.nic[0].port, true, a, number, shared);
}

static void release(u32 addr, u16 number)
{
	u32 a[4] = { addr };

	x.nic[0].port->ops->release(x.nic[0].port, true, a, number);
}

static void test_reserve(void **state)
{
	const u32 a = addr_of(0), b = addr_of(1);
	u32 six[4] = { 0 };
	u16 n = 4791;

	wire_up(1);
	assert_int_equal(reserve(a, &n, false), 0);
	assert_int_equal(reserve(a, &n, false), -EADDRINUSE);
	assert_int_equal(reserve(a, &n, true), -EADDRINUSE);
	assert_int_equal(reserve(0, &n, false), -EADDRINUSE); /* every address */
	assert_int_equal(reserve(b, &n, false), 0);
	assert_int_equal(x.nic[0].port->ops->reserve(x.nic[0].port, false, six, &n, false), 0);
	release(a, n);
	release(a, n); /* harmless */
	assert_int_equal(reserve(a, &n, true), 0);
	assert_int_equal(reserve(a, &n, true), 0);
	assert_int_equal(reserve(0, &n, true), -EADDRINUSE); /* b does not share */
	release(b, n);
	assert_int_equal(reserve(0, &n, true), 0);
	assert_int_equal(reserve(b, &n, false), -EADDRINUSE);
	release(0, n);
	release(a, n);
	assert_int_equal(reserve(a, &n, false), -EADDRINUSE); /* one of two is left */
	release(a, n);
	assert_int_equal(reserve(a, &n, false), 0);
	wire_down();
}

static void test_reserve_ephemeral(void **state)
{
	enum { RANGE = WIRE_EPHEMERAL_LAST - WIRE_EPHEMERAL_FIRST + 1 };
	static bool seen[65536];
	const u32 a = addr_of(0), b = addr_of(1);
	u16 n = 40000, prev = 0;
	u32 i, steps = 0;

	wire_up(1);
	memset(seen, 0, sizeof(seen));
	assert_int_equal(reserve(a, &n, false), 0); /* somebody's own choice: not chosen again */
	seen[n] = true;
	for (i = 1; i < RANGE; i++) {
		n = 0;
		assert_int_equal(reserve(a, &n, false), 0);
		assert_true(n >= WIRE_EPHEMERAL_FIRST && n <= WIRE_EPHEMERAL_LAST && !seen[n]);
		steps += n == prev + 1;
		seen[n] = true;
		prev = n;
		if (i == 1000)
			assert_true(steps < 100); /* not just the next one */
	}
	for (i = 0; i < 100000; i++) { /* fast also when there is none */
		n = 0;
		assert_int_equal(reserve(a, &n, false), -EADDRINUSE);
	}
	for (i = 0; i < RANGE; i++) { /* another address has all of them */
		n = 0;
		assert_int_equal(reserve(b, &n, false), 0);
	}
	release(a, 50000);
	n = 0;
	assert_int_equal(reserve(a, &n, false), 0);
	assert_int_equal(n, 50000);
	wire_down();
}

/* ---- streams ---- */

struct stream { struct port *port; struct port_stream *s; u64 got; u32 events; };

static void stream_event(void *ctx, u32 events)
{
	struct stream *st = ctx;
	u8 buf[4096];
	ssize_t ret;

	st->events |= events;
	while ((ret = st->port->ops->stream_recv(st->s, &(struct iovec){ buf, sizeof(buf) }, 1)) > 0)
		st->got += (u64)ret;
}

static const struct port_stream_up stream_up = { .event = stream_event };

static void offload(struct stream st[2])
{
	u32 i;

	for (i = 0; i < 2; i++) {
		struct tcp_info_ho info = {
			.tuple = tuple_of(i, !i), .snd_una = 10 + i, .snd_nxt = 10 + i, .snd_max = 10 + i, .snd_wnd = 60000,
			.max_snd_wnd = 60000, .rcv_nxt = 10 + !i, .rcv_wnd = 60000, .mss = 1460,
		};
		struct net_iface a = iface_of(i), b = iface_of(!i);
		struct port_ah_attr attr = { .tuple = info.tuple, .ttl = 64 };
		const struct port_ops *ops = x.nic[i].port->ops;
		struct port_ah *ah;

		memcpy(info.loc_mac, a.mac, 6);
		memcpy(info.rem_mac, b.mac, 6);
		memcpy(attr.dmac, b.mac, 6);
		st[i] = (struct stream){ .port = x.nic[i].port };
		assert_int_equal(ops->ah_create(x.nic[i].port, &attr, &ah), 0);
		assert_int_equal(ops->offload(x.nic[i].port, ah, &info, &stream_up, &st[i], &st[i].s), 0);
	}
}

static void test_stream(void **state)
{
	struct port_wire_path path = { .latency_ns = 10 * US, .loss = 0.05, .duplicate = 0.02, .reorder = 0.05, .corrupt = 0.02 };
	static u8 data[200000];
	const struct port_ops *ops;
	struct stream st[2];
	size_t conns, tw, conn_bytes, tw_bytes;

	wire_up(1);
	ops = x.nic[0].port->ops;
	port_wire_set_default(x.wire, &path);
	offload(st);
	assert_int_equal(ops->stream_send(st[0].s, &(struct iovec){ data, sizeof(data) }, 1), sizeof(data));
	assert_int_equal(ops->stream_shutdown(st[0].s), 0);
	port_wire_run(x.wire, 100 * NSEC_PER_SEC);
	assert_int_equal(st[1].got, sizeof(data));
	assert_true(st[1].events & PORT_EOF);
	ops->stream_close(st[1].s);
	port_wire_run(x.wire, 120 * NSEC_PER_SEC);
	assert_true(st[0].events & PORT_CLOSED);
	assert_int_equal(ops->stream_error(st[0].s), 0);
	ops->stream_close(st[0].s);
	port_wire_tsa_usage(x.nic[0].port, &conns, &tw, &conn_bytes, &tw_bytes);
	assert_int_equal(conns, 0);
	assert_int_equal(tw, 1);
	assert_true(tw_bytes <= 128);
	port_wire_run(x.wire, 1000 * NSEC_PER_SEC);
	port_wire_tsa_usage(x.nic[0].port, &conns, &tw, NULL, NULL);
	assert_int_equal(tw, 0);
	check_sum();
	wire_down();
}

static void test_stream_reset(void **state)
{
	const struct port_ops *ops;
	struct stream st[2];

	wire_up(1);
	ops = x.nic[0].port->ops;
	offload(st);
	ops->stream_abort(st[0].s);
	run();
	assert_true(st[1].events & PORT_RESET);
	assert_int_equal(ops->stream_error(st[1].s), -ECONNRESET);
	ops->stream_close(st[0].s);
	ops->stream_close(st[1].s);
	/* A peer that is unplugged: the NIC that takes its place knows nothing of the connection. */
	offload(st);
	x.nic[1].port->ops->unplug(x.nic[1].port);
	x.nic[1].port = NULL;
	{
		struct net_iface iface = iface_of(1);

		assert_int_equal(port_wire_plug(x.wire, NULL, &iface, &up, &x.nic[1], &x.nic[1].port), 0);
	}
	assert_int_equal(ops->stream_send(st[0].s, &(struct iovec){ (void *)"x", 1 }, 1), 1);
	run();
	assert_true(st[0].events & PORT_RESET);
	/* st[0] is never closed: it goes with its NIC. */
	wire_down();
}

static size_t tsa_conns(u32 nic)
{
	size_t conns;

	port_wire_tsa_usage(x.nic[nic].port, &conns, NULL, NULL, NULL);
	return conns;
}

/* The peer sends a little every 100 us until it has heard that we end, or @until_ns. */
static void chatter(struct stream *peer, u64 until_ns)
{
	static u8 data[3000];

	while (!(peer->events & (PORT_EOF | PORT_RESET)) && loop_now(&x.loop) < until_ns) {
		peer->port->ops->stream_send(peer->s, &(struct iovec){ data, sizeof(data) }, 1);
		port_wire_run(x.wire, loop_now(&x.loop) + 100 * US);
	}
}

/* It goes on sending while we say why we end: it hears that, and our FIN, and no reset. */
static void test_stream_drain(void **state)
{
	struct port_wire_path path = { .latency_ns = MS };
	static u8 rest[70000];
	const struct port_ops *ops;
	struct stream st[2];
	size_t taken = 0;
	ssize_t n;
	int full;

	for (full = 0; full < 2; full++) {
		wire_up(1);
		ops = x.nic[0].port->ops;
		port_wire_set_default(x.wire, &path);
		offload(st);
		chatter(&st[1], 5 * MS);
		taken = 0;
		do {
			n = ops->stream_send(st[0].s, &(struct iovec){ rest, sizeof(rest) }, 1);
			taken += n > 0 ? (size_t)n : 0;
		} while (full && n > 0);
		ops->stream_drain(st[0].s, rest, full ? sizeof(rest) : 0);
		chatter(&st[1], NSEC_PER_SEC);
		assert_int_equal(st[1].events & (PORT_EOF | PORT_RESET), PORT_EOF);
		assert_int_equal(st[1].got, taken + (full ? sizeof(rest) : 0));
		assert_int_equal(tsa_conns(0), 1);
		ops->stream_close(st[1].s);
		port_wire_run(x.wire, 10 * NSEC_PER_SEC);
		assert_int_equal(tsa_conns(0), 0);
		assert_int_equal(tsa_conns(1), 0);
		check_sum();
		wire_down();
	}
}

/* One that never stops is stopped, one that was shut down before hears no less, and one that has ended is as closed. */
static void test_stream_drain_ends(void **state)
{
	struct port_wire_path path = { .latency_ns = MS };
	const struct port_ops *ops;
	struct stream st[2];
	u64 end;

	wire_up(1);
	ops = x.nic[0].port->ops;
	port_wire_set_default(x.wire, &path);
	offload(st);
	ops->stream_shutdown(st[0].s);
	port_wire_run(x.wire, 10 * MS);
	assert_true(st[1].events & PORT_EOF);
	ops->stream_drain(st[0].s, NULL, 0);
	end = loop_now(&x.loop) + 2 * NSEC_PER_SEC;
	st[1].events = 0;
	chatter(&st[1], end + NSEC_PER_SEC);
	assert_true(st[1].events & PORT_RESET);
	assert_true(loop_now(&x.loop) >= end && loop_now(&x.loop) < end + 10 * MS);
	assert_int_equal(tsa_conns(0), 0);
	ops->stream_close(st[1].s);
	/* Reset, and the owner does not know it yet. */
	offload(st);
	ops->stream_abort(st[1].s);
	run();
	ops->stream_drain(st[0].s, "x", 1);
	ops->stream_close(st[1].s);
	assert_int_equal(tsa_conns(0), 0);
	/* Unplugged meanwhile. */
	offload(st);
	ops->stream_drain(st[0].s, "x", 1);
	wire_down();
}

/* TIME_WAIT under the CM; a new connection from this end takes its place. */
static void test_time_wait(void **state)
{
	struct tcp_info_ho info = { .tuple = tuple_of(1, 0), .snd_nxt = 500, .rcv_nxt = 1001 };
	struct net_iface a = iface_of(1), b = iface_of(0);
	size_t tw;

	wire_up(1);
	quad(0, 1);
	memcpy(info.loc_mac, a.mac, 6);
	memcpy(info.rem_mac, b.mac, 6);
	assert_int_equal(x.nic[1].port->ops->time_wait(x.nic[1].port, &info), 0);
	send_flags(0, 1, 1000, PKT_FIN | PKT_ACK, 0);
	port_wire_run(x.wire, MS);
	assert_int_equal(x.nic[0].rx, 1);
	assert_int_equal(x.nic[0].last.ack, 1001);
	assert_int_equal(x.nic[0].last.flags, PKT_ACK);
	quad(1, 0);
	port_wire_tsa_usage(x.nic[1].port, NULL, &tw, NULL, NULL);
	assert_int_equal(tw, 0);
	wire_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_delivery),
		cmocka_unit_test(test_address_handles),
		cmocka_unit_test(test_vlan),
		cmocka_unit_test(test_checksums),
		cmocka_unit_test(test_inject),
		cmocka_unit_test(test_queue_order),
		cmocka_unit_test(test_hostile_frames),
		cmocka_unit_test(test_link),
		cmocka_unit_test(test_two_paths),
		cmocka_unit_test(test_fault_statistics),
		cmocka_unit_test(test_jitter_keeps_order),
		cmocka_unit_test(test_bandwidth),
		cmocka_unit_test(test_same_seed_same_run),
		cmocka_unit_test(test_taps),
		cmocka_unit_test(test_order_of_events),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_reset_unmatched),
		cmocka_unit_test(test_ipv6),
		cmocka_unit_test(test_reset_own_address),
		cmocka_unit_test(test_plug),
		cmocka_unit_test(test_many_nics),
		cmocka_unit_test(test_reserve),
		cmocka_unit_test(test_reserve_ephemeral),
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_stream_reset),
		cmocka_unit_test(test_stream_drain),
		cmocka_unit_test(test_stream_drain_ends),
		cmocka_unit_test(test_time_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
