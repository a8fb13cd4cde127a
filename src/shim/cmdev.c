/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: the rdma_cm device, that is the kernel's side of <rdma/rdma_user_cm.h>, inside the process. Theory of operation.
 *
 * The stock librdmacm opens /dev/infiniband/rdma_cm, writes commands to it, and polls it. Here the descriptor is an eventfd, and preload.c
 * hands writes on it to this file. Each file has ids and a queue of events; the eventfd holds a token while there are events, so poll, select and epoll
 * see what they would see of the device.
 *
 *   program            cmdev                                iwcm
 *   write(command)     table below, by number: lengths,     iwcm_bind, iwcm_resolve, iwcm_connect...
 *                      then the command's function
 *   GET_EVENT          oldest event of the file's queue     <- shim_cmdev_event(), NIC thread
 *
 * An id of librdmacm (struct cmdev_id) is one id of iwcm, or two: a listener on the IPv6 wildcard takes IPv4 too, unless it was told AFONLY.
 *
 * Tokens. One is enough for all events of a queue: a reader takes the first event if there is one, without a system call; whoever takes the last one, also because an id is
 * destroyed or migrates, takes the token back. A reader that finds no event waits for the token, and with it in its hand takes an event, or finds that another one had it, and
 * waits again; if it leaves events, it puts a token there again. A token is put after the lock was given up, or the reader that it wakes would run into the lock; while it is on
 * its way its event is not there yet: who has no token waits for this one. So the descriptor is never readable without an event.
 *
 * Locks. cmdev_lock covers all that is here, for a few hundred instructions at a time, and is not held when iwcm is called: iwcm_destroy_id() waits for
 * a handler that runs, and the handler takes the lock. Memory of an id: references; DESTROY_ID takes it out of the table, waits until no
 * command has it and iwcm has no handler for it, and only then frees it.
 *
 * fork: fork.c. A vforked child has this memory but another pid: closing is only closing there (other calls do not look at the pid: getpid() is a system call).
 *
 * Left out: AF_IB addresses (a probe of librdmacm's is told that they are known, which makes it use the commands that take any address); multicast, which iWARP does not
 * have; path records.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "shim/cmdev_internal.h"
#include "shim/verbs_internal.h"

#define CMDEV_FDS (1 << 20) /* descriptors above are not given out */

pthread_mutex_t cmdev_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cmdev_file *files[CMDEV_FDS]; /* by descriptor; written under the lock, tested without */
static u32 num_files; /* atomic */
struct iwcm_ctx *cmdev_ctx;
static LIST_HEAD(, cmdev_file) all_files = LIST_HEAD_INITIALIZER(all_files);

/* ---- files ---- */

bool shim_cmdev_is(int fd)
{
	return fd >= 0 && fd < CMDEV_FDS && __atomic_load_n(&files[fd], __ATOMIC_ACQUIRE);
}

static struct cmdev_file *file_new(int fd)
{
	struct cmdev_file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->fd = fd;
	f->kept_fd = -1;
	f->pid = getpid();
	f->refs = 1;
	TAILQ_INIT(&f->events);
	LIST_INIT(&f->ids);
	return f;
}

/**
 * shim_cmdev_open() - open the device
 * @flags: of open(): O_NONBLOCK and O_CLOEXEC count
 *
 * Return: the descriptor; -1 with errno EMFILE, ENFILE, ENOMEM.
 */
int shim_cmdev_open(int flags)
{
	SHIM_UNCANCELLED;
	int fd = shim_evfd_open(0);
	struct cmdev_file *f;

	if (fd < 0)
		return shim_minus_one(fd);
	f = fd < CMDEV_FDS ? file_new(fd) : NULL;
	if (!f) {
		real_close(fd);
		return shim_minus_one(fd < CMDEV_FDS ? -ENOMEM : -EMFILE);
	}
	if (flags & O_NONBLOCK)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	if (!(flags & O_CLOEXEC))
		fcntl(fd, F_SETFD, 0);
	pthread_mutex_lock(&cmdev_lock);
	LIST_INSERT_HEAD(&all_files, f, entry);
	__atomic_fetch_add(&num_files, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&files[fd], f, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&cmdev_lock);
	return fd;
}

struct cmdev_file *cmdev_file_get(int fd)
{
	struct cmdev_file *f = fd >= 0 && fd < CMDEV_FDS ? files[fd] : NULL;

	if (f)
		__atomic_fetch_add(&f->refs, 1, __ATOMIC_RELAXED);
	return f;
}

void cmdev_file_put(struct cmdev_file *f)
{
	if (__atomic_fetch_sub(&f->refs, 1, __ATOMIC_ACQ_REL) == 1)
		free(f);
}

/*
 * Locked: no command finds it any more, no event reaches it. A thread that waits for one waits on, as it would in the kernel: programs close the channel under such a thread, and
 * then exit.
 */
static void file_detach(struct cmdev_file *f, struct cmdev_id_list *dead)
{
	struct cmdev_id *id;

	__atomic_store_n(&files[f->fd], NULL, __ATOMIC_RELEASE);
	LIST_REMOVE(f, entry);
	__atomic_fetch_sub(&num_files, 1, __ATOMIC_RELAXED);
	f->nonblocking = fcntl(f->fd, F_GETFL) & O_NONBLOCK;
	__atomic_store_n(&f->closed, true, __ATOMIC_RELEASE);
	cmdev_event_close(f);
	while ((id = LIST_FIRST(&f->ids)))
		cmdev_id_detach(id, dead);
	fd_disown_close(f->kept_fd);
	f->kept_fd = -1;
}

/* Locked. The file; NULL in a vforked child, whose parent's it is. */
static struct cmdev_file *take_down(int fd, struct cmdev_id_list *dead)
{
	struct cmdev_file *f = files[fd];

	if (!f || f->pid != getpid())
		return NULL;
	file_detach(f, dead);
	return f;
}

/**
 * shim_cmdev_close() - close a descriptor, if it is the device's
 * @fd: descriptor
 * @ret: what close() returns
 *
 * Destroys the file's ids; those from before a fork() that were not used since have sockets that are only closed then (iwcm_fork_adopt()). In a vforked child everything is only closed.
 *
 * Return: false if @fd is not the device's.
 */
bool shim_cmdev_close(int fd, int *ret)
{
	SHIM_UNCANCELLED;
	struct cmdev_id_list dead = LIST_HEAD_INITIALIZER(dead);
	struct cmdev_file *f;

	if (!shim_cmdev_is(fd))
		return false;
	pthread_mutex_lock(&cmdev_lock);
	f = take_down(fd, &dead);
	pthread_mutex_unlock(&cmdev_lock);
	cmdev_ids_destroy(&dead);
	if (f)
		cmdev_event_settle(f); /* or it would go to whoever gets the number next */
	*ret = real_close(fd);
	if (f)
		cmdev_file_put(f);
	return true;
}

/* Locked. Some file in the range, or NULL. */
static struct cmdev_file *file_between(unsigned int first, unsigned int last)
{
	struct cmdev_file *f;

	LIST_FOREACH(f, &all_files, entry)
		if ((unsigned int)f->fd >= first && (unsigned int)f->fd <= last)
			return f;
	return NULL;
}

void shim_cmdev_close_range(unsigned int first, unsigned int last)
{
	SHIM_UNCANCELLED;
	struct cmdev_file *f;
	int fd, ret;

	if (!__atomic_load_n(&num_files, __ATOMIC_RELAXED))
		return;
	do {
		pthread_mutex_lock(&cmdev_lock);
		f = file_between(first, last);
		fd = f && f->pid == getpid() ? f->fd : -1;
		pthread_mutex_unlock(&cmdev_lock);
	} while (shim_cmdev_close(fd, &ret));
}

/* ---- fork ---- */

/* @fd becomes this file's, with the flags that it had. */
static void set_fd(const struct cmdev_file *f, int fd)
{
	int cloexec = fcntl(f->fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0;

	fcntl(fd, F_SETFL, fcntl(f->fd, F_GETFL));
	real_dup3(fd, f->fd, cloexec);
	real_close(fd);
}

/* Sets of epoll that are older than the fork know the eventfd that the parent has: it is needed again if this process takes its place. */
static void keep_fd(struct cmdev_file *f)
{
	fd_disown_close(f->kept_fd);
	f->kept_fd = fd_own_high(dup(f->fd));
	f->kept_live = false;
	f->fork = cmdev_context() ? iwcm_fork_count(cmdev_context()) : 0;
	f->inherited = true;
}

static void renew_fd(struct cmdev_file *f)
{
	bool token = !TAILQ_EMPTY(&f->events);
	int fresh = shim_evfd_open(token);

	if (!f->inherited) /* else the parent had it from another process, and did not use it */
		keep_fd(f);
	f->posting = 0;
	if (fresh < 0) {
		log_warn("shim", "descriptor %d stays shared with the parent process", f->fd);
		return;
	}
	set_fd(f, fresh);
	f->token = token;
}

/* The lock is held since before the fork. */
void shim_cmdev_fork_child(void)
{
	struct cmdev_file *f;

	LIST_FOREACH(f, &all_files, entry) {
		f->pid = getpid();
		f->refs = 1;
		renew_fd(f);
	}
	cmdev_ids_fork_child();
	pthread_mutex_unlock(&cmdev_lock);
}

/*
 * Locked. The other user of the eventfd of before the fork has ended: tokens go to both from now on. The one behind the file's descriptor stays, for a thread may be in poll()
 * on it.
 */
static void revive_kept(struct cmdev_file *f)
{
	u64 token;

	if (f->kept_fd < 0)
		return;
	while (preadv2(f->kept_fd, &(struct iovec){ &token, sizeof(token) }, 1, -1, RWF_NOWAIT) > 0)
		; /* one at a time: semaphore mode */
	if (!TAILQ_EMPTY(&f->events))
		shim_evfd_post(f->kept_fd);
	f->kept_live = true;
}

void shim_cmdev_inherit(void *arg)
{
	struct cmdev_file *f;

	pthread_mutex_lock(&cmdev_lock);
	LIST_FOREACH(f, &all_files, entry) {
		if (!f->inherited || f->fork != iwcm_fork_count(cmdev_context()))
			continue; /* used by this process already, or of an older one that may live */
		f->inherited = false;
		revive_kept(f);
	}
	pthread_mutex_unlock(&cmdev_lock);
}

/* The child uses what it has from its parent: from now on both do. */
static int adopt(struct cmdev_file *f)
{
	SHIM_UNCANCELLED;
	struct iwcm_ctx *ctx = shim_ctx();
	int err = ctx ? iwcm_fork_adopt(ctx) : -errno;
	struct cmdev_file *other;

	if (err)
		return err;
	pthread_mutex_lock(&cmdev_lock);
	LIST_FOREACH(other, &all_files, entry)
		other->inherited = false;
	pthread_mutex_unlock(&cmdev_lock);
	return 0;
}

/* ---- commands ---- */

static int get_event(struct cmdev_call *c)
{
	return cmdev_event_get(c->file, c->cmd.get_event.response, c->out);
}

/* Up to and including the last member that must be there; what later versions of the header have appended may be missing. */
#define UPTO(type, member) (offsetof(struct rdma_ucm_##type, member) + sizeof(((struct rdma_ucm_##type *)0)->member))

/* @in: the command's least length; @out: the response's. */
static const struct cmdev_command {
	int (*fn)(struct cmdev_call *c);
	size_t in, out;
} commands[] = {
	[RDMA_USER_CM_CMD_CREATE_ID] = { cmdev_create_id, UPTO(create_id, qp_type), sizeof(struct rdma_ucm_create_id_resp) },
	[RDMA_USER_CM_CMD_DESTROY_ID] = { cmdev_destroy_id, UPTO(destroy_id, id), sizeof(struct rdma_ucm_destroy_id_resp) },
	[RDMA_USER_CM_CMD_BIND_IP] = { cmdev_bind_ip, UPTO(bind_ip, id), 0 },
	[RDMA_USER_CM_CMD_RESOLVE_IP] = { cmdev_resolve_ip, UPTO(resolve_ip, timeout_ms), 0 },
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = { cmdev_resolve_route, UPTO(resolve_route, timeout_ms), 0 },
	[RDMA_USER_CM_CMD_QUERY_ROUTE] = { cmdev_query_route, UPTO(query, id), offsetof(struct rdma_ucm_query_route_resp, ibdev_index) },
	[RDMA_USER_CM_CMD_CONNECT] = { cmdev_connect, UPTO(connect, id), 0 },
	[RDMA_USER_CM_CMD_LISTEN] = { cmdev_listen, UPTO(listen, backlog), 0 },
	[RDMA_USER_CM_CMD_ACCEPT] = { cmdev_accept, UPTO(accept, id), 0 },
	[RDMA_USER_CM_CMD_REJECT] = { cmdev_reject, UPTO(reject, private_data), 0 },
	[RDMA_USER_CM_CMD_DISCONNECT] = { cmdev_disconnect, UPTO(disconnect, id), 0 },
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] = { cmdev_init_qp_attr, UPTO(init_qp_attr, qp_state), sizeof(struct ib_uverbs_qp_attr) },
	[RDMA_USER_CM_CMD_GET_EVENT] = { get_event, UPTO(get_event, response), offsetof(struct rdma_ucm_event_resp, reserved) },
	[RDMA_USER_CM_CMD_SET_OPTION] = { cmdev_set_option, UPTO(set_option, optlen), 0 },
	[RDMA_USER_CM_CMD_NOTIFY] = { cmdev_notify, UPTO(notify, event), 0 },
	[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = { cmdev_join_ip_mcast, UPTO(join_ip_mcast, id), sizeof(struct rdma_ucm_create_id_resp) },
	[RDMA_USER_CM_CMD_LEAVE_MCAST] = { cmdev_leave_mcast, UPTO(destroy_id, id), sizeof(struct rdma_ucm_destroy_id_resp) },
	[RDMA_USER_CM_CMD_MIGRATE_ID] = { cmdev_migrate_id, UPTO(migrate_id, fd), sizeof(struct rdma_ucm_migrate_resp) },
	[RDMA_USER_CM_CMD_QUERY] = { cmdev_query, UPTO(query, option), sizeof(struct rdma_ucm_query_path_resp) },
	[RDMA_USER_CM_CMD_BIND] = { cmdev_bind, UPTO(bind, addr), 0 },
	[RDMA_USER_CM_CMD_RESOLVE_ADDR] = { cmdev_resolve_addr, UPTO(resolve_addr, dst_addr), 0 },
	[RDMA_USER_CM_CMD_JOIN_MCAST] = { cmdev_join_mcast, UPTO(join_mcast, addr), sizeof(struct rdma_ucm_create_id_resp) },
};

/* All commands but the one that waits. */
static int uncancelled(const struct cmdev_command *cmd, struct cmdev_call *c)
{
	SHIM_UNCANCELLED;

	return cmd->fn(c);
}

static int dispatch(struct cmdev_file *f, const void *buf, size_t n)
{
	struct cmdev_call c = { .file = f };
	struct rdma_ucm_cmd_hdr hdr;
	const struct cmdev_command *cmd;

	if (n < sizeof(hdr))
		return -EINVAL;
	memcpy(&hdr, buf, sizeof(hdr));
	if (hdr.in > n - sizeof(hdr))
		return -EINVAL;
	if (hdr.cmd >= ARRAY_SIZE(commands) || !commands[hdr.cmd].fn)
		return -ENOSYS;
	cmd = &commands[hdr.cmd];
	if (hdr.in < cmd->in)
		return -EINVAL;
	if (hdr.out < cmd->out)
		return -ENOSPC;
	c.in = hdr.in;
	c.out = hdr.out;
	memcpy(&c.cmd, (const u8 *)buf + sizeof(hdr), min((size_t)hdr.in, sizeof(c.cmd)));
	return cmd->fn == get_event ? get_event(&c) : uncancelled(cmd, &c);
}

/**
 * shim_cmdev_write() - a write() to a descriptor, if it is the device's
 * @fd: descriptor
 * @buf: command
 * @n: its length
 * @ret: what write() returns, with errno if -1
 *
 * Return: false if @fd is not the device's.
 */
bool shim_cmdev_write(int fd, const void *buf, size_t n, ssize_t *ret)
{
	struct cmdev_file *f;
	int err = -EBADF;

	if (!shim_cmdev_is(fd))
		return false;
	pthread_mutex_lock(&cmdev_lock);
	f = cmdev_file_get(fd);
	pthread_mutex_unlock(&cmdev_lock);
	if (f) {
		err = unlikely(f->inherited) ? adopt(f) : 0;
		if (!err)
			err = dispatch(f, buf, n);
		cmdev_file_put(f);
	}
	*ret = err ? shim_minus_one(err) : (ssize_t)n;
	return true;
}
