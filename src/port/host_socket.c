/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port/host: sockets and local port numbers.
 *
 * A reservation is a bound socket that never listens. Linux lets sockets with SO_REUSEADDR share an
 * address and number as long as none of them listens, and lets one of them begin to listen while
 * the others do not; so the listeners of single addresses stand beside a reservation of the number on
 * every address, and whoever else listens on the number is found by bind() or listen(). Every socket
 * here has SO_REUSEADDR.
 *
 * A number for the asking is chosen here and not by bind() to 0. The kernel looks through all of its range for one
 * that nobody has, connections in TIME_WAIT included: a program that connects fast runs out of those within seconds, and
 * long before has made each bind() a search of milliseconds. Here the numbers come in turn; the next few that nobody has are
 * tried first, then those that may be shared with connections in TIME_WAIT, of which the next in turn is the oldest.
 * Where connect() meets one younger than a second, it fails with EADDRNOTAVAIL (see tcp_tw_reuse in ip-sysctl).
 *
 * A second NIC of this process may reserve what the first one has: they are told apart by address,
 * and share one socket through dup(), since bind() would meet the first one's listeners.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "port/host_internal.h"

#define FREE_TRIES 8u

bool host_sockets_shared;

struct host_resv_key {
	const struct host_port *port;
	u32 addr[4];
	u32 number;
	u32 ipv4;
};

/* IPv6 link-local addresses mean nothing without their interface (RFC 4007 6). */
static u32 scope_of(struct host_port *p, const u32 *addr)
{
	struct net_addr a;

	if ((addr[0] & 0xFFC00000u) != 0xFE800000u)
		return 0;
	if (p->host->net && !net_local(p->host->net, false, addr, NULL, &a) && a.scope_id)
		return a.scope_id;
	return p->port.iface.ifindex;
}

/**
 * host_sockaddr() - address for the socket calls
 * @p: port whose interface a link-local address belongs to
 * @ipv4: family
 * @addr: address, host order
 * @number: port number, host order
 * @ss: the result
 *
 * Return: its length.
 */
socklen_t host_sockaddr(struct host_port *p, bool ipv4, const u32 *addr, u16 number, struct sockaddr_storage *ss)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	int i;

	if (ipv4) {
		*in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(number) };
		in->sin_addr.s_addr = htonl(addr[0]);
		return sizeof(*in);
	}
	*in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(number) };
	for (i = 0; i < 4; i++)
		in6->sin6_addr.s6_addr32[i] = htonl(addr[i]);
	in6->sin6_scope_id = scope_of(p, addr);
	return sizeof(*in6);
}

/**
 * host_from_sockaddr() - the opposite of host_sockaddr()
 * @ss: AF_INET or AF_INET6
 * @addr: address, host order
 * @number: port number, host order
 */
void host_from_sockaddr(const struct sockaddr_storage *ss, u32 *addr, u16 *number)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
	int i;

	memset(addr, 0, 4 * sizeof(*addr));
	if (ss->ss_family == AF_INET) {
		addr[0] = ntohl(in->sin_addr.s_addr);
		*number = ntohs(in->sin_port);
		return;
	}
	for (i = 0; i < 4; i++)
		addr[i] = ntohl(in6->sin6_addr.s6_addr32[i]);
	*number = ntohs(in6->sin6_port);
}

/* The errors that port.h knows. */
static int known_errno(int error)
{
	switch (error) {
	case ENFILE:
		return -EMFILE;
	case ENOBUFS:
		return -ENOMEM;
	default:
		return -error;
	}
}

static void set_reuse(int fd)
{
	int on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

static int new_socket(bool ipv4, const u32 *addr)
{
	int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	int on = 1;

	if (fd < 0)
		return known_errno(errno);
	fd_own(fd);
	if (!ipv4 && pkt_addr_is_any(addr))
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	return fd;
}

static int bind_socket(struct host_port *p, int fd, bool ipv4, const u32 *addr, u16 number)
{
	struct sockaddr_storage ss;
	socklen_t len = host_sockaddr(p, ipv4, addr, number, &ss);

	return bind(fd, (struct sockaddr *)&ss, len) ? known_errno(errno) : 0;
}

/**
 * host_bound_socket() - non-blocking socket with an address of its own
 * @p: the port
 * @ipv4: family
 * @addr: local address; all-zero: every one of the family
 * @number: local port number
 *
 * Return: the descriptor, or one of the errors of port_ops.reserve.
 */
int host_bound_socket(struct host_port *p, bool ipv4, const u32 *addr, u16 number)
{
	int fd = new_socket(ipv4, addr);
	int rc;

	if (fd < 0)
		return fd;
	set_reuse(fd);
	rc = bind_socket(p, fd, ipv4, addr, number);
	if (rc) {
		fd_disown_close(fd);
		return rc;
	}
	return fd;
}

/* End a connection, or a listener, whose descriptor a forked process has as well. connect() to nobody is TCP's ABORT. */
static void end_shared(int fd, bool abort)
{
	struct sockaddr nobody = { .sa_family = AF_UNSPEC };

	if (!abort || connect(fd, &nobody, sizeof(nobody)))
		shutdown(fd, SHUT_RDWR);
}

/**
 * host_close_fd() - close a socket
 * @fd: descriptor, or -1 for none
 * @abort: with RST, whatever state it is in
 */
void host_close_fd(int fd, bool abort)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	if (!fd_reown(fd))
		return;
	if (abort)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	if (unlikely(host_sockets_shared))
		end_shared(fd, abort);
	fd_disown_close(fd);
}

/**
 * host_socket_error() - what went wrong on a socket
 * @fd: descriptor
 *
 * The kernel tells it once.
 *
 * Return: 0 or a negative errno.
 */
int host_socket_error(int fd)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len))
		return -errno;
	return -error;
}

/* ---- reservations ---- */

static bool resv_eq(const struct hash_node *n, const void *key)
{
	const struct host_reservation *r = container_of(n, struct host_reservation, node);
	const struct host_resv_key *k = key;

	return r->port == k->port && r->number == k->number && r->ipv4 == !!k->ipv4 && pkt_addr_eq(r->addr, k->addr);
}

static struct host_resv_key resv_key(const struct host_port *p, bool ipv4, const u32 *addr, u16 number)
{
	struct host_resv_key k;

	memset(&k, 0, sizeof(k));
	k.port = p;
	k.number = number;
	k.ipv4 = ipv4;
	memcpy(k.addr, addr, sizeof(k.addr));
	return k;
}

/* Locked. */
static struct host_reservation *resv_find(const struct host_port *p, bool ipv4, const u32 *addr, u16 number)
{
	const struct hash_table *t = &p->host->reservations;
	struct host_resv_key k = resv_key(p, ipv4, addr, number);
	struct hash_node *n = hash_find(t, hash_of(t, &k, sizeof(k)), resv_eq, &k);

	return n ? container_of(n, struct host_reservation, node) : NULL;
}

/* Locked. The socket of another NIC of this process that has the same reservation, or -1. */
static int resv_share(struct host_port *p, bool ipv4, const u32 *addr, u16 number)
{
	struct host_port *other;
	struct host_reservation *r;

	LIST_FOREACH(other, &p->host->ports, entry) {
		r = other != p ? resv_find(other, ipv4, addr, number) : NULL;
		if (r && fd_reown(r->fd))
			return fd_own(fcntl(r->fd, F_DUPFD_CLOEXEC, 0));
	}
	return -1;
}

/* Locked, once. */
static void read_number_range(struct port_host *h)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
	unsigned long low = 0, high = 0;
	char line[64], *end;

	if (f && fgets(line, sizeof(line), f)) {
		low = strtoul(line, &end, 10);
		high = strtoul(end, NULL, 10);
	}
	if (f)
		fclose(f);
	if (!low || high < low || high > UINT16_MAX) {
		low = 32768;
		high = 60999;
	}
	h->first_number = (u32)low;
	h->numbers = (u32)(high - low + 1);
	h->free_tries = FREE_TRIES;
	rand_secure(&h->turn, sizeof(h->turn));
}

/* Odd distances from the first one first, since connect() prefers the others. */
static u16 number_in_turn(const struct port_host *h, u32 turn)
{
	u32 i = turn % h->numbers, odd = h->numbers / 2;

	return (u16)(h->first_number + (i < odd ? 2 * i + 1 : 2 * (i - odd)));
}

/* Locked. Some connection of ours has it: the next one may be to the same peer. */
static bool is_connected(const struct port_host *h, u16 number)
{
	return h->connected[number / 8] & BIT(number % 8);
}

/**
 * host_note_number() - a connection begins or ends to use a local number
 * @h: the instance
 * @number: the number; two connections from different addresses may have the same, which only costs a try
 * @used: begins
 */
void host_note_number(struct port_host *h, u16 number, bool used)
{
	if (used)
		h->connected[number / 8] |= (u8)BIT(number % 8);
	else
		h->connected[number / 8] &= (u8)~BIT(number % 8);
}

/* Locked. Counts of 255 stay: there are, or were, more. */
static void note_reserved(struct port_host *h, u16 number, bool on)
{
	if (h->reserved[number] != UINT8_MAX)
		h->reserved[number] = (u8)(h->reserved[number] + (on ? 1 : -1));
}

/* Locked. By us, on this address or on every one. */
static bool is_reserved(const struct host_port *p, bool ipv4, const u32 *addr, u16 number)
{
	const struct host_port *other;
	static const u32 any[4];

	if (likely(!p->host->reserved[number])) /* spares two look-ups for each NIC */
		return false;
	LIST_FOREACH(other, &p->host->ports, entry)
		if (resv_find(other, ipv4, addr, number) || resv_find(other, ipv4, any, number))
			return true;
	return false;
}

/* Locked. Binds @fd to the first of @tries numbers that it can have, and returns it; or a negative errno. */
static int bind_in_turn(struct host_port *p, int fd, bool ipv4, const u32 *addr, u32 turn, u32 tries)
{
	struct port_host *h = p->host;
	int rc = -EADDRINUSE;

	for (; tries && rc == -EADDRINUSE; tries--) {
		u16 number = number_in_turn(h, turn++);

		if (is_connected(h, number) || is_reserved(p, ipv4, addr, number))
			continue;
		rc = bind_socket(p, fd, ipv4, addr, number);
		if (!rc) {
			h->turn = turn;
			return number;
		}
	}
	return rc;
}

/* Locked. Descriptor and *@number, or a negative errno. */
static int choose_number(struct host_port *p, bool ipv4, const u32 *addr, u16 *number)
{
	struct port_host *h = p->host;
	int fd = new_socket(ipv4, addr), rc;

	if (fd < 0)
		return fd;
	if (!h->numbers)
		read_number_range(h);
	rc = bind_in_turn(p, fd, ipv4, addr, h->turn, h->free_tries);
	/* Where there was none, there will hardly be one next time. */
	h->free_tries = rc == -EADDRINUSE ? max(h->free_tries / 2, 1u) : FREE_TRIES;
	set_reuse(fd);
	if (rc == -EADDRINUSE)
		rc = bind_in_turn(p, fd, ipv4, addr, h->turn, h->numbers);
	if (rc < 0) {
		fd_disown_close(fd);
		return rc;
	}
	*number = (u16)rc;
	return fd;
}

/* Locked. Descriptor, and *@number if it was 0; or a negative errno. */
static int resv_socket(struct host_port *p, bool ipv4, const u32 *addr, u16 *number)
{
	int fd;

	if (!*number)
		return choose_number(p, ipv4, addr, number);
	fd = resv_share(p, ipv4, addr, *number);
	return fd >= 0 ? fd : host_bound_socket(p, ipv4, addr, *number);
}

/* Locked. */
static int resv_add(struct host_port *p, bool ipv4, const u32 *addr, u16 *number, bool shared)
{
	struct hash_table *t = &p->host->reservations;
	struct host_reservation *r = calloc(1, sizeof(*r));
	struct host_resv_key k;

	if (!r)
		return -ENOMEM;
	r->fd = resv_socket(p, ipv4, addr, number);
	if (r->fd < 0) {
		int rc = r->fd;

		free(r);
		return rc;
	}
	r->port = p;
	r->ipv4 = ipv4;
	memcpy(r->addr, addr, sizeof(r->addr));
	r->number = *number;
	r->shared = shared;
	r->count = 1;
	k = resv_key(p, ipv4, addr, *number);
	hash_add(t, &r->node, hash_of(t, &k, sizeof(k)));
	note_reserved(p->host, r->number, true);
	return 0;
}

/**
 * host_reserve() - port_ops.reserve
 * @p: the port
 * @ipv4: family
 * @addr: address; all-zero: every one
 * @number: number; 0: one is chosen and returned
 * @shared: may be reserved again by others that say so too
 *
 * Return: 0, -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EMFILE, -ENOMEM.
 */
int host_reserve(struct port *p, bool ipv4, const u32 *addr, u16 *number, bool shared)
{
	struct host_port *hp = host_port_of(p);
	struct host_reservation *r;
	int rc = 0;

	pthread_mutex_lock(&hp->host->lock);
	r = *number ? resv_find(hp, ipv4, addr, *number) : NULL;
	if (!r)
		rc = resv_add(hp, ipv4, addr, number, shared);
	else if (r->shared && shared)
		r->count++;
	else
		rc = -EADDRINUSE;
	pthread_mutex_unlock(&hp->host->lock);
	return rc;
}

/* Locked. */
static void resv_del(struct port_host *h, struct host_reservation *r)
{
	hash_del(&h->reservations, &r->node);
	note_reserved(h, r->number, false);
	host_close_fd(r->fd, false);
	free(r);
}

/**
 * host_release() - port_ops.release
 * @p: the port
 * @ipv4: family
 * @addr: as reserved
 * @number: as reserved; listeners and connections that use it keep it as long as they live
 */
void host_release(struct port *p, bool ipv4, const u32 *addr, u16 number)
{
	struct host_port *hp = host_port_of(p);
	struct host_reservation *r;

	pthread_mutex_lock(&hp->host->lock);
	r = resv_find(hp, ipv4, addr, number);
	if (r && --r->count == 0)
		resv_del(hp->host, r);
	pthread_mutex_unlock(&hp->host->lock);
}

/**
 * host_adopt_reservation() - use a reservation's socket for a connection
 * @p: the port
 * @ipv4: family
 * @addr: the connection's local address
 * @number: its local number
 *
 * Spares a connection a socket and a bind. One on every address is of no use: the kernel would choose the source.
 *
 * Return: the descriptor, or -1 if there is none for just this address.
 */
int host_adopt_reservation(struct host_port *p, bool ipv4, const u32 *addr, u16 number)
{
	struct host_reservation *r = resv_find(p, ipv4, addr, number);
	int fd = r && fd_reown(r->fd) ? r->fd : -1;

	if (r)
		r->fd = -1;
	return fd;
}

static bool spare_resv(struct hash_node *n, void *arg)
{
	fd_spare(container_of(n, struct host_reservation, node)->fd);
	return true;
}

/**
 * host_spare_reservations() - a forked child may close what its parent reserved
 * @h: the instance
 */
void host_spare_reservations(struct port_host *h)
{
	hash_walk(&h->reservations, spare_resv, NULL);
}

struct resv_walk {
	struct port_host *h;
	const struct host_port *port;
};

static bool drop_resv(struct hash_node *n, void *arg)
{
	struct host_reservation *r = container_of(n, struct host_reservation, node);
	struct resv_walk *w = arg;

	if (r->port == w->port)
		resv_del(w->h, r);
	return true;
}

/**
 * host_drop_reservations() - release all that a port still holds
 * @p: the port
 */
void host_drop_reservations(struct host_port *p)
{
	struct resv_walk w = { p->host, p };

	hash_walk(&p->host->reservations, drop_resv, &w);
}
