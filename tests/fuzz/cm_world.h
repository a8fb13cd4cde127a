/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A host with one NIC and a bare CM, programs that use it, and peers that the input plays. What the peers say goes in as frames from the wire, or straight into
 * the ILQ.
 *
 * Checked all the time: the order of each cm_id's events, and that every frame the NIC sends is well-formed. world_close() gives everything up and
 * asserts that nothing is left.
 */
#ifndef UWARP_FUZZ_CM_WORLD_H
#define UWARP_FUZZ_CM_WORLD_H

#include "cm/cm_internal.h"
#include "fuzz.h"

#define WORLD_LISTENERS 2
#define WORLD_CONNECTORS 3
#define WORLD_CHILDREN 5
#define WORLD_PARTIES (WORLD_LISTENERS + WORLD_CONNECTORS + WORLD_CHILDREN)
#define WORLD_PEERS 8
#define WORLD_PENDING 4096

/* How far an upper layer's cm_id is. */
enum party_phase { PARTY_FREE, PARTY_LISTENING, PARTY_CONNECTING, PARTY_REQUESTED, PARTY_ACCEPTED, PARTY_UP, PARTY_DISCONNECTED, PARTY_OVER };

/* What a listener does with a request. */
enum manner { TAKE, REFUSE, ACCEPT_AT_ONCE, REJECT_AT_ONCE, ABANDON_AT_ONCE, STOP_LISTENING, MANNERS };

struct party {
	struct iw_cm_id id;
	struct world *world;
	struct irdma_qp *qp;
	int refs;
	enum party_phase phase;
	bool request_gone;   /* DISCONNECT and CLOSE came before the answer */
	u8 manner;
	u16 pdata_len;       /* of what it says */
};

/* The other end of a connection. */
struct peer {
	struct pkt_tuple t;  /* as the NIC sees it */
	u32 seq, ack;        /* next of its own; what acknowledges all that the NIC has sent */
	u8 out[WORLD_PENDING];
	u32 len, off;        /* bytes that it is about to say */
	struct mpa_stream tx;
};

struct world {
	struct loop loop;
	struct port_wire *wire;
	struct net_segment *seg;
	struct net *net[2];  /* the host; another that has the peers' addresses, and no NIC */
	struct net_iface iface[2];
	struct irdma_device *dev;
	struct port_tap tap;
	u8 gen;
	bool ipv4;
	struct cm_mpa_opts mpa;
	struct party party[WORLD_PARTIES]; /* listeners, connectors, children */
	struct peer peer[WORLD_PEERS];     /* the first WORLD_CONNECTORS are whom those connect to */
	u32 frames;
};

/* Generation, family, options and limits from the input. */
void world_open(struct world *w, struct fuzz *f);
void world_close(struct world *w);
void world_run(struct world *w, u64 ms);

void party_listen(struct party *p, int backlog);
void party_stop(struct party *p);
void party_connect(struct party *p, struct fuzz *f);
void party_accept(struct party *p);
void party_reject(struct party *p, u8 len);
void party_give_up(struct party *p);
void party_new_qp(struct party *p);

/* Flags, sequence numbers near the right ones, options and @data. @direct: into the ILQ. */
struct segment {
	u8 flags;
	u32 seq_off, ack_off;
	u16 window;
	u8 opts[PKT_TCP_OPT_MAX];
	u32 optlen;
	u32 len;             /* of what the peer is about to say */
	bool direct, bad_sum;
};
void peer_send(struct world *w, struct peer *p, const struct segment *s);
/* Something to say, from the input: an MPA frame, an FPDU, or bytes. */
void peer_prepare(struct peer *p, struct fuzz *f);
void peer_say_bytes(struct peer *p, const void *bytes, u32 len);

#endif
