// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* iwcm across fork(): children that do not care, that begin anew, and that take their parent's place. Real forks, the kernel's TCP on 127.0.0.0/8. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "iwcm/iwcm_nic.h"

#define WAIT_MS 20000
#define SOON_MS 300 /* for what must not happen */

static struct iwcm_ctx *ctx;

/* In children: cmocka's assertions are the parent's. The exit status is the line that failed, modulo 251. */
#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "child: line %d: %s\n", __LINE__, #x); \
			_exit(__LINE__ % 251 + 1); \
		} \
	} while (0)

static pid_t fork_ctx(struct iwcm_ctx *c)
{
	pid_t pid;

	iwcm_fork_prepare(c);
	pid = fork();
	if (pid)
		iwcm_fork_parent(c);
	else
		iwcm_fork_child(c);
	return pid;
}

static void reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static struct sockaddr_in loopback(u16 port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

/* These return what went wrong, so that both sides of a fork can use them. */

static int listen_any(struct iwcm_ctx *c, struct iwcm_id **id, u16 *port)
{
	struct sockaddr_in in = loopback(0);
	struct sockaddr_storage ss;
	int err = iwcm_create_id(c, NULL, id);

	if (!err)
		err = iwcm_bind(*id, (struct sockaddr *)&in);
	if (!err)
		err = iwcm_local_addr(*id, &ss);
	*port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
	return err ? err : iwcm_listen(*id, 8);
}

static int next(struct iwcm_ctx *c, enum iwcm_event_type type, struct iwcm_id **id)
{
	struct iwcm_event ev;
	int err = iwcm_get_event(c, &ev, WAIT_MS);

	if (err)
		return err;
	if (id)
		*id = ev.id;
	if (ev.type != type)
		fprintf(stderr, "%s (%s) and not %s\n", iwcm_event_str(ev.type), strerror(-ev.status), iwcm_event_str(type));
	return ev.type == type ? 0 : -EPROTO;
}

static int start_connect(struct iwcm_ctx *c, u16 port, struct iwcm_id **id)
{
	struct sockaddr_in in = loopback(port);
	int err = iwcm_create_id(c, NULL, id);

	if (!err)
		err = iwcm_resolve(*id, NULL, (struct sockaddr *)&in);
	if (!err)
		err = next(c, IWCM_EVENT_RESOLVED, NULL);
	return err ? err : iwcm_connect(*id, NULL);
}

static int serve_one(struct iwcm_ctx *c, struct iwcm_id **id)
{
	int err = next(c, IWCM_EVENT_CONNECT_REQUEST, id);

	if (!err)
		err = iwcm_accept(*id, NULL);
	return err ? err : next(c, IWCM_EVENT_ESTABLISHED, NULL);
}

/* Both ends in one process: two ESTABLISHED, in either order. */
static int connect_self(struct iwcm_ctx *c, u16 port, struct iwcm_id *ends[2])
{
	int err = start_connect(c, port, &ends[0]);

	if (!err)
		err = next(c, IWCM_EVENT_CONNECT_REQUEST, &ends[1]);
	if (!err)
		err = iwcm_accept(ends[1], NULL);
	if (!err)
		err = next(c, IWCM_EVENT_ESTABLISHED, NULL);
	return err ? err : next(c, IWCM_EVENT_ESTABLISHED, NULL);
}

/*
 * A context whose NIC thread has begun to work. Before, it may be inside the sanitizer's allocator, whose locks fork() copies as they are; that of
 * the C library is safe.
 */
static int open_ctx(struct iwcm_ctx **c)
{
	struct iwcm_id *listener, *ends[2];
	u16 port;
	int err = iwcm_open("lo", c);

	if (!err)
		err = listen_any(*c, &listener, &port);
	if (!err)
		err = connect_self(*c, port, ends);
	if (err)
		return err;
	iwcm_destroy_id(ends[0]);
	iwcm_destroy_id(ends[1]);
	iwcm_destroy_id(listener);
	return 0;
}

static int setup(void **state)
{
	return open_ctx(&ctx);
}

static int teardown(void **state)
{
	iwcm_close(ctx);
	return 0;
}

static void no_event(struct iwcm_ctx *c)
{
	struct iwcm_event ev;

	assert_int_equal(iwcm_get_event(c, &ev, SOON_MS), -EAGAIN);
}

static void tell(int fd, u16 value)
{
	CHECK(write(fd, &value, sizeof(value)) == sizeof(value));
}

static u16 hear(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	u16 value = 0;

	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
	return value;
}

/* A child that waits until it is let go, and then does nothing but end. */
static pid_t idle_child(int go[2])
{
	pid_t pid;
	char c;

	assert_int_equal(pipe(go), 0);
	pid = fork_ctx(ctx);
	if (pid) {
		close(go[0]);
		return pid;
	}
	close(go[1]);
	CHECK(read(go[0], &c, 1) == 0);
	_exit(0);
}

static void let_go(pid_t pid, int go[2])
{
	close(go[1]);
	reap(pid);
}

/* ---- children that do not care ---- */

static void parent_is_not_disturbed(void **state)
{
	struct iwcm_id *listener, *before[2], *during[2], *after[2];
	pid_t pid;
	int go[2];
	u16 port;

	assert_int_equal(listen_any(ctx, &listener, &port), 0);
	assert_int_equal(connect_self(ctx, port, before), 0);
	pid = idle_child(go);
	assert_int_equal(connect_self(ctx, port, during), 0);
	let_go(pid, go);
	no_event(ctx);
	assert_int_equal(connect_self(ctx, port, after), 0);
	assert_int_equal(iwcm_disconnect(before[0]), 0);
	assert_int_equal(next(ctx, IWCM_EVENT_DISCONNECTED, NULL), 0);
}

/* The child destroys what it has, as exit handlers do; the parent's stays. */
static void destroyed_in_the_child(void **state)
{
	struct iwcm_id *listener, *ends[2], *more[2];
	pid_t pid;
	u16 port;

	assert_int_equal(listen_any(ctx, &listener, &port), 0);
	assert_int_equal(connect_self(ctx, port, ends), 0);
	pid = fork_ctx(ctx);
	if (!pid) {
		iwcm_destroy_id(ends[0]);
		iwcm_destroy_id(listener);
		iwcm_close(ctx);
		_exit(0);
	}
	reap(pid);
	no_event(ctx);
	assert_int_equal(connect_self(ctx, port, more), 0);
	assert_int_equal(iwcm_disconnect(ends[0]), 0);
	assert_int_equal(next(ctx, IWCM_EVENT_DISCONNECTED, NULL), 0);
}

/* What the parent ends has ended, although the child still has the descriptors. */
static void child_keeps_nothing_alive(void **state)
{
	struct sockaddr_in in;
	struct iwcm_id *listener, *ends[2];
	int go[2], fd;
	pid_t pid;
	u16 port;

	assert_int_equal(listen_any(ctx, &listener, &port), 0);
	assert_int_equal(connect_self(ctx, port, ends), 0);
	pid = idle_child(go);
	iwcm_destroy_id(ends[0]);
	assert_int_equal(next(ctx, IWCM_EVENT_DISCONNECTED, NULL), 0);
	iwcm_destroy_id(listener);
	in = loopback(port);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), -1);
	assert_int_equal(errno, ECONNREFUSED);
	close(fd);
	let_go(pid, go);
}

/* Many forks beside a thread that connects: no deadlock, nobody steals. */
static void forks_under_load(void **state)
{
	struct iwcm_id *listener, *ends[2];
	pid_t pids[20];
	size_t i;
	u16 port;

	assert_int_equal(listen_any(ctx, &listener, &port), 0);
	for (i = 0; i < ARRAY_SIZE(pids); i++) {
		pids[i] = fork_ctx(ctx);
		if (!pids[i])
			_exit(0);
		assert_int_equal(connect_self(ctx, port, ends), 0);
		iwcm_destroy_id(ends[0]);
		assert_int_equal(next(ctx, IWCM_EVENT_DISCONNECTED, NULL), 0);
		assert_int_equal(next(ctx, IWCM_EVENT_CLOSED, NULL), 0);
		iwcm_destroy_id(ends[1]);
	}
	for (i = 0; i < ARRAY_SIZE(pids); i++)
		reap(pids[i]);
}

/* ---- children that begin anew ---- */

static void child_begins_anew(void **state)
{
	struct iwcm_id *listener, *own, *ends[2];
	u16 port, other;
	pid_t pid;
	int i;

	assert_int_equal(listen_any(ctx, &listener, &port), 0);
	pid = fork_ctx(ctx);
	if (!pid) {
		CHECK(!listen_any(ctx, &own, &other));
		CHECK(other != port);
		for (i = 0; i < 20; i++)
			CHECK(!connect_self(ctx, other, ends));
		iwcm_close(ctx);
		_exit(0);
	}
	/* None of these goes to the child. */
	for (i = 0; i < 20; i++)
		assert_int_equal(connect_self(ctx, port, ends), 0);
	reap(pid);
}

static void child_connects_to_its_parent(void **state)
{
	struct iwcm_id *listener, *id;
	u16 port;
	pid_t pid;

	assert_int_equal(listen_any(ctx, &listener, &port), 0);
	pid = fork_ctx(ctx);
	if (!pid) {
		CHECK(!start_connect(ctx, port, &id));
		CHECK(!next(ctx, IWCM_EVENT_ESTABLISHED, NULL));
		CHECK(!iwcm_disconnect(id));
		CHECK(!next(ctx, IWCM_EVENT_DISCONNECTED, NULL));
		_exit(0);
	}
	assert_int_equal(serve_one(ctx, &id), 0);
	assert_int_equal(next(ctx, IWCM_EVENT_DISCONNECTED, NULL), 0);
	reap(pid);
}

/* Without ids there is nothing to wait for: no thread, no pidfd. */
static void without_ids_no_thread(void **state)
{
	pid_t pid = fork_ctx(ctx);
	struct iwcm_id *own, *ends[2];
	u16 port;

	if (!pid) {
		CHECK(access("/proc/self/task", F_OK) == 0);
		CHECK(system("[ $(ls /proc/$PPID/task | wc -l) = 1 ]") == 0);
		CHECK(!listen_any(ctx, &own, &port));
		CHECK(!connect_self(ctx, port, ends));
		_exit(0);
	}
	reap(pid);
}

/* ---- children that take their parent's place ---- */

/* What a daemon does from the moment that its ids are its own: one connection, and its orderly end. */
static void be_daemon(struct iwcm_ctx *c)
{
	struct iwcm_id *id;

	CHECK(!serve_one(c, &id));
	CHECK(!next(c, IWCM_EVENT_DISCONNECTED, NULL));
	CHECK(!next(c, IWCM_EVENT_CLOSED, NULL));
	iwcm_destroy_id(id);
	iwcm_close(c);
	_exit(0);
}

/* A process that opens a context, listens, tells its port and forks @depth times; each parent ends, and the last child is the daemon. */
static pid_t start_daemon(int depth, int report)
{
	struct iwcm_ctx *c;
	struct iwcm_id *id;
	pid_t pid = fork();
	u16 port;

	if (pid)
		return pid;
	CHECK(!open_ctx(&c));
	CHECK(!listen_any(c, &id, &port));
	while (depth--) {
		pid = fork_ctx(c);
		CHECK(pid >= 0);
		if (pid)
			_exit(0);
	}
	tell(report, port);
	be_daemon(c);
	return -1;
}

static void use_daemon(int depth)
{
	struct iwcm_id *id;
	int report[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(report), 0);
	pid = start_daemon(depth, report[1]);
	close(report[1]);
	reap(pid);
	assert_int_equal(start_connect(ctx, hear(report[0]), &id), 0);
	assert_int_equal(next(ctx, IWCM_EVENT_ESTABLISHED, NULL), 0);
	assert_int_equal(iwcm_disconnect(id), 0);
	assert_int_equal(next(ctx, IWCM_EVENT_DISCONNECTED, NULL), 0);
	assert_int_equal(read(report[0], &c, 1), 0); /* the daemon has ended */
	close(report[0]);
}

static void daemon_goes_on(void **state)
{
	use_daemon(1);
}

static void daemon_of_two_forks(void **state)
{
	use_daemon(2);
}

/* A connection is inherited, too: it ends in order from the child. */
static void connection_is_inherited(void **state)
{
	struct iwcm_id *listener, *id, *mine;
	int go[2], up[2];
	pid_t pid;
	u16 port;
	char c;

	assert_int_equal(listen_any(ctx, &listener, &port), 0);
	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(up), 0);
	pid = fork();
	if (!pid) {
		struct iwcm_ctx *other;

		close(go[1]);
		CHECK(!open_ctx(&other));
		CHECK(!start_connect(other, port, &mine));
		CHECK(!next(other, IWCM_EVENT_ESTABLISHED, NULL));
		if (fork_ctx(other))
			_exit(0);
		CHECK(read(go[0], &c, 1) == 0);
		CHECK(!iwcm_fork_adopt(other));
		CHECK(!iwcm_disconnect(mine));
		CHECK(!next(other, IWCM_EVENT_DISCONNECTED, NULL));
		iwcm_close(other);
		_exit(0);
	}
	close(up[1]);
	close(up[0]);
	close(go[0]);
	assert_int_equal(serve_one(ctx, &id), 0);
	reap(pid);
	no_event(ctx); /* the process that connected has ended, but its child has the connection */
	close(go[1]);
	assert_int_equal(next(ctx, IWCM_EVENT_DISCONNECTED, NULL), 0);
	assert_int_equal(next(ctx, IWCM_EVENT_CLOSED, NULL), 0);
}

/* The user hears of it: in a thread that is not the one that sits in poll(). */
static void notified(void *arg)
{
	tell(*(int *)arg, 1);
	_exit(0);
}

static void child_is_told_of_the_end(void **state)
{
	int report[2], fd;
	pid_t pid;

	assert_int_equal(pipe(report), 0);
	pid = fork();
	if (!pid) {
		struct iwcm_ctx *c;
		struct iwcm_id *id;
		u16 port;

		CHECK(!open_ctx(&c));
		fd = report[1];
		iwcm_fork_notify(c, notified, &fd);
		CHECK(!listen_any(c, &id, &port));
		if (fork_ctx(c))
			_exit(0);
		pause(); /* poll() of a program that waits for its channel */
		_exit(0);
	}
	close(report[1]);
	reap(pid);
	assert_int_equal(hear(report[0]), 1);
	close(report[0]);
}

/* Explicitly, while the parent lives. */
static void adopted_beside_the_parent(void **state)
{
	int report[2], go[2];
	struct iwcm_id *id;
	pid_t pid;
	u16 port;
	char c;

	assert_int_equal(pipe(report), 0);
	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (!pid) {
		struct iwcm_ctx *other;

		close(go[1]);
		CHECK(!open_ctx(&other));
		CHECK(!listen_any(other, &id, &port));
		pid = fork_ctx(other);
		if (pid) {
			/* Its NIC thread stands still, so that who serves is certain. */
			iwcm_fork_prepare(other);
			tell(report[1], port);
			close(report[1]);
			CHECK(read(go[0], &c, 1) == 0);
			_exit(0);
		}
		CHECK(!iwcm_fork_adopt(other));
		CHECK(!iwcm_fork_adopt(other));
		be_daemon(other);
	}
	close(go[0]);
	close(report[1]);
	assert_int_equal(start_connect(ctx, hear(report[0]), &id), 0);
	assert_int_equal(next(ctx, IWCM_EVENT_ESTABLISHED, NULL), 0);
	assert_int_equal(iwcm_disconnect(id), 0);
	assert_int_equal(next(ctx, IWCM_EVENT_DISCONNECTED, NULL), 0);
	assert_int_equal(read(report[0], &c, 1), 0);
	close(go[1]);
	close(report[0]);
	reap(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(parent_is_not_disturbed, setup, teardown),
		cmocka_unit_test_setup_teardown(destroyed_in_the_child, setup, teardown),
		cmocka_unit_test_setup_teardown(child_keeps_nothing_alive, setup, teardown),
		cmocka_unit_test_setup_teardown(forks_under_load, setup, teardown),
		cmocka_unit_test_setup_teardown(child_begins_anew, setup, teardown),
		cmocka_unit_test_setup_teardown(child_connects_to_its_parent, setup, teardown),
		cmocka_unit_test_setup_teardown(without_ids_no_thread, setup, teardown),
		cmocka_unit_test_setup_teardown(daemon_goes_on, setup, teardown),
		cmocka_unit_test_setup_teardown(daemon_of_two_forks, setup, teardown),
		cmocka_unit_test_setup_teardown(connection_is_inherited, setup, teardown),
		cmocka_unit_test_setup_teardown(child_is_told_of_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(adopted_beside_the_parent, setup, teardown),
	};

	alarm(240);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
