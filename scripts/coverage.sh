#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# coverage.sh DIR: builds DIR/coverage with gcov, runs the unit tests and the whole-system scripts, and prints line and
# branch coverage per source file, as gcovr reports them; nothing is excluded.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$1/coverage
mkdir -p "$dir"
CC=gcc scripts/build.sh "$dir" -Db_coverage=true -Doptimization=0 > "$dir/build.log" 2>&1 || {
	tail -n 100 "$dir/build.log"
	exit 1
}
find "$dir" -name '*.gcda' -delete
status=0
meson test -C "$dir" --no-rebuild --print-errorlogs --timeout-multiplier 3 || status=$?

gcovr -r . --object-directory "$dir" --filter 'src/' -j "$(nproc)" --csv -o "$dir/coverage.csv" "$dir"
python3 - "$dir/coverage.csv" <<'PYTHON'
import csv
import sys

def row(name, lines, hit_lines, branches, hit_branches):
    def part(hit, total):
        return "%6d /%6d  %5.1f %%" % (hit, total, 100 * hit / total) if total else "     - /     -      -  "
    print("%-28s %s   %s" % (name, part(hit_lines, lines), part(hit_branches, branches)))

files = []
for record in csv.DictReader(open(sys.argv[1])):
    files.append([record["filename"]] + [
        int(record[k]) for k in ("line_total", "line_covered", "branch_total", "branch_covered")])
print("\n%-28s %24s %26s" % ("file", "lines", "branches"))
rooms = {}
for file in sorted(files):
    row(*file)
    room = file[0].rpartition("/")[0] + "/"
    rooms[room] = [a + b for a, b in zip(rooms.get(room, [0] * 4), file[1:])]
print()
for room, totals in rooms.items():
    row(room, *totals)
row("all", *[sum(t) for t in zip(*rooms.values())])
PYTHON
exit "$status"
