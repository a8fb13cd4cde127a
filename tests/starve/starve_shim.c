// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The shim under starvation: verbs and the rdma_cm device as an unmodified program uses them, both ends in this process, with a completion channel, asynchronous
 * events, a forked child that uses RDMA itself, and somebody who asks for the counters. The first run opens the NICs; the process keeps them.
 *
 * The program's own system calls are the real ones.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "shim/cmdev_internal.h"
#include "shim/stats.h"
#include "shim/verbs_internal.h"
#include "starve.h"

#undef ibv_reg_mr

#define CM_PATH "/dev/infiniband/rdma_cm"
#define LIMIT_MS 20000
#define MEM 65536u

/* Not __wrap_write(): this is the program's. */
ssize_t __real_write(int fd, const void *buf, size_t n);
ssize_t __real_read(int fd, void *buf, size_t n);
int __real_socket(int domain, int kind, int protocol);
int __real_connect(int fd, const struct sockaddr *a, socklen_t len);
FILE *__real_fopen(const char *path, const char *mode);

/* One end. */
struct end {
	const char *name;
	int fd;                  /* of the rdma_cm device; -1 */
	u32 id;
	bool has_id;
	u32 seen;                /* a bit per event of the id */
	int status;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_comp_channel *channel;
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	u32 posted, completed, bad, cq_events;
	char mem[MEM];
};

static struct scene {
	struct ibv_context *ctx;
	struct end c, s;
	u32 listener;
	bool listens;
	u16 port;
} sc;

static int said(const char *what, int err)
{
	if (err)
		fprintf(stderr, "%s: %s\n", what, strerror(-err));
	return err;
}

/* Of what returns NULL with errno. */
static int made(const char *what, const void *p)
{
	return p ? 0 : said(what, -errno);
}

/* ---- commands ---- */

struct frame {
	struct rdma_ucm_cmd_hdr hdr;
	u8 body[1024];
};

static int put(int fd, u32 cmd, const void *body, size_t len, size_t out)
{
	struct frame f = { .hdr = { .cmd = cmd, .in = (u16)len, .out = (u16)out } };

	memcpy(f.body, body, len);
	return __real_write(fd, &f, sizeof(f.hdr) + len) < 0 ? -errno : 0;
}

#define PUT(fd, cmd, body) put(fd, RDMA_USER_CM_CMD_##cmd, &(body), sizeof(body), 0)
#define ASK(fd, cmd, body, resp) ((body).response = (uintptr_t)&(resp), put(fd, RDMA_USER_CM_CMD_##cmd, &(body), sizeof(body), sizeof(resp)))

static int create(int fd, u64 uid, u32 *id)
{
	struct rdma_ucm_create_id cmd = { .uid = uid, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC };
	struct rdma_ucm_create_id_resp resp = { 0 };
	int err = ASK(fd, CREATE_ID, cmd, resp);

	*id = resp.id;
	return said("CREATE_ID", err);
}

static int destroy(int fd, u32 id)
{
	struct rdma_ucm_destroy_id cmd = { .id = id };
	struct rdma_ucm_destroy_id_resp resp;

	return said("DESTROY_ID", ASK(fd, DESTROY_ID, cmd, resp));
}

static int bind_to(int fd, u32 id)
{
	struct rdma_ucm_bind cmd = { .id = id, .addr_size = sizeof(struct sockaddr_in) };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	memcpy(&cmd.addr, &in, sizeof(in));
	return said("BIND", PUT(fd, BIND, cmd));
}

static int ask_port(int fd, u32 id, u16 *port)
{
	struct rdma_ucm_query cmd = { .id = id, .option = RDMA_USER_CM_QUERY_ADDR };
	struct rdma_ucm_query_addr_resp resp;
	int err = ASK(fd, QUERY, cmd, resp);

	*port = err ? 0 : ntohs(((struct sockaddr_in *)&resp.src_addr)->sin_port);
	return said("QUERY", err);
}

static int resolve_addr(int fd, u32 id, u16 port)
{
	struct rdma_ucm_resolve_addr cmd = { .id = id, .timeout_ms = 2000, .dst_size = sizeof(struct sockaddr_in) };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	memcpy(&cmd.dst_addr, &in, sizeof(in));
	return said("RESOLVE_ADDR", PUT(fd, RESOLVE_ADDR, cmd));
}

static struct rdma_ucm_conn_param param(const struct ibv_qp *qp)
{
	return (struct rdma_ucm_conn_param){ .qp_num = qp ? qp->qp_num : 0, .valid = 1, .responder_resources = 4, .initiator_depth = 4, .private_data_len = 3,
		.private_data = "hi" };
}

/* ---- events ---- */

/* The next event of the file, or 0 if there was none for @ms. */
static int fetch(struct end *e, int ms)
{
	struct pollfd p = { .fd = e->fd, .events = POLLIN };
	struct rdma_ucm_get_event cmd = { 0 };
	struct rdma_ucm_event_resp ev;
	int err;

	if (poll(&p, 1, ms) < 1)
		return 0;
	err = ASK(e->fd, GET_EVENT, cmd, ev);
	if (err)
		return err == -EINTR || err == -EAGAIN ? 0 : said("GET_EVENT", err);
	if (ev.event == CMDEV_CONNECT_REQUEST_EV && !e->has_id) {
		e->id = ev.id;
		e->has_id = true;
	} else if (ev.event == CMDEV_CONNECT_REQUEST_EV) {
		return destroy(e->fd, ev.id);
	}
	e->seen |= BIT(ev.event);
	if (!e->status)
		e->status = (int)ev.status;
	return 0;
}

#define SEEN(e, type) ((e)->seen & BIT(CMDEV_##type##_EV))

static bool ended(const struct end *e)
{
	return SEEN(e, ADDR_ERROR) || SEEN(e, UNREACHABLE) || SEEN(e, REJECTED) || SEEN(e, CONNECT_ERROR) || SEEN(e, DISCONNECTED);
}

static void drain_cq(struct end *e);

static int wait_for(bool (*done)(void), const char *what)
{
	u64 end = loop_monotonic_ns() + LIMIT_MS * NSEC_PER_MSEC;
	int err = 0;

	while (!err && !done()) {
		if (loop_monotonic_ns() > end)
			return said(what, -ETIME);
		err = fetch(&sc.c, 2);
		if (!err)
			err = fetch(&sc.s, 2);
		drain_cq(&sc.c);
		drain_cq(&sc.s);
	}
	return err;
}

static int failure(const struct end *e)
{
	return said(e->name, e->status < 0 ? e->status : -ECONNRESET);
}

/* ---- verbs ---- */

static struct ibv_context *open_lo(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = NULL;
	int i, err;

	if (!list)
		return NULL;
	for (i = 0; list[i] && !c; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "uwarp_lo"))
			c = ibv_open_device(list[i]);
	err = errno;
	ibv_free_device_list(list);
	errno = err;
	return c;
}

static int memory(struct end *e)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND, err;

	e->pd = ibv_alloc_pd(sc.ctx);
	err = made("ibv_alloc_pd", e->pd);
	if (err)
		return err;
	e->mr = ibv_reg_mr(e->pd, e->mem, MEM, access);
	err = made("ibv_reg_mr", e->mr);
	if (!err)
		err = said("ibv_rereg_mr", -ibv_rereg_mr(e->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, access));
	if (err)
		return err;
	e->mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_1);
	return made("ibv_alloc_mw", e->mw);
}

static int queues(struct end *e)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 8, .max_sge = 1 } };
	int err;

	e->channel = ibv_create_comp_channel(sc.ctx);
	err = made("ibv_create_comp_channel", e->channel);
	if (err)
		return err;
	cq.channel = e->channel;
	e->cq = ibv_create_cq_ex(sc.ctx, &cq);
	err = made("ibv_create_cq_ex", e->cq);
	if (!err)
		err = said("ibv_resize_cq", -ibv_resize_cq(ibv_cq_ex_to_cq(e->cq), 40));
	if (err || e == &sc.c)
		return err;
	e->srq = ibv_create_srq(e->pd, &srq);
	return made("ibv_create_srq", e->srq);
}

static int queue_pair(struct end *e)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1, .srq = e->srq, .pd = e->pd,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 32 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 0xf };

	a.send_cq = a.recv_cq = ibv_cq_ex_to_cq(e->cq);
	e->qp = ibv_create_qp_ex(sc.ctx, &a);
	if (!e->qp)
		return made("ibv_create_qp_ex", NULL);
	return said("ibv_modify_qp", -ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static int verbs(struct end *e)
{
	int err = memory(e);

	if (!err)
		err = queues(e);
	if (!err)
		err = queue_pair(e);
	return err ? err : said("ibv_req_notify_cq", -ibv_req_notify_cq(ibv_cq_ex_to_cq(e->cq), 0));
}

/* Who is told of completions by the channel arms the queue again. */
static void take_cq_event(struct end *e)
{
	struct pollfd p = { .fd = e->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *arg;

	if (poll(&p, 1, 0) < 1 || ibv_get_cq_event(e->channel, &cq, &arg))
		return;
	e->cq_events++;
	ibv_ack_cq_events(cq, 1);
	ibv_req_notify_cq(cq, 0);
}

static void drain_cq(struct end *e)
{
	struct ibv_poll_cq_attr a = { 0 };

	if (!e->qp)
		return;
	take_cq_event(e);
	if (ibv_start_poll(e->cq, &a))
		return;
	do {
		e->completed++;
		e->bad += e->cq->status != IBV_WC_SUCCESS;
	} while (!ibv_next_poll(e->cq));
	ibv_end_poll(e->cq);
}

/* ---- the connection ---- */

static int listen_on(void)
{
	struct rdma_ucm_listen cmd = { .backlog = 4 };
	int err;

	sc.s.fd = open(CM_PATH, O_RDWR | O_CLOEXEC);
	if (sc.s.fd < 0)
		return said("open", -errno);
	err = create(sc.s.fd, 1, &sc.listener);
	if (err)
		return err;
	sc.listens = true;
	err = bind_to(sc.s.fd, sc.listener);
	cmd.id = sc.listener;
	if (!err)
		err = said("LISTEN", PUT(sc.s.fd, LISTEN, cmd));
	return err ? err : ask_port(sc.s.fd, sc.listener, &sc.port);
}

static bool addr_resolved(void) { return SEEN(&sc.c, ADDR_RESOLVED) || ended(&sc.c); }
static bool route_resolved(void) { return SEEN(&sc.c, ROUTE_RESOLVED) || ended(&sc.c); }

static int resolve(void)
{
	struct rdma_ucm_resolve_route cmd = { .timeout_ms = 2000 };
	int err;

	sc.c.fd = open(CM_PATH, O_RDWR | O_CLOEXEC);
	if (sc.c.fd < 0)
		return said("open", -errno);
	err = create(sc.c.fd, 2, &sc.c.id);
	if (err)
		return err;
	sc.c.has_id = true;
	cmd.id = sc.c.id;
	err = resolve_addr(sc.c.fd, sc.c.id, sc.port);
	if (!err)
		err = wait_for(addr_resolved, "ADDR_RESOLVED");
	if (!err && ended(&sc.c))
		return failure(&sc.c);
	if (!err)
		err = said("RESOLVE_ROUTE", PUT(sc.c.fd, RESOLVE_ROUTE, cmd));
	if (!err)
		err = wait_for(route_resolved, "ROUTE_RESOLVED");
	return !err && ended(&sc.c) ? failure(&sc.c) : err;
}

static bool requested(void) { return sc.s.has_id || ended(&sc.c); }
static bool established(void) { return (SEEN(&sc.c, ESTABLISHED) && SEEN(&sc.s, ESTABLISHED)) || ended(&sc.c) || ended(&sc.s); }
static bool both_ended(void) { return ended(&sc.c) && ended(&sc.s); }
static bool client_ended(void) { return ended(&sc.c); }

static int do_connect(void)
{
	struct rdma_ucm_connect cmd = { .id = sc.c.id, .conn_param = param(sc.c.qp) };
	int err = said("CONNECT", PUT(sc.c.fd, CONNECT, cmd));

	if (!err)
		err = wait_for(requested, "CONNECT_REQUEST, or an error at the client");
	return !err && !sc.s.has_id ? failure(&sc.c) : err;
}

static int do_accept(void)
{
	struct rdma_ucm_accept cmd = { .id = sc.s.id, .uid = 3, .conn_param = param(sc.s.qp) };
	int err = said("ACCEPT", PUT(sc.s.fd, ACCEPT, cmd));

	if (!err)
		err = wait_for(established, "ESTABLISHED, or an error at an end");
	if (err)
		return err;
	return ended(&sc.c) ? failure(&sc.c) : ended(&sc.s) ? failure(&sc.s) : 0;
}

static int do_disconnect(void)
{
	struct rdma_ucm_disconnect cmd = { .id = sc.c.id };
	int err = said("DISCONNECT", PUT(sc.c.fd, DISCONNECT, cmd));

	return err ? err : wait_for(both_ended, "DISCONNECTED at both ends");
}

/* The client hears of it: it had asked for a connection, and the server goes without a word. */
static int leave(void)
{
	destroy(sc.s.fd, sc.s.id);
	sc.s.has_id = false;
	return wait_for(client_ended, "the client hears of the server's end");
}

/* ---- data ---- */

static struct ibv_sge sge(struct end *e, u32 off, u32 len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)e->mem + off, .length = len, .lkey = e->mr->lkey };
}

static int post_recv(struct end *e, u32 off, u32 len)
{
	struct ibv_sge s = sge(e, off, len);
	struct ibv_recv_wr *bad, wr = { .sg_list = &s, .num_sge = 1 };
	int err = e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);

	e->posted += !err;
	return said("post receive", -err);
}

static int post_send(struct end *e, struct end *to, enum ibv_wr_opcode op, u32 off, u32 len)
{
	struct ibv_sge s = sge(e, off, len);
	struct ibv_send_wr *bad, wr = { .sg_list = &s, .num_sge = 1, .opcode = op };
	int err;

	wr.wr.rdma.remote_addr = (uintptr_t)to->mem + off;
	wr.wr.rdma.rkey = to->mr->rkey;
	err = ibv_post_send(e->qp, &wr, &bad);
	e->posted += !err;
	return said("ibv_post_send", -err);
}

/* The other way of posting: inline data, several at once. */
static int post_together(struct end *e, struct end *to)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(e->qp);
	int err;

	ibv_wr_start(x);
	ibv_wr_rdma_write(x, to->mr->rkey, (uintptr_t)to->mem + 60000);
	ibv_wr_set_inline_data(x, e->mem, 32);
	ibv_wr_send(x);
	ibv_wr_set_sge(x, e->mr->lkey, (uintptr_t)e->mem, 4000);
	err = ibv_wr_complete(x);
	e->posted += err ? 0 : 2;
	return said("ibv_wr_complete", -err);
}

static int bind_window(struct end *e)
{
	struct ibv_mw_bind b = { .bind_info = { .mr = e->mr, .addr = (uintptr_t)e->mem, .length = 4096, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE } };
	int err = ibv_bind_mw(e->qp, e->mw, &b);

	e->posted += !err;
	return said("ibv_bind_mw", -err);
}

static bool all_complete(void)
{
	bool over = ended(&sc.s); /* what is in the shared queue then stays there */

	return sc.c.posted == sc.c.completed && (sc.s.posted == sc.s.completed || over);
}

static int move_data(void)
{
	struct end *c = &sc.c, *s = &sc.s;
	int err = post_recv(s, 0, 8000);

	memset(c->mem, 'c', MEM);
	memset(s->mem, 's', MEM);
	if (!err)
		err = post_recv(c, 8000, 100);
	if (!err)
		err = bind_window(s);
	if (!err)
		err = post_send(c, s, IBV_WR_RDMA_WRITE, 10000, 20000);
	if (!err)
		err = post_send(c, s, IBV_WR_RDMA_READ, 30000, 20000);
	if (!err)
		err = post_together(c, s);
	if (!err)
		err = post_send(s, c, IBV_WR_SEND, 9000, 10);
	if (!err)
		err = wait_for(all_complete, "completions of all that was posted");
	if (!err && (c->bad || s->bad || ended(s)))
		err = said("completion", -EIO);
	return err;
}

static int is_all(const char *p, u32 n, char c)
{
	while (n && *p == c) {
		p++;
		n--;
	}
	return n ? -EBADMSG : 0;
}

static void check_data(void)
{
	if (is_all(sc.s.mem, 4000, 'c') || is_all(sc.s.mem + 10000, 20000, 'c') || is_all(sc.c.mem + 30000, 20000, 's') || is_all(sc.s.mem + 60000, 32, 'c') ||
	    is_all(sc.c.mem + 8000, 10, 's')) {
		fprintf(stderr, "DATA: not what was sent\n");
		abort();
	}
}

/* The server's queue pair is at its end, and had a shared receive queue: its program is told. */
static int expect_async(void)
{
	struct pollfd p = { .fd = sc.ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	if (poll(&p, 1, LIMIT_MS) < 1)
		return said("LAST_WQE_REACHED", -ETIME);
	if (ibv_get_async_event(sc.ctx, &ev))
		return errno == EINTR ? expect_async() : said("ibv_get_async_event", -errno);
	ibv_ack_async_event(&ev);
	return said("event", ev.event_type == IBV_EVENT_QP_LAST_WQE_REACHED ? 0 : -EPROTO);
}

/* ---- others ---- */

/* On the wildcard of IPv6, and so of IPv4: two listeners stand for one. */
static int listen_dual(void)
{
	struct rdma_ucm_bind cmd = { .addr_size = sizeof(struct sockaddr_in6) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct rdma_ucm_listen l = { .backlog = 4 };
	int err = create(sc.s.fd, 4, &cmd.id);

	if (err)
		return err;
	l.id = cmd.id;
	memcpy(&cmd.addr, &in6, sizeof(in6));
	err = said("BIND", PUT(sc.s.fd, BIND, cmd));
	if (err) /* nothing has changed */
		PUT(sc.s.fd, BIND, cmd);
	if (!err)
		err = said("LISTEN", PUT(sc.s.fd, LISTEN, l));
	if (err)
		PUT(sc.s.fd, LISTEN, l);
	destroy(sc.s.fd, cmd.id);
	return err;
}

/* A child that uses RDMA itself has NICs of its own. */
static int child_uses_rdma(void)
{
	u32 id;
	int fd, err;

	fd = open(CM_PATH, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return said("child: open", -errno);
	err = create(fd, 9, &id);
	if (!err)
		err = resolve_addr(fd, id, sc.port);
	close(fd);
	return err;
}

static int fork_child(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		alarm(60);
		_exit(child_uses_rdma() ? 1 : 0);
	}
	if (pid < 0)
		return said("fork", -errno);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) {
		fprintf(stderr, "the child ends with %x\n", status);
		abort();
	}
	return said("child", WEXITSTATUS(status) ? -ECHILD : 0);
}

/* As `uwarp stat` does. Without memory there may be no answer: that is no error of the program's. */
static void ask_counters(void)
{
	FILE *f = __real_fopen("/proc/net/unix", "re");
	char line[256], *at, buf[4096];
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd;

	while (f && fgets(line, sizeof(line), f)) {
		at = strstr(line, "@" SHIM_STATS_PREFIX);
		if (!at)
			continue;
		fd = __real_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		memcpy(sun.sun_path + 1, at + 1, SHIM_STATS_NAME_LEN);
		if (!__real_connect(fd, (struct sockaddr *)&sun, offsetof(struct sockaddr_un, sun_path) + 1 + SHIM_STATS_NAME_LEN))
			while (__real_read(fd, buf, sizeof(buf)) > 0)
				;
		close(fd);
	}
	if (f)
		fclose(f);
}

/* ---- the end ---- */

/* 0 or what could not be destroyed. */
static int close_end(struct end *e)
{
	int err = 0;

	if (e->qp && ibv_destroy_qp(e->qp))
		err = said("ibv_destroy_qp", -errno);
	if (e->srq && ibv_destroy_srq(e->srq))
		err = said("ibv_destroy_srq", -errno);
	if (e->cq && ibv_destroy_cq(ibv_cq_ex_to_cq(e->cq)))
		err = said("ibv_destroy_cq", -errno);
	if (e->channel && ibv_destroy_comp_channel(e->channel))
		err = said("ibv_destroy_comp_channel", -errno);
	if (e->mw && ibv_dealloc_mw(e->mw))
		err = said("ibv_dealloc_mw", -errno);
	if (e->mr && ibv_dereg_mr(e->mr))
		err = said("ibv_dereg_mr", -errno);
	if (e->pd && ibv_dealloc_pd(e->pd))
		err = said("ibv_dealloc_pd", -errno);
	return err;
}

static void drop_ids(void)
{
	if (sc.c.has_id)
		destroy(sc.c.fd, sc.c.id);
	if (sc.s.has_id)
		destroy(sc.s.fd, sc.s.id);
	if (sc.listens)
		destroy(sc.s.fd, sc.listener);
	if (sc.c.fd >= 0)
		close(sc.c.fd);
	if (sc.s.fd >= 0)
		close(sc.s.fd);
}

/* Whatever happened all of it can be destroyed; -ETIME if not. */
static int take_down(void)
{
	int err;

	drop_ids();
	err = close_end(&sc.c);
	err = close_end(&sc.s) ? -ETIME : err;
	if (sc.ctx && ibv_close_device(sc.ctx))
		err = said("ibv_close_device", -errno);
	return err ? -ETIME : 0;
}

static int use_all(void)
{
	int err;

	sc.ctx = open_lo();
	err = made("ibv_open_device", sc.ctx);
	if (!err)
		err = listen_on();
	if (!err)
		err = listen_dual();
	if (!err)
		err = resolve();
	if (!err)
		err = verbs(&sc.c);
	if (!err)
		err = do_connect();
	if (err)
		return err;
	err = verbs(&sc.s);
	if (!err)
		err = do_accept();
	if (!err)
		err = move_data();
	if (!err)
		check_data();
	if (!err)
		err = fork_child();
	ask_counters();
	if (!err)
		err = do_disconnect();
	if (!err)
		return expect_async();
	if (!sc.s.has_id)
		return err;
	return leave() == -ETIME ? -ETIME : err;
}

static int run_shim(void)
{
	int err, rc;

	memset(&sc, 0, sizeof(sc));
	sc.c.name = "client";
	sc.s.name = "server";
	sc.c.fd = sc.s.fd = -1;
	err = use_all();
	rc = take_down();
	return rc ? rc : err;
}

static const struct starve_scenario scenarios[] = {
	{ "shim", run_shim, 120 },
};

int main(int argc, char **argv)
{
	setenv("UWARP_IFACES", "lo", 1);
	return starve_main(argc, argv, scenarios, ARRAY_SIZE(scenarios));
}
