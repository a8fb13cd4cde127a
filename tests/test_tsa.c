/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One tsa against a peer played by the test: the rules for segments that are out of place, TIME_WAIT, windows
 * on the wire, hand-over, hostile input.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <cmocka.h>
#include "tsa/tsa_internal.h"

#define SND 5000u /* our first sequence number */
#define RCV 9000u /* the peer's */
#define WND 20000u
#define MSS 1000

struct sent { u32 seq, ack, len; u16 window; u8 flags; u8 data[4]; };

static struct {
	struct loop loop;
	struct tsa *tsa;
	struct tsa_conn *conn;
	struct sent out[4096];
	u32 n;
	u32 events, calls;
	void (*in_event)(u32 events);
} x;

static const struct pkt_tuple tuple = {
	.loc_addr = { 0x0A000001 }, .rem_addr = { 0x0A000002 }, .loc_port = 1, .rem_port = 2, .vlan_id = 7, .ipv4 = true,
};

static void output(void *ctx, const struct pkt_route *r, u8 *tcp, u32 len)
{
	u8 *frame = pkt_push_headers(r, tcp, len, 0);
	struct sent *s = &x.out[x.n % ARRAY_SIZE(x.out)];
	struct pkt p;

	assert_int_equal(pkt_parse(frame, len + pkt_header_len(r), true, &p), PKT_OK);
	assert_int_equal(p.vlan_id, 7);
	assert_int_equal(p.sport, 1);
	assert_int_equal(p.dport, 2);
	*s = (struct sent){ p.seq, p.ack, p.datalen, p.window, p.flags, { 0 } };
	memcpy(s->data, p.data, p.datalen < 4 ? p.datalen : 4);
	x.n++;
}

static void event(void *ctx, u32 events)
{
	x.events |= events;
	x.calls++;
	if (x.in_event)
		x.in_event(events);
}

static const struct tsa_conn_up conn_up = { .event = event };

static struct tcp_info_ho info_default(void)
{
	return (struct tcp_info_ho){
		.tuple = tuple, .snd_una = SND, .snd_nxt = SND, .snd_max = SND, .snd_wnd = WND, .max_snd_wnd = WND,
		.rcv_nxt = RCV, .rcv_wnd = WND, .mss = MSS,
	};
}

static void up(const struct tsa_config *cfg)
{
	static const struct tsa_up out = { .output = output };

	memset(&x, 0, sizeof(x));
	rand_set_seed(1);
	loop_init(&x.loop, 5 * NSEC_PER_SEC);
	assert_int_equal(tsa_create(&x.loop, cfg, &out, NULL, &x.tsa), 0);
}

static void open_conn(void)
{
	struct tcp_info_ho info = info_default();

	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), 0);
}

static void down(void)
{
	tsa_destroy(x.tsa);
	loop_destroy(&x.loop);
	rand_unset_seed();
}

static bool feed(u32 seq, u32 ack, u8 flags, u16 window, const void *data, u32 len)
{
	struct tcphdr h = { .source = htons(2), .dest = htons(1), .seq = htonl(seq), .ack_seq = htonl(ack),
			    .window = htons(window) };
	u8 *seg = malloc(PKT_TCP_LEN + len); /* exact, for ASan */
	struct pkt p;
	bool ours;

	h.doff = 5;
	((u8 *)&h)[13] = flags;
	memcpy(seg, &h, sizeof(h));
	if (len)
		memcpy(seg + PKT_TCP_LEN, data, len);
	assert_int_equal(pkt_parse_segment(seg, PKT_TCP_LEN + len, &tuple, &p), PKT_OK);
	ours = tsa_input(x.tsa, &p);
	free(seg);
	return ours;
}

static void send_bytes(u32 len)
{
	static u8 buf[200000];

	assert_int_equal(tsa_sendv(x.conn, &(struct iovec){ buf, len }, 1), len);
}

static ssize_t read_bytes(u32 len)
{
	static u8 buf[200000];

	return tsa_recvv(x.conn, &(struct iovec){ buf, len }, 1);
}

static void pass(u64 ns)
{
	u64 until = loop_now(&x.loop) + ns, next;

	while ((next = loop_next_ns(&x.loop)) <= until) {
		loop_set_now(&x.loop, next);
		loop_run(&x.loop);
	}
	loop_set_now(&x.loop, until);
}

static const struct sent *last(void) { return &x.out[(x.n - 1) % ARRAY_SIZE(x.out)]; }

/* Bring the connection into @state. rcv_nxt and snd_nxt count the FINs then. */
static void into(enum tsa_state st)
{
	up(NULL);
	open_conn();
	if (st == TSA_ST_CLOSE_WAIT || st == TSA_ST_LAST_ACK)
		feed(RCV, SND, PKT_FIN | PKT_ACK, WND, NULL, 0);
	if (st != TSA_ST_ESTABLISHED && st != TSA_ST_CLOSE_WAIT)
		tsa_shutdown(x.conn);
	if (st == TSA_ST_CLOSING)
		feed(RCV, SND, PKT_FIN | PKT_ACK, WND, NULL, 0);
	if (st == TSA_ST_FIN_WAIT2)
		feed(RCV, SND + 1, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.conn->state, st);
	x.n = 0;
	x.events = 0;
}

static const enum tsa_state live_states[] = {
	TSA_ST_ESTABLISHED, TSA_ST_FIN_WAIT1, TSA_ST_FIN_WAIT2, TSA_ST_CLOSE_WAIT, TSA_ST_CLOSING, TSA_ST_LAST_ACK,
};

/* ---- RFC 5961 ---- */

static void test_rst(void **state)
{
	static const struct { bool from_edge; s32 off; bool counts, challenge; } rows[] = {
		{ false, 0, true, false }, { false, 1, false, true }, { true, -1, false, true }, { true, 0, false, false },
		{ false, -1, false, false }, { false, -100000, false, false }, { false, 1000000, false, false },
		{ false, INT32_MIN, false, false },
	};
	size_t s, r;

	for (s = 0; s < ARRAY_SIZE(live_states); s++)
		for (r = 0; r < ARRAY_SIZE(rows); r++) {
			bool closing;
			u32 base;

			into(live_states[s]);
			closing = live_states[s] >= TSA_ST_CLOSING;
			base = rows[r].from_edge ? x.conn->rcv_adv : x.conn->rcv_nxt;
			assert_true(feed(base + (u32)rows[r].off, 0, PKT_RST, 0, NULL, 0));
			assert_int_equal(x.conn->state == TSA_ST_CLOSED, rows[r].counts);
			assert_int_equal(x.n, rows[r].challenge);
			if (rows[r].challenge) {
				assert_int_equal(last()->flags, PKT_ACK);
				assert_int_equal(last()->ack, x.conn->rcv_nxt);
				assert_int_equal(last()->seq, x.conn->snd_nxt);
			}
			if (rows[r].counts) {
				assert_int_equal(x.events, closing ? TSA_CLOSED : TSA_RESET);
				assert_int_equal(tsa_error(x.conn), closing ? 0 : -ECONNRESET);
			}
			down();
		}
}

static void test_syn(void **state)
{
	static const u32 seqs[] = { RCV, RCV + 1, RCV + 100, RCV - 1, RCV + 1000000 };
	size_t s, i;
	u8 flags;

	for (s = 0; s < ARRAY_SIZE(live_states); s++)
		for (i = 0; i < ARRAY_SIZE(seqs); i++)
			for (flags = PKT_SYN; flags <= (PKT_SYN | PKT_ACK); flags += PKT_ACK) {
				into(live_states[s]);
				assert_true(feed(seqs[i], SND, flags, WND, "data", 4));
				assert_int_equal(x.conn->state, live_states[s]);
				assert_int_equal(x.n, 1);
				assert_int_equal(last()->flags, PKT_ACK);
				assert_int_equal(x.events, 0);
				down();
			}
}

static void test_challenges_are_limited(void **state)
{
	int i;

	into(TSA_ST_ESTABLISHED);
	for (i = 0; i < 1000; i++)
		feed(RCV, SND, PKT_SYN, WND, NULL, 0);
	assert_int_equal(x.n, TSA_CHALLENGES_PER_S);
	pass(NSEC_PER_SEC);
	for (i = 0; i < 1000; i++)
		feed(RCV + 5, 0, PKT_RST, WND, NULL, 0);
	assert_int_equal(x.n, 2 * TSA_CHALLENGES_PER_S);
	down();
}

/* RFC 5961 5.2: an ACK must lie in [SND.UNA - MAX.SND.WND, SND.MAX]. */
static void test_ack_range(void **state)
{
	static const struct { s32 off; bool ok; } rows[] = {
		{ 0, true }, { 500, true }, { 501, false }, { 100000, false }, { -(s32)WND, true }, { -(s32)WND - 1, false },
		{ INT32_MAX, false }, { INT32_MIN, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		into(TSA_ST_ESTABLISHED);
		send_bytes(500);
		x.n = 0;
		feed(RCV, SND + (u32)rows[i].off, PKT_ACK, WND, "data", 4);
		assert_int_equal(x.events, rows[i].ok ? TSA_READABLE : 0);
		assert_int_equal(x.n, 1);
		assert_int_equal(last()->ack, RCV + (rows[i].ok ? 4 : 0));
		assert_int_equal(x.conn->snd_una, rows[i].off == 500 ? SND + 500 : SND);
		down();
	}
}

/*
 * What a stranger says who knows the addresses, and of the sequence numbers only that he does not: in no state does it change the state, bring data or an
 * end, or move what is expected, or acknowledged; and each is answered with one ACK at most that says what is.
 */
static void test_blind(void **state)
{
	enum { BEYOND = 65536 }; /* the window that was told */
	static const struct { s32 seq, ack; u8 flags; u32 len; } rows[] = {
		{ 0, 1, PKT_ACK, 4 }, { 0, 100000, PKT_ACK, 4 }, { 0, INT32_MIN, PKT_ACK, 4 }, { 0, -(s32)WND - 1, PKT_ACK, 4 },
		{ 0, -(s32)WND - 1, PKT_ACK | PKT_FIN, 0 }, { 0, 1, PKT_ACK | PKT_FIN, 4 }, { 0, 1, PKT_ACK, 0 },
		{ -4, 0, PKT_ACK, 4 }, { -4, 0, PKT_ACK | PKT_FIN, 3 }, { -1, 0, PKT_ACK, 0 }, { BEYOND, 0, PKT_ACK, 4 },
		{ BEYOND, 0, PKT_ACK | PKT_FIN, 0 }, { INT32_MIN, 0, PKT_ACK, 4 }, { INT32_MAX, 0, PKT_ACK, 4 }, { INT32_MIN, INT32_MIN, PKT_ACK | PKT_FIN, 4 },
		{ 0, 0, 0, 4 }, { 0, 0, PKT_FIN, 4 }, { 1, 0, PKT_RST, 0 }, { -1, 0, PKT_RST | PKT_ACK, 0 }, { 1000, 0, PKT_RST | PKT_ACK, 4 },
		{ 0, 0, PKT_SYN, 0 }, { 0, 0, PKT_SYN | PKT_ACK, 4 }, { 1000, 5, PKT_SYN | PKT_FIN, 0 },
	};
	size_t s, i;

	for (s = 0; s < ARRAY_SIZE(live_states); s++)
		for (i = 0; i < ARRAY_SIZE(rows); i++) {
			struct tsa_conn was;
			u32 ack;

			into(live_states[s]);
			was = *x.conn;
			ack = (rows[i].ack < 0 ? was.snd_una : was.snd_max) + (u32)rows[i].ack;
			assert_true(feed(was.rcv_nxt + (u32)rows[i].seq, ack, rows[i].flags, WND, "evil", rows[i].len));
			if (x.conn->state != live_states[s] || x.events)
				fail_msg("%s, row %zu: %s, events %u", tsa_state_name((u8)live_states[s]), i, tsa_state_name(x.conn->state), x.events);
			assert_int_equal(x.conn->rcv_nxt, was.rcv_nxt);
			assert_int_equal(x.conn->snd_una, was.snd_una);
			assert_int_equal(x.conn->snd_wnd, was.snd_wnd);
			assert_int_equal(x.conn->rcv.len, 0);
			assert_null(x.conn->ooo);
			assert_false(x.conn->fin_held);
			assert_true(x.n <= 1);
			if (x.n) {
				assert_int_equal(last()->flags, PKT_ACK);
				assert_int_equal(last()->ack, was.rcv_nxt);
				assert_int_equal(last()->seq, was.snd_max);
			}
			down();
		}
}

static void test_no_ack_flag(void **state)
{
	into(TSA_ST_ESTABLISHED);
	assert_true(feed(RCV, SND, 0, WND, "data", 4));
	assert_true(feed(RCV, SND, PKT_FIN, WND, NULL, 0));
	assert_int_equal(x.n, 0);
	assert_int_equal(x.events, 0);
	down();
}

/* ---- sequence numbers ---- */

static void test_window_edges(void **state)
{
	static u8 data[WND + 100];

	into(TSA_ST_ESTABLISHED);
	/* Half old, half new. */
	feed(RCV, SND, PKT_ACK, WND, "abcd", 4);
	feed(RCV + 2, SND, PKT_ACK, WND, "cdef", 4);
	assert_int_equal(x.conn->rcv_nxt, RCV + 6);
	/* All old: the ACK again. */
	feed(RCV, SND, PKT_ACK, WND, "abcdef", 6);
	assert_int_equal(x.n, 3);
	assert_int_equal(last()->ack, RCV + 6);
	assert_int_equal(read_bytes(100), 6);
	/* Beyond the window: an ACK, nothing kept. */
	feed(x.conn->rcv_adv + 1, SND, PKT_ACK, WND, "x", 1);
	assert_int_equal(x.n, 4);
	assert_null(x.conn->ooo);
	/* Over its edge: cut, and the FIN with it. */
	feed(RCV + 6, SND, PKT_ACK | PKT_FIN, WND, data, sizeof(data));
	assert_true(x.conn->rcv_nxt <= x.conn->rcv_adv);
	down();

	into(TSA_ST_ESTABLISHED);
	feed(RCV, SND, PKT_ACK | PKT_FIN, WND, data, WND + 1);
	assert_int_equal(x.conn->rcv.len, WND);
	assert_int_equal(x.conn->state, TSA_ST_ESTABLISHED);
	down();
	/* A bare ACK, or a FIN, right at the edge is taken. */
	into(TSA_ST_ESTABLISHED);
	send_bytes(10);
	feed(RCV + WND, SND + 10, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.conn->snd_una, SND + 10);
	down();
}

static void test_out_of_order(void **state)
{
	u32 i, acks;

	into(TSA_ST_ESTABLISHED);
	/* Every second byte, from behind: more holes than are remembered. */
	for (i = 200; i > 0; i -= 2)
		feed(RCV + i, SND, PKT_ACK, WND, "y", 1);
	assert_int_equal(x.n, 100); /* a duplicate ACK each */
	assert_int_equal(last()->ack, RCV);
	assert_int_equal(x.conn->ooo->n, TSA_OOO_RANGES);
	assert_int_equal(x.events, 0);
	/* Fill in from the front: all of it, once. */
	for (i = 0; i < 201; i++)
		feed(RCV + i, SND, PKT_ACK, WND, "y", 1);
	assert_int_equal(x.conn->rcv_nxt, RCV + 201);
	assert_null(x.conn->ooo);
	assert_int_equal(read_bytes(1000), 201);
	assert_int_equal(x.tsa->ooo_pool.used, 0);
	acks = x.n;
	/* A FIN ahead of its data waits for it; a second opinion about the end is not heard. */
	feed(RCV + 211, SND, PKT_ACK | PKT_FIN, WND, NULL, 0);
	feed(RCV + 205, SND, PKT_ACK | PKT_FIN, WND, NULL, 0);
	assert_int_equal(x.conn->state, TSA_ST_ESTABLISHED);
	feed(RCV + 201, SND, PKT_ACK, WND, "0123456789more", 14);
	assert_int_equal(x.conn->state, TSA_ST_CLOSE_WAIT);
	assert_int_equal(x.conn->rcv_nxt, RCV + 212);
	assert_int_equal(read_bytes(1000), 10);
	assert_int_equal(read_bytes(1000), 0);
	assert_true(x.n > acks);
	down();
	/* Overlaps, from both sides and from within. */
	into(TSA_ST_ESTABLISHED);
	feed(RCV + 10, SND, PKT_ACK, WND, "ABCDEFGHIJKLMNOPQRST", 20);
	feed(RCV + 5, SND, PKT_ACK, WND, "fghijABCDE", 10);
	feed(RCV + 12, SND, PKT_ACK, WND, "CDE", 3);
	feed(RCV + 28, SND, PKT_ACK, WND, "STuv", 4);
	assert_int_equal(x.conn->ooo->n, 1);
	feed(RCV, SND, PKT_ACK, WND, "abcdefg", 7);
	assert_int_equal(x.conn->rcv_nxt, RCV + 32);
	down();
	/* A FIN in front of data that is here already is a lie. */
	into(TSA_ST_ESTABLISHED);
	feed(RCV + 10, SND, PKT_ACK, WND, "z", 1);
	feed(RCV + 5, SND, PKT_ACK | PKT_FIN, WND, NULL, 0);
	feed(RCV, SND, PKT_ACK, WND, "0123456789", 10);
	assert_int_equal(x.conn->rcv_nxt, RCV + 11);
	assert_int_equal(x.conn->state, TSA_ST_ESTABLISHED);
	down();
}

/* ---- sending ---- */

static void test_peer_window(void **state)
{
	into(TSA_ST_ESTABLISHED);
	feed(RCV, SND, PKT_ACK, 1500, "x", 1); /* the window shrinks: only a newer segment may say so */
	x.n = 0;
	send_bytes(10000);
	assert_int_equal(x.n, 1); /* the second would be a silly 500 */
	assert_int_equal(last()->len, MSS);
	feed(RCV + 1, SND + MSS, PKT_ACK, 0, NULL, 0);
	assert_int_equal(x.n, 1);
	assert_int_equal(x.conn->deadline, TSA_DL_PERSIST);
	pass(1100 * NSEC_PER_MSEC); /* RTO is 200 ms now */
	assert_true(x.n >= 2);
	assert_int_equal(last()->len, 1);
	assert_int_equal(last()->seq, SND + MSS);
	/* It opens without having taken the byte. */
	x.n = 0;
	feed(RCV + 1, SND + MSS, PKT_ACK, 1200, NULL, 0);
	assert_int_equal(x.n, 1);
	assert_int_equal(last()->seq, SND + MSS);
	assert_int_equal(last()->len, MSS);
	/* An old window is not believed, neither below nor within what may be received. */
	feed(RCV, SND + MSS, PKT_ACK, 0, NULL, 0);
	assert_int_equal(x.conn->snd_wnd, 1200);
	feed(RCV + 11, SND + MSS, PKT_ACK, 1300, "later", 5);
	feed(RCV + 1, SND + MSS, PKT_ACK, 100, "0123456789", 10);
	assert_int_equal(x.conn->snd_wnd, 1300);
	assert_int_equal(x.conn->rcv_nxt, RCV + 16);
	down();
}

static void test_probe_taken(void **state)
{
	into(TSA_ST_ESTABLISHED);
	feed(RCV, SND, PKT_ACK, 0, "x", 1);
	x.n = 0;
	send_bytes(3000);
	assert_int_equal(x.n, 0);
	pass(1100 * NSEC_PER_MSEC);
	assert_int_equal(x.n, 1);
	/* The window opened meanwhile, the byte was taken. */
	feed(RCV + 1, SND + 1, PKT_ACK, 5000, NULL, 0);
	assert_int_equal(x.n, 4);
	assert_int_equal(x.out[1].seq, SND + 1);
	assert_int_equal(last()->seq, SND + 2001);
	assert_int_equal(last()->len, 999);
	down();
}

/* Without an owner: a peer who takes a byte with each probe and opens no window does not hold us for ever. */
static void test_probe_orphan(void **state)
{
	u32 i;

	into(TSA_ST_ESTABLISHED);
	feed(RCV, SND, PKT_ACK, 0, "x", 1);
	assert_int_equal(read_bytes(1), 1);
	send_bytes(3000);
	tsa_close(x.conn);
	for (i = 0; i < 100 && x.tsa->conns; i++) {
		x.n = 0;
		while (!x.n && x.tsa->conns)
			pass(NSEC_PER_SEC);
		if (last()->flags == PKT_ACK)
			feed(RCV + 1, last()->seq + 1, PKT_ACK, 0, NULL, 0);
	}
	assert_int_equal(i, 16);
	assert_int_equal(last()->flags, PKT_RST | PKT_ACK);
	down();
}

/* Sent again, the last bytes fill the window: the FIN does not go along. */
static void test_fin_beyond_window(void **state)
{
	into(TSA_ST_ESTABLISHED);
	feed(RCV, SND, PKT_ACK, MSS, "x", 1);
	x.n = 0;
	send_bytes(MSS);
	tsa_shutdown(x.conn);
	assert_int_equal(x.n, 1);
	pass(1100 * NSEC_PER_MSEC);
	assert_int_equal(x.n, 2);
	assert_int_equal(last()->len, MSS);
	assert_int_equal(last()->flags, PKT_PSH | PKT_ACK);
	feed(RCV + 1, SND + MSS, PKT_ACK, MSS, NULL, 0);
	assert_int_equal(last()->flags, PKT_FIN | PKT_ACK);
	down();
}

/* A FIN alone meets a closed window: it is the probe. */
static void test_probe_fin(void **state)
{
	into(TSA_ST_ESTABLISHED);
	feed(RCV, SND, PKT_ACK, 0, "x", 1);
	x.n = 0;
	tsa_shutdown(x.conn);
	assert_int_equal(x.n, 0);
	pass(1100 * NSEC_PER_MSEC);
	assert_int_equal(last()->flags, PKT_FIN | PKT_ACK);
	feed(RCV + 1, SND + 1, PKT_ACK, 0, NULL, 0);
	assert_int_equal(x.conn->state, TSA_ST_FIN_WAIT2);
	down();
}

/* RFC 6298: Karn, doubling, and back with the first new measurement. */
static void test_rto(void **state)
{
	u32 i;

	into(TSA_ST_ESTABLISHED);
	send_bytes(10);
	pass(999 * NSEC_PER_MSEC);
	assert_int_equal(x.n, 1);
	pass(2 * NSEC_PER_MSEC);
	assert_int_equal(x.n, 2);
	pass(1995 * NSEC_PER_MSEC);
	assert_int_equal(x.n, 2);
	pass(10 * NSEC_PER_MSEC);
	assert_int_equal(x.n, 3);
	feed(RCV, SND + 10, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.conn->srtt_ns, 0); /* ambiguous */
	assert_int_equal(x.conn->rto_ns, 4 * NSEC_PER_SEC);
	for (i = 1; i < 20; i++) {
		send_bytes(10);
		pass(300 * NSEC_PER_MSEC);
		feed(RCV, SND + 10 + 10 * i, PKT_ACK, WND, NULL, 0);
		if (i == 1) {
			assert_int_equal(x.conn->srtt_ns, 300 * NSEC_PER_MSEC);
			assert_int_equal(x.conn->rto_ns, 900 * NSEC_PER_MSEC);
		}
	}
	assert_int_equal(x.conn->srtt_ns, 300 * NSEC_PER_MSEC);
	assert_true(x.conn->rto_ns < 310 * NSEC_PER_MSEC);
	down();
}

/* Slow start from the initial window, half after loss, one segment after a timeout. */
static void test_congestion(void **state)
{
	u32 i;

	into(TSA_ST_ESTABLISHED);
	x.conn->snd_wnd = x.conn->max_snd_wnd = 1000000;
	send_bytes(100 * MSS);
	assert_int_equal(x.n, 4); /* RFC 5681: four of 1000 */
	feed(RCV, SND + MSS, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.conn->cwnd, 5 * MSS);
	assert_int_equal(x.conn->recover, SND + MSS - 1); /* stays near, or it would be ahead after 2 GiB */
	assert_int_equal(x.n, 6);
	/* Limited transmit for two duplicates, fast retransmit with the third. */
	for (i = 0; i < 2; i++) {
		feed(RCV, SND + MSS, PKT_ACK, WND, NULL, 0);
		assert_int_equal(x.n, 7 + i);
		assert_int_equal(last()->seq, SND + (6 + i) * MSS);
	}
	feed(RCV, SND + MSS, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.n, 9);
	assert_int_equal(last()->seq, SND + MSS);
	assert_int_equal(x.conn->ssthresh, 3500);
	assert_true(x.conn->in_recovery);
	/* A partial ACK sends the next hole, a full one ends it. */
	feed(RCV, SND + 3 * MSS, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.out[9].seq, SND + 3 * MSS);
	assert_int_equal(x.conn->cwnd, 3500 + 3 * MSS - 2 * MSS + MSS);
	feed(RCV, x.conn->snd_max, PKT_ACK, WND, NULL, 0);
	assert_false(x.conn->in_recovery);
	assert_true(x.conn->cwnd <= 3500);
	feed(RCV, x.conn->snd_una + MSS, PKT_ACK, WND, NULL, 0);
	assert_true(seq_gt(x.conn->snd_una, x.conn->recover));
	pass(1500 * NSEC_PER_MSEC);
	assert_int_equal(x.conn->cwnd, MSS);
	/* What comes back of the flight before the timeout is no reason to retransmit fast (RFC 6582 4). */
	for (i = 0; i < 5; i++)
		feed(RCV, x.conn->snd_una, PKT_ACK, WND, NULL, 0);
	assert_int_equal(tsa_stats(x.tsa)->fast_retransmits, 1);
	down();
}

static void test_idle_restart(void **state)
{
	u32 i;

	into(TSA_ST_ESTABLISHED);
	for (i = 1; i <= 10; i++) {
		send_bytes(MSS);
		feed(RCV, SND + i * MSS, PKT_ACK, WND, NULL, 0);
	}
	assert_int_equal(x.conn->cwnd, 14 * MSS);
	pass(10 * NSEC_PER_SEC);
	send_bytes(1);
	assert_int_equal(x.conn->cwnd, 4 * MSS);
	down();
}

static void test_retries_then_reset(void **state)
{
	into(TSA_ST_ESTABLISHED);
	send_bytes(10);
	pass(3600 * NSEC_PER_SEC);
	assert_int_equal(x.events, TSA_RESET);
	assert_int_equal(tsa_error(x.conn), -ETIMEDOUT);
	assert_int_equal(last()->flags, PKT_RST | PKT_ACK);
	assert_int_equal(x.n, 1 + 15 + 1);
	assert_int_equal(loop_next_ns(&x.loop), UINT64_MAX);
	tsa_close(x.conn);
	down();
}

static void test_write_wakeup(void **state)
{
	struct tsa_config cfg = {
		.send_buf = 4000, .recv_buf = 4000, .min_rto_ns = NSEC_PER_SEC, .max_rto_ns = NSEC_PER_SEC, .max_retries = 3,
	};
	u8 buf[5000] = { 0 };

	up(&cfg);
	open_conn();
	assert_int_equal(tsa_sendv(x.conn, &(struct iovec){ buf, sizeof(buf) }, 1), 4000);
	assert_int_equal(tsa_sendv(x.conn, &(struct iovec){ buf, 1 }, 1), -EAGAIN);
	assert_int_equal(tsa_sendv(x.conn, &(struct iovec){ buf, 0 }, 1), 0);
	feed(RCV, SND + 500, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.events, 0);
	feed(RCV, SND + 1000, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.events, TSA_WRITABLE);
	down();
}

/* ---- receiving ---- */

static void test_window_scale(void **state)
{
	struct tcp_info_ho info = info_default();

	up(NULL);
	info.snd_wscale = 2;
	info.rcv_wscale = 7;
	info.rcv_wnd = 65535;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), 0);
	feed(RCV, SND, PKT_ACK, 1000, "x", 1);
	assert_int_equal(x.conn->snd_wnd, 4000);
	/* 256 KiB of buffer, one byte unread: told in units of 128, never more than there is. */
	assert_int_equal(last()->window, ((256 << 10) - 1) >> 7);
	assert_int_equal(x.conn->rcv_adv, RCV + 1 + (((256 << 10) - 1) & ~127u));
	down();
}

/* The right edge never moves left, and moves right in steps that are worth it. */
static void test_window_edge(void **state)
{
	struct tsa_config cfg = {
		.send_buf = 4000, .recv_buf = 8000, .min_rto_ns = NSEC_PER_SEC, .max_rto_ns = NSEC_PER_SEC, .max_retries = 3,
	};
	struct tcp_info_ho info = info_default();
	static u8 data[8000];
	u32 edge;

	up(&cfg);
	info.rcv_wnd = 8000;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), 0);
	feed(RCV, SND, PKT_ACK, WND, data, 8000);
	assert_int_equal(last()->window, 0);
	edge = last()->ack;
	/* A probe: answered, not taken. */
	feed(RCV + 8000, SND, PKT_ACK, WND, "p", 1);
	assert_int_equal(last()->ack, edge);
	assert_int_equal(x.conn->rcv.len, 8000);
	x.n = 0;
	assert_int_equal(read_bytes(500), 500);
	assert_int_equal(x.n, 0);
	feed(RCV + 8000, SND, PKT_ACK, WND, "p", 1);
	assert_int_equal(last()->window, 0);
	assert_int_equal(read_bytes(1600), 1600);
	assert_int_equal(x.n, 2);
	assert_int_equal(last()->window, 2100);
	down();
}

/* ---- hand-over ---- */

static void test_handover(void **state)
{
	struct tcp_info_ho info = info_default();
	struct tsa_conn *again;

	up(NULL);
	info.rx_data = (const u8 *)"early";
	info.rx_len = 5;
	info.peer_fin = true;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), 0);
	assert_int_equal(x.calls, 0); /* not from inside */
	pass(NSEC_PER_MSEC);
	assert_int_equal(x.calls, 1);
	assert_int_equal(x.events, TSA_READABLE | TSA_EOF);
	assert_int_equal(x.conn->state, TSA_ST_CLOSE_WAIT);
	assert_int_equal(read_bytes(3), 3);
	assert_int_equal(read_bytes(3), 2);
	assert_int_equal(read_bytes(3), 0);
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &again), -EEXIST);
	assert_int_equal(tsa_time_wait_add(x.tsa, &info), -EEXIST);
	send_bytes(3);
	assert_int_equal(last()->seq, SND);
	tsa_close(x.conn);
	assert_int_equal(last()->flags, PKT_FIN | PKT_ACK);
	feed(RCV, SND + 4, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.tsa->conns, 0);
	assert_int_equal(x.calls, 1);
	down();
}

/* The CM's last bytes are still unacknowledged: their ACK is awaited, they are never sent again. */
static void test_handover_outstanding(void **state)
{
	struct tcp_info_ho info = info_default();

	up(NULL);
	info.snd_nxt = info.snd_max = SND + 100;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), 0);
	pass(10 * NSEC_PER_SEC);
	assert_int_equal(x.n, 0);
	send_bytes(10);
	assert_int_equal(last()->seq, SND + 100);
	pass(1100 * NSEC_PER_MSEC);
	assert_int_equal(x.n, 2);
	assert_int_equal(last()->seq, SND + 100);
	feed(RCV, SND + 50, PKT_ACK, WND, NULL, 0);
	feed(RCV, SND + 105, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.conn->snd.len, 5);
	feed(RCV, SND + 110, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.conn->snd.len, 0);
	assert_null(x.conn->snd.buf);
	down();
}

static void test_bad_info(void **state)
{
	struct tsa_config cfg = { .send_buf = 0 };
	static const struct tsa_up out = { .output = output };
	struct tcp_info_ho info;
	struct tsa *t;

	up(NULL);
	info = info_default(), info.snd_wscale = 15;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), -EINVAL);
	info = info_default(), info.rcv_wnd = UINT32_MAX;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), -EINVAL);
	info = info_default(), info.rx_len = 1;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), -EINVAL);
	info = info_default(), info.snd_una = SND + 1;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), -EINVAL);
	assert_int_equal(tsa_create(&x.loop, &cfg, &out, NULL, &t), -EINVAL);
	/* A peer that asks for tiny segments does not get them. */
	info = info_default(), info.mss = 1;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), 0);
	assert_int_equal(x.conn->mss, TSA_MSS_MIN);
	down();
}

/* ---- the owner inside its callback ---- */

static void close_it(u32 events)
{
	if (x.conn)
		tsa_close(x.conn);
	x.conn = NULL;
}

static void abort_and_close(u32 events)
{
	if (x.conn)
		tsa_abort(x.conn);
	close_it(events);
}

static void answer_and_close(u32 events)
{
	if (!x.conn)
		return;
	read_bytes(100);
	send_bytes(3);
	close_it(events);
}

static void test_close_inside(void **state)
{
	/* Close in answer to EOF: the FIN carries the ACK. */
	into(TSA_ST_ESTABLISHED);
	x.in_event = close_it;
	feed(RCV, SND, PKT_ACK | PKT_FIN, WND, NULL, 0);
	assert_int_equal(x.n, 1);
	assert_int_equal(last()->flags, PKT_FIN | PKT_ACK);
	assert_int_equal(last()->ack, RCV + 1);
	feed(RCV + 1, SND + 1, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.tsa->conns, 0);
	down();
	/* With bytes unread, and by abort: a reset, and gone. */
	into(TSA_ST_ESTABLISHED);
	x.in_event = close_it;
	feed(RCV, SND, PKT_ACK, WND, "x", 1);
	assert_int_equal(last()->flags, PKT_RST | PKT_ACK);
	assert_int_equal(x.tsa->conns, 0);
	down();
	into(TSA_ST_ESTABLISHED);
	x.in_event = abort_and_close;
	feed(RCV, SND, PKT_ACK | PKT_FIN, WND, NULL, 0);
	assert_int_equal(x.n, 1);
	assert_int_equal(x.tsa->conns, 0);
	down();
	/* On a reset, on the last ACK, from the timer. */
	into(TSA_ST_ESTABLISHED);
	x.in_event = close_it;
	feed(RCV, SND, PKT_RST, WND, NULL, 0);
	assert_int_equal(x.tsa->conns, 0);
	down();
	into(TSA_ST_LAST_ACK);
	x.in_event = close_it;
	feed(RCV + 1, SND + 1, PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.tsa->conns, 0);
	down();
	into(TSA_ST_FIN_WAIT1);
	x.in_event = close_it;
	pass(3600 * NSEC_PER_SEC);
	assert_int_equal(x.tsa->conns, 0);
	down();
	into(TSA_ST_FIN_WAIT2);
	x.in_event = close_it;
	feed(RCV, SND + 1, PKT_FIN | PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.tsa->conns, 0);
	assert_int_equal(x.n, 1); /* the ACK of the FIN is not forgotten */
	assert_int_equal(last()->ack, RCV + 1);
	down();
	into(TSA_ST_ESTABLISHED);
	x.in_event = answer_and_close;
	feed(RCV, SND, PKT_ACK, WND, "question", 8);
	assert_int_equal(x.n, 2);
	assert_int_equal(x.out[0].len, 3);
	assert_int_equal(x.out[0].ack, RCV + 8);
	assert_int_equal(last()->flags, PKT_FIN | PKT_ACK);
	down();
}

/* ---- TIME_WAIT ---- */

static void into_time_wait(void)
{
	into(TSA_ST_FIN_WAIT2);
	feed(RCV, SND + 1, PKT_FIN | PKT_ACK, WND, NULL, 0);
	assert_int_equal(x.conn->state, TSA_ST_TIME_WAIT);
	assert_int_equal(x.events, TSA_EOF | TSA_CLOSED);
	assert_int_equal(x.n, 1);
	tsa_close(x.conn);
	x.n = 0;
}

static size_t time_waits(void)
{
	size_t n;

	tsa_usage(x.tsa, NULL, &n, NULL, NULL);
	return n;
}

static void test_time_wait(void **state)
{
	u32 i;

	into_time_wait();
	assert_int_equal(x.tsa->conns, 0);
	assert_int_equal(time_waits(), 1);
	/* The FIN again: the ACK again, and the time anew. */
	pass(50 * NSEC_PER_SEC);
	for (i = 0; i < 50; i++)
		assert_true(feed(RCV, SND + 1, PKT_FIN | PKT_ACK, WND, NULL, 0));
	assert_int_equal(x.n, 50);
	assert_int_equal(last()->flags, PKT_ACK);
	assert_int_equal(last()->seq, SND + 1);
	assert_int_equal(last()->ack, RCV + 1);
	pass(50 * NSEC_PER_SEC);
	assert_int_equal(time_waits(), 1);
	/* RFC 1337: not by any RST. */
	x.n = 0;
	assert_true(feed(RCV + 1, SND + 1, PKT_RST | PKT_ACK, WND, NULL, 0));
	assert_true(feed(RCV + 1, 0, PKT_RST, WND, NULL, 0));
	assert_int_equal(x.n, 0);
	/* What belongs there gets no answer, the rest a few. */
	assert_true(feed(RCV + 1, SND + 1, PKT_ACK, WND, NULL, 0));
	assert_int_equal(x.n, 0);
	for (i = 0; i < 100; i++)
		assert_true(feed(RCV - 5, SND + 1, PKT_ACK, WND, "old", 3));
	assert_int_equal(x.n, TSA_CHALLENGES_PER_S);
	/* A SYN not above what was received: challenge. Above: the caller's, and the record is gone. */
	pass(NSEC_PER_SEC);
	x.n = 0;
	assert_true(feed(RCV + 1, 0, PKT_SYN, WND, NULL, 0));
	assert_true(feed(RCV + 5, SND, PKT_SYN | PKT_ACK, WND, NULL, 0));
	assert_int_equal(x.n, 2);
	assert_false(feed(RCV + 2, 0, PKT_SYN, WND, NULL, 0));
	assert_int_equal(time_waits(), 0);
	assert_int_equal(tsa_stats(x.tsa)->time_wait_reuse, 1);
	assert_false(feed(RCV + 2, 0, PKT_SYN, WND, NULL, 0));
	down();
	/* It ends. */
	into_time_wait();
	pass(60 * NSEC_PER_SEC - 1000);
	assert_int_equal(time_waits(), 1);
	pass(2 * NSEC_PER_MSEC);
	assert_int_equal(time_waits(), 0);
	assert_false(feed(RCV, SND + 1, PKT_FIN | PKT_ACK, WND, NULL, 0));
	down();
}

static void test_time_wait_bounded(void **state)
{
	struct tsa_config cfg = {
		.send_buf = 4000, .recv_buf = 4000, .min_rto_ns = NSEC_PER_SEC, .max_rto_ns = NSEC_PER_SEC, .max_retries = 3,
		.time_wait_ns = 60 * NSEC_PER_SEC, .max_time_wait = 100,
	};
	struct tcp_info_ho info = info_default();
	size_t bytes;
	u32 i;

	up(&cfg);
	info.snd_nxt = SND + 1;
	info.rcv_nxt = RCV + 1;
	for (i = 0; i < 1000; i++) {
		info.tuple.rem_port = (u16)(2 + i);
		assert_int_equal(tsa_time_wait_add(x.tsa, &info), 0);
		assert_int_equal(tsa_time_wait_add(x.tsa, &info), 0); /* the same one */
	}
	assert_int_equal(time_waits(), 100);
	assert_false(feed(RCV, SND + 1, PKT_FIN | PKT_ACK, WND, NULL, 0)); /* the oldest went */
	assert_true(tsa_time_wait_forget(x.tsa, &info.tuple));
	assert_false(tsa_time_wait_forget(x.tsa, &info.tuple));
	assert_int_equal(time_waits(), 99);
	info.tuple = tuple;
	assert_int_equal(tsa_time_wait_add(x.tsa, &info), 0);
	assert_true(feed(RCV, SND + 1, PKT_FIN | PKT_ACK, WND, NULL, 0));
	assert_int_equal(last()->ack, RCV + 1);
	/* A connection takes the place of its record. */
	open_conn();
	assert_int_equal(time_waits(), 99);
	assert_false(tsa_time_wait_forget(x.tsa, &tuple));
	tsa_usage(x.tsa, NULL, NULL, NULL, &bytes);
	assert_true(bytes <= 128);
	down();
}

static void test_ipv6(void **state)
{
	struct tcp_info_ho info = info_default();
	struct tsa_conn *c[4];
	u32 i;

	up(NULL);
	info.tuple.ipv4 = false;
	/* Tuples that differ in one word, in the VLAN, in the family alone are different connections. */
	for (i = 0; i < 4; i++) {
		info.tuple.rem_addr[i] ^= 0x100;
		assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &c[i]), 0);
	}
	info.tuple.vlan_id++;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &c[0]), 0);
	info.tuple = tuple;
	assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &c[1]), 0);
	assert_true(feed(RCV, SND, PKT_ACK, WND, "x", 1));
	assert_int_equal(c[1]->rcv_nxt, RCV + 1);
	assert_int_equal(x.tsa->conns, 6);
	down();
}

/* ---- hostile ---- */

static u32 near_one(struct rand_gen *g)
{
	u32 base[] = { x.conn->rcv_nxt, x.conn->rcv_adv, x.conn->snd_una, x.conn->snd_nxt, x.conn->snd_max, 0 };
	u32 v = base[rand_gen_below(g, ARRAY_SIZE(base))];

	switch (rand_gen_below(g, 4)) {
	case 0:
		return v;
	case 1:
		return v + (u32)rand_gen_below(g, 2000) - 1000;
	case 2:
		return v + (u32)rand_gen_below(g, 100000) - 50000;
	default:
		return (u32)rand_gen_u64(g);
	}
}

static void check_invariants(const struct tsa_conn *c)
{
	u32 i, prev = c->rcv_nxt;

	assert_true(seq_leq(c->snd_una, c->snd_seq) && seq_leq(c->snd_seq, c->snd_nxt) && seq_leq(c->snd_nxt, c->snd_max));
	assert_true(seq_leq(c->rcv_nxt, c->rcv_adv));
	assert_true(c->rcv.len + tsa_span(c->rcv_nxt, c->rcv_adv) <= c->rcv_cap + 1);
	assert_true(c->snd.len <= c->tsa->cfg.send_buf);
	assert_true(c->cwnd >= c->mss);
	for (i = 0; c->ooo && i < c->ooo->n; i++) {
		assert_true(seq_gt(c->ooo->r[i].seq, prev) && seq_gt(c->ooo->r[i].end, c->ooo->r[i].seq));
		prev = c->ooo->r[i].end;
	}
	assert_true(seq_leq(prev, c->rcv_adv));
	/* Whoever waits for an ACK, or for a window, has a timer. */
	if (!tsa_ended(c) && (c->snd.len || (c->fin_queued && !c->fin_acked)))
		assert_int_not_equal(c->deadline, TSA_DL_NONE);
	assert_true(c->deadline == TSA_DL_NONE || (c->armed_ns && c->armed_ns <= c->deadline_ns));
}

static void hostile_step(struct rand_gen *g)
{
	static u8 junk[70000];
	static const u16 windows[] = { 0, 1, 100, 5000, 65535 };
	u32 len = rand_gen_chance(g, 0.5) ? 0 : (u32)rand_gen_below(g, rand_gen_chance(g, 0.1) ? 60000 : 1500);
	u8 flags = (u8)(rand_gen_chance(g, 0.9) ? PKT_ACK : 0);

	if (rand_gen_chance(g, 0.1))
		flags = (u8)rand_gen_below(g, 64);
	if (rand_gen_chance(g, 0.9))
		flags &= (u8)~(PKT_RST | PKT_FIN);
	switch (rand_gen_below(g, 10)) {
	case 0:
		pass(rand_gen_below(g, 3 * NSEC_PER_SEC));
		break;
	case 1:
		tsa_sendv(x.conn, &(struct iovec){ junk, rand_gen_below(g, 20000) }, 1);
		break;
	case 2:
		read_bytes((u32)rand_gen_below(g, 50000));
		break;
	case 3:
		if (rand_gen_chance(g, 0.02))
			tsa_shutdown(x.conn);
		break;
	default:
		feed(near_one(g), near_one(g), flags, windows[rand_gen_below(g, ARRAY_SIZE(windows))], junk, len);
	}
}

static void test_hostile(void **state)
{
	u64 seed;
	int i;

	for (seed = 1; seed <= 300; seed++) {
		struct tcp_info_ho info = info_default();
		struct rand_gen g;

		rand_gen_seed(&g, seed);
		up(NULL);
		info.snd_wscale = (u8)rand_gen_below(&g, 15);
		info.rcv_wscale = (u8)rand_gen_below(&g, 15);
		info.mss = (u16)rand_gen_below(&g, 9000);
		assert_int_equal(tsa_conn_create(x.tsa, &info, &conn_up, NULL, &x.conn), 0);
		for (i = 0; i < 300 && !tsa_ended(x.conn); i++) {
			hostile_step(&g);
			check_invariants(x.conn);
		}
		tsa_close(x.conn);
		pass(5000 * NSEC_PER_SEC); /* whatever it was: it ends */
		assert_int_equal(x.tsa->conns, 0);
		assert_int_equal(time_waits(), 0);
		assert_int_equal(loop_next_ns(&x.loop), UINT64_MAX);
		down();
	}
}

static void test_state_names(void **state)
{
	assert_string_equal(tsa_state_name(TSA_ST_FIN_WAIT2), "FIN_WAIT2");
	assert_string_equal(tsa_state_name(TSA_ST_COUNT), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rst),
		cmocka_unit_test(test_syn),
		cmocka_unit_test(test_challenges_are_limited),
		cmocka_unit_test(test_ack_range),
		cmocka_unit_test(test_blind),
		cmocka_unit_test(test_no_ack_flag),
		cmocka_unit_test(test_window_edges),
		cmocka_unit_test(test_out_of_order),
		cmocka_unit_test(test_peer_window),
		cmocka_unit_test(test_probe_taken),
		cmocka_unit_test(test_probe_orphan),
		cmocka_unit_test(test_fin_beyond_window),
		cmocka_unit_test(test_probe_fin),
		cmocka_unit_test(test_rto),
		cmocka_unit_test(test_congestion),
		cmocka_unit_test(test_idle_restart),
		cmocka_unit_test(test_retries_then_reset),
		cmocka_unit_test(test_write_wakeup),
		cmocka_unit_test(test_window_scale),
		cmocka_unit_test(test_window_edge),
		cmocka_unit_test(test_handover),
		cmocka_unit_test(test_handover_outstanding),
		cmocka_unit_test(test_bad_info),
		cmocka_unit_test(test_close_inside),
		cmocka_unit_test(test_time_wait),
		cmocka_unit_test(test_time_wait_bounded),
		cmocka_unit_test(test_ipv6),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_state_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
