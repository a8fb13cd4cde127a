#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# libfabric over uwarp: its verbs provider, unmodified, found by fi_info and driven by fi_pingpong, alone (msg) and under ofi_rxm (rdm).
#
#     fi_pingpong (server)  <---- 192.0.2.1, in a network namespace ---->  fi_pingpong (client)
#
# The provider leaves the interface "lo" out. Debian does not package fabtests (fi_rma_bw).
set -uo pipefail
. "$(dirname "$0")/run_lib.sh"
need fi_pingpong fi_info
run_in_namespace "$@"
# Given no address, libfabric binds to that of localhost and keeps the endpoints of the device that it gets, if that is not on the interface "lo".
ip addr del 127.0.0.1/8 dev lo
ip addr add 127.0.0.1/8 dev e0
run_options=(--ifaces e0)

begin "fi_info finds the verbs provider's endpoints"
run info fi_info -p verbs
want "status 0, not ${status_of[info]}" is "${status_of[info]}" 0
want "uwarp's device in it" has info.out 'domain: uwarp_e0'
want "a reliable endpoint" has info.out 'type: FI_EP_MSG'
want "iWARP" has info.out 'protocol: FI_PROTO_IWARP'
end

# pingpong PROVIDER ENDPOINT OPTION...
pingpong() {
	local provider=$1 endpoint=$2
	shift 2
	begin "fi_pingpong -p $provider -e $endpoint $*"
	free_port
	start_server server fi_pingpong -p "$provider" -e "$endpoint" -B "$port" "$@"
	run client fi_pingpong -p "$provider" -e "$endpoint" -P "$port" "$@" 192.0.2.1
	join server
	both_succeed
	want "a row of results" has client.out '^[0-9]+[kmg]? +[0-9]+[kmg]? +=?[0-9]+[kmg]? '
	want "no complaint" hasnt client.err '.'
	want "no complaint of the server" hasnt server.err '.'
	end
}

pingpong verbs msg -I 50 -c
pingpong verbs msg -I 50 -S 4096 -c
pingpong verbs msg -I 20 -S all -c
pingpong 'verbs;ofi_rxm' rdm -I 50 -c
pingpong 'verbs;ofi_rxm' rdm -I 20 -S all -c
pingpong 'verbs;ofi_rxm' rdm -I 50 -m tagged -c
run_options=(--ifaces e0 --no-crc)
pingpong verbs msg -I 20 -S all -c

finish
