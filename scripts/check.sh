#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# check.sh DIR: builds three ways, runs every test and check, and ends with the line "N passed, N failed".
#
#   DIR        GCC -O2                     unit tests, scripts with long-running programs (suite "programs")
#   DIR/asan   GCC, ASan and UBSan         unit tests, whole-system scripts; with CHECK_FULL=1 those programs, too
#   DIR/tsan   Clang, TSan                 tests with threads; clang-tidy takes its compile commands from here
#   DIR/fuzz   Clang, ASan and UBSan       fuzz targets, which tests/check_fuzz.sh builds and runs for a moment
#
# then tests/check_*.sh DIR, each one check; exit status 77 of a script means that it was skipped.
# A failed build is one failure, and what needs it is not run.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
passed=0
failed=0
skipped=()
failures=()

section() {
	printf '\n== %s (at %d s)\n' "$1" "$SECONDS"
}

fail() {
	failed=$((failed + 1))
	failures+=("$1")
}

# build_in DIR COMPILER MESON-OPTION...
build_in() {
	local dir=$1 compiler=$2
	shift 2
	section "build $dir with $compiler"
	mkdir -p "$dir"
	if ! CC=$compiler scripts/build.sh "$dir" "$@" > "$dir/build.log" 2>&1; then
		grep -vE '^\[[0-9]+/[0-9]+\] (Compiling|Linking|Generating)' "$dir/build.log" | tail -n 200
		fail "build $dir"
		return 1
	fi
}

# test_in DIR SUITE MESON-TEST-OPTION...
test_in() {
	local dir=$1 suite=$2 log counts kind rest
	shift 2
	section "$suite tests in $dir"
	rm -f "$dir"/meson-logs/testlog*.json
	meson test -C "$dir" --no-rebuild --suite "$suite" --print-errorlogs "$@" || true
	log=$(find "$dir/meson-logs" -name 'testlog*.json' -size +0) # a wrapper's name is part of it
	if [[ -z $log ]]; then
		fail "$suite tests in $dir: none ran"
		return
	fi
	counts=$(python3 scripts/count_tests.py "$log") || { fail "count_tests.py"; return; }
	while IFS=$'\t' read -r kind rest; do
		case $kind in
		passed) passed=$((passed + rest)) ;;
		failed) fail "$rest, in $dir" ;;
		skipped) skipped+=("$rest, in $dir") ;;
		esac
	done <<< "$counts"
}

# The checks need no tests to be over, and the whole-system scripts leave a processor free most of the time: both at once.
run_checks() {
	local check name status
	for check in tests/check_*.sh; do
		name=$(basename "$check" .sh)
		status=0
		bash "$check" "$build" > "$build/$name.log" 2>&1 || status=$?
		echo "$status" > "$build/$name.status"
	done
}

report_check() {
	local name status=lost
	name=$(basename "$1" .sh)
	section "$name"
	[[ -s $build/$name.status ]] && status=$(< "$build/$name.status")
	if [[ $status == 0 ]]; then
		passed=$((passed + 1))
	elif [[ $status == 77 ]]; then
		skipped+=("$name: $(tail -n 1 "$build/$name.log")")
	else
		head -n 200 "$build/$name.log"
		fail "$name"
	fi
}

# handle_*=2: cmocka's own handlers would hide where it crashed.
export ASAN_OPTIONS=detect_stack_use_after_return=1:handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

plain=false asan=false
if build_in "$build" gcc; then
	plain=true
	test_in "$build" unit
fi

if build_in "$build/asan" gcc -Db_sanitize=address,undefined -Doptimization=1; then
	asan=true
	test_in "$build/asan" unit
fi

# TSan does not know every layout of the address space that newer kernels choose at random.
wrapper=()
setarch -R true 2> /dev/null && wrapper=(--wrapper 'setarch -R')
if TARGETS=thread_tests build_in "$build/tsan" clang -Db_sanitize=thread -Db_lundef=false -Doptimization=1; then
	test_in "$build/tsan" threads "${wrapper[@]}"
fi

rm -f "$build"/check_*.status
run_checks &
checks=$!
if $plain; then
	test_in "$build" programs
fi
if $asan; then
	test_in "$build/asan" sys
	[[ -z ${CHECK_FULL:-} ]] || test_in "$build/asan" programs
fi
wait "$checks"
for check in tests/check_*.sh; do
	report_check "$check"
done

section 'result'
for what in "${skipped[@]}"; do
	echo "skipped: $what"
done
for what in "${failures[@]}"; do
	echo "failed: $what"
done
echo "$passed passed, $failed failed"
((failed == 0))
