// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: do the simulation's invariants see anything? Each mutant is a simulation in which one function breaks one rule, from its N-th call on or at it; the functions are
 * wrapped by the linker (tests/meson.build), so the code itself has no place for that. For each: what must be found, and that without the mutant the same run is clean.
 *
 * Each run is a process of its own: what comes after a broken rule may well be a crash.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "cm/cm_internal.h"
#include "port/wire_internal.h"
#include "rnic/verbs_internal.h"
#include "tool/sim_command.h"
#include "tool/sim_world.h"

static const char *mutant;      /* the one that is at work, or NULL */
static u64 calls, when;
static bool *spent;             /* shared by all runs: it has had its turn, and there is one only; or NULL */

/* Is it @name's turn? */
static bool breaks(const char *name)
{
	if (!mutant || strcmp(mutant, name) || ++calls != when)
		return false;
	return !spent || !__atomic_exchange_n(spent, true, __ATOMIC_RELAXED);
}

static bool breaks_from_here(const char *name)
{
	return mutant && !strcmp(mutant, name) && ++calls >= when;
}

/* ---- states ---- */

void __real_cm_node_set_state(struct irdma_cm_node *node, enum irdma_cm_node_state next);
void __wrap_cm_node_set_state(struct irdma_cm_node *node, enum irdma_cm_node_state next);

static void report(const struct irdma_cm_node *node, const char *from, const char *to)
{
	struct pkt_tuple t;

	cm_node_tuple(node, &t);
	node->cm_core->trace.state(node->cm_core->trace.ctx, node, &t, from, to, 0);
}

void __wrap_cm_node_set_state(struct irdma_cm_node *node, enum irdma_cm_node_state next)
{
	struct cm_stats *s = &node->cm_core->stats;
	bool offloaded = node->state == IRDMA_CM_STATE_OFFLOADED;

	if (next == IRDMA_CM_STATE_ESTABLISHED && breaks("state written by another hand")) {
		node->state = IRDMA_CM_STATE_MPAREQ_RCVD;
		next = IRDMA_CM_STATE_ACCEPTING;
	}
	if (offloaded && breaks("step that is not legal"))
		report(node, "OFFLOADED", "TIME_WAIT");
	if (next == IRDMA_CM_STATE_SYN_SENT && breaks("level that is wrong"))
		s->nodes_now++;
	if (offloaded && node->active && breaks("counter that goes back"))
		s->connects--;
	if (next == IRDMA_CM_STATE_OFFLOADED && breaks("accept counted twice"))
		s->accepts++;
	__real_cm_node_set_state(node, next);
}

/* ---- references ---- */

void __real_cm_node_hold(struct irdma_cm_node *node);
void __wrap_cm_node_hold(struct irdma_cm_node *node);
void __real_irdma_rem_ref_cm_node(struct irdma_cm_node *node);
void __wrap_irdma_rem_ref_cm_node(struct irdma_cm_node *node);
void __real_irdma_free_sqbuf(struct irdma_sc_vsi *vsi, void *bufp);
void __wrap_irdma_free_sqbuf(struct irdma_sc_vsi *vsi, void *bufp);
void __real_rnic_apbvt_del(struct irdma_device *iwdev, bool ipv4, const u32 *addr, u16 number);
void __wrap_rnic_apbvt_del(struct irdma_device *iwdev, bool ipv4, const u32 *addr, u16 number);

void __wrap_cm_node_hold(struct irdma_cm_node *node)
{
	if (breaks("reference too many"))
		__real_cm_node_hold(node);
	__real_cm_node_hold(node);
}

void __wrap_irdma_rem_ref_cm_node(struct irdma_cm_node *node)
{
	if (!breaks("reference not given back"))
		__real_irdma_rem_ref_cm_node(node);
}

void __wrap_irdma_free_sqbuf(struct irdma_sc_vsi *vsi, void *bufp)
{
	if (!breaks("frame not given back"))
		__real_irdma_free_sqbuf(vsi, bufp);
}

void __wrap_rnic_apbvt_del(struct irdma_device *iwdev, bool ipv4, const u32 *addr, u16 number)
{
	if (!breaks("port number not given back"))
		__real_rnic_apbvt_del(iwdev, ipv4, addr, number);
}

/* ---- events ---- */

void __real_sim_on_event(void *arg, const struct iwcm_event *ev);
void __wrap_sim_on_event(void *arg, const struct iwcm_event *ev);
void __real_cm_node_negotiated(const struct irdma_cm_node *node, struct cm_negotiated *out);
void __wrap_cm_node_negotiated(const struct irdma_cm_node *node, struct cm_negotiated *out);

/* What the program gets, in place of what there was. */
void __wrap_sim_on_event(void *arg, const struct iwcm_event *ev)
{
	struct iwcm_event other = *ev;

	if ((ev->type == IWCM_EVENT_DISCONNECTED && breaks("DISCONNECTED lost")) || (ev->type == IWCM_EVENT_CLOSED && breaks("CLOSED lost")) ||
	    (ev->type == IWCM_EVENT_ESTABLISHED && breaks("ESTABLISHED lost")))
		return;
	if ((ev->type == IWCM_EVENT_DISCONNECTED && breaks("DISCONNECTED twice")) || (ev->type == IWCM_EVENT_ESTABLISHED && breaks("ESTABLISHED twice")) ||
	    (ev->type == IWCM_EVENT_CLOSED && breaks("event of an id that was destroyed")))
		__real_sim_on_event(arg, ev);
	if (ev->type == IWCM_EVENT_DISCONNECTED && breaks("CLOSED before DISCONNECTED"))
		other.type = IWCM_EVENT_CLOSED;
	if (ev->type == IWCM_EVENT_CONNECT_REQUEST && breaks("private data of another"))
		other.private_data[ev->private_data_len - 1] ^= 1;
	__real_sim_on_event(arg, &other);
}

void __wrap_cm_node_negotiated(const struct irdma_cm_node *node, struct cm_negotiated *out)
{
	__real_cm_node_negotiated(node, out);
	if (node->state == IRDMA_CM_STATE_OFFLOADED && !node->active && breaks_from_here("terms that differ"))
		out->crc = !out->crc;
}

/* ---- segments ---- */

void __real_irdma_receive_ilq(struct irdma_sc_vsi *vsi, struct irdma_puda_buf *rbuf);
void __wrap_irdma_receive_ilq(struct irdma_sc_vsi *vsi, struct irdma_puda_buf *rbuf);
void __real_wire_receive(struct wire_port *p, const struct wire_frame *f);
void __wrap_wire_receive(struct wire_port *p, const struct wire_frame *f);

/* Takes any RST for one that is at the next sequence number. */
static void trust(struct irdma_sc_vsi *vsi, struct irdma_puda_buf *rbuf, struct pkt *copy)
{
	struct irdma_cm_core *core = container_of(vsi, struct irdma_device, vsi)->cm_core;
	struct irdma_cm_node *node;

	*copy = *rbuf->pkt;
	cm_lock(core);
	node = irdma_find_node(core, copy->sport, copy->src, copy->dport, copy->dst, copy->vlan_id);
	if (node) {
		copy->seq = node->tcp_cntxt.rcv_nxt;
		irdma_rem_ref_cm_node(node);
		rbuf->pkt = copy;
	}
	cm_unlock(core);
}

void __wrap_irdma_receive_ilq(struct irdma_sc_vsi *vsi, struct irdma_puda_buf *rbuf)
{
	struct pkt copy;

	if ((rbuf->pkt->flags & PKT_RST) && breaks_from_here("RST believed"))
		trust(vsi, rbuf, &copy);
	__real_irdma_receive_ilq(vsi, rbuf);
}

void __wrap_wire_receive(struct wire_port *p, const struct wire_frame *f)
{
	if (breaks("frame that disappears"))
		return;
	__real_wire_receive(p, f);
	if (breaks_from_here("NIC that talks to itself"))
		port_wire_inject(p->wire, f->data, f->len, NSEC_PER_USEC);
}

/* ---- data ---- */

enum rnic_mem_status __real_rnic_mem_get(const struct irdma_qp *qp, u32 stag, u64 addr, u64 len, int access, struct rnic_mem *out);
enum rnic_mem_status __wrap_rnic_mem_get(const struct irdma_qp *qp, u32 stag, u64 addr, u64 len, int access, struct rnic_mem *out);
bool __real_rnic_cq_push(struct rnic_cq *cq, const struct rnic_cqe *cqe);
bool __wrap_rnic_cq_push(struct rnic_cq *cq, const struct rnic_cqe *cqe);

enum rnic_mem_status __wrap_rnic_mem_get(const struct irdma_qp *qp, u32 stag, u64 addr, u64 len, int access, struct rnic_mem *out)
{
	enum rnic_mem_status st = __real_rnic_mem_get(qp, stag, addr, len, access, out);

	if (st == RNIC_MEM_OK && access == IBV_ACCESS_REMOTE_WRITE && breaks("byte in a wrong place"))
		out->ptr++;
	return st;
}

bool __wrap_rnic_cq_push(struct rnic_cq *cq, const struct rnic_cqe *cqe)
{
	struct rnic_cqe other = *cqe;

	if (cqe->wc.status == IBV_WC_SUCCESS && breaks("completion lost"))
		return true;
	if (cqe->wc.status == IBV_WC_SUCCESS && breaks("completion twice"))
		__real_rnic_cq_push(cq, cqe);
	if (cqe->wc.status == IBV_WC_SUCCESS && cqe->wc.opcode == IBV_WC_RECV && breaks("length that is wrong"))
		other.wc.byte_len++;
	return __real_rnic_cq_push(cq, &other);
}

/* ---- all of them ---- */

static const struct tool_sim_params params = {
	.nodes = 4, .connections = 300, .seed = 5, .gen = IRDMA_GEN_2, .ipv4 = true, .ipv6 = true, .latency_ns = 50000, .data = 0.5, .largest = 20000,
	.reject = 0.1, .attack = 0.5, .paranoid = true, .stop_at_violation = true,
};

/* cmocka would catch the signal and go on with the next test, in that process, too. */
static void let_crash(void)
{
	static const int signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(signals); i++)
		signal(signals[i], SIG_DFL);
}

static int one_run(void *arg, u64 *heartbeat, struct tool_sim_result *r)
{
	struct tool_sim_params p = params;

	let_crash();
	p.heartbeat = heartbeat;
	return tool_sim_run(&p, r);
}

static void run_mutant(const char *name, u64 at, struct tool_sim_result *r)
{
	const struct sim_guarded g = { .run = one_run, .quiet = true };

	mutant = name;
	calls = 0;
	when = at;
	assert_int_equal(sim_guard_run(&g, r), 0);
}

static const struct {
	const char *name;
	u64 at;
	const char *found;      /* in the first thing that is found */
} mutants[] = {
	{ "state written by another hand", 50, "states: a node goes from MPAREQ_RCVD to ACCEPTING, but was in SYN_RCVD" },
	{ "step that is not legal", 50, "states: a node goes from OFFLOADED to TIME_WAIT" },
	{ "level that is wrong", 50, "counters: host" },
	{ "counter that goes back", 50, "goes back" },
	{ "accept counted twice", 50, "accepts counted: " },
	{ "reference too many", 200, "books: host" },
	{ "reference not given back", 200, "books: host" },
	{ "frame not given back", 50, "keeps" },
	{ "port number not given back", 20, "port reservations are left" },
	{ "DISCONNECTED lost", 30, "side: CLOSED while it is established" },
	{ "DISCONNECTED twice", 30, "side: DISCONNECTED while it is disconnected" },
	{ "ESTABLISHED lost", 30, "side: DISCONNECTED while it is" },
	{ "ESTABLISHED twice", 30, "side: ESTABLISHED while it is established" },
	{ "event of an id that was destroyed", 30, "of an id that was destroyed" },
	{ "private data of another", 30, "private data of kind 0 is not what was sent" },
	{ "CLOSED before DISCONNECTED", 30, "side: CLOSED while it is established" },
	{ "CLOSED lost", 30, "pace: " },
	{ "terms that differ", 1, "the sides disagree" },
	{ "RST believed", 1, "on a clean wire" },
	{ "frame that disappears", 500, "frames: " },
	{ "NIC that talks to itself", 3000, "pace: " },
	{ "byte in a wrong place", 20, "wrong from byte" },
	{ "completion lost", 100, "connection" },
	{ "completion twice", 100, "connection" },
	{ "length that is wrong", 20, "of the peer: opcode" },
};

static void test_nothing_broken(void **state)
{
	struct tool_sim_result r;

	run_mutant(NULL, 0, &r);
	assert_string_equal(r.first_violation, "");
	assert_int_equal(r.started, params.connections);
}

static void test_mutants(void **state)
{
	struct tool_sim_result r;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(mutants); i++) {
		run_mutant(mutants[i].name, mutants[i].at, &r);
		if (!r.violations || !strstr(r.first_violation, mutants[i].found))
			fail_msg("%s: what is found is \"%s\"", mutants[i].name, r.first_violation);
	}
}

/* What is found by one is found again, in the same place, and is made small. */
static int try_mutant(const struct tool_options *o, u64 until_ns, struct tool_sim_result *r)
{
	struct tool_sim_params p = params;

	p.nodes = o->sim.nodes;
	p.only = &o->sim.only;
	p.attack = o->sim.attack / 100;
	p.reject = o->sim.reject / 100;
	p.data = o->sim.data / 100;
	p.largest = o->sim.largest;
	calls = 0;
	return tool_sim_run(&p, r);
}

static void test_mutant_is_minimised(void **state)
{
	struct tool_options o = { .count = params.connections, .sim = { .nodes = 4, .attack = 50, .reject = 10, .data = 50, .largest = 20000 } };
	struct tool_sim_result r, again;
	unsigned int runs;

	run_mutant("terms that differ", 1, &r);
	run_mutant("terms that differ", 1, &again);
	assert_string_equal(r.first_violation, again.first_violation);
	assert_int_equal(r.digest, again.digest);
	assert_true(sim_minimise(&o, &r, UINT64_MAX, try_mutant, &runs));
	assert_int_equal(o.sim.only.n, 1);
	assert_true(o.sim.nodes == 2 && o.sim.attack == 0 && o.sim.reject == 0 && o.sim.data == 0);
	assert_non_null(strstr(r.first_violation, "the sides disagree"));
	free(o.sim.only.item);
}

/* ---- the command ---- */

void tool_error(const char *fmt, ...)
{
}

/* What `uwarp sim` prints about a mutant. */
static char *run_command(struct tool_options *o, int *status)
{
	char path[] = "/tmp/test_sim_mutants.XXXXXX";
	int fd = mkstemp(path), out = dup(STDOUT_FILENO);
	char *text = calloc(1, 20000);

	assert_true(fd >= 0 && out >= 0 && text);
	unlink(path);
	fflush(stdout);
	dup2(fd, STDOUT_FILENO);
	*status = tool_sim(o);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	assert_true(pread(fd, text, 19999, 0) > 0);
	close(out);
	close(fd);
	return text;
}

static void test_command_explains(void **state)
{
	char pcap[] = "/tmp/test_sim_mutants.XXXXXX", *text;
	struct tool_options o = {
		.command = TOOL_SIM, .count = 100, .pcap = pcap,
		.sim = { .nodes = 8, .loss = 1, .data = 10, .largest = 1000, .seed = 3, .gen = 1, .latency_ms = 0.05, .minimise_s = 600 },
	};
	int fd = mkstemp(pcap), status;

	mutant = "terms that differ";
	calls = 0;
	when = 1;
	text = run_command(&o, &status);
	assert_int_equal(status, TOOL_PROTOCOL);
	assert_non_null(strstr(text, "\nWRONG: "));
	assert_non_null(strstr(text, "\nagain: uwarp sim --seed 3 --nodes 8 --connections 100 --gen 1 --loss 1 "));
	assert_non_null(strstr(text, "\nsmallest: uwarp sim --seed 3 --nodes 2 --connections 100 --gen 1 --loss 0 "));
	assert_non_null(strstr(text, " 1 connections: connection "));
	assert_in_range(lseek(fd, 0, SEEK_END), 300, 10000); /* a connection, no more */
	free(text);
	o.json = true;
	text = run_command(&o, &status);
	assert_non_null(strstr(text, "{\"event\":\"smallest\",\"command\":\"uwarp sim --seed 3 --nodes 2 --connections 100 "));
	free(text);
	close(fd);
	unlink(pcap);
}

static void test_command_that_does_not_fail_again(void **state)
{
	struct tool_options o = {
		.command = TOOL_SIM, .count = 100, .sim = { .nodes = 8, .largest = 1000, .seed = 3, .gen = 1, .latency_ms = 0.05, .minimise_s = 600 },
	};
	char *text;
	int status;

	mutant = "ESTABLISHED twice";
	calls = 0;
	when = 30;
	spent = mmap(NULL, sizeof(*spent), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(spent, MAP_FAILED);
	text = run_command(&o, &status);
	assert_int_equal(status, TOOL_PROTOCOL);
	assert_non_null(strstr(text, "\nagain: uwarp sim "));
	assert_non_null(strstr(text, "\n2 runs: it did not happen again\n"));
	assert_null(strstr(text, "smallest: "));
	free(text);
	*spent = false;
	o.json = true;
	text = run_command(&o, &status);
	assert_non_null(strstr(text, "{\"event\":\"not_again\",\"runs\":2,"));
	free(text);
	munmap(spent, sizeof(*spent));
	spent = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_broken),
		cmocka_unit_test(test_mutants),
		cmocka_unit_test(test_mutant_is_minimised),
		cmocka_unit_test(test_command_explains),
		cmocka_unit_test(test_command_that_does_not_fail_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
