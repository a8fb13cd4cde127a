/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The receiver: every message, any split, direct and staged, CRC and markers on and off, against a plain record. */
#include "test_rdmap_rx.h"

/* Every opcode, once and in segments of all kinds of sizes; with @big, FPDUs that are read straight to their place. */
static void write_everything(struct writer *w, u32 big)
{
	u8 body[RDMAP_ATOMIC_REQ_SIZE];
	u8 term[] = { 0x12, 0x02, 0, 0 };

	for (u32 i = 0; i < sizeof(body); i++)
		body[i] = (u8)(i * 7 + 1);
	write_empty(w);
	write_message(w, RDMAP_SEND, 0, 0, 1, 0, 100);
	write_message(w, RDMAP_WRITE, 0x1234, 77, 0, 0, 100);
	write_message(w, RDMAP_WRITE, 0x80000001, 1001, 0, 150, 61);
	write_message(w, RDMAP_SEND_INV, 0xABCDEF01, 0, 2, 130 + big, 64 + big);
	write_control(w, RDMAP_READ_REQ, 1, body, RDMAP_READ_REQ_SIZE);
	write_message(w, RDMAP_READ_RESP, 5, 2003, 0, 33 + 3 * big, 17 + big);
	write_message(w, RDMAP_SEND_SE, 0, 0, 3, 3 + big, 1 + big);
	write_control(w, RDMAP_IMM, 4, body, RDMAP_IMM_SIZE);
	write_control(w, RDMAP_ATOMIC_REQ, 2, body, RDMAP_ATOMIC_REQ_SIZE);
	write_message(w, RDMAP_WRITE, 9, 2003 + 3 * big + 40, 0, 2 * big + 1, 8 + big / 2);
	write_message(w, RDMAP_SEND_SE_INV, 7, 0, 5, 41, 9);
	write_control(w, RDMAP_ATOMIC_RESP, 1, body, RDMAP_ATOMIC_RESP_SIZE);
	write_control(w, RDMAP_IMM_SE, 6, body + 5, RDMAP_IMM_SIZE);
	write_empty(w);
	write_control(w, RDMAP_READ_REQ, 3, body + 3, RDMAP_READ_REQ_SIZE);
	write_control(w, RDMAP_TERMINATE, 1, term, sizeof(term));
}

static void check_split(const struct writer *w, u32 chunk, u32 piece, bool straight)
{
	struct qp *qp = qp_new(w->s.crc, w->s.markers);

	qp->piece = piece;
	rand_gen_seed(&qp->g, chunk + piece);
	assert_int_equal(qp_feed(qp, w->stream, w->len, chunk), 0);
	qp_check(qp, w);
	assert_true(!straight || qp->straight > 0);
	qp_free(qp);
}

/* Small FPDUs: reads of 1, 2, 3... bytes. */
static void every_chunk_size(void **state)
{
	for (u32 mode = 0; mode < 4; mode++) {
		struct writer *w = writer_new(mode & 1, mode & 2, mode);

		write_everything(w, 0);
		for (u32 chunk = 1; chunk <= w->len; chunk += chunk < 100 ? 1 : 29)
			check_split(w, chunk, chunk % 2 ? 7 : UINT32_MAX, false);
		check_split(w, STREAM_MAX, 1, false);
		free(w);
	}
}

/* FPDUs of all sizes, in reads of all sizes, into pieces of all sizes. */
static void large_and_small(void **state)
{
	static const u32 bigs[] = { 4000, 8192, 8450, 9001, 64000 };
	static const u32 chunks[] = { 0, 0, 3, 21, 1448, 4096, 65536, STREAM_MAX };

	for (u32 mode = 0; mode < 4; mode++)
		for (size_t b = 0; b < ARRAY_SIZE(bigs); b++) {
			struct writer *w = writer_new(mode & 1, mode & 2, b);

			write_everything(w, bigs[b]);
			for (size_t c = 0; c < ARRAY_SIZE(chunks); c++)
				check_split(w, chunks[c], c % 2 ? 1000 : UINT32_MAX, mode == 0 && chunks[c] == 1448 && bigs[b] > 9000);
			free(w);
		}
}

/* A stream with a direct FPDU between small ones, cut in three at nearly every byte. */
static void every_cut(void **state)
{
	for (u32 mode = 0; mode < 4; mode++) {
		struct writer *w = writer_new(mode & 1, mode & 2, 5);
		struct qp *qp = qp_new(mode & 1, mode & 2);

		write_message(w, RDMAP_SEND, 0, 0, 1, 10, 10);
		write_message(w, RDMAP_WRITE, 3, 5, 0, 9000, 9000);
		write_message(w, RDMAP_SEND_INV, 3, 0, 2, 8800, 8700);
		for (u32 cut = 1; cut < w->len; cut += cut % 1000 > 300 && cut % 8700 > 600 ? 3 : 1) {
			u32 second = cut + (u32)rand_gen_below(&w->g, w->len - cut);

			rdmap_rx_destroy(&qp->rx);
			rdmap_rx_init(&qp->rx, &qp_ops, qp, mode & 1, mode & 2);
			qp->log.len = 0;
			memset(qp->mem, 0, 9100);
			memset(qp->mem + TAGGED_ROOM, 0, 100);
			memset(qp->mem + TAGGED_ROOM + MSG_ROOM, 0, 8900);
			qp->piece = cut % 3 ? UINT32_MAX : 129;
			assert_int_equal(qp_feed(qp, w->stream, cut, STREAM_MAX), 0);
			assert_int_equal(qp_feed(qp, w->stream + cut, second - cut, STREAM_MAX), 0);
			assert_int_equal(qp_feed(qp, w->stream + second, w->len - second, STREAM_MAX), 0);
			assert_string_equal(qp->log.text, w->log.text);
			assert_memory_equal(qp->mem, w->mem, 9100);
			assert_memory_equal(qp->mem + TAGGED_ROOM, w->mem + TAGGED_ROOM, 100);
			assert_memory_equal(qp->mem + TAGGED_ROOM + MSG_ROOM, w->mem + TAGGED_ROOM + MSG_ROOM, 8900);
		}
		qp_free(qp);
		free(w);
	}
}

static void random_streams(void **state)
{
	for (u32 seed = 0; seed < 40; seed++) {
		struct writer *w = writer_new(seed & 1, seed & 2, seed);
		u32 msn = 1, read = 1;

		for (int i = 0; i < 40 && w->len < STREAM_MAX / 2; i++) {
			u32 len = (u32)rand_gen_below(&w->g, rand_gen_chance(&w->g, 0.5) ? 200 : 120000);
			u32 seg = 1 + (u32)rand_gen_below(&w->g, rand_gen_chance(&w->g, 0.5) && len < 4000 ? 2000 : 65000);
			u8 body[RDMAP_READ_REQ_SIZE] = { (u8)i };

			if (len / seg > 20)
				seg = len;
			if (rand_gen_chance(&w->g, 0.4) && msn <= MSGS)
				write_message(w, (u8)(RDMAP_SEND + rand_gen_below(&w->g, 4)), (u32)i, 0, msn++, len, min(seg, 64000u));
			else if (rand_gen_chance(&w->g, 0.2))
				write_control(w, RDMAP_READ_REQ, read++, body, sizeof(body));
			else
				write_message(w, rand_gen_chance(&w->g, 0.5) ? RDMAP_WRITE : RDMAP_READ_RESP, 1,
					      rand_gen_below(&w->g, TAGGED_ROOM - len), 0, len, min(seg, 64000u));
		}
		for (u32 k = 0; k < 4; k++)
			check_split(w, k ? 0 : STREAM_MAX, k ? 1 + (u32)rand_gen_below(&w->g, 9000) : UINT32_MAX, false);
		free(w);
	}
}

/* What it is for: of a stream of large FPDUs all but the first is read straight into the program's memory, an FPDU a read. */
static void large_ones_cost_no_copy(void **state)
{
	struct writer *w = writer_new(false, false, 1);
	struct qp *qp = qp_new(false, false);
	u32 fpdus = 7, len = 65000;

	for (u32 i = 0; i < fpdus; i++)
		write_message(w, RDMAP_WRITE, 1, i * len, 0, len, len);
	assert_int_equal(qp_feed(qp, w->stream, w->ends[0], STREAM_MAX), 0);
	assert_int_equal(qp_feed(qp, w->stream + w->ends[0], w->len - w->ends[0], STREAM_MAX), 0);
	qp_check(qp, w);
	assert_true(qp->straight > (u64)(fpdus - 1) * (len - 300));
	assert_true(qp->reads <= fpdus + 2);
	/* and when the socket never has more than one FPDU */
	qp->straight = qp->reads = 0;
	for (u32 i = 0; i < fpdus; i++)
		assert_int_equal(qp_feed(qp, w->stream + (i ? w->ends[i - 1] : 0), w->ends[i] - (i ? w->ends[i - 1] : 0), STREAM_MAX), 0);
	assert_true(qp->straight > (u64)(fpdus - 1) * (len - 300));
	qp_free(qp);
	free(w);
}

/* 64 KiB of a program: an FPDU of the largest size and a tiny one, again and again. One read for both, and the large one is direct. */
static void large_and_tiny_in_turn(void **state)
{
	struct writer *w = writer_new(false, false, 1);
	struct qp *qp = qp_new(false, false);
	u32 len = 65536, seg = MPA_ULPDU_MAX - DDP_TAGGED_HDR;

	for (u32 i = 0; i < 7; i++)
		write_message(w, RDMAP_WRITE, 1, i * len, 0, len, seg);
	assert_int_equal(qp_feed(qp, w->stream, w->len, STREAM_MAX), 0);
	qp_check(qp, w);
	assert_true(qp->straight > 5 * (u64)(seg - 300)); /* the first read knows nothing yet */
	assert_true(qp->reads <= 9);
	qp_free(qp);
	free(w);
}

/* Small FPDUs come many at a time, also behind a large one; with CRC a large one takes one read. */
static void reads_are_large(void **state)
{
	for (u32 crc = 0; crc < 2; crc++) {
		struct writer *w = writer_new(crc, false, 1);
		struct qp *qp = qp_new(crc, false);

		write_message(w, RDMAP_WRITE, 1, 0, 0, 60000, 60000);
		write_message(w, RDMAP_WRITE, 1, 60000, 0, 60000, 60000);
		for (u32 i = 0; i < 400; i++)
			write_message(w, RDMAP_WRITE, 1, i * 64, 0, 64, 64);
		assert_int_equal(qp_feed(qp, w->stream, w->len, STREAM_MAX), 0);
		assert_true(qp->reads <= 5);
		qp_check(qp, w);
		qp_free(qp);
		free(w);
	}
}

/* Large FPDUs with CRC: one read each, and never more than a header's worth is moved to the front. */
static void large_ones_with_crc(void **state)
{
	struct writer *w = writer_new(true, false, 1);
	struct qp *qp = qp_new(true, false);
	struct iovec iov[2];
	u32 pos = 100;

	for (u32 i = 0; i < 7; i++)
		write_message(w, RDMAP_WRITE, 1, i * 65000, 0, 65000, 65000);
	assert_int_equal(qp_feed(qp, w->stream, pos, STREAM_MAX), 0);
	while (pos < w->len) {
		ssize_t n;

		assert_int_equal(rdmap_rx_want(&qp->rx, iov, 2), 1);
		assert_in_range(iov[0].iov_len, 64000, 65400);
		n = qp_read(qp, w->stream + pos, w->len - pos);
		assert_true(n > 0);
		pos += (u32)n;
		assert_true(qp->rx.end - qp->rx.start <= 256);
	}
	qp_check(qp, w);
	qp_free(qp);
	free(w);
}

/* At each byte: is an FPDU begun? */
static void cut_off(void **state)
{
	for (u32 mode = 0; mode < 4; mode++) {
		struct writer *w = writer_new(mode & 1, mode & 2, 5);
		struct qp *qp = qp_new(mode & 1, mode & 2);
		u32 fpdu = 0;

		write_empty(w);
		write_message(w, RDMAP_SEND, 0, 0, 1, 470, 470);
		write_message(w, RDMAP_WRITE, 3, 5, 0, 9000, 9000);
		write_message(w, RDMAP_SEND, 3, 0, 2, 1100, 500);
		assert_false(rdmap_rx_cut_off(&qp->rx));
		for (u32 pos = 0; pos < w->len; pos++) {
			bool end = pos + 1 == w->ends[fpdu];

			assert_int_equal(qp_read(qp, w->stream + pos, 1), 1);
			assert_int_equal(rdmap_rx_cut_off(&qp->rx), !end);
			fpdu += end;
		}
		qp_check(qp, w);
		qp_free(qp);
		free(w);
	}
}

/* Who never receives holds no memory; a want() whose read brought nothing changes nothing. */
static void costs_nothing_before_use(void **state)
{
	struct writer *w = writer_new(false, false, 1);
	struct qp *qp = qp_new(false, false);
	struct iovec iov[3], again[3];
	int n;

	assert_null(qp->rx.buf);
	write_message(w, RDMAP_SEND, 0, 0, 1, 20000, 20000);
	assert_int_equal(qp_feed(qp, w->stream, 100, 100), 0);
	n = rdmap_rx_want(&qp->rx, iov, 3);
	assert_int_equal(rdmap_rx_want(&qp->rx, again, 3), n);
	assert_memory_equal(iov, again, (size_t)n * sizeof(*iov));
	assert_true(in_mem(qp, iov[0].iov_base));
	assert_int_equal(rdmap_rx_got(&qp->rx, 0), 0);
	assert_int_equal(qp_feed(qp, w->stream + 100, w->len - 100, 0), 0);
	qp_check(qp, w);
	rdmap_rx_destroy(&qp->rx);
	qp_free(qp); /* twice is fine */
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_chunk_size),
		cmocka_unit_test(large_and_small),
		cmocka_unit_test(every_cut),
		cmocka_unit_test(random_streams),
		cmocka_unit_test(large_ones_cost_no_copy),
		cmocka_unit_test(large_and_tiny_in_turn),
		cmocka_unit_test(reads_are_large),
		cmocka_unit_test(large_ones_with_crc),
		cmocka_unit_test(cut_off),
		cmocka_unit_test(costs_nothing_before_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
