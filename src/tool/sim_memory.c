// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: is what has come into a simulated program's memory what was sent, there and nowhere else?
 *
 * An attacker on the path (sim_attack.c) excuses a connection; with CRCs in use it does not, for what was delivered.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tool/sim_data.h"

void sim_data_violation(struct sim_data *d, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized): the line above */
	va_end(ap);
	if (d->crc)
		sim_violation(d->side->sim, "connection %llu, side %u: %s", (unsigned long long)d->side->serial, d->me, text);
	else
		sim_violation_on(d->side->sim, d->ends, "connection %llu, side %u: %s", (unsigned long long)d->side->serial, d->me, text);
}

static void check_slice(struct sim_data *d, const char *what, u32 i, u32 at, const struct sim_msg *m)
{
	const u8 *got = d->memory + at, *want = d->side->sim->pattern + m->src;
	u32 k = 0;

	if (!m->len || !memcmp(got, want, m->len))
		return;
	while (got[k] == want[k])
		k++;
	sim_data_violation(d, "%s of message %u, %u bytes: wrong from byte %u on", what, i, m->len, k);
}

void sim_check_arrived(struct sim_data *d, u32 i)
{
	const struct sim_msg *m = &d->peers->msg[i];

	if (m->verb == SIM_WRITE || m->verb == SIM_WRITE_IMM)
		check_slice(d, "Write", i, m->at, m);
	else if ((m->verb == SIM_SEND || m->verb == SIM_SEND_INV) && !m->hello)
		check_slice(d, "Send", i, m->recv_at, m);
}

static void check_atomic(struct sim_data *d, u32 i, const struct sim_msg *m)
{
	u64 got;

	memcpy(&got, d->memory + m->at, sizeof(got));
	if (m->shared ? got > sim_data_peer(d)->added_posted : got != m->before)
		sim_data_violation(d, "atomic operation %u brought %llx, not %llx", i, (unsigned long long)got, (unsigned long long)m->before);
}

void sim_check_brought(struct sim_data *d, u32 i)
{
	const struct sim_msg *m = &d->own->msg[i];

	if (m->verb == SIM_READ)
		check_slice(d, "Read", i, m->at, m);
	else if (sim_is_atomic(m))
		check_atomic(d, i, m);
}

/* ---- in the end ---- */

/* The word went through the values that the peer's plan has, in that order. Without RDMA Reads there are no atomics, either. */
static void check_word(struct sim_data *d)
{
	u64 got, word = 0;
	bool ok;

	memcpy(&got, d->memory + d->own->word_at, sizeof(got));
	ok = got == 0;
	for (u32 i = 0; i < d->peers->n; i++) {
		const struct sim_msg *m = &d->peers->msg[i];

		if (!sim_is_atomic(m) || m->shared)
			continue;
		if (m->verb == SIM_FETCH_ADD)
			word += m->operand;
		else if (word == m->compare)
			word = m->operand;
		ok |= got == word && !d->complete;
	}
	if (!ok && got != word)
		sim_data_violation(d, "the word of the peer's atomic operations is %llx", (unsigned long long)got);
}

static void paint(struct sim_data *d, u8 *want, u32 at, const struct sim_msg *m)
{
	u32 len = m->wrong == SIM_WRONG_LENGTH ? m->recv_len : m->wrong ? 0 : m->len;

	memcpy(want + at, d->side->sim->pattern + m->src, len);
}

/* What the memory looks like when all has come. */
static void picture(struct sim_data *d, u8 *want)
{
	memset(want, SIM_POISON, d->own->size);
	memcpy(want, d->memory, sizeof(struct sim_hello));
	memcpy(want + d->own->word_at, d->memory + d->own->word_at, sizeof(u64));
	for (u32 i = 0; i < d->peers->n; i++) {
		const struct sim_msg *m = &d->peers->msg[i];

		if (m->verb == SIM_WRITE || m->verb == SIM_WRITE_IMM)
			paint(d, want, m->at, m);
		else if (m->hello)
			memcpy(want + m->recv_at, d->greeted ? (const u8 *)&d->hello : d->memory + m->recv_at, m->len);
		else if (sim_takes_recv(m))
			paint(d, want, m->recv_at, m);
	}
	for (u32 i = 0; i < d->own->n; i++) {
		const struct sim_msg *m = &d->own->msg[i];

		if (m->verb == SIM_READ)
			paint(d, want, m->at, m);
		else if (sim_is_atomic(m))
			memcpy(want + m->at, d->memory + m->at, m->len);
	}
}

static void check_bytes(struct sim_data *d, const u8 *want)
{
	u32 i;

	if (!memcmp(d->memory, want, d->own->size))
		return;
	for (i = 0; i < d->own->size; i++)
		if (d->memory[i] != want[i] && d->memory[i] != SIM_POISON) {
			sim_data_violation(d, "byte %u of its memory is %02x, neither untouched nor %02x", i, d->memory[i], want[i]);
			return;
		}
}

/* What was right once still is. */
static void check_again(struct sim_data *d)
{
	for (u32 i = 0; i < d->seen; i++)
		sim_check_arrived(d, i);
	for (u32 i = 0; i < d->good; i++)
		if (d->posted[i] != SIM_SKIPPED)
			sim_check_brought(d, i);
}

void sim_check_memory(struct sim_data *d)
{
	u8 *want = malloc(d->own->size);

	check_word(d);
	check_again(d);
	if (!want)
		return;
	picture(d, want);
	check_bytes(d, want);
	free(want);
}
