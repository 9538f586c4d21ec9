#!/usr/bin/env python3
"""[36] Bytes that no client sends: malformed messages on every method, HTTP/2 that isn't, floods,
slow and idle connections. Always a clear status or a closed connection, bounded memory, no crash;
and another client is served all the while. MALFORMED_SEED=N draws others; TANDEM_FULL=1 draws more,
by another seed each time."""
import contextlib
import os
import pathlib
import random
import resource
import socket
import sys
import threading
import time
import unicodedata
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import h2
from bench_of_programs import (DEADLINE, Server, grpc, link_programs, make_stubs, new_folder,
                               put_away, wait_for)
from google.protobuf.descriptor import FieldDescriptor as F

FULL = os.environ.get("TANDEM_FULL", "0") != "0"
SEED = int(os.environ.get("MALFORMED_SEED", time.time_ns() % 1000000 if FULL else 1))
SMALL = bool(os.environ.get("TANDEM_SAMPLE"))
MUTATIONS = 2000 if FULL else 10 if SMALL else 40
IDLE = 1000 if SMALL else 10000
FLOOD = 2000 if SMALL else 20000
MESSAGE_MAX = 4 << 20
# Far above what a flood takes, far below what it would take without a bound.
GROWTH_MAX = (1200 if SMALL else 800) << 20
REFUSALS = {"INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED",
            "UNAUTHENTICATED", "FAILED_PRECONDITION", "PERMISSION_DENIED", "ALREADY_EXISTS",
            "ABORTED", "OUT_OF_RANGE"}


def setUpModule():
    global folder, m, programs, server, canary
    print(f"MALFORMED_SEED={SEED}", flush=True)
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")
    server = Server(m, folder, programs)
    for n in range(10):  # what a message that is valid by chance may stop: its job is "1"
        server.wait_state(server.submit(server.spec(f"victim-{n}", steps=1)), "SUCCEEDED")
    canary = Canary(server.submit(server.spec("canary", steps=10000000, tags=["ms=100"])))
    canary.start()


def tearDownModule():
    canary.stop.set()
    canary.join()
    put_away(server)


class Canary(threading.Thread):
    """Another client: calls of its own, and a job whose steps must go on arriving."""

    def __init__(self, job):
        super().__init__()
        self.job, self.stop, self.failure = job, threading.Event(), None
        self.calls, self.slowest = 0, 0

    def run(self):
        while not self.stop.wait(0.02):
            begin = time.monotonic()
            try:
                server.get(self.job)
            except grpc.RpcError as e:
                self.failure = self.failure or e
            self.calls += 1
            self.slowest = max(self.slowest, time.monotonic() - begin)


class Case(unittest.TestCase):
    def setUp(self):
        self.path = server.data / "tandemd.sock"
        self.dice = random.Random(SEED)
        self.rss_before, self.calls_before = self.rss(), canary.calls
        canary.slowest, canary.failure = 0, None

    def tearDown(self):
        wait_for("calls of another client", lambda: canary.calls > self.calls_before + 2)
        step = server.get(canary.job).step
        wait_for("steps of a job", lambda: server.get(canary.job).step > step)
        print(f"{self.id().rsplit('.', 1)[1]}: grew {(self.rss() - self.rss_before) >> 20} MiB, "
              f"slowest call of another client {1000 * canary.slowest:.0f} ms", flush=True)
        self.assertIsNone(canary.failure)
        self.assertIsNone(server.process.poll())
        self.assertLess(self.rss() - self.rss_before, GROWTH_MAX)

    def rss(self):
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10

    def descriptors(self):
        """0 where the server doesn't let this user count them."""
        try:
            return len(os.listdir(f"/proc/{server.process.pid}/fd"))
        except PermissionError:
            return 0


# ---- messages ----

def methods():
    files = [m.jobs, m.runs, m.checkpoints, m.cluster, m.plans, m.admin, m.worker]
    return [(f"/{s.full_name}/{x.name}", x) for f in files
            for s in f.DESCRIPTOR.services_by_name.values() for x in s.methods]


def fill(message, dice, depth=0):
    """Every field set, to something small."""
    for f in message.DESCRIPTOR.fields:
        if f.containing_oneof and dice.random() < 0.5:
            continue
        values = [value_of(f, dice) for _ in range(2 if f.label == F.LABEL_REPEATED else 1)]
        if f.type == F.TYPE_MESSAGE:
            if depth < 8:
                at = getattr(message, f.name)
                fill(at.add() if f.label == F.LABEL_REPEATED else at, dice, depth + 1)
        elif f.label == F.LABEL_REPEATED:
            getattr(message, f.name).extend(values)
        else:
            setattr(message, f.name, values[0])
    return message


def value_of(f, dice):
    if f.type == F.TYPE_STRING:
        return dice.choice(["", "1", "cpu", "a b", "\u00e9", "x" * 300])
    if f.type == F.TYPE_BYTES:
        return dice.randbytes(dice.randint(0, 20))
    if f.type == F.TYPE_ENUM:
        return dice.choice(f.enum_type.values).number
    if f.type == F.TYPE_BOOL:
        return dice.random() < 0.5
    return 1


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def tag(number, wire):
    return varint(number << 3 | wire)


def oddities(descriptor, dice):
    """Messages that are wrong in ways of their own."""
    yield b"\xff" * 64
    yield dice.randbytes(dice.randint(1, 400))
    yield tag(0, 0) + b"\x01"                      # no field has number 0
    yield tag(1, 3) * 100000                       # groups in groups
    yield tag(1, 7) + b"\x00"                      # no such wire type
    yield tag(1, 2) + varint(1 << 40)              # longer than the message
    yield tag(1, 2) + b"\xff" * 10 + b"\x01"       # a length beyond 64 bits
    yield tag((1 << 29) - 1, 2) + varint(1000) + bytes(1000)
    for f in descriptor.fields:
        yield tag(f.number, 0) + varint((1 << 64) - 1)
        yield tag(f.number, 5) + b"\x80\xff\x7f"   # a piece of four bytes
        yield tag(f.number, 1) + bytes(8)
        yield tag(f.number, 2) + varint(4) + b"\xff\xfe\x00a"
        if f.type == F.TYPE_STRING:
            yield tag(f.number, 2) + varint(3) + b"1\x002"
            yield tag(f.number, 2) + varint(2) + b"\xc3\x28"
        if f.type == F.TYPE_MESSAGE:
            inner = b""
            for _ in range(2000):
                inner = tag(f.number, 2) + varint(len(inner)) + inner
            yield inner
            yield (tag(f.number, 2) + b"\x00") * 200000   # many that are empty
    yield tag(1, 2) + varint(MESSAGE_MAX - 6) + b"x" * (MESSAGE_MAX - 6)
    yield bytes(MESSAGE_MAX + 1)


def mutated(valid, dice):
    b = bytearray(valid)
    for _ in range(dice.randint(1, 8)):
        kind = dice.randrange(4)
        at = dice.randrange(len(b)) if b else 0
        if kind == 0 and b:
            b[at] = dice.randrange(256)
        elif kind == 1:
            del b[at:at + dice.randint(1, 8)]
        elif kind == 2:
            b[at:at] = dice.randbytes(dice.randint(1, 8))
        else:
            b = b[:at] if dice.random() < 0.3 else b
    return bytes(b)


class Messages(Case):
    def streams(self):
        """The connection for calls that are taken back: one may take back so many."""
        self.taken_back += 1
        if self.taken_back % 100 == 1:
            if self.taken_back > 1:
                self.channel.close()
            self.channel = grpc.insecure_channel(f"unix:{self.path}",
                                                 [("grpc.use_local_subchannel_pool", 1)])
        return self.channel

    def call(self, path, method, payload):
        kinds = {(False, False): "unary_unary", (False, True): "unary_stream",
                 (True, True): "stream_stream"}
        kind = kinds[method.client_streaming, method.server_streaming]
        channel = self.streams() if method.server_streaming else server.channel
        call = getattr(channel, kind)(path, request_serializer=bytes, response_deserializer=bytes)
        request = iter([payload]) if method.client_streaming else payload
        try:
            if not method.server_streaming:
                call(request, timeout=DEADLINE)
            else:
                reply = call(request, timeout=0.2)
                for _ in reply:
                    break
                reply.cancel()
            return "OK", ""
        except grpc.RpcError as e:
            if method.server_streaming and e.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                return "OK", ""  # it waits for what happens next
            return e.code().name, e.details()

    def test_on_every_method(self):
        seen, self.taken_back = {}, 0
        for path, method in methods():
            prototype = getattr(m, method.input_type.file.name.split("/")[-1][:-6])
            payloads = list(oddities(method.input_type, self.dice))
            for _ in range(MUTATIONS):
                valid = fill(getattr(prototype, method.input_type.name)(),
                             self.dice).SerializeToString()
                payloads.append(mutated(valid, self.dice))
                payloads.append(valid[:self.dice.randint(0, len(valid))])
            for payload in payloads:
                code, words = self.call(path, method, payload)
                self.assertIn(code, REFUSALS | {"OK"}, f"{path} {payload[:80]!r}: {words}")
                if code != "OK":
                    self.assertTrue(words, path)
                    self.assertFalse([c for c in words if unicodedata.category(c) == "Cc"],
                                     f"{path}: {words!r}")  # moves no cursor, begins no line
                seen[code] = seen.get(code, 0) + 1
        print(seen)
        self.assertGreater(seen["INVALID_ARGUMENT"], 100)


# ---- frames ----

class Frames(Case):
    def send(self, data, count=1):
        for _ in range(count):
            h2.send(self.path, data)

    def test_that_are_no_http2(self):
        dice = self.dice
        for data in [b"", b"\x00" * 100000, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                     bytes.fromhex("1603010200010001fc0303") + dice.randbytes(500),
                     h2.PREFACE[:10], h2.PREFACE[::-1], h2.PREFACE + dice.randbytes(10000),
                     h2.greeting() + dice.randbytes(100000)]:
            self.send(data)
        for _ in range(20 if SMALL else 200):
            kind, flags = dice.randrange(16), dice.randrange(256)
            stream = dice.choice([0, 1, 2, 3, 0x7fffffff, 0xffffffff])
            payload = dice.randbytes(dice.choice([0, 1, 4, 5, 8, 100, 16384, 20000]))
            length = dice.choice([None, None, 0, 1, 1 << 14, (1 << 24) - 1])
            h2.send(self.path, h2.greeting() + h2.frame(kind, flags, stream, payload, length),
                    read=False)

    def test_of_a_call_that_are_wrong(self):
        path = b"/tandem.v1.Jobs/Get"
        block = h2.request_headers(path)
        opened = h2.greeting() + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, block)
        for tail in [h2.frame(h2.DATA, h2.END_STREAM, 1, h2.message(b"x" * 10, length=1 << 31)),
                     h2.frame(h2.DATA, h2.END_STREAM, 1, h2.message(b"", length=5)),
                     h2.frame(h2.DATA, h2.END_STREAM, 1, h2.message(b"abc", flag=1)),
                     h2.frame(h2.DATA, h2.END_STREAM, 1, h2.message(b"abc", flag=77)),
                     h2.frame(h2.DATA, h2.END_STREAM, 1, b"\x00\x00"),
                     h2.frame(h2.DATA, 0, 1, h2.message(b"")) * 5,
                     h2.frame(h2.DATA, h2.END_STREAM, 1) * 3,
                     h2.frame(h2.HEADERS, h2.END_HEADERS, 1, block) * 2,
                     h2.frame(h2.WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff") * 3,
                     h2.frame(h2.WINDOW_UPDATE, 0, 0, bytes(4)),
                     h2.frame(h2.PUSH, 4, 1, bytes(20)),
                     h2.frame(h2.SETTINGS, 0, 0, b"\x00\x04\xff\xff\xff\xff"),
                     h2.frame(h2.PRIORITY, 0, 1, bytes(3))]:
            h2.send(self.path, opened + tail)
        for block in [h2.request_headers(b""), h2.request_headers(b"/" + b"x" * 7000),
                      h2.request_headers(path, (b"authorization", b"Bearer \xff\x00")),
                      h2.request_headers(path, (b"big", b"y" * 12000)),
                      h2.request_headers(path, (b"grpc-timeout", b"99999999999999H")),
                      h2.request_headers(path, (b"grpc-encoding", b"gzip")),
                      h2.request_headers(path, *[(b"h%d" % n, b"v") for n in range(2000)]),
                      b"\x80", b"\xff" * 50, b"\x3f\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
                      h2.header(b":path", b"/a") * 3]:
            h2.send(self.path, h2.greeting() +
                    h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, block[:16000]))


class Floods(Case):
    def test_of_pings_and_settings(self):
        for one in (h2.frame(h2.PING, 0, 0, bytes(8)), h2.frame(h2.SETTINGS),
                    h2.frame(h2.PING, 1, 0, bytes(8)), h2.frame(h2.PRIORITY, 0, 1, bytes(5)),
                    h2.frame(h2.SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x01" * 100)):
            h2.send(self.path, h2.greeting() + one * FLOOD)

    # (CVE-2023-44487) Calls that are taken back as soon as they are made.
    def test_of_calls_that_are_reset_at_once(self):
        block = h2.request_headers(b"/tandem.v1.Jobs/Watch")
        data = [h2.greeting()]
        for n in range(FLOOD):
            stream = 2 * n + 1
            data += [h2.frame(h2.HEADERS, h2.END_HEADERS, stream, block),
                     h2.frame(h2.DATA, h2.END_STREAM, stream, h2.message(b"")),
                     h2.frame(h2.RST_STREAM, 0, stream, b"\x00\x00\x00\x08")]
        data = b"".join(data)
        threads = [threading.Thread(target=h2.send, args=(self.path, data)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    # More than a connection may have, none of them ever finished.
    def test_of_streams_that_are_never_finished(self):
        block = h2.request_headers(b"/tandem.v1.Jobs/Submit")
        opened = b"".join(h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * n + 1, block)
                          for n in range(5000))
        held = []
        for _ in range(8):
            s = h2.connect(self.path)
            held.append(s)
            try:
                s.sendall(h2.greeting() + opened)
            except OSError:
                pass
        time.sleep(0.5)
        server.get(canary.job)
        for s in held:
            s.close()

    # (CVE-2024-27316) Headers that go on and on.
    def test_of_headers_without_an_end(self):
        more = h2.header(b"x-more", b"y" * 1000) * 16
        h2.send(self.path, h2.greeting() + h2.frame(h2.HEADERS, 0, 1, h2.request_headers(b"/a")) +
                h2.frame(h2.CONTINUATION, 0, 1, more) * (FLOOD // 20))
        h2.send(self.path, h2.greeting() + h2.frame(h2.HEADERS, 0, 1, h2.request_headers(b"/a")) +
                h2.frame(h2.CONTINUATION, 0, 1) * FLOOD)

    # Everything that is asked for is answered, but nobody reads the answers.
    def test_of_calls_whose_answers_nobody_reads(self):
        block = h2.request_headers(b"/tandem.v1.Jobs/List")
        request = h2.message(m.jobs.ListJobsRequest(all=True).SerializeToString())
        s = h2.connect(self.path, timeout=0.5)
        data = h2.greeting() + h2.frame(h2.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x00") + b"".join(
            h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * n + 1, block) +
            h2.frame(h2.DATA, h2.END_STREAM, 2 * n + 1, request) for n in range(FLOOD // 10))
        try:
            s.sendall(data)
        except OSError:
            pass
        server.get(canary.job)
        s.close()


class Connections(Case):
    # Bytes that trickle, greetings that stop halfway, headers that never end: each holds a
    # connection, and nothing else.
    def test_that_are_slow(self):
        whole = h2.greeting() + h2.frame(h2.HEADERS, 0, 1, h2.request_headers(b"/tandem.v1.Jobs/Get"))
        slow = [(h2.connect(self.path), self.dice.randint(0, len(whole) - 40)) for _ in range(200)]
        for s, n in slow:
            with contextlib.suppress(OSError):  # it was hung up on, which is right too
                s.sendall(whole[:n])
        for k in range(30):
            for i, (s, n) in enumerate(slow):
                with contextlib.suppress(OSError):
                    s.sendall(whole[n + k:n + k + 1])
        for s, _ in slow[::2]:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_WR)
        server.get(canary.job)
        for s, _ in slow:
            s.close()

    # Come and gone, with and without a word.
    def test_that_come_and_go(self):
        before = self.descriptors()
        for n in range(200 if SMALL else 2000):
            s = h2.connect(self.path)
            if n % 2:
                with contextlib.suppress(OSError):  # as above
                    s.sendall(h2.greeting()[:n % 50])
            s.close()
        wait_for("their descriptors", lambda: self.descriptors() <= before + 10)

    def test_ten_thousand_that_are_idle(self):
        limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except ValueError:
            pass
        if hard < IDLE + 1000:
            self.skipTest(f"SKIPPED: {IDLE} connections need as many open files; {hard} are allowed")
        before, rss, idle = self.descriptors(), self.rss(), []
        try:
            for _ in range(IDLE):
                s = h2.connect(self.path, timeout=DEADLINE)
                idle.append(s)
                s.sendall(h2.greeting())
            # Each is greeted, also if the first were dropped for being idle before the last were taken.
            for s in idle:
                self.assertTrue(s.recv(1, socket.MSG_PEEK))
            print(f"{IDLE} idle connections: {(self.rss() - rss) / IDLE / 1024:.1f} KiB each")
            for _ in range(20):
                server.get(canary.job)
        finally:
            for s in idle:
                s.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        wait_for("their descriptors", lambda: self.descriptors() <= before + 10)


if __name__ == "__main__":
    unittest.main(verbosity=1)
