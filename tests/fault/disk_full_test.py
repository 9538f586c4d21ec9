#!/usr/bin/env python3
"""(33) The disk of the data folder is full: of the database, the journals, the logs. What runs goes
on where it can, new work is refused in words, the server says what is wrong with it, nothing that
was acknowledged is lost, and all goes on by itself once there is room. In a mount namespace of its
own, so that the small disk goes with the test."""
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
INSIDE = "TANDEM_DISK_FULL_INSIDE"
if INSIDE not in os.environ:
    flags = "-m" if os.geteuid() == 0 else "-rm"
    if subprocess.run(["unshare", flags, "mount", "-t", "tmpfs", "t", "/mnt"],
                      capture_output=True).returncode != 0:
        print("SKIPPED: may not mount a tmpfs in a namespace of its own")
        sys.exit(77)
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", flags, sys.executable, __file__, *sys.argv[1:]])

import server_test
from bench_of_programs import DEADLINE, Server, end_processes, grpc, processes, wait_for
from server_test import want


def setUpModule():
    global m, programs
    server_test.setUpModule()
    m, programs = server_test.m, server_test.programs


class DiskFull(unittest.TestCase):
    def setUp(self):
        self.folder = server_test.folder / self.id().rsplit(".", 1)[1][:24]
        self.disk = self.folder / "small"
        self.disk.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tandem-test", self.disk],
                       check=True)
        self.s = Server(m, self.disk, programs)  # its own log lies there too

    def tearDown(self):
        self.make_room()
        code = self.s.stop()
        end_processes(programs)
        subprocess.run(["umount", "-l", self.disk], check=True)
        self.assertEqual(code, 0)

    def fill(self):
        with open(self.disk / "ballast", "ab", buffering=0) as f:
            for size in (65536, 4096, 512, 1):
                try:
                    while True:
                        f.write(b"x" * size)
                except OSError:
                    pass

    def wait_full(self, what, condition):
        """What a full disk leads to. Whatever the server gives back meanwhile is filled again."""
        def holds():
            self.fill()
            return condition()
        return wait_for(what, holds)

    def make_room(self):
        (self.disk / "ballast").unlink(missing_ok=True)

    def refusal(self):
        try:
            self.s.submit(self.s.spec("refused", steps=1))
        except grpc.RpcError as e:
            return e
        return None

    def problems(self):
        admin = m.admin_rpc.AdminStub(self.s.channel)
        return admin.GetServerInfo(m.admin.ServerInfoRequest(), timeout=DEADLINE).problems

    def serving(self):
        # By hand: the health service's stubs are a package of their own.
        ask = self.s.channel.unary_unary("/grpc.health.v1.Health/Check",
                                         request_serializer=lambda b: b,
                                         response_deserializer=lambda b: b)
        return ask(b"", timeout=DEADLINE) == b"\x08\x01"

    def tandem(self, *words):
        return subprocess.run([programs / "tandem", "--server",
                               f"unix:{self.s.data}/tandemd.sock", *words], capture_output=True,
                              text=True, timeout=DEADLINE).stdout

    def test_everything_says_so_and_everything_goes_on(self):
        job = self.s.submit(self.s.spec("runs", steps=300, tags=["ms=10", "say", "gate=100"]))
        kept = [self.s.submit(self.s.spec(f"waits-{n}", steps=2, devices=4)) for n in range(5)]
        wait_for("step 3", lambda: self.s.get(job).step >= 3)
        e = self.wait_full("a refusal", self.refusal)
        self.assertEqual(e.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, e.details())
        self.assertIn("disk is full", e.details())
        problem = self.wait_full("a problem", self.problems)[0]
        self.assertIn("the disk is full: ", problem)
        self.assertIn("new work waits for room", problem)
        self.wait_full("health to say so", lambda: not self.serving())
        for words in (("show", str(job)), ("doctor",)):
            self.wait_full(f"{words[0]} to say so", lambda: "the disk is full" in
                           " ".join(self.tandem(*words).split()))
        try:
            why = self.s.jobs.Why(m.jobs.JobRef(job=str(kept[0])), timeout=DEADLINE).reasons[0]
        except grpc.RpcError as e:  # in one batch with what can't be written
            why = e.details()
        self.assertIn("the disk is full", why)
        log = self.s.data / f"jobs/{job}/logs/attempt-1/rank-0.log"
        size = log.stat().st_size
        # the gang is alive, and has nowhere left to write
        self.assertEqual(len([p for p in processes(programs).values() if "tandem-rank" in p]), 1)
        self.make_room()
        self.s.allow(job, "gate-100")
        wait_for("health", self.serving)
        for n in [job, *kept]:
            self.s.wait_state(n, "SUCCEEDED")
            self.assertEqual(self.s.get(n).attempt, 1)
        self.assertEqual(self.s.curve(job), want(300))
        self.assertGreater(log.stat().st_size, size)
        self.assertEqual(list(self.problems()), [])
        self.s.wait_state(self.s.submit(self.s.spec("after", steps=2)), "SUCCEEDED")

    # What ends on a full disk is told when there is room; it isn't run again.
    def test_a_job_that_finishes_on_a_full_disk_is_not_run_again(self):
        job = self.s.submit(self.s.spec("ends", steps=60, tags=["ms=10", "gate=3"]))
        self.s.wait_step(job, 3)
        self.fill()
        self.s.allow(job, "gate-3")
        wait_for("the rank's end",
                 lambda: not [p for p in processes(programs).values() if "tandem-rank" in p])
        self.wait_full("a refusal", self.refusal)
        self.make_room()
        self.s.wait_state(job, "SUCCEEDED")
        self.assertEqual(self.s.get(job).attempt, 1)
        self.assertEqual(self.s.curve(job), want(60))

    def change(self, call, request):
        """Whether it was done: what can't be written isn't, and says so."""
        try:
            call(request, timeout=DEADLINE)
            return True
        except grpc.RpcError as e:
            self.assertEqual(e.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, e.details())
            return False

    # What was decided and not written down has not happened: no device is drained, claimed, or given
    # up for it; and it is decided again when there is room.
    def test_a_drain_and_a_preemption_wait_for_room(self):
        s = self.s
        self.assertEqual(s.stop(), 0)
        s.args += ["--scheduler", "min_run_s=0"]
        s.start()
        victim = s.submit(s.spec("victim", steps=100000, devices=4, tags=["ms=20"]))
        wait_for("step 3", lambda: s.get(victim).step >= 3)
        spec = s.spec("first", steps=100000, devices=4, tags=["ms=20"])
        spec.priority, spec.hold = "high", True
        first = s.submit(spec)
        node = s.cluster.ListNodes(m.cluster.ListNodesRequest(), timeout=DEADLINE).nodes[0].name
        drain = m.cluster.DrainRequest(node=node, device=0)
        self.fill()
        wait_for("a drain that can't be kept", lambda: not (
            self.change(s.cluster.Undrain, drain) and self.change(s.cluster.Drain, drain)))
        wait_for("a release that can't be kept", lambda: not (
            self.change(s.jobs.Release, m.jobs.JobRef(job=str(first))) and
            self.change(s.jobs.Hold, m.jobs.JobRef(job=str(first)))))
        for round in range(3):  # full and not, while one stops and the other comes
            self.make_room()
            wait_for("room", lambda: self.change(s.cluster.Undrain, drain))
            if s.state(first) == "JOB_HELD":
                wait_for("room", lambda: self.change(s.jobs.Release, m.jobs.JobRef(job=str(first))))
            self.fill()
        self.make_room()
        s.wait_state(first, "RUNNING")
        wait_for("room", lambda: self.change(s.cluster.Drain, drain))
        s.wait_state(first, "QUEUED")
        self.assertEqual(s.state(victim), "JOB_QUEUED")
        def devices():
            return s.cluster.ListNodes(m.cluster.ListNodesRequest(), timeout=DEADLINE).nodes[0].devices
        self.assertEqual([d.drained for d in devices()], [True, False, False, False])
        # It is in the queue a moment before its processes are known to be gone.
        wait_for("free devices", lambda: [(d.job_id, d.claimed_by) for d in devices()] == [(0, 0)] * 4)
        self.assertEqual(s.get(first).evictions, 0)
        with sqlite3.connect(s.data / "tandem.db") as db:
            wrong = db.execute("SELECT job, number FROM attempts WHERE device_us <> "
                               "num_devices * (gone_us - created_us) OR condition <> 5").fetchall()
        self.assertEqual(wrong, [])

    # A rank dies meanwhile: its restart waits for room and costs one of the budget, not all.
    def test_a_restart_waits_for_room(self):
        job = self.s.submit(self.s.spec("dies", steps=100, tags=["ms=20", "gate=50"],
                                        max_restarts=2, first_backoff_s=0.01))
        wait_for("step 3", lambda: self.s.get(job).step >= 3)
        self.wait_full("a problem", self.problems)
        rank = [p for p, exe in processes(programs).items() if "tandem-rank" in exe]
        os.kill(rank[0], signal.SIGKILL)
        # Not of all ranks: where a bit of room came back meanwhile, it is started again already.
        wait_for("its end", lambda: rank[0] not in processes(programs))
        self.make_room()
        self.s.allow(job, "gate-50")
        self.s.wait_state(job, "SUCCEEDED")
        self.assertEqual((self.s.get(job).attempt, self.s.get(job).restarts), (2, 1))

    # Killed on a full disk, the controller comes up, or says why it can't; with room it has all.
    def test_a_controller_that_is_killed_on_a_full_disk_loses_nothing(self):
        job = self.s.submit(self.s.spec("runs", steps=200, tags=["ms=10"]))
        kept = [self.s.submit(self.s.spec(f"waits-{n}", steps=2, devices=4)) for n in range(5)]
        wait_for("step 3", lambda: self.s.get(job).step >= 3)
        self.wait_full("a refusal", self.refusal)
        self.s.kill()
        self.fill()
        again = subprocess.Popen([programs / "tandemd", "--dev", "--data-dir", self.s.data],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 env={**os.environ, "XDG_CONFIG_HOME": str(self.folder / "config")})
        try:
            text = again.communicate(timeout=5)[0].decode()
            self.assertEqual(again.returncode, 1)
            self.assertRegex(text, "disk is full|No space left")
        except subprocess.TimeoutExpired:  # it serves
            again.kill()
            again.communicate()
        self.make_room()
        self.s.start()
        for n in [job, *kept]:
            self.s.wait_state(n, "SUCCEEDED")
        self.assertEqual(self.s.curve(job), want(200))


if __name__ == "__main__":
    unittest.main(verbosity=1)
