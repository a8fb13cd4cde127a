#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# bench.sh DIR: runs every benchmark of bench/ that was built in DIR.
set -euo pipefail
cd "$(dirname "$0")/.."

for source in bench/*.c; do
	name=$(basename "$source" .c)
	echo "== $name"
	"$1/bench/$name"
done
