#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Each function of tests/functions.txt is defined in src/cm/, and no other room defines a function irdma_*.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build}
functions_in() {
	nm --defined-only "$@" 2> /dev/null | awk '$2 ~ /^[TtW]$/ { sub(/\..*/, "", $3); print $3 }' | LC_ALL=C sort -u
}

lacking=$(comm -13 <(functions_in "$build"/libroom_cm.a) <(LC_ALL=C sort tests/functions.txt))
foreign=
for library in "$build"/libroom_*.a; do
	[[ $library == */libroom_cm.a ]] || foreign+=$(functions_in "$library" | sed -n "s|^irdma_|${library##*/}: &|p")
done
[[ -z $lacking ]] || printf '%s\n' 'not defined in src/cm/:' "$lacking"
[[ -z $foreign ]] || echo "$foreign"
[[ -z $lacking && -z $foreign ]]
