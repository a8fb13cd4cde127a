#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# The programs of rdmacm-utils over uwarp, unmodified: rping, ucmatose, cmtime, rdma_server, rdma_xserver, rstream, riostream, rcopy, and an ordinary TCP
# program on rsockets.
#
#     PROGRAM (server)  <---- 127.0.0.1, ::1 ---->  PROGRAM (client)
set -uo pipefail
. "$(dirname "$0")/run_lib.sh"
need rping ucmatose cmtime rdma_server rdma_xserver rstream riostream rcopy python3 cmp
rspreload=$(find /usr/lib -name librspreload.so | head -n 1)

# ---- rping ----

# rping_pair TITLE ADDRESS-OF-SERVER ADDRESS-TO-CONNECT-TO OPTION...
rping_pair() {
	local what=$1 bind=$2 to=$3
	shift 3
	begin "rping $what"
	free_port
	start_server server rping -s -a "$bind" -p "$port" -v "$@"
	run client rping -c -a "$to" -p "$port" -v "$@"
	join server
	both_succeed
	want "ten pings at the client" is "$(count client.out '^ping data: rdma-ping-[0-9]+: ')" 10
	want "ten pings at the server" is "$(count server.out '^server ping data: rdma-ping-[0-9]+: ')" 10
	want "no complaint" hasnt client.err 'mismatch|fail|error|uwarp'
	want "no complaint of the server" hasnt server.err 'mismatch|fail|error|uwarp'
	end
}

rping_pair 'over IPv4' 127.0.0.1 127.0.0.1 -C 10 -V
rping_pair 'over IPv6' ::1 ::1 -C 10 -V
rping_pair 'to the IPv4 wildcard' 0.0.0.0 127.0.0.1 -C 10 -V
rping_pair 'over IPv4 to the IPv6 wildcard' ::0 127.0.0.1 -C 10 -V
rping_pair 'over IPv6 to the IPv6 wildcard' ::0 ::1 -C 10 -V
for size in 23 4096 65535; do
	rping_pair "of $size bytes" 127.0.0.1 127.0.0.1 -C 10 -V -S "$size"
done
run_options=(--no-crc)
rping_pair 'without CRC' 127.0.0.1 127.0.0.1 -C 10 -V -S 4096
run_options=(--markers)
rping_pair 'with markers' 127.0.0.1 127.0.0.1 -C 10 -V -S 65535
run_options=(--mpa-rev 1)
rping_pair 'with MPA revision 1' 127.0.0.1 127.0.0.1 -C 10 -V
run_options=(--model cs)
rping_pair 'in the client-server model' 127.0.0.1 127.0.0.1 -C 10 -V
for rtr in send write read; do
	run_options=(--rtr "$rtr")
	rping_pair "with RTR $rtr" 127.0.0.1 127.0.0.1 -C 10 -V
done
run_options=()

begin "rping of all sizes that it has which are a power of two, one more or one less"
free_port
start_server server rping -s -P -a 127.0.0.1 -p "$port"
bad=
for ((size = 32; size <= 65536; size *= 2)); do
	for s in $((size - 1)) $size $((size + 1)); do
		((s < 65536)) || continue # rping's own limit
		run client rping -c -a 127.0.0.1 -p "$port" -V -S "$s" -C 3
		is "${status_of[client]}" 0 && hasnt client.err 'mismatch|fail|error' || bad+=" $s"
	done
done
want "none to fail, not$bad" is "$bad" ""
stop server
end

connections() { ss -Htn state established "sport = :$port" | wc -l; }

# One after the other, as rping's server mixes up two requests that come at a time (it keeps the newest one's id for both). They overlap.
begin "rping -P serves eight clients at a time"
free_port
start_server server rping -s -P -a 127.0.0.1 -p "$port"
most=0
for i in 1 2 3 4 5 6 7 8; do
	start "client$i" rping -c -a 127.0.0.1 -p "$port" -v -V -C 2000
	for _ in $(seq 100); do
		now=$(connections)
		((now > most)) && most=$now && break
		sleep 0.02
	done
done
for i in 1 2 3 4 5 6 7 8; do
	join "client$i"
	want "status 0 of client $i, not ${status_of[client$i]}" is "${status_of[client$i]}" 0
	want "all pings at client $i" is "$(count "client$i.out" '^ping data: ')" 2000
done
want "several of them at a time, not $most" less 1 "$most"
stop server
end

begin "rping to a port where nobody listens"
free_port
run client rping -c -a 127.0.0.1 -p "$port" -C 1
want "a status other than 0" is_error "${status_of[client]}"
want "to hear of it" has client.err 'RDMA_CM_EVENT_(REJECTED|UNREACHABLE|CONNECT_ERROR)|connect error'
end

# ---- ucmatose ----

# ucmatose_pair TITLE SERVER-OPTIONS CLIENT-OPTIONS
ucmatose_pair() {
	local address=${4:-127.0.0.1}
	begin "ucmatose $1"
	free_port
	# shellcheck disable=SC2086 # lists of options
	start_server server ucmatose -b "$address" -p "$port" $2
	# shellcheck disable=SC2086
	run client ucmatose -s "$address" -p "$port" $3
	join server
	both_succeed
	for side in client server; do
		want "the data transfers of the $side complete" has $side.out 'data transfers complete'
		want "the $side to end its test with status 0" has $side.out 'return status 0'
	done
	end
}

ucmatose_pair 'with one connection' '' ''
ucmatose_pair 'with fifty connections' '-c 50 -C 10' '-c 50 -C 10'
ucmatose_pair 'with fifty messages' '-C 50' '-C 50'
ucmatose_pair 'that migrates its ids' '-m -c 5' '-m -c 5'
ucmatose_pair 'with a type of service' '' '-t 8'
ucmatose_pair 'with messages of 64 KiB' '-S 65536 -c 2' '-S 65536 -c 2'
ucmatose_pair 'over IPv6' '' '' ::1
run_options=(--model cs) # its server speaks first, to a client that waits
ucmatose_pair 'in the client-server model' '' ''
run_options=()

# ---- cmtime ----

begin "cmtime"
free_port
start_server server cmtime -b 127.0.0.1 -p "$port" -c 100
run client cmtime -s 127.0.0.1 -p "$port" -c 100
stop server
want "the client's status 0, not ${status_of[client]}" is "${status_of[client]}" 0
for step in 'create id' 'resolve addr' 'resolve route' 'create qp' connect disconnect destroy; do
	want "a time for $step" has client.out "^$step *: +[0-9]"
done
end

# ---- rdma_server and rdma_xserver ----

# pair TITLE SERVER CLIENT
pair() {
	begin "$1"
	free_port
	start_server server "$2" -p "$port" "${@:4}"
	run client "$3" -s 127.0.0.1 -p "$port" "${@:4}"
	join server
	both_succeed
	want "the client to end its test with status 0" has client.out 'end 0'
	want "the server to end its test with status 0" has server.out 'end 0'
	end
}

pair 'rdma_server and rdma_client' rdma_server rdma_client
pair 'rdma_xserver and rdma_xclient, reliable connected' rdma_xserver rdma_xclient -c r

begin "rdma_xclient with XRC, which iWARP does not have"
free_port
run client rdma_xclient -s 127.0.0.1 -p "$port" -c x
want "an error, and no crash" is_error "${status_of[client]}"
end

# ---- rsockets ----

is_one_of() { [[ $1 == "$2" || $1 == "$3" ]]; }

# stream PROGRAM TITLE OPTION...
stream() {
	local program=$1 what=$2
	shift 2
	begin "$program $what"
	free_port
	start_server server "$program" -b 127.0.0.1 -p "$port" "$@"
	run client "$program" -s 127.0.0.1 -p "$port" "$@"
	join server
	both_succeed
	want "a table of results" has client.out '^[0-9a-z_]+ +[0-9]+[kmg]? +[0-9]+[kmg]? +[0-9]'
	want "no complaint" hasnt client.err '.'
	end
}

size='-S 4096 -C 50 -I 2'
# shellcheck disable=SC2086 # lists of options
{
	for mode in b n r v; do
		stream rstream "in mode $mode" -T $mode $size
	done
	stream rstream 'verified, all sizes' -T v -S all -C 20 -I 2
	stream rstream 'with small buffers' -B 2048 $size
	stream rstream 'without inline data' -i 0 $size
	for mode in a b n v; do
		stream riostream "in mode $mode" -T $mode $size
	done
}

# Its client takes POLLHUP for an error (status 16) also when what it waits for has come: a server that is done and gone is too quick for it.
begin "rstream in mode a"
free_port
start_server server rstream -b 127.0.0.1 -p "$port" -T a -S 4096 -C 50 -I 2
run client rstream -s 127.0.0.1 -p "$port" -T a -S 4096 -C 50 -I 2
join server
want "the server's status 0, not ${status_of[server]}" is "${status_of[server]}" 0
want "the client's status 0 or 16, not ${status_of[client]}" is_one_of "${status_of[client]}" 0 16
want "the server's table of results" has server.out '^custom +4k '
end

begin "rstream with a server that forks"
free_port
start_server server rstream -b 127.0.0.1 -p "$port" -T f -S 4096 -C 50 -I 2
run client rstream -s 127.0.0.1 -p "$port" -T f -S 4096 -C 50 -I 2
want "the client's status 0, not ${status_of[client]}" is "${status_of[client]}" 0
want "a table of results" has client.out '^custom +4k '
stop server
end

begin "rcopy"
free_port
head -c 3000001 /dev/urandom > "$tmp/source"
start_server server rcopy -p "$port"
run client rcopy "$tmp/source" 127.0.0.1:"$tmp/copy" -p "$port"
want "the client's status 0, not ${status_of[client]}" is "${status_of[client]}" 0
want "both files to be the same" cmp -s "$tmp/source" "$tmp/copy"
stop server
end

tcp_server='
import socket, sys
s = socket.socket()
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
c, peer = s.accept()
data = b""
while chunk := c.recv(65536):
    data += chunk
    c.sendall(chunk)
print("served", len(data), flush=True)
'
tcp_client='
import os, socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sent = os.urandom(300000)
got = b""
for i in range(0, len(sent), 10000):
    s.sendall(sent[i:i + 10000])
    while len(got) < i + 10000:
        got += s.recv(65536)
s.shutdown(socket.SHUT_WR)
print("same" if got == sent else "different", flush=True)
'
if sanitized; then
	begin "a TCP program in Python on rsockets (librspreload.so)"
	skip "some programs hang in their start when libasan and libpcap are in front of them, with or without uwarp"
elif [[ -n $rspreload ]]; then
	begin "a TCP program in Python on rsockets (librspreload.so)"
	free_port
	start_server server bash -c \
		'LD_PRELOAD=$LD_PRELOAD:$0 exec "$@"' "$rspreload" /usr/bin/python3 -c "$tcp_server" "$port"
	run client bash -c 'LD_PRELOAD=$LD_PRELOAD:$0 exec "$@"' "$rspreload" /usr/bin/python3 -c "$tcp_client" "$port"
	join server
	both_succeed
	want "what came back to be what was sent" has client.out '^same$'
	want "the server to have seen all" has server.out '^served 300000$'
	end
fi

finish
