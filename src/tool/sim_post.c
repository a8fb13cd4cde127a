// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: what the programs of a simulation post: the plan (sim_plan.c) as work requests. */
#include <string.h>
#include "tool/sim_data.h"

#define CHAIN 4u                /* work requests in one post */
#define FAR_OFF (1ull << 60)

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
	struct ibv_recv_wr *bad, wr = { .wr_id = SIM_RECV_ID | d->recvs_posted, .sg_list = sge, .num_sge = (int)make_sges(d, at, len, n, sge) };
	int err = rnic_post_recv(d->qp, &wr, &bad);

	if (err)
		sim_data_violation(d, "posting receive %u gives %d", d->recvs_posted, err);
	else
		d->recvs_posted++;
}

void sim_post_recvs(struct sim_data *d)
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

void sim_write_hello(struct sim_data *d)
{
	const struct sim_plan *p = d->own;
	struct sim_host *h = d->side->host;
	struct rnic_qp_info info;
	struct sim_hello hello = {
		.magic = SIM_HELLO_MAGIC + d->side->serial,
		.write_base = p->window && p->zero_based ? 0 - (u64)p->window_at : d->iova,
		.word_addr = d->iova + p->word_at,
		.counter_addr = SIM_COUNTER_IOVA,
		.pattern_addr = SIM_PATTERN_IOVA,
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
	u64 addr = m->inlined ? (uintptr_t)(d->side->sim->pattern + m->src) : SIM_PATTERN_IOVA + m->src;

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
		__attribute__((fallthrough));
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

void sim_post_sends(struct sim_data *d)
{
	while (d->may_talk && !d->over && post_chain(d))
		;
}
