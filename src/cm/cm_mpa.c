// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * MPA start-up frames (RFC 5044 7.1, RFC 6581): built, sent, assembled, parsed, negotiated. The bytes received are the peer's: the
 * parser reads nothing beyond the length it is given, and says -EAGAIN until the frame is whole.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include "cm/cm_internal.h"

/* ---- build ---- */

/* A revision 2 peer that sent no RFC 6581 bytes gets none (RFC 6581 6: S clear). */
static bool with_v2_data(const struct irdma_cm_node *node, u8 key)
{
	return node->mpa_rev == MPA_REV_2 && (key == MPA_KEY_REQUEST || node->peer_v2_data);
}

static u8 start_flags(const struct irdma_cm_node *node, u8 key)
{
	u8 flags = 0;

	if (node->crc)
		flags |= MPA_FLAG_CRC;
	if (node->mpa.markers)
		flags |= MPA_FLAG_MARKERS;
	if (key == MPA_KEY_REPLY && node->mpa_reject)
		flags |= MPA_FLAG_REJECT;
	return flags;
}

/**
 * irdma_build_mpa_v1 - write the start-up header of MPA revision 1 (RFC 5044 7.1.1)
 * @cm_node: node; its tx_pdata_len is what the length says
 * @start_addr: where to, 20 bytes
 * @mpa_key: MPA_KEY_REQUEST or MPA_KEY_REPLY
 *
 * Flags: C if CRC is configured or, in a reply, asked for by either side; M if we want to receive markers; R in a rejecting reply.
 */
void irdma_build_mpa_v1(struct irdma_cm_node *cm_node, void *start_addr, u8 mpa_key)
{
	struct mpa_start_hdr h = {
		.flags = start_flags(cm_node, mpa_key),
		.rev = cm_node->mpa_rev,
		.priv_len = htons(cm_node->tx_pdata_len),
	};

	memcpy(h.key, mpa_key == MPA_KEY_REQUEST ? MPA_KEY_REQ : MPA_KEY_REP, MPA_KEY_SIZE);
	memcpy(start_addr, &h, sizeof(h));
}

/* A zero-length Read as RTR needs an outbound read to be allowed. */
static u8 rtr_to_offer(const struct irdma_cm_node *node)
{
	u8 rtr = node->mpa.rtr;

	return node->ord_size ? rtr : rtr & ~RDMAP_RTR_READ;
}

static void fill_v2_data(struct irdma_cm_node *node, struct mpa_v2_data *v2, u8 key)
{
	u16 ird = min(node->ird_size, (u16)MPA_V2_IRD_ORD_MASK), ord = min(node->ord_size, (u16)MPA_V2_IRD_ORD_MASK);
	u8 rtr = node->rtr;

	if (key == MPA_KEY_REQUEST)
		rtr = node->rtr_offered = node->mpa.p2p ? rtr_to_offer(node) : 0;
	if (rtr)
		ird |= MPA_V2_P2P;
	if (rtr & RDMAP_RTR_SEND)
		ird |= MPA_V2_RTR_SEND;
	if (rtr & RDMAP_RTR_WRITE)
		ord |= MPA_V2_RTR_WRITE;
	if (rtr & RDMAP_RTR_READ)
		ord |= MPA_V2_RTR_READ;
	v2->ird = htons(ird);
	v2->ord = htons(ord);
}

/**
 * irdma_build_mpa_v2 - write the start-up header of MPA revision 2, with the four bytes of RFC 6581
 * @cm_node: node
 * @start_addr: where to, 24 bytes
 * @mpa_key: MPA_KEY_REQUEST: A and every RTR kind that is offered; MPA_KEY_REPLY: A and the one chosen, or none
 *
 * The length includes the four bytes.
 */
void irdma_build_mpa_v2(struct irdma_cm_node *cm_node, void *start_addr, u8 mpa_key)
{
	struct mpa_start_hdr h;
	struct mpa_v2_data v2;

	irdma_build_mpa_v1(cm_node, &h, mpa_key);
	h.flags |= MPA_FLAG_ENHANCED;
	h.priv_len = htons((u16)(cm_node->tx_pdata_len + sizeof(v2)));
	fill_v2_data(cm_node, &v2, mpa_key);
	memcpy(start_addr, &h, sizeof(h));
	memcpy((u8 *)start_addr + sizeof(h), &v2, sizeof(v2));
}

/**
 * irdma_cm_build_mpa_frame - write the start-up header in the node's MPA revision
 * @cm_node: node
 * @mem: where to: room for MPA_START_HDR_MAX bytes; its size is set to what was written
 * @mpa_key: MPA_KEY_REQUEST or MPA_KEY_REPLY
 *
 * A request of revision 2 always has the RFC 6581 bytes; a reply has them if the request had. Private data is not copied: the frame
 * that is sent takes header and private data from two places.
 *
 * Return: length of the header, 20 or 24 bytes.
 */
int irdma_cm_build_mpa_frame(struct irdma_cm_node *cm_node, struct irdma_kmem_info *mem, u8 mpa_key)
{
	if (with_v2_data(cm_node, mpa_key)) {
		irdma_build_mpa_v2(cm_node, mem->addr, mpa_key);
		mem->size = MPA_START_HDR_MAX;
	} else {
		irdma_build_mpa_v1(cm_node, mem->addr, mpa_key);
		mem->size = sizeof(struct mpa_start_hdr);
	}
	return (int)mem->size;
}

/* ---- send ---- */

/**
 * irdma_send_mpa_request - send the initiator's MPA request, retransmitted until it is acknowledged
 * @cm_node: node with the TCP handshake done; its private data goes along
 *
 * Retransmitted until acknowledged.
 *
 * Return: 0 or -ENOMEM.
 */
int irdma_send_mpa_request(struct irdma_cm_node *cm_node)
{
	u8 hdr[MPA_START_HDR_MAX];
	struct irdma_kmem_info mem = { hdr, 0 };
	struct irdma_mpa_priv_info pdata = { cm_node->tx_pdata, cm_node->tx_pdata_len };
	struct irdma_puda_buf *buf;

	irdma_cm_build_mpa_frame(cm_node, &mem, MPA_KEY_REQUEST);
	buf = cm_node->cm_core->form_cm_frame(cm_node, NULL, &mem, &pdata, SET_ACK);
	if (!buf)
		return -ENOMEM;
	cm_node->mpa_sent++;
	return irdma_schedule_cm_timer(cm_node, buf, IRDMA_TIMER_TYPE_SEND, 1, 0);
}

/**
 * irdma_send_mpa_reject - send the responder's rejecting MPA reply, and FIN
 * @cm_node: node in MPAREQ_RCVD
 * @pdata: private data, or NULL
 * @plen: its length in bytes
 *
 * Reply with R, and FIN, in one segment that is retransmitted until acknowledged; the node enters FIN_WAIT1.
 *
 * Return: 0 or -ENOMEM.
 */
int irdma_send_mpa_reject(struct irdma_cm_node *cm_node, const void *pdata, u8 plen)
{
	u8 hdr[MPA_START_HDR_MAX];
	struct irdma_kmem_info mem = { hdr, 0 };
	struct irdma_mpa_priv_info priv = { pdata, plen };
	struct irdma_puda_buf *buf;

	cm_node->mpa_reject = true;
	cm_node->tx_pdata_len = plen;
	irdma_cm_build_mpa_frame(cm_node, &mem, MPA_KEY_REPLY);
	buf = cm_node->cm_core->form_cm_frame(cm_node, NULL, &mem, &priv, SET_ACK | SET_FIN);
	if (!buf)
		return -ENOMEM;
	cm_node->mpa_sent++;
	cm_node_set_state(cm_node, cm_node->peer_fin ? IRDMA_CM_STATE_LAST_ACK : IRDMA_CM_STATE_FIN_WAIT1);
	return irdma_schedule_cm_timer(cm_node, buf, IRDMA_TIMER_TYPE_SEND, 1, cm_node->peer_fin);
}

/*
 * The Terminate FPDU for an MPA error (RFC 6581 8: codes 6 and 7). In front of it the reply that a responder owes; it rejects, or an initiator
 * would take the connection for established in client-server mode.
 */
static int build_terminate(struct irdma_cm_node *node, u8 code, u8 *out, u32 size)
{
	const struct rdmap_error err = { TERM_LAYER_LLP, 0, code };
	struct irdma_kmem_info mem = { out, 0 };
	u8 ulpdu[RDMAP_TERM_MAX];
	struct mpa_stream stream;
	u32 len = rdmap_build_terminate(&err, 1, NULL, 0, ulpdu);
	int n;

	if (!node->active) {
		node->mpa_reject = true;
		node->tx_pdata_len = 0;
		irdma_cm_build_mpa_frame(node, &mem, MPA_KEY_REPLY);
	}
	mpa_stream_init(&stream, node->crc, node->snd_markers);
	n = mpa_fpdu_build(&stream, ulpdu, len, out + mem.size, size - mem.size);
	return n < 0 ? n : n + (int)mem.size;
}

int cm_send_terminate(struct irdma_cm_node *node, u8 code)
{
	u8 data[MPA_START_FRAME_MAX];
	struct irdma_puda_buf *buf;
	int len = build_terminate(node, code, data, sizeof(data));
	struct irdma_kmem_info mem = { data, (u32)max(len, 0) };

	if (len < 0)
		return len;
	buf = node->cm_core->form_cm_frame(node, NULL, &mem, NULL, SET_ACK | SET_FIN);
	if (!buf)
		return -ENOMEM;
	cm_node_stage(node, 0);
	cm_node_set_state(node, node->peer_fin ? IRDMA_CM_STATE_LAST_ACK : IRDMA_CM_STATE_FIN_WAIT1);
	return irdma_schedule_cm_timer(node, buf, IRDMA_TIMER_TYPE_SEND, 1, node->peer_fin);
}

/* ---- negotiate ---- */

static u8 rtr_bits(u16 ird, u16 ord)
{
	u8 rtr = 0;

	if (ird & MPA_V2_RTR_SEND)
		rtr |= RDMAP_RTR_SEND;
	if (ord & MPA_V2_RTR_WRITE)
		rtr |= RDMAP_RTR_WRITE;
	if (ord & MPA_V2_RTR_READ)
		rtr |= RDMAP_RTR_READ;
	return rtr;
}

/* The Write needs neither a receive buffer nor an answer; the Read only the answer. */
static u8 rtr_pick(u8 rtr)
{
	if (rtr & RDMAP_RTR_WRITE)
		return RDMAP_RTR_WRITE;
	return rtr & RDMAP_RTR_READ ? RDMAP_RTR_READ : rtr & RDMAP_RTR_SEND;
}

/* Own ORD never above the peer's IRD; an RTR Read is an inbound read at the responder. */
void cm_cap_ird_ord(struct irdma_cm_node *node)
{
	if (node->peer_ird != MPA_V2_NOT_NEGOTIATED)
		node->ord_size = min(node->ord_size, node->peer_ird);
	if (!node->active && node->rtr == RDMAP_RTR_READ && !node->ird_size)
		node->ird_size = 1;
}

static int mpa_error(struct irdma_cm_node *node, enum cm_cause cause)
{
	cm_node_set_cause(node, cause, -EPROTO);
	return -EPROTO;
}

/* A responder that was set to the client-server model, or a peer without A: client-server, not refused. */
static int negotiate_responder(struct irdma_cm_node *node, bool peer_p2p, u8 rtr)
{
	node->rtr_offered = rtr;
	if (peer_p2p && node->mpa.p2p) {
		node->rtr = rtr_pick(rtr & node->mpa.rtr);
		if (!node->rtr)
			return mpa_error(node, CM_CAUSE_MPA_RTR);
		node->p2p = true;
	}
	cm_cap_ird_ord(node);
	return 0;
}

static int negotiate_initiator(struct irdma_cm_node *node, bool peer_p2p, u8 rtr)
{
	if (peer_p2p) {
		node->rtr = rtr_pick(rtr & node->rtr_offered);
		if (!node->rtr)
			return mpa_error(node, CM_CAUSE_MPA_RTR);
		node->p2p = true;
	}
	if (node->peer_ord != MPA_V2_NOT_NEGOTIATED && node->peer_ord > node->ird_size)
		return mpa_error(node, CM_CAUSE_MPA_IRD);
	if (node->rtr == RDMAP_RTR_READ && !node->peer_ird)
		return mpa_error(node, CM_CAUSE_MPA_IRD);
	cm_cap_ird_ord(node);
	return 0;
}

/**
 * irdma_negotiate_mpa_v2_ird_ord - agree on read depths and the RTR message (RFC 6581 4, 5)
 * @cm_node: node
 * @buf: the peer's four RFC 6581 bytes
 *
 * Responder: caps its ORD to the peer's IRD, raises IRD to 1 if the RTR is a Read, picks one of the RTR kinds that are offered. Initiator: the reply's
 * ORD must fit our IRD, its RTR must be one that was offered; our ORD is lowered to the peer's IRD. 0x3FFF means that the
 * upper layer negotiates: nothing is capped or checked then. A peer that does not set A is served in client-server mode.
 *
 * Return: 0; -EPROTO with the node's cause %CM_CAUSE_MPA_IRD (insufficient IRD) or %CM_CAUSE_MPA_RTR (no matching RTR).
 */
int irdma_negotiate_mpa_v2_ird_ord(struct irdma_cm_node *cm_node, u8 *buf)
{
	u16 ird = (u16)(buf[0] << 8 | buf[1]), ord = (u16)(buf[2] << 8 | buf[3]);
	u8 rtr = rtr_bits(ird, ord);

	cm_node->peer_ird = ird & MPA_V2_IRD_ORD_MASK;
	cm_node->peer_ord = ord & MPA_V2_IRD_ORD_MASK;
	if (cm_node->active)
		return negotiate_initiator(cm_node, ird & MPA_V2_P2P, rtr);
	return negotiate_responder(cm_node, ird & MPA_V2_P2P, rtr);
}

/* ---- parse ---- */

/* Initiator: the revision of the request, but a peer that knows only lower ones may reject in them. */
static bool reply_revision_ok(const struct irdma_cm_node *node, u8 rev, u8 flags)
{
	return rev == node->mpa_rev || (rev >= MPA_REV_1 && rev < node->mpa_rev && (flags & MPA_FLAG_REJECT));
}

/* Responder: any we know, up to what it was told to speak. */
static int check_revision(struct irdma_cm_node *node, u8 rev, u8 flags)
{
	node->peer_rev = rev;
	if (node->active)
		return reply_revision_ok(node, rev, flags) ? 0 : mpa_error(node, CM_CAUSE_MPA_REVISION);
	if (rev < MPA_REV_1 || rev > node->mpa.rev)
		return mpa_error(node, CM_CAUSE_MPA_REVISION);
	node->mpa_rev = rev;
	return 0;
}

/*
 * Spec cm.md asks to check the reserved bits; RFC 5044 7.1.1 wins: they are "not checked on reception", and in revision 1 S is one
 * of them. What is checked: R belongs to replies only.
 */
static int check_flags(struct irdma_cm_node *node, u8 flags)
{
	node->peer_flags = flags;
	if (!node->active && (flags & MPA_FLAG_REJECT))
		return mpa_error(node, CM_CAUSE_MPA_FLAGS);
	node->peer_v2_data = node->peer_rev == MPA_REV_2 && (flags & MPA_FLAG_ENHANCED);
	return 0;
}

static int check_length(struct irdma_cm_node *node, u32 len)
{
	if (len > MPA_MAX_PRIV_DATA || (node->peer_v2_data && len < sizeof(struct mpa_v2_data)))
		return mpa_error(node, CM_CAUSE_MPA_LENGTH);
	return 0;
}

/* Everything that the 20 bytes say, without a change of the connection's parameters. */
static int parse_header(struct irdma_cm_node *node, const u8 *buf, u32 len, struct mpa_start_hdr *h)
{
	const char *key = node->active ? MPA_KEY_REP : MPA_KEY_REQ;
	int err;

	if (memcmp(buf, key, min(len, (u32)MPA_KEY_SIZE)))
		return mpa_error(node, CM_CAUSE_MPA_KEY);
	if (len < sizeof(*h))
		return -EAGAIN;
	memcpy(h, buf, sizeof(*h));
	err = check_revision(node, h->rev, h->flags);
	if (!err)
		err = check_flags(node, h->flags);
	if (!err)
		err = check_length(node, ntohs(h->priv_len));
	return err;
}

static int keep_private_data(struct irdma_cm_node *node, const u8 *data, u32 len)
{
	free(node->pdata);
	node->pdata = NULL;
	node->pdata_len = 0;
	if (!len)
		return 0;
	node->pdata = malloc(len);
	if (!node->pdata) {
		cm_node_set_cause(node, CM_CAUSE_NO_RESOURCES, -ENOMEM);
		return -ENOMEM;
	}
	memcpy(node->pdata, data, len);
	node->pdata_len = (u16)len;
	return 0;
}

/**
 * irdma_parse_mpa - check the peer's start-up frame, and take over what it says
 * @cm_node: node; active nodes expect a reply, passive ones a request
 * @buf: bytes received so far
 * @type: %IRDMA_MPA_REQUEST_ACCEPT or %IRDMA_MPA_REQUEST_REJECT, set on success
 * @len: how many there are; nothing beyond is read
 *
 * Checks the key against the role as far as it has come, the revision (a responder answers a lower one in kind), flags and lengths; keeps
 * exactly the private data that the peer sent, without the four RFC 6581 bytes; sets CRC (either side asks), markers (each receiver asks) and, in
 * revision 2, read depths and RTR. The frame's length is left in the node's mpa_frame_len; bytes behind it are the caller's.
 *
 * Return: 0; -EAGAIN: not whole yet; -EPROTO with the node's cause; -ENOMEM.
 */
int irdma_parse_mpa(struct irdma_cm_node *cm_node, u8 *buf, u32 *type, u32 len)
{
	struct mpa_start_hdr h;
	u32 skip, priv_len;
	int err = parse_header(cm_node, buf, len, &h);

	if (err)
		return err;
	priv_len = ntohs(h.priv_len);
	if (len < sizeof(h) + priv_len)
		return -EAGAIN;
	*type = h.flags & MPA_FLAG_REJECT ? IRDMA_MPA_REQUEST_REJECT : IRDMA_MPA_REQUEST_ACCEPT;
	cm_node->mpa_frame_len = (u32)sizeof(h) + priv_len;
	cm_node->snd_markers = h.flags & MPA_FLAG_MARKERS;
	cm_node->rcv_markers = cm_node->mpa.markers;
	cm_node->crc = cm_node->mpa.crc || (h.flags & MPA_FLAG_CRC);
	skip = cm_node->peer_v2_data ? sizeof(struct mpa_v2_data) : 0;
	err = keep_private_data(cm_node, buf + sizeof(h) + skip, priv_len - skip);
	if (err || !skip || *type == IRDMA_MPA_REQUEST_REJECT)
		return err;
	return irdma_negotiate_mpa_v2_ird_ord(cm_node, buf + sizeof(h));
}

/* Does the first segment of a stream bring a whole start-up frame? */
bool cm_mpa_is_whole(const u8 *data, u32 len)
{
	struct mpa_start_hdr h;

	if (len < sizeof(h))
		return false;
	memcpy(&h, data, sizeof(h));
	return len >= sizeof(h) + ntohs(h.priv_len);
}

/* ---- receive ---- */

u32 cm_rcv_room(const struct irdma_cm_node *node)
{
	return node->tcp_cntxt.rcv_wnd - node->rx_len;
}

static int rx_append(struct irdma_cm_node *node, const u8 *data, u32 len)
{
	u32 want = node->rx_len + len;
	u8 *p;

	if (!len)
		return 0;
	if (want > node->rx_size) {
		p = realloc(node->rx_buf, want);
		if (!p)
			return -ENOMEM;
		node->rx_buf = p;
		node->rx_size = want;
	}
	memcpy(node->rx_buf + node->rx_len, data, len);
	node->rx_len = want;
	return 0;
}

/* Bytes behind the start-up frame are stream bytes: they wait in rx_buf for the NIC. */
static void rx_keep_tail(struct irdma_cm_node *node)
{
	node->rx_len -= node->mpa_frame_len;
	memmove(node->rx_buf, node->rx_buf + node->mpa_frame_len, node->rx_len);
}

/* A frame that comes whole in its first segment is parsed where it lies. */
static int assemble(struct irdma_cm_node *node, const u8 *data, u32 len, u32 *type)
{
	int err;

	if (!node->rx_len) {
		err = irdma_parse_mpa(node, (u8 *)data, type, len);
		if (!err)
			return rx_append(node, data + node->mpa_frame_len, len - node->mpa_frame_len);
		if (err != -EAGAIN)
			return err;
		return rx_append(node, data, len) ? -ENOMEM : -EAGAIN;
	}
	if (rx_append(node, data, len))
		return -ENOMEM;
	err = irdma_parse_mpa(node, node->rx_buf, type, node->rx_len);
	if (!err)
		rx_keep_tail(node);
	return err;
}

static void request_complete(struct irdma_cm_node *node)
{
	cm_node_silent(node, false);
	node->stage_at_ns = 0; /* from here on it is the upper layer's time */
	cm_node_delay_ack(node);
	cm_node_set_state(node, IRDMA_CM_STATE_MPAREQ_RCVD);
	if (!irdma_create_event(node, IRDMA_CM_EVENT_MPA_REQ)) {
		cm_node_set_cause(node, CM_CAUSE_NO_RESOURCES, -ENOMEM);
		irdma_passive_open_err(node, true);
	}
}

/* The RTR, sent as soon as the NIC has the stream, acknowledges the reply; without one we do it here. */
static void reply_complete(struct irdma_cm_node *node, u32 type)
{
	bool accepted = type == IRDMA_MPA_REQUEST_ACCEPT;

	irdma_free_retrans_entry(node); /* a reply to the request acknowledges it */
	cm_node_stage(node, 0);
	if (!accepted || !node->rtr)
		irdma_send_ack(node);
	if (!accepted)
		cm_node_set_cause(node, CM_CAUSE_REJECTED, -ECONNREFUSED);
	cm_node_set_state(node, accepted ? IRDMA_CM_STATE_OFFLOADED : IRDMA_CM_STATE_MPAREJ_RCVD);
	if (!irdma_create_event(node, accepted ? IRDMA_CM_EVENT_CONNECTED : IRDMA_CM_EVENT_MPA_REJECT))
		irdma_active_open_err(node, true);
}

/* What RFC 6581 has a code for is told to the peer; everything else is reset. */
static void mpa_failed(struct irdma_cm_node *node)
{
	u8 code = node->cause == CM_CAUSE_MPA_IRD ? TERM_MPA_IRD : TERM_MPA_RTR;
	bool told = node->cause == CM_CAUSE_MPA_IRD || node->cause == CM_CAUSE_MPA_RTR;

	told = told && !cm_send_terminate(node, code);
	if (!told && node->active) {
		irdma_active_open_err(node, true);
	} else if (!told) {
		irdma_passive_open_err(node, true);
	} else if (node->active) {
		node->cm_core->stats.connect_errs++;
		irdma_create_event(node, IRDMA_CM_EVENT_ABORTED); /* the node lives on until its FIN is through */
	} else {
		node->cm_core->stats.passive_errs++;
		cm_node_closing(node);
	}
}

static void mpa_progress(struct irdma_cm_node *node, const u8 *data, u32 len)
{
	u32 type = 0;
	int err = assemble(node, data, len, &type);

	if (err == -EAGAIN) {
		irdma_send_ack(node);
		return;
	}
	if (err) {
		cm_node_set_cause(node, CM_CAUSE_NO_RESOURCES, err);
		mpa_failed(node);
		return;
	}
	if (node->active)
		reply_complete(node, type);
	else
		request_complete(node);
}

/**
 * irdma_handle_rcv_mpa - feed received stream bytes into the MPA start-up frame that is being assembled
 * @cm_node: node
 * @rbuf: in-order segment with data: it begins at or before the next byte expected, what was seen before is skipped
 *
 * Feeds the start-up frame being assembled, which may come in any number of segments and be followed by more bytes. When it is
 * complete the state moves on and the event is created. Bytes that come before the NIC takes the stream over are kept for it, within
 * the window that was announced.
 */
void irdma_handle_rcv_mpa(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf)
{
	const struct pkt *pkt = rbuf->pkt;
	struct irdma_cm_tcp_context *tcp = &cm_node->tcp_cntxt;
	u32 skip = tcp->rcv_nxt - pkt->seq;
	u32 len;

	if (seq_gt(pkt->seq, tcp->rcv_nxt) || skip >= pkt->datalen)
		return;
	len = min(pkt->datalen - skip, cm_rcv_room(cm_node));
	tcp->rcv_nxt += len;
	if (cm_node->state == IRDMA_CM_STATE_ESTABLISHED || cm_node->state == IRDMA_CM_STATE_MPAREQ_SENT) {
		mpa_progress(cm_node, pkt->data + skip, len);
		return;
	}
	if (rx_append(cm_node, pkt->data + skip, len))
		tcp->rcv_nxt -= len; /* not taken: the peer sends it again */
	irdma_send_ack(cm_node);
}
