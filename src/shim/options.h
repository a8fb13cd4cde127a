/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim: the environment variables that `uwarp run` hands its options on with, and that may be set without it; uwarp(7) documents them. An empty
 * one counts as unset.
 */
#ifndef UWARP_SHIM_OPTIONS_H
#define UWARP_SHIM_OPTIONS_H

#define SHIM_ENV_MPA_REVISION "UWARP_MPA_REVISION" /* 1, 2 */
#define SHIM_ENV_MODEL "UWARP_MODEL"               /* p2p, client-server (or cs) */
#define SHIM_ENV_RTR "UWARP_RTR"                   /* send,write,read, in any choice; all */
#define SHIM_ENV_CRC "UWARP_CRC"                   /* 0, 1 */
#define SHIM_ENV_MARKERS "UWARP_MARKERS"           /* 0, 1 */
#define SHIM_ENV_RESPONDER_WAITS "UWARP_RESPONDER_WAITS" /* 0, 1 */
#define SHIM_ENV_IFACES "UWARP_IFACES"             /* names with commas between; less than SHIM_IFACES_SIZE bytes */
#define SHIM_IFACES_SIZE 256u
#define SHIM_ENV_LOG "UWARP_LOG"                   /* error, warn, info, debug */
#define SHIM_ENV_PCAP "UWARP_PCAP"                 /* file name */
#define SHIM_ENV_STATS "UWARP_STATS"               /* 0, 1 */

#endif
