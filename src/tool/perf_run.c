// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: the tests of `uwarp perf`, both roles.
 *
 * latency, send: a message there, one back. latency, write: a Write there, whose last byte tells the server, and a Write back.
 * latency, read: one Read after the other. bandwidth: @depth messages under way. As a program does that wants speed, work requests
 * are posted in lists, one of a list completes for all, and the completions that are there are taken together. For Sends the server has several depths of
 * receives, and gives a credit for each depth that it has posted anew, because iWARP knows no "receiver not ready". A bandwidth test of
 * Sends and Writes ends with a message there and one back: until then nobody knows that everything has arrived.
 */
#include <stdlib.h>
#include "tool/perf.h"

/* Until a receive has completed. */
static int await_message(struct perf_end *e)
{
	int err = 0;

	while (!e->acked && !err)
		err = perf_progress(e);
	if (e->acked) {
		e->acked--;
		err = 0;
	}
	return err;
}

static int await_sends(struct perf_end *e, u32 most)
{
	int err = 0;

	while (e->sends > most && !err)
		err = perf_progress(e);
	return e->sends > most ? err : 0; /* that the peer has gone meanwhile, whoever needs it is told next */
}

/* ---- latency ---- */

/* The last byte of round @n, never that of the round before. */
static u8 mark(u64 n)
{
	return (u8)(1 + n % 255);
}

static int await_mark(struct perf_end *e, u64 n)
{
	const u8 *last = e->buf + 2ull * e->test.size - 1;
	int err = 0;

	while (__atomic_load_n(last, __ATOMIC_ACQUIRE) != mark(n) && !err)
		err = perf_spin(e); /* nothing wakes who waits for a Write */
	return err;
}

static int write_mark(struct perf_end *e, u64 n)
{
	int err = await_sends(e, 0); /* the buffer is the one before's until then */

	e->buf[e->test.size - 1] = mark(n);
	return err ? err : perf_post(e, IBV_WR_RDMA_WRITE, e->test.size, 1);
}

/* There is a receive for the answer since the round before; the next one's is posted while the peer is at work. */
static int round_send(struct perf_end *e, u64 n)
{
	int err = n ? 0 : perf_post_recv(e, 1);

	if (!err)
		err = perf_post(e, IBV_WR_SEND, e->test.size, 1);
	if (!err)
		err = perf_post_recv(e, 1);
	return err ? err : await_message(e);
}

static int round_write(struct perf_end *e, u64 n)
{
	int err = write_mark(e, n);

	return err ? err : await_mark(e, n);
}

static int round_read(struct perf_end *e)
{
	int err = perf_post(e, IBV_WR_RDMA_READ, e->test.size, 1);

	return err ? err : await_sends(e, 0);
}

/**
 * perf_round_trip() - one round trip of a latency test
 * @e: the client's end
 * @n: its number, from 0
 *
 * Return: 0, or as perf_progress().
 */
int perf_round_trip(struct perf_end *e, u64 n)
{
	if (e->sends >= e->test.depth && await_sends(e, 0))
		return e->error;
	switch (e->test.verb) {
	case PERF_SEND:
		return round_send(e, n);
	case PERF_WRITE:
		return round_write(e, n);
	default:
		return round_read(e);
	}
}

static int latency(struct perf_end *e, struct perf_result *out)
{
	u64 n, then = loop_monotonic_ns(), now, begun = then;
	int err = 0;

	out->ns = malloc(min(e->test.count, (u64)PERF_SAMPLES) * sizeof(*out->ns));
	if (!out->ns)
		return -ENOMEM;
	for (n = 0; n < e->test.count && !err; n++) {
		err = perf_round_trip(e, n);
		now = loop_monotonic_ns();
		if (!err && out->samples < PERF_SAMPLES)
			out->ns[out->samples++] = (u32)min(now - then, (u64)UINT32_MAX);
		out->done += !err;
		then = now;
	}
	out->seconds = (double)(then - begun) / 1e9;
	return err;
}

/* ---- bandwidth ---- */

/* The last word, and its echo. */
static int finish(struct perf_end *e)
{
	int err = perf_post_recv(e, 1);

	if (!err)
		err = await_sends(e, e->test.depth);
	if (!err)
		err = perf_post(e, IBV_WR_SEND, 0, 1);
	return err ? err : await_message(e);
}

static enum ibv_wr_opcode opcode_of(const struct perf_test *t)
{
	static const enum ibv_wr_opcode ops[PERF_VERBS] = {
		[PERF_SEND] = IBV_WR_SEND, [PERF_WRITE] = IBV_WR_RDMA_WRITE, [PERF_READ] = IBV_WR_RDMA_READ,
	};

	return ops[t->verb];
}

/* As many of the rest as queue and credits allow. */
static int post_some(struct perf_end *e, u64 *posted, u64 allowed)
{
	u64 n = min(min(allowed, e->test.count) - *posted, (u64)(e->test.depth - e->sends));

	*posted += n;
	return perf_post(e, opcode_of(&e->test), e->test.size, (u32)n);
}

/* Credits that have come; each makes room for its successor. */
static int take_credits(struct perf_end *e, u64 *got)
{
	int err = 0;

	for (; e->acked && !err; e->acked--) {
		(*got)++;
		err = perf_post_recv(e, 1);
	}
	return err;
}

/* Credits may still come in front of the echo. */
static int await_echo(struct perf_end *e, u64 credits)
{
	int err = finish(e);

	for (; credits && !err; credits--)
		err = await_message(e);
	return err;
}

static int bandwidth(struct perf_end *e, struct perf_result *out)
{
	u64 begun = loop_monotonic_ns(), posted = 0, got = 0, per = e->test.depth, all = 0;
	int err = 0;

	if (e->test.verb == PERF_SEND) {
		all = e->test.count / per;
		err = perf_post_recv(e, PERF_CREDITS);
	}
	while (posted < e->test.count && !err) {
		err = post_some(e, &posted, all ? perf_window(&e->test) + got * per : UINT64_MAX);
		if (!err)
			err = perf_progress(e);
		if (!err)
			err = take_credits(e, &got);
	}
	if (!err && e->test.verb != PERF_READ)
		err = await_echo(e, all - got);
	if (!err)
		err = await_sends(e, 0);
	out->done = err ? 0 : posted;
	out->seconds = (double)(loop_monotonic_ns() - begun) / 1e9;
	return err;
}

/* ---- roles ---- */

static int compare(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

/**
 * perf_client() - run the test of an end whose connection is established
 * @e: the end
 * @out: what was measured, also after an error
 *
 * Return: 0, or as perf_progress().
 */
int perf_client(struct perf_end *e, struct perf_result *out)
{
	int err;

	*out = (struct perf_result){ 0 };
	err = e->test.kind == PERF_LATENCY ? latency(e, out) : bandwidth(e, out);
	if (out->samples)
		qsort(out->ns, out->samples, sizeof(*out->ns), compare);
	return err;
}

static int serve_latency(struct perf_end *e)
{
	u64 n;
	int err = 0;

	for (n = 0; n < e->test.count && !err; n++) {
		if (e->test.verb == PERF_WRITE) {
			err = await_mark(e, n);
			if (!err)
				err = write_mark(e, n);
			continue;
		}
		err = await_message(e);
		if (!err)
			err = await_sends(e, e->test.depth);
		if (!err)
			err = perf_post(e, IBV_WR_SEND, e->test.size, 1);
		if (!err)
			err = perf_post_recv(e, 1);
	}
	return err;
}

/* All messages that have come, their receives posted anew. */
static int take_messages(struct perf_end *e, u64 *n)
{
	u32 got = (u32)min((u64)e->acked, e->test.count - *n); /* the last word is none of them */

	e->acked -= got;
	*n += got;
	return perf_post_recv(e, got);
}

static int serve_sends(struct perf_end *e)
{
	u64 n = 0, credits = 0;
	int err = 0;

	while (n < e->test.count && !err) {
		err = perf_progress(e);
		if (!err)
			err = take_messages(e, &n);
		for (; !err && n / e->test.depth > credits; credits++) {
			err = await_sends(e, e->test.depth);
			if (!err)
				err = perf_post(e, IBV_WR_SEND, 0, 1);
		}
	}
	return err;
}

/**
 * perf_server() - the other role
 * @e: the end, whose receives were posted before it accepted
 *
 * Return: 0: everything was served; otherwise as perf_progress().
 */
int perf_server(struct perf_end *e)
{
	int err = 0;

	if (e->test.verb == PERF_READ)
		return 0; /* the NIC serves it */
	if (e->test.kind == PERF_LATENCY)
		return serve_latency(e);
	if (e->test.verb == PERF_SEND)
		err = serve_sends(e);
	if (!err)
		err = await_message(e);
	if (!err)
		err = perf_post(e, IBV_WR_SEND, 0, 1);
	return err ? err : await_sends(e, 0);
}
