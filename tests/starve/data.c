/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* starve: what a connection carries: every message there is, in both directions; and who posts is told how it went, each time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "world.h"

#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)
#define LARGE 100000u
#define WORD (MEM - 64)

/* ---- objects ---- */

/* The shim's struct ibv_mw and ibv_mr, for binding. */
struct ib_window {
	struct ibv_mw ib;
	struct rnic_mw *mw;
};
struct ib_region {
	struct ibv_mr ib;
	struct rnic_mr *mr;
};

static struct rnic_mw *window_of(const struct ibv_mw *ib)
{
	return container_of((struct ibv_mw *)ib, struct ib_window, ib)->mw;
}

static struct rnic_mr *region_of(const struct ibv_mr *ib)
{
	return container_of((struct ibv_mr *)ib, struct ib_region, ib)->mr;
}

static const struct rnic_bind_ops bind_ops = { .mw = window_of, .mr = region_of };

static int memory_open(struct data *d)
{
	struct rnic_mr_attr attr = { .addr = d->mem, .length = MEM, .iova = (uintptr_t)d->mem, .access = ALL };
	int err = rnic_pd_create(d->dev, &d->pd);

	rnic_bind_ops = &bind_ops;
	if (!err)
		err = rnic_mr_create(d->pd, &attr, &d->mr);
	if (!err)
		err = rnic_mw_create(d->pd, IBV_MW_TYPE_2, &d->mw);
	return err;
}

static int queues_open(struct data *d)
{
	struct rnic_cq_attr cq = { .cqe = 16 };
	struct rnic_srq_attr srq = { .max_wr = 16, .max_sge = 2 };
	struct rnic_qp_attr qp = {
		.pd = d->pd, .sq_sig_all = true,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 },
	};
	int err = rnic_cq_create(d->dev, &cq, &d->cq);

	if (!err)
		err = rnic_cq_resize(d->cq, 64);
	if (!err && d->srq_wanted)
		err = rnic_srq_create(d->pd, &srq, &d->srq);
	qp.send_cq = qp.recv_cq = d->cq;
	qp.srq = d->srq;
	return err ? err : rnic_qp_create_verbs(d->dev, &qp, &d->qp);
}

int data_open(struct side *s, bool srq)
{
	struct data *d = &s->data;
	int err;

	d->ctx = s->ctx;
	d->srq_wanted = srq;
	d->dev = iwcm_device_get(s->ctx, iwcm_id_device(s->id));
	if (!d->dev)
		return world_said("device", -ENODEV);
	err = memory_open(d);
	return world_said("verbs", err ? err : queues_open(d));
}

/* ---- completions ---- */

static void poll_all(struct data *d)
{
	struct ibv_wc wc;

	while (d->cq && rnic_cq_poll(d->cq, 1, &wc) > 0) {
		d->completed++;
		d->bad += wc.status != IBV_WC_SUCCESS;
	}
}

static bool is_over(const struct side *s)
{
	return world_ended(s) || SEEN(s, DISCONNECTED);
}

/* What a connection that is over did not take from a shared queue stays there (IBV_EVENT_QP_LAST_WQE_REACHED). */
static bool all_complete(void *arg)
{
	struct world *w = arg;
	int i, rest = 0;

	for (i = 0; i < SIDES; i++) {
		struct side *s = &w->s[i];

		poll_all(&s->data);
		rest += s->data.posted != s->data.completed && !(s->data.srq && is_over(s));
	}
	return !rest;
}

static int wait_complete(struct world *w)
{
	const struct side *c = &w->s[CLIENT], *s = &w->s[SERVER];
	int err = world_wait(w, all_complete, w, "completions of all that was posted");

	if (!err && (c->data.bad || s->data.bad || is_over(c) || is_over(s)))
		err = world_said("completion", -EIO);
	return err;
}

/* ---- work requests ---- */

static struct ibv_sge sge(struct data *d, u32 off, u32 len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)d->mem + off, .length = len, .lkey = rnic_mr_stag(d->mr) };
}

static int recv_post(struct data *d, u32 off, u32 len)
{
	struct ibv_sge s = sge(d, off, len);
	struct ibv_recv_wr *bad, wr = { .sg_list = &s, .num_sge = 1 };
	int err = d->srq ? rnic_srq_post(d->srq, &wr, &bad) : rnic_post_recv(d->qp, &wr, &bad);

	if (!err)
		d->posted++;
	return world_said("post receive", err);
}

static int post(struct data *d, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = rnic_post_send(d->qp, wr, &bad);

	if (!err)
		d->posted++;
	return world_said("post send", err);
}

static int rdma(struct data *d, struct data *peer, enum ibv_wr_opcode op, u32 off, u32 len, u32 roff)
{
	struct ibv_sge s = sge(d, off, len);
	struct ibv_send_wr wr = { .sg_list = &s, .num_sge = 1, .opcode = op };

	wr.wr.rdma.remote_addr = (uintptr_t)peer->mem + roff;
	wr.wr.rdma.rkey = rnic_mr_stag(peer->mr);
	return post(d, &wr);
}

static int atomic(struct data *d, struct data *peer, enum ibv_wr_opcode op, u64 compare_add, u64 swap, u32 off)
{
	struct ibv_sge s = sge(d, off, 8);
	struct ibv_send_wr wr = { .sg_list = &s, .num_sge = 1, .opcode = op };

	wr.wr.atomic.remote_addr = (uintptr_t)peer->mem + WORD;
	wr.wr.atomic.rkey = rnic_mr_stag(peer->mr);
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	return post(d, &wr);
}

static int bind_window(struct data *d, u32 *rkey)
{
	struct ib_window w = { .mw = d->mw };
	struct ib_region r = { .mr = d->mr };
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };

	*rkey = wr.bind_mw.rkey = rnic_mw_new_rkey(d->mw);
	wr.bind_mw.mw = &w.ib;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = &r.ib, .addr = (uintptr_t)d->mem, .length = 4096, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
	return post(d, &wr);
}

static int send_inv(struct data *d, u32 off, u32 len, u32 rkey)
{
	struct ibv_sge s = sge(d, off, len);
	struct ibv_send_wr wr = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV, .send_flags = IBV_SEND_SOLICITED };

	wr.invalidate_rkey = rkey;
	return post(d, &wr);
}

static int send_inline(struct data *d, u32 off, u32 len)
{
	struct ibv_sge s = sge(d, off, len);
	struct ibv_send_wr wr = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE };

	return post(d, &wr);
}

/* ---- what is moved ---- */

static u8 byte_at(u32 i, u8 seed)
{
	return (u8)(i * 7 + i / 251 + seed);
}

static void fill(struct data *d, u32 off, u32 len, u8 seed)
{
	for (u32 i = 0; i < len; i++)
		d->mem[off + i] = byte_at(i, seed);
}

static int expect(const struct data *d, u32 off, u32 len, u8 seed)
{
	for (u32 i = 0; i < len; i++) {
		if (d->mem[off + i] == byte_at(i, seed))
			continue;
		fprintf(stderr, "DATA: byte %u of %u is %u, not %u\n", i, len, d->mem[off + i], byte_at(i, seed));
		abort(); /* worse than any error */
	}
	return 0;
}

static int receives(struct data *c, struct data *s)
{
	int err = recv_post(s, 0, 4096);

	if (!err)
		err = recv_post(s, 4096, 4096);
	if (!err)
		err = recv_post(s, 8192, 16);
	return err ? err : recv_post(c, 0, 4096);
}

/* Send, Send with Invalidate of the server's window, Write, Write with Immediate, Read, both atomics; and a Send back. */
static int sends(struct data *c, struct data *s, u32 rkey)
{
	int err = rdma(c, s, IBV_WR_SEND, 16384, 4000, 0);

	if (!err)
		err = rdma(c, s, IBV_WR_RDMA_WRITE, 20480, LARGE, 20480);
	if (!err)
		err = send_inv(c, 16384, 100, rkey);
	if (!err)
		err = rdma(c, s, IBV_WR_RDMA_READ, 130000, LARGE, 130000);
	if (!err)
		err = atomic(c, s, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0, WORD);
	if (!err)
		err = atomic(c, s, IBV_WR_ATOMIC_CMP_AND_SWP, 12, 99, WORD + 8);
	if (!err)
		err = rdma(c, s, IBV_WR_RDMA_WRITE_WITH_IMM, 16384, 8, 12288);
	return err ? err : send_inline(s, 16384, 40);
}

static int check(struct data *c, struct data *s)
{
	u64 word, first, second;

	memcpy(&word, s->mem + WORD, 8);
	memcpy(&first, c->mem + WORD, 8);
	memcpy(&second, c->mem + WORD + 8, 8);
	if (word != 99 || first != 7 || second != 12) {
		fprintf(stderr, "DATA: words are %llu, %llu, %llu\n", (unsigned long long)word, (unsigned long long)first, (unsigned long long)second);
		abort();
	}
	return expect(s, 0, 4000, 1) | expect(s, 4096, 100, 1) | expect(s, 12288, 8, 1) | expect(s, 20480, LARGE, 2) | expect(c, 130000, LARGE, 3) |
	       expect(c, 0, 40, 4);
}

static void fill_both(struct data *c, struct data *s)
{
	u64 word = 7;

	fill(c, 16384, 4000, 1);
	fill(c, 20480, LARGE, 2);
	fill(s, 130000, LARGE, 3);
	fill(s, 16384, 40, 4);
	memcpy(s->mem + WORD, &word, 8);
}

int data_run(struct world *w)
{
	struct data *c = &w->s[CLIENT].data, *s = &w->s[SERVER].data;
	u32 rkey = 0;
	int err;

	fill_both(c, s);
	err = receives(c, s);
	if (!err)
		err = bind_window(s, &rkey);
	if (!err)
		err = sends(c, s, rkey);
	if (!err)
		err = wait_complete(w);
	return err ? err : check(c, s);
}

static bool server_ended(void *arg)
{
	struct world *w = arg;

	return world_ended(&w->s[CLIENT]) && world_ended(&w->s[SERVER]) && all_complete(w);
}

int data_terminate(struct world *w)
{
	struct data *c = &w->s[CLIENT].data, *s = &w->s[SERVER].data;
	struct ibv_sge e = sge(c, 0, 100);
	struct ibv_send_wr wr = { .sg_list = &e, .num_sge = 1, .opcode = IBV_WR_RDMA_READ };
	int err = recv_post(c, 0, 4096);

	wr.wr.rdma.rkey = rnic_mr_stag(s->mr) + 1;
	if (!err)
		err = post(c, &wr);
	return err ? err : world_wait(w, server_ended, w, "both ends of a connection that is terminated, and flushed work requests");
}

/* ---- the end ---- */

struct closing {
	struct world *w;
	struct data *d;
};

static bool is_complete(void *arg)
{
	struct data *d = arg;

	poll_all(d);
	return d->posted == d->completed || d->srq; /* what was not taken from a shared queue is not flushed */
}

/* References of the NIC thread's go when it comes round. */
static bool cq_is_gone(void *arg)
{
	struct data *d = arg;

	return !d->cq || rnic_cq_destroy(d->cq) != -EBUSY;
}

static bool srq_is_gone(void *arg)
{
	struct data *d = arg;

	return !d->srq || rnic_srq_destroy(d->srq) != -EBUSY;
}

static bool pd_is_gone(void *arg)
{
	struct data *d = arg;

	return !d->pd || rnic_pd_destroy(d->pd) != -EBUSY;
}

int data_close(struct world *w, struct data *d)
{
	int err = 0, rc;

	if (!d->dev)
		return 0;
	if (d->qp) {
		rnic_qp_modify(d->qp, RNIC_QP_ERROR);
		err = world_wait(w, is_complete, d, "work requests are flushed");
		rnic_qp_destroy(d->qp);
	}
	rc = world_wait(w, cq_is_gone, d, "the completion queue can be destroyed");
	err = err ? err : rc;
	rc = world_wait(w, srq_is_gone, d, "the shared receive queue can be destroyed");
	err = err ? err : rc;
	if (d->mw)
		rnic_mw_destroy(d->mw);
	if (d->mr && rnic_mr_destroy(d->mr))
		err = world_said("region", -EBUSY);
	rc = world_wait(w, pd_is_gone, d, "the protection domain can be destroyed");
	iwcm_device_put(d->ctx, d->dev);
	return err ? err : rc;
}
