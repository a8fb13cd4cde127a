/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: Ethernet (IEEE 802.3, 802.1Q), IPv4 (RFC 791), IPv6 (RFC 8200), TCP (RFC 9293).
 * Frames are read and written byte-wise or through memcpy: nothing is assumed about alignment.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "base/packet.h"

#define ETH_TYPE_IP4 0x0800
#define ETH_TYPE_IP6 0x86DD
#define ETH_TYPE_VLAN 0x8100
#define VLAN_IDS 4096
#define IP_PROTO_TCP 6
#define IP4_DF 0x4000
#define IP4_FRAGMENT 0x3FFF /* MF, or an offset */
#define TCP_CSUM_OFFSET 16

static u16 get16(const u8 *p)
{
	return (u16)(p[0] << 8 | p[1]);
}

static u32 get32(const u8 *p)
{
	u32 v;

	memcpy(&v, p, sizeof(v));
	return ntohl(v);
}

static void put16(u8 *p, u16 v)
{
	v = htons(v);
	memcpy(p, &v, sizeof(v));
}

static void put32(u8 *p, u32 v)
{
	v = htonl(v);
	memcpy(p, &v, sizeof(v));
}

/* Checksums. One's complement sums may be added up in words of any width and folded at the end (RFC 1071 2). */

typedef u64 vec __attribute__((vector_size(16)));
#define BLOCK (2 * sizeof(vec))

static u64 load64(const u8 *p)
{
	u64 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Add with end-around carry. */
static inline u64 add_carry(u64 a, u64 b)
{
	return __builtin_add_overflow(a, b, &a) ? a + 1 : a;
}

/* Halves of 64-bit words in lanes of their own: they cannot overflow in less than 2^32 rounds. */
static u64 sum_blocks(const u8 *p, const u8 *end)
{
	vec low = { 0 }, high = { 0 }, low2 = { 0 }, high2 = { 0 };

	for (; p < end; p += BLOCK) {
		vec v, v2;

		memcpy(&v, p, sizeof(v));
		memcpy(&v2, p + sizeof(v), sizeof(v2));
		low += v & 0xFFFFFFFFu;
		high += v >> 32;
		low2 += v2 & 0xFFFFFFFFu;
		high2 += v2 >> 32;
	}
	low += low2;
	high += high2;
	return add_carry(add_carry(low[0], low[1]), add_carry(high[0], high[1]));
}

/* The last 0 to 7 bytes as the word they would be with zeros behind them. */
static u64 load_tail(const u8 *p, size_t len)
{
	u64 v = 0;

	if (len & 4) {
		u32 w;

		memcpy(&w, p, sizeof(w));
		v += w;
		p += 4;
	}
	if (len & 2) {
		u16 w;

		memcpy(&w, p, sizeof(w));
		v += w;
		p += 2;
	}
	if (len & 1) {
		u8 last[2] = { *p, 0 };
		u16 w;

		memcpy(&w, last, sizeof(w));
		v += w;
	}
	return v;
}

static inline u64 sum64(const u8 *p, size_t len, u64 sum)
{
	if (len >= 128) {
		size_t blocks = len / BLOCK * BLOCK;

		sum = add_carry(sum, sum_blocks(p, p + blocks));
		p += blocks;
		len -= blocks;
	}
	for (; len >= 8; p += 8, len -= 8)
		sum = add_carry(sum, load64(p));
	return len ? add_carry(sum, load_tail(p, len)) : sum;
}

static u32 fold64(u64 sum)
{
	sum = (sum & 0xFFFFFFFFu) + (sum >> 32);
	return (u32)((sum & 0xFFFFFFFFu) + (sum >> 32));
}

/**
 * pkt_sum() - add bytes to a checksum
 * @p: the bytes, at any alignment
 * @len: how many; even, except for the last piece of a sum
 * @sum: sum of the pieces before, 0 for the first
 *
 * Return: the sum, un-folded (RFC 1071), of 16-bit words as they lie in memory.
 */
u32 pkt_sum(const void *p, size_t len, u32 sum)
{
	return fold64(sum64(p, len, sum));
}

/**
 * pkt_csum_fold() - finish a checksum
 * @sum: of pkt_sum()
 *
 * Return: the checksum, to be stored as it is (network order); 0 if @sum included a checksum
 * that is right.
 */
u16 pkt_csum_fold(u32 sum)
{
	sum = (sum & 0xFFFF) + (sum >> 16);
	sum = (sum & 0xFFFF) + (sum >> 16);
	return (u16)~sum;
}

/* What the pseudo-headers of RFC 9293 3.1 and RFC 8200 8.1 hold besides the addresses. */
static u64 pseudo_sum(u32 tcplen)
{
	return (u64)htonl(tcplen) + htonl(IP_PROTO_TCP);
}

static u64 tcp_sum(bool ipv4, const u32 *src, const u32 *dst, const u8 *tcp, u32 tcplen)
{
	u64 sum = pseudo_sum(tcplen) + htonl(src[0]) + htonl(dst[0]);
	int i;

	for (i = 1; i < 4 && !ipv4; i++)
		sum += (u64)htonl(src[i]) + htonl(dst[i]);
	return sum64(tcp, tcplen, sum);
}

/**
 * pkt_tcp_csum() - TCP checksum with its pseudo-header
 * @ipv4: which pseudo-header
 * @src: source address, host order
 * @dst: destination address, host order
 * @tcp: header, options and payload
 * @tcplen: their bytes
 *
 * A checksum of 0 has no meaning of its own in TCP (unlike UDP): it is verified as any other.
 *
 * Return: the checksum in network order if the field in @tcp is 0; 0 if the field is right.
 */
u16 pkt_tcp_csum(bool ipv4, const u32 *src, const u32 *dst, const void *tcp, u32 tcplen)
{
	return pkt_csum_fold(fold64(tcp_sum(ipv4, src, dst, tcp, tcplen)));
}

/* Decoders: each gets what is left between @p and its end, and returns the verdict of the rest. */

/* @seg, @len: as far as the IP length says. */
static inline enum pkt_verdict parse_tcp(const u8 *seg, size_t len, struct pkt *out)
{
	size_t hdrlen;

	if (unlikely(len < PKT_TCP_LEN))
		return PKT_SHORT;
	hdrlen = (seg[12] >> 4) * 4u;
	if (unlikely(hdrlen < PKT_TCP_LEN || hdrlen > len))
		return PKT_SHORT;
	out->tcph = (const struct tcphdr *)seg;
	out->sport = get16(seg);
	out->dport = get16(seg + 2);
	out->seq = get32(seg + 4);
	out->ack = get32(seg + 8);
	out->flags = seg[13] & (PKT_FIN | PKT_SYN | PKT_RST | PKT_PSH | PKT_ACK | PKT_URG);
	out->window = get16(seg + 14);
	out->opts = seg + PKT_TCP_LEN;
	out->optlen = (u32)(hdrlen - PKT_TCP_LEN);
	out->data = seg + hdrlen;
	out->datalen = (u32)(len - hdrlen);
	return PKT_OK;
}

/* @addrs: both addresses as they stand in the IP header. */
static inline enum pkt_verdict check_tcp(const u8 *addrs, size_t addrlen, const u8 *seg, size_t len)
{
	u64 sum = sum64(addrs, addrlen, pseudo_sum((u32)len));

	return pkt_csum_fold(fold64(sum64(seg, len, sum))) ? PKT_BAD_TCP_CSUM : PKT_OK;
}

static inline enum pkt_verdict parse_ip4(const u8 *ip, size_t len, bool check, struct pkt *out)
{
	enum pkt_verdict v;
	size_t hdrlen, total;

	if (unlikely(len < PKT_IP4_LEN))
		return PKT_SHORT;
	if (unlikely(ip[0] >> 4 != 4))
		return PKT_NOT_TCP;
	hdrlen = (ip[0] & 15) * 4u;
	total = get16(ip + 2);
	if (unlikely(hdrlen < PKT_IP4_LEN || total < hdrlen || total > len))
		return PKT_SHORT;
	if (check && unlikely(pkt_csum_fold(fold64(sum64(ip, hdrlen, 0)))))
		return PKT_BAD_IP_CSUM;
	if (unlikely(get16(ip + 6) & IP4_FRAGMENT || ip[9] != IP_PROTO_TCP))
		return PKT_NOT_TCP;
	out->ipv4 = true;
	out->tos = ip[1];
	out->ttl = ip[8];
	memset(out->src, 0, sizeof(out->src));
	memset(out->dst, 0, sizeof(out->dst));
	out->src[0] = get32(ip + 12);
	out->dst[0] = get32(ip + 16);
	v = parse_tcp(ip + hdrlen, total - hdrlen, out);
	if (v == PKT_OK && check)
		v = check_tcp(ip + 12, 8, ip + hdrlen, total - hdrlen);
	return v;
}

static inline enum pkt_verdict parse_ip6(const u8 *ip, size_t len, bool check, struct pkt *out)
{
	const u8 *seg = ip + PKT_IP6_LEN;
	enum pkt_verdict v;
	size_t seglen;
	int i;

	if (unlikely(len < PKT_IP6_LEN))
		return PKT_SHORT;
	if (unlikely(ip[0] >> 4 != 6))
		return PKT_NOT_TCP;
	seglen = get16(ip + 4);
	if (unlikely(seglen > len - PKT_IP6_LEN))
		return PKT_SHORT;
	if (unlikely(ip[6] != IP_PROTO_TCP))
		return PKT_NOT_TCP;
	out->ipv4 = false;
	out->tos = (u8)(get16(ip) >> 4);
	out->ttl = ip[7];
	for (i = 0; i < 4; i++) {
		out->src[i] = get32(ip + 8 + 4 * i);
		out->dst[i] = get32(ip + 24 + 4 * i);
	}
	v = parse_tcp(seg, seglen, out);
	if (v == PKT_OK && check)
		v = check_tcp(ip + 8, 32, seg, seglen);
	return v;
}

/* IEEE 802.1Q 9.6: VID 0 means that only the priority counts. */
static void parse_tag(u16 tci, struct pkt *out)
{
	u16 vid = tci % VLAN_IDS;

	out->prio = (u8)(tci >> 13);
	out->vlan_id = vid ? vid : PKT_VLAN_NONE;
}

/**
 * pkt_parse() - decode an Ethernet frame
 * @frame: the frame, without preamble and FCS
 * @len: its bytes; padding behind the IP length is ignored
 * @check: verify the IPv4 header checksum and the TCP checksum
 * @out: the decoded frame, pointing into @frame; complete only with PKT_OK
 *
 * One 802.1Q tag is understood. IPv4 options are skipped; a fragment (RFC 791 3.2), or IPv6 with
 * any extension header (RFC 8200 4), is PKT_NOT_TCP.
 *
 * Return: PKT_OK or what is wrong.
 */
enum pkt_verdict pkt_parse(const void *frame, size_t len, bool check, struct pkt *out)
{
	const u8 *p = frame;
	size_t l2 = PKT_ETH_LEN;
	u16 type;

	if (unlikely(len < PKT_ETH_LEN))
		return PKT_SHORT;
	memcpy(out->dmac, p, sizeof(out->dmac));
	memcpy(out->smac, p + 6, sizeof(out->smac));
	out->frame = frame;
	out->framelen = (u32)len;
	out->vlan_id = PKT_VLAN_NONE;
	out->prio = 0;
	type = get16(p + 12);
	if (type == ETH_TYPE_VLAN) {
		l2 += PKT_VLAN_LEN;
		if (unlikely(len < l2))
			return PKT_SHORT;
		parse_tag(get16(p + 14), out);
		type = get16(p + 16);
	}
	if (likely(type == ETH_TYPE_IP4))
		return parse_ip4(p + l2, len - l2, check, out);
	return type == ETH_TYPE_IP6 ? parse_ip6(p + l2, len - l2, check, out) : PKT_NOT_TCP;
}

/**
 * pkt_parse_segment() - decode a TCP segment that came without layers 2 and 3
 * @seg: header, options and payload
 * @len: their bytes
 * @t: whose addresses and VLAN it has, as received by its "loc" end; its ports are not looked at
 * @out: the decoded segment, pointing into @seg; complete only with PKT_OK
 *
 * Return: PKT_OK or PKT_SHORT.
 */
enum pkt_verdict pkt_parse_segment(const void *seg, size_t len, const struct pkt_tuple *t, struct pkt *out)
{
	memset(out->dmac, 0, sizeof(out->dmac));
	memset(out->smac, 0, sizeof(out->smac));
	out->vlan_id = t->vlan_id;
	out->prio = out->tos = out->ttl = 0;
	out->ipv4 = t->ipv4;
	memcpy(out->src, t->rem_addr, sizeof(out->src));
	memcpy(out->dst, t->loc_addr, sizeof(out->dst));
	out->frame = seg;
	out->framelen = (u32)len;
	return parse_tcp(seg, len, out);
}

static bool is_tagged(const struct pkt_route *r)
{
	return r->vlan_id < VLAN_IDS;
}

/**
 * pkt_header_len() - room that pkt_push_headers() needs
 * @r: the route
 *
 * Return: bytes of the Ethernet, 802.1Q and IP headers, at most PKT_HDR_MAX.
 */
u32 pkt_header_len(const struct pkt_route *r)
{
	return PKT_ETH_LEN + (is_tagged(r) ? PKT_VLAN_LEN : 0) + (r->ipv4 ? PKT_IP4_LEN : PKT_IP6_LEN);
}

/*
 * The two below compute checksums without reading back what was just written in smaller pieces,
 * which would stall a processor for longer than all the rest takes.
 */

static u8 *push_ip4(const struct pkt_route *r, u8 *tcp, u32 tcplen, u16 ip_id)
{
	u8 *ip = tcp - PKT_IP4_LEN;
	u32 word[5] = {
		htonl(0x45u << 24 | (u32)r->tos << 16 | (PKT_IP4_LEN + tcplen)),
		htonl((u32)ip_id << 16 | IP4_DF),
		htonl((u32)r->ttl << 24 | IP_PROTO_TCP << 16),
		htonl(r->src[0]),
		htonl(r->dst[0]),
	};
	u64 sum = (u64)word[0] + word[1] + word[2] + word[3] + word[4];

	assert(tcplen <= 0xFFFF - PKT_IP4_LEN);
	word[2] |= htonl(ntohs(pkt_csum_fold(fold64(sum))));
	memcpy(ip, word, sizeof(word));
	return ip;
}

static void put_tcp_csum(const struct pkt_route *r, u8 *tcp, u32 tcplen)
{
	u64 sum = tcp_sum(r->ipv4, r->src, r->dst, tcp, tcplen);
	u16 field;

	/* Whatever is in the field was summed too: x + ~x is a zero of one's complement. */
	memcpy(&field, tcp + TCP_CSUM_OFFSET, sizeof(field));
	field = pkt_csum_fold(fold64(add_carry(sum, (u16)~field)));
	memcpy(tcp + TCP_CSUM_OFFSET, &field, sizeof(field));
}

static u8 *push_ip6(const struct pkt_route *r, u8 *tcp, u32 tcplen)
{
	u8 *ip = tcp - PKT_IP6_LEN;
	int i;

	assert(tcplen <= 0xFFFF);
	put32(ip, 6u << 28 | (u32)r->tos << 20);
	put16(ip + 4, (u16)tcplen);
	ip[6] = IP_PROTO_TCP;
	ip[7] = r->ttl;
	for (i = 0; i < 4; i++) {
		put32(ip + 8 + 4 * i, r->src[i]);
		put32(ip + 24 + 4 * i, r->dst[i]);
	}
	return ip;
}

static u8 *push_eth(const struct pkt_route *r, u8 *ip)
{
	u8 *eth;

	put16(ip - 2, r->ipv4 ? ETH_TYPE_IP4 : ETH_TYPE_IP6);
	if (is_tagged(r)) {
		put16(ip - 4, (u16)((r->prio & 7) << 13 | r->vlan_id));
		put16(ip - 6, ETH_TYPE_VLAN);
		ip -= PKT_VLAN_LEN;
	}
	eth = ip - PKT_ETH_LEN;
	memcpy(eth, r->dmac, sizeof(r->dmac));
	memcpy(eth + 6, r->smac, sizeof(r->smac));
	return eth;
}

/**
 * pkt_push_headers() - turn a TCP segment into a frame
 * @r: layers 2 and 3; a VLAN id of 0 makes a priority tag, one above 4095 none
 * @tcp: TCP header, with pkt_header_len() bytes of room in front; its checksum field, whatever it
 *	holds, is written
 * @tcplen: bytes of header, options and payload; together with the IPv4 header at most 65535
 * @ip_id: IPv4 identification (RFC 6864: without meaning as long as DF is set)
 *
 * Return: the start of the frame.
 */
u8 *pkt_push_headers(const struct pkt_route *r, u8 *tcp, u32 tcplen, u16 ip_id)
{
	u8 *ip;

	assert(tcplen >= PKT_TCP_LEN);
	put_tcp_csum(r, tcp, tcplen);
	ip = r->ipv4 ? push_ip4(r, tcp, tcplen, ip_id) : push_ip6(r, tcp, tcplen);
	return push_eth(r, ip);
}

/**
 * pkt_addr_str() - an address for people
 * @ipv4: which kind
 * @addr: address, host order
 * @port: port, or a negative number for the address alone
 * @buf: PKT_ADDRSTR bytes
 *
 * Return: @buf, holding "192.0.2.1:80" or "[2001:db8::1]:80".
 */
char *pkt_addr_str(bool ipv4, const u32 *addr, int port, char buf[PKT_ADDRSTR])
{
	char text[INET6_ADDRSTRLEN];
	u32 net[4];
	int i;

	for (i = 0; i < 4; i++)
		net[i] = htonl(addr[i]);
	inet_ntop(ipv4 ? AF_INET : AF_INET6, net, text, sizeof(text));
	if (port < 0)
		snprintf(buf, PKT_ADDRSTR, "%s", text);
	else
		snprintf(buf, PKT_ADDRSTR, ipv4 ? "%s:%d" : "[%s]:%d", text, port);
	return buf;
}
