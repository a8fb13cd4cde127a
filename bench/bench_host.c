// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Connections per second on the host port over loopback, beside bare TCP connections that carry the same bytes in the same run.
 *
 * Both sides of both have one thread each for the client and for the server, and the same number of connections under way. A connection is: connect, request
 * (24 bytes), reply (24), RTR (20), close from the client's side, close from the server's. The rounds alternate, so that whatever else the machine does meets both.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "bare_tcp.h"
#include "iwcm/iwcm_nic.h"

#define WINDOW BARE_WINDOW
#define ROUNDS 5

static void must(int err, const char *what)
{
	if (err)
		die(what, -err);
}

/* ---- uwarp: two contexts, each with its NIC thread, in which the handlers run ---- */

struct uw {
	struct iwcm_ctx *ctx;
	struct sockaddr_in to;
	unsigned int left, failed;
	unsigned int done; /* atomic */
};

static struct uw client, server;

static void uw_start(struct uw *u)
{
	struct iwcm_id *id;

	u->left--;
	must(iwcm_create_id(u->ctx, NULL, &id), "id");
	must(iwcm_resolve(id, NULL, (struct sockaddr *)&u->to), "resolve");
}

static void client_handler(void *arg, const struct iwcm_event *ev)
{
	struct uw *u = arg;
	struct iwcm_conn_param param = { .ird = 1, .ord = 1 };

	switch (ev->type) {
	case IWCM_EVENT_RESOLVED:
		must(iwcm_connect(ev->id, &param), "connect");
		break;
	case IWCM_EVENT_ESTABLISHED:
		must(iwcm_disconnect(ev->id), "disconnect");
		break;
	case IWCM_EVENT_DISCONNECTED:
		break;
	default:
		if (ev->type != IWCM_EVENT_CLOSED) {
			u->failed++;
			fprintf(stderr, "bench_host: %s: %s (%s)\n", iwcm_event_str(ev->type), strerror(-ev->status), iwcm_cause_str(ev->info.cause));
		}
		iwcm_destroy_id(ev->id);
		if (u->left)
			uw_start(u);
		__atomic_add_fetch(&u->done, 1, __ATOMIC_RELEASE);
	}
}

static void server_handler(void *arg, const struct iwcm_event *ev)
{
	struct iwcm_conn_param param = { .ird = 1, .ord = 1 };

	(void)arg;
	if (ev->type == IWCM_EVENT_CONNECT_REQUEST) {
		if (iwcm_accept(ev->id, &param))
			iwcm_destroy_id(ev->id);
	} else if (ev->type == IWCM_EVENT_CLOSED) {
		iwcm_destroy_id(ev->id);
	}
}

static double uw_round(unsigned int count)
{
	struct timespec nap = { .tv_nsec = 200000 };
	double t = now_s();

	client.left = count;
	__atomic_store_n(&client.done, 0, __ATOMIC_RELEASE);
	for (unsigned int i = 0, n = count < WINDOW ? count : WINDOW; i < n; i++)
		uw_start(&client);
	while (__atomic_load_n(&client.done, __ATOMIC_ACQUIRE) < count)
		nanosleep(&nap, NULL);
	return count / (now_s() - t);
}

static void uw_up(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_storage got;
	struct iwcm_id *id;

	must(iwcm_open("lo", &server.ctx), "open");
	must(iwcm_open("lo", &client.ctx), "open");
	iwcm_set_handler(server.ctx, server_handler, NULL, &server);
	iwcm_set_handler(client.ctx, client_handler, NULL, &client);
	must(iwcm_create_id(server.ctx, NULL, &id), "id");
	must(iwcm_bind(id, (struct sockaddr *)&at), "bind");
	must(iwcm_listen(id, 1024), "listen");
	must(iwcm_local_addr(id, &got), "address");
	memcpy(&client.to, &got, sizeof(client.to));
}

int main(int argc, char **argv)
{
	unsigned int count = argc > 1 ? (unsigned int)atoi(argv[1]) : 4000;
	double bare[ROUNDS], uw[ROUNDS], ratio[ROUNDS];

	uw_up();
	for (int i = 0; i < ROUNDS; i++) {
		bare[i] = bare_round(count);
		uw[i] = uw_round(count);
		ratio[i] = uw[i] / bare[i];
	}
	printf("host port, loopback: %.0f connections/s, bare TCP %.0f/s; ratio %.2f (medians of %d rounds of %u, %d under way, %u failed)\n",
	       median(uw, ROUNDS), median(bare, ROUNDS), median(ratio, ROUNDS), ROUNDS, count, WINDOW, client.failed);
	iwcm_close(client.ctx);
	iwcm_close(server.ctx);
	return client.failed != 0;
}
