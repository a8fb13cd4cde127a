#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# stress.sh DIR: threads, for long: the stress of all verbs and CM calls (tests/test_shim_stress_threads.c) with TSan, with ASan and as it is, the one way in which forked
# children may work, and all other tests with threads with TSan, each with its interleavings shaken (tests/shake.c). Ends with the line "N passed, N failed".
#
#   SEEDS           how many (20), SEED the first one (from the clock); a failure is run again with SEED=... SEEDS=1
#   STRESS_SECONDS  of each run of the stress (20)
#   TESTS           which programs instead
#
# What a failed run has said is in DIR/stress/.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
seeds=${SEEDS:-20}
first=${SEED:-$(($(date +%s) % 1000000))}
export UWARP_STRESS_SECONDS=${STRESS_SECONDS:-20}
passed=0
failed=0

export ASAN_OPTIONS=detect_stack_use_after_return=1:handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
export UWARP_SOURCE=$PWD

# build_in DIR COMPILER MESON-OPTION...: the tests with threads, all of whose names end so
build_in() {
	local dir=$1 compiler=$2 tests=(tests/*_threads.c)
	shift 2
	tests=("${tests[@]%.c}")
	mkdir -p "$dir"
	echo "building $dir"
	if ! TARGETS=${tests[*]} CC=$compiler scripts/build.sh "$dir" "$@" > "$dir/build.log" 2>&1; then
		tail -n 50 "$dir/build.log"
		echo '0 passed, 1 failed'
		exit 1
	fi
}

# run_one DIR TEST SEED
run_one() {
	local name=${1##*/}.$2.$3 status=0 start=$SECONDS
	UWARP_SHAKE=$3 UWARP_STRESS_SEED=$3 timeout 900 "${personality[@]}" "$1/tests/$2" > "$build/stress/$name.log" 2>&1 || status=$?
	if ((status == 0)); then
		passed=$((passed + 1))
		printf '%s: ok, %d s: %s\n' "$name" $((SECONDS - start)) "$(tail -n 1 "$build/stress/$name.log")"
		rm "$build/stress/$name.log"
	else
		failed=$((failed + 1))
		printf '%s: status %d, after %d s; %s:\n' "$name" "$status" $((SECONDS - start)) "$build/stress/$name.log"
		tail -n 20 "$build/stress/$name.log"
	fi
}

build_in "$build" gcc
build_in "$build/tsan" clang -Db_sanitize=thread -Db_lundef=false -Doptimization=1
build_in "$build/asan" gcc -Db_sanitize=address,undefined -Doptimization=1

mkdir -p "$build/stress"
personality=() # TSan does not know every layout of the address space
setarch -R true 2> /dev/null && personality=(setarch -R)
others=(tests/*_threads.c)
others=("${others[@]##*/}")
others=("${others[@]%.c}")
for ((n = 0; n < seeds; n++)); do
	seed=$((first + n))
	if [[ -n ${TESTS:-} ]]; then
		for test in $TESTS; do
			run_one "$build/tsan" "$test" "$seed"
		done
		continue
	fi
	run_one "$build" test_shim_stress_threads "$seed"
	run_one "$build/asan" test_shim_stress_threads "$seed"
	for test in "${others[@]}"; do
		run_one "$build/tsan" "$test" "$seed"
	done
done
echo "$passed passed, $failed failed"
((failed == 0))
