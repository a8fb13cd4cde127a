// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Whole connections between two CMs on the wire port. */
#include "cm_fixture.h"

struct run {
	u8 gen;
	bool ipv4;
};

static const struct run runs[] = { { IRDMA_GEN_1, true }, { IRDMA_GEN_2, true }, { IRDMA_GEN_1, false }, { IRDMA_GEN_2, false } };

#define FOR_RUNS(r) for (const struct run *r = runs; r < runs + ARRAY_SIZE(runs); r++)

static void accepted_and_closed(void **state)
{
	FOR_RUNS(r) {
		struct fx fx;
		struct endpoint l, c, a;

		fx_up(&fx, r->gen, 1);
		ep_init(&l, &fx, 1);
		ep_init(&a, &fx, 1);
		ep_init(&c, &fx, 0);
		l.child = &a;
		c.param.private_data = "hello";
		c.param.private_data_len = 5;
		ep_listen(&fx, &l, 1, r->ipv4, 7000);
		assert_int_equal(ep_connect(&c, 0, 1, r->ipv4, 5000, 7000), 0);
		fx_run(&fx, 100);
		assert_int_equal(l.nevents, 1);
		assert_int_equal(l.ev[0].event, IW_CM_EVENT_CONNECT_REQUEST);
		assert_int_equal(l.ev[0].private_data_len, 5);
		assert_memory_equal(l.pdata[0], "hello", 5);
		a.param.private_data = "welcome";
		a.param.private_data_len = 7;
		assert_int_equal(irdma_accept(&a.id, &a.param), 0);
		fx_run(&fx, 100);
		assert_int_equal(c.nevents, 1);
		assert_int_equal(c.ev[0].event, IW_CM_EVENT_CONNECT_REPLY);
		assert_int_equal(c.ev[0].status, 0);
		assert_memory_equal(c.pdata[0], "welcome", 7);
		assert_int_equal(a.nevents, 1);
		assert_int_equal(a.ev[0].event, IW_CM_EVENT_ESTABLISHED);
		assert_int_equal(cm_disconnect(&c.id, false), 0);
		fx_run(&fx, 1000);
		assert_int_equal(c.nevents, 3);
		assert_int_equal(c.ev[1].event, IW_CM_EVENT_DISCONNECT);
		assert_int_equal(c.ev[2].event, IW_CM_EVENT_CLOSE);
		assert_int_equal(a.nevents, 3);
		assert_int_equal(a.ev[1].event, IW_CM_EVENT_DISCONNECT);
		assert_int_equal(a.ev[1].status, 0);
		ep_fini(&fx, &c);
		ep_fini(&fx, &a);
		assert_int_equal(irdma_destroy_listen(&l.id), 0);
		ep_fini(&fx, &l);
		fx_down(&fx);
	}
}

static void rejected(void **state)
{
	FOR_RUNS(r) {
		struct fx fx;
		struct endpoint l, c, a;

		fx_up(&fx, r->gen, 2);
		ep_init(&l, &fx, 1);
		ep_init(&a, &fx, 1);
		ep_init(&c, &fx, 0);
		l.child = &a;
		ep_listen(&fx, &l, 1, r->ipv4, 7000);
		assert_int_equal(ep_connect(&c, 0, 1, r->ipv4, 5000, 7000), 0);
		fx_run(&fx, 100);
		assert_int_equal(irdma_reject(&a.id, "no", 2), 0);
		fx_run(&fx, 200000);
		assert_int_equal(c.nevents, 1);
		assert_int_equal(c.ev[0].status, -ECONNREFUSED);
		assert_int_equal(c.ev[0].neg.cause, CM_CAUSE_REJECTED);
		assert_int_equal(c.ev[0].private_data_len, 2);
		assert_int_equal(a.nevents, 0);
		for (int i = 0; i < 2; i++) {
			struct cm_stats st;

			cm_get_stats(fx.host[i].dev, &st);
			assert_int_equal(st.nodes_now, 0);
		}
		ep_fini(&fx, &c);
		ep_fini(&fx, &a);
		irdma_destroy_listen(&l.id);
		ep_fini(&fx, &l);
		fx_down(&fx);
	}
}

static void refused(void **state)
{
	FOR_RUNS(r) {
		struct fx fx;
		struct endpoint c;

		fx_up(&fx, r->gen, 3);
		ep_init(&c, &fx, 0);
		assert_int_equal(ep_connect(&c, 0, 1, r->ipv4, 5000, 7000), 0);
		fx_run(&fx, 100);
		assert_int_equal(c.nevents, 1);
		assert_int_equal(c.ev[0].status, -ECONNREFUSED);
		assert_int_equal(c.ev[0].neg.cause, CM_CAUSE_REFUSED);
		ep_fini(&fx, &c);
		fx_down(&fx);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepted_and_closed),
		cmocka_unit_test(rejected),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
