// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * TCP options (RFC 9293 3.1, 3.2; RFC 7323). The bytes are the peer's: every length is checked before it is used.
 */
#include <arpa/inet.h>
#include <string.h>
#include "cm/cm_internal.h"

enum { OPT_EOL, OPT_NOP, OPT_MSS, OPT_WSCALE, OPT_SACK_PERMITTED, OPT_TIMESTAMPS = 8 };

/* RFC 9293 3.2: kinds with a fixed length must have it. 0: any. */
static const u8 fixed_len[] = {
	[OPT_MSS] = 4,
	[OPT_WSCALE] = 3,
	[OPT_SACK_PERMITTED] = 2,
	[OPT_TIMESTAMPS] = 10,
};

struct parsed {
	u16 mss;
	u8 wscale;
	bool have_mss, have_wscale;
};

static void take_option(struct parsed *p, const u8 *opt)
{
	if (opt[0] == OPT_MSS) {
		p->mss = (u16)(opt[2] << 8 | opt[3]);
		p->have_mss = true;
	} else if (opt[0] == OPT_WSCALE) {
		p->wscale = min(opt[2], (u8)CM_WIN_SCALE_MAX); /* RFC 7323 2.3 */
		p->have_wscale = true;
	}
}

static int parse(struct parsed *p, const u8 *loc, u32 size)
{
	u32 at = 0;

	while (at < size && loc[at] != OPT_EOL) {
		u32 len;

		if (loc[at] == OPT_NOP) {
			at++;
			continue;
		}
		if (size - at < 2)
			return -EINVAL;
		len = loc[at + 1];
		if (len < 2 || len > size - at)
			return -EINVAL;
		if (loc[at] < ARRAY_SIZE(fixed_len) && fixed_len[loc[at]] && fixed_len[loc[at]] != len)
			return -EINVAL;
		take_option(p, loc + at);
		at += len;
	}
	return 0;
}

/* Ours and theirs; an absurdly small one would make a frame of ours not fit, and none of those is a real link's (RFC 9293 3.7.1, RFC 791). */
static u16 effective_mss(const struct irdma_cm_node *node, const struct parsed *p)
{
	u16 dflt = node->ipv4 ? CM_MSS_DEFAULT_V4 : CM_MSS_DEFAULT_V6;
	u16 theirs = p->have_mss ? max(p->mss, (u16)CM_MSS_DEFAULT_V4) : dflt;

	return min(theirs, node->tcp_cntxt.mss);
}

/**
 * irdma_process_options - parse the TCP options of a segment
 * @cm_node: node whose MSS and window scaling they set
 * @loc: first option byte
 * @optionsize: bytes of options; nothing beyond is read
 * @syn_pkt: not 0 if the segment is a SYN or SYN+ACK: only there MSS and window scale count
 *
 * Knows EOL, NOP, MSS, window scale, SACK-permitted and timestamps; unknown ones are skipped by their length. Window
 * scaling is on only if both SYNs carried the option; a shift count above 14 counts as 14 (RFC 7323 2.3). A SYN without MSS means 536
 * (IPv4) or 1220 (IPv6).
 *
 * Return: 0; -EINVAL for a length that is zero, short, overruns the options or is not the kind's.
 */
int irdma_process_options(struct irdma_cm_node *cm_node, u8 *loc, u32 optionsize, u32 syn_pkt)
{
	struct irdma_cm_tcp_context *tcp = &cm_node->tcp_cntxt;
	struct parsed p = { 0 };
	int err = parse(&p, loc, optionsize);

	if (err || !syn_pkt)
		return err;
	tcp->mss = effective_mss(cm_node, &p);
	tcp->peer_offered_wscale = p.have_wscale;
	tcp->wscale_ok = p.have_wscale; /* our SYN always has it; our SYN+ACK has it if theirs had */
	tcp->snd_wscale = p.wscale;
	if (!tcp->wscale_ok)
		tcp->rcv_wscale = 0;
	return 0;
}

/**
 * irdma_handle_tcp_options - take over the options of a SYN or SYN+ACK, and the window that it announces
 * @cm_node: node
 * @tcph: its TCP header
 * @optionsize: bytes of options behind @tcph
 * @passive: not 0 on the passive side
 *
 * On malformed options the connection is reset through the open-error functions. The window of a SYN is never scaled (RFC 7323 2.2).
 *
 * Return: 0 or -EINVAL; the node may be gone then.
 */
int irdma_handle_tcp_options(struct irdma_cm_node *cm_node, struct tcphdr *tcph, int optionsize, int passive)
{
	struct irdma_cm_tcp_context *tcp = &cm_node->tcp_cntxt;
	struct tcphdr h;

	memcpy(&h, tcph, sizeof(h));
	if (optionsize < 0 || irdma_process_options(cm_node, (u8 *)tcph + sizeof(h), (u32)optionsize, h.syn)) {
		cm_node_set_cause(cm_node, CM_CAUSE_BAD_TCP, -EPROTO);
		cm_node->cm_core->stats.bad_segments++;
		if (passive)
			irdma_passive_open_err(cm_node, true);
		else
			irdma_active_open_err(cm_node, true);
		return -EINVAL;
	}
	tcp->snd_wnd = ntohs(h.window);
	if (!h.syn)
		tcp->snd_wnd <<= tcp->snd_wscale;
	tcp->max_snd_wnd = max(tcp->max_snd_wnd, tcp->snd_wnd);
	return 0;
}
