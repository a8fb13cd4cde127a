# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash disable=SC2154
#
# Data between uwarp and siw, for run.sh, which sources this: unmodified programs, one end on siw, the other under `uwarp run`.
#
# A place is where a program runs:
#
#     siw       in the guest, over the kernel's siw0
#     host      here, under `uwarp run`
#     guest     in the guest, under `uwarp run`, with siw0 beside it
#
# A setting is what is agreed on: MPA revision; connection model, cs or p2p, which the client chooses; CRC, which is on, off, or siw where it is siw
# that asks for it. Each has a port of its own in the guest, so that captures can be told apart.
#
# The peer, as tried with siw at both ends (Linux 6.1, rdma-core 44, perftest 4.5): all of these programs work in all forms that are
# used here, but for what is said where it is left out (SIW_REFERENCE=1 shows it again). rping takes -S from 23 to 65535: a single byte is left to
# ucmatose, rstream and perftest.

# The one place that knows how `uwarp run` is spelt, for the setting that is set. CRC is on if either side wants it.
uwarp_run() {
	local crc=--no-crc
	[ "$data_crc" != on ] || crc=--crc
	echo "run --mpa-rev $data_rev --model $data_model $crc --"
}

uwarp_can_run() {
	"$UWARP" run --help >/dev/null 2>&1
}

data_limit=30       # seconds a client may take: it needs two or three where the guest boots in ten
data_max_broken=6   # more broken tests than this, and the rest would only take time
data_broken=0

# ---- a program at a place -------------------------------------------------------------------------------------

# place_command PLACE COMMAND: how COMMAND, without single quotes, is run there.
place_command() {
	case $1 in
	siw) echo "$2" ;;
	host) echo "$UWARP $(uwarp_run) $2" ;;
	guest) echo "/opt/uwarp/uwarp $(uwarp_run) $2" ;;
	esac
}

# start_server PLACE COMMAND: returns when it listens on $data_port.
start_server() {
	local command
	command=$(place_command "$1" "$2")
	echo "server, $1: $command" >>"$uwarp_log"
	if [ "$1" = host ]; then
		# shellcheck disable=SC2086 # words
		timeout -k 2 $((3 * data_limit)) stdbuf -oL $command >"$server_log" 2>&1 </dev/null &
		server_pid=$!
		listening "$data_port" "$server_pid"
		return
	fi
	guest_bg server "timeout -s KILL $((3 * data_limit)) $command" &&
		guest_run "
			i=0
			until grep -Eq ':$(printf %04X "$data_port") [0:]+ 0A' /proc/net/tcp /proc/net/tcp6; do
				i=\$((i + 1))
				! grep -q '^exit' /run/server.log && [ \$i -lt 600 ] || exit 1
				usleep 50000
			done"
}

# Builds what perftest's clients are run with; guest_add takes it along.
make_patient() {
	siw_make_tmp
	patient=$siw_tmp/patient_connect.so
	gcc -D_GNU_SOURCE -O1 -Wall -Werror -shared -fPIC -o "$patient" "$here/patient_connect.c"
}

# patient PLACE: the word in front of perftest's client.
patient() {
	local file=$patient
	[ "$1" = host ] || file=/opt/uwarp/${file##*/}
	echo "env LD_PRELOAD=\$LD_PRELOAD:$file"
}

# client PLACE COMMAND
client() {
	local command status=0
	command=$(place_command "$1" "$2")
	[[ $2 != ib_* ]] || command="$(patient "$1") $command"
	echo "client, $1: $command" >>"$uwarp_log"
	if [ "$1" = host ]; then
		timeout -k 2 "$data_limit" stdbuf -oL bash -c "exec $command" >"$client_log" 2>&1 </dev/null || status=$?
	else
		SIW_RUN_SEC=$((data_limit + 30)) guest_run "timeout -s KILL $data_limit $command" >"$client_log" || status=$?
	fi
	echo "exit $status" >>"$client_log"
	return "$status"
}

# server_ends PLACE SECONDS: the server ends by itself when its client has; its exit status.
server_ends() {
	local status=0
	if [ "$1" = host ]; then
		local i
		for ((i = 0; i < 10 * $2; i++)); do
			kill -0 "$server_pid" 2>/dev/null || break
			sleep 0.1
		done
		kill "$server_pid" 2>/dev/null && echo "ended by the test" >>"$server_log"
		wait "$server_pid" || status=$?
		echo "exit $status" >>"$server_log"
		return "$status"
	fi
	guest_wait_log server '^exit' "$2" || guest_kill server
	guest_log server >"$server_log"
	grep -q '^exit 0' "$server_log"
}

# ---- what a program must have printed -------------------------------------------------------------------------

# count N REGEX FILE: that many lines match.
count() {
	[ "$(grep -Ec -- "$2" "$3")" -eq "$1" ]
}

# rping -v prints every message, but for its last byte: "rdma-ping-0: ABC..." up to -S, both ends the same.
rping_texts() {
	local size=$1 times=$2
	count "$times" "^ping data: rdma-ping-[0-9]+: " "$client_log" || return 1
	awk -v n=$((size - 1)) '/^ping data: / && length($0) != n + 11 { exit 1 }' "$client_log" || return 1
	diff <(sed -n 's/^ping data: //p' "$client_log") <(sed -n 's/^server ping data: //p' "$server_log") >/dev/null
}

# perftest's table has one line, which begins with the size and the number of iterations. It also tells the device: that of the NIC
# which belongs to the place, and not the other one. (Its figures are of no use here: under TCG it measures the clock badly.)
perftest_table() {
	local log
	for log in "$client_log" "$server_log"; do
		grep -Eq 'Transport type *: *IW' "$log" && grep -Eq 'Data ex. method *: *rdma_cm' "$log" || return 1
	done
	count 1 "^ $1 +$2 +" "$client_log"
}

# perftest_device PLACE LOG
perftest_device() {
	local device='uwarp_[a-z0-9]+'
	[ "$1" != siw ] || device=siw0
	grep -Eq "Device *: *$device\$" "$2"
}

# rstream's: name, bytes, xfers, iters. Both ends print it.
rstream_table() {
	count 1 "^custom +$1 +$2 +1 " "$client_log" && count 1 "^custom +$1 +$2 +1 " "$server_log"
}

# ---- one test -------------------------------------------------------------------------------------------------

# Every connection of the test was set up as its setting says.
wire_agrees() {
	local want=$data_rev,1
	[ "$data_crc" != off ] || want=$data_rev,0
	want+=,$([ "$data_model" = p2p ] && echo 1 || echo 0)
	wire_slice
	/usr/bin/python3 -IS "$here/mpa_frames.py" all "$siw_tmp/$number.wire" | awk -v want="$want" '
		$1 == "req" { rev = $2; crc = /C=1/; p2p = /S=1 [89a-f]/; n++ }
		$1 == "rep" { if (/C=1/) crc = 1; if (rev "," crc "," p2p != want || rev != $2 || /R=1/) bad = 1; replies++ }
		END { exit bad || !n || n != replies }'
}

# data TITLE SERVER-PLACE CLIENT-PLACE SERVER CLIENT CHECK...: CHECK is a command that looks at what both printed.
#
# siw loses a completion event now and then, and a program that waits for it then waits for ever: siw at both ends shows it, too. So
# where siw takes part, and a program had to be ended, there are a second and a third try, and the result says so. So there are when perftest's own race
# strikes in spite of patient_connect.c; and when siw reports perftest's last Send, which the peer has got, as IBV_WC_LOC_QP_OP_ERR because the peer has answered it
# and closed in order before siw completed it.
data() {
	local server=$2 client=$3 try
	[ "$data_broken" -le "$data_max_broken" ] || return 0
	begin "data: $server <- $client, revision $data_rev, $data_model, CRC $data_crc: $1" || return 0
	server_log=$siw_tmp/$number.server
	client_log=$siw_tmp/$number.client
	: >"$uwarp_log"
	apply_setting
	attempt "$@"
	for try in second third; do
		if [ ${#broken[@]} -eq 0 ] || ! deserves_another_try "$server" "$client"; then
			break
		fi
		echo "$try try" >>"$uwarp_log"
		title="${title% (* try)} ($try try)"
		broken=()
		attempt "$@"
	done
	[ ${#broken[@]} -eq 0 ] || data_broken=$((data_broken + 1))
	end
	[ "$data_broken" -le "$data_max_broken" ] || echo "siw: $data_broken tests with data are broken: no more of them" >&2
}

deserves_another_try() {
	guest_alive || return 1
	! grep -Eq 'RDMA_CM_EVENT_REJECTED; error: -111|^ERRNO: Connection refused' "$client_log" || return 0
	[[ $1 == siw || $2 == siw ]] || return 1
	{ [ "$1" = siw ] && siw_forgot_a_send "$server_log"; } || { [ "$2" = siw ] && siw_forgot_a_send "$client_log"; } ||
		grep -Eq '^exit (124|137)$' "$client_log"
}

siw_forgot_a_send() {
	grep -Eq '^ Bad wc status 2$' "$1" && grep -Eq '^Failed to close connection between server and client' "$1"
}

attempt() {
	local what=$1 server=$2 client=$3 server_command=$4 client_command=$5
	shift 5
	: >"$server_log"
	: >"$client_log"
	wire_mark
	want "a server that listens" start_server "$server" "$server_command"
	if [ ${#broken[@]} -eq 0 ]; then
		want "exit status 0 of the client" client "$client" "$client_command"
	fi
	# One that nobody has been served by need not be waited for.
	want "exit status 0 of the server" server_ends "$server" $((${#broken[@]} ? 1 : 20))
	if [ ${#broken[@]} -eq 0 ]; then
		want "what $what should print" "$@"
		if [[ $what == ib_* ]]; then
			want "the server's device" perftest_device "$server" "$server_log"
			want "the client's device" perftest_device "$client" "$client_log"
		fi
		# Inside the guest there is no wire.
		[[ $server != host && $client != host ]] || want "connections of this setting" wire_agrees
	fi
	if [ ${#broken[@]} -gt 0 ]; then
		wire_slice
		{ echo "client:"; cut -c 1-200 "$client_log"; echo "server:"; cut -c 1-200 "$server_log"; } >>"$uwarp_log"
	fi
}

# ---- the programs ---------------------------------------------------------------------------------------------

# programs SERVER-PLACE CLIENT-PLACE full|short|few: everything between these two, in the setting that is set. short is what has to work everywhere;
# few for places which differ from others by the loopback device only.
programs() {
	local server=$1 client=$2 how=$3 at bind='' size p n s
	case $server in
	host)
		data_port=$(free_port)
		at="$host_address"
		bind=$host_listen
		;;
	*)
		data_port=$data_guest_port
		at=$guest_address
		bind=$guest_address
		if [ "$client" = host ] && [ "$SIW_NET" = user ]; then
			at=127.0.0.1
		fi
		;;
	esac
	# The port by which a client reaches it: not the same behind slirp's forwarding.
	p=$data_port
	if [ "$client" = host ]; then
		p=$(guest_endpoint "$data_port")
		p=${p##*:}
	fi
	s="-p $data_port"

	# siw tells a program that accepts a connection of revision 1 that IRD and ORD are 0; rping takes these values, and cannot Read.
	if [ "$data_rev/$server" != 1/siw ]; then
		for size in $([ "$how" = few ] || echo 23 4096) 65535; do
			data "rping -S $size" "$server" "$client" "rping -s -a $bind $s -V -v -C 5 -S $size" \
				"rping -c -a $at -p $p -V -v -C 5 -S $size" rping_texts "$size" 5
		done
	fi
	data "ucmatose" "$server" "$client" "ucmatose -b $bind $s -C 10 -S 4096" "ucmatose -s $at -p $p -C 10 -S 4096" \
		ucmatose_transfers
	data "rstream" "$server" "$client" "rstream -b $bind $s -S 65536 -C 20 -T v" \
		"rstream -s $at -p $p -S 65536 -C 20 -T v" rstream_table 64k 20
	for n in send $([ "$how" = few ] || echo write read); do
		data "ib_${n}_bw" "$server" "$client" "ib_${n}_bw -R -F $s -s 65536 -n 30" \
			"ib_${n}_bw -R -F -p $p -s 65536 -n 30 $at" perftest_table 65536 30
	done
	[ "$how" = full ] || return 0
	for n in send write read; do
		data "ib_${n}_lat, one byte" "$server" "$client" "ib_${n}_lat -R -F $s -s 1 -n 50" \
			"ib_${n}_lat -R -F -p $p -s 1 -n 50 $at" perftest_table 1 50
	done
	data "ucmatose, one byte" "$server" "$client" "ucmatose -b $bind $s -C 2 -S 1" "ucmatose -s $at -p $p -C 2 -S 1" \
		ucmatose_transfers
	data "rstream, one byte" "$server" "$client" "rstream -b $bind $s -S 1 -C 100 -T v" \
		"rstream -s $at -p $p -S 1 -C 100 -T v" rstream_table 1 100
	data "ib_write_bw, 1 MiB" "$server" "$client" "ib_write_bw -R -F $s -s 1048576 -n 5" \
		"ib_write_bw -R -F -p $p -s 1048576 -n 5 $at" perftest_table 1048576 5
	data "ib_send_bw, both ways" "$server" "$client" "ib_send_bw -R -F $s -s 4096 -n 50 -b" \
		"ib_send_bw -R -F -p $p -s 4096 -n 50 -b $at" perftest_table 4096 50
	data "ib_write_bw, 3 QPs" "$server" "$client" "ib_write_bw -R -F $s -s 4096 -n 30 -q 3" \
		"ib_write_bw -R -F -p $p -s 4096 -n 30 -q 3 $at" perftest_table 4096 90
	data "ib_read_bw, one outstanding" "$server" "$client" "ib_read_bw -R -F $s -s 4096 -n 30 -o 1" \
		"ib_read_bw -R -F -p $p -s 4096 -n 30 -o 1 $at" perftest_table 4096 30
}

# ucmatose counts the completions of each connection's messages, and says so only in the end.
ucmatose_transfers() {
	local log text
	for log in "$client_log" "$server_log"; do
		for text in 'data transfers complete' 'test complete' 'return status 0'; do
			count 1 "^$text\$" "$log" || return 1
		done
	done
}

# setting REV MODEL CRC GUEST-PORT
setting() {
	data_rev=$1
	data_model=$2
	data_crc=$3
	data_guest_port=$4
}

# Only when a test needs it: a guest that no test needs is not booted.
apply_setting() {
	local required=N p2p=N
	[ "$data_crc" != siw ] || required=Y
	[ "$data_model" != p2p ] || p2p=Y
	[ "${siw_parameter[mpa_version]:-2}" = "$data_rev" ] || guest_siw mpa_version "$data_rev"
	[ "${siw_parameter[mpa_crc_required]:-N}" = "$required" ] || guest_siw mpa_crc_required "$required"
	[ "${siw_parameter[peer_to_peer]:-N}" = "$p2p" ] || guest_siw peer_to_peer "$p2p"
}

# In the guest `uwarp run` shows its own devices and no others, and without it siw0 is there as before.
test_guest_devices() {
	begin "data: devices in the guest" || return 0
	guest_run "$(place_command guest ibv_devices)" >"$uwarp_log"
	want "uwarp's under uwarp run" grep -q 'uwarp_eth0' "$uwarp_log"
	want "no siw0 there" lacks 'siw' "$uwarp_log"
	guest_run ibv_devices >>"$uwarp_log"
	want "siw0 without" grep -q 'siw0' "$uwarp_log"
	end
}

# How many QPs siw has made: its debug messages tell.
siw_qps() {
	guest_run "grep -q ' /sys/kernel/debug ' /proc/mounts || mount -t debugfs debugfs /sys/kernel/debug
		echo 'module siw func siw_create_qp +p' >/sys/kernel/debug/dynamic_debug/control
		dmesg | grep -c 'siw_create_qp: create new QP'" || true
}

# perftest says which device it uses; the others do not. What ran under `uwarp run` has made no QP with siw; rping without it does.
test_siw_had_no_part() {
	begin "data: guest <- guest: siw had no part in it" || return 0
	local count
	count=$(siw_qps)
	echo "QPs of siw: $siw_qps_before before, $count after" >"$uwarp_log"
	want "no new QP of siw's" [ "$count" = "$siw_qps_before" ]
	guest_run "rping -s -C 1 -a $guest_address -p 7399 & usleep 500000; rping -c -C 1 -a $guest_address -p 7399; wait" >>"$uwarp_log"
	want "two of them without uwarp run" [ "$(siw_qps)" = $((count + 2)) ]
	end
}

# What fits into the rest of a minute; that the rest is not run is said.
test_some_data() {
	setting 2 p2p off 7174
	test_guest_devices
	programs guest guest few
	programs siw host few
	setting 1 cs on 7176
	programs siw host few
	setting 2 cs off 7174
	programs host siw few
	skip "data: the other settings and programs: make check-siw-data has them"
}

test_data() {
	# A busy machine is no reason to end programs, though it takes longer then to see that one hangs.
	[ $((3 * guest_boot_seconds)) -le "$data_limit" ] || data_limit=$((3 * guest_boot_seconds))
	if [ "${SIW_REFERENCE:-0}" = 1 ]; then
		setting 2 cs off 7174
		programs siw siw full
		setting 1 cs siw 7177
		programs siw siw short
	fi
	if ! uwarp_can_run; then
		skip "data: this uwarp has no command \"run\" yet"
		return 0
	fi

	if [ "${SIW_DATA:-some}" = some ]; then
		test_some_data
		return
	fi

	# uwarp and siw under the same kernel.
	setting 2 p2p off 7174
	test_guest_devices
	guest_ensure
	siw_qps_before=$(siw_qps)
	programs guest guest short
	setting 1 cs on 7174
	programs guest guest short
	setting 2 p2p off 7174
	test_siw_had_no_part
	programs siw guest few
	programs guest siw few

	programs siw host full
	setting 2 cs on 7175
	programs siw host short
	# siw as the responder does not ask for CRC, even where it is told to require it.
	setting 1 cs on 7176
	programs siw host short
	setting 1 cs off 7177
	programs siw host short

	programs host siw short
	setting 1 cs siw 7174
	programs host siw short
	setting 2 cs off 7174
	programs host siw full
	setting 2 p2p on 7174
	programs host siw short
	setting 2 cs off 7174
}
