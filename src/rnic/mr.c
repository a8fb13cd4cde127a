/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory regions: memory of the program under an STag.
 *
 * Nothing is pinned: the NIC is in the process and uses its addresses. What a NIC in hardware finds out while it pins, that memory is not
 * there or may not be written, is found here by asking the kernel, which takes time by the number of mappings, not of pages: each page must
 * be mapped, and the first and the last one must allow what the rights say.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "rnic/rnic_internal.h"

#define NEED_LOCAL_WRITE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define KNOWN_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | \
		      IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE)

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* ---- is the memory there? ---- */

static uintptr_t page_of(uintptr_t addr)
{
	return addr & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
}

static bool page_allows(uintptr_t page, int advice)
{
	return !madvise((void *)page, (size_t)sysconf(_SC_PAGESIZE), advice) || errno == EAGAIN || errno == EINTR;
}

/* An older kernel refuses everything: also a page of our own. */
static bool kernel_can_tell(int advice)
{
	int here = 0;

	return page_allows(page_of((uintptr_t)&here), advice);
}

static bool is_accessible(const void *addr, u64 length, bool write)
{
	int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	uintptr_t first = page_of((uintptr_t)addr), last = page_of((uintptr_t)addr + (length - 1));
	u64 span = (uintptr_t)addr + length - first;

	if (msync((void *)first, span, MS_ASYNC)) /* starts nothing, but looks whether all is mapped */
		return false;
	if (page_allows(first, advice) && (last == first || page_allows(last, advice)))
		return true;
	return !kernel_can_tell(advice);
}

/* ---- attributes ---- */

static int check_access(int access)
{
	if (access & IBV_ACCESS_ON_DEMAND)
		return -EOPNOTSUPP;
	if (access & ~KNOWN_RIGHTS)
		return -EINVAL;
	if ((access & NEED_LOCAL_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

static u64 base_of(const struct rnic_mr_attr *attr)
{
	return attr->access & IBV_ACCESS_ZERO_BASED ? 0 : attr->iova;
}

static int check_attr(const struct rnic_mr_attr *attr)
{
	uintptr_t addr = (uintptr_t)attr->addr;
	u64 last = attr->length - 1;
	int rc = check_access(attr->access);

	if (rc)
		return rc;
	if (!attr->length || addr + last < addr || base_of(attr) + last < last)
		return -EINVAL;
	return is_accessible(attr->addr, attr->length, attr->access & IBV_ACCESS_LOCAL_WRITE) ? 0 : -EFAULT;
}

static void set_attr(struct rnic_stag *s, const struct rnic_mr_attr *attr)
{
	s->ptr = attr->addr;
	s->length = attr->length;
	s->base = base_of(attr);
	s->access = attr->access;
}

/**
 * rnic_mr_create() - register memory
 * @pd: protection domain
 * @attr: which memory (at least a byte), its address for others, rights
 * @out: the region
 *
 * The memory stays mapped until rnic_mr_destroy(); that is up to the program.
 *
 * Return: 0; -EINVAL (no bytes, a wrap, unknown rights, remote write or atomics without local write); -EOPNOTSUPP (on demand); -EFAULT (not
 * mapped, or not so that the rights could be used); -ENOMEM; -ENOSPC (RNIC_MAX_STAGS).
 */
int rnic_mr_create(struct rnic_pd *pd, const struct rnic_mr_attr *attr, struct rnic_mr **out)
{
	struct rnic_mr *mr;
	int rc = check_attr(attr);

	if (rc)
		return rc;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	mr->s.kind = RNIC_STAG_REGION;
	mr->s.valid = true;
	mr->s.pd = pd;
	set_attr(&mr->s, attr);
	rc = rnic_stag_add(&mr->s);
	if (rc) {
		free(mr);
		return rc;
	}
	*out = mr;
	return 0;
}

struct change {
	struct rnic_pd *pd;
	struct rnic_mr_attr attr;
};

static void apply(struct rnic_stag *s, const void *arg)
{
	const struct change *c = arg;

	s->pd = c->pd;
	set_attr(s, &c->attr);
}

/* The attributes as they will be. */
static void merge(const struct rnic_stag *s, int flags, struct rnic_pd *pd, const struct rnic_mr_attr *attr, struct change *c)
{
	c->pd = flags & IBV_REREG_MR_CHANGE_PD ? pd : s->pd;
	c->attr = (struct rnic_mr_attr){ .addr = s->ptr, .length = s->length, .iova = s->base, .access = s->access };
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		c->attr.addr = attr->addr;
		c->attr.length = attr->length;
		c->attr.iova = attr->iova;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		c->attr.access = attr->access;
}

/**
 * rnic_mr_change() - register anew
 * @mr: the region; not in two calls at a time
 * @flags: IBV_REREG_MR_CHANGE_*: which of the following count
 * @pd: protection domain, of the same device
 * @attr: translation (a new STag then) and rights; may be NULL if neither changes
 *
 * With the translation unchanged, accesses that were checked before the change may go on for a moment.
 *
 * Return: 0, or what rnic_mr_create() would say, or -EBUSY while windows are bound to it; the region is as it was then.
 */
int rnic_mr_change(struct rnic_mr *mr, int flags, struct rnic_pd *pd, const struct rnic_mr_attr *attr)
{
	struct rnic_pd *old = mr->s.pd;
	struct change c;
	int rc;

	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		return -EINVAL;
	if ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->iwdev != old->iwdev))
		return -EINVAL;
	merge(&mr->s, flags, pd, attr, &c);
	rc = check_attr(&c.attr);
	if (rc)
		return rc;
	rnic_pd_hold(c.pd);
	rc = rnic_stag_change(&mr->s, flags & IBV_REREG_MR_CHANGE_TRANSLATION, apply, &c);
	rnic_pd_put(rc ? c.pd : old);
	return rc;
}

/**
 * rnic_mr_destroy() - end a region
 * @mr: the region
 *
 * Waits for accesses that are just going on; afterwards nobody touches the memory.
 *
 * Return: 0, or -EBUSY while windows are bound to it.
 */
int rnic_mr_destroy(struct rnic_mr *mr)
{
	int rc = rnic_stag_del(&mr->s);

	if (!rc)
		free(mr);
	return rc;
}

/**
 * rnic_mr_stag() - a region's STag
 * @mr: the region
 *
 * Return: lkey and rkey.
 */
u32 rnic_mr_stag(const struct rnic_mr *mr)
{
	return __atomic_load_n(&mr->s.stag, __ATOMIC_RELAXED);
}
