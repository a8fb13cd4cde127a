#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Every source, script, build file and man page says its licence near its top.
set -euo pipefail
cd "$(dirname "$0")/.."

faults=0
while read -r file; do
	if ! head -n 5 "$file" | grep -qF 'SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only'; then
		echo "$file: no line with SPDX-License-Identifier"
		faults=$((faults + 1))
	fi
done < <(
	{ git ls-files --cached --others --exclude-standard 2> /dev/null || find . -path './build*' -prune -o -type f -print; } |
		grep -E '(\.[ch137]|\.sh|\.py|\.map|meson\.build|Makefile|\.ci/run)$'
)
((faults == 0))
