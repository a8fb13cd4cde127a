// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* shim: queue pairs: made, looked at, destroyed, posted to. */
#include <stdlib.h>
#include "shim/verbs_internal.h"

int shim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	SHIM_UNCANCELLED;

	return -rnic_post_send(to_qp(qp)->rnic, wr, bad);
}

int shim_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	SHIM_UNCANCELLED;

	return -rnic_post_recv(to_qp(qp)->rnic, wr, bad);
}

struct irdma_qp *shim_qp_find(struct irdma_device *iwdev, u32 qp_num)
{
	return rnic_qp_find(iwdev, qp_num);
}

/* ---- create ---- */

static void async(void *arg, enum ibv_event_type type)
{
	struct shim_qp *qp = arg;

	shim_event_post(to_ctx(qp->ex.qp_base.context), type, &qp->async);
}

/* Is it another device's? */
static bool elsewhere(const struct ibv_pd *pd, struct ibv_context *context)
{
	return to_ctx(context)->iwdev != to_ctx(pd->context)->iwdev;
}

static int check_ex(const struct ibv_qp_init_attr_ex *a)
{
	const u32 supported = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;

	if (a->qp_type != IBV_QPT_RC)
		return -EOPNOTSUPP;
	if (a->comp_mask & ~supported || (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags))
		return -EOPNOTSUPP; /* XRC, TSO, RSS, multicast */
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd || !a->send_cq || !a->recv_cq)
		return -EINVAL;
	if (elsewhere(a->pd, a->send_cq->context) || elsewhere(a->pd, a->recv_cq->context) || (a->srq && elsewhere(a->pd, a->srq->context)))
		return -EINVAL;
	return 0;
}

static int nic_create(struct shim_qp *qp, struct ibv_qp_init_attr_ex *a)
{
	struct rnic_qp_attr attr = {
		.pd = to_pd(a->pd)->rnic, .send_cq = to_cq(a->send_cq)->rnic, .recv_cq = to_cq(a->recv_cq)->rnic,
		.srq = a->srq ? to_srq(a->srq)->rnic : NULL, .cap = a->cap, .sq_sig_all = a->sq_sig_all, .async = async, .ctx = qp,
	};
	int err = rnic_qp_create_verbs(to_ctx(a->pd->context)->iwdev, &attr, &qp->rnic);

	if (!err)
		qp->cap = a->cap = attr.cap;
	return err;
}

static void fill_qp(struct shim_qp *qp, const struct ibv_qp_init_attr_ex *a)
{
	struct ibv_qp *q = &qp->ex.qp_base;

	qp->async.object = qp;
	q->context = a->pd->context;
	q->qp_context = a->qp_context;
	q->pd = a->pd;
	q->send_cq = a->send_cq;
	q->recv_cq = a->recv_cq;
	q->srq = a->srq;
	q->handle = shim_new_handle();
	q->state = IBV_QPS_RESET;
	qp->state = IBV_QPS_INIT;
	q->qp_type = a->qp_type;
	pthread_mutex_init(&q->mutex, NULL);
	pthread_cond_init(&q->cond, NULL);
	qp->sq_sig_all = a->sq_sig_all;
	qp->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

/* Is counted where it comes from. */
static void join(struct shim_qp *qp)
{
	struct shim_ctx *ctx = to_ctx(qp->ex.qp_base.context);

	shim_pd_get(qp->ex.qp_base.pd);
	shim_ctx_get(ctx);
	pthread_mutex_lock(&shim_ctxs_lock);
	LIST_INSERT_HEAD(&ctx->qps, qp, entry);
	pthread_mutex_unlock(&shim_ctxs_lock);
}

static void qp_free(struct shim_qp *qp)
{
	shim_wr_free(qp);
	pthread_cond_destroy(&qp->ex.qp_base.cond);
	pthread_mutex_destroy(&qp->ex.qp_base.mutex);
	free(qp);
}

/* The NIC's part comes last: from then on there may be events. */
static struct ibv_qp *qp_create(struct ibv_qp_init_attr_ex *a)
{
	struct shim_qp *qp = calloc(1, sizeof(*qp));
	int err = 0;

	if (!qp)
		return shim_null(-ENOMEM);
	fill_qp(qp, a);
	qp->cap = a->cap;
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		err = shim_wr_setup(qp, a->send_ops_flags);
	if (!err)
		err = nic_create(qp, a);
	if (err) {
		qp_free(qp);
		return shim_null(err);
	}
	qp->ex.qp_base.qp_num = qp->rnic->qp_num;
	join(qp);
	return &qp->ex.qp_base;
}

struct ibv_qp *shim_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	SHIM_UNCANCELLED;
	int err = check_ex(attr);

	return err ? shim_null(err) : qp_create(attr);
}

SHIM_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	SHIM_UNCANCELLED;
	struct ibv_qp_init_attr_ex a = {
		.qp_context = attr->qp_context, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .srq = attr->srq, .cap = attr->cap,
		.qp_type = attr->qp_type, .sq_sig_all = attr->sq_sig_all, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_qp *qp = shim_create_qp_ex(pd->context, &a);

	if (qp)
		attr->cap = a.cap;
	return qp;
}

SHIM_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return to_qp(qp)->extended ? &to_qp(qp)->ex : NULL;
}

/* ---- query ---- */

enum ibv_qp_state shim_qp_state(const struct shim_qp *qp, enum rnic_qp_state state)
{
	static const enum ibv_qp_state connected[RNIC_QP_STATES] = {
		[RNIC_QP_RTS] = IBV_QPS_RTS,
		[RNIC_QP_CLOSING] = IBV_QPS_SQD, /* RFC 5040 6.9, as the kernel's iWARP has it */
		[RNIC_QP_TERMINATE] = IBV_QPS_SQE,
		[RNIC_QP_ERROR] = IBV_QPS_ERR,
	};

	return state == RNIC_QP_IDLE ? __atomic_load_n(&qp->state, __ATOMIC_RELAXED) : connected[state];
}

static void fill_attr(const struct shim_qp *qp, const struct rnic_qp_info *info, struct ibv_qp_attr *attr)
{
	const struct shim_ctx *ctx = to_ctx(qp->ex.qp_base.context);

	attr->qp_state = attr->cur_qp_state = shim_qp_state(qp, info->state);
	attr->path_mtu = shim_mtu(ctx->iwdev->iface.mtu);
	attr->path_mig_state = IBV_MIG_MIGRATED;
	attr->qp_access_flags = (unsigned int)__atomic_load_n(&qp->access, __ATOMIC_RELAXED);
	attr->cap = qp->cap;
	attr->port_num = 1;
	attr->max_rd_atomic = (u8)min(info->iw.ord, 255);
	attr->max_dest_rd_atomic = (u8)min(info->iw.ird, 255);
	attr->sq_draining = info->state == RNIC_QP_CLOSING && info->sq_used;
}

static void fill_init_attr(const struct shim_qp *qp, struct ibv_qp_init_attr *a)
{
	const struct ibv_qp *q = &qp->ex.qp_base;

	*a = (struct ibv_qp_init_attr){
		.qp_context = q->qp_context, .send_cq = q->send_cq, .recv_cq = q->recv_cq, .srq = q->srq, .cap = qp->cap,
		.qp_type = q->qp_type, .sq_sig_all = qp->sq_sig_all,
	};
}

SHIM_EXPORT int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask, struct ibv_qp_init_attr *init_attr)
{
	SHIM_UNCANCELLED;
	struct shim_qp *qp = to_qp(ibqp);
	struct rnic_qp_info info;

	rnic_qp_query(qp->rnic, &info);
	*attr = (struct ibv_qp_attr){ 0 };
	fill_attr(qp, &info, attr);
	fill_init_attr(qp, init_attr);
	__atomic_store_n(&ibqp->state, attr->qp_state, __ATOMIC_RELAXED);
	return 0;
}

/* Bytes of one segment are placed in order, but a segment may be placed before its CRC has been seen to be right. */
SHIM_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, u32 flags)
{
	return 0;
}

/* Positive errnos, unlike most: librdmacm tests for EOPNOTSUPP. */
SHIM_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return EOPNOTSUPP;
}

SHIM_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return EOPNOTSUPP;
}

/* ---- destroy ---- */

SHIM_EXPORT int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	SHIM_UNCANCELLED;
	struct shim_qp *qp = to_qp(ibqp);
	struct shim_ctx *ctx = to_ctx(ibqp->context);

	pthread_mutex_lock(&shim_ctxs_lock);
	LIST_REMOVE(qp, entry);
	pthread_mutex_unlock(&shim_ctxs_lock);
	rnic_qp_destroy(qp->rnic);
	shim_event_purge(ctx, &qp->async);
	shim_wait_acks(&ibqp->mutex, &ibqp->cond, &ibqp->events_completed, qp->async.delivered);
	shim_pd_put(ibqp->pd);
	qp_free(qp);
	shim_ctx_put(ctx);
	return 0;
}
