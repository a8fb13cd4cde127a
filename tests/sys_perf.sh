#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# uwarp ping and uwarp perf, both ends on loopback: what they print, not how fast they are.
. "$(dirname "$0")/lib.sh"

"$UWARP" perf --listen 127.0.0.1:0 > "$tmp/server.out" 2> "$tmp/server.err" &
pids+=($!)
server=$!
wait_for server.out 'listening on 127\.0\.0\.1:[0-9]+'
port=$(sed -n 's/^listening on 127\.0\.0\.1://p' "$tmp/server.out")

# run ARGS...: the client; its status goes to $status.
run() {
	timeout 60 "$UWARP" "$@" > "$tmp/client.out" 2> "$tmp/client.err"
	status=$?
}

begin "every verb, both tests, as a table"
run perf --count 200 --size 1,4096,100000 "127.0.0.1:$port"
want "status 0" is "$status" 0
for verb in send write read; do
	want "three round-trip and three bandwidth rows of $verb" is "$(grep -cE "^$verb +[0-9]+ +200 " "$tmp/client.out")" 6
done
want "the server saw 18 tests through" wait_for server.out ': done$' 18
end

begin "JSON"
run perf --json --test bandwidth --verb write --count 50 --size 65536 --depth 8 "127.0.0.1:$port"
want "status 0" is "$status" 0
want "one object" is "$(wc -l < "$tmp/client.out")" 1
want "figures" python3 -c '
import json, sys
o = json.load(open(sys.argv[1]))
assert o["verb"] == "write" and o["bytes"] == 65536 and o["count"] == 50 and o["depth"] == 8
assert o["gbit_per_s"] > 0 and o["messages_per_s"] > 0' "$tmp/client.out"
end

begin "markers, no CRC, revision 1, an odd depth"
for options in --markers --no-crc '--mpa-rev 1' '--model cs' '--depth 7'; do
	# shellcheck disable=SC2086 # a list of words
	run perf $options --count 100 --size 9,20000 --test bandwidth "127.0.0.1:$port"
	want "status 0 with $options" is "$status" 0
	want "six rows with $options" is "$(grep -cE '^(send|write|read) +[0-9]+ +100 ' "$tmp/client.out")" 6
done
end

begin "ping"
run ping --count 3 --interval 0.05 "127.0.0.1:$port"
want "status 0" is "$status" 0
want "three lines" is "$(grep -cE '^64 bytes by send to 127\.0\.0\.1:[0-9]+: seq=[123] time=[0-9.]+ us$' "$tmp/client.out")" 3
want "a summary" has client.out '^3 round trips, min [0-9.]+ us, average [0-9.]+ us, max [0-9.]+ us$'
end

begin "ping without an end, interrupted"
: > "$tmp/client.out"
"$UWARP" ping --interval 0.05 --verb read "127.0.0.1:$port" > "$tmp/client.out" 2> "$tmp/client.err" &
pids+=($!)
client=$!
want "replies" wait_for client.out 'seq=3 '
kill -INT "$client"
wait "$client"
want "status 0" is $? 0
want "a summary" has client.out ' round trips, min '
end

begin "interrupted before anything was measured: nobody answers"
python3 -c '
import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
taken = []
while True:
	taken.append(s.accept())
	print("taken", flush=True)' > "$tmp/silent.out" &
pids+=($!)
wait_for silent.out '^[0-9]+$'
silent=127.0.0.1:$(head -n 1 "$tmp/silent.out")
n=0
for command in ping perf; do
	"$UWARP" "$command" "$silent" > "$tmp/client.out" 2> "$tmp/client.err" &
	pids+=($!)
	client=$!
	want "$command to connect" wait_for silent.out '^taken' $((++n))
	kill -INT "$client"
	wait "$client"
	want "status 5 of $command" is $? 5
	want "$command to say so" has client.err '^uwarp: interrupted before anything was measured$'
done
end

begin "a server that goes away in the middle"
"$UWARP" perf --listen 127.0.0.1:0 > "$tmp/mortal.out" 2>&1 &
pids+=($!)
mortal=$!
wait_for mortal.out 'listening on'
: > "$tmp/client.out" # that of the test before has a seq=3, too
"$UWARP" ping --interval 0.05 "$(sed -n 's/^listening on //p' "$tmp/mortal.out")" > "$tmp/client.out" 2> "$tmp/client.err" &
pids+=($!)
client=$!
want "replies" wait_for client.out 'seq=3 '
kill -KILL "$mortal"
want "the client ends by itself" timeout 5 tail --pid="$client" -f /dev/null
wait "$client"
want "status 5" is $? 5
want "a reason" has client.err 'the connection ended in the middle of the test'
end

begin "who is no perf client is rejected; who is no perf server is told"
run connect "127.0.0.1:$port"
want "status 1" is "$status" 1
"$UWARP" listen --quiet 127.0.0.1:0 > "$tmp/listen.out" 2>&1 &
pids+=($!)
listener=$!
sleep 0.5
other=$(ss -Htlnp | sed -n "s/.*127\.0\.0\.1:\([0-9]*\) .*pid=$listener,.*/\1/p" | head -n 1)
run perf --count 5 --size 8 "127.0.0.1:$other"
want "status 4" is "$status" 4
want "a message" has client.err 'the server is no `uwarp perf --listen`'
end

begin "wrong usage"
for options in '--size 0' '--size 99999999999' '--verb fly' '--test luck' '--depth 0' '--count 0' ''; do
	# shellcheck disable=SC2086 # a list of words
	run perf $options ${options:+127.0.0.1:$port}
	want "status 64 with '$options'" is "$status" 64
done
run ping --verb write "127.0.0.1:$port"
want "status 64: ping by write" is "$status" 64
end

begin "the server ends in order"
kill -INT "$server"
wait "$server"
want "status 0" is $? 0
end

finish
