/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port: what a wire NIC does with a frame that reached it, and its filters.
 *
 * Order: link, destination address, checksums; then the offload engine (live connections, TIME_WAIT), the
 * filters of connections being set up, the listeners. What nobody wants is answered with RST, as
 * a host's stack would (RFC 9293 3.10.7.1), if its IP address is one of this host's.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include "port/wire_internal.h"

/* ---- filters ---- */

static bool filter_eq(const struct hash_node *n, const void *key)
{
	const struct pkt_tuple *a = &container_of(n, struct port_filter, node)->attr.tuple, *b = key;

	return a->loc_port == b->loc_port && a->rem_port == b->rem_port && a->vlan_id == b->vlan_id && a->ipv4 == b->ipv4 &&
	       pkt_addr_eq(a->loc_addr, b->loc_addr) && pkt_addr_eq(a->rem_addr, b->rem_addr);
}

/* Quads come from peers and have the offload engine's keyed hash. */
static u64 listener_hash(const struct pkt_tuple *u)
{
	return hash_own(((u64)u->loc_port << 16 | u->vlan_id) << 1 | u->ipv4, u->loc_addr);
}

static struct port_filter *filter_find(const struct hash_table *t, const struct pkt_tuple *u, u64 hash)
{
	struct hash_node *n = hash_find(t, hash, filter_eq, u);

	return n ? container_of(n, struct port_filter, node) : NULL;
}

/* Listener keys have no remote end. */
static struct pkt_tuple listener_key(const struct pkt_tuple *u)
{
	struct pkt_tuple k = { .loc_port = u->loc_port, .vlan_id = u->vlan_id, .ipv4 = u->ipv4 };

	memcpy(k.loc_addr, u->loc_addr, sizeof(k.loc_addr));
	return k;
}

static struct port_filter *listener_find(const struct wire_port *p, const struct pkt_tuple *u)
{
	struct pkt_tuple k;
	struct port_filter *f;

	if (!p->listeners.count)
		return NULL;
	k = listener_key(u);
	f = filter_find(&p->listeners, &k, listener_hash(&k));
	if (f || !p->any_listeners)
		return f;
	memset(k.loc_addr, 0, sizeof(k.loc_addr));
	return filter_find(&p->listeners, &k, listener_hash(&k));
}

/* A port_ops.filter_add. A connection opened from here takes the place of its predecessor in TIME_WAIT. */
int wire_filter_add(struct port *port, const struct port_filter_attr *a, struct port_filter **out)
{
	struct wire_port *p = wire_port_of(port);
	struct hash_table *t = a->quad ? &p->quads : &p->listeners;
	struct pkt_tuple key = a->quad ? a->tuple : listener_key(&a->tuple);
	struct port_filter *f;
	u64 hash;

	key.ipv4 = a->ipv4;
	hash = a->quad ? tsa_hash(p->tsa, &key) : listener_hash(&key);
	if (filter_find(t, &key, hash))
		return -EADDRINUSE;
	f = pool_get(&p->wire->filter_pool);
	if (!f)
		return -ENOMEM;
	f->attr = *a;
	f->attr.tuple = key;
	hash_add(t, &f->node, hash);
	if (a->quad)
		tsa_time_wait_forget_hashed(p->tsa, &key, hash);
	if (!a->quad && pkt_addr_is_any(key.loc_addr))
		p->any_listeners++;
	*out = f;
	return 0;
}

/* A port_ops.filter_del. */
void wire_filter_del(struct port *port, struct port_filter *f)
{
	struct wire_port *p = wire_port_of(port);

	if (!f->attr.quad && pkt_addr_is_any(f->attr.tuple.loc_addr))
		p->any_listeners--;
	hash_del(f->attr.quad ? &p->quads : &p->listeners, &f->node);
	pool_put(&p->wire->filter_pool, f);
}

static bool free_one(struct hash_node *n, void *arg)
{
	wire_filter_del(arg, container_of(n, struct port_filter, node));
	return true;
}

void wire_filters_free(struct wire_port *p)
{
	hash_walk(&p->quads, free_one, &p->port);
	hash_walk(&p->listeners, free_one, &p->port);
	hash_destroy(&p->quads);
	hash_destroy(&p->listeners);
}

/* ---- reception ---- */

static bool is_ours(const struct wire_port *p, const struct pkt *pkt)
{
	struct net_iface iface;

	return !p->port.net || !net_local(p->port.net, pkt->ipv4, pkt->dst, &iface, NULL);
}

static void answer_reset(struct wire_port *p, const struct pkt *pkt)
{
	struct pkt_route r = { .vlan_id = pkt->vlan_id, .prio = pkt->prio, .ipv4 = pkt->ipv4, .ttl = 64 };
	struct tcphdr h = { .source = htons(pkt->dport), .dest = htons(pkt->sport) };
	u32 end = pkt->seq + pkt->datalen + !!(pkt->flags & PKT_SYN) + !!(pkt->flags & PKT_FIN);

	if ((pkt->flags & PKT_RST) || (pkt->smac[0] & 1) || !is_ours(p, pkt))
		return;
	memcpy(r.smac, p->port.iface.mac, 6);
	memcpy(r.dmac, pkt->smac, 6);
	memcpy(r.src, pkt->dst, sizeof(r.src));
	memcpy(r.dst, pkt->src, sizeof(r.dst));
	h.doff = PKT_TCP_LEN / 4;
	h.rst = 1;
	if (pkt->flags & PKT_ACK) {
		h.seq = htonl(pkt->ack);
	} else {
		h.ack = 1;
		h.ack_seq = htonl(end);
	}
	wire_tx_segment(p, &r, (const u8 *)&h, sizeof(h));
}

static void to_ilq(struct wire_port *p, struct port_rx *rx)
{
	struct port_wire *w = p->wire;

	if (p->port.up->rx(p->port.up_ctx, rx))
		w->stats.delivered++;
	else
		w->stats.not_taken++;
}

static void demultiplex(struct wire_port *p, struct port_rx *rx)
{
	struct port_wire *w = p->wire;
	const struct pkt *pkt = &rx->pkt;
	struct pkt_tuple u = {
		.loc_port = pkt->dport, .rem_port = pkt->sport, .vlan_id = pkt->vlan_id, .ipv4 = pkt->ipv4,
	};
	u64 hash;

	memcpy(u.loc_addr, pkt->dst, sizeof(u.loc_addr));
	memcpy(u.rem_addr, pkt->src, sizeof(u.rem_addr));
	hash = tsa_hash(p->tsa, &u);
	if (tsa_input_hashed(p->tsa, pkt, &u, hash)) {
		w->stats.delivered++;
		return;
	}
	rx->error = 0;
	rx->filter = NULL;
	if (filter_find(&p->quads, &u, hash) || (rx->filter = listener_find(p, &u))) {
		to_ilq(p, rx);
		return;
	}
	w->stats.unmatched++;
	if (p->reset_unmatched)
		answer_reset(p, pkt);
}

void wire_receive(struct wire_port *p, const struct wire_frame *f)
{
	struct port_wire_stats *st = &p->wire->stats;
	struct port_rx rx;

	if (unlikely(!p->plugged || memcmp(f->data, p->port.iface.mac, 6))) {
		st->no_route++;
		return;
	}
	if (unlikely(!p->link_up)) {
		st->down++;
		return;
	}
	switch (pkt_parse(f->data, f->len, !f->intact, &rx.pkt)) {
	case PKT_OK:
		if (unlikely(wire_tapped(p)))
			wire_tap(p, false, &rx.pkt);
		demultiplex(p, &rx);
		break;
	case PKT_BAD_IP_CSUM:
	case PKT_BAD_TCP_CSUM:
		st->bad_checksum++;
		break;
	case PKT_SHORT:
	case PKT_NOT_TCP:
		st->malformed++;
		break;
	}
}
