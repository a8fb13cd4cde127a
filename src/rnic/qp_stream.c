/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The stream of a QP: events of the port, its end, and what the CM is told of it.
 *
 * Reading is bounded per event, so that one peer cannot keep the loop: the events are kept and a work item
 * continues. Events come in the order data, FIN, reset or close; whatever the port reports together is
 * handled in that order, so a Terminate that stands in front of a reset is still read.
 *
 * Timeouts: the RTR's (RFC 6581 gives none; the CM chooses). After a Terminate the CM releases the stream at once and the
 * port ends it.
 */
#include "rnic/rnic_internal.h"

#define RX_CHUNK 16384
#define RX_ROUNDS 4     /* chunks per turn of the loop */
#define DRAIN_ROUNDS 16 /* thrown away at the end, so that close does not reset what we said last */

enum rx_result { RX_DRAINED, RX_MORE, RX_EOF, RX_ERROR };

static ssize_t stream_read(struct irdma_qp *qp, u8 *buf, size_t size)
{
	struct iovec iov = { .iov_base = buf, .iov_len = size };

	return qp->iwdev->port->ops->stream_recv(qp->stream, &iov, 1);
}

/* Called with qp->lock held, as all up to rnic_qp_serve(). */
static enum rx_result rx_drain(struct irdma_qp *qp, int *error)
{
	u8 buf[RX_CHUNK];

	for (int round = 0; round < RX_ROUNDS; round++) {
		ssize_t n;

		if (qp->state == RNIC_QP_ERROR || rnic_qp_of(qp)->eof)
			return RX_DRAINED;
		n = stream_read(qp, buf, sizeof(buf));
		if (n == -EAGAIN)
			return RX_DRAINED;
		if (n == 0)
			return RX_EOF;
		if (n < 0) {
			*error = (int)n;
			return RX_ERROR;
		}
		rnic_rx_bytes(qp, buf, (size_t)n);
	}
	return RX_MORE;
}

/* A FIN in the middle of an FPDU is no orderly end. */
static bool cut_off(const struct irdma_qp *qp)
{
	return qp->rx.have || qp->rx.marker_have;
}

static void on_eof(struct irdma_qp *qp)
{
	static const struct rdmap_error lost = { TERM_LAYER_LLP, 0, TERM_MPA_CONN_LOST };
	struct rnic_qp *q = rnic_qp_of(qp);

	q->eof = true;
	if (qp->state == RNIC_QP_RTS && cut_off(qp)) {
		rnic_tx_terminate(qp, &lost, NULL, 0);
	} else if (qp->state == RNIC_QP_RTS) {
		rnic_qp_set_ae(qp, RNIC_AE_LLP_FIN_RECEIVED);
		rnic_qp_set_state(qp, RNIC_QP_CLOSING);
		timer_del(&qp->rtr_timer);
		rnic_tx_fin(qp);
		rnic_qp_raise(qp);
	} else if (qp->state == RNIC_QP_CLOSING) {
		rnic_qp_set_ae(qp, q->fin_sent ? RNIC_AE_LLP_CLOSE_COMPLETE : RNIC_AE_LLP_FIN_RECEIVED);
		timer_del(&qp->rtr_timer);
		rnic_qp_raise(qp);
	}
}

static void on_closed(struct irdma_qp *qp)
{
	if (!rnic_qp_of(qp)->eof)
		on_eof(qp);
	if (qp->state != RNIC_QP_CLOSING)
		return;
	rnic_qp_set_ae(qp, RNIC_AE_LLP_CLOSE_COMPLETE);
	rnic_qp_raise(qp);
}

static enum rnic_ae reset_ae(int error)
{
	switch (error) {
	case -ETIMEDOUT:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		return RNIC_AE_LLP_TOO_MANY_RETRIES;
	case -ENOMEM:
		return RNIC_AE_QP_ERROR; /* ours */
	default:
		return RNIC_AE_LLP_CONNECTION_RESET;
	}
}

static void on_reset(struct irdma_qp *qp, int error)
{
	enum rnic_ae ae = reset_ae(error);

	if (qp->state == RNIC_QP_ERROR)
		return; /* our own RST, or the second report */
	if (ae == RNIC_AE_LLP_CONNECTION_RESET)
		qp->reset_seen = true;
	if (ae == RNIC_AE_QP_ERROR)
		rnic_qp_abort(qp, ae);
	else
		rnic_qp_fail(qp, ae);
}

/* Why: the stream's word, else that of the send that failed. */
static int reset_cause(struct irdma_qp *qp)
{
	int error = qp->iwdev->port->ops->stream_error(qp->stream);

	if (!error)
		error = rnic_qp_of(qp)->tx_error;
	return error ? error : -ECONNRESET;
}

static void handle_events(struct irdma_qp *qp, u32 events)
{
	enum rx_result r = RX_DRAINED;
	int error = 0;

	if (events & PORT_WRITABLE)
		rnic_tx_flush(qp);
	if (events & ~PORT_WRITABLE)
		r = rx_drain(qp, &error);
	if (r == RX_MORE) {
		rnic_qp_of(qp)->events |= events & ~PORT_WRITABLE;
		rnic_qp_kick(qp);
		return;
	}
	if (r == RX_EOF)
		on_eof(qp);
	if (r == RX_ERROR)
		on_reset(qp, error);
	if (events & PORT_RESET)
		on_reset(qp, reset_cause(qp));
	if (events & PORT_CLOSED)
		on_closed(qp);
}

static void tell_cm(struct irdma_qp *qp, u32 todo)
{
	const struct rnic_cm_ops *ops = qp->iwdev->cm_ops;
	struct net *prev = net_enter(qp->iwdev->net);

	if (todo & RNIC_TODO_LSMM && ops && ops->lsmm_done)
		ops->lsmm_done(qp);
	if (todo & RNIC_TODO_DISCONNECT) {
		if (ops && ops->disconnect)
			ops->disconnect(qp);
		else
			rnic_qp_release_stream(qp);
	}
	net_enter(prev);
}

/* Loop thread, no lock held; the QP stays until its work item has run. */
static void serve(struct irdma_qp *qp, u32 events)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	u32 todo;

	mutex_lock(&qp->lock);
	events |= q->events;
	q->events = 0;
	if (events && qp->stream)
		handle_events(qp, events);
	todo = q->todo;
	q->todo = 0;
	mutex_unlock(&qp->lock);
	if (todo)
		tell_cm(qp, todo);
}

static void stream_event(void *ctx, u32 events)
{
	struct rnic_qp *q = ctx;

	serve(&q->qp, events);
}

const struct port_stream_up rnic_stream_up = {
	.event = stream_event,
};

/* The reference is rnic_qp_kick()'s, or that of a closed stream. */
void rnic_qp_work(struct work_struct *work)
{
	struct rnic_qp *q = container_of(work, struct rnic_qp, work);

	serve(&q->qp, 0);
	rnic_qp_put(&q->qp);
}

void rnic_qp_rtr_timeout(struct timer_list *t)
{
	struct irdma_qp *qp = container_of(t, struct irdma_qp, rtr_timer);

	mutex_lock(&qp->lock);
	if (qp->stream && qp->rtr_pending && qp->state == RNIC_QP_RTS)
		rnic_qp_abort(qp, RNIC_AE_RTR_TIMEOUT);
	mutex_unlock(&qp->lock);
	serve(qp, 0);
}

/*
 * Closing a stream with unread data resets it (RFC 1122 4.2.2.13), and the reset may overtake our
 * Terminate. What is there is read first; a peer that keeps on sending gets the reset.
 */
static void forget_unread(struct irdma_qp *qp)
{
	u8 buf[RX_CHUNK];
	ssize_t n = 1;

	for (int round = 0; round < DRAIN_ROUNDS && n > 0; round++)
		n = stream_read(qp, buf, sizeof(buf));
}

static void release_locked(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	struct port_stream *stream = qp->stream;

	timer_del(&qp->rtr_timer);
	if (qp->state == RNIC_QP_RTS)
		rnic_qp_abort(qp, RNIC_AE_QP_ERROR);
	if (qp->state != RNIC_QP_ERROR)
		rnic_tx_flush(qp);
	if (qp->state == RNIC_QP_TERMINATE && !q->eof)
		forget_unread(qp);
	rnic_tx_drop(qp);
	mpa_rx_destroy(&qp->rx);
	qp->disconn_raised = true;
	q->events = 0;
	q->todo &= ~RNIC_TODO_DISCONNECT;
	qp->stream = NULL;
	qp->iwdev->port->ops->stream_close(stream);
	/* The stream's reference becomes the work item's. If that is queued it has its own, and the caller has one. */
	if (!workq_queue(&rnic_device_of(qp->iwdev)->wq, &q->work))
		rnic_qp_put(qp);
}

/**
 * rnic_qp_release_stream() - close the stream of a QP
 * @qp: the QP; nothing happens if it has no stream
 *
 * From any thread by who holds a reference, and from inside the CM's callbacks. The stream of a QP still in RTS is reset; an
 * orderly end goes on by itself. The CM is not told of this stream any more.
 */
void rnic_qp_release_stream(struct irdma_qp *qp)
{
	mutex_lock(&qp->lock);
	if (qp->stream)
		release_locked(qp);
	mutex_unlock(&qp->lock);
}
