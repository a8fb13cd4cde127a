/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rnic: what only this room needs.
 *
 * Locks, from the outside in; a lock is never taken while one further down is held:
 *   the CM's and other callers' locks
 *   irdma_qp.lock          one QP: state, stream, both directions
 *   irdma_device.lock      QP table, ARP table, port reservations; never on the data path
 *   irdma_sc_vsi.lock      ILQ pools
 *   locks of port/, net/ and base/
 * Down calls into the port and the loop may be made with any of these held: neither calls back from inside.
 * Up calls to the CM are made with none of them held, and from the loop's thread alone.
 */
#ifndef UWARP_RNIC_INTERNAL_H
#define UWARP_RNIC_INTERNAL_H

#include <assert.h>
#include <errno.h>
#include "rnic/rnic.h"

#define ROOM "rnic"

struct apbvt_key {
	u32 addr[4];
	u16 number;
	u16 ipv4;
};

struct apbvt_entry {
	struct hash_node hn;
	struct apbvt_key key;
	u32 refs;
};

struct rnic_device {
	struct irdma_device dev;
	struct workq wq;       /* the QPs' deferred work */
	struct pool qp_pool, apbvt_pool; /* under the device's lock */
	size_t qps_created;    /* under the device's lock */
	size_t qps_freed;      /* atomic */
};

static inline struct rnic_device *rnic_device_of(struct irdma_device *dev)
{
	return container_of(dev, struct rnic_device, dev);
}

/* What the loop's thread has to do for a QP once the QP's lock is dropped. */
#define RNIC_TODO_LSMM 0x1u       /* tell the CM that the start-up reply is out */
#define RNIC_TODO_DISCONNECT 0x2u /* tell the CM that the stream ended */

struct rnic_qp {
	struct irdma_qp qp;
	struct work_struct work;
	/* under qp.lock */
	u32 todo;             /* RNIC_TODO_* */
	u32 events;           /* PORT_* still to be handled: the reading budget was spent, or a send failed */
	int tx_error;         /* why a send failed */
	u32 lsmm_left;        /* bytes of the start-up reply that the stream did not take yet */
	u32 read_msn;         /* next Read Request's, RFC 5041 5.3 */
	bool fin_sent;
	bool eof;             /* the peer's FIN was read */
	bool rtr_sent;
	bool rtr_resp_due;    /* initiator sent a Read RTR, its response is not in yet */
};

static inline struct rnic_qp *rnic_qp_of(struct irdma_qp *qp)
{
	return container_of(qp, struct rnic_qp, qp);
}

#define rnic_count(counter) (single_threaded() ? (void)++(counter) : (void)__atomic_fetch_add(&(counter), 1, __ATOMIC_RELAXED))

/* qp.c; all with qp->lock held */
bool rnic_qp_may_step(enum rnic_qp_state from, enum rnic_qp_state to);
void rnic_qp_set_state(struct irdma_qp *qp, enum rnic_qp_state next);
void rnic_qp_set_ae(struct irdma_qp *qp, enum rnic_ae ae);
void rnic_qp_raise(struct irdma_qp *qp); /* the CM is to be told, once */
void rnic_qp_kick(struct irdma_qp *qp);  /* let the loop's thread look at todo and events */
void rnic_qp_fail(struct irdma_qp *qp, enum rnic_ae ae);  /* the stream is dead: to ERROR */
void rnic_qp_abort(struct irdma_qp *qp, enum rnic_ae ae); /* RST, to ERROR */

/* qp_stream.c */
extern const struct port_stream_up rnic_stream_up;
void rnic_qp_work(struct work_struct *work);
void rnic_qp_rtr_timeout(struct timer_list *t);

/* qp_tx.c; all with qp->lock held */
void rnic_tx_bytes(struct irdma_qp *qp, const u8 *bytes, u32 len);
void rnic_tx_ulpdu(struct irdma_qp *qp, const u8 *ulpdu, u32 len);
void rnic_tx_terminate(struct irdma_qp *qp, const struct rdmap_error *err, const u8 *ulpdu, u32 len);
void rnic_tx_fin(struct irdma_qp *qp);  /* after what is queued */
void rnic_tx_flush(struct irdma_qp *qp);
void rnic_tx_drop(struct irdma_qp *qp);
u32 rnic_tx_queued(const struct irdma_qp *qp);

/* qp_rx.c; with qp->lock held */
void rnic_rx_bytes(struct irdma_qp *qp, const u8 *data, size_t len);

#endif
