/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What framing and the receiver cost: FPDUs through a TCP connection over loopback, written and read in turn by one thread, against the same bytes read
 * into a plain buffer; and small messages from memory.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "rdmap/rdmap.h"

#define PAYLOAD 65504u          /* a multiple of 32; with its header the largest FPDU, nearly */
#define FPDUS 64u               /* different places in memory: 4 MiB */
#define BURST 4u                /* FPDUs in the socket at a time */
#define SECONDS 0.3 /* of CPU time */
#define ROUNDS 5 /* the best counts */
#define SMALL 64u
#define SMALL_FPDUS 1024u

struct sink {
	u8 *mem;
	u64 messages;
};

static const struct rdmap_error *bench_start(void *ctx, const struct ddp_hdr *h)
{
	return NULL;
}

static int bench_sink(void *ctx, const struct ddp_hdr *h, u32 off, u32 len, struct iovec *iov, int max, const struct rdmap_error **err)
{
	struct sink *s = ctx;

	iov[0] = (struct iovec){ s->mem + (h->tagged ? h->to : 0) + off, len };
	return 1;
}

static const struct rdmap_error *bench_finish(void *ctx, const struct ddp_hdr *h)
{
	struct sink *s = ctx;

	s->messages++;
	return NULL;
}

static const struct rdmap_error *bench_empty(void *ctx)
{
	return NULL;
}

static const struct rdmap_rx_ops ops = { bench_start, bench_sink, bench_finish, bench_empty };

static double cpu_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* machines are shared */
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void *must(void *p)
{
	if (!p)
		exit(1);
	return p;
}

/* A connection over loopback, both ends, with room for a burst. */
static void tcp_pair(int fd[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0), size = 4 << 20, one = 1;
	socklen_t len = sizeof(a);

	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(l, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (bind(l, (struct sockaddr *)&a, sizeof(a)) || listen(l, 1) || getsockname(l, (struct sockaddr *)&a, &len) ||
	    connect(fd[0], (struct sockaddr *)&a, sizeof(a))) {
		perror("loopback");
		exit(1);
	}
	fd[1] = accept(l, NULL, NULL);
	setsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(l);
}

static ssize_t send_fpdu(int fd, const struct mpa_stream *s, u8 *mem, u32 i)
{
	u8 hdr[MPA_LEN_SIZE + DDP_TAGGED_HDR], trailer[MPA_TRAILER_MAX];
	struct iovec iov[3] = { { hdr, sizeof(hdr) }, { mem + i * PAYLOAD, PAYLOAD }, { trailer, 0 } };

	ddp_put_tagged(hdr + MPA_LEN_SIZE, RDMAP_WRITE, true, 1, i * PAYLOAD);
	iov[2].iov_len = mpa_seal(s, hdr, sizeof(hdr), &iov[1], 1, trailer);
	return writev(fd, iov, 3);
}

/* Reads @len bytes of stream through the receiver, or without it to @plain. */
static void drain(int fd, size_t len, u8 *plain, struct rdmap_rx *rx)
{
	struct iovec iov[4];

	while (len) {
		ssize_t n;

		if (plain)
			n = read(fd, plain, min(len, (size_t)PAYLOAD));
		else
			n = readv(fd, iov, rdmap_rx_want(rx, iov, 4));
		if (n <= 0 || (!plain && rdmap_rx_got(rx, (size_t)n))) {
			perror("receive");
			exit(1);
		}
		len -= (size_t)n;
		if (plain)
			plain += n;
	}
}

static double bulk(bool crc, bool framed)
{
	struct sink sink = { .mem = must(calloc(FPDUS, PAYLOAD)) };
	u8 *src = must(calloc(FPDUS, PAYLOAD));
	struct mpa_stream s;
	struct rdmap_rx rx;
	u64 bytes = 0;
	double t0 = cpu_s(), t;
	int fd[2];

	tcp_pair(fd);
	mpa_stream_init(&s, crc, false);
	rdmap_rx_init(&rx, &ops, &sink, crc, false);
	for (u32 i = 0; (t = cpu_s() - t0) < SECONDS; i += BURST) {
		size_t sent = 0;

		for (u32 k = 0; k < BURST; k++)
			sent += (size_t)(framed ? send_fpdu(fd[0], &s, src, (i + k) % FPDUS) : write(fd[0], src + (i + k) % FPDUS * PAYLOAD, PAYLOAD));
		drain(fd[1], sent, framed ? NULL : sink.mem + i % FPDUS * PAYLOAD, &rx);
		bytes += BURST * (u64)PAYLOAD;
	}
	rdmap_rx_destroy(&rx);
	close(fd[0]);
	close(fd[1]);
	free(src);
	free(sink.mem);
	return (double)bytes / t / 1e9;
}

/* A stream of small Sends in memory, again and again; million messages a second. */
static double small(bool crc)
{
	u8 *stream = must(malloc(SMALL_FPDUS * 2 * SMALL)), hdr[MPA_LEN_SIZE + DDP_UNTAGGED_HDR], payload[SMALL] = { 1 };
	struct sink sink = { .mem = payload };
	struct iovec piece = { payload, SMALL }, iov[4];
	struct mpa_stream s;
	struct rdmap_rx rx;
	double t0 = cpu_s(), t;
	u32 msn = 1;

	mpa_stream_init(&s, crc, false);
	rdmap_rx_init(&rx, &ops, &sink, crc, false);
	while ((t = cpu_s() - t0) < SECONDS) {
		u32 len = 0, pos = 0;

		for (u32 i = 0; i < SMALL_FPDUS; i++) {
			u8 *at = stream + len;

			ddp_put_untagged(hdr + MPA_LEN_SIZE, RDMAP_SEND, true, 0, msn++, 0);
			len += (u32)sizeof(hdr) + SMALL + mpa_seal(&s, hdr, sizeof(hdr), &piece, 1, at + sizeof(hdr) + SMALL);
			memcpy(at, hdr, sizeof(hdr));
			memcpy(at + sizeof(hdr), payload, SMALL);
		}
		while (pos < len) {
			u32 n;

			rdmap_rx_want(&rx, iov, 4);
			n = min((u32)iov[0].iov_len, len - pos);
			memcpy(iov[0].iov_base, stream + pos, n);
			if (rdmap_rx_got(&rx, n))
				exit(1);
			pos += n;
		}
	}
	rdmap_rx_destroy(&rx);
	free(stream);
	return (double)sink.messages / t / 1e6;
}

int main(void)
{
	double plain = 0, off = 0, on = 0;

	for (int i = 0; i < ROUNDS; i++) {
		plain = max(plain, bulk(false, false));
		off = max(off, bulk(false, true));
		on = max(on, bulk(true, true));
	}

	printf("plain TCP             %6.2f GB/s\n", plain);
	printf("FPDUs of 64 KiB       %6.2f GB/s  %4.2f\n", off, off / plain);
	printf("  with CRC            %6.2f GB/s  %4.2f\n", on, on / plain);
	printf("Sends of %u bytes     %6.2f million/s, both sides\n", SMALL, small(false));
	printf("  with CRC            %6.2f million/s\n", small(true));
	return 0;
}
