/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* shim: commands of the rdma_cm device that ask. Responses are as long as this header's, or as the program has room for. */
#include <errno.h>
#include <infiniband/ib.h>
#include <stdlib.h>
#include <string.h>
#include "shim/cmdev_internal.h"

#define PORT 1
#define PKEY_DEFAULT 0xFFFF
#define ANY_INDEX 0xFFFFFFFFu /* librdmacm then goes by the guid alone */

static size_t sockaddr_len(const struct sockaddr_storage *ss)
{
	return ss->ss_family == AF_INET ? sizeof(struct sockaddr_in) : ss->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

/* Local and remote address; AF_UNSPEC where there is none. */
static void get_addrs(const struct cmdev_id *id, struct sockaddr_storage *local, struct sockaddr_storage *remote)
{
	memset(local, 0, sizeof(*local));
	memset(remote, 0, sizeof(*remote));
	if (!id->cm)
		return;
	iwcm_local_addr(id->cm, local);
	iwcm_remote_addr(id->cm, remote);
	if (!id->no_port)
		return;
	if (remote->ss_family == AF_INET)
		((struct sockaddr_in *)remote)->sin_port = 0;
	else if (remote->ss_family == AF_INET6)
		((struct sockaddr_in6 *)remote)->sin6_port = 0;
}

/* 0, as for the wildcard: no device. */
static __be64 guid_of(const struct cmdev_id *id)
{
	struct irdma_device *iwdev = id->cm ? iwcm_id_device(id->cm) : NULL;

	return iwdev ? shim_device_guid(iwdev) : 0;
}

/* iWARP has no GIDs of its own; an address's is the address, IPv4 mapped into IPv6. */
static void gid_of(const struct sockaddr_storage *ss, u8 gid[16])
{
	memset(gid, 0, 16);
	if (ss->ss_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)ss)->sin6_addr, 16);
	} else if (ss->ss_family == AF_INET) {
		gid[10] = gid[11] = 0xFF;
		memcpy(gid + 12, &((const struct sockaddr_in *)ss)->sin_addr, 4);
	}
}

static void device_fill(const struct cmdev_id *id, struct rdma_ucm_query_addr_resp *r)
{
	r->node_guid = guid_of(id);
	r->ibdev_index = ANY_INDEX;
	if (!r->node_guid)
		return;
	r->port_num = PORT;
	r->pkey = PKEY_DEFAULT;
}

static int put_response(const struct cmdev_call *c, const void *resp, size_t len)
{
	return cmdev_put(c->cmd.query.response, resp, min(len, (size_t)c->out));
}

static int query_addr(const struct cmdev_call *c, const struct cmdev_id *id)
{
	struct rdma_ucm_query_addr_resp r = { 0 };
	struct sockaddr_storage local, remote;

	if (c->out < offsetof(struct rdma_ucm_query_addr_resp, ibdev_index))
		return -ENOSPC;
	get_addrs(id, &local, &remote);
	device_fill(id, &r);
	r.src_size = (u16)sockaddr_len(&local);
	r.dst_size = (u16)sockaddr_len(&remote);
	memcpy(&r.src_addr, &local, r.src_size);
	memcpy(&r.dst_addr, &remote, r.dst_size);
	return put_response(c, &r, sizeof(r));
}

static void gid_addr(const struct sockaddr_storage *ss, struct __kernel_sockaddr_storage *out)
{
	struct sockaddr_ib *ib = (struct sockaddr_ib *)out;

	ib->sib_family = AF_IB;
	ib->sib_pkey = htobe16(PKEY_DEFAULT);
	gid_of(ss, ib->sib_addr.sib_raw);
}

static int query_gid(const struct cmdev_call *c, const struct cmdev_id *id)
{
	struct rdma_ucm_query_addr_resp r = { 0 };
	struct sockaddr_storage local, remote;

	if (c->out < offsetof(struct rdma_ucm_query_addr_resp, ibdev_index))
		return -ENOSPC;
	get_addrs(id, &local, &remote);
	device_fill(id, &r);
	r.src_size = r.dst_size = sizeof(struct sockaddr_ib);
	gid_addr(&local, &r.src_addr);
	gid_addr(&remote, &r.dst_addr);
	return put_response(c, &r, sizeof(r));
}

/* There are no path records on iWARP. */
static int query_path(const struct cmdev_call *c)
{
	struct rdma_ucm_query_path_resp r = { 0 };

	return put_response(c, &r, sizeof(r));
}

static int query(const struct cmdev_call *c, const struct cmdev_id *id)
{
	switch (c->cmd.query.option) {
	case RDMA_USER_CM_QUERY_ADDR:
		return query_addr(c, id);
	case RDMA_USER_CM_QUERY_PATH:
		return query_path(c);
	case RDMA_USER_CM_QUERY_GID:
		return query_gid(c, id);
	default:
		return -ENOSYS;
	}
}

int cmdev_query(struct cmdev_call *c)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, c->cmd.query.id, &id);

	return err ? err : cmdev_id_end(id, query(c, id));
}

static int query_route(const struct cmdev_call *c, const struct cmdev_id *id)
{
	struct rdma_ucm_query_route_resp r = { .ibdev_index = ANY_INDEX };
	struct sockaddr_storage local, remote;

	get_addrs(id, &local, &remote);
	memcpy(&r.src_addr, &local, sockaddr_len(&local));
	memcpy(&r.dst_addr, &remote, sockaddr_len(&remote));
	r.node_guid = guid_of(id);
	if (r.node_guid) {
		r.port_num = PORT;
		gid_of(&local, r.ib_route[0].sgid);
		gid_of(&remote, r.ib_route[0].dgid);
	}
	return put_response(c, &r, sizeof(r));
}

int cmdev_query_route(struct cmdev_call *c)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, c->cmd.query.id, &id);

	return err ? err : cmdev_id_end(id, query_route(c, id));
}

/* ---- INIT_QP_ATTR ---- */

/*
 * As the kernel's iWARP: librdmacm moves the QP to INIT and RTR for form's sake, with rights for remote access; RTS it leaves to the NIC.
 * The rights are all there are, here: a region without them is safe anyhow.
 */
static int qp_attr_fill(u32 state, struct ib_uverbs_qp_attr *a)
{
	a->qp_attr_mask = IBV_QP_PORT;
	a->port_num = PORT;
	switch (state) {
	case IBV_QPS_INIT:
	case IBV_QPS_RTR:
		a->qp_attr_mask |= IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
		a->qp_state = state;
		a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
		return 0;
	case IBV_QPS_RTS:
		a->qp_state = state;
		return 0;
	default:
		return -EINVAL;
	}
}

int cmdev_init_qp_attr(struct cmdev_call *c)
{
	struct ib_uverbs_qp_attr attr = { 0 };
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, c->cmd.init_qp_attr.id, &id);

	if (err)
		return err;
	if (!id->cm || !iwcm_id_device(id->cm))
		return cmdev_id_end(id, -EINVAL);
	err = qp_attr_fill(c->cmd.init_qp_attr.qp_state, &attr);
	if (!err)
		err = cmdev_put(c->cmd.init_qp_attr.response, &attr, sizeof(attr));
	return cmdev_id_end(id, err);
}
