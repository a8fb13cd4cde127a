/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Two NICs on a wire that loses, repeats and reorders: queue pairs from the offload to the end, without a CM. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "rnic/rnic.h"
#include "capture_dir.h"

#define US NSEC_PER_USEC
#define S NSEC_PER_SEC

struct nic {
	struct irdma_device *dev;
	struct irdma_qp *qp;
	int disconnects;
};

static struct {
	struct loop loop;
	struct port_wire *wire;
	struct nic nic[2]; /* initiator, responder */
} x;

static void cm_disconnect(struct irdma_qp *qp)
{
	x.nic[qp->iwdev == x.nic[1].dev].disconnects++;
}

static const struct rnic_cm_ops cm = { .disconnect = cm_disconnect };

static void nic_up(u8 i)
{
	struct net_iface iface = {
		.ifindex = 2, .mac = { 2, 0, 0, 0, 0, i }, .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE,
	};
	struct port *port;

	assert_int_equal(rnic_device_create(&x.loop, NULL, &iface, NULL, &x.nic[i].dev), 0);
	assert_int_equal(port_wire_plug(x.wire, NULL, &iface, &rnic_port_up, x.nic[i].dev, &port), 0);
	rnic_device_attach(x.nic[i].dev, port);
	if (i == 0 && test_capture_open())
		port_capture_attach(test_capture.pcap, port);
	x.nic[i].dev->cm_ops = &cm;
}

static void wire_up(u64 seed)
{
	static const struct port_wire_path rough = {
		.latency_ns = 20 * US, .jitter_ns = 10 * US, .loss = 0.1, .duplicate = 0.05, .corrupt = 0.05, .reorder = 0.1,
		.reorder_ns = 100 * US,
	};

	memset(&x, 0, sizeof(x));
	rand_set_seed(seed);
	loop_init(&x.loop, 0);
	assert_int_equal(port_wire_create(&x.loop, seed, &x.wire), 0);
	port_wire_set_default(x.wire, &rough);
	nic_up(0);
	nic_up(1);
}

static void run(u64 seconds)
{
	port_wire_run(x.wire, loop_now(&x.loop) + seconds * S);
}

static void wire_down(void)
{
	for (int i = 0; i < 2; i++) {
		rnic_qp_release_stream(x.nic[i].qp);
		rnic_qp_destroy(x.nic[i].qp);
	}
	run(300);
	test_capture_close();
	for (int i = 0; i < 2; i++)
		rnic_device_destroy(x.nic[i].dev);
	port_wire_destroy(x.wire);
	loop_destroy(&x.loop);
	rand_unset_seed();
}

static void offload(u32 i, u32 rtr, const void *rx_data, u32 rx_len)
{
	struct tcp_info_ho tcp = {
		.tuple = { .loc_addr = { 0x0A000001 + i }, .rem_addr = { 0x0A000001 + !i }, .loc_port = (u16)(100 + i),
			   .rem_port = (u16)(100 + !i), .vlan_id = PKT_VLAN_NONE, .ipv4 = true },
		.loc_mac = { 2, 0, 0, 0, 0, (u8)i }, .rem_mac = { 2, 0, 0, 0, 0, (u8)!i }, .ttl = 64,
		.snd_una = 10 + i, .snd_nxt = 10 + i, .snd_max = 10 + i, .snd_wnd = 60000, .max_snd_wnd = 60000,
		.rcv_nxt = 10 + !i, .rcv_wnd = 60000, .mss = 1460, .rx_data = rx_data, .rx_len = rx_len,
	};
	struct rnic_iwarp_info iw = { .ird = 1, .ord = 1, .crc = true, .snd_markers = true, .rcv_markers = true,
				      .initiator = i == 0, .rtr = rtr, .rtr_timeout_ms = 30000 };
	struct irdma_sc_ah none = { 0 };

	assert_int_equal(rnic_qp_create(x.nic[i].dev, &x.nic[i].qp), 0);
	assert_int_equal(rnic_qp_offload(x.nic[i].qp, &none, &tcp, &iw), 0);
}

static void connect_both(u32 rtr)
{
	offload(0, rtr, NULL, 0);
	offload(1, rtr, NULL, 0);
}

static void rtr_and_orderly_end(void **state)
{
	for (u64 seed = 1; seed <= 60; seed++) {
		u32 rtr = 1u << seed % 3;
		struct irdma_qp *a, *b;

		wire_up(seed);
		connect_both(rtr);
		a = x.nic[0].qp;
		b = x.nic[1].qp;
		assert_int_equal(rnic_qp_send_rtr(a), 0);
		run(25);
		assert_false(b->rtr_pending);
		assert_int_equal(b->rx_fpdus, a->tx_fpdus); /* one, and what a silent peer gets (qp_nudge.c) */
		assert_int_equal(a->rx_fpdus, rtr == RDMAP_RTR_READ);
		assert_int_equal(a->state, RNIC_QP_RTS);
		assert_int_equal(b->state, RNIC_QP_RTS);
		assert_int_equal(rnic_qp_modify(a, RNIC_QP_CLOSING), 0);
		run(60);
		assert_int_equal(a->last_ae, RNIC_AE_LLP_CLOSE_COMPLETE);
		assert_int_equal(b->last_ae, RNIC_AE_LLP_CLOSE_COMPLETE);
		assert_int_equal(x.nic[0].disconnects, 1);
		assert_int_equal(x.nic[1].disconnects, 1);
		wire_down();
	}
}

static void wrong_rtr_is_terminated(void **state)
{
	static const struct rdmap_error want = { TERM_LAYER_LLP, 0, TERM_MPA_RTR };

	for (u64 seed = 1; seed <= 20; seed++) {
		struct irdma_qp *a, *b;

		wire_up(seed);
		offload(0, RDMAP_RTR_SEND, NULL, 0);
		offload(1, RDMAP_RTR_WRITE, NULL, 0);
		a = x.nic[0].qp;
		b = x.nic[1].qp;
		assert_int_equal(rnic_qp_send_rtr(a), 0);
		run(60);
		assert_int_equal(b->last_ae, RNIC_AE_TERMINATE_SENT);
		assert_int_equal(a->last_ae, RNIC_AE_TERMINATE_RECEIVED);
		assert_memory_equal(&a->term, &want, sizeof(want));
		assert_int_equal(x.nic[0].disconnects, 1);
		assert_int_equal(x.nic[1].disconnects, 1);
		wire_down();
	}
}

/* The CM releases the stream as soon as it hears of the end: the Terminate arrives all the same. */
static void terminate_survives_the_release(void **state)
{
	for (u64 seed = 1; seed <= 20; seed++) {
		wire_up(seed);
		connect_both(0);
		assert_int_equal(rnic_qp_modify(x.nic[0].qp, RNIC_QP_TERMINATE), 0);
		while (!x.nic[0].disconnects)
			assert_true(port_wire_step(x.wire, 60 * S));
		rnic_qp_release_stream(x.nic[0].qp);
		run(60);
		assert_int_equal(x.nic[1].qp->last_ae, RNIC_AE_TERMINATE_RECEIVED);
		wire_down();
	}
}

static void error_resets_the_peer(void **state)
{
	wire_up(1);
	port_wire_set_default(x.wire, &(struct port_wire_path){ .latency_ns = 10 * US });
	connect_both(0);
	assert_int_equal(rnic_qp_modify(x.nic[0].qp, RNIC_QP_ERROR), 0);
	run(1);
	assert_int_equal(x.nic[0].qp->last_ae, RNIC_AE_QP_ERROR);
	assert_int_equal(x.nic[1].qp->last_ae, RNIC_AE_LLP_CONNECTION_RESET);
	assert_true(x.nic[1].qp->reset_seen);
	assert_int_equal(x.nic[0].disconnects, 1);
	assert_int_equal(x.nic[1].disconnects, 1);
	wire_down();
}

static void peer_is_gone(void **state)
{
	wire_up(1);
	connect_both(RDMAP_RTR_SEND);
	port_wire_set_link(x.nic[1].dev->port, false);
	assert_int_equal(rnic_qp_send_rtr(x.nic[0].qp), 0);
	run(3600);
	assert_int_equal(x.nic[0].qp->last_ae, RNIC_AE_LLP_TOO_MANY_RETRIES);
	assert_int_equal(x.nic[1].qp->last_ae, RNIC_AE_RTR_TIMEOUT);
	assert_int_equal(x.nic[0].disconnects, 1);
	assert_int_equal(x.nic[1].disconnects, 1);
	wire_down();
}

/* The RTR came with the segment that ended the start-up. */
static void rtr_before_the_offload(void **state)
{
	u8 u[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE], fpdu[64];
	struct mpa_stream s;
	u32 len;

	wire_up(1);
	mpa_stream_init(&s, true, true);
	len = rdmap_build_rtr(RDMAP_RTR_WRITE, u);
	offload(0, 0, NULL, 0);
	offload(1, RDMAP_RTR_WRITE, fpdu, (u32)mpa_fpdu_build(&s, u, len, fpdu, sizeof(fpdu)));
	assert_true(x.nic[1].qp->rtr_pending);
	loop_run(&x.loop);
	assert_false(x.nic[1].qp->rtr_pending);
	wire_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rtr_and_orderly_end),
		cmocka_unit_test(wrong_rtr_is_terminated),
		cmocka_unit_test(terminate_survives_the_release),
		cmocka_unit_test(error_resets_the_peer),
		cmocka_unit_test(peer_is_gone),
		cmocka_unit_test(rtr_before_the_offload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
