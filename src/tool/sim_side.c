// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: what the programs on the hosts of a simulation do.
 *
 * The active side: pick two hosts and options, resolve, connect; when established, hang up at once, soon or never. The passive side: take a while to answer, or too
 * long; accept or reject; the same from there on. Either may be given up at a random moment, or as soon as it gets to a state picked at random, also from inside the
 * handler of the event that brings it there; and some call the same thing twice. What either sends as private data follows from the connection's serial
 * number, so the other can check every byte.
 *
 * Frames get lost, so a side may stay established while the other one has failed, with nothing to tell it. Like programs of
 * the real world each has a time limit for that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tool/sim_data.h"

#define PATIENCE_ACTIVE_NS (20 * NSEC_PER_SEC)
#define PATIENCE_PASSIVE_NS (40 * NSEC_PER_SEC)
#define START_SPREAD_NS (20 * NSEC_PER_MSEC)
#define SLOW_ANSWER_NS (15 * NSEC_PER_SEC) /* above what the active side's CM waits */
#define LATE_KILL_NS (3 * NSEC_PER_SEC)

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
	s->up = s->disconnected = false;
	s->life = SIM_LIFE_NEW;
	s->kill_in = SIM_LIFE_NONE;
	sim_chance(sim, serial, active ? SIM_SALT_ACTIVE : SIM_SALT_PASSIVE, &s->rand);
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

/* The end of a side, which makes room for the next one. */
static void finish(struct sim_side *s)
{
	struct sim *sim = s->sim;

	timer_del(&s->act);
	timer_del(&s->kill);
	sim_note_troubles(sim, sim_rec(sim, s->serial));
	destroy_id(s);
	s->alive = false;
	sim->alive--;
	TAILQ_INSERT_TAIL(&sim->all_free, s, entry);
	if (s->active) {
		sim_rec(sim, s->serial)->over = true;
		if (++sim->over % 1024 == 0 && sim->p->progress)
			sim->p->progress(sim->p->progress_arg, sim->over, loop_now(&sim->loop));
	}
	sim_start_more(sim); /* perhaps with this very side */
}

static void give_up(struct sim_side *s)
{
	if (!s->up)
		view_of(s)->outcome = SIM_DESTROYED;
	finish(s);
}

static void on_kill(struct timer_list *t)
{
	give_up(container_of(t, struct sim_side, kill));
}

/* True: it is no more. */
static bool is_given_up(struct sim_side *s)
{
	if (!s->alive || s->life != s->kill_in)
		return !s->alive;
	give_up(s);
	return true;
}

static void plan_kill(struct sim_side *s)
{
	struct sim *sim = s->sim;
	u64 within = rand_gen_chance(&s->rand, 0.7) ? 6 * sim->p->latency_ns + SIM_SOON_NS : LATE_KILL_NS;

	if (!rand_gen_chance(&s->rand, sim->p->destroy))
		return;
	sim_rec(sim, s->serial)->given_up = true;
	if (rand_gen_below(&s->rand, 2))
		s->kill_in = SIM_LIFE_RESOLVING + (enum sim_life)rand_gen_below(&s->rand, SIM_LIFE_OVER - SIM_LIFE_RESOLVING);
	else
		mod_timer(&s->kill, loop_now(&sim->loop) + rand_gen_below(&s->rand, within + 1));
}

/* Some call the same thing twice; no good comes of it, and no harm. */
static bool calls_twice(struct sim_side *s)
{
	return !rand_gen_below(&s->rand, 32);
}

static void want_refused(struct sim_side *s, const char *what, int err)
{
	if (err >= 0)
		sim_violation(s->sim, "connection %llu: %s a second time gives %d", (unsigned long long)s->serial, what, err);
}

/* ---- both: the established time ---- */

static void hang_up(struct sim_side *s)
{
	bool abort = !rand_gen_below(&s->rand, 8);
	int err = abort ? iwcm_abort(s->id) : iwcm_disconnect(s->id);

	sim_rec(s->sim, s->serial)->aborted |= abort;
	if (err && err != -ENOTCONN)
		sim_violation(s->sim, "disconnecting gives %d", err);
	if (calls_twice(s))
		iwcm_disconnect(s->id); /* 0, or it is over already */
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
		act_in(s, rand_gen_below(&s->rand, 4) ? 0 : SIM_SOON_NS, hang_up);
}

static void on_established(struct sim_side *s, const struct iwcm_event *ev)
{
	u64 latency = s->sim->p->latency_ns;
	bool wait = s->data && (s->data->deal.orderly || s->data->deal.wrong);

	s->up = true;
	look(view_of(s), SIM_ESTABLISHED, &ev->info);
	if (s->data)
		sim_data_up(s->data, &ev->info);
	if (is_mine_to_end(s) && !wait)
		act_in(s, rand_gen_below(&s->rand, 4 * latency + SIM_SOON_NS), hang_up);
	else
		act_in(s, s->active ? PATIENCE_ACTIVE_NS : PATIENCE_PASSIVE_NS, hang_up);
}

static void on_disconnected(struct sim_side *s, const struct iwcm_event *ev)
{
	s->disconnected = true;
	if (s->data)
		s->data->in_order = !ev->status;
}

static void on_closed(struct sim_side *s, const struct iwcm_event *ev)
{
	struct sim_view *v = view_of(s);

	if (s->data)
		s->data->closed = true;
	if (!s->up && v->outcome != SIM_REJECTED)
		look(v, SIM_FAILED, &ev->info);
	finish(s);
}

/* ---- active ---- */

static void random_options(struct rand_gen *g, struct iwcm_options *o)
{
	iwcm_options_init(o);
	o->mpa_revision = rand_gen_below(g, 5) ? 2 : 1;
	o->fall_back = rand_gen_below(g, 4);
	o->peer_to_peer = rand_gen_below(g, 3);
	o->rtr = rand_gen_below(g, 3) ? IWCM_RTR_ALL : 1 + (unsigned int)rand_gen_below(g, 7);
	o->crc = rand_gen_below(g, 2);
	o->markers = !rand_gen_below(g, 4);
}

static unsigned int random_depth(struct rand_gen *g)
{
	return rand_gen_below(g, 2) ? IWCM_MAX : (unsigned int)rand_gen_below(g, 64);
}

static void random_target(struct sim_side *s, const struct sim_host *to, struct sockaddr_storage *out)
{
	const struct tool_sim_params *p = s->sim->p;
	bool ipv4 = p->ipv4 && (!p->ipv6 || rand_gen_below(&s->rand, 2));
	bool exact = ipv4 == p->ipv4 && rand_gen_below(&s->rand, 4) == 0;

	cm_addr_to_sockaddr(ipv4, ipv4 ? to->addr4 : to->addr6, (u16)(SIM_PORT + exact), out);
}

/* A call said no: no event comes. In trouble it may. */
static void refuse(struct sim_side *s, const char *what, int err)
{
	struct sim_rec *rec = sim_rec(s->sim, s->serial);

	view_of(s)->outcome = SIM_FAILED;
	sim_note_troubles(s->sim, rec);
	if (!rec->disturbed || err == -EINVAL || err == -EISCONN)
		sim_violation(s->sim, "connection %llu: %s gives %d", (unsigned long long)s->serial, what, err);
	finish(s);
}

static int resolve(struct sim_side *s, const struct iwcm_options *o, const struct sockaddr_storage *to)
{
	int err = iwcm_create_id(s->host->ctx, s, &s->id);

	if (!err)
		err = iwcm_set_options(s->id, o);
	if (!err)
		err = iwcm_resolve(s->id, NULL, (const struct sockaddr *)to);
	if (!err && calls_twice(s))
		want_refused(s, "resolving", iwcm_resolve(s->id, NULL, (const struct sockaddr *)to));
	return err;
}

static void begin(struct sim_side *s)
{
	struct sim *sim = s->sim;
	struct sim_rec *rec = sim_rec(sim, s->serial);
	struct sockaddr_storage to;
	struct iwcm_options o;
	int err;

	rec->from = (u16)s->host->index;
	rec->to = (u16)((s->host->index + 1 + rand_gen_below(&s->rand, sim->p->nodes - 1)) % sim->p->nodes);
	random_target(s, &sim->hosts[rec->to], &to);
	random_options(&s->rand, &o);
	rec->rev = (u8)o.mpa_revision;
	rec->p2p = o.peer_to_peer;
	rec->fall_back = o.fall_back;
	sim_trouble_plan(sim, s->serial);
	err = resolve(s, &o, &to);
	if (err) {
		refuse(s, "resolving", err);
		return;
	}
	sim_order_did(s, SIM_DID_RESOLVE);
	plan_kill(s);
	is_given_up(s);
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
	u8 pdata[SIM_PDATA_MAX];
	struct iwcm_conn_param p = {
		.private_data = pdata,
		.private_data_len = sim_pdata_make(s->sim, s->serial, SIM_PDATA_REQUEST, pdata),
		.ird = random_depth(&s->rand),
		.ord = random_depth(&s->rand),
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
	sim_order_did(s, SIM_DID_CONNECT);
	s->sim->connect_calls++;
	iwcm_local_addr(s->id, &local);
	iwcm_remote_addr(s->id, &remote);
	sim_rec(s->sim, s->serial)->ends = sim_ends(&local, &remote);
	sim_attack_plan(s->sim, s->serial, &local, &remote);
	if (calls_twice(s))
		want_refused(s, "connecting", iwcm_connect(s->id, &p));
}

static void on_reply(struct sim_side *s, const struct iwcm_event *ev)
{
	static const u8 outcome[] = {
		[IWCM_EVENT_ESTABLISHED] = SIM_ESTABLISHED,
		[IWCM_EVENT_REJECTED] = SIM_REJECTED,
		[IWCM_EVENT_CONNECT_ERROR] = SIM_FAILED,
	};
	struct sim_rec *rec = sim_rec(s->sim, s->serial);

	rec->rtr = (u8)ev->info.rtr_offered;
	look(view_of(s), outcome[ev->type], &ev->info);
	if (ev->type == IWCM_EVENT_CONNECT_ERROR) {
		s->sim->r->causes[(unsigned int)ev->info.cause % ARRAY_SIZE(s->sim->r->causes)]++;
		finish(s);
	} else if (ev->type == IWCM_EVENT_REJECTED) {
		/* Who destroys a request rejects it, without data. */
		if (ev->private_data_len || rec->rejected)
			sim_pdata_check(s->sim, s->serial, SIM_PDATA_REJECT, ev);
		finish(s);
	} else {
		sim_pdata_check(s->sim, s->serial, SIM_PDATA_ACCEPT, ev);
		on_established(s, ev);
	}
}

bool sim_side_begin(struct sim *sim, u64 serial)
{
	struct sim_side *s = NULL;

	if (sim_rec(sim, serial))
		s = side_get(sim, &sim->hosts[sim_first_host(sim, serial)], serial, true);
	if (!s)
		return false;
	sim_rec(sim, serial)->begun = true;
	act_in(s, rand_gen_below(&s->rand, START_SPREAD_NS), begin);
	return true;
}

/* ---- passive ---- */

static void reject(struct sim_side *s)
{
	u8 pdata[SIM_PDATA_MAX];
	u32 len = sim_pdata_make(s->sim, s->serial, SIM_PDATA_REJECT, pdata);
	int err;

	view_of(s)->outcome = SIM_REJECTED;
	sim_rec(s->sim, s->serial)->rejected = true;
	err = iwcm_reject(s->id, pdata, len);
	if (!err) {
		s->sim->reject_calls++;
		sim_order_did(s, SIM_DID_REJECT);
		if (calls_twice(s))
			want_refused(s, "rejecting", iwcm_reject(s->id, pdata, len));
	} else {
		view_of(s)->outcome = SIM_FAILED; /* the peer has gone meanwhile */
		sim_rec(s->sim, s->serial)->rejected = false;
	}
}

static void accept_it(struct sim_side *s)
{
	u8 pdata[SIM_PDATA_MAX];
	struct iwcm_conn_param p = {
		.private_data = pdata,
		.private_data_len = sim_pdata_make(s->sim, s->serial, SIM_PDATA_ACCEPT, pdata),
		.ird = random_depth(&s->rand),
		.ord = random_depth(&s->rand),
	};
	int err;

	if (!give_data(s))
		return;
	err = iwcm_accept(s->id, &p);
	if (!err) {
		s->sim->accept_calls++;
		sim_rec(s->sim, s->serial)->accepted = true;
		sim_order_did(s, SIM_DID_ACCEPT);
		if (calls_twice(s))
			want_refused(s, "accepting", iwcm_accept(s->id, &p));
	} else if (err != -ECONNRESET && !(err == -EINVAL && s->host->restarts)) { /* its listener has gone */
		sim_violation(s->sim, "connection %llu: accepting gives %d", (unsigned long long)s->serial, err);
	}
}

static void answer(struct sim_side *s)
{
	if (rand_gen_chance(&s->rand, s->sim->p->reject))
		reject(s);
	else
		accept_it(s);
	is_given_up(s);
}

static u64 answer_delay(struct sim_side *s)
{
	if (rand_gen_chance(&s->rand, s->sim->p->late))
		return rand_gen_below(&s->rand, SLOW_ANSWER_NS);
	return rand_gen_below(&s->rand, 10) < 7 ? 0 : rand_gen_below(&s->rand, 2 * s->sim->p->latency_ns + SIM_SOON_NS);
}

/* A request that comes after its connection is over (a retransmission found its way late) is one all the same. */
static void on_request(struct sim_host *host, const struct iwcm_event *ev)
{
	struct sim *sim = host->sim;
	struct sim_side *s;
	u64 serial = 0, delay;

	if (ev->private_data_len >= sizeof(serial))
		memcpy(&serial, ev->private_data, sizeof(serial));
	if (ev->private_data_len < sizeof(serial) || serial >= sim->size_recs || !sim_rec(sim, serial)->begun) {
		sim_violation_on(sim, sim_ends(&ev->local, &ev->remote), "host %u: a request with foreign private data", host->index);
		iwcm_destroy_id(ev->id);
		return;
	}
	if (!sim_pdata_check(sim, serial, SIM_PDATA_REQUEST, ev)) {
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
	sim_order_got(s, IWCM_EVENT_CONNECT_REQUEST);
	plan_kill(s);
	if (is_given_up(s))
		return;
	delay = answer_delay(s);
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
	default:
		break; /* sim_order_got() has said so */
	}
}

void sim_on_event(void *arg, const struct iwcm_event *ev)
{
	struct sim_host *host = arg;
	struct sim *sim = host->sim;
	struct sim_side *s = iwcm_user(ev->id);

	sim->r->events++;
	sim_watch_progress(sim);
	sim_watch_touch(host);
	sim_digest(sim, loop_now(&sim->loop));
	sim_digest(sim, (u64)ev->type << 32 | (u32)ev->status);
	sim_digest(sim, (u64)host->index << 32 | (u32)ev->info.cause);
	if (ev->type == IWCM_EVENT_CONNECT_REQUEST) {
		on_request(host, ev);
		return;
	}
	sim_digest(sim, s ? s->serial : UINT64_MAX);
	if (!s || !s->alive || s->id != ev->id) {
		sim_violation(sim, "order: host %u: %s of an id that was destroyed", host->index, iwcm_event_str(ev->type));
		return;
	}
	if (sim_order_got(s, ev->type) && !is_given_up(s))
		on_side_event(s, ev);
	is_given_up(s);
}
