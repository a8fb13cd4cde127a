/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tsa: TCP for frame ports.
 *
 * Goal: the offload engine of the wire port. The CM opens a connection, speaks MPA on it and hands it over
 * as struct tcp_info_ho; from there on it is a byte stream until both directions ended.
 *
 * Events and what follows:
 *   segment      tsa_input() -> tsa_input.c, tsa_reasm.c; answers and new data leave through tsa_output.c
 *   timer        tsa_timer.c: retransmission, window probe, end of an orphan's FIN_WAIT2
 *   owner        tsa_sendv(), tsa_recvv(), tsa_shutdown(), tsa_abort(), tsa_close() below; never calls back
 * The first two end in tsa_finish(): the owner hears of it, then the ACK that is still due goes out, then what
 * nobody needs is freed. Nothing else frees, except tsa_close() outside of a callback.
 *
 * Rules: RFC 9293 as a whole, RFC 6298 timeouts, RFC 5681 and 6582 congestion control and NewReno recovery, RFC
 * 3042 limited transmit, RFC 5961 against blind attacks, RFC 7323 window scale, RFC 1337 in TIME_WAIT. Every
 * segment with text is acknowledged, unless the owner's answer carries the acknowledgement.
 *
 * Limits: per connection cfg.send_buf and the window that was given to the peer, TSA_OOO_RANGES holes,
 * TSA_CHALLENGES_PER_S answers to segments out of place; cfg.max_time_wait records.
 *
 * Left out: opening, urgent data (delivered in line), SACK, timestamps, ECN, keep-alives, path MTU
 * discovery (the frame ports know their MTU), Nagle's algorithm.
 *
 * One thread, no locks.
 */
#include <stdlib.h>
#include "tsa/tsa_internal.h"

static const char *const state_names[] = {
	[TSA_ST_NEW] = "NEW",
	[TSA_ST_ESTABLISHED] = "ESTABLISHED",
	[TSA_ST_FIN_WAIT1] = "FIN_WAIT1",
	[TSA_ST_FIN_WAIT2] = "FIN_WAIT2",
	[TSA_ST_CLOSE_WAIT] = "CLOSE_WAIT",
	[TSA_ST_CLOSING] = "CLOSING",
	[TSA_ST_LAST_ACK] = "LAST_ACK",
	[TSA_ST_TIME_WAIT] = "TIME_WAIT",
	[TSA_ST_CLOSED] = "CLOSED",
};
static_assert(ARRAY_SIZE(state_names) == TSA_ST_COUNT, "every state has a name");

/* Where a state may go. */
static const u16 legal_steps[] = {
	[TSA_ST_NEW] = BIT(TSA_ST_ESTABLISHED) | BIT(TSA_ST_CLOSE_WAIT),
	[TSA_ST_ESTABLISHED] = BIT(TSA_ST_FIN_WAIT1) | BIT(TSA_ST_CLOSE_WAIT) | BIT(TSA_ST_CLOSED),
	[TSA_ST_FIN_WAIT1] = BIT(TSA_ST_FIN_WAIT2) | BIT(TSA_ST_CLOSING) | BIT(TSA_ST_CLOSED),
	[TSA_ST_FIN_WAIT2] = BIT(TSA_ST_TIME_WAIT) | BIT(TSA_ST_CLOSED),
	[TSA_ST_CLOSE_WAIT] = BIT(TSA_ST_LAST_ACK) | BIT(TSA_ST_CLOSED),
	[TSA_ST_CLOSING] = BIT(TSA_ST_TIME_WAIT) | BIT(TSA_ST_CLOSED),
	[TSA_ST_LAST_ACK] = BIT(TSA_ST_CLOSED),
	[TSA_ST_TIME_WAIT] = 0,
	[TSA_ST_CLOSED] = 0,
};
static_assert(ARRAY_SIZE(legal_steps) == TSA_ST_COUNT, "every state has its steps");

const char *tsa_state_name(u8 state)
{
	return state < TSA_ST_COUNT ? state_names[state] : "?";
}

void tsa_set_state(struct tsa_conn *c, enum tsa_state next)
{
	log_debug("tsa", "%u-%u: %s -> %s", c->e.loc_port, c->e.rem_port, tsa_state_name(c->state), tsa_state_name(next));
	assert(legal_steps[c->state] & BIT(next));
	c->state = (u8)next;
}

/* ---- the table ---- */

static bool entry_eq(const struct hash_node *n, const void *key)
{
	const struct tsa_entry *e = container_of(n, struct tsa_entry, node);
	const struct pkt_tuple *k = key;

	return e->loc_port == k->loc_port && e->rem_port == k->rem_port && e->route.vlan_id == k->vlan_id &&
	       e->route.ipv4 == k->ipv4 && pkt_addr_eq(e->route.src, k->loc_addr) && pkt_addr_eq(e->route.dst, k->rem_addr);
}

/**
 * tsa_hash() - keyed hash of a connection's addresses
 * @t: the tsa, whose secret key it is
 * @k: the addresses
 *
 * Return: what tsa_input_hashed() wants; good for tables of others too.
 */
u64 tsa_hash(const struct tsa *t, const struct pkt_tuple *k)
{
	u32 ports = (u32)k->loc_port << 16 | k->rem_port;
	u32 w[10];

	w[0] = ports;
	w[1] = (u32)k->vlan_id << 1 | k->ipv4;
	w[2] = k->loc_addr[0];
	w[3] = k->rem_addr[0];
	if (k->ipv4)
		return hash_of(&t->table, w, 4 * sizeof(w[0]));
	memcpy(&w[4], &k->loc_addr[1], 3 * sizeof(w[0]));
	memcpy(&w[7], &k->rem_addr[1], 3 * sizeof(w[0]));
	return hash_of(&t->table, w, sizeof(w));
}

struct tsa_entry *tsa_find(struct tsa *t, const struct pkt_tuple *tuple, u64 hash)
{
	struct hash_node *n = hash_find(&t->table, hash, entry_eq, tuple);

	return n ? container_of(n, struct tsa_entry, node) : NULL;
}

void tsa_entry_init(struct tsa_entry *e, enum tsa_kind kind, const struct tcp_info_ho *info)
{
	const struct pkt_tuple *u = &info->tuple;

	e->kind = (u8)kind;
	e->loc_port = u->loc_port;
	e->rem_port = u->rem_port;
	e->route = (struct pkt_route){
		.vlan_id = u->vlan_id,
		.prio = info->prio,
		.ipv4 = u->ipv4,
		.ttl = info->ttl ? info->ttl : 64,
		.tos = info->tos,
	};
	memcpy(e->route.smac, info->loc_mac, 6);
	memcpy(e->route.dmac, info->rem_mac, 6);
	memcpy(e->route.src, u->loc_addr, sizeof(e->route.src));
	memcpy(e->route.dst, u->rem_addr, sizeof(e->route.dst));
}

/* ---- the tsa ---- */

static struct tsa_config with_defaults(const struct tsa_config *cfg)
{
	static const struct tsa_config defaults = {
		.send_buf = 256 << 10,
		.recv_buf = 256 << 10,
		.min_rto_ns = 200 * NSEC_PER_MSEC,
		.max_rto_ns = 60 * NSEC_PER_SEC,
		.max_retries = 15,
		.time_wait_ns = 60 * NSEC_PER_SEC,
		.max_time_wait = 1 << 20,
	};

	return cfg ? *cfg : defaults;
}

static bool config_ok(const struct tsa_config *cfg)
{
	return cfg->send_buf && cfg->send_buf <= TSA_BUF_MAX && cfg->recv_buf && cfg->recv_buf <= TSA_BUF_MAX / 2 &&
	       cfg->min_rto_ns && cfg->min_rto_ns <= cfg->max_rto_ns && cfg->max_retries < UINT8_MAX;
}

static void pools_init(struct tsa *t)
{
	u32 size = TSA_BUF_CLASS_MIN;
	int i;

	pool_init(&t->conn_pool, sizeof(struct tsa_conn), 0);
	pool_init(&t->time_wait_pool, sizeof(struct tsa_time_wait), 0);
	pool_init(&t->ooo_pool, sizeof(struct tsa_ooo), 0);
	for (i = 0; i < TSA_BUF_POOLS; i++, size <<= 2)
		pool_init(&t->buf_pool[i], size, 0);
}

static void pools_destroy(struct tsa *t)
{
	int i;

	pool_destroy(&t->conn_pool);
	pool_destroy(&t->time_wait_pool);
	pool_destroy(&t->ooo_pool);
	for (i = 0; i < TSA_BUF_POOLS; i++)
		pool_destroy(&t->buf_pool[i]);
}

/* Segments carry up to @payload bytes from now on. */
static int out_reserve(struct tsa *t, u32 payload)
{
	u8 *out;

	if (t->out && payload <= t->out_payload)
		return 0;
	out = malloc(PKT_HDR_MAX + PKT_TCP_LEN + payload);
	if (!out)
		return -ENOMEM;
	free(t->out);
	t->out = out;
	t->out_payload = payload;
	return 0;
}

/**
 * tsa_create() - an offload engine without connections
 * @loop: its clock and timers
 * @cfg: limits, NULL for the defaults
 * @up: where segments go
 * @ctx: handed to @up
 * @out: the result
 *
 * Return: 0, -EINVAL for a configuration that makes no sense, -ENOMEM.
 */
int tsa_create(struct loop *loop, const struct tsa_config *cfg, const struct tsa_up *up, void *ctx, struct tsa **out)
{
	struct tsa *t = calloc(1, sizeof(*t));
	int ret = -EINVAL;

	if (!t)
		return -ENOMEM;
	t->loop = loop;
	t->cfg = with_defaults(cfg);
	t->up = *up;
	t->ctx = ctx;
	TAILQ_INIT(&t->time_waits);
	LIST_INIT(&t->over);
	timer_setup(&t->time_wait_timer, loop, tsa_time_wait_expire);
	if (!config_ok(&t->cfg))
		goto free_tsa;
	ret = out_reserve(t, 0);
	if (ret)
		goto free_tsa;
	ret = hash_init(&t->table, NULL);
	if (ret)
		goto free_out;
	pools_init(t);
	*out = t;
	return 0;
free_out:
	free(t->out);
free_tsa:
	free(t);
	return ret;
}

static void conn_free(struct tsa_conn *c)
{
	struct tsa *t = c->tsa;

	assert(!c->busy);
	tsa_timer_stop(c);
	tsa_reasm_free(c);
	tsa_ring_free(t, &c->snd);
	tsa_ring_free(t, &c->rcv);
	t->conns--;
	pool_put(&t->conn_pool, c);
}

static bool destroy_entry(struct hash_node *n, void *arg)
{
	struct tsa *t = arg;
	struct tsa_entry *e = container_of(n, struct tsa_entry, node);

	if (e->kind == TSA_KIND_TIME_WAIT) {
		tsa_time_wait_del(t, container_of(e, struct tsa_time_wait, e));
		return true;
	}
	hash_del(&t->table, n);
	conn_free(container_of(e, struct tsa_conn, e));
	return true;
}

/**
 * tsa_destroy() - drop all connections and records without a word to anyone
 * @t: the tsa, not from inside one of its callbacks
 *
 * Owners that have not called tsa_close() must not use their connections any more.
 */
void tsa_destroy(struct tsa *t)
{
	struct tsa_conn *c;

	hash_walk(&t->table, destroy_entry, t);
	while ((c = LIST_FIRST(&t->over))) {
		LIST_REMOVE(c, over);
		conn_free(c);
	}
	timer_del(&t->time_wait_timer);
	hash_destroy(&t->table);
	pools_destroy(t);
	free(t->out);
	free(t);
}

const struct tsa_stats *tsa_stats(const struct tsa *t)
{
	return &t->stats;
}

/**
 * tsa_usage() - what is held
 * @t: the tsa
 * @conns: connections, also those that only wait for tsa_close()
 * @time_waits: TIME_WAIT records
 * @conn_bytes: size of one connection without buffered data
 * @time_wait_bytes: size of one record
 *
 * Each pointer may be NULL.
 */
void tsa_usage(const struct tsa *t, size_t *conns, size_t *time_waits, size_t *conn_bytes, size_t *time_wait_bytes)
{
	if (conns)
		*conns = t->conns;
	if (time_waits)
		*time_waits = t->n_time_waits;
	if (conn_bytes)
		*conn_bytes = sizeof(struct tsa_conn);
	if (time_wait_bytes)
		*time_wait_bytes = sizeof(struct tsa_time_wait);
}

/* ---- a connection's end ---- */

void tsa_end(struct tsa_conn *c, enum tsa_state final, u32 events)
{
	tsa_set_state(c, final);
	hash_del(&c->tsa->table, &c->e.node);
	tsa_timer_stop(c);
	tsa_reasm_free(c);
	tsa_ring_free(c->tsa, &c->snd);
	if (c->up)
		LIST_INSERT_HEAD(&c->tsa->over, c, over);
	c->pending |= (u8)events;
}

void tsa_fail(struct tsa_conn *c, int error)
{
	c->error = error;
	c->ack_now = false;
	tsa_end(c, TSA_ST_CLOSED, TSA_RESET);
}

static void report(struct tsa_conn *c)
{
	u32 events = c->pending;

	c->pending = 0;
	if (!c->up)
		return;
	c->busy = true;
	c->up->event(c->ctx, events);
	c->busy = false;
}

void tsa_finish(struct tsa_conn *c)
{
	if (c->pending)
		report(c);
	if (c->ack_now && c->state != TSA_ST_CLOSED)
		tsa_send_ack(c);
	if (tsa_ended(c) && !c->up)
		conn_free(c);
}

/* ---- taking over ---- */

static bool info_ok(const struct tcp_info_ho *info)
{
	return info->rcv_wnd <= TSA_BUF_MAX / 4 && info->rx_len <= TSA_BUF_MAX / 4 && info->snd_wscale <= 14 &&
	       info->rcv_wscale <= 14 && tsa_span(info->snd_una, info->snd_nxt) <= TSA_BUF_MAX &&
	       (info->rx_data || !info->rx_len);
}

static void conn_init(struct tsa_conn *c, struct tsa *t, const struct tcp_info_ho *info)
{
	*c = (struct tsa_conn){
		.tsa = t,
		.snd_wscale = info->snd_wscale,
		.rcv_wscale = info->rcv_wscale,
		.mss = (u16)tsa_max_u32(info->mss ? info->mss : 536, TSA_MSS_MIN),
		.snd_una = info->snd_una,
		.snd_nxt = info->snd_nxt,
		.snd_max = info->snd_nxt,
		.snd_seq = info->snd_nxt,
		.snd_wnd = info->snd_wnd,
		.max_snd_wnd = tsa_max_u32(info->max_snd_wnd, info->snd_wnd),
		.snd_wl1 = info->rcv_nxt,
		.ssthresh = TSA_BUF_MAX,
		.recover = info->snd_una - 1,
		.rcv_nxt = info->rcv_nxt,
		.rcv_adv = info->rcv_nxt + info->rcv_wnd,
		.rcv_cap = tsa_max_u32(t->cfg.recv_buf, info->rcv_wnd + info->rx_len),
		.rto_ns = TSA_RTO_INITIAL_NS,
		.last_send_ns = loop_now(t->loop),
	};
	tsa_entry_init(&c->e, TSA_KIND_CONN, info);
	timer_setup(&c->timer, t->loop, tsa_timer_fired);
	c->cwnd = tsa_initial_window(c);
	if (c->rto_ns < t->cfg.min_rto_ns)
		c->rto_ns = t->cfg.min_rto_ns;
	if (c->rto_ns > t->cfg.max_rto_ns)
		c->rto_ns = t->cfg.max_rto_ns;
}

static int take_rx_data(struct tsa_conn *c, const struct tcp_info_ho *info)
{
	if (!info->rx_len)
		return 0;
	if (tsa_ring_reserve(c->tsa, &c->rcv, info->rx_len))
		return -ENOMEM;
	tsa_ring_write(&c->rcv, 0, info->rx_data, info->rx_len);
	c->rcv.len = info->rx_len;
	c->tsa->stats.bytes_in += info->rx_len;
	c->pending |= TSA_READABLE;
	return 0;
}

/* Take the place of a TIME_WAIT record; a live connection stays. */
static int make_room(struct tsa *t, const struct pkt_tuple *tuple, u64 hash)
{
	struct tsa_entry *e = tsa_find(t, tuple, hash);

	if (!e)
		return 0;
	if (e->kind == TSA_KIND_CONN)
		return -EEXIST;
	tsa_time_wait_del(t, container_of(e, struct tsa_time_wait, e));
	return 0;
}

/**
 * tsa_conn_create() - take a connection over
 * @t: the tsa
 * @info: its state. rcv_nxt counts the peer's FIN if peer_fin is set. Bytes between snd_una and snd_nxt are the CM's: their
 *        acknowledgement is awaited, they are not sent again
 * @up: who is told
 * @ctx: handed to @up
 * @out: the result
 *
 * If there are bytes to read, or the peer has closed its side, the first event comes from the loop.
 *
 * Return: 0; -EEXIST, a live connection has these addresses; -EINVAL, @info is out of bounds; -ENOMEM.
 */
int tsa_conn_create(struct tsa *t, const struct tcp_info_ho *info, const struct tsa_conn_up *up, void *ctx,
		    struct tsa_conn **out)
{
	u64 hash = tsa_hash(t, &info->tuple);
	struct tsa_conn *c;
	int ret;

	if (!info_ok(info))
		return -EINVAL;
	ret = make_room(t, &info->tuple, hash);
	if (ret)
		return ret;
	c = pool_get(&t->conn_pool);
	if (!c)
		return -ENOMEM;
	conn_init(c, t, info);
	t->conns++;
	if (out_reserve(t, c->mss) || take_rx_data(c, info)) {
		conn_free(c);
		return -ENOMEM;
	}
	c->up = up;
	c->ctx = ctx;
	hash_add(&t->table, &c->e.node, hash);
	tsa_set_state(c, info->peer_fin ? TSA_ST_CLOSE_WAIT : TSA_ST_ESTABLISHED);
	if (info->peer_fin)
		c->pending |= TSA_EOF;
	if (c->pending)
		tsa_timer_report(c);
	*out = c;
	return 0;
}

/* ---- the owner's calls ---- */

/* Room for all of @want in the send ring; what there is if memory is short. */
static u32 send_room(struct tsa_conn *c, size_t want)
{
	u32 room = c->tsa->cfg.send_buf > c->snd.len ? c->tsa->cfg.send_buf - c->snd.len : 0;
	u32 n = want < room ? (u32)want : room;

	if (tsa_ring_reserve(c->tsa, &c->snd, c->snd.len + n))
		n = c->snd.cap - c->snd.len;
	return n;
}

static size_t iov_bytes(const struct iovec *iov, int n)
{
	size_t sum = 0;
	int i;

	for (i = 0; i < n; i++)
		if (__builtin_add_overflow(sum, iov[i].iov_len, &sum))
			return SIZE_MAX;
	return sum;
}

/**
 * tsa_sendv() - queue bytes, and send what may go
 * @c: the connection
 * @iov: the bytes, copied
 * @n: number of pieces
 *
 * After a short return TSA_WRITABLE follows when a quarter of the buffer is free.
 *
 * Return: bytes taken; -EAGAIN; -EPIPE after tsa_shutdown() or the connection's end; the error it broke with.
 */
ssize_t tsa_sendv(struct tsa_conn *c, const struct iovec *iov, int n)
{
	size_t want = iov_bytes(iov, n);
	u32 take, done = 0;
	int i;

	if (c->error)
		return c->error;
	if (c->fin_queued || tsa_ended(c))
		return -EPIPE;
	if (!want)
		return 0;
	take = send_room(c, want);
	if (take < want)
		c->want_write = true;
	if (!take)
		return c->snd.len ? -EAGAIN : -ENOMEM;
	for (i = 0; done < take; i++) {
		u32 part = iov[i].iov_len < take - done ? (u32)iov[i].iov_len : take - done;

		if (!part)
			continue;
		tsa_ring_write(&c->snd, c->snd.len, iov[i].iov_base, part);
		c->snd.len += part;
		done += part;
	}
	tsa_output(c);
	return done;
}

static void after_read(struct tsa_conn *c)
{
	if (!c->rcv.len && !c->ooo)
		tsa_ring_free(c->tsa, &c->rcv);
	if (!tsa_receiving(c) || !tsa_window_worth_telling(c))
		return;
	if (c->busy)
		c->ack_now = true;
	else
		tsa_send_ack(c);
}

/**
 * tsa_recvv() - take bytes that came in order
 * @c: the connection
 * @iov: where to
 * @n: number of pieces
 *
 * Bytes that came before a reset can be read after it.
 *
 * Return: bytes; 0 after the peer's FIN, when all is read; -EAGAIN; the error the connection broke with.
 */
ssize_t tsa_recvv(struct tsa_conn *c, const struct iovec *iov, int n)
{
	u32 done = 0;
	int i;

	if (!c->rcv.len) {
		if (c->error)
			return c->error;
		return tsa_receiving(c) ? -EAGAIN : 0;
	}
	for (i = 0; i < n && c->rcv.len; i++) {
		u32 part = iov[i].iov_len < c->rcv.len ? (u32)iov[i].iov_len : c->rcv.len;

		if (!part)
			continue;
		tsa_ring_read(&c->rcv, 0, iov[i].iov_base, part);
		tsa_ring_drop(&c->rcv, part);
		done += part;
	}
	if (done)
		after_read(c);
	return done;
}

static void queue_fin(struct tsa_conn *c)
{
	c->fin_queued = true;
	tsa_set_state(c, c->state == TSA_ST_CLOSE_WAIT ? TSA_ST_LAST_ACK : TSA_ST_FIN_WAIT1);
	tsa_output(c);
}

/**
 * tsa_shutdown() - no more bytes from this side; FIN after what is queued
 * @c: the connection
 *
 * Return: 0, also when that was so already; the error it broke with.
 */
int tsa_shutdown(struct tsa_conn *c)
{
	if (c->error)
		return c->error;
	if (!c->fin_queued && !tsa_ended(c))
		queue_fin(c);
	return 0;
}

/**
 * tsa_abort() - RST to the peer; what is queued is lost
 * @c: the connection; tsa_close() is still due, no event comes for this
 */
void tsa_abort(struct tsa_conn *c)
{
	if (tsa_ended(c))
		return;
	tsa_send_reset(c);
	c->error = -ECONNRESET;
	tsa_end(c, TSA_ST_CLOSED, 0);
	c->pending = 0;
}

/* RFC 9293 3.10.4, and 3.6.1 for bytes that nobody read. */
static void close_orphan(struct tsa_conn *c)
{
	if (c->rcv.len)
		tsa_abort(c);
	else if (!c->fin_queued)
		queue_fin(c);
	else if (c->state == TSA_ST_FIN_WAIT2)
		tsa_timer_orphan_fin_wait2(c);
}

/**
 * tsa_close() - the owner forgets the connection
 * @c: the connection, not the owner's any more; may be called from inside the callback
 *
 * It ends in order by itself if all was read, else with a reset.
 */
void tsa_close(struct tsa_conn *c)
{
	if (tsa_ended(c))
		LIST_REMOVE(c, over);
	c->up = NULL;
	c->pending = 0;
	if (!tsa_ended(c))
		close_orphan(c);
	if (tsa_ended(c) && !c->busy)
		conn_free(c);
}

void tsa_forget_unread(struct tsa_conn *c)
{
	tsa_ring_drop(&c->rcv, c->rcv.len);
	if (!c->ooo)
		tsa_ring_free(c->tsa, &c->rcv);
}

/* 0 or -ENOMEM. Beyond cfg.send_buf: it is the last. */
static int append(struct tsa_conn *c, const void *rest, u32 len)
{
	int ret = tsa_ring_reserve(c->tsa, &c->snd, c->snd.len + len);

	if (ret)
		return ret;
	tsa_ring_write(&c->snd, c->snd.len, rest, len);
	c->snd.len += len;
	return 0;
}

/**
 * tsa_drain() - the owner forgets the connection, but the peer is to hear the end
 * @c: the connection, not the owner's any more; may be called from inside the callback
 * @rest: bytes that tsa_sendv() did not take and that go out before the FIN
 * @len: their number; 0 after tsa_shutdown()
 *
 * For TSA_DRAIN_NS what the peer sends is acknowledged and thrown away; a reset would make it throw away what it has
 * not read, or take the rest of ours from the queue. After that it is as after tsa_close().
 */
void tsa_drain(struct tsa_conn *c, const void *rest, u32 len)
{
	if (!tsa_ended(c)) {
		c->drain_until_ns = loop_now(c->tsa->loop) + TSA_DRAIN_NS;
		tsa_forget_unread(c);
		if (len && !c->fin_queued && append(c, rest, len))
			tsa_abort(c);
		else
			after_read(c);
	}
	tsa_close(c);
}

int tsa_error(const struct tsa_conn *c)
{
	return c->error;
}
