/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: the program's memory, which commands of the rdma_cm device point to.
 *
 * A bad pointer gives EFAULT, as from a kernel, which process_vm_writev() and process_vm_readv() see to. librdmacm has what it points to on the calling
 * thread's stack, and what lies between a thread's stack pointer and the top of its stack is there without doubt: that is copied without asking the kernel.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "shim/cmdev_internal.h"

static __thread struct {
	bool known;
	uintptr_t low, top; /* both 0: not known to libc either */
} stack;

static void find_stack(void)
{
	pthread_attr_t attr;
	size_t size;
	void *low;

	stack.known = true;
	if (pthread_getattr_np(pthread_self(), &attr))
		return;
	if (!pthread_attr_getstack(&attr, &low, &size)) {
		stack.low = (uintptr_t)low;
		stack.top = stack.low + size;
	}
	pthread_attr_destroy(&attr);
}

/* Programs may run on stacks that they made themselves: the stack pointer says whether this one is the thread's own. */
static bool on_stack(u64 at, size_t len)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	if (unlikely(!stack.known))
		find_stack();
	return here >= stack.low && at >= here && at < stack.top && len <= stack.top - at;
}

/* Containers may forbid the calls; then a bad pointer is the program's own funeral. */
static bool forbidden(ssize_t n)
{
	return n < 0 && (errno == EPERM || errno == ENOSYS);
}

static int copied(ssize_t n, size_t len)
{
	return n == (ssize_t)len ? 0 : -EFAULT;
}

int cmdev_put(u64 to, const void *from, size_t len)
{
	struct iovec local = { (void *)from, len }, remote = { (void *)(uintptr_t)to, len };
	ssize_t n = 0;

	if (on_stack(to, len) || forbidden(n = process_vm_writev(getpid(), &local, 1, &remote, 1, 0))) {
		memcpy(remote.iov_base, from, len);
		return 0;
	}
	return copied(n, len);
}

int cmdev_get(void *to, u64 from, size_t len)
{
	struct iovec local = { to, len }, remote = { (void *)(uintptr_t)from, len };
	ssize_t n = 0;

	if (on_stack(from, len) || forbidden(n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0))) {
		memcpy(to, remote.iov_base, len);
		return 0;
	}
	return copied(n, len);
}
