// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: the programs of a simulation that move data.
 *
 * Each side posts its plan (sim_plan.c) as fast as its queue takes it: all receives before the connection is there; the hello when it is; the rest when the peer's hello has
 * come. In the client-server model the passive side does not talk before it has been talked to (RFC 5044 7.1.3).
 *
 * Checked: each completion has its turn, and no work request completes twice; success, or a flush once the connection has ended, is all there is, as nobody does
 * anything wrong; what came is what was sent; in the end all has completed, and nothing after the QP was destroyed; the NICs of both ends counted the same messages, if
 * the connection ended in order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tool/sim_data.h"

#define RECV_ID (1ull << 32)    /* in the wr_id of receives */
#define MAGIC 0x68656C6C6Full
#define BATCH 8
#define CHAIN 4u                /* work requests in one post */
#define PAUSE_MIN_NS (20 * NSEC_PER_USEC)
#define PAUSE_MAX_NS (20 * NSEC_PER_MSEC)
#define MEMORY_IOVA(serial, side) (((serial) * 2 + (side) + 1) << 26)
#define FAR_OFF (1ull << 60)
#define PATTERN_IOVA (1ull << 50)
#define COUNTER_IOVA (1ull << 51)
#define ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

/* ---- what the NIC asks of windows' and regions' owner ---- */

static struct rnic_mw *window_of(const struct ibv_mw *ib)
{
	return container_of((struct ibv_mw *)ib, struct sim_window, ib)->mw;
}

static struct rnic_mr *region_of(const struct ibv_mr *ib)
{
	return container_of((struct ibv_mr *)ib, struct sim_region, ib)->mr;
}

static const struct rnic_bind_ops bind_ops = { .mw = window_of, .mr = region_of };

/* ---- hosts ---- */

int sim_pattern_make(struct sim *sim)
{
	struct rand_gen g;
	u32 i;
	u64 word;

	sim->pattern_len = SIM_PATTERN_STARTS + max(sim->p->largest, 4096u);
	sim->pattern = malloc(sim->pattern_len);
	if (!sim->pattern)
		return -ENOMEM;
	rand_gen_seed(&g, sim->p->seed);
	for (i = 0; i < sim->pattern_len; i += (u32)sizeof(word)) {
		word = rand_gen_u64(&g);
		memcpy(sim->pattern + i, &word, min((size_t)(sim->pattern_len - i), sizeof(word)));
	}
	rnic_bind_ops = &bind_ops;
	return 0;
}

static void find_device(struct irdma_device *iwdev, void *arg)
{
	*(struct irdma_device **)arg = iwdev;
}

static int host_regions(struct sim_host *h)
{
	const struct rnic_mr_attr pattern = {
		.addr = h->sim->pattern, .length = h->sim->pattern_len, .iova = PATTERN_IOVA, .access = IBV_ACCESS_REMOTE_READ,
	};
	const struct rnic_mr_attr counter = {
		.addr = &h->counter, .length = sizeof(h->counter), .iova = COUNTER_IOVA, .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int err = rnic_mr_create(h->pd, &pattern, &h->pattern_mr);

	return err ? err : rnic_mr_create(h->pd, &counter, &h->counter_mr);
}

int sim_host_data_open(struct sim_host *h)
{
	struct irdma_device *iwdev = NULL;
	int err;

	iwcm_for_each_device(h->ctx, find_device, &iwdev);
	h->iwdev = iwdev ? iwcm_device_get(h->ctx, iwdev) : NULL;
	if (!h->iwdev)
		return -ENODEV;
	err = rnic_pd_create(h->iwdev, &h->pd);
	return err ? err : host_regions(h);
}

void sim_host_data_close(struct sim_host *h)
{
	if (h->pattern_mr)
		rnic_mr_destroy(h->pattern_mr);
	if (h->counter_mr)
		rnic_mr_destroy(h->counter_mr);
	if (h->pd && rnic_pd_destroy(h->pd))
		sim_violation(h->sim, "host %u: its protection domain is in use in the end", h->index);
	if (h->iwdev)
		iwcm_device_put(h->ctx, h->iwdev);
}

struct sim_host *sim_data_peer(const struct sim_data *d)
{
	const struct sim_rec *rec = sim_rec(d->side->sim, d->side->serial);

	return &d->side->sim->hosts[d->me ? rec->from : rec->to];
}

void sim_data_check_hosts(struct sim *sim)
{
	for (u32 i = 0; i < sim->p->nodes; i++) {
		const struct sim_host *h = &sim->hosts[i];

		if (h->counter < h->added_done || h->counter > h->added_posted)
			sim_violation(sim, "host %u: its counter is %llu, with %llu added for certain and %llu at most", i, (unsigned long long)h->counter,
				      (unsigned long long)h->added_done, (unsigned long long)h->added_posted);
	}
}

/* ---- posting receives ---- */

static u32 make_sges(struct sim_data *d, u32 at, u32 len, u32 n, struct ibv_sge *out)
{
	u32 piece[SIM_SGES];
	u64 addr = d->iova + at;

	sim_pieces(len, n, at, piece);
	for (u32 i = 0; i < n; i++) {
		out[i] = (struct ibv_sge){ .addr = addr, .length = piece[i], .lkey = rnic_mr_stag(d->region.mr) };
		addr += piece[i];
	}
	return n;
}

static void post_recv(struct sim_data *d, u32 at, u32 len, u32 n)
{
	struct ibv_sge sge[SIM_SGES];
	struct ibv_recv_wr *bad, wr = { .wr_id = RECV_ID | d->recvs_posted, .sg_list = sge, .num_sge = (int)make_sges(d, at, len, n, sge) };
	int err = rnic_post_recv(d->qp, &wr, &bad);

	if (err)
		sim_data_violation(d, "posting receive %u gives %d", d->recvs_posted, err);
	else
		d->recvs_posted++;
}

static void post_recvs(struct sim_data *d)
{
	for (u32 i = 0; i < d->peers->n; i++) {
		const struct sim_msg *m = &d->peers->msg[i];

		if (sim_takes_recv(m))
			post_recv(d, m->recv_at, m->recv_len, m->recv_sges);
	}
	for (u32 i = 0; i < SIM_EXTRA_RECVS; i++)
		post_recv(d, d->own->extra_at, d->own->extra_len, 1);
}

/* ---- posting sends ---- */

static void write_hello(struct sim_data *d)
{
	const struct sim_plan *p = d->own;
	struct sim_host *h = d->side->host;
	struct rnic_qp_info info;
	struct sim_hello hello = {
		.magic = MAGIC + d->side->serial,
		.write_base = p->window && p->zero_based ? 0 - (u64)p->window_at : d->iova,
		.word_addr = d->iova + p->word_at,
		.counter_addr = COUNTER_IOVA,
		.pattern_addr = PATTERN_IOVA,
		.write_stag = p->window ? rnic_mw_rkey(d->window.mw) : rnic_mr_stag(d->region.mr),
		.word_stag = rnic_mr_stag(d->region.mr),
		.counter_stag = rnic_mr_stag(h->counter_mr),
		.pattern_stag = rnic_mr_stag(h->pattern_mr),
	};

	rnic_qp_query(d->qp, &info);
	hello.ird = info.iw.ird;
	memcpy(d->memory, &hello, sizeof(hello));
}

/* Payload is in the pattern, but for the hello, and what a Read has brought or will have. Without the Read it is in the pattern all the same. */
static u32 fill_source(struct sim_data *d, const struct sim_msg *m, struct ibv_sge *sge)
{
	u32 piece[SIM_SGES];
	u64 addr = m->inlined ? (uintptr_t)(d->side->sim->pattern + m->src) : PATTERN_IOVA + m->src;

	if (m->hello && !m->inlined)
		return make_sges(d, 0, m->len, m->sges, sge);
	if (m->relays && d->may_read)
		return make_sges(d, m[-1].at, m->len, m->sges, sge);
	if (m->hello)
		addr = (uintptr_t)d->memory;
	sim_pieces(m->len, m->sges, m->src, piece);
	for (u32 i = 0; i < m->sges; i++) {
		sge[i] = (struct ibv_sge){ .addr = addr, .length = piece[i], .lkey = rnic_mr_stag(d->side->host->pattern_mr) };
		addr += piece[i];
	}
	return m->sges;
}

static void fill_remote(struct sim_data *d, const struct sim_msg *m, struct ibv_send_wr *wr)
{
	const struct sim_hello *h = &d->hello;

	switch (m->verb) {
	case SIM_SEND_INV:
		wr->invalidate_rkey = h->write_stag;
		break;
	case SIM_WRITE_IMM:
		wr->imm_data = htobe32(m->imm);
		/* fall through */
	case SIM_WRITE:
		wr->wr.rdma.remote_addr = h->write_base + m->at;
		wr->wr.rdma.rkey = h->write_stag;
		break;
	case SIM_READ:
		wr->wr.rdma.remote_addr = h->pattern_addr + m->src;
		wr->wr.rdma.rkey = h->pattern_stag;
		break;
	case SIM_FETCH_ADD:
	case SIM_CMP_SWAP:
		wr->wr.atomic.remote_addr = m->shared ? h->counter_addr : h->word_addr;
		wr->wr.atomic.rkey = m->shared ? h->counter_stag : h->word_stag;
		wr->wr.atomic.compare_add = m->verb == SIM_FETCH_ADD ? m->operand : m->compare;
		wr->wr.atomic.swap = m->operand;
		break;
	default:
		break;
	}
}

static void make_wrong(const struct sim_msg *m, struct ibv_send_wr *wr)
{
	bool atomic = sim_is_atomic(m);

	if (m->wrong == SIM_WRONG_STAG)
		*(atomic ? &wr->wr.atomic.rkey : &wr->wr.rdma.rkey) ^= 0x5A5A5A00u;
	else if (m->wrong == SIM_WRONG_BOUNDS)
		wr->wr.rdma.remote_addr += FAR_OFF;
	else if (m->wrong == SIM_WRONG_ALIGNMENT)
		wr->wr.atomic.remote_addr += 1 + m->operand % 7;
}

static void fill_bind(struct sim_data *d, struct ibv_send_wr *wr)
{
	wr->bind_mw.mw = &d->window.ib;
	wr->bind_mw.rkey = rnic_mw_rkey(d->window.mw);
	wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = &d->region.ib,
		.addr = d->iova + d->own->window_at,
		.length = d->own->window_len,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | (d->own->zero_based ? IBV_ACCESS_ZERO_BASED : 0u),
	};
}

static void fill_wr(struct sim_data *d, u32 i, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[SIM_SEND] = IBV_WR_SEND, [SIM_SEND_INV] = IBV_WR_SEND_WITH_INV, [SIM_WRITE] = IBV_WR_RDMA_WRITE,
		[SIM_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM, [SIM_READ] = IBV_WR_RDMA_READ, [SIM_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[SIM_CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP, [SIM_BIND] = IBV_WR_BIND_MW,
	};
	const struct sim_msg *m = &d->own->msg[i];

	static_assert(ARRAY_SIZE(opcodes) == SIM_VERBS, "an opcode per verb");
	*wr = (struct ibv_send_wr){ .wr_id = i, .opcode = opcodes[m->verb], .sg_list = sge };
	wr->send_flags = (m->fence ? IBV_SEND_FENCE : 0) | (m->inlined ? IBV_SEND_INLINE : 0);
	if (m->solicited && m->verb != SIM_BIND)
		wr->send_flags |= IBV_SEND_SOLICITED;
	if (d->posted[i] == SIM_SIGNALED)
		wr->send_flags |= IBV_SEND_SIGNALED;
	if (m->verb == SIM_BIND)
		fill_bind(d, wr);
	else if (sim_wants_answer(m))
		wr->num_sge = (int)make_sges(d, m->at, m->len, m->sges, sge);
	else
		wr->num_sge = (int)fill_source(d, m, sge);
	fill_remote(d, m, wr);
	make_wrong(m, wr);
}

static u32 under_way(const struct sim_data *d)
{
	u32 n = 0;

	for (u32 i = d->done; i < d->next; i++)
		n += d->posted[i] != SIM_SKIPPED;
	return n;
}

/* A full queue of unsignaled work requests would stay full. */
static void mark_posted(struct sim_data *d, u32 i)
{
	const struct sim_msg *m = &d->own->msg[i];
	bool signaled = m->signaled || ++d->unsignaled >= d->own->depth;

	if (signaled)
		d->unsignaled = 0;
	d->posted[i] = signaled ? SIM_SIGNALED : SIM_UNSIGNALED;
	if (m->shared)
		sim_data_peer(d)->added_posted += m->operand;
}

/* Index of the next message that may go out now, or -1. */
static int next_to_post(struct sim_data *d)
{
	for (; d->next < d->own->n; d->next++) {
		const struct sim_msg *m = &d->own->msg[d->next];

		if (!d->greeted && !m->hello && m->verb != SIM_BIND)
			return -1;
		if (!sim_wants_answer(m) || d->may_read)
			return (int)d->next;
		d->posted[d->next] = SIM_SKIPPED;
	}
	return -1;
}

/* True if there may be more to post. */
static bool post_chain(struct sim_data *d)
{
	u32 room = min(d->own->depth - under_way(d), CHAIN), n;
	struct ibv_send_wr wr[CHAIN], *bad = NULL;
	struct ibv_sge sge[CHAIN][SIM_SGES];
	int i, err;

	for (n = 0; n < room && (i = next_to_post(d)) >= 0; n++) {
		mark_posted(d, (u32)i);
		fill_wr(d, (u32)i, &wr[n], sge[n]);
		if (n)
			wr[n - 1].next = &wr[n];
		d->next = (u32)i + 1;
	}
	if (!n)
		return false;
	err = rnic_post_send(d->qp, wr, &bad);
	if (err)
		sim_data_violation(d, "posting message %u gives %d", bad ? (u32)bad->wr_id : 0, err);
	return !err;
}

static void post_sends(struct sim_data *d)
{
	while (d->may_talk && !d->over && post_chain(d))
		;
}

/* ---- completions ---- */

static void on_comp(void *ctx)
{
	struct sim_data *d = ctx;

	if (!d->own->polls && !d->over)
		mod_timer(&d->poll, loop_now(&d->side->sim->loop));
}

static void on_async(void *ctx, enum ibv_event_type t)
{
	struct sim_data *d = ctx;

	sim_digest(d->side->sim, t);
	if ((t == IBV_EVENT_QP_ACCESS_ERR && !d->deal.wrong) || t == IBV_EVENT_CQ_ERR)
		sim_data_violation(d, "asynchronous event %d", (int)t);
}

/* Success, then flushes; only what is wrong may say so. @m: what it is about, or NULL. */
static bool is_fair(const struct sim_msg *m, enum ibv_wc_status status, bool receives, bool failed)
{
	static const enum ibv_wc_status fair[] = {
		[SIM_WRONG_STAG] = IBV_WC_REM_ACCESS_ERR, [SIM_WRONG_BOUNDS] = IBV_WC_REM_ACCESS_ERR, [SIM_WRONG_LENGTH] = IBV_WC_REM_INV_REQ_ERR,
		[SIM_WRONG_ALIGNMENT] = IBV_WC_REM_OP_ERR,
	};

	if (status == IBV_WC_SUCCESS)
		return !failed && !(m && m->wrong && (receives || sim_wants_answer(m)));
	if (status == IBV_WC_WR_FLUSH_ERR)
		return true;
	if (!m || !m->wrong)
		return false;
	return status == (receives ? IBV_WC_LOC_LEN_ERR : fair[m->wrong]);
}

static bool check_status(struct sim_data *d, const struct sim_msg *m, const struct ibv_wc *wc, bool receives)
{
	bool *failed = receives ? &d->recv_failed : &d->send_failed;

	if (!is_fair(m, wc->status, receives, *failed))
		sim_data_violation(d, "%s %u completes with status %d%s", receives ? "receive" : "message", (u32)wc->wr_id, (int)wc->status,
				   *failed ? " after one that failed" : m && m->wrong ? ", but is wrong" : "");
	if (wc->status == IBV_WC_SUCCESS)
		return true;
	*failed = true;
	d->side->sim->r->flushed++;
	d->side->sim->r->blamed += wc->status != IBV_WC_WR_FLUSH_ERR;
	return false;
}

static void count_done(struct sim_data *d, u32 i)
{
	const struct sim_msg *m = &d->own->msg[i];
	struct tool_sim_moved *moved = &d->side->sim->r->moved[m->verb];

	if (d->posted[i] == SIM_SKIPPED)
		return;
	moved->messages++;
	moved->bytes += m->len;
	if (m->shared)
		sim_data_peer(d)->added_done += m->operand;
	sim_check_brought(d, i);
}

static void note_good(struct sim_data *d, u32 end)
{
	for (; d->good < end; d->good++)
		count_done(d, d->good);
}

/* Unsignaled ones in front of it are done with it, and well. */
static void on_sent(struct sim_data *d, const struct ibv_wc *wc)
{
	bool going_well = !d->send_failed, ok;
	u32 i = (u32)wc->wr_id;

	if (wc->wr_id >= d->next || i < d->done || d->posted[i] == SIM_SKIPPED) {
		sim_data_violation(d, "message %llu completes, and %u to %u are under way", (unsigned long long)wc->wr_id, d->done, d->next);
		return;
	}
	ok = check_status(d, &d->own->msg[i], wc, false);
	if (ok && d->posted[i] == SIM_UNSIGNALED)
		sim_data_violation(d, "message %u completes, but was not signaled", i);
	for (; d->done < i; d->done++)
		if (d->posted[d->done] == SIM_SIGNALED)
			sim_data_violation(d, "message %u was left out", d->done);
	d->done = i + 1;
	if (going_well)
		note_good(d, ok ? i + 1 : i);
}

static void on_hello(struct sim_data *d, const struct sim_msg *m)
{
	struct rnic_qp_info info;

	memcpy(&d->hello, d->memory + m->recv_at, sizeof(d->hello));
	if (d->hello.magic != MAGIC + d->side->serial) {
		sim_data_violation(d, "the hello is not one");
		return;
	}
	rnic_qp_query(d->qp, &info);
	d->may_read = info.iw.ord && info.iw.ord <= d->hello.ird;
	d->greeted = d->may_talk = true;
}

static void check_recv(struct sim_data *d, u32 i, const struct ibv_wc *wc)
{
	const struct sim_msg *m = &d->peers->msg[i];
	bool imm = m->verb == SIM_WRITE_IMM, inv = m->verb == SIM_SEND_INV;

	if (wc->opcode != (imm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) || wc->byte_len != m->len)
		sim_data_violation(d, "message %u of the peer: opcode %d, %u bytes, not %u", i, (int)wc->opcode, wc->byte_len, m->len);
	if ((wc->wc_flags & IBV_WC_WITH_IMM) ? !imm || wc->imm_data != htobe32(m->imm) : imm)
		sim_data_violation(d, "message %u of the peer: wrong immediate data", i);
	if ((wc->wc_flags & IBV_WC_WITH_INV) ? !inv || wc->invalidated_rkey != rnic_mw_rkey(d->window.mw) : inv)
		sim_data_violation(d, "message %u of the peer: wrong invalidation", i);
	if (inv && rnic_stag_invalidate(d->qp, rnic_mw_rkey(d->window.mw), true) == RNIC_MEM_OK)
		sim_data_violation(d, "message %u of the peer: the window was still bound", i);
	if (m->hello)
		on_hello(d, m);
}

/* Such a one is always posted; a Read may have been left out. */
static bool is_wrong_write(const struct sim_msg *m)
{
	return m->wrong && m->verb == SIM_WRITE;
}

/* Writes that were posted before this message have come, too. */
static void on_received(struct sim_data *d, const struct ibv_wc *wc)
{
	bool after_wrong = false;
	u32 i = d->seen;

	if ((u32)wc->wr_id != d->recvs_done || d->recvs_done >= d->recvs_posted) {
		sim_data_violation(d, "receive %u completes, not %u of %u", (u32)wc->wr_id, d->recvs_done, d->recvs_posted);
		return;
	}
	d->recvs_done++;
	while (i < d->peers->n && !sim_takes_recv(&d->peers->msg[i]))
		after_wrong |= is_wrong_write(&d->peers->msg[i++]);
	if (!check_status(d, i < d->peers->n ? &d->peers->msg[i] : NULL, wc, true))
		return;
	if (i == d->peers->n) {
		sim_data_violation(d, "more has come than was sent");
		return;
	}
	if (after_wrong)
		sim_data_violation(d, "message %u of the peer comes after one that was wrong", i);
	check_recv(d, i, wc);
	while (d->seen <= i)
		sim_check_arrived(d, d->seen++);
}

static void on_completion(struct sim_data *d, const struct ibv_wc *wc)
{
	struct sim *sim = d->side->sim;

	sim_digest(sim, loop_now(&sim->loop));
	sim_digest(sim, d->side->serial << 32 | (u64)d->me << 31 | wc->wr_id);
	sim_digest(sim, (u64)wc->status << 32 | wc->byte_len);
	if (wc->qp_num != d->qp->qp_num)
		sim_data_violation(d, "a completion of QP %u, not %u", wc->qp_num, d->qp->qp_num);
	if (wc->wr_id & RECV_ID)
		on_received(d, wc);
	else
		on_sent(d, wc);
}

static int take_from(struct sim_data *d, struct rnic_cq *cq)
{
	struct ibv_wc wc[BATCH];
	int n = rnic_cq_poll(cq, BATCH, wc);

	if (n < 0)
		sim_data_violation(d, "polling gives %d", n);
	for (int i = 0; i < n; i++)
		on_completion(d, &wc[i]);
	return max(n, 0);
}

int sim_data_take(struct sim_data *d)
{
	int n = take_from(d, d->send_cq);

	if (d->recv_cq != d->send_cq)
		n += take_from(d, d->recv_cq);
	return n;
}

void sim_data_look_whether_complete(struct sim_data *d)
{
	if (d->complete || !d->up || d->done < d->own->n || d->seen < d->peers->n || d->send_failed)
		return;
	d->complete = true;
	d->side->sim->r->data_complete++;
	if ((d->deal.orderly || d->deal.wrong) && !d->over)
		sim_side_done(d->side);
}

static bool work(struct sim_data *d)
{
	bool any = false;

	while (sim_data_take(d)) {
		any = true;
		if (d->up)
			post_sends(d);
	}
	sim_data_look_whether_complete(d);
	return any;
}

static void arm(struct sim_data *d)
{
	if (rnic_cq_arm(d->send_cq, false) || rnic_cq_arm(d->recv_cq, false))
		sim_data_violation(d, "arming fails");
}

/* A program that polls does so less often while nothing comes. */
static void poll_again(struct sim_data *d, bool any)
{
	d->pause_ns = any ? PAUSE_MIN_NS : min(d->pause_ns * 2, PAUSE_MAX_NS);
	mod_timer(&d->poll, loop_now(&d->side->sim->loop) + d->pause_ns);
}

static void on_poll(struct timer_list *t)
{
	struct sim_data *d = container_of(t, struct sim_data, poll);
	bool any = work(d);

	if (d->own->polls) {
		poll_again(d, any);
		return;
	}
	arm(d);
	work(d);
}

/* ---- life ---- */

static int open_memory(struct sim_data *d)
{
	struct sim_host *h = d->side->host;
	struct rnic_mr_attr a = { .length = d->own->size, .access = ACCESS_ALL };
	int err;

	d->memory = aligned_alloc(64, (d->own->size + 63u) & ~63u);
	if (!d->memory)
		return -ENOMEM;
	memset(d->memory, SIM_POISON, d->own->size);
	memset(d->memory + d->own->word_at, 0, sizeof(u64));
	a.addr = d->memory;
	a.iova = d->iova;
	err = rnic_mr_create(h->pd, &a, &d->region.mr);
	if (!err && d->own->window)
		err = rnic_mw_create(h->pd, IBV_MW_TYPE_2, &d->window.mw);
	return err;
}

static int open_cqs(struct sim_data *d)
{
	struct rnic_cq_attr a = { .cqe = (int)(d->own->depth + d->peers->recvs + SIM_EXTRA_RECVS), .comp = on_comp, .async = on_async, .ctx = d };
	int err = rnic_cq_create(d->side->host->iwdev, &a, &d->send_cq);

	if (err || d->own->one_cq) {
		d->recv_cq = d->send_cq;
		return err;
	}
	return rnic_cq_create(d->side->host->iwdev, &a, &d->recv_cq);
}

static int open_qp(struct sim_data *d)
{
	struct rnic_qp_attr a = {
		.pd = d->side->host->pd,
		.send_cq = d->send_cq,
		.recv_cq = d->recv_cq,
		.cap = {
			.max_send_wr = d->own->depth,
			.max_recv_wr = d->peers->recvs + SIM_EXTRA_RECVS,
			.max_send_sge = SIM_SGES,
			.max_recv_sge = SIM_SGES,
			.max_inline_data = SIM_INLINE,
		},
		.async = on_async,
		.ctx = d,
	};

	return rnic_qp_create_verbs(d->side->host->iwdev, &a, &d->qp);
}

static int open_all(struct sim_data *d)
{
	int err = open_memory(d);

	if (!err)
		err = open_cqs(d);
	if (!err)
		err = open_qp(d);
	if (!err)
		err = iwcm_set_qp(d->side->id, d->qp);
	return err;
}

struct sim_data *sim_data_open(struct sim_side *s)
{
	struct sim_data *d = calloc(1, sizeof(*d));
	int err;

	if (!d) {
		sim_violation(s->sim, "out of memory");
		return NULL;
	}
	d->side = s;
	d->me = !s->active;
	sim_deal_make(s->sim, s->serial, &d->deal);
	d->own = &d->deal.plan[d->me];
	d->peers = &d->deal.plan[!d->me];
	d->iova = MEMORY_IOVA(s->serial, d->me);
	timer_setup(&d->poll, &s->sim->loop, on_poll);
	err = open_all(d);
	if (err) {
		sim_violation(s->sim, "connection %llu: no queues: %d", (unsigned long long)s->serial, err);
		sim_data_close(d);
		return NULL;
	}
	post_recvs(d);
	return d;
}

void sim_data_up(struct sim_data *d, const struct iwcm_info *info)
{
	struct sim_side *s = d->side;

	s->sim->r->data_sides++;
	d->crc = info->crc;
	d->ends = sim_rec(s->sim, s->serial)->ends;
	d->up = true;
	d->may_talk |= s->active || (info->peer_to_peer && info->rtr);
	d->pause_ns = PAUSE_MIN_NS;
	write_hello(d);
	post_sends(d);
	mod_timer(&d->poll, loop_now(&s->sim->loop));
}
