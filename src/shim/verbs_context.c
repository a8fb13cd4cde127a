// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: open devices.
 *
 * cmd_fd is a memory file without contents: it stands for what the kernel's uverbs file would be. ibv_import_device() of it or a duplicate
 * gives a second context on the same file, whose domains and regions can be imported there. Another process has other memory: it cannot
 * import.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "shim/verbs_internal.h"

pthread_mutex_t shim_ctxs_lock = PTHREAD_MUTEX_INITIALIZER;
struct shim_ctx_list shim_ctxs = LIST_HEAD_INITIALIZER(shim_ctxs);

u32 shim_new_handle(void)
{
	static u32 last;

	return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

/* ---- the file ---- */

static struct shim_file *file_new(int fd)
{
	struct shim_file *f = calloc(1, sizeof(*f));
	struct stat st;

	if (!f || fstat(fd, &st)) {
		free(f);
		return NULL;
	}
	f->refs = 1;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	pthread_mutex_init(&f->lock, NULL);
	return f;
}

static void file_put(struct shim_file *f)
{
	if (users_dec(&f->refs))
		return;
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* ---- context ---- */

static void fill_ops(struct ibv_context_ops *ops)
{
	ops->_compat_query_device = (void *)shim_absent_int;
	ops->_compat_query_port = (void *)shim_absent_int;
	ops->_compat_alloc_pd = ops->_compat_dealloc_pd = ops->_compat_reg_mr = ops->_compat_rereg_mr = ops->_compat_dereg_mr =
		ops->_compat_create_cq = ops->_compat_cq_event = ops->_compat_resize_cq = ops->_compat_destroy_cq =
		ops->_compat_create_srq = ops->_compat_modify_srq = ops->_compat_query_srq = ops->_compat_destroy_srq =
		ops->_compat_create_qp = ops->_compat_query_qp = ops->_compat_modify_qp = ops->_compat_destroy_qp =
		ops->_compat_create_ah = ops->_compat_destroy_ah = ops->_compat_attach_mcast = ops->_compat_detach_mcast =
		ops->_compat_async_event = shim_absent_null;
	ops->alloc_mw = shim_alloc_mw;
	ops->bind_mw = shim_bind_mw;
	ops->dealloc_mw = shim_dealloc_mw;
	ops->poll_cq = shim_poll_cq;
	ops->req_notify_cq = shim_req_notify_cq;
	ops->post_srq_recv = shim_post_srq_recv;
	ops->post_send = shim_post_send;
	ops->post_recv = shim_post_recv;
}

/* What is NULL here gives EOPNOTSUPP in the inline functions of the header: see verbs_absent.c. */
static void fill_verbs(struct verbs_context *v)
{
	v->sz = sizeof(*v);
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->query_port = shim_query_port;
	v->query_device_ex = shim_query_device_ex;
	v->query_rt_values = shim_query_rt_values;
	v->alloc_td = shim_alloc_td;
	v->dealloc_td = shim_dealloc_td;
	v->alloc_parent_domain = shim_alloc_parent_domain;
	v->create_cq_ex = shim_create_cq_ex;
	v->create_srq_ex = shim_create_srq_ex;
	v->create_qp_ex = shim_create_qp_ex;
	v->close_xrcd = shim_close_xrcd; /* not looked at before it is called */
	fill_ops(&v->context.ops);
}

static struct shim_ctx *ctx_new(struct shim_device *dev, struct irdma_device *iwdev, struct shim_file *file, int cmd_fd)
{
	struct shim_ctx *ctx = calloc(1, sizeof(*ctx));
	int fd = shim_evfd_open(0);

	if (!ctx || fd < 0) {
		if (fd >= 0)
			real_close(fd);
		free(ctx);
		return NULL;
	}
	fill_verbs(&ctx->v);
	ctx->v.context.device = &dev->ibdev;
	ctx->v.context.cmd_fd = cmd_fd;
	ctx->v.context.async_fd = fd;
	ctx->v.context.num_comp_vectors = 1;
	pthread_mutex_init(&ctx->v.context.mutex, NULL);
	pthread_mutex_init(&ctx->ev_lock, NULL);
	ctx->dev = dev;
	ctx->iwdev = iwdev;
	ctx->file = file;
	ctx->refs = 1;
	TAILQ_INIT(&ctx->events);
	pthread_mutex_lock(&shim_ctxs_lock);
	LIST_INSERT_HEAD(&shim_ctxs, ctx, entry);
	pthread_mutex_unlock(&shim_ctxs_lock);
	return ctx;
}

void shim_ctx_get(struct shim_ctx *ctx)
{
	users_inc(&ctx->refs);
}

void shim_ctx_put(struct shim_ctx *ctx)
{
	if (users_dec(&ctx->refs))
		return;
	pthread_mutex_lock(&shim_ctxs_lock);
	LIST_REMOVE(ctx, entry);
	pthread_mutex_unlock(&shim_ctxs_lock);
	shim_event_purge(ctx, NULL);
	real_close(ctx->v.context.async_fd);
	real_close(ctx->v.context.cmd_fd);
	file_put(ctx->file);
	iwcm_device_put(shim_ctx(), ctx->iwdev);
	pthread_mutex_destroy(&ctx->ev_lock);
	pthread_mutex_destroy(&ctx->v.context.mutex);
	free(ctx);
}

/* ---- open and close ---- */

static struct irdma_device *device_get(const struct shim_device *dev)
{
	struct iwcm_ctx *nics = shim_ctx();

	if (!nics)
		return NULL;
	errno = ENODEV;
	return dev->gone ? NULL : iwcm_device_get(nics, dev->iwdev);
}

SHIM_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	SHIM_UNCANCELLED;
	struct shim_device *dev = to_device(device);
	struct irdma_device *iwdev = device_get(dev);
	struct shim_file *file = NULL;
	struct shim_ctx *ctx = NULL;
	int fd = -1;

	if (!iwdev)
		return NULL;
	fd = memfd_create("uwarp", MFD_CLOEXEC);
	if (fd >= 0)
		file = file_new(fd);
	if (file)
		ctx = ctx_new(dev, iwdev, file, fd);
	if (ctx)
		return &ctx->v.context;
	if (file)
		file_put(file);
	if (fd >= 0)
		real_close(fd);
	iwcm_device_put(shim_ctx(), iwdev);
	return shim_null(-ENOMEM);
}

/* The context that @fd belongs to, held. */
static struct shim_ctx *ctx_of_fd(int fd)
{
	struct shim_ctx *ctx;
	struct stat st;

	if (fstat(fd, &st))
		return NULL;
	pthread_mutex_lock(&shim_ctxs_lock);
	LIST_FOREACH(ctx, &shim_ctxs, entry)
		if (!ctx->closed && ctx->file->dev == st.st_dev && ctx->file->ino == st.st_ino)
			break;
	if (ctx)
		shim_ctx_get(ctx);
	pthread_mutex_unlock(&shim_ctxs_lock);
	return ctx;
}

SHIM_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	SHIM_UNCANCELLED;
	struct shim_ctx *of = ctx_of_fd(cmd_fd), *ctx = NULL;
	struct irdma_device *iwdev;

	if (!of)
		return shim_null(-EOPNOTSUPP);
	iwdev = device_get(of->dev);
	if (iwdev) {
		users_inc(&of->file->refs);
		ctx = ctx_new(of->dev, iwdev, of->file, cmd_fd);
		if (!ctx) {
			file_put(of->file);
			iwcm_device_put(shim_ctx(), iwdev);
			errno = ENOMEM;
		}
	}
	shim_ctx_put(of);
	return ctx ? &ctx->v.context : NULL;
}

/* Objects may be left; the kernel would end their connections now. */
static void end_connections(struct shim_ctx *ctx)
{
	struct shim_qp *qp;

	pthread_mutex_lock(&shim_ctxs_lock);
	ctx->closed = true;
	LIST_FOREACH(qp, &ctx->qps, entry)
		rnic_qp_modify(qp->rnic, RNIC_QP_ERROR);
	pthread_mutex_unlock(&shim_ctxs_lock);
}

SHIM_EXPORT int ibv_close_device(struct ibv_context *context)
{
	SHIM_UNCANCELLED;
	struct shim_ctx *ctx = to_ctx(context);

	end_connections(ctx);
	shim_ctx_put(ctx);
	return 0;
}
