#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# list_files.sh DIR PATTERN...: the files of DIR (a path inside the repository), not those of its
# subfolders, that match one of the patterns; sorted, relative to the top of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$1
shift
[[ -d $dir ]] || exit 0
for pattern; do
	find "$dir" -maxdepth 1 -type f -name "$pattern"
done | LC_ALL=C sort -u
