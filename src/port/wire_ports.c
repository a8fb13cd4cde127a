/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port: local port numbers of a wire NIC.
 *
 * A number is free for an address unless somebody has it for the same address, or for every address, or wants
 * it for every address; two who both share may share. IPv4 and IPv6 are apart. A number is
 * chosen as RFC 6056 3.3.5 does it, by random steps, so that the next one cannot be guessed and
 * nothing is searched twice; busy stretches are skipped 64 at a time.
 */
#include <stdlib.h>
#include "port/wire_internal.h"

#define STEP_MAX 128u /* random step: 1 to this */
#define RANGE (WIRE_EPHEMERAL_LAST - WIRE_EPHEMERAL_FIRST + 1)

/* One (number, address), held @refs times by those who share. */
struct wire_port_use {
	struct wire_port_use *next;
	u32 addr[4];
	bool ipv4, shared;
	u32 refs;
};

static struct wire_port_use **slot(struct wire_ports *t, u16 number)
{
	struct wire_port_use **page = t->page[number >> 8];

	return page ? &page[number & 255] : NULL;
}

static int slot_get(struct wire_ports *t, u16 number, struct wire_port_use ***out)
{
	struct wire_port_use ***page = &t->page[number >> 8];

	if (!t->busy)
		t->busy = calloc(65536 / 64, sizeof(*t->busy));
	if (!*page)
		*page = calloc(256, sizeof(**page));
	if (!t->busy || !*page)
		return -ENOMEM;
	*out = &(*page)[number & 255];
	return 0;
}

static bool overlap(const struct wire_port_use *u, bool ipv4, const u32 *addr)
{
	return u->ipv4 == ipv4 && (pkt_addr_eq(u->addr, addr) || pkt_addr_is_any(u->addr) || pkt_addr_is_any(addr));
}

static bool is_free(struct wire_ports *t, u16 number, bool ipv4, const u32 *addr, bool shared)
{
	struct wire_port_use **s = slot(t, number), *u;

	for (u = s ? *s : NULL; u; u = u->next)
		if (overlap(u, ipv4, addr) && !(shared && u->shared))
			return false;
	return true;
}

static int take(struct wire_ports *t, u16 number, bool ipv4, const u32 *addr, bool shared)
{
	struct wire_port_use **s, *u;

	if (slot_get(t, number, &s))
		return -ENOMEM;
	for (u = *s; u; u = u->next)
		if (u->ipv4 == ipv4 && pkt_addr_eq(u->addr, addr)) {
			u->refs++;
			return 0;
		}
	u = malloc(sizeof(*u));
	if (!u)
		return -ENOMEM;
	*u = (struct wire_port_use){ .next = *s, .ipv4 = ipv4, .shared = shared, .refs = 1 };
	memcpy(u->addr, addr, sizeof(u->addr));
	*s = u;
	t->busy[number / 64] |= 1ull << number % 64;
	return 0;
}

/* The first number from @from to @to that nobody has at all; 0 if there is none. */
static u32 first_idle(const struct wire_ports *t, u32 from, u32 to)
{
	while (from <= to) {
		u64 idle = t->busy ? ~t->busy[from / 64] >> from % 64 : 1;

		if (idle) {
			from += (u32)__builtin_ctzll(idle);
			return from <= to ? from : 0;
		}
		from = (from / 64 + 1) * 64;
	}
	return 0;
}

/* All numbers are busy: one that is busy for other addresses will do. */
static u32 first_free(struct wire_ports *t, u32 start, bool ipv4, const u32 *addr)
{
	u32 i, n;

	if (t->full && t->full_ipv4 == ipv4 && pkt_addr_eq(t->full_addr, addr))
		return 0;
	for (i = 0; i < RANGE; i++) {
		n = WIRE_EPHEMERAL_FIRST + (start - WIRE_EPHEMERAL_FIRST + i) % RANGE;
		if (is_free(t, (u16)n, ipv4, addr, false))
			return n;
	}
	t->full = true;
	t->full_ipv4 = ipv4;
	memcpy(t->full_addr, addr, sizeof(t->full_addr));
	return 0;
}

static u32 choose(struct wire_ports *t, bool ipv4, const u32 *addr)
{
	u32 step, start, n;

	rand_secure(&step, sizeof(step));
	if (!t->next)
		t->next = WIRE_EPHEMERAL_FIRST + step % RANGE;
	start = WIRE_EPHEMERAL_FIRST + (t->next - WIRE_EPHEMERAL_FIRST + step % STEP_MAX) % RANGE;
	n = first_idle(t, start, WIRE_EPHEMERAL_LAST);
	if (!n)
		n = first_idle(t, WIRE_EPHEMERAL_FIRST, start);
	if (!n)
		n = first_free(t, start, ipv4, addr);
	if (n)
		t->next = n < WIRE_EPHEMERAL_LAST ? n + 1 : WIRE_EPHEMERAL_FIRST;
	return n;
}

/* A port_ops.reserve. */
int wire_reserve(struct port *port, bool ipv4, const u32 *addr, u16 *number, bool shared)
{
	struct wire_ports *t = &wire_port_of(port)->ports;
	u32 n = *number;
	int ret;

	if (!n)
		n = choose(t, ipv4, addr);
	else if (!is_free(t, (u16)n, ipv4, addr, shared))
		n = 0;
	if (!n)
		return -EADDRINUSE;
	ret = take(t, (u16)n, ipv4, addr, shared);
	if (!ret)
		*number = (u16)n;
	return ret;
}

/* A port_ops.release: undoes one wire_reserve(). */
void wire_release(struct port *port, bool ipv4, const u32 *addr, u16 number)
{
	struct wire_ports *t = &wire_port_of(port)->ports;
	struct wire_port_use **s = slot(t, number), **first = s, *u;

	for (; s && (u = *s); s = &u->next) {
		if (u->ipv4 != ipv4 || !pkt_addr_eq(u->addr, addr))
			continue;
		if (--u->refs)
			return;
		*s = u->next;
		free(u);
		t->full = false;
		if (!*first)
			t->busy[number / 64] &= ~(1ull << number % 64);
		return;
	}
}

void wire_ports_free(struct wire_ports *t)
{
	struct wire_port_use *u;
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(t->page); i++) {
		for (j = 0; t->page[i] && j < 256; j++)
			while ((u = t->page[i][j])) {
				t->page[i][j] = u->next;
				free(u);
			}
		free(t->page[i]);
		t->page[i] = NULL;
	}
	free(t->busy);
	t->busy = NULL;
}
