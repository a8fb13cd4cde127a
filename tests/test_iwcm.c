// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm on the wire port: two simulated hosts, each with a context, stepped in virtual time.
 *
 *   host 0 (client)                             host 1 (server)
 *   eth0    10.0.0.1  fd00::1  ---- wire ----   eth0    10.0.0.2  fd00::2
 *   eth0.5  10.5.0.1                            eth0.5  10.5.0.2      VLAN 5
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "iwcm/room_internal.h"
#include "capture_dir.h"

#define PORT 7471
#define HOSTS 2
#define IDS 8

enum side { CLIENT, SERVER, LISTENER, SIDES };

/* One id and what it was told. */
struct track {
	struct iwcm_id *id;       /* NULL: destroyed */
	struct iwcm_id *was;      /* its address, to catch events after destroy */
	unsigned int count[IWCM_EVENT_DEVICE_REMOVED + 1];
	enum iwcm_event_type last;
	struct iwcm_event ev;     /* last one */
	int how;                  /* status of DISCONNECTED */
	unsigned int total;
};

struct host {
	struct net *net;
	struct iwcm_ctx *ctx;
	struct net_iface eth, vlan;
};

struct world {
	struct loop loop;
	struct port_wire *wire;
	struct net_segment *seg;
	struct host host[HOSTS];
	struct track t[SIDES];
	/* what the programs do */
	struct iwcm_options options[HOSTS];
	struct iwcm_conn_param connect, accept;
	bool reject, hold;        /* server: say no; say nothing */
	bool linger;              /* client: do not disconnect by itself */
	bool handler;
	int connect_err;
};

/* ---- the world ---- */

static void add_addr(struct host *h, u32 ifindex, bool ipv4, u32 a0, u32 a3, u8 prefix)
{
	struct net_addr a = { .ifindex = ifindex, .ipv4 = ipv4, .addr = { a0, 0, 0, a3 }, .prefix_len = prefix };

	assert_int_equal(net_sim_add_addr(h->net, &a), 0);
}

static void host_open(struct world *w, unsigned int n, u8 gen)
{
	struct host *h = &w->host[n];

	assert_int_equal(net_open_sim(w->seg, &h->net), 0);
	h->eth = (struct net_iface){ .name = "eth0", .mac = { 2, 0, 0, 0, 0, (u8)(n + 1) }, .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE };
	assert_int_equal(net_sim_add_iface(h->net, &h->eth), 0);
	h->vlan = h->eth;
	h->vlan.ifindex = 0;
	strcpy(h->vlan.name, "eth0.5");
	h->vlan.vlan_id = 5;
	h->vlan.lower = h->eth.ifindex;
	assert_int_equal(net_sim_add_iface(h->net, &h->vlan), 0);
	add_addr(h, h->eth.ifindex, true, 0x0a000001 + n, 0, 24);
	add_addr(h, h->eth.ifindex, false, 0xfd000000, 1 + n, 64);
	add_addr(h, h->vlan.ifindex, true, 0x0a050001 + n, 0, 24);
	net_process(h->net);
	assert_int_equal(iwcm_open_wire(w->wire, &w->loop, h->net, gen, &h->ctx), 0);
	if (n == 0)
		iwcm_set_observers(h->ctx, test_capture_open(), NULL, NULL, NULL);
	iwcm_options_init(&w->options[n]);
}

static struct world *world_open(u8 gen)
{
	struct port_wire_path path = { .latency_ns = 50000 };
	struct world *w = calloc(1, sizeof(*w));
	unsigned int n;

	assert_non_null(w);
	rand_set_seed(1);
	loop_init(&w->loop, NSEC_PER_SEC);
	assert_int_equal(port_wire_create(&w->loop, 1, &w->wire), 0);
	port_wire_set_default(w->wire, &path);
	w->seg = net_segment_create();
	assert_non_null(w->seg);
	for (n = 0; n < HOSTS; n++)
		host_open(w, n, gen);
	w->connect = w->accept = (struct iwcm_conn_param){ .ird = IWCM_MAX, .ord = IWCM_MAX };
	return w;
}

static struct iwcm_ctx *ctx_of(struct world *w, enum side s)
{
	return w->host[s == CLIENT ? 0 : 1].ctx;
}

static void run_for(struct world *w, u64 ns);

static void check_nothing_left(struct iwcm_ctx *ctx)
{
	struct iwcm_stats s;

	iwcm_get_stats(ctx, &s);
	assert_int_equal(s.nodes_now, 0);
	assert_int_equal(s.listeners_now, 0);
}

static void kill(struct world *w, enum side s)
{
	struct iwcm_id *id = w->t[s].id;

	w->t[s].id = NULL;
	iwcm_destroy_id(id);
}

static void world_close(struct world *w)
{
	enum side s;
	unsigned int n;

	for (s = 0; s < SIDES; s++)
		kill(w, s);
	run_for(w, 300 * NSEC_PER_SEC);
	for (n = 0; n < HOSTS; n++)
		check_nothing_left(w->host[n].ctx);
	for (n = 0; n < HOSTS; n++) {
		iwcm_close(w->host[n].ctx);
		net_close(w->host[n].net);
	}
	test_capture_close();
	port_wire_destroy(w->wire);
	net_segment_destroy(w->seg);
	loop_destroy(&w->loop);
	rand_unset_seed();
	free(w);
}

/* ---- the programs ---- */

static void check_order(const struct track *t, const struct iwcm_event *ev)
{
	unsigned int up = t->count[IWCM_EVENT_ESTABLISHED], down = t->count[IWCM_EVENT_DISCONNECTED];

	assert_int_equal(t->count[IWCM_EVENT_CLOSED], 0);
	assert_int_equal(t->count[IWCM_EVENT_REJECTED], 0);
	assert_int_equal(t->count[IWCM_EVENT_CONNECT_ERROR], 0);
	if (ev->type != IWCM_EVENT_RESOLVE_ERROR)
		assert_int_equal(t->count[ev->type], 0);
	if (ev->type == IWCM_EVENT_DISCONNECTED)
		assert_int_equal(up, 1);
	if (ev->type == IWCM_EVENT_CLOSED)
		assert_int_equal(up, down);
}

static void note(struct track *t, const struct iwcm_event *ev)
{
	check_order(t, ev);
	t->count[ev->type]++;
	t->total++;
	t->last = ev->type;
	if (ev->type == IWCM_EVENT_DISCONNECTED)
		t->how = ev->status;
	t->ev = *ev;
}

static struct track *track_of(struct world *w, struct iwcm_ctx *ctx, const struct iwcm_event *ev)
{
	enum side s;

	if (ev->type == IWCM_EVENT_CONNECT_REQUEST) {
		assert_ptr_equal(ev->listener, w->t[LISTENER].id);
		/* A second one comes after a fall-back, or when the first was given up. */
		if (w->t[SERVER].id)
			return NULL;
		w->t[SERVER] = (struct track){ .id = ev->id, .was = ev->id };
		return &w->t[SERVER];
	}
	assert_null(ev->listener);
	for (s = 0; s < SIDES; s++)
		if (ctx_of(w, s) == ctx && w->t[s].id == ev->id)
			return &w->t[s];
	for (s = 0; s < SIDES; s++)
		assert_false(ctx_of(w, s) == ctx && w->t[s].was == ev->id); /* after destroy */
	fail_msg("event %s of an unknown id", iwcm_event_str(ev->type));
	return NULL;
}

static void react(struct world *w, const struct iwcm_event *ev)
{
	switch (ev->type) {
	case IWCM_EVENT_RESOLVED:
		w->connect_err = iwcm_connect(ev->id, &w->connect);
		assert_int_equal(w->connect_err, 0);
		break;
	case IWCM_EVENT_CONNECT_REQUEST:
		if (w->hold)
			break;
		if (w->reject)
			assert_int_equal(iwcm_reject(ev->id, "no way", 6), 0);
		else
			iwcm_accept(ev->id, &w->accept); /* the peer may be gone already */
		break;
	case IWCM_EVENT_ESTABLISHED:
		if (ev->id == w->t[CLIENT].id && !w->linger)
			assert_int_equal(iwcm_disconnect(ev->id), 0);
		break;
	default:
		break;
	}
}

static void on_event(struct world *w, struct iwcm_ctx *ctx, const struct iwcm_event *ev)
{
	struct track *t = track_of(w, ctx, ev);

	if (!t) {
		iwcm_destroy_id(ev->id);
		return;
	}
	note(t, ev);
	react(w, ev);
}

static void pump(struct world *w)
{
	struct iwcm_event ev;
	unsigned int n;

	for (n = 0; n < HOSTS; n++)
		while (!w->handler && !iwcm_get_event(w->host[n].ctx, &ev, 0))
			on_event(w, w->host[n].ctx, &ev);
}

static bool step(struct world *w, u64 until)
{
	bool more = port_wire_step(w->wire, until);

	pump(w);
	return more;
}

static void run_for(struct world *w, u64 ns)
{
	u64 until = loop_now(&w->loop) + ns;

	pump(w);
	while (step(w, until))
		;
}

static struct sockaddr_storage addr4(u32 a, u16 port)
{
	struct sockaddr_storage ss;
	u32 addr[4] = { a };

	cm_addr_to_sockaddr(true, addr, port, &ss);
	return ss;
}

static struct sockaddr_storage addr6(u32 a0, u32 a3, u16 port)
{
	struct sockaddr_storage ss;
	u32 addr[4] = { a0, 0, 0, a3 };

	cm_addr_to_sockaddr(false, addr, port, &ss);
	return ss;
}

static const struct sockaddr *sa(const struct sockaddr_storage *ss)
{
	return (const struct sockaddr *)ss;
}

static struct iwcm_id *make_id(struct world *w, enum side s)
{
	struct track *t = &w->t[s];

	*t = (struct track){ 0 };
	assert_int_equal(iwcm_create_id(ctx_of(w, s), w, &t->id), 0);
	t->was = t->id;
	assert_int_equal(iwcm_set_options(t->id, &w->options[s == CLIENT ? 0 : 1]), 0);
	return t->id;
}

static void start_listener(struct world *w, struct sockaddr_storage at)
{
	struct iwcm_id *id = make_id(w, LISTENER);

	assert_int_equal(iwcm_bind(id, sa(&at)), 0);
	assert_int_equal(iwcm_listen(id, 16), 0);
}

static void start_client(struct world *w, struct sockaddr_storage to)
{
	assert_int_equal(iwcm_resolve(make_id(w, CLIENT), NULL, sa(&to)), 0);
}

static void expect_events(const struct track *t, unsigned int n, const enum iwcm_event_type *types)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (t->count[types[i]] != 1)
			fail_msg("%s came %u times", iwcm_event_str(types[i]), t->count[types[i]]);
	assert_int_equal(t->total, n);
}
#define EXPECT(w, side, ...) \
	do { \
		const enum iwcm_event_type types_[] = { __VA_ARGS__ }; \
		expect_events(&(w)->t[side], ARRAY_SIZE(types_), types_); \
	} while (0)

/* A connection as it should be, from start to end. */
static void whole_life(struct world *w, struct sockaddr_storage listen, struct sockaddr_storage to)
{
	start_listener(w, listen);
	start_client(w, to);
	run_for(w, 10 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	assert_int_equal(w->t[CLIENT].ev.status, 0);
	assert_int_equal(w->t[SERVER].ev.status, 0);
}

static u8 gen_of(void **state) { return (u8)(uintptr_t)*state; }

/* ---- connections ---- */

static void test_connect(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct sockaddr_storage ss;
	struct iwcm_stats s;

	w->connect.private_data = "hello";
	w->connect.private_data_len = 5;
	w->linger = true;
	start_listener(w, addr4(0x0a000002, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_ESTABLISHED);
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_ESTABLISHED);
	assert_int_equal(w->t[CLIENT].ev.info.mpa_revision, 2);
	assert_int_equal(w->t[CLIENT].ev.info.peer_revision, 2);
	assert_true(w->t[CLIENT].ev.info.peer_to_peer);
	assert_true(w->t[SERVER].ev.info.peer_to_peer);
	assert_true(w->t[CLIENT].ev.info.rtr && w->t[CLIENT].ev.info.rtr == w->t[SERVER].ev.info.rtr);
	assert_int_equal(w->t[CLIENT].ev.info.ird, 128);
	assert_int_equal(w->t[CLIENT].ev.info.syn_sent, 1);
	assert_int_equal(iwcm_local_addr(w->t[CLIENT].id, &ss), 0);
	assert_memory_equal(&ss, &w->t[CLIENT].ev.local, sizeof(ss));
	assert_int_equal(iwcm_remote_addr(w->t[SERVER].id, &ss), 0);
	assert_memory_equal(&ss, &w->t[CLIENT].ev.local, sizeof(ss));
	assert_int_equal(iwcm_disconnect(w->t[SERVER].id), 0);
	assert_int_equal(iwcm_disconnect(w->t[SERVER].id), 0);
	run_for(w, NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	assert_int_equal(iwcm_disconnect(w->t[SERVER].id), -ENOTCONN);
	assert_int_equal(iwcm_abort(w->t[SERVER].id), -ENOTCONN);
	iwcm_get_stats(w->host[0].ctx, &s);
	assert_int_equal(s.connects, 1);
	assert_int_equal(s.established_active, 1);
	world_close(w);
}

static void test_private_data(void **state)
{
	static const size_t lens[] = { 0, 1, 4, 255, 256, 507, 508 };
	unsigned char data[512], reply[512];
	size_t i, k;

	for (i = 0; i < sizeof(data); i++) {
		data[i] = (unsigned char)(i * 7);
		reply[i] = (unsigned char)(i * 13 + 1);
	}
	for (k = 0; k < ARRAY_SIZE(lens); k++) {
		struct world *w = world_open(gen_of(state));

		w->hold = w->linger = true;
		w->connect.private_data = data;
		w->connect.private_data_len = lens[k];
		w->accept.private_data = reply;
		w->accept.private_data_len = lens[ARRAY_SIZE(lens) - 1 - k];
		start_listener(w, addr4(0x0a000002, PORT));
		start_client(w, addr4(0x0a000002, PORT));
		run_for(w, NSEC_PER_SEC);
		assert_int_equal(w->t[SERVER].ev.private_data_len, lens[k]);
		assert_memory_equal(w->t[SERVER].ev.private_data, data, lens[k]);
		assert_int_equal(iwcm_accept(w->t[SERVER].id, &w->accept), 0);
		run_for(w, NSEC_PER_SEC);
		assert_int_equal(w->t[CLIENT].ev.type, IWCM_EVENT_ESTABLISHED);
		assert_int_equal(w->t[CLIENT].ev.private_data_len, w->accept.private_data_len);
		assert_memory_equal(w->t[CLIENT].ev.private_data, reply, w->accept.private_data_len);
		world_close(w);
	}
}

static void test_ipv6(void **state)
{
	struct world *w = world_open(gen_of(state));

	whole_life(w, addr6(0xfd000000, 2, PORT), addr6(0xfd000000, 2, PORT));
	world_close(w);
}

static void test_wildcards(void **state)
{
	struct world *w = world_open(gen_of(state));

	whole_life(w, addr4(0, PORT), addr4(0x0a000002, PORT));
	world_close(w);
	w = world_open(gen_of(state));
	whole_life(w, addr6(0, 0, PORT), addr6(0xfd000000, 2, PORT));
	world_close(w);
}

static void test_vlan(void **state)
{
	struct world *w = world_open(gen_of(state));

	whole_life(w, addr4(0x0a050002, PORT), addr4(0x0a050002, PORT));
	world_close(w);
	w = world_open(gen_of(state));
	whole_life(w, addr4(0, PORT), addr4(0x0a050002, PORT));
	world_close(w);
}

/* Client and server on one NIC. */
static void test_loopback(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct sockaddr_storage at = addr4(0x0a000002, PORT);
	struct iwcm_ctx *ctx = w->host[1].ctx;
	struct iwcm_event ev;
	struct iwcm_id *listener, *client, *server = NULL;
	int closed = 0;

	w->handler = true; /* pump nothing */
	assert_int_equal(iwcm_create_id(ctx, NULL, &listener), 0);
	assert_int_equal(iwcm_bind(listener, sa(&at)), 0);
	assert_int_equal(iwcm_listen(listener, 0), 0);
	assert_int_equal(iwcm_create_id(ctx, NULL, &client), 0);
	assert_int_equal(iwcm_resolve(client, NULL, sa(&at)), 0);
	while (port_wire_step(w->wire, loop_now(&w->loop) + 5 * NSEC_PER_SEC) || closed < 2) {
		while (!iwcm_get_event(ctx, &ev, 0)) {
			if (ev.type == IWCM_EVENT_RESOLVED)
				assert_int_equal(iwcm_connect(client, NULL), 0);
			if (ev.type == IWCM_EVENT_CONNECT_REQUEST)
				assert_int_equal(iwcm_accept(server = ev.id, NULL), 0);
			if (ev.type == IWCM_EVENT_ESTABLISHED && ev.id == client)
				assert_int_equal(iwcm_disconnect(client), 0);
			assert_int_not_equal(ev.type, IWCM_EVENT_CONNECT_ERROR);
			closed += ev.type == IWCM_EVENT_CLOSED;
		}
		assert_true(loop_now(&w->loop) < 600 * NSEC_PER_SEC);
	}
	iwcm_destroy_id(client);
	iwcm_destroy_id(server);
	iwcm_destroy_id(listener);
	world_close(w);
}

static void test_revision_1(void **state)
{
	struct world *w = world_open(gen_of(state));

	w->options[0].mpa_revision = 1;
	w->options[0].peer_to_peer = false;
	whole_life(w, addr4(0x0a000002, PORT), addr4(0x0a000002, PORT));
	assert_int_equal(w->t[CLIENT].ev.info.mpa_revision, 1);
	assert_int_equal(w->t[SERVER].ev.info.mpa_revision, 1);
	assert_false(w->t[SERVER].ev.info.peer_to_peer);
	world_close(w);
}

static void test_models(void **state)
{
	static const unsigned int kinds[] = { IWCM_RTR_SEND, IWCM_RTR_WRITE, IWCM_RTR_READ };
	size_t i;

	for (i = 0; i <= ARRAY_SIZE(kinds); i++) {
		struct world *w = world_open(gen_of(state));

		w->options[0].peer_to_peer = i < ARRAY_SIZE(kinds);
		w->options[0].rtr = i < ARRAY_SIZE(kinds) ? kinds[i] : 0;
		w->options[0].crc = w->options[1].crc = i & 1;
		w->options[0].markers = i & 1;
		whole_life(w, addr4(0x0a000002, PORT), addr4(0x0a000002, PORT));
		assert_int_equal(w->t[CLIENT].ev.info.rtr, w->options[0].rtr);
		assert_int_equal(w->t[SERVER].ev.info.rtr, w->options[0].rtr);
		assert_int_equal(w->t[CLIENT].ev.info.crc, i & 1);
		assert_int_equal(w->t[CLIENT].ev.info.receive_markers, i & 1);
		assert_int_equal(w->t[SERVER].ev.info.send_markers, i & 1);
		world_close(w);
	}
}

/* ---- no connection ---- */

static void test_rejected(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct iwcm_stats s;

	w->reject = true;
	start_listener(w, addr4(0x0a000002, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, 10 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_REJECTED);
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_CLOSED);
	assert_int_equal(w->t[CLIENT].ev.status, -ECONNREFUSED);
	assert_int_equal(w->t[CLIENT].ev.private_data_len, 6);
	assert_memory_equal(w->t[CLIENT].ev.private_data, "no way", 6);
	assert_int_equal(w->t[CLIENT].ev.info.cause, CM_CAUSE_REJECTED);
	assert_int_equal(iwcm_accept(w->t[SERVER].id, NULL), -EINVAL);
	assert_int_equal(iwcm_reject(w->t[SERVER].id, NULL, 0), -EINVAL);
	iwcm_get_stats(w->host[1].ctx, &s);
	assert_int_equal(s.rejects, 1);
	world_close(w);
}

/* So with a listener that is destroyed, which resets the client: the request has ended when it is accepted. */
static void test_listener_gone(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct iwcm_id *server;

	w->hold = true;
	start_listener(w, addr4(0x0a000002, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, NSEC_PER_SEC);
	server = w->t[SERVER].id;
	kill(w, LISTENER);
	assert_int_equal(iwcm_accept(server, NULL), -ECONNRESET);
	run_for(w, NSEC_PER_SEC);
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_CLOSED);
	assert_int_equal(w->t[SERVER].ev.status, -ECONNRESET);
	assert_int_equal(iwcm_accept(server, NULL), -EINVAL);
	world_close(w);
}

/* The client has gone, and the server answers before it has heard of that: it must not take it for a mistake of its own. */
static void test_request_gone(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct iwcm_id *server;
	struct irdma_qp *qp;

	w->hold = true;
	start_listener(w, addr4(0x0a000002, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, NSEC_PER_SEC);
	server = w->t[SERVER].id;
	assert_int_equal(rnic_qp_create(iwcm_id_device(server), &qp), 0);
	assert_int_equal(iwcm_abort(w->t[CLIENT].id), 0);
	while (port_wire_step(w->wire, loop_now(&w->loop) + NSEC_PER_SEC))
		;
	assert_int_equal(iwcm_set_qp(server, qp), -ECONNRESET);
	rnic_qp_destroy(qp);
	assert_int_equal(iwcm_accept(server, NULL), -ECONNRESET);
	assert_int_equal(iwcm_reject(server, NULL, 0), -ECONNRESET);
	pump(w);
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_CLOSED);
	assert_int_equal(iwcm_accept(server, NULL), -EINVAL);
	world_close(w);
}

static void test_refused(void **state)
{
	struct world *w = world_open(gen_of(state));

	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, 10 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_CONNECT_ERROR);
	assert_int_equal(w->t[CLIENT].ev.status, -ECONNREFUSED);
	assert_int_equal(w->t[CLIENT].ev.info.cause, CM_CAUSE_REFUSED);
	assert_int_equal(w->t[CLIENT].ev.info.syn_sent, 1);
	assert_int_equal(iwcm_connect(w->t[CLIENT].id, NULL), -EINVAL);
	world_close(w);
}

static void wire_down(struct world *w, bool down)
{
	struct port_wire_path path = { .down = down };

	port_wire_set_default(w->wire, &path);
}

static void test_no_answer(void **state)
{
	struct world *w = world_open(gen_of(state));
	u64 began = loop_now(&w->loop);

	w->options[0].connect_timeout_ms = 5000;
	start_client(w, addr4(0x0a000002, PORT));
	wire_down(w, true);
	run_for(w, 4 * NSEC_PER_SEC);
	assert_int_equal(w->t[CLIENT].total, 1);
	run_for(w, 60 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_CONNECT_ERROR);
	assert_int_equal(w->t[CLIENT].ev.status, -ETIMEDOUT);
	assert_int_equal(w->t[CLIENT].ev.info.cause, CM_CAUSE_NO_SYNACK);
	assert_true(w->t[CLIENT].ev.info.syn_sent > 1);
	assert_true(began < loop_now(&w->loop));
	world_close(w);
}

/* The server's program never answers. */
static void test_no_reply(void **state)
{
	struct world *w = world_open(gen_of(state));

	w->hold = true;
	w->options[0].mpa_timeout_ms = 3000;
	start_listener(w, addr4(0x0a000002, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, 60 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_CONNECT_ERROR);
	assert_int_equal(w->t[CLIENT].ev.status, -ETIMEDOUT);
	assert_int_equal(w->t[CLIENT].ev.info.cause, CM_CAUSE_NO_MPA_REPLY);
	/* The client has gone: the request is over by itself. */
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_CLOSED);
	assert_int_equal(iwcm_accept(w->t[SERVER].id, NULL), -EINVAL);
	world_close(w);
}

static void test_abort(void **state)
{
	struct world *w = world_open(gen_of(state));

	w->linger = true;
	start_listener(w, addr4(0x0a000002, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, NSEC_PER_SEC);
	assert_int_equal(iwcm_abort(w->t[CLIENT].id), 0);
	run_for(w, 10 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	world_close(w);
}

/* A program's QP, as the shim's users have it. */
struct own_qp {
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct irdma_qp *qp;
};

static void own_qp_open(struct own_qp *o, struct irdma_device *iwdev)
{
	struct rnic_cq_attr ca = { .cqe = 8 };
	struct rnic_qp_attr qa = { .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

	assert_int_equal(rnic_pd_create(iwdev, &o->pd), 0);
	assert_int_equal(rnic_cq_create(iwdev, &ca, &o->cq), 0);
	qa.pd = o->pd;
	qa.send_cq = qa.recv_cq = o->cq;
	assert_int_equal(rnic_qp_create_verbs(iwdev, &qa, &o->qp), 0);
}

static void own_qp_close(struct own_qp *o)
{
	assert_int_equal(rnic_cq_destroy(o->cq), 0);
	assert_int_equal(rnic_pd_destroy(o->pd), 0);
}

/* Programs destroy their QP and then the id right behind their last Send. The FIN and what is ahead of it are sent until the peer has them; a reset would be lost, or overtake them. */
static void test_destroy_qp_then_id(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct own_qp own;

	w->linger = w->hold = true;
	start_listener(w, addr4(0x0a000002, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, NSEC_PER_SEC);
	own_qp_open(&own, iwcm_id_device(w->t[SERVER].id));
	assert_int_equal(iwcm_set_qp(w->t[SERVER].id, own.qp), 0);
	assert_int_equal(iwcm_accept(w->t[SERVER].id, &w->accept), 0);
	run_for(w, NSEC_PER_SEC);
	wire_down(w, true); /* what leaves now has to be sent again */
	rnic_qp_destroy(own.qp);
	kill(w, SERVER);
	run_for(w, NSEC_PER_SEC / 10);
	wire_down(w, false);
	run_for(w, 10 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	assert_int_equal(w->t[CLIENT].how, 0);
	run_for(w, 300 * NSEC_PER_SEC); /* until the CM has no hold of the QP */
	own_qp_close(&own);
	world_close(w);
}

static void test_abort_connecting(void **state)
{
	struct world *w = world_open(gen_of(state));

	wire_down(w, true);
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, NSEC_PER_SEC);
	assert_int_equal(iwcm_disconnect(w->t[CLIENT].id), -ENOTCONN);
	assert_int_equal(iwcm_abort(w->t[CLIENT].id), 0);
	assert_int_equal(iwcm_abort(w->t[CLIENT].id), -ENOTCONN);
	run_for(w, 200 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_CONNECT_ERROR);
	assert_int_equal(w->t[CLIENT].ev.status, -ECONNABORTED);
	check_nothing_left(w->host[0].ctx);
	world_close(w);
}

/* ---- destroy, everywhere ---- */

struct scenario {
	const char *name;
	bool reject, hold, linger;
	unsigned int extra;       /* steps that the server holds the request */
};

/* Begin, go @at steps, destroy @who, go to the end. False if the end came before that many steps. */
static bool destroy_at(u8 gen, const struct scenario *sc, enum side who, unsigned int at, bool abort)
{
	struct world *w = world_open(gen);
	u64 until = loop_now(&w->loop) + 20 * NSEC_PER_SEC;
	unsigned int n;
	bool more = true;

	w->reject = sc->reject;
	w->hold = sc->hold;
	w->linger = sc->linger;
	start_listener(w, addr4(0, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	pump(w);
	for (n = 0; n < at && more; n++)
		more = step(w, until);
	if (abort && w->t[who].id)
		iwcm_abort(w->t[who].id);
	else
		kill(w, who);
	run_for(w, 300 * NSEC_PER_SEC);
	/* Whatever happened, it came to an end, and each side knows. */
	if (who != CLIENT && !sc->hold && !sc->linger) {
		const struct track *t = &w->t[CLIENT];

		assert_int_equal(t->count[IWCM_EVENT_CLOSED] + t->count[IWCM_EVENT_REJECTED] + t->count[IWCM_EVENT_CONNECT_ERROR], 1);
	}
	if (who == CLIENT && w->t[SERVER].was)
		assert_int_equal(w->t[SERVER].count[IWCM_EVENT_CLOSED], 1);
	world_close(w);
	return more;
}

static const struct scenario scenarios[] = {
	{ .name = "accept" },
	{ .name = "accept and stay", .linger = true },
	{ .name = "reject", .reject = true },
	{ .name = "no answer", .hold = true },
};

static void destroy_everywhere(u8 gen, bool abort)
{
	enum side who;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(scenarios); i++) {
		for (who = 0; who < SIDES; who++) {
			unsigned int at = 0;

			while (destroy_at(gen, &scenarios[i], who, at, abort))
				at++;
			assert_true(at > 4);
		}
	}
}

static void test_destroy_everywhere(void **state)
{
	destroy_everywhere(gen_of(state), false);
}

static void test_abort_everywhere(void **state)
{
	destroy_everywhere(gen_of(state), true);
}

/* Requests that were not fetched go with the listener. */
static void test_destroy_listener_with_queue(void **state)
{
	struct world *w = world_open(gen_of(state));
	unsigned int i;

	w->handler = true; /* the server's program sleeps */
	start_listener(w, addr4(0, PORT));
	w->options[0].fall_back = false;
	start_client(w, addr4(0x0a000002, PORT));
	assert_int_equal(iwcm_get_event(w->host[0].ctx, &w->t[CLIENT].ev, 0), 0);
	assert_int_equal(iwcm_connect(w->t[CLIENT].id, NULL), 0);
	for (i = 0; i < 1000 && port_wire_step(w->wire, loop_now(&w->loop) + NSEC_PER_SEC); i++)
		;
	kill(w, LISTENER);
	assert_int_equal(iwcm_get_event(w->host[1].ctx, &w->t[CLIENT].ev, 0), -EAGAIN);
	w->handler = false;
	run_for(w, 100 * NSEC_PER_SEC);
	assert_int_equal(w->t[CLIENT].total, 1);
	assert_true(w->t[CLIENT].last == IWCM_EVENT_CONNECT_ERROR || w->t[CLIENT].last == IWCM_EVENT_REJECTED);
	check_nothing_left(w->host[1].ctx);
	world_close(w);
}

/*
 * The CM may see the end of a request that nobody fetched while its listener is being destroyed, after the listener's events are gone and before the request's turn has
 * come. The CM gives its reference on the listener back in between: there the end comes.
 */
static struct {
	struct iwcm_id *request;
	struct world *w;
	void (*rem_ref)(struct iw_cm_id *cm);
} between;

static void request_ends_in_between(struct iw_cm_id *cm)
{
	struct iw_cm_event close = { .event = IW_CM_EVENT_CLOSE, .status = -ECONNRESET };
	struct iwcm_id *req = between.request;
	struct iwcm_event ev;

	cm->rem_ref = between.rem_ref;
	assert_int_equal(req->state, IWCM_ID_REQUEST);
	assert_int_equal(req->cm.event_handler(&req->cm, &close), 0);
	assert_int_equal(req->state, IWCM_ID_CLOSED);
	assert_int_equal(iwcm_get_event(between.w->host[1].ctx, &ev, 0), -EAGAIN); /* nobody knows this id */
	between.request = NULL;
	cm->rem_ref(cm);
}

static void test_request_ends_with_listener(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct iwcm_child *c;
	struct iwcm_event ev;

	start_listener(w, addr4(0x0a000002, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	pump(w);
	port_wire_run(w->wire, loop_now(&w->loop) + NSEC_PER_SEC); /* the server fetches nothing */
	between.w = w;
	between.request = LIST_FIRST(&w->t[LISTENER].id->untaken);
	assert_non_null(between.request);
	c = LIST_FIRST(&w->t[LISTENER].id->children);
	between.rem_ref = c->cm.rem_ref;
	c->cm.rem_ref = request_ends_in_between;
	kill(w, LISTENER);
	assert_null(between.request); /* it was asked */
	assert_int_equal(iwcm_get_event(w->host[1].ctx, &ev, 0), -EAGAIN);
	run_for(w, NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_CONNECT_ERROR);
	world_close(w);
}

/* Close a context with everything up. */
static void test_close_in_the_middle(void **state)
{
	unsigned int at;
	bool more = true;

	for (at = 0; more; at++) {
		struct world *w = world_open(gen_of(state));
		u64 until = loop_now(&w->loop) + 5 * NSEC_PER_SEC;
		unsigned int n;

		w->linger = true;
		start_listener(w, addr4(0, PORT));
		start_client(w, addr4(0x0a000002, PORT));
		pump(w);
		for (n = 0; n < at && more; n++)
			more = step(w, until);
		memset(w->t, 0, sizeof(w->t)); /* the close destroys them */
		for (n = 0; n < HOSTS; n++) {
			iwcm_close(w->host[n].ctx);
			net_close(w->host[n].net);
		}
		test_capture_close();
		port_wire_destroy(w->wire);
		net_segment_destroy(w->seg);
		loop_destroy(&w->loop);
		rand_unset_seed();
		free(w);
	}
	assert_true(at > 4);
}

/* ---- handler mode ---- */

struct handled {
	struct world *w;
	struct iwcm_ctx *ctx;
};

static void handler(void *arg, const struct iwcm_event *ev)
{
	struct handled *h = arg;

	on_event(h->w, h->ctx, ev);
	/* From inside, at the last event and in the middle. */
	if (ev->type == IWCM_EVENT_CLOSED)
		kill(h->w, h->ctx == h->w->host[0].ctx ? CLIENT : SERVER);
}

static void test_handler(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct handled h[HOSTS];
	unsigned int n;

	w->handler = true;
	for (n = 0; n < HOSTS; n++) {
		h[n] = (struct handled){ w, w->host[n].ctx };
		iwcm_set_handler(w->host[n].ctx, handler, NULL, &h[n]);
	}
	whole_life(w, addr4(0, PORT), addr4(0x0a000002, PORT));
	assert_null(w->t[CLIENT].id);
	assert_null(w->t[SERVER].id);
	world_close(w);
}

static void destroyer(void *arg, const struct iwcm_event *ev)
{
	struct handled *h = arg;

	if (ev->type == IWCM_EVENT_CONNECT_REQUEST) {
		iwcm_destroy_id(ev->id);
		return;
	}
	on_event(h->w, h->ctx, ev);
}

/* The handler destroys the new id inside its CONNECT_REQUEST. */
static void test_handler_destroys_request(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct handled h = { w, w->host[1].ctx };

	iwcm_set_handler(w->host[1].ctx, destroyer, NULL, &h);
	start_listener(w, addr4(0, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, 100 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_REJECTED);
	world_close(w);
}

/* ---- binding and resolving ---- */

static void test_bind(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct sockaddr_storage at = addr4(0x0a000002, PORT), any = addr4(0, PORT), ss;
	struct sockaddr bad = { .sa_family = AF_UNIX };
	struct iwcm_id *a, *b;

	assert_int_equal(iwcm_create_id(w->host[1].ctx, w, &a), 0);
	assert_int_equal(iwcm_create_id(w->host[1].ctx, w, &b), 0);
	assert_ptr_equal(iwcm_user(a), w);
	iwcm_set_user(a, b);
	assert_ptr_equal(iwcm_user(a), b);
	assert_int_equal(iwcm_local_addr(a, &ss), -ENOTCONN);
	assert_int_equal(iwcm_listen(a, 1), -EINVAL);
	assert_int_equal(iwcm_bind(a, NULL), -EINVAL);
	assert_int_equal(iwcm_bind(a, &bad), -EAFNOSUPPORT);
	ss = addr4(0x0a000063, PORT);
	assert_int_equal(iwcm_bind(a, sa(&ss)), -EADDRNOTAVAIL);
	ss = addr4(0x7f000001, PORT);
	assert_int_equal(iwcm_bind(a, sa(&ss)), -ENODEV); /* no NIC on the loopback interface of a simulated host */
	assert_int_equal(iwcm_bind(a, sa(&at)), 0);
	assert_int_equal(iwcm_bind(a, sa(&at)), -EINVAL);
	assert_int_equal(iwcm_bind(b, sa(&at)), -EADDRINUSE);
	assert_int_equal(iwcm_bind(b, sa(&any)), -EADDRINUSE);
	ss = addr4(0x0a050002, PORT);
	assert_int_equal(iwcm_bind(b, sa(&ss)), 0);
	iwcm_destroy_id(b);
	iwcm_destroy_id(a);
	assert_int_equal(iwcm_create_id(w->host[1].ctx, w, &a), 0);
	assert_int_equal(iwcm_create_id(w->host[1].ctx, w, &b), 0);
	assert_int_equal(iwcm_bind(a, sa(&any)), 0);
	assert_int_equal(iwcm_bind(b, sa(&at)), -EADDRINUSE);
	ss = addr6(0, 0, PORT);
	assert_int_equal(iwcm_bind(b, sa(&ss)), 0); /* the other family */
	iwcm_destroy_id(b);
	iwcm_destroy_id(a);
	world_close(w);
}

static void test_bind_port_0(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct iwcm_id *id[64];
	u16 port, seen[64];
	u32 addr[4];
	size_t i, k;
	bool ipv4;

	for (i = 0; i < ARRAY_SIZE(id); i++) {
		struct sockaddr_storage ss = i & 1 ? addr4(0, 0) : addr4(0x0a000002, 0);

		assert_int_equal(iwcm_create_id(w->host[1].ctx, NULL, &id[i]), 0);
		assert_int_equal(iwcm_bind(id[i], sa(&ss)), 0);
		assert_int_equal(iwcm_local_addr(id[i], &ss), 0);
		assert_true(cm_addr_from_sockaddr(&ss, &ipv4, addr, &port));
		assert_int_not_equal(port, 0);
		for (k = 0; k < i; k++)
			assert_int_not_equal(seen[k], port);
		seen[i] = port;
	}
	for (i = 0; i < ARRAY_SIZE(id); i++)
		iwcm_destroy_id(id[i]);
	world_close(w);
}

static void test_bound_client(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct sockaddr_storage from = addr4(0x0a000001, 4000), to = addr4(0x0a000002, PORT);
	struct iwcm_id *id;

	start_listener(w, addr4(0, PORT));
	id = make_id(w, CLIENT);
	assert_int_equal(iwcm_resolve(id, sa(&from), sa(&to)), 0);
	run_for(w, NSEC_PER_SEC);
	assert_int_equal(w->t[CLIENT].total, 4);
	assert_memory_equal(&w->t[SERVER].ev.remote, &from, sizeof(struct sockaddr_in));
	world_close(w);

	/* Bound to the wildcard: the port is kept, the address is found. */
	w = world_open(gen_of(state));
	from = addr4(0, 4000);
	start_listener(w, addr4(0, PORT));
	id = make_id(w, CLIENT);
	assert_int_equal(iwcm_bind(id, sa(&from)), 0);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&to)), 0);
	run_for(w, NSEC_PER_SEC);
	assert_int_equal(w->t[CLIENT].total, 4);
	from = addr4(0x0a000001, 4000);
	assert_memory_equal(&w->t[SERVER].ev.remote, &from, sizeof(struct sockaddr_in));
	world_close(w);
}

static void test_resolve_errors(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct sockaddr_storage to = addr4(0x0a000002, PORT), far = addr4(0xc0000201, PORT), v6 = addr6(0xfd000000, 2, PORT), ss;
	struct iwcm_id *id = make_id(w, CLIENT);

	assert_int_equal(iwcm_connect(id, NULL), -EINVAL);
	assert_int_equal(iwcm_accept(id, NULL), -EINVAL);
	assert_int_equal(iwcm_disconnect(id), -ENOTCONN);
	assert_int_equal(iwcm_remote_addr(id, &ss), -ENOTCONN);
	assert_int_equal(iwcm_resolve(id, NULL, NULL), -EINVAL);
	ss = addr4(0, PORT);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&ss)), -EINVAL);
	ss = addr4(0x0a000002, 0);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&ss)), -EINVAL);
	assert_int_equal(iwcm_resolve(id, sa(&v6), sa(&to)), -EAFNOSUPPORT);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&far)), 0);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&far)), -EALREADY);
	run_for(w, NSEC_PER_SEC);
	assert_int_equal(w->t[CLIENT].last, IWCM_EVENT_RESOLVE_ERROR);
	assert_int_equal(w->t[CLIENT].ev.status, -ENETUNREACH);
	assert_int_equal(w->t[CLIENT].ev.info.cause, CM_CAUSE_UNREACHABLE);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&far)), 0);
	run_for(w, NSEC_PER_SEC);
	assert_int_equal(w->t[CLIENT].count[IWCM_EVENT_RESOLVE_ERROR], 2);
	ss = addr4(0x0a000063, 0); /* not ours */
	assert_int_equal(iwcm_resolve(id, sa(&ss), sa(&to)), 0);
	run_for(w, NSEC_PER_SEC);
	assert_int_equal(w->t[CLIENT].count[IWCM_EVENT_RESOLVE_ERROR], 3);
	assert_int_equal(w->t[CLIENT].ev.status, -EADDRNOTAVAIL);
	assert_int_equal(w->t[CLIENT].ev.info.cause, CM_CAUSE_NONE);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&to)), 0); /* after errors */
	assert_int_equal(iwcm_resolve(id, NULL, sa(&to)), -EINVAL);
	world_close(w);
}

static void test_params(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct sockaddr_storage to = addr4(0x0a000002, PORT);
	struct iwcm_conn_param p = { .private_data = &to, .private_data_len = 509 };
	struct iwcm_id *id = make_id(w, CLIENT);
	struct iwcm_options o;
	struct iwcm_event ev;

	iwcm_options_init(&o);
	o.mpa_revision = 3;
	assert_int_equal(iwcm_set_options(id, &o), -EINVAL);
	iwcm_options_init(&o);
	o.rtr = 8;
	assert_int_equal(iwcm_set_options(id, &o), -EINVAL);
	o.rtr = 0;
	assert_int_equal(iwcm_set_options(id, &o), -EINVAL);
	o.peer_to_peer = false;
	assert_int_equal(iwcm_set_options(id, &o), 0);
	o.tos = 256;
	assert_int_equal(iwcm_set_options(id, &o), -EINVAL);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&to)), 0);
	assert_int_equal(iwcm_get_event(w->host[0].ctx, &ev, 0), 0);
	assert_int_equal(iwcm_connect(id, &p), -EINVAL);
	p.private_data = NULL;
	p.private_data_len = 1;
	assert_int_equal(iwcm_connect(id, &p), -EINVAL);
	assert_int_equal(iwcm_reject(id, "x", 1), -EINVAL);
	assert_int_equal(iwcm_reject(id, "x", 256), -EINVAL);
	assert_int_equal(iwcm_connect(id, NULL), 0);
	o.tos = 0;
	assert_int_equal(iwcm_set_options(id, &o), -EISCONN);
	world_close(w);
}

/* ---- events ---- */

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void test_event_fd(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct sockaddr_storage to = addr4(0x0a000002, PORT);
	struct iwcm_id *id = make_id(w, CLIENT);
	struct iwcm_event ev;
	int fd = iwcm_event_fd(w->host[0].ctx);

	assert_true(fd >= 0 && !readable(fd));
	assert_int_equal(iwcm_event_fd(w->host[0].ctx), fd);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&to)), 0);
	assert_true(readable(fd));
	assert_int_equal(iwcm_get_event(w->host[0].ctx, &ev, 0), 0);
	assert_false(readable(fd));
	kill(w, CLIENT);
	assert_int_equal(iwcm_resolve(make_id(w, CLIENT), NULL, sa(&to)), 0);
	kill(w, CLIENT); /* with its event */
	assert_false(readable(fd));
	id = make_id(w, CLIENT);
	assert_int_equal(iwcm_resolve(id, NULL, sa(&to)), 0);
	/* Made when something is there already. */
	assert_false(readable(iwcm_event_fd(w->host[1].ctx)));
	assert_int_equal(iwcm_get_event(w->host[0].ctx, &ev, -1), 0);
	assert_int_equal(iwcm_get_event(w->host[0].ctx, &ev, 0), -EAGAIN);
	assert_int_equal(iwcm_get_event(w->host[0].ctx, &ev, 5), -EAGAIN);
	world_close(w);
}

static void test_strings(void **state)
{
	int i;

	for (i = -1; i <= IWCM_EVENT_DEVICE_REMOVED + 1; i++)
		assert_true(strlen(iwcm_event_str((enum iwcm_event_type)i)) > 0);
	for (i = -1; i <= CM_CAUSES; i++)
		assert_true(strlen(iwcm_cause_str(i)) > 0);
}

/* ---- addresses and interfaces come and go ---- */

static void test_address_comes(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct net_addr late = { .ifindex = w->host[1].eth.ifindex, .ipv4 = true, .addr = { 0x0a000007 }, .prefix_len = 24 };
	struct iwcm_device dev;

	start_listener(w, addr4(0, PORT));
	assert_int_equal(net_sim_add_addr(w->host[1].net, &late), 0);
	net_process(w->host[1].net);
	assert_int_equal(iwcm_devices(w->host[1].ctx, &dev, 1), 1);
	assert_string_equal(dev.iface, "eth0");
	assert_int_equal(dev.num_addrs, 4);
	start_client(w, addr4(0x0a000007, PORT));
	run_for(w, 5 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	world_close(w);
}

static void test_address_goes(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct net_addr gone = { .ifindex = w->host[1].eth.ifindex, .ipv4 = true, .addr = { 0x0a000002 }, .prefix_len = 24 };

	w->linger = true;
	start_listener(w, addr4(0, PORT));
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, NSEC_PER_SEC);
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_ESTABLISHED);
	assert_int_equal(net_sim_del_addr(w->host[1].net, &gone), 0);
	net_process(w->host[1].net);
	run_for(w, NSEC_PER_SEC);
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	/* It comes back: the listener is there again. */
	assert_int_equal(net_sim_add_addr(w->host[1].net, &gone), 0);
	net_process(w->host[1].net);
	kill(w, CLIENT);
	kill(w, SERVER);
	w->linger = false;
	start_client(w, addr4(0x0a000002, PORT));
	run_for(w, 5 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	world_close(w);
}

static void test_interface_comes(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct net_iface eth1[HOSTS];
	unsigned int n;

	start_listener(w, addr4(0, PORT));
	for (n = 0; n < HOSTS; n++) {
		eth1[n] = w->host[n].eth;
		eth1[n].ifindex = 0;
		strcpy(eth1[n].name, "eth1");
		eth1[n].mac[4] = 1;
		assert_int_equal(net_sim_add_iface(w->host[n].net, &eth1[n]), 0);
		add_addr(&w->host[n], eth1[n].ifindex, true, 0x0a010001 + n, 0, 24);
		net_process(w->host[n].net);
		assert_int_equal(iwcm_devices(w->host[n].ctx, NULL, 0), 2);
	}
	w->linger = true;
	start_client(w, addr4(0x0a010002, PORT));
	run_for(w, 5 * NSEC_PER_SEC);
	EXPECT(w, CLIENT, IWCM_EVENT_RESOLVED, IWCM_EVENT_ESTABLISHED);
	/* And goes, with the connection. */
	assert_int_equal(net_sim_del_iface(w->host[1].net, eth1[1].ifindex), 0);
	net_process(w->host[1].net);
	run_for(w, 5 * NSEC_PER_SEC);
	assert_int_equal(iwcm_devices(w->host[1].ctx, NULL, 0), 1);
	EXPECT(w, SERVER, IWCM_EVENT_CONNECT_REQUEST, IWCM_EVENT_ESTABLISHED, IWCM_EVENT_DISCONNECTED, IWCM_EVENT_CLOSED);
	world_close(w);
}

static void test_device_removed(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct sockaddr_storage at = addr4(0x0a000002, 5000), to = addr4(0x0a000001, PORT);
	struct iwcm_id *bound, *resolved;
	struct iwcm_event ev;

	w->handler = true;
	start_listener(w, addr4(0x0a000002, PORT));
	assert_int_equal(iwcm_create_id(w->host[1].ctx, NULL, &bound), 0);
	assert_int_equal(iwcm_bind(bound, sa(&at)), 0);
	assert_int_equal(iwcm_create_id(w->host[1].ctx, NULL, &resolved), 0);
	assert_int_equal(iwcm_resolve(resolved, NULL, sa(&to)), 0);
	assert_int_equal(iwcm_get_event(w->host[1].ctx, &ev, 0), 0);
	assert_int_equal(net_sim_del_iface(w->host[1].net, w->host[1].vlan.ifindex), 0);
	assert_int_equal(net_sim_del_iface(w->host[1].net, w->host[1].eth.ifindex), 0);
	net_process(w->host[1].net);
	run_for(w, NSEC_PER_SEC);
	assert_int_equal(iwcm_devices(w->host[1].ctx, NULL, 0), 0);
	assert_int_equal(iwcm_get_event(w->host[1].ctx, &ev, 0), 0);
	assert_int_equal(ev.type, IWCM_EVENT_DEVICE_REMOVED);
	assert_ptr_equal(ev.id, w->t[LISTENER].id);
	assert_int_equal(iwcm_get_event(w->host[1].ctx, &ev, 0), 0);
	assert_ptr_equal(ev.id, bound);
	assert_int_equal(iwcm_get_event(w->host[1].ctx, &ev, 0), 0);
	assert_ptr_equal(ev.id, resolved);
	assert_int_equal(iwcm_get_event(w->host[1].ctx, &ev, 0), -EAGAIN);
	assert_int_equal(iwcm_listen(bound, 1), -ENODEV);
	assert_int_equal(iwcm_connect(resolved, NULL), -ENODEV);
	iwcm_destroy_id(bound);
	iwcm_destroy_id(resolved);
	world_close(w);
}

/* The client's interface goes at every step of a connection. */
static void test_interface_goes_everywhere(void **state)
{
	unsigned int at;
	bool more = true;

	for (at = 0; more; at++) {
		struct world *w = world_open(gen_of(state));
		u64 until = loop_now(&w->loop) + 5 * NSEC_PER_SEC;
		unsigned int n, side = at & 1;

		start_listener(w, addr4(0, PORT));
		start_client(w, addr4(0x0a000002, PORT));
		pump(w);
		for (n = 0; n < at / 2 && more; n++)
			more = step(w, until);
		assert_int_equal(net_sim_del_iface(w->host[side].net, w->host[side].vlan.ifindex), 0);
		assert_int_equal(net_sim_del_iface(w->host[side].net, w->host[side].eth.ifindex), 0);
		net_process(w->host[side].net);
		run_for(w, 300 * NSEC_PER_SEC);
		if (side == 0 && w->t[CLIENT].count[IWCM_EVENT_ESTABLISHED])
			assert_int_equal(w->t[CLIENT].count[IWCM_EVENT_CLOSED], 1);
		if (side == 0)
			assert_int_equal(w->t[CLIENT].count[IWCM_EVENT_CLOSED] + w->t[CLIENT].count[IWCM_EVENT_CONNECT_ERROR], 1);
		world_close(w);
	}
	assert_true(at > 8);
}

/* ---- observers ---- */

struct watched {
	unsigned int frames, states;
};

static void on_frame(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	struct watched *o = arg;

	assert_non_null(p->frame);
	o->frames++;
}

static void on_state(void *ctx, const struct irdma_cm_node *node, const struct pkt_tuple *t, const char *from, const char *to, u64 now_ns)
{
	struct watched *o = ctx;

	o->states++;
}

static void test_observers(void **state)
{
	struct world *w = world_open(gen_of(state));
	struct watched seen = { 0 };
	struct cm_trace trace = { .state = on_state, .ctx = &seen };

	iwcm_set_observers(w->host[0].ctx, test_capture.pcap, on_frame, &trace, &seen);
	assert_ptr_equal(iwcm_loop(w->host[0].ctx), &w->loop);
	whole_life(w, addr4(0, PORT), addr4(0x0a000002, PORT));
	assert_true(seen.frames >= 8);
	assert_true(seen.states >= 4);
	world_close(w);
}

/* ---- many ---- */

/* A lossy wire, many connections after each other and at once, all with a defined end. */
static void test_many_lossy(void **state)
{
	enum { MANY = 200 };
	struct port_wire_path path = { .latency_ns = 50000, .loss = 0.05, .reorder = 0.05, .reorder_ns = 200000, .duplicate = 0.02, .corrupt = 0.01 };
	struct world *w = world_open(gen_of(state));
	struct sockaddr_storage to = addr4(0x0a000002, PORT);
	unsigned int ends[2] = { 0 }, requests = 0, i, n;
	struct iwcm_event ev;
	struct iwcm_id *id;

	w->handler = true;
	port_wire_set_default(w->wire, &path);
	start_listener(w, addr4(0, PORT));
	for (i = 0; i < MANY; i++) {
		assert_int_equal(iwcm_create_id(w->host[0].ctx, NULL, &id), 0);
		assert_int_equal(iwcm_resolve(id, NULL, sa(&to)), 0);
	}
	do {
		for (n = 0; n < HOSTS; n++) {
			while (!iwcm_get_event(w->host[n].ctx, &ev, 0)) {
				if (ev.type == IWCM_EVENT_RESOLVED)
					assert_int_equal(iwcm_connect(ev.id, NULL), 0);
				if (ev.type == IWCM_EVENT_ESTABLISHED && !n)
					iwcm_disconnect(ev.id);
				if (ev.type == IWCM_EVENT_CONNECT_REQUEST) {
					requests++;
					iwcm_accept(ev.id, NULL);
				}
				if (ev.type == IWCM_EVENT_CLOSED || ev.type == IWCM_EVENT_CONNECT_ERROR || ev.type == IWCM_EVENT_REJECTED) {
					ends[n]++;
					iwcm_destroy_id(ev.id);
				}
			}
		}
	} while (port_wire_step(w->wire, 1000 * NSEC_PER_SEC));
	assert_int_equal(ends[0], MANY);
	assert_int_equal(ends[1], requests);
	world_close(w);
}

/* ---- anything at any time ---- */

enum { ACTORS = 4000, AT_ONCE = 24 };

struct actor {
	struct iwcm_id *id;
	unsigned int host;
	struct track t;
};

struct chaos {
	struct world *w;
	struct rand_gen g;
	struct actor a[ACTORS];
	unsigned int used, live;
	u64 digest;               /* of all that happened: two runs of one seed are the same */
};

static struct actor *chaos_add(struct chaos *c, struct iwcm_id *id, unsigned int host)
{
	struct actor *a = &c->a[c->used++];

	assert_true(c->used <= ACTORS);
	*a = (struct actor){ .id = id, .host = host };
	iwcm_set_user(id, a);
	c->live++;
	return a;
}

static void chaos_kill(struct chaos *c, struct actor *a)
{
	struct iwcm_id *id = a->id;

	if (!id)
		return;
	a->id = NULL;
	c->live--;
	iwcm_destroy_id(id);
}

static void chaos_start(struct chaos *c)
{
	unsigned int host = (unsigned int)rand_gen_below(&c->g, HOSTS);
	bool v6 = rand_gen_chance(&c->g, 0.3), listen = rand_gen_chance(&c->g, 0.3);
	u16 port = (u16)(PORT + rand_gen_below(&c->g, 3));
	struct sockaddr_storage ss = v6 ? addr6(0xfd000000, 2 - host, port) : addr4(0x0a000002 - host, port);
	struct iwcm_options o;
	struct iwcm_id *id;

	assert_int_equal(iwcm_create_id(c->w->host[host].ctx, NULL, &id), 0);
	chaos_add(c, id, host);
	iwcm_options_init(&o);
	o.mpa_revision = 1 + (unsigned int)rand_gen_below(&c->g, 2);
	o.peer_to_peer = rand_gen_chance(&c->g, 0.5);
	o.mpa_timeout_ms = 1000 + (unsigned int)rand_gen_below(&c->g, 3000);
	assert_int_equal(iwcm_set_options(id, &o), 0);
	if (!listen) {
		iwcm_resolve(id, NULL, sa(&ss));
		return;
	}
	if (rand_gen_chance(&c->g, 0.6))
		ss = v6 ? addr6(0, 0, port) : addr4(0, port);
	else
		ss = v6 ? addr6(0xfd000000, 1 + host, port) : addr4(0x0a000001 + host, port);
	if (iwcm_bind(id, sa(&ss)) || iwcm_listen(id, 1 + (int)rand_gen_below(&c->g, 8)))
		chaos_kill(c, iwcm_user(id));
}

static void chaos_meddle(struct chaos *c)
{
	struct actor *a = &c->a[rand_gen_below(&c->g, c->used)];

	if (!a->id)
		return;
	switch (rand_gen_below(&c->g, 8)) {
	case 0:
		chaos_kill(c, a);
		break;
	case 1:
		iwcm_abort(a->id);
		break;
	case 2:
		iwcm_disconnect(a->id);
		break;
	case 3:
		iwcm_reject(a->id, "chaos", 5);
		break;
	case 4:
		iwcm_accept(a->id, NULL);
		break;
	default:
		break;
	}
}

static void chaos_address(struct chaos *c)
{
	struct host *h = &c->w->host[rand_gen_below(&c->g, HOSTS)];
	unsigned int n = h == &c->w->host[1];
	struct net_addr a = { .ifindex = h->eth.ifindex, .ipv4 = true, .addr = { 0x0a000001 + n }, .prefix_len = 24 };

	if (rand_gen_chance(&c->g, 0.5))
		net_sim_del_addr(h->net, &a);
	else
		net_sim_add_addr(h->net, &a);
	net_process(h->net);
}

static void chaos_event(struct chaos *c, unsigned int host, const struct iwcm_event *ev)
{
	struct actor *a = iwcm_user(ev->id);

	if (ev->type == IWCM_EVENT_CONNECT_REQUEST)
		a = chaos_add(c, ev->id, host);
	assert_ptr_equal(a->id, ev->id); /* it lives */
	assert_int_equal(a->host, host);
	note(&a->t, ev);
	c->digest = (c->digest ^ (u64)ev->type ^ ((u64)(u32)ev->status << 8) ^ loop_now(&c->w->loop)) * 0x100000001B3ull;
	switch (ev->type) {
	case IWCM_EVENT_RESOLVED:
		if (rand_gen_chance(&c->g, 0.95))
			iwcm_connect(ev->id, NULL);
		break;
	case IWCM_EVENT_CONNECT_REQUEST:
		if (rand_gen_chance(&c->g, 0.9))
			iwcm_accept(ev->id, NULL);
		break;
	case IWCM_EVENT_ESTABLISHED:
		if (rand_gen_chance(&c->g, 0.5))
			iwcm_disconnect(ev->id);
		break;
	case IWCM_EVENT_DISCONNECTED:
		break;
	default:
		chaos_kill(c, a);
	}
}

static void chaos_pump(struct chaos *c)
{
	struct iwcm_event ev;
	unsigned int n;

	for (n = 0; n < HOSTS; n++)
		while (!iwcm_get_event(c->w->host[n].ctx, &ev, 0))
			chaos_event(c, n, &ev);
}

static u64 chaos_run(u8 gen, u64 seed)
{
	struct port_wire_path path = { .latency_ns = 100000, .jitter_ns = 100000, .loss = 0.03, .reorder = 0.03, .reorder_ns = 500000, .duplicate = 0.02, .corrupt = 0.01 };
	struct chaos *c = calloc(1, sizeof(*c));
	unsigned int i, n;
	u64 digest;

	assert_non_null(c);
	c->w = world_open(gen);
	c->w->handler = true;
	rand_gen_seed(&c->g, seed);
	port_wire_set_default(c->w->wire, &path);
	for (i = 0; i < 10000 && c->used < ACTORS / 2; i++) {
		if (c->live < AT_ONCE && rand_gen_chance(&c->g, 0.3))
			chaos_start(c);
		if (c->used && rand_gen_chance(&c->g, 0.1))
			chaos_meddle(c);
		if (rand_gen_chance(&c->g, 0.002))
			chaos_address(c);
		port_wire_step(c->w->wire, loop_now(&c->w->loop) + 10 * NSEC_PER_MSEC);
		chaos_pump(c);
	}
	/* Nobody meddles any more: what is under way ends. */
	for (i = 0; i < c->used; i++)
		if (c->a[i].id && !c->a[i].t.count[IWCM_EVENT_RESOLVED] && !c->a[i].t.count[IWCM_EVENT_CONNECT_REQUEST])
			chaos_kill(c, &c->a[i]); /* listeners */
	for (n = 0; n < 600; n++) {
		port_wire_run(c->w->wire, loop_now(&c->w->loop) + NSEC_PER_SEC);
		chaos_pump(c);
	}
	for (i = 0; i < c->used; i++) {
		if (c->a[i].id && c->a[i].t.last == IWCM_EVENT_DISCONNECTED)
			fail_msg("seed %llu: DISCONNECTED and never CLOSED", (unsigned long long)seed);
		chaos_kill(c, &c->a[i]);
	}
	digest = c->digest;
	world_close(c->w);
	free(c);
	return digest;
}

static void test_chaos(void **state)
{
	u64 seed;

	for (seed = 1; seed <= 10; seed++)
		assert_true(chaos_run(gen_of(state), seed) == chaos_run(gen_of(state), seed));
}

#define BOTH(f) \
	{ #f " (whole frames)", f, NULL, NULL, (void *)IRDMA_GEN_1 }, \
	{ #f " (address handles)", f, NULL, NULL, (void *)IRDMA_GEN_2 }

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_connect), BOTH(test_private_data), BOTH(test_ipv6), BOTH(test_wildcards), BOTH(test_vlan), BOTH(test_loopback),
		BOTH(test_revision_1), BOTH(test_models),
		BOTH(test_rejected), BOTH(test_request_gone), BOTH(test_listener_gone), BOTH(test_refused), BOTH(test_no_answer), BOTH(test_no_reply),
		BOTH(test_abort), BOTH(test_destroy_qp_then_id), BOTH(test_abort_connecting),
		BOTH(test_destroy_everywhere), BOTH(test_abort_everywhere), BOTH(test_destroy_listener_with_queue), BOTH(test_request_ends_with_listener),
		BOTH(test_close_in_the_middle),
		BOTH(test_handler), BOTH(test_handler_destroys_request),
		BOTH(test_bind), BOTH(test_bind_port_0), BOTH(test_bound_client), BOTH(test_resolve_errors), BOTH(test_params),
		BOTH(test_event_fd), BOTH(test_strings),
		BOTH(test_address_comes), BOTH(test_address_goes), BOTH(test_interface_comes), BOTH(test_device_removed),
		BOTH(test_interface_goes_everywhere), BOTH(test_observers), BOTH(test_many_lossy), BOTH(test_chaos),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
