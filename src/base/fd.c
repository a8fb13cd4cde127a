/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* base: the NIC's own descriptors, a bit each. */
#include <fcntl.h>
#include <unistd.h>
#include "base/fd.h"

#define HIGH_FD 512

int (*fd_real_close)(int fd) = close;
u64 fd_own_bits[FD_MAX / 64];
static u64 spare_bits[FD_MAX / 64];
static pid_t owner; /* atomic */

static void set(u64 *bits, int fd)
{
	__atomic_fetch_or(&bits[fd / 64], fd_bit(fd), __ATOMIC_RELAXED);
}

/* Was it set? */
static bool clear(u64 *bits, int fd)
{
	return __atomic_fetch_and(&bits[fd / 64], ~fd_bit(fd), __ATOMIC_RELAXED) & fd_bit(fd);
}

static bool known(int fd)
{
	return fd >= 0 && fd < FD_MAX;
}

/**
 * fd_own() - a descriptor is the NIC's
 * @fd: just opened, or negative: then nothing is done and errno stays
 *
 * Return: @fd.
 */
int fd_own(int fd)
{
	if (!known(fd))
		return fd;
	if (unlikely(!__atomic_load_n(&owner, __ATOMIC_RELAXED)))
		__atomic_store_n(&owner, getpid(), __ATOMIC_RELAXED);
	set(fd_own_bits, fd);
	return fd;
}

/**
 * fd_own_high() - the same, at a high number
 * @fd: as above; closed if another number takes its place. For what there are few of
 *
 * Return: the descriptor, with FD_CLOEXEC; @fd if it is negative, or if no high number can be had.
 */
int fd_own_high(int fd)
{
	int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);

	if (high < 0)
		return fd_own(fd);
	fd_real_close(fd);
	return fd_own(high);
}

/**
 * fd_disown() - not the NIC's any more
 * @fd: descriptor; whoever called closes it next
 */
void fd_disown(int fd)
{
	if (!known(fd))
		return;
	clear(fd_own_bits, fd);
	clear(spare_bits, fd);
}

/**
 * fd_disown_close() - close what is the NIC's
 * @fd: own or spare; if it is neither the program has closed it, and the number may be somebody else's: then, or if it is negative, nothing is done
 */
void fd_disown_close(int fd)
{
	bool own, spare;

	if (fd < 0)
		return;
	own = known(fd) && clear(fd_own_bits, fd); /* first: from the close on somebody else may get the number */
	spare = known(fd) && clear(spare_bits, fd);
	if (own || spare || !known(fd))
		fd_real_close(fd);
}

/**
 * fd_spare() - the program may close it
 * @fd: own, or negative: nothing is done
 */
void fd_spare(int fd)
{
	if (known(fd) && clear(fd_own_bits, fd))
		set(spare_bits, fd);
}

/**
 * fd_reown() - use it again
 * @fd: own or spare once
 *
 * Return: true: it is own now; false: the program has closed it.
 */
bool fd_reown(int fd)
{
	if (fd < 0)
		return false;
	if (!known(fd) || fd_is_own(fd))
		return true;
	if (!clear(spare_bits, fd))
		return false;
	set(fd_own_bits, fd);
	return true;
}

/* The first bit from @fd to @last, or -1. */
static int find(const u64 *bits, unsigned int fd, unsigned int last)
{
	while (fd <= last && fd < FD_MAX) {
		u64 word = __atomic_load_n(&bits[fd / 64], __ATOMIC_RELAXED) >> fd % 64;

		if (word) {
			fd += (unsigned int)__builtin_ctzll(word);
			return fd <= last ? (int)fd : -1;
		}
		fd = (fd / 64 + 1) * 64;
	}
	return -1;
}

/**
 * fd_next_own() - walk through the NIC's own
 * @fd: where to begin
 *
 * Return: the first one from @fd on, or -1.
 */
int fd_next_own(unsigned int fd)
{
	return find(fd_own_bits, fd, FD_MAX - 1);
}

/**
 * fd_taken() - the program closes descriptors, or replaces them
 * @first: from here
 * @last: to here
 */
void fd_taken(unsigned int first, unsigned int last)
{
	int fd;

	while ((fd = find(spare_bits, first, last)) >= 0 && fd_same_process()) {
		clear(spare_bits, fd);
		first = (unsigned int)fd + 1;
	}
}

/**
 * fd_same_process() - is this the process whose descriptors are known here?
 *
 * Return: false in a child of vfork(), and of a fork() without handlers.
 */
bool fd_same_process(void)
{
	pid_t pid = __atomic_load_n(&owner, __ATOMIC_RELAXED);

	return !pid || pid == getpid();
}

/**
 * fd_fork_child() - the table of descriptors was copied, and so is this
 */
void fd_fork_child(void)
{
	__atomic_store_n(&owner, getpid(), __ATOMIC_RELAXED);
}
