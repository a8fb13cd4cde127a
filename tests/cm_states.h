/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A node of host 0 in any state, whose peer is the test: host 1's NIC is off. The way there is that of real connections, but for the
 * states that last only within a call, or that nothing leads to.
 */
#ifndef UWARP_TESTS_CM_STATES_H
#define UWARP_TESTS_CM_STATES_H

#include <arpa/inet.h>
#include <stdio.h>
#include "cm_fixture.h"

#define ST(x) IRDMA_CM_STATE_##x

struct env {
	struct fx fx;
	struct endpoint l, a, c; /* listener, its child; active side */
	struct fx_peer p;
	struct fx_tap tap;
	struct port_ops ops;     /* host 0's port, for the test to spoil */
	bool ipv4;
	bool listening;
};

/* MPA start-up frames of a peer. */
static inline u32 env_mpa(u8 *out, bool reply, u8 rev, u8 flags, const void *pdata, u16 plen)
{
	struct mpa_start_hdr h = { .flags = flags, .rev = rev };
	u8 v2[4] = { 0x80, 8, 0xC0, 8 }; /* A, Write and Read, IRD and ORD 8 */
	u32 len = sizeof(h);

	if (reply)
		v2[2] = 0x80;
	memcpy(h.key, reply ? MPA_KEY_REP : MPA_KEY_REQ, MPA_KEY_SIZE);
	if (rev == MPA_REV_2)
		h.flags |= MPA_FLAG_ENHANCED;
	h.priv_len = htons((u16)(plen + (rev == MPA_REV_2 ? 4 : 0)));
	memcpy(out, &h, sizeof(h));
	if (rev == MPA_REV_2) {
		memcpy(out + len, v2, 4);
		len += 4;
	}
	if (plen)
		memcpy(out + len, pdata, plen);
	return len + plen;
}

static inline void env_request(struct env *e)
{
	u8 buf[64];
	u32 len = env_mpa(buf, false, MPA_REV_2, MPA_FLAG_CRC, "hi", 2);

	fx_peer_send(&e->p, PKT_ACK | PKT_PSH, buf, len);
}

static inline void env_reply(struct env *e, u8 flags)
{
	u8 buf[64];
	u32 len = env_mpa(buf, true, MPA_REV_2, MPA_FLAG_CRC | flags, "hi", 2);

	fx_peer_send(&e->p, PKT_ACK | PKT_PSH, buf, len);
}

static inline void env_step(struct env *e, enum irdma_cm_node_state s)
{
	cm_lock(e->p.dev->cm_core);
	cm_node_set_state(e->p.node, s);
	cm_unlock(e->p.dev->cm_core);
}

static inline void env_up(struct env *e, u8 gen, bool ipv4)
{
	fx_up(&e->fx, gen, 1);
	fx_silence(&e->fx);
	e->ipv4 = ipv4;
	e->listening = false;
	ep_init(&e->l, &e->fx, 0);
	ep_init(&e->a, &e->fx, 0);
	ep_init(&e->c, &e->fx, 0);
	e->l.child = &e->a;
	e->ops = *e->fx.host[0].dev->port->ops;
	e->fx.host[0].dev->port->ops = &e->ops;
	fx_tap_on(&e->fx, 0, &e->tap);
	memset(&e->p, 0, sizeof(e->p));
	e->p.dev = e->fx.host[0].dev;
}

static inline void env_listen(struct env *e)
{
	if (!e->listening)
		ep_listen(&e->fx, &e->l, 0, e->ipv4, 7000);
	e->listening = true;
}

static inline int env_no_time_wait(struct port *p, const struct tcp_info_ho *t)
{
	return -ENOMEM;
}

static inline struct irdma_cm_core *env_core(const struct env *e)
{
	return e->fx.host[0].dev->cm_core;
}

static inline void env_loop(struct env *e)
{
	loop_run(&e->fx.loop);
}

static inline void env_passive(struct env *e)
{
	env_listen(e);
	fx_peer_passive(&e->p, &e->fx, e->ipv4, 5000);
}

static inline void env_requested(struct env *e)
{
	env_passive(e);
	env_request(e);
	env_loop(e);
	assert_int_equal(e->l.nevents, 1);
	assert_ptr_equal(ep_node(&e->a), e->p.node);
}

static inline void env_bare(struct env *e)
{
	fx_peer_tuple(&e->p, &e->fx, e->ipv4, 5000, 7000);
	cm_lock(env_core(e));
	e->p.node = fx_node(&e->fx, &e->c.id, e->ipv4, 5000, 7000);
	assert_non_null(e->p.node);
	cm_node_hold(e->p.node);
	cm_unlock(env_core(e));
}

static inline void env_fin_wait1(struct env *e)
{
	env_requested(e);
	assert_int_equal(irdma_reject(&e->a.id, "no", 2), 0);
}

/* The peer's FIN, which acknowledges all but ours. */
static inline void env_fin_unacked(struct env *e)
{
	struct fx_seg s = { .flags = PKT_FIN | PKT_ACK, .seq = e->p.seq, .ack = e->p.node->tcp_cntxt.rem_ack_num, .window = 8192 };

	fx_feed(e->p.dev, &e->p.t, &s);
	e->p.seq++;
}

static inline void env_active_states(struct env *e, enum irdma_cm_node_state s)
{
	switch (s) {
	case ST(SYN_SENT):
	case ST(ONE_SIDE_ESTABLISHED):
		fx_peer_tuple(&e->p, &e->fx, e->ipv4, 5000, 7000);
		assert_int_equal(ep_connect(&e->c, 0, 1, e->ipv4, 5000, 7000), 0);
		fx_peer_find(&e->p);
		if (s == ST(SYN_SENT))
			return;
		e->p.node->tcp_cntxt.irs = FX_PEER_ISS;
		e->p.node->tcp_cntxt.rcv_nxt = FX_PEER_ISS + 1;
		e->p.node->tcp_cntxt.rem_ack_num = e->p.node->tcp_cntxt.loc_seq_num;
		e->p.node->tcp_cntxt.snd_wnd = e->p.node->tcp_cntxt.max_snd_wnd = 8192;
		e->p.seq++;
		env_step(e, s);
		return;
	default:
		fx_peer_active(&e->p, &e->fx, &e->c, e->ipv4, 5000);
	}
	if (s == ST(MPAREJ_RCVD))
		env_reply(e, MPA_FLAG_REJECT);
	else if (s == ST(OFFLOADED))
		env_reply(e, 0);
}

/* Puts e->p.node, of which the test holds a reference, into @s. */
static inline void env_goto(struct env *e, enum irdma_cm_node_state s)
{
	switch (s) {
	case ST(INITED):
	case ST(LISTENING):
		env_bare(e);
		if (s == ST(LISTENING))
			env_step(e, s);
		break;
	case ST(SYN_SENT):
	case ST(ONE_SIDE_ESTABLISHED):
	case ST(MPAREQ_SENT):
	case ST(MPAREJ_RCVD):
	case ST(OFFLOADED):
		env_active_states(e, s);
		break;
	case ST(SYN_RCVD):
		env_listen(e);
		fx_peer_syn(&e->p, &e->fx, e->ipv4, 5000);
		break;
	case ST(ESTABLISHED):
		env_passive(e);
		break;
	case ST(MPAREQ_RCVD):
		env_requested(e);
		break;
	case ST(ACCEPTING):
	case ST(CLOSE_WAIT):
		env_requested(e);
		e->p.node->state = s; /* lasts within a call; nothing leads there */
		break;
	case ST(FIN_WAIT1):
		env_fin_wait1(e);
		break;
	case ST(FIN_WAIT2):
	case ST(TIME_WAIT):
		env_fin_wait1(e);
		fx_peer_send(&e->p, PKT_ACK, NULL, 0);
		if (s == ST(FIN_WAIT2))
			break;
		e->ops.time_wait = env_no_time_wait;
		fx_peer_send(&e->p, PKT_FIN | PKT_ACK, NULL, 0);
		break;
	case ST(CLOSING):
		env_fin_wait1(e);
		env_fin_unacked(e);
		break;
	case ST(LAST_ACK):
		env_passive(e);
		fx_peer_send(&e->p, PKT_FIN | PKT_ACK, NULL, 0);
		break;
	case ST(LISTENER_DESTROYED):
		env_requested(e);
		assert_int_equal(irdma_destroy_listen(&e->l.id), 0);
		e->listening = false;
		break;
	case ST(CLOSED):
		env_passive(e);
		fx_peer_send(&e->p, PKT_RST, NULL, 0);
		break;
	default:
		fail();
	}
	assert_int_equal(e->p.node->state, s);
}

/* The upper layers give up, the wire runs to its end; nothing is left. */
static inline void env_down(struct env *e)
{
	struct irdma_cm_core *core = env_core(e);

	if (e->p.node) {
		cm_lock(core);
		if (!e->p.node->cm_id || e->p.node->state == ST(INITED) || e->p.node->state == ST(LISTENING))
			cm_node_end(e->p.node);
		irdma_rem_ref_cm_node(e->p.node);
		cm_unlock(core);
	}
	ep_fini(&e->fx, &e->a);
	ep_fini(&e->fx, &e->c);
	if (e->listening)
		assert_int_equal(irdma_destroy_listen(&e->l.id), 0);
	fx_run(&e->fx, 600000);
	ep_fini(&e->fx, &e->l);
	assert_int_equal(fx_stats(&e->fx, 0).nodes_now, 0);
	assert_int_equal(fx_stats(&e->fx, 0).half_open_now, 0);
	fx_tap_off(&e->tap);
	fx_down(&e->fx);
}

/* A segment for the node whether it is in the table or not, with the port's word on the cause of an RST. */
static inline void env_process(struct env *e, const struct fx_seg *s, int error)
{
	u8 mem[PKT_TCP_LEN + PKT_TCP_OPT_MAX + 2048];
	u32 hdrlen = PKT_TCP_LEN + s->optlen;
	struct irdma_puda_buf buf = { .error = error };
	struct pkt pkt;
	struct tcphdr h = {
		.source = htons(e->p.t.rem_port), .dest = htons(e->p.t.loc_port), .seq = htonl(s->seq), .ack_seq = htonl(s->ack),
		.window = htons(s->window), .doff = hdrlen / 4,
	};

	assert_true(hdrlen + s->len <= sizeof(mem));
	h.th_flags = s->flags;
	memcpy(mem, &h, sizeof(h));
	if (s->optlen)
		memcpy(mem + PKT_TCP_LEN, s->opts, s->optlen);
	if (s->len)
		memcpy(mem + hdrlen, s->data, s->len);
	assert_int_equal(pkt_parse_segment(mem, hdrlen + s->len, &e->p.t, &pkt), PKT_OK);
	buf.pkt = &pkt;
	cm_lock(env_core(e));
	irdma_process_pkt(e->p.node, &buf);
	cm_unlock(env_core(e));
}

#endif
