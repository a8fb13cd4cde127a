// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: extended completion queues: one completion at a time, whose fields are read by functions. The queue is locked from a start_poll()
 * that found one to end_poll(), unless one thread alone uses it.
 */
#include <time.h>
#include "shim/verbs_internal.h"

static void unlock(struct shim_cq *cq)
{
	if (!cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
}

static int next_poll(struct ibv_cq_ex *ex)
{
	SHIM_UNCANCELLED;
	struct shim_cq *cq = to_cq_ex(ex);
	int n = rnic_cq_poll_ex(cq->rnic, 1, &cq->now);

	if (n <= 0)
		return n ? -n : ENOENT;
	ex->wr_id = cq->now.wc.wr_id;
	ex->status = cq->now.wc.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct shim_cq *cq = to_cq_ex(ex);
	int err;

	if (attr->comp_mask)
		return EINVAL;
	if (!cq->single_threaded)
		pthread_mutex_lock(&cq->poll_lock);
	err = next_poll(ex);
	if (err)
		unlock(cq);
	return err;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	unlock(to_cq_ex(ex));
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.wc.opcode;
}

static u32 read_vendor_err(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.wc.vendor_err;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.wc.wc_flags;
}

static u32 read_byte_len(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.wc.byte_len;
}

/* Also the STag that was invalidated. */
static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.wc.imm_data;
}

static u32 read_qp_num(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.wc.qp_num;
}

static u32 read_src_qp(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.wc.src_qp;
}

static u32 read_slid(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.wc.slid;
}

static u8 read_sl(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.wc.sl;
}

static u8 read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.wc.dlid_path_bits;
}

static u64 read_completion_ts(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->now.timestamp_ns;
}

static u64 clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

static u64 read_wallclock_ns(struct ibv_cq_ex *ex)
{
	return clock_ns(CLOCK_REALTIME) - (clock_ns(CLOCK_MONOTONIC) - to_cq_ex(ex)->now.timestamp_ns);
}

/* As the manual page has it: a field that was not asked for at creation has no function. */
void shim_cq_ex_setup(struct shim_cq *cq, u64 f)
{
	struct ibv_cq_ex *ex = &cq->ex;

	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	ex->read_byte_len = f & IBV_WC_EX_WITH_BYTE_LEN ? read_byte_len : NULL;
	ex->read_imm_data = f & IBV_WC_EX_WITH_IMM ? read_imm_data : NULL;
	ex->read_qp_num = f & IBV_WC_EX_WITH_QP_NUM ? read_qp_num : NULL;
	ex->read_src_qp = f & IBV_WC_EX_WITH_SRC_QP ? read_src_qp : NULL;
	ex->read_slid = f & IBV_WC_EX_WITH_SLID ? read_slid : NULL;
	ex->read_sl = f & IBV_WC_EX_WITH_SL ? read_sl : NULL;
	ex->read_dlid_path_bits = f & IBV_WC_EX_WITH_DLID_PATH_BITS ? read_dlid_path_bits : NULL;
	ex->read_completion_ts = f & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP ? read_completion_ts : NULL;
	ex->read_completion_wallclock_ns = f & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK ? read_wallclock_ns : NULL;
}
