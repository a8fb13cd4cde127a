// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: the private data of simulated connections: each side knows what the other one must say. */
#include <string.h>
#include "tool/sim_world.h"

/* Mostly short; requests begin with the serial number. */
u32 sim_pdata_make(const struct sim *sim, u64 serial, enum sim_pdata kind, u8 out[SIM_PDATA_MAX])
{
	u64 h = sim_mix(sim_mix(sim->p->seed + 1) ^ sim_mix(serial * 4 + kind));
	u32 most = kind == SIM_PDATA_REJECT ? SIM_PDATA_REJECT_MAX : SIM_PDATA_MAX;
	u32 least = kind == SIM_PDATA_REQUEST ? sizeof(serial) : 0, len, i;

	len = h % 16 ? least + (u32)(h >> 8) % 57 : least + (u32)(h >> 8) % (most - least + 1);
	for (i = 0; i < len; i++)
		out[i] = (u8)(sim_mix(h + i / 8) >> i % 8 * 8);
	if (kind == SIM_PDATA_REQUEST)
		memcpy(out, &serial, sizeof(serial));
	return len;
}

bool sim_pdata_check(struct sim *sim, u64 serial, enum sim_pdata kind, const struct iwcm_event *ev)
{
	u8 want[SIM_PDATA_MAX];
	u32 len = sim_pdata_make(sim, serial, kind, want);

	if (ev->private_data_len == len && !memcmp(ev->private_data, want, len))
		return true;
	sim_violation_on(sim, sim_ends(&ev->local, &ev->remote), "connection %llu: private data of kind %d is not what was sent: %zu bytes, not %u",
			 (unsigned long long)serial, kind, ev->private_data_len, len);
	return false;
}
