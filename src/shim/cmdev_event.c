/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: events of the rdma_cm device: what iwcm says, in the words of rdma_get_cm_event(3), and the queues of files.
 *
 *   iwcm                       rdma_cm
 *   CONNECT_REQUEST            CONNECT_REQUEST, with a new id
 *   ESTABLISHED                ESTABLISHED
 *   REJECTED                   REJECTED, -ECONNREFUSED, with what the peer said
 *   CONNECT_ERROR              as the kernel's CM has it for iWARP: REJECTED if it was refused or reset, UNREACHABLE if
 *                              nobody answered or there is no way, else CONNECT_ERROR
 *   DISCONNECTED               DISCONNECTED
 *   CLOSED                     nothing, but CONNECT_ERROR if the request was accepted and the connection did not come up
 *   DEVICE_REMOVED             DEVICE_REMOVAL
 *
 * ADDR_RESOLVED, ADDR_ERROR and ROUTE_RESOLVED are made by the commands themselves: routing answers at once, and with the address the route is known.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shim/cmdev_internal.h"
#include "shim/verbs_internal.h"

#define DEPTH_MAX 128u         /* what a NIC can; stands for what was not negotiated */
#define PDATA_MAX 255u         /* private_data_len is a byte */

/* ---- queues ---- */

static LIST_HEAD(, cmdev_file) due = LIST_HEAD_INITIALIZER(due); /* files that are owed one; locked */

/* Locked. */
static void want_token(struct cmdev_file *f)
{
	if (f->token || TAILQ_EMPTY(&f->events))
		return;
	f->token = f->due = true;
	LIST_INSERT_HEAD(&due, f, due_entry);
}

/* Locked. */
static void not_due(struct cmdev_file *f)
{
	LIST_REMOVE(f, due_entry);
	f->due = false;
}

void cmdev_event_close(struct cmdev_file *f)
{
	if (f->due)
		not_due(f);
}

/* Locked, and gives the lock up: whoever the token wakes wants it at once. */
static void post_token(struct cmdev_file *f)
{
	not_due(f);
	__atomic_fetch_add(&f->posting, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&cmdev_lock);
	shim_evfd_post(f->fd);
	__atomic_fetch_sub(&f->posting, 1, __ATOMIC_RELEASE); /* from here on the file may be closed */
}

void cmdev_unlock(struct cmdev_file *f)
{
	if (f && f->due)
		post_token(f);
	else
		pthread_mutex_unlock(&cmdev_lock);
}

/**
 * shim_cmdev_events_done() - iwcm has no more events for now
 * @arg: unused
 *
 * NIC thread. Only now are the readers of what shim_cmdev_event() queued woken: they do not run into the locks of what comes behind, and have one wake-up for all of it.
 */
void shim_cmdev_events_done(void *arg)
{
	struct cmdev_file *f;

	pthread_mutex_lock(&cmdev_lock);
	while ((f = LIST_FIRST(&due))) {
		post_token(f);
		pthread_mutex_lock(&cmdev_lock);
	}
	pthread_mutex_unlock(&cmdev_lock);
}

/* They are in a system call that does not wait, and need no lock. */
void cmdev_event_settle(struct cmdev_file *f)
{
	while (__atomic_load_n(&f->posting, __ATOMIC_ACQUIRE))
		sched_yield();
}

void cmdev_event_queue(struct cmdev_file *f, struct cmdev_event *e)
{
	bool first = TAILQ_EMPTY(&f->events);

	TAILQ_INSERT_TAIL(&f->events, e, entry);
	want_token(f);
	if (unlikely(f->kept_live) && first)
		shim_evfd_post(f->kept_fd);
}

/* Without a token to drop: a reader has it, and finds out when it has the lock. */
void cmdev_event_unqueue(struct cmdev_file *f, struct cmdev_event *e)
{
	TAILQ_REMOVE(&f->events, e, entry);
	if (!TAILQ_EMPTY(&f->events))
		return;
	if (f->due) {
		not_due(f);
		f->token = false;
	} else if (f->token) {
		cmdev_event_settle(f);
		f->token = !shim_evfd_drop(f->fd);
	}
	if (unlikely(f->kept_live))
		shim_evfd_drop(f->kept_fd);
}

void cmdev_event_drop(struct cmdev_file *f, struct cmdev_event *e)
{
	cmdev_event_unqueue(f, e);
	if (e->child)
		e->child->request = NULL;
	free(e);
}

void cmdev_events_free(struct cmdev_queue *q)
{
	struct cmdev_event *e;

	while ((e = TAILQ_FIRST(q))) {
		TAILQ_REMOVE(q, e, entry);
		free(e);
	}
}

void cmdev_event_move(struct cmdev_id *id, struct cmdev_file *to)
{
	struct cmdev_file *from = id->file;
	struct cmdev_event *e, *next;

	for (e = TAILQ_FIRST(&from->events); e; e = next) {
		next = TAILQ_NEXT(e, entry);
		if (e->id != id)
			continue;
		cmdev_event_unqueue(from, e);
		cmdev_event_queue(to, e);
		if (e->child)
			cmdev_id_move(e->child, to);
	}
}

static void event_set(struct cmdev_event *e, struct cmdev_id *id, enum cmdev_event_type type, int status)
{
	e->id = id;
	e->resp.event = type;
	e->resp.status = (u32)status;
}

struct cmdev_event *cmdev_event_new(struct cmdev_id *id, enum cmdev_event_type type, int status)
{
	struct cmdev_event *e = calloc(1, sizeof(*e));

	if (e)
		event_set(e, id, type, status);
	else
		log_error("shim", "no memory for event %d", type);
	return e;
}

/* Locked. */
static void spare_add(struct cmdev_id *id, struct cmdev_event *e)
{
	TAILQ_INSERT_TAIL(&id->spare, e, entry);
	id->spares++;
}

/* What the NIC thread has to say must not be lost for want of memory: the command fails, while somebody is there to hear of it. */
int cmdev_event_reserve(struct cmdev_id *id, u32 n)
{
	int err = 0;

	pthread_mutex_lock(&cmdev_lock);
	while (!err && id->spares < n) {
		struct cmdev_event *e = calloc(1, sizeof(*e));

		if (e)
			spare_add(id, e);
		else
			err = -ENOMEM;
	}
	pthread_mutex_unlock(&cmdev_lock);
	return err;
}

/* ---- GET_EVENT ---- */

/* Locked. The uid is certain only now: ACCEPT gives it. */
static int deliver(struct cmdev_file *f, struct cmdev_event *e, u64 response, u32 out)
{
	struct cmdev_id *child = e->child;
	int err;

	e->resp.uid = e->id->uid;
	e->resp.id = child ? child->number : e->id->number;
	err = cmdev_put(response, &e->resp, min((size_t)out, sizeof(e->resp)));
	if (err)
		return err;
	e->id->events_reported++;
	cmdev_event_drop(f, e);
	return 0;
}

/* Locked. 1: there is none; nor is there one for who comes without a token while that is on its way. */
static int get_locked(struct cmdev_file *f, u64 response, u32 out, bool token)
{
	struct cmdev_event *e = TAILQ_FIRST(&f->events);
	int ret;

	if (token)
		f->token = false;
	if (!e || (!token && __atomic_load_n(&f->posting, __ATOMIC_ACQUIRE)))
		return 1;
	ret = deliver(f, e, response, out);
	if (token)
		want_token(f);
	return ret;
}

static int try_get(struct cmdev_file *f, u64 response, u32 out, bool token)
{
	SHIM_UNCANCELLED;
	int ret;

	pthread_mutex_lock(&cmdev_lock);
	ret = get_locked(f, response, out, token);
	cmdev_unlock(f);
	return ret;
}

/* A thread in GET_EVENT. */
struct waiter {
	struct cmdev_file *file;
	bool listens;          /* it may get a connection: iwcm_fork_wait() */
};

static void end_wait(struct waiter *w)
{
	if (w->listens)
		iwcm_fork_wait(cmdev_context(), false);
	w->listens = false;
}

/*
 * The channel was closed under a thread that waits for its events. The kernel's device lets it wait on, for ever or until it is cancelled, and programs whose main thread closes the
 * channel and then exits rely on that: with an error here such a thread would end the process first, with its own exit status.
 */
static int wait_on(struct waiter *w)
{
	end_wait(w);
	while (!w->file->nonblocking)
		pause();
	return -EAGAIN;
}

static void cancelled(void *arg)
{
	struct waiter *w = arg;

	end_wait(w);
	cmdev_file_put(w->file);
}

/* Waits unless O_NONBLOCK is set. The one place of a command where a thread may be cancelled. */
static int take_token(struct waiter *w)
{
	int err;

	pthread_cleanup_push(cancelled, w);
	err = shim_evfd_take(w->file->fd);
	if (__atomic_load_n(&w->file->closed, __ATOMIC_ACQUIRE))
		err = wait_on(w);
	pthread_cleanup_pop(0);
	return err;
}

static int wait_get(struct waiter *w, u64 response, u32 out)
{
	int ret = try_get(w->file, response, out, false), err;

	while (ret == 1) {
		err = take_token(w);
		if (err)
			return err;
		ret = try_get(w->file, response, out, true);
	}
	return ret;
}

int cmdev_event_get(struct cmdev_file *f, u64 response, u32 out)
{
	struct waiter w = { .file = f, .listens = __atomic_load_n(&f->listens, __ATOMIC_RELAXED) };
	int ret;

	if (w.listens)
		iwcm_fork_wait(cmdev_context(), true);
	ret = wait_get(&w, response, out);
	end_wait(&w);
	return ret;
}

/* ---- from iwcm ---- */

static u8 depth(unsigned int n)
{
	return (u8)min(n, DEPTH_MAX);
}

static void conn_param(const struct iwcm_event *ev, struct rdma_ucm_conn_param *p)
{
	bool request = ev->type == IWCM_EVENT_CONNECT_REQUEST;

	p->private_data_len = (u8)min(ev->private_data_len, (size_t)PDATA_MAX);
	memcpy(p->private_data, ev->private_data, p->private_data_len);
	/* In a request: what the peer asks for. Later: what was agreed. */
	p->responder_resources = depth(request ? ev->info.peer_ord : ev->info.ird);
	p->initiator_depth = depth(request ? ev->info.peer_ird : ev->info.ord);
}

static enum cmdev_event_type connect_error(int status)
{
	switch (status) {
	case -ECONNREFUSED:
	case -ECONNRESET:
		return CMDEV_REJECTED_EV;
	case -ETIMEDOUT:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		return CMDEV_UNREACHABLE_EV;
	default:
		return CMDEV_CONNECT_ERROR_EV;
	}
}

/* Locked. Who calls for an event has reserved memory for it; DEVICE_REMOVAL may come uncalled. */
static struct cmdev_event *event_take(struct cmdev_id *id, enum cmdev_event_type type, int status)
{
	struct cmdev_event *e = TAILQ_FIRST(&id->spare);

	if (!e)
		return cmdev_event_new(id, type, status);
	TAILQ_REMOVE(&id->spare, e, entry);
	id->spares--;
	event_set(e, id, type, status);
	return e;
}

/* Locked. */
static void post(struct cmdev_id *id, const struct iwcm_event *ev, enum cmdev_event_type type, int status)
{
	struct cmdev_event *e = event_take(id, type, status);

	if (!e)
		return;
	if (type == CMDEV_ESTABLISHED_EV || type == CMDEV_REJECTED_EV)
		conn_param(ev, &e->resp.param.conn);
	if (id->state == CMDEV_ACCEPTING)
		TAILQ_INSERT_TAIL(&id->parked, e, entry);
	else
		cmdev_event_queue(id->file, e);
}

/* Each of these: locked, the id is not dying. */

static void on_established(struct cmdev_id *id, const struct iwcm_event *ev)
{
	if (id->state != CMDEV_ACCEPTING)
		cmdev_id_set_state(id, CMDEV_ESTABLISHED);
	post(id, ev, CMDEV_ESTABLISHED_EV, 0);
}

static void on_rejected(struct cmdev_id *id, const struct iwcm_event *ev)
{
	cmdev_id_set_state(id, CMDEV_ENDED);
	post(id, ev, CMDEV_REJECTED_EV, -ECONNREFUSED);
}

static void on_connect_error(struct cmdev_id *id, const struct iwcm_event *ev)
{
	cmdev_id_set_state(id, CMDEV_ENDED);
	post(id, ev, connect_error(ev->status), ev->status);
}

static void on_disconnected(struct cmdev_id *id, const struct iwcm_event *ev)
{
	if (id->state != CMDEV_ACCEPTING)
		cmdev_id_set_state(id, CMDEV_ENDED);
	post(id, ev, CMDEV_DISCONNECTED_EV, 0);
}

/* Of a request that was rejected, or whose peer went before it was answered, nobody hears: ACCEPT will say so. */
static void on_closed(struct cmdev_id *id, const struct iwcm_event *ev)
{
	id->gone = id->state == CMDEV_REQUEST;
	if (id->state == CMDEV_ACCEPTED)
		cmdev_id_set_state(id, CMDEV_ENDED);
	else if (id->state != CMDEV_ACCEPTING || !TAILQ_EMPTY(&id->parked))
		return;
	post(id, ev, CMDEV_CONNECT_ERROR_EV, ev->status ? ev->status : -ECONNABORTED);
}

static void on_device_removed(struct cmdev_id *id, const struct iwcm_event *ev)
{
	post(id, ev, CMDEV_DEVICE_REMOVAL_EV, 0);
}

static void (*const handlers[])(struct cmdev_id *id, const struct iwcm_event *ev) = {
	[IWCM_EVENT_ESTABLISHED] = on_established,
	[IWCM_EVENT_REJECTED] = on_rejected,
	[IWCM_EVENT_CONNECT_ERROR] = on_connect_error,
	[IWCM_EVENT_DISCONNECTED] = on_disconnected,
	[IWCM_EVENT_CLOSED] = on_closed,
	[IWCM_EVENT_DEVICE_REMOVED] = on_device_removed,
};

/* ---- a peer asks ---- */

/* Locked. */
static int request_add(struct cmdev_id *listener, struct cmdev_id *child, struct cmdev_event *e)
{
	int err;

	if (listener->dying || listener->state != CMDEV_LISTEN)
		return -ECONNREFUSED;
	err = cmdev_id_add(listener->file, child);
	if (err)
		return err;
	e->child = child;
	child->request = e;
	cmdev_event_queue(listener->file, e);
	return 0;
}

static int request(struct cmdev_id *listener, const struct iwcm_event *ev)
{
	struct cmdev_event *e = cmdev_event_new(listener, CMDEV_CONNECT_REQUEST_EV, 0);
	struct cmdev_id *child = cmdev_id_new();
	int err = -ENOMEM;

	if (e && child) {
		conn_param(ev, &e->resp.param.conn);
		child->cm = ev->id;
		child->ps = listener->ps;
		child->qp_type = listener->qp_type;
		iwcm_set_user(ev->id, child);
		pthread_mutex_lock(&cmdev_lock);
		cmdev_id_set_state(child, CMDEV_REQUEST);
		err = request_add(listener, child, e);
		pthread_mutex_unlock(&cmdev_lock);
	}
	if (err) {
		free(e);
		if (child)
			cmdev_id_free(child);
	}
	return err;
}

/**
 * shim_cmdev_event() - an event of iwcm
 * @arg: unused
 * @ev: the event
 *
 * NIC thread, no lock held.
 */
void shim_cmdev_event(void *arg, const struct iwcm_event *ev)
{
	struct cmdev_id *id = iwcm_user(ev->listener ? ev->listener : ev->id);

	if (ev->type == IWCM_EVENT_CONNECT_REQUEST) {
		if (request(id, ev))
			iwcm_destroy_id(ev->id);
		return;
	}
	pthread_mutex_lock(&cmdev_lock);
	if (!id->dying)
		handlers[ev->type](id, ev);
	pthread_mutex_unlock(&cmdev_lock);
}
