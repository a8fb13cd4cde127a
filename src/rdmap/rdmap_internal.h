/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* rdmap: what only this room needs: the opcode table, big-endian fields, headers. */
#ifndef UWARP_RDMAP_INTERNAL_H
#define UWARP_RDMAP_INTERNAL_H

#include <endian.h>
#include <string.h>
#include "rdmap/rdmap.h"

struct rdmap_op {
	const char *name;
	bool tagged;
	u8 qn;               /* untagged: enum ddp_queue */
	u32 min_len, max_len; /* bytes behind the DDP header */
};
extern const struct rdmap_op rdmap_ops[RDMAP_OPCODES];

static inline u16 get_be16(const u8 *p)
{
	return (u16)(p[0] << 8 | p[1]);
}

static inline u32 get_be32(const u8 *p)
{
	u32 v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static inline u64 get_be64(const u8 *p)
{
	u64 v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static inline void put_be16(u8 *p, u16 v)
{
	p[0] = (u8)(v >> 8);
	p[1] = (u8)v;
}

static inline void put_be32(u8 *p, u32 v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put_be64(u8 *p, u64 v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

#define RDMAP_ANY_LEN UINT32_MAX
/* Is a message with this opcode one of fixed length, or a Terminate? Such ones are handed out whole. */
static inline bool rdmap_is_control(u8 opcode)
{
	return opcode == RDMAP_TERMINATE || rdmap_ops[opcode].max_len != RDMAP_ANY_LEN;
}

/* Bytes of an FPDU without markers. */
static inline u32 mpa_fpdu_bytes(u32 ulpdu_len)
{
	return ((MPA_LEN_SIZE + ulpdu_len + 3) & ~3u) + MPA_CRC_SIZE;
}
/* Is the CRC of this whole FPDU without markers right? */
bool mpa_crc_ok(const u8 *fpdu, u32 fpdu_len);
/* Has an FPDU begun, be it with the marker in front of it? */
bool mpa_rx_begun(const struct mpa_rx *rx);

#endif
