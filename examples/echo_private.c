// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A connection with libuwarp: the server answers with the private data that the client sent; both print what was agreed.
 *
 *   echo_private PORT                     serve one connection on every address
 *   echo_private ADDRESS PORT [TEXT]      connect, and disconnect
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uwarp/iwcm.h>

static struct iwcm_ctx *ctx;

static void check(const char *what, int err)
{
	if (!err)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-err));
	exit(1);
}

/* The next event; it has to be of this type. */
static void expect(enum iwcm_event_type type, struct iwcm_event *ev)
{
	check("iwcm_get_event", iwcm_get_event(ctx, ev, 30000));
	printf("%s\n", iwcm_event_str(ev->type));
	if (ev->type == type)
		return;
	fprintf(stderr, "%s expected: %s, %s\n", iwcm_event_str(type), strerror(-ev->status), iwcm_cause_str(ev->info.cause));
	exit(1);
}

static void show(const struct iwcm_event *ev)
{
	const struct iwcm_info *i = &ev->info;

	printf("  private data \"%.*s\"\n", (int)ev->private_data_len, (const char *)ev->private_data);
	printf("  MPA revision %u, %s, CRC %s, IRD %u, ORD %u, MSS %u\n", i->mpa_revision,
	       i->peer_to_peer ? "peer-to-peer" : "client-server", i->crc ? "on" : "off", i->ird, i->ord, i->mss);
}

static void serve(const struct sockaddr *addr)
{
	struct iwcm_conn_param param = { .ird = IWCM_MAX, .ord = IWCM_MAX };
	struct iwcm_id *listener;
	struct iwcm_event ev, up;

	check("iwcm_create_id", iwcm_create_id(ctx, NULL, &listener));
	check("iwcm_bind", iwcm_bind(listener, addr));
	check("iwcm_listen", iwcm_listen(listener, 1));
	expect(IWCM_EVENT_CONNECT_REQUEST, &ev);
	show(&ev);
	param.private_data = ev.private_data;
	param.private_data_len = ev.private_data_len;
	check("iwcm_accept", iwcm_accept(ev.id, &param));
	expect(IWCM_EVENT_ESTABLISHED, &up);
	expect(IWCM_EVENT_DISCONNECTED, &up);
	expect(IWCM_EVENT_CLOSED, &up);
	iwcm_destroy_id(ev.id);
	iwcm_destroy_id(listener);
}

static void connect_to(const struct sockaddr *addr, const char *text)
{
	struct iwcm_conn_param param = { .private_data = text, .private_data_len = strlen(text), .ird = 8, .ord = 8 };
	struct iwcm_event ev;
	struct iwcm_id *id;

	check("iwcm_create_id", iwcm_create_id(ctx, NULL, &id));
	check("iwcm_resolve", iwcm_resolve(id, NULL, addr));
	expect(IWCM_EVENT_RESOLVED, &ev);
	check("iwcm_connect", iwcm_connect(id, &param));
	expect(IWCM_EVENT_ESTABLISHED, &ev);
	show(&ev);
	check("iwcm_disconnect", iwcm_disconnect(id));
	expect(IWCM_EVENT_DISCONNECTED, &ev);
	expect(IWCM_EVENT_CLOSED, &ev);
	iwcm_destroy_id(id);
}

/* getaddrinfo() takes 99999 for a port, and makes it another one. */
static int is_port(const char *s)
{
	char *end;
	long n = strtol(s, &end, 10);

	return end != s && !*end && n > 0 && n <= 65535;
}

int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_family = argc == 2 ? AF_INET : AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *ai;

	if (argc < 2 || argc > 4 || !is_port(argv[argc == 2 ? 1 : 2]) || getaddrinfo(argc == 2 ? NULL : argv[1], argv[argc == 2 ? 1 : 2], &hints, &ai)) {
		fprintf(stderr, "usage: %s PORT | ADDRESS PORT [TEXT]\n", argv[0]);
		return 64;
	}
	check("iwcm_open", iwcm_open(NULL, &ctx));
	if (argc == 2)
		serve(ai->ai_addr);
	else
		connect_to(ai->ai_addr, argc == 4 ? argv[3] : "hello");
	freeaddrinfo(ai);
	iwcm_close(ctx);
	return 0;
}
