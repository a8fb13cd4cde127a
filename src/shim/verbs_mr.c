// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: memory regions and windows.
 *
 * Rights that are hints (relaxed ordering, huge pages) are dropped; memory on demand is refused: what a program registers is in its own
 * address space anyway, so there is nothing to pin, and nothing for ibv_advise_mr() to do.
 */
#include <stdlib.h>
#include <string.h>
#include "shim/verbs_internal.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define HINTS (IBV_ACCESS_OPTIONAL_RANGE | IBV_ACCESS_HUGETLB)

/* ---- regions ---- */

static struct ibv_mr *mr_reg(struct ibv_pd *ibpd, const struct rnic_mr_attr *attr)
{
	struct shim_pd *pd = to_pd(ibpd);
	struct shim_file *file = to_ctx(ibpd->context)->file;
	struct shim_mr *mr = calloc(1, sizeof(*mr));
	int err = mr ? rnic_mr_create(pd->rnic, attr, &mr->rnic) : -ENOMEM;

	if (err) {
		free(mr);
		return shim_null(err);
	}
	mr->mr.context = ibpd->context;
	mr->mr.pd = ibpd;
	mr->mr.addr = attr->addr;
	mr->mr.length = attr->length;
	mr->mr.handle = shim_new_handle();
	mr->mr.lkey = mr->mr.rkey = rnic_mr_stag(mr->rnic);
	mr->iova = attr->iova;
	mr->access = attr->access;
	shim_pd_get(ibpd);
	pthread_mutex_lock(&file->lock);
	LIST_INSERT_HEAD(&file->mrs, mr, entry);
	pthread_mutex_unlock(&file->lock);
	return &mr->mr;
}

/* The rights that the NIC knows; -EOPNOTSUPP. */
static int nic_access(unsigned int access)
{
	if (access & IBV_ACCESS_ON_DEMAND)
		return -EOPNOTSUPP;
	return (int)(access & ~(unsigned int)HINTS);
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, u64 iova, unsigned int access)
{
	struct rnic_mr_attr attr = { .addr = addr, .length = length, .iova = iova, .access = nic_access(access) };

	if (attr.access < 0)
		return shim_null(attr.access);
	if (access & IBV_ACCESS_ZERO_BASED)
		attr.iova = 0;
	return mr_reg(pd, &attr);
}

SHIM_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	SHIM_UNCANCELLED;

	return reg(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

SHIM_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, u64 iova, int access)
{
	SHIM_UNCANCELLED;

	return reg(pd, addr, length, iova, (unsigned int)access);
}

SHIM_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, u64 iova, unsigned int access)
{
	SHIM_UNCANCELLED;

	return reg(pd, addr, length, iova, access);
}

SHIM_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, u64 offset, size_t length, u64 iova, int fd, int access)
{
	SHIM_UNCANCELLED;

	return shim_null(-EOPNOTSUPP);
}

/* What is asked for does not fit together: the region stays as it is. Its domain keeps its context, so that one cannot be another's. */
static bool bad_change(const struct shim_mr *mr, int flags, const struct ibv_pd *pd, const void *addr, size_t length)
{
	return !flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED ||
	       (flags & IBV_REREG_MR_CHANGE_PD && (!pd || pd->context != mr->mr.context)) || (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!addr || !length));
}

static void mr_changed(struct shim_mr *mr, int flags, struct ibv_pd *pd, const struct rnic_mr_attr *attr)
{
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->mr.addr = attr->addr;
		mr->mr.length = attr->length;
		mr->iova = attr->iova;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		mr->access = attr->access;
	if (flags & IBV_REREG_MR_CHANGE_PD && pd != mr->mr.pd) {
		shim_pd_get(pd);
		shim_pd_put(mr->mr.pd);
		mr->mr.pd = pd;
	}
	mr->mr.lkey = mr->mr.rkey = rnic_mr_stag(mr->rnic);
}

SHIM_EXPORT int ibv_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	SHIM_UNCANCELLED;
	struct shim_mr *mr = to_mr(ibmr);
	struct rnic_mr_attr attr = { .addr = mr->mr.addr, .length = mr->mr.length, .iova = mr->iova, .access = mr->access };
	int err = bad_change(mr, flags, pd, addr, length) ? -EINVAL : users_now(&mr->users) || mr->of ? -EBUSY : 0;

	if (!err && flags & IBV_REREG_MR_CHANGE_ACCESS) {
		attr.access = nic_access((unsigned int)access);
		err = attr.access < 0 ? attr.access : 0;
	}
	if (!err && flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		attr.addr = addr;
		attr.length = length;
		attr.iova = attr.access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
	}
	if (!err)
		err = rnic_mr_change(mr->rnic, flags, flags & IBV_REREG_MR_CHANGE_PD ? to_pd(pd)->rnic : NULL, &attr);
	if (err) {
		errno = -err;
		return IBV_REREG_MR_ERR_INPUT;
	}
	mr_changed(mr, flags, pd, &attr);
	return 0;
}

SHIM_EXPORT int ibv_dereg_mr(struct ibv_mr *ibmr)
{
	SHIM_UNCANCELLED;
	struct shim_mr *mr = to_mr(ibmr);
	struct shim_file *file = to_ctx(ibmr->context)->file;
	int err;

	if (mr->of)
		return EBUSY; /* imported: ibv_unimport_mr() */
	pthread_mutex_lock(&file->lock);
	err = users_now(&mr->users) ? -EBUSY : 0;
	if (!err)
		LIST_REMOVE(mr, entry);
	pthread_mutex_unlock(&file->lock);
	if (err)
		return EBUSY;
	err = rnic_mr_destroy(mr->rnic);
	if (err) {
		pthread_mutex_lock(&file->lock);
		LIST_INSERT_HEAD(&file->mrs, mr, entry);
		pthread_mutex_unlock(&file->lock);
		return -err;
	}
	shim_pd_put(ibmr->pd);
	free(mr);
	return 0;
}

/* ---- import ---- */

SHIM_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *ibpd, u32 handle)
{
	SHIM_UNCANCELLED;
	struct shim_file *file = to_ctx(ibpd->context)->file;
	struct shim_mr *of, *mr = calloc(1, sizeof(*mr));
	struct shim_pd *pd = to_pd(ibpd);

	if (!mr)
		return shim_null(-ENOMEM);
	pthread_mutex_lock(&file->lock);
	LIST_FOREACH(of, &file->mrs, entry)
		if (of->mr.handle == handle && to_pd(of->mr.pd)->rnic == pd->rnic)
			break;
	if (of) {
		mr->mr = of->mr;
		mr->of = of;
		users_inc(&of->users);
	}
	pthread_mutex_unlock(&file->lock);
	if (!of) {
		free(mr);
		return shim_null(-ENOENT);
	}
	mr->mr.context = ibpd->context;
	mr->mr.pd = ibpd;
	mr->mr.addr = NULL; /* whose memory it is knows */
	mr->rnic = of->rnic;
	shim_pd_get(ibpd);
	return &mr->mr;
}

SHIM_EXPORT void ibv_unimport_mr(struct ibv_mr *ibmr)
{
	SHIM_UNCANCELLED;
	struct shim_mr *mr = to_mr(ibmr);

	if (!mr->of)
		return;
	users_dec(&mr->of->users);
	shim_pd_put(ibmr->pd);
	free(mr);
}

/* ---- windows ---- */

struct ibv_mw *shim_alloc_mw(struct ibv_pd *ibpd, enum ibv_mw_type type)
{
	SHIM_UNCANCELLED;
	struct shim_mw *mw = calloc(1, sizeof(*mw));
	int err = mw ? rnic_mw_create(to_pd(ibpd)->rnic, type, &mw->rnic) : -ENOMEM;

	if (err) {
		free(mw);
		return shim_null(err);
	}
	mw->mw.context = ibpd->context;
	mw->mw.pd = ibpd;
	mw->mw.type = type;
	mw->mw.handle = shim_new_handle();
	mw->mw.rkey = rnic_mw_rkey(mw->rnic);
	shim_pd_get(ibpd);
	return &mw->mw;
}

int shim_dealloc_mw(struct ibv_mw *ibmw)
{
	SHIM_UNCANCELLED;
	struct shim_mw *mw = to_mw(ibmw);
	int err = rnic_mw_destroy(mw->rnic);

	if (err)
		return -err;
	shim_pd_put(ibmw->pd);
	free(mw);
	return 0;
}

/* Type 1: a work request like any other, whose key the program knows at once. ibv_bind_mw() has checked type and domains. */
int shim_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	SHIM_UNCANCELLED;
	struct ibv_send_wr wr = { .wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags }, *bad;
	int err;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rnic_mw_new_rkey(to_mw(mw)->rnic);
	wr.bind_mw.bind_info = bind->bind_info;
	err = shim_post_send(qp, &wr, &bad);
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
	return err;
}

/* ---- work requests name these: the NIC asks ---- */

static struct rnic_mw *nic_mw(const struct ibv_mw *mw)
{
	return mw ? container_of(mw, const struct shim_mw, mw)->rnic : NULL;
}

static struct rnic_mr *nic_mr(const struct ibv_mr *mr)
{
	return mr ? container_of(mr, const struct shim_mr, mr)->rnic : NULL;
}

const struct rnic_bind_ops shim_bind_ops = { .mw = nic_mw, .mr = nic_mr };
