// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm: ids.
 *
 * Theory of operation
 * -------------------
 * An id is one connection or one listener. It maps the library's calls to the CM's:
 *
 *   IDLE -bind-> BOUND -listen-> LISTENING
 *   IDLE, BOUND -resolve-> RESOLVED -connect-> CONNECTING -reply-> ESTABLISHED | FAILED
 *   REQUEST (made by a listener's upcall) -accept-> ACCEPTING -established-> ESTABLISHED, or -reject-> CLOSED
 *   ESTABLISHED -disconnect, abort-> CLOSING; ESTABLISHED, CLOSING -> DISCONNECTED -> CLOSED
 *   any -destroy-> DESTROYED
 *
 * The state moves under ctx->lock, and an event is posted in the same breath. A call that has to ask the CM first
 * moves the state on ("claims" the id), asks without the lock, and moves it back if the CM refuses; upcalls that come
 * meanwhile find the state that expects them.
 *
 * No event after destroy: iwcm_destroy_id() sets DESTROYED and takes the id's events out of the queue under the same
 * lock; an upcall that comes later, or was waiting for that lock, finds DESTROYED and posts nothing. A handler that is
 * at work in another thread is waited for, with no lock held.
 *
 * None lost: iwcm_event.c. References: the user's (dropped by destroy), the CM's (iw_cm_id.add_ref), one for each child, for each
 * call that has begun, and for the handler's time. The memory goes with the last.
 *
 * Left out: a time limit for accepting; the CM resets a peer that gave up, and the id then says so.
 */
#include <stdlib.h>
#include <string.h>
#include "iwcm/room_internal.h"

static const char *const state_names[] = {
	[IWCM_ID_IDLE] = "IDLE",
	[IWCM_ID_BOUND] = "BOUND",
	[IWCM_ID_RESOLVED] = "RESOLVED",
	[IWCM_ID_LISTENING] = "LISTENING",
	[IWCM_ID_CONNECTING] = "CONNECTING",
	[IWCM_ID_REQUEST] = "REQUEST",
	[IWCM_ID_ACCEPTING] = "ACCEPTING",
	[IWCM_ID_ESTABLISHED] = "ESTABLISHED",
	[IWCM_ID_CLOSING] = "CLOSING",
	[IWCM_ID_DISCONNECTED] = "DISCONNECTED",
	[IWCM_ID_CLOSED] = "CLOSED",
	[IWCM_ID_FAILED] = "FAILED",
	[IWCM_ID_DESTROYED] = "DESTROYED",
};
static_assert(ARRAY_SIZE(state_names) == IWCM_ID_STATES, "a name per state");

#define S(x) BIT(IWCM_ID_##x)

/* Where one may go from each; DESTROYED from everywhere. */
static const u32 steps[IWCM_ID_STATES] = {
	[IWCM_ID_IDLE] = S(BOUND) | S(RESOLVED),
	[IWCM_ID_BOUND] = S(RESOLVED) | S(LISTENING) | S(FAILED),
	[IWCM_ID_RESOLVED] = S(CONNECTING) | S(FAILED),
	[IWCM_ID_LISTENING] = S(BOUND) /* the CM refused */ | S(FAILED),
	[IWCM_ID_CONNECTING] = S(RESOLVED) /* the CM refused */ | S(ESTABLISHED) | S(FAILED),
	[IWCM_ID_REQUEST] = S(ACCEPTING) | S(CLOSED),
	[IWCM_ID_ACCEPTING] = S(ESTABLISHED) | S(CLOSED),
	[IWCM_ID_ESTABLISHED] = S(CLOSING) | S(DISCONNECTED),
	[IWCM_ID_CLOSING] = S(DISCONNECTED),
	[IWCM_ID_DISCONNECTED] = S(CLOSED),
	[IWCM_ID_CLOSED] = 0,
	[IWCM_ID_FAILED] = 0,
	[IWCM_ID_DESTROYED] = 0,
};

const char *iwcm_id_state_str(enum iwcm_id_state s)
{
	return (unsigned int)s < IWCM_ID_STATES ? state_names[s] : "?";
}

void iwcm_id_set_state(struct iwcm_id *id, enum iwcm_id_state next)
{
	assert((steps[id->state] | (id->state == IWCM_ID_DESTROYED ? 0 : S(DESTROYED))) & BIT(next));
	log_debug("iwcm", "id %p %s -> %s", (void *)id, state_names[id->state], state_names[next]);
	id->state = next;
}

/* ---- references ---- */

void iwcm_id_get(struct iwcm_id *id)
{
	__atomic_fetch_add(&id->refs, 1, __ATOMIC_RELAXED);
}

static void id_free(struct iwcm_id *id)
{
	struct iwcm_ctx *ctx = id->ctx;

	assert(LIST_EMPTY(&id->children) && !id->dev && !id->qp);
	pthread_mutex_destroy(&id->call);
	free(id->pdata);
	free(id);
	__atomic_fetch_sub(&ctx->live_ids, 1, __ATOMIC_RELEASE);
}

void iwcm_id_put(struct iwcm_id *id)
{
	if (__atomic_fetch_sub(&id->refs, 1, __ATOMIC_ACQ_REL) == 1)
		id_free(id);
}

static void conn_add_ref(struct iw_cm_id *cm)
{
	iwcm_id_get(container_of(cm, struct iwcm_id, cm));
}

static void conn_rem_ref(struct iw_cm_id *cm)
{
	iwcm_id_put(container_of(cm, struct iwcm_id, cm));
}

/* ---- options ---- */

/**
 * iwcm_options_init() - the defaults
 * @o: filled in
 */
void iwcm_options_init(struct iwcm_options *o)
{
	*o = (struct iwcm_options){
		.mpa_revision = MPA_REV_2,
		.fall_back = true,
		.peer_to_peer = true,
		.rtr = IWCM_RTR_ALL,
		.crc = true,
		.mpa_timeout_ms = 10000,
	};
}

static_assert(IWCM_RTR_SEND == RDMAP_RTR_SEND && IWCM_RTR_WRITE == RDMAP_RTR_WRITE && IWCM_RTR_READ == RDMAP_RTR_READ,
	      "one set of RTR kinds");

static bool options_valid(const struct iwcm_options *o)
{
	if (o->mpa_revision != MPA_REV_1 && o->mpa_revision != MPA_REV_2)
		return false;
	if (o->rtr & ~(unsigned int)IWCM_RTR_ALL || o->tos > 255)
		return false;
	return o->rtr || !o->peer_to_peer || o->mpa_revision == MPA_REV_1;
}

static void options_apply(struct iw_cm_id *cm, const struct iwcm_options *o)
{
	cm->mpa = (struct cm_mpa_opts){
		.rev = (u8)o->mpa_revision,
		.fallback_v1 = o->fall_back,
		.p2p = o->peer_to_peer,
		.rtr = (u8)o->rtr,
		.crc = o->crc,
		.markers = o->markers,
		.mpa_timeout_ms = o->mpa_timeout_ms,
		.syn_timeout_ms = o->connect_timeout_ms,
	};
	cm->tos = (u8)o->tos;
	cm->tos_set = o->tos != 0;
}

static bool in_states(struct iwcm_id *id, u32 mask)
{
	bool in;

	iwcm_lock(id->ctx);
	in = mask & BIT(id->state);
	iwcm_unlock(id->ctx);
	return in;
}

/**
 * iwcm_set_options() - say what an id wants
 * @id: id that neither listens nor connects yet; the ids of a listener's requests get the listener's options
 * @o: options, copied
 *
 * Return: 0; -EINVAL: impossible options, nothing changed; -EISCONN: too late.
 */
int iwcm_set_options(struct iwcm_id *id, const struct iwcm_options *o)
{
	int err = iwcm_call_begin(id);

	if (err)
		return err;
	if (!options_valid(o))
		return iwcm_call_end(id, -EINVAL);
	if (!in_states(id, S(IDLE) | S(BOUND) | S(RESOLVED)))
		return iwcm_call_end(id, -EISCONN);
	id->opt = *o;
	options_apply(&id->cm, o);
	return iwcm_call_end(id, 0);
}

/* ---- creation ---- */

struct iwcm_id *iwcm_id_alloc(struct iwcm_ctx *ctx, void *user, enum iwcm_id_state state)
{
	struct iwcm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->ctx = ctx;
	id->user = user;
	id->refs = 1;
	id->state = state;
	id->cm.event_handler = iwcm_conn_upcall;
	id->cm.add_ref = conn_add_ref;
	id->cm.rem_ref = conn_rem_ref;
	pthread_mutex_init(&id->call, NULL);
	LIST_INIT(&id->children);
	LIST_INIT(&id->untaken);
	__atomic_fetch_add(&ctx->live_ids, 1, __ATOMIC_RELAXED);
	return id;
}

void iwcm_id_link(struct iwcm_id *id)
{
	TAILQ_INSERT_TAIL(&id->ctx->ids, id, entry);
}

/**
 * iwcm_create_id() - make an id
 * @ctx: context
 * @user: what iwcm_user() returns
 * @out: the id, to be given to iwcm_destroy_id()
 *
 * Return: 0 or -ENOMEM.
 */
int iwcm_create_id(struct iwcm_ctx *ctx, void *user, struct iwcm_id **out)
{
	struct iwcm_id *id = iwcm_id_alloc(ctx, user, IWCM_ID_IDLE);

	if (!id)
		return -ENOMEM;
	iwcm_options_init(&id->opt);
	options_apply(&id->cm, &id->opt);
	iwcm_lock(ctx);
	iwcm_id_link(id);
	iwcm_unlock(ctx);
	*out = id;
	return 0;
}

/**
 * iwcm_user() - the caller's own pointer
 * @id: id
 *
 * Return: what was given to iwcm_create_id() or iwcm_set_user(); of a request's id: the listener's, when it came.
 */
void *iwcm_user(const struct iwcm_id *id)
{
	return __atomic_load_n(&id->user, __ATOMIC_ACQUIRE);
}

/**
 * iwcm_set_user() - change the caller's own pointer
 * @id: id
 * @user: the pointer
 */
void iwcm_set_user(struct iwcm_id *id, void *user)
{
	__atomic_store_n(&id->user, user, __ATOMIC_RELEASE);
}

static int get_addr(const struct iwcm_id *id, const union iwcm_addr *a, struct sockaddr_storage *out)
{
	iwcm_lock(id->ctx);
	iwcm_addr_store(a, out);
	iwcm_unlock(id->ctx);
	return out->ss_family == AF_UNSPEC ? -ENOTCONN : 0;
}

/**
 * iwcm_local_addr() - where an id is, on this side
 * @id: id that is bound, resolved, or came with a request
 * @out: address and port
 *
 * The port that connecting chose is known once iwcm_connect() has returned.
 *
 * Return: 0; -ENOTCONN: no address yet.
 */
int iwcm_local_addr(const struct iwcm_id *id, struct sockaddr_storage *out)
{
	return get_addr(id, &id->local, out);
}

/**
 * iwcm_remote_addr() - whom an id talks to
 * @id: id that is resolved, or came with a request
 * @out: address and port
 *
 * Return: 0; -ENOTCONN: no address yet.
 */
int iwcm_remote_addr(const struct iwcm_id *id, struct sockaddr_storage *out)
{
	return get_addr(id, &id->remote, out);
}

/* ---- calls ---- */

int iwcm_call_begin(struct iwcm_id *id)
{
	iwcm_gate_enter(id->ctx);
	iwcm_id_get(id);
	pthread_mutex_lock(&id->call);
	if (likely(!id->destroyed))
		return 0;
	return iwcm_call_end(id, -EINVAL);
}

int iwcm_call_end(struct iwcm_id *id, int ret)
{
	struct iwcm_ctx *ctx = id->ctx;

	pthread_mutex_unlock(&id->call);
	iwcm_id_put(id);
	iwcm_gate_leave(ctx);
	return ret;
}

struct iwcm_held iwcm_id_take(struct iwcm_id *id)
{
	struct iwcm_held h = { .qp = id->qp, .qp_given = id->qp_given, .dev = id->dev };

	id->qp = NULL;
	id->qp_given = false;
	id->dev = NULL;
	return h;
}

void iwcm_held_put_qp(struct iwcm_held *h)
{
	if (h->qp && h->qp_given)
		rnic_qp_put(h->qp);
	else if (h->qp)
		rnic_qp_destroy(h->qp);
	h->qp = NULL;
}

void iwcm_held_put(struct iwcm_held *h)
{
	iwcm_held_put_qp(h);
	iwcm_dev_put(h->dev);
}

/* ---- destruction ---- */

/* From here on no event of @id, and none of the requests that it got and nobody fetched: these go to @orphans. */
static enum iwcm_id_state destroy_claim(struct iwcm_id *id, struct iwcm_held *h, struct iwcm_id_list *orphans)
{
	enum iwcm_id_state prev;
	struct iwcm_id *req;

	iwcm_lock(id->ctx);
	prev = id->state;
	iwcm_id_set_state(id, IWCM_ID_DESTROYED);
	iwcm_purge(id);
	TAILQ_REMOVE(&id->ctx->ids, id, entry);
	*h = iwcm_id_take(id);
	while ((req = LIST_FIRST(&id->untaken))) {
		iwcm_purge(req);
		req->orphan = true; /* the CM may have something to say of it before it is destroyed, too */
		LIST_INSERT_HEAD(orphans, req, untaken_entry);
	}
	iwcm_unlock(id->ctx);
	return prev;
}

static void destroy(struct iwcm_id *id)
{
	struct iwcm_id_list orphans = LIST_HEAD_INITIALIZER(orphans);
	enum iwcm_id_state prev;
	struct iwcm_held h;
	struct iwcm_id *req;

	iwcm_gate_enter(id->ctx);
	iwcm_id_get(id);
	pthread_mutex_lock(&id->call);
	id->destroyed = true;
	prev = destroy_claim(id, &h, &orphans);
	iwcm_unbind(id);
	iwcm_conn_abandon(id, prev, &h);
	iwcm_call_end(id, 0);
	while ((req = LIST_FIRST(&orphans))) {
		LIST_REMOVE(req, untaken_entry);
		destroy(req);
	}
	iwcm_wait_delivered(id);
	iwcm_id_put(id);
}

/**
 * iwcm_destroy_id() - give an id up
 * @id: id, in whatever state; NULL is ignored
 *
 * Ends what is under way: a listener stops, and requests of it that were not accepted are reset (those that were fetched
 * with iwcm_get_event() are still the caller's to destroy, and get CLOSED); a connection that is being set up is given up; a request that was not answered is
 * rejected; an established connection is reset, one that iwcm_disconnect() is closing goes on closing by itself.
 *
 * From any thread, also from the handler. When it returns, no event of the id comes any more; one
 * that iwcm_get_event() has copied out in another thread before is the caller's to reckon with.
 */
void iwcm_destroy_id(struct iwcm_id *id)
{
	if (id)
		destroy(id);
}
