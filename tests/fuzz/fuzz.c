/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"

/* Of the sanitizers: an input that a target failed on fails the same way when it is run by hand. */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
	return "detect_stack_use_after_return=1";
}

const char *__ubsan_default_options(void)
{
	return "halt_on_error=1:print_stacktrace=1";
}

/* A failed assertion of cmocka's, in what is shared with the tests, is a crash. Nothing is said about what hostile input brings about. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
	return log_set_level("error");
}

size_t fuzz_bytes(struct fuzz *f, void *out, size_t len)
{
	size_t n = min(len, f->left);

	if (n)
		memcpy(out, f->p, n);
	memset((u8 *)out + n, 0, len - n);
	f->p += n;
	f->left -= n;
	return n;
}

u32 fuzz_near(struct fuzz *f)
{
	u8 v = fuzz_u8(f);

	return v == 128 ? fuzz_u32(f) : (u32)(int8_t)v;
}

u8 *fuzz_copy(const void *data, size_t len)
{
	u8 *copy = malloc(len);

	assert(copy || !len);
	if (len)
		memcpy(copy, data, len);
	return copy;
}
