/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: what the CM is told. Epoll's reports and the CM's own segments leave notes on a connection; here, in
 * the loop's thread, they become the segments of a peer, one at a time.
 *
 * Bytes stay in .held until the CM has acknowledged them. They are delivered once, unless the CM did not take the
 * segment; but offload, which may come from another thread while a segment is on its way up, can find there
 * what the CM had not seen when it decided.
 *
 * Reading stops when the socket gave less than was asked for: epoll reports what comes later (epoll(7)).
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "port/host_internal.h"

#define MSS_MIN 536 /* RFC 9293 3.7.1 */

/* ---- notes ---- */

/* Locked. Bytes that the CM's window has room for. */
static u32 window_room(const struct host_conn *c)
{
	s32 room = (s32)(c->cm_ack + c->cm_window - c->peer_nxt);

	return room > 0 ? (u32)room : 0;
}

/* Locked. */
static u32 segment_room(const struct host_conn *c)
{
	return min(window_room(c), HOST_READ_MAX);
}

/* Locked. */
static u32 undelivered(const struct host_conn *c)
{
	return c->fin_delivered ? 0 : c->held_seq + c->held_len - c->peer_nxt;
}

/* Locked. */
static bool can_deliver_data(const struct host_conn *c)
{
	return !c->fin_delivered && (undelivered(c) || c->readable) && window_room(c);
}

/* Locked. */
static bool can_deliver_fin(const struct host_conn *c)
{
	return c->eof && !c->fin_delivered && !undelivered(c);
}

/**
 * host_conn_has_work() - is there something to tell the CM?
 * @c: the connection, not a stream
 *
 * Return: true if so.
 */
bool host_conn_has_work(const struct host_conn *c)
{
	if (c->todo)
		return true;
	return c->state == HOST_OPEN && (can_deliver_data(c) || can_deliver_fin(c) || c->error_seen);
}

/* Locked. connect() has ended. */
static void connect_done(struct port_host *h, struct host_conn *c, u32 ev)
{
	if (ev & (EPOLLERR | EPOLLHUP)) {
		int error = host_socket_error(c->fd);

		host_conn_fail(h, c, error ? error : -ECONNREFUSED);
		return;
	}
	host_conn_set_state(c, HOST_CONNECTED);
	c->todo |= HOST_DO_SYNACK;
}

/* Locked. */
static void note_event(struct host_conn *c, u32 ev)
{
	if (ev & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->readable = true;
	if (ev & (EPOLLRDHUP | EPOLLHUP))
		c->rdhup = true;
	if (ev & EPOLLERR)
		c->error_seen = true;
}

/* Locked. Broken, and no data can be delivered any more: not begun, or the window is shut. */
static bool is_broken(const struct host_conn *c)
{
	return c->error_seen && c->state != HOST_DEAD && (c->state != HOST_OPEN || !can_deliver_data(c));
}

/* Locked. */
static void fail_broken(struct port_host *h, struct host_conn *c)
{
	int error = host_socket_error(c->fd);

	host_conn_fail(h, c, error ? error : -ECONNRESET);
}

/* Locked. */
static void flush_event(struct port_host *h, struct host_conn *c)
{
	int rc = host_conn_flush(h, c);

	if (rc && rc != -EAGAIN)
		host_conn_fail(h, c, rc);
}

/**
 * host_conn_event() - epoll's report on a connection that is not offloaded
 * @h: the instance
 * @c: the connection
 * @epoll_events: the report
 */
void host_conn_event(struct port_host *h, struct host_conn *c, u32 epoll_events)
{
	if (c->state == HOST_DEAD)
		return;
	if (c->state == HOST_CONNECTING) {
		if (!(epoll_events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
			return;
		connect_done(h, c, epoll_events);
		if (c->state == HOST_DEAD)
			return;
	}
	note_event(c, epoll_events);
	if (is_broken(c)) {
		fail_broken(h, c); /* a pending connection is gone now */
		return;
	}
	if (c->state == HOST_OPEN && epoll_events & EPOLLOUT && c->remainder_len)
		flush_event(h, c);
	if (host_conn_has_work(c))
		host_queue(h, c);
}

/**
 * host_conn_timer() - try again what the CM did not take, or did not answer
 * @h: the instance
 * @c: the connection
 */
void host_conn_timer(struct port_host *h, struct host_conn *c)
{
	if (c->state == HOST_STREAM) {
		host_stream_timer(h, c);
		return;
	}
	if (c->state == HOST_DRAIN) {
		host_drain_timer(h, c);
		return;
	}
	if (c->state == HOST_PENDING || c->state == HOST_ADOPTED) {
		if (host_now_ms(h) - c->offered_ms >= HOST_OFFER_GIVE_UP_MS) {
			host_conn_fail(h, c, -ETIMEDOUT);
			return;
		}
		c->todo |= HOST_DO_SYN;
	}
	if (host_conn_has_work(c))
		host_queue(h, c);
}

/* ---- segments ---- */

/* Locked; gives the lock up. The CM takes it, or does not. */
static bool deliver(struct port_host *h, struct host_conn *c, const struct host_segment *s, struct port_rx *rx)
{
	struct port *p = &c->port->port;
	u32 len = host_segment_build(c, false, s, h->segment);
	bool taken;

	if (pkt_parse_segment(h->segment, len, &c->tuple, &rx->pkt) != PKT_OK)
		return true;
	if (host_tapped(c))
		host_tap_segment(c, false, h->segment, len);
	pthread_mutex_unlock(&h->lock);
	taken = p->up->rx(p->up_ctx, rx);
	pthread_mutex_lock(&h->lock);
	return taken;
}

/* What an ACK covers: the bytes that the kernel has taken. */
static u32 acked(const struct host_conn *c)
{
	return c->cm_nxt - c->remainder_len;
}

static struct host_segment segment(const struct host_conn *c, u8 flags)
{
	return (struct host_segment){
		.seq = c->peer_nxt,
		.ack = acked(c),
		.flags = flags,
		.window = c->wscale_on ? HOST_WINDOW_SCALED : HOST_WINDOW,
		.wscale = -1,
	};
}

static u16 ask_mss(const struct host_conn *c)
{
	int mss = 0;
	socklen_t len = sizeof(mss);

	if (getsockopt(c->fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &len))
		return MSS_MIN;
	mss = min(mss, UINT16_MAX);
	return (u16)max(mss, MSS_MIN);
}

/* Locked. */
static u16 mss_of(struct host_conn *c)
{
	u16 *known = c->port->port.iface.loopback ? &c->port->loopback_mss[c->tuple.ipv4] : &c->mss;

	if (!*known)
		*known = ask_mss(c);
	return *known;
}

/* The two below: locked; give the lock up; false: not taken. */

static bool deliver_syn(struct port_host *h, struct host_conn *c)
{
	struct port_rx rx = { .filter = (struct port_filter *)c->listener };
	struct host_segment s = {
		.seq = c->peer_iss, .flags = PKT_SYN, .window = HOST_WINDOW, .mss = mss_of(c), .wscale = HOST_WSCALE,
	};

	c->todo &= ~HOST_DO_SYN;
	deliver(h, c, &s, &rx);
	/* Taken or not: it is answered in time, or offered again. */
	if (!c->obj.dead && (c->state == HOST_PENDING || c->state == HOST_ADOPTED)) {
		host_arm(h, &c->obj, c->offer_interval_ms);
		c->offer_interval_ms *= 2;
	}
	return true;
}

static bool deliver_synack(struct port_host *h, struct host_conn *c)
{
	struct port_rx rx = { .error = 0 };
	struct host_segment s = {
		.seq = c->peer_iss, .ack = acked(c), .flags = PKT_SYN | PKT_ACK, .window = HOST_WINDOW,
		.mss = mss_of(c), .wscale = c->wscale_on ? (s32)HOST_WSCALE : -1,
	};

	c->todo &= ~HOST_DO_SYNACK;
	if (deliver(h, c, &s, &rx))
		return true;
	if (c->state == HOST_CONNECTED)
		c->todo |= HOST_DO_SYNACK;
	return false;
}

/* RFC 9293 3.5.2: a RST that answers a SYN acknowledges it; any other is at exactly the next sequence number. */
static bool deliver_rst(struct port_host *h, struct host_conn *c)
{
	struct port_rx rx = { .error = c->error };
	struct host_segment s = segment(c, PKT_RST | PKT_ACK);

	c->todo &= ~HOST_DO_RST;
	if (deliver(h, c, &s, &rx))
		return true;
	if (!c->cm_reset)
		c->todo |= HOST_DO_RST;
	return false;
}

static bool deliver_ack(struct port_host *h, struct host_conn *c)
{
	struct port_rx rx = { .error = 0 };
	struct host_segment s = segment(c, PKT_ACK);

	c->todo &= ~HOST_DO_ACK;
	if (deliver(h, c, &s, &rx))
		return true;
	if (c->state == HOST_OPEN)
		c->todo |= HOST_DO_ACK;
	return false;
}

static bool deliver_fin(struct port_host *h, struct host_conn *c)
{
	struct port_rx rx = { .error = 0 };
	struct host_segment s = segment(c, PKT_FIN | PKT_ACK);

	c->todo &= ~HOST_DO_ACK;
	c->fin_delivered = true;
	c->peer_nxt++;
	if (deliver(h, c, &s, &rx))
		return true;
	if (c->state == HOST_OPEN) {
		c->fin_delivered = false;
		c->peer_nxt--;
	}
	return false;
}

/* Locked. All of what is held and not delivered, in segments that the window has room for. */
static bool deliver_held(struct port_host *h, struct host_conn *c)
{
	struct port_rx rx = { .error = 0 };
	struct host_segment s = segment(c, PKT_PSH | PKT_ACK);

	s.len = min(undelivered(c), segment_room(c));
	s.data = c->held + (c->peer_nxt - c->held_seq);
	c->todo &= ~HOST_DO_ACK;
	c->peer_nxt += s.len;
	if (deliver(h, c, &s, &rx))
		return true;
	if (c->state == HOST_OPEN)
		c->peer_nxt -= s.len;
	return false;
}

/* Locked. 0 or -ENOMEM. */
static int hold(struct host_conn *c, const u8 *data, u32 len)
{
	u8 *p = realloc(c->held, c->held_len + len);

	if (!p)
		return -ENOMEM;
	memcpy(p + c->held_len, data, len);
	c->held = p;
	c->held_len += len;
	return 0;
}

/* Locked. Fills .held, or finds the end: true if there is something to deliver. */
static bool read_some(struct port_host *h, struct host_conn *c)
{
	u8 buf[HOST_READ_MAX];
	u32 want = segment_room(c);
	ssize_t n;

	do
		n = recv(c->fd, buf, want, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN) {
		host_conn_fail(h, c, -errno);
		return false;
	}
	c->readable = n == (ssize_t)want || (n > 0 && c->error_seen);
	if (n == 0 || (n > 0 && !c->readable && c->rdhup))
		c->eof = true; /* nothing follows a FIN */
	if (n > 0 && hold(c, buf, (u32)n)) {
		host_conn_fail(h, c, -ENOMEM);
		return false;
	}
	return n > 0;
}

/* Locked; gives the lock up. An ACK goes with the data if there are any. */
static bool deliver_open(struct port_host *h, struct host_conn *c)
{
	if (!undelivered(c) && can_deliver_data(c))
		read_some(h, c);
	if (c->state != HOST_OPEN)
		return true;
	if (undelivered(c) && window_room(c))
		return deliver_held(h, c);
	if (can_deliver_fin(c))
		return deliver_fin(h, c);
	if (c->error_seen && !can_deliver_data(c)) {
		fail_broken(h, c);
		return true;
	}
	return c->todo & HOST_DO_ACK ? deliver_ack(h, c) : true;
}

static bool deliver_next(struct port_host *h, struct host_conn *c)
{
	if (c->todo & HOST_DO_RST)
		return deliver_rst(h, c);
	if (c->todo & HOST_DO_SYN)
		return deliver_syn(h, c);
	if (c->todo & HOST_DO_SYNACK)
		return deliver_synack(h, c);
	return c->state == HOST_OPEN ? deliver_open(h, c) : true;
}

/**
 * host_conn_run() - tell the CM one thing
 * @h: the instance
 * @c: the connection, not a stream when this begins; queued again if there is more
 */
void host_conn_run(struct port_host *h, struct host_conn *c)
{
	bool taken;

	host_obj_get(&c->obj);
	taken = deliver_next(h, c);
	if (!c->obj.dead && c->state != HOST_STREAM) {
		if (!taken)
			host_arm(h, &c->obj, HOST_RETRY_MS);
		else if (host_conn_has_work(c))
			host_queue(h, c);
	}
	host_obj_put(h, &c->obj);
}
