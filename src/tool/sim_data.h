/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool: connections of a simulation that move data. sim_plan.c: what is to be sent, and where it goes; sim_data.c: the programs; sim_post.c: their
 * work requests; sim_data_end.c: their end; sim_memory.c: what their memory must look like; sim_data_host.c: what they share.
 *
 * Both ends derive the same plan from the seed and the connection's number, so each knows every byte that it must get, and the only thing
 * that they tell each other is where: each side's first message, the hello, carries STags and addresses. The last one, the bye, is fenced:
 * whoever has sent his and got the peer's has seen all.
 */
#ifndef UWARP_TOOL_SIM_DATA_H
#define UWARP_TOOL_SIM_DATA_H

#include "iwcm/iwcm_nic.h"
#include "tool/sim_world.h"

#define SIM_MSGS 16u            /* of a side, at most, besides bind, hello and bye */
#define SIM_PLAN_MAX (SIM_MSGS + 3)
#define SIM_SGES 4u
#define SIM_INLINE 128u
#define SIM_EXTRA_RECVS 2u      /* posted for nothing: flushed in the end */
#define SIM_GAP 16u             /* between areas of memory, at least */
#define SIM_POISON 0xA5         /* where nothing was received */
#define SIM_PATTERN_STARTS 65536u
#define SIM_PATTERN_IOVA (1ull << 50)
#define SIM_COUNTER_IOVA (1ull << 51)
#define SIM_HELLO_MAGIC 0x68656C6C6Full
#define SIM_RECV_ID (1ull << 32) /* in the wr_id of receives */

/* ---- sim_plan.c ---- */
/* What a program may do wrong; the peer's NIC terminates the connection, and lets no harm be done. */
enum sim_wrong { SIM_RIGHT, SIM_WRONG_STAG, SIM_WRONG_BOUNDS, SIM_WRONG_LENGTH, SIM_WRONG_ALIGNMENT };

struct sim_msg {
	u8 wrong;               /* enum sim_wrong */
	u8 verb;                /* enum tool_sim_verb */
	u8 sges, recv_sges;
	bool hello, solicited, fence, signaled, inlined;
	bool shared;            /* Fetch & Add on the counter of the peer's host, else on the connection's word */
	bool relays;            /* sends on what the Read in front of it brings, which is what a fence is for */
	u32 len;
	u32 src;                /* in the pattern: what is sent, written, read */
	u32 at;                 /* in the peer's memory: Writes. In one's own: what Reads and atomics bring */
	u32 recv_at, recv_len;  /* in the peer's memory: the receive that this message takes */
	u32 imm;
	u64 compare, operand;   /* atomics */
	u64 before;             /* the word's value that an atomic brings, unless it is shared */
};

struct sim_plan {
	struct sim_msg msg[SIM_PLAN_MAX];
	u32 n, recvs;           /* recvs: messages that take one of the peer's */
	u32 depth;              /* under way at a time */
	bool window, zero_based; /* the peer writes through a window, which its bye invalidates */
	u32 window_at, window_len; /* in one's own memory */
	u32 word_at;            /* in one's own memory: the peer's atomics go there */
	u32 extra_at, extra_len; /* the receives for nothing */
	u32 size;               /* of one's own memory; the hello that is sent stands at its begin */
	bool one_cq, polls;     /* else sleeps until a completion comes */
	bool qp_first;          /* destroyed before the id */
};

/* A connection: what the active [0] and the passive side [1] do. */
struct sim_deal {
	struct sim_plan plan[2];
	bool orderly;           /* nobody hangs up before all is done */
	bool wrong;             /* one of the messages is; nobody hangs up, either */
};

bool sim_has_data(const struct sim *sim, u64 serial);
void sim_deal_make(const struct sim *sim, u64 serial, struct sim_deal *deal);
static inline bool sim_takes_recv(const struct sim_msg *m)
{
	return m->verb == SIM_SEND || m->verb == SIM_SEND_INV || m->verb == SIM_WRITE_IMM;
}
static inline bool sim_is_atomic(const struct sim_msg *m)
{
	return m->verb == SIM_FETCH_ADD || m->verb == SIM_CMP_SWAP;
}
static inline bool sim_wants_answer(const struct sim_msg *m)
{
	return m->verb == SIM_READ || sim_is_atomic(m);
}
/* Lengths of the @n pieces of @len bytes. */
void sim_pieces(u32 len, u32 n, u32 salt, u32 out[SIM_SGES]);

/* ---- sim_data.c ---- */
struct sim_hello {
	u64 magic;
	u64 write_base, word_addr, counter_addr, pattern_addr;
	u32 write_stag, word_stag, counter_stag, pattern_stag;
	u32 ird, reserved;
};

enum sim_posted { SIM_NOT_POSTED, SIM_SKIPPED, SIM_UNSIGNALED, SIM_SIGNALED };

struct sim_window {
	struct ibv_mw ib;
	struct rnic_mw *mw;
};

struct sim_region {
	struct ibv_mr ib;
	struct rnic_mr *mr;
};

/* What a side has for its data. */
struct sim_data {
	struct sim_side *side;
	struct sim_deal deal;
	u32 me;                 /* 0: active */
	struct sim_plan *own, *peers; /* in @deal */
	struct rnic_cq *send_cq, *recv_cq;
	struct irdma_qp *qp;
	struct sim_region region;
	struct sim_window window;
	u8 *memory;
	u64 iova;
	u64 ends;               /* sim_ends() */
	bool crc;
	struct timer_list poll;
	u64 pause_ns;           /* of one who polls */
	bool up, may_talk, greeted, complete, closed, over;
	bool in_order;          /* DISCONNECTED without an error */
	struct sim_hello hello; /* the peer's */
	bool may_read;
	u8 posted[SIM_PLAN_MAX];
	u32 next, done, good;   /* of the own plan: to be posted; below it all is completed; below it all is completed with success */
	u32 unsignaled;         /* since the last signaled one */
	u32 recvs_posted, recvs_done;
	u32 seen;               /* of the peer's plan: below it all has come */
	bool send_failed, recv_failed; /* a completion was not success */
};

/* Queues and memory for a side, whose id is to connect or accept. NULL: a violation was noted. */
struct sim_data *sim_data_open(struct sim_side *s);
void sim_data_up(struct sim_data *d, const struct iwcm_info *info);
int sim_data_take(struct sim_data *d); /* completions; how many there were */
void sim_data_look_whether_complete(struct sim_data *d);

/* ---- sim_post.c ---- */
void sim_post_recvs(struct sim_data *d);
void sim_write_hello(struct sim_data *d);
void sim_post_sends(struct sim_data *d); /* as many as may go out */

/* ---- sim_data_host.c ---- */
int sim_host_data_open(struct sim_host *h);
void sim_host_data_close(struct sim_host *h);
int sim_pattern_make(struct sim *sim);
struct sim_host *sim_data_peer(const struct sim_data *d);
/* At the end of the simulation. */
void sim_data_check_hosts(struct sim *sim);

/* ---- sim_data_end.c ---- */
/* The connection has ended; destroys the id, too. */
void sim_data_close(struct sim_data *d);

/* ---- sim_memory.c ---- */
__attribute__((format(printf, 2, 3))) void sim_data_violation(struct sim_data *d, const char *fmt, ...);
/* Message @i of the peer's plan has come, or its Write has been told of. */
void sim_check_arrived(struct sim_data *d, u32 i);
/* What message @i of the own plan was to bring. */
void sim_check_brought(struct sim_data *d, u32 i);
/* All of a side's memory, in the end. */
void sim_check_memory(struct sim_data *d);

#endif
