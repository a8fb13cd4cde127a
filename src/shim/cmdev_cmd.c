/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: commands of the rdma_cm device about ids and addresses.
 *
 * A command claims its id by a step of the state under the lock, asks iwcm without it, and steps back if iwcm refuses; events that come meanwhile find the
 * state that expects them.
 */
#include <errno.h>
#include <infiniband/ib.h>
#include <stdlib.h>
#include <string.h>
#include "shim/cmdev_internal.h"

#define BACKLOG_MAX 1024u      /* what the kernel gives who asks for none, or more */
#define PORT_TRIES 16          /* IPv6 numbers that IPv4 may have given to somebody else */
#define SOME_PORT 1            /* for a resolution that wants the device only */
#define BOUND_EVENTS 1u        /* DEVICE_REMOVAL */

/* ---- create, destroy, migrate ---- */

/* What the kernel makes of the port space; IPv4, IPv6 ids are RC on TCP, UD on UDP. */
static int qp_type_of(const struct rdma_ucm_create_id *cmd)
{
	switch (cmd->ps) {
	case RDMA_PS_TCP:
		return IBV_QPT_RC;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		return IBV_QPT_UD;
	case RDMA_PS_IB:
		return cmd->qp_type;
	default:
		return -EINVAL;
	}
}

static int set_options(const struct cmdev_id *id, struct iwcm_id *cm)
{
	struct iwcm_options o = shim_options()->conn;

	if (id->tos)
		o.tos = id->tos;
	return iwcm_set_options(cm, &o);
}

static int make_cm(struct cmdev_id *id, struct iwcm_id **out)
{
	struct iwcm_ctx *ctx = shim_ctx();
	int err;

	if (!ctx)
		return -errno;
	if (!__atomic_exchange_n(&cmdev_ctx, ctx, __ATOMIC_ACQ_REL))
		iwcm_fork_notify(ctx, shim_cmdev_inherit, NULL);
	err = iwcm_create_id(ctx, id, out);
	if (err)
		return err;
	err = set_options(id, *out);
	if (err) {
		iwcm_destroy_id(*out);
		*out = NULL;
	}
	return err;
}

static void destroy_unseen(struct cmdev_id *id)
{
	struct cmdev_id_list dead = LIST_HEAD_INITIALIZER(dead);

	pthread_mutex_lock(&cmdev_lock);
	cmdev_id_detach(id, &dead);
	pthread_mutex_unlock(&cmdev_lock);
	cmdev_ids_destroy(&dead);
}

static int add(struct cmdev_file *f, struct cmdev_id *id)
{
	int err = -EBADF;

	pthread_mutex_lock(&cmdev_lock);
	if (!f->closed)
		err = cmdev_id_add(f, id);
	pthread_mutex_unlock(&cmdev_lock);
	return err;
}

int cmdev_create_id(struct cmdev_call *c)
{
	const struct rdma_ucm_create_id *cmd = &c->cmd.create;
	struct rdma_ucm_create_id_resp resp;
	int type = qp_type_of(cmd), err = 0;
	struct cmdev_id *id;

	if (type < 0)
		return type;
	id = cmdev_id_new();
	if (!id)
		return -ENOMEM;
	id->uid = cmd->uid;
	id->ps = cmd->ps;
	id->qp_type = (u8)type;
	if (cmd->ps != RDMA_PS_IB)
		err = make_cm(id, &id->cm);
	if (!err)
		err = add(c->file, id);
	if (err) {
		iwcm_destroy_id(id->cm);
		cmdev_id_free(id);
		return err;
	}
	resp.id = id->number;
	err = cmdev_put(cmd->response, &resp, sizeof(resp));
	if (err)
		destroy_unseen(id);
	return err;
}

int cmdev_destroy_id(struct cmdev_call *c)
{
	struct cmdev_id_list dead = LIST_HEAD_INITIALIZER(dead);
	struct rdma_ucm_destroy_id_resp resp = { 0 };
	struct cmdev_id *id;
	int err;

	pthread_mutex_lock(&cmdev_lock);
	err = cmdev_id_find(c->file, c->cmd.destroy.id, &id);
	if (!err) {
		cmdev_id_detach(id, &dead);
		resp.events_reported = id->events_reported;
	}
	pthread_mutex_unlock(&cmdev_lock);
	if (err)
		return err;
	cmdev_ids_destroy(&dead);
	return cmdev_put(c->cmd.destroy.response, &resp, sizeof(resp));
}

/* Locked. */
static int migrate(struct cmdev_file *to, struct cmdev_file *from, u32 number, u32 *reported)
{
	struct cmdev_id *id;
	int err = to->closed ? -EBADF : cmdev_id_find(from, number, &id);

	if (err)
		return err;
	if (from != to) {
		cmdev_event_move(id, to);
		cmdev_id_move(id, to);
		if (id->state == CMDEV_LISTEN)
			__atomic_store_n(&to->listens, true, __ATOMIC_RELAXED);
	}
	*reported = id->events_reported;
	return 0;
}

/* To this file, from the one that the command names. */
int cmdev_migrate_id(struct cmdev_call *c)
{
	struct rdma_ucm_migrate_resp resp = { 0 };
	struct cmdev_file *from;
	int err = -ENOENT;

	pthread_mutex_lock(&cmdev_lock);
	from = cmdev_file_get((int)c->cmd.migrate.fd);
	if (from) {
		err = migrate(c->file, from, c->cmd.migrate.id, &resp.events_reported);
		cmdev_file_put(from);
	}
	cmdev_unlock(c->file);
	return err ? err : cmdev_put(c->cmd.migrate.response, &resp, sizeof(resp));
}

/* ---- addresses ---- */

union addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_ib ib;
	struct __kernel_sockaddr_storage ss;
};

static size_t addr_size(const union addr *a)
{
	switch (a->sa.sa_family) {
	case AF_INET:
		return sizeof(a->in);
	case AF_INET6:
		return sizeof(a->in6);
	case AF_IB:
		return sizeof(a->ib);
	default:
		return 0;
	}
}

static bool addr_any(const union addr *a)
{
	switch (a->sa.sa_family) {
	case AF_INET:
		return !a->in.sin_addr.s_addr;
	case AF_INET6:
		return IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
	default:
		return a->sa.sa_family == AF_IB && ib_addr_any(&a->ib.sib_addr);
	}
}

static __be16 *addr_port(union addr *a)
{
	return a->sa.sa_family == AF_INET ? &a->in.sin_port : &a->in6.sin6_port;
}

/* ---- bind ---- */

/* The same number for IPv4, where connections to the IPv6 wildcard may come from as well. */
static int bind_cm4(struct cmdev_id *id)
{
	struct sockaddr_storage local;
	struct sockaddr_in any = { .sin_family = AF_INET };
	int err = iwcm_local_addr(id->cm, &local);

	if (!err)
		err = make_cm(id, &id->cm4);
	if (err)
		return err;
	any.sin_port = ((struct sockaddr_in6 *)&local)->sin6_port;
	err = iwcm_bind(id->cm4, (struct sockaddr *)&any);
	if (err) {
		iwcm_destroy_id(id->cm4);
		id->cm4 = NULL;
	}
	return err;
}

static void swap_cm(struct iwcm_id **a, struct iwcm_id **b)
{
	struct iwcm_id *was = *a;

	*a = *b;
	*b = was;
}

/* Binds both or none; iwcm's id cannot be unbound, so another one, made while there is still nothing to lose, takes its place. */
static int bind_dual(struct cmdev_id *id, const union addr *a)
{
	struct iwcm_id *unbound = NULL;
	int err = make_cm(id, &unbound);

	if (err)
		return err;
	err = iwcm_bind(id->cm, &a->sa);
	if (!err) {
		err = bind_cm4(id);
		if (err)
			swap_cm(&id->cm, &unbound);
		if (err == -EADDRINUSE && !a->in6.sin6_port)
			err = -EAGAIN;
	}
	iwcm_destroy_id(unbound);
	return err;
}

static int bind_cm(struct cmdev_id *id, const union addr *a)
{
	bool dual = a->sa.sa_family == AF_INET6 && addr_any(a) && !id->afonly;
	int tries = PORT_TRIES, err;

	if (!dual)
		return iwcm_bind(id->cm, &a->sa);
	do
		err = bind_dual(id, a);
	while (err == -EAGAIN && --tries);
	return err == -EAGAIN ? -EADDRINUSE : err;
}

/*
 * librdmacm asks once whether AF_IB is known, on an id of the InfiniBand port space: a yes makes it use the commands that take addresses of any size. There
 * is no InfiniBand address to bind to but the wildcard.
 */
static int bind_ib(const union addr *a)
{
	return a->sa.sa_family == AF_IB && addr_any(a) ? 0 : -EADDRNOTAVAIL;
}

static void set_bound(struct cmdev_id *id)
{
	pthread_mutex_lock(&cmdev_lock);
	id->bound = true;
	cmdev_id_set_state(id, CMDEV_BOUND);
	pthread_mutex_unlock(&cmdev_lock);
}

static int bind_addr(struct cmdev_call *c, u32 number, const union addr *a)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, number, &id);

	if (err)
		return err;
	if (!id->cm || a->sa.sa_family == AF_IB)
		return cmdev_id_end(id, bind_ib(a));
	if (!cmdev_id_in(id, BIT(CMDEV_IDLE)))
		return cmdev_id_end(id, -EINVAL);
	err = cmdev_event_reserve(id, BOUND_EVENTS);
	if (!err)
		err = bind_cm(id, a);
	if (!err)
		set_bound(id);
	return cmdev_id_end(id, err);
}

int cmdev_bind_ip(struct cmdev_call *c)
{
	union addr a = { .in6 = c->cmd.bind_ip.addr };

	if (!addr_size(&a) || a.sa.sa_family == AF_IB)
		return -EINVAL;
	return bind_addr(c, c->cmd.bind_ip.id, &a);
}

int cmdev_bind(struct cmdev_call *c)
{
	union addr a = { .ss = c->cmd.bind.addr };

	if (c->cmd.bind.reserved || !addr_size(&a) || c->cmd.bind.addr_size != addr_size(&a))
		return -EINVAL;
	return bind_addr(c, c->cmd.bind.id, &a);
}

/* ---- resolve ---- */

/* The wildcard as a destination is this machine. */
static void aim_at_self(union addr *dst)
{
	if (!addr_any(dst))
		return;
	if (dst->sa.sa_family == AF_INET)
		dst->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		dst->in6.sin6_addr = in6addr_loopback;
}

static int resolve_cm(struct cmdev_id *id, const union addr *src, union addr *dst, int *outcome)
{
	aim_at_self(dst);
	id->no_port = !*addr_port(dst);
	if (id->no_port)
		*addr_port(dst) = htons(SOME_PORT);
	iwcm_destroy_id(id->cm4);
	id->cm4 = NULL;
	return iwcm_resolve_now(id->cm, src ? &src->sa : NULL, &dst->sa, outcome);
}

static enum cmdev_state unresolved(const struct cmdev_id *id)
{
	return id->bound ? CMDEV_BOUND : CMDEV_IDLE;
}

/* Queues @e, or frees it. */
static void resolved(struct cmdev_id *id, struct cmdev_event *e, int outcome)
{
	pthread_mutex_lock(&cmdev_lock);
	cmdev_id_set_state(id, outcome ? unresolved(id) : CMDEV_ADDR_RESOLVED);
	if (outcome) {
		e->resp.event = CMDEV_ADDR_ERROR_EV;
		e->resp.status = (u32)outcome;
	}
	if (id->dying)
		free(e);
	else
		cmdev_event_queue(id->file, e);
	cmdev_unlock(id->file);
}

static int resolve_id(struct cmdev_id *id, const union addr *src, union addr *dst)
{
	struct cmdev_event *e = cmdev_event_new(id, CMDEV_ADDR_RESOLVED_EV, 0);
	int outcome, err = e ? cmdev_event_reserve(id, BOUND_EVENTS) : -ENOMEM;

	if (!err)
		err = cmdev_id_step(id, BIT(CMDEV_IDLE) | BIT(CMDEV_BOUND), CMDEV_ADDR_QUERY);
	if (!err) {
		err = resolve_cm(id, src, dst, &outcome);
		if (err)
			cmdev_id_step(id, BIT(CMDEV_ADDR_QUERY), unresolved(id));
	}
	if (err)
		free(e);
	else
		resolved(id, e, outcome);
	return err;
}

static int resolve(struct cmdev_call *c, u32 number, const union addr *src, union addr *dst)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, number, &id);

	if (err)
		return err;
	if (!id->cm || dst->sa.sa_family == AF_IB || (src && src->sa.sa_family != dst->sa.sa_family))
		return cmdev_id_end(id, -EINVAL);
	return cmdev_id_end(id, resolve_id(id, src, dst));
}

int cmdev_resolve_ip(struct cmdev_call *c)
{
	union addr src = { .in6 = c->cmd.resolve_ip.src_addr }, dst = { .in6 = c->cmd.resolve_ip.dst_addr };

	if ((src.sa.sa_family && !addr_size(&src)) || !addr_size(&dst))
		return -EINVAL;
	return resolve(c, c->cmd.resolve_ip.id, src.sa.sa_family ? &src : NULL, &dst);
}

int cmdev_resolve_addr(struct cmdev_call *c)
{
	const struct rdma_ucm_resolve_addr *cmd = &c->cmd.resolve_addr;
	union addr src = { .ss = cmd->src_addr }, dst = { .ss = cmd->dst_addr };

	if (cmd->reserved || (cmd->src_size && cmd->src_size != addr_size(&src)))
		return -EINVAL;
	if (!cmd->dst_size || cmd->dst_size != addr_size(&dst))
		return -EINVAL;
	return resolve(c, cmd->id, cmd->src_size ? &src : NULL, &dst);
}

int cmdev_resolve_route(struct cmdev_call *c)
{
	struct cmdev_event *e;
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, c->cmd.resolve_route.id, &id);

	if (err)
		return err;
	e = cmdev_event_new(id, CMDEV_ROUTE_RESOLVED_EV, 0);
	if (!e)
		return cmdev_id_end(id, -ENOMEM);
	err = -EINVAL;
	pthread_mutex_lock(&cmdev_lock);
	if (id->state == CMDEV_ADDR_RESOLVED && !id->dying) {
		cmdev_id_set_state(id, CMDEV_ROUTE_RESOLVED);
		cmdev_event_queue(id->file, e);
		err = 0;
	}
	cmdev_unlock(id->file);
	if (err)
		free(e);
	return cmdev_id_end(id, err);
}

/* ---- options ---- */

static int option_tos(struct cmdev_id *id, const u8 *value, u32 len)
{
	if (len != sizeof(u8))
		return -EINVAL;
	id->tos = *value;
	return id->cm ? set_options(id, id->cm) : 0;
}

static bool is_flag(u32 len)
{
	return len == sizeof(int);
}

/* Ports are always shared with connections that are over. */
static int option_reuseaddr(struct cmdev_id *id, const u8 *value, u32 len)
{
	return is_flag(len) ? 0 : -EINVAL;
}

static int option_afonly(struct cmdev_id *id, const u8 *value, u32 len)
{
	int on;

	if (!is_flag(len) || !cmdev_id_in(id, BIT(CMDEV_IDLE) | BIT(CMDEV_BOUND)))
		return -EINVAL;
	memcpy(&on, value, sizeof(on));
	id->afonly = on;
	if (on) {
		iwcm_destroy_id(id->cm4);
		id->cm4 = NULL;
	}
	return 0;
}

/* How long the kernel's TCP waits for acknowledgements is its own affair. */
static int option_ack_timeout(struct cmdev_id *id, const u8 *value, u32 len)
{
	return len == sizeof(u8) ? 0 : -EINVAL;
}

static int (*const options[])(struct cmdev_id *id, const u8 *value, u32 len) = {
	[RDMA_OPTION_ID_TOS] = option_tos,
	[RDMA_OPTION_ID_REUSEADDR] = option_reuseaddr,
	[RDMA_OPTION_ID_AFONLY] = option_afonly,
	[RDMA_OPTION_ID_ACK_TIMEOUT] = option_ack_timeout,
};

static int set_option(struct cmdev_id *id, const struct rdma_ucm_set_option *cmd)
{
	u8 value[sizeof(int)] = { 0 };
	int err;

	if (cmd->level == RDMA_OPTION_IB)
		return cmd->optname == RDMA_OPTION_IB_PATH ? -EINVAL : -ENOSYS;
	if (cmd->level != RDMA_OPTION_ID || cmd->optname >= ARRAY_SIZE(options))
		return -ENOSYS;
	if (!cmd->optlen || cmd->optlen > sizeof(value))
		return -EINVAL;
	err = cmdev_get(value, cmd->optval, cmd->optlen);
	return err ? err : options[cmd->optname](id, value, cmd->optlen);
}

int cmdev_set_option(struct cmdev_call *c)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, c->cmd.set_option.id, &id);

	return err ? err : cmdev_id_end(id, set_option(id, &c->cmd.set_option));
}

/* ---- listen ---- */

/* One that listens already, since the other could not, refuses who comes until LISTEN has succeeded. */
static int listen_cm(struct cmdev_id *id, int backlog)
{
	int err = id->listens ? 0 : iwcm_listen(id->cm, backlog);

	if (err)
		return err;
	id->listens = true;
	return id->cm4 ? iwcm_listen(id->cm4, backlog) : 0;
}

/* Who listens without an address listens on every one of IPv4, at a port of its own. */
static int listen_id(struct cmdev_id *id, u32 backlog)
{
	union addr any = { .in = { .sin_family = AF_INET } };
	int n = (int)(backlog && backlog < BACKLOG_MAX ? backlog : BACKLOG_MAX), err = 0;

	if (!id->cm || id->qp_type != IBV_QPT_RC)
		return -ENOSYS;
	if (cmdev_id_in(id, BIT(CMDEV_IDLE))) {
		err = bind_cm(id, &any);
		if (!err)
			set_bound(id);
	}
	if (!err)
		err = cmdev_id_step(id, BIT(CMDEV_BOUND), CMDEV_LISTEN);
	if (err)
		return err;
	err = listen_cm(id, n);
	if (err)
		cmdev_id_step(id, BIT(CMDEV_LISTEN), CMDEV_BOUND);
	return err;
}

int cmdev_listen(struct cmdev_call *c)
{
	struct cmdev_id *id;
	int err = cmdev_id_begin(c->file, c->cmd.listen.id, &id);

	if (err)
		return err;
	__atomic_store_n(&c->file->listens, true, __ATOMIC_RELAXED);
	return cmdev_id_end(id, listen_id(id, c->cmd.listen.backlog));
}
