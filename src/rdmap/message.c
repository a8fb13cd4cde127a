/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * RDMAP headers behind the DDP header (RFC 5040 4.4, RFC 7306 5.2, 5.3, 6.1), and what the atomic operations compute. put and get are
 * mirror images; lengths are checked by ddp_parse() against the opcode's row.
 */
#include "rdmap/rdmap_internal.h"

#define ATOMIC_OPCODE_MASK 0xF /* 28 reserved bits before it */

/**
 * rdmap_put_read_req() - header of a Read Request
 * @out: RDMAP_READ_REQ_SIZE bytes
 * @r: what to read and where it goes
 *
 * Return: its length.
 */
u32 rdmap_put_read_req(u8 *out, const struct rdmap_read_req *r)
{
	put_be32(out, r->sink_stag);
	put_be64(out + 4, r->sink_to);
	put_be32(out + 12, r->len);
	put_be32(out + 16, r->src_stag);
	put_be64(out + 20, r->src_to);
	return RDMAP_READ_REQ_SIZE;
}

/**
 * rdmap_get_read_req() - decode a Read Request
 * @payload: payload of a Read Request that ddp_parse() accepted
 * @r: what it says
 */
void rdmap_get_read_req(const u8 *payload, struct rdmap_read_req *r)
{
	r->sink_stag = get_be32(payload);
	r->sink_to = get_be64(payload + 4);
	r->len = get_be32(payload + 12);
	r->src_stag = get_be32(payload + 16);
	r->src_to = get_be64(payload + 20);
}

/**
 * rdmap_put_atomic_req() - header of an Atomic Request
 * @out: RDMAP_ATOMIC_REQ_SIZE bytes
 * @r: the operation; FetchAdd's compare fields should be 0
 *
 * Return: its length.
 */
u32 rdmap_put_atomic_req(u8 *out, const struct rdmap_atomic_req *r)
{
	put_be32(out, r->op);
	put_be32(out + 4, r->id);
	put_be32(out + 8, r->stag);
	put_be64(out + 12, r->to);
	put_be64(out + 20, r->data);
	put_be64(out + 28, r->data_mask);
	put_be64(out + 36, r->compare);
	put_be64(out + 44, r->compare_mask);
	return RDMAP_ATOMIC_REQ_SIZE;
}

/**
 * rdmap_get_atomic_req() - decode an Atomic Request
 * @payload: payload of an Atomic Request that ddp_parse() accepted
 * @r: what it says; r->op may be no enum rdmap_atomic_opcode
 */
void rdmap_get_atomic_req(const u8 *payload, struct rdmap_atomic_req *r)
{
	r->op = (u8)(get_be32(payload) & ATOMIC_OPCODE_MASK);
	r->id = get_be32(payload + 4);
	r->stag = get_be32(payload + 8);
	r->to = get_be64(payload + 12);
	r->data = get_be64(payload + 20);
	r->data_mask = get_be64(payload + 28);
	r->compare = get_be64(payload + 36);
	r->compare_mask = get_be64(payload + 44);
}

/**
 * rdmap_put_atomic_resp() - header of an Atomic Response
 * @out: RDMAP_ATOMIC_RESP_SIZE bytes
 * @id: the request's
 * @original: the value before the operation
 *
 * Return: its length.
 */
u32 rdmap_put_atomic_resp(u8 *out, u32 id, u64 original)
{
	put_be32(out, id);
	put_be64(out + 4, original);
	return RDMAP_ATOMIC_RESP_SIZE;
}

/**
 * rdmap_get_atomic_resp() - decode an Atomic Response
 * @payload: payload of an Atomic Response that ddp_parse() accepted
 * @id: the request's
 * @original: the value before the operation
 */
void rdmap_get_atomic_resp(const u8 *payload, u32 *id, u64 *original)
{
	*id = get_be32(payload);
	*original = get_be64(payload + 4);
}

/**
 * rdmap_put_imm() - payload of Immediate Data
 * @out: RDMAP_IMM_SIZE bytes
 * @imm: the data
 *
 * Return: its length.
 */
u32 rdmap_put_imm(u8 *out, u64 imm)
{
	put_be64(out, imm);
	return RDMAP_IMM_SIZE;
}

/**
 * rdmap_get_imm() - decode Immediate Data
 * @payload: payload of Immediate Data that ddp_parse() accepted
 *
 * Return: the data.
 */
u64 rdmap_get_imm(const u8 *payload)
{
	return get_be64(payload);
}

/* RFC 7306 5.1.1: a set bit in @mask is the top of a field, out of which nothing is carried. Those are added apart, without carry. */
static u64 add_fields(u64 a, u64 b, u64 mask)
{
	return ((a & ~mask) + (b & ~mask)) ^ ((a ^ b) & mask);
}

/**
 * rdmap_atomic_result() - what an atomic operation stores (RFC 7306 5.1)
 * @r: the operation
 * @old: the value there
 *
 * FetchAdd adds, with r->data_mask marking the top bits of independent fields, 0 for one of 64 bits. CmpSwap replaces the bits in r->data_mask if those
 * in r->compare_mask are equal to r->compare's.
 *
 * Return: the value to store; @old for an unknown operation.
 */
u64 rdmap_atomic_result(const struct rdmap_atomic_req *r, u64 old)
{
	switch (r->op) {
	case RDMAP_FETCH_ADD:
		return add_fields(old, r->data, r->data_mask);
	case RDMAP_CMP_SWAP:
		return (old ^ r->compare) & r->compare_mask ? old : (old & ~r->data_mask) | (r->data & r->data_mask);
	default:
		return old;
	}
}
