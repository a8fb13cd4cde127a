#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# rdma-core's own tests of the verbs, in Python (pyverbs), as Debian packages them, on uwarp's NIC of the loopback interface. tests/pyverbs_run.py says what
# it tells them. Each of them passes, or is skipped because it cannot apply to iWARP; the list says why.
set -uo pipefail
. "$(dirname "$0")/run_lib.sh"
need ip gunzip
# The tests have a port number of their own, 7471, which somebody may use; not in a network namespace, if there can be one.
if [[ -z ${UWARP_NETNS:-} ]] && unshare --user --map-root-user --net true 2> /dev/null; then
	UWARP_NETNS=1 exec unshare --user --map-root-user --net bash "$0" "$@"
fi
[[ -z ${UWARP_NETNS:-} ]] || ip link set lo up
python=/usr/bin/python3 # the one that python3-pyverbs is for; another may come first in PATH
$python -c 'import pyverbs.device' 2> /dev/null || { echo "python3-pyverbs is missing"; exit 1; }
packaged=/usr/share/doc/rdma-core/tests
if [[ ! -f $packaged/run_tests.py ]]; then # dpkg was told to leave documentation out
	(cd "$tmp" && apt-get download python3-pyverbs && dpkg-deb -x python3-pyverbs_*.deb unpacked) > /dev/null 2>&1
	packaged=$tmp/unpacked$packaged
fi
[[ -f $packaged/run_tests.py ]] || { echo "the tests of python3-pyverbs are missing"; exit 1; }

limit=280
run_options=(--ifaces lo)
mkdir "$tmp/tests"
cp "$packaged"/* "$tmp/tests"
gunzip -f "$tmp"/tests/*.gz

begin "rdma-core's pyverbs tests"
run all $python -u "$here/pyverbs_run.py" "$tmp/tests" uwarp_lo "$@"
want "status 0, not ${status_of[all]}" is "${status_of[all]}" 0
want "none to fail" has all.out '^[0-9]+ passed, [0-9]+ skipped, 0 failed$'
sed 's/^/# /' "$tmp/all.out"
end

finish
