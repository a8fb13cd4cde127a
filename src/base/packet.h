/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: Ethernet, IP and TCP on the wire: layouts, a pure decoder, a builder, checksums.
 * Addresses are u32[4] in host order (IPv4 uses word 0, the rest are 0), ports in host order.
 */
#ifndef UWARP_BASE_PACKET_H
#define UWARP_BASE_PACKET_H

#include <netinet/tcp.h> /* struct tcphdr */
#include "base/types.h"

#define PKT_VLAN_NONE 0xFFFF
#define PKT_ETH_LEN 14
#define PKT_VLAN_LEN 4
#define PKT_IP4_LEN 20
#define PKT_IP6_LEN 40
#define PKT_TCP_LEN 20
#define PKT_TCP_OPT_MAX 40

#define PKT_FIN 0x01
#define PKT_SYN 0x02
#define PKT_RST 0x04
#define PKT_PSH 0x08
#define PKT_ACK 0x10
#define PKT_URG 0x20

/* Who talks to whom. "loc" is this NIC's end. */
struct pkt_tuple {
	u32 loc_addr[4], rem_addr[4];
	u16 loc_port, rem_port;
	u16 vlan_id;          /* PKT_VLAN_NONE: untagged */
	bool ipv4;
};

/* A decoded frame, or a segment that came without layers 2 and 3 (then smac/dmac are zero). */
struct pkt {
	u8 dmac[6], smac[6];
	u16 vlan_id;
	u8 prio;              /* 802.1Q priority */
	bool ipv4;
	u8 tos, ttl;          /* or traffic class, hop limit */
	u32 src[4], dst[4];
	u16 sport, dport;
	const struct tcphdr *tcph; /* in the frame; may be unaligned: struct tcphdr is read through memcpy or the fields below */
	u32 seq, ack;
	u16 window;           /* as on the wire, not scaled */
	u8 flags;             /* PKT_* */
	const u8 *opts;
	u32 optlen;
	const u8 *data;       /* TCP payload */
	u32 datalen;
	const u8 *frame;      /* whole thing as received */
	u32 framelen;
};

enum pkt_verdict {
	PKT_OK,
	PKT_SHORT,    /* a length does not fit */
	PKT_NOT_TCP,  /* another protocol, a fragment, an extension header */
	PKT_BAD_IP_CSUM,
	PKT_BAD_TCP_CSUM,
};

/* Decode an Ethernet frame; padding behind the IP length is ignored. @check: verify both checksums. */
enum pkt_verdict pkt_parse(const void *frame, size_t len, bool check, struct pkt *out);
/* Decode a bare TCP header + options + payload; addresses and vlan come from @t, as received by its "loc" end. */
enum pkt_verdict pkt_parse_segment(const void *seg, size_t len, const struct pkt_tuple *t, struct pkt *out);

/* Layers 2 and 3 for a segment. */
struct pkt_route {
	u8 smac[6], dmac[6];
	u16 vlan_id;
	u8 prio;
	bool ipv4;
	u8 tos, ttl;
	u32 src[4], dst[4];
};

/* Bytes that pkt_push_headers() puts in front of the TCP header: at most PKT_HDR_MAX. */
#define PKT_HDR_MAX (PKT_ETH_LEN + PKT_VLAN_LEN + PKT_IP6_LEN)
u32 pkt_header_len(const struct pkt_route *r);
/*
 * Write Ethernet, tag and IP headers (DF for IPv4) right before @tcp, which has pkt_header_len()
 * bytes of room in front, and the TCP checksum into @tcp. @ip_id: IPv4 identification.
 * Returns the start of the frame.
 */
u8 *pkt_push_headers(const struct pkt_route *r, u8 *tcp, u32 tcplen, u16 ip_id);

/*
 * RFC 1071, un-folded; 16-bit words as they lie in memory, so that the folded sum can be stored
 * as it is. Each piece but the last has an even length.
 */
u32 pkt_sum(const void *p, size_t len, u32 sum);
u16 pkt_csum_fold(u32 sum);
u16 pkt_tcp_csum(bool ipv4, const u32 *src, const u32 *dst, const void *tcp, u32 tcplen); /* network order, 0 if the segment's checksum verifies */

static inline bool pkt_addr_eq(const u32 *a, const u32 *b)
{
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]));
}
static inline bool pkt_addr_is_any(const u32 *a) { return !(a[0] | a[1] | a[2] | a[3]); }
/* "192.0.2.1:80" or "[2001:db8::1]:80"; port < 0: address alone. Returns buf. */
#define PKT_ADDRSTR 64
char *pkt_addr_str(bool ipv4, const u32 *addr, int port, char buf[PKT_ADDRSTR]);

/* RFC 9293 3.4: sequence numbers wrap. */
static inline bool seq_lt(u32 a, u32 b) { return (s32)(a - b) < 0; }
static inline bool seq_leq(u32 a, u32 b) { return (s32)(a - b) <= 0; }
static inline bool seq_gt(u32 a, u32 b) { return seq_lt(b, a); }
static inline bool seq_geq(u32 a, u32 b) { return seq_leq(b, a); }

/*
 * The state of a TCP connection, handed from the CM to whoever continues it (the port: kernel
 * socket or tsa). RFC 9293 3.3.1 names.
 */
struct tcp_info_ho {
	struct pkt_tuple tuple;
	u8 rem_mac[6], loc_mac[6];
	u8 ttl, tos, prio;
	u32 snd_una, snd_nxt, snd_max;
	u32 snd_wnd, max_snd_wnd;   /* bytes, already scaled */
	u32 rcv_nxt, rcv_wnd;       /* bytes */
	u8 snd_wscale, rcv_wscale;
	u16 mss;                    /* largest payload to send (peer's MSS capped by the path) */
	bool peer_fin;              /* FIN already received: it sits behind rx_data */
	const u8 *rx_data;          /* stream bytes received past the MPA frame, already acknowledged; copied */
	u32 rx_len;
};

#endif
