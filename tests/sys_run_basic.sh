#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# `uwarp run` and `uwarp stat` themselves: options, environment, errors, exit statuses; devices as ibv_devices and ibv_devinfo see them; captures, as tshark
# sees them; statistics.
#
#     rping -s  <---- 127.0.0.1 ---->  rping -c
# shellcheck disable=SC2016 # shells of the tests' own expand what is in single quotes
set -uo pipefail
. "$(dirname "$0")/run_lib.sh"
need ibv_devices ibv_devinfo rping tshark python3 pgrep

# tool NAME ARG...: uwarp itself, to its end.
tool() {
	local name=$1
	shift
	status_of[$name]=0
	timeout -k 5 20 "$UWARP" "$@" > "$tmp/$name.out" 2> "$tmp/$name.err" < /dev/null || status_of[$name]=$?
}

# ---- the command line ----

# usage STATUS REGEX ARG...: ends with this status, and says so.
usage() {
	local status=$1 regex=$2
	shift 2
	begin "uwarp $*"
	tool it "$@"
	want "status $status, not ${status_of[it]}" is "${status_of[it]}" "$status"
	want "to say $regex" has it.err "$regex"
	end
}

usage 64 'PROGRAM is missing' run
usage 64 'PROGRAM is missing' run --no-crc --
usage 64 'unknown option --frobnicate' run --frobnicate true
usage 64 '--mpa-rev 1\|2: "3"' run --mpa-rev 3 true
usage 64 '--model cs\|p2p: "x"' run --model x true
usage 64 '--rtr LIST: "send,"' run --rtr send, true
usage 64 '--log LEVEL: "loud"' run --log loud true
usage 64 '--ifaces LIST: ""' run --ifaces '' true
usage 64 '--pcap needs a value' run --pcap
usage 127 'nonesuch: no such program' run nonesuch
usage 127 '/nonesuch: no such program' run -- /nonesuch
usage 126 '/etc/passwd: Permission denied' run -- /etc/passwd
usage 126 '/tmp: Permission denied' run -- /tmp
usage 64 'is not the number of a process' stat x
usage 64 '--interval needs a PID' stat --interval 1
usage 5 'no process 1 .* uses uwarp' stat 1

begin "uwarp run --help and stat --help"
tool run run --help
tool stat stat --help
want "status 0" is "${status_of[run]}${status_of[stat]}" 00
want "the options of run" has run.out '^ +--pcap FILE '
want "the options of stat" has stat.out '^ +--interval SEC '
end

begin "what is wrong in the environment is said before the program starts"
status_of[it]=0
UWARP_RTR=everything "$UWARP" run echo started > "$tmp/it.out" 2> "$tmp/it.err" || status_of[it]=$?
want "status 64, not ${status_of[it]}" is "${status_of[it]}" 64
want "the variable named" has it.err 'UWARP_RTR.*"everything"'
want "nothing started" hasnt it.out started
end

begin "the program's status, arguments, standard streams and environment are its own"
echo 'in' | LD_PRELOAD=/nonexistent.so "$UWARP" run --no-crc --model cs -- sh -c \
	'read -r line; echo "$line" "$@" "$UWARP_CRC" "$UWARP_MODEL"; echo "$LD_PRELOAD" >&2; trap; exit 7' - --json -c > "$tmp/it.out" 2> "$tmp/it.err"
status_of[it]=$?
want "status 7, not ${status_of[it]}" is "${status_of[it]}" 7
want "its input and arguments" has it.out '^in --json -c 0 cs$'
want "what was preloaded before to stay" has it.err '/libuwarp-shim\.so:/nonexistent\.so$'
end

begin "a closed standard output stays closed, and SIGPIPE deadly"
"$UWARP" run -- /usr/bin/python3 -c 'import os, sys
try:
    os.fstat(1)
    print("open", file=sys.stderr)
except OSError:
    print("closed", file=sys.stderr)' 2> "$tmp/it.err" >&-
want "closed" has it.err '^closed$'
timeout --foreground 20 "$UWARP" run -- sh -c 'while :; do echo x; done' 2> "$tmp/pipe.err" | head -n 1 > /dev/null
want "the writer to die of it" is "${PIPESTATUS[0]}" 141
end

begin "a shim that is not there"
UWARP_SHIM=/nonexistent/libuwarp-shim.so tool it run true
want "status 5, not ${status_of[it]}" is "${status_of[it]}" 5
want "its name" has it.err 'UWARP_SHIM /nonexistent/libuwarp-shim.so: No such file'
mkdir -p "$tmp/elsewhere/bin" "$tmp/elsewhere/lib/x86_64-linux-gnu"
cp "$UWARP" "$tmp/elsewhere/bin"
status_of[moved]=0
"$tmp/elsewhere/bin/uwarp" run true > "$tmp/moved.out" 2> "$tmp/moved.err" || status_of[moved]=$?
want "status 5 of a lone uwarp, not ${status_of[moved]}" is "${status_of[moved]}" 5
want "where it looked" has moved.err "neither in $tmp/elsewhere/bin/"
cp "$(dirname "$UWARP")/libuwarp-shim.so" "$tmp/elsewhere/lib/x86_64-linux-gnu"
status_of[moved]=0
"$tmp/elsewhere/bin/uwarp" run sh -c 'echo "$LD_PRELOAD"' > "$tmp/moved.out" 2> "$tmp/moved.err" || status_of[moved]=$?
want "it found where it is installed" has moved.out "$tmp/elsewhere/lib/x86_64-linux-gnu/libuwarp-shim.so"
end

begin "programs that the loader preloads nothing into are warned of"
cp /bin/true "$tmp/capable"
if ((EUID == 0)) && chown nobody "$tmp/capable" 2> /dev/null && chmod u+s,a+rx "$tmp/capable"; then
	chmod a+rx "$tmp"
	tool setuid run -- "$tmp/capable"
	want "a warning of set-user-id" has setuid.err 'runs without uwarp: it is set-user-id'
fi
if echo 'int main(void) { return 3; }' | gcc -static -x c -o "$tmp/static" - 2> /dev/null; then
	tool static run -- "$tmp/static"
	want "a warning of a static program" has static.err 'runs without uwarp: it is statically linked'
	want "it to run all the same, with status 3, not ${status_of[static]}" is "${status_of[static]}" 3
fi
tool plain run -- true
want "no warning of another" hasnt plain.err .
end

# ---- start-up ----

# us_each COMMAND...: microseconds for one of twenty, the best of three.
us_each() {
	local best=999999999 j from took _
	for _ in 1 2 3; do
		from=$(date +%s%N)
		for ((j = 0; j < 20; j++)); do
			"$@"
		done
		took=$((($(date +%s%N) - from) / 20000))
		((took < best)) && best=$took
	done
	echo "$best"
}

begin "start-up costs a program without RDMA little"
bare=$(us_each /bin/true)
under=$(us_each "$UWARP" run /bin/true)
want "less than a second, not $under us" less "$under" 1000000 # built with ASan, it takes its time
end
echo "# start-up: /bin/true $bare us, uwarp run /bin/true $under us: $((under - bare)) us more"

# ---- devices ----

begin "ibv_devices"
run it ibv_devices
want "status 0, not ${status_of[it]}" is "${status_of[it]}" 0
want "the NIC of the loopback interface, with a GUID" has it.out '^\s+uwarp_lo\s+[0-9a-f]{16}$'
want "as many as there are interfaces" is "$(count it.out 'uwarp_')" "$("$UWARP" devices --json | wc -l)"
end

begin "ibv_devices with --ifaces and a name that is no interface's"
run_options=(--ifaces lo,nosuch)
run it ibv_devices
want "why there is no device" is "$(count it.err 'no devices: UWARP_IFACES=lo,nosuch')" 1
end

begin "ibv_devices with --ifaces lo"
run_options=(--ifaces lo)
run it ibv_devices
want "one" is "$(count it.out 'uwarp_')" 1
end

begin "ibv_devinfo -v"
run it ibv_devinfo -v
want "status 0, not ${status_of[it]}" is "${status_of[it]}" 0
for line in 'hca_id:\s+uwarp_lo' 'transport:\s+iWARP \(1\)' 'max_qp:\s+[1-9]' 'max_mr_size:\s+0x' 'max_qp_rd_atom:\s+[1-9]' 'phys_port_cnt:\s+1' \
	'state:\s+PORT_ACTIVE \(4\)' 'link_layer:\s+Ethernet'; do
	want "$line" has it.out "$line"
done
run_options=()
end

# ---- captures ----

# tshark_of FILE OPTION...
tshark_of() {
	tshark -n --disable-protocol rpcordma --disable-protocol smb_direct -r "$@" 2> /dev/null
}

begin "--pcap: each process writes a file of its own"
free_port
run_options=(--ifaces lo --pcap "$tmp/both.pcap")
start_server server rping -s -a 127.0.0.1 -p "$port" -C 2
run client rping -c -a 127.0.0.1 -p "$port" -C 2
join server
files=("$tmp"/both.pcap "$tmp"/both.pcap.*)
want "two files" is "${#files[@]}" 2
for file in "${files[@]}"; do
	want "the conversation in $file" test -n "$(tshark_of "$file" -Y iwarp_mpa.req)"
done
run_options=(--ifaces lo --pcap "$tmp/pid-%p.pcap")
start_server server rping -s -a 127.0.0.1 -p "$port" -C 2
run client rping -c -a 127.0.0.1 -p "$port" -C 2
join server
files=("$tmp"/pid-*.pcap)
want "two files named for their processes" is "${#files[@]}" 2
want "the pid to be a number" test -z "$(printf '%s\n' "${files[@]##*/}" | grep -vE '^pid-[0-9]+\.pcap$')"
end

begin "--pcap: a full disk is said once, and does not disturb the program"
free_port
run_options=(--ifaces lo)
start_server server rping -s -a 127.0.0.1 -p "$port" -C 2
run_options=(--ifaces lo --pcap /dev/full)
run client rping -c -a 127.0.0.1 -p "$port" -C 2
run_options=()
join server
both_succeed
want "one line" is "$(count client.err '/dev/full: No space left on device')" 1
end

begin "--pcap: the whole conversation, as tshark reads it"
run_options=(--ifaces lo)
free_port
start_server server rping -s -a 127.0.0.1 -p "$port" -C 3 -S 300
run_options=(--ifaces lo --pcap "$tmp/client.pcap")
run client rping -c -a 127.0.0.1 -p "$port" -C 3 -S 300
run_options=()
join server
both_succeed
tshark_of "$tmp/client.pcap" -T fields -e _ws.col.Protocol -e _ws.col.Info -d "tcp.port==$port,iwarp_mpa" > "$tmp/frames.out"
tshark_of "$tmp/client.pcap" -V > "$tmp/decoded.out"
want "the MPA Request and Reply" is "$(tshark_of "$tmp/client.pcap" -Y 'iwarp_mpa.req || iwarp_mpa.rep' | wc -l)" 2
for opcode in 'Send' 'Write' 'Read Request' 'Read Response'; do
	want "an RDMAP $opcode" has decoded.out "OpCode: $opcode|RDMA $opcode|Opcode: $opcode"
done
want "no bad CRC" hasnt decoded.out 'CRC.*(incorrect|bad|[Ww]rong)|Bad CRC'
want "nothing malformed" hasnt decoded.out 'Malformed'
want "no bad TCP checksum" is "$(tshark_of "$tmp/client.pcap" -o tcp.check_checksum:TRUE -Y 'tcp.checksum.status == 0' | wc -l)" 0
end

# ---- statistics ----

begin "--stats"
free_port
run_options=(--ifaces lo --stats)
start_server server rping -s -a 127.0.0.1 -p "$port" -C 5 -S 1000
run client rping -c -a 127.0.0.1 -p "$port" -C 5 -S 1000
run_options=()
join server
both_succeed
want "the program's name at the client" has client.err '^uwarp: rping, process [0-9]+, after [0-9.]+ s$'
want "one connection out, none in" has client.err '^uwarp_lo +1 +0 '
want "one connection in, none out, at the server" has server.err '^uwarp_lo +0 +1 '
# Five times: two Sends of the client's, one of the server's for each (five of ten), one Read and one Write of 1000 bytes by the server.
want "the server's Writes and Reads" has server.err '^uwarp_lo +out +[0-9]+ +[0-9]+ +[0-9]+ +5 +5 +0 +0 '
end

begin "--stats of a program without RDMA"
run_options=(--stats)
run it true
run_options=()
want "nothing" hasnt it.err .
end

begin "uwarp stat"
free_port
start_server server rping -s -P -a 127.0.0.1 -p "$port" -S 1000
start client rping -c -a 127.0.0.1 -p "$port" -S 1000
pid=$(pgrep -P "${pid_of[server]}")
for _ in 1 2 3 4 5 6 7 8 9 10; do
	tool json stat --json "$pid"
	grep -q '"in":1' "$tmp/json.out" && break
	sleep 0.2
done
tool list stat
want "the server in the list" has list.out "^ +$pid +$EUID +[0-9]+ +[0-9]+  rping$"
tool one stat "$pid"
want "status 0, not ${status_of[one]}" is "${status_of[one]}" 0
want "its name" has one.out "^uwarp: rping, process $pid, after [0-9.]+ s$"
want "a connection" has one.out '^uwarp_lo +0 +1 +1 '
before=$(python3 -c 'import json, sys; print(sum(d["bytes_in"] for d in json.load(sys.stdin)["devices"]))' < "$tmp/json.out")
sleep 0.2
tool json stat --json "$pid"
after=$(python3 -c 'import json, sys; print(sum(d["bytes_in"] for d in json.load(sys.stdin)["devices"]))' < "$tmp/json.out")
want "more bytes after a while: $before, $after" less "$before" "$after"
timeout 20 "$UWARP" stat --interval 0.2 --json "$pid" > "$tmp/live.out" 2> "$tmp/live.err" &
live=$!
for _ in $(seq 50); do
	(($(wc -l < "$tmp/live.out") >= 3)) && break
	sleep 0.1
done
want "three lines of uwarp stat --interval" is $(($(wc -l < "$tmp/live.out") >= 3)) 1
kill -STOP "$pid"
tool stopped stat "$pid"
kill -CONT "$pid"
want "a stopped process to be said to be so" has stopped.err 'does not answer'
stop client
stop server
status_of[live]=0
wait "$live" || status_of[live]=$?
want "uwarp stat --interval to end with the process, with status 0, not ${status_of[live]}" is "${status_of[live]}" 0
tool gone stat "$pid"
want "it to be gone" has gone.err "no process $pid"
end

begin "uwarp stat of somebody else's"
if ((EUID == 0)) && command -v setpriv > /dev/null; then
	free_port
	start_server server rping -s -P -a 127.0.0.1 -p "$port"
	pid=$(pgrep -P "${pid_of[server]}")
	status_of[other]=0
	cp "$UWARP" "$tmp/uwarp-copy"
	chmod a+rx "$tmp" "$tmp/uwarp-copy"
	setpriv --reuid 65534 --clear-groups "$tmp/uwarp-copy" stat "$pid" > "$tmp/other.out" 2> "$tmp/other.err" || status_of[other]=$?
	want "status 5, not ${status_of[other]}" is "${status_of[other]}" 5
	want "to be told why" has other.err 'answers its own user and root only'
	stop server
fi
end

finish
