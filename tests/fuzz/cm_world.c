/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include "cm_world.h"

#define LISTEN_PORT 7000u
#define CONNECT_PORT 6000u
#define PEER_PORT 5000u
#define PEER_ISS 0x70000000u

/* ---- upper layers ---- */

static struct party *party_of(struct iw_cm_id *id)
{
	return container_of(id, struct party, id);
}

static void on_add_ref(struct iw_cm_id *id)
{
	party_of(id)->refs++;
}

static void on_rem_ref(struct iw_cm_id *id)
{
	struct party *p = party_of(id);

	assert(p->refs > 0);
	p->refs--;
}

static void party_init(struct world *w, struct party *p);

/* A child that may stand for a new connection, or NULL. */
static struct party *free_child(struct world *w)
{
	struct party *p;

	for (p = w->party + WORLD_LISTENERS + WORLD_CONNECTORS; p < w->party + WORLD_PARTIES; p++)
		if (p->phase == PARTY_FREE && !p->refs)
			return p;
	return NULL;
}

static void take(struct party *child, struct iw_cm_id *listener, struct iw_cm_event *e)
{
	party_init(child->world, child);
	child->phase = PARTY_REQUESTED;
	child->id.mpa = listener->mpa;
	child->id.local_addr = child->id.m_local_addr = e->local_addr;
	child->id.remote_addr = child->id.m_remote_addr = e->remote_addr;
	child->id.provider_data = e->provider_data;
	child->pdata_len = e->private_data_len;
	e->child = &child->id;
}

static int on_request(struct party *l, struct iw_cm_event *e)
{
	struct party *child = free_child(l->world);

	assert(l->phase == PARTY_LISTENING);
	assert(e->private_data_len <= MPA_MAX_PRIV_DATA && (e->private_data || !e->private_data_len));
	if (l->manner == STOP_LISTENING)
		party_stop(l);
	if (!child || l->manner == REFUSE)
		return -ECONNREFUSED;
	take(child, &l->id, e);
	if (l->manner == ACCEPT_AT_ONCE)
		party_accept(child);
	else if (l->manner == REJECT_AT_ONCE)
		party_reject(child, 3);
	else if (l->manner == ABANDON_AT_ONCE)
		party_give_up(child);
	return 0;
}

static void on_reply(struct party *p, const struct iw_cm_event *e)
{
	assert(p->phase == PARTY_CONNECTING);
	assert(e->status <= 0 && (e->status || e->neg.cause == CM_CAUSE_NONE));
	p->phase = e->status ? PARTY_OVER : PARTY_UP;
}

static void on_disconnect(struct party *p, const struct iw_cm_event *e)
{
	assert(p->phase == PARTY_UP || (p->phase == PARTY_REQUESTED && e->status == -ECONNRESET && !p->request_gone));
	if (p->phase == PARTY_UP)
		p->phase = PARTY_DISCONNECTED;
	else
		p->request_gone = true;
}

static int on_event(struct iw_cm_id *id, struct iw_cm_event *e)
{
	struct party *p = party_of(id);

	switch (e->event) {
	case IW_CM_EVENT_CONNECT_REQUEST:
		return on_request(p, e);
	case IW_CM_EVENT_CONNECT_REPLY:
		on_reply(p, e);
		break;
	case IW_CM_EVENT_ESTABLISHED:
		assert(p->phase == PARTY_ACCEPTED);
		p->phase = PARTY_UP;
		break;
	case IW_CM_EVENT_DISCONNECT:
		on_disconnect(p, e);
		break;
	case IW_CM_EVENT_CLOSE:
		assert(p->phase == PARTY_DISCONNECTED || (p->phase == PARTY_REQUESTED && p->request_gone));
		if (p->phase == PARTY_DISCONNECTED)
			p->phase = PARTY_OVER;
		break;
	default:
		assert(!"an event");
	}
	return 0;
}

static void party_init(struct world *w, struct party *p)
{
	u8 manner = p->manner;
	struct irdma_qp *qp = p->qp;

	*p = (struct party){ .world = w, .manner = manner, .qp = qp };
	p->id.event_handler = on_event;
	p->id.add_ref = on_add_ref;
	p->id.rem_ref = on_rem_ref;
	p->id.device = w->dev;
	p->id.mpa = w->mpa;
	if (!p->qp)
		party_new_qp(p);
}

void party_new_qp(struct party *p)
{
	if (p->qp)
		rnic_qp_destroy(p->qp);
	p->qp = NULL;
	assert(!rnic_qp_create(p->world->dev, &p->qp));
}

static void host_addr(const struct world *w, u32 host, u32 addr[4])
{
	memset(addr, 0, 4 * sizeof(*addr));
	addr[0] = w->ipv4 ? 0x0A000001u + host : 0xFD000000u;
	if (!w->ipv4)
		addr[3] = 1u + host;
}

/* The second one listens on every address. */
void party_listen(struct party *p, int backlog)
{
	struct world *w = p->world;
	u32 n = (u32)(p - w->party), addr[4];

	if (p->phase != PARTY_FREE || p->refs)
		return;
	host_addr(w, 0, addr);
	if (n)
		memset(addr, 0, sizeof(addr));
	cm_addr_to_sockaddr(w->ipv4, addr, (u16)(LISTEN_PORT + n), &p->id.m_local_addr);
	p->id.local_addr = p->id.m_local_addr;
	if (!irdma_create_listen(&p->id, backlog))
		p->phase = PARTY_LISTENING;
}

void party_stop(struct party *p)
{
	if (p->phase != PARTY_LISTENING)
		return;
	p->phase = PARTY_FREE;
	assert(!irdma_destroy_listen(&p->id));
}

void party_connect(struct party *p, struct fuzz *f)
{
	static const u8 pdata[MPA_MAX_PRIV_DATA];
	struct iw_cm_conn_param param = { .private_data = pdata, .private_data_len = fuzz_u16(f) % (MPA_MAX_PRIV_DATA + 8),
					  .ird = fuzz_u8(f), .ord = fuzz_u8(f), .qpn = p->qp->qp_num };
	struct world *w = p->world;
	u32 n = (u32)(p - w->party) - WORLD_LISTENERS, addr[4];

	if (p->phase != PARTY_FREE || p->refs)
		return;
	host_addr(w, 0, addr);
	cm_addr_to_sockaddr(w->ipv4, addr, (u16)(CONNECT_PORT + n), &p->id.m_local_addr);
	host_addr(w, 1, addr);
	cm_addr_to_sockaddr(w->ipv4, addr, (u16)(PEER_PORT + n), &p->id.m_remote_addr);
	p->id.local_addr = p->id.m_local_addr;
	p->id.remote_addr = p->id.m_remote_addr;
	p->phase = PARTY_CONNECTING;
	if (irdma_connect(&p->id, &param))
		p->phase = PARTY_FREE;
}

void party_accept(struct party *p)
{
	static const u8 pdata[MPA_MAX_PRIV_DATA];
	struct iw_cm_conn_param param = { .private_data = pdata, .private_data_len = p->pdata_len, .ird = 4, .ord = 4, .qpn = p->qp->qp_num };

	if (p->phase != PARTY_REQUESTED)
		return;
	p->phase = PARTY_ACCEPTED;
	if (irdma_accept(&p->id, &param))
		p->phase = PARTY_OVER;
	else
		assert(!p->request_gone);
}

void party_reject(struct party *p, u8 len)
{
	static const u8 pdata[UINT8_MAX];

	if (p->phase != PARTY_REQUESTED)
		return;
	irdma_reject(&p->id, pdata, len);
	p->phase = PARTY_OVER;
}

void party_give_up(struct party *p)
{
	if (p->phase == PARTY_FREE || p->phase == PARTY_LISTENING)
		return;
	cm_abandon(&p->id);
	p->phase = PARTY_FREE;
	party_new_qp(p); /* a QP lives for one connection */
}

/* ---- what the NIC says ---- */

static struct peer *peer_with(struct world *w, const struct pkt *p)
{
	struct peer *peer;

	for (peer = w->peer; peer < w->peer + WORLD_PEERS; peer++)
		if (peer->t.rem_port == p->dport && peer->t.loc_port == p->sport)
			return peer;
	return NULL;
}

static void on_frame(struct port_tap *tap, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	struct world *w = container_of(tap, struct world, tap);
	struct peer *peer;
	struct pkt again;

	if (!out)
		return;
	w->frames++;
	assert(pkt_parse(p->frame, p->framelen, true, &again) == PKT_OK);
	assert(p->framelen <= w->iface[0].mtu + PKT_ETH_LEN);
	peer = peer_with(w, p);
	if (peer && !(p->flags & PKT_RST))
		peer->ack = p->seq + p->datalen + !!(p->flags & PKT_SYN) + !!(p->flags & PKT_FIN);
}

/* ---- what the peers say ---- */

static void peer_init(struct world *w, u32 n)
{
	struct peer *p = &w->peer[n];
	bool active = n < WORLD_CONNECTORS; /* of the NIC */

	p->t = (struct pkt_tuple){ .ipv4 = w->ipv4, .vlan_id = PKT_VLAN_NONE, .rem_port = (u16)(PEER_PORT + n),
				   .loc_port = (u16)(active ? CONNECT_PORT + n : LISTEN_PORT + n % WORLD_LISTENERS) };
	host_addr(w, 0, p->t.loc_addr);
	host_addr(w, 1, p->t.rem_addr);
	p->seq = PEER_ISS;
	mpa_stream_init(&p->tx, w->mpa.crc, false);
}

static u8 *put_tcp(u8 *at, const struct peer *p, const struct segment *s, u32 len)
{
	u32 hdrlen = PKT_TCP_LEN + s->optlen;
	struct tcphdr h = {
		.source = htons(p->t.rem_port), .dest = htons(p->t.loc_port), .seq = htonl(p->seq + s->seq_off),
		.ack_seq = htonl(p->ack + s->ack_off), .window = htons(s->window), .doff = hdrlen / 4,
	};

	h.th_flags = s->flags;
	memcpy(at, &h, sizeof(h));
	memcpy(at + PKT_TCP_LEN, s->opts, s->optlen);
	memcpy(at + hdrlen, p->out + p->off, len);
	return at + hdrlen + len;
}

static void send_direct(struct world *w, const struct peer *p, const u8 *tcp, u32 len)
{
	struct port_rx rx = { .error = 0 };
	u8 *copy = fuzz_copy(tcp, len);

	assert(pkt_parse_segment(copy, len, &p->t, &rx.pkt) == PKT_OK);
	rnic_ilq_receive(w->dev, &rx); /* not taken when its buffers are out: lost */
	free(copy);
}

static void send_frame(struct world *w, const struct peer *p, u8 *tcp, u32 len, bool bad_sum)
{
	struct pkt_route r = { .vlan_id = PKT_VLAN_NONE, .ipv4 = w->ipv4, .ttl = 64 };
	u8 *frame;

	memcpy(r.smac, w->iface[1].mac, 6);
	memcpy(r.dmac, w->iface[0].mac, 6);
	memcpy(r.src, p->t.rem_addr, sizeof(r.src));
	memcpy(r.dst, p->t.loc_addr, sizeof(r.dst));
	frame = pkt_push_headers(&r, tcp, len, 0);
	if (bad_sum)
		tcp[16] ^= 0x40;
	port_wire_inject(w->wire, frame, (u32)(tcp + len - frame), 0);
	while (port_wire_step(w->wire, loop_now(&w->loop)))
		;
}

void peer_send(struct world *w, struct peer *p, const struct segment *s)
{
	u32 len = min(s->len, p->len - p->off);
	u8 buf[PKT_HDR_MAX + PKT_TCP_LEN + PKT_TCP_OPT_MAX + WORLD_PENDING], *tcp = buf + PKT_HDR_MAX, *end = put_tcp(tcp, p, s, len);

	if (!s->bad_sum && !s->seq_off) {
		p->seq += len + !!(s->flags & PKT_SYN) + !!(s->flags & PKT_FIN);
		p->off += len;
	}
	if (p->off == p->len)
		p->off = p->len = 0;
	if (s->direct)
		send_direct(w, p, tcp, (u32)(end - tcp));
	else
		send_frame(w, p, tcp, (u32)(end - tcp), s->bad_sum);
}

void peer_say_bytes(struct peer *p, const void *bytes, u32 len)
{
	len = min(len, WORLD_PENDING - p->len);
	memcpy(p->out + p->len, bytes, len);
	p->len += len;
}

static void prepare_bytes(struct peer *p, struct fuzz *f)
{
	u8 bytes[256];

	peer_say_bytes(p, bytes, (u32)fuzz_bytes(f, bytes, fuzz_u8(f)));
}

/* Every field from the input; private data is zeros, and as long as it says or not. */
static void prepare_mpa(struct peer *p, struct fuzz *f, bool reply)
{
	u8 frame[sizeof(struct mpa_start_hdr) + 1024] = { 0 };
	struct mpa_start_hdr h = { .flags = fuzz_u8(f), .rev = fuzz_u8(f) };
	u16 len = fuzz_u16(f) % 1024;

	memcpy(h.key, reply ? MPA_KEY_REP : MPA_KEY_REQ, MPA_KEY_SIZE);
	h.priv_len = htons(len);
	memcpy(frame, &h, sizeof(h));
	fuzz_bytes(f, frame + sizeof(h), sizeof(struct mpa_v2_data));
	peer_say_bytes(p, frame, (u32)sizeof(h) + len);
}

static void prepare_fpdu(struct peer *p, struct fuzz *f)
{
	u8 ulpdu[256], fpdu[512];
	u32 len = (u32)fuzz_bytes(f, ulpdu, fuzz_u8(f));
	int n = mpa_fpdu_build(&p->tx, ulpdu, len, fpdu, sizeof(fpdu));

	assert(n > 0);
	peer_say_bytes(p, fpdu, (u32)n);
}

static void prepare_rtr(struct peer *p, u32 kind)
{
	u8 ulpdu[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE], fpdu[128];
	u32 len = rdmap_build_rtr(kind, ulpdu);

	peer_say_bytes(p, fpdu, (u32)mpa_fpdu_build(&p->tx, ulpdu, len, fpdu, sizeof(fpdu)));
}

void peer_prepare(struct peer *p, struct fuzz *f)
{
	switch (fuzz_below(f, 7)) {
	case 0:
	case 1:
		prepare_mpa(p, f, p->t.loc_port >= CONNECT_PORT && p->t.loc_port < LISTEN_PORT);
		break;
	case 2:
		prepare_mpa(p, f, fuzz_u8(f) & 1);
		break;
	case 3:
		prepare_bytes(p, f);
		break;
	case 4:
		prepare_fpdu(p, f);
		break;
	case 5:
		prepare_rtr(p, BIT(fuzz_below(f, 3)));
		break;
	case 6: /* something else, or the same peer again */
		p->len = p->off = 0;
		mpa_stream_init(&p->tx, fuzz_u8(f) & 1, false);
		p->seq += fuzz_u32(f);
		break;
	}
}

/* ---- life ---- */

static void host_up(struct world *w, u32 n)
{
	struct net_addr a = { .ipv4 = w->ipv4, .prefix_len = w->ipv4 ? 24 : 64 };

	assert(!net_open_sim(w->seg, &w->net[n]));
	w->iface[n] = (struct net_iface){ .name = "eth0", .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE, .mac = { 2, 0, 0, 0, 0, (u8)(n + 1) } };
	assert(!net_sim_add_iface(w->net[n], &w->iface[n]));
	a.ifindex = w->iface[n].ifindex;
	host_addr(w, n, a.addr);
	assert(!net_sim_add_addr(w->net[n], &a));
}

static void nic_up(struct world *w, const struct rnic_limits *limits)
{
	struct port *port;

	assert(!rnic_device_create(&w->loop, w->net[0], &w->iface[0], limits, &w->dev));
	assert(!port_wire_plug(w->wire, w->net[0], &w->iface[0], &rnic_port_up, w->dev, &port));
	rnic_device_attach(w->dev, port);
	w->tap.frame = on_frame;
	port_tap_add(port, &w->tap);
	assert(!irdma_setup_cm_core(w->dev, w->gen));
}

static void read_options(struct world *w, struct fuzz *f, struct rnic_limits *limits)
{
	u8 a = fuzz_u8(f), b = fuzz_u8(f);

	w->gen = a & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2;
	w->ipv4 = !(a & 2);
	w->mpa = cm_mpa_opts_default;
	w->mpa.rev = a & 4 ? MPA_REV_1 : MPA_REV_2;
	w->mpa.fallback_v1 = !(a & 8);
	w->mpa.p2p = !(a & 16);
	w->mpa.crc = !(a & 32);
	w->mpa.markers = a & 64;
	w->mpa.rtr = b & RDMAP_RTR_ALL;
	if (b & 8)
		w->mpa.syn_timeout_ms = 3000;
	if (b & 16)
		w->mpa.mpa_timeout_ms = 500;
	if (b & 32)
		limits->ilq_bufs = 4;
}

void world_open(struct world *w, struct fuzz *f)
{
	struct rnic_limits limits = { .max_ird = 128, .max_ord = 128, .ilq_bufs = 1u << 20 };

	memset(w, 0, sizeof(*w));
	read_options(w, f, &limits);
	rand_set_seed(1);
	loop_init(&w->loop, NSEC_PER_SEC);
	assert(!port_wire_create(&w->loop, 1, &w->wire));
	w->seg = net_segment_create();
	assert(w->seg);
	for (u32 n = 0; n < 2; n++)
		host_up(w, n);
	nic_up(w, &limits);
	for (u32 n = 0; n < WORLD_PARTIES; n++)
		party_init(w, &w->party[n]);
	for (u32 n = 0; n < WORLD_PEERS; n++)
		peer_init(w, n);
}

void world_run(struct world *w, u64 ms)
{
	port_wire_run(w->wire, loop_now(&w->loop) + ms * NSEC_PER_MSEC);
}

static void end_parties(struct world *w)
{
	struct party *p;

	for (p = w->party; p < w->party + WORLD_PARTIES; p++) {
		party_stop(p);
		party_give_up(p);
		rnic_qp_destroy(p->qp);
		p->qp = NULL;
	}
	world_run(w, 3000000); /* fifteen retransmissions of the offload engine take a quarter of an hour, TIME_WAIT one minute more */
	for (p = w->party; p < w->party + WORLD_PARTIES; p++)
		assert(!p->refs);
}

static void check_empty(struct world *w)
{
	size_t conns, time_waits, conn_bytes, time_wait_bytes;
	struct cm_stats st;

	cm_get_stats(w->dev, &st);
	assert(!st.nodes_now && !st.listeners_now && !st.half_open_now);
	assert(st.nodes_created == st.nodes_destroyed && st.listens_created == st.listens_destroyed);
	port_wire_tsa_usage(w->dev->port, &conns, &time_waits, &conn_bytes, &time_wait_bytes);
	assert(!conns && !time_waits);
	assert(!port_wire_in_flight(w->wire));
	assert(!rnic_apbvt_count(w->dev));
	assert(!w->dev->vsi.small.used && !w->dev->vsi.large.used);
}

void world_close(struct world *w)
{
	end_parties(w);
	check_empty(w);
	irdma_cleanup_cm_core(w->dev->cm_core);
	loop_run(&w->loop);
	port_tap_del(w->dev->port, &w->tap);
	rnic_device_destroy(w->dev);
	for (u32 n = 0; n < 2; n++)
		net_close(w->net[n]);
	port_wire_destroy(w->wire);
	net_segment_destroy(w->seg);
	loop_destroy(&w->loop);
	rand_unset_seed();
}
