/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port: the wire, an Ethernet inside the process.
 *
 * Goal: any number of NICs, any fault, and any run again: time is the loop's and moves from event to event, all
 * chance comes from one seed, nothing depends on an address in memory or on the order of a hash table.
 *
 * A frame's way: tx_frame/tx_ah/offload engine -> taps -> NIC that has its destination address (none: dropped) -> the
 * sender's path, or the wire's default (wire_path.c) -> queue (wire_queue.c) -> when due, the receiver's
 * own path if it has one, and the queue again -> reception (wire_rx.c). So a NIC is never called from inside
 * its own down call.
 *
 * Order within one instant: frames as sent, then timers. A frame that queued work is followed at once by loop_run(),
 * that is, by the timers due and then by all work.
 *
 * Limits: WIRE_IN_FLIGHT_MAX frames, WIRE_FRAME_MAX bytes each; a NIC sends up to its MTU.
 *
 * Left out: broadcast and multicast (nothing here sends them: neighbours are net's business), switches' tables.
 *
 * One thread, the one that steps.
 */
#include <stdlib.h>
#include "port/wire_internal.h"

/* A stream of this port is the tsa's connection itself. */
static_assert(PORT_READABLE == TSA_READABLE && PORT_WRITABLE == TSA_WRITABLE && PORT_EOF == TSA_EOF &&
	      PORT_RESET == TSA_RESET && PORT_CLOSED == TSA_CLOSED, "events are passed through");
static_assert(sizeof(struct port_stream_up) == sizeof(struct tsa_conn_up) &&
	      offsetof(struct port_stream_up, event) == offsetof(struct tsa_conn_up, event), "so are those told");

static struct tsa_conn *conn_of(struct port_stream *s) { return (struct tsa_conn *)s; }

/* ---- sending ---- */

void wire_tap(struct wire_port *p, bool out, const struct pkt *pkt)
{
	struct port_tap *t, *next;

	TAILQ_FOREACH_SAFE(t, &p->port.taps, entry, next)
		t->frame(t, &p->port, out, pkt, wire_now(p->wire));
}

static void tap_out(struct wire_port *p, const struct wire_frame *f)
{
	struct pkt pkt;

	if (pkt_parse(f->data, f->len, false, &pkt) == PKT_OK)
		wire_tap(p, true, &pkt);
}

static bool mac_eq(const struct hash_node *n, const void *key)
{
	return !memcmp(container_of(n, struct wire_port, by_mac)->port.iface.mac, key, 6);
}

/* The NICs' addresses are this process's own choice: no secret key is needed. */
static u64 mac_hash(const u8 *mac)
{
	u64 h = 0;

	memcpy(&h, mac, 6);
	h *= 0x9E3779B97F4A7C15ull;
	return h ^ h >> 32;
}

static struct wire_port *by_mac(struct port_wire *w, const u8 *mac)
{
	struct hash_node *n = hash_find(&w->macs, mac_hash(mac), mac_eq, mac);

	return n ? container_of(n, struct wire_port, by_mac) : NULL;
}

/* Most NICs talk to one other. */
static struct wire_port *destination(struct wire_port *p, const u8 *mac)
{
	struct port_wire *w = p->wire;

	if (p->last_to && p->last_change == w->change && !memcmp(p->last_to->port.iface.mac, mac, 6))
		return p->last_to;
	p->last_to = by_mac(w, mac);
	p->last_change = w->change;
	return p->last_to;
}

/* Consumes @f. */
static int transmit(struct wire_port *p, struct wire_frame *f)
{
	struct port_wire *w = p->wire;

	w->stats.frames++;
	if (unlikely(!p->link_up)) {
		w->stats.down++;
		wire_frame_put(&w->queue, f);
		return -ENETDOWN;
	}
	if (unlikely(wire_tapped(p)))
		tap_out(p, f);
	f->to = destination(p, f->data);
	if (unlikely(!f->to)) {
		w->stats.no_route++;
		wire_frame_put(&w->queue, f);
		return 0;
	}
	wire_port_get(f->to);
	wire_path_send(w, &p->out, p->out.set ? &p->out.path : &w->path, f);
	return 0;
}

static int tx_frame(struct port *port, const void *frame, u32 len)
{
	struct wire_port *p = wire_port_of(port);
	struct wire_frame *f;

	if (len < PKT_ETH_LEN || len > p->mtu + PKT_ETH_LEN + PKT_VLAN_LEN)
		return -EMSGSIZE;
	f = wire_frame_get(&p->wire->queue, len);
	if (!f)
		return -ENOBUFS;
	memcpy(f->data, frame, len);
	return transmit(p, f);
}

int wire_tx_segment(struct wire_port *p, const struct pkt_route *r, const u8 *seg, u32 len)
{
	u32 hlen = pkt_header_len(r);
	struct wire_frame *f;

	if (len < PKT_TCP_LEN || len > p->mtu - (r->ipv4 ? PKT_IP4_LEN : PKT_IP6_LEN))
		return -EMSGSIZE;
	f = wire_frame_get(&p->wire->queue, hlen + len);
	if (!f)
		return -ENOBUFS;
	memcpy(f->data + hlen, seg, len);
	pkt_push_headers(r, f->data + hlen, len, p->ip_id++);
	f->intact = true;
	return transmit(p, f);
}

static int tx_ah(struct port *port, struct port_ah *ah, const void *seg, u32 len)
{
	return wire_tx_segment(wire_port_of(port), &ah->route, seg, len);
}

/* The offload engine's way out: what does not fit or has no buffer is as good as lost. */
static void tsa_tx(void *ctx, const struct pkt_route *r, u8 *tcp, u32 len)
{
	wire_tx_segment(ctx, r, tcp, len);
}

/* ---- address handles ---- */

static int ah_create(struct port *port, const struct port_ah_attr *a, struct port_ah **out)
{
	struct wire_port *p = wire_port_of(port);
	struct port_ah *ah = pool_get(&p->wire->ah_pool);

	if (!ah)
		return -ENOMEM;
	ah->route = (struct pkt_route){
		.vlan_id = a->tuple.vlan_id, .prio = a->prio, .ipv4 = a->tuple.ipv4, .ttl = a->ttl, .tos = a->tos,
	};
	memcpy(ah->route.smac, p->port.iface.mac, 6);
	memcpy(ah->route.dmac, a->dmac, 6);
	memcpy(ah->route.src, a->tuple.loc_addr, sizeof(ah->route.src));
	memcpy(ah->route.dst, a->tuple.rem_addr, sizeof(ah->route.dst));
	LIST_INSERT_HEAD(&p->ahs, ah, entry);
	*out = ah;
	return 0;
}

static void ah_destroy(struct port *port, struct port_ah *ah)
{
	LIST_REMOVE(ah, entry);
	pool_put(&wire_port_of(port)->wire->ah_pool, ah);
}

static void filter_kick(struct port *port, struct port_filter *f)
{
	(void)port; /* nothing waits in front of a frame port's listeners */
	(void)f;
}

/* ---- streams ---- */

static int offload(struct port *port, struct port_ah *ah, const struct tcp_info_ho *info, const struct port_stream_up *up,
		   void *ctx, struct port_stream **out)
{
	struct wire_port *p = wire_port_of(port);
	struct tsa_conn *c;
	int ret = tsa_conn_create(p->tsa, info, (const struct tsa_conn_up *)up, ctx, &c);

	if (ret)
		return ret;
	if (ah)
		ah_destroy(port, ah);
	*out = (struct port_stream *)c;
	return 0;
}

static int time_wait(struct port *port, const struct tcp_info_ho *info)
{
	return tsa_time_wait_add(wire_port_of(port)->tsa, info);
}

static ssize_t stream_send(struct port_stream *s, const struct iovec *iov, int n) { return tsa_sendv(conn_of(s), iov, n); }
static ssize_t stream_recv(struct port_stream *s, const struct iovec *iov, int n) { return tsa_recvv(conn_of(s), iov, n); }
static int stream_shutdown(struct port_stream *s) { return tsa_shutdown(conn_of(s)); }
static void stream_abort(struct port_stream *s) { tsa_abort(conn_of(s)); }
static void stream_close(struct port_stream *s) { tsa_close(conn_of(s)); }
static void stream_drain(struct port_stream *s, const void *rest, u32 len) { tsa_drain(conn_of(s), rest, len); }
static int stream_error(struct port_stream *s) { return tsa_error(conn_of(s)); }

/* ---- plugging ---- */

void wire_port_put(struct wire_port *p)
{
	if (likely(--p->refs))
		return;
	assert(!p->plugged);
	free(p);
}

/* Everything of this NIC goes, without a word on the wire. Not from inside a stream's event. */
static void unplug(struct port *port)
{
	struct wire_port *p = wire_port_of(port);
	struct port_wire *w = p->wire;
	struct port_ah *ah;

	wire_filters_free(p);
	tsa_destroy(p->tsa);
	p->tsa = NULL;
	while ((ah = LIST_FIRST(&p->ahs)))
		ah_destroy(port, ah);
	wire_ports_free(&p->ports);
	hash_del(&w->macs, &p->by_mac);
	w->plugged--;
	w->change++;
	p->plugged = false;
	wire_port_put(p);
}

static const struct port_ops wire_ops = {
	.name = "wire",
	.flags = PORT_FRAMES | PORT_NEEDS_NEIGH | PORT_CHECKSUMS,
	.unplug = unplug,
	.tx_frame = tx_frame,
	.tx_ah = tx_ah,
	.ah_create = ah_create,
	.ah_destroy = ah_destroy,
	.filter_add = wire_filter_add,
	.filter_del = wire_filter_del,
	.filter_kick = filter_kick,
	.reserve = wire_reserve,
	.release = wire_release,
	.offload = offload,
	.time_wait = time_wait,
	.stream_send = stream_send,
	.stream_recv = stream_recv,
	.stream_shutdown = stream_shutdown,
	.stream_abort = stream_abort,
	.stream_close = stream_close,
	.stream_drain = stream_drain,
	.stream_error = stream_error,
};

static int tables_init(struct wire_port *p)
{
	static const struct tsa_up up = { .output = tsa_tx };
	int ret = tsa_create(p->wire->loop, NULL, &up, p, &p->tsa);

	if (ret)
		return ret;
	ret = hash_init(&p->quads, NULL);
	if (ret)
		goto destroy_tsa;
	ret = hash_init(&p->listeners, NULL);
	if (ret)
		goto destroy_quads;
	return 0;
destroy_quads:
	hash_destroy(&p->quads);
destroy_tsa:
	tsa_destroy(p->tsa);
	return ret;
}

/**
 * port_wire_plug() - a NIC on the wire
 * @w: the wire
 * @net: network of the host it is in; NULL: every destination address counts as the host's
 * @iface: its name, MAC address and MTU (0: 1500)
 * @up: who gets the frames that are not a taken-over connection's
 * @ctx: handed to @up
 * @out: the port; unplug with its ops
 *
 * Return: 0; -EEXIST, the MAC address is taken; -EINVAL, it is not that of a single station, or the MTU is below 576;
 * -ENOMEM.
 */
int port_wire_plug(struct port_wire *w, struct net *net, const struct net_iface *iface, const struct port_up *up, void *ctx,
		   struct port **out)
{
	static const u8 zero[6];
	struct wire_port *p;
	int ret;

	if ((iface->mac[0] & 1) || !memcmp(iface->mac, zero, 6) || (iface->mtu && iface->mtu < 576))
		return -EINVAL;
	if (by_mac(w, iface->mac))
		return -EEXIST;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->wire = w;
	ret = tables_init(p);
	if (ret) {
		free(p);
		return ret;
	}
	p->port = (struct port){ .ops = &wire_ops, .loop = w->loop, .net = net, .iface = *iface, .up = up, .up_ctx = ctx };
	TAILQ_INIT(&p->port.taps);
	LIST_INIT(&p->ahs);
	p->refs = 1;
	p->plugged = p->link_up = p->reset_unmatched = true;
	p->mtu = min(iface->mtu ? iface->mtu : WIRE_MTU_DEFAULT, 65535u);
	hash_add(&w->macs, &p->by_mac, mac_hash(iface->mac));
	w->plugged++;
	w->change++;
	*out = &p->port;
	return 0;
}

/* ---- the wire ---- */

/**
 * port_wire_create() - an Ethernet without NICs and without faults
 * @loop: its time is the wire's from now on
 * @seed: of all chance
 * @out: the result
 *
 * Return: 0 or -ENOMEM.
 */
int port_wire_create(struct loop *loop, u64 seed, struct port_wire **out)
{
	struct port_wire *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	if (hash_init(&w->macs, NULL)) {
		free(w);
		return -ENOMEM;
	}
	w->loop = loop;
	w->path.plain = true;
	rand_gen_seed(&w->rand, seed);
	wire_queue_init(&w->queue);
	pool_init(&w->ah_pool, sizeof(struct port_ah), 0);
	pool_init(&w->filter_pool, sizeof(struct port_filter), 0);
	*out = w;
	return 0;
}

/**
 * port_wire_destroy() - the end of a wire
 * @w: the wire; all ports are unplugged (asserted), frames on their way are dropped
 */
void port_wire_destroy(struct port_wire *w)
{
	struct wire_frame *f;

	assert(!w->plugged);
	while ((f = wire_queue_pop(&w->queue))) {
		wire_port_put(f->to);
		wire_frame_put(&w->queue, f);
	}
	wire_queue_destroy(&w->queue);
	hash_destroy(&w->macs);
	pool_destroy(&w->ah_pool);
	pool_destroy(&w->filter_pool);
	free(w);
}

void port_wire_set_default(struct port_wire *w, const struct port_wire_path *path)
{
	wire_path_set(&w->path, path);
}

/**
 * port_wire_set_path() - a path of its own for a NIC
 * @p: the NIC
 * @out: what it sends, in place of the wire's default; else what it receives, on top of the sender's
 * @path: the path, NULL: none again
 */
void port_wire_set_path(struct port *p, bool out, const struct port_wire_path *path)
{
	struct wire_port *wp = wire_port_of(p);
	struct wire_dir *dir = out ? &wp->out : &wp->in;

	dir->set = path;
	if (path)
		wire_path_set(&dir->path, path);
}

/**
 * port_wire_set_link() - plug the cable in or pull it
 * @p: the NIC
 * @up: false: it sends nothing (-ENETDOWN), and what reaches it is dropped
 *
 * What the host knows of it (net_sim_set_link()) is the caller's.
 */
void port_wire_set_link(struct port *p, bool up)
{
	wire_port_of(p)->link_up = up;
}

void port_wire_set_reset_unmatched(struct port *p, bool on)
{
	wire_port_of(p)->reset_unmatched = on;
}

/**
 * port_wire_inject() - a frame from nowhere
 * @w: the wire
 * @frame: anything
 * @len: its bytes
 * @delay_ns: after which it reaches the NIC that has its destination address now; that NIC's own path comes on top
 *
 * Return: 0, also if nobody has that address; -EMSGSIZE; -ENOBUFS.
 */
int port_wire_inject(struct port_wire *w, const void *frame, u32 len, u64 delay_ns)
{
	struct wire_frame *f;

	if (len < PKT_ETH_LEN || len > WIRE_FRAME_MAX)
		return -EMSGSIZE;
	f = wire_frame_get(&w->queue, len);
	if (!f)
		return -ENOBUFS;
	memcpy(f->data, frame, len);
	f->to = by_mac(w, f->data);
	f->due_ns = wire_now(w) + delay_ns;
	if (!f->to || wire_queue_push(&w->queue, f)) {
		bool full = f->to;

		wire_frame_put(&w->queue, f);
		if (full)
			return -ENOBUFS;
		w->stats.no_route++;
	} else {
		wire_port_get(f->to);
	}
	w->stats.frames++;
	return 0;
}

/* ---- time ---- */

static void run_work(struct port_wire *w)
{
	if (__atomic_load_n(&w->loop->ready.tqh_first, __ATOMIC_RELAXED))
		loop_run(w->loop);
}

static void deliver_next(struct port_wire *w)
{
	struct wire_frame *f = wire_queue_pop(&w->queue);
	struct wire_port *p = f->to;

	__builtin_prefetch(w->queue.head);
	if (unlikely(p->in.set && !f->arrived && p->plugged)) {
		f->arrived = true;
		wire_path_send(w, &p->in, &p->in.path, f);
		return;
	}
	wire_receive(p, f);
	wire_port_put(p);
	wire_frame_put(&w->queue, f);
	run_work(w);
}

bool port_wire_step(struct port_wire *w, u64 until_ns)
{
	u64 now = wire_now(w), frame_ns, loop_ns, next;

	if (__atomic_load_n(&w->loop->ready.tqh_first, __ATOMIC_RELAXED)) {
		loop_run(w->loop);
		return true;
	}
	if (now > until_ns)
		return false;
	frame_ns = wire_queue_next_ns(&w->queue);
	if (frame_ns <= now) {
		deliver_next(w);
		return true;
	}
	loop_ns = loop_next_ns(w->loop);
	next = frame_ns < loop_ns ? frame_ns : loop_ns;
	if (next == UINT64_MAX || next > until_ns) {
		if (until_ns != UINT64_MAX)
			loop_set_now(w->loop, until_ns);
		return false;
	}
	loop_set_now(w->loop, next);
	if (frame_ns <= loop_ns)
		deliver_next(w);
	else
		loop_run(w->loop);
	return true;
}

void port_wire_run(struct port_wire *w, u64 until_ns)
{
	bool enter = !w->loop->has_owner;

	/* Timers armed meanwhile need nobody woken, and are cheaper to arm. */
	if (enter)
		loop_enter(w->loop);
	while (port_wire_step(w, until_ns))
		;
	if (enter)
		loop_leave(w->loop);
}

const struct port_wire_stats *port_wire_stats(const struct port_wire *w)
{
	return &w->stats;
}

size_t port_wire_in_flight(const struct port_wire *w)
{
	return w->queue.count;
}

void port_wire_tsa_usage(struct port *p, size_t *conns, size_t *time_waits, size_t *conn_bytes, size_t *time_wait_bytes)
{
	tsa_usage(wire_port_of(p)->tsa, conns, time_waits, conn_bytes, time_wait_bytes);
}
