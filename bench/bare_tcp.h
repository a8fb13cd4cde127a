/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* bench: what benchmarks share: bare TCP connections to compare with, time, medians. */
#ifndef UWARP_BENCH_BARE_TCP_H
#define UWARP_BENCH_BARE_TCP_H

#define BARE_WINDOW 16 /* connections under way */

double now_s(void);
_Noreturn void die(const char *what, int err); /* @err: errno */
double median(double *v, unsigned int n);      /* sorts */
/* Connections per second over @count of them: connect, request, reply, RTR, close from the client's side, close from the server's. */
double bare_round(unsigned int count);

#endif
