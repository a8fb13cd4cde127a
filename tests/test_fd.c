// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* base: the NIC's own descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/base.h"

static int open_one(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void test_own(void **state)
{
	int fd = fd_own(open_one());

	assert_true(fd_is_own(fd));
	assert_int_equal(fd_next_own(0), fd);
	assert_int_equal(fd_next_own((unsigned int)fd), fd);
	assert_int_equal(fd_next_own((unsigned int)fd + 1), -1);
	fd_disown_close(fd);
	assert_false(is_open(fd));
	assert_false(fd_is_own(fd));
	assert_int_equal(fd_next_own(0), -1);
}

/* What failed to open, and what is too high to be known. */
static void test_outside(void **state)
{
	static const int none[] = { -1, -EMFILE, FD_MAX, INT32_MAX };
	size_t i;

	errno = 7;
	for (i = 0; i < ARRAY_SIZE(none); i++) {
		assert_int_equal(fd_own(none[i]), none[i]);
		assert_false(fd_is_own(none[i]));
		fd_spare(none[i]);
		fd_disown(none[i]);
	}
	assert_int_equal(fd_own_high(-1), -1);
	fd_disown_close(-1);
	assert_int_equal(errno, 7);
	assert_false(fd_reown(-1));
	assert_int_equal(fd_next_own(~0u), -1);
	fd_taken(0, ~0u);
	fd_taken(~0u, ~0u);
}

static void test_high(void **state)
{
	int low = open_one(), fd = fd_own_high(low);

	assert_true(fd >= 512);
	assert_false(is_open(low));
	assert_true(fd_is_own(fd) && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	fd_disown_close(fd);
}

/* The number may be somebody else's by now. */
static void test_not_own_is_not_closed(void **state)
{
	int fd = open_one();

	fd_disown_close(fd);
	assert_true(is_open(fd));
	fd_own(fd);
	fd_disown(fd);
	fd_disown_close(fd);
	assert_true(is_open(fd));
	close(fd);
}

static void test_spare(void **state)
{
	int a = fd_own(open_one()), b = fd_own(open_one());

	fd_spare(a);
	fd_spare(b);
	assert_false(fd_is_own(a));
	fd_taken((unsigned int)b, (unsigned int)b);
	assert_true(fd_reown(a));
	assert_true(fd_is_own(a) && fd_reown(a));
	assert_false(fd_reown(b));
	fd_disown_close(b);
	assert_true(is_open(b));
	fd_spare(a);
	fd_disown_close(a);
	assert_false(is_open(a));
	close(b);
}

static void test_process(void **state)
{
	int status, fd = fd_own(open_one());
	pid_t pid;

	assert_true(fd_same_process());
	pid = fork();
	if (!pid) {
		bool other = !fd_same_process();

		fd_fork_child();
		_exit(other && fd_same_process() ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	fd_disown_close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own), cmocka_unit_test(test_outside), cmocka_unit_test(test_high),
		cmocka_unit_test(test_not_own_is_not_closed), cmocka_unit_test(test_spare), cmocka_unit_test(test_process),
	};

	return cmocka_run_group_tests_name("fd", tests, NULL, NULL);
}
