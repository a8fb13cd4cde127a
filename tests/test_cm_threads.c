// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The CM from many threads, on the host port: one runs the loop and gets the upcalls; workers connect, disconnect and abandon at random
 * moments; others answer the requests; one makes and destroys listeners. No event after cm_abandon(), the promised order, and in
 * the end nothing is left. For TSan as much as for its assertions.
 */
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>
#include "cm/cm_internal.h"

#define CONNECTORS 3
#define ANSWERERS 2
#define ROUNDS 60
#define LOOPBACK 0x7F000001u

static void check(bool ok, int line)
{
	if (!ok) { /* cmocka's asserts are for its own thread */
		fprintf(stderr, "%s:%d: failed, errno %s\n", __FILE__, line, strerror(errno));
		abort();
	}
}
#define CHECK(x) check(x, __LINE__)

static struct loop loop;
static struct net *net;
static struct port_host *host;
static struct irdma_device *dev;
static int wake_fd;
static bool stopping;

/* ---- cm_ids ---- */

struct id {
	struct iw_cm_id cm;
	struct irdma_qp *qp;
	u32 refs;
	bool gone;              /* cm_abandon() returned */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	u32 seen;               /* BIT(enum iw_cm_event_type) */
	int status;             /* of CONNECT_REPLY */
	TAILQ_ENTRY(id) entry;
};
TAILQ_HEAD(id_list, id);

static u32 ids_alive;
static pthread_mutex_t requests_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t requests_cond = PTHREAD_COND_INITIALIZER;
static struct id_list requests = TAILQ_HEAD_INITIALIZER(requests);
static bool no_more;

static u32 roll(u32 *seed, u32 n)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 16) % n;
}

static void id_add_ref(struct iw_cm_id *cm)
{
	CHECK(__atomic_fetch_add(&container_of(cm, struct id, cm)->refs, 1, __ATOMIC_RELAXED) > 0);
}

static void id_rem_ref(struct iw_cm_id *cm)
{
	struct id *id = container_of(cm, struct id, cm);
	u32 before = __atomic_fetch_sub(&id->refs, 1, __ATOMIC_ACQ_REL);

	CHECK(before > 0);
	if (before > 1)
		return;
	pthread_mutex_destroy(&id->lock);
	pthread_cond_destroy(&id->cond);
	free(id);
	__atomic_fetch_sub(&ids_alive, 1, __ATOMIC_RELEASE);
}

static int on_event(struct iw_cm_id *cm, struct iw_cm_event *ev)
{
	struct id *id = container_of(cm, struct id, cm);

	CHECK(!__atomic_load_n(&id->gone, __ATOMIC_ACQUIRE));
	pthread_mutex_lock(&id->lock);
	CHECK(!(id->seen & BIT(ev->event)));
	if (ev->event == IW_CM_EVENT_CLOSE)
		CHECK(id->seen & BIT(IW_CM_EVENT_DISCONNECT));
	else
		CHECK(!(id->seen & BIT(IW_CM_EVENT_CLOSE)));
	if (ev->event <= IW_CM_EVENT_ESTABLISHED)
		CHECK(!(id->seen & BIT(IW_CM_EVENT_DISCONNECT)));
	id->seen |= BIT(ev->event);
	if (ev->event == IW_CM_EVENT_CONNECT_REPLY)
		id->status = ev->status;
	pthread_cond_broadcast(&id->cond);
	pthread_mutex_unlock(&id->lock);
	return 0;
}

static struct id *id_new(iw_cm_handler handler)
{
	struct id *id = calloc(1, sizeof(*id));

	CHECK(id);
	id->refs = 1;
	id->cm.event_handler = handler;
	id->cm.device = dev;
	id->cm.add_ref = id_add_ref;
	id->cm.rem_ref = id_rem_ref;
	id->cm.mpa = cm_mpa_opts_default;
	pthread_mutex_init(&id->lock, NULL);
	pthread_cond_init(&id->cond, NULL);
	CHECK(!rnic_qp_create(dev, &id->qp));
	__atomic_fetch_add(&ids_alive, 1, __ATOMIC_RELAXED);
	return id;
}

static void id_free(struct id *id)
{
	cm_abandon(&id->cm);
	__atomic_store_n(&id->gone, true, __ATOMIC_RELEASE);
	rnic_qp_destroy(id->qp);
	id_rem_ref(&id->cm);
}

/* For @mask of events, at most @ms. */
static u32 id_wait(struct id *id, u32 mask, u32 ms)
{
	struct timespec t;
	u32 seen;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += (long)ms % 1000 * 1000000;
	t.tv_sec += ms / 1000 + (u32)(t.tv_nsec / 1000000000);
	t.tv_nsec %= 1000000000;
	pthread_mutex_lock(&id->lock);
	while (!(id->seen & mask) && !pthread_cond_timedwait(&id->cond, &id->lock, &t))
		;
	seen = id->seen & mask;
	pthread_mutex_unlock(&id->lock);
	return seen;
}

/* ---- passive side ---- */

static int on_request(struct iw_cm_id *cm, struct iw_cm_event *ev)
{
	struct id *child;

	CHECK(ev->event == IW_CM_EVENT_CONNECT_REQUEST);
	CHECK(!__atomic_load_n(&container_of(cm, struct id, cm)->gone, __ATOMIC_ACQUIRE));
	if (ev->private_data_len && *(const char *)ev->private_data == 'r')
		return -EBUSY;
	child = id_new(on_event);
	child->cm.provider_data = ev->provider_data;
	ev->child = &child->cm;
	pthread_mutex_lock(&requests_lock);
	TAILQ_INSERT_TAIL(&requests, child, entry);
	pthread_cond_signal(&requests_cond); /* the answer may be quicker than our return */
	pthread_mutex_unlock(&requests_lock);
	return 0;
}

static struct id *next_request(void)
{
	struct id *id;

	pthread_mutex_lock(&requests_lock);
	while (!(id = TAILQ_FIRST(&requests)) && !no_more)
		pthread_cond_wait(&requests_cond, &requests_lock);
	if (id)
		TAILQ_REMOVE(&requests, id, entry);
	pthread_mutex_unlock(&requests_lock);
	return id;
}

static void answer(struct id *id, u32 what)
{
	struct iw_cm_conn_param param = { .private_data = "welcome", .private_data_len = 7, .ird = 4, .ord = 4, .qpn = id->qp->qp_num };
	int ret;

	switch (what) {
	case 0:
		ret = irdma_reject(&id->cm, "no", 2);
		CHECK(!ret || ret == -ECONNRESET);
		break;
	case 1:
		break; /* abandoned by id_free() */
	default:
		ret = irdma_accept(&id->cm, &param);
		CHECK(!ret || ret == -ECONNRESET || ret == -EINVAL);
		if (ret)
			break;
		if (what < 4)
			id_wait(id, BIT(IW_CM_EVENT_CLOSE), 50);
		if (what & 1)
			cm_disconnect(&id->cm, what & 2);
		if (what > 6)
			id_wait(id, BIT(IW_CM_EVENT_CLOSE), 1000);
	}
}

static void *answerer(void *arg)
{
	u32 seed = (u32)(uintptr_t)arg;
	struct id *id;

	while ((id = next_request())) {
		answer(id, roll(&seed, 10));
		id_free(id);
	}
	return NULL;
}

/* ---- listeners ---- */

static void listen_addr(struct id *id, u16 number)
{
	cm_addr_to_sockaddr(true, (u32[4]){ LOOPBACK }, number, &id->cm.m_local_addr);
}

static u16 free_number(void)
{
	u32 addr[4] = { LOOPBACK };
	u16 n = 0;

	CHECK(!rnic_apbvt_add(dev, true, addr, &n, true));
	rnic_apbvt_del(dev, true, addr, n);
	return n;
}

static struct id *listen_new(u16 number)
{
	struct id *id = id_new(on_request);
	int ret = -EADDRINUSE;

	listen_addr(id, number);
	for (int i = 0; i < 1000 && ret; i++) {
		ret = irdma_create_listen(&id->cm, 8);
		if (ret)
			usleep(1000);
	}
	CHECK(!ret);
	return id;
}

static void listen_end(struct id *id)
{
	CHECK(!irdma_destroy_listen(&id->cm));
	__atomic_store_n(&id->gone, true, __ATOMIC_RELEASE);
	rnic_qp_destroy(id->qp);
	id_rem_ref(&id->cm);
}

static u16 numbers[2]; /* the second listener comes and goes */

static void *listener_thread(void *arg)
{
	u32 seed = 99;

	while (!__atomic_load_n(&no_more, __ATOMIC_ACQUIRE)) {
		struct id *id = listen_new(numbers[1]);

		usleep(roll(&seed, 3000));
		listen_end(id);
		usleep(roll(&seed, 300));
	}
	return NULL;
}

/* ---- active side ---- */

static u32 outcomes[2];

static int connect_to(struct id *id, u16 number, bool to_be_refused)
{
	struct iw_cm_conn_param param = { .private_data = to_be_refused ? "r" : "hello", .ird = 4, .ord = 4, .qpn = id->qp->qp_num };
	u32 addr[4] = { LOOPBACK };
	u16 own = 0;
	int ret;

	param.private_data_len = (u16)strlen(param.private_data);
	CHECK(!rnic_apbvt_add(dev, true, addr, &own, true));
	cm_addr_to_sockaddr(true, addr, own, &id->cm.m_local_addr);
	cm_addr_to_sockaddr(true, addr, number, &id->cm.m_remote_addr);
	ret = irdma_connect(&id->cm, &param);
	rnic_apbvt_del(dev, true, addr, own);
	return ret;
}

static void one_connection(u32 *seed)
{
	struct id *id = id_new(on_event);
	u32 what = roll(seed, 12);

	if (connect_to(id, numbers[roll(seed, 4) == 0], what == 0) == 0 && what > 2) {
		CHECK(id_wait(id, BIT(IW_CM_EVENT_CONNECT_REPLY), 30000)); /* always: nobody abandoned it */
		__atomic_fetch_add(&outcomes[!id->status], 1, __ATOMIC_RELAXED);
		if (what & 1)
			cm_disconnect(&id->cm, what & 2);
		if (what > 8 && (what & 1) && !id->status)
			CHECK(id_wait(id, BIT(IW_CM_EVENT_CLOSE), 30000));
	} else if (what == 1) {
		usleep(roll(seed, 1000));
	}
	id_free(id);
}

static void *connector(void *arg)
{
	u32 seed = (u32)(uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++)
		one_connection(&seed);
	return NULL;
}

static void *reader_thread(void *arg)
{
	struct cm_stats st;

	while (!__atomic_load_n(&no_more, __ATOMIC_ACQUIRE)) {
		cm_get_stats(dev, &st);
		CHECK(st.nodes_now == st.nodes_created - st.nodes_destroyed);
		usleep(200);
	}
	return NULL;
}

/* ---- the loop ---- */

static void wake(struct loop *l, void *arg)
{
	u64 one = 1;

	CHECK(write(wake_fd, &one, sizeof(one)) == sizeof(one));
}

static void loop_once(int max_ms)
{
	struct pollfd pfd[2] = { { .fd = port_host_fd(host), .events = POLLIN }, { .fd = wake_fd, .events = POLLIN } };
	u64 now, next, count;

	loop_set_now(&loop, loop_monotonic_ns());
	loop_enter(&loop);
	port_host_process(host);
	loop_leave(&loop);
	loop_run(&loop);
	now = loop_monotonic_ns();
	next = loop_next_ns(&loop);
	poll(pfd, 2, next <= now ? 0 : (int)min((next - now) / NSEC_PER_MSEC + 1, (u64)max_ms));
	if (pfd[1].revents)
		CHECK(read(wake_fd, &count, sizeof(count)) == sizeof(count));
}

static void *loop_thread(void *arg)
{
	while (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE))
		loop_once(1000);
	return NULL;
}

/* ---- set up, run, look what is left ---- */

static void device_up(void)
{
	struct net_iface lo;
	struct port *port;

	wake_fd = eventfd(0, EFD_CLOEXEC);
	assert_true(wake_fd >= 0);
	loop_init(&loop, loop_monotonic_ns());
	loop.wake = wake;
	assert_int_equal(net_open_host(&net), 0);
	assert_int_equal(net_iface_by_name(net, "lo", &lo), 0);
	assert_int_equal(port_host_open(&loop, net, &host), 0);
	assert_int_equal(rnic_device_create(&loop, net, &lo, NULL, &dev), 0);
	assert_int_equal(port_host_plug(host, &lo, &rnic_port_up, dev, &port), 0);
	rnic_device_attach(dev, port);
	assert_int_equal(irdma_setup_cm_core(dev, IRDMA_GEN_1), -EINVAL); /* no whole frames here */
	assert_int_equal(irdma_setup_cm_core(dev, IRDMA_GEN_2), 0);
}

static void device_down(void)
{
	struct cm_stats st = { .nodes_now = 1 };

	loop.wake = NULL;
	for (int i = 0; i < 1000 && (st.nodes_now || __atomic_load_n(&ids_alive, __ATOMIC_ACQUIRE)); i++) {
		loop_once(10); /* FINs of what was rejected */
		cm_get_stats(dev, &st);
	}
	assert_int_equal(st.nodes_now, 0);
	assert_int_equal(st.half_open_now, 0);
	assert_int_equal(st.listeners_now, 0);
	assert_int_equal(st.listens_created, st.listens_destroyed);
	assert_int_equal(ids_alive, 0);
	assert_int_equal(rnic_apbvt_count(dev), 0);
	irdma_cleanup_cm_core(dev->cm_core);
	loop_run(&loop);
	assert_int_equal(dev->vsi.small.used + dev->vsi.large.used, 0);
	rnic_device_destroy(dev);
	port_host_close(host);
	net_close(net);
	loop_destroy(&loop);
	close(wake_fd);
}

static void any_thread_at_any_time(void **state)
{
	pthread_t loop_th, listen_th, reader_th, conn_th[CONNECTORS], answer_th[ANSWERERS];
	struct id *listener;

	device_up();
	numbers[0] = free_number();
	do {
		numbers[1] = free_number();
	} while (numbers[1] == numbers[0]);
	listener = listen_new(numbers[0]);
	assert_int_equal(pthread_create(&loop_th, NULL, loop_thread, NULL), 0);
	assert_int_equal(pthread_create(&listen_th, NULL, listener_thread, NULL), 0);
	assert_int_equal(pthread_create(&reader_th, NULL, reader_thread, NULL), 0);
	for (uintptr_t i = 0; i < ANSWERERS; i++)
		assert_int_equal(pthread_create(&answer_th[i], NULL, answerer, (void *)(i + 50)), 0);
	for (uintptr_t i = 0; i < CONNECTORS; i++)
		assert_int_equal(pthread_create(&conn_th[i], NULL, connector, (void *)(i + 1)), 0);
	for (int i = 0; i < CONNECTORS; i++)
		pthread_join(conn_th[i], NULL);
	pthread_mutex_lock(&requests_lock);
	__atomic_store_n(&no_more, true, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&requests_cond);
	pthread_mutex_unlock(&requests_lock);
	pthread_join(listen_th, NULL);
	pthread_join(reader_th, NULL);
	listen_end(listener);
	for (int i = 0; i < ANSWERERS; i++)
		pthread_join(answer_th[i], NULL);
	__atomic_store_n(&stopping, true, __ATOMIC_RELEASE);
	wake(&loop, NULL);
	pthread_join(loop_th, NULL);
	for (struct id *id; (id = TAILQ_FIRST(&requests));) { /* came after the answerers had gone */
		TAILQ_REMOVE(&requests, id, entry);
		id_free(id);
	}
	assert_true(outcomes[0] > 0); /* some failed, some did not */
	assert_true(outcomes[1] > 10);
	device_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_thread_at_any_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
