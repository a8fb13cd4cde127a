/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The command line of `uwarp` and the environment of the shim. The input: a byte that chooses the command, then words that end with NUL; those that are "UWARP_...=..."
 * go to the environment. Nothing is opened, looked up or run.
 *
 * Checked: what is accepted is in its range; the shim takes without complaint what `uwarp run` accepted.
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "tool/perf.h"

#define WORDS 24
#define NAME_MAX_LEN 64

static bool shim_complained;

/* The file that --private-file names, whichever that is. */
static FILE *some_file(const char *path, const char *mode)
{
	return fmemopen((void *)path, strlen(path) + 1, "r");
}

static int numeric_addrinfo(const char *host, const char *service, const struct addrinfo *want, struct addrinfo **list)
{
	struct addrinfo hints = *want;

	hints.ai_flags |= AI_NUMERICHOST;
	return getaddrinfo(host, service, &hints, list);
}

#define fopen some_file
#include "tool/pdata.c"
#undef fopen
#define getaddrinfo numeric_addrinfo
#include "tool/endpoint.c"
#undef getaddrinfo
#undef log_warn
#define log_warn(...) (shim_complained = true)
#include "shim/options.c"

void tool_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
}

/* ---- words ---- */

static const char *const variables[] = {
	SHIM_ENV_MPA_REVISION, SHIM_ENV_MODEL, SHIM_ENV_RTR, SHIM_ENV_CRC, SHIM_ENV_MARKERS, SHIM_ENV_IFACES, SHIM_ENV_LOG, SHIM_ENV_PCAP, SHIM_ENV_STATS,
};

static void clean_environment(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	log_set_level("error");
}

static bool to_environment(const char *word)
{
	const char *value = strchr(word, '=');
	char name[NAME_MAX_LEN];

	if (strncmp(word, "UWARP_", 6) || !value || (size_t)(value - word) >= sizeof(name))
		return false;
	memcpy(name, word, (size_t)(value - word));
	name[value - word] = '\0';
	setenv(name, value + 1, 1);
	return true;
}

/* Copies, each as long as it is, and NULL behind. */
static int read_words(struct fuzz *f, char **argv)
{
	int argc = 1;

	argv[0] = strdup("command");
	while (fuzz_more(f) && argc < WORDS) {
		char *word = strndup((const char *)f->p, f->left);
		size_t used = min(strlen(word) + 1, f->left);

		f->p += used;
		f->left -= used;
		if (to_environment(word))
			free(word);
		else
			argv[argc++] = word;
	}
	argv[argc] = NULL;
	return argc;
}

/* ---- what comes of them ---- */

static void check_options(const struct tool_options *o)
{
	assert(o->mpa.mpa_revision == 1 || o->mpa.mpa_revision == 2);
	assert(o->mpa.rtr && o->mpa.rtr <= IWCM_RTR_ALL && o->mpa.tos <= 255);
	assert(o->pdata.len <= sizeof(o->pdata.data) && o->backlog > 0 && o->parallel >= (o->command != TOOL_RUN && o->command != TOOL_STAT));
	assert(o->ird == IWCM_MAX || o->ird < MPA_V2_NOT_NEGOTIATED);
	assert(o->sim.nodes >= 2 && o->sim.loss >= 0 && o->sim.loss <= 100 && o->sim.gen >= 1 && o->sim.gen <= 2);
	assert(o->perf.num_sizes <= TOOL_PERF_SIZES && o->perf.depth <= PERF_DEPTH_MAX);
	assert(o->rate >= 0 && o->interval_s >= 0);
	assert(o->command != TOOL_RUN || o->program[0]);
}

static void check_endpoint(const struct tool_options *o)
{
	struct tool_endpoint ep = { .n = 0 };
	char buf[TOOL_ADDRSTR];
	size_t i;

	if (!o->where || tool_endpoint_parse(o->where, o->command == TOOL_LISTEN || o->perf.listen, o->family, &ep))
		return;
	assert(ep.n && ep.n <= ARRAY_SIZE(ep.addr));
	for (i = 0; i < ep.n; i++) {
		struct tool_endpoint again;

		assert(o->family == AF_UNSPEC || ep.addr[i].ss_family == o->family);
		if (tool_sockaddr_port(&ep.addr[i]))
			assert(!tool_endpoint_parse(tool_sockaddr_str(&ep.addr[i], buf), false, AF_UNSPEC, &again));
	}
}

static void check_shim(const struct tool_options *o)
{
	memset(&options, 0, sizeof(options));
	shim_complained = false;
	read_options();
	assert(!shim_complained || !o);
	assert(options.conn.mpa_revision == 1 || options.conn.mpa_revision == 2);
	assert(options.conn.rtr && options.conn.rtr <= IWCM_RTR_ALL);
	assert(memchr(options.ifaces, 0, sizeof(options.ifaces)) && memchr(options.pcap, 0, sizeof(options.pcap)));
}

static void parse(enum tool_command command, int argc, char **argv)
{
	static struct tool_options o;
	int ret = tool_options_parse(command, argc, argv, &o);

	assert(ret == 0 || ret == -1 || ret == TOOL_USAGE);
	if (!ret) {
		check_options(&o);
		check_endpoint(&o);
	}
	check_shim(!ret && command == TOOL_RUN ? &o : NULL);
	free(o.sim.only.item);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static FILE *nothing;
	FILE *out = stdout, *err = stderr, *in = stdin;
	struct fuzz f = { data, size };
	u8 command = fuzz_u8(&f);
	char *argv[WORDS + 1], *owned[WORDS];
	int argc, i;

	if (!nothing)
		nothing = fopen("/dev/null", "r+");
	clean_environment();
	argc = read_words(&f, argv);
	memcpy(owned, argv, (size_t)argc * sizeof(*argv)); /* getopt moves them */
	stdout = stderr = stdin = nothing;
	parse(command % TOOL_COMMANDS, argc, argv);
	stdout = out;
	stderr = err;
	stdin = in;
	for (i = 0; i < argc; i++)
		free(owned[i]);
	clean_environment();
	return 0;
}
