// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: what a simulated host has for all its connections that move data. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tool/sim_data.h"

#define PATTERN_MIN 4096u       /* hello and bye are slices of it, too */

/* ---- what the NIC asks of windows' and regions' owner ---- */

static struct rnic_mw *window_of(const struct ibv_mw *ib)
{
	return container_of((struct ibv_mw *)ib, struct sim_window, ib)->mw;
}

static struct rnic_mr *region_of(const struct ibv_mr *ib)
{
	return container_of((struct ibv_mr *)ib, struct sim_region, ib)->mr;
}

static const struct rnic_bind_ops bind_ops = { .mw = window_of, .mr = region_of };

/* ---- hosts ---- */

int sim_pattern_make(struct sim *sim)
{
	struct rand_gen g;
	u32 i;
	u64 word;

	sim->pattern_len = SIM_PATTERN_STARTS + max(sim->p->largest, PATTERN_MIN);
	sim->pattern = malloc(sim->pattern_len);
	if (!sim->pattern)
		return -ENOMEM;
	rand_gen_seed(&g, sim->p->seed);
	for (i = 0; i < sim->pattern_len; i += (u32)sizeof(word)) {
		word = rand_gen_u64(&g);
		memcpy(sim->pattern + i, &word, min((size_t)(sim->pattern_len - i), sizeof(word)));
	}
	rnic_bind_ops = &bind_ops;
	return 0;
}

static int host_regions(struct sim_host *h)
{
	const struct rnic_mr_attr pattern = {
		.addr = h->sim->pattern, .length = h->sim->pattern_len, .iova = SIM_PATTERN_IOVA, .access = IBV_ACCESS_REMOTE_READ,
	};
	const struct rnic_mr_attr counter = {
		.addr = &h->counter, .length = sizeof(h->counter), .iova = SIM_COUNTER_IOVA, .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int err = rnic_mr_create(h->pd, &pattern, &h->pattern_mr);

	return err ? err : rnic_mr_create(h->pd, &counter, &h->counter_mr);
}

int sim_host_data_open(struct sim_host *h)
{
	int err = rnic_pd_create(h->iwdev, &h->pd);

	return err ? err : host_regions(h);
}

void sim_host_data_close(struct sim_host *h)
{
	if (h->pattern_mr)
		rnic_mr_destroy(h->pattern_mr);
	if (h->counter_mr)
		rnic_mr_destroy(h->counter_mr);
	if (h->pd && rnic_pd_destroy(h->pd))
		sim_violation(h->sim, "host %u: its protection domain is in use in the end", h->index);
}

struct sim_host *sim_data_peer(const struct sim_data *d)
{
	const struct sim_rec *rec = sim_rec(d->side->sim, d->side->serial);

	return &d->side->sim->hosts[d->me ? rec->from : rec->to];
}

void sim_data_check_hosts(struct sim *sim)
{
	for (u32 i = 0; i < sim->p->nodes; i++) {
		const struct sim_host *h = &sim->hosts[i];

		if (h->counter < h->added_done || h->counter > h->added_posted)
			sim_violation(sim, "host %u: its counter is %llu, with %llu added for certain and %llu at most", i, (unsigned long long)h->counter,
				      (unsigned long long)h->added_done, (unsigned long long)h->added_posted);
	}
}
