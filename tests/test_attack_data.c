// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Attacks on connections that are up: strangers who inject segments, and peers that exhaust instead of breaking a rule. What breaks a rule (STags, Reads beyond
 * the IRD, framing) is in test_rnic_hostile.c.
 */
#include <arpa/inet.h>
#include <sys/socket.h>
#include "attack.h"
#include "qp_pair.h"

static struct pair pair;
#define E (&pair.e[0])

/* ---- strangers: addresses known, sequence numbers nearly ---- */

static struct {
	struct port_tap tap[2];
	u32 expects[2]; /* what an end said it expects next */
	struct rand_gen g;
	long injected;
} stranger;

static void overhears(struct port_tap *tap, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	if (out)
		stranger.expects[tap == &stranger.tap[1]] = p->ack;
}

/* To end @i, as if from the other one. */
static void inject(int i, u8 flags, u32 seq, u32 ack, u32 len)
{
	u8 buf[PKT_HDR_MAX + PKT_TCP_LEN + 64] = { 0 }, *tcp = buf + PKT_HDR_MAX, *frame;
	struct pkt_route r = { .smac = { 2, 0, 0, 0, 0, (u8)!i }, .dmac = { 2, 0, 0, 0, 0, (u8)i }, .vlan_id = PKT_VLAN_NONE, .ipv4 = true, .ttl = 64,
			       .src = { 0x0A000001 + (u32)!i }, .dst = { 0x0A000001 + (u32)i } };
	struct tcphdr h = { .source = htons((u16)(100 + !i)), .dest = htons((u16)(100 + i)), .seq = htonl(seq), .ack_seq = htonl(ack),
			    .window = htons((u16)rand_gen_u64(&stranger.g)), .doff = 5 };

	h.th_flags = flags;
	memcpy(tcp, &h, sizeof(h));
	memset(tcp + PKT_TCP_LEN, 0xEE, len);
	frame = pkt_push_headers(&r, tcp, PKT_TCP_LEN + len, 1);
	assert_int_equal(port_wire_inject(pair.wire, frame, (u32)(tcp - frame) + PKT_TCP_LEN + len, 0), 0);
	stranger.injected++;
}

/*
 * In the window, but for the one number that counts: segments here are multiples of four, so that a number between never is the next one, however much is in
 * flight.
 */
static void strange_segment(int i)
{
	static const u8 flags[] = { PKT_RST, PKT_RST | PKT_ACK, PKT_SYN, PKT_SYN | PKT_ACK, PKT_ACK, PKT_ACK | PKT_FIN, PKT_FIN, 0 };
	u32 k = (u32)rand_gen_below(&stranger.g, ARRAY_SIZE(flags)), near = (u32)rand_gen_below(&stranger.g, 50000) & ~3u;
	u32 seq = rand_gen_chance(&stranger.g, 0.8) ? stranger.expects[i] + near + 1 + (u32)rand_gen_below(&stranger.g, 3) : (u32)rand_gen_u64(&stranger.g);

	inject(i, flags[k], seq, (u32)rand_gen_u64(&stranger.g), flags[k] & PKT_RST ? 0 : (u32)rand_gen_below(&stranger.g, 64));
}

static void attack_both(int n)
{
	while (n--)
		for (int i = 0; i < 2; i++)
			strange_segment(i);
}

static void strangers_change_nothing(void **state)
{
	const long messages = attack_scale(60, 20000);
	const u32 len = 20000;

	for (int crc = 0; crc < 2; crc++) {
		struct pair_options o = { .port = PAIR_WIRE, .crc = crc };

		memset(&stranger, 0, sizeof(stranger));
		rand_gen_seed(&stranger.g, 7 + (u64)crc);
		pair_open(&pair, &o);
		for (int i = 0; i < 2; i++) {
			stranger.tap[i].frame = overhears;
			port_tap_add(pair.e[i].dev->port, &stranger.tap[i]);
			stranger.expects[i] = 10 + !i;
		}
		pair_connect(&pair);
		for (long m = 0; m < messages; m++) {
			int from = (int)(m & 1);
			struct ibv_wc wc;

			pair_fill(&pair.e[from], 0, len, (u8)m);
			assert_int_equal(pair_recv(&pair.e[!from], 2, 1 << 20, len), 0);
			assert_int_equal(pair_send(&pair.e[from], 1, IBV_WR_SEND, 0, len, NULL, 0, IBV_SEND_SIGNALED), 0);
			while (!rnic_cq_poll(pair.e[!from].rcq, 1, &wc)) {
				attack_both(2);
				port_wire_run(pair.wire, loop_now(&pair.loop) + 10 * NSEC_PER_USEC);
			}
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			pair_expect(&pair.e[!from], 1 << 20, len, (u8)m);
			pair_wc_is(&pair, pair.e[from].scq, 1, IBV_WC_SUCCESS);
			attack_progress("strangers", m + 1, messages);
		}
		for (int i = 0; i < 2; i++) {
			assert_int_equal(pair.e[i].disconnects, 0);
			port_tap_del(pair.e[i].dev->port, &stranger.tap[i]);
		}
		print_message("%ld messages with %ld segments of strangers among them, CRC %s\n", messages, stranger.injected, crc ? "on" : "off");
		pair_close(&pair);
	}
}

/* ---- peers that exhaust ---- */

static void raw_open(struct pair_options *o)
{
	o->port = PAIR_RAW;
	pair_open(&pair, o);
	pair_connect(&pair);
}

/* Our Send arrives, perhaps behind what nudges a peer that has said nothing. */
static void hears_a_send(void)
{
	struct ddp_hdr h;

	do
		assert_true(pair_raw_hears(&pair, &h, 3000));
	while (h.opcode == RDMAP_WRITE);
	assert_int_equal(h.opcode, RDMAP_SEND);
}

/* Another connection of the same NIC, while that of the QP is stuck. */
static void another_one_works(void)
{
	struct irdma_qp *stuck = E->qp;
	int stuck_fd = pair.fd;

	mpa_rx_destroy(&pair.raw_rx);
	pair_make_qp(&pair, 0);
	pair_connect(&pair);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(pair_send(E, 9, IBV_WR_SEND, 0, 100, NULL, 0, IBV_SEND_SIGNALED), 0);
		pair_wc_is(&pair, E->scq, 9, IBV_WC_SUCCESS);
		hears_a_send();
	}
	rnic_qp_hold(E->qp);
	rnic_qp_destroy(E->qp);
	rnic_qp_release_stream(E->qp);
	rnic_qp_put(E->qp);
	close(pair.fd);
	pair_settle(&pair);
	E->qp = stuck;
	pair.fd = stuck_fd;
	E->disconnects = 0;
}

/* What it would read waits in the program's own memory: nothing is copied, posting ends when the queue is full, others go on, and there is an end at once. */
static void peer_that_never_reads(void **state)
{
	for (int crc = 0; crc < 2; crc++) {
		struct pair_options o = { .crc = crc, .max_send_wr = 64 };
		long rss, posted = 0, done = 0, flushed = 0;
		struct ibv_wc wc;
		int err;

		raw_open(&o);
		memset(E->mem, 1, PAIR_MEM);
		rss = attack_rss_kib();
		while (!(err = pair_send(E, 1, IBV_WR_SEND, 0, PAIR_MEM, NULL, 0, IBV_SEND_SIGNALED)) && posted < 1000) {
			posted++;
			pair_step(&pair);
			done += rnic_cq_poll(E->scq, 1, &wc) > 0;
		}
		assert_int_equal(err, -ENOMEM);
		assert_in_range(posted, 64, 80); /* some are in the kernel's buffers */
		another_one_works();
		assert_true(attack_rss_kib() - rss < 4096); /* of 256 MiB posted */
		assert_int_equal(rnic_qp_modify(E->qp, RNIC_QP_ERROR), 0);
		pair_until(&pair, E->disconnects);
		while (rnic_cq_poll(E->scq, 1, &wc) == 1) {
			done++;
			flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
		}
		assert_int_equal(done, posted);
		assert_int_equal(flushed, 64);
		pair_close(&pair);
	}
}

/* An FPDU that comes a byte at a time, with as long as it likes between them, keeps nothing but itself waiting. */
static void peer_that_sends_byte_by_byte(void **state)
{
	for (int crc = 0; crc < 3; crc++) {
		struct pair_options o = { .crc = crc > 0, .markers = crc > 1 };
		u8 u[DDP_UNTAGGED_HDR + 64], wire[256];
		long rss;
		int n;

		raw_open(&o);
		assert_int_equal(pair_recv(E, 5, 0, 64), 0);
		memset(u, 'x', sizeof(u));
		ddp_put_untagged(u, RDMAP_SEND, true, 0, 1, 0);
		n = mpa_fpdu_build(&pair.raw_tx, u, sizeof(u), wire, sizeof(wire));
		assert_in_range(n, sizeof(u), sizeof(wire) - 1);
		rss = attack_rss_kib();
		for (int i = 0; i < n; i++) {
			pair_no_wc(E->rcq);
			assert_int_equal(send(pair.fd, wire + i, 1, MSG_NOSIGNAL), 1);
			pair_step(&pair);
			pair_step(&pair);
			if (i % 32 == 0) { /* ours goes on */
				assert_int_equal(pair_send(E, 1, IBV_WR_SEND, 100, 8, NULL, 0, IBV_SEND_SIGNALED), 0);
				pair_wc_is(&pair, E->scq, 1, IBV_WC_SUCCESS);
				hears_a_send();
			}
		}
		pair_wc_is(&pair, E->rcq, 5, IBV_WC_SUCCESS);
		assert_true(attack_rss_kib() - rss < 1024);
		pair_close(&pair);
	}
}

/* The first one ends the connection; nothing is left that would look at the others. */
static void flood_of_terminates(void **state)
{
	struct pair_options o = { .crc = true };
	u8 u[DDP_UNTAGGED_HDR + 4] = { 0 }, fpdu[64];
	u32 i;
	int n;

	raw_open(&o);
	assert_int_equal(pair_recv(E, 5, 0, 64), 0);
	for (i = 1; i <= 2000; i++) {
		ddp_put_untagged(u, RDMAP_TERMINATE, true, 2, i, 0);
		u[DDP_UNTAGGED_HDR] = TERM_LAYER_RDMAP << 4 | TERM_RDMAP_OPERATION;
		u[DDP_UNTAGGED_HDR + 1] = 0xFF;
		n = mpa_fpdu_build(&pair.raw_tx, u, sizeof(u), fpdu, sizeof(fpdu));
		send(pair.fd, fpdu, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT); /* later ones may find the connection closed */
		if (i % 100 == 0)
			pair_step(&pair);
	}
	pair_until(&pair, E->disconnects);
	for (i = 0; i < 20; i++)
		pair_step(&pair);
	assert_int_equal(E->disconnects, 1);
	assert_int_equal(E->qp->last_ae, RNIC_AE_TERMINATE_RECEIVED);
	pair_wc_is(&pair, E->rcq, 5, IBV_WC_WR_FLUSH_ERR);
	pair_no_wc(E->rcq);
	pair_close(&pair);
}

/* The smallest segments that TCP may be made to send; RFC 9293 3.7.1 knows no lower limit, tsa does. */
static void smallest_segments(void **state)
{
	static const u16 mss[] = { 1, 48, 52, 100 };

	for (size_t i = 0; i < ARRAY_SIZE(mss); i++)
		for (int crc = 0; crc < 3; crc++) {
			struct pair_options o = { .port = PAIR_WIRE, .mss = mss[i], .crc = crc > 0, .markers = crc > 1 };

			pair_open(&pair, &o);
			pair_connect(&pair);
			pair_fill(E, 0, 5000, 9);
			assert_int_equal(pair_recv(&pair.e[1], 2, 0, 5000), 0);
			assert_int_equal(pair_send(E, 1, IBV_WR_SEND, 0, 5000, NULL, 0, IBV_SEND_SIGNALED), 0);
			pair_wc_is(&pair, E->scq, 1, IBV_WC_SUCCESS);
			pair_wc_is(&pair, pair.e[1].rcq, 2, IBV_WC_SUCCESS);
			pair_expect(&pair.e[1], 0, 5000, 9);
			pair_close(&pair);
		}
}

/* ---- STags ---- */

/* With thousands of regions that may be written, random guesses hit with the chance that 32 random bits give, and neighbours of a known one with no better. */
static void guessed_stags(void **state)
{
	enum { REGIONS = 4096 };
	static struct rnic_mr *mr[REGIONS];
	const long guesses = attack_scale(200000, 1L << 26);
	struct pair_options o = { .port = PAIR_WIRE };
	long hits = 0, near = 0;
	struct rand_gen g;
	struct rnic_mem m;

	rand_gen_seed(&g, 3);
	pair_open(&pair, &o);
	for (int i = 0; i < REGIONS; i++) {
		struct rnic_mr_attr a = { .addr = E->mem, .length = PAIR_MEM, .access = PAIR_ALL };

		assert_int_equal(rnic_mr_create(E->pd, &a, &mr[i]), 0);
	}
	for (long i = 0; i < guesses; i++) {
		if (rnic_mem_get(E->qp, (u32)rand_gen_u64(&g), 0, 1, IBV_ACCESS_REMOTE_WRITE, &m) != RNIC_MEM_OK)
			continue;
		rnic_mem_put(&m);
		hits++;
	}
	for (int i = 0; i < REGIONS; i++)
		for (u32 d = 1; d < 512; d++) { /* what a peer that knows one would try */
			if (rnic_mem_get(E->qp, rnic_mr_stag(mr[i]) + d, 0, 1, IBV_ACCESS_REMOTE_WRITE, &m) != RNIC_MEM_OK)
				continue;
			rnic_mem_put(&m);
			near++;
		}
	print_message("%ld of %ld guesses right, %.2f expected; %ld of %d neighbours, %.2f expected\n", hits, guesses,
		      (double)guesses * REGIONS / 0x1p32, near, REGIONS * 511, (double)REGIONS * 511 * REGIONS / 0x1p32);
	assert_true(hits <= 6 + 2 * guesses * REGIONS / 0xFFFFFFFFl);
	assert_true(near <= 12);
	for (int i = 0; i < REGIONS; i++)
		assert_int_equal(rnic_mr_destroy(mr[i]), 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strangers_change_nothing),
		cmocka_unit_test(peer_that_never_reads),
		cmocka_unit_test(peer_that_sends_byte_by_byte),
		cmocka_unit_test(flood_of_terminates),
		cmocka_unit_test(smallest_segments),
		cmocka_unit_test(guessed_stags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
