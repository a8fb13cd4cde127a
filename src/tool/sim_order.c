// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: the order of what happens to an id: an automaton over the calls that its program made and the events that it got. Made from what iwcm.h
 * promises, not from what the code does.
 */
#include "tool/sim_world.h"

static const char *const state_names[] = {
	[SIM_LIFE_NONE] = "none", [SIM_LIFE_NEW] = "new", [SIM_LIFE_RESOLVING] = "resolving", [SIM_LIFE_RESOLVED] = "resolved",
	[SIM_LIFE_CONNECTING] = "connecting", [SIM_LIFE_ASKED] = "asked", [SIM_LIFE_ACCEPTED] = "accepted", [SIM_LIFE_REJECTED] = "rejected by itself",
	[SIM_LIFE_UP] = "established", [SIM_LIFE_DOWN] = "disconnected", [SIM_LIFE_OVER] = "over",
};
static_assert(ARRAY_SIZE(state_names) == SIM_LIVES, "a name per state");

static const char *const step_names[] = {
	[SIM_DID_RESOLVE] = "resolve", [SIM_DID_CONNECT] = "connect", [SIM_DID_ACCEPT] = "accept", [SIM_DID_REJECT] = "reject",
	[SIM_GOT_RESOLVED] = "RESOLVED", [SIM_GOT_RESOLVE_ERROR] = "RESOLVE_ERROR", [SIM_GOT_REQUEST] = "CONNECT_REQUEST",
	[SIM_GOT_ESTABLISHED] = "ESTABLISHED", [SIM_GOT_REJECTED] = "REJECTED", [SIM_GOT_CONNECT_ERROR] = "CONNECT_ERROR",
	[SIM_GOT_DISCONNECTED] = "DISCONNECTED", [SIM_GOT_CLOSED] = "CLOSED",
};
static_assert(ARRAY_SIZE(step_names) == SIM_STEPS, "a name per step");

/* SIM_LIFE_NONE: must not be. */
static const u8 next[SIM_LIVES][SIM_STEPS] = {
	[SIM_LIFE_NEW] = { [SIM_DID_RESOLVE] = SIM_LIFE_RESOLVING, [SIM_GOT_REQUEST] = SIM_LIFE_ASKED },
	[SIM_LIFE_RESOLVING] = { [SIM_GOT_RESOLVED] = SIM_LIFE_RESOLVED, [SIM_GOT_RESOLVE_ERROR] = SIM_LIFE_OVER },
	[SIM_LIFE_RESOLVED] = { [SIM_DID_CONNECT] = SIM_LIFE_CONNECTING },
	[SIM_LIFE_CONNECTING] = { [SIM_GOT_ESTABLISHED] = SIM_LIFE_UP, [SIM_GOT_REJECTED] = SIM_LIFE_OVER, [SIM_GOT_CONNECT_ERROR] = SIM_LIFE_OVER },
	[SIM_LIFE_ASKED] = { [SIM_DID_ACCEPT] = SIM_LIFE_ACCEPTED, [SIM_DID_REJECT] = SIM_LIFE_REJECTED, [SIM_GOT_CLOSED] = SIM_LIFE_OVER },
	[SIM_LIFE_ACCEPTED] = { [SIM_GOT_ESTABLISHED] = SIM_LIFE_UP, [SIM_GOT_CLOSED] = SIM_LIFE_OVER },
	[SIM_LIFE_REJECTED] = { [SIM_GOT_CLOSED] = SIM_LIFE_OVER },
	[SIM_LIFE_UP] = { [SIM_GOT_DISCONNECTED] = SIM_LIFE_DOWN },
	[SIM_LIFE_DOWN] = { [SIM_GOT_CLOSED] = SIM_LIFE_OVER },
};

static enum sim_step step_of(enum iwcm_event_type type)
{
	switch (type) {
	case IWCM_EVENT_RESOLVED: return SIM_GOT_RESOLVED;
	case IWCM_EVENT_RESOLVE_ERROR: return SIM_GOT_RESOLVE_ERROR;
	case IWCM_EVENT_CONNECT_REQUEST: return SIM_GOT_REQUEST;
	case IWCM_EVENT_ESTABLISHED: return SIM_GOT_ESTABLISHED;
	case IWCM_EVENT_REJECTED: return SIM_GOT_REJECTED;
	case IWCM_EVENT_CONNECT_ERROR: return SIM_GOT_CONNECT_ERROR;
	case IWCM_EVENT_DISCONNECTED: return SIM_GOT_DISCONNECTED;
	case IWCM_EVENT_CLOSED: return SIM_GOT_CLOSED;
	default: return SIM_STEPS; /* no device goes away here */
	}
}

bool sim_order_did(struct sim_side *s, enum sim_step step)
{
	enum sim_life to = step < SIM_STEPS ? next[s->life][step] : SIM_LIFE_NONE;

	if (to == SIM_LIFE_NONE) {
		sim_violation(s->sim, "order: connection %llu, %s side: %s while it is %s", (unsigned long long)s->serial, s->active ? "active" : "passive",
			      step < SIM_STEPS ? step_names[step] : "DEVICE_REMOVED", state_names[s->life]);
		return false;
	}
	s->life = to;
	return true;
}

bool sim_order_got(struct sim_side *s, enum iwcm_event_type type)
{
	return sim_order_did(s, step_of(type));
}
