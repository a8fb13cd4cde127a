// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: ibv_modify_qp().
 *
 * On iWARP the NIC goes to RTS by itself when a connection is set up, so a program's steps are few. RESET and INIT are iWARP's one state
 * Idle, in which a queue pair is born: INIT, as the kernel's drivers say and pyverbs expects. RTR is a word until there is a connection;
 * SQD ends it in order, ERR at once. A queue pair that was connected does not become one that is not: RESET is refused then.
 */
#include "shim/verbs_internal.h"

/* What RC knows. What speaks of InfiniBand's packets (paths, PSNs, timers) is taken and means nothing. */
#define RC_MASK                                                                                                                    \
	(IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT |     \
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN |                        \
	 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_ALT_PATH | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |              \
	 IBV_QP_PATH_MIG_STATE | IBV_QP_CAP | IBV_QP_DEST_QPN)
#define ACCESS_MASK                                                                                                                \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | \
	 IBV_ACCESS_RELAXED_ORDERING)

static int check(const struct shim_ctx *ctx, const struct ibv_qp_attr *a, int mask, enum ibv_qp_state now)
{
	if (mask & ~RC_MASK)
		return mask & (IBV_QP_QKEY | IBV_QP_RATE_LIMIT) ? -EOPNOTSUPP : -EINVAL;
	if (mask & (IBV_QP_CAP | IBV_QP_ALT_PATH))
		return -EOPNOTSUPP; /* queues do not grow; there is one path */
	if (mask & IBV_QP_CUR_STATE && a->cur_qp_state != now && !(a->cur_qp_state == IBV_QPS_RESET && now == IBV_QPS_INIT))
		return -EINVAL;
	if (mask & IBV_QP_PORT && a->port_num != 1)
		return -EINVAL;
	if (mask & IBV_QP_PKEY_INDEX && a->pkey_index)
		return -EINVAL;
	if (mask & IBV_QP_ACCESS_FLAGS && a->qp_access_flags & ~(unsigned int)ACCESS_MASK)
		return -EINVAL;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > ctx->iwdev->limits.max_ord)
		return -EINVAL;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > ctx->iwdev->limits.max_ird)
		return -EINVAL;
	return 0;
}

/* In order, and not at all if it is over already, or just now: rdma_disconnect() of a connection that the peer ended succeeds. */
static int drain(struct shim_qp *qp, enum rnic_qp_state state)
{
	if (state == RNIC_QP_IDLE)
		return -EINVAL;
	if (state == RNIC_QP_RTS)
		rnic_qp_modify(qp->rnic, RNIC_QP_CLOSING);
	return 0;
}

/* Programs made for InfiniBand tell each other queue pairs' numbers through sockets of their own, and fail here. RTR is no sign of it: rdma_accept() sets it. */
static void warn_unconnected(void)
{
	static bool said;

	if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		log_warn("shim", "a queue pair cannot become RTS without a connection, and on iWARP the RDMA CM makes those (perftest: -R)");
}

static int set_state(struct shim_qp *qp, enum rnic_qp_state state, enum ibv_qp_state next)
{
	switch (next) {
	case IBV_QPS_RESET:
	case IBV_QPS_INIT:
	case IBV_QPS_RTR:
		if (state != RNIC_QP_IDLE)
			return -EINVAL;
		__atomic_store_n(&qp->state, next == IBV_QPS_RTR ? IBV_QPS_RTR : IBV_QPS_INIT, __ATOMIC_RELAXED);
		return 0;
	case IBV_QPS_RTS: /* the connection manager's doing */
		if (state == RNIC_QP_IDLE)
			warn_unconnected();
		return state == RNIC_QP_RTS ? 0 : -EINVAL;
	case IBV_QPS_SQD:
		return drain(qp, state);
	case IBV_QPS_ERR:
		return state == RNIC_QP_ERROR ? 0 : rnic_qp_modify(qp->rnic, RNIC_QP_ERROR);
	default:
		return -EINVAL;
	}
}

SHIM_EXPORT int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	SHIM_UNCANCELLED;
	struct shim_qp *qp = to_qp(ibqp);
	struct rnic_qp_info info;
	int err;

	rnic_qp_query(qp->rnic, &info);
	err = check(to_ctx(ibqp->context), attr, mask, shim_qp_state(qp, info.state));
	if (!err && mask & IBV_QP_STATE)
		err = set_state(qp, info.state, attr->qp_state);
	if (err)
		return -err;
	if (mask & IBV_QP_ACCESS_FLAGS) {
		__atomic_store_n(&qp->access, (int)attr->qp_access_flags, __ATOMIC_RELAXED);
		rnic_qp_set_access(qp->rnic, (int)attr->qp_access_flags);
	}
	if (mask & IBV_QP_STATE)
		__atomic_store_n(&ibqp->state, attr->qp_state, __ATOMIC_RELAXED);
	return 0;
}
