/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The stream of a QP: who reads it, its end, and what the CM is told of it.
 *
 * Reading. Who holds rx_lock reads: the loop's thread when the port says that something came, or a program's thread that polls (qp_poll.c). Neither waits for the
 * other: who finds the lock taken leaves a note, and the holder looks for notes when it has given the lock up. Notes also ask for the receive queue to be
 * flushed. Only at a stream's end, and to take the stream away, is the lock waited for.
 *
 * Reading is bounded per event, so that one peer cannot keep the loop: the events are kept and a work item
 * continues. Events come in the order data, FIN, reset or close; whatever the port reports together is
 * handled in that order, so a Terminate that stands in front of a reset is still read. A poller that meets the end leaves it to the loop's thread.
 *
 * Timeouts: the RTR's (RFC 6581 gives none; the CM chooses). After a Terminate the CM releases the stream at once and the
 * port ends it: what the peer still sends is not answered with a reset, which would make it forget the Terminate (port_ops.stream_drain).
 */
#include <stdlib.h>
#include "rnic/rnic_internal.h"

#define RX_PIECES 32
#define RX_CHUNK 16384
#define RX_ROUNDS 32    /* reads per turn of the loop, */
#define RX_BYTES (1u << 20) /* or so many bytes */
#define STREAM_ENDS (PORT_EOF | PORT_RESET | PORT_CLOSED)

enum rx_result { RX_DRAINED, RX_MORE, RX_EOF, RX_ERROR };

/* ---- rx_lock ---- */

/* While the process has one thread mutexes are not taken (base/lock.h), but we may come by again from inside. */
bool rnic_rx_trylock(struct rnic_qp *q)
{
	if (single_threaded() ? q->rx_held : !mutex_try_take(&q->rx_lock))
		return false;
	q->rx_held = true;
	return true;
}

void rnic_rx_lock(struct rnic_qp *q)
{
	mutex_lock(&q->rx_lock);
	q->rx_held = true;
}

static void rx_give(struct rnic_qp *q)
{
	q->rx_held = false;
	mutex_unlock(&q->rx_lock);
}

static u32 take_notes(struct rnic_qp *q)
{
	if (likely(!__atomic_load_n(&q->rx_notes, __ATOMIC_ACQUIRE)))
		return 0;
	return __atomic_exchange_n(&q->rx_notes, 0, __ATOMIC_SEQ_CST);
}

/* Not before the lock was given (mutex_give()): who left a note either got the lock, or is seen here. */
static bool has_notes(const struct rnic_qp *q)
{
	return __atomic_load_n(&q->rx_notes, __ATOMIC_SEQ_CST) != 0;
}

void rnic_rx_unlock(struct rnic_qp *q)
{
	for (;;) {
		u32 notes = take_notes(q);

		if (notes & RNIC_NOTE_FLUSH)
			rnic_rx_flush(q);
		if (notes & RNIC_NOTE_READ)
			rnic_rx_poll(q);
		rx_give(q);
		if (!has_notes(q) || !rnic_rx_trylock(q))
			return;
	}
}

void rnic_rx_leave_note(struct rnic_qp *q, u32 note)
{
	__atomic_fetch_or(&q->rx_notes, note, __ATOMIC_SEQ_CST);
	while (has_notes(q) && rnic_rx_trylock(q)) {
		u32 notes = take_notes(q);

		if (notes & RNIC_NOTE_FLUSH)
			rnic_rx_flush(q);
		if (notes & RNIC_NOTE_READ) { /* which needs qp->lock, and the caller has it */
			q->events |= PORT_READABLE;
			rnic_qp_kick(&q->qp);
		}
		rx_give(q);
	}
}

/* ---- reading; rx_lock held ---- */

/* States in which what comes in still counts; else it is read and forgotten. */
static bool rx_open(const struct rnic_qp *q)
{
	enum rnic_qp_state s = rnic_qp_state(&q->qp);

	return (s == RNIC_QP_RTS || s == RNIC_QP_CLOSING) && !rx_is_over(q) && !q->rx.error;
}

static ssize_t recv_pieces(struct rnic_qp *q, const struct iovec *iov, int n)
{
	return q->qp.iwdev->port->ops->stream_recv(q->qp.stream, iov, n);
}

/* Others look without the lock. */
static void count_received(struct rnic_qp *q, u64 len)
{
	__atomic_store_n(&q->qp.rx_bytes, q->qp.rx_bytes + len, __ATOMIC_RELAXED);
}

static ssize_t recv_and_forget(struct rnic_qp *q)
{
	u8 buf[RX_CHUNK];
	struct iovec iov = { .iov_base = buf, .iov_len = sizeof(buf) };

	return recv_pieces(q, &iov, 1);
}

/* What rdmap_rx found, or the QP when it was asked. */
static void rx_fault(struct rnic_qp *q)
{
	static const struct rdmap_error no_memory = { TERM_LAYER_LLP, 0, TERM_MPA_LOCAL };
	const struct rdmap_error *err = q->rx.error ? q->rx.error : &no_memory;
	struct irdma_qp *qp = &q->qp;

	if (err == &rdmap_rx_stop)
		return;
	mutex_lock(&qp->lock);
	if (qp->state == RNIC_QP_RTS || qp->state == RNIC_QP_CLOSING)
		rnic_tx_terminate(qp, err, q->rx.bad_ulpdu, q->rx.bad_len);
	mutex_unlock(&qp->lock);
}

static size_t sum(const struct iovec *iov, int n)
{
	size_t len = 0;

	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

/* QPs without queues get a few bytes in their life, and are many: nothing is kept between them. */
static void rx_rest(struct rnic_qp *q)
{
	struct rdmap_rx *rx = &q->rx;

	if (q->v || rx->start != rx->end || rx->direct || rx->error)
		return;
	free(rx->buf);
	rx->buf = NULL;
	rx->size = 0;
}

/* One read for the program. Bytes, 0 at the FIN, negative errno. *@full: there may be more. */
static ssize_t rx_once(struct rnic_qp *q, bool *full)
{
	struct iovec iov[RX_PIECES];
	int n = rdmap_rx_want(&q->rx, iov, RX_PIECES);
	ssize_t len;

	*full = true;
	if (n < 0) {
		rx_fault(q);
		return recv_and_forget(q);
	}
	len = recv_pieces(q, iov, n);
	if (len > 0) {
		count_received(q, (u64)len);
		*full = !q->rx_dry || (size_t)len == sum(iov, n);
		if (rdmap_rx_got(&q->rx, (size_t)len))
			rx_fault(q);
		q->qp.rx_fpdus = q->rx.fpdus;
	} else if (len == -EAGAIN) {
		q->rx_dry = true;
	}
	if (q->v)
		rnic_recv_drop_holds(q->v);
	return len;
}

/* @to_end: the FIN or what else is there has to be met. */
static enum rx_result rx_drain(struct rnic_qp *q, bool to_end, int *error)
{
	size_t got = 0;

	for (int round = 0; round < RX_ROUNDS && got < RX_BYTES; round++) {
		bool full = true;
		ssize_t n;

		if (rnic_qp_state(&q->qp) == RNIC_QP_ERROR || q->eof)
			return RX_DRAINED;
		if (rx_open(q)) {
			n = rx_once(q, &full);
		} else {
			n = recv_and_forget(q);
			count_received(q, n > 0 ? (u64)n : 0);
		}
		if (n == -EAGAIN)
			return RX_DRAINED;
		if (n == 0)
			return RX_EOF;
		if (n < 0) {
			*error = (int)n;
			return RX_ERROR;
		}
		if (!full && !to_end)
			return RX_DRAINED;
		got += (size_t)n;
	}
	return RX_MORE;
}

/* Answers to what was read, and WQEs that waited for it. */
static void send_answers(struct rnic_qp *q)
{
	struct irdma_qp *qp = &q->qp;

	mutex_lock(&qp->lock);
	if (q->answers.head != q->answers.tail)
		rnic_tx_run(qp);
	mutex_unlock(&qp->lock);
}

static enum rx_result rx_some(struct rnic_qp *q, bool to_end, int *error)
{
	enum rx_result r;

	if (!q->qp.stream)
		return RX_DRAINED;
	r = rx_drain(q, to_end, error);
	rx_rest(q);
	if (q->rx_asked) {
		q->rx_asked = false;
		send_answers(q);
	}
	return r;
}

/* What a poller met that is the loop's business. An error is told by the stream once. */
static u32 left_to_loop(struct rnic_qp *q, enum rx_result r, int error)
{
	switch (r) {
	case RX_DRAINED:
		return 0;
	case RX_MORE: /* under a lease the program comes again, or the stream tells when it does not */
		return __atomic_load_n(&q->leased, __ATOMIC_RELAXED) ? 0 : PORT_READABLE;
	case RX_EOF:
		return PORT_READABLE | PORT_EOF;
	default:
		q->rx_error = error;
		return PORT_READABLE | PORT_RESET;
	}
}

/* For a program that polls. */
bool rnic_rx_poll(struct rnic_qp *q)
{
	u64 before = q->qp.rx_bytes;
	int error = 0;
	u32 events = left_to_loop(q, rx_some(q, false, &error), error);

	if (events || __atomic_load_n(&q->todo, __ATOMIC_RELAXED)) {
		mutex_lock(&q->qp.lock);
		if (events & ~q->events || q->todo)
			rnic_qp_kick(&q->qp);
		q->events |= events;
		mutex_unlock(&q->qp.lock);
	}
	return q->qp.rx_bytes != before;
}

/* ---- the ends; rx_lock and qp->lock held ---- */

static void on_eof(struct irdma_qp *qp)
{
	static const struct rdmap_error lost = { TERM_LAYER_LLP, 0, TERM_MPA_CONN_LOST };
	struct rnic_qp *q = rnic_qp_of(qp);

	q->eof = true;
	if (qp->state == RNIC_QP_RTS && rdmap_rx_cut_off(&q->rx)) {
		rnic_tx_terminate(qp, &lost, NULL, 0);
	} else if (qp->state == RNIC_QP_RTS) {
		rnic_qp_set_ae(qp, RNIC_AE_LLP_FIN_RECEIVED);
		rnic_qp_set_state(qp, RNIC_QP_CLOSING);
		timer_del(&qp->rtr_timer);
		rnic_qp_flush(qp);
		if (qp->state == RNIC_QP_CLOSING)
			rnic_tx_fin(qp);
		rnic_qp_raise(qp);
	} else if (qp->state == RNIC_QP_CLOSING) {
		rnic_qp_set_ae(qp, q->tx.fin_sent ? RNIC_AE_LLP_CLOSE_COMPLETE : RNIC_AE_LLP_FIN_RECEIVED);
		timer_del(&qp->rtr_timer);
		rnic_qp_flush(qp);
		if (qp->state == RNIC_QP_CLOSING)
			rnic_tx_fin_if_due(qp);
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

/* Where a reset was told already, the stream ends without a word, as with a FIN. */
static void handle_ends(struct irdma_qp *qp, enum rx_result r, int error, u32 events)
{
	if (r == RX_EOF && !(events & PORT_RESET))
		on_eof(qp);
	if (r == RX_ERROR)
		on_reset(qp, error);
	if (events & PORT_RESET)
		on_reset(qp, reset_cause(qp));
	if (events & PORT_CLOSED)
		on_closed(qp);
}

/* ---- the loop's thread ---- */

/* rx_lock held. */
static void handle_reading(struct irdma_qp *qp, u32 events)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	int error = 0;
	enum rx_result r = rx_some(q, events & STREAM_ENDS, &error);

	if (q->rx_error) {
		r = RX_ERROR;
		error = q->rx_error;
	}
	if (r == RX_MORE || r == RX_EOF || r == RX_ERROR || events & STREAM_ENDS) {
		mutex_lock(&qp->lock);
		if (r == RX_MORE) {
			q->events |= events;
			rnic_qp_kick(qp);
		} else if (qp->stream) {
			handle_ends(qp, r, error, events);
		}
		mutex_unlock(&qp->lock);
	}
}

static bool lock_to_read(struct rnic_qp *q, u32 events)
{
	if (events & STREAM_ENDS) {
		rnic_rx_lock(q);
		return true;
	}
	if (rnic_rx_trylock(q))
		return true;
	__atomic_fetch_or(&q->rx_notes, RNIC_NOTE_READ, __ATOMIC_SEQ_CST);
	return rnic_rx_trylock(q);
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

/* qp->lock held. What is to be done before anything is read. */
static void serve_sending(struct irdma_qp *qp, u32 events)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	if (unlikely(__atomic_exchange_n(&q->alarm, 0, __ATOMIC_ACQUIRE)) && qp->state != RNIC_QP_ERROR) {
		rnic_qp_async(qp, IBV_EVENT_QP_FATAL);
		rnic_qp_abort(qp, RNIC_AE_QP_ERROR);
	}
	if (events & PORT_WRITABLE)
		rnic_tx_run(qp);
}

/* Loop thread, no lock held; the QP stays until its work item has run. */
static void serve(struct irdma_qp *qp, u32 events)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	u32 todo;

	mutex_lock(&qp->lock);
	events |= q->events;
	q->events = 0;
	serve_sending(qp, events);
	mutex_unlock(&qp->lock);
	events &= ~PORT_WRITABLE;
	if (events && lock_to_read(q, events)) {
		handle_reading(qp, events);
		rnic_rx_unlock(q);
	}
	if (!__atomic_load_n(&q->todo, __ATOMIC_RELAXED))
		return; /* who leaves something from now on kicks */
	mutex_lock(&qp->lock);
	todo = q->todo;
	rnic_qp_set_todo(q, 0);
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
	struct rnic_qp *q = rnic_qp_of(qp);

	mutex_lock(&qp->lock);
	if (qp->iw.initiator) {
		rnic_nudge(qp);
	} else if (q->first_pending && qp->stream) {
		__atomic_store_n(&q->first_pending, false, __ATOMIC_RELAXED);
		rnic_tx_run(qp);
	} else if (qp->stream && qp->rtr_pending && (qp->state == RNIC_QP_RTS || (qp->state == RNIC_QP_CLOSING && !q->tx.fin_sent))) {
		rnic_qp_abort(qp, RNIC_AE_RTR_TIMEOUT);
	}
	mutex_unlock(&qp->lock);
	serve(qp, 0);
}

/* ---- giving the stream up ---- */

/* A peer that has not ended its side may be sending, and shall hear our Terminate, or what was sent before our FIN, all the same. */
static bool must_be_heard(const struct rnic_qp *q)
{
	return !q->eof && (q->qp.state == RNIC_QP_TERMINATE || (q->qp.state == RNIC_QP_CLOSING && q->v));
}

static void close_stream(struct irdma_qp *qp)
{
	const struct port_ops *ops = qp->iwdev->port->ops;
	const u8 *rest;
	u32 len;

	if (!must_be_heard(rnic_qp_of(qp)) || !ops->stream_drain) {
		ops->stream_close(qp->stream);
		return;
	}
	len = rnic_tx_rest(qp, &rest);
	ops->stream_drain(qp->stream, rest, len);
}

static void release_locked(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	timer_del(&qp->rtr_timer);
	rnic_lease_end(qp);
	if (qp->state == RNIC_QP_RTS)
		rnic_qp_abort(qp, RNIC_AE_QP_ERROR);
	rnic_qp_flush(qp);
	if (qp->state != RNIC_QP_ERROR)
		rnic_tx_run(qp);
	qp->disconn_raised = true;
	close_stream(qp);
	rnic_tx_drop(qp);
	rdmap_rx_destroy(&q->rx);
	q->events = 0;
	rnic_qp_set_todo(q, q->todo & ~RNIC_TODO_DISCONNECT);
	qp->stream = NULL;
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
	struct rnic_qp *q = rnic_qp_of(qp);

	rnic_rx_lock(q);
	mutex_lock(&qp->lock);
	if (qp->stream)
		release_locked(qp);
	mutex_unlock(&qp->lock);
	rnic_rx_unlock(q);
}
