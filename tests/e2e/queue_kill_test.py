#!/usr/bin/env python3
"""A drawn queue on a split host: gangs of all sizes and priorities, some deaf to stops, some that wait
for others, changed priorities, while the controller is killed again and again. [2] [10] [17] In the
end every job has succeeded with a whole curve, none was charged a restart, nothing is held or kept.

TANDEM_SEED=n: that seed alone; TANDEM_FULL=1: 100 of them."""
import os
import pathlib
import random
import shutil
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, end_processes, link_programs, make_stubs,
                               new_folder, wait_for)

NUM_JOBS = 24
SEEDS = ([int(os.environ["TANDEM_SEED"])] if "TANDEM_SEED" in os.environ else
         range(1, 101) if os.environ.get("TANDEM_FULL", "0") != "0" else range(1, 3))
CLUSTER = "nodes:\n" + "".join(
    f"- {{name: n{i}, switches: [s{i // 2}], devices: [{{type: cpu, count: 2}}]}}\n"
    for i in range(4))


class Round:
    def __init__(self, m, seed, folder, programs):
        self.m, self.random, self.jobs, self.kills = m, random.Random(seed), [], 0
        (folder / "cluster.yaml").write_text(CLUSTER)
        self.server = Server(m, folder, programs, None,
                             ["--cluster", folder / "cluster.yaml", "--scheduler", "min_run_s=0",
                              "--scheduler", "grace_s=2", "--scheduler", "max_evictions=20"])

    def kill(self):
        self.kills += 1
        self.server.kill()
        self.server.start()

    def submit(self, number):
        r, s = self.random, self.server
        spec = s.spec(f"job-{number}", steps=r.randrange(20, 150),
                      tags=["ms=5"] + (["deaf"] if r.random() < 0.15 else []),
                      interval=r.choice([0, 10]), devices=r.choice([1, 2, 2, 4, 4, 8]))
        spec.training.global_batch_size = 8
        spec.priority = str(r.randrange(1000))
        if self.jobs and r.random() < 0.15:
            spec.after.append(r.choice(self.jobs))
        self.jobs.append(s.submit(spec))

    def disturb(self):
        chance = self.random.random()
        if chance < 0.12:
            self.kill()
        elif chance < 0.3:
            job = self.random.choice(self.jobs)
            if self.server.state(job) not in ("JOB_SUCCEEDED", "JOB_FAILED"):
                try:
                    self.server.jobs.SetPriority(self.m.jobs.SetPriorityRequest(
                        job=str(job), priority=self.random.randrange(1000)), timeout=DEADLINE)
                except Exception as error:  # it has ended meanwhile
                    assert "has ended" in str(error), error

    def run(self):
        for number in range(NUM_JOBS):
            self.submit(number)
            self.disturb()
            time.sleep(self.random.random() * 0.1)  # not for luck: so that some have started

        def has_ended(job):
            if self.kills < 12 and self.random.random() < 0.02:
                self.kill()
            return self.server.state(job) in ("JOB_SUCCEEDED", "JOB_FAILED")
        for job in self.jobs:  # one after the other: how long all of them take is the machine's matter
            wait_for(f"job {job} to end", lambda: has_ended(job))


class QueueKills(unittest.TestCase):
    def check(self, r):
        evictions = 0
        for job in r.jobs:
            got = r.server.get(job)
            self.assertEqual(r.m.jobs.JOB_SUCCEEDED, got.state, f"job {job}: {got.message}")
            self.assertEqual(list(range(1, got.total_steps + 1)),
                             [row[0] for row in r.server.curve(job)], f"the curve of job {job}")
            self.assertEqual(0, got.restarts, [e.message for e in got.events])
            self.assertEqual(got.evictions, len([e for e in got.events if e.to ==
                                                 r.m.jobs.JOB_QUEUED and e.cause == "preempted"]))
            evictions += got.evictions
            for other in got.spec.after:
                self.assertLessEqual(r.server.get(other).ended_us, got.started_us)

        def all_free():
            nodes = r.server.cluster.ListNodes(r.m.cluster.ListNodesRequest(), timeout=DEADLINE)
            return not any(d.job_id or d.claimed_by for n in nodes.nodes for d in n.devices)
        wait_for("all devices to be free", all_free)
        return evictions

    def test_every_job_ends_well_through_preemption_and_kills(self):
        folder = new_folder()
        m = make_stubs(folder)
        programs = link_programs(folder / "bin", "fake_rank")
        try:
            for seed in SEEDS:
                with self.subTest(seed=seed):
                    (folder / str(seed)).mkdir()
                    r = Round(m, seed, folder / str(seed), programs)
                    try:
                        r.run()
                        print(f"seed {seed}: {self.check(r)} evictions, {r.kills} kills")
                    finally:
                        r.server.kill()
        finally:
            end_processes(programs)
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    unittest.main(verbosity=1)
