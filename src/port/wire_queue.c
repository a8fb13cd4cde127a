/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port: the wire's queue of frames in flight.
 *
 * Order is by time, then by the order of sending; both are numbers of the simulation, so two runs of one seed
 * agree. With a constant latency frames come in that order already: one that is not sooner than the last
 * of the list is appended to it, in constant time. Any other goes to a binary heap.
 */
#include <stdlib.h>
#include "port/wire_internal.h"

/* Whole objects of the first three are multiples of a cache line. */
static const u32 class_bytes[WIRE_CLASSES] = {
	192 - sizeof(struct wire_frame),
	576 - sizeof(struct wire_frame),
	1600 - sizeof(struct wire_frame),
	9216,
	WIRE_FRAME_MAX,
};

void wire_queue_init(struct wire_queue *q)
{
	int i;

	*q = (struct wire_queue){ 0 };
	for (i = 0; i < WIRE_CLASSES; i++)
		pool_init(&q->pool[i], sizeof(struct wire_frame) + class_bytes[i], 0);
}

void wire_queue_destroy(struct wire_queue *q)
{
	int i;

	assert(!q->count);
	free(q->heap);
	for (i = 0; i < WIRE_CLASSES; i++)
		pool_destroy(&q->pool[i]);
}

struct wire_frame *wire_frame_get(struct wire_queue *q, u32 len)
{
	struct wire_frame *f;
	u8 c = 0;

	assert(len <= WIRE_FRAME_MAX);
	while (len > class_bytes[c])
		c++;
	f = pool_get(&q->pool[c]);
	if (!f)
		return NULL;
	f->size_class = c;
	f->len = len;
	f->arrived = f->intact = false;
	return f;
}

void wire_frame_put(struct wire_queue *q, struct wire_frame *f)
{
	pool_put(&q->pool[f->size_class], f);
}

static bool sooner(const struct wire_frame *a, const struct wire_frame *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->seq < b->seq;
}

static int heap_push(struct wire_queue *q, struct wire_frame *f)
{
	size_t i = q->heap_len, up;

	if (i == q->heap_cap) {
		size_t cap = q->heap_cap ? 2 * q->heap_cap : 64;
		struct wire_frame **heap = reallocarray(q->heap, cap, sizeof(*heap));

		if (!heap)
			return -ENOBUFS;
		q->heap = heap;
		q->heap_cap = cap;
	}
	q->heap_len++;
	for (; i && sooner(f, q->heap[up = (i - 1) / 2]); i = up)
		q->heap[i] = q->heap[up];
	q->heap[i] = f;
	return 0;
}

static struct wire_frame *heap_pop(struct wire_queue *q)
{
	struct wire_frame *top = q->heap[0], *last = q->heap[--q->heap_len];
	size_t i = 0, down;

	while ((down = 2 * i + 1) < q->heap_len) {
		if (down + 1 < q->heap_len && sooner(q->heap[down + 1], q->heap[down]))
			down++;
		if (!sooner(q->heap[down], last))
			break;
		q->heap[i] = q->heap[down];
		i = down;
	}
	q->heap[i] = last;
	return top;
}

int wire_queue_push(struct wire_queue *q, struct wire_frame *f)
{
	if (q->count >= WIRE_IN_FLIGHT_MAX)
		return -ENOBUFS;
	f->seq = q->next_seq++;
	f->next = NULL;
	if (!q->head)
		q->head = f;
	else if (f->due_ns >= q->tail->due_ns)
		q->tail->next = f;
	else if (heap_push(q, f))
		return -ENOBUFS;
	else
		goto counted;
	q->tail = f;
counted:
	q->count++;
	return 0;
}

/* Is the next one in the heap? */
static bool heap_first(const struct wire_queue *q)
{
	return q->heap_len && (!q->head || sooner(q->heap[0], q->head));
}

u64 wire_queue_next_ns(const struct wire_queue *q)
{
	if (unlikely(heap_first(q)))
		return q->heap[0]->due_ns;
	return q->head ? q->head->due_ns : UINT64_MAX;
}

struct wire_frame *wire_queue_pop(struct wire_queue *q)
{
	struct wire_frame *f;

	if (unlikely(heap_first(q))) {
		q->count--;
		return heap_pop(q);
	}
	f = q->head;
	if (!f)
		return NULL;
	q->head = f->next;
	q->count--;
	return f;
}
