#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# The uwarp command over 127.0.0.1 and ::1, with real processes.
#
#     uwarp listen ADDR:0  <---- loopback ---->  uwarp connect ADDR:PORT
#     a peer in python     <---- loopback ---->  either of them
#
# What is judged: exit statuses, what both sides print and say in JSON, and captures, by tshark.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"

for tool in python3 tshark mergecap; do
	command -v $tool > /dev/null || { echo "$tool is missing"; exit 1; }
done

# start_listen ARGS... ADDR: in the background, on a free port, which goes to $port.
start_listen() {
	clear_logs
	timeout --foreground -k 5 60 "$UWARP" listen "${@:1:$#-1}" "${!#}:0" > "$tmp/listen.out" 2> "$tmp/listen.err" < /dev/null &
	listener=$!
	pids+=("$listener")
	wait_for listen.out 'listening' || { echo "# no listener: $(cat "$tmp/listen.err")"; return 1; }
	port=$(sed -nE '/listening/ { s/.*:([0-9]+)(, to reject)?$/\1/p; s/.*"port":([0-9]+).*/\1/p }' "$tmp/listen.out" | head -n 1)
}

end_listen() {
	listen_status=0
	wait "$listener" || listen_status=$?
}

connect() {
	connect_status=0
	timeout -k 5 60 "$UWARP" connect "$@" > "$tmp/connect.out" 2> "$tmp/connect.err" < /dev/null || connect_status=$?
}

# start_peer MODE: a TCP peer that listens and does not speak MPA.
start_peer() {
	clear_logs
	timeout -k 5 60 python3 -c "$peer_code" "$1" > "$tmp/peer.out" 2> "$tmp/peer.err" < /dev/null &
	peer=$!
	pids+=("$peer")
	wait_for peer.out '^[0-9]+$' || return 1
	port=$(< "$tmp/peer.out")
}

end_peer() {
	kill "$peer" 2> /dev/null
	wait "$peer" 2> /dev/null
}

peer_code='
import socket, struct, sys, time
mode = sys.argv[1]
s = socket.socket()
for _ in range(50):
    try:
        s.bind(("127.0.0.1", 0))
        break
    except OSError: # all ports are busy for a moment
        time.sleep(0.1)
s.listen()
print(s.getsockname()[1], flush=True)
def reply(rev, flags, body):
    return b"MPA ID Rep Frame" + struct.pack(">BBH", flags, rev, len(body)) + body
while True:
    c, _ = s.accept()
    if mode == "silent":
        time.sleep(30)
    c.recv(600)
    if mode == "garbage":
        c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    elif mode == "revision":
        c.sendall(reply(7, 0x40, b""))
    elif mode == "length":
        c.sendall(reply(2, 0x50, b"ab"))
    elif mode in ("half", "half-silent"):
        c.sendall(reply(2, 0x50, struct.pack(">HH", 0x8004, 0x8004) + b"half")[:18])
        time.sleep(0.1 if mode == "half" else 30)
    elif mode.startswith("rtr"):
        c.sendall(reply(2, 0x10, struct.pack(">HH", 0x8004, 0x8004)))
        c.recv(600)
        if mode == "rtr-reset":
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else: # RFC 5040 4.8: no matching RTR
            c.sendall(struct.pack(">HBBIIII", 22, 0x41, 0x47, 0, 2, 1, 0) + struct.pack(">HHI", 0x2007, 0, 0))
    elif mode == "slow":
        for b in reply(2, 0x50, struct.pack(">HH", 0x8004, 0x8004) + b"slowly"):
            c.sendall(bytes([b]))
            time.sleep(0.002)
    elif mode == "reset":
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if mode in ("garbage", "revision", "length", "slow"):
        try:
            while c.recv(600):
                pass
        except OSError:
            pass
    c.close()
'

# json FILE EXPRESSION...: true in python for the file's lines; ev("established") is the first of these events, n what was
# negotiated there. Those that are not true are printed.
json() {
	python3 -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
def ev(name):
    return next((e for e in lines if e["event"] == name), None)
n = (ev("established") or {}).get("negotiated")
wrong = 0
for expression in sys.argv[2:]:
    try:
        good = eval(expression)
    except Exception as e:
        good = False
    if not good:
        wrong += 1
        print("#", sys.argv[1], "is not:", expression)
sys.exit(wrong != 0)
' "$tmp/$1" "${@:2}" 2> /dev/null
}

# ---- connections that come up ---------------------------------------------------------------------------------

# accepts TITLE ADDR LISTEN-ARGS CONNECT-ARGS EXPRESSION: both sides' JSON in "established" must fit; n is negotiated.
accepts() {
	local -a listen_args connect_args
	read -ra listen_args <<< "$3"
	read -ra connect_args <<< "$4"
	begin "$1"
	want "a listener" start_listen --json --count 1 --private 'from the listener' "${listen_args[@]}" "$2"
	connect --json --private 'from the connector' --pcap "$tmp/accept.$((passed + failed)).pcap" "${connect_args[@]}" "$2:$port"
	end_listen
	want "connect status 0" is "$connect_status" 0
	want "listen status 0" is "$listen_status" 0
	want "connect's JSON" json connect.out "$5" "ev('established')['private_data']['text'] == 'from the listener'" \
		"ev('disconnected')['how'] == 'in order'" "lines[-1]['event'] == 'summary' and lines[-1]['established'] == 1"
	want "listen's JSON" json listen.out "$5" "ev('request')['private_data']['text'] == 'from the connector'"
	end
}

test_accept() {
	local addr kind
	for addr in 127.0.0.1 '[::1]'; do
		accepts "accept: $addr, revision 1" "$addr" '' '--mpa-rev 1 --model cs' \
			"n['mpa_revision'] == 1 and n['model'] == 'cs' and n['rtr'] == []"
		accepts "accept: $addr, revision 2, client-server" "$addr" '' '--model cs' "n['mpa_revision'] == 2 and n['model'] == 'cs'"
		for kind in send write read; do
			accepts "accept: $addr, peer-to-peer, RTR $kind" "$addr" '' "--rtr $kind" \
				"n['model'] == 'p2p' and n['rtr'] == ['$kind'] and n['rtr_offered'] == ['$kind']"
		done
	done
	for kind in send write read; do
		accepts "accept: all RTRs offered, the listener takes $kind" 127.0.0.1 "--rtr $kind" '' "n['rtr'] == ['$kind']"
	done
	accepts "accept: the listener knows revision 1 only: fall-back" 127.0.0.1 '--mpa-rev 1' '' "n['mpa_revision'] == 1"
	accepts "accept: the listener wants client-server" 127.0.0.1 '--model cs' '' "n['model'] == 'cs' and n['mpa_revision'] == 2"
	accepts "accept: CRC by one side's wish" 127.0.0.1 '--no-crc' '--crc' "n['crc']"
	accepts "accept: no CRC" 127.0.0.1 '--no-crc' '--no-crc' "not n['crc']"
	accepts "accept: markers to the connector" 127.0.0.1 '' '--markers' "n['send_markers'] != n['receive_markers']"
	accepts "accept: markers both ways" 127.0.0.1 '--markers' '--markers' "n['send_markers'] and n['receive_markers']"
	accepts "accept: read depths" 127.0.0.1 '--ird 5 --ord 6' '--ird 7 --ord 8' \
		"(n['ird'], n['ord']) in ((7, 5), (5, 6)) and (n['peer_ird'], n['peer_ord']) in ((5, 6), (7, 8))"
}

# Every length that the wire can carry, at both ends of the range.
test_private_data() {
	local rev most n
	for rev in 1 2; do
		most=$((rev == 1 ? 512 : 508))
		for n in 0 1 $((most - 1)) $most; do
			begin "private data: $n bytes, revision $rev"
			head -c "$n" /dev/urandom > "$tmp/request"
			head -c "$n" /dev/urandom > "$tmp/reply"
			want "a listener" start_listen --json --count 1 --mpa-rev $rev --private-file "$tmp/reply" 127.0.0.1
			connect --json --mpa-rev $rev --private-file "$tmp/request" "127.0.0.1:$port"
			end_listen
			want "status 0" is "$connect_status$listen_status" 00
			want "the request's bytes" json listen.out "bytes.fromhex(ev('request')['private_data']['hex']) == open('$tmp/request', 'rb').read()"
			want "the reply's bytes" json connect.out "bytes.fromhex(ev('established')['private_data']['hex']) == open('$tmp/reply', 'rb').read()"
			end
		done
	done
}

test_text() {
	begin "text: ladders of both sides"
	want "a listener" start_listen --count 1 --private 'good morning' 127.0.0.1
	connect --private 'good evening' --rtr write "127.0.0.1:$port"
	end_listen
	want "status 0" is "$connect_status$listen_status" 00
	# On a busy machine the state may get a line of its own.
	want "SYN out" has connect.out '0\.000 \|--- SYN.*->\|( SYN_SENT)?$'
	want "SYN+ACK in" has connect.out '\|<-- SYN\+ACK.*\|( ONE_SIDE_ESTABLISHED)?$'
	want "the request" has connect.out '\|--- MPA Request rev 2 -+>\|( MPAREQ_SENT)?$'
	for state in SYN_SENT ONE_SIDE_ESTABLISHED MPAREQ_SENT OFFLOADED; do
		want "the state $state" has connect.out "\\| $state\$"
	done
	want "its flags" has connect.out 'flags C S; IRD 128, ORD 128; '
	want "the reply" has connect.out '\|<-- MPA Reply rev 2 -+\|( OFFLOADED)?$'
	want "the RTR" has connect.out '\|--- RDMA Write, 0 bytes \(RTR\) -+>\|'
	want "FINs" has connect.out '\|<-- FIN -+\|'
	want "the end" has connect.out '\| CLOSED$'
	want "private data" has connect.out '"good morning"'
	want "in hexadecimal" has connect.out '0000  67 6f 6f 64 20 6d'
	want "no bare ACKs" hasnt connect.out '\|... ACK'
	want "the listener's side" has listen.out '\|<-- MPA Request rev 2 -+\|( MPAREQ_RCVD)?$'
	want "its state" has listen.out '\| MPAREQ_RCVD$'
	want "its private data" has listen.out '"good evening"'
	want "nothing on standard error" is "$(cat "$tmp/connect.err" "$tmp/listen.err")" ''
	end

	begin "text: every frame with -v"
	want "a listener" start_listen -v --count 1 127.0.0.1
	connect -v "127.0.0.1:$port"
	end_listen
	want "status 0" is "$connect_status$listen_status" 00
	want "ACKs" has connect.out '\|(<--|---) ACK'
	want "numbers" has connect.out 'seq 0 ack 0 win [0-9]+ len 0'
	end

	begin "text: nothing with -q"
	want "a listener" start_listen --count 1 127.0.0.1
	connect -q "127.0.0.1:$port"
	end_listen
	want "status 0" is "$connect_status" 0
	want "no output" is "$(cat "$tmp/connect.out" "$tmp/connect.err")" ''
	end
}

test_json() {
	local file
	begin "json: every line parses, frames with -v"
	want "a listener" start_listen --json -v --count 1 127.0.0.1
	connect --json -v "127.0.0.1:$port"
	end_listen
	for file in connect listen; do
		want "$file's lines" python3 -m json.tool --json-lines "$tmp/$file.out" "$tmp/parsed"
		want "$file's frames" json $file.out "[e['tcp_flags'] for e in lines if e['event'] == 'frame'][0] == 'S'"
		want "$file's states" json $file.out "'OFFLOADED' in [e.get('state') for e in lines]"
	done
	end
}

# ---- connections that do not --------------------------------------------------------------------------------------

test_reject() {
	local rev
	for rev in 1 2; do
		begin "reject: with private data, revision $rev"
		head -c 255 /dev/urandom > "$tmp/reply"
		want "a listener" start_listen --json --count 1 --reject --private-file "$tmp/reply" 127.0.0.1
		connect --json --mpa-rev $rev --pcap "$tmp/reject.$rev.pcap" "127.0.0.1:$port"
		end_listen
		want "status 1" is "$connect_status" 1
		want "listen status 0" is "$listen_status" 0
		want "the reply's bytes" json connect.out "bytes.fromhex(ev('rejected')['private_data']['hex']) == open('$tmp/reply', 'rb').read()"
		want "the cause" json connect.out "ev('rejected')['cause'] == 'rejected' and lines[-1]['exit_status'] == 1"
		end
	done
}

# fails TITLE MODE STATUS CAUSE ARGS...: what a peer that does not speak MPA does to connect.
fails() {
	local mode=$2 status=$3 cause=$4
	begin "$1"
	shift 4
	want "a peer" start_peer "$mode"
	connect --json --timeout 3 --pcap "$tmp/fail.$((passed + failed)).pcap" "$@" "127.0.0.1:$port"
	end_peer
	want "status $status" is "$connect_status" "$status"
	want "cause $cause" json connect.out "ev('error')['cause'] == '$cause' and 'hint' in ev('error')"
	end
}

test_failures() {
	begin "refused port"
	want "a listener" start_listen --count 1 127.0.0.1
	kill "$listener"
	end_listen
	connect "127.0.0.1:$port"
	want "status 2" is "$connect_status" 2
	want "the RST" has connect.out '\|<-- RST -+\| CLOSED$'
	want "the reason, without saying it twice" has connect.out '^refused after [0-9.]+ ms: nothing listens on that port'
	want "a hint" has connect.out '^hint: is the server running'
	connect -q "127.0.0.1:$port"
	want "an error on standard error" has connect.err '^uwarp: 127.0.0.1:[0-9]+: refused: '
	end

	fails "silent peer" silent 3 no_mpa_reply
	fails "peer that speaks HTTP" garbage 4 mpa_key
	fails "reply of revision 7" revision 4 mpa_revision
	fails "reply that is too short for its flags" length 4 mpa_length
	fails "peer that closes" closing 4 closed
	fails "peer that closes, no fall-back" closing 4 closed --no-fallback
	fails "peer that resets" reset 4 reset
	fails "peer that closes in the middle of its reply" half 4 mpa_partial
	fails "peer that falls silent in the middle of its reply" half-silent 4 mpa_partial

	begin "fall-back: in the ladder, and in the words about it"
	want "a peer" start_peer closing
	connect "127.0.0.1:$port"
	want "status 4" is "$connect_status" 4
	want "a line between the two" has connect.out '^ +\|    \(again, with MPA revision 1\) +\|$'
	want "the second SYN" is "$(grep -c -- '|--- SYN,.*| SYN_SENT$' "$tmp/connect.out")" 2
	want "the reason" has connect.out 'with MPA revision 1, after 2 was turned down\)$'
	want "no hint to try what was tried" hasnt connect.out 'mpa-rev 1'
	connect --json -v "127.0.0.1:$port"
	want "in JSON" json connect.out "[e['state'] for e in lines if e.get('fall_back')] == ['SYN_SENT'] and ev('error')['fell_back']"
	end_peer
	end

	begin "nothing negotiated: nothing said about it"
	want "a listener" start_listen --count 1 127.0.0.1
	kill "$listener"
	end_listen
	connect --json "127.0.0.1:$port"
	want "no such object" json connect.out "'negotiated' not in ev('error') and 'private_data' not in ev('error')" "ev('error')['syn_sent'] == 1"
	end

	local end
	for end in reset terminate; do
		begin "peer that ends the connection right behind the RTR: $end"
		want "a peer" start_peer rtr-$end
		connect --json --no-crc "127.0.0.1:$port"
		want "status 4" is "$connect_status" 4
		# "error", where the end came before the news of the beginning was taken
		want "established, and yet not" json connect.out "(ev('disconnected') or ev('error'))['status'] == 'protocol error'" \
			"'RTR' in (ev('disconnected') or ev('error'))['hint']" "(lines[-1]['established'], lines[-1]['protocol_errors']) == (0, 1)"
		connect --no-crc "127.0.0.1:$port"
		want "how" has connect.out "^(disconnected by (a reset|the peer's Terminate: .*RTR)|protocol error after .* RTR)"
		end_peer
		end
	done

	begin "reply byte by byte"
	want "a peer" start_peer slow
	connect --json --timeout 5 "127.0.0.1:$port"
	end_peer
	want "status 0" is "$connect_status" 0
	want "private data" json connect.out "ev('established')['private_data']['text'] == 'slowly'"
	end

	begin "no RTR that both can"
	want "a listener" start_listen --rtr write --timeout 1 127.0.0.1
	connect --rtr send "127.0.0.1:$port"
	end_listen
	want "status 1" is "$connect_status" 1
	want "listen status 4" is "$listen_status" 4
	want "not said to be without a request" has listen.out '^no valid request: no matching RTR'
	want "the Terminate" has connect.out 'Terminate'
	want "the reason" has connect.out "^the peer's Terminate says why: no matching RTR"
	want "the reason, at the listener" has listen.out 'no matching RTR'
	end

	begin "own address that is none"
	connect --timeout 3 --bind 192.0.2.199 127.0.0.1:9
	want "status 5" is "$connect_status" 5
	want "the reason" has connect.out 'Cannot assign requested address'
	end

	begin "name that is none"
	connect --timeout 3 no-such-host.invalid:9
	want "status 5" is "$connect_status" 5
	want "a message" has connect.err 'no-such-host.invalid'
	end

	begin "port in use"
	want "a listener" start_listen --timeout 5 127.0.0.1
	listen_again=0
	timeout 10 "$UWARP" listen --count 1 "127.0.0.1:$port" > "$tmp/connect.out" 2> "$tmp/connect.err" || listen_again=$?
	want "status 5" is "$listen_again" 5
	want "a message" has connect.err 'in use'
	want "no summary" is "$(cat "$tmp/connect.out")" ''
	kill "$listener"
	end_listen
	end
}

# A client whose first FPDU is not the RTR that was agreed.
wrong_rtr_code='
import socket, struct, sys, time
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.sendall(b"MPA ID Req Frame" + struct.pack(">BBHHH", 0x10, 2, 4, 0xC008, 0xC008))
c.recv(600)
c.sendall(struct.pack(">HBBIIII", 22, 0x41, 0x43, 0, 0, 1, 0) + b"abcd" + struct.pack(">I", 0))
while c.recv(600):
    pass
'

test_wrong_rtr() {
	begin "listener: its own Terminate, and why"
	want "a listener" start_listen --no-crc --rtr write --count 1 127.0.0.1
	timeout 10 python3 -c "$wrong_rtr_code" "$port"
	end_listen
	want "the Terminate" has listen.out '\|--- Terminate -+>\|'
	want "the reason, last" matches "$(tail -n 1 "$tmp/listen.out")" "disconnected by this side's Terminate: .*RTR.*"
	end
}

# What strangers do to a listener. It goes on, and shows them.
strangers_code='
import socket, struct, sys, time
port, mode = int(sys.argv[1]), sys.argv[2]
c = socket.create_connection(("127.0.0.1", port))
if mode == "http":
    c.sendall(b"GET / HTTP/1.1\r\n\r\n")
elif mode == "revision":
    c.sendall(b"MPA ID Req Frame" + struct.pack(">BBH", 0x40, 9, 0))
elif mode == "partial":
    c.sendall(b"MPA ID Req Fr")
    c.shutdown(socket.SHUT_WR)
elif mode == "reset":
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()
    sys.exit()
c.settimeout(5)
try:
    while c.recv(100):
        pass
except OSError:
    pass
'

test_strangers() {
	local mode
	local -A words=([http]='another protocol knocks' [revision]='MPA revision that we do not speak'
		[partial]='peer closed the connection' [reset]='peer reset the connection')
	for mode in http revision partial reset; do
		begin "stranger at the listener: $mode"
		want "a listener" start_listen --timeout 20 --pcap "$tmp/stranger.$mode.pcap" 127.0.0.1
		timeout 10 python3 -c "$strangers_code" "$port" $mode
		want "what it was" wait_for listen.out "${words[$mode]}"
		connect "127.0.0.1:$port"
		want "the next one is served" is "$connect_status" 0
		kill -INT "$listener"
		end_listen
		want "listen status 0" is "$listen_status" 0
		want "both counted" has listen.out 'without request +1$'
		end
	done

	begin "nobody but a stranger"
	want "a listener" start_listen --timeout 1 --json 127.0.0.1
	timeout 10 python3 -c "$strangers_code" "$port" http
	end_listen
	want "listen status 4" is "$listen_status" 4
	want "the cause" json listen.out "ev('no_request')['cause'] == 'mpa_key' and 'hint' in ev('no_request')" \
		"ev('no_request')['status'] == 'protocol error' and 0 <= ev('no_request')['ms'] < 1000 and lines[-1]['no_request'] == 1"
	end

	begin "strangers in crowds"
	want "a listener" start_listen --json -v 127.0.0.1
	timeout 30 python3 -c "
import socket, time
for i in range(1500):
    c = socket.create_connection(('127.0.0.1', $port))
    if i % 3:
        c.sendall(b'GET / HTTP/1.1')
    c.close()
    time.sleep(0.0005)
"
	sleep 0.5
	kill -INT "$listener"
	end_listen
	want "listen status 4" is "$listen_status" 4
	want "each of them" json listen.out "lines[-1]['no_request'] == 1500"
	end

	begin "nobody at all"
	want "a listener" start_listen --timeout 0.2 127.0.0.1
	end_listen
	want "listen status 3" is "$listen_status" 3
	want "a listener" start_listen 127.0.0.1
	kill -INT "$listener"
	end_listen
	want "listen status 5 if interrupted" is "$listen_status" 5
	end
}

# ---- the command line ---------------------------------------------------------------------------------------------

# usage_error ARGS...
usage_error() {
	local status=0
	timeout 10 "$UWARP" "$@" > "$tmp/connect.out" 2> "$tmp/connect.err" < /dev/null || status=$?
	want "status 64 for \"$*\"" is "$status" 64
	want "a message for \"$*\"" test -s "$tmp/connect.err"
	want "no output for \"$*\"" is "$(cat "$tmp/connect.out")" ''
}

test_usage() {
	local command long
	begin "usage errors"
	long=$(printf 'a%.0s' $(seq 513))
	usage_error
	usage_error nonsense
	usage_error connect
	usage_error connect 127.0.0.1
	usage_error connect 127.0.0.1:0
	usage_error connect :80
	usage_error connect --mpa-rev 3 127.0.0.1:1
	usage_error connect --rtr send,fly 127.0.0.1:1
	usage_error connect --private-hex 123 127.0.0.1:1
	usage_error connect --private "${long:0:509}" 127.0.0.1:1
	usage_error connect --mpa-rev 1 --private "$long" 127.0.0.1:1
	usage_error connect --private-file /nonexistent 127.0.0.1:1
	usage_error listen --reject --private "${long:0:256}" :0
	usage_error listen --bind 127.0.0.1 :0
	usage_error listen :65536
	usage_error devices lo
	usage_error sim --loss 200
	want "the range of a percentage" has connect.err '^uwarp: --loss PERCENT: "200" is out of range \(0 to 100\), or not of that form$'
	usage_error connect --timeout 0 127.0.0.1:1
	want "the range of a time" has connect.err '"0" is out of range \(0\.001 to 10000000\), '
	usage_error perf --size 64,0 127.0.0.1:1
	want "the range of a list's numbers" has connect.err '"64,0" is out of range \(1 to 67108864\), '
	usage_error connect --count 5 --model x 127.0.0.1:1
	want "no range of a word" has connect.err '"x" is out of range, or'
	usage_error sim --connections 200 --only 3,200
	want "the connections that there are" has connect.err 'there is no connection 200, but 0 to 199 '
	end

	for command in connect listen devices sim; do
		begin "help of $command"
		want "status 0" timeout 10 "$UWARP" $command --help > "$tmp/connect.out"
		want "a usage line" has connect.out "^usage: uwarp $command "
		end
	done

	begin "beginnings of options"
	want "one" timeout 10 "$UWARP" devices --js > /dev/null
	usage_error connect --pri hello 127.0.0.1:1
	want "the candidates" has connect.err 'option --pri is ambiguous: --private, --private-hex, --private-file$'
	usage_error connect --frob 127.0.0.1:1
	want "none" has connect.err 'unknown option --frob$'
	end

	begin "version and help"
	want "status 0" timeout 10 "$UWARP" --version > "$tmp/connect.out"
	want "a version" has connect.out '^uwarp [0-9]+\.[0-9]+'
	want "status 0" timeout 10 "$UWARP" --help > "$tmp/connect.out"
	end

	begin "output that cannot be written"
	status=0
	timeout 10 "$UWARP" devices > /dev/full 2> "$tmp/connect.err" || status=$?
	want "status 5" is "$status" 5
	status=0
	timeout 10 "$UWARP" --help > /dev/full 2> "$tmp/connect.err" || status=$?
	want "status 5 for the help" is "$status" 5
	status=0
	timeout 10 "$UWARP" devices --json >&- 2> "$tmp/connect.err" || status=$?
	want "status 5 if it is closed" is "$status" 5
	want "words about it" has connect.err 'standard output cannot be written'
	start_listen --count 1 127.0.0.1
	connect --pcap /nonexistent/file "127.0.0.1:$port"
	want "status 5 for the capture" is "$connect_status" 5
	connect --pcap /dev/full "127.0.0.1:$port"
	end_listen
	want "status 5 for the full disk" is "$connect_status" 5
	want "one line about it" is "$(grep -c '/dev/full: No space left on device' "$tmp/connect.err")" 1
	end
}

test_example() {
	local example word
	begin "the example takes no port number that there is none of"
	example=$(dirname "$UWARP")/examples/echo_private
	[[ -x $example ]] || { skip "it has not been built"; return; }
	for word in 99999 0 -1 7x ''; do
		status=0
		timeout 10 "$example" "$word" > "$tmp/connect.out" 2> "$tmp/connect.err" || status=$?
		want "status 64 of '$word'" is "$status" 64
		status=0
		timeout 10 "$example" 127.0.0.1 "$word" > "$tmp/connect.out" 2> "$tmp/connect.err" || status=$?
		want "status 64 of 127.0.0.1 '$word'" is "$status" 64
	done
	end
}

test_devices() {
	begin "devices"
	want "status 0" timeout 10 "$UWARP" devices > "$tmp/connect.out"
	want "the loopback NIC" has connect.out '^uwarp_lo +lo +up .* 127\.0\.0\.1$'
	want "status 0" timeout 10 "$UWARP" devices --json > "$tmp/connect.out"
	want "JSON" python3 -c "
import json
d = [json.loads(line) for line in open('$tmp/connect.out')]
lo = next(x for x in d if x['interface'] == 'lo')
assert lo['device'] == 'uwarp_lo' and '127.0.0.1' in lo['addresses']"
	end
}

# ---- many, times, signals -----------------------------------------------------------------------------------------

test_many() {
	begin "200 connections"
	want "a listener" start_listen --count 200 127.0.0.1
	connect --count 200 --parallel 10 "127.0.0.1:$port"
	end_listen
	want "status 0" is "$connect_status$listen_status" 00
	want "connect's table" has connect.out '^    established +200$'
	want "times" has connect.out '^set-up time in ms: min [0-9.]+, median '
	want "listen's table" has listen.out '^    established +200$'
	want "no ladders" hasnt connect.out SYN
	end

	begin "some established, the rest refused"
	want "a listener" start_listen --count 3 127.0.0.1
	connect --json --count 5 "127.0.0.1:$port"
	end_listen
	want "status 2" is "$connect_status" 2
	want "the tally" json connect.out "(lines[-1]['established'], lines[-1]['refused']) == (3, 2)"
	end

	begin "at a rate"
	want "a listener" start_listen --count 20 127.0.0.1
	local from=$EPOCHREALTIME
	connect --count 20 --rate 50 "127.0.0.1:$port"
	end_listen
	want "status 0" is "$connect_status$listen_status" 00
	want "0.38 seconds or more" python3 -c "exit(not $EPOCHREALTIME - $from >= 0.37)"
	end

	begin "all on one IPv6 address, with ladders"
	want "a listener" start_listen -v --count 5 '[::1]'
	connect -v --count 5 --parallel 5 "[::1]:$port"
	end_listen
	want "status 0" is "$connect_status$listen_status" 00
	want "five ladders" is "$(grep -cE '^connection [0-9]+: ' "$tmp/connect.out")" 5
	end
}

test_wildcard() {
	begin "wildcard: IPv4 and IPv6, and a name"
	want "a listener" start_listen --count 3 ''
	connect "127.0.0.1:$port"
	want "IPv4" is "$connect_status" 0
	connect "[::1]:$port"
	want "IPv6" is "$connect_status" 0
	connect "localhost:$port"
	want "localhost" is "$connect_status" 0
	end_listen
	want "listen status 0" is "$listen_status" 0
	want "two lines" is "$(grep -c '^listening on ' "$tmp/listen.out")" 2
	end

	begin "localhost: both families, whatever the hosts file has"
	want "a listener" start_listen --count 2 localhost
	connect "127.0.0.1:$port"
	want "IPv4" is "$connect_status" 0
	connect "[::1]:$port"
	want "IPv6" is "$connect_status" 0
	end_listen
	want "listen status 0" is "$listen_status" 0
	end

	begin "bind"
	want "a listener" start_listen --json --count 2 ''
	connect --bind 127.0.0.7 "127.0.0.1:$port"
	want "status 0" is "$connect_status" 0
	connect --bind '::1' "[::1]:$port"
	want "status 0 with IPv6" is "$connect_status" 0
	end_listen
	want "from there" json listen.out "ev('request')['remote'].startswith('127.0.0.7:')"
	end
}

test_times() {
	local from=$EPOCHREALTIME
	begin "hold on the connecting side"
	want "a listener" start_listen --json --count 1 127.0.0.1
	connect --hold 0.4 "127.0.0.1:$port"
	end_listen
	want "status 0" is "$connect_status$listen_status" 00
	want "0.4 seconds" json listen.out "ev('disconnected')['up_ms'] >= 390"
	end

	begin "hold on the listening side"
	want "a listener" start_listen --count 1 --hold 0.3 127.0.0.1
	connect --json --hold 30 "127.0.0.1:$port"
	end_listen
	want "status 0" is "$connect_status$listen_status" 00
	want "0.3 seconds" json connect.out "290 <= ev('disconnected')['up_ms'] < 20000"
	end

	begin "time limit in the middle"
	want "a listener" start_listen --count 1 127.0.0.1
	connect --json --hold 30 --timeout 0.5 "127.0.0.1:$port"
	end_listen
	want "status 0: it was established" is "$connect_status" 0
	want "an end in order" json connect.out "ev('disconnected')['how'] == 'in order' and lines[-1]['ended_by'] == 'timeout'"
	want "0.5 seconds" json connect.out "lines[-1]['seconds'] < 5"
	end
}

test_signals() {
	local signal
	for signal in INT TERM; do
		begin "SIG$signal to the listener: a clean end for both"
		want "a listener" start_listen --pcap "$tmp/signal.$signal.pcap" 127.0.0.1
		timeout --foreground 30 "$UWARP" connect --json --hold 30 "127.0.0.1:$port" > "$tmp/connect.out" 2> "$tmp/connect.err" < /dev/null &
		connector=$!
		pids+=("$connector")
		want "a connection" wait_for listen.out '^established'
		kill "-$signal" "$listener"
		end_listen
		connect_status=0
		wait "$connector" || connect_status=$?
		want "listen status 0" is "$listen_status" 0
		want "connect status 0" is "$connect_status" 0
		want "an end in order" json connect.out "ev('disconnected')['how'] == 'in order'"
		want "a summary" has listen.out '1 connection in .*interrupted'
		end
	done

	begin "SIGINT to the connector while it waits"
	want "a peer" start_peer silent
	timeout --foreground 30 "$UWARP" connect --json "127.0.0.1:$port" > "$tmp/connect.out" 2> "$tmp/connect.err" < /dev/null &
	connector=$!
	pids+=("$connector")
	sleep 0.3
	kill -INT "$connector"
	connect_status=0
	wait "$connector" || connect_status=$?
	end_peer
	want "status 5" is "$connect_status" 5
	want "the cause" json connect.out "ev('error')['cause'] == 'local' and lines[-1]['ended_by'] == 'signal'"
	end
}


test_sim() {
	local gen digest
	for gen in 1 2; do
		begin "sim: faults, generation $gen, the same again"
		want "status 0" timeout 60 "$UWARP" sim --connections 500 --loss 5 --reorder 5 --duplicate 2 --corrupt 1 --seed 9 --gen $gen > "$tmp/connect.out"
		want "all checks" has connect.out '^all checks held$'
		digest=$(grep '^digest' "$tmp/connect.out")
		want "status 0" timeout 60 "$UWARP" sim --connections 500 --loss 5 --reorder 5 --duplicate 2 --corrupt 1 --seed 9 --gen $gen > "$tmp/connect.out"
		want "the same digest" is "$digest" "$(grep '^digest' "$tmp/connect.out")"
		end
	done
	begin "sim: attackers, interfaces that flap, NICs that fall silent, programs that restart"
	want "status 0" timeout 120 "$UWARP" sim --nodes 24 --connections 2000 --attack 40 --on-path 10 --flap 0.5 --vanish 0.2 --restart 0.2 --late 5 --largest 16384 --paranoid \
		--json > "$tmp/connect.out"
	want "all of it" json connect.out "all(lines[0]['troubles'].values()) and all(lines[0]['forged'].values()) and lines[0]['checked']['audits'] > 1000"
	want "nothing wrong" json connect.out "lines[0]['violations'] == 0 and sum(lines[0]['left'].values()) == 0"
	end
	begin "sim: a connection alone"
	want "status 0" timeout 60 "$UWARP" sim --only 3,5-7 --json > "$tmp/connect.out"
	want "four" json connect.out "lines[0]['connections'] == 4"
	end
	begin "sim: interrupted"
	want "status 0" timeout --foreground --preserve-status -s INT -k 100 2 "$UWARP" sim --connections 2000000 > "$tmp/connect.out"
	want "how far it came" has connect.out '^interrupted: [1-9][0-9]* of 2000000 connections had ended$'
	want "status 0" timeout --foreground --preserve-status -s INT -k 100 2 "$UWARP" sim --connections 2000000 --json > "$tmp/connect.out"
	want "JSON" json connect.out "lines[0]['ended_by'] == 'signal' and 0 < lines[0]['ended'] < 2000000"
	end
	begin "sim: JSON and a capture"
	# Without data: tshark counts a marker that is due right behind an FPDU to that FPDU (RFC 5044 4.3: it is the next one's), and finds it malformed.
	want "status 0" timeout 60 "$UWARP" sim --connections 100 --data 0 --attack 0 --on-path 0 --json --pcap "$tmp/sim.pcap" > "$tmp/connect.out"
	want "JSON" json connect.out "lines[0]['violations'] == 0 and sum(lines[0]['left'].values()) == 0"
	end
}

# ---- captures -----------------------------------------------------------------------------------------------------

# The frames that tshark objects to. Its guess that what follows is RPC over RDMA fails where nothing follows, as in an RTR that
# is a Send.
faulty_frames() {
	tshark -n -r "$1" -o tcp.check_checksum:TRUE -o ip.check_checksum:TRUE --disable-protocol rpcordma \
		-Y '_ws.malformed || ip.checksum.status == "Bad" || tcp.checksum.status == "Bad" || iwarp_mpa.bad_length' 2> /dev/null
}

# mpa FILE: a line per start-up frame: req|rep REVISION M C R S.
mpa() {
	tshark -n -r "$1" -Y 'iwarp_mpa.key.req || iwarp_mpa.key.rep' -T fields -E separator=' ' -e iwarp_mpa.key.req -e iwarp_mpa.rev \
		-e iwarp_mpa.marker_flag -e iwarp_mpa.crc_flag -e iwarp_mpa.rej_flag -e iwarp_mpa.res 2> /dev/null |
		awk '{ print (NF == 6 ? "req" : "rep"), $(NF - 4), $(NF - 3), $(NF - 2), $(NF - 1), $NF }'
}

# capture TITLE LISTEN-ARGS CONNECT-ARGS WANT: both sides' captures show these start-up frames.
capture() {
	local -a listen_args connect_args
	local file start_up
	read -ra listen_args <<< "$2"
	read -ra connect_args <<< "$3"
	begin "capture: $1"
	want "a listener" start_listen --count 1 --pcap "$tmp/cap.listen.pcap" "${listen_args[@]}" 127.0.0.1
	connect --pcap "$tmp/cap.connect.pcap" "${connect_args[@]}" "127.0.0.1:$port"
	end_listen
	for file in listen connect; do
		start_up=$(mpa "$tmp/cap.$file.pcap" | paste -sd,)
		want "$file: $4, not $start_up" is "$start_up" "$4"
		mv "$tmp/cap.$file.pcap" "$tmp/$file.$passed.pcap"
	done
	end
}

test_captures() {
	local file faults
	capture "revision 1" '' '--mpa-rev 1 --model cs' 'req 1 0 1 0 0x00,rep 1 0 1 0 0x00'
	capture "revision 2" '' '' 'req 2 0 1 0 0x10,rep 2 0 1 0 0x10'
	capture "no CRC, markers" '--no-crc' '--no-crc --markers' 'req 2 1 0 0 0x10,rep 2 0 0 0 0x10'
	capture "reject" '--reject' '' 'req 2 0 1 0 0x10,rep 2 0 1 1 0x10'

	begin "captures of all tests: nothing malformed, all checksums right"
	# Each connection once: not both sides' captures of it in one file.
	mkdir "$tmp/listen"
	mv "$tmp"/listen.*.pcap "$tmp/listen"
	mergecap -a -w "$tmp/all.1" "$tmp"/*.pcap
	mergecap -a -w "$tmp/all.2" "$tmp"/listen/*.pcap
	want "many frames" test "$(tshark -n -r "$tmp/all.1" 2> /dev/null | wc -l)" -gt 300
	for file in "$tmp"/all.[12]; do
		faults=$(faulty_frames "$file")
		want "nothing wrong: $faults" is "$faults" ''
	done
	end
}

test_accept
test_private_data
test_text
test_json
test_reject
test_failures
test_wrong_rtr
test_strangers
test_usage
test_example
test_devices
test_many
test_wildcard
test_times
test_signals
test_sim
test_captures
finish
