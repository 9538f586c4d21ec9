#!/usr/bin/env python3
"""Real ranks under a real controller, killed and damaged at drawn moments: whatever happens, the
curve is bit for bit that of an undisturbed run, no process is left and the devices are free. The
numbers in brackets are those of the scenarios that other job servers got wrong.

KILL_SEED=N draws other moments, TANDEM_FULL=1 more of them."""
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
from bench_of_programs import (DEADLINE, Server, clear_up, grpc, link_programs, make_stubs,
                               new_folder, processes, wait_for)
from held import hold, wait_held

SEED = int(os.environ.get("KILL_SEED", "1"))
FULL = os.environ.get("TANDEM_FULL", "0") != "0"
SAMPLE = not FULL and os.environ.get("TANDEM_SAMPLE", "0") != "0"
STEPS = 24
ENDLESS = 1000000


def times(full, usual, sample):
    return full if FULL else sample if SAMPLE else usual


# A gang starts slowly under sanitizers; these do what others do as well.
unless_sampled = unittest.skipIf(SAMPLE, "SKIPPED: TANDEM_SAMPLE")


def setUpModule():
    global folder, m, programs, server, truth, sharded_truth
    folder = new_folder()
    unittest.addModuleCleanup(clear_up, folder)
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "held_rank")
    server = Server(m, folder, programs, devices=8)
    truth, sharded_truth = (run_undisturbed(sharded) for sharded in (False, True))


def run_undisturbed(sharded):
    job = server.submit(make_spec("undisturbed", sharded=sharded))
    server.wait_state(job, "SUCCEEDED")
    return curve(job), weights(job)


def tearDownModule():
    # A job has ended once that is stored; its tandem-node leaves when it has heard so, if the server
    # is there to say it.
    of_jobs = {str(programs / name) for name in ("tandem-node", "tandem-rank")}
    try:
        wait_for("the jobs' processes to leave",
                 lambda: not of_jobs.intersection(processes(programs).values()), 60)
    except AssertionError:
        pass  # those that stay are named below, and ended
    code = server.stop()
    left = processes(programs)
    assert not left, f"processes were left behind: {left}"
    assert code == 0, f"tandemd left with {code}"


def make_spec(name, interval=0, devices=2, sharded=False, holds=(), steps=STEPS):
    spec = server.spec(name, steps=steps, devices=devices, interval=interval, tags=hold(*holds),
                       max_restarts=100)
    spec.training.global_batch_size, spec.training.micro_batch_size = 4, 1
    spec.training.precision = "fp64"
    if sharded:  # all axes at once: sums, gathers and scatters on three streams
        layout = spec.parallel.layout
        layout.data, layout.tensor, layout.zero_stage, layout.sequence_parallel = 2, 2, 3, True
    return spec


def curve(job):
    return [(n, loss, norm) for n, _, loss, norm in server.curve(job)]


def weights(job):
    return (server.data / f"jobs/{job}/export/model.safetensors").read_bytes()


def ref(job):
    return m.jobs.JobRef(job=str(job))


def pids(job, *names):
    found = []
    for pid in processes(programs):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "--job" in words and words[words.index("--job") + 1] == str(job):
            name = words[0].rsplit("/", 1)[1]
            found += [pid] if not names or name in names else []
    return found


def kill(pid, sig=signal.SIGKILL):
    try:
        os.kill(pid, sig)
        return 1
    except ProcessLookupError:
        return 0


class Case(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(f"{SEED} {self.id()}")

    def check_undisturbed(self, job, sharded=False):
        server.wait_state(job, "SUCCEEDED", "FAILED", "CANCELLED")
        got = server.get(job)
        where = f"KILL_SEED={SEED}: job {job}, {got.attempt} attempts: {got.message}"
        self.assertEqual(m.jobs.JobState.Name(got.state), "JOB_SUCCEEDED", where)
        expected = sharded_truth if sharded else truth
        self.assertEqual(curve(job), expected[0], where)
        self.assertEqual(weights(job), expected[1], where)
        self.check_clean(job)

    def check_clean(self, job):
        wait_for("no process", lambda: not pids(job))
        wait_for("free devices", lambda: job not in server.holders())
        left = [p for p in (server.data / f"jobs/{job}").rglob("*") if ".tmp" in p.name]
        self.assertEqual(left, [])

    def run_to(self, job, step):
        wait_for(f"step {step}", lambda: server.get(job).step >= step)


class Kills(Case):
    # (25-27, 30, 31) Ranks and tandem-node, while they start, train, save and export.
    def test_kills_at_any_moment_leave_the_undisturbed_curve(self):
        for interval in ((0, 1, 3) * 10)[:times(30, 3, 1)]:
            self.kill_often(interval, sharded=False)

    # The same where state is cut over tensor and data ranks.
    def test_kills_of_sharded_ranks_leave_the_undisturbed_curve(self):
        for interval in ((1, 3, 0) * 10)[:times(30, 2, 1)]:
            self.kill_often(interval, sharded=True)

    def kill_often(self, interval, sharded):
        job = server.submit(make_spec(f"every-{interval}", interval, sharded=sharded))
        for _ in range(4):
            time.sleep(self.random.random() * 0.5)  # the moment that is drawn
            alive = pids(job)
            if alive:
                kill(self.random.choice(alive))
        self.check_undisturbed(job, sharded)

    # (5, 30) Steps are done, the end isn't.
    def test_kills_while_the_final_weights_are_written(self):
        for n in range(times(20, 3, 1)):
            job = server.submit(make_spec(f"end-{n}"))
            self.run_to(job, STEPS)
            time.sleep(self.random.random() * 0.02)
            for pid in pids(job, "tandem-rank"):
                kill(pid)
            self.check_undisturbed(job)

    # (2, 4) The controller too, and twice in a row; then everything, as when a machine goes down.
    @unless_sampled
    def test_kills_of_the_controller_and_its_gangs(self):
        job = server.submit(make_spec("controller", 4))
        for n in range(times(30, 5, 2)):
            time.sleep(self.random.random() * 0.5)
            alive = pids(job)
            for pid in self.random.sample(alive, min(n % 2, len(alive))):
                kill(pid)
            server.kill()
            server.start()
            if n % 2:
                server.kill()
                server.start()
        self.check_undisturbed(job)
        job = server.submit(make_spec("machine", 4))
        self.run_to(job, 6)
        server.kill()
        for pid in pids(job):
            kill(pid)
        server.start()
        self.check_undisturbed(job)

    # (30) The same for a job that ends there: no folder of a killed save stays.
    def test_a_cancel_in_the_middle_of_a_save_leaves_nothing_unfinished(self):
        for n in range(times(30, 5, 2)):
            job = server.submit(make_spec(f"cancelled-{n}", 1, steps=ENDLESS))
            self.run_to(job, 2)
            time.sleep(self.random.random() * 0.1)
            server.jobs.Cancel(ref(job), timeout=DEADLINE)
            server.wait_state(job, "CANCELLED")
            self.check_clean(job)

    @unless_sampled
    def test_pauses_leave_the_undisturbed_curve(self):
        job = server.submit(make_spec("pauses"))
        for _ in range(times(40, 6, 2)):
            if server.state(job) == "JOB_SUCCEEDED":
                break
            time.sleep(self.random.random() * 0.5)
            try:
                server.jobs.Pause(ref(job), timeout=DEADLINE)
                server.wait_state(job, "PAUSED", "SUCCEEDED")
                server.jobs.Resume(ref(job), timeout=DEADLINE)
            except grpc.RpcError as refused:  # it has ended meanwhile
                self.assertEqual(refused.code(), grpc.StatusCode.FAILED_PRECONDITION)
                server.wait_state(job, "SUCCEEDED")
        self.check_undisturbed(job)


class Damage(Case):
    """(30) What is wrong with a checkpoint is found, said, and the next older one is used."""

    def pause(self, name):
        job = server.submit(make_spec(name, 4, holds=["1.9"]))
        wait_held(server, job, "1.9")
        self.run_to(job, 9)
        server.jobs.Pause(ref(job), timeout=DEADLINE)
        server.wait_state(job, "PAUSED")
        saved = sorted((server.data / f"jobs/{job}/ckpt").iterdir())
        # the one before the newest, as the event of the next start names it
        self.older = f"the checkpoint of step {int(saved[-2].name.split('-')[1])}"
        return job, saved

    def go_on(self, job, *words):
        server.jobs.Resume(ref(job), timeout=DEADLINE)
        self.check_undisturbed(job)
        told = "\n".join(e.message for e in server.get(job).events)
        for word in words:
            self.assertIn(word, told)

    def test_a_flipped_bit(self):
        job, saved = self.pause("flipped")
        path = sorted(saved[-1].glob("weights-*"))[-1]
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        self.go_on(job, f"{path.name}: is damaged", "is damaged (", self.older)
        self.assertIn("is damaged", (saved[-1] / "DAMAGED").read_text())
        self.assertEqual(server.get(job).attempt, 3)

    @unless_sampled
    def test_a_file_that_is_gone(self):
        job, saved = self.pause("gone")
        sorted(saved[-1].glob("optim-*"))[0].unlink()
        self.go_on(job, self.older)

    @unless_sampled
    def test_every_checkpoint_is_bad(self):
        job, saved = self.pause("all-bad")
        for path in saved:
            (path / "manifest.json").write_text("{}")
        self.go_on(job, "manifest.json: is damaged")

    @unless_sampled
    def test_the_whole_folder_is_gone(self):
        job, saved = self.pause("no-folder")
        shutil.rmtree(server.data / f"jobs/{job}")
        self.go_on(job, "is not there any more")


COLLECTIVE = r"[a-z-]+ of .* \([\d,]+ fp64\)[ ()a-z]* over (the [a-z ]+ group \([a-z]+ \d-\d\)|all ranks) \(call \d+\)"


def make_freezer():
    """A control group (version 2) to freeze a rank in, or None."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            group = pathlib.Path(line.split()[4]) / f"tandem-freeze-{os.getpid()}"
            try:
                group.mkdir()
                return group
            except OSError:
                pass
    return None


class Stopped(Case):
    """(28) Ranks that get nowhere. Each takes its time, so all are hurt at once."""

    @classmethod
    def setUpClass(cls):
        cls.freezer = make_freezer()
        cls.alone = server.submit(make_spec("stopped", 1, devices=1, holds=["1.2"]))
        wait_held(server, cls.alone, "1.2")
        kill(pids(cls.alone, "tandem-rank")[0], signal.SIGSTOP)
        cls.several = server.submit(make_spec("four", sharded=True, steps=ENDLESS))
        cls.frozen = server.submit(make_spec("frozen", steps=ENDLESS))
        for job in (cls.several, cls.frozen):
            wait_for("step 2", lambda: server.get(job).step >= 2)
        kill(max(pids(cls.several, "tandem-rank")), signal.SIGSTOP)
        if cls.freezer:
            (cls.freezer / "cgroup.procs").write_text(str(max(pids(cls.frozen, "tandem-rank"))))
            (cls.freezer / "cgroup.freeze").write_text("1")

    @classmethod
    def tearDownClass(cls):
        for job in (cls.several, cls.frozen):
            server.jobs.Cancel(ref(job), timeout=DEADLINE)
            server.wait_state(job, "CANCELLED")
        if cls.freezer:
            wait_for("an empty group", lambda: not (cls.freezer / "cgroup.procs").read_text())
            cls.freezer.rmdir()

    def told(self, job):
        wait_for("the next attempt", lambda: server.get(job).attempt == 2)
        return "\n".join(e.message for e in server.get(job).events)

    # Though it has no peer that would miss it.
    def test_a_rank_that_was_stopped_is_named(self):
        self.assertIn("rank 0: stood still for", self.told(self.alone))
        server.wait_state(self.alone, "SUCCEEDED")
        self.check_clean(self.alone)

    # Of several: by rank, host and the collective that the others wait in.
    def test_a_stopped_rank_of_several_is_named_with_host_and_collective(self):
        self.assertRegex(self.told(self.several), r"rank [0-3]: stood still for \d+ s on " + re.escape(
            os.uname().nodename) + r" after step \d+: stopped by a signal \(SIGSTOP\), not by "
            r"Tandem; the others wait for it in " + COLLECTIVE)

    # Not stopped by a signal, just nowhere: frozen, as it could be stuck in its own code.
    def test_a_rank_that_gets_nowhere_is_named_with_host_and_collective(self):
        if not self.freezer:
            self.skipTest("SKIPPED: may make no control group (version 2) to freeze a rank in")
        self.assertRegex(self.told(self.frozen), r"rank [01]: has not come to " + COLLECTIVE +
                         " on " + re.escape(os.uname().nodename) +
                         r" in step \d+ for \d+ s, where no step took longer than")


if __name__ == "__main__":
    unittest.main(verbosity=1)
