/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The STag table, and the check that each access to a program's memory passes.
 *
 * An STag is drawn at random, so the table needs no secret hash: its index says in which shard it is, and in which bucket there. Accesses to
 * different shards share nothing. An access looks its STag up, checks, and counts itself as a user of the region (and of the window through
 * which it came), all under the shard's lock; then the memory may be touched with no lock held. Whoever ends a region or window first takes
 * it out of the table and marks it as dying: no new access can begin; then it waits until the last user is gone, who sees the mark and wakes it.
 *
 * An access through a window counts as the region's, too: the window may be invalidated while it is going on (by the peer's next message,
 * say), which does not wait, for it may be asked by the one who makes the access.
 */
#include "rnic/rnic_internal.h"

#define REMOTE_RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static_assert(RNIC_MAX_STAGS <= 1u << 23, "half of the indices stay free, so that drawing one ends soon");

static u32 shard_of(u32 stag)
{
	return RNIC_STAG_INDEX(stag) % RNIC_STAG_SHARDS;
}

/* Unique within a shard. */
static u64 stag_hash(u32 stag)
{
	return RNIC_STAG_INDEX(stag) / RNIC_STAG_SHARDS;
}

static bool same_index(const struct hash_node *n, const void *key)
{
	return n->hash == *(const u64 *)key;
}

struct rnic_stag *rnic_stag_find(struct rnic_stag_shard *shard, u32 stag)
{
	u64 hash = stag_hash(stag);
	struct hash_node *n = hash_find(&shard->table, hash, same_index, &hash);

	return n ? container_of(n, struct rnic_stag, hn) : NULL;
}

struct rnic_stag_table *rnic_stag_table_of(const struct irdma_device *iwdev)
{
	return &container_of(iwdev, struct rnic_device, dev)->stags;
}

struct rnic_stag_shard *rnic_stag_lock(const struct irdma_device *iwdev, u32 stag)
{
	struct rnic_stag_shard *shard = &rnic_stag_table_of(iwdev)->shard[shard_of(stag)];

	mutex_lock(&shard->lock);
	return shard;
}

/* ---- life of the table ---- */

static int shard_init(struct rnic_stag_shard *shard)
{
	static const u8 no_key[HASH_KEY_BYTES];

	return hash_init(&shard->table, no_key) ? -ENOMEM : 0;
}

static void shard_destroy(struct rnic_stag_shard *shard)
{
	hash_destroy(&shard->table);
}

int rnic_stag_table_init(struct rnic_stag_table *t)
{
	u32 i;

	for (i = 0; i < RNIC_STAG_SHARDS; i++)
		if (shard_init(&t->shard[i]))
			goto destroy_shards;
	t->count = 0;
	return 0;

destroy_shards:
	while (i--)
		shard_destroy(&t->shard[i]);
	return -ENOMEM;
}

/* Regions and windows hold protection domains, so that there are none any more. */
void rnic_stag_table_destroy(struct rnic_stag_table *t)
{
	assert(t->count == 0);
	for (u32 i = 0; i < RNIC_STAG_SHARDS; i++)
		shard_destroy(&t->shard[i]);
}

/* ---- life of an entry ---- */

static bool try_enter(struct rnic_stag *s, u32 stag)
{
	struct rnic_stag_shard *shard = rnic_stag_lock(s->pd->iwdev, stag);
	bool taken = rnic_stag_find(shard, stag);

	if (!taken) {
		s->shard = shard;
		__atomic_store_n(&s->stag, stag, __ATOMIC_RELAXED);
		__atomic_store_n(&s->users, 0, __ATOMIC_RELAXED);
		hash_add(&shard->table, &s->hn, stag_hash(stag));
	}
	mutex_unlock(&shard->lock);
	return !taken;
}

static void enter(struct rnic_stag *s)
{
	u32 stag;

	do {
		rand_secure(&stag, sizeof(stag));
	} while (!RNIC_STAG_INDEX(stag) || !try_enter(s, stag));
}

/* Take it out of the table; afterwards nobody accesses it. */
static void leave(struct rnic_stag *s)
{
	struct rnic_stag_shard *shard = s->shard;

	mutex_lock(&shard->lock);
	hash_del(&shard->table, &s->hn);
	__atomic_fetch_or(&s->users, RNIC_STAG_DYING, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&s->users, __ATOMIC_ACQUIRE) != RNIC_STAG_DYING)
		cond_wait(&shard->idle, &shard->lock);
	mutex_unlock(&shard->lock);
}

int rnic_stag_add(struct rnic_stag *s)
{
	struct rnic_stag_table *t = rnic_stag_table_of(s->pd->iwdev);

	if (count_up(&t->count) >= RNIC_MAX_STAGS) {
		count_down(&t->count);
		return -ENOSPC;
	}
	rnic_pd_hold(s->pd);
	s->bindable = s->kind == RNIC_STAG_REGION;
	enter(s);
	return 0;
}

/* From here on no window can be bound to it. */
static int end_binding(struct rnic_stag_table *t, struct rnic_stag *s)
{
	int rc = 0;

	mutex_lock(&t->bind_lock);
	if (__atomic_load_n(&s->bound, __ATOMIC_ACQUIRE))
		rc = -EBUSY;
	else
		s->bindable = false;
	mutex_unlock(&t->bind_lock);
	return rc;
}

int rnic_stag_del(struct rnic_stag *s)
{
	struct rnic_stag_table *t = rnic_stag_table_of(s->pd->iwdev);
	int rc = end_binding(t, s);

	if (rc)
		return rc;
	leave(s);
	rnic_pd_put(s->pd);
	count_down(&t->count);
	return 0;
}

int rnic_stag_change(struct rnic_stag *s, bool renew, void (*change)(struct rnic_stag *s, const void *arg), const void *arg)
{
	struct rnic_stag_table *t = rnic_stag_table_of(s->pd->iwdev);
	int rc = end_binding(t, s);

	if (rc)
		return rc;
	if (renew) {
		leave(s);
		change(s, arg);
		enter(s);
	} else {
		mutex_lock(&s->shard->lock);
		change(s, arg);
		mutex_unlock(&s->shard->lock);
	}
	mutex_lock(&t->bind_lock);
	s->bindable = true;
	mutex_unlock(&t->bind_lock);
	return 0;
}

u32 rnic_stag_new_key(u32 stag)
{
	u8 step;

	do {
		rand_secure(&step, sizeof(step));
	} while (!step);
	return (stag & ~RNIC_STAG_KEY) | ((stag + step) & RNIC_STAG_KEY);
}

/* ---- accesses ---- */

/* RFC 5041 7.1, RFC 5040 7.2: does it wrap, is it inside, is it allowed? */
static enum rnic_mem_status check(const struct rnic_stag *s, u64 addr, u64 len, int access)
{
	if (addr + (len - 1) < addr)
		return RNIC_MEM_WRAP;
	if (addr < s->base || addr - s->base >= s->length || len > s->length - (addr - s->base))
		return RNIC_MEM_BOUNDS;
	return access & ~s->access ? RNIC_MEM_ACCESS : RNIC_MEM_OK;
}

static bool on_stream(const struct rnic_stag *s, const struct irdma_qp *qp)
{
	return s->pd == qp->pd && (s->kind != RNIC_STAG_WINDOW_2 || s->qp_num == qp->qp_num);
}

static void hold(struct rnic_stag *s, u64 addr, struct rnic_mem *out)
{
	out->ptr = s->ptr + (addr - s->base);
	out->window = s->kind == RNIC_STAG_REGION ? NULL : s;
	out->region = out->window ? s->region : s;
	count_up(&out->region->users);
	if (out->window)
		count_up(&out->window->users);
}

/* The valid entry of an STag; a window's is no lkey. */
static struct rnic_stag *find_valid(struct rnic_stag_shard *shard, u32 stag, bool windows)
{
	struct rnic_stag *s = rnic_stag_find(shard, stag);

	return s && s->stag == stag && s->valid && (windows || s->kind == RNIC_STAG_REGION) ? s : NULL;
}

/* The rest of an access: checks and hold. The shard's lock is held, and given up. @s NULL: there is none; @ours: the caller may name it. */
static enum rnic_mem_status grant(struct rnic_stag_shard *shard, struct rnic_stag *s, bool ours, u64 addr, u64 len, int access, struct rnic_mem *out)
{
	enum rnic_mem_status status = s ? RNIC_MEM_STREAM : RNIC_MEM_STAG;

	assert(len > 0);
	if (ours)
		status = check(s, addr, len, access);
	if (status == RNIC_MEM_OK)
		hold(s, addr, out);
	mutex_unlock(&shard->lock);
	return status;
}

/**
 * rnic_mem_get() - begin an access to a program's memory
 * @qp: the QP on whose behalf, which is in the protection domain that counts
 * @stag: lkey or rkey
 * @addr: address under it
 * @len: bytes, > 0
 * @access: rights that are needed (IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_*); 0: reading by this side. A window has remote rights
 *	alone
 * @out: on RNIC_MEM_OK where it is; to be ended with rnic_mem_put() soon
 *
 * From any thread; takes the lock of the STag's shard alone. The checks are those of RFC 5041 7.1 and RFC 5040 7.2, in their order.
 *
 * Return: RNIC_MEM_OK, or the first thing that is wrong.
 */
enum rnic_mem_status rnic_mem_get(const struct irdma_qp *qp, u32 stag, u64 addr, u64 len, int access, struct rnic_mem *out)
{
	struct rnic_stag_shard *shard = rnic_stag_lock(qp->iwdev, stag);
	struct rnic_stag *s = find_valid(shard, stag, access & REMOTE_RIGHTS);

	return grant(shard, s, s && on_stream(s, qp), addr, len, access, out);
}

/**
 * rnic_mem_get_local() - the same for a protection domain instead of a QP
 * @pd: the protection domain, an SRQ's
 * @stag: lkey; a window's is none
 * @addr: address under it
 * @len: bytes, > 0
 * @access: as for rnic_mem_get()
 * @out: as for rnic_mem_get()
 *
 * Return: RNIC_MEM_OK, or the first thing that is wrong.
 */
enum rnic_mem_status rnic_mem_get_local(const struct rnic_pd *pd, u32 stag, u64 addr, u64 len, int access, struct rnic_mem *out)
{
	struct rnic_stag_shard *shard = rnic_stag_lock(pd->iwdev, stag);
	struct rnic_stag *s = find_valid(shard, stag, false);

	return grant(shard, s, s && s->pd == pd, addr, len, access, out);
}

/* Once it is dropped, @s may be gone: the shard is looked at before. */
static void drop(struct rnic_stag *s)
{
	struct rnic_stag_shard *shard = s->shard;

	if (likely(count_down(&s->users) != (RNIC_STAG_DYING | 1)))
		return;
	mutex_lock(&shard->lock);
	cond_broadcast(&shard->idle);
	mutex_unlock(&shard->lock);
}

/**
 * rnic_mem_put() - end an access
 * @m: what rnic_mem_get() gave
 */
void rnic_mem_put(struct rnic_mem *m)
{
	if (m->window)
		drop(m->window);
	drop(m->region);
	m->window = m->region = NULL;
	m->ptr = NULL;
}
