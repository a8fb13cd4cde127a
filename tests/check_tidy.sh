#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# clang-tidy with .clang-tidy over the library, the command, the benchmarks and the examples. Its compile commands come
# from the Clang build.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build}/tsan
if [[ ! -f $build/compile_commands.json ]]; then
	echo "no compile commands in $build"
	exit 1
fi
# The largest first, so that none of them is left for the end.
find src bench examples -name '*.c' -printf '%s %p\n' | sort -rn | cut -d' ' -f2 |
	xargs -r -P "$(nproc)" -n 1 clang-tidy --quiet -p "$build" 2> >(grep -v 'warnings generated' >&2)
