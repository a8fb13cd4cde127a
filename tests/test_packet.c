/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base/packet.c: frames are copied into blocks of their exact size, so that ASan sees a byte too many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include "base/packet.h"
#include "base/rand.h"

/* 127.0.0.1:4791 -> 127.0.0.2:80, SYN, checksums made by another program. */
static const u8 syn4[] = {
	0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00,
	0x45, 0x00, 0x00, 0x2c, 0x00, 0x01, 0x40, 0x00, 0x40, 0x06, 0x3c, 0xc8, 127, 0, 0, 1, 127, 0, 0, 2,
	0x12, 0xb7, 0x00, 0x50, 0x01, 0x02, 0x03, 0x04, 0, 0, 0, 0, 0x60, 0x02, 0xff, 0xff, 0x83, 0x16, 0, 0,
	0x02, 0x04, 0x05, 0xb4,
};

static const struct pkt_route route4 = {
	.smac = { 2, 0, 0, 0, 0, 1 }, .dmac = { 2, 0, 0, 0, 0, 2 }, .vlan_id = PKT_VLAN_NONE,
	.ipv4 = true, .tos = 0x20, .ttl = 64, .src = { 0x7f000001 }, .dst = { 0x7f000002 },
};
static const struct pkt_route route6 = {
	.smac = { 2, 0, 0, 0, 0, 1 }, .dmac = { 2, 0, 0, 0, 0, 2 }, .vlan_id = 4094, .prio = 5,
	.tos = 0x2e, .ttl = 255, .src = { 0x20010db8, 0, 0, 1 }, .dst = { 0x20010db8, 0xffffffff, 1, 2 },
};

struct frame {
	u8 *p; /* of its own, exactly */
	u32 len;
};

static struct frame frame_of(const void *bytes, size_t len)
{
	struct frame f = { malloc(len ? len : 1), (u32)len };

	assert_non_null(f.p);
	memcpy(f.p, bytes, len);
	return f;
}

static enum pkt_verdict parse_copy(const void *bytes, size_t len, bool check)
{
	struct frame f = frame_of(bytes, len);
	enum pkt_verdict v;
	struct pkt pkt;

	v = pkt_parse(f.p, f.len, check, &pkt);
	if (v == PKT_OK) {
		assert_true(pkt.opts == (const u8 *)pkt.tcph + PKT_TCP_LEN);
		assert_true(pkt.data == pkt.opts + pkt.optlen);
		assert_true(pkt.data + pkt.datalen <= f.p + f.len);
		assert_true(pkt.optlen <= PKT_TCP_OPT_MAX);
	}
	free(f.p);
	return v;
}

/* A segment whose fields are all different, with headers pushed. */
static struct frame build(const struct pkt_route *r, u32 optlen, u32 datalen)
{
	static u8 buf[PKT_HDR_MAX + 0xFFFF];
	u8 *tcp = buf + PKT_HDR_MAX, *start;
	u32 tcplen = PKT_TCP_LEN + optlen + datalen, i;

	for (i = 0; i < tcplen; i++)
		tcp[i] = (u8)(i * 7 + 1);
	tcp[12] = (u8)((PKT_TCP_LEN + optlen) / 4 << 4 | 0xf);
	tcp[13] = 0xc0 | PKT_ACK | PKT_PSH;
	start = pkt_push_headers(r, tcp, tcplen, 0x1234);
	assert_ptr_equal(start, tcp - pkt_header_len(r));
	return frame_of(start, tcplen + pkt_header_len(r));
}

/* Checksums: by the book, two bytes at a time. */

static u16 naive_csum(const u8 *p, size_t len, u64 sum)
{
	size_t i;

	for (i = 0; i < len; i++)
		sum += i % 2 ? p[i] : (u64)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (u16)~sum;
}

static void test_csum_rfc1071(void **state)
{
	static const u8 bytes[] = { 0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7 }; /* RFC 1071 3 */

	(void)state;
	assert_int_equal(pkt_csum_fold(pkt_sum(bytes, sizeof(bytes), 0)), htons((u16)~0xddf2));
	assert_int_equal(pkt_csum_fold(pkt_sum(bytes, 0, 0)), 0xffff);
	assert_int_equal(pkt_csum_fold(0xffffffff), 0);
}

static void test_csum_random(void **state)
{
	static u8 buf[70000];
	struct rand_gen g;
	unsigned int i;
	size_t j;

	(void)state;
	rand_gen_seed(&g, 1);
	for (i = 0; i < 3000; i++) {
		size_t len = rand_gen_below(&g, i % 20 ? 400 : 65537), off = rand_gen_below(&g, 16);
		size_t split = rand_gen_below(&g, len + 1) & ~(size_t)1;
		u8 *p = buf + off;
		u8 fill = (u8)rand_gen_u64(&g);

		for (j = 0; j < len; j++)
			p[j] = i % 3 ? (u8)rand_gen_u64(&g) : i % 2 ? 0xff : fill;
		assert_int_equal(ntohs(pkt_csum_fold(pkt_sum(p, len, 0))), naive_csum(p, len, 0));
		assert_int_equal(ntohs(pkt_csum_fold(pkt_sum(p + split, len - split, pkt_sum(p, split, 0)))),
				 naive_csum(p, len, 0));
	}
}

static void test_csum_lengths(void **state)
{
	u8 ones[300];
	size_t len;

	(void)state;
	memset(ones, 0xff, sizeof(ones));
	for (len = 0; len <= sizeof(ones); len++) {
		struct frame f = frame_of(ones, len); /* reads no byte behind it */

		assert_int_equal(ntohs(pkt_csum_fold(pkt_sum(f.p, len, 0))), naive_csum(f.p, len, 0));
		free(f.p);
	}
}

static void test_tcp_csum(void **state)
{
	static const u32 src[4] = { 0x7f000001 }, dst[4] = { 0x7f000002 };
	u8 tcp[24];

	(void)state;
	memcpy(tcp, syn4 + 34, sizeof(tcp));
	assert_int_equal(pkt_tcp_csum(true, src, dst, tcp, sizeof(tcp)), 0);
	tcp[16] = tcp[17] = 0;
	assert_int_equal(pkt_tcp_csum(true, src, dst, tcp, sizeof(tcp)), htons(0x8316));
	assert_int_not_equal(pkt_tcp_csum(false, src, dst, tcp, sizeof(tcp)), 0);
}

/* Unlike in UDP, 0 in the field does not mean "none", and is right when the sum says so. */
static void test_tcp_csum_zero(void **state)
{
	u8 frame[sizeof(syn4)];
	u16 csum;

	(void)state;
	memcpy(frame, syn4, sizeof(frame));
	frame[50] = frame[51] = 0;
	assert_int_equal(parse_copy(frame, sizeof(frame), true), PKT_BAD_TCP_CSUM);
	assert_int_equal(parse_copy(frame, sizeof(frame), false), PKT_OK);
	/* A window that brings the sum to 0xffff. */
	frame[48] = frame[49] = 0;
	csum = pkt_tcp_csum(true, route4.src, route4.dst, frame + 34, sizeof(frame) - 34);
	memcpy(frame + 48, &csum, 2);
	assert_int_equal(parse_copy(frame, sizeof(frame), true), PKT_OK);
	/* Pushing gives 0 too, whatever was in the field. */
	frame[50] = 0xab;
	frame[51] = 0xcd;
	pkt_push_headers(&route4, frame + 34, sizeof(frame) - 34, 1);
	assert_int_equal(frame[50] | frame[51], 0);
	assert_int_equal(parse_copy(frame, sizeof(frame), true), PKT_OK);
}

/* Decoding. */

static void test_parse_syn(void **state)
{
	struct frame f = frame_of(syn4, sizeof(syn4));
	struct pkt p;

	(void)state;
	assert_int_equal(pkt_parse(f.p, f.len, true, &p), PKT_OK);
	assert_memory_equal(p.dmac, syn4, 6);
	assert_memory_equal(p.smac, syn4 + 6, 6);
	assert_int_equal(p.vlan_id, PKT_VLAN_NONE);
	assert_int_equal(p.prio, 0);
	assert_true(p.ipv4);
	assert_int_equal(p.tos, 0);
	assert_int_equal(p.ttl, 64);
	assert_true(pkt_addr_eq(p.src, route4.src) && pkt_addr_eq(p.dst, route4.dst));
	assert_int_equal(p.sport, 4791);
	assert_int_equal(p.dport, 80);
	assert_ptr_equal(p.tcph, f.p + 34);
	assert_int_equal(p.seq, 0x01020304);
	assert_int_equal(p.ack, 0);
	assert_int_equal(p.window, 0xffff);
	assert_int_equal(p.flags, PKT_SYN);
	assert_ptr_equal(p.opts, f.p + 54);
	assert_int_equal(p.optlen, 4);
	assert_ptr_equal(p.data, f.p + f.len);
	assert_int_equal(p.datalen, 0);
	assert_ptr_equal(p.frame, f.p);
	assert_int_equal(p.framelen, f.len);
	free(f.p);
}

static void test_parse_pushed(void **state)
{
	static const u32 optlens[] = { 0, 4, 40 }, datalens[] = { 0, 1, 7, 8, 1460, 9001 };
	struct pkt_route r[4] = { route4, route6, route4, route6 };
	unsigned int i, j, k;
	struct frame f;
	struct pkt p;

	(void)state;
	r[2].vlan_id = 7;
	r[2].prio = 1;
	r[3].vlan_id = PKT_VLAN_NONE;
	r[3].prio = 0;
	for (i = 0; i < 4; i++) {
		for (j = 0; j < 3; j++) {
			for (k = 0; k < 6; k++) {
				f = build(&r[i], optlens[j], datalens[k]);
				assert_int_equal(pkt_parse(f.p, f.len, true, &p), PKT_OK);
				assert_memory_equal(p.smac, r[i].smac, 6);
				assert_memory_equal(p.dmac, r[i].dmac, 6);
				assert_int_equal(p.vlan_id, r[i].vlan_id);
				assert_int_equal(p.prio, r[i].prio);
				assert_int_equal(p.ipv4, r[i].ipv4);
				assert_int_equal(p.tos, r[i].tos);
				assert_int_equal(p.ttl, r[i].ttl);
				assert_true(pkt_addr_eq(p.src, r[i].src) && pkt_addr_eq(p.dst, r[i].dst));
				assert_int_equal(p.sport, 0x0108);
				assert_int_equal(p.dport, 0x0f16);
				assert_int_equal(p.seq, 0x1d242b32);
				assert_int_equal(p.ack, 0x39404700 | 0x4e);
				assert_int_equal(p.window, 0x636a);
				assert_int_equal(p.flags, PKT_ACK | PKT_PSH); /* CWR and ECE are left out */
				assert_int_equal(p.optlen, optlens[j]);
				assert_int_equal(p.datalen, datalens[k]);
				assert_ptr_equal(p.data + p.datalen, f.p + f.len);
				free(f.p);
			}
		}
	}
}

static void test_push_bytes(void **state)
{
	u8 buf[sizeof(syn4)], tagged[sizeof(syn4) + 4];
	struct pkt_route r = route4;

	(void)state;
	r.tos = 0;
	memset(buf, 0xee, sizeof(buf));
	memcpy(buf + 34, syn4 + 34, sizeof(syn4) - 34);
	assert_ptr_equal(pkt_push_headers(&r, buf + 34, sizeof(buf) - 34, 1), buf);
	assert_memory_equal(buf, syn4, sizeof(syn4));

	r.vlan_id = 0x123;
	r.prio = 6;
	memcpy(tagged + 38, syn4 + 34, sizeof(syn4) - 34);
	assert_ptr_equal(pkt_push_headers(&r, tagged + 38, sizeof(buf) - 34, 1), tagged);
	assert_memory_equal(tagged, syn4, 12);
	assert_memory_equal(tagged + 12, "\x81\x00\xc1\x23\x08\x00", 6);
	assert_memory_equal(tagged + 18, syn4 + 14, sizeof(syn4) - 14);
}

static void test_push_limits(void **state)
{
	struct frame f = build(&route4, 0, 0xFFFF - PKT_IP4_LEN - PKT_TCP_LEN);

	(void)state;
	assert_int_equal(parse_copy(f.p, f.len, true), PKT_OK);
	free(f.p);
	f = build(&route6, 0, 0xFFFF - PKT_TCP_LEN);
	assert_int_equal(parse_copy(f.p, f.len, true), PKT_OK);
	free(f.p);
	assert_int_equal(pkt_header_len(&route4), 34);
	assert_int_equal(pkt_header_len(&route6), PKT_HDR_MAX);
}

static void test_priority_tag(void **state)
{
	struct pkt_route r = route4;
	struct frame f;
	struct pkt p;

	(void)state;
	r.vlan_id = 0;
	r.prio = 3;
	f = build(&r, 0, 10);
	assert_int_equal(pkt_parse(f.p, f.len, true, &p), PKT_OK);
	assert_int_equal(p.vlan_id, PKT_VLAN_NONE);
	assert_int_equal(p.prio, 3);
	f.p[14] |= 0x10; /* the DEI bit is neither */
	assert_int_equal(pkt_parse(f.p, f.len, true, &p), PKT_OK);
	assert_int_equal(p.vlan_id, PKT_VLAN_NONE);
	assert_int_equal(p.prio, 3);
	free(f.p);
}

static void test_padding(void **state)
{
	u8 padded[64] = { 0 };
	struct pkt p;

	(void)state;
	memset(padded, 0xff, sizeof(padded));
	memcpy(padded, syn4, sizeof(syn4));
	assert_int_equal(pkt_parse(padded, sizeof(padded), true, &p), PKT_OK);
	assert_int_equal(p.datalen, 0);
	assert_int_equal(p.framelen, sizeof(padded));
}

static void test_unaligned(void **state)
{
	struct frame f = build(&route6, 4, 100);
	u8 buf[300];
	struct pkt p;
	unsigned int i;

	(void)state;
	for (i = 0; i < 16; i++) {
		memcpy(buf + i, f.p, f.len);
		assert_int_equal(pkt_parse(buf + i, f.len, true, &p), PKT_OK);
		assert_true(pkt_addr_eq(p.dst, route6.dst));
	}
	free(f.p);
}

/* Cut anywhere, a frame is short and nothing behind it is read. */
static void test_truncated(void **state)
{
	struct pkt_route r[3] = { route4, route6, route4 };
	struct frame f;
	unsigned int i;
	u32 len;

	(void)state;
	r[2].vlan_id = 1;
	for (i = 0; i < 3; i++) {
		f = build(&r[i], 12, 30);
		for (len = 0; len < f.len; len++) {
			assert_int_equal(parse_copy(f.p, len, false), PKT_SHORT);
			assert_int_equal(parse_copy(f.p, len, true), PKT_SHORT);
		}
		assert_int_equal(parse_copy(f.p, len, true), PKT_OK);
		free(f.p);
	}
}

struct patch {
	const char *what;
	u32 offset, len;
	u8 bytes[4];
	enum pkt_verdict unchecked, checked;
};

/* Right checksums where a patch spoils the IPv4 header but should be judged for something else. */
static void fix_ip4_csum(struct frame f)
{
	u32 hdrlen = (f.p[14] & 15) * 4u;
	u16 csum;

	if (hdrlen < PKT_IP4_LEN || 14 + hdrlen > f.len)
		return;
	f.p[24] = f.p[25] = 0;
	csum = pkt_csum_fold(pkt_sum(f.p + 14, hdrlen, 0));
	memcpy(f.p + 24, &csum, 2);
}

static void assert_patches(const struct pkt_route *r, const struct patch *patch, size_t n, bool fix)
{
	struct frame f;
	size_t i;

	for (i = 0; i < n; i++) {
		f = build(r, 4, 40);
		memcpy(f.p + patch[i].offset, patch[i].bytes, patch[i].len);
		if (fix)
			fix_ip4_csum(f);
		if (parse_copy(f.p, f.len, false) != patch[i].unchecked ||
		    parse_copy(f.p, f.len, true) != patch[i].checked)
			fail_msg("%s", patch[i].what);
		free(f.p);
	}
}

static void test_hostile_ip4(void **state)
{
	static const struct patch patches[] = {
		{ "nothing", 14, 1, { 0x45 }, PKT_OK, PKT_OK },
		{ "ARP", 12, 2, { 0x08, 0x06 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "802.3 length", 12, 2, { 0x00, 0x2e }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "802.1ad", 12, 2, { 0x88, 0xa8 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "IPv6 type, IPv4 inside", 12, 2, { 0x86, 0xdd }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "two tags", 12, 4, { 0x81, 0x00, 0x00, 0x01 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "version 6", 14, 1, { 0x65 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "version 0", 14, 1, { 0x05 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "IHL 0", 14, 1, { 0x40 }, PKT_SHORT, PKT_SHORT },
		{ "IHL 4", 14, 1, { 0x44 }, PKT_SHORT, PKT_SHORT },
		{ "total 0", 16, 2, { 0, 0 }, PKT_SHORT, PKT_SHORT },
		{ "total 19", 16, 2, { 0, 19 }, PKT_SHORT, PKT_SHORT },
		{ "total 20: no TCP", 16, 2, { 0, 20 }, PKT_SHORT, PKT_SHORT },
		{ "total 39: TCP header cut", 16, 2, { 0, 39 }, PKT_SHORT, PKT_SHORT },
		{ "total 43: TCP options cut", 16, 2, { 0, 43 }, PKT_SHORT, PKT_SHORT },
		{ "total 44: other payload", 16, 2, { 0, 44 }, PKT_OK, PKT_BAD_TCP_CSUM },
		{ "total one more", 16, 2, { 0, 85 }, PKT_SHORT, PKT_SHORT },
		{ "total 65535", 16, 2, { 0xff, 0xff }, PKT_SHORT, PKT_SHORT },
		{ "more fragments", 20, 2, { 0x20, 0 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "offset 1", 20, 2, { 0, 1 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "offset 4096, DF", 20, 2, { 0x50, 0 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "neither DF nor MF", 20, 2, { 0, 0 }, PKT_OK, PKT_OK },
		{ "UDP", 23, 1, { 17 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "other source", 29, 1, { 9 }, PKT_OK, PKT_BAD_TCP_CSUM },
		{ "data offset 0", 46, 1, { 0x00 }, PKT_SHORT, PKT_SHORT },
		{ "data offset 4", 46, 1, { 0x40 }, PKT_SHORT, PKT_SHORT },
		{ "data offset 5", 46, 1, { 0x50 }, PKT_OK, PKT_BAD_TCP_CSUM },
		{ "payload", 97, 1, { 0x00 }, PKT_OK, PKT_BAD_TCP_CSUM },
	};
	static const struct patch csums[] = {
		{ "header checksum", 24, 2, { 0xba, 0xad }, PKT_OK, PKT_BAD_IP_CSUM },
		{ "TTL", 22, 1, { 1 }, PKT_OK, PKT_BAD_IP_CSUM },
		{ "spoilt fragment", 20, 2, { 0x20, 0 }, PKT_NOT_TCP, PKT_BAD_IP_CSUM },
	};

	(void)state;
	assert_patches(&route4, patches, ARRAY_SIZE(patches), true);
	assert_patches(&route4, csums, ARRAY_SIZE(csums), false);
}

static void test_hostile_ip6(void **state)
{
	/* route6 is tagged: IP begins at 18, TCP at 58. */
	static const struct patch patches[] = {
		{ "nothing", 16, 2, { 0x86, 0xdd }, PKT_OK, PKT_OK },
		{ "version 4", 18, 1, { 0x40 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "IPv4 type, IPv6 inside", 16, 2, { 0x08, 0x00 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "flow label", 20, 2, { 0x12, 0x34 }, PKT_OK, PKT_OK },
		{ "payload 0 (jumbogram)", 22, 2, { 0, 0 }, PKT_SHORT, PKT_SHORT },
		{ "payload 19", 22, 2, { 0, 19 }, PKT_SHORT, PKT_SHORT },
		{ "payload 23: options cut", 22, 2, { 0, 23 }, PKT_SHORT, PKT_SHORT },
		{ "payload 24: other payload", 22, 2, { 0, 24 }, PKT_OK, PKT_BAD_TCP_CSUM },
		{ "payload one more", 22, 2, { 0, 65 }, PKT_SHORT, PKT_SHORT },
		{ "payload 65535", 22, 2, { 0xff, 0xff }, PKT_SHORT, PKT_SHORT },
		{ "hop-by-hop", 24, 1, { 0 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "routing", 24, 1, { 43 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "fragment", 24, 1, { 44 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "destination options", 24, 1, { 60 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "no next header", 24, 1, { 59 }, PKT_NOT_TCP, PKT_NOT_TCP },
		{ "hop limit", 25, 1, { 1 }, PKT_OK, PKT_OK },
		{ "other source", 41, 1, { 9 }, PKT_OK, PKT_BAD_TCP_CSUM },
		{ "other destination", 57, 1, { 9 }, PKT_OK, PKT_BAD_TCP_CSUM },
		{ "data offset 4", 70, 1, { 0x40 }, PKT_SHORT, PKT_SHORT },
		{ "payload", 121, 1, { 0x00 }, PKT_OK, PKT_BAD_TCP_CSUM },
	};

	(void)state;
	assert_patches(&route6, patches, ARRAY_SIZE(patches), false);
}

/* IHL 15: options are stepped over; IHL beyond the total length is short. */
static void test_ip4_options(void **state)
{
	struct frame f = build(&route4, 0, 5), g;
	struct pkt p;

	(void)state;
	g.len = f.len + 40;
	g.p = calloc(1, g.len);
	assert_non_null(g.p);
	memcpy(g.p, f.p, 34);
	memset(g.p + 34, 1, 40); /* No-Operation */
	memcpy(g.p + 74, f.p + 34, f.len - 34);
	g.p[14] = 0x4f;
	g.p[17] = (u8)(g.p[17] + 40);
	fix_ip4_csum(g);
	assert_int_equal(pkt_parse(g.p, g.len, true, &p), PKT_OK);
	assert_ptr_equal(p.tcph, g.p + 74);
	assert_int_equal(p.datalen, 5);
	g.p[40]++;
	assert_int_equal(pkt_parse(g.p, g.len, true, &p), PKT_BAD_IP_CSUM);
	g.p[17] = 59;
	assert_int_equal(parse_copy(g.p, g.len, false), PKT_SHORT);
	free(f.p);
	free(g.p);
}

static void test_segment(void **state)
{
	struct pkt_tuple t = { .loc_addr = { 1, 2, 3, 4 }, .rem_addr = { 5, 6, 7, 8 }, .loc_port = 80,
			       .rem_port = 4791, .vlan_id = 99 };
	struct frame f = frame_of(syn4 + 34, 24);
	struct pkt p;
	size_t len;

	(void)state;
	memset(&p, 0xff, sizeof(p));
	assert_int_equal(pkt_parse_segment(f.p, f.len, &t, &p), PKT_OK);
	assert_true(pkt_addr_eq(p.src, t.rem_addr) && pkt_addr_eq(p.dst, t.loc_addr));
	assert_memory_equal(p.smac, "\0\0\0\0\0\0", 6);
	assert_memory_equal(p.dmac, "\0\0\0\0\0\0", 6);
	assert_int_equal(p.vlan_id, 99);
	assert_false(p.ipv4);
	assert_int_equal(p.sport, 4791);
	assert_int_equal(p.dport, 80);
	assert_int_equal(p.flags, PKT_SYN);
	assert_int_equal(p.optlen, 4);
	assert_ptr_equal(p.frame, f.p);
	assert_int_equal(p.framelen, 24);
	free(f.p);
	for (len = 0; len < 24; len++) {
		f = frame_of(syn4 + 34, len);
		assert_int_equal(pkt_parse_segment(f.p, len, &t, &p), PKT_SHORT);
		free(f.p);
	}
}

/* One flipped bit never passes: it is in a checksum, or in what the decoder does not look at. */
static void test_bit_flips(void **state)
{
	struct frame f = build(&route4, 4, 20);
	u32 bit;

	(void)state;
	for (bit = 14 * 8; bit < f.len * 8; bit++) {
		f.p[bit / 8] ^= (u8)(1u << bit % 8);
		assert_int_not_equal(parse_copy(f.p, f.len, true), PKT_OK);
		f.p[bit / 8] ^= (u8)(1u << bit % 8);
	}
	free(f.p);
}

static void test_random_bytes(void **state)
{
	struct rand_gen g;
	unsigned int i, n, ok = 0;
	struct frame f;

	(void)state;
	rand_gen_seed(&g, 1);
	for (i = 0; i < 50000; i++) {
		f = build(i % 2 ? &route4 : &route6, 4 * (u32)rand_gen_below(&g, 11), (u32)rand_gen_below(&g, 60));
		for (n = (unsigned int)rand_gen_below(&g, 4); n; n--)
			f.p[12 + rand_gen_below(&g, f.len - 12)] = (u8)rand_gen_u64(&g);
		ok += parse_copy(f.p, rand_gen_below(&g, f.len + 1), false) == PKT_OK;
		ok += parse_copy(f.p, f.len, false) == PKT_OK;
		free(f.p);
	}
	assert_true(ok > 10000);
}

static void test_addr(void **state)
{
	static const u32 v4[4] = { 0xc0000201 }, any[4] = { 0 }, v6[4] = { 0x20010db8, 0, 0, 1 };
	static const u32 longest[4] = { 0x22222222, 0x33333333, 0x44444444, 0x55555555 };
	char buf[PKT_ADDRSTR];
	unsigned int i;

	(void)state;
	assert_string_equal(pkt_addr_str(true, v4, 80, buf), "192.0.2.1:80");
	assert_string_equal(pkt_addr_str(true, v4, -1, buf), "192.0.2.1");
	assert_string_equal(pkt_addr_str(false, v6, 80, buf), "[2001:db8::1]:80");
	assert_string_equal(pkt_addr_str(false, v6, -1, buf), "2001:db8::1");
	assert_string_equal(pkt_addr_str(false, any, 0, buf), "[::]:0");
	assert_string_equal(pkt_addr_str(false, longest, 65535, buf),
			    "[2222:2222:3333:3333:4444:4444:5555:5555]:65535");
	assert_true(pkt_addr_is_any(any));
	for (i = 0; i < 4; i++) {
		u32 one[4] = { 0 };

		one[i] = 0x80000000;
		assert_false(pkt_addr_is_any(one));
		assert_false(pkt_addr_eq(one, any));
		assert_true(pkt_addr_eq(one, one));
	}
}

static void test_sequence(void **state)
{
	(void)state;
	assert_true(seq_lt(0xffffffff, 0) && seq_lt(1, 2) && !seq_lt(2, 2) && !seq_lt(0, 0xffffffff));
	assert_true(seq_leq(2, 2) && seq_leq(0xfffffff0, 5) && !seq_leq(5, 0xfffffff0));
	assert_true(seq_gt(0, 0xffffffff) && !seq_gt(2, 2));
	assert_true(seq_geq(2, 2) && seq_geq(0x7fffffff, 0) && !seq_geq(0, 0x7fffffff));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_csum_rfc1071),
		cmocka_unit_test(test_csum_random),
		cmocka_unit_test(test_csum_lengths),
		cmocka_unit_test(test_tcp_csum),
		cmocka_unit_test(test_tcp_csum_zero),
		cmocka_unit_test(test_parse_syn),
		cmocka_unit_test(test_parse_pushed),
		cmocka_unit_test(test_push_bytes),
		cmocka_unit_test(test_push_limits),
		cmocka_unit_test(test_priority_tag),
		cmocka_unit_test(test_padding),
		cmocka_unit_test(test_unaligned),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_hostile_ip4),
		cmocka_unit_test(test_hostile_ip6),
		cmocka_unit_test(test_ip4_options),
		cmocka_unit_test(test_segment),
		cmocka_unit_test(test_bit_flips),
		cmocka_unit_test(test_random_bytes),
		cmocka_unit_test(test_addr),
		cmocka_unit_test(test_sequence),
	};

	return cmocka_run_group_tests_name("packet", tests, NULL, NULL);
}
