#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# uwarp against Linux siw: connections in both directions, in each form that siw speaks, and the ways in which they fail.
#
#   usage: run.sh [REGEX]      run only the tests whose title matches; a good half is done in a minute, see SIW_DATA
#
#   UWARP     the program under test (default build/uwarp)
#   SIW_DIR   where build-guest.sh puts the guest (default build/siw)
#   SIW_NET   tap, user, or auto (default): see lib.sh
#   SIW_KEEP  1 keeps logs and captures of a run that went well
#   SIW_REFERENCE  1 also runs the programs of the data tests with siw at both ends
#   SIW_DATA  some (default) or all of the data tests, which take a quarter of an hour
#
# What was said is judged three times: by uwarp's exit status, by what the program in the guest prints, and by a capture of
# the guest's own network card, which tshark has the last word on. The last is needed because siw reports a peer-to-peer connection as
# established also when the peer closes without ever sending its RTR. Only the connection manager is judged here:
# rping would like to exchange data afterwards, and may complain that it cannot. Data come last, in data.sh.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
project=$(cd "$here/../.." && pwd)
UWARP=$(realpath -m "${UWARP:-$project/build/uwarp}")
SIW_DIR=$(realpath -m "${SIW_DIR:-$project/build/siw}")
only=${1:-}
export UWARP SIW_DIR

# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
# shellcheck source-path=SCRIPTDIR source=data.sh
. "$here/data.sh"

[ -x "$UWARP" ] || siw_die "no program $UWARP"
command -v tshark >/dev/null || siw_die "tshark is missing"
[ "${SIW_IN_NETNS:-}" = 1 ] || "$here/build-guest.sh" "$SIW_DIR"

# exit statuses of uwarp
established=0
rejected=1
refused=2
timed_out=3
protocol_error=4

# ---- one test -------------------------------------------------------------------------------------------------

# A test is: begin TITLE || return 0; any number of `want WHAT COMMAND...`; end.
begin() {
	title=$1
	broken=()
	[[ -z $only || $title =~ $only ]] || return 1
	"$guest_may_die" || guest_ensure
	number=$((number + 1))
	uwarp_log=$siw_tmp/$number.log
	uwarp_pcap=$siw_tmp/$number.pcap
	rm -f "$siw_tmp/wire.txt"
	! guest_alive || wire_mark
}
number=0
guest_may_die=false

# The guest may have died in the test before.
configure() {
	guest_ensure
	guest_siw "$@"
}

want() {
	local what=$1
	shift
	"$@" || broken+=("$what")
}

end() {
	local IFS=,
	guest_alive || "$guest_may_die" || broken+=("a guest that survives it")
	if [ ${#broken[@]} -eq 0 ]; then
		pass "$title"
	else
		fail "$title: want ${broken[*]} (see $number.log)"
	fi
}

# uwarp_exits STATUS ARGS...: runs uwarp to its end. A status of 124 is the limit here, not uwarp's own time-out.
uwarp_exits() {
	local want_status=$1 status=0
	shift
	[[ " $* " == *" --crc "* ]] || set -- "$@" --no-crc # uwarp asks for CRC by itself
	echo "uwarp $*" >"$uwarp_log"
	timeout -k 5 60 "$UWARP" "$@" --pcap "$uwarp_pcap" >>"$uwarp_log" 2>&1 </dev/null || status=$?
	echo "exit status $status, want $want_status" >>"$uwarp_log"
	[[ $status =~ ^($want_status)$ ]]
}

# What the guest's program printed, put beside what uwarp printed.
guest_says() {
	local status=0
	guest_wait_log "$1" "$2" "${3:-15}" || status=$?
	{ echo "guest $1:"; guest_log "$1"; } >>"$uwarp_log"
	return "$status"
}

# ---- captures -------------------------------------------------------------------------------------------------

# What of the wire belongs to this test: the guest's capture from here on.
wire_mark() {
	wire_from=$(stat -c %s "$guest_pcap")
}

# wire_part FROM FILE: the capture from there on becomes a capture of its own.
wire_part() {
	{
		head -c 24 "$guest_pcap"
		tail -c +$(($1 + 1)) "$guest_pcap"
	} >"$2"
}

wire_slice() {
	wire_part "$wire_from" "$siw_tmp/$number.wire"
}

# conversation FILE: the last MPA conversation in a capture, one line per frame; see mpa_frames.py.
conversation() {
	/usr/bin/python3 -IS "$here/mpa_frames.py" last "$1"
}

# The same for all conversations of a capture, by tshark, which knows RFC 5044 but not 6581: it shows S as a reserved
# bit, and IRD and ORD as private data. A client's port may happen to be one that tshark knows something else for: 44321 is PCP's.
tshark_conversations() {
	tshark -n -o tcp.try_heuristic_first:TRUE -r "$1" -Y iwarp_mpa -T fields -E separator='|' -E occurrence=a \
		-e tcp.stream -e tcp.dstport -e iwarp_mpa.key.req -e iwarp_mpa.key.rep -e iwarp_mpa.rev \
		-e iwarp_mpa.marker_flag -e iwarp_mpa.crc_flag -e iwarp_mpa.rej_flag -e iwarp_mpa.res \
		-e iwarp_mpa.privatedata -e iwarp_rdma.opcode -e iwarp_mpa.ulpdulength 2>/dev/null |
		awk -F '|' '
			$3 { port[$1] = $2 }
			$3 || $4 {
				s = $9 == "0x10" ? 1 : $9 == "0x00" ? 0 : $9
				print ($3 ? "req " : "rep ") $5 " M=" $6 " C=" $7 " R=" $8 " S=" s " " $10
			}
			{
				n = split($12, length_of, ",")
				split($11, opcode, ",")
				for (i = 1; i <= n; i++)
					print "fpdu " ($2 == port[$1] ? "initiator " : "responder ") opcode[i] + 0 " " length_of[i]
			}'
}

# What the wire has had of this test so far.
wire_conversation() {
	wire_slice
	conversation "$siw_tmp/$number.wire" >"$siw_tmp/wire.txt"
}

# wire_has REGEX: whether a line of the conversation is this. Frames may take a moment from the guest to the file.
wire_has() {
	for _ in {1..15}; do
		[ -e "$siw_tmp/wire.txt" ] || wire_conversation
		! grep -Exq "$1" "$siw_tmp/wire.txt" || return 0
		rm "$siw_tmp/wire.txt"
		sleep 0.1
	done
	wire_conversation
	{ echo "on the wire, without $1:"; cat "$siw_tmp/wire.txt"; } >>"$uwarp_log"
	return 1
}

# uwarp's own capture must tell the same story as the wire, as far as the start-up frames go.
captures_agree() {
	wire_conversation
	diff <(grep -E '^re[qp]' "$siw_tmp/wire.txt") <(conversation "$uwarp_pcap" | grep -E '^re[qp]') >>"$uwarp_log"
}

capture_is_sound() {
	local faulty
	faulty=$(tshark -n -r "$1" -o tcp.try_heuristic_first:TRUE -o ip.check_checksum:TRUE -o tcp.check_checksum:TRUE \
		-Y '_ws.malformed || ip.checksum.status == 0 || tcp.checksum.status == 0 || iwarp_mpa.bad_length' 2>&1 |
		grep -v '^Running as user') || return 0
	echo "$1: $faulty" >>"$uwarp_log"
	return 1
}

# ---- uwarp connects to siw ------------------------------------------------------------------------------------

start_rping_server() {
	guest_bg rping 'rping -s -v -d -p 7174' && guest_wait_log rping rdma_listen 15
}

# connects TITLE REQUEST REPLY FPDU ARGS...: established, and the frames on the wire are these.
connects() {
	local request=$2 reply=$3 fpdu=$4
	begin "connect: $1" || return 0
	shift 4
	want "a listening rping" start_rping_server
	want "exit status $established" uwarp_exits "$established" connect --timeout 20 "$@" "$(guest_endpoint 7174)"
	# Time is not to be lost on a connection that has failed already.
	want "ESTABLISHED in the guest" guest_says rping '^ESTABLISHED' $((${#broken[@]} ? 1 : 15))
	want "request $request" wire_has "req $request"
	want "reply $reply" wire_has "rep $reply"
	[ -z "$fpdu" ] || want "RTR $fpdu" wire_has "fpdu initiator $fpdu"
	want "equal captures" captures_agree
	guest_kill rping
	end
}

# is_turned_down TITLE STATUS REPLY ARGS...: siw's program never accepts this one.
is_turned_down() {
	local status=$2 reply=$3
	begin "connect: $1" || return 0
	shift 3
	want "a listening rping" start_rping_server
	want "exit status $status" uwarp_exits "$status" connect --timeout 20 "$@" "$(guest_endpoint 7174)"
	want "reply $reply" wire_has "rep $reply"
	guest_kill rping
	end
}

test_connect() {
	local cs=(--mpa-rev 2 --model cs --ird 4 --ord 6) p2p=(--mpa-rev 2 --model p2p --ird 4 --ord 6)
	local plain='M=0 C=0 R=0'

	connects "revision 1" "1 $plain S=0 " "1 $plain S=0 " '' --mpa-rev 1 --model cs
	connects "revision 1, private data" "1 $plain S=0 68656c6c6f" "1 $plain S=0 " '' \
		--mpa-rev 1 --model cs --private hello
	connects "revision 1, CRC" "1 M=0 C=1 R=0 S=0 " "1 M=0 C=1 R=0 S=0 " '' --mpa-rev 1 --model cs --crc
	# siw makes the peer's IRD its ORD and the other way round.
	connects "revision 2, client-server" "2 $plain S=1 00040006" "2 $plain S=1 00060004" '' "${cs[@]}"
	connects "revision 2, private data" "2 $plain S=1 0004000668656c6c6f" "2 $plain S=1 00060004" '' \
		"${cs[@]}" --private hello
	connects "revision 2, CRC" "2 M=0 C=1 R=0 S=1 00040006" "2 M=0 C=1 R=0 S=1 00060004" '' "${cs[@]}" --crc
	connects "peer-to-peer, RTR Write" "2 $plain S=1 80048006" "2 $plain S=1 80068004" "0 14" "${p2p[@]}" --rtr write
	connects "peer-to-peer, RTR Read" "2 $plain S=1 80044006" "2 $plain S=1 80064004" "1 46" "${p2p[@]}" --rtr read
	# Given the choice, siw prefers the Write.
	connects "peer-to-peer, RTR Write or Read" "2 $plain S=1 8004c006" "2 $plain S=1 80068004" "0 14" \
		"${p2p[@]}" --rtr write,read
	connects "peer-to-peer, any RTR" "2 $plain S=1 c004c006" "2 $plain S=1 80068004" "0 14" \
		"${p2p[@]}" --rtr send,write,read
	connects "peer-to-peer, CRC" "2 M=0 C=1 R=0 S=1 80048006" "2 M=0 C=1 R=0 S=1 80068004" "0 14" \
		"${p2p[@]}" --rtr write --crc

	is_turned_down "markers, revision 1" "$rejected" "1 M=0 C=0 R=1 S=0 " --mpa-rev 1 --model cs --markers
	is_turned_down "markers, revision 2" "$rejected" "2 M=0 C=0 R=1 S=1 00000000" "${cs[@]}" --markers
	configure mpa_crc_strict Y
	is_turned_down "CRC where siw forbids it" "$rejected" "2 M=0 C=0 R=1 S=1 00000000" "${cs[@]}" --crc
	configure mpa_crc_strict N
}

# siw cannot take a Send as RTR; it answers with a Write, which was not on offer. A Terminate is what RFC 6581 then wants
# of the initiator, but Linux 6.1 as the responder cannot stand anything else than a good RTR: siw reports a
# DISCONNECT for a connection that was never established, and iw_cm stops the kernel (BUG in iwcm.c).
test_wrong_rtr() {
	guest_ensure
	guest_may_die=true
	is_turned_down "peer-to-peer, RTR Send" "$protocol_error" "2 M=0 C=0 R=0 S=1 80068004" \
		--mpa-rev 2 --model p2p --ird 4 --ord 6 --rtr send
}

# ---- siw connects to uwarp ------------------------------------------------------------------------------------

# listening PORT PID: whether PID, as long as it lives, comes to listen on PORT.
listening() {
	local end=$((SECONDS + 30))
	until grep -Eq ":$(printf %04X "$1") [0:]+ 0A" /proc/net/tcp /proc/net/tcp6; do
		[ $SECONDS -lt $end ] && kill -0 "$2" || return 1
		sleep 0.1
	done 2>/dev/null
}

# serve GUEST-SAYS STATUS RPINGS ARGS...: uwarp listens, that many rpings connect one after the other.
serve() {
	local says=$1 want_status=$2 rpings=$3 port status=0 i
	shift 3
	[[ " $* " == *" --crc "* ]] || set -- "$@" --no-crc
	port=$(free_port)
	echo "uwarp listen $* :$port" >"$uwarp_log"
	timeout -k 5 $((60 + 10 * rpings)) "$UWARP" listen --timeout 30 "$@" --count "$rpings" --pcap "$uwarp_pcap" \
		"$host_listen:$port" >>"$uwarp_log" 2>&1 </dev/null &
	local pid=$!
	want "a listener" listening "$port" "$pid"
	[ ${#broken[@]} -eq 0 ] || rpings=0
	for ((i = 0; i < rpings; i++)); do
		want "an rping" guest_bg rping "timeout 30 rping -c -v -d -C 1 -a $host_address -p $port"
		want "$says in the guest" guest_says rping "$says" 20
		guest_wait_log rping '^exit' 10 || guest_kill rping
	done
	wait "$pid" || status=$?
	echo "exit status $status, want $want_status" >>"$uwarp_log"
	[[ $status =~ ^($want_status)$ ]] || broken+=("exit status $want_status")
}

# accepts TITLE REQUEST REPLY FPDU ARGS...
accepts() {
	local request=$2 reply=$3 fpdu=$4
	begin "listen: $1" || return 0
	shift 4
	serve '^ESTABLISHED' "$established" 1 "$@"
	want "request $request" wire_has "req $request"
	want "reply $reply" wire_has "rep $reply"
	want "first FPDU $fpdu" wire_has "fpdu initiator $fpdu"
	want "equal captures" captures_agree
	end
}

# rejects TITLE REPLY ARGS...
rejects() {
	local reply=$2
	begin "listen: $1" || return 0
	shift 2
	# That nobody could be served is what was asked for.
	serve RDMA_CM_EVENT_REJECTED "$established|$rejected" 1 --reject "$@"
	want "reply $reply" wire_has "rep $reply"
	want "equal captures" captures_agree
	end
}

test_listen() {
	local plain='M=0 C=0 R=0' send='3 34' write='0 14' read='1 46'
	# rping asks for 1 and 1; a responder may offer more IRD, but not use more than ORD 1.
	local depth='000[1-4]0001' write_reply='800[1-4]8001' read_reply='800[1-4]4001'

	accepts "client-server" "2 $plain S=1 00010001" "2 $plain S=1 $depth" "$send" --ird 4 --ord 4
	accepts "private data" "2 $plain S=1 00010001" "2 $plain S=1 ${depth}68656c6c6f" "$send" \
		--ird 4 --ord 4 --private hello
	accepts "CRC by our wish" "2 $plain S=1 00010001" "2 M=0 C=1 R=0 S=1 $depth" "$send" --ird 4 --ord 4 --crc
	rejects "reject" "2 M=0 C=0 R=1 S=1 .*" --ird 4 --ord 4 --reject

	configure mpa_crc_required Y
	accepts "CRC by siw's wish" "2 M=0 C=1 R=0 S=1 00010001" "2 M=0 C=1 R=0 S=1 $depth" "$send" --ird 4 --ord 4
	configure mpa_crc_required N

	configure peer_to_peer Y
	accepts "peer-to-peer, RTR Write or Read" "2 $plain S=1 8001c001" "2 $plain S=1 ($write_reply|$read_reply)" \
		"($write|$read)" --ird 4 --ord 4
	accepts "peer-to-peer, we take only Read" "2 $plain S=1 8001c001" "2 $plain S=1 $read_reply" "$read" \
		--ird 4 --ord 4 --rtr read
	configure rtr_type 0x80
	accepts "peer-to-peer, siw offers only Write" "2 $plain S=1 80018001" "2 $plain S=1 $write_reply" "$write" \
		--ird 4 --ord 4
	configure rtr_type 0x40
	accepts "peer-to-peer, siw offers only Read" "2 $plain S=1 80014001" "2 $plain S=1 $read_reply" "$read" \
		--ird 4 --ord 4
	rejects "peer-to-peer, reject" "2 M=0 C=0 R=1 S=1 .*" --ird 4 --ord 4
	configure rtr_type 0xc0
	configure peer_to_peer N

	configure mpa_version 1
	accepts "revision 1" "1 $plain S=0 " "1 $plain S=0 " "$send" --ird 4 --ord 4
	# With private data: a bare revision 1 reject whose FIN is there already reads as end of file to siw, and its user
	# is told CONNECT_ERROR -22 instead of REJECTED.
	rejects "revision 1, reject" "1 M=0 C=0 R=1 S=0 .*" --private sorry
	configure mpa_version 2

	if begin "listen: three in a row"; then
		serve '^ESTABLISHED' "$established" 3 --ird 4 --ord 4
		end
	fi
}

# ---- nobody, or nobody that speaks MPA ------------------------------------------------------------------------

# fails TITLE STATUS ENDPOINT
fails() {
	begin "connect: $1" || return 0
	want "exit status $2" uwarp_exits "$2" connect --timeout 3 "$3"
	end
}

test_failures() {
	# In "user" slirp has accepted the connection before it learns that the guest does not.
	if [ "$SIW_NET" = tap ]; then
		fails "refused port" "$refused" "$(guest_endpoint 7177)"
		# The guest's card drops what is for this other Ethernet address.
		ip neighbour replace 10.99.0.9 lladdr 02:00:00:00:00:09 dev tap0
		fails "silent host" "$timed_out" 10.99.0.9:7174
	else
		skip "connect: refused port, silent host: SIW_NET=user cannot show them"
	fi

	guest_ensure
	guest_bg silent "nc -ll -p 7175 -e sleep 60"
	guest_bg garbage "nc -ll -p 7176 -e echo 'HTTP/1.1 400 Bad Request, and go away'"
	guest_run usleep 500000
	fails "port that never answers" "$timed_out" "$(guest_endpoint 7175)"
	fails "port that talks something else" "$protocol_error" "$(guest_endpoint 7176)"
	guest_kill silent
	guest_kill garbage

	guest_bg closing "nc -ll -p 7176 -e true"
	guest_run usleep 500000
	fails "port that closes at once" "$rejected|$refused|$protocol_error" "$(guest_endpoint 7176)"
	guest_kill closing
}

# ---- the peer itself, and what is left behind -----------------------------------------------------------------

test_guest() {
	begin "guest: rping to itself" || return 0
	want "a listening rping" start_rping_server
	want "data in both directions" guest_run "timeout 30 rping -c -v -C 2 -a $guest_address -p 7174" >"$uwarp_log"
	want "ESTABLISHED" guest_says rping '^ESTABLISHED'
	guest_kill rping
	end
}

lacks() {
	! grep -Eq "$1" "$2"
}

test_kernel_is_calm() {
	begin "guest: no complaints from its kernel" || return 0
	guest_run dmesg >"$uwarp_log"
	want "a log without traces" lacks 'WARNING:|BUG:|Oops|Call Trace' "$uwarp_log"
	end
}

# One file of many: they are put one behind the other, and tshark is asked once.
captures_are_sound() {
	mergecap -a -F nsecpcap -w "$siw_tmp/all.merged" "$@" 2>>"$uwarp_log" || return 1
	capture_is_sound "$siw_tmp/all.merged"
}

tshark_agrees() {
	mergecap -a -F nsecpcap -w "$siw_tmp/all.merged" "$@" 2>>"$uwarp_log" || return 1
	diff <(tshark_conversations "$siw_tmp/all.merged" | sort) <(/usr/bin/python3 -IS "$here/mpa_frames.py" all "$siw_tmp/all.merged" | sort) >>"$uwarp_log"
}

# Needs the guest no more. The wire without the data, which tshark would take minutes for.
test_captures() {
	begin "captures: nothing malformed, all checksums right" || return 0
	want "sound captures of uwarp's" captures_are_sound "$siw_tmp"/[0-9]*.pcap
	want "sound captures of the wire" captures_are_sound "$siw_tmp"/judged-*.wire
	end
	begin "captures: tshark reads the same frames" || return 0
	want "the same in uwarp's" tshark_agrees "$siw_tmp"/[0-9]*.pcap
	want "the same on the wire" tshark_agrees "$siw_tmp"/judged-*.wire
	end
}

siw_network "$@"
make_patient
! uwarp_can_run || guest_add "$UWARP" "${UWARP%/*}/libuwarp-shim.so" "$patient"
guest_start
test_guest
test_connect
test_listen
test_failures
wire_part 24 "$siw_tmp/judged-1.wire"
test_data
test_kernel_is_calm
wire_mark
mark=$wire_from
test_wrong_rtr # the guest may die of it
wire_part "$mark" "$siw_tmp/judged-2.wire"
test_captures
summary
