// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* cm: the recount of a core's books: right in every state, and wrong as soon as one thing is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cm_states.h"

/* Without the reference that the test has. */
static bool audit(struct env *e, char why[160])
{
	bool ok;

	why[0] = '\0';
	e->p.node->refcount--;
	ok = cm_audit(e->p.dev, why, 160);
	e->p.node->refcount++;
	return ok;
}

static void books_are_right_in_every_state(void **state)
{
	static const enum irdma_cm_node_state states[] = {
		ST(SYN_SENT), ST(MPAREQ_SENT), ST(OFFLOADED), ST(SYN_RCVD), ST(ESTABLISHED), ST(MPAREQ_RCVD), ST(FIN_WAIT1), ST(FIN_WAIT2), ST(CLOSING), ST(TIME_WAIT),
		ST(LAST_ACK), ST(LISTENER_DESTROYED), ST(CLOSED),
	};
	char why[160];
	struct env e;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(states); i++) {
		env_up(&e, i % 2 ? IRDMA_GEN_1 : IRDMA_GEN_2, true);
		env_goto(&e, states[i]);
		if (!audit(&e, why))
			fail_msg("%s: %s", cm_node_state_str(states[i]), why);
		env_down(&e);
	}
}

static void expect(struct env *e, const char *part)
{
	char why[160];

	assert_false(audit(e, why));
	if (!strstr(why, part))
		fail_msg("\"%s\" is found, not \"%s\"", why, part);
}

static void wrong_counts_are_found(void **state)
{
	struct irdma_cm_listener *l;
	struct irdma_cm_node *node;
	struct cm_stats *s;
	char why[160];
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(MPAREQ_RCVD));
	node = e.p.node;
	l = node->listener;
	s = &env_core(&e)->stats;
	node->refcount++;
	expect(&e, "a node in MPAREQ_RCVD has 3 references, not 2");
	node->refcount -= 2;
	expect(&e, "a node in MPAREQ_RCVD has 1 references, not 2");
	node->refcount++;
	l->refcnt++;
	expect(&e, "has 3 references, not 2");
	l->refcnt--;
	l->pending++;
	expect(&e, "counts 2 connections in its backlog, not 1");
	l->pending--;
	s->nodes_now++;
	expect(&e, "1 nodes are there, 2 are counted");
	s->nodes_now--;
	s->half_open_now++;
	expect(&e, "0 nodes are half open, 1 are counted");
	s->half_open_now--;
	e.p.dev->vsi.small.used++;
	expect(&e, "ILQ buffers are out");
	e.p.dev->vsi.small.used--;
	assert_true(audit(&e, why));
	env_down(&e);
}

static void wrong_places_are_found(void **state)
{
	struct irdma_cm_node *node;
	char why[160];
	struct env e;

	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(MPAREQ_RCVD));
	node = e.p.node;
	node->hashed = false;
	expect(&e, "a node in MPAREQ_RCVD is not in the table");
	node->hashed = true;
	node->on_silent = true;
	expect(&e, "a node in MPAREQ_RCVD counts as silent");
	node->on_silent = false;
	node->on_half_open = true;
	expect(&e, "a node in MPAREQ_RCVD counts as half open");
	node->on_half_open = false;
	assert_true(audit(&e, why));
	env_down(&e);
	env_up(&e, IRDMA_GEN_2, true);
	env_goto(&e, ST(CLOSED));
	e.p.node->close_at_ns = 1;
	expect(&e, "a node that is CLOSED has a deadline");
	e.p.node->close_at_ns = 0;
	env_down(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(books_are_right_in_every_state),
		cmocka_unit_test(wrong_counts_are_found),
		cmocka_unit_test(wrong_places_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
