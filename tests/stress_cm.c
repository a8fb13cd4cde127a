/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The stress's connections: ids of the rdma_cm device, by the commands that librdmacm writes. The model counts what succeeded and what came: an id is bound,
 * listens, connects, is answered once at most; events come in order, none after DESTROY_ID has returned, and that says how many there were.
 *
 * Events of a file are taken and looked at under one lock, or their order would not be known; those of the last file are not: for ids that were there only
 * the counts hold.
 */
#include <errno.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <poll.h>
#include <unistd.h>
#include "stress.h"

#define LISTENERS 3u           /* the first slots */
#define SOON_NS (60 * NSEC_PER_SEC)
#define MAGIC 0x57AE55u
#define EVENTS 16u

enum call { BIND, LISTEN, RESOLVE, ROUTE, CONNECT, ACCEPT, REJECT, DISCONNECT, CALLS };

struct st_id {
	struct st_obj o;       /* .p: it is there */
	u32 life, number, file;
	bool passive;
	bool loose;            /* atomic */
	u32 book, book_life;   /* index + 1 of its QP's; atomic, or by who has it alone */
	u32 tried[CALLS], ok[CALLS]; /* atomic */
	u32 ev[EVENTS];        /* atomic */
	u32 reported;          /* atomic: events that came, requests for a listener included */
	u32 over;              /* atomic: nothing comes any more */
};

static struct st_id ids[ST_IDS];
static struct {
	int fd;
	pthread_mutex_t fetch;
} files[ST_FILES];
static u32 live;               /* atomic: ids that are there */
static u16 ports[LISTENERS];   /* atomic; in network order, 0: not known */

struct greeting {
	u32 magic, index, life;
};

static bool is_loose(u32 file)
{
	return file == ST_FILES - 1;
}

/* ---- commands ---- */

struct frame {
	struct rdma_ucm_cmd_hdr hdr;
	u8 body[1024];
};

static int put(u32 file, u32 cmd, const void *body, size_t len, size_t out)
{
	struct frame f = { .hdr = { .cmd = cmd, .in = (u16)len, .out = (u16)out } };
	ssize_t ret;

	memcpy(f.body, body, len);
	ST_CHECK(shim_cmdev_write(files[file].fd, &f, sizeof(f.hdr) + len, &ret), "file %u is none", file);
	return ret < 0 ? errno : 0;
}

#define PUT(file, CMD, body) put(file, RDMA_USER_CM_CMD_##CMD, &(body), sizeof(body), 0)
#define ASK(file, CMD, body, resp) ((body).response = (uintptr_t)&(resp), put(file, RDMA_USER_CM_CMD_##CMD, &(body), sizeof(body), sizeof(resp)))

static u32 slot_of(const struct st_id *id)
{
	return (u32)(id - ids);
}

static u64 uid_of(const struct st_id *id)
{
	return 1ull << 63 | (u64)id->life << 8 | slot_of(id);
}

/* A call that succeeds once at most, and @also counts for the same. */
static void record(struct st_id *id, enum call call, enum call also, const char *name, u64 begin, int ret)
{
	st_log(begin, name, slot_of(id), id->number, ret);
	if (ret)
		return;
	st_add(&id->ok[call], 1);
	ST_CHECK(st_get(&id->ok[call]) + (also == call ? 0 : st_get(&id->ok[also])) == 1, "%s of id %u succeeded a second time", name, slot_of(id));
}

#define ALLOW(ret, name, ...) allow(ret, name, (const int[]){ 0, __VA_ARGS__, -1 })
static void allow(int ret, const char *name, const int *allowed)
{
	for (; *allowed != -1; allowed++)
		if (ret == *allowed)
			return;
	st_fail("%s: %d", name, ret);
}

static void bind_id(struct st_id *id, __be16 port)
{
	struct rdma_ucm_bind cmd = { .id = id->number, .addr_size = sizeof(struct sockaddr_in) };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = port, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	u64 begin = st_now();
	int ret;

	memcpy(&cmd.addr, &in, sizeof(in));
	ret = PUT(id->file, BIND, cmd);
	record(id, BIND, BIND, "bind", begin, ret);
	ALLOW(ret, "bind", EINVAL, EADDRINUSE);
}

static void listen_id(struct st_id *id)
{
	struct rdma_ucm_listen cmd = { .id = id->number, .backlog = 16 };
	u64 begin = st_now();
	int ret = PUT(id->file, LISTEN, cmd);

	record(id, LISTEN, LISTEN, "listen", begin, ret);
	ALLOW(ret, "listen", EINVAL, EADDRINUSE);
}

static void resolve(struct st_id *id, __be16 port)
{
	struct rdma_ucm_resolve_addr cmd = { .id = id->number, .timeout_ms = 2000, .dst_size = sizeof(struct sockaddr_in) };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = port, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	u64 begin = st_now();
	int ret;

	memcpy(&cmd.dst_addr, &in, sizeof(in));
	st_add(&id->tried[RESOLVE], 1);
	ret = PUT(id->file, RESOLVE_ADDR, cmd);
	record(id, RESOLVE, RESOLVE, "resolve_addr", begin, ret);
	ALLOW(ret, "resolve_addr", EINVAL);
}

static void route(struct st_id *id)
{
	struct rdma_ucm_resolve_route cmd = { .id = id->number, .timeout_ms = 2000 };
	bool resolved = st_get(&id->ev[CMDEV_ADDR_RESOLVED_EV]), first = !st_add(&id->tried[ROUTE], 1);
	u64 begin = st_now();
	int ret = PUT(id->file, RESOLVE_ROUTE, cmd);

	record(id, ROUTE, ROUTE, "resolve_route", begin, ret);
	if (!(resolved && first))
		ALLOW(ret, "resolve_route", EINVAL);
	else
		ST_CHECK(!ret || st_get(&id->tried[ROUTE]) > 1, "resolve_route: %d of an id that was resolved", ret);
}

static struct rdma_ucm_conn_param param(const struct st_book *b)
{
	struct rdma_ucm_conn_param p = { .qp_num = b ? b->number : 0, .valid = 1, .responder_resources = 8, .initiator_depth = 8 };
	struct greeting g = { MAGIC, b ? b->index : 0, b ? b->life : 0 };

	p.private_data_len = sizeof(g);
	memcpy(p.private_data, &g, sizeof(g));
	return p;
}

static void set_book(struct st_id *id, const struct st_book *b)
{
	id->book_life = b->life;
	__atomic_store_n(&id->book, b->index + 1, __ATOMIC_RELEASE);
}

static struct st_book *own_book(struct st_id *id)
{
	u32 book = __atomic_load_n(&id->book, __ATOMIC_ACQUIRE);

	return book ? st_book_at(book - 1) : NULL;
}

static void orphan(struct st_book *b)
{
	__atomic_store_n(&b->orphan, 1, __ATOMIC_RELAXED);
}

/* With a QP of its own, which it keeps even if this fails: the event may have overtaken. */
static void connect_id(struct st_thread *t, struct st_id *id)
{
	struct rdma_ucm_connect cmd = { .id = id->number };
	struct st_book *b = own_book(id) || id->passive ? NULL : st_qp_make(t);
	bool ready = st_get(&id->ok[ROUTE]);
	u64 begin;
	int ret;

	if (!b)
		return;
	if (st_add(&id->tried[CONNECT], 1)) { /* another thread was quicker */
		orphan(b);
		return;
	}
	set_book(id, b);
	cmd.conn_param = param(b);
	begin = st_now();
	ret = PUT(id->file, CONNECT, cmd);
	record(id, CONNECT, CONNECT, "connect", begin, ret);
	ALLOW(ret, "connect", EINVAL, EADDRINUSE);
	ST_CHECK(ret != EINVAL || !ready || st_get(&b->ending), "connect: EINVAL of an id that knows its route");
}

static void accept_id(struct st_thread *t, struct st_id *id)
{
	struct rdma_ucm_accept cmd = { .id = id->number, .uid = uid_of(id) };
	struct st_book *b = own_book(id);
	u64 begin;
	int ret;

	if (!b || st_add(&id->tried[ACCEPT], 1))
		return;
	cmd.conn_param = param(b);
	begin = st_now();
	ret = PUT(id->file, ACCEPT, cmd);
	record(id, ACCEPT, REJECT, "accept", begin, ret);
	/* EINVAL: it is no request, or another thread had answered it, or had destroyed the queue pair, or moved it on. */
	if (ret != EINVAL || !(!id->passive || st_get(&id->tried[REJECT]) || st_get(&id->tried[DISCONNECT]) || st_get(&b->ending)))
		ALLOW(ret, "accept", ECONNRESET);
}

static void reject_id(struct st_id *id)
{
	struct rdma_ucm_reject cmd = { .id = id->number, .private_data_len = 1, .private_data = "n" };
	u64 begin = st_now();
	int ret;

	st_add(&id->tried[REJECT], 1);
	ret = PUT(id->file, REJECT, cmd);
	record(id, REJECT, ACCEPT, "reject", begin, ret);
	if (ret != EINVAL || (id->passive && st_get(&id->tried[REJECT]) == 1 && !st_get(&id->tried[ACCEPT])))
		ALLOW(ret, "reject", ECONNRESET);
}

static void disconnect_id(struct st_id *id)
{
	struct rdma_ucm_disconnect cmd = { .id = id->number };
	u64 begin = st_now();
	int ret;

	st_add(&id->tried[DISCONNECT], 1);
	ret = PUT(id->file, DISCONNECT, cmd);

	st_log(begin, "disconnect", slot_of(id), id->number, ret);
	ST_CHECK(ret == 0 || (ret == EINVAL && !st_get(&id->ev[CMDEV_ESTABLISHED_EV])), "disconnect: %d of an id that was established", ret);
}

static void query(struct st_id *id)
{
	struct rdma_ucm_query cmd = { .id = id->number, .option = RDMA_USER_CM_QUERY_ADDR };
	struct rdma_ucm_query_addr_resp resp;
	u64 begin = st_now();
	int ret = ASK(id->file, QUERY, cmd, resp);

	st_log(begin, "query", slot_of(id), id->number, ret);
	ST_CHECK(!ret, "query: %d", ret);
}

static void set_tos(struct st_id *id)
{
	u8 tos = 8;
	struct rdma_ucm_set_option cmd = { .optval = (uintptr_t)&tos, .id = id->number, .level = 0, .optname = 0, .optlen = 1 };
	u64 begin = st_now();
	int ret = PUT(id->file, SET_OPTION, cmd);

	st_log(begin, "set_option", slot_of(id), id->number, ret);
	ALLOW(ret, "set_option", EINVAL, EISCONN);
}

static void qp_attr(struct st_id *id)
{
	struct rdma_ucm_init_qp_attr cmd = { .id = id->number, .qp_state = IBV_QPS_INIT };
	struct ib_uverbs_qp_attr resp;
	u64 begin = st_now();
	int ret = ASK(id->file, INIT_QP_ATTR, cmd, resp);

	st_log(begin, "init_qp_attr", slot_of(id), id->number, ret);
	ALLOW(ret, "init_qp_attr", EINVAL);
}

static void join(struct st_id *id)
{
	struct rdma_ucm_join_ip_mcast cmd = { .id = id->number };
	struct rdma_ucm_create_id_resp resp;
	int ret = ASK(id->file, JOIN_IP_MCAST, cmd, resp);

	ST_CHECK(ret == EINVAL, "join: %d", ret);
}

/* ---- life; guard held alone ---- */

static void begin_life(struct st_id *id, u32 number, u32 file, bool passive)
{
	memset(&id->number, 0, sizeof(*id) - offsetof(struct st_id, number));
	__atomic_store_n(&id->life, id->life + 1, __ATOMIC_RELAXED);
	id->number = number;
	id->file = file;
	id->passive = passive;
	id->loose = is_loose(file);
	id->o.p = id;
	st_add(&live, 1);
}

static void create(struct st_thread *t, struct st_id *id)
{
	struct rdma_ucm_create_id cmd = { .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC };
	struct rdma_ucm_create_id_resp resp;
	u32 file = st_below(t, ST_FILES);
	u64 begin = st_now();
	int ret;

	begin_life(id, 0, file, false);
	cmd.uid = uid_of(id);
	ret = ASK(file, CREATE_ID, cmd, resp);
	ST_CHECK(!ret, "create_id: %d", ret);
	id->number = resp.id;
	st_log(begin, "create_id", slot_of(id), id->number, ret);
}

static void destroy(struct st_id *id)
{
	struct rdma_ucm_destroy_id cmd = { .id = id->number };
	struct rdma_ucm_destroy_id_resp resp;
	struct st_book *b = own_book(id);
	u64 begin = st_now(), end = begin + SOON_NS;
	int ret = ASK(id->file, DESTROY_ID, cmd, resp);

	st_log(begin, "destroy_id", slot_of(id), id->number, ret);
	ST_CHECK(!ret, "destroy_id: %d", ret);
	for (; st_get(&id->reported) != resp.events_reported; usleep(200))
		ST_CHECK(st_now() < end, "destroy_id says that there were %u events, and %u came", resp.events_reported, st_get(&id->reported));
	if (b)
		orphan(b);
	id->o.p = NULL;
	st_sub(&live, 1);
}

static void migrate(struct st_thread *t, struct st_id *id)
{
	u32 to = st_below(t, ST_FILES);
	struct rdma_ucm_migrate_id cmd = { .id = id->number, .fd = (u32)files[id->file].fd };
	struct rdma_ucm_migrate_resp resp;
	u64 begin = st_now();
	int ret;

	if (pthread_mutex_trylock(&files[id->file].fetch))
		return;
	if (is_loose(to))
		__atomic_store_n(&id->loose, true, __ATOMIC_RELAXED);
	ret = ASK(to, MIGRATE_ID, cmd, resp);
	pthread_mutex_unlock(&files[id->file].fetch);
	st_log(begin, "migrate_id", slot_of(id), to, ret);
	ST_CHECK(!ret, "migrate_id: %d", ret);
	id->file = to;
	st_add(&st_counts.migrated, 1);
}

static struct st_id *take_free(struct st_thread *t)
{
	u32 first = st_below(t, ST_IDS), i;

	for (i = 0; i < ST_IDS; i++) {
		struct st_id *id = &ids[(first + i) % ST_IDS];

		if (slot_of(id) < LISTENERS || !st_take(&id->o))
			continue;
		if (!id->o.p)
			return id;
		st_done(&id->o);
	}
	return NULL;
}

/* ---- events ---- */

static void drop_request(u32 file, u32 number)
{
	struct rdma_ucm_destroy_id cmd = { .id = number };
	struct rdma_ucm_destroy_id_resp resp;
	u64 begin = st_now();
	int ret = ASK(file, DESTROY_ID, cmd, resp);

	st_log(begin, "destroy_id of a request", file, number, ret);
	ST_CHECK(!ret && !resp.events_reported, "destroy_id of a request: %d, %u events", ret, resp.events_reported);
}

static void on_request(struct st_thread *t, u32 file, const struct rdma_ucm_event_resp *ev)
{
	const struct rdma_ucm_conn_param *p = &ev->param.conn;
	struct st_book *b;
	struct greeting g;
	struct st_id *id;

	memcpy(&g, p->private_data, sizeof(g));
	ST_CHECK(p->private_data_len == sizeof(g) && g.magic == MAGIC, "a request with other private data: %u bytes", p->private_data_len);
	id = take_free(t);
	if (!id) {
		drop_request(file, ev->id);
		return;
	}
	begin_life(id, ev->id, file, true);
	b = st_one_in(t, 10) ? NULL : st_qp_make(t);
	if (b) {
		set_book(id, b);
		st_qp_pair(b, g.index, g.life);
	}
	if (b && !st_calm() && !st_one_in(t, 10))
		accept_id(t, id);
	else if (!st_one_in(t, 4))
		reject_id(id);
	if (!b && st_one_in(t, 2))
		destroy(id);
	st_done(&id->o);
}

static void came_up(struct st_id *id, const struct rdma_ucm_event_resp *ev)
{
	struct st_book *b = own_book(id);
	struct greeting g;

	ST_CHECK(b, "ESTABLISHED without a queue pair");
	if (!id->passive) {
		memcpy(&g, ev->param.conn.private_data, sizeof(g));
		ST_CHECK(ev->param.conn.private_data_len == sizeof(g) && g.magic == MAGIC, "ESTABLISHED with other private data");
		ST_CHECK(st_get(&st_book_at(g.index)->life) != g.life || st_get(&st_book_at(g.index)->peer) == b->index + 1,
			 "book %u was connected to %u, which answered %u", b->index, g.index, st_book_at(g.index)->peer - 1);
		st_qp_pair(b, g.index, g.life);
	}
	__atomic_store_n(&b->up, 1, __ATOMIC_RELEASE);
	st_add(&st_counts.established, 1);
}

/* Those of a connection; before it is counted. */
static void check_order(const struct st_id *id, u32 event)
{
	const u32 *n = id->ev;
	bool ended = n[CMDEV_DISCONNECTED_EV] || n[CMDEV_REJECTED_EV] || n[CMDEV_UNREACHABLE_EV] || n[CMDEV_CONNECT_ERROR_EV];

	ST_CHECK(event < EVENTS && event != CMDEV_DEVICE_REMOVAL_EV, "event %u", event);
	ST_CHECK(!st_get(&n[event]), "event %u came twice to id %u", event, slot_of(id));
	if (event == CMDEV_ADDR_RESOLVED_EV)
		ST_CHECK(st_get(&id->tried[RESOLVE]), "ADDR_RESOLVED, and nobody asked");
	else if (event == CMDEV_ROUTE_RESOLVED_EV)
		ST_CHECK(st_get(&id->tried[ROUTE]), "ROUTE_RESOLVED, and nobody asked");
	else
		ST_CHECK(st_get(&id->tried[id->passive ? ACCEPT : CONNECT]), "event %u of an id that nobody connected", event);
	if (__atomic_load_n(&id->loose, __ATOMIC_RELAXED))
		return;
	ST_CHECK(!ended, "event %u behind the end of id %u", event, slot_of(id));
	ST_CHECK(event != CMDEV_DISCONNECTED_EV || n[CMDEV_ESTABLISHED_EV], "DISCONNECTED of an id that was not established");
	ST_CHECK(event < CMDEV_CONNECT_ERROR_EV || event > CMDEV_REJECTED_EV || !n[CMDEV_ESTABLISHED_EV], "event %u behind ESTABLISHED", event);
}

static void count_end(u32 event)
{
	st_add(event == CMDEV_REJECTED_EV ? &st_counts.rejected : &st_counts.ended, 1);
}

/* The id's guard is held shared. */
static void on_conn_event(struct st_thread *t, struct st_id *id, const struct rdma_ucm_event_resp *ev)
{
	switch (ev->event) {
	case CMDEV_ADDR_RESOLVED_EV:
		route(id);
		break;
	case CMDEV_ROUTE_RESOLVED_EV:
		if (!st_calm())
			connect_id(t, id);
		break;
	default:
		break;
	}
}

static void of_conn(struct st_thread *t, struct st_id *id, const struct rdma_ucm_event_resp *ev)
{
	check_order(id, ev->event);
	if (ev->event == CMDEV_ESTABLISHED_EV)
		came_up(id, ev);
	st_add(&id->ev[ev->event], 1);
	if (ev->event == CMDEV_DISCONNECTED_EV || (ev->event >= CMDEV_CONNECT_ERROR_EV && ev->event <= CMDEV_REJECTED_EV)) {
		count_end(ev->event);
		__atomic_store_n(&id->over, 1, __ATOMIC_RELAXED);
	}
}

/* Until .reported is counted up, who destroys the id waits, so all is looked at before; what may wait for him comes behind. */
static void on_event(struct st_thread *t, u32 file, const struct rdma_ucm_event_resp *ev)
{
	struct st_id *id = &ids[ev->uid & 0xFF];
	u32 life = (u32)(ev->uid >> 8);
	bool request = ev->event == CMDEV_CONNECT_REQUEST_EV;

	ST_CHECK(ev->uid >> 63 && (ev->uid & 0xFF) < ST_IDS, "event %u of uid %#llx", ev->event, (unsigned long long)ev->uid);
	ST_CHECK(st_get(&id->life) == life, "event %u of id %u, which is destroyed", ev->event, slot_of(id));
	if (!request)
		of_conn(t, id, ev);
	__atomic_fetch_add(&id->reported, 1, __ATOMIC_RELEASE);
	if (request) {
		on_request(t, file, ev);
		return;
	}
	if (!st_use(&id->o))
		return;
	if (id->life == life)
		on_conn_event(t, id, ev);
	st_done(&id->o);
}

/* True if there was one. */
static bool fetch(struct st_thread *t, u32 file)
{
	struct rdma_ucm_get_event cmd = { 0 };
	struct rdma_ucm_event_resp ev;
	u64 begin;
	int ret;

	if (!is_loose(file) && pthread_mutex_trylock(&files[file].fetch))
		return false;
	begin = st_now();
	ret = ASK(file, GET_EVENT, cmd, ev);
	ALLOW(ret, "get_event", EAGAIN);
	if (!ret) {
		st_log(begin, "get_event", (u32)(ev.uid & 0xFF), ev.event, (int)ev.status);
		on_event(t, file, &ev);
	}
	if (!is_loose(file))
		pthread_mutex_unlock(&files[file].fetch);
	return !ret;
}

void *st_cm_thread(void *arg)
{
	u32 file = (u32)(uintptr_t)arg;
	struct st_thread t = { .n = ST_WORKERS + file };

	rand_gen_seed(&t.g, 1000 + file);
	while (!st_stopping())
		if (!fetch(&t, file))
			poll(&(struct pollfd){ .fd = files[file].fd, .events = POLLIN }, 1, 5);
	return NULL;
}

/* ---- what workers do ---- */

static void churn_listener(struct st_thread *t)
{
	u32 n = st_below(t, LISTENERS);
	struct st_id *id = &ids[n];
	struct rdma_ucm_query_addr_resp resp;

	if (!st_take(&id->o))
		return;
	if (id->o.p) {
		if (st_one_in(t, 30))
			destroy(id);
	} else {
		struct rdma_ucm_query cmd = { .option = RDMA_USER_CM_QUERY_ADDR };

		create(t, id);
		bind_id(id, __atomic_load_n(&ports[n], __ATOMIC_RELAXED));
		cmd.id = id->number;
		if (st_get(&id->ok[BIND]) && !ASK(id->file, QUERY, cmd, resp)) {
			listen_id(id);
			__atomic_store_n(&ports[n], ((struct sockaddr_in *)&resp.src_addr)->sin_port, __ATOMIC_RELAXED);
		}
	}
	st_done(&id->o);
}

static void new_connection(struct st_thread *t)
{
	__be16 port = __atomic_load_n(&ports[st_below(t, LISTENERS)], __ATOMIC_RELAXED);
	struct st_id *id = port && st_get(&live) < ST_IDS / 2 ? take_free(t) : NULL; /* the other half is for who answers */

	if (!id)
		return;
	create(t, id);
	if (st_one_in(t, 4))
		set_tos(id);
	resolve(id, port);
	st_done(&id->o);
}

static void meddle_with(struct st_thread *t, struct st_id *id)
{
	switch (st_below(t, 14)) {
	case 0:
		bind_id(id, 0);
		break;
	case 1:
		route(id);
		break;
	case 2:
		connect_id(t, id);
		break;
	case 3:
		accept_id(t, id);
		break;
	case 4:
		if (id->passive)
			reject_id(id);
		break;
	case 5:
		if (slot_of(id) >= LISTENERS && st_one_in(t, 3))
			disconnect_id(id);
		break;
	case 7:
		set_tos(id);
		break;
	case 8:
		qp_attr(id);
		break;
	case 9:
		join(id);
		break;
	default:
		query(id);
	}
}

static void meddle(struct st_thread *t)
{
	struct st_id *id = &ids[st_below(t, ST_IDS)];

	if (!st_use(&id->o))
		return;
	meddle_with(t, id);
	st_done(&id->o);
}

/* Ended ids, and now and then others, in the middle. */
static void reap(struct st_thread *t)
{
	struct st_id *id = &ids[LISTENERS + st_below(t, ST_IDS - LISTENERS)];
	bool any = st_one_in(t, 60);
	struct st_book *b;
	u32 life = 0;

	if (!st_take(&id->o))
		return;
	b = own_book(id);
	if (id->o.p && !any && st_one_in(t, 4)) {
		migrate(t, id);
	} else if (id->o.p && (any || st_get(&id->over) || (!b && st_one_in(t, 8)))) {
		destroy(id);
		life = id->book_life;
	}
	st_done(&id->o);
	if (b && life)
		st_qp_end(t, b->index, life);
}

void st_cm(struct st_thread *t)
{
	static void (*const what[])(struct st_thread *t) = { churn_listener, new_connection, new_connection, meddle, reap, reap, st_qp_reap };

	if (st_one_in(t, 6))
		fetch(t, st_below(t, ST_FILES));
	what[st_below(t, ARRAY_SIZE(what))](t);
}

/* ---- all ---- */

void st_cm_open(void)
{
	u32 i;

	for (i = 0; i < ST_IDS; i++)
		pthread_rwlock_init(&ids[i].o.guard, NULL);
	for (i = 0; i < ST_FILES; i++) {
		pthread_mutex_init(&files[i].fetch, NULL);
		files[i].fd = shim_cmdev_open(O_NONBLOCK | O_CLOEXEC);
		ST_CHECK(files[i].fd >= 0, "open: %d", errno);
	}
}

/* Workers have ended, event threads run. Requests that nobody answered are rejected; then each connection comes up or fails, and those that came up end. */
static bool is_waited_for(struct st_id *id)
{
	return id->o.p && !st_get(&id->over) && (st_get(&id->ok[CONNECT]) || st_get(&id->ok[ACCEPT]));
}

bool st_cm_is_quiet(void)
{
	bool quiet = true;
	u32 i;

	for (i = LISTENERS; i < ST_IDS; i++) {
		struct st_id *id = &ids[i];

		if (!st_use(&id->o))
			continue;
		if (id->passive && !st_get(&id->ok[ACCEPT]) && !st_get(&id->ok[REJECT]) && !st_get(&id->tried[ACCEPT]))
			reject_id(id);
		if (is_waited_for(id)) {
			quiet = false;
			disconnect_id(id);
		}
		st_done(&id->o);
	}
	return quiet;
}

/* Event threads run. */
void st_cm_destroy_all(void)
{
	u32 i;

	for (i = 0; i < ST_IDS; i++) {
		pthread_rwlock_wrlock(&ids[i].o.guard);
		if (ids[i].o.p)
			destroy(&ids[i]);
		st_done(&ids[i].o);
	}
}

void st_cm_close(void)
{
	int ret;
	u32 i;

	for (i = 0; i < ST_IDS; i++)
		ST_CHECK(!ids[i].o.p, "id %u is left", i);
	for (i = 0; i < ST_FILES; i++)
		ST_CHECK(shim_cmdev_close(files[i].fd, &ret) && !ret, "close");
}
