// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: `uwarp devices`. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tool/json.h"
#include "tool/tool.h"

#define MACSTR 18

static const char *mac_str(const u8 mac[6], char buf[MACSTR])
{
	snprintf(buf, MACSTR, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
	return buf;
}

static const char *addr_str(const struct sockaddr_storage *ss, char buf[TOOL_ADDRSTR])
{
	socklen_t len = ss->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	if (getnameinfo((const struct sockaddr *)ss, len, buf, TOOL_ADDRSTR, NULL, 0, NI_NUMERICHOST))
		snprintf(buf, TOOL_ADDRSTR, "?");
	return buf;
}

static size_t addrs(const struct iwcm_device *d)
{
	return min((size_t)d->num_addrs, ARRAY_SIZE(d->addr));
}

static void print_json(const struct iwcm_device *d)
{
	char buf[TOOL_ADDRSTR], mac[MACSTR];
	struct tool_json j;
	size_t i;

	tool_json_begin(&j, stdout);
	tool_json_str(&j, "device", d->name);
	tool_json_str(&j, "interface", d->iface);
	tool_json_str(&j, "state", d->up ? "up" : "down");
	tool_json_str(&j, "mac", mac_str(d->mac, mac));
	tool_json_u64(&j, "mtu", d->mtu);
	tool_json_array(&j, "addresses");
	for (i = 0; i < addrs(d); i++)
		tool_json_str(&j, NULL, addr_str(&d->addr[i], buf));
	tool_json_array_end(&j);
	tool_json_u64(&j, "num_addresses", d->num_addrs);
	tool_json_end(&j);
}

static void print_row(const struct iwcm_device *d)
{
	char buf[TOOL_ADDRSTR], mac[MACSTR];
	size_t i;

	printf("%-20s %-14s %-5s %-17s %6u  %s\n", d->name, d->iface, d->up ? "up" : "down", mac_str(d->mac, mac), d->mtu,
	       addrs(d) ? addr_str(&d->addr[0], buf) : "-");
	for (i = 1; i < addrs(d); i++)
		printf("%67s%s\n", "", addr_str(&d->addr[i], buf));
	if (d->num_addrs > addrs(d))
		printf("%67sand %zu more\n", "", d->num_addrs - addrs(d));
}

static int list(struct iwcm_ctx *ctx, bool json)
{
	size_t n = iwcm_devices(ctx, NULL, 0), got, i;
	struct iwcm_device *d = calloc(n + 1, sizeof(*d));

	if (!d) {
		tool_error("%s", strerror(ENOMEM));
		return TOOL_LOCAL;
	}
	got = min(iwcm_devices(ctx, d, n), n);
	if (!json)
		printf("%-20s %-14s %-5s %-17s %6s  %s\n", "device", "interface", "state", "MAC", "MTU", "addresses");
	for (i = 0; i < got; i++)
		if (json)
			print_json(&d[i]);
		else
			print_row(&d[i]);
	free(d);
	return TOOL_OK;
}

int tool_devices(const struct tool_options *o)
{
	struct iwcm_ctx *ctx;
	int err = iwcm_open(NULL, &ctx), ret;

	if (err) {
		tool_error("the NICs cannot be opened: %s", strerror(-err));
		return TOOL_LOCAL;
	}
	ret = list(ctx, o->json);
	iwcm_close(ctx);
	return ret;
}
