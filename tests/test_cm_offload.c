// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* What the NIC is given with a connection, the reply's buffer, TIME_WAIT. */
#include "cm_states.h"

static void up_at(struct env *e, size_t i)
{
	env_up(e, i & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2, i & 2);
}

#define FOR_RUNS(e) for (size_t r = 0; r < 4 && (up_at(e, r), true); env_down(e), r++)

/* ---- irdma_init_tcp_ctx ---- */

static void tcp_state_is_copied_whole(void **state)
{
	static u8 stream[5];
	struct env e;

	FOR_RUNS(&e) {
		struct irdma_cm_tcp_context *t;
		struct tcp_info_ho info;

		env_goto(&e, ST(MPAREQ_RCVD));
		fx_peer_send(&e.p, PKT_ACK, stream, sizeof(stream));
		t = &e.p.node->tcp_cntxt;
		e.p.node->tos = 0x28;
		e.p.node->user_pri = 5;
		e.p.node->peer_fin = true;
		t->snd_wnd = 1234;
		t->max_snd_wnd = 5678;
		t->snd_wscale = 3;
		t->rcv_wscale = CM_RCV_WSCALE;
		t->wscale_ok = true;
		memset(&info, 0xAA, sizeof(info));
		irdma_init_tcp_ctx(e.p.node, &info, e.a.qp);
		assert_int_equal(info.snd_nxt, t->loc_seq_num);
		assert_int_equal(info.snd_max, t->loc_seq_num);
		assert_int_equal(info.snd_una, t->rem_ack_num);
		assert_int_equal(info.rcv_nxt, e.p.seq);
		assert_int_equal(info.rcv_wnd, CM_RX_MAX - 5);
		assert_int_equal(info.snd_wnd, 1234);
		assert_int_equal(info.max_snd_wnd, 5678);
		assert_int_equal(info.snd_wscale, 3);
		assert_int_equal(info.rcv_wscale, CM_RCV_WSCALE);
		assert_int_equal(info.mss, e.ipv4 ? CM_MSS_DEFAULT_V4 : CM_MSS_DEFAULT_V6); /* the SYN had no option */
		assert_int_equal(info.ttl, 64);
		assert_int_equal(info.tos, 0x28);
		assert_int_equal(info.prio, 5);
		assert_true(info.peer_fin);
		assert_int_equal(info.rx_len, 5);
		assert_ptr_equal(info.rx_data, e.p.node->rx_buf);
		assert_int_equal(info.tuple.loc_port, 7000);
		assert_int_equal(info.tuple.rem_port, 5000);
		assert_int_equal(info.tuple.vlan_id, PKT_VLAN_NONE);
		assert_int_equal(info.tuple.ipv4, e.ipv4);
		assert_true(pkt_addr_eq(info.tuple.loc_addr, e.p.node->loc_addr));
		assert_true(pkt_addr_eq(info.tuple.rem_addr, e.p.node->rem_addr));
		assert_memory_equal(info.rem_mac, e.fx.host[1].iface.mac, 6);
		assert_memory_equal(info.loc_mac, e.fx.host[0].iface.mac, 6);
		t->wscale_ok = false;
		e.p.node->peer_fin = false;
		irdma_init_tcp_ctx(e.p.node, &info, e.a.qp);
		assert_int_equal(info.rcv_wscale, 0);
		assert_false(info.peer_fin);
	}
}

/* ---- irdma_cm_init_tsa_conn ---- */

static void hand_over_gives_up_table_filter_and_bytes(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		struct irdma_cm_node *node;

		e.c.id.mpa.mpa_timeout_ms = 1234;
		e.c.param.ird = 9; /* the peer asks for 8 */
		e.c.param.ord = 6;
		env_goto(&e, ST(OFFLOADED));
		node = e.p.node;
		assert_true(node->hashed && node->quad);
		env_loop(&e);
		assert_true(node->accelerated);
		assert_false(node->hashed);
		assert_null(node->quad);
		assert_null(node->rx_buf);
		assert_false(node->ah.valid);
		assert_null(node->send_entry.sqbuf);
		assert_int_equal(e.c.qp->state, RNIC_QP_RTS);
		assert_true(e.c.qp->iw.initiator);
		assert_int_equal(e.c.qp->iw.ird, 9);
		assert_int_equal(e.c.qp->iw.ord, 6);
		assert_int_equal(e.c.qp->iw.rtr, RDMAP_RTR_WRITE);
		assert_int_equal(e.c.qp->iw.rtr_timeout_ms, 1234);
		assert_true(e.c.qp->iw.crc);
		assert_int_equal(e.c.qp->tx_fpdus, 1); /* the RTR */
		assert_true(fx_last(&e.tap)->datalen > 0);
	}
}

static void hand_over_to_a_qp_that_is_not_idle_fails(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(MPAREQ_RCVD));
		rnic_qp_modify(e.a.qp, RNIC_QP_ERROR);
		cm_lock(env_core(&e));
		assert_int_equal(irdma_cm_init_tsa_conn(e.a.qp, e.p.node), -EINVAL);
		cm_unlock(env_core(&e));
		assert_int_equal(e.p.node->state, ST(MPAREQ_RCVD));
		assert_false(e.p.node->accelerated);
		assert_true(e.p.node->hashed);
	}
}

static void markers_begin_where_they_were_asked_for(void **state)
{
	u8 buf[64];
	struct env e;

	for (int ours = 0; ours < 2; ours++)
		for (int theirs = 0; theirs < 2; theirs++) {
			env_up(&e, IRDMA_GEN_2, true);
			e.l.id.mpa.markers = ours;
			e.l.id.mpa.crc = false;
			env_passive(&e);
			fx_peer_send(&e.p, PKT_ACK, buf, env_mpa(buf, false, MPA_REV_1, theirs ? MPA_FLAG_MARKERS : 0, NULL, 0));
			env_loop(&e);
			assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
			assert_int_equal(e.a.qp->iw.rcv_markers, ours);
			assert_int_equal(e.a.qp->iw.snd_markers, theirs);
			assert_false(e.a.qp->iw.crc);
			assert_false(e.a.qp->iw.initiator);
			assert_int_equal(e.a.qp->iw.rtr_timeout_ms, CM_MPA_TIMEOUT_MS);
			env_down(&e);
		}
}

/* Fault 8: a peer whose request has A clear is served in the client-server model. */
static void client_server_peer_is_served(void **state)
{
	u8 buf[64];
	struct env e;

	FOR_RUNS(&e) {
		u32 len = env_mpa(buf, false, MPA_REV_2, MPA_FLAG_CRC, NULL, 0);

		buf[20] = 0, buf[22] = 0; /* A, and the RTR kinds */
		env_passive(&e);
		fx_peer_send(&e.p, PKT_ACK, buf, len);
		env_loop(&e);
		assert_int_equal(e.l.nevents, 1);
		assert_false(e.l.ev[0].neg.p2p);
		assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
		env_loop(&e);
		assert_int_equal(e.a.ev[0].event, IW_CM_EVENT_ESTABLISHED);
		assert_int_equal(e.a.qp->iw.rtr, 0);
		assert_false(fx_last(&e.tap)->data[20] & 0xC0); /* A, B of the reply */
	}
}

/* Peer-to-peer, and the RTR does not come: the responder gives up after the time of the MPA stage. */
static void rtr_that_does_not_come_is_a_time_out(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		e.l.id.mpa.mpa_timeout_ms = 3000;
		env_requested(&e);
		assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
		fx_run(&e.fx, 2900);
		assert_int_equal(e.a.nevents, 1);
		fx_run(&e.fx, 200);
		assert_int_equal(e.a.nevents, 3);
		assert_int_equal(e.a.ev[1].status, -ETIMEDOUT);
	}
}

/* ---- the reply's buffer ---- */

static void reply_is_freed_once_it_is_on_the_wire(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(MPAREQ_RCVD));
		e.a.param.private_data = "reply";
		e.a.param.private_data_len = 5;
		assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
		assert_non_null(e.p.node->lsmm);
		assert_int_equal(e.p.node->lsmm_len, 29);
		env_loop(&e);
		assert_null(e.p.node->lsmm);
		assert_int_equal(e.p.node->lsmm_len, 0);
		assert_memory_equal(fx_last(&e.tap)->data + 24, "reply", 5);
		irdma_free_lsmm_rsrc(e.a.qp); /* again: nothing */
		assert_null(e.p.node->lsmm);
	}
}

/* ---- TIME_WAIT: fault 10 ---- */

static void time_wait_is_a_small_record_for_a_minute(void **state)
{
	size_t conns, waits, conn_bytes, wait_bytes;
	struct env e;

	FOR_RUNS(&e) {
		env_goto(&e, ST(FIN_WAIT2));
		fx_peer_send(&e.p, PKT_FIN | PKT_ACK, NULL, 0);
		assert_int_equal(e.p.node->state, ST(CLOSED));
		assert_int_equal(e.p.node->refcount, 1);
		fx_peer_done(&e.p);
		e.p.node = NULL;
		assert_int_equal(fx_stats(&e.fx, 0).nodes_now, 0);
		port_wire_tsa_usage(e.p.dev->port, &conns, &waits, &conn_bytes, &wait_bytes);
		assert_int_equal(waits, 1);
		assert_in_range(wait_bytes, 1, 128);
		fx_run(&e.fx, 59000);
		port_wire_tsa_usage(e.p.dev->port, &conns, &waits, &conn_bytes, &wait_bytes);
		assert_int_equal(waits, 1);
		fx_run(&e.fx, 2000);
		port_wire_tsa_usage(e.p.dev->port, &conns, &waits, &conn_bytes, &wait_bytes);
		assert_int_equal(waits, 0);
	}
}

static void time_wait_lingers_where_no_record_can_be_had(void **state)
{
	static const enum irdma_cm_node_state from[] = { ST(FIN_WAIT2), ST(CLOSING) };

	for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
		struct env e;

		FOR_RUNS(&e) {
			env_goto(&e, from[i]);
			e.ops.time_wait = env_no_time_wait;
			fx_peer_send(&e.p, from[i] == ST(CLOSING) ? PKT_ACK : PKT_FIN | PKT_ACK, NULL, 0);
			assert_int_equal(e.p.node->state, ST(TIME_WAIT));
			fx_run(&e.fx, 59900);
			assert_int_equal(e.p.node->state, ST(TIME_WAIT));
			fx_run(&e.fx, 200);
			assert_int_equal(e.p.node->state, ST(CLOSED));
		}
	}
}

static int asked;

static int count_time_wait(struct port *p, const struct tcp_info_ho *t)
{
	asked++;
	return 0;
}

static void port_that_keeps_time_wait_itself_is_not_asked(void **state)
{
	struct env e;

	for (int keeps = 0; keeps < 2; keeps++) {
		env_up(&e, IRDMA_GEN_2, true);
		env_goto(&e, ST(FIN_WAIT2));
		asked = 0;
		e.ops.time_wait = count_time_wait;
		if (keeps)
			e.ops.flags |= PORT_TIME_WAIT;
		fx_peer_send(&e.p, PKT_FIN | PKT_ACK, NULL, 0);
		assert_int_equal(e.p.node->state, ST(CLOSED));
		assert_int_equal(asked, !keeps);
		e.ops.flags &= ~PORT_TIME_WAIT;
		env_down(&e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tcp_state_is_copied_whole),
		cmocka_unit_test(hand_over_gives_up_table_filter_and_bytes),
		cmocka_unit_test(hand_over_to_a_qp_that_is_not_idle_fails),
		cmocka_unit_test(markers_begin_where_they_were_asked_for),
		cmocka_unit_test(client_server_peer_is_served),
		cmocka_unit_test(rtr_that_does_not_come_is_a_time_out),
		cmocka_unit_test(reply_is_freed_once_it_is_on_the_wire),
		cmocka_unit_test(time_wait_is_a_small_record_for_a_minute),
		cmocka_unit_test(time_wait_lingers_where_no_record_can_be_had),
		cmocka_unit_test(port_that_keeps_time_wait_itself_is_not_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
