/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the tool says about a peer's bytes: segments of a connection in words, private data, the private data of `uwarp perf`. Whatever they are, what is printed is text, and
 * fits its line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "tool/decode.h"
#include "tool/json.h"
#include "tool/perf.h"

#define SEGMENTS 64

void tool_error(const char *fmt, ...)
{
}

static void check_text(const char *s, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		assert(s[i] == '\n' || (s[i] >= ' ' && s[i] <= '~'));
}

/* ---- segments ---- */

static void on_line(void *arg, const struct tool_line *line)
{
	u32 *lines = arg;

	assert(memchr(line->title, 0, sizeof(line->title)) && memchr(line->detail, 0, sizeof(line->detail)));
	check_text(line->title, strlen(line->title));
	check_text(line->detail, strlen(line->detail));
	(*lines)++;
}

/* Bytes as they come, or an FPDU around them. */
static u32 payload(struct fuzz *f, struct mpa_stream *s, u8 *out, u32 size, bool framed)
{
	u8 bytes[UINT8_MAX];
	u32 n = (u32)fuzz_bytes(f, bytes, fuzz_u8(f));

	if (framed)
		return (u32)mpa_fpdu_build(s, bytes, n, out, size);
	memcpy(out, bytes, n);
	return n;
}

static void segment(struct fuzz *f, struct tool_flow *flow, struct mpa_stream *s, u32 *nxt)
{
	u8 how = fuzz_u8(f), data[512], opts[PKT_TCP_OPT_MAX];
	bool out = how & 1;
	struct pkt p = { .flags = fuzz_u8(f), .seq = nxt[out], .ack = nxt[!out], .opts = opts, .data = data };
	struct tool_segment seg;
	u32 lines = 0;

	if (how & 2)
		p.seq += fuzz_near(f);
	if (how & 4)
		p.optlen = (u32)fuzz_bytes(f, opts, fuzz_u8(f) % sizeof(opts));
	if (how & 8)
		p.datalen = payload(f, s, data, sizeof(data), how & 16);
	p.data = fuzz_copy(data, p.datalen);
	p.opts = fuzz_copy(opts, p.optlen);
	tool_flow_segment(flow, out, &p, &seg, on_line, &lines);
	assert(lines || seg.bare_ack);
	nxt[out] = p.seq + p.datalen + !!(p.flags & PKT_SYN) + !!(p.flags & PKT_FIN);
	free((void *)p.data);
	free((void *)p.opts);
}

static void flow(struct fuzz *f)
{
	struct tool_flow flow = { 0 };
	struct mpa_stream s;
	u32 nxt[2] = { 100, 0xFFFFFF00u };
	int n;

	mpa_stream_init(&s, fuzz_u8(f) & 1, false);
	for (n = 0; n < SEGMENTS && fuzz_more(f); n++)
		segment(f, &flow, &s, nxt);
	tool_flow_destroy(&flow);
}

/* ---- private data ---- */

static void print_all(FILE *out, const u8 *data, size_t len)
{
	char text[MPA_MAX_PRIV_DATA + 1];
	struct tool_json j;

	tool_pdata_print(out, data, len);
	tool_json_begin(&j, out);
	tool_json_hex(&j, "hex", data, len);
	if (tool_pdata_as_text(data, len, text))
		tool_json_str(&j, "text", text);
	tool_json_end(&j);
}

static void pdata(const u8 *data, size_t len)
{
	char *text;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	print_all(out, data, len);
	fclose(out);
	check_text(text, n);
	free(text);
}

/* Any string goes into JSON. */
static void json(const u8 *data, size_t len)
{
	char *text, *string = (char *)fuzz_copy(data, len + 1);
	struct tool_json j;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	string[len] = '\0';
	tool_json_begin(&j, out);
	tool_json_str(&j, "s", string);
	tool_json_end(&j);
	fclose(out);
	assert(!memchr(text, 0, n) && n >= 2 && text[n - 1] == '\n' && !memchr(text, '\n', n - 1));
	free(text);
	free(string);
}

static void perf(const u8 *data, size_t len)
{
	struct perf_remote peer, again;
	struct perf_test t, same;
	struct perf_request r;

	perf_reply_get(data, len, &peer);
	if (!perf_request_get(data, len, &t, &peer))
		return;
	assert(t.size && t.size <= PERF_SIZE_MAX && t.depth <= PERF_DEPTH_MAX && t.count);
	perf_request_put(&r, &t, &peer);
	assert(perf_request_get(&r, sizeof(r), &same, &again) && same.count == t.count && same.size == t.size && again.addr == peer.addr);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { data, size };
	u8 what = fuzz_u8(&f), *copy;
	size_t len = min(f.left, (size_t)MPA_MAX_PRIV_DATA);

	if (what % 8 < 5) {
		flow(&f);
		return 0;
	}
	copy = fuzz_copy(f.p, len);
	if (what % 8 == 5)
		pdata(copy, len);
	else if (what % 8 == 6)
		perf(copy, len);
	else if (len)
		json(copy, len - 1);
	free(copy);
	return 0;
}
