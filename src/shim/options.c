// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: the options from the environment; the log level excepted, which base/log.c takes. `uwarp run` has checked them already; who sets
 * one by hand and wrongly gets the default and a warning.
 */
#include <stdlib.h>
#include <string.h>
#include "shim/options.h"
#include "shim/shim_internal.h"

static void bad(const char *name, const char *value, const char *wanted)
{
	log_warn("shim", "%s=%s is not %s: the default is used", name, value, wanted);
}

/* NULL: not set. */
static const char *get(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static void get_bool(const char *name, bool *out)
{
	const char *value = get(name);

	if (!value)
		return;
	if (!strcmp(value, "0") || !strcmp(value, "1"))
		*out = *value == '1';
	else
		bad(name, value, "0 or 1");
}

static void get_revision(unsigned int *out)
{
	const char *value = get(SHIM_ENV_MPA_REVISION);

	if (!value)
		return;
	if (!strcmp(value, "1") || !strcmp(value, "2"))
		*out = (unsigned int)(*value - '0');
	else
		bad(SHIM_ENV_MPA_REVISION, value, "1 or 2");
}

static void get_model(bool *peer_to_peer)
{
	const char *value = get(SHIM_ENV_MODEL);

	if (!value)
		return;
	if (!strcmp(value, "p2p"))
		*peer_to_peer = true;
	else if (!strcmp(value, "client-server") || !strcmp(value, "cs"))
		*peer_to_peer = false;
	else
		bad(SHIM_ENV_MODEL, value, "p2p or client-server");
}

/* The kind that @len bytes at @word name, 0: none. */
static unsigned int rtr_kind(const char *word, size_t len)
{
	static const struct { const char *name; unsigned int mask; } kinds[] = {
		{ "send", IWCM_RTR_SEND }, { "write", IWCM_RTR_WRITE }, { "read", IWCM_RTR_READ }, { "all", IWCM_RTR_ALL },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strlen(kinds[i].name) == len && !memcmp(kinds[i].name, word, len))
			return kinds[i].mask;
	return 0;
}

static void get_rtr(unsigned int *out)
{
	const char *value = get(SHIM_ENV_RTR), *word = value;
	unsigned int mask = 0, kind;
	size_t len;

	while (word) {
		len = strcspn(word, ",");
		kind = rtr_kind(word, len);
		if (!kind) {
			bad(SHIM_ENV_RTR, value, "a list of send, write and read");
			return;
		}
		mask |= kind;
		word = word[len] ? word + len + 1 : NULL;
	}
	if (mask)
		*out = mask;
}

static void get_text(const char *name, char *out, size_t size)
{
	const char *value = get(name);

	if (!value)
		return;
	if (strlen(value) < size)
		memcpy(out, value, strlen(value) + 1);
	else
		bad(name, value, "short enough");
}

static struct shim_options options;

static void read_options(void)
{
	iwcm_options_init(&options.conn);
	get_revision(&options.conn.mpa_revision);
	get_model(&options.conn.peer_to_peer);
	get_rtr(&options.conn.rtr);
	get_bool(SHIM_ENV_CRC, &options.conn.crc);
	get_bool(SHIM_ENV_MARKERS, &options.conn.markers);
	get_bool(SHIM_ENV_RESPONDER_WAITS, &options.responder_waits);
	get_text(SHIM_ENV_IFACES, options.ifaces, sizeof(options.ifaces));
	get_text(SHIM_ENV_PCAP, options.pcap, sizeof(options.pcap));
	get_bool(SHIM_ENV_STATS, &options.stats);
}

const struct shim_options *shim_options(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_options);
	return &options;
}
