// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: `uwarp run` without running anything: options become environment, programs are found as execvp() finds them and looked into. */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "tool/options.c"
#include "tool/pdata.c"
#include "tool/program.c"

static char last_error[400];

void tool_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, ap);
	va_end(ap);
}

/* ---- options ---- */

static const char *const variables[] = {
	SHIM_ENV_MPA_REVISION, SHIM_ENV_MODEL, SHIM_ENV_RTR, SHIM_ENV_CRC, SHIM_ENV_MARKERS, SHIM_ENV_RESPONDER_WAITS, SHIM_ENV_IFACES, SHIM_ENV_LOG, SHIM_ENV_PCAP, SHIM_ENV_STATS,
};

static int clear(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	last_error[0] = '\0';
	return 0;
}

#define MAX_ARGS 12
static int parse(const char *const *args, struct tool_options *o)
{
	static char *argv[MAX_ARGS + 1]; /* o->program points into it */
	int argc;

	for (argc = 0; argc < MAX_ARGS && args[argc]; argc++)
		argv[argc] = (char *)(uintptr_t)args[argc];
	argv[argc] = NULL;
	return tool_options_parse(TOOL_RUN, argc, argv, o);
}

static void options_become_environment(void **state)
{
	static const struct {
		const char *args[MAX_ARGS], *name, *value;
	} cases[] = {
		{ { "run", "--mpa-rev", "1", "x" }, SHIM_ENV_MPA_REVISION, "1" },
		{ { "run", "--model", "cs", "x" }, SHIM_ENV_MODEL, "cs" },
		{ { "run", "--model=client-server", "x" }, SHIM_ENV_MODEL, "client-server" },
		{ { "run", "--rtr", "send,read", "x" }, SHIM_ENV_RTR, "send,read" },
		{ { "run", "--crc", "x" }, SHIM_ENV_CRC, "1" },
		{ { "run", "--no-crc", "x" }, SHIM_ENV_CRC, "0" },
		{ { "run", "--no-crc", "--crc", "x" }, SHIM_ENV_CRC, "1" },
		{ { "run", "--markers", "x" }, SHIM_ENV_MARKERS, "1" },
		{ { "run", "--ifaces", "eth0,lo", "x" }, SHIM_ENV_IFACES, "eth0,lo" },
		{ { "run", "--log", "warn", "x" }, SHIM_ENV_LOG, "warn" },
		{ { "run", "--pcap", "/tmp/a b", "x" }, SHIM_ENV_PCAP, "/tmp/a b" },
		{ { "run", "--responder-waits", "x" }, SHIM_ENV_RESPONDER_WAITS, "1" },
		{ { "run", "--stats", "x" }, SHIM_ENV_STATS, "1" },
		{ { "run", "x", "--stats" }, SHIM_ENV_STATS, NULL },
		{ { "run", "--", "x" }, SHIM_ENV_CRC, NULL },
	};
	struct tool_options o;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		clear(state);
		assert_int_equal(parse(cases[i].args, &o), 0);
		assert_string_equal(o.program[0], "x");
		if (cases[i].value)
			assert_string_equal(getenv(cases[i].name), cases[i].value);
		else
			assert_null(getenv(cases[i].name));
	}
}

static void options_win_over_environment(void **state)
{
	static const char *const args[] = { "run", "--no-crc", "x", NULL };
	struct tool_options o;

	(void)state;
	setenv(SHIM_ENV_CRC, "1", 1);
	setenv(SHIM_ENV_MODEL, "", 1); /* counts as unset */
	assert_int_equal(parse(args, &o), 0);
	assert_string_equal(getenv(SHIM_ENV_CRC), "0");
}

static void bad_values_are_refused(void **state)
{
	static const char *const bad[][2] = {
		{ SHIM_ENV_MPA_REVISION, "3" }, { SHIM_ENV_MPA_REVISION, "0" }, { SHIM_ENV_MODEL, "ring" }, { SHIM_ENV_RTR, "send," },
		{ SHIM_ENV_RTR, "write,foo" }, { SHIM_ENV_CRC, "yes" }, { SHIM_ENV_CRC, "2" }, { SHIM_ENV_MARKERS, "01" }, { SHIM_ENV_RESPONDER_WAITS, "yes" },
		{ SHIM_ENV_LOG, "loud" }, { SHIM_ENV_STATS, "table" },
	};
	static const char *const args[] = { "run", "x", NULL };
	char ifaces[SHIM_IFACES_SIZE + 1];
	struct tool_options o;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		clear(state);
		setenv(bad[i][0], bad[i][1], 1);
		assert_int_equal(parse(args, &o), TOOL_USAGE);
		assert_non_null(strstr(last_error, bad[i][0]));
		assert_non_null(strstr(last_error, bad[i][1]));
	}
	clear(state);
	memset(ifaces, 'e', SHIM_IFACES_SIZE);
	ifaces[SHIM_IFACES_SIZE] = '\0';
	setenv(SHIM_ENV_IFACES, ifaces, 1);
	assert_int_equal(parse(args, &o), TOOL_USAGE);
	ifaces[SHIM_IFACES_SIZE - 1] = '\0';
	setenv(SHIM_ENV_IFACES, ifaces, 1);
	assert_int_equal(parse(args, &o), 0);
}

static void what_follows_the_program_is_its_own(void **state)
{
	static const char *const args[] = { "run", "--no-crc", "ls", "--markers", "-h", "--", "-x", NULL };
	static const char *const want[] = { "ls", "--markers", "-h", "--", "-x" };
	struct tool_options o;
	size_t i;

	(void)state;
	assert_int_equal(parse(args, &o), 0);
	for (i = 0; i < ARRAY_SIZE(want); i++)
		assert_string_equal(o.program[i], want[i]);
	assert_null(o.program[i]);
	assert_null(getenv(SHIM_ENV_MARKERS));
}

/* ---- programs ---- */

static char folder[] = "/tmp/uwarp-run-XXXXXX";

static void write_file(const char *name, const void *data, size_t len, mode_t mode)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	fclose(f);
	assert_int_equal(chmod(path, mode), 0);
}

static int make_folder(void **state)
{
	(void)state;
	return !mkdtemp(folder);
}

static int remove_folder(void **state)
{
	static const char *const names[] = { "prog", "plain", "elf" };
	char path[PATH_MAX];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	return rmdir(folder);
}

static void programs_are_found_as_execvp_does(void **state)
{
	char path[PATH_MAX], list[PATH_MAX], direct[PATH_MAX];

	(void)state;
	write_file("prog", "#!/bin/sh\n", 10, 0755);
	write_file("plain", "text", 4, 0644);
	snprintf(list, sizeof(list), "/nonexistent:%s:/bin", folder);
	setenv("PATH", list, 1);
	assert_int_equal(tool_program_find("prog", path), 0);
	snprintf(direct, sizeof(direct), "%s/prog", folder);
	assert_string_equal(path, direct);
	assert_int_equal(tool_program_find(direct, path), 0);
	assert_int_equal(tool_program_find("plain", path), -EACCES);
	assert_int_equal(tool_program_find("nonesuch", path), -ENOENT);
	assert_int_equal(tool_program_find("", path), -ENOENT);
	assert_int_equal(tool_program_find(folder, path), -EACCES);
	assert_int_equal(tool_program_find("/bin/sh/x", path), -ENOENT);
	setenv("PATH", "/bin", 1);
	assert_int_equal(tool_program_find("prog", path), -ENOENT);
}

static void names_too_long_are_not_found(void **state)
{
	char name[2 * PATH_MAX], path[PATH_MAX];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(tool_program_find(name, path), -ENOENT);
	name[0] = '/';
	assert_int_equal(tool_program_find(name, path), -ENOENT);
}

struct image {
	ElfW(Ehdr) eh;
	ElfW(Phdr) ph[2];
};

static struct image own_image(void)
{
	struct image im = { 0 };
	int fd = open("/proc/self/exe", O_RDONLY);

	assert_int_equal(read(fd, &im.eh, sizeof(im.eh)), sizeof(im.eh));
	close(fd);
	im.eh.e_phoff = offsetof(struct image, ph);
	im.eh.e_phnum = 2;
	im.ph[0].p_type = PT_LOAD;
	im.ph[1].p_type = PT_INTERP;
	return im;
}

static const char *obstacle(const void *data, size_t len, mode_t mode)
{
	char path[PATH_MAX];

	write_file("elf", data, len, mode);
	snprintf(path, sizeof(path), "%s/elf", folder);
	return tool_program_obstacle(path);
}

static void what_is_not_preloaded_into(void **state)
{
	struct image im = own_image();

	(void)state;
	assert_null(obstacle(&im, sizeof(im), 0755));
	im.ph[1].p_type = PT_LOAD;
	assert_string_equal(obstacle(&im, sizeof(im), 0755), "it is statically linked");
	im.eh.e_machine ^= 1;
	assert_non_null(strstr(obstacle(&im, sizeof(im), 0755), "another kind of machine"));
	assert_null(obstacle("#!/bin/sh\n", 10, 0755));
	assert_null(obstacle("", 0, 0755));
	assert_null(tool_program_obstacle("/nonexistent"));
}

static void headers_that_lie_are_not_followed(void **state)
{
	struct image im = own_image();

	(void)state;
	im.eh.e_phnum = UINT16_MAX;
	im.ph[1].p_type = PT_LOAD;
	assert_null(obstacle(&im, sizeof(im), 0755));
	im.eh.e_phoff = UINT64_MAX - 8;
	assert_null(obstacle(&im, sizeof(im), 0755));
	assert_null(obstacle(&im, sizeof(im.eh) - 1, 0755));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(options_become_environment, clear),
		cmocka_unit_test_setup(options_win_over_environment, clear),
		cmocka_unit_test_setup(bad_values_are_refused, clear),
		cmocka_unit_test_setup(what_follows_the_program_is_its_own, clear),
		cmocka_unit_test(programs_are_found_as_execvp_does),
		cmocka_unit_test(names_too_long_are_not_found),
		cmocka_unit_test(what_is_not_preloaded_into),
		cmocka_unit_test(headers_that_lie_are_not_followed),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
