/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Address handles: the CM's way to a peer. */
#include "rnic/rnic_internal.h"

/**
 * rnic_ah_create() - address handle towards a peer
 * @iwdev: the device
 * @attr: who talks to whom, and how
 * @ah: filled in; valid on success
 *
 * Return: 0, or what the port says.
 */
int rnic_ah_create(struct irdma_device *iwdev, const struct port_ah_attr *attr, struct irdma_sc_ah *ah)
{
	int rc = iwdev->port->ops->ah_create(iwdev->port, attr, &ah->port_ah);

	ah->valid = rc == 0;
	if (rc)
		ah->port_ah = NULL;
	return rc;
}

/**
 * rnic_ah_destroy() - end an address handle
 * @iwdev: the device
 * @ah: the handle; nothing happens if it is not valid, as after an offload
 */
void rnic_ah_destroy(struct irdma_device *iwdev, struct irdma_sc_ah *ah)
{
	if (!ah->valid)
		return;
	ah->valid = false;
	iwdev->port->ops->ah_destroy(iwdev->port, ah->port_ah);
	ah->port_ah = NULL;
}
