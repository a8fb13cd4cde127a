// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Frames that the CM sends. A frame is a buffer from the ILQ's bounded pool; the TCP header stands behind PKT_HDR_MAX
 * bytes of room, so that layers 2 and 3 can be put in front.
 */
#include <arpa/inet.h>
#include <string.h>
#include "cm/cm_internal.h"

#define TCP_OPT_NOP 1
#define TCP_OPT_MSS 2
#define TCP_OPT_WSCALE 3

/**
 * irdma_free_sqbuf - drop a reference to an ILQ buffer
 * @vsi: whose ILQ
 * @bufp: struct irdma_puda_buf; the last reference returns it to the pool
 *
 * Frames sent and received end here: what is kept for retransmission holds a reference of its own, so that whoever
 * is done with a frame drops its reference and need not know who else has one. Any context.
 */
void irdma_free_sqbuf(struct irdma_sc_vsi *vsi, void *bufp)
{
	(void)vsi;
	rnic_buf_put(bufp);
}

/* What the window field says: room left, scaled once both SYNs agreed (RFC 7323 2.2: never on a SYN). */
static u16 window_field(const struct irdma_cm_node *node, u8 flags)
{
	u32 room = cm_rcv_room(node);

	if (!(flags & SET_SYN) && node->tcp_cntxt.wscale_ok)
		room >>= node->tcp_cntxt.rcv_wscale;
	return (u16)min(room, CM_RCV_WND);
}

static u8 tcp_flags(u8 flags, bool data)
{
	u8 out = data ? PKT_PSH : 0;

	if (flags & SET_ACK)
		out |= PKT_ACK;
	if (flags & SET_SYN)
		out |= PKT_SYN;
	if (flags & SET_FIN)
		out |= PKT_FIN;
	if (flags & SET_RST)
		out |= PKT_RST;
	return out;
}

static void put_tcp_header(struct irdma_cm_node *node, u8 *p, u32 optlen, u8 flags, bool data)
{
	struct irdma_cm_tcp_context *tcp = &node->tcp_cntxt;
	struct tcphdr h = {
		.source = htons(node->loc_port),
		.dest = htons(node->rem_port),
		.seq = htonl(tcp->loc_seq_num),
		.window = htons(window_field(node, flags)),
		.doff = (PKT_TCP_LEN + optlen) / 4,
	};

	if (flags & SET_ACK) {
		h.ack_seq = htonl(tcp->rcv_nxt);
		tcp->loc_ack_num = tcp->rcv_nxt;
	}
	h.th_flags = tcp_flags(flags, data);
	memcpy(p, &h, sizeof(h));
}

static u8 *append(u8 *p, const void *src, u32 len)
{
	if (len)
		memcpy(p, src, len);
	return p + len;
}

static u32 size_of(const struct irdma_kmem_info *m)
{
	return m ? m->size : 0;
}

/* TCP header, options, MPA header and private data; the local sequence number moves by what they consume. */
static struct irdma_puda_buf *form_segment(struct irdma_cm_node *node, struct irdma_kmem_info *options, struct irdma_kmem_info *hdr,
					   struct irdma_mpa_priv_info *pdata, u8 flags)
{
	u32 optlen = size_of(options), hdrlen = size_of(hdr), plen = pdata ? pdata->size : 0;
	struct irdma_puda_buf *buf;
	u8 *p;

	if (optlen > PKT_TCP_OPT_MAX || optlen % 4 || hdrlen + plen > MPA_START_FRAME_MAX)
		return NULL;
	buf = rnic_buf_get(&node->iwdev->vsi, hdrlen + plen);
	if (!buf)
		return NULL;
	buf->tcph = buf->mem + PKT_HDR_MAX;
	buf->tcphlen = (u16)(PKT_TCP_LEN + optlen);
	buf->seqnum = node->tcp_cntxt.loc_seq_num;
	put_tcp_header(node, buf->tcph, optlen, flags, hdrlen + plen != 0);
	p = append(buf->tcph + PKT_TCP_LEN, optlen ? options->addr : NULL, optlen);
	p = append(p, hdrlen ? hdr->addr : NULL, hdrlen);
	append(p, plen ? pdata->addr : NULL, plen);
	buf->data = buf->tcph;
	buf->totallen = buf->tcphlen + hdrlen + plen;
	node->tcp_cntxt.loc_seq_num += hdrlen + plen + !!(flags & SET_SYN) + !!(flags & SET_FIN);
	return buf;
}

/**
 * irdma_form_ah_cm_frame - build a frame for a second-generation NIC, from the TCP header on
 * @cm_node: node with a valid address handle, from which layers 2 and 3 will come
 * @options: TCP options, a multiple of four bytes and at most 40, or NULL
 * @hdr: MPA header, or NULL
 * @pdata: private data, or NULL
 * @flags: SET_SYN, SET_ACK, SET_FIN, SET_RST
 *
 * Advances the node's local sequence number by what the segment consumes (RFC 9293 3.4: data, SYN, FIN).
 *
 * Return: a buffer with one reference; NULL without a valid handle, without a free buffer, or for lengths that do not fit.
 */
struct irdma_puda_buf *irdma_form_ah_cm_frame(struct irdma_cm_node *cm_node, struct irdma_kmem_info *options,
					      struct irdma_kmem_info *hdr, struct irdma_mpa_priv_info *pdata, u8 flags)
{
	struct irdma_puda_buf *buf;

	if (!cm_node->ah.valid)
		return NULL;
	buf = form_segment(cm_node, options, hdr, pdata, flags);
	if (buf)
		buf->ah = &cm_node->ah;
	return buf;
}

/**
 * irdma_form_uda_cm_frame - build a frame for a first-generation NIC, from the Ethernet header on
 * @cm_node: node with the peer's link address
 * @options: TCP options, a multiple of four bytes and at most 40, or NULL
 * @hdr: MPA header, or NULL
 * @pdata: private data, or NULL
 * @flags: SET_SYN, SET_ACK, SET_FIN, SET_RST
 *
 * The whole Ethernet frame: 802.1Q tag with the node's priority where it has a VLAN, IPv4 (DF, TTL 64, tos) or IPv6 (traffic class, hop limit
 * 64), TCP, both checksums. Advances the node's local sequence number by what the segment consumes.
 *
 * Return: a buffer with one reference; NULL without a free buffer, or for lengths that do not fit.
 */
struct irdma_puda_buf *irdma_form_uda_cm_frame(struct irdma_cm_node *cm_node, struct irdma_kmem_info *options,
					       struct irdma_kmem_info *hdr, struct irdma_mpa_priv_info *pdata, u8 flags)
{
	struct irdma_puda_buf *buf = form_segment(cm_node, options, hdr, pdata, flags);
	struct pkt_route r = {
		.vlan_id = cm_node->vlan_id,
		.prio = cm_node->user_pri,
		.ipv4 = cm_node->ipv4,
		.tos = cm_node->tos,
		.ttl = 64,
	};

	if (!buf)
		return NULL;
	memcpy(r.smac, cm_node->loc_mac, sizeof(r.smac));
	memcpy(r.dmac, cm_node->rem_mac, sizeof(r.dmac));
	memcpy(r.src, cm_node->loc_addr, sizeof(r.src));
	memcpy(r.dst, cm_node->rem_addr, sizeof(r.dst));
	buf->data = pkt_push_headers(&r, buf->tcph, buf->totallen, (u16)buf->seqnum);
	buf->totallen += (u32)(buf->tcph - buf->data);
	return buf;
}

/* With MSS (RFC 9293 3.7.1), and window scale on a SYN, on a SYN+ACK only if the peer's SYN carried it (RFC 7323 2.2). */
static struct irdma_puda_buf *form_syn(struct irdma_cm_node *node, bool ack)
{
	const struct irdma_cm_tcp_context *tcp = &node->tcp_cntxt;
	u8 opts[8] = { TCP_OPT_MSS, 4, (u8)(tcp->mss >> 8), (u8)tcp->mss, TCP_OPT_NOP, TCP_OPT_WSCALE, 3, tcp->rcv_wscale };
	struct irdma_kmem_info options = { opts, !ack || tcp->peer_offered_wscale ? 8 : 4 };

	return node->cm_core->form_cm_frame(node, &options, NULL, NULL, SET_SYN | (ack ? SET_ACK : 0));
}

/* SYN+ACK that nobody remembers: a lost one is sent again when the peer sends its SYN again. */
int cm_send_synack_once(struct irdma_cm_node *node)
{
	struct irdma_puda_buf *buf = form_syn(node, true);

	return buf ? irdma_schedule_cm_timer(node, buf, IRDMA_TIMER_TYPE_SEND, 0, 0) : -ENOMEM;
}

/**
 * irdma_send_syn - send SYN, or SYN+ACK, retransmitted until it is acknowledged
 * @cm_node: node
 * @sendack: 0: SYN; else SYN+ACK
 *
 * With MSS (RFC 9293 3.7.1), and window scale on a SYN, on a SYN+ACK only if the peer's SYN carried it (RFC 7323
 * 2.2). Retransmitted until acknowledged.
 *
 * Return: 0 or -ENOMEM.
 */
int irdma_send_syn(struct irdma_cm_node *cm_node, u32 sendack)
{
	struct irdma_puda_buf *buf = form_syn(cm_node, sendack);

	if (!buf)
		return -ENOMEM;
	cm_node->syn_sent++;
	return irdma_schedule_cm_timer(cm_node, buf, IRDMA_TIMER_TYPE_SEND, 1, 0);
}

/**
 * irdma_send_ack - send one ACK, which is never retransmitted
 * @cm_node: node
 *
 * Never retransmitted; one that cannot be sent for lack of a buffer is as good as lost (RFC 9293 3.8.1: the peer sends again).
 */
void irdma_send_ack(struct irdma_cm_node *cm_node)
{
	struct irdma_puda_buf *buf = cm_node->cm_core->form_cm_frame(cm_node, NULL, NULL, NULL, SET_ACK);

	if (buf)
		irdma_schedule_cm_timer(cm_node, buf, IRDMA_TIMER_TYPE_SEND, 0, 0);
}

/**
 * irdma_send_fin - send FIN+ACK, retransmitted until it is acknowledged
 * @cm_node: node; the caller sets the state that goes with it
 *
 * Retransmitted until acknowledged.
 *
 * Return: 0 or -ENOMEM.
 */
int irdma_send_fin(struct irdma_cm_node *cm_node)
{
	struct irdma_puda_buf *buf = cm_node->cm_core->form_cm_frame(cm_node, NULL, NULL, NULL, SET_ACK | SET_FIN);

	if (!buf)
		return -ENOMEM;
	return irdma_schedule_cm_timer(cm_node, buf, IRDMA_TIMER_TYPE_SEND, 1, cm_node->state == IRDMA_CM_STATE_LAST_ACK);
}

void cm_send_rst(struct irdma_cm_node *node)
{
	struct irdma_puda_buf *buf = node->cm_core->form_cm_frame(node, NULL, NULL, NULL, SET_RST | SET_ACK);

	if (buf)
		irdma_schedule_cm_timer(node, buf, IRDMA_TIMER_TYPE_SEND, 0, 0);
}

/**
 * irdma_send_reset - send RST, and end the node
 * @cm_node: node; its life's reference is dropped, whether the RST could be sent or not
 *
 * RST+ACK with the next sequence number, which is what RFC 5961 3 asks of one that should count. Never retransmitted.
 *
 * Return: 0, or why it could not be sent.
 */
int irdma_send_reset(struct irdma_cm_node *cm_node)
{
	struct irdma_puda_buf *buf = cm_node->cm_core->form_cm_frame(cm_node, NULL, NULL, NULL, SET_RST | SET_ACK);
	int err = -ENOMEM;

	if (buf)
		err = irdma_schedule_cm_timer(cm_node, buf, IRDMA_TIMER_TYPE_SEND, 0, 0);
	cm_node_end(cm_node);
	return err;
}
