// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: protection domains, thread domains, and parent domains, which are a protection domain under another name: a thread domain promises
 * that one thread uses what is made in it, which saves nothing here.
 */
#include <stdlib.h>
#include "shim/verbs_internal.h"

/* A new struct shim_pd that stands for @rnic. */
static struct shim_pd *pd_new(struct ibv_context *context, struct rnic_pd *rnic)
{
	struct shim_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->pd.context = context;
	pd->pd.handle = shim_new_handle();
	pd->rnic = rnic;
	shim_ctx_get(to_ctx(context));
	return pd;
}

static void pd_free(struct shim_pd *pd)
{
	struct shim_ctx *ctx = to_ctx(pd->pd.context);

	free(pd);
	shim_ctx_put(ctx);
}

void shim_pd_get(struct ibv_pd *pd)
{
	users_inc(&to_pd(pd)->users);
}

void shim_pd_put(struct ibv_pd *ibpd)
{
	struct shim_pd *pd = to_pd(ibpd);
	bool imported = pd->imported; /* the program may free one that is not as soon as it has no users */

	if (users_dec(&pd->users) || !imported)
		return;
	users_dec(&pd->of->users);
	pd_free(pd);
}

SHIM_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	SHIM_UNCANCELLED;
	struct shim_ctx *ctx = to_ctx(context);
	struct rnic_pd *rnic;
	struct shim_pd *pd;
	int err = rnic_pd_create(ctx->iwdev, &rnic);

	if (err)
		return shim_null(err);
	pd = pd_new(context, rnic);
	if (!pd) {
		rnic_pd_destroy(rnic);
		return shim_null(-ENOMEM);
	}
	pthread_mutex_lock(&ctx->file->lock);
	LIST_INSERT_HEAD(&ctx->file->pds, pd, entry);
	pthread_mutex_unlock(&ctx->file->lock);
	return &pd->pd;
}

static int dealloc_parent(struct shim_pd *pd)
{
	shim_pd_put(&pd->of->pd);
	if (pd->td)
		users_dec(&pd->td->users);
	pd_free(pd);
	return 0;
}

static int dealloc_original(struct shim_pd *pd)
{
	struct shim_file *file = to_ctx(pd->pd.context)->file;
	bool busy;

	pthread_mutex_lock(&file->lock); /* nobody imports it from here on */
	busy = users_now(&pd->users) || rnic_pd_destroy(pd->rnic);
	if (!busy)
		LIST_REMOVE(pd, entry);
	pthread_mutex_unlock(&file->lock);
	if (busy)
		return EBUSY;
	pd_free(pd);
	return 0;
}

SHIM_EXPORT int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	SHIM_UNCANCELLED;
	struct shim_pd *pd = to_pd(ibpd);

	if (pd->imported || users_now(&pd->users))
		return EBUSY; /* an imported one is given up by ibv_unimport_pd(): the original is in use elsewhere */
	return pd->parent ? dealloc_parent(pd) : dealloc_original(pd);
}

/* ---- import ---- */

SHIM_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, u32 handle)
{
	SHIM_UNCANCELLED;
	struct shim_file *file = to_ctx(context)->file;
	struct shim_pd *of, *pd = NULL;

	pthread_mutex_lock(&file->lock);
	LIST_FOREACH(of, &file->pds, entry)
		if (of->pd.handle == handle)
			break;
	if (of)
		pd = pd_new(context, of->rnic);
	if (pd) {
		pd->pd.handle = handle;
		pd->of = of;
		pd->imported = true;
		pd->users = 1;
		users_inc(&of->users);
	}
	pthread_mutex_unlock(&file->lock);
	return pd ? &pd->pd : shim_null(of ? -ENOMEM : -ENOENT);
}

SHIM_EXPORT void ibv_unimport_pd(struct ibv_pd *ibpd)
{
	SHIM_UNCANCELLED;

	if (to_pd(ibpd)->imported)
		shim_pd_put(ibpd); /* what was made in it, and it, stay until that is destroyed */
}

/* ---- thread and parent domains ---- */

struct ibv_td *shim_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct shim_td *td;

	if (attr->comp_mask)
		return shim_null(-EINVAL);
	td = calloc(1, sizeof(*td));
	if (!td)
		return shim_null(-ENOMEM);
	td->td.context = context;
	shim_ctx_get(to_ctx(context));
	return &td->td;
}

int shim_dealloc_td(struct ibv_td *ibtd)
{
	struct shim_td *td = container_of(ibtd, struct shim_td, td);
	struct shim_ctx *ctx = to_ctx(ibtd->context);

	if (users_now(&td->users))
		return EBUSY;
	free(td);
	shim_ctx_put(ctx);
	return 0;
}

struct ibv_pd *shim_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	struct shim_pd *pd, *of;

	if (attr->comp_mask & ~(u32)(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) || !attr->pd)
		return shim_null(-EINVAL);
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS)
		return shim_null(-EOPNOTSUPP); /* queues are the NIC's: there is nothing to allocate with them */
	of = to_pd(attr->pd);
	pd = pd_new(context, of->rnic);
	if (!pd)
		return shim_null(-ENOMEM);
	pd->parent = true;
	pd->of = of;
	shim_pd_get(attr->pd);
	if (attr->td) {
		pd->td = container_of(attr->td, struct shim_td, td);
		users_inc(&pd->td->users);
	}
	return &pd->pd;
}
