#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""captures.py merge DIR OUT         DIR/*.pcap in one file
captures.py judge DIR OUT VERDICT    what tshark said of OUT; exit status 1 if anything is wrong

merge gives each file's connections addresses of their own: it changes the same 16 bits of every address, and corrects the
checksums by the difference (RFC 1624), so that a wrong checksum stays wrong.
"""

import collections
import pathlib
import struct
import sys

PCAP_NS = 0xA1B23C4D
KEYS = {b"MPA ID Req Frame": "request", b"MPA ID Rep Frame": "reply"}


def packets(path):
    data = path.read_bytes()
    assert struct.unpack_from("<I", data)[0] == PCAP_NS, path
    at = 24
    while at < len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        yield data[at:at + 16], bytearray(data[at + 16:at + 16 + length])
        at += 16 + length


def layers(frame):
    """Offsets of the IP and the TCP header, and whether it is IPv4."""
    ip = 18 if frame[12:14] == b"\x81\x00" else 14
    ipv4 = frame[ip - 2:ip] == b"\x08\x00"
    return ip, ip + ((frame[ip] & 15) * 4 if ipv4 else 40), ipv4


def change(frame, at, mask, sums):
    """XORs the 16 bits at an offset, and corrects the checksums at these offsets."""
    old = struct.unpack_from(">H", frame, at)[0]
    struct.pack_into(">H", frame, at, old ^ mask)
    for s in sums:
        total = (~struct.unpack_from(">H", frame, s)[0] & 0xFFFF) + (~old & 0xFFFF) + (old ^ mask)
        total = (total & 0xFFFF) + (total >> 16)
        total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into(">H", frame, s, ~total & 0xFFFF)


def renumber(frame, number, again):
    """Addresses of the file's own, and of the connection's own if its ports were used before. In IPv4 10.0.0.1 becomes
    10.(8 * high five bits of the number).(low eight bits).(1 + 16 * again): what tests use of the bits in between stays."""
    ip, tcp, ipv4 = layers(frame)
    for addr in (ip + 12, ip + 16) if ipv4 else (ip + 8, ip + 24):
        if ipv4:
            change(frame, addr, number >> 8 << 3, (ip + 10, tcp + 16))
            change(frame, addr + 2, (number & 0xFF) << 8 | (again & 15) << 4, (ip + 10, tcp + 16))
        else:
            change(frame, addr + 2, number, (tcp + 16,))
            change(frame, addr + 4, again, (tcp + 16,))


class Connections:
    """How often each pair of addresses and ports was used before: a SYN with another number begins a new connection."""

    def __init__(self):
        self.again = collections.Counter()
        self.syns = {}

    def count(self, frame):
        ip, tcp, ipv4 = layers(frame)
        ends = [bytes(frame[a:a + (4 if ipv4 else 16)] + frame[p:p + 2])
                for a, p in zip((ip + 12, ip + 16) if ipv4 else (ip + 8, ip + 24), (tcp, tcp + 2))]
        key = tuple(sorted(ends))
        if frame[tcp + 13] & 0x12 == 0x02 and self.syns.setdefault((key, ends[0]), frame[tcp + 4:tcp + 8]) != frame[tcp + 4:tcp + 8]:
            self.syns[key, ends[0]] = frame[tcp + 4:tcp + 8]
            self.again[key] += 1
        return self.again[key]


def judged(directory):
    return sorted(p for p in pathlib.Path(directory).glob("*.pcap") if p.name != "all.pcap")


def merge(directory, out):
    with open(out, "wb") as f:
        f.write(struct.pack("<IHHiIII", PCAP_NS, 2, 4, 0, 0, 262144, 1))
        for number, path in enumerate(judged(directory)):
            assert number < 1 << 13
            connections = Connections()
            for header, frame in packets(path):
                renumber(frame, number, connections.count(frame))
                f.write(header + frame)


class Segment:
    """The stream of one direction that a frame belongs to, and what it carries."""

    def __init__(self, frame):
        ip, tcp, ipv4 = layers(frame)
        length = struct.unpack_from(">H", frame, ip + (2 if ipv4 else 4))[0] + (0 if ipv4 else 40)
        src, dst = (frame[ip + 12:ip + 16], frame[ip + 16:ip + 20]) if ipv4 else (frame[ip + 8:ip + 24], frame[ip + 24:ip + 40])
        ports = frame[tcp:tcp + 2], frame[tcp + 2:tcp + 4]
        self.stream = bytes(src + ports[0] + dst + ports[1])
        self.other = bytes(dst + ports[1] + src + ports[0])
        self.seq = struct.unpack_from(">I", frame, tcp + 4)[0]
        self.flags = frame[tcp + 13]
        self.data = bytes(frame[tcp + (frame[tcp + 12] >> 4) * 4:ip + length])


class StartFrame:
    """An MPA request or reply, or the first piece of one."""

    def __init__(self, data):
        flags, self.rev, length = struct.unpack_from(">BBH", data, 16)
        self.whole = len(data) >= 20 + length
        self.fields = [KEYS[data[:16]], str(self.rev), str(flags >> 7), str(flags >> 6 & 1), str(flags >> 5 & 1), "0x%02x" % (flags & 0x1F)]


def start_frame(data):
    return StartFrame(data) if len(data) >= 20 and data[:16] in KEYS else None


class Judge:
    def __init__(self, verdict):
        self.verdict = {}
        for line in open(verdict):
            number, *rest = line.rstrip("\n").split("\t")
            self.verdict[int(number)] = rest
        self.faults = []
        self.excused = collections.Counter()
        self.decoded = set()     # streams whose start-up frame tshark has decoded
        self.not_decoded = {}    # streams where it has not: why it cannot, or None; frame number, StartFrame
        self.highest = {}        # by stream: the end of what has come
        self.reset = set()       # streams with a reset
        self.begin = {}          # and its first bytes, as far as they came in order

    def damage(self, number):
        malformed, ip, tcp, length = self.verdict.get(number, ["", "", "", ""])[:4]
        if malformed or length or "0" in ip.split(",") + tcp.split(","):
            self.faults.append((number, "malformed or mis-checksummed: " + " ".join(self.verdict[number])))

    def decode(self, number, segment, start):
        req, rep, *fields = self.verdict.get(number, [""] * 10)[4:]
        if req or rep:
            saw = ["request" if req else "reply", *fields]
            start = start or start_frame(bytes(self.begin[segment.stream])) # tshark has put the pieces together
            if not start or saw != start.fields:
                self.faults.append((number, "decoded as %s, is %s" % (saw, start and start.fields)))
            self.decoded.add(segment.stream)
        elif segment.data[:4] == b"MPA " and segment.stream not in self.decoded:
            self.excuse(number, segment, start)

    def excuse(self, number, segment, start):
        late = (self.highest[segment.stream] - segment.seq) % (1 << 32)
        if not start or not start.whole:
            why = "came in pieces"
        elif 0 < late < 1 << 31:
            why = "came behind a later segment"
        elif start.fields[0] == "reply" and segment.other not in self.decoded:
            why = "answers a request that was not decoded"
        elif segment.stream in self.reset or segment.other in self.reset:
            why = "came behind a reset, a stray one of the connection before or a forged one"
        else:
            why = None
        self.not_decoded.setdefault(segment.stream, (why, number, start))

    def frame(self, number, frame):
        segment = Segment(frame)
        stream = segment.stream
        if segment.flags & 4:
            self.reset.add(stream)
        if segment.flags & 2 or stream not in self.begin:
            self.begin[stream] = bytearray()
            self.highest[stream] = segment.seq + (segment.flags >> 1 & 1)
        if segment.seq == self.highest[stream] and len(self.begin[stream]) < 600:
            self.begin[stream] += segment.data
        self.damage(number)
        self.decode(number, segment, start_frame(segment.data))
        end = (segment.seq + len(segment.data)) % (1 << 32)
        if (end - self.highest[stream]) % (1 << 32) < 1 << 31:
            self.highest[stream] = end

    def close(self):
        for stream, (why, number, start) in self.not_decoded.items():
            if stream in self.decoded:
                continue
            self.excused[why] += 1
            if not why:
                self.faults.append((number, "not decoded: " + str(start.fields)))


def judge(directory, merged, verdict):
    files = judged(directory)
    names = [path.stem for path in files for _ in packets(path)]
    j = Judge(verdict)
    for number, (_, frame) in enumerate(packets(pathlib.Path(merged)), 1):
        j.frame(number, frame)
    j.close()
    for number, text in sorted(j.faults)[:200]:
        print("%s, frame %d: %s" % (names[number - 1], number - names.index(names[number - 1]), text))
    print("%d captures, %d frames, %d MPA start-up frames decoded" % (len(files), len(names), len(j.decoded)))
    for why, n in j.excused.items():
        print("%d that tshark does not decode: %s" % (n, why))
    return bool(j.faults) or not names


def main():
    if sys.argv[1] == "merge":
        return merge(*sys.argv[2:])
    return judge(*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
