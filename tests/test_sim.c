// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: simulations, small ones, in both generations: clean, faulty, with sides that vanish; the same seed gives the same run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "tool/sim_damage.c"
#include "tool/sim_engine.c"
#include "tool/sim_side.c"
#include "capture_dir.h"

static const struct tool_sim_params clean = {
	.nodes = 4, .connections = 500, .seed = 1, .gen = IRDMA_GEN_2, .ipv4 = true, .ipv6 = true, .latency_ns = 50000,
};

static const struct tool_sim_params faulty = {
	.nodes = 5, .connections = 1500, .seed = 1, .gen = IRDMA_GEN_2, .ipv4 = true, .ipv6 = true, .latency_ns = 50000,
	.loss = 0.05, .reorder = 0.05, .duplicate = 0.02, .corrupt = 0.01, .reject = 0.1, .destroy = 0.1,
};

static void go(const struct tool_sim_params *params, struct tool_sim_result *r)
{
	struct tool_sim_params copy = *params, *p = &copy;

	if (!p->capture)
		p->capture = test_capture_open();
	assert_int_equal(tool_sim_run(p, r), 0);
	test_capture_close();
	if (r->violations)
		fail_msg("seed %llu, generation %u: %llu checks failed, the first: %s", (unsigned long long)p->seed, p->gen,
			 (unsigned long long)r->violations, r->first_violation);
}

static void test_clean(void **state)
{
	struct tool_sim_params p = clean;
	struct tool_sim_result r;

	for (p.gen = IRDMA_GEN_1; p.gen <= IRDMA_GEN_2; p.gen++)
		for (p.seed = 1; p.seed <= 3; p.seed++) {
			go(&p, &r);
			assert_int_equal(r.started, p.connections);
			assert_true(r.pairs[SIM_ESTABLISHED][SIM_ESTABLISHED] > p.connections / 2);
			assert_int_equal(r.stats.retransmits, 0);
			assert_int_equal(r.wire.lost + r.wire.corrupted + r.wire.duplicated, 0);
		}
}

static void test_reject_all(void **state)
{
	struct tool_sim_params p = clean;
	struct tool_sim_result r;

	p.reject = 1;
	go(&p, &r);
	assert_true(r.pairs[SIM_REJECTED][SIM_REJECTED] > p.connections / 2);
	assert_int_equal(r.pairs[SIM_ESTABLISHED][SIM_ESTABLISHED], 0);
}

static void test_one_family(void **state)
{
	struct tool_sim_params p = clean;
	struct tool_sim_result r;

	p.ipv6 = false;
	go(&p, &r);
	p.ipv6 = true;
	p.ipv4 = false;
	go(&p, &r);
}

static void test_faulty(void **state)
{
	struct tool_sim_params p = faulty;
	struct tool_sim_result r;

	for (p.gen = IRDMA_GEN_1; p.gen <= IRDMA_GEN_2; p.gen++)
		for (p.seed = 10; p.seed < 14; p.seed++) {
			go(&p, &r);
			assert_int_equal(r.started, p.connections);
			assert_true(r.pairs[SIM_ESTABLISHED][SIM_ESTABLISHED] > 0);
			assert_true(r.wire.lost && r.wire.duplicated && r.wire.reordered && r.wire.corrupted);
			assert_true(r.stats.retransmits > 0);
		}
}

/* Most frames do not arrive. */
static void test_storm(void **state)
{
	struct tool_sim_params p = faulty;
	struct tool_sim_result r;

	p.connections = 300;
	p.loss = 0.4;
	p.reorder = 0.5;
	p.duplicate = 0.5;
	p.corrupt = 0.3;
	go(&p, &r);
}

static void test_all_vanish(void **state)
{
	struct tool_sim_params p = faulty;
	struct tool_sim_result r;

	p.destroy = 1;
	go(&p, &r);
}

static void test_repeats(void **state)
{
	struct tool_sim_params p = faulty;
	struct tool_sim_result a, b, c;

	for (p.gen = IRDMA_GEN_1; p.gen <= IRDMA_GEN_2; p.gen++) {
		p.seed = 77;
		go(&p, &a);
		go(&p, &b);
		assert_true(a.digest == b.digest && a.events == b.events && a.virtual_ns == b.virtual_ns);
		assert_memory_equal(&a.wire, &b.wire, sizeof(a.wire));
		assert_memory_equal(a.pairs, b.pairs, sizeof(a.pairs));
		p.seed = 78;
		go(&p, &c);
		assert_true(a.digest != c.digest);
	}
}

static void test_duration(void **state)
{
	struct tool_sim_params p = clean;
	struct tool_sim_result r;

	p.connections = 1000000;
	p.duration_ns = 20 * NSEC_PER_MSEC;
	go(&p, &r);
	assert_true(r.started > 0 && r.started < p.connections);
}

static void test_captured(void **state)
{
	char path[] = "/tmp/test_sim.XXXXXX", err[128];
	struct tool_sim_params p = clean;
	struct tool_sim_result r;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	p.connections = 20;
	assert_int_equal(port_capture_open(path, &p.capture, err, sizeof(err)), 0);
	go(&p, &r);
	assert_int_equal(port_capture_close(p.capture), 0);
	assert_true(lseek(fd, 0, SEEK_END) > 1000);
	close(fd);
	unlink(path);
}

static void test_bad_params(void **state)
{
	struct tool_sim_params p = clean;
	struct tool_sim_result r;

	p.nodes = 1;
	assert_int_equal(tool_sim_run(&p, &r), -EINVAL);
	p.nodes = 2;
	p.ipv4 = p.ipv6 = false;
	assert_int_equal(tool_sim_run(&p, &r), -EINVAL);
	assert_string_equal(tool_sim_outcome_str(SIM_REJECTED), "rejected");
	assert_string_equal(tool_sim_outcome_str(SIM_OUTCOMES), "?");
}

/* The set behind the search for damage. */
static void test_set(void **state)
{
	struct sim_set set = { 0 };
	u64 i;

	assert_false(set_has(&set, 5));
	for (i = 0; i < 5000; i++)
		set_add(&set, mix(i));
	for (i = 0; i < 5000; i++)
		assert_true(set_has(&set, mix(i)));
	for (i = 5000; i < 6000; i++)
		assert_false(set_has(&set, mix(i)));
	sim_set_free(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clean),
		cmocka_unit_test(test_reject_all),
		cmocka_unit_test(test_one_family),
		cmocka_unit_test(test_faulty),
		cmocka_unit_test(test_storm),
		cmocka_unit_test(test_all_vanish),
		cmocka_unit_test(test_repeats),
		cmocka_unit_test(test_duration),
		cmocka_unit_test(test_captured),
		cmocka_unit_test(test_bad_params),
		cmocka_unit_test(test_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
