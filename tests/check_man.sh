#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# There is a page for each function of tests/functions.txt with the sections it must have, kernel-doc has nothing to
# complain about, and groff and man read every page, the hand-written ones too, without a warning.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=${1:-build}/man
warnings=$(mktemp)
trap 'rm -f "$warnings"' EXIT
scripts/make_man.sh "$dir" "$warnings" > /dev/null 2>&1 || { echo "make_man.sh failed"; exit 1; }

faults=0
fault() {
	echo "$*"
	faults=$((faults + 1))
}

while read -r line; do
	fault "$line"
done < <(grep -v 'no structured comments found' "$warnings")

while read -r name; do
	page=$dir/$name.9
	[[ -f $page ]] || { fault "$name: no page"; continue; }
	sections=(NAME SYNOPSIS ARGUMENTS DESCRIPTION 'SEE ALSO')
	grep -qE "^\.BI \"void $name\(" "$page" || sections+=(RETURN)
	for section in "${sections[@]}"; do
		awk -v want="$section" '
			/^\.SH/ { gsub(/^\.SH |"/, ""); inside = $0 == want; next }
			inside && NF { found = 1 }
			END { exit !found }' "$page" || fault "$name: no $section, or an empty one"
	done
done < tests/functions.txt

for page in uwarp.1 libuwarp.3 uwarp.7; do
	[[ -f $dir/$page ]] || fault "$page: no page"
done

for page in "$dir"/*.[1-9]; do
	[[ -e $page ]] || continue
	warnings=$({ groff -man -Tutf8 -K utf8 -ww -z "$page" && MANWIDTH=80 man --warnings -l "$page" > /dev/null; } 2>&1) ||
		fault "$page: cannot be formatted"
	[[ -z $warnings ]] || fault "$warnings"
done
((faults == 0))
