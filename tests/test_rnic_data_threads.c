/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The data path with a NIC thread and programs' threads: polling, sleeping, sharing a queue pair, ending in the middle. */
#include <stdio.h>
#include "qp_pair.h"

static struct pair pair;
static int rounds = 2000;

static struct ibv_wc wait_wc(struct rnic_cq *cq)
{
	u64 end = loop_monotonic_ns() + 20 * NSEC_PER_SEC;
	struct ibv_wc wc = { 0 };

	while (rnic_cq_poll(cq, 1, &wc) != 1)
		if (loop_monotonic_ns() > end)
			fail_msg("no completion");
	return wc;
}

/* Arm, look, sleep: as a program with events does. */
static struct ibv_wc sleep_wc(struct pair_end *e, struct rnic_cq *cq)
{
	struct ibv_wc wc = { 0 };

	for (;;) {
		struct timespec ts;

		if (rnic_cq_poll(cq, 1, &wc) == 1)
			return wc;
		assert_int_equal(rnic_cq_arm(cq, false), 0);
		if (rnic_cq_poll(cq, 1, &wc) == 1)
			return wc;
		clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_sec += 20;
		if (sem_timedwait(&e->comp, &ts))
			fail_msg("no event");
	}
}

/* ---- ping-pong ---- */

enum waiting { POLLING, SLEEPING, BOTH };
static enum waiting waiting;

static void await(struct pair_end *e, int i)
{
	bool sleeps = waiting == SLEEPING || (waiting == BOTH && i / 50 % 2);
	struct ibv_wc wc = sleeps ? sleep_wc(e, e->rcq) : wait_wc(e->rcq);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 8);
	assert_int_equal(e->mem[0], (u8)i);
}

static void *ponger(void *arg)
{
	struct pair_end *e = &pair.e[1];

	for (int i = 0; i < rounds; i++) {
		await(e, i);
		assert_int_equal(pair_recv(e, 1, 0, 8), 0);
		e->mem[64] = (u8)i;
		assert_int_equal(pair_send(e, 2, IBV_WR_SEND, 64, 8, NULL, 0, i % 16 == 0 ? IBV_SEND_SIGNALED : 0), 0);
		if (i % 16 == 0)
			assert_int_equal(wait_wc(e->scq).status, IBV_WC_SUCCESS);
	}
	return NULL;
}

static void ping_pong(void **state)
{
	static const char *const names[] = { "polling", "sleeping", "in turn" };

	for (waiting = POLLING; waiting <= BOTH; waiting++)
		for (int crc = 0; crc < 2; crc++) {
			struct pair_options o = { .port = PAIR_HOST, .crc = crc };
			struct pair_end *e = &pair.e[0];
			pthread_t t;
			u64 start;

			pair_open(&pair, &o);
			assert_int_equal(pair_recv(&pair.e[0], 1, 0, 8), 0);
			assert_int_equal(pair_recv(&pair.e[1], 1, 0, 8), 0);
			pair_connect(&pair);
			pair_thread_start(&pair);
			assert_int_equal(pthread_create(&t, NULL, ponger, NULL), 0);
			start = loop_monotonic_ns();
			for (int i = 0; i < rounds; i++) {
				e->mem[64] = (u8)i;
				assert_int_equal(pair_send(e, 2, IBV_WR_SEND, 64, 8, NULL, 0, 0), 0);
				await(e, i);
				assert_int_equal(pair_recv(e, 1, 0, 8), 0);
			}
			print_message("%s, crc %d: %.2f us there and back\n", names[waiting], crc, (double)(loop_monotonic_ns() - start) / rounds / 1000);
			pthread_join(t, NULL);
			pair_thread_stop(&pair);
			pair_close(&pair);
		}
}

/* ---- a queue pair that threads share ---- */

#define SHARERS 3
static int to_do;

static int post_one(struct pair_end *e, int i)
{
	bool read = i % 3 == 2;

	return pair_send(e, 1, read ? IBV_WR_RDMA_READ : IBV_WR_SEND, read ? 16384 : 4096, 1000, &pair.e[e == pair.e], 8192, IBV_SEND_SIGNALED);
}

static void *sharer(void *arg)
{
	struct pair_end *e = arg;
	int posted = 0, done = 0, received = 0;

	while (received < to_do || done < to_do) {
		struct ibv_wc wc[8];
		int n;

		if (posted < to_do && post_one(e, posted) == 0)
			posted++;
		n = rnic_cq_poll(e->scq, 8, wc);
		for (int i = 0; i < n; i++)
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		n = n > 0 ? n : 0;
		done = __atomic_add_fetch(&e->disconnects, n, __ATOMIC_RELAXED) / SHARERS; /* a counter at hand: nobody disconnects here */
		n = rnic_cq_poll(e->rcq, 8, wc);
		for (int i = 0; i < n; i++) {
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
			assert_int_equal(wc[i].byte_len, 1000);
			assert_int_equal(pair_recv(e, 2, 65536, 1000), 0);
		}
		received = __atomic_add_fetch(&e->events[0], n > 0 ? n : 0, __ATOMIC_RELAXED) * 3 / 2 / SHARERS;
	}
	return NULL;
}

static void shared_by_threads(void **state)
{
	struct pair_options o = { .port = PAIR_HOST, .max_recv_wr = 4096, .max_send_wr = 256, .cqe = 65536 };

	to_do = rounds / 6 * 3;
	for (int crc = 0; crc < 2; crc++) {
		pthread_t t[2 * SHARERS];

		o.crc = crc;
		pair_open(&pair, &o);
		for (int i = 0; i < 4000; i++)
			for (int e = 0; e < 2; e++)
				assert_int_equal(pair_recv(&pair.e[e], 2, 65536, 1000), 0);
		pair_connect(&pair);
		pair_thread_start(&pair);
		for (int i = 0; i < 2 * SHARERS; i++)
			assert_int_equal(pthread_create(&t[i], NULL, sharer, &pair.e[i & 1]), 0);
		for (int i = 0; i < 2 * SHARERS; i++)
			pthread_join(t[i], NULL);
		assert_int_equal(pair.e[0].qp->state, RNIC_QP_RTS);
		pair_thread_stop(&pair);
		pair_close(&pair);
	}
}

/* ---- ends in the middle ---- */

static void *poller(void *arg)
{
	struct pair_end *e = arg;
	struct ibv_wc wc[8];
	u64 last[2] = { 0 };

	while (!__atomic_load_n(&to_do, __ATOMIC_RELAXED)) {
		int n = rnic_cq_poll(e->scq, 8, wc);

		for (int i = 0; i < n; i++) {
			assert_true(wc[i].wr_id > last[0]); /* each one once, in order */
			last[0] = wc[i].wr_id;
		}
		n = rnic_cq_poll(e->rcq, 8, wc);
		for (int i = 0; i < n; i++) {
			assert_true(wc[i].wr_id > last[1]);
			last[1] = wc[i].wr_id;
		}
	}
	return NULL;
}

static void ended_in_the_middle(void **state)
{
	for (int run = 0; run < 40; run++) {
		struct pair_options o = { .port = PAIR_HOST, .crc = run & 1, .max_send_wr = 64, .max_recv_wr = 64 };
		pthread_t t[2];

		pair_open(&pair, &o);
		for (u64 i = 1; i <= 60; i++)
			for (int e = 0; e < 2; e++)
				assert_int_equal(pair_recv(&pair.e[e], i, PAIR_MEM / 2, 100000), 0);
		pair_connect(&pair);
		pair_thread_start(&pair);
		__atomic_store_n(&to_do, 0, __ATOMIC_RELAXED);
		for (int e = 0; e < 2; e++)
			assert_int_equal(pthread_create(&t[e], NULL, poller, &pair.e[e]), 0);
		for (u64 i = 1; i <= 60; i++)
			for (int e = 0; e < 2; e++) {
				int rc = pair_send(&pair.e[e], i, i % 3 ? IBV_WR_SEND : IBV_WR_RDMA_READ, i % 3 ? 0 : 200000, 100000, &pair.e[!e], 0, IBV_SEND_SIGNALED);

				assert_true(rc == 0 || rc == -ENOMEM);
			}
		usleep((useconds_t)(run * 50));
		switch (run % 4) {
		case 0:
			rnic_qp_modify(pair.e[0].qp, RNIC_QP_ERROR);
			break;
		case 1:
			rnic_qp_modify(pair.e[0].qp, RNIC_QP_TERMINATE);
			break;
		case 2:
			rnic_qp_modify(pair.e[0].qp, RNIC_QP_CLOSING);
			break;
		default:
			rnic_qp_destroy(pair.e[0].qp);
			assert_int_equal(rnic_mr_destroy(pair.e[0].mr), 0);
			memset(pair.e[0].mem, 0, PAIR_MEM); /* ours alone now */
			pair.e[0].mr = NULL;
			pair.e[0].qp = NULL;
			break;
		}
		for (u64 end = loop_monotonic_ns() + 10 * NSEC_PER_SEC; run % 4 && !__atomic_load_n(&pair.e[1].disconnects, __ATOMIC_RELAXED);)
			if (loop_monotonic_ns() > end)
				fail_msg("run %d: the other end was not told", run);
			else
				usleep(1000);
		__atomic_store_n(&to_do, 1, __ATOMIC_RELAXED);
		for (int e = 0; e < 2; e++)
			pthread_join(t[e], NULL);
		pair_thread_stop(&pair);
		pair_close(&pair);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ping_pong),
		cmocka_unit_test(shared_by_threads),
		cmocka_unit_test(ended_in_the_middle),
	};

	if (argc > 1)
		rounds = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
