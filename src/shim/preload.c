/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: the functions of libc that are put in front.
 *
 *   open and kin       /dev/infiniband/rdma_cm is cmdev.c's; everything else is not touched
 *   fstat and kin      on such a descriptor: a character device, which is what librdmacm wants to see
 *   write, close, dup2, dup3, close_range, closefrom
 *                      as above; for others one test of a table, then the real function: these are async-signal-safe, and errno is the real one's.
 *                      The NIC's own descriptors, of which the program knows nothing, are not open to it: close gives EBADF, ranges leave them out, and nothing is put
 *                      in their place (EBUSY). In a child of vfork() all is done as asked: it has descriptors of its own.
 *   dlopen             of libibverbs gives this library, for those who go on with dlsym() (ctypes, NCCL)
 *   nl_connect         to NETLINK_RDMA fails, or a kernel with RDMA of its own would be asked for its devices first
 *
 * The real functions are looked up when this library is loaded. Whoever calls before that, from another library's constructor, gets the bare system
 * call. Not put in front are read, poll, epoll, fcntl: the descriptor is a real eventfd.
 */
/* With it open() is another name for open64(), and both are defined here. */
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netlink/errno.h>
#include <netlink/netlink.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "shim/shim_internal.h"

#define CM_PATH "/dev/infiniband/rdma_cm"
#define CM_MAJOR 10u /* misc; the minor is of no interest */
#define CM_MINOR 58u

/* Glibc declares these for its own headers only, or no more. */
SHIM_EXPORT int __open_2(const char *path, int flags);
SHIM_EXPORT int __open64_2(const char *path, int flags);
SHIM_EXPORT int __openat_2(int dir, const char *path, int flags);
SHIM_EXPORT int __openat64_2(int dir, const char *path, int flags);
SHIM_EXPORT int __fxstat(int version, int fd, struct stat *st);
SHIM_EXPORT int __fxstat64(int version, int fd, struct stat64 *st);

/* ---- before the real functions are known ---- */

static int bare_openat(int dir, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t); /* all callers here give it */
	va_end(ap);
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

static int bare_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}

static ssize_t bare_write(int fd, const void *buf, size_t n)
{
	return syscall(SYS_write, fd, buf, n);
}

static int bare_fstat(int fd, struct stat *st)
{
	return fstatat(fd, "", st, AT_EMPTY_PATH);
}

static int bare_dup3(int old, int fd, int flags)
{
	return (int)syscall(SYS_dup3, old, fd, flags);
}

static int bare_dup2(int old, int fd)
{
	return old == fd ? fcntl(old, F_GETFD) < 0 ? -1 : fd : bare_dup3(old, fd, 0);
}

static int bare_close_range(unsigned int first, unsigned int last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

static int no_nl_connect(struct nl_sock *sk, int protocol)
{
	return -NLE_OPNOTSUPP;
}

static void *late_dlopen(const char *path, int mode);

int (*real_close)(int fd) = bare_close;
ssize_t (*real_write)(int fd, const void *buf, size_t n) = bare_write;
static int (*real_openat)(int dir, const char *path, int flags, ...) = bare_openat;
static int (*real_fstat)(int fd, struct stat *st) = bare_fstat;
static int (*real_dup2)(int old, int fd) = bare_dup2;
int (*real_dup3)(int old, int fd, int flags) = bare_dup3;
static int (*real_close_range)(unsigned int first, unsigned int last, int flags) = bare_close_range;
static int (*real_nl_connect)(struct nl_sock *sk, int protocol) = no_nl_connect;
static void *(*real_dlopen)(const char *path, int mode) = late_dlopen;

/* Keeps what is there if libc has none. */
static void look_up(void *slot, const char *name)
{
	void *fn = dlsym(RTLD_NEXT, name);

	if (fn)
		memcpy(slot, &fn, sizeof(fn));
}

/* There is no system call to fall back on. */
static void *late_dlopen(const char *path, int mode)
{
	look_up(&real_dlopen, "dlopen");
	return real_dlopen == late_dlopen ? NULL : real_dlopen(path, mode);
}

/* Before the constructors of programs and of libraries that use this one. */
__attribute__((constructor(101))) static void preload_init(void)
{
	look_up(&real_close, "close");
	fd_real_close = real_close;
	look_up(&real_write, "write");
	look_up(&real_openat, "openat");
	look_up(&real_fstat, "fstat");
	look_up(&real_dup2, "dup2");
	look_up(&real_dup3, "dup3");
	look_up(&real_close_range, "close_range");
	look_up(&real_nl_connect, "nl_connect");
	look_up(&real_dlopen, "dlopen");
}

/* ---- open ---- */

static bool is_cm(const char *path)
{
	return path && path[0] == '/' && !strcmp(path, CM_PATH);
}

static int open_cm(int flags)
{
	if (flags & O_DIRECTORY) {
		errno = ENOTDIR;
		return -1;
	}
	if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
		errno = EEXIST;
		return -1;
	}
	return shim_cmdev_open(flags);
}

static int do_open(int dir, const char *path, int flags, mode_t mode)
{
	return unlikely(is_cm(path)) ? open_cm(flags) : real_openat(dir, path, flags, mode);
}

/* The mode is there if the flags say so; O_TMPFILE is more than one bit. */
#define MODE_OF(flags, mode) \
	do { \
		if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
			va_list ap; \
			va_start(ap, flags); \
			(mode) = va_arg(ap, mode_t); \
			va_end(ap); \
		} \
	} while (0)

SHIM_EXPORT int open(const char *path, int flags, ...)
{
	mode_t mode = 0;

	MODE_OF(flags, mode);
	return do_open(AT_FDCWD, path, flags, mode);
}

SHIM_EXPORT int open64(const char *path, int flags, ...)
{
	mode_t mode = 0;

	MODE_OF(flags, mode);
	return do_open(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

SHIM_EXPORT int openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;

	MODE_OF(flags, mode);
	return do_open(dir, path, flags, mode);
}

SHIM_EXPORT int openat64(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;

	MODE_OF(flags, mode);
	return do_open(dir, path, flags | O_LARGEFILE, mode);
}

/* What _FORTIFY_SOURCE makes of calls without a mode. */
int __open_2(const char *path, int flags)
{
	return do_open(AT_FDCWD, path, flags, 0);
}

int __open64_2(const char *path, int flags)
{
	return do_open(AT_FDCWD, path, flags | O_LARGEFILE, 0);
}

int __openat_2(int dir, const char *path, int flags)
{
	return do_open(dir, path, flags, 0);
}

int __openat64_2(int dir, const char *path, int flags)
{
	return do_open(dir, path, flags | O_LARGEFILE, 0);
}

/* ---- fstat ---- */

static int do_fstat(int fd, struct stat *st)
{
	int ret = real_fstat(fd, st);

	if (!ret && unlikely(shim_cmdev_is(fd))) {
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = makedev(CM_MAJOR, CM_MINOR);
	}
	return ret;
}

static_assert(sizeof(struct stat) == sizeof(struct stat64), "one struct stat on 64-bit machines");

SHIM_EXPORT int fstat(int fd, struct stat *st)
{
	return do_fstat(fd, st);
}

SHIM_EXPORT int fstat64(int fd, struct stat64 *st)
{
	return do_fstat(fd, (struct stat *)st);
}

int __fxstat(int version, int fd, struct stat *st)
{
	return do_fstat(fd, st);
}

int __fxstat64(int version, int fd, struct stat64 *st)
{
	return do_fstat(fd, (struct stat *)st);
}

/* ---- write, close and what closes ---- */

SHIM_EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	ssize_t ret;

	if (unlikely(shim_cmdev_is(fd)) && shim_cmdev_write(fd, buf, n, &ret))
		return ret;
	return real_write(fd, buf, n);
}

static bool is_nics(int fd)
{
	return unlikely(fd_is_own(fd)) && fd_same_process();
}

SHIM_EXPORT int close(int fd)
{
	int ret;

	if (is_nics(fd)) {
		errno = EBADF;
		return -1;
	}
	if (unlikely(shim_cmdev_is(fd)) && shim_cmdev_close(fd, &ret))
		return ret;
	fd_taken((unsigned int)fd, (unsigned int)fd);
	return real_close(fd);
}

/* The descriptor that is replaced is closed, unless @old is not open. False: nothing may replace it. */
static bool replace(int old, int fd)
{
	bool nics = is_nics(fd), cm = unlikely(shim_cmdev_is(fd));
	int ret;

	if (old == fd || ((nics || cm) && fcntl(old, F_GETFD) < 0))
		return true;
	if (nics) {
		errno = EBUSY;
		return false;
	}
	if (cm)
		shim_cmdev_close(fd, &ret);
	fd_taken((unsigned int)fd, (unsigned int)fd);
	return true;
}

SHIM_EXPORT int dup2(int old, int fd)
{
	return replace(old, fd) ? real_dup2(old, fd) : -1;
}

SHIM_EXPORT int dup3(int old, int fd, int flags)
{
	return replace(old, fd) ? real_dup3(old, fd, flags) : -1;
}

/* All but the NIC's own. */
static int close_between(unsigned int first, unsigned int last, int flags)
{
	int own, ret = 0;

	while (!ret && (own = fd_next_own(first)) >= 0 && (unsigned int)own <= last) {
		if (first < (unsigned int)own)
			ret = real_close_range(first, (unsigned int)own - 1, flags);
		first = (unsigned int)own + 1;
	}
	return ret || first > last ? ret : real_close_range(first, last, flags);
}

SHIM_EXPORT int close_range(unsigned int first, unsigned int last, int flags)
{
	if (flags & (int)CLOSE_RANGE_CLOEXEC || first > last)
		return real_close_range(first, last, flags);
	shim_cmdev_close_range(first, last);
	fd_taken(first, last);
	return fd_same_process() ? close_between(first, last, flags) : real_close_range(first, last, flags);
}

SHIM_EXPORT void closefrom(int first)
{
	close_range((unsigned int)max(first, 0), ~0u, 0);
}

/* ---- dlopen ---- */

static bool is_libibverbs(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;

	return name && (!strcmp(name, "libibverbs.so") || !strcmp(name, "libibverbs.so.1"));
}

/* A file that is loaded is recognised by its path. */
static void *own_handle(int mode)
{
	Dl_info info;

	if (!dladdr(__extension__(void *)own_handle, &info))
		return NULL;
	return real_dlopen(info.dli_fname, (mode & ~RTLD_DEEPBIND) | RTLD_NOLOAD);
}

/* The last call is a jump (at -O1 and above): the real function goes by its return address to find the caller's RUNPATH. */
SHIM_EXPORT void *dlopen(const char *path, int mode)
{
	void *handle = unlikely(is_libibverbs(path)) ? own_handle(mode) : NULL;

	if (handle)
		return handle;
	return real_dlopen(path, mode);
}

/* ---- libnl ---- */

SHIM_EXPORT int nl_connect(struct nl_sock *sk, int protocol)
{
	return protocol == NETLINK_RDMA ? -NLE_OPNOTSUPP : real_nl_connect(sk, protocol);
}
