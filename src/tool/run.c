// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: `uwarp run`: puts libuwarp-shim.so in front of a program and becomes the program. The options are in the environment already (options.c).
 */
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tool/program.h"
#include "tool/tool.h"

#define SHIM_NAME "libuwarp-shim.so"
#define ENV_SHIM "UWARP_SHIM"

enum { RUN_NOT_EXECUTABLE = 126, RUN_NOT_FOUND = 127 }; /* as shells have it */

/* Beside uwarp, as in the build folder; where it is installed to, with and without the name of the machine. */
static const char *const places[] = { "", "../lib/", "../lib/*-linux-gnu*/", "../lib64/" };

static bool own_folder(char dir[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", dir, PATH_MAX - 1);

	if (n <= 0)
		return false;
	dir[n] = '\0';
	*(strrchr(dir, '/') + 1) = '\0';
	return true;
}

/* The first file that matches, as an absolute path without "..". */
static bool look_in(const char *dir, const char *place, char path[PATH_MAX])
{
	char pattern[PATH_MAX + 64];
	glob_t g;
	bool found;

	snprintf(pattern, sizeof(pattern), "%s%s" SHIM_NAME, dir, place);
	found = !glob(pattern, 0, NULL, &g) && realpath(g.gl_pathv[0], path);
	globfree(&g);
	return found;
}

static bool find_shim(char path[PATH_MAX])
{
	const char *given = getenv(ENV_SHIM);
	char dir[PATH_MAX];
	size_t i;

	if (given && *given) {
		if (realpath(given, path))
			return true;
		tool_error(ENV_SHIM " %s: %s", given, strerror(errno));
		return false;
	}
	if (!own_folder(dir)) {
		tool_error("/proc/self/exe cannot be read, so " SHIM_NAME " is not found; " ENV_SHIM " can say where it is");
		return false;
	}
	for (i = 0; i < ARRAY_SIZE(places); i++)
		if (look_in(dir, places[i], path))
			return true;
	tool_error(SHIM_NAME " is neither in %s nor in its ../lib; " ENV_SHIM " can say where it is", dir);
	return false;
}

#ifdef __SANITIZE_ADDRESS__
/*
 * The shim was built as this command was: with ASan, whose library wants to be the first in any process. Programs are not ours to look for leaks in.
 */
void __asan_init(void);

static const char *first_library(void)
{
	const char *options = getenv("ASAN_OPTIONS");
	static char buf[4096];
	Dl_info info;

	snprintf(buf, sizeof(buf), "%s:detect_leaks=0", options ? options : "");
	setenv("ASAN_OPTIONS", buf, 1);
	return dladdr((void *)__asan_init, &info) ? info.dli_fname : NULL;
}
#else
static const char *first_library(void)
{
	return NULL;
}
#endif

/* The shim in front of what is preloaded already. */
static bool preload(const char *shim)
{
	const char *first = first_library(), *before = getenv("LD_PRELOAD");
	char *value;
	bool ok;

	if (strpbrk(shim, " :")) {
		tool_error("%s: a space or colon in its path, where LD_PRELOAD would be split", shim);
		return false;
	}
	if (asprintf(&value, "%s%s%s%s%s", first ? first : "", first ? ":" : "", shim, before && *before ? ":" : "", before ? before : "") < 0)
		return false;
	ok = !setenv("LD_PRELOAD", value, 1);
	free(value);
	return ok;
}

static int cannot_run(const char *name, int err)
{
	tool_error("%s: %s", name, err == -ENOENT ? "no such program" : strerror(-err));
	return err == -ENOENT ? RUN_NOT_FOUND : RUN_NOT_EXECUTABLE;
}

/**
 * tool_run() - `uwarp run`
 * @o: options; the program
 *
 * Return: an exit status, if the program could not be started; else it does not return.
 */
int tool_run(const struct tool_options *o)
{
	char shim[PATH_MAX], path[PATH_MAX];
	const char *why;
	int err;

	if (!find_shim(shim) || !preload(shim))
		return TOOL_LOCAL;
	err = tool_program_find(o->program[0], path);
	if (err)
		return cannot_run(o->program[0], err);
	why = tool_program_obstacle(path);
	if (why)
		tool_error("warning: %s runs without uwarp: %s", path, why);
	execvp(o->program[0], o->program);
	return cannot_run(o->program[0], -errno);
}
