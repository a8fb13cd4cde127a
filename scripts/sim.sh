#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# sim.sh DIR: simulated connections on a faulty wire, for a row of seeds and both NIC generations, each of them twice: every
# check of `uwarp sim` must hold, and the two runs of a seed must be identical.
#
#   SEEDS=20 CONNECTIONS=100000 DATA=20 FAULTS='--loss 5 --reorder 5 --duplicate 2 --corrupt 1'
#
# DATA: percentage of connections that move data.
set -euo pipefail
cd "$(dirname "$0")/.."

uwarp=$1/uwarp
seeds=${SEEDS:-20}
connections=${CONNECTIONS:-100000}
data=${DATA:-20}
read -r -a faults <<< "${FAULTS:---loss 5 --reorder 5 --duplicate 2 --corrupt 1}"
passed=0
failed=0
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

simulate() {
	"$uwarp" sim --nodes 64 --connections "$connections" --data "$data" "${faults[@]}" --seed "$1" --gen "$2" > "$out/$3" 2>&1
}

# The two runs side by side; what they print differs in real time alone.
run_seed() {
	local status=0 other=0
	simulate "$1" "$2" a &
	simulate "$1" "$2" b || status=$?
	wait $! || other=$?
	if ((status == 0 && other == 0)) && cmp -s <(grep digest "$out/a") <(grep digest "$out/b"); then
		passed=$((passed + 1))
		echo "ok     seed $1, generation $2: $(grep digest "$out/a")"
	else
		failed=$((failed + 1))
		echo "not ok seed $1, generation $2"
		diff "$out/a" "$out/b" || true
		tail -n 5 "$out/a"
	fi
}

for ((seed = 1; seed <= seeds; seed++)); do
	for generation in 1 2; do
		run_seed "$seed" "$generation"
	done
done
echo "$((2 * connections * (passed + failed))) connections in all"
echo "$passed passed, $failed failed"
((failed == 0))
