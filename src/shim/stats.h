/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: what a program has done over uwarp: printed at its end (UWARP_STATS), and told to whoever asks meanwhile (`uwarp stat`).
 *
 * Who asks connects to an abstract socket, of which each process that uses uwarp has one in its network namespace, named SHIM_STATS_PREFIX and 16 random
 * hexadecimal digits; is sent one struct shim_stats and its devices; and sees the end of file. Only the process's own user and root are answered.
 * Nothing is left over when the process dies. Both ends check who the other is by SO_PEERCRED: anybody could take such a name.
 */
#ifndef UWARP_SHIM_STATS_H
#define UWARP_SHIM_STATS_H

#include <stdio.h>
#include "iwcm/iwcm_nic.h"
#include "rnic/rnic.h"

#define SHIM_STATS_PREFIX "uwarp-stat-"
#define SHIM_STATS_NAME_LEN (sizeof(SHIM_STATS_PREFIX) - 1 + 16)
#define SHIM_STATS_MAGIC 0x75775354u
#define SHIM_STATS_VERSION 1u
#define SHIM_STATS_DEVICES 4096u

struct shim_stats_device {
	char name[32];
	struct cm_stats cm;
	struct rnic_device_stats nic;
};
struct shim_stats {
	u32 magic, version;
	u32 device_size;        /* of struct shim_stats_device */
	u32 devices;            /* that follow; at most SHIM_STATS_DEVICES */
	u64 up_ns;              /* since the program first used uwarp */
	char program[32];
	struct shim_stats_device device[];
};

/* Tables for people; @pid as the reader knows it. Devices that did nothing are left out. */
void shim_stats_print(FILE *f, const struct shim_stats *s, pid_t pid);

/* ---- for core.c ---- */
/* The context is open, or works again in a forked child: from now on there is something to tell. */
void shim_stats_start(struct iwcm_ctx *ctx);
/* The program ends, the context still works: the tables go @to_stderr; nothing is told any more. */
void shim_stats_stop(bool to_stderr);
/* In a forked child, before anything else there: nothing to tell until shim_stats_start(). */
void shim_stats_fork_child(void);

#endif
