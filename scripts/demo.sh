#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# demo.sh DIR: iWARP connections over loopback as both ends see them: one that is accepted, one that is rejected, one
# that is refused. Status 0 if all three went that way.
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

# The other end of it.
show_listener() {
	local status=0
	wait "$listener" || status=$?
	listener=
	title "$1"
	printf '$ uwarp listen --count 1 %s\n' "$2"
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

title "all three went as they should"
