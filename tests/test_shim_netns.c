// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The shim's devices while interfaces come and go: in a network namespace of its own, with a TAP interface. Skipped where neither root nor
 * a user namespace allows that.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "netns.h"
#include "shim/verbs_internal.h"

#define WAIT_MS 10000

static int ctl = -1; /* socket for ioctl */

static int set_flags(const char *name, short flags)
{
	struct ifreq r = { .ifr_flags = flags };

	strcpy(r.ifr_name, name);
	return ioctl(ctl, SIOCSIFFLAGS, &r);
}

static int plug_tap(void)
{
	struct ifreq r = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	strcpy(r.ifr_name, "tap0");
	if (fd >= 0 && ioctl(fd, TUNSETIFF, &r)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static bool enter_namespace(void)
{
	if (!netns_enter())
		return false;
	ctl = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return ctl >= 0;
}

static struct ibv_device *find_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *found = NULL;
	int i;

	assert_non_null(list);
	for (i = 0; list[i]; i++)
		if (!strcmp(list[i]->name, name))
			found = list[i];
	ibv_free_device_list(list);
	return found;
}

/* The device as it comes, or, with @there false, until it is gone. */
static struct ibv_device *wait_device(const char *name, bool there)
{
	struct ibv_device *dev = NULL;
	int i;

	for (i = 0; i < WAIT_MS; i++) {
		dev = find_device(name);
		if (!dev == !there)
			break;
		usleep(1000);
	}
	assert_true(!dev == !there);
	return dev;
}

static void expect(struct ibv_context *ctx, enum ibv_event_type type)
{
	struct pollfd p = { .fd = ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_int_equal(ibv_get_async_event(ctx, &ev), 0);
	assert_string_equal(ibv_event_type_str(ev.event_type), ibv_event_type_str(type));
	assert_int_equal(ev.element.port_num, 1);
	ibv_ack_async_event(&ev);
}

static enum ibv_port_state port_state(struct ibv_context *ctx)
{
	struct ibv_port_attr a;

	assert_int_equal(ibv_query_port(ctx, 1, &a), 0);
	return a.state;
}

static void test_interface_comes_and_goes(void **state)
{
	struct ibv_context *ctx;
	struct ibv_device *dev, *again;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	int tap;

	if (!enter_namespace())
		skip();
	assert_non_null(find_device("uwarp_lo"));
	tap = plug_tap();
	if (tap < 0)
		skip();
	dev = wait_device("uwarp_tap0", true);
	ctx = ibv_open_device(dev);
	assert_non_null(ctx);
	assert_int_equal(port_state(ctx), IBV_PORT_DOWN);

	assert_int_equal(set_flags("tap0", IFF_UP), 0);
	expect(ctx, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(port_state(ctx), IBV_PORT_ACTIVE);
	assert_int_equal(set_flags("tap0", 0), 0);
	expect(ctx, IBV_EVENT_PORT_ERR);
	assert_int_equal(port_state(ctx), IBV_PORT_DOWN);

	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	close(tap);
	expect(ctx, IBV_EVENT_DEVICE_FATAL);
	wait_device("uwarp_tap0", false);
	assert_int_equal(port_state(ctx), IBV_PORT_DOWN);
	assert_null(ibv_open_device(dev));
	assert_int_equal(errno, ENODEV);
	assert_string_equal(ibv_get_device_name(dev), "uwarp_tap0"); /* pointers never die */

	tap = plug_tap();
	assert_true(tap >= 0);
	again = wait_device("uwarp_tap0", true);
	assert_ptr_not_equal(again, dev);
	assert_int_not_equal(ibv_get_device_index(again), ibv_get_device_index(dev));
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	close(tap);
	wait_device("uwarp_tap0", false);
	close(ctl);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_interface_comes_and_goes) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
