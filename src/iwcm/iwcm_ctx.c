// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm: contexts: a host's network, its NICs, and who runs their loop.
 *
 * On the host port the NIC thread does (iwcm_thread.c); on the wire port whoever steps the simulation does, and there is no
 * thread. The loop's time stands still while nobody runs it, so each call that may arm a timer brings it up to date.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "iwcm/room_internal.h"

/* Never backwards, whoever else does the same now. */
static void update_clock(struct loop *l)
{
	u64 now = loop_monotonic_ns(), old = loop_now(l);

	while (now > old && !__atomic_compare_exchange_n(&l->now_ns, &old, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

struct net *iwcm_enter(struct iwcm_ctx *ctx)
{
	if (iwcm_asleep(ctx) && iwcm_fork_resume(ctx))
		log_error("iwcm", "no NIC thread in this forked process");
	if (ctx->host)
		update_clock(ctx->loop);
	return net_enter(ctx->net);
}

void iwcm_leave(struct net *prev)
{
	net_enter(prev);
}

struct loop *iwcm_loop(struct iwcm_ctx *ctx)
{
	return ctx->loop;
}

static struct iwcm_ctx *ctx_alloc(struct loop *loop)
{
	struct iwcm_ctx *ctx = calloc(1, sizeof(*ctx));
	size_t i;

	if (!ctx)
		return NULL;
	ctx->loop = loop ? loop : &ctx->own_loop;
	ctx->event_fd = -1;
	pthread_mutex_init(&ctx->lock, NULL);
	pthread_mutex_init(&ctx->dev_lock, NULL);
	pthread_cond_init(&ctx->delivered, NULL);
	TAILQ_INIT(&ctx->devs);
	TAILQ_INIT(&ctx->ids);
	TAILQ_INIT(&ctx->queue);
	for (i = 0; i < IWCM_PORT_BUCKETS; i++)
		LIST_INIT(&ctx->bound[i]);
	if (!loop)
		loop_init(ctx->loop, loop_monotonic_ns());
	workq_init(&ctx->wq, ctx->loop);
	work_setup(&ctx->deliver_work, iwcm_deliver_work);
	ctx->watcher.event = iwcm_net_event;
	iwcm_fork_init(ctx);
	return ctx;
}

static void ctx_free(struct iwcm_ctx *ctx)
{
	if (ctx->loop == &ctx->own_loop)
		loop_destroy(ctx->loop);
	if (ctx->event_fd >= 0)
		close(ctx->event_fd);
	iwcm_fork_destroy(ctx);
	pthread_cond_destroy(&ctx->delivered);
	pthread_mutex_destroy(&ctx->dev_lock);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx->names);
	free(ctx);
}

/* @list as the names of the devices' interfaces, ",a,b,": a VLAN stands for the interface that it lies on. */
static int parse_names(struct iwcm_ctx *ctx, const char *list)
{
	size_t room = strlen(list) + 2, len;
	struct net_iface iface;
	char name[IFNAMSIZ], *out;

	out = ctx->names = malloc(room * IFNAMSIZ); /* each byte a name, at worst */
	if (!out)
		return -ENOMEM;
	*out++ = ',';
	for (; *list; list += len + (list[len] == ',')) {
		len = strcspn(list, ",");
		if (!len || len >= sizeof(name))
			return -ENODEV;
		memcpy(name, list, len);
		name[len] = '\0';
		if (net_iface_by_name(ctx->net, name, &iface))
			return -ENODEV;
		while (iface.vlan_id != PKT_VLAN_NONE && iface.lower && !net_iface_by_index(ctx->net, iface.lower, &iface))
			;
		out = mempcpy(out, iface.name, strlen(iface.name));
		*out++ = ',';
	}
	*out = '\0';
	return out > ctx->names + 1 ? 0 : -ENODEV;
}

static int start(struct iwcm_ctx *ctx)
{
	struct net *prev = iwcm_enter(ctx);
	int err;

	net_watch(ctx->net, &ctx->watcher); /* before looking: what changes meanwhile is told again */
	err = iwcm_dev_add_all(ctx);
	iwcm_leave(prev);
	return err;
}

/* Everybody goes; the loop is ours to run, as no thread does. */
static void stop(struct iwcm_ctx *ctx)
{
	struct net *prev = iwcm_enter(ctx);

	net_unwatch(ctx->net, &ctx->watcher);
	iwcm_dev_remove_all(ctx);
	loop_run(ctx->loop);
	assert(!__atomic_load_n(&ctx->live_devs, __ATOMIC_ACQUIRE));
	workq_cancel(&ctx->deliver_work);
	iwcm_leave(prev);
}

static int open_ports(struct iwcm_ctx *ctx, const char *ifaces)
{
	int err = ifaces ? parse_names(ctx, ifaces) : 0;

	if (err)
		return err;
	err = port_host_open(ctx->loop, ctx->net, &ctx->host);
	if (err)
		return err;
	err = start(ctx);
	if (!err)
		err = iwcm_thread_start(ctx);
	if (!err)
		return 0;
	stop(ctx);
	port_host_close(ctx->host);
	return err;
}

/**
 * iwcm_open() - make a context
 * @ifaces: comma-separated names of the interfaces to have NICs on; NULL: all, present and future. A VLAN interface stands
 *	for the one that it lies on
 * @out: the context
 *
 * Starts one thread, with all signals blocked. Needs no privileges.
 *
 * Return: 0; -ENODEV: a name in @ifaces is not an interface's; -EMFILE, -ENOMEM and other limits.
 */
int iwcm_open(const char *ifaces, struct iwcm_ctx **out)
{
	struct iwcm_ctx *ctx = ctx_alloc(NULL);
	int err;

	if (!ctx)
		return -ENOMEM;
	ctx->rdma_ver = IRDMA_GEN_2;
	err = net_open_host(&ctx->net);
	if (err)
		goto free_ctx;
	err = open_ports(ctx, ifaces);
	if (err)
		goto close_net;
	*out = ctx;
	return 0;

close_net:
	net_close(ctx->net);
free_ctx:
	ctx_free(ctx);
	return err;
}

int iwcm_open_wire(struct port_wire *wire, struct loop *loop, struct net *net, u8 rdma_ver, struct iwcm_ctx **out)
{
	struct iwcm_ctx *ctx = ctx_alloc(loop);
	int err;

	if (!ctx)
		return -ENOMEM;
	ctx->rdma_ver = rdma_ver;
	ctx->net = net;
	ctx->wire = wire;
	err = start(ctx);
	if (err) {
		stop(ctx);
		ctx_free(ctx);
		return err;
	}
	*out = ctx;
	return 0;
}

static void destroy_ids(struct iwcm_ctx *ctx)
{
	struct iwcm_id *id;

	for (;;) {
		iwcm_lock(ctx);
		id = TAILQ_FIRST(&ctx->ids);
		iwcm_unlock(ctx);
		if (!id)
			return;
		iwcm_destroy_id(id);
	}
}

/**
 * iwcm_close() - end a context
 * @ctx: context that no other thread uses; NULL is ignored. Not from the handler
 *
 * Destroys ids that are left; their connections are reset.
 */
void iwcm_close(struct iwcm_ctx *ctx)
{
	if (!ctx)
		return;
	iwcm_fork_unwatch(ctx);
	if (iwcm_asleep(ctx)) /* what was put by is closed; nothing else can be done without a thread, nor need it */
		__atomic_store_n(&ctx->fork.asleep, false, __ATOMIC_RELEASE);
	else if (ctx->host)
		iwcm_thread_stop(ctx);
	destroy_ids(ctx);
	loop_run(ctx->loop);
	stop(ctx);
	assert(!__atomic_load_n(&ctx->live_ids, __ATOMIC_ACQUIRE));
	if (ctx->host) {
		port_host_close(ctx->host);
		net_close(ctx->net);
	}
	ctx_free(ctx);
}

static void observe(struct iwcm_ctx *ctx)
{
	struct iwcm_dev *dev;

	TAILQ_FOREACH(dev, &ctx->devs, entry)
		iwcm_dev_observe(dev);
}

void iwcm_set_observers(struct iwcm_ctx *ctx, struct port_capture *capture,
			void (*frame)(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns),
			const struct cm_trace *trace, void *arg)
{
	pthread_mutex_lock(&ctx->dev_lock);
	ctx->capture = capture;
	ctx->frame = frame;
	ctx->frame_arg = arg;
	ctx->trace = trace ? *trace : (struct cm_trace){ 0 };
	observe(ctx);
	pthread_mutex_unlock(&ctx->dev_lock);
}
