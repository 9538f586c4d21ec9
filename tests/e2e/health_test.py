#!/usr/bin/env python3
"""The health of GPUs at the server: what the driver tells of them while a job runs is an event of the
job, and what takes a device out of use drains it. The driver's library is the tests' own, and so
are the ranks, so no GPU is needed."""
import fcntl
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(__file__))
from bench_of_programs import (BIN, DEADLINE, Server, end_processes, link_programs, make_stubs,
                               new_folder, processes, skip, wait_for)

CLUSTER = """nodes:
  - {name: box, cores: 8, devices: [{type: h100, count: 4}]}
  - {name: host, cores: 8, devices: [{type: cpu, count: 4}]}
"""


def setUpModule():
    global folder, m, programs
    if not (BIN / "fake-nvml").is_dir():
        skip("the fake management library isn't built")
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")


def tearDownModule():
    shutil.rmtree(folder, ignore_errors=True)


class Health(unittest.TestCase):
    def setUp(self):
        self.folder = folder / self.id().rsplit(".", 1)[1][:40]
        self.folder.mkdir()
        self.faults = self.folder / "faults"
        self.faults.write_text("")
        (self.folder / "cluster.yaml").write_text(CLUSTER)
        self.make_sysfs()
        env = {"TANDEM_FAKE_NVML": "dgx", "LD_LIBRARY_PATH": str(BIN / "fake-nvml"),
               "TANDEM_FAKE_NVML_FAULTS": str(self.faults), "TANDEM_WATCH_MS": "50",
               "TANDEM_SYSFS": str(self.folder / "sys")}
        patch = mock.patch.dict(os.environ, env)
        patch.start()
        self.addCleanup(patch.stop)
        self.s = Server(m, self.folder, programs, devices=None,
                        args=["--cluster", str(self.folder / "cluster.yaml")])

    def tearDown(self):
        code = self.s.stop()
        end_processes(programs)
        self.assertEqual(code, 0, (self.folder / "tandemd.log").read_text()[-4000:])

    def make_sysfs(self):
        """GPU 0 is near NUMA node 0, GPU 1 near 1, each with one of the CPUs that we may use."""
        cpus = sorted(os.sched_getaffinity(0))
        self.cpus = [cpus[0], cpus[-1]]
        for gpu in (0, 1):
            where = self.folder / f"sys/bus/pci/devices/0001:{0x10 + gpu:02x}:00.0"
            where.mkdir(parents=True)
            (where / "numa_node").write_text(f"{gpu}\n")
            where = self.folder / f"sys/devices/system/node/node{gpu}"
            where.mkdir(parents=True)
            (where / "cpulist").write_text(f"{self.cpus[gpu]}\n")

    def happens(self, line):
        with open(self.faults, "a") as f:
            f.write(line + "\n")

    def submit(self, name, devices=2, **fields):
        spec = self.s.spec(name, steps=100000, devices=devices, tags=["ms=10"], **fields)
        spec.resources.backend = "cuda"
        job = self.s.submit(spec)
        wait_for("some steps", lambda: self.s.get(job).step >= 2)
        return job

    def cancel(self, job):
        self.s.jobs.Cancel(m.jobs.JobRef(job=str(job)), timeout=DEADLINE)
        self.s.wait_state(job, "CANCELLED")

    def devices(self):
        c = self.s.cluster.ListNodes(m.cluster.ListNodesRequest(), timeout=DEADLINE)
        return {(n.name, d.index): d for n in c.nodes for d in n.devices}

    def held_by(self, job):
        return sorted(k for k, d in self.devices().items() if d.job_id == job)

    def drained(self):
        return {k: d.reason for k, d in self.devices().items() if d.drained}

    def events(self, job, kind):
        return [e.message for e in self.s.get(job).events if e.kind == kind]

    def wait_event(self, job, kind, words):
        wait_for(f'"{words}"', lambda: any(words in e for e in self.events(job, kind)))

    def tandem(self, *words):
        return subprocess.run([BIN / "tandem", *words], capture_output=True, text=True,
                              timeout=DEADLINE, check=True, env={
                                  **os.environ,
                                  "TANDEM_SERVER": f"unix:{self.s.data}/tandemd.sock"}).stdout

    def rank_pid(self, job, rank):
        words = [b"--rank", str(rank).encode(), b"--job", str(job).encode()]
        return next((pid for pid, line in self.lines("tandem-rank") if line[1:5] == words), None)

    def watches(self):
        return [pid for pid, line in self.lines("tandem-probe") if b"--watch" in line]

    def lines(self, program):
        for pid, exe in processes(programs).items():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if exe.endswith(program):
                yield pid, words

    def test_a_fault_takes_the_gpu_out_of_use_and_moves_the_job(self):
        job = self.submit("moved")
        self.assertEqual(self.held_by(job), [("box", 0), ("box", 1)])
        # What makes it slow is told, and takes nothing away; neither do programs' own faults.
        self.happens("1 slow 0x40")
        self.wait_event(job, "device", "box:1 (GPU-00000000-0000-0000-0000-000000000001): slowed "
                                       "down: heat (40 C)")
        self.happens("0 xid 13")
        self.wait_event(job, "device", "XID 13: a kernel failed, most often by the program's fault")
        # Others' devices are no matter of this job.
        self.happens("3 xid 79")
        self.assertEqual(self.drained(), {})
        self.assertEqual(self.s.get(job).attempt, 1)
        self.happens("1 xid 79")
        words = f"XID 79: GPU has fallen off the bus, in job {job}"
        wait_for("the drain", self.drained)
        self.assertEqual(self.drained(), {("box", 1): words})
        wait_for("a second attempt", lambda: self.s.get(job).attempt == 2 and self.held_by(job))
        self.assertNotIn(("box", 1), self.held_by(job))
        wait_for("more steps", lambda: self.s.state(job) == "JOB_RUNNING")
        got = self.s.get(job)
        self.assertEqual(got.restarts, 0)
        self.assertTrue(any("gives its 2 devices back: box:1 is drained (XID 79" in e.message
                            for e in got.events))
        self.assertEqual(len([e for e in self.events(job, "device") if "slowed" in e]), 1)
        self.assertIn("GPU has fallen off the bus", self.tandem("nodes", "box"))
        self.assertIn("drained until someone has looked at it", self.tandem("show", str(job)))
        self.assertIn(f"box:1: {words}", self.tandem("admin", "audit"))
        # Until an administrator says otherwise.
        self.s.stop()
        self.s.start()
        self.assertEqual(self.drained(), {("box", 1): words})
        self.tandem("undrain", "box:1")
        self.assertEqual(self.drained(), {})
        self.cancel(job)

    # Of what kind a fault is decides, not how it is found.
    def test_memory_that_fails_and_a_lost_gpu_are_faults_too(self):
        reasons = {0: ("0 ecc 2", "2 memory errors that could not be corrected"),
                   1: ("1 remap 1", "a row of its memory could not be replaced"),
                   2: ("2 lost 1", "it does not answer any more: GPU is lost")}
        job = self.submit("memory", devices=1)
        for gpu, (line, words) in reasons.items():
            wait_for("its device", lambda g=gpu: self.held_by(job) == [("box", g)] and
                     self.s.state(job) == "JOB_RUNNING")
            self.happens(f"{gpu} pending 1")
            self.wait_event(job, "device", f"box:{gpu} (GPU-00000000-0000-0000-0000-00000000000{gpu}"
                                           "): a row of its memory is to be replaced")
            self.happens(line)
            wait_for("the drain", lambda g=gpu: ("box", g) in self.drained())
            self.assertEqual(self.drained()[("box", gpu)], f"{words}, in job {job}")
        wait_for("the last device", lambda: self.held_by(job) == [("box", 3)])
        self.cancel(job)

    def unheard(self, watch):
        """Bytes that it has said and tandem-node has not read yet."""
        fd = os.open(f"/proc/{watch}/fd/1", os.O_RDONLY | os.O_NONBLOCK)
        try:
            return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]
        finally:
            os.close(fd)

    def die(self, job, rank, fault):
        """At once for tandem-node, however long it takes here: it finds the death and the driver's word."""
        words = [b"--job", str(job).encode()]
        node = next(pid for pid, line in self.lines("tandem-node") if line[1:3] == words)
        os.kill(node, signal.SIGSTOP)
        wait_for("it to stand still", lambda: pathlib.Path(f"/proc/{node}/stat").read_text()
                 .rsplit(")", 1)[1].split()[0] == "T")
        watch, = self.watches()
        said = self.unheard(watch)
        os.kill(self.rank_pid(job, rank), signal.SIGKILL)
        self.happens(fault)
        wait_for("the driver's word", lambda: self.unheard(watch) > said)
        os.kill(node, signal.SIGCONT)

    # What the driver says when a rank dies is the cause (what it says just behind it: health_watch_test).
    def test_a_gang_that_dies_of_a_gpu_says_so(self):
        job = self.submit("dies", max_restarts=3, first_backoff_s=0)
        self.die(job, 1, "1 xid 31")
        wait_for("a second attempt", lambda: self.s.get(job).attempt == 2)
        told = [e.message for e in self.s.get(job).events if e.kind == "state" and e.cause == "restart"]
        self.assertRegex(told[0], r"^GPU 1 of box \(rank 1\): XID 31: a page fault, most often by the "
                                  r"program's fault; rank 1: killed by signal 9")
        self.assertEqual(self.drained(), {})
        # Its watch is a new one, which tells of all that stands in the file.
        wait_for("it to run", lambda: self.s.state(job) == "JOB_RUNNING" and self.rank_pid(job, 0) and
                 len([e for e in self.events(job, "device") if "XID 31" in e]) == 2)
        self.die(job, 0, "0 xid 48")
        wait_for("the drain", lambda: ("box", 0) in self.drained())
        wait_for("a third attempt", lambda: self.s.get(job).attempt == 3 and self.held_by(job))
        self.assertNotIn(("box", 0), self.held_by(job))
        self.assertTrue(any("XID 48: a double-bit memory error" in e.message and "box" in e.message
                            for e in self.s.get(job).events if e.kind == "state"))
        self.cancel(job)

    def test_a_library_that_crashes_costs_no_rank(self):
        job = self.submit("calm")
        wait_for("its watch", lambda: len(self.watches()) == 1)
        self.happens("0 crash 1")
        self.wait_event(job, "note", "the health of GPUs isn't looked at for a while: tandem-probe "
                                     "ended by ")
        self.assertEqual(self.watches(), [])
        step = self.s.get(job).step
        wait_for("more steps", lambda: self.s.get(job).step > step + 10)
        self.assertEqual(self.s.get(job).attempt, 1)
        self.cancel(job)

    # The library isn't so much as opened for a job on CPUs.
    def test_a_job_on_cpus_is_not_watched(self):
        job = self.s.submit(self.s.spec("cpu", steps=100000, tags=["ms=10"]))
        wait_for("some steps", lambda: self.s.get(job).step >= 5)
        self.assertEqual(self.watches(), [])
        self.cancel(job)

    def test_ranks_run_near_their_gpus(self):
        job = self.submit("near")
        for rank in (0, 1):
            self.assertEqual(os.sched_getaffinity(self.rank_pid(job, rank)), {self.cpus[rank]})
        log = (self.s.data / f"jobs/{job}/logs/attempt-1/node.log").read_text()
        self.assertTrue(re.search(rf"rank 1: GPU 1: CPUs {self.cpus[1]} of NUMA node 1", log), log)
        self.cancel(job)
        # tandem-node itself may run anywhere.
        cpu = self.s.submit(self.s.spec("cpu", steps=5))
        self.s.wait_state(cpu, "SUCCEEDED")


if __name__ == "__main__":
    unittest.main(verbosity=2 if "-v" in sys.argv else 1)
