#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Runs the pyverbs tests of rdma-core, as Debian packages them, on one of uwarp's devices.

pyverbs_run.py FOLDER DEVICE [TEST...]: FOLDER holds the tests, unzipped. Prints a line for each test: "pass", "skip" with the reason or "fail" with what
was raised, and a summary. What is skipped is so for a reason that the table below knows, or it counts as failed.

The tests are as packaged, and are told what they look for where only a kernel driver puts it, or what only InfiniBand has:
- the address of the device's interface, which they look for in /sys/class/infiniband
- that GID 0 is one, though its lower half is zero, as that of every iWARP device: it is a MAC address and zeros
- how two RC QPs of theirs get connected: they move them to RTS by ibv_modify_qp() with each other's number, for which iWARP has nothing on the wire.
  Here the CM connects them (rdma_connect() and rdma_accept() with QPs of the program's own making).
- that a Write completes when it has been sent (RFC 5040 5.5), and not when it is in the peer's memory: they may look there several times.
"""
import importlib
import itertools
import os
import re
import subprocess
import sys
import time
import types
import unittest

# Why a test cannot apply to iWARP, or to a NIC without a card; a regex of its name or of the reason that it gives itself.
NOT_MLX5 = "speaks to a Mellanox or Amazon card"
WRITE = "on iWARP a Write completes when it has been sent; that the peer refuses it, its Terminate says later, to the QP"
SEND = "on iWARP a Send completes when it has been sent; what fails at the receiver is not its status"
BY_NAME = [
    (r"test_(mlx5|efa|efadv)", NOT_MLX5),
    (r"external_qp", "waits for CONNECT_RESPONSE, which rdma_cm has for InfiniBand only: an iWARP id is ESTABLISHED at once"),
    (r"test_rdmacm_async_traffic$", "asks the QP for its ACK time-out, which InfiniBand has and TCP has not"),
    (r"_udp_|_ud_|[Mm]ulticast|mcast", "iWARP has no datagrams"),
    (r"QpExTestCase\.\w*_bad_flow", "does its mistakes on a UD QP"),
    (r"test_(mr_rereg_access_bad_flow|invalidate_mw_type1|mw_type2_invalidate_\w+|qp_ex_rc_bind_mw)$", WRITE),
    (r"test_mr_rereg_(addr|pd)$", SEND),
    (r"test_qp_ex_rc_send_imm$", "RFC 7306 has immediate data as a message of its own, not on a Send"),
    (r"test_qp_ex_rc_atomic_write$", "RFC 7306 has no such operation"),
    (r"TMTest", "tag matching is part of InfiniBand's XRQ"),
]
BY_REASON = [
    (r"AH is not supported", "address handles are for datagrams, which iWARP does not have"),
    (r"[Dd]evice [Mm]emory|DM", "memory on the card: there is none"),
    (r"UD QP|UC QP|Raw|XRC|QP type \d|multicast", "iWARP has reliable connections and nothing else"),
    (r"dmabuf|DRM|cuda", "memory of a graphics card: there is none"),
    (r"ODP|[Pp]refetch|On.demand", "on-demand paging"),
    (r"[Ff]low", "flow steering"),
    (r"huge pages", "this machine has none set aside"),
    (r"Parent Domain", "a hint to libraries of cards, which uwarp does not take"),
    (r"All gid indices populated", "the table has one GID, and no free place"),
]


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
            end = (qp, qp.query(enums.IBV_QP_ACCESS_FLAGS)[0].qp_access_flags)
            other = self.waiting.pop((peer, qp.qp_num), None)
            if other:
                self.connect(end, other)
            else:
                self.waiting[(qp.qp_num, peer)] = end

    @staticmethod
    def expect(channel, kind):
        event = cmid.CMEvent(channel)
        if event.event_type != kind:
            raise unittest.TestCase.failureException(f"{event.event_str()} instead of event {kind}")
        return event

    @staticmethod
    def to_rtr(an_id, end):
        qp, access = end
        for state in (enums.IBV_QPS_INIT, enums.IBV_QPS_RTR):
            attr, mask = an_id.init_qp_attr(state)
            attr.qp_access_flags = access
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

    def connect(self, end, other):
        listener, passive, port = self.listen()
        active = cmid.CMEventChannel()
        client = cmid.CMID(creator=active, port_space=ce.RDMA_PS_TCP)
        client.resolve_addr(cmid.AddrInfo(src=self.address, dst=self.address, dst_service=str(port), port_space=ce.RDMA_PS_TCP))
        self.expect(active, ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
        client.resolve_route()
        self.expect(active, ce.RDMA_CM_EVENT_ROUTE_RESOLVED).ack_cm_event()
        self.to_rtr(client, end)
        client.connect(cmid.ConnParam(qp_num=end[0].qp_num))
        request = self.expect(passive, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
        server = cmid.CMID(creator=request, listen_id=listener)
        request.ack_cm_event()
        self.to_rtr(server, other)
        server.accept(cmid.ConnParam(qp_num=other[0].qp_num))
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


def look_again(base, utils):
    """validate() of what mem_read() has just read looks there again, for two seconds at most."""
    def mem_read(self, *args, **kwargs):
        last[:] = [lambda: own_read(self, *args, **kwargs)]
        return last[0]()

    def validate(received, is_server, size):
        until = time.monotonic() + 2
        while True:
            try:
                return own_validate(received, is_server, size)
            except PyverbsError:
                if time.monotonic() > until or not last:
                    raise
            time.sleep(0.001)
            received = last[0]()

    last = []
    own_read, own_validate = base.BaseResources.mem_read, utils.validate
    base.BaseResources.mem_read, utils.validate = mem_read, validate


def adapt(base, device):
    address = interface_address(device)
    connector = Connector(address)

    def add_gids(self, ctx, dev, port):
        self.args.append([dev, port, 0, address, "00:00:00:00:00:00"])

    def to_rts(self):
        connector.add(self)

    def tear_down(self):
        connector.close()
        own_tear_down(self)

    own_tear_down = base.RDMATestCase.tearDown
    base.RDMATestCase._add_gids_per_port = add_gids
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
    base = importlib.import_module("tests.base")
    adapt(base, device)
    look_again(base, importlib.import_module("tests.utils"))
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
    from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
except ImportError as missing:
    sys.exit(f"pyverbs: {missing}")
sys.exit(main())
