// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Floods of a listener on the wire while honest clients connect: at least 99.9 % of those must get through, and memory must not grow with the flood. Hosts 1
 * and 2 are honest; the attacker is on no host: what it says is injected with forged addresses, and it hears what host 0 answers if it is not blind.
 *
 * A million SYNs take longer under ASan than `make check` has: there it is a tenth.
 */
#include "attack.h"
#include "cm_states.h"

#define BACKLOG 128

enum attacker {
	BLIND,        /* SYNs from anywhere */
	BLIND_ACKS,   /* ... and data with guessed cookies */
	SILENT,       /* finishes the handshake, and says nothing more */
	ONE_BYTE,     /* ... or one byte of a request */
};

struct run {
	enum attacker attacker;
	bool ipv4;
	u8 gen;
	double loss;
	long syns;
};

struct conn {
	struct iw_cm_id id;
	struct irdma_qp *qp;
	int refs;
	bool client, over;
	LIST_ENTRY(conn) entry;
};

static struct flood {
	struct fx fx;
	struct run run;
	struct rand_gen g;
	struct port_tap tap;
	struct iw_cm_id listener;
	LIST_HEAD(, conn) conns;
	long syns, heard, tried, up, failed;
	u16 next_port;
} f;

/* ---- honest ends ---- */

static void conn_add_ref(struct iw_cm_id *id)
{
	container_of(id, struct conn, id)->refs++;
}

static void conn_rem_ref(struct iw_cm_id *id)
{
	container_of(id, struct conn, id)->refs--;
}

static void no_ref(struct iw_cm_id *id)
{
}

static int conn_event(struct iw_cm_id *id, struct iw_cm_event *e)
{
	struct conn *c = container_of(id, struct conn, id);

	if (e->event == IW_CM_EVENT_CONNECT_REPLY) {
		f.up += !e->status;
		f.failed += !!e->status;
		c->over = e->status;
		if (!e->status)
			cm_disconnect(id, false);
	} else if (e->event == IW_CM_EVENT_CLOSE) {
		c->over = true;
	}
	return 0;
}

static struct conn *conn_new(struct irdma_device *dev, bool client)
{
	struct conn *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->client = client;
	c->id = (struct iw_cm_id){ .event_handler = conn_event, .device = dev, .add_ref = conn_add_ref, .rem_ref = conn_rem_ref,
				   .mpa = cm_mpa_opts_default };
	assert_int_equal(rnic_qp_create(dev, &c->qp), 0);
	LIST_INSERT_HEAD(&f.conns, c, entry);
	return c;
}

static int listener_event(struct iw_cm_id *id, struct iw_cm_event *e)
{
	struct iw_cm_conn_param param = { .ird = 8, .ord = 8 };
	struct conn *c;

	assert_int_equal(e->event, IW_CM_EVENT_CONNECT_REQUEST);
	c = conn_new(id->device, false);
	c->id.local_addr = c->id.m_local_addr = e->local_addr;
	c->id.remote_addr = c->id.m_remote_addr = e->remote_addr;
	c->id.provider_data = e->provider_data;
	e->child = &c->id;
	param.qpn = c->qp->qp_num;
	if (irdma_accept(&c->id, &param))
		c->over = true;
	return 0;
}

static void client_starts(void)
{
	int host = 1 + (int)(f.tried % 2);
	struct conn *c = conn_new(f.fx.host[host].dev, true);
	struct iw_cm_conn_param param = { .ird = 8, .ord = 8, .qpn = c->qp->qp_num };
	u32 addr[4];

	f.next_port = f.next_port == 60000 ? 20000 : f.next_port + 1;
	fx_addr(f.run.ipv4, host, addr);
	cm_addr_to_sockaddr(f.run.ipv4, addr, f.next_port, &c->id.m_local_addr);
	fx_addr(f.run.ipv4, 0, addr);
	cm_addr_to_sockaddr(f.run.ipv4, addr, 7000, &c->id.m_remote_addr);
	c->id.local_addr = c->id.m_local_addr;
	c->id.remote_addr = c->id.m_remote_addr;
	assert_int_equal(irdma_connect(&c->id, &param), 0);
	f.tried++;
}

static void sweep(bool all)
{
	struct conn *c, *next;

	LIST_FOREACH_SAFE(c, &f.conns, entry, next) {
		if (!c->over && !all)
			continue;
		LIST_REMOVE(c, entry);
		cm_abandon(&c->id);
		rnic_qp_destroy(c->qp);
		loop_run(&f.fx.loop);
		assert_int_equal(c->refs, 0);
		free(c);
	}
}

/* ---- the attacker ---- */

static const u8 attacker_mac[6] = { 2, 0, 0, 0, 0, 0x66 };

static void inject(const u32 *src, u16 sport, u32 seq, u32 ack, u8 flags, u32 len)
{
	u8 buf[PKT_HDR_MAX + PKT_TCP_LEN + 8] = { 0 }, *tcp = buf + PKT_HDR_MAX, *frame;
	struct pkt_route r = { .vlan_id = PKT_VLAN_NONE, .ipv4 = f.run.ipv4, .ttl = 64 };
	struct tcphdr h = { .source = htons(sport), .dest = htons(7000), .seq = htonl(seq), .ack_seq = htonl(ack), .window = htons(8192), .doff = 5 };

	h.th_flags = flags;
	memcpy(tcp, &h, sizeof(h));
	memset(tcp + PKT_TCP_LEN, 'M', len);
	memcpy(r.smac, attacker_mac, 6);
	memcpy(r.dmac, f.fx.host[0].iface.mac, 6);
	memcpy(r.src, src, sizeof(r.src));
	fx_addr(f.run.ipv4, 0, r.dst);
	frame = pkt_push_headers(&r, tcp, PKT_TCP_LEN + len, 1);
	assert_int_equal(port_wire_inject(f.fx.wire, frame, (u32)(tcp - frame) + PKT_TCP_LEN + len, rand_gen_below(&f.g, NSEC_PER_MSEC)), 0);
}

static void forge_source(u32 *src)
{
	memset(src, 0, 16);
	if (f.run.ipv4) {
		src[0] = 0x14000000u + (u32)rand_gen_below(&f.g, 0xA0000000u); /* 20.0.0.0 and up */
		return;
	}
	src[0] = 0x20010DB8;
	for (int i = 1; i < 4; i++)
		src[i] = (u32)rand_gen_u64(&f.g);
}

static void attack_once(void)
{
	u32 src[4];

	forge_source(src);
	inject(src, (u16)(1 + rand_gen_below(&f.g, 65535)), (u32)rand_gen_u64(&f.g), 0, PKT_SYN, 0);
	f.syns++;
	if (f.run.attacker == BLIND_ACKS)
		inject(src, 5000, (u32)rand_gen_u64(&f.g), (u32)rand_gen_u64(&f.g), PKT_ACK | PKT_PSH, 8);
}

/* SYN+ACKs of host 0 to those who are not there. */
static void attacker_hears(struct port_tap *tap, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	bool honest = f.run.ipv4 ? p->dst[0] >> 24 == 0x0A : p->dst[0] == 0xFD000000;

	if (!out || honest || (p->flags & (PKT_SYN | PKT_ACK)) != (PKT_SYN | PKT_ACK) || f.run.attacker < SILENT)
		return;
	f.heard++;
	inject(p->dst, p->dport, p->ack, p->seq + 1, PKT_ACK, f.run.attacker == ONE_BYTE);
}

/* ---- */

static void set_up(const struct run *run)
{
	static const u32 any[4];
	u32 addr[4];

	memset(&f, 0, sizeof(f));
	f.run = *run;
	f.next_port = 20000;
	rand_gen_seed(&f.g, 11);
	fx_up(&f.fx, run->gen, 11);
	port_wire_set_default(f.fx.wire, &(struct port_wire_path){ .latency_ns = 5000000, .jitter_ns = 50000, .loss = run->loss });
	fx_addr(run->ipv4, 2, addr); /* host 0 knows a way to everybody */
	assert_int_equal(net_sim_add_route(f.fx.host[0].net, run->ipv4, any, 0, addr, f.fx.host[0].iface.ifindex), 0);
	f.listener = (struct iw_cm_id){ .event_handler = listener_event, .device = f.fx.host[0].dev, .add_ref = no_ref, .rem_ref = no_ref,
					.mpa = cm_mpa_opts_default };
	fx_addr(run->ipv4, 0, addr);
	cm_addr_to_sockaddr(run->ipv4, addr, 7000, &f.listener.m_local_addr);
	assert_int_equal(irdma_create_listen(&f.listener, BACKLOG), 0);
	f.tap.frame = attacker_hears;
	port_tap_add(f.fx.host[0].dev->port, &f.tap);
}

static void tear_down(void)
{
	port_tap_del(f.fx.host[0].dev->port, &f.tap);
	irdma_destroy_listen(&f.listener);
	sweep(true);
	fx_run(&f.fx, 600000);
	fx_down(&f.fx);
}

static void flooded(const struct run *run, const char *name)
{
	const long all = attack_scale(run->syns, 1000000), per_ms = 100;
	const struct irdma_cm_core *core;
	struct cm_stats st;
	long rss = 0;

	set_up(run);
	core = f.fx.host[0].dev->cm_core;
	while (f.syns < all) {
		for (long i = 0; i < per_ms; i++)
			attack_once();
		client_starts();
		fx_run(&f.fx, 1);
		sweep(false);
		if (f.syns == all / 10)
			rss = attack_rss_kib();
		attack_progress(name, f.syns, all);
	}
	rss = attack_rss_kib() - rss;
	fx_run(&f.fx, 60000); /* SYNs that were lost are sent again */
	sweep(false);
	st = fx_stats(&f.fx, 0);
	print_message("%s: %ld SYNs, %ld of %ld honest clients in; cookies %llu sent, %llu good, %llu bad; at most %zu nodes, %zu buffers; %ld KiB more\n",
		      name, f.syns, f.up, f.tried, (unsigned long long)st.cookies_sent, (unsigned long long)st.cookies_accepted,
		      (unsigned long long)st.cookies_bad, core->node_pool.peak, f.fx.host[0].dev->vsi.small.peak, rss);
	assert_int_equal(f.up + f.failed, f.tried);
	assert_true(f.up * 1000 >= f.tried * 999);
	assert_true(st.cookies_sent > (u64)all / 2);
	assert_true(core->node_pool.peak <= BACKLOG + 1000);
	assert_true(f.fx.host[0].dev->vsi.small.peak <= BACKLOG + 1000);
	assert_true(rss < 16384);
	tear_down();
}

static void blind_syns(void **state)
{
	flooded(&(struct run){ .attacker = BLIND, .ipv4 = true, .gen = IRDMA_GEN_2, .syns = ATTACK_SANITIZED ? 100000 : 1000000 }, "SYNs from forged addresses");
}

static void blind_syns_and_acks_with_loss(void **state)
{
	flooded(&(struct run){ .attacker = BLIND_ACKS, .gen = IRDMA_GEN_1, .loss = 0.01, .syns = 50000 }, "SYNs and guessed ACKs, IPv6, 1 % loss");
}

static void silent_connections(void **state)
{
	flooded(&(struct run){ .attacker = SILENT, .ipv4 = true, .gen = IRDMA_GEN_1, .syns = 50000 }, "connections that say nothing");
}

static void connections_with_one_byte(void **state)
{
	flooded(&(struct run){ .attacker = ONE_BYTE, .ipv4 = true, .gen = IRDMA_GEN_2, .syns = 50000 }, "connections that say one byte");
}

/* ---- a window that stays closed ---- */

static size_t conns_of(const struct irdma_device *dev)
{
	size_t conns;

	port_wire_tsa_usage(dev->port, &conns, NULL, NULL, NULL);
	return conns;
}

/* A second goes by, in which the peer says that it is there, and has no room. */
static void no_room(struct env *e, u32 seq, u32 ack)
{
	u8 buf[PKT_HDR_MAX + PKT_TCP_LEN] = { 0 }, *tcp = buf + PKT_HDR_MAX, *frame;
	struct pkt_route r = { .vlan_id = PKT_VLAN_NONE, .ipv4 = true, .ttl = 64 };
	struct tcphdr h = { .source = htons(e->p.t.rem_port), .dest = htons(e->p.t.loc_port), .seq = htonl(seq), .ack_seq = htonl(ack), .doff = 5, .ack = 1 };

	memcpy(tcp, &h, sizeof(h));
	memcpy(r.smac, e->fx.host[1].iface.mac, 6);
	memcpy(r.dmac, e->fx.host[0].iface.mac, 6);
	memcpy(r.src, e->p.t.rem_addr, sizeof(r.src));
	memcpy(r.dst, e->p.t.loc_addr, sizeof(r.dst));
	frame = pkt_push_headers(&r, tcp, PKT_TCP_LEN, 1);
	assert_int_equal(port_wire_inject(e->fx.wire, frame, (u32)(tcp - frame) + PKT_TCP_LEN, 0), 0);
	fx_run(&e->fx, 1000);
}

/* The connection lives for as long as the upper layer has patience, and not beyond. */
static void window_that_stays_closed(void **state)
{
	for (u8 gen = IRDMA_GEN_1; gen <= IRDMA_GEN_2; gen++) {
		u8 reply[64];
		u32 len = env_mpa(reply, true, MPA_REV_2, MPA_FLAG_CRC, NULL, 0), seq, ack;
		struct env e;

		env_up(&e, gen, true);
		env_goto(&e, ST(MPAREQ_SENT));
		fx_tap_off(&e.tap);
		ack = e.p.node->tcp_cntxt.loc_seq_num;
		seq = e.p.seq;
		fx_feed(e.p.dev, &e.p.t, &(struct fx_seg){ .flags = PKT_ACK, .seq = seq, .ack = ack, .data = reply, .len = len });
		env_loop(&e);
		assert_int_equal(e.c.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
		assert_int_equal(e.c.ev[0].status, 0);
		for (int s = 0; s < 1000; s++)
			no_room(&e, seq + len, ack);
		assert_int_equal(conns_of(e.p.dev), 1);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(cm_disconnect(&e.c.id, false), 0);
		for (int s = 0; s < 10; s++)
			no_room(&e, seq + len, ack);
		assert_int_equal(e.c.ev[e.c.nevents - 1].event, IW_CM_EVENT_CLOSE);
		assert_int_equal(conns_of(e.p.dev), 0);
		fx_tap_on(&e.fx, 0, &e.tap);
		env_down(&e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blind_syns),
		cmocka_unit_test(blind_syns_and_acks_with_loss),
		cmocka_unit_test(silent_connections),
		cmocka_unit_test(connections_with_one_byte),
		cmocka_unit_test(window_that_stays_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
