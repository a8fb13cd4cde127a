/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Receive queues: a QP's own, and shared ones with their limit. */
#include "test_rnic_port.h"
#include "rnic/verbs_internal.h"

static struct fake fake;
static struct rnic_pd *pd;
static int limits_reached;

static union {
	struct rnic_rwqe wqe;
	u8 room[RNIC_RWQE_SIZE(RNIC_MAX_SGE)];
} got;

static void on_async(void *ctx, enum ibv_event_type t)
{
	assert_ptr_equal(ctx, &fake);
	assert_int_equal(t, IBV_EVENT_SRQ_LIMIT_REACHED);
	limits_reached++;
}

static int setup(void **state)
{
	fake_open(&fake, NULL);
	assert_int_equal(rnic_pd_create(fake.dev, &pd), 0);
	limits_reached = 0;
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(rnic_pd_destroy(pd), 0);
	fake_close_all(&fake);
	return 0;
}

static struct rnic_srq *shared(u32 max_wr, u32 max_sge)
{
	struct rnic_srq_attr attr = { .max_wr = max_wr, .max_sge = max_sge, .limit = UINT32_MAX, .async = on_async, .ctx = &fake };
	struct rnic_srq *srq;

	assert_int_equal(rnic_srq_create(pd, &attr, &srq), 0);
	assert_true(attr.max_wr >= max_wr);
	assert_true(attr.max_sge >= max_sge);
	assert_int_equal(attr.limit, 0);
	return srq;
}

static int post(struct rnic_rq *rq, u64 wr_id)
{
	struct ibv_sge sge = { .addr = wr_id * 16, .length = 100, .lkey = (u32)wr_id };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int rc = rnic_rq_post(rq, &wr, &bad);

	assert_ptr_equal(bad, rc ? &wr : NULL);
	return rc;
}

static u64 take(struct rnic_rq *rq)
{
	assert_true(rnic_rq_take(rq, &got.wqe, NULL));
	return got.wqe.wr_id;
}

/* ---- the ring ---- */

static void rq_sizes(void **state)
{
	static const struct { u32 max_wr, max_sge, size; int rc; } rows[] = {
		{ 0, 0, 0, 0 }, { 0, 4, 0, 0 }, { 1, 0, 1, 0 }, { 3, 1, 4, 0 }, { 64, RNIC_MAX_SGE, 64, 0 },
		{ RNIC_MAX_WR, 1, RNIC_MAX_WR, 0 }, { RNIC_MAX_WR + 1, 1, 0, -EINVAL }, { UINT32_MAX, 1, 0, -EINVAL },
		{ 1, RNIC_MAX_SGE + 1, 0, -EINVAL }, { 1, UINT32_MAX, 0, -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct rnic_rq rq;

		assert_int_equal(rnic_rq_init(&rq, rows[i].max_wr, rows[i].max_sge), rows[i].rc);
		if (rows[i].rc)
			continue;
		assert_int_equal(rq.size, rows[i].size);
		for (u32 n = 0; n < rows[i].size; n++) {
			struct ibv_recv_wr wr = { .wr_id = n }, *bad;

			assert_int_equal(rnic_rq_post(&rq, &wr, &bad), 0);
		}
		assert_int_equal(rnic_rq_used(&rq), rows[i].size);
		struct ibv_recv_wr more = { .wr_id = 1 }, *bad = NULL;
		assert_int_equal(rnic_rq_post(&rq, &more, &bad), -ENOMEM);
		assert_ptr_equal(bad, &more);
		rnic_rq_destroy(&rq);
	}
}

static void rq_copies_requests(void **state)
{
	struct ibv_sge sge[] = { { 1000, 5, 50 }, { 0, 0, 99 }, { UINT64_MAX, UINT32_MAX, 51 }, { 7, UINT32_MAX, 52 } };
	struct ibv_recv_wr wr = { .wr_id = UINT64_MAX, .sg_list = sge, .num_sge = 4 }, *bad;
	struct rnic_rq rq;

	assert_int_equal(rnic_rq_init(&rq, 2, 4), 0);
	assert_false(rnic_rq_take(&rq, &got.wqe, NULL));
	assert_int_equal(rnic_rq_post(&rq, &wr, &bad), 0);
	memset(sge, 0xee, sizeof(sge));
	assert_int_equal(take(&rq), UINT64_MAX);
	assert_int_equal(got.wqe.num_sge, 3); /* the empty one is left out */
	assert_int_equal(got.wqe.length, 5 + 2 * (u64)UINT32_MAX);
	assert_int_equal(got.wqe.sge[0].addr, 1000);
	assert_int_equal(got.wqe.sge[0].lkey, 50);
	assert_int_equal(got.wqe.sge[1].addr, UINT64_MAX);
	assert_int_equal(got.wqe.sge[1].length, UINT32_MAX);
	assert_int_equal(got.wqe.sge[2].lkey, 52);
	assert_false(rnic_rq_take(&rq, &got.wqe, NULL));
	rnic_rq_destroy(&rq);
}

static void rq_says_which_one_is_bad(void **state)
{
	struct ibv_sge sge[4] = { { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } };
	static const int too_many[] = { 4, 1 << 30, INT32_MAX, -1, INT32_MIN };
	struct rnic_rq rq;

	assert_int_equal(rnic_rq_init(&rq, 4, 3), 0);
	for (size_t i = 0; i < ARRAY_SIZE(too_many); i++) {
		struct ibv_recv_wr wr[3] = {
			{ .wr_id = 1, .next = &wr[1], .sg_list = sge, .num_sge = 3 },
			{ .wr_id = 2, .next = &wr[2], .sg_list = sge, .num_sge = too_many[i] },
			{ .wr_id = 3, .sg_list = sge, .num_sge = 1 },
		}, *bad = NULL;

		assert_int_equal(rnic_rq_post(&rq, wr, &bad), -EINVAL);
		assert_ptr_equal(bad, &wr[1]);
		assert_int_equal(rnic_rq_used(&rq), 1);
		assert_int_equal(take(&rq), 1);
		assert_int_equal(got.wqe.num_sge, 3);
	}
	rnic_rq_destroy(&rq);
}

static void rq_that_is_full_takes_the_front_of_a_chain(void **state)
{
	struct ibv_recv_wr wr[6] = { 0 }, *bad = NULL;
	struct rnic_rq rq;

	for (int i = 0; i < 6; i++) {
		wr[i].wr_id = (u64)i;
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
	}
	assert_int_equal(rnic_rq_init(&rq, 4, 1), 0);
	rq.head = rq.tail = UINT32_MAX - 1; /* its counters wrap on the way */
	assert_int_equal(rnic_rq_post(&rq, wr, &bad), -ENOMEM);
	assert_ptr_equal(bad, &wr[4]);
	for (u64 i = 0; i < 4; i++)
		assert_int_equal(take(&rq), i);
	assert_int_equal(rnic_rq_post(&rq, bad, &bad), 0);
	assert_int_equal(take(&rq), 4);
	assert_int_equal(take(&rq), 5);
	assert_int_equal(rnic_rq_used(&rq), 0);
	rnic_rq_destroy(&rq);
}

static void note(void *ctx, const struct rnic_rwqe *wqe)
{
	u64 *next = ctx;

	assert_int_equal(wqe->wr_id, (*next)++);
}

static void rq_is_flushed_in_order(void **state)
{
	struct rnic_rq rq;
	u64 next = 1;

	assert_int_equal(rnic_rq_init(&rq, 8, 1), 0);
	for (u64 i = 0; i < 6; i++)
		assert_int_equal(post(&rq, i), 0);
	take(&rq);
	rnic_rq_flush(&rq, &got.wqe, note, &next);
	assert_int_equal(next, 6);
	assert_int_equal(rnic_rq_used(&rq), 0);
	rnic_rq_flush(&rq, &got.wqe, note, &next);
	assert_int_equal(next, 6);
	rnic_rq_destroy(&rq);
}

/* ---- SRQs ---- */

static void srq_checks_its_attributes(void **state)
{
	static const struct { u32 max_wr, max_sge; } bad[] = {
		{ 0, 1 }, { RNIC_MAX_WR + 1, 1 }, { UINT32_MAX, 1 }, { 1, RNIC_MAX_SGE + 1 }, { 1, UINT32_MAX },
	};
	struct rnic_srq *srq;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct rnic_srq_attr attr = { .max_wr = bad[i].max_wr, .max_sge = bad[i].max_sge };

		assert_int_equal(rnic_srq_create(pd, &attr, &srq), -EINVAL);
	}
	assert_int_equal(pd->users, 0);
	srq = shared(RNIC_MAX_WR, RNIC_MAX_SGE);
	assert_int_equal(rnic_pd_destroy(pd), -EBUSY);
	assert_int_equal(rnic_srq_destroy(srq), 0);
}

static void srq_is_busy_while_used(void **state)
{
	struct rnic_srq *srq = shared(4, 1);

	rnic_srq_hold(srq);
	rnic_srq_hold(srq);
	assert_int_equal(rnic_srq_destroy(srq), -EBUSY);
	rnic_srq_put(srq);
	assert_int_equal(rnic_srq_destroy(srq), -EBUSY);
	rnic_srq_put(srq);
	assert_int_equal(post(&srq->rq, 1), 0);
	assert_int_equal(rnic_srq_destroy(srq), 0);
}

static int modify(struct rnic_srq *srq, u32 max_wr, u32 limit, int mask)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr, .srq_limit = limit, .max_sge = 12345 };

	return rnic_srq_modify(srq, &attr, mask);
}

static struct ibv_srq_attr query(struct rnic_srq *srq)
{
	struct ibv_srq_attr attr;

	rnic_srq_query(srq, &attr);
	return attr;
}

static void srq_limit_is_told_once(void **state)
{
	struct rnic_srq *srq = shared(8, 1);

	for (u64 i = 0; i < 6; i++)
		assert_int_equal(post(&srq->rq, i), 0);
	assert_true(rnic_srq_take(srq, &got.wqe));
	assert_int_equal(limits_reached, 0); /* not armed */
	assert_int_equal(modify(srq, 0, 3, IBV_SRQ_LIMIT), 0);
	assert_int_equal(query(srq).srq_limit, 3);
	assert_true(rnic_srq_take(srq, &got.wqe)); /* 4 left */
	assert_true(rnic_srq_take(srq, &got.wqe)); /* 3 left: not below */
	assert_int_equal(limits_reached, 0);
	assert_true(rnic_srq_take(srq, &got.wqe));
	assert_int_equal(limits_reached, 1);
	assert_int_equal(got.wqe.wr_id, 3);
	assert_int_equal(query(srq).srq_limit, 0);
	assert_true(rnic_srq_take(srq, &got.wqe));
	assert_int_equal(limits_reached, 1);
	/* armed above what is there: with the next one taken */
	assert_int_equal(modify(srq, 0, 8, IBV_SRQ_LIMIT), 0);
	assert_int_equal(limits_reached, 1);
	assert_true(rnic_srq_take(srq, &got.wqe));
	assert_int_equal(limits_reached, 2);
	/* an empty queue tells nothing */
	assert_int_equal(modify(srq, 0, 8, IBV_SRQ_LIMIT), 0);
	assert_false(rnic_srq_take(srq, &got.wqe));
	assert_int_equal(limits_reached, 2);
	/* taken back */
	assert_int_equal(modify(srq, 0, 0, IBV_SRQ_LIMIT), 0);
	assert_int_equal(post(&srq->rq, 1), 0);
	assert_true(rnic_srq_take(srq, &got.wqe));
	assert_int_equal(limits_reached, 2);
	assert_int_equal(rnic_srq_destroy(srq), 0);
}

static void srq_is_modified_or_stays(void **state)
{
	const int both = IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT;
	static const struct { u32 max_wr, limit; int mask; } bad[] = {
		{ 8, 1, 4 }, { 8, 1, -1 },
		{ 0, 9, IBV_SRQ_LIMIT }, { 0, UINT32_MAX, IBV_SRQ_LIMIT },
		{ 0, 0, IBV_SRQ_MAX_WR }, { RNIC_MAX_WR + 1, 0, IBV_SRQ_MAX_WR }, { UINT32_MAX, 0, IBV_SRQ_MAX_WR },
		{ 4, 0, IBV_SRQ_MAX_WR },  /* five are in it */
		{ 16, 17, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT },
		{ 4, 1, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT },
	};
	struct rnic_srq *srq = shared(8, 2);

	for (u64 i = 0; i < 7; i++) {
		assert_int_equal(post(&srq->rq, i), 0);
		if (i < 2)
			assert_int_equal(take(&srq->rq), i);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(modify(srq, bad[i].max_wr, bad[i].limit, bad[i].mask), -EINVAL);
		assert_int_equal(query(srq).max_wr, 8);
		assert_int_equal(query(srq).max_sge, 2);
		assert_int_equal(query(srq).srq_limit, 0);
	}
	assert_int_equal(modify(srq, 0, 0, 0), 0);
	assert_int_equal(modify(srq, 100, 100, both), 0);
	assert_int_equal(query(srq).max_wr, 128);
	assert_int_equal(query(srq).srq_limit, 100);
	assert_int_equal(modify(srq, 64, 0, IBV_SRQ_MAX_WR), -EINVAL); /* the limit would not be reachable */
	assert_int_equal(modify(srq, 64, 3, IBV_SRQ_LIMIT), 0);
	assert_int_equal(modify(srq, 5, 0, IBV_SRQ_MAX_WR), 0);
	assert_int_equal(query(srq).max_wr, 8);
	for (u64 i = 2; i < 7; i++) {
		assert_true(rnic_srq_take(srq, &got.wqe));
		assert_int_equal(got.wqe.wr_id, i);
		assert_int_equal(got.wqe.sge[0].addr, i * 16);
	}
	assert_int_equal(limits_reached, 1);
	assert_int_equal(rnic_srq_destroy(srq), 0);
}

static void srq_posts_like_a_queue(void **state)
{
	struct ibv_recv_wr wr = { .wr_id = 1, .num_sge = 3 }, *bad = NULL;
	struct rnic_srq *srq = shared(1, 2);

	assert_int_equal(rnic_srq_post(srq, &wr, &bad), -EINVAL);
	assert_ptr_equal(bad, &wr);
	wr.num_sge = 0; /* for messages without payload */
	assert_int_equal(rnic_srq_post(srq, &wr, &bad), 0);
	assert_int_equal(rnic_srq_post(srq, &wr, &bad), -ENOMEM);
	assert_int_equal(rnic_srq_post(srq, NULL, &bad), 0);
	assert_true(rnic_srq_take(srq, &got.wqe));
	assert_int_equal(got.wqe.num_sge, 0);
	assert_int_equal(got.wqe.length, 0);
	assert_int_equal(rnic_srq_destroy(srq), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rq_sizes),
		cmocka_unit_test(rq_copies_requests),
		cmocka_unit_test(rq_says_which_one_is_bad),
		cmocka_unit_test(rq_that_is_full_takes_the_front_of_a_chain),
		cmocka_unit_test(rq_is_flushed_in_order),
		cmocka_unit_test_setup_teardown(srq_checks_its_attributes, setup, teardown),
		cmocka_unit_test_setup_teardown(srq_is_busy_while_used, setup, teardown),
		cmocka_unit_test_setup_teardown(srq_limit_is_told_once, setup, teardown),
		cmocka_unit_test_setup_teardown(srq_is_modified_or_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(srq_posts_like_a_queue, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
