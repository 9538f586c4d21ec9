#!/usr/bin/env python3
"""tandem-node killed, stopped and cut off, under a real controller and real training: the curve is
complete, without doubles and bit for bit that of an undisturbed run, and nothing is left behind.
The numbers in brackets are those of the scenarios that other job servers got wrong.

KILL_SEED=N draws other moments; TANDEM_FULL=1 draws more of them, TANDEM_SAMPLE=1 fewer."""
import os
import pathlib
import random
import shutil
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, end_processes, grpc, link_programs, make_stubs,
                               new_folder, processes, wait_for)

SEED = int(os.environ.get("KILL_SEED", "1"))
FULL = os.environ.get("TANDEM_FULL", "0") != "0"
SAMPLE = os.environ.get("TANDEM_SAMPLE", "0") != "0"
KILLS = 200 if FULL else 2 if SAMPLE else 20
STEPS = 40


def setUpModule():
    global folder, m, programs, server, truth, seconds
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "tandem-rank")
    keep_tickets()
    server = Server(m, folder, programs, devices=4)
    print(f"KILL_SEED={SEED}", flush=True)
    began = time.monotonic()
    job = server.submit(make_spec("undisturbed"))
    server.wait_state(job, "SUCCEEDED")
    seconds = time.monotonic() - began
    truth = curve(job)
    assert [row[0] for row in truth] == list(range(1, STEPS + 1))


def tearDownModule():
    code = server.stop()
    left = end_processes(programs)
    shutil.rmtree(folder, ignore_errors=True)
    assert not left, f"processes were left behind: {left}"
    assert code == 0, f"tandemd left with {code}"


def keep_tickets():
    """tandem-node behind a script that keeps its ticket: a test can speak as an old attempt does."""
    (programs / "tandem-node").rename(programs / "node")
    (programs / "tandem-node").write_text(f"""#!/bin/sh
umask 077
ticket={folder}/ticket-$2-$4
cat <&3 >$ticket
exec {programs}/node "$@" 3<$ticket
""")
    (programs / "tandem-node").chmod(0o700)


def make_spec(name, interval=5, devices=2, **retry):
    spec = server.spec(name, steps=STEPS, devices=devices, interval=interval, max_restarts=100,
                       first_backoff_s=0.01, max_backoff_s=0.05, **retry)
    spec.training.precision = "fp64"
    spec.training.micro_batch_size = 1
    return spec


def curve(job):
    return [(n, loss, norm) for n, _, loss, norm in server.curve(job)]


def pids(job, *names):
    found = []
    for pid, exe in processes(programs).items():
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "--job" in words and words[words.index("--job") + 1] == str(job):
            found += [pid] if not names or exe.rsplit("/", 1)[1] in names else []
    return found


def kill(pid, sig=signal.SIGKILL):
    try:
        os.kill(pid, sig)
        return True
    except ProcessLookupError:
        return False


def job_dir(job):
    return server.data / f"jobs/{job}"


def reports(job, attempt=1):
    return job_dir(job) / f"logs/attempt-{attempt}/reports"


def node_log(job, attempt=1):
    return (job_dir(job) / f"logs/attempt-{attempt}/node.log").read_text()


def run_to(job, step):
    wait_for(f"step {step}", lambda: server.get(job).step >= step)


def told(job):
    return "\n".join(e.message for e in server.get(job).events)


def token_of(job, attempt):
    ticket = m.worker.LaunchTicket()
    ticket.ParseFromString((folder / f"ticket-{job}-{attempt}").read_bytes())
    return ticket.token


def speak(token, *ups):
    """Says ups on a stream that stays open, and returns how the controller ends that."""
    done = threading.Event()

    def words():
        yield from ups
        done.wait(DEADLINE)
    try:
        for _ in server.worker.Attach(words(), timeout=DEADLINE,
                                      metadata=(("authorization", f"Bearer {token}"),)):
            pass
    except grpc.RpcError as e:
        return e
    finally:
        done.set()
    raise AssertionError("the stream ended well")


class Case(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(f"{SEED} {self.id()}")
        self.shm = set(os.listdir("/dev/shm"))

    def check_undisturbed(self, job, attempt=None):
        server.wait_state(job, "SUCCEEDED", "FAILED", "CANCELLED")
        got = server.get(job)
        where = f"KILL_SEED={SEED}: job {job}, {got.attempt} attempts: {got.message}"
        self.assertEqual(m.jobs.JobState.Name(got.state), "JOB_SUCCEEDED", where)
        self.assertEqual(curve(job), truth, where)
        if attempt:
            self.assertEqual(got.attempt, attempt, where)
        self.check_clean(job)

    def check_clean(self, job):
        """No process, journal, temporary file, socket or segment."""
        wait_for("no process", lambda: not pids(job))
        wait_for("free devices", lambda: job not in server.holders())
        wait_for("no journal", lambda: not list(job_dir(job).glob("logs/*/reports")))
        left = [p for p in job_dir(job).rglob("*") if ".tmp" in p.name or p.is_socket()]
        self.assertEqual(left, [])
        self.assertEqual(set(os.listdir("/dev/shm")) - self.shm, set())


class Killed(Case):
    # (8, 25, 30, 31) At any moment of a run: starting, training, saving, exporting.
    def test_a_node_killed_at_random_moments_leaves_the_undisturbed_curve(self):
        hits = 0
        for _ in range(20 * KILLS):
            if hits >= KILLS:
                break
            job = server.submit(make_spec("random", self.random.choice((0, 1, 5))))
            for _ in range(5):
                time.sleep(self.random.random() * seconds * 0.7)  # the moment that is drawn
                hits += sum(kill(pid) for pid in pids(job, "node"))
            self.check_undisturbed(job)
        self.assertGreaterEqual(hits, KILLS)

    # (5) Its result is kept by its side, on disk, and taken over; it is never run again.
    def test_a_result_outlives_the_controller_and_the_node(self):
        job = server.submit(make_spec("result"))
        run_to(job, 2)
        server.kill()
        wait_for("the end", lambda: "attempt 1 ended: finished" in node_log(job))
        for pid in pids(job, "node"):
            kill(pid)
        wait_for("no process", lambda: not pids(job))
        self.assertTrue(list(reports(job).glob("*.journal")))
        server.start()
        self.check_undisturbed(job, attempt=1)
        self.assertIn("were read from its journal", told(job))

    # (5) The same where the node dies in the middle: what it had to say is not trained again unseen.
    def test_steps_that_only_the_journal_knows_are_on_the_curve_of_their_attempt(self):
        job = server.submit(make_spec("half", interval=0))
        run_to(job, 2)
        server.kill()
        wait_for("reports", lambda: sum(p.stat().st_size for p in reports(job).iterdir()) > 1500)
        for pid in pids(job, "node"):
            kill(pid)
        server.start()
        wait_for("the next attempt", lambda: server.get(job).attempt == 2)
        first = server.curve(job, attempt=1)
        self.assertGreater(len(first), 2)
        self.assertEqual([(n, loss, norm) for n, _, loss, norm in first], truth[:len(first)])
        self.check_undisturbed(job, attempt=2)

    # (5) A power cut tears the last record, a bad disk damages one: the good ones count, in words.
    def test_a_damaged_journal_is_told_and_costs_a_restart(self):
        job = server.submit(make_spec("damaged", interval=0))
        run_to(job, 2)
        server.kill()
        wait_for("the end", lambda: "attempt 1 ended: finished" in node_log(job))
        for pid in pids(job, "node"):
            kill(pid)
        path = sorted(reports(job).glob("*.journal"))[-1]
        data = bytearray(path.read_bytes())
        data[len(data) * 3 // 4] ^= 1
        path.write_bytes(data)
        server.start()
        self.check_undisturbed(job, attempt=2)
        self.assertIn("are lost: 00000001.journal: damaged at byte", told(job))


class Journal(unittest.TestCase):
    """A long one, of a rank that trains nothing, quickly."""
    STEPS = 5000 if SAMPLE else 60000

    def setUp(self):
        self.folder = folder / "fake"
        self.folder.mkdir()
        self.programs = link_programs(self.folder / "bin", "fake_rank")
        self.random = random.Random(f"{SEED} {self.id()}")
        self.server = Server(m, self.folder, self.programs)

    def tearDown(self):
        self.server.stop()
        end_processes(self.programs)
        shutil.rmtree(self.folder)

    def nodes(self):
        return [pid for pid, exe in processes(self.programs).items() if exe.endswith("node")]

    def steps(self, job):
        found = []
        for first in range(1, self.STEPS + 1, 10000):
            request = m.runs.GetMetricsRequest(job=str(job), series=["loss"],
                                               **{"from": first, "to": first + 9999})
            r = self.server.runs.GetMetrics(request, timeout=DEADLINE)
            found += zip(r.steps, r.columns[0].values)
        return found

    # (2, 5) Read in pieces, each committed; a controller that is killed between two goes on.
    def test_controllers_killed_while_they_read_a_journal_lose_and_double_nothing(self):
        s = self.server
        job = s.submit(s.spec("long", steps=self.STEPS, tags=["wait=1000"]))
        log = s.data / f"jobs/{job}/logs/attempt-1/node.log"
        wait_for("the start", lambda: log.exists() and "starting" in log.read_text())
        s.kill()
        wait_for("the end", lambda: "attempt 1 ended: finished" in log.read_text())
        for pid in self.nodes():
            kill(pid)
        for _ in range(2 if SAMPLE else 5):
            s.start()
            time.sleep(self.random.random() * 0.5)
            s.kill()
        s.start()
        s.wait_state(job, "SUCCEEDED")
        self.assertEqual(s.get(job).attempt, 1)
        self.assertEqual(self.steps(job),
                         [(n, 10.0 / n + 1.0 / 3.0) for n in range(1, self.STEPS + 1)])
        wait_for("no journal", lambda: not (log.parent / "reports").exists())


class CutOff(Case):
    # (4) A controller that stands still, then one that is away: training goes on, nothing is lost.
    def test_a_run_ends_while_its_controller_stands_still(self):
        job = server.submit(make_spec("still"))
        run_to(job, 2)
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            wait_for("the end", lambda: "attempt 1 ended: finished" in node_log(job))
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        self.check_undisturbed(job, attempt=1)

    def test_a_run_goes_on_through_controllers_that_come_and_go(self):
        job = server.submit(make_spec("gone"))
        run_to(job, 1)
        end = time.monotonic() + 5 * DEADLINE
        while "attempt 1 ended" not in node_log(job):
            self.assertLess(time.monotonic(), end, "the attempt doesn't end")
            server.kill()
            time.sleep(self.random.random() * seconds / 4)
            server.start()
        self.check_undisturbed(job, attempt=1)


class Late(Case):
    def up(self, job, attempt, **body):
        return m.worker.WorkerUp(job_id=job, attempt=attempt, **body)

    def refused(self, code, part, *said):
        e = speak(*said)
        self.assertEqual(e.code(), code, e.details())
        self.assertIn(part, e.details())

    # (7) Whoever speaks for an older attempt, or for a newer one without being it, changes nothing.
    def test_late_words_are_refused(self):
        code = grpc.StatusCode
        job = server.submit(make_spec("late"))
        run_to(job, 2)
        old = token_of(job, 1)
        for pid in pids(job, "node"):
            kill(pid)
        wait_for("attempt 2", lambda: server.get(job).attempt == 2 and pids(job, "tandem-rank"))
        still = [pid for pid in pids(job, "tandem-rank") if kill(pid, signal.SIGSTOP)]
        wait_for("its start", lambda: "attached to" in node_log(job, 2))
        new = token_of(job, 2)
        hello = m.worker.Hello(fresh=False, pid=1, start_time=1, boot_id="another")
        end = m.worker.AttemptEnd(finished=True)
        stale = f"attempt 1 of job {job} is stale: the job is at attempt 2"
        self.refused(code.FAILED_PRECONDITION, stale, old, self.up(job, 1, hello=hello))
        self.refused(code.FAILED_PRECONDITION, stale, old, self.up(job, 2, hello=hello))
        self.refused(code.FAILED_PRECONDITION, stale, old, self.up(job, 1, seq=1, attempt_end=end))
        self.refused(code.INVALID_ARGUMENT, "a message of attempt 1", new,
                     self.up(job, 1, seq=1, attempt_end=end))
        self.refused(code.INVALID_ARGUMENT, "a message of attempt 0", new,
                     m.worker.WorkerUp(hello=hello))
        self.refused(code.INVALID_ARGUMENT, f"of job {job + 1}", new,
                     self.up(job + 1, 2, hello=hello))
        self.refused(code.FAILED_PRECONDITION, "not pid 1 of boot another", new,
                     self.up(job, 2, hello=hello))
        self.refused(code.ABORTED, "say hello first", new, self.up(job, 2, seq=1, attempt_end=end))
        self.assertEqual(server.state(job), "JOB_RUNNING")
        for pid in still:
            kill(pid, signal.SIGCONT)
        self.check_undisturbed(job, attempt=2)
        self.refused(code.FAILED_PRECONDITION, "has ended", new, self.up(job, 2, hello=hello))


class Leases(Case):
    LEASE = 2

    def setUp(self):
        super().setUp()
        server.stop()
        path = folder / "lease.yaml"
        path.write_text(f"limits: {{lease_s: {self.LEASE}}}\n")
        server.args = ["--config", str(path)]
        server.start()

    def tearDown(self):
        server.stop()
        server.args = []
        server.start()

    # (8) A node that can't be reached is given up when its lease is over: killed first, so that it
    # can't come back; its devices are free only then.
    def test_a_node_that_stands_still_is_given_up_and_cannot_come_back(self):
        job = server.submit(make_spec("stands"))
        run_to(job, 2)
        [node] = pids(job, "node")
        old = pids(job)
        kill(node, signal.SIGSTOP)
        ranks = [pid for pid in pids(job, "tandem-rank") if kill(pid, signal.SIGSTOP)]
        server.kill()
        server.start()  # to which it isn't attached
        end = time.monotonic() + DEADLINE
        while server.get(job).attempt == 1:
            self.assertLess(time.monotonic(), end, "no second attempt")
            holders = server.holders()
            if pids(job):
                self.assertEqual(holders.count(job), 2)
        for pid in old:
            kill(pid, signal.SIGCONT)  # some may be zombies yet
        self.assertFalse(set(old) & set(processes(programs)))
        self.check_undisturbed(job, attempt=2)
        self.assertIn("its lease is over: it is killed", told(job))
        self.assertTrue(ranks)

    # (8) The same from the other side: nobody renews, and the gang stops itself.
    def test_a_gang_whose_controller_is_away_for_too_long_stops_itself(self):
        job = server.submit(make_spec("away"))
        run_to(job, 2)
        server.kill()
        for pid in pids(job, "tandem-rank"):
            kill(pid, signal.SIGSTOP)  # so that it doesn't end first
        wait_for("no process", lambda: not pids(job))
        self.assertIn("the lease is over", node_log(job))
        server.start()
        self.check_undisturbed(job, attempt=2)
        self.assertIn("the lease is over: no word from the controller", told(job))

    # (4) It holds while it is renewed, and as long as it was last said to.
    def test_a_short_absence_is_within_the_lease(self):
        job = server.submit(make_spec("short"))
        run_to(job, 2)
        [node] = pids(job, "node")
        kill(node, signal.SIGSTOP)
        server.kill()
        server.start()
        kill(node, signal.SIGCONT)
        self.check_undisturbed(job, attempt=1)


if __name__ == "__main__":
    unittest.main(verbosity=1)
