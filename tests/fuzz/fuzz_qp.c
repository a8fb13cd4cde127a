/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A QP with queues and memory, whose peer is the input: FPDUs with headers near the right ones, any bytes, damage, FIN and reset, in any pieces, while the program posts, polls,
 * binds, invalidates, deregisters and ends.
 *
 * Checked: nothing is placed where the peer had no right to; work requests complete in order, and each once; what the QP says are FPDUs; nothing is left.
 */
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "rdmap/rdmap_internal.h"
#include "test_rnic_port.h"

#define STEPS 250
#define AREA 32768u    /* large enough for payload that is read straight into memory */
#define PAYLOAD_MAX 40000u
#define SAY_MAX (256u << 10)
#define BASE 0x10000u /* the regions' addresses, as the peer gives them */
#define WRS 16u
#define QUEUES 2      /* send, receive */

/* Memory, and what the peer may do with it. */
enum which { WRITABLE, READ_ONLY, LOCAL_ONLY, OTHER_PD, REGIONS, WINDOW = REGIONS, DEAD, NOBODY, WHICH };

struct queue {
	u64 posted, done;     /* wr_ids are numbers, from 1 */
	bool all;             /* every one completes, not only signalled and failed ones */
};

struct world {
	struct fake fake;
	struct rnic_pd *pd, *other_pd;
	struct rnic_cq *scq, *rcq;
	struct rnic_srq *srq;
	struct rnic_mr *mr[REGIONS];
	u8 *area[REGIONS];
	struct rnic_mw *mw;
	u32 window_key, dead_stag;
	struct irdma_qp *qp;
	struct queue queue[QUEUES];
	/* the peer */
	struct mpa_stream tx;
	struct mpa_rx heard;
	bool crc, snd_markers;
	u32 lsmm_len;         /* what goes out first is no FPDU */
	u32 msn[DDP_QN_ATOMIC_RESP + 1];
	u8 say[SAY_MAX];
	u32 say_len, say_off;
};

static struct world w;

/* ---- below and above the QP ---- */

/* What the QP has said so far: FPDUs, each of them right, the last one perhaps cut. */
static void check_said(void)
{
	const struct port_stream *s = w.fake.stream;
	const u8 *ulpdu;
	size_t pos;
	ssize_t n;
	u32 len;

	mpa_rx_init(&w.heard, w.crc, w.snd_markers);
	for (pos = w.lsmm_len; s && pos < s->out_len; pos += (size_t)n) {
		struct rdmap_error err;
		struct ddp_hdr h;

		n = mpa_rx_feed(&w.heard, s->out + pos, s->out_len - pos, &ulpdu, &len);
		assert(n > 0 && (!ulpdu || !ddp_parse(ulpdu, len, &h, &err)));
	}
	mpa_rx_destroy(&w.heard);
}

static void on_cm_disconnect(struct irdma_qp *qp)
{
	check_said();
	rnic_qp_release_stream(qp);
}

static const struct rnic_cm_ops cm_ops = { .disconnect = on_cm_disconnect };

static void on_async(void *ctx, enum ibv_event_type t)
{
	assert(ctx == &w && t <= IBV_EVENT_WQ_FATAL);
}

static void on_comp(void *ctx)
{
	assert(ctx == &w);
}

static struct rnic_mw *to_mw(const struct ibv_mw *mw)
{
	return (void *)mw;
}

static struct rnic_mr *to_mr(const struct ibv_mr *mr)
{
	return (void *)mr;
}

static const struct rnic_bind_ops bind_ops = { .mw = to_mw, .mr = to_mr };

/* ---- completions ---- */

static void check_wc(const struct ibv_wc *wc)
{
	struct queue *q = &w.queue[wc->wr_id & 1];
	u64 n = wc->wr_id >> 1;

	assert(n <= q->posted && n > q->done);
	assert(!q->all || n == q->done + 1);
	assert(wc->qp_num == w.qp->qp_num);
	assert(wc->status == IBV_WC_SUCCESS || wc->status <= IBV_WC_TM_RNDV_INCOMPLETE);
	if ((wc->wr_id & 1) && wc->status == IBV_WC_SUCCESS)
		assert(wc->byte_len <= AREA);
	q->done = n;
}

static void poll_cq(struct rnic_cq *cq)
{
	struct ibv_wc wc[4];
	int n, i;

	while ((n = rnic_cq_poll(cq, 4, wc)) > 0)
		for (i = 0; i < n; i++)
			check_wc(&wc[i]);
	assert(n == 0);
}

/* ---- memory ---- */

static const int rights[REGIONS] = {
	[WRITABLE] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	[READ_ONLY] = IBV_ACCESS_REMOTE_READ,
	[LOCAL_ONLY] = IBV_ACCESS_LOCAL_WRITE,
	[OTHER_PD] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

static void regions_up(void)
{
	struct rnic_mr_attr a = { .length = AREA, .iova = BASE };
	struct rnic_mr *dead;
	int i;

	for (i = 0; i < REGIONS; i++) {
		w.area[i] = malloc(AREA);
		memset(w.area[i], 0x40 + i, AREA);
		a.addr = w.area[i];
		a.access = rights[i];
		assert(!rnic_mr_create(i == OTHER_PD ? w.other_pd : w.pd, &a, &w.mr[i]));
	}
	assert(!rnic_mr_create(w.pd, &a, &dead));
	w.dead_stag = rnic_mr_stag(dead);
	assert(!rnic_mr_destroy(dead));
	assert(!rnic_mw_create(w.pd, IBV_MW_TYPE_2, &w.mw));
	w.window_key = rnic_mw_rkey(w.mw);
}

/* What no peer could write to, and the program did not receive into, is as it was. */
static void check_untouched(enum which r)
{
	static u8 want[AREA];

	memset(want, 0x40 + (int)r, AREA);
	assert(!memcmp(w.area[r], want, AREA));
}

static u32 stag_of(enum which s)
{
	if (s < REGIONS)
		return w.mr[s] ? rnic_mr_stag(w.mr[s]) : w.dead_stag;
	return s == WINDOW ? w.window_key : s == DEAD ? w.dead_stag : w.dead_stag ^ 0x5A5A5A00u;
}

/* ---- the program ---- */

/* Receives go into the region for them, at most @max pieces, some of nothing. */
static int sges(struct fuzz *f, enum which r, struct ibv_sge *sge, u32 max)
{
	u32 n = fuzz_below(f, max + 1), i;

	for (i = 0; i < n; i++) {
		sge[i].lkey = stag_of(r);
		sge[i].length = fuzz_u8(f) & 1 ? fuzz_u16(f) % (AREA / max) : fuzz_u8(f);
		sge[i].addr = BASE + fuzz_below(f, AREA / 2);
	}
	if (n && fuzz_u8(f) == 0xEE) /* a mistake */
		sge[0].addr += fuzz_near(f);
	return (int)n;
}

static void post_recv(struct fuzz *f)
{
	struct ibv_recv_wr wr = { .wr_id = (w.queue[1].posted + 1) * 2 + 1 }, *bad;
	struct ibv_sge sge[3];

	wr.sg_list = sge;
	wr.num_sge = sges(f, LOCAL_ONLY, sge, 3);
	if (!(w.srq ? rnic_srq_post(w.srq, &wr, &bad) : rnic_post_recv(w.qp, &wr, &bad)))
		w.queue[1].posted++;
}

static void fill_bind(struct fuzz *f, struct ibv_send_wr *wr)
{
	wr->bind_mw.mw = (void *)w.mw;
	wr->bind_mw.rkey = w.window_key ^ (1u + fuzz_u8(f) % 4);
	wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = (void *)w.mr[WRITABLE], .addr = BASE + fuzz_below(f, 64), .length = fuzz_u16(f) % AREA,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
}

static void post_send(struct fuzz *f)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_SEND_WITH_IMM,
	};
	struct ibv_send_wr wr = { .wr_id = (w.queue[0].posted + 1) * 2, .opcode = ops[fuzz_below(f, ARRAY_SIZE(ops))] }, *bad;
	struct ibv_sge sge[3];

	wr.send_flags = fuzz_u8(f) & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE);
	wr.sg_list = sge;
	wr.num_sge = sges(f, LOCAL_ONLY, sge, 3);
	if (wr.send_flags & IBV_SEND_INLINE) /* which is in this process's addresses */
		wr.num_sge = 0;
	wr.wr.rdma.remote_addr = fuzz_u16(f);
	wr.wr.rdma.rkey = 7;
	if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = fuzz_u16(f) * 8ull;
		wr.wr.atomic.rkey = 9;
		wr.num_sge = min(wr.num_sge, 1);
		sge[0].length = 8;
	}
	if (wr.opcode == IBV_WR_LOCAL_INV || wr.opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = stag_of(fuzz_below(f, WHICH));
	if (wr.opcode == IBV_WR_BIND_MW && w.mr[WRITABLE])
		fill_bind(f, &wr);
	if (rnic_post_send(w.qp, &wr, &bad))
		return;
	w.queue[0].posted++;
	if (wr.opcode == IBV_WR_BIND_MW)
		w.window_key = wr.bind_mw.rkey;
}

static void deregister(struct fuzz *f)
{
	u32 r = fuzz_below(f, REGIONS);

	if (w.mr[r] && !rnic_mr_destroy(w.mr[r]))
		w.mr[r] = NULL;
}

/* The work requests that wait in it stay. */
static void modify_srq(u8 v)
{
	struct ibv_srq_attr attr = { .max_wr = v & 32, .srq_limit = v & 15 };

	if (w.srq)
		rnic_srq_modify(w.srq, &attr, v & 16 ? IBV_SRQ_MAX_WR : IBV_SRQ_LIMIT);
}

static void modify(struct fuzz *f)
{
	u8 v = fuzz_u8(f);

	if (v < 64)
		rnic_qp_modify(w.qp, v & 1 ? RNIC_QP_ERROR : RNIC_QP_CLOSING);
	else if (v < 128)
		rnic_qp_set_access(w.qp, v & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
	else if (v < 192)
		rnic_cq_arm(v & 1 ? w.rcq : w.scq, v & 2);
	else
		modify_srq(v);
}

/* ---- the peer ---- */

static void say(const void *bytes, u32 len)
{
	len = min(len, SAY_MAX - w.say_len);
	memcpy(w.say + w.say_len, bytes, len);
	w.say_len += len;
}

static void say_ulpdu(const u8 *ulpdu, u32 len)
{
	static u8 fpdu[2 * PAYLOAD_MAX];
	int n = mpa_fpdu_build(&w.tx, ulpdu, len, fpdu, sizeof(fpdu));

	assert(n > 0);
	say(fpdu, (u32)n);
}

static u32 put_body(struct fuzz *f, u8 opcode, u8 *out)
{
	u32 stag = stag_of(fuzz_below(f, WHICH));

	if (opcode == RDMAP_READ_REQ) {
		struct rdmap_read_req r = { .sink_stag = fuzz_u8(f), .sink_to = fuzz_u16(f), .len = fuzz_u16(f) % 3000, .src_stag = stag, .src_to = BASE + fuzz_near(f) };

		return rdmap_put_read_req(out, &r);
	}
	if (opcode == RDMAP_ATOMIC_REQ) {
		struct rdmap_atomic_req r = { .op = fuzz_u8(f) % 4, .id = fuzz_u8(f), .stag = stag, .to = BASE + fuzz_u8(f) * 8ull, .data = fuzz_u64(f),
					      .data_mask = ~0ull, .compare = 0x4040404040404040ull, .compare_mask = ~0ull };

		return rdmap_put_atomic_req(out, &r);
	}
	if (opcode == RDMAP_ATOMIC_RESP)
		return rdmap_put_atomic_resp(out, fuzz_u8(f), fuzz_u64(f));
	return rdmap_put_imm(out, fuzz_u64(f));
}

static void say_control(struct fuzz *f, u8 opcode)
{
	u8 ulpdu[RDMAP_HDR_MAX];
	u32 n = ddp_put_untagged(ulpdu, opcode, true, 0, ++w.msn[rdmap_ops[opcode].qn], 0);

	say_ulpdu(ulpdu, n + put_body(f, opcode, ulpdu + n));
}

static void say_terminate(struct fuzz *f)
{
	struct rdmap_error err = { fuzz_u8(f) & 15, fuzz_u8(f) & 15, fuzz_u8(f) };
	u8 ulpdu[RDMAP_TERM_MAX], quoted[64], what = fuzz_u8(f);
	u32 n;

	if (what & 1) /* what the QP may have said */
		n = ddp_put_tagged(quoted, RDMAP_WRITE, true, 7, fuzz_u16(f));
	else if (what & 2)
		n = ddp_put_untagged(quoted, what & 4 ? RDMAP_READ_REQ : RDMAP_SEND, true, 0, fuzz_u8(f), 0) + (what & 4 ? RDMAP_READ_REQ_SIZE : 0);
	else
		n = (u32)fuzz_bytes(f, quoted, what % sizeof(quoted));
	say_ulpdu(ulpdu, rdmap_build_terminate(&err, 1, n ? quoted : NULL, n, ulpdu));
}

/* Sends, Writes and Read Responses, in one segment or several. */
static void say_data(struct fuzz *f, u8 opcode)
{
	static u8 ulpdu[DDP_UNTAGGED_HDR + PAYLOAD_MAX];
	u8 bits = fuzz_u8(f);
	u32 len = bits & 1 ? fuzz_u16(f) % PAYLOAD_MAX : fuzz_u8(f), stag = stag_of(fuzz_below(f, WHICH)), n;
	static u32 mo;

	if (!(bits & 4))
		mo = 0;
	if (opcode == RDMAP_WRITE || opcode == RDMAP_READ_RESP)
		n = ddp_put_tagged(ulpdu, opcode, !(bits & 2), stag, BASE + fuzz_near(f));
	else
		n = ddp_put_untagged(ulpdu, opcode, !(bits & 2), stag, w.msn[0] + 1, mo + (bits & 8 ? fuzz_near(f) : 0));
	if (!rdmap_ops[opcode].tagged)
		w.msn[0] += !(bits & 2);
	mo = bits & 2 ? mo + len : 0;
	memset(ulpdu + n, 0xEE, len);
	say_ulpdu(ulpdu, n + len);
}

/* The request that the QP said last, if it was one of these and is without markers: what stands behind its DDP header, or NULL. */
static const u8 *last_request(u8 opcode, u32 body)
{
	const struct port_stream *s = w.fake.stream;
	u32 len = MPA_LEN_SIZE + DDP_UNTAGGED_HDR + body;
	const u8 *p;

	if (!s || s->out_len < len)
		return NULL;
	for (p = s->out + s->out_len - len; p >= s->out; p--)
		if (get_be16(p) == DDP_UNTAGGED_HDR + body && (p[3] & RDMAP_OPCODE_MASK) == opcode)
			return p + MPA_LEN_SIZE + DDP_UNTAGGED_HDR;
	return NULL;
}

/* The answer to it, or something like that. */
static void say_response(struct fuzz *f)
{
	static u8 ulpdu[DDP_UNTAGGED_HDR + PAYLOAD_MAX];
	const u8 *read = last_request(RDMAP_READ_REQ, RDMAP_READ_REQ_SIZE), *atomic = last_request(RDMAP_ATOMIC_REQ, RDMAP_ATOMIC_REQ_SIZE);
	u8 bits = fuzz_u8(f);
	struct rdmap_atomic_req a;
	struct rdmap_read_req r;
	u32 n, len;

	if (atomic && bits & 4) {
		rdmap_get_atomic_req(atomic, &a);
		n = ddp_put_untagged(ulpdu, RDMAP_ATOMIC_RESP, true, 0, ++w.msn[DDP_QN_ATOMIC_RESP], 0);
		say_ulpdu(ulpdu, n + rdmap_put_atomic_resp(ulpdu + n, a.id, fuzz_u64(f)));
	} else if (read) {
		rdmap_get_read_req(read, &r);
		len = min(r.len + (bits & 2 ? fuzz_near(f) % 8 : 0), PAYLOAD_MAX);
		n = ddp_put_tagged(ulpdu, RDMAP_READ_RESP, !(bits & 1), r.sink_stag, r.sink_to);
		memset(ulpdu + n, 0xDD, len);
		say_ulpdu(ulpdu, n + len);
	}
}

static void say_something(struct fuzz *f)
{
	u8 opcode = fuzz_u8(f), bytes[UINT8_MAX];

	switch (opcode) {
	case RDMAP_WRITE: case RDMAP_READ_RESP: case RDMAP_SEND: case RDMAP_SEND_INV: case RDMAP_SEND_SE: case RDMAP_SEND_SE_INV:
		say_data(f, opcode);
		break;
	case RDMAP_READ_REQ: case RDMAP_ATOMIC_REQ: case RDMAP_ATOMIC_RESP: case RDMAP_IMM: case RDMAP_IMM_SE:
		say_control(f, opcode);
		break;
	case RDMAP_TERMINATE:
		say_terminate(f);
		break;
	case 12: /* any ULPDU */
		say_ulpdu(bytes, (u32)fuzz_bytes(f, bytes, fuzz_u8(f)));
		break;
	case 13: /* any bytes */
		say(bytes, (u32)fuzz_bytes(f, bytes, fuzz_u8(f)));
		break;
	case 14: /* damage */
		if (w.say_len > w.say_off)
			w.say[w.say_off + fuzz_u16(f) % (w.say_len - w.say_off)] ^= fuzz_u8(f);
		break;
	default:
		say_response(f);
	}
}

static void deliver(u32 n)
{
	n = min(n, w.say_len - w.say_off);
	if (!w.fake.stream)
		return;
	if (n)
		fake_peer_sends(&w.fake, w.say + w.say_off, n);
	w.say_off += n;
	if (w.say_off == w.say_len)
		w.say_off = w.say_len = 0;
	fake_event(&w.fake, PORT_READABLE);
}

static void stream_event(struct fuzz *f)
{
	struct port_stream *s = w.fake.stream;
	u8 v = fuzz_u8(f);

	if (!s)
		return;
	switch (v % 5) {
	case 0:
		s->peer_fin = true;
		fake_event(&w.fake, PORT_READABLE | PORT_EOF);
		break;
	case 1:
		s->error = s->recv_error = v & 64 ? -ETIMEDOUT : -ECONNRESET;
		fake_event(&w.fake, PORT_RESET);
		break;
	case 2:
		s->room = v;
		break;
	case 3:
		s->room += v * 64u;
		fake_event(&w.fake, PORT_WRITABLE);
		break;
	case 4:
		if (v & 128)
			s->send_error = -EPIPE;
		else if (s->peer_fin && s->shut)
			fake_event(&w.fake, PORT_CLOSED);
		break;
	}
}

static void pass_time(u64 ms)
{
	loop_set_now(&w.fake.loop, loop_now(&w.fake.loop) + ms * NSEC_PER_MSEC);
	loop_run(&w.fake.loop);
}

static void step(struct fuzz *f)
{
	switch (fuzz_below(f, 14)) {
	case 0: post_recv(f); break;
	case 1: post_send(f); break;
	case 2:
	case 3:
	case 4: say_something(f); break;
	case 5:
	case 6: deliver(SAY_MAX); break;
	case 7: deliver(fuzz_u8(f)); break;
	case 8: poll_cq(w.scq); break;
	case 9: poll_cq(w.rcq); break;
	case 10: deregister(f); break;
	case 11: modify(f); break;
	case 12: stream_event(f); break;
	case 13: pass_time(1u << fuzz_below(f, 12)); break;
	}
}

/* ---- life ---- */

static void queues_up(u8 bits)
{
	struct rnic_cq_attr cq = { .cqe = 2 * STEPS, .comp = on_comp, .async = on_async, .ctx = &w };
	struct rnic_srq_attr srq = { .max_wr = WRS, .max_sge = 3, .async = on_async, .ctx = &w };
	struct rnic_qp_attr a = { .sq_sig_all = bits & 1, .async = on_async, .ctx = &w,
				  .cap = { .max_send_wr = WRS, .max_recv_wr = WRS, .max_send_sge = 3, .max_recv_sge = 3, .max_inline_data = 64 } };

	assert(!rnic_cq_create(w.fake.dev, &cq, &w.scq) && !rnic_cq_create(w.fake.dev, &cq, &w.rcq));
	if (bits & 2)
		assert(!rnic_srq_create(w.pd, &srq, &w.srq));
	a.pd = w.pd;
	a.send_cq = w.scq;
	a.recv_cq = w.rcq;
	a.srq = w.srq;
	assert(!rnic_qp_create_verbs(w.fake.dev, &a, &w.qp));
	w.queue[0].all = bits & 1;
	w.queue[1].all = true;
}

static void connect_qp(struct fuzz *f)
{
	u8 a = fuzz_u8(f), b = fuzz_u8(f);
	struct rnic_iwarp_info iw = { .ird = b & 7, .ord = b >> 3 & 7, .crc = a & 1, .snd_markers = a & 2, .rcv_markers = a & 4, .initiator = a & 8,
				      .rtr = a >> 4 & RDMAP_RTR_ALL, .rtr_timeout_ms = 1000 };
	struct tcp_info_ho tcp = { .mss = a & 128 ? 65483 : 1460 };
	static const u8 reply[] = "an MPA reply";
	struct irdma_sc_ah ah = { 0 };

	if (b & 64) {
		iw.lsmm = reply;
		w.lsmm_len = iw.lsmm_len = sizeof(reply);
	}
	if (b & 128)
		w.fake.room = 20;
	w.crc = iw.crc;
	w.snd_markers = iw.snd_markers;
	mpa_stream_init(&w.tx, iw.crc, iw.rcv_markers);
	assert(!rnic_qp_offload(w.qp, &ah, &tcp, &iw));
	if (iw.initiator && iw.rtr)
		rnic_qp_send_rtr(w.qp);
}

static void open_all(struct fuzz *f)
{
	memset(&w, 0, sizeof(w));
	rand_set_seed(1);
	rnic_bind_ops = &bind_ops;
	fake_open(&w.fake, NULL);
	w.fake.dev->cm_ops = &cm_ops;
	assert(!rnic_pd_create(w.fake.dev, &w.pd) && !rnic_pd_create(w.fake.dev, &w.other_pd));
	regions_up();
	queues_up(fuzz_u8(f));
	connect_qp(f);
}

static void end_qp(void)
{
	check_said();
	rnic_qp_modify(w.qp, RNIC_QP_ERROR);
	pass_time(10000);
	poll_cq(w.scq);
	poll_cq(w.rcq);
	assert(!w.queue[0].all || w.queue[0].done == w.queue[0].posted);
	assert(w.srq || w.queue[1].done == w.queue[1].posted);
	rnic_qp_hold(w.qp);
	rnic_qp_destroy(w.qp);
	rnic_qp_release_stream(w.qp);
	rnic_qp_put(w.qp);
}

static void close_all(void)
{
	int i;

	end_qp();
	check_untouched(READ_ONLY);
	check_untouched(OTHER_PD);
	if (w.srq)
		assert(!rnic_srq_destroy(w.srq));
	assert(!rnic_cq_destroy(w.scq) && !rnic_cq_destroy(w.rcq) && !rnic_mw_destroy(w.mw));
	for (i = 0; i < REGIONS; i++) {
		if (w.mr[i])
			assert(!rnic_mr_destroy(w.mr[i]));
		free(w.area[i]);
	}
	assert(!rnic_pd_destroy(w.pd) && !rnic_pd_destroy(w.other_pd));
	fake_close_all(&w.fake);
	rand_unset_seed();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { data, size };
	int n;

	open_all(&f);
	for (n = 0; n < STEPS && fuzz_more(&f); n++)
		step(&f);
	close_all();
	return 0;
}
