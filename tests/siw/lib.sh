# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
#
# Functions for tests against a siw guest. Source this; the caller sets SIW_DIR, build-guest.sh's OUTDIR.
#
#     siw_network "$@"            choose the network; may start the calling script again (see below)
#     guest_start                 boot, return when the guest takes commands
#     guest_run CMD...            run a shell command there; its output, its exit status
#     guest_bg NAME CMD...        start it in the background
#     guest_log NAME              what it has printed so far
#     guest_wait_log NAME RE SEC  wait until that matches an extended regular expression
#     guest_kill NAME             end it
#     guest_siw NAME VALUE        set a parameter of siw
#     guest_ensure                boot again if its kernel has crashed
#     guest_stop                  end the guest; done by itself when the calling script exits
#     guest_add FILE...           the guest of the next guest_start has these in /opt/uwarp, and the libraries they need
#     pass / fail / skip TEXT     count and print one result;  summary  prints the totals
#
#   network "tap"                                  network "user"
#
#   host, in a network namespace of its own        host
#     tap0 10.99.0.1 ---- eth0 10.99.0.2 guest       127.0.0.1:random -> slirp -> 10.0.2.15:port guest
#                                                    127.0.0.1:port   <- slirp <- 10.0.2.2:port  guest
#
# "tap" is the better one, as the two TCP stacks talk to each other: a closed port refuses, a dropped SYN is
# lost. It needs root (or access to /dev/net/tun). In "user", which needs nothing, slirp accepts every
# connection by itself before it knows whether the guest does. SIW_NET=tap|user overrides the choice.

: "${SIW_DIR:?}"

# Ports in the guest that the host can reach; 9 is the control port.
SIW_PORTS=(9 7174 7175 7176 7177)
SIW_BOOT_SEC=${SIW_BOOT_SEC:-300}
SIW_RUN_SEC=${SIW_RUN_SEC:-60}

siw_passed=0
siw_failed=0
siw_skipped=0

# What identifies our qemu, and the host port behind each guest port in "user".
guest_pid=
guest_boots=0
# How long the last boot took, which tells how busy this machine is.
guest_boot_seconds=0
# What guest_add has added to its root file system.
guest_addition=
declare -A guest_port
# The connection to its agent.
control_fd=
command_number=0
# What guest_siw has set.
declare -A siw_parameter

siw_die() {
	echo "siw: $*" >&2
	exit 1
}

pass() {
	siw_passed=$((siw_passed + 1))
	echo "ok    $*"
}

fail() {
	siw_failed=$((siw_failed + 1))
	echo "FAIL  $*"
}

skip() {
	siw_skipped=$((siw_skipped + 1))
	echo "skip  $*"
}

summary() {
	[ "$siw_skipped" -eq 0 ] || echo "$siw_skipped skipped"
	echo "$siw_passed passed, $siw_failed failed"
	[ "$siw_failed" -eq 0 ]
}

# A user namespace only where it is needed: root of one cannot open a device that root alone may open.
siw_unshare=(unshare -n)
[ "$(id -u)" -eq 0 ] || siw_unshare=(unshare -Urn)

tap_usable() {
	[ -w /dev/net/tun ] && "${siw_unshare[@]}" ip tuntap add dev tap0 mode tap 2>/dev/null
}

# siw_network "$@": sets SIW_NET. For "tap" this replaces the script by itself in a new network namespace.
siw_network() {
	if [ "${SIW_NET:-auto}" = auto ]; then
		SIW_NET=user
		! tap_usable || SIW_NET=tap
	fi
	export SIW_NET host_address
	case $SIW_NET in
	tap)
		if [ "${SIW_IN_NETNS:-}" != 1 ]; then
			export SIW_IN_NETNS=1
			exec "${siw_unshare[@]}" "$0" "$@"
		fi
		ip link set lo up
		ip tuntap add dev tap0 mode tap
		ip address add 10.99.0.1/24 dev tap0
		ip link set tap0 up
		guest_address=10.99.0.2
		# The host, as the guest sees it (for the caller); and where a listener on the host must sit.
		host_address=10.99.0.1
		host_listen=10.99.0.1
		;;
	user)
		guest_address=10.0.2.15
		host_address=10.0.2.2
		host_listen=127.0.0.1
		;;
	*)
		siw_die "SIW_NET is $SIW_NET, must be tap or user"
		;;
	esac
}

# A port of the host that nobody listens on, below the range the kernel gives to clients.
free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		(: <>"/dev/tcp/$host_listen/$port") 2>/dev/null || break
	done
	echo "$port"
}

# guest_endpoint PORT: HOST:PORT by which the host reaches this port of the guest.
guest_endpoint() {
	case $SIW_NET in
	tap) echo "$guest_address:$1" ;;
	user) echo "127.0.0.1:${guest_port[$1]}" ;;
	esac
}

siw_make_tmp() {
	[ -z "${siw_tmp:-}" ] || return 0
	siw_tmp=$(mktemp -d "$SIW_DIR/run.XXXXXX")
	trap siw_exit EXIT
	trap 'exit 130' INT TERM HUP
}

# guest_add FILE...: a second cpio archive for the kernel to unpack over the first, so that the guest itself need not be packed
# again for each build. Both are of the same Debian release: a library that the guest has already stays the guest's.
guest_add() {
	local busybox=$SIW_DIR/root/usr/bin/busybox tree file name
	siw_make_tmp
	tree=$siw_tmp/addition
	mkdir -p "$tree/opt/uwarp" "$tree/usr/lib/x86_64-linux-gnu"
	for file; do
		[ -r "$file" ] || siw_die "no file $file"
		strip -o "$tree/opt/uwarp/${file##*/}" "$file" || return 1
	done
	for file in $(ldd "$@" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u); do
		name=usr/lib/x86_64-linux-gnu/${file##*/}
		[ -e "$SIW_DIR/root/$name" ] || cp -L "$file" "$tree/$name"
	done
	(cd "$tree" && find . | "$busybox" cpio -o -H newc 2>/dev/null) | gzip -1 >"$siw_tmp/addition.gz"
	rm -r "$tree"
	guest_addition=$siw_tmp/addition.gz
}

guest_netdev() {
	local port forwards=
	case $SIW_NET in
	tap)
		# Without virtio's header all checksums are in the frames, so that captures can be checked.
		echo "tap,id=net,ifname=tap0,script=no,downscript=no,vnet_hdr=off"
		;;
	user)
		for port in "${SIW_PORTS[@]}"; do
			forwards+=",hostfwd=tcp:127.0.0.1:${guest_port[$port]}-:$port"
		done
		echo "user,id=net,restrict=off$forwards"
		;;
	esac
}

guest_launch() {
	local port
	for port in "${SIW_PORTS[@]}"; do
		guest_port[$port]=$(free_port)
	done
	control_close
	guest_boots=$((guest_boots + 1))
	guest_console=$siw_tmp/console-$guest_boots.log
	guest_pcap=$siw_tmp/wire-$guest_boots.pcap
	local initrd=$SIW_DIR/initramfs.gz
	if [ -n "$guest_addition" ]; then
		cat "$initrd" "$guest_addition" >"$siw_tmp/initramfs.gz"
		initrd=$siw_tmp/initramfs.gz
	fi
	# A kernel that only limps on after a fault would spoil the tests that follow: qemu shall end.
	# Without ERMS kernel and libc do not copy by "rep movsb", which processors do by the cache line, but TCG byte by byte: seven times as long as words
	# take (64 KiB in qemu-user: 181 us, 27 us).
	qemu-system-x86_64 -accel tcg,thread=multi -cpu max,-erms,-fsrm -smp 2 -m 1024 -nodefaults -no-user-config \
		-display none -monitor none -no-reboot -serial "file:$guest_console" \
		-kernel "$SIW_DIR/vmlinuz" -initrd "$initrd" \
		-append "console=ttyS0 quiet oops=panic panic=-1 net.ifnames=0 guest_address=$guest_address/24" \
		-netdev "$(guest_netdev)" -device virtio-net-pci,netdev=net,romfile= \
		-object "filter-dump,id=dump,netdev=net,file=$guest_pcap" \
		</dev/null >"$siw_tmp/qemu.log" 2>&1 &
	guest_pid=$!
}

guest_alive() {
	[ -n "$guest_pid" ] && kill -0 "$guest_pid" 2>/dev/null
}

# Someone else may have taken a port since free_port() found it free; qemu then ends at once.
guest_start() {
	local end begun=$SECONDS
	[ -e "$SIW_DIR/initramfs.gz" ] || siw_die "no guest in $SIW_DIR: run build-guest.sh"
	command -v qemu-system-x86_64 >/dev/null || siw_die "qemu-system-x86_64 is missing"
	siw_make_tmp

	for _ in 1 2 3; do
		guest_launch
		end=$((SECONDS + SIW_BOOT_SEC))
		while guest_alive && [ $SECONDS -lt $end ]; do
			if grep -q '^guest: ready' "$guest_console" 2>/dev/null && guest_run true; then
				# shellcheck disable=SC2034 # for data.sh
				guest_boot_seconds=$((SECONDS - begun))
				return 0
			fi
			sleep 0.2
		done
		guest_alive && break
		grep -q 'host forwarding' "$siw_tmp/qemu.log" || break
	done
	cat "$siw_tmp/qemu.log" "$guest_console" >&2 || true
	siw_die "the guest does not come up"
}

guest_ensure() {
	local name
	! guest_alive || return 0
	[ -z "$guest_pid" ] || echo "siw: the guest has died (see ${guest_console##*/}); booting again" >&2
	guest_start
	for name in "${!siw_parameter[@]}"; do
		guest_siw "$name" "${siw_parameter[$name]}"
	done
}

# Logs and captures of a run that went well are of no use to anyone, unless SIW_KEEP=1 says otherwise.
siw_exit() {
	local status=$?
	guest_stop
	# Whatever else the script has started, and not waited for.
	jobs -p | xargs -r kill 2>/dev/null || true
	if [ $status -eq 0 ] && [ "${SIW_KEEP:-0}" != 1 ]; then
		rm -rf "$siw_tmp"
	else
		echo "siw: logs and captures are in $siw_tmp" >&2
	fi
}

guest_stop() {
	local pid=$guest_pid
	guest_pid=
	control_close
	[ -n "$pid" ] || return 0
	kill "$pid" 2>/dev/null || true
	# qemu writes the end of the capture when it gets SIGTERM; if it hangs, it loses that.
	(
		sleep 10
		kill -KILL "$pid" 2>/dev/null
	) &
	local watchdog=$!
	wait "$pid" 2>/dev/null || true
	kill "$watchdog" 2>/dev/null || true
	wait "$watchdog" 2>/dev/null || true
}

# The guest's agent takes commands from one connection, which is made when the first command is given.
control_open() {
	local control
	control=$(guest_endpoint 9)
	{ exec {control_fd}<>"/dev/tcp/${control/://}"; } 2>/dev/null || control_fd=
	[ -n "$control_fd" ]
}

control_close() {
	[ -z "$control_fd" ] || exec {control_fd}>&-
	control_fd=
}

# A command's output up to its status line, which bears the command's number. What comes before another command's status line is left over from
# that one. Looks every second whether there still is a guest.
control_answer() {
	local number=$1 end=$((SECONDS + SIW_RUN_SEC)) line='' part lines=() status
	while :; do
		status=0
		IFS= read -r -t 1 -u "$control_fd" part || status=$?
		line+=$part
		if [ $status -gt 128 ] && [ $SECONDS -lt $end ] && guest_alive; then
			continue
		fi
		[ $status -eq 0 ] || return 255
		[[ $line != "status $number "* ]] || break
		lines+=("$line")
		[[ $line != "status "* ]] || lines=()
		line=''
	done
	# The agent begins a new line for the status, which leaves an empty one behind output that has ended its last line.
	if [ ${#lines[@]} -gt 0 ] && [ -z "${lines[-1]}" ]; then
		unset 'lines[-1]'
	fi
	[ ${#lines[@]} -eq 0 ] || printf '%s\n' "${lines[@]}"
	return "${line##* }"
}

# guest_run CMD...: 255 if the guest gave no answer within SIW_RUN_SEC.
guest_run() {
	local command number status=0
	printf -v command %q "$*"
	command_number=$((command_number + 1))
	number=$BASHPID.$command_number
	[ -n "$control_fd" ] || control_open || return 255
	# In a subshell, which may die of a connection that the guest has reset.
	(printf '%s %s\n' "$number" "$command" >&"$control_fd") && control_answer "$number" || status=$?
	[ $status -lt 128 ] || control_close
	return "$status"
}

# The program gets a session of its own, for guest_kill to end all of it.
guest_bg() {
	local name=$1
	shift
	guest_run "rm -f /run/$name.log; setsid sh -c $(printf '%q' "$*; echo \"exit \$?\"") \
		>/run/$name.log 2>&1 </dev/null & echo \$! >/run/$name.pid"
}

guest_log() {
	guest_run "cat /run/$1.log" || true
}

guest_wait_log() {
	local name=$1 pattern=$2 seconds=$3
	SIW_RUN_SEC=$((seconds + 30)) guest_run "
		end=\$((\$(date +%s) + $seconds))
		until grep -Eq '$pattern' /run/$name.log; do
			[ \$(date +%s) -lt \$end ] || exit 1
			usleep 100000
		done"
}

guest_kill() {
	guest_run "kill -KILL -\$(cat /run/$1.pid) 2>/dev/null" || true
}

# guest_siw NAME VALUE: sets one of the module parameters that build-guest.sh adds to siw.
guest_siw() {
	siw_parameter[$1]=$2
	guest_run "echo $2 >/sys/module/siw/parameters/$1"
}
