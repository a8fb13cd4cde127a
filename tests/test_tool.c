// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: the parts that need no network: decoding, ladders, options, endpoints, private data, JSON, outcomes. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "tool/decode.c"
#include "tool/endpoint.c"
#include "tool/json.c"
#include "tool/ladder.c"
#include "tool/options.c"
#include "tool/outcome.c"
#include "tool/pdata.c"
#include "tool/watch.c"

static char last_error[400];

void tool_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, ap);
	va_end(ap);
}

/* ---- helpers: segments ---- */

#define ISS_OUT 0xFFFFFFF0u /* wraps soon */
#define ISS_IN 1000u

static struct tool_line lines[64];
static size_t num_lines;

static void on_test_line(void *arg, const struct tool_line *line)
{
	assert_true(num_lines < ARRAY_SIZE(lines));
	lines[num_lines++] = *line;
}

static struct tool_segment feed(struct tool_flow *f, bool out, u8 flags, u32 seq, const void *data, u32 len)
{
	struct pkt p = { .flags = flags, .seq = (out ? ISS_OUT : ISS_IN) + seq, .data = data, .datalen = len };
	struct tool_segment seg;

	num_lines = 0;
	tool_flow_segment(f, out, &p, &seg, on_test_line, NULL);
	return seg;
}

static void expect_line(size_t i, const char *title, const char *detail)
{
	assert_true(i < num_lines);
	assert_string_equal(lines[i].title, title);
	if (detail)
		assert_string_equal(lines[i].detail, detail);
}

static u32 make_start(u8 *out, bool reply, u8 flags, u8 rev, u16 ird, u16 ord, const char *pdata)
{
	u32 len = (u32)strlen(pdata), pos = 20;

	memcpy(out, reply ? MPA_KEY_REP : MPA_KEY_REQ, MPA_KEY_SIZE);
	out[16] = flags;
	out[17] = rev;
	if (flags & MPA_FLAG_ENHANCED) {
		out[20] = (u8)(ird >> 8);
		out[21] = (u8)ird;
		out[22] = (u8)(ord >> 8);
		out[23] = (u8)ord;
		pos = 24;
	}
	memcpy(out + pos, pdata, len);
	out[18] = (u8)((pos - 20 + len) >> 8);
	out[19] = (u8)(pos - 20 + len);
	return pos + len;
}

static void handshake(struct tool_flow *f)
{
	memset(f, 0, sizeof(*f));
	feed(f, true, PKT_SYN, 0, NULL, 0);
	expect_line(0, "SYN", "");
	feed(f, false, PKT_SYN | PKT_ACK, 0, NULL, 0);
	expect_line(0, "SYN+ACK", "");
}

/* ---- decode ---- */

static void test_conversation(void **state)
{
	u8 buf[600], ulpdu[RDMAP_TERM_MAX];
	const struct rdmap_error err = { TERM_LAYER_LLP, 0, TERM_MPA_RTR };
	struct mpa_stream stream;
	struct tool_segment seg;
	struct tool_flow f;
	u32 req, rep;
	int len;

	handshake(&f);
	req = make_start(buf, false, MPA_FLAG_CRC | MPA_FLAG_ENHANCED, 2, MPA_V2_P2P | MPA_V2_RTR_SEND | 7, MPA_V2_RTR_WRITE | 9, "hello");
	seg = feed(&f, true, PKT_ACK | PKT_PSH, 1, buf, req);
	assert_int_equal(seg.seq, 1);
	assert_int_equal(num_lines, 1);
	expect_line(0, "MPA Request rev 2", "flags C S; IRD 7, ORD 9; peer-to-peer, RTR Send|Write; private data, 5 bytes");

	seg = feed(&f, true, PKT_ACK | PKT_PSH, 1, buf, req);
	assert_true(seg.again);
	expect_line(0, "again: data", "");
	seg = feed(&f, false, PKT_ACK, 1, NULL, 0);
	assert_true(seg.bare_ack);
	assert_int_equal(num_lines, 0);

	rep = make_start(buf, true, MPA_FLAG_MARKERS | MPA_FLAG_ENHANCED, 2, MPA_V2_P2P | 0x3FFF, MPA_V2_RTR_WRITE, "");
	feed(&f, false, PKT_ACK, 1, buf, rep);
	expect_line(0, "MPA Reply rev 2", "flags M S; IRD open, ORD 0; peer-to-peer, RTR Write");

	/* The other end wants markers, one end wants CRCs. */
	mpa_stream_init(&stream, true, true);
	len = mpa_fpdu_build(&stream, ulpdu, rdmap_build_rtr(RDMAP_RTR_WRITE, ulpdu), buf, sizeof(buf));
	feed(&f, true, PKT_ACK, 1 + req, buf, (u32)len);
	expect_line(0, "RDMA Write, 0 bytes (RTR)", "");

	mpa_stream_init(&stream, true, false);
	len = mpa_fpdu_build(&stream, ulpdu, rdmap_build_terminate(&err, 1, NULL, 0, ulpdu), buf, sizeof(buf));
	feed(&f, false, PKT_ACK | PKT_FIN, 1 + rep, buf, (u32)len);
	assert_int_equal(num_lines, 1);
	expect_line(0, "Terminate, FIN", "MPA: no matching RTR option (layer 2, type 0, code 7)");
	assert_true(f.half[0].term_seen && f.half[0].fin);
	feed(&f, true, PKT_RST | PKT_ACK, 500, NULL, 0);
	expect_line(0, "RST", "");
	tool_flow_destroy(&f);
}

/* The same frame at every split, and with what follows it. */
static void test_splits(void **state)
{
	struct tool_flow f;
	u8 buf[600];
	u32 len = make_start(buf, false, 0, 1, 0, 0, "some private data"), cut;

	for (cut = 1; cut < len; cut++) {
		handshake(&f);
		feed(&f, true, PKT_ACK, 1, buf, cut);
		assert_int_equal(num_lines, 1);
		assert_non_null(strstr(lines[0].title, "beginning of an MPA frame"));
		feed(&f, true, PKT_ACK, 1 + cut, buf + cut, len - cut);
		assert_int_equal(num_lines, 1);
		expect_line(0, "MPA Request rev 1", "flags none; private data, 17 bytes");
		tool_flow_destroy(&f);
	}
	/* A segment that says half of it again. */
	handshake(&f);
	feed(&f, true, PKT_ACK, 1, buf, 10);
	feed(&f, true, PKT_ACK, 1, buf, len);
	expect_line(0, "MPA Request rev 1", NULL);
	tool_flow_destroy(&f);
}

static void test_not_mpa(void **state)
{
	static const char http[] = "HTTP/1.1 400 Bad Request, and go away\r\n";
	struct tool_flow f;
	u8 buf[600];
	u32 len;

	handshake(&f);
	feed(&f, false, PKT_ACK, 1, http, sizeof(http) - 1);
	expect_line(0, "not MPA, 39 bytes", "\"HTTP/1.1 400 Bad Request\" ...");
	assert_int_equal(f.half[0].verdict, TOOL_MPA_BAD_KEY);
	feed(&f, false, PKT_ACK, sizeof(http), "\n\1", 2);
	expect_line(0, "data, 2 bytes", "\"..\"");
	tool_flow_destroy(&f);

	handshake(&f);
	len = make_start(buf, true, MPA_FLAG_REJECT | MPA_FLAG_RESERVED, 1, 0, 0, "");
	buf[18] = 2;
	buf[19] = 1;
	feed(&f, false, PKT_ACK, 1, buf, len);
	expect_line(0, "MPA Reply rev 1, REJECT", "flags R +0xf; impossible length 513");
	tool_flow_destroy(&f);

	/* S, but too short for what it announces. */
	handshake(&f);
	len = make_start(buf, false, MPA_FLAG_ENHANCED, 2, 0, 0, "");
	buf[19] = 3;
	feed(&f, true, PKT_ACK, 1, buf, len);
	assert_int_equal(f.half[1].verdict, TOOL_MPA_BAD_LENGTH);
	tool_flow_destroy(&f);

	/* A hole: nothing is made of what follows. */
	handshake(&f);
	feed(&f, false, PKT_ACK, 5, MPA_KEY_REP, 16);
	expect_line(0, "data, 16 bytes", "\"MPA ID Rep Frame\"");
	tool_flow_destroy(&f);
}

static void test_bad_fpdu(void **state)
{
	struct tool_flow f;
	u8 buf[600];
	u32 req, rep;

	handshake(&f);
	req = make_start(buf, false, MPA_FLAG_CRC, 1, 0, 0, "");
	feed(&f, true, PKT_ACK, 1, buf, req);
	rep = make_start(buf, true, MPA_FLAG_CRC, 1, 0, 0, "");
	memset(buf + rep, 0, 12);
	buf[rep + 1] = 2;
	feed(&f, false, PKT_ACK, 1, buf, rep + 8);
	assert_int_equal(num_lines, 2);
	expect_line(1, "bad FPDU, 8 bytes", "MPA: CRC error");
	/* RFC 5044 4.3: 40 bytes are announced, 4 are there. */
	buf[0] = 0;
	buf[1] = 40;
	feed(&f, true, PKT_ACK, 1 + req, buf, 4);
	expect_line(0, "part of an FPDU, 4 bytes", "");
	tool_flow_destroy(&f);
}

/* A second connection attempt from the same port. */
static void test_new_connection(void **state)
{
	struct tool_flow f;
	u8 buf[600];
	u32 len = make_start(buf, false, 0, 1, 0, 0, "");

	handshake(&f);
	feed(&f, true, PKT_ACK, 1, buf, len);
	assert_int_equal(f.half[1].phase, TOOL_FPDUS);
	feed(&f, true, PKT_SYN, 0x10000, NULL, 0);
	assert_int_equal(f.half[1].phase, TOOL_START);
	assert_false(f.half[0].syn);
	tool_flow_destroy(&f);
}

/* Any bytes, any flags: no crash, no endless loop. */
static void test_noise(void **state)
{
	struct tool_flow f = { 0 };
	struct rand_gen g;
	u8 buf[700], opts[40];
	int i;

	rand_gen_seed(&g, 5);
	for (i = 0; i < 30000; i++) {
		struct pkt p = { .flags = (u8)rand_gen_u64(&g), .seq = (u32)rand_gen_below(&g, 2000), .data = buf, .opts = opts };
		struct tool_segment seg;
		size_t j;

		if (i % 50 == 0)
			tool_flow_destroy(&f);
		for (j = 0; j < sizeof(buf); j++)
			buf[j] = (u8)rand_gen_u64(&g);
		for (j = 0; j < sizeof(opts); j++)
			opts[j] = (u8)rand_gen_below(&g, 6);
		if (rand_gen_below(&g, 2))
			make_start(buf, rand_gen_below(&g, 2), (u8)rand_gen_u64(&g), (u8)rand_gen_below(&g, 4), 0, 0, "");
		p.datalen = (u32)rand_gen_below(&g, sizeof(buf));
		p.optlen = (u32)rand_gen_below(&g, sizeof(opts));
		num_lines = 0;
		tool_flow_segment(&f, rand_gen_below(&g, 2), &p, &seg, on_test_line, NULL);
	}
	tool_flow_destroy(&f);
}

/* ---- ladders ---- */

static struct pkt frame(bool out, u8 flags, u32 seq, const void *data, u32 len)
{
	struct pkt p = { .ipv4 = true, .flags = flags, .seq = seq, .data = data, .datalen = len, .vlan_id = PKT_VLAN_NONE };

	p.src[0] = p.dst[0] = 0x7F000001;
	p.sport = out ? 1000 : 7174;
	p.dport = out ? 7174 : 1000;
	return p;
}

static void put_frame(struct tool_watch *w, bool out, u8 flags, u32 seq, const void *data, u32 len)
{
	struct pkt p = frame(out, flags, seq, data, len);

	tool_watch_frame(w, NULL, out, &p, 0);
}

static void put_state(struct tool_watch *w, const char *from, const char *to)
{
	const struct pkt_tuple t = { .loc_addr = { 0x7F000001 }, .rem_addr = { 0x7F000001 }, .loc_port = 1000, .rem_port = 7174,
				     .vlan_id = PKT_VLAN_NONE, .ipv4 = true };

	w->trace.state(w->trace.ctx, NULL, &t, from, to, 0);
}

struct ladder_test {
	struct tool_watch w;
	struct tool_ladder l;
	char *text;
	size_t size;
};

static void ladder_open(struct ladder_test *t, bool verbose, bool json)
{
	assert_int_equal(tool_watch_init(&t->w, true, verbose), 0);
	t->text = NULL;
	t->l = (struct tool_ladder){ .f = open_memstream(&t->text, &t->size), .w = &t->w, .verbose = verbose, .json = json };
	assert_non_null(t->l.f);
}

static void ladder_close(struct ladder_test *t)
{
	fclose(t->l.f);
	free(t->text);
	tool_watch_destroy(&t->w);
}

static struct tool_rec *first_rec(struct tool_watch *w)
{
	struct tool_rec **all;

	assert_true(tool_watch_all(w, &all) > 0);
	return all[0];
}

static void expect_text(struct ladder_test *t, const char *needle)
{
	fflush(t->l.f);
	if (!strstr(t->text, needle))
		fail_msg("\"%s\" is not in:\n%s", needle, t->text);
}

static void test_ladder(void **state)
{
	struct ladder_test t;
	struct tool_rec *rec;
	struct tool_view v;
	u8 buf[600];
	u32 len = make_start(buf, false, MPA_FLAG_CRC, 1, 0, 0, "abc");

	ladder_open(&t, false, false);
	put_state(&t.w, "UNKNOWN", "INITED");
	put_state(&t.w, "INITED", "SYN_SENT");
	put_frame(&t.w, true, PKT_SYN, 5, NULL, 0);
	put_frame(&t.w, false, PKT_SYN | PKT_ACK, 9, NULL, 0);
	put_state(&t.w, "SYN_SENT", "ONE_SIDE_ESTABLISHED");
	put_frame(&t.w, true, PKT_ACK, 6, buf, len);
	put_frame(&t.w, false, PKT_ACK, 10, NULL, 0);
	put_state(&t.w, "MPAREQ_SENT", "OFFLOADED");
	rec = first_rec(&t.w);
	tool_ladder_focus(&t.l, rec);
	expect_text(&t, "connection 1: 127.0.0.1:1000 -> 127.0.0.1:7174\n");
	expect_text(&t, "|--- SYN ------------------------------------->| SYN_SENT\n");
	expect_text(&t, "|<-- SYN+ACK ----------------------------------| ONE_SIDE_ESTABLISHED\n");
	expect_text(&t, "|    flags C; private data, 3 bytes            |\n");
	assert_null(strstr(t.text, "INITED"));
	assert_null(strstr(t.text, "ACK ---------------------------------------"));
	tool_watch_view(&t.w, rec, &v);
	assert_true(v.at_rest && !v.closed && !v.passive);
	put_state(&t.w, "OFFLOADED", "CLOSED");
	tool_watch_view(&t.w, rec, &v);
	assert_true(v.closed);
	tool_ladder_forget(&t.l, rec);
	tool_watch_drop(&t.w, rec);
	ladder_close(&t);
}

static void test_ladder_verbose(void **state)
{
	struct ladder_test t;

	ladder_open(&t, true, false);
	put_frame(&t.w, false, PKT_SYN, 5, NULL, 0);
	put_state(&t.w, "UNKNOWN", "INITED");
	put_frame(&t.w, false, PKT_ACK, 6, NULL, 0);
	tool_ladder_focus(&t.l, first_rec(&t.w));
	expect_text(&t, "connection 1: 127.0.0.1:1000 <- 127.0.0.1:7174\n");
	expect_text(&t, "|    seq 0 ack 0 win 0 len 0                   |\n");
	expect_text(&t, "INITED");
	expect_text(&t, "|<-- ACK --------------------------------------|\n");
	ladder_close(&t);
}

static void test_ladder_json(void **state)
{
	struct ladder_test t;

	ladder_open(&t, true, true);
	put_frame(&t.w, true, PKT_SYN, 5, NULL, 0);
	put_state(&t.w, "INITED", "SYN_SENT");
	assert_true(tool_ladder_pump(&t.l) == UINT64_MAX);
	expect_text(&t, "{\"event\":\"frame\",\"connection\":1,\"ms\":0.000,\"direction\":\"out\",\"what\":\"SYN\",\"tcp_flags\":\"S\",\"seq\":0,");
	expect_text(&t, "\"state\":\"SYN_SENT\"}\n");
	ladder_close(&t);
}

/* A connection that nobody reads about does not eat memory; a new one on the same ports is another one. */
static void test_watch_bounds(void **state)
{
	struct ladder_test t;
	struct tool_rec **all;
	u32 i;

	ladder_open(&t, false, false);
	put_frame(&t.w, true, PKT_SYN, 5, NULL, 0);
	for (i = 0; i < 2 * TOOL_ENTRIES_MAX; i++)
		put_frame(&t.w, true, PKT_RST, 5, NULL, 0);
	tool_watch_fetch(&t.w, first_rec(&t.w));
	assert_int_equal(first_rec(&t.w)->lost, TOOL_ENTRIES_MAX + 1);
	tool_ladder_focus(&t.l, first_rec(&t.w));
	expect_text(&t, "513 more, not shown");
	put_state(&t.w, "SYN_SENT", "CLOSED");
	put_frame(&t.w, true, PKT_SYN, 5, NULL, 0);
	assert_int_equal(tool_watch_all(&t.w, &all), 2);
	assert_ptr_equal(tool_watch_next(&t.w, NULL), all[0]);
	assert_ptr_equal(tool_watch_next(&t.w, all[0]), all[1]);
	assert_null(tool_watch_next(&t.w, all[1]));
	/* Without a beginning there is no connection. */
	tool_watch_drop(&t.w, all[1]);
	put_frame(&t.w, true, PKT_ACK, 5, NULL, 0);
	assert_int_equal(tool_watch_all(&t.w, &all), 1);
	ladder_close(&t);
}

static void judge_one(const char *data, u32 len, u8 flags, enum cm_cause cause)
{
	struct ladder_test t;
	struct tool_view v;

	ladder_open(&t, false, false);
	put_frame(&t.w, false, PKT_SYN, 5, NULL, 0);
	put_state(&t.w, "INITED", "LISTENING");
	if (len)
		put_frame(&t.w, false, PKT_ACK, 6, data, len);
	if (flags)
		put_frame(&t.w, false, flags, 6 + len, NULL, 0);
	put_state(&t.w, "ESTABLISHED", "CLOSED");
	tool_watch_view(&t.w, first_rec(&t.w), &v);
	assert_true(v.passive && v.closed);
	assert_int_equal(v.cause, cause);
	ladder_close(&t);
}

static void test_judge(void **state)
{
	u8 buf[600];
	u32 len;

	judge_one(NULL, 0, 0, CM_CAUSE_NO_MPA_REQUEST);
	judge_one(NULL, 0, PKT_FIN | PKT_ACK, CM_CAUSE_CLOSED);
	judge_one(NULL, 0, PKT_RST, CM_CAUSE_RESET);
	judge_one("GET / HTTP/1.1\r\n\r\n", 18, PKT_FIN, CM_CAUSE_MPA_KEY);
	judge_one("MPA ID Req", 10, PKT_FIN, CM_CAUSE_CLOSED);
	len = make_start(buf, false, 0, 3, 0, 0, "");
	judge_one((char *)buf, len, 0, CM_CAUSE_MPA_REVISION);
	len = make_start(buf, false, MPA_FLAG_REJECT, 1, 0, 0, "");
	judge_one((char *)buf, len, 0, CM_CAUSE_MPA_FLAGS);
	len = make_start(buf, true, 0, 1, 0, 0, "");
	judge_one((char *)buf, len, 0, CM_CAUSE_MPA_KEY);
	buf[18] = 0xFF;
	memcpy(buf, MPA_KEY_REQ, MPA_KEY_SIZE);
	judge_one((char *)buf, len, 0, CM_CAUSE_MPA_LENGTH);
}

/* ---- endpoints ---- */

static void test_endpoints(void **state)
{
	static const struct {
		const char *text;
		bool passive;
		int ret;
		const char *want;
	} cases[] = {
		{ "127.0.0.1:80", false, 0, "127.0.0.1:80" },
		{ "[::1]:65535", false, 0, "[::1]:65535" },
		{ "127.0.0.1:0", true, 0, "127.0.0.1:0" },
		{ ":7174", true, 0, "0.0.0.0:7174" },
		{ "*:7174", true, 0, "0.0.0.0:7174" },
		{ "[::]:7174", true, 0, "[::]:7174" },
		{ "127.0.0.1:0", false, TOOL_USAGE, NULL },
		{ "127.0.0.1:65536", false, TOOL_USAGE, NULL },
		{ "127.0.0.1:", false, TOOL_USAGE, NULL },
		{ "127.0.0.1:http", false, TOOL_USAGE, NULL },
		{ "127.0.0.1:80x", false, TOOL_USAGE, NULL },
		{ "127.0.0.1:-1", false, TOOL_USAGE, NULL },
		{ "127.0.0.1", false, TOOL_USAGE, NULL },
		{ ":80", false, TOOL_USAGE, NULL },
		{ "::1:80", false, TOOL_USAGE, NULL },
		{ "[::1]", false, TOOL_USAGE, NULL },
		{ "[::1]80", false, TOOL_USAGE, NULL },
		{ "[::1:80", false, TOOL_USAGE, NULL },
		{ "[]:80", false, TOOL_USAGE, NULL },
		{ "", false, TOOL_USAGE, NULL },
		{ "1.2.3.4.5.6:80", false, TOOL_LOCAL, NULL },
	};
	char buf[TOOL_ADDRSTR], big[400];
	struct tool_endpoint ep;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(tool_endpoint_parse(cases[i].text, cases[i].passive, AF_UNSPEC, &ep), cases[i].ret);
		if (cases[i].want)
			assert_string_equal(tool_sockaddr_str(&ep.addr[0], buf), cases[i].want);
	}
	assert_int_equal(tool_endpoint_parse(":1", true, AF_UNSPEC, &ep), 0);
	assert_int_equal(ep.n, 2);
	assert_int_equal(tool_endpoint_parse(":1", true, AF_INET6, &ep), 0);
	assert_int_equal(ep.n, 1);
	tool_sockaddr_set_port(&ep.addr[0], 77);
	assert_int_equal(tool_sockaddr_port(&ep.addr[0]), 77);
	memset(big, 'a', sizeof(big));
	strcpy(big + sizeof(big) - 4, ":80");
	assert_int_equal(tool_endpoint_parse(big, false, AF_UNSPEC, &ep), TOOL_USAGE);
}

/* ---- private data ---- */

static void test_pdata(void **state)
{
	char text[MPA_MAX_PRIV_DATA + 2], *out = NULL;
	struct tool_pdata p = { 0 };
	size_t size;
	FILE *f;

	assert_int_equal(tool_pdata_hex(&p, "00 0a:FF,7f"), 0);
	assert_int_equal(p.len, 4);
	assert_memory_equal(p.data, "\0\n\xff\x7f", 4);
	assert_int_equal(tool_pdata_hex(&p, ""), 0);
	assert_int_equal(p.len, 0);
	assert_int_equal(tool_pdata_hex(&p, "abc"), -EINVAL);
	assert_int_equal(tool_pdata_hex(&p, "xy"), -EINVAL);
	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(tool_pdata_text(&p, text), -EMSGSIZE);
	text[sizeof(text) - 2] = '\0';
	assert_int_equal(tool_pdata_text(&p, text), 0);
	assert_int_equal(p.len, MPA_MAX_PRIV_DATA);
	assert_int_equal(tool_pdata_file(&p, "/nonexistent"), -ENOENT);
	assert_int_equal(tool_pdata_file(&p, "/dev/zero"), -EMSGSIZE);
	assert_int_equal(tool_pdata_file(&p, "/dev/null"), 0);
	assert_int_equal(p.len, 0);

	assert_string_equal(tool_pdata_as_text((const u8 *)"hi\0\0", 4, text), "hi");
	assert_null(tool_pdata_as_text((const u8 *)"h\0i", 3, text));
	assert_null(tool_pdata_as_text((const u8 *)"\0", 1, text));
	f = open_memstream(&out, &size);
	tool_pdata_print(f, (const u8 *)"0123456789abcdefg", 17);
	fclose(f);
	assert_string_equal(out, "    \"0123456789abcdefg\"\n"
				 "    0000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66\n"
				 "    0010  67\n");
	free(out);
}

/* ---- options ---- */

static int parse(enum tool_command command, struct tool_options *o, const char *args)
{
	static char copy[1000], name[] = "cmd";
	char *argv[64] = { name }, *word, *save;
	int argc = 1;

	snprintf(copy, sizeof(copy), "%s", args);
	for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	return tool_options_parse(command, argc, argv, o);
}

static void test_options(void **state)
{
	struct tool_options o;

	assert_int_equal(parse(TOOL_CONNECT, &o, "h:1"), 0);
	assert_string_equal(o.where, "h:1");
	assert_true(o.mpa.mpa_revision == 2 && o.mpa.peer_to_peer && o.mpa.crc && !o.mpa.markers && o.mpa.fall_back);
	assert_true(o.count == 1 && o.parallel == 1 && o.timeout_s < 0 && o.hold_s < 0 && o.ird == IWCM_MAX);
	assert_int_equal(parse(TOOL_CONNECT, &o, "--mpa-rev 1 --model cs --rtr write,read --ird 4 --ord 0 --no-crc --markers --no-fallback "
						 "--private x --count 10 --rate 2.5 --timeout 3 --hold 0 --tos 0x10 --bind 1.2.3.4 --json -v -q "
						 "-4 h:1"), 0);
	assert_true(o.mpa.mpa_revision == 1 && !o.mpa.peer_to_peer && o.mpa.rtr == (IWCM_RTR_WRITE | IWCM_RTR_READ) && o.ird == 4);
	assert_true(o.ord == 0 && !o.mpa.crc && o.mpa.markers && !o.mpa.fall_back && o.pdata.len == 1 && o.count == 10);
	assert_true(o.rate == 2.5 && o.parallel == 128 && o.hold_s == 0 && o.mpa.tos == 16 && o.family == AF_INET);
	assert_int_equal(parse(TOOL_LISTEN, &o, "--reject --count 3 --backlog 9 --private-hex 0001 :7"), 0);
	assert_true(o.reject && o.count == 3 && o.backlog == 9 && o.pdata.len == 2);
	assert_int_equal(parse(TOOL_SIM, &o, "--nodes 3 --connections 9 --loss 5 --seed 4 --gen 1 --ipv6"), 0);
	assert_true(o.sim.nodes == 3 && o.count == 9 && o.sim.loss == 5 && o.sim.seed == 4 && o.sim.gen == 1 && o.sim.ipv6);
	assert_true(o.sim.data == 50 && o.sim.largest == 262144);
	assert_int_equal(parse(TOOL_SIM, &o, "--data 0.5 --largest 16777216"), 0);
	assert_true(o.sim.data == 0.5 && o.sim.largest == 16777216);
	assert_true(o.sim.late == 1 && o.sim.flap == 0.1 && o.sim.vanish == 0.05 && o.sim.restart == 0.05 && o.sim.attack == 5 && o.sim.on_path == 1);
	assert_true(!o.sim.paranoid && !o.sim.only.n && o.sim.minimise_s == 60);
	assert_int_equal(parse(TOOL_SIM, &o, "--late 2 --flap 3 --vanish 4 --restart 5 --attack 6 --on-path 7 --paranoid --only 3,17-20 --minimise 0"), 0);
	assert_true(o.sim.late == 2 && o.sim.flap == 3 && o.sim.vanish == 4 && o.sim.restart == 5 && o.sim.attack == 6 && o.sim.on_path == 7);
	assert_true(o.sim.paranoid && o.sim.only.n == 5 && o.sim.only.item[4] == 20 && o.sim.minimise_s == 0);
	free(o.sim.only.item);
	assert_int_equal(parse(TOOL_SIM, &o, "--only 3,2"), TOOL_USAGE);
	assert_int_equal(parse(TOOL_SIM, &o, "--connections 200 --only 3,200"), TOOL_USAGE);
	free(o.sim.only.item);
	assert_int_equal(parse(TOOL_SIM, &o, "--only 3,199 --connections 200"), 0);
	free(o.sim.only.item);
	assert_int_equal(parse(TOOL_SIM, &o, "--only 1000"), TOOL_USAGE);
	free(o.sim.only.item);
	assert_int_equal(parse(TOOL_SIM, &o, "--data 101"), TOOL_USAGE);
	assert_int_equal(parse(TOOL_SIM, &o, "--largest 16777217"), TOOL_USAGE);
	assert_int_equal(parse(TOOL_DEVICES, &o, "--json"), 0);
}

/* Standard error is cmocka's, too. */
static void silence(bool on)
{
	static int saved = -1;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	assert_true(null >= 0);
	fflush(stderr);
	if (on)
		saved = dup(STDERR_FILENO);
	assert_true(dup2(on ? null : saved, STDERR_FILENO) >= 0);
	close(null);
	if (!on)
		close(saved);
}

static void test_bad_options(void **state)
{
	static const struct {
		enum tool_command command;
		const char *args;
	} cases[] = {
		{ TOOL_CONNECT, "" },
		{ TOOL_CONNECT, "h:1 h:2" },
		{ TOOL_CONNECT, "--mpa-rev 3 h:1" },
		{ TOOL_CONNECT, "--mpa-rev 0 h:1" },
		{ TOOL_CONNECT, "--model other h:1" },
		{ TOOL_CONNECT, "--rtr h:1" },
		{ TOOL_CONNECT, "--rtr send, h:1" },
		{ TOOL_CONNECT, "--rtr send,,read h:1" },
		{ TOOL_CONNECT, "--rtr sends h:1" },
		{ TOOL_CONNECT, "--ird 16383 h:1" },
		{ TOOL_CONNECT, "--ird -1 h:1" },
		{ TOOL_CONNECT, "--ord 4x h:1" },
		{ TOOL_CONNECT, "--count 0 h:1" },
		{ TOOL_CONNECT, "--rate 0 h:1" },
		{ TOOL_CONNECT, "--rate nan h:1" },
		{ TOOL_CONNECT, "--timeout 0 h:1" },
		{ TOOL_CONNECT, "--timeout inf h:1" },
		{ TOOL_CONNECT, "--tos 256 h:1" },
		{ TOOL_CONNECT, "--private a --private-hex 00 h:1" },
		{ TOOL_CONNECT, "--private-hex 0 h:1" },
		{ TOOL_CONNECT, "--private-file /nonexistent h:1" },
		{ TOOL_CONNECT, "--private-file /dev/zero h:1" },
		{ TOOL_CONNECT, "--reject h:1" },
		{ TOOL_CONNECT, "--json --pcap - h:1" },
		{ TOOL_CONNECT, "--count" },
		{ TOOL_CONNECT, "-x h:1" },
		{ TOOL_CONNECT, "--nonsense h:1" },
		{ TOOL_LISTEN, "--bind 1.2.3.4 :1" },
		{ TOOL_LISTEN, "--backlog 0 :1" },
		{ TOOL_SIM, "--nodes 1" },
		{ TOOL_SIM, "--loss 101" },
		{ TOOL_SIM, "--gen 3" },
		{ TOOL_SIM, "h:1" },
		{ TOOL_DEVICES, "lo" },
	};
	struct tool_options o;
	size_t i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		last_error[0] = '\0';
		silence(true);
		ret = parse(cases[i].command, &o, cases[i].args);
		silence(false);
		if (ret != TOOL_USAGE || !last_error[0])
			fail_msg("\"%s\" is accepted, or turned down without a word", cases[i].args);
	}
}

/* 512 with revision 1, 508 with revision 2, 255 in a reject. */
/* getopt() remembers where it was in -Zvvv; found by fuzz_cli. */
static void test_options_begin_anew(void **state)
{
	struct tool_options o;

	silence(true);
	assert_int_equal(parse(TOOL_CONNECT, &o, "-Zvvv host:1"), TOOL_USAGE);
	silence(false);
	assert_int_equal(parse(TOOL_CONNECT, &o, "host:1"), 0);
	assert_false(o.verbose);
}

static void test_pdata_bounds(void **state)
{
	static const struct {
		enum tool_command command;
		const char *args;
		size_t most;
	} cases[] = {
		{ TOOL_CONNECT, "--mpa-rev 1", 512 },
		{ TOOL_CONNECT, "--mpa-rev 2", 508 },
		{ TOOL_LISTEN, "--mpa-rev 1", 512 },
		{ TOOL_LISTEN, "--reject", 255 },
	};
	char args[700], text[600];
	struct tool_options o;
	size_t i, n;
	int ret;

	memset(text, 'a', sizeof(text));
	for (i = 0; i < ARRAY_SIZE(cases); i++)
		for (n = cases[i].most - 1; n <= cases[i].most + 1; n++) {
			snprintf(args, sizeof(args), "%s --private %.*s h:1", cases[i].args, (int)n, text);
			silence(true);
			ret = parse(cases[i].command, &o, args);
			silence(false);
			assert_int_equal(ret, n <= cases[i].most ? 0 : TOOL_USAGE);
		}
}

/* Every option is in the help text, and every line of it fits a terminal. */
static void test_help(void **state)
{
	char *text = NULL, *line, *save;
	size_t size, i;
	int command;
	FILE *f;

	for (command = 0; command < TOOL_COMMANDS; command++) {
		f = open_memstream(&text, &size);
		tool_help((enum tool_command)command, f);
		fclose(f);
		for (i = 0; i < ARRAY_SIZE(rows); i++)
			if (rows[i].commands & BIT(command))
				assert_non_null(strstr(text, rows[i].name));
		for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
			assert_true(strlen(line) <= 100);
		free(text);
	}
}

/* ---- JSON ---- */

static void test_json(void **state)
{
	char *out = NULL;
	size_t size;
	FILE *f = open_memstream(&out, &size);
	struct tool_json j;

	tool_json_begin(&j, f);
	tool_json_str(&j, "s", "a\"b\\c\n\x7f \xc3\xa4 \xff \xed\xa0\x80");
	tool_json_u64(&j, "n", UINT64_MAX);
	tool_json_object(&j, "o");
	tool_json_bool(&j, "t", true);
	tool_json_null(&j, "z");
	tool_json_object_end(&j);
	tool_json_array(&j, "a");
	tool_json_str(&j, NULL, "x");
	tool_json_double(&j, NULL, 1.5);
	tool_json_double(&j, NULL, INFINITY);
	tool_json_array_end(&j);
	tool_json_hex(&j, "h", (const u8 *)"\x00\xfe", 2);
	tool_json_end(&j);
	fclose(f);
	assert_string_equal(out, "{\"s\":\"a\\\"b\\\\c\\u000a\\u007f \xc3\xa4 \\ufffd \\ufffd\\ufffd\\ufffd\",\"n\":18446744073709551615,"
				 "\"o\":{\"t\":true,\"z\":null},\"a\":[\"x\",1.500,null],\"h\":\"00fe\"}\n");
	free(out);
}

/* ---- outcomes ---- */

static void test_outcomes(void **state)
{
	struct iwcm_info info = { .mpa_revision = 2, .peer_to_peer = true, .rtr = 2, .rtr_offered = 7, .ird = 4, .ord = 5, .peer_ird = 6,
				  .peer_ord = 0x3FFF, .mss = 1460, .syn_sent = 3, .mpa_sent = 1, .crc = true };
	char *out = NULL, buf[TOOL_RTRSTR];
	size_t size;
	FILE *f;
	int i;

	assert_int_equal(tool_status_of(IWCM_EVENT_ESTABLISHED, 0, 0), TOOL_OK);
	assert_int_equal(tool_status_of(IWCM_EVENT_REJECTED, CM_CAUSE_REJECTED, -ECONNREFUSED), TOOL_REJECTED);
	assert_int_equal(tool_status_of(IWCM_EVENT_CONNECT_ERROR, CM_CAUSE_REFUSED, -ECONNREFUSED), TOOL_REFUSED);
	assert_int_equal(tool_status_of(IWCM_EVENT_CONNECT_ERROR, CM_CAUSE_NO_MPA_REPLY, -ETIMEDOUT), TOOL_TIMED_OUT);
	assert_int_equal(tool_status_of(IWCM_EVENT_CONNECT_ERROR, CM_CAUSE_MPA_KEY, -EPROTO), TOOL_PROTOCOL);
	assert_int_equal(tool_status_of(IWCM_EVENT_CONNECT_ERROR, CM_CAUSE_UNREACHABLE, -EHOSTUNREACH), TOOL_LOCAL);
	assert_int_equal(tool_status_of(IWCM_EVENT_CONNECT_ERROR, 0, -ETIMEDOUT), TOOL_TIMED_OUT);
	assert_int_equal(tool_status_of(IWCM_EVENT_CONNECT_ERROR, 0, -EADDRINUSE), TOOL_LOCAL);
	assert_int_equal(tool_status_of(IWCM_EVENT_CONNECT_ERROR, 0, 0), TOOL_LOCAL);
	assert_int_equal(tool_status_of(IWCM_EVENT_RESOLVE_ERROR, 0, -ENETUNREACH), TOOL_LOCAL);
	for (i = 1; i < CM_CAUSES; i++) {
		assert_int_not_equal(tool_status_of(IWCM_EVENT_CONNECT_ERROR, i, 0), TOOL_OK);
		assert_true(tool_hint(i, false, false) || tool_hint(i, true, false) || i == CM_CAUSE_LOCAL);
	}
	assert_null(tool_hint(CM_CAUSES, false, false));
	assert_non_null(strstr(tool_hint(CM_CAUSE_CLOSED, false, false), "--mpa-rev 1"));
	assert_null(strstr(tool_hint(CM_CAUSE_CLOSED, false, true), "--mpa-rev 1"));
	assert_string_equal(tool_hint(CM_CAUSE_MPA_RTR, false, true), tool_hint(CM_CAUSE_MPA_RTR, false, false));
	assert_string_equal(tool_cause_name(-1), "unknown");
	assert_string_equal(tool_status_str(TOOL_STATUSES), "?");
	assert_string_equal(tool_rtr_str(0, buf), "none");
	assert_string_equal(tool_rtr_str(5, buf), "Send|Read");

	f = open_memstream(&out, &size);
	tool_print_negotiated(f, &info);
	fclose(f);
	assert_non_null(strstr(out, "MPA revision 2, peer-to-peer, RTR Write (of Send|Write|Read)"));
	assert_non_null(strstr(out, "IRD 4, ORD 5; the peer says IRD 6, ORD not negotiated"));
	assert_non_null(strstr(out, "sent again: SYN 2, MPA 0 times"));
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conversation),
		cmocka_unit_test(test_splits),
		cmocka_unit_test(test_not_mpa),
		cmocka_unit_test(test_bad_fpdu),
		cmocka_unit_test(test_new_connection),
		cmocka_unit_test(test_noise),
		cmocka_unit_test(test_ladder),
		cmocka_unit_test(test_ladder_verbose),
		cmocka_unit_test(test_ladder_json),
		cmocka_unit_test(test_watch_bounds),
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_endpoints),
		cmocka_unit_test(test_pdata),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_bad_options),
		cmocka_unit_test(test_options_begin_anew),
		cmocka_unit_test(test_pdata_bounds),
		cmocka_unit_test(test_help),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_outcomes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
