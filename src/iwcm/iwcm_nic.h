/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwcm: what the tool and the shim see beyond libuwarp's public header: contexts on a simulated host, and access to the NICs.
 */
#ifndef UWARP_IWCM_NIC_H
#define UWARP_IWCM_NIC_H

#include "cm/cm.h"
#include "iwcm/iwcm.h"

#pragma GCC visibility push(hidden) /* not part of the library's interface */

/*
 * A context on one simulated host: no thread; the caller steps @wire, whose loop is @loop, and calls net_process(@net) after it
 * changed @net. One device per non-loopback interface of @net. @rdma_ver: IRDMA_GEN_1 or 2.
 */
int iwcm_open_wire(struct port_wire *wire, struct loop *loop, struct net *net, u8 rdma_ver, struct iwcm_ctx **out);
struct loop *iwcm_loop(struct iwcm_ctx *ctx);
/* The devices as they are now; with the context's device lock held by iwcm_for_each_device(). */
void iwcm_for_each_device(struct iwcm_ctx *ctx, void (*fn)(struct irdma_device *iwdev, void *arg), void *arg);
/*
 * Instead of the event queue: @fn is called in the loop's thread for each event, as it happens, and @done (may be NULL) after the last one for now. For
 * simulations, the tool's ladder (which needs events in line with frames) and the shim. Before any id is made.
 */
void iwcm_set_handler(struct iwcm_ctx *ctx, void (*fn)(void *arg, const struct iwcm_event *ev), void (*done)(void *arg), void *arg);
/* Attach to every NIC the context has and will have. Before traffic; once. */
void iwcm_set_observers(struct iwcm_ctx *ctx, struct port_capture *capture, void (*frame)(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns),
			const struct cm_trace *trace, void *arg);

/* ---- for the shim ---- */
/* iwcm_resolve() without an event: *@outcome is 0 for RESOLVED, else what RESOLVE_ERROR would say. Spares a turn of the NIC thread. */
int iwcm_resolve_now(struct iwcm_id *id, const struct sockaddr *src, const struct sockaddr *dst, int *outcome);
/*
 * The next iwcm_connect() or iwcm_accept() of @id uses this QP, which is on the id's device, instead of making one. The caller keeps it and its reference; the
 * id holds one of its own until the connection is over, and moves the QP to ERROR when the user gives the id up before that. 0, -EINVAL (wrong state, other device),
 * -ECONNRESET (a request whose peer gave up), -ENODEV.
 */
int iwcm_set_qp(struct iwcm_id *id, struct irdma_qp *qp);
/* The id's NIC; NULL: none (yet), a wildcard, or gone. Stays valid while the caller has an iwcm_device_get() reference on it. */
struct irdma_device *iwcm_id_device(struct iwcm_id *id);
/* A reference on a NIC of this context: keeps it after its interface has gone. NULL if @iwdev is none of them. */
struct irdma_device *iwcm_device_get(struct iwcm_ctx *ctx, struct irdma_device *iwdev);
void iwcm_device_put(struct iwcm_ctx *ctx, struct irdma_device *iwdev);
/* @fn is told of each NIC that comes (@added) or goes, from the loop's thread with the device lock held, and at once of those that are there. Once. */
void iwcm_watch_devices(struct iwcm_ctx *ctx, void (*fn)(void *arg, struct irdma_device *iwdev, bool added), void *arg);
/* Connections that were disconnected still have something to send, or a peer has not got all of it. For a program that ends. */
bool iwcm_is_closing(struct iwcm_ctx *ctx);
/*
 * fork(). In the parent: prepare waits until the NIC thread is between two turns and no call is under way, and takes the context's locks; parent gives them back. In the child: child
 * gives them back, puts the sockets by, and there is no NIC thread; the first call, or iwcm_fork_resume(), makes it anew: own epoll set, own eventfds, own netlink sockets.
 * Sockets from before the fork stay put by, and are the parent's (closing them in the child is only closing), until the process that had them ends, or iwcm_fork_adopt().
 */
void iwcm_fork_prepare(struct iwcm_ctx *ctx);
void iwcm_fork_parent(struct iwcm_ctx *ctx);
void iwcm_fork_child(struct iwcm_ctx *ctx);
int iwcm_fork_resume(struct iwcm_ctx *ctx); /* 0 also if nothing is to be done; -EMFILE, -ENOMEM, -EAGAIN */
/* The child's user uses ids of before the fork: it serves their sockets from now on, beside the parent if that lives. Resumes. As iwcm_fork_resume(). */
int iwcm_fork_adopt(struct iwcm_ctx *ctx);
/* @fn is told when the process that had the sockets has ended and this one serves them now. From a thread of its own, no lock held. Any time. */
void iwcm_fork_notify(struct iwcm_ctx *ctx, void (*fn)(void *arg), void *arg);
/* The user begins, or ends, to wait for what listeners get: among processes that share some, the one that waits gets the connection. iwcm_get_event() says so itself. */
void iwcm_fork_wait(struct iwcm_ctx *ctx, bool begin);
/* How many forks lie behind this process whose parent served sockets. What @fn takes over is what was there at the last one. */
unsigned int iwcm_fork_count(const struct iwcm_ctx *ctx);

#pragma GCC visibility pop

#endif
