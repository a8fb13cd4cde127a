/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libuwarp: set up and tear down iWARP connections from a program, without RDMA hardware, kernel module or root.
 *
 * A context is a set of NICs: one per network interface of this machine. An id is one listener or one connection.
 * Calls may come from any thread and at any time; they do not wait for the network unless their comment says so.
 * Events of a context come in one queue, in the promised order: ESTABLISHED or an error first, DISCONNECTED next,
 * CLOSED exactly once and last; none after iwcm_destroy_id().
 *
 *   active:  iwcm_create_id, iwcm_resolve, RESOLVED, iwcm_connect, ESTABLISHED ..., iwcm_disconnect, DISCONNECTED, CLOSED, iwcm_destroy_id
 *   passive: iwcm_create_id, iwcm_bind, iwcm_listen, CONNECT_REQUEST (with a new id), iwcm_accept, ESTABLISHED ...
 */
#ifndef UWARP_IWCM_H
#define UWARP_IWCM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

struct iwcm_ctx;
struct iwcm_id;

enum iwcm_event_type {
	IWCM_EVENT_RESOLVED,         /* iwcm_resolve: route and device known */
	IWCM_EVENT_RESOLVE_ERROR,    /* status */
	IWCM_EVENT_CONNECT_REQUEST,  /* id is the new one, listener the one that listens */
	IWCM_EVENT_ESTABLISHED,
	IWCM_EVENT_REJECTED,         /* peer said no; its private data */
	IWCM_EVENT_CONNECT_ERROR,    /* status and cause */
	IWCM_EVENT_DISCONNECTED,     /* status 0 in order, -ECONNRESET, ... */
	IWCM_EVENT_CLOSED,           /* last event of a connection that was established, or whose request was pending */
	IWCM_EVENT_DEVICE_REMOVED,   /* listener's or bound id's interface is gone */
};

enum iwcm_rtr { IWCM_RTR_SEND = 1, IWCM_RTR_WRITE = 2, IWCM_RTR_READ = 4, IWCM_RTR_ALL = 7 };

/* What an id wants. iwcm_options_init() gives the defaults. */
struct iwcm_options {
	unsigned int mpa_revision;     /* 1 or 2 (default) */
	bool fall_back;                /* try revision 1 if the peer closes after a revision 2 request (default) */
	bool peer_to_peer;             /* model (default true) */
	unsigned int rtr;              /* enum iwcm_rtr mask (default all) */
	bool crc, markers;             /* default true, false */
	unsigned int connect_timeout_ms; /* TCP; default 0: as TCP retries */
	unsigned int mpa_timeout_ms;   /* peer says nothing; default 10000 */
	unsigned int tos;              /* default 0 */
};

struct iwcm_conn_param {
	const void *private_data;
	size_t private_data_len;       /* at most 512, 508 with revision 2; -EINVAL above */
	unsigned int ird, ord;         /* 0 is a value; IWCM_MAX: as much as the NIC can */
};
#define IWCM_MAX 0xFFFFFFFFu

/* What was agreed, as far as things got. */
struct iwcm_info {
	unsigned int mpa_revision, peer_revision, peer_flags;
	bool peer_to_peer, crc, send_markers, receive_markers, fell_back;
	unsigned int rtr_offered, rtr; /* enum iwcm_rtr; 0: none */
	unsigned int ird, ord, peer_ird, peer_ord; /* 0x3FFF: not negotiated */
	unsigned int mss;
	unsigned int syn_sent, mpa_sent;
	int cause;                     /* iwcm_cause_str() */
};

struct iwcm_event {
	enum iwcm_event_type type;
	int status;                    /* 0 or negative errno */
	struct iwcm_id *id;
	struct iwcm_id *listener;      /* CONNECT_REQUEST */
	struct sockaddr_storage local, remote;
	struct iwcm_info info;
	size_t private_data_len;
	unsigned char private_data[512];
};

/* Counters of all NICs of a context. */
struct iwcm_stats {
	uint64_t connects, accepts, rejects, established_active, established_passive, connect_errors, passive_errors,
		retransmits, backlog_drops, half_open_evicted, silent_evicted, cookies_sent, cookies_accepted, cookies_bad, loopbacks,
		nodes_now, listeners_now;
};

struct iwcm_device {
	char name[32];
	char iface[16];
	unsigned char mac[6];
	unsigned int mtu;
	bool up;
	unsigned int num_addrs;        /* all there are */
	struct sockaddr_storage addr[8];
};

void iwcm_options_init(struct iwcm_options *o);

/* Open this machine's NICs and start the thread that serves them. @ifaces: comma-separated names, NULL: all. */
int iwcm_open(const char *ifaces, struct iwcm_ctx **out);
/* Destroys ids that are left; connections still up are reset. */
void iwcm_close(struct iwcm_ctx *ctx);
size_t iwcm_devices(struct iwcm_ctx *ctx, struct iwcm_device *out, size_t max);
void iwcm_get_stats(struct iwcm_ctx *ctx, struct iwcm_stats *out);

/* Next event: copied to *@out. @timeout_ms: -1 for ever, 0 not at all. 0, -EAGAIN (none in time), -EINTR. */
int iwcm_get_event(struct iwcm_ctx *ctx, struct iwcm_event *out, int timeout_ms);
/* Polls readable while there are events. */
int iwcm_event_fd(const struct iwcm_ctx *ctx);

int iwcm_create_id(struct iwcm_ctx *ctx, void *user, struct iwcm_id **out);
void *iwcm_user(const struct iwcm_id *id);
void iwcm_set_user(struct iwcm_id *id, void *user);
int iwcm_set_options(struct iwcm_id *id, const struct iwcm_options *o); /* before connect / listen; -EINVAL, -EISCONN */
int iwcm_bind(struct iwcm_id *id, const struct sockaddr *local);       /* port 0: one is chosen */
int iwcm_resolve(struct iwcm_id *id, const struct sockaddr *src, const struct sockaddr *dst);
int iwcm_listen(struct iwcm_id *id, int backlog);
int iwcm_connect(struct iwcm_id *id, const struct iwcm_conn_param *param);
int iwcm_accept(struct iwcm_id *id, const struct iwcm_conn_param *param);
int iwcm_reject(struct iwcm_id *id, const void *private_data, size_t len); /* len at most 255 */
int iwcm_disconnect(struct iwcm_id *id);                               /* in order; -ENOTCONN */
int iwcm_abort(struct iwcm_id *id);                                    /* RST */
/* From any state, any thread, also from several events deep: ends what is under way; no event of it comes after this returns. */
void iwcm_destroy_id(struct iwcm_id *id);
int iwcm_local_addr(const struct iwcm_id *id, struct sockaddr_storage *out);
int iwcm_remote_addr(const struct iwcm_id *id, struct sockaddr_storage *out);
const char *iwcm_cause_str(int cause);
const char *iwcm_event_str(enum iwcm_event_type type);

#ifdef __cplusplus
}
#endif
#endif
