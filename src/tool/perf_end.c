// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: one end of a `uwarp perf` connection: its queues and its memory.
 *
 * The buffer has two halves: the first is what goes out (and what the peer reads), the second is what comes in. All receives share
 * the second: nobody looks at what arrives but at its last byte.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "tool/perf.h"

#define MAGIC "uwarpprf"
#define VERSION 1
#define SPIN_NS NSEC_PER_MSEC
#define SLEEP_MS 100
#define CLOCK_EVERY 64 /* polls */
#define WC_BATCH 32
#define WR_LIST 16u /* work requests that are posted together */
#define SPARE 16 /* messages beside those of the test: credits, the last word */

static const char *const verb_names[PERF_VERBS] = { [PERF_SEND] = "send", [PERF_WRITE] = "write", [PERF_READ] = "read" };

volatile sig_atomic_t perf_stop;

const char *perf_verb_str(enum perf_verb v)
{
	return (unsigned int)v < PERF_VERBS ? verb_names[v] : "?";
}

/* ---- private data ---- */

static void put_addr(__be32 out[2], u64 addr)
{
	out[0] = htobe32((u32)(addr >> 32));
	out[1] = htobe32((u32)addr);
}

static u64 get_addr(const __be32 in[2])
{
	return (u64)be32toh(in[0]) << 32 | be32toh(in[1]);
}

void perf_request_put(struct perf_request *r, const struct perf_test *t, const struct perf_remote *own)
{
	*r = (struct perf_request){
		.version = VERSION,
		.verb = (u8)t->verb,
		.kind = (u8)t->kind,
		.size = htobe32(t->size),
		.depth = htobe32(t->depth),
		.count = htobe64(t->count),
		.stag = htobe32(own->stag),
	};
	memcpy(r->magic, MAGIC, sizeof(r->magic));
	put_addr(r->addr, own->addr);
}

bool perf_request_get(const void *data, size_t len, struct perf_test *t, struct perf_remote *peer)
{
	struct perf_request r;

	if (len < sizeof(r))
		return false;
	memcpy(&r, data, sizeof(r));
	*t = (struct perf_test){
		.verb = r.verb,
		.kind = r.kind,
		.size = be32toh(r.size),
		.depth = be32toh(r.depth),
		.count = be64toh(r.count),
	};
	*peer = (struct perf_remote){ .stag = be32toh(r.stag), .addr = get_addr(r.addr) };
	return !memcmp(r.magic, MAGIC, sizeof(r.magic)) && r.version == VERSION && r.verb < PERF_VERBS && r.kind < PERF_KINDS &&
	       t->size >= 1 && t->size <= PERF_SIZE_MAX && t->depth >= 1 && t->depth <= PERF_DEPTH_MAX && t->count >= 1 &&
	       t->count <= PERF_COUNT_MAX;
}

void perf_reply_put(struct perf_reply *r, const struct perf_remote *own)
{
	*r = (struct perf_reply){ .version = VERSION, .stag = htobe32(own->stag) };
	memcpy(r->magic, MAGIC, sizeof(r->magic));
	put_addr(r->addr, own->addr);
}

bool perf_reply_get(const void *data, size_t len, struct perf_remote *peer)
{
	struct perf_reply r;

	if (len < sizeof(r))
		return false;
	memcpy(&r, data, sizeof(r));
	*peer = (struct perf_remote){ .stag = be32toh(r.stag), .addr = get_addr(r.addr) };
	return !memcmp(r.magic, MAGIC, sizeof(r.magic)) && r.version == VERSION;
}

/* ---- life ---- */

static void on_comp(void *ctx)
{
	const struct perf_end *e = ctx;
	u64 one = 1;

	if (write(e->comp_fd, &one, sizeof(one)) != sizeof(one))
		return; /* it is readable already */
}

static void on_async(void *ctx, enum ibv_event_type t)
{
	log_debug("tool", "asynchronous event %d", (int)t);
}

static int open_memory(struct perf_end *e)
{
	struct rnic_mr_attr a = {
		.length = 2ull * e->test.size,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	e->buf = aligned_alloc(4096, (a.length + 4095) & ~4095ull);
	if (!e->buf)
		return -ENOMEM;
	memset(e->buf, 0, a.length);
	a.addr = e->buf;
	a.iova = (uintptr_t)e->buf;
	return rnic_mr_create(e->pd, &a, &e->mr);
}

static int open_queues(struct perf_end *e)
{
	struct rnic_cq_attr ca = { .cqe = (int)(2 * (perf_window(&e->test) + SPARE)), .comp = on_comp, .async = on_async, .ctx = e };
	struct rnic_qp_attr qa = {
		.cap = {
			.max_send_wr = e->test.depth + SPARE,
			.max_recv_wr = perf_window(&e->test) + SPARE,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 64,
		},
		.async = on_async,
		.ctx = e,
	};
	int err = rnic_cq_create(e->iwdev, &ca, &e->cq);

	if (err)
		return err;
	qa.pd = e->pd;
	qa.send_cq = qa.recv_cq = e->cq;
	return rnic_qp_create_verbs(e->iwdev, &qa, &e->qp);
}

/**
 * perf_end_open() - queues and memory for a test
 * @e: filled in; perf_end_close() it, also after an error
 * @ctx: the context
 * @iwdev: NIC that the connection is on
 * @t: the test
 *
 * Return: 0, or a negative errno.
 */
int perf_end_open(struct perf_end *e, struct iwcm_ctx *ctx, struct irdma_device *iwdev, const struct perf_test *t)
{
	int err;

	*e = (struct perf_end){ .ctx = ctx, .test = *t, .comp_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	if (e->comp_fd < 0)
		return -errno;
	e->iwdev = iwdev ? iwcm_device_get(ctx, iwdev) : NULL;
	if (!e->iwdev)
		return -ENODEV;
	err = rnic_pd_create(e->iwdev, &e->pd);
	if (!err)
		err = open_memory(e);
	if (!err)
		err = open_queues(e);
	return err;
}

/**
 * perf_end_close() - give everything back
 * @e: the end; its connection is over, or is reset
 */
void perf_end_close(struct perf_end *e)
{
	if (e->qp)
		rnic_qp_destroy(e->qp);
	if (e->cq)
		rnic_cq_destroy(e->cq);
	if (e->mr)
		rnic_mr_destroy(e->mr);
	if (e->pd)
		rnic_pd_destroy(e->pd);
	if (e->iwdev)
		iwcm_device_put(e->ctx, e->iwdev);
	if (e->comp_fd >= 0)
		close(e->comp_fd);
	free(e->buf);
	*e = (struct perf_end){ .comp_fd = -1 };
}

/* For Reads the half that goes out, for Writes the one that comes in. */
struct perf_remote perf_end_memory(const struct perf_end *e)
{
	return (struct perf_remote){
		.stag = rnic_mr_stag(e->mr),
		.addr = (uintptr_t)e->buf + (e->test.verb == PERF_READ ? 0 : e->test.size),
	};
}

/* ---- work ---- */

int perf_post_recv(struct perf_end *e, u32 n)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->buf + e->test.size, .length = e->test.size, .lkey = rnic_mr_stag(e->mr) };
	struct ibv_recv_wr wr[WR_LIST], *bad;
	int err = 0;

	while (n && !err) {
		u32 part = min(n, WR_LIST);

		for (u32 i = 0; i < part; i++)
			wr[i] = (struct ibv_recv_wr){ .sg_list = &sge, .num_sge = 1, .next = i + 1 < part ? &wr[i + 1] : NULL };
		err = rnic_post_recv(e->qp, wr, &bad);
		e->recvs += err ? 0 : part;
		n -= part;
	}
	return err;
}

/* The last one of a list completes for all: its wr_id is their number. */
static int post_list(struct perf_end *e, const struct ibv_send_wr *model, u32 n)
{
	struct ibv_send_wr wr[WR_LIST], *bad;
	int err;

	for (u32 i = 0; i < n; i++) {
		wr[i] = *model;
		wr[i].next = &wr[i + 1];
	}
	wr[n - 1].next = NULL;
	wr[n - 1].wr_id = n;
	wr[n - 1].send_flags = IBV_SEND_SIGNALED;
	err = rnic_post_send(e->qp, wr, &bad);
	e->sends += err ? 0 : n;
	return err;
}

int perf_post(struct perf_end *e, enum ibv_wr_opcode op, u32 len, u32 n)
{
	u64 at = (uintptr_t)e->buf + (op == IBV_WR_RDMA_READ ? e->test.size : 0);
	struct ibv_sge sge = { .addr = at, .length = len, .lkey = rnic_mr_stag(e->mr) };
	struct ibv_send_wr model = { .opcode = op, .sg_list = &sge, .num_sge = len ? 1 : 0 };
	int err = 0;

	if (op != IBV_WR_SEND) {
		model.wr.rdma.remote_addr = e->peer.addr;
		model.wr.rdma.rkey = e->peer.stag;
	}
	for (; n && !err; n -= min(n, WR_LIST))
		err = post_list(e, &model, min(n, WR_LIST));
	return err;
}

static void complete(struct perf_end *e, const struct ibv_wc *wc)
{
	bool recv = wc->opcode & IBV_WC_RECV;

	if (wc->status != IBV_WC_SUCCESS) {
		if (!e->error)
			e->wc_status = wc->status;
		e->error = -ECONNRESET;
		return;
	}
	if (recv)
		e->recvs--;
	else
		e->sends -= (u32)wc->wr_id;
	e->acked += recv;
}

/* Completions taken, or a negative errno. */
static int take(struct perf_end *e)
{
	struct ibv_wc wc[WC_BATCH];
	int i, n = rnic_cq_poll(e->cq, WC_BATCH, wc);

	for (i = 0; i < n; i++)
		complete(e, &wc[i]);
	if (n < 0)
		return n;
	return e->error ? e->error : n;
}

static int sleep_for_one(struct perf_end *e)
{
	struct pollfd p = { .fd = e->comp_fd, .events = POLLIN };
	u64 count;
	int n = rnic_cq_arm(e->cq, false);

	if (!n)
		n = take(e); /* what came before it was armed */
	if (n)
		return n;
	if (poll(&p, 1, SLEEP_MS) > 0 && read(e->comp_fd, &count, sizeof(count)) < 0)
		return -errno;
	return perf_stop ? -EINTR : 0;
}

int perf_spin(struct perf_end *e)
{
	int n = take(e);

	if (n < 0)
		return n;
	return perf_stop ? -EINTR : 0;
}

/**
 * perf_progress() - take the completions that are there
 * @e: the end
 *
 * Return: 0; -EINTR: a signal came; -ECONNRESET: the connection has ended, e->wc_status says how.
 */
int perf_progress(struct perf_end *e)
{
	int n = take(e);

	if (n) {
		e->idle_polls = 0;
		return min(n, 0);
	}
	if (perf_stop)
		return -EINTR;
	if (e->idle_polls++ % CLOCK_EVERY)
		return 0;
	if (e->idle_polls == 1)
		e->idle_since_ns = loop_monotonic_ns();
	if (loop_monotonic_ns() - e->idle_since_ns < SPIN_NS)
		return 0;
	return min(sleep_for_one(e), 0);
}
