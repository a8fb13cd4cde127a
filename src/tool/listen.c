// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: `uwarp listen`.
 *
 * An id per address to listen on; each request is answered at once. With --count the listeners go when the last of these
 * requests has its outcome; peers that come in between are rejected.
 */
#include <errno.h>
#include <string.h>
#include "tool/session.h"

static struct {
	struct iwcm_id *ids[8];
	size_t n;
	u64 taken;               /* requests */
	u64 undecided;           /* of these: no outcome yet */
	bool stopped;
} run;

static void close_listeners(void)
{
	while (run.n)
		iwcm_destroy_id(run.ids[--run.n]);
}

/* ---- opening ---- */

static int open_one(struct tool_session *s, const struct sockaddr_storage *at, struct iwcm_id **out)
{
	int err = iwcm_create_id(s->ctx, NULL, out);

	if (err)
		return err;
	err = iwcm_set_options(*out, &s->o->mpa);
	if (!err)
		err = iwcm_bind(*out, (const struct sockaddr *)at);
	if (!err)
		err = iwcm_listen(*out, s->o->backlog);
	if (err)
		iwcm_destroy_id(*out);
	return err;
}

/* With several addresses and port 0 the first one's choice holds for all. */
static int open_listeners(struct tool_session *s, struct tool_endpoint *ep)
{
	struct sockaddr_storage at;
	char buf[TOOL_ADDRSTR];
	int err = 0, first_err = 0;
	size_t i;

	for (i = 0; i < ep->n; i++) {
		at = ep->addr[i];
		if (run.n && !tool_sockaddr_port(&at) && !iwcm_local_addr(run.ids[0], &ep->addr[0]))
			tool_sockaddr_set_port(&at, tool_sockaddr_port(&ep->addr[0]));
		err = open_one(s, &at, &run.ids[run.n]);
		if (!err) {
			iwcm_local_addr(run.ids[run.n++], &at);
			tool_report_listening(s, &at);
			continue;
		}
		first_err = first_err ? first_err : err;
		/* A host without IPv6, say: what there is will do. */
		if (err != -EAFNOSUPPORT && err != -EADDRNOTAVAIL && err != -ENODEV)
			break;
	}
	if (run.n && (i == ep->n))
		return 0;
	tool_error("%s: cannot listen: %s", tool_sockaddr_str(&at, buf), strerror(-(err ? err : first_err)));
	return TOOL_LOCAL;
}

/* ---- requests ---- */

static void decided(struct tool_session *s, struct tool_conn *c, enum tool_status status, int cause)
{
	if (!c->counted)
		run.undecided--;
	tool_session_count(s, c, status, cause);
}

static void reject(struct tool_session *s, struct tool_conn *c)
{
	int err = iwcm_reject(c->id, s->o->pdata.data, s->o->pdata.len);

	if (!err)
		decided(s, c, TOOL_REJECTED, CM_CAUSE_NONE);
	/* Else the peer is gone; CLOSED follows. */
}

static void accept_request(struct tool_session *s, struct tool_conn *c, const struct iwcm_event *ev)
{
	size_t room = MPA_MAX_PRIV_DATA - (ev->info.mpa_revision >= MPA_REV_2 ? sizeof(struct mpa_v2_data) : 0);
	const struct iwcm_conn_param p = {
		.private_data = s->o->pdata.data,
		.private_data_len = min(s->o->pdata.len, room),
		.ird = s->o->ird,
		.ord = s->o->ord,
	};
	int err = iwcm_accept(c->id, &p);

	if (err != -EINVAL && err != -ENOMEM && err != -ENOSPC)
		return; /* ESTABLISHED or CLOSED follows */
	decided(s, c, TOOL_LOCAL, CM_CAUSE_NO_RESOURCES);
	tool_report_failure(s, c, TOOL_LOCAL, CM_CAUSE_NO_RESOURCES, err, NULL);
	tool_conn_free(s, c);
}

static void on_request(struct tool_session *s, const struct iwcm_event *ev)
{
	struct tool_conn *c = NULL;

	if (!run.stopped && (!s->o->count || run.taken < s->o->count))
		c = tool_conn_new(s, ev->id, false);
	if (!c) {
		iwcm_destroy_id(ev->id); /* rejects it */
		return;
	}
	run.taken++;
	run.undecided++;
	c->local = ev->local;
	c->remote = ev->remote;
	iwcm_set_user(ev->id, c);
	tool_conn_find_rec(s, c);
	if (c->rec)
		c->begun_ns = c->rec->first_ns;
	tool_report_request(s, c, ev);
	if (s->o->reject)
		reject(s, c);
	else
		accept_request(s, c, ev);
}

/* CLOSED. What was neither established nor rejected has failed. */
static void on_closed(struct tool_session *s, struct tool_conn *c, const struct iwcm_event *ev)
{
	int cause = ev->info.cause;
	enum tool_status status;

	if (!c->counted) {
		status = tool_status_of(ev->type, cause, ev->status);
		decided(s, c, status, cause);
		tool_report_failure(s, c, status, cause, ev->status, NULL);
	} else if (!c->up) {
		tool_report_rejected(s, c);
	}
	tool_conn_free(s, c);
}

static void on_event(struct tool_session *s, const struct iwcm_event *ev)
{
	struct tool_conn *c = iwcm_user(ev->id);

	switch (ev->type) {
	case IWCM_EVENT_CONNECT_REQUEST:
		on_request(s, ev);
		break;
	case IWCM_EVENT_ESTABLISHED:
		decided(s, c, TOOL_OK, 0);
		tool_report_established(s, c, ev);
		tool_conn_up(s, c, s->o->hold_s);
		break;
	case IWCM_EVENT_DISCONNECTED:
		if (c->up)
			tool_report_end(s, c, ev);
		break;
	case IWCM_EVENT_CLOSED:
		on_closed(s, c, ev);
		break;
	case IWCM_EVENT_DEVICE_REMOVED:
		tool_error("the interface that was listened on is gone");
		s->ops->stop(s);
		break;
	case IWCM_EVENT_RESOLVED:
	case IWCM_EVENT_RESOLVE_ERROR:
	case IWCM_EVENT_REJECTED:
	case IWCM_EVENT_CONNECT_ERROR:
	default:
		break;
	}
}

static u64 on_tick(struct tool_session *s, u64 now_ns)
{
	if (s->o->count && run.taken >= s->o->count && !run.undecided)
		close_listeners();
	return UINT64_MAX;
}

static bool is_done(struct tool_session *s)
{
	return TAILQ_EMPTY(&s->conns) && (run.stopped || (s->o->count && run.taken >= s->o->count));
}

/* What has been accepted comes up, or fails, in a moment. */
static void on_stop(struct tool_session *s)
{
	run.stopped = true;
	close_listeners();
}

static const struct tool_session_ops ops = { on_event, on_tick, is_done, on_stop };

/* Without --count one good connection will do, else all must be. With --reject a rejected one is a good one. */
static int exit_status(const struct tool_session *s)
{
	const u64 *by = s->tally.by_status;
	u64 good = by[s->o->reject ? TOOL_REJECTED : TOOL_OK];
	int worst = tool_session_worst(s), i;

	if (s->o->count ? good == s->o->count : good > 0)
		return TOOL_OK;
	if (worst > (s->o->reject ? TOOL_REJECTED : TOOL_OK))
		return worst;
	if (s->tally.strays)
		for (i = 1; i < CM_CAUSES; i++)
			if (s->tally.stray_causes[i])
				worst = max(worst, (int)tool_status_of(IWCM_EVENT_CONNECT_ERROR, i, 0));
	if (worst > TOOL_REJECTED)
		return worst;
	return s->end == TOOL_END_SIGNAL ? TOOL_LOCAL : TOOL_TIMED_OUT;
}

int tool_listen(const struct tool_options *o)
{
	struct tool_endpoint ep;
	struct tool_session s;
	int ret = tool_endpoint_parse(o->where, true, o->family, &ep);

	if (ret)
		return ret;
	ret = tool_session_open(&s, o, &ops, o->count <= 1);
	if (!ret)
		ret = open_listeners(&s, &ep);
	if (!ret)
		tool_session_run(&s);
	if (s.ctx)
		close_listeners();
	return tool_session_close(&s, ret ? ret : exit_status(&s));
}
