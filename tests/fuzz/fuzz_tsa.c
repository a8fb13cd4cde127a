/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The offload engine: segments near the right ones, in any order, for a connection that a program writes to, reads from and ends as it likes.
 *
 * Byte n of each direction's stream is a function of n, so that whatever is delivered, or sent, can be told to be the right bytes in the right place. The peer's segments
 * carry the right ones; what is said twice is said the same.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "tsa/tsa.h"

#define STEPS 250
#define SEGMENT_MAX 1460u

struct world {
	struct loop loop;
	struct tsa *tsa;
	struct tsa_conn *conn;    /* NULL: given up */
	struct pkt_tuple t;
	u32 loc_first, rem_first; /* sequence numbers of the streams' first bytes */
	u32 sent, received;       /* by the program */
	u32 snd_nxt;              /* highest that was seen */
	u32 nxt;                  /* the peer's next */
	u32 rx_len;               /* bytes that were handed over */
	u32 events;
};

static struct world w;

static u8 byte_at(u32 n, bool ours)
{
	return (u8)(n * 31 + n / 251 + ours * 101);
}

static void fill(u8 *out, u32 from, u32 len, bool ours)
{
	u32 i;

	for (i = 0; i < len; i++)
		out[i] = byte_at(from + i, ours);
}

static void check(const u8 *p, u32 from, u32 len, bool ours)
{
	u32 i;

	for (i = 0; i < len; i++)
		assert(p[i] == byte_at(from + i, ours));
}

/* ---- below and above ---- */

static void on_output(void *ctx, const struct pkt_route *r, u8 *tcp, u32 len)
{
	u8 *frame = pkt_push_headers(r, tcp, len, 0);
	struct pkt p;
	u32 end;

	assert(pkt_parse(frame, (size_t)(tcp + len - frame), true, &p) == PKT_OK);
	assert(!(p.flags & PKT_SYN) && p.datalen <= SEGMENT_MAX);
	if (p.flags & PKT_RST)
		return;
	assert(p.seq - w.loc_first <= w.sent + 1 || p.seq == w.loc_first - 1); /* a keep-alive or window probe may be one below */
	check(p.data, p.seq - w.loc_first, p.datalen, true);
	assert(p.seq + p.datalen - w.loc_first <= w.sent || !p.datalen);
	end = p.seq + p.datalen + !!(p.flags & PKT_FIN);
	if (seq_gt(end, w.snd_nxt))
		w.snd_nxt = end;
}

static void on_event(void *ctx, u32 events)
{
	assert(w.conn);
	w.events |= events;
	if (events & TSA_RESET)
		assert(tsa_error(w.conn) < 0);
}

static const struct tsa_up up = { .output = on_output };
static const struct tsa_conn_up conn_up = { .event = on_event };

/* ---- the peer ---- */

static void peer_segment(struct fuzz *f)
{
	u8 buf[PKT_TCP_LEN + PKT_TCP_OPT_MAX + SEGMENT_MAX], how = fuzz_u8(f), *copy;
	u32 seq = w.nxt, len = 0, optlen = 0, ack = w.snd_nxt;
	struct tcphdr h = { .source = htons(w.t.rem_port), .dest = htons(w.t.loc_port), .window = htons(30000) };
	struct pkt p;

	h.th_flags = how & 1 ? PKT_ACK : fuzz_u8(f);
	if (how & 2)
		seq += how & 128 ? fuzz_near(f) * 100u : fuzz_near(f);
	if (how & 4)
		ack += how & 128 ? fuzz_near(f) * 100u : fuzz_near(f);
	if (how & 8)
		len = fuzz_u16(f) % (SEGMENT_MAX + 1);
	if (how & 16)
		h.window = fuzz_u16(f);
	if (how & 32)
		optlen = (u32)fuzz_bytes(f, buf + PKT_TCP_LEN, fuzz_u8(f) % PKT_TCP_OPT_MAX) & ~3u;
	h.seq = htonl(seq);
	h.ack_seq = htonl(ack);
	h.doff = (PKT_TCP_LEN + optlen) / 4;
	memcpy(buf, &h, sizeof(h));
	fill(buf + PKT_TCP_LEN + optlen, seq + !!(h.th_flags & PKT_SYN) - w.rem_first, len, false);
	if (seq == w.nxt)
		w.nxt += len + !!(h.th_flags & PKT_FIN);
	copy = fuzz_copy(buf, PKT_TCP_LEN + optlen + len);
	assert(pkt_parse_segment(copy, PKT_TCP_LEN + optlen + len, &w.t, &p) == PKT_OK);
	tsa_input(w.tsa, &p);
	free(copy);
}

/* ---- the program ---- */

static void program_sends(u32 len)
{
	u8 buf[4096];
	struct iovec iov[2] = { { buf, len / 3 }, { buf + len / 3, len - len / 3 } };
	u32 before = w.sent;
	ssize_t n;

	fill(buf, w.sent, len, true);
	w.sent += len; /* some may be out before the call returns */
	n = tsa_sendv(w.conn, iov, 2);
	assert(n <= (ssize_t)len);
	w.sent = before + (u32)max(n, (ssize_t)0);
}

static void program_receives(u32 len)
{
	u8 buf[4096];
	struct iovec iov[2] = { { buf, len / 2 }, { buf + len / 2, len - len / 2 } };
	ssize_t n = len ? tsa_recvv(w.conn, iov, 2) : 0;

	assert(n <= (ssize_t)len);
	if (n <= 0)
		return;
	check(buf, w.received, (u32)n, false);
	w.received += (u32)n;
}

static void program_ends(u8 how)
{
	u8 rest[200];
	struct tsa_conn *c = w.conn;

	switch (how % 4) {
	case 0: tsa_shutdown(c); return;
	case 1: tsa_abort(c); return;
	case 2:
		w.conn = NULL;
		tsa_close(c);
		return;
	case 3:
		w.conn = NULL;
		fill(rest, w.sent, how % sizeof(rest), true);
		w.sent += how % sizeof(rest);
		tsa_drain(c, rest, how % sizeof(rest));
		return;
	}
}

static void pass_time(u64 ns)
{
	u64 end = loop_now(&w.loop) + ns, next;

	do {
		next = min(max(loop_next_ns(&w.loop), loop_now(&w.loop)), end);
		loop_set_now(&w.loop, next);
		loop_run(&w.loop);
	} while (next < end);
}

static void step(struct fuzz *f)
{
	u8 what = fuzz_below(f, 10);

	if (what < 5)
		peer_segment(f);
	else if (what == 5)
		pass_time(1000ull << fuzz_below(f, 27));
	else if (!w.conn)
		return;
	else if (what < 8)
		program_sends(fuzz_u16(f) % 4096);
	else if (what < 9)
		program_receives(fuzz_u16(f) % 4096);
	else if (fuzz_u8(f) < 64)
		program_ends(fuzz_u8(f));
}

/* ---- life ---- */

static void take_over(struct fuzz *f)
{
	u8 rx[512];
	struct tcp_info_ho info = { .ttl = 64, .tos = fuzz_u8(f), .mss = SEGMENT_MAX, .snd_wnd = fuzz_u16(f), .rcv_wnd = 65535, .snd_wscale = fuzz_u8(f) % 15,
				    .rcv_wscale = fuzz_u8(f) % 15, .rx_data = rx, .rx_len = fuzz_u16(f) % sizeof(rx) };
	u8 bits = fuzz_u8(f);

	w.t = (struct pkt_tuple){ .ipv4 = bits & 1, .vlan_id = PKT_VLAN_NONE, .loc_port = 7000, .rem_port = 5000, .loc_addr = { 0x0A000001 }, .rem_addr = { 0x0A000002 } };
	w.loc_first = bits & 2 ? 0xFFFFFF00u : 1000; /* they wrap */
	w.rem_first = bits & 4 ? 0xFFFFFE00u : 5000;
	info.tuple = w.t;
	if (bits & 8)
		info.mss = 536;
	info.peer_fin = bits & 16;
	info.snd_una = info.snd_nxt = info.snd_max = w.snd_nxt = w.loc_first;
	info.max_snd_wnd = info.snd_wnd;
	info.rcv_nxt = w.rem_first + info.rx_len + info.peer_fin;
	w.nxt = info.rcv_nxt;
	fill(rx, 0, info.rx_len, false);
	assert(!tsa_conn_create(w.tsa, &info, &conn_up, &w, &w.conn));
}

static void open_all(struct fuzz *f)
{
	static const struct tsa_config small = { .send_buf = 4096, .recv_buf = 4096, .min_rto_ns = NSEC_PER_MSEC, .max_rto_ns = NSEC_PER_SEC, .max_retries = 4 };

	memset(&w, 0, sizeof(w));
	rand_set_seed(1);
	loop_init(&w.loop, NSEC_PER_SEC);
	assert(!tsa_create(&w.loop, fuzz_u8(f) & 1 ? &small : NULL, &up, &w, &w.tsa));
	take_over(f);
}

static void close_all(void)
{
	size_t conns, time_waits, conn_bytes, time_wait_bytes;

	if (w.conn)
		program_ends(2);
	pass_time(1200 * NSEC_PER_SEC);
	tsa_usage(w.tsa, &conns, &time_waits, &conn_bytes, &time_wait_bytes);
	assert(!conns && !time_waits);
	tsa_destroy(w.tsa);
	loop_destroy(&w.loop);
	rand_unset_seed();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { data, size };
	int n;

	open_all(&f);
	for (n = 0; n < STEPS && fuzz_more(&f); n++)
		step(&f);
	close_all();
	return 0;
}
