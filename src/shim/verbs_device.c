// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * shim: the devices: one for each NIC that there is or was. A struct ibv_device never moves and is never freed: programs and librdmacm keep
 * pointers to it for as long as they like.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shim/verbs_internal.h"

/* Leaf; taken with the device lock of iwcm held. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shim_device **devices;
static u32 num_devices;
static bool missing; /* one that there was no memory for */

void shim_devices_lock(void)
{
	pthread_mutex_lock(&lock);
}

void shim_devices_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* Called with the lock held. */
static struct shim_device *find(const struct irdma_device *iwdev)
{
	u32 i;

	for (i = 0; i < num_devices; i++)
		if (devices[i]->iwdev == iwdev && !devices[i]->gone)
			return devices[i];
	return NULL;
}

struct shim_device *shim_device_of(struct irdma_device *iwdev)
{
	struct shim_device *dev;

	shim_devices_lock();
	dev = find(iwdev);
	shim_devices_unlock();
	return dev;
}

__be64 shim_device_guid(struct irdma_device *iwdev)
{
	struct shim_device *dev = shim_device_of(iwdev);

	return dev ? dev->guid : 0;
}

/* ---- what a device is called ---- */

static bool guid_taken(__be64 guid)
{
	u32 i;

	for (i = 0; i < num_devices; i++)
		if (!devices[i]->gone && devices[i]->guid == guid)
			return true;
	return false;
}

/*
 * EUI-64 of the interface's MAC address (RFC 4291 appendix A, without its inverted bit: a node GUID is what the card has). An interface
 * without one gets a locally administered number from its index; one that shares its MAC address has the index where ff:fe would be:
 * librdmacm knows devices by their GUIDs.
 */
static __be64 make_guid(const struct net_iface *iface)
{
	static const u8 none[6];
	u8 made_up[6] = { 0x02, 'u', 'w' };
	const u8 *mac = iface->mac;
	u8 b[8];
	__be64 guid;

	if (!memcmp(mac, none, sizeof(none))) {
		made_up[4] = (u8)(iface->ifindex >> 8);
		made_up[5] = (u8)iface->ifindex;
		mac = made_up;
	}
	memcpy(b, mac, 3);
	b[3] = 0xff;
	b[4] = 0xfe;
	memcpy(b + 5, mac + 3, 3);
	memcpy(&guid, b, sizeof(guid));
	if (guid_taken(guid)) {
		b[3] = (u8)(iface->ifindex >> 8);
		b[4] = (u8)iface->ifindex;
		memcpy(&guid, b, sizeof(guid));
	}
	return guid;
}

/* Under /sys nothing of it exists; programs that look there for hints do without. */
static void name_device(struct shim_device *dev)
{
	struct ibv_device *d = &dev->ibdev;

	d->node_type = IBV_NODE_RNIC;
	d->transport_type = IBV_TRANSPORT_IWARP;
	snprintf(d->name, sizeof(d->name), "%s", dev->iwdev->name);
	snprintf(d->dev_name, sizeof(d->dev_name), "uverbs%u", dev->index);
	snprintf(d->dev_path, sizeof(d->dev_path), "/sys/class/infiniband_verbs/uverbs%u", dev->index);
	snprintf(d->ibdev_path, sizeof(d->ibdev_path), "/sys/class/infiniband/%s", dev->iwdev->name);
}

/* ---- coming and going ---- */

static void device_add(struct irdma_device *iwdev)
{
	struct shim_device *dev = calloc(1, sizeof(*dev));
	struct shim_device **grown;

	shim_devices_lock();
	grown = dev ? realloc(devices, (num_devices + 1) * sizeof(struct shim_device *)) : NULL;
	if (!grown) {
		missing = true; /* who asks for the list is told, and tries again */
		shim_devices_unlock();
		free(dev);
		log_error("shim", "no memory for device %s", iwdev->name);
		return;
	}
	devices = grown;
	iwdev->responder_waits = shim_options()->responder_waits;
	dev->iwdev = iwdev;
	dev->index = num_devices;
	dev->guid = make_guid(&iwdev->iface);
	name_device(dev);
	devices[num_devices++] = dev;
	shim_devices_unlock();
}

static void device_remove(struct irdma_device *iwdev)
{
	struct shim_device *dev;

	shim_devices_lock();
	dev = find(iwdev);
	if (dev)
		dev->gone = true;
	shim_devices_unlock();
	if (dev)
		shim_event_device(dev, IBV_EVENT_DEVICE_FATAL);
}

void shim_device_changed(void *arg, struct irdma_device *iwdev, bool added)
{
	if (added)
		device_add(iwdev);
	else
		device_remove(iwdev);
}

static struct shim_device *find_index(u32 ifindex)
{
	struct shim_device *dev = NULL;
	u32 i;

	shim_devices_lock();
	for (i = 0; i < num_devices && !dev; i++)
		if (!devices[i]->gone && devices[i]->iwdev->iface.ifindex == ifindex)
			dev = devices[i];
	shim_devices_unlock();
	return dev;
}

void shim_device_port(u32 ifindex, bool up)
{
	struct shim_device *dev = find_index(ifindex);

	if (dev)
		shim_event_device(dev, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

static void add_if_missing(struct irdma_device *iwdev, void *arg)
{
	(void)arg;
	if (!shim_device_of(iwdev))
		device_add(iwdev);
}

/* True: all NICs are devices. */
static bool complete(struct iwcm_ctx *ctx)
{
	bool was;

	shim_devices_lock();
	was = missing;
	missing = false;
	shim_devices_unlock();
	if (!was)
		return true;
	iwcm_for_each_device(ctx, add_if_missing, NULL);
	shim_devices_lock();
	was = missing;
	shim_devices_unlock();
	return !was;
}

/* ---- what programs see ---- */

static struct ibv_device **list_devices(int *count)
{
	struct ibv_device **list;
	int n = 0;
	u32 i;

	shim_devices_lock();
	list = calloc(num_devices + 1, sizeof(*list));
	for (i = 0; list && i < num_devices; i++)
		if (!devices[i]->gone)
			list[n++] = &devices[i]->ibdev;
	shim_devices_unlock();
	*count = n;
	return list;
}

SHIM_EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	SHIM_UNCANCELLED;
	struct iwcm_ctx *ctx = shim_ctx();
	struct ibv_device **list;
	int n = 0;

	if (num)
		*num = 0;
	if (!ctx)
		return NULL;
	list = complete(ctx) ? list_devices(&n) : NULL;
	if (!list)
		return shim_null(-ENOMEM);
	if (num)
		*num = n;
	return list;
}

SHIM_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	SHIM_UNCANCELLED;
	free(list);
}

SHIM_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

SHIM_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return (int)to_device(device)->index;
}

SHIM_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return to_device(device)->guid;
}
