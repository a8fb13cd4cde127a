#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# A server, and clients, whose descriptors or memory run out under load: they say so, do not turn in circles, lose nobody who can wait, and go on when there is something again.
#
#     uwarp listen, rping -s under uwarp run  <---- 127.0.0.1 ---->  uwarp connect, rping -c, sockets that connect and say nothing (python)
#
# Processor time is measured in clock ticks of the server's, over HOLD_S seconds in which it cannot do anything: a server that asks again and again takes all of them.
# shellcheck disable=SC2317 # called by want
# shellcheck source=tests/run_lib.sh
. "$(dirname "$0")/run_lib.sh"
need rping python3 pgrep prlimit

HOLD_S=2
run_options=(--ifaces lo)
limit=100

# start_limited NAME FILES COMMAND...: with at most FILES descriptors, for now.
start_limited() {
	local name=$1 files=$2
	shift 2
	(ulimit -S -n "$files" && exec timeout --foreground -k 5 "$limit" "$@") > "$tmp/$name.out" 2> "$tmp/$name.err" < /dev/null &
	pid_of[$name]=$!
}

start_listen() {
	start_limited server "$1" "$UWARP" listen -q 127.0.0.1:"$port"
	wait_listening
}

wait_listening() {
	local _
	for _ in $(seq 200); do
		listening && return
		sleep 0.05
	done
	return 1
}

server_pid() { pgrep -P "${pid_of[server]}"; }
ticks() { awk '{ print $14 + $15 }' "/proc/$(server_pid)/stat"; }
# The lowest number that the next one could have.
free_descriptor() {
	local n=0 pid
	pid=$(server_pid)
	while [[ -e /proc/$pid/fd/$n || -L /proc/$pid/fd/$n ]]; do
		((n++))
	done
	echo "$n"
}

limit_descriptors() { prlimit --pid "$(server_pid)" --nofile="$1:1024"; }

# hold N: so many sockets connect and say nothing, until release.
hold() {
	python3 -c '
import socket, sys, time
held = []
for _ in range(int(sys.argv[2])):
    s = socket.socket()
    s.connect(("127.0.0.1", int(sys.argv[1])))
    held.append(s)
print("held", flush=True)
time.sleep(90)' "$port" "$1" > "$tmp/hold.out" 2> "$tmp/hold.err" < /dev/null &
	pid_of[hold]=$!
	wait_for hold.out '^held$'
}

connect() {
	connect_status=0
	timeout -k 5 60 "$UWARP" connect "$@" > "$tmp/connect.out" 2> "$tmp/connect.err" < /dev/null || connect_status=$?
}

# Connections asked for, had, not had.
established_and_failed() {
	sed -nE 's/.*"event":"summary","connections":([0-9]+),"established":([0-9]+),.*"local_failures":([0-9]+),.*/\1 \2 \3/p' "$tmp/connect.out"
}

# The server has used up what it may have, and waits.
want_calm() {
	local before
	sleep 0.5
	before=$(ticks)
	sleep "$HOLD_S"
	spent=$(($(ticks) - before))
	want "the server to wait, and not to take $spent of $((HOLD_S * $(getconf CLK_TCK))) ticks" less "$spent" $((HOLD_S * $(getconf CLK_TCK) / 5))
}

# ---- descriptors ----

begin 'a listener without descriptors waits, and serves who came meanwhile'
free_port
want 'it to listen' start_listen 48
hold 100
want 'all of its 48 descriptors to be in use' wait_for server.err 'Too many open files'
want_calm
stop hold
connect --count 20 --parallel 4 "127.0.0.1:$port"
want "status 0, not $connect_status, once they are back" is "$connect_status" 0
stop server
end

begin 'connections that the listener has no descriptor for wait until others end'
free_port
want 'it to listen' start_listen 48
connect --count 90 --parallel 90 --hold 1 "127.0.0.1:$port"
want "status 0, not $connect_status" is "$connect_status" 0
want 'it to have been without descriptors' has server.err 'Too many open files'
stop server
end

begin 'a client without descriptors says how many connections it could not have'
free_port
want 'it to listen' start_listen 1024
(
	ulimit -S -n 48
	connect --json --count 90 --parallel 90 --hold 1 "127.0.0.1:$port"
	echo "$connect_status" > "$tmp/status"
)
want "status 5, not $(< "$tmp/status")" is "$(< "$tmp/status")" 5
want 'all to be accounted for' matches "$(established_and_failed)" '90 [1-9][0-9]* [1-9][0-9]*'
want 'the reason to be given' has connect.out '"no_resources":[1-9]'
connect "127.0.0.1:$port"
want "the server to go on: status 0, not $connect_status" is "$connect_status" 0
stop server
end

begin 'rping -s without descriptors waits, and so does its client'
free_port
start_limited server 64 "$UWARP" run "${run_options[@]}" -- rping -s -P -a 127.0.0.1 -p "$port"
want 'it to listen' wait_listening
limit_descriptors "$(free_descriptor)"
start client rping -c -a 127.0.0.1 -p "$port" -C 3 -V
want 'it to have no descriptor for a client' wait_for server.err 'Too many open files'
want_calm
limit_descriptors 1024
join client
want "the client's status 0, not ${status_of[client]}, once there are some" is "${status_of[client]}" 0
stop server
end

# ---- memory ----

# limit_memory MIB: so much more than the server has now.
limit_memory() {
	local pid has_kb
	pid=$(server_pid)
	has_kb=$(awk '/^VmSize/ { print $2 }' "/proc/$pid/status")
	prlimit --pid "$pid" --as=$(((has_kb + $1 * 1024) * 1024))
}

# flood: more connections at once than there is memory for.
flood() {
	local counts
	connect --json --count 3000 --parallel 3000 --hold 1 --timeout 20 "127.0.0.1:$port"
	want "an end of its own, not status $connect_status" less "$connect_status" 6
	counts=$(sed -nE 's/.*"event":"summary","connections":([0-9]+),"established":([0-9]+),.*/\1 \2/p' "$tmp/connect.out")
	want "memory for some of them, and not for all: $counts" matches "$counts" '3000 [12]?[0-9]{1,3}'
}

begin 'a listener without memory survives, and serves who comes later'
if sanitized; then
	skip 'AddressSanitizer needs more address space than can be limited'
else
	free_port
	export MALLOC_ARENA_MAX=1 # the others have address space in reserve
	want 'it to listen' start_listen 8192
	limit_memory 2
	flood
	connect "127.0.0.1:$port"
	want "status 0, not $connect_status, with memory again" is "$connect_status" 0
	stop server
	end
fi

finish
