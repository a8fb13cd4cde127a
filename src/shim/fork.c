/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: fork(). One handler for the whole library, so that the order is in one place: the NIC thread stands still and nobody holds a lock while the memory is
 * copied; the child gives descriptors that would be shared, eventfds, others of its own. What a child may do: src/iwcm/iwcm_fork.c.
 */
#include "shim/cmdev_internal.h"

static void prepare(void)
{
	shim_core_fork_prepare();
	pthread_mutex_lock(&cmdev_lock);
}

static void parent(void)
{
	pthread_mutex_unlock(&cmdev_lock);
	shim_core_fork_parent();
}

static void child(void)
{
	fd_fork_child();
	shim_core_fork_child();
	shim_verbs_fork_child();
	shim_cmdev_fork_child();
}

__attribute__((constructor)) static void fork_init(void)
{
	pthread_atfork(prepare, parent, child);
}
