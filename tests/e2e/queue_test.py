#!/usr/bin/env python3
"""The queue on real processes: hold and release, dependencies, time limits, priorities, preemption
and claims, through kills of the controller. tandem-rank is the fake one (helpers/fake_rank.c).

TANDEM_BIN: the programs. Needs grpc for Python."""
import pathlib
import shutil
import subprocess
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
        wait_for("the last of them", lambda: not processes(self.folder))  # a probe may have been at work
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

    def test_bad_settings_of_the_scheduler_are_refused_in_words(self):
        for word, said in [("min_run_s", "wants KEY=VALUE"), ("grace_s=0", "wants 1 to 604800"),
                           ("graces_s=5", "grace_s"), ("backfill=7", "backfill"),
                           ("aging_per_h=nan", "aging_per_h")]:
            done = subprocess.run([self.programs / "tandemd", "--dev", "--data-dir",
                                   self.folder / "data", "--scheduler", word],
                                  capture_output=True, text=True, timeout=DEADLINE)
            self.assertNotEqual(0, done.returncode)
            self.assertIn(said, done.stdout + done.stderr)

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

    def test_the_reason_of_a_drain_may_be_of_any_letters(self):
        """Texts are cut to their fields, and not in a letter: else no client could read the job."""
        s = self.start()
        node = s.cluster.ListNodes(M.cluster.ListNodesRequest(), timeout=DEADLINE).nodes[0].name
        for before in ("", "a"):
            job = s.submit(s.spec("moves", steps=100000, tags=["ms=20"]))
            s.wait_state(job, "RUNNING")
            wait_for("a step", lambda: s.get(job).step > 0)
            s.cluster.Drain(M.cluster.DrainRequest(node=node, reason=before + "\u00e9" * 127),
                            timeout=DEADLINE)
            s.wait_state(job, "QUEUED")
            self.assertIsInstance(s.get(job).message, str)
            for text in [s.get(job).message] + [e.message for e in self.events(job)]:
                self.assertIsInstance(text, str)
            s.jobs.Cancel(self.ref(job), timeout=DEADLINE)
            s.cluster.Undrain(M.cluster.DrainRequest(node=node), timeout=DEADLINE)

    def test_a_job_starts_when_those_it_waits_for_have_succeeded(self):
        """[24] after: JOB; also over a restart of the controller."""
        s = self.start()
        first = s.submit(s.spec("first", steps=300, tags=["gate=2"]))
        spec = s.spec("second", steps=2)
        spec.after.append(first)
        second = s.submit(spec)
        s.wait_step(first, 2)
        words = self.why(second).reasons[0]
        self.assertRegex(words, f"waits for job {first} \\(RUNNING, step \\d+ of 300\\)")
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
        first = s.submit(s.spec("first", steps=4000, tags=["gate=1"]))
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
        for limit in (1, 4, 16, 64):  # on a slow machine one second is over before the first step
            spec = s.spec("limited", steps=100000, tags=["ms=10"])
            spec.time_limit_s = limit
            job = s.submit(spec)
            s.wait_state(job, "FAILED")
            j = s.get(job)
            self.assertEqual("time-limit", j.cause)
            self.assertIn(f"its time limit of {limit} s is over", j.message)
            saved = [e.step for e in self.events(job, "checkpoint")]
            # A resume goes on from there, and has its time anew.
            s.jobs.Resume(self.ref(job), timeout=DEADLINE)
            wait_for("a second attempt", lambda: s.get(job).attempt == 2)
            s.wait_state(job, "FAILED")
            self.assertEqual("time-limit", s.get(job).cause)
            if 0 < j.step < s.get(job).step:
                break
        self.assertEqual([j.step], saved)
        self.assertGreater(s.get(job).step, j.step)

    def test_a_time_limit_goes_on_over_a_restart_of_the_controller(self):
        """[2]"""
        s = self.start()
        spec = s.spec("limited", steps=100000, tags=["ms=10"])
        spec.time_limit_s = 2
        job = s.submit(spec)
        s.wait_state(job, "RUNNING", "FAILED")
        s.kill()
        s.start()
        s.wait_state(job, "FAILED")
        self.assertEqual(("time-limit", 1), (s.get(job).cause, s.get(job).attempt))

    def test_who_ignores_its_time_limit_is_killed_after_the_grace(self):
        s = self.start(4, "--scheduler", "grace_s=1")
        for limit in (1, 4, 16, 64):  # who hasn't begun when it is over gives no trouble
            spec = s.spec("deaf", steps=1000000, tags=["deaf", "stubborn", "ms=10"])
            spec.time_limit_s = limit
            job = s.submit(spec)
            s.wait_state(job, "FAILED")
            self.assertEqual("time-limit", s.get(job).cause)
            if s.get(job).step > 0:
                break
        self.assertTrue(any("grace_s" in e.message for e in self.events(job, "note")))

    # ---- preemption --------------------------------------------------------------------------

    def gang(self, name, devices, priority="normal", steps=100000, tags=("ms=20",), **more):
        spec = self.server.spec(name, steps=steps, tags=tags, devices=devices,
                                interval=more.pop("interval", 0))
        spec.priority = priority
        spec.training.global_batch_size = 12  # for gangs of 1, 2, 3, 4
        for key, value in more.items():
            setattr(spec, key, value)
        return self.server.submit(spec)

    def wait_steps(self, job, steps=3):
        wait_for(f"job {job} to be past step {steps}", lambda: self.server.get(job).step > steps)

    def claims(self):
        nodes = self.server.cluster.ListNodes(M.cluster.ListNodesRequest(), timeout=DEADLINE).nodes
        return [d.claimed_by for n in nodes for d in n.devices]

    def holders(self):
        nodes = self.server.cluster.ListNodes(M.cluster.ListNodesRequest(), timeout=DEADLINE).nodes
        return [d.job_id for n in nodes for d in n.devices]

    def test_a_victim_saves_at_a_step_and_goes_on_from_there(self):
        s = self.start()
        low = self.gang("low", 4, "low", steps=300, tags=["gate=10"])
        s.wait_step(low, 10)
        high = self.gang("high", 4, "high", steps=5)
        s.wait_state(high, "SUCCEEDED")
        s.wait_state(low, "SUCCEEDED")
        j = s.get(low)
        self.assertEqual((2, 1, 0), (j.attempt, j.evictions, j.restarts))
        moves = [e for e in j.events if e.HasField("to")]
        words = [M.jobs.JobState.Name(e.to)[4:] for e in moves]
        self.assertEqual(["STARTING", "RUNNING", "STOPPING", "QUEUED", "STARTING", "RUNNING",
                          "SUCCEEDED"], words)
        stop = moves[3]
        self.assertEqual("preempted", stop.cause)
        saved = [e.step for e in j.events if e.kind == "checkpoint"][0]
        self.assertEqual(f"gave its 4 devices to job {high} (priority high) after step {saved}",
                         stop.message)
        self.assertEqual(f"from the checkpoint of step {saved}", moves[4].message)
        self.assertLess(stop.time_us, s.get(high).started_us)
        curve = s.curve(low)
        self.assertEqual(list(range(1, 301)), [row[0] for row in curve])
        self.assertEqual([10.0 / n + 1.0 / 3.0 for n in range(1, 301)], [row[2] for row in curve])

    def test_a_victim_that_does_not_stop_is_killed_after_the_grace(self):
        s = self.start(4, "--scheduler", "grace_s=1")
        low = self.gang("low", 4, "low", tags=["ms=20", "deaf", "stubborn"], interval=2)
        self.wait_steps(low, 4)
        high = self.gang("high", 4, "high", steps=5)
        s.wait_state(high, "SUCCEEDED")
        wait_for("a second attempt", lambda: s.get(low).attempt == 2)
        j = s.get(low)
        self.assertEqual((1, 0), (j.evictions, j.restarts))
        self.assertEqual(1, len([e for e in j.events if "grace_s" in e.message]))
        self.assertRegex([e for e in j.events if e.to == M.jobs.JOB_STARTING][1].message,
                         "from the checkpoint of step")

    def test_when_who_waits_may_start_outlives_the_controller(self):
        """[19] Else what is kept for it were another's after each restart, until all that runs has
        told of a step."""
        s = self.start(4, "--scheduler", "preemption=false")
        runs = self.gang("runs", 3, steps=3000, tags=["ms=4000"])
        wait_for("a step", lambda: s.get(runs).step >= 1)
        big = self.gang("big", 4, steps=5)
        self.assertGreater(self.why(big).may_start_us, 0)
        s.kill()
        s.start()
        self.assertGreater(self.why(big).may_start_us, 0)
        s.jobs.Cancel(self.ref(runs), timeout=DEADLINE)
        s.wait_state(big, "SUCCEEDED")

    def test_a_cancelled_preemptor_leaves_the_devices_to_its_victim(self):
        s = self.start(4, "--scheduler", "grace_s=600")
        low = self.gang("low", 4, "low", tags=["ms=20", "late"])
        self.wait_steps(low)
        high = self.gang("high", 4, "high")
        s.wait_state(low, "STOPPING")
        s.jobs.Cancel(self.ref(high), timeout=DEADLINE)
        s.wait_state(high, "CANCELLED")
        s.allow(low, "may-stop")
        wait_for("the victim's next attempt", lambda: s.get(low).attempt == 2)
        s.wait_state(low, "RUNNING")
        self.assertEqual([0] * 4, self.claims())
        self.assertEqual([low] * 4, self.holders())

    def test_claims_and_stops_survive_a_killed_controller(self):
        """[2] [17] What is freed is the preemptor's, whatever else waits and whoever dies."""
        s = self.start(4, "--scheduler", "grace_s=600")
        low = self.gang("low", 2, "low", tags=["ms=20", "late"])
        self.wait_steps(low)
        high = self.gang("high", 4, "high", steps=20)
        s.wait_state(low, "STOPPING")
        small = self.gang("small", 1)
        for _ in range(2):
            self.assertEqual([high] * 4, self.claims())
            self.assertEqual("JOB_QUEUED", s.state(small))
            s.kill()
            s.start()
            self.assertEqual("JOB_STOPPING", s.state(low))
        self.assertIn(low, self.why(high).holders)
        self.assertTrue(any("kept for it" in e.message for e in self.events(high, "note")))
        s.allow(low, "may-stop")
        s.wait_state(high, "SUCCEEDED")
        wait_for("the others", lambda: s.state(small) == "JOB_RUNNING" and s.get(low).attempt == 2)
        self.assertLess(s.get(high).started_us, s.get(small).started_us)
        self.assertEqual((1, 0), (s.get(low).evictions, s.get(low).restarts))

    def test_a_claim_ends_with_the_wish(self):
        """Hold, pause and cancel of who waits give what was kept for it to others."""
        s = self.start(4, "--scheduler", "grace_s=600")
        low = self.gang("low", 2, "low", tags=["ms=20", "deaf"])
        self.wait_steps(low)
        high = self.gang("high", 4, "high")
        wait_for("claims", lambda: high in self.claims())
        small = self.gang("small", 2, "low", steps=100)
        self.assertEqual("JOB_QUEUED", s.state(small))
        s.jobs.Hold(self.ref(high), timeout=DEADLINE)
        self.assertEqual([0] * 4, self.claims())
        s.wait_state(small, "RUNNING", "SUCCEEDED")
        s.jobs.Cancel(self.ref(low), timeout=DEADLINE)
        s.wait_state(low, "CANCELLED")

    def test_two_preemptors_count_a_victim_once(self):
        """[11] Both fit where one victim was; two that don't go one after the other."""
        s = self.start(4, "--scheduler", "grace_s=600")
        low = self.gang("low", 4, "low", tags=["ms=20", "late"])
        self.wait_steps(low)
        for size in (2, 4):
            pair = [self.gang(f"high{size}{i}", size, "high", steps=10) for i in range(2)]
            s.allow(low, "may-stop")  # now that both are there
            for job in pair:
                s.wait_state(job, "SUCCEEDED")
            wait_for("low to run again", lambda: s.state(low) == "JOB_RUNNING")
            (s.data / f"jobs/{low}/may-stop").unlink()
        self.assertEqual(2, s.get(low).evictions)
        self.assertEqual(2, len([e for e in self.events(low) if e.to == M.jobs.JOB_STOPPING]))

    def test_evictions_of_a_job_are_bounded(self):
        """[17]"""
        s = self.start(4, "--scheduler", "max_evictions=1")
        low = self.gang("low", 4, "low", steps=300, tags=["gate=10", "gate=20"])
        s.wait_step(low, 10)
        first = self.gang("first", 4, "high", steps=5)
        s.wait_state(first, "SUCCEEDED")
        s.wait_step(low, 20)
        second = self.gang("second", 4, "high", steps=5)
        self.assertEqual("JOB_QUEUED", s.state(second))
        s.allow(low, "gate-20")
        s.wait_state(second, "SUCCEEDED")
        self.assertEqual("JOB_SUCCEEDED", s.state(low))
        self.assertEqual((1, 2), (s.get(low).evictions, s.get(low).attempt))
        self.assertLessEqual(s.get(low).ended_us, s.get(second).started_us)

    def test_equal_priority_and_a_young_run_are_left_alone(self):
        s = self.start(4, "--scheduler", "min_run_s=3600")
        low = self.gang("low", 4, "low")
        self.wait_steps(low)
        high = self.gang("high", 4, "high")
        self.assertEqual("JOB_QUEUED", s.state(high))
        self.assertEqual([low], list(self.why(high).holders))
        s.stop()
        s.args = ["--scheduler", "min_run_s=0"]
        s.start()
        s.wait_state(high, "RUNNING")
        equal = self.gang("equal", 4, "high")
        self.assertEqual("JOB_QUEUED", s.state(equal))
        self.wait_steps(high, 10)
        self.assertEqual("JOB_RUNNING", s.state(high))

    # ---- a host that is split into nodes -----------------------------------------------------

    def start_split(self, *args):
        (self.folder / "cluster.yaml").write_text("""nodes:
- {name: a0, switches: [a], devices: [{type: cpu, count: 2}]}
- {name: a1, switches: [a], devices: [{type: cpu, count: 2}]}
- {name: b0, switches: [b], devices: [{type: cpu, count: 2}]}
- {name: b1, switches: [b], devices: [{type: cpu, count: 2}]}
""")
        return self.start(None, "--cluster", self.folder / "cluster.yaml", *args)

    def nodes_of(self, job):
        return {name.split(":")[0] for name in self.server.get(job).device_names}

    def test_no_more_jobs_are_stopped_than_need_be_and_the_lowest_first(self):
        """[20] Four runs of two devices each: who needs two stops the lowest, who needs four stops
        the next lowest and one more."""
        s = self.start_split()
        lows = [self.gang(f"low{i}", 2, priority) for i, priority in
                enumerate(["normal", "low", "normal", "300"])]
        for job in lows:
            self.wait_steps(job)
        high = self.gang("high", 2, "high")
        s.wait_state(high, "RUNNING")
        wait_for("the victim", lambda: s.get(lows[1]).evictions == 1)
        self.assertEqual([0, 1, 0, 0], [s.get(job).evictions for job in lows])
        self.assertEqual("JOB_QUEUED", s.state(lows[1]))
        more = self.gang("more", 4, "high")
        s.wait_state(more, "RUNNING")
        evicted = [s.get(job).evictions for job in lows]
        self.assertEqual(3, sum(evicted))
        self.assertEqual(1, evicted[3])

    def test_a_pinned_job_stops_only_what_is_in_its_way(self):
        s = self.start_split()
        lows = [self.gang(f"low{i}", 2, "low") for i in range(4)]
        for job in lows:
            self.wait_steps(job)
        spec = s.spec("pinned", steps=20, tags=["ms=20"], devices=2)
        spec.priority = "high"
        spec.resources.nodes.append("b0")
        there = [job for job in lows if self.nodes_of(job) == {"b0"}]
        high = s.submit(spec)
        s.wait_state(high, "SUCCEEDED")
        self.assertEqual([int(job in there) for job in lows], [s.get(job).evictions for job in lows])
        wait_for("it to run again", lambda: s.get(there[0]).attempt == 2)

    # ---- order -------------------------------------------------------------------------------

    def test_of_two_gangs_that_need_all_one_gets_all(self):
        """[15]"""
        s = self.start()
        pair = [self.gang(f"all{i}", 4, steps=50, tags=["gate=5"]) for i in range(2)]
        s.wait_step(pair[0], 5)
        self.assertEqual([pair[0]] * 4, self.holders())
        why = self.why(pair[1])
        self.assertEqual([pair[0]], list(why.holders))
        self.assertEqual(1, why.place)
        self.assertRegex(why.reasons[0], "4")
        s.allow(pair[0], "gate-5")
        s.wait_step(pair[1], 5)
        s.allow(pair[1], "gate-5")
        s.wait_state(pair[1], "SUCCEEDED")

    def test_a_priority_changed_in_the_queue_changes_the_order(self):
        """[24]"""
        s = self.start()
        runs = self.gang("runs", 4, "high", steps=100, tags=["gate=5"])
        s.wait_step(runs, 5)
        waits = [self.gang(f"waits{i}", 4, steps=5) for i in range(3)]
        self.assertEqual([1, 2, 3], [self.why(j).place for j in waits])
        s.jobs.SetPriority(M.jobs.SetPriorityRequest(job=str(waits[2]), priority=700),
                           timeout=DEADLINE)
        s.jobs.SetPriority(M.jobs.SetPriorityRequest(job=str(waits[0]), priority=100),
                           timeout=DEADLINE)
        self.assertEqual([3, 2, 1], [self.why(j).place for j in waits])
        s.allow(runs, "gate-5")
        for job in waits + [runs]:
            s.wait_state(job, "SUCCEEDED")
        started = [s.get(j).started_us for j in waits]
        self.assertEqual(sorted(started, reverse=True), started)

    def test_a_short_job_goes_in_front_where_it_delays_nobody(self):
        """[19] With a time limit that ends before the place is free; not without one."""
        s = self.start(4, "--scheduler", "grace_s=1", "--scheduler", "preemption=false")
        runs = self.gang("runs", 3, steps=300000)
        self.wait_steps(runs, 10)
        big = self.gang("big", 4, steps=5)
        long = self.gang("long", 1, steps=5)
        self.assertEqual("JOB_QUEUED", s.state(big))
        self.assertGreater(self.why(big).may_start_us, 0)
        short = self.gang("short", 1, steps=5, time_limit_s=600)
        s.wait_state(short, "SUCCEEDED")
        self.assertEqual("JOB_QUEUED", s.state(long))
        self.assertEqual("JOB_QUEUED", s.state(big))
        self.assertIn(f"started in front of job {big}",
                      [e.message for e in self.events(short, "note")][0])
        s.jobs.Cancel(self.ref(runs), timeout=DEADLINE)
        s.wait_state(big, "SUCCEEDED")
        s.wait_state(long, "SUCCEEDED")
        self.assertLess(s.get(big).started_us, s.get(long).started_us)


if __name__ == "__main__":
    try:
        unittest.main()
    finally:
        shutil.rmtree(STUBS, ignore_errors=True)
