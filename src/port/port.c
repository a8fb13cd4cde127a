/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port: taps, the same for every port. One lock for all ports of the process orders what is shown,
 * so that a tap is never in two calls at once even if it is added to several ports; ports that
 * are stepped by one thread may walk their list without it.
 */
#include "port/host_internal.h"

static pthread_mutex_t taps_mutex = PTHREAD_MUTEX_INITIALIZER;

/**
 * port_taps_lock() - keep the lists of taps as they are
 *
 * Also orders what a port shows with what it does: a port holds it around both.
 */
void port_taps_lock(void)
{
	pthread_mutex_lock(&taps_mutex);
}

/**
 * port_taps_unlock() - end of what port_taps_lock() began
 */
void port_taps_unlock(void)
{
	pthread_mutex_unlock(&taps_mutex);
}

/**
 * port_is_tapped() - is there anybody to show segments to?
 * @p: the port
 *
 * One load, so that it can be asked for every segment.
 *
 * Return: true if a tap is attached.
 */
bool port_is_tapped(const struct port *p)
{
	return __atomic_load_n(&p->taps.tqh_first, __ATOMIC_RELAXED);
}

/**
 * port_taps_show() - show a segment to the taps of a port
 * @p: the port
 * @out: it is one that the port sent
 * @pkt: the frame, decoded
 * @now_ns: time of the loop's clock
 *
 * Called with port_taps_lock() held.
 */
void port_taps_show(struct port *p, bool out, const struct pkt *pkt, u64 now_ns)
{
	struct port_tap *t, *next;

	TAILQ_FOREACH_SAFE(t, &p->taps, entry, next)
		t->frame(t, p, out, pkt, now_ns);
}

/* TAILQ_INSERT_TAIL and TAILQ_REMOVE, but for port_is_tapped(), which looks without the lock. */

static void link_tap(struct port *p, struct port_tap *t)
{
	t->entry.tqe_next = NULL;
	t->entry.tqe_prev = p->taps.tqh_last;
	__atomic_store_n(p->taps.tqh_last, t, __ATOMIC_RELAXED);
	p->taps.tqh_last = &t->entry.tqe_next;
}

static void unlink_tap(struct port *p, struct port_tap *t)
{
	if (t->entry.tqe_next)
		t->entry.tqe_next->entry.tqe_prev = t->entry.tqe_prev;
	else
		p->taps.tqh_last = t->entry.tqe_prev;
	__atomic_store_n(t->entry.tqe_prev, t->entry.tqe_next, __ATOMIC_RELAXED);
}

/**
 * port_tap_add() - attach a tap
 * @p: the port
 * @t: its frame function is set; called from whatever thread a segment passes in, one at a time. It
 *     must not call the port, nor attach or detach taps
 */
void port_tap_add(struct port *p, struct port_tap *t)
{
	port_taps_lock();
	link_tap(p, t);
	port_taps_unlock();
}

/**
 * port_tap_del() - detach a tap
 * @p: the port
 * @t: a tap of that port; its function is not called after this returns
 */
void port_tap_del(struct port *p, struct port_tap *t)
{
	port_taps_lock();
	unlink_tap(p, t);
	port_taps_unlock();
}
