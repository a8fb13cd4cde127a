// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: what iWARP, or this NIC, does not have, and what programs are told. It is what the real library says for a device whose driver
 * lacks it.
 *
 *   call                                                            answer
 *   ibv_create_ah, ibv_create_ah_from_wc                            NULL, EOPNOTSUPP        no UD
 *   ibv_destroy_ah, ibv_attach_mcast, ibv_detach_mcast              EOPNOTSUPP
 *   ibv_create_qp(_ex) of another type than RC, with XRC, TSO, RSS,
 *   or with the ibv_wr_*() of Send with Immediate or Atomic Write   NULL, EOPNOTSUPP        verbs_qp.c, verbs_wr.c
 *   ibv_create_srq_ex with XRC or tag matching                      NULL, EOPNOTSUPP        verbs_srq.c
 *   ibv_create_cq_ex with VLAN, flow tag or tag matching fields     NULL, EOPNOTSUPP        verbs_cq.c
 *   ibv_reg_mr with IBV_ACCESS_ON_DEMAND, ibv_reg_dmabuf_mr         NULL, EOPNOTSUPP        verbs_mr.c
 *   ibv_alloc_parent_domain with allocators                         NULL, EOPNOTSUPP        verbs_pd.c
 *   ibv_set_ece, ibv_query_ece                                      EOPNOTSUPP              verbs_qp.c
 *   ibv_open_xrcd, ibv_open_qp, ibv_create_flow, ibv_create_flow_action_esp, ibv_create_wq, ibv_create_rwq_ind_table,
 *   ibv_create_counters, ibv_alloc_dm, ibv_reg_dm_mr, ibv_alloc_null_mr
 *                                                                   NULL, EOPNOTSUPP        no slot in struct verbs_context
 *   ibv_close_xrcd, ibv_get_srq_num, ibv_modify_cq, ibv_advise_mr, ibv_post_srq_ops, ibv_modify_qp_rate_limit, ibv_modify_wq,
 *   ibv_destroy_*, ibv_free_dm, ibv_attach_counters_point_flow, ibv_read_counters
 *                                                                   EOPNOTSUPP              as above
 *   ibv_import_dm                                                   NULL, EOPNOTSUPP
 *   ibv_import_device of another process's descriptor               NULL, EOPNOTSUPP        verbs_context.c
 *   ibv_resolve_eth_l2_from_gid                                     -EOPNOTSUPP             GIDs are no IP addresses here
 *
 * Of the symbols that exist twice, those of version IBVERBS_1.0 are libibverbs 1.0's, of 2005 and 2006, whose structures had other layouts.
 * Nothing in Debian's librdmacm, perftest, pyverbs, ibverbs-utils or providers refers to one. They are there so that none of them reaches the
 * real library with our objects, and fail with ENOSYS.
 */
#include <endian.h>
#include <string.h>
#include "shim/verbs_internal.h"

void *shim_absent_null(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

int shim_absent_int(void)
{
	return EOPNOTSUPP;
}

int shim_close_xrcd(struct ibv_xrcd *xrcd)
{
	return EOPNOTSUPP;
}

/* ---- address handles, multicast ---- */

SHIM_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	return shim_absent_null();
}

SHIM_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	return EOPNOTSUPP;
}

/* The route back: what the GRH says, if we are the one it was sent to. */
static int route_back(struct ibv_context *context, u8 port_num, const struct ibv_grh *grh, struct ibv_global_route *out)
{
	u32 word = be32toh(grh->version_tclass_flow);
	union ibv_gid own;

	if (ibv_query_gid(context, port_num, 0, &own) || memcmp(&own, &grh->dgid, sizeof(own)))
		return shim_minus_one(-EINVAL);
	out->dgid = grh->sgid;
	out->flow_label = word & 0xFFFFF;
	out->traffic_class = (u8)(word >> 20);
	out->hop_limit = 0xFF;
	return 0;
}

SHIM_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, u8 port_num, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port_num;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	return route_back(context, port_num, grh, &attr->grh);
}

SHIM_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, u8 port_num)
{
	struct ibv_ah_attr attr;

	return ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}

SHIM_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, u16 lid)
{
	return EOPNOTSUPP;
}

SHIM_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, u16 lid)
{
	return EOPNOTSUPP;
}

SHIM_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, u8 eth_mac[ETHERNET_LL_SIZE], u16 *vid)
{
	errno = EOPNOTSUPP;
	return -EOPNOTSUPP;
}

/* ---- device memory ---- */

SHIM_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, u32 dm_handle)
{
	return shim_absent_null();
}

SHIM_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
}

/* ---- fork: nothing is pinned, so nothing needs to be kept from a child ---- */

SHIM_EXPORT int ibv_fork_init(void)
{
	return 0;
}

SHIM_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

SHIM_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

SHIM_EXPORT int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}

/* ---- libibverbs 1.0 ---- */

static void *abi_1_0_null(void)
{
	errno = ENOSYS;
	return NULL;
}

static int abi_1_0_int(void)
{
	return errno = ENOSYS;
}

/* Drivers of that time called it when they were loaded. */
SHIM_EXPORT void shim_register_driver(const char *name, void *init);
SHIM_EXPORT void shim_register_driver(const char *name, void *init)
{
	log_warn("shim", "driver %s is of libibverbs 1.0: not used", name);
}
__asm__(".symver shim_register_driver, ibv_register_driver@IBVERBS_1.1, remove");

/* A name of its own for each: one symbol has one version. */
#define ABI_1_0(type, answer, name)                             \
	SHIM_EXPORT type ibv_##name##_1_0(void);                 \
	SHIM_EXPORT type ibv_##name##_1_0(void) { answer; }      \
	__asm__(".symver ibv_" #name "_1_0, ibv_" #name "@IBVERBS_1.0, remove")
#define ABI_1_0_NULL(name) ABI_1_0(void *, return abi_1_0_null(), name)
#define ABI_1_0_INT(name) ABI_1_0(int, return abi_1_0_int(), name)
#define ABI_1_0_VOID(name) ABI_1_0(void, , name)

ABI_1_0_VOID(ack_async_event);
ABI_1_0_VOID(ack_cq_events);
ABI_1_0_NULL(alloc_pd);
ABI_1_0_INT(attach_mcast);
ABI_1_0_INT(close_device);
ABI_1_0_NULL(create_ah);
ABI_1_0_NULL(create_cq);
ABI_1_0_NULL(create_qp);
ABI_1_0_NULL(create_srq);
ABI_1_0_INT(dealloc_pd);
ABI_1_0_INT(dereg_mr);
ABI_1_0_INT(destroy_ah);
ABI_1_0_INT(destroy_cq);
ABI_1_0_INT(destroy_qp);
ABI_1_0_INT(destroy_srq);
ABI_1_0_INT(detach_mcast);
ABI_1_0_VOID(free_device_list);
ABI_1_0_INT(get_async_event);
ABI_1_0_INT(get_cq_event);
ABI_1_0(u64, return 0, get_device_guid);
ABI_1_0_NULL(get_device_list);
ABI_1_0_NULL(get_device_name);
ABI_1_0_INT(modify_qp);
ABI_1_0_INT(modify_srq);
ABI_1_0_NULL(open_device);
ABI_1_0_INT(query_device);
ABI_1_0_INT(query_gid);
ABI_1_0_INT(query_pkey);
ABI_1_0_INT(query_port);
ABI_1_0_INT(query_qp);
ABI_1_0_INT(query_srq);
ABI_1_0_NULL(reg_mr);
ABI_1_0_INT(resize_cq);
