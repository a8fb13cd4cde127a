#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# try.sh tests/test_X.c ROOM...: compiles one test with the sources of these rooms only, and runs it: quick while
# other rooms do not compile. SANITIZE=thread (default address,undefined), CC=clang (default gcc).
set -euo pipefail
cd "$(dirname "$0")/.."

test=$1
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sources=()
for room; do
	sources+=(src/"$room"/*.c)
done
packages='libnl-3.0 libnl-route-3.0 libisal libsodium libpcap cmocka'
# shellcheck disable=SC2046,SC2086 # lists of flags
"${CC:-gcc}" -std=gnu11 -D_GNU_SOURCE -g -O1 -fsanitize="${SANITIZE:-address,undefined}" -fno-strict-aliasing \
	-Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wwrite-strings \
	-Wpointer-arith -Wundef -Wvla -Wformat=2 -Wimplicit-fallthrough -Wno-unused-parameter \
	-Wno-missing-field-initializers -Isrc -Itests $(pkg-config --cflags $packages) \
	"$test" "${sources[@]}" -o "$dir/test" -pthread $(pkg-config --libs $packages) -lm
ASAN_OPTIONS=handle_segv=2:handle_sigfpe=2:handle_sigill=2 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	"$dir/test"
