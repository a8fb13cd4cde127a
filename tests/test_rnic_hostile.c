/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What a hostile peer may send, played by a plain socket: the Terminate that it gets, and the statuses and events that the program sees. */
#include <endian.h>
#include <sys/socket.h>
#include "qp_pair.h"

static struct pair pair;
#define E (&pair.e[0])

static struct rnic_pd *other_pd;
/* 1000 bytes at iova 0x1000 each: may be written; may be read; may be anything, in another PD */
static struct rnic_mr *limited, *readable, *others;
static u32 dead_stag;
static u8 area[1000];
static u8 other_area[1000];

#define BASE 0x1000u

static void start(const struct pair_options *o)
{
	struct rnic_mr_attr mr = { .addr = area, .length = sizeof(area), .iova = BASE, .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
	struct rnic_mr *dead;

	memset(area, 0, sizeof(area));
	memset(other_area, 0, sizeof(other_area));
	pair_open(&pair, o);
	assert_int_equal(rnic_mr_create(E->pd, &mr, &limited), 0);
	assert_int_equal(rnic_mr_create(E->pd, &mr, &dead), 0);
	mr.access = IBV_ACCESS_REMOTE_READ;
	assert_int_equal(rnic_mr_create(E->pd, &mr, &readable), 0);
	dead_stag = rnic_mr_stag(dead);
	assert_int_equal(rnic_mr_destroy(dead), 0);
	assert_int_equal(rnic_pd_create(E->dev, &other_pd), 0);
	mr.addr = other_area;
	mr.access = PAIR_ALL;
	assert_int_equal(rnic_mr_create(other_pd, &mr, &others), 0);
	assert_int_equal(pair_recv(E, 1, 0, 100), 0);
	assert_int_equal(pair_recv(E, 2, 0, 100), 0);
	pair_connect(&pair);
}

static void stop(void)
{
	assert_int_equal(rnic_mr_destroy(limited), 0);
	assert_int_equal(rnic_mr_destroy(readable), 0);
	assert_int_equal(rnic_mr_destroy(others), 0);
	assert_int_equal(rnic_pd_destroy(other_pd), 0);
	pair_close(&pair);
}

enum which { NOBODY, GOOD, LIMITED, READABLE, DEAD, OTHERS };

static u32 stag_of(enum which w)
{
	switch (w) {
	case GOOD: return E->stag;
	case LIMITED: return rnic_mr_stag(limited);
	case READABLE: return rnic_mr_stag(readable);
	case DEAD: return dead_stag;
	case OTHERS: return rnic_mr_stag(others);
	default: return E->stag ^ 0x5A5A5A00u;
	}
}

static u64 to_of(enum which w, u64 to)
{
	return w == GOOD ? (u64)(uintptr_t)E->mem + to : to;
}

static void expect_terminate(u8 layer, u8 etype, u8 code)
{
	struct rdmap_error err;
	struct ddp_hdr h;

	do
		if (!pair_raw_hears(&pair, &h, 3000))
			fail_msg("no Terminate came");
	while (h.opcode != RDMAP_TERMINATE);
	assert_int_equal(rdmap_parse_terminate(&h, &err), 0);
	if (err.layer != layer || err.etype != etype || err.code != code)
		fail_msg("terminated with %u %u %u: %s", err.layer, err.etype, err.code, rdmap_error_str(&err));
	assert_false(pair_raw_hears(&pair, &h, 200)); /* FIN, or nothing */
	pair_until(&pair, E->disconnects);
	assert_int_equal(E->qp->last_ae, RNIC_AE_TERMINATE_SENT);
}

static void expect_event(int type)
{
	for (int t = 0; t <= IBV_EVENT_WQ_FATAL; t++)
		if (E->events[t] != (t == type))
			fail_msg("event %d came %d times", t, E->events[t]);
}

/* Both receive WQEs end; the first of them so. */
static void expect_receives(enum ibv_wc_status first)
{
	pair_wc_is(&pair, E->rcq, 1, first);
	pair_wc_is(&pair, E->rcq, 2, IBV_WC_WR_FLUSH_ERR);
	pair_no_wc(E->rcq);
	pair_no_wc(E->scq);
}

#define each_crc(o) for (int crc_ = 0; crc_ < 3; crc_++) \
	for (struct pair_options o = { .port = PAIR_RAW, .crc = crc_ > 0, .markers = crc_ > 1 }, *once_ = &o; once_; once_ = NULL)

/* ---- Writes ---- */

static void writes(void **state)
{
	static const struct {
		enum which stag;
		u64 to;
		u32 len;
		int access;             /* of the QP */
		u8 layer, etype, code;
	} t[] = {
		{ NOBODY, 0, 1, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG },
		{ NOBODY, 0, 30000, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG },
		{ DEAD, BASE, 1, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG },
		{ OTHERS, BASE, 1, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STREAM_STAG },
		{ OTHERS, BASE, 999, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STREAM_STAG },
		{ LIMITED, BASE - 1, 1, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS },
		{ LIMITED, BASE + 1000, 1, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS },
		{ LIMITED, BASE + 999, 2, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS },
		{ LIMITED, BASE, 1001, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS },
		{ LIMITED, BASE, 60000, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS },
		{ LIMITED, UINT64_MAX, 2, PAIR_ALL, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_WRAP },
		{ READABLE, BASE, 1, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS },
		{ GOOD, 0, 1, IBV_ACCESS_REMOTE_READ, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		each_crc(o) {
			static u8 u[70000];
			u32 n;

			start(&o);
			rnic_qp_set_access(E->qp, t[i].access);
			memset(u, 0xEE, sizeof(u));
			n = ddp_put_tagged(u, RDMAP_WRITE, true, stag_of(t[i].stag), to_of(t[i].stag, t[i].to));
			pair_raw_says(&pair, u, n + t[i].len);
			expect_terminate(t[i].layer, t[i].etype, t[i].code);
			expect_event(IBV_EVENT_QP_ACCESS_ERR);
			expect_receives(IBV_WC_WR_FLUSH_ERR);
			for (size_t k = 0; k < sizeof(area); k++)
				assert_int_equal(area[k] | other_area[k], 0); /* nothing was placed */
			stop();
		}
}

/* ---- what asks for memory ---- */

static void requests(void **state)
{
	static const struct {
		u8 opcode;
		enum which stag;
		u64 to;
		u32 len;                /* atomic: operation */
		int access;
		u8 layer, etype, code;
		int event;
	} t[] = {
		{ RDMAP_READ_REQ, NOBODY, 0, 1, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STAG, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_READ_REQ, DEAD, BASE, 1, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STAG, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_READ_REQ, OTHERS, BASE, 1, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STREAM_STAG, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_READ_REQ, LIMITED, BASE, 1, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_READ_REQ, GOOD, PAIR_MEM, 1, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_BOUNDS, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_READ_REQ, GOOD, 0, UINT32_MAX, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_BOUNDS, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_READ_REQ, LIMITED, UINT64_MAX, 2, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_WRAP, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_READ_REQ, GOOD, 0, 1, IBV_ACCESS_REMOTE_WRITE, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_ATOMIC_REQ, NOBODY, 0, RDMAP_FETCH_ADD, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STAG, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_ATOMIC_REQ, DEAD, BASE, RDMAP_FETCH_ADD, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STAG, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_ATOMIC_REQ, OTHERS, BASE, RDMAP_CMP_SWAP, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STREAM_STAG, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_ATOMIC_REQ, LIMITED, UINT64_MAX - 3, RDMAP_CMP_SWAP, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_WRAP, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_ATOMIC_REQ, LIMITED, UINT64_MAX - 7, RDMAP_CMP_SWAP, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_BOUNDS, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_ATOMIC_REQ, LIMITED, BASE, RDMAP_FETCH_ADD, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_ATOMIC_REQ, GOOD, PAIR_MEM - 4, RDMAP_FETCH_ADD, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_BOUNDS, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_ATOMIC_REQ, GOOD, 0, RDMAP_FETCH_ADD, IBV_ACCESS_REMOTE_READ, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS, IBV_EVENT_QP_ACCESS_ERR },
		{ RDMAP_ATOMIC_REQ, GOOD, 4, RDMAP_FETCH_ADD, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM, IBV_EVENT_QP_REQ_ERR },
		{ RDMAP_ATOMIC_REQ, GOOD, 0, 9, PAIR_ALL, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM, IBV_EVENT_QP_REQ_ERR },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		each_crc(o) {
			u8 u[128];
			u32 n;

			start(&o);
			rnic_qp_set_access(E->qp, t[i].access);
			n = ddp_put_untagged(u, t[i].opcode, true, 0, 1, 0);
			if (t[i].opcode == RDMAP_READ_REQ) {
				struct rdmap_read_req r = { .sink_stag = 5, .len = t[i].len, .src_stag = stag_of(t[i].stag), .src_to = to_of(t[i].stag, t[i].to) };

				n += rdmap_put_read_req(u + n, &r);
			} else {
				struct rdmap_atomic_req r = { .op = (u8)t[i].len, .stag = stag_of(t[i].stag), .to = to_of(t[i].stag, t[i].to), .data = 1 };

				n += rdmap_put_atomic_req(u + n, &r);
			}
			pair_raw_says(&pair, u, n);
			expect_terminate(t[i].layer, t[i].etype, t[i].code);
			expect_event(t[i].event);
			expect_receives(IBV_WC_WR_FLUSH_ERR);
			stop();
		}
}

/* ---- Sends and the rest of the untagged ones ---- */

static void untagged(void **state)
{
	static const struct {
		u8 u[18];
		u32 len;                /* whole ULPDU */
		u8 layer, etype, code;
		int event;
		enum ibv_wc_status first;
	} t[] = {
		/* Send of 101 bytes */
		{ { 0x41, 0x43, [13] = 1 }, 18 + 101, 1, 2, TERM_DDP_U_TOO_LONG, IBV_EVENT_QP_REQ_ERR, IBV_WC_LOC_LEN_ERR },
		{ { 0x41, 0x43, [13] = 1 }, 18 + 30000, 1, 2, TERM_DDP_U_TOO_LONG, IBV_EVENT_QP_REQ_ERR, IBV_WC_LOC_LEN_ERR },
		/* MSN, MO, queue */
		{ { 0x41, 0x43, [13] = 2 }, 18 + 1, 1, 2, TERM_DDP_U_MSN, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x43, [13] = 0 }, 18 + 1, 1, 2, TERM_DDP_U_MSN, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x43, [13] = 1, [17] = 4 }, 18 + 1, 1, 2, TERM_DDP_U_MO, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x43, [9] = 1, [13] = 1 }, 18 + 1, 1, 2, TERM_DDP_U_QN, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x43, [9] = 77, [13] = 1 }, 18 + 1, 1, 2, TERM_DDP_U_QN, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x41, [9] = 1, [13] = 2 }, 18 + 28, 1, 2, TERM_DDP_U_MSN, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x4A, [9] = 1, [13] = 0 }, 18 + 52, 1, 2, TERM_DDP_U_MSN, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x48, [13] = 2 }, 18 + 8, 1, 2, TERM_DDP_U_MSN, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x47, [9] = 2, [13] = 3 }, 18 + 4, 1, 2, TERM_DDP_U_MSN, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x41, [9] = 1, [13] = 1, [17] = 4 }, 18 + 28, 1, 2, TERM_DDP_U_MO, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		/* versions, opcode */
		{ { 0x42, 0x43, [13] = 1 }, 18 + 1, 1, 2, TERM_DDP_U_VERSION, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x83, [13] = 1 }, 18 + 1, 0, 2, TERM_RDMAP_BAD_VERSION, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0x41, 0x4F, [13] = 1 }, 18 + 1, 0, 2, TERM_RDMAP_OPCODE, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		/* a response nobody asked for */
		{ { 0x41, 0x4B, [9] = 3, [13] = 1 }, 18 + 12, 1, 2, TERM_DDP_U_NO_BUFFER, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		/* Send with Invalidate of an STag that is nobody's */
		{ { 0x41, 0x44, 9, 9, 9, 9, [13] = 1 }, 18, 0, 1, TERM_RDMAP_P_INVALIDATE, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR },
		/* shorter than its own header */
		{ { 0x41 }, 3, 2, 0, TERM_MPA_MARKER, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
		{ { 0 }, 0, 2, 0, TERM_MPA_MARKER, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		each_crc(o) {
			static u8 u[40000];

			start(&o);
			memset(u, 0xEE, sizeof(u));
			memcpy(u, t[i].u, sizeof(t[i].u));
			pair_raw_says(&pair, u, t[i].len);
			expect_terminate(t[i].layer, t[i].etype, t[i].code);
			expect_event(t[i].event);
			expect_receives(t[i].first);
			stop();
		}
}

/* Each segment would fit; the second one goes beyond the end. */
static void too_long_in_two_segments(void **state)
{
	each_crc(o) {
		u8 u[18 + 60] = { 0x01, 0x43, [13] = 1 };

		start(&o);
		pair_raw_says(&pair, u, sizeof(u));
		u[0] = 0x41;
		u[17] = 60;
		pair_raw_says(&pair, u, sizeof(u));
		expect_terminate(TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_TOO_LONG);
		expect_event(IBV_EVENT_QP_REQ_ERR);
		expect_receives(IBV_WC_LOC_LEN_ERR);
		stop();
	}
}

/* The third message for two buffers, in an SRQ or not. */
static void check_no_receive_buffer(const struct pair_options *o, u8 opcode, u32 payload)
{
	u8 u[18 + 8] = { 0x41, 0x40 | opcode };

	start(o);
	for (u8 i = 1; i <= 3; i++) {
		u[13] = i;
		pair_raw_says(&pair, u, 18 + payload);
	}
	expect_terminate(TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER);
	pair_wc_is(&pair, E->rcq, 1, IBV_WC_SUCCESS);
	pair_wc_is(&pair, E->rcq, 2, IBV_WC_SUCCESS);
	pair_no_wc(E->rcq);
	assert_int_equal(E->events[IBV_EVENT_QP_REQ_ERR], 1);
	assert_int_equal(E->events[IBV_EVENT_QP_LAST_WQE_REACHED], o->srq);
	stop();
}

static void no_receive_buffer(void **state)
{
	each_crc(o)
		for (int srq = 0; srq < 2; srq++) {
			o.srq = srq;
			check_no_receive_buffer(&o, RDMAP_SEND, 2);
			check_no_receive_buffer(&o, RDMAP_SEND_SE, 0);
			check_no_receive_buffer(&o, RDMAP_IMM, 8);
		}
}

/* The receive WQE's own memory is wrong: the program's fault. */
static void receive_into_nothing(void **state)
{
	each_crc(o) {
		struct ibv_sge s = { .addr = 1, .length = 100, .lkey = 0x12345678 };
		struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = &s, .num_sge = 1 }, *bad;
		u8 u[20] = { 0x41, 0x43 };

		start(&o);
		assert_int_equal(rnic_post_recv(E->qp, &wr, &bad), 0);
		for (u8 i = 1; i <= 3; i++) {
			u[13] = i;
			pair_raw_says(&pair, u, sizeof(u));
		}
		expect_terminate(TERM_LAYER_RDMAP, TERM_RDMAP_CATASTROPHIC, 0);
		pair_wc_is(&pair, E->rcq, 1, IBV_WC_SUCCESS);
		pair_wc_is(&pair, E->rcq, 2, IBV_WC_SUCCESS);
		pair_wc_is(&pair, E->rcq, 3, IBV_WC_LOC_PROT_ERR);
		expect_event(IBV_EVENT_QP_FATAL);
		stop();
	}
}

static void more_reads_than_the_ird(void **state)
{
	each_crc(o) {
		u8 u[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE];

		o.ird = 2;
		start(&o);
		for (u32 i = 1; i <= 200; i++) { /* of which the socket cannot take all answers */
			struct rdmap_read_req r = { .sink_stag = 5, .len = PAIR_MEM, .src_stag = E->stag, .src_to = (u64)(uintptr_t)E->mem };

			rdmap_put_read_req(u + ddp_put_untagged(u, RDMAP_READ_REQ, true, 0, i, 0), &r);
			pair_raw_says(&pair, u, sizeof(u));
		}
		for (int i = 0; i < 50; i++)
			pair_step(&pair); /* without reading the answers */
		expect_terminate(TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM);
		expect_event(IBV_EVENT_QP_REQ_ERR);
		expect_receives(IBV_WC_WR_FLUSH_ERR);
		stop();
	}
}

/* ---- responses to our Read ---- */

static void responses(void **state)
{
	static const struct {
		bool wrong_stag;
		u64 to;
		u32 len;
		bool last;
		u8 layer, etype, code;
	} t[] = {
		{ true, 0, 10, false, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG },
		{ false, 1, 10, false, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS },
		{ false, 0, 1001, true, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS },
		{ false, 0, 40000, true, TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_BOUNDS },
		{ false, 0, 999, true, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM },
		{ false, 0, 1000, false, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		each_crc(o) {
			static u8 u[50000];
			struct rdmap_read_req r;
			struct ddp_hdr h;
			u32 n;

			start(&o);
			assert_int_equal(pair_send(E, 9, IBV_WR_RDMA_READ, 1000, 1000, E, 0, 0), 0);
			assert_int_equal(pair_send(E, 10, IBV_WR_RDMA_READ, 1000, 1000, E, 0, 0), 0);
			assert_true(pair_raw_hears(&pair, &h, 3000));
			assert_int_equal(h.opcode, RDMAP_READ_REQ);
			rdmap_get_read_req(h.payload, &r);
			assert_int_equal(r.len, 1000);
			memset(u, 0xEE, sizeof(u));
			n = ddp_put_tagged(u, RDMAP_READ_RESP, t[i].last, r.sink_stag ^ (t[i].wrong_stag ? 1 : 0), r.sink_to + t[i].to);
			pair_raw_says(&pair, u, n + t[i].len);
			expect_terminate(t[i].layer, t[i].etype, t[i].code);
			pair_wc_is(&pair, E->scq, 9, IBV_WC_WR_FLUSH_ERR);
			pair_wc_is(&pair, E->scq, 10, IBV_WC_WR_FLUSH_ERR);
			for (u32 k = 0; k < 3000; k++)
				assert_int_equal(E->mem[k], 0);
			stop();
		}
}

/* A peer may write to the STag of a Read as little as to any other that is not a region's. */
static void write_to_the_sink_of_a_read(void **state)
{
	each_crc(o) {
		u8 u[100] = { 0 };
		struct rdmap_read_req r;
		struct ddp_hdr h;

		start(&o);
		assert_int_equal(pair_send(E, 9, IBV_WR_RDMA_READ, 1000, 1000, E, 0, 0), 0);
		assert_true(pair_raw_hears(&pair, &h, 3000));
		rdmap_get_read_req(h.payload, &r);
		ddp_put_tagged(u, RDMAP_WRITE, true, r.sink_stag, r.sink_to);
		pair_raw_says(&pair, u, sizeof(u));
		expect_terminate(TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG);
		pair_wc_is(&pair, E->scq, 9, IBV_WC_WR_FLUSH_ERR);
		stop();
	}
}

/* ---- Terminates that name a work request ---- */

static void terminated_by_the_peer(void **state)
{
	static const struct { struct rdmap_error err; enum ibv_wc_status status; } t[] = {
		{ { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STAG }, IBV_WC_REM_ACCESS_ERR },
		{ { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_BOUNDS }, IBV_WC_REM_ACCESS_ERR },
		{ { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM }, IBV_WC_REM_OP_ERR },
		{ { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER }, IBV_WC_REM_INV_REQ_ERR },
		{ { TERM_LAYER_LLP, 0, TERM_MPA_CRC }, IBV_WC_WR_FLUSH_ERR }, /* names none */
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		each_crc(o) {
			u8 quote[256], term[RDMAP_TERM_MAX];
			struct ddp_hdr h;
			u32 n;

			start(&o);
			for (u64 id = 8; id < 11; id++)
				assert_int_equal(pair_send(E, id, IBV_WR_RDMA_READ, 1000, 1000, E, 0, 0), 0);
			for (int k = 0; k < 2; k++)
				assert_true(pair_raw_hears(&pair, &h, 3000));
			n = ddp_put_untagged(quote, RDMAP_READ_REQ, true, 0, h.msn, 0);
			memcpy(quote + n, h.payload, RDMAP_READ_REQ_SIZE);
			n = rdmap_build_terminate(&t[i].err, 1, quote, n + RDMAP_READ_REQ_SIZE, term);
			pair_raw_says(&pair, term, n);
			pair_wc_is(&pair, E->scq, 8, IBV_WC_WR_FLUSH_ERR);
			pair_wc_is(&pair, E->scq, 9, t[i].status);
			pair_wc_is(&pair, E->scq, 10, IBV_WC_WR_FLUSH_ERR);
			pair_until(&pair, E->disconnects);
			assert_int_equal(E->qp->last_ae, RNIC_AE_TERMINATE_RECEIVED);
			expect_event(IBV_EVENT_QP_FATAL);
			expect_receives(IBV_WC_WR_FLUSH_ERR);
			stop();
		}
}

/* A silent peer, which may have overlooked our first FPDU, gets Writes of zero bytes: three of them, no more; one that has spoken none. */
static void silent_peer_is_nudged(void **state)
{
	for (int spoken = 0; spoken < 2; spoken++) {
		struct pair_options o = { .port = PAIR_RAW };
		struct ddp_hdr h;
		int nudges = 0;

		start(&o);
		assert_int_equal(pair_send(E, 8, IBV_WR_SEND, 0, 10, E, 0, IBV_SEND_SIGNALED), 0);
		if (spoken) {
			u8 u[DDP_TAGGED_HDR];

			pair_raw_says(&pair, u, ddp_put_tagged(u, RDMAP_WRITE, true, 0, 0));
		}
		assert_true(pair_raw_hears(&pair, &h, 3000));
		assert_int_equal(h.opcode, RDMAP_SEND);
		while (pair_raw_hears(&pair, &h, 1000)) {
			assert_int_equal(h.opcode, RDMAP_WRITE);
			assert_int_equal(h.payload_len, 0);
			nudges++;
		}
		assert_int_equal(nudges, spoken ? 0 : 3);
		stop();
	}
}

/* Terminates whose quotes are cut off or lie. */
static void terminates_that_lie(void **state)
{
	for (u32 len = 4; len < 64; len++)
		for (u32 fill = 0; fill < 3; fill++) {
			struct pair_options o = { .port = PAIR_RAW };
			u8 u[128];
			u32 n;

			start(&o);
			assert_int_equal(pair_send(E, 9, IBV_WR_RDMA_READ, 1000, 1000, E, 0, 0), 0);
			memset(u, fill == 2 ? 0x41 : fill ? 0xFF : 0xC1, sizeof(u));
			n = ddp_put_untagged(u, RDMAP_TERMINATE, true, 0, 1, 0);
			pair_raw_says(&pair, u, n + len);
			pair_until(&pair, E->disconnects);
			assert_int_not_equal(pair_wc(&pair, E->scq).status, IBV_WC_SUCCESS);
			stop();
		}
}

/* ---- below DDP ---- */

static void broken_framing(void **state)
{
	u8 good[64], bad[64];
	struct mpa_stream s;
	int n;

	mpa_stream_init(&s, true, false);
	memset(good, 0, sizeof(good));
	ddp_put_untagged(good, RDMAP_SEND, true, 0, 1, 0);
	n = mpa_fpdu_build(&s, good, 20, bad, sizeof(bad));
	assert_true(n > 0);
	for (int at = 2; at < n; at++) { /* a bit of the CRC, or of what it covers; in the length it would only wait for more */
		struct pair_options o = { .port = PAIR_RAW, .crc = true };

		start(&o);
		bad[at] ^= 0x10;
		pair_raw_bytes(&pair, bad, (size_t)n);
		bad[at] ^= 0x10;
		expect_terminate(TERM_LAYER_LLP, 0, TERM_MPA_CRC);
		expect_event(IBV_EVENT_QP_REQ_ERR);
		expect_receives(IBV_WC_WR_FLUSH_ERR);
		for (int k = 0; k < 100; k++)
			assert_int_equal(E->mem[k], 0);
		stop();
	}
}

static void bad_marker(void **state)
{
	struct pair_options o = { .port = PAIR_RAW, .markers = true };

	start(&o);
	pair_raw_bytes(&pair, "\0\0\0\4\0\2", 6);
	expect_terminate(TERM_LAYER_LLP, 0, TERM_MPA_MARKER);
	expect_receives(IBV_WC_WR_FLUSH_ERR);
	stop();
}

/* The header of 8000 bytes that there is room for: a Send, a Write, the response to a Read of ours. Its length. */
static u32 put_header(u8 opcode, u8 *u)
{
	struct rdmap_read_req r;
	struct ddp_hdr h;

	if (opcode == RDMAP_SEND)
		return ddp_put_untagged(u, opcode, true, 0, 1, 0);
	if (opcode == RDMAP_WRITE)
		return ddp_put_tagged(u, opcode, true, E->stag, (u64)(uintptr_t)E->mem);
	assert_int_equal(pair_send(E, 7, IBV_WR_RDMA_READ, 0, 8000, E, 0, 0), 0);
	assert_true(pair_raw_hears(&pair, &h, 3000));
	rdmap_get_read_req(h.payload, &r);
	return ddp_put_tagged(u, opcode, true, r.sink_stag, r.sink_to);
}

static void check_closed(const struct pair_options *o, u8 opcode, bool reset, int at)
{
	static u8 u[9000], fpdu[9300];
	struct mpa_stream s;
	u32 n;

	pair_open(&pair, o);
	assert_int_equal(pair_recv(E, 1, 0, 9000), 0);
	assert_int_equal(pair_recv(E, 2, 0, 9000), 0);
	pair_connect(&pair);
	n = put_header(opcode, u);
	mpa_stream_init(&s, o->crc, o->markers);
	assert_true(mpa_fpdu_build(&s, u, n + 8000, fpdu, sizeof(fpdu)) > at);
	pair_raw_bytes(&pair, fpdu, (size_t)at);
	if (reset) {
		plain_reset(pair.fd);
		pair.fd = -1;
		pair_until(&pair, E->disconnects);
		assert_int_equal(E->qp->last_ae, RNIC_AE_LLP_CONNECTION_RESET);
	} else if (at) {
		shutdown(pair.fd, SHUT_WR);
		expect_terminate(TERM_LAYER_LLP, 0, TERM_MPA_CONN_LOST);
	} else {
		shutdown(pair.fd, SHUT_WR);
		pair_until(&pair, E->disconnects);
		assert_int_equal(E->qp->last_ae, RNIC_AE_LLP_FIN_RECEIVED);
	}
	if (opcode == RDMAP_READ_RESP)
		pair_wc_is(&pair, E->scq, 7, IBV_WC_WR_FLUSH_ERR);
	expect_receives(IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

/* FIN, or RST, anywhere within an FPDU. */
static void closed_in_the_middle(void **state)
{
	static const u8 opcodes[] = { RDMAP_SEND, RDMAP_WRITE, RDMAP_READ_RESP };
	static const int at[] = { 0, 1, 2, 9, 15, 20, 27, 1500, 6000, 8010 };

	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++)
		for (size_t k = 0; k < ARRAY_SIZE(at); k++)
			for (int reset = 0; reset < 2; reset++)
				each_crc(o)
					check_closed(&o, opcodes[i], reset, at[k]);
}

/* Garbage of every kind: no crash, nothing leaks, everything ends. */
static void garbage(void **state)
{
	struct rand_gen g;

	rand_gen_seed(&g, 3);
	for (int run = 0; run < 300; run++) {
		struct pair_options o = { .port = PAIR_RAW, .crc = run & 1, .markers = run & 2 };
		static u8 u[3000];

		start(&o);
		pair_send(E, 1, IBV_WR_RDMA_READ, 0, 3000, E, 0, 0);
		for (int i = 0; i < 20; i++) {
			u32 n = 20 + (u32)rand_gen_below(&g, i % 5 ? 100 : 2900);

			for (u32 k = 0; k < n; k++)
				u[k] = (u8)rand_gen_u64(&g);
			u[0] = (u8)(rand_gen_chance(&g, 0.5) ? 0xC1 : 0x41);
			u[1] = (u8)(0x40 | rand_gen_below(&g, 13));
			if (rand_gen_chance(&g, 0.7)) {
				memset(u + 2, 0, 16);
				u[13] = 1;
			}
			if (send(pair.fd, "", 0, MSG_NOSIGNAL) < 0)
				break;
			{
				static u8 fpdu[4000];
				int len = mpa_fpdu_build(&pair.raw_tx, u, n, fpdu, sizeof(fpdu));

				if (send(pair.fd, fpdu, (size_t)len, MSG_NOSIGNAL) < 0)
					break;
			}
			pair_step(&pair);
		}
		shutdown(pair.fd, SHUT_WR);
		pair_until(&pair, E->disconnects);
		assert_int_not_equal(pair_wc(&pair, E->scq).status, IBV_WC_SUCCESS);
		stop();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes),
		cmocka_unit_test(requests),
		cmocka_unit_test(untagged),
		cmocka_unit_test(too_long_in_two_segments),
		cmocka_unit_test(no_receive_buffer),
		cmocka_unit_test(receive_into_nothing),
		cmocka_unit_test(more_reads_than_the_ird),
		cmocka_unit_test(responses),
		cmocka_unit_test(write_to_the_sink_of_a_read),
		cmocka_unit_test(terminated_by_the_peer),
		cmocka_unit_test(terminates_that_lie),
		cmocka_unit_test(broken_framing),
		cmocka_unit_test(bad_marker),
		cmocka_unit_test(closed_in_the_middle),
		cmocka_unit_test(garbage),
		cmocka_unit_test(silent_peer_is_nudged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
