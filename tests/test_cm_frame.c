// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Frames that the CM sends, in both generations: byte for byte, what they consume, and what they hold. */
#include <arpa/inet.h>
#include "cm_fixture.h"

struct frame_case {
	u8 gen;
	bool ipv4;
	u16 vlan_id;
};

static const struct frame_case cases[] = {
	{ IRDMA_GEN_1, true, PKT_VLAN_NONE }, { IRDMA_GEN_1, true, 100 }, { IRDMA_GEN_1, false, PKT_VLAN_NONE }, { IRDMA_GEN_1, false, 4094 },
	{ IRDMA_GEN_2, true, PKT_VLAN_NONE }, { IRDMA_GEN_2, true, 100 }, { IRDMA_GEN_2, false, PKT_VLAN_NONE }, { IRDMA_GEN_2, false, 4094 },
};

#define FOR_CASES(c) for (const struct frame_case *c = cases; c < cases + ARRAY_SIZE(cases); c++)

#define SEQ 0xFFFFFFF0u /* so that what is consumed wraps */

static struct irdma_cm_node *node_of(struct fx *fx, const struct frame_case *c)
{
	struct irdma_cm_node *node = fx_node(fx, NULL, c->ipv4, 5000, 7000);

	assert_non_null(node);
	cm_node_unhash(node);
	node->vlan_id = c->vlan_id;
	node->user_pri = 5;
	node->tos = 0x48;
	node->tcp_cntxt.loc_seq_num = SEQ;
	node->tcp_cntxt.rcv_nxt = 0x01020304;
	assert_int_equal(irdma_cm_create_ah(node, true), 0);
	return node;
}

/* The frame that a buffer becomes on the wire, parsed with its checksums checked. */
static void on_the_wire(struct fx *fx, struct irdma_puda_buf *buf, struct fx_tap *t)
{
	fx_tap_on(fx, 0, t);
	assert_int_equal(rnic_ilq_send(&fx->host[0].dev->vsi, buf), 0);
	fx_tap_off(t);
	assert_int_equal(t->n, 1);
}

static void check_layers(const struct fx *fx, const struct frame_case *c, const struct pkt *p)
{
	u32 loc[4], rem[4];

	fx_addr(c->ipv4, 0, loc);
	fx_addr(c->ipv4, 1, rem);
	assert_memory_equal(p->smac, fx->host[0].iface.mac, 6);
	assert_memory_equal(p->dmac, fx->host[1].iface.mac, 6);
	assert_int_equal(p->vlan_id, c->vlan_id);
	assert_int_equal(p->prio, c->vlan_id == PKT_VLAN_NONE ? 0 : 5);
	assert_int_equal(p->ipv4, c->ipv4);
	assert_int_equal(p->tos, 0x48);
	assert_int_equal(p->ttl, 64);
	assert_memory_equal(p->src, loc, 16);
	assert_memory_equal(p->dst, rem, 16);
	assert_int_equal(p->sport, 5000);
	assert_int_equal(p->dport, 7000);
	if (c->ipv4) /* DF, no offset */
		assert_int_equal(p->frame[PKT_ETH_LEN + (c->vlan_id == PKT_VLAN_NONE ? 0 : 4) + 6], 0x40);
}

static void whole_frame_has_every_field(void **state)
{
	u8 opts[8] = { 2, 4, 5, 0xB4, 1, 3, 3, 2 }, hdr[24], pdata[300];
	struct irdma_kmem_info o = { opts, 8 }, h = { hdr, 24 };
	struct irdma_mpa_priv_info d = { pdata, 300 };
	struct fx_tap tap;

	for (u32 i = 0; i < sizeof(pdata); i++)
		pdata[i] = (u8)(i * 7);
	memset(hdr, 0x5A, sizeof(hdr));
	FOR_CASES(c) {
		struct irdma_puda_buf *buf;
		struct irdma_cm_node *node;
		const struct pkt *p;
		struct fx fx;

		fx_up(&fx, c->gen, 1);
		node = node_of(&fx, c);
		buf = fx.host[0].dev->cm_core->form_cm_frame(node, &o, &h, &d, SET_ACK);
		assert_non_null(buf);
		on_the_wire(&fx, buf, &tap);
		p = fx_last(&tap);
		check_layers(&fx, c, p);
		assert_int_equal(p->seq, SEQ);
		assert_int_equal(p->ack, 0x01020304);
		assert_int_equal(p->flags, PKT_ACK | PKT_PSH);
		assert_int_equal(p->optlen, 8);
		assert_memory_equal(p->opts, opts, 8);
		assert_int_equal(p->datalen, 324);
		assert_memory_equal(p->data, hdr, 24);
		assert_memory_equal(p->data + 24, pdata, 300);
		assert_memory_equal((const u8 *)p->tcph + 18, "\0\0", 2); /* urgent pointer */
		assert_int_equal(node->tcp_cntxt.loc_seq_num, SEQ + 324);
		assert_int_equal(node->tcp_cntxt.loc_ack_num, 0x01020304);
		irdma_free_sqbuf(&fx.host[0].dev->vsi, buf);
		cm_node_end(node);
		fx_down(&fx);
	}
}

/* What a buffer says of itself, which the NIC goes by. */
static void buffers_describe_their_frame(void **state)
{
	FOR_CASES(c) {
		u32 l23 = PKT_ETH_LEN + (c->vlan_id == PKT_VLAN_NONE ? 0 : 4) + (c->ipv4 ? PKT_IP4_LEN : PKT_IP6_LEN);
		u8 opts[4] = { 1, 1, 1, 1 }, hdr[20] = { 0 };
		struct irdma_kmem_info o = { opts, 4 }, h = { hdr, 20 };
		struct irdma_puda_buf *buf;
		struct irdma_cm_node *node;
		struct fx fx;

		fx_up(&fx, c->gen, 1);
		node = node_of(&fx, c);
		buf = fx.host[0].dev->cm_core->form_cm_frame(node, &o, &h, NULL, SET_ACK);
		assert_int_equal(buf->refcount, 1);
		assert_int_equal(buf->seqnum, SEQ);
		assert_int_equal(buf->tcphlen, 24);
		if (c->gen == IRDMA_GEN_2) {
			assert_ptr_equal(buf->ah, &node->ah);
			assert_ptr_equal(buf->data, buf->tcph);
			assert_int_equal(buf->totallen, 44);
		} else {
			assert_null(buf->ah);
			assert_ptr_equal(buf->data + l23, buf->tcph);
			assert_int_equal(buf->totallen, l23 + 44);
		}
		irdma_free_sqbuf(&fx.host[0].dev->vsi, buf);
		cm_node_end(node);
		fx_down(&fx);
	}
}

static const struct { u8 set, flags; u32 consumes; bool ack; } flag_cases[] = {
	{ 0, 0, 0, false }, { SET_SYN, PKT_SYN, 1, false }, { SET_SYN | SET_ACK, PKT_SYN | PKT_ACK, 1, true },
	{ SET_ACK, PKT_ACK, 0, true }, { SET_FIN | SET_ACK, PKT_FIN | PKT_ACK, 1, true }, { SET_RST, PKT_RST, 0, false },
	{ SET_RST | SET_ACK, PKT_RST | PKT_ACK, 0, true }, { SET_SYN | SET_FIN, PKT_SYN | PKT_FIN, 2, false },
};

static void flags_and_what_they_consume(void **state)
{
	FOR_CASES(c) {
		struct fx_tap tap;
		struct fx fx;

		fx_up(&fx, c->gen, 1);
		for (size_t i = 0; i < ARRAY_SIZE(flag_cases); i++) {
			struct irdma_cm_node *node = node_of(&fx, c);
			struct irdma_puda_buf *buf = fx.host[0].dev->cm_core->form_cm_frame(node, NULL, NULL, NULL, flag_cases[i].set);
			const struct pkt *p;

			assert_non_null(buf);
			on_the_wire(&fx, buf, &tap);
			p = fx_last(&tap);
			assert_int_equal(p->flags, flag_cases[i].flags);
			assert_int_equal(p->seq, SEQ);
			assert_int_equal(p->ack, flag_cases[i].ack ? 0x01020304 : 0);
			assert_int_equal(p->optlen + p->datalen, 0);
			assert_int_equal(node->tcp_cntxt.loc_seq_num, SEQ + flag_cases[i].consumes);
			assert_int_equal(node->tcp_cntxt.loc_ack_num, flag_cases[i].ack ? 0x01020304 : 0);
			irdma_free_sqbuf(&fx.host[0].dev->vsi, buf);
			cm_node_end(node);
		}
		fx_down(&fx);
	}
}

static void lengths_at_and_over_the_limit(void **state)
{
	static const struct { u32 opt, hdr, data; bool fits; } c[] = {
		{ 40, 0, 0, true }, { 44, 0, 0, false }, { 3, 0, 0, false }, { 41, 0, 0, false }, { 0, 20, 512, true }, { 40, 24, 508, true },
		{ 0, 20, 513, false }, { 0, 24, 509, false }, { 0, 0, 532, true }, { 0, 533, 0, false }, { 0, 24, 65535, false },
	};
	static u8 bytes[65536];

	for (int g = 0; g < 2; g++) {
		u8 gen = g ? IRDMA_GEN_2 : IRDMA_GEN_1;
		const struct frame_case fc = { gen, false, 100 };
		struct irdma_cm_node *node;
		struct fx fx;

		fx_up(&fx, gen, 1);
		node = node_of(&fx, &fc);
		for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
			struct irdma_kmem_info o = { bytes, c[i].opt }, h = { bytes, c[i].hdr };
			struct irdma_mpa_priv_info d = { bytes, c[i].data };
			u32 seq = node->tcp_cntxt.loc_seq_num;
			struct irdma_puda_buf *buf = fx.host[0].dev->cm_core->form_cm_frame(node, &o, &h, &d, SET_ACK);

			assert_int_equal(!!buf, c[i].fits);
			assert_int_equal(node->tcp_cntxt.loc_seq_num, seq + (buf ? c[i].hdr + c[i].data : 0));
			if (buf)
				irdma_free_sqbuf(&fx.host[0].dev->vsi, buf);
		}
		assert_int_equal(fx_bufs(&fx), 0);
		cm_node_end(node);
		fx_down(&fx);
	}
}

static void no_handle_no_frame(void **state)
{
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_2, 1);
	node = fx_node(&fx, NULL, true, 5000, 7000);
	assert_null(irdma_form_ah_cm_frame(node, NULL, NULL, NULL, SET_SYN));
	assert_int_equal(node->tcp_cntxt.loc_seq_num, node->tcp_cntxt.iss);
	assert_int_equal(fx_bufs(&fx), 0);
	cm_node_end(node);
	fx_down(&fx);
}

static void drain_pool(struct fx *fx, struct irdma_puda_buf *held[2])
{
	struct irdma_sc_vsi *vsi = &fx->host[0].dev->vsi;

	held[0] = rnic_buf_get(vsi, 0);
	held[1] = rnic_buf_get(vsi, MPA_START_FRAME_MAX);
	vsi->small.limit = vsi->small.used;
	vsi->large.limit = vsi->large.used;
}

static void refill_pool(struct fx *fx, struct irdma_puda_buf *held[2])
{
	struct irdma_sc_vsi *vsi = &fx->host[0].dev->vsi;

	vsi->small.limit = vsi->large.limit = 0;
	rnic_buf_put(held[0]);
	rnic_buf_put(held[1]);
}

static void empty_pool_no_frame_and_no_sequence_number(void **state)
{
	FOR_CASES(c) {
		u8 hdr[24] = { 0 };
		struct irdma_kmem_info h = { hdr, 24 };
		struct irdma_mpa_priv_info d = { hdr, 24 };
		struct irdma_cm_core *core;
		struct irdma_puda_buf *held[2];
		struct irdma_cm_node *node;
		struct fx_tap tap;
		struct fx fx;

		fx_up(&fx, c->gen, 1);
		core = fx.host[0].dev->cm_core;
		node = node_of(&fx, c);
		drain_pool(&fx, held);
		fx_tap_on(&fx, 0, &tap);
		assert_null(core->form_cm_frame(node, NULL, NULL, NULL, SET_FIN));
		assert_null(core->form_cm_frame(node, NULL, &h, &d, SET_ACK));
		assert_int_equal(irdma_send_syn(node, 0), -ENOMEM);
		assert_int_equal(irdma_send_syn(node, 1), -ENOMEM);
		assert_int_equal(irdma_send_fin(node), -ENOMEM);
		irdma_send_ack(node);
		cm_send_rst(node);
		assert_int_equal(node->syn_sent, 0);
		assert_null(node->send_entry.sqbuf);
		assert_int_equal(node->tcp_cntxt.loc_seq_num, SEQ);
		cm_node_hold(node);
		assert_int_equal(irdma_send_reset(node), -ENOMEM); /* ends it all the same */
		assert_int_equal(node->state, IRDMA_CM_STATE_CLOSED);
		assert_int_equal(tap.n, 0);
		fx_tap_off(&tap);
		irdma_rem_ref_cm_node(node);
		refill_pool(&fx, held);
		fx_down(&fx);
	}
}

static void last_reference_returns_the_buffer(void **state)
{
	struct irdma_sc_vsi *vsi;
	struct irdma_puda_buf *buf;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	vsi = &fx.host[0].dev->vsi;
	buf = rnic_buf_get(vsi, 0);
	rnic_buf_hold(buf);
	irdma_free_sqbuf(vsi, buf);
	assert_int_equal(fx_bufs(&fx), 1);
	assert_int_equal(buf->refcount, 1);
	irdma_free_sqbuf(vsi, buf);
	assert_int_equal(fx_bufs(&fx), 0);
	fx_down(&fx);
}

static void syn_carries_mss_and_window_scale(void **state)
{
	FOR_CASES(c) {
		u16 mss = c->ipv4 ? 1460 : 1440;
		u8 want[8] = { 2, 4, (u8)(mss >> 8), (u8)mss, 1, 3, 3, CM_RCV_WSCALE };
		struct irdma_cm_node *node;
		const struct pkt *p;
		struct fx_tap tap;
		struct fx fx;

		fx_up(&fx, c->gen, 1);
		fx_silence(&fx);
		node = node_of(&fx, c);
		fx_tap_on(&fx, 0, &tap);
		assert_int_equal(irdma_send_syn(node, 0), 0);
		p = fx_last(&tap);
		assert_int_equal(p->flags, PKT_SYN);
		assert_int_equal(p->ack, 0);
		assert_int_equal(p->optlen, 8);
		assert_memory_equal(p->opts, want, 8);
		assert_int_equal(p->window, CM_RX_MAX);
		assert_int_equal(node->syn_sent, 1);
		assert_int_equal(node->tcp_cntxt.loc_seq_num, SEQ + 1);
		assert_non_null(node->send_entry.sqbuf);
		assert_int_equal(node->send_entry.sqbuf->refcount, 1);
		fx_tap_off(&tap);
		cm_node_end(node);
		assert_int_equal(fx_bufs(&fx), 0);
		fx_down(&fx);
	}
}

/* Fault 6: scaling offered to a peer that did not ask. */
static void synack_offers_scaling_only_to_who_asked(void **state)
{
	for (int asked = 0; asked < 2; asked++) {
		const struct frame_case c = { IRDMA_GEN_1, true, PKT_VLAN_NONE };
		struct irdma_cm_node *node;
		const struct pkt *p;
		struct fx_tap tap;
		struct fx fx;

		fx_up(&fx, c.gen, 1);
		fx_silence(&fx);
		node = node_of(&fx, &c);
		node->tcp_cntxt.peer_offered_wscale = node->tcp_cntxt.wscale_ok = asked;
		fx_tap_on(&fx, 0, &tap);
		assert_int_equal(irdma_send_syn(node, 1), 0);
		p = fx_last(&tap);
		assert_int_equal(p->flags, PKT_SYN | PKT_ACK);
		assert_int_equal(p->ack, 0x01020304);
		assert_int_equal(p->optlen, asked ? 8 : 4);
		assert_int_equal(p->opts[0], 2);
		assert_int_equal(p->window, CM_RX_MAX); /* never scaled on a SYN */
		fx_tap_off(&tap);
		cm_node_end(node);
		fx_down(&fx);
	}
}

static void window_is_scaled_only_when_agreed_and_never_on_a_syn(void **state)
{
	static const struct { bool ok; u8 scale; u32 rx_len; u8 set; u16 want; } c[] = {
		{ false, 2, 0, SET_ACK, 8192 }, { true, 2, 0, SET_ACK, 2048 }, { true, 0, 0, SET_ACK, 8192 }, { true, 2, 0, SET_SYN | SET_ACK, 8192 },
		{ true, 2, 8192, SET_ACK, 0 }, { true, 2, 8189, SET_ACK, 0 }, { false, 2, 8191, SET_ACK, 1 }, { true, 2, 4096, SET_ACK, 1024 },
	};
	const struct frame_case fc = { IRDMA_GEN_1, true, PKT_VLAN_NONE };
	struct irdma_cm_node *node;
	struct fx_tap tap;
	struct fx fx;

	fx_up(&fx, fc.gen, 1);
	node = node_of(&fx, &fc);
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		struct irdma_puda_buf *buf;

		node->tcp_cntxt.wscale_ok = c[i].ok;
		node->tcp_cntxt.rcv_wscale = c[i].scale;
		node->rx_len = c[i].rx_len;
		buf = irdma_form_uda_cm_frame(node, NULL, NULL, NULL, c[i].set);
		on_the_wire(&fx, buf, &tap);
		assert_int_equal(fx_last(&tap)->window, c[i].want);
		irdma_free_sqbuf(&fx.host[0].dev->vsi, buf);
	}
	/* More than the field can say. */
	node->rx_len = 0;
	node->tcp_cntxt.rcv_wnd = 1 << 20;
	node->tcp_cntxt.wscale_ok = false;
	fx_tap_on(&fx, 0, &tap);
	irdma_send_ack(node);
	assert_int_equal(fx_last(&tap)->window, 65535);
	fx_tap_off(&tap);
	node->tcp_cntxt.rcv_wnd = CM_RX_MAX;
	cm_node_end(node);
	fx_down(&fx);
}

static void ack_is_one_frame_and_not_kept(void **state)
{
	FOR_CASES(c) {
		struct irdma_cm_node *node;
		struct fx_tap tap;
		struct fx fx;

		fx_up(&fx, c->gen, 1);
		fx_silence(&fx);
		node = node_of(&fx, c);
		fx_tap_on(&fx, 0, &tap);
		irdma_send_ack(node);
		assert_int_equal(tap.n, 1);
		assert_int_equal(fx_last(&tap)->flags, PKT_ACK);
		assert_int_equal(fx_last(&tap)->seq, SEQ);
		assert_null(node->send_entry.sqbuf);
		assert_int_equal(fx_bufs(&fx), 0);
		fx_run(&fx, 100000);
		assert_int_equal(tap.n, 1);
		fx_tap_off(&tap);
		cm_node_end(node);
		fx_down(&fx);
	}
}

static void fin_is_kept_and_sent_again(void **state)
{
	FOR_CASES(c) {
		struct irdma_cm_node *node;
		struct fx_tap tap;
		struct fx fx;

		fx_up(&fx, c->gen, 1);
		fx_silence(&fx);
		node = node_of(&fx, c);
		node->state = IRDMA_CM_STATE_LAST_ACK;
		fx_tap_on(&fx, 0, &tap);
		assert_int_equal(irdma_send_fin(node), 0);
		assert_true(node->send_entry.close_when_complete);
		assert_int_equal(node->tcp_cntxt.loc_seq_num, SEQ + 1);
		fx_run(&fx, 1500);
		assert_int_equal(tap.n, 2);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(tap.f[i].pkt.flags, PKT_FIN | PKT_ACK);
			assert_int_equal(tap.f[i].pkt.seq, SEQ);
			assert_int_equal(tap.f[i].pkt.ack, 0x01020304);
		}
		assert_int_equal(node->tcp_cntxt.loc_seq_num, SEQ + 1);
		fx_tap_off(&tap);
		cm_node_end(node);
		fx_down(&fx);
	}
}

static void reset_is_sent_once_and_ends_the_node(void **state)
{
	FOR_CASES(c) {
		struct irdma_cm_node *node;
		struct fx_tap tap;
		struct fx fx;

		fx_up(&fx, c->gen, 1);
		fx_silence(&fx);
		node = node_of(&fx, c);
		fx_tap_on(&fx, 0, &tap);
		cm_send_rst(node); /* leaves the node alone */
		assert_int_equal(node->state, IRDMA_CM_STATE_INITED);
		assert_int_equal(irdma_send_reset(node), 0);
		assert_int_equal(tap.n, 2);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(tap.f[i].pkt.flags, PKT_RST | PKT_ACK);
			assert_int_equal(tap.f[i].pkt.seq, SEQ); /* exactly the next one, RFC 5961 3 */
		}
		assert_int_equal(fx_stats(&fx, 0).nodes_now, 0);
		fx_run(&fx, 100000);
		assert_int_equal(tap.n, 2);
		fx_tap_off(&tap);
		fx_down(&fx);
	}
}

static void reset_says_why_it_could_not_be_sent(void **state)
{
	const struct frame_case c = { IRDMA_GEN_1, true, PKT_VLAN_NONE };
	struct fx fx;

	fx_up(&fx, c.gen, 1);
	port_wire_set_link(fx.host[0].dev->port, false);
	assert_int_equal(irdma_send_reset(node_of(&fx, &c)), -ENETDOWN);
	assert_int_equal(fx_stats(&fx, 0).nodes_now, 0);
	assert_int_equal(fx_bufs(&fx), 0);
	fx_down(&fx);
}

/* A frame handed out outlives the handle: sending it then fails and does not touch freed memory. */
static void kept_frame_with_a_dead_handle_is_refused(void **state)
{
	const struct frame_case c = { IRDMA_GEN_2, true, PKT_VLAN_NONE };
	struct irdma_puda_buf *buf;
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, c.gen, 1);
	node = node_of(&fx, &c);
	buf = irdma_form_ah_cm_frame(node, NULL, NULL, NULL, SET_ACK);
	irdma_cm_free_ah(node);
	assert_int_equal(rnic_ilq_send(&fx.host[0].dev->vsi, buf), -ENOTCONN);
	irdma_free_sqbuf(&fx.host[0].dev->vsi, buf);
	cm_node_end(node);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_frame_has_every_field),
		cmocka_unit_test(buffers_describe_their_frame),
		cmocka_unit_test(flags_and_what_they_consume),
		cmocka_unit_test(lengths_at_and_over_the_limit),
		cmocka_unit_test(no_handle_no_frame),
		cmocka_unit_test(empty_pool_no_frame_and_no_sequence_number),
		cmocka_unit_test(last_reference_returns_the_buffer),
		cmocka_unit_test(syn_carries_mss_and_window_scale),
		cmocka_unit_test(synack_offers_scaling_only_to_who_asked),
		cmocka_unit_test(window_is_scaled_only_when_agreed_and_never_on_a_syn),
		cmocka_unit_test(ack_is_one_frame_and_not_kept),
		cmocka_unit_test(fin_is_kept_and_sent_again),
		cmocka_unit_test(reset_is_sent_once_and_ends_the_node),
		cmocka_unit_test(reset_says_why_it_could_not_be_sent),
		cmocka_unit_test(kept_frame_with_a_dead_handle_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
