// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* base/lock: mutexes and conditions, alone and from several threads. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/lock.h"

#define THREADS 4
#define ROUNDS 20000

static struct mutex lock;
static struct cond turn_changed;
static u32 sum, turn, inside;

/* While there is one thread; the functions that look at that take nothing. */
static void takes_and_gives(void **state)
{
	struct mutex m = { 0 };

	assert_true(mutex_try_take(&m));
	assert_false(mutex_try_take(&m));
	mutex_give(&m);
	mutex_take(&m);
	assert_false(mutex_try_take(&m));
	mutex_give(&m);
	assert_int_equal(m.state, MUTEX_FREE);
}

/* Plain variables: ThreadSanitizer, too, must find them guarded. */
static void *add(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (i % 3 || !mutex_try_take(&lock))
			mutex_take(&lock);
		inside++;
		if (inside == 1)
			sum++;
		inside--;
		mutex_give(&lock);
	}
	return NULL;
}

static void one_at_a_time(void **state)
{
	pthread_t th[THREADS];

	sum = 0;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&th[i], NULL, add, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(th[i], NULL);
	assert_int_equal(sum, THREADS * ROUNDS);
	assert_int_equal(lock.state, MUTEX_FREE);
}

static void *take_and_give(void *arg)
{
	errno = 0;
	mutex_take(&lock);
	mutex_give(&lock);
	return (void *)(intptr_t)errno;
}

/* Who sleeps is woken, and finds errno as it was. */
static void sleeper_is_woken(void **state)
{
	pthread_t th[THREADS];
	void *error;

	mutex_take(&lock);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&th[i], NULL, take_and_give, NULL), 0);
	while (__atomic_load_n(&lock.state, __ATOMIC_RELAXED) != MUTEX_WANTED)
		usleep(1000);
	mutex_give(&lock);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(th[i], &error);
		assert_null(error);
	}
}

static void *take_turns(void *arg)
{
	u32 self = (u32)(uintptr_t)arg;

	mutex_take(&lock);
	for (int i = 0; i < ROUNDS / 100; i++) {
		while (turn != self)
			cond_wait(&turn_changed, &lock);
		turn = (turn + 1) % THREADS;
		sum++;
		cond_broadcast(&turn_changed);
	}
	mutex_give(&lock);
	return NULL;
}

static void broadcast_wakes_all(void **state)
{
	pthread_t th[THREADS];

	sum = turn = 0;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&th[i], NULL, take_turns, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(th[i], NULL);
	assert_int_equal(sum, THREADS * (ROUNDS / 100));
	assert_int_equal(turn_changed.waiters, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_and_gives),
		cmocka_unit_test(one_at_a_time),
		cmocka_unit_test(sleeper_is_woken),
		cmocka_unit_test(broadcast_wakes_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
