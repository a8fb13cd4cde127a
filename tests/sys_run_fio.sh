#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# fio's rdma engine over uwarp, unmodified, over 127.0.0.1: a client that writes to, reads from and sends to a server.
set -uo pipefail
. "$(dirname "$0")/run_lib.sh"
need fio python3
fio --enghelp 2> /dev/null | grep -qw rdma || { echo "fio without its rdma engine"; exit 1; }

run_options=(--ifaces lo)
limit=30

# What the job says of itself: its error, and that it moved $2 bytes by $3 ("write" or "read").
job_is_right() {
	python3 - "$tmp/$1" "$2" "$3" << 'END'
import json, sys
path, size, way = sys.argv[1:]
text = open(path).read()
job = json.loads(text[text.index("{"):])["jobs"][0]
sys.exit(job["error"] != 0 or job[way]["io_bytes"] != int(size) or job[way]["bw_bytes"] <= 0)
END
}

# Clients always write: with read, fio would be the server. The server of Sends has a receive for each from the start: iWARP has no RNR to tell a sender that there is
# none at the moment, it ends the connection.
#
# fio_pair VERB WAY-OF-CLIENT BLOCK SIZE OPTION...
fio_pair() {
	local verb=$1 way=$2 block=$3 size=$4
	shift 4
	begin "fio verb=$verb bs=$block size=$size $*"
	free_port
	start_server server fio --name=server --ioengine=rdma --port="$port" --bs="$block" --size="$size" --rw=read --iodepth=128 --output-format=json
	run client fio --name=client --ioengine=rdma --hostname=127.0.0.1 --port="$port" --verb="$verb" --rw="$way" --bs="$block" --size="$size" \
		--output-format=json "$@"
	join server
	both_succeed
	want "the client to have moved $size bytes" job_is_right client.out "$size" "$way"
	want "no complaint" hasnt client.err '.'
	end
}

fio_pair write write 65536 6553600 --iodepth=1
fio_pair write write 65536 6553600 --iodepth=8
fio_pair read write 65536 6553600 --iodepth=1
fio_pair read write 65536 6553600 --iodepth=8
fio_pair send write 4096 409600 --iodepth=1
fio_pair send write 65536 6553600 --iodepth=8

begin "fio and nobody who listens"
free_port
run client fio --name=client --ioengine=rdma --hostname=127.0.0.1 --port="$port" --verb=write --rw=write --bs=4096 --size=40960
want "to hear of it" has client.err 'RDMA_CM_EVENT_REJECTED'
want "no crash" less "${status_of[client]}" 124 # 0, in fact
end

finish
