// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* shim: the tables of UWARP_STATS and of `uwarp stat`, which is built with this file, too. */
#include "shim/stats.h"

/* "1234", "12.3 M": six characters at most. */
static const char *scaled(u64 n, char buf[16])
{
	static const char units[] = "kMGTPE";
	double v = (double)n;
	int unit = -1;

	if (n < 100000) {
		snprintf(buf, 16, "%u", (unsigned int)n);
		return buf;
	}
	do {
		v /= 1000;
		unit++;
	} while (v >= 999.5);
	snprintf(buf, 16, "%.*f %c", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[unit]);
	return buf;
}

static void cell(FILE *f, u64 n)
{
	char buf[16];

	fprintf(f, " %8s", scaled(n, buf));
}

/* What a program calls a Send: all that take a receive from the other end. */
static u64 sends(const u64 msgs[RDMAP_OPCODES])
{
	return msgs[RDMAP_SEND] + msgs[RDMAP_SEND_INV] + msgs[RDMAP_SEND_SE] + msgs[RDMAP_SEND_SE_INV] + msgs[RDMAP_IMM] + msgs[RDMAP_IMM_SE];
}

static bool active(const struct shim_stats_device *d)
{
	return d->cm.connects || d->cm.established_active || d->cm.established_passive || d->cm.passive_errs || d->cm.listens_created ||
	       d->nic.qps_created;
}

static void print_connections(FILE *f, const struct shim_stats *s)
{
	const struct shim_stats_device *d;

	fprintf(f, "%-18s %8s %8s %8s %8s %8s %8s %8s %8s %8s\n", "connections", "out", "in", "now", "failed", "rejected", "retries", "QPs", "QPs now",
		"loopback");
	for (d = s->device; d < s->device + s->devices; d++) {
		if (!active(d))
			continue;
		fprintf(f, "%-18s", d->name);
		cell(f, d->cm.established_active);
		cell(f, d->cm.established_passive);
		cell(f, d->cm.nodes_now);
		cell(f, d->cm.connect_errs + d->cm.passive_errs);
		cell(f, d->cm.rejects);
		cell(f, d->cm.retransmits);
		cell(f, d->nic.qps_created);
		cell(f, d->nic.qps_now);
		cell(f, d->cm.loopbacks);
		putc('\n', f);
	}
}

static void print_way(FILE *f, const char *name, const char *way, u64 bytes, u64 fpdus, const u64 msgs[RDMAP_OPCODES], u64 terminates)
{
	fprintf(f, "%-18s %-4s", name, way);
	cell(f, bytes);
	cell(f, fpdus);
	cell(f, sends(msgs));
	cell(f, msgs[RDMAP_WRITE]);
	cell(f, msgs[RDMAP_READ_REQ]);
	cell(f, msgs[RDMAP_ATOMIC_REQ]);
	cell(f, terminates);
}

static void print_data(FILE *f, const struct shim_stats *s)
{
	const struct shim_stats_device *d;

	fprintf(f, "%-18s %-4s %8s %8s %8s %8s %8s %8s %8s %8s\n", "data", "", "bytes", "FPDUs", "Sends", "Writes", "Reads", "atomics", "Termin.",
		"WC errs");
	for (d = s->device; d < s->device + s->devices; d++) {
		if (!active(d))
			continue;
		print_way(f, d->name, "out", d->nic.qp.tx_bytes, d->nic.qp.tx_fpdus, d->nic.qp.tx_msgs, d->nic.qp.terminates_sent);
		cell(f, d->nic.qp.completions_in_error);
		putc('\n', f);
		print_way(f, "", "in", d->nic.qp.rx_bytes, d->nic.qp.rx_fpdus, d->nic.qp.rx_msgs, d->nic.qp.terminates_received);
		putc('\n', f);
	}
}

/**
 * shim_stats_print() - tables for people, or one line if there is nothing to show
 * @f: where to
 * @s: what was counted
 * @pid: of the program, as the reader knows it
 */
void shim_stats_print(FILE *f, const struct shim_stats *s, pid_t pid)
{
	u32 i;

	fprintf(f, "uwarp: %s, process %d, after %.1f s", s->program, (int)pid, (double)s->up_ns / NSEC_PER_SEC);
	for (i = 0; i < s->devices && !active(&s->device[i]); i++)
		;
	fputs(i == s->devices ? ": no connections\n" : "\n", f);
	if (i == s->devices)
		return;
	print_connections(f, s);
	print_data(f, s);
}
