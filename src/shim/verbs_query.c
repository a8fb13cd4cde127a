// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: what a device, its port and its tables are. As iWARP devices have it: one port, one GID that is the MAC address, one P_Key (the
 * default one).
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "shim/verbs_internal.h"

#define VENDOR_ID 0x757761u     /* "uwa": not an OUI that anybody has */
#define FIRMWARE "0.1.0"
#define DEFAULT_PKEY 0xffff
#define CLOCK_KHZ 1000000u      /* time stamps are nanoseconds of CLOCK_MONOTONIC */
#define MANY (1 << 20)          /* objects are limited by memory alone */

/* ---- device ---- */

static void fill_device(struct shim_ctx *ctx, struct ibv_device_attr *a)
{
	memset(a, 0, sizeof(*a));
	snprintf(a->fw_ver, sizeof(a->fw_ver), "%s", FIRMWARE);
	a->node_guid = a->sys_image_guid = ctx->dev->guid;
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = ~(u64)(sysconf(_SC_PAGESIZE) - 1);
	a->vendor_id = VENDOR_ID;
	a->vendor_part_id = 1;
	a->max_qp = a->max_cq = a->max_mr = a->max_pd = a->max_mw = a->max_srq = MANY;
	a->max_qp_wr = a->max_srq_wr = (int)RNIC_MAX_WR;
	a->max_sge = a->max_sge_rd = a->max_srq_sge = (int)RNIC_MAX_SGE;
	a->max_cqe = RNIC_MAX_CQE;
	a->device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_N_NOTIFY_CQ |
			      IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	a->max_qp_rd_atom = ctx->iwdev->limits.max_ird;
	a->max_qp_init_rd_atom = ctx->iwdev->limits.max_ord;
	a->max_res_rd_atom = MANY;
	a->atomic_cap = IBV_ATOMIC_HCA;
	a->max_pkeys = 1;
	a->phys_port_cnt = 1;
}

SHIM_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	fill_device(to_ctx(context), attr);
	return 0;
}

int shim_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t len)
{
	SHIM_UNCANCELLED;
	struct ibv_device_attr_ex a = { 0 };

	if (input && input->comp_mask)
		return EINVAL;
	if (len < sizeof(a.orig_attr))
		return EINVAL;
	fill_device(to_ctx(context), &a.orig_attr);
	a.completion_timestamp_mask = UINT64_MAX;
	a.hca_core_clock = CLOCK_KHZ;
	a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
	a.phys_port_cnt_ex = 1;
	memset(attr, 0, len);
	memcpy(attr, &a, min(len, sizeof(a)));
	return 0;
}

int shim_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	struct timespec now;
	u32 wanted = values->comp_mask;

	if (wanted & ~(u32)IBV_VALUES_MASK_RAW_CLOCK)
		return EOPNOTSUPP;
	if (wanted & IBV_VALUES_MASK_RAW_CLOCK) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		values->raw_clock.tv_sec = 0; /* cycles of the device's clock, in one number */
		values->raw_clock.tv_nsec = now.tv_sec * 1000000000L + now.tv_nsec;
	}
	return 0;
}

/* ---- port ---- */

enum ibv_mtu shim_mtu(u32 bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && (256u << mtu) <= bytes)
		mtu++;
	return mtu;
}

/* The values that have no names in the header: IBTA 14.2.5.6. */
enum { PHYS_DISABLED = 3, PHYS_LINK_UP = 5, WIDTH_4X = 2, SPEED_10_GBPS = 4 };

static void fill_port(struct shim_ctx *ctx, struct ibv_port_attr *a)
{
	struct net_iface iface = ctx->iwdev->iface;

	if (ctx->dev->gone || net_iface_by_index(ctx->iwdev->net, iface.ifindex, &iface))
		iface.up = false;
	a->state = iface.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a->phys_state = iface.up ? PHYS_LINK_UP : PHYS_DISABLED;
	a->max_mtu = IBV_MTU_4096;
	a->active_mtu = shim_mtu(iface.mtu);
	a->gid_tbl_len = 1;
	a->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP;
	a->max_msg_sz = RNIC_MAX_MSG;
	a->pkey_tbl_len = 1;
	a->max_vl_num = 1;
	a->active_width = WIDTH_4X;
	a->active_speed = SPEED_10_GBPS;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
}

/*
 * The caller's structure may be older than ours or newer: 48 bytes, 52, or 56 with an active_speed_ex, for which 0 means: see
 * active_speed.
 */
int shim_query_port(struct ibv_context *context, u8 port_num, struct ibv_port_attr *attr, size_t len)
{
	SHIM_UNCANCELLED;
	struct ibv_port_attr a = { 0 };

	if (port_num != 1)
		return EINVAL;
	fill_port(to_ctx(context), &a);
	memset(attr, 0, len);
	memcpy(attr, &a, min(len, sizeof(a)));
	return 0;
}

#undef ibv_query_port
#define COMPAT_PORT_ATTR 48 /* bytes: up to flags */

SHIM_EXPORT int ibv_query_port(struct ibv_context *context, u8 port_num, struct _compat_ibv_port_attr *attr)
{
	SHIM_UNCANCELLED;

	return shim_query_port(context, port_num, (struct ibv_port_attr *)attr, COMPAT_PORT_ATTR);
}

/* ---- tables ---- */

/* The MAC address, from the GUID, which has a made-up one for an interface that has none: a GID of zeros is no GID to programs. */
static void fill_gid(struct shim_ctx *ctx, union ibv_gid *gid)
{
	u8 guid[8];

	memcpy(guid, &ctx->dev->guid, sizeof(guid));
	memset(gid, 0, sizeof(*gid));
	memcpy(gid->raw, guid, 3);
	memcpy(gid->raw + 3, guid + 5, 3);
}

SHIM_EXPORT int ibv_query_gid(struct ibv_context *context, u8 port_num, int index, union ibv_gid *gid)
{
	SHIM_UNCANCELLED;

	if (port_num != 1 || index)
		return shim_minus_one(-EINVAL);
	fill_gid(to_ctx(context), gid);
	return 0;
}

static void fill_gid_entry(struct shim_ctx *ctx, struct ibv_gid_entry *entry, size_t size)
{
	struct ibv_gid_entry e = { .port_num = 1, .gid_type = IBV_GID_TYPE_IB, .ndev_ifindex = ctx->iwdev->iface.ifindex };

	fill_gid(ctx, &e.gid);
	memset(entry, 0, size);
	memcpy(entry, &e, min(size, sizeof(e)));
}

SHIM_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, u32 port_num, u32 gid_index, struct ibv_gid_entry *entry, u32 flags, size_t entry_size)
{
	SHIM_UNCANCELLED;

	if (flags)
		return EOPNOTSUPP;
	if (port_num != 1 || gid_index)
		return EINVAL;
	fill_gid_entry(to_ctx(context), entry, entry_size);
	return 0;
}

SHIM_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries, u32 flags, size_t entry_size)
{
	SHIM_UNCANCELLED;

	if (flags)
		return -EOPNOTSUPP;
	if (max_entries < 1)
		return -EINVAL;
	fill_gid_entry(to_ctx(context), entries, entry_size);
	return 1;
}

SHIM_EXPORT int ibv_query_gid_type(struct ibv_context *context, u8 port_num, unsigned int index, enum shim_gid_type *type)
{
	if (port_num != 1 || index)
		return shim_minus_one(-EINVAL);
	*type = SHIM_GID_IB_ROCE_V1;
	return 0;
}

SHIM_EXPORT int ibv_query_pkey(struct ibv_context *context, u8 port_num, int index, __be16 *pkey)
{
	if (port_num != 1 || index)
		return shim_minus_one(-EINVAL);
	*pkey = DEFAULT_PKEY; /* the same in either byte order */
	return 0;
}

SHIM_EXPORT int ibv_get_pkey_index(struct ibv_context *context, u8 port_num, __be16 pkey)
{
	return port_num == 1 && pkey == DEFAULT_PKEY ? 0 : shim_minus_one(-EINVAL);
}
