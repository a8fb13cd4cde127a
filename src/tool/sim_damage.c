// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: damage that no checksum shows. TCP's is 16 bits of plain sum: two flipped bits in the same column cancel out once
 * in two times. So a simulation with corruption must know which segments arrived that nobody ever sent; what
 * goes wrong on their connections is nobody's fault.
 */
#include <stdlib.h>
#include <string.h>
#include "tool/sim_world.h"

static u64 stir(u64 h, u64 word)
{
	h = (h ^ word) * 0x9E3779B97F4A7C15ull;
	return h ^ h >> 32;
}

static u64 hash_bytes(u64 h, const void *p, size_t len)
{
	u64 word = 0;

	for (; len >= sizeof(word); len -= sizeof(word), p = (const u8 *)p + sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		h = stir(h, word);
	}
	word = len;
	memcpy((u8 *)&word + 1, p, len);
	return stir(h, word);
}

/* ---- a set of hashes; 0 stands for an empty place ---- */

static u64 *set_place(const struct sim_set *set, u64 h)
{
	size_t i = h & (set->size - 1);

	while (set->slot[i] && set->slot[i] != h)
		i = (i + 1) & (set->size - 1);
	return &set->slot[i];
}

static bool set_grow(struct sim_set *set)
{
	struct sim_set grown = { .size = max(2 * set->size, (size_t)1024), .n = set->n };
	size_t i;

	grown.slot = calloc(grown.size, sizeof(*grown.slot));
	if (!grown.slot)
		return false;
	for (i = 0; i < set->size; i++)
		if (set->slot[i])
			*set_place(&grown, set->slot[i]) = set->slot[i];
	free(set->slot);
	*set = grown;
	return true;
}

static void set_add(struct sim_set *set, u64 h)
{
	u64 *place;

	if (2 * set->n >= set->size && !set_grow(set))
		return;
	place = set_place(set, h | 1);
	set->n += !*place;
	*place = h | 1;
}

static bool set_has(const struct sim_set *set, u64 h)
{
	return set->size && *set_place(set, h | 1);
}

void sim_set_free(struct sim_set *set)
{
	free(set->slot);
}

/* ---- segments and connections ---- */

/* The same for both ends. */
static u64 hash_ends(const u32 a[4], u16 a_port, const u32 b[4], u16 b_port)
{
	return stir(hash_bytes(0, a, 16), a_port) + stir(hash_bytes(0, b, 16), b_port);
}

void sim_watch_frame(void *arg, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	struct sim *sim = ((struct sim_host *)arg)->sim;
	u64 ends = hash_ends(p->src, p->sport, p->dst, p->dport);
	u64 segment = hash_bytes(ends, p->tcph, (size_t)(p->data + p->datalen - (const u8 *)p->tcph));

	if (out)
		set_add(&sim->sent, segment);
	else if (!set_has(&sim->sent, segment))
		set_add(&sim->damaged, ends);
}

u64 sim_ends(const struct sockaddr_storage *local, const struct sockaddr_storage *remote)
{
	u32 a[4], b[4];
	u16 a_port, b_port;
	bool ipv4;

	if (!cm_addr_from_sockaddr(local, &ipv4, a, &a_port) || !cm_addr_from_sockaddr(remote, &ipv4, b, &b_port))
		return 0;
	return hash_ends(a, a_port, b, b_port);
}

bool sim_is_damaged(const struct sim *sim, u64 ends)
{
	return set_has(&sim->damaged, ends);
}
