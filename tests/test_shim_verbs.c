// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The verbs of the shim without a connection: devices, objects, who is busy, events and their acknowledgement, states, what iWARP does not
 * have. Completions come from receives that are flushed. Data is the business of the whole-system tests.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "cancelled.h"
#include "shim/verbs_internal.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static char buf[4096];

/* ---- helpers ---- */

static struct ibv_context *open_lo(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = NULL;
	int i;

	assert_non_null(list);
	for (i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "uwarp_lo"))
			c = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return c;
}

static int setup(void **state)
{
	ctx = open_lo();
	if (ctx)
		pd = ibv_alloc_pd(ctx);
	return !pd;
}

/* All that the tests made is gone, or these say so. */
static int teardown(void **state)
{
	return ibv_dealloc_pd(pd) || ibv_close_device(ctx);
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void no_wait(int fd)
{
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

static struct ibv_qp *make_qp(struct ibv_cq *cq, u32 wrs)
{
	struct ibv_qp_init_attr a = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .qp_context = &buf,
		.cap = { .max_send_wr = wrs, .max_recv_wr = wrs, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &a);

	assert_non_null(qp);
	assert_true(a.cap.max_send_wr >= wrs && a.cap.max_recv_wr >= wrs && a.cap.max_inline_data >= 64);
	return qp;
}

static void post_recv(struct ibv_qp *qp, u64 wr_id)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id }, *bad;

	assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
}

static int set_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	return ibv_modify_qp(qp, &a, state == IBV_QPS_INIT || state == IBV_QPS_RTR ? IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS : IBV_QP_STATE);
}

static enum ibv_qp_state get_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	assert_int_equal(ibv_query_qp(qp, &a, IBV_QP_STATE, &init), 0);
	return a.qp_state;
}

/* @n completions in @cq, all flushed receives of a queue pair that is gone to ERR. */
static struct ibv_qp *flushed_qp(struct ibv_cq *cq, u32 n)
{
	struct ibv_qp *qp = make_qp(cq, max(n, 1u));
	u32 i;

	assert_int_equal(set_state(qp, IBV_QPS_INIT), 0);
	for (i = 0; i < n; i++)
		post_recv(qp, 100 + i);
	assert_int_equal(set_state(qp, IBV_QPS_ERR), 0);
	return qp;
}

/* ---- devices ---- */

static void test_device_list(void **state)
{
	int n = -1, i, j;
	struct ibv_device **list = ibv_get_device_list(&n), **again = ibv_get_device_list(NULL);
	bool lo = false;

	assert_non_null(list);
	assert_true(n > 0);
	assert_null(list[n]);
	for (i = 0; i < n; i++) {
		assert_ptr_equal(list[i], again[i]);
		assert_int_equal(list[i]->node_type, IBV_NODE_RNIC);
		assert_int_equal(list[i]->transport_type, IBV_TRANSPORT_IWARP);
		assert_memory_equal(list[i]->name, "uwarp_", 6);
		assert_int_equal(ibv_get_device_index(list[i]), i);
		assert_true(ibv_get_device_guid(list[i]) != 0);
		for (j = 0; j < i; j++)
			assert_true(ibv_get_device_guid(list[i]) != ibv_get_device_guid(list[j]));
		lo |= !strcmp(ibv_get_device_name(list[i]), "uwarp_lo");
	}
	assert_true(lo);
	ibv_free_device_list(again);
	ibv_free_device_list(list);
}

/* The inline functions of the header call without looking. */
static void test_ops_are_filled(void **state)
{
	struct ibv_context *c = open_lo();
	void *slot[sizeof(c->ops) / sizeof(void *)];
	size_t i;

	memcpy(slot, &c->ops, sizeof(c->ops));
	for (i = 0; i < ARRAY_SIZE(slot); i++)
		assert_non_null(slot[i]);
	assert_ptr_equal(c->abi_compat, __VERBS_ABI_IS_EXTENDED);
	assert_int_equal(verbs_get_ctx(c)->sz, sizeof(struct verbs_context));
	assert_int_equal(c->num_comp_vectors, 1);
	assert_true(c->async_fd >= 0 && c->cmd_fd >= 0);
	assert_int_equal(ibv_close_device(c), 0);
}

static void test_query_device(void **state)
{
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr a;

	assert_int_equal(ibv_query_device(ctx, &a), 0);
	assert_true(a.node_guid == ibv_get_device_guid(ctx->device));
	assert_int_equal(a.phys_port_cnt, 1);
	assert_in_range(a.max_qp_rd_atom, 1, 255); /* librdmacm has 8 bits */
	assert_in_range(a.max_qp_init_rd_atom, 1, 255);
	memset(&ex, 0xff, sizeof(ex));
	assert_int_equal(ibv_query_device_ex(ctx, NULL, &ex), 0);
	assert_memory_equal(&ex.orig_attr, &a, sizeof(a));
	assert_int_equal(ex.hca_core_clock, 1000000);
	assert_int_equal(ex.odp_caps.general_caps, 0);
	assert_int_equal(ex.phys_port_cnt_ex, 1);
}

/* Programs of several ages have structures of several sizes: nothing is written behind them, and what is new to us is cleared. */
static void test_query_port_sizes(void **state)
{
	static const size_t sizes[] = { 48, 52, 56, 80 };
	struct ibv_port_attr *a = (struct ibv_port_attr *)buf;
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		memset(buf, 0xa5, 128);
		if (sizes[i] == 48)
			assert_int_equal(ibv_query_port(ctx, 1, (struct _compat_ibv_port_attr *)buf), 0);
		else
			assert_int_equal(verbs_get_ctx(ctx)->query_port(ctx, 1, a, sizes[i]), 0);
		assert_int_equal(a->state, IBV_PORT_ACTIVE);
		assert_int_equal(a->link_layer, IBV_LINK_LAYER_ETHERNET);
		assert_int_equal(a->gid_tbl_len, 1);
		for (j = sizeof(*a); j < sizes[i]; j++)
			assert_int_equal(buf[j], 0);
		assert_int_equal((u8)buf[sizes[i]], 0xa5);
	}
	assert_int_equal(___ibv_query_port(ctx, 0, a), EINVAL);
	assert_int_equal(___ibv_query_port(ctx, 2, a), EINVAL);
}

static void test_tables(void **state)
{
	struct ibv_gid_entry e[2];
	enum shim_gid_type type;
	union ibv_gid gid;
	__be64 guid;
	__be16 pkey;

	assert_int_equal(ibv_query_gid(ctx, 1, 0, &gid), 0);
	guid = ibv_get_device_guid(ctx->device);
	assert_memory_equal(gid.raw, &guid, 3); /* lo has no MAC address: one was made up */
	assert_memory_equal(gid.raw + 3, (u8 *)&guid + 5, 3);
	assert_int_equal(gid.raw[0], 2);
	assert_int_equal(ibv_query_gid(ctx, 1, 1, &gid), -1);
	assert_int_equal(ibv_query_gid(ctx, 2, 0, &gid), -1);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 0, e, 0), 0);
	assert_memory_equal(&e[0].gid, &gid, sizeof(gid));
	assert_int_equal(e[0].gid_type, IBV_GID_TYPE_IB);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 1, e, 0), EINVAL);
	assert_int_equal(ibv_query_gid_table(ctx, e, 2, 0), 1);
	assert_int_equal(ibv_query_gid_table(ctx, e, 0, 0), -EINVAL);
	assert_int_equal(ibv_query_gid_type(ctx, 1, 0, &type), 0);
	assert_int_equal(type, SHIM_GID_IB_ROCE_V1);
	assert_int_equal(ibv_query_pkey(ctx, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ibv_query_pkey(ctx, 1, 1, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(ctx, 1, 0xffff), 0);
	assert_int_equal(ibv_get_pkey_index(ctx, 1, 1), -1);
}

static void test_clock(void **state)
{
	struct ibv_values_ex v = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK }, w = v, bad = { .comp_mask = 2 };

	assert_int_equal(ibv_query_rt_values_ex(ctx, &v), 0);
	assert_int_equal(ibv_query_rt_values_ex(ctx, &w), 0);
	assert_int_equal(v.raw_clock.tv_sec, 0);
	assert_true(w.raw_clock.tv_nsec > v.raw_clock.tv_nsec);
	assert_int_equal(ibv_query_rt_values_ex(ctx, &bad), EOPNOTSUPP);
}

static void test_strings(void **state)
{
	assert_string_equal(ibv_node_type_str(IBV_NODE_RNIC), "iWARP NIC");
	assert_string_equal(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
	assert_string_equal(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
	assert_string_equal(ibv_port_state_str(99), "unknown");
	assert_string_equal(ibv_event_type_str(IBV_EVENT_WQ_FATAL), "WQ fatal");
	assert_string_equal(ibv_event_type_str(99), "unknown");
	assert_string_equal(ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR), "Work Request Flushed Error");
	assert_string_equal(ibv_wc_status_str(99), "unknown");
	assert_int_equal(ibv_rate_to_mult(IBV_RATE_40_GBPS), 16);
	assert_int_equal(ibv_rate_to_mult(IBV_RATE_14_GBPS), -1);
	assert_int_equal(ibv_rate_to_mbps(IBV_RATE_MAX), -1);
	assert_int_equal(mult_to_ibv_rate(16), IBV_RATE_40_GBPS);
	assert_int_equal(mult_to_ibv_rate(3), IBV_RATE_MAX);
	assert_int_equal(mult_to_ibv_rate(0), IBV_RATE_MAX);
	assert_int_equal(mbps_to_ibv_rate(103125), IBV_RATE_100_GBPS);
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

/* ---- domains and memory ---- */

static void test_pd_is_busy(void **state)
{
	struct ibv_pd *own = ibv_alloc_pd(ctx), *second = ibv_alloc_pd(ctx);
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_mr *mr = ibv_reg_mr(own, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(own, IBV_MW_TYPE_2);
	struct ibv_srq *srq = ibv_create_srq(own, &sa);

	assert_true(own && second && mr && mw && srq);
	assert_int_not_equal(own->handle, second->handle);
	assert_int_equal(ibv_dealloc_pd(own), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(own), EBUSY);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dealloc_pd(own), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_dealloc_pd(own), 0);
	assert_int_equal(ibv_dealloc_pd(second), 0);
}

static void test_parent_domain(void **state)
{
	struct ibv_td_init_attr ta = { 0 };
	struct ibv_td *td = ibv_alloc_td(ctx, &ta);
	struct ibv_parent_domain_init_attr a = { .pd = pd, .td = td };
	struct ibv_pd *own = ibv_alloc_parent_domain(ctx, &a), *none;
	struct ibv_mr *mr;

	assert_true(td && own);
	assert_int_equal(ibv_dealloc_td(td), EBUSY);
	mr = ibv_reg_mr(own, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	assert_ptr_equal(mr->pd, own);
	assert_int_equal(ibv_dealloc_pd(own), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(own), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
	a.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	none = ibv_alloc_parent_domain(ctx, &a);
	assert_null(none);
	assert_int_equal(errno, EOPNOTSUPP);
}

static void test_reg_mr_fails(void **state)
{
	static const struct { int access, err; } cases[] = {
		{ IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ IBV_ACCESS_REMOTE_ATOMIC, EINVAL },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, EOPNOTSUPP },
		{ 1 << 18, EINVAL },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		errno = 0;
		assert_null(ibv_reg_mr(pd, buf, sizeof(buf), cases[i].access));
		assert_int_equal(errno, cases[i].err);
	}
	assert_null(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EOPNOTSUPP);
}

static void test_reg_mr(void **state)
{
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	struct ibv_mr *a = ibv_reg_mr(pd, buf, 100, all), *b = ibv_reg_mr_iova(pd, buf, 100, 0x1000, all);
	struct ibv_mr *c = ibv_reg_mr_iova2(pd, buf, 100, 0, all | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB | IBV_ACCESS_ZERO_BASED);

	assert_true(a && b && c);
	assert_ptr_equal(a->addr, buf);
	assert_int_equal(a->length, 100);
	assert_int_equal(a->lkey, a->rkey);
	assert_int_not_equal(a->rkey, b->rkey);
	assert_int_not_equal(a->handle, b->handle);
	assert_int_equal(ibv_dereg_mr(a), 0);
	assert_int_equal(ibv_dereg_mr(b), 0);
	assert_int_equal(ibv_dereg_mr(c), 0);
}

static void test_rereg_mr(void **state)
{
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, 100, IBV_ACCESS_LOCAL_WRITE);

	assert_true(other && mr);
	assert_int_equal(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, 1 << 5, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EINVAL);
	assert_ptr_equal(mr->pd, pd);

	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
	assert_ptr_equal(mr->pd, other);
	assert_int_equal(ibv_dealloc_pd(other), EBUSY);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION, pd, buf + 8, 50, 0), 0);
	assert_ptr_equal(mr->addr, buf + 8);
	assert_int_equal(mr->length, 50);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void test_import(void **state)
{
	struct ibv_pd *own = ibv_alloc_pd(ctx), *pd2;
	struct ibv_mr *mr = ibv_reg_mr(own, buf, 100, IBV_ACCESS_LOCAL_WRITE), *mr2;
	struct ibv_context *second = ibv_import_device(dup(ctx->cmd_fd));

	assert_true(own && mr && second);
	assert_ptr_equal(second->device, ctx->device);
	pd2 = ibv_import_pd(second, own->handle);
	assert_non_null(pd2);
	assert_null(ibv_import_pd(second, 0xffffff));
	mr2 = ibv_import_mr(pd2, mr->handle);
	assert_non_null(mr2);
	assert_int_equal(mr2->rkey, mr->rkey);
	assert_null(mr2->addr);
	assert_null(ibv_import_mr(pd2, 0xffffff));
	assert_int_equal(ibv_dereg_mr(mr), EBUSY);
	ibv_unimport_mr(mr2);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(own), EBUSY);
	ibv_unimport_pd(pd2);
	assert_int_equal(ibv_dealloc_pd(own), 0);
	assert_int_equal(ibv_close_device(second), 0);
	assert_null(ibv_import_device(STDIN_FILENO));
	assert_int_equal(errno, EOPNOTSUPP);
}

static struct ibv_qp *make_qp_in(struct ibv_pd *in, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(in, &a);

	assert_non_null(qp);
	return qp;
}

/* The domain is given up first, the context too: what was made in it still stands on it. */
static void test_unimport_pd_in_use(void **state)
{
	struct ibv_context *second = ibv_import_device(dup(ctx->cmd_fd));
	struct ibv_pd *own = ibv_alloc_pd(ctx), *pd2 = ibv_import_pd(second, own->handle), *parent;
	struct ibv_parent_domain_init_attr pa = { .pd = pd2 };
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_cq *cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	struct ibv_mr *orig = ibv_reg_mr(own, buf, 100, IBV_ACCESS_LOCAL_WRITE), *mr2 = ibv_import_mr(pd2, orig->handle);
	struct ibv_mr *mr = ibv_reg_mr(pd2, buf, 100, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(pd2, IBV_MW_TYPE_2);
	struct ibv_srq *srq = ibv_create_srq(pd2, &sa);
	struct ibv_qp *qp = make_qp_in(pd2, cq);

	parent = ibv_alloc_parent_domain(second, &pa);
	assert_true(cq && mr && mr2 && mw && srq && parent);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, own, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	ibv_unimport_pd(pd2);
	assert_int_equal(ibv_close_device(second), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	ibv_unimport_mr(mr2);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dereg_mr(orig), 0);
	assert_int_equal(ibv_dealloc_pd(own), EBUSY);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_pd(own), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* ---- completion queues ---- */

static void test_create_cq_fails(void **state)
{
	struct ibv_cq_init_attr_ex a = { .cqe = 4, .wc_flags = IBV_WC_EX_WITH_CVLAN };
	struct ibv_context *other = open_lo();
	struct ibv_comp_channel *ch = ibv_create_comp_channel(other);

	assert_null(ibv_create_cq(ctx, 0, NULL, NULL, 0));
	assert_null(ibv_create_cq(ctx, -1, NULL, NULL, 0));
	assert_null(ibv_create_cq(ctx, RNIC_MAX_CQE + 1, NULL, NULL, 0));
	assert_null(ibv_create_cq(ctx, 4, NULL, NULL, 1));
	assert_null(ibv_create_cq(ctx, 4, NULL, NULL, -1));
	assert_null(ibv_create_cq(ctx, 4, NULL, ch, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_cq_ex(ctx, &a));
	assert_int_equal(errno, EOPNOTSUPP);
	a = (struct ibv_cq_init_attr_ex){ .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = pd };
	assert_null(ibv_create_cq_ex(ctx, &a));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
	assert_int_equal(ibv_close_device(other), 0);
}

static void test_flushed_completions(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp = flushed_qp(cq, 3);
	struct ibv_wc wc[8];
	int i;

	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_poll_cq(cq, 8, wc), 3);
	for (i = 0; i < 3; i++) {
		assert_int_equal(wc[i].status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc[i].wr_id, 100 + i);
		assert_int_equal(wc[i].qp_num, qp->qp_num);
	}
	assert_int_equal(ibv_poll_cq(cq, 8, wc), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void test_resize_cq(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp = flushed_qp(cq, 6);
	struct ibv_wc wc[8];

	assert_int_equal(ibv_resize_cq(cq, 0), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, 2), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, 100), 0);
	assert_true(cq->cqe >= 100);
	assert_int_equal(ibv_poll_cq(cq, 8, wc), 6);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void test_channel(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, &buf, ch, 0), *got;
	void *context;
	struct ibv_qp *qp;

	no_wait(ch->fd);
	assert_int_equal(ibv_destroy_comp_channel(ch), EBUSY);
	assert_int_equal(ibv_get_cq_event(ch, &got, &context), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
	assert_false(readable(ch->fd));
	qp = flushed_qp(cq, 3);
	assert_true(readable(ch->fd));
	assert_int_equal(ibv_get_cq_event(ch, &got, &context), 0);
	assert_ptr_equal(got, cq);
	assert_ptr_equal(context, &buf);
	assert_false(readable(ch->fd)); /* one event, however many completions */
	ibv_ack_cq_events(cq, 1);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

/* What was queued and not read goes with its queue; what is another's stays. */
static void test_destroyed_cq_takes_its_events(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_cq *cq[2], *got;
	struct ibv_qp *qp[2];
	void *context;
	int i;

	no_wait(ch->fd);
	for (i = 0; i < 2; i++) {
		cq[i] = ibv_create_cq(ctx, 8, NULL, ch, 0);
		assert_int_equal(ibv_req_notify_cq(cq[i], 0), 0);
		qp[i] = flushed_qp(cq[i], 1);
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	}
	assert_int_equal(ibv_destroy_cq(cq[0]), 0);
	assert_true(readable(ch->fd));
	assert_int_equal(ibv_get_cq_event(ch, &got, &context), 0);
	assert_ptr_equal(got, cq[1]);
	assert_int_equal(ibv_get_cq_event(ch, &got, &context), -1);
	ibv_ack_cq_events(cq[1], 1);
	assert_int_equal(ibv_destroy_cq(cq[1]), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

struct late_ack {
	struct ibv_cq *cq;
	bool done;
};

static void *ack_late(void *arg)
{
	struct late_ack *a = arg;

	usleep(20000);
	__atomic_store_n(&a->done, true, __ATOMIC_SEQ_CST);
	ibv_ack_cq_events(a->cq, 1);
	return NULL;
}

static void test_destroy_waits_for_acks(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct late_ack a = { .cq = ibv_create_cq(ctx, 8, NULL, ch, 0) };
	struct ibv_qp *qp;
	struct ibv_cq *got;
	pthread_t thread;
	void *context;

	assert_int_equal(ibv_req_notify_cq(a.cq, 0), 0);
	qp = flushed_qp(a.cq, 1);
	assert_int_equal(ibv_get_cq_event(ch, &got, &context), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(pthread_create(&thread, NULL, ack_late, &a), 0);
	assert_int_equal(ibv_destroy_cq(a.cq), 0);
	assert_true(__atomic_load_n(&a.done, __ATOMIC_SEQ_CST));
	pthread_join(thread, NULL);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

static void test_cq_ex(void **state)
{
	struct ibv_cq_init_attr_ex a = {
		.cqe = 8,
		.wc_flags = IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &a);
	struct ibv_poll_cq_attr none = { 0 }, bad = { .comp_mask = 1 };
	struct timespec now;
	struct ibv_qp *qp;
	u64 ns;

	assert_non_null(cq);
	assert_int_equal(ibv_start_poll(cq, &bad), EINVAL);
	assert_int_equal(ibv_start_poll(cq, &none), ENOENT);
	assert_null(cq->read_byte_len); /* not asked for */
	qp = flushed_qp(ibv_cq_ex_to_cq(cq), 2);
	assert_int_equal(ibv_start_poll(cq, &none), 0);
	assert_int_equal(cq->wr_id, 100);
	assert_int_equal(cq->status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_wc_read_qp_num(cq), qp->qp_num);
	clock_gettime(CLOCK_MONOTONIC, &now);
	ns = (u64)now.tv_sec * 1000000000u + (u64)now.tv_nsec;
	assert_in_range(ibv_wc_read_completion_ts(cq), ns - 10000000000u, ns);
	clock_gettime(CLOCK_REALTIME, &now);
	assert_in_range(ibv_wc_read_completion_wallclock_ns(cq) / 1000000000u, (u64)now.tv_sec - 10, (u64)now.tv_sec);
	assert_int_equal(ibv_next_poll(cq), 0);
	assert_int_equal(cq->wr_id, 101);
	assert_int_equal(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	assert_int_equal(ibv_start_poll(cq, &none), ENOENT);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

/* ---- asynchronous events ---- */

/* A queue of one that three completions are to go into overruns. */
static struct ibv_qp *overrun(struct ibv_cq **cq)
{
	*cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	assert_non_null(*cq);
	return flushed_qp(*cq, (u32)(*cq)->cqe + 2);
}

static void test_async_event(void **state)
{
	struct ibv_async_event ev;
	struct ibv_qp *qp;
	struct ibv_cq *cq;

	no_wait(ctx->async_fd);
	while (!ibv_get_async_event(ctx, &ev))
		ibv_ack_async_event(&ev);
	assert_int_equal(errno, EAGAIN);
	qp = overrun(&cq);
	assert_true(readable(ctx->async_fd));
	do {
		assert_int_equal(ibv_get_async_event(ctx, &ev), 0);
		ibv_ack_async_event(&ev);
	} while (ev.event_type != IBV_EVENT_CQ_ERR);
	assert_ptr_equal(ev.element.cq, cq);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_false(readable(ctx->async_fd));
}

static void test_destroyed_objects_take_their_async_events(void **state)
{
	struct ibv_async_event ev;
	struct ibv_qp *qp;
	struct ibv_cq *cq;

	no_wait(ctx->async_fd);
	qp = overrun(&cq);
	assert_true(readable(ctx->async_fd));
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_get_async_event(ctx, &ev), -1);
	assert_int_equal(errno, EAGAIN);
}

/* ---- queue pairs ---- */

static void test_create_qp_fails(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_DRIVER };
	static const u64 ops[] = { IBV_QP_EX_WITH_TSO, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_EX_WITH_ATOMIC_WRITE, 1ull << 40 };
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp_init_attr_ex ex = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 }, .pd = pd };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		a.qp_type = types[i];
		errno = 0;
		assert_null(ibv_create_qp(pd, &a));
		assert_int_equal(errno, EOPNOTSUPP);
	}
	a.qp_type = IBV_QPT_RC;
	a.cap.max_send_wr = RNIC_MAX_WR + 1;
	assert_null(ibv_create_qp(pd, &a));
	assert_int_equal(errno, EINVAL);
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	for (i = 0; i < ARRAY_SIZE(ops); i++) {
		ex.send_ops_flags = IBV_QP_EX_WITH_SEND | ops[i];
		errno = 0;
		assert_null(ibv_create_qp_ex(ctx, &ex));
		assert_int_equal(errno, EOPNOTSUPP);
	}
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH;
	assert_null(ibv_create_qp_ex(ctx, &ex));
	assert_int_equal(errno, EOPNOTSUPP);
	ex.comp_mask = 0;
	assert_null(ibv_create_qp_ex(ctx, &ex));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void count_hint(void *arg, enum log_level level, const char *room, const char *text)
{
	*(unsigned int *)arg += level == LOG_LEVEL_WARN && strstr(text, "the RDMA CM makes those");
}

/* Without a connection; what is done, in which state, and what comes of it. RTS, which programs for InfiniBand ask for, brings a hint the first time. */
static void test_modify_qp(void **state)
{
	static const struct { enum ibv_qp_state next; int err; enum ibv_qp_state now; } steps[] = {
		{ IBV_QPS_RTS, EINVAL, IBV_QPS_INIT },
		{ IBV_QPS_SQD, EINVAL, IBV_QPS_INIT },
		{ IBV_QPS_INIT, 0, IBV_QPS_INIT },
		{ IBV_QPS_INIT, 0, IBV_QPS_INIT },
		{ IBV_QPS_RTR, 0, IBV_QPS_RTR },
		{ IBV_QPS_RTS, EINVAL, IBV_QPS_RTR }, /* the connection manager's doing */
		{ IBV_QPS_INIT, 0, IBV_QPS_INIT },
		{ IBV_QPS_RESET, 0, IBV_QPS_INIT },
		{ IBV_QPS_SQE, EINVAL, IBV_QPS_INIT },
		{ IBV_QPS_UNKNOWN, EINVAL, IBV_QPS_INIT },
		{ IBV_QPS_ERR, 0, IBV_QPS_ERR },
		{ IBV_QPS_ERR, 0, IBV_QPS_ERR },
		{ IBV_QPS_SQD, 0, IBV_QPS_ERR },      /* rdma_disconnect() after the peer's end */
		{ IBV_QPS_INIT, EINVAL, IBV_QPS_ERR },
	};
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(cq, 4);
	unsigned int hints = 0;
	size_t i;

	log_set_sink(count_hint, &hints);
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		assert_int_equal(set_state(qp, steps[i].next), steps[i].err);
		assert_int_equal(get_state(qp), steps[i].now);
		assert_int_equal(qp->state, steps[i].now);
	}
	log_set_sink(NULL, NULL);
	assert_int_equal(hints, 1);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void test_modify_qp_attributes(void **state)
{
	static const struct { int mask; struct ibv_qp_attr attr; int err; } cases[] = {
		{ IBV_QP_PORT, { .port_num = 1 }, 0 },
		{ IBV_QP_PORT, { .port_num = 2 }, EINVAL },
		{ IBV_QP_PKEY_INDEX, { .pkey_index = 1 }, EINVAL },
		{ IBV_QP_CUR_STATE, { .cur_qp_state = IBV_QPS_RTS }, EINVAL },
		{ IBV_QP_CUR_STATE, { .cur_qp_state = IBV_QPS_RESET }, 0 },
		{ IBV_QP_ACCESS_FLAGS, { .qp_access_flags = IBV_ACCESS_REMOTE_READ }, 0 },
		{ IBV_QP_ACCESS_FLAGS, { .qp_access_flags = 1 << 18 }, EINVAL },
		{ IBV_QP_MAX_QP_RD_ATOMIC, { .max_rd_atomic = 128 }, 0 },
		{ IBV_QP_MAX_QP_RD_ATOMIC, { .max_rd_atomic = 129 }, EINVAL },
		{ IBV_QP_MAX_DEST_RD_ATOMIC, { .max_dest_rd_atomic = 129 }, EINVAL },
		{ IBV_QP_QKEY, { .qkey = 1 }, EOPNOTSUPP },
		{ IBV_QP_CAP, { .cap = { 1, 1, 1, 1, 0 } }, EOPNOTSUPP },
		{ 1 << 24, { 0 }, EINVAL },
	};
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(cq, 4);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		a = cases[i].attr;
		assert_int_equal(ibv_modify_qp(qp, &a, cases[i].mask), cases[i].err);
	}
	assert_int_equal(ibv_query_qp(qp, &a, 0, &init), 0);
	assert_int_equal(a.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(a.port_num, 1);
	assert_ptr_equal(init.send_cq, cq);
	assert_ptr_equal(init.qp_context, &buf);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	assert_true(init.cap.max_send_wr >= 4);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void test_post_before_connection(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(cq, 4);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;

	assert_int_equal(set_state(qp, IBV_QPS_INIT), 0);
	assert_int_equal(ibv_post_send(qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static struct ibv_qp_ex *make_qp_ex(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex a = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd, .cap = { 4, 1, 2, 1, 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &a);

	assert_non_null(qp);
	assert_non_null(ibv_qp_to_qp_ex(qp));
	return ibv_qp_to_qp_ex(qp);
}

/* In ERR requests are flushed: what the batch was is seen in the completions. */
static void test_wr_api(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp *plain = make_qp(cq, 4);
	struct ibv_qp_ex *qp = make_qp_ex(cq);
	struct ibv_sge sge[3] = { { (uintptr_t)buf, 4, 1 }, { (uintptr_t)buf, 4, 1 }, { (uintptr_t)buf, 4, 1 } };
	struct ibv_wc wc[8];
	int i;

	assert_null(ibv_qp_to_qp_ex(plain));
	assert_int_equal(set_state(&qp->qp_base, IBV_QPS_ERR), 0);
	ibv_wr_start(qp);
	assert_int_equal(ibv_wr_complete(qp), 0);
	ibv_wr_start(qp);
	for (i = 0; i < 3; i++) {
		qp->wr_id = 7 + (u64)i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(qp);
		if (i == 1)
			ibv_wr_set_sge_list(qp, 2, sge);
		else
			ibv_wr_set_inline_data(qp, buf, 64);
	}
	assert_int_equal(ibv_wr_complete(qp), 0);
	assert_int_equal(ibv_poll_cq(cq, 8, wc), 3);
	for (i = 0; i < 3; i++) {
		assert_int_equal(wc[i].wr_id, 7 + i);
		assert_int_equal(wc[i].status, IBV_WC_WR_FLUSH_ERR);
	}
	assert_int_equal(ibv_destroy_qp(&qp->qp_base), 0);
	assert_int_equal(ibv_destroy_qp(plain), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* A batch with a fault in it is not posted at all. */
static void test_wr_api_refuses(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_ex *qp = make_qp_ex(cq);
	struct ibv_sge sge[64] = { 0 };
	struct ibv_wc wc[8];
	int i, fault;

	assert_int_equal(set_state(&qp->qp_base, IBV_QPS_INIT), 0);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	assert_int_equal(ibv_wr_complete(qp), EINVAL); /* not connected */
	assert_int_equal(set_state(&qp->qp_base, IBV_QPS_ERR), 0);
	for (fault = 0; fault < 5; fault++) {
		static const int err[] = { EINVAL, EINVAL, EOPNOTSUPP, EINVAL, 0 };

		ibv_wr_start(qp);
		if (fault == 0)
			ibv_wr_set_sge(qp, 1, (uintptr_t)buf, 4); /* of no request */
		ibv_wr_send(qp);
		if (fault == 1)
			ibv_wr_set_inline_data(qp, buf, sizeof(buf));
		if (fault == 2)
			ibv_wr_set_xrc_srqn(qp, 1);
		if (fault == 3)
			ibv_wr_set_sge_list(qp, ARRAY_SIZE(sge), sge);
		if (fault == 4)
			ibv_wr_abort(qp);
		else
			assert_int_equal(ibv_wr_complete(qp), err[fault]);
		assert_int_equal(ibv_poll_cq(cq, 8, wc), 0);
	}
	ibv_wr_start(qp);
	for (i = 0; i < 100000; i++)
		ibv_wr_send(qp);
	assert_int_equal(ibv_wr_complete(qp), ENOMEM); /* more than the queue has room for */
	assert_int_equal(ibv_destroy_qp(&qp->qp_base), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void test_srq(void **state)
{
	struct ibv_srq_init_attr ia = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex ex = {
		.attr = { .max_wr = 4, .max_sge = 1 }, .pd = pd,
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE, .srq_type = IBV_SRQT_XRC,
	};
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	struct ibv_srq_attr a = { .srq_limit = 2 };
	struct ibv_srq *srq;

	assert_null(ibv_create_srq_ex(ctx, &ex));
	assert_int_equal(errno, EOPNOTSUPP);
	ia.attr.max_wr = 0;
	assert_null(ibv_create_srq(pd, &ia));
	assert_int_equal(errno, EINVAL);
	ia.attr.max_wr = 4;
	srq = ibv_create_srq(pd, &ia);
	assert_non_null(srq);
	assert_true(ia.attr.max_wr >= 4);
	assert_int_equal(ibv_modify_srq(srq, &a, 1 << 5), EINVAL);
	assert_int_equal(ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(srq, &a), 0);
	assert_int_equal(a.srq_limit, 2);
	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

/* ---- what iWARP does not have ---- */

static void test_absent(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(cq, 4);
	struct ibv_ah_attr ah = { .port_num = 1 };
	struct ibv_alloc_dm_attr dm = { .length = 64 };
	struct ibv_xrcd_init_attr xrcd = { 0 };
	struct ibv_wq_init_attr wq = { 0 };
	struct ibv_flow_attr flow = { 0 };
	struct ibv_ece ece = { 0 };
	struct ibv_modify_cq_attr mod = { 0 };
	struct ibv_wc wc = { .slid = 3, .sl = 1 };
	union ibv_gid gid = { 0 };
	u8 mac[6];
	u16 vid;

#define ABSENT_NULL(call) do { errno = 0; assert_null(call); assert_int_equal(errno, EOPNOTSUPP); } while (0)
#define ABSENT_INT(call) assert_int_equal(call, EOPNOTSUPP)
	ABSENT_NULL(ibv_create_ah(pd, &ah));
	ABSENT_NULL(ibv_create_ah_from_wc(pd, &wc, NULL, 1));
	ABSENT_NULL(ibv_alloc_dm(ctx, &dm));
	ABSENT_NULL(ibv_import_dm(ctx, 1));
	ABSENT_NULL(ibv_open_xrcd(ctx, &xrcd));
	ABSENT_NULL(ibv_create_wq(ctx, &wq));
	ABSENT_NULL(ibv_create_flow(qp, &flow));
	ABSENT_NULL(ibv_alloc_null_mr(pd));
	ABSENT_INT(ibv_attach_mcast(qp, &gid, 0));
	ABSENT_INT(ibv_detach_mcast(qp, &gid, 0));
	ABSENT_INT(ibv_set_ece(qp, &ece));
	ABSENT_INT(ibv_query_ece(qp, &ece));
	ABSENT_INT(ibv_modify_cq(cq, &mod));
	ABSENT_INT(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0));
	ABSENT_INT(-ibv_resolve_eth_l2_from_gid(ctx, &ah, mac, &vid));
	assert_int_equal(ibv_init_ah_from_wc(ctx, 1, &wc, NULL, &ah), 0);
	assert_int_equal(ah.dlid, 3);
	assert_int_equal(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* ---- options ---- */

static bool is_default(const struct iwcm_options *o)
{
	struct iwcm_options d;

	iwcm_options_init(&d);
	return o->mpa_revision == d.mpa_revision && o->peer_to_peer == d.peer_to_peer && o->rtr == d.rtr && o->crc == d.crc && o->markers == d.markers;
}

static bool revision_1(const struct shim_options *o) { return o->conn.mpa_revision == 1; }
static bool client_server(const struct shim_options *o) { return !o->conn.peer_to_peer; }
static bool rtr_send_read(const struct shim_options *o) { return o->conn.rtr == (IWCM_RTR_SEND | IWCM_RTR_READ); }
static bool no_crc(const struct shim_options *o) { return !o->conn.crc; }
static bool markers(const struct shim_options *o) { return o->conn.markers; }
static bool ifaces(const struct shim_options *o) { return !strcmp(o->ifaces, "lo,eth0"); }
static bool pcap(const struct shim_options *o) { return !strcmp(o->pcap, "/tmp/x"); }
static bool waits(const struct shim_options *o) { return o->responder_waits; }
static bool stats(const struct shim_options *o) { return o->stats; }
static bool defaults(const struct shim_options *o) { return is_default(&o->conn) && !*o->ifaces && !*o->pcap && !o->stats && !o->responder_waits; }

/* They are read once in a process's life: each case has a process. What is wrong leaves the default. */
static void test_options(void **state)
{
	static const struct { const char *name, *value; bool (*ok)(const struct shim_options *o); } cases[] = {
		{ "UWARP_CRC", "", defaults }, { "UWARP_MPA_REVISION", "1", revision_1 }, { "UWARP_MPA_REVISION", "3", defaults },
		{ "UWARP_MODEL", "client-server", client_server }, { "UWARP_MODEL", "cs", client_server }, { "UWARP_MODEL", "peer", defaults },
		{ "UWARP_RTR", "send,read", rtr_send_read }, { "UWARP_RTR", "send,", defaults }, { "UWARP_RTR", "sends", defaults },
		{ "UWARP_CRC", "0", no_crc }, { "UWARP_CRC", "00", defaults }, { "UWARP_MARKERS", "1", markers }, { "UWARP_IFACES", "lo,eth0", ifaces },
		{ "UWARP_RESPONDER_WAITS", "1", waits }, { "UWARP_RESPONDER_WAITS", "true", defaults },
		{ "UWARP_PCAP", "/tmp/x", pcap }, { "UWARP_STATS", "1", stats }, { "UWARP_STATS", "yes", defaults },
	};
	int status;
	size_t i;
	pid_t pid;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		pid = fork();
		if (!pid) {
			setenv(cases[i].name, cases[i].value, 1);
			_exit(!cases[i].ok(shim_options()));
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

/* ---- processes, threads ---- */

/* A context that is closed with objects left goes with the last of them. */
static void test_close_with_objects(void **state)
{
	struct ibv_context *c = open_lo();
	struct ibv_cq *cq = ibv_create_cq(c, 4, NULL, NULL, 0);
	struct ibv_pd *p = ibv_alloc_pd(c);
	struct ibv_wc wc;

	assert_int_equal(ibv_close_device(c), 0);
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(p), 0);
}

/* A child's descriptors have its own events: what it takes, the parent still has. */
static void test_fork(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, ch, 0), *got;
	struct ibv_qp *qp;
	void *context;
	int status;
	pid_t pid;

	no_wait(ch->fd);
	assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
	qp = flushed_qp(cq, 1);
	pid = fork();
	if (!pid)
		_exit(readable(ch->fd) && !ibv_get_cq_event(ch, &got, &context) && got == cq && !readable(ch->fd) ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(readable(ch->fd));
	assert_int_equal(ibv_get_cq_event(ch, &got, &context), 0);
	ibv_ack_cq_events(cq, 1);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

static bool stop_working;

static void *work(void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);

	while (!__atomic_load_n(&stop_working, __ATOMIC_RELAXED)) {
		struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);

		ibv_destroy_qp(flushed_qp(cq, 2));
		ibv_dereg_mr(mr);
	}
	ibv_destroy_cq(cq);
	return NULL;
}

/* With all that is new. */
static int begin_anew(void)
{
	struct ibv_context *own;
	struct ibv_pd *own_pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	int i;

	alarm(10);
	own = open_lo();
	own_pd = own ? ibv_alloc_pd(own) : NULL;
	cq = own ? ibv_create_cq(own, 8, NULL, NULL, 0) : NULL;
	for (i = 0; own_pd && cq && i < 300; i++) { /* STags are random: each shard has its turn */
		mr = ibv_reg_mr(own_pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
		if (!mr || ibv_dereg_mr(mr))
			return 1;
	}
	return i < 300 || ibv_destroy_qp(make_qp_in(own_pd, cq)) || ibv_destroy_cq(cq) || ibv_dealloc_pd(own_pd) || ibv_close_device(own);
}

/* Whatever the other threads were in the middle of. ASan's allocator, of GCC 12, leaves its locks as they are in the child, and hangs. */
static void test_fork_while_others_work(void **state)
{
	pthread_t t[3];
	int i, status;
	pid_t pid;

#ifdef __SANITIZE_ADDRESS__
	skip();
#endif
	for (i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, work, NULL), 0);
	for (i = 0; i < 40; i++) {
		pid = fork();
		if (!pid)
			_exit(begin_anew());
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	__atomic_store_n(&stop_working, true, __ATOMIC_RELAXED);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
}

static void *make_and_destroy(void *arg)
{
	struct ibv_comp_channel *ch = arg;
	int i;

	for (i = 0; i < 50; i++) {
		struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, ch, 0);
		struct ibv_qp *qp;

		ibv_req_notify_cq(cq, 0);
		qp = flushed_qp(cq, 2);
		ibv_destroy_qp(qp);
		ibv_destroy_cq(cq);
	}
	return NULL;
}

/* Objects of a shared channel come and go in two threads; no event and no token is left. */
static void test_threads_share_a_channel(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	pthread_t t[2];
	int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, make_and_destroy, ch), 0);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	assert_false(readable(ch->fd));
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

/* From here on the first cancellation point is this thread's end. */
static void *cancelled_at_work(void *arg)
{
	struct ibv_comp_channel *ch;
	struct ibv_context *c;
	struct ibv_wc wc[3];
	struct ibv_cq *cq, *got;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	bool *done = arg;
	void *cq_context;

	pthread_cancel(pthread_self());
	c = open_lo();
	ch = ibv_create_comp_channel(ctx);
	cq = ibv_create_cq(ctx, 8, NULL, ch, 0);
	mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	ibv_req_notify_cq(cq, 0);
	qp = flushed_qp(cq, 2);
	assert_int_equal(ibv_poll_cq(cq, 3, wc), 2);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	assert_int_equal(ibv_get_cq_event(ch, &got, &cq_context), 0);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	ibv_ack_cq_events(got, 1);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
	assert_int_equal(ibv_close_device(c), 0);
	*done = true;
	pthread_testcancel();
	return NULL;
}

/* No lock stays taken when a thread is cancelled: its verbs end first. Where it waits for events, it ends. */
static void test_cancelled_thread(void **state)
{
	assert_done_when_cancelled(cancelled_at_work);
}

int main(void)
{
	const struct CMUnitTest first[] = { cmocka_unit_test(test_options) }; /* before they are read here */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_device_list), cmocka_unit_test(test_ops_are_filled), cmocka_unit_test(test_query_device),
		cmocka_unit_test(test_query_port_sizes), cmocka_unit_test(test_tables), cmocka_unit_test(test_clock), cmocka_unit_test(test_strings),
		cmocka_unit_test(test_pd_is_busy), cmocka_unit_test(test_parent_domain), cmocka_unit_test(test_reg_mr_fails),
		cmocka_unit_test(test_reg_mr), cmocka_unit_test(test_rereg_mr), cmocka_unit_test(test_import), cmocka_unit_test(test_unimport_pd_in_use),
		cmocka_unit_test(test_create_cq_fails),
		cmocka_unit_test(test_flushed_completions), cmocka_unit_test(test_resize_cq), cmocka_unit_test(test_channel),
		cmocka_unit_test(test_destroyed_cq_takes_its_events), cmocka_unit_test(test_destroy_waits_for_acks), cmocka_unit_test(test_cq_ex),
		cmocka_unit_test(test_async_event), cmocka_unit_test(test_destroyed_objects_take_their_async_events),
		cmocka_unit_test(test_create_qp_fails), cmocka_unit_test(test_modify_qp), cmocka_unit_test(test_modify_qp_attributes),
		cmocka_unit_test(test_post_before_connection), cmocka_unit_test(test_wr_api), cmocka_unit_test(test_wr_api_refuses), cmocka_unit_test(test_srq),
		cmocka_unit_test(test_absent), cmocka_unit_test(test_close_with_objects), cmocka_unit_test(test_fork), cmocka_unit_test(test_fork_while_others_work),
		cmocka_unit_test(test_threads_share_a_channel), cmocka_unit_test(test_cancelled_thread),
	};

	return cmocka_run_group_tests_name("options", first, NULL, NULL) | cmocka_run_group_tests_name("verbs", tests, setup, teardown);
}
