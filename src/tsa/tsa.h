/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tsa: TCP for ports that carry raw frames; the offload engine of the wire port. It takes
 * connections over from the CM in mid-life, never opens one. Free of sockets and threads: frames go
 * in through tsa_input(), come out through tsa_up.output, time is the loop's.
 */
#ifndef UWARP_TSA_H
#define UWARP_TSA_H

#include <sys/uio.h>
#include "base/base.h"

struct tsa;
struct tsa_conn;

#define TSA_READABLE 0x01u
#define TSA_WRITABLE 0x02u
#define TSA_EOF      0x04u
#define TSA_RESET    0x08u
#define TSA_CLOSED   0x10u

struct tsa_config {
	u32 send_buf, recv_buf;      /* bytes per connection; default 256 KiB each */
	u64 min_rto_ns, max_rto_ns;  /* default 200 ms, 60 s */
	u32 max_retries;             /* default 15 */
	u64 time_wait_ns;            /* default 60 s (as Linux); RFC 9293 asks for 2 MSL */
	u32 max_time_wait;           /* records; default 1 << 20, oldest goes first */
};

struct tsa_up {
	/* Send one segment: @tcp has PKT_HDR_MAX bytes of room in front; layers 2 and 3 as @r says. Must not call back. */
	void (*output)(void *ctx, const struct pkt_route *r, u8 *tcp, u32 len);
};

struct tsa_conn_up {
	/* From tsa_input() or a timer. The conn may be closed from inside. */
	void (*event)(void *ctx, u32 events);
};

struct tsa_stats {
	u64 segs_in, segs_out, bytes_in, bytes_out, retransmits, fast_retransmits, rto_fired, dup_acks, out_of_order,
	    challenge_acks, resets_in, resets_out, window_probes, time_waits, time_wait_reuse;
};

int tsa_create(struct loop *loop, const struct tsa_config *cfg /* NULL: defaults */, const struct tsa_up *up, void *ctx, struct tsa **out);
void tsa_destroy(struct tsa *t);
const struct tsa_stats *tsa_stats(const struct tsa *t);
void tsa_usage(const struct tsa *t, size_t *conns, size_t *time_waits, size_t *conn_bytes, size_t *time_wait_bytes);

/*
 * Segment for us? True: handled. False: no such connection (or a SYN whose sequence number lies above that of a TIME_WAIT
 * record, RFC 9293 3.10.7.4, which is then forgotten): the caller's.
 */
bool tsa_input(struct tsa *t, const struct pkt *p);
/* The keyed hash of a connection's addresses, and tsa_input() for who has computed it from the segment already. */
u64 tsa_hash(const struct tsa *t, const struct pkt_tuple *tuple);
bool tsa_input_hashed(struct tsa *t, const struct pkt *p, const struct pkt_tuple *tuple, u64 hash);

int tsa_conn_create(struct tsa *t, const struct tcp_info_ho *info, const struct tsa_conn_up *up, void *ctx, struct tsa_conn **out);
ssize_t tsa_sendv(struct tsa_conn *c, const struct iovec *iov, int n);
ssize_t tsa_recvv(struct tsa_conn *c, const struct iovec *iov, int n);
int tsa_shutdown(struct tsa_conn *c);
void tsa_abort(struct tsa_conn *c);
/* Owner forgets the connection; it lives on inside until its end (bounded: FIN_WAIT2 at most 60 s). */
void tsa_close(struct tsa_conn *c);
/* As tsa_close(), behind @rest; what the peer sends is taken and thrown away for 2 s. */
void tsa_drain(struct tsa_conn *c, const void *rest, u32 len);
int tsa_error(const struct tsa_conn *c);

/* A connection that reached TIME_WAIT under the CM. 0 or -ENOMEM. */
int tsa_time_wait_add(struct tsa *t, const struct tcp_info_ho *info);
/* A new connection with these addresses is opened from this end: the record makes way. True if there was one. */
bool tsa_time_wait_forget(struct tsa *t, const struct pkt_tuple *tuple);
bool tsa_time_wait_forget_hashed(struct tsa *t, const struct pkt_tuple *tuple, u64 hash);

#endif
