/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Captures, and what the host port makes up for them: tshark must find nothing wrong with it. */
#include <errno.h>
#include <fcntl.h>
#include <pcap/pcap.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "host_cm.h"

#define BULK 300000u

static struct cm cm;
static char path[] = "/tmp/uwarp-capture-XXXXXX";
static struct port_capture *capture;

static int start(void **state)
{
	char err[256];
	int fd;

	strcpy(path + sizeof(path) - 7, "XXXXXX");
	fd = mkstemp(path);
	if (fd < 0)
		return -1;
	close(fd);
	cm_start(&cm);
	return port_capture_open(path, &capture, err, sizeof(err));
}

static int stop(void **state)
{
	cm_stop(&cm);
	unlink(path);
	return 0;
}

static const struct port_ops *ops(void)
{
	return cm.port->ops;
}

/* ---- tshark ---- */

static bool have_tshark(void)
{
	return !system("command -v tshark > /dev/null 2>&1");
}

/* What tshark says of each frame, one column each. */
enum column {
	COL_TCP, COL_SYN, COL_FIN, COL_RST, COL_LENGTH, COL_MPA_REQUEST, COL_MPA_REPLY, COL_DDP,
	COL_MALFORMED, COL_TCP_CHECKSUM, COL_IP_CHECKSUM, COL_ANALYSIS, COL_WINDOW_FULL, COL_WINDOW_UPDATE,
	COLUMNS
};

static const char *const fields[COLUMNS] = {
	[COL_TCP] = "tcp", [COL_SYN] = "tcp.flags.syn", [COL_FIN] = "tcp.flags.fin", [COL_RST] = "tcp.flags.reset",
	[COL_LENGTH] = "tcp.len",
	[COL_MPA_REQUEST] = "iwarp_mpa.req", [COL_MPA_REPLY] = "iwarp_mpa.rep", [COL_DDP] = "iwarp_ddp",
	[COL_MALFORMED] = "_ws.malformed", [COL_TCP_CHECKSUM] = "tcp.checksum.status", [COL_IP_CHECKSUM] = "ip.checksum.status",
	[COL_ANALYSIS] = "tcp.analysis.flags", [COL_WINDOW_FULL] = "tcp.analysis.window_full",
	[COL_WINDOW_UPDATE] = "tcp.analysis.window_update",
};

static struct {
	int frames, syns, fins, rsts, large, requests, replies, ddps;
} seen;

static bool is_one(const char *value)
{
	return *value == '1' || *value == 'T';
}

static void judge(char *line)
{
	char *v[COLUMNS];
	int i;

	line[strcspn(line, "\n")] = 0;
	for (i = 0; i < COLUMNS; i++)
		v[i] = strsep(&line, "|");
	for (i = 0; i < COLUMNS; i++)
		assert_non_null(v[i]);
	assert_true(*v[COL_TCP]);
	assert_string_equal(v[COL_MALFORMED], "");
	assert_string_equal(v[COL_TCP_CHECKSUM], "1");
	assert_true(!*v[COL_IP_CHECKSUM] || is_one(v[COL_IP_CHECKSUM]));
	/* What the CM does with its window is its own affair. */
	assert_true(!*v[COL_ANALYSIS] || *v[COL_WINDOW_FULL] || *v[COL_WINDOW_UPDATE]);
	seen.frames++;
	seen.syns += is_one(v[COL_SYN]);
	seen.fins += is_one(v[COL_FIN]);
	seen.rsts += is_one(v[COL_RST]);
	seen.large += atoi(v[COL_LENGTH]) > 1460;
	seen.requests += *v[COL_MPA_REQUEST] != 0;
	seen.replies += *v[COL_MPA_REPLY] != 0;
	seen.ddps += *v[COL_DDP] != 0;
}

static FILE *tshark(void)
{
	char command[2048];
	int i, n;

	n = snprintf(command, sizeof(command),
		     "tshark -o tcp.check_checksum:TRUE -o ip.check_checksum:TRUE --disable-protocol rpcordma "
		     "--disable-protocol smb_direct -T fields -E separator='|' -r %s", path);
	for (i = 0; i < COLUMNS; i++)
		n += snprintf(command + n, sizeof(command) - (size_t)n, " -e %s", fields[i]);
	snprintf(command + n, sizeof(command) - (size_t)n, " 2> /dev/null");
	return popen(command, "r");
}

static void finish(void)
{
	char line[1024];
	FILE *f;

	assert_int_equal(port_capture_close(capture), 0);
	if (!have_tshark()) {
		print_message("tshark is missing: the capture is not checked\n");
		skip();
	}
	memset(&seen, 0, sizeof(seen));
	f = tshark();
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		judge(line);
	assert_int_equal(pclose(f), 0);
	assert_true(seen.frames > 5);
}

/* ---- connections ---- */

static u32 crc32c(const u8 *p, size_t len)
{
	u32 crc = ~0u;
	int i;

	while (len--) {
		crc ^= *p++;
		for (i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
	}
	return ~crc;
}

/* RFC 5044, 5041, 5040: a Send of "hello world!" in one FPDU. */
static u32 fpdu(u8 *p)
{
	static const u8 hdr[20] = { 0, 30, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0 };
	u32 crc;

	memcpy(p, hdr, sizeof(hdr));
	memcpy(p + 20, "hello world!", 12);
	crc = crc32c(p, 32);
	memcpy(p + 32, &crc, sizeof(crc)); /* the CRC's bit order is the machine's here */
	return 36;
}

static const u8 mpa_request[] = "MPA ID Req Frame\x40\x01\x00";  /* the string's NUL is the last byte */
static const u8 mpa_reply[] = "MPA ID Rep Frame\x40\x01\x00";

static struct cm_ep *connect_capture(bool ipv4, int *fd)
{
	int lfd = plain_listen(ipv4, 0);
	struct cm_ep *ep;

	port_capture_attach(capture, cm.port);
	port_capture_attach(capture, cm.port);
	ep = cm_connect(&cm, ipv4, plain_number(lfd));
	*fd = plain_accept(lfd);
	close(lfd);
	return ep;
}

static ssize_t stream_send(struct cm_ep *ep, const void *data, size_t len)
{
	struct iovec iov[3] = { { (void *)data, 1 }, { NULL, 0 }, { (u8 *)data + 1, len - 1 } };

	return ops()->stream_send(ep->stream, iov, 3);
}

static ssize_t stream_recv(struct cm_ep *ep, void *data, size_t len)
{
	struct iovec iov = { data, len };

	return ops()->stream_recv(ep->stream, &iov, 1);
}

static void stream_read(struct cm_ep *ep, u8 *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = stream_recv(ep, data + done, len - done);

		if (n == -EAGAIN)
			cm_wait(&cm, 10);
		else
			assert_true(n > 0);
		done += n > 0 ? (size_t)n : 0;
	}
}

static void handshake(struct cm_ep *ep, int fd)
{
	u8 buf[64];

	cm_ep_send(ep, PKT_PSH | PKT_ACK, mpa_request, sizeof(mpa_request));
	assert_int_equal(recv(fd, buf, sizeof(mpa_request), MSG_WAITALL), sizeof(mpa_request));
	assert_int_equal(send(fd, mpa_reply, sizeof(mpa_reply), 0), sizeof(mpa_reply));
	cm_until(&cm, ep->len == sizeof(mpa_reply));
}

static void mpa_connection(bool ipv4)
{
	u8 out[64], in[64];
	u32 len = fpdu(out);
	int fd;
	struct cm_ep *ep = connect_capture(ipv4, &fd);

	handshake(ep, fd);
	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	assert_int_equal(stream_send(ep, out, len), len);
	assert_int_equal(recv(fd, in, len, MSG_WAITALL), len);
	assert_int_equal(send(fd, out, len, 0), len);
	stream_read(ep, in, len);
	assert_int_equal(ops()->stream_shutdown(ep->stream), 0);
	close(fd);
	cm_until(&cm, ep->events & PORT_CLOSED);
	assert_int_equal(stream_recv(ep, in, 1), 0);
	cm_ep_free(ep);
	finish();
	assert_int_equal(seen.requests, 1);
	assert_int_equal(seen.replies, 1);
	assert_int_equal(seen.ddps, 2);
	assert_int_equal(seen.syns, 2);
	assert_int_equal(seen.fins, 2);
	assert_int_equal(seen.rsts, 0);
}

static void test_mpa(void **state)
{
	mpa_connection(true);
}

static void test_mpa_ipv6(void **state)
{
	mpa_connection(false);
}

static void test_bulk(void **state)
{
	static u8 data[BULK];
	size_t sent = 0, got = 0;
	int fd;
	struct cm_ep *ep = connect_capture(true, &fd);

	memset(data, 0x55, sizeof(data));
	/* Some of it is in the hands of the CM, and not all seen, when the stream begins. */
	ep->window = 100;
	cm_ep_send(ep, PKT_ACK, NULL, 0);
	assert_int_equal(send(fd, data, 1000, 0), 1000);
	cm_until(&cm, ep->len == 1000);
	assert_int_equal(cm_offload(ep, ep->buf + 990, 10), 0);
	stream_read(ep, data, 10);
	while (sent < BULK) {
		ssize_t n = stream_send(ep, data, BULK - sent);

		if (n > 0)
			sent += (size_t)n;
		for (n = 1; n > 0 && got < sent; got += n > 0 ? (size_t)n : 0)
			n = recv(fd, data, BULK, MSG_DONTWAIT);
		cm_step(&cm);
	}
	for (sent = 0; sent < BULK; sent += 50000) {
		assert_int_equal(send(fd, data, 50000, 0), 50000);
		stream_read(ep, data, 50000);
	}
	shutdown(fd, SHUT_WR);
	cm_until(&cm, ep->events & PORT_EOF);
	assert_int_equal(stream_recv(ep, data, 1), 0);
	assert_int_equal(stream_recv(ep, data, 1), 0);
	cm_ep_free(ep);
	close(fd);
	finish();
	assert_true(seen.large > 20);
	assert_int_equal(seen.fins, 2);
}

static void test_ends(void **state)
{
	int fd;
	struct cm_ep *ep = connect_capture(true, &fd);
	u8 c;

	/* Refused by the CM. */
	cm_ep_send(ep, PKT_RST | PKT_ACK, NULL, 0);
	close(fd);
	/* Dropped by the CM. */
	ep = connect_capture(true, &fd);
	cm_ep_send(ep, PKT_PSH | PKT_ACK, "x", 1);
	cm_until(&cm, ep->snd_una == ep->snd_nxt);
	cm_ep_free(ep);
	close(fd);
	/* Reset by the peer, before and after offload. */
	ep = connect_capture(true, &fd);
	plain_reset(fd);
	cm_until(&cm, ep->rsts);
	ep = connect_capture(true, &fd);
	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	plain_reset(fd);
	cm_until(&cm, ep->events & PORT_RESET);
	/* Aborted, and closed with unread bytes. */
	ep = connect_capture(true, &fd);
	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	ops()->stream_abort(ep->stream);
	cm_ep_free(ep);
	close(fd);
	ep = connect_capture(true, &fd);
	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	assert_int_equal(send(fd, "x", 1, 0), 1);
	cm_until(&cm, ep->events & PORT_READABLE);
	cm_ep_free(ep);
	assert_int_equal(recv(fd, &c, 1, 0), -1);
	close(fd);
	finish();
	assert_int_equal(seen.rsts, 6);
}

/* Reject, as the CM does it: its FIN first, then the peer's. */
static void test_fins_before_offload(void **state)
{
	int fd;
	struct cm_ep *ep = connect_capture(true, &fd);

	handshake(ep, fd);
	cm_ep_send(ep, PKT_FIN | PKT_ACK, NULL, 0);
	close(fd);
	cm_until(&cm, ep->fins && ep->snd_una == ep->snd_nxt);
	cm_ep_free(ep);
	finish();
	assert_int_equal(seen.fins, 2);
	assert_int_equal(seen.rsts, 0);
}

static void test_passive(void **state)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	struct cm_ep *ep;
	int fd;

	port_capture_attach(capture, cm.port);
	fd = plain_connect(true, number);
	cm_until(&cm, cm.last && cm.last->acks);
	ep = cm.last;
	assert_int_equal(send(fd, mpa_request, sizeof(mpa_request), 0), sizeof(mpa_request));
	cm_until(&cm, ep->len == sizeof(mpa_request));
	/* As rdma_accept does: the reply is the stream's first bytes. */
	assert_int_equal(cm_offload(ep, NULL, 0), 0);
	assert_int_equal(stream_send(ep, mpa_reply, sizeof(mpa_reply)), sizeof(mpa_reply));
	close(fd);
	cm_until(&cm, ep->events & (PORT_RESET | PORT_EOF));
	ops()->filter_del(cm.port, f);
	finish();
	assert_int_equal(seen.replies, 1);
}

/* Both ends in this process: the connection is there once. */
static void test_both_ends(void **state)
{
	u16 number = 0;
	struct port_filter *f = cm_listen(&cm, true, &number);
	struct cm_ep *a, *b;
	u8 buf[64];

	port_capture_attach(capture, cm.port);
	a = cm_connect(&cm, true, number);
	cm_until(&cm, cm.last && cm.last->acks);
	b = cm.last;
	cm_ep_send(a, PKT_PSH | PKT_ACK, mpa_request, sizeof(mpa_request));
	cm_until(&cm, b->len == sizeof(mpa_request));
	assert_int_equal(cm_offload(b, NULL, 0), 0);
	assert_int_equal(stream_send(b, mpa_reply, sizeof(mpa_reply)), sizeof(mpa_reply));
	cm_until(&cm, a->len == sizeof(mpa_reply));
	assert_int_equal(cm_offload(a, NULL, 0), 0);
	ops()->stream_shutdown(a->stream);
	cm_until(&cm, b->events & PORT_EOF);
	ops()->stream_shutdown(b->stream);
	cm_until(&cm, a->events & PORT_CLOSED);
	assert_int_equal(stream_recv(a, buf, sizeof(buf)), 0);
	ops()->filter_del(cm.port, f);
	cm_ep_free(a);
	cm_ep_free(b);
	finish();
	assert_int_equal(seen.syns, 2);
	assert_int_equal(seen.fins, 2);
	assert_int_equal(seen.requests, 1);
	assert_int_equal(seen.replies, 1);
}

/* ---- files ---- */

static int frames_in_file(u32 *first_s)
{
	char err[PCAP_ERRBUF_SIZE];
	pcap_t *p = pcap_open_offline_with_tstamp_precision(path, PCAP_TSTAMP_PRECISION_NANO, err);
	struct pcap_pkthdr *hdr;
	const u_char *data;
	int n = 0;

	assert_non_null(p);
	assert_int_equal(pcap_datalink(p), DLT_EN10MB);
	while (pcap_next_ex(p, &hdr, &data) == 1) {
		if (!n)
			*first_s = (u32)hdr->ts.tv_sec;
		assert_in_range(hdr->ts.tv_usec, 0, 999999999);
		n++;
	}
	pcap_close(p);
	return n;
}

static void test_file(void **state)
{
	u32 magic = 0, first_s = 0;
	int fd, n;
	struct cm_ep *ep;
	FILE *f;

	ep = connect_capture(true, &fd);
	port_capture_flush(capture);
	n = frames_in_file(&first_s);
	assert_int_equal(n, 3);
	assert_in_range(first_s, time(NULL) - 5, time(NULL) + 1);
	port_capture_detach(capture, cm.port);
	port_capture_detach(capture, cm.port);
	cm_ep_send(ep, PKT_ACK, "x", 1);
	cm_settle(&cm);
	assert_int_equal(port_capture_close(capture), 0);
	assert_int_equal(frames_in_file(&first_s), n);
	f = fopen(path, "rb");
	assert_non_null(f);
	assert_int_equal(fread(&magic, sizeof(magic), 1, f), 1);
	fclose(f);
	assert_int_equal(magic, 0xA1B23C4D); /* nanoseconds */
	close(fd);
}

static unsigned int lines_of_capture;

static void count_line(void *arg, enum log_level level, const char *room, const char *text)
{
	lines_of_capture += level == LOG_LEVEL_ERROR && !strcmp(room, "capture") && strstr(text, arg) && strstr(text, strerror(EFBIG));
}

static off_t capture_size(void)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

/* A disk that is full in the middle of it: one line says so at once, and nothing is written any more, when there is room again neither. */
static void test_full_disk(void **state)
{
	struct rlimit old, small;
	int i, fd;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = (struct rlimit){ (rlim_t)capture_size() + 300, old.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	lines_of_capture = 0;
	log_set_sink(count_line, path);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (i = 0; i < 3; i++) {
		connect_capture(true, &fd);
		port_capture_flush(capture);
		close(fd);
	}
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(lines_of_capture, 1);
	assert_int_equal(port_capture_close(capture), -EFBIG);
	log_set_sink(NULL, NULL);
	assert_int_equal(capture_size(), small.rlim_cur);
	assert_int_equal(lines_of_capture, 1);
}

static void test_file_errors(void **state)
{
	struct port_capture *c;
	char err[256] = "";
	int fd;

	assert_int_equal(port_capture_open("/nonexistent/x.pcap", &c, err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "/nonexistent/x.pcap"));
	assert_int_equal(port_capture_close(capture), 0);
	assert_int_equal(port_capture_open("/dev/full", &capture, err, sizeof(err)), 0);
	connect_capture(true, &fd);
	assert_int_equal(port_capture_close(capture), -ENOSPC);
	close(fd);
}

/* Standard output: a pipe, which sees every frame at once. */
static void test_stdout(void **state)
{
	int fd, p[2], saved;
	char err[256], buf[4096];
	ssize_t n;

	assert_int_equal(port_capture_close(capture), 0);
	assert_int_equal(pipe2(p, O_NONBLOCK), 0);
	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	dup2(p[1], STDOUT_FILENO);
	assert_int_equal(port_capture_open("-", &capture, err, sizeof(err)), 0);
	connect_capture(true, &fd);
	n = read(p[0], buf, sizeof(buf));
	assert_int_equal(port_capture_close(capture), 0);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(p[0]);
	close(p[1]);
	clearerr(stdout);
	assert_true(n > 24 + 3 * (16 + 54));
	close(fd);
}

#define T(name) cmocka_unit_test_setup_teardown(test_##name, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(mpa), T(mpa_ipv6), T(bulk), T(ends), T(fins_before_offload), T(passive), T(both_ends),
		T(file), T(file_errors), T(full_disk), T(stdout),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
