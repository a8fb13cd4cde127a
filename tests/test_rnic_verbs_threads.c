/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory, completion queues and receive queues under several threads, for TSan and ASan: memory is freed as soon as its
 * region has ended, while others access it; nothing is lost or seen twice in the queues; who waits for a notification is woken.
 */
#include <sched.h>
#include <stdatomic.h>
#include "test_rnic_port.h"
#include "rnic/verbs_internal.h"

#define ROUNDS 1500
#define BYTES 64
#define SLOTS 4

static struct fake fake;
static struct rnic_pd *pd;
static struct irdma_qp qp;
static atomic_uint published[SLOTS]; /* STags that may be alive */
static atomic_int owners_left;

static struct rnic_mw *as_mw(const struct ibv_mw *mw)
{
	return (struct rnic_mw *)mw;
}

static struct rnic_mr *as_mr(const struct ibv_mr *mr)
{
	return (struct rnic_mr *)mr;
}

static const struct rnic_bind_ops bind_ops = { .mw = as_mw, .mr = as_mr };

static int setup(void **state)
{
	fake_open(&fake, NULL);
	rnic_bind_ops = &bind_ops;
	assert_int_equal(rnic_pd_create(fake.dev, &pd), 0);
	qp = (struct irdma_qp){ .iwdev = fake.dev, .pd = pd, .qp_num = 5 };
	for (int i = 0; i < SLOTS; i++)
		published[i] = 0;
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(rnic_pd_destroy(pd), 0);
	fake_close_all(&fake);
	return 0;
}

static void run(int n, void *(*const fn[])(void *))
{
	pthread_t thread[8];

	for (int i = 0; i < n; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, fn[i], (void *)(intptr_t)i), 0);
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
}

/* ---- memory ---- */

static struct rnic_mr *region(u8 *mem)
{
	struct rnic_mr_attr attr = { mem, BYTES, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND };
	struct rnic_mr *mr;

	assert_int_equal(rnic_mr_create(pd, &attr, &mr), 0);
	return mr;
}

/* What is under an STag says which slot it was published in. */
static u8 *memory(int slot)
{
	u8 *mem = malloc(BYTES);

	assert_non_null(mem);
	memset(mem, slot, BYTES);
	return mem;
}

static void publish(int slot, u32 stag)
{
	atomic_store(&published[slot], stag);
	sched_yield();
}

static void *own_region(void *arg)
{
	int slot = (int)(intptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		u8 *mem = memory(slot);
		struct rnic_mr *mr = region(mem);

		publish(slot, rnic_mr_stag(mr));
		assert_int_equal(rnic_mr_destroy(mr), 0);
		memset(mem, 0xee, BYTES);
		free(mem);
	}
	owners_left--;
	return NULL;
}

/* One region, which moves from one piece of memory to the next. */
static void *own_moving_region(void *arg)
{
	int slot = (int)(intptr_t)arg;
	u8 *mem = memory(slot), *next;
	struct rnic_mr *mr = region(mem);

	for (int i = 0; i < ROUNDS; i++) {
		struct rnic_mr_attr attr = { .length = BYTES, .access = IBV_ACCESS_LOCAL_WRITE | (i % 2 ? IBV_ACCESS_REMOTE_READ : 0) };

		next = memory(slot);
		attr.addr = next;
		publish(slot, rnic_mr_stag(mr));
		assert_int_equal(rnic_mr_change(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, &attr), 0);
		assert_int_equal(rnic_mr_change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, &attr), 0);
		memset(mem, 0xee, BYTES);
		free(mem);
		mem = next;
	}
	assert_int_equal(rnic_mr_destroy(mr), 0);
	free(mem);
	owners_left--;
	return NULL;
}

static void bind_to(struct rnic_mw *mw, u32 rkey, struct rnic_mr *mr)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };

	wr.bind_mw.mw = (struct ibv_mw *)mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ (struct ibv_mr *)mr, 0, BYTES, IBV_ACCESS_REMOTE_READ };
	assert_int_equal(rnic_mw_bind(&qp, &wr), 0);
}

static void *own_window(void *arg)
{
	int slot = (int)(intptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		u8 *mem = memory(slot);
		struct rnic_mr *mr = region(mem);
		struct rnic_mw *mw;

		assert_int_equal(rnic_mw_create(pd, IBV_MW_TYPE_2, &mw), 0);
		bind_to(mw, rnic_mw_new_rkey(mw), mr);
		publish(slot, rnic_mw_rkey(mw));
		assert_int_equal(rnic_mr_destroy(mr), -EBUSY);
		if (i % 2)
			assert_int_equal(rnic_stag_invalidate(&qp, rnic_mw_rkey(mw), i % 4 == 1), RNIC_MEM_OK);
		else
			assert_int_equal(rnic_mw_destroy(mw), 0);
		assert_int_equal(rnic_mr_destroy(mr), 0);
		memset(mem, 0xee, BYTES);
		free(mem);
		if (i % 2)
			assert_int_equal(rnic_mw_destroy(mw), 0);
	}
	owners_left--;
	return NULL;
}

static void access_slot(int slot, u32 stag, unsigned int *seen)
{
	struct rnic_mem m;

	if (rnic_mem_get(&qp, stag, 8, BYTES - 8, IBV_ACCESS_REMOTE_READ, &m) != RNIC_MEM_OK)
		return;
	for (int i = 0; i < BYTES - 8; i++)
		assert_int_equal(m.ptr[i], slot);
	rnic_mem_put(&m);
	(*seen)++;
}

static void *access_all(void *arg)
{
	unsigned int seen = 0;

	while (owners_left > 0) {
		for (int slot = 0; slot < SLOTS; slot++)
			access_slot(slot, atomic_load(&published[slot]), &seen);
		sched_yield();
	}
	assert_true(seen > 0);
	return NULL;
}

static void memory_may_go_when_its_region_has_gone(void **state)
{
	static void *(*const fn[])(void *) = { own_region, own_moving_region, own_window, own_region, access_all, access_all };

	owners_left = SLOTS;
	run(ARRAY_SIZE(fn), fn);
}

/* ---- completion queues ---- */

#define PRODUCERS 2
#define COMPLETIONS 8000u

static struct rnic_cq *cq;
static pthread_mutex_t comp_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t comp_cond = PTHREAD_COND_INITIALIZER;
static int comps;
static atomic_uint polled;
static atomic_ullong sum;

static void on_comp(void *ctx)
{
	pthread_mutex_lock(&comp_lock);
	comps++;
	pthread_cond_signal(&comp_cond);
	pthread_mutex_unlock(&comp_lock);
}

static void on_cq_error(void *ctx, enum ibv_event_type t)
{
	fail();
}

static void wait_for_comp(void)
{
	pthread_mutex_lock(&comp_lock);
	while (!comps)
		pthread_cond_wait(&comp_cond, &comp_lock);
	comps--;
	pthread_mutex_unlock(&comp_lock);
}

static void *complete(void *arg)
{
	struct rnic_cqe cqe = { .wc = { .qp_num = (u32)(intptr_t)arg } };

	for (u64 i = 1; i <= COMPLETIONS; i++) {
		cqe.wc.wr_id = i;
		cqe.solicited = i == COMPLETIONS || i % 3 == 0;
		assert_true(rnic_cq_push(cq, &cqe));
		if (i % 64 == 0)
			sched_yield();
	}
	return NULL;
}

/* Sleeps whenever the queue is empty: a notification that gets lost ends in the test's time limit. */
static void *poll_with_events(void *arg)
{
	u64 next[PRODUCERS] = { 1, 1 };
	u32 total = 0;

	while (total < PRODUCERS * COMPLETIONS) {
		struct ibv_wc wc[16];
		int n = rnic_cq_poll(cq, 16, wc);

		if (n == 0) {
			assert_int_equal(rnic_cq_arm(cq, false), 0);
			n = rnic_cq_poll(cq, 16, wc);
		}
		if (n == 0)
			wait_for_comp();
		for (int i = 0; i < n; i++)
			assert_int_equal(wc[i].wr_id, next[wc[i].qp_num]++);
		total += (u32)n;
	}
	return NULL;
}

static void *resize(void *arg)
{
	for (int i = 0; i < 40; i++) {
		assert_int_equal(rnic_cq_resize(cq, (PRODUCERS * COMPLETIONS) << (i % 2)), 0);
		rnic_cq_clean(cq, 77);
		sched_yield();
	}
	return NULL;
}

static void *poll_beside_others(void *arg)
{
	while (atomic_load(&polled) < PRODUCERS * COMPLETIONS) {
		struct ibv_wc wc[3];
		int n = rnic_cq_poll(cq, 3, wc);

		for (int i = 0; i < n; i++)
			atomic_fetch_add(&sum, wc[i].wr_id);
		atomic_fetch_add(&polled, (u32)n);
		if (n == 0)
			sched_yield();
		assert_int_equal(rnic_cq_arm(cq, true), 0);
	}
	return NULL;
}

static void open_cq(void)
{
	struct rnic_cq_attr attr = { .cqe = PRODUCERS * COMPLETIONS, .comp = on_comp, .async = on_cq_error };

	comps = 0;
	polled = 0;
	sum = 0;
	assert_int_equal(rnic_cq_create(fake.dev, &attr, &cq), 0);
}

static void no_notification_is_lost(void **state)
{
	static void *(*const fn[])(void *) = { complete, complete, poll_with_events, resize };

	open_cq();
	run(ARRAY_SIZE(fn), fn);
	assert_true(rnic_cq_is_empty(cq));
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static void no_completion_is_lost_or_doubled(void **state)
{
	static void *(*const fn[])(void *) = { complete, complete, poll_beside_others, poll_beside_others, resize };

	open_cq();
	run(ARRAY_SIZE(fn), fn);
	assert_int_equal(polled, PRODUCERS * COMPLETIONS);
	assert_int_equal(sum, PRODUCERS * (COMPLETIONS * (u64)(COMPLETIONS + 1) / 2));
	assert_int_equal(rnic_cq_destroy(cq), 0);
}

static atomic_int qps_left;

static void *end_qps(void *arg)
{
	struct irdma_qp **qps = arg;

	for (int i = 0; i < 2; i++) {
		qps_left--;
		rnic_qp_destroy(qps[i]);
	}
	return NULL;
}

/* The thread that destroys the last queue pair is still about its business when another one finds the completion queue free. */
static void a_queue_may_go_when_its_last_qp_has_gone(void **state)
{
	for (int round = 0; round < 50; round++) {
		struct rnic_cq_attr attr = { .cqe = 65536 };
		struct rnic_qp_attr a = { .pd = pd };
		struct rnic_cqe cqe = { 0 };
		struct irdma_qp *qps[2];
		pthread_t t;

		assert_int_equal(rnic_cq_create(fake.dev, &attr, &cq), 0);
		a.send_cq = a.recv_cq = cq;
		for (int i = 0; i < 2; i++)
			assert_int_equal(rnic_qp_create_verbs(fake.dev, &a, &qps[i]), 0);
		for (int i = 0; i < 60000; i++)
			assert_true(rnic_cq_push(cq, &cqe));
		qps_left = 2;
		assert_int_equal(pthread_create(&t, NULL, end_qps, qps), 0);
		while (qps_left)
			sched_yield();
		while (rnic_cq_destroy(cq))
			sched_yield();
		pthread_join(t, NULL);
	}
}

/* ---- shared receive queues ---- */

#define POSTS 8000u

static struct rnic_srq *srq;
static atomic_uint taken, limits;
static atomic_uchar seen_wr[2 * POSTS];

static void on_limit(void *ctx, enum ibv_event_type t)
{
	assert_int_equal(t, IBV_EVENT_SRQ_LIMIT_REACHED);
	limits++;
}

static void *post(void *arg)
{
	u64 first = (u64)(intptr_t)arg * POSTS;

	for (u64 i = 0; i < POSTS;) {
		struct ibv_sge sge = { .addr = first + i, .length = 1 };
		struct ibv_recv_wr wr = { .wr_id = first + i, .sg_list = &sge, .num_sge = 1 }, *bad;
		int rc = rnic_srq_post(srq, &wr, &bad);

		assert_true(rc == 0 || rc == -ENOMEM);
		if (rc)
			sched_yield();
		else
			i++;
	}
	return NULL;
}

static void *take(void *arg)
{
	union {
		struct rnic_rwqe wqe;
		u8 room[RNIC_RWQE_SIZE(2)];
	} got;

	while (taken < 2 * POSTS) {
		if (!rnic_srq_take(srq, &got.wqe)) {
			sched_yield();
			continue;
		}
		assert_int_equal(got.wqe.num_sge, 1);
		assert_int_equal(got.wqe.sge[0].addr, got.wqe.wr_id);
		assert_int_equal(seen_wr[got.wqe.wr_id]++, 0);
		taken++;
	}
	return NULL;
}

static void *modify(void *arg)
{
	struct ibv_srq_attr attr = { .max_wr = 128, .srq_limit = 10 };

	for (int i = 0; i < 100; i++) {
		int rc = rnic_srq_modify(srq, &attr, IBV_SRQ_LIMIT);

		assert_int_equal(rc, 0);
		attr.max_wr ^= 128 ^ 64;
		rc = rnic_srq_modify(srq, &attr, IBV_SRQ_MAX_WR); /* smaller may be too small just now */
		assert_true(rc == 0 || rc == -EINVAL);
		sched_yield();
	}
	return NULL;
}

static void no_request_is_lost_or_doubled(void **state)
{
	static void *(*const fn[])(void *) = { post, post, take, take, modify };
	struct rnic_srq_attr attr = { .max_wr = 128, .max_sge = 2, .async = on_limit };

	const struct ibv_srq_attr armed = { .srq_limit = 10 };

	assert_int_equal(rnic_srq_create(pd, &attr, &srq), 0);
	assert_int_equal(rnic_srq_modify(srq, &armed, IBV_SRQ_LIMIT), 0);
	run(ARRAY_SIZE(fn), fn);
	assert_int_equal(taken, 2 * POSTS);
	for (u32 i = 0; i < 2 * POSTS; i++)
		assert_int_equal(seen_wr[i], 1);
	assert_int_equal(rnic_rq_used(&srq->rq), 0);
	assert_in_range(limits, 1, 101);
	assert_int_equal(rnic_srq_destroy(srq), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(memory_may_go_when_its_region_has_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(no_notification_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(no_completion_is_lost_or_doubled, setup, teardown),
		cmocka_unit_test_setup_teardown(a_queue_may_go_when_its_last_qp_has_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(no_request_is_lost_or_doubled, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
