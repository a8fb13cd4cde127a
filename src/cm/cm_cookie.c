// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * SYN cookies (RFC 4987 3.6): the initial sequence number of a SYN+ACK that says all that a node would remember, so that none is needed
 * before the peer has shown that it gets what is sent to its address.
 *
 *   bits 31-5  27 bits of SipHash under a secret key, over the 4-tuple, the VLAN, the peer's initial sequence number and the time slot
 *   bits 4-2   window scale class  } hidden by five more bits of the hash. They need no protection from the peer whose they are:
 *   bits 1-0   MSS class           } it could have sent another SYN
 *
 * Each slot has a key of its own, made when it is first needed; the keys of this slot and of the one before are known. So a cookie is good for one to two
 * slots, and what leaks of a key is worth nothing soon after. A blind guess is right with a chance of 2^5 * 2 / 2^32 = 2^-26, and only
 * while a listener is crowded, or was lately; outside of that no cookie is looked at, and a node is met only with its very number.
 *
 * RFC 6528 wants numbers of one 4-tuple to grow, too, against segments of an earlier connection; cookies do not. The peer's own number, which is its to
 * choose, is hashed in; and who closed first keeps TIME_WAIT.
 */
#include <assert.h>
#include <sodium.h>
#include <string.h>
#include "cm/cm_internal.h"

#define DATA_BITS 5
#define DATA_MASK (BIT(DATA_BITS) - 1)

/* Rounded down, so that nobody is sent more than it said. The last class is our own, which most peers on the same link have, too. */
static const u16 mss_classes[] = { CM_MSS_DEFAULT_V4, CM_MSS_DEFAULT_V6, 1400 };
#define MSS_OURS ARRAY_SIZE(mss_classes)
/* Class 0: the SYN had no window scale. */
static const u8 wscale_classes[] = { 0, 0, 2, 4, 6, 7, 8, 11 };
static_assert(MSS_OURS < 4 && ARRAY_SIZE(wscale_classes) == 8, "they fit into two and three bits");

/* What is hashed; without padding. */
struct cookie_key {
	u32 src[4], dst[4];
	u32 seq, slot;
	u16 sport, dport;
	u32 vlan_id;
};
static_assert(sizeof(struct cookie_key) == 48, "no padding");

static u32 mss_class(u16 mss, u16 ours)
{
	u32 i = 0;

	if (mss >= ours)
		return MSS_OURS;
	while (i + 1 < ARRAY_SIZE(mss_classes) && mss >= mss_classes[i + 1])
		i++;
	return i;
}

static u32 wscale_class(const struct cm_cookie *c)
{
	u32 i = 1;

	if (!c->wscale_ok)
		return 0;
	while (i + 1 < ARRAY_SIZE(wscale_classes) && c->wscale >= wscale_classes[i + 1])
		i++;
	return i;
}

/* The present slot, counted from 1, with the keys of it and of the one before in place. */
static u32 slot_now(struct irdma_cm_core *core)
{
	struct cm_cookie_keys *k = &core->cookies;
	u32 slot = (u32)(cm_now(core) / (CM_COOKIE_SLOT_MS * NSEC_PER_MSEC)) + 1;

	if (k->slot == slot)
		return slot;
	if (k->slot != slot - 1)
		rand_secure(k->key[(slot - 1) & 1], sizeof(k->key[0]));
	rand_secure(k->key[slot & 1], sizeof(k->key[0]));
	k->slot = slot;
	return slot;
}

static u64 hash_in_slot(const struct irdma_cm_core *core, const struct pkt *pkt, u32 seq, u32 slot)
{
	struct cookie_key k = { .seq = seq, .slot = slot, .sport = pkt->sport, .dport = pkt->dport, .vlan_id = pkt->vlan_id };
	u8 out[crypto_shorthash_BYTES];
	u64 h;

	static_assert(sizeof(core->cookies.key[0]) == crypto_shorthash_KEYBYTES, "key size");
	memcpy(k.src, pkt->src, sizeof(k.src));
	memcpy(k.dst, pkt->dst, sizeof(k.dst));
	crypto_shorthash(out, (const u8 *)&k, sizeof(k), core->cookies.key[slot & 1]);
	memcpy(&h, out, sizeof(h));
	return h;
}

static u32 encode(u64 h, u32 data)
{
	return ((u32)h << DATA_BITS | ((u32)(h >> 32) & DATA_MASK)) ^ data;
}

u32 cm_cookie_make(struct irdma_cm_core *core, const struct pkt *syn, u16 our_mss, const struct cm_cookie *c)
{
	u32 slot = slot_now(core);

	return encode(hash_in_slot(core, syn, syn->seq, slot), wscale_class(c) << 2 | mss_class(c->mss, our_mss));
}

static void decode(u32 data, u16 our_mss, struct cm_cookie *out)
{
	u32 mss = data & 3, wscale = data >> 2;

	out->mss = mss == MSS_OURS ? our_mss : min(mss_classes[mss], our_mss);
	out->wscale_ok = wscale != 0;
	out->wscale = wscale_classes[wscale];
}

bool cm_cookie_check(struct irdma_cm_core *core, const struct pkt *ack, u16 our_mss, struct cm_cookie *out)
{
	u32 slot = slot_now(core), cookie = ack->ack - 1, data, back;

	for (back = 0; back < 2; back++) {
		data = cookie ^ encode(hash_in_slot(core, ack, ack->seq - 1, slot - back), 0);
		if (data <= DATA_MASK) {
			decode(data, our_mss, out);
			return true;
		}
	}
	return false;
}
