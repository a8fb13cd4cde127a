/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * base: what every room stands on. Rooms above include this one header.
 */
#ifndef UWARP_BASE_H
#define UWARP_BASE_H

#include "base/types.h"
#include "base/fd.h"
#include "base/wheel.h"
#include "base/hash.h"
#include "base/limit.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/packet.h"
#include "base/pool.h"
#include "base/rand.h"

#endif
