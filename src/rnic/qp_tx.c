/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a QP sends. Bytes go to the stream at once if nothing is queued ahead; what it does not take
 * waits in txbuf for PORT_WRITABLE. A FIN waits behind them. A send that fails is handled by the
 * loop's thread as the reset it is. All functions are called with qp->lock held.
 */
#include <stdlib.h>
#include <string.h>
#include "rnic/rnic_internal.h"

/* Largest FPDU that this part builds: a Terminate, its pad and CRC, one marker. */
#define FPDU_MAX (MPA_LEN_SIZE + RDMAP_TERM_MAX + 3 + MPA_CRC_SIZE + MPA_MARKER_SIZE)
#define TX_MIN 512u
#define TERMINATE_MSN 1 /* queue 2 carries one message */

u32 rnic_tx_queued(const struct irdma_qp *qp)
{
	return qp->tx_len - qp->tx_off;
}

void rnic_tx_drop(struct irdma_qp *qp)
{
	free(qp->txbuf);
	qp->txbuf = NULL;
	qp->tx_off = qp->tx_len = qp->tx_size = 0;
}

static void tx_failed(struct irdma_qp *qp, int error)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	rnic_tx_drop(qp);
	q->tx_error = error;
	q->events |= PORT_RESET;
	rnic_qp_kick(qp);
}

/* The start-up reply is the first thing in the stream: the first bytes taken are its. */
static void count_sent(struct irdma_qp *qp, u32 n)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	qp->tx_bytes += n;
	if (!q->lsmm_left)
		return;
	q->lsmm_left -= min(n, q->lsmm_left);
	if (q->lsmm_left)
		return;
	qp->lsmm_sent = true;
	q->todo |= RNIC_TODO_LSMM;
}

/* Bytes taken, 0 if the stream is full, or a negative errno. */
static ssize_t tx_try(struct irdma_qp *qp, const u8 *bytes, u32 len)
{
	struct iovec iov = { .iov_base = (void *)bytes, .iov_len = len };
	ssize_t n = qp->iwdev->port->ops->stream_send(qp->stream, &iov, 1);

	if (n == -EAGAIN)
		return 0;
	if (n > 0)
		count_sent(qp, (u32)n);
	return n;
}

static int tx_append(struct irdma_qp *qp, const u8 *bytes, u32 len)
{
	u32 size = max(qp->tx_size, TX_MIN);
	u8 *buf = qp->txbuf;

	while (size - qp->tx_len < len)
		size *= 2;
	if (!buf || size != qp->tx_size) {
		buf = realloc(buf, size);
		if (!buf)
			return -ENOMEM;
		qp->txbuf = buf;
		qp->tx_size = size;
	}
	memcpy(buf + qp->tx_len, bytes, len);
	qp->tx_len += len;
	return 0;
}

void rnic_tx_bytes(struct irdma_qp *qp, const u8 *bytes, u32 len)
{
	ssize_t n = 0;
	int rc;

	if (!rnic_tx_queued(qp))
		n = tx_try(qp, bytes, len);
	if (n < 0) {
		tx_failed(qp, (int)n);
		return;
	}
	if (n == len)
		return;
	rc = tx_append(qp, bytes + n, len - (u32)n);
	if (rc)
		tx_failed(qp, rc);
}

void rnic_tx_ulpdu(struct irdma_qp *qp, const u8 *ulpdu, u32 len)
{
	u8 fpdu[FPDU_MAX];
	int n = mpa_fpdu_build(&qp->tx, ulpdu, len, fpdu, sizeof(fpdu));

	assert(n > 0);
	qp->tx_fpdus++;
	rnic_tx_bytes(qp, fpdu, (u32)n);
}

static void send_fin_if_due(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	if (!qp->tx_fin || q->fin_sent || rnic_tx_queued(qp))
		return;
	q->fin_sent = true;
	qp->iwdev->port->ops->stream_shutdown(qp->stream);
}

void rnic_tx_fin(struct irdma_qp *qp)
{
	qp->tx_fin = true;
	send_fin_if_due(qp);
}

void rnic_tx_flush(struct irdma_qp *qp)
{
	while (rnic_tx_queued(qp)) {
		ssize_t n = tx_try(qp, qp->txbuf + qp->tx_off, rnic_tx_queued(qp));

		if (n < 0) {
			tx_failed(qp, (int)n);
			return;
		}
		if (n == 0)
			return;
		qp->tx_off += (u32)n;
	}
	rnic_tx_drop(qp);
	send_fin_if_due(qp);
}

/* Say why, then close (RFC 5040 7.2); behind our own FIN nothing can be said. */
void rnic_tx_terminate(struct irdma_qp *qp, const struct rdmap_error *err, const u8 *ulpdu, u32 len)
{
	u8 term[RDMAP_TERM_MAX];

	qp->term = *err;
	log_info(ROOM, "qp %u: terminating: %s", qp->qp_num, rdmap_error_str(err));
	if (rnic_qp_of(qp)->fin_sent) {
		rnic_qp_abort(qp, RNIC_AE_QP_ERROR);
		return;
	}
	timer_del(&qp->rtr_timer);
	rnic_qp_set_state(qp, RNIC_QP_TERMINATE);
	rnic_qp_set_ae(qp, RNIC_AE_TERMINATE_SENT);
	rnic_tx_ulpdu(qp, term, rdmap_build_terminate(err, TERMINATE_MSN, ulpdu, len, term));
	rnic_tx_fin(qp);
	rnic_qp_raise(qp);
}
