/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Filters: which frames of the world the ILQ gets. The port keeps them; there is nothing to add here. */
#include "rnic/rnic_internal.h"

/**
 * rnic_filter_add() - direct frames to the ILQ
 * @iwdev: the device
 * @attr: a listener, or the tuple of one connection
 * @out: the filter
 *
 * Return: 0, or what the port says.
 */
int rnic_filter_add(struct irdma_device *iwdev, const struct port_filter_attr *attr, struct port_filter **out)
{
	return iwdev->port->ops->filter_add(iwdev->port, attr, out);
}

/**
 * rnic_filter_del() - undo rnic_filter_add()
 * @iwdev: the device
 * @f: the filter
 */
void rnic_filter_del(struct irdma_device *iwdev, struct port_filter *f)
{
	iwdev->port->ops->filter_del(iwdev->port, f);
}

/**
 * rnic_filter_kick() - a full listener has room again
 * @iwdev: the device
 * @f: its filter
 */
void rnic_filter_kick(struct irdma_device *iwdev, struct port_filter *f)
{
	if (iwdev->port->ops->filter_kick)
		iwdev->port->ops->filter_kick(iwdev->port, f);
}
