// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Segments that the CM receives: the TCP state machine of connections that are not offloaded (RFC 9293 3.10.7), with the rules of
 * RFC 5961 against blind attacks.
 *
 * Order of checks in a synchronised state, as RFC 9293 3.10.7.4: sequence number, RST, SYN, acknowledgement, data, FIN.
 */
#include <arpa/inet.h>
#include <string.h>
#include "cm/cm_internal.h"

void cm_challenge_ack(struct irdma_cm_node *node)
{
	struct irdma_cm_core *core = node->cm_core;

	if (!limit_allow(&node->challenge, cm_now(core), CM_CHALLENGES_PER_S))
		return;
	core->stats.challenge_acks++;
	irdma_send_ack(node);
}

/* RST with the sequence number that the peer's bad acknowledgement asks for; our state stays (RFC 9293 3.10.7.3, 3.10.7.4 SYN-RECEIVED). */
static void reset_bad_ack(struct irdma_cm_node *node, const struct pkt *pkt)
{
	u32 seq = node->tcp_cntxt.loc_seq_num;
	struct irdma_puda_buf *buf;

	node->cm_core->stats.bad_segments++;
	node->tcp_cntxt.loc_seq_num = pkt->ack;
	buf = node->cm_core->form_cm_frame(node, NULL, NULL, NULL, SET_RST);
	node->tcp_cntxt.loc_seq_num = seq;
	if (buf)
		irdma_schedule_cm_timer(node, buf, IRDMA_TIMER_TYPE_SEND, 0, 0);
}

/**
 * irdma_check_syn - check that our SYN, and nothing else, is acknowledged
 * @cm_node: node whose SYN was sent
 * @tcph: TCP header received
 *
 * Anything else is an old duplicate or a forgery: it is answered with RST at the sequence number that it acknowledges, and the node stays as it is.
 *
 * Return: 0 if it acknowledges exactly our SYN; else -EINVAL, and RST was sent (RFC 9293 3.10.7.3).
 */
int irdma_check_syn(struct irdma_cm_node *cm_node, struct tcphdr *tcph)
{
	struct pkt pkt = { 0 };
	struct tcphdr h;

	memcpy(&h, tcph, sizeof(h));
	if (h.ack && ntohl(h.ack_seq) == cm_node->tcp_cntxt.loc_seq_num)
		return 0;
	pkt.ack = ntohl(h.ack_seq);
	reset_bad_ack(cm_node, &pkt);
	return -EINVAL;
}

/* RFC 5961 5.2: no newer than what we sent, no older than a window ago. In SYN_RCVD irdma_check_syn() decides, with an RST. */
static bool ack_acceptable(const struct irdma_cm_node *node, u32 ack)
{
	const struct irdma_cm_tcp_context *tcp = &node->tcp_cntxt;

	if (node->state == IRDMA_CM_STATE_SYN_RCVD)
		return true;
	return seq_leq(ack, tcp->loc_seq_num) && seq_geq(ack, tcp->rem_ack_num - tcp->max_snd_wnd);
}

/**
 * irdma_check_seq - check that a segment is acceptable in a synchronised state
 * @cm_node: node
 * @tcph: TCP header received
 *
 * The sequence number must lie in the receive window, or at most a window below it (a duplicate, of which the
 * rest is trimmed later); the acknowledgement neither above what was sent nor older than the largest window (RFC 5961 5.2). Anything else
 * is answered with one ACK (RFC 9293 3.10.7.4), rate limited.
 *
 * Return: 0, or -EINVAL.
 */
int irdma_check_seq(struct irdma_cm_node *cm_node, struct tcphdr *tcph)
{
	struct irdma_cm_tcp_context *tcp = &cm_node->tcp_cntxt;
	struct tcphdr h;
	s32 off;

	memcpy(&h, tcph, sizeof(h));
	off = (s32)(ntohl(h.seq) - tcp->rcv_nxt);
	if (h.ack && ack_acceptable(cm_node, ntohl(h.ack_seq)) && off >= -(s32)tcp->rcv_wnd && off < (s32)tcp->rcv_wnd)
		return 0;
	cm_node->cm_core->stats.bad_segments++;
	cm_challenge_ack(cm_node);
	return -EINVAL;
}

/* Acknowledgement and window of an acceptable segment. The node may be CLOSED afterwards: its last frame was acknowledged. */
void cm_ack_received(struct irdma_cm_node *node, const struct pkt *pkt)
{
	struct irdma_cm_tcp_context *tcp = &node->tcp_cntxt;

	if (seq_gt(pkt->ack, tcp->rem_ack_num))
		tcp->rem_ack_num = pkt->ack;
	if (pkt->ack == tcp->rem_ack_num && seq_geq(pkt->seq + pkt->datalen, tcp->rcv_nxt)) /* RFC 9293 3.10.7.4, SND.WL1: none from old segments */
		tcp->snd_wnd = (u32)pkt->window << tcp->snd_wscale;
	tcp->max_snd_wnd = max(tcp->max_snd_wnd, tcp->snd_wnd);
	if (tcp->rem_ack_num != tcp->loc_seq_num)
		return;
	if (node->send_entry.close_when_complete)
		cm_node_end(node);
	else
		irdma_free_retrans_entry(node);
}

/* Everything that we sent, our FIN included, has been acknowledged. */
static bool all_acked(const struct irdma_cm_node *node)
{
	return node->tcp_cntxt.rem_ack_num == node->tcp_cntxt.loc_seq_num;
}

/* ---- RST ---- */

static void reset_while_pending(struct irdma_cm_node *node)
{
	node->cm_core->stats.passive_errs++;
	if (node->request_up)
		irdma_create_event(node, IRDMA_CM_EVENT_RESET);
	cm_node_end(node);
}

static void active_reset(struct irdma_cm_node *node)
{
	irdma_active_open_err(node, false);
}

/* The RST counts: what it ends depends on how far things got. */
static void reset_received(struct irdma_cm_node *node)
{
	switch (node->state) {
	case IRDMA_CM_STATE_SYN_RCVD:
	case IRDMA_CM_STATE_ESTABLISHED:
		irdma_passive_open_err(node, false);
		break;
	case IRDMA_CM_STATE_MPAREQ_RCVD:
		reset_while_pending(node);
		break;
	case IRDMA_CM_STATE_ONE_SIDE_ESTABLISHED:
	case IRDMA_CM_STATE_OFFLOADED:
		active_reset(node);
		break;
	case IRDMA_CM_STATE_MPAREQ_SENT:
		if (!cm_node_retry_v1(node))
			break;
		if (node->rx_len)
			cm_node_set_cause(node, CM_CAUSE_MPA_PARTIAL, -ECONNRESET);
		active_reset(node);
		break;
	default: /* MPAREJ_RCVD and all that close: nobody waits for news */
		cm_node_end(node);
	}
}

static bool rst_in_window(const struct irdma_cm_node *node, u32 seq)
{
	return seq_geq(seq, node->tcp_cntxt.rcv_nxt) && seq_lt(seq, node->tcp_cntxt.rcv_nxt + node->tcp_cntxt.rcv_wnd);
}

/* SYN_SENT: an RST counts if it acknowledges our SYN (RFC 9293 3.10.7.3). The port may know more than "refused". */
static void reset_in_syn_sent(struct irdma_cm_node *node, struct irdma_puda_buf *rbuf)
{
	int error = rbuf->error;

	if (!(rbuf->pkt->flags & PKT_ACK) || rbuf->pkt->ack != node->tcp_cntxt.loc_seq_num)
		return;
	if (!error || error == -ECONNREFUSED)
		cm_node_set_cause(node, CM_CAUSE_REFUSED, -ECONNREFUSED);
	else if (error == -ECONNRESET) /* TCP was up for a moment */
		cm_node_set_cause(node, CM_CAUSE_RESET, error);
	else if (error == -ETIMEDOUT)
		cm_node_set_cause(node, CM_CAUSE_NO_SYNACK, error);
	else
		cm_node_set_cause(node, CM_CAUSE_UNREACHABLE, error);
	irdma_active_open_err(node, false);
}

/**
 * irdma_handle_rst_pkt - process the peer's RST, by the rules of RFC 5961
 * @cm_node: node
 * @rbuf: segment
 *
 * RFC 5961 3.2: it counts only at exactly the next sequence number expected; elsewhere in the window it is answered with a challenge ACK; outside
 * it is dropped. In SYN_SENT it counts if it acknowledges our SYN.
 */
void irdma_handle_rst_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf)
{
	u32 seq = rbuf->pkt->seq;

	switch (cm_node->state) {
	case IRDMA_CM_STATE_SYN_SENT:
		reset_in_syn_sent(cm_node, rbuf);
		return;
	case IRDMA_CM_STATE_TIME_WAIT: /* RFC 1337: it does not end early */
	case IRDMA_CM_STATE_CLOSED:
	case IRDMA_CM_STATE_LISTENING:
	case IRDMA_CM_STATE_INITED:
		return;
	default:
		break;
	}
	if (seq != cm_node->tcp_cntxt.rcv_nxt) {
		if (rst_in_window(cm_node, seq))
			cm_challenge_ack(cm_node);
		return;
	}
	if (rbuf->error == -ETIMEDOUT)
		cm_node_set_cause(cm_node, CM_CAUSE_NOT_ACKED, -ETIMEDOUT);
	else if (cm_node->state != IRDMA_CM_STATE_MPAREQ_SENT)
		cm_node_set_cause(cm_node, CM_CAUSE_RESET, -ECONNRESET);
	reset_received(cm_node);
}

/* ---- SYN, SYN+ACK ---- */

static void syn_on_listener(struct irdma_cm_node *node, struct irdma_puda_buf *rbuf)
{
	const struct pkt *pkt = rbuf->pkt;

	node->tcp_cntxt.irs = pkt->seq;
	node->tcp_cntxt.rcv_nxt = pkt->seq + 1;
	if (irdma_cm_create_ah(node, true)) {
		cm_node_set_cause(node, CM_CAUSE_NO_RESOURCES, -ENOMEM);
		irdma_passive_open_err(node, false);
		return;
	}
	if (irdma_handle_tcp_options(node, (struct tcphdr *)pkt->tcph, (int)pkt->optlen, 1))
		return;
	cm_node_use_cookie(node, pkt);
	cm_node_set_state(node, IRDMA_CM_STATE_SYN_RCVD);
	cm_node_half_open(node, true);
	if (irdma_send_syn(node, 1)) {
		cm_node_set_cause(node, CM_CAUSE_NO_RESOURCES, -ENOMEM);
		irdma_passive_open_err(node, false); /* as if the SYN were lost: the peer sends it again */
	}
}

/* Our SYN+ACK was lost, or the SYN is an old duplicate. */
static void syn_again(struct irdma_cm_node *node, const struct pkt *pkt)
{
	if (pkt->seq == node->tcp_cntxt.irs && node->send_entry.sqbuf)
		rnic_ilq_send(&node->iwdev->vsi, node->send_entry.sqbuf);
	else
		cm_challenge_ack(node);
}

/**
 * irdma_handle_syn_pkt - process a SYN without ACK: a new connection, a repetition, or a challenge
 * @cm_node: node; LISTENING: made for this very SYN
 * @rbuf: segment
 *
 * Answers with SYN+ACK; a repeated SYN is answered again. In a synchronised state a challenge ACK (RFC 5961 4.2).
 * Crossing SYNs are not a connection: two initiators cannot agree on MPA roles (RFC 5044 7.1). Each is answered with RST, as where nobody listens; ours goes on
 * until the peer's RST acknowledges it. A SYN alone ends nothing: whoever guesses the ports could send it.
 */
void irdma_handle_syn_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf)
{
	switch (cm_node->state) {
	case IRDMA_CM_STATE_LISTENING:
		syn_on_listener(cm_node, rbuf);
		break;
	case IRDMA_CM_STATE_SYN_RCVD:
		syn_again(cm_node, rbuf->pkt);
		break;
	case IRDMA_CM_STATE_SYN_SENT:
		cm_reset_stray(cm_node->cm_core, rbuf->pkt);
		break;
	case IRDMA_CM_STATE_INITED:
	case IRDMA_CM_STATE_CLOSED:
		break;
	default:
		cm_challenge_ack(cm_node);
	}
}

static void syn_sent_acked(struct irdma_cm_node *node, struct irdma_puda_buf *rbuf)
{
	const struct pkt *pkt = rbuf->pkt;

	if (irdma_check_syn(node, (struct tcphdr *)pkt->tcph))
		return;
	node->tcp_cntxt.irs = pkt->seq;
	node->tcp_cntxt.rcv_nxt = pkt->seq + 1;
	node->tcp_cntxt.rem_ack_num = pkt->ack;
	if (irdma_handle_tcp_options(node, (struct tcphdr *)pkt->tcph, (int)pkt->optlen, 0))
		return;
	irdma_free_retrans_entry(node);
	cm_node_set_state(node, IRDMA_CM_STATE_ONE_SIDE_ESTABLISHED);
	if (irdma_send_mpa_request(node)) { /* which carries the ACK of the handshake */
		cm_node_set_cause(node, CM_CAUSE_NO_RESOURCES, -ENOMEM);
		irdma_active_open_err(node, true);
		return;
	}
	cm_node_set_state(node, IRDMA_CM_STATE_MPAREQ_SENT);
	cm_node_stage(node, node->mpa.mpa_timeout_ms ? node->mpa.mpa_timeout_ms : CM_MPA_TIMEOUT_MS);
}

/**
 * irdma_handle_synack_pkt - process a SYN+ACK: send the MPA request
 * @cm_node: node
 * @rbuf: segment
 *
 * In SYN_SENT with our SYN acknowledged: the MPA request goes out, and with it the ACK of the handshake. One that acknowledges something else
 * gets an RST and changes nothing. In a synchronised state: our ACK was lost, or it is forged; a challenge ACK serves both.
 */
void irdma_handle_synack_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf)
{
	switch (cm_node->state) {
	case IRDMA_CM_STATE_SYN_SENT:
		syn_sent_acked(cm_node, rbuf);
		break;
	case IRDMA_CM_STATE_INITED:
	case IRDMA_CM_STATE_LISTENING:
	case IRDMA_CM_STATE_CLOSED:
		break;
	default:
		cm_challenge_ack(cm_node);
	}
}

/* ---- ACK, data ---- */

static void closing_acked(struct irdma_cm_node *node, const struct pkt *pkt)
{
	cm_ack_received(node, pkt);
	if (!all_acked(node))
		return;
	switch (node->state) {
	case IRDMA_CM_STATE_FIN_WAIT1:
		cm_node_set_state(node, IRDMA_CM_STATE_FIN_WAIT2);
		irdma_schedule_cm_timer(node, NULL, IRDMA_TIMER_TYPE_CLOSE, 0, 0);
		break;
	case IRDMA_CM_STATE_CLOSING:
		cm_node_time_wait(node);
		break;
	default:
		break;
	}
}

/* RFC 9293 3.10.7.4: nothing in it is new, so it is not acceptable and is answered: a keep-alive (RFC 1122 4.2.3.6). A FIN is answered anyway. */
static void answer_old(struct irdma_cm_node *node, const struct pkt *pkt)
{
	if (seq_lt(pkt->seq, node->tcp_cntxt.rcv_nxt) && !(pkt->flags & PKT_FIN))
		cm_challenge_ack(node);
}

/* A closing connection still takes what the peer sends, and drops it: its FIN must become acceptable. */
static void drop_data(struct irdma_cm_node *node, const struct pkt *pkt)
{
	struct irdma_cm_tcp_context *tcp = &node->tcp_cntxt;

	if (node->state == IRDMA_CM_STATE_CLOSED)
		return;
	if (!pkt->datalen) {
		answer_old(node, pkt);
		return;
	}
	if (seq_leq(pkt->seq, tcp->rcv_nxt) && seq_gt(pkt->seq + pkt->datalen, tcp->rcv_nxt))
		tcp->rcv_nxt = pkt->seq + pkt->datalen;
	irdma_send_ack(node);
}

static void data_received(struct irdma_cm_node *node, struct irdma_puda_buf *rbuf)
{
	const struct pkt *pkt = rbuf->pkt;
	u32 next = node->tcp_cntxt.rcv_nxt;

	cm_ack_received(node, pkt);
	if (!pkt->datalen)
		answer_old(node, pkt);
	else if (node->peer_fin || seq_gt(pkt->seq, next) || seq_leq(pkt->seq + pkt->datalen, next) || !cm_rcv_room(node))
		irdma_send_ack(node); /* behind a gap, seen before, or no room: say what is expected */
	else
		irdma_handle_rcv_mpa(node, rbuf);
}

static int handshake_done(struct irdma_cm_node *node, struct irdma_puda_buf *rbuf)
{
	if (irdma_check_syn(node, (struct tcphdr *)rbuf->pkt->tcph))
		return -EINVAL;
	cm_node_half_open(node, false);
	cm_node_set_state(node, IRDMA_CM_STATE_ESTABLISHED);
	cm_node_silent(node, true);
	cm_node_stage(node, node->mpa.mpa_timeout_ms ? node->mpa.mpa_timeout_ms : CM_MPA_TIMEOUT_MS);
	data_received(node, rbuf);
	return 0;
}

/**
 * irdma_handle_ack_pkt - process an ACK, with or without data
 * @cm_node: node
 * @rbuf: segment
 *
 * Duplicates and old acknowledgements are harmless.
 *
 * Return: 0; -EINVAL if the segment was not acceptable.
 */
int irdma_handle_ack_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf)
{
	switch (cm_node->state) {
	case IRDMA_CM_STATE_SYN_SENT:
		/* RFC 9293 3.10.7.3: an ACK of something else is reset, an ACK of our SYN without SYN is dropped. */
		if (rbuf->pkt->ack != cm_node->tcp_cntxt.loc_seq_num)
			reset_bad_ack(cm_node, rbuf->pkt);
		return -EINVAL;
	case IRDMA_CM_STATE_INITED:
	case IRDMA_CM_STATE_LISTENING:
	case IRDMA_CM_STATE_CLOSED:
		return -EINVAL;
	default:
		break;
	}
	if (irdma_check_seq(cm_node, (struct tcphdr *)rbuf->pkt->tcph))
		return -EINVAL;
	switch (cm_node->state) {
	case IRDMA_CM_STATE_SYN_RCVD:
		return handshake_done(cm_node, rbuf);
	case IRDMA_CM_STATE_FIN_WAIT1:
	case IRDMA_CM_STATE_FIN_WAIT2:
	case IRDMA_CM_STATE_CLOSING:
	case IRDMA_CM_STATE_LAST_ACK:
	case IRDMA_CM_STATE_TIME_WAIT:
	case IRDMA_CM_STATE_MPAREJ_RCVD:
		closing_acked(cm_node, rbuf->pkt);
		drop_data(cm_node, rbuf->pkt);
		break;
	default:
		data_received(cm_node, rbuf);
	}
	return 0;
}

/* ---- FIN ---- */

/* The peer closed before we did: nothing is left to say but our own FIN. */
static void close_after_peer(struct irdma_cm_node *node)
{
	cm_node_stage(node, 0);
	cm_node_set_state(node, IRDMA_CM_STATE_CLOSE_WAIT);
	if (!irdma_cm_close(node))
		cm_node_closing(node);
}

/* The FIN is in sequence and has been counted. */
static void fin_received(struct irdma_cm_node *node)
{
	switch (node->state) {
	case IRDMA_CM_STATE_ESTABLISHED:
		cm_node_set_cause(node, CM_CAUSE_CLOSED, -ECONNRESET);
		node->cm_core->stats.passive_errs++;
		close_after_peer(node);
		break;
	case IRDMA_CM_STATE_MPAREJ_RCVD:
		close_after_peer(node);
		break;
	case IRDMA_CM_STATE_MPAREQ_SENT:
		irdma_send_ack(node);
		if (!cm_node_retry_v1(node))
			break;
		cm_node_set_cause(node, node->rx_len ? CM_CAUSE_MPA_PARTIAL : CM_CAUSE_CLOSED, -ECONNRESET);
		irdma_active_open_err(node, true);
		break;
	case IRDMA_CM_STATE_FIN_WAIT1: /* our FIN is not acknowledged yet */
		cm_node_set_state(node, IRDMA_CM_STATE_CLOSING);
		irdma_send_ack(node);
		break;
	case IRDMA_CM_STATE_FIN_WAIT2:
		irdma_send_ack(node);
		cm_node_time_wait(node);
		break;
	default: /* MPAREQ_RCVD, ACCEPTING, OFFLOADED: the NIC and the upper layer learn it with the stream */
		irdma_send_ack(node);
	}
}

/**
 * irdma_handle_fin_pkt - process the peer's FIN, in every state
 * @cm_node: node
 * @rbuf: segment; its acknowledgement and data count first
 *
 * The FIN counts when everything before it has come; one seen before, or behind a gap, is acknowledged and changes nothing.
 */
void irdma_handle_fin_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf)
{
	const struct pkt *pkt = rbuf->pkt;

	if (irdma_handle_ack_pkt(cm_node, rbuf) || cm_node->state == IRDMA_CM_STATE_CLOSED)
		return;
	if (cm_node->peer_fin || pkt->seq + pkt->datalen != cm_node->tcp_cntxt.rcv_nxt) {
		irdma_send_ack(cm_node);
		if (cm_node->state == IRDMA_CM_STATE_TIME_WAIT) { /* RFC 9293 3.10.7.4, eighth: begins again */
			cm_node->close_at_ns = 0;
			irdma_schedule_cm_timer(cm_node, NULL, IRDMA_TIMER_TYPE_CLOSE, 0, 0);
		}
		return;
	}
	cm_node->tcp_cntxt.rcv_nxt++;
	cm_node->peer_fin = true;
	fin_received(cm_node);
}

/**
 * irdma_process_pkt - hand a segment to its node's state machine
 * @cm_node: node, referenced by the caller
 * @rbuf: segment
 *
 * Dispatches on RST, SYN, SYN+ACK, FIN, ACK, in that order.
 */
void irdma_process_pkt(struct irdma_cm_node *cm_node, struct irdma_puda_buf *rbuf)
{
	u8 flags = rbuf->pkt->flags;

	if (flags & PKT_RST)
		irdma_handle_rst_pkt(cm_node, rbuf);
	else if ((flags & (PKT_SYN | PKT_ACK)) == (PKT_SYN | PKT_ACK))
		irdma_handle_synack_pkt(cm_node, rbuf);
	else if (flags & PKT_SYN)
		irdma_handle_syn_pkt(cm_node, rbuf);
	else if (!(flags & PKT_ACK))
		cm_node->cm_core->stats.bad_segments++; /* RFC 9293 3.10.7.4: no ACK bit, no segment */
	else if (flags & PKT_FIN)
		irdma_handle_fin_pkt(cm_node, rbuf);
	else
		irdma_handle_ack_pkt(cm_node, rbuf);
}

/**
 * irdma_receive_ilq - take a frame from the NIC: find or make its node, and process it
 * @vsi: whose ILQ
 * @rbuf: frame, decoded by the port, with the reference that this function drops; loop thread, no lock held
 *
 * Finds the node, or makes one for a SYN on an active listener or for what answers a SYN cookie, and processes the segment. What belongs to nobody is
 * answered with RST.
 */
void irdma_receive_ilq(struct irdma_sc_vsi *vsi, struct irdma_puda_buf *rbuf)
{
	struct irdma_device *iwdev = vsi->back;
	struct irdma_cm_core *core = iwdev->cm_core;
	struct net *prev = net_enter(iwdev->net);
	const struct pkt *pkt = rbuf->pkt;
	struct irdma_cm_node *node;

	cm_lock(core);
	node = irdma_find_node(core, pkt->sport, (u32 *)pkt->src, pkt->dport, (u32 *)pkt->dst, pkt->vlan_id);
	if (!node)
		node = cm_stray_node(core, pkt);
	if (node) {
		irdma_process_pkt(node, rbuf);
		irdma_rem_ref_cm_node(node);
	}
	cm_unlock(core);
	irdma_free_sqbuf(vsi, rbuf);
	net_enter(prev);
}
