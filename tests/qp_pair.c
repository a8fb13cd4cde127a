/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "qp_pair.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

static struct pair *current; /* there is one at a time: the CM's functions have no context */

static void cm_disconnect(struct irdma_qp *qp)
{
	__atomic_fetch_add(&current->e[qp == current->e[1].qp].disconnects, 1, __ATOMIC_RELAXED);
	rnic_qp_release_stream(qp);
}

static const struct rnic_cm_ops cm_ops = { .disconnect = cm_disconnect };

static void qp_event(void *ctx, enum ibv_event_type t)
{
	struct pair_end *e = ctx;

	__atomic_fetch_add(&e->events[t], 1, __ATOMIC_RELAXED);
}

static void cq_comp(void *ctx)
{
	struct pair_end *e = ctx;

	sem_post(&e->comp);
}

/* ---- devices ---- */

static struct loop *loop_of(struct pair *p)
{
	return p->o.port == PAIR_WIRE ? &p->loop : &p->cm.loop;
}

static void device_up(struct pair *p, int i)
{
	struct net_iface iface = { .ifindex = 2, .mac = { 2, 0, 0, 0, 0, (u8)i }, .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE };
	struct pair_end *e = &p->e[i];
	struct port *port = p->cm.port;

	assert_int_equal(rnic_device_create(loop_of(p), NULL, &iface, NULL, &e->dev), 0);
	if (p->o.port == PAIR_WIRE)
		assert_int_equal(port_wire_plug(p->wire, NULL, &iface, &rnic_port_up, e->dev, &port), 0);
	rnic_device_attach(e->dev, port);
	e->dev->cm_ops = &cm_ops;
}

static void objects_up(struct pair *p, int i)
{
	struct rnic_cq_attr cq = { .cqe = (int)(p->o.cqe ? p->o.cqe : 4096) };
	struct rnic_srq_attr srq = { .max_wr = 64, .max_sge = 4 };
	struct pair_end *e = &p->e[i];
	struct rnic_mr_attr mr;

	cq.comp = cq_comp;
	cq.ctx = e;
	sem_init(&e->comp, 0, 0);
	e->mem = mmap(NULL, PAIR_MEM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(e->mem, MAP_FAILED);
	mr = (struct rnic_mr_attr){ .addr = e->mem, .length = PAIR_MEM, .iova = (u64)(uintptr_t)e->mem, .access = PAIR_ALL };
	assert_int_equal(rnic_pd_create(e->dev, &e->pd), 0);
	assert_int_equal(rnic_mr_create(e->pd, &mr, &e->mr), 0);
	e->stag = rnic_mr_stag(e->mr);
	assert_int_equal(rnic_cq_create(e->dev, &cq, &e->scq), 0);
	e->rcq = e->scq;
	if (!p->o.one_cq)
		assert_int_equal(rnic_cq_create(e->dev, &cq, &e->rcq), 0);
	if (p->o.srq)
		assert_int_equal(rnic_srq_create(e->pd, &srq, &e->srq), 0);
	pair_make_qp(p, i);
}

void pair_make_qp(struct pair *p, int i)
{
	struct pair_end *e = &p->e[i];
	struct rnic_qp_attr attr = {
		.pd = e->pd, .send_cq = e->scq, .recv_cq = e->rcq, .srq = e->srq, .sq_sig_all = p->o.sq_sig_all, .async = qp_event, .ctx = e,
		.cap = { .max_send_wr = p->o.max_send_wr ? p->o.max_send_wr : 64, .max_recv_wr = p->o.max_recv_wr ? p->o.max_recv_wr : 64,
			 .max_send_sge = RNIC_MAX_SGE, .max_recv_sge = RNIC_MAX_SGE, .max_inline_data = p->o.inline_data },
	};

	assert_int_equal(rnic_qp_create_verbs(e->dev, &attr, &e->qp), 0);
}

static void objects_down(struct pair *p, int i)
{
	struct pair_end *e = &p->e[i];

	if (e->qp) {
		rnic_qp_hold(e->qp);
		rnic_qp_destroy(e->qp);
		rnic_qp_release_stream(e->qp);
		rnic_qp_put(e->qp);
	}
	if (e->srq)
		assert_int_equal(rnic_srq_destroy(e->srq), 0);
	if (e->rcq != e->scq)
		assert_int_equal(rnic_cq_destroy(e->rcq), 0);
	assert_int_equal(rnic_cq_destroy(e->scq), 0);
	if (e->mr)
		assert_int_equal(rnic_mr_destroy(e->mr), 0);
	assert_int_equal(rnic_pd_destroy(e->pd), 0);
	munmap(e->mem, PAIR_MEM);
	sem_destroy(&e->comp);
}

/* ---- connections ---- */

static struct rnic_iwarp_info info_of(const struct pair *p, int i)
{
	u16 ird = p->o.ird ? p->o.ird : 8, ord = p->o.ord ? p->o.ord : 8;

	if (p->o.no_ord)
		ord = 0;
	return (struct rnic_iwarp_info){ .ird = i ? ord : ird, .ord = i ? ird : ord, .crc = p->o.crc, .snd_markers = p->o.markers,
					 .rcv_markers = p->o.markers, .initiator = !i, .rtr = p->o.rtr, .rtr_timeout_ms = 30000 };
}

static void offload_wire(struct pair *p, int i)
{
	struct rnic_iwarp_info iw = info_of(p, i);
	struct irdma_sc_ah none = { 0 };
	struct tcp_info_ho tcp = {
		.tuple = { .loc_addr = { 0x0A000001 + (u32)i }, .rem_addr = { 0x0A000001 + !i }, .loc_port = (u16)(100 + i),
			   .rem_port = (u16)(100 + !i), .vlan_id = PKT_VLAN_NONE, .ipv4 = true },
		.loc_mac = { 2, 0, 0, 0, 0, (u8)i }, .rem_mac = { 2, 0, 0, 0, 0, (u8)!i }, .ttl = 64,
		.snd_una = 10 + (u32)i, .snd_nxt = 10 + (u32)i, .snd_max = 10 + (u32)i, .snd_wnd = 60000, .max_snd_wnd = 60000,
		.rcv_nxt = 10 + !i, .rcv_wnd = 60000, .mss = p->o.mss ? p->o.mss : 1460,
	};

	assert_int_equal(rnic_qp_offload(p->e[i].qp, &none, &tcp, &iw), 0);
}

static void offload_host(struct pair *p, int i, struct cm_ep *ep)
{
	struct rnic_iwarp_info iw = info_of(p, i);
	struct irdma_sc_ah ah = { .port_ah = ep->ah, .valid = true };
	struct tcp_info_ho tcp = { .tuple = ep->tuple, .snd_nxt = ep->snd_nxt, .snd_una = ep->snd_una, .rcv_nxt = ep->rcv_nxt,
				   .mss = p->o.mss ? p->o.mss : 65483 };

	assert_int_equal(rnic_qp_offload(p->e[i].qp, &ah, &tcp, &iw), 0);
	ep->ah = NULL;
	cm_ep_free(ep);
}

static void connect_host(struct pair *p)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&p->cm, true, &number);
	struct cm_ep *a = cm_connect(&p->cm, true, number), *b;

	cm_until(&p->cm, p->cm.last && p->cm.last->acks);
	b = p->cm.last;
	offload_host(p, 0, a);
	offload_host(p, 1, b);
	p->cm.port->ops->filter_del(p->cm.port, f);
}

static void connect_raw(struct pair *p)
{
	struct cm_ep *a;

	p->lfd = plain_listen(true, 0);
	a = cm_connect(&p->cm, true, plain_number(p->lfd));
	p->fd = plain_accept(p->lfd);
	close(p->lfd);
	offload_host(p, 0, a);
	mpa_stream_init(&p->raw_tx, p->o.crc, p->o.markers);
	mpa_rx_init(&p->raw_rx, p->o.crc, p->o.markers);
	p->raw_have = p->raw_used = 0;
}

void pair_connect(struct pair *p)
{
	if (p->o.port == PAIR_RAW) {
		connect_raw(p);
		return;
	}
	if (p->o.port == PAIR_HOST) {
		connect_host(p);
	} else {
		offload_wire(p, 0);
		offload_wire(p, 1);
	}
	if (p->o.rtr)
		assert_int_equal(rnic_qp_send_rtr(p->e[0].qp), 0);
}

static int ends(const struct pair *p)
{
	return p->o.port == PAIR_RAW ? 1 : 2;
}

void pair_open(struct pair *p, const struct pair_options *o)
{
	memset(p, 0, sizeof(*p));
	p->o = *o;
	p->fd = -1;
	current = p;
	if (o->port == PAIR_WIRE) {
		static const struct port_wire_path quick = { .latency_ns = 20 * NSEC_PER_USEC };

		rand_set_seed(1);
		loop_init(&p->loop, 0);
		assert_int_equal(port_wire_create(&p->loop, 1, &p->wire), 0);
		port_wire_set_default(p->wire, o->path ? o->path : &quick);
	} else {
		cm_start(&p->cm);
	}
	for (int i = 0; i < ends(p); i++) {
		device_up(p, i);
		objects_up(p, i);
	}
}

void pair_close(struct pair *p)
{
	for (int i = 0; i < ends(p); i++)
		objects_down(p, i);
	if (p->fd >= 0)
		close(p->fd);
	if (p->o.port == PAIR_RAW)
		mpa_rx_destroy(&p->raw_rx);
	pair_settle(p);
	if (p->o.port == PAIR_WIRE)
		port_wire_run(p->wire, loop_now(&p->loop) + 300 * NSEC_PER_SEC);
	for (int i = 0; i < ends(p); i++) {
		if (p->o.port != PAIR_WIRE)
			rnic_device_attach(p->e[i].dev, NULL); /* the port is the CM's */
		rnic_device_destroy(p->e[i].dev);
	}
	if (p->o.port == PAIR_WIRE) {
		port_wire_destroy(p->wire);
		loop_destroy(&p->loop);
		rand_unset_seed();
	} else {
		cm_stop(&p->cm);
	}
}

void pair_step(struct pair *p)
{
	if (p->o.port == PAIR_WIRE)
		port_wire_step(p->wire, loop_now(&p->loop) + NSEC_PER_SEC);
	else
		cm_wait(&p->cm, 1);
}

void pair_settle(struct pair *p)
{
	if (p->o.port == PAIR_WIRE)
		port_wire_run(p->wire, loop_now(&p->loop) + 5 * NSEC_PER_SEC);
	else
		cm_settle(&p->cm);
}

/* ---- the NIC thread ---- */

static void wake(struct loop *l, void *arg)
{
	struct pair *p = arg;
	u64 one = 1;

	assert_int_equal(write(p->wake_fd, &one, sizeof(one)), sizeof(one));
}

static void sleep_until_something(struct pair *p)
{
	struct pollfd pfd[2] = { { .fd = port_host_fd(p->cm.h), .events = POLLIN }, { .fd = p->wake_fd, .events = POLLIN } };
	u64 next = loop_next_ns(&p->cm.loop), now = loop_monotonic_ns();
	int ms = next <= now ? 0 : (int)min((next - now) / NSEC_PER_MSEC + 1, (u64)1000);
	u64 n;

	poll(pfd, 2, ms);
	if (pfd[1].revents)
		assert_int_equal(read(p->wake_fd, &n, sizeof(n)), sizeof(n));
}

static void *nic_thread(void *arg)
{
	struct pair *p = arg;

	while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
		sleep_until_something(p);
		loop_enter(&p->cm.loop);
		cm_step(&p->cm);
		loop_leave(&p->cm.loop);
	}
	return NULL;
}

void pair_thread_start(struct pair *p)
{
	p->wake_fd = eventfd(0, EFD_CLOEXEC);
	p->stop = false;
	p->cm.loop.wake = wake;
	p->cm.loop.wake_arg = p;
	assert_int_equal(pthread_create(&p->thread, NULL, nic_thread, p), 0);
}

void pair_thread_stop(struct pair *p)
{
	__atomic_store_n(&p->stop, true, __ATOMIC_RELEASE);
	wake(NULL, p);
	pthread_join(p->thread, NULL);
	p->cm.loop.wake = NULL;
	close(p->wake_fd);
}

/* ---- work requests ---- */

struct ibv_sge pair_sge(struct pair_end *e, u32 off, u32 len)
{
	return (struct ibv_sge){ .addr = (u64)(uintptr_t)e->mem + off, .length = len, .lkey = e->stag };
}

int pair_recv(struct pair_end *e, u64 id, u32 off, u32 len)
{
	struct ibv_sge s = pair_sge(e, off, len);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = 1 }, *bad;

	return e->srq ? rnic_srq_post(e->srq, &wr, &bad) : rnic_post_recv(e->qp, &wr, &bad);
}

int pair_send(struct pair_end *e, u64 id, enum ibv_wr_opcode op, u32 off, u32 len, const struct pair_end *to, u32 roff, unsigned int flags)
{
	struct ibv_sge s = pair_sge(e, off, len);
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = flags }, *bad;

	if (to) {
		wr.wr.rdma.remote_addr = (u64)(uintptr_t)to->mem + roff;
		wr.wr.rdma.rkey = to->stag;
	}
	return rnic_post_send(e->qp, &wr, &bad);
}

static u8 byte_at(u32 i, u8 seed)
{
	return (u8)(i * 7 + i / 251 + seed);
}

void pair_fill(struct pair_end *e, u32 off, u32 len, u8 seed)
{
	for (u32 i = 0; i < len; i++)
		e->mem[off + i] = byte_at(i, seed);
}

void pair_expect(struct pair_end *e, u32 off, u32 len, u8 seed)
{
	for (u32 i = 0; i < len; i++)
		if (e->mem[off + i] != byte_at(i, seed))
			fail_msg("byte %u of %u is %u, not %u", i, len, e->mem[off + i], byte_at(i, seed));
}

struct ibv_wc pair_wc(struct pair *p, struct rnic_cq *cq)
{
	struct ibv_wc wc = { 0 };
	int n = 0;

	pair_until(p, (n = n ? n : rnic_cq_poll(cq, 1, &wc)) != 0);
	assert_int_equal(n, 1);
	return wc;
}

struct ibv_wc pair_wc_is(struct pair *p, struct rnic_cq *cq, u64 id, enum ibv_wc_status status)
{
	struct ibv_wc wc = pair_wc(p, cq);

	if (wc.wr_id != id || wc.status != status)
		fail_msg("completion %llu with status %d, not %llu with %d", (unsigned long long)wc.wr_id, wc.status, (unsigned long long)id, status);
	return wc;
}

void pair_no_wc(struct rnic_cq *cq)
{
	struct ibv_wc wc;

	assert_int_equal(rnic_cq_poll(cq, 1, &wc), 0);
}

/* ---- the raw peer ---- */

void pair_raw_bytes(struct pair *p, const void *bytes, size_t len)
{
	assert_int_equal(write(p->fd, bytes, len), len);
}

void pair_raw_says(struct pair *p, const u8 *ulpdu, u32 len)
{
	static u8 fpdu[70000];
	int n = mpa_fpdu_build(&p->raw_tx, ulpdu, len, fpdu, sizeof(fpdu));

	assert_true(n > 0);
	pair_raw_bytes(p, fpdu, (size_t)n);
}

static bool raw_read(struct pair *p, int timeout_ms)
{
	u64 end = loop_monotonic_ns() + (u64)timeout_ms * NSEC_PER_MSEC;
	struct pollfd pfd = { .fd = p->fd, .events = POLLIN };
	ssize_t n;

	do {
		pair_step(p);
		if (poll(&pfd, 1, 0) == 1) {
			n = read(p->fd, p->raw_buf, sizeof(p->raw_buf));
			p->raw_have = n > 0 ? (size_t)n : 0;
			p->raw_used = 0;
			return n > 0;
		}
	} while (loop_monotonic_ns() < end);
	return false;
}

bool pair_raw_hears(struct pair *p, struct ddp_hdr *h, int timeout_ms)
{
	const u8 *ulpdu = NULL;
	struct rdmap_error err;
	u32 len;

	while (!ulpdu) {
		ssize_t n;

		if (p->raw_used == p->raw_have && !raw_read(p, timeout_ms))
			return false;
		n = mpa_rx_feed(&p->raw_rx, p->raw_buf + p->raw_used, p->raw_have - p->raw_used, &ulpdu, &len);
		assert_true(n > 0);
		p->raw_used += (size_t)n;
	}
	assert_int_equal(ddp_parse(ulpdu, len, h, &err), 0);
	return true;
}
