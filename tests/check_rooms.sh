#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Arrows run downwards only: a room includes what the table below allows, as "room/header.h", and no other room's
# *_internal.h.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A may_include=(
	[tool]='shim iwcm cm rnic rdmap tsa port net base'
	[shim]='iwcm rnic net base'
	[iwcm]='cm rnic net base'
	[cm]='rnic net base'
	[rnic]='rdmap port net base'
	[rdmap]='base'
	[tsa]='base'
	[port]='tsa net base'
	[net]='base'
	[base]=''
)

faults=0
fault() {
	echo "$*"
	faults=$((faults + 1))
}

for dir in src/*/; do
	room=$(basename "$dir")
	[[ -v may_include[$room] ]] || fault "src/$room: a room that the table in tests/check_rooms.sh does not have"
done

while IFS=: read -r file line text; do
	room=$(cut -d/ -f2 <<< "$file")
	header=$(cut -d'"' -f2 <<< "$text")
	if [[ $header != */* ]]; then
		fault "$file:$line: \"$header\" is not written as \"room/header.h\""
	elif [[ ${header%%/*} == "$room" ]]; then
		continue
	elif [[ $header == *_internal.h ]]; then
		fault "$file:$line: $room/ includes $header, which is private to ${header%%/*}/"
	elif [[ " ${may_include[$room]:-} " != *" ${header%%/*} "* ]]; then
		fault "$file:$line: $room/ may not include $header"
	fi
done < <(grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' src)

((faults == 0))
