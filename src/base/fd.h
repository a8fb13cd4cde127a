/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: which descriptors are the NIC's own. The program knows nothing of them, and may close whatever it finds: daemons do. Where close() can be put in
 * front (src/shim/preload.c) it asks here. In a process of its own (libuwarp, the command) this is a few bits that nobody reads.
 *
 * Own ones are the NIC's to close. Spare ones it still has from before a fork(): the program may close them or put others in their place, and whoever wants to
 * use one asks first whether it is still there (fd_reown()).
 */
#ifndef UWARP_BASE_FD_H
#define UWARP_BASE_FD_H

#include <sys/types.h>
#include "base/types.h"

#define FD_MAX (1 << 20) /* those above are not known here */

/* What fd_disown_close() closes with; the shim, whose close() is for the program, sets the real one. */
extern int (*fd_real_close)(int fd);

int fd_own(int fd);            /* @fd is the NIC's from now on; returns it; negative ones pass, with errno */
int fd_own_high(int fd);       /* the same at a high number, if there is one: where programs do not look */
void fd_disown(int fd);        /* somebody else closes it */
void fd_disown_close(int fd);  /* unless the program has; negative: nothing */
void fd_spare(int fd);
bool fd_reown(int fd);         /* false: the program has closed it */

/* ---- for whoever sees the program's calls ---- */
extern u64 fd_own_bits[FD_MAX / 64];
static inline u64 fd_bit(int fd) { return (u64)1 << fd % 64; }
static inline bool fd_is_own(int fd)
{
	return fd >= 0 && fd < FD_MAX && __atomic_load_n(&fd_own_bits[fd / 64], __ATOMIC_RELAXED) & fd_bit(fd);
}
/* The first own one from @fd on, or -1. */
int fd_next_own(unsigned int fd);
/* False in a child of vfork(): it has this memory, and a table of descriptors that is no concern of the NIC. */
bool fd_same_process(void);
/* The program closes those from @first to @last: they are spare no more. */
void fd_taken(unsigned int first, unsigned int last);
void fd_fork_child(void);

#endif
