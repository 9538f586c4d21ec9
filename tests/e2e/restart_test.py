#!/usr/bin/env python3
"""Real training that is disturbed gives the same curve, bit for bit: a rank that is killed, a
tandem-node that is killed, a controller that is killed, a pause, preemption to other devices."""
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, link_programs, make_stubs, new_folder,
                               put_away, wait_for)
from held import hold, let_go, wait_held
from leftovers import jobs_processes

STEPS = 40
CLUSTER = """nodes:
- {name: a, devices: [{type: cpu, count: 2}]}
- {name: b, devices: [{type: cpu, count: 2}]}
"""


def setUpModule():
    global folder, m, programs, server, undisturbed
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "held_rank")
    (folder / "cluster.yaml").write_text(CLUSTER)
    server = Server(m, folder, programs, None, ["--cluster", folder / "cluster.yaml",
                                                "--scheduler", "min_run_s=0"])
    job = server.submit(spec("undisturbed"))
    server.wait_state(job, "SUCCEEDED")
    undisturbed = [row[:1] + row[2:] for row in server.curve(job)]
    assert len(undisturbed) == STEPS


def tearDownModule():
    put_away(server)


def spec(name, *holds):
    s = server.spec(name, steps=STEPS, interval=5, devices=2, tags=hold(*holds))
    s.training.precision = "fp64"
    s.training.micro_batch_size = 1
    return s


class Disturbed(unittest.TestCase):
    def run_disturbed(self, name, disturb):
        """Submits, disturbs after a few steps, where it is held, and compares the end."""
        job = server.submit(spec(name, "1.7"))
        wait_held(server, job, "1.7")
        wait_for("step 7", lambda: server.get(job).step >= 7)
        disturb(job)
        wait_for("the end", lambda: server.state(job) in ("JOB_SUCCEEDED", "JOB_FAILED"))
        got = server.get(job)
        self.assertEqual(server.state(job), "JOB_SUCCEEDED", got.message)
        curve = server.curve(job)
        self.assertEqual([row[:1] + row[2:] for row in curve], undisturbed)
        return got, curve

    def kill(self, job, name):
        found = [pid for exe, pid in jobs_processes(programs, job) if exe == name]
        self.assertTrue(found, f"no {name} of job {job}: the run was over too soon")
        os.kill(found[0], signal.SIGKILL)

    def test_a_killed_rank(self):
        got, curve = self.run_disturbed("rank", lambda job: self.kill(job, "tandem-rank"))
        self.assertEqual(got.attempt, 2)
        # Nothing of the first counts where the rank died before its first checkpoint was whole.
        self.assertLessEqual({row[1] for row in curve}, {1, 2})

    def test_a_killed_tandem_node(self):
        got, _ = self.run_disturbed("node", lambda job: self.kill(job, "tandem-node"))
        self.assertEqual(got.attempt, 2)

    def test_a_killed_controller(self):
        def disturb(job):
            server.kill()
            server.start()
            let_go(server, job, "1.7")
        got, _ = self.run_disturbed("controller", disturb)
        self.assertEqual(got.attempt, 1)

    def test_a_pause(self):
        def disturb(job):
            ref = m.jobs.JobRef(job=str(job))
            server.jobs.Pause(ref, timeout=DEADLINE)
            server.wait_state(job, "PAUSED")
            server.jobs.Resume(ref, timeout=DEADLINE)
        got, _ = self.run_disturbed("pause", disturb)
        self.assertEqual(got.attempt, 2)

    def test_preemption_to_other_devices(self):
        """[17] The next attempt goes on from the stop's own checkpoint, wherever there is room."""
        def where(job):
            return [name.split(":")[0] for name in server.get(job).device_names]

        def disturb(job):
            before.extend(where(job))
            high = spec("high")
            high.priority, high.parallel.layout.data, high.training.steps = "high", 4, 100000
            other = server.submit(high)
            server.wait_state(job, "QUEUED")
            # What it had is another's by now; it gets the rest.
            first = spec("first")
            first.priority, first.training.steps = "high", 100000
            first.resources.nodes.extend(before)
            blocker.append(server.submit(first))
            server.jobs.Cancel(m.jobs.JobRef(job=str(other)), timeout=DEADLINE)
            wait_for("new devices", lambda: server.get(job).attempt == 2)
            after.extend(where(job))
        before, after, blocker = [], [], []
        got, curve = self.run_disturbed("preempted", disturb)
        for job in blocker:
            server.jobs.Cancel(m.jobs.JobRef(job=str(job)), timeout=DEADLINE)
            server.wait_state(job, "CANCELLED")
        self.assertEqual((1, 2, 0), (got.evictions, got.attempt, got.restarts))
        saved = [e.step for e in got.events if e.kind == "checkpoint" and e.attempt == 1][-1]
        self.assertEqual({1: list(range(1, saved + 1)), 2: list(range(saved + 1, STEPS + 1))},
                         {a: [row[0] for row in curve if row[1] == a] for a in (1, 2)})
        self.assertFalse(set(before) & set(after), "it had to go elsewhere")


if __name__ == "__main__":
    unittest.main(verbosity=1)
