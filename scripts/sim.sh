#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# sim.sh DIR: simulated connections, for a row of seeds and both NIC generations: on a faulty wire, twice, which must give identical runs; and on a clean one
# between many hosts, where whatever is not troubled, attacked by someone on the path or given up must succeed. Every check of `uwarp sim` must hold.
#
#   SEEDS=20 FIRST_SEED=1 CONNECTIONS=100000 DATA=20 NODES=1024 FAULTS='--loss 5 --reorder 5 --duplicate 2 --corrupt 1'
#
# DATA: percentage of connections that move data. NODES: hosts on the clean wire; the faulty one has 64. A run that fails leaves its output in build/sim-SEED-GENERATION-*,
# with the command that repeats it and the smallest one that was found.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
uwarp=$build/uwarp
seeds=${SEEDS:-20}
first=${FIRST_SEED:-1}
connections=${CONNECTIONS:-100000}
data=${DATA:-20}
nodes=${NODES:-1024}
read -r -a faults <<< "${FAULTS:---loss 5 --reorder 5 --duplicate 2 --corrupt 1}"
passed=0
failed=0
ran=0
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

simulate() {
	local seed=$1 generation=$2 to=$3
	shift 3
	"$uwarp" sim --connections "$connections" --data "$data" --seed "$seed" --gen "$generation" "$@" > "$out/$to" 2>&1
}

count() {
	local n
	for file; do
		n=$(sed -n 's/^\([0-9]*\) connections between .*/\1/p' "$out/$file")
		ran=$((ran + ${n:-0}))
	done
}

good() {
	passed=$((passed + 1))
	echo "ok     seed $1, generation $2, $3: $(grep digest "$out/$4"); $ran connections so far"
}

bad() {
	failed=$((failed + 1))
	cp "$out/$4" "$build/sim-$1-$2-$4"
	echo "not ok seed $1, generation $2, $3"
	grep -E '^(WRONG|again|smallest|[0-9]+ runs)' "$out/$4" || tail -n 5 "$out/$4"
}

# The two runs side by side; what they print differs in real time alone.
faulty() {
	local status=0 other=0
	simulate "$1" "$2" a --nodes 64 "${faults[@]}" &
	simulate "$1" "$2" b --nodes 64 "${faults[@]}" || status=$?
	wait $! || other=$?
	count a b
	if ((status == 0 && other == 0)) && cmp -s <(grep digest "$out/a") <(grep digest "$out/b"); then
		good "$1" "$2" "faulty wire, twice" a
	else
		diff <(grep digest "$out/a") <(grep digest "$out/b") || true
		bad "$1" "$2" "faulty wire" a
	fi
}

clean() {
	local status=0
	simulate "$1" "$2" clean --nodes "$nodes" || status=$?
	count clean
	if ((status == 0)); then
		good "$1" "$2" "clean wire" clean
	else
		bad "$1" "$2" "clean wire" clean
	fi
}

for ((seed = first; seed < first + seeds; seed++)); do
	for generation in 1 2; do
		faulty "$seed" "$generation"
		clean "$seed" "$generation"
	done
done
echo "$ran connections in all"
echo "$passed passed, $failed failed"
((failed == 0))
