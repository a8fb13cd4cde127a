/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool: the `uwarp` command: what its files share.
 *
 * Standard output carries what was asked for (ladders, tables, JSON lines), standard error what went wrong and the progress
 * line. One thread prints: the main one.
 */
#ifndef UWARP_TOOL_TOOL_H
#define UWARP_TOOL_TOOL_H

#include <stdio.h>
#include "base/base.h"
#include "cm/cm.h"
#include "iwcm/iwcm.h"
#include "tool/sim_engine.h"

#define TOOL_VERSION "0.1.0"

/* Exit statuses. With several connections the highest number of any of them counts. */
enum tool_status {
	TOOL_OK = 0,        /* established */
	TOOL_REJECTED = 1,  /* the peer's upper layer said no */
	TOOL_REFUSED = 2,   /* nobody listens on that port */
	TOOL_TIMED_OUT = 3, /* somebody said nothing */
	TOOL_PROTOCOL = 4,  /* not MPA, a kind of MPA that does not fit, or reset or closed during set-up */
	TOOL_LOCAL = 5,     /* unreachable, no resources, or ended from this side */
	TOOL_STATUSES,
	TOOL_USAGE = 64,
};

/* ---- options.c ---- */

enum tool_command { TOOL_CONNECT, TOOL_LISTEN, TOOL_PING, TOOL_PERF, TOOL_DEVICES, TOOL_SIM, TOOL_RUN, TOOL_STAT, TOOL_COMMANDS };

struct tool_pdata {
	bool given;
	size_t len;
	u8 data[MPA_MAX_PRIV_DATA];
};

struct tool_sim_options {
	u32 nodes;
	double loss, reorder, duplicate, corrupt, reject, late, destroy, flap, vanish, restart, attack, on_path, data; /* percent */
	u32 largest;
	double latency_ms;
	double duration_s;
	u64 seed;
	u32 gen;
	bool ipv6, paranoid;
	struct tool_sim_list only;     /* none: all */
	double minimise_s;
};

#define TOOL_PERF_SIZES 16

struct tool_perf_options {
	bool listen;
	u32 verbs, kinds;              /* masks of enum perf_verb, enum perf_kind; 0: all */
	u32 size[TOOL_PERF_SIZES];
	size_t num_sizes;              /* 0: the default ones */
	u32 depth;
};

struct tool_options {
	enum tool_command command;
	const char *where;             /* HOST:PORT, [ADDR]:PORT */
	struct iwcm_options mpa;
	u32 ird, ord;
	struct tool_pdata pdata;
	bool reject;
	u64 count;                     /* 0: listen without an end */
	double rate;                   /* connections per second, 0: as they come */
	u32 parallel;                  /* most connections under way at a time */
	double timeout_s, hold_s;      /* negative: not given */
	const char *bind;
	int backlog;
	int family;                    /* AF_UNSPEC, AF_INET, AF_INET6 */
	bool json, quiet, verbose;
	const char *pcap;
	struct tool_sim_options sim;
	struct tool_perf_options perf;
	char **program;                /* run: it and its arguments, NULL behind */
	double interval_s;             /* ping; stat: 0: once */
};

/* Fills @o from the command's arguments. 0, or TOOL_USAGE after a message; -1 after --help. */
int tool_options_parse(enum tool_command command, int argc, char **argv, struct tool_options *o);
void tool_help(enum tool_command command, FILE *f);

/* ---- pdata.c ---- */
/* Each 0, or -EINVAL, -EMSGSIZE or what reading the file says. */
int tool_pdata_text(struct tool_pdata *p, const char *text);
int tool_pdata_hex(struct tool_pdata *p, const char *hex);
int tool_pdata_file(struct tool_pdata *p, const char *path);
/* The bytes as text, if all of them can be printed; else NULL. @buf has room for @len + 1. */
const char *tool_pdata_as_text(const u8 *data, size_t len, char *buf);
void tool_pdata_print(FILE *f, const u8 *data, size_t len);

/* ---- endpoint.c ---- */
struct tool_endpoint {
	struct sockaddr_storage addr[8];
	size_t n;
};
/*
 * HOST:PORT, [V6]:PORT, :PORT and *:PORT. @passive: an empty host is the wildcard, of both families unless @family says which; else it
 * is an error. 0; TOOL_USAGE or TOOL_LOCAL (name not found) after a message.
 */
int tool_endpoint_parse(const char *text, bool passive, int family, struct tool_endpoint *out);
/* "192.0.2.1:80" or "[2001:db8::1]:80"; "[fe80::1%eth0]:80". Returns buf. */
#define TOOL_ADDRSTR 80
char *tool_sockaddr_str(const struct sockaddr_storage *ss, char buf[TOOL_ADDRSTR]);
u16 tool_sockaddr_port(const struct sockaddr_storage *ss);
void tool_sockaddr_set_port(struct sockaddr_storage *ss, u16 port);

/* ---- outcome.c ---- */
/* What an outcome means for the exit status. */
enum tool_status tool_status_of(enum iwcm_event_type type, int cause, int error);
const char *tool_status_str(enum tool_status s);
/* A line for someone who debugs the other end, or NULL. @listen: this side listens; @fell_back: it was tried with revision 1, too. */
const char *tool_hint(int cause, bool listen, bool fell_back);
const char *tool_cause_name(int cause);
void tool_print_negotiated(FILE *f, const struct iwcm_info *i);
/* "Send|Write" etc., "none". Returns buf. */
#define TOOL_RTRSTR 24
char *tool_rtr_str(u32 rtr, char buf[TOOL_RTRSTR]);

/* ---- commands ---- */
int tool_connect(const struct tool_options *o);
int tool_listen(const struct tool_options *o);
int tool_devices(const struct tool_options *o);
int tool_sim(const struct tool_options *o);
int tool_perf(const struct tool_options *o); /* also ping */
int tool_run(const struct tool_options *o);
int tool_stat(const struct tool_options *o);

/* "uwarp: " message to standard error. */
void tool_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
