// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The rdma_cm device of the shim, by the commands that librdmacm writes: what each gives, in which order events come, how many tokens the descriptor
 * holds; bytes that no librdmacm would write; fork and vfork. The test is linked with the shim, so open(), write() and close() here are the interposed ones.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "cancelled.h"
#include "shim/cmdev_internal.h"

#define WAIT_MS 20000
#define SOON_MS 200
#define CM_PATH "/dev/infiniband/rdma_cm"

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "child: line %d: %s, errno %d\n", __LINE__, #x, errno); \
			_exit(__LINE__ % 251 + 1); \
		} \
	} while (0)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static int setup(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i;

	for (i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "uwarp_lo"))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	cq = pd ? ibv_create_cq(ctx, 64, NULL, NULL, 0) : NULL;
	return !cq;
}

static int teardown(void **state)
{
	return ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(ctx);
}

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr a = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &a);

	assert_non_null(qp);
	return qp;
}

/* ---- commands ---- */

struct frame {
	struct rdma_ucm_cmd_hdr hdr;
	u8 body[1024];
};

/* 0 or a negative errno. */
static int put(int fd, u32 cmd, const void *body, size_t len, size_t out)
{
	struct frame f = { .hdr = { .cmd = cmd, .in = (u16)len, .out = (u16)out } };
	ssize_t n;

	memcpy(f.body, body, len);
	n = write(fd, &f, sizeof(f.hdr) + len);
	if (n < 0)
		return -errno;
	return n == (ssize_t)(sizeof(f.hdr) + len) ? 0 : -EIO;
}

#define PUT(fd, cmd, body) put(fd, RDMA_USER_CM_CMD_##cmd, &(body), sizeof(body), 0)
#define ASK(fd, cmd, body, resp) ((body).response = (uintptr_t)&(resp), put(fd, RDMA_USER_CM_CMD_##cmd, &(body), sizeof(body), sizeof(resp)))

static int open_cm(void)
{
	int fd = open(CM_PATH, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static u32 create(int fd, u64 uid)
{
	struct rdma_ucm_create_id cmd = { .uid = uid, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC };
	struct rdma_ucm_create_id_resp resp = { .id = ~0u };

	assert_int_equal(ASK(fd, CREATE_ID, cmd, resp), 0);
	return resp.id;
}

/* What was reported of it, or a negative errno. */
static int destroy(int fd, u32 id)
{
	struct rdma_ucm_destroy_id cmd = { .id = id };
	struct rdma_ucm_destroy_id_resp resp = { .events_reported = 777 };
	int err = ASK(fd, DESTROY_ID, cmd, resp);

	return err ? err : (int)resp.events_reported;
}

static int bind_to(int fd, u32 id, const char *text, u16 port)
{
	struct rdma_ucm_bind cmd = { .id = id };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
		cmd.addr_size = sizeof(in);
		memcpy(&cmd.addr, &in, sizeof(in));
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
		cmd.addr_size = sizeof(in6);
		memcpy(&cmd.addr, &in6, sizeof(in6));
	}
	return PUT(fd, BIND, cmd);
}

static int query_addr(int fd, u32 id, struct rdma_ucm_query_addr_resp *resp)
{
	struct rdma_ucm_query cmd = { .id = id, .option = RDMA_USER_CM_QUERY_ADDR };

	memset(resp, 0xEE, sizeof(*resp));
	return ASK(fd, QUERY, cmd, *resp);
}

static u16 port_of(int fd, u32 id)
{
	struct rdma_ucm_query_addr_resp resp;

	assert_int_equal(query_addr(fd, id, &resp), 0);
	return ntohs(((struct sockaddr_in *)&resp.src_addr)->sin_port);
}

static int listen_id(int fd, u32 id)
{
	struct rdma_ucm_listen cmd = { .id = id, .backlog = 16 };

	return PUT(fd, LISTEN, cmd);
}

static u32 listen_on(int fd, const char *text, u64 uid, u16 *port)
{
	u32 id = create(fd, uid);

	assert_int_equal(bind_to(fd, id, text, *port), 0);
	assert_int_equal(listen_id(fd, id), 0);
	*port = port_of(fd, id);
	return id;
}

static int resolve(int fd, u32 id, const char *text, u16 port)
{
	struct rdma_ucm_resolve_addr cmd = { .id = id, .timeout_ms = 2000, .dst_size = sizeof(struct sockaddr_in) };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET, text, &in.sin_addr), 1);
	memcpy(&cmd.dst_addr, &in, sizeof(in));
	return PUT(fd, RESOLVE_ADDR, cmd);
}

static int resolve_route(int fd, u32 id)
{
	struct rdma_ucm_resolve_route cmd = { .id = id, .timeout_ms = 2000 };

	return PUT(fd, RESOLVE_ROUTE, cmd);
}

static int get_event(int fd, struct rdma_ucm_event_resp *ev)
{
	struct rdma_ucm_get_event cmd = { 0 };

	memset(ev, 0xEE, sizeof(*ev));
	return ASK(fd, GET_EVENT, cmd, *ev);
}

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

static void expect(int fd, struct rdma_ucm_event_resp *ev, enum cmdev_event_type type, u64 uid)
{
	assert_true(readable(fd, WAIT_MS));
	assert_int_equal(get_event(fd, ev), 0);
	if (ev->event != (u32)type)
		fail_msg("event %u, status %d, and not %d", ev->event, (int)ev->status, type);
	assert_int_equal(ev->uid, uid);
}

static void resolve_all(int fd, u32 id, u64 uid, const char *text, u16 port)
{
	struct rdma_ucm_event_resp ev;

	assert_int_equal(resolve(fd, id, text, port), 0);
	expect(fd, &ev, CMDEV_ADDR_RESOLVED_EV, uid);
	assert_int_equal(ev.id, id);
	assert_int_equal(ev.status, 0);
	assert_int_equal(resolve_route(fd, id), 0);
	expect(fd, &ev, CMDEV_ROUTE_RESOLVED_EV, uid);
}

static struct rdma_ucm_conn_param param(const struct ibv_qp *qp, const char *pdata)
{
	struct rdma_ucm_conn_param p = { .qp_num = qp ? qp->qp_num : 0, .valid = 1, .responder_resources = 5, .initiator_depth = 3 };

	p.private_data_len = (u8)strlen(pdata);
	memcpy(p.private_data, pdata, p.private_data_len);
	return p;
}

static int connect_id(int fd, u32 id, const struct ibv_qp *qp, const char *pdata)
{
	struct rdma_ucm_connect cmd = { .id = id, .conn_param = param(qp, pdata) };

	return PUT(fd, CONNECT, cmd);
}

static int accept_id(int fd, u32 id, u64 uid, const struct ibv_qp *qp, const char *pdata)
{
	struct rdma_ucm_accept cmd = { .id = id, .uid = uid, .conn_param = param(qp, pdata) };

	return PUT(fd, ACCEPT, cmd);
}

static int disconnect(int fd, u32 id)
{
	struct rdma_ucm_disconnect cmd = { .id = id };

	return PUT(fd, DISCONNECT, cmd);
}

static void expect_pdata(const struct rdma_ucm_event_resp *ev, const char *text)
{
	assert_int_equal(ev->param.conn.private_data_len, strlen(text));
	assert_memory_equal(ev->param.conn.private_data, text, strlen(text));
}

/* Both ends of a connection, each on a file of its own. */
struct pair {
	int cfd, sfd;
	u32 listener, client, server;
	struct ibv_qp *cqp, *sqp;
	u16 port;
};

static void pair_ask(struct pair *p)
{
	struct rdma_ucm_event_resp ev;

	*p = (struct pair){ .cfd = open_cm(), .sfd = open_cm(), .cqp = make_qp(), .sqp = make_qp() };
	p->listener = listen_on(p->sfd, "127.0.0.1", 0x11, &p->port);
	p->client = create(p->cfd, 0x22);
	resolve_all(p->cfd, p->client, 0x22, "127.0.0.1", p->port);
	assert_int_equal(connect_id(p->cfd, p->client, p->cqp, "hello"), 0);
	expect(p->sfd, &ev, CMDEV_CONNECT_REQUEST_EV, 0x11);
	expect_pdata(&ev, "hello");
	assert_int_equal(ev.param.conn.responder_resources, 3); /* the peer's depth */
	assert_int_equal(ev.param.conn.initiator_depth, 5);
	p->server = ev.id;
	assert_int_not_equal(p->server, p->listener);
}

static void pair_up(struct pair *p)
{
	struct rdma_ucm_event_resp ev;

	pair_ask(p);
	assert_int_equal(accept_id(p->sfd, p->server, 0x33, p->sqp, "welcome"), 0);
	expect(p->cfd, &ev, CMDEV_ESTABLISHED_EV, 0x22);
	assert_int_equal(ev.id, p->client);
	expect_pdata(&ev, "welcome");
	expect(p->sfd, &ev, CMDEV_ESTABLISHED_EV, 0x33);
	assert_int_equal(ev.id, p->server);
}

static void pair_close(struct pair *p)
{
	assert_int_equal(close(p->cfd), 0);
	assert_int_equal(close(p->sfd), 0);
	assert_int_equal(ibv_destroy_qp(p->cqp), 0);
	assert_int_equal(ibv_destroy_qp(p->sqp), 0);
}

static void reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- the descriptor ---- */

static void is_a_character_device(void **state)
{
	int fd = open_cm(), plain = open("/dev/null", O_RDWR), other;
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	assert_false(readable(fd, 0));
	assert_true(shim_cmdev_is(fd));
	assert_false(shim_cmdev_is(plain));
	assert_int_equal(write(plain, "x", 1), 1);
	assert_int_equal(close(fd), 0);
	assert_false(shim_cmdev_is(fd));
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(close(fd), -1);
	assert_int_equal(errno, EBADF);
	other = openat(AT_FDCWD, CM_PATH, O_RDWR | O_NONBLOCK);
	assert_true(shim_cmdev_is(other));
	assert_int_equal(fcntl(other, F_GETFD) & FD_CLOEXEC, 0);
	assert_int_equal(fcntl(other, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	assert_int_equal(dup2(plain, other), other); /* closes it */
	assert_false(shim_cmdev_is(other));
	assert_int_equal(fstat(other, &st), 0);
	assert_int_equal(write(other, "x", 1), 1);
	close(other);
	close(plain);
}

static void closed_by_range(void **state)
{
	int a = open_cm(), b = open_cm(), c = open_cm();

	assert_int_equal(close_range((unsigned int)b, (unsigned int)b, 0), 0);
	assert_true(shim_cmdev_is(a) && shim_cmdev_is(c));
	assert_false(shim_cmdev_is(b));
	close(a);
	close(c);
}

/* ---- commands that are wrong ---- */

#define IN(type) sizeof(struct rdma_ucm_##type)

static const struct {
	u32 cmd;
	size_t in, out;
	int err;
} wrong[] = {
	{ RDMA_USER_CM_CMD_CREATE_ID, 0, 4, -EINVAL },
	{ RDMA_USER_CM_CMD_CREATE_ID, 17, 4, -EINVAL },
	{ RDMA_USER_CM_CMD_CREATE_ID, IN(create_id), 3, -ENOSPC },
	{ RDMA_USER_CM_CMD_CREATE_ID, IN(create_id), 4, -EINVAL }, /* port space 0 */
	{ RDMA_USER_CM_CMD_DESTROY_ID, 11, 4, -EINVAL },
	{ RDMA_USER_CM_CMD_DESTROY_ID, IN(destroy_id), 0, -ENOSPC },
	{ RDMA_USER_CM_CMD_DESTROY_ID, IN(destroy_id), 4, -ENOENT },
	{ RDMA_USER_CM_CMD_BIND_IP, IN(bind_ip), 0, -EINVAL }, /* no family */
	{ RDMA_USER_CM_CMD_RESOLVE_IP, IN(resolve_ip), 0, -EINVAL },
	{ RDMA_USER_CM_CMD_RESOLVE_ROUTE, IN(resolve_route), 0, -ENOENT },
	{ RDMA_USER_CM_CMD_QUERY_ROUTE, IN(query), 8, -ENOSPC },
	{ RDMA_USER_CM_CMD_QUERY_ROUTE, IN(query), 512, -ENOENT },
	{ RDMA_USER_CM_CMD_CONNECT, IN(connect), 0, -ENOENT },
	{ RDMA_USER_CM_CMD_CONNECT, 200, 0, -EINVAL },
	{ RDMA_USER_CM_CMD_LISTEN, IN(listen), 0, -ENOENT },
	{ RDMA_USER_CM_CMD_ACCEPT, IN(accept), 0, -ENOENT },
	{ RDMA_USER_CM_CMD_REJECT, IN(reject), 0, -ENOENT },
	{ RDMA_USER_CM_CMD_REJECT, IN(reject) - 1, 0, -EINVAL },
	{ RDMA_USER_CM_CMD_DISCONNECT, IN(disconnect), 0, -ENOENT },
	{ RDMA_USER_CM_CMD_DISCONNECT, 3, 0, -EINVAL },
	{ RDMA_USER_CM_CMD_INIT_QP_ATTR, IN(init_qp_attr), 512, -ENOENT },
	{ RDMA_USER_CM_CMD_INIT_QP_ATTR, IN(init_qp_attr), 100, -ENOSPC },
	{ RDMA_USER_CM_CMD_GET_EVENT, IN(get_event), 16, -ENOSPC },
	{ RDMA_USER_CM_CMD_GET_EVENT, 4, 512, -EINVAL },
	{ RDMA_USER_CM_CMD_GET_EVENT, IN(get_event), 512, -EAGAIN },
	{ RDMA_USER_CM_CMD_GET_OPTION, 64, 64, -ENOSYS },
	{ RDMA_USER_CM_CMD_SET_OPTION, IN(set_option), 0, -ENOENT },
	{ RDMA_USER_CM_CMD_NOTIFY, IN(notify), 0, -ENOENT },
	{ RDMA_USER_CM_CMD_JOIN_IP_MCAST, IN(join_ip_mcast), 4, -ENOENT },
	{ RDMA_USER_CM_CMD_LEAVE_MCAST, IN(destroy_id), 4, -ENOENT },
	{ RDMA_USER_CM_CMD_MIGRATE_ID, IN(migrate_id), 4, -ENOENT },
	{ RDMA_USER_CM_CMD_QUERY, IN(query), 512, -ENOENT },
	{ RDMA_USER_CM_CMD_BIND, IN(bind), 0, -EINVAL },
	{ RDMA_USER_CM_CMD_RESOLVE_ADDR, IN(resolve_addr), 0, -EINVAL },
	{ RDMA_USER_CM_CMD_JOIN_MCAST, IN(join_mcast), 4, -ENOENT },
	{ RDMA_USER_CM_CMD_JOIN_MCAST + 1, 64, 64, -ENOSYS },
	{ 0xFFFFFFFF, 0, 0, -ENOSYS },
};

static void wrong_commands(void **state)
{
	struct rdma_ucm_cmd_hdr hdr = { .cmd = RDMA_USER_CM_CMD_LISTEN, .in = 9 };
	static const u8 zero[1024];
	int fd = open_cm();
	u8 longer[sizeof(hdr) + 8];
	size_t i;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		if (put(fd, wrong[i].cmd, zero, wrong[i].in, wrong[i].out) != wrong[i].err)
			fail_msg("row %zu: %d", i, put(fd, wrong[i].cmd, zero, wrong[i].in, wrong[i].out));
	/* Headers that are cut, or lie about what follows. */
	for (i = 0; i < sizeof(hdr); i++)
		assert_int_equal(write(fd, &hdr, i), -1);
	memcpy(longer, &hdr, sizeof(hdr));
	memset(longer + sizeof(hdr), 0, 8);
	assert_int_equal(write(fd, longer, sizeof(longer)), -1);
	assert_int_equal(errno, EINVAL);
	close(fd);
}

static void bad_pointers(void **state)
{
	struct rdma_ucm_create_id create_cmd = { .response = 8, .ps = RDMA_PS_TCP };
	struct rdma_ucm_query query_cmd = { .response = 8 };
	struct rdma_ucm_set_option option = { .optval = 8, .optname = RDMA_OPTION_ID_TOS, .optlen = 1 };
	struct rdma_ucm_get_event event_cmd = { .response = 8 };
	struct rdma_ucm_event_resp ev;
	int fd = open_cm();

	assert_int_equal(put(fd, RDMA_USER_CM_CMD_CREATE_ID, &create_cmd, sizeof(create_cmd), 4), -EFAULT);
	query_cmd.id = option.id = create(fd, 1);
	assert_int_equal(put(fd, RDMA_USER_CM_CMD_QUERY, &query_cmd, sizeof(query_cmd), 512), -EFAULT);
	assert_int_equal(PUT(fd, SET_OPTION, option), -EFAULT);
	/* The event is not lost. */
	assert_int_equal(resolve(fd, query_cmd.id, "127.0.0.1", 9), 0);
	assert_true(readable(fd, WAIT_MS));
	assert_int_equal(put(fd, RDMA_USER_CM_CMD_GET_EVENT, &event_cmd, sizeof(event_cmd), sizeof(ev)), -EFAULT);
	expect(fd, &ev, CMDEV_ADDR_RESOLVED_EV, 1);
	assert_false(readable(fd, 0));
	assert_int_equal(destroy(fd, query_cmd.id), 1);
	close(fd);
}

static void another_files_id(void **state)
{
	int a = open_cm(), b = open_cm();
	u32 id = create(a, 1);

	assert_int_equal(listen_id(b, id), -EINVAL);
	assert_int_equal(destroy(b, id), -EINVAL);
	assert_int_equal(destroy(a, id), 0);
	assert_int_equal(destroy(a, id), -ENOENT);
	close(a);
	close(b);
}

/* Whatever is written, nothing worse than an errno comes of it. The bytes are the same each time. */
static void garbage(void **state)
{
	int fd = open_cm(), i;
	struct rand_gen g;
	struct frame f;
	size_t n, k;

	rand_gen_seed(&g, 1);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (i = 0; i < 20000; i++) {
		n = rand_gen_below(&g, sizeof(f) + 1);
		memset(&f, 0, sizeof(f));
		for (k = 0; k + 8 <= sizeof(f); k += 8)
			if (rand_gen_below(&g, 3) == 0)
				memcpy((u8 *)&f + k, &(u64){ rand_gen_u64(&g) }, 8);
		f.hdr.cmd = (u32)rand_gen_below(&g, RDMA_USER_CM_CMD_JOIN_MCAST + 2);
		if (rand_gen_below(&g, 4))
			f.hdr.in = n > sizeof(f.hdr) ? (u16)(n - sizeof(f.hdr)) : 0;
		if (rand_gen_below(&g, 4))
			f.hdr.out = 1024;
		/* Existing ids and right families now and then. */
		if (rand_gen_below(&g, 2))
			memset(f.body, 0, 4 + rand_gen_below(&g, 8));
		if (rand_gen_below(&g, 2))
			f.body[8] = AF_INET;
		if (write(fd, &f, n) < 0)
			assert_int_not_equal(errno, EIO);
		if (i % 100 == 0)
			create(fd, 1);
	}
	assert_int_equal(close(fd), 0);
}

/* ---- addresses ---- */

static void af_ib_probe(void **state)
{
	struct rdma_ucm_create_id cmd = { .uid = 1, .ps = RDMA_PS_IB, .qp_type = IBV_QPT_RC };
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_bind bind_cmd = { .addr_size = sizeof(struct sockaddr_ib) };
	struct sockaddr_ib ib = { .sib_family = AF_IB };
	int fd = open_cm();

	assert_int_equal(ASK(fd, CREATE_ID, cmd, resp), 0);
	bind_cmd.id = resp.id;
	memcpy(&bind_cmd.addr, &ib, sizeof(ib));
	assert_int_equal(PUT(fd, BIND, bind_cmd), 0);
	ib.sib_addr.sib_raw[15] = 1;
	memcpy(&bind_cmd.addr, &ib, sizeof(ib));
	assert_int_equal(PUT(fd, BIND, bind_cmd), -EADDRNOTAVAIL);
	assert_int_equal(destroy(fd, resp.id), 0);
	close(fd);
}

static void binding(void **state)
{
	struct rdma_ucm_query_addr_resp resp;
	int fd = open_cm();
	u32 a = create(fd, 1), b = create(fd, 2), c;
	u16 port;

	assert_int_equal(bind_to(fd, a, "127.0.0.1", 0), 0);
	port = port_of(fd, a);
	assert_true(port);
	assert_int_equal(bind_to(fd, a, "127.0.0.1", 0), -EINVAL);
	assert_int_equal(bind_to(fd, b, "127.0.0.1", port), -EADDRINUSE);
	assert_int_equal(bind_to(fd, b, "0.0.0.0", port), -EADDRINUSE);
	assert_int_equal(bind_to(fd, b, "192.0.2.1", 0), -EADDRNOTAVAIL);
	assert_int_equal(query_addr(fd, a, &resp), 0);
	assert_int_equal(resp.node_guid, ibv_get_device_guid(ctx->device));
	assert_int_equal(resp.port_num, 1);
	assert_int_equal(resp.src_size, sizeof(struct sockaddr_in));
	assert_int_equal(resp.dst_size, 0);
	assert_int_equal(destroy(fd, a), 0);
	/* The number is free at once. */
	assert_int_equal(bind_to(fd, b, "0.0.0.0", port), 0);
	assert_int_equal(query_addr(fd, b, &resp), 0);
	assert_int_equal(resp.node_guid, 0);
	c = create(fd, 3);
	assert_int_equal(listen_id(fd, c), 0); /* at a port of its own */
	assert_true(port_of(fd, c));
	assert_int_equal(listen_id(fd, c), -EINVAL);
	close(fd);
}

/* Older librdmacm: without what was appended to the structures. */
static void shorter_structures(void **state)
{
	struct rdma_ucm_query_addr_resp resp;
	struct rdma_ucm_query cmd = { .option = RDMA_USER_CM_QUERY_ADDR, .response = (uintptr_t)&resp };
	size_t without_index = offsetof(struct rdma_ucm_query_addr_resp, ibdev_index);
	int fd = open_cm();

	cmd.id = create(fd, 1);
	assert_int_equal(bind_to(fd, cmd.id, "127.0.0.1", 0), 0);
	memset(&resp, 0xEE, sizeof(resp));
	assert_int_equal(put(fd, RDMA_USER_CM_CMD_QUERY, &cmd, sizeof(cmd), without_index), 0);
	assert_int_equal(resp.port_num, 1);
	assert_int_equal(resp.ibdev_index, 0xEEEEEEEE);
	assert_int_equal(put(fd, RDMA_USER_CM_CMD_QUERY, &cmd, sizeof(cmd), without_index - 1), -ENOSPC);
	close(fd);
}

static void old_addresses(void **state)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_ucm_bind_ip bind_cmd = { 0 };
	struct rdma_ucm_resolve_ip resolve_cmd = { .timeout_ms = 1000 };
	struct rdma_ucm_query query_cmd = { 0 };
	struct rdma_ucm_query_route_resp route;
	struct rdma_ucm_event_resp ev;
	int fd = open_cm();

	memcpy(&bind_cmd.addr, &in, sizeof(in));
	query_cmd.id = resolve_cmd.id = bind_cmd.id = create(fd, 4);
	assert_int_equal(PUT(fd, BIND_IP, bind_cmd), 0);
	in.sin_port = htons(9);
	memcpy(&resolve_cmd.dst_addr, &in, sizeof(in));
	assert_int_equal(PUT(fd, RESOLVE_IP, resolve_cmd), 0);
	expect(fd, &ev, CMDEV_ADDR_RESOLVED_EV, 4);
	assert_int_equal(ASK(fd, QUERY_ROUTE, query_cmd, route), 0);
	assert_int_equal(route.node_guid, ibv_get_device_guid(ctx->device));
	assert_int_equal(route.num_paths, 0);
	assert_memory_equal(&route.dst_addr, &in, sizeof(in));
	assert_int_equal(route.ib_route[0].dgid[12], 127);
	close(fd);
}

static void resolving(void **state)
{
	struct rdma_ucm_query_addr_resp resp;
	struct rdma_ucm_event_resp ev;
	int fd = open_cm();
	u32 id = create(fd, 5);

	assert_int_equal(resolve_route(fd, id), -EINVAL);
	assert_int_equal(connect_id(fd, id, NULL, ""), -EINVAL);
	assert_int_equal(resolve(fd, id, "127.0.0.1", 0), 0); /* to find the device */
	expect(fd, &ev, CMDEV_ADDR_RESOLVED_EV, 5);
	assert_int_equal(query_addr(fd, id, &resp), 0);
	assert_int_equal(((struct sockaddr_in *)&resp.dst_addr)->sin_port, 0);
	assert_int_equal(resolve(fd, id, "127.0.0.1", 9), -EINVAL);
	assert_int_equal(resolve_route(fd, id), 0);
	assert_int_equal(resolve_route(fd, id), -EINVAL);
	assert_int_equal(connect_id(fd, id, NULL, ""), -EINVAL);
	/* One event fetched, one purged. */
	assert_true(readable(fd, 0));
	assert_int_equal(destroy(fd, id), 1);
	assert_false(readable(fd, 0));
	close(fd);
}

static void options(void **state)
{
	struct rdma_ucm_set_option cmd = { 0 };
	static const struct {
		u32 level, name, len;
		int err;
	} rows[] = {
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 1, 0 },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 4, -EINVAL },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 4, 0 },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 1, -EINVAL },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 4, 0 },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 0, -EINVAL },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 1, 0 },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 9000, -EINVAL },
		{ RDMA_OPTION_ID, 4, 1, -ENOSYS },
		{ RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 1, -EINVAL },
		{ 2, 0, 1, -ENOSYS },
	};
	int value = 1, fd = open_cm();
	size_t i;

	cmd.id = create(fd, 1);
	cmd.optval = (uintptr_t)&value;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cmd.level = rows[i].level;
		cmd.optname = rows[i].name;
		cmd.optlen = rows[i].len;
		assert_int_equal(PUT(fd, SET_OPTION, cmd), rows[i].err);
	}
	close(fd);
}

static void no_multicast(void **state)
{
	struct rdma_ucm_create_id udp = { .uid = 1, .ps = RDMA_PS_UDP };
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_join_ip_mcast cmd = { .uid = 2 };
	struct rdma_ucm_event_resp ev;
	int fd = open_cm();

	cmd.id = create(fd, 1);
	assert_int_equal(ASK(fd, JOIN_IP_MCAST, cmd, resp), -EINVAL);
	assert_int_equal(ASK(fd, CREATE_ID, udp, resp), 0);
	cmd.id = resp.id;
	assert_int_equal(ASK(fd, JOIN_IP_MCAST, cmd, resp), -ENOSYS);
	/* Datagrams find the device, and no more. */
	assert_int_equal(listen_id(fd, cmd.id), -ENOSYS);
	resolve_all(fd, cmd.id, 1, "127.0.0.1", 9);
	assert_int_equal(connect_id(fd, cmd.id, NULL, ""), -ENOSYS);
	assert_int_equal(get_event(fd, (fcntl(fd, F_SETFL, O_NONBLOCK), &ev)), -EAGAIN);
	close(fd);
}

/* ---- connections ---- */

static void a_connection(void **state)
{
	struct rdma_ucm_query_addr_resp there, here;
	struct rdma_ucm_event_resp ev;
	struct pair p;

	pair_up(&p);
	assert_int_equal(query_addr(p.cfd, p.client, &here), 0);
	assert_int_equal(query_addr(p.sfd, p.server, &there), 0);
	assert_memory_equal(&here.src_addr, &there.dst_addr, sizeof(struct sockaddr_in));
	assert_memory_equal(&here.dst_addr, &there.src_addr, sizeof(struct sockaddr_in));
	assert_int_equal(disconnect(p.cfd, p.client), 0);
	expect(p.sfd, &ev, CMDEV_DISCONNECTED_EV, 0x33);
	expect(p.cfd, &ev, CMDEV_DISCONNECTED_EV, 0x22);
	assert_int_equal(disconnect(p.sfd, p.server), 0);
	assert_int_equal(disconnect(p.sfd, p.server), 0);
	assert_int_equal(disconnect(p.sfd, p.listener), -EINVAL);
	assert_int_equal(destroy(p.cfd, p.client), 4);
	assert_int_equal(destroy(p.sfd, p.server), 2);
	assert_int_equal(destroy(p.sfd, p.listener), 1);
	assert_false(readable(p.cfd, 0) || readable(p.sfd, 0));
	pair_close(&p);
}

static void init_qp_attr(void **state)
{
	static const struct {
		u32 state, mask;
		int err;
	} rows[] = {
		{ IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT, 0 },
		{ IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT, 0 },
		{ IBV_QPS_RTS, IBV_QP_PORT, 0 },
		{ IBV_QPS_RESET, 0, -EINVAL },
		{ 99, 0, -EINVAL },
	};
	struct ib_uverbs_qp_attr attr;
	struct rdma_ucm_init_qp_attr cmd;
	struct pair p;
	size_t i;

	pair_ask(&p);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cmd = (struct rdma_ucm_init_qp_attr){ .id = p.server, .qp_state = rows[i].state };
		assert_int_equal(ASK(p.sfd, INIT_QP_ATTR, cmd, attr), rows[i].err);
		if (!rows[i].err) {
			assert_int_equal(attr.qp_attr_mask, rows[i].mask);
			assert_int_equal(attr.port_num, 1);
		}
	}
	pair_close(&p);
}

static void rejected(void **state)
{
	struct rdma_ucm_reject cmd = { .private_data_len = 2, .private_data = "no" };
	struct rdma_ucm_event_resp ev;
	struct pair p;

	pair_ask(&p);
	cmd.id = p.server;
	assert_int_equal(PUT(p.sfd, REJECT, cmd), 0);
	expect(p.cfd, &ev, CMDEV_REJECTED_EV, 0x22);
	assert_int_equal((int)ev.status, -ECONNREFUSED);
	expect_pdata(&ev, "no");
	assert_int_equal(PUT(p.sfd, REJECT, cmd), -EINVAL);
	assert_int_equal(accept_id(p.sfd, p.server, 0x33, p.sqp, ""), -EINVAL);
	assert_false(readable(p.sfd, SOON_MS));
	assert_int_equal(destroy(p.sfd, p.server), 0);
	assert_int_equal(destroy(p.cfd, p.client), 4 - 1);
	pair_close(&p);
}

static void nobody_listens(void **state)
{
	struct ibv_qp *qp = make_qp();
	struct rdma_ucm_event_resp ev;
	int fd = open_cm();
	u32 id = create(fd, 7), bound = create(fd, 8);

	assert_int_equal(bind_to(fd, bound, "127.0.0.1", 0), 0);
	resolve_all(fd, id, 7, "127.0.0.1", port_of(fd, bound));
	assert_int_equal(connect_id(fd, id, qp, ""), 0);
	expect(fd, &ev, CMDEV_REJECTED_EV, 7);
	assert_int_equal((int)ev.status, -ECONNREFUSED);
	close(fd);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void unknown_qp(void **state)
{
	struct ibv_qp none = { .qp_num = 0xFFFFFF };
	struct rdma_ucm_event_resp ev;
	struct pair p;

	pair_ask(&p);
	assert_int_equal(accept_id(p.sfd, p.server, 0x33, &none, ""), -EINVAL);
	/* It still waits for an answer. */
	assert_int_equal(accept_id(p.sfd, p.server, 0x33, p.sqp, ""), 0);
	expect(p.cfd, &ev, CMDEV_ESTABLISHED_EV, 0x22);
	expect(p.sfd, &ev, CMDEV_ESTABLISHED_EV, 0x33);
	pair_close(&p);
}

/* The peer gives up before it is answered: the program hears of it from ACCEPT, and of nothing before. */
static void peer_gives_up(void **state)
{
	struct pair p;

	pair_ask(&p);
	assert_int_equal(destroy(p.cfd, p.client), 2);
	assert_false(readable(p.sfd, SOON_MS));
	assert_int_equal(accept_id(p.sfd, p.server, 0x33, p.sqp, ""), -ECONNRESET);
	assert_false(readable(p.sfd, SOON_MS));
	assert_int_equal(destroy(p.sfd, p.server), 0);
	pair_close(&p);
}

static void connection_is_destroyed(void **state)
{
	struct rdma_ucm_event_resp ev;
	struct pair p;

	pair_up(&p);
	assert_int_equal(destroy(p.cfd, p.client), 3);
	expect(p.sfd, &ev, CMDEV_DISCONNECTED_EV, 0x33);
	assert_int_equal(destroy(p.sfd, p.server), 2);
	pair_close(&p);
}

/* A request that nobody has fetched goes with its listener; its token, too. The child of one that was fetched stays. */
static void listener_is_destroyed(void **state)
{
	struct rdma_ucm_event_resp ev;
	struct ibv_qp *qp = make_qp();
	struct pair p;
	u32 other;

	pair_up(&p);
	other = create(p.cfd, 0x44);
	resolve_all(p.cfd, other, 0x44, "127.0.0.1", p.port);
	assert_int_equal(connect_id(p.cfd, other, qp, ""), 0);
	assert_true(readable(p.sfd, WAIT_MS));
	assert_int_equal(destroy(p.sfd, p.listener), 1);
	assert_false(readable(p.sfd, 0));
	assert_true(readable(p.cfd, WAIT_MS));
	assert_int_equal(get_event(p.cfd, &ev), 0);
	assert_true(ev.event == CMDEV_REJECTED_EV);
	assert_int_equal(ev.uid, 0x44);
	/* The port may be had again, while a child of the old listener lives. */
	p.listener = listen_on(p.sfd, "127.0.0.1", 0x55, &p.port);
	assert_int_equal(disconnect(p.sfd, p.server), 0);
	expect(p.cfd, &ev, CMDEV_DISCONNECTED_EV, 0x22);
	pair_close(&p);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static int migrate(int to, int from, u32 id)
{
	struct rdma_ucm_migrate_id cmd = { .id = id, .fd = (u32)from };
	struct rdma_ucm_migrate_resp resp = { 0 };
	int err = ASK(to, MIGRATE_ID, cmd, resp);

	return err ? err : (int)resp.events_reported;
}

/* A request that waits in the queue of @fd, where its listener is. */
static u32 unfetched_request(int fd, int cfd, const struct ibv_qp *qp)
{
	u16 port = 0;
	u32 client = create(cfd, 0x22), listener = listen_on(fd, "127.0.0.1", 0x11, &port);

	resolve_all(cfd, client, 0x22, "127.0.0.1", port);
	assert_int_equal(connect_id(cfd, client, qp, ""), 0);
	assert_true(readable(fd, WAIT_MS));
	return listener;
}

static void closed_with_a_request(void **state)
{
	int fd = open_cm(), cfd = open_cm();
	struct rdma_ucm_event_resp ev;
	struct ibv_qp *qp = make_qp();

	unfetched_request(fd, cfd, qp);
	assert_int_equal(close(fd), 0);
	expect(cfd, &ev, CMDEV_REJECTED_EV, 0x22);
	assert_int_equal(close(cfd), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* Numbers can be guessed. What was not fetched is not the program's yet. */
static void request_is_not_known_before_it_is_fetched(void **state)
{
	int fd = open_cm(), cfd = open_cm(), other = open_cm();
	struct ibv_qp *qp = make_qp(), *sqp = make_qp();
	struct rdma_ucm_event_resp ev;
	u32 listener = unfetched_request(fd, cfd, qp), id;

	for (id = 0; id < 200; id++) {
		if (id == listener)
			continue;
		assert_true(destroy(fd, id) < 0);
		assert_true(migrate(other, fd, id) < 0);
		assert_true(accept_id(fd, id, 1, sqp, "") < 0);
		assert_true(disconnect(fd, id) < 0);
	}
	expect(fd, &ev, CMDEV_CONNECT_REQUEST_EV, 0x11);
	assert_int_equal(accept_id(fd, ev.id, 0x33, sqp, ""), 0);
	expect(fd, &ev, CMDEV_ESTABLISHED_EV, 0x33);
	expect(cfd, &ev, CMDEV_ESTABLISHED_EV, 0x22);
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(cfd), 0);
	assert_int_equal(close(other), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_qp(sqp), 0);
}

/* It goes where its listener goes, and has nothing to do with the file that it came to any more. */
static void request_outlives_the_file_that_it_came_to(void **state)
{
	int fd = open_cm(), cfd = open_cm(), other = open_cm();
	struct rdma_ucm_event_resp ev;
	struct ibv_qp *qp = make_qp();
	u32 listener = unfetched_request(fd, cfd, qp);

	assert_int_equal(migrate(other, fd, listener), 0);
	assert_int_equal(close(fd), 0);
	expect(other, &ev, CMDEV_CONNECT_REQUEST_EV, 0x11);
	assert_int_equal(destroy(other, ev.id), 0);
	expect(cfd, &ev, CMDEV_REJECTED_EV, 0x22);
	assert_int_equal(close(cfd), 0);
	assert_int_equal(close(other), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void migration(void **state)
{
	struct rdma_ucm_event_resp ev;
	int other = open_cm();
	struct pair p;

	pair_up(&p);
	assert_int_equal(disconnect(p.cfd, p.client), 0);
	assert_true(readable(p.cfd, WAIT_MS));
	assert_int_equal(migrate(other, p.sfd, p.client), -EINVAL);
	assert_int_equal(migrate(other, STDIN_FILENO, p.client), -ENOENT);
	assert_int_equal(migrate(other, p.cfd, p.client), 3); /* with its event */
	assert_false(readable(p.cfd, 0));
	expect(other, &ev, CMDEV_DISCONNECTED_EV, 0x22);
	assert_false(readable(other, 0));
	assert_int_equal(ev.id, p.client);
	assert_int_equal(destroy(p.cfd, p.client), -EINVAL);
	assert_int_equal(migrate(other, other, p.client), 4);
	/* A listener: what comes is for its new file, the child as well. */
	assert_int_equal(migrate(other, p.sfd, p.listener), 1);
	p.client = create(p.cfd, 0x66);
	resolve_all(p.cfd, p.client, 0x66, "127.0.0.1", p.port);
	ibv_destroy_qp(p.cqp);
	p.cqp = make_qp();
	assert_int_equal(connect_id(p.cfd, p.client, p.cqp, ""), 0);
	expect(other, &ev, CMDEV_CONNECT_REQUEST_EV, 0x11);
	assert_int_equal(destroy(other, ev.id), 0);
	close(other);
	pair_close(&p);
}

/* A request is fetched from the file that the listener went to meanwhile, and belongs there. */
static void request_migrates(void **state)
{
	struct rdma_ucm_event_resp ev;
	struct ibv_qp *qp = make_qp();
	int a = open_cm(), b = open_cm(), c = open_cm();
	u16 port = 0;
	u32 listener = listen_on(a, "127.0.0.1", 1, &port), id = create(c, 2);

	resolve_all(c, id, 2, "127.0.0.1", port);
	assert_int_equal(connect_id(c, id, qp, ""), 0);
	assert_true(readable(a, WAIT_MS));
	assert_int_equal(migrate(b, a, listener), 0);
	assert_false(readable(a, 0));
	expect(b, &ev, CMDEV_CONNECT_REQUEST_EV, 1);
	assert_int_equal(destroy(a, ev.id), -EINVAL);
	assert_int_equal(destroy(b, ev.id), 0);
	close(a);
	close(b);
	close(c);
	ibv_destroy_qp(qp);
}

/* ---- both families ---- */

static void both_families(void **state)
{
	struct rdma_ucm_query_addr_resp resp;
	struct rdma_ucm_event_resp ev;
	struct rdma_ucm_set_option only = { .optname = RDMA_OPTION_ID_AFONLY, .optlen = sizeof(int) };
	struct ibv_qp *qp = make_qp();
	int s = open_cm(), c = open_cm(), on = 1;
	u32 listener, id = create(c, 2), blocked;
	u16 port = 0;

	listener = listen_on(s, "::", 1, &port);
	resolve_all(c, id, 2, "127.0.0.1", port);
	assert_int_equal(connect_id(c, id, qp, ""), 0);
	expect(s, &ev, CMDEV_CONNECT_REQUEST_EV, 1);
	assert_int_equal(query_addr(s, ev.id, &resp), 0);
	assert_int_equal(resp.src_size, sizeof(struct sockaddr_in));
	blocked = create(s, 3);
	assert_int_equal(bind_to(s, blocked, "0.0.0.0", port), -EADDRINUSE);
	assert_int_equal(destroy(s, listener), 1);
	/* And with IPv6 alone the number is free for IPv4. */
	listener = create(s, 4);
	only.id = listener;
	only.optval = (uintptr_t)&on;
	assert_int_equal(PUT(s, SET_OPTION, only), 0);
	assert_int_equal(bind_to(s, listener, "::", port), 0);
	assert_int_equal(bind_to(s, blocked, "0.0.0.0", port), 0);
	close(s);
	close(c);
	ibv_destroy_qp(qp);
}

/* A number that IPv4 has given away is not to be had for both. */
static void both_or_none(void **state)
{
	int fd = open_cm();
	u32 four = create(fd, 1), six = create(fd, 2);
	u16 port;

	assert_int_equal(bind_to(fd, four, "0.0.0.0", 0), 0);
	port = port_of(fd, four);
	assert_int_equal(bind_to(fd, six, "::", port), -EADDRINUSE);
	assert_int_equal(bind_to(fd, six, "::", 0), 0);
	assert_int_equal(destroy(fd, four), 0);
	close(fd);
}

/* ---- waiting ---- */

struct waiter {
	int fd, err;
	struct rdma_ucm_event_resp ev;
};

static void *wait_event(void *arg)
{
	struct waiter *w = arg;

	w->err = get_event(w->fd, &w->ev);
	return NULL;
}

static void several_wait(void **state)
{
	struct waiter w[3];
	pthread_t t[3];
	int fd = open_cm();
	u32 id[3];
	size_t i;

	for (i = 0; i < 3; i++) {
		w[i] = (struct waiter){ .fd = fd };
		assert_int_equal(pthread_create(&t[i], NULL, wait_event, &w[i]), 0);
	}
	for (i = 0; i < 3; i++) {
		id[i] = create(fd, 10 + i);
		assert_int_equal(resolve(fd, id[i], "127.0.0.1", 9), 0);
	}
	for (i = 0; i < 3; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(w[i].err, 0);
		assert_int_equal(w[i].ev.event, CMDEV_ADDR_RESOLVED_EV);
	}
	assert_int_not_equal(w[0].ev.uid, w[1].ev.uid);
	assert_false(readable(fd, 0));
	for (i = 0; i < 3; i++)
		assert_int_equal(destroy(fd, id[i]), 1);
	close(fd);
}

/* The other's thread holds the token when the channel is closed; the copy of the descriptor is for that. */
static void closed_under_a_waiter(void **state)
{
	struct waiter w = { .fd = open_cm(), .err = 1 };
	int copy = fcntl(w.fd, F_DUPFD, 0);
	struct timespec soon;
	pthread_t t;
	void *end;

	assert_true(copy >= 0);
	assert_int_equal(pthread_create(&t, NULL, wait_event, &w), 0);
	usleep(SOON_MS * 1000);
	assert_int_equal(close(w.fd), 0);
	assert_int_equal(eventfd_write(copy, 1), 0);
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec++;
	assert_int_equal(pthread_timedjoin_np(t, NULL, &soon), ETIMEDOUT);
	assert_int_equal(pthread_cancel(t), 0);
	assert_int_equal(pthread_join(t, &end), 0);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	close(copy);
}

/* From here on the first cancellation point is this thread's end. */
static void *cancelled_at_work(void *arg)
{
	bool *done = arg;
	u32 listener, id;
	int fd;

	pthread_cancel(pthread_self());
	fd = open_cm();
	listener = create(fd, 1);
	id = create(fd, 2);
	assert_int_equal(bind_to(fd, listener, "127.0.0.1", 0), 0);
	assert_int_equal(listen_id(fd, listener), 0);
	assert_int_equal(resolve(fd, id, "127.0.0.1", port_of(fd, listener)), 0);
	destroy(fd, id);
	destroy(fd, listener);
	close(fd);
	*done = true;
	pthread_testcancel();
	return NULL;
}

/* No lock stays taken when a thread is cancelled: its command ends first. */
static void cancelled_thread(void **state)
{
	assert_done_when_cancelled(cancelled_at_work);
}

/* One that does not wait has an answer. */
static void closed_channel_that_does_not_wait(void **state)
{
	struct rdma_ucm_event_resp ev;
	int fd = open_cm();

	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(get_event(fd, &ev), -EAGAIN);
	assert_int_equal(close(fd), 0);
	assert_int_equal(get_event(fd, &ev), -EBADF);
}

#define MANY 300

static void *resolve_many(void *arg)
{
	const int *fd = arg;

	for (u64 i = 0; i < MANY; i++)
		assert_int_equal(resolve(*fd, create(*fd, i), "127.0.0.1", 9), 0);
	return NULL;
}

/* While another thread makes events: what polls readable has an event, and every event makes it readable. */
static void poll_tells_the_truth(void **state)
{
	struct rdma_ucm_event_resp ev;
	int fd = open_cm();
	pthread_t t;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(pthread_create(&t, NULL, resolve_many, &fd), 0);
	for (u64 i = 0; i < MANY; i++) {
		assert_true(readable(fd, WAIT_MS));
		assert_int_equal(get_event(fd, &ev), 0);
		assert_int_equal(ev.uid, i);
	}
	assert_false(readable(fd, 0));
	pthread_join(t, NULL);
	assert_int_equal(get_event(fd, &ev), -EAGAIN);
	assert_false(readable(fd, 0));
	close(fd);
}

static void *take_many(void *arg)
{
	struct waiter *w = arg;

	for (int i = 0; i < MANY && !w->err; i++)
		w->err = get_event(w->fd, &w->ev);
	return NULL;
}

/* As many threads that make events as that wait for them. */
static void many_wait(void **state)
{
	int fd = open_cm();
	struct waiter w[2] = { { .fd = fd }, { .fd = fd } };
	pthread_t makers[2], takers[2];

	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&takers[i], NULL, take_many, &w[i]), 0);
		assert_int_equal(pthread_create(&makers[i], NULL, resolve_many, &fd), 0);
	}
	for (size_t i = 0; i < 2; i++) {
		pthread_join(makers[i], NULL);
		pthread_join(takers[i], NULL);
		assert_int_equal(w[i].err, 0);
	}
	assert_false(readable(fd, 0));
	close(fd);
}

/* One token stands for all events. A response may lie anywhere. */
static void readable_while_events(void **state)
{
	struct rdma_ucm_event_resp *ev = malloc(sizeof(*ev));
	int fd = open_cm();

	assert_non_null(ev);
	for (u64 i = 0; i < 3; i++)
		assert_int_equal(resolve(fd, create(fd, i), "127.0.0.1", 9), 0);
	for (u64 i = 0; i < 3; i++) {
		assert_true(readable(fd, WAIT_MS));
		assert_int_equal(get_event(fd, ev), 0);
		assert_int_equal(ev->uid, i);
	}
	assert_false(readable(fd, 0));
	free(ev);
	close(fd);
}

/* ---- fork ---- */

/* The child has an eventfd of its own: it takes nothing from its parent, and closing is only closing. */
static void child_disturbs_nobody(void **state)
{
	struct rdma_ucm_event_resp ev;
	struct pair p;
	pid_t pid;

	pair_up(&p);
	assert_int_equal(disconnect(p.cfd, p.client), 0);
	assert_true(readable(p.cfd, WAIT_MS));
	pid = fork();
	if (!pid) {
		u64 one;

		CHECK(shim_cmdev_is(p.cfd));
		CHECK(readable(p.cfd, 0)); /* its copy of the event */
		CHECK(read(p.cfd, &one, sizeof(one)) == sizeof(one));
		CHECK(!readable(p.cfd, 0));
		CHECK(!close(p.cfd));
		CHECK(!close(p.sfd));
		_exit(0);
	}
	reap(pid);
	expect(p.cfd, &ev, CMDEV_DISCONNECTED_EV, 0x22);
	expect(p.sfd, &ev, CMDEV_DISCONNECTED_EV, 0x33);
	/* The listener is whole. */
	ibv_destroy_qp(p.cqp);
	p.cqp = make_qp();
	p.client = create(p.cfd, 0x77);
	resolve_all(p.cfd, p.client, 0x77, "127.0.0.1", p.port);
	assert_int_equal(connect_id(p.cfd, p.client, p.cqp, ""), 0);
	expect(p.sfd, &ev, CMDEV_CONNECT_REQUEST_EV, 0x11);
	pair_close(&p);
}

static void vforked_child_closes(void **state)
{
	struct rdma_ucm_event_resp ev;
	struct pair p;
	pid_t pid;

	pair_up(&p);
	pid = vfork();
	if (!pid) {
		close(p.cfd);
		_exit(0);
	}
	reap(pid);
	assert_true(shim_cmdev_is(p.cfd));
	assert_int_equal(disconnect(p.cfd, p.client), 0);
	expect(p.cfd, &ev, CMDEV_DISCONNECTED_EV, 0x22);
	pair_close(&p);
}

static void child_opens_its_own(void **state)
{
	struct rdma_ucm_event_resp ev;
	struct pair p;
	pid_t pid;

	pair_up(&p);
	pid = fork();
	if (!pid) {
		int fd = open(CM_PATH, O_RDWR);
		struct rdma_ucm_create_id cmd = { .uid = 9, .ps = RDMA_PS_TCP };
		struct rdma_ucm_create_id_resp resp;

		CHECK(fd >= 0);
		CHECK(!ASK(fd, CREATE_ID, cmd, resp));
		CHECK(!resolve(fd, resp.id, "127.0.0.1", p.port));
		CHECK(readable(fd, WAIT_MS));
		CHECK(!get_event(fd, &ev));
		CHECK(ev.event == CMDEV_ADDR_RESOLVED_EV);
		CHECK(destroy(fd, resp.id) == 1);
		CHECK(!close(fd));
		_exit(0);
	}
	reap(pid);
	assert_int_equal(disconnect(p.sfd, p.server), 0);
	expect(p.cfd, &ev, CMDEV_DISCONNECTED_EV, 0x22);
	expect(p.sfd, &ev, CMDEV_DISCONNECTED_EV, 0x33);
	pair_close(&p);
}

static void serve_and_exit(int fd)
{
	struct rdma_ucm_event_resp ev;
	struct ibv_qp *qp;

	CHECK(readable(fd, WAIT_MS)); /* the first call of all */
	CHECK(!get_event(fd, &ev));
	CHECK(ev.event == CMDEV_CONNECT_REQUEST_EV);
	qp = make_qp();
	CHECK(!accept_id(fd, ev.id, 0x99, qp, "daemon"));
	CHECK(readable(fd, WAIT_MS) && !get_event(fd, &ev));
	CHECK(ev.event == CMDEV_ESTABLISHED_EV);
	CHECK(readable(fd, WAIT_MS) && !get_event(fd, &ev));
	CHECK(ev.event == CMDEV_DISCONNECTED_EV);
	_exit(0);
}

/* Listens, daemonises, and then sits in poll(). The NIC thread has begun to work before: see test_iwcm_fork.c. */
static void run_daemon(int report)
{
	u16 port = 0;
	int fd = open_cm();
	u32 id = create(fd, 2);

	resolve_all(fd, id, 2, "127.0.0.1", 9);
	CHECK(destroy(fd, id) == 2);
	listen_on(fd, "127.0.0.1", 1, &port);
	CHECK(write(report, &port, sizeof(port)) == sizeof(port));
	if (fork())
		_exit(0);
	serve_and_exit(fd);
}

static void daemon_serves(void **state)
{
	struct rdma_ucm_event_resp ev;
	struct ibv_qp *qp = make_qp();
	int report[2], fd = open_cm();
	u16 port;
	pid_t pid;
	u32 id;
	char c;

	assert_int_equal(pipe(report), 0);
	pid = fork();
	if (!pid)
		run_daemon(report[1]);
	close(report[1]);
	reap(pid);
	assert_int_equal(read(report[0], &port, sizeof(port)), sizeof(port));
	id = create(fd, 3);
	resolve_all(fd, id, 3, "127.0.0.1", port);
	assert_int_equal(connect_id(fd, id, qp, ""), 0);
	expect(fd, &ev, CMDEV_ESTABLISHED_EV, 3);
	expect_pdata(&ev, "daemon");
	assert_int_equal(disconnect(fd, id), 0);
	expect(fd, &ev, CMDEV_DISCONNECTED_EV, 3);
	assert_int_equal(read(report[0], &c, 1), 0);
	close(report[0]);
	close(fd);
	ibv_destroy_qp(qp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_a_character_device),
		cmocka_unit_test(closed_by_range),
		cmocka_unit_test(wrong_commands),
		cmocka_unit_test(bad_pointers),
		cmocka_unit_test(another_files_id),
		cmocka_unit_test(garbage),
		cmocka_unit_test(af_ib_probe),
		cmocka_unit_test(binding),
		cmocka_unit_test(shorter_structures),
		cmocka_unit_test(old_addresses),
		cmocka_unit_test(resolving),
		cmocka_unit_test(options),
		cmocka_unit_test(no_multicast),
		cmocka_unit_test(a_connection),
		cmocka_unit_test(init_qp_attr),
		cmocka_unit_test(rejected),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(unknown_qp),
		cmocka_unit_test(peer_gives_up),
		cmocka_unit_test(connection_is_destroyed),
		cmocka_unit_test(listener_is_destroyed),
		cmocka_unit_test(migration),
		cmocka_unit_test(closed_with_a_request),
		cmocka_unit_test(request_is_not_known_before_it_is_fetched),
		cmocka_unit_test(request_outlives_the_file_that_it_came_to),
		cmocka_unit_test(request_migrates),
		cmocka_unit_test(both_families),
		cmocka_unit_test(both_or_none),
		cmocka_unit_test(several_wait),
		cmocka_unit_test(closed_under_a_waiter),
		cmocka_unit_test(cancelled_thread),
		cmocka_unit_test(closed_channel_that_does_not_wait),
		cmocka_unit_test(poll_tells_the_truth),
		cmocka_unit_test(many_wait),
		cmocka_unit_test(readable_while_events),
		cmocka_unit_test(child_disturbs_nobody),
		cmocka_unit_test(vforked_child_closes),
		cmocka_unit_test(child_opens_its_own),
		cmocka_unit_test(daemon_serves),
	};

	alarm(240);
	return cmocka_run_group_tests(tests, setup, teardown);
}
