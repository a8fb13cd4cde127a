/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* port: what the files of the wire port share. The theory of operation is on top of wire.c. */
#ifndef UWARP_PORT_WIRE_INTERNAL_H
#define UWARP_PORT_WIRE_INTERNAL_H

#include <assert.h>
#include <errno.h>
#include <string.h>
#include "port/port.h"
#include "tsa/tsa.h"

#define WIRE_FRAME_MAX 65600u       /* 64 KiB of IP packet and layer 2 */
#define WIRE_IN_FLIGHT_MAX (1u << 22) /* frames; more are -ENOBUFS */
#define WIRE_MTU_DEFAULT 1500u
#define WIRE_CLASSES 5
#define WIRE_EPHEMERAL_FIRST 32768u
#define WIRE_EPHEMERAL_LAST 60999u  /* as Linux */
#define WIRE_REORDER_NS NSEC_PER_MSEC /* port_wire_path.reorder_ns 0 */

struct wire_port;

/* A frame on its way. Ordered by (due_ns, seq). */
struct wire_frame {
	u64 due_ns;
	u64 seq;
	struct wire_frame *next;    /* in the FIFO */
	struct wire_port *to;       /* held by to->refs */
	u32 len;
	u8 size_class;
	bool arrived;               /* the receiver's own path was applied already */
	bool intact;                /* the checksums were computed here, and nothing was corrupted since */
	u8 data[];
};

/* Frames in order of their time: most come in order, and go to the list; the rest to the heap. */
struct wire_queue {
	struct wire_frame *head, *tail;
	struct wire_frame **heap;
	size_t heap_len, heap_cap;
	size_t count;
	u64 next_seq;
	struct pool pool[WIRE_CLASSES];
};

struct wire_path {
	struct port_wire_path p;
	bool plain;                 /* a latency and nothing else */
};

/* One direction of one NIC. */
struct wire_dir {
	bool set;                   /* has a path of its own */
	struct wire_path path;
	u64 busy_until_ns;          /* bandwidth: last bit of the frame before */
	u64 last_due_ns;            /* frames that are not reordered come no sooner */
};

struct wire_port_use;

/* Who holds which local port number. */
struct wire_ports {
	struct wire_port_use **page[256];
	u64 *busy;                  /* bit per number: anyone has it */
	u32 next;                   /* ephemeral: where to look next */
	bool full, full_ipv4;       /* nothing was free for full_addr, and nothing was released since */
	u32 full_addr[4];
};

struct port_filter {
	struct hash_node node;
	struct port_filter_attr attr;
};

struct port_ah {
	LIST_ENTRY(port_ah) entry;
	struct pkt_route route;
};

struct wire_port {
	struct port port;
	struct port_wire *wire;
	struct hash_node by_mac;
	u32 refs;                   /* frames on their way here, and 1 while plugged */
	bool plugged;
	bool link_up;
	bool reset_unmatched;
	u16 ip_id;
	u32 mtu;
	struct wire_port *last_to;  /* where the last frame went; good while last_change is the wire's */
	u64 last_change;
	struct wire_dir out, in;
	struct hash_table quads, listeners;
	size_t any_listeners;       /* of listeners: on the wildcard address */
	LIST_HEAD(, port_ah) ahs;
	struct wire_ports ports;
	struct tsa *tsa;
};

struct port_wire {
	struct loop *loop;
	struct rand_gen rand;
	struct wire_path path;      /* default, on the out side */
	struct hash_table macs;
	size_t plugged;
	u64 change;                 /* counts plugging and unplugging */
	struct wire_queue queue;
	struct pool ah_pool, filter_pool;
	struct port_wire_stats stats;
};

static inline struct wire_port *wire_port_of(struct port *p) { return container_of(p, struct wire_port, port); }
static inline u64 wire_now(const struct port_wire *w) { return loop_now(w->loop); }

/* ---- wire_queue.c ---- */
void wire_queue_init(struct wire_queue *q);
void wire_queue_destroy(struct wire_queue *q); /* it is empty */
/* A buffer for @len bytes, or NULL. */
struct wire_frame *wire_frame_get(struct wire_queue *q, u32 len);
void wire_frame_put(struct wire_queue *q, struct wire_frame *f);
/* 0 or -ENOBUFS. */
int wire_queue_push(struct wire_queue *q, struct wire_frame *f);
/* Time of the next one, UINT64_MAX if there is none. */
u64 wire_queue_next_ns(const struct wire_queue *q);
struct wire_frame *wire_queue_pop(struct wire_queue *q);

/* ---- wire_path.c ---- */
/* @f leaves over @dir now: it is queued once, twice, or dropped. Consumes @f. */
void wire_path_send(struct port_wire *w, struct wire_dir *dir, const struct wire_path *path, struct wire_frame *f);
void wire_path_set(struct wire_path *to, const struct port_wire_path *p);

/* ---- wire_rx.c ---- */
/* A frame reached its NIC. Does not consume @f. */
void wire_receive(struct wire_port *p, const struct wire_frame *f);
int wire_filter_add(struct port *port, const struct port_filter_attr *a, struct port_filter **out);
void wire_filter_del(struct port *port, struct port_filter *f);
void wire_filters_free(struct wire_port *p);

/* ---- wire_ports.c ---- */
int wire_reserve(struct port *port, bool ipv4, const u32 *addr, u16 *number, bool shared);
void wire_release(struct port *port, bool ipv4, const u32 *addr, u16 number);
void wire_ports_free(struct wire_ports *t);

/* ---- wire.c ---- */
/* Send a segment with layers 2 and 3 as @r says. 0, -ENOBUFS, -ENETDOWN, -EMSGSIZE. */
int wire_tx_segment(struct wire_port *p, const struct pkt_route *r, const u8 *seg, u32 len);
static inline void wire_port_get(struct wire_port *p) { p->refs++; }
void wire_port_put(struct wire_port *p);
void wire_tap(struct wire_port *p, bool out, const struct pkt *pkt);
static inline bool wire_tapped(const struct wire_port *p) { return !TAILQ_EMPTY(&p->port.taps); }

#endif
