/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Protection domains, regions, windows, and the check that each access passes. */
#include <sys/mman.h>
#include <unistd.h>
#include "test_rnic_port.h"
#include "rnic/verbs_internal.h"

#define ALL_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE | IBV_ACCESS_MW_BIND)

static struct fake fake;
static struct rnic_pd *pd, *other_pd;
static struct irdma_qp qp, sibling, stranger; /* the same domain twice, and another */
static u8 bytes[4096];

/* The tests' ibv objects are our own in disguise. */
static struct rnic_mw *as_mw(const struct ibv_mw *mw)
{
	return (struct rnic_mw *)mw;
}

static struct rnic_mr *as_mr(const struct ibv_mr *mr)
{
	return (struct rnic_mr *)mr;
}

static const struct rnic_bind_ops bind_ops = { .mw = as_mw, .mr = as_mr };

static int setup(void **state)
{
	fake_open(&fake, NULL);
	rnic_bind_ops = &bind_ops;
	assert_int_equal(rnic_pd_create(fake.dev, &pd), 0);
	assert_int_equal(rnic_pd_create(fake.dev, &other_pd), 0);
	qp = (struct irdma_qp){ .iwdev = fake.dev, .pd = pd, .qp_num = 7 };
	sibling = (struct irdma_qp){ .iwdev = fake.dev, .pd = pd, .qp_num = 8 };
	stranger = (struct irdma_qp){ .iwdev = fake.dev, .pd = other_pd, .qp_num = 9 };
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(rnic_pd_destroy(pd), 0);
	assert_int_equal(rnic_pd_destroy(other_pd), 0);
	fake_close_all(&fake);
	return 0;
}

static struct rnic_mr *region(void *addr, u64 length, u64 iova, int access)
{
	struct rnic_mr_attr attr = { .addr = addr, .length = length, .iova = iova, .access = access };
	struct rnic_mr *mr;

	assert_int_equal(rnic_mr_create(pd, &attr, &mr), 0);
	return mr;
}

static struct rnic_mr *plain_region(int access)
{
	return region(bytes, sizeof(bytes), (uintptr_t)bytes, access);
}

static enum rnic_mem_status look(const struct irdma_qp *q, u32 stag, u64 addr, u64 len, int access)
{
	struct rnic_mem m = { 0 };
	enum rnic_mem_status status = rnic_mem_get(q, stag, addr, len, access, &m);

	if (status == RNIC_MEM_OK)
		rnic_mem_put(&m);
	assert_null(m.ptr);
	return status;
}

/* ---- protection domains and regions ---- */

static void pd_is_busy_while_used(void **state)
{
	struct rnic_mr *mr = plain_region(0);
	struct rnic_mw *mw;

	assert_int_equal(rnic_pd_destroy(pd), -EBUSY);
	assert_int_equal(rnic_mw_create(pd, IBV_MW_TYPE_1, &mw), 0);
	assert_int_equal(rnic_mr_destroy(mr), 0);
	assert_int_equal(rnic_pd_destroy(pd), -EBUSY);
	assert_int_equal(rnic_mw_destroy(mw), 0);
	assert_int_equal(pd->users, 0);
}

static void registration_checks_its_attributes(void **state)
{
	static const int with_local = IBV_ACCESS_LOCAL_WRITE;
	const struct {
		void *addr;
		u64 length, iova;
		int access, rc;
	} rows[] = {
		{ bytes, 0, 0, 0, -EINVAL },
		{ bytes, 1, 0, 0, 0 },
		{ bytes, sizeof(bytes), 0, ALL_RIGHTS, 0 },
		{ bytes, 64, 0, IBV_ACCESS_REMOTE_READ, 0 },
		{ bytes, 64, 0, IBV_ACCESS_REMOTE_WRITE, -EINVAL },
		{ bytes, 64, 0, IBV_ACCESS_REMOTE_ATOMIC, -EINVAL },
		{ bytes, 64, 0, IBV_ACCESS_REMOTE_ATOMIC | with_local, 0 },
		{ bytes, 64, 0, IBV_ACCESS_ON_DEMAND, -EOPNOTSUPP },
		{ bytes, 64, 0, IBV_ACCESS_ON_DEMAND | with_local, -EOPNOTSUPP },
		{ bytes, 64, 0, IBV_ACCESS_HUGETLB, 0 },
		{ bytes, 64, 0, IBV_ACCESS_RELAXED_ORDERING, 0 },
		{ bytes, 64, 0, 1 << 29, 0 },         /* optional: ignored */
		{ bytes, 64, 0, 1 << 30, -EINVAL },
		{ bytes, 64, 0, 1 << 19, -EINVAL },
		{ bytes, 64, UINT64_MAX, 0, -EINVAL },
		{ bytes, 64, UINT64_MAX - 62, 0, -EINVAL },
		{ bytes, 64, UINT64_MAX - 63, 0, 0 }, /* ends with the last address */
		{ bytes, 64, UINT64_MAX, IBV_ACCESS_ZERO_BASED, 0 },
		{ bytes, UINT64_MAX, 0, 0, -EINVAL }, /* the address wraps */
		{ bytes, UINT64_MAX - (uintptr_t)bytes, 0, 0, -EFAULT },
		{ NULL, 64, 0, 0, -EFAULT },
		{ (void *)UINTPTR_MAX, 1, 0, 0, -EFAULT },
		{ NULL, UINT64_MAX, 0, 0, -EFAULT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct rnic_mr_attr attr = { rows[i].addr, rows[i].length, rows[i].iova, rows[i].access };
		struct rnic_mr *mr = NULL;

		if (rnic_mr_create(pd, &attr, &mr) != rows[i].rc)
			fail_msg("row %zu: not %d", i, rows[i].rc);
		if (mr)
			assert_int_equal(rnic_mr_destroy(mr), 0);
	}
}

static int try_region(void *addr, u64 length, int access)
{
	struct rnic_mr_attr attr = { addr, length, 0, access };
	struct rnic_mr *mr;
	int rc = rnic_mr_create(pd, &attr, &mr);

	return rc ? rc : rnic_mr_destroy(mr);
}

static void registration_looks_at_the_mapping(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	u8 *m = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(m, MAP_FAILED);
	assert_int_equal(try_region(m, 8 * page, IBV_ACCESS_LOCAL_WRITE), 0);
	/* a hole */
	assert_int_equal(munmap(m + 3 * page, page), 0);
	assert_int_equal(try_region(m, 8 * page, 0), -EFAULT);
	assert_int_equal(try_region(m + 3 * page - 1, 2, 0), -EFAULT);
	assert_int_equal(try_region(m, 3 * page, IBV_ACCESS_LOCAL_WRITE), 0);
	assert_int_equal(try_region(m + 4 * page, 4 * page, IBV_ACCESS_LOCAL_WRITE), 0);
	assert_int_equal(try_region(m + 4 * page - 1, 1, 0), -EFAULT);
	/* read-only at the end, then at the front */
	assert_int_equal(mprotect(m + 2 * page, page, PROT_READ), 0);
	assert_int_equal(try_region(m, 3 * page, 0), 0);
	assert_int_equal(try_region(m, 3 * page, IBV_ACCESS_LOCAL_WRITE), -EFAULT);
	assert_int_equal(try_region(m, 2 * page + 1, IBV_ACCESS_LOCAL_WRITE), -EFAULT);
	assert_int_equal(try_region(m, 2 * page, IBV_ACCESS_LOCAL_WRITE), 0);
	assert_int_equal(mprotect(m, page, PROT_NONE), 0);
	assert_int_equal(try_region(m, 2 * page, 0), -EFAULT);
	assert_int_equal(munmap(m, 8 * page), 0);
}

static void stags_are_random_and_unique(void **state)
{
	enum { N = 2000 };
	static struct rnic_mr *mr[N];
	static u32 stag[N];
	u32 all_and = UINT32_MAX, all_or = 0;

	for (int i = 0; i < N; i++) {
		mr[i] = plain_region(0);
		stag[i] = rnic_mr_stag(mr[i]);
		assert_int_not_equal(stag[i], 0);
		all_and &= stag[i];
		all_or |= stag[i];
	}
	assert_int_equal(all_and, 0); /* no bit is always or never set */
	assert_int_equal(all_or, UINT32_MAX);
	for (int i = 0; i < N; i++) {
		assert_int_equal(look(&qp, stag[i], (uintptr_t)bytes, 1, 0), RNIC_MEM_OK);
		for (int k = 0; k < i; k++)
			assert_int_not_equal(RNIC_STAG_INDEX(stag[i]), RNIC_STAG_INDEX(stag[k]));
	}
	for (int i = 0; i < N; i++) {
		assert_int_equal(rnic_mr_destroy(mr[i]), 0);
		assert_int_equal(look(&qp, stag[i], (uintptr_t)bytes, 1, 0), RNIC_MEM_STAG);
	}
}

/* ---- accesses ---- */

static void access_is_checked_in_order(void **state)
{
	u64 base = (uintptr_t)bytes;
	struct rnic_mr *mr = plain_region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	u32 stag = rnic_mr_stag(mr);
	const struct {
		const struct irdma_qp *q;
		u32 stag;
		u64 addr, len;
		int access;
		enum rnic_mem_status status;
	} rows[] = {
		{ &qp, stag, base, 1, 0, RNIC_MEM_OK },
		{ &qp, stag, base, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE, RNIC_MEM_OK },
		{ &sibling, stag, base + sizeof(bytes) - 1, 1, IBV_ACCESS_REMOTE_READ, RNIC_MEM_OK },
		/* STag before all */
		{ &qp, 0, base, 1, 0, RNIC_MEM_STAG },
		{ &qp, stag ^ 1, base, 1, 0, RNIC_MEM_STAG },
		{ &qp, stag ^ 0x100, base, 1, 0, RNIC_MEM_STAG },
		{ &stranger, stag ^ 0x80000000u, UINT64_MAX, 2, ALL_RIGHTS, RNIC_MEM_STAG },
		/* stream */
		{ &stranger, stag, base, 1, 0, RNIC_MEM_STREAM },
		{ &stranger, stag, UINT64_MAX, 2, ALL_RIGHTS, RNIC_MEM_STREAM },
		/* wrap */
		{ &qp, stag, UINT64_MAX, 2, IBV_ACCESS_REMOTE_WRITE, RNIC_MEM_WRAP },
		{ &qp, stag, base, UINT64_MAX, 0, RNIC_MEM_WRAP },
		{ &qp, stag, base, UINT64_MAX - base + 2, 0, RNIC_MEM_WRAP },
		/* bounds */
		{ &qp, stag, base, UINT64_MAX - base + 1, 0, RNIC_MEM_BOUNDS },
		{ &qp, stag, UINT64_MAX, 1, 0, RNIC_MEM_BOUNDS },
		{ &qp, stag, base - 1, 1, IBV_ACCESS_REMOTE_WRITE, RNIC_MEM_BOUNDS },
		{ &qp, stag, base - 1, 2, 0, RNIC_MEM_BOUNDS },
		{ &qp, stag, base, sizeof(bytes) + 1, 0, RNIC_MEM_BOUNDS },
		{ &qp, stag, base + sizeof(bytes), 1, 0, RNIC_MEM_BOUNDS },
		{ &qp, stag, base + sizeof(bytes) - 1, 2, 0, RNIC_MEM_BOUNDS },
		{ &qp, stag, 0, 1, 0, RNIC_MEM_BOUNDS },
		/* rights */
		{ &qp, stag, base, 1, IBV_ACCESS_REMOTE_WRITE, RNIC_MEM_ACCESS },
		{ &qp, stag, base, 8, IBV_ACCESS_REMOTE_ATOMIC, RNIC_MEM_ACCESS },
		{ &qp, stag, base, 8, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, RNIC_MEM_ACCESS },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (look(rows[i].q, rows[i].stag, rows[i].addr, rows[i].len, rows[i].access) != rows[i].status)
			fail_msg("row %zu: not %d", i, rows[i].status);
	assert_int_equal(rnic_mr_destroy(mr), 0);
}

static void addresses_are_translated(void **state)
{
	const struct {
		u64 iova, base;
		int access;
	} rows[] = {
		{ (uintptr_t)bytes, (uintptr_t)bytes, 0 },
		{ (uintptr_t)bytes, 0, IBV_ACCESS_ZERO_BASED },
		{ 0, 0, 0 },
		{ 0x123456789abcdef1ull, 0x123456789abcdef1ull, 0 },
		{ UINT64_MAX - (sizeof(bytes) - 1), UINT64_MAX - (sizeof(bytes) - 1), 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct rnic_mr *mr = region(bytes, sizeof(bytes), rows[i].iova, rows[i].access);
		struct rnic_mem m;

		assert_int_equal(rnic_mem_get(&qp, rnic_mr_stag(mr), rows[i].base + 100, sizeof(bytes) - 100, 0, &m), RNIC_MEM_OK);
		assert_ptr_equal(m.ptr, bytes + 100);
		rnic_mem_put(&m);
		assert_int_equal(look(&qp, rnic_mr_stag(mr), rows[i].base + sizeof(bytes), 1, 0), RNIC_MEM_BOUNDS);
		assert_int_equal(rnic_mr_destroy(mr), 0);
	}
}

static void domain_alone(void **state)
{
	struct rnic_mr *mr = plain_region(IBV_ACCESS_LOCAL_WRITE);
	u64 base = (uintptr_t)bytes;
	u32 stag = rnic_mr_stag(mr);
	struct rnic_mem m;

	assert_int_equal(rnic_mem_get_local(pd, stag, base + 5, 10, IBV_ACCESS_LOCAL_WRITE, &m), RNIC_MEM_OK);
	assert_ptr_equal(m.ptr, bytes + 5);
	rnic_mem_put(&m);
	assert_int_equal(rnic_mem_get_local(other_pd, stag, base, 10, 0, &m), RNIC_MEM_STREAM);
	assert_int_equal(rnic_mem_get_local(pd, stag ^ 1, base, 10, 0, &m), RNIC_MEM_STAG);
	assert_int_equal(rnic_mem_get_local(pd, stag, base, sizeof(bytes) + 1, 0, &m), RNIC_MEM_BOUNDS);
	assert_int_equal(rnic_mem_get_local(pd, stag, base, 1, IBV_ACCESS_REMOTE_READ, &m), RNIC_MEM_ACCESS);
	assert_int_equal(rnic_mr_destroy(mr), 0);
}

static void qp_without_verbs_reaches_nothing(void **state)
{
	struct irdma_qp bare = { .iwdev = fake.dev, .qp_num = 10 };
	struct rnic_mr *mr = plain_region(ALL_RIGHTS);

	assert_int_equal(look(&bare, rnic_mr_stag(mr), (uintptr_t)bytes, 1, 0), RNIC_MEM_STREAM);
	assert_int_equal(rnic_mr_destroy(mr), 0);
}

/* ---- registering anew ---- */

static void rereg_changes_rights_and_domain(void **state)
{
	struct rnic_mr *mr = plain_region(ALL_RIGHTS);
	struct rnic_mr_attr attr = { .access = IBV_ACCESS_LOCAL_WRITE };
	u64 base = (uintptr_t)bytes;
	u32 stag = rnic_mr_stag(mr);

	assert_int_equal(rnic_mr_change(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, &attr), 0);
	assert_int_equal(rnic_mr_stag(mr), stag);
	assert_int_equal(look(&qp, stag, base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_ACCESS);
	assert_int_equal(look(&qp, stag, base, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE), RNIC_MEM_OK);
	assert_int_equal(rnic_mr_change(mr, IBV_REREG_MR_CHANGE_PD, other_pd, NULL), 0);
	assert_int_equal(rnic_mr_stag(mr), stag);
	assert_int_equal(look(&qp, stag, base, 1, 0), RNIC_MEM_STREAM);
	assert_int_equal(look(&stranger, stag, base, 1, 0), RNIC_MEM_OK);
	assert_int_equal(pd->users, 0);
	assert_int_equal(other_pd->users, 1);
	assert_int_equal(rnic_mr_destroy(mr), 0);
	assert_int_equal(other_pd->users, 0);
}

static void rereg_changes_translation_and_stag(void **state)
{
	struct rnic_mr *mr = plain_region(ALL_RIGHTS);
	struct rnic_mr_attr attr = { .addr = bytes + 64, .length = 64, .iova = 1000 };
	u32 stag = rnic_mr_stag(mr);
	struct rnic_mem m;

	assert_int_equal(rnic_mr_change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, &attr), 0);
	assert_int_not_equal(rnic_mr_stag(mr), stag);
	assert_int_equal(look(&qp, stag, (uintptr_t)bytes, 1, 0), RNIC_MEM_STAG);
	stag = rnic_mr_stag(mr);
	assert_int_equal(rnic_mem_get(&qp, stag, 1001, 63, ALL_REMOTE, &m), RNIC_MEM_OK);
	assert_ptr_equal(m.ptr, bytes + 65);
	rnic_mem_put(&m);
	assert_int_equal(look(&qp, stag, 1001, 64, 0), RNIC_MEM_BOUNDS);
	assert_int_equal(rnic_mr_destroy(mr), 0);
}

static void rereg_that_fails_changes_nothing(void **state)
{
	const int translation = IBV_REREG_MR_CHANGE_TRANSLATION, rights = IBV_REREG_MR_CHANGE_ACCESS, domain = IBV_REREG_MR_CHANGE_PD;
	struct fake elsewhere;
	struct rnic_pd *far;
	struct rnic_mr *mr = plain_region(ALL_RIGHTS);
	u32 stag = rnic_mr_stag(mr);

	fake_open(&elsewhere, NULL);
	assert_int_equal(rnic_pd_create(elsewhere.dev, &far), 0);
	const struct {
		int flags, rc;
		struct rnic_pd *pd;
		struct rnic_mr_attr attr;
	} rows[] = {
		{ 0, -EINVAL, other_pd, { bytes, 64, 0, 0 } },
		{ 8, -EINVAL, other_pd, { bytes, 64, 0, 0 } },
		{ -1, -EINVAL, other_pd, { bytes, 64, 0, 0 } },
		{ domain, -EINVAL, NULL, { 0 } },
		{ domain, -EINVAL, far, { 0 } },
		{ translation | domain, -EINVAL, other_pd, { bytes, 0, 0, 0 } },
		{ translation | domain, -EFAULT, other_pd, { NULL, 64, 0, 0 } },
		{ translation, -EINVAL, NULL, { bytes, 64, UINT64_MAX, 0 } },
		{ rights | domain, -EINVAL, other_pd, { .access = IBV_ACCESS_REMOTE_WRITE } },
		{ rights | domain, -EOPNOTSUPP, other_pd, { .access = IBV_ACCESS_ON_DEMAND } },
	};
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rnic_mr_change(mr, rows[i].flags, rows[i].pd, &rows[i].attr) != rows[i].rc)
			fail_msg("row %zu: not %d", i, rows[i].rc);
		assert_int_equal(rnic_mr_stag(mr), stag);
		assert_int_equal(look(&qp, stag, (uintptr_t)bytes, sizeof(bytes), ALL_REMOTE), RNIC_MEM_OK);
		assert_int_equal(pd->users, 1);
		assert_int_equal(other_pd->users + far->users, 0);
	}
	assert_int_equal(rnic_mr_destroy(mr), 0);
	assert_int_equal(rnic_pd_destroy(far), 0);
	fake_close_all(&elsewhere);
}

/* ---- windows ---- */

static struct rnic_mw *window(enum ibv_mw_type type)
{
	struct rnic_mw *mw;

	assert_int_equal(rnic_mw_create(pd, type, &mw), 0);
	return mw;
}

static int bind_mw(const struct irdma_qp *q, struct rnic_mw *mw, u32 rkey, struct rnic_mr *mr, u64 addr, u64 length, int access)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };

	wr.bind_mw.mw = (struct ibv_mw *)mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ (struct ibv_mr *)mr, addr, length, (unsigned int)access };
	return rnic_mw_bind(q, &wr);
}

static void window_type_1(void **state)
{
	struct rnic_mr *mr = plain_region(ALL_RIGHTS & ~IBV_ACCESS_REMOTE_WRITE);
	struct rnic_mw *mw = window(IBV_MW_TYPE_1);
	u64 base = (uintptr_t)bytes;
	u32 first = rnic_mw_rkey(mw), second;
	struct rnic_mem m;

	assert_int_equal(look(&qp, first, base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_STAG);
	assert_int_equal(bind_mw(&qp, mw, 0, mr, base + 16, 32, IBV_ACCESS_REMOTE_WRITE), 0);
	second = rnic_mw_rkey(mw);
	assert_int_not_equal(second, first);
	assert_int_equal(RNIC_STAG_INDEX(second), RNIC_STAG_INDEX(first));
	/* rights are the window's: the region has no remote write */
	assert_int_equal(rnic_mem_get(&sibling, second, base + 17, 31, IBV_ACCESS_REMOTE_WRITE, &m), RNIC_MEM_OK);
	assert_ptr_equal(m.ptr, bytes + 17);
	rnic_mem_put(&m);
	assert_int_equal(look(&qp, first, base + 16, 1, IBV_ACCESS_REMOTE_WRITE), RNIC_MEM_STAG);
	assert_int_equal(look(&stranger, second, base + 16, 1, IBV_ACCESS_REMOTE_WRITE), RNIC_MEM_STREAM);
	assert_int_equal(look(&qp, second, base + 15, 1, IBV_ACCESS_REMOTE_WRITE), RNIC_MEM_BOUNDS);
	assert_int_equal(look(&qp, second, base + 16, 33, IBV_ACCESS_REMOTE_WRITE), RNIC_MEM_BOUNDS);
	assert_int_equal(look(&qp, second, base + 16, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_ACCESS);
	/* an rkey is no lkey */
	assert_int_equal(look(&qp, second, base + 16, 1, 0), RNIC_MEM_STAG);
	assert_int_equal(look(&qp, second, base + 16, 1, IBV_ACCESS_LOCAL_WRITE), RNIC_MEM_STAG);
	assert_int_equal(rnic_mem_get_local(pd, second, base + 16, 1, 0, &m), RNIC_MEM_STAG);
	/* anew, with the key that the program was told of */
	assert_int_equal(rnic_mr_destroy(mr), -EBUSY);
	first = rnic_mw_new_rkey(mw);
	assert_int_equal(bind_mw(&sibling, mw, first, mr, base, 1, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE), 0);
	assert_int_equal(rnic_mw_rkey(mw), first);
	assert_int_equal(look(&qp, second, base + 16, 1, IBV_ACCESS_REMOTE_WRITE), RNIC_MEM_STAG);
	assert_int_equal(look(&qp, first, base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_OK);
	assert_int_equal(rnic_mr_destroy(mr), -EBUSY);
	/* unbound by length 0 */
	assert_int_equal(bind_mw(&qp, mw, 0, NULL, 0, 0, 0), 0);
	assert_int_not_equal(rnic_mw_rkey(mw), first);
	assert_int_equal(look(&qp, first, base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_STAG);
	assert_int_equal(look(&qp, rnic_mw_rkey(mw), base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_STAG);
	assert_int_equal(rnic_mr_destroy(mr), 0);
	assert_int_equal(rnic_mw_destroy(mw), 0);
}

static void window_type_2(void **state)
{
	struct rnic_mr *mr = plain_region(ALL_RIGHTS);
	struct rnic_mw *mw = window(IBV_MW_TYPE_2);
	u64 base = (uintptr_t)bytes;
	u32 rkey = ibv_inc_rkey(rnic_mw_rkey(mw));
	struct rnic_mem m;

	assert_int_equal(bind_mw(&qp, mw, rkey, mr, base + 8, 8, ALL_REMOTE | IBV_ACCESS_ZERO_BASED), 0);
	assert_int_equal(rnic_mw_rkey(mw), rkey);
	assert_int_equal(rnic_mem_get(&qp, rkey, 1, 7, ALL_REMOTE, &m), RNIC_MEM_OK);
	assert_ptr_equal(m.ptr, bytes + 9);
	rnic_mem_put(&m);
	assert_int_equal(look(&qp, rkey, base + 8, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_BOUNDS);
	assert_int_equal(look(&sibling, rkey, 0, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_STREAM);
	assert_int_equal(look(&stranger, rkey, 0, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_STREAM);
	/* bound: not to be bound again, nor to nothing */
	assert_int_equal(bind_mw(&qp, mw, ibv_inc_rkey(rkey), mr, base, 8, ALL_REMOTE), -EINVAL);
	assert_int_equal(bind_mw(&qp, mw, ibv_inc_rkey(rkey), mr, base, 0, ALL_REMOTE), -EINVAL);
	assert_int_equal(look(&qp, rkey, 0, 8, ALL_REMOTE), RNIC_MEM_OK);
	assert_int_equal(rnic_stag_invalidate(&qp, rkey, false), RNIC_MEM_OK);
	assert_int_equal(look(&qp, rkey, 0, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_STAG);
	rkey = ibv_inc_rkey(rkey);
	assert_int_equal(bind_mw(&sibling, mw, rkey, mr, base, sizeof(bytes), IBV_ACCESS_REMOTE_READ), 0);
	assert_int_equal(look(&sibling, rkey, base, sizeof(bytes), IBV_ACCESS_REMOTE_READ), RNIC_MEM_OK);
	assert_int_equal(look(&qp, rkey, base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_STREAM);
	/* destroying unbinds */
	assert_int_equal(rnic_mr_destroy(mr), -EBUSY);
	assert_int_equal(rnic_mw_destroy(mw), 0);
	assert_int_equal(look(&sibling, rkey, base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_STAG);
	assert_int_equal(rnic_mr_destroy(mr), 0);
}

static void bind_checks_its_request(void **state)
{
	struct rnic_mr_attr far_attr = { bytes, sizeof(bytes), (uintptr_t)bytes, ALL_RIGHTS };
	struct rnic_mr *mr = plain_region(ALL_RIGHTS), *no_bind = plain_region(ALL_RIGHTS & ~IBV_ACCESS_MW_BIND), *far;
	struct rnic_mr *read_only = plain_region(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
	struct rnic_mw *one = window(IBV_MW_TYPE_1), *two = window(IBV_MW_TYPE_2);
	u64 base = (uintptr_t)bytes;
	u32 rkey = rnic_mw_rkey(two);

	assert_int_equal(rnic_mr_create(other_pd, &far_attr, &far), 0);
	const struct {
		const struct irdma_qp *q;
		struct rnic_mw *mw;
		u32 rkey;
		struct rnic_mr *mr;
		u64 addr, length;
		int access;
	} rows[] = {
		{ &qp, NULL, rkey, mr, base, 1, 0 },
		{ &qp, two, rkey, NULL, base, 1, 0 },
		{ &stranger, two, rkey, mr, base, 1, 0 },
		{ &stranger, two, rkey, far, base, 1, 0 },
		{ &qp, two, rkey, far, base, 1, 0 },
		{ &qp, two, rkey, no_bind, base, 1, 0 },
		{ &qp, two, rkey, read_only, base, 1, IBV_ACCESS_REMOTE_WRITE },
		{ &qp, two, rkey, read_only, base, 1, IBV_ACCESS_REMOTE_ATOMIC },
		{ &qp, two, 0, mr, base, 1, 0 },
		{ &qp, two, rkey ^ 0x100, mr, base, 1, 0 },
		{ &qp, two, rnic_mr_stag(mr), mr, base, 1, 0 },
		{ &qp, one, rkey, mr, base, 1, 0 },
		{ &qp, two, rkey, mr, base, 0, 0 },
		{ &qp, two, rkey, mr, base - 1, 1, 0 },
		{ &qp, two, rkey, mr, base, sizeof(bytes) + 1, 0 },
		{ &qp, two, rkey, mr, base + 1, UINT64_MAX, 0 },
		{ &qp, two, rkey, mr, base + sizeof(bytes), 1, 0 },
		{ &qp, two, rkey, mr, UINT64_MAX, 1, 0 },
		{ &qp, two, rkey, mr, base, 1, IBV_ACCESS_MW_BIND },
		{ &qp, two, rkey, mr, base, 1, IBV_ACCESS_ON_DEMAND },
		{ &qp, two, rkey, mr, base, 1, (int)0x80000000u },
		{ &qp, one, 0, mr, base, 1, IBV_ACCESS_ZERO_BASED },
	};
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (bind_mw(rows[i].q, rows[i].mw, rows[i].rkey, rows[i].mr, rows[i].addr, rows[i].length, rows[i].access) != -EINVAL)
			fail_msg("row %zu was bound", i);
	assert_int_equal(rnic_mw_rkey(two), rkey);
	assert_int_equal(bind_mw(&qp, two, rkey, read_only, base, sizeof(bytes), IBV_ACCESS_REMOTE_READ), 0);
	assert_int_equal(rnic_mw_destroy(one), 0);
	assert_int_equal(rnic_mw_destroy(two), 0);
	assert_int_equal(rnic_mr_destroy(mr), 0);
	assert_int_equal(rnic_mr_destroy(no_bind), 0);
	assert_int_equal(rnic_mr_destroy(read_only), 0);
	assert_int_equal(rnic_mr_destroy(far), 0);
	assert_int_equal(rnic_mw_create(pd, (enum ibv_mw_type)0, &one), -EINVAL);
	assert_int_equal(rnic_mw_create(pd, (enum ibv_mw_type)3, &one), -EINVAL);
}

/* What waits in a send queue may outlive what it names. */
static void bind_of_what_is_gone(void **state)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };
	struct rnic_mr *mr = plain_region(ALL_RIGHTS);
	struct rnic_mw *mw = window(IBV_MW_TYPE_2);
	struct rnic_bind b;

	wr.bind_mw.mw = (struct ibv_mw *)mw;
	wr.bind_mw.rkey = rnic_mw_rkey(mw);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ (struct ibv_mr *)mr, (uintptr_t)bytes, 8, IBV_ACCESS_REMOTE_READ };
	assert_int_equal(rnic_bind_get(&wr, &b), 0);
	assert_int_equal(rnic_mr_destroy(mr), 0);
	assert_int_equal(rnic_bind_execute(&qp, &b), -EINVAL);
	mr = plain_region(ALL_RIGHTS);
	wr.bind_mw.bind_info.mr = (struct ibv_mr *)mr;
	assert_int_equal(rnic_bind_get(&wr, &b), 0);
	b.region = rnic_mw_rkey(mw); /* a window is no region, a region no window */
	assert_int_equal(rnic_bind_execute(&qp, &b), -EINVAL);
	b.region = rnic_mr_stag(mr);
	b.window = b.rkey = rnic_mr_stag(mr);
	assert_int_equal(rnic_bind_execute(&qp, &b), -EINVAL);
	assert_int_equal(rnic_bind_get(&wr, &b), 0);
	assert_int_equal(rnic_mw_destroy(mw), 0);
	assert_int_equal(rnic_bind_execute(&qp, &b), -EINVAL);
	assert_int_equal(mr->s.bound, 0);
	assert_int_equal(rnic_mr_destroy(mr), 0);
}

static void only_windows_of_type_2_are_invalidated(void **state)
{
	struct rnic_mr *mr = plain_region(ALL_RIGHTS);
	struct rnic_mw *one = window(IBV_MW_TYPE_1), *two = window(IBV_MW_TYPE_2);
	u64 base = (uintptr_t)bytes;
	u32 rkey = rnic_mw_rkey(two);

	for (int remote = 0; remote < 2; remote++) {
		assert_int_equal(rnic_stag_invalidate(&qp, 0, remote), RNIC_MEM_STAG);
		assert_int_equal(rnic_stag_invalidate(&qp, rkey, remote), RNIC_MEM_STAG); /* not bound */
		assert_int_equal(bind_mw(&qp, one, 0, mr, base, 1, IBV_ACCESS_REMOTE_READ), 0);
		assert_int_equal(bind_mw(&qp, two, rkey, mr, base, 1, IBV_ACCESS_REMOTE_READ), 0);
		assert_int_equal(rnic_stag_invalidate(&qp, rnic_mr_stag(mr), remote), RNIC_MEM_ACCESS);
		assert_int_equal(rnic_stag_invalidate(&stranger, rnic_mr_stag(mr), remote), RNIC_MEM_STREAM);
		assert_int_equal(rnic_stag_invalidate(&qp, rnic_mw_rkey(one), remote), RNIC_MEM_ACCESS);
		assert_int_equal(rnic_stag_invalidate(&sibling, rkey, remote), RNIC_MEM_STREAM);
		assert_int_equal(rnic_stag_invalidate(&stranger, rkey, remote), RNIC_MEM_STREAM);
		assert_int_equal(rnic_stag_invalidate(&qp, rkey ^ 1, remote), RNIC_MEM_STAG);
		assert_int_equal(look(&qp, rkey, base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_OK);
		assert_int_equal(rnic_stag_invalidate(&qp, rkey, remote), RNIC_MEM_OK);
		assert_int_equal(rnic_stag_invalidate(&qp, rkey, remote), RNIC_MEM_STAG);
		assert_int_equal(look(&qp, rkey, base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_STAG);
		assert_int_equal(look(&qp, rnic_mr_stag(mr), base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_OK);
		assert_int_equal(look(&qp, rnic_mw_rkey(one), base, 1, IBV_ACCESS_REMOTE_READ), RNIC_MEM_OK);
	}
	assert_int_equal(rnic_mw_destroy(one), 0);
	assert_int_equal(rnic_mw_destroy(two), 0);
	assert_int_equal(rnic_mr_destroy(mr), 0);
}

/* A QP writes through a window, and the same bytes of stream hold the peer's Send with Invalidate of it. */
static void window_is_invalidated_during_own_access(void **state)
{
	struct rnic_mr *mr = plain_region(ALL_RIGHTS);
	struct rnic_mw *mw = window(IBV_MW_TYPE_2);
	u32 rkey = rnic_mw_rkey(mw);
	struct rnic_mem m;

	assert_int_equal(bind_mw(&qp, mw, rkey, mr, (uintptr_t)bytes, 8, IBV_ACCESS_REMOTE_WRITE), 0);
	assert_int_equal(rnic_mem_get(&qp, rkey, (uintptr_t)bytes, 8, IBV_ACCESS_REMOTE_WRITE, &m), RNIC_MEM_OK);
	assert_int_equal(rnic_stag_invalidate(&qp, rkey, true), RNIC_MEM_OK);
	assert_int_equal(look(&qp, rkey, (uintptr_t)bytes, 8, IBV_ACCESS_REMOTE_WRITE), RNIC_MEM_STAG);
	assert_ptr_equal(m.ptr, bytes);
	assert_int_equal(mr->s.users, 1); /* deregistration would wait */
	rnic_mem_put(&m);
	assert_int_equal(mr->s.users, 0);
	assert_int_equal(rnic_mr_destroy(mr), 0);
	assert_int_equal(rnic_mw_destroy(mw), 0);
}

static void bound_region_does_not_change(void **state)
{
	struct rnic_mr_attr attr = { bytes, 8, 0, 0 };
	struct rnic_mr *mr = plain_region(ALL_RIGHTS);
	struct rnic_mw *mw = window(IBV_MW_TYPE_1);
	u32 stag = rnic_mr_stag(mr);

	assert_int_equal(bind_mw(&qp, mw, 0, mr, (uintptr_t)bytes, 64, IBV_ACCESS_REMOTE_READ), 0);
	for (int flags = 1; flags <= IBV_REREG_MR_FLAGS_SUPPORTED; flags++)
		assert_int_equal(rnic_mr_change(mr, flags, other_pd, &attr), -EBUSY);
	assert_int_equal(other_pd->users, 0);
	assert_int_equal(look(&qp, stag, (uintptr_t)bytes, 1, ALL_REMOTE), RNIC_MEM_OK);
	assert_int_equal(look(&qp, rnic_mw_rkey(mw), (uintptr_t)bytes, 64, IBV_ACCESS_REMOTE_READ), RNIC_MEM_OK);
	assert_int_equal(bind_mw(&qp, mw, 0, NULL, 0, 0, 0), 0);
	assert_int_equal(rnic_mr_change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, &attr), 0);
	assert_int_equal(bind_mw(&qp, mw, 0, mr, 0, 9, IBV_ACCESS_REMOTE_READ), -EINVAL);
	assert_int_equal(bind_mw(&qp, mw, 0, mr, 0, 8, IBV_ACCESS_REMOTE_READ), 0);
	assert_int_equal(rnic_mw_destroy(mw), 0);
	assert_int_equal(rnic_mr_destroy(mr), 0);
}

static void there_is_a_most_of_stags(void **state)
{
	struct rnic_mr_attr attr = { bytes, 8, 0, 0 };
	u32 *count = &rnic_stag_table_of(fake.dev)->count;
	struct rnic_mr *mr = plain_region(0), *more;
	struct rnic_mw *mw;

	*count += RNIC_MAX_STAGS - 1;
	assert_int_equal(rnic_mr_create(pd, &attr, &more), -ENOSPC);
	assert_int_equal(rnic_mw_create(pd, IBV_MW_TYPE_2, &mw), -ENOSPC);
	assert_int_equal(rnic_mr_change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, &attr), 0); /* has its place */
	assert_int_equal(rnic_mr_destroy(mr), 0);
	assert_int_equal(rnic_mw_create(pd, IBV_MW_TYPE_2, &mw), 0);
	assert_int_equal(rnic_mw_destroy(mw), 0);
	*count -= RNIC_MAX_STAGS - 1;
	assert_int_equal(*count, 0);
	assert_int_equal(pd->users, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(pd_is_busy_while_used, setup, teardown),
		cmocka_unit_test_setup_teardown(registration_checks_its_attributes, setup, teardown),
		cmocka_unit_test_setup_teardown(registration_looks_at_the_mapping, setup, teardown),
		cmocka_unit_test_setup_teardown(stags_are_random_and_unique, setup, teardown),
		cmocka_unit_test_setup_teardown(access_is_checked_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(addresses_are_translated, setup, teardown),
		cmocka_unit_test_setup_teardown(domain_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(qp_without_verbs_reaches_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(rereg_changes_rights_and_domain, setup, teardown),
		cmocka_unit_test_setup_teardown(rereg_changes_translation_and_stag, setup, teardown),
		cmocka_unit_test_setup_teardown(rereg_that_fails_changes_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(window_type_1, setup, teardown),
		cmocka_unit_test_setup_teardown(window_type_2, setup, teardown),
		cmocka_unit_test_setup_teardown(bind_checks_its_request, setup, teardown),
		cmocka_unit_test_setup_teardown(bind_of_what_is_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(only_windows_of_type_2_are_invalidated, setup, teardown),
		cmocka_unit_test_setup_teardown(window_is_invalidated_during_own_access, setup, teardown),
		cmocka_unit_test_setup_teardown(bound_region_does_not_change, setup, teardown),
		cmocka_unit_test_setup_teardown(there_is_a_most_of_stags, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
