/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * System calls that fail, each in the ways that its man page knows and that matter here; and those that do less than they were asked for. All are called through
 * __wrap_X, which the linker puts in the place of X in the objects of the program (not in shared libraries).
 *
 * What is not ready or comes in parts must be believable: the kernel reports an edge afterwards. So epoll's registrations are noted, and renewed after such a lie.
 */
#include "inject.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define BIT(n) (1ull << (n))
#define HARMLESS 0x10000 /* in the lists below: the call is made again, or waited for, and nobody notices */
#define SHORT_1 (HARMLESS | 0x8001)
#define SHORT_HALF (HARMLESS | 0x8002)
#define MAX_FAULTS 10
#define FDS 4096

struct call {
	const char *name;
	int fault[MAX_FAULTS]; /* errnos, up to 0 */
};

static const struct {
	struct call socket, bind, listen, accept4, connect, send, recv, write_event, read_event, read_file, write_file, epoll_create1, epoll_add, epoll_mod, epoll_wait,
		eventfd, getsockopt, setsockopt, getsockname, ioctl, dup_to, dup3, memfd_create, fopen, open, pthread_create, mmap, ppoll, futex_wait, close_range, fork;
} calls = {
	.socket = { "socket", { EMFILE, ENFILE, ENOBUFS, ENOMEM, EAFNOSUPPORT, EACCES } },
	.bind = { "bind", { EADDRINUSE, EACCES, EADDRNOTAVAIL, ENOMEM } },
	.listen = { "listen", { EADDRINUSE, ENOBUFS } },
	.accept4 = { "accept4", { EAGAIN | HARMLESS, EINTR | HARMLESS, ECONNABORTED, EMFILE | HARMLESS, ENFILE | HARMLESS, ENOBUFS | HARMLESS, ENOMEM | HARMLESS, EPROTO, EPERM } },
	.connect = { "connect", { EAGAIN, EADDRNOTAVAIL, ECONNREFUSED, ENETUNREACH, EPERM, EADDRINUSE, ENOBUFS } },
	.send = { "send", { EAGAIN | HARMLESS, EINTR | HARMLESS, SHORT_1, SHORT_HALF, ENOBUFS, ENOMEM, EPIPE, ECONNRESET } },
	.recv = { "recv", { EAGAIN | HARMLESS, EINTR | HARMLESS, SHORT_1, SHORT_HALF, ENOMEM, ENOBUFS, ECONNRESET, ETIMEDOUT } },
	.write_event = { "write", { EINTR | HARMLESS, EAGAIN | HARMLESS } },
	.read_event = { "read", { EINTR | HARMLESS, EAGAIN | HARMLESS } },
	.read_file = { "read", { EINTR | HARMLESS, SHORT_1, SHORT_HALF, EIO } },
	.write_file = { "write", { EINTR | HARMLESS, SHORT_1, SHORT_HALF, ENOSPC, EIO } },
	.epoll_create1 = { "epoll_create1", { EMFILE, ENFILE, ENOMEM } },
	.epoll_add = { "epoll_ctl ADD", { ENOMEM, ENOSPC } },
	.epoll_mod = { "epoll_ctl MOD", { ENOMEM } },
	.epoll_wait = { "epoll_wait", { EINTR | HARMLESS } },
	.eventfd = { "eventfd", { EMFILE, ENFILE, ENOMEM } },
	.getsockopt = { "getsockopt", { ENOBUFS, ENOMEM } },
	.setsockopt = { "setsockopt", { ENOBUFS, ENOMEM, EPERM } },
	.getsockname = { "getsockname", { ENOBUFS } },
	.ioctl = { "ioctl", { ENOMEM } },
	.dup_to = { "fcntl DUPFD", { EMFILE } },
	.dup3 = { "dup3", { EMFILE, EBUSY, EINTR } },
	.memfd_create = { "memfd_create", { EMFILE, ENFILE, ENOMEM } },
	.fopen = { "fopen", { EMFILE, ENFILE, ENOMEM, EACCES } },
	.open = { "open", { EINTR, EMFILE, ENFILE, ENOMEM, EACCES } },
	.pthread_create = { "pthread_create", { EAGAIN } },
	.mmap = { "mmap", { ENOMEM } },
	.ppoll = { "ppoll", { EINTR | HARMLESS, ENOMEM | HARMLESS } },
	.futex_wait = { "futex wait", { EINTR | HARMLESS, EAGAIN | HARMLESS } },
	.close_range = { "close_range", { EMFILE, ENOMEM } },
	.fork = { "fork", { EAGAIN, ENOMEM } },
};

static uint32_t variants(const struct call *c)
{
	uint32_t n = 0;

	while (n < MAX_FAULTS && c->fault[n])
		n++;
	return n;
}

static const char *fault_name(int fault)
{
	if (fault == SHORT_1)
		return "1 byte";
	if (fault == SHORT_HALF)
		return "half";
	return strerrorname_np(fault & ~HARMLESS);
}

/* What this call suffers, or 0; what cannot happen to it is passed over: @skip, a bit per place in its list. */
static int fault_of(const struct call *c, uint64_t skip)
{
	char what[64];
	int v = inject_next(INJECT_CALLS, variants(c));

	if (v < 0 || skip & BIT(v))
		return 0;
	snprintf(what, sizeof(what), "%s: %s", c->name, fault_name(c->fault[v]));
	inject_fired(what, c->fault[v] & HARMLESS);
	return c->fault[v];
}

/* True: the call fails, with errno set. */
static bool fails(const struct call *c)
{
	int f = fault_of(c, 0);

	if (!f)
		return false;
	errno = f & ~HARMLESS;
	return true;
}

/* ---- epoll ---- */

int __real_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);

static struct watch {
	int epfd;          /* 0: none */
	struct epoll_event ev;
} watches[FDS];
static pthread_mutex_t watches_lock = PTHREAD_MUTEX_INITIALIZER;

/* The edge that follows. */
static void renew(int fd)
{
	struct watch w = { 0 };

	if (fd < 0 || fd >= FDS)
		return;
	pthread_mutex_lock(&watches_lock);
	w = watches[fd];
	pthread_mutex_unlock(&watches_lock);
	if (w.epfd)
		__real_epoll_ctl(w.epfd, EPOLL_CTL_MOD, fd, &w.ev);
}

static void note(int epfd, int op, int fd, const struct epoll_event *ev)
{
	if (fd < 0 || fd >= FDS)
		return;
	pthread_mutex_lock(&watches_lock);
	watches[fd] = (struct watch){ 0 };
	if (op != EPOLL_CTL_DEL)
		watches[fd] = (struct watch){ epfd, *ev };
	pthread_mutex_unlock(&watches_lock);
}

int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	int rc;

	if (op == EPOLL_CTL_ADD && fails(&calls.epoll_add))
		return -1;
	if (op == EPOLL_CTL_MOD && fails(&calls.epoll_mod))
		return -1;
	rc = __real_epoll_ctl(epfd, op, fd, ev);
	if (!rc)
		note(epfd, op, fd, ev);
	return rc;
}

/* ---- bytes in and out ---- */

/* How many of @len; 0: all; -1: it fails. */
static ssize_t limit(const struct call *c, int fd, size_t len, uint64_t skip)
{
	int f = fault_of(c, skip);

	if (!f)
		return 0;
	if (f == (EAGAIN | HARMLESS))
		renew(fd);
	if (f == SHORT_1)
		return 1;
	if (f == SHORT_HALF)
		return len > 1 ? (ssize_t)len / 2 : 1;
	errno = f & ~HARMLESS;
	return -1;
}

static int socket_type(int fd)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &len) ? 0 : type;
}

#define SKIP_SHORT (BIT(2) | BIT(3))
#define SKIP_AGAIN BIT(0)
#define SKIP_PEER (BIT(6) | BIT(7))

/* Messages are sent and received whole, a blocking socket is waited for, and rtnetlink has no peer that resets. */
static uint64_t impossible(int fd, int flags)
{
	uint64_t skip = 0;

	if (socket_type(fd) != SOCK_STREAM)
		skip |= SKIP_SHORT | SKIP_PEER;
	if (!(flags & MSG_DONTWAIT) && !(fcntl(fd, F_GETFL) & O_NONBLOCK))
		skip |= SKIP_AGAIN;
	return skip;
}

/* @rc bytes went, not all on purpose: an edge follows. */
static ssize_t in_part(int fd, ssize_t rc)
{
	int saved = errno;

	renew(fd);
	errno = saved;
	return rc;
}

static size_t iov_len(const struct msghdr *m)
{
	size_t i, len = 0;

	for (i = 0; i < m->msg_iovlen; i++)
		len += m->msg_iov[i].iov_len;
	return len;
}

/* The first @len bytes of @m. */
static void cut(const struct msghdr *m, size_t len, struct msghdr *out, struct iovec *iov, size_t room)
{
	size_t i, n;

	*out = *m;
	out->msg_iov = iov;
	for (i = 0; i < m->msg_iovlen && i < room && len; i++) {
		n = m->msg_iov[i].iov_len < len ? m->msg_iov[i].iov_len : len;
		iov[i] = (struct iovec){ m->msg_iov[i].iov_base, n };
		len -= n;
	}
	out->msg_iovlen = i;
}

#define PIECES 1024

ssize_t __real_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to, socklen_t tolen);
ssize_t __wrap_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to, socklen_t tolen);
ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __real_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *fromlen);
ssize_t __wrap_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *fromlen);
ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags);

ssize_t __wrap_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to, socklen_t tolen)
{
	ssize_t n = limit(&calls.send, fd, len, impossible(fd, flags));

	if (n < 0)
		return -1;
	if (!n)
		return __real_sendto(fd, buf, len, flags, to, tolen);
	return in_part(fd, __real_sendto(fd, buf, (size_t)n, flags, to, tolen));
}

ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags)
{
	return __wrap_sendto(fd, buf, len, flags, NULL, 0);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	ssize_t n = limit(&calls.send, fd, iov_len(m), impossible(fd, flags));
	struct iovec iov[PIECES];
	struct msghdr part;

	if (n < 0)
		return -1;
	if (!n)
		return __real_sendmsg(fd, m, flags);
	cut(m, (size_t)n, &part, iov, PIECES);
	return in_part(fd, __real_sendmsg(fd, &part, flags));
}

ssize_t __wrap_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *fromlen)
{
	ssize_t n = limit(&calls.recv, fd, len, impossible(fd, flags));

	if (n < 0)
		return -1;
	if (!n)
		return __real_recvfrom(fd, buf, len, flags, from, fromlen);
	return in_part(fd, __real_recvfrom(fd, buf, (size_t)n, flags, from, fromlen));
}

ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags)
{
	return __wrap_recvfrom(fd, buf, len, flags, NULL, NULL);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags)
{
	ssize_t n = limit(&calls.recv, fd, iov_len(m), impossible(fd, flags));
	struct iovec iov[PIECES];
	struct msghdr part;

	if (n < 0)
		return -1;
	if (!n)
		return __real_recvmsg(fd, m, flags);
	cut(m, (size_t)n, &part, iov, PIECES);
	return in_part(fd, __real_recvmsg(fd, &part, flags));
}

/* An eventfd, or a file? They fail in different ways. */
static bool is_event(int fd)
{
	char path[32], name[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, name, sizeof(name) - 1);
	name[n < 0 ? 0 : n] = '\0';
	return !strcmp(name, "anon_inode:[eventfd]");
}

ssize_t __real_read(int fd, void *buf, size_t len);
ssize_t __wrap_read(int fd, void *buf, size_t len);
ssize_t __real_write(int fd, const void *buf, size_t len);
ssize_t __wrap_write(int fd, const void *buf, size_t len);

static uint64_t waits(int fd)
{
	return fcntl(fd, F_GETFL) & O_NONBLOCK ? 0 : BIT(1);
}

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
	ssize_t n = is_event(fd) ? limit(&calls.read_event, fd, len, waits(fd)) : limit(&calls.read_file, fd, len, 0);

	return n < 0 ? -1 : __real_read(fd, buf, n ? (size_t)n : len);
}

ssize_t __wrap_write(int fd, const void *buf, size_t len)
{
	ssize_t n = is_event(fd) ? limit(&calls.write_event, fd, len, waits(fd)) : limit(&calls.write_file, fd, len, 0);

	return n < 0 ? -1 : __real_write(fd, buf, n ? (size_t)n : len);
}

/* ---- the others ---- */

#define WRAP(type, name, params, args, fault, failed) \
	type __real_##name params; \
	type __wrap_##name params; \
	type __wrap_##name params \
	{ \
		return fails(&calls.fault) ? failed : __real_##name args; \
	}

WRAP(int, socket, (int domain, int kind, int protocol), (domain, kind, protocol), socket, -1)
WRAP(int, bind, (int fd, const struct sockaddr *a, socklen_t len), (fd, a, len), bind, -1)
WRAP(int, listen, (int fd, int n), (fd, n), listen, -1)
WRAP(int, epoll_create1, (int flags), (flags), epoll_create1, -1)
WRAP(int, epoll_wait, (int fd, struct epoll_event *ev, int n, int ms), (fd, ev, n, ms), epoll_wait, -1)
WRAP(int, eventfd, (unsigned int v, int flags), (v, flags), eventfd, -1)
WRAP(int, getsockopt, (int fd, int level, int name, void *v, socklen_t *len), (fd, level, name, v, len), getsockopt, -1)
WRAP(int, setsockopt, (int fd, int level, int name, const void *v, socklen_t len), (fd, level, name, v, len), setsockopt, -1)
WRAP(int, getsockname, (int fd, struct sockaddr *a, socklen_t *len), (fd, a, len), getsockname, -1)
WRAP(int, memfd_create, (const char *name, unsigned int flags), (name, flags), memfd_create, -1)
WRAP(int, dup3, (int fd, int to, int flags), (fd, to, flags), dup3, -1)
WRAP(int, dup, (int fd), (fd), dup_to, -1)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), fopen, NULL)
WRAP(int, ppoll, (struct pollfd *p, nfds_t n, const struct timespec *ts, const sigset_t *mask), (p, n, ts, mask), ppoll, -1)
WRAP(void *, mmap, (void *at, size_t len, int prot, int flags, int fd, off_t off), (at, len, prot, flags, fd, off), mmap, MAP_FAILED)

int __real_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);

/* accept(2) passes errors on that are the new connection's: it is gone then. */
int __wrap_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
	int f = fault_of(&calls.accept4, 0), lost;

	if (!f)
		return __real_accept4(fd, a, len, flags);
	if (f == ECONNABORTED || f == EPROTO || f == EPERM) {
		lost = __real_accept4(fd, a, len, flags);
		if (lost >= 0)
			syscall(SYS_close, lost);
	}
	errno = f & ~HARMLESS;
	return -1;
}

int __real_connect(int fd, const struct sockaddr *a, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *a, socklen_t len);

int __wrap_connect(int fd, const struct sockaddr *a, socklen_t len)
{
	if (a->sa_family != AF_UNSPEC && fails(&calls.connect))
		return -1;
	return __real_connect(fd, a, len);
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);

#define THREADS 64

static struct start {
	void *(*fn)(void *arg);
	void *arg;
} starts[THREADS];

static void *begin(void *arg)
{
	struct start *s = arg;

	inject_thread();
	return s->fn(s->arg);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	static unsigned int n;
	struct start *s;

	if (fails(&calls.pthread_create))
		return errno;
	s = &starts[__atomic_fetch_add(&n, 1, __ATOMIC_RELAXED) % THREADS];
	*s = (struct start){ fn, arg };
	return __real_pthread_create(t, attr, begin, s);
}

/* The third argument, whatever it is. */
#define ONE_MORE(last, arg) \
	va_list ap_; \
	long arg; \
	va_start(ap_, last); \
	arg = va_arg(ap_, long); \
	va_end(ap_)

int __real_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...);
int __real_ioctl(int fd, unsigned long req, ...);
int __wrap_ioctl(int fd, unsigned long req, ...);

int __wrap_fcntl(int fd, int cmd, ...)
{
	ONE_MORE(cmd, arg);

	if ((cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) && fails(&calls.dup_to))
		return -1;
	return __real_fcntl(fd, cmd, arg);
}

int __wrap_ioctl(int fd, unsigned long req, ...)
{
	ONE_MORE(req, arg);

	return fails(&calls.ioctl) ? -1 : __real_ioctl(fd, req, arg);
}

/* ---- syscall() ---- */

long __real_syscall(long nr, ...);
long __wrap_syscall(long nr, ...);

static long direct(long nr, const long *a)
{
	switch (nr) {
	case SYS_sendto:
		return __wrap_sendto((int)a[0], (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (socklen_t)a[5]);
	case SYS_sendmsg:
		return __wrap_sendmsg((int)a[0], (void *)a[1], (int)a[2]);
	case SYS_recvfrom:
		return __wrap_recvfrom((int)a[0], (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (void *)a[5]);
	case SYS_recvmsg:
		return __wrap_recvmsg((int)a[0], (void *)a[1], (int)a[2]);
	case SYS_futex:
		if (((int)a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && fails(&calls.futex_wait))
			return -1;
		break;
	case SYS_openat:
		if (fails(&calls.open))
			return -1;
		break;
	case SYS_dup3:
		if (fails(&calls.dup3))
			return -1;
		break;
	case SYS_close_range:
		if (fails(&calls.close_range))
			return -1;
		break;
	default:
		break;
	}
	return __real_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* Takes six arguments, as syscall() does, however many there are. */
__attribute__((no_sanitize("address"))) long __wrap_syscall(long nr, ...)
{
	long a[6];
	va_list ap;
	int i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	return direct(nr, a);
}
