#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
pyverbs_suite.py DEVICE WORK: runs rdma-core's own pyverbs tests, as Debian packages them (rdma-core, python3-pyverbs), on DEVICE.

To be started under uwarp, with Debian's python3. WORK is an empty folder of the caller's. Two passes, for a test of pyverbs
takes a GID whose second half is zero, as iWARP's is, for none, and skips:
  1. all modules, no GID given: objects; what needs a queue pair that ibv_modify_qp() connects is skipped, as on any iWARP device
  2. the rdma_cm modules with GID 0
The suite finds a device's network interface in sysfs, where there is nothing of ours: that look-up is answered here.
Prints each test that did not pass, counts of reasons for skipping, and "passed P, failed F, skipped S"; exit status 1 if any failed.
"""
import collections
import glob
import gzip
import os
import shutil
import sys
import unittest

SUITE = '/usr/share/doc/rdma-core/tests'
CM_MODULES = ['tests.test_rdmacm']
# On iWARP they cannot pass, and do not ask whether they may run.
NOT_IWARP = {
    'test_rdmacm_async_traffic': 'sets an ACK timeout, which TCP has instead of the QP, and reads it back from the QP',
    'test_rdmacm_async_traffic_external_qp': 'expects CONNECT_RESPONSE, which there is on InfiniBand alone',
    'test_rdmacm_async_udp_traffic': 'needs datagrams',
}


def unpack(where):
    os.makedirs(where)
    for path in glob.glob(SUITE + '/*.py') + glob.glob(SUITE + '/*.py.gz'):
        name = os.path.basename(path).removesuffix('.gz')
        opener = gzip.open if path.endswith('.gz') else open
        with opener(path, 'rb') as src, open(os.path.join(where, name), 'wb') as dst:
            shutil.copyfileobj(src, dst)


def answer_for_sysfs(base, device):
    real_exists = os.path.exists
    base.os.path.exists = lambda path: path == f'/sys/class/infiniband/{device}/device/net/' or real_exists(path)
    base.RDMATestCase.get_net_name = staticmethod(lambda dev: dev.removeprefix('uwarp_'))


def skip_not_iwarp(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            skip_not_iwarp(test)
        elif test._testMethodName in NOT_IWARP:
            reason = NOT_IWARP[test._testMethodName]
            setattr(test, test._testMethodName, unittest.skip(f'not on iWARP: {reason}')(lambda: None))


def main():
    device, work = sys.argv[1:3]
    unpack(os.path.join(work, 'tests'))
    sys.path[:0] = [work, os.path.join(work, 'tests')]
    from args_parser import parser
    import tests
    from tests import base

    answer_for_sysfs(base, device)
    skipped = collections.Counter()
    passed, failed = 0, []
    for gid, names in ((None, [m.__name__ for m in tests.__test_modules__]), (0, CM_MODULES)):
        sys.argv[1:] = ['--dev', device] + ([] if gid is None else ['--gid', str(gid)])
        parser.parse_args()
        suite = unittest.defaultTestLoader.loadTestsFromNames(names)
        skip_not_iwarp(suite)
        result = unittest.TextTestRunner(verbosity=0).run(suite)
        failed += [str(t) for t, _ in result.failures + result.errors]
        skipped.update(reason for _, reason in result.skipped)
        passed += result.testsRun - len(result.failures) - len(result.errors) - len(result.skipped)
    for reason, n in skipped.most_common():
        print(f'{n:5} skipped: {reason}')
    for test in failed:
        print(f'FAILED {test}')
    print(f'passed {passed}, failed {len(failed)}, skipped {skipped.total()}')
    sys.stdout.flush()
    os._exit(1 if failed else 0)  # pyverbs' own finalisers complain about the interpreter's end


main()
