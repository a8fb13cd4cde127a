/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base/log.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"

static struct {
	unsigned int lines;
	enum log_level level;
	char room[16];
	char text[2048];
} got;

static void catch_line(void *arg, enum log_level level, const char *room, const char *text)
{
	assert_ptr_equal(arg, &got);
	got.lines++;
	got.level = level;
	snprintf(got.room, sizeof(got.room), "%s", room);
	snprintf(got.text, sizeof(got.text), "%s", text);
	errno = ENOTTY; /* a sink may clobber it */
}

static int setup(void **state)
{
	(void)state;
	memset(&got, 0, sizeof(got));
	log_set_sink(catch_line, &got);
	return log_set_level("warn");
}

static int teardown(void **state)
{
	(void)state;
	log_set_sink(NULL, NULL);
	return 0;
}

static void test_line(void **state)
{
	(void)state;
	errno = EAGAIN;
	log_warn("cm", "port %d of %s", 7, "lo");
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(got.lines, 1);
	assert_int_equal(got.level, LOG_LEVEL_WARN);
	assert_string_equal(got.room, "cm");
	assert_string_equal(got.text, "port 7 of lo");
}

static void test_levels(void **state)
{
	static const char *const name[] = { "error", "warn", "info", "debug" };
	unsigned int i;

	(void)state;
	for (i = 0; i < 4; i++) {
		got.lines = 0;
		assert_int_equal(log_set_level(name[i]), 0);
		log_error("x", "e");
		log_warn("x", "w");
		log_info("x", "i");
		log_debug("x", "d");
		assert_int_equal(got.lines, i + 1);
	}
	assert_int_equal(log_set_level(""), -EINVAL);
	assert_int_equal(log_set_level("Warn"), -EINVAL);
	assert_int_equal(log_set_level("warnings"), -EINVAL);
	assert_int_equal(log_threshold, LOG_LEVEL_DEBUG);
}

static void test_below_threshold_costs_nothing(void **state)
{
	int evaluated = 0;

	(void)state;
	log_debug("x", "%d", ++evaluated);
	assert_int_equal(evaluated, 0);
	assert_int_equal(got.lines, 0);
}

static void test_hostile_text(void **state)
{
	char big[3000];

	(void)state;
	log_error("x", "%s", "a\nb\033[2Jc\rd\te\x7f");
	assert_string_equal(got.text, "a.b.[2Jc.d.e.");
	log_error("x", "%s", "caf\xc3\xa9"); /* UTF-8 stays */
	assert_string_equal(got.text, "caf\xc3\xa9");
	memset(big, 'y', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	log_error("x", "%s", big);
	assert_int_equal(strlen(got.text), 1023);
	log_error("x", "%s", "");
	assert_string_equal(got.text, "");
}

static void test_stderr(void **state)
{
	char text[200] = "";
	int saved = dup(STDERR_FILENO);
	FILE *f = tmpfile();

	(void)state;
	assert_non_null(f);
	log_set_sink(NULL, NULL);
	dup2(fileno(f), STDERR_FILENO);
	log_error("port", "no such interface");
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(f);
	assert_non_null(fgets(text, sizeof(text), f));
	assert_string_equal(text, "uwarp: error: port: no such interface\n");
	fclose(f);
}

/* Seconds may turn in the middle of a try: then it is tried again. */
static void test_limit(void **state)
{
	unsigned int tries, i, allowed = 0;

	(void)state;
	for (tries = 0; tries < 5 && allowed != 3; tries++) {
		struct log_limit l = { 0 };

		for (i = allowed = 0; i < 1000; i++)
			allowed += log_allow(&l, 3);
		assert_true(allowed >= 3);
		assert_false(log_allow(&l, 0));
	}
	assert_int_equal(allowed, 3);
}

static void test_limit_next_second(void **state)
{
	struct log_limit l = { 0 };

	(void)state;
	assert_true(log_allow(&l, 1));
	l.window_s--; /* as if a second had passed */
	assert_true(log_allow(&l, 1));
}

/* This program again, which then exits with its threshold. */
static int threshold_of(const char *value)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		if (!freopen("/dev/null", "w", stderr) || setenv("UWARP_LOG", value, 1))
			_exit(99);
		execl("/proc/self/exe", "test_log", "threshold", (char *)NULL);
		_exit(98);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_environment(void **state)
{
	(void)state;
	assert_int_equal(threshold_of("error"), LOG_LEVEL_ERROR);
	assert_int_equal(threshold_of("debug"), LOG_LEVEL_DEBUG);
	assert_int_equal(threshold_of(""), LOG_LEVEL_WARN);
	assert_int_equal(threshold_of("nonsense"), LOG_LEVEL_WARN);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_levels, setup, teardown),
		cmocka_unit_test_setup_teardown(test_below_threshold_costs_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hostile_text, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stderr, setup, teardown),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_limit_next_second),
		cmocka_unit_test(test_environment),
	};

	if (argc > 1 && !strcmp(argv[1], "threshold"))
		return (int)log_threshold;
	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
