#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# The shared library exports iwcm_* and nothing else, and all of what iwcm.h declares.
set -euo pipefail
cd "$(dirname "$0")/.."

library=${1:-build}/libuwarp.so
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort)
declared=$(gcc -fsyntax-only -D_GNU_SOURCE -Isrc -aux-info /dev/stdout -x c src/iwcm/iwcm.h |
	sed -n 's|^/\* src/iwcm/iwcm.h:[0-9]*:NC \*/ extern .*\b\(iwcm_[a-z0-9_]*\) (.*|\1|p' | LC_ALL=C sort -u)

foreign=$(grep -v '^iwcm_' <<< "$exported" || true)
lacking=$(comm -13 <(echo "$exported") <(echo "$declared"))
[[ -n $declared ]] || { echo "no iwcm_ function found in src/iwcm/iwcm.h"; exit 1; }
[[ -z $foreign ]] || printf '%s\n' 'exported, but not iwcm_*:' "$foreign"
[[ -z $lacking ]] || printf '%s\n' 'declared in iwcm.h, but not exported:' "$lacking"
[[ -z $foreign && -z $lacking ]]
