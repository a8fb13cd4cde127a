/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Data between two queue pairs: every operation, on the wire port and on the host port, with and without CRC and markers. */
#include "qp_pair.h"

static struct pair pair;
#define A (&pair.e[0])
#define B (&pair.e[1])

/* The ports and MPA options that most tests run with. */
static const struct pair_options modes[] = {
	{ .port = PAIR_WIRE },
	{ .port = PAIR_WIRE, .crc = true },
	{ .port = PAIR_WIRE, .crc = true, .markers = true },
	{ .port = PAIR_WIRE, .markers = true, .rtr = RDMAP_RTR_SEND },
	{ .port = PAIR_HOST, .rtr = RDMAP_RTR_READ },
	{ .port = PAIR_HOST, .crc = true, .rtr = RDMAP_RTR_WRITE },
	{ .port = PAIR_HOST, .crc = true, .markers = true },
	{ .port = PAIR_HOST, .mss = 1460, .one_cq = true },
};
#define each_mode(o) for (size_t m_ = 0; m_ < ARRAY_SIZE(modes); m_++) \
	for (struct pair_options o = modes[m_], *once_ = &o; once_; once_ = NULL)

static const u32 sizes[] = { 0, 1, 3, 1023, 1024, 1025, 1400, 1424, 1425, 1426, 1427, 1428, 1429, 1430, 1431, 1432, 4097, 65000, 65449, 65450, 65451, 65452,
			     65453, 65454, 65455, 65456, 65457, 65458, 65459, 65460, 131071, 1048576 };

static void sends(void **state)
{
	each_mode(o) {
		pair_open(&pair, &o);
		for (u32 i = 0; i < 2; i++)
			assert_int_equal(pair_recv(&pair.e[i], 7, 0, PAIR_MEM / 2), 0);
		pair_connect(&pair);
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct pair_end *from = &pair.e[i & 1], *to = &pair.e[!(i & 1)];
			struct ibv_wc wc;

			pair_fill(from, PAIR_MEM / 2, sizes[i], (u8)i);
			assert_int_equal(pair_send(from, i, IBV_WR_SEND, PAIR_MEM / 2, sizes[i], NULL, 0, IBV_SEND_SIGNALED), 0);
			wc = pair_wc_is(&pair, to->rcq, 7, IBV_WC_SUCCESS);
			assert_int_equal(wc.opcode, IBV_WC_RECV);
			assert_int_equal(wc.byte_len, sizes[i]);
			assert_int_equal(wc.qp_num, to->qp->qp_num);
			assert_int_equal(wc.wc_flags, 0);
			pair_expect(to, 0, sizes[i], (u8)i);
			wc = pair_wc_is(&pair, from->scq, i, IBV_WC_SUCCESS);
			assert_int_equal(wc.opcode, IBV_WC_SEND);
			assert_int_equal(pair_recv(to, 7, 0, PAIR_MEM / 2), 0);
		}
		pair_close(&pair);
	}
}

static void writes_and_reads(void **state)
{
	each_mode(o) {
		pair_open(&pair, &o);
		pair_connect(&pair);
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct ibv_wc wc;

			pair_fill(A, 0, sizes[i], (u8)i);
			assert_int_equal(pair_send(A, 1, IBV_WR_RDMA_WRITE, 0, sizes[i], B, 77, 0), 0);
			assert_int_equal(pair_send(A, 2, IBV_WR_RDMA_READ, PAIR_MEM / 2, sizes[i], B, 77, IBV_SEND_SIGNALED), 0);
			wc = pair_wc_is(&pair, A->scq, 2, IBV_WC_SUCCESS);
			assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
			assert_int_equal(wc.byte_len, sizes[i]);
			pair_expect(B, 77, sizes[i], (u8)i);
			pair_expect(A, PAIR_MEM / 2, sizes[i], (u8)i);
			pair_no_wc(A->scq);
		}
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sends),
		cmocka_unit_test(writes_and_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
