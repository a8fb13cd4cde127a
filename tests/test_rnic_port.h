/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A port for tests of the NIC: streams are two byte buffers, and the test plays the peer. It keeps the rule of
 * all ports: events go up from fake_event() alone, which the test calls.
 */
#ifndef UWARP_TEST_RNIC_PORT_H
#define UWARP_TEST_RNIC_PORT_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "rnic/rnic.h"

struct port_stream {
	struct fake *fake;
	const struct port_stream_up *up;
	void *ctx;
	u8 *in, *out;             /* from and to the peer */
	size_t in_len, in_off, out_len;
	size_t room;              /* bytes that it takes before it is full */
	int send_error, recv_error, error;
	bool peer_fin, shut, aborted;
	int recvs;
};

struct port_ah { int dummy; };
struct port_filter { int dummy; };

struct fake {
	struct port port;
	struct loop loop;
	struct irdma_device *dev;
	struct port_stream *stream; /* the newest */
	int streams_open, ahs_open, unplugged;
	int offload_error, reserve_error, ah_error;
	size_t room;              /* of new streams */
	/* the newest frame */
	u8 sent[2048];
	u32 sent_len;
	bool sent_ah;
	int reserved, released, kicked;
	int drains;               /* streams that were drained, not just closed, */
	u8 *rest;                 /* and what the last one was given to say */
	u32 rest_len;
};

static inline struct fake *fake_of(struct port *p)
{
	return container_of(p, struct fake, port);
}

static void fake_unplug(struct port *p)
{
	fake_of(p)->unplugged++;
}

static int fake_tx(struct port *p, const void *frame, u32 len)
{
	struct fake *f = fake_of(p);

	if (len > sizeof(f->sent))
		return -EMSGSIZE;
	memcpy(f->sent, frame, len);
	f->sent_len = len;
	f->sent_ah = false;
	return 0;
}

static int fake_tx_ah(struct port *p, struct port_ah *ah, const void *seg, u32 len)
{
	int rc = fake_tx(p, seg, len);

	fake_of(p)->sent_ah = true;
	return rc;
}

static int fake_ah_create(struct port *p, const struct port_ah_attr *a, struct port_ah **out)
{
	struct fake *f = fake_of(p);

	if (f->ah_error)
		return f->ah_error;
	*out = calloc(1, sizeof(**out));
	__atomic_fetch_add(&f->ahs_open, 1, __ATOMIC_RELAXED);
	return 0;
}

static void fake_ah_destroy(struct port *p, struct port_ah *ah)
{
	__atomic_fetch_sub(&fake_of(p)->ahs_open, 1, __ATOMIC_RELAXED);
	free(ah);
}

static int fake_filter_add(struct port *p, const struct port_filter_attr *a, struct port_filter **out)
{
	*out = calloc(1, sizeof(**out));
	return 0;
}

static void fake_filter_del(struct port *p, struct port_filter *f)
{
	free(f);
}

static void fake_filter_kick(struct port *p, struct port_filter *f)
{
	fake_of(p)->kicked++;
}

static int fake_reserve(struct port *p, bool ipv4, const u32 *addr, u16 *number, bool shared)
{
	struct fake *f = fake_of(p);

	if (f->reserve_error)
		return f->reserve_error;
	if (!*number)
		*number = (u16)(50000 + f->reserved);
	__atomic_fetch_add(&f->reserved, 1, __ATOMIC_RELAXED);
	return 0;
}

static void fake_release(struct port *p, bool ipv4, const u32 *addr, u16 number)
{
	__atomic_fetch_add(&fake_of(p)->released, 1, __ATOMIC_RELAXED);
}

static int fake_offload(struct port *p, struct port_ah *ah, const struct tcp_info_ho *info, const struct port_stream_up *up,
			void *ctx, struct port_stream **out)
{
	struct fake *f = fake_of(p);
	struct port_stream *s;

	if (f->offload_error)
		return f->offload_error;
	s = calloc(1, sizeof(*s));
	s->fake = f;
	s->up = up;
	s->ctx = ctx;
	s->room = f->room;
	s->peer_fin = info->peer_fin;
	if (info->rx_len) {
		s->in = malloc(info->rx_len);
		memcpy(s->in, info->rx_data, info->rx_len);
		s->in_len = info->rx_len;
	}
	__atomic_store_n(&f->stream, s, __ATOMIC_RELAXED);
	__atomic_fetch_add(&f->streams_open, 1, __ATOMIC_RELAXED);
	if (ah)
		fake_ah_destroy(p, ah);
	*out = s;
	return 0;
}

static ssize_t fake_send(struct port_stream *s, const struct iovec *iov, int n)
{
	size_t len = min(iov->iov_len, s->room);

	if (s->send_error)
		return s->send_error;
	if (s->shut || s->aborted)
		return -EPIPE;
	if (!len)
		return -EAGAIN;
	s->out = realloc(s->out, s->out_len + len);
	memcpy(s->out + s->out_len, iov->iov_base, len);
	s->out_len += len;
	s->room -= len;
	return (ssize_t)len;
}

static ssize_t fake_recv(struct port_stream *s, const struct iovec *iov, int n)
{
	size_t len = min(iov->iov_len, s->in_len - s->in_off);

	s->recvs++;
	if (len) {
		memcpy(iov->iov_base, s->in + s->in_off, len);
		s->in_off += len;
		return (ssize_t)len;
	}
	if (s->recv_error)
		return s->recv_error;
	return s->peer_fin ? 0 : -EAGAIN;
}

static int fake_shutdown(struct port_stream *s)
{
	s->shut = true;
	return 0;
}

static void fake_abort(struct port_stream *s)
{
	s->aborted = true;
}

static void fake_close(struct port_stream *s)
{
	struct port_stream *newest = s;

	__atomic_compare_exchange_n(&s->fake->stream, &newest, NULL, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&s->fake->streams_open, 1, __ATOMIC_RELAXED);
	free(s->in);
	free(s->out);
	free(s);
}

static void fake_drain(struct port_stream *s, const void *rest, u32 len)
{
	struct fake *f = s->fake;

	f->drains++;
	f->rest_len = len;
	f->rest = realloc(f->rest, len + 1u);
	if (len)
		memcpy(f->rest, rest, len);
	fake_close(s);
}

static int fake_stream_error(struct port_stream *s)
{
	return s->error;
}

static const struct port_ops fake_ops = {
	.name = "fake",
	.flags = PORT_FRAMES,
	.unplug = fake_unplug,
	.tx_frame = fake_tx,
	.tx_ah = fake_tx_ah,
	.ah_create = fake_ah_create,
	.ah_destroy = fake_ah_destroy,
	.filter_add = fake_filter_add,
	.filter_del = fake_filter_del,
	.filter_kick = fake_filter_kick,
	.reserve = fake_reserve,
	.release = fake_release,
	.offload = fake_offload,
	.stream_send = fake_send,
	.stream_recv = fake_recv,
	.stream_shutdown = fake_shutdown,
	.stream_abort = fake_abort,
	.stream_close = fake_close,
	.stream_drain = fake_drain,
	.stream_error = fake_stream_error,
};

static inline void fake_event(struct fake *f, u32 events)
{
	f->stream->up->event(f->stream->ctx, events);
}

/* The peer's bytes; an event is the test's to send. */
static inline void fake_peer_sends(struct fake *f, const void *bytes, size_t len)
{
	struct port_stream *s = f->stream;

	s->in = realloc(s->in, s->in_len + len);
	memcpy(s->in + s->in_len, bytes, len);
	s->in_len += len;
}

static inline void fake_open(struct fake *f, const struct rnic_limits *limits)
{
	static const struct net_iface iface = { .ifindex = 2, .name = "fake0", .up = true, .vlan_id = PKT_VLAN_NONE };

	memset(f, 0, sizeof(*f));
	f->room = 1u << 20;
	loop_init(&f->loop, NSEC_PER_SEC);
	f->port.ops = &fake_ops;
	f->port.loop = &f->loop;
	assert_int_equal(rnic_device_create(&f->loop, NULL, &iface, limits, &f->dev), 0);
	f->port.up = &rnic_port_up;
	f->port.up_ctx = f->dev;
	rnic_device_attach(f->dev, &f->port);
}

static inline void fake_close_all(struct fake *f)
{
	loop_run(&f->loop);
	rnic_device_destroy(f->dev);
	free(f->rest);
	assert_int_equal(f->unplugged, 1);
	assert_int_equal(f->streams_open, 0);
	assert_int_equal(f->ahs_open, 0);
	assert_int_equal(f->reserved, f->released);
	loop_destroy(&f->loop);
}

#endif
