#!/usr/bin/env python3
"""The queue on real processes: hold and release, dependencies, time limits, priorities, preemption
and claims, through kills of the controller. tandem-rank is the fake one (helpers/fake_rank.c).

TANDEM_BIN: the programs. Needs grpc for Python."""
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, link_programs, make_stubs, new_folder, processes,
                               wait_for)
import grpc

STUBS = tempfile.mkdtemp(prefix="tandem-stubs-")
M = make_stubs(STUBS)


class QueueTest(unittest.TestCase):
    def setUp(self):
        self.folder = new_folder()
        self.programs = link_programs(self.folder / "bin", "fake_rank")
        self.server = None

    def tearDown(self):
        if self.server:
            for job in self.server.jobs.List(M.jobs.ListJobsRequest(), timeout=DEADLINE).jobs:
                self.server.jobs.Cancel(M.jobs.JobRef(job=str(job.id)), timeout=DEADLINE)
            wait_for("all processes to be gone",
                     lambda: all(p.endswith("tandemd") for p in processes(self.folder).values()))
            self.server.kill()
        self.assertEqual({}, processes(self.folder))
        shutil.rmtree(self.folder)

    def start(self, devices=4, *args):
        """A server whose jobs may be preempted at once."""
        self.server = Server(M, self.folder, self.programs, devices,
                             ["--scheduler", "min_run_s=0", *args])
        return self.server

    def ref(self, job):
        return M.jobs.JobRef(job=str(job))

    def why(self, job):
        return self.server.jobs.Why(self.ref(job), timeout=DEADLINE)

    def refused(self, spec):
        with self.assertRaises(grpc.RpcError) as caught:
            self.server.submit(spec)
        return caught.exception.details()

    def events(self, job, kind=None):
        return [e for e in self.server.get(job).events if kind in (None, e.kind)]

    # ---- hold, dependencies, limits ----------------------------------------------------------

    def test_a_job_submitted_on_hold_waits_for_its_release(self):
        """[24]"""
        s = self.start()
        spec = s.spec("held", steps=2)
        spec.hold = True
        job = s.submit(spec)
        self.assertEqual("JOB_HELD", s.state(job))
        s.kill()
        s.start()
        self.assertEqual("JOB_HELD", s.state(job))
        s.jobs.Release(self.ref(job), timeout=DEADLINE)
        s.wait_state(job, "SUCCEEDED")

    def test_a_job_starts_when_those_it_waits_for_have_succeeded(self):
        """[24] after: JOB; also over a restart of the controller."""
        s = self.start()
        first = s.submit(s.spec("first", steps=400, tags=["ms=20"]))
        spec = s.spec("second", steps=2)
        spec.after.append(first)
        second = s.submit(spec)
        wait_for("steps", lambda: s.get(first).step > 0)
        words = self.why(second).reasons[0]
        self.assertRegex(words, f"waits for job {first} \\(RUNNING, step \\d+ of 400\\)")
        s.kill()
        s.start()
        self.assertEqual("JOB_QUEUED", s.state(second))
        s.jobs.Pause(self.ref(first), timeout=DEADLINE)
        s.wait_state(first, "PAUSED")
        self.assertEqual("JOB_QUEUED", s.state(second))
        self.assertIn(f"waits for job {first} (PAUSED", self.why(second).reasons[0])
        s.jobs.Resume(self.ref(first), timeout=DEADLINE)
        s.wait_state(first, "SUCCEEDED")
        s.wait_state(second, "SUCCEEDED")
        self.assertLessEqual(s.get(first).ended_us, s.get(second).started_us)

    def test_one_that_failed_fails_those_that_wait_for_it(self):
        """[24] The whole chain, and it says why."""
        s = self.start()
        first = s.submit(s.spec("first", steps=4000, tags=["ms=20"]))
        chain = [first]
        for i in range(3):
            spec = s.spec(f"next{i}")
            spec.after.append(chain[-1])
            chain.append(s.submit(spec))
        s.jobs.Cancel(self.ref(first), timeout=DEADLINE)
        for before, job in zip(chain, chain[1:]):
            s.wait_state(job, "FAILED")
            self.assertEqual("dependency", s.get(job).cause)
            self.assertIn(f"job {before}", s.get(job).message)
        # It may go on, and waits again, once what it waits for does.
        s.jobs.Resume(self.ref(first), timeout=DEADLINE)
        s.jobs.Resume(self.ref(chain[1]), timeout=DEADLINE)
        self.assertEqual("JOB_QUEUED", s.state(chain[1]))

    def test_bad_dependencies_are_refused_in_words(self):
        s = self.start()
        done = s.submit(s.spec("done", steps=1))
        for ids, words in [([77], "after.0: there is no job 77"),
                           ([done, done], f"after.1: job {done} is named twice"),
                           ([0], "after.0: 0: wants"), ([-5], "after.0: -5: wants"),
                           ([2**62], "after.0: "), ([done] * 65, "at most 64")]:
            spec = s.spec("waits")
            spec.after.extend(ids)
            self.assertIn(words, self.refused(spec))
        failed = s.submit(s.spec("failed", steps=5, tags=["exit=3"], max_restarts=0))
        s.wait_state(failed, "FAILED")
        spec = s.spec("waits")
        spec.after.append(failed)
        self.assertIn(f"job {failed} has failed; resume it first", self.refused(spec))

    def test_a_job_at_its_time_limit_saves_and_has_failed(self):
        s = self.start()
        spec = s.spec("limited", steps=100000, tags=["ms=10"])
        spec.time_limit_s = 1
        job = s.submit(spec)
        s.wait_state(job, "FAILED")
        j = s.get(job)
        self.assertEqual("time-limit", j.cause)
        self.assertIn("its time limit of 1 s is over", j.message)
        saved = [e.step for e in self.events(job, "checkpoint")]
        self.assertEqual([j.step], saved)
        # A resume goes on from there, and has its time anew.
        s.jobs.Resume(self.ref(job), timeout=DEADLINE)
        wait_for("a second attempt", lambda: s.get(job).attempt == 2)
        s.wait_state(job, "FAILED")
        self.assertGreater(s.get(job).step, j.step)

    def test_who_ignores_its_time_limit_is_killed_after_the_grace(self):
        s = self.start(4, "--scheduler", "grace_s=1")
        spec = s.spec("deaf", steps=1000000, tags=["deaf", "stubborn", "ms=10"])
        spec.time_limit_s = 1
        job = s.submit(spec)
        s.wait_state(job, "FAILED")
        self.assertEqual("time-limit", s.get(job).cause)
        self.assertTrue(any("grace_s" in e.message for e in self.events(job, "note")))


if __name__ == "__main__":
    try:
        unittest.main()
    finally:
        shutil.rmtree(STUBS, ignore_errors=True)
