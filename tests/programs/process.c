// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * An RDMA program on the stock librdmacm that does with processes and descriptors what real ones do, and what they should not. tests/sys_run_process.sh compiles
 * it and runs it over uwarp.
 *
 *   process client PORT MESSAGES [TRICK]    sends, and expects the same back
 *   process server PORT [TRICK]             answers one client until it disconnects
 *   process workers PORT                    listens, and leaves its clients to two children: each serves one
 *   process burst PORT FILE                 posts BURST messages of CHUNK bytes; when FILE is there it disconnects and ends, all at once
 *   process sink PORT                       stops itself when it has accepted; then takes them, and answers each, whether anybody hears it or not
 */
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 4096
#define CHUNK 65536
#define BURST 512 /* 32 MiB: more than the sockets take */

static unsigned char out[SIZE], in[SIZE];
static struct ibv_mr *out_mr, *in_mr;
static const char *trick = "";
static unsigned int depth = 4;

static int playing(const char *name)
{
	return !strcmp(trick, name);
}

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void say(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
}

static struct rdma_cm_id *endpoint(const char *port, int passive)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = passive ? RAI_PASSIVE : 0 }, *res;
	struct ibv_qp_init_attr attr = { .cap = { depth, depth, 1, 1, 0 }, .sq_sig_all = 1, .qp_type = IBV_QPT_RC };
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo("127.0.0.1", port, &hints, &res))
		fail("rdma_getaddrinfo");
	if (rdma_create_ep(&id, res, NULL, &attr))
		fail("rdma_create_ep");
	rdma_freeaddrinfo(res);
	return id;
}

static void prepare(struct rdma_cm_id *id)
{
	out_mr = rdma_reg_msgs(id, out, SIZE);
	in_mr = rdma_reg_msgs(id, in, SIZE);
	if (!out_mr || !in_mr)
		fail("rdma_reg_msgs");
	if (rdma_post_recv(id, NULL, in, SIZE, in_mr))
		fail("rdma_post_recv");
}

static int completed(int (*get)(struct rdma_cm_id *, struct ibv_wc *), struct rdma_cm_id *id, struct ibv_wc *wc)
{
	return get(id, wc) == 1 && wc->status == IBV_WC_SUCCESS;
}

/* A child that does not use RDMA must leave its parent's alone, however it ends. */
static void fork_child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	if (!pid)
		exit(0);
	waitpid(pid, NULL, 0);
	if (system("true"))
		fail("system");
}

static void close_all(void)
{
	int fd;

	for (fd = 3; fd < 1024; fd++)
		close(fd);
}

static char inherited[1024]; /* open before main() */

static void find_inherited(void)
{
	int fd;

	for (fd = 0; fd < 1024; fd++)
		inherited[fd] = fcntl(fd, F_GETFD) >= 0;
}

static int ours(const struct rdma_cm_id *id, int fd)
{
	return inherited[fd] || fd == id->channel->fd || fd == id->send_cq_channel->fd || fd == id->recv_cq_channel->fd || fd == id->verbs->async_fd ||
	       fd == id->verbs->cmd_fd;
}

/* Whatever it did not open itself, in each of the ways that there are. The sockets and whatever else moves its data must be proof against it. */
static void close_others(const struct rdma_cm_id *id)
{
	int fd, found = 0, closed = 0, replaced = 0;

	for (fd = 3; fd < 1024; fd++) {
		if (ours(id, fd) || fcntl(fd, F_GETFD) < 0)
			continue;
		found++;
		replaced += dup2(0, fd) >= 0 || errno != EBUSY;
		replaced += dup3(0, fd, O_CLOEXEC) >= 0 || errno != EBUSY;
		closed += close_range((unsigned int)fd, (unsigned int)fd, 0) || fcntl(fd, F_GETFD) < 0;
		closed += !close(fd) || errno != EBADF;
	}
	printf("%s found, %d closed, %d replaced\n", found ? "some" : "none", closed, replaced);
}

/* A child's descriptors are its own to close and to replace. */
static void closing_children(const struct rdma_cm_id *id)
{
	int fd, status, high;
	pid_t pid = fork();

	if (!pid) {
		for (fd = 3; fd < 512; fd++)
			if (dup2(0, fd) != fd || close(fd))
				_exit(1);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	printf("fork %d\n", status);
	pid = vfork();
	if (!pid)
		_exit(close_range(3, ~0u, 0) || fcntl(id->channel->fd, F_GETFD) >= 0 || dup2(0, 7) != 7);
	waitpid(pid, &status, 0);
	for (high = 0, fd = 512; fd < 1024; fd++)
		high += fcntl(fd, F_GETFD) >= 0;
	printf("vfork %d, %s left\n", status, high ? "all" : "none");
}

/* ---- client ---- */

static void exchange(struct rdma_cm_id *id, int i)
{
	struct ibv_wc wc;

	memset(out, i + 1, SIZE);
	if (rdma_post_send(id, NULL, out, SIZE, out_mr, 0) || !completed(rdma_get_send_comp, id, &wc))
		fail("send");
	if (!completed(rdma_get_recv_comp, id, &wc) || memcmp(in, out, SIZE) != 0)
		fail("receive");
	if (rdma_post_recv(id, NULL, in, SIZE, in_mr))
		fail("rdma_post_recv");
}

/* Each of these is somebody's mistake; an error is the right answer, and nothing worse. */
static void destroy_in_wrong_order(struct rdma_cm_id *id)
{
	printf("pd %d\n", ibv_dealloc_pd(id->pd));
	printf("cq %d\n", ibv_destroy_cq(id->send_cq));
	printf("mr %d %d\n", ibv_dereg_mr(in_mr), ibv_dereg_mr(out_mr));
	say("the rest is left to exit()");
	exit(0);
}

/* Without a word to the peer. */
static void give_up(struct rdma_cm_id *id)
{
	if (playing("destroy-qp"))
		rdma_destroy_qp(id);
	else if (playing("destroy-id"))
		printf("destroy %d\n", rdma_destroy_id(id));
	else
		printf("close %d\n", close(id->channel->fd));
	say("given up");
	sleep(3600); /* until the test ends it: its end is not what the peer hears of */
}

static int client(const char *port, int messages)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct rdma_cm_id *id;
	int i;

	if (!list)
		fail("ibv_get_device_list");
	if (playing("close-all"))
		close_all();
	id = endpoint(port, 0);
	prepare(id);
	if (rdma_connect(id, NULL))
		fail("rdma_connect");
	for (i = 0; i < messages; i++) {
		if (playing("fork") && i % 8 == 0)
			fork_child();
		if (playing("close-others") && i == 5)
			close_others(id);
		if (playing("closing-children") && i % 8 == 5)
			closing_children(id);
		exchange(id, i);
	}
	printf("exchanged %d\n", messages);
	fflush(stdout);
	if (playing("stay"))
		sleep(3600); /* until the test ends it */
	if (playing("wrong-order"))
		destroy_in_wrong_order(id);
	if (playing("destroy-qp") || playing("destroy-id") || playing("close-channel")) {
		give_up(id);
		return 0;
	}
	if (playing("close-range"))
		printf("close_range %d\n", close_range(3, ~0u, 0));
	if (playing("exit"))
		return 0;
	if (playing("wait")) { /* for the peer's end */
		struct ibv_wc wc;

		say(completed(rdma_get_recv_comp, id, &wc) ? "a message" : "disconnected");
	}
	rdma_disconnect(id);
	rdma_destroy_ep(id);
	say("done");
	return 0;
}

/* ---- server ---- */

static void serve(struct rdma_cm_id *id)
{
	struct ibv_wc wc;
	int n;

	prepare(id);
	if (rdma_accept(id, NULL))
		fail("rdma_accept");
	for (n = 0; completed(rdma_get_recv_comp, id, &wc); n++) {
		memcpy(out, in, SIZE);
		if (rdma_post_recv(id, NULL, in, SIZE, in_mr))
			fail("rdma_post_recv");
		if (rdma_post_send(id, NULL, out, SIZE, out_mr, 0) || !completed(rdma_get_send_comp, id, &wc))
			break;
	}
	printf("served %d\n", n);
	say("disconnected");
	rdma_disconnect(id);
	rdma_destroy_ep(id);
}

static int server(const char *port)
{
	struct rdma_cm_id *listener = endpoint(port, 1), *id;

	if (rdma_listen(listener, 4))
		fail("rdma_listen");
	say("listening");
	if (playing("daemon") && daemon(1, 1))
		fail("daemon");
	if (rdma_get_request(listener, &id))
		fail("rdma_get_request");
	serve(id);
	rdma_destroy_ep(listener);
	say("done");
	return 0;
}

static int workers(const char *port)
{
	struct rdma_cm_id *listener = endpoint(port, 1), *id;
	int i;

	if (rdma_listen(listener, 4))
		fail("rdma_listen");
	for (i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (pid < 0)
			fail("fork");
		if (pid)
			continue;
		usleep(200000); /* a client may be there already */
		say("ready");
		if (rdma_get_request(listener, &id))
			fail("rdma_get_request");
		serve(id);
		exit(0);
	}
	while (wait(NULL) > 0)
		;
	say("done");
	return 0;
}

/* ---- the last words ---- */

static unsigned char bulk[BURST * CHUNK];

static int burst(const char *port, const char *go)
{
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	int i;

	depth = BURST;
	id = endpoint(port, 0);
	mr = rdma_reg_msgs(id, bulk, sizeof(bulk));
	in_mr = rdma_reg_msgs(id, in, SIZE);
	for (i = 0; i < BURST; i++)
		memset(bulk + i * CHUNK, i + 1, CHUNK);
	for (i = 0; i < BURST; i++)
		if (rdma_post_recv(id, NULL, in, SIZE, in_mr))
			fail("rdma_post_recv");
	if (rdma_connect(id, NULL))
		fail("rdma_connect");
	for (i = 0; i < BURST; i++)
		if (rdma_post_send(id, NULL, bulk + i * CHUNK, CHUNK, mr, 0))
			fail("rdma_post_send");
	say("posted");
	while (access(go, F_OK))
		usleep(1000);
	if (rdma_migrate_id(id, rdma_create_event_channel())) /* or rdma_disconnect() would wait for the peer */
		fail("rdma_migrate_id");
	rdma_disconnect(id);
	exit(0);
}

static int sink(const char *port)
{
	struct rdma_cm_id *listener, *id;
	struct ibv_wc wc;
	int n, right = 0;

	depth = BURST;
	listener = endpoint(port, 1);
	if (rdma_listen(listener, 1))
		fail("rdma_listen");
	if (rdma_get_request(listener, &id))
		fail("rdma_get_request");
	in_mr = rdma_reg_msgs(id, bulk, sizeof(bulk));
	out_mr = rdma_reg_msgs(id, out, SIZE);
	for (n = 0; n < BURST; n++)
		if (rdma_post_recv(id, (void *)(long)n, bulk + n * CHUNK, CHUNK, in_mr))
			fail("rdma_post_recv");
	if (rdma_accept(id, NULL))
		fail("rdma_accept");
	raise(SIGSTOP);
	for (n = 0; n < BURST && completed(rdma_get_recv_comp, id, &wc); n++) {
		right += wc.byte_len == CHUNK && wc.wr_id == (unsigned long)n && bulk[n * CHUNK] == (unsigned char)(n + 1) && bulk[n * CHUNK + CHUNK - 1] == (unsigned char)(n + 1);
		rdma_post_send(id, NULL, out, 16, out_mr, 0);
	}
	printf("%d of %d right\n", right, BURST);
	rdma_disconnect(id);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	return 0;
}

int main(int argc, char **argv)
{
	find_inherited();
	if (argc == 3 && !strcmp(argv[1], "workers"))
		return workers(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "burst"))
		return burst(argv[2], argv[3]);
	if (argc == 3 && !strcmp(argv[1], "sink"))
		return sink(argv[2]);
	if (argc > 3 && !strcmp(argv[1], "client")) {
		trick = argc > 4 ? argv[4] : "";
		return client(argv[2], atoi(argv[3]));
	}
	if (argc > 2 && !strcmp(argv[1], "server")) {
		trick = argc > 3 ? argv[3] : "";
		return server(argv[2]);
	}
	fprintf(stderr, "usage: process client PORT MESSAGES [TRICK] | process server PORT [TRICK]\n");
	return 64;
}
