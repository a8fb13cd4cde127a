/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The stress's objects that come and go: domains, channels, completion queues, shared receive queues, memory; and what their events may be. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>
#include "rnic/verbs_internal.h"
#include "stress.h"

#undef ibv_reg_mr

#define SRQ_WRS 64u
#define MR_BYTES 4096u
#define SOON_NS (60 * NSEC_PER_SEC) /* what has not come by then is lost */

static int err_of(const void *made)
{
	return made ? 0 : errno;
}

/* ---- domains, channels ---- */

static void churn_pd(struct st_thread *t)
{
	u32 n = st_below(t, ST_PDS), hi;
	struct st_obj *o = &st.pd[n];
	u64 begin = st_now();
	int ret;

	if (!st_take(o))
		return;
	if (o->p) {
		hi = st_get(&o->hi);
		ret = ibv_dealloc_pd(o->p);
		st_log(begin, "dealloc_pd", n, hi, ret);
		st_check_destroy(o, "dealloc_pd", hi, ret);
		if (!ret)
			o->p = NULL;
	} else {
		o->p = ibv_alloc_pd(st.ctx);
		st_log(begin, "alloc_pd", n, 0, err_of(o->p));
		ST_CHECK(o->p, "alloc_pd: %d", errno);
	}
	st_done(o);
}

static void churn_channel(struct st_thread *t)
{
	u32 n = st_below(t, ST_CHANNELS), hi;
	struct st_obj *o = &st.channel[n];
	struct ibv_comp_channel *ch;
	u64 begin = st_now();
	int ret;

	if (!st_take(o))
		return;
	if (o->p) {
		hi = st_get(&o->hi);
		ret = ibv_destroy_comp_channel(o->p);
		st_log(begin, "destroy_comp_channel", n, hi, ret);
		st_check_destroy(o, "destroy_comp_channel", hi, ret);
		if (!ret)
			o->p = NULL;
	} else {
		o->p = ch = ibv_create_comp_channel(st.ctx);
		st_log(begin, "create_comp_channel", n, 0, err_of(o->p));
		ST_CHECK(ch, "create_comp_channel: %d", errno);
		fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	}
	st_done(o);
}

static void take_event(struct ibv_comp_channel *ch, u32 n)
{
	struct st_notify *notify;
	struct ibv_cq *cq;
	u64 begin = st_now(), gone;
	void *ctx;

	if (ibv_get_cq_event(ch, &cq, &ctx)) {
		ST_CHECK(errno == EAGAIN, "get_cq_event: %d", errno);
		return;
	}
	notify = ctx;
	gone = __atomic_load_n(&notify->gone_ns, __ATOMIC_RELAXED);
	st_log(begin, "get_cq_event", n, (uintptr_t)ctx, 0);
	ST_CHECK(!gone || begin < gone, "get_cq_event gave a completion queue that is destroyed");
	st_add(&notify->events, 1);
	ibv_ack_cq_events(cq, 1);
}

void *st_channel_thread(void *arg)
{
	u32 n = 0;

	while (!st_stopping()) {
		struct st_obj *o = &st.channel[n++ % ST_CHANNELS];
		struct ibv_comp_channel *ch;

		if (!st_use(o)) {
			usleep(500);
			continue;
		}
		ch = o->p;
		if (poll(&(struct pollfd){ .fd = ch->fd, .events = POLLIN }, 1, 2) == 1)
			take_event(ch, n);
		st_done(o);
	}
	return NULL;
}

/* ---- completion queues ---- */

static struct st_notify *notifies; /* all there were */

static struct st_notify *notify_new(void)
{
	struct st_notify *n = calloc(1, sizeof(*n));

	ST_CHECK(n, "no memory");
	n->next = __atomic_exchange_n(&notifies, n, __ATOMIC_RELAXED);
	return n;
}

#define EX_FLAGS (IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM)

static struct ibv_cq *create_cq(struct st_cq *cq, struct ibv_comp_channel *channel)
{
	struct ibv_cq_init_attr_ex a = { .cqe = 4096, .cq_context = cq->notify, .channel = channel, .wc_flags = EX_FLAGS };
	struct ibv_cq_ex *ex;

	if (!cq->extended)
		return ibv_create_cq(st.ctx, 4096, cq->notify, channel, 0);
	ex = ibv_create_cq_ex(st.ctx, &a);
	return ex ? ibv_cq_ex_to_cq(ex) : NULL;
}

static void cq_make(struct st_thread *t, struct st_cq *cq, u32 n)
{
	struct st_obj *channel = st_one_in(t, 3) ? NULL : &st.channel[st_below(t, ST_CHANNELS)];
	u64 begin = st_now();

	if (channel && !st_use(channel))
		channel = NULL;
	cq->channel = channel;
	cq->notify = notify_new();
	if (channel)
		st_child_begins(channel);
	cq->extended = st_one_in(t, 2);
	cq->o.p = create_cq(cq, channel ? channel->p : NULL);
	st_log(begin, "create_cq", n, (uintptr_t)cq->notify, err_of(cq->o.p));
	ST_CHECK(cq->o.p, "create_cq: %d", errno);
	if (channel) {
		st_child_is(channel, true);
		st_done(channel);
	}
}

static void cq_end(struct st_cq *cq, u32 n)
{
	u32 hi = st_get(&cq->o.hi);
	u64 begin = st_now();
	int ret;

	if (cq->channel)
		st_child_ends(cq->channel);
	ret = ibv_destroy_cq(cq->o.p);
	st_log(begin, "destroy_cq", n, (uintptr_t)cq->notify, ret);
	st_check_destroy(&cq->o, "destroy_cq", hi, ret);
	if (cq->channel)
		st_child_ended(cq->channel, !ret);
	if (ret)
		return;
	__atomic_store_n(&cq->notify->gone_ns, st_now(), __ATOMIC_RELAXED);
	cq->o.p = NULL;
}

static void churn_cq(struct st_thread *t)
{
	u32 n = st_below(t, ST_CQS);
	struct st_cq *cq = &st.cq[n];

	if (!st_take(&cq->o))
		return;
	if (cq->o.p)
		cq_end(cq, n);
	else
		cq_make(t, cq, n);
	st_done(&cq->o);
}

/* A completion that comes to a queue which is armed, and was seen empty since, makes an event. */
static void wait_for_event(struct st_thread *t, struct st_cq *cq)
{
	u32 before = st_get(&cq->notify->events), polled = 0;
	u64 begin = st_now(), end;
	struct ibv_wc wc;
	int ret = ibv_req_notify_cq(cq->o.p, 0);

	st_log(begin, "req_notify_cq", (u32)(cq - st.cq), before, ret);
	ST_CHECK(!ret, "req_notify_cq: %d", ret);
	if (ibv_poll_cq(cq->o.p, 0, &wc) || !rnic_cq_is_empty(to_cq(cq->o.p)->rnic))
		return;
	for (end = st_now() + 2 * NSEC_PER_MSEC; st_now() < end && !polled; usleep(200))
		polled = !rnic_cq_is_empty(to_cq(cq->o.p)->rnic);
	if (!polled)
		return;
	for (end = st_now() + SOON_NS; st_get(&cq->notify->events) == before; usleep(500))
		ST_CHECK(st_now() < end, "a completion queue was armed and got a completion, but no event came");
}

static void use_cq(struct st_thread *t)
{
	u32 n = st_below(t, ST_CQS);
	struct st_cq *cq = &st.cq[n];
	u64 begin;
	int ret;

	if (!st_use(&cq->o))
		return;
	if (cq->channel && st_one_in(t, 2)) {
		wait_for_event(t, cq);
	} else if (st_one_in(t, 2)) {
		begin = st_now();
		ret = ibv_resize_cq(cq->o.p, 2048 << st_below(t, 3));
		st_log(begin, "resize_cq", n, 0, ret);
		ST_CHECK(!ret || ret == EINVAL, "resize_cq: %d", ret);
	} else {
		begin = st_now();
		ret = ibv_req_notify_cq(cq->o.p, (int)st_below(t, 2));
		st_log(begin, "req_notify_cq", n, 0, ret);
		ST_CHECK(!ret, "req_notify_cq: %d", ret);
	}
	st_done(&cq->o);
}

/* ---- shared receive queues ---- */

bool st_post_srq(struct st_thread *t, struct st_srq *srq, u32 n)
{
	u32 i = (u32)(srq - st.srq);
	struct ibv_sge sge = { .addr = (uintptr_t)srq->mem[n], .length = ST_BYTES, .lkey = st.srq_arena[srq->pd_n]->lkey };
	struct ibv_recv_wr wr = { .wr_id = (u64)i << 48 | (u64)0xFF << 20 | n, .sg_list = &sge, .num_sge = 1 }, *bad;
	u64 begin = st_now();
	int ret = ibv_post_srq_recv(srq->o.p, &wr, &bad);

	st_log(begin, "post_srq_recv", i, n, ret);
	ST_CHECK(!ret, "post_srq_recv: %d, with room in it", ret);
	st_add(&srq->credits, 1);
	return !ret;
}

static void srq_make(struct st_thread *t, struct st_srq *srq, u32 n)
{
	u32 pd_n = st_below(t, ST_DATA_PDS), i;
	struct st_obj *pd = &st.pd[pd_n];
	struct ibv_srq_init_attr a = { .attr = { .max_wr = SRQ_WRS, .max_sge = 1 } };
	u64 begin = st_now();

	if (!st_use(pd))
		return;
	st_child_begins(pd);
	srq->o.p = ibv_create_srq(pd->p, &a);
	st_log(begin, "create_srq", n, pd_n, err_of(srq->o.p));
	ST_CHECK(srq->o.p, "create_srq: %d", errno);
	st_child_is(pd, true);
	st_done(pd);
	srq->pd = pd;
	srq->pd_n = pd_n;
	__atomic_store_n(&srq->credits, 0, __ATOMIC_RELAXED);
	for (i = 0; i < SRQ_WRS; i++)
		st_post_srq(t, srq, i);
}

static void srq_end(struct st_srq *srq, u32 n)
{
	u32 hi = st_get(&srq->o.hi);
	u64 begin = st_now();
	int ret;

	st_child_ends(srq->pd);
	ret = ibv_destroy_srq(srq->o.p);
	st_log(begin, "destroy_srq", n, hi, ret);
	st_check_destroy(&srq->o, "destroy_srq", hi, ret);
	st_child_ended(srq->pd, !ret);
	if (!ret)
		srq->o.p = NULL;
}

static void churn_srq(struct st_thread *t)
{
	u32 n = st_below(t, ST_SRQS);
	struct st_srq *srq = &st.srq[n];

	if (!st_take(&srq->o))
		return;
	if (srq->o.p)
		srq_end(srq, n);
	else
		srq_make(t, srq, n);
	st_done(&srq->o);
}

static void use_srq(struct st_thread *t)
{
	struct st_srq *srq = &st.srq[st_below(t, ST_SRQS)];
	struct ibv_srq_attr a = { .srq_limit = 1 + st_below(t, 8) };
	u64 begin = st_now();
	int ret;

	if (!st_use(&srq->o))
		return;
	ret = ibv_modify_srq(srq->o.p, &a, IBV_SRQ_LIMIT);
	st_log(begin, "modify_srq", (u32)(srq - st.srq), a.srq_limit, ret);
	ST_CHECK(!ret, "modify_srq: %d", ret);
	ret = ibv_query_srq(srq->o.p, &a);
	ST_CHECK(!ret && a.max_wr >= SRQ_WRS, "query_srq: %d, %u", ret, a.max_wr);
	st_done(&srq->o);
}

/* ---- memory ---- */

/* Nobody writes into memory whose region has ended. */
static void check_untouched(u32 n)
{
	u32 i;

	for (i = 0; i < MR_BYTES; i++)
		ST_CHECK(st.mr_mem[n][i] == 0xEE, "region %u: memory was written after dereg_mr, at %u", n, i);
}

#define MR_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static void mr_make(struct st_thread *t, u32 n)
{
	struct st_obj *o = &st.mr[n], *pd = &st.pd[st_below(t, ST_PDS)];
	struct ibv_mr *mr;
	u64 begin = st_now();

	if (!st_use(pd))
		return;
	check_untouched(n);
	st_child_begins(pd);
	o->p = mr = ibv_reg_mr(pd->p, st.mr_mem[n], MR_BYTES, MR_ACCESS);
	st_log(begin, "reg_mr", n, mr ? mr->rkey : 0, err_of(mr));
	ST_CHECK(mr, "reg_mr: %d", errno);
	st_child_is(pd, true);
	st_done(pd);
	st.mr_pd[n] = pd;
	__atomic_store_n(&st.mr_rkey[n], mr->rkey, __ATOMIC_RELAXED);
}

static void mr_end(u32 n)
{
	struct st_obj *o = &st.mr[n];
	u64 begin = st_now();
	int ret;

	st_child_ends(st.mr_pd[n]);
	ret = ibv_dereg_mr(o->p);
	st_log(begin, "dereg_mr", n, st.mr_rkey[n], ret);
	ST_CHECK(!ret, "dereg_mr: %d", ret);
	st_child_ended(st.mr_pd[n], true);
	o->p = NULL;
	memset(st.mr_mem[n], 0xEE, MR_BYTES);
}

/* Nothing else is done to a region by its program, so this, too, has it alone. */
static void mr_change(struct st_thread *t, u32 n)
{
	int flags = st_one_in(t, 2) ? IBV_REREG_MR_CHANGE_ACCESS : IBV_REREG_MR_CHANGE_TRANSLATION;
	struct ibv_mr *mr = st.mr[n].p;
	u64 begin = st_now();
	int ret = ibv_rereg_mr(mr, flags, NULL, st.mr_mem[n], MR_BYTES, MR_ACCESS & ~(st_one_in(t, 2) ? IBV_ACCESS_REMOTE_READ : 0));

	st_log(begin, "rereg_mr", n, mr->rkey, ret);
	ST_CHECK(!ret, "rereg_mr: %d", ret);
	__atomic_store_n(&st.mr_rkey[n], mr->rkey, __ATOMIC_RELAXED);
}

static void churn_mr(struct st_thread *t)
{
	u32 n = st_below(t, ST_MRS);

	if (!st_take(&st.mr[n]))
		return;
	if (!st.mr[n].p)
		mr_make(t, n);
	else if (st_one_in(t, 2))
		mr_change(t, n);
	else
		mr_end(n);
	st_done(&st.mr[n]);
}

static void churn_mw(struct st_thread *t)
{
	u32 n = st_below(t, ST_PDS);
	struct st_obj *pd = &st.pd[n];
	u64 begin = st_now();
	struct ibv_mw *mw;

	if (!st_use(pd))
		return;
	st_child_begins(pd);
	mw = ibv_alloc_mw(pd->p, st_one_in(t, 2) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	st_log(begin, "alloc_mw", n, 0, err_of(mw));
	ST_CHECK(mw, "alloc_mw: %d", errno);
	st_child_is(pd, true);
	st_child_ends(pd);
	ST_CHECK(!ibv_dealloc_mw(mw), "dealloc_mw");
	st_child_ended(pd, true);
	st_done(pd);
}

static void no_ah(struct st_thread *t)
{
	struct st_obj *pd = &st.pd[st_below(t, ST_PDS)];
	struct ibv_ah_attr a = { .port_num = 1 };

	if (!st_use(pd))
		return;
	ST_CHECK(!ibv_create_ah(pd->p, &a), "iWARP has address handles");
	st_done(pd);
}

/* ---- contexts ---- */

static void another_context(struct st_thread *t)
{
	u64 begin = st_now();
	struct ibv_context *c = ibv_open_device(st.ctx->device);
	struct ibv_port_attr port;
	struct ibv_cq *cq;

	ST_CHECK(c, "open_device: %d", errno);
	cq = ibv_create_cq(c, 8, NULL, NULL, 0);
	ST_CHECK(cq, "create_cq: %d", errno);
	ST_CHECK(!ibv_query_port(c, 1, &port) && port.state == IBV_PORT_ACTIVE, "query_port");
	ST_CHECK(!ibv_destroy_cq(cq), "destroy_cq of another context");
	ST_CHECK(!ibv_close_device(c), "close_device");
	st_log(begin, "open_device and close_device", 0, 0, 0);
}

/* What an asynchronous event is about lives until it is acknowledged; that the element is the right one shows when this reads it. */
void *st_async_thread(void *arg)
{
	struct ibv_async_event ev;

	while (!st_stopping()) {
		u64 begin = st_now();

		if (poll(&(struct pollfd){ .fd = st.ctx->async_fd, .events = POLLIN }, 1, 20) != 1)
			continue;
		if (ibv_get_async_event(st.ctx, &ev)) {
			ST_CHECK(errno == EAGAIN, "get_async_event: %d", errno);
			continue;
		}
		st_log(begin, "get_async_event", 0, (uintptr_t)ev.element.qp, ev.event_type);
		ST_CHECK(ev.event_type != IBV_EVENT_CQ_ERR, "a completion queue overran, though it has room for all work requests");
		ST_CHECK(ev.element.qp->context == st.ctx, "an event about something that is gone"); /* QPs and SRQs both begin with it */
		ibv_ack_async_event(&ev);
	}
	return NULL;
}

/* ---- all of them ---- */

void st_churn(struct st_thread *t)
{
	static void (*const what[])(struct st_thread *t) = {
		churn_pd, churn_channel, churn_cq, use_cq, use_cq, churn_srq, use_srq, churn_mr, churn_mr, churn_mw, no_ah, another_context,
	};

	what[st_below(t, ARRAY_SIZE(what))](t);
}

static struct ibv_context *open_lo(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = NULL;
	int i;

	for (i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "uwarp_lo"))
			c = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return c;
}

static void objects_init(struct st_obj *o, size_t n, size_t size)
{
	size_t i;

	for (i = 0; i < n; i++)
		pthread_rwlock_init(&((struct st_obj *)((u8 *)o + i * size))->guard, NULL);
}

static void *pages(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ST_CHECK(p != MAP_FAILED, "no memory");
	return p;
}

#define ARENA_ACCESS (MR_ACCESS | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

void st_verbs_open(void)
{
	u32 i;

	st.ctx = open_lo();
	ST_CHECK(st.ctx, "no device uwarp_lo");
	fcntl(st.ctx->async_fd, F_SETFL, O_NONBLOCK);
	objects_init(st.pd, ST_PDS, sizeof(*st.pd));
	objects_init(st.channel, ST_CHANNELS, sizeof(*st.channel));
	objects_init(st.mr, ST_MRS, sizeof(*st.mr));
	objects_init(&st.cq[0].o, ST_CQS, sizeof(*st.cq));
	objects_init(&st.srq[0].o, ST_SRQS, sizeof(*st.srq));
	objects_init(&st.qp[0].o, ST_QPS, sizeof(*st.qp));
	st.mem = pages(ST_QPS * sizeof(*st.mem));
	st.srq_mem = pages(ST_SRQS * SRQ_WRS * ST_BYTES);
	for (i = 0; i < ST_DATA_PDS; i++) {
		st.pd[i].p = ibv_alloc_pd(st.ctx);
		st.arena[i] = ibv_reg_mr(st.pd[i].p, st.mem, ST_QPS * sizeof(*st.mem), ARENA_ACCESS);
		st.srq_arena[i] = ibv_reg_mr(st.pd[i].p, st.srq_mem, ST_SRQS * SRQ_WRS * ST_BYTES, IBV_ACCESS_LOCAL_WRITE);
		ST_CHECK(st.arena[i] && st.srq_arena[i], "reg_mr: %d", errno);
		st.pd[i].lo = st.pd[i].hi = 2;
	}
	for (i = 0; i < ST_CQS; i++) {
		pthread_mutex_init(&st.cq[i].order, NULL);
		st.cq[i].serial = i % 2;
	}
	for (i = 0; i < ST_SRQS; i++)
		st.srq[i].mem = (void *)(st.srq_mem + i * SRQ_WRS * ST_BYTES);
	for (i = 0; i < ST_MRS; i++)
		memset(st.mr_mem[i] = pages(MR_BYTES), 0xEE, MR_BYTES);
}

/* One thread is left, and the QPs are gone. */
void st_verbs_close(void)
{
	u32 i;

	for (i = 0; i < ST_SRQS; i++)
		if (st.srq[i].o.p)
			srq_end(&st.srq[i], i);
	for (i = 0; i < ST_CQS; i++)
		if (st.cq[i].o.p)
			cq_end(&st.cq[i], i);
	for (i = 0; i < ST_MRS; i++)
		if (st.mr[i].p)
			mr_end(i);
	for (i = 0; i < ST_CHANNELS; i++)
		ST_CHECK(!st.channel[i].p || !ibv_destroy_comp_channel(st.channel[i].p), "a channel is left");
	for (i = 0; i < ST_DATA_PDS; i++)
		ST_CHECK(!ibv_dereg_mr(st.arena[i]) && !ibv_dereg_mr(st.srq_arena[i]), "an arena is bound to");
	for (i = 0; i < ST_PDS; i++)
		ST_CHECK(!st.pd[i].p || !ibv_dealloc_pd(st.pd[i].p), "domain %u has users left", i);
	ST_CHECK(!ibv_close_device(st.ctx), "close_device");
}
