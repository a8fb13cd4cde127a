/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory windows: a part of a region under an STag of its own, which a QP gives out and takes back in the order of its work requests.
 *
 * Type 1 is bound by ibv_bind_mw(), anew as often as one likes, and belongs to its protection domain. Type 2 is bound by IBV_WR_BIND_MW
 * under a key that the program chooses, belongs to the QP that bound it, and must be invalidated before it is bound again: by
 * IBV_WR_LOCAL_INV, or by the peer's Send with Invalidate (RFC 5040 5.3). A window's index is its own for all its life; unbound, it stays in
 * the table as invalid.
 */
#include <stdlib.h>
#include "rnic/rnic_internal.h"

#define WINDOW_RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define WRITING_RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

const struct rnic_bind_ops *rnic_bind_ops;

/**
 * rnic_mw_create() - a window, not bound
 * @pd: protection domain
 * @type: IBV_MW_TYPE_1 or IBV_MW_TYPE_2
 * @out: the window
 *
 * Return: 0; -EINVAL (type); -ENOMEM; -ENOSPC (RNIC_MAX_STAGS).
 */
int rnic_mw_create(struct rnic_pd *pd, enum ibv_mw_type type, struct rnic_mw **out)
{
	struct rnic_mw *mw;
	int rc;

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return -EINVAL;
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return -ENOMEM;
	mw->s.kind = type == IBV_MW_TYPE_1 ? RNIC_STAG_WINDOW_1 : RNIC_STAG_WINDOW_2;
	mw->s.pd = pd;
	rc = rnic_stag_add(&mw->s);
	if (rc) {
		free(mw);
		return rc;
	}
	*out = mw;
	return 0;
}

static void let_go(struct rnic_stag *region)
{
	if (region)
		count_down(&region->bound);
}

/* Called with the shard's lock held, or when it is in no table any more. The region, which is to be let go. */
static struct rnic_stag *unbind(struct rnic_stag *w)
{
	struct rnic_stag *region = w->region;

	w->region = NULL;
	w->valid = false;
	return region;
}

/**
 * rnic_mw_destroy() - end a window, bound or not
 * @mw: the window
 *
 * Waits for accesses that are just going on.
 *
 * Return: 0.
 */
int rnic_mw_destroy(struct rnic_mw *mw)
{
	int rc = rnic_stag_del(&mw->s);

	assert(!rc); /* nothing is bound to a window */
	let_go(unbind(&mw->s));
	free(mw);
	return rc;
}

/**
 * rnic_mw_rkey() - a window's STag
 * @mw: the window
 *
 * Return: the STag that the last executed bind gave it.
 */
u32 rnic_mw_rkey(const struct rnic_mw *mw)
{
	return __atomic_load_n(&mw->s.stag, __ATOMIC_RELAXED);
}

/**
 * rnic_mw_new_rkey() - an STag for the next bind
 * @mw: the window
 *
 * Return: the window's index with another, random key.
 */
u32 rnic_mw_new_rkey(const struct rnic_mw *mw)
{
	return rnic_stag_new_key(rnic_mw_rkey(mw));
}

/* ---- bind ---- */

static bool rights_are_valid(const struct rnic_stag *w, int access)
{
	int may = WINDOW_RIGHTS | IBV_ACCESS_LOCAL_WRITE; /* programs set the latter; it means nothing */

	if (w->kind == RNIC_STAG_WINDOW_2)
		may |= IBV_ACCESS_ZERO_BASED;
	return !(access & ~may);
}

/*
 * The region, if the window's part may be in it. With bind_lock held: while it is, a region that is bindable stays, and does not change.
 */
static struct rnic_stag *find_region(const struct irdma_qp *qp, const struct rnic_bind *b)
{
	struct rnic_stag_shard *shard = rnic_stag_lock(qp->iwdev, b->region);
	struct rnic_stag *r = rnic_stag_find(shard, b->region);
	bool ok = r && r->stag == b->region && r->bindable && r->pd == qp->pd && (r->access & IBV_ACCESS_MW_BIND);

	if (ok && (b->access & WRITING_RIGHTS) && !(r->access & IBV_ACCESS_LOCAL_WRITE))
		ok = false;
	if (ok && (b->addr < r->base || b->addr - r->base >= r->length || b->length > r->length - (b->addr - r->base)))
		ok = false;
	mutex_unlock(&shard->lock);
	return ok ? r : NULL;
}

static bool window_allows(const struct rnic_stag *w, const struct irdma_qp *qp, const struct rnic_bind *b)
{
	if (w->kind == RNIC_STAG_REGION || w->pd != qp->pd || !rights_are_valid(w, b->access))
		return false;
	if (w->kind == RNIC_STAG_WINDOW_1 && !b->rkey)
		return true;
	if (w->kind == RNIC_STAG_WINDOW_2 && (w->valid || !b->length))
		return false;
	return RNIC_STAG_INDEX(b->rkey) == RNIC_STAG_INDEX(w->stag);
}

static void set_window(struct rnic_stag *w, struct rnic_stag *region, const struct irdma_qp *qp, const struct rnic_bind *b)
{
	w->region = region;
	w->ptr = region->ptr + (b->addr - region->base);
	w->base = b->access & IBV_ACCESS_ZERO_BASED ? 0 : b->addr;
	w->length = b->length;
	w->access = b->access & WINDOW_RIGHTS;
	w->qp_num = qp->qp_num;
	w->valid = true;
	count_up(&region->bound);
}

/* @region NULL: unbind. With bind_lock held. */
static int bind_window(struct rnic_stag *region, const struct irdma_qp *qp, const struct rnic_bind *b)
{
	struct rnic_stag_shard *shard = rnic_stag_lock(qp->iwdev, b->window);
	struct rnic_stag *w = rnic_stag_find(shard, b->window), *old = NULL;
	int rc = -EINVAL;

	if (w && window_allows(w, qp, b)) {
		old = unbind(w);
		__atomic_store_n(&w->stag, b->rkey ? b->rkey : rnic_stag_new_key(w->stag), __ATOMIC_RELAXED);
		if (region)
			set_window(w, region, qp, b);
		rc = 0;
	}
	mutex_unlock(&shard->lock);
	let_go(old);
	return rc;
}

int rnic_bind_execute(const struct irdma_qp *qp, const struct rnic_bind *b)
{
	struct rnic_stag_table *t = rnic_stag_table_of(qp->iwdev);
	struct rnic_stag *region;
	int rc = -EINVAL;

	mutex_lock(&t->bind_lock);
	region = b->length ? find_region(qp, b) : NULL;
	if (region || !b->length)
		rc = bind_window(region, qp, b);
	mutex_unlock(&t->bind_lock);
	return rc;
}

int rnic_bind_get(const struct ibv_send_wr *wr, struct rnic_bind *b)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	const struct rnic_mw *mw = wr->bind_mw.mw ? rnic_bind_ops->mw(wr->bind_mw.mw) : NULL;
	const struct rnic_mr *mr = info->mr ? rnic_bind_ops->mr(info->mr) : NULL;

	if (!mw || (info->length && !mr))
		return -EINVAL;
	*b = (struct rnic_bind){
		.window = rnic_mw_rkey(mw),
		.region = mr ? rnic_mr_stag(mr) : 0,
		.rkey = wr->bind_mw.rkey,
		.access = (int)info->mw_access_flags,
		.addr = info->addr,
		.length = info->length,
	};
	return 0;
}

/**
 * rnic_mw_bind() - execute a bind
 * @qp: the QP in whose send queue it is
 * @wr: IBV_WR_BIND_MW. Type 1: rkey 0 stands for rnic_mw_new_rkey(), length 0 unbinds
 *
 * Return: 0; -EINVAL: the window or the region is in another protection domain than the QP, or the range is not in the region, or the
 * region does not allow it (IBV_ACCESS_MW_BIND; local write for the writing rights), or these are no rights for a window, or the rkey has
 * another index, or a type 2 window is bound already or is to be bound to nothing.
 */
int rnic_mw_bind(const struct irdma_qp *qp, const struct ibv_send_wr *wr)
{
	struct rnic_bind b;
	int rc = rnic_bind_get(wr, &b);

	return rc ? rc : rnic_bind_execute(qp, &b);
}

/* ---- invalidate ---- */

static enum rnic_mem_status invalidate_locked(struct rnic_stag *s, const struct irdma_qp *qp, struct rnic_stag **region)
{
	if (s->pd != qp->pd)
		return RNIC_MEM_STREAM;
	if (s->kind != RNIC_STAG_WINDOW_2)
		return RNIC_MEM_ACCESS;
	if (s->qp_num != qp->qp_num)
		return RNIC_MEM_STREAM;
	*region = unbind(s);
	return RNIC_MEM_OK;
}

/**
 * rnic_stag_invalidate() - take back what a bind gave
 * @qp: the QP
 * @stag: of a type 2 window that is bound to this QP
 * @remote: by the peer's Send with Invalidate; else by IBV_WR_LOCAL_INV. The rules are the same: a program's region ends with its
 *	deregistration alone, and a type 1 window with a bind
 *
 * Does not wait for accesses that are going on: they may be the caller's own. The region does, when it ends.
 *
 * Return: RNIC_MEM_OK; RNIC_MEM_STAG (none, or not bound); RNIC_MEM_STREAM (another protection domain or QP); RNIC_MEM_ACCESS (nothing that
 * can be invalidated, RFC 5040 4.8: "STag cannot be invalidated").
 */
enum rnic_mem_status rnic_stag_invalidate(const struct irdma_qp *qp, u32 stag, bool remote)
{
	struct rnic_stag_shard *shard = rnic_stag_lock(qp->iwdev, stag);
	struct rnic_stag *s = rnic_stag_find(shard, stag), *region = NULL;
	enum rnic_mem_status status = RNIC_MEM_STAG;

	if (s && s->stag == stag && s->valid)
		status = invalidate_locked(s, qp, &region);
	mutex_unlock(&shard->lock);
	let_go(region);
	return status;
}
