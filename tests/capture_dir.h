/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Captures of what tests on the wire do, for tests/check_captures.sh. With UWARP_TEST_CAPTURE=DIR in the environment each
 * network that a test makes leaves DIR/PROGRAM-N.pcap: what one of its NICs sends and receives, so that each
 * connection is there once. Without it all of this does nothing.
 *
 * Frames that a test damages on the wire do not get into it: a port drops what has a wrong checksum before a capture sees it.
 */
#ifndef UWARP_TESTS_CAPTURE_DIR_H
#define UWARP_TESTS_CAPTURE_DIR_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "port/port.h"

static struct {
	struct port_capture *pcap; /* the one that is open */
	unsigned int n;
} test_capture;

/* The capture of a new network, or NULL. */
static inline struct port_capture *test_capture_open(void)
{
	const char *dir = getenv("UWARP_TEST_CAPTURE");
	char path[256], err[256];

	assert_null(test_capture.pcap);
	if (!dir)
		return NULL;
	snprintf(path, sizeof(path), "%s/%s-%u.pcap", dir, program_invocation_short_name, ++test_capture.n);
	if (port_capture_open(path, &test_capture.pcap, err, sizeof(err)))
		fail_msg("%s", err);
	return test_capture.pcap;
}

/* Before its NIC is unplugged. */
static inline void test_capture_close(void)
{
	if (test_capture.pcap)
		assert_int_equal(port_capture_close(test_capture.pcap), 0);
	test_capture.pcap = NULL;
}

/* A segment that the test hands to @port's NIC past the port: shown to the capture as if it had come through the port. */
static inline void test_capture_feed(struct port *port, const struct pkt_tuple *t, const void *seg, u32 len)
{
	struct pkt_route r = { .smac = { 2, 0, 0, 0, 0, 0xFE }, .dmac = { 2, 0, 0, 0, 0, 1 }, .vlan_id = t->vlan_id, .ipv4 = t->ipv4, .ttl = 64 };
	u8 *mem, *frame;
	struct pkt p;
	struct port_tap *tap;

	if (!test_capture.pcap)
		return;
	mem = malloc(PKT_HDR_MAX + len);
	assert_non_null(mem);
	memcpy(r.src, t->rem_addr, sizeof(r.src));
	memcpy(r.dst, t->loc_addr, sizeof(r.dst));
	memcpy(mem + PKT_HDR_MAX, seg, len);
	frame = pkt_push_headers(&r, mem + PKT_HDR_MAX, len, 0);
	assert_int_equal(pkt_parse(frame, (u32)(mem + PKT_HDR_MAX + len - frame), true, &p), PKT_OK);
	TAILQ_FOREACH(tap, &port->taps, entry)
		tap->frame(tap, port, false, &p, loop_now(port->loop));
	free(mem);
}

#endif
