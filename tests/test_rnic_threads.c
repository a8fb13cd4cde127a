/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The NIC under several threads: users create, offload, close, reset, release and destroy QPs while the
 * loop's thread delivers events on whatever streams there are and its CM releases what ended. For TSan and ASan.
 */
#include <stdatomic.h>
#include <sched.h>
#include "test_rnic_port.h"

#define USERS 3
#define ROUNDS 2000
#define SLOTS 64

static struct fake fake;
static struct port_ops ops;

/* Live streams, as a port would know them. */
static struct { struct port_stream *s; const struct port_stream_up *up; void *ctx; } live[SLOTS];
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int users_left, disconnects, lsmm_dones;
static atomic_bool in_callback;

static int mt_offload(struct port *p, struct port_ah *ah, const struct tcp_info_ho *info, const struct port_stream_up *up,
		      void *ctx, struct port_stream **out)
{
	int rc = -ENOMEM;

	pthread_mutex_lock(&live_lock);
	for (int i = 0; i < SLOTS && rc; i++) {
		if (live[i].s)
			continue;
		rc = fake_offload(p, ah, info, up, ctx, out);
		if (!rc) {
			live[i].s = *out;
			live[i].up = up;
			live[i].ctx = ctx;
		}
	}
	pthread_mutex_unlock(&live_lock);
	return rc;
}

static void no_longer_live(const struct port_stream *s)
{
	pthread_mutex_lock(&live_lock);
	for (int i = 0; i < SLOTS; i++)
		if (live[i].s == s)
			live[i].s = NULL;
	pthread_mutex_unlock(&live_lock);
}

static void mt_close(struct port_stream *s)
{
	no_longer_live(s);
	fake_close(s);
}

static void mt_drain(struct port_stream *s, const void *rest, u32 len)
{
	no_longer_live(s);
	fake_drain(s, rest, len);
}

/* The stream may be closed by another thread between the look and the call: the QP must still be there. */
static void deliver(int slot, u32 events)
{
	const struct port_stream_up *up = NULL;
	void *ctx = NULL;

	pthread_mutex_lock(&live_lock);
	if (live[slot].s) {
		up = live[slot].up;
		ctx = live[slot].ctx;
	}
	pthread_mutex_unlock(&live_lock);
	if (up)
		up->event(ctx, events);
}

static void cm_disconnect(struct irdma_qp *qp)
{
	assert_false(atomic_exchange(&in_callback, true)); /* one thread */
	disconnects++;
	rnic_qp_release_stream(qp);
	atomic_store(&in_callback, false);
}

static void cm_lsmm_done(struct irdma_qp *qp)
{
	lsmm_dones++;
}

static const struct rnic_cm_ops cm = { .disconnect = cm_disconnect, .lsmm_done = cm_lsmm_done };

static void use_tables(struct rand_gen *g)
{
	static const u8 mac[6] = { 2, 4, 6 };
	u32 addr[4] = { (u32)rand_gen_below(g, 50) };
	u16 number = (u16)(1 + rand_gen_below(g, 20));
	struct irdma_puda_buf *buf = rnic_buf_get(&fake.dev->vsi, 20);
	u8 got[6];
	int i;

	assert_int_equal(rnic_apbvt_add(fake.dev, true, addr, &number, false), 0);
	i = rnic_arp_set(fake.dev, true, addr, mac);
	if (rnic_arp_mac(fake.dev, i, got) == 0)
		assert_memory_equal(got, mac, 6);
	rnic_arp_find(fake.dev, true, addr);
	if (rand_gen_chance(g, 0.02))
		rnic_arp_flush(fake.dev);
	rnic_buf_hold(buf);
	rnic_buf_put(buf);
	rnic_buf_put(buf);
	rnic_apbvt_del(fake.dev, true, addr, number);
}

/* A reply, then bytes in: zero-length Writes, or rubbish. */
static int take_over(struct rand_gen *g, struct irdma_qp *qp)
{
	static const struct port_ah_attr attr = { .ttl = 64 };
	struct rnic_iwarp_info iw = { .crc = true, .lsmm = "reply", .lsmm_len = 5, .rtr_timeout_ms = 1 };
	u8 bytes[200] = { 0 };
	struct tcp_info_ho tcp = { .rx_data = bytes, .rx_len = (u32)rand_gen_below(g, sizeof(bytes)),
				   .peer_fin = rand_gen_chance(g, 0.2) };
	static const u8 write[DDP_TAGGED_HDR] = { 0xC1, 0x40 };
	struct irdma_sc_ah ah;
	struct mpa_stream s;
	int rc, pos = 0;

	mpa_stream_init(&s, true, false);
	while (pos < 100)
		pos += mpa_fpdu_build(&s, write, sizeof(write), bytes + pos, sizeof(bytes) - (u32)pos);
	iw.rtr = rand_gen_chance(g, 0.5) ? RDMAP_RTR_WRITE : 0;
	assert_int_equal(rnic_ah_create(fake.dev, &attr, &ah), 0);
	rc = rnic_qp_offload(qp, &ah, &tcp, &iw);
	rnic_ah_destroy(fake.dev, &ah);
	return rc;
}

static void one_life(struct rand_gen *g)
{
	struct irdma_qp *qp, *found;

	assert_int_equal(rnic_qp_create(fake.dev, &qp), 0);
	while (take_over(g, qp) == -ENOMEM)
		sched_yield(); /* the loop's thread is behind */
	if (rand_gen_chance(g, 0.3))
		sched_yield();
	if (rand_gen_chance(g, 0.5))
		rnic_qp_modify(qp, rand_gen_chance(g, 0.5) ? RNIC_QP_CLOSING : RNIC_QP_ERROR);
	found = rnic_qp_find(fake.dev, qp->qp_num);
	assert_ptr_equal(found, qp);
	rnic_qp_put(found);
	if (rand_gen_chance(g, 0.2))
		rnic_qp_release_stream(qp);
	rnic_qp_destroy(qp);
}

static void *user(void *arg)
{
	struct rand_gen g;

	rand_gen_seed(&g, (uintptr_t)arg);
	for (int i = 0; i < ROUNDS; i++) {
		one_life(&g);
		use_tables(&g);
	}
	users_left--;
	return NULL;
}

static void many_threads(void **state)
{
	pthread_t threads[USERS];
	struct rand_gen g;

	fake_open(&fake, NULL);
	ops = fake_ops;
	ops.offload = mt_offload;
	ops.stream_close = mt_close;
	ops.stream_drain = mt_drain;
	fake.port.ops = &ops;
	fake.dev->cm_ops = &cm;
	users_left = USERS;
	rand_gen_seed(&g, 99);
	for (uintptr_t i = 0; i < USERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, user, (void *)(i + 1)), 0);
	while (users_left || __atomic_load_n(&fake.streams_open, __ATOMIC_RELAXED)) {
		loop_enter(&fake.loop);
		for (int i = 0; i < 4; i++)
			deliver((int)rand_gen_below(&g, SLOTS), (u32)rand_gen_below(&g, rand_gen_chance(&g, 0.1) ? 32 : 4));
		loop_leave(&fake.loop);
		loop_set_now(&fake.loop, loop_now(&fake.loop) + 50 * NSEC_PER_USEC);
		loop_run(&fake.loop);
	}
	for (int i = 0; i < USERS; i++)
		pthread_join(threads[i], NULL);
	assert_true(disconnects > 0 && disconnects <= USERS * ROUNDS);
	assert_true(lsmm_dones > 0 && lsmm_dones <= USERS * ROUNDS);
	fake_close_all(&fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
