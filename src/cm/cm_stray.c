// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Segments that belong to no node: SYNs for a listener, answers to SYN cookies, and strays.
 *
 * On frame ports a listener that is crowded answers SYNs with a cookie (cm_cookie.c) and keeps nothing. What brings a cookie back makes a node when it also
 * brings data: an initiator speaks first (RFC 5044 7.1), and whoever finished the handshake and says nothing costs nothing either. On the host port
 * the kernel does all this, and new connections wait there.
 */
#include <string.h>
#include "cm/cm_internal.h"

/*
 * RFC 1122 3.2.1.3, 4.2.3.10: what comes from a broadcast or multicast address is neither taken nor answered; nor is what claims to come from itself,
 * or from port 0.
 */
static bool source_is_sane(const struct pkt *pkt)
{
	if (!pkt->sport || (pkt->sport == pkt->dport && pkt_addr_eq(pkt->src, pkt->dst)))
		return false;
	if (pkt->ipv4)
		return pkt->src[0] && (pkt->src[0] >> 28) < 0xE;
	return !pkt_addr_is_any(pkt->src) && (pkt->src[0] >> 24) != 0xFF;
}

/* A node made up for one answer to a segment: it is in no table, and nothing of it stays. */
static void make_up(struct irdma_cm_node *node, struct irdma_cm_core *core, const struct pkt *pkt)
{
	struct irdma_device *iwdev = core->iwdev;

	*node = (struct irdma_cm_node){ .iwdev = iwdev, .cm_core = core, .ipv4 = pkt->ipv4, .vlan_id = pkt->vlan_id };
	memcpy(node->loc_addr, pkt->dst, sizeof(node->loc_addr));
	memcpy(node->rem_addr, pkt->src, sizeof(node->rem_addr));
	memcpy(node->loc_mac, iwdev->iface.mac, sizeof(node->loc_mac));
	memcpy(node->rem_mac, pkt->smac, sizeof(node->rem_mac));
	node->loc_port = pkt->dport;
	node->rem_port = pkt->sport;
}

/* RFC 9293 3.10.7.1: a segment for nobody is answered with RST, unless it is one. */
void cm_reset_stray(struct irdma_cm_core *core, const struct pkt *pkt)
{
	struct irdma_cm_node node;
	struct irdma_puda_buf *buf;
	u8 flags = SET_RST;

	if ((pkt->flags & PKT_RST) || !source_is_sane(pkt))
		return;
	make_up(&node, core, pkt);
	if (pkt->flags & PKT_ACK) {
		node.tcp_cntxt.loc_seq_num = pkt->ack;
	} else {
		flags |= SET_ACK;
		node.tcp_cntxt.rcv_nxt = pkt->seq + pkt->datalen + !!(pkt->flags & PKT_SYN) + !!(pkt->flags & PKT_FIN);
	}
	if (irdma_cm_create_ah(&node, true))
		return;
	buf = core->form_cm_frame(&node, NULL, NULL, NULL, flags);
	if (buf)
		irdma_schedule_cm_timer(&node, buf, IRDMA_TIMER_TYPE_SEND, 0, 0);
	irdma_cm_free_ah(&node);
}

/* ---- places in the backlog ---- */

/*
 * So many are half open that a SYN gets a cookie. Half of the backlog is for those that finish the handshake; the limit for the whole device bounds memory
 * whatever backlog the upper layer asks for.
 */
static bool crowded(const struct irdma_cm_core *core, const struct irdma_cm_listener *l)
{
	if (!(core->iwdev->port->ops->flags & PORT_FRAMES))
		return false;
	return l->half_open_now >= ((u32)l->backlog + 1) / 2 || l->pending >= (u32)l->backlog ||
	       core->stats.half_open_now >= CM_HALF_OPEN_MAX;
}

/* All that wait have said all that they can: it is the upper layer's turn. */
static bool full_of_requests(const struct irdma_cm_listener *l)
{
	return l->pending >= (u32)l->backlog && TAILQ_EMPTY(&l->half_open) && TAILQ_EMPTY(&l->silent);
}

/* From now on cookies may come back for as long as one lives. */
static void expect_cookies(struct irdma_cm_core *core, struct irdma_cm_listener *listener)
{
	listener->cookies_until_ns = core->cookies_until_ns = cm_now(core) + 2 * CM_COOKIE_SLOT_MS * NSEC_PER_MSEC;
}

bool cm_node_may_return(const struct irdma_cm_node *node)
{
	return !node->rx_len && node->listener && node->listener->cookies_until_ns > cm_now(node->cm_core);
}

static void give_way(struct irdma_cm_node *node)
{
	struct irdma_cm_core *core = node->cm_core;

	if (node->on_silent)
		core->stats.silent_evicted++;
	else
		core->stats.half_open_evicted++;
	if (core->iwdev->port->ops->flags & PORT_FRAMES)
		expect_cookies(core, node->listener);
	cm_node_set_cause(node, CM_CAUSE_NO_RESOURCES, -ENOBUFS);
	irdma_passive_open_err(node, !node->on_half_open && !cm_node_may_return(node));
}

/*
 * Room for one more? In a full backlog the oldest half-open connection gives way, and to a @request that has come whole also the oldest one of those
 * that keep silent; on the host port, where they have no place, when there are too many.
 */
static bool make_room(struct irdma_cm_core *core, struct irdma_cm_listener *listener, bool request)
{
	bool frames = core->iwdev->port->ops->flags & PORT_FRAMES;
	struct irdma_cm_node *oldest = TAILQ_FIRST(&listener->half_open);

	if (!frames && listener->silent_now >= CM_SILENT_MAX)
		give_way(TAILQ_FIRST(&listener->silent));
	if (cm_listener_has_place(listener))
		return true;
	if (!oldest && request)
		oldest = TAILQ_FIRST(&listener->silent);
	if (!oldest) {
		cm_listener_hurry(listener);
		core->stats.backlog_drops++;
		return false;
	}
	give_way(oldest);
	return true;
}

static void info_from_pkt(struct irdma_cm_info *info, const struct pkt *pkt, const struct irdma_cm_listener *listener)
{
	*info = (struct irdma_cm_info){
		.cm_id = listener->cm_id,
		.loc_port = pkt->dport,
		.rem_port = pkt->sport,
		.vlan_id = pkt->vlan_id,
		.tos = listener->tos,
		.user_pri = listener->user_pri,
		.ipv4 = pkt->ipv4,
	};
	memcpy(info->loc_addr, pkt->dst, sizeof(info->loc_addr));
	memcpy(info->rem_addr, pkt->src, sizeof(info->rem_addr));
}

/* A node in LISTENING for a peer of @listener, with a reference for the caller; NULL: as good as lost. */
static struct irdma_cm_node *make_node(struct irdma_cm_core *core, struct irdma_cm_listener *listener, const struct pkt *pkt)
{
	struct irdma_cm_info info;
	struct irdma_cm_node *node;

	info_from_pkt(&info, pkt, listener);
	node = irdma_make_cm_node(core, core->iwdev, &info, listener);
	if (!node)
		return NULL;
	if (node->neigh_pending)
		memcpy(node->rem_mac, pkt->smac, sizeof(node->rem_mac));
	cm_node_set_state(node, IRDMA_CM_STATE_LISTENING);
	cm_node_hold(node);
	return node;
}

/* ---- SYN cookies ---- */

/*
 * The sequence number of every SYN+ACK on a frame port is a cookie, that of a node, too: so a node that has received nothing yet can be forgotten, and is made
 * anew by the peer's request.
 */
void cm_node_use_cookie(struct irdma_cm_node *node, const struct pkt *syn)
{
	struct irdma_cm_tcp_context *tcp = &node->tcp_cntxt;
	struct cm_cookie cookie = { tcp->mss, tcp->peer_offered_wscale, tcp->snd_wscale };
	struct irdma_device *iwdev = node->iwdev;

	if (!(iwdev->port->ops->flags & PORT_FRAMES))
		return;
	tcp->iss = cm_cookie_make(node->cm_core, syn, cm_own_mss(iwdev, syn->ipv4), &cookie);
	tcp->loc_seq_num = tcp->rem_ack_num = tcp->iss;
}

/* SYN+ACK with a cookie for sequence number. */
static void answer_with_cookie(struct irdma_cm_core *core, struct irdma_cm_listener *listener, const struct pkt *syn)
{
	struct irdma_cm_node node;

	make_up(&node, core, syn);
	node.tos = listener->tos;
	node.user_pri = listener->user_pri;
	cm_tcp_init(&node.tcp_cntxt, cm_own_mss(core->iwdev, syn->ipv4));
	if (irdma_process_options(&node, (u8 *)syn->opts, syn->optlen, 1)) {
		core->stats.bad_segments++;
		cm_reset_stray(core, syn);
		return;
	}
	cm_node_use_cookie(&node, syn);
	node.tcp_cntxt.rcv_nxt = syn->seq + 1;
	expect_cookies(core, listener);
	if (irdma_cm_create_ah(&node, true))
		return;
	if (!cm_send_synack_once(&node))
		core->stats.cookies_sent++;
	irdma_cm_free_ah(&node);
}

/* Could it answer a cookie? The listener that sent some lately, with a reference, or NULL. A bare FIN is a stray. */
static struct irdma_cm_listener *find_cookie_listener(struct irdma_cm_core *core, const struct pkt *pkt)
{
	struct irdma_cm_listener *l;

	if (core->cookies_until_ns <= cm_now(core) || (pkt->flags & (PKT_SYN | PKT_RST | PKT_ACK)) != PKT_ACK || !source_is_sane(pkt))
		return NULL;
	if ((pkt->flags & PKT_FIN) && !pkt->datalen)
		return NULL;
	l = irdma_find_listener(core, (u32 *)pkt->dst, pkt->ipv4, pkt->dport, pkt->vlan_id, IRDMA_CM_LISTENER_ACTIVE_STATE);
	if (!l || l->cookies_until_ns > cm_now(core))
		return l;
	irdma_dec_refcnt_listen(core, l, 0, false);
	return NULL;
}

/* The node as it would stand in SYN_RCVD. */
static void restore(struct irdma_cm_node *node, const struct pkt *pkt, const struct cm_cookie *cookie)
{
	struct irdma_cm_tcp_context *tcp = &node->tcp_cntxt;

	tcp->iss = tcp->rem_ack_num = pkt->ack - 1;
	tcp->loc_seq_num = pkt->ack;
	tcp->irs = pkt->seq - 1;
	tcp->rcv_nxt = tcp->loc_ack_num = pkt->seq;
	tcp->mss = cookie->mss;
	tcp->wscale_ok = tcp->peer_offered_wscale = cookie->wscale_ok;
	tcp->snd_wscale = cookie->wscale;
	if (!cookie->wscale_ok)
		tcp->rcv_wscale = 0;
	cm_node_set_state(node, IRDMA_CM_STATE_SYN_RCVD);
	cm_node_half_open(node, true);
}

/*
 * Data on a listener that sent cookies lately. Without a good one it may be the second segment of a peer whose first was lost, so it is dropped,
 * not reset: the peer sends both again.
 */
static struct irdma_cm_node *node_for_cookie(struct irdma_cm_core *core, struct irdma_cm_listener *listener, const struct pkt *pkt)
{
	struct irdma_cm_node *node;
	struct cm_cookie cookie;

	if (!pkt->datalen)
		return NULL;
	if (!cm_cookie_check(core, pkt, cm_own_mss(core->iwdev, pkt->ipv4), &cookie)) {
		core->stats.cookies_bad++;
		return NULL;
	}
	if (!make_room(core, listener, cm_mpa_is_whole(pkt->data, pkt->datalen)))
		return NULL;
	node = make_node(core, listener, pkt);
	if (!node)
		return NULL;
	restore(node, pkt, &cookie);
	if (irdma_cm_create_ah(node, true)) {
		cm_node_set_cause(node, CM_CAUSE_NO_RESOURCES, -ENOMEM);
		irdma_passive_open_err(node, false);
	} else {
		core->stats.cookies_accepted++;
	}
	return node;
}

/* ---- */

static struct irdma_cm_node *node_for_syn(struct irdma_cm_core *core, const struct pkt *pkt)
{
	struct irdma_cm_listener *listener;
	struct irdma_cm_node *node = NULL;

	if (!source_is_sane(pkt))
		return NULL;
	listener = irdma_find_listener(core, (u32 *)pkt->dst, pkt->ipv4, pkt->dport, pkt->vlan_id, IRDMA_CM_LISTENER_ACTIVE_STATE);
	if (!listener) {
		cm_reset_stray(core, pkt);
		return NULL;
	}
	if (crowded(core, listener) && !full_of_requests(listener)) {
		answer_with_cookie(core, listener, pkt);
		cm_listener_hurry(listener);
	} else if (make_room(core, listener, false)) {
		node = make_node(core, listener, pkt);
	}
	irdma_dec_refcnt_listen(core, listener, 0, false);
	return node;
}

struct irdma_cm_node *cm_stray_node(struct irdma_cm_core *core, const struct pkt *pkt)
{
	struct irdma_cm_listener *listener;
	struct irdma_cm_node *node;

	if ((pkt->flags & (PKT_SYN | PKT_ACK | PKT_RST | PKT_FIN)) == PKT_SYN)
		return node_for_syn(core, pkt);
	listener = find_cookie_listener(core, pkt);
	if (!listener) {
		cm_reset_stray(core, pkt);
		return NULL;
	}
	node = node_for_cookie(core, listener, pkt);
	irdma_dec_refcnt_listen(core, listener, 0, false);
	return node;
}
