#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Makes a siw host under OUTDIR: OUTDIR/vmlinuz and OUTDIR/initramfs.gz, which guest.sh and run.sh boot.
#
#   usage: build-guest.sh OUTDIR
#
# Nothing is installed on this machine: Debian packages are downloaded and unpacked under OUTDIR, so neither root
# nor a package hook is needed. Debian does not build siw; its source package has it, and the headers
# package builds it against the very kernel that is booted.
#
# Every step leaves a stamp and is skipped while the stamp is newer than what the step reads. To move to newer
# packages, remove OUTDIR.

set -euo pipefail
shopt -s nullglob

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
self=$here/$(basename "${BASH_SOURCE[0]}")

die() {
	echo "build-guest: $*" >&2
	exit 1
}

[ $# -eq 1 ] || die "usage: build-guest.sh OUTDIR"
[ "$(uname -m)" = x86_64 ] || die "only x86-64 guests are built"
for tool in apt-cache apt-get dpkg-deb flock gcc make readelf xz; do
	command -v "$tool" >/dev/null || die "$tool is missing"
done

mkdir -p "$1"
out=$(cd "$1" && pwd)
debs=$out/debs       # packages as downloaded
kbuild=$out/kbuild   # kernel headers and build tools
source=$out/source   # siw's source
kernel=$out/kernel   # kernel image and its modules
sysroot=$out/sysroot # user-space packages
root=$out/root       # the guest's root file system
libs=usr/lib/x86_64-linux-gnu

# What the guest's programs come from. pack_root() fails if one of them misses a library.
user_packages=(
	busybox-static coreutils ibverbs-providers ibverbs-utils iperf3 iproute2 libbsd0 libc6 libcap2 libgcc-s1 libibumad3
	libibverbs1 libiperf0 libmd0 libmnl0 libnl-3-200 libnl-route-3-200 libpci3 librdmacm1 libsctp1 libssl3 libudev1
	perftest rdmacm-utils zlib1g
)
# stdbuf: the programs under test write to log files, and these must be readable line by line.
programs=(
	rping ucmatose rstream riostream rcopy cmtime rdma_client rdma_server ibv_devices ibv_devinfo rdma stdbuf iperf3
	ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat
)
# siw asks for crc32c by name only, so no dependency tells of it, and takes the best there is when it is loaded.
modules=(virtio_pci virtio_net crc32c_generic crc32c_intel siw rdma_ucm ib_uverbs)

exec 9>"$out/lock"
flock -w 1200 9 || die "another build holds $out/lock"

is_fresh() {
	local stamp=$1 input
	[ -e "$stamp" ] || return 1
	for input in "${@:2}"; do
		[ ! "$input" -nt "$stamp" ] || return 1
	done
}

# step NAME INPUT...: runs NAME() unless its stamp is as new as all inputs.
step() {
	local name=$1 stamp=$out/stamp-$1
	! is_fresh "$stamp" "${@:2}" || return 0
	echo "build-guest: $name"
	rm -f "$stamp"
	"$name"
	touch "$stamp"
}

# The first real package a metapackage depends on.
depends_on() {
	apt-cache depends "$1" | sed -n "s/^ *Depends: \($2\)\$/\1/p" | head -n 1
}

candidate() {
	apt-cache policy "$1" | sed -n 's/^ *Candidate: //p'
}

# Headers and image share the ABI name (6.1.0-NN-amd64), and with it the symbol versions. The source package
# bears no ABI name: take the headers' own version, or, where the archive has moved on, the newest.
download() {
	local headers release version image
	headers=$(depends_on linux-headers-amd64 'linux-headers-.*')
	[ -n "$headers" ] || die "apt knows no linux-headers-amd64: run apt-get update"
	release=${headers#linux-headers-}
	version=$(candidate "$headers")
	image=linux-image-$release
	[ -n "$(candidate "$image")" ] || image=$image-unsigned
	local src=linux-source-6.1
	if apt-cache madison "$src" | awk '{ print $3 }' | grep -Fxq "$version"; then
		src=$src=$version
	fi

	rm -rf "$debs"
	mkdir "$debs"
	# apt's unprivileged download user cannot be expected to reach OUTDIR.
	(cd "$debs" && apt-get -q -o APT::Sandbox::User=root download "$src" "$image" "$headers" \
		"linux-headers-${release%-amd64}-common" linux-kbuild-6.1 linux-compiler-gcc-12-x86 \
		"${user_packages[@]}" >"$out/download.log" 2>&1) ||
		{ cat "$out/download.log" >&2; die "download failed"; }
	echo "$release" >"$out/release"
}

unpack() {
	local deb
	rm -rf "$kbuild" "$source" "$kernel" "$sysroot"
	mkdir "$kbuild" "$source" "$kernel" "$sysroot"
	for deb in "$debs"/*.deb; do
		case ${deb##*/} in
		linux-image-*) dpkg-deb -x "$deb" "$kernel" ;;
		linux-source-*) unpack_siw "$deb" ;;
		linux-*) dpkg-deb -x "$deb" "$kbuild" ;;
		*) dpkg-deb -x "$deb" "$sysroot" ;;
		esac
	done
	cp "$kernel/boot/vmlinuz-$(<"$out/release")" "$out/vmlinuz"
	rm -rf "$debs"
}

# The source package is one big archive: only siw is taken out of it, and the archive itself is not kept.
unpack_siw() {
	dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
		tar -xJ -C "$source" --strip-components=5 --wildcards '*/drivers/infiniband/sw/siw'
}

# siw's choices (MPA revision, CRC, peer-to-peer, kind of RTR) are constants. Here they become module parameters with
# their values unchanged, so that one guest can play each kind of peer:
# write to /sys/module/siw/parameters/NAME. rtr_type is in network order: 0x80 Write, 0x40 Read, 0xc0 both.
build_siw() {
	local release headers name
	release=$(<"$out/release")
	headers=$kbuild/usr/src/linux-headers-$release
	echo "include $kbuild/usr/src/linux-headers-${release%-amd64}-common/Makefile" >"$headers/Makefile"

	local work=$out/siw
	rm -rf "$work"
	cp -r "$source" "$work"
	for name in mpa_crc_required mpa_crc_strict peer_to_peer; do
		sed -i "s/^\(extern \)\?const bool $name;/\1bool $name;/" "$work/siw.h" "$work/siw_main.c"
		echo "module_param($name, bool, 0644);" >>"$work/siw_main.c"
	done
	echo "module_param(mpa_version, byte, 0644);" >>"$work/siw_main.c"
	echo "module_param_named(rtr_type, *(u16 *)&rtr_type, ushort, 0644);" >>"$work/siw_cm.c"

	make -C "$headers" M="$work" CONFIG_RDMA_SIW=m modules >"$out/siw.log" 2>&1 ||
		{ cat "$out/siw.log" >&2; die "siw does not build"; }
}

# add_elf FILE: copies FILE (a path inside the sysroot) and the libraries it needs into the guest's root.
add_elf() {
	local file=$1 lib
	[ ! -e "$root/$file" ] || return 0
	install -D "$sysroot/$file" "$root/$file"
	for lib in $(readelf -d "$sysroot/$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		add_library "$lib" "$file"
	done
}

# Libraries lie in /lib or /usr/lib, depending on the package; in the guest they are all in one place.
add_library() {
	local name=$1 needed_by=$2 found
	[ ! -e "$root/$libs/$name" ] || return 0
	found=("$sysroot/$libs/$name" "$sysroot/${libs#usr/}/$name")
	[ -e "${found[0]}" ] || found=("${found[1]}")
	[ -e "${found[0]}" ] || die "$needed_by needs $name: add its package to user_packages"
	install -D "${found[0]}" "$root/$libs/$name"
	for lib in $(readelf -d "${found[0]}" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		add_library "$lib" "$name"
	done
}

# The package's own program takes the place of busybox's; links are passed over, as they may lead out of the sysroot.
add_program() {
	local dir
	rm -f "$root/usr/bin/$1"
	for dir in usr/bin bin usr/sbin sbin; do
		if [ -f "$sysroot/$dir/$1" ] && [ ! -L "$sysroot/$dir/$1" ]; then
			add_elf "$dir/$1"
			return
		fi
	done
	die "no package has $1"
}

# add_module NAME: copies a kernel module and those it depends on; no file means it is built into the kernel.
add_module() {
	local name=$1 tree=$kernel/lib/modules/$release file dependency
	file=$(find "$tree/kernel" -name "${name//_/[-_]}.ko" | head -n 1)
	[ "$name" != siw ] || file=$out/siw/siw.ko
	[ -n "$file" ] || return 0
	[ ! -e "$root/usr/lib/modules/$release/${file##*/}" ] || return 0
	install -D -m 644 "$file" "$root/usr/lib/modules/$release/${file##*/}"
	for dependency in $(readelf -p .modinfo "$file" | sed -n 's/.*\] *depends=//p' | tr , ' '); do
		add_module "$dependency"
	done
}

pack_root() {
	local release program found dir
	release=$(<"$out/release")
	rm -rf "$root"
	mkdir -p "$root"/{dev,etc/libibverbs.d,proc,sys,tmp,usr/bin,usr/sbin,usr/lib64,"$libs"}
	for dir in bin sbin lib lib64; do
		ln -s "usr/$dir" "$root/$dir"
	done

	install "$sysroot/bin/busybox" "$root/usr/bin/busybox"
	for program in $("$root/usr/bin/busybox" --list); do
		[ "$program" = busybox ] || ln -s /bin/busybox "$root/usr/bin/$program"
	done
	add_library libc.so.6 guest
	add_library libgcc_s.so.1 pthread_cancel
	cp -L "$sysroot/lib64/ld-linux-x86-64.so.2" "$root/usr/lib64/"
	for program in "${programs[@]}"; do
		add_program "$program"
	done
	for found in "$sysroot/$libs"/libibverbs/libsiw-*.so; do
		add_elf "${found#"$sysroot/"}"
	done
	add_elf usr/libexec/coreutils/libstdbuf.so
	cp "$sysroot/etc/libibverbs.d/siw.driver" "$root/etc/libibverbs.d/"

	for found in "${modules[@]}"; do
		add_module "$found"
	done
	"$root/usr/bin/busybox" depmod -b "$root" "$release"
	echo "${modules[*]}" >"$root/etc/modules"

	install "$here/guest-init" "$root/init"
	install "$here/guest-agent" "$root/usr/bin/guest-agent"
	(cd "$root" && find . | ./usr/bin/busybox cpio -o -H newc 2>/dev/null) | gzip -1 >"$out/initramfs.gz"
}

# A changed list of packages is a reason to download again; any other change of this script is not.
if [ "${user_packages[*]}" != "$(cat "$out/packages" 2>/dev/null)" ]; then
	echo "${user_packages[*]}" >"$out/packages"
fi
step download "$out/packages"
step unpack "$out/stamp-download"
step build_siw "$out/stamp-unpack"
step pack_root "$out/stamp-build_siw" "$self" "$here/guest-init" "$here/guest-agent"
