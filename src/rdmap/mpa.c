/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * MPA full operation phase (RFC 5044 4): FPDUs on a byte stream.
 *
 * Theory of operation. An FPDU is ULPDU length, ULPDU, padding to four bytes, CRC32C. With markers,
 * four more bytes sit at every 512th byte of the stream, counted from the first byte after the
 * start-up frame, where the first marker is. FPDUs and markers are multiples of four, so a
 * marker never splits an aligned word, and one that falls between two FPDUs belongs to the later one: it
 * precedes its length field, points back 0 bytes, and is the first thing its CRC covers (RFC 5044 4.3: "All MPA
 * Markers are included in the containing FPDU CRC calculation"). A marker right before the CRC
 * field belongs to the FPDU that the CRC ends.
 *
 * The receiver takes bytes at any split. An FPDU that lies whole and unbroken in the caller's bytes is
 * handed out in place; else it is gathered in a buffer, which grows with what has arrived and
 * never on the word of a length field. What the length field says about DDP is not judged here: an
 * FPDU without ULPDU is legal (RFC 6581 uses it as an RTR). The first error stays: after it
 * the place of the next FPDU is unknown.
 */
#include <errno.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <isa-l/crc.h>
#include <stdlib.h>
#include "rdmap/rdmap_internal.h"

#define CRC_SEED 0xFFFFFFFFu /* RFC 3720 B.4; ISA-L inverts neither at the start nor at the end */
#define MARKER_GAP (MPA_MARKER_SPACING - MPA_MARKER_SIZE) /* bytes of FPDU between two markers */
#define FPDUPTR_MAX 0xFFFCu
#define FPDUPTR_MASK 0xFFFCu /* RFC 5044 4.3: receivers treat the low two bits as zero */
#define FPDU_MAX (((MPA_LEN_SIZE + MPA_ULPDU_MAX + 3) & ~3u) + MPA_CRC_SIZE)
#define MULPDU_MIN 128u      /* RFC 5044 3.1 */
#define EMSS_ANY 16384u      /* no Ethernet has such segments; loopback says half of its first window, less options */
#define RX_BUF_MIN 256u

/*
 * ISA-L's AVX-512 code leaves the upper halves of the vector registers in use. SSE code after it, ours and that of programs, is then so slow that
 * small messages take four times as long (measured on Emerald Rapids).
 */
#ifdef __x86_64__
__attribute__((target("avx"))) static void clear_upper_halves(void)
{
	_mm256_zeroupper();
}

static u32 crc_add(u32 acc, const u8 *p, u32 len)
{
	acc = crc32_iscsi((unsigned char *)p, (int)len, acc);
	if (__builtin_cpu_supports("avx"))
		clear_upper_halves();
	return acc;
}
#else
static u32 crc_add(u32 acc, const u8 *p, u32 len)
{
	return crc32_iscsi((unsigned char *)p, (int)len, acc);
}
#endif

/* RFC 5044 4.4: as in iSCSI, least significant byte first. */
static void crc_store(u32 acc, u8 out[MPA_CRC_SIZE])
{
	acc = ~acc;
	for (int i = 0; i < MPA_CRC_SIZE; i++)
		out[i] = (u8)(acc >> (8 * i));
}

/**
 * mpa_stream_init() - start one direction of FPDUs
 * @s: the direction
 * @crc: CRCs are in use
 * @markers: markers are in use; the first is due at once
 */
void mpa_stream_init(struct mpa_stream *s, bool crc, bool markers)
{
	s->crc = crc;
	s->markers = markers;
	s->next_marker = 0;
}

/* ---- sending ---- */

struct writer {
	struct mpa_stream *s;
	u8 *out;
	u32 pos;
	u32 start; /* of the length field in @out */
	u32 acc;
};

static void put_marker_if_due(struct writer *w)
{
	u32 back = w->pos - w->start;
	u8 *m = w->out + w->pos;

	if (!w->s->markers || w->s->next_marker)
		return;
	if (back == 0)
		w->start += MPA_MARKER_SIZE; /* in front of the length field */
	m[0] = m[1] = 0;
	m[2] = (u8)(back >> 8);
	m[3] = (u8)back;
	w->acc = crc_add(w->acc, m, MPA_MARKER_SIZE);
	w->pos += MPA_MARKER_SIZE;
	w->s->next_marker = MARKER_GAP;
}

/* @src NULL: zeros. */
static void put_bytes(struct writer *w, const u8 *src, u32 len)
{
	while (len) {
		u32 n = len;

		put_marker_if_due(w);
		if (w->s->markers)
			n = min(n, w->s->next_marker);
		if (src) {
			memcpy(w->out + w->pos, src, n);
			src += n;
		} else {
			memset(w->out + w->pos, 0, n);
		}
		w->acc = crc_add(w->acc, w->out + w->pos, n);
		w->pos += n;
		len -= n;
		if (w->s->markers)
			w->s->next_marker -= n;
	}
}

/* Saturates: the caller compares it with a limit. */
static u32 iov_bytes(const struct iovec *iov, int n)
{
	u64 sum = 0;

	for (int i = 0; i < n && sum <= MPA_ULPDU_MAX; i++)
		sum += min(iov[i].iov_len, (size_t)UINT32_MAX);
	return (u32)min(sum, (u64)UINT32_MAX);
}

static u32 markers_within(const struct mpa_stream *s, u32 bytes)
{
	if (!s->markers || bytes <= s->next_marker)
		return 0;
	return 1 + (bytes - s->next_marker - 1) / MARKER_GAP;
}

/**
 * mpa_fpdu_len() - what an FPDU takes of the stream from here
 * @s: the sending direction
 * @len: bytes of its ULPDU
 *
 * Return: bytes, markers included.
 */
u32 mpa_fpdu_len(const struct mpa_stream *s, u32 len)
{
	u32 bytes = mpa_fpdu_bytes(len);

	return bytes + markers_within(s, bytes) * MPA_MARKER_SIZE;
}

/* How many of the next @room bytes of stream are no markers. @room: a multiple of 4. */
static u32 between_markers(const struct mpa_stream *s, u32 room)
{
	u32 rest;

	if (!s->markers || room <= s->next_marker)
		return room;
	room -= s->next_marker;
	rest = room % MPA_MARKER_SPACING;
	return s->next_marker + room / MPA_MARKER_SPACING * MARKER_GAP + (rest ? rest - MPA_MARKER_SIZE : 0);
}

/**
 * mpa_mulpdu() - the longest ULPDU that fits a TCP segment (RFC 5044 5.1)
 * @s: the sending direction
 * @emss: bytes of a segment; EMSS_ANY and above stand for a path on which the size does not matter (loopback)
 *
 * Counts the markers that fall into the next FPDU; one that is due behind it belongs to the one after it.
 *
 * Return: bytes; at least MULPDU_MIN even if that does not fit, at most MPA_ULPDU_MAX.
 */
u32 mpa_mulpdu(const struct mpa_stream *s, u32 emss)
{
	u32 room = min(emss >= EMSS_ANY ? UINT32_MAX : emss, s->markers ? FPDUPTR_MAX : FPDU_MAX) & ~3u;
	u32 bytes = between_markers(s, room);

	if (bytes < MULPDU_MIN + MPA_LEN_SIZE + MPA_CRC_SIZE)
		return MULPDU_MIN;
	return min(bytes - MPA_LEN_SIZE - MPA_CRC_SIZE, (u32)MPA_ULPDU_MAX);
}

/**
 * mpa_seal() - finish an FPDU without markers where it lies
 * @s: the sending direction
 * @hdr: MPA_LEN_SIZE bytes for the length field, which is written here, then the ULPDU's headers
 * @hdr_len: bytes of both
 * @payload: the rest of the ULPDU; together with the headers at most MPA_ULPDU_MAX
 * @n: number of pieces of @payload
 * @trailer: pad and CRC, zeros if it is off, go here
 *
 * Return: bytes of @trailer.
 */
u32 mpa_seal(const struct mpa_stream *s, u8 *hdr, u32 hdr_len, const struct iovec *payload, int n, u8 trailer[MPA_TRAILER_MAX])
{
	u32 len = hdr_len - MPA_LEN_SIZE + iov_bytes(payload, n);
	u32 pad = mpa_fpdu_bytes(len) - MPA_CRC_SIZE - MPA_LEN_SIZE - len;
	u32 acc;

	put_be16(hdr, (u16)len);
	memset(trailer, 0, MPA_TRAILER_MAX);
	if (!s->crc)
		return pad + MPA_CRC_SIZE;
	acc = crc_add(CRC_SEED, hdr, hdr_len);
	for (int i = 0; i < n; i++)
		acc = crc_add(acc, payload[i].iov_base, (u32)payload[i].iov_len);
	crc_store(crc_add(acc, trailer, pad), trailer + pad);
	return pad + MPA_CRC_SIZE;
}

/**
 * mpa_fpdu_build_iov() - frame a ULPDU that is in pieces
 * @s: the sending direction; advanced on success only
 * @ulpdu: the pieces
 * @n: how many
 * @out: where the FPDU goes
 * @size: room there
 *
 * Return: length of the FPDU with its markers, or -EMSGSIZE if it does not fit into @size, the length field or the
 * pointer of a marker.
 */
int mpa_fpdu_build_iov(struct mpa_stream *s, const struct iovec *ulpdu, int n, u8 *out, u32 size)
{
	struct writer w = { .s = s, .out = out, .acc = CRC_SEED };
	u8 head[MPA_LEN_SIZE], crc[MPA_CRC_SIZE] = { 0 };
	u32 len = iov_bytes(ulpdu, n), total;

	if (len > MPA_ULPDU_MAX)
		return -EMSGSIZE;
	total = mpa_fpdu_len(s, len);
	if (total > size || (s->markers && total > FPDUPTR_MAX))
		return -EMSGSIZE;
	put_be16(head, (u16)len);
	put_bytes(&w, head, sizeof(head));
	for (int i = 0; i < n; i++)
		put_bytes(&w, ulpdu[i].iov_base, (u32)ulpdu[i].iov_len);
	put_bytes(&w, NULL, mpa_fpdu_bytes(len) - MPA_CRC_SIZE - MPA_LEN_SIZE - len);
	put_marker_if_due(&w);
	if (s->crc)
		crc_store(w.acc, crc);
	put_bytes(&w, crc, sizeof(crc));
	return (int)w.pos;
}

/**
 * mpa_fpdu_build() - frame a ULPDU
 * @s: the sending direction; advanced on success only
 * @ulpdu: the ULPDU
 * @len: its length
 * @out: where the FPDU goes
 * @size: room there
 *
 * Return: as mpa_fpdu_build_iov().
 */
int mpa_fpdu_build(struct mpa_stream *s, const void *ulpdu, u32 len, u8 *out, u32 size)
{
	const struct iovec piece = { .iov_base = (void *)ulpdu, .iov_len = len };

	return mpa_fpdu_build_iov(s, &piece, 1, out, size);
}

/* ---- receiving ---- */

static void rx_next_fpdu(struct mpa_rx *rx)
{
	rx->have = 0;
	rx->need = MPA_LEN_SIZE;
	rx->fpdu_start = 0;
	rx->crc_acc = CRC_SEED;
}

/**
 * mpa_rx_init() - prepare to receive FPDUs
 * @rx: the receiver
 * @crc: CRCs are in use and checked
 * @markers: markers are expected
 *
 * Allocates nothing.
 */
void mpa_rx_init(struct mpa_rx *rx, bool crc, bool markers)
{
	memset(rx, 0, sizeof(*rx));
	mpa_stream_init(&rx->stream, crc, markers);
	rx_next_fpdu(rx);
}

/**
 * mpa_rx_destroy() - free what a receiver holds
 * @rx: the receiver; all zero is fine
 */
void mpa_rx_destroy(struct mpa_rx *rx)
{
	free(rx->buf);
	rx->buf = NULL;
	rx->size = 0;
}

static ssize_t rx_fail(struct mpa_rx *rx, int code)
{
	rx->error = code;
	return -EPROTO;
}

/* Room for what is at hand, doubling; at most what the FPDU needs. */
static int rx_reserve(struct mpa_rx *rx, u32 size)
{
	u32 grown = RX_BUF_MIN;
	u8 *buf;

	if (size <= rx->size)
		return 0;
	while (grown < size)
		grown *= 2;
	buf = realloc(rx->buf, grown);
	if (!buf) {
		rx->error = TERM_MPA_LOCAL;
		return -ENOMEM;
	}
	rx->buf = buf;
	rx->size = grown;
	return 0;
}

/* Bytes of marker consumed, or -EPROTO. */
static ssize_t rx_marker(struct mpa_rx *rx, const u8 *data, size_t len)
{
	u32 n = (u32)min(len, (size_t)(MPA_MARKER_SIZE - rx->marker_have));
	u32 back;

	memcpy(rx->marker + rx->marker_have, data, n);
	rx->marker_have += n;
	if (rx->marker_have < MPA_MARKER_SIZE)
		return n;
	back = ((u32)rx->marker[2] << 8 | rx->marker[3]) & FPDUPTR_MASK;
	if (back != rx->fpdu_start)
		return rx_fail(rx, TERM_MPA_MARKER);
	rx->crc_acc = crc_add(rx->crc_acc, rx->marker, MPA_MARKER_SIZE);
	if (rx->have)
		rx->fpdu_start += MPA_MARKER_SIZE;
	rx->marker_have = 0;
	rx->stream.next_marker = MARKER_GAP;
	return n;
}

static bool crc_matches(u32 acc, const u8 *field)
{
	u8 want[MPA_CRC_SIZE];

	crc_store(acc, want);
	return memcmp(want, field, sizeof(want)) == 0;
}

bool mpa_crc_ok(const u8 *fpdu, u32 fpdu_len)
{
	u32 covered = fpdu_len - MPA_CRC_SIZE;

	return crc_matches(crc_add(CRC_SEED, fpdu, covered), fpdu + covered);
}

bool mpa_rx_begun(const struct mpa_rx *rx)
{
	/* Its first byte would have moved on from the marker. */
	bool behind_marker = rx->stream.markers && rx->stream.next_marker == MARKER_GAP;

	return rx->have || rx->marker_have || behind_marker;
}

/* The next FPDU lies whole and without a marker in @data: no copy. Bytes consumed, 0 if it does not, -EPROTO. */
static ssize_t rx_in_place(struct mpa_rx *rx, const u8 *data, size_t len, const u8 **ulpdu, u32 *ulpdu_len)
{
	u32 ulen, total;

	if (rx->have || len < MPA_LEN_SIZE)
		return 0;
	ulen = (u32)data[0] << 8 | data[1];
	total = mpa_fpdu_bytes(ulen);
	if (total > len || (rx->stream.markers && total > rx->stream.next_marker))
		return 0;
	if (rx->stream.crc && !crc_matches(crc_add(rx->crc_acc, data, total - MPA_CRC_SIZE), data + total - MPA_CRC_SIZE))
		return rx_fail(rx, TERM_MPA_CRC);
	if (rx->stream.markers)
		rx->stream.next_marker -= total;
	*ulpdu = data + MPA_LEN_SIZE;
	*ulpdu_len = ulen;
	rx_next_fpdu(rx);
	return total;
}

/* Copy what fits before the next marker, the end of the length field, the end of the FPDU. Bytes consumed or -ENOMEM. */
static ssize_t rx_gather(struct mpa_rx *rx, const u8 *data, size_t len)
{
	u32 n = (u32)min(len, (size_t)(rx->need - rx->have));
	u32 covered = 0; /* by the CRC */
	int rc;

	if (rx->stream.markers)
		n = min(n, rx->stream.next_marker);
	rc = rx_reserve(rx, rx->have + n);
	if (rc)
		return rc;
	memcpy(rx->buf + rx->have, data, n);
	if (rx->need == MPA_LEN_SIZE)
		covered = n;
	else if (rx->have < rx->need - MPA_CRC_SIZE)
		covered = min(n, rx->need - MPA_CRC_SIZE - rx->have);
	if (rx->stream.crc && covered)
		rx->crc_acc = crc_add(rx->crc_acc, data, covered);
	rx->have += n;
	rx->fpdu_start += n;
	if (rx->stream.markers)
		rx->stream.next_marker -= n;
	if (rx->have == MPA_LEN_SIZE && rx->need == MPA_LEN_SIZE)
		rx->need = mpa_fpdu_bytes((u32)rx->buf[0] << 8 | rx->buf[1]);
	return n;
}

/* One step: a marker, a whole FPDU in place, or a piece of one. */
static ssize_t rx_step(struct mpa_rx *rx, const u8 *data, size_t len, const u8 **ulpdu, u32 *ulpdu_len)
{
	ssize_t n;

	if (rx->stream.markers && rx->stream.next_marker == 0)
		return rx_marker(rx, data, len);
	n = rx_in_place(rx, data, len, ulpdu, ulpdu_len);
	if (n)
		return n;
	n = rx_gather(rx, data, len);
	if (n < 0 || rx->have < rx->need)
		return n;
	if (rx->stream.crc && !crc_matches(rx->crc_acc, rx->buf + rx->need - MPA_CRC_SIZE))
		return rx_fail(rx, TERM_MPA_CRC);
	*ulpdu = rx->buf + MPA_LEN_SIZE;
	*ulpdu_len = (u32)rx->buf[0] << 8 | rx->buf[1];
	rx_next_fpdu(rx);
	return n;
}

/**
 * mpa_rx_feed() - consume received bytes
 * @rx: the receiver
 * @data: the bytes, any number of them
 * @len: how many
 * @ulpdu: set to the ULPDU of the FPDU that became complete, NULL if none did; valid until the next call and
 *         as long as @data is
 * @ulpdu_len: its length, which may be 0
 *
 * Stops after one complete FPDU; the caller calls again with the rest.
 *
 * Return: bytes consumed, -EPROTO (rx->error says what is wrong; all later calls fail too), or -ENOMEM.
 */
ssize_t mpa_rx_feed(struct mpa_rx *rx, const u8 *data, size_t len, const u8 **ulpdu, u32 *ulpdu_len)
{
	size_t used = 0;

	*ulpdu = NULL;
	*ulpdu_len = 0;
	if (rx->error)
		return -EPROTO;
	while (used < len && !*ulpdu) {
		ssize_t n = rx_step(rx, data + used, len - used, ulpdu, ulpdu_len);

		if (n < 0)
			return n;
		used += (size_t)n;
	}
	return (ssize_t)used;
}
