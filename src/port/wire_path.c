/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port: what a path of the wire does to a frame. All chance comes from the wire's one generator, drawn in
 * the order in which frames are sent, and only for faults that are switched on.
 *
 * In order: down, loss, bandwidth, latency and jitter, reordering, duplication, corruption. The copy of a
 * duplicated frame has a jitter, an order and a corruption of its own.
 */
#include "port/wire_internal.h"

#define CORRUPT_BITS_MAX 15

void wire_path_set(struct wire_path *to, const struct port_wire_path *p)
{
	to->p = *p;
	to->plain = !p->down && !p->jitter_ns && !p->bits_per_s && !(p->loss > 0) && !(p->duplicate > 0) &&
		    !(p->corrupt > 0) && !(p->reorder > 0);
}

static bool happens(struct port_wire *w, double p)
{
	return p > 0 && rand_gen_chance(&w->rand, p);
}

/* When the last bit has left: the line is busy with what was sent before. */
static u64 departs(const struct port_wire *w, struct wire_dir *dir, const struct port_wire_path *path, u32 len)
{
	u64 start = wire_now(w);

	if (!path->bits_per_s)
		return start;
	if (dir->busy_until_ns > start)
		start = dir->busy_until_ns;
	dir->busy_until_ns = start + (u64)((unsigned __int128)len * 8 * NSEC_PER_SEC / path->bits_per_s);
	return dir->busy_until_ns;
}

static u64 arrives(struct port_wire *w, struct wire_dir *dir, const struct port_wire_path *path, u64 depart_ns)
{
	u64 due = depart_ns + path->latency_ns;

	if (path->jitter_ns)
		due += rand_gen_below(&w->rand, path->jitter_ns + 1);
	if (due < dir->last_due_ns)
		due = dir->last_due_ns;
	if (happens(w, path->reorder)) {
		w->stats.reordered++;
		return due + 1 + rand_gen_below(&w->rand, path->reorder_ns ? path->reorder_ns : WIRE_REORDER_NS);
	}
	dir->last_due_ns = due;
	return due;
}

/*
 * One burst of up to 15 bits, which is what the Internet checksum finds for certain (RFC 1071): all positions differ modulo 16,
 * so their weights cannot cancel. What no checksum covers (link addresses, say) may arrive damaged, as it would without an FCS.
 */
static void corrupt(struct port_wire *w, struct wire_frame *f)
{
	u64 bits = (u64)f->len * 8, first = rand_gen_below(&w->rand, bits);
	u64 pattern = 1 | rand_gen_below(&w->rand, 1u << CORRUPT_BITS_MAX);

	w->stats.corrupted++;
	f->intact = false;
	for (u64 i = 0; i < CORRUPT_BITS_MAX && first + i < bits; i++)
		if (pattern >> i & 1)
			f->data[(first + i) / 8] ^= (u8)(0x80u >> (first + i) % 8);
}

static void drop(struct port_wire *w, struct wire_frame *f, u64 *counter)
{
	++*counter;
	wire_port_put(f->to);
	wire_frame_put(&w->queue, f);
}

static void queue(struct port_wire *w, struct wire_frame *f)
{
	if (wire_queue_push(&w->queue, f))
		drop(w, f, &w->stats.lost);
}

static struct wire_frame *copy(struct port_wire *w, const struct wire_frame *f)
{
	struct wire_frame *dup = wire_frame_get(&w->queue, f->len);

	if (!dup)
		return NULL;
	memcpy(dup->data, f->data, f->len);
	dup->to = f->to;
	dup->arrived = f->arrived;
	dup->intact = f->intact;
	wire_port_get(dup->to);
	return dup;
}

static void send_one(struct port_wire *w, struct wire_dir *dir, const struct port_wire_path *path, struct wire_frame *f,
		     u64 depart_ns)
{
	f->due_ns = arrives(w, dir, path, depart_ns);
	if (happens(w, path->corrupt))
		corrupt(w, f);
	queue(w, f);
}

static void send_faulty(struct port_wire *w, struct wire_dir *dir, const struct port_wire_path *path, struct wire_frame *f)
{
	struct wire_frame *dup = NULL;
	u64 depart;

	if (path->down) {
		drop(w, f, &w->stats.down);
		return;
	}
	if (happens(w, path->loss)) {
		drop(w, f, &w->stats.lost);
		return;
	}
	depart = departs(w, dir, path, f->len);
	if (happens(w, path->duplicate))
		dup = copy(w, f);
	send_one(w, dir, path, f, depart);
	if (!dup)
		return;
	w->stats.duplicated++;
	send_one(w, dir, path, dup, depart);
}

void wire_path_send(struct port_wire *w, struct wire_dir *dir, const struct wire_path *path, struct wire_frame *f)
{
	u64 due;

	if (unlikely(!path->plain)) {
		send_faulty(w, dir, &path->p, f);
		return;
	}
	due = wire_now(w) + path->p.latency_ns;
	if (due < dir->last_due_ns)
		due = dir->last_due_ns; /* the path was slower a moment ago */
	dir->last_due_ns = due;
	f->due_ns = due;
	queue(w, f);
}
