/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two tsa back to back over a link that delays, loses, reorders and duplicates:
 *
 *   end[0] -- tsa A == link ==> tsa B -- end[1]
 *
 * Every byte must arrive exactly once and in order, and nothing may be left when both ends are closed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tsa/tsa_internal.h"

#define MSS 1000

struct flight {
	TAILQ_ENTRY(flight) entry;
	u64 due_ns;
	int to;
	u32 len;
	u8 frame[];
};

TAILQ_HEAD(flight_list, flight);

struct end {
	struct world *w;
	int me;
	struct tsa *tsa;
	struct tsa_conn *conn;
	u64 to_send, sent, received;
	u64 read_per_event;      /* 0: all */
	u32 events;
	bool reading;
	bool shut_when_sent;     /* tsa_shutdown() behind the last byte */
	bool close_on_eof;
	bool closed, eof, reset;
	bool in_event;
};

struct world {
	struct loop loop;
	struct rand_gen rand;
	double loss, dup, reorder;
	u64 latency_ns, jitter_ns;
	struct flight_list link;
	struct end end[2];
	u64 segments;
	u32 drop_nth, drop_dir;  /* drop exactly this segment (from 1) of that direction */
	u32 count[2];
};

static u8 pattern(int from, u64 at)
{
	return (u8)(at * 31 + (at >> 8) * 7 + (at >> 16) + (u64)from * 101);
}

static void enqueue(struct world *w, int to, const u8 *frame, u32 len)
{
	struct flight *f = malloc(sizeof(*f) + len), *at;

	assert_non_null(f);
	f->due_ns = loop_now(&w->loop) + w->latency_ns + rand_gen_below(&w->rand, w->jitter_ns + 1);
	if (rand_gen_chance(&w->rand, w->reorder))
		f->due_ns += rand_gen_below(&w->rand, 3 * w->latency_ns + 1);
	f->to = to;
	f->len = len;
	memcpy(f->frame, frame, len);
	TAILQ_FOREACH_REVERSE(at, &w->link, flight_list, entry)
		if (at->due_ns <= f->due_ns)
			break;
	if (at)
		TAILQ_INSERT_AFTER(&w->link, at, f, entry);
	else
		TAILQ_INSERT_HEAD(&w->link, f, entry);
}

static void output(void *ctx, const struct pkt_route *r, u8 *tcp, u32 len)
{
	struct end *e = ctx;
	struct world *w = e->w;
	u8 *frame = pkt_push_headers(r, tcp, len, 0);
	u32 framelen = len + pkt_header_len(r);

	assert_true(len >= PKT_TCP_LEN && len <= PKT_TCP_LEN + MSS);
	w->segments++;
	if (++w->count[e->me] == w->drop_nth && w->drop_dir == (u32)e->me)
		return;
	if (rand_gen_chance(&w->rand, w->loss))
		return;
	enqueue(w, !e->me, frame, framelen);
	if (rand_gen_chance(&w->rand, w->dup))
		enqueue(w, !e->me, frame, framelen);
}

static void pump_out(struct end *e)
{
	u8 buf[5000];
	ssize_t ret = 1;
	u32 i, n;

	while (e->conn && e->sent < e->to_send && ret > 0) {
		struct iovec iov[2];

		n = (u32)min(e->to_send - e->sent, 1 + rand_gen_below(&e->w->rand, sizeof(buf)));
		for (i = 0; i < n; i++)
			buf[i] = pattern(e->me, e->sent + i);
		iov[0] = (struct iovec){ buf, n / 3 };
		iov[1] = (struct iovec){ buf + n / 3, n - n / 3 };
		ret = tsa_sendv(e->conn, iov, 2);
		assert_true(ret > 0 || ret == -EAGAIN || e->reset);
		if (ret > 0)
			e->sent += (u64)ret;
	}
	if (e->conn && e->sent == e->to_send && e->shut_when_sent)
		assert_int_equal(tsa_shutdown(e->conn), 0);
}

static void close_end(struct end *e)
{
	struct tsa_conn *c = e->conn;

	e->conn = NULL;
	tsa_close(c);
}

static void pump_in(struct end *e)
{
	u64 left = e->read_per_event ? e->read_per_event : UINT64_MAX;
	u8 buf[3000];
	ssize_t ret, i;

	while (left && e->conn) {
		struct iovec iov[2] = { { buf, 7 }, { buf + 7, sizeof(buf) - 7 } };

		ret = tsa_recvv(e->conn, iov, 2);
		if (ret == 0)
			e->eof = true;
		if (ret <= 0)
			break;
		for (i = 0; i < ret; i++)
			assert_int_equal(buf[i], pattern(!e->me, e->received + (u64)i));
		e->received += (u64)ret;
		left -= min(left, (u64)ret);
	}
}

static void close_if_done(struct end *e)
{
	if (e->conn && e->eof && e->close_on_eof && e->sent == e->to_send)
		close_end(e);
}

static void event(void *ctx, u32 events)
{
	struct end *e = ctx;

	assert_false(e->in_event);
	e->in_event = true;
	e->events |= events;
	e->closed |= !!(events & TSA_CLOSED);
	e->reset |= !!(events & TSA_RESET);
	if (events & TSA_WRITABLE)
		pump_out(e);
	if (e->reading && (events & (TSA_READABLE | TSA_EOF)))
		pump_in(e);
	close_if_done(e);
	e->in_event = false;
}

static const struct tsa_conn_up conn_up = { .event = event };

static void world_up(struct world *w, u64 seed, const struct tsa_config *cfg)
{
	static const struct tsa_up up = { .output = output };
	int i;

	*w = (struct world){ .latency_ns = NSEC_PER_MSEC };
	rand_set_seed(seed);
	rand_gen_seed(&w->rand, seed);
	loop_init(&w->loop, NSEC_PER_SEC);
	TAILQ_INIT(&w->link);
	for (i = 0; i < 2; i++) {
		w->end[i] = (struct end){ .w = w, .me = i, .reading = true };
		assert_int_equal(tsa_create(&w->loop, cfg, &up, &w->end[i], &w->end[i].tsa), 0);
	}
}

static void connect_ends(struct world *w, u32 isn_a, u32 isn_b, u8 wscale)
{
	u32 isn[2] = { isn_a, isn_b };
	int i;

	for (i = 0; i < 2; i++) {
		struct tcp_info_ho info = {
			.tuple = { .loc_addr = { 0x7F000001u + (u32)i }, .rem_addr = { 0x7F000001u + !i },
				   .loc_port = (u16)(1000 + i), .rem_port = (u16)(1000 + !i),
				   .vlan_id = PKT_VLAN_NONE, .ipv4 = true },
			.snd_una = isn[i], .snd_nxt = isn[i], .snd_max = isn[i], .snd_wnd = 20000, .max_snd_wnd = 20000,
			.rcv_nxt = isn[!i], .rcv_wnd = 20000, .snd_wscale = wscale, .rcv_wscale = wscale, .mss = MSS,
		};

		assert_int_equal(tsa_conn_create(w->end[i].tsa, &info, &conn_up, &w->end[i], &w->end[i].conn), 0);
	}
}

static void deliver(struct world *w)
{
	struct flight *f = TAILQ_FIRST(&w->link);
	struct pkt p;

	TAILQ_REMOVE(&w->link, f, entry);
	assert_int_equal(pkt_parse(f->frame, f->len, true, &p), PKT_OK);
	tsa_input(w->end[f->to].tsa, &p);
	free(f);
}

/* Until nothing happens any more, or @until_ns. */
static void run(struct world *w, u64 until_ns)
{
	for (;;) {
		struct flight *f = TAILQ_FIRST(&w->link);
		u64 link_ns = f ? f->due_ns : UINT64_MAX, loop_ns = loop_next_ns(&w->loop);
		u64 next = min(link_ns, loop_ns);

		if (next == UINT64_MAX || next > until_ns)
			break;
		loop_set_now(&w->loop, next);
		if (link_ns <= loop_ns)
			deliver(w);
		else
			loop_run(&w->loop);
	}
	if (until_ns != UINT64_MAX)
		loop_set_now(&w->loop, until_ns);
}

static void run_for(struct world *w, u64 ns) { run(w, loop_now(&w->loop) + ns); }

static size_t conns(const struct end *e)
{
	size_t n;

	tsa_usage(e->tsa, &n, NULL, NULL, NULL);
	return n;
}

static size_t time_waits(const struct end *e)
{
	size_t n;

	tsa_usage(e->tsa, NULL, &n, NULL, NULL);
	return n;
}

static void world_down(struct world *w)
{
	struct flight *f;
	int i;

	for (i = 0; i < 2; i++)
		tsa_destroy(w->end[i].tsa);
	while ((f = TAILQ_FIRST(&w->link))) {
		TAILQ_REMOVE(&w->link, f, entry);
		free(f);
	}
	loop_destroy(&w->loop);
	rand_unset_seed();
}

/* Both ends are closed, all records expired: nothing is left. */
static void assert_empty(struct world *w)
{
	int i;

	run(w, UINT64_MAX);
	for (i = 0; i < 2; i++) {
		int b;

		assert_int_equal(conns(&w->end[i]), 0);
		assert_int_equal(time_waits(&w->end[i]), 0);
		assert_int_equal(w->end[i].tsa->ooo_pool.used, 0);
		for (b = 0; b < TSA_BUF_POOLS; b++)
			assert_int_equal(w->end[i].tsa->buf_pool[b].used, 0);
	}
}

/* @bytes in each direction, closed behind the last. */
static void transfer(struct world *w, u64 bytes_a, u64 bytes_b)
{
	int i;

	w->end[0].to_send = bytes_a;
	w->end[1].to_send = bytes_b;
	for (i = 0; i < 2; i++) {
		w->end[i].shut_when_sent = w->end[i].close_on_eof = true;
		pump_out(&w->end[i]);
	}
	run_for(w, 20000 * NSEC_PER_SEC);
	for (i = 0; i < 2; i++) {
		assert_false(w->end[i].reset);
		assert_int_equal(w->end[i].sent, w->end[i].to_send);
		assert_int_equal(w->end[i].received, w->end[!i].to_send);
		assert_true(w->end[i].eof);
		assert_null(w->end[i].conn);
	}
	assert_empty(w);
}

static void test_clean(void **state)
{
	struct world w;

	world_up(&w, 1, NULL);
	connect_ends(&w, 1000, 5000, 7);
	transfer(&w, 1000000, 300000);
	assert_int_equal(tsa_stats(w.end[0].tsa)->retransmits, 0);
	assert_int_equal(tsa_stats(w.end[1].tsa)->retransmits, 0);
	assert_int_equal(tsa_stats(w.end[0].tsa)->bytes_out, 1000000);
	assert_int_equal(tsa_stats(w.end[1].tsa)->bytes_in, 1000000);
	world_down(&w);
}

/* Sequence numbers that wrap in both directions, windows with and without scale. */
static void test_faults(void **state)
{
	u64 seed;

	for (seed = 1; seed <= 60; seed++) {
		struct world w;

		world_up(&w, seed, NULL);
		w.loss = 0.2;
		w.reorder = 0.2;
		w.dup = 0.1;
		w.jitter_ns = 100 * NSEC_PER_USEC;
		connect_ends(&w, (u32)-20000, (u32)-3000, seed % 3 ? 0 : 9);
		transfer(&w, 60000, seed % 2 ? 0 : 40000);
		world_down(&w);
	}
}

static void test_small_buffers(void **state)
{
	struct tsa_config cfg = {
		.send_buf = 1500, .recv_buf = 2000, .min_rto_ns = 200 * NSEC_PER_MSEC, .max_rto_ns = 2 * NSEC_PER_SEC,
		.max_retries = 30, .time_wait_ns = NSEC_PER_SEC, .max_time_wait = 10,
	};
	u64 seed;

	for (seed = 1; seed <= 20; seed++) {
		struct world w;

		world_up(&w, seed, &cfg);
		w.loss = 0.1;
		w.reorder = 0.3;
		connect_ends(&w, 77, 88, 0);
		transfer(&w, 20000, 20000);
		world_down(&w);
	}
}

/* One hole in a flight is mended without the retransmission timer. */
static void test_fast_retransmit(void **state)
{
	struct world w;

	world_up(&w, 3, NULL);
	w.drop_nth = 30;
	connect_ends(&w, 1, 2, 7);
	transfer(&w, 200000, 0);
	assert_int_equal(tsa_stats(w.end[0].tsa)->fast_retransmits, 1);
	assert_int_equal(tsa_stats(w.end[0].tsa)->rto_fired, 0);
	assert_int_equal(tsa_stats(w.end[0].tsa)->retransmits, 1);
	world_down(&w);
}

/* Drop each segment of a short conversation in turn, in both directions. */
static void test_drop_each(void **state)
{
	u32 nth, dir;

	for (dir = 0; dir < 2; dir++)
		for (nth = 1; nth <= 20; nth++) {
			struct world w;

			world_up(&w, nth, NULL);
			w.drop_nth = nth;
			w.drop_dir = dir;
			connect_ends(&w, 100, 200, 0);
			transfer(&w, 7000, 2500);
			world_down(&w);
		}
}

/* A reader who stops: the window closes, probes keep it alive, and all arrives when the reader goes on. */
static void zero_window(u64 seed, double loss)
{
	struct world w;
	u64 stalled;

	world_up(&w, seed, NULL);
	connect_ends(&w, 1, 2, 3);
	w.end[1].reading = false;
	w.end[0].to_send = 900000;
	pump_out(&w.end[0]);
	run_for(&w, 30 * NSEC_PER_SEC);
	assert_true(tsa_stats(w.end[0].tsa)->window_probes >= 3);
	assert_true(w.end[1].conn->rcv.len <= w.end[1].conn->rcv_cap);
	assert_true(w.end[1].conn->rcv.len > w.end[1].conn->rcv_cap - 2 * MSS);
	stalled = w.segments;
	run_for(&w, 3600 * NSEC_PER_SEC); /* for as long as it takes (RFC 1122 4.2.2.17) */
	assert_true(w.segments - stalled < 300);
	assert_false(w.end[0].reset);

	w.loss = loss;
	w.end[1].reading = true;
	pump_in(&w.end[1]);
	transfer(&w, 900000, 0);
	world_down(&w);
}

static void test_zero_window(void **state)
{
	u64 seed;

	zero_window(1, 0);
	for (seed = 2; seed < 12; seed++)
		zero_window(seed, 0.2);
}

/* The one ACK that opens the window is lost: the next probe finds it open. */
static void test_window_update_lost(void **state)
{
	struct world w;

	world_up(&w, 1, NULL);
	connect_ends(&w, 1, 2, 3);
	w.end[1].reading = false;
	w.end[0].to_send = 600000;
	pump_out(&w.end[0]);
	run_for(&w, 30 * NSEC_PER_SEC);
	w.loss = 1;
	w.end[1].reading = true;
	pump_in(&w.end[1]);
	w.loss = 0;
	run_for(&w, 200 * NSEC_PER_SEC);
	assert_int_equal(w.end[1].received, 600000);
	world_down(&w);
}

/* A reader who takes little at a time must not cause small segments (silly window). */
static void test_silly_window(void **state)
{
	struct world w;
	u64 rounds = 0;

	world_up(&w, 1, NULL);
	connect_ends(&w, 1, 2, 0);
	w.end[1].reading = false;
	w.end[1].read_per_event = 3000;
	w.end[0].to_send = 1000000;
	pump_out(&w.end[0]);
	while (w.end[1].received < 1000000 && rounds++ < 100000) {
		run_for(&w, NSEC_PER_MSEC);
		pump_in(&w.end[1]);
	}
	assert_int_equal(w.end[1].received, 1000000);
	assert_true(tsa_stats(w.end[0].tsa)->segs_out < 1400);
	world_down(&w);
}

/* ---- the end, in all orders ---- */

static void test_half_close(void **state)
{
	struct world w;

	world_up(&w, 1, NULL);
	connect_ends(&w, 1, 2, 0);
	assert_int_equal(tsa_shutdown(w.end[0].conn), 0);
	assert_int_equal(tsa_sendv(w.end[0].conn, &(struct iovec){ (void *)"x", 1 }, 1), -EPIPE);
	run_for(&w, NSEC_PER_SEC);
	assert_int_equal(w.end[0].conn->state, TSA_ST_FIN_WAIT2);
	assert_int_equal(w.end[1].conn->state, TSA_ST_CLOSE_WAIT);
	assert_true(w.end[1].eof);
	assert_false(w.end[0].closed);
	/* The other direction stays open for as long as it wants. */
	run_for(&w, 1000 * NSEC_PER_SEC);
	w.end[1].to_send = 50000;
	pump_out(&w.end[1]);
	run_for(&w, 10 * NSEC_PER_SEC);
	assert_int_equal(w.end[0].received, 50000);
	assert_int_equal(tsa_shutdown(w.end[1].conn), 0);
	assert_int_equal(w.end[1].conn->state, TSA_ST_LAST_ACK);
	run_for(&w, NSEC_PER_SEC);
	assert_true(w.end[0].closed && w.end[1].closed);
	assert_int_equal(w.end[0].conn->state, TSA_ST_TIME_WAIT);
	assert_int_equal(w.end[1].conn->state, TSA_ST_CLOSED);
	assert_int_equal(time_waits(&w.end[0]), 1);
	assert_int_equal(time_waits(&w.end[1]), 0);
	assert_int_equal(tsa_recvv(w.end[0].conn, &(struct iovec){ &w, 0 }, 1), 0);
	close_end(&w.end[0]);
	close_end(&w.end[1]);
	assert_empty(&w);
	world_down(&w);
}

static void test_simultaneous_close(void **state)
{
	u64 seed;

	for (seed = 1; seed < 30; seed++) {
		struct world w;
		int i;

		world_up(&w, seed, NULL);
		connect_ends(&w, 1, 2, 0);
		w.loss = seed == 1 ? 0 : 0.2;
		for (i = 0; i < 2; i++)
			assert_int_equal(tsa_shutdown(w.end[i].conn), 0);
		for (i = 0; i < 2; i++)
			assert_int_equal(w.end[i].conn->state, TSA_ST_FIN_WAIT1);
		if (seed == 1)
			run_for(&w, NSEC_PER_SEC);
		if (seed == 1)
			assert_int_equal(time_waits(&w.end[0]) + time_waits(&w.end[1]), 2);
		run_for(&w, 600 * NSEC_PER_SEC);
		for (i = 0; i < 2; i++) {
			assert_true(w.end[i].closed && w.end[i].eof);
			assert_int_equal(w.end[i].conn->error, 0);
		}
		close_end(&w.end[0]);
		close_end(&w.end[1]);
		assert_empty(&w);
		world_down(&w);
	}
}

/* tsa_close() on both sides, at any time relative to each other, with data in between. */
static void test_close_orders(void **state)
{
	u64 seed;

	for (seed = 1; seed < 60; seed++) {
		struct world w;
		int first;

		world_up(&w, seed, NULL);
		connect_ends(&w, 1, 2, 0);
		w.loss = 0.1;
		first = (int)(seed & 1);
		w.end[first].to_send = seed * 100;
		pump_out(&w.end[first]);
		run_for(&w, rand_gen_below(&w.rand, 4 * NSEC_PER_MSEC));
		close_end(&w.end[first]);
		run_for(&w, rand_gen_below(&w.rand, 4 * NSEC_PER_MSEC));
		w.end[!first].close_on_eof = true;
		if (seed % 3)
			close_if_done(&w.end[!first]);
		else
			close_end(&w.end[!first]);
		run_for(&w, 4000 * NSEC_PER_SEC);
		if (seed % 3) {
			assert_int_equal(w.end[!first].received, seed * 100);
			assert_null(w.end[!first].conn);
		}
		assert_empty(&w);
		world_down(&w);
	}
}

/* Unread bytes at tsa_close(), or bytes that come after it: the peer hears of it. */
static void test_close_unread(void **state)
{
	struct world w;
	int late;

	for (late = 0; late < 2; late++) {
		world_up(&w, 1, NULL);
		connect_ends(&w, 1, 2, 0);
		w.end[1].reading = false;
		w.end[0].to_send = 500;
		if (late)
			close_end(&w.end[1]);
		pump_out(&w.end[0]);
		run_for(&w, NSEC_PER_SEC);
		if (!late)
			close_end(&w.end[1]);
		run_for(&w, NSEC_PER_SEC);
		assert_true(w.end[0].reset);
		assert_int_equal(tsa_error(w.end[0].conn), -ECONNRESET);
		assert_int_equal(tsa_sendv(w.end[0].conn, &(struct iovec){ (void *)"x", 1 }, 1), -ECONNRESET);
		assert_int_equal(conns(&w.end[1]), 0);
		close_end(&w.end[0]);
		assert_empty(&w);
		world_down(&w);
	}
}

static void test_abort(void **state)
{
	struct world w;
	u8 buf[10];

	world_up(&w, 1, NULL);
	connect_ends(&w, 1, 2, 0);
	w.end[1].reading = false;
	w.end[0].to_send = 5;
	pump_out(&w.end[0]);
	run_for(&w, NSEC_PER_SEC);
	tsa_abort(w.end[0].conn);
	tsa_abort(w.end[0].conn);
	assert_int_equal(w.end[0].events, 0);
	run_for(&w, NSEC_PER_SEC);
	assert_int_equal(w.end[0].events, 0);
	assert_true(w.end[1].reset);
	/* What came before can still be read. */
	assert_int_equal(tsa_recvv(w.end[1].conn, &(struct iovec){ buf, sizeof(buf) }, 1), 5);
	assert_int_equal(tsa_recvv(w.end[1].conn, &(struct iovec){ buf, sizeof(buf) }, 1), -ECONNRESET);
	close_end(&w.end[0]);
	close_end(&w.end[1]);
	assert_empty(&w);
	world_down(&w);
}

/* The peer is gone: RTO doubles, and after max_retries the owner hears -ETIMEDOUT. */
static void test_gives_up(void **state)
{
	struct tsa_config cfg = {
		.send_buf = 10000, .recv_buf = 10000, .min_rto_ns = 200 * NSEC_PER_MSEC, .max_rto_ns = 60 * NSEC_PER_SEC,
		.max_retries = 4, .time_wait_ns = NSEC_PER_SEC, .max_time_wait = 10,
	};
	struct world w;

	world_up(&w, 1, &cfg);
	connect_ends(&w, 1, 2, 0);
	w.loss = 1;
	w.end[0].to_send = 5;
	pump_out(&w.end[0]);
	run_for(&w, 30 * NSEC_PER_SEC); /* 1 + 2 + 4 + 8 + 16 = 31 */
	assert_int_equal(tsa_stats(w.end[0].tsa)->retransmits, 4);
	assert_false(w.end[0].reset);
	run_for(&w, 2 * NSEC_PER_SEC);
	assert_true(w.end[0].reset);
	assert_int_equal(tsa_error(w.end[0].conn), -ETIMEDOUT);
	close_end(&w.end[0]);
	assert_int_equal(conns(&w.end[0]), 0);
	world_down(&w);
}

/* Nobody owns either side, the peer is silent: it still ends. */
static void test_orphans_end(void **state)
{
	struct world w;

	world_up(&w, 1, NULL);
	connect_ends(&w, 1, 2, 0);
	close_end(&w.end[0]);
	run_for(&w, NSEC_PER_SEC);
	assert_int_equal(conns(&w.end[0]), 1); /* FIN_WAIT2 */
	run_for(&w, 58 * NSEC_PER_SEC);
	assert_int_equal(conns(&w.end[0]), 1);
	run_for(&w, 2 * NSEC_PER_SEC);
	assert_int_equal(conns(&w.end[0]), 0);
	close_end(&w.end[1]); /* its FIN is not answered: there is no host behind this tsa */
	run_for(&w, 3000 * NSEC_PER_SEC);
	assert_empty(&w);

	/* The same with data that meets a closed window. */
	connect_ends(&w, 1, 2, 0);
	w.end[1].reading = false;
	w.end[0].to_send = 400000;
	pump_out(&w.end[0]);
	run_for(&w, 10 * NSEC_PER_SEC);
	close_end(&w.end[0]);
	run_for(&w, 3000 * NSEC_PER_SEC);
	assert_int_equal(conns(&w.end[0]), 0);
	assert_true(w.end[1].reset);
	close_end(&w.end[1]);
	assert_empty(&w);
	world_down(&w);
}

static void test_same_seed_same_run(void **state)
{
	u64 segments[2], now[2];
	int i;

	for (i = 0; i < 2; i++) {
		struct world w;

		world_up(&w, 42, NULL);
		w.loss = w.reorder = 0.2;
		connect_ends(&w, 1, 2, 0);
		transfer(&w, 100000, 100000);
		segments[i] = w.segments;
		now[i] = loop_now(&w.loop);
		world_down(&w);
	}
	assert_int_equal(segments[0], segments[1]);
	assert_int_equal(now[0], now[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clean),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_small_buffers),
		cmocka_unit_test(test_fast_retransmit),
		cmocka_unit_test(test_drop_each),
		cmocka_unit_test(test_zero_window),
		cmocka_unit_test(test_window_update_lost),
		cmocka_unit_test(test_silly_window),
		cmocka_unit_test(test_half_close),
		cmocka_unit_test(test_simultaneous_close),
		cmocka_unit_test(test_close_orders),
		cmocka_unit_test(test_close_unread),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_gives_up),
		cmocka_unit_test(test_orphans_end),
		cmocka_unit_test(test_same_seed_same_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
