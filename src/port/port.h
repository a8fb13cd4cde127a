/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port: what a NIC is plugged into. A port carries frames between the NIC's ILQ and the world and
 * takes over connections that are set up. See docs/architecture.md.
 *
 * The one rule of all ports: a port never calls up from inside a down call. What a down call causes
 * (a refused connect, a writable stream) is reported later, from the loop.
 *
 * Locks: down calls may come from any thread (host) or the stepping thread (wire). Up calls come
 * from the loop's thread with no port lock held.
 */
#ifndef UWARP_PORT_H
#define UWARP_PORT_H

#include <sys/uio.h>
#include "base/base.h"
#include "net/net.h"

struct port;
struct port_ah;
struct port_filter;
struct port_stream;

/* ---- up: from the port to the NIC ---- */

/* A frame for the ILQ. Valid during the call. */
struct port_rx {
	struct pkt pkt;          /* decoded and checksum-verified by the port */
	int error;               /* with RST: the true cause as negative errno (-ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT...), 0: a plain RST segment */
	struct port_filter *filter; /* listener filter that matched, or NULL */
};

struct port_up {
	/* False: not taken (ILQ full); frame ports drop it, the host port offers it again later. */
	bool (*rx)(void *ctx, const struct port_rx *rx);
	/*
	 * Host port, before a connection is accepted from the kernel: is there room for one more in
	 * the listener's backlog? If not, it waits in the kernel until port_filter_kick().
	 */
	bool (*may_accept)(void *ctx, struct port_filter *f, void *filter_cookie);
};

/* ---- address handles ---- */

/* Host: stands for a socket (connection). Frame ports: layers 2 and 3 towards a peer. */
struct port_ah_attr {
	struct pkt_tuple tuple;
	u8 dmac[6];
	u8 ttl, tos, prio;
};

/* ---- filters ---- */
struct port_filter_attr {
	bool ipv4;
	bool quad;            /* full 4-tuple (a connection being set up), else a listener */
	struct pkt_tuple tuple; /* quad: all; listener: loc_addr, loc_port, vlan_id */
	int backlog;          /* listener */
	void *cookie;
};

/* ---- streams: a connection that was taken over ---- */
#define PORT_READABLE 0x01u
#define PORT_WRITABLE 0x02u
#define PORT_EOF      0x04u  /* the peer's FIN; reads give 0 once drained */
#define PORT_RESET    0x08u  /* RST, or gave up: stream_error() tells */
#define PORT_CLOSED   0x10u  /* both directions ended in order */

struct port_stream_up {
	/* Loop thread, no lock held. Edge triggered: read until -EAGAIN. */
	void (*event)(void *ctx, u32 events);
};

/* ---- tap: sees every segment in both directions, for captures and ladders ---- */
struct port_tap {
	TAILQ_ENTRY(port_tap) entry;
	/*
	 * Every TCP segment this NIC sends (@out) or receives, CM's and streams' alike. p->frame is a whole
	 * Ethernet frame with right checksums (host port: made up around what went through the socket). @now_ns loop time.
	 */
	void (*frame)(struct port_tap *tap, struct port *port, bool out, const struct pkt *p, u64 now_ns);
};

#define PORT_FRAMES     0x1u  /* takes whole frames (tx_frame) as well as address-handle frames */
#define PORT_NEEDS_NEIGH 0x2u /* address handles need the peer's link address */
#define PORT_CHECKSUMS  0x4u  /* computes the TCP checksum of address-handle frames itself (all do) */
#define PORT_TIME_WAIT  0x8u  /* keeps TIME_WAIT by itself after stream or AH is closed (host: the kernel) */

struct port_ops {
	const char *name;
	u32 flags;
	void (*unplug)(struct port *p);

	/* Whole Ethernet frame. 0, -ENOBUFS, -ENETDOWN, -EMSGSIZE. */
	int (*tx_frame)(struct port *p, const void *frame, u32 len);
	/* TCP header, options, payload through @ah. */
	int (*tx_ah)(struct port *p, struct port_ah *ah, const void *seg, u32 len);

	int (*ah_create)(struct port *p, const struct port_ah_attr *a, struct port_ah **out);
	/* Host: a socket not offloaded is closed (in order if FINs were exchanged; else abortively). */
	void (*ah_destroy)(struct port *p, struct port_ah *ah);

	/* 0, -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EMFILE, -ENOMEM. */
	int (*filter_add)(struct port *p, const struct port_filter_attr *a, struct port_filter **out);
	void (*filter_del)(struct port *p, struct port_filter *f);
	void (*filter_kick)(struct port *p, struct port_filter *f);

	/*
	 * Reserve a local TCP port number on @addr (all-zero: every address). *@number 0: choose one. Host: a bound
	 * socket that a later listener or address handle with that address and number uses. @shared: like SO_REUSEADDR.
	 */
	int (*reserve)(struct port *p, bool ipv4, const u32 *addr, u16 *number, bool shared);
	void (*release)(struct port *p, bool ipv4, const u32 *addr, u16 number);

	/*
	 * Take the connection over. On success @ah is consumed. Received bytes go to the stream from here
	 * on; rx_data comes first. Errors: -ENOMEM, -ECONNRESET (already dead).
	 */
	int (*offload)(struct port *p, struct port_ah *ah, const struct tcp_info_ho *info,
		       const struct port_stream_up *up, void *ctx, struct port_stream **out);
	/* Frame ports: remember a connection that ended in TIME_WAIT without being offloaded. */
	int (*time_wait)(struct port *p, const struct tcp_info_ho *info);

	/* Bytes taken, may be short; -EAGAIN, -EPIPE, -ECONNRESET. */
	ssize_t (*stream_send)(struct port_stream *s, const struct iovec *iov, int n);
	/* Bytes; 0: the peer's FIN; -EAGAIN; -ECONNRESET, -ETIMEDOUT. */
	ssize_t (*stream_recv)(struct port_stream *s, const struct iovec *iov, int n);
	int (*stream_shutdown)(struct port_stream *s);   /* FIN after what was sent */
	void (*stream_abort)(struct port_stream *s);     /* RST; the stream still has to be closed */
	/* Forget it: no event after this returns in the loop's thread. In-order end continues by itself; unread data or an open direction: FIN or RST as RFC 9293 3.10.4 says. */
	void (*stream_close)(struct port_stream *s);
	/*
	 * As stream_close(), but the peer shall hear what was sent even if it goes on sending, which close would answer with a reset (RFC 1122 4.2.2.13), and that
	 * makes it forget what it has not read: @rest (what stream_send() did not take) and FIN go out, and what comes is thrown away, until the peer's FIN or reset,
	 * or for 2 s; then it is closed. The port's own business: unplug does not wait for it. NULL: the port has only stream_close().
	 */
	void (*stream_drain)(struct port_stream *s, const void *rest, u32 len);
	int (*stream_error)(struct port_stream *s);      /* cause of PORT_RESET, negative errno */
	/*
	 * The user reads and writes by itself for a while (a program polls): @on: no READABLE, WRITABLE and EOF events; resets are still told. Off: events again, what
	 * came meanwhile included. NULL: the port has no thread that could stay out of the way.
	 */
	void (*stream_quiet)(struct port_stream *s, bool on);
};

struct port {
	const struct port_ops *ops;
	struct loop *loop;
	struct net *net;
	struct net_iface iface;
	const struct port_up *up;
	void *up_ctx;
	TAILQ_HEAD(, port_tap) taps;
};

/* ---- host port: the kernel's TCP ---- */
struct port_host; /* one per process: an epoll and all sockets */

int port_host_open(struct loop *loop, struct net *net, struct port_host **out);
void port_host_close(struct port_host *h); /* all ports unplugged before */
int port_host_plug(struct port_host *h, const struct net_iface *iface, const struct port_up *up, void *ctx, struct port **out);
int port_host_fd(const struct port_host *h);     /* polls readable when there is work */
/* Handle what is ready (at most a bounded batch); call from the loop's thread. True if anything was done. */
bool port_host_process(struct port_host *h);
bool port_host_unsent(struct port_host *h);      /* a peer does not have all yet that was sent on connections which are being closed */

/*
 * fork(). The loop's thread is not in it. Prepare takes the instance's lock, parent and child give it back. In the child all sockets are put by: they are not watched, calls on them
 * fail, closing them is only closing; resume makes a new epoll set for what is new; adopt takes those that were put by into use.
 */
void port_host_fork_prepare(struct port_host *h);
void port_host_fork_parent(struct port_host *h);
void port_host_fork_child(struct port_host *h);
int port_host_fork_resume(struct port_host *h); /* 0, -EMFILE, -ENOMEM */
/* Those of the last fork of a process that served any, or @all. True if some stay put by. */
bool port_host_fork_adopt(struct port_host *h, bool all);
u32 port_host_forks(const struct port_host *h); /* forks whose parent served sockets */
/*
 * The user begins, or ends, to wait for what comes from listeners. Where processes share a listener, the one whose user waits gets the connection. Any
 * thread.
 */
void port_host_wait(struct port_host *h, bool begin);

/* ---- wire port: a network inside the process ---- */
struct port_wire;

struct port_wire_path {     /* one direction */
	u64 latency_ns;
	u64 jitter_ns;          /* uniform on top; frames keep their order unless reordered */
	double loss, duplicate, corrupt, reorder; /* probabilities */
	u64 reorder_ns;         /* a reordered frame is held back by up to this */
	u64 bits_per_s;         /* 0: infinite */
	bool down;
};

struct port_wire_stats {
	u64 frames;             /* sent or injected. With duplicated: each ends in one of the next row, or is in flight */
	u64 lost, delivered, unmatched, not_taken, malformed, bad_checksum, no_route, down;
	u64 duplicated, corrupted, reordered;
};

/* @loop's time becomes virtual: port_wire_step() sets it. */
int port_wire_create(struct loop *loop, u64 seed, struct port_wire **out);
void port_wire_destroy(struct port_wire *w); /* all ports unplugged before */
/* @net is the host the NIC is in; iface->mac must be unique on the wire. */
int port_wire_plug(struct port_wire *w, struct net *net, const struct net_iface *iface, const struct port_up *up, void *ctx, struct port **out);
/* Default for all, then per NIC: what it sends (@out) and what it receives. */
void port_wire_set_default(struct port_wire *w, const struct port_wire_path *path);
void port_wire_set_path(struct port *p, bool out, const struct port_wire_path *path);
void port_wire_set_link(struct port *p, bool up);
/* A NIC that has no one for a SYN or a stray segment answers RST, as a host's stack would (default on). */
void port_wire_set_reset_unmatched(struct port *p, bool on);
/* Inject a frame as if it came from the wire to whoever has its destination MAC; for attackers and tests. */
int port_wire_inject(struct port_wire *w, const void *frame, u32 len, u64 delay_ns);
/* Advance to the next event at or before @until_ns and handle it (frames, timers, work). False: nothing left before that (time is then @until_ns). */
bool port_wire_step(struct port_wire *w, u64 until_ns);
/* Run until nothing is left, or @until_ns. */
void port_wire_run(struct port_wire *w, u64 until_ns);
const struct port_wire_stats *port_wire_stats(const struct port_wire *w);
/* Frames on their way. */
size_t port_wire_in_flight(const struct port_wire *w);
/* Connections that tsa holds for @p: live and TIME_WAIT records; sizes of both. */
void port_wire_tsa_usage(struct port *p, size_t *conns, size_t *time_waits, size_t *conn_bytes, size_t *time_wait_bytes);

/* ---- captures ---- */
struct port_capture;
/* pcap with nanosecond stamps, Ethernet; "-" is standard output. Attach to any number of ports. */
int port_capture_open(const char *path, struct port_capture **out, char *err, size_t errlen);
void port_capture_attach(struct port_capture *c, struct port *p);
void port_capture_detach(struct port_capture *c, struct port *p);
void port_capture_flush(struct port_capture *c);
/* Around fork(); then the child goes on in a file of its own. */
void port_capture_lock(struct port_capture *c);
void port_capture_unlock(struct port_capture *c);
int port_capture_reopen(struct port_capture *c, const char *path); /* 0 or a negative errno */
int port_capture_close(struct port_capture *c); /* 0 or the first write error */

void port_tap_add(struct port *p, struct port_tap *t);
void port_tap_del(struct port *p, struct port_tap *t);

#endif
