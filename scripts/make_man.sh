#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# make_man.sh DIR [WARNINGS]: fills DIR with the hand-written man pages and, for each function of tests/functions.txt, a page
# of section 9 made from the comment above it. What kernel-doc complains about goes to
# standard error, and whole into the file WARNINGS.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$1
warnings=${2:-$(mktemp)}
[[ -n ${2:-} ]] || trap 'rm -f "$warnings"' EXIT
kernel_doc=$(dpkg -L linux-kbuild-6.1 2> /dev/null | grep '/kernel-doc$') || {
	echo "make_man.sh: kernel-doc is missing; it is in Debian's linux-kbuild-6.1" >&2
	exit 1
}
version=$(sed -n "s/^ *version: '\([0-9.]*\)',\$/\1/p" meson.build | head -n 1)

# The date of the pages is that of their source, not that of the build.
if [[ -n ${SOURCE_DATE_EPOCH:-} ]]; then
	date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)
else
	date=$(git log -1 --format=%cd --date=format:%F -- src/cm 2> /dev/null || true)
	: "${date:=$(date -u -r meson.build +%F)}"
fi

rm -rf "$dir"
mkdir -p "$dir"
true > "$warnings"
find man -name '*.[1-9]' -exec cp -t "$dir" {} +
for source in src/cm/*.[ch]; do
	[[ -e $source ]] || continue
	"$kernel_doc" -man "$source" 2>> "$warnings" | python3 scripts/make_man.py "$dir" "$version" "$date"
done
grep -v 'no structured comments found' "$warnings" >&2 || true
