/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: hierarchical timer wheel. Add, delete and the search for the next deadline are O(1);
 * advancing costs what is due plus the slots it opens, never the distance in ticks (a timer is
 * re-filed at most once per level in its life). Not locked: the owner locks. Time is in ticks;
 * the unit is the owner's. A struct wheel_timer is zeroed before its first use.
 *
 * A timer is filed by the highest base-64 digit in which its expiry differs from w->now: that
 * digit's place is the level, its value the slot. So all timers of one tick sit in one slot
 * (which keeps them first in, first out), everything on a level is due before anything on the
 * level above, and no slot ever holds more than one turn of its level.
 */
#ifndef UWARP_BASE_WHEEL_H
#define UWARP_BASE_WHEEL_H

#include "base/types.h"

#define WHEEL_BITS 6
#define WHEEL_SLOTS (1u << WHEEL_BITS)
#define WHEEL_LEVELS 7 /* 2^42 ticks; what lies beyond is clamped and re-filed */
#define WHEEL_TOP (WHEEL_LEVELS - 1)
#define WHEEL_TOP_SHIFT (WHEEL_TOP * WHEEL_BITS)

struct wheel_timer {
	TAILQ_ENTRY(wheel_timer) entry;
	u64 expires;   /* tick at which it is due */
	u16 slot;      /* level * WHEEL_SLOTS + slot; only valid while armed */
	bool armed;    /* written with the owner's lock held; an atomic peek without it is allowed */
};
TAILQ_HEAD(wheel_list, wheel_timer);

struct wheel {
	u64 now;                  /* every timer with expires < now has been handed out */
	u64 occupied[WHEEL_LEVELS]; /* bitmap of slots that hold a timer */
	size_t count;
	/* The level 0 slot of "now" holds what is due and not handed out yet. */
	struct wheel_list slot[WHEEL_LEVELS * WHEEL_SLOTS];
};

void wheel_init(struct wheel *w, u64 now);

/* Where a timer with deadline @expires belongs, seen from w->now. */
static inline unsigned int wheel_place(const struct wheel *w, u64 expires)
{
	unsigned int level;
	u64 turns;

	if (unlikely(expires <= w->now))
		return w->now % WHEEL_SLOTS;
	level = (63 - (unsigned int)__builtin_clzll(expires ^ w->now)) / WHEEL_BITS;
	if (likely(level < WHEEL_TOP))
		return level * WHEEL_SLOTS + (expires >> (level * WHEEL_BITS)) % WHEEL_SLOTS;
	/* The top level has no level above it to carry into: it is a ring. */
	turns = (expires >> WHEEL_TOP_SHIFT) - (w->now >> WHEEL_TOP_SHIFT);
	if (turns >= WHEEL_SLOTS)
		turns = WHEEL_SLOTS - 1;
	return WHEEL_TOP * WHEEL_SLOTS + ((w->now >> WHEEL_TOP_SHIFT) + turns) % WHEEL_SLOTS;
}

/**
 * wheel_del() - disarm a timer
 * @w: the wheel
 * @t: timer, armed on @w or not armed at all (then nothing happens)
 */
static inline void wheel_del(struct wheel *w, struct wheel_timer *t)
{
	struct wheel_list *list;

	if (!t->armed)
		return;
	list = &w->slot[t->slot];
	TAILQ_REMOVE(list, t, entry);
	if (TAILQ_EMPTY(list))
		w->occupied[t->slot / WHEEL_SLOTS] &= ~(1ull << (t->slot % WHEEL_SLOTS));
	__atomic_store_n(&t->armed, false, __ATOMIC_RELAXED);
	w->count--;
}

/**
 * wheel_add() - arm a timer, or move an armed one
 * @w: the wheel
 * @t: timer, zeroed before its first use
 * @expires: tick at which it is due; one that is not after w->now is due at the next
 *	wheel_expire(), behind what is due already
 */
static inline void wheel_add(struct wheel *w, struct wheel_timer *t, u64 expires)
{
	unsigned int place = wheel_place(w, expires);

	wheel_del(w, t);
	t->expires = expires;
	t->slot = (u16)place;
	__atomic_store_n(&t->armed, true, __ATOMIC_RELAXED);
	TAILQ_INSERT_TAIL(&w->slot[place], t, entry);
	w->occupied[place / WHEEL_SLOTS] |= 1ull << (place % WHEEL_SLOTS);
	w->count++;
}

/*
 * Move to tick @now (never backwards) and hand out ONE due timer, disarmed, or NULL when
 * none is left. Timers come in order of their expiry tick; within a tick in the order added
 * (deadlines that were ever more than 2^42 - 2^36 ticks away may swap within their tick).
 */
struct wheel_timer *wheel_expire(struct wheel *w, u64 now);
/*
 * A tick no later than the earliest deadline and later than w->now, w->now itself while
 * timers are due, or UINT64_MAX when empty. May be early (the start of a coarse slot), never late.
 */
u64 wheel_next(const struct wheel *w);

#endif
