/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What fuzz targets share: an input that is read as a script. A read behind its end gives zeros, so that any input is a whole one, and a cut one
 * does the same as far as it goes.
 */
#ifndef UWARP_FUZZ_H
#define UWARP_FUZZ_H

#include <assert.h>
#include "base/base.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

struct fuzz {
	const u8 *p;
	size_t left;
};

static inline bool fuzz_more(const struct fuzz *f)
{
	return f->left;
}

/* Up to @len bytes; the rest of @out is zeroed. How many there were. */
size_t fuzz_bytes(struct fuzz *f, void *out, size_t len);

static inline u8 fuzz_u8(struct fuzz *f)
{
	u8 v;

	fuzz_bytes(f, &v, sizeof(v));
	return v;
}

static inline u16 fuzz_u16(struct fuzz *f)
{
	u16 v;

	fuzz_bytes(f, &v, sizeof(v));
	return v;
}

static inline u32 fuzz_u32(struct fuzz *f)
{
	u32 v;

	fuzz_bytes(f, &v, sizeof(v));
	return v;
}

static inline u64 fuzz_u64(struct fuzz *f)
{
	u64 v;

	fuzz_bytes(f, &v, sizeof(v));
	return v;
}

/* In [0, n). */
static inline u32 fuzz_below(struct fuzz *f, u32 n)
{
	return n > 256 ? fuzz_u16(f) % n : fuzz_u8(f) % n;
}

/* Mostly a small number around 0, now and then any: what is added to the value that would be right. */
u32 fuzz_near(struct fuzz *f);

/* A copy whose end is the end of its memory: what is read beyond it is seen. The caller's to free. */
u8 *fuzz_copy(const void *data, size_t len);

#endif
