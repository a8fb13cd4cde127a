#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# deps.sh GROUP...: sees to it that the Debian packages of these groups are installed. As root it installs what is
# missing; anyone else is told which packages to ask for.
set -euo pipefail

declare -A group=(
	[build]='gcc libc6-dev meson ninja-build pkg-config libnl-3-dev libnl-route-3-dev libisal-dev
		libsodium-dev libpcap-dev libcmocka-dev libibverbs-dev'
	[demo]='rdmacm-utils'
	[check]='clang clang-tidy libclang-rt-14-dev gcovr tshark man-db groff-base iproute2 nftables
		python3 util-linux binutils librdmacm-dev rdmacm-utils ibverbs-utils
		perftest fio libfabric-bin python3-pyverbs procps'
	[fuzz]='clang llvm libclang-rt-14-dev'
	[man]='linux-kbuild-6.1 perl python3'
	[bench]='iperf3 librdmacm-dev python3 coreutils'
	# What goes into the guest is downloaded and unpacked by tests/siw/build-guest.sh, and not installed.
	[siw]='qemu-system-x86 gcc make binutils libelf1 xz-utils tshark iproute2 util-linux
		perftest rdmacm-utils'
)

wanted=()
for name; do
	# shellcheck disable=SC2206 # a list of words
	wanted+=(${group[$name]:?no such group of packages: $name})
done

if ! command -v dpkg-query > /dev/null; then
	echo "deps.sh: not a Debian system; what is needed, by its Debian names: ${wanted[*]}" >&2
	exit 0
fi

missing=()
installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' 2> /dev/null | sed -n 's/^ii *//p')
for package in "${wanted[@]}"; do
	grep -qxF -- "$package" <<< "$installed" || missing+=("$package")
done
((${#missing[@]})) || exit 0

if ((EUID != 0)); then
	echo "These packages are missing, and installing them needs root:" >&2
	echo "    apt-get install --no-install-recommends ${missing[*]}" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q < /dev/null
apt-get install -q -y --no-install-recommends "${missing[@]}" < /dev/null
