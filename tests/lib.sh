# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
#
# What the whole-system scripts (sys_*.sh) have in common. Source it first:
#
#     . "$(dirname "$0")/lib.sh"      # set -uo pipefail; $UWARP, $tmp and $pids are set
#
#     begin NAME                      # a test begins
#     want WHAT COMMAND...            # COMMAND must succeed, else the test fails for want of WHAT; it goes on
#     end                             # prints "ok - NAME", or "not ok - NAME: want WHAT; ..." and the logs
#
#     skip REASON                     # between begin and end: this test does not run; write "skip ...; return"
#                                     # elsewhere: none of the tests can run; exit status 77
#     finish                          # last line of the script: "N passed, N failed", and the exit status
#
# Commands for want:
#
#     is A B                 the same text                    matches A REGEX     all of A fits
#     has FILE REGEX         $tmp/FILE has such a line        hasnt FILE REGEX    has none
#     wait_for FILE REGEX [COUNT]     until $tmp/FILE has COUNT (1) such lines, ten seconds at most
#
# A failed test prints the ends of the files $tmp/*.out and $tmp/*.err; clear_logs removes them.
# When the script exits, each process in the array "pids" is ended, the function clean_up is called if the script
# has one, and $tmp is removed.
#
#   UWARP   the program under test (default build/uwarp)
set -uo pipefail

UWARP=$(realpath -m "${UWARP:-$(dirname "${BASH_SOURCE[0]}")/../build/uwarp}")
[[ -x $UWARP ]] || { echo "no program $UWARP"; exit 1; }

tmp=$(mktemp -d)
pids=()

lib_exit() {
	local pid
	for pid in "${pids[@]}"; do
		kill "$pid" 2> /dev/null
	done
	if declare -F clean_up > /dev/null; then
		clean_up
	fi
	rm -rf "$tmp"
}
trap lib_exit EXIT
trap 'exit 1' INT TERM

passed=0
failed=0
title=
problems=()

begin() {
	title=$1
	problems=()
}

want() {
	local what=$1
	shift
	"$@" || problems+=("$what")
}

end() {
	local log
	if ((${#problems[@]} == 0)); then
		passed=$((passed + 1))
		echo "ok - $title"
	else
		failed=$((failed + 1))
		echo "not ok - $title: want $(IFS=';'; echo "${problems[*]}")"
		for log in "$tmp"/*.out "$tmp"/*.err; do
			[[ -s $log ]] && tail -n 60 "$log" | cut -c 1-300 | sed "s|^|#  ${log##*/}: |"
		done
	fi
	title=
}

skip() {
	if [[ -z $title ]]; then
		echo "skipped: $*"
		exit 77
	fi
	echo "ok - $title # SKIP $*"
	title=
}

finish() {
	echo "$passed passed, $failed failed"
	((failed == 0)) || exit 1
	exit 0
}

clear_logs() { rm -f "$tmp"/*.out "$tmp"/*.err; }

is() { [[ $1 == "$2" ]]; }
matches() { [[ $1 =~ ^($2)$ ]]; }
has() { grep -qE -- "$2" "$tmp/$1"; }
hasnt() { ! has "$@"; }

wait_for() {
	local _ n
	for _ in $(seq 200); do
		n=$(grep -cE -- "$2" "$tmp/$1" 2> /dev/null)
		((${n:-0} >= ${3:-1})) && return
		sleep 0.05
	done
	return 1
}
