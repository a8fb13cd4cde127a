// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: which connections an attacker on the path had a hand in: one who knows the sequence numbers can end them, and where there is no CRC
 * put bytes into them. What goes wrong there is nobody's fault; but see sim_memory.c.
 *
 * The wire's corruption needs no such excuse: it is of a kind that TCP's checksum always finds (wire_path.c).
 */
#include <stdlib.h>
#include <string.h>
#include "tool/sim_world.h"

static u64 stir(u64 h, u64 word)
{
	h = (h ^ word) * 0x9E3779B97F4A7C15ull;
	return h ^ h >> 32;
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

void sim_set_add(struct sim_set *set, u64 h)
{
	u64 *place;

	if (2 * set->n >= set->size && !set_grow(set))
		return;
	place = set_place(set, h | 1);
	set->n += !*place;
	*place = h | 1;
}

bool sim_set_has(const struct sim_set *set, u64 h)
{
	return set->size && *set_place(set, h | 1);
}

void sim_set_free(struct sim_set *set)
{
	free(set->slot);
}

/* ---- connections ---- */

u64 sim_ends_of(const u32 a[4], u16 a_port, const u32 b[4], u16 b_port)
{
	return stir(stir(stir(a_port, a[0]), (u64)a[1] << 32 | a[2]), a[3]) + stir(stir(stir(b_port, b[0]), (u64)b[1] << 32 | b[2]), b[3]);
}

u64 sim_ends(const struct sockaddr_storage *local, const struct sockaddr_storage *remote)
{
	u32 a[4], b[4];
	u16 a_port, b_port;
	bool ipv4;

	if (!cm_addr_from_sockaddr(local, &ipv4, a, &a_port) || !cm_addr_from_sockaddr(remote, &ipv4, b, &b_port))
		return 0;
	return sim_ends_of(a, a_port, b, b_port);
}

bool sim_is_tampered(const struct sim *sim, u64 ends)
{
	return sim_set_has(&sim->tampered, ends);
}
