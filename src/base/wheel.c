/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base: hierarchical timer wheel; how timers are filed is told in wheel.h. */
#include "base/wheel.h"

/**
 * wheel_init() - empty wheel
 * @w: the wheel
 * @now: the current tick
 */
void wheel_init(struct wheel *w, u64 now)
{
	unsigned int i;

	*w = (struct wheel){ .now = now };
	for (i = 0; i < ARRAY_SIZE(w->slot); i++)
		TAILQ_INIT(&w->slot[i]);
}

/* The first slot after w->now on @level that holds a timer, and the tick at which it starts. */
static bool next_on_level(const struct wheel *w, unsigned int level, unsigned int *slot, u64 *tick)
{
	unsigned int shift = level * WHEEL_BITS;
	u64 place = w->now >> shift;
	u64 later = w->occupied[level] & (~0ull << (place % WHEEL_SLOTS) << 1);
	unsigned int digit;

	if (!later)
		return false;
	digit = (unsigned int)__builtin_ctzll(later);
	*slot = level * WHEEL_SLOTS + digit;
	*tick = (place / WHEEL_SLOTS * WHEEL_SLOTS + digit) << shift;
	return true;
}

/* The same for the top level, a ring that starts behind the current slot (always empty itself). */
static bool next_on_top(const struct wheel *w, unsigned int *slot, u64 *tick)
{
	u64 place = (w->now >> WHEEL_TOP_SHIFT) + 1;
	unsigned int turn = place % WHEEL_SLOTS;
	u64 ring = w->occupied[WHEEL_TOP];

	if (!ring)
		return false;
	ring = ring >> turn | ring << (-turn % WHEEL_SLOTS);
	place += (unsigned int)__builtin_ctzll(ring);
	*slot = WHEEL_TOP * WHEEL_SLOTS + place % WHEEL_SLOTS;
	*tick = place << WHEEL_TOP_SHIFT;
	return true;
}

/* All of a level is due before anything on the level above: the first hit is the earliest. */
static bool next_slot(const struct wheel *w, unsigned int *slot, u64 *tick)
{
	unsigned int level;

	for (level = 0; level < WHEEL_TOP; level++)
		if (next_on_level(w, level, slot, tick))
			return true;
	return next_on_top(w, slot, tick);
}

/* w->now has reached the start of @slot: file its timers anew, in their order. */
static void cascade(struct wheel *w, unsigned int slot)
{
	struct wheel_list list = TAILQ_HEAD_INITIALIZER(list);
	struct wheel_timer *t, *next;
	unsigned int place;

	TAILQ_CONCAT(&list, &w->slot[slot], entry);
	w->occupied[slot / WHEEL_SLOTS] &= ~(1ull << (slot % WHEEL_SLOTS));
	TAILQ_FOREACH_SAFE(t, &list, entry, next) {
		place = wheel_place(w, t->expires);
		t->slot = (u16)place;
		TAILQ_INSERT_TAIL(&w->slot[place], t, entry);
		w->occupied[place / WHEEL_SLOTS] |= 1ull << (place % WHEEL_SLOTS);
	}
}

/**
 * wheel_expire() - advance, and take one due timer
 * @w: the wheel
 * @now: tick to move to; one before w->now counts as w->now
 *
 * Call until it returns NULL. Timers may be added and deleted between calls: w->now stands at
 * the tick being handed out, so a timer added for a tick up to @now still comes in its order.
 * The cost is that of the occupied slots on the way, whatever the distance.
 *
 * Return: a due timer, disarmed, the earliest first and in the order added within a tick;
 * NULL when none is left, w->now is then @now.
 */
struct wheel_timer *wheel_expire(struct wheel *w, u64 now)
{
	struct wheel_timer *t;
	unsigned int slot;
	u64 tick;

	while (!(t = TAILQ_FIRST(&w->slot[w->now % WHEEL_SLOTS]))) {
		if (w->now >= now)
			return NULL;
		if (!next_slot(w, &slot, &tick) || tick > now) {
			w->now = now;
			return NULL;
		}
		w->now = tick;
		if (slot >= WHEEL_SLOTS)
			cascade(w, slot);
	}
	wheel_del(w, t);
	return t;
}

/**
 * wheel_next() - when to look again
 * @w: the wheel
 *
 * Return: a tick no later than the earliest deadline: w->now while timers are due, else a later
 * one, which may be the start of a coarse slot; UINT64_MAX when no timer is armed.
 */
u64 wheel_next(const struct wheel *w)
{
	unsigned int slot;
	u64 tick;

	if (!TAILQ_EMPTY(&w->slot[w->now % WHEEL_SLOTS]))
		return w->now;
	return next_slot(w, &slot, &tick) ? tick : UINT64_MAX;
}
