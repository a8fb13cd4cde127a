// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The connection manager's core.
 *
 * Theory of operation
 * -------------------
 * The CM sets connections up and tears down those that were never handed over; in between the NIC owns the stream.
 * It speaks TCP itself, a frame at a time, over the ILQ: the NIC's queue for every frame of a
 * connection that is not offloaded yet. One frame at most is outstanding per connection (SYN, SYN+ACK, MPA request,
 * MPA reject with FIN, FIN), so retransmission is one kept frame and one deadline per node.
 *
 *   active:  INITED SYN_SENT ONE_SIDE_ESTABLISHED MPAREQ_SENT OFFLOADED | MPAREJ_RCVD LAST_ACK
 *   passive: LISTENING SYN_RCVD ESTABLISHED MPAREQ_RCVD ACCEPTING OFFLOADED | FIN_WAIT1 ... TIME_WAIT
 *
 * Goals: constant work per connection however many there are (hash tables, a timer wheel, per-listener lists); a
 * hostile peer costs bounded memory for a bounded time; the upper layer sees each connection begin and end exactly once.
 *
 * Timeouts, each after what: retransmission (RFC 6298, per frame sent); the stage limit (CM_MPA_TIMEOUT_MS after the
 * last progress of the MPA stage: a peer that says nothing); the close timer (FIN_WAIT2, CLOSING, or a QP that should be gone).
 * A node files one wheel timer for the earliest of them; the core arms one loop timer for the wheel.
 *
 * Locks: see cm_internal.h. References: the hash table does not hold one; a node is freed with its last reference. Holders
 * are: its own life until CLOSED (one, dropped by whoever closes it), each queued event, the QP, the upper layer's pending
 * request, and whoever looked it up.
 *
 * Left out: SACK, timestamps, congestion control (nothing here is ever longer than one frame).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "cm/cm_internal.h"

#define S(x) BIT(IRDMA_CM_STATE_##x)

/* Legal steps. A row says where one may go from there. */
static const u32 node_steps[IRDMA_CM_STATES] = {
	[IRDMA_CM_STATE_UNKNOWN] = S(INITED),
	[IRDMA_CM_STATE_INITED] = S(LISTENING) | S(SYN_SENT) | S(CLOSED),
	[IRDMA_CM_STATE_LISTENING] = S(SYN_RCVD) | S(CLOSED),
	[IRDMA_CM_STATE_SYN_RCVD] = S(ESTABLISHED) | S(CLOSED),
	[IRDMA_CM_STATE_SYN_SENT] = S(ONE_SIDE_ESTABLISHED) | S(CLOSED),
	[IRDMA_CM_STATE_ONE_SIDE_ESTABLISHED] = S(MPAREQ_SENT) | S(CLOSED),
	[IRDMA_CM_STATE_ESTABLISHED] = S(MPAREQ_RCVD) | S(FIN_WAIT1) | S(CLOSE_WAIT) | S(LAST_ACK) | S(CLOSED),
	[IRDMA_CM_STATE_ACCEPTING] = S(OFFLOADED) | S(CLOSED),
	[IRDMA_CM_STATE_MPAREQ_SENT] = S(SYN_SENT) /* revision 1 */ | S(OFFLOADED) | S(MPAREJ_RCVD) | S(FIN_WAIT1) | S(LAST_ACK) | S(CLOSED),
	[IRDMA_CM_STATE_MPAREQ_RCVD] = S(ACCEPTING) | S(FIN_WAIT1) | S(LAST_ACK) | S(LISTENER_DESTROYED) | S(CLOSED),
	[IRDMA_CM_STATE_MPAREJ_RCVD] = S(FIN_WAIT1) | S(CLOSE_WAIT) | S(CLOSED),
	[IRDMA_CM_STATE_OFFLOADED] = S(CLOSED),
	[IRDMA_CM_STATE_FIN_WAIT1] = S(FIN_WAIT2) | S(CLOSING) | S(TIME_WAIT) | S(CLOSED),
	[IRDMA_CM_STATE_FIN_WAIT2] = S(TIME_WAIT) | S(CLOSED),
	[IRDMA_CM_STATE_CLOSE_WAIT] = S(LAST_ACK) | S(CLOSED),
	[IRDMA_CM_STATE_TIME_WAIT] = S(CLOSED),
	[IRDMA_CM_STATE_LAST_ACK] = S(CLOSED),
	[IRDMA_CM_STATE_CLOSING] = S(TIME_WAIT) | S(CLOSED),
	[IRDMA_CM_STATE_LISTENER_DESTROYED] = S(CLOSED),
	[IRDMA_CM_STATE_CLOSED] = 0,
};

static const char *const node_state_names[] = {
	"UNKNOWN", "INITED", "LISTENING", "SYN_RCVD", "SYN_SENT", "ONE_SIDE_ESTABLISHED", "ESTABLISHED", "ACCEPTING",
	"MPAREQ_SENT", "MPAREQ_RCVD", "MPAREJ_RCVD", "OFFLOADED", "FIN_WAIT1", "FIN_WAIT2", "CLOSE_WAIT", "TIME_WAIT",
	"LAST_ACK", "CLOSING", "LISTENER_DESTROYED", "CLOSED",
};
static_assert(ARRAY_SIZE(node_state_names) == IRDMA_CM_STATES, "a name per state");

static const char *const cause_texts[] = {
	[CM_CAUSE_NONE] = "no error",
	[CM_CAUSE_REFUSED] = "refused: nothing listens on that port (RST in answer to our SYN)",
	[CM_CAUSE_REJECTED] = "rejected: the peer's MPA reply has the R bit",
	[CM_CAUSE_NO_SYNACK] = "timed out: nobody answers our SYN",
	[CM_CAUSE_NO_MPA_REPLY] = "timed out: TCP is up, but the peer sent no MPA reply",
	[CM_CAUSE_NO_MPA_REQUEST] = "timed out: the peer opened TCP, but sent no MPA request",
	[CM_CAUSE_NOT_ACKED] = "timed out: the peer stopped acknowledging",
	[CM_CAUSE_RESET] = "the peer reset the connection while it was being set up",
	[CM_CAUSE_CLOSED] = "the peer closed the connection while it was being set up",
	[CM_CAUSE_UNREACHABLE] = "host or network unreachable",
	[CM_CAUSE_BAD_TCP] = "malformed TCP options or acknowledgement from the peer",
	[CM_CAUSE_MPA_KEY] = "the peer does not speak MPA: wrong key in its start-up frame",
	[CM_CAUSE_MPA_REVISION] = "MPA revision that we do not speak, or did not offer",
	[CM_CAUSE_MPA_LENGTH] = "MPA start-up frame with an impossible private-data length",
	[CM_CAUSE_MPA_FLAGS] = "MPA start-up frame with flags that do not fit its kind or revision",
	[CM_CAUSE_MPA_IRD] = "insufficient IRD: the peers' IRD and ORD do not fit (RFC 6581)",
	[CM_CAUSE_MPA_RTR] = "no matching RTR message kind (RFC 6581)",
	[CM_CAUSE_MPA_PARTIAL] = "the peer sent only part of an MPA reply",
	[CM_CAUSE_NO_RESOURCES] = "out of memory, buffers or address handles on this side",
	[CM_CAUSE_LOCAL] = "ended from this side",
};
static_assert(ARRAY_SIZE(cause_texts) == CM_CAUSES, "a text per cause");

const struct cm_mpa_opts cm_mpa_opts_default = {
	.rev = MPA_REV_2,
	.fallback_v1 = true,
	.p2p = true,
	.rtr = RDMAP_RTR_ALL,
	.crc = true,
	.markers = false,
};

/**
 * cm_cause_str - a cause in words
 * @c: cause
 *
 * Return: a sentence for people, never NULL.
 */
const char *cm_cause_str(enum cm_cause c)
{
	return (u32)c < CM_CAUSES ? cause_texts[c] : "unknown cause";
}

/**
 * cm_node_state_str - name of a node state
 * @s: state
 *
 * Return: the name without its prefix, never NULL.
 */
const char *cm_node_state_str(enum irdma_cm_node_state s)
{
	return (u32)s < IRDMA_CM_STATES ? node_state_names[s] : "?";
}

/*
 * The one writer of node->state: checks that the step is legal, logs it, keeps the levels that go with it.
 * Setting the present state again is no step.
 */
void cm_node_set_state(struct irdma_cm_node *node, enum irdma_cm_node_state next)
{
	struct irdma_cm_core *core = node->cm_core;
	enum irdma_cm_node_state prev = node->state;

	if (prev == next)
		return;
	assert(node_steps[prev] & BIT(next));
	node->state = next;
	log_debug("cm", "node %p %s -> %s", (void *)node, node_state_names[prev], node_state_names[next]);
	if (unlikely(core->trace.state)) {
		struct pkt_tuple t;

		cm_node_tuple(node, &t);
		core->trace.state(core->trace.ctx, node, &t, node_state_names[prev], node_state_names[next], cm_now(core));
	}
}

/* The first cause is the true one; what follows from it does not overwrite it. */
void cm_node_set_cause(struct irdma_cm_node *node, enum cm_cause cause, int error)
{
	if (node->cause != CM_CAUSE_NONE)
		return;
	node->cause = cause;
	node->error = error;
}

void cm_node_tuple(const struct irdma_cm_node *node, struct pkt_tuple *t)
{
	memset(t, 0, sizeof(*t));
	memcpy(t->loc_addr, node->loc_addr, sizeof(t->loc_addr));
	memcpy(t->rem_addr, node->rem_addr, sizeof(t->rem_addr));
	t->loc_port = node->loc_port;
	t->rem_port = node->rem_port;
	t->vlan_id = node->vlan_id;
	t->ipv4 = node->ipv4;
}

void cm_node_negotiated(const struct irdma_cm_node *node, struct cm_negotiated *out)
{
	*out = (struct cm_negotiated){
		.cause = node->cause,
		.rev = node->mpa_rev,
		.peer_rev = node->peer_rev,
		.peer_flags = node->peer_flags,
		.p2p = node->p2p,
		.rtr_offered = node->rtr_offered,
		.rtr = node->rtr,
		.crc = node->crc,
		.snd_markers = node->snd_markers,
		.rcv_markers = node->rcv_markers,
		.ird = node->ird_size,
		.ord = node->ord_size,
		.peer_ird = node->peer_ird,
		.peer_ord = node->peer_ord,
		.mss = node->tcp_cntxt.mss,
		.fell_back = node->fell_back,
		.syn_sent = node->syn_sent,
		.mpa_sent = node->mpa_sent,
	};
}

/**
 * cm_get_stats - counters of a device's CM
 * @iwdev: device
 * @out: filled in; all zero if the device has no CM
 */
void cm_get_stats(struct irdma_device *iwdev, struct cm_stats *out)
{
	struct irdma_cm_core *core = iwdev->cm_core;

	memset(out, 0, sizeof(*out));
	if (!core)
		return;
	cm_lock(core);
	*out = core->stats;
	cm_unlock(core);
}

/**
 * cm_set_trace - watch state changes
 * @iwdev: device
 * @trace: copied; NULL switches tracing off
 */
void cm_set_trace(struct irdma_device *iwdev, const struct cm_trace *trace)
{
	struct irdma_cm_core *core = iwdev->cm_core;

	cm_lock(core);
	core->trace = trace ? *trace : (struct cm_trace){ 0 };
	cm_unlock(core);
}

static const struct rnic_cm_ops cm_rnic_ops = {
	.receive = irdma_receive_ilq,
	.may_accept = cm_listener_may_accept,
	.disconnect = irdma_cm_disconn,
	.lsmm_done = irdma_free_lsmm_rsrc,
};

static int core_init_tables(struct irdma_cm_core *core)
{
	int err = hash_init(&core->nodes_ht, NULL);

	if (err)
		return err;
	err = hash_init(&core->listeners_ht, NULL);
	if (err)
		hash_destroy(&core->nodes_ht);
	return err;
}

/**
 * irdma_setup_cm_core - create the connection manager of a device
 * @iwdev: device, with its port attached
 * @rdma_ver: %IRDMA_GEN_1: the CM builds whole Ethernet frames; %IRDMA_GEN_2: it uses address handles
 *
 * The generation must be one that the device's port can carry: only frame ports take whole frames.
 *
 * Return: 0; -EINVAL for an unknown generation or one the port cannot carry; -ENOMEM.
 */
int irdma_setup_cm_core(struct irdma_device *iwdev, u8 rdma_ver)
{
	struct irdma_cm_core *core;

	if (rdma_ver != IRDMA_GEN_1 && rdma_ver != IRDMA_GEN_2)
		return -EINVAL;
	if (rdma_ver == IRDMA_GEN_1 && !(iwdev->port->ops->flags & PORT_FRAMES))
		return -EINVAL;
	core = calloc(1, sizeof(*core));
	if (!core)
		return -ENOMEM;
	if (core_init_tables(core)) {
		free(core);
		return -ENOMEM;
	}
	core->iwdev = iwdev;
	core->rdma_ver = rdma_ver;
	core->form_cm_frame = rdma_ver == IRDMA_GEN_1 ? irdma_form_uda_cm_frame : irdma_form_ah_cm_frame;
	rand_secure(core->isn_key, sizeof(core->isn_key));
	LIST_INIT(&core->listen_list);
	LIST_INIT(&core->nodes);
	TAILQ_INIT(&core->refused);
	pool_init(&core->node_pool, (sizeof(struct irdma_cm_node) + 63) / 64 * 64, 0); /* each begins a cache line */
	pool_init(&core->event_pool, sizeof(struct irdma_cm_event), 0);
	wheel_init(&core->wheel, loop_now(iwdev->loop) / NSEC_PER_MSEC);
	core->tcp_timer_at_ns = UINT64_MAX;
	timer_setup(&core->tcp_timer, iwdev->loop, irdma_cm_timer_tick);
	timer_setup(&core->filter_timer, iwdev->loop, cm_filters_retry);
	workq_init(&core->event_wq, iwdev->loop);
	iwdev->cm_core = core;
	iwdev->cm_ops = &cm_rnic_ops;
	return 0;
}

/* Nothing may be on the event queue when its memory goes: run what is there; the loop does not run any more. */
static void core_drain_events(struct irdma_cm_core *core)
{
	struct work_struct *w;

	while ((w = TAILQ_FIRST(&core->event_wq.items))) {
		workq_cancel(w);
		w->func(w);
	}
}

static void core_close_nodes(struct irdma_cm_core *core)
{
	struct irdma_cm_node *node;

	cm_lock(core);
	while ((node = LIST_FIRST(&core->nodes))) {
		cm_node_hold(node);
		irdma_cm_close(node);
		irdma_rem_ref_cm_node(node);
		cm_unlock(core);
		core_drain_events(core);
		cm_lock(core);
		if (LIST_FIRST(&core->nodes) == node)
			break; /* somebody outside still holds it: a bug that the assertion in cleanup shows */
	}
	cm_unlock(core);
}

/**
 * irdma_cleanup_cm_core - destroy a connection manager
 * @core: what irdma_setup_cm_core() made; NULL is ignored
 *
 * Listeners are destroyed, connections that are being set up are reset, offloaded ones move their QP to error. Upper
 * layer events that result are delivered from here. To be called with the loop at rest (no thread inside it)
 * after the upper layer destroyed or abandoned its cm_ids; leaves nothing behind.
 */
void irdma_cleanup_cm_core(struct irdma_cm_core *core)
{
	struct irdma_cm_listener *listener, *next;

	if (!core)
		return;
	cm_lock(core);
	core->closing = true;
	LIST_FOREACH_SAFE(listener, &core->listen_list, list, next)
		if (listener->state == IRDMA_CM_LISTENER_ACTIVE_STATE) /* passive ones go with their last connection, below */
			irdma_cm_del_listen(core, listener, true);
	cm_unlock(core);
	irdma_cm_teardown_connections(core->iwdev, NULL, NULL, true);
	core_drain_events(core);
	core_close_nodes(core);
	core_drain_events(core);
	timer_del(&core->tcp_timer);
	timer_del(&core->filter_timer);
	if (core->stats.nodes_now)
		log_error("cm", "%llu nodes left at clean-up", (unsigned long long)core->stats.nodes_now);
	assert(!core->stats.nodes_now);
	core->iwdev->cm_ops = NULL;
	core->iwdev->cm_core = NULL;
	hash_destroy(&core->nodes_ht);
	hash_destroy(&core->listeners_ht);
	pool_destroy(&core->node_pool);
	pool_destroy(&core->event_pool);
	free(core);
}
