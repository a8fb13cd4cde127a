/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ILQ: the frames between the CM and the port, and the bounded pools they live in. Small
 * buffers hold anything without private data, so that a flood of SYNs does not cost a MPA frame's room each.
 */
#include <string.h>
#include "rnic/rnic_internal.h"

/* Where the TCP header starts: room for the layers below, aligned to four bytes. */
#define BUF_HEADROOM ((PKT_HDR_MAX + 3) / 4 * 4)
#define BUF_FRAME (BUF_HEADROOM + PKT_TCP_LEN + PKT_TCP_OPT_MAX)

static_assert(offsetof(struct irdma_puda_buf, mem) % 4 == 0, "alignment of the TCP header");
static_assert(BUF_FRAME + MPA_START_FRAME_MAX <= RNIC_LARGE_BUF, "largest frame of the CM");

static struct irdma_puda_buf *buf_alloc(struct irdma_sc_vsi *vsi, bool large)
{
	struct irdma_puda_buf *buf;

	mutex_lock(&vsi->lock);
	buf = pool_get(large ? &vsi->large : &vsi->small);
	mutex_unlock(&vsi->lock);
	if (!buf)
		return NULL;
	memset(buf, 0, offsetof(struct irdma_puda_buf, mem));
	buf->vsi = vsi;
	buf->refcount = 1;
	buf->large = large;
	return buf;
}

/**
 * rnic_buf_get() - buffer for a frame to send
 * @vsi: the ILQ
 * @len: bytes of payload behind the TCP header and its options
 *
 * Its data and tcph both point at where the TCP header goes; PKT_HDR_MAX bytes are free in front.
 *
 * Return: the buffer with one reference; NULL if @len is more than the CM ever sends, or at the limit of the pool.
 */
struct irdma_puda_buf *rnic_buf_get(struct irdma_sc_vsi *vsi, u32 len)
{
	struct irdma_puda_buf *buf;

	if (len > RNIC_LARGE_BUF - BUF_FRAME)
		return NULL;
	buf = buf_alloc(vsi, len > RNIC_SMALL_BUF - BUF_FRAME);
	if (buf) {
		buf->tcph = buf->mem + BUF_HEADROOM;
		buf->data = buf->tcph;
	}
	return buf;
}

/**
 * rnic_buf_hold() - take a reference
 * @buf: the buffer
 */
void rnic_buf_hold(struct irdma_puda_buf *buf)
{
	count_up(&buf->refcount);
}

/**
 * rnic_buf_put() - drop a reference; the last returns the buffer to its pool
 * @buf: the buffer
 */
void rnic_buf_put(struct irdma_puda_buf *buf)
{
	struct irdma_sc_vsi *vsi = buf->vsi;
	u32 before = count_down(&buf->refcount);

	assert(before > 0);
	if (before > 1)
		return;
	mutex_lock(&vsi->lock);
	pool_put(buf->large ? &vsi->large : &vsi->small, buf);
	mutex_unlock(&vsi->lock);
}

static int ilq_tx(struct port *port, const struct irdma_puda_buf *buf)
{
	if (!buf->ah)
		return port->ops->tx_frame ? port->ops->tx_frame(port, buf->data, buf->totallen) : -EOPNOTSUPP;
	if (!buf->ah->valid)
		return -ENOTCONN;
	return port->ops->tx_ah(port, buf->ah->port_ah, buf->data, buf->totallen);
}

/**
 * rnic_ilq_send() - send a frame
 * @vsi: the ILQ
 * @buf: the frame: totallen bytes from data on, through its address handle if it has one; keeps its reference
 *
 * Return: 0; -ENOTCONN if the address handle is gone; or what the port says.
 */
int rnic_ilq_send(struct irdma_sc_vsi *vsi, struct irdma_puda_buf *buf)
{
	int rc = ilq_tx(vsi->back->port, buf);

	if (rc)
		rnic_count(vsi->tx_errors);
	else
		rnic_count(vsi->tx_frames);
	return rc;
}

/**
 * rnic_ilq_receive() - give a received frame to the CM
 * @iwdev: the device
 * @rx: the frame, decoded; it is referred to, not copied
 *
 * Loop thread. The CM drops the buffer's reference. Without a CM the frame is dropped: nobody will ever want it.
 *
 * Return: false if the ILQ is full, and the port may offer the frame again.
 */
bool rnic_ilq_receive(struct irdma_device *iwdev, const struct port_rx *rx)
{
	struct irdma_sc_vsi *vsi = &iwdev->vsi;
	const struct rnic_cm_ops *ops = iwdev->cm_ops;
	struct irdma_puda_buf *buf;
	struct net *prev;

	buf = ops && ops->receive ? buf_alloc(vsi, false) : NULL;
	if (!buf) {
		rnic_count(vsi->rx_dropped);
		return !ops || !ops->receive;
	}
	rnic_count(vsi->rx_frames);
	buf->pkt = &rx->pkt;
	buf->filter = rx->filter;
	buf->error = rx->error;
	prev = net_enter(iwdev->net);
	ops->receive(vsi, buf);
	net_enter(prev);
	return true;
}
