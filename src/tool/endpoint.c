// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: HOST:PORT and back. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "tool/tool.h"

#define HOST_MAX 256

struct parts {
	char host[HOST_MAX]; /* empty: none given */
	const char *port;
};

static bool split_brackets(const char *text, struct parts *p)
{
	const char *end = strchr(text, ']');
	size_t len = end ? (size_t)(end - text - 1) : 0;

	if (!end || end[1] != ':' || !len || len >= sizeof(p->host))
		return false;
	memcpy(p->host, text + 1, len);
	p->host[len] = '\0';
	p->port = end + 2;
	return true;
}

/* More than one colon outside of brackets: where does the address end? */
static bool split(const char *text, struct parts *p)
{
	const char *colon = strchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;

	if (*text == '[')
		return split_brackets(text, p);
	if (!colon || strchr(colon + 1, ':') || len >= sizeof(p->host))
		return false;
	memcpy(p->host, text, len);
	p->host[len] = '\0';
	if (!strcmp(p->host, "*"))
		p->host[0] = '\0';
	p->port = colon + 1;
	return true;
}

static bool parse_port(const char *s, bool passive, u16 *port)
{
	char *end;
	unsigned long n = strtoul(s, &end, 10);

	if (*s < '0' || *s > '9' || *end || n > UINT16_MAX || (!n && !passive))
		return false;
	*port = (u16)n;
	return true;
}

static void add(struct tool_endpoint *out, const struct sockaddr *sa, size_t len, u16 port)
{
	struct sockaddr_storage ss = { 0 };
	size_t i;

	memcpy(&ss, sa, len);
	tool_sockaddr_set_port(&ss, port);
	for (i = 0; i < out->n; i++)
		if (!memcmp(&out->addr[i], &ss, sizeof(ss)))
			return;
	if (out->n < ARRAY_SIZE(out->addr))
		out->addr[out->n++] = ss;
}

static void add_wildcards(struct tool_endpoint *out, int family, u16 port)
{
	const struct sockaddr_in any4 = { .sin_family = AF_INET };
	const struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };

	if (family != AF_INET6)
		add(out, (const struct sockaddr *)&any4, sizeof(any4), port);
	if (family != AF_INET)
		add(out, (const struct sockaddr *)&any6, sizeof(any6), port);
}

/* RFC 6761 6.3: both loopback addresses, whatever /etc/hosts has. */
static void add_loopbacks(struct tool_endpoint *out, int family, u16 port)
{
	const struct sockaddr_in lo4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct sockaddr_in6 lo6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	if (family != AF_INET6)
		add(out, (const struct sockaddr *)&lo4, sizeof(lo4), port);
	if (family != AF_INET)
		add(out, (const struct sockaddr *)&lo6, sizeof(lo6), port);
}

static int resolve(const char *host, int family, u16 port, struct tool_endpoint *out)
{
	const struct addrinfo want = { .ai_family = family, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list, *a;
	int err = getaddrinfo(host, NULL, &want, &list);

	if (err) {
		tool_error("%s: %s", host, gai_strerror(err));
		return TOOL_LOCAL;
	}
	for (a = list; a; a = a->ai_next)
		if (a->ai_family == AF_INET || a->ai_family == AF_INET6)
			add(out, a->ai_addr, a->ai_addrlen, port);
	freeaddrinfo(list);
	if (out->n)
		return 0;
	tool_error("%s: no IPv4 or IPv6 address", host);
	return TOOL_LOCAL;
}

/**
 * tool_endpoint_parse() - addresses from HOST:PORT
 * @text: what was written
 * @passive: to listen: an empty host is the wildcard, port 0 is one
 * @family: AF_UNSPEC, AF_INET or AF_INET6
 * @out: the addresses
 *
 * Return: 0; %TOOL_USAGE or %TOOL_LOCAL (the name is not found) after a message.
 */
int tool_endpoint_parse(const char *text, bool passive, int family, struct tool_endpoint *out)
{
	struct parts p;
	u16 port;

	out->n = 0;
	if (!split(text, &p)) {
		tool_error("%s: not %s (an IPv6 address stands in brackets)", text, passive ? "[ADDR]:PORT" : "HOST:PORT");
		return TOOL_USAGE;
	}
	if (!parse_port(p.port, passive, &port)) {
		tool_error("%s: \"%s\" is not a port number", text, p.port);
		return TOOL_USAGE;
	}
	if (passive && !strcasecmp(p.host, "localhost")) {
		add_loopbacks(out, family, port);
		return 0;
	}
	if (*p.host)
		return resolve(p.host, family, port, out);
	if (!passive) {
		tool_error("%s: connect to which host?", text);
		return TOOL_USAGE;
	}
	add_wildcards(out, family, port);
	return 0;
}

/**
 * tool_sockaddr_str() - an address and port in words
 * @ss: IPv4 or IPv6
 * @buf: where to
 *
 * Return: @buf.
 */
char *tool_sockaddr_str(const struct sockaddr_storage *ss, char buf[TOOL_ADDRSTR])
{
	socklen_t len = ss->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	char host[TOOL_ADDRSTR - 12], port[8];

	if (getnameinfo((const struct sockaddr *)ss, len, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(buf, TOOL_ADDRSTR, "?");
	else if (ss->ss_family == AF_INET6)
		snprintf(buf, TOOL_ADDRSTR, "[%s]:%s", host, port);
	else
		snprintf(buf, TOOL_ADDRSTR, "%s:%s", host, port);
	return buf;
}

/**
 * tool_sockaddr_port() - port number of an address
 * @ss: IPv4 or IPv6
 *
 * Return: the number, in host order.
 */
u16 tool_sockaddr_port(const struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)ss)->sin6_port);
	return ntohs(((const struct sockaddr_in *)ss)->sin_port);
}

/**
 * tool_sockaddr_set_port() - change the port number
 * @ss: IPv4 or IPv6
 * @port: the number, in host order
 */
void tool_sockaddr_set_port(struct sockaddr_storage *ss, u16 port)
{
	if (ss->ss_family == AF_INET6)
		((struct sockaddr_in6 *)ss)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)ss)->sin_port = htons(port);
}
