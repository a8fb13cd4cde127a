/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The receiver against peers that do not keep to the rules, and QPs that say no: what is placed, what the Terminate says. */
#include "test_rdmap_rx.h"

/* One segment of a hostile stream, header bytes as they are. */
struct seg {
	u8 ddp, rdmap;         /* control bytes */
	u8 qn;
	u32 msn, mo, len;      /* len: of its payload */
};
#define LAST 0x41
#define MORE 0x01
#define OP(op) (0x40 | (op))
#define SEND(ctrl, msn, mo, len) { ctrl, OP(RDMAP_SEND), 0, msn, mo, len }

struct hostile {
	const char *what;
	struct rdmap_error want;
	struct seg segs[4];    /* the last one is wrong */
	int n;
};

static const struct hostile hostile[] = {
	{ "MSN 0", { 1, 2, 3 }, { SEND(LAST, 0, 0, 5) }, 1 },
	{ "MSN one ahead", { 1, 2, 3 }, { SEND(LAST, 2, 0, 5) }, 1 },
	{ "MSN again", { 1, 2, 3 }, { SEND(LAST, 1, 0, 5), SEND(LAST, 1, 0, 5) }, 2 },
	{ "MSN of the end of the space", { 1, 2, 3 }, { SEND(LAST, 0xFFFFFFFF, 0, 5) }, 1 },
	{ "next MSN within a message", { 1, 2, 3 }, { SEND(MORE, 1, 0, 5), SEND(LAST, 2, 5, 5) }, 2 },
	{ "first segment not at 0", { 1, 2, 4 }, { SEND(LAST, 1, 4, 5) }, 1 },
	{ "gap", { 1, 2, 4 }, { SEND(MORE, 1, 0, 5), SEND(LAST, 1, 6, 5) }, 2 },
	{ "overlap", { 1, 2, 4 }, { SEND(MORE, 1, 0, 5), SEND(MORE, 1, 5, 5), SEND(LAST, 1, 5, 5) }, 3 },
	{ "offset kept by the next message", { 1, 2, 4 }, { SEND(MORE, 1, 0, 5), SEND(LAST, 1, 5, 5), SEND(LAST, 2, 10, 5) }, 3 },
	{ "huge offset", { 1, 2, 4 }, { SEND(LAST, 1, 0xFFFFFFFF, 5) }, 1 },
	{ "empty, more to come", { 0, 2, 7 }, { SEND(MORE, 1, 0, 0) }, 1 },
	{ "opcode changes", { 0, 2, 6 }, { SEND(MORE, 1, 0, 5), { LAST, OP(RDMAP_SEND_SE), 0, 1, 5, 5 } }, 2 },
	{ "Immediate Data within a Send", { 1, 2, 4 }, { SEND(MORE, 1, 0, 5), { LAST, OP(RDMAP_IMM), 0, 1, 0, 8 } }, 2 },
	{ "Read Request MSN again", { 1, 2, 3 }, { { LAST, OP(RDMAP_READ_REQ), 1, 1, 0, 28 }, { LAST, OP(RDMAP_ATOMIC_REQ), 1, 1, 0, 52 } }, 2 },
	{ "Terminate with MSN 2", { 1, 2, 3 }, { { LAST, OP(RDMAP_TERMINATE), 2, 2, 0, 4 } }, 1 },
	{ "Atomic Response MSN 3", { 1, 2, 3 }, { { LAST, OP(RDMAP_ATOMIC_RESP), 3, 1, 0, 12 }, { LAST, OP(RDMAP_ATOMIC_RESP), 3, 3, 0, 12 } }, 2 },
	{ "queue 4", { 1, 2, 1 }, { { LAST, OP(RDMAP_SEND), 4, 1, 0, 5 } }, 1 },
	{ "queue 255", { 1, 2, 1 }, { { LAST, OP(RDMAP_SEND), 255, 1, 0, 5 } }, 1 },
	{ "Send on queue 1", { 1, 2, 1 }, { { LAST, OP(RDMAP_SEND), 1, 1, 0, 5 } }, 1 },
	{ "Read Request on queue 0", { 1, 2, 1 }, { { LAST, OP(RDMAP_READ_REQ), 0, 1, 0, 28 } }, 1 },
	{ "Read Request, too short", { 0, 2, 7 }, { { LAST, OP(RDMAP_READ_REQ), 1, 1, 0, 27 } }, 1 },
	{ "Read Request, too long", { 1, 2, 5 }, { { LAST, OP(RDMAP_READ_REQ), 1, 1, 0, 29 } }, 1 },
	{ "Read Request of 60000 bytes", { 1, 2, 5 }, { { LAST, OP(RDMAP_READ_REQ), 1, 1, 0, 60000 } }, 1 },
	{ "Read Request of another RDMAP version", { 0, 2, 5 }, { { LAST, 0x81, 1, 1, 0, 60000 } }, 1 },
	{ "Atomic Request at an offset", { 1, 2, 4 }, { { LAST, OP(RDMAP_ATOMIC_REQ), 1, 1, 8, 52 } }, 1 },
	{ "Immediate Data of 9 bytes", { 1, 2, 5 }, { { LAST, OP(RDMAP_IMM), 0, 1, 0, 9 } }, 1 },
	{ "Terminate of 3 bytes", { 0, 2, 7 }, { { LAST, OP(RDMAP_TERMINATE), 2, 1, 0, 3 } }, 1 },
	{ "opcode 12", { 0, 2, 6 }, { { LAST, OP(12), 0, 1, 0, 5 } }, 1 },
	{ "opcode 15, long", { 0, 2, 6 }, { { LAST, OP(15), 0, 1, 0, 50000 } }, 1 },
	{ "tagged Send", { 0, 2, 6 }, { { 0xC1, OP(RDMAP_SEND), 0, 0, 0, 5 } }, 1 },
	{ "untagged Write", { 0, 2, 6 }, { { LAST, OP(RDMAP_WRITE), 0, 1, 0, 5 } }, 1 },
	{ "untagged Read Response", { 0, 2, 6 }, { { LAST, OP(RDMAP_READ_RESP), 1, 1, 0, 5 } }, 1 },
	{ "tagged Read Request", { 0, 2, 6 }, { { 0xC1, OP(RDMAP_READ_REQ), 0, 0, 0, 28 } }, 1 },
	{ "untagged, DDP version 0", { 1, 2, 6 }, { { 0x40, OP(RDMAP_SEND), 0, 1, 0, 5 } }, 1 },
	{ "tagged, DDP version 2", { 1, 1, 4 }, { { 0xC2, OP(RDMAP_WRITE), 0, 0, 0, 5 } }, 1 },
	{ "RDMAP version 0", { 0, 2, 5 }, { { LAST, RDMAP_SEND, 0, 1, 0, 5 } }, 1 },
	{ "RDMAP version 3, tagged", { 0, 2, 5 }, { { 0xC1, 0xC0, 0, 0, 0, 5 } }, 1 },
};

static u32 put_seg(const struct seg *s, u8 hdr[DDP_UNTAGGED_HDR])
{
	memset(hdr, 0, DDP_UNTAGGED_HDR);
	hdr[0] = s->ddp;
	hdr[1] = s->rdmap;
	if (s->ddp & DDP_TAGGED)
		return DDP_TAGGED_HDR;
	hdr[9] = s->qn;
	for (int i = 0; i < 4; i++) {
		hdr[10 + i] = (u8)(s->msn >> (24 - 8 * i));
		hdr[14 + i] = (u8)(s->mo >> (24 - 8 * i));
	}
	return DDP_UNTAGGED_HDR;
}

/* @more: bytes added to what a program would get, so that the FPDU is direct where that is possible. */
static void check_hostile(const struct hostile *t, bool crc, bool markers, u32 more, u32 chunk)
{
	struct writer *w = writer_new(crc, markers, 1);
	struct qp *qp = qp_new(crc, markers);
	u8 *payload = calloc(1, 65536), hdr[DDP_UNTAGGED_HDR], term[RDMAP_TERM_MAX];
	const struct seg *bad = &t->segs[t->n - 1];
	u32 hdr_len = 0, before = 0, bad_len;

	memset(payload, 0xEE, 65536);
	for (int i = 0; i < t->n; i++) {
		before = w->len;
		hdr_len = put_seg(&t->segs[i], hdr);
		write_fpdu(w, hdr, hdr_len, payload, t->segs[i].len + (&t->segs[i] == bad ? more : 0));
	}
	bad_len = hdr_len + bad->len + more;
	assert_int_equal(qp_feed(qp, w->stream, before, chunk), 0);
	memset(qp->mem, 0, MEM_SIZE);
	assert_int_equal(qp_feed(qp, w->stream + before, w->len - before, chunk), -EPROTO);
	if (memcmp(qp->rx.error, &t->want, sizeof(t->want)) != 0)
		fail_msg("%s: %s", t->what, rdmap_error_str(qp->rx.error));
	assert_int_equal(qp->starts, t->n - 1);
	assert_int_equal(qp->finishes, t->n - 1);
	assert_true(mem_untouched(qp));
	assert_int_equal(qp->rx.bad_len, bad_len);
	assert_memory_equal(qp->rx.bad_ulpdu, hdr, hdr_len);
	assert_true(rdmap_build_terminate(qp->rx.error, 1, qp->rx.bad_ulpdu, qp->rx.bad_len, term) >= DDP_UNTAGGED_HDR + 6 + hdr_len);
	assert_memory_equal(term + DDP_UNTAGGED_HDR + 6, hdr, hdr_len);
	assert_int_equal(rdmap_rx_got(&qp->rx, 0), -EPROTO);
	free(payload);
	qp_free(qp);
	free(w);
}

static bool with_data(const struct seg *s)
{
	u8 op = s->rdmap & RDMAP_OPCODE_MASK;

	return s->len && (op == RDMAP_WRITE || op == RDMAP_READ_RESP || (op >= RDMAP_SEND && op <= RDMAP_SEND_SE_INV));
}

static void refuses_hostile_segments(void **state)
{
	static const u32 chunks[] = { STREAM_MAX, 30, 1000 };

	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++)
		for (u32 mode = 0; mode < 4; mode++)
			for (size_t c = 0; c < ARRAY_SIZE(chunks); c++) {
				check_hostile(&hostile[i], mode & 1, mode & 2, 0, chunks[c]);
				if (with_data(&hostile[i].segs[hostile[i].n - 1]))
					check_hostile(&hostile[i], mode & 1, mode & 2, 12000, chunks[c]);
			}
}

/* 4 GiB of one message are not to be had: the offset would begin again. */
static void message_offset_does_not_wrap(void **state)
{
	static const struct rdmap_error too_long = { 1, 2, 5 };
	struct writer *w = writer_new(false, false, 1);
	struct qp *qp = qp_new(false, false);

	write_segment(w, (struct ddp_hdr){ .opcode = RDMAP_SEND, .msn = 1, .payload_len = 16 });
	assert_int_equal(qp_feed(qp, w->stream, w->len, 0), 0);
	qp->rx.mo[DDP_QN_SEND] = 0xFFFFFFF0; /* as if */
	w->len = 0;
	write_fpdu(w, (const u8 *)"\x41\x43\0\0\0\0\0\0\0\0\0\0\0\1\xFF\xFF\xFF\xF0", DDP_UNTAGGED_HDR, w->mem, 16);
	assert_int_equal(qp_feed(qp, w->stream, w->len, 0), -EPROTO);
	assert_memory_equal(qp->rx.error, &too_long, sizeof(too_long));
	assert_int_equal(qp->starts, 1);
	qp_free(qp);
	free(w);
}

/* MSNs of a queue are 32 bits that begin again. */
static void msn_begins_again(void **state)
{
	struct writer *w = writer_new(false, false, 1);
	struct qp *qp = qp_new(false, false);

	qp->rx.msn[DDP_QN_READ_REQ] = 0xFFFFFFFF;
	write_control(w, RDMAP_READ_REQ, 0xFFFFFFFF, w->mem, RDMAP_READ_REQ_SIZE);
	write_control(w, RDMAP_READ_REQ, 0, w->mem, RDMAP_READ_REQ_SIZE);
	assert_int_equal(qp_feed(qp, w->stream, w->len, 0), 0);
	qp_check(qp, w);
	qp_free(qp);
	free(w);
}

/* A ULPDU too short for its header is MPA's business, and quotes nothing. */
static void runt_ulpdus(void **state)
{
	for (u32 mode = 0; mode < 4; mode++)
		for (u32 len = 1; len < DDP_UNTAGGED_HDR; len++) {
			struct writer *w = writer_new(mode & 1, mode & 2, 1);
			struct qp *qp = qp_new(mode & 1, mode & 2);
			const u8 hdr[DDP_UNTAGGED_HDR] = { LAST, OP(RDMAP_SEND) };

			write_fpdu(w, hdr, len, NULL, 0);
			write_message(w, RDMAP_WRITE, 0, 0, 0, 10, 10);
			assert_int_equal(qp_feed(qp, w->stream, w->len, len % 2 ? 1 : STREAM_MAX), -EPROTO);
			assert_int_equal(qp->rx.error->layer, TERM_LAYER_LLP);
			assert_int_equal(qp->rx.error->code, TERM_MPA_MARKER);
			assert_null(qp->rx.bad_ulpdu);
			assert_int_equal(qp->starts, 0);
			qp_free(qp);
			free(w);
		}
}

/* A byte of an FPDU with CRC is wrong: nobody is asked, nothing is placed. */
static void check_flips(bool markers, u32 len, u32 step)
{
	struct writer *w = writer_new(true, markers, 1);
	struct qp *qp = qp_new(true, markers);

	write_message(w, RDMAP_WRITE, 1, 0, 0, len, len);
	for (u32 pos = 0; pos < w->len; pos += pos < 64 ? 1 : step) {
		u8 flip = (u8)(1 + rand_gen_below(&w->g, 255));
		int rc;

		rdmap_rx_destroy(&qp->rx);
		rdmap_rx_init(&qp->rx, &qp_ops, qp, true, markers);
		w->stream[pos] ^= flip;
		rc = qp_feed(qp, w->stream, w->len, pos % 3 ? STREAM_MAX : 700);
		w->stream[pos] ^= flip;
		if (rc) {
			assert_int_equal(rc, -EPROTO);
			assert_int_equal(qp->rx.error->layer, TERM_LAYER_LLP);
			assert_true(qp->rx.error->code == TERM_MPA_CRC || (markers && qp->rx.error->code == TERM_MPA_MARKER));
			assert_null(qp->rx.bad_ulpdu);
			assert_int_equal(rdmap_rx_got(&qp->rx, 0), -EPROTO);
		} else { /* in the length: it waits for more; or in what a marker does not use, with the CRC to come in */
			assert_true(pos < 6 && rdmap_rx_cut_off(&qp->rx));
		}
		assert_int_equal(qp->starts + qp->sinks, 0);
	}
	assert_true(mem_untouched(qp));
	qp_free(qp);
	free(w);
}

static void any_wrong_byte(void **state)
{
	for (u32 markers = 0; markers < 2; markers++) {
		check_flips(markers, 0, 1);
		check_flips(markers, 200, 1);
		check_flips(markers, 1200, 1);
		check_flips(markers, 30000, 97);
	}
}

/* What follows a wrong FPDU is not looked at, and what came before it stays. */
static void wrong_crc_in_the_middle(void **state)
{
	struct writer *w = writer_new(true, false, 1);
	struct qp *qp = qp_new(true, false);

	for (u32 i = 0; i < 3; i++)
		write_message(w, RDMAP_WRITE, 1, i * 100, 0, 100, 100);
	w->stream[w->ends[1] - 1] ^= 1;
	assert_int_equal(qp_feed(qp, w->stream, w->len, STREAM_MAX), -EPROTO);
	assert_int_equal(qp->finishes, 1);
	assert_memory_equal(qp->mem, w->mem, 100);
	memset(qp->mem, 0, 100);
	assert_true(mem_untouched(qp));
	qp_free(qp);
	free(w);
}

static void crc_off_is_not_looked_at(void **state)
{
	struct writer *w = writer_new(true, false, 1);
	struct qp *qp = qp_new(false, false);

	write_message(w, RDMAP_SEND, 1, 0, 1, 20000, 20000);
	write_message(w, RDMAP_SEND, 1, 0, 2, 33, 33);
	w->stream[w->ends[0] - 1] ^= 1;
	assert_int_equal(qp_feed(qp, w->stream, w->len, 0), 0);
	qp_check(qp, w);
	qp_free(qp);
	free(w);
}

static const struct rdmap_error refusal = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS };

/* A small message, one in two large segments, one that must not be begun. */
static struct writer *three_messages(bool crc, bool markers)
{
	struct writer *w = writer_new(crc, markers, 1);

	write_message(w, RDMAP_WRITE, 1, 0, 0, 10, 10);
	write_message(w, RDMAP_SEND, 1, 0, 1, 40000, 20000);
	write_message(w, RDMAP_WRITE, 1, 100000, 0, 10, 10);
	return w;
}

/* What the QP refuses ends all, as it says; a stop quotes nothing. */
static void check_refused(const struct qp *qp, const struct rdmap_error *err)
{
	assert_ptr_equal(qp->rx.error, err);
	if (err == &rdmap_rx_stop) {
		assert_null(qp->rx.bad_ulpdu);
		return;
	}
	assert_non_null(qp->rx.bad_ulpdu);
	assert_int_equal(qp->rx.bad_ulpdu[1], OP(RDMAP_SEND));
	assert_int_equal(qp->rx.bad_len, DDP_UNTAGGED_HDR + 20000);
}

static void qp_refuses_at_start(void **state)
{
	for (u32 mode = 0; mode < 8; mode++) {
		const struct rdmap_error *err = mode & 4 ? &rdmap_rx_stop : &refusal;
		struct writer *w = three_messages(mode & 1, mode & 2);
		struct qp *qp = qp_new(mode & 1, mode & 2);

		assert_int_equal(qp_feed(qp, w->stream, w->ends[0], STREAM_MAX), 0);
		assert_memory_equal(qp->mem, w->mem, 10);
		memset(qp->mem, 0, 10);
		qp->start_err = err;
		assert_int_equal(qp_feed(qp, w->stream + w->ends[0], w->len - w->ends[0], 0), -EPROTO);
		check_refused(qp, err);
		assert_int_equal(qp->starts, 2);
		assert_int_equal(qp->sinks, 1);
		assert_true(mem_untouched(qp));
		qp_free(qp);
		free(w);
	}
}

/* The QP says no to a part of a payload: at its start, and where want() asks for the rest. */
static void qp_refuses_in_sink(void **state)
{
	static const u32 at[] = { 0, 1, 300, 10000, 19999 };

	for (u32 mode = 0; mode < 8; mode++)
		for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
			const struct rdmap_error *err = mode & 4 ? &rdmap_rx_stop : &refusal;
			struct writer *w = three_messages(mode & 1, mode & 2);
			struct qp *qp = qp_new(mode & 1, mode & 2);

			assert_int_equal(qp_feed(qp, w->stream, w->ends[0], STREAM_MAX), 0);
			qp->sink_err = err;
			qp->sink_err_at = at[i];
			qp->piece = 700; /* so that it is asked again and again */
			assert_int_equal(qp_feed(qp, w->stream + w->ends[0], w->len - w->ends[0], 500), -EPROTO);
			check_refused(qp, err);
			assert_int_equal(qp->starts, 2);
			assert_int_equal(qp->finishes, 1);
			for (u32 k = at[i]; k < MSG_ROOM; k++)
				assert_int_equal(qp->mem[TAGGED_ROOM + k], 0);
			assert_int_equal(qp->mem[100000], 0);
			qp_free(qp);
			free(w);
		}
}

static void qp_refuses_at_finish(void **state)
{
	for (u32 mode = 0; mode < 8; mode++) {
		const struct rdmap_error *err = mode & 4 ? &rdmap_rx_stop : &refusal;
		struct writer *w = three_messages(mode & 1, mode & 2);
		struct qp *qp = qp_new(mode & 1, mode & 2);
		struct iovec iov[2];

		assert_int_equal(qp_feed(qp, w->stream, w->ends[0], STREAM_MAX), 0);
		qp->finish_err = err;
		assert_int_equal(qp_feed(qp, w->stream + w->ends[0], w->len - w->ends[0], mode & 1 ? STREAM_MAX : 800), -EPROTO);
		check_refused(qp, err);
		assert_int_equal(qp->starts, 2);
		assert_memory_equal(qp->mem + TAGGED_ROOM, w->mem + TAGGED_ROOM, 20000);
		assert_int_equal(qp->mem[TAGGED_ROOM + 20000], 0);
		assert_int_equal(rdmap_rx_want(&qp->rx, iov, 2), -EPROTO);
		assert_int_equal(rdmap_rx_got(&qp->rx, 5), -EPROTO);
		qp_free(qp);
		free(w);
	}
}

static void qp_refuses_an_empty_fpdu(void **state)
{
	struct writer *w = writer_new(true, false, 1);
	struct qp *qp = qp_new(true, false);

	write_empty(w);
	qp->empty_err = &refusal;
	assert_int_equal(qp_feed(qp, w->stream, w->len, 0), -EPROTO);
	assert_ptr_equal(qp->rx.error, &refusal);
	assert_null(qp->rx.bad_ulpdu); /* there is no header to quote */
	qp_free(qp);
	free(w);
}

/* Any bytes in any reads: no crash, no over-read, and no FPDU where the CRC is on. */
static void random_bytes(void **state)
{
	struct qp *qp = qp_new(false, false);
	struct rand_gen g;
	u8 *data = malloc(70000);

	rand_gen_seed(&g, 11);
	for (u32 run = 0; run < 600; run++) {
		struct rdmap_error before = { 0 };
		u32 len = 1 + (u32)rand_gen_below(&g, run % 8 ? 400 : 70000);

		for (u32 k = 0; k < len; k++)
			data[k] = rand_gen_chance(&g, 0.5) ? 0 : (u8)rand_gen_u64(&g);
		if (len > 30 && rand_gen_chance(&g, 0.7)) { /* nearly right */
			memcpy(data, (const u8 *)"\x30\0\x41\x43\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0", 20);
			data[rand_gen_below(&g, 20)] ^= (u8)rand_gen_below(&g, 3);
		}
		rdmap_rx_destroy(&qp->rx);
		rdmap_rx_init(&qp->rx, &qp_ops, qp, run & 1, run & 2);
		qp->begun = false;
		qp->sink_err = &refusal; /* nothing has room for it */
		qp->sink_err_at = 30000;
		if (qp->log.len > LOG_MAX / 2)
			qp->log.len = 0;
		qp->starts = 0;
		qp_feed(qp, data, len, run % 5 ? 0 : 13);
		assert_true(!(run & 1) || !qp->starts);
		assert_true(!qp->rx.error || memcmp(qp->rx.error, &before, sizeof(before)) != 0);
	}
	free(data);
	qp_free(qp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_hostile_segments),
		cmocka_unit_test(message_offset_does_not_wrap),
		cmocka_unit_test(msn_begins_again),
		cmocka_unit_test(runt_ulpdus),
		cmocka_unit_test(any_wrong_byte),
		cmocka_unit_test(wrong_crc_in_the_middle),
		cmocka_unit_test(crc_off_is_not_looked_at),
		cmocka_unit_test(qp_refuses_at_start),
		cmocka_unit_test(qp_refuses_in_sink),
		cmocka_unit_test(qp_refuses_at_finish),
		cmocka_unit_test(qp_refuses_an_empty_fpdu),
		cmocka_unit_test(random_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
