#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# attack.sh BUILD: the attacks of tests/ in their long form: a million SYNs while honest clients connect, floods of connections that say nothing, segments of
# strangers, peers that exhaust, 100,000 connections opened and closed. BUILD is built.
set -euo pipefail
build=${1:-build}
tests=(test_cm_flood test_attack_host test_attack_data test_cm_cookie test_cm_packet test_tsa test_rnic_hostile)
status=0

for test in "${tests[@]}"; do
	echo "== $test"
	UWARP_ATTACK_LONG=1 UWARP_SOURCE=$PWD "$build/tests/$test" || status=1
done
((status == 0)) && echo "all attacks were withstood"
exit "$status"
