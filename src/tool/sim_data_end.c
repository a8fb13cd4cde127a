// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: the end of a simulated connection that moved data: what must have completed, what the NICs must have counted, and that all is given back.
 *
 * A connection that was closed has flushed its queues by then. Of one that is given up, either the id or the QP goes first.
 */
#include <stdlib.h>
#include <string.h>
#include "tool/sim_data.h"

/* A flush leaves no work request out, signaled or not. */
static void check_all_completed(struct sim_data *d)
{
	u32 left = 0;

	for (u32 i = d->done; i < d->next; i++)
		left += d->posted[i] == SIM_SIGNALED || (d->posted[i] == SIM_UNSIGNALED && d->send_failed);
	if (left)
		sim_data_violation(d, "%u work requests from %u on never completed", left, d->done);
	if (d->recvs_done != d->recvs_posted)
		sim_data_violation(d, "%u of %u receives completed", d->recvs_done, d->recvs_posted);
}

static void check_complete(struct sim_data *d)
{
	const struct sim_rec *rec = sim_rec(d->side->sim, d->side->serial);

	if (d->up && d->deal.orderly && !d->complete && sim_is_calm(d->side->sim, rec) && !rec->aborted)
		sim_data_violation(d, "closed on a clean wire before all was done: sent %u of %u, seen %u of %u", d->done, d->own->n, d->seen, d->peers->n);
}

/*
 * Where nothing is lost, the NIC that was asked for something wrong has said so, whatever was still sent to it.
 */
static void check_terminated(struct sim_data *d)
{
	struct sim_rec *rec = sim_rec(d->side->sim, d->side->serial);
	struct rnic_qp_info info;

	if (!sim_is_calm(d->side->sim, rec) || rec->aborted)
		return;
	rnic_qp_query(d->qp, &info);
	for (u32 i = 0; i < d->next; i++)
		if (d->own->msg[i].wrong && d->posted[i] != SIM_SKIPPED && !info.term_received)
			sim_data_violation(d, "message %u was wrong, and no Terminate came", i);
	if (!d->deal.wrong && (info.term_received || info.term_sent) && d->deal.orderly)
		sim_data_violation(d, "a Terminate, and nothing was wrong: %s", rdmap_error_str(&info.term));
}

/* ---- what the NICs counted ---- */

static bool same_counts(const struct rnic_qp_stats *a, const struct rnic_qp_stats *b)
{
	return a->tx_fpdus == b->rx_fpdus && a->rx_fpdus == b->tx_fpdus && !memcmp(a->tx_msgs, b->rx_msgs, sizeof(a->tx_msgs)) &&
	       !memcmp(a->rx_msgs, b->tx_msgs, sizeof(a->rx_msgs));
}

static void compare_counts(struct sim_data *d)
{
	struct sim_rec *rec = sim_rec(d->side->sim, d->side->serial);
	struct rnic_qp_info info;

	rnic_qp_query(d->qp, &info);
	if (rec->counted) {
		if (!same_counts(rec->counted, &info.stats))
			sim_data_violation(d, "the two NICs have counted other messages: FPDUs %llu/%llu sent, %llu/%llu received",
					   (unsigned long long)info.stats.tx_fpdus, (unsigned long long)rec->counted->tx_fpdus,
					   (unsigned long long)info.stats.rx_fpdus, (unsigned long long)rec->counted->rx_fpdus);
		free(rec->counted);
		rec->counted = NULL;
		return;
	}
	rec->counted = malloc(sizeof(*rec->counted));
	if (rec->counted)
		*rec->counted = info.stats;
}

/* ---- giving back ---- */

static void drain(struct sim_data *d)
{
	while (sim_data_take(d))
		;
	check_all_completed(d);
}

static void end_closed(struct sim_data *d)
{
	drain(d);
	sim_data_look_whether_complete(d);
	check_complete(d);
	check_terminated(d);
	if (d->complete && d->in_order)
		compare_counts(d);
}

static void destroy_qp(struct sim_data *d)
{
	struct ibv_wc wc;

	rnic_qp_destroy(d->qp);
	if (rnic_cq_poll(d->send_cq, 1, &wc) || rnic_cq_poll(d->recv_cq, 1, &wc))
		sim_data_violation(d, "a completion of a QP that was destroyed");
}

static void end_queues(struct sim_data *d)
{
	bool qp_first = d->own->qp_first;

	if (d->closed)
		end_closed(d);
	if (qp_first)
		destroy_qp(d);
	iwcm_destroy_id(d->side->id);
	if (qp_first)
		return;
	rnic_qp_modify(d->qp, RNIC_QP_ERROR); /* it may not have been connected, or go on closing by itself */
	drain(d);
	destroy_qp(d);
}

static void give_back(struct sim_data *d)
{
	int err = 0;

	if (d->send_cq)
		err |= rnic_cq_destroy(d->send_cq);
	if (d->recv_cq && d->recv_cq != d->send_cq)
		err |= rnic_cq_destroy(d->recv_cq);
	if (d->window.mw)
		err |= rnic_mw_destroy(d->window.mw);
	if (d->region.mr)
		err |= rnic_mr_destroy(d->region.mr);
	if (err)
		sim_data_violation(d, "not all can be destroyed in the end");
}

void sim_data_close(struct sim_data *d)
{
	d->over = true;
	if (d->qp)
		end_queues(d);
	else
		iwcm_destroy_id(d->side->id);
	timer_del(&d->poll);
	give_back(d);
	if (d->memory)
		sim_check_memory(d);
	free(d->memory);
	free(d);
}
