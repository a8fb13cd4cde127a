// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The core: made and destroyed, states, causes, counters. The file under test is compiled in here, with memory that fails when told to; the
 * linker then takes these functions and not the archive's.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cm_fixture.h"

static int fail_at; /* this allocation from now on fails, 0: none */

static bool fails(void)
{
	return fail_at && !--fail_at;
}

static void *mem_get(size_t n, size_t size) { return fails() ? NULL : calloc(n, size); }
static int table_init(struct hash_table *t, const u8 *key) { return fails() ? -ENOMEM : hash_init(t, key); }

#define calloc mem_get
#define hash_init table_init
#include "cm/cm_core.c"
#undef calloc
#undef hash_init

static struct cm_stats stats_of(struct irdma_device *dev)
{
	struct cm_stats st;

	memset(&st, 0xFF, sizeof(st));
	cm_get_stats(dev, &st);
	return st;
}

/* ---- create, destroy ---- */

static void generation_picks_the_frames(void **state)
{
	for (u8 gen = IRDMA_GEN_1; gen <= IRDMA_GEN_2; gen++) {
		struct irdma_cm_core *core;
		struct fx fx;

		fx_up(&fx, gen, 1);
		core = fx.host[0].dev->cm_core;
		assert_int_equal(core->rdma_ver, gen);
		assert_ptr_equal(core->form_cm_frame, gen == IRDMA_GEN_1 ? irdma_form_uda_cm_frame : irdma_form_ah_cm_frame);
		assert_ptr_equal(core->iwdev, fx.host[0].dev);
		assert_ptr_equal(fx.host[0].dev->cm_ops->receive, irdma_receive_ilq);
		assert_ptr_equal(fx.host[0].dev->cm_ops->may_accept, cm_listener_may_accept);
		assert_ptr_equal(fx.host[0].dev->cm_ops->disconnect, irdma_cm_disconn);
		assert_ptr_equal(fx.host[0].dev->cm_ops->lsmm_done, irdma_free_lsmm_rsrc);
		assert_int_equal(core->tcp_timer_at_ns, UINT64_MAX);
		fx_down(&fx);
	}
}

static void unknown_generations_are_refused(void **state)
{
	static const u8 gens[] = { 0, 3, 255 };
	struct irdma_device *dev;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_2, 1);
	dev = fx.host[0].dev;
	irdma_cleanup_cm_core(dev->cm_core);
	assert_null(dev->cm_core);
	for (size_t i = 0; i < ARRAY_SIZE(gens); i++) {
		assert_int_equal(irdma_setup_cm_core(dev, gens[i]), -EINVAL);
		assert_null(dev->cm_core);
		assert_null(dev->cm_ops);
	}
	assert_int_equal(irdma_setup_cm_core(dev, IRDMA_GEN_1), 0); /* again, after a clean-up */
	fx_down(&fx);
}

static void whole_frames_need_a_port_that_takes_them(void **state)
{
	const struct port_ops *old;
	struct irdma_device *dev;
	struct port_ops ops;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_2, 1);
	dev = fx.host[0].dev;
	irdma_cleanup_cm_core(dev->cm_core);
	old = dev->port->ops;
	ops = *old;
	ops.flags &= ~PORT_FRAMES;
	dev->port->ops = &ops;
	assert_int_equal(irdma_setup_cm_core(dev, IRDMA_GEN_1), -EINVAL);
	assert_null(dev->cm_core);
	assert_int_equal(irdma_setup_cm_core(dev, IRDMA_GEN_2), 0);
	dev->port->ops = old;
	fx_down(&fx);
}

static void setup_without_memory_leaves_nothing(void **state)
{
	struct irdma_device *dev;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_2, 1);
	dev = fx.host[0].dev;
	irdma_cleanup_cm_core(dev->cm_core);
	for (int i = 1; i <= 3; i++) { /* the core, the node table, the listener table */
		fail_at = i;
		assert_int_equal(irdma_setup_cm_core(dev, IRDMA_GEN_2), -ENOMEM);
		assert_int_equal(fail_at, 0);
		assert_null(dev->cm_core);
		assert_null(dev->cm_ops);
	}
	assert_int_equal(irdma_setup_cm_core(dev, IRDMA_GEN_2), 0);
	fx_down(&fx);
}

static void each_core_has_a_secret_of_its_own(void **state)
{
	static const u8 zero[16];
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_2, 1);
	assert_memory_not_equal(fx.host[0].dev->cm_core->isn_key, zero, 16);
	assert_memory_not_equal(fx.host[0].dev->cm_core->isn_key, fx.host[1].dev->cm_core->isn_key, 16);
	fx_down(&fx);
}

static void cleanup_of_nothing_is_nothing(void **state)
{
	irdma_cleanup_cm_core(NULL);
}

/* Listeners, connections in every stage of set-up on both sides, an established one: all go, those who wait are told. */
static void cleanup_leaves_nothing(void **state)
{
	for (u8 gen = IRDMA_GEN_1; gen <= IRDMA_GEN_2; gen++) {
		struct endpoint l, wild, a, b, c[4], syn;
		struct irdma_device *dev;
		struct fx_peer half, estab;
		u32 any[4] = { 0 };
		struct fx fx;

		fx_up(&fx, gen, 1);
		dev = fx.host[0].dev;
		ep_init(&l, &fx, 0);
		ep_init(&wild, &fx, 0);
		ep_init(&a, &fx, 0);
		ep_init(&b, &fx, 0);
		ep_init(&syn, &fx, 0);
		ep_listen(&fx, &l, 0, true, 7000);
		ep_listen_at(&wild, true, any, 7001);
		for (int i = 0; i < 4; i++)
			ep_init(&c[i], &fx, i == 3 ? 0 : 1);
		l.child = &a; /* established */
		l.accept_inside = true;
		l.param.ird = l.param.ord = 1;
		assert_int_equal(ep_connect(&c[0], 1, 0, true, 5000, 7000), 0);
		fx_run(&fx, 10);
		assert_int_equal(a.nevents, 1);
		l.accept_inside = false; /* a request that waits for its answer */
		l.child = &b;
		assert_int_equal(ep_connect(&c[1], 1, 0, true, 5001, 7000), 0);
		fx_run(&fx, 10);
		wild.child = NULL; /* one that is rejected: FIN_WAIT1 */
		assert_int_equal(ep_connect(&c[2], 1, 0, true, 5002, 7001), 0);
		fx_run(&fx, 0);
		fx_silence(&fx);
		assert_int_equal(ep_connect(&syn, 0, 1, true, 5003, 9000), 0); /* SYN_SENT */
		fx_peer_syn(&half, &fx, true, 6000);
		fx_peer_done(&half);
		fx_peer_passive(&estab, &fx, true, 6001);
		fx_peer_done(&estab);
		fx_peer_active(&estab, &fx, &c[3], true, 5004); /* MPAREQ_SENT */
		fx_peer_done(&estab);
		assert_true(stats_of(dev).nodes_now >= 6);
		cm_abandon(&b.id); /* the upper layer's own reference */
		irdma_cleanup_cm_core(dev->cm_core);
		assert_null(dev->cm_core);
		assert_null(dev->cm_ops);
		assert_int_equal(rnic_apbvt_count(dev), 0);
		assert_int_equal(fx_bufs(&fx), 0);
		assert_int_equal(syn.nevents, 1); /* told from inside the clean-up */
		assert_int_equal(syn.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
		assert_true(syn.ev[0].status < 0);
		assert_int_equal(syn.ev[0].neg.cause, CM_CAUSE_LOCAL);
		assert_int_equal(c[3].nevents, 1);
		assert_int_equal(a.ev[a.nevents - 1].event, IW_CM_EVENT_CLOSE);
		assert_int_equal(b.nevents, 0);
		assert_int_equal(l.refs + wild.refs + a.refs + syn.refs + c[3].refs, 0);
		assert_int_equal(irdma_setup_cm_core(dev, gen), 0);
		l.id.provider_data = wild.id.provider_data = NULL;
		ep_fini(&fx, &l);
		ep_fini(&fx, &wild);
		ep_fini(&fx, &a);
		ep_fini(&fx, &b);
		ep_fini(&fx, &syn);
		for (int i = 0; i < 4; i++)
			ep_fini(&fx, &c[i]);
		fx_down(&fx);
	}
}

/* Its listener was destroyed before; what is left of it is a connection whose FIN nobody answers. */
static void cleanup_with_a_listener_that_only_closes(void **state)
{
	static const char request[] = "MPA ID Req Frame\0\1\0";
	struct irdma_cm_core *core;
	struct endpoint l;
	struct fx_peer p;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	core = fx.host[0].dev->cm_core;
	ep_init(&l, &fx, 0);
	ep_listen(&fx, &l, 0, true, 7000);
	fx_peer_passive(&p, &fx, true, 5000);
	fx_peer_send(&p, PKT_ACK, request, 20);
	fx_run(&fx, 0); /* refused: nobody takes it */
	assert_int_equal(p.node->state, IRDMA_CM_STATE_FIN_WAIT1);
	fx_peer_done(&p);
	assert_int_equal(irdma_destroy_listen(&l.id), 0);
	assert_int_equal(LIST_FIRST(&core->listen_list)->state, IRDMA_CM_LISTENER_PASSIVE_STATE);
	assert_int_equal(core->stats.nodes_now, 1);
	assert_int_equal(core->stats.listeners_now, 0);
	assert_int_equal(l.refs, 0);
	ep_fini(&fx, &l);
	fx_down(&fx);
}

static struct endpoint second;

/* An upper layer that tries another connection from inside the upcall that told it of the failure. */
static int connect_another(struct iw_cm_id *id, struct iw_cm_event *e)
{
	assert_int_equal(e->event, IW_CM_EVENT_CONNECT_REPLY);
	assert_int_equal(ep_connect(&second, 0, 1, true, 6001, 7000), 0);
	return 0;
}

static void cleanup_ends_what_begins_in_it(void **state)
{
	struct endpoint first;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_2, 1);
	fx_silence(&fx);
	ep_init(&first, &fx, 0);
	ep_init(&second, &fx, 0);
	first.id.event_handler = connect_another;
	assert_int_equal(ep_connect(&first, 0, 1, true, 5000, 7000), 0);
	irdma_cleanup_cm_core(fx.host[0].dev->cm_core);
	assert_null(fx.host[0].dev->cm_core);
	assert_int_equal(first.refs, 0);
	assert_int_equal(second.refs, 0);
	assert_null(second.id.provider_data);
	assert_null(second.qp->cm_node);
	assert_int_equal(rnic_apbvt_count(fx.host[0].dev), 0);
	assert_int_equal(irdma_setup_cm_core(fx.host[0].dev, IRDMA_GEN_2), 0);
	ep_fini(&fx, &first);
	ep_fini(&fx, &second);
	fx_down(&fx);
}

/* A node in any state at all ends with the core. */
static void cleanup_closes_nodes_of_every_state(void **state)
{
	for (u32 s = IRDMA_CM_STATE_INITED; s < IRDMA_CM_STATE_CLOSED; s++)
		for (int active = 0; active < 2; active++) {
			struct irdma_cm_node *node;
			struct irdma_device *dev;
			struct fx fx;

			if (s == IRDMA_CM_STATE_LISTENER_DESTROYED)
				continue; /* is the upper layer's to answer */
			fx_up(&fx, IRDMA_GEN_1, 1);
			fx_silence(&fx);
			dev = fx.host[0].dev;
			node = fx_node(&fx, NULL, true, 1, 2);
			node->active = active;
			node->state = s;
			cm_node_stage(node, 1000);
			irdma_cleanup_cm_core(dev->cm_core);
			assert_null(dev->cm_core);
			assert_int_equal(irdma_setup_cm_core(dev, IRDMA_GEN_1), 0);
			fx_down(&fx);
		}
}

static bool dies(void (*f)(struct fx *fx), struct fx *fx)
{
	const struct rlimit none = { 0, 0 };
	int status;
	pid_t pid = fork();

	if (!pid) {
		setrlimit(RLIMIT_CORE, &none);
		close(2);
		signal(SIGABRT, SIG_DFL);
		f(fx);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void leak_a_node(struct fx *fx)
{
	cm_node_hold(fx_node(fx, NULL, true, 1, 2));
	irdma_cleanup_cm_core(fx->host[0].dev->cm_core);
}

static void leaked_node_is_not_overlooked(void **state)
{
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	assert_true(dies(leak_a_node, &fx));
	fx_down(&fx);
}

/* ---- states ---- */

static const struct { enum irdma_cm_node_state from, to; } path[] = {
	/* the life of a connection as the specification tells it, both sides and their ends */
	{ IRDMA_CM_STATE_UNKNOWN, IRDMA_CM_STATE_INITED },
	{ IRDMA_CM_STATE_INITED, IRDMA_CM_STATE_SYN_SENT }, { IRDMA_CM_STATE_SYN_SENT, IRDMA_CM_STATE_ONE_SIDE_ESTABLISHED },
	{ IRDMA_CM_STATE_ONE_SIDE_ESTABLISHED, IRDMA_CM_STATE_MPAREQ_SENT }, { IRDMA_CM_STATE_MPAREQ_SENT, IRDMA_CM_STATE_OFFLOADED },
	{ IRDMA_CM_STATE_MPAREQ_SENT, IRDMA_CM_STATE_MPAREJ_RCVD }, { IRDMA_CM_STATE_INITED, IRDMA_CM_STATE_LISTENING },
	{ IRDMA_CM_STATE_LISTENING, IRDMA_CM_STATE_SYN_RCVD }, { IRDMA_CM_STATE_SYN_RCVD, IRDMA_CM_STATE_ESTABLISHED },
	{ IRDMA_CM_STATE_ESTABLISHED, IRDMA_CM_STATE_MPAREQ_RCVD }, { IRDMA_CM_STATE_MPAREQ_RCVD, IRDMA_CM_STATE_ACCEPTING },
	{ IRDMA_CM_STATE_ACCEPTING, IRDMA_CM_STATE_OFFLOADED }, { IRDMA_CM_STATE_MPAREQ_RCVD, IRDMA_CM_STATE_FIN_WAIT1 },
	{ IRDMA_CM_STATE_FIN_WAIT1, IRDMA_CM_STATE_FIN_WAIT2 }, { IRDMA_CM_STATE_FIN_WAIT2, IRDMA_CM_STATE_TIME_WAIT },
	{ IRDMA_CM_STATE_FIN_WAIT1, IRDMA_CM_STATE_CLOSING }, { IRDMA_CM_STATE_CLOSING, IRDMA_CM_STATE_TIME_WAIT },
	{ IRDMA_CM_STATE_CLOSE_WAIT, IRDMA_CM_STATE_LAST_ACK }, { IRDMA_CM_STATE_MPAREQ_RCVD, IRDMA_CM_STATE_LISTENER_DESTROYED },
};

static void steps_of_the_specification_are_legal(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(path); i++)
		assert_true(node_steps[path[i].from] & BIT(path[i].to));
	for (u32 s = IRDMA_CM_STATE_INITED; s < IRDMA_CM_STATE_CLOSED; s++)
		assert_true(node_steps[s] & BIT(IRDMA_CM_STATE_CLOSED)); /* any state may end */
	assert_int_equal(node_steps[IRDMA_CM_STATE_CLOSED], 0);
	for (u32 s = 0; s < IRDMA_CM_STATES; s++)
		assert_false(node_steps[s] & BIT(s));
}

static struct trace_log {
	int n;
	const char *from, *to;
	const struct irdma_cm_node *node;
	struct pkt_tuple t;
	u64 now_ns;
} seen;

static void log_state(void *ctx, const struct irdma_cm_node *node, const struct pkt_tuple *t, const char *from, const char *to, u64 now_ns)
{
	struct trace_log *l = ctx;

	*l = (struct trace_log){ l->n + 1, from, to, node, *t, now_ns };
}

static void every_step_is_traced_and_no_step_is_not(void **state)
{
	const struct cm_trace trace = { log_state, &seen };
	struct irdma_cm_node *node;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	seen.n = 0;
	cm_set_trace(fx.host[0].dev, &trace);
	node = fx_node(&fx, NULL, true, 11, 22);
	assert_int_equal(seen.n, 1);
	assert_string_equal(seen.from, "UNKNOWN");
	assert_string_equal(seen.to, "INITED");
	assert_ptr_equal(seen.node, node);
	assert_int_equal(seen.t.loc_port, 11);
	assert_int_equal(seen.t.rem_port, 22);
	assert_true(seen.t.ipv4);
	assert_int_equal(seen.t.vlan_id, PKT_VLAN_NONE);
	assert_int_equal(seen.t.loc_addr[0], 0x0A000001);
	assert_int_equal(seen.t.rem_addr[0], 0x0A000002);
	assert_int_equal(seen.now_ns, loop_now(&fx.loop));
	cm_node_set_state(node, IRDMA_CM_STATE_INITED);
	assert_int_equal(seen.n, 1);
	cm_node_set_state(node, IRDMA_CM_STATE_SYN_SENT);
	assert_int_equal(seen.n, 2);
	cm_set_trace(fx.host[0].dev, NULL);
	cm_node_end(node);
	assert_int_equal(seen.n, 2);
	fx_down(&fx);
}

static void catch_line(void *arg, enum log_level level, const char *room, const char *text)
{
	if (level == LOG_LEVEL_DEBUG && !strcmp(room, "cm") && strstr(text, "->"))
		snprintf(arg, 128, "%s", text);
}

static void every_step_is_logged_by_its_names(void **state)
{
	enum log_level before = log_threshold;
	struct irdma_cm_node *node;
	char line[128] = "";
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	node = fx_node(&fx, NULL, true, 11, 22);
	log_set_sink(catch_line, line);
	log_threshold = LOG_LEVEL_DEBUG;
	cm_node_set_state(node, IRDMA_CM_STATE_SYN_SENT);
	log_threshold = before;
	log_set_sink(NULL, NULL);
	assert_non_null(strstr(line, "INITED -> SYN_SENT"));
	cm_node_end(node);
	fx_down(&fx);
}

static void skip_a_state(struct fx *fx)
{
	cm_node_set_state(fx_node(fx, NULL, true, 1, 2), IRDMA_CM_STATE_OFFLOADED);
}

static void come_back(struct fx *fx)
{
	struct irdma_cm_node *node = fx_node(fx, NULL, true, 1, 2);

	cm_node_hold(node);
	cm_node_end(node);
	cm_node_set_state(node, IRDMA_CM_STATE_SYN_SENT);
}

static void illegal_steps_do_not_go_unnoticed(void **state)
{
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	assert_true(dies(skip_a_state, &fx));
	assert_true(dies(come_back, &fx));
	fx_down(&fx);
}

static void names_and_causes_for_all_values(void **state)
{
	for (int s = 0; s < IRDMA_CM_STATES; s++)
		for (int t = 0; t < s; t++)
			assert_string_not_equal(cm_node_state_str(s), cm_node_state_str(t));
	assert_string_equal(cm_node_state_str(IRDMA_CM_STATE_MPAREQ_SENT), "MPAREQ_SENT");
	assert_string_equal(cm_node_state_str(IRDMA_CM_STATE_CLOSED), "CLOSED");
	assert_string_equal(cm_node_state_str(IRDMA_CM_STATES), "?");
	assert_string_equal(cm_node_state_str((enum irdma_cm_node_state)-1), "?");
	for (int c = 0; c < CM_CAUSES; c++) {
		assert_non_null(cm_cause_str(c));
		for (int d = 0; d < c; d++)
			assert_string_not_equal(cm_cause_str(c), cm_cause_str(d));
	}
	assert_non_null(strstr(cm_cause_str(CM_CAUSE_MPA_IRD), "IRD"));
	assert_string_equal(cm_cause_str(CM_CAUSES), "unknown cause");
	assert_string_equal(cm_cause_str((enum cm_cause)-1), "unknown cause");
}

static void first_cause_wins(void **state)
{
	struct irdma_cm_node node = { .refcount = 1 };

	cm_node_set_cause(&node, CM_CAUSE_NONE, 0);
	cm_node_set_cause(&node, CM_CAUSE_MPA_KEY, -EPROTO);
	cm_node_set_cause(&node, CM_CAUSE_RESET, -ECONNRESET);
	assert_int_equal(node.cause, CM_CAUSE_MPA_KEY);
	assert_int_equal(node.error, -EPROTO);
}

static void tuple_is_clean_for_hashing(void **state)
{
	struct irdma_cm_node node = { .ipv4 = true, .vlan_id = 5, .loc_port = 1, .rem_port = 2, .loc_addr = { 3 }, .rem_addr = { 4 } };
	struct pkt_tuple t, want;

	memset(&want, 0, sizeof(want));
	want.ipv4 = true;
	want.vlan_id = 5;
	want.loc_port = 1;
	want.rem_port = 2;
	want.loc_addr[0] = 3;
	want.rem_addr[0] = 4;
	memset(&t, 0xFF, sizeof(t));
	cm_node_tuple(&node, &t);
	assert_memory_equal(&t, &want, sizeof(t));
}

static void what_was_negotiated_is_told_in_full(void **state)
{
	struct irdma_cm_node node = {
		.cause = CM_CAUSE_CLOSED, .mpa_rev = 1, .peer_rev = 2, .peer_flags = 3, .p2p = true, .rtr_offered = 7, .rtr = 4, .crc = true,
		.snd_markers = true, .rcv_markers = true, .ird_size = 5, .ord_size = 6, .peer_ird = 7, .peer_ord = 8, .fell_back = true,
		.syn_sent = 9, .mpa_sent = 10, .tcp_cntxt = { .mss = 1234 },
	};
	struct cm_negotiated n;

	memset(&n, 0xFF, sizeof(n));
	cm_node_negotiated(&node, &n);
	assert_int_equal(n.cause, CM_CAUSE_CLOSED);
	assert_int_equal(n.rev, 1);
	assert_int_equal(n.peer_rev, 2);
	assert_int_equal(n.peer_flags, 3);
	assert_true(n.p2p && n.crc && n.snd_markers && n.rcv_markers && n.fell_back);
	assert_int_equal(n.rtr_offered, 7);
	assert_int_equal(n.rtr, 4);
	assert_int_equal(n.ird, 5);
	assert_int_equal(n.ord, 6);
	assert_int_equal(n.peer_ird, 7);
	assert_int_equal(n.peer_ord, 8);
	assert_int_equal(n.mss, 1234);
	assert_int_equal(n.syn_sent, 9);
	assert_int_equal(n.mpa_sent, 10);
}

/* ---- counters ---- */

static void counters_of_a_connection(void **state)
{
	struct endpoint l, a, c;
	struct cm_stats st;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_2, 1);
	ep_init(&l, &fx, 1);
	ep_init(&a, &fx, 1);
	ep_init(&c, &fx, 0);
	l.child = &a;
	l.accept_inside = true;
	ep_listen(&fx, &l, 1, true, 7000);
	assert_int_equal(ep_connect(&c, 0, 1, true, 5000, 7000), 0);
	fx_run(&fx, 100);
	st = stats_of(fx.host[0].dev);
	assert_int_equal(st.connects, 1);
	assert_int_equal(st.established_active, 1);
	assert_int_equal(st.nodes_now, 1);
	assert_int_equal(st.connect_errs + st.passive_errs + st.retransmits + st.loopbacks, 0);
	st = stats_of(fx.host[1].dev);
	assert_int_equal(st.listens_created, 1);
	assert_int_equal(st.listeners_now, 1);
	assert_int_equal(st.accepts, 1);
	assert_int_equal(st.established_passive, 1);
	assert_int_equal(st.half_open_now, 0);
	ep_fini(&fx, &c);
	fx_run(&fx, 100);
	ep_fini(&fx, &a);
	irdma_destroy_listen(&l.id);
	ep_fini(&fx, &l);
	st = stats_of(fx.host[1].dev);
	assert_int_equal(st.nodes_created, st.nodes_destroyed);
	assert_int_equal(st.listens_created, st.listens_destroyed);
	assert_int_equal(st.listeners_now, 0);
	fx_down(&fx);
}

static void counters_without_a_cm_are_zero(void **state)
{
	struct irdma_device dev = { .cm_core = NULL };
	struct cm_stats zero, st = stats_of(&dev);

	memset(&zero, 0, sizeof(zero));
	assert_memory_equal(&st, &zero, sizeof(st));
}

static void defaults_are_revision_2_peer_to_peer_with_crc(void **state)
{
	assert_int_equal(cm_mpa_opts_default.rev, 2);
	assert_true(cm_mpa_opts_default.fallback_v1);
	assert_true(cm_mpa_opts_default.p2p);
	assert_int_equal(cm_mpa_opts_default.rtr, RDMAP_RTR_ALL);
	assert_true(cm_mpa_opts_default.crc);
	assert_false(cm_mpa_opts_default.markers);
	assert_int_equal(cm_mpa_opts_default.mpa_timeout_ms + cm_mpa_opts_default.syn_timeout_ms, 0);
}

/* Fault 5: a refused port is tried a second time with revision 1; only a peer that closes after a revision 2 request may be. */
static void refused_port_is_not_tried_again(void **state)
{
	struct endpoint c;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	ep_init(&c, &fx, 0);
	assert_int_equal(ep_connect(&c, 0, 1, true, 5000, 7000), 0);
	fx_run(&fx, 100000);
	assert_int_equal(c.nevents, 1);
	assert_int_equal(c.ev[0].status, -ECONNREFUSED);
	assert_int_equal(c.ev[0].neg.syn_sent, 1);
	assert_false(c.ev[0].neg.fell_back);
	assert_int_equal(fx_stats(&fx, 0).mpa_fallbacks, 0);
	ep_fini(&fx, &c);
	fx_down(&fx);
}

/* Fault 4: any RST, in or out of the window, kills a connection that is being set up. */
static void only_the_exact_reset_counts(void **state)
{
	static const s32 off[] = { -1, 1, 100, 8191, 8192, -100000, 1 << 30 };
	struct endpoint l;
	struct fx_peer p;
	struct fx fx;

	fx_up(&fx, IRDMA_GEN_1, 1);
	fx_silence(&fx);
	ep_init(&l, &fx, 0);
	ep_listen(&fx, &l, 0, true, 7000);
	fx_peer_passive(&p, &fx, true, 5000);
	for (size_t i = 0; i < ARRAY_SIZE(off); i++) {
		struct fx_seg rst = { .flags = PKT_RST, .seq = p.seq + (u32)off[i] };

		fx_feed(p.dev, &p.t, &rst);
		assert_int_equal(p.node->state, IRDMA_CM_STATE_ESTABLISHED);
	}
	fx_peer_send(&p, PKT_RST, NULL, 0);
	assert_int_equal(p.node->state, IRDMA_CM_STATE_CLOSED);
	fx_peer_done(&p);
	irdma_destroy_listen(&l.id);
	ep_fini(&fx, &l);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(generation_picks_the_frames),
		cmocka_unit_test(unknown_generations_are_refused),
		cmocka_unit_test(whole_frames_need_a_port_that_takes_them),
		cmocka_unit_test(setup_without_memory_leaves_nothing),
		cmocka_unit_test(each_core_has_a_secret_of_its_own),
		cmocka_unit_test(cleanup_of_nothing_is_nothing),
		cmocka_unit_test(cleanup_leaves_nothing),
		cmocka_unit_test(cleanup_with_a_listener_that_only_closes),
		cmocka_unit_test(cleanup_ends_what_begins_in_it),
		cmocka_unit_test(cleanup_closes_nodes_of_every_state),
		cmocka_unit_test(leaked_node_is_not_overlooked),
		cmocka_unit_test(steps_of_the_specification_are_legal),
		cmocka_unit_test(every_step_is_traced_and_no_step_is_not),
		cmocka_unit_test(every_step_is_logged_by_its_names),
		cmocka_unit_test(illegal_steps_do_not_go_unnoticed),
		cmocka_unit_test(names_and_causes_for_all_values),
		cmocka_unit_test(first_cause_wins),
		cmocka_unit_test(tuple_is_clean_for_hashing),
		cmocka_unit_test(what_was_negotiated_is_told_in_full),
		cmocka_unit_test(counters_of_a_connection),
		cmocka_unit_test(counters_without_a_cm_are_zero),
		cmocka_unit_test(defaults_are_revision_2_peer_to_peer_with_crc),
		cmocka_unit_test(refused_port_is_not_tried_again),
		cmocka_unit_test(only_the_exact_reset_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
