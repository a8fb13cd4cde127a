/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Protection domains: what belongs together. */
#include <stdlib.h>
#include "rnic/rnic_internal.h"

/**
 * rnic_pd_create() - a protection domain
 * @iwdev: the device
 * @out: the domain
 *
 * Return: 0, or -ENOMEM.
 */
int rnic_pd_create(struct irdma_device *iwdev, struct rnic_pd **out)
{
	struct rnic_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return -ENOMEM;
	pd->iwdev = iwdev;
	count_up(&rnic_device_of(iwdev)->pds);
	*out = pd;
	return 0;
}

/**
 * rnic_pd_destroy() - free a protection domain
 * @pd: the domain
 *
 * Return: 0, or -EBUSY while regions, windows, SRQs or QPs are in it.
 */
int rnic_pd_destroy(struct rnic_pd *pd)
{
	if (__atomic_load_n(&pd->users, __ATOMIC_ACQUIRE))
		return -EBUSY;
	count_down(&rnic_device_of(pd->iwdev)->pds);
	free(pd);
	return 0;
}
