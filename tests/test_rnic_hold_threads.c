/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a busy poller's QP holds back (src/rnic/qp_poll.c) goes out, whatever the program does next; or, where the connection is given up, completes as flushed. End 0
 * posts, and no thread but the test's own runs the loop, unless a test says so: nothing happens behind its back.
 */
#include "qp_pair.h"
#include "rnic/rnic_internal.h"

#define POSTS 6u /* the first one goes out at once, the others are held back */
#define SIZE 16u

static struct pair pair;

static struct rnic_qp *poster(void)
{
	return rnic_qp_of(pair.e[0].qp);
}

/* As a busy program does; the machine may be too, so that it takes some tries. */
static void poll_until_leased(struct rnic_qp *q, struct rnic_cq *cq)
{
	u64 end = loop_monotonic_ns() + 20 * NSEC_PER_SEC;

	while (!q->leased) {
		pair_no_wc(cq);
		if (loop_monotonic_ns() > end)
			fail_msg("no lease");
	}
}

static int connected(void **state)
{
	struct pair_options o = { .port = PAIR_HOST, .crc = true };

	pair_open(&pair, &o);
	for (u32 i = 0; i < 40; i++)
		assert_int_equal(pair_recv(&pair.e[1], i, i * SIZE, SIZE), 0);
	pair_connect(&pair);
	return 0;
}

static int closed(void **state)
{
	pair_close(&pair);
	return 0;
}

static void post(u32 n)
{
	for (u32 i = 0; i < n; i++) {
		pair_fill(&pair.e[0], i * SIZE, SIZE, (u8)i);
		assert_int_equal(pair_send(&pair.e[0], i, IBV_WR_SEND, i * SIZE, SIZE, NULL, 0, IBV_SEND_SIGNALED), 0);
	}
}

/* The others are still here when it returns. */
static void post_and_hold(void)
{
	poll_until_leased(poster(), pair.e[0].rcq);
	post(POSTS);
	assert_true(poster()->tx.held);
	assert_int_equal(poster()->v->sq.tail - poster()->v->sq.next, POSTS - 1);
}

/* The peer has them all, without a turn of the loop: they had left before. */
static void peer_has(u32 n)
{
	struct ibv_wc wc = { 0 };

	for (u32 i = 0; i < n; i++) {
		assert_int_equal(rnic_cq_poll(pair.e[1].rcq, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, SIZE);
		pair_expect(&pair.e[1], i * SIZE, SIZE, (u8)i);
	}
}

static void all_complete(struct rnic_cq *cq, u32 n)
{
	for (u32 i = 0; i < n; i++)
		pair_wc_is(&pair, cq, i, IBV_WC_SUCCESS);
	pair_no_wc(cq);
}

/* ---- the program goes on ---- */

static void sent_when_polled(void **state)
{
	post_and_hold();
	all_complete(pair.e[0].scq, POSTS);
	peer_has(POSTS);
}

/* The other CQ is as good. */
static void sent_when_polled_for_receives(void **state)
{
	post_and_hold();
	pair_no_wc(pair.e[0].rcq);
	assert_false(poster()->tx.held);
	peer_has(POSTS);
}

static void sent_when_there_are_many(void **state)
{
	post_and_hold();
	post(40 - POSTS);
	assert_true(poster()->v->sq.tail - poster()->v->sq.next < 32);
	pair_no_wc(pair.e[0].rcq);
	for (u32 i = 0; i < 40; i++)
		pair_wc_is(&pair, pair.e[1].rcq, i, IBV_WC_SUCCESS);
}

static void sent_with_a_large_one(void **state)
{
	post_and_hold();
	assert_int_equal(pair_recv(&pair.e[1], 99, 0, SIZE), 0);
	assert_int_equal(pair_send(&pair.e[0], POSTS, IBV_WR_RDMA_WRITE, 0, 4096, &pair.e[1], 65536, 0), 0);
	assert_false(poster()->tx.held);
	peer_has(POSTS);
}

/* Not by this thread: it does not come by again. */
static void sent_when_never_polled(void **state)
{
	u64 end = loop_monotonic_ns() + 20 * NSEC_PER_SEC;

	post_and_hold();
	pair_thread_start(&pair);
	while (__atomic_load_n(&poster()->tx.held, __ATOMIC_RELAXED) || __atomic_load_n(&poster()->leased, __ATOMIC_RELAXED))
		if (loop_monotonic_ns() > end)
			fail_msg("still held, or leased");
		else
			usleep(1000);
	pair_thread_stop(&pair);
	for (u32 i = 0; i < POSTS; i++) /* the NIC thread may have put them into the CQ, or not */
		pair_wc_is(&pair, pair.e[1].rcq, i, IBV_WC_SUCCESS);
	all_complete(pair.e[0].scq, POSTS);
}

static void sent_when_armed(void **state)
{
	post_and_hold();
	assert_int_equal(rnic_cq_arm(pair.e[0].rcq, false), 0);
	assert_false(poster()->leased);
	peer_has(POSTS);
	all_complete(pair.e[0].scq, POSTS);
}

/* What is posted once a program has armed its CQ is not held back: it may sleep at any time. */
static void not_held_when_armed(void **state)
{
	poll_until_leased(poster(), pair.e[0].rcq);
	assert_int_equal(rnic_cq_arm(pair.e[0].rcq, true), 0);
	post(POSTS);
	assert_false(poster()->tx.held);
	peer_has(POSTS);
}

/* ---- the connection ends ---- */

static void peer_is_told(int resets)
{
	pair_until(&pair, pair.e[1].disconnects == 1);
	assert_int_equal(pair.e[1].qp->reset_seen, resets);
}

static void sent_before_the_fin(void **state)
{
	post_and_hold();
	assert_int_equal(rnic_qp_modify(pair.e[0].qp, RNIC_QP_CLOSING), 0);
	assert_true(rnic_qp_fin_is_out(pair.e[0].qp));
	peer_has(POSTS);
	all_complete(pair.e[0].scq, POSTS);
	peer_is_told(0);
}

/* Programs destroy the QP right behind their last Send: it ends as if nothing had been held back. */
static void sent_before_the_qp_goes(void **state)
{
	post_and_hold();
	rnic_qp_destroy(pair.e[0].qp);
	pair.e[0].qp = NULL;
	peer_has(POSTS);
	peer_is_told(0);
	pair_no_wc(pair.e[0].scq);
}

/* The connection is thrown away, and what was held back with it: each one completes once, and tells the truth. */
static void flushed_in_error(void **state)
{
	post_and_hold();
	assert_int_equal(rnic_qp_modify(pair.e[0].qp, RNIC_QP_ERROR), 0);
	pair_wc_is(&pair, pair.e[0].scq, 0, IBV_WC_SUCCESS);
	for (u32 i = 1; i < POSTS; i++)
		pair_wc_is(&pair, pair.e[0].scq, i, IBV_WC_WR_FLUSH_ERR);
	pair_no_wc(pair.e[0].scq);
	peer_has(1);
	peer_is_told(1);
}

static void flushed_when_the_peer_ends(void **state)
{
	post_and_hold();
	assert_int_equal(rnic_qp_modify(pair.e[1].qp, RNIC_QP_ERROR), 0);
	pair_until(&pair, pair.e[0].disconnects == 1);
	for (u32 i = 0; i < POSTS; i++)
		assert_int_equal(pair_wc(&pair, pair.e[0].scq).wr_id, i);
	pair_no_wc(pair.e[0].scq);
}

/* ---- the process ends, or forks ---- */

static void sent_at_exit(void **state)
{
	post_and_hold();
	rnic_device_send_held(pair.e[0].dev);
	assert_false(poster()->tx.held);
	peer_has(POSTS);
}

/* Or the child that carries on for its parent would send them once more. */
static void sent_before_a_fork(void **state)
{
	post_and_hold();
	rnic_fork_prepare(pair.e[0].dev);
	assert_false(poster()->tx.held);
	assert_int_equal(poster()->v->sq.next, poster()->v->sq.tail);
	rnic_fork_parent(pair.e[0].dev);
	peer_has(POSTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sent_when_polled, connected, closed),
		cmocka_unit_test_setup_teardown(sent_when_polled_for_receives, connected, closed),
		cmocka_unit_test_setup_teardown(sent_when_there_are_many, connected, closed),
		cmocka_unit_test_setup_teardown(sent_with_a_large_one, connected, closed),
		cmocka_unit_test_setup_teardown(sent_when_never_polled, connected, closed),
		cmocka_unit_test_setup_teardown(sent_when_armed, connected, closed),
		cmocka_unit_test_setup_teardown(not_held_when_armed, connected, closed),
		cmocka_unit_test_setup_teardown(sent_before_the_fin, connected, closed),
		cmocka_unit_test_setup_teardown(sent_before_the_qp_goes, connected, closed),
		cmocka_unit_test_setup_teardown(flushed_in_error, connected, closed),
		cmocka_unit_test_setup_teardown(flushed_when_the_peer_ends, connected, closed),
		cmocka_unit_test_setup_teardown(sent_at_exit, connected, closed),
		cmocka_unit_test_setup_teardown(sent_before_a_fork, connected, closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
