/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Decoders of frames and segments, and TCP options: nothing beyond the bytes is read, and what was decoded lies inside them. */
#include <stdlib.h>
#include <string.h>
#include "cm/cm_internal.h"
#include "fuzz.h"

static void check_inside(const struct pkt *p, const u8 *buf, size_t len)
{
	assert((const u8 *)p->tcph >= buf && p->opts == (const u8 *)p->tcph + PKT_TCP_LEN && p->data == p->opts + p->optlen);
	assert(p->optlen <= PKT_TCP_OPT_MAX && p->data + p->datalen <= buf + len);
}

/* Built again from what was decoded, it decodes to the same. */
static void check_rebuilt(const struct pkt *p)
{
	struct pkt_route r = { .vlan_id = p->vlan_id, .prio = p->prio, .ipv4 = p->ipv4, .tos = p->tos, .ttl = p->ttl };
	u32 len = (u32)(p->data + p->datalen - (const u8 *)p->tcph);
	u8 *buf = malloc(PKT_HDR_MAX + len), *frame;
	struct pkt again;

	memcpy(r.smac, p->smac, 6);
	memcpy(r.dmac, p->dmac, 6);
	memcpy(r.src, p->src, sizeof(r.src));
	memcpy(r.dst, p->dst, sizeof(r.dst));
	memcpy(buf + PKT_HDR_MAX, p->tcph, len);
	frame = pkt_push_headers(&r, buf + PKT_HDR_MAX, len, 7);
	assert(pkt_parse(frame, (size_t)(buf + PKT_HDR_MAX + len - frame), true, &again) == PKT_OK);
	assert(pkt_addr_eq(again.src, p->src) && pkt_addr_eq(again.dst, p->dst) && again.ipv4 == p->ipv4 && again.vlan_id == p->vlan_id);
	assert(again.seq == p->seq && again.ack == p->ack && again.flags == p->flags && again.datalen == p->datalen && again.tos == p->tos);
	free(buf);
}

static void frame(const u8 *buf, size_t len)
{
	struct pkt p;

	if (pkt_parse(buf, len, true, &p) == PKT_OK)
		check_inside(&p, buf, len);
	if (pkt_parse(buf, len, false, &p) != PKT_OK)
		return;
	check_inside(&p, buf, len);
	check_rebuilt(&p);
}

static void segment(const u8 *buf, size_t len)
{
	struct pkt_tuple t = { .ipv4 = true, .vlan_id = PKT_VLAN_NONE };
	struct pkt p;

	if (pkt_parse_segment(buf, len, &t, &p) == PKT_OK)
		check_inside(&p, buf, len);
}

static void options(u8 *buf, size_t len, bool ipv4, u32 syn)
{
	struct irdma_cm_node node = { .ipv4 = ipv4, .tcp_cntxt = { .mss = 1460, .rcv_wscale = CM_RCV_WSCALE } };
	const struct irdma_cm_tcp_context *tcp = &node.tcp_cntxt;

	if (irdma_process_options(&node, buf, (u32)len, syn))
		return;
	assert(tcp->mss >= CM_MSS_DEFAULT_V4 && tcp->mss <= 1460);
	assert(tcp->snd_wscale <= CM_WIN_SCALE_MAX && tcp->wscale_ok == tcp->peer_offered_wscale);
	assert(tcp->wscale_ok || !tcp->snd_wscale);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	u8 *buf;

	if (!size)
		return 0;
	buf = fuzz_copy(data + 1, size - 1);
	switch (data[0] % 4) {
	case 0: frame(buf, size - 1); break;
	case 1: segment(buf, size - 1); break;
	case 2:
	case 3: options(buf, min(size - 1, (size_t)PKT_TCP_OPT_MAX), data[0] & 1, data[0] & 4); break;
	}
	free(buf);
	return 0;
}
