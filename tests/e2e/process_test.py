#!/usr/bin/env python3
"""Processes of the real controller: how they end, what is told of it, and what becomes of them that
won't end. The numbers in brackets are those of the scenarios that other job servers got wrong."""
import contextlib
import os
import pathlib
import resource
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import server_test
from bench_of_programs import BIN, DEADLINE, processes, wait_for
from server_test import Case

# It takes a TERM, but one that stands still for longer than the grace doesn't come to that.
STOPPED = r"stopped by Tandem with signal (15 \(SIGTERM\)|9 \(SIGKILL\)): "


def setUpModule():
    global m, programs
    server_test.setUpModule()
    m, programs = server_test.m, server_test.programs


def stat_of(pid):
    """The fields of /proc/PID/stat from the state on; [] = it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def children_of(parent):
    return [int(p.name) for p in pathlib.Path("/proc").iterdir()
            if p.name.isdigit() and stat_of(p.name)[1:2] == [str(parent)]]


def comm_of(pid):
    """"" = it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def named(name):
    """Living processes of the test that call themselves so."""
    return [pid for pid in processes(programs) if comm_of(pid) == name]


def make_group():
    """A control group of version 2 that can kill, or None."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            group = pathlib.Path(line.split()[4]) / f"tandem-test-{os.getpid()}"
            try:
                group.mkdir()
            except OSError:
                return None
            if (group / "cgroup.kill").exists():
                return group
            group.rmdir()
    return None


class ProcessCase(Case):
    def run_to(self, job, step):
        wait_for(f"step {step}", lambda: self.s.get(job).step >= step)

    def cancel(self, job):
        self.s.jobs.Cancel(self.ref(job), timeout=DEADLINE)

    def told(self, job):
        return "\n".join(e.message for e in self.s.get(job).events)

    def log_of(self, job, rank, attempt=1):
        return (self.s.data / f"jobs/{job}/logs/attempt-{attempt}/rank-{rank}.log").read_text()

    def devices(self):
        return self.s.cluster.ListNodes(m.cluster.ListNodesRequest(),
                                        timeout=DEADLINE).nodes[0].devices

    def check_alone(self):
        """Nothing is left but the controller, not even a zombie."""
        wait_for("no process", lambda: set(processes(programs)) == {self.s.process.pid})
        wait_for(f"no child of {self.s.process.pid}",
                 lambda: not children_of(self.s.process.pid))
        wait_for("free devices", lambda: self.s.holders() == [0] * 4)


class Cancel(ProcessCase):
    # (25) TERM is ignored; children fled by setsid, lost their parent, hold the output open.
    def test_every_descendant_is_gone_and_no_zombie_stays(self):
        job = self.s.submit(self.s.spec("one", steps=1000000, devices=2,
                                        tags=["ms=50", "stubborn", "brood", "holder"]))
        self.run_to(job, 1)
        wait_for("descendants", lambda: len(named("brood") + named("holder")) == 4)
        self.cancel(job)
        self.s.wait_state(job, "CANCELLED")
        self.check_alone()
        self.assertEqual(self.s.get(job).message, "cancelled by dev")

    # (25) tandem-node, who knew them all, was killed: they are found by what they inherited.
    def test_what_a_killed_tandem_node_leaves_behind_goes_too(self):
        job = self.s.submit(self.s.spec("one", steps=1000000, devices=2,
                                        tags=["ms=50", "brood", "holder"]))
        self.run_to(job, 1)
        left = wait_for("descendants", lambda: len(named("brood") + named("holder")) == 4 and
                        named("brood") + named("holder"))
        os.kill(self.pid_of(job, "tandem-node"), signal.SIGKILL)
        wait_for("the next attempt", lambda: self.s.get(job).attempt == 2)
        self.assertEqual([pid for pid in left if stat_of(pid)[:1] not in ([], ["Z"], ["X"])], [])
        self.cancel(job)
        self.s.wait_state(job, "CANCELLED")
        self.check_alone()

    # (25) In a group of its own nobody gets out of sight, whatever it sheds.
    def test_a_control_group_finds_who_shed_session_parents_and_environment(self):
        group = make_group()
        if not group:
            self.skipTest("SKIPPED: may make no control group (version 2) here")
        self.s.stop()
        os.environ["TANDEM_CGROUP"] = str(group)
        try:
            self.s.start()
            job = self.s.submit(self.s.spec("one", steps=1000000, tags=["ms=50", "clean"]))
            self.run_to(job, 1)
            first, = group.glob("tandem-*-1")
            comms = lambda: [comm_of(p) for p in (first / "cgroup.procs").read_text().split()]
            wait_for("all", lambda: sorted(comms()) == ["sleep", "tandem-node", "tandem-rank"])
            os.kill(self.pid_of(job, "tandem-node"), signal.SIGKILL)
            wait_for("the next attempt", lambda: self.s.get(job).attempt == 2)
            self.assertFalse(first.exists())  # it can't be removed while anybody is in it
            self.cancel(job)
            self.s.wait_state(job, "CANCELLED")
            self.check_alone()
            self.assertEqual(list(group.glob("tandem-*")), [])
        finally:
            del os.environ["TANDEM_CGROUP"]
            for path in [*group.glob("tandem-*"), group]:
                (path / "cgroup.kill").write_text("1")
                wait_for("an empty group", lambda: not (path / "cgroup.procs").read_text())
                path.rmdir()

    # (25) Its tandem-node never says a word: the job ends in the user's, and at once.
    def test_a_cancel_of_a_starting_job_ends_in_the_users_words(self):
        node = programs / "tandem-node"
        aside = programs / "tandem-node.aside"
        node.rename(aside)
        try:
            node.write_text("#!/bin/sh\nexec sleep 1000\n")
            node.chmod(0o755)
            job = self.s.submit(self.s.spec("one"))
            wait_for("its process", lambda: "sleep" in map(comm_of, children_of(self.s.process.pid)))
            self.assertEqual(self.s.state(job), "JOB_STARTING")
            self.cancel(job)
            self.s.wait_state(job, "CANCELLED")
            self.assertEqual(self.s.get(job).message, "cancelled by dev")
            wait_for("no child", lambda: not children_of(self.s.process.pid))
        finally:
            for pid in children_of(self.s.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            node.unlink()
            aside.rename(node)

    # (25) One that can't be killed: the job ends all the same, its device is out of use, says why,
    # also after a restart of the controller; and is in use again when the process has gone.
    def test_a_process_that_can_not_be_killed_costs_its_device_and_not_the_job(self):
        shim = BIN.parent / "lib/libundead.so"
        if os.environ.get("TANDEM_SAMPLE") or not shim.exists():
            self.skipTest("SKIPPED: a sanitizer's runtime wants to be the first that is loaded")
        self.s.stop()
        os.environ["LD_PRELOAD"] = str(shim)
        try:
            self.s.start()
            job = self.s.submit(self.s.spec("one", steps=1000000, tags=["ms=50", "undead"]))
            self.run_to(job, 1)
            undead, = wait_for("it", lambda: named("undead"))
            wait_for("its sleep", lambda: stat_of(undead)[:1] == ["S"])
            self.cancel(job)
            self.s.wait_state(job, "CANCELLED")
            self.assertEqual(self.s.get(job).message, "cancelled by dev")
            for restart in (False, True):
                if restart:
                    self.s.kill()
                    self.s.start()
                drained = wait_for("quarantine", lambda: [d for d in self.devices() if d.drained])
                self.assertEqual([(d.index, d.job_id) for d in drained], [(0, job)])
                self.assertIn(f"job {job}: pid {undead} (undead, state S) was killed and is still "
                              "there", drained[0].reason)
            self.assertIn("are out of use until it is gone", self.told(job))
            # the other devices go on
            other = self.s.submit(self.s.spec("other", devices=2, steps=3))
            self.s.wait_state(other, "SUCCEEDED")
            os.kill(undead, signal.SIGKILL)
            self.check_alone()
            self.assertEqual([d.index for d in self.devices() if d.drained], [])
            self.assertIn("gone after all", self.told(job))
        finally:
            del os.environ["LD_PRELOAD"]
            for pid in named("undead"):
                os.kill(pid, signal.SIGKILL)


class Ends(ProcessCase):
    # (26) Codes and signals, in words: in the event, in the job, on the screen.
    def test_codes_over_128_and_signals_are_told_in_words(self):
        for tag, words in (("exit=137", "left with code 137, as a shell reports signal 9 (SIGKILL)"),
                           ("exit=255", "left with code 255"),
                           ("raise=11", "killed by signal 11 (SIGSEGV)"),
                           ("raise=6", "killed by signal 6 (SIGABRT)"),
                           ("raise=64", "killed by signal 64"),
                           ("raise=9", "killed by signal 9 (SIGKILL), not by Tandem: ")):
            job = self.s.submit(self.s.spec("one", tags=[tag], max_restarts=0))
            self.s.wait_state(job, "FAILED")
            got = self.s.get(job)
            self.assertIn(f"rank 0: {words}", got.message)
            exits = [e for e in got.events if e.kind == "rank-exit"]
            self.assertEqual(len(exits), 1)
            self.assertIn(words, exits[0].message)
            shown = subprocess.run([programs / "tandem", "--server",
                                    f"unix:{self.s.data}/tandemd.sock", "show", str(job)],
                                   capture_output=True, text=True, timeout=DEADLINE).stdout
            self.assertIn(words, " ".join(shown.split()))

    # (26) Whatever it is that kills the gang: one budget, longer and longer pauses, then the end.
    def test_a_crash_loop_backs_off_and_ends_with_its_cause(self):
        job = self.s.submit(self.s.spec("one", tags=["exit=7"], max_restarts=3,
                                        first_backoff_s=0.05))
        self.s.wait_state(job, "FAILED")
        got = self.s.get(job)
        self.assertEqual((got.attempt, got.restarts, got.cause), (4, 3, "restarts-spent"))
        self.assertIn("left with code 7", got.message)
        told = self.told(job)
        for n, seconds in ((1, "0.05"), (2, "0.1"), (3, "0.2")):
            self.assertIn(f"left with code 7, without a word of why (restart {n} of 3 in "
                          f"{seconds} s)", told)
        self.check_alone()

    def test_a_killed_tandem_node_and_a_crash_spend_the_same_budget(self):
        job = self.s.submit(self.s.spec("one", tags=["gate=0"], max_restarts=1,
                                        first_backoff_s=0.05))
        self.s.wait_state(job, "RUNNING")
        os.kill(self.pid_of(job, "tandem-node"), signal.SIGKILL)
        wait_for("the next attempt", lambda: self.s.get(job).attempt == 2 and
                 self.s.state(job) == "JOB_RUNNING")
        os.kill(self.pid_of(job, "tandem-rank"), signal.SIGKILL)
        self.s.wait_state(job, "FAILED")
        self.assertEqual(self.s.get(job).cause, "restarts-spent")
        self.assertIn("tandem-node is gone and took the gang with it (restart 1 of 1",
                      self.told(job))

    # A shell's `ulimit -f`, or a service's LimitFSIZE, holds for what the ranks share as well; the
    # kernel's way to say so is a signal.
    def test_a_limit_of_file_sizes_is_told_and_kills_nobody(self):
        limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(self.s.process.pid, resource.RLIMIT_FSIZE, (32 << 20, hard))
        job = self.s.submit(self.s.spec("one", devices=2, max_restarts=0))
        self.s.wait_state(job, "FAILED")
        self.assertIn("files are limited to less here: raise that limit (ulimit -f, LimitFSIZE=)",
                      self.s.get(job).message)
        resource.prlimit(self.s.process.pid, resource.RLIMIT_FSIZE, (limit, hard))
        again = self.s.submit(self.s.spec("two", steps=2, devices=2))
        self.s.wait_state(again, "SUCCEEDED")
        self.check_alone()


class Logs(ProcessCase):
    def read(self, job, **what):
        return b"".join(r.data for r in self.s.jobs.Logs(
            m.jobs.LogsRequest(job=str(job), **what), timeout=DEADLINE))

    def last_line(self, job, rank, attempt=1):
        return self.log_of(job, rank, attempt).splitlines()[-1]

    # (27) Who killed it, and why.
    def test_the_last_line_of_a_killed_rank_says_who_and_why(self):
        job = self.s.submit(self.s.spec("one", steps=1000000, devices=2, tags=["ms=20", "say"]))
        self.run_to(job, 2)
        self.cancel(job)
        self.s.wait_state(job, "CANCELLED")
        for rank in range(2):
            self.assertRegex(self.last_line(job, rank), f"rank {rank}: {STOPPED}cancelled by dev")
        job = self.s.submit(self.s.spec("two", steps=1000000, devices=2, tags=["gate=2", "say"],
                                        max_restarts=0))
        self.run_to(job, 2)
        os.kill(self.pid_of(job, "tandem-rank"), signal.SIGKILL)
        self.s.wait_state(job, "FAILED")
        lines = sorted((self.last_line(job, 0), self.last_line(job, 1)),
                       key=lambda line: "stopped by Tandem" not in line)
        self.assertRegex(lines[0], STOPPED + r"rank [01]: killed by signal 9 \(SIGKILL\), not by Tandem: ")
        self.assertRegex(lines[1], r"rank [01]: killed by signal 9 \(SIGKILL\), not by Tandem: ")

    # (27) A log whose middle was dropped: said once, and the rest comes at its old offsets.
    def test_a_reader_is_told_of_what_was_dropped(self):
        job = self.s.submit(self.s.spec("one", steps=3))
        self.s.wait_state(job, "SUCCEEDED")
        path = self.s.data / f"jobs/{job}/logs/attempt-1/rank-0.log"
        block, lines = 65536, b"".join(b"line %010d\n" % n for n in range(40000))
        path.write_bytes(lines)
        if subprocess.run(["fallocate", "--punch-hole", "--offset", str(block), "--length",
                           str(5 * block), path], capture_output=True).returncode != 0:
            self.skipTest("SKIPPED: no holes can be made in a file here")
        note = b"\n[%d bytes of output were dropped]\n" % (5 * block)
        self.assertEqual(self.read(job, rank=0), lines[:block] + note + lines[6 * block:])
        self.assertEqual(self.read(job, rank=0, from_offset=6 * block + 160),
                         lines[6 * block + 160:])
        every = self.read(job)
        self.assertIn(b"rank 0: [%d bytes of output were dropped]\n" % (5 * block), every)

    # (27) Someone moves or cuts the file under the reader, the controller goes away and comes back.
    def test_a_reader_outlives_a_log_that_is_cut_moved_or_gone(self):
        # More than is written behind the cut, until the reader has looked.
        job = self.s.submit(self.s.spec("one", steps=1000000, tags=["say", "gate=50", "gate=52"]))
        self.run_to(job, 50)
        path = self.s.data / f"jobs/{job}/logs/attempt-1/rank-0.log"
        pieces = self.s.jobs.Logs(m.jobs.LogsRequest(job=str(job), rank=0, follow=True),
                                  timeout=DEADLINE)
        first = next(pieces)
        self.assertTrue(first.data.startswith(b"step 1\n"))
        self.assertEqual(first.next_offset, len(first.data))
        os.truncate(path, 0)
        self.s.allow(job, "gate-50")
        text = b""
        while b"[the log was cut short; this is it from its beginning]\nstep " not in text:
            text += next(pieces).data
        path.rename(path.with_suffix(".old"))  # the rank goes on writing there
        path.write_text("someone's own\n")
        while b"[the log was replaced; this is it from its beginning]\nsomeone's own\n" not in text:
            text += next(pieces).data
        path.unlink()
        self.cancel(job)
        self.s.wait_state(job, "CANCELLED")
        text += b"".join(p.data for p in pieces)
        self.assertRegex(text.splitlines()[-1].decode(), STOPPED + "cancelled by dev")

    def test_a_log_is_read_on_where_it_was_left_when_the_controller_restarts(self):
        job = self.s.submit(self.s.spec("one", steps=60, tags=["gate=5", "say"]))
        self.run_to(job, 5)
        pieces = self.s.jobs.Logs(m.jobs.LogsRequest(job=str(job), rank=0, follow=True),
                                  timeout=DEADLINE)
        first = next(pieces)
        self.s.kill()
        self.s.start()
        self.s.allow(job, "gate-5")
        rest = self.read(job, rank=0, follow=True, from_offset=first.next_offset)
        lines = (first.data + rest).decode().splitlines()
        self.assertEqual(lines[:60], [f"step {n}" for n in range(1, 61)])


if __name__ == "__main__":
    unittest.main(verbosity=1)
