#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Boots the siw guest for use by hand: runs the commands given as arguments, or else those on standard input, one
# a line, and ends with the last one.
#
#   usage: guest.sh OUTDIR [COMMAND...]

set -euo pipefail

[ $# -ge 1 ] || { echo "usage: guest.sh OUTDIR [COMMAND...]" >&2; exit 64; }
SIW_DIR=$(cd "$1" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

siw_network "$@"
shift
guest_start
echo "guest $guest_address, host $host_address" >&2
for port in "${SIW_PORTS[@]}"; do
	echo "guest port $port: $(guest_endpoint "$port")" >&2
done

status=0
if [ $# -gt 0 ]; then
	for command; do
		guest_run "$command" || status=$?
	done
else
	while IFS= read -r command; do
		guest_run "$command" || status=$?
	done
fi
exit "$status"
