/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fork(): what a child makes itself works, whatever other threads were doing. The NIC's own locks are taken while the memory is copied. Those of single
 * QPs and queues are not: programs post and poll without asking anybody. A QP that another thread had locked stays so in the child, where that thread
 * is not; nothing of the NIC's own may touch it there, or the child's NIC thread would wait for ever.
 */
#include "rnic/rnic_internal.h"

/**
 * rnic_fork_prepare() - this process is about to fork
 * @iwdev: a NIC; its loop's thread is not in it
 */
void rnic_fork_prepare(struct irdma_device *iwdev)
{
	struct rnic_device *d = rnic_device_of(iwdev);

	rnic_device_send_held(iwdev); /* a child that carries on for its parent would send it once more */
	mutex_take(&iwdev->lock);
	mutex_take(&iwdev->vsi.lock);
	mutex_take(&d->lease_lock);
	mutex_take(&d->stags.bind_lock);
	for (u32 i = 0; i < RNIC_STAG_SHARDS; i++)
		mutex_take(&d->stags.shard[i].lock);
}

static void unlock_stags(struct rnic_stag_table *t)
{
	for (u32 i = 0; i < RNIC_STAG_SHARDS; i++)
		mutex_give(&t->shard[i].lock);
	mutex_give(&t->bind_lock);
}

/**
 * rnic_fork_parent() - it has forked, or could not
 * @iwdev: the NIC
 */
void rnic_fork_parent(struct irdma_device *iwdev)
{
	struct rnic_device *d = rnic_device_of(iwdev);

	unlock_stags(&d->stags);
	mutex_give(&d->lease_lock);
	mutex_give(&iwdev->vsi.lock);
	mutex_give(&iwdev->lock);
}

static bool is_stuck(struct rnic_qp *q)
{
	bool stuck = !mutex_try_take(&q->rx_lock);

	if (!stuck)
		mutex_give(&q->rx_lock);
	if (!mutex_try_take(&q->qp.lock))
		return true;
	mutex_give(&q->qp.lock);
	return stuck;
}

/* Its timer and its work would wait for its locks, and so would the tick of leases. */
static bool leave_stuck(struct hash_node *n, void *arg)
{
	struct rnic_qp *q = rnic_qp_of(container_of(n, struct irdma_qp, hn));
	struct rnic_device *d = arg;

	if (!is_stuck(q))
		return true;
	timer_del(&q->qp.rtr_timer);
	workq_cancel(&q->work);
	if (q->leased)
		TAILQ_REMOVE(&d->leases, q, lease);
	q->leased = false;
	return true;
}

/**
 * rnic_fork_child() - it is the child of a fork
 * @iwdev: the NIC
 */
void rnic_fork_child(struct irdma_device *iwdev)
{
	struct rnic_device *d = rnic_device_of(iwdev);

	for (u32 i = 0; i < RNIC_STAG_SHARDS; i++)
		d->stags.shard[i].idle = (struct cond){ 0 };
	hash_walk(&iwdev->qps, leave_stuck, d);
	rnic_fork_parent(iwdev);
}
