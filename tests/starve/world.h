/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * starve: a client and a server in one process, on the host port over loopback or on a wire; every call may fail, and what was made is taken down all the same.
 * Functions return 0, the errno of what failed, or -ETIME.
 */
#ifndef UWARP_TESTS_WORLD_H
#define UWARP_TESTS_WORLD_H

#include <errno.h>
#include "iwcm/iwcm_nic.h"

#define MEM (256u << 10)

enum { CLIENT, SERVER, SIDES };

/* What moves data for one end. */
struct data {
	struct iwcm_ctx *ctx;
	struct irdma_device *dev;
	struct rnic_pd *pd;
	struct rnic_mr *mr;
	struct rnic_mw *mw;
	struct rnic_cq *cq;
	struct rnic_srq *srq;
	struct irdma_qp *qp;
	u8 mem[MEM];
	u32 posted, completed, bad;  /* work requests, and how many of them did not succeed */
	bool srq_wanted;
};

struct side {
	struct iwcm_ctx *ctx;
	struct iwcm_id *id;
	bool asked;              /* connect or accept was called: there will be an end */
	u32 seen;                /* a bit per event */
	int status;              /* of the first one that failed */
	struct data data;
};

struct world {
	bool host;
	u8 gen;
	struct loop loop;
	struct port_wire *wire;
	struct net_segment *seg;
	struct net *net[SIDES];
	struct iwcm_ctx *ctx[SIDES];
	struct iwcm_id *listener;
	struct side s[SIDES];
	struct iwcm_options options;
};

#define SEEN(s, e) ((s)->seen & BIT(IWCM_EVENT_##e))

int world_open(struct world *w, bool host, const char *ifaces, u8 gen);
void world_close(struct world *w);
bool world_ended(const struct side *s);
/* Until @done(@arg) is true: -ETIME if it never is, and says @what is missing. */
int world_wait(struct world *w, bool (*done)(void *arg), void *arg, const char *what);

int world_listen(struct world *w, const char *text, u16 *port);
int world_resolve(struct world *w, const char *text, u16 port);
int world_connect(struct world *w, struct irdma_qp *client_qp);   /* until there is a request */
int world_accept(struct world *w, struct irdma_qp *server_qp);    /* until both are connected */
int world_take_down(struct world *w);
int world_said(const char *what, int err);                         /* @err, told if it is one */

int data_open(struct side *s, bool srq);
int data_run(struct world *w);
int data_terminate(struct world *w);                               /* the client breaks the rules */
int data_close(struct world *w, struct data *d);

int ifaces_run(void);
const char *ifaces_missing(void);

#endif
