// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* connect, accept, reject, abandon, disconnect: every way to fail, in every state, and nothing is left. */
#include "cm_states.h"

static void up_at(struct env *e, size_t i)
{
	env_up(e, i & 1 ? IRDMA_GEN_1 : IRDMA_GEN_2, i & 2);
}

#define FOR_RUNS(e) for (size_t r = 0; r < 4 && (up_at(e, r), true); env_down(e), r++)

static const struct port_ops *real_ops(struct env *e)
{
	return e->fx.host[1].dev->port->ops;
}

static int connect_at(struct env *e, u16 loc_port, u16 rem_port)
{
	return ep_connect(&e->c, 0, 1, e->ipv4, loc_port, rem_port);
}

static void assert_nothing(struct env *e)
{
	struct cm_stats st = fx_stats(&e->fx, 0);

	env_loop(e);
	assert_int_equal(e->c.nevents, 0);
	assert_int_equal(e->c.refs, 0);
	assert_null(e->c.id.provider_data);
	assert_null(e->c.qp->cm_node);
	assert_null(e->c.qp->cm_id);
	assert_int_equal(e->c.qp->refcount, 1);
	assert_int_equal(st.nodes_now, 0);
	assert_int_equal(st.connects, 0);
	assert_int_equal(fx_bufs(&e->fx), 0);
	assert_int_equal(rnic_apbvt_count(e->p.dev), 0);
	assert_int_equal(e->tap.n, 0);
}

/* ---- connect ---- */

static void connect_checks_ports_and_addresses(void **state)
{
	static const struct { bool ipv4; u32 addr[4]; } remotes[] = {
		{ true, { 0 } }, { true, { 0xE0000001 } }, { true, { 0xEFFFFFFF } }, { true, { 0xFFFFFFFF } }, { true, { 0xF0000000 } },
		{ false, { 0 } }, { false, { 0xFF020000, 0, 0, 1 } }, { false, { 0xFFFFFFFF } },
	};
	struct env e;

	FOR_RUNS(&e) {
		assert_int_equal(connect_at(&e, 0, 7000), -EINVAL);
		assert_int_equal(connect_at(&e, 5000, 0), -EINVAL);
		assert_int_equal(connect_at(&e, 5000, 7000), 0); /* sets the addresses */
		cm_abandon(&e.c.id);
		env_loop(&e);
		e.tap.n = 0;
		env_core(&e)->stats.connects = 0;
		for (size_t i = 0; i < ARRAY_SIZE(remotes); i++) {
			if (remotes[i].ipv4 != e.ipv4)
				continue;
			cm_addr_to_sockaddr(e.ipv4, remotes[i].addr, 7000, &e.c.id.m_remote_addr);
			assert_int_equal(irdma_connect(&e.c.id, &e.c.param), -EINVAL);
		}
		cm_addr_to_sockaddr(e.ipv4, (u32[4]){ 0 }, 5000, &e.c.id.m_local_addr);
		cm_addr_to_sockaddr(e.ipv4, (u32[4]){ 0x0A000002 }, 7000, &e.c.id.m_remote_addr);
		assert_int_equal(irdma_connect(&e.c.id, &e.c.param), -EINVAL);
		assert_nothing(&e);
	}
}

static void connect_checks_families(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		struct sockaddr_storage good;

		assert_int_equal(connect_at(&e, 0, 7000), -EINVAL);
		good = e.c.id.m_remote_addr;
		cm_addr_to_sockaddr(!e.ipv4, (u32[4]){ 0x0A000002 }, 7000, &e.c.id.m_remote_addr);
		assert_int_equal(irdma_connect(&e.c.id, &e.c.param), -EAFNOSUPPORT);
		e.c.id.m_remote_addr.ss_family = AF_UNIX;
		assert_int_equal(irdma_connect(&e.c.id, &e.c.param), -EAFNOSUPPORT);
		e.c.id.m_remote_addr = good;
		e.c.id.m_local_addr.ss_family = AF_UNSPEC;
		assert_int_equal(irdma_connect(&e.c.id, &e.c.param), -EAFNOSUPPORT);
		assert_nothing(&e);
	}
}

static void connect_checks_the_revision(void **state)
{
	static const u8 bad[] = { 0, 3, 255 };
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		e.c.id.mpa.rev = bad[i];
		assert_int_equal(connect_at(&e, 5000, 7000), -EINVAL);
	}
	assert_nothing(&e);
	env_down(&e);
}

static void connect_checks_the_qp(void **state)
{
	struct endpoint other;
	struct irdma_qp *qp;
	struct env e;

	FOR_RUNS(&e) {
		e.c.param.qpn = 0xFFFFFF;
		assert_int_equal(connect_at(&e, 5000, 7000), -EINVAL);
		e.c.param.qpn = e.c.qp->qp_num;
		assert_nothing(&e);
		assert_int_equal(connect_at(&e, 5000, 7000), 0);
		ep_init(&other, &e.fx, 0);
		other.param.qpn = e.c.qp->qp_num; /* in use */
		assert_int_equal(ep_connect(&other, 0, 1, e.ipv4, 5001, 7000), -EINVAL);
		assert_int_equal(other.refs, 0);
		qp = other.qp;
		rnic_qp_hold(qp);
		other.param.qpn = qp->qp_num;
		qp->destroying = true; /* the moment before it leaves the table */
		assert_int_equal(ep_connect(&other, 0, 1, e.ipv4, 5001, 7000), -EINVAL);
		qp->destroying = false;
		rnic_qp_put(qp);
		ep_fini(&e.fx, &other);
		assert_int_equal(fx_stats(&e.fx, 0).connects, 1);
	}
}

static void connect_bounds_private_data(void **state)
{
	static const struct { u8 rev; u16 len; int ret; } t[] = {
		{ MPA_REV_2, 508, 0 }, { MPA_REV_2, 509, -EINVAL }, { MPA_REV_1, 512, 0 }, { MPA_REV_1, 513, -EINVAL }, { MPA_REV_2, 65535, -EINVAL },
	};
	static u8 data[65535];

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct env e;

		FOR_RUNS(&e) {
			e.c.id.mpa.rev = t[i].rev;
			e.c.param.private_data = data;
			e.c.param.private_data_len = t[i].len;
			assert_int_equal(connect_at(&e, 5000, 7000), t[i].ret);
			if (t[i].ret) {
				assert_nothing(&e);
				continue;
			}
			fx_peer_tuple(&e.p, &e.fx, e.ipv4, 5000, 7000);
			fx_peer_find(&e.p);
			fx_peer_send(&e.p, PKT_SYN | PKT_ACK, NULL, 0);
			assert_int_equal(fx_last(&e.tap)->datalen, 20 + 512);
		}
	}
}

static void connect_refuses_a_tuple_in_use(void **state)
{
	struct endpoint other;
	struct env e;

	FOR_RUNS(&e) {
		assert_int_equal(connect_at(&e, 5000, 7000), 0);
		ep_init(&other, &e.fx, 0);
		assert_int_equal(ep_connect(&other, 0, 1, e.ipv4, 5000, 7000), -EADDRINUSE);
		assert_int_equal(ep_connect(&other, 0, 1, e.ipv4, 5000, 7001), 0); /* another peer port: shared number */
		ep_fini(&e.fx, &other);
	}
}

static int fail_with;

static int bad_ah(struct port *p, const struct port_ah_attr *a, struct port_ah **out)
{
	return fail_with;
}

static int bad_filter(struct port *p, const struct port_filter_attr *a, struct port_filter **out)
{
	return fail_with;
}

static int bad_reserve(struct port *p, bool ipv4, const u32 *addr, u16 *number, bool shared)
{
	return fail_with;
}

static void connect_without_means_leaves_nothing(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		fail_with = -EACCES;
		e.ops.reserve = bad_reserve;
		assert_int_equal(connect_at(&e, 5000, 7000), -EACCES);
		assert_nothing(&e);
		e.ops.reserve = real_ops(&e)->reserve;
		fail_with = -EMFILE;
		e.ops.filter_add = bad_filter;
		assert_int_equal(connect_at(&e, 5000, 7000), -EMFILE);
		assert_nothing(&e);
		e.ops.filter_add = real_ops(&e)->filter_add;
		fail_with = -EADDRNOTAVAIL;
		e.ops.ah_create = bad_ah;
		if (e.fx.gen == IRDMA_GEN_2) {
			assert_int_equal(connect_at(&e, 5000, 7000), -EADDRNOTAVAIL);
			assert_nothing(&e);
		}
		e.ops.ah_create = real_ops(&e)->ah_create;
		env_core(&e)->node_pool.limit = 1;
		void *node = pool_get(&env_core(&e)->node_pool);

		assert_int_equal(connect_at(&e, 5000, 7000), -ENOMEM);
		assert_nothing(&e);
		pool_put(&env_core(&e)->node_pool, node);
		env_core(&e)->node_pool.limit = 0;
		assert_int_equal(connect_at(&e, 5000, 7000), 0);
	}
}

static void unreachable_peer_leaves_nothing(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		connect_at(&e, 0, 7000);
		cm_addr_to_sockaddr(e.ipv4, (u32[4]){ e.ipv4 ? 0xC0A80101 : 0x20010DB8 }, 7000, &e.c.id.m_remote_addr);
		cm_addr_to_sockaddr(e.ipv4, e.ipv4 ? (u32[4]){ 0x0A000001 } : (u32[4]){ 0xFD000000, 0, 0, 1 }, 5000, &e.c.id.m_local_addr);
		assert_int_equal(irdma_connect(&e.c.id, &e.c.param), -ENETUNREACH);
		assert_nothing(&e);
	}
}

/* ---- the SYN that cannot go out yet ---- */

static void lack_that_passes_is_waited_for(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		fail_with = -EMFILE;
		if (e.fx.gen == IRDMA_GEN_2)
			e.ops.ah_create = bad_ah;
		else
			e.p.dev->vsi.small.limit = 1;
		struct irdma_puda_buf *b = rnic_buf_get(&e.p.dev->vsi, 0);

		assert_int_equal(connect_at(&e, 5000, 7000), 0);
		assert_int_equal(e.tap.n, 0);
		assert_int_equal(ep_node(&e.c)->state, ST(SYN_SENT));
		fx_run(&e.fx, 200);
		assert_int_equal(e.tap.n, 0);
		e.ops.ah_create = real_ops(&e)->ah_create;
		rnic_buf_put(b);
		e.p.dev->vsi.small.limit = 0;
		fx_run(&e.fx, 500);
		assert_int_equal(e.tap.n, 1);
		assert_int_equal(fx_last(&e.tap)->flags, PKT_SYN);
	}
}

static void neighbour_is_waited_for(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		net_sim_neigh_delay(e.fx.host[0].net, 3);
		assert_int_equal(connect_at(&e, 5000, 7000), 0);
		assert_true(ep_node(&e.c)->neigh_pending);
		assert_int_equal(e.tap.n, 0);
		fx_run(&e.fx, 300);
		assert_int_equal(e.tap.n, 1);
		assert_false(ep_node(&e.c)->neigh_pending);
		assert_int_equal(fx_last(&e.tap)->dmac[5], 2);
	}
}

static void neighbour_that_never_answers_is_unreachable(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		net_sim_neigh_delay(e.fx.host[0].net, 1000000);
		assert_int_equal(connect_at(&e, 5000, 7000), 0);
		fx_run(&e.fx, 600000);
		assert_int_equal(e.tap.n, 0);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].status, -EHOSTUNREACH);
		assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_UNREACHABLE);
	}
}

static void route_that_goes_while_we_wait_is_told(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		struct net_addr a = { .ifindex = e.fx.host[0].iface.ifindex, .ipv4 = e.ipv4, .prefix_len = e.ipv4 ? 24 : 64 };

		net_sim_neigh_delay(e.fx.host[0].net, 1000);
		assert_int_equal(connect_at(&e, 5000, 7000), 0);
		fx_addr(e.ipv4, 0, a.addr);
		assert_int_equal(net_sim_del_addr(e.fx.host[0].net, &a), 0);
		fx_run(&e.fx, 1000);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].status, -EADDRNOTAVAIL); /* the source is not ours any more */
		assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_UNREACHABLE);
	}
}

static void handle_refused_when_the_neighbour_is_known_is_told(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	net_sim_neigh_delay(e.fx.host[0].net, 3);
	assert_int_equal(connect_at(&e, 5000, 7000), 0);
	fail_with = -EADDRNOTAVAIL;
	e.ops.ah_create = bad_ah;
	fx_run(&e.fx, 1000);
	assert_int_equal(e.c.nevents, 1);
	assert_int_equal(e.c.ev[0].status, -EADDRNOTAVAIL);
	assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_NO_RESOURCES);
	env_down(&e);
}

static void syn_stage_has_its_own_limit(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		e.c.id.mpa.syn_timeout_ms = 2500;
		assert_int_equal(connect_at(&e, 5000, 7000), 0);
		fx_run(&e.fx, 2400);
		assert_int_equal(e.c.nevents, 0);
		fx_run(&e.fx, 200);
		assert_int_equal(e.c.nevents, 1);
		assert_int_equal(e.c.ev[0].status, -ETIMEDOUT);
		assert_int_equal(e.c.ev[0].neg.cause, CM_CAUSE_NO_SYNACK);
		assert_int_equal(e.c.ev[0].neg.syn_sent, 2);
	}
}

static void tos_is_used_if_set(void **state)
{
	struct env e;

	for (int set = 0; set < 2; set++)
		FOR_RUNS(&e) {
			e.c.id.tos = 0x28;
			e.c.id.tos_set = set;
			assert_int_equal(connect_at(&e, 5000, 7000), 0);
			assert_int_equal(fx_last(&e.tap)->tos, set ? 0x28 : 0);
		}
}

/* ---- accept ---- */

static void assert_request_gone(struct env *e, u32 frames, bool rst)
{
	assert_int_equal(e->a.refs, 0);
	assert_null(e->a.id.provider_data);
	assert_int_equal(e->p.node->state, ST(CLOSED));
	assert_int_equal(e->tap.n, frames + rst);
	if (rst)
		assert_true(fx_last(&e->tap)->flags & PKT_RST);
	assert_int_equal(e->p.node->refcount, 1); /* the test's */
	assert_int_equal(irdma_accept(&e->a.id, &e->a.param), -EINVAL);
	assert_int_equal(irdma_reject(&e->a.id, NULL, 0), -EINVAL);
	env_loop(e);
}

static void accept_with_a_bad_qp_resets(void **state)
{
	struct env e;

	for (int how = 0; how < 4; how++)
		FOR_RUNS(&e) {
			u32 n;

			env_requested(&e);
			n = e.tap.n;
			switch (how) {
			case 0:
				e.a.param.qpn = 0xFFFFFF;
				break;
			case 1: /* in use */
				assert_int_equal(connect_at(&e, 5005, 7000), 0);
				n++;
				e.a.param.qpn = e.c.qp->qp_num;
				break;
			case 2:
				e.a.qp->destroying = true;
				break;
			case 3: /* not idle any more */
				rnic_qp_modify(e.a.qp, RNIC_QP_ERROR);
				break;
			}
			assert_int_equal(irdma_accept(&e.a.id, &e.a.param), -EINVAL);
			e.a.qp->destroying = false;
			assert_request_gone(&e, n, true);
			assert_int_equal(e.a.nevents, 0);
			assert_null(e.a.qp->cm_node);
			assert_int_equal(fx_stats(&e.fx, 0).accepts, 0);
			assert_int_equal(fx_stats(&e.fx, 0).passive_errs, 1);
		}
}

static void accept_bounds_private_data(void **state)
{
	static const struct { u8 rev; u16 len; int ret; } t[] = {
		{ MPA_REV_2, 508, 0 }, { MPA_REV_2, 509, -EINVAL }, { MPA_REV_1, 512, 0 }, { MPA_REV_1, 513, -EINVAL },
	};
	static u8 data[513];
	u8 buf[64];

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct env e;

		FOR_RUNS(&e) {
			env_passive(&e);
			fx_peer_send(&e.p, PKT_ACK, buf, env_mpa(buf, false, t[i].rev, 0, NULL, 0));
			env_loop(&e);
			e.a.param.private_data = data;
			e.a.param.private_data_len = t[i].len;
			u32 n = e.tap.n;

			assert_int_equal(irdma_accept(&e.a.id, &e.a.param), t[i].ret);
			if (t[i].ret)
				assert_request_gone(&e, n, true);
			else
				assert_int_equal(e.a.qp->iw.lsmm_len, 532);
		}
	}
}

static void accept_without_a_request(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	assert_int_equal(irdma_accept(&e.a.id, &e.a.param), -EINVAL);
	assert_int_equal(irdma_reject(&e.a.id, NULL, 0), -EINVAL);
	env_goto(&e, ST(SYN_SENT));
	assert_int_equal(irdma_accept(&e.c.id, &e.c.param), -EINVAL); /* an active one's */
	assert_int_equal(irdma_reject(&e.c.id, NULL, 0), -EINVAL);
	assert_int_equal(e.p.node->state, ST(SYN_SENT));
	env_down(&e);
}

static void answer_after_the_peers_reset(void **state)
{
	struct env e;

	for (int reject = 0; reject < 2; reject++)
		for (int told = 0; told < 2; told++)
			FOR_RUNS(&e) {
				env_requested(&e);
				fx_peer_send(&e.p, PKT_RST, NULL, 0);
				u32 n = e.tap.n;

				if (told) {
					env_loop(&e);
					assert_int_equal(e.a.nevents, 2);
					assert_int_equal(e.a.ev[0].status, -ECONNRESET);
				}
				assert_int_equal(reject ? irdma_reject(&e.a.id, "x", 1) : irdma_accept(&e.a.id, &e.a.param), -ECONNRESET);
				env_loop(&e);
				assert_int_equal(e.a.nevents, told ? 2 : 0); /* answered first: nothing to tell */
				assert_request_gone(&e, n, false);
			}
}

static void answer_after_the_listener_went(void **state)
{
	struct env e;

	for (int reject = 0; reject < 2; reject++)
		FOR_RUNS(&e) {
			env_goto(&e, ST(LISTENER_DESTROYED));
			u32 n = e.tap.n;

			env_loop(&e);
			assert_int_equal(e.a.nevents, 2);
			assert_int_equal(reject ? irdma_reject(&e.a.id, "x", 1) : irdma_accept(&e.a.id, &e.a.param), reject ? -ECONNRESET : -EINVAL);
			assert_request_gone(&e, n, false);
		}
}

static int dead_offload(struct port *p, struct port_ah *ah, const struct tcp_info_ho *info, const struct port_stream_up *up, void *ctx,
			struct port_stream **out)
{
	return fail_with;
}

static void accept_of_a_dead_stream(void **state)
{
	static const int errors[] = { -ECONNRESET, -ENOMEM };
	struct env e;

	for (size_t i = 0; i < ARRAY_SIZE(errors); i++)
		FOR_RUNS(&e) {
			env_requested(&e);
			fail_with = errors[i];
			e.ops.offload = dead_offload;
			u32 n = e.tap.n;

			assert_int_equal(irdma_accept(&e.a.id, &e.a.param), errors[i]);
			assert_request_gone(&e, n, true);
			assert_null(e.a.qp->cm_node);
			assert_int_equal(e.a.nevents, 0);
		}
}

/* ---- reject ---- */

static void reject_carries_its_data(void **state)
{
	static u8 big[255];
	struct env e;

	FOR_RUNS(&e) {
		env_requested(&e);
		memset(big, 'b', sizeof(big));
		assert_int_equal(irdma_reject(&e.a.id, big, 255), 0);
		const struct pkt *p = fx_last(&e.tap);

		assert_int_equal(p->flags & ~PKT_PSH, PKT_ACK | PKT_FIN);
		assert_int_equal(p->datalen, 24 + 255);
		assert_memory_equal(p->data + 24, big, 255);
		assert_true(p->data[16] & MPA_FLAG_REJECT);
		assert_int_equal(e.p.node->listener->pending, 0);
		assert_int_equal(e.a.refs, 0);
		assert_int_equal(fx_stats(&e.fx, 0).rejects, 1);
		assert_int_equal(irdma_reject(&e.a.id, NULL, 0), -EINVAL);
	}
}

static void reject_after_the_peers_fin_is_last_ack(void **state)
{
	struct env e;

	FOR_RUNS(&e) {
		env_requested(&e);
		fx_peer_send(&e.p, PKT_FIN | PKT_ACK, NULL, 0);
		assert_int_equal(irdma_reject(&e.a.id, NULL, 0), 0);
		assert_int_equal(e.p.node->state, ST(LAST_ACK));
		fx_peer_send(&e.p, PKT_ACK, NULL, 0);
		assert_int_equal(e.p.node->state, ST(CLOSED));
	}
}

static void reject_without_a_buffer_resets(void **state)
{
	static u8 big[255];
	struct irdma_puda_buf *b;
	struct env e;

	FOR_RUNS(&e) {
		env_requested(&e);
		e.p.dev->vsi.large.limit = 1;
		b = rnic_buf_get(&e.p.dev->vsi, 300);
		u32 n = e.tap.n;

		assert_int_equal(irdma_reject(&e.a.id, big, 255), -ENOMEM);
		assert_request_gone(&e, n, true);
		rnic_buf_put(b);
	}
}

static void reject_on_a_port_without_frames_leaves_the_listener(void **state)
{
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_requested(&e);
	e.ops.flags &= ~PORT_FRAMES;
	struct irdma_cm_listener *l = e.l.id.provider_data;

	assert_int_equal(l->refcnt, 2);
	assert_int_equal(irdma_reject(&e.a.id, NULL, 0), 0);
	assert_int_equal(l->refcnt, 1);
	assert_null(e.p.node->listener);
	e.ops.flags |= PORT_FRAMES;
	env_down(&e);
}

/* ---- abandon, in every state ---- */

static void abandon_in_every_state(void **state)
{
	static const struct { enum irdma_cm_node_state before; bool passive, rst; enum irdma_cm_node_state after; } t[] = {
		{ ST(SYN_SENT), false, true, ST(CLOSED) }, { ST(ONE_SIDE_ESTABLISHED), false, true, ST(CLOSED) }, { ST(MPAREQ_SENT), false, true, ST(CLOSED) },
		{ ST(MPAREJ_RCVD), false, false, ST(CLOSED) }, { ST(OFFLOADED), false, true, ST(CLOSED) },
		{ ST(MPAREQ_RCVD), true, true, ST(CLOSED) }, { ST(ACCEPTING), true, true, ST(CLOSED) }, { ST(LISTENER_DESTROYED), true, false, ST(CLOSED) },
	};
	struct env e;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		FOR_RUNS(&e) {
			struct endpoint *ep = t[i].passive ? &e.a : &e.c;
			u32 n;

			env_goto(&e, t[i].before);
			n = e.tap.n;
			cm_abandon(&ep->id);
			assert_int_equal(e.p.node->state, t[i].after);
			assert_int_equal(e.tap.n, n + t[i].rst);
			if (t[i].rst)
				assert_true(fx_last(&e.tap)->flags & PKT_RST);
			assert_int_equal(ep->refs, 0);
			assert_null(ep->id.provider_data);
			cm_abandon(&ep->id); /* again: nothing */
			env_loop(&e);
			fx_run(&e.fx, 300000);
			assert_int_equal(ep->nevents, 0);
			assert_int_equal(e.p.node->refcount, 1);
		}
}

static void abandoned_stream_is_reset(void **state)
{
	for (int passive = 0; passive < 2; passive++) {
		struct env e;

		FOR_RUNS(&e) {
			struct endpoint *ep = passive ? &e.a : &e.c;

			if (passive) {
				env_requested(&e);
				assert_int_equal(irdma_accept(&e.a.id, &e.a.param), 0);
			} else {
				env_goto(&e, ST(OFFLOADED));
			}
			env_loop(&e);
			assert_int_equal(ep->nevents, 1);
			cm_abandon(&ep->id);
			assert_int_equal(ep->refs, 0);
			assert_int_equal(ep->qp->state, RNIC_QP_ERROR);
			assert_null(ep->qp->cm_id);
			env_loop(&e);
			assert_true(fx_last(&e.tap)->flags & PKT_RST);
			assert_int_equal(ep->nevents, 1);
			assert_null(ep->qp->cm_node);
			assert_int_equal(e.p.node->state, ST(CLOSED));
		}
	}
}

/* ---- disconnect ---- */

static void disconnect_wants_a_connection(void **state)
{
	static const enum irdma_cm_node_state states[] = { ST(SYN_SENT), ST(MPAREQ_SENT), ST(MPAREJ_RCVD), ST(OFFLOADED) };

	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct env e;

		FOR_RUNS(&e) {
			assert_int_equal(cm_disconnect(&e.c.id, false), -ENOTCONN);
			env_goto(&e, states[i]); /* OFFLOADED, but not handed over yet */
			assert_int_equal(cm_disconnect(&e.c.id, false), -ENOTCONN);
			assert_int_equal(cm_disconnect(&e.c.id, true), -ENOTCONN);
			assert_int_equal(e.p.node->state, states[i]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connect_checks_ports_and_addresses),
		cmocka_unit_test(connect_checks_families),
		cmocka_unit_test(connect_checks_the_revision),
		cmocka_unit_test(connect_checks_the_qp),
		cmocka_unit_test(connect_bounds_private_data),
		cmocka_unit_test(connect_refuses_a_tuple_in_use),
		cmocka_unit_test(connect_without_means_leaves_nothing),
		cmocka_unit_test(unreachable_peer_leaves_nothing),
		cmocka_unit_test(lack_that_passes_is_waited_for),
		cmocka_unit_test(neighbour_is_waited_for),
		cmocka_unit_test(neighbour_that_never_answers_is_unreachable),
		cmocka_unit_test(route_that_goes_while_we_wait_is_told),
		cmocka_unit_test(handle_refused_when_the_neighbour_is_known_is_told),
		cmocka_unit_test(syn_stage_has_its_own_limit),
		cmocka_unit_test(tos_is_used_if_set),
		cmocka_unit_test(accept_with_a_bad_qp_resets),
		cmocka_unit_test(accept_bounds_private_data),
		cmocka_unit_test(accept_without_a_request),
		cmocka_unit_test(answer_after_the_peers_reset),
		cmocka_unit_test(answer_after_the_listener_went),
		cmocka_unit_test(accept_of_a_dead_stream),
		cmocka_unit_test(reject_carries_its_data),
		cmocka_unit_test(reject_after_the_peers_fin_is_last_ack),
		cmocka_unit_test(reject_without_a_buffer_resets),
		cmocka_unit_test(reject_on_a_port_without_frames_leaves_the_listener),
		cmocka_unit_test(abandon_in_every_state),
		cmocka_unit_test(abandoned_stream_is_reset),
		cmocka_unit_test(disconnect_wants_a_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
