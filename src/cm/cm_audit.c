// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The books of a core, recounted from what is there: references of nodes and listeners, lists and levels, frames kept. Costs a walk over all nodes;
 * for simulations.
 */
#include <stdarg.h>
#include <stdio.h>
#include "cm/cm_internal.h"

struct audit {
	struct irdma_cm_core *core;
	char *why;
	size_t len;
	u64 nodes, half_open, frames;
	bool ok;
};

__attribute__((format(printf, 2, 3)))
static void wrong(struct audit *a, const char *fmt, ...)
{
	va_list ap;

	if (!a->ok)
		return;
	a->ok = false;
	va_start(ap, fmt);
	vsnprintf(a->why, a->len, fmt, ap);
	va_end(ap);
}

/* Events and disconnect work that wait for the loop hold a reference each. */
static u32 queued_for(const struct irdma_cm_node *node)
{
	struct work_struct *w;
	u32 n = 0;

	TAILQ_FOREACH(w, &node->cm_core->event_wq.items, entry) {
		if (w->func == irdma_cm_event_handler)
			n += container_of(w, struct irdma_cm_event, event_work)->cm_node == node;
		else if (w->func == irdma_disconnect_worker)
			n += container_of(w, struct irdma_cm_node, disconn_work.work) == node;
	}
	return n;
}

static void audit_refs(struct audit *a, const struct irdma_cm_node *node)
{
	u32 want = (node->state != IRDMA_CM_STATE_CLOSED) + node->request_up + queued_for(node);

	if (node->refcount != want)
		wrong(a, "a node in %s has %u references, not %u", cm_node_state_str(node->state), node->refcount, want);
	if (node->iwqp && node->iwqp->cm_node != node)
		wrong(a, "a node in %s has a QP that is not its own", cm_node_state_str(node->state));
}

static bool has_deadline(const struct irdma_cm_node *node)
{
	return node->send_entry.sqbuf || node->close_at_ns || node->stage_at_ns || node->ack_at_ns;
}

static void audit_state(struct audit *a, const struct irdma_cm_node *node)
{
	bool closed = node->state == IRDMA_CM_STATE_CLOSED;

	if (closed && (has_deadline(node) || node->hashed || node->listener))
		wrong(a, "a node that is CLOSED has a deadline, a place in the table, or a listener");
	if (!closed && node->state != IRDMA_CM_STATE_LISTENER_DESTROYED && !node->accelerated && !node->hashed)
		wrong(a, "a node in %s is not in the table", cm_node_state_str(node->state));
	if (node->on_half_open && node->state != IRDMA_CM_STATE_SYN_RCVD)
		wrong(a, "a node in %s counts as half open", cm_node_state_str(node->state));
	if (node->on_silent && node->state != IRDMA_CM_STATE_ESTABLISHED)
		wrong(a, "a node in %s counts as silent", cm_node_state_str(node->state));
}

static void audit_nodes(struct audit *a)
{
	const struct irdma_cm_node *node;

	LIST_FOREACH(node, &a->core->nodes, all_entry) {
		a->nodes++;
		a->half_open += node->on_half_open;
		a->frames += node->send_entry.sqbuf != NULL;
		audit_refs(a, node);
		audit_state(a, node);
	}
}

static void audit_listener(struct audit *a, const struct irdma_cm_listener *l)
{
	u32 refs = l->state == IRDMA_CM_LISTENER_ACTIVE_STATE, pending = 0;
	const struct irdma_cm_node *node;

	LIST_FOREACH(node, &a->core->nodes, all_entry)
		refs += node->listener == l;
	TAILQ_FOREACH(node, &l->nodes, listener_entry)
		pending++;
	if (l->refcnt != refs)
		wrong(a, "the listener on port %u has %u references, not %u", l->loc_port, l->refcnt, refs);
	if (l->pending != pending)
		wrong(a, "the listener on port %u counts %u connections in its backlog, not %u", l->loc_port, l->pending, pending);
}

static void audit_core(struct audit *a)
{
	const struct irdma_cm_listener *l;
	struct irdma_sc_vsi *vsi = &a->core->iwdev->vsi;

	audit_nodes(a);
	LIST_FOREACH(l, &a->core->listen_list, list)
		audit_listener(a, l);
	if (a->nodes != a->core->stats.nodes_now)
		wrong(a, "%llu nodes are there, %llu are counted", (unsigned long long)a->nodes, (unsigned long long)a->core->stats.nodes_now);
	if (a->half_open != a->core->stats.half_open_now)
		wrong(a, "%llu nodes are half open, %llu are counted", (unsigned long long)a->half_open, (unsigned long long)a->core->stats.half_open_now);
	if (a->frames != vsi->small.used + vsi->large.used)
		wrong(a, "%llu frames are kept, %zu ILQ buffers are out", (unsigned long long)a->frames, vsi->small.used + vsi->large.used);
}

/**
 * cm_audit - are references, lists, levels and kept frames what they must be?
 * @iwdev: device, whose loop's thread is the caller, with nothing of the CM under way
 * @why: what is wrong, if anything is
 * @len: bytes there
 *
 * A node has one reference for its life, one for a request that the upper layer has not answered, one for each event or work item that waits; a listener
 * one for its life, and one for each node that needs its filter; an ILQ buffer that is out is some node's, for retransmission.
 *
 * Return: true if all is well.
 */
bool cm_audit(struct irdma_device *iwdev, char *why, size_t len)
{
	struct audit a = { .core = iwdev->cm_core, .why = why, .len = len, .ok = true };

	if (!a.core)
		return true;
	cm_lock(a.core);
	audit_core(&a);
	cm_unlock(a.core);
	return a.ok;
}
