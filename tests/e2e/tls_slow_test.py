#!/usr/bin/env python3
"""A server behind TLS that stands still when a client comes, and goes on later."""
import contextlib
import pathlib
import socket
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tls_test


def setUpModule():
    tls_test.setUpModule()


def pump(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


class Slow(tls_test.Case):
    def lead(self, listener, taken):
        """The first who comes stands before a closed door; others are led to the server."""
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return
            if len(taken) > 1:
                server = socket.create_connection(("127.0.0.1", self.port))
                for pair in ((taken[-1], server), (server, taken[-1])):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    # Core gives the first connection up after ten seconds; the CLI's own look at the handshake finds
    # that all is well. It is no server that can't be reached: there is time to ask it once more.
    def test_a_server_that_stood_still_is_asked_once_more(self):
        self.start(self.config(listen="127.0.0.1:0"))
        taken = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=self.lead, args=(listener, taken), daemon=True)
            thread.start()
            self.reaches(server=f"tls://127.0.0.1:{listener.getsockname()[1]}")
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(tls_test.DEADLINE)
        self.assertGreaterEqual(len(taken), 3)
        for end in taken:
            end.close()


if __name__ == "__main__":
    unittest.main()
