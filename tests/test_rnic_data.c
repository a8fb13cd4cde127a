/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Data between two queue pairs: every operation, on the wire port and on the host port, with and without CRC and markers. */
#include <endian.h>
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

static const u32 sizes[] = { 0, 1, 3, 1023, 1024, 1025, 1400, 1424, 1425, 1426, 1427, 1428, 1429, 1430, 1431, 1432, 4097, 61439, 61440, 61441, 65000, 65449, 65450, 65451, 65452,
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


/* ---- the other operations ---- */

static struct rnic_mw *as_mw(const struct ibv_mw *mw) { return (struct rnic_mw *)(uintptr_t)mw; }
static struct rnic_mr *as_mr(const struct ibv_mr *mr) { return (struct rnic_mr *)(uintptr_t)mr; }
static const struct rnic_bind_ops bind_ops = { .mw = as_mw, .mr = as_mr };

static int post(struct pair_end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return rnic_post_send(e->qp, wr, &bad);
}

/* A type 2 window on the first 1000 bytes of B's memory, bound by a work request. */
static struct rnic_mw *bind_window(u32 *rkey)
{
	struct ibv_send_wr wr = { .wr_id = 77, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };
	struct rnic_mw *mw;

	rnic_bind_ops = &bind_ops;
	assert_int_equal(rnic_mw_create(B->pd, IBV_MW_TYPE_2, &mw), 0);
	*rkey = rnic_mw_rkey(mw) + 1 - (((rnic_mw_rkey(mw) & 0xFF) == 0xFF) << 8);
	wr.bind_mw.mw = (struct ibv_mw *)mw;
	wr.bind_mw.rkey = *rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = (struct ibv_mr *)B->mr, .addr = (u64)(uintptr_t)B->mem, .length = 1000,
							   .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
	assert_int_equal(post(B, &wr), 0);
	assert_int_equal(pair_wc_is(&pair, B->scq, 77, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
	return mw;
}

static void write_to_window(u64 id, u32 rkey, u32 len)
{
	struct ibv_sge s = pair_sge(A, 0, len);
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };

	wr.wr.rdma.remote_addr = (u64)(uintptr_t)B->mem;
	wr.wr.rdma.rkey = rkey;
	assert_int_equal(post(A, &wr), 0);
}

static void windows_and_send_with_invalidate(void **state)
{
	each_mode(o) {
		struct ibv_send_wr inv = { .wr_id = 3, .opcode = IBV_WR_SEND_WITH_INV, .send_flags = IBV_SEND_SOLICITED };
		struct rnic_mw *mw;
		struct ibv_wc wc;
		u32 rkey;

		pair_open(&pair, &o);
		pair_connect(&pair);
		assert_int_equal(pair_recv(B, 5, 0, 100), 0);
		if (o.rtr) {
			assert_int_equal(pair_send(A, 0, IBV_WR_SEND, 0, 0, NULL, 0, 0), 0);
			pair_wc_is(&pair, B->rcq, 5, IBV_WC_SUCCESS);
			assert_int_equal(pair_recv(B, 5, 0, 100), 0);
		}
		mw = bind_window(&rkey);
		pair_fill(A, 0, 1000, 4);
		write_to_window(1, rkey, 1000);
		inv.invalidate_rkey = rkey;
		assert_int_equal(post(A, &inv), 0);
		wc = pair_wc_is(&pair, B->rcq, 5, IBV_WC_SUCCESS);
		assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
		assert_int_equal(wc.invalidated_rkey, rkey);
		pair_expect(B, 0, 1000, 4);
		assert_int_equal(pair_recv(B, 6, 0, 100), 0);
		write_to_window(2, rkey, 1); /* it is dead now */
		pair_wc_is(&pair, B->rcq, 6, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(B->qp->term.layer, TERM_LAYER_DDP);
		assert_int_equal(B->qp->term.code, TERM_DDP_T_STAG);
		assert_int_equal(B->events[IBV_EVENT_QP_ACCESS_ERR], 1);
		assert_int_equal(rnic_mw_destroy(mw), 0);
		pair_close(&pair);
	}
}

static void what_cannot_be_invalidated(void **state)
{
	each_mode(o) {
		struct ibv_send_wr inv = { .wr_id = 3, .opcode = IBV_WR_SEND_WITH_INV };

		pair_open(&pair, &o);
		assert_int_equal(pair_recv(B, 0, 0, 100), 0);
		pair_connect(&pair);
		inv.invalidate_rkey = B->stag; /* a region */
		assert_int_equal(post(A, &inv), 0);
		pair_wc_is(&pair, B->rcq, 0, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(B->qp->term.layer, TERM_LAYER_RDMAP);
		assert_int_equal(B->qp->term.etype, TERM_RDMAP_PROTECTION);
		assert_int_equal(B->qp->term.code, TERM_RDMAP_P_INVALIDATE);
		pair_close(&pair);
	}
}

static void write_with_immediate(void **state)
{
	each_mode(o) {
		static const u32 lens[] = { 0, 100, 200000 };

		pair_open(&pair, &o);
		pair_connect(&pair);
		for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
			struct ibv_sge s = pair_sge(A, 0, lens[i]);
			struct ibv_send_wr wr = { .wr_id = i, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htobe32(0xC0FFEE),
						  .send_flags = IBV_SEND_SIGNALED | (i & 1 ? IBV_SEND_SOLICITED : 0) }, *bad;
			struct ibv_wc wc;

			pair_fill(A, 0, lens[i], (u8)i);
			assert_int_equal(pair_recv(B, i, PAIR_MEM / 2, 0), 0);
			wr.wr.rdma.remote_addr = (u64)(uintptr_t)B->mem;
			wr.wr.rdma.rkey = B->stag;
			assert_int_equal(rnic_post_send(A->qp, &wr, &bad), 0);
			wc = pair_wc_is(&pair, B->rcq, i, IBV_WC_SUCCESS);
			assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
			assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
			assert_int_equal(wc.imm_data, htobe32(0xC0FFEE));
			assert_int_equal(wc.byte_len, lens[i]);
			pair_expect(B, 0, lens[i], (u8)i);
			wc = pair_wc_is(&pair, A->scq, i, IBV_WC_SUCCESS);
			assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
		}
		pair_close(&pair);
	}
}

static u64 word(struct pair_end *e, u32 off)
{
	u64 v;

	memcpy(&v, e->mem + off, sizeof(v));
	return v;
}

static int post_atomic(enum ibv_wr_opcode op, u64 compare_add, u64 swap, u32 roff, unsigned int flags)
{
	struct ibv_sge s = pair_sge(A, 8, 8);
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED | flags }, *bad;

	wr.wr.atomic.remote_addr = (u64)(uintptr_t)B->mem + roff;
	wr.wr.atomic.rkey = B->stag;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	return rnic_post_send(A->qp, &wr, &bad);
}

static void atomics(void **state)
{
	each_mode(o) {
		u64 v = 40;

		pair_open(&pair, &o);
		pair_connect(&pair);
		memcpy(B->mem + 64, &v, sizeof(v));
		assert_int_equal(post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, 64, 0), 0);
		assert_int_equal(pair_wc_is(&pair, A->scq, 9, IBV_WC_SUCCESS).opcode, IBV_WC_FETCH_ADD);
		assert_int_equal(word(A, 8), 40);
		assert_int_equal(word(B, 64), 42);
		assert_int_equal(post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 41, 7, 64, 0), 0);
		assert_int_equal(pair_wc_is(&pair, A->scq, 9, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
		assert_int_equal(word(A, 8), 42);
		assert_int_equal(word(B, 64), 42);
		assert_int_equal(post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 42, UINT64_MAX, 64, 0), 0);
		pair_wc_is(&pair, A->scq, 9, IBV_WC_SUCCESS);
		assert_int_equal(word(A, 8), 42);
		assert_int_equal(word(B, 64), UINT64_MAX);
		assert_int_equal(post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0, 64, 0), 0);
		pair_wc_is(&pair, A->scq, 9, IBV_WC_SUCCESS);
		assert_int_equal(word(B, 64), 4);
		/* more than the ORD at once: they queue */
		for (int i = 0; i < 20; i++)
			assert_int_equal(post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 64, 0), 0);
		for (int i = 0; i < 20; i++)
			pair_wc_is(&pair, A->scq, 9, IBV_WC_SUCCESS);
		assert_int_equal(word(B, 64), 24);
		assert_int_equal(post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 65, 0), 0); /* not aligned */
		pair_wc_is(&pair, A->scq, 9, IBV_WC_REM_OP_ERR);
		pair_close(&pair);
	}
}

static void many_pieces(void **state)
{
	each_mode(o) {
		struct ibv_sge from[RNIC_MAX_SGE], to[RNIC_MAX_SGE];
		struct ibv_send_wr wr = { .wr_id = 1, .sg_list = from, .num_sge = RNIC_MAX_SGE, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_recv_wr rr = { .wr_id = 2, .sg_list = to, .num_sge = RNIC_MAX_SGE }, *bad_recv;
		u32 sent = 0, taken = 0;

		pair_open(&pair, &o);
		for (u32 i = 0; i < RNIC_MAX_SGE; i++) {
			from[i] = pair_sge(A, sent, i * 701);
			sent += i * 701;
			to[i] = pair_sge(B, taken, (RNIC_MAX_SGE - i) * 703);
			taken += (RNIC_MAX_SGE - i) * 703;
		}
		pair_fill(A, 0, sent, 9);
		assert_int_equal(rnic_post_recv(B->qp, &rr, &bad_recv), 0);
		pair_connect(&pair);
		assert_int_equal(rnic_post_send(A->qp, &wr, &bad), 0);
		assert_int_equal(pair_wc_is(&pair, B->rcq, 2, IBV_WC_SUCCESS).byte_len, sent);
		pair_wc_is(&pair, A->scq, 1, IBV_WC_SUCCESS);
		pair_expect(B, 0, sent, 9);
		/* and read back into as many */
		for (u32 i = 0; i < RNIC_MAX_SGE; i++)
			from[i].addr += PAIR_MEM / 2;
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = (u64)(uintptr_t)B->mem;
		wr.wr.rdma.rkey = B->stag;
		assert_int_equal(rnic_post_send(A->qp, &wr, &bad), 0);
		pair_wc_is(&pair, A->scq, 1, IBV_WC_SUCCESS);
		pair_expect(A, PAIR_MEM / 2, sent, 9);
		pair_close(&pair);
	}
}

static void inline_data(void **state)
{
	each_mode(o) {
		u8 here[RNIC_MAX_INLINE];
		struct ibv_sge s[2] = { { .addr = (u64)(uintptr_t)here, .length = 1 }, { .addr = (u64)(uintptr_t)here + 1, .length = sizeof(here) - 1 } };
		struct ibv_send_wr wr = { .wr_id = 1, .sg_list = s, .num_sge = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE }, *bad;

		o.inline_data = RNIC_MAX_INLINE;
		pair_open(&pair, &o);
		pair_fill(A, 0, sizeof(here), 3);
		memcpy(here, A->mem, sizeof(here));
		assert_int_equal(pair_recv(B, 2, 0, sizeof(here)), 0);
		pair_connect(&pair);
		assert_int_equal(rnic_post_send(A->qp, &wr, &bad), 0);
		memset(here, 0, sizeof(here)); /* it is copied */
		pair_wc_is(&pair, B->rcq, 2, IBV_WC_SUCCESS);
		pair_expect(B, 0, sizeof(here), 3);
		s[1].length++;
		assert_int_equal(rnic_post_send(A->qp, &wr, &bad), -EINVAL);
		pair_close(&pair);
	}
}

/* ---- order, queues, flags ---- */

static void completions_in_order_of_posting(void **state)
{
	each_mode(o) {
		pair_open(&pair, &o);
		for (u64 i = 0; i < 4; i++)
			assert_int_equal(pair_recv(B, i, 0, 64), 0);
		pair_connect(&pair);
		assert_int_equal(pair_send(A, 1, IBV_WR_RDMA_READ, 0, 100000, B, 0, IBV_SEND_SIGNALED), 0);
		assert_int_equal(pair_send(A, 2, IBV_WR_SEND, 0, 64, NULL, 0, IBV_SEND_SIGNALED), 0);
		assert_int_equal(pair_send(A, 3, IBV_WR_SEND, 0, 64, NULL, 0, 0), 0);
		assert_int_equal(pair_send(A, 4, IBV_WR_RDMA_WRITE, 0, 64, B, 0, IBV_SEND_SIGNALED), 0);
		assert_int_equal(pair_send(A, 5, IBV_WR_RDMA_READ, 0, 1, B, 0, 0), 0);
		assert_int_equal(pair_send(A, 6, IBV_WR_SEND, 0, 64, NULL, 0, IBV_SEND_SIGNALED), 0);
		pair_wc_is(&pair, A->scq, 1, IBV_WC_SUCCESS);
		pair_wc_is(&pair, A->scq, 2, IBV_WC_SUCCESS);
		pair_wc_is(&pair, A->scq, 4, IBV_WC_SUCCESS);
		pair_wc_is(&pair, A->scq, 6, IBV_WC_SUCCESS);
		for (u64 i = 0; i < 3; i++)
			pair_wc_is(&pair, B->rcq, i, IBV_WC_SUCCESS);
		pair_close(&pair);
	}
}

static void all_signalled(void **state)
{
	struct pair_options o = { .port = PAIR_WIRE, .sq_sig_all = true, .one_cq = true };

	pair_open(&pair, &o);
	pair_connect(&pair);
	assert_int_equal(pair_send(A, 4, IBV_WR_RDMA_WRITE, 0, 64, B, 0, 0), 0);
	pair_wc_is(&pair, A->scq, 4, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* Reads beyond the ORD wait; the peer has an IRD of as many and would terminate. */
static void reads_within_the_ord(void **state)
{
	for (u16 ord = 1; ord <= 4; ord++)
		each_mode(o) {
			o.ord = ord;
			pair_open(&pair, &o);
			pair_connect(&pair);
			pair_fill(B, 0, 40 * 1000, 1);
			for (u32 i = 0; i < 40; i++)
				assert_int_equal(pair_send(A, i, IBV_WR_RDMA_READ, i * 1000, 1000, B, i * 1000, IBV_SEND_SIGNALED), 0);
			for (u32 i = 0; i < 40; i++)
				pair_wc_is(&pair, A->scq, i, IBV_WC_SUCCESS);
			pair_expect(A, 0, 40 * 1000, 1);
			assert_int_equal(B->qp->state, RNIC_QP_RTS);
			pair_close(&pair);
		}
}

static void no_ord(void **state)
{
	struct pair_options o = { .port = PAIR_WIRE, .no_ord = true };

	pair_open(&pair, &o);
	pair_connect(&pair);
	assert_int_equal(pair_send(A, 1, IBV_WR_RDMA_READ, 0, 1, B, 0, IBV_SEND_SIGNALED), -EINVAL);
	assert_int_equal(pair_send(A, 2, IBV_WR_RDMA_WRITE, 0, 1, B, 0, IBV_SEND_SIGNALED), 0);
	pair_wc_is(&pair, A->scq, 2, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* A Write with a fence sends what the Read in front of it brings. */
static void fence(void **state)
{
	each_mode(o) {
		pair_open(&pair, &o);
		pair_connect(&pair);
		pair_fill(B, 0, 100000, 5);
		assert_int_equal(pair_send(A, 1, IBV_WR_RDMA_READ, 0, 100000, B, 0, 0), 0);
		assert_int_equal(pair_send(A, 2, IBV_WR_RDMA_WRITE, 0, 100000, B, 200000, IBV_SEND_FENCE | IBV_SEND_SIGNALED), 0);
		pair_wc_is(&pair, A->scq, 2, IBV_WC_SUCCESS);
		assert_int_equal(pair_send(A, 3, IBV_WR_RDMA_READ, 300000, 1, B, 0, IBV_SEND_SIGNALED), 0); /* behind the Write */
		pair_wc_is(&pair, A->scq, 3, IBV_WC_SUCCESS);
		pair_expect(B, 200000, 100000, 5);
		pair_close(&pair);
	}
}

/* LOCAL_INV takes the window away behind what was posted before; a second one fails, and the QP with it. */
static void local_operations(void **state)
{
	each_mode(o) {
		struct ibv_send_wr inv = { .wr_id = 2, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED };
		struct rnic_mw *mw;
		u32 rkey;

		o.rtr = 0;
		pair_open(&pair, &o);
		pair_connect(&pair);
		mw = bind_window(&rkey);
		inv.invalidate_rkey = rkey;
		assert_int_equal(pair_send(B, 1, IBV_WR_RDMA_WRITE, 0, 3000000, A, 0, IBV_SEND_SIGNALED), 0);
		assert_int_equal(post(B, &inv), 0);
		pair_wc_is(&pair, B->scq, 1, IBV_WC_SUCCESS);
		assert_int_equal(pair_wc_is(&pair, B->scq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
		inv.wr_id = 3;
		assert_int_equal(pair_send(B, 1, IBV_WR_RDMA_WRITE, 0, 3000000, A, 0, IBV_SEND_SIGNALED), 0);
		assert_int_equal(post(B, &inv), 0);
		assert_int_equal(pair_send(B, 4, IBV_WR_RDMA_WRITE, 0, 1, A, 0, 0), 0);
		pair_wc_is(&pair, B->scq, 1, IBV_WC_SUCCESS);
		pair_wc_is(&pair, B->scq, 3, IBV_WC_LOC_PROT_ERR);
		pair_wc_is(&pair, B->scq, 4, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(B->qp->state, RNIC_QP_TERMINATE);
		assert_int_equal(B->events[IBV_EVENT_QP_FATAL], 1);
		pair_until(&pair, A->qp->last_ae == RNIC_AE_TERMINATE_RECEIVED);
		assert_int_equal(rnic_mw_destroy(mw), 0);
		pair_close(&pair);
	}
}

static void what_cannot_be_posted(void **state)
{
	struct ibv_sge s[RNIC_MAX_SGE + 1] = { { 0 } };
	struct ibv_send_wr wr = { .sg_list = s }, *bad;
	static const struct { unsigned int op; unsigned int flags; int sges; int rc; } t[] = {
		{ IBV_WR_SEND_WITH_IMM, 0, 1, -EOPNOTSUPP },
		{ IBV_WR_SEND, 0, RNIC_MAX_SGE + 1, -EINVAL },
		{ IBV_WR_SEND, 0, -1, -EINVAL },
		{ IBV_WR_RDMA_READ, IBV_SEND_INLINE, 1, -EINVAL },
		{ IBV_WR_LOCAL_INV, IBV_SEND_INLINE, 0, -EINVAL },
		{ IBV_WR_SEND, 1u << 20, 1, -EINVAL },
		{ IBV_WR_TSO, 0, 1, -EINVAL },
		{ 99, 0, 1, -EINVAL },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, -EINVAL },
		{ IBV_WR_RDMA_WRITE, 0, 3, -EINVAL }, /* 4 GiB and more in all */
	};
	struct pair_options o = { .port = PAIR_WIRE, .max_send_wr = 4 };

	pair_open(&pair, &o);
	wr.opcode = IBV_WR_SEND;
	assert_int_equal(rnic_post_send(A->qp, &wr, &bad), -EINVAL); /* IDLE */
	assert_ptr_equal(bad, &wr);
	pair_connect(&pair);
	s[0].length = 1;
	s[1].length = s[2].length = UINT32_MAX;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		wr.opcode = t[i].op;
		wr.send_flags = t[i].flags;
		wr.num_sge = t[i].sges;
		bad = NULL;
		assert_int_equal(rnic_post_send(A->qp, &wr, &bad), t[i].rc);
		assert_ptr_equal(bad, &wr);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(pair_send(A, 1, IBV_WR_RDMA_READ, 0, 1, B, 0, IBV_SEND_SIGNALED), 0);
	assert_int_equal(pair_send(A, 1, IBV_WR_RDMA_READ, 0, 1, B, 0, IBV_SEND_SIGNALED), -ENOMEM);
	for (int i = 0; i < 4; i++)
		pair_wc_is(&pair, A->scq, 1, IBV_WC_SUCCESS);
	assert_int_equal(A->qp->state, RNIC_QP_RTS);
	pair_close(&pair);
}

/* What the responder posts waits for the RTR. */
static void responder_waits_for_the_rtr(void **state)
{
	for (u32 rtr = RDMAP_RTR_SEND; rtr <= RDMAP_RTR_READ; rtr <<= 1) {
		struct pair_options o = { .port = PAIR_WIRE, .rtr = rtr };

		pair_open(&pair, &o);
		assert_int_equal(pair_recv(A, 1, 0, 100), 0);
		assert_int_equal(pair_recv(B, 2, 0, 100), 0);
		pair_connect(&pair); /* the RTR is on its way */
		assert_int_equal(pair_send(B, 3, IBV_WR_SEND, 0, 100, NULL, 0, IBV_SEND_SIGNALED), 0);
		assert_int_equal(B->qp->tx_bytes, 0);
		pair_no_wc(B->scq);
		pair_wc_is(&pair, A->rcq, 1, IBV_WC_SUCCESS);
		pair_wc_is(&pair, B->scq, 3, IBV_WC_SUCCESS);
		assert_int_equal(pair_send(A, 4, IBV_WR_SEND, 0, 10, NULL, 0, 0), 0); /* the RTR took no receive */
		assert_int_equal(pair_wc_is(&pair, B->rcq, 2, IBV_WC_SUCCESS).byte_len, 10);
		assert_int_equal(pair_send(A, 5, IBV_WR_RDMA_READ, 0, 10, B, 0, IBV_SEND_SIGNALED), 0);
		pair_wc_is(&pair, A->scq, 5, IBV_WC_SUCCESS);
		pair_close(&pair);
	}
}

/*
 * Client-server: nothing of the responder's goes out before the initiator's first FPDU, or, if that keeps silent, a tenth of a second; longer if the
 * responder was told to wait.
 */
static void responder_waits_for_the_first_fpdu(void **state)
{
	for (int mode = 0; mode < 3; mode++) {
		struct pair_options o = { .port = PAIR_WIRE };
		bool waits = mode == 2, speaks = mode != 1;

		pair_open(&pair, &o);
		B->dev->responder_waits = waits;
		assert_int_equal(pair_recv(A, 1, 0, 100), 0);
		assert_int_equal(pair_recv(B, 2, 0, 100), 0);
		pair_connect(&pair);
		assert_int_equal(pair_send(B, 3, IBV_WR_SEND, 0, 100, NULL, 0, IBV_SEND_SIGNALED), 0);
		port_wire_run(pair.wire, loop_now(&pair.loop) + (waits ? 3600 * NSEC_PER_SEC : 90 * NSEC_PER_MSEC));
		assert_int_equal(B->qp->tx_bytes, 0);
		pair_no_wc(B->scq);
		if (speaks) {
			assert_int_equal(pair_send(A, 4, IBV_WR_SEND, 0, 10, NULL, 0, 0), 0);
			port_wire_run(pair.wire, loop_now(&pair.loop) + NSEC_PER_MSEC);
		} else {
			port_wire_run(pair.wire, loop_now(&pair.loop) + 20 * NSEC_PER_MSEC);
		}
		assert_true(B->qp->tx_bytes > 0);
		pair_wc_is(&pair, A->rcq, 1, IBV_WC_SUCCESS);
		pair_wc_is(&pair, B->scq, 3, IBV_WC_SUCCESS);
		pair_close(&pair);
	}
}

/* A CQ that overruns takes its QP along. */
static void completion_queue_overruns(void **state)
{
	each_mode(o) {
		struct ibv_wc wc;
		int n, taken = 0;

		o.cqe = 4;
		o.one_cq = false;
		pair_open(&pair, &o);
		pair_connect(&pair);
		for (u64 i = 0; i < 20; i++)
			pair_send(A, i, IBV_WR_RDMA_WRITE, 0, 10, B, 0, IBV_SEND_SIGNALED);
		pair_until(&pair, A->disconnects);
		assert_int_equal(A->qp->state, RNIC_QP_ERROR);
		assert_int_equal(A->events[IBV_EVENT_QP_FATAL], 1);
		while ((n = rnic_cq_poll(A->scq, 1, &wc)) == 1)
			assert_int_equal(wc.wr_id, taken++);
		assert_int_equal(n, -EOVERFLOW);
		assert_in_range(taken, 4, 19);
		pair_close(&pair);
	}
}

static void shared_receive_queue(void **state)
{
	each_mode(o) {
		o.srq = true;
		pair_open(&pair, &o);
		for (u64 i = 0; i < 10; i++)
			assert_int_equal(pair_recv(B, i, (u32)i * 1000, 1000), 0);
		pair_connect(&pair);
		pair_fill(A, 0, 1000, 1);
		for (u64 i = 0; i < 5; i++)
			assert_int_equal(pair_send(A, i, IBV_WR_SEND, 0, 1000, NULL, 0, 0), 0);
		for (u64 i = 0; i < 5; i++) {
			pair_wc_is(&pair, B->rcq, i, IBV_WC_SUCCESS);
			pair_expect(B, (u32)i * 1000, 1000, 1);
		}
		assert_int_equal(rnic_qp_modify(B->qp, RNIC_QP_ERROR), 0);
		assert_int_equal(B->events[IBV_EVENT_QP_LAST_WQE_REACHED], 1);
		pair_no_wc(B->rcq);
		pair_close(&pair);
	}
}

/* Two peers that both send much and receive only in between cannot block each other. */
static void both_send_much(void **state)
{
	each_mode(o) {
		o.max_send_wr = o.max_recv_wr = 64;
		o.one_cq = false;
		pair_open(&pair, &o);
		for (int e = 0; e < 2; e++)
			for (u64 i = 0; i < 40; i++)
				assert_int_equal(pair_recv(&pair.e[e], i, 0, PAIR_MEM / 4), 0);
		pair_connect(&pair);
		for (int e = 0; e < 2; e++)
			for (u64 i = 0; i < 10; i++)
				assert_int_equal(pair_send(&pair.e[e], i, i & 1 ? IBV_WR_SEND : IBV_WR_RDMA_READ, PAIR_MEM / 2, PAIR_MEM / 4,
							   &pair.e[!e], PAIR_MEM / 2, IBV_SEND_SIGNALED), 0);
		for (u64 i = 0; i < 10; i++)
			for (int e = 0; e < 2; e++)
				pair_wc_is(&pair, pair.e[e].scq, i, IBV_WC_SUCCESS);
		pair_close(&pair);
	}
}

/* A wire that loses, repeats, reorders and corrupts. */
static void over_a_rough_wire(void **state)
{
	static const struct port_wire_path rough = {
		.latency_ns = 20 * NSEC_PER_USEC, .jitter_ns = 10 * NSEC_PER_USEC, .loss = 0.03, .duplicate = 0.02, .corrupt = 0.02, .reorder = 0.05,
		.reorder_ns = 100 * NSEC_PER_USEC,
	};

	for (u32 i = 0; i < 8; i++) {
		struct pair_options o = { .port = PAIR_WIRE, .crc = i & 1, .markers = i & 2, .rtr = 1u << i % 3, .path = &rough };
		u32 len = 150000 + i * 1001;

		pair_open(&pair, &o);
		for (u64 k = 0; k < 4; k++)
			for (int e = 0; e < 2; e++)
				assert_int_equal(pair_recv(&pair.e[e], k, 1000000, len), 0);
		pair_connect(&pair);
		pair_fill(A, 0, len, 1);
		pair_fill(B, 0, len, 2);
		for (int e = 0; e < 2; e++) {
			assert_int_equal(pair_send(&pair.e[e], 1, IBV_WR_SEND, 0, len, NULL, 0, 0), 0);
			assert_int_equal(pair_send(&pair.e[e], 2, IBV_WR_RDMA_WRITE, 0, len, &pair.e[!e], 2000000, 0), 0);
			assert_int_equal(pair_send(&pair.e[e], 3, IBV_WR_RDMA_READ, 3000000, len, &pair.e[!e], 0, IBV_SEND_SIGNALED), 0);
		}
		for (int e = 0; e < 2; e++) {
			pair_wc_is(&pair, pair.e[e].scq, 3, IBV_WC_SUCCESS);
			pair_wc_is(&pair, pair.e[e].rcq, 0, IBV_WC_SUCCESS);
			for (u32 off = 1000000; off <= 3000000; off += 1000000)
				pair_expect(&pair.e[e], off, len, e ? 1 : 2);
		}
		pair_close(&pair);
	}
}

/* ---- the end ---- */

static void flushed_in_order(void **state)
{
	each_mode(o) {
		static const enum rnic_qp_state how[] = { RNIC_QP_ERROR, RNIC_QP_TERMINATE };

		for (size_t k = 0; k < ARRAY_SIZE(how); k++) {
			o.ord = 1;
			o.one_cq = false;
		pair_open(&pair, &o);
			pair_connect(&pair);
			for (u64 i = 0; i < 5; i++)
				assert_int_equal(pair_recv(A, 100 + i, 0, 10), 0);
			for (u64 i = 0; i < 5; i++)
				assert_int_equal(pair_send(A, i, IBV_WR_RDMA_READ, 0, 1000, B, 0, 0), 0);
			assert_int_equal(rnic_qp_modify(A->qp, how[k]), 0);
			for (u64 i = 0; i < 3; i++) {
				assert_int_equal(pair_send(A, 5 + i, IBV_WR_SEND, 0, 10, NULL, 0, 0), 0);
				assert_int_equal(pair_recv(A, 105 + i, 0, 10), 0);
			}
			for (u64 i = 0; i < 8; i++) {
				pair_wc_is(&pair, A->scq, i, IBV_WC_WR_FLUSH_ERR);
				pair_wc_is(&pair, A->rcq, 100 + i, IBV_WC_WR_FLUSH_ERR);
			}
			pair_until(&pair, A->disconnects);
			pair_no_wc(A->scq);
			pair_no_wc(A->rcq);
			pair_close(&pair);
		}
	}
}

/* FIN behind what was posted; what is posted afterwards is flushed behind it. */
static void orderly_close(void **state)
{
	each_mode(o) {
		o.one_cq = false;
		pair_open(&pair, &o);
		for (u64 i = 0; i < 20; i++)
			assert_int_equal(pair_recv(B, i, 0, 100000), 0);
		assert_int_equal(pair_recv(A, 50, 0, 100), 0);
		pair_connect(&pair);
		pair_fill(A, 0, 100000, 1);
		for (u64 i = 0; i < 10; i++)
			assert_int_equal(pair_send(A, i, IBV_WR_SEND, 0, 100000, NULL, 0, IBV_SEND_SIGNALED), 0);
		assert_int_equal(pair_send(A, 10, IBV_WR_RDMA_READ, PAIR_MEM / 2, 100000, B, 0, IBV_SEND_SIGNALED), 0);
		assert_int_equal(rnic_qp_modify(A->qp, RNIC_QP_CLOSING), 0);
		assert_int_equal(pair_send(A, 11, IBV_WR_SEND, 0, 1, NULL, 0, 0), 0);
		for (u64 i = 0; i < 11; i++)
			pair_wc_is(&pair, A->scq, i, IBV_WC_SUCCESS);
		pair_wc_is(&pair, A->scq, 11, IBV_WC_WR_FLUSH_ERR);
		for (u64 i = 0; i < 10; i++)
			pair_wc_is(&pair, B->rcq, i, IBV_WC_SUCCESS);
		pair_expect(B, 0, 100000, 1);
		for (u64 i = 10; i < 20; i++)
			pair_wc_is(&pair, B->rcq, i, IBV_WC_WR_FLUSH_ERR);
		pair_wc_is(&pair, A->rcq, 50, IBV_WC_WR_FLUSH_ERR);
		pair_until(&pair, A->disconnects && B->disconnects);
		assert_int_equal(A->qp->last_ae, RNIC_AE_LLP_CLOSE_COMPLETE);
		assert_false(B->qp->reset_seen);
		pair_close(&pair);
	}
}

/* What was posted before the end and has not left yet: a program that ends would take it along. */
static void closing_is_known(void **state)
{
	each_mode(o) {
		pair_open(&pair, &o);
		for (u64 i = 0; i < 8; i++)
			assert_int_equal(pair_recv(B, i, 0, 300000), 0);
		pair_connect(&pair);
		if (o.rtr)
			pair_settle(&pair);
		for (u64 i = 0; i < 8; i++)
			assert_int_equal(pair_send(A, i, IBV_WR_SEND, 0, 300000, NULL, 0, IBV_SEND_SIGNALED), 0);
		assert_false(rnic_device_is_closing(A->dev));
		assert_int_equal(rnic_qp_modify(A->qp, RNIC_QP_CLOSING), 0);
		assert_int_equal(rnic_device_is_closing(A->dev), !rnic_qp_fin_is_out(A->qp));
		for (u64 i = 0; i < 8; i++)
			pair_wc_is(&pair, A->scq, i, IBV_WC_SUCCESS);
		pair_until(&pair, !rnic_device_is_closing(A->dev));
		for (u64 i = 0; i < 8; i++)
			pair_wc_is(&pair, B->rcq, i, IBV_WC_SUCCESS);
		pair_close(&pair);
	}
}

/* Programs end right behind their last Send: it arrives, and what follows is FIN. With work left it is a reset. */
static void destroyed_behind_the_last_send(void **state)
{
	each_mode(o) {
		for (int left = 0; left < 2; left++) {
			struct irdma_qp *qp;

			pair_open(&pair, &o);
			assert_int_equal(pair_recv(B, 1, 0, 1000), 0);
			assert_int_equal(pair_recv(B, 2, 0, 1000), 0);
			pair_connect(&pair);
			assert_int_equal(pair_send(A, 3, IBV_WR_SEND, 0, 1000, NULL, 0, IBV_SEND_SIGNALED), 0);
			pair_wc_is(&pair, A->scq, 3, IBV_WC_SUCCESS);
			if (left)
				assert_int_equal(pair_send(A, 4, IBV_WR_RDMA_READ, 0, 1000, B, 0, IBV_SEND_SIGNALED), 0);
			qp = A->qp;
			rnic_qp_hold(qp);
			rnic_qp_destroy(qp);
			pair_until(&pair, A->disconnects);
			rnic_qp_release_stream(qp);
			rnic_qp_put(qp);
			A->qp = NULL;
			pair_until(&pair, B->disconnects);
			assert_int_equal(B->qp->reset_seen, left);
			if (!left) {
				pair_wc_is(&pair, B->rcq, 1, IBV_WC_SUCCESS);
				pair_wc_is(&pair, B->rcq, 2, IBV_WC_WR_FLUSH_ERR);
			}
			pair_close(&pair);
		}
	}
}

/* In every state, with work in both queues, and with the stream stuck: nothing is left, nothing is touched. */
static void destroyed_in_every_state(void **state)
{
	each_mode(o) {
		for (int how = 0; how < 6; how++) {
			pair_open(&pair, &o);
			if (how) {
				pair_connect(&pair);
				for (u64 i = 0; i < 20; i++) {
					assert_int_equal(pair_send(A, i, IBV_WR_RDMA_WRITE, 0, PAIR_MEM / 2, B, 0, IBV_SEND_SIGNALED), 0);
					assert_int_equal(pair_send(A, i, IBV_WR_RDMA_READ, 0, 10000, B, 0, IBV_SEND_SIGNALED), 0);
				}
			}
			assert_int_equal(pair_recv(A, 5, 0, 10), 0);
			if (how == 2)
				assert_int_equal(rnic_qp_modify(A->qp, RNIC_QP_CLOSING), 0);
			if (how == 3)
				assert_int_equal(rnic_qp_modify(A->qp, RNIC_QP_TERMINATE), 0);
			if (how == 4)
				assert_int_equal(rnic_qp_modify(A->qp, RNIC_QP_ERROR), 0);
			if (how == 5)
				pair_wc_is(&pair, A->scq, 0, IBV_WC_SUCCESS);
			rnic_qp_hold(A->qp);
			rnic_qp_destroy(A->qp);
			pair_no_wc(A->scq); /* its completions are gone */
			pair_no_wc(A->rcq);
			assert_int_equal(rnic_mr_destroy(A->mr), 0); /* and nobody holds the memory */
			A->mr = NULL;
			memset(A->mem, 0xEE, PAIR_MEM);
			pair_settle(&pair);
			rnic_qp_release_stream(A->qp);
			rnic_qp_put(A->qp);
			A->qp = NULL;
			pair_close(&pair);
		}
	}
}

/* A region that dies with the transfer half done. */
static void deregistered_during_traffic(void **state)
{
	each_mode(o) {
		for (int end = 0; end < 2; end++) {
			struct ibv_wc wc;
			int n;

			pair_open(&pair, &o);
			pair_connect(&pair);
			for (u64 i = 0; i < 20; i++)
				assert_int_equal(pair_send(A, i, i & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0, PAIR_MEM / 2, B, 0, IBV_SEND_SIGNALED), 0);
			for (int i = 0; i < 3; i++)
				pair_step(&pair);
			assert_int_equal(rnic_mr_destroy(pair.e[end].mr), 0);
			pair.e[end].mr = NULL;
			memset(pair.e[end].mem, 0xEE, PAIR_MEM);
			pair_until(&pair, A->disconnects && B->disconnects);
			for (size_t i = 0; i < PAIR_MEM; i++)
				assert_int_equal(pair.e[end].mem[i], 0xEE);
			for (n = 0; rnic_cq_poll(A->scq, 1, &wc) == 1; n++)
				assert_int_equal(wc.wr_id, n);
			assert_int_equal(n, 20);
			assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
			pair_close(&pair);
		}
	}
}

static void statistics(void **state)
{
	struct pair_options o = { .port = PAIR_WIRE };
	struct rnic_device_stats d;
	struct irdma_qp *kept;
	struct rnic_qp_info i;

	pair_open(&pair, &o);
	assert_int_equal(pair_recv(B, 1, 0, 10), 0);
	pair_connect(&pair);
	assert_int_equal(pair_send(A, 1, IBV_WR_RDMA_WRITE, 0, 5000, B, 0, IBV_SEND_SIGNALED), 0);
	assert_int_equal(pair_send(A, 1, IBV_WR_SEND, 0, 10, B, 0, IBV_SEND_SIGNALED), 0);
	pair_wc_is(&pair, B->rcq, 1, IBV_WC_SUCCESS);
	rnic_qp_query(A->qp, &i);
	assert_int_equal(i.state, RNIC_QP_RTS);
	assert_int_equal(i.stats.tx_msgs[RDMAP_WRITE], 1);
	assert_int_equal(i.stats.tx_msgs[RDMAP_SEND], 1);
	assert_int_equal(i.stats.tx_fpdus, 5);
	rnic_qp_query(B->qp, &i);
	assert_int_equal(i.stats.rx_msgs[RDMAP_WRITE], 1);
	assert_int_equal(i.stats.rx_fpdus, 5);
	assert_true(i.stats.rx_bytes > 5000);
	assert_int_equal(i.cap.max_recv_sge, RNIC_MAX_SGE);
	assert_int_equal(i.iw.ird, 8);
	kept = A->qp; /* as the CM does */
	rnic_qp_hold(kept);
	rnic_qp_destroy(A->qp);
	A->qp = NULL;
	rnic_device_get_stats(A->dev, &d);
	assert_int_equal(d.qps_now, 0);
	assert_int_equal(d.qp.tx_msgs[RDMAP_WRITE], 1);
	rnic_qp_release_stream(kept);
	rnic_qp_put(kept);
	pair_settle(&pair);
	rnic_device_get_stats(A->dev, &d);
	assert_int_equal(d.qps_created, 1);
	assert_int_equal(d.qps_now, 0);
	assert_int_equal(d.connections, 1);
	assert_int_equal(d.qp.tx_msgs[RDMAP_WRITE], 1);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sends),
		cmocka_unit_test(writes_and_reads),
		cmocka_unit_test(windows_and_send_with_invalidate),
		cmocka_unit_test(what_cannot_be_invalidated),
		cmocka_unit_test(write_with_immediate),
		cmocka_unit_test(atomics),
		cmocka_unit_test(many_pieces),
		cmocka_unit_test(inline_data),
		cmocka_unit_test(completions_in_order_of_posting),
		cmocka_unit_test(all_signalled),
		cmocka_unit_test(reads_within_the_ord),
		cmocka_unit_test(no_ord),
		cmocka_unit_test(fence),
		cmocka_unit_test(local_operations),
		cmocka_unit_test(what_cannot_be_posted),
		cmocka_unit_test(responder_waits_for_the_rtr),
		cmocka_unit_test(responder_waits_for_the_first_fpdu),
		cmocka_unit_test(completion_queue_overruns),
		cmocka_unit_test(shared_receive_queue),
		cmocka_unit_test(both_send_much),
		cmocka_unit_test(over_a_rough_wire),
		cmocka_unit_test(flushed_in_order),
		cmocka_unit_test(orderly_close),
		cmocka_unit_test(closing_is_known),
		cmocka_unit_test(destroyed_behind_the_last_send),
		cmocka_unit_test(destroyed_in_every_state),
		cmocka_unit_test(deregistered_during_traffic),
		cmocka_unit_test(statistics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
