// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The library under starvation: NICs come, listen, connect, accept, move data, reject, terminate, abort, disconnect, go; over loopback with the NIC thread, and on
 * a wire with the CM of both generations; and interfaces that come and go.
 */
#include <stdio.h>
#include <string.h>
#include "starve.h"
#include "world.h"

static bool both_ended(void *arg)
{
	struct world *w = arg;

	return world_ended(&w->s[CLIENT]) && world_ended(&w->s[SERVER]);
}

/* A connection from listen to ESTABLISHED, with queues at both ends. */
static int establish(struct world *w, const char *on, const char *to)
{
	u16 port = 7471;
	int err;

	if (w->host)
		port = 0;
	err = world_listen(w, on, &port);
	if (!err)
		err = world_resolve(w, to, port);
	if (!err)
		err = data_open(&w->s[CLIENT], false);
	if (!err)
		err = world_connect(w, w->s[CLIENT].data.qp);
	if (!err)
		err = data_open(&w->s[SERVER], true);
	return err ? err : world_accept(w, w->s[SERVER].data.qp);
}

static int finish(struct world *w, int err)
{
	int rc = world_take_down(w);

	return rc == -ETIME || !err ? rc : err;
}

/* All kinds of messages, with CRC, then an orderly end. */
static int data_connection(struct world *w, const char *on, const char *to)
{
	int err = establish(w, on, to);

	if (!err)
		err = data_run(w);
	if (!err)
		err = world_said("disconnect", iwcm_disconnect(w->s[CLIENT].id));
	if (!err)
		err = world_wait(w, both_ended, w, "both ends of a connection that is closed");
	return finish(w, err);
}

static int terminated_connection(struct world *w, const char *on, const char *to)
{
	int err = establish(w, on, to);

	if (!err)
		err = data_terminate(w);
	return finish(w, err);
}

static int aborted_connection(struct world *w, const char *on, const char *to)
{
	int err = establish(w, on, to);

	if (!err)
		err = world_said("abort", iwcm_abort(w->s[SERVER].id));
	if (!err)
		err = world_wait(w, both_ended, w, "both ends of a connection that is reset");
	return finish(w, err);
}

static int rejected_connection(struct world *w, const char *on, const char *to)
{
	u16 port = w->host ? 0 : 7471;
	int err = world_listen(w, on, &port);

	if (!err)
		err = world_resolve(w, to, port);
	if (!err)
		err = world_connect(w, NULL);
	if (!err)
		err = world_said("reject", iwcm_reject(w->s[SERVER].id, "no", 2));
	if (!err)
		err = world_wait(w, both_ended, w, "both ends of a request that is rejected");
	if (!err && !SEEN(&w->s[CLIENT], REJECTED))
		err = world_said("not REJECTED", -EPROTO);
	return finish(w, err);
}

static int use_all(struct world *w)
{
	const char *v4 = w->host ? "127.0.0.1" : "10.0.0.2", *v6 = w->host ? "::1" : "fd00::2";
	int err = data_connection(w, v4, v4);

	w->options.crc = false;
	if (!err)
		err = data_connection(w, "::", v6);
	w->options.markers = true;
	if (!err)
		err = terminated_connection(w, "0.0.0.0", v4);
	w->options.mpa_revision = 1;
	w->options.markers = false;
	if (!err)
		err = aborted_connection(w, v4, v4);
	return err ? err : rejected_connection(w, v4, v4);
}

static int run_world(bool host, u8 gen)
{
	static struct world w; /* too large for a stack */
	int err = world_open(&w, host, "lo", gen);

	if (!err)
		err = use_all(&w);
	world_close(&w);
	return err;
}

static int run_host(void) { return run_world(true, IRDMA_GEN_2); }
static int run_wire_1(void) { return run_world(false, IRDMA_GEN_1); }
static int run_wire_2(void) { return run_world(false, IRDMA_GEN_2); }

static const struct starve_scenario scenarios[] = {
	{ "host", run_host, 120 },
	{ "host-ifaces", ifaces_run, 200, ifaces_missing },
	{ "wire-gen1", run_wire_1, 120 },
	{ "wire-gen2", run_wire_2, 120 },
};

int main(int argc, char **argv)
{
	return starve_main(argc, argv, scenarios, ARRAY_SIZE(scenarios));
}
