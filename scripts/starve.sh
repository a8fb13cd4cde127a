#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# starve.sh DIR: builds with ASan into DIR, then lets every allocation of the programs in tests/starve fail once, then each with all that follow it, then every system
# call in each way it can. `make check` runs a part of it. ARGS: more options (tests/starve/starve.c), such as '--only host' or '--every 10'.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
read -r -a args <<< "${ARGS:-}"
passed=0
failed=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
export ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

scan() {
	local program=$1
	shift
	"$build/tests/$program" "$@" "${args[@]}" | tee "$out" || true
	passed=$((passed + $(grep -c '^ok ' "$out" || true)))
	failed=$((failed + $(grep -c '^not ok ' "$out" || true)))
}

CC=gcc TARGETS='tests/starve_lib tests/starve_shim' NINJAFLAGS=--quiet scripts/build.sh "$build" -Db_sanitize=address,undefined -Doptimization=1
for program in starve_lib starve_shim; do
	scan $program
	scan $program --rest
	scan $program --calls
done
echo "$passed passed, $failed failed (at $SECONDS s)"
((passed > 0 && failed == 0))
