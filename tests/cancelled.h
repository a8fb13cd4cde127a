/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A thread that is to be cancelled, and works on to the end of its calls. */
#ifndef UWARP_TESTS_CANCELLED_H
#define UWARP_TESTS_CANCELLED_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* @work: cancels its own thread, does something, sets the bool that it is given, and is a cancellation point at its end. */
static inline void assert_done_when_cancelled(void *(*work)(void *done))
{
	bool done = false;
	pthread_t t;
	void *end;

	assert_int_equal(pthread_create(&t, NULL, work, &done), 0);
	assert_int_equal(pthread_join(t, &end), 0);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	assert_true(done);
}

#endif
