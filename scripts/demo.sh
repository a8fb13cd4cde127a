#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# demo.sh DIR: an iWARP connection over loopback, set up and torn down, as both ends see it.
set -euo pipefail

uwarp=$1/uwarp
log=$(mktemp -d)
trap 'kill "$listener" 2> /dev/null || true; rm -rf "$log"' EXIT

# A port that is free now. Whoever takes it in between makes the demo fail with "address in use", and is seen.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])' 2> /dev/null ||
	echo 20079)

"$uwarp" listen --count 1 --private 'hello from the listener' "127.0.0.1:$port" > "$log/listen" 2>&1 &
listener=$!
for _ in $(seq 50); do
	[[ -s $log/listen ]] && break
	sleep 0.1
done

echo "\$ uwarp connect --private 'hello from the connecting end' 127.0.0.1:$port"
status=0
"$uwarp" connect --private 'hello from the connecting end' "127.0.0.1:$port" || status=$?
wait "$listener" || status=$?
echo
echo "\$ uwarp listen --count 1 --private 'hello from the listener' 127.0.0.1:$port"
cat "$log/listen"
exit "$status"
