#!/usr/bin/env python3
"""Processes of the real controller: how they end, what is told of it, and what becomes of them that
won't end. The numbers in brackets are those of the scenarios that other job servers got wrong."""
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import server_test
from bench_of_programs import BIN, DEADLINE, processes, wait_for
from server_test import Case


def setUpModule():
    global m, programs
    server_test.setUpModule()
    m, programs = server_test.m, server_test.programs


def tearDownModule():
    server_test.tearDownModule()


def stat_of(pid):
    """The fields of /proc/PID/stat from the state on; [] = it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def children_of(parent):
    return [int(p.name) for p in pathlib.Path("/proc").iterdir()
            if p.name.isdigit() and stat_of(p.name)[1:2] == [str(parent)]]


def named(name):
    """Living processes of the test that call themselves so."""
    found = []
    for pid in processes(programs):
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name:
                found.append(pid)
        except OSError:
            pass
    return found


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
        wait_for("no child", lambda: not children_of(self.s.process.pid))
        wait_for("free devices", lambda: self.s.holders() == [0] * 4)


class Cancel(ProcessCase):
    # (25) TERM is ignored; children fled by setsid, lost their parent, hold the output open.
    def test_every_descendant_is_gone_and_no_zombie_stays(self):
        job = self.s.submit(self.s.spec("one", steps=1000, devices=2,
                                        tags=["ms=50", "stubborn", "brood", "holder"]))
        self.run_to(job, 1)
        wait_for("descendants", lambda: len(named("brood") + named("holder")) == 4)
        self.cancel(job)
        self.s.wait_state(job, "CANCELLED")
        self.check_alone()
        self.assertEqual(self.s.get(job).message, "cancelled by dev")

    # (25) tandem-node, who knew them all, was killed: they are found by what they inherited.
    def test_what_a_killed_tandem_node_leaves_behind_goes_too(self):
        job = self.s.submit(self.s.spec("one", steps=1000, devices=2,
                                        tags=["ms=50", "brood", "holder"]))
        self.run_to(job, 1)
        left = wait_for("descendants", lambda: len(named("brood") + named("holder")) == 4 and
                        named("brood") + named("holder"))
        os.kill(self.pid_of(job, "tandem-node"), signal.SIGKILL)
        wait_for("the next attempt", lambda: self.s.get(job).attempt == 2)
        self.assertEqual([pid for pid in left if stat_of(pid)[:1] not in ([], ["Z"])], [])
        self.cancel(job)
        self.s.wait_state(job, "CANCELLED")
        self.check_alone()

    # (25) Its tandem-node never says a word: the job ends in the user's, and at once.
    def test_a_cancel_of_a_starting_job_ends_in_the_users_words(self):
        node = programs / "tandem-node"
        aside = programs / "tandem-node.aside"
        node.rename(aside)
        try:
            node.write_text("#!/bin/sh\nexec sleep 1000\n")
            node.chmod(0o755)
            job = self.s.submit(self.s.spec("one"))
            wait_for("its process", lambda: children_of(self.s.process.pid))
            self.assertEqual(self.s.state(job), "JOB_STARTING")
            self.cancel(job)
            self.s.wait_state(job, "CANCELLED")
            self.assertEqual(self.s.get(job).message, "cancelled by dev")
            wait_for("no child", lambda: not children_of(self.s.process.pid))
        finally:
            for pid in children_of(self.s.process.pid):
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
            job = self.s.submit(self.s.spec("one", steps=1000, tags=["ms=50", "undead"]))
            self.run_to(job, 1)
            undead, = wait_for("it", lambda: named("undead"))
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


if __name__ == "__main__":
    unittest.main(verbosity=1)
