#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# demo.sh DIR: iWARP connections over loopback as both ends see them: one that is accepted, one that is rejected, one
# that is refused; and rping, an RDMA program that knows nothing of uwarp. Status 0 if all went that way.
set -uo pipefail

uwarp=$1/uwarp
tmp=$(mktemp -d)
listener=
trap '[[ -z $listener ]] || kill "$listener" 2> /dev/null; rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

title() {
	printf '\n==== %s\n' "$*"
}

fail() {
	echo "demo: $*" >&2
	[[ ! -s $tmp/listen ]] || cat "$tmp/listen" >&2
	exit 1
}

# start_listener ARG...: in the background; the port that it chose goes to $port.
start_listener() {
	"$uwarp" listen --count 1 --timeout 60 "$@" 127.0.0.1:0 > "$tmp/listen" 2>&1 &
	listener=$!
	local _
	for _ in $(seq 100); do
		port=$(sed -nE 's/^listening on .*:([0-9]+)(, to reject)?$/\1/p' "$tmp/listen")
		[[ -z $port ]] || return 0
		sleep 0.1
	done
	fail "the listener does not start"
}

# connect STATUS ARG...: what it prints, and whether it ends with this status.
connect() {
	local want=$1 status=0
	shift
	local arg line='$ uwarp connect'
	for arg; do
		[[ $arg != *' '* ]] || arg="'$arg'"
		line+=" $arg"
	done
	echo "$line"
	"$uwarp" connect --timeout 60 "$@" || status=$?
	echo "(exit status $status)"
	((status == want)) || fail "connect ended with $status, not with $want"
}

# show_listener TITLE OPTIONS [COMMAND]: the other end of it.
show_listener() {
	local status=0
	wait "$listener" || status=$?
	listener=
	title "$1"
	echo "\$ ${3:-uwarp listen --count 1 $2}"
	cat "$tmp/listen"
	echo "(exit status $status)"
	((status == 0)) || fail "listen ended with $status"
}

title "accepted: the end that connects"
start_listener --private 'hello from the listener'
connect 0 --private 'hello from the connector' "127.0.0.1:$port"
show_listener "accepted: the end that listens" "--private 'hello from the listener' 127.0.0.1:$port"

title "rejected"
start_listener --reject --private 'not today'
connect 1 "127.0.0.1:$port"
show_listener "rejected: the end that listens" "--reject --private 'not today' 127.0.0.1:$port"

title "refused: nobody listens there any more"
connect 2 "127.0.0.1:$port"

# What rping -v prints, and what uwarp has counted. A server on a port that somebody has taken meanwhile says so at once: on to the next one.
title "rping, unmodified: the end that connects"
for port in $(shuf -i 20000-29999 -n 5); do
	timeout 60 stdbuf -oL "$uwarp" run --stats -- rping -s -a 127.0.0.1 -p "$port" -v -C 3 > "$tmp/listen" 2>&1 &
	listener=$!
	for _ in $(seq 100); do
		[[ -z $(ss -Htln "sport = :$port") ]] || break 2
		kill -0 "$listener" 2> /dev/null || break
		sleep 0.1
	done
done
echo "\$ uwarp run --stats -- rping -c -a 127.0.0.1 -p $port -v -C 3"
status=0
timeout 60 stdbuf -oL "$uwarp" run --stats -- rping -c -a 127.0.0.1 -p "$port" -v -C 3 > "$tmp/ping" 2>&1 || status=$?
cat "$tmp/ping"
echo "(exit status $status)"
show_listener "rping, unmodified: the end that listens" "" "uwarp run --stats -- rping -s -a 127.0.0.1 -p $port -v -C 3"
((status == 0)) || fail "rping ended with $status"
(($(grep -c '^ping data: rdma-ping-' "$tmp/ping") == 3)) || fail "rping did not print three pings"

title "all went as they should"
