#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Runs the pyverbs tests of rdma-core, as Debian packages them, on one of uwarp's devices.

pyverbs_run.py FOLDER DEVICE [TEST...]: FOLDER holds the tests, unzipped. Prints a line for each test: "pass", "skip" with the reason or "fail" with what
was raised, and a summary. What is skipped is so for a reason that the table below knows, or it counts as failed.

The tests are as packaged, and are told two things that they look for where only a kernel driver puts them, or that only InfiniBand can do:
- the address of the device's interface, which they look for in /sys/class/infiniband
- how two RC QPs of theirs get connected: they move them to RTS by ibv_modify_qp() with each other's number, for which iWARP has nothing on the wire.
  Here the CM connects them (rdma_connect() and rdma_accept() with QPs of the program's own making).
"""
import importlib
import itertools
import os
import re
import subprocess
import sys
import types
import unittest

# Why a test cannot apply to iWARP, or to a NIC without a card; a regex of its name or of the reason that it gives itself.
NOT_MLX5 = "speaks to a Mellanox or Amazon card"
BY_NAME = [
    (r"test_(mlx5|efa|efadv)", NOT_MLX5),
    (r"external_qp", "waits for CONNECT_RESPONSE, which rdma_cm has for InfiniBand only: an iWARP id is ESTABLISHED at once"),
]
BY_REASON = []


class Connector:
    """Connects QPs of one process through the CM, by event channels."""
    ports = itertools.count(27000)

    def __init__(self, address):
        self.address = address
        self.waiting = {}
        self.ids = []

    def add(self, resources):
        """The second of two resources that know each other's QP numbers connects their QPs."""
        for qp, peer in zip(resources.qps, resources.rqps_num):
            other = self.waiting.pop((peer, qp.qp_num), None)
            if other:
                self.connect(qp, other)
            else:
                self.waiting[(qp.qp_num, peer)] = qp

    @staticmethod
    def expect(channel, kind):
        event = cmid.CMEvent(channel)
        if event.event_type != kind:
            raise unittest.TestCase.failureException(f"{event.event_str()} instead of event {kind}")
        return event

    @staticmethod
    def to_rtr(an_id, qp):
        for state in (enums.IBV_QPS_INIT, enums.IBV_QPS_RTR):
            attr, mask = an_id.init_qp_attr(state)
            qp.modify(attr, mask)

    def listen(self):
        """A listener on a free port: its id, channel, and the port."""
        channel = cmid.CMEventChannel()
        listener = cmid.CMID(creator=channel, port_space=ce.RDMA_PS_TCP)
        for port in self.ports:
            try:
                listener.bind_addr(cmid.AddrInfo(src=self.address, src_service=str(port), port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE))
                break
            except PyverbsRDMAError:
                if port > 27999:
                    raise
        listener.listen()
        return listener, channel, port

    def connect(self, qp, other):
        listener, passive, port = self.listen()
        active = cmid.CMEventChannel()
        client = cmid.CMID(creator=active, port_space=ce.RDMA_PS_TCP)
        client.resolve_addr(cmid.AddrInfo(src=self.address, dst=self.address, dst_service=str(port), port_space=ce.RDMA_PS_TCP))
        self.expect(active, ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
        client.resolve_route()
        self.expect(active, ce.RDMA_CM_EVENT_ROUTE_RESOLVED).ack_cm_event()
        self.to_rtr(client, qp)
        client.connect(cmid.ConnParam(qp_num=qp.qp_num))
        request = self.expect(passive, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
        server = cmid.CMID(creator=request, listen_id=listener)
        request.ack_cm_event()
        self.to_rtr(server, other)
        server.accept(cmid.ConnParam(qp_num=other.qp_num))
        self.expect(passive, ce.RDMA_CM_EVENT_ESTABLISHED).ack_cm_event()
        self.expect(active, ce.RDMA_CM_EVENT_ESTABLISHED).ack_cm_event()
        self.ids += [(client, active), (server, None), (listener, passive)]

    def close(self):
        for an_id, channel in self.ids:
            an_id.close()
            if channel:
                channel.close()
        self.ids = []
        self.waiting = {}


def interface_address(device):
    """What the tests would find through sysfs."""
    out = subprocess.check_output(["ip", "-o", "addr", "show", "dev", device.removeprefix("uwarp_")], text=True)
    return re.search(r"inet6? ([^/ ]+)", out)[1]


def adapt(base, device):
    address = interface_address(device)
    connector = Connector(address)

    def get_ip_mac(self, dev, port, idx):
        self.args.append([dev, port, idx, address, "00:00:00:00:00:00"])

    def to_rts(self):
        connector.add(self)

    def tear_down(self):
        connector.close()
        own_tear_down(self)

    own_tear_down = base.RDMATestCase.tearDown
    base.RDMATestCase._get_ip_mac = get_ip_mac
    base.RDMATestCase.tearDown = tear_down
    base.RCResources.to_rts = to_rts


class Result(unittest.TestResult):
    """One line a test."""

    def __init__(self):
        super().__init__()
        self.lines = {"pass": 0, "skip": 0, "fail": 0}

    def line(self, kind, test, text=""):
        self.lines[kind] += 1
        print(f"{kind} {test.id()}{': ' if text else ''}{text}", flush=True)

    def addSuccess(self, test):
        self.line("pass", test)

    def addSkip(self, test, reason):
        for pattern, why in BY_REASON:
            if re.search(pattern, reason):
                self.line("skip", test, f"{why} ({reason})")
                return
        self.line("fail", test, f"skipped for a reason that this list does not know: {reason}")

    def addFailure(self, test, err):
        last = err[2]
        while last.tb_next:
            last = last.tb_next
        self.line("fail", test, f"{err[1]!r} at {os.path.basename(last.tb_frame.f_code.co_filename)}:{last.tb_lineno}")

    addError = addFailure


def all_tests(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from all_tests(test)
        else:
            yield test


def main():
    folder, device, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(folder)))
    sys.path.insert(0, os.path.abspath(folder))
    sys.argv[1:] = ["--dev", device]
    from args_parser import parser
    parser.parse_args()
    package = types.ModuleType("tests")
    package.__path__ = [os.path.abspath(folder)]
    sys.modules["tests"] = package
    adapt(importlib.import_module("tests.base"), device)
    result = Result()
    for path in sorted(os.listdir(folder)):
        if not re.fullmatch(r"test_\w+\.py", path):
            continue
        module = importlib.import_module(f"tests.{path[:-3]}")
        for test in all_tests(unittest.defaultTestLoader.loadTestsFromModule(module)):
            if names and not any(name in test.id() for name in names):
                continue
            why = next((why for pattern, why in BY_NAME if re.search(pattern, test.id())), None)
            if why:
                result.line("skip", test, why)
            else:
                test.run(result)
    print("{pass} passed, {skip} skipped, {fail} failed".format(**result.lines))
    return result.lines["fail"] > 0


try:
    import pyverbs.cm_enums as ce
    import pyverbs.cmid as cmid
    import pyverbs.enums as enums
    from pyverbs.pyverbs_error import PyverbsRDMAError
except ImportError as missing:
    sys.exit(f"pyverbs: {missing}")
sys.exit(main())
