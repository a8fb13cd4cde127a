/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include "world.h"

#define HOST_LIMIT_NS (20 * NSEC_PER_SEC)
#define WIRE_LIMIT_NS (2000 * NSEC_PER_SEC) /* virtual */
#define TURN_MS 5

int world_said(const char *what, int err)
{
	if (err)
		fprintf(stderr, "%s: %s\n", what, strerror(-err));
	return err;
}

/* ---- up and down ---- */

static int add_addr(struct net *net, u32 ifindex, bool ipv4, unsigned int host)
{
	struct net_addr a = { .ifindex = ifindex, .ipv4 = ipv4, .addr = { ipv4 ? 0x0a000001 + host : 0xfd000000 }, .prefix_len = ipv4 ? 24 : 64 };

	if (!ipv4)
		a.addr[3] = 1 + host;
	return net_sim_add_addr(net, &a);
}

static int wire_host_open(struct world *w, unsigned int i)
{
	struct net_iface eth = { .name = "eth0", .mac = { 2, 0, 0, 0, 0, (u8)(i + 1) }, .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE };
	int err = net_open_sim(w->seg, &w->net[i]);

	if (!err)
		err = net_sim_add_iface(w->net[i], &eth);
	if (!err)
		err = add_addr(w->net[i], eth.ifindex, true, i);
	if (!err)
		err = add_addr(w->net[i], eth.ifindex, false, i);
	if (err)
		return err;
	net_process(w->net[i]);
	return iwcm_open_wire(w->wire, &w->loop, w->net[i], w->gen, &w->ctx[i]);
}

static int wire_open(struct world *w)
{
	struct port_wire_path path = { .latency_ns = 50000 };
	int err;

	rand_set_seed(1);
	loop_init(&w->loop, NSEC_PER_SEC);
	err = port_wire_create(&w->loop, 1, &w->wire);
	if (err)
		return err;
	port_wire_set_default(w->wire, &path);
	w->seg = net_segment_create();
	if (!w->seg)
		return -ENOMEM;
	err = wire_host_open(w, CLIENT);
	return err ? err : wire_host_open(w, SERVER);
}

int world_open(struct world *w, bool host, const char *ifaces, u8 gen)
{
	int err;

	memset(w, 0, sizeof(*w));
	w->host = host;
	w->gen = gen;
	iwcm_options_init(&w->options);
	err = host ? iwcm_open(ifaces, &w->ctx[CLIENT]) : wire_open(w);
	if (host)
		w->ctx[SERVER] = w->ctx[CLIENT];
	return world_said("open", err);
}

static void wire_close(struct world *w)
{
	int i;

	for (i = 0; i < SIDES; i++) {
		iwcm_close(w->ctx[i]);
		if (w->net[i])
			net_close(w->net[i]);
	}
	if (w->wire)
		port_wire_destroy(w->wire);
	if (w->seg)
		net_segment_destroy(w->seg);
	loop_destroy(&w->loop);
	rand_unset_seed();
}

void world_close(struct world *w)
{
	if (w->host)
		iwcm_close(w->ctx[CLIENT]);
	else
		wire_close(w);
}

/* ---- events ---- */

#define FAILURES (BIT(IWCM_EVENT_RESOLVE_ERROR) | BIT(IWCM_EVENT_CONNECT_ERROR) | BIT(IWCM_EVENT_REJECTED) | BIT(IWCM_EVENT_DEVICE_REMOVED))

bool world_ended(const struct side *s)
{
	return s->seen & (FAILURES | BIT(IWCM_EVENT_CLOSED));
}

static void request(struct world *w, struct iwcm_ctx *ctx, const struct iwcm_event *ev)
{
	struct side *s = &w->s[SERVER];

	if (s->id) {
		iwcm_destroy_id(ev->id);
		return;
	}
	s->id = ev->id;
	s->ctx = ctx;
	s->seen |= BIT(ev->type);
}

static void dispatch(struct world *w, struct iwcm_ctx *ctx, const struct iwcm_event *ev)
{
	int i;

	if (ev->type == IWCM_EVENT_CONNECT_REQUEST)
		request(w, ctx, ev);
	for (i = 0; i < SIDES; i++) {
		struct side *s = &w->s[i];

		if (s->id != ev->id || s->ctx != ctx)
			continue;
		s->seen |= BIT(ev->type);
		if (!s->status)
			s->status = ev->status;
	}
}

static void pump(struct world *w)
{
	struct iwcm_event ev;
	int i;

	if (w->host) {
		if (!iwcm_get_event(w->ctx[0], &ev, TURN_MS))
			dispatch(w, w->ctx[0], &ev);
		return;
	}
	port_wire_step(w->wire, loop_now(&w->loop) + 10 * NSEC_PER_MSEC);
	for (i = 0; i < SIDES; i++)
		while (!iwcm_get_event(w->ctx[i], &ev, 0))
			dispatch(w, w->ctx[i], &ev);
}

int world_wait(struct world *w, bool (*done)(void *arg), void *arg, const char *what)
{
	u64 end = w->host ? loop_monotonic_ns() + HOST_LIMIT_NS : loop_now(&w->loop) + WIRE_LIMIT_NS;

	while (!done(arg)) {
		if ((w->host ? loop_monotonic_ns() : loop_now(&w->loop)) > end)
			return world_said(what, -ETIME);
		pump(w);
	}
	return 0;
}

/* The errno of an end that failed. */
static int failure(const struct side *s, const char *what)
{
	return world_said(what, s->status ? s->status : -ECONNRESET);
}

/* ---- steps ---- */

static struct sockaddr_storage addr(const char *text, u16 port)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;

	in->sin_port = htons(port); /* at the same place in both */
	in->sin_family = inet_pton(AF_INET, text, &in->sin_addr) == 1 ? AF_INET : AF_INET6;
	if (in->sin_family == AF_INET6)
		inet_pton(AF_INET6, text, &in6->sin6_addr);
	return ss;
}

int world_listen(struct world *w, const char *text, u16 *port)
{
	struct sockaddr_storage ss = addr(text, *port);
	int err = iwcm_create_id(w->ctx[SERVER], NULL, &w->listener);

	if (!err)
		err = iwcm_set_options(w->listener, &w->options);
	if (!err)
		err = iwcm_bind(w->listener, (struct sockaddr *)&ss);
	if (!err)
		err = iwcm_local_addr(w->listener, &ss);
	*port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
	if (!err)
		err = iwcm_listen(w->listener, 4);
	return world_said("listen", err);
}

static bool resolved(void *arg)
{
	struct side *s = arg;

	return SEEN(s, RESOLVED) || world_ended(s);
}

int world_resolve(struct world *w, const char *text, u16 port)
{
	struct sockaddr_storage ss = addr(text, port);
	struct side *s = &w->s[CLIENT];
	int err;

	s->ctx = w->ctx[CLIENT];
	err = iwcm_create_id(s->ctx, NULL, &s->id);
	if (!err)
		err = iwcm_set_options(s->id, &w->options);
	if (!err)
		err = iwcm_resolve(s->id, NULL, (struct sockaddr *)&ss);
	if (err)
		return world_said("resolve", err);
	err = world_wait(w, resolved, s, "RESOLVED");
	return err ? err : SEEN(s, RESOLVED) ? 0 : failure(s, "RESOLVE_ERROR");
}

static bool requested(void *arg)
{
	struct world *w = arg;

	return w->s[SERVER].id || world_ended(&w->s[CLIENT]);
}

int world_connect(struct world *w, struct irdma_qp *qp)
{
	struct iwcm_conn_param p = { .private_data = "ping", .private_data_len = 4, .ird = 8, .ord = 8 };
	struct side *s = &w->s[CLIENT];
	int err = qp ? iwcm_set_qp(s->id, qp) : 0;

	if (!err)
		err = iwcm_connect(s->id, &p);
	if (err)
		return world_said("connect", err);
	s->asked = true;
	err = world_wait(w, requested, w, "CONNECT_REQUEST, or an error at the client");
	return err ? err : w->s[SERVER].id ? 0 : failure(s, "CONNECT_ERROR");
}

static bool connected_or_not(void *arg)
{
	struct world *w = arg;
	int i, up = 0;

	for (i = 0; i < SIDES; i++) {
		if (world_ended(&w->s[i]) || SEEN(&w->s[i], DISCONNECTED))
			return true;
		up += !!SEEN(&w->s[i], ESTABLISHED);
	}
	return up == SIDES;
}

int world_accept(struct world *w, struct irdma_qp *qp)
{
	struct iwcm_conn_param p = { .private_data = "pong", .private_data_len = 4, .ird = 8, .ord = 8 };
	struct side *s = &w->s[SERVER];
	int i, err = qp ? iwcm_set_qp(s->id, qp) : 0;

	if (!err)
		err = iwcm_accept(s->id, &p);
	if (err)
		return world_said("accept", err);
	s->asked = true;
	err = world_wait(w, connected_or_not, w, "ESTABLISHED, or an error at an end");
	for (i = 0; !err && i < SIDES; i++)
		if (world_ended(&w->s[i]) || SEEN(&w->s[i], DISCONNECTED))
			return failure(&w->s[i], "an end before ESTABLISHED");
	return err;
}

/* ---- the end ---- */

static bool has_ended(void *arg)
{
	return world_ended(arg);
}

static void destroy(struct side *s)
{
	iwcm_destroy_id(s->id);
	s->id = NULL;
}

/* If one end is over the other must hear of it; then the server goes, and the client must hear of that. */
int world_take_down(struct world *w)
{
	struct side *c = &w->s[CLIENT], *s = &w->s[SERVER];
	int err = 0, i, rc;

	if (c->asked && world_ended(c) && s->id)
		err = world_wait(w, has_ended, s, "the server hears of the client's end");
	destroy(s);
	iwcm_destroy_id(w->listener);
	w->listener = NULL;
	if (!err && c->asked)
		err = world_wait(w, has_ended, c, "the client hears of the server's end");
	destroy(c);
	for (i = 0; i < SIDES; i++) {
		rc = data_close(w, &w->s[i].data);
		err = err ? err : rc;
	}
	memset(w->s, 0, sizeof(w->s));
	return err;
}
