// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * bench: connections per second through librdmacm, beside bare TCP connections in the same run. To be run under `uwarp run`.
 *
 * Both sides of both have one thread each, and BARE_WINDOW connections under way. A connection is: id, address, route, QP, connect, accept,
 * established, disconnect, everything destroyed. The rounds alternate.
 */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include "bare_tcp.h"

#define ROUNDS 5
#define TIMEOUT_MS 5000

struct side {
	struct rdma_event_channel *ch;
	struct sockaddr_in to;
	unsigned int left, over, count, failed;
};

static void must(int rc, const char *what)
{
	if (rc)
		die(what, rc < 0 ? errno : rc);
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 }, .qp_type = IBV_QPT_RC };

	must(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

static void start(struct side *s)
{
	struct rdma_cm_id *id;

	s->left--;
	must(rdma_create_id(s->ch, &id, s, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_resolve_addr(id, NULL, (struct sockaddr *)&s->to, TIMEOUT_MS), "rdma_resolve_addr");
}

static void end(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	must(rdma_destroy_id(id), "rdma_destroy_id");
}

static void client_over(struct side *s, struct rdma_cm_id *id)
{
	end(id);
	s->over++;
	if (s->left)
		start(s);
}

/* True: this was its last event. */
static int on_event(struct side *s, struct rdma_cm_id *id, enum rdma_cm_event_type type, int status)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7 };

	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		must(rdma_resolve_route(id, TIMEOUT_MS), "rdma_resolve_route");
		return 0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		make_qp(id);
		must(rdma_connect(id, &param), "rdma_connect");
		return 0;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		make_qp(id);
		must(rdma_accept(id, &param), "rdma_accept");
		return 0;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (s->left || s->count) /* the client's side */
			must(rdma_disconnect(id), "rdma_disconnect");
		return 0;
	case RDMA_CM_EVENT_DISCONNECTED:
		return 1;
	default:
		fprintf(stderr, "rdmacm_rate: %s, status %d\n", rdma_event_str(type), status);
		s->failed++;
		return 1;
	}
}

static void next(struct side *s)
{
	struct rdma_cm_event *ev;
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	int status;

	must(rdma_get_cm_event(s->ch, &ev), "rdma_get_cm_event");
	id = ev->id;
	type = ev->event;
	status = ev->status;
	must(rdma_ack_cm_event(ev), "rdma_ack_cm_event");
	if (!on_event(s, id, type, status))
		return;
	if (s->count)
		client_over(s, id);
	else
		end(id);
}

static void *server_run(void *arg)
{
	for (;;)
		next(arg);
	return NULL;
}

static double round_of(struct side *s, unsigned int count)
{
	double t = now_s();

	s->left = s->count = count;
	s->over = 0;
	for (int i = 0; i < BARE_WINDOW && s->left; i++)
		start(s);
	while (s->over < count)
		next(s);
	return count / (now_s() - t);
}

static void listen_on_loopback(struct side *server, struct sockaddr_in *at)
{
	struct rdma_cm_id *id;

	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	server->ch = rdma_create_event_channel();
	if (!server->ch)
		die("rdma_create_event_channel", errno);
	must(rdma_create_id(server->ch, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_bind_addr(id, (struct sockaddr *)at), "rdma_bind_addr");
	must(rdma_listen(id, 1024), "rdma_listen");
	at->sin_port = rdma_get_src_port(id);
}

int main(int argc, char **argv)
{
	unsigned int count = argc > 1 ? (unsigned int)atoi(argv[1]) : 2000;
	double bare[ROUNDS], rdma[ROUNDS], ratio[ROUNDS];
	static struct side server, client;
	pthread_t th;

	listen_on_loopback(&server, &client.to);
	client.ch = rdma_create_event_channel();
	if (!client.ch)
		die("rdma_create_event_channel", errno);
	must(pthread_create(&th, NULL, server_run, &server), "pthread_create");
	for (int i = 0; i < ROUNDS; i++) {
		bare[i] = bare_round(count);
		rdma[i] = round_of(&client, count);
		ratio[i] = rdma[i] / bare[i];
	}
	printf("librdmacm, loopback: %.0f connections/s, bare TCP %.0f/s; ratio %.2f (medians of %d rounds of %u, %d under way, %u failed)\n",
	       median(rdma, ROUNDS), median(bare, ROUNDS), median(ratio, ROUNDS), ROUNDS, count, BARE_WINDOW, client.failed);
	return client.failed != 0;
}
