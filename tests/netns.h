/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A network namespace of a test's own: its interfaces, its port numbers, and its sockets in TIME_WAIT are in nobody's way. */
#ifndef UWARP_TESTS_NETNS_H
#define UWARP_TESTS_NETNS_H

#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Before there are threads. With the loopback interface up. False: namespaces cannot be made here. */
static inline bool netns_enter(void)
{
	struct ifreq lo = { .ifr_flags = IFF_UP | IFF_RUNNING };
	int ctl;
	bool up;

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return false;
	ctl = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	strcpy(lo.ifr_name, "lo");
	up = ctl >= 0 && !ioctl(ctl, SIOCSIFFLAGS, &lo);
	if (ctl >= 0)
		close(ctl);
	return up;
}

#endif
