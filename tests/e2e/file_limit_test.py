#!/usr/bin/env python3
"""A limit of file sizes (a shell's `ulimit -f`, a service's LimitFSIZE=) that the controller's own
database comes to: as on a full disk, nothing new begins, and it says why."""
import pathlib
import resource
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import server_test
from bench_of_programs import DEADLINE, grpc, wait_for
from server_test import Case

WORDS = "(ulimit -f, LimitFSIZE=)"


def setUpModule():
    global m, programs
    server_test.setUpModule()
    m, programs = server_test.m, server_test.programs


class FileLimit(Case):
    def limit(self, more_bytes):
        """To that much more than the database's log has; None = none."""
        has = (self.s.data / "tandem.db-wal").stat().st_size
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(self.s.process.pid, resource.RLIMIT_FSIZE,
                         (hard if more_bytes is None else has + more_bytes, hard))

    def problems(self):
        """What the server says of itself. It looks only now and then: jobs until it has done so would
        bring the database to the limit."""
        admin = m.admin_rpc.AdminStub(self.s.channel)
        info = admin.GetServerInfo(m.admin.ServerInfoRequest(), timeout=DEADLINE)
        return [p for p in info.problems if WORDS in p]

    # A job isn't taken to hang in a database that can't grow.
    def test_jobs_are_refused_before_nothing_can_be_stored(self):
        spec = self.s.spec("one", steps=2)
        self.limit(1 << 20)
        wait_for("a problem", self.problems)
        why = self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, self.s.jobs.Submit,
                           m.jobs.SubmitRequest(spec=spec))
        self.assertIn("files may have at most ", why)
        self.assertIn(f"{WORDS}, and {self.s.data}/tandem.db", why)
        self.limit(None)
        wait_for("none", lambda: not self.problems())
        self.s.wait_state(self.s.submit(spec), "SUCCEEDED")

    # Whoever changes something at the limit itself hears of it, not of a disk with errors.
    def test_a_write_that_is_refused_names_the_limit(self):
        spec = self.s.spec("one", steps=2)
        spec.hold = True
        self.limit(0)
        try:
            self.s.submit(spec)
            self.fail("it was taken")
        except grpc.RpcError as e:
            self.assertEqual(e.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, e.details())
            self.assertIn(WORDS, e.details())
        self.limit(None)

    # A database that can't even be made: the end, in words.
    def test_a_start_that_fails_names_the_limit(self):
        for kib in (4, 64, 300):
            with self.subTest(kib=kib):
                data = self.folder / f"data-{kib}"
                size = kib << 10
                done = subprocess.run(
                    [programs / "tandemd", "--dev", "--data-dir", data, "--listen", "127.0.0.1:0"],
                    env={"HOME": str(self.folder)}, stderr=subprocess.PIPE, text=True,
                    timeout=DEADLINE,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("database: files are limited to less here: raise that limit " + WORDS,
                              done.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
