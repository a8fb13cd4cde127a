// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * iwcm on the host port while interfaces and addresses of the machine come and go: in a network namespace of its own, with a TAP interface.
 * Skipped where neither root nor a user namespace allows that.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "iwcm/iwcm_nic.h"
#include "netns.h"

#define WAIT_MS 10000

static bool allowed;
static int ctl = -1; /* socket for ioctl */
static struct iwcm_ctx *ctx;

static int set_up(const char *name)
{
	struct ifreq r = { .ifr_flags = IFF_UP | IFF_RUNNING };

	strcpy(r.ifr_name, name);
	return ioctl(ctl, SIOCSIFFLAGS, &r);
}

static void set_addr(const char *name, const char *addr)
{
	struct ifreq r = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&r.ifr_addr;

	strcpy(r.ifr_name, name);
	in->sin_family = AF_INET;
	assert_int_equal(inet_pton(AF_INET, addr, &in->sin_addr), 1);
	assert_int_equal(ioctl(ctl, SIOCSIFADDR, &r), 0);
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

static void wait_devices(size_t n)
{
	int i;

	for (i = 0; i < WAIT_MS && iwcm_devices(ctx, NULL, 0) != n; i++)
		usleep(1000);
	assert_int_equal(iwcm_devices(ctx, NULL, 0), n);
}

static struct sockaddr_in addr(const char *text, u16 port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET, text, &in.sin_addr), 1);
	return in;
}

static struct iwcm_id *listen_on(const char *text, u16 port)
{
	struct sockaddr_in at = addr(text, port);
	struct iwcm_id *id;

	assert_int_equal(iwcm_create_id(ctx, NULL, &id), 0);
	assert_int_equal(iwcm_bind(id, (struct sockaddr *)&at), 0);
	assert_int_equal(iwcm_listen(id, 4), 0);
	return id;
}

static void expect(struct iwcm_event *ev, enum iwcm_event_type type)
{
	assert_int_equal(iwcm_get_event(ctx, ev, WAIT_MS), 0);
	assert_string_equal(iwcm_event_str(ev->type), iwcm_event_str(type));
}

/* Until the listener has followed the address, and somebody answers. */
static void connect_to(const char *text, u16 port, struct iwcm_id **client, struct iwcm_id **server)
{
	struct sockaddr_in to = addr(text, port);
	struct iwcm_event ev;
	int tries = 200;

again:
	assert_int_equal(iwcm_create_id(ctx, NULL, client), 0);
	assert_int_equal(iwcm_resolve(*client, NULL, (struct sockaddr *)&to), 0);
	assert_int_equal(iwcm_get_event(ctx, &ev, WAIT_MS), 0);
	if (ev.type == IWCM_EVENT_RESOLVED) {
		assert_int_equal(iwcm_connect(*client, NULL), 0);
		assert_int_equal(iwcm_get_event(ctx, &ev, WAIT_MS), 0);
	}
	if ((ev.type == IWCM_EVENT_CONNECT_ERROR || ev.type == IWCM_EVENT_RESOLVE_ERROR) && --tries) {
		iwcm_destroy_id(*client);
		usleep(10000);
		goto again;
	}
	assert_int_equal(ev.type, IWCM_EVENT_CONNECT_REQUEST);
	*server = ev.id;
	assert_int_equal(iwcm_accept(*server, NULL), 0);
	expect(&ev, IWCM_EVENT_ESTABLISHED);
	expect(&ev, IWCM_EVENT_ESTABLISHED);
}

static void expect_end(struct iwcm_id *a, struct iwcm_id *b)
{
	unsigned int closed = 0;
	struct iwcm_event ev;

	while (closed < 2) {
		assert_int_equal(iwcm_get_event(ctx, &ev, WAIT_MS), 0);
		assert_true(ev.id == a || ev.id == b);
		assert_true(ev.type == IWCM_EVENT_DISCONNECTED || ev.type == IWCM_EVENT_CLOSED);
		closed += ev.type == IWCM_EVENT_CLOSED;
	}
	iwcm_destroy_id(a);
	iwcm_destroy_id(b);
}

static int setup(void **state)
{
	return allowed ? iwcm_open(NULL, &ctx) : 0;
}

static int teardown(void **state)
{
	if (allowed)
		iwcm_close(ctx);
	return 0;
}

static void test_interface(void **state)
{
	struct iwcm_id *wild, *exact, *client, *server;
	struct iwcm_event ev;
	int tap, round;

	if (!allowed)
		skip();
	wait_devices(1);
	wild = listen_on("0.0.0.0", 7471);
	for (round = 0; round < 3; round++) {
		tap = plug_tap();
		if (tap < 0)
			skip();
		set_addr("tap0", "192.0.2.1");
		assert_int_equal(set_up("tap0"), 0);
		wait_devices(2);
		connect_to("192.0.2.1", 7471, &client, &server);
		exact = listen_on("192.0.2.1", 7472);
		close(tap); /* the interface goes */
		wait_devices(1);
		do { /* the connection may end a moment before or after */
			assert_int_equal(iwcm_get_event(ctx, &ev, WAIT_MS), 0);
			assert_true(ev.id != exact || ev.type == IWCM_EVENT_DEVICE_REMOVED);
		} while (ev.id != exact && ev.type != IWCM_EVENT_CLOSED);
		iwcm_destroy_id(exact);
		iwcm_destroy_id(client);
		iwcm_destroy_id(server);
	}
	iwcm_destroy_id(wild);
}

static void test_address(void **state)
{
	struct iwcm_id *wild, *client, *server;
	int tap;

	if (!allowed)
		skip();
	tap = plug_tap();
	if (tap < 0)
		skip();
	set_addr("tap0", "192.0.2.1");
	assert_int_equal(set_up("tap0"), 0);
	wait_devices(2);
	wild = listen_on("0.0.0.0", 7471);
	connect_to("192.0.2.1", 7471, &client, &server);
	set_addr("tap0", "192.0.2.9"); /* instead of the first */
	expect_end(client, server);
	connect_to("192.0.2.9", 7471, &client, &server);
	assert_int_equal(iwcm_disconnect(client), 0);
	expect_end(client, server);
	iwcm_destroy_id(wild);
	close(tap);
	wait_devices(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_interface, setup, teardown),
		cmocka_unit_test_setup_teardown(test_address, setup, teardown),
	};

	allowed = enter_namespace(); /* before there are threads */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
