/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ARP table: link addresses of peers, by protocol address (hash) and by index (array). An index stays good
 * until the table is flushed. The table is bounded: who floods it from forged neighbours costs its own link only.
 */
#include <stdlib.h>
#include <string.h>
#include "rnic/rnic_internal.h"

#define ARP_MAX (1u << 16)
#define ARP_MIN 16u

struct arp_key {
	u32 addr[4];
	u32 ipv4;
};

struct rnic_arp_entry {
	struct hash_node hn;
	struct arp_key key;
	u8 mac[6];
	u32 index;
};

static struct arp_key arp_key(bool ipv4, const u32 *addr)
{
	struct arp_key k = { .ipv4 = ipv4 };

	memcpy(k.addr, addr, ipv4 ? sizeof(u32) : sizeof(k.addr));
	return k;
}

static bool arp_eq(const struct hash_node *n, const void *key)
{
	return memcmp(&container_of(n, struct rnic_arp_entry, hn)->key, key, sizeof(struct arp_key)) == 0;
}

static struct rnic_arp_entry *arp_lookup(struct irdma_device *iwdev, const struct arp_key *k, u64 hash)
{
	struct hash_node *n = hash_find(&iwdev->arp, hash, arp_eq, k);

	return n ? container_of(n, struct rnic_arp_entry, hn) : NULL;
}

/**
 * rnic_arp_find() - index of an entry
 * @iwdev: the device
 * @ipv4: family
 * @addr: protocol address
 *
 * Return: the index, or RNIC_ARP_NONE.
 */
int rnic_arp_find(struct irdma_device *iwdev, bool ipv4, const u32 *addr)
{
	struct arp_key k = arp_key(ipv4, addr);
	u64 hash = hash_of(&iwdev->arp, &k, sizeof(k));
	struct rnic_arp_entry *e;
	int index = RNIC_ARP_NONE;

	mutex_lock(&iwdev->lock);
	e = arp_lookup(iwdev, &k, hash);
	if (e)
		index = (int)e->index;
	mutex_unlock(&iwdev->lock);
	return index;
}

/* A free index; entries go all at once, so what is used is one run. */
static int arp_reserve(struct irdma_device *iwdev)
{
	struct rnic_arp_entry **grown;
	u32 size;

	if (iwdev->arp_free < iwdev->arp_size)
		return 0;
	if (iwdev->arp_size >= ARP_MAX)
		return -ENOSPC;
	size = max(iwdev->arp_size * 2, ARP_MIN);
	grown = realloc(iwdev->arp_by_index, size * sizeof(struct rnic_arp_entry *));
	if (!grown)
		return -ENOMEM;
	iwdev->arp_by_index = grown;
	iwdev->arp_size = size;
	return 0;
}

static int arp_add(struct irdma_device *iwdev, const struct arp_key *k, u64 hash, struct rnic_arp_entry **out)
{
	int rc = arp_reserve(iwdev);
	struct rnic_arp_entry *e;

	if (rc)
		return rc;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->key = *k;
	e->index = iwdev->arp_free++;
	iwdev->arp_by_index[e->index] = e;
	hash_add(&iwdev->arp, &e->hn, hash);
	*out = e;
	return 0;
}

/**
 * rnic_arp_set() - add an entry or change its link address
 * @iwdev: the device
 * @ipv4: family
 * @addr: protocol address
 * @mac: link address
 *
 * Return: the index, -ENOSPC if the table is full, or -ENOMEM.
 */
int rnic_arp_set(struct irdma_device *iwdev, bool ipv4, const u32 *addr, const u8 *mac)
{
	struct arp_key k = arp_key(ipv4, addr);
	u64 hash = hash_of(&iwdev->arp, &k, sizeof(k));
	struct rnic_arp_entry *e;
	int rc = 0;

	mutex_lock(&iwdev->lock);
	e = arp_lookup(iwdev, &k, hash);
	if (!e)
		rc = arp_add(iwdev, &k, hash, &e);
	if (!rc) {
		memcpy(e->mac, mac, sizeof(e->mac));
		rc = (int)e->index;
	}
	mutex_unlock(&iwdev->lock);
	return rc;
}

/**
 * rnic_arp_flush() - forget all entries
 * @iwdev: the device
 */
void rnic_arp_flush(struct irdma_device *iwdev)
{
	mutex_lock(&iwdev->lock);
	for (u32 i = 0; i < iwdev->arp_free; i++) {
		hash_del(&iwdev->arp, &iwdev->arp_by_index[i]->hn);
		free(iwdev->arp_by_index[i]);
	}
	free(iwdev->arp_by_index);
	iwdev->arp_by_index = NULL;
	iwdev->arp_size = iwdev->arp_free = 0;
	mutex_unlock(&iwdev->lock);
}

/**
 * rnic_arp_mac() - link address of an entry
 * @iwdev: the device
 * @index: from rnic_arp_find() or rnic_arp_set()
 * @mac: filled in
 *
 * Return: 0, or -ENOENT if there is no such entry.
 */
int rnic_arp_mac(struct irdma_device *iwdev, int index, u8 mac[6])
{
	int rc = -ENOENT;

	mutex_lock(&iwdev->lock);
	if (index >= 0 && (u32)index < iwdev->arp_free) {
		memcpy(mac, iwdev->arp_by_index[index]->mac, 6);
		rc = 0;
	}
	mutex_unlock(&iwdev->lock);
	return rc;
}
