#!/usr/bin/env python3
"""The whole of it on real training: this host as four nodes of four devices in two fast domains, two
tenants with quotas, thirty jobs. While they train, borrowed devices are taken back, a job of high
priority stops one of low, a short one goes in front of a large one, a node is drained below a gang
of eight, the controller and a rank are killed. In the end every curve and every weight is that of
the same job run alone, no quota was exceeded, no device was had twice, and device-time adds up.

Every step waits for what it needs to see; nothing is left to a race. TANDEM_SAMPLE=1 trains less,
TANDEM_FULL=1 more. With TANDEM_TRANSCRIPT=FILE what the command line said is written there."""
import csv
import io
import json
import os
import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (gang_processes, link_programs, make_stubs, new_folder,
                               wait_for)
from cluster_run_bench import QUOTAS, Cluster, Sampler, most_of
from cluster_run_books import (attempts, device_names, micros, most_held, overlaps, rows,
                               utilisation)
from cluster_run_jobs import ENDLESS, NODES, Job, recipes
from held import hold, let_go
from leftovers import jobs_processes

FULL = os.environ.get("TANDEM_FULL", "0") != "0"
SAMPLE = not FULL and os.environ.get("TANDEM_SAMPLE", "0") != "0"
SCALE = 4 if FULL else 0.3 if SAMPLE else 1
LONG_S = 20 if FULL else 2 if SAMPLE else 4  # about what long jobs take when they are alone
# Of a job that is to be disturbed, so many attempts come on by so many steps and wait for that.
ATTEMPTS, STEPS = 30, 3
LONG_WAIT_S = 1200  # for many jobs to train, one behind the other, however slow the machine is
HOLDS = [f"{attempt}.+{STEPS}" for attempt in range(1, ATTEMPTS + 1)]


def run_alone(server, job_recipes):
    """The curve and the weights of each recipe, with all of the cluster to itself."""
    alone = {}
    for name, recipe in job_recipes.items():
        job = server.submit_file(Job(name, None, name).text(recipe))
        server.wait_state(job, "SUCCEEDED", "FAILED")
        got = server.get(job)
        assert server.state(job) == "JOB_SUCCEEDED", f"{name} alone: {got.message}"
        assert got.attempt == 1, f"{name} alone took {got.attempt} attempts"
        alone[name] = (server.curve_rows(job), server.weights(job))
        assert [row[0] for row in alone[name][0]] == list(range(1, recipe.steps + 1)), name
    return alone


def measure(server, recipe):
    """Steps that take its seconds; enough for all attempts of one that is disturbed, which stop when
    they are held or a step later."""
    job = server.submit_file(Job("measure", None, "measure", steps=20).text(recipe))
    server.wait_state(job, "SUCCEEDED")
    times = sorted(float(r["step_ms"]) for r in csv.DictReader(io.StringIO(server.tandem(
        "metrics", job, "-o", "csv", "--series", "step_ms"))))
    least = ATTEMPTS * (STEPS + 1) + 1
    return min(50000, max(least, int(1000 * recipe.seconds / times[len(times) // 4])))


def matches(event, fields):
    return all(event.HasField(k) and getattr(event, k) == v for k, v in fields.items())


class Story:
    """What happens, in order; jobs are found by name in self.job."""

    def __init__(self, server, job_recipes):
        self.s, self.recipes, self.job, self.all = server, job_recipes, {}, []
        self.whys, self.times = {}, []

    def submit(self, *args, **fields):
        job = Job(*args, **fields)
        job.id = self.s.submit_file(job.text(self.recipes[job.recipe]), job.tenant)
        self.job[job.name] = job
        self.all.append(job)
        return job.id

    def get(self, name):
        return self.s.get(self.job[name].id)

    def wait_running(self, name, step=STEPS, attempt=1, **wait):
        """It trains, has come on within this attempt, and isn't at its end."""
        job = self.job[name].id

        def there():
            got = self.s.get(job)
            assert got.state < self.s.m.jobs.JOB_SUCCEEDED, \
                f"{name} has ended too soon: {self.s.state(job)} {got.message}"
            return got.state == self.s.m.jobs.JOB_RUNNING and got.attempt >= attempt and \
                got.step >= got.attempts[-1].start_step + step
        wait_for(f"{name} to train in attempt {attempt}", there, **wait)

    def let_go(self, name):
        for moment in HOLDS:
            let_go(self.s, self.job[name].id, moment)

    def wait_event(self, name, **fields):
        def seen():
            return [e for e in self.get(name).events if matches(e, fields)]
        return wait_for(f"an event {fields} of {name}", seen)[-1]

    def ask_why(self, what, name, user=None):
        self.whys[what] = self.s.why(self.job[name].id, user)

    def run(self):
        for part in (self.take_back, self.go_in_front, self.kill_controller, self.kill_rank,
                     self.submit_many, self.drain_node, self.submit_urgent, self.end):
            began = time.monotonic()
            part()
            self.times.append(f"{part.__name__} {time.monotonic() - began:.1f} s")

    def end(self):
        for job in self.all:
            wait_for(f"{job.name} to end", lambda job=job: self.s.get(job.id).state >=
                     self.s.m.jobs.JOB_SUCCEEDED, seconds=LONG_WAIT_S)

    def take_back(self):
        """Research borrows what product doesn't use, until product wants it."""
        self.submit("own", "research", "long", "low", tags=hold(*HOLDS))
        self.submit("lent", "research", "long-ref", "low", tags=hold(*HOLDS))
        self.wait_running("lent")
        self.wait_running("own")
        assert self.get("lent").borrowed and not self.get("own").borrowed
        self.submit("base", "product", "eight", steps=ENDLESS, ends=("CANCELLED", "cancelled"))
        self.stop_lower()
        self.wait_event("lent", cause="preempted", to=self.s.m.jobs.JOB_QUEUED)
        self.submit("beyond", "product", "six")
        self.ask_why("quota", "beyond", "pat")

    def stop_lower(self):
        """A job of high priority stops one of low of its own tenant, not one of another's own."""
        self.submit("urgent", "research", "four", "high", steps=ENDLESS // 40,
                    ends=("CANCELLED", "cancelled"))
        self.wait_event("own", cause="preempted", to=self.s.m.jobs.JOB_QUEUED)
        self.wait_running("base")
        self.wait_running("urgent")
        # The pace of a first step says little; soon urgent is expected to end long before base.
        wait_for("the place of urgent to be reserved", lambda: self.s.why(
            self.job["own"].id).get("holders") == [self.job["urgent"].id])
        self.ask_why("reserved", "own", "rosa")

    def go_in_front(self):
        """Four devices are free, and kept for a gang of eight. Of those that aren't their tenant's own
        right, only who is gone in time gets them."""
        self.submit("unlimited", "product", "three-ref", "50")
        self.ask_why("behind", "unlimited")
        # Whatever the pace of this machine: a part of the time that is left, and far more than it needs.
        left_s = self.whys["reserved"]["may_start_us"] / 1e6 - time.time()
        self.submit("limited", "product", "three", "50", time_limit_s=int(left_s / 4))
        self.s.wait_state(self.job["limited"].id, "SUCCEEDED")
        self.s.tandem("ls")
        self.s.tandem("nodes")
        self.s.tandem("top", "-n", "1")

    def kill_controller(self):
        before = {j.name: (j.id, self.s.state(j.id), self.s.get(j.id).attempt) for j in self.all}
        self.s.kill()
        self.s.start()
        wait_for("the gangs to be attached again", lambda: not any(
            self.s.state(self.job[n].id) != "JOB_RUNNING" for n in ("base", "urgent")))
        after = {j.name: (j.id, self.s.state(j.id), self.s.get(j.id).attempt) for j in self.all}
        assert before == after, f"a kill of the controller changed {before} to {after}"
        self.wait_running("base", step=self.get("base").step + 1)

    def kill_rank(self):
        self.submit("limit", "research", "one", "high", steps=ENDLESS, time_limit_s=2,
                    ends=("FAILED", "time-limit"))
        self.s.wait_state(self.job["limit"].id, "FAILED")
        self.s.tandem("cancel", self.job["urgent"].id, user="rosa")
        self.wait_running("own", attempt=2)
        self.kill_one_of(self.job["own"].id)
        self.wait_running("own", attempt=3)
        self.let_go("own")

    def kill_one_of(self, job):
        ranks = [pid for name, pid in jobs_processes(self.s.programs, job) if name == "tandem-rank"]
        os.kill(min(ranks), signal.SIGKILL)

    def submit_many(self):
        """What waits behind: of both tenants, all sizes, some on hold, some one after the other."""
        first = self.submit("r-one", "research", "one", "normal")
        self.submit("r-next", "research", "three", after=[first])
        self.submit("r-held", "research", "four-sgd", "low", hold=True)
        self.submit("r-two", "research", "two", "low")
        self.submit("r-random", "research", "one-random")
        self.submit("p-one", "product", "one", "low")
        self.submit("p-four", "product", "four")
        self.submit("p-twelve", "product", "twelve", "normal")
        self.submit("p-held", "product", "three", hold=True)
        self.submit("p-low", "product", "long-four", "low")
        self.submit("p-never", "product", "two", after=[self.job["base"].id],
                    ends=("FAILED", "dependency"))
        self.ask_why("after", "p-never", "pat")

    def drain_node(self):
        """A node goes out of use below a gang of eight, which goes on where there is room."""
        self.s.tandem("cancel", self.job["base"].id, user="pat")
        for _ in range(20):  # another job may want its devices at the same moment
            self.wait_running("lent", attempt=2, seconds=LONG_WAIT_S)
            run = self.get("lent").attempts[-1]
            node = device_names(run.devices)[0][0]
            self.s.tandem("drain", node, "--reason", "fan 2 is loud")
            stop = self.wait_event("lent", attempt=run.number, to=self.s.m.jobs.JOB_QUEUED)
            if stop.cause == "drained":
                break
            self.s.tandem("undrain", node)
        self.drained, self.drained_attempt = node, run.number
        self.s.tandem("nodes")
        self.submit("r-all", "research", "sixteen")
        self.ask_why("drained", "r-all", "rosa")
        wait_for("the gang to go on elsewhere", lambda: self.get("lent").attempt > run.number,
                 seconds=LONG_WAIT_S)
        self.let_go("lent")
        self.s.tandem("undrain", node)

    def submit_urgent(self):
        self.s.tandem("release", self.job["r-held"].id, user="rosa")
        self.s.tandem("release", self.job["p-held"].id, user="pat")
        self.submit("p-paused", "product", "long-four", "800", tags=hold(*HOLDS))
        self.wait_running("p-paused", seconds=LONG_WAIT_S)
        self.s.tandem("pause", self.job["p-paused"].id, user="pat")
        self.s.wait_state(self.job["p-paused"].id, "PAUSED")
        self.let_go("p-paused")
        for i, recipe in enumerate(["four", "six", "three-ref", "one"]):
            self.submit(f"p-late{i}", "product", recipe, ["high", "600", "normal", "low"][i])
        self.s.tandem("resume", self.job["p-paused"].id, user="pat")
        for i, recipe in enumerate(["four-sgd", "two", "eight", "one-random", "six"]):
            self.submit(f"r-late{i}", "research", recipe, ["high", "normal", "450", "low", "low"][i],
                        hold=i == 3, **({"time_limit_s": 600} if i % 2 else {}))
        self.s.tandem("priority", self.job["r-late3"].id, "700", user="rosa")
        self.s.tandem("release", self.job["r-late3"].id, user="rosa")


def setUpModule():
    global m, folder, server, alone, story, sampler, seconds, all_recipes
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "held_rank")
    all_recipes = recipes(SCALE, LONG_S)
    began = time.monotonic()
    server = Cluster(m, folder / "calm", programs)
    for name in [n for n, r in all_recipes.items() if r.seconds]:
        all_recipes[name].steps = measure(server, all_recipes[name])
    alone = run_alone(server, all_recipes)
    assert server.stop() == 0
    calm_s = time.monotonic() - began
    file = os.environ.get("TANDEM_TRANSCRIPT")
    server = Cluster(m, folder / "busy", programs, open(file, "w") if file else None)
    began = time.monotonic()
    server.add_tenants()
    sampler = Sampler(server)
    sampler.start()
    story = Story(server, all_recipes)
    try:
        story.run()
        wait_for("the last attempt to be over", lambda: not rows(
            server.data, "SELECT 1 FROM attempts WHERE condition < 5"))
    finally:
        sampler.done.set()
        sampler.join()
        if sys.exc_info()[0]:
            print(story.times, server.tandem("ls", "-a"), server.tandem("nodes"),
                  (folder / "busy/tandemd.log").read_text()[-8000:], file=sys.stderr)
    seconds = time.monotonic() - began
    report(calm_s)


def report(calm_s):
    all_attempts = attempts(server.data)
    print(f"{len(story.all)} jobs, {len(all_attempts)} attempts in {seconds:.1f} s, after "
          f"{calm_s:.1f} s of {len(all_recipes)} alone; "
          f"{sum(a['evicted'] for a in all_attempts)} preempted, "
          f"{sum(a['backfills'] > 0 for a in all_attempts)} out of turn, "
          f"{sum(a['borrowed'] for a in all_attempts)} borrowed; "
          f"{100 * utilisation(all_attempts, sum(NODES.values())):.1f} % of 16 devices used; "
          f"{sampler.samples} samples\n{', '.join(story.times)}", file=sys.stderr)
    server.tandem("usage")
    server.tandem("usage", "--by-job")
    server.tandem("ls", "-a")
    for name in ("lent", "own"):
        server.tandem("show", story.job[name].id)


def tearDownModule():
    code = server.stop()
    assert code == 0, f"tandemd left with {code}"


class TheRun(unittest.TestCase):
    maxDiff = 2000

    def events(self, name, **fields):
        return [e for e in story.get(name).events if matches(e, fields)]

    # ---- what came of them -------------------------------------------------------------------

    def test_every_job_has_its_end(self):
        self.assertEqual(30, len(story.all))
        ends = {j.name: (server.state(j.id)[4:], server.get(j.id).cause) for j in story.all}
        self.assertEqual({j.name: j.ends for j in story.all}, ends)

    def test_every_curve_and_weight_is_that_of_the_job_alone(self):
        """Of those that were stopped for good: as far as they came."""
        for j in story.all:
            with self.subTest(job=j.name, recipe=j.recipe):
                curve, weights = alone[j.recipe]
                got = server.curve_rows(j.id)
                self.assertEqual([n for n, *_ in got], list(range(1, len(got) + 1)),
                                 "steps are missing or there twice")
                if j.ends[0] == "SUCCEEDED":
                    self.assertEqual(len(curve), len(got), "steps")
                    self.assertEqual(weights, server.weights(j.id), "final weights")
                num = min(len(curve), len(got))
                differ = [(a, b) for a, b in zip(curve[:num], got[:num]) if a != b]
                self.assertFalse(differ[:2], f"{len(differ)} of {num} steps differ")

    def test_no_step_is_lost_or_repeated_beyond_a_checkpoint(self):
        for j in story.all:
            info = server.get(j.id).attempts
            for before, after in zip(info, info[1:]):
                with self.subTest(job=j.name, attempt=after.number):
                    saved = [e.step for e in server.get(j.id).events
                             if e.kind == "checkpoint" and e.attempt <= before.number]
                    self.assertEqual(max(saved, default=0), after.start_step,
                                     "it goes on from the newest checkpoint")
                    steps = [r[0] for r in server.curve_rows(j.id, after.number)]
                    if steps:
                        self.assertEqual(list(range(after.start_step + 1, steps[-1] + 1)), steps)
                    last = [r[0] for r in server.curve_rows(j.id, before.number)]
                    if before.evicted and last:
                        self.assertEqual(after.start_step, last[-1],
                                         "a preempted job loses no step")

    # ---- who had what ------------------------------------------------------------------------

    def test_no_quota_was_ever_exceeded(self):
        self.assertFalse(sampler.faults[:3])
        self.assertGreater(sampler.samples, 50)
        for tenant in QUOTAS:
            self.assertLessEqual(most_held(attempts(server.data), tenant), most_of(tenant), tenant)
        self.assertLessEqual(most_held(attempts(server.data)), sum(NODES.values()))

    def test_no_device_was_had_twice(self):
        self.assertFalse(overlaps(attempts(server.data))[:3])
        for a in attempts(server.data):
            names = device_names(a["devices"])
            self.assertEqual(a["num_devices"], len(set(names)), a["devices"])
            self.assertTrue(all(0 <= i < NODES[n] for n, i in names), a["devices"])

    def test_device_time_adds_up_to_the_microsecond(self):
        of_job, of_tenant = {}, dict.fromkeys(QUOTAS, 0)
        for a in attempts(server.data):
            self.assertEqual(a["device_us"], a["num_devices"] * (a["gone_us"] - a["created_us"]))
            of_job[a["job"]] = of_job.get(a["job"], 0) + a["device_us"]
            of_tenant[a["tenant"]] += a["device_us"]

        def told(*words):
            return json.loads(server.tandem("usage", "--days", 1, "-o", "json", *words))
        by_tenant, by_job = told(), told("--by-job")
        told_of = {u["tenant"]: micros(u["device_seconds"]) for u in by_tenant["usage"]}
        self.assertEqual(of_tenant, {t: told_of[t] for t in QUOTAS})
        self.assertEqual(sum(of_tenant.values()), sum(told_of.values()))
        self.assertEqual(of_job, {u["job_id"]: micros(u["device_seconds"])
                                  for u in by_job["usage"]})
        for job, total in of_job.items():
            shown = json.loads(server.tandem("show", job, "-o", "json"))
            self.assertEqual(total, micros(shown["device_seconds"]))
            self.assertEqual(total, sum(micros(a["device_seconds"]) for a in shown["attempts"]))
        self.assertEqual(sum(u["evictions"] for u in by_tenant["usage"]),
                         sum(a["evicted"] for a in attempts(server.data)))

    def test_nothing_is_left_behind(self):
        self.assertEqual({(0, 0)}, {(d.job_id, d.claimed_by) for d in server.devices_now().values()})
        self.assertFalse([d for d in server.devices_now().values() if d.drained])
        # The last tandem-node is told that all of its reports are stored, and leaves then.
        wait_for("no process of a job", lambda: not gang_processes(server.programs))

    # ---- what is told ------------------------------------------------------------------------

    def test_events_tell_who_gave_way_to_whom(self):
        lent = self.events("lent", cause="preempted", to=m.jobs.JOB_QUEUED)[0]
        self.assertRegex(lent.message,
                         r"^gave its 8 devices to a job of another tenant after step \d+$")
        own = self.events("own", cause="preempted", to=m.jobs.JOB_QUEUED)[0]
        self.assertRegex(own.message, rf"^gave its 8 devices to job {story.job['urgent'].id} "
                                      r"\(priority high\) after step \d+$")
        first = story.get("lent").attempts[0]
        self.assertTrue(first.borrowed and first.evicted)
        self.assertFalse(story.get("own").attempts[0].borrowed)
        self.assertFalse(story.get("base").evictions, "what is a tenant's own isn't taken")
        self.assertTrue(self.events("p-paused", cause="paused", to=m.jobs.JOB_PAUSED))

    def test_events_tell_who_went_in_front(self):
        note = self.events("limited", kind="note")[0].message
        self.assertEqual("started in front of a job of another tenant, which waits for 8 devices: it "
                         "can't delay it", note)
        self.assertLess(story.get("limited").ended_us, story.get("unlimited").started_us)
        self.assertEqual(1, story.get("limited").attempt)

    def test_events_tell_of_the_drain_and_where_it_went_on(self):
        moved = self.events("lent", attempt=story.drained_attempt, to=m.jobs.JOB_QUEUED)[0]
        self.assertEqual("drained", moved.cause)
        self.assertRegex(moved.message, rf"^gave its 8 devices back after step \d+: "
                                        rf"{story.drained} is drained \(fan 2 is loud\)$")
        for a in story.get("lent").attempts:
            nodes = {n for n, _ in device_names(a.devices)}
            if a.number == story.drained_attempt:
                self.assertIn(story.drained, nodes)
            if a.number == story.drained_attempt + 1:
                self.assertNotIn(story.drained, nodes)

    def test_events_tell_of_the_killed_rank(self):
        exits = self.events("own", kind="rank-exit")
        self.assertTrue(any("signal 9" in e.message for e in exits), [e.message for e in exits])
        self.assertEqual(1, len(self.events("own", cause="restart", to=m.jobs.JOB_QUEUED)))

    def test_why_told_what_each_waited_for(self):
        quota, reserved = story.whys["quota"], story.whys["reserved"]
        self.assertEqual("needs 6 devices, tenant product holds 8 of at most 12", quota["reasons"][0])
        self.assertEqual([story.job["base"].id], quota["holders"])
        self.assertEqual("needs 8 devices, 4 of 16 are free", reserved["reasons"][0])
        self.assertGreater(reserved["may_start_us"], 0)
        behind = story.whys["behind"]["reasons"][0]
        self.assertEqual(f"waits behind job {story.job['own'].id}, for which 8 devices are reserved; "
                         "a time limit could let it start before", behind)
        self.assertRegex(story.whys["drained"]["reasons"][0], r"\(4 are drained\)$")
        self.assertIn(f"waits for job {story.job['base'].id} (RUNNING",
                      story.whys["after"]["reasons"][0])


if __name__ == "__main__":
    unittest.main()
