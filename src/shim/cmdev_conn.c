/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* shim: commands of the rdma_cm device about connections. How they claim an id: cmdev_cmd.c. */
#include <errno.h>
#include <stdlib.h>
#include "shim/cmdev_internal.h"

#define CONN_EVENTS 2u /* how it began, and DISCONNECTED */

/* ---- connect, accept ---- */

static int set_qp(struct cmdev_id *id, u32 number)
{
	struct irdma_device *iwdev = iwcm_id_device(id->cm);
	struct irdma_qp *qp;
	int err;

	if (!iwdev)
		return -ENODEV; /* it is over */
	qp = shim_qp_find(iwdev, number);
	if (!qp)
		return -EINVAL;
	err = iwcm_set_qp(id->cm, qp); /* before ESTABLISHED can come: programs post at once */
	rnic_qp_put(qp);
	return err;
}

static struct iwcm_conn_param param_of(const struct rdma_ucm_conn_param *p)
{
	return (struct iwcm_conn_param){
		.private_data = p->private_data,
		.private_data_len = p->private_data_len,
		.ird = p->responder_resources,
		.ord = p->initiator_depth,
	};
}

static int connect_id(struct cmdev_id *id, const struct rdma_ucm_conn_param *param)
{
	struct iwcm_conn_param p = param_of(param);
	int err;

	if (id->qp_type != IBV_QPT_RC)
		return -ENOSYS; /* iWARP has no datagrams */
	if (!param->valid || id->no_port)
		return -EINVAL;
	err = cmdev_event_reserve(id, CONN_EVENTS);
	if (!err)
		err = cmdev_id_step(id, BIT(CMDEV_ROUTE_RESOLVED), CMDEV_CONNECT);
	if (err)
		return err;
	err = set_qp(id, param->qp_num);
	if (!err)
		err = iwcm_connect(id->cm, &p);
	if (err)
		cmdev_id_step(id, BIT(CMDEV_CONNECT), CMDEV_ROUTE_RESOLVED);
	return err;
}

int cmdev_connect(struct cmdev_call *c)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, c->cmd.connect.id, &id);

	return err ? err : cmdev_id_end(id, connect_id(id, &c->cmd.connect.conn_param));
}

static enum cmdev_state state_after(enum cmdev_state now, u32 event)
{
	switch (event) {
	case CMDEV_ESTABLISHED_EV:
		return CMDEV_ESTABLISHED;
	case CMDEV_DISCONNECTED_EV:
	case CMDEV_CONNECT_ERROR_EV:
		return CMDEV_ENDED;
	default:
		return now;
	}
}

/* Locked. What came while iwcm_accept() was called goes to the program now. */
static void unpark(struct cmdev_id *id)
{
	struct cmdev_event *e;
	enum cmdev_state next;

	while ((e = TAILQ_FIRST(&id->parked))) {
		TAILQ_REMOVE(&id->parked, e, entry);
		next = state_after(id->state, e->resp.event);
		if (next != id->state)
			cmdev_id_set_state(id, next);
		cmdev_event_queue(id->file, e);
	}
}

/*
 * The uid, too, is the program's only if it accepted: events without one would be taken for pointers. What came although accepting failed is that the peer
 * gave up just now.
 */
static int accept_done(struct cmdev_id *id, u64 uid, int err)
{
	pthread_mutex_lock(&cmdev_lock);
	if (err) {
		cmdev_id_set_state(id, CMDEV_REQUEST);
		id->gone |= !TAILQ_EMPTY(&id->parked);
		cmdev_events_free(&id->parked);
		err = id->gone || err == -ENODEV ? -ECONNRESET : err;
	} else {
		id->uid = uid;
		cmdev_id_set_state(id, CMDEV_ACCEPTED);
		if (id->dying)
			cmdev_events_free(&id->parked);
		unpark(id);
	}
	cmdev_unlock(id->file);
	return err;
}

static int accept_id(struct cmdev_id *id, const struct rdma_ucm_accept *cmd)
{
	struct iwcm_conn_param p = param_of(&cmd->conn_param);
	int err;

	if (!cmd->conn_param.valid)
		return -EINVAL;
	err = cmdev_event_reserve(id, CONN_EVENTS);
	if (!err)
		err = cmdev_id_step(id, BIT(CMDEV_REQUEST), CMDEV_ACCEPTING);
	if (err)
		return err;
	err = set_qp(id, cmd->conn_param.qp_num);
	if (!err)
		err = iwcm_accept(id->cm, &p);
	return accept_done(id, cmd->uid, err);
}

int cmdev_accept(struct cmdev_call *c)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, c->cmd.accept.id, &id);

	return err ? err : cmdev_id_end(id, accept_id(id, &c->cmd.accept));
}

/* ---- reject, disconnect ---- */

int cmdev_reject(struct cmdev_call *c)
{
	const struct rdma_ucm_reject *cmd = &c->cmd.reject;
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, cmd->id, &id);

	if (err)
		return err;
	err = cmdev_id_step(id, BIT(CMDEV_REQUEST), CMDEV_ENDED);
	if (!err)
		err = iwcm_reject(id->cm, cmd->private_data, cmd->private_data_len);
	return cmdev_id_end(id, err);
}

#define HAD_PEER (BIT(CMDEV_CONNECT) | BIT(CMDEV_REQUEST) | BIT(CMDEV_ACCEPTED) | BIT(CMDEV_ESTABLISHED) | BIT(CMDEV_ENDED))

/* librdmacm may ask twice, and after the peer has: that is no error. A connection that is not up yet is given up. */
static int disconnect_id(struct cmdev_id *id)
{
	if (!cmdev_id_in(id, HAD_PEER))
		return -EINVAL;
	if (iwcm_disconnect(id->cm) == -ENOTCONN)
		iwcm_abort(id->cm);
	return 0;
}

int cmdev_disconnect(struct cmdev_call *c)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, c->cmd.disconnect.id, &id);

	return err ? err : cmdev_id_end(id, disconnect_id(id));
}

/* Tells InfiniBand's CM that data came before its last message; iWARP's has no need for it. */
int cmdev_notify(struct cmdev_call *c)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, c->cmd.notify.id, &id);

	return err ? err : cmdev_id_end(id, cmdev_id_in(id, HAD_PEER) ? 0 : -EINVAL);
}

/* ---- multicast, which needs datagrams and a network that has groups ---- */

static int join(struct cmdev_file *f, u32 number)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(f, number, &id);

	return err ? err : cmdev_id_end(id, id->qp_type == IBV_QPT_UD ? -ENOSYS : -EINVAL);
}

int cmdev_join_ip_mcast(struct cmdev_call *c)
{
	return join(c->file, c->cmd.join_ip.id);
}

int cmdev_join_mcast(struct cmdev_call *c)
{
	return join(c->file, c->cmd.join.id);
}

int cmdev_leave_mcast(struct cmdev_call *c)
{
	return -ENOENT; /* nobody has joined */
}
