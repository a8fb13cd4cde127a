// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: the process. The context with its NICs is opened by the first call that needs one, so that a program without RDMA pays for the
 * loading of this library and nothing else. It stays until the process ends; a forked child takes its copy up again at its own first call.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shim/options.h"
#include "shim/stats.h"
#include "shim/verbs_internal.h"

#define CLOSE_NS NSEC_PER_SEC /* a program that ends has its connections' last bytes wait for so long */

static struct {
	pthread_mutex_t lock;
	struct iwcm_ctx *ctx;
	bool asleep;               /* forked: the NIC thread is yet to be made */
	pid_t pid;                 /* of the process whose NIC thread runs */
	struct port_capture *capture;
	struct net_watcher watcher;
} shim = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- the context ---- */

/* Loop thread. */
static void net_event(struct net_watcher *w, const struct net_event *e)
{
	bool up = e->type == NET_IFACE_UP;

	if (up || e->type == NET_IFACE_DOWN)
		shim_device_port(e->iface.ifindex, up);
}

static void watch_net(struct irdma_device *iwdev, void *arg)
{
	struct net **net = arg;

	*net = iwdev->net;
}

/* "%p" is the pid; a name without is the first process's, and the others' (@other) with the pid behind it. */
static void capture_name(char *buf, size_t size, bool other)
{
	const char *name = shim_options()->pcap, *p = strstr(name, "%p");

	if (p)
		snprintf(buf, size, "%.*s%d%s", (int)(p - name), name, getpid(), p + 2);
	else if (other && strcmp(name, "-") != 0)
		snprintf(buf, size, "%s.%d", name, getpid());
	else
		snprintf(buf, size, "%s", name);
}

static void open_capture(struct iwcm_ctx *ctx)
{
	char err[256] = "", name[PATH_MAX + 16];
	int rc;

	if (!*shim_options()->pcap)
		return;
	capture_name(name, sizeof(name), false);
	rc = port_capture_open(name, &shim.capture, err, sizeof(err));
	if (rc == -EBUSY) {
		capture_name(name, sizeof(name), true);
		rc = port_capture_open(name, &shim.capture, err, sizeof(err));
	}
	if (rc)
		log_error("shim", "no capture: %s", err);
	else
		iwcm_set_observers(ctx, shim.capture, NULL, NULL, NULL);
}

/* The forked child's own. */
static void reopen_capture(void)
{
	char name[PATH_MAX + 16];
	int rc;

	if (!shim.capture)
		return;
	capture_name(name, sizeof(name), true);
	rc = port_capture_reopen(shim.capture, name);
	if (rc)
		log_error("shim", "no capture: %s: %s", name, strerror(-rc));
}

static int open_ctx(void)
{
	const struct shim_options *o = shim_options();
	struct iwcm_ctx *ctx;
	struct net *net = NULL;
	int err = iwcm_open(*o->ifaces ? o->ifaces : NULL, &ctx);

	if (err) {
		if (err == -ENODEV && *o->ifaces)
			log_error("shim", "no devices: %s=%s: no such interface, or not a list of them", SHIM_ENV_IFACES, o->ifaces);
		else
			log_error("shim", "no devices: %s", strerror(-err));
		return err;
	}
	rnic_bind_ops = &shim_bind_ops;
	iwcm_set_handler(ctx, shim_cmdev_event, shim_cmdev_events_done, NULL);
	open_capture(ctx);
	iwcm_watch_devices(ctx, shim_device_changed, NULL);
	iwcm_for_each_device(ctx, watch_net, &net);
	shim.watcher.event = net_event;
	if (net)
		net_watch(net, &shim.watcher);
	shim.pid = getpid();
	__atomic_store_n(&shim.ctx, ctx, __ATOMIC_RELEASE);
	shim_stats_start(ctx);
	return 0;
}

static int wake_up(void)
{
	int err;

	reopen_capture(); /* before there are frames */
	err = iwcm_fork_resume(shim.ctx);
	if (err)
		return err;
	shim.pid = getpid();
	__atomic_store_n(&shim.asleep, false, __ATOMIC_RELEASE);
	shim_stats_start(shim.ctx);
	return 0;
}

struct iwcm_ctx *shim_ctx(void)
{
	struct iwcm_ctx *ctx = __atomic_load_n(&shim.ctx, __ATOMIC_ACQUIRE);
	int err = 0;

	if (ctx && !__atomic_load_n(&shim.asleep, __ATOMIC_ACQUIRE))
		return ctx;
	pthread_mutex_lock(&shim.lock);
	if (!shim.ctx)
		err = open_ctx();
	else if (shim.asleep)
		err = wake_up();
	ctx = shim.ctx;
	pthread_mutex_unlock(&shim.lock);
	return err ? shim_null(err) : ctx;
}

/* ---- fork ---- */

/*
 * The NIC thread stops between two turns first (it may want the locks below), then nobody changes devices and queues. What the capture has
 * buffered is written, or the child would write it once more.
 */
void shim_core_fork_prepare(void)
{
	pthread_mutex_lock(&shim.lock);
	if (shim.ctx)
		iwcm_fork_prepare(shim.ctx);
	shim_verbs_fork_prepare();
	shim_devices_lock();
	if (shim.capture)
		port_capture_lock(shim.capture);
}

void shim_core_fork_parent(void)
{
	if (shim.capture)
		port_capture_unlock(shim.capture);
	shim_devices_unlock();
	shim_verbs_fork_done();
	if (shim.ctx)
		iwcm_fork_parent(shim.ctx);
	pthread_mutex_unlock(&shim.lock);
}

void shim_core_fork_child(void)
{
	shim_stats_fork_child();
	if (shim.capture)
		port_capture_unlock(shim.capture);
	shim_devices_unlock();
	shim_verbs_fork_done();
	if (shim.ctx) {
		iwcm_fork_child(shim.ctx);
		shim.asleep = true;
	}
	pthread_mutex_unlock(&shim.lock);
}

/* ---- the end ---- */

/* Other threads go on while this runs: it reads and writes out, and takes nothing apart. */
static void send_held(struct irdma_device *iwdev, void *arg)
{
	rnic_device_send_held(iwdev);
}

/* What was posted before the program disconnected goes on its way, and the NIC thread sees to it that the peer gets it; but not for ever. */
static void let_close(struct iwcm_ctx *ctx)
{
	static const struct timespec nap = { .tv_nsec = NSEC_PER_MSEC };
	u64 end = loop_monotonic_ns() + CLOSE_NS;

	while (iwcm_is_closing(ctx) && loop_monotonic_ns() < end)
		nanosleep(&nap, NULL);
}

__attribute__((destructor)) static void at_exit(void)
{
	if (!shim.ctx || shim.pid != getpid())
		return;
	iwcm_for_each_device(shim.ctx, send_held, NULL);
	let_close(shim.ctx);
	shim_stats_stop(shim_options()->stats);
	if (shim.capture)
		port_capture_flush(shim.capture);
}
