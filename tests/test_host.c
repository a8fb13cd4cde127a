/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The host port, driven by a tiny CM (host_cm.c) against plain sockets on loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "host_cm.h"

static struct cm cm;

static int start(void **state)
{
	cm_start(&cm);
	return 0;
}

static int stop(void **state)
{
	cm_stop(&cm);
	return 0;
}

static const struct port_ops *ops(void)
{
	return cm.port->ops;
}

/* An established active connection; *@fd is the other end. */
static struct cm_ep *active(bool ipv4, int *fd)
{
	int lfd = plain_listen(ipv4, 0);
	struct cm_ep *ep = cm_connect(&cm, ipv4, plain_number(lfd));

	assert_int_equal(ep->synacks, 1);
	*fd = plain_accept(lfd);
	close(lfd);
	return ep;
}

static void read_all(int fd, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = recv(fd, (u8 *)buf + done, len - done, 0);

		assert_true(n > 0);
		done += (size_t)n;
	}
}

/* The same while the port has to go on. */
static void read_all_stepping(int fd, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = recv(fd, (u8 *)buf + done, len - done, MSG_DONTWAIT);

		assert_true(n > 0 || (n < 0 && errno == EAGAIN));
		if (n > 0)
			done += (size_t)n;
		else
			cm_wait(&cm, 10);
	}
}

static void expect_bytes(int fd, const char *text)
{
	char buf[256];

	read_all(fd, buf, strlen(text));
	assert_memory_equal(buf, text, strlen(text));
}

static void expect_eof(int fd)
{
	char c;

	assert_int_equal(recv(fd, &c, 1, 0), 0);
}

static void expect_reset(int fd)
{
	char c;

	assert_int_equal(recv(fd, &c, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

static void expect_silence(int fd)
{
	char c;

	assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
}

static void send_text(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void expect_got(struct cm_ep *ep, const char *text)
{
	assert_int_equal(ep->len, strlen(text));
	assert_memory_equal(ep->buf, text, ep->len);
}

/* ---- active ---- */

static void connect_exchange_close(bool ipv4)
{
	int fd;
	struct cm_ep *ep = active(ipv4, &fd);

	assert_int_equal(ep->snd_una, ep->snd_nxt);
	assert_true(ep->peer_mss > 1000);
	assert_true(ep->peer_wscale > 0);
	cm_ep_send(ep, PKT_PSH | PKT_ACK, "request", 7);
	cm_until(&cm, ep->snd_una == ep->snd_nxt);
	expect_bytes(fd, "request");
	send_text(fd, "reply");
	cm_until(&cm, ep->datas);
	expect_got(ep, "reply");
	assert_int_equal(ep->last_flags, PKT_PSH | PKT_ACK);

	cm_ep_send(ep, PKT_FIN | PKT_ACK, NULL, 0);
	cm_until(&cm, ep->snd_una == ep->snd_nxt);
	expect_eof(fd);
	assert_int_equal(ep->fins, 0);
	send_text(fd, "late");
	cm_until(&cm, ep->datas == 2);
	close(fd);
	cm_until(&cm, ep->fins == 1);
	assert_int_equal(ep->last_flags, PKT_FIN | PKT_ACK);
	cm_settle(&cm);
	assert_int_equal(ep->fins, 1);
	assert_int_equal(ep->rsts, 0);
	cm_ep_free(ep);
}

static void test_connect(void **state)
{
	connect_exchange_close(true);
}

static void test_connect_ipv6(void **state)
{
	connect_exchange_close(false);
}

static void test_connect_without_wscale(void **state)
{
	int lfd = plain_listen(true, 0);
	struct pkt_tuple t = cm_loopback(true, 0, plain_number(lfd));
	struct cm_ep *ep;

	assert_int_equal(ops()->reserve(cm.port, true, t.loc_addr, &t.loc_port, false), 0);
	ep = cm_ep_new(&cm, &t);
	cm_ep_send(ep, PKT_SYN, NULL, 0);
	cm_until(&cm, ep->synacks);
	assert_int_equal(ep->peer_wscale, -1);
	assert_int_equal(ep->last_window, 65535);
	/* The CM has not seen it, and repeats its SYN. */
	cm_ep_send_at(ep, ep->iss, PKT_SYN, NULL, 0);
	cm_until(&cm, ep->synacks == 2);
	assert_int_equal(ep->snd_una, ep->iss + 1);
	ops()->release(cm.port, true, t.loc_addr, t.loc_port);
	close(lfd);
}

static void test_connect_unreserved_number(void **state)
{
	int lfd = plain_listen(true, 0), fd = plain_listen(true, 0);
	struct pkt_tuple t = cm_loopback(true, plain_number(fd), plain_number(lfd));
	struct cm_ep *ep;

	close(fd);
	ep = cm_ep_new(&cm, &t);
	cm_ep_send(ep, PKT_SYN, NULL, 0);
	cm_until(&cm, ep->synacks);
	close(lfd);
}

static void test_connect_refused(void **state)
{
	int lfd = plain_listen(true, 0);
	u16 number = plain_number(lfd);
	struct cm_ep *ep;

	close(lfd);
	ep = cm_connect(&cm, true, number);
	assert_int_equal(ep->rsts, 1);
	assert_int_equal(ep->error, -ECONNREFUSED);
	assert_int_equal(ep->snd_una, ep->iss + 1);
	cm_ep_send_at(ep, ep->iss, PKT_SYN, NULL, 0);
	cm_until(&cm, ep->rsts == 2);
}

static void test_connect_no_route(void **state)
{
	struct pkt_tuple t = cm_loopback(true, 0, 9);
	struct cm_ep *ep;

	t.loc_addr[0] = 0xC0000201; /* TEST-NET-1: nobody's */
	t.loc_port = 40000;
	ep = cm_ep_new(&cm, &t);
	cm_ep_send(ep, PKT_SYN, NULL, 0);
	assert_int_equal(ep->rsts, 0); /* never from inside the call */
	cm_until(&cm, ep->rsts);
	assert_int_equal(ep->error, -EADDRNOTAVAIL);
}

static void test_peer_resets(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);

	send_text(fd, "last words");
	plain_reset(fd);
	cm_until(&cm, ep->rsts);
	expect_got(ep, "last words");
	assert_int_equal(ep->error, -ECONNRESET);
	assert_int_equal(ep->rst_seq, ep->rcv_nxt);
	assert_int_equal(ep->fins, 0);
	/* A CM that missed it hears it again. */
	cm_ep_send(ep, PKT_ACK, "?", 1);
	cm_until(&cm, ep->rsts == 2);
	assert_int_equal(ep->cm->port->ops->offload(cm.port, ep->ah, &(struct tcp_info_ho){ 0 }, NULL, NULL, &ep->stream),
			 -ECONNRESET);
}

static void test_peer_resets_with_window_shut(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);

	ep->window = 0;
	cm_ep_send(ep, PKT_ACK, NULL, 0);
	send_text(fd, "unread");
	plain_reset(fd);
	cm_until(&cm, ep->rsts);
	assert_int_equal(ep->len, 0);
	assert_int_equal(ep->rst_seq, ep->rcv_nxt);
	assert_int_equal(ep->error, -ECONNRESET);
}

static void test_peer_half_closes(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);

	send_text(fd, "all");
	shutdown(fd, SHUT_WR);
	cm_until(&cm, ep->fins);
	expect_got(ep, "all");
	cm_ep_send(ep, PKT_ACK | PKT_PSH, "still", 5);
	expect_bytes(fd, "still");
	cm_ep_send(ep, PKT_ACK | PKT_PSH | PKT_FIN, "open", 4);
	expect_bytes(fd, "open");
	expect_eof(fd);
	cm_until(&cm, ep->snd_una == ep->snd_nxt);
	cm_ep_free(ep);
	close(fd);
}

static void test_cm_resets(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);

	cm_ep_send(ep, PKT_RST, NULL, 0);
	expect_reset(fd);
	cm_ep_send(ep, PKT_ACK, "x", 1);
	cm_settle(&cm);
	assert_int_equal(ep->rsts, 0);
	close(fd);
}

static void test_destroy_resets(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);

	cm_ep_send(ep, PKT_ACK | PKT_FIN, NULL, 0);
	expect_eof(fd);
	cm_ep_free(ep); /* the peer's FIN is missing */
	cm_settle(&cm);
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), -1);
	close(fd);
}

static void test_retransmissions(void **state)
{
	int fd, acks;
	struct cm_ep *ep = active(true, &fd);
	u32 seq = ep->snd_nxt;

	cm_ep_send(ep, PKT_ACK, "abcdef", 6);
	cm_until(&cm, ep->snd_una == ep->snd_nxt);
	acks = ep->acks;
	cm_ep_send_at(ep, seq, PKT_ACK, "abcdef", 6);
	cm_until(&cm, ep->acks == acks + 1);
	cm_ep_send_at(ep, seq + 3, PKT_ACK, "defghi", 6); /* half of it is new */
	cm_until(&cm, ep->acks == acks + 2);
	assert_int_equal(ep->snd_una, seq + 9);
	cm_ep_send_at(ep, seq + 20, PKT_ACK, "gap", 3);
	cm_until(&cm, ep->acks == acks + 3);
	assert_int_equal(ep->snd_una, seq + 9);
	cm_ep_send_at(ep, seq + 9, PKT_ACK | PKT_FIN, NULL, 0);
	cm_ep_send_at(ep, seq + 9, PKT_ACK | PKT_FIN, NULL, 0);
	cm_ep_send_at(ep, seq + 10, PKT_ACK, "after FIN", 9);
	cm_until(&cm, ep->snd_una == seq + 10);
	expect_bytes(fd, "abcdefghi");
	expect_eof(fd);
	/* A SYN now is answered by an ACK, RFC 5961 4. */
	acks = ep->acks;
	cm_ep_send_at(ep, ep->iss, PKT_SYN, NULL, 0);
	cm_until(&cm, ep->acks == acks + 1);
	close(fd);
}

static void test_bad_segments(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);
	u8 seg[64] = { 0 };

	assert_int_equal(ops()->tx_ah(cm.port, ep->ah, seg, 19), -EINVAL);
	assert_int_equal(ops()->tx_ah(cm.port, ep->ah, seg, 20), -EINVAL);
	seg[12] = 0xF0;
	assert_int_equal(ops()->tx_ah(cm.port, ep->ah, seg, 59), -EINVAL);
	assert_int_equal(ops()->tx_ah(cm.port, ep->ah, seg, 70000), -EINVAL);
	assert_int_equal(ops()->tx_frame(cm.port, seg, sizeof(seg)), -EOPNOTSUPP);
	close(fd);
}

/* Options of the CM's SYN: hostile ones count as no window scale, and end. */
static void test_syn_options(void **state)
{
	static const struct { const char *opts; bool wscale; } table[] = {
		{ "\x03\x03\x07\x00", true },
		{ "\x01\x01\x01\x01\x03\x03\x0f\x00", true },
		{ "\x03\x00\x07\x00", false },
		{ "\x02\x00\x00\x00", false },
		{ "\x03\x04\x07\x00", false },
		{ "\x00\x03\x03\x07", false },
		{ "\x01\x01\x01\x03", false },
		{ "\x09\x40\x03\x03\x07\x00\x00\x00", false },
	};
	static const u8 lengths[] = { 4, 8, 4, 4, 4, 4, 4, 8 };
	int lfd = plain_listen(true, 0);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		struct pkt_tuple t = cm_loopback(true, 0, plain_number(lfd));
		u8 seg[28] = { 0 };
		struct cm_ep *ep;

		assert_int_equal(ops()->reserve(cm.port, true, t.loc_addr, &t.loc_port, false), 0);
		ep = cm_ep_new(&cm, &t);
		seg[12] = (u8)((20 + lengths[i]) / 4 << 4);
		seg[13] = PKT_SYN;
		memcpy(seg + 20, table[i].opts, lengths[i]);
		assert_int_equal(ops()->tx_ah(cm.port, ep->ah, seg, 20u + lengths[i]), 0);
		cm_until(&cm, ep->synacks);
		assert_int_equal(ep->peer_wscale >= 0, table[i].wscale);
		cm_ep_free(ep);
		ops()->release(cm.port, true, t.loc_addr, t.loc_port);
	}
	close(lfd);
}

static void test_window_limits_reading(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);

	ep->auto_ack = false;
	ep->window = 1; /* shifted by three: 8 bytes */
	cm_ep_send(ep, PKT_ACK, NULL, 0);
	send_text(fd, "0123456789abcdefghij");
	shutdown(fd, SHUT_WR);
	cm_settle(&cm);
	assert_int_equal(ep->len, 8);
	cm_ep_send(ep, PKT_ACK, NULL, 0);
	cm_settle(&cm);
	assert_int_equal(ep->len, 16);
	ep->window = 0;
	cm_ep_send(ep, PKT_ACK, NULL, 0);
	cm_settle(&cm);
	assert_int_equal(ep->len, 16);
	ep->window = 1;
	cm_ep_send(ep, PKT_ACK, NULL, 0);
	cm_until(&cm, ep->fins);
	expect_got(ep, "0123456789abcdefghij");
	close(fd);
}

static void test_much_data_in(void **state)
{
	u8 data[20000];
	size_t i;
	int fd;
	struct cm_ep *ep = active(true, &fd);

	for (i = 0; i < sizeof(data); i++)
		data[i] = (u8)(i * 7 + i / 256);
	assert_int_equal(send(fd, data, sizeof(data), 0), sizeof(data));
	cm_until(&cm, ep->len == sizeof(data));
	assert_memory_equal(ep->buf, data, sizeof(data));
	assert_true(ep->datas >= 10);
	close(fd);
}

static void step_all(void)
{
	while (cm_step(&cm))
		;
}

static void set_receive_buffer(int fd, int bytes)
{
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

/* The CM sends until nothing is acknowledged any more; then the peer reads, and all comes, once. */
static void test_socket_full(void **state)
{
	static u8 chunk[4096], got[sizeof(chunk)];
	u32 sent = 0, read_so_far = 0, i;
	int fd, lfd = plain_listen(true, 0);
	struct cm_ep *ep;

	set_receive_buffer(lfd, 4096);
	ep = cm_connect(&cm, true, plain_number(lfd));
	fd = plain_accept(lfd);
	for (i = 0; i < sizeof(chunk); i++)
		chunk[i] = (u8)(i ^ (i >> 8));
	while (ep->snd_una == ep->snd_nxt) {
		cm_ep_send(ep, PKT_ACK, chunk, sizeof(chunk));
		sent += sizeof(chunk);
		step_all();
		assert_true(sent < 100u << 20);
	}
	cm_ep_send_at(ep, ep->snd_nxt, PKT_ACK, chunk, sizeof(chunk)); /* no room for all of it */
	cm_ep_send_at(ep, ep->snd_nxt + sizeof(chunk), PKT_ACK | PKT_FIN, NULL, 0);
	set_receive_buffer(fd, 1 << 20);
	while (read_so_far < sent) {
		read_all_stepping(fd, got, sizeof(got));
		assert_memory_equal(got, chunk, sizeof(got));
		read_so_far += sizeof(got);
	}
	cm_until(&cm, seq_geq(ep->snd_una, ep->snd_nxt));
	/* Now the CM repeats what is not acknowledged, and its FIN. */
	cm_ep_send(ep, PKT_ACK | PKT_FIN, chunk, sizeof(chunk));
	read_all_stepping(fd, got, sizeof(got));
	assert_memory_equal(got, chunk, sizeof(got));
	cm_until(&cm, ep->snd_una == ep->snd_nxt);
	expect_eof(fd);
	close(fd);
	close(lfd);
}

/* A CM whose ILQ is full now and then loses nothing and sees nothing twice. */
static void test_not_taken(void **state)
{
	int fd, i, lfd = plain_listen(true, 0);
	struct cm_ep *ep;

	cm.refuse = 3;
	ep = cm_connect(&cm, true, plain_number(lfd));
	assert_int_equal(ep->synacks, 1);
	fd = plain_accept(lfd);
	for (i = 1; i <= 5; i++) {
		cm.refuse = i;
		send_text(fd, "some");
		cm_ep_send(ep, PKT_ACK, "x", 1);
		cm_until(&cm, ep->len == 4u * (u32)i && ep->snd_una == ep->snd_nxt);
	}
	cm.refuse = 3;
	shutdown(fd, SHUT_WR);
	cm_until(&cm, ep->fins);
	cm.refuse = 2;
	plain_reset(fd);
	cm_until(&cm, ep->rsts);
	cm_settle(&cm);
	assert_int_equal(ep->fins, 1);
	assert_int_equal(ep->rsts, 1);
	assert_int_equal(ep->rst_seq, ep->rcv_nxt);
	close(lfd);
}

/* ---- passive ---- */

static void accept_exchange_close(bool ipv4)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, ipv4, &number);
	int fd = plain_connect(ipv4, number);
	struct cm_ep *ep;

	cm_until(&cm, cm.last && cm.last->acks);
	ep = cm.last;
	assert_ptr_equal(ep->filter, f);
	assert_int_equal(ep->tuple.loc_port, number);
	assert_int_equal(ep->tuple.rem_port, plain_number(fd));
	assert_true(ep->peer_wscale >= 0 && ep->peer_mss > 1000);
	assert_int_equal(ep->snd_una, ep->snd_nxt);
	send_text(fd, "request");
	cm_until(&cm, ep->datas);
	expect_got(ep, "request");
	cm_ep_send(ep, PKT_ACK | PKT_PSH, "reply", 5);
	expect_bytes(fd, "reply");
	shutdown(fd, SHUT_WR);
	cm_until(&cm, ep->fins);
	cm_ep_send(ep, PKT_ACK | PKT_FIN, NULL, 0);
	expect_eof(fd);
	cm_ep_free(ep);
	close(fd);
	ops()->filter_del(cm.port, f);
}

static void test_accept(void **state)
{
	accept_exchange_close(true);
}

static void test_accept_ipv6(void **state)
{
	accept_exchange_close(false);
}

static void test_accept_on_any_address(void **state)
{
	struct port_filter_attr a = { .ipv4 = true, .tuple = { .ipv4 = true, .vlan_id = PKT_VLAN_NONE }, .cookie = &cm };
	struct port_filter *f;
	int fd;

	assert_int_equal(ops()->reserve(cm.port, true, a.tuple.loc_addr, &a.tuple.loc_port, false), 0);
	assert_int_equal(ops()->filter_add(cm.port, &a, &f), 0);
	fd = plain_connect(true, a.tuple.loc_port);
	cm_until(&cm, cm.last && cm.last->acks);
	assert_int_equal(cm.last->tuple.loc_addr[0], INADDR_LOOPBACK);
	close(fd);
	ops()->filter_del(cm.port, f);
	ops()->release(cm.port, true, a.tuple.loc_addr, a.tuple.loc_port);
}

static void test_no_answer(void **state)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	int i, fd;

	cm.answer = false;
	fd = plain_connect(true, number);
	cm_until(&cm, cm.syns == 1);
	cm.skip_ns += 150 * NSEC_PER_MSEC;
	cm_settle(&cm);
	assert_int_equal(cm.syns, 1);
	for (i = 0; i < 5; i++) { /* 200 ms, 400 ms ... 3.2 s */
		cm.skip_ns += (200ull << i) * NSEC_PER_MSEC;
		cm_until(&cm, cm.syns == 2 + i);
	}
	expect_silence(fd);
	cm.skip_ns += 20 * NSEC_PER_SEC;
	cm_settle(&cm);
	assert_int_equal(cm.syns, 6);
	expect_reset(fd);
	close(fd);
	ops()->filter_del(cm.port, f);
}

static void test_late_answer(void **state)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	int fd;

	cm.refuse = 1;
	fd = plain_connect(true, number);
	send_text(fd, "early");
	cm_settle(&cm);
	assert_int_equal(cm.syns, 0);
	cm.skip_ns += 200 * NSEC_PER_MSEC;
	cm_until(&cm, cm.last && cm.last->len == 5);
	expect_got(cm.last, "early");
	close(fd);
	ops()->filter_del(cm.port, f);
}

/* The CM has a handle and does not answer: the SYN comes again, and at last a RST. */
static void test_adopted_no_answer(void **state)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	struct cm_ep *ep;
	int fd;

	cm.answer = false;
	fd = plain_connect(true, number);
	cm_until(&cm, cm.syns == 1);
	ep = cm_ep_new(&cm, &cm.last_tuple);
	cm.skip_ns += 200 * NSEC_PER_MSEC;
	cm_until(&cm, ep->syns == 1);
	cm.skip_ns += 11 * NSEC_PER_SEC;
	cm_until(&cm, ep->rsts == 1);
	assert_int_equal(ep->error, -ETIMEDOUT);
	expect_reset(fd);
	close(fd);
	ops()->filter_del(cm.port, f);
}

static void test_backlog(void **state)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	int fd[3], i;

	cm.room = 1;
	for (i = 0; i < 3; i++)
		fd[i] = plain_connect(true, number);
	cm_until(&cm, cm.syns == 1);
	cm_settle(&cm);
	assert_int_equal(cm.syns, 1);
	assert_true(cm.asked <= 3);
	for (i = 1; i < 3; i++)
		expect_silence(fd[i]);
	cm.room = 1;
	ops()->filter_kick(cm.port, f);
	cm_until(&cm, cm.syns == 2);
	cm_settle(&cm);
	assert_int_equal(cm.syns, 2);
	ops()->filter_del(cm.port, f);
	expect_silence(fd[0]);
	expect_silence(fd[1]);
	expect_reset(fd[2]); /* it was still in the kernel's queue */
	for (i = 0; i < 3; i++)
		close(fd[i]);
}

static void test_many_unanswered(void **state)
{
	struct cm_ep *ep;
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	int fd[40], i, n;

	cm.answer = false;
	for (i = 0; i < 40; i++)
		fd[i] = plain_connect(true, number);
	cm_until(&cm, cm.syns == 16);
	cm_settle(&cm);
	assert_int_equal(cm.syns, 16);
	cm.answer = true;
	cm.skip_ns += 200 * NSEC_PER_MSEC;
	cm_until(&cm, cm.syns == 16 + 40);
	cm_settle(&cm);
	n = 0;
	LIST_FOREACH(ep, &cm.eps, entry) {
		assert_int_equal(ep->acks, 1);
		n++;
	}
	assert_int_equal(n, 40);
	for (i = 0; i < 40; i++)
		close(fd[i]);
	ops()->filter_del(cm.port, f);
}

static void test_pending_resets(void **state)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	struct cm_ep *ep;
	int fd;

	cm.answer = false;
	fd = plain_connect(true, number);
	cm_until(&cm, cm.syns == 1);
	plain_reset(fd);
	cm_settle(&cm);
	/* A CM that was slow answers into the void. */
	ep = cm_ep_new(&cm, &cm.last_tuple);
	cm_ep_answer(ep);
	cm_until(&cm, ep->rsts);
	assert_int_equal(ep->error, -ECONNRESET);
	cm.skip_ns += 20 * NSEC_PER_SEC;
	cm_settle(&cm);
	assert_int_equal(cm.syns, 1);
	ops()->filter_del(cm.port, f);
}

static void test_cm_refuses_syn(void **state)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	struct cm_ep *ep;
	int fd;

	cm.answer = false;
	fd = plain_connect(true, number);
	cm_until(&cm, cm.syns == 1);
	ep = cm_ep_new(&cm, &cm.last_tuple);
	cm_ep_send(ep, PKT_RST | PKT_ACK, NULL, 0);
	expect_reset(fd);
	close(fd);
	ops()->filter_del(cm.port, f);
}

static void test_filter_del_resets_pending(void **state)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	struct cm_ep *ep;
	int fd[2];

	cm.answer = false;
	fd[0] = plain_connect(true, number);
	cm_until(&cm, cm.syns == 1);
	ep = cm_ep_new(&cm, &cm.last_tuple);
	ep->rcv_nxt = cm.last_seq + 1;
	fd[1] = plain_connect(true, number);
	cm_until(&cm, cm.syns == 2);
	ops()->filter_del(cm.port, f);
	expect_reset(fd[1]);
	cm_ep_answer(ep);
	cm_until(&cm, ep->acks);
	close(fd[0]);
	close(fd[1]);
}

static void test_out_of_descriptors(void **state)
{
	struct rlimit old, low;
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	struct pkt_tuple t = cm_loopback(true, 0, number);
	int fd, lowest;
	u16 any = 0;

	fd = plain_connect(true, number);
	lowest = dup(fd);
	close(lowest);
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = (rlim_t)lowest;
	setrlimit(RLIMIT_NOFILE, &low);
	cm_settle(&cm);
	assert_int_equal(cm.syns, 0);
	assert_int_equal(cm.asked, 1); /* it waits, and does not spin */
	assert_int_equal(ops()->reserve(cm.port, true, t.loc_addr, &any, false), -EMFILE);
	t.loc_port = 40001;
	{
		struct cm_ep *ep = cm_ep_new(&cm, &t);

		cm_ep_send(ep, PKT_SYN, NULL, 0);
		cm_until(&cm, ep->rsts);
		assert_int_equal(ep->error, -EMFILE);
	}
	setrlimit(RLIMIT_NOFILE, &old);
	cm.skip_ns += 100 * NSEC_PER_MSEC;
	cm_until(&cm, cm.last && cm.last->acks);
	close(fd);
	ops()->filter_del(cm.port, f);
}

/* ---- reservations ---- */

static void test_reservations(bool ipv4)
{
	const u32 any[4] = { 0 };
	struct pkt_tuple t = cm_loopback(ipv4, 0, 0);
	struct port_filter_attr a = { .ipv4 = ipv4, .tuple = t, .cookie = &cm };
	u16 number = 0, same;
	struct port_filter *f, *g = NULL;
	int fd;

	assert_int_equal(ops()->reserve(cm.port, ipv4, any, &number, false), 0);
	assert_true(number > 0);
	same = number;
	assert_int_equal(ops()->reserve(cm.port, ipv4, any, &same, false), -EADDRINUSE);
	/* A child for each address, beside the reservation on all of them. */
	a.tuple.loc_port = number;
	assert_int_equal(ops()->filter_add(cm.port, &a, &f), 0);
	if (ipv4) {
		a.tuple.loc_addr[0]++;
		assert_int_equal(ops()->filter_add(cm.port, &a, &g), 0);
		a.tuple.loc_addr[0]--;
	}
	fd = plain_connect(ipv4, number);
	cm_until(&cm, cm.last && cm.last->acks);
	assert_int_equal(ops()->filter_add(cm.port, &a, &(struct port_filter *){ NULL }), -EADDRINUSE);
	ops()->filter_del(cm.port, f);
	if (g)
		ops()->filter_del(cm.port, g);
	/* Again while an old connection lives. */
	assert_int_equal(ops()->filter_add(cm.port, &a, &f), 0);
	ops()->filter_del(cm.port, f);
	ops()->release(cm.port, ipv4, any, number);
	close(fd);
	/* In use by somebody else. */
	fd = plain_listen(ipv4, number);
	same = number;
	assert_int_equal(ops()->reserve(cm.port, ipv4, any, &same, true), -EADDRINUSE);
	assert_int_equal(ops()->reserve(cm.port, ipv4, t.loc_addr, &same, true), -EADDRINUSE);
	assert_int_equal(ops()->filter_add(cm.port, &a, &f), -EADDRINUSE);
	close(fd);
}

static void test_reserve(void **state)
{
	test_reservations(true);
}

static void test_reserve_ipv6(void **state)
{
	test_reservations(false);
}

static void test_reserve_shared(void **state)
{
	struct pkt_tuple t = cm_loopback(true, 0, 0);
	u16 number = 0;
	int fd;

	assert_int_equal(ops()->reserve(cm.port, true, t.loc_addr, &number, true), 0);
	assert_int_equal(ops()->reserve(cm.port, true, t.loc_addr, &number, true), 0);
	assert_int_equal(ops()->reserve(cm.port, true, t.loc_addr, &number, false), -EADDRINUSE);
	ops()->release(cm.port, true, t.loc_addr, number);
	assert_int_equal(ops()->reserve(cm.port, true, t.loc_addr, &number, false), -EADDRINUSE);
	ops()->release(cm.port, true, t.loc_addr, number);
	ops()->release(cm.port, true, t.loc_addr, number); /* harmless */
	fd = plain_listen(true, number);
	close(fd);
	t.loc_addr[0] = 0xC0000201;
	assert_int_equal(ops()->reserve(cm.port, true, t.loc_addr, &number, false), -EADDRNOTAVAIL);
}

/* Two NICs of one process, both listening on every address, each on its own interface's. */
static void test_reserve_two_nics(void **state)
{
	static struct cm other;
	const u32 any[4] = { 0 };
	struct port_filter_attr a = { .ipv4 = true, .tuple = cm_loopback(true, 0, 0), .cookie = &cm };
	struct port_filter *f, *g;
	u16 number = 0;

	cm_plug(&other, cm.h);
	assert_int_equal(ops()->reserve(cm.port, true, any, &number, false), 0);
	a.tuple.loc_port = number;
	assert_int_equal(ops()->filter_add(cm.port, &a, &f), 0);
	assert_int_equal(ops()->reserve(other.port, true, any, &number, false), 0);
	a.tuple.loc_addr[0]++;
	assert_int_equal(ops()->filter_add(other.port, &a, &g), 0);
	ops()->filter_del(cm.port, f);
	ops()->filter_del(other.port, g);
	ops()->release(cm.port, true, any, number);
	cm_unplug(&other); /* which drops its reservation */
	close(plain_listen(true, number));
}

static void test_quad_filter(void **state)
{
	struct port_filter_attr a = { .ipv4 = true, .quad = true, .tuple = cm_loopback(true, 1, 2) };
	struct port_filter *f;

	assert_int_equal(ops()->filter_add(cm.port, &a, &f), 0);
	ops()->filter_kick(cm.port, f);
	ops()->filter_del(cm.port, f);
}

/* ---- streams ---- */

static ssize_t stream_send(struct cm_ep *ep, const void *data, size_t len)
{
	struct iovec iov[2] = { { (void *)data, len / 2 }, { (u8 *)data + len / 2, len - len / 2 } };

	return ops()->stream_send(ep->stream, iov, 2);
}

static ssize_t stream_recv(struct cm_ep *ep, void *data, size_t len)
{
	struct iovec iov[2] = { { data, len / 2 }, { (u8 *)data + len / 2, len - len / 2 } };

	return ops()->stream_recv(ep->stream, iov, 2);
}

static void stream_expect(struct cm_ep *ep, const char *text)
{
	char buf[256];
	size_t done = 0, len = strlen(text);

	while (done < len) {
		ssize_t n = stream_recv(ep, buf + done, len - done);

		if (n == -EAGAIN) {
			cm_wait(&cm, 10);
			continue;
		}
		assert_true(n > 0);
		done += (size_t)n;
	}
	assert_memory_equal(buf, text, len);
}

static struct cm_ep *stream(int *fd)
{
	struct cm_ep *ep = active(true, fd);

	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	cm_settle(&cm);
	ep->events = 0;
	return ep;
}

static void test_stream(void **state)
{
	int fd;
	struct cm_ep *ep = stream(&fd);
	char c;

	assert_int_equal(stream_recv(ep, &c, 1), -EAGAIN);
	assert_int_equal(stream_send(ep, "hello", 5), 5);
	expect_bytes(fd, "hello");
	send_text(fd, "world");
	cm_until(&cm, ep->events & PORT_READABLE);
	stream_expect(ep, "world");
	ep->events = 0;
	shutdown(fd, SHUT_WR);
	cm_until(&cm, ep->events & PORT_EOF);
	assert_false(ep->events & (PORT_CLOSED | PORT_RESET));
	assert_int_equal(stream_recv(ep, &c, 1), 0);
	assert_int_equal(stream_send(ep, "half", 4), 4);
	ep->events = 0;
	assert_int_equal(ops()->stream_shutdown(ep->stream), 0);
	assert_int_equal(ops()->stream_shutdown(ep->stream), 0);
	cm_until(&cm, ep->events & PORT_CLOSED);
	assert_false(ep->events & (PORT_EOF | PORT_RESET));
	assert_int_equal(ops()->stream_error(ep->stream), 0);
	assert_int_equal(stream_send(ep, "no", 2), -EPIPE);
	expect_bytes(fd, "half");
	expect_eof(fd);
	close(fd);
	ep->events = 0;
	cm_settle(&cm);
	assert_int_equal(ep->events, 0);
}

static void test_stream_closed_by_us_first(void **state)
{
	int fd;
	struct cm_ep *ep = stream(&fd);

	assert_int_equal(ops()->stream_shutdown(ep->stream), 0);
	expect_eof(fd);
	send_text(fd, "rest");
	close(fd);
	cm_until(&cm, ep->events & PORT_CLOSED);
	assert_true(ep->events & PORT_EOF);
	assert_true(ep->events & PORT_READABLE);
	stream_expect(ep, "rest");
}

static void test_stream_reset(void **state)
{
	int fd, calls;
	struct cm_ep *ep = stream(&fd);
	char c;

	plain_reset(fd);
	cm_until(&cm, ep->events & PORT_RESET);
	assert_false(ep->events & (PORT_EOF | PORT_CLOSED));
	assert_int_equal(ops()->stream_error(ep->stream), -ECONNRESET);
	assert_true(stream_recv(ep, &c, 1) <= 0);
	assert_int_equal(stream_send(ep, "x", 1), -ECONNRESET);
	calls = ep->calls;
	cm_settle(&cm);
	assert_int_equal(ep->calls, calls);
}

/* The thread that reads finds the error first; the event comes all the same. */
static void test_stream_reset_read_first(void **state)
{
	int fd;
	struct cm_ep *ep = stream(&fd);
	char c;

	plain_reset(fd);
	assert_int_equal(stream_recv(ep, &c, 1), -ECONNRESET);
	cm_until(&cm, ep->events & PORT_RESET);
	assert_int_equal(ops()->stream_error(ep->stream), -ECONNRESET);
}

static void test_stream_abort(void **state)
{
	int fd;
	struct cm_ep *ep = stream(&fd);
	char c;

	ops()->stream_abort(ep->stream);
	ops()->stream_abort(ep->stream);
	expect_reset(fd);
	cm_settle(&cm);
	assert_int_equal(ep->events, 0);
	assert_int_equal(stream_recv(ep, &c, 1), -ECONNRESET);
	assert_true(stream_send(ep, "x", 1) < 0);
	close(fd);
}

static void test_stream_close(void **state)
{
	int fd;
	struct cm_ep *ep = stream(&fd);

	assert_int_equal(stream_send(ep, "bye", 3), 3);
	cm_ep_free(ep);
	expect_bytes(fd, "bye");
	expect_eof(fd);
	close(fd);
	/* Half closed by us. */
	ep = stream(&fd);
	ops()->stream_shutdown(ep->stream);
	cm_ep_free(ep);
	expect_eof(fd);
	close(fd);
	/* With unread bytes, in the kernel. */
	ep = stream(&fd);
	send_text(fd, "unread");
	cm_until(&cm, ep->events & PORT_READABLE);
	cm_ep_free(ep);
	expect_reset(fd);
	close(fd);
	/* And here. */
	ep = active(true, &fd);
	assert_int_equal(cm_offload(ep, "unread", 6), 0);
	cm_ep_free(ep);
	expect_reset(fd);
	close(fd);
}

/* ---- draining ---- */

static void stream_drain(struct cm_ep *ep, const void *rest, u32 len)
{
	ops()->stream_drain(ep->stream, rest, len);
	ep->stream = NULL;
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void close_and_wait(int fd, int left)
{
	close(fd);
	cm_until(&cm, open_descriptors() <= left);
}

/* The peer has sent, is sending and goes on: it hears what we said, and no reset. */
static void test_drain(void **state)
{
	static u8 chunk[65536];
	int fd, none = open_descriptors();
	struct cm_ep *ep = stream(&fd);

	send_text(fd, "unread");
	cm_until(&cm, ep->events & PORT_READABLE);
	assert_int_equal(stream_send(ep, "why", 3), 3);
	stream_drain(ep, NULL, 0);
	ep->events = 0;
	for (int i = 0; i < 100; i++) {
		assert_true(send(fd, chunk, sizeof(chunk), MSG_NOSIGNAL | MSG_DONTWAIT) > 0 || errno == EAGAIN);
		cm_wait(&cm, 1);
	}
	expect_bytes(fd, "why");
	expect_eof(fd);
	send_text(fd, "still not reset");
	cm_settle(&cm);
	send_text(fd, "not even now");
	close_and_wait(fd, none);
	assert_int_equal(ep->events, 0);
	/* Bytes of the CM's time, unread; and it was shut down before. */
	ep = active(true, &fd);
	assert_int_equal(cm_offload(ep, "unread", 6), 0);
	ops()->stream_shutdown(ep->stream);
	stream_drain(ep, NULL, 0);
	expect_eof(fd);
	send_text(fd, "more");
	cm_settle(&cm);
	send_text(fd, "and more");
	close_and_wait(fd, none);
	/* The peer resets. */
	ep = stream(&fd);
	stream_drain(ep, "rest", 4);
	expect_bytes(fd, "rest");
	plain_reset(fd);
	cm_until(&cm, open_descriptors() <= none);
	/* It has reset before. */
	ep = stream(&fd);
	plain_reset(fd);
	stream_drain(ep, "rest", 4);
	cm_until(&cm, open_descriptors() <= none);
	/* We have. */
	ep = stream(&fd);
	ops()->stream_abort(ep->stream);
	stream_drain(ep, "rest", 4);
	expect_reset(fd);
	close_and_wait(fd, none);
}

/* The socket is full: what waits goes out as the peer makes room. */
static void test_drain_full(void **state)
{
	static u8 chunk[65536];
	int fd, lfd = plain_listen(true, 0), none = open_descriptors();
	size_t sent = 0, got = 0;
	struct cm_ep *ep;
	ssize_t n;

	set_receive_buffer(lfd, 4096);
	ep = cm_connect(&cm, true, plain_number(lfd));
	fd = plain_accept(lfd);
	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	while ((n = stream_send(ep, chunk, sizeof(chunk))) > 0)
		sent += (size_t)n;
	stream_drain(ep, chunk, sizeof(chunk));
	sent += sizeof(chunk);
	while (got < sent) {
		if (!(got & 1023))
			send(fd, chunk, 1000, MSG_DONTWAIT | MSG_NOSIGNAL);
		n = recv(fd, chunk, sizeof(chunk), MSG_DONTWAIT);
		assert_true(n > 0 || errno == EAGAIN);
		got += n > 0 ? (size_t)n : 0;
		cm_wait(&cm, n > 0 ? 0 : 10);
	}
	expect_eof(fd);
	close_and_wait(fd, none);
	close(lfd);
}

/* What is being closed and has not arrived: shut down or drained, in the socket or still here. What is sent on a stream that is open is nobody's last word. */
static void test_unsent(void **state)
{
	for (int drained = 0; drained < 2; drained++) {
		static u8 chunk[65536];
		int fd, lfd = plain_listen(true, 0);
		struct cm_ep *ep;

		set_receive_buffer(lfd, 4096);
		ep = cm_connect(&cm, true, plain_number(lfd));
		fd = plain_accept(lfd);
		assert_int_equal(cm_offload(ep, NULL, 0), 0);
		while (stream_send(ep, chunk, sizeof(chunk)) > 0)
			;
		assert_false(port_host_unsent(cm.h));
		if (drained)
			stream_drain(ep, chunk, 1000);
		else
			ops()->stream_shutdown(ep->stream);
		cm_settle(&cm);
		assert_true(port_host_unsent(cm.h));
		while (recv(fd, chunk, sizeof(chunk), MSG_DONTWAIT) != 0)
			cm_wait(&cm, 1);
		cm_until(&cm, !port_host_unsent(cm.h));
		close(fd);
		close(lfd);
		if (!drained) {
			ops()->stream_close(ep->stream);
			ep->stream = NULL;
		}
		cm_settle(&cm);
	}
}

/* A peer that sends for ever has two seconds. */
static void test_drain_time_limit(void **state)
{
	static u8 chunk[65536];
	int fd, none = open_descriptors();
	struct cm_ep *ep = stream(&fd);

	stream_drain(ep, NULL, 0);
	for (int i = 0; i < 50; i++) {
		send(fd, chunk, sizeof(chunk), MSG_NOSIGNAL | MSG_DONTWAIT);
		cm_wait(&cm, 1);
	}
	cm.skip_ns += 1900 * NSEC_PER_MSEC;
	cm_settle(&cm);
	assert_int_equal(open_descriptors(), none + 2);
	cm.skip_ns += 101 * NSEC_PER_MSEC;
	cm_until(&cm, open_descriptors() == none + 1);
	send(fd, "x", 1, MSG_NOSIGNAL);
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), -1);
	close(fd);
}

/* More than a quarter of the usual limit: the oldest goes. */
static void test_drain_too_many(void **state)
{
	enum { MAX = 256, MORE = 3 };
	static int fd[MAX + MORE];
	int none = open_descriptors();

	for (int i = 0; i < MAX + MORE; i++) {
		struct cm_ep *ep = active(true, &fd[i]);

		assert_int_equal(cm_offload(ep, NULL, 0), 0);
		stream_drain(ep, "why", 3);
	}
	assert_int_equal(open_descriptors(), none + MAX + MORE + MAX);
	for (int i = 0; i < MAX + MORE; i++) {
		send_text(fd[i], "x");
		if (i >= MORE)
			send_text(fd[i], "y");
		else
			assert_int_equal(send(fd[i], "y", 1, MSG_NOSIGNAL), -1);
	}
	cm_settle(&cm);
	for (int i = MORE; i < MAX + MORE; i++) {
		expect_bytes(fd[i], "why");
		expect_eof(fd[i]);
	}
	for (int i = 0; i < MAX + MORE; i++)
		close(fd[i]);
	cm_until(&cm, open_descriptors() == none);
}

/* The port goes first, and what is there by then is not answered with a reset. */
static void test_drain_unplug(void **state)
{
	int fd, none = open_descriptors();
	struct cm_ep *ep = stream(&fd);

	send_text(fd, "unread");
	stream_drain(ep, "why", 3);
	cm_unplug(&cm);
	assert_int_equal(open_descriptors(), none + 1);
	expect_bytes(fd, "why");
	expect_eof(fd);
	close(fd);
	cm_plug(&cm, cm.h);
}

static void test_drain_in_event(void **state)
{
	int fd, none = open_descriptors();
	struct cm_ep *ep = stream(&fd);

	ep->drain_in_event = true;
	send_text(fd, "x");
	cm_until(&cm, !ep->stream);
	send_text(fd, "y");
	cm_settle(&cm);
	expect_bytes(fd, "why");
	expect_eof(fd);
	assert_int_equal(ep->calls, 1);
	close_and_wait(fd, none);
}

/* A child's copy ends nothing of ours; one that takes over goes on. */
static void test_drain_fork(void **state)
{
	int fd, status, none = open_descriptors();
	struct cm_ep *ep = stream(&fd);
	pid_t child;

	stream_drain(ep, "why", 3);
	port_host_fork_prepare(cm.h);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		port_host_fork_child(cm.h);
		if (port_host_fork_resume(cm.h))
			_exit(1);
		port_host_fork_adopt(cm.h, true);
		send_text(fd, "to either");
		cm_settle(&cm);
		cm.skip_ns += 3 * NSEC_PER_SEC; /* enough for its copy */
		cm_settle(&cm);
		_exit(open_descriptors() != none + 1);
	}
	port_host_fork_parent(cm.h);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	expect_bytes(fd, "why");
	expect_eof(fd);
	close_and_wait(fd, none);
}

static void test_stream_close_in_event(void **state)
{
	struct cm_ep *ep[8];
	int fd[8], i;

	for (i = 0; i < 8; i++) {
		ep[i] = stream(&fd[i]);
		ep[i]->close_in_event = true;
		ep[i]->calls = 0;
	}
	for (i = 0; i < 8; i++)
		send_text(fd[i], "x");
	for (i = 0; i < 8; i++) {
		cm_until(&cm, ep[i]->calls);
		expect_reset(fd[i]);
		assert_int_equal(ep[i]->calls, 1);
		close(fd[i]);
		ep[i]->ah = NULL;
	}
	cm_settle(&cm);
}

/* What epoll reports in one batch about a stream that another's event has closed. */
static struct cm_ep *victim;

static void close_victim(void *ctx, u32 events)
{
	struct cm_ep *ep = ctx;

	ep->calls++;
	if (victim && victim->stream) {
		ops()->stream_close(victim->stream);
		victim->stream = NULL;
	}
}

static void test_stream_close_in_others_event(void **state)
{
	static const struct port_stream_up up = { .event = close_victim };
	struct cm_ep *ep[2];
	int fd[2], i;

	for (i = 0; i < 2; i++) {
		struct tcp_info_ho info = { 0 };

		ep[i] = active(true, &fd[i]);
		info.rcv_nxt = ep[i]->rcv_nxt;
		assert_int_equal(ops()->offload(cm.port, ep[i]->ah, &info, &up, ep[i], &ep[i]->stream), 0);
		ep[i]->ah = NULL;
	}
	cm_settle(&cm);
	ep[0]->calls = ep[1]->calls = 0;
	for (i = 0; i < 2; i++)
		send_text(fd[i], "x");
	victim = ep[1];
	cm_step(&cm);
	assert_int_equal(ep[0]->calls, 1);
	assert_int_equal(ep[1]->calls, 0);
	victim = NULL;
	close(fd[0]);
	close(fd[1]);
}

static void test_stream_leftover(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);

	/* The CM used "MPA", hands over "one", and has not been given "three" yet; "four" follows. */
	ep->window = 1; /* shifted by three */
	cm_ep_send(ep, PKT_ACK, NULL, 0);
	send_text(fd, "MPA+one-two-three-");
	cm_settle(&cm);
	expect_got(ep, "MPA+one-two-three-");
	ep->window = 0;
	cm_ep_send(ep, PKT_ACK, NULL, 0);
	send_text(fd, "four");
	cm_settle(&cm);
	assert_int_equal(cm_offload(ep, ep->buf + 4, ep->len - 4), 0);
	cm_until(&cm, ep->events & PORT_READABLE);
	stream_expect(ep, "one-two-three-four");
	close(fd);
}

/* Bytes whose segment the CM had not seen when it decided (its rcv_nxt says so) are not lost. */
static void test_stream_leftover_unseen(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);

	ep->auto_ack = false;
	send_text(fd, "MPA");
	cm_until(&cm, ep->datas == 1);
	send_text(fd, "unseen");
	cm_until(&cm, ep->datas == 2);
	send_text(fd, "kernel");
	shutdown(fd, SHUT_WR);
	ep->rcv_nxt -= 6;
	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	cm_until(&cm, ep->events & PORT_READABLE);
	stream_expect(ep, "unseenkernel");
	cm_until(&cm, ep->events & PORT_EOF);
	close(fd);
}

static void test_stream_signals_old_edges(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);
	char c;

	ep->window = 0;
	cm_ep_send(ep, PKT_ACK, NULL, 0);
	send_text(fd, "x");
	shutdown(fd, SHUT_WR);
	cm_settle(&cm);
	assert_int_equal(ep->fins, 0);
	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	assert_int_equal(ep->calls, 0);
	cm_until(&cm, ep->events & PORT_EOF);
	assert_true(ep->events & PORT_READABLE);
	assert_int_equal(ep->calls, 1);
	stream_expect(ep, "x");
	assert_int_equal(stream_recv(ep, &c, 1), 0);
	close(fd);
}

static void test_stream_after_fin(void **state)
{
	int fd;
	struct cm_ep *ep = active(true, &fd);

	shutdown(fd, SHUT_WR);
	cm_until(&cm, ep->fins);
	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	cm_until(&cm, ep->events & PORT_EOF);
	assert_int_equal(stream_send(ep, "x", 1), 1);
	expect_bytes(fd, "x");
	assert_int_equal(ops()->stream_shutdown(ep->stream), 0);
	cm_until(&cm, ep->events & PORT_CLOSED);
	close(fd);
}

static void test_stream_full(void **state)
{
	static u8 chunk[65536];
	int fd, lfd = plain_listen(true, 0);
	size_t sent = 0, got = 0;
	struct cm_ep *ep;
	ssize_t n;

	set_receive_buffer(lfd, 4096);
	ep = cm_connect(&cm, true, plain_number(lfd));
	fd = plain_accept(lfd);
	/* The CM's last bytes wait for room when the stream begins. */
	while (ep->snd_una == ep->snd_nxt) {
		cm_ep_send(ep, PKT_ACK, chunk, 4096);
		sent += 4096;
		step_all();
	}
	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	assert_int_equal(stream_send(ep, chunk, sizeof(chunk)), -EAGAIN);
	ep->events = 0;
	set_receive_buffer(fd, 1 << 20);
	while (!(ep->events & PORT_WRITABLE)) {
		n = recv(fd, chunk, sizeof(chunk), 0);
		assert_true(n > 0);
		got += (size_t)n;
		cm_wait(&cm, 10);
	}
	memset(chunk, 1, sizeof(chunk));
	while ((n = stream_send(ep, chunk, sizeof(chunk))) > 0)
		sent += (size_t)n;
	assert_int_equal(n, -EAGAIN);
	ops()->stream_shutdown(ep->stream);
	while ((n = recv(fd, chunk, sizeof(chunk), 0)) > 0)
		got += (size_t)n;
	assert_int_equal(n, 0);
	assert_int_equal(got, sent);
	close(fd);
	close(lfd);
}

/* A forked child keeps the descriptor open: epoll goes on reporting what nobody knows any more. */
static void test_fork(void **state)
{
	int fd, p[2], status;
	struct cm_ep *ep = stream(&fd);
	pid_t child;
	char c;

	assert_int_equal(pipe(p), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		close(p[1]);
		_exit(read(p[0], &c, 1) != 0);
	}
	close(p[0]);
	cm_ep_free(ep);
	ep = stream(&(int){ 0 }); /* takes the same slot */
	send_text(fd, "x");
	cm_settle(&cm);
	assert_int_equal(ep->events, 0);
	close(p[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(fd);
}

/* Both ends in one process. */
static void test_both_ends(void **state)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	struct cm_ep *a = cm_connect(&cm, true, number), *b;

	cm_until(&cm, cm.last && cm.last->acks);
	b = cm.last;
	cm_ep_send(a, PKT_ACK, "ping", 4);
	cm_until(&cm, b->datas);
	cm_ep_send(b, PKT_ACK, "pong", 4);
	cm_until(&cm, a->datas);
	expect_got(b, "ping");
	expect_got(a, "pong");
	ops()->filter_del(cm.port, f);
}

#define T(name) cmocka_unit_test_setup_teardown(test_##name, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(connect), T(connect_ipv6), T(connect_without_wscale), T(connect_unreserved_number), T(connect_refused),
		T(connect_no_route), T(peer_resets), T(peer_resets_with_window_shut), T(peer_half_closes), T(cm_resets),
		T(destroy_resets), T(retransmissions), T(bad_segments), T(syn_options), T(window_limits_reading),
		T(much_data_in), T(socket_full), T(not_taken),
		T(accept), T(accept_ipv6), T(accept_on_any_address), T(no_answer), T(late_answer), T(adopted_no_answer),
		T(backlog), T(many_unanswered), T(pending_resets), T(cm_refuses_syn), T(filter_del_resets_pending),
		T(out_of_descriptors),
		T(reserve), T(reserve_ipv6), T(reserve_shared), T(reserve_two_nics), T(quad_filter),
		T(stream), T(stream_closed_by_us_first), T(stream_reset), T(stream_reset_read_first), T(stream_abort),
		T(stream_close), T(drain), T(drain_full), T(unsent), T(drain_time_limit), T(drain_too_many),
		T(drain_unplug), T(drain_in_event), T(stream_close_in_event), T(stream_close_in_others_event), T(stream_leftover),
		T(stream_leftover_unseen), T(stream_signals_old_edges), T(stream_after_fin), T(stream_full), T(fork),
		T(both_ends), T(drain_fork), /* which changes how this process closes: the last */
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
