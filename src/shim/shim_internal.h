/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: what unmodified programs see: the libibverbs API (verbs_*.c) and the rdma_cm device (cmdev*.c), in libuwarp-shim.so, which `uwarp run` puts in
 * front of a program by LD_PRELOAD. This header is the room's own: it exports nothing but symbols.
 *
 * Rules. librdmacm holds its own mutex while it calls ibv_*() and write(): nothing here calls rdma_*() or waits for CM events. write() and close()
 * are async-signal-safe for descriptors that are not ours. Errors go out as the real library's do: errno set, or returned positive.
 *
 * Locks, outermost first: shim.lock (devices, process state), a cm file's lock, an object's lock, a channel's lock (leaf). The NIC calls comp() and async() with its own
 * locks held: they take channel locks only.
 */
#ifndef UWARP_SHIM_INTERNAL_H
#define UWARP_SHIM_INTERNAL_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include "iwcm/iwcm_nic.h"
#include "rnic/rnic.h"

/* What the symbols are exported with; everything else is hidden. Versions come from src/shim/shim.map. */
#define SHIM_EXPORT __attribute__((visibility("default")))

/*
 * A thread that is cancelled in a system call of the NIC's would leave the NIC's locks taken, and the process would stand still. pthread_cancel() therefore waits until the call is
 * over, or until it waits for an event without locks. First in each function that programs call and that goes further than the shim's own memory.
 */
#define SHIM_UNCANCELLED int cancel_state __attribute__((unused, cleanup(shim_cancel_restore))) = shim_cancel_disable()

static inline int shim_cancel_disable(void)
{
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	return old;
}

static inline void shim_cancel_restore(const int *old)
{
	pthread_setcancelstate(*old, NULL);
}

/* ---- core.c: the process, its context, its devices ---- */

/* Options of `uwarp run`, from UWARP_* in the environment, read once. */
struct shim_options {
	struct iwcm_options conn;  /* MPA revision, model, RTR, CRC, markers... for all ids */
	char ifaces[256];          /* "" : all */
	char pcap[4096];           /* "" : none */
	bool responder_waits;      /* irdma_device.responder_waits of all NICs */
	bool stats;                /* table on stderr at exit */
	/* log level: applied at once */
};
const struct shim_options *shim_options(void);

/* The context, opened by the first caller, and in a forked child opened anew or resumed. NULL: errno. */
struct iwcm_ctx *shim_ctx(void);

/* One per NIC that there is or was; never freed, never moves. Inside something as large as struct verbs_device: others' code reads past its end. */
struct shim_device {
	struct ibv_device ibdev;
	u8 beyond[512];
	struct irdma_device *iwdev; /* with a reference while contexts are open */
	__be64 guid;
	bool gone;
	u32 index;
};
struct shim_device *shim_device_of(struct irdma_device *iwdev); /* NULL: none */
__be64 shim_device_guid(struct irdma_device *iwdev);
/* The program's QP with this number, for CM commands: with a reference, or NULL. */
struct irdma_qp *shim_qp_find(struct irdma_device *iwdev, u32 qp_num);

/* Real functions behind the interposed ones, looked up in a constructor. */
extern int (*real_close)(int fd);
extern ssize_t (*real_write)(int fd, const void *buf, size_t n);
extern int (*real_dup3)(int old, int fd, int flags);

/* ---- fork: called in this order by the one pthread_atfork() of fork.c ---- */
void shim_core_fork_prepare(void);
void shim_core_fork_parent(void);
void shim_core_fork_child(void);
void shim_verbs_fork_child(void); /* fresh eventfds for channels and async */
void shim_cmdev_fork_child(void); /* and for cm files */

/* ---- cmdev.c: handler of CM events (iwcm_set_handler) ---- */
void shim_cmdev_event(void *arg, const struct iwcm_event *ev);
void shim_cmdev_events_done(void *arg);
/* close() of a descriptor that may be a cm file's; true: it was, *@ret is close()'s result. */
bool shim_cmdev_close(int fd, int *ret);
/* write() to such one. */
bool shim_cmdev_write(int fd, const void *buf, size_t n, ssize_t *ret);
/* open() of /dev/infiniband/rdma_cm: descriptor, -1 with errno. */
int shim_cmdev_open(int flags);
bool shim_cmdev_is(int fd);
/* close_range(): those of its descriptors that lie in it. */
void shim_cmdev_close_range(unsigned int first, unsigned int last);
/* Handler of iwcm_fork_notify(): this process has taken the place of the one that it was forked from. */
void shim_cmdev_inherit(void *arg);

#endif
