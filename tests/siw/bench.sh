#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# The same programs over siw and over `uwarp run`, both in the siw guest, from the guest to its own address.
#
#   usage: bench.sh [REGEX]    only the rows that match
#
#   UWARP, SIW_DIR, SIW_NET    as for run.sh
#   RUNS                       measurements per figure, of which the median counts (3)
#   SECONDS_EACH               how long one takes (2); under a load other than its own the figures mean nothing: qemu needs two processors for itself
#
# The guest runs under TCG: its figures compare two stacks under the same conditions, and say nothing about a real machine. perftest's own
# figures are not used, as its idea of the processor's clock is often wrong there: it says how many iterations it did in the time that
# it was given, and that is what counts here.
#
# The address is that of eth0 for both, as Linux 6.1 finds no siw device for 127.0.0.1, even if there is one on lo
# (rdma_resolve_addr: EINVAL). The packets go over lo in either case.
#
# Who moves the data: siw's in the kernel, in the interrupt that the packet is; perftest itself over uwarp, at either end, as both poll their CQs; but for
# ib_write_lat, which polls its memory: there uwarp's NIC thread has to be scheduled for each message, beside two programs that never sleep.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
project=$(cd "$here/../.." && pwd)
UWARP=$(realpath -m "${UWARP:-$project/build/uwarp}")
SIW_DIR=$(realpath -m "${SIW_DIR:-$project/build/siw}")
export UWARP SIW_DIR
only=${1:-}
runs=${RUNS:-3}
duration=${SECONDS_EACH:-2}

# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
# shellcheck source-path=SCRIPTDIR source=data.sh
. "$here/data.sh"

[ -x "$UWARP" ] || siw_die "no program $UWARP"
[ "${SIW_IN_NETNS:-}" = 1 ] || "$here/build-guest.sh" "$SIW_DIR"

places=(siw)
# siw is shown also when there is nothing yet to compare it with.
! uwarp_can_run || places+=(guest)

siw_network "$@"
make_patient
[ ${#places[@]} -eq 1 ] || guest_add "$UWARP" "${UWARP%/*}/libuwarp-shim.so" "$patient"
guest_start
data_rev=2
data_model=p2p
data_crc=off
data_port=7300
data_limit=$((duration + 60))

uwarp_log=$siw_tmp/bench.log
server_log=$siw_tmp/bench.server
client_log=$siw_tmp/bench.client

# pair PLACE SERVER CLIENT: both in the guest. A port of its own each time: one may linger.
pair() {
	local status=0
	data_port=$((data_port + 1))
	start_server "$1" "${2/PORT/$data_port}" || { status=1; server_ends "$1" 5 || true; }
	if [ $status -eq 0 ]; then
		client "$1" "${3/PORT/$data_port}" || status=$?
		server_ends "$1" 5 || true
	fi
	cat "$client_log" "$server_log" >>"$uwarp_log"
	return "$status"
}

# perftest PLACE PROGRAM SIZE OPTION...: iterations a second.
perftest() {
	local place=$1 program=$2 size=$3
	shift 3
	pair "$place" "$program -R -F -p PORT -s $size -D $duration $*" \
		"$program -R -F -p PORT -s $size -D $duration $* $guest_address" || return 1
	perftest_device "$place" "$client_log" || return 1
	awk -v size="$size" -v t="$duration" '$1 == size { print $2 / t; found = 1 } END { exit !found }' "$client_log"
}

# Each of these prints one figure for PLACE.
bandwidth() {
	perftest "$@" | awk -v size="$3" '{ printf "%.2f\n", $1 * size / 1e6 }'
}

# send and write: half of a round trip is what counts, and perftest counts round trips.
latency() {
	perftest "$@" | awk -v half="$([ "$2" = ib_read_lat ] && echo 1 || echo 2)" '{ printf "%.1f\n", 1e6 / $1 / half }'
}

rate() {
	perftest "$@" | awk '{ printf "%.0f\n", $1 }'
}

# cmtime never ends as a server. Its line begins: connect : MILLISECONDS.
connections() {
	data_port=$((data_port + 1))
	start_server "$1" "cmtime -p $data_port -c 100" || return 1
	local status=0
	client "$1" "cmtime -s $guest_address -p $data_port -c 100" || status=1
	guest_kill server
	cat "$client_log" >>"$uwarp_log"
	[ $status -eq 0 ] || return 1
	awk '/^connect +:/ { printf "%.0f\n", 1e5 / $3; found = 1 } END { exit !found }' "$client_log"
}

tcp_stream() {
	data_port=$((data_port + 1))
	start_server siw "iperf3 -s -1 -p $data_port" || return 1
	client siw "iperf3 -c $guest_address -p $data_port -t $duration -f m" || return 1
	server_ends siw 5 || true
	awk '/receiver/ { printf "%.2f\n", $7 / 8 }' "$client_log"
}

median() {
	sort -n "$1" | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)]; else print "failed" }'
}

# row TITLE UNIT more|less FUNCTION ARGS...: more or less is better.
row() {
	local title=$1 unit=$2 better=$3 function=$4 place i result=()
	shift 4
	[[ -z $only || $title =~ $only ]] || return 0
	for place in "${places[@]}"; do
		: >"$siw_tmp/figures.$place"
	done
	for ((i = 0; i < runs; i++)); do
		for place in "${places[@]}"; do
			guest_alive || siw_die "the guest has died: see $siw_tmp"
			"$function" "$place" "$@" >>"$siw_tmp/figures.$place" || echo "bench: $title over $place failed" >&2
		done
	done
	for place in "${places[@]}"; do
		result+=("$(median "$siw_tmp/figures.$place")")
	done
	local ratio=-
	if [ ${#result[@]} -eq 2 ] && [[ ${result[*]} != *failed* ]]; then
		ratio=$(awk -v s="${result[0]}" -v u="${result[1]}" -v b="$better" \
			'BEGIN { printf "%.2f", b == "more" ? u / s : s / u }')
	fi
	printf '%-34s %-6s %12s %12s %8s\n' "$title" "$unit" "${result[0]}" "${result[1]:--}" "$ratio"
}

echo "guest: $(guest_run uname -sr), 2 processors under TCG; revision 2; median of $runs, $duration s each; load of this machine $(cut -d ' ' -f 1 /proc/loadavg)"
[ ${#places[@]} -eq 2 ] || echo "uwarp: not measured, this one has no command \"run\" yet"
printf '%-34s %-6s %12s %12s %8s\n' '' '' siw uwarp 'ahead x'
for data_crc in off on; do
	guest_siw mpa_crc_required "$([ "$data_crc" = on ] && echo Y || echo N)"
	for verb in write read send; do
		row "ib_${verb}_bw 64 KiB, CRC $data_crc" MB/s more bandwidth "ib_${verb}_bw" 65536
		row "ib_${verb}_bw 1 MiB, CRC $data_crc" MB/s more bandwidth "ib_${verb}_bw" 1048576
	done
	for verb in send write read; do
		row "ib_${verb}_lat 8 bytes, CRC $data_crc" us less latency "ib_${verb}_lat" 8
	done
	row "ib_send_bw 64 bytes, CRC $data_crc" 1/s more rate ib_send_bw 64
done
row "cmtime, 100 at once" 1/s more connections
places=(siw)
row "iperf3, one stream, for comparison" MB/s more tcp_stream
