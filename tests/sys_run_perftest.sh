#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# perftest over uwarp, unmodified, over 127.0.0.1: bandwidth and latency of Sends, Writes and Reads. Figures are not judged, except that there are some.
set -uo pipefail
. "$(dirname "$0")/run_lib.sh"
need ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw

run_options=(--ifaces lo)

# perf PROGRAM BYTES ITERATIONS OPTION...: the row of results of both ends; one that only sends, or only answers, has none at its other end.
perf() {
	local program=$1 bytes=$2 n=$3
	shift 3
	begin "$program -R -s $bytes -n $n $*"
	free_port
	start_server server "$program" -R -F -p "$port" -s "$bytes" -n "$n" "$@"
	run client "$program" -R -F -p "$port" -s "$bytes" -n "$n" "$@" 127.0.0.1
	join server
	both_succeed
	want "a row of results" has client.out "^ $bytes +[0-9]+ +[0-9.]*[1-9]"
	want "results of $n exchanges or more" row_is_right "$bytes" "$n"
	want "the device's name" has client.out 'Device +: uwarp_lo'
	want "no complaint" hasnt client.err '[Ff]ailed|[Ee]rror|uwarp:'
	want "no complaint of the server" hasnt server.err '[Ff]ailed|[Ee]rror|uwarp:'
	end
}

# "bytes iterations results": with several QPs or both ways there are more iterations. (Latencies are of one less.)
row_is_right() {
	awk -v bytes="$1" -v n="$2" '$1 == bytes && $2 >= n - 1 && $4 > 0 { found = 1 } END { exit !found }' "$tmp/client.out"
}

for verb in send write read; do
	perf ib_${verb}_lat 2 200
	perf ib_${verb}_lat 8192 200
	perf ib_${verb}_bw 64 1000
	perf ib_${verb}_bw 65536 500
	perf ib_${verb}_bw 1048576 20
	perf ib_${verb}_bw 4096 300 -q 4
	perf ib_${verb}_bw 4096 300 -b
	perf ib_${verb}_bw 4096 300 -b -q 2
done
for verb in send write; do
	perf ib_${verb}_bw 64 500 -I 64
	perf ib_${verb}_lat 64 200 -I 64
done
# Large ones: with -e perftest sleeps for a completion when it is out of credits, though none is under way and a credit, which is a Write, wakes nobody. Small messages are all
# in the socket before the server has given the first.
perf ib_send_bw 65536 300 -e -t 4 -Q 1
perf ib_send_lat 64 200 -e
perf ib_read_lat 64 200 -e
perf ib_send_bw 4096 300 --use-srq
perf ib_send_bw 4096 320 -l 16
perf ib_write_bw 4096 300 -Q 10 -t 64
perf ib_send_bw 4096 300 -z
run_options=(--ifaces lo --no-crc)
for verb in send write read; do
	perf ib_${verb}_bw 65536 500
done
run_options=(--ifaces lo)

begin "ib_send_bw of every size"
free_port
start_server server ib_send_bw -R -F -p "$port" -a -n 20
run client ib_send_bw -R -F -p "$port" -a -n 20 127.0.0.1
join server
both_succeed
want "23 rows" is "$(count client.out '^ [0-9]+ +20 +[0-9.]+ +[0-9.]+\s+[0-9.]+ *$')" 23
end

begin "without -R: a hint"
free_port
start_server server ib_write_bw -F -p "$port"
run client ib_write_bw -F -p "$port" 127.0.0.1
join server
want "the client to fail" is_error "${status_of[client]}"
want "a hint" is "$(count client.err '^uwarp: warn: .*the RDMA CM makes those \(perftest: -R\)')" 1
end

finish
