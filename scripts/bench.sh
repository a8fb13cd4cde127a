#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# bench.sh DIR: runs every benchmark of bench/ that was built in DIR. Each gets, as root, a network namespace of its own: ports
# in TIME_WAIT that one leaves behind would slow the next one down.
set -euo pipefail
cd "$(dirname "$0")/.."

own_net=()
if unshare -n true 2> /dev/null; then
	own_net=(unshare -n bash -c 'ip link set lo up; exec "$@"' bench)
fi
for source in bench/bench_*.c; do
	name=$(basename "$source" .c)
	echo "== $name"
	"${own_net[@]}" "$1/bench/$name"
done
echo "== bench_data"
"${own_net[@]}" /usr/bin/python3 bench/bench_data.py "$(realpath "$1")"
