/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The rdma_cm device: commands of any number, length and content, in any order, about ids that are, were or never were, with responses that go to memory that is
 * there or not; while a peer on the wire connects, accepts, rejects and leaves. Commands that make sense are likely, or nothing would ever happen.
 *
 * The shim without its verbs and its threads: what else cmdev*.c needs of it is here, on a context on the wire port.
 *
 * Checked: a descriptor is readable if there are events, and only then; nothing is left.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fuzz.h"
#include "shim/cmdev_internal.h"
#include "shim/verbs_internal.h"

#define STEPS 150
#define FILES 2
#define IDS 8
#define QPS 3
#define PEER_IDS 6
#define PAGE 4096u
#define PORT 7000u /* of the peer's listener; the program's are above */

struct world {
	struct loop loop;
	struct port_wire *wire;
	struct net_segment *seg;
	struct net *net[2];
	struct iwcm_ctx *ctx[2]; /* the program's and the peer's */
	struct irdma_device *dev;
	struct irdma_qp *qp[QPS];
	int fd[FILES];           /* -1: closed */
	u32 id[IDS], nids;       /* that the program has seen */
	struct iwcm_id *listener, *peer[PEER_IDS];
	u8 manner;               /* the peer's, of requests */
};

static struct world w;
static u8 *scratch;          /* two pages of the program's memory, and nothing behind */
static struct shim_options options;

/* ---- of the shim ---- */

int (*real_close)(int fd) = close;
int (*real_dup3)(int old, int fd, int flags) = dup3;

struct iwcm_ctx *shim_ctx(void)
{
	return w.ctx[0];
}

const struct shim_options *shim_options(void)
{
	return &options;
}

__be64 shim_device_guid(struct irdma_device *iwdev)
{
	return iwdev ? 0x1234 : 0;
}

struct irdma_qp *shim_qp_find(struct irdma_device *iwdev, u32 qp_num)
{
	return rnic_qp_find(iwdev, qp_num);
}

int shim_evfd_open(u64 count)
{
	int fd = eventfd((unsigned int)count, EFD_SEMAPHORE | EFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

void shim_evfd_post(int fd)
{
	assert(!eventfd_write(fd, 1));
}

int shim_evfd_take(int fd)
{
	u64 one;

	return read(fd, &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

bool shim_evfd_drop(int fd)
{
	return !shim_evfd_take(fd); /* which does not wait: O_NONBLOCK */
}

/* ---- the peer ---- */

static struct iwcm_id **peer_slot(const struct iwcm_id *id)
{
	u32 i;

	for (i = 0; i < PEER_IDS; i++)
		if (w.peer[i] == id)
			return &w.peer[i];
	return NULL;
}

static void on_peer_request(struct iwcm_id *id)
{
	struct iwcm_conn_param p = { .private_data = "peer", .private_data_len = 4, .ird = 4, .ord = 4 };
	struct iwcm_id **slot = peer_slot(NULL);

	if (!slot || w.manner % 4 == 3) {
		iwcm_destroy_id(id);
		return;
	}
	*slot = id;
	if (w.manner % 4 == 0)
		iwcm_accept(id, &p);
	else if (w.manner % 4 == 1)
		iwcm_reject(id, "no", 2);
}

static void on_peer_event(void *arg, const struct iwcm_event *ev)
{
	struct iwcm_conn_param p = { .private_data = "peer", .private_data_len = 4, .ird = 4, .ord = 4 };

	if (ev->type == IWCM_EVENT_CONNECT_REQUEST)
		on_peer_request(ev->id);
	else if (ev->type == IWCM_EVENT_RESOLVED)
		iwcm_connect(ev->id, &p);
}

static void put_addr(struct sockaddr_storage *ss, bool ipv4, u32 host, u16 port)
{
	u32 addr[4] = { ipv4 ? 0x0A000001u + host : 0xFD000000u, 0, 0, ipv4 ? 0 : 1u + host };

	cm_addr_to_sockaddr(ipv4, addr, port, ss);
}

static void peer_connects(struct fuzz *f)
{
	struct iwcm_id **slot = peer_slot(NULL);
	u8 v = fuzz_u8(f);
	struct sockaddr_storage to;

	if (!slot || iwcm_create_id(w.ctx[1], NULL, slot))
		return;
	put_addr(&to, !(v & 1), 0, (u16)(PORT + 1 + (v >> 1) % 3));
	iwcm_resolve(*slot, NULL, (struct sockaddr *)&to);
}

static void peer_acts(struct fuzz *f)
{
	u8 v = fuzz_u8(f);
	struct iwcm_id **id = &w.peer[v % PEER_IDS];

	if (!*id)
		return;
	if (v & 64) {
		iwcm_disconnect(*id);
	} else {
		iwcm_destroy_id(*id);
		*id = NULL;
	}
}

/* ---- commands ---- */

static int a_file(struct fuzz *f)
{
	return w.fd[fuzz_below(f, FILES)];
}

static u32 an_id(struct fuzz *f)
{
	u8 v = fuzz_u8(f);

	if (v >= 250)
		return fuzz_u32(f);
	return w.nids ? w.id[v % w.nids] : v;
}

static void seen(u32 id)
{
	w.id[w.nids % IDS] = id;
	if (w.nids < IDS)
		w.nids++;
	else
		memmove(w.id + 1, w.id, sizeof(w.id) - sizeof(*w.id));
}

/* Where a response goes, or an option's value comes from: there, part of it not there, nowhere. */
static u64 an_address(struct fuzz *f)
{
	u8 v = fuzz_u8(f);

	if (v < 200)
		return (uintptr_t)scratch;
	if (v < 250)
		return (uintptr_t)scratch + 2 * PAGE - v % 64;
	return v < 253 ? 0 : (uintptr_t)scratch + 2 * PAGE;
}

/* The program's, the peer's, any, this machine, or something else. */
static u16 an_addr(struct fuzz *f, void *out, size_t size)
{
	struct sockaddr_storage ss;
	u8 v = fuzz_u8(f);
	u16 port = (u16)(PORT + fuzz_u8(f) % 4);

	switch (v % 8) {
	case 0: case 1: put_addr(&ss, true, v % 8, port); break;
	case 2: case 3: put_addr(&ss, false, v % 8 - 2u, port); break;
	case 4: put_addr(&ss, true, 0, v & 8 ? 0 : port); ((struct sockaddr_in *)&ss)->sin_addr.s_addr = v & 16 ? htonl(INADDR_LOOPBACK) : 0; break;
	case 5: put_addr(&ss, false, 0, v & 8 ? 0 : port); ((struct sockaddr_in6 *)&ss)->sin6_addr = in6addr_any; break;
	default:
		memset(&ss, 0, sizeof(ss));
		fuzz_bytes(f, &ss, 32);
		ss.ss_family = v & 8 ? AF_IB : ss.ss_family;
	}
	memcpy(out, &ss, min(size, sizeof(ss)));
	return ss.ss_family == AF_INET ? sizeof(struct sockaddr_in) : ss.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : v;
}

static u32 a_qp(struct fuzz *f)
{
	u8 v = fuzz_u8(f);
	struct irdma_qp *qp = w.qp[v % QPS];

	return v < 240 && qp ? qp->qp_num : v;
}

static void fill_conn(struct fuzz *f, struct rdma_ucm_conn_param *p)
{
	p->qp_num = a_qp(f);
	p->valid = fuzz_u8(f) != 0xEE;
	p->private_data_len = fuzz_u8(f);
	p->responder_resources = fuzz_u8(f);
	p->initiator_depth = fuzz_u8(f);
}

/* What librdmacm would put there, or nearly. The least length that makes sense is returned. */
static size_t fill(struct fuzz *f, u32 cmd, struct cmdev_call *c)
{
	switch (cmd) {
	case RDMA_USER_CM_CMD_CREATE_ID:
		c->cmd.create = (struct rdma_ucm_create_id){ .uid = fuzz_u8(f), .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC };
		return sizeof(c->cmd.create);
	case RDMA_USER_CM_CMD_BIND_IP:
		an_addr(f, &c->cmd.bind_ip.addr, sizeof(c->cmd.bind_ip.addr));
		c->cmd.bind_ip.id = an_id(f);
		return sizeof(c->cmd.bind_ip);
	case RDMA_USER_CM_CMD_RESOLVE_IP:
		an_addr(f, &c->cmd.resolve_ip.dst_addr, sizeof(c->cmd.resolve_ip.dst_addr));
		c->cmd.resolve_ip.id = an_id(f);
		return sizeof(c->cmd.resolve_ip);
	case RDMA_USER_CM_CMD_CONNECT:
		c->cmd.connect.id = an_id(f);
		fill_conn(f, &c->cmd.connect.conn_param);
		return sizeof(c->cmd.connect);
	case RDMA_USER_CM_CMD_ACCEPT:
		c->cmd.accept.id = an_id(f);
		c->cmd.accept.uid = fuzz_u8(f);
		fill_conn(f, &c->cmd.accept.conn_param);
		return sizeof(c->cmd.accept);
	case RDMA_USER_CM_CMD_SET_OPTION:
		c->cmd.set_option = (struct rdma_ucm_set_option){ .id = an_id(f), .level = fuzz_u8(f) & 1, .optname = fuzz_u8(f) % 5, .optlen = fuzz_u8(f) % 6 };
		return sizeof(c->cmd.set_option);
	case RDMA_USER_CM_CMD_MIGRATE_ID:
		c->cmd.migrate.id = an_id(f);
		c->cmd.migrate.fd = fuzz_u8(f) == 0xEE ? fuzz_u32(f) : (u32)a_file(f);
		return sizeof(c->cmd.migrate);
	case RDMA_USER_CM_CMD_BIND:
		c->cmd.bind.addr_size = an_addr(f, &c->cmd.bind.addr, sizeof(c->cmd.bind.addr));
		c->cmd.bind.id = an_id(f);
		return sizeof(c->cmd.bind);
	case RDMA_USER_CM_CMD_RESOLVE_ADDR:
		c->cmd.resolve_addr.dst_size = an_addr(f, &c->cmd.resolve_addr.dst_addr, sizeof(c->cmd.resolve_addr.dst_addr));
		c->cmd.resolve_addr.id = an_id(f);
		return sizeof(c->cmd.resolve_addr);
	case RDMA_USER_CM_CMD_QUERY:
		c->cmd.query.id = an_id(f);
		c->cmd.query.option = fuzz_u8(f) % 4;
		return sizeof(c->cmd.query);
	case RDMA_USER_CM_CMD_INIT_QP_ATTR:
		c->cmd.init_qp_attr.id = an_id(f);
		c->cmd.init_qp_attr.qp_state = fuzz_u8(f) % 8;
		return sizeof(c->cmd.init_qp_attr);
	case RDMA_USER_CM_CMD_QUERY_ROUTE:
		c->cmd.query.id = an_id(f);
		return sizeof(c->cmd.query);
	case RDMA_USER_CM_CMD_GET_EVENT:
		return sizeof(c->cmd.get_event);
	case RDMA_USER_CM_CMD_NOTIFY:
		c->cmd.notify.id = an_id(f);
		return sizeof(c->cmd.notify);
	case RDMA_USER_CM_CMD_REJECT:
		c->cmd.reject.id = an_id(f);
		c->cmd.reject.private_data_len = fuzz_u8(f);
		return sizeof(c->cmd.reject);
	case RDMA_USER_CM_CMD_DESTROY_ID:
		c->cmd.destroy.id = an_id(f);
		return sizeof(c->cmd.destroy);
	case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
		c->cmd.resolve_route.id = an_id(f);
		return sizeof(c->cmd.resolve_route);
	case RDMA_USER_CM_CMD_LISTEN:
		c->cmd.listen.id = an_id(f);
		c->cmd.listen.backlog = fuzz_u8(f);
		return sizeof(c->cmd.listen);
	case RDMA_USER_CM_CMD_DISCONNECT:
		c->cmd.disconnect.id = an_id(f);
		return sizeof(c->cmd.disconnect);
	default:
		fuzz_bytes(f, &c->cmd, 24);
		return sizeof(c->cmd);
	}
}

/* Each command has its pointers at one of these places. */
static void set_pointer(u32 cmd, struct cmdev_call *c, u64 address)
{
	switch (cmd) {
	case RDMA_USER_CM_CMD_CREATE_ID: c->cmd.create.response = address; break;
	case RDMA_USER_CM_CMD_DESTROY_ID:
	case RDMA_USER_CM_CMD_LEAVE_MCAST: c->cmd.destroy.response = address; break;
	case RDMA_USER_CM_CMD_QUERY:
	case RDMA_USER_CM_CMD_QUERY_ROUTE: c->cmd.query.response = address; break;
	case RDMA_USER_CM_CMD_INIT_QP_ATTR: c->cmd.init_qp_attr.response = address; break;
	case RDMA_USER_CM_CMD_GET_EVENT: c->cmd.get_event.response = address; break;
	case RDMA_USER_CM_CMD_SET_OPTION: c->cmd.set_option.optval = address; break;
	case RDMA_USER_CM_CMD_JOIN_IP_MCAST: c->cmd.join_ip.response = address; break;
	case RDMA_USER_CM_CMD_JOIN_MCAST: c->cmd.join.response = address; break;
	case RDMA_USER_CM_CMD_MIGRATE_ID: c->cmd.migrate.response = address; break;
	default: break;
	}
}

static void look_at_response(u32 cmd)
{
	struct rdma_ucm_create_id_resp created;
	struct rdma_ucm_event_resp event;

	memcpy(&created, scratch, sizeof(created));
	memcpy(&event, scratch, sizeof(event));
	if (cmd == RDMA_USER_CM_CMD_CREATE_ID)
		seen(created.id);
	else if (cmd == RDMA_USER_CM_CMD_GET_EVENT && event.event == CMDEV_CONNECT_REQUEST_EV)
		seen(event.id);
}

static void put(int fd, u32 cmd, const struct cmdev_call *c, size_t len, u16 in, u16 out, u64 address)
{
	struct rdma_ucm_cmd_hdr hdr = { .cmd = cmd, .in = in, .out = out };
	u8 *buf = malloc(sizeof(hdr) + len);
	ssize_t n;

	memcpy(buf, &hdr, sizeof(hdr));
	memcpy(buf + sizeof(hdr), &c->cmd, min(len, sizeof(c->cmd)));
	if (shim_cmdev_write(fd, buf, sizeof(hdr) + len, &n)) {
		assert(n < 0 || (size_t)n == sizeof(hdr) + len);
		if (n > 0 && address == (uintptr_t)scratch)
			look_at_response(cmd);
	}
	free(buf);
}

static void command(struct fuzz *f)
{
	u32 cmd = fuzz_u8(f) % (RDMA_USER_CM_CMD_JOIN_MCAST + 1);
	u8 how = fuzz_u8(f);
	u64 address = an_address(f);
	struct cmdev_call c;
	size_t len;
	u16 out = 600;

	memset(&c, 0, sizeof(c));
	len = fill(f, cmd, &c);
	if ((how & 7) == 7) /* something else than was meant */
		((u8 *)&c.cmd)[fuzz_u16(f) % sizeof(c.cmd)] ^= fuzz_u8(f);
	if ((how & 0x18) == 0x18)
		len = fuzz_u16(f) % (sizeof(c.cmd) + 1);
	if ((how & 0x60) == 0x60)
		out = fuzz_u16(f);
	set_pointer(cmd, &c, address);
	put(a_file(f), cmd, &c, len, (u16)(how & 0x80 ? fuzz_near(f) + len : len), out, address);
}

/* Bytes as they come, but for pointers. */
static void any_command(struct fuzz *f)
{
	struct cmdev_call c;
	u32 cmd = fuzz_u8(f) % 32;
	u64 address = an_address(f);
	u16 in = fuzz_u16(f);
	size_t len;

	memset(&c, 0, sizeof(c));
	len = fuzz_bytes(f, &c.cmd, fuzz_u16(f) % sizeof(c.cmd));
	set_pointer(cmd, &c, address);
	put(a_file(f), cmd, &c, max(len, sizeof(c.cmd)), in, fuzz_u16(f), address);
}

/* ---- what else programs do ---- */

static void open_file(struct fuzz *f)
{
	u32 i = fuzz_below(f, FILES);
	int ret;

	if (w.fd[i] >= 0)
		assert(shim_cmdev_close(w.fd[i], &ret) && !ret);
	w.fd[i] = shim_cmdev_open(O_RDWR | O_CLOEXEC | O_NONBLOCK);
	assert(w.fd[i] >= 0);
}

static void new_qp(struct fuzz *f)
{
	struct irdma_qp **qp = &w.qp[fuzz_below(f, QPS)];

	if (*qp)
		rnic_qp_destroy(*qp);
	*qp = NULL;
	assert(!rnic_qp_create(w.dev, qp));
}

static void run_ms(u64 ms)
{
	port_wire_run(w.wire, loop_now(&w.loop) + ms * NSEC_PER_MSEC);
}

static void check_tokens(void)
{
	struct cmdev_file *file;
	int i;

	for (i = 0; i < FILES; i++) {
		struct pollfd p = { .fd = w.fd[i], .events = POLLIN };

		file = cmdev_file_get(w.fd[i]);
		assert(file);
		assert((poll(&p, 1, 0) == 1) == !TAILQ_EMPTY(&file->events));
		cmdev_file_put(file);
	}
}

static void step(struct fuzz *f)
{
	switch (fuzz_below(f, 12)) {
	case 0: case 1: case 2: case 3: case 4: command(f); break;
	case 5: any_command(f); break;
	case 6: run_ms(1u << fuzz_below(f, 15)); break;
	case 7: peer_connects(f); break;
	case 8: peer_acts(f); break;
	case 9: w.manner = fuzz_u8(f); break;
	case 10: new_qp(f); break;
	case 11: if (fuzz_u8(f) < 64) open_file(f); break;
	}
	loop_run(&w.loop);
	check_tokens();
}

/* ---- life ---- */

static void get_device(struct irdma_device *iwdev, void *arg)
{
	*(struct irdma_device **)arg = iwdev;
}

static void host_up(u32 n, u8 gen)
{
	struct net_iface iface = { .name = "eth0", .mtu = 1500, .up = true, .vlan_id = PKT_VLAN_NONE, .mac = { 2, 0, 0, 0, 0, (u8)(n + 1) } };
	int v4;

	assert(!net_open_sim(w.seg, &w.net[n]) && !net_sim_add_iface(w.net[n], &iface));
	for (v4 = 0; v4 < 2; v4++) {
		struct net_addr a = { .ifindex = iface.ifindex, .ipv4 = v4, .prefix_len = v4 ? 24 : 64,
				      .addr = { v4 ? 0x0A000001u + n : 0xFD000000u, 0, 0, v4 ? 0 : 1u + n } };

		assert(!net_sim_add_addr(w.net[n], &a));
	}
	net_process(w.net[n]);
	assert(!iwcm_open_wire(w.wire, &w.loop, w.net[n], gen, &w.ctx[n]));
}

static void peer_listens(void)
{
	struct sockaddr_storage ss;

	put_addr(&ss, true, 1, PORT);
	assert(!iwcm_create_id(w.ctx[1], NULL, &w.listener) && !iwcm_bind(w.listener, (struct sockaddr *)&ss) && !iwcm_listen(w.listener, 4));
}

static void open_all(struct fuzz *f)
{
	struct port_wire_path path = { .latency_ns = 50000 };
	u8 gen = fuzz_u8(f) & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2;
	u32 i;

	memset(&w, 0, sizeof(w));
	rand_set_seed(1);
	loop_init(&w.loop, NSEC_PER_SEC);
	assert(!port_wire_create(&w.loop, 1, &w.wire));
	port_wire_set_default(w.wire, &path);
	w.seg = net_segment_create();
	assert(w.seg);
	for (i = 0; i < 2; i++)
		host_up(i, gen);
	cmdev_ctx = w.ctx[0]; /* no process is forked here */
	iwcm_set_handler(w.ctx[0], shim_cmdev_event, shim_cmdev_events_done, NULL);
	iwcm_set_handler(w.ctx[1], on_peer_event, NULL, NULL);
	iwcm_for_each_device(w.ctx[0], get_device, &w.dev);
	peer_listens();
	for (i = 0; i < FILES; i++)
		w.fd[i] = shim_cmdev_open(O_RDWR | O_CLOEXEC | O_NONBLOCK);
	for (i = 0; i < QPS; i++)
		assert(!rnic_qp_create(w.dev, &w.qp[i]));
}

static void close_program(void)
{
	int i, ret;

	for (i = 0; i < FILES; i++)
		assert(shim_cmdev_close(w.fd[i], &ret) && !ret);
	for (i = 0; i < QPS; i++)
		if (w.qp[i])
			rnic_qp_destroy(w.qp[i]);
}

static void close_all(void)
{
	struct iwcm_stats st;
	int i;

	close_program();
	iwcm_destroy_id(w.listener);
	for (i = 0; i < PEER_IDS; i++)
		iwcm_destroy_id(w.peer[i]);
	run_ms(3000000);
	for (i = 0; i < 2; i++) {
		iwcm_get_stats(w.ctx[i], &st);
		assert(!st.nodes_now && !st.listeners_now);
		iwcm_close(w.ctx[i]);
		net_close(w.net[i]);
	}
	port_wire_destroy(w.wire);
	net_segment_destroy(w.seg);
	loop_destroy(&w.loop);
	rand_unset_seed();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { data, size };
	int n;

	if (!scratch) {
		scratch = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert(scratch != MAP_FAILED && !mprotect(scratch, 2 * PAGE, PROT_READ | PROT_WRITE));
		iwcm_options_init(&options.conn);
	}
	open_all(&f);
	for (n = 0; n < STEPS && fuzz_more(&f); n++)
		step(&f);
	close_all();
	return 0;
}
