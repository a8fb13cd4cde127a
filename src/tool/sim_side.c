// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: what the hosts of a simulation do.
 *
 * The active side: pick two hosts and options, resolve, connect; when established, hang up at once, soon or never; be given up
 * at a random moment, perhaps. The passive side: take a while to answer, accept or reject; the same from there on. What
 * either sends as private data follows from the connection's serial number, so the other can check every byte.
 *
 * Frames get lost, so a side may stay established while the other one has failed, with nothing to tell it. Like programs of
 * the real world each has a time limit for that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tool/sim_data.h"

#define SOON_NS (2 * NSEC_PER_MSEC)
#define PATIENCE_ACTIVE_NS (20 * NSEC_PER_SEC)
#define PATIENCE_PASSIVE_NS (40 * NSEC_PER_SEC)
#define SLOW_ANSWER_NS (15 * NSEC_PER_SEC) /* above what the active side's CM waits */
#define LATE_KILL_NS (3 * NSEC_PER_SEC)
#define PDATA_REQUEST_MAX 508u
#define PDATA_REJECT_MAX 255u

enum pdata_kind { PDATA_REQUEST, PDATA_ACCEPT, PDATA_REJECT };

/* ---- private data ---- */

/* Mostly short; requests begin with the serial number. */
static u32 pdata_make(const struct sim *sim, u64 serial, enum pdata_kind kind, u8 out[PDATA_REQUEST_MAX])
{
	u64 h = sim_mix(sim_mix(sim->p->seed + 1) ^ sim_mix(serial * 4 + kind));
	u32 most = kind == PDATA_REJECT ? PDATA_REJECT_MAX : PDATA_REQUEST_MAX;
	u32 least = kind == PDATA_REQUEST ? sizeof(serial) : 0, len, i;

	len = h % 16 ? least + (u32)(h >> 8) % 57 : least + (u32)(h >> 8) % (most - least + 1);
	for (i = 0; i < len; i++)
		out[i] = (u8)(sim_mix(h + i / 8) >> i % 8 * 8);
	if (kind == PDATA_REQUEST)
		memcpy(out, &serial, sizeof(serial));
	return len;
}

static bool pdata_check(struct sim *sim, u64 serial, enum pdata_kind kind, const struct iwcm_event *ev)
{
	u8 want[PDATA_REQUEST_MAX];
	u32 len = pdata_make(sim, serial, kind, want);

	if (ev->private_data_len == len && !memcmp(ev->private_data, want, len))
		return true;
	sim_violation_on(sim, sim_ends(&ev->local, &ev->remote),
			 "connection %llu: private data of kind %d is not what was sent: %zu bytes, not %u",
			 (unsigned long long)serial, kind, ev->private_data_len, len);
	return false;
}

/* ---- sides ---- */

static void on_act(struct timer_list *t)
{
	struct sim_side *s = container_of(t, struct sim_side, act);

	s->next(s);
}

static void on_kill(struct timer_list *t);

static struct sim_side *side_make(struct sim *sim)
{
	struct sim_side **grown, *s;
	u64 size = max(2 * sim->size_sides, (u64)256);

	if (sim->num_sides == sim->size_sides) {
		grown = realloc(sim->sides, size * sizeof(*grown));
		if (!grown)
			return NULL;
		sim->sides = grown;
		sim->size_sides = size;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	sim->sides[sim->num_sides++] = s;
	timer_setup(&s->act, &sim->loop, on_act);
	timer_setup(&s->kill, &sim->loop, on_kill);
	return s;
}

static struct sim_side *side_get(struct sim *sim, struct sim_host *host, u64 serial, bool active)
{
	struct sim_side *s = TAILQ_FIRST(&sim->all_free);

	if (s)
		TAILQ_REMOVE(&sim->all_free, s, entry);
	else
		s = side_make(sim);
	if (!s)
		return NULL;
	s->sim = sim;
	s->host = host;
	s->serial = serial;
	s->active = active;
	s->id = NULL;
	s->alive = true;
	s->data = NULL;
	s->up = s->disconnected = s->waiting_for_reply = false;
	sim->alive++;
	return s;
}

/* With its data, whichever goes first. */
static void destroy_id(struct sim_side *s)
{
	if (s->data)
		sim_data_close(s->data);
	else
		iwcm_destroy_id(s->id);
	s->data = NULL;
	s->id = NULL;
}

void sim_side_free(struct sim_side *s)
{
	timer_del(&s->act);
	timer_del(&s->kill);
	destroy_id(s);
	free(s);
}

static void act_in(struct sim_side *s, u64 ns, void (*next)(struct sim_side *s))
{
	s->next = next;
	mod_timer(&s->act, loop_now(&s->sim->loop) + ns);
}

static struct sim_view *view_of(struct sim_side *s)
{
	struct sim_rec *rec = sim_rec(s->sim, s->serial);

	return s->active ? &rec->active : &rec->passive;
}

static void look(struct sim_view *v, enum tool_sim_outcome outcome, const struct iwcm_info *i)
{
	*v = (struct sim_view){
		.outcome = outcome,
		.cause = (u8)i->cause,
		.rev = (u8)i->mpa_revision,
		.rtr = (u8)i->rtr,
		.p2p = i->peer_to_peer,
		.crc = i->crc,
		.snd_markers = i->send_markers,
		.rcv_markers = i->receive_markers,
		.ird = (u16)i->ird,
		.ord = (u16)i->ord,
		.peer_ird = (u16)i->peer_ird,
		.peer_ord = (u16)i->peer_ord,
	};
}

/* The end of a side. The active one's makes room for the next connection. */
static void finish(struct sim_side *s)
{
	struct sim *sim = s->sim;

	timer_del(&s->act);
	timer_del(&s->kill);
	destroy_id(s);
	s->alive = false;
	sim->alive--;
	TAILQ_INSERT_TAIL(&sim->all_free, s, entry);
	if (!s->active)
		return;
	sim_rec(sim, s->serial)->over = true;
	if (++sim->over % 1024 == 0 && sim->p->progress)
		sim->p->progress(sim->p->progress_arg, sim->over, loop_now(&sim->loop));
	sim_start(sim, 2 * sim->p->latency_ns + SOON_NS);
}

static void on_kill(struct timer_list *t)
{
	struct sim_side *s = container_of(t, struct sim_side, kill);

	if (!s->up)
		view_of(s)->outcome = SIM_DESTROYED;
	finish(s);
}

static void plan_kill(struct sim_side *s)
{
	struct sim *sim = s->sim;
	u64 within = rand_gen_chance(&sim->rand, 0.7) ? 6 * sim->p->latency_ns + SOON_NS : LATE_KILL_NS;

	if (rand_gen_chance(&sim->rand, sim->p->destroy))
		mod_timer(&s->kill, loop_now(&sim->loop) + rand_gen_below(&sim->rand, within + 1));
}

/* ---- both: the established time ---- */

static void hang_up(struct sim_side *s)
{
	bool abort = !rand_gen_below(&s->sim->rand, 8);
	int err = abort ? iwcm_abort(s->id) : iwcm_disconnect(s->id);

	sim_rec(s->sim, s->serial)->aborted |= abort;
	if (err && err != -ENOTCONN)
		sim_violation(s->sim, "disconnecting gives %d", err);
}

/* One of the two hangs up, or both; the other has patience. */
static bool is_mine_to_end(const struct sim_side *s)
{
	u64 h = sim_mix(s->serial ^ s->sim->p->seed);

	return h % 4 == 3 || (h % 2 == 0) == s->active;
}

void sim_side_done(struct sim_side *s)
{
	if (is_mine_to_end(s) && !s->disconnected)
		act_in(s, rand_gen_below(&s->sim->rand, 4) ? 0 : SOON_NS, hang_up);
}

static void on_established(struct sim_side *s, const struct iwcm_event *ev)
{
	struct sim *sim = s->sim;
	bool wait = s->data && (s->data->deal.orderly || s->data->deal.wrong);

	s->up = true;
	look(view_of(s), SIM_ESTABLISHED, &ev->info);
	if (s->data)
		sim_data_up(s->data, &ev->info);
	if (is_mine_to_end(s) && !wait)
		act_in(s, rand_gen_below(&sim->rand, 4 * sim->p->latency_ns + SOON_NS), hang_up);
	else
		act_in(s, s->active ? PATIENCE_ACTIVE_NS : PATIENCE_PASSIVE_NS, hang_up);
}

static void on_disconnected(struct sim_side *s, const struct iwcm_event *ev)
{
	if (!s->up || s->disconnected)
		sim_violation(s->sim, "connection %llu: DISCONNECTED twice, or before ESTABLISHED", (unsigned long long)s->serial);
	s->disconnected = true;
	if (s->data)
		s->data->in_order = !ev->status;
}

static void on_closed(struct sim_side *s, const struct iwcm_event *ev)
{
	struct sim_view *v = view_of(s);

	if (s->up && !s->disconnected)
		sim_violation(s->sim, "connection %llu: CLOSED without DISCONNECTED", (unsigned long long)s->serial);
	if (s->active && !s->up)
		sim_violation(s->sim, "connection %llu: CLOSED, but never established", (unsigned long long)s->serial);
	if (s->data)
		s->data->closed = true;
	if (!s->up && v->outcome != SIM_REJECTED)
		look(v, SIM_FAILED, &ev->info);
	finish(s);
}

/* ---- active ---- */

static void random_options(struct sim *sim, struct iwcm_options *o)
{
	struct rand_gen *g = &sim->rand;

	iwcm_options_init(o);
	o->mpa_revision = rand_gen_below(g, 5) ? 2 : 1;
	o->fall_back = rand_gen_below(g, 4);
	o->peer_to_peer = rand_gen_below(g, 3);
	o->rtr = rand_gen_below(g, 3) ? IWCM_RTR_ALL : 1 + (unsigned int)rand_gen_below(g, 7);
	o->crc = rand_gen_below(g, 2);
	o->markers = !rand_gen_below(g, 4);
}

static unsigned int random_depth(struct sim *sim)
{
	return rand_gen_below(&sim->rand, 2) ? IWCM_MAX : (unsigned int)rand_gen_below(&sim->rand, 64);
}

static void random_target(struct sim *sim, const struct sim_host *to, struct sockaddr_storage *out)
{
	bool ipv4 = sim->p->ipv4 && (!sim->p->ipv6 || rand_gen_below(&sim->rand, 2));
	bool exact = ipv4 == sim->p->ipv4 && rand_gen_below(&sim->rand, 4) == 0;

	cm_addr_to_sockaddr(ipv4, ipv4 ? to->addr4 : to->addr6, (u16)(SIM_PORT + exact), out);
}

/* A call said no: no event comes. */
static void refuse(struct sim_side *s, const char *what, int err)
{
	view_of(s)->outcome = SIM_FAILED;
	sim_violation(s->sim, "connection %llu: %s gives %d", (unsigned long long)s->serial, what, err);
	finish(s);
}

static void begin(struct sim_side *s)
{
	struct sim *sim = s->sim;
	struct sim_rec *rec = sim_rec(sim, s->serial);
	struct sockaddr_storage to;
	struct iwcm_options o;
	int err;

	rec->from = (u16)s->host->index;
	rec->to = (u16)((s->host->index + 1 + rand_gen_below(&sim->rand, sim->p->nodes - 1)) % sim->p->nodes);
	random_target(sim, &sim->hosts[rec->to], &to);
	random_options(sim, &o);
	rec->rev = (u8)o.mpa_revision;
	rec->p2p = o.peer_to_peer;
	rec->fall_back = o.fall_back;
	err = iwcm_create_id(s->host->ctx, s, &s->id);
	if (!err)
		err = iwcm_set_options(s->id, &o);
	if (!err)
		err = iwcm_resolve(s->id, NULL, (const struct sockaddr *)&to);
	if (err)
		refuse(s, "resolving", err);
	else
		plan_kill(s);
}

/* Queues and memory, if this is a connection that moves data. False: the side has ended. */
static bool give_data(struct sim_side *s)
{
	if (!sim_has_data(s->sim, s->serial))
		return true;
	s->data = sim_data_open(s);
	if (!s->data)
		finish(s);
	return s->data;
}

static void on_resolved(struct sim_side *s)
{
	u8 pdata[PDATA_REQUEST_MAX];
	struct iwcm_conn_param p = {
		.private_data = pdata,
		.private_data_len = pdata_make(s->sim, s->serial, PDATA_REQUEST, pdata),
		.ird = random_depth(s->sim),
		.ord = random_depth(s->sim),
	};
	struct sockaddr_storage local, remote;
	int err;

	if (!give_data(s))
		return;
	err = iwcm_connect(s->id, &p);
	if (err) {
		refuse(s, "connecting", err);
		return;
	}
	s->waiting_for_reply = true;
	s->sim->connect_calls++;
	iwcm_local_addr(s->id, &local);
	iwcm_remote_addr(s->id, &remote);
	sim_rec(s->sim, s->serial)->ends = sim_ends(&local, &remote);
}

static void on_reply(struct sim_side *s, const struct iwcm_event *ev)
{
	static const u8 outcome[] = {
		[IWCM_EVENT_ESTABLISHED] = SIM_ESTABLISHED,
		[IWCM_EVENT_REJECTED] = SIM_REJECTED,
		[IWCM_EVENT_CONNECT_ERROR] = SIM_FAILED,
	};
	struct sim_rec *rec = sim_rec(s->sim, s->serial);

	if (!s->waiting_for_reply)
		sim_violation(s->sim, "connection %llu: %s without having asked", (unsigned long long)s->serial, iwcm_event_str(ev->type));
	s->waiting_for_reply = false;
	rec->rtr = (u8)ev->info.rtr_offered;
	look(view_of(s), outcome[ev->type], &ev->info);
	if (ev->type == IWCM_EVENT_CONNECT_ERROR) {
		s->sim->r->causes[(unsigned int)ev->info.cause % ARRAY_SIZE(s->sim->r->causes)]++;
		finish(s);
	} else if (ev->type == IWCM_EVENT_REJECTED) {
		/* Who destroys a request rejects it, without data. */
		if (ev->private_data_len || rec->rejected)
			pdata_check(s->sim, s->serial, PDATA_REJECT, ev);
		finish(s);
	} else {
		pdata_check(s->sim, s->serial, PDATA_ACCEPT, ev);
		on_established(s, ev);
	}
}

void sim_start(struct sim *sim, u64 within_ns)
{
	struct sim_side *s;

	if (sim->p->duration_ns && loop_now(&sim->loop) >= sim->p->duration_ns)
		sim->ending = true;
	if (sim->p->stop && *sim->p->stop)
		sim->ending = true;
	if (sim->ending || sim->r->started >= sim->p->connections)
		return;
	if (sim->r->started < UINT32_MAX && sim_rec(sim, sim->r->started))
		s = side_get(sim, &sim->hosts[rand_gen_below(&sim->rand, sim->p->nodes)], sim->r->started, true);
	else
		s = NULL;
	if (!s) {
		sim_violation(sim, "out of memory after %llu connections", (unsigned long long)sim->r->started);
		sim->ending = true;
		return;
	}
	sim->r->started++;
	act_in(s, rand_gen_below(&sim->rand, within_ns + 1), begin);
}

/* ---- passive ---- */

static void reject(struct sim_side *s)
{
	u8 pdata[PDATA_REQUEST_MAX];
	u32 len = pdata_make(s->sim, s->serial, PDATA_REJECT, pdata);
	int err;

	view_of(s)->outcome = SIM_REJECTED;
	sim_rec(s->sim, s->serial)->rejected = true;
	err = iwcm_reject(s->id, pdata, len);
	if (!err) {
		s->sim->reject_calls++;
	} else {
		view_of(s)->outcome = SIM_FAILED; /* the peer has gone meanwhile */
		sim_rec(s->sim, s->serial)->rejected = false;
	}
}

static void accept_it(struct sim_side *s)
{
	u8 pdata[PDATA_REQUEST_MAX];
	struct iwcm_conn_param p = {
		.private_data = pdata,
		.private_data_len = pdata_make(s->sim, s->serial, PDATA_ACCEPT, pdata),
		.ird = random_depth(s->sim),
		.ord = random_depth(s->sim),
	};
	int err;

	if (!give_data(s))
		return;
	err = iwcm_accept(s->id, &p);
	if (!err) {
		s->sim->accept_calls++;
		sim_rec(s->sim, s->serial)->accepted = true;
	} else if (err != -ECONNRESET) {
		sim_violation(s->sim, "connection %llu: accepting gives %d", (unsigned long long)s->serial, err);
	}
}

static void answer(struct sim_side *s)
{
	if (rand_gen_chance(&s->sim->rand, s->sim->p->reject))
		reject(s);
	else
		accept_it(s);
}

static u64 answer_delay(struct sim *sim)
{
	u64 dice = rand_gen_below(&sim->rand, 100);

	if (dice == 0)
		return rand_gen_below(&sim->rand, SLOW_ANSWER_NS);
	return dice < 70 ? 0 : rand_gen_below(&sim->rand, 2 * sim->p->latency_ns + SOON_NS);
}

/* A request that comes after its connection is over (a retransmission found its way late) is one all the same. */
static void on_request(struct sim_host *host, const struct iwcm_event *ev)
{
	struct sim *sim = host->sim;
	struct sim_side *s;
	u64 serial = 0, delay;

	if (ev->private_data_len >= sizeof(serial))
		memcpy(&serial, ev->private_data, sizeof(serial));
	if (ev->private_data_len < sizeof(serial) || serial >= sim->r->started) {
		sim_violation_on(sim, sim_ends(&ev->local, &ev->remote), "host %u: a request with foreign private data", host->index);
		iwcm_destroy_id(ev->id);
		return;
	}
	if (!pdata_check(sim, serial, PDATA_REQUEST, ev)) {
		iwcm_destroy_id(ev->id); /* which connection is it? */
		return;
	}
	s = side_get(sim, host, serial, false);
	if (!s) {
		iwcm_destroy_id(ev->id);
		return;
	}
	s->id = ev->id;
	iwcm_set_user(ev->id, s);
	sim_rec(sim, serial)->requests++;
	look(view_of(s), SIM_FAILED, &ev->info);
	plan_kill(s);
	delay = answer_delay(sim);
	if (delay)
		act_in(s, delay, answer);
	else
		answer(s);
}

/* ---- events ---- */

static void on_side_event(struct sim_side *s, const struct iwcm_event *ev)
{
	switch (ev->type) {
	case IWCM_EVENT_RESOLVED:
		on_resolved(s);
		break;
	case IWCM_EVENT_RESOLVE_ERROR:
		refuse(s, "RESOLVE_ERROR", ev->status);
		break;
	case IWCM_EVENT_ESTABLISHED:
		if (s->up)
			sim_violation(s->sim, "connection %llu: ESTABLISHED twice", (unsigned long long)s->serial);
		if (s->active)
			on_reply(s, ev);
		else
			on_established(s, ev);
		break;
	case IWCM_EVENT_REJECTED:
	case IWCM_EVENT_CONNECT_ERROR:
		on_reply(s, ev);
		break;
	case IWCM_EVENT_DISCONNECTED:
		on_disconnected(s, ev);
		break;
	case IWCM_EVENT_CLOSED:
		on_closed(s, ev);
		break;
	case IWCM_EVENT_CONNECT_REQUEST:
	case IWCM_EVENT_DEVICE_REMOVED:
	default:
		sim_violation(s->sim, "connection %llu: event %d", (unsigned long long)s->serial, ev->type);
	}
}

void sim_on_event(void *arg, const struct iwcm_event *ev)
{
	struct sim_host *host = arg;
	struct sim *sim = host->sim;
	struct sim_side *s = iwcm_user(ev->id);

	sim->r->events++;
	sim_digest(sim, loop_now(&sim->loop));
	sim_digest(sim, (u64)ev->type << 32 | (u32)ev->status);
	sim_digest(sim, (u64)host->index << 32 | (u32)ev->info.cause);
	if (ev->type == IWCM_EVENT_CONNECT_REQUEST) {
		on_request(host, ev);
		return;
	}
	sim_digest(sim, s ? s->serial : UINT64_MAX);
	if (!s || !s->alive || s->id != ev->id)
		sim_violation(sim, "host %u: %s of an id that was destroyed", host->index, iwcm_event_str(ev->type));
	else
		on_side_event(s, ev);
}
