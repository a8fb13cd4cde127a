// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: `uwarp`. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tool/tool.h"

static const struct {
	const char *name, *about;
	int (*run)(const struct tool_options *o);
} commands[TOOL_COMMANDS] = {
	[TOOL_CONNECT] = { "connect", "set up an iWARP connection", tool_connect },
	[TOOL_LISTEN] = { "listen", "accept iWARP connections, or reject them", tool_listen },
	[TOOL_PING] = { "ping", "measure round trips over a connection", tool_perf },
	[TOOL_PERF] = { "perf", "measure latency and bandwidth between two machines", tool_perf },
	[TOOL_DEVICES] = { "devices", "list the NICs", tool_devices },
	[TOOL_SIM] = { "sim", "simulate hosts on a faulty wire", tool_sim },
	[TOOL_RUN] = { "run", "run an RDMA program over uwarp", tool_run },
	[TOOL_STAT] = { "stat", "show what programs do over uwarp", tool_stat },
};

void tool_error(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fputs("uwarp: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	putc('\n', stderr);
}

static void help(FILE *f)
{
	size_t i;

	fputs("usage: uwarp COMMAND [OPTION]...\n\n"
	      "iWARP connections without RDMA hardware, kernel module or root: the netcat of iWARP.\n\n", f);
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].about);
	fputs("\nuwarp COMMAND --help says more; see also uwarp(1), uwarp(7).\n", f);
}

/*
 * Whoever starts us with one of these closed must not have a socket take its number, and with it what is printed. What stands
 * in for it fails as the closed one would.
 */
static bool open_standard(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return false;
	return true;
}

static int run(enum tool_command command, int argc, char **argv)
{
	struct tool_options o;
	int ret = tool_options_parse(command, argc, argv, &o);

	if (!ret)
		ret = commands[command].run(&o);
	free(o.sim.only.item);
	return ret < 0 ? TOOL_OK : ret;
}

static int finish(int ret)
{
	if ((fflush(stdout) || ferror(stdout)) && ret == TOOL_OK) {
		tool_error("standard output cannot be written");
		ret = TOOL_LOCAL;
	}
	return ret;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	size_t i;

	if (strcmp(name, "run") != 0) { /* whose program inherits what we do here */
		signal(SIGPIPE, SIG_IGN);
		if (!open_standard())
			return TOOL_LOCAL;
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
		puts("uwarp " TOOL_VERSION);
		return finish(TOOL_OK);
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		help(stdout);
		return finish(TOOL_OK);
	}
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(name, commands[i].name))
			return finish(run((enum tool_command)i, argc - 1, argv + 1));
	if (*name)
		tool_error("there is no command \"%s\"", name);
	help(stderr);
	return TOOL_USAGE;
}
