/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: a connection as the CM drives it: address handles, and what each of the CM's segments does to the
 * socket. The other direction is in host_deliver.c.
 */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "port/host_internal.h"

/* ---- states ---- */

static const char *const state_names[] = {
	[HOST_NEW] = "NEW",
	[HOST_CONNECTING] = "CONNECTING",
	[HOST_CONNECTED] = "CONNECTED",
	[HOST_PENDING] = "PENDING",
	[HOST_ADOPTED] = "ADOPTED",
	[HOST_OPEN] = "OPEN",
	[HOST_STREAM] = "STREAM",
	[HOST_DRAIN] = "DRAIN",
	[HOST_DEAD] = "DEAD",
};
static_assert(ARRAY_SIZE(state_names) == HOST_STATES, "a name for each state");

static const u32 legal_steps[HOST_STATES] = {
	[HOST_NEW] = BIT(HOST_CONNECTING) | BIT(HOST_DEAD),
	[HOST_CONNECTING] = BIT(HOST_CONNECTED) | BIT(HOST_DEAD),
	[HOST_CONNECTED] = BIT(HOST_OPEN) | BIT(HOST_DEAD),
	[HOST_PENDING] = BIT(HOST_ADOPTED),
	[HOST_ADOPTED] = BIT(HOST_OPEN) | BIT(HOST_DEAD),
	[HOST_OPEN] = BIT(HOST_STREAM) | BIT(HOST_DEAD),
	[HOST_STREAM] = BIT(HOST_DRAIN),
};

/**
 * host_conn_set_state() - the one place that writes a connection's state
 * @c: the connection
 * @s: a state that may follow its present one (asserted)
 */
void host_conn_set_state(struct host_conn *c, enum host_state s)
{
	assert(legal_steps[c->state] & BIT(s));
	log_debug("port", "host %p: %s -> %s", (void *)c, state_names[c->state], state_names[s]);
	c->state = s;
}

/* ---- the table of 4-tuples ---- */

struct tuple_key {
	u32 loc_addr[4], rem_addr[4];
	u16 loc_port, rem_port;
	u32 ipv4;
};
static_assert(sizeof(struct tuple_key) == 40, "no padding in what is hashed");

/* @reversed: of the peer's end. */
static struct tuple_key tuple_key(const struct pkt_tuple *t, bool reversed)
{
	struct tuple_key k = {
		.loc_port = reversed ? t->rem_port : t->loc_port,
		.rem_port = reversed ? t->loc_port : t->rem_port,
		.ipv4 = t->ipv4,
	};

	memcpy(k.loc_addr, reversed ? t->rem_addr : t->loc_addr, sizeof(k.loc_addr));
	memcpy(k.rem_addr, reversed ? t->loc_addr : t->rem_addr, sizeof(k.rem_addr));
	return k;
}

static bool tuple_eq(const struct pkt_tuple *t, const struct tuple_key *k)
{
	return t->loc_port == k->loc_port && t->rem_port == k->rem_port && t->ipv4 == !!k->ipv4 &&
	       pkt_addr_eq(t->loc_addr, k->loc_addr) && pkt_addr_eq(t->rem_addr, k->rem_addr);
}

static bool pending_eq(const struct hash_node *n, const void *key)
{
	const struct host_conn *c = container_of(n, struct host_conn, node);

	return c->state == HOST_PENDING && tuple_eq(&c->tuple, key);
}

static bool active_eq(const struct hash_node *n, const void *key)
{
	const struct host_conn *c = container_of(n, struct host_conn, node);

	return c->state != HOST_PENDING && tuple_eq(&c->tuple, key);
}

static struct host_conn *find(const struct port_host *h, const struct tuple_key *k, hash_eq_fn eq)
{
	struct hash_node *n = hash_find(&h->conns, hash_of(&h->conns, k, sizeof(*k)), eq, k);

	return n ? container_of(n, struct host_conn, node) : NULL;
}

/**
 * host_find_pending() - an accepted connection that has no address handle yet
 * @h: the instance
 * @t: its 4-tuple
 *
 * Return: it or NULL.
 */
struct host_conn *host_find_pending(struct port_host *h, const struct pkt_tuple *t)
{
	struct tuple_key k = tuple_key(t, false);

	return find(h, &k, pending_eq);
}

/**
 * host_is_own_peer() - is the other end a connection of this process that is shown to taps?
 * @h: the instance
 * @t: 4-tuple of an accepted connection
 *
 * Each end makes up its own sequence numbers: a capture with both would be nonsense.
 *
 * Return: true if so.
 */
bool host_is_own_peer(struct port_host *h, const struct pkt_tuple *t)
{
	struct tuple_key k = tuple_key(t, true);

	return find(h, &k, active_eq);
}

/**
 * host_conn_hash() - enter a connection into the table
 * @h: the instance
 * @c: the connection
 */
void host_conn_hash(struct port_host *h, struct host_conn *c)
{
	struct tuple_key k = tuple_key(&c->tuple, false);

	hash_add(&h->conns, &c->node, hash_of(&h->conns, &k, sizeof(k)));
	c->hashed = true;
}

/**
 * host_conn_unhash() - opposite of host_conn_hash()
 * @h: the instance
 * @c: the connection; harmless if it is not in the table
 */
void host_conn_unhash(struct port_host *h, struct host_conn *c)
{
	if (c->hashed)
		hash_del(&h->conns, &c->node);
	c->hashed = false;
}

/* ---- life ---- */

/**
 * host_conn_new() - connection without a socket
 * @p: its port
 * @t: its 4-tuple
 * @s: HOST_NEW or HOST_PENDING
 *
 * Return: the connection, or NULL without memory.
 */
struct host_conn *host_conn_new(struct host_port *p, const struct pkt_tuple *t, enum host_state s)
{
	struct host_conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	if (host_obj_add(p->host, &c->obj, HOST_CONN)) {
		free(c);
		return NULL;
	}
	c->port = p;
	c->tuple = *t;
	c->fd = -1;
	c->state = s;
	rand_secure(&c->peer_iss, sizeof(c->peer_iss));
	c->peer_nxt = c->peer_iss + 1;
	c->held_seq = c->peer_nxt;
	return c;
}

/**
 * host_conn_free() - last step of host_obj_kill()
 * @c: the connection
 */
void host_conn_free(struct host_conn *c)
{
	free(c->held);
	free(c->remainder);
	free(c);
}

/* Locked. Out of every list but the slots. */
static void conn_detach(struct port_host *h, struct host_conn *c)
{
	c->todo = 0;
	host_unqueue(h, c);
	host_conn_unhash(h, c);
	host_listener_leave(h, c);
	host_disarm(h, &c->obj);
}

/* Locked. */
static void conn_close(struct host_conn *c, bool abort)
{
	host_close_fd(c->fd, abort);
	c->fd = -1;
	c->remainder_len = 0;
	if (c->noted)
		host_note_number(c->port->host, c->tuple.loc_port, false);
	c->noted = false;
}

/**
 * host_conn_kill() - end a connection without a word to the CM
 * @h: the instance
 * @c: the connection; freed, unless a callback for it is in progress
 * @abort: RST to the peer
 */
void host_conn_kill(struct port_host *h, struct host_conn *c, bool abort)
{
	conn_detach(h, c);
	conn_close(c, abort);
	host_obj_kill(h, &c->obj);
}

/**
 * host_conn_fail() - a connection is over, and the CM is to learn why
 * @h: the instance
 * @c: the connection, not a stream; freed if the CM has no handle for it
 * @error: the cause, negative errno
 */
void host_conn_fail(struct port_host *h, struct host_conn *c, int error)
{
	if (c->state == HOST_PENDING) {
		host_conn_kill(h, c, true);
		return;
	}
	conn_detach(h, c);
	conn_close(c, c->state == HOST_ADOPTED);
	c->error = error;
	host_conn_set_state(c, HOST_DEAD);
	c->todo = HOST_DO_RST;
	host_queue(h, c);
}

/* ---- what the CM's segments do ---- */

/* Window scale of a SYN (RFC 7323 2.2), or -1. */
static int find_wscale(const struct pkt *p)
{
	const u8 *o = p->opts, *end = p->opts + p->optlen;

	while (o < end && *o != TCPOPT_EOL) {
		if (*o == TCPOPT_NOP) {
			o++;
			continue;
		}
		if (end - o < 2 || o[1] < 2 || o[1] > end - o)
			return -1;
		if (*o == TCPOPT_WINDOW && o[1] == TCPOLEN_WINDOW)
			return min(o[2], TCP_MAX_WINSHIFT);
		o += o[1];
	}
	return -1;
}

/* Locked. The CM's SYN or SYN+ACK; its window is not scaled (RFC 7323 2.2). */
static void take_syn(struct host_conn *c, const struct pkt *p)
{
	int wscale = find_wscale(p);

	c->cm_nxt = p->seq + 1;
	c->cm_ack = c->peer_iss + 1;
	c->cm_window = p->window;
	c->wscale_on = wscale >= 0;
	c->cm_wscale = wscale >= 0 ? (u8)wscale : 0;
}

static void set_traffic_class(const struct host_conn *c)
{
	int tos = c->tos, prio = c->prio;

	if (tos && c->tuple.ipv4)
		setsockopt(c->fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	else if (tos)
		setsockopt(c->fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
	if (prio)
		setsockopt(c->fd, SOL_SOCKET, SO_PRIORITY, &prio, sizeof(prio));
}

/* Locked. 0 or a negative errno. */
static int open_active(struct host_conn *c)
{
	const struct pkt_tuple *t = &c->tuple;
	int on = 1;

	c->fd = host_adopt_reservation(c->port, t->ipv4, t->loc_addr, t->loc_port);
	if (c->fd < 0)
		c->fd = host_bound_socket(c->port, t->ipv4, t->loc_addr, t->loc_port);
	if (c->fd < 0) {
		int rc = c->fd;

		c->fd = -1;
		return rc;
	}
	host_note_number(c->port->host, t->loc_port, true);
	c->noted = true;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	set_traffic_class(c);
	return 0;
}

/* Locked. 0 or a negative errno. */
static int begin_connect(struct port_host *h, struct host_conn *c)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int rc = open_active(c);

	if (rc)
		return rc;
	len = host_sockaddr(c->port, c->tuple.ipv4, c->tuple.rem_addr, c->tuple.rem_port, &ss);
	if (connect(c->fd, (struct sockaddr *)&ss, len) && errno != EINPROGRESS)
		return -errno;
	/* Not before: a socket that is not connecting polls as hung up. */
	return host_watch(h, &c->obj, c->fd, HOST_EPOLL_STREAM);
}

/* Locked. */
static void active_open(struct port_host *h, struct host_conn *c, const struct pkt *p)
{
	int rc;

	take_syn(c, p);
	host_conn_set_state(c, HOST_CONNECTING);
	rc = begin_connect(h, c);
	if (rc)
		host_conn_fail(h, c, rc);
}

/* Locked. RFC 9293 3.10.7.4: an ACK of what was not sent yet, or an old one, says nothing about the window. */
static void take_ack(struct host_conn *c, const struct pkt *p)
{
	u32 n;

	if (seq_lt(p->ack, c->cm_ack) || seq_gt(p->ack, c->peer_nxt))
		return;
	c->cm_ack = p->ack;
	c->cm_window = (u32)p->window << (c->wscale_on ? c->cm_wscale : 0);
	n = min(p->ack - c->held_seq, c->held_len); /* a FIN is not among the bytes */
	if (!n)
		return;
	memmove(c->held, c->held + n, c->held_len - n);
	c->held_len -= n;
	c->held_seq += n;
}

/* Locked. Bytes that the socket took, 0 if it is full, or a negative errno. */
static ssize_t send_some(const struct host_conn *c, const u8 *data, u32 len)
{
	ssize_t n;

	do
		n = send(c->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	if (errno == EAGAIN)
		return 0;
	return errno == EPIPE ? -ECONNRESET : -errno;
}

/* Locked. How much of @len was kept: what does not fit comes again with the CM's retransmission. */
static u32 keep_remainder(struct host_conn *c, const u8 *data, u32 len)
{
	u8 *p;

	len = min(len, HOST_REMAINDER_MAX - c->remainder_len);
	if (!len)
		return 0;
	p = realloc(c->remainder, c->remainder_len + len);
	if (!p)
		return 0;
	memcpy(p + c->remainder_len, data, len);
	c->remainder = p;
	c->remainder_len += len;
	return len;
}

/* Locked. The part of the payload that is new goes to the socket. */
static void take_payload(struct port_host *h, struct host_conn *c, const struct pkt *p)
{
	u32 old = c->cm_nxt - p->seq, len;
	const u8 *data = p->data;
	ssize_t n = 0;

	c->todo |= HOST_DO_ACK;
	if (seq_gt(p->seq, c->cm_nxt) || old >= p->datalen || c->fin_wanted)
		return;
	data += old;
	len = p->datalen - old;
	if (!c->remainder_len)
		n = send_some(c, data, len);
	if (n < 0) {
		host_conn_fail(h, c, (int)n);
		return;
	}
	c->cm_nxt += (u32)n + keep_remainder(c, data + n, len - (u32)n);
}

/* Locked. 0 or a negative errno. */
static int send_fin(struct host_conn *c)
{
	c->shut = true;
	c->cm_nxt++;
	if (c->state == HOST_OPEN)
		c->todo |= HOST_DO_ACK;
	return shutdown(c->fd, SHUT_WR) ? -ECONNRESET : 0;
}

/**
 * host_conn_flush() - send what waited for room in the socket, then the FIN that waited for it
 * @h: the instance
 * @c: the connection, also a stream
 *
 * Return: 0 if nothing waits any more, -EAGAIN, or what broke the connection.
 */
int host_conn_flush(struct port_host *h, struct host_conn *c)
{
	ssize_t n = c->remainder_len ? send_some(c, c->remainder, c->remainder_len) : 0;

	if (n < 0)
		return (int)n;
	if (n > 0) {
		u32 rest = c->remainder_len - (u32)n;

		memmove(c->remainder, c->remainder + n, rest);
		__atomic_store_n(&c->remainder_len, rest, __ATOMIC_RELEASE);
		if (c->state == HOST_OPEN)
			c->todo |= HOST_DO_ACK;
	}
	if (c->remainder_len)
		return -EAGAIN;
	return c->fin_wanted && !c->shut ? send_fin(c) : 0;
}

/* Locked. */
static void take_fin(struct port_host *h, struct host_conn *c, const struct pkt *p)
{
	int rc;

	c->todo |= HOST_DO_ACK;
	if (p->seq + p->datalen != c->cm_nxt || c->fin_wanted)
		return;
	c->fin_wanted = true;
	rc = host_conn_flush(h, c);
	if (rc && rc != -EAGAIN)
		host_conn_fail(h, c, rc);
}

/* Locked. */
static void take_established(struct port_host *h, struct host_conn *c, const struct pkt *p)
{
	if (p->flags & PKT_SYN) { /* RFC 5961 4: challenge ACK, which a retransmitted SYN+ACK needs anyway */
		c->todo |= HOST_DO_ACK;
		return;
	}
	if (p->flags & PKT_ACK)
		take_ack(c, p);
	if (p->datalen)
		take_payload(h, c, p);
	if (p->flags & PKT_FIN && c->state == HOST_OPEN)
		take_fin(h, c, p);
}

/* Locked. */
static void take_while_connected(struct port_host *h, struct host_conn *c, const struct pkt *p)
{
	u8 flags = p->flags & (PKT_SYN | PKT_ACK);

	if (flags == PKT_SYN) {
		c->todo |= HOST_DO_SYNACK;
	} else if (flags == PKT_ACK && p->ack == c->peer_iss + 1) {
		host_conn_set_state(c, HOST_OPEN);
		c->todo &= ~HOST_DO_SYNACK;
		take_established(h, c, p);
	}
}

/* Locked. */
static void take_while_adopted(struct port_host *h, struct host_conn *c, const struct pkt *p)
{
	if ((p->flags & (PKT_SYN | PKT_ACK)) != (PKT_SYN | PKT_ACK) || p->ack != c->peer_iss + 1)
		return;
	take_syn(c, p);
	host_listener_leave(h, c);
	host_disarm(h, &c->obj);
	host_conn_set_state(c, HOST_OPEN);
	c->todo = HOST_DO_ACK;
}

/* Locked. RFC 9293 3.10.7: the CM gives the connection up. */
static void take_rst(struct port_host *h, struct host_conn *c)
{
	c->cm_reset = true;
	conn_detach(h, c);
	if (c->state == HOST_DEAD)
		return;
	conn_close(c, true);
	host_conn_set_state(c, HOST_DEAD);
}

/* Locked. */
static void take_segment(struct port_host *h, struct host_conn *c, const struct pkt *p)
{
	switch (c->state) {
	case HOST_NEW:
		if ((p->flags & (PKT_SYN | PKT_ACK)) == PKT_SYN)
			active_open(h, c, p);
		else /* an answer to a pending connection that ended meanwhile */
			host_conn_fail(h, c, -ECONNRESET);
		break;
	case HOST_CONNECTED:
		take_while_connected(h, c, p);
		break;
	case HOST_ADOPTED:
		take_while_adopted(h, c, p);
		break;
	case HOST_OPEN:
		take_established(h, c, p);
		break;
	case HOST_DEAD:
		c->todo |= c->cm_reset ? 0 : HOST_DO_RST;
		break;
	default: /* CONNECTING: a retransmitted SYN; the others have no handle */
		break;
	}
	if (host_conn_has_work(c))
		host_queue(h, c);
}

/**
 * host_tx_ah() - port_ops.tx_ah
 * @p: the port
 * @ah: the connection
 * @seg: TCP header, options, payload
 * @len: their bytes
 *
 * Return: 0; -EINVAL if that is not a segment. What happens to the connection is reported later.
 */
int host_tx_ah(struct port *p, struct port_ah *ah, const void *seg, u32 len)
{
	struct port_host *h = host_port_of(p)->host;
	struct host_conn *c = host_conn_of_ah(ah);
	struct pkt pkt;

	if (len > UINT16_MAX - PKT_IP4_LEN || pkt_parse_segment(seg, len, &c->tuple, &pkt) != PKT_OK)
		return -EINVAL;
	pthread_mutex_lock(&h->lock);
	if (host_tapped(c))
		host_tap_segment(c, true, seg, len);
	if (pkt.flags & PKT_RST)
		take_rst(h, c);
	else
		take_segment(h, c, &pkt);
	pthread_mutex_unlock(&h->lock);
	return 0;
}

/* ---- address handles ---- */

/* Locked. */
static struct host_conn *adopt_pending(struct port_host *h, struct host_port *p, const struct pkt_tuple *t)
{
	struct host_conn *c = host_find_pending(h, t);

	if (!c || c->port != p)
		return NULL;
	host_conn_unhash(h, c);
	host_conn_set_state(c, HOST_ADOPTED);
	return c;
}

/* Locked. */
static struct host_conn *new_active(struct port_host *h, struct host_port *p, const struct pkt_tuple *t)
{
	struct host_conn *c = host_conn_new(p, t, HOST_NEW);

	if (c && port_is_tapped(&p->port))
		host_conn_hash(h, c);
	return c;
}

/**
 * host_ah_create() - port_ops.ah_create
 * @p: the port
 * @a: 4-tuple and traffic class; that of an accepted connection takes this over, any other is for connecting
 * @out: the handle
 *
 * Return: 0 or -ENOMEM.
 */
int host_ah_create(struct port *p, const struct port_ah_attr *a, struct port_ah **out)
{
	struct host_port *hp = host_port_of(p);
	struct port_host *h = hp->host;
	struct host_conn *c;

	pthread_mutex_lock(&h->lock);
	c = adopt_pending(h, hp, &a->tuple);
	if (!c)
		c = new_active(h, hp, &a->tuple);
	if (c) {
		c->tos = a->tos;
		c->prio = a->prio;
		if (c->state == HOST_ADOPTED)
			set_traffic_class(c);
	}
	pthread_mutex_unlock(&h->lock);
	*out = (struct port_ah *)c;
	return c ? 0 : -ENOMEM;
}

/* Locked. Does the peer know already that it is over? */
static bool ended_in_order(const struct host_conn *c)
{
	return c->fd < 0 || c->state == HOST_CONNECTING || (c->shut && (c->eof || (c->rdhup && !c->readable)));
}

/**
 * host_ah_destroy() - port_ops.ah_destroy
 * @p: the port
 * @ah: the handle, not offloaded; its socket is closed, with RST unless both FINs are through
 */
void host_ah_destroy(struct port *p, struct port_ah *ah)
{
	struct port_host *h = host_port_of(p)->host;
	struct host_conn *c = host_conn_of_ah(ah);
	bool abort;

	pthread_mutex_lock(&h->lock);
	abort = !ended_in_order(c);
	if (abort && host_tapped(c) && c->state == HOST_OPEN)
		host_tap_made_up(c, true, PKT_RST | PKT_ACK, c->cm_nxt, c->peer_nxt);
	host_conn_kill(h, c, abort);
	pthread_mutex_unlock(&h->lock);
}
