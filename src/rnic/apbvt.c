/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The accelerated port table: which local TCP port numbers are this NIC's. The port reserves them
 * (the host port by a bound socket); here their users are counted, a listener and its children, or
 * connections that share a number.
 *
 * The device's lock is held over the port's reserve() and release(), so that a number cannot be
 * seen between the two.
 */
#include <string.h>
#include "rnic/rnic_internal.h"

static struct apbvt_key apbvt_key(bool ipv4, const u32 *addr, u16 number)
{
	struct apbvt_key k = { .ipv4 = ipv4, .number = number };

	memcpy(k.addr, addr, ipv4 ? sizeof(u32) : sizeof(k.addr));
	return k;
}

static bool apbvt_eq(const struct hash_node *n, const void *key)
{
	return memcmp(&container_of(n, struct apbvt_entry, hn)->key, key, sizeof(struct apbvt_key)) == 0;
}

static u64 apbvt_hash(const struct apbvt_key *k)
{
	return hash_own((u32)k->number << 1 | k->ipv4, k->addr);
}

static struct apbvt_entry *apbvt_find(struct irdma_device *iwdev, const struct apbvt_key *k)
{
	struct hash_node *n = hash_find(&iwdev->apbvt, apbvt_hash(k), apbvt_eq, k);

	return n ? container_of(n, struct apbvt_entry, hn) : NULL;
}

/* Ask the port; @k->number 0 is filled in. */
static int apbvt_reserve(struct irdma_device *iwdev, struct apbvt_key *k, bool shared)
{
	struct apbvt_entry *e = pool_get(&rnic_device_of(iwdev)->apbvt_pool);
	int rc;

	if (!e)
		return -ENOMEM;
	rc = iwdev->port->ops->reserve(iwdev->port, k->ipv4, k->addr, &k->number, shared);
	if (rc) {
		pool_put(&rnic_device_of(iwdev)->apbvt_pool, e);
		return rc;
	}
	e->key = *k;
	e->refs = 1;
	hash_add(&iwdev->apbvt, &e->hn, apbvt_hash(k));
	return 0;
}

/**
 * rnic_apbvt_add() - take a local port number, or one more reference to it
 * @iwdev: the device
 * @ipv4: family
 * @addr: local address, all-zero: every address
 * @number: the number; 0: one is chosen and written back
 * @shared: others may use it on other addresses, as with SO_REUSEADDR
 *
 * Return: 0, -ENOMEM, or what the port says: -EADDRINUSE, -EACCES...
 */
int rnic_apbvt_add(struct irdma_device *iwdev, bool ipv4, const u32 *addr, u16 *number, bool shared)
{
	struct apbvt_key k = apbvt_key(ipv4, addr, *number);
	struct apbvt_entry *e;
	int rc = 0;

	mutex_lock(&iwdev->lock);
	e = k.number ? apbvt_find(iwdev, &k) : NULL;
	if (e)
		e->refs++;
	else
		rc = apbvt_reserve(iwdev, &k, shared);
	mutex_unlock(&iwdev->lock);
	if (!rc)
		*number = k.number;
	return rc;
}

/**
 * rnic_apbvt_del() - drop a reference; the last one releases the number
 * @iwdev: the device
 * @ipv4: family
 * @addr: local address as it was given to rnic_apbvt_add()
 * @number: the number
 */
void rnic_apbvt_del(struct irdma_device *iwdev, bool ipv4, const u32 *addr, u16 number)
{
	struct apbvt_key k = apbvt_key(ipv4, addr, number);
	struct apbvt_entry *e;

	mutex_lock(&iwdev->lock);
	e = apbvt_find(iwdev, &k);
	assert(e);
	if (e && --e->refs == 0) {
		hash_del(&iwdev->apbvt, &e->hn);
		pool_put(&rnic_device_of(iwdev)->apbvt_pool, e);
		iwdev->port->ops->release(iwdev->port, ipv4, k.addr, number);
	}
	mutex_unlock(&iwdev->lock);
}

/**
 * rnic_apbvt_count() - numbers taken
 * @iwdev: the device
 *
 * Return: how many.
 */
size_t rnic_apbvt_count(struct irdma_device *iwdev)
{
	size_t n;

	mutex_lock(&iwdev->lock);
	n = iwdev->apbvt.count;
	mutex_unlock(&iwdev->lock);
	return n;
}
