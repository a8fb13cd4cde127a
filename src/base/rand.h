/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: random numbers. rand_secure() is libsodium's, unless the process is in a simulation whose
 * seed was set with rand_set_seed(): then everything "secret" derives from the seed too, so that
 * two runs of one seed are identical. struct rand_gen is a small seeded generator for simulations.
 */
#ifndef UWARP_BASE_RAND_H
#define UWARP_BASE_RAND_H

#include "base/types.h"

struct rand_gen { u64 s[4]; }; /* xoshiro256** */

void rand_gen_seed(struct rand_gen *g, u64 seed);
u64 rand_gen_u64(struct rand_gen *g);
u64 rand_gen_below(struct rand_gen *g, u64 n);        /* uniform in [0, n); n > 0 */
bool rand_gen_chance(struct rand_gen *g, double p);   /* true with probability p */

void rand_set_seed(u64 seed);   /* simulation only; per thread */
void rand_unset_seed(void);
void rand_secure(void *buf, size_t len);

#endif
