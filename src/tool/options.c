// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: the command line. One table says which option each command has, and what --help says about it. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shim/options.h"
#include "tool/perf.h"
#include "tool/sim_list.h"
#include "tool/tool.h"

#define C BIT(TOOL_CONNECT)
#define L BIT(TOOL_LISTEN)
#define D BIT(TOOL_DEVICES)
#define S BIT(TOOL_SIM)
#define R BIT(TOOL_RUN)
#define T BIT(TOOL_STAT)
#define G BIT(TOOL_PING)
#define P BIT(TOOL_PERF)

#define TIME_MAX_S 1e7
#define REJECT_PDATA_MAX 255u

enum key {
	KEY_MPA_REV = 256, KEY_MODEL, KEY_RTR, KEY_IRD, KEY_ORD, KEY_CRC, KEY_NO_CRC, KEY_MARKERS, KEY_NO_FALLBACK, KEY_PRIVATE,
	KEY_PRIVATE_HEX, KEY_PRIVATE_FILE, KEY_REJECT, KEY_REJECT_PERCENT, KEY_COUNT, KEY_RATE, KEY_PARALLEL, KEY_TIMEOUT, KEY_HOLD,
	KEY_TOS, KEY_BIND, KEY_BACKLOG, KEY_JSON, KEY_PCAP, KEY_NODES, KEY_CONNECTIONS, KEY_LOSS, KEY_REORDER, KEY_DUPLICATE,
	KEY_CORRUPT, KEY_DESTROY, KEY_DATA, KEY_LARGEST, KEY_LATENCY, KEY_SEED, KEY_DURATION, KEY_GEN, KEY_IPV6,
	KEY_LATE, KEY_FLAP, KEY_VANISH, KEY_RESTART, KEY_ATTACK, KEY_ON_PATH, KEY_ONLY, KEY_PARANOID, KEY_MINIMISE,
	KEY_LISTEN, KEY_VERB, KEY_TEST, KEY_SIZE, KEY_DEPTH,
	KEY_IFACES, KEY_LOG, KEY_STATS, KEY_INTERVAL, KEY_RESPONDER_WAITS,
};

static const struct row {
	u32 commands;
	const char *name;
	int key;
	const char *arg; /* NULL: takes none */
	const char *help;
	const char *env, *value; /* run: the variable that hands it on; its value if it takes no argument */
} rows[] = {
	{ C | L | G | P, "mpa-rev", KEY_MPA_REV, "1|2", "MPA revision to ask for, or the highest to answer (2)" },
	{ C | L | G | P, "model", KEY_MODEL, "cs|p2p", "client-server or peer-to-peer connection model (p2p)" },
	{ C | L | G | P, "rtr", KEY_RTR, "LIST", "RTR messages offered or taken: send,write,read (all)" },
	{ C | L | G | P, "ird", KEY_IRD, "N", "inbound RDMA Read depth (what the NIC can)" },
	{ C | L | G | P, "ord", KEY_ORD, "N", "outbound RDMA Read depth (what the NIC can)" },
	{ C | L | G | P, "crc", KEY_CRC, NULL, "ask for CRCs (default)" },
	{ C | L | G | P, "no-crc", KEY_NO_CRC, NULL, "do without, if the peer does too" },
	{ C | L | G | P, "markers", KEY_MARKERS, NULL, "ask the peer to send markers" },
	{ C, "no-fallback", KEY_NO_FALLBACK, NULL, "no second try with revision 1 when the peer closes" },
	{ C | L, "private", KEY_PRIVATE, "TEXT", "private data to send" },
	{ C | L, "private-hex", KEY_PRIVATE_HEX, "HEX", "the same, as hexadecimal digits" },
	{ C | L, "private-file", KEY_PRIVATE_FILE, "FILE", "the same, from a file (-: standard input)" },
	{ L, "reject", KEY_REJECT, NULL, "reject every request, with the private data" },
	{ C, "count", KEY_COUNT, "N", "set up N connections (1)" },
	{ L, "count", KEY_COUNT, "N", "end after N requests (0: never)" },
	{ G, "count", KEY_COUNT, "N", "end after N round trips (until interrupted)" },
	{ P, "count", KEY_COUNT, "N", "messages or round trips of each test (by their size)" },
	{ G | P, "listen", KEY_LISTEN, NULL, "be the other side, at [ADDR]:PORT: of ping and perf alike" },
	{ P, "verb", KEY_VERB, "LIST", "send,write,read (all)" },
	{ G, "verb", KEY_VERB, "send|read", "a Send and one back, or a Read (send)" },
	{ P, "test", KEY_TEST, "LIST", "latency,bandwidth (all)" },
	{ P, "size", KEY_SIZE, "LIST", "bytes of a message, such as 64,4096" },
	{ G, "size", KEY_SIZE, "N", "bytes of a message (64)" },
	{ P, "depth", KEY_DEPTH, "N", "messages under way in a bandwidth test (64)" },
	{ G, "interval", KEY_INTERVAL, "SEC", "time from one to the next (1)" },
	{ C, "rate", KEY_RATE, "N", "start N connections per second" },
	{ C, "parallel", KEY_PARALLEL, "N", "at most N connections at a time (1; with --rate 128)" },
	{ C | L, "timeout", KEY_TIMEOUT, "SEC", "give everything up after this time" },
	{ C, "hold", KEY_HOLD, "SEC", "keep each connection up this long (0; after an RTR 0.2)" },
	{ L, "hold", KEY_HOLD, "SEC", "disconnect after this time (when the peer does)" },
	{ C | L | G | P, "tos", KEY_TOS, "N", "type of service or traffic class (0)" },
	{ C, "bind", KEY_BIND, "ADDR[:PORT]", "local address, and port" },
	{ L | G | P, "backlog", KEY_BACKLOG, "N", "connections that may wait (128)" },
	{ C | L | G | P, "ipv4", '4', NULL, "IPv4 only" },
	{ C | L | G | P, "ipv6", '6', NULL, "IPv6 only" },
	{ S, "nodes", KEY_NODES, "N", "hosts on the wire (8)" },
	{ S, "connections", KEY_CONNECTIONS, "N", "connections to start (1000)" },
	{ S, "loss", KEY_LOSS, "PERCENT", "frames lost" },
	{ S, "reorder", KEY_REORDER, "PERCENT", "frames held back and overtaken" },
	{ S, "duplicate", KEY_DUPLICATE, "PERCENT", "frames that arrive twice" },
	{ S, "corrupt", KEY_CORRUPT, "PERCENT", "frames damaged on the way" },
	{ S, "latency", KEY_LATENCY, "MS", "one-way delay (0.05)" },
	{ S, "reject", KEY_REJECT_PERCENT, "PERCENT", "requests that are rejected (10)" },
	{ S, "late", KEY_LATE, "PERCENT", "requests answered late, perhaps too late (1)" },
	{ S, "destroy", KEY_DESTROY, "PERCENT", "sides given up at a random moment (5)" },
	{ S, "flap", KEY_FLAP, "PERCENT", "connections with a host whose interface or address goes and comes (0.1)" },
	{ S, "vanish", KEY_VANISH, "PERCENT", "connections with a host that falls silent, perhaps for good (0.05)" },
	{ S, "restart", KEY_RESTART, "PERCENT", "connections with a host that stops listening for a while (0.05)" },
	{ S, "attack", KEY_ATTACK, "PERCENT", "connections attacked by those who guess sequence numbers (5)" },
	{ S, "on-path", KEY_ON_PATH, "PERCENT", "connections attacked by those who know them (1)" },
	{ S, "data", KEY_DATA, "PERCENT", "connections that move data (50)" },
	{ S, "largest", KEY_LARGEST, "BYTES", "largest message (262144)" },
	{ S, "seed", KEY_SEED, "N", "all chance comes from this (1)" },
	{ S, "duration", KEY_DURATION, "SEC", "start nothing after this much virtual time" },
	{ S, "gen", KEY_GEN, "1|2", "NIC generation: whole frames or address handles (2)" },
	{ S, "ipv6", KEY_IPV6, NULL, "IPv6 only (both)" },
	{ S, "paranoid", KEY_PARANOID, NULL, "recount the books of a NIC after each event (now and then)" },
	{ S, "only", KEY_ONLY, "LIST", "leave out all connections but these: 3,17-20" },
	{ S, "minimise", KEY_MINIMISE, "SEC", "time to make a run that fails smaller (60; 0: do not)" },
	{ C | L | S, "pcap", KEY_PCAP, "FILE", "write the frames to a capture file (-: standard output)" },
	{ C | L | G | P | D | S, "json", KEY_JSON, NULL, "one JSON object per line" },
	{ C | L, "verbose", 'v', NULL, "show every frame" },
	{ C | L | G | P, "quiet", 'q', NULL, "print errors only" },
	{ C | L | G | P | D | S, "help", 'h', NULL, "print this" },
	{ R, "mpa-rev", KEY_MPA_REV, "1|2", "MPA revision to ask for, or the highest to answer (2)", SHIM_ENV_MPA_REVISION },
	{ R, "model", KEY_MODEL, "cs|p2p", "client-server or peer-to-peer connection model (p2p)", SHIM_ENV_MODEL },
	{ R, "rtr", KEY_RTR, "LIST", "RTR messages offered or taken: send,write,read (all)", SHIM_ENV_RTR },
	{ R, "crc", KEY_CRC, NULL, "ask for CRCs (default)", SHIM_ENV_CRC, "1" },
	{ R, "no-crc", KEY_NO_CRC, NULL, "do without, if the peer does too", SHIM_ENV_CRC, "0" },
	{ R, "markers", KEY_MARKERS, NULL, "ask the peer to send markers", SHIM_ENV_MARKERS, "1" },
	{ R, "responder-waits", KEY_RESPONDER_WAITS, NULL, "client-server: never speak before the initiator (100 ms)", SHIM_ENV_RESPONDER_WAITS, "1" },
	{ R, "ifaces", KEY_IFACES, "LIST", "interfaces that become devices: eth0,lo (all)", SHIM_ENV_IFACES },
	{ R, "log", KEY_LOG, "LEVEL", "error, warn, info or debug, to standard error (warn)", SHIM_ENV_LOG },
	{ R, "pcap", KEY_PCAP, "FILE", "write what goes over the connections to a capture file", SHIM_ENV_PCAP },
	{ R, "stats", KEY_STATS, NULL, "print statistics to standard error at the end", SHIM_ENV_STATS, "1" },
	{ T, "interval", KEY_INTERVAL, "SEC", "print again after this time, until the program ends" },
	{ T, "json", KEY_JSON, NULL, "one JSON object per line" },
	{ R | T, "help", 'h', NULL, "print this" },
};

static const struct {
	const char *usage, *about;
} texts[TOOL_COMMANDS] = {
	[TOOL_CONNECT] = { "uwarp connect [OPTION]... HOST:PORT", "Set up an iWARP connection, show what happens on it, and end it." },
	[TOOL_LISTEN] = { "uwarp listen [OPTION]... [ADDR]:PORT", "Accept iWARP connections, or reject them, and show what happens on each." },
	[TOOL_PING] = { "uwarp ping [OPTION]... HOST:PORT", "Send small messages over one connection and show the time of each round trip." },
	[TOOL_PERF] = { "uwarp perf [OPTION]... HOST:PORT", "Measure latency and bandwidth of Send, RDMA Write and RDMA Read." },
	[TOOL_DEVICES] = { "uwarp devices [OPTION]...", "List the NICs: one per network interface." },
	[TOOL_SIM] = { "uwarp sim [OPTION]...", "Simulate hosts on a faulty wire that connect, talk and disconnect, and check the outcome." },
	[TOOL_RUN] = { "uwarp run [OPTION]... [--] PROGRAM [ARG]...", "Run an RDMA program, unmodified, with a NIC for each network interface." },
	[TOOL_STAT] = { "uwarp stat [OPTION]... [PID]", "List the programs that run over uwarp, or show what one of them has done so far." },
};

/**
 * tool_help() - what --help prints
 * @command: about which command
 * @f: where to
 */
void tool_help(enum tool_command command, FILE *f)
{
	const struct row *r;
	char left[40];

	fprintf(f, "usage: %s\n%s\n\n", texts[command].usage, texts[command].about);
	for (r = rows; r < rows + ARRAY_SIZE(rows); r++) {
		if (!(r->commands & BIT(command)))
			continue;
		if (r->key < 256)
			snprintf(left, sizeof(left), "-%c, --%s", r->key, r->name);
		else
			snprintf(left, sizeof(left), "    --%s%s%s", r->name, r->arg ? " " : "", r->arg ? r->arg : "");
		fprintf(f, "  %-26s %s\n", left, r->help);
	}
	if (command == TOOL_CONNECT || command == TOOL_LISTEN)
		fputs("\nexit status: 0 established, 1 rejected, 2 refused, 3 timed out, 4 protocol error,\n"
		      "5 unreachable or a failure on this side, 64 wrong usage\n", f);
	else if (command == TOOL_SIM)
		fputs("\nexit status: 0 if every check held, 4 if one did not, 64 wrong usage\n", f);
	else if (command == TOOL_RUN)
		fputs("\nexit status: the program's; 5 uwarp cannot run it, 64 wrong usage, 126 not executable, 127 not found\n", f);
}

/* ---- values ---- */

static char range[64]; /* " (LOW to HIGH)" of the number that was not right, for the complaint; "" if it was something else */

static bool u64_from(const char *s, u64 low, u64 high, u64 *out)
{
	char *end;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	*out = strtoull(s, &end, 0);
	return !*end && !errno && *out >= low && *out <= high;
}

static bool parse_u64(const char *s, u64 low, u64 high, u64 *out)
{
	bool good = u64_from(s, low, high, out);

	if (!good)
		snprintf(range, sizeof(range), " (%llu to %llu)", (unsigned long long)low, (unsigned long long)high);
	return good;
}

static bool parse_u32(const char *s, u32 low, u32 high, u32 *out)
{
	u64 v;

	if (!parse_u64(s, low, high, &v))
		return false;
	*out = (u32)v;
	return true;
}

static bool parse_double(const char *s, double low, double high, double *out)
{
	char *end;

	*out = strtod(s, &end);
	if (end != s && !*end && isfinite(*out) && *out >= low && *out <= high)
		return true;
	snprintf(range, sizeof(range), " (%.10g to %.10g)", low, high);
	return false;
}

/* Bit of one of the names in front of a comma or the end, 0 if it is none of them. */
static unsigned int rtr_bit(const char *s, size_t len)
{
	static const struct {
		const char *name;
		unsigned int bit;
	} kinds[] = { { "send", IWCM_RTR_SEND }, { "write", IWCM_RTR_WRITE }, { "read", IWCM_RTR_READ }, { "all", IWCM_RTR_ALL } };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (len == strlen(kinds[i].name) && !strncmp(s, kinds[i].name, len))
			return kinds[i].bit;
	return 0;
}

static bool parse_rtr(const char *s, unsigned int *out)
{
	unsigned int bit;
	size_t len;

	for (*out = 0; ; s += len + 1) {
		len = strcspn(s, ",");
		bit = rtr_bit(s, len);
		*out |= bit;
		if (!bit || !s[len])
			return bit;
	}
}

static bool parse_model(const char *s, bool *p2p)
{
	*p2p = !strcmp(s, "p2p");
	return *p2p || !strcmp(s, "cs") || !strcmp(s, "client-server");
}

static bool parse_pdata(int key, const char *arg, struct tool_pdata *p)
{
	int err;

	if (p->given) {
		tool_error("private data is given twice");
		return false;
	}
	err = key == KEY_PRIVATE ? tool_pdata_text(p, arg) : key == KEY_PRIVATE_HEX ? tool_pdata_hex(p, arg) :
								tool_pdata_file(p, arg);
	if (!err)
		return true;
	if (err == -EMSGSIZE)
		tool_error("private data: more than %u bytes", MPA_MAX_PRIV_DATA);
	else if (key == KEY_PRIVATE_HEX)
		tool_error("private data: not pairs of hexadecimal digits");
	else
		tool_error("%s: %s", arg, strerror(-err));
	return false;
}

static bool percent(const char *s, double *out)
{
	return parse_double(s, 0, 100, out);
}

static bool parse_sim(int key, const char *arg, struct tool_options *o)
{
	struct tool_sim_options *s = &o->sim;

	switch (key) {
	case KEY_NODES: return parse_u32(arg, 2, 4096, &s->nodes);
	case KEY_CONNECTIONS: return parse_u64(arg, 1, 100000000, &o->count);
	case KEY_LOSS: return percent(arg, &s->loss);
	case KEY_REORDER: return percent(arg, &s->reorder);
	case KEY_DUPLICATE: return percent(arg, &s->duplicate);
	case KEY_CORRUPT: return percent(arg, &s->corrupt);
	case KEY_REJECT_PERCENT: return percent(arg, &s->reject);
	case KEY_LATE: return percent(arg, &s->late);
	case KEY_DESTROY: return percent(arg, &s->destroy);
	case KEY_FLAP: return percent(arg, &s->flap);
	case KEY_VANISH: return percent(arg, &s->vanish);
	case KEY_RESTART: return percent(arg, &s->restart);
	case KEY_ATTACK: return percent(arg, &s->attack);
	case KEY_ON_PATH: return percent(arg, &s->on_path);
	case KEY_ONLY: return sim_list_parse(arg, &s->only);
	case KEY_PARANOID: s->paranoid = true; return true;
	case KEY_MINIMISE: return parse_double(arg, 0, TIME_MAX_S, &s->minimise_s);
	case KEY_DATA: return percent(arg, &s->data);
	case KEY_LARGEST: return parse_u32(arg, 0, SIM_LARGEST_MAX, &s->largest);
	case KEY_LATENCY: return parse_double(arg, 0, 10000, &s->latency_ms);
	case KEY_SEED: return parse_u64(arg, 0, UINT64_MAX, &s->seed);
	case KEY_DURATION: return parse_double(arg, 0, TIME_MAX_S, &s->duration_s);
	case KEY_GEN: return parse_u32(arg, 1, 2, &s->gen);
	case KEY_IPV6: s->ipv6 = true; return true;
	default: return false;
	}
}

static bool parse_mpa(int key, const char *arg, struct tool_options *o)
{
	switch (key) {
	case KEY_MPA_REV: return parse_u32(arg, 1, 2, &o->mpa.mpa_revision);
	case KEY_MODEL: return parse_model(arg, &o->mpa.peer_to_peer);
	case KEY_RTR: return parse_rtr(arg, &o->mpa.rtr);
	case KEY_IRD: return parse_u32(arg, 0, MPA_V2_NOT_NEGOTIATED - 1, &o->ird);
	case KEY_ORD: return parse_u32(arg, 0, MPA_V2_NOT_NEGOTIATED - 1, &o->ord);
	case KEY_CRC: o->mpa.crc = true; return true;
	case KEY_NO_CRC: o->mpa.crc = false; return true;
	case KEY_MARKERS: o->mpa.markers = true; return true;
	case KEY_NO_FALLBACK: o->mpa.fall_back = false; return true;
	case KEY_TOS: return parse_u32(arg, 0, 255, &o->mpa.tos);
	default: return parse_sim(key, arg, o);
	}
}

static bool parse_backlog(const char *s, int *out)
{
	u32 v;

	if (!parse_u32(s, 1, 1u << 20, &v))
		return false;
	*out = (int)v;
	return true;
}

/* Bits of the names in a list; false if one is none of @names. */
static bool parse_names(const char *s, const char *const *names, u32 *out)
{
	size_t len;
	u32 i;

	for (*out = 0; ; s += len + 1) {
		len = strcspn(s, ",");
		for (i = 0; names[i] && (strlen(names[i]) != len || strncmp(s, names[i], len)); i++)
			;
		if (!names[i])
			return false;
		*out |= BIT(i);
		if (!s[len])
			return true;
	}
}

static bool parse_sizes(const char *s, struct tool_perf_options *p)
{
	char word[16];
	size_t len;

	for (p->num_sizes = 0; ; s += len + 1) {
		len = strcspn(s, ",");
		if (len >= sizeof(word) || p->num_sizes == TOOL_PERF_SIZES)
			return false;
		memcpy(word, s, len);
		word[len] = '\0';
		if (!parse_u32(word, 1, PERF_SIZE_MAX, &p->size[p->num_sizes++]))
			return false;
		if (!s[len])
			return true;
	}
}

static bool parse_perf(int key, const char *arg, struct tool_options *o)
{
	static const char *const verbs[] = { "send", "write", "read", NULL }, *const tests[] = { "latency", "bandwidth", NULL };
	struct tool_perf_options *p = &o->perf;

	switch (key) {
	case KEY_LISTEN: p->listen = true; return true;
	case KEY_VERB: return parse_names(arg, verbs, &p->verbs) &&
			      (o->command == TOOL_PERF || p->verbs == BIT(PERF_SEND) || p->verbs == BIT(PERF_READ));
	case KEY_TEST: return parse_names(arg, tests, &p->kinds);
	case KEY_SIZE: return parse_sizes(arg, p) && (o->command == TOOL_PERF || p->num_sizes == 1);
	case KEY_DEPTH: return parse_u32(arg, 1, PERF_DEPTH_MAX, &p->depth);
	default: return parse_mpa(key, arg, o);
	}
}

static bool parse_run(int key, const char *arg, struct tool_options *o)
{
	switch (key) {
	case KEY_IFACES: return *arg && strlen(arg) < SHIM_IFACES_SIZE;
	case KEY_LOG: return !log_set_level(arg);
	case KEY_STATS:
	case KEY_RESPONDER_WAITS: return true;
	case KEY_INTERVAL: return parse_double(arg, 1e-2, TIME_MAX_S, &o->interval_s);
	default: return parse_perf(key, arg, o);
	}
}

static bool parse_one(int key, const char *arg, struct tool_options *o)
{
	range[0] = '\0';
	switch (key) {
	case KEY_REJECT: o->reject = true; return true;
	case KEY_COUNT: return parse_u64(arg, o->command != TOOL_LISTEN, UINT32_MAX, &o->count);
	case KEY_RATE: return parse_double(arg, 1e-3, 1e7, &o->rate);
	case KEY_PARALLEL: return parse_u32(arg, 1, 1u << 20, &o->parallel);
	case KEY_TIMEOUT: return parse_double(arg, 1e-3, TIME_MAX_S, &o->timeout_s);
	case KEY_HOLD: return parse_double(arg, 0, TIME_MAX_S, &o->hold_s);
	case KEY_PRIVATE:
	case KEY_PRIVATE_HEX:
	case KEY_PRIVATE_FILE: return parse_pdata(key, arg, &o->pdata);
	case KEY_BIND: o->bind = arg; return true;
	case KEY_BACKLOG: return parse_backlog(arg, &o->backlog);
	case KEY_JSON: o->json = true; return true;
	case KEY_PCAP: o->pcap = arg; return true;
	case '4': o->family = AF_INET; return true;
	case '6': o->family = AF_INET6; return true;
	case 'v': o->verbose = true; return true;
	case 'q': o->quiet = true; return true;
	default: return parse_run(key, arg, o);
	}
}

/* ---- the whole ---- */

static size_t build_table(enum tool_command command, struct option *longs, char *shorts)
{
	const struct row *r;
	size_t n = 0;

	if (command == TOOL_RUN)
		*shorts++ = '+'; /* what comes behind the program's name is the program's */
	*shorts++ = ':';
	for (r = rows; r < rows + ARRAY_SIZE(rows); r++) {
		if (!(r->commands & BIT(command)))
			continue;
		longs[n++] = (struct option){ r->name, r->arg ? required_argument : no_argument, NULL, r->key };
		if (r->key < 256)
			*shorts++ = (char)r->key;
	}
	*shorts = '\0';
	longs[n] = (struct option){ 0 };
	return n;
}

static bool check_pdata(const struct tool_options *o)
{
	size_t most = MPA_MAX_PRIV_DATA - (o->mpa.mpa_revision == MPA_REV_2 ? sizeof(struct mpa_v2_data) : 0);

	if (o->reject)
		most = REJECT_PDATA_MAX;
	if (o->pdata.len <= most)
		return true;
	tool_error("%zu bytes of private data: at most %zu fit %s", o->pdata.len, most,
		   o->reject ? "into a reject" : o->mpa.mpa_revision == MPA_REV_2 ? "with MPA revision 2" : "with MPA revision 1");
	return false;
}

/* In rising order: the last one tells. */
static bool check_only(const struct tool_options *o)
{
	const struct tool_sim_list *l = &o->sim.only;

	if (!l->n || l->item[l->n - 1] < o->count)
		return true;
	tool_error("--only: there is no connection %llu, but 0 to %llu (--connections %llu)", (unsigned long long)l->item[l->n - 1],
		   (unsigned long long)o->count - 1, (unsigned long long)o->count);
	return false;
}

static bool check(struct tool_options *o, int operands)
{
	bool wants_where = (C | L | G | P) & BIT(o->command);
	bool passive = o->command == TOOL_LISTEN || o->perf.listen;

	if (o->command == TOOL_RUN && !operands)
		tool_error("PROGRAM is missing");
	if (o->command == TOOL_RUN)
		return operands;
	if (o->command == TOOL_STAT && operands == 1)
		return true;
	if (operands != wants_where) {
		tool_error(operands > wants_where ? "too many arguments" : "%s is missing",
			   passive ? "[ADDR]:PORT" : "HOST:PORT");
		return false;
	}
	if (o->pcap && o->json && !strcmp(o->pcap, "-")) {
		tool_error("JSON and a capture cannot both go to standard output");
		return false;
	}
	if (!o->parallel)
		o->parallel = o->rate > 0 ? 128 : 1;
	return check_only(o) && check_pdata(o);
}

static void defaults(enum tool_command command, struct tool_options *o)
{
	*o = (struct tool_options){
		.command = command,
		.ird = IWCM_MAX,
		.ord = IWCM_MAX,
		.count = command == TOOL_CONNECT ? 1 : command == TOOL_SIM ? 1000 : 0,
		.timeout_s = -1,
		.hold_s = -1,
		.backlog = 128,
		.interval_s = command == TOOL_PING ? 1 : 0,
		.family = AF_UNSPEC,
		.sim = {
			.nodes = 8, .reject = 10, .late = 1, .destroy = 5, .flap = 0.1, .vanish = 0.05, .restart = 0.05, .attack = 5, .on_path = 1,
			.data = 50, .largest = 256u << 10, .latency_ms = 0.05, .seed = 1, .gen = 2, .minimise_s = 60,
		},
	};
	iwcm_options_init(&o->mpa);
}

/* "--re": --reject? --reorder? False: it is the beginning of no option, or of one. */
static bool complain_ambiguous(enum tool_command command, const char *arg)
{
	size_t len = strcspn(arg, "="), n = 0, at = 0;
	const struct row *r;
	char names[200] = "";

	if (strncmp(arg, "--", 2))
		return false;
	for (r = rows; r < rows + ARRAY_SIZE(rows); r++) {
		if (!(r->commands & BIT(command)) || strncmp(r->name, arg + 2, len - 2))
			continue;
		if (at < sizeof(names))
			at += (size_t)snprintf(names + at, sizeof(names) - at, "%s--%s", n ? ", " : "", r->name);
		n++;
	}
	if (n > 1)
		tool_error("option %.*s is ambiguous: %s", (int)len, arg, names);
	return n > 1;
}

static void complain(enum tool_command command, char **argv, int c)
{
	if (c == ':')
		tool_error("option %s needs a value", argv[optind - 1]);
	else if (optopt && optopt < 256)
		tool_error("unknown option -%c", optopt);
	else if (!complain_ambiguous(command, argv[optind - 1]))
		tool_error("unknown option %s", argv[optind - 1]);
	fprintf(stderr, "usage: %s\n", texts[command].usage);
}

static const struct row *find_row(enum tool_command command, int key)
{
	const struct row *r = rows;

	while (r->key != key || !(r->commands & BIT(command)))
		r++;
	return r;
}

static void complain_about(enum tool_command command, int key, const char *arg)
{
	const struct row *r = find_row(command, key);

	tool_error("--%s %s: \"%s\" is out of range%s, or not of that form", r->name, r->arg, arg, range);
}

/* What the program inherits is how the shim in it learns of the options. */
static void hand_on(const struct row *r, const char *arg)
{
	if (r->env)
		setenv(r->env, r->arg ? arg : r->value, 1);
}

/* Variables that were there already are judged like options: better now than by a shim that can only ignore them. */
static int check_environment(struct tool_options *o)
{
	const struct row *r;
	const char *v;

	for (r = rows; r < rows + ARRAY_SIZE(rows); r++) {
		v = r->env && (r->commands & BIT(o->command)) ? getenv(r->env) : NULL;
		if (!v || !*v || (r->arg ? parse_one(r->key, v, o) : !strcmp(v, "0") || !strcmp(v, "1")))
			continue;
		tool_error("%s %s: \"%s\" is out of range%s, or not of that form", r->env, r->arg ? r->arg : "0|1", v, r->arg ? range : "");
		return TOOL_USAGE;
	}
	return 0;
}

static int parse_all(int argc, char **argv, struct tool_options *o)
{
	struct option longs[ARRAY_SIZE(rows) + 1];
	char shorts[ARRAY_SIZE(rows) + 3];
	int c;

	build_table(o->command, longs, shorts);
	optind = 0; /* glibc: from the beginning, even if the last call stopped in the middle of a word such as -abc */
	opterr = 0;
	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (c == 'h')
			return -1;
		if (c == '?' || c == ':') {
			complain(o->command, argv, c);
			return TOOL_USAGE;
		}
		if (!parse_one(c, optarg, o)) {
			if (c != KEY_PRIVATE && c != KEY_PRIVATE_HEX && c != KEY_PRIVATE_FILE)
				complain_about(o->command, c, optarg);
			return TOOL_USAGE;
		}
		hand_on(find_row(o->command, c), optarg);
	}
	return check_environment(o);
}

/**
 * tool_options_parse() - read the command line
 * @command: which command
 * @argc: arguments from the command's name on
 * @argv: they
 * @o: filled in
 *
 * Return: 0; %TOOL_USAGE after a message; -1 after --help.
 */
int tool_options_parse(enum tool_command command, int argc, char **argv, struct tool_options *o)
{
	int ret;

	defaults(command, o);
	ret = parse_all(argc, argv, o);
	if (ret < 0)
		tool_help(command, stdout);
	if (ret)
		return ret;
	if (!check(o, argc - optind)) {
		fprintf(stderr, "usage: %s\n", texts[command].usage);
		return TOOL_USAGE;
	}
	o->where = argv[optind];
	o->program = argv + optind;
	return 0;
}
