/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* DDP, RDMAP and Terminate: decoding, hostile headers, RTR messages. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "rdmap/rdmap.h"

#define U_HDR(ctrl, op, qn, msn, mo) \
	(ctrl), (op), 0, 0, 0, 0, 0, 0, 0, (qn), 0, 0, 0, (msn), 0, 0, 0, (mo)
#define T_HDR(ctrl, op) (ctrl), (op), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12

static void decodes_tagged(void **state)
{
	static const u8 write[] = { T_HDR(0xC1, 0x40), 0xAA, 0xBB };
	struct rdmap_error err;
	struct ddp_hdr h;

	assert_int_equal(ddp_parse(write, sizeof(write), &h, &err), 0);
	assert_true(h.tagged && h.last);
	assert_int_equal(h.opcode, RDMAP_WRITE);
	assert_int_equal(h.stag, 0x01020304);
	assert_true(h.to == 0x05060708090A0B0Cull);
	assert_int_equal(h.payload_len, 2);
	assert_int_equal(h.payload[0], 0xAA);
}

static void decodes_untagged(void **state)
{
	static const u8 send[] = { 0x01, 0x44, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 1, 0, 0xCC };
	struct rdmap_error err;
	struct ddp_hdr h;

	assert_int_equal(ddp_parse(send, sizeof(send), &h, &err), 0);
	assert_false(h.tagged || h.last);
	assert_int_equal(h.opcode, RDMAP_SEND_INV);
	assert_int_equal(h.stag, 0x01020304);
	assert_int_equal(h.qn, 0);
	assert_int_equal(h.msn, 7);
	assert_int_equal(h.mo, 256);
	assert_int_equal(h.payload_len, 1);
}

/* Every opcode in its own form, at its smallest length. */
static void decodes_every_opcode(void **state)
{
	static const struct { u8 opcode; bool tagged; u8 qn; u32 len; } ops[] = {
		{ RDMAP_WRITE, true, 0, 0 }, { RDMAP_READ_REQ, false, 1, 28 }, { RDMAP_READ_RESP, true, 0, 0 },
		{ RDMAP_SEND, false, 0, 0 }, { RDMAP_SEND_INV, false, 0, 0 }, { RDMAP_SEND_SE, false, 0, 0 },
		{ RDMAP_SEND_SE_INV, false, 0, 0 }, { RDMAP_TERMINATE, false, 2, 4 }, { RDMAP_IMM, false, 0, 8 },
		{ RDMAP_IMM_SE, false, 0, 8 }, { RDMAP_ATOMIC_REQ, false, 1, 52 }, { RDMAP_ATOMIC_RESP, false, 3, 12 },
	};

	assert_int_equal(ARRAY_SIZE(ops), RDMAP_OPCODES);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		u8 u[128] = { 0 };
		u32 hdr = ops[i].tagged ? DDP_TAGGED_HDR : DDP_UNTAGGED_HDR;
		struct rdmap_error err;
		struct ddp_hdr h;

		u[0] = (u8)((ops[i].tagged ? DDP_TAGGED : 0) | DDP_LAST | DDP_VERSION);
		u[1] = 0x40 | ops[i].opcode;
		if (!ops[i].tagged)
			u[9] = ops[i].qn;
		assert_int_equal(ddp_parse(u, hdr + ops[i].len, &h, &err), 0);
		assert_int_equal(h.opcode, ops[i].opcode);
		assert_string_not_equal(rdmap_opcode_str(h.opcode), "unknown opcode");
		if (ops[i].len) { /* a byte less */
			assert_int_equal(ddp_parse(u, hdr + ops[i].len - 1, &h, &err), -EPROTO);
			assert_int_equal(err.code, TERM_RDMAP_STREAM);
		}
		u[0] ^= DDP_TAGGED; /* the other form */
		assert_int_equal(ddp_parse(u, sizeof(u), &h, &err), -EPROTO);
	}
	assert_string_equal(rdmap_opcode_str(12), "unknown opcode");
	assert_string_equal(rdmap_opcode_str(255), "unknown opcode");
}

struct hostile {
	const char *what;
	u32 len;
	u8 bytes[72];
	struct rdmap_error want;
};

static const struct hostile hostile[] = {
	{ "nothing", 0, { 0 }, { 2, 0, 3 } },
	{ "one byte", 1, { 0x41 }, { 2, 0, 3 } },
	{ "tagged, a byte short", 13, { T_HDR(0xC1, 0x40) }, { 2, 0, 3 } },
	{ "untagged, a byte short", 17, { U_HDR(0x41, 0x43, 0, 1, 0) }, { 2, 0, 3 } },
	{ "tagged, DDP version 0", 14, { T_HDR(0xC0, 0x40) }, { 1, 1, 4 } },
	{ "tagged, DDP version 2", 14, { T_HDR(0xC2, 0x40) }, { 1, 1, 4 } },
	{ "untagged, DDP version 3", 18, { U_HDR(0x43, 0x43, 0, 1, 0) }, { 1, 2, 6 } },
	{ "RDMAP version 0", 18, { U_HDR(0x41, 0x03, 0, 1, 0) }, { 0, 2, 5 } },
	{ "RDMAP version 3", 14, { T_HDR(0xC1, 0xC0) }, { 0, 2, 5 } },
	{ "opcode 12", 18, { U_HDR(0x41, 0x4C, 0, 1, 0) }, { 0, 2, 6 } },
	{ "opcode 15, tagged", 14, { T_HDR(0xC1, 0x4F) }, { 0, 2, 6 } },
	{ "tagged Send", 14, { T_HDR(0xC1, 0x43) }, { 0, 2, 6 } },
	{ "untagged Write", 18, { U_HDR(0x41, 0x40, 0, 1, 0) }, { 0, 2, 6 } },
	{ "queue 4", 18, { U_HDR(0x41, 0x43, 4, 1, 0) }, { 1, 2, 1 } },
	{ "Send on queue 1", 18, { U_HDR(0x41, 0x43, 1, 1, 0) }, { 1, 2, 1 } },
	{ "Read Request on queue 0", 46, { U_HDR(0x41, 0x41, 0, 1, 0) }, { 1, 2, 1 } },
	{ "Read Request too long", 47, { U_HDR(0x41, 0x41, 1, 1, 0) }, { 1, 2, 5 } },
	{ "Read Request too short", 45, { U_HDR(0x41, 0x41, 1, 1, 0) }, { 0, 2, 7 } },
	{ "Read Request at an offset", 46, { U_HDR(0x41, 0x41, 1, 1, 4) }, { 1, 2, 4 } },
	{ "Read Request, more to come", 46, { U_HDR(0x01, 0x41, 1, 1, 0) }, { 0, 2, 7 } },
	{ "Terminate without header control", 21, { U_HDR(0x41, 0x47, 2, 1, 0) }, { 0, 2, 7 } },
	{ "huge queue number", 18, { 0x41, 0x43, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1 }, { 1, 2, 1 } },
};

static void refuses_hostile_headers(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		u8 *exact = malloc(hostile[i].len + !hostile[i].len); /* so that ASan sees an over-read */
		struct rdmap_error err;
		struct ddp_hdr h;

		memcpy(exact, hostile[i].bytes, hostile[i].len);
		assert_int_equal(ddp_parse(exact, hostile[i].len, &h, &err), -EPROTO);
		if (memcmp(&err, &hostile[i].want, sizeof(err)) != 0)
			fail_msg("%s: %u %u %u (%s)", hostile[i].what, err.layer, err.etype, err.code, rdmap_error_str(&err));
		assert_string_not_equal(rdmap_error_str(&err), "unknown error");
		free(exact);
	}
}

static void rtr_of_each_kind(void **state)
{
	static const u32 kinds[] = { RDMAP_RTR_SEND, RDMAP_RTR_WRITE, RDMAP_RTR_READ };
	u8 u[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE];
	struct rdmap_error err;
	struct ddp_hdr h;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		u32 len = rdmap_build_rtr(kinds[i], u);

		assert_int_equal(ddp_parse(u, len, &h, &err), 0);
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
			assert_int_equal(rdmap_is_rtr(&h, kinds[k]), i == k);
		assert_false(rdmap_is_rtr(&h, 0));
	}
	assert_int_equal(rdmap_build_rtr(0, u), 0);
	assert_int_equal(rdmap_build_rtr(RDMAP_RTR_ALL, u), 0);
}

static void nearly_an_rtr(void **state)
{
	u8 u[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE + 1] = { 0 };
	struct rdmap_error err;
	struct ddp_hdr h;
	u32 len;

	len = rdmap_build_rtr(RDMAP_RTR_READ, u);
	u[DDP_UNTAGGED_HDR + 15] = 1; /* reads a byte */
	assert_int_equal(ddp_parse(u, len, &h, &err), 0);
	assert_false(rdmap_is_rtr(&h, RDMAP_RTR_READ));
	len = rdmap_build_rtr(RDMAP_RTR_SEND, u);
	assert_int_equal(ddp_parse(u, len + 1, &h, &err), 0); /* carries a byte */
	assert_false(rdmap_is_rtr(&h, RDMAP_RTR_SEND));
	u[13] = 2; /* MSN */
	assert_int_equal(ddp_parse(u, len, &h, &err), 0);
	assert_false(rdmap_is_rtr(&h, RDMAP_RTR_SEND));
	len = rdmap_build_rtr(RDMAP_RTR_WRITE, u);
	u[0] &= (u8)~DDP_LAST;
	assert_int_equal(ddp_parse(u, len, &h, &err), 0);
	assert_false(rdmap_is_rtr(&h, RDMAP_RTR_WRITE));
}

static void answers_a_read_rtr(void **state)
{
	u8 u[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE], resp[DDP_TAGGED_HDR];
	struct rdmap_error err;
	struct ddp_hdr h, r;
	u32 len = rdmap_build_rtr(RDMAP_RTR_READ, u);

	memcpy(u + DDP_UNTAGGED_HDR, "\x11\x22\x33\x44\x01\x02\x03\x04\x05\x06\x07\x08", 12); /* sink */
	assert_int_equal(ddp_parse(u, len, &h, &err), 0);
	assert_true(rdmap_is_rtr(&h, RDMAP_RTR_READ));
	len = rdmap_build_rtr_response(&h, resp);
	assert_int_equal(len, DDP_TAGGED_HDR);
	assert_int_equal(ddp_parse(resp, len, &r, &err), 0);
	assert_int_equal(r.opcode, RDMAP_READ_RESP);
	assert_true(r.last);
	assert_int_equal(r.stag, 0x11223344);
	assert_true(r.to == 0x0102030405060708ull);
	assert_int_equal(r.payload_len, 0);
}

static void check_terminate(const struct rdmap_error *e, const u8 *ulpdu, u32 len, u8 hdrct, u32 quoted)
{
	u8 out[RDMAP_TERM_MAX];
	u32 n = rdmap_build_terminate(e, 1, ulpdu, len, out);
	struct rdmap_error err, got;
	struct ddp_hdr h;

	assert_int_equal(n, DDP_UNTAGGED_HDR + 4 + (hdrct ? 2 : 0) + quoted);
	assert_int_equal(ddp_parse(out, n, &h, &err), 0);
	assert_int_equal(h.opcode, RDMAP_TERMINATE);
	assert_int_equal(h.msn, 1);
	assert_int_equal(h.qn, DDP_QN_TERMINATE);
	assert_int_equal(rdmap_parse_terminate(&h, &got), 0);
	assert_memory_equal(&got, e, sizeof(got));
	assert_int_equal(h.payload[2], hdrct);
	assert_int_equal(h.payload[3], 0);
	if (!hdrct)
		return;
	assert_int_equal(h.payload[4] << 8 | h.payload[5], len);
	assert_memory_equal(h.payload + 6, ulpdu, quoted);
}

static void terminate_quotes_what_the_rfc_says(void **state)
{
	static const u8 write[] = { T_HDR(0xC1, 0x40), 1, 2, 3 };
	static const u8 send[] = { U_HDR(0x41, 0x43, 0, 1, 0), 1, 2, 3 };
	u8 read[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE];
	u32 read_len = rdmap_build_rtr(RDMAP_RTR_READ, read);
	const u8 md = TERM_HDRCT_M | TERM_HDRCT_D;

	check_terminate(&(struct rdmap_error){ 0, 0, 0 }, send, sizeof(send), 0, 0);
	check_terminate(&(struct rdmap_error){ 2, 0, 2 }, send, sizeof(send), 0, 0);
	check_terminate(&(struct rdmap_error){ 2, 0, 7 }, NULL, 0, 0, 0);
	check_terminate(&(struct rdmap_error){ 1, 1, 0 }, write, sizeof(write), md, 14);
	check_terminate(&(struct rdmap_error){ 1, 2, 2 }, send, sizeof(send), md, 18);
	check_terminate(&(struct rdmap_error){ 1, 2, 3 }, read, read_len, md, 18);
	check_terminate(&(struct rdmap_error){ 0, 1, 0 }, read, read_len, md | TERM_HDRCT_R, 46);
	check_terminate(&(struct rdmap_error){ 0, 2, 7 }, read, read_len - 1, md, 18); /* no whole one to quote */
	check_terminate(&(struct rdmap_error){ 0, 2, 6 }, send, sizeof(send), md, 18);
	check_terminate(&(struct rdmap_error){ 1, 2, 6 }, send, 17, 0, 0);
	check_terminate(&(struct rdmap_error){ 1, 1, 4 }, write, 13, 0, 0);
	check_terminate(&(struct rdmap_error){ 1, 1, 4 }, NULL, 0, 0, 0);
}

static void parses_terminates_only(void **state)
{
	static const u8 send[] = { U_HDR(0x41, 0x43, 0, 1, 0), 1, 2, 3, 4 };
	struct rdmap_error err;
	struct ddp_hdr h;

	assert_int_equal(ddp_parse(send, sizeof(send), &h, &err), 0);
	assert_int_equal(rdmap_parse_terminate(&h, &err), -EPROTO);
	assert_string_equal(rdmap_error_str(&(struct rdmap_error){ 7, 7, 7 }), "unknown error");
	assert_string_equal(rdmap_error_str(&(struct rdmap_error){ 1, 2, 2 }), "DDP untagged buffer: no buffer");
}

/* Each code of the RFCs has words of its own. */
static void every_error_has_its_words(void **state)
{
	static const struct rdmap_error errs[] = {
		{ 0, 0, 0 },
		{ 0, 1, 0 }, { 0, 1, 1 }, { 0, 1, 2 }, { 0, 1, 3 }, { 0, 1, 4 }, { 0, 1, 9 }, { 0, 1, 255 },
		{ 0, 2, 5 }, { 0, 2, 6 }, { 0, 2, 7 }, { 0, 2, 8 }, { 0, 2, 9 }, { 0, 2, 255 },
		{ 1, 0, 0 },
		{ 1, 1, 0 }, { 1, 1, 1 }, { 1, 1, 2 }, { 1, 1, 3 }, { 1, 1, 4 },
		{ 1, 2, 1 }, { 1, 2, 2 }, { 1, 2, 3 }, { 1, 2, 4 }, { 1, 2, 5 }, { 1, 2, 6 },
		{ 2, 0, 1 }, { 2, 0, 2 }, { 2, 0, 3 }, { 2, 0, 4 }, { 2, 0, 5 }, { 2, 0, 6 }, { 2, 0, 7 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(errs); i++) {
		assert_string_not_equal(rdmap_error_str(&errs[i]), "unknown error");
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(rdmap_error_str(&errs[i]), rdmap_error_str(&errs[k]));
	}
	assert_string_equal(rdmap_error_str(&(struct rdmap_error){ 1, 2, 0 }), "unknown error");
	assert_string_equal(rdmap_error_str(&(struct rdmap_error){ 2, 0, 8 }), "unknown error");
}

/* Every opcode, what was put is what is parsed. */
static void builds_ddp_headers(void **state)
{
	static const u8 untagged[] = { 0x01, 0x44, 0xA1, 0xA2, 0xA3, 0xA4, 0, 0, 0, 0, 0xB1, 0xB2, 0xB3, 0xB4, 0xC1, 0xC2, 0xC3, 0xC4 };
	static const u8 tagged[] = { 0xC1, 0x42, 0xA1, 0xA2, 0xA3, 0xA4, 0xB1, 0xB2, 0xB3, 0xB4, 0xC1, 0xC2, 0xC3, 0xC4 };
	static const u32 queues[RDMAP_OPCODES] = { [RDMAP_READ_REQ] = 1, [RDMAP_ATOMIC_REQ] = 1, [RDMAP_TERMINATE] = 2, [RDMAP_ATOMIC_RESP] = 3 };
	u8 u[DDP_UNTAGGED_HDR + 64] = { 0 };
	struct rdmap_error err;
	struct ddp_hdr h;

	assert_int_equal(ddp_put_untagged(u, RDMAP_SEND_INV, false, 0xA1A2A3A4, 0xB1B2B3B4, 0xC1C2C3C4), sizeof(untagged));
	assert_memory_equal(u, untagged, sizeof(untagged));
	assert_int_equal(ddp_put_tagged(u, RDMAP_READ_RESP, true, 0xA1A2A3A4, 0xB1B2B3B4C1C2C3C4), sizeof(tagged));
	assert_memory_equal(u, tagged, sizeof(tagged));
	for (u8 op = 0; op < RDMAP_OPCODES; op++) {
		static const u32 body[RDMAP_OPCODES] = { [RDMAP_READ_REQ] = 28, [RDMAP_ATOMIC_REQ] = 52, [RDMAP_TERMINATE] = 4,
							 [RDMAP_IMM] = 8, [RDMAP_IMM_SE] = 8, [RDMAP_ATOMIC_RESP] = 12 };
		bool is_tagged = op == RDMAP_WRITE || op == RDMAP_READ_RESP;
		u32 n = is_tagged ? ddp_put_tagged(u, op, true, 3, 4) : ddp_put_untagged(u, op, true, 3, 5, 0);

		assert_int_equal(ddp_parse(u, n + body[op], &h, &err), 0);
		assert_int_equal(h.opcode, op);
		assert_int_equal(h.tagged, is_tagged);
		assert_int_equal(h.qn, queues[op]);
		assert_int_equal(h.stag, 3);
	}
}

static void read_requests(void **state)
{
	static const u8 wire[RDMAP_READ_REQ_SIZE] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
						      25, 26, 27, 28 };
	const struct rdmap_read_req want = { .sink_stag = 0x01020304, .sink_to = 0x05060708090A0B0C, .len = 0x0D0E0F10,
					     .src_stag = 0x11121314, .src_to = 0x15161718191A1B1C };
	struct rdmap_read_req got;
	u8 out[RDMAP_READ_REQ_SIZE];

	memset(&got, 0, sizeof(got));
	rdmap_get_read_req(wire, &got);
	assert_int_equal(got.sink_stag, want.sink_stag);
	assert_true(got.sink_to == want.sink_to && got.src_to == want.src_to);
	assert_int_equal(got.len, want.len);
	assert_int_equal(got.src_stag, want.src_stag);
	assert_int_equal(rdmap_put_read_req(out, &want), sizeof(wire));
	assert_memory_equal(out, wire, sizeof(wire));
	assert_int_equal(rdmap_read_len(&(struct ddp_hdr){ .payload = wire, .payload_len = sizeof(wire) }), want.len);
}

static void atomics_on_the_wire(void **state)
{
	u8 wire[RDMAP_ATOMIC_REQ_SIZE], out[RDMAP_ATOMIC_REQ_SIZE];
	struct rdmap_atomic_req r;
	u64 original;
	u32 id;

	for (u32 i = 0; i < sizeof(wire); i++)
		wire[i] = (u8)(i < 3 ? 0 : i);
	wire[3] = 2; /* CmpSwap */
	rdmap_get_atomic_req(wire, &r);
	assert_int_equal(r.op, RDMAP_CMP_SWAP);
	assert_int_equal(r.id, 0x04050607);
	assert_int_equal(r.stag, 0x08090A0B);
	assert_true(r.to == 0x0C0D0E0F10111213);
	assert_true(r.data == 0x1415161718191A1B && r.data_mask == 0x1C1D1E1F20212223);
	assert_true(r.compare == 0x2425262728292A2B && r.compare_mask == 0x2C2D2E2F30313233);
	assert_int_equal(rdmap_put_atomic_req(out, &r), sizeof(wire));
	assert_memory_equal(out, wire, sizeof(wire));
	wire[0] = 0xFF; /* reserved bits are not looked at */
	wire[3] = 0xF0 | RDMAP_FETCH_ADD;
	rdmap_get_atomic_req(wire, &r);
	assert_int_equal(r.op, RDMAP_FETCH_ADD);
	assert_int_equal(rdmap_put_atomic_resp(out, 0x01020304, 0x05060708090A0B0C), RDMAP_ATOMIC_RESP_SIZE);
	assert_memory_equal(out, "\1\2\3\4\5\6\7\10\11\12\13\14", RDMAP_ATOMIC_RESP_SIZE);
	rdmap_get_atomic_resp(out, &id, &original);
	assert_int_equal(id, 0x01020304);
	assert_true(original == 0x05060708090A0B0C);
	assert_int_equal(rdmap_put_imm(out, 0x0102030405060708), RDMAP_IMM_SIZE);
	assert_memory_equal(out, "\1\2\3\4\5\6\7\10", RDMAP_IMM_SIZE);
	assert_true(rdmap_get_imm(out) == 0x0102030405060708);
}

/* FetchAdd bit by bit: a carry ends at a bit of the mask. */
static u64 add_by_bits(u64 a, u64 b, u64 mask)
{
	u64 sum = 0;
	u32 carry = 0;

	for (int bit = 0; bit < 64; bit++) {
		u32 s = (u32)(a >> bit & 1) + (u32)(b >> bit & 1) + carry;

		sum |= (u64)(s & 1) << bit;
		carry = mask >> bit & 1 ? 0 : s >> 1;
	}
	return sum;
}

static void atomic_results(void **state)
{
	static const struct { struct rdmap_atomic_req r; u64 old, want; } rows[] = {
		{ { .op = RDMAP_FETCH_ADD, .data = 1 }, 41, 42 },
		{ { .op = RDMAP_FETCH_ADD, .data = 2 }, UINT64_MAX, 1 },
		{ { .op = RDMAP_FETCH_ADD, .data = 0x0000000100000001, .data_mask = 0x80000000 }, 0xFFFFFFFF, 0x100000000 },
		{ { .op = RDMAP_FETCH_ADD, .data = 0xFF, .data_mask = UINT64_MAX }, 0x0F, 0xF0 },
		{ { .op = RDMAP_CMP_SWAP, .data = 7, .data_mask = UINT64_MAX, .compare = 5, .compare_mask = UINT64_MAX }, 5, 7 },
		{ { .op = RDMAP_CMP_SWAP, .data = 7, .data_mask = UINT64_MAX, .compare = 5, .compare_mask = UINT64_MAX }, 6, 6 },
		{ { .op = RDMAP_CMP_SWAP, .data = 0xAB, .data_mask = 0xF0, .compare = 0x15, .compare_mask = 0x0F }, 0x35, 0xA5 },
		{ { .op = RDMAP_CMP_SWAP, .data = 0xAB, .data_mask = 0xF0, .compare = 0x14, .compare_mask = 0x0F }, 0x35, 0x35 },
		{ { .op = RDMAP_CMP_SWAP, .data = 0xAB, .data_mask = 0xFF }, 0x35, 0xAB },
		{ { .op = 1, .data = 7, .data_mask = UINT64_MAX }, 5, 5 },
	};
	struct rand_gen g;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_true(rdmap_atomic_result(&rows[i].r, rows[i].old) == rows[i].want);
	rand_gen_seed(&g, 8);
	for (int i = 0; i < 20000; i++) {
		const struct rdmap_atomic_req r = { .op = RDMAP_FETCH_ADD, .data = rand_gen_u64(&g), .data_mask = rand_gen_u64(&g) & rand_gen_u64(&g) };
		u64 old = rand_gen_u64(&g);

		assert_true(rdmap_atomic_result(&r, old) == add_by_bits(old, r.data, r.data_mask));
	}
}

/* Random bytes: no crash, no over-read; what is accepted holds its table's promises. */
static void random_ulpdus(void **state)
{
	struct rand_gen g;

	rand_gen_seed(&g, 1);
	for (int i = 0; i < 200000; i++) {
		u32 len = (u32)rand_gen_below(&g, 80);
		u8 *u = malloc(len + !len), term[RDMAP_TERM_MAX];
		struct rdmap_error err;
		struct ddp_hdr h;

		for (u32 k = 0; k < len; k++)
			u[k] = (u8)rand_gen_u64(&g);
		if (len > 18 && rand_gen_chance(&g, 0.7)) {
			u[0] = (u8)((u[0] & ~DDP_VERSION_MASK) | DDP_VERSION);
			u[1] = 0x40 | (u[1] & RDMAP_OPCODE_MASK);
			u[6] = u[7] = u[8] = 0;
			u[9] &= 3;
		}
		if (ddp_parse(u, len, &h, &err)) {
			assert_in_range(rdmap_build_terminate(&err, 1, u, len, term), DDP_UNTAGGED_HDR + 4, RDMAP_TERM_MAX);
		} else {
			assert_true(h.opcode < RDMAP_OPCODES);
			assert_ptr_equal(h.payload + h.payload_len, u + len);
			if (h.opcode == RDMAP_READ_REQ)
				rdmap_build_rtr_response(&h, term);
		}
		free(u);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decodes_tagged),
		cmocka_unit_test(decodes_untagged),
		cmocka_unit_test(decodes_every_opcode),
		cmocka_unit_test(refuses_hostile_headers),
		cmocka_unit_test(rtr_of_each_kind),
		cmocka_unit_test(nearly_an_rtr),
		cmocka_unit_test(answers_a_read_rtr),
		cmocka_unit_test(terminate_quotes_what_the_rfc_says),
		cmocka_unit_test(parses_terminates_only),
		cmocka_unit_test(every_error_has_its_words),
		cmocka_unit_test(builds_ddp_headers),
		cmocka_unit_test(read_requests),
		cmocka_unit_test(atomics_on_the_wire),
		cmocka_unit_test(atomic_results),
		cmocka_unit_test(random_ulpdus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
