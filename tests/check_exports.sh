#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# The shared library exports iwcm_* and nothing else, and all of what iwcm.h declares. The shim exports the public symbols of
# libibverbs with their versions, ibv_query_gid_type without one, and otherwise only what it interposes: symbols of libc and libnl.
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
status=0
[[ -z $foreign && -z $lacking ]] || status=1

# NAME, NAME@VERSION or NAME@@VERSION, sorted; the symbols that versions are themselves left out.
symbols() {
	readelf --dyn-syms -W "$1" | awk '$7 != "UND" && $6 != "HIDDEN" && $4 != "NOTYPE" && NR > 3 && $8 != "" { print $8 }' |
		grep -vE '^(IBVERBS|GLIBC|libnl)_[A-Z0-9._]*$' | LC_ALL=C sort -u
}
names() {
	sed 's/@.*//' | LC_ALL=C sort -u
}

shim=${1:-build}/libuwarp-shim.so
libdir=$(dirname "$(ldconfig -p | awk '/libibverbs.so.1 / { print $NF; exit }')")
if [[ ! -f $shim || ! -f $libdir/libibverbs.so.1 ]]; then
	echo 'skipped: the shim is not built, or libibverbs is not installed'
	exit $status
fi
public=$(symbols "$libdir/libibverbs.so.1" | grep '@IBVERBS_1\.')
versioned=$(symbols "$shim" | grep '@' || true)
if ! difference=$(diff <(echo "$public") <(echo "$versioned")); then
	printf '%s\n' 'libibverbs exports (<), the shim exports (>):' "$difference"
	status=1
fi
interposed=$(symbols "$shim" | grep -v '@' | grep -vx ibv_query_gid_type)
known=$({ symbols "$libdir/libc.so.6"; symbols "$libdir/libnl-3.so.200"; } | names)
ours=$(comm -23 <(echo "$interposed") <(echo "$known"))
if [[ -n $ours ]]; then
	printf '%s\n' 'exported by the shim, but neither of libibverbs nor of libc or libnl:' "$ours"
	status=1
fi
symbols "$shim" | grep -qx ibv_query_gid_type || { echo 'the shim lacks ibv_query_gid_type without a version'; status=1; }
exit $status
