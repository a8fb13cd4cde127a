#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# fuzz.sh DIR: builds the fuzz targets of tests/fuzz in DIR/fuzz (Clang, ASan and UBSan, libFuzzer) and runs each on its corpus and what
# comes of it, for so long, as many at a time as there are processors:
#
#   FUZZ_SECONDS=60 FUZZ_JOBS=2 FUZZ_TARGETS='fuzz_cm fuzz_qp'
#
# With FUZZ_RUNS each runs so many inputs, from one seed: the same ones each time, which is what a check wants.
# New inputs that reach something new stay in DIR/fuzz/corpus, those that a target fails on in DIR/fuzz/crashes. With FUZZ_MERGE=1 nothing is run for long:
# the corpora of the repository become the smallest part of all there is that reaches as much.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$1/fuzz
seconds=${FUZZ_SECONDS:-60}
at_once=${FUZZ_JOBS:-$(nproc)}
merge=${FUZZ_MERGE:-}
limit=("-max_total_time=$seconds")
[[ -z ${FUZZ_RUNS:-} ]] || limit=("-runs=$FUZZ_RUNS" -seed=1)
passed=0
failed=0

mkdir -p "$dir/crashes"
echo "building $dir"
CC=clang TARGETS=fuzzers scripts/build.sh "$dir" -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
	-Doptimization=1 -Ddebug=false "-Dc_args=-gline-tables-only -fsanitize=fuzzer-no-link" > "$dir/build.log" 2>&1 || {
	grep -vE '^\[[0-9]+/[0-9]+\] (Compiling|Linking|Generating)' "$dir/build.log" | tail -n 100
	exit 1
}
targets=${FUZZ_TARGETS:-$(scripts/list_files.sh tests/fuzz 'fuzz_*.c' | sed 's|.*/||; s|\.c$||')}

# What both ways of running have in common. Entropic scheduling costs more than these targets do.
options() {
	echo -max_len=1024 -timeout=120 -rss_limit_mb=4096 -entropic=0 -print_final_stats=1 "-artifact_prefix=$dir/crashes/$1-"
	[[ ! -f tests/fuzz/$1.dict ]] || echo "-dict=tests/fuzz/$1.dict"
}

run() {
	local target=$1 status=0 seeds=()
	mkdir -p "$dir/corpus/$target"
	[[ ! -d tests/fuzz/corpus/$target ]] || seeds=("tests/fuzz/corpus/$target")
	# shellcheck disable=SC2046 # a list of words
	"$dir/tests/fuzz/$target" $(options "$target") "${limit[@]}" "$dir/corpus/$target" "${seeds[@]}" \
		> "$dir/$target.log" 2>&1 < /dev/null || status=$?
	echo "$status" > "$dir/$target.status"
}

minimise() {
	local target=$1 corpus=tests/fuzz/corpus/$1 new status=0
	new=$(mktemp -d)
	mkdir -p "$dir/corpus/$target" "$corpus"
	# shellcheck disable=SC2046 # a list of words
	"$dir/tests/fuzz/$target" $(options "$target") -merge=1 -use_counters=0 "$new" "$corpus" "$dir/corpus/$target" > "$dir/$target.log" 2>&1 < /dev/null || status=$?
	if ((status == 0)); then
		rm -rf "$corpus"
		mv "$new" "$corpus"
		chmod 755 "$corpus"
		rm -rf "$dir/corpus/$target"
	fi
	rm -rf "$new"
	echo "$status" > "$dir/$target.status"
}

# "cov: 7026 ft: ..." of the last line that has it.
last() {
	sed -n "s/.*[ :]$2: *\([0-9]*\).*/\1/p" "$dir/$1.log" | tail -n 1
}

report() {
	local target=$1 status=lost edges executions crash
	[[ -s $dir/$target.status ]] && status=$(< "$dir/$target.status")
	edges=$(sed -n 's/.*Loaded [0-9]* PC tables (\([0-9]*\) PCs).*/\1/p' "$dir/$target.log" | head -n 1)
	if [[ $status == 0 ]]; then
		passed=$((passed + 1))
		executions=$(last "$target" number_of_executed_units)
		printf 'ok     %-14s %10s executions, %6s of %6s edges\n' "$target" "${executions:-0}" "$(last "$target" cov)" "$edges"
		return
	fi
	failed=$((failed + 1))
	echo "not ok $target: exit status $status"
	grep -m 1 -A 25 -E 'ERROR:|Assertion|runtime error' "$dir/$target.log" || tail -n 20 "$dir/$target.log"
	crash=$(sed -n 's/.*Test unit written to //p' "$dir/$target.log" | tail -n 1)
	[[ -z $crash ]] || echo "again: $dir/tests/fuzz/$target $crash"
}

work=run
[[ -z $merge ]] || work=minimise
for target in $targets; do
	rm -f "$dir/$target.status"
	while (($(jobs -pr | wc -l) >= at_once)); do
		wait -n || true
	done
	echo "$work $target"
	"$work" "$target" &
done
wait
for target in $targets; do
	report "$target"
done
echo "$passed passed, $failed failed"
((failed == 0))
