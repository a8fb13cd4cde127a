#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# What programs over uwarp do as processes: they are killed, fork, become daemons, close descriptors that are not theirs, destroy things in the wrong order.
# It hurts only themselves, and their peer hears of their end within a second.
#
#     tests/programs/process.c  <---- 127.0.0.1 ---->  tests/programs/process.c
set -uo pipefail
. "$(dirname "$0")/run_lib.sh"
need rping pgrep ps "${CC:-gcc}"

process=$tmp/process
"${CC:-gcc}" -D_GNU_SOURCE -O1 -Wall -o "$process" "$here/programs/process.c" -lrdmacm -libverbs || { echo "process.c does not compile"; exit 1; }
run_options=(--ifaces lo)
limit=30

now_ms() { date +%s%3N; }

# The process under timeout(1) that start() made: the program itself, as uwarp has become it.
program_pid() { pgrep -P "${pid_of[$1]}"; }

# pair TITLE SERVER-TRICK CLIENT-TRICK: both do what they are told, and all is well.
pair() {
	begin "$1"
	free_port
	# shellcheck disable=SC2086 # no trick is no argument
	start_server server "$process" server "$port" $2
	# shellcheck disable=SC2086
	run client "$process" client "$port" 40 $3
	want "the client's status 0, not ${status_of[client]}" is "${status_of[client]}" 0
	want "forty messages there and back" has client.out '^exchanged 40$'
	want "the server to see them" wait_for server.out '^served 40$'
	want "the server to see the client go" wait_for server.out '^disconnected$'
	want "the server to end" wait_for server.out '^done$'
	join server
	want "the server's status 0, not ${status_of[server]}" is "${status_of[server]}" 0
}

pair 'a client and a server' '' ''
want "the client to end in order" has client.out '^done$'
end

pair 'a server that becomes a daemon while it listens' daemon ''
want "the client to end in order" has client.out '^done$'
end

# Both clients are served at a time, so each by another child; the parent, which has the listener too, takes none.
begin "a server that listens, and leaves its clients to children"
free_port
start_server server "$process" workers "$port"
for i in 1 2; do
	start "client$i" "$process" client "$port" 40 stay
	want "both children" wait_for server.out '^ready$' 2 # and not before the first client
	want "messages of client $i" wait_for "client$i.out" '^exchanged 40$'
done
stop client1
stop client2
want "each client to be served" wait_for server.out '^served 40$' 2
join server
want "the server's status 0, not ${status_of[server]}" is "${status_of[server]}" 0
end

pair 'a client that forks while it is connected' '' fork
want "the client to end in order" has client.out '^done$'
end

pair 'a client that closes all descriptors before it connects' '' close-all
want "the client to end in order" has client.out '^done$'
end

pair 'a client that closes what is not its own while it is connected' '' close-others
want "the client to end in order" has client.out '^done$'
want "all attempts to be refused" has client.out '^some found, 0 closed, 0 replaced$'
want "no complaint" hasnt client.err .
end

pair 'a client whose children close everything' '' closing-children
want "the client to end in order" has client.out '^done$'
want "the child of fork() to have its way" has client.out '^fork 0$'
want "the child of vfork(), too" has client.out '^vfork 0, all left$'
end

pair 'a client that ends without disconnecting' '' exit
end

pair 'a client that destroys things in the wrong order' '' wrong-order
want "EBUSY for a protection domain in use" has client.out '^pd 16$'
want "EBUSY for a completion queue in use" has client.out '^cq 16$'
end

for trick in destroy-qp destroy-id close-channel; do
	begin "a client that gives a connection up without disconnecting: $trick"
	free_port
	start_server server "$process" server "$port"
	start client "$process" client "$port" 40 $trick
	want "the client to get there" wait_for client.out '^given up$'
	want "the server to see it go, though the client lives" wait_for server.out '^disconnected$'
	join server
	want "the server's status 0, not ${status_of[server]}" is "${status_of[server]}" 0
	stop client
	end
done

stopped() { [[ $(ps -o stat= -p "$(program_pid "$1")") == T* ]]; }

# More than the sockets take is posted while the server stands still: the client has it in its own memory when it ends.
begin "a client that ends right behind its last words"
free_port
start_server server "$process" sink "$port"
start client "$process" burst "$port" "$tmp/go"
want "all to be posted" wait_for client.out '^posted$'
want "a server that stands still" stopped server
touch "$tmp/go"
kill -CONT "$(program_pid server)"
join client
join server
want "the client's status 0, not ${status_of[client]}" is "${status_of[client]}" 0
want "the server to get it all" has server.out '^512 of 512 right$'
end

begin "a client that closes what is not its own, by close_range()"
free_port
start_server server "$process" server "$port"
limit=10 # timeout(1) under uwarp would hang with ASan's library: libpcap and that leave a lock of gettext's taken
run client "$process" client "$port" 40 close-range
limit=30
want "the client to get there" has client.out '^close_range 0$'
want "the client not to crash, nor to hang" is $((status_of[client] < 124)) 1
want "the server to see it go" wait_for server.out '^disconnected$'
join server
end

# killed VICTIM WITNESS SIGN: the victim is killed; how long until the witness prints it?
victims=
killed() {
	local from pid
	pid=$(program_pid "$1")
	victims+="${victims:+|}$pid"
	want "the victim to run" kill -KILL "$pid"
	from=$(now_ms)
	want "the other end to hear of it" wait_for "$2" "$3"
	want "it within a second, not after $(($(now_ms) - from)) ms" less $(($(now_ms) - from)) 1000
}

begin "a server is killed: its client hears of it"
free_port
start_server server "$process" server "$port"
start client "$process" client "$port" 40 wait
want "a connection" wait_for client.out '^exchanged 40$'
killed server client.out '^disconnected$'
join client
join server
want "the client's status 0, not ${status_of[client]}" is "${status_of[client]}" 0
end

begin "a client is killed: its server hears of it"
free_port
start_server server "$process" server "$port"
start client "$process" client "$port" 40 wait
want "a connection" wait_for client.out '^exchanged 40$'
killed client server.out '^disconnected$'
join client
join server
want "the server's status 0, not ${status_of[server]}" is "${status_of[server]}" 0
end

begin "rping's server is killed in the middle of things: its client hears of it"
free_port
start_server server rping -s -a 127.0.0.1 -p "$port" -S 65535
start client rping -c -a 127.0.0.1 -p "$port" -S 65535
sleep 0.5
killed server client.err 'client DISCONNECT EVENT'
join client
join server
want "the client to end by itself" less "${status_of[client]}" 124
end

begin "rping's client is killed in the middle of things: its server hears of it"
free_port
start_server server rping -s -v -a 127.0.0.1 -p "$port" -S 65535
start client rping -c -a 127.0.0.1 -p "$port" -S 65535
want "pings" wait_for server.out '^server ping data' 3
killed client server.err 'server DISCONNECT EVENT'
join client
join server
want "the server to end by itself" less "${status_of[server]}" 124
end

begin "a killed program leaves nothing behind"
want "no listener" is "$(ss -Htln "sport = :$port")" ""
want "none of them in uwarp stat" is "$("$UWARP" stat | grep -cE "^ *($victims) ")" 0
end

finish
