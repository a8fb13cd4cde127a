/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tiny CM on a host port, for tests: endpoints that speak TCP segments through address handles, plain sockets for the other end, and
 * a loop stepped by the test. Loop time is the real one plus .skip_ns.
 */
#ifndef UWARP_TESTS_HOST_CM_H
#define UWARP_TESTS_HOST_CM_H

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <sys/socket.h>
#include "port/port.h"

#define CM_BUF 65536

struct cm;

struct cm_ep {
	struct cm *cm;
	struct port_ah *ah;
	struct port_filter *filter; /* that its SYN came through */
	struct pkt_tuple tuple;
	u32 iss, snd_nxt, snd_una;
	u32 irs, rcv_nxt;
	u32 window;          /* raw */
	int wscale;          /* offered; -1: not */
	int peer_wscale;     /* -1: not offered */
	u32 peer_mss;
	int syns, synacks, acks, datas, fins, rsts;
	int error;           /* of the RST */
	u32 rst_seq;
	u8 last_flags;
	u16 last_window;
	u8 buf[CM_BUF];
	u32 len;
	bool auto_ack;       /* answer data and FIN with an ACK at once */
	/* after offload */
	struct port_stream *stream;
	u32 events;          /* all raised so far */
	int calls;
	bool close_in_event, drain_in_event;
	LIST_ENTRY(cm_ep) entry;
};

struct cm {
	struct loop loop;
	struct port_host *h;
	struct port *port;
	u64 skip_ns;
	LIST_HEAD(, cm_ep) eps;
	bool answer;         /* a SYN gets an endpoint and a SYN+ACK at once */
	int refuse;          /* so many next segments are not taken */
	int room;            /* may_accept() so often; -1: for ever */
	int asked, syns;
	struct cm_ep *last;  /* latest passive endpoint */
	struct pkt_tuple last_tuple;
	struct port_filter *last_filter;
	u32 last_seq;
};

void cm_start(struct cm *cm);
void cm_stop(struct cm *cm);
void cm_plug(struct cm *cm, struct port_host *h); /* on an instance that exists */
void cm_unplug(struct cm *cm);
/* Handle what there is, once; true if anything was done. */
bool cm_step(struct cm *cm);
/* Until @cond, at most 5 s. */
#define cm_until(cm, cond) do { \
		u64 _end = loop_monotonic_ns() + 5 * NSEC_PER_SEC; \
		while (!(cond) && loop_monotonic_ns() < _end) \
			cm_wait(cm, 10); \
		assert_true(cond); \
	} while (0)
void cm_wait(struct cm *cm, int ms); /* at most so long for something, and handle it */
void cm_settle(struct cm *cm);       /* until nothing has happened for 20 ms */

struct cm_ep *cm_ep_new(struct cm *cm, const struct pkt_tuple *t);
void cm_ep_free(struct cm_ep *ep);   /* destroys its handle */
void cm_ep_send_at(struct cm_ep *ep, u32 seq, u8 flags, const void *data, u32 len);
void cm_ep_send(struct cm_ep *ep, u8 flags, const void *data, u32 len);
void cm_ep_answer(struct cm_ep *ep); /* passive: handle and SYN+ACK */
struct cm_ep *cm_connect(struct cm *cm, bool ipv4, u16 number); /* to loopback; established when it returns */
int cm_offload(struct cm_ep *ep, const void *rx_data, u32 rx_len);

struct pkt_tuple cm_loopback(bool ipv4, u16 loc, u16 rem);
struct port_filter *cm_listen(struct cm *cm, bool ipv4, u16 *number); /* number 0: any free */

/* plain sockets on loopback */
u16 plain_number(int fd);
int plain_listen(bool ipv4, u16 number);
int plain_connect(bool ipv4, u16 number);
int plain_accept(int lfd);
void plain_reset(int fd);

#endif
