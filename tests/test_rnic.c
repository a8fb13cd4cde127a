/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The NIC without its QPs: ILQ, address handles, filters, ARP table, port reservations, device. */
#include "test_rnic_port.h"

static struct fake fake;
static u32 received, accept_asked;
static struct irdma_puda_buf *kept;
static struct pkt seen_pkt;

static void cm_receive(struct irdma_sc_vsi *vsi, struct irdma_puda_buf *rbuf)
{
	received++;
	assert_ptr_equal(vsi, &fake.dev->vsi);
	assert_int_equal(rbuf->refcount, 1);
	assert_int_equal(rbuf->error, -ECONNREFUSED);
	seen_pkt = *rbuf->pkt;
	if (kept == (void *)1) {
		rnic_buf_hold(rbuf);
		kept = rbuf;
	}
	rnic_buf_put(rbuf);
}

static bool cm_may_accept(struct irdma_device *dev, void *cookie)
{
	accept_asked++;
	return cookie == (void *)5;
}

static const struct rnic_cm_ops cm = { .receive = cm_receive, .may_accept = cm_may_accept };

static int setup(void **state)
{
	static const struct rnic_limits small = { .ilq_bufs = 4 };

	fake_open(&fake, &small);
	received = accept_asked = 0;
	kept = NULL;
	return 0;
}

static int teardown(void **state)
{
	fake_close_all(&fake);
	return 0;
}

static void device_defaults(void **state)
{
	struct fake f;

	fake_open(&f, NULL);
	assert_string_equal(f.dev->name, "uwarp_fake0");
	assert_int_equal(f.dev->limits.max_ird, 128);
	assert_int_equal(f.dev->limits.max_ord, 128);
	assert_int_equal(f.dev->limits.ilq_bufs, 1 << 20);
	fake_close_all(&f);
}

static void buffers_hold_what_they_promise(void **state)
{
	static const u32 lens[] = { 0, 20, 24, 60, 61, 62, 63, 64, 65, MPA_START_FRAME_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		struct irdma_puda_buf *b = rnic_buf_get(&fake.dev->vsi, lens[i]);
		u32 room = PKT_TCP_LEN + PKT_TCP_OPT_MAX + lens[i];

		assert_non_null(b);
		assert_int_equal((uintptr_t)b->tcph % 4, 0);
		assert_ptr_equal(b->data, b->tcph);
		assert_true(b->tcph - b->mem >= PKT_HDR_MAX);
		memset(b->tcph - PKT_HDR_MAX, 0xAA, PKT_HDR_MAX + room); /* ASan looks at the end */
		assert_true(b->tcph + room <= b->mem + (b->large ? RNIC_LARGE_BUF : RNIC_SMALL_BUF));
		assert_int_equal(b->refcount, 1);
		assert_null(b->ah);
		rnic_buf_put(b);
	}
	assert_null(rnic_buf_get(&fake.dev->vsi, 100000));
	assert_null(rnic_buf_get(&fake.dev->vsi, UINT32_MAX));
}

static void pools_are_bounded(void **state)
{
	struct irdma_puda_buf *b[4];

	for (int i = 0; i < 4; i++)
		assert_non_null(b[i] = rnic_buf_get(&fake.dev->vsi, 0));
	assert_null(rnic_buf_get(&fake.dev->vsi, 0));
	rnic_buf_put(rnic_buf_get(&fake.dev->vsi, 500)); /* the other pool */
	rnic_buf_hold(b[0]);
	rnic_buf_put(b[0]);
	assert_null(rnic_buf_get(&fake.dev->vsi, 0));
	rnic_buf_put(b[0]);
	assert_non_null(b[0] = rnic_buf_get(&fake.dev->vsi, 0));
	for (int i = 0; i < 4; i++)
		rnic_buf_put(b[i]);
}

static void sends_frames(void **state)
{
	struct irdma_puda_buf *b = rnic_buf_get(&fake.dev->vsi, 0);
	struct port_ah_attr attr = { .ttl = 64 };
	struct irdma_sc_ah ah = { 0 };

	memcpy(b->data, "frame", 5);
	b->totallen = 5;
	assert_int_equal(rnic_ilq_send(&fake.dev->vsi, b), 0);
	assert_memory_equal(fake.sent, "frame", 5);
	assert_false(fake.sent_ah);
	assert_int_equal(rnic_ah_create(fake.dev, &attr, &ah), 0);
	assert_true(ah.valid);
	b->ah = &ah;
	assert_int_equal(rnic_ilq_send(&fake.dev->vsi, b), 0);
	assert_true(fake.sent_ah);
	rnic_ah_destroy(fake.dev, &ah);
	rnic_ah_destroy(fake.dev, &ah); /* harmless */
	assert_int_equal(rnic_ilq_send(&fake.dev->vsi, b), -ENOTCONN);
	b->ah = NULL;
	b->totallen = 5000;
	assert_int_equal(rnic_ilq_send(&fake.dev->vsi, b), -EMSGSIZE);
	assert_int_equal(fake.dev->vsi.tx_frames, 2);
	assert_int_equal(fake.dev->vsi.tx_errors, 2);
	rnic_buf_put(b);
	fake.ah_error = -EMFILE;
	assert_int_equal(rnic_ah_create(fake.dev, &attr, &ah), -EMFILE);
	assert_false(ah.valid);
}

static void receives_frames(void **state)
{
	struct port_rx rx = { .error = -ECONNREFUSED, .pkt = { .seq = 77 } };
	struct irdma_puda_buf *b[4];

	assert_true(fake.port.up->rx(fake.dev, &rx)); /* nobody to receive it: dropped for good */
	assert_int_equal(fake.dev->vsi.rx_dropped, 1);
	fake.dev->cm_ops = &cm;
	assert_true(fake.port.up->rx(fake.dev, &rx));
	assert_int_equal(received, 1);
	assert_int_equal(seen_pkt.seq, 77);
	for (int i = 0; i < 4; i++)
		b[i] = rnic_buf_get(&fake.dev->vsi, 0);
	assert_false(fake.port.up->rx(fake.dev, &rx)); /* full: the port offers it again */
	assert_int_equal(received, 1);
	assert_int_equal(fake.dev->vsi.rx_dropped, 2);
	for (int i = 0; i < 4; i++)
		rnic_buf_put(b[i]);
	kept = (void *)1;
	assert_true(fake.port.up->rx(fake.dev, &rx));
	assert_int_equal(kept->refcount, 1);
	rnic_buf_put(kept);
	assert_int_equal(fake.dev->vsi.rx_frames, 2);
}

static void asks_the_cm_before_accepting(void **state)
{
	assert_false(fake.port.up->may_accept(fake.dev, NULL, (void *)5));
	fake.dev->cm_ops = &cm;
	assert_true(fake.port.up->may_accept(fake.dev, NULL, (void *)5));
	assert_false(fake.port.up->may_accept(fake.dev, NULL, NULL));
	assert_int_equal(accept_asked, 2);
}

static void filters_pass_through(void **state)
{
	struct port_filter_attr attr = { .ipv4 = true };
	struct port_filter *f;

	assert_int_equal(rnic_filter_add(fake.dev, &attr, &f), 0);
	rnic_filter_kick(fake.dev, f);
	assert_int_equal(fake.kicked, 1);
	rnic_filter_del(fake.dev, f);
}

static void arp_table(void **state)
{
	static const u8 mac1[6] = { 1, 2, 3, 4, 5, 6 }, mac2[6] = { 6, 5, 4, 3, 2, 1 };
	u32 v4[4] = { 0x0A000001, 1, 2, 3 }, v4_again[4] = { 0x0A000001 }, v6[4] = { 0x0A000001 };
	u8 mac[6];
	int a, b;

	assert_int_equal(rnic_arp_find(fake.dev, true, v4), RNIC_ARP_NONE);
	a = rnic_arp_set(fake.dev, true, v4, mac1);
	assert_true(a >= 0);
	assert_int_equal(rnic_arp_find(fake.dev, true, v4_again), a); /* word 0 alone counts */
	assert_int_equal(rnic_arp_find(fake.dev, false, v6), RNIC_ARP_NONE);
	b = rnic_arp_set(fake.dev, false, v6, mac2);
	assert_int_not_equal(a, b);
	assert_int_equal(rnic_arp_set(fake.dev, true, v4, mac2), a);
	assert_int_equal(rnic_arp_mac(fake.dev, a, mac), 0);
	assert_memory_equal(mac, mac2, 6);
	assert_int_equal(rnic_arp_mac(fake.dev, 2, mac), -ENOENT);
	assert_int_equal(rnic_arp_mac(fake.dev, -1, mac), -ENOENT);
	rnic_arp_flush(fake.dev);
	assert_int_equal(rnic_arp_mac(fake.dev, a, mac), -ENOENT);
	assert_int_equal(rnic_arp_find(fake.dev, true, v4), RNIC_ARP_NONE);
}

static void arp_table_is_bounded(void **state)
{
	static const u8 mac[6] = { 2 };
	u32 addr[4] = { 0xFD000000, 0, 0, 0 };
	u32 n;
	int rc;

	for (n = 0; n < 100000; n++) {
		addr[3] = n;
		rc = rnic_arp_set(fake.dev, false, addr, mac);
		if (rc < 0)
			break;
		assert_int_equal(rc, n);
	}
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(n, 65536);
	addr[3] = 4711;
	assert_int_equal(rnic_arp_set(fake.dev, false, addr, mac), 4711); /* a known one still changes */
}

static void apbvt_counts_references(void **state)
{
	u32 a[4] = { 0x0A000001 }, any[4] = { 0 };
	u16 n = 7174, chosen = 0;

	assert_int_equal(rnic_apbvt_add(fake.dev, true, a, &n, false), 0);
	assert_int_equal(rnic_apbvt_add(fake.dev, true, a, &n, true), 0);
	assert_int_equal(fake.reserved, 1);
	assert_int_equal(rnic_apbvt_add(fake.dev, true, any, &n, false), 0);
	assert_int_equal(rnic_apbvt_add(fake.dev, false, any, &n, false), 0);
	assert_int_equal(rnic_apbvt_add(fake.dev, true, a, &chosen, false), 0);
	assert_int_equal(chosen, 50003);
	assert_int_equal(rnic_apbvt_count(fake.dev), 4);
	rnic_apbvt_del(fake.dev, true, a, n);
	assert_int_equal(fake.released, 0);
	rnic_apbvt_del(fake.dev, true, a, n);
	assert_int_equal(fake.released, 1);
	rnic_apbvt_del(fake.dev, true, any, n);
	rnic_apbvt_del(fake.dev, false, any, n);
	rnic_apbvt_del(fake.dev, true, a, chosen);
	assert_int_equal(rnic_apbvt_count(fake.dev), 0);
	fake.reserve_error = -EADDRINUSE;
	assert_int_equal(rnic_apbvt_add(fake.dev, true, a, &n, false), -EADDRINUSE);
	assert_int_equal(rnic_apbvt_count(fake.dev), 0);
}

static void names(void **state)
{
	for (unsigned int s = 0; s < RNIC_QP_STATES; s++)
		assert_string_not_equal(rnic_qp_state_str((enum rnic_qp_state)s), "?");
	for (unsigned int ae = 0; ae <= RNIC_AE_RTR_TIMEOUT; ae++)
		assert_string_not_equal(rnic_ae_str((enum rnic_ae)ae), "?");
	assert_string_equal(rnic_qp_state_str((enum rnic_qp_state)99), "?");
	assert_string_equal(rnic_ae_str((enum rnic_ae)99), "?");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(device_defaults),
		TEST(buffers_hold_what_they_promise),
		TEST(pools_are_bounded),
		TEST(sends_frames),
		TEST(receives_frames),
		TEST(asks_the_cm_before_accepting),
		TEST(filters_pass_through),
		TEST(arp_table),
		TEST(arp_table_is_bounded),
		TEST(apbvt_counts_references),
		TEST(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
