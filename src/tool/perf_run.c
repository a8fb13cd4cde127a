// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: the tests of `uwarp perf`, both roles.
 *
 * latency, send: a message there, one back. latency, write: a Write there, whose last byte tells the server, and a Write back.
 * latency, read: one Read after the other. bandwidth: @depth messages under way; for Sends the server gives credits of half a
 * depth, because iWARP knows no "receiver not ready". A bandwidth test of Sends and Writes ends with a message there
 * and one back: until then nobody knows that everything has arrived.
 */
#include <stdlib.h>
#include "tool/perf.h"

#define CREDITS_MAX 4 /* under way: a depth is two of them, or one if it is odd */

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
	return err;
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
	return err ? err : perf_post(e, IBV_WR_RDMA_WRITE, e->test.size);
}

static int round_send(struct perf_end *e)
{
	int err = perf_post_recv(e, 1);

	if (!err)
		err = perf_post(e, IBV_WR_SEND, e->test.size);
	return err ? err : await_message(e);
}

static int round_write(struct perf_end *e, u64 n)
{
	int err = write_mark(e, n);

	return err ? err : await_mark(e, n);
}

static int round_read(struct perf_end *e)
{
	int err = perf_post(e, IBV_WR_RDMA_READ, e->test.size);

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
		return round_send(e);
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

static u32 credit_size(const struct perf_test *t)
{
	return max(t->depth / 2, 1u);
}

/* The last word, and its echo. */
static int finish(struct perf_end *e)
{
	int err = perf_post_recv(e, 1);

	if (!err)
		err = await_sends(e, e->test.depth);
	if (!err)
		err = perf_post(e, IBV_WR_SEND, 0);
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
static int post_some(struct perf_end *e, u64 *posted, u64 *allowed)
{
	int err = 0;

	while (!err && e->sends < e->test.depth && *posted < min(*allowed, e->test.count)) {
		err = perf_post(e, opcode_of(&e->test), e->test.size);
		*posted += !err;
	}
	return err;
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
	u64 begun = loop_monotonic_ns(), posted = 0, got = 0, per = credit_size(&e->test), all = 0, allowed;
	int err = 0;

	if (e->test.verb == PERF_SEND) {
		all = e->test.count / per;
		err = perf_post_recv(e, CREDITS_MAX);
	}
	while (posted < e->test.count && !err) {
		allowed = all ? e->test.depth + got * per : UINT64_MAX;
		err = post_some(e, &posted, &allowed);
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
			err = perf_post_recv(e, 1);
		if (!err)
			err = await_sends(e, e->test.depth);
		if (!err)
			err = perf_post(e, IBV_WR_SEND, e->test.size);
	}
	return err;
}

static int serve_sends(struct perf_end *e)
{
	u32 since = 0;
	u64 n;
	int err = 0;

	for (n = 0; n < e->test.count && !err; n++) {
		err = await_message(e);
		if (!err)
			err = perf_post_recv(e, 1);
		if (err || ++since < credit_size(&e->test))
			continue;
		since = 0;
		err = await_sends(e, e->test.depth);
		if (!err)
			err = perf_post(e, IBV_WR_SEND, 0);
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
		err = perf_post(e, IBV_WR_SEND, 0);
	return err ? err : await_sends(e, 0);
}
