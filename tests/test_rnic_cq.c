/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Completion queues: order, notification, overrun, resizing, cleaning. What polling reads from streams is in the tests of QPs. */
#include "test_rnic_port.h"
#include "rnic/verbs_internal.h"

static struct fake fake;
static int comps, errors;

static void on_comp(void *ctx)
{
	assert_ptr_equal(ctx, &fake);
	comps++;
}

static void on_async(void *ctx, enum ibv_event_type t)
{
	assert_ptr_equal(ctx, &fake);
	assert_int_equal(t, IBV_EVENT_CQ_ERR);
	errors++;
}

static int setup(void **state)
{
	fake_open(&fake, NULL);
	comps = errors = 0;
	return 0;
}

static int teardown(void **state)
{
	fake_close_all(&fake);
	return 0;
}

static struct rnic_cq *queue_with(struct rnic_cq_attr attr)
{
	struct rnic_cq *cq;

	attr.comp = on_comp;
	attr.async = on_async;
	attr.ctx = &fake;
	assert_int_equal(rnic_cq_create(fake.dev, &attr, &cq), 0);
	return cq;
}

static struct rnic_cq *queue(int cqe)
{
	return queue_with((struct rnic_cq_attr){ .cqe = cqe });
}

static bool push(struct rnic_cq *cq, u64 wr_id, u32 qp_num)
{
	struct rnic_cqe cqe = { .wc = { .wr_id = wr_id, .qp_num = qp_num } };

	return rnic_cq_push(cq, &cqe);
}

static bool push_solicited(struct rnic_cq *cq, bool solicited, enum ibv_wc_status status)
{
	struct rnic_cqe cqe = { .wc = { .status = status }, .solicited = solicited };

	return rnic_cq_push(cq, &cqe);
}

static u64 poll_one(struct rnic_cq *cq)
{
	struct ibv_wc wc;

	assert_int_equal(rnic_cq_poll(cq, 1, &wc), 1);
	return wc.wr_id;
}

/* In front of libc's. */
static int yields;

int sched_yield(void)
{
	yields++;
	return 0;
}

/* What a port with a thread has. */
static void quiet(struct port_stream *s, bool on)
{
}

static int yields_of(struct rnic_cq *cq, int polls)
{
	struct ibv_wc wc;

	yields = 0;
	while (polls--)
		rnic_cq_poll(cq, 1, &wc);
	return yields;
}

/* Who polls in vain gives the processor up now and then: on a busy machine the peer may wait for it. Not where polling is what drives the peer. */
static void fruitless_polls_yield(void **state)
{
	const struct port_ops *was = fake.port.ops;
	struct port_ops ops = *was;
	struct rnic_cq *cq = queue(64);

	assert_int_equal(yields_of(cq, 1000), 0);
	ops.stream_quiet = quiet;
	fake.port.ops = &ops;
	assert_in_range(yields_of(cq, 1000), 10, 200);
	for (u32 i = 0; i < 64; i++)
		assert_true(push(cq, i, 1));
	assert_int_equal(yields_of(cq, 64), 0);
	assert_int_equal(yields_of(cq, 4), 0); /* the count begins anew */
	fake.port.ops = was;
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void sizes(void **state)
{
	static const struct { int cqe, size; } rows[] = {
		{ 1, 1 }, { 2, 2 }, { 3, 4 }, { 100, 128 }, { 128, 128 }, { 129, 256 }, { RNIC_MAX_CQE - 1, RNIC_MAX_CQE }, { RNIC_MAX_CQE, RNIC_MAX_CQE },
	};
	static const int bad[] = { 0, -1, RNIC_MAX_CQE + 1, INT32_MAX, INT32_MIN };
	struct rnic_cq *cq;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cq = queue(rows[i].cqe);
		assert_int_equal(rnic_cq_size(cq), rows[i].size);
		assert_int_equal(rnic_cq_destroy(cq), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct rnic_cq_attr attr = { .cqe = bad[i] };

		assert_int_equal(rnic_cq_create(fake.dev, &attr, &cq), -EINVAL);
	}
}

static void completions_keep_their_order(void **state)
{
	struct rnic_cq *cq = queue(4);
	struct ibv_wc wc[8];
	u64 in = 0, out = 0;

	assert_true(rnic_cq_is_empty(cq));
	assert_int_equal(rnic_cq_poll(cq, 8, wc), 0);
	for (int round = 0; round < 20; round++) { /* around the ring */
		int n;

		while (in - out < 4)
			assert_true(push(cq, in++, 1));
		assert_false(rnic_cq_is_empty(cq));
		assert_int_equal(rnic_cq_poll(cq, 0, NULL), 0);
		n = rnic_cq_poll(cq, 1 + round % 6, wc);
		assert_int_equal(n, min(1 + round % 6, 4));
		for (int i = 0; i < n; i++)
			assert_int_equal(wc[i].wr_id, out++);
	}
	assert_int_equal(rnic_cq_poll(cq, -1, wc), -EINVAL);
	assert_int_equal(errors, 0);
	assert_int_equal(rnic_cq_destroy(cq), 0); /* with completions in it */
}

static void a_completion_comes_out_as_it_went_in(void **state)
{
	struct rnic_cqe cqe = { .wc = { .wr_id = 0x1122334455667788, .status = IBV_WC_REM_ACCESS_ERR, .opcode = IBV_WC_RECV, .vendor_err = 5, .byte_len = 77,
				.qp_num = 9, .wc_flags = IBV_WC_WITH_INV, .invalidated_rkey = 0xabcd } }, got;
	struct rnic_cq *cq = queue(1);
	struct ibv_wc wc;

	assert_true(rnic_cq_push(cq, &cqe));
	assert_int_equal(rnic_cq_poll(cq, 1, &wc), 1);
	assert_memory_equal(&wc, &cqe.wc, sizeof(wc));
	cqe.solicited = true;
	assert_true(rnic_cq_push(cq, &cqe));
	assert_int_equal(rnic_cq_poll_ex(cq, 5, &got), 1);
	assert_memory_equal(&got.wc, &cqe.wc, sizeof(wc));
	assert_true(got.solicited);
	assert_int_equal(got.timestamp_ns, 0);
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void timestamps_are_the_queues(void **state)
{
	struct rnic_cq *cq = queue_with((struct rnic_cq_attr){ .cqe = 2, .timestamps = true });
	u64 before = loop_monotonic_ns();
	struct rnic_cqe got[2];

	push(cq, 1, 1);
	push(cq, 2, 1);
	assert_int_equal(rnic_cq_poll_ex(cq, 2, got), 2);
	assert_in_range(got[0].timestamp_ns, before, loop_monotonic_ns());
	assert_in_range(got[1].timestamp_ns, got[0].timestamp_ns, loop_monotonic_ns());
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

/* ---- notification ---- */

static void armed_once_for_the_next(void **state)
{
	struct rnic_cq *cq = queue(16);

	push(cq, 1, 1);
	assert_int_equal(comps, 0);
	assert_int_equal(rnic_cq_arm(cq, false), 0); /* what is there already does not count */
	assert_int_equal(comps, 0);
	assert_true(rnic_cq_is_armed(cq));
	push(cq, 2, 1);
	assert_int_equal(comps, 1);
	assert_false(rnic_cq_is_armed(cq));
	push(cq, 3, 1);
	assert_int_equal(comps, 1);
	assert_int_equal(rnic_cq_arm(cq, false), 0);
	assert_int_equal(rnic_cq_arm(cq, false), 0);
	push(cq, 4, 1);
	push(cq, 5, 1);
	assert_int_equal(comps, 2);
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void armed_for_solicited_or_errors(void **state)
{
	struct rnic_cq *cq = queue(16);

	assert_int_equal(rnic_cq_arm(cq, true), 0);
	push_solicited(cq, false, IBV_WC_SUCCESS);
	assert_int_equal(comps, 0);
	assert_true(rnic_cq_is_armed(cq));
	push_solicited(cq, true, IBV_WC_SUCCESS);
	assert_int_equal(comps, 1);
	push_solicited(cq, true, IBV_WC_SUCCESS);
	assert_int_equal(comps, 1);
	assert_int_equal(rnic_cq_arm(cq, true), 0);
	push_solicited(cq, false, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(comps, 2);
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void the_stronger_arming_wins(void **state)
{
	struct rnic_cq *cq = queue(16);

	for (int first = 0; first < 2; first++) {
		comps = 0;
		assert_int_equal(rnic_cq_arm(cq, first), 0);
		assert_int_equal(rnic_cq_arm(cq, !first), 0);
		push_solicited(cq, false, IBV_WC_SUCCESS);
		assert_int_equal(comps, 1);
		push_solicited(cq, true, IBV_WC_SUCCESS); /* the weaker one is not left over */
		assert_int_equal(comps, 1);
	}
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void without_callbacks(void **state)
{
	struct rnic_cq_attr attr = { .cqe = 1 };
	struct rnic_cq *cq;

	assert_int_equal(rnic_cq_create(fake.dev, &attr, &cq), 0);
	assert_int_equal(rnic_cq_arm(cq, false), 0);
	assert_true(push(cq, 1, 1));
	assert_false(push(cq, 2, 1));
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

/* ---- overrun ---- */

static void overrun_is_told_once_and_stays(void **state)
{
	struct rnic_cq *cq = queue(2);
	struct ibv_wc wc[4];

	assert_int_equal(rnic_cq_arm(cq, true), 0);
	assert_true(push(cq, 1, 1));
	assert_true(push(cq, 2, 1));
	assert_int_equal(errors, 0);
	assert_false(push(cq, 3, 1));
	assert_int_equal(errors, 1);
	assert_false(push(cq, 4, 1));
	assert_int_equal(errors, 1);
	assert_int_equal(rnic_cq_poll(cq, 1, wc), 1);
	assert_int_equal(wc[0].wr_id, 1);
	assert_false(push(cq, 5, 1)); /* there is room, but something is missing before it */
	assert_int_equal(rnic_cq_poll(cq, 4, wc), 1);
	assert_int_equal(wc[0].wr_id, 2);
	assert_int_equal(rnic_cq_poll(cq, 4, wc), -EOVERFLOW);
	assert_int_equal(rnic_cq_poll(cq, 4, wc), -EOVERFLOW);
	assert_int_equal(rnic_cq_poll(cq, 0, wc), 0);
	assert_int_equal(rnic_cq_arm(cq, false), -EOVERFLOW);
	assert_int_equal(errors, 1);
	assert_int_equal(comps, 0);
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void ignored_overrun_loses_the_oldest(void **state)
{
	struct rnic_cq *cq = queue_with((struct rnic_cq_attr){ .cqe = 4, .ignore_overrun = true });
	struct ibv_wc wc[8];

	for (u64 i = 0; i < 11; i++)
		assert_true(push(cq, i, 1));
	assert_int_equal(rnic_cq_poll(cq, 8, wc), 4);
	for (u64 i = 0; i < 4; i++)
		assert_int_equal(wc[i].wr_id, 7 + i);
	assert_int_equal(rnic_cq_poll(cq, 8, wc), 0);
	assert_int_equal(errors, 0);
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void indices_wrap(void **state)
{
	struct rnic_cq *cq = queue(4);

	cq->head = cq->tail = UINT32_MAX - 1;
	for (u64 i = 0; i < 4; i++)
		assert_true(push(cq, i, (u32)(i % 2)));
	assert_int_equal(poll_one(cq), 0);
	assert_int_equal(rnic_cq_resize(cq, 8), 0);
	rnic_cq_clean(cq, 0);
	assert_int_equal(poll_one(cq), 1);
	assert_int_equal(poll_one(cq), 3);
	assert_true(rnic_cq_is_empty(cq));
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

/* ---- resizing and cleaning ---- */

static void resizing_keeps_what_is_there(void **state)
{
	struct rnic_cq *cq = queue(4);

	for (u64 i = 0; i < 6; i++) { /* not at the ring's start */
		push(cq, i, 1);
		if (i < 3)
			assert_int_equal(poll_one(cq), i);
	}
	assert_int_equal(rnic_cq_arm(cq, false), 0);
	assert_int_equal(rnic_cq_resize(cq, 2), -EINVAL); /* three are in it */
	assert_int_equal(rnic_cq_resize(cq, 0), -EINVAL);
	assert_int_equal(rnic_cq_resize(cq, -5), -EINVAL);
	assert_int_equal(rnic_cq_resize(cq, RNIC_MAX_CQE + 1), -EINVAL);
	assert_int_equal(rnic_cq_size(cq), 4);
	assert_int_equal(rnic_cq_resize(cq, 9), 0);
	assert_int_equal(rnic_cq_size(cq), 16);
	assert_true(rnic_cq_is_armed(cq));
	for (u64 i = 6; i < 19; i++)
		assert_true(push(cq, i, 1));
	assert_int_equal(comps, 1);
	for (u64 i = 3; i < 18; i++)
		assert_int_equal(poll_one(cq), i);
	assert_int_equal(rnic_cq_resize(cq, 1), 0);
	assert_int_equal(rnic_cq_size(cq), 1);
	assert_int_equal(poll_one(cq), 18);
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void cleaning_removes_one_qps(void **state)
{
	static const u32 left[] = { 1, 3, 1 };
	static const u32 pushed[] = { 2, 1, 2, 2, 3, 1, 2 };
	struct rnic_cq *cq = queue(8);
	struct ibv_wc wc[8];

	rnic_cq_clean(cq, 2);
	for (u64 i = 0; i < 5; i++) { /* so that the ring wraps */
		push(cq, 0, 2);
		poll_one(cq);
	}
	for (size_t i = 0; i < ARRAY_SIZE(pushed); i++)
		push(cq, i, pushed[i]);
	rnic_cq_clean(cq, 9);
	rnic_cq_clean(cq, 2);
	assert_int_equal(rnic_cq_poll(cq, 8, wc), 3);
	for (size_t i = 0; i < ARRAY_SIZE(left); i++)
		assert_int_equal(wc[i].qp_num, left[i]);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(wc[1].wr_id, 4);
	assert_int_equal(wc[2].wr_id, 5);
	for (u64 i = 0; i < 8; i++) /* there is room again */
		assert_true(push(cq, i, 2));
	rnic_cq_clean(cq, 2);
	assert_true(rnic_cq_is_empty(cq));
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void busy_while_used(void **state)
{
	struct rnic_cq *cq = queue(8);
	struct rnic_cq_user a, b;
	struct irdma_qp qp = { 0 };

	rnic_cq_attach(cq, &a, &qp, RNIC_CQ_SEND | RNIC_CQ_RECV);
	rnic_cq_attach(cq, &b, &qp, RNIC_CQ_RECV);
	assert_int_equal(rnic_cq_destroy(cq), -EBUSY);
	rnic_cq_detach(cq, &a);
	assert_int_equal(rnic_cq_destroy(cq), -EBUSY);
	rnic_cq_detach(cq, &b);
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void polls_are_counted(void **state)
{
	struct rnic_cq *cq = queue(8);
	struct ibv_wc wc;
	u32 before = cq->polls;

	rnic_cq_poll(cq, 1, &wc);
	rnic_cq_poll(cq, 1, &wc);
	assert_int_equal(cq->polls, before + 2);
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(fruitless_polls_yield, setup, teardown),
		cmocka_unit_test_setup_teardown(sizes, setup, teardown),
		cmocka_unit_test_setup_teardown(completions_keep_their_order, setup, teardown),
		cmocka_unit_test_setup_teardown(a_completion_comes_out_as_it_went_in, setup, teardown),
		cmocka_unit_test_setup_teardown(timestamps_are_the_queues, setup, teardown),
		cmocka_unit_test_setup_teardown(armed_once_for_the_next, setup, teardown),
		cmocka_unit_test_setup_teardown(armed_for_solicited_or_errors, setup, teardown),
		cmocka_unit_test_setup_teardown(the_stronger_arming_wins, setup, teardown),
		cmocka_unit_test_setup_teardown(without_callbacks, setup, teardown),
		cmocka_unit_test_setup_teardown(overrun_is_told_once_and_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(ignored_overrun_loses_the_oldest, setup, teardown),
		cmocka_unit_test_setup_teardown(indices_wrap, setup, teardown),
		cmocka_unit_test_setup_teardown(resizing_keeps_what_is_there, setup, teardown),
		cmocka_unit_test_setup_teardown(cleaning_removes_one_qps, setup, teardown),
		cmocka_unit_test_setup_teardown(busy_while_used, setup, teardown),
		cmocka_unit_test_setup_teardown(polls_are_counted, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
