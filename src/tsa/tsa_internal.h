/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tsa: what only this room needs. The theory of operation is on top of tsa.c. */
#ifndef UWARP_TSA_INTERNAL_H
#define UWARP_TSA_INTERNAL_H

#include <assert.h>
#include <errno.h>
#include <string.h>
#include "tsa/tsa.h"

#define TSA_RTO_INITIAL_NS NSEC_PER_SEC        /* RFC 6298 2.1 */
#define TSA_FIN_WAIT2_NS (60 * NSEC_PER_SEC)   /* without an owner; RFC 1122 4.2.2.20 leaves it open, Linux has 60 s */
#define TSA_DRAIN_NS (2 * NSEC_PER_SEC)         /* a peer hears why, and stops: some round trips and retransmissions */
#define TSA_MSS_MIN 48u                        /* a peer must not make us send headers only */
#define TSA_BUF_MAX (1u << 30)                 /* RFC 7323 2.3: windows stay below 2^30 */
#define TSA_OOO_RANGES 32                      /* holes remembered per connection */
#define TSA_CHALLENGES_PER_S 10                /* RFC 5961 7: per connection, so that nobody learns from another's budget */
#define TSA_DUPACK_THRESHOLD 3                 /* RFC 5681 3.2 */
#define TSA_BUF_CLASS_MIN 256u
#define TSA_BUF_POOLS 4                        /* 256, 1K, 4K, 16K; larger ones from malloc */

/*
 * States of RFC 9293 3.3.2 that a connection taken over in mid-life can be in.
 */
enum tsa_state {
	/* Being filled in by tsa_conn_create(); in no table yet. */
	TSA_ST_NEW,
	/* Both directions open. */
	TSA_ST_ESTABLISHED,
	/* Our side is shut: data may still wait in the send queue, the FIN behind it; not acknowledged. Data is received. */
	TSA_ST_FIN_WAIT1,
	/* Our FIN is acknowledged. Data is received. Without an owner for at most TSA_FIN_WAIT2_NS. */
	TSA_ST_FIN_WAIT2,
	/* The peer's FIN came. Data is sent. */
	TSA_ST_CLOSE_WAIT,
	/* Both FINs crossed; ours is not acknowledged. */
	TSA_ST_CLOSING,
	/* The peer's FIN came first, ours is queued or sent and not acknowledged. */
	TSA_ST_LAST_ACK,
	/* In order on both sides, a TIME_WAIT record answers for us; what is unread can be read. In no table. */
	TSA_ST_TIME_WAIT,
	/* Over, in order or by a reset (then error is set). In no table. */
	TSA_ST_CLOSED,
	TSA_ST_COUNT
};

/* What the connection's one timer waits for. At any time there is at most one reason. */
enum tsa_deadline {
	TSA_DL_NONE,
	TSA_DL_RETRANSMIT, /* something of ours is not acknowledged: after RTO (RFC 6298) */
	TSA_DL_PERSIST,    /* queued, nothing in flight, no window: after RTO, backed off (RFC 9293 3.8.6.1) */
	TSA_DL_FIN_WAIT2,  /* no owner, peer keeps its side open: after TSA_FIN_WAIT2_NS */
};

enum tsa_kind { TSA_KIND_CONN, TSA_KIND_TIME_WAIT };

/* What a connection and a TIME_WAIT record have in common: a place in the table, and layers 2 and 3. route.src is "loc". */
struct tsa_entry {
	struct hash_node node;
	struct pkt_route route;
	u16 loc_port, rem_port;
	u8 kind;
};

struct tsa_time_wait {
	struct tsa_entry e;
	u32 snd_nxt, rcv_nxt;
	u16 window;               /* as on the wire */
	struct limit limit;       /* TSA_CHALLENGES_PER_S */
	TAILQ_ENTRY(tsa_time_wait) entry; /* by expiry */
	u64 expires_ns;
};
static_assert(sizeof(struct tsa_time_wait) <= 128, "TIME_WAIT record is at most 128 bytes");

/*
 * Bytes of one direction, from the first unacknowledged (send) or unread (receive) one. The room
 * comes when bytes do and goes with the last of them; cap is 256 * 4^n.
 */
struct tsa_ring {
	u8 *buf;
	u32 cap, head, len;
};

/* Ranges received beyond rcv_nxt; their bytes lie in the receive ring already. Sorted, disjoint, not adjacent. */
struct tsa_range { u32 seq, end; };
struct tsa_ooo {
	u32 n;
	struct tsa_range r[TSA_OOO_RANGES];
};

struct tsa_conn {
	struct tsa_entry e;
	struct tsa *tsa;
	const struct tsa_conn_up *up; /* NULL: no owner any more */
	void *ctx;

	struct timer_list timer;
	u64 armed_ns;             /* what the timer is armed for, 0: not armed. Never later than deadline_ns */
	u64 deadline_ns;
	u8 deadline;              /* enum tsa_deadline */

	u8 state;                 /* enum tsa_state; written by tsa_set_state() alone */
	u8 pending;               /* events not reported yet */
	u8 dupacks;
	u8 retries;               /* of the same data, or probes without an answer */
	u8 probes;                /* since the window closed: backoff */
	u8 snd_wscale, rcv_wscale;

	bool busy;                /* inside the event callback: tsa_close() must not free */
	bool ack_now;             /* an ACK is due at the end of this entry */
	bool want_write;          /* tsa_sendv() could not take all */
	bool fin_queued;          /* FIN sits behind the send ring */
	bool fin_acked;
	bool fin_held;            /* FIN came out of order: rcv_fin */
	bool in_recovery;         /* fast recovery, until recover is acknowledged (RFC 6582) */
	bool probing;             /* a window probe is out */
	bool timing;              /* rtt_seq is being timed */
	u16 mss;
	int error;

	u32 snd_una, snd_nxt, snd_max;
	u32 snd_seq;              /* number of the first byte in the send ring. > snd_una only while bytes of the CM are unacknowledged */
	u32 snd_wnd, max_snd_wnd, snd_wl1;
	u32 cwnd, ssthresh, recover;
	u32 rcv_nxt;
	u32 rcv_adv;              /* right edge of the window as told to the peer; never moves left */
	u32 rcv_cap;              /* most bytes unread or out of order */
	u32 rcv_fin;

	u32 rtt_seq;
	u64 rtt_start_ns;
	u64 srtt_ns, rttvar_ns, rto_ns;
	u64 last_send_ns;
	u64 drain_until_ns;       /* without an owner: until then text is thrown away, after it reset; 0: at once */
	struct limit challenge;   /* TSA_CHALLENGES_PER_S */

	struct tsa_ring snd, rcv;
	struct tsa_ooo *ooo;
	LIST_ENTRY(tsa_conn) over; /* ended, waiting for its owner to close it */
};

struct tsa {
	struct loop *loop;
	struct tsa_config cfg;
	struct tsa_up up;
	void *ctx;
	struct hash_table table;
	LIST_HEAD(, tsa_conn) over;
	size_t conns;             /* with those that only wait for their owner */
	struct pool conn_pool, time_wait_pool, ooo_pool, buf_pool[TSA_BUF_POOLS];
	TAILQ_HEAD(, tsa_time_wait) time_waits;
	size_t n_time_waits;
	struct timer_list time_wait_timer;
	bool time_wait_armed;
	u8 *out;                  /* the segment being built: PKT_HDR_MAX, header, payload */
	u32 out_payload;          /* room for it */
	struct tsa_stats stats;
};

/* ---- tsa.c ---- */
const char *tsa_state_name(u8 state);
void tsa_set_state(struct tsa_conn *c, enum tsa_state next);
/* The peer's FIN has not come yet. */
static inline bool tsa_receiving(const struct tsa_conn *c)
{
	return c->state == TSA_ST_ESTABLISHED || c->state == TSA_ST_FIN_WAIT1 || c->state == TSA_ST_FIN_WAIT2;
}
static inline bool tsa_ended(const struct tsa_conn *c) { return c->state >= TSA_ST_TIME_WAIT; }
/* Out of the table, timers stopped, nothing is sent any more; @events will be reported. */
void tsa_end(struct tsa_conn *c, enum tsa_state final, u32 events);
/* The connection broke: -@error for the owner. */
void tsa_fail(struct tsa_conn *c, int error);
/* End of every entry from outside: report events, send the ACK that is due, free what nobody needs. @c may be gone after. */
void tsa_finish(struct tsa_conn *c);
struct tsa_entry *tsa_find(struct tsa *t, const struct pkt_tuple *tuple, u64 hash);
void tsa_entry_init(struct tsa_entry *e, enum tsa_kind kind, const struct tcp_info_ho *info);
/* Nobody will read it. */
void tsa_forget_unread(struct tsa_conn *c);

/* ---- tsa_ring.c ---- */
/* Room for @need bytes from the first one on; 0 or -ENOMEM (then nothing changed). */
int tsa_ring_reserve(struct tsa *t, struct tsa_ring *r, u32 need);
void tsa_ring_write(struct tsa_ring *r, u32 off, const u8 *src, u32 n);
void tsa_ring_read(const struct tsa_ring *r, u32 off, u8 *dst, u32 n);
void tsa_ring_drop(struct tsa_ring *r, u32 n);
void tsa_ring_free(struct tsa *t, struct tsa_ring *r);

/* ---- tsa_reasm.c ---- */
/*
 * Payload that lies in the window, @seq >= rcv_nxt. Moves rcv_nxt over what is now in order. False: not kept
 * (no memory, too many holes); the peer will send it again.
 */
bool tsa_reasm_add(struct tsa_conn *c, u32 seq, const u8 *data, u32 len);
void tsa_reasm_free(struct tsa_conn *c);

/* ---- tsa_output.c ---- */
/* Send what window, congestion window and silly-window rules allow. */
void tsa_output(struct tsa_conn *c);
void tsa_send_ack(struct tsa_conn *c);
/* RFC 5961: an ACK for something suspicious, rate-limited. */
void tsa_send_challenge(struct tsa_conn *c);
void tsa_send_reset(struct tsa_conn *c);
void tsa_retransmit_first(struct tsa_conn *c);
void tsa_send_probe(struct tsa_conn *c);
/* Has the window grown enough since it was last told to be worth an ACK? (RFC 9293 3.8.6.2.2) */
bool tsa_window_worth_telling(const struct tsa_conn *c);
/* A bare segment that belongs to no connection any more. */
void tsa_emit_bare(struct tsa *t, const struct tsa_entry *e, u32 seq, u32 ack, u8 flags, u16 window);
u32 tsa_initial_window(const struct tsa_conn *c);

/* ---- tsa_timer.c ---- */
/* Named for what happened. */
void tsa_timer_sent(struct tsa_conn *c);            /* something that wants an ACK went out */
void tsa_timer_new_ack(struct tsa_conn *c);         /* the peer acknowledged something new */
void tsa_timer_window_closed(struct tsa_conn *c);   /* queued, nothing in flight, may not send */
void tsa_timer_window_opened(struct tsa_conn *c);
void tsa_timer_orphan_fin_wait2(struct tsa_conn *c);
void tsa_timer_report(struct tsa_conn *c);          /* events wait to be reported from the loop */
void tsa_timer_stop(struct tsa_conn *c);
void tsa_timer_fired(struct timer_list *timer);
void tsa_rtt_sample(struct tsa_conn *c, u64 rtt_ns);

/* ---- tsa_timewait.c ---- */
/* @c, all acknowledged, leaves the table; a record takes its place (none if there is no memory). */
void tsa_time_wait_enter(struct tsa_conn *c);
bool tsa_time_wait_input(struct tsa *t, struct tsa_time_wait *tw, const struct pkt *p);
void tsa_time_wait_del(struct tsa *t, struct tsa_time_wait *tw);
void tsa_time_wait_expire(struct timer_list *timer);

/* Sequence space from @from to @to, known to be ordered. */
static inline u32 tsa_span(u32 from, u32 to) { return to - from; }
static inline u32 tsa_fin_seq(const struct tsa_conn *c) { return c->snd_seq + c->snd.len; }
static inline u32 tsa_max_u32(u32 a, u32 b) { return a > b ? a : b; }
static inline u32 tsa_min_u32(u32 a, u32 b) { return a < b ? a : b; }

#endif
