#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# check_captures.sh [BUILD]: runs the tests on the wire port with UWARP_TEST_CAPTURE (capture_dir.h), and lets tshark judge
# what their NICs sent and received: nothing malformed, no bad checksum, each MPA request and reply decoded with its
# flags. sys_tool.sh does the same with the captures of the command on the host port.
#
# captures.py merges the files, with other addresses for each: tests use the same ones over and over, and tshark tells
# connections apart by them alone.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build}
command -v tshark > /dev/null || { echo "there is no tshark"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

for source in tests/test_*.c; do
	grep -qE '^#include "(capture_dir|cm_fixture|cm_states)\.h"' "$source" || continue
	name=$(basename "$source" .c)
	[[ $name != test_cm_flood ]] || continue # millions of frames, nearly all of them SYNs
	UWARP_SOURCE=$PWD UWARP_TEST_CAPTURE=$dir "$build/tests/$name" > "$dir/$name.log" 2>&1 ||
		{ grep -E 'ERROR|LINE|FAILED' "$dir/$name.log"; echo "$name failed"; exit 1; }
done
# Its guesses that what follows is RPC or SMB over RDMA fail where nothing follows, as in an RTR that is a Send.
python3 tests/captures.py merge "$dir" "$dir/all.pcap"
tshark -n -r "$dir/all.pcap" --disable-protocol rpcordma --disable-protocol smb_direct \
	-o tcp.try_heuristic_first:TRUE -o tcp.check_checksum:TRUE -o ip.check_checksum:TRUE \
	-Y '_ws.malformed || ip.checksum.status == "Bad" || tcp.checksum.status == "Bad" || iwarp_mpa.bad_length ||
		iwarp_mpa.key.req || iwarp_mpa.key.rep' -T fields -E separator=/t \
	-e frame.number -e _ws.malformed -e ip.checksum.status -e tcp.checksum.status -e iwarp_mpa.bad_length \
	-e iwarp_mpa.key.req -e iwarp_mpa.key.rep -e iwarp_mpa.rev -e iwarp_mpa.marker_flag -e iwarp_mpa.crc_flag \
	-e iwarp_mpa.rej_flag -e iwarp_mpa.res > "$dir/verdict" 2> "$dir/tshark.log" || { cat "$dir/tshark.log"; exit 1; }
python3 tests/captures.py judge "$dir" "$dir/all.pcap" "$dir/verdict"
