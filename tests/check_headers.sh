#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Every header compiles by itself, and twice in a row, with both compilers.
set -euo pipefail
cd "$(dirname "$0")/.."

flags=$(pkg-config --cflags libnl-3.0 libnl-route-3.0 libisal libsodium libpcap)
export flags

compile_alone() {
	local header=${1#src/}
	# shellcheck disable=SC2086 # a list of flags
	printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
		"$2" -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-parameter -Wstrict-prototypes \
			-Wmissing-prototypes -fsyntax-only -Isrc $flags -x c - || {
		echo "$1 does not compile alone with $2"
		return 1
	}
}
export -f compile_alone

for compiler in gcc clang; do
	find src -name '*.h' -printf "%p $compiler\n"
done | sort | xargs -r -P "$(nproc)" -L 1 bash -c 'compile_alone "$@"' -
