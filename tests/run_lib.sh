# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# For the scripts sys_run_*.sh, which source it; lib.sh is part of it. Programs of Debian's, unmodified, with `uwarp run` in front, talking to each other over 127.0.0.1 and
# ::1, or in a network namespace that the script made (run_in_namespace). What they print is judged.
#
#   UWARP          the command under test (default build/uwarp); the shim is beside it
#   run_options    an array: options of `uwarp run`
#   limit          seconds after which a program is ended

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# need TOOL...
need() {
	local tool
	for tool; do
		command -v "$tool" > /dev/null || { echo "$tool is missing"; exit 1; }
	done
}

# A network namespace with lo and a pair of Ethernet interfaces, e0 (192.0.2.1, 2001:db8::1) and e1 (no address): for programs that leave the loopback
# interface out. The script starts again in it.
run_in_namespace() {
	if [[ -z ${UWARP_NETNS:-} ]]; then
		need unshare ip
		unshare --user --map-root-user --net true 2> /dev/null || { echo "network namespaces cannot be made here"; exit 77; }
		UWARP_NETNS=1 exec unshare --user --map-root-user --net bash "$0" "$@"
	fi
	ip link set lo up
	ip link add e0 type veth peer name e1
	ip link set e0 up
	ip link set e1 up
	ip addr add 192.0.2.1/24 dev e0
	ip addr add 2001:db8::1/64 dev e0 nodad
}

need ss timeout
declare -A pid_of=() status_of=()
run_options=()
limit=60

# What has left its session, as fio's jobs do, is known by its environment.
export UWARP_TEST_RUN=$tmp
left_over() { grep -lzxF "UWARP_TEST_RUN=$tmp" /proc/[0-9]*/environ 2> /dev/null | cut -d/ -f3 | grep -vx "$$"; }

clean_up() {
	local name pid
	for name in "${!pid_of[@]}"; do
		kill "${pid_of[$name]}" 2> /dev/null
	done
	wait
	for pid in $(left_over); do
		kill -KILL "$pid" 2> /dev/null
	done
}

# Each test has logs of its own.
begin() {
	title=$1
	problems=()
	clear_logs
}

# A program's own error, and not a signal or the end of its time.
is_error() { (($1 && $1 < 124 || $1 == 255)); }
# Is the shim built with AddressSanitizer?
sanitized() { [[ $(nm -D --undefined-only "$(dirname "$UWARP")/libuwarp-shim.so" 2> /dev/null) == *__asan_init* ]]; }

less() { (($1 < $2)); }
count() { grep -cE -- "$2" "$tmp/$1"; }

# A port number that nobody uses, below those that the kernel gives away itself.
next_port=$((15000 + RANDOM % 10000))
free_port() {
	for ((next_port++; ; next_port++)); do
		[[ -z $(ss -Htan "sport = :$next_port") ]] && break
	done
	port=$next_port
}

listening() { [[ -n $(ss -Htln "sport = :$port") ]]; }

# start NAME PROGRAM ARG...: under uwarp, in the background; its output goes to NAME.out and NAME.err.
start() {
	local name=$1
	shift
	timeout -k 5 "$limit" "$UWARP" run "${run_options[@]}" -- "$@" > "$tmp/$name.out" 2> "$tmp/$name.err" < /dev/null &
	pid_of[$name]=$!
}

# start_server NAME PROGRAM ARG...: until something listens on $port.
start_server() {
	local _
	start "$@"
	for _ in $(seq 200); do
		listening && return
		kill -0 "${pid_of[$1]}" 2> /dev/null || { listening && return; break; } # it may have become a daemon
		sleep 0.05
	done
	problems+=("$1 to listen on port $port")
	return 1
}

# rping at its end: the main thread closes the channel and returns 0 while the event thread, if it is slow, asks for the next event, finds the channel closed (or its memory freed) and ends the process
# with -1. All is done by then, and a kernel's device gives the same answer.
asked_too_late() { tail -n 1 "$tmp/$1.err" | grep -qE "^rdma_get_cm_event: (Bad file descriptor|Invalid argument)$"; }

# join NAME: waits for its end; its status goes to status_of.
join() {
	status_of[$1]=0
	wait "${pid_of[$1]}" || status_of[$1]=$?
	unset "pid_of[$1]"
	if ((status_of[$1] == 255)) && asked_too_late "$1"; then
		status_of[$1]=0
	fi
}

# stop NAME: what runs until it is ended.
stop() {
	kill "${pid_of[$1]}" 2> /dev/null
	wait "${pid_of[$1]}" 2> /dev/null
	unset "pid_of[$1]"
}

# run NAME PROGRAM ARG...: under uwarp, to its end.
run() {
	start "$@"
	join "$1"
}

# both: the server's and the client's status are 0.
both_succeed() {
	want "the client's status 0, not ${status_of[client]}" is "${status_of[client]}" 0
	want "the server's status 0, not ${status_of[server]}" is "${status_of[server]}" 0
}
