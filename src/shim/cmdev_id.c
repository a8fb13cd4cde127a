/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: ids of the rdma_cm device: their table, states and lives. An id's number is its place in the table, for all files together: MIGRATE_ID keeps it.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "shim/cmdev_internal.h"

#define FIRST_IDS 64u

static struct {
	struct cmdev_slot {
		struct cmdev_id *id;  /* NULL: free */
		u32 next;             /* then: the next free one */
	} *slots;
	u32 n, free;                  /* @free == @n: none */
} table;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

/* ---- states ---- */

static const char *const state_names[] = {
	[CMDEV_IDLE] = "IDLE",
	[CMDEV_BOUND] = "BOUND",
	[CMDEV_ADDR_QUERY] = "ADDR_QUERY",
	[CMDEV_ADDR_RESOLVED] = "ADDR_RESOLVED",
	[CMDEV_ROUTE_RESOLVED] = "ROUTE_RESOLVED",
	[CMDEV_LISTEN] = "LISTEN",
	[CMDEV_CONNECT] = "CONNECT",
	[CMDEV_REQUEST] = "REQUEST",
	[CMDEV_ACCEPTING] = "ACCEPTING",
	[CMDEV_ACCEPTED] = "ACCEPTED",
	[CMDEV_ESTABLISHED] = "ESTABLISHED",
	[CMDEV_ENDED] = "ENDED",
};
static_assert(ARRAY_SIZE(state_names) == CMDEV_STATES, "a name per state");

#define S(x) BIT(CMDEV_##x)

/* Where one may go from each; back where a call into iwcm failed. */
static const u32 steps[CMDEV_STATES] = {
	[CMDEV_IDLE] = S(BOUND) | S(ADDR_QUERY) | S(REQUEST),
	[CMDEV_BOUND] = S(LISTEN) | S(ADDR_QUERY),
	[CMDEV_ADDR_QUERY] = S(ADDR_RESOLVED) | S(BOUND) | S(IDLE),
	[CMDEV_ADDR_RESOLVED] = S(ROUTE_RESOLVED),
	[CMDEV_ROUTE_RESOLVED] = S(CONNECT),
	[CMDEV_LISTEN] = S(BOUND),
	[CMDEV_CONNECT] = S(ROUTE_RESOLVED) | S(ESTABLISHED) | S(ENDED),
	[CMDEV_REQUEST] = S(ACCEPTING) | S(ENDED),
	[CMDEV_ACCEPTING] = S(REQUEST) | S(ACCEPTED),
	[CMDEV_ACCEPTED] = S(ESTABLISHED) | S(ENDED),
	[CMDEV_ESTABLISHED] = S(ENDED),
	[CMDEV_ENDED] = 0,
};

void cmdev_id_set_state(struct cmdev_id *id, enum cmdev_state next)
{
	assert(steps[id->state] & BIT(next));
	log_debug("shim", "id %u %s -> %s", id->number, state_names[id->state], state_names[next]);
	id->state = next;
}

/* ---- the table: all locked ---- */

static int grow(void)
{
	u32 i, n = table.n ? table.n * 2 : FIRST_IDS;
	struct cmdev_slot *slots = reallocarray(table.slots, n, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (i = table.n; i < n; i++)
		slots[i] = (struct cmdev_slot){ .next = i + 1 };
	table.slots = slots;
	table.free = table.n;
	table.n = n;
	return 0;
}

int cmdev_id_add(struct cmdev_file *f, struct cmdev_id *id)
{
	int err = table.free == table.n ? grow() : 0;

	if (err)
		return err;
	id->number = table.free;
	table.free = table.slots[id->number].next;
	table.slots[id->number].id = id;
	id->file = f;
	LIST_INSERT_HEAD(&f->ids, id, entry);
	return 0;
}

void cmdev_id_move(struct cmdev_id *id, struct cmdev_file *to)
{
	LIST_REMOVE(id, entry);
	LIST_INSERT_HEAD(&to->ids, id, entry);
	id->file = to;
}

static void table_remove(struct cmdev_id *id)
{
	table.slots[id->number] = (struct cmdev_slot){ .next = table.free };
	table.free = id->number;
}

/* ---- references ---- */

struct cmdev_id *cmdev_id_new(void)
{
	struct cmdev_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->refs = 1;
	pthread_mutex_init(&id->call, NULL);
	TAILQ_INIT(&id->parked);
	TAILQ_INIT(&id->spare);
	return id;
}

void cmdev_id_free(struct cmdev_id *id)
{
	cmdev_events_free(&id->parked);
	cmdev_events_free(&id->spare);
	pthread_mutex_destroy(&id->call);
	free(id);
}

int cmdev_id_find(struct cmdev_file *f, u32 number, struct cmdev_id **out)
{
	struct cmdev_id *id = number < table.n ? table.slots[number].id : NULL;

	if (!id || id->request)
		return -ENOENT;
	if (id->file != f)
		return -EINVAL;
	*out = id;
	return 0;
}

/* ---- commands ---- */

/* Locked, and gives the lock up. Another command of @id is under way: the reference keeps the id until that is over. */
static void wait_turn(struct cmdev_id *id)
{
	id->refs++;
	pthread_mutex_unlock(&cmdev_lock);
	pthread_mutex_lock(&id->call);
	pthread_mutex_lock(&cmdev_lock);
	id->refs--;
	if (id->dying)
		pthread_cond_broadcast(&released);
	pthread_mutex_unlock(&cmdev_lock);
}

/* Who has @call needs no reference: destroy() takes it, too. */
int cmdev_id_begin(struct cmdev_file *f, u32 number, struct cmdev_id **out)
{
	int err;

	pthread_mutex_lock(&cmdev_lock);
	err = cmdev_id_find(f, number, out);
	if (err || !pthread_mutex_trylock(&(*out)->call))
		pthread_mutex_unlock(&cmdev_lock);
	else
		wait_turn(*out);
	return err;
}

int cmdev_id_end(struct cmdev_id *id, int ret)
{
	pthread_mutex_unlock(&id->call);
	return ret;
}

int cmdev_id_step(struct cmdev_id *id, u32 from, enum cmdev_state to)
{
	int err = -EINVAL;

	pthread_mutex_lock(&cmdev_lock);
	if (from & BIT(id->state)) {
		cmdev_id_set_state(id, to);
		err = 0;
	}
	pthread_mutex_unlock(&cmdev_lock);
	return err;
}

bool cmdev_id_in(struct cmdev_id *id, u32 mask)
{
	bool in;

	pthread_mutex_lock(&cmdev_lock);
	in = mask & BIT(id->state);
	pthread_mutex_unlock(&cmdev_lock);
	return in;
}

/* ---- the end ---- */

/* Events of @id and, if it listens, the requests in them. */
static void purge(struct cmdev_id *id, struct cmdev_id_list *dead)
{
	struct cmdev_file *f = id->file;
	struct cmdev_event *e, *next;

	for (e = TAILQ_FIRST(&f->events); e; e = next) {
		next = TAILQ_NEXT(e, entry);
		if (e->id != id)
			continue;
		/* A request has no events in the queue before it is accepted, so nothing that @next is goes with it. */
		if (e->child)
			cmdev_id_detach(e->child, dead);
		else
			cmdev_event_drop(f, e);
	}
}

void cmdev_id_detach(struct cmdev_id *id, struct cmdev_id_list *dead)
{
	table_remove(id);
	LIST_REMOVE(id, entry);
	id->dying = true;
	if (id->request)
		cmdev_event_drop(id->file, id->request);
	purge(id, dead);
	id->file = NULL; /* which may go before the id */
	LIST_INSERT_HEAD(dead, id, entry);
}

static void destroy(struct cmdev_id *id)
{
	pthread_mutex_lock(&cmdev_lock);
	while (id->refs > 1)
		pthread_cond_wait(&released, &cmdev_lock);
	pthread_mutex_unlock(&cmdev_lock);
	pthread_mutex_lock(&id->call); /* the last command has ended */
	pthread_mutex_unlock(&id->call);
	iwcm_destroy_id(id->cm);
	iwcm_destroy_id(id->cm4);
	cmdev_id_free(id);
}

/* Children behind their listener: its destruction waits for a handler that may be at one of them. */
void cmdev_ids_destroy(struct cmdev_id_list *dead)
{
	struct cmdev_id *id;

	while ((id = LIST_FIRST(dead))) {
		LIST_REMOVE(id, entry);
		destroy(id);
	}
}

void cmdev_ids_fork_child(void)
{
	u32 i;

	pthread_cond_init(&released, NULL);
	for (i = 0; i < table.n; i++) {
		struct cmdev_id *id = table.slots[i].id;

		if (!id)
			continue;
		id->refs = 1;
		pthread_mutex_init(&id->call, NULL);
	}
}
