/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * For peers that overlook the first FPDU.
 *
 * A responder may be busy with its own start when the initiator's first FPDU arrives, and not look at its socket again before more comes: Linux siw (6.1) does
 * that when the FPDU is there within about a millisecond of its reply. Both ends would wait for ever. So an initiator that has sent something, and has heard nothing at all since
 * the connection is up, sends an RDMA Write of zero bytes: it is legal, names no memory (RFC 5040 5.1), and does nothing but arrive.
 * At most NUDGES_MAX times, the first one NUDGE_NS after the offload, each later one four times as late. QPs without queues send nothing but an RTR, and
 * nudge where there is one: siw that has overlooked it and then gets our FIN stops its kernel (BUG in iwcm.c).
 *
 * The timer is the responder's for the RTR (rtr_timer), which an initiator does not need.
 */
#include "rnic/rnic_internal.h"

#define NUDGE_NS (10 * NSEC_PER_MSEC)
#define NUDGES_MAX 3u

static void arm(struct rnic_qp *q)
{
	mod_timer(&q->qp.rtr_timer, loop_now(q->qp.iwdev->loop) + (NUDGE_NS << 2 * q->nudges));
}

/* qp->lock held: the stream is ours. */
void rnic_nudge_start(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	if (qp->iw.initiator && (q->v || qp->iw.rtr))
		arm(q);
}

/* qp->lock held: the timer has run out. */
void rnic_nudge(struct irdma_qp *qp)
{
	u8 ulpdu[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE];
	struct rnic_qp *q = rnic_qp_of(qp);

	if (qp->state != RNIC_QP_RTS || !qp->stream || __atomic_load_n(&qp->rx_bytes, __ATOMIC_RELAXED) || !q->tx.taken)
		return;
	if (q->tx.source == RNIC_TX_NONE && rnic_tx_is_empty(q)) {
		log_debug(ROOM, "qp %u: no answer yet, nudging", qp->qp_num);
		rnic_tx_ulpdu(qp, ulpdu, rdmap_build_rtr(RDMAP_RTR_WRITE, ulpdu));
	}
	if (++q->nudges < NUDGES_MAX)
		arm(q);
}
