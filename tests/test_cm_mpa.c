// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * MPA start-up frames. The file under test is compiled in here, with memory that fails when told to; the linker then takes these functions and
 * not the archive's.
 */
#include <arpa/inet.h>
#include "cm_fixture.h"

static bool no_memory;

static void *mem_get(size_t n) { return no_memory ? NULL : malloc(n); }
static void *mem_grow(void *p, size_t n) { return no_memory ? NULL : realloc(p, n); }

#define malloc mem_get
#define realloc mem_grow
#include "cm/cm_mpa.c"
#undef malloc
#undef realloc

/* ---- frames as a peer would build them ---- */

static u32 build(u8 *out, bool reply, u8 flags, u8 rev, u32 len_field, const void *body, u32 len)
{
	memcpy(out, reply ? "MPA ID Rep Frame" : "MPA ID Req Frame", 16);
	out[16] = flags;
	out[17] = rev;
	out[18] = (u8)(len_field >> 8);
	out[19] = (u8)len_field;
	if (len)
		memcpy(out + 20, body, len);
	return 20 + len;
}

static void v2_words(u8 out[4], u16 ird, u16 ord)
{
	out[0] = (u8)(ird >> 8);
	out[1] = (u8)ird;
	out[2] = (u8)(ord >> 8);
	out[3] = (u8)ord;
}

/* Revision 2 with S: the words and private data. */
static u32 build_v2(u8 *out, bool reply, u8 flags, u16 ird, u16 ord, const void *pdata, u32 len)
{
	u8 body[MPA_MAX_PRIV_DATA];

	v2_words(body, ird, ord);
	if (len)
		memcpy(body + 4, pdata, len);
	return build(out, reply, flags | MPA_FLAG_ENHANCED, 2, len + 4, body, len + 4);
}

/* A node without anything behind it, for what touches nothing but the node. */
static struct irdma_cm_node lone_node(bool active)
{
	struct irdma_cm_node node = {
		.active = active, .mpa = cm_mpa_opts_default, .mpa_rev = MPA_REV_2, .crc = true, .ird_size = 16, .ord_size = 16,
		.peer_ird = MPA_V2_NOT_NEGOTIATED, .peer_ord = MPA_V2_NOT_NEGOTIATED, .rtr_offered = active ? RDMAP_RTR_ALL : 0,
	};

	return node;
}

/* Parse a copy that ends where its memory ends. */
static int parse_copy(struct irdma_cm_node *node, const u8 *bytes, u32 len, u32 *type)
{
	u8 *p = malloc(len);
	int err;

	if (len)
		memcpy(p, bytes, len);
	err = irdma_parse_mpa(node, p, type, len);
	free(p);
	return err;
}

/* ---- build ---- */

static void v1_header_is_20_bytes(void **state)
{
	static const struct { u8 key; bool crc, markers, reject; u8 flags; } c[] = {
		{ MPA_KEY_REQUEST, false, false, false, 0x00 }, { MPA_KEY_REQUEST, true, false, false, 0x40 },
		{ MPA_KEY_REQUEST, false, true, false, 0x80 }, { MPA_KEY_REQUEST, true, true, true, 0xC0 }, /* R is a reply's */
		{ MPA_KEY_REPLY, false, false, false, 0x00 }, { MPA_KEY_REPLY, true, true, false, 0xC0 }, { MPA_KEY_REPLY, true, true, true, 0xE0 },
		{ MPA_KEY_REPLY, false, false, true, 0x20 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct irdma_cm_node node = lone_node(c[i].key == MPA_KEY_REQUEST);
		u8 want[20], *got = malloc(20);

		node.mpa_rev = MPA_REV_1;
		node.crc = c[i].crc;
		node.mpa.markers = c[i].markers;
		node.mpa_reject = c[i].reject;
		node.tx_pdata_len = 0x1FE;
		irdma_build_mpa_v1(&node, got, c[i].key);
		build(want, c[i].key == MPA_KEY_REPLY, c[i].flags, 1, 0x1FE, NULL, 0);
		assert_memory_equal(got, want, 20);
		free(got);
	}
}

static void v2_request_offers_what_is_wanted(void **state)
{
	static const struct { bool p2p; u8 rtr; u16 ird, ord; u16 w0, w1; u8 offered; } c[] = {
		{ true, RDMAP_RTR_ALL, 8, 9, 0xC008, 0xC009, RDMAP_RTR_ALL },
		{ true, RDMAP_RTR_SEND, 8, 9, 0xC008, 0x0009, RDMAP_RTR_SEND },
		{ true, RDMAP_RTR_WRITE, 8, 9, 0x8008, 0x8009, RDMAP_RTR_WRITE },
		{ true, RDMAP_RTR_READ, 8, 9, 0x8008, 0x4009, RDMAP_RTR_READ },
		{ true, RDMAP_RTR_ALL, 0, 0, 0xC000, 0x8000, RDMAP_RTR_SEND | RDMAP_RTR_WRITE }, /* no read without ORD */
		{ true, RDMAP_RTR_READ, 8, 0, 0x0008, 0x0000, 0 },
		{ true, 0, 8, 9, 0x0008, 0x0009, 0 },
		{ false, RDMAP_RTR_ALL, 0x3FFF, 0x3FFF, 0x3FFF, 0x3FFF, 0 },
		{ true, RDMAP_RTR_ALL, 0x3FFF, 0x3FFF, 0xFFFF, 0xFFFF, RDMAP_RTR_ALL },
		{ false, RDMAP_RTR_ALL, 0x4000, 0xFFFF, 0x3FFF, 0x3FFF, 0 }, /* more than the field can say does not wrap to 0 */
	};

	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct irdma_cm_node node = lone_node(true);
		u8 want[24], words[4], *got = malloc(24);

		node.mpa.p2p = c[i].p2p;
		node.mpa.rtr = c[i].rtr;
		node.ird_size = c[i].ird;
		node.ord_size = c[i].ord;
		node.tx_pdata_len = 508;
		irdma_build_mpa_v2(&node, got, MPA_KEY_REQUEST);
		v2_words(words, c[i].w0, c[i].w1);
		build(want, false, 0x50, 2, 512, words, 4);
		assert_memory_equal(got, want, 24);
		assert_int_equal(node.rtr_offered, c[i].offered);
		free(got);
	}
}

static void v2_reply_says_the_one_chosen(void **state)
{
	static const struct { u8 rtr; u16 w0, w1; } c[] = {
		{ 0, 0x0010, 0x0010 }, { RDMAP_RTR_SEND, 0xC010, 0x0010 }, { RDMAP_RTR_WRITE, 0x8010, 0x8010 }, { RDMAP_RTR_READ, 0x8010, 0x4010 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct irdma_cm_node node = lone_node(false);
		u8 want[24], words[4], got[24];

		node.rtr = c[i].rtr;
		node.mpa_reject = true;
		irdma_build_mpa_v2(&node, got, MPA_KEY_REPLY);
		v2_words(words, c[i].w0, c[i].w1);
		build(want, true, 0x70, 2, 4, words, 4);
		assert_memory_equal(got, want, 24);
	}
}

static void frame_follows_the_revision_and_the_peer(void **state)
{
	static const struct { u8 rev, key; bool peer_v2; int len; u8 s; } c[] = {
		{ 1, MPA_KEY_REQUEST, false, 20, 0 }, { 1, MPA_KEY_REPLY, false, 20, 0 }, { 1, MPA_KEY_REPLY, true, 20, 0 },
		{ 2, MPA_KEY_REQUEST, false, 24, 0x10 }, { 2, MPA_KEY_REPLY, true, 24, 0x10 },
		{ 2, MPA_KEY_REPLY, false, 20, 0 }, /* who sent no RFC 6581 bytes gets none */
	};

	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct irdma_cm_node node = lone_node(c[i].key == MPA_KEY_REQUEST);
		u8 out[MPA_START_HDR_MAX];
		struct irdma_kmem_info mem = { out, 0 };

		node.mpa_rev = c[i].rev;
		node.peer_v2_data = c[i].peer_v2;
		assert_int_equal(irdma_cm_build_mpa_frame(&node, &mem, c[i].key), c[i].len);
		assert_int_equal(mem.size, c[i].len);
		assert_int_equal(out[16] & 0x10, c[i].s);
		assert_int_equal(out[17], c[i].rev);
	}
}

/* ---- parse ---- */

static void whole_frames_in_both_roles(void **state)
{
	for (int active = 0; active < 2; active++)
		for (u8 rev = 1; rev <= 2; rev++) {
			struct irdma_cm_node node = lone_node(active);
			u8 frame[64];
			u32 type = 0, len = build(frame, active, 0x40, rev, 5, "hello", 5);

			node.mpa_rev = active ? rev : 2;
			assert_int_equal(parse_copy(&node, frame, len, &type), 0);
			assert_int_equal(type, IRDMA_MPA_REQUEST_ACCEPT);
			assert_int_equal(node.mpa_frame_len, 25);
			assert_int_equal(node.pdata_len, 5);
			assert_memory_equal(node.pdata, "hello", 5);
			assert_int_equal(node.mpa_rev, rev); /* a responder answers in kind */
			assert_int_equal(node.peer_rev, rev);
			assert_int_equal(node.peer_flags, 0x40);
			assert_false(node.p2p);
			assert_int_equal(node.peer_ird, MPA_V2_NOT_NEGOTIATED);
			free(node.pdata);
		}
}

/* Fault 2: the four RFC 6581 bytes handed up. */
static void private_data_is_without_the_rfc6581_bytes(void **state)
{
	for (int active = 0; active < 2; active++)
		for (u32 n = 0; n < 4; n++) {
			struct irdma_cm_node node = lone_node(active);
			u8 frame[64];
			u32 type, len = build_v2(frame, active, 0, 0x8010, 0x8010, "abc", n);

			assert_int_equal(parse_copy(&node, frame, len, &type), 0);
			assert_int_equal(node.pdata_len, n);
			if (n)
				assert_memory_equal(node.pdata, "abc", n);
			else
				assert_null(node.pdata);
			assert_int_equal(node.mpa_frame_len, 24 + n);
			free(node.pdata);
		}
}

static void private_data_lengths(void **state)
{
	static const struct { u32 body; bool v2; int want; } c[] = {
		{ 0, false, 0 }, { 1, false, 0 }, { 508, false, 0 }, { 511, false, 0 }, { 512, false, 0 }, { 513, false, -EPROTO }, { 65535, false, -EPROTO },
		{ 0, true, -EPROTO }, { 1, true, -EPROTO }, { 3, true, -EPROTO }, { 4, true, 0 }, { 5, true, 0 }, { 512, true, 0 }, { 513, true, -EPROTO },
	};
	static u8 frame[20 + 65535], body[65535];

	for (u32 i = 0; i < sizeof(body); i++)
		body[i] = (u8)(i % 251);
	for (int active = 0; active < 2; active++)
		for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
			struct irdma_cm_node node = lone_node(active);
			u32 type, len, skip = c[i].v2 ? 4 : 0;

			v2_words(body, 0x0004, 0x0004);
			len = build(frame, active, c[i].v2 ? 0x10 : 0, 2, c[i].body, body, c[i].body);
			assert_int_equal(parse_copy(&node, frame, len, &type), c[i].want);
			if (!c[i].want) {
				assert_int_equal(node.pdata_len, c[i].body - skip);
				if (c[i].body > skip)
					assert_memory_equal(node.pdata, body + skip, c[i].body - skip);
			} else {
				assert_int_equal(node.cause, CM_CAUSE_MPA_LENGTH);
				assert_int_equal(node.error, -EPROTO);
				assert_null(node.pdata);
				/* said as soon as the header is there, not when 65535 bytes have come */
				node = lone_node(active);
				assert_int_equal(parse_copy(&node, frame, 20, &type), -EPROTO);
			}
			free(node.pdata);
		}
}

static void every_truncation_waits_for_more(void **state)
{
	for (int active = 0; active < 2; active++)
		for (int v2 = 0; v2 < 2; v2++) {
			u8 frame[64];
			u32 type = 0xEE, len = v2 ? build_v2(frame, active, 0, 4, 4, "private", 7) : build(frame, active, 0, 2, 7, "private", 7);

			for (u32 n = 0; n < len; n++) {
				struct irdma_cm_node node = lone_node(active);

				assert_int_equal(parse_copy(&node, frame, n, &type), -EAGAIN);
				assert_int_equal(type, 0xEE);
				assert_null(node.pdata);
				assert_int_equal(node.mpa_frame_len, 0);
				assert_int_equal(node.cause, CM_CAUSE_NONE);
			}
		}
}

static void bytes_behind_the_frame_are_not_its_own(void **state)
{
	struct irdma_cm_node node = lone_node(false);
	u8 frame[64];
	u32 type, len = build_v2(frame, false, 0, 4, 4, "pd", 2);

	memcpy(frame + len, "stream", 6);
	assert_int_equal(parse_copy(&node, frame, len + 6, &type), 0);
	assert_int_equal(node.mpa_frame_len, len);
	assert_int_equal(node.pdata_len, 2);
	assert_memory_equal(node.pdata, "pd", 2);
	free(node.pdata);
}

static void a_wrong_key_is_seen_at_its_first_byte(void **state)
{
	for (int active = 0; active < 2; active++) {
		u8 frame[64];
		u32 type, len;

		for (u32 at = 0; at < 16; at++) {
			struct irdma_cm_node node = lone_node(active);

			len = build(frame, active, 0, 2, 0, NULL, 0);
			frame[at] ^= 0x20;
			assert_int_equal(parse_copy(&node, frame, at, &type), -EAGAIN);
			node = lone_node(active);
			assert_int_equal(parse_copy(&node, frame, at + 1, &type), -EPROTO);
			assert_int_equal(node.cause, CM_CAUSE_MPA_KEY);
		}
		/* the key of the other role */
		struct irdma_cm_node node = lone_node(active);

		len = build(frame, !active, 0, 2, 0, NULL, 0);
		assert_int_equal(parse_copy(&node, frame, len, &type), -EPROTO);
		assert_int_equal(node.cause, CM_CAUSE_MPA_KEY);
	}
}

static void revisions(void **state)
{
	static const struct { bool active; u8 ours, theirs; int want; } c[] = {
		{ false, 2, 0, -EPROTO }, { false, 2, 1, 0 }, { false, 2, 2, 0 }, { false, 2, 3, -EPROTO }, { false, 2, 255, -EPROTO },
		{ false, 1, 0, -EPROTO }, { false, 1, 1, 0 }, { false, 1, 2, -EPROTO },
		{ true, 2, 0, -EPROTO }, { true, 2, 1, -EPROTO }, { true, 2, 2, 0 }, { true, 2, 3, -EPROTO }, { true, 2, 255, -EPROTO },
		{ true, 1, 0, -EPROTO }, { true, 1, 1, 0 }, { true, 1, 2, -EPROTO },
	};

	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct irdma_cm_node node = lone_node(c[i].active);
		u8 frame[64];
		u32 type, len = build(frame, c[i].active, 0, c[i].theirs, 0, NULL, 0);

		node.mpa.rev = node.mpa_rev = c[i].ours;
		assert_int_equal(parse_copy(&node, frame, len, &type), c[i].want);
		assert_int_equal(node.cause, c[i].want ? CM_CAUSE_MPA_REVISION : CM_CAUSE_NONE);
		assert_int_equal(node.mpa_rev, c[i].want ? c[i].ours : c[i].theirs);
	}
}

/* In revision 1 S means nothing: it is a reserved bit, not checked on reception (RFC 5044 7.1.1). */
static void flags_by_role_and_revision(void **state)
{
	for (int active = 0; active < 2; active++)
		for (u32 flags = 0; flags < 256; flags++)
			for (u8 rev = 1; rev <= 2; rev++) {
				struct irdma_cm_node node = lone_node(active);
				bool reject = flags & 0x20, v2 = rev == 2 && (flags & 0x10);
				u8 frame[64];
				u32 type = 0, len = build(frame, active, (u8)flags, rev, 6, "\0\4\0\4zz", 6);
				int err;

				node.mpa_rev = active ? rev : 2;
				node.crc = node.mpa.crc = false;
				err = parse_copy(&node, frame, len, &type);
				if (!active && reject) {
					assert_int_equal(err, -EPROTO);
					assert_int_equal(node.cause, CM_CAUSE_MPA_FLAGS);
					continue;
				}
				assert_int_equal(err, 0);
				assert_int_equal(type, reject ? IRDMA_MPA_REQUEST_REJECT : IRDMA_MPA_REQUEST_ACCEPT);
				assert_int_equal(node.snd_markers, !!(flags & 0x80));
				assert_int_equal(node.crc, !!(flags & 0x40));
				assert_int_equal(node.peer_flags, flags);
				assert_int_equal(node.pdata_len, v2 ? 2 : 6);
				free(node.pdata);
			}
}

static void crc_if_either_asks_markers_as_each_receiver_asks(void **state)
{
	for (int ours = 0; ours < 4; ours++)
		for (int theirs = 0; theirs < 4; theirs++) {
			struct irdma_cm_node node = lone_node(false);
			u8 frame[64];
			u32 type, len = build(frame, false, (u8)((theirs & 1 ? 0x40 : 0) | (theirs & 2 ? 0x80 : 0)), 1, 0, NULL, 0);

			node.crc = node.mpa.crc = ours & 1;
			node.mpa.markers = ours & 2;
			assert_int_equal(parse_copy(&node, frame, len, &type), 0);
			assert_int_equal(node.crc, (ours | theirs) & 1);
			assert_int_equal(node.snd_markers, !!(theirs & 2));
			assert_int_equal(node.rcv_markers, !!(ours & 2));
		}
}

static void reject_with_private_data(void **state)
{
	struct irdma_cm_node node = lone_node(true);
	u8 frame[600], pdata[508];
	u32 type, len;

	memset(pdata, 0xA5, sizeof(pdata));
	len = build_v2(frame, true, 0x20, 0, 0x3FFE, pdata, 508); /* an ORD that would not fit does not matter */
	assert_int_equal(parse_copy(&node, frame, len, &type), 0);
	assert_int_equal(type, IRDMA_MPA_REQUEST_REJECT);
	assert_int_equal(node.pdata_len, 508);
	assert_memory_equal(node.pdata, pdata, 508);
	assert_int_equal(node.rtr, 0);
	free(node.pdata);
}

/* Each byte of the header and the RFC 6581 words set to each value: an answer, and bounded private data. */
static void any_byte_may_be_anything(void **state)
{
	for (int active = 0; active < 2; active++) {
		u8 frame[64], bytes[64];
		u32 type, len = build_v2(frame, active, 0x40, 0x8004, 0x8004, "private data", 12);

		for (u32 at = 0; at < len; at++)
			for (int v = 0; v < 256; v++) {
				struct irdma_cm_node node = lone_node(active);
				int err;

				memcpy(bytes, frame, len);
				bytes[at] = (u8)v;
				err = parse_copy(&node, bytes, len, &type);
				assert_true(err == 0 || err == -EAGAIN || err == -EPROTO);
				assert_int_equal(err == -EPROTO, node.cause != CM_CAUSE_NONE);
				assert_true(node.pdata_len <= len - 20);
				assert_true(node.ord_size <= 16 && node.ird_size <= 16);
				free(node.pdata);
			}
	}
}

static void parsing_again_replaces_the_private_data(void **state)
{
	struct irdma_cm_node node = lone_node(false);
	u8 frame[64];
	u32 type, len = build(frame, false, 0, 2, 5, "first", 5);

	assert_int_equal(parse_copy(&node, frame, len, &type), 0);
	len = build(frame, false, 0, 2, 0, NULL, 0);
	assert_int_equal(parse_copy(&node, frame, len, &type), 0);
	assert_null(node.pdata);
	assert_int_equal(node.pdata_len, 0);
}

static void no_memory_for_private_data(void **state)
{
	struct irdma_cm_node node = lone_node(false);
	u8 frame[64];
	u32 type, len = build(frame, false, 0, 2, 5, "first", 5);

	no_memory = true;
	assert_int_equal(parse_copy(&node, frame, len, &type), -ENOMEM);
	no_memory = false;
	assert_int_equal(node.cause, CM_CAUSE_NO_RESOURCES);
	assert_int_equal(node.error, -ENOMEM);
	assert_int_equal(node.pdata_len, 0);
}

/* ---- negotiate ---- */

static u8 best(u8 rtr)
{
	static const u8 order[] = { RDMAP_RTR_WRITE, RDMAP_RTR_READ, RDMAP_RTR_SEND };

	for (int i = 0; i < 3; i++)
		if (rtr & order[i])
			return order[i];
	return 0;
}

static int negotiate(struct irdma_cm_node *node, bool a, u8 rtr, u16 ird, u16 ord)
{
	u8 *words = malloc(4);
	int err;

	v2_words(words, (u16)(ird | (a ? 0x8000 : 0) | (rtr & RDMAP_RTR_SEND ? 0x4000 : 0)),
		 (u16)(ord | (rtr & RDMAP_RTR_WRITE ? 0x8000 : 0) | (rtr & RDMAP_RTR_READ ? 0x4000 : 0)));
	err = irdma_negotiate_mpa_v2_ird_ord(node, words);
	free(words);
	return err;
}

static void every_offer_against_every_acceptance(void **state)
{
	for (int active = 0; active < 2; active++)
		for (u8 said = 0; said <= RDMAP_RTR_ALL; said++)
			for (u8 ours = 0; ours <= RDMAP_RTR_ALL; ours++) {
				struct irdma_cm_node node = lone_node(active);
				int err;

				node.mpa.rtr = ours;
				node.rtr_offered = active ? ours : 0;
				err = negotiate(&node, true, said, 8, 8);
				assert_int_equal(err, said & ours ? 0 : -EPROTO);
				assert_int_equal(node.rtr, best(said & ours));
				assert_int_equal(node.p2p, !!(said & ours));
				assert_int_equal(node.cause, said & ours ? CM_CAUSE_NONE : CM_CAUSE_MPA_RTR);
				if (!active)
					assert_int_equal(node.rtr_offered, said);
			}
}

/* Fault 8: a peer in client-server mode refused. */
static void without_a_it_is_client_server_not_refused(void **state)
{
	for (int active = 0; active < 2; active++)
		for (u8 said = 0; said <= RDMAP_RTR_ALL; said++) {
			struct irdma_cm_node node = lone_node(active);

			assert_int_equal(negotiate(&node, false, said, 8, 8), 0);
			assert_false(node.p2p);
			assert_int_equal(node.rtr, 0);
		}
	/* and a responder that was told client-server serves a peer-to-peer initiator so */
	struct irdma_cm_node node = lone_node(false);

	node.mpa.p2p = false;
	assert_int_equal(negotiate(&node, true, RDMAP_RTR_ALL, 8, 8), 0);
	assert_false(node.p2p);
	assert_int_equal(node.rtr, 0);
}

static void responder_depths(void **state)
{
	static const struct { u16 ird, ord, peer_ird, peer_ord; u8 rtr; u16 want_ird, want_ord; } c[] = {
		{ 16, 16, 8, 8, RDMAP_RTR_WRITE, 16, 8 }, { 16, 4, 8, 8, RDMAP_RTR_WRITE, 16, 4 }, { 16, 16, 0, 0, RDMAP_RTR_WRITE, 16, 0 },
		{ 0, 0, 8, 8, RDMAP_RTR_READ, 1, 0 }, { 0, 0, 8, 8, RDMAP_RTR_WRITE, 0, 0 }, { 2, 2, 0, 8, RDMAP_RTR_READ, 2, 0 },
		{ 16, 16, 0x3FFF, 0x3FFF, RDMAP_RTR_WRITE, 16, 16 }, { 0, 16, 0x3FFF, 0x3FFF, RDMAP_RTR_READ, 1, 16 },
		{ 4, 16, 8, 0x3FFE, RDMAP_RTR_SEND, 4, 8 }, { 16, 0x3FFE, 0x3FFE, 0, RDMAP_RTR_SEND, 16, 0x3FFE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct irdma_cm_node node = lone_node(false);

		node.ird_size = c[i].ird;
		node.ord_size = c[i].ord;
		assert_int_equal(negotiate(&node, true, c[i].rtr, c[i].peer_ird, c[i].peer_ord), 0);
		assert_int_equal(node.ird_size, c[i].want_ird);
		assert_int_equal(node.ord_size, c[i].want_ord);
		assert_int_equal(node.peer_ird, c[i].peer_ird);
		assert_int_equal(node.peer_ord, c[i].peer_ord);
	}
}

static void initiator_depths(void **state)
{
	static const struct { u16 ird, ord, peer_ird, peer_ord; u8 rtr; int want; u16 want_ord; } c[] = {
		{ 16, 16, 16, 16, RDMAP_RTR_WRITE, 0, 16 }, { 16, 16, 8, 16, RDMAP_RTR_WRITE, 0, 8 }, { 16, 16, 8, 17, RDMAP_RTR_WRITE, -EPROTO, 0 },
		{ 0, 16, 8, 1, RDMAP_RTR_WRITE, -EPROTO, 0 }, { 0, 0, 0, 0, RDMAP_RTR_WRITE, 0, 0 }, { 16, 16, 0x3FFF, 0x3FFF, RDMAP_RTR_WRITE, 0, 16 },
		{ 0, 16, 8, 0x3FFF, RDMAP_RTR_WRITE, 0, 8 }, { 16, 16, 0, 4, RDMAP_RTR_READ, -EPROTO, 0 }, { 16, 16, 1, 4, RDMAP_RTR_READ, 0, 1 },
		{ 16, 16, 0, 4, RDMAP_RTR_SEND, 0, 0 }, { 16, 16, 0x3FFF, 4, RDMAP_RTR_READ, 0, 16 }, { 16, 16, 8, 0x3FFE, RDMAP_RTR_WRITE, -EPROTO, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct irdma_cm_node node = lone_node(true);

		node.ird_size = c[i].ird;
		node.ord_size = c[i].ord;
		assert_int_equal(negotiate(&node, true, c[i].rtr, c[i].peer_ird, c[i].peer_ord), c[i].want);
		assert_int_equal(node.ird_size, c[i].ird);
		if (c[i].want)
			assert_int_equal(node.cause, CM_CAUSE_MPA_IRD);
		else
			assert_int_equal(node.ord_size, c[i].want_ord);
	}
}

static void initiator_that_did_not_offer_takes_no_rtr(void **state)
{
	struct irdma_cm_node node = lone_node(true);

	node.rtr_offered = 0; /* client-server was asked for */
	assert_int_equal(negotiate(&node, true, RDMAP_RTR_WRITE, 8, 8), -EPROTO);
	assert_int_equal(node.cause, CM_CAUSE_MPA_RTR);
}

/* ---- send ---- */

struct rig {
	struct fx fx;
	struct endpoint ep; /* of host 0: connects or listens */
	struct fx_peer p;
	struct fx_tap tap;
};

static void rig_up(struct rig *r, u8 gen)
{
	fx_up(&r->fx, gen, 1);
	fx_silence(&r->fx);
	ep_init(&r->ep, &r->fx, 0);
	fx_tap_on(&r->fx, 0, &r->tap);
}

static void rig_active(struct rig *r, u8 gen)
{
	rig_up(r, gen);
	fx_peer_active(&r->p, &r->fx, &r->ep, true, 5000);
}

static void rig_passive(struct rig *r, u8 gen)
{
	rig_up(r, gen);
	ep_listen(&r->fx, &r->ep, 0, true, 7000);
	fx_peer_passive(&r->p, &r->fx, true, 5000);
}

static void rig_down(struct rig *r)
{
	bool active = r->p.node->active;

	fx_peer_done(&r->p);
	if (active)
		cm_abandon(&r->ep.id);
	else
		irdma_destroy_listen(&r->ep.id);
	fx_tap_off(&r->tap);
	ep_fini(&r->fx, &r->ep);
	fx_run(&r->fx, 200000);
	assert_int_equal(fx_stats(&r->fx, 0).nodes_now, 0);
	assert_int_equal(fx_bufs(&r->fx), 0);
	fx_down(&r->fx);
}

static void request_goes_out_with_private_data(void **state)
{
	for (u8 gen = IRDMA_GEN_1; gen <= IRDMA_GEN_2; gen++)
		for (u8 rev = 1; rev <= 2; rev++) {
			u32 max = rev == 2 ? 508 : 512;
			u8 pdata[512], want[532], words[4];
			struct rig r;

			memset(pdata, 0xC3, sizeof(pdata));
			rig_up(&r, gen);
			r.ep.id.mpa.rev = rev;
			r.ep.param.private_data = pdata;
			r.ep.param.private_data_len = (u16)max;
			fx_peer_active(&r.p, &r.fx, &r.ep, true, 5000);
			v2_words(words, 0xC008, 0xC008);
			build(want, false, rev == 2 ? 0x50 : 0x40, rev, 512, words, rev == 2 ? 4 : 0);
			assert_int_equal(fx_last(&r.tap)->datalen, 532);
			assert_memory_equal(fx_last(&r.tap)->data, want, rev == 2 ? 24 : 20);
			assert_memory_equal(fx_last(&r.tap)->data + 532 - max, pdata, max);
			assert_int_equal(fx_last(&r.tap)->flags, PKT_ACK | PKT_PSH);
			assert_int_equal(fx_last(&r.tap)->ack, FX_PEER_ISS + 1);
			assert_non_null(r.p.node->send_entry.sqbuf);
			assert_int_equal(r.p.node->mpa_sent, 1);
			rig_down(&r);
		}
}

static void no_buffer_no_request(void **state)
{
	struct irdma_sc_vsi *vsi;
	struct rig r;

	rig_active(&r, IRDMA_GEN_1);
	vsi = &r.fx.host[0].dev->vsi;
	vsi->small.limit = vsi->small.used; /* the kept request is out */
	assert_int_equal(irdma_send_mpa_request(r.p.node), -ENOMEM);
	assert_int_equal(r.p.node->mpa_sent, 1);
	assert_int_equal(r.p.node->tcp_cntxt.loc_seq_num, r.p.node->tcp_cntxt.iss + 25);
	vsi->small.limit = 0;
	rig_down(&r);
}

static void reject_has_r_fin_and_private_data(void **state)
{
	static const u8 plen[] = { 0, 1, 255 };

	for (u8 gen = IRDMA_GEN_1; gen <= IRDMA_GEN_2; gen++)
		for (size_t i = 0; i < ARRAY_SIZE(plen); i++)
			for (int fin = 0; fin < 2; fin++) {
				u8 pdata[255], want[24], words[4], frame[64];
				const struct pkt *out;
				struct rig r;

				memset(pdata, 0x3C, sizeof(pdata));
				rig_passive(&r, gen);
				fx_peer_send(&r.p, PKT_ACK | PKT_PSH, frame, build_v2(frame, false, 0, 0x8008, 0x8008, NULL, 0));
				assert_int_equal(r.p.node->state, IRDMA_CM_STATE_MPAREQ_RCVD);
				if (fin)
					fx_peer_send(&r.p, PKT_FIN | PKT_ACK, NULL, 0);
				assert_int_equal(irdma_send_mpa_reject(r.p.node, plen[i] ? pdata : NULL, plen[i]), 0);
				out = fx_last(&r.tap);
				v2_words(words, 0x8000 | 128, 0x8000 | 8);
				build(want, true, 0x70, 2, 4u + plen[i], words, 4);
				assert_int_equal(out->flags, PKT_FIN | PKT_ACK | PKT_PSH);
				assert_int_equal(out->datalen, 24u + plen[i]);
				assert_memory_equal(out->data, want, 24);
				assert_memory_equal(out->data + 24, pdata, plen[i]);
				assert_int_equal(r.p.node->state, fin ? IRDMA_CM_STATE_LAST_ACK : IRDMA_CM_STATE_FIN_WAIT1);
				assert_non_null(r.p.node->send_entry.sqbuf);
				assert_true(r.p.node->mpa_reject);
				fx_peer_send(&r.p, PKT_ACK, NULL, 0);
				assert_int_equal(r.p.node->state, fin ? IRDMA_CM_STATE_CLOSED : IRDMA_CM_STATE_FIN_WAIT2);
				cm_node_untie(r.p.node); /* as irdma_cm_reject() does */
				rig_down(&r);
			}
}

static void no_buffer_no_reject(void **state)
{
	struct irdma_sc_vsi *vsi;
	struct irdma_puda_buf *held;
	u8 frame[64];
	struct rig r;

	rig_passive(&r, IRDMA_GEN_1);
	fx_peer_send(&r.p, PKT_ACK | PKT_PSH, frame, build(frame, false, 0, 1, 0, NULL, 0));
	vsi = &r.fx.host[0].dev->vsi;
	held = rnic_buf_get(vsi, 0);
	vsi->small.limit = 1;
	assert_int_equal(irdma_send_mpa_reject(r.p.node, NULL, 0), -ENOMEM);
	assert_int_equal(r.p.node->state, IRDMA_CM_STATE_MPAREQ_RCVD);
	vsi->small.limit = 0;
	rnic_buf_put(held);
	rig_down(&r);
}

/* ---- receive ---- */

/* Fault 3: a frame split over segments, or followed by more bytes, is an error. All splits into one, two and three. */
static void request_in_any_segments_with_stream_bytes_behind(void **state)
{
	u8 bytes[64];
	u32 len, frame_len, rem_port = 1000;
	struct endpoint l;
	struct fx_peer p;
	struct fx fx;

	frame_len = build_v2(bytes, false, 0x40, 0x8004, 0x8004, "hello", 5);
	memcpy(bytes + frame_len, "xyz", 3);
	len = frame_len + 3;
	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	ep_init(&l, &fx, 0);
	ep_listen(&fx, &l, 0, true, 7000);
	for (u32 a = 1; a <= len; a++)
		for (u32 b = a; b <= len; b++) {
			l.nevents = 0;
			fx_peer_passive(&p, &fx, true, (u16)rem_port++);
			fx_peer_send(&p, PKT_ACK | PKT_PSH, bytes, a);
			assert_int_equal(p.node->state, a < frame_len ? IRDMA_CM_STATE_ESTABLISHED : IRDMA_CM_STATE_MPAREQ_RCVD);
			if (b > a)
				fx_peer_send(&p, PKT_ACK, bytes + a, b - a);
			if (len > b)
				fx_peer_send(&p, PKT_ACK, bytes + b, len - b);
			assert_int_equal(p.node->state, IRDMA_CM_STATE_MPAREQ_RCVD);
			assert_int_equal(p.node->pdata_len, 5);
			assert_memory_equal(p.node->pdata, "hello", 5);
			assert_int_equal(p.node->rx_len, 3);
			assert_memory_equal(p.node->rx_buf, "xyz", 3);
			assert_int_equal(p.node->tcp_cntxt.rcv_nxt, FX_PEER_ISS + 1 + len);
			assert_int_equal(p.node->rtr, RDMAP_RTR_WRITE);
			assert_int_equal(l.nevents, 0);
			fx_run(&fx, 0);
			assert_int_equal(l.nevents, 1);
			assert_int_equal(l.ev[0].event, IW_CM_EVENT_CONNECT_REQUEST);
			assert_memory_equal(l.pdata[0], "hello", 5);
			irdma_cm_close(p.node);
			if (p.node->state != IRDMA_CM_STATE_CLOSED)
				irdma_send_reset(p.node);
			fx_peer_done(&p);
		}
	irdma_destroy_listen(&l.id);
	ep_fini(&fx, &l);
	fx_down(&fx);
}

static void reply_in_any_segments_with_stream_bytes_behind(void **state)
{
	u8 bytes[64];
	u32 len, frame_len, loc_port = 1000;
	struct endpoint c;
	struct fx_peer p;
	struct fx fx;

	frame_len = build_v2(bytes, true, 0x40, 0x8004, 0x8004, "hi", 2);
	memcpy(bytes + frame_len, "xyz", 3);
	len = frame_len + 3;
	fx_up(&fx, IRDMA_GEN_2, 1);
	fx_silence(&fx);
	ep_init(&c, &fx, 0);
	for (u32 a = 1; a <= len; a++)
		for (u32 b = a; b <= len; b++) {
			fx_peer_active(&p, &fx, &c, true, (u16)loc_port++);
			fx_peer_send(&p, PKT_ACK | PKT_PSH, bytes, a);
			assert_int_equal(p.node->state, a < frame_len ? IRDMA_CM_STATE_MPAREQ_SENT : IRDMA_CM_STATE_OFFLOADED);
			if (b > a)
				fx_peer_send(&p, PKT_ACK, bytes + a, b - a);
			if (len > b)
				fx_peer_send(&p, PKT_ACK, bytes + b, len - b);
			assert_int_equal(p.node->state, IRDMA_CM_STATE_OFFLOADED);
			assert_int_equal(p.node->pdata_len, 2);
			assert_memory_equal(p.node->pdata, "hi", 2);
			assert_int_equal(p.node->rx_len, 3);
			assert_memory_equal(p.node->rx_buf, "xyz", 3);
			assert_int_equal(p.node->ord_size, 4);
			assert_null(p.node->send_entry.sqbuf); /* the reply acknowledges the request */
			fx_peer_done(&p);
			cm_abandon(&c.id);
			fx_run(&fx, 0);
			assert_int_equal(c.nevents, 0);
		}
	ep_fini(&fx, &c);
	fx_down(&fx);
}

/* Overlapping retransmissions: what was seen before is skipped, what lies behind a gap is not taken. */
static void only_the_next_bytes_count(void **state)
{
	u8 bytes[64];
	u32 len = build(bytes, false, 0, 2, 4, "data", 4), start;
	struct rig r;

	rig_passive(&r, IRDMA_GEN_1);
	start = r.p.seq;
	fx_peer_send(&r.p, PKT_ACK, bytes, 10);
	r.p.seq = start;
	fx_peer_send(&r.p, PKT_ACK, bytes, 10); /* again */
	assert_int_equal(r.p.node->rx_len, 10);
	r.p.seq = start + 12;
	fx_peer_send(&r.p, PKT_ACK, bytes + 12, 4); /* behind a gap */
	assert_int_equal(r.p.node->rx_len, 10);
	assert_int_equal(fx_last(&r.tap)->ack, start + 10);
	r.p.seq = start + 5;
	fx_peer_send(&r.p, PKT_ACK, bytes + 5, len - 5); /* overlaps by five */
	assert_int_equal(r.p.node->state, IRDMA_CM_STATE_MPAREQ_RCVD);
	assert_memory_equal(r.p.node->pdata, "data", 4);
	assert_int_equal(r.p.node->rx_len, 0);
	rig_down(&r);
}

/* Called by itself with what irdma_handle_ack_pkt() would have sorted out. */
static void segments_that_hold_nothing_new_change_nothing(void **state)
{
	static const struct { s32 seq; u32 len; } c[] = { { 1, 4 }, { -4, 4 }, { -8, 4 }, { 0, 0 }, { 100, 4 } };
	struct rig r;

	rig_passive(&r, IRDMA_GEN_1);
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct pkt pkt = { .seq = r.p.node->tcp_cntxt.rcv_nxt + (u32)c[i].seq, .data = (const u8 *)"MPA ID", .datalen = c[i].len };
		struct irdma_puda_buf buf = { .pkt = &pkt };
		u32 n = r.tap.n;

		irdma_handle_rcv_mpa(r.p.node, &buf);
		assert_int_equal(r.p.node->tcp_cntxt.rcv_nxt, FX_PEER_ISS + 1);
		assert_int_equal(r.p.node->rx_len, 0);
		assert_int_equal(r.tap.n, n);
	}
	rig_down(&r);
}

/* A peer that fills the window before we accept: no more than was announced is kept. */
static void stream_bytes_are_bounded_by_the_window(void **state)
{
	u8 bytes[64], chunk[1460];
	struct rig r;

	memset(chunk, 7, sizeof(chunk));
	rig_passive(&r, IRDMA_GEN_1);
	fx_peer_send(&r.p, PKT_ACK, bytes, build(bytes, false, 0, 1, 0, NULL, 0));
	for (int i = 0; i < 10; i++)
		fx_peer_send(&r.p, PKT_ACK, chunk, sizeof(chunk));
	assert_int_equal(r.p.node->rx_len, CM_RX_MAX);
	assert_int_equal(cm_rcv_room(r.p.node), 0);
	assert_int_equal(fx_last(&r.tap)->window, 0);
	assert_int_equal(fx_last(&r.tap)->ack, FX_PEER_ISS + 1 + 20 + CM_RX_MAX);
	rig_down(&r);
}

static void request_complete_waits_for_the_upper_layer_without_limit(void **state)
{
	u8 bytes[64];
	struct rig r;

	rig_passive(&r, IRDMA_GEN_1);
	assert_true(r.p.node->stage_at_ns != 0);
	fx_peer_send(&r.p, PKT_ACK, bytes, build(bytes, false, 0, 1, 0, NULL, 0));
	assert_int_equal(r.p.node->stage_at_ns, 0);
	rig_down(&r);
}

/* The upper layer takes its time: the request is acknowledged after 40 ms, once; a repeated one at once. */
static void request_is_acknowledged_by_the_answer_or_the_timer(void **state)
{
	struct endpoint child;
	u8 bytes[64];
	struct rig r;
	u32 len, n;

	rig_passive(&r, IRDMA_GEN_1);
	ep_init(&child, &r.fx, 0);
	r.ep.child = &child;
	len = build(bytes, false, 0, 1, 0, NULL, 0);
	n = r.tap.n;
	fx_peer_send(&r.p, PKT_ACK, bytes, len);
	fx_run(&r.fx, CM_DELAYED_ACK_MS - 1);
	assert_int_equal(r.p.node->state, IRDMA_CM_STATE_MPAREQ_RCVD);
	assert_int_equal(r.tap.n, n);
	r.p.seq -= len;
	fx_peer_send(&r.p, PKT_ACK, bytes, len);
	assert_int_equal(r.tap.n, n + 1);
	fx_run(&r.fx, 1000);
	assert_int_equal(r.tap.n, n + 1); /* nothing is owed any more */
	assert_int_equal(fx_last(&r.tap)->ack, r.p.seq);
	fx_peer_send(&r.p, PKT_ACK, "behind", 6);
	assert_int_equal(r.tap.n, n + 2);
	assert_int_equal(irdma_reject(&child.id, NULL, 0), 0);
	assert_int_equal(fx_last(&r.tap)->ack, r.p.seq);
	ep_fini(&r.fx, &child);
	rig_down(&r);
}

static void unanswered_request_is_acknowledged_after_a_while(void **state)
{
	struct endpoint child;
	u8 bytes[64];
	struct rig r;
	u32 n;

	rig_passive(&r, IRDMA_GEN_1);
	ep_init(&child, &r.fx, 0);
	r.ep.child = &child;
	n = r.tap.n;
	fx_peer_send(&r.p, PKT_ACK, bytes, build(bytes, false, 0, 1, 0, NULL, 0));
	fx_run(&r.fx, 10 * CM_DELAYED_ACK_MS);
	assert_int_equal(r.tap.n, n + 1);
	assert_int_equal(fx_last(&r.tap)->flags, PKT_ACK);
	assert_int_equal(fx_last(&r.tap)->ack, r.p.seq);
	assert_in_range(r.tap.f[n].at_ns - r.tap.f[n - 1].at_ns, CM_DELAYED_ACK_MS * NSEC_PER_MSEC, (CM_DELAYED_ACK_MS + 1) * NSEC_PER_MSEC);
	ep_fini(&r.fx, &child);
	rig_down(&r);
}

/* Without an RTR nobody else acknowledges the reply. */
static void reply_is_acknowledged_unless_the_rtr_does(void **state)
{
	for (int rtr = 0; rtr < 2; rtr++) {
		u8 bytes[64];
		struct rig r;
		u32 n;

		rig_active(&r, IRDMA_GEN_1);
		n = r.tap.n;
		fx_peer_send(&r.p, PKT_ACK, bytes, build_v2(bytes, true, 0, rtr ? 0x8004 : 4, rtr ? 0x8004 : 4, NULL, 0));
		assert_int_equal(r.p.node->state, IRDMA_CM_STATE_OFFLOADED);
		assert_int_equal(r.p.node->stage_at_ns, 0);
		assert_int_equal(r.tap.n - n, rtr ? 0 : 1);
		rig_down(&r);
	}
}

static void reject_is_told_with_its_private_data(void **state)
{
	u8 bytes[64];
	struct rig r;

	rig_active(&r, IRDMA_GEN_1);
	fx_peer_send(&r.p, PKT_ACK, bytes, build_v2(bytes, true, 0x20, 0, 0, "go away", 7));
	assert_int_equal(r.p.node->state, IRDMA_CM_STATE_MPAREJ_RCVD);
	fx_run(&r.fx, 0);
	assert_int_equal(r.ep.nevents, 1);
	assert_int_equal(r.ep.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
	assert_int_equal(r.ep.ev[0].status, -ECONNREFUSED);
	assert_int_equal(r.ep.ev[0].neg.cause, CM_CAUSE_REJECTED);
	assert_int_equal(r.ep.ev[0].private_data_len, 7);
	assert_memory_equal(r.ep.pdata[0], "go away", 7);
	rig_down(&r);
}

/* Frames that end a connection: reset, told with -EPROTO and the cause on the active side. */
static void bad_frames_reset_and_are_told(void **state)
{
	static const struct { u8 at, value; enum cm_cause cause; } c[] = {
		{ 0, 'X', CM_CAUSE_MPA_KEY }, { 15, 'X', CM_CAUSE_MPA_KEY }, { 17, 0, CM_CAUSE_MPA_REVISION }, { 17, 3, CM_CAUSE_MPA_REVISION },
		{ 18, 2, CM_CAUSE_MPA_LENGTH }, { 18, 255, CM_CAUSE_MPA_LENGTH },
	};

	for (int active = 0; active < 2; active++)
		for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
			u8 bytes[64];
			u32 len = build_v2(bytes, active, 0, 4, 4, "abc", 3);
			struct rig r;

			bytes[c[i].at] = c[i].value;
			if (active)
				rig_active(&r, IRDMA_GEN_2);
			else
				rig_passive(&r, IRDMA_GEN_2);
			fx_peer_send(&r.p, PKT_ACK, bytes, len);
			assert_int_equal(r.p.node->state, IRDMA_CM_STATE_CLOSED);
			assert_int_equal(r.p.node->cause, c[i].cause);
			assert_int_equal(fx_last(&r.tap)->flags, PKT_RST | PKT_ACK);
			fx_run(&r.fx, 0);
			assert_int_equal(r.ep.nevents, active ? 1 : 0);
			if (active) {
				assert_int_equal(r.ep.ev[0].status, -EPROTO);
				assert_int_equal(r.ep.ev[0].neg.cause, c[i].cause);
			}
			assert_int_equal(active ? fx_stats(&r.fx, 0).connect_errs : fx_stats(&r.fx, 0).passive_errs, 1);
			rig_down(&r);
		}
}

/* ---- Terminate ---- */

/* What the peer's MPA makes of the stream: a Terminate with the LLP code. */
static void check_terminate(const u8 *data, u32 len, bool crc, bool markers, u8 code)
{
	const u8 *ulpdu = NULL;
	struct rdmap_error err;
	struct ddp_hdr h;
	struct mpa_rx rx;
	u32 n = 0;

	mpa_rx_init(&rx, crc, markers);
	assert_int_equal(mpa_rx_feed(&rx, data, len, &ulpdu, &n), len);
	assert_non_null(ulpdu);
	assert_int_equal(ddp_parse(ulpdu, n, &h, &err), 0);
	assert_int_equal(h.opcode, RDMAP_TERMINATE);
	assert_int_equal(h.msn, 1);
	assert_int_equal(rdmap_parse_terminate(&h, &err), 0);
	assert_int_equal(err.layer, TERM_LAYER_LLP);
	assert_int_equal(err.etype, 0);
	assert_int_equal(err.code, code);
	mpa_rx_destroy(&rx);
}

static void insufficient_ird_is_told_by_terminate(void **state)
{
	for (int markers = 0; markers < 2; markers++) {
		u8 bytes[64];
		const struct pkt *out;
		struct rig r;

		rig_active(&r, IRDMA_GEN_1);
		fx_peer_send(&r.p, PKT_ACK, bytes, build_v2(bytes, true, markers ? 0x80 : 0, 0x8004, 0x8009, NULL, 0)); /* ORD 9 > our IRD 8 */
		out = fx_last(&r.tap);
		assert_int_equal(out->flags, PKT_FIN | PKT_ACK | PKT_PSH);
		check_terminate(out->data, out->datalen, true, markers, TERM_MPA_IRD);
		assert_int_equal(r.p.node->state, IRDMA_CM_STATE_FIN_WAIT1);
		assert_int_equal(r.p.node->stage_at_ns, 0);
		fx_run(&r.fx, 0);
		assert_int_equal(r.ep.nevents, 1);
		assert_int_equal(r.ep.ev[0].status, -EPROTO);
		assert_int_equal(r.ep.ev[0].neg.cause, CM_CAUSE_MPA_IRD);
		assert_int_equal(fx_stats(&r.fx, 0).connect_errs, 1);
		rig_down(&r);
	}
}

static void no_matching_rtr_is_told_by_reply_and_terminate(void **state)
{
	u8 bytes[64], want[24], words[4];
	const struct pkt *out;
	struct rig r;

	rig_up(&r, IRDMA_GEN_2);
	r.ep.id.mpa.rtr = RDMAP_RTR_READ;
	ep_listen(&r.fx, &r.ep, 0, true, 7000);
	fx_peer_passive(&r.p, &r.fx, true, 5000);
	fx_peer_send(&r.p, PKT_ACK, bytes, build_v2(bytes, false, 0, 0xC004, 0x8004, NULL, 0)); /* offers Send and Write */
	out = fx_last(&r.tap);
	assert_int_equal(out->flags, PKT_FIN | PKT_ACK | PKT_PSH);
	v2_words(words, 128, 128);
	build(want, true, 0x70, 2, 4, words, 4); /* R: an initiator must not take it for client-server mode */
	assert_memory_equal(out->data, want, 20);
	assert_int_equal(out->data[20] & 0xC0, 0);
	assert_int_equal(out->data[22] & 0xC0, 0);
	check_terminate(out->data + 24, out->datalen - 24, true, false, TERM_MPA_RTR);
	assert_int_equal(r.p.node->state, IRDMA_CM_STATE_FIN_WAIT1);
	assert_int_equal(fx_stats(&r.fx, 0).passive_errs, 1);
	/* A peer that never answers our FIN holds neither a place in the backlog nor the listener's id. */
	assert_int_equal(r.p.node->listener->pending, 0);
	assert_null(r.p.node->cm_id);
	fx_run(&r.fx, 0);
	assert_int_equal(r.ep.nevents, 0);
	rig_down(&r);
}

static void terminate_after_the_peers_fin_is_the_last_word(void **state)
{
	struct rig r;

	rig_active(&r, IRDMA_GEN_1);
	r.p.node->peer_fin = true;
	assert_int_equal(cm_send_terminate(r.p.node, TERM_MPA_RTR), 0);
	assert_int_equal(r.p.node->state, IRDMA_CM_STATE_LAST_ACK);
	rig_down(&r);
}

/* No buffer for the Terminate: the RST needs none that is large, or is as good as lost; the upper layer is told in any case. */
static void without_a_buffer_for_the_terminate_it_is_a_reset(void **state)
{
	for (int active = 0; active < 2; active++) {
		struct irdma_puda_buf *held;
		struct irdma_sc_vsi *vsi;
		u8 bytes[64];
		struct rig r;

		rig_up(&r, IRDMA_GEN_1);
		r.ep.id.mpa.rtr = RDMAP_RTR_READ;
		if (active) {
			fx_peer_active(&r.p, &r.fx, &r.ep, true, 5000);
		} else {
			ep_listen(&r.fx, &r.ep, 0, true, 7000);
			fx_peer_passive(&r.p, &r.fx, true, 5000);
		}
		vsi = &r.fx.host[0].dev->vsi;
		held = rnic_buf_get(vsi, 0);
		irdma_free_retrans_entry(r.p.node);
		vsi->small.limit = vsi->small.used + 1; /* one, for what is received */
		fx_peer_send(&r.p, PKT_ACK, bytes, build_v2(bytes, active, 0, 0x8004, 0x8004, NULL, 0));
		assert_int_equal(r.p.node->state, IRDMA_CM_STATE_CLOSED);
		assert_int_equal(r.p.node->cause, CM_CAUSE_MPA_RTR);
		vsi->small.limit = 0;
		rnic_buf_put(held);
		fx_run(&r.fx, 0);
		assert_int_equal(r.ep.nevents, active);
		if (active)
			assert_int_equal(r.ep.ev[0].neg.cause, CM_CAUSE_MPA_RTR);
		rig_down(&r);
	}
}

static void terminate_that_does_not_fit_is_not_sent(void **state)
{
	struct irdma_cm_node node = lone_node(true);
	u8 out[16];

	assert_true(build_terminate(&node, TERM_MPA_IRD, out, sizeof(out)) < 0);
}

/* ---- no memory ---- */

static void no_memory_while_assembling(void **state)
{
	for (int more = 0; more < 2; more++)
		for (int active = 0; active < 2; active++) {
			u8 bytes[64];
			u32 len = build_v2(bytes, active, 0, 0x8004, 0x8004, NULL, 0);
			struct rig r;

			if (active)
				rig_active(&r, IRDMA_GEN_1);
			else
				rig_passive(&r, IRDMA_GEN_1);
			if (more)
				fx_peer_send(&r.p, PKT_ACK, bytes, 3);
			no_memory = true;
			fx_peer_send(&r.p, PKT_ACK, bytes + (more ? 3 : 0), len - 4);
			no_memory = false;
			assert_int_equal(r.p.node->state, IRDMA_CM_STATE_CLOSED);
			assert_int_equal(r.p.node->cause, CM_CAUSE_NO_RESOURCES);
			fx_run(&r.fx, 0);
			assert_int_equal(r.ep.nevents, active);
			if (active)
				assert_int_equal(r.ep.ev[0].status, -ENOMEM);
			rig_down(&r);
		}
}

static void no_memory_for_stream_bytes_means_not_taken(void **state)
{
	u8 bytes[64];
	struct rig r;
	u32 next;

	rig_passive(&r, IRDMA_GEN_1);
	fx_peer_send(&r.p, PKT_ACK, bytes, build(bytes, false, 0, 1, 0, NULL, 0));
	next = r.p.seq;
	no_memory = true;
	fx_peer_send(&r.p, PKT_ACK, "stream", 6);
	no_memory = false;
	assert_int_equal(r.p.node->state, IRDMA_CM_STATE_MPAREQ_RCVD);
	assert_int_equal(r.p.node->tcp_cntxt.rcv_nxt, next);
	assert_int_equal(fx_last(&r.tap)->ack, next);
	r.p.seq = next;
	fx_peer_send(&r.p, PKT_ACK, "stream", 6); /* the peer sends it again */
	assert_int_equal(r.p.node->rx_len, 6);
	assert_memory_equal(r.p.node->rx_buf, "stream", 6);
	rig_down(&r);
}

static void no_event_for_a_request_resets_it(void **state)
{
	struct irdma_cm_core *core;
	u8 bytes[64];
	struct rig r;

	rig_passive(&r, IRDMA_GEN_1);
	core = r.fx.host[0].dev->cm_core;
	core->event_pool.limit = core->event_pool.used;
	pool_put(&core->event_pool, r.p.node->spare);
	r.p.node->spare = NULL;
	core->event_pool.limit = 1;
	assert_non_null(pool_get(&core->event_pool));
	fx_peer_send(&r.p, PKT_ACK, bytes, build(bytes, false, 0, 1, 0, NULL, 0));
	assert_int_equal(r.p.node->state, IRDMA_CM_STATE_CLOSED);
	assert_int_equal(r.p.node->cause, CM_CAUSE_NO_RESOURCES);
	core->event_pool.limit = 0;
	core->event_pool.used = 0;
	rig_down(&r);
}

static void no_event_for_a_reply_resets_it(void **state)
{
	u8 bytes[64];
	struct rig r;

	rig_active(&r, IRDMA_GEN_1);
	cm_node_untie(r.p.node); /* nobody to tell */
	fx_peer_send(&r.p, PKT_ACK, bytes, build_v2(bytes, true, 0, 4, 4, NULL, 0));
	assert_int_equal(r.p.node->state, IRDMA_CM_STATE_CLOSED);
	assert_int_equal(fx_last(&r.tap)->flags & PKT_RST, PKT_RST);
	rig_down(&r);
}

/* A hostile peer feeds one byte a segment, and each is acknowledged; the time limit of the stage stays the first. */
static void byte_by_byte_does_not_stretch_the_time_limit(void **state)
{
	u8 bytes[64];
	struct rig r;
	u64 limit;

	rig_passive(&r, IRDMA_GEN_1);
	limit = r.p.node->stage_at_ns;
	build(bytes, false, 0, 1, 30, NULL, 0);
	for (int i = 0; i < 20; i++) {
		fx_run(&r.fx, 100);
		fx_peer_send(&r.p, PKT_ACK, bytes + i, 1);
		assert_int_equal(fx_last(&r.tap)->ack, r.p.seq);
	}
	assert_int_equal(r.p.node->stage_at_ns, limit);
	fx_run(&r.fx, CM_MPA_TIMEOUT_MS);
	assert_int_equal(r.p.node->state, IRDMA_CM_STATE_CLOSED);
	assert_int_equal(r.p.node->cause, CM_CAUSE_NO_MPA_REQUEST);
	rig_down(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(v1_header_is_20_bytes),
		cmocka_unit_test(v2_request_offers_what_is_wanted),
		cmocka_unit_test(v2_reply_says_the_one_chosen),
		cmocka_unit_test(frame_follows_the_revision_and_the_peer),
		cmocka_unit_test(whole_frames_in_both_roles),
		cmocka_unit_test(private_data_is_without_the_rfc6581_bytes),
		cmocka_unit_test(private_data_lengths),
		cmocka_unit_test(every_truncation_waits_for_more),
		cmocka_unit_test(bytes_behind_the_frame_are_not_its_own),
		cmocka_unit_test(a_wrong_key_is_seen_at_its_first_byte),
		cmocka_unit_test(revisions),
		cmocka_unit_test(flags_by_role_and_revision),
		cmocka_unit_test(crc_if_either_asks_markers_as_each_receiver_asks),
		cmocka_unit_test(reject_with_private_data),
		cmocka_unit_test(any_byte_may_be_anything),
		cmocka_unit_test(parsing_again_replaces_the_private_data),
		cmocka_unit_test(no_memory_for_private_data),
		cmocka_unit_test(every_offer_against_every_acceptance),
		cmocka_unit_test(without_a_it_is_client_server_not_refused),
		cmocka_unit_test(responder_depths),
		cmocka_unit_test(initiator_depths),
		cmocka_unit_test(initiator_that_did_not_offer_takes_no_rtr),
		cmocka_unit_test(request_goes_out_with_private_data),
		cmocka_unit_test(no_buffer_no_request),
		cmocka_unit_test(reject_has_r_fin_and_private_data),
		cmocka_unit_test(no_buffer_no_reject),
		cmocka_unit_test(request_in_any_segments_with_stream_bytes_behind),
		cmocka_unit_test(reply_in_any_segments_with_stream_bytes_behind),
		cmocka_unit_test(only_the_next_bytes_count),
		cmocka_unit_test(segments_that_hold_nothing_new_change_nothing),
		cmocka_unit_test(stream_bytes_are_bounded_by_the_window),
		cmocka_unit_test(request_complete_waits_for_the_upper_layer_without_limit),
		cmocka_unit_test(request_is_acknowledged_by_the_answer_or_the_timer),
		cmocka_unit_test(unanswered_request_is_acknowledged_after_a_while),
		cmocka_unit_test(reply_is_acknowledged_unless_the_rtr_does),
		cmocka_unit_test(reject_is_told_with_its_private_data),
		cmocka_unit_test(bad_frames_reset_and_are_told),
		cmocka_unit_test(insufficient_ird_is_told_by_terminate),
		cmocka_unit_test(no_matching_rtr_is_told_by_reply_and_terminate),
		cmocka_unit_test(terminate_after_the_peers_fin_is_the_last_word),
		cmocka_unit_test(without_a_buffer_for_the_terminate_it_is_a_reset),
		cmocka_unit_test(terminate_that_does_not_fit_is_not_sent),
		cmocka_unit_test(no_memory_while_assembling),
		cmocka_unit_test(no_memory_for_stream_bytes_means_not_taken),
		cmocka_unit_test(no_event_for_a_request_resets_it),
		cmocka_unit_test(no_event_for_a_reply_resets_it),
		cmocka_unit_test(byte_by_byte_does_not_stretch_the_time_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
