/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "host_cm.h"

/* ---- up calls ---- */

static struct cm_ep *find(struct cm *cm, const struct pkt *p)
{
	struct cm_ep *ep;

	LIST_FOREACH(ep, &cm->eps, entry)
		if (ep->ah && ep->tuple.loc_port == p->dport && ep->tuple.rem_port == p->sport &&
		    pkt_addr_eq(ep->tuple.loc_addr, p->dst) && pkt_addr_eq(ep->tuple.rem_addr, p->src))
			return ep;
	return NULL;
}

static void options(struct cm_ep *ep, const struct pkt *p)
{
	u32 i = 0;

	ep->peer_wscale = -1;
	while (i < p->optlen && p->opts[i] != TCPOPT_EOL) {
		if (p->opts[i] == TCPOPT_NOP) {
			i++;
			continue;
		}
		assert_true(i + 1 < p->optlen && p->opts[i + 1] >= 2);
		if (p->opts[i] == TCPOPT_MAXSEG)
			ep->peer_mss = (u32)p->opts[i + 2] << 8 | p->opts[i + 3];
		if (p->opts[i] == TCPOPT_WINDOW)
			ep->peer_wscale = p->opts[i + 2];
		i += p->opts[i + 1];
	}
}

static struct pkt_tuple tuple_of(const struct pkt *p)
{
	struct pkt_tuple t = { .loc_port = p->dport, .rem_port = p->sport, .vlan_id = p->vlan_id, .ipv4 = p->ipv4 };

	memcpy(t.loc_addr, p->dst, sizeof(t.loc_addr));
	memcpy(t.rem_addr, p->src, sizeof(t.rem_addr));
	return t;
}

static void new_passive(struct cm *cm, const struct port_rx *rx)
{
	cm->syns++;
	cm->last_tuple = tuple_of(&rx->pkt);
	cm->last_filter = rx->filter;
	cm->last_seq = rx->pkt.seq;
	if (!cm->answer)
		return;
	cm->last = cm_ep_new(cm, &cm->last_tuple);
	cm->last->filter = rx->filter;
	cm->last->irs = rx->pkt.seq;
	cm->last->rcv_nxt = rx->pkt.seq + 1;
	options(cm->last, &rx->pkt);
	cm_ep_answer(cm->last);
}

static void synchronise(struct cm_ep *ep, const struct pkt *p)
{
	options(ep, p);
	ep->irs = p->seq;
	ep->rcv_nxt = p->seq + 1;
}

static void data_in(struct cm_ep *ep, const struct pkt *p)
{
	assert_int_equal(p->seq, ep->rcv_nxt);
	assert_true(ep->len + p->datalen <= CM_BUF);
	memcpy(ep->buf + ep->len, p->data, p->datalen);
	ep->len += p->datalen;
	ep->rcv_nxt += p->datalen;
	ep->datas++;
}

static void ep_in(struct cm_ep *ep, const struct port_rx *rx)
{
	const struct pkt *p = &rx->pkt;

	ep->last_flags = p->flags;
	ep->last_window = p->window;
	if (p->flags & PKT_ACK)
		ep->snd_una = p->ack;
	if (p->flags & PKT_RST) {
		ep->rsts++;
		ep->error = rx->error;
		ep->rst_seq = p->seq;
		return;
	}
	if (p->flags & PKT_SYN) {
		if (p->flags & PKT_ACK)
			ep->synacks++;
		else
			ep->syns++;
		synchronise(ep, p);
		return;
	}
	if (p->datalen)
		data_in(ep, p);
	else if (!(p->flags & PKT_FIN))
		ep->acks++;
	if (p->flags & PKT_FIN) {
		assert_int_equal(p->seq + p->datalen, ep->rcv_nxt);
		ep->fins++;
		ep->rcv_nxt++;
	}
	if (ep->auto_ack && (p->datalen || p->flags & PKT_FIN))
		cm_ep_send(ep, PKT_ACK, NULL, 0);
}

static bool cm_rx(void *ctx, const struct port_rx *rx)
{
	struct cm *cm = ctx;
	struct cm_ep *ep = find(cm, &rx->pkt);

	if (cm->refuse > 0) {
		cm->refuse--;
		return false;
	}
	assert_int_equal(rx->pkt.vlan_id, PKT_VLAN_NONE);
	if (ep)
		ep_in(ep, rx);
	else if ((rx->pkt.flags & (PKT_SYN | PKT_ACK)) == PKT_SYN && rx->filter)
		new_passive(cm, rx);
	return true;
}

static bool cm_may_accept(void *ctx, struct port_filter *f, void *cookie)
{
	struct cm *cm = ctx;

	cm->asked++;
	assert_ptr_equal(cookie, cm);
	if (!cm->room)
		return false;
	if (cm->room > 0)
		cm->room--;
	return true;
}

static const struct port_up up = { .rx = cm_rx, .may_accept = cm_may_accept };

/* ---- the loop ---- */

static void set_now(struct cm *cm)
{
	loop_set_now(&cm->loop, loop_monotonic_ns() + cm->skip_ns);
}

void cm_plug(struct cm *cm, struct port_host *h)
{
	struct net_iface lo = { .ifindex = 1, .name = "lo", .mtu = 65536, .up = true, .loopback = true, .vlan_id = PKT_VLAN_NONE };

	LIST_INIT(&cm->eps);
	cm->h = h;
	cm->room = -1;
	cm->answer = true;
	assert_int_equal(port_host_plug(h, &lo, &up, cm, &cm->port), 0);
}

void cm_unplug(struct cm *cm)
{
	struct cm_ep *ep, *next;

	LIST_FOREACH_SAFE(ep, &cm->eps, entry, next)
		cm_ep_free(ep);
	cm->port->ops->unplug(cm->port);
}

void cm_start(struct cm *cm)
{
	struct port_host *h;

	memset(cm, 0, sizeof(*cm));
	loop_init(&cm->loop, loop_monotonic_ns());
	assert_int_equal(port_host_open(&cm->loop, NULL, &h), 0);
	cm_plug(cm, h);
}

void cm_stop(struct cm *cm)
{
	cm_unplug(cm);
	port_host_close(cm->h);
	loop_destroy(&cm->loop);
}

bool cm_step(struct cm *cm)
{
	bool any;

	set_now(cm);
	any = port_host_process(cm->h);
	return loop_run(&cm->loop) || any;
}

void cm_wait(struct cm *cm, int ms)
{
	struct pollfd pfd = { .fd = port_host_fd(cm->h), .events = POLLIN };
	u64 next, now;

	set_now(cm);
	next = loop_next_ns(&cm->loop);
	now = loop_now(&cm->loop);
	if (next <= now)
		ms = 0;
	else if (next - now < (u64)ms * NSEC_PER_MSEC)
		ms = (int)((next - now) / NSEC_PER_MSEC) + 1;
	poll(&pfd, 1, ms);
	cm_step(cm);
}

void cm_settle(struct cm *cm)
{
	struct pollfd pfd = { .fd = port_host_fd(cm->h), .events = POLLIN };

	do {
		while (cm_step(cm))
			;
	} while (poll(&pfd, 1, 20) > 0);
}

/* ---- endpoints ---- */

struct cm_ep *cm_ep_new(struct cm *cm, const struct pkt_tuple *t)
{
	struct port_ah_attr a = { .tuple = *t };
	struct cm_ep *ep = calloc(1, sizeof(*ep));

	assert_non_null(ep);
	ep->cm = cm;
	ep->tuple = *t;
	ep->iss = 0xFFFFFF00u; /* wraps soon */
	ep->snd_nxt = ep->snd_una = ep->iss;
	ep->window = 65535;
	ep->wscale = -1;
	ep->auto_ack = true;
	assert_int_equal(cm->port->ops->ah_create(cm->port, &a, &ep->ah), 0);
	LIST_INSERT_HEAD(&cm->eps, ep, entry);
	return ep;
}

void cm_ep_free(struct cm_ep *ep)
{
	if (ep->stream)
		ep->cm->port->ops->stream_close(ep->stream);
	else if (ep->ah)
		ep->cm->port->ops->ah_destroy(ep->cm->port, ep->ah);
	LIST_REMOVE(ep, entry);
	if (ep->cm->last == ep)
		ep->cm->last = NULL;
	free(ep);
}

void cm_ep_send_at(struct cm_ep *ep, u32 seq, u8 flags, const void *data, u32 len)
{
	u8 seg[PKT_TCP_LEN + 8 + 4096] = { 0 };
	u16 sport = htons(ep->tuple.loc_port), dport = htons(ep->tuple.rem_port), window = htons((u16)ep->window);
	u32 hdrlen = PKT_TCP_LEN, ack = htonl(flags & PKT_ACK ? ep->rcv_nxt : 0);

	seq = htonl(seq);
	memcpy(seg, &sport, 2);
	memcpy(seg + 2, &dport, 2);
	memcpy(seg + 4, &seq, 4);
	memcpy(seg + 8, &ack, 4);
	memcpy(seg + 14, &window, 2);
	if (flags & PKT_SYN) {
		memcpy(seg + hdrlen, "\x02\x04\x05\xb4", 4);
		hdrlen += 4;
		if (ep->wscale >= 0) {
			memcpy(seg + hdrlen, "\x01\x03\x03", 3);
			seg[hdrlen + 3] = (u8)ep->wscale;
			hdrlen += 4;
		}
	}
	seg[12] = (u8)(hdrlen / 4 << 4);
	seg[13] = flags;
	assert_true(len <= 4096);
	if (len)
		memcpy(seg + hdrlen, data, len);
	assert_int_equal(ep->cm->port->ops->tx_ah(ep->cm->port, ep->ah, seg, hdrlen + len), 0);
}

void cm_ep_send(struct cm_ep *ep, u8 flags, const void *data, u32 len)
{
	u32 seq = ep->snd_nxt;

	ep->snd_nxt += len + !!(flags & PKT_SYN) + !!(flags & PKT_FIN);
	cm_ep_send_at(ep, seq, flags, data, len);
}

void cm_ep_answer(struct cm_ep *ep)
{
	if (ep->peer_wscale < 0)
		ep->wscale = -1;
	cm_ep_send(ep, PKT_SYN | PKT_ACK, NULL, 0);
}

struct pkt_tuple cm_loopback(bool ipv4, u16 loc, u16 rem)
{
	struct pkt_tuple t = { .loc_port = loc, .rem_port = rem, .vlan_id = PKT_VLAN_NONE, .ipv4 = ipv4 };

	t.loc_addr[ipv4 ? 0 : 3] = t.rem_addr[ipv4 ? 0 : 3] = ipv4 ? INADDR_LOOPBACK : 1;
	return t;
}

/* As a CM does: reserve a number, SYN, SYN+ACK, ACK; the reservation is dropped since the socket has it now. */
struct cm_ep *cm_connect(struct cm *cm, bool ipv4, u16 number)
{
	struct pkt_tuple t = cm_loopback(ipv4, 0, number);
	struct cm_ep *ep;

	assert_int_equal(cm->port->ops->reserve(cm->port, ipv4, t.loc_addr, &t.loc_port, false), 0);
	ep = cm_ep_new(cm, &t);
	ep->wscale = 3;
	cm_ep_send(ep, PKT_SYN, NULL, 0);
	cm_until(cm, ep->synacks || ep->rsts);
	if (ep->synacks)
		cm_ep_send(ep, PKT_ACK, NULL, 0);
	cm->port->ops->release(cm->port, ipv4, t.loc_addr, t.loc_port);
	return ep;
}

static void stream_event(void *ctx, u32 events)
{
	struct cm_ep *ep = ctx;

	assert_non_null(ep->stream);
	ep->events |= events;
	ep->calls++;
	if (ep->close_in_event) {
		ep->cm->port->ops->stream_close(ep->stream);
		ep->stream = NULL;
	} else if (ep->drain_in_event) {
		ep->cm->port->ops->stream_drain(ep->stream, "why", 3);
		ep->stream = NULL;
	}
}

static const struct port_stream_up stream_up = { .event = stream_event };

int cm_offload(struct cm_ep *ep, const void *rx_data, u32 rx_len)
{
	struct tcp_info_ho info = {
		.tuple = ep->tuple, .snd_nxt = ep->snd_nxt, .snd_una = ep->snd_una, .rcv_nxt = ep->rcv_nxt,
		.rx_data = rx_data, .rx_len = rx_len,
	};
	int rc = ep->cm->port->ops->offload(ep->cm->port, ep->ah, &info, &stream_up, ep, &ep->stream);

	if (!rc)
		ep->ah = NULL;
	return rc;
}

struct port_filter *cm_listen(struct cm *cm, bool ipv4, u16 *number)
{
	struct port_filter_attr a = { .ipv4 = ipv4, .tuple = cm_loopback(ipv4, 0, 0), .backlog = 5, .cookie = cm };
	bool reserve = !*number;
	struct port_filter *f;

	if (reserve)
		assert_int_equal(cm->port->ops->reserve(cm->port, ipv4, a.tuple.loc_addr, number, false), 0);
	a.tuple.loc_port = *number;
	assert_int_equal(cm->port->ops->filter_add(cm->port, &a, &f), 0);
	if (reserve)
		cm->port->ops->release(cm->port, ipv4, a.tuple.loc_addr, *number);
	return f;
}

/* ---- plain sockets ---- */

static socklen_t loopback(bool ipv4, u16 number, struct sockaddr_storage *ss)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *in = (struct sockaddr_in *)ss;

	memset(ss, 0, sizeof(*ss));
	if (ipv4) {
		in->sin_family = AF_INET;
		in->sin_port = htons(number);
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sizeof(*in);
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(number);
	in6->sin6_addr = in6addr_loopback;
	return sizeof(*in6);
}

u16 plain_number(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&ss, &len), 0);
	return ntohs(((struct sockaddr_in *)&ss)->sin_port); /* at the same place in both */
}

/* Number 0: one below those that connections have, which a busy machine may run out of. */
static int bind_any(int fd, bool ipv4)
{
	struct sockaddr_storage ss;
	u16 number;
	int i;

	for (i = 0; i < 1000; i++) {
		rand_secure(&number, sizeof(number));
		if (!bind(fd, (struct sockaddr *)&ss, loopback(ipv4, (u16)(10000 + number % 20000), &ss)))
			return 0;
	}
	return -1;
}

int plain_listen(bool ipv4, u16 number)
{
	int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	struct sockaddr_storage ss;
	socklen_t len = loopback(ipv4, number, &ss);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	assert_int_equal(number ? bind(fd, (struct sockaddr *)&ss, len) : bind_any(fd, ipv4), 0);
	assert_int_equal(listen(fd, 64), 0);
	return fd;
}

static int with_timeout(int fd)
{
	struct timeval tv = { .tv_sec = 5 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	return fd;
}

int plain_connect(bool ipv4, u16 number)
{
	int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_storage ss;
	socklen_t len = loopback(ipv4, number, &ss);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, len), 0);
	return with_timeout(fd);
}

int plain_accept(int lfd)
{
	int fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);

	assert_true(fd >= 0);
	return with_timeout(fd);
}

void plain_reset(int fd)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}
