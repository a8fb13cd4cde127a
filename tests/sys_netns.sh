#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# The uwarp command between two network namespaces. Needs root; skipped without.
#
#     namespace a                              namespace b
#
#     va   10.77.0.1/24  fd77::1/64  --veth--  vb   10.77.0.2/24  fd77::2/64   connects a -> b, listens in b
#     va.5 10.78.0.1/24              --VLAN--  vb.5 10.78.0.2/24            if this kernel has VLANs
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"

a=uwarp-a-$$
b=uwarp-b-$$
clean_up() {
	ip netns del $a 2> /dev/null
	ip netns del $b 2> /dev/null
}

((EUID == 0)) || skip "network namespaces need root"
command -v ip > /dev/null || skip "there is no ip command (Debian: iproute2)"
ip netns add $a 2> /dev/null && ip netns add $b || skip "network namespaces cannot be made here"

in_a() { ip netns exec $a "$@"; }
in_b() { ip netns exec $b "$@"; }

set_up() {
	ip link add va netns $a type veth peer name vb netns $b || return
	in_a ip link set lo up && in_b ip link set lo up
	in_a ip address add 10.77.0.1/24 dev va
	in_b ip address add 10.77.0.2/24 dev vb
	in_a ip address add fd77::1/64 dev va nodad
	in_b ip address add fd77::2/64 dev vb nodad
	in_a ip link set va up && in_b ip link set vb up
}

# add_vlan ID: 10.(73+ID).0.1 and .2.
add_vlan() {
	in_a ip link add link va name "va.$1" type vlan id "$1" 2> /dev/null || return
	in_b ip link add link vb name "vb.$1" type vlan id "$1" 2> /dev/null || return
	in_a ip address add "10.$((73 + $1)).0.1/24" dev "va.$1"
	in_b ip address add "10.$((73 + $1)).0.2/24" dev "vb.$1"
	in_a ip link set "va.$1" up
	in_b ip link set "vb.$1" up
}

set_up || skip "veth interfaces cannot be made here"
for _ in $(seq 100); do
	[[ $(in_a ip -br link show va) == *UP* && $(in_b ip -br link show vb) == *UP* ]] && break
	sleep 0.05
done
have_vlans=false
add_vlan 5 && have_vlans=true

# start_listen ARGS... ADDR:PORT, in b.
start_listen() {
	clear_logs
	ip netns exec $b "$UWARP" listen "$@" > "$tmp/listen.out" 2>&1 < /dev/null &
	listener=$!
	pids+=("$listener")
	wait_for listen.out '^listening'
}

end_listen() {
	kill -INT "$listener" 2> /dev/null
	listen_status=0
	wait "$listener" || listen_status=$?
}

# connects STATUS ARGS...: from a.
connects() {
	local want_status=$1 status=0
	shift
	timeout -k 5 60 ip netns exec $a "$UWARP" connect "$@" > "$tmp/connect.out" 2>&1 < /dev/null || status=$?
	want "status $want_status of connect $*, not $status" matches "$status" "$want_status"
}

# start_connect ARGS...: in the background; it is up when this returns.
start_connect() {
	ip netns exec $a "$UWARP" connect "$@" > "$tmp/connect.out" 2>&1 < /dev/null &
	connector=$!
	pids+=("$connector")
	wait_for connect.out '^established'
}

end_connect() {
	connect_status=0
	wait "$connector" || connect_status=$?
}

link_local() {
	in_b ip -6 -o address show dev vb scope link | sed -n 's|.* inet6 \([^/]*\)/.*|\1|p'
}

wait_link_local() {
	local _
	for _ in $(seq 100); do
		[[ -n $(in_b ip -6 -o address show dev vb scope link -tentative) ]] && [[ -n $(in_a ip -6 -o address show dev va scope link -tentative) ]] && return
		sleep 0.05
	done
	return 1
}

# ---- the tests ----------------------------------------------------------------------------------------------------

test_addresses() {
	begin "devices: one per interface"
	in_b "$UWARP" devices > "$tmp/listen.out"
	want "uwarp_vb" has listen.out '^uwarp_vb +vb +up .* 10\.77\.0\.2$'
	want "its other address" has listen.out ' fd77::2$'
	end

	begin "connect: IPv4, IPv6, link-local"
	want "a listener" start_listen -v :7174
	want "link-local addresses" wait_link_local
	connects 0 10.77.0.2:7174
	connects 0 '[fd77::2]:7174'
	connects 0 "[$(link_local)%va]:7174"
	connects 0 --bind 10.77.0.1 10.77.0.2:7174
	connects 2 10.77.0.2:7175
	end_listen
	want "listen status 0" is "$listen_status" 0
	want "four connections" has listen.out '^    established +4$'
	end

	begin "listener on one address: the others refuse"
	want "a listener" start_listen 10.77.0.2:7174
	connects 0 10.77.0.2:7174
	connects 2 '[fd77::2]:7174'
	end_listen
	end
}

test_vlans() {
	begin "VLAN: connect, devices"
	$have_vlans || { skip "this kernel has no VLANs"; return; }
	want "a listener" start_listen :7174
	connects 0 10.78.0.2:7174
	in_b "$UWARP" devices > "$tmp/connect.out"
	want "its address at the NIC below" has connect.out '10\.78\.0\.2$'
	want "no NIC of its own" hasnt connect.out 'vb\.5'
	end_listen
	want "listen status 0" is "$listen_status" 0
	end

	begin "VLAN: comes and goes while a wildcard listener runs"
	want "a listener" start_listen :7174
	want "a VLAN" add_vlan 6
	sleep 0.5
	connects 0 10.79.0.2:7174
	in_b ip link del vb.6
	in_a ip link del va.6
	sleep 0.2
	connects 0 10.78.0.2:7174
	end_listen
	want "listen status 0" is "$listen_status" 0
	end
}

test_changes() {
	begin "wildcard listener: an address comes and goes"
	want "a listener" start_listen :7174
	in_b ip address add 10.77.0.3/24 dev vb
	in_b ip address add fd77::3/64 dev vb nodad
	sleep 0.3
	connects 0 10.77.0.3:7174
	connects 0 '[fd77::3]:7174'
	in_b ip address del 10.77.0.3/24 dev vb
	in_b ip address del fd77::3/64 dev vb
	sleep 0.3
	connects '3|5' --timeout 1 10.77.0.3:7174
	connects 0 10.77.0.2:7174
	in_b ip address add 10.77.0.3/24 dev vb
	sleep 0.3
	connects 0 10.77.0.3:7174
	in_b ip address del 10.77.0.3/24 dev vb
	end_listen
	want "listen status 0" is "$listen_status" 0
	end

	begin "wildcard listener: an interface comes and goes"
	want "a listener" start_listen :7174
	ip link add vc netns $a type veth peer name vd netns $b
	in_a ip address add 10.76.0.1/24 dev vc
	in_b ip address add 10.76.0.2/24 dev vd
	in_a ip link set vc up
	in_b ip link set vd up
	sleep 0.5
	connects 0 10.76.0.2:7174
	in_b "$UWARP" devices > "$tmp/connect.out"
	want "its NIC" has connect.out '^uwarp_vd '
	in_b ip link del vd
	sleep 0.3
	connects 0 10.77.0.2:7174
	end_listen
	want "listen status 0" is "$listen_status" 0
	end
}

# Connections whose ground is pulled away are told so.
test_losses() {
	begin "address removed under a connection"
	in_b ip address add 10.77.0.4/24 dev vb
	want "a listener" start_listen -v :7174
	sleep 0.2
	want "a connection" start_connect --hold 60 --timeout 60 10.77.0.4:7174
	in_b ip address del 10.77.0.4/24 dev vb
	want "the listener's side is told" wait_for listen.out '^disconnected'
	kill -INT "$connector"
	end_connect
	want "connect status 0 (it was established), not $connect_status" is "$connect_status" 0
	connects 0 10.77.0.2:7174
	end_listen
	end

	begin "link down in mid-connection, and up again"
	want "a listener" start_listen -v :7174
	want "a connection" start_connect --hold 3 --timeout 60 10.77.0.2:7174
	# A zero-length Write that is on its way would be sent again, and be answered with a reset, before the FIN.
	want "what is sent after the set-up to be through" wait_for connect.out '-- RDMA Write, 0 bytes -' 3
	sleep 0.2
	in_b ip link set vb down
	want "the listener's side is told" wait_for listen.out '^disconnected'
	want "the other one, whose carrier alone is gone, is not" hasnt connect.out '^disconnected'
	in_b ip link set vb up
	want "it learns when it says its FIN" wait_for connect.out '^disconnected'
	end_connect
	want "connect status 0 (it was established), not $connect_status" is "$connect_status" 0
	in_b ip address replace fd77::2/64 dev vb nodad
	sleep 0.5
	connects 0 10.77.0.2:7174
	connects 0 '[fd77::2]:7174'
	end_listen
	want "listen status 0" is "$listen_status" 0
	end
}

test_unreachable() {
	begin "nobody there"
	connects '3|5' --timeout 2 10.77.0.99:7174
	end

	begin "no route"
	connects 5 --timeout 2 10.99.0.1:7174
	in_a ip route add unreachable 10.98.0.0/24
	connects 5 --timeout 2 10.98.0.1:7174
	end

	begin "the answer is lost"
	want "a listener" start_listen :7174
	in_b ip route add blackhole 10.77.0.1/32
	connects 3 --timeout 2 10.77.0.2:7174
	want "the SYN" has connect.out 'nobody answers our SYN'
	in_b ip route del blackhole 10.77.0.1/32
	connects 0 10.77.0.2:7174
	end_listen
	end
}

test_addresses
test_vlans
test_changes
test_losses
test_unreachable
finish
