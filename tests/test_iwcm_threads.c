// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm with many threads on the host port: makers connect to listeners that come and go, other threads take events, disconnect,
 * abort and destroy at random. Checked: order of events, none after destroy, nothing left at the end (iwcm_close asserts). Under TSan: no races.
 *
 * The program's own rule, as the manual asks for: a call on an id begins before its destruction. Calls hold
 * the actor's lock shared, who destroys takes it exclusively to take the id away, and destroys without it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "iwcm/iwcm_nic.h"

#define MAKERS 3
#define TAKERS 2
#define ACTORS 20000    /* ids in one run, at most */
#define LIVE 100        /* ids that makers leave at a time: a NIC thread that is kept waiting must still get something done */
#define BUCKETS 1024

struct actor {
	struct actor *next;       /* by id, table lock */
	pthread_rwlock_t lock;
	struct iwcm_id *id;       /* NULL: destroyed, or about to be */
	bool listener, passive;
	bool dead;                /* iwcm_destroy_id() has returned; atomic */
	unsigned int count[IWCM_EVENT_DEVICE_REMOVED + 1]; /* table lock */
};

static struct iwcm_ctx *ctx;
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static struct actor *bucket[BUCKETS], actors[ACTORS];
static size_t used;
static bool stop;
static u16 ports[2];
static unsigned long established, ended;
static int live; /* atomic */

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			abort(); \
		} \
	} while (0)

static bool stopping(void) { return __atomic_load_n(&stop, __ATOMIC_RELAXED); }

/* ---- the table; its lock held ---- */

static struct actor **slot(const struct iwcm_id *id)
{
	return &bucket[((uintptr_t)id >> 4) % BUCKETS];
}

static struct actor *add(struct iwcm_id *id, bool listener, bool passive)
{
	struct actor *a;

	if (used == ACTORS)
		return NULL;
	a = &actors[used++];
	*a = (struct actor){ .id = id, .listener = listener, .passive = passive, .next = *slot(id) };
	pthread_rwlock_init(&a->lock, NULL);
	*slot(id) = a;
	__atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
	iwcm_set_user(id, a);
	return a;
}

static struct actor *find(const struct iwcm_id *id)
{
	struct actor *a;

	for (a = *slot(id); a; a = a->next)
		if (a->id == id)
			return a;
	return NULL;
}

static void unhash(struct actor *a, const struct iwcm_id *id)
{
	struct actor **p;

	for (p = slot(id); *p != a; p = &(*p)->next)
		;
	*p = a->next;
}

static void check_order(struct actor *a, const struct iwcm_event *ev)
{
	unsigned int *n = a->count;

	if (n[ev->type] || n[IWCM_EVENT_CLOSED] || n[IWCM_EVENT_REJECTED] || n[IWCM_EVENT_CONNECT_ERROR])
		for (size_t i = 0; i <= IWCM_EVENT_DEVICE_REMOVED; i++)
			fprintf(stderr, "%s: %s (status %d) behind %u of %s\n", a->passive ? "passive" : "active", iwcm_event_str(ev->type), ev->status,
				n[i], iwcm_event_str((enum iwcm_event_type)i));
	CHECK(!n[ev->type] && !n[IWCM_EVENT_CLOSED] && !n[IWCM_EVENT_REJECTED] && !n[IWCM_EVENT_CONNECT_ERROR]);
	if (ev->type == IWCM_EVENT_DISCONNECTED)
		CHECK(n[IWCM_EVENT_ESTABLISHED]);
	if (ev->type == IWCM_EVENT_CLOSED)
		CHECK(n[IWCM_EVENT_ESTABLISHED] == n[IWCM_EVENT_DISCONNECTED]);
	if (ev->type == IWCM_EVENT_ESTABLISHED)
		CHECK(n[a->passive ? IWCM_EVENT_CONNECT_REQUEST : IWCM_EVENT_RESOLVED]);
	n[ev->type]++;
}

/* ---- what threads do to an actor ---- */

static struct iwcm_id *begin(struct actor *a)
{
	pthread_rwlock_rdlock(&a->lock);
	if (a->id)
		return a->id;
	pthread_rwlock_unlock(&a->lock);
	return NULL;
}

static void end(struct actor *a)
{
	pthread_rwlock_unlock(&a->lock);
}

static void kill(struct actor *a)
{
	struct iwcm_id *id;

	pthread_mutex_lock(&table);
	pthread_rwlock_wrlock(&a->lock);
	id = a->id;
	a->id = NULL;
	if (id)
		unhash(a, id);
	pthread_rwlock_unlock(&a->lock);
	pthread_mutex_unlock(&table);
	iwcm_destroy_id(id);
	if (!id)
		return;
	__atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&a->dead, true, __ATOMIC_RELEASE);
}

static struct actor *anyone(struct rand_gen *g)
{
	struct actor *a;

	pthread_mutex_lock(&table);
	a = used ? &actors[used - 1 - rand_gen_below(g, min(used, (size_t)64))] : NULL;
	pthread_mutex_unlock(&table);
	return a;
}

static void meddle(struct rand_gen *g)
{
	struct actor *a = anyone(g);
	u64 what = rand_gen_below(g, 10);
	struct sockaddr_storage ss;
	struct iwcm_id *id;

	if (!a)
		return;
	if (what == 0 || (what == 1 && a->listener)) {
		kill(a);
		return;
	}
	id = begin(a);
	if (!id)
		return;
	if (what == 1)
		iwcm_abort(id);
	else if (what <= 3)
		iwcm_disconnect(id);
	else if (what == 4)
		iwcm_reject(id, "x", 1);
	else if (what == 5)
		iwcm_accept(id, NULL);
	else
		iwcm_remote_addr(id, &ss);
	end(a);
}

static void on_event(struct actor *a, const struct iwcm_event *ev)
{
	struct iwcm_id *id;

	switch (ev->type) {
	case IWCM_EVENT_CONNECT_REQUEST:
	case IWCM_EVENT_RESOLVED:
		id = begin(a);
		if (!id)
			break;
		if (ev->type == IWCM_EVENT_RESOLVED)
			iwcm_connect(id, NULL);
		else
			iwcm_accept(id, NULL);
		end(a);
		break;
	case IWCM_EVENT_ESTABLISHED:
		__atomic_fetch_add(&established, 1, __ATOMIC_RELAXED);
		id = a->passive ? NULL : begin(a);
		if (id) {
			iwcm_disconnect(id);
			end(a);
		}
		break;
	case IWCM_EVENT_RESOLVE_ERROR:
	case IWCM_EVENT_REJECTED:
	case IWCM_EVENT_CONNECT_ERROR:
	case IWCM_EVENT_CLOSED:
		__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
		kill(a);
		break;
	default:
		break;
	}
}

/* ---- threads ---- */

static struct sockaddr_in where(size_t i)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(ports[i]), .sin_addr = { htonl(i ? INADDR_LOOPBACK + 1 : INADDR_LOOPBACK) } };
}

static void *maker(void *arg)
{
	struct rand_gen g;

	rand_gen_seed(&g, (uintptr_t)arg);
	while (!stopping()) {
		struct sockaddr_in to = where(rand_gen_below(&g, 2));
		struct iwcm_id *id;
		struct actor *a;

		CHECK(!iwcm_create_id(ctx, NULL, &id));
		pthread_mutex_lock(&table);
		a = add(id, false, false);
		pthread_mutex_unlock(&table);
		if (!a) {
			iwcm_destroy_id(id);
			break;
		}
		id = begin(a);
		if (id) {
			iwcm_resolve(id, NULL, (struct sockaddr *)&to);
			end(a);
		}
		do {
			usleep((unsigned int)rand_gen_below(&g, 2000));
		} while (__atomic_load_n(&live, __ATOMIC_RELAXED) > LIVE && !stopping());
		while (rand_gen_chance(&g, 0.5))
			meddle(&g);
	}
	return NULL;
}

/* One of two listeners: it comes and goes. */
static void *listener(void *arg)
{
	size_t i = (uintptr_t)arg & 1;
	struct rand_gen g;

	rand_gen_seed(&g, 100 + (uintptr_t)arg);
	while (!stopping()) {
		struct sockaddr_in at = where(i);
		struct iwcm_id *id;
		struct actor *a;

		if (i && rand_gen_chance(&g, 0.5))
			at.sin_addr.s_addr = INADDR_ANY;
		CHECK(!iwcm_create_id(ctx, NULL, &id));
		pthread_mutex_lock(&table);
		a = add(id, true, false);
		pthread_mutex_unlock(&table);
		if (!a) {
			iwcm_destroy_id(id);
			break;
		}
		id = begin(a);
		if (id) {
			if (!iwcm_bind(id, (struct sockaddr *)&at))
				iwcm_listen(id, 32);
			end(a);
		}
		usleep((unsigned int)rand_gen_below(&g, 100000));
		kill(a);
	}
	return NULL;
}

/* Taking an event and finding its actor are one step, so that an address used again cannot be mistaken. */
static struct actor *take(struct iwcm_event *ev)
{
	struct actor *a = NULL;

	pthread_mutex_lock(&table);
	if (!iwcm_get_event(ctx, ev, 0)) {
		if (ev->type == IWCM_EVENT_CONNECT_REQUEST)
			a = add(ev->id, false, true);
		else
			a = find(ev->id);
		if (a)
			check_order(a, ev);
		else if (ev->type != IWCM_EVENT_CONNECT_REQUEST)
			ev->id = NULL; /* its actor is in kill() */
	} else {
		ev->id = NULL;
	}
	pthread_mutex_unlock(&table);
	return a;
}

static void *taker(void *arg)
{
	struct rand_gen g;

	rand_gen_seed(&g, 200 + (uintptr_t)arg);
	while (!stopping()) {
		struct iwcm_event ev;
		struct actor *a = take(&ev);

		if (a)
			on_event(a, &ev);
		else if (ev.id)
			iwcm_destroy_id(ev.id); /* no actor left for it */
		else
			usleep(100);
		if (rand_gen_chance(&g, 0.1))
			meddle(&g);
	}
	return NULL;
}

/* Waits as a program does; another taker may be quicker. */
static void *watcher(void *arg)
{
	struct iwcm_stats s;

	while (!stopping()) {
		iwcm_get_stats(ctx, &s);
		iwcm_devices(ctx, NULL, 0);
		usleep(2000);
	}
	return NULL;
}

static void choose_ports(void)
{
	size_t i;

	for (i = 0; i < 2; i++) {
		struct sockaddr_in at = { .sin_family = AF_INET };
		struct sockaddr_storage ss;
		struct iwcm_id *id;

		CHECK(!iwcm_create_id(ctx, NULL, &id));
		CHECK(!iwcm_bind(id, (struct sockaddr *)&at));
		CHECK(!iwcm_local_addr(id, &ss));
		ports[i] = ntohs(((struct sockaddr_in *)&ss)->sin_port);
		iwcm_destroy_id(id);
	}
}

static void reset(void)
{
	size_t i;

	for (i = 0; i < used; i++)
		pthread_rwlock_destroy(&actors[i].lock);
	memset(bucket, 0, sizeof(bucket));
	used = 0;
	stop = false;
	established = ended = 0;
	live = 0;
}

static unsigned int seconds(void)
{
	const char *s = getenv("UWARP_THREADS_SECONDS");

	return s ? (unsigned int)atoi(s) : 3;
}

static void start(pthread_t *t, void *(*fn)(void *), uintptr_t n)
{
	CHECK(!pthread_create(t, NULL, fn, (void *)n));
}

static void run_threads(bool takers)
{
	pthread_t t[MAKERS + TAKERS + 3];
	size_t n = 0, i;

	for (i = 0; i < MAKERS; i++)
		start(&t[n++], maker, i);
	for (i = 0; takers && i < TAKERS; i++)
		start(&t[n++], taker, i);
	start(&t[n++], listener, 0);
	start(&t[n++], listener, 1);
	start(&t[n++], watcher, 0);
	/* Longer where the machine is so slow that little has happened yet. */
	for (i = 0; i < seconds() * 10 || (i < 300 && __atomic_load_n(&established, __ATOMIC_RELAXED) < 20); i++)
		usleep(100000);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < used / 2; i++)
		kill(&actors[i]); /* the others are the close's */
}

/*
 * The handlers take locks of this test's that are also held around calls, with the gate of fork() in between: a read-write lock that lets readers go before a waiting
 * writer, so that this is no deadlock. ThreadSanitizer cannot know, and suppressing each report takes it longer than the test.
 */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "detect_deadlocks=0";
}

static void test_random(void **state)
{
	CHECK(!iwcm_open("lo", &ctx));
	choose_ports();
	run_threads(true);
	iwcm_close(ctx);
	print_message("%zu ids, %lu ends, %lu established\n", used, ended, established);
	CHECK(established > 0);
	reset();
}

/* ---- handler mode: called in the NIC thread, while others destroy ---- */

static void handler(void *arg, const struct iwcm_event *ev)
{
	struct actor *a;

	if (ev->type == IWCM_EVENT_CONNECT_REQUEST) {
		pthread_mutex_lock(&table);
		a = add(ev->id, false, true);
		pthread_mutex_unlock(&table);
		if (!a) {
			iwcm_destroy_id(ev->id);
			return;
		}
	} else {
		a = iwcm_user(ev->id);
	}
	CHECK(!__atomic_load_n(&a->dead, __ATOMIC_ACQUIRE));
	pthread_mutex_lock(&table);
	check_order(a, ev);
	pthread_mutex_unlock(&table);
	on_event(a, ev);
	CHECK(!__atomic_load_n(&a->dead, __ATOMIC_ACQUIRE) || a->count[IWCM_EVENT_CLOSED] || a->count[IWCM_EVENT_REJECTED] ||
	      a->count[IWCM_EVENT_CONNECT_ERROR] || a->count[IWCM_EVENT_RESOLVE_ERROR]);
}

static void test_random_handler(void **state)
{
	CHECK(!iwcm_open("lo", &ctx));
	choose_ports();
	iwcm_set_handler(ctx, handler, NULL, NULL);
	run_threads(false);
	iwcm_close(ctx);
	print_message("%zu ids, %lu ends, %lu established\n", used, ended, established);
	CHECK(established > 0);
	reset();
}

/* ---- waiting for events ---- */

static void *waiter(void *arg)
{
	unsigned long *got = arg;
	struct iwcm_event ev;

	while (!iwcm_get_event(ctx, &ev, 2000)) {
		__atomic_fetch_add(got, 1, __ATOMIC_RELAXED);
		iwcm_destroy_id(ev.id);
	}
	return NULL;
}

/* Each event goes to exactly one of several threads that sleep for it. */
static void test_waiters(void **state)
{
	enum { EVENTS = 500, THREADS = 4 };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(1), .sin_addr = { htonl(INADDR_LOOPBACK) } };
	unsigned long got = 0;
	pthread_t t[THREADS];
	struct iwcm_id *id;
	int i;

	CHECK(!iwcm_open("lo", &ctx));
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, waiter, &got));
	for (i = 0; i < EVENTS; i++) {
		CHECK(!iwcm_create_id(ctx, NULL, &id));
		CHECK(!iwcm_resolve(id, NULL, (struct sockaddr *)&to));
		if (i % 16 == 0)
			usleep(1000);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK(got == EVENTS);
	iwcm_close(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_random_handler),
		cmocka_unit_test(test_waiters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
