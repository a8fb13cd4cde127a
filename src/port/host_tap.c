/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: segments, for the CM and for taps. What goes through a socket is made up into the frames that
 * might have carried it: the CM's own segments as they are; the peer's as the CM was told; after offload bytes in
 * segments of up to 16 KiB (as a NIC that segments and merges would show them), numbered on from where the CM stopped.
 *
 * For a stream each frame is shown under the taps' lock together with the system call it stands for, so that no
 * answer is shown before what it answers. A frame acknowledges all that was shown before it. Data in one direction
 * alone would run out of the window shown; so a bare ACK is made up for every 32 KiB.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include "port/host_internal.h"

#define TAP_SEGMENT 16384u
#define TAP_ACK_EVERY 32768u
#define TAP_TTL 64

static const u8 peer_mac[6] = { 0x02, 0, 0, 0, 0, 0x01 };

/* Under the taps' lock. */
static u8 tap_frame[PKT_HDR_MAX + UINT16_MAX];

/**
 * host_tapped() - is a connection shown to anybody?
 * @c: the connection
 *
 * Return: true if so.
 */
bool host_tapped(const struct host_conn *c)
{
	return port_is_tapped(&c->port->port) && !c->muted;
}

static void put16(u8 *p, u16 v)
{
	v = htons(v);
	memcpy(p, &v, sizeof(v));
}

static void put32(u8 *p, u32 v)
{
	v = htonl(v);
	memcpy(p, &v, sizeof(v));
}

/* RFC 9293 3.2, RFC 7323 2.2; a multiple of four bytes. */
static u32 put_options(const struct host_segment *s, u8 *p)
{
	u32 n = 0;

	if (s->mss) {
		p[n++] = TCPOPT_MAXSEG;
		p[n++] = TCPOLEN_MAXSEG;
		put16(p + n, s->mss);
		n += 2;
	}
	if (s->wscale >= 0) {
		p[n++] = TCPOPT_NOP;
		p[n++] = TCPOPT_WINDOW;
		p[n++] = TCPOLEN_WINDOW;
		p[n++] = (u8)s->wscale;
	}
	return n;
}

/**
 * host_segment_build() - TCP header, options and payload
 * @c: connection with the port numbers
 * @out: from this end to the peer, or the other way
 * @s: the rest; .data may be NULL if the payload stands in its place already
 * @buf: room for it all
 *
 * The checksum is left 0.
 *
 * Return: its length.
 */
u32 host_segment_build(const struct host_conn *c, bool out, const struct host_segment *s, u8 *buf)
{
	u32 hdrlen = PKT_TCP_LEN + put_options(s, buf + PKT_TCP_LEN);

	put16(buf, out ? c->tuple.loc_port : c->tuple.rem_port);
	put16(buf + 2, out ? c->tuple.rem_port : c->tuple.loc_port);
	put32(buf + 4, s->seq);
	put32(buf + 8, s->ack);
	buf[12] = (u8)(hdrlen / 4 << 4);
	buf[13] = s->flags;
	put16(buf + 14, s->window);
	put32(buf + 16, 0);
	if (s->data)
		memcpy(buf + hdrlen, s->data, s->len);
	return hdrlen + s->len;
}

/* ---- frames; all with the taps' lock held ---- */

static struct pkt_route route_of(const struct host_conn *c, bool out)
{
	const struct pkt_tuple *t = &c->tuple;
	struct pkt_route r = { .vlan_id = t->vlan_id, .prio = c->prio, .ipv4 = t->ipv4, .ttl = TAP_TTL, .tos = c->tos };

	memcpy(r.smac, out ? c->port->port.iface.mac : peer_mac, sizeof(r.smac));
	memcpy(r.dmac, out ? peer_mac : c->port->port.iface.mac, sizeof(r.dmac));
	memcpy(r.src, out ? t->loc_addr : t->rem_addr, sizeof(r.src));
	memcpy(r.dst, out ? t->rem_addr : t->loc_addr, sizeof(r.dst));
	return r;
}

/* @len bytes of segment stand at tap_frame + PKT_HDR_MAX. */
static void show(struct host_conn *c, bool out, u32 len)
{
	struct pkt_route r = route_of(c, out);
	u8 *tcp = tap_frame + PKT_HDR_MAX;
	u8 *frame = pkt_push_headers(&r, tcp, len, c->tap_ip_id++);
	struct pkt pkt;

	/* Its own clock: a stream's thread does not move the loop's. */
	if (pkt_parse(frame, (size_t)(tcp + len - frame), false, &pkt) == PKT_OK)
		port_taps_show(&c->port->port, out, &pkt, loop_monotonic_ns());
}

static void show_made_up(struct host_conn *c, bool out, u8 flags, u32 seq, u32 ack, u32 len)
{
	struct host_segment s = { .seq = seq, .ack = ack, .flags = flags, .wscale = -1, .len = len };

	s.window = !out && c->wscale_on ? HOST_WINDOW_SCALED : HOST_WINDOW;
	show(c, out, host_segment_build(c, out, &s, tap_frame + PKT_HDR_MAX));
}

/* The next segment of a stream; payload of @len bytes stands behind a header without options. */
static void show_next(struct host_conn *c, bool out, u8 flags, u32 len)
{
	u32 *seq = out ? &c->tap_out : &c->tap_in;
	u32 used = len + !!(flags & PKT_FIN);

	show_made_up(c, out, flags | PKT_ACK, *seq, out ? c->tap_in : c->tap_out, len);
	*seq += used;
	if (out)
		c->tap_in_acked = c->tap_in;
	else
		c->tap_out_acked = c->tap_out;
}

static void show_due_ack(struct host_conn *c, bool data_out)
{
	u32 unacked = data_out ? c->tap_out - c->tap_out_acked : c->tap_in - c->tap_in_acked;

	if (unacked >= TAP_ACK_EVERY)
		show_next(c, !data_out, 0, 0);
}

/* Copy @len bytes from @offset of a vector. */
static void gather(const struct iovec *iov, size_t offset, u8 *dst, size_t len)
{
	for (; len; iov++) {
		size_t n;

		if (offset >= iov->iov_len) {
			offset -= iov->iov_len;
			continue;
		}
		n = min(iov->iov_len - offset, len);
		memcpy(dst, (const u8 *)iov->iov_base + offset, n);
		dst += n;
		len -= n;
		offset = 0;
	}
}

static void show_data(struct host_conn *c, bool out, const struct iovec *iov, size_t len)
{
	size_t offset = 0;

	while (offset < len) {
		u32 n = (u32)min(len - offset, (size_t)TAP_SEGMENT);

		gather(iov, offset, tap_frame + PKT_HDR_MAX + PKT_TCP_LEN, n);
		show_next(c, out, PKT_PSH, n);
		show_due_ack(c, out);
		offset += n;
	}
}

/* ---- without the taps' lock ---- */

/**
 * host_tap_segment() - show a segment of the CM's time
 * @c: the connection
 * @out: direction
 * @seg: the segment, not changed
 * @len: its bytes, at most 64 KiB less an IP header
 */
void host_tap_segment(struct host_conn *c, bool out, const void *seg, u32 len)
{
	port_taps_lock();
	memcpy(tap_frame + PKT_HDR_MAX, seg, len);
	put16(tap_frame + PKT_HDR_MAX + 16, 0);
	show(c, out, len);
	port_taps_unlock();
}

/**
 * host_tap_made_up() - show a segment without payload that nobody built
 * @c: the connection, before offload
 * @out: direction
 * @flags: of TCP
 * @seq: sequence number
 * @ack: acknowledgement
 */
void host_tap_made_up(struct host_conn *c, bool out, u8 flags, u32 seq, u32 ack)
{
	port_taps_lock();
	show_made_up(c, out, flags, seq, ack, 0);
	port_taps_unlock();
}

/**
 * host_tap_offload() - go on with the CM's numbers, and show what it has not been given
 * @c: the connection, locked, about to become a stream
 */
void host_tap_offload(struct host_conn *c)
{
	u32 delivered = c->peer_nxt - c->fin_delivered - c->held_seq;
	struct iovec rest = { c->held + delivered, 0 };

	c->tap_out = c->tap_out_acked = c->cm_nxt;
	c->tap_in = c->peer_nxt;
	c->tap_in_acked = c->cm_ack;
	c->tap_fin_in = c->fin_delivered;
	if (!host_tapped(c) || c->held_len <= delivered)
		return;
	rest.iov_len = c->held_len - delivered;
	port_taps_lock();
	show_data(c, false, &rest, rest.iov_len);
	port_taps_unlock();
}

/**
 * host_tap_sendmsg() - sendmsg(), shown
 * @c: the stream
 * @m: as of sendmsg()
 *
 * Return: as of sendmsg().
 */
ssize_t host_tap_sendmsg(struct host_conn *c, const struct msghdr *m)
{
	ssize_t n;
	int error;

	port_taps_lock();
	n = sendmsg(c->fd, m, MSG_NOSIGNAL | MSG_DONTWAIT);
	error = errno;
	if (n > 0)
		show_data(c, true, m->msg_iov, (size_t)n);
	port_taps_unlock();
	errno = error;
	return n;
}

/* The peer's FIN is shown, and acknowledged, when it is read. */
static void show_fin_in(struct host_conn *c)
{
	if (c->tap_fin_in || c->tap_end)
		return;
	c->tap_fin_in = true;
	show_next(c, false, PKT_FIN, 0);
	show_next(c, true, 0, 0);
}

/**
 * host_tap_recvmsg() - recvmsg(), shown
 * @c: the stream
 * @m: as of recvmsg()
 *
 * Return: as of recvmsg().
 */
ssize_t host_tap_recvmsg(struct host_conn *c, struct msghdr *m)
{
	ssize_t n;
	int error;

	port_taps_lock();
	n = recvmsg(c->fd, m, MSG_DONTWAIT);
	error = errno;
	if (n > 0)
		show_data(c, false, m->msg_iov, (size_t)n);
	else if (n == 0)
		show_fin_in(c);
	port_taps_unlock();
	errno = error;
	return n;
}

/**
 * host_tap_sent() - show bytes that wait for room in the socket
 * @c: the stream
 * @data: the bytes
 * @len: their number
 */
void host_tap_sent(struct host_conn *c, const void *data, u32 len)
{
	struct iovec iov = { (void *)data, len };

	if (!host_tapped(c))
		return;
	port_taps_lock();
	show_data(c, true, &iov, len);
	port_taps_unlock();
}

/**
 * host_tap_stream_end() - show the end of a direction, or of both
 * @c: the stream
 * @out: direction
 * @flag: PKT_FIN or PKT_RST, after which nothing more is shown
 */
void host_tap_stream_end(struct host_conn *c, bool out, u8 flag)
{
	if (!host_tapped(c))
		return;
	port_taps_lock();
	if (!c->tap_end)
		show_next(c, out, flag, 0);
	c->tap_end |= flag == PKT_RST;
	port_taps_unlock();
}
