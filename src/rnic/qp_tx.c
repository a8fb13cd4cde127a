/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a QP sends: the batch. Theory of operation.
 *
 * FPDUs are described in a batch and given to the stream together, by one call. Their headers and trailers, and payload that is small, stand in the
 * batch's stage; large payload is sent from where the program has it. With CRC on it is copied all the same: program and peers may change the memory at any time, and
 * the CRC must be that of the bytes that go out. What the stream does not take stays described, and goes on at
 * PORT_WRITABLE or when the program polls. A WQE is done when the stream has taken the byte at its .end.
 *
 * Memory of a program is held from building to the end of the send, for whoever deregisters it waits; what is left is looked up again the next time. If it is
 * gone then and the FPDU has begun, nothing true can follow it: the stream is reset.
 *
 * A QP that ends keeps the FPDU of which the stream has a part, with its payload copied, and forgets the others: the program gets its memory back.
 * Start-up reply, RTR and Terminate go out in any case. A FIN waits behind all.
 *
 * A send that fails is handled by the loop's thread as the reset it is. All functions are called with qp->lock held.
 */
#include <stdlib.h>
#include <string.h>
#include "rnic/rnic_internal.h"

/* Largest FPDU of control bytes: a Terminate, its pad and CRC, one marker. */
#define FPDU_MAX (MPA_LEN_SIZE + RDMAP_TERM_MAX + MPA_TRAILER_MAX + MPA_MARKER_SIZE)
#define COPY_MAX 1024u      /* payload up to here is cheaper to copy than to describe */
#define STAGE_WHOLE (3u * 65536u) /* for FPDUs that are copied whole */
static_assert(RNIC_MAX_INLINE <= COPY_MAX, "inline data lives in the ring, and is not described");
#define TERMINATE_MSN 1 /* queue 2 carries one message */

/* ---- the batch ---- */

/* Markers stand within the payload. */
static bool copies_all(const struct rnic_qp *q)
{
	return q->tx.mpa.markers || q->tx.mpa.crc;
}

static bool copies(const struct rnic_qp *q, u32 payload)
{
	return payload <= COPY_MAX || copies_all(q);
}

bool rnic_tx_prepare(struct rnic_qp *q)
{
	u32 size = copies_all(q) ? STAGE_WHOLE : RNIC_TX_STAGE;
	struct rnic_tx_batch *b;

	if (likely(q->tx.batch != NULL))
		return true;
	b = malloc(sizeof(*b));
	if (!b)
		return false;
	b->stage = malloc(size);
	if (!b->stage) {
		free(b);
		return false;
	}
	b->stage_size = size;
	b->head = b->segs = b->stage_head = b->stage_len = 0;
	q->tx.batch = b;
	return true;
}

void rnic_tx_drop(struct irdma_qp *qp)
{
	struct rnic_tx *tx = &rnic_qp_of(qp)->tx;

	if (tx->batch)
		free(tx->batch->stage);
	free(tx->batch);
	tx->batch = NULL;
	tx->source = RNIC_TX_NONE;
}

static void batch_reset(struct rnic_tx_batch *b)
{
	b->head = b->segs = b->stage_head = b->stage_len = 0;
}

/* Room for an FPDU of @payload bytes in so many @pieces of memory. */
bool rnic_tx_room(const struct rnic_qp *q, u32 pieces, u32 payload)
{
	const struct rnic_tx_batch *b = q->tx.batch;
	u32 stage = RDMAP_HDR_MAX + MPA_TRAILER_MAX;

	if (q->tx.mpa.markers)
		stage = mpa_fpdu_len(&q->tx.mpa, RDMAP_HDR_MAX + payload);
	else if (copies(q, payload))
		stage += payload;
	return b->segs + pieces + 2 <= RNIC_TX_SEGS && b->stage_len + stage <= b->stage_size;
}

static struct rnic_tx_seg *add_seg(struct rnic_tx_batch *b, u32 len)
{
	struct rnic_tx_seg *s = &b->seg[b->segs++];

	*s = (struct rnic_tx_seg){ .len = len };
	return s;
}

static void add_staged(struct rnic_tx_batch *b, u32 len, u16 marker, bool last)
{
	struct rnic_tx_seg *s = add_seg(b, len);

	s->marker = marker;
	s->last = last;
	b->stage_len += len;
}

/* Payload behind the header in the stage. Length of the FPDU. */
static u32 stage_fpdu(struct rnic_qp *q, u8 *hdr, u32 hdr_len, struct rnic_piece *p, u32 n, u32 payload)
{
	struct rnic_tx_batch *b = q->tx.batch;
	u8 *out = b->stage + b->stage_len, *at = out + hdr_len;
	struct iovec iov = { .iov_base = at, .iov_len = payload };

	for (u32 i = 0; i < n; i++) {
		memcpy(at, p[i].ptr, p[i].len);
		at += p[i].len;
	}
	memcpy(out, hdr, hdr_len);
	return hdr_len + payload + mpa_seal(&q->tx.mpa, out, hdr_len, &iov, payload ? 1 : 0, at);
}

static u32 stage_with_markers(struct rnic_qp *q, u8 *hdr, u32 hdr_len, struct rnic_piece *p, u32 n)
{
	struct iovec iov[RNIC_MAX_SGE + 1] = { { .iov_base = hdr + MPA_LEN_SIZE, .iov_len = hdr_len - MPA_LEN_SIZE } };
	struct rnic_tx_batch *b = q->tx.batch;
	int len;

	for (u32 i = 0; i < n; i++)
		iov[i + 1] = (struct iovec){ .iov_base = (void *)p[i].ptr, .iov_len = p[i].len };
	len = mpa_fpdu_build_iov(&q->tx.mpa, iov, (int)n + 1, b->stage + b->stage_len, b->stage_size - b->stage_len);
	assert(len > 0);
	return (u32)len;
}

static void put_pieces(struct rnic_piece *p, u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (p[i].mem.region)
			rnic_mem_put(&p[i].mem);
}

/* The holds go over to the batch. Length of the FPDU. */
static u32 describe(struct rnic_qp *q, u8 *hdr, u32 hdr_len, struct rnic_piece *p, u32 n, u32 payload, int access)
{
	struct rnic_tx_batch *b = q->tx.batch;
	struct iovec iov[RNIC_MAX_SGE];
	u8 trailer[MPA_TRAILER_MAX];
	u8 *out = b->stage + b->stage_len;
	u32 len;

	for (u32 i = 0; i < n; i++)
		iov[i] = (struct iovec){ .iov_base = (void *)p[i].ptr, .iov_len = p[i].len };
	len = mpa_seal(&q->tx.mpa, hdr, hdr_len, iov, (int)n, trailer);
	memcpy(out, hdr, hdr_len);
	memcpy(out + hdr_len, trailer, len);
	add_staged(b, hdr_len, 0, false);
	for (u32 i = 0; i < n; i++) {
		struct rnic_tx_seg *s = add_seg(b, p[i].len);

		s->addr = p[i].addr;
		s->stag = p[i].stag;
		s->access = (u32)access;
		s->mem = s->held = true;
		b->hold[b->segs - 1] = p[i].mem;
	}
	add_staged(b, len, 0, true);
	return hdr_len + payload + len;
}

/*
 * Put an FPDU into the batch, in which rnic_tx_room() found room for it. @hdr: MPA_LEN_SIZE bytes for the length, then the headers. The pieces are held (but those of
 * inline data), and given up here or after the send; @access: with which rights they can be had again.
 */
void rnic_tx_add(struct rnic_qp *q, u8 *hdr, u32 hdr_len, struct rnic_piece *p, u32 n, u32 payload, int access)
{
	u16 marker = (u16)q->tx.mpa.next_marker;
	u32 len;

	q->qp.tx_fpdus++;
	if (!copies(q, payload)) {
		q->tx.built += describe(q, hdr, hdr_len, p, n, payload, access);
		return;
	}
	len = q->tx.mpa.markers ? stage_with_markers(q, hdr, hdr_len, p, n) : stage_fpdu(q, hdr, hdr_len, p, n, payload);
	put_pieces(p, n);
	add_staged(q->tx.batch, len, marker, true);
	q->tx.built += len;
}

/* ---- to the stream ---- */

static void tx_failed(struct irdma_qp *qp, int error)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	rnic_tx_drop(qp);
	q->tx_error = error;
	q->events |= PORT_RESET;
	rnic_qp_kick(qp);
}

/* The start-up reply is the first thing in the stream: the first bytes taken are its. */
static void count_sent(struct rnic_qp *q, u32 n)
{
	q->qp.tx_bytes += n;
	q->tx.taken += n;
	if (likely(!q->lsmm_left))
		return;
	q->lsmm_left -= min(n, q->lsmm_left);
	if (q->lsmm_left)
		return;
	q->qp.lsmm_sent = true;
	rnic_qp_set_todo(q, q->todo | RNIC_TODO_LSMM);
}

void rnic_tx_set_stuck(struct rnic_qp *q, bool stuck)
{
	if (q->tx.stuck != stuck)
		__atomic_store_n(&q->tx.stuck, stuck, __ATOMIC_RELAXED);
}

/* Memory of segment @s, which is not held. */
static enum rnic_mem_status regain(struct rnic_qp *q, struct rnic_tx_seg *s, struct rnic_mem *hold)
{
	enum rnic_mem_status st = rnic_mem_get(&q->qp, s->stag, s->addr, s->len, (int)s->access, hold);

	s->held = st == RNIC_MEM_OK;
	return st;
}

/*
 * Describe what is in the batch to the stream. Entries; short of an FPDU whose memory is gone, which @status tells of if it
 * is the first one.
 */
static int batch_iov(struct rnic_qp *q, struct iovec *iov, struct rnic_tx_seg **culprit, enum rnic_mem_status *status)
{
	struct rnic_tx_batch *b = q->tx.batch;
	u8 *at = b->stage + b->stage_head;
	int n = 0, whole = 0;
	bool joins = false;

	*culprit = NULL;
	for (u32 i = b->head; i < b->segs; i++) {
		struct rnic_tx_seg *s = &b->seg[i];

		if (s->mem) {
			if (!s->held) {
				*status = regain(q, s, &b->hold[i]);
				if (*status) {
					*culprit = s;
					return whole;
				}
			}
			iov[n++] = (struct iovec){ .iov_base = b->hold[i].ptr, .iov_len = s->len };
		} else if (joins) {
			iov[n - 1].iov_len += s->len;
			at += s->len;
		} else {
			iov[n++] = (struct iovec){ .iov_base = at, .iov_len = s->len };
			at += s->len;
		}
		joins = !s->mem;
		if (s->last)
			whole = n;
	}
	return n;
}

static void put_holds(struct rnic_tx_batch *b, u32 from)
{
	for (u32 i = from; i < b->segs; i++)
		if (b->seg[i].held) {
			rnic_mem_put(&b->hold[i]);
			b->seg[i].held = false;
		}
}

/* The stream took @n bytes. */
static void advance(struct rnic_qp *q, u32 n)
{
	struct rnic_tx_batch *b = q->tx.batch;

	count_sent(q, n);
	while (n) {
		struct rnic_tx_seg *s = &b->seg[b->head];
		u32 part = min(n, s->len);

		if (s->mem)
			s->addr += part;
		else
			b->stage_head += part;
		s->len -= part;
		n -= part;
		q->tx.mid = s->len || !s->last;
		b->head += !s->len;
	}
	if (b->head == b->segs)
		batch_reset(b);
}

/* Memory in the first FPDU of the batch is gone. */
static enum rnic_tx_result memory_gone(struct irdma_qp *qp, const struct rnic_tx_seg *s, enum rnic_mem_status status)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	bool ours = !(s->access & IBV_ACCESS_REMOTE_READ);

	if (ours && q->v)
		rnic_sq_blame_sending(q, IBV_WC_LOC_PROT_ERR);
	if (q->tx.mid) {
		rnic_qp_async(qp, IBV_EVENT_QP_FATAL);
		rnic_qp_abort(qp, RNIC_AE_QP_ERROR);
	} else {
		rnic_tx_terminate(qp, ours ? &rnic_local_error : rnic_rdmap_mem_error(status), NULL, 0);
	}
	return RNIC_TX_ENDED;
}

/* One call of the stream for what is in the batch. */
enum rnic_tx_result rnic_tx_send(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	struct rnic_tx_batch *b = q->tx.batch;
	struct iovec iov[RNIC_TX_SEGS];
	struct rnic_tx_seg *culprit;
	enum rnic_mem_status status = RNIC_MEM_OK;
	u32 head = b->head;
	ssize_t n;
	int pieces = batch_iov(q, iov, &culprit, &status);

	if (culprit && !pieces) {
		put_holds(b, head);
		return memory_gone(qp, culprit, status);
	}
	n = qp->iwdev->port->ops->stream_send(qp->stream, iov, pieces);
	put_holds(b, head);
	if (n < 0 && n != -EAGAIN) {
		tx_failed(qp, (int)n);
		return RNIC_TX_ENDED;
	}
	if (n > 0)
		advance(q, (u32)n);
	rnic_tx_set_stuck(q, b->head != b->segs);
	return b->head == b->segs || (culprit && n > 0) ? RNIC_TX_GO_ON : RNIC_TX_FULL;
}

/* ---- control bytes ---- */

static int append(struct rnic_qp *q, const u8 *bytes, u32 len, u16 marker)
{
	struct rnic_tx_batch *b;
	u8 *stage;

	if (!rnic_tx_prepare(q))
		return -ENOMEM;
	b = q->tx.batch;
	if (b->segs == RNIC_TX_SEGS)
		return -ENOMEM; /* cannot be: what is kept at the end leaves room */
	if (b->stage_len + len > b->stage_size) {
		stage = realloc(b->stage, b->stage_len + len);
		if (!stage)
			return -ENOMEM;
		b->stage = stage;
		b->stage_size = b->stage_len + len;
	}
	memcpy(b->stage + b->stage_len, bytes, len);
	add_staged(b, len, marker, true);
	b->seg[b->segs - 1].control = true;
	return 0;
}

static void control_bytes(struct irdma_qp *qp, const u8 *bytes, u32 len, u16 marker)
{
	struct iovec iov = { .iov_base = (void *)bytes, .iov_len = len };
	struct rnic_qp *q = rnic_qp_of(qp);
	ssize_t n = 0;
	int rc;

	q->tx.built += len;
	if (rnic_tx_is_empty(q))
		n = qp->iwdev->port->ops->stream_send(qp->stream, &iov, 1);
	if (n == -EAGAIN)
		n = 0;
	if (n < 0) {
		tx_failed(qp, (int)n);
		return;
	}
	count_sent(q, (u32)n);
	if (n == len)
		return;
	q->tx.mid |= n > 0;
	rc = append(q, bytes + n, len - (u32)n, marker);
	if (rc)
		tx_failed(qp, rc);
	else
		rnic_tx_set_stuck(q, true);
}

void rnic_tx_bytes(struct irdma_qp *qp, const u8 *bytes, u32 len)
{
	control_bytes(qp, bytes, len, 0);
}

void rnic_tx_ulpdu(struct irdma_qp *qp, const u8 *ulpdu, u32 len)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	u16 marker = (u16)q->tx.mpa.next_marker;
	u8 fpdu[FPDU_MAX];
	int n = mpa_fpdu_build(&q->tx.mpa, ulpdu, len, fpdu, sizeof(fpdu));

	assert(n > 0);
	qp->tx_fpdus++;
	q->tx_msgs[ulpdu[1] & RDMAP_OPCODE_MASK]++;
	control_bytes(qp, fpdu, (u32)n, marker);
}

/* ---- the end ---- */

/* Segments that go out whatever happens: control bytes, and what is left of an FPDU that has begun. Index behind the last one. */
static u32 keep_until(const struct rnic_qp *q)
{
	const struct rnic_tx_batch *b = q->tx.batch;
	u32 end = b->head;

	if (q->tx.mid)
		while (end < b->segs && !b->seg[end++].last)
			;
	while (end < b->segs && b->seg[end].control)
		end++;
	return end;
}

/* Copy segments [head, @end) into @out; false: memory is gone. */
static bool copy_out(struct rnic_qp *q, u32 end, u8 *out)
{
	struct rnic_tx_batch *b = q->tx.batch;
	const u8 *at = b->stage + b->stage_head;

	for (u32 i = b->head; i < end; i++) {
		struct rnic_tx_seg *s = &b->seg[i];

		if (s->mem && regain(q, s, &b->hold[i]))
			return false;
		memcpy(out, s->mem ? b->hold[i].ptr : at, s->len);
		if (s->mem)
			rnic_mem_put(&b->hold[i]);
		else
			at += s->len;
		out += s->len;
		s->held = false;
	}
	return true;
}

static u32 seg_bytes(const struct rnic_tx_batch *b, u32 end)
{
	u32 len = 0;

	for (u32 i = b->head; i < end; i++)
		len += b->seg[i].len;
	return len;
}

/* What is kept becomes one staged FPDU. Without the memory for it, or with that of the program gone, a reset is the only truth. */
void rnic_tx_detach(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	struct rnic_tx_batch *b = q->tx.batch;
	u32 end, len;
	u8 *stage;

	q->tx.source = RNIC_TX_NONE;
	if (rnic_tx_is_empty(q))
		return;
	end = keep_until(q);
	if (end < b->segs && q->tx.mpa.markers)
		q->tx.mpa.next_marker = b->seg[end].marker;
	len = seg_bytes(b, end);
	if (!len) {
		batch_reset(b);
		return;
	}
	stage = malloc(len);
	if (!stage || !copy_out(q, end, stage)) {
		free(stage);
		batch_reset(b);
		rnic_qp_abort(qp, RNIC_AE_QP_ERROR);
		return;
	}
	free(b->stage);
	batch_reset(b);
	b->stage = stage;
	b->stage_size = len;
	add_staged(b, len, 0, true);
	b->seg[0].control = true;
}

/* What a QP in TERMINATE still has to say: the rest of an FPDU that had begun, and the Terminate. Valid until rnic_tx_drop(). */
u32 rnic_tx_rest(struct irdma_qp *qp, const u8 **bytes)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	rnic_tx_detach(qp); /* all of it staged */
	*bytes = NULL;
	if (rnic_tx_is_empty(q))
		return 0;
	*bytes = q->tx.batch->stage;
	return q->tx.batch->stage_len;
}

void rnic_tx_fin_if_due(struct irdma_qp *qp)
{
	struct rnic_qp *q = rnic_qp_of(qp);

	if (!q->tx.fin || q->tx.fin_sent || !rnic_tx_is_empty(q) || !rnic_sq_is_empty(q) || q->answers.head != q->answers.tail)
		return;
	q->tx.fin_sent = true;
	qp->iwdev->port->ops->stream_shutdown(qp->stream);
}

void rnic_tx_fin(struct irdma_qp *qp)
{
	rnic_qp_of(qp)->tx.fin = true;
	rnic_tx_fin_if_due(qp);
}

/* Say why, then close (RFC 5040 7.2); behind our own FIN nothing can be said. */
void rnic_tx_terminate(struct irdma_qp *qp, const struct rdmap_error *err, const u8 *ulpdu, u32 len)
{
	struct rnic_qp *q = rnic_qp_of(qp);
	u8 term[RDMAP_TERM_MAX];

	qp->term = *err;
	log_info(ROOM, "qp %u: terminating: %s", qp->qp_num, rdmap_error_str(err));
	rnic_qp_term_event(qp, err);
	if (q->tx.fin_sent) {
		rnic_qp_abort(qp, RNIC_AE_QP_ERROR);
		return;
	}
	timer_del(&qp->rtr_timer);
	rnic_qp_set_state(qp, RNIC_QP_TERMINATE);
	rnic_qp_set_ae(qp, RNIC_AE_TERMINATE_SENT);
	rnic_qp_flush(qp);
	if (qp->state == RNIC_QP_ERROR)
		return; /* an FPDU had begun and cannot be finished */
	q->term_sent = true;
	rnic_tx_ulpdu(qp, term, rdmap_build_terminate(err, TERMINATE_MSN, ulpdu, len, term));
	rnic_tx_fin(qp);
	rnic_qp_raise(qp);
}
