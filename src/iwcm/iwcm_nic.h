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
 * Instead of the event queue: @fn is called in the loop's thread for each event, as it happens. For simulations and the tool's ladder (which
 * needs events in line with frames). Before any id is made.
 */
void iwcm_set_handler(struct iwcm_ctx *ctx, void (*fn)(void *arg, const struct iwcm_event *ev), void *arg);
/* Attach to every NIC the context has and will have. Before traffic; once. */
void iwcm_set_observers(struct iwcm_ctx *ctx, struct port_capture *capture, void (*frame)(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns),
			const struct cm_trace *trace, void *arg);

#pragma GCC visibility pop

#endif
