/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * starve: interfaces that come, get addresses, go down, and go, in a network namespace of the run's own. Whatever fails meanwhile: soon the NICs are what the interfaces are, and
 * whoever listens on all of them can be reached there.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "world.h"

#define TAP "tap0"
#define ADDR "192.0.2.1"

/* The machine's administrator makes these calls, and they do not fail. */
int __real_socket(int domain, int kind, int protocol);
int __real_ioctl(int fd, unsigned long req, ...);

static int ctl = -1;

static int set_flags(const char *name, short flags)
{
	struct ifreq r = { .ifr_flags = flags };

	strcpy(r.ifr_name, name);
	return __real_ioctl(ctl, SIOCSIFFLAGS, &r);
}

static int set_addr(void)
{
	struct ifreq r = { .ifr_name = TAP };
	struct sockaddr_in *in = (struct sockaddr_in *)&r.ifr_addr;

	in->sin_family = AF_INET;
	inet_pton(AF_INET, ADDR, &in->sin_addr);
	return __real_ioctl(ctl, SIOCSIFADDR, &r);
}

static int plug(void)
{
	struct ifreq r = { .ifr_name = TAP, .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	if (fd >= 0 && !__real_ioctl(fd, TUNSETIFF, &r))
		return fd;
	close(fd);
	return -1;
}

static bool enter_namespace(void)
{
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return false;
	ctl = __real_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return ctl >= 0 && !set_flags("lo", IFF_UP | IFF_RUNNING);
}

const char *ifaces_missing(void)
{
	if (!enter_namespace())
		return "network namespaces cannot be made here";
	return plug() < 0 ? "TAP interfaces cannot be made here" : NULL;
}

static bool find(struct world *w, struct iwcm_device *d)
{
	struct iwcm_device all[8];
	size_t i, n = iwcm_devices(w->ctx[SERVER], all, ARRAY_SIZE(all));

	for (i = 0; i < n && i < ARRAY_SIZE(all); i++) {
		*d = all[i];
		if (!strcmp(d->iface, TAP))
			return true;
	}
	return false;
}

static bool is_ready(void *arg)
{
	struct iwcm_device d;
	unsigned int i;

	if (!find(arg, &d) || !d.up)
		return false;
	for (i = 0; i < d.num_addrs && i < ARRAY_SIZE(d.addr); i++)
		if (d.addr[i].ss_family == AF_INET)
			return true;
	return false;
}

static bool is_up(void *arg)
{
	struct iwcm_device d;

	return find(arg, &d) && d.up;
}

static bool is_down(void *arg)
{
	struct iwcm_device d;

	return find(arg, &d) && !d.up;
}

static bool is_gone(void *arg)
{
	struct iwcm_device d;

	return !find(arg, &d);
}

/* One try to connect to the listener on all addresses, from the new interface to itself. */
static int try_connect(struct world *w, u16 port)
{
	int err = world_resolve(w, ADDR, port);

	if (!err)
		err = world_connect(w, NULL);
	if (!err)
		err = world_accept(w, NULL);
	return err;
}

/* The listener may not be there yet: so many times. */
#define TRIES 5

static int reach(struct world *w, u16 port)
{
	struct iwcm_id *listener = w->listener;
	int i, err = -ETIME, rc;

	for (i = 0; i < TRIES && err; i++) {
		if (i)
			sleep(1);
		w->listener = NULL; /* stays */
		err = try_connect(w, port);
		rc = world_take_down(w);
		err = rc == -ETIME ? rc : err;
	}
	w->listener = listener;
	return err ? world_said("the listener on the new interface cannot be reached", -ETIME) : 0;
}

static int follow(struct world *w, u16 port)
{
	int tap = plug(), err = tap < 0 || set_flags(TAP, IFF_UP) ? -errno : 0;

	if (!err)
		err = world_wait(w, is_up, w, "a NIC on the new interface");
	if (!err && set_addr())
		err = -errno;
	if (!err)
		err = world_wait(w, is_ready, w, "its address");
	if (!err)
		err = reach(w, port);
	if (!err && set_flags(TAP, 0))
		err = -errno;
	if (!err)
		err = world_wait(w, is_down, w, "the NIC to be down");
	close(tap);
	return err ? err : world_wait(w, is_gone, w, "the NIC to be gone");
}

int ifaces_run(void)
{
	static struct world w;
	u16 port = 0;
	int err;

	if (!enter_namespace())
		return world_said("namespace", -errno);
	err = world_open(&w, true, NULL, IRDMA_GEN_2);
	if (!err)
		err = world_listen(&w, "0.0.0.0", &port);
	if (!err)
		err = follow(&w, port);
	iwcm_destroy_id(w.listener);
	world_close(&w);
	close(ctl);
	return err;
}
