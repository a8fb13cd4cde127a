// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* shim and tool: the statistics that a program tells, and `uwarp stat` that asks for them. The NICs are made up. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "iwcm/iwcm_nic.h"

static u32 num_devices = 2;
static int anything;
static struct iwcm_ctx *const the_ctx = (struct iwcm_ctx *)&anything;

static void made_up_devices(struct iwcm_ctx *ctx, void (*fn)(struct irdma_device *iwdev, void *arg), void *arg)
{
	static struct irdma_device devs[] = { { .name = "uwarp_lo" }, { .name = "uwarp_eth0" } };
	u32 i;

	assert_ptr_equal(ctx, the_ctx);
	for (i = 0; i < num_devices; i++)
		fn(&devs[i % ARRAY_SIZE(devs)], arg);
}

static void made_up_cm(struct irdma_device *iwdev, struct cm_stats *out)
{
	*out = (struct cm_stats){ 0 };
	if (!strcmp(iwdev->name, "uwarp_lo"))
		*out = (struct cm_stats){ .connects = 13, .established_active = 12, .established_passive = 3, .nodes_now = 5, .connect_errs = 1,
					  .passive_errs = 2, .rejects = 4, .retransmits = 6, .loopbacks = 8 };
}

static void made_up_nic(struct irdma_device *iwdev, struct rnic_device_stats *out)
{
	*out = (struct rnic_device_stats){ 0 };
	if (!strcmp(iwdev->name, "uwarp_lo"))
		*out = (struct rnic_device_stats){
			.qps_created = 20, .qps_now = 7,
			.qp = { .tx_bytes = 123456789, .rx_bytes = 99999, .tx_fpdus = 100, .rx_fpdus = 101,
				.tx_msgs = { [RDMAP_SEND] = 1, [RDMAP_SEND_SE_INV] = 2, [RDMAP_IMM] = 4, [RDMAP_WRITE] = 50, [RDMAP_READ_REQ] = 9,
					     [RDMAP_ATOMIC_REQ] = 11 },
				.rx_msgs = { [RDMAP_SEND] = 31 },
				.terminates_sent = 1, .terminates_received = 2, .completions_in_error = 17 },
		};
}

#define iwcm_for_each_device made_up_devices
#define cm_get_stats made_up_cm
#define rnic_device_get_stats made_up_nic
#include "shim/stats.c"
#include "shim/stats_table.c"
#define print tool_stat_print
#include "tool/json.c"
#include "tool/stat.c"
#undef print

static char last_error[400];

void tool_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, ap);
	va_end(ap);
}

static u32 open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	u32 n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* The server is a thread that may not have got to its socket yet. */
static void find(pid_t pid, struct process *p)
{
	int i;

	for (i = 0; i < 500; i++) {
		if (find_process(pid, p))
			return;
		usleep(10000);
	}
	fail_msg("process %d is not found", (int)pid);
}

static int start(void **state)
{
	(void)state;
	num_devices = 2;
	shim_stats_start(the_ctx);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	shim_stats_stop(false);
	return 0;
}

/* ---- what is told ---- */

static void a_reader_is_told(void **state)
{
	struct process p;
	struct shim_stats *s;
	int err;

	(void)state;
	find(getpid(), &p);
	assert_int_equal(p.pid, getpid());
	assert_int_equal(p.uid, geteuid());
	s = ask(&p, &err);
	assert_non_null(s);
	assert_string_equal(s->program, program_invocation_short_name);
	assert_int_equal(s->devices, 2);
	assert_string_equal(s->device[0].name, "uwarp_lo");
	assert_int_equal(s->device[0].cm.established_active, 12);
	assert_int_equal(s->device[0].nic.qp.tx_bytes, 123456789);
	assert_string_equal(s->device[1].name, "uwarp_eth0");
	assert_int_equal(s->device[1].nic.qps_created, 0);
	free(s);
}

static void started_again_is_the_same_server(void **state)
{
	struct process p, again;
	u32 n = 0;
	FILE *list;

	(void)state;
	find(getpid(), &p);
	close(p.fd);
	shim_stats_start(the_ctx);
	usleep(100000);
	list = open_list();
	assert_non_null(list);
	while (next_process(list, &again)) {
		close(again.fd);
		n += again.pid == getpid();
	}
	fclose(list);
	assert_int_equal(n, 1);
}

static void many_devices_and_none(void **state)
{
	static const u32 numbers[] = { 0, 1, 300 }; /* more than the socket's buffer holds at a time */
	struct process p;
	struct shim_stats *s;
	size_t i;
	int err;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(numbers); i++) {
		num_devices = numbers[i];
		find(getpid(), &p);
		s = ask(&p, &err);
		assert_non_null(s);
		assert_int_equal(s->devices, numbers[i]);
		if (numbers[i])
			assert_int_equal(s->device[(numbers[i] - 1) & ~1u].cm.established_passive, 3);
		free(s);
	}
}

static void a_reader_that_does_not_read_stops_nobody(void **state)
{
	struct process lazy, p;
	struct shim_stats *s;
	int err;

	(void)state;
	num_devices = 1000;
	find(getpid(), &lazy);
	find(getpid(), &p);
	s = ask(&p, &err);
	if (!s) { /* two seconds were too short, with one for the lazy one: a slow machine */
		find(getpid(), &p);
		s = ask(&p, &err);
	}
	assert_non_null(s);
	assert_int_equal(s->devices, 1000);
	free(s);
	close(lazy.fd);
}

static void no_descriptor_of_it_is_the_programs(void **state)
{
	struct process p;
	u32 before, after;

	(void)state;
	before = open_descriptors();
	shim_stats_start(the_ctx);
	find(getpid(), &p);
	close(p.fd);
	after = open_descriptors();
	assert_int_equal(after, before);
	shim_stats_stop(false);
}

static void nothing_is_told_after_the_end(void **state)
{
	struct process p;
	int err;

	(void)state;
	shim_stats_start(the_ctx);
	find(getpid(), &p);
	close(p.fd);
	shim_stats_stop(false);
	p.fd = connect_to(p.name);
	assert_true(p.fd >= 0);
	assert_null(ask(&p, &err));
	assert_int_equal(err, -EACCES);
}

/* ---- fork ---- */

static void child(int ready, int go)
{
	char c = 0;

	shim_stats_fork_child();
	shim_stats_start(the_ctx);
	if (write(ready, &c, 1) != 1 || read(go, &c, 1) != 1)
		_exit(1);
	_exit(0);
}

static void a_child_tells_of_itself(void **state)
{
	int ready[2], go[2], status;
	struct process p;
	pid_t pid;
	char c;

	(void)state;
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
	skip(); /* it allows a child of a process with threads no thread */
#endif
#endif
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (!pid)
		child(ready[1], go[0]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	find(pid, &p);
	close(p.fd);
	find(getpid(), &p);
	close(p.fd);
	assert_int_equal(write(go[1], "", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_false(find_process(pid, &p));
	close(ready[0]);
	close(ready[1]);
	close(go[0]);
	close(go[1]);
}

/* ---- answers that lie ---- */

static struct shim_stats *answer(const void *data, size_t len, int *err)
{
	struct shim_stats *s;
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	assert_int_equal(write(fd[1], data, len), len);
	close(fd[1]);
	s = read_stats(fd[0], err);
	close(fd[0]);
	return s;
}

static void answers_that_lie_are_refused(void **state)
{
	static const struct shim_stats good = {
		.magic = SHIM_STATS_MAGIC, .version = SHIM_STATS_VERSION, .device_size = sizeof(struct shim_stats_device),
	};
	struct shim_stats bad[5] = { good, good, good, good, good }, *s;
	size_t i;
	int err;

	(void)state;
	bad[0].magic++;
	bad[1].version++;
	bad[2].device_size--;
	bad[3].devices = SHIM_STATS_DEVICES + 1;
	bad[4].devices = 1; /* and does not come */
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_null(answer(&bad[i], sizeof(bad[i]), &err));
		assert_int_equal(err, -EPROTO);
	}
	assert_null(answer(&good, sizeof(good) - 1, &err));
	assert_int_equal(err, -EACCES);
	s = answer(&good, sizeof(good), &err);
	assert_non_null(s);
	free(s);
}

static void names_without_an_end_and_with_escapes(void **state)
{
	struct shim_stats *s = calloc(1, stats_size(1));

	(void)state;
	assert_non_null(s);
	s->devices = 1;
	memset(s->program, 'x', sizeof(s->program));
	s->program[0] = 033;
	memset(s->device[0].name, 'y', sizeof(s->device[0].name));
	s->device[0].name[1] = 0x7F;
	s->device[0].name[2] = 033;
	make_clean(s);
	assert_int_equal(s->program[0], '?');
	assert_int_equal(strlen(s->program), sizeof(s->program) - 1);
	assert_int_equal(strlen(s->device[0].name), sizeof(s->device[0].name) - 1);
	assert_memory_equal(s->device[0].name, "y??y", 4);
	free(s);
}

static void names_in_the_list_of_sockets(void **state)
{
	char good[] = "0000000000000000: 00000002 00000000 00010000 0001 01 12345 @uwarp-stat-0123456789abcdef\n";
	char accepted[] = "0000000000000000: 00000002 00000000 00000000 0001 03 12345 @uwarp-stat-0123456789abcdef\n";
	char longer[] = "0000000000000000: 00000002 00000000 00010000 0001 01 12345 @uwarp-stat-0123456789abcdef0\n";
	char other[] = "0000000000000000: 00000002 00000000 00010000 0001 01 12345 @/tmp/.X11-unix/X0\n";
	char path[] = "0000000000000000: 00000002 00000000 00010000 0001 01 12345 /tmp/uwarp-stat-0123456789abcdef\n";

	(void)state;
	assert_string_equal(socket_name(good), "uwarp-stat-0123456789abcdef");
	assert_null(socket_name(accepted));
	assert_null(socket_name(longer));
	assert_null(socket_name(other));
	assert_null(socket_name(path));
}

/* ---- tables ---- */

static void numbers_fit_their_columns(void **state)
{
	static const struct {
		u64 n;
		const char *text;
	} cases[] = {
		{ 0, "0" }, { 99999, "99999" }, { 100000, "100 k" }, { 999499, "999 k" }, { 999500, "1.00 M" }, { 9994999, "9.99 M" },
		{ 9995000, "10.0 M" }, { 123456789, "123 M" }, { 99950000000, "100 G" }, { UINT64_MAX, "18.4 E" },
	};
	char buf[16];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(scaled(cases[i].n, buf), cases[i].text);
}

static void the_tables(void **state)
{
	struct shim_stats *s;
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	(void)state;
	s = collect_locked();
	assert_non_null(s);
	s->up_ns = 2500 * NSEC_PER_MSEC;
	snprintf(s->program, sizeof(s->program), "rping");
	shim_stats_print(f, s, 42);
	fclose(f);
	free(s);
	assert_string_equal(text,
		"uwarp: rping, process 42, after 2.5 s\n"
		"connections             out       in      now   failed rejected  retries      QPs  QPs now loopback\n"
		"uwarp_lo                 12        3        5        3        4        6       20        7        8\n"
		"data                       bytes    FPDUs    Sends   Writes    Reads  atomics  Termin.  WC errs\n"
		"uwarp_lo           out     123 M      100        7       50        9       11        1       17\n"
		"                   in      99999      101       31        0        0        0        2\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_descriptor_of_it_is_the_programs),
		cmocka_unit_test_setup_teardown(a_reader_is_told, start, stop),
		cmocka_unit_test_setup_teardown(started_again_is_the_same_server, start, stop),
		cmocka_unit_test_setup_teardown(many_devices_and_none, start, stop),
		cmocka_unit_test_setup_teardown(a_reader_that_does_not_read_stops_nobody, start, stop),
		cmocka_unit_test_setup_teardown(a_child_tells_of_itself, start, stop),
		cmocka_unit_test_setup_teardown(the_tables, start, stop),
		cmocka_unit_test(nothing_is_told_after_the_end),
		cmocka_unit_test(answers_that_lie_are_refused),
		cmocka_unit_test(names_without_an_end_and_with_escapes),
		cmocka_unit_test(names_in_the_list_of_sockets),
		cmocka_unit_test(numbers_fit_their_columns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
