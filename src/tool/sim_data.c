// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: the programs of a simulation that move data.
 *
 * Each side posts its plan (sim_plan.c) as fast as its queue takes it: all receives before the connection is there; the hello when it is;
 * the rest when the peer's hello has come. In the client-server model the passive side does not talk before it has been talked to
 * (RFC 5044 7.1.3).
 *
 * Checked: each completion has its turn, and no work request completes twice; success, or a flush once the connection has ended, is all
 * there is, unless a work request is wrong; what came is what was sent; in the end all has completed, and nothing after the QP was destroyed;
 * the NICs of both ends counted the same messages, if the connection ended in order.
 */
#include <stdlib.h>
#include <string.h>
#include "tool/sim_data.h"

#define BATCH 8
#define PAUSE_MIN_NS (20 * NSEC_PER_USEC)
#define PAUSE_MAX_NS (20 * NSEC_PER_MSEC)
#define MEMORY_IOVA(serial, side) (((serial) * 2 + (side) + 1) << 26)
#define ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

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
	if (d->hello.magic != SIM_HELLO_MAGIC + d->side->serial) {
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

	sim_watch_progress(sim);
	sim_digest(sim, loop_now(&sim->loop));
	sim_digest(sim, d->side->serial << 32 | (u64)d->me << 31 | wc->wr_id);
	sim_digest(sim, (u64)wc->status << 32 | wc->byte_len);
	if (wc->qp_num != d->qp->qp_num)
		sim_data_violation(d, "a completion of QP %u, not %u", wc->qp_num, d->qp->qp_num);
	if (wc->wr_id & SIM_RECV_ID)
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
			sim_post_sends(d);
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
	sim_post_recvs(d);
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
	sim_write_hello(d);
	sim_post_sends(d);
	mod_timer(&d->poll, loop_now(&s->sim->loop));
}
