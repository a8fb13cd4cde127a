// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm: addresses of an id: binding, which reserves a port number, and resolving, which finds the device.
 *
 * Which device: the one whose interface holds the local address, be the peer on the link, behind a gateway, or this machine
 * itself. A VLAN interface has no device of its own: its addresses belong to the device underneath.
 *
 * Two ids of a context may not have the same port on the same address, nor one of them on all addresses
 * of the family: the NIC's port table counts references and would not mind. IPv4 and IPv6 are apart.
 */
#include <string.h>
#include "iwcm/room_internal.h"

#define PORT_TRIES 32 /* numbers that one device chooses and another one has given away */

/* ---- forms ---- */

int iwcm_end_parse(const struct sockaddr *sa, struct iwcm_end *out)
{
	struct sockaddr_storage ss = { .ss_family = AF_UNSPEC };

	if (!sa)
		return -EINVAL;
	*out = (struct iwcm_end){ 0 };
	if (sa->sa_family == AF_INET) {
		memcpy(&ss, sa, sizeof(struct sockaddr_in));
	} else if (sa->sa_family == AF_INET6) {
		memcpy(&ss, sa, sizeof(struct sockaddr_in6));
		out->scope_id = ((struct sockaddr_in6 *)&ss)->sin6_scope_id;
	} else {
		return -EAFNOSUPPORT;
	}
	return cm_addr_from_sockaddr(&ss, &out->ipv4, out->addr, &out->port) ? 0 : -EAFNOSUPPORT;
}

static void end_to_sockaddr(const struct iwcm_end *e, struct sockaddr_storage *ss)
{
	cm_addr_to_sockaddr(e->ipv4, e->addr, e->port, ss);
	if (!e->ipv4)
		((struct sockaddr_in6 *)ss)->sin6_scope_id = e->scope_id;
}

void iwcm_end_format(const struct iwcm_end *e, union iwcm_addr *out)
{
	struct sockaddr_storage ss;

	end_to_sockaddr(e, &ss);
	iwcm_addr_load(&ss, out);
}

void iwcm_addr_store(const union iwcm_addr *a, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof(*out));
	memcpy(out, a, sizeof(*a));
}

void iwcm_addr_load(const struct sockaddr_storage *ss, union iwcm_addr *out)
{
	memcpy(out, ss, sizeof(*out));
}

/* ---- who has which port ---- */

static struct iwcm_id_list *bucket(struct iwcm_ctx *ctx, u16 port)
{
	return &ctx->bound[port % IWCM_PORT_BUCKETS];
}

static bool overlaps(const struct iwcm_end *a, const struct iwcm_end *b)
{
	if (a->ipv4 != b->ipv4 || a->port != b->port)
		return false;
	return pkt_addr_is_any(a->addr) || pkt_addr_is_any(b->addr) || pkt_addr_eq(a->addr, b->addr);
}

static bool port_taken(struct iwcm_ctx *ctx, const struct iwcm_id *self, const struct iwcm_end *e)
{
	const struct iwcm_id *other;

	LIST_FOREACH(other, bucket(ctx, e->port), bound_entry)
		if (other != self && overlaps(&other->src, e))
			return true;
	return false;
}

/* @at->port given: on this device. Port 0: one that no id of the context has. */
static int reserve_first(struct iwcm_id *id, struct iwcm_dev *dev, struct iwcm_end *at)
{
	u16 wanted = at->port;
	int err;

	if (wanted && port_taken(id->ctx, id, at))
		return -EADDRINUSE;
	err = iwcm_child_add(id, dev, at);
	if (err || wanted || !port_taken(id->ctx, id, at))
		return err;
	iwcm_children_del(id);
	return -EADDRINUSE;
}

static int reserve_everywhere(struct iwcm_id *id, struct iwcm_end *at)
{
	struct iwcm_dev *dev = TAILQ_FIRST(&id->ctx->devs);
	int err = dev ? reserve_first(id, dev, at) : -ENODEV;

	if (err)
		return err;
	while ((dev = TAILQ_NEXT(dev, entry))) {
		err = iwcm_child_add(id, dev, at);
		if (err) {
			iwcm_children_del(id);
			return err;
		}
	}
	return 0;
}

/* All or nothing; the number goes to @at. @dev NULL: on every device. */
static int reserve(struct iwcm_id *id, struct iwcm_dev *dev, struct iwcm_end *at)
{
	u16 wanted = at->port;
	int tries = wanted ? 1 : PORT_TRIES, err;

	do {
		at->port = wanted;
		err = dev ? reserve_first(id, dev, at) : reserve_everywhere(id, at);
	} while (err == -EADDRINUSE && --tries);
	return err;
}

/* Called with dev_lock held. */
static void bound(struct iwcm_id *id, struct iwcm_dev *dev, const struct iwcm_end *at)
{
	if (id->bound)
		LIST_REMOVE(id, bound_entry);
	id->src = *at;
	id->wildcard = pkt_addr_is_any(at->addr);
	id->bound = true;
	LIST_INSERT_HEAD(bucket(id->ctx, at->port), id, bound_entry);
	iwcm_lock(id->ctx);
	if (id->state == IWCM_ID_IDLE) {
		iwcm_id_set_state(id, IWCM_ID_BOUND);
		iwcm_end_format(at, &id->local);
		if (!id->wildcard) {
			iwcm_dev_get(dev);
			id->dev = dev;
		}
	}
	iwcm_unlock(id->ctx);
}

/* Called within a call, in state IDLE. */
static int bind_end(struct iwcm_id *id, struct iwcm_end *at)
{
	struct iwcm_ctx *ctx = id->ctx;
	struct iwcm_dev *dev = NULL;
	struct net *prev;
	int err = 0;

	prev = iwcm_enter(ctx);
	if (!pkt_addr_is_any(at->addr))
		err = iwcm_dev_for_addr(ctx, at, &dev);
	pthread_mutex_lock(&ctx->dev_lock);
	if (!err && dev && iwcm_dev_gone(dev))
		err = -ENODEV;
	if (!err)
		err = reserve(id, dev, at);
	if (!err)
		bound(id, dev, at);
	pthread_mutex_unlock(&ctx->dev_lock);
	iwcm_dev_put(dev);
	iwcm_leave(prev);
	return err;
}

static bool state_is(struct iwcm_id *id, enum iwcm_id_state a, enum iwcm_id_state b)
{
	bool is;

	iwcm_lock(id->ctx);
	is = id->state == a || id->state == b;
	iwcm_unlock(id->ctx);
	return is;
}

/**
 * iwcm_bind() - give an id a local address and port
 * @id: new id
 * @local: IPv4 or IPv6 address of this machine, or the wildcard address, which stands for all of its family, present and
 *	future; port 0: one is chosen that is free (for the wildcard: on every NIC), see iwcm_local_addr()
 *
 * The port stays reserved until the id is destroyed.
 *
 * Return: 0; -EINVAL: bound already; -EAFNOSUPPORT; -EADDRNOTAVAIL: not an address of this machine; -ENODEV: the context has
 * no NIC on its interface; -EADDRINUSE, -EACCES, -EMFILE, -ENOMEM.
 */
int iwcm_bind(struct iwcm_id *id, const struct sockaddr *local)
{
	struct iwcm_end at;
	int err = iwcm_call_begin(id);

	if (err)
		return err;
	err = iwcm_end_parse(local, &at);
	if (!err && !state_is(id, IWCM_ID_IDLE, IWCM_ID_IDLE))
		err = -EINVAL;
	if (!err)
		err = bind_end(id, &at);
	return iwcm_call_end(id, err);
}

void iwcm_unbind(struct iwcm_id *id)
{
	if (!id->bound) /* only calls set it */
		return;
	pthread_mutex_lock(&id->ctx->dev_lock);
	iwcm_children_del(id);
	LIST_REMOVE(id, bound_entry);
	id->bound = false;
	pthread_mutex_unlock(&id->ctx->dev_lock);
}

/* ---- resolving ---- */

static int find_source(struct iwcm_ctx *ctx, const struct iwcm_end *want, const struct iwcm_end *dst, struct iwcm_end *src)
{
	u32 oif = dst->scope_id ? dst->scope_id : want->scope_id;
	bool given = !pkt_addr_is_any(want->addr);
	struct net_route route;
	int err;

	err = net_route_get(ctx->net, dst->ipv4, given ? want->addr : NULL, dst->addr, oif, &route);
	if (err)
		return err;
	*src = *want;
	src->ipv4 = dst->ipv4;
	src->scope_id = oif;
	if (!given)
		memcpy(src->addr, pkt_addr_is_any(route.src) ? dst->addr : route.src, sizeof(src->addr));
	return 0;
}

/* An id bound to the wildcard has its port on every NIC; a connection needs it on one, and frees it on the others. */
static int narrow(struct iwcm_id *id, struct iwcm_dev *dev, const struct iwcm_end *src)
{
	struct iwcm_end at = *src;
	struct iwcm_child *c, *next;
	int err;

	if (!id->bound || !id->wildcard)
		return 0;
	pthread_mutex_lock(&id->ctx->dev_lock);
	err = iwcm_dev_gone(dev) ? -ENODEV : iwcm_child_add(id, dev, &at);
	if (!err) {
		LIST_FOREACH_SAFE(c, &id->children, entry, next)
			if (pkt_addr_is_any(c->at.addr))
				iwcm_child_del(c);
		bound(id, dev, &at);
	}
	pthread_mutex_unlock(&id->ctx->dev_lock);
	return err;
}

/* The routing's fault, or ours: a source address that is not there, a port in use. */
static enum cm_cause resolve_cause(int err)
{
	return err == -ENETUNREACH || err == -EHOSTUNREACH || err == -EACCES ? CM_CAUSE_UNREACHABLE : CM_CAUSE_NONE;
}

/* The outcome: states, and the event, if that is not for the caller to tell. Takes over the reference to @dev. */
static int resolved(struct iwcm_id *id, struct iwcm_dev *dev, const struct iwcm_end *src, const struct iwcm_end *dst, int err, bool post)
{
	struct iwcm_dev *old = dev;

	iwcm_lock(id->ctx);
	if (!err && iwcm_dev_gone(dev))
		err = -ENODEV;
	if (id->state == IWCM_ID_FAILED) {
		err = -ENODEV; /* bound to a device that went: DEVICE_REMOVED says so */
	} else if (err) {
		if (post)
			iwcm_post(id, IWCM_EVENT_RESOLVE_ERROR, err, resolve_cause(err));
	} else {
		iwcm_end_format(src, &id->local);
		iwcm_end_format(dst, &id->remote);
		iwcm_id_set_state(id, IWCM_ID_RESOLVED);
		if (post)
			iwcm_post(id, IWCM_EVENT_RESOLVED, 0, CM_CAUSE_NONE);
		old = id->dev;
		id->dev = dev;
	}
	iwcm_unlock(id->ctx);
	iwcm_dev_put(old);
	return err;
}

static int resolve(struct iwcm_id *id, const struct iwcm_end *want, const struct iwcm_end *dst, bool post)
{
	struct net *prev = iwcm_enter(id->ctx);
	struct iwcm_dev *dev = NULL;
	struct iwcm_end src;
	int err;

	err = find_source(id->ctx, want, dst, &src);
	if (!err)
		err = iwcm_dev_for_addr(id->ctx, &src, &dev);
	if (!err)
		err = narrow(id, dev, &src);
	if (!err) {
		end_to_sockaddr(&src, &id->cm.local_addr);
		end_to_sockaddr(dst, &id->cm.remote_addr);
		id->cm.m_local_addr = id->cm.local_addr;
		id->cm.m_remote_addr = id->cm.remote_addr;
	}
	err = resolved(id, dev, &src, dst, err, post);
	iwcm_leave(prev);
	return err;
}

/* What the id is bound to, or @src, which binds it if it has a port. */
static int wanted_source(struct iwcm_id *id, const struct sockaddr *src, bool ipv4, struct iwcm_end *out)
{
	int err;

	if (id->bound) {
		*out = id->src;
	} else if (src) {
		err = iwcm_end_parse(src, out);
		if (err)
			return err;
	} else {
		*out = (struct iwcm_end){ .ipv4 = ipv4 };
	}
	if (out->ipv4 != ipv4)
		return -EAFNOSUPPORT;
	return out->port && !id->bound ? bind_end(id, out) : 0;
}

static int resolve_check(struct iwcm_id *id, const struct iwcm_end *dst)
{
	int err = 0;

	if (!dst->port || pkt_addr_is_any(dst->addr))
		return -EINVAL;
	iwcm_lock(id->ctx);
	if (id->state != IWCM_ID_IDLE && id->state != IWCM_ID_BOUND)
		err = -EINVAL;
	else if (id->ev[IWCM_EVENT_RESOLVE_ERROR].queued)
		err = -EALREADY;
	iwcm_unlock(id->ctx);
	return err;
}

static int resolve_begin(struct iwcm_id *id, const struct sockaddr *src, const struct sockaddr *dst, struct iwcm_end *want, struct iwcm_end *to)
{
	int err = iwcm_end_parse(dst, to);

	if (!err)
		err = resolve_check(id, to);
	return err ? err : wanted_source(id, src, to->ipv4, want);
}

/**
 * iwcm_resolve() - find the way to a peer
 * @id: id that is new or bound
 * @src: local address to use, or NULL: what routing says. Ignored if the id is bound; with a port other than 0 it
 *	binds the id first
 * @dst: the peer's address and port
 *
 * RESOLVED or RESOLVE_ERROR (-ENETUNREACH, -EHOSTUNREACH, -EADDRNOTAVAIL, -ENODEV, -EADDRINUSE) comes as an event; after an error the
 * id may be resolved again.
 *
 * Return: 0; -EINVAL: no address or port, or not the time for it; -EAFNOSUPPORT; -EALREADY: an earlier RESOLVE_ERROR
 * was not fetched yet; what iwcm_bind() says.
 */
int iwcm_resolve(struct iwcm_id *id, const struct sockaddr *src, const struct sockaddr *dst)
{
	struct iwcm_end want, to;
	int err = iwcm_call_begin(id);

	if (err)
		return err;
	err = resolve_begin(id, src, dst, &want, &to);
	if (!err)
		resolve(id, &want, &to, true);
	return iwcm_call_end(id, err);
}

int iwcm_resolve_now(struct iwcm_id *id, const struct sockaddr *src, const struct sockaddr *dst, int *outcome)
{
	struct iwcm_end want, to;
	int err = iwcm_call_begin(id);

	if (err)
		return err;
	err = resolve_begin(id, src, dst, &want, &to);
	if (!err)
		*outcome = resolve(id, &want, &to, false);
	return iwcm_call_end(id, err);
}
