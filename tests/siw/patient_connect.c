/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * For LD_PRELOAD under perftest's clients: every rdma_connect() but the first waits a little.
 *
 * Between its first connection, for parameters, and those for data, perftest's server closes its listener and opens it anew. A client that is quick is
 * refused in between, with any NIC, and crashes. It is quick where it runs on the host and its server in the guest.
 */
#include <dlfcn.h>
#include <unistd.h>

struct rdma_cm_id;
struct rdma_conn_param;

#define PATIENCE_US 150000

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int (*next)(struct rdma_cm_id *, struct rdma_conn_param *) = dlsym(RTLD_NEXT, "rdma_connect");
	static int calls;

	if (calls++)
		usleep(PATIENCE_US);
	return next(id, param);
}
