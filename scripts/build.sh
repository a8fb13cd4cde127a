#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# build.sh DIR [MESON-OPTION...]: configures DIR if it is new, if the options differ from the last time or if the
# set of source files has changed (sources are found when Meson configures), then builds. $MESON_SETUP holds more
# options, $NINJAFLAGS those for ninja, $TARGETS what to build if not everything.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
shift
# shellcheck disable=SC2206 # a list of words
options=("$@" ${MESON_SETUP:-})
mkdir -p "$build"
exec 9> "$build/.lock"
flock 9

wanted=$(
	echo "options: ${options[*]}"
	find src tests bench examples -maxdepth 2 \( -name '*.c' -o -name 'sys_*.sh' -o -name iwcm.h \) | LC_ALL=C sort
)
if [[ ! -f $build/build.ninja ]]; then
	meson setup "${options[@]}" "$build"
	echo "$wanted" > "$build/.wanted"
elif [[ $wanted != "$(cat "$build/.wanted" 2> /dev/null)" ]]; then
	meson setup --reconfigure "${options[@]}" "$build"
	echo "$wanted" > "$build/.wanted"
fi
# shellcheck disable=SC2086 # lists of words
ninja -C "$build" ${NINJAFLAGS:-} ${TARGETS:-}
