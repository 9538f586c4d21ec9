#!/usr/bin/env python3
"""The end of a server whose TLS clients don't read: between them and core stand a relay, two sockets
and what TLS itself holds back."""
import pathlib
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import h2
import tls_test
from bench_of_programs import DEADLINE, wait_for

REFLECT = b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
NUM_STREAMS, NUM_QUESTIONS = 50, 40


def setUpModule():
    tls_test.setUpModule()


def question():
    """For the files of a service: a small request with a large answer, for which no token is needed."""
    symbol = b"tandem.v1.Jobs"
    return h2.message(bytes([4 << 3 | 2, len(symbol)]) + symbol)


def waits_to_be_sent(port):
    """Bytes that the kernel holds for clients of the server, as it couldn't send them."""
    total = 0
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[1].split(":")[1], 16) == port:
            total += int(words[4].split(":")[0], 16)
    return total


class Stop(tls_test.Case):
    def connect(self):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(DEADLINE)
        s.connect(("127.0.0.1", self.port))
        return s

    def is_stuck(self):
        """As much waits as a moment ago; the first look of all has nothing to compare with."""
        before, self.waiting = self.waiting, waits_to_be_sent(self.port)
        return before == self.waiting > 0

    # A client asks for more than all of them hold, and never reads. The server leaves all the same,
    # while that client is still there.
    def test_a_client_that_does_not_read_does_not_hold_up_a_stop(self):
        self.start(self.config(listen="127.0.0.1:0"))
        self.waiting = 0
        with self.tls() as client:
            client.sendall(h2.greeting_of_a_wide_window())
            for stream in range(1, 2 * NUM_STREAMS, 2):
                client.sendall(h2.frame(h2.HEADERS, h2.END_HEADERS, stream,
                                        h2.request_headers(REFLECT)) +
                               b"".join(h2.frame(h2.DATA, 0, stream, question())
                                        for _ in range(NUM_QUESTIONS)))
            wait_for("answers that can't be sent", self.is_stuck)
            self.assertEqual(self.stop(), 0)


if __name__ == "__main__":
    unittest.main()
