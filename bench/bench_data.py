#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""bench_data.py DIR: what the data path can do on loopback, beside bare TCP in the same run.

Bandwidth against an iperf3 stream, latency against a busy-polling TCP ping-pong of the same bytes, small messages per second, and
connections per second through librdmacm. Every figure is the median of ROUNDS; each round measures TCP right beside uwarp, and
the ratio is the median of the rounds' ratios. Absolute figures mean little on a shared machine.
"""
import json
import os
import signal
import socket
import statistics
import subprocess
import sys

ROUNDS = int(os.environ.get("ROUNDS", "5"))
SIZES = (65536, 1048576)
VERBS = ("write", "read", "send")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A process that prints a line when it is ready; ended by SIGINT."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.stdout.read()
        self.process.wait()


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout


def perf(uwarp, port, *options):
    return json.loads(run(uwarp, "perf", "--json", *options, f"127.0.0.1:{port}"))


def iperf(port):
    out = json.loads(run("iperf3", "-J", "-t", "1", "-c", "127.0.0.1", "-p", str(port)))
    return out["end"]["sum_received"]["bits_per_second"] / 1e9


def row(what, ours, bare, ratios, unit, aim):
    print(f"{what:<34} {statistics.median(ours):>12.2f} {statistics.median(bare):>12.2f} {unit:<8} ratio "
          f"{statistics.median(ratios):5.2f}   aim {aim}", flush=True)


def bandwidth(uwarp, crc, port, iperf_port):
    for size in SIZES:
        for verb in VERBS:
            ours, bare = [], []
            for _ in range(ROUNDS):
                bare.append(iperf(iperf_port))
                ours.append(perf(uwarp, port, "--test", "bandwidth", "--verb", verb, "--size", str(size), crc,
                                 "--count", str((4 << 30) // size))["gbit_per_s"])
            ratios = [o / b for o, b in zip(ours, bare)]
            row(f"{verb}, {size} bytes, {'CRC' if crc == '--crc' else 'no CRC'}", ours, bare, ratios, "Gbit/s",
                ">= 0.80" if crc == "--crc" else ">= 0.95")


def latency(uwarp, bench, port):
    # An FPDU of 8 bytes: length 2, DDP header 18 or 14, pad to 4, CRC 4.
    for verb, fpdu in (("send", 32), ("write", 28)):
        ours, bare = [], []
        for _ in range(ROUNDS):
            bare.append(float(run(f"{bench}/tcp_pingpong", str(fpdu), "50000")))
            ours.append(perf(uwarp, port, "--test", "latency", "--verb", verb, "--size", "8", "--no-crc", "--count", "50000")
                        ["median_us"])
        row(f"{verb}, 8 bytes, round trip", ours, bare, [o / b for o, b in zip(ours, bare)], "us", "<= 1.20")


def messages(uwarp, port):
    for verb in ("send", "write"):
        rates = [perf(uwarp, port, "--test", "bandwidth", "--verb", verb, "--size", "64", "--depth", "256", "--no-crc", "--count",
                      "1000000")["messages_per_s"] / 1e6 for _ in range(ROUNDS)]
        print(f"{verb}, 64 bytes, 256 under way{'':<9} {statistics.median(rates):>12.3f} million messages/s{'':<12} aim 1", flush=True)


def main():
    build = sys.argv[1]
    uwarp, bench = f"{build}/uwarp", f"{build}/bench"
    port, iperf_port = free_port(), free_port()
    servers = {}
    print(f"{'loopback, medians of ' + str(ROUNDS):<34} {'uwarp':>12} {'TCP':>12}")
    # stdbuf: iperf3 tells that it listens only when its buffer is full.
    tcp = Server("stdbuf", "-oL", "iperf3", "-s", "-p", str(iperf_port))
    try:
        for crc in ("--no-crc", "--crc"):
            servers[crc] = Server(uwarp, "perf", "--listen", crc, f"127.0.0.1:{port}")
            bandwidth(uwarp, crc, port, iperf_port)
            if crc == "--no-crc":
                latency(uwarp, bench, port)
                messages(uwarp, port)
            servers.pop(crc).end()
    finally:
        tcp.end()
        for server in servers.values():
            server.end()
    if os.path.exists(f"{bench}/rdmacm_rate"):
        print(run(uwarp, "run", "--", f"{bench}/rdmacm_rate").strip() + "   aim >= 0.60")
    else:
        print("connections through librdmacm: skipped: librdmacm-dev was not there when this was built")


if __name__ == "__main__":
    main()
