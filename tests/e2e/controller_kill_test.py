#!/usr/bin/env python3
"""The controller is killed at random moments of real training, and started again: the curve is
whole and bit for bit that of an undisturbed run, and nothing is left behind.

20 moments (7 with TANDEM_SAMPLE, 300 with TANDEM_FULL=1), spread over what a job goes through. The
seed is printed; KILL_SEED=N runs the same moments again."""
import os
import pathlib
import random
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, grpc, link_programs, make_stubs, new_folder,
                               processes, put_away, wait_for)
from leftovers import check_no_segments, jobs_processes, odd_files, segments

STEPS = 30
PHASES = ("submit", "starting", "running", "checkpointing", "ending", "cancelling", "pausing")
SEED = int(os.environ.get("KILL_SEED", time.time_ns() % 1000000))
MOMENTS = 300 if os.environ.get("TANDEM_FULL") == "1" else 4 if os.environ.get("TANDEM_SAMPLE") else 20
GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def setUpModule():
    global folder, m, programs, server, undisturbed, segments_before
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "tandem-rank")
    segments_before = segments(programs)
    server = Server(m, folder, programs)
    job = server.submit(spec("undisturbed"))
    server.wait_state(job, "SUCCEEDED")
    undisturbed = values(server.curve(job))
    assert len(undisturbed) == STEPS


def tearDownModule():
    put_away(server)


def spec(name):
    s = server.spec(name, steps=STEPS, interval=4, devices=2, max_restarts=0)
    s.training.precision = "fp64"
    s.training.micro_batch_size = 1
    return s


def values(curve):
    return [(step, loss, norm) for step, _, loss, norm in curve]


class Moment:
    """One job and the one kill in its life."""

    def __init__(self, test, dice, n):
        self.test, self.dice, self.n = test, dice, n
        self.phase = PHASES[n % len(PHASES)]
        self.name = f"{self.phase}-{n}"

    def submit(self):
        return server.submit(spec(self.name), key=self.name)

    def restart(self, within_ms):
        time.sleep(self.dice.uniform(0, within_ms) / 1000)
        server.kill()
        server.start()

    def step(self, low, high):
        at = self.dice.randint(low, high)
        wait_for(f"step {at}", lambda: server.get(self.job).step >= at)

    def ask(self, call):
        """Sends a request, kills while it is on its way; True: it was acknowledged."""
        pending = call.future(m.jobs.JobRef(job=str(self.job)), timeout=DEADLINE)
        time.sleep(self.dice.uniform(0, 0.02))
        server.process.kill()
        failed = pending.exception()
        self.restart(0)
        if failed and failed.code() == grpc.StatusCode.FAILED_PRECONDITION:
            # The run was quicker than the question.
            self.test.assertEqual(server.state(self.job), "JOB_SUCCEEDED", failed.details())
        elif failed:
            self.test.assertIn(failed.code(), GONE, failed.details())
        return not failed

    def submitted(self):
        """The kill comes while the request is on its way; the same key gives one job."""
        pending = server.jobs.Submit.future(
            m.jobs.SubmitRequest(spec=spec(self.name), idempotency_key=self.name), timeout=DEADLINE)
        time.sleep(self.dice.uniform(0, 0.06))
        server.process.kill()
        acknowledged = None if pending.exception() else pending.result().job.id
        self.restart(0)
        self.job = self.submit()
        if acknowledged:
            self.test.assertEqual(self.job, acknowledged)

    def run(self):
        """Kills once; returns the state that the job must end in, None = either."""
        if self.phase == "submit":
            self.submitted()
            return "SUCCEEDED"
        self.job = self.submit()
        if self.phase == "starting":
            self.restart(80)
        elif self.phase == "running":
            self.step(1, STEPS - 1)
            self.restart(30)
        elif self.phase == "checkpointing":
            ckpt = server.data / f"jobs/{self.job}/ckpt"
            many = self.dice.randint(0, 6)
            wait_for("a checkpoint", lambda: len(list(ckpt.glob("*step-*"))) > many)
            self.restart(8)
        elif self.phase == "ending":
            self.step(STEPS, STEPS)
            self.restart(60)
        elif self.phase == "cancelling":
            self.step(1, STEPS // 2)
            return "CANCELLED" if self.ask(server.jobs.Cancel) else None
        else:
            self.step(1, STEPS // 2)
            return "PAUSED" if self.ask(server.jobs.Pause) else None
        return "SUCCEEDED"

    def wait_for_the_end(self, wanted):
        """A stop that was acknowledged stays asked for, though the run may end first; one that
        wasn't may have been taken. Returns how many attempts it took."""
        server.wait_state(self.job, "SUCCEEDED", "FAILED",
                          *([wanted] if wanted else ["PAUSED", "CANCELLED"]))
        if server.state(self.job) == "JOB_PAUSED":
            server.jobs.Resume(m.jobs.JobRef(job=str(self.job)), timeout=DEADLINE)
            server.wait_state(self.job, "SUCCEEDED", "FAILED")
            return 2
        # A gang that had no ranks yet goes with the controller that was just starting it.
        ranks = server.data / f"jobs/{self.job}/logs/attempt-1/rank-0.log"
        return 1 if ranks.exists() else 2

    def check_curve(self, attempts):
        got = server.get(self.job)
        self.test.assertEqual((got.attempt, got.restarts), (attempts, 0), got.message)
        curve = server.curve(self.job)
        if server.state(self.job) == "JOB_CANCELLED":
            self.test.assertEqual(values(curve), undisturbed[:len(curve)])
        else:
            self.test.assertEqual(server.state(self.job), "JOB_SUCCEEDED", got.message)
            self.test.assertEqual(values(curve), undisturbed)

    def check_leftovers(self):
        wait_for("no process", lambda: not jobs_processes(programs, self.job))
        wait_for("free devices", lambda: self.job not in server.holders())
        self.test.assertEqual(odd_files(server.data / f"jobs/{self.job}", True), [])


class Killed(unittest.TestCase):
    # (1, 2, 4, 5) Whatever the moment: nothing of the run is lost, doubled or done again.
    def test_at_random_moments(self):
        print(f"KILL_SEED={SEED}, {MOMENTS} moments", flush=True)
        for n in range(MOMENTS):
            dice = random.Random(SEED * 1000 + n)
            moment = Moment(self, dice, n)
            with self.subTest(moment=moment.name, seed=SEED):
                moment.check_curve(moment.wait_for_the_end(moment.run()))
                moment.check_leftovers()

    def test_leave_nothing_behind(self):
        wait_for("no gang", lambda: set(processes(programs)) == {server.process.pid})
        self.assertEqual(odd_files(server.data, True), [])
        check_no_segments(programs, segments_before)
        names = [j.name for j in server.jobs.List(m.jobs.ListJobsRequest(all=True, page_size=1000),
                                                  timeout=DEADLINE).jobs]
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main(verbosity=1)
