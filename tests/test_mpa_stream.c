/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* FPDUs: padding, CRC, markers, any split, hostile streams. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "rdmap/rdmap.h"

#define STREAM_MAX (1u << 20)

/* CRC32C bit by bit, from its definition (RFC 3720 B.4): independent of the code under test. */
static u32 crc32c(const u8 *p, size_t len)
{
	u32 crc = ~0u;

	for (size_t i = 0; i < len; i++) {
		crc ^= p[i];
		for (int b = 0; b < 8; b++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
	}
	return ~crc;
}

static u32 le32(const u8 *p)
{
	return p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}

static void the_check_value(void **state)
{
	assert_int_equal(crc32c((const u8 *)"123456789", 9), 0xE3069283);
}

static void one_fpdu(void **state)
{
	for (u32 len = 0; len < 40; len++) {
		u8 ulpdu[40], out[64];
		struct mpa_stream s;
		u32 body = (2 + len + 3) / 4 * 4;

		for (u32 i = 0; i < len; i++)
			ulpdu[i] = (u8)(i + 1);
		mpa_stream_init(&s, true, false);
		memset(out, 0xEE, sizeof(out));
		assert_int_equal(mpa_fpdu_build(&s, ulpdu, len, out, sizeof(out)), body + 4);
		assert_int_equal(out[0] << 8 | out[1], len);
		assert_memory_equal(out + 2, ulpdu, len);
		for (u32 i = 2 + len; i < body; i++)
			assert_int_equal(out[i], 0);
		assert_int_equal(le32(out + body), crc32c(out, body));
		assert_int_equal(out[body + 4], 0xEE);
		mpa_stream_init(&s, false, false);
		assert_int_equal(mpa_fpdu_build(&s, ulpdu, len, out, sizeof(out)), body + 4);
		assert_int_equal(le32(out + body), 0);
	}
}

static void sizes_at_the_edge(void **state)
{
	u8 *big = calloc(1, 70000), *out = malloc(70000);
	struct mpa_stream s;

	mpa_stream_init(&s, true, false);
	assert_int_equal(mpa_fpdu_build(&s, big, 65535, out, 70000), 65544);
	assert_int_equal(mpa_fpdu_build(&s, big, 65536, out, 70000), -EMSGSIZE);
	assert_int_equal(mpa_fpdu_build(&s, big, 14, out, 20), 20);
	assert_int_equal(mpa_fpdu_build(&s, big, 14, out, 19), -EMSGSIZE);
	mpa_stream_init(&s, true, true);
	assert_int_equal(mpa_fpdu_build(&s, big, 14, out, 23), -EMSGSIZE);
	assert_int_equal(s.next_marker, 0); /* untouched by a failure */
	assert_int_equal(mpa_fpdu_build(&s, big, 14, out, 24), 24);
	assert_int_equal(mpa_fpdu_build(&s, big, 65535, out, 70000), -EMSGSIZE); /* its last pointer has no 16 bits */
	free(big);
	free(out);
}

/* A stream of FPDUs of all kinds of lengths; returns its length. */
static u32 build_stream(struct rand_gen *g, bool crc, bool markers, int count, u8 *stream, u32 *lens, u8 *first)
{
	struct mpa_stream s;
	u32 pos = 0;

	mpa_stream_init(&s, crc, markers);
	for (int i = 0; i < count; i++) {
		u8 ulpdu[4096];
		int n;

		lens[i] = (u32)rand_gen_below(g, rand_gen_chance(g, 0.5) ? 64 : sizeof(ulpdu));
		first[i] = (u8)rand_gen_u64(g);
		for (u32 k = 0; k < lens[i]; k++)
			ulpdu[k] = (u8)(first[i] + k);
		n = mpa_fpdu_build(&s, ulpdu, lens[i], stream + pos, STREAM_MAX - pos);
		assert_true(n > 0);
		pos += (u32)n;
	}
	return pos;
}

/* Counts of markers in front of an FPDU and of its CRC field. */
struct seen { u32 at_start, at_crc; };

/* Walk one FPDU word by word: markers sit where they must and point where they must. */
static u32 walk_fpdu(const u8 *stream, u32 begin, u32 ulpdu_len, struct seen *seen)
{
	u32 pos = begin, body = (2 + ulpdu_len + 3) / 4 * 4, length_at;

	if (pos % 512 == 0) {
		assert_int_equal(le32(stream + pos), 0); /* pointer 0 */
		pos += 4;
		seen->at_start++;
	}
	length_at = pos;
	assert_int_equal(stream[pos] << 8 | stream[pos + 1], ulpdu_len);
	for (u32 n = 0; n < body + 4; n += 4, pos += 4) {
		if (n && pos % 512 == 0) {
			assert_int_equal(stream[pos] << 8 | stream[pos + 1], 0);
			assert_int_equal(stream[pos + 2] << 8 | stream[pos + 3], pos - length_at);
			pos += 4;
			seen->at_crc += n == body;
		}
		if (n == body)
			assert_int_equal(le32(stream + pos), crc32c(stream + begin, pos - begin));
	}
	return pos;
}

static void markers_by_hand(void **state)
{
	u8 *stream = malloc(STREAM_MAX), first[64];
	struct seen seen = { 0 };
	u32 lens[64];

	for (u64 seed = 0; seed < 20; seed++) {
		struct rand_gen g;
		u32 len, pos = 0;

		rand_gen_seed(&g, seed);
		len = build_stream(&g, true, true, 64, stream, lens, first);
		for (int i = 0; i < 64; i++)
			pos = walk_fpdu(stream, pos, lens[i], &seen);
		assert_int_equal(pos, len);
	}
	assert_true(seen.at_start > 20); /* not only the first of each stream */
	assert_true(seen.at_crc > 0);
	free(stream);
}

/* A marker right before the CRC field, and one right behind it. */
static void marker_at_the_crc(void **state)
{
	for (int behind = 0; behind < 2; behind++) {
		u8 ulpdu[512] = { 0 }, out[1200];
		/* marker 4, then 508 bytes: the body alone, or body and CRC */
		u32 len = 508 - 2 - (behind ? 4 : 0);
		struct mpa_stream s;
		struct mpa_rx rx;
		const u8 *got;
		u32 got_len;
		int n, m;

		mpa_stream_init(&s, true, true);
		n = mpa_fpdu_build(&s, ulpdu, len, out, sizeof(out));
		assert_int_equal(n, behind ? 512 : 520);
		if (behind) {
			assert_int_equal(le32(out + 508), crc32c(out, 508));
			assert_int_equal(s.next_marker, 0);
		} else {
			assert_int_equal(out[514] << 8 | out[515], 508);
			assert_int_equal(le32(out + 516), crc32c(out, 516));
		}
		m = mpa_fpdu_build(&s, ulpdu, 20, out + n, sizeof(out) - (u32)n);
		assert_int_equal(m, behind ? 32 : 28);
		mpa_rx_init(&rx, true, true);
		assert_int_equal(mpa_rx_feed(&rx, out, (size_t)(n + m), &got, &got_len), n);
		assert_int_equal(got_len, len);
		assert_int_equal(mpa_rx_feed(&rx, out + n, (size_t)m, &got, &got_len), m);
		assert_int_equal(got_len, 20);
		mpa_rx_destroy(&rx);
	}
}

static void check_fed(struct mpa_rx *rx, const u8 *data, size_t len, int *i, const u32 *lens, const u8 *first)
{
	while (len) {
		const u8 *ulpdu;
		u32 ulpdu_len;
		ssize_t n = mpa_rx_feed(rx, data, len, &ulpdu, &ulpdu_len);

		assert_true(n > 0 && (size_t)n <= len);
		data += n;
		len -= (size_t)n;
		if (!ulpdu) {
			assert_int_equal(len, 0);
			return;
		}
		assert_int_equal(ulpdu_len, lens[*i]);
		for (u32 k = 0; k < ulpdu_len; k++)
			assert_int_equal(ulpdu[k], (u8)(first[*i] + k));
		(*i)++;
	}
}

/* Every mode, every way to cut it. Each piece is a heap block of its own, so that ASan sees an over-read. */
static void any_split(void **state)
{
	static const u32 cuts[] = { 1, 2, 3, 5, 7, 64, 508, 512, 513, 4096, 70000 };
	u8 *stream = malloc(STREAM_MAX), first[40];
	struct rand_gen g;
	u32 lens[40];

	rand_gen_seed(&g, 3);
	for (int mode = 0; mode < 4; mode++) {
		u32 len = build_stream(&g, mode & 1, mode & 2, 40, stream, lens, first);

		for (size_t c = 0; c <= ARRAY_SIZE(cuts); c++) {
			struct mpa_rx rx;
			u32 pos = 0;
			int i = 0;

			mpa_rx_init(&rx, mode & 1, mode & 2);
			while (pos < len) {
				u32 n = c < ARRAY_SIZE(cuts) ? cuts[c] : 1 + (u32)rand_gen_below(&g, 900);
				u8 *piece;

				n = min(n, len - pos);
				piece = malloc(n);
				memcpy(piece, stream + pos, n);
				check_fed(&rx, piece, n, &i, lens, first);
				free(piece);
				pos += n;
			}
			assert_int_equal(i, 40);
			mpa_rx_destroy(&rx);
		}
	}
	free(stream);
}

static void largest_fpdu(void **state)
{
	u8 *big = malloc(65535), *out = malloc(70000);
	const u8 *ulpdu;
	u32 ulpdu_len, pos;
	struct mpa_stream s;
	struct mpa_rx rx;
	int n;

	memset(big, 0x5A, 65535);
	mpa_stream_init(&s, true, false);
	n = mpa_fpdu_build(&s, big, 65535, out, 70000);
	mpa_rx_init(&rx, true, false);
	for (pos = 0; pos < (u32)n; pos += 1000)
		assert_true(mpa_rx_feed(&rx, out + pos, min(1000u, (u32)n - pos), &ulpdu, &ulpdu_len) > 0);
	assert_int_equal(ulpdu_len, 65535);
	assert_memory_equal(ulpdu, big, 65535);
	mpa_rx_destroy(&rx);
	free(big);
	free(out);
}

static void whole_fpdus_are_not_copied(void **state)
{
	u8 ulpdu[100] = { 1 }, out[128];
	struct mpa_stream s;
	struct mpa_rx rx;
	const u8 *got;
	u32 got_len;
	int n;

	mpa_stream_init(&s, true, true);
	n = mpa_fpdu_build(&s, ulpdu, sizeof(ulpdu), out, sizeof(out));
	mpa_rx_init(&rx, true, true);
	assert_int_equal(mpa_rx_feed(&rx, out, (size_t)n, &got, &got_len), n);
	assert_ptr_equal(got, out + 6);
	assert_null(rx.buf);
	mpa_rx_destroy(&rx);
}

/* A length field costs the receiver nothing: the buffer follows the bytes. */
static void hostile_length_allocates_little(void **state)
{
	struct mpa_rx rx;
	const u8 *got;
	u32 got_len;

	mpa_rx_init(&rx, true, false);
	assert_int_equal(mpa_rx_feed(&rx, (const u8 *)"\xFF", 1, &got, &got_len), 1);
	assert_int_equal(mpa_rx_feed(&rx, (const u8 *)"\xFF\0\0\0\0", 5, &got, &got_len), 5);
	assert_null(got);
	assert_true(rx.size <= 256);
	for (u32 sent = 6; sent < 60000; sent += 100) {
		u8 bytes[100] = { 0 };

		assert_int_equal(mpa_rx_feed(&rx, bytes, 100, &got, &got_len), 100);
		assert_true(rx.size <= 256 || rx.size < 2 * (sent + 100));
	}
	mpa_rx_destroy(&rx);
}

/* Any bit flipped is found by the CRC, or earlier; the error stays. */
static void any_bit_flip(void **state)
{
	u8 ulpdu[600], clean[700], out[700];
	struct mpa_stream s;
	u32 n;

	memset(ulpdu, 0x33, sizeof(ulpdu));
	mpa_stream_init(&s, true, true);
	n = (u32)mpa_fpdu_build(&s, ulpdu, sizeof(ulpdu), clean, sizeof(clean));
	for (u32 bit = 0; bit < n * 8; bit++) {
		struct mpa_rx rx;
		const u8 *got;
		u32 got_len;
		ssize_t rc;

		memcpy(out, clean, n);
		out[bit / 8] ^= (u8)(1 << bit % 8);
		mpa_rx_init(&rx, true, true);
		rc = mpa_rx_feed(&rx, out, n, &got, &got_len);
		assert_null(got);
		if (rc == -EPROTO) {
			assert_true(rx.error == TERM_MPA_CRC || rx.error == TERM_MPA_MARKER);
			assert_int_equal(mpa_rx_feed(&rx, clean, n, &got, &got_len), -EPROTO);
			assert_null(got);
		} else {
			assert_true(bit < 48); /* a longer length: it waits for more */
		}
		mpa_rx_destroy(&rx);
	}
}

static void marker_pointer_must_be_right(void **state)
{
	u8 ulpdu[600] = { 0 }, out[700];
	struct mpa_stream s;
	struct mpa_rx rx;
	const u8 *got;
	u32 got_len, n;

	mpa_stream_init(&s, false, true);
	n = (u32)mpa_fpdu_build(&s, ulpdu, sizeof(ulpdu), out, sizeof(out));
	assert_int_equal(out[514] << 8 | out[515], 508);
	out[515] |= 3;    /* the low bits are not looked at */
	out[512] = 0xFF;  /* nor the reserved ones */
	mpa_rx_init(&rx, false, true);
	assert_int_equal(mpa_rx_feed(&rx, out, n, &got, &got_len), n);
	assert_non_null(got);
	mpa_rx_destroy(&rx);
	out[515] -= 4;
	mpa_rx_init(&rx, false, true);
	assert_int_equal(mpa_rx_feed(&rx, out, n, &got, &got_len), -EPROTO);
	assert_int_equal(rx.error, TERM_MPA_MARKER);
	mpa_rx_destroy(&rx);
}

static void crc_off_is_not_checked(void **state)
{
	u8 out[] = { 0, 2, 0xAB, 0xCD, 0xDE, 0xAD, 0xBE, 0xEF };
	struct mpa_rx rx;
	const u8 *got;
	u32 got_len;

	mpa_rx_init(&rx, false, false);
	assert_int_equal(mpa_rx_feed(&rx, out, sizeof(out), &got, &got_len), sizeof(out));
	assert_int_equal(got_len, 2);
	mpa_rx_destroy(&rx);
	mpa_rx_init(&rx, true, false);
	assert_int_equal(mpa_rx_feed(&rx, out, sizeof(out), &got, &got_len), -EPROTO);
	assert_int_equal(rx.error, TERM_MPA_CRC);
	mpa_rx_destroy(&rx);
}

static void random_bytes(void **state)
{
	struct rand_gen g;

	rand_gen_seed(&g, 11);
	for (int run = 0; run < 3000; run++) {
		struct mpa_rx rx;

		mpa_rx_init(&rx, run & 1, run & 2);
		for (int i = 0; i < 50; i++) {
			u32 len = (u32)rand_gen_below(&g, 100), left = len;
			u8 *p = malloc(len + !len), *at = p;

			for (u32 k = 0; k < len; k++)
				p[k] = rand_gen_chance(&g, 0.5) ? 0 : (u8)rand_gen_u64(&g);
			while (left) {
				const u8 *got;
				u32 got_len;
				ssize_t n = mpa_rx_feed(&rx, at, left, &got, &got_len);

				if (n < 0)
					break;
				assert_true(n > 0 && (u32)n <= left);
				at += n;
				left -= (u32)n;
			}
			free(p);
		}
		mpa_rx_destroy(&rx);
	}
}

/* Sealed where it lies, from any pieces, or framed from them: the same FPDU. */
static void pieces_and_seals(void **state)
{
	static const u32 lens[] = { 0, 1, 2, 3, 4, 5, 13, 100, 511, 4096, 65535 - 18 };
	u8 *ulpdu = malloc(65536), *want = malloc(70000), *got = malloc(70000);
	struct rand_gen g;

	rand_gen_seed(&g, 4);
	for (u32 i = 0; i < 65536; i++)
		ulpdu[i] = (u8)rand_gen_u64(&g);
	for (u32 mode = 0; mode < 4; mode++)
		for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
			u32 hdr_len = i % 2 ? DDP_TAGGED_HDR : DDP_UNTAGGED_HDR, len = hdr_len + lens[i];
			u32 cut = (u32)rand_gen_below(&g, lens[i] + 1);
			struct iovec iov[] = { { ulpdu, hdr_len }, { ulpdu + hdr_len, cut }, { NULL, 0 },
					       { ulpdu + hdr_len + cut, lens[i] - cut } };
			struct mpa_stream s, again;
			u8 hdr[64], trailer[MPA_TRAILER_MAX];
			u32 n, total;

			if (mode & 2 && len > 60000)
				continue; /* no 16 bits for its last marker */
			mpa_stream_init(&s, mode & 1, mode & 2);
			s.next_marker = mode & 2 ? 4 * (u32)rand_gen_below(&g, 127) : 0;
			again = s;
			total = mpa_fpdu_len(&s, len);
			assert_int_equal(mpa_fpdu_build(&s, ulpdu, len, want, 70000), total);
			assert_int_equal(mpa_fpdu_build_iov(&again, iov, 4, got, total - 1), -EMSGSIZE);
			assert_int_equal(mpa_fpdu_build_iov(&again, iov, 4, got, total), total);
			assert_memory_equal(got, want, total);
			assert_memory_equal(&s, &again, sizeof(s));
			if (mode & 2)
				continue;
			memcpy(hdr + MPA_LEN_SIZE, ulpdu, hdr_len);
			n = mpa_seal(&s, hdr, MPA_LEN_SIZE + hdr_len, &iov[1], 3, trailer);
			assert_int_equal(n, total - MPA_LEN_SIZE - len);
			assert_memory_equal(hdr, want, MPA_LEN_SIZE + hdr_len);
			assert_memory_equal(trailer, want + total - n, n);
		}
	free(ulpdu);
	free(want);
	free(got);
}

static void sums_of_pieces_do_not_wrap(void **state)
{
	u8 byte = 0, out[64];
	const struct iovec iov[] = { { &byte, SIZE_MAX }, { &byte, 2 }, { &byte, UINT32_MAX } };
	struct mpa_stream s;

	mpa_stream_init(&s, true, false);
	assert_int_equal(mpa_fpdu_build_iov(&s, iov, 2, out, sizeof(out)), -EMSGSIZE);
	assert_int_equal(mpa_fpdu_build_iov(&s, iov + 1, 2, out, sizeof(out)), -EMSGSIZE);
}

/* By trying: the longest ULPDU whose FPDU fits. */
static void check_mulpdu(const struct mpa_stream *s, u32 emss)
{
	u32 len = mpa_mulpdu(s, emss);

	assert_in_range(len, 128, MPA_ULPDU_MAX);
	assert_true(len == 128 || mpa_fpdu_len(s, len) <= emss);
	assert_true(len == MPA_ULPDU_MAX || mpa_fpdu_len(s, len + 1) > emss);
}

static void longest_ulpdu(void **state)
{
	u8 *zeros = calloc(1, 65536), *out = malloc(70000);
	struct mpa_stream s;

	mpa_stream_init(&s, true, false);
	for (u32 emss = 0; emss < 3000; emss++)
		check_mulpdu(&s, emss);
	assert_int_equal(mpa_mulpdu(&s, 1460), 1454);
	assert_int_equal(mpa_mulpdu(&s, 1448), 1442);
	assert_int_equal(mpa_mulpdu(&s, 0), 128);
	assert_int_equal(mpa_mulpdu(&s, 16383), 16380 - 6);
	assert_int_equal(mpa_mulpdu(&s, 16384), MPA_ULPDU_MAX); /* loopback */
	assert_int_equal(mpa_mulpdu(&s, UINT32_MAX), MPA_ULPDU_MAX);
	mpa_stream_init(&s, true, true);
	for (s.next_marker = 0; s.next_marker <= 508; s.next_marker += 4) {
		for (u32 emss = 0; emss < 3000; emss += 1 + emss % 3)
			check_mulpdu(&s, emss);
		for (u32 emss = 16376; emss < 16384; emss++)
			check_mulpdu(&s, emss);
		/* the largest that a marker can still point back over */
		for (u32 more = 0; more < 2; more++) {
			struct mpa_stream copy = s;
			u32 len = mpa_mulpdu(&s, UINT32_MAX) + more;

			assert_int_equal(mpa_fpdu_build(&copy, zeros, len, out, 70000) > 0, !more);
		}
	}
	free(zeros);
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_check_value),
		cmocka_unit_test(one_fpdu),
		cmocka_unit_test(sizes_at_the_edge),
		cmocka_unit_test(markers_by_hand),
		cmocka_unit_test(marker_at_the_crc),
		cmocka_unit_test(any_split),
		cmocka_unit_test(largest_fpdu),
		cmocka_unit_test(whole_fpdus_are_not_copied),
		cmocka_unit_test(hostile_length_allocates_little),
		cmocka_unit_test(any_bit_flip),
		cmocka_unit_test(marker_pointer_must_be_right),
		cmocka_unit_test(crc_off_is_not_checked),
		cmocka_unit_test(random_bytes),
		cmocka_unit_test(pieces_and_seals),
		cmocka_unit_test(sums_of_pieces_do_not_wrap),
		cmocka_unit_test(longest_ulpdu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
