#!/usr/bin/env python3
"""tandem-node killed, stopped and cut off, under a real controller and real training: the curve is
complete, without doubles and bit for bit that of an undisturbed run, and nothing is left behind.
The numbers in brackets are those of the scenarios that other job servers got wrong.

KILL_SEED=N draws other moments; TANDEM_FULL=1 draws more of them, TANDEM_SAMPLE=1 fewer."""
import contextlib
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
from bench_of_programs import (DEADLINE, Server, end_processes, grpc, link_programs,
                               make_stubs, new_folder, processes, wait_for)
from held import hold, is_held, let_go, wait_held
from journal_of import bodies, has_end
from leftovers import check_no_segments, segments

SEED = int(os.environ.get("KILL_SEED", "1"))
FULL = os.environ.get("TANDEM_FULL", "0") != "0"
SAMPLE = os.environ.get("TANDEM_SAMPLE", "0") != "0"
KILLS = 200 if FULL else 2 if SAMPLE else 20
STEPS = 40


def setUpModule():
    global folder, m, programs, server, truth, seconds
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "held_rank")
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


def make_spec(name, *holds, interval=5):
    spec = server.spec(name, steps=STEPS, devices=2, interval=interval, tags=hold(*holds),
                       max_restarts=100, first_backoff_s=0.01, max_backoff_s=0.05)
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


def journal_bytes(job):
    sizes = []
    for path in reports(job).glob("*.journal"):
        with contextlib.suppress(FileNotFoundError):  # all of it was heard meanwhile
            sizes.append(path.stat().st_size)
    return sum(sizes)


def submit_held(name, *moments, **about):
    """A run that is held at the first of moments, and of which the controller knows so."""
    job = server.submit(make_spec(name, *moments, **about))
    wait_held(server, job, moments[0])
    step = int(moments[0].split(".")[1])
    wait_for(f"step {step}", lambda: server.get(job).step >= step)
    return job


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
        self.segments = segments(programs)

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
        check_no_segments(programs, self.segments)


class Killed(Case):
    # (8, 25, 30, 31) At any moment of a run: starting, training, saving, exporting.
    def test_a_node_killed_at_random_moments_leaves_the_undisturbed_curve(self):
        hits, within = 0, seconds * 0.7
        for _ in range(20 * KILLS):
            if hits >= KILLS:
                break
            job = server.submit(make_spec("random", interval=self.random.choice((0, 1, 5))))
            before = hits
            for _ in range(5):
                time.sleep(self.random.random() * within)  # the moment that is drawn
                hits += sum(kill(pid) for pid in pids(job, "node"))
            self.check_undisturbed(job)
            if hits == before:  # runs are quicker now than the undisturbed one was
                within /= 2
        self.assertGreaterEqual(hits, KILLS)

    # (5) Its result is kept by its side, on disk, and taken over; it is never run again.
    def test_a_result_outlives_the_controller_and_the_node(self):
        job = submit_held("result", "1.4")
        server.kill()
        let_go(server, job, "1.4")
        wait_for("the end on disk", lambda: has_end(m, reports(job)))
        for pid in pids(job, "node"):
            kill(pid)
        wait_for("no process", lambda: not pids(job))
        self.assertTrue(list(reports(job).glob("*.journal")))
        server.start()
        self.check_undisturbed(job, attempt=1)
        self.assertIn("were read from its journal", told(job))

    # (5) The same where the node dies in the middle: what it had to say is not trained again unseen.
    def test_steps_that_only_the_journal_knows_are_on_the_curve_of_their_attempt(self):
        job = submit_held("half", "1.4", "1.20", interval=0)
        server.kill()
        heard = journal_bytes(job)
        let_go(server, job, "1.4")
        wait_held(server, job, "1.20")
        wait_for("reports", lambda: journal_bytes(job) > heard + 1000)
        for pid in pids(job, "node"):
            kill(pid)
        server.start()
        wait_for("the next attempt", lambda: server.get(job).attempt == 2)
        first = server.curve(job, attempt=1)
        self.assertGreater(len(first), 4)
        self.assertEqual([(n, loss, norm) for n, _, loss, norm in first], truth[:len(first)])
        self.check_undisturbed(job, attempt=2)

    # (5) A power cut tears the last record, a bad disk damages one: the good ones count, in words.
    def test_a_damaged_journal_is_told_and_costs_a_restart(self):
        job = submit_held("damaged", "1.4", interval=0)
        server.kill()
        let_go(server, job, "1.4")
        wait_for("the end on disk", lambda: has_end(m, reports(job)))
        for pid in pids(job, "node"):
            kill(pid)
        path = sorted(reports(job).glob("*.journal"))[-1]
        data = bytearray(path.read_bytes())
        whole = bodies(data)
        data[whole[len(whole) * 3 // 4][0]] ^= 1  # in a length it could look torn
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
        job = s.submit(s.spec("long", steps=self.STEPS, tags=["gate=0"]))
        log = s.data / f"jobs/{job}/logs/attempt-1/node.log"
        wait_for("the start", lambda: log.exists() and "starting" in log.read_text())
        s.kill()
        s.allow(job, "gate-0")
        wait_for("the end on disk", lambda: "attempt 1 ended: finished" in log.read_text() and
                 has_end(m, log.parent / "reports"))
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
        job = submit_held("still", "1.4")
        os.kill(server.process.pid, signal.SIGSTOP)
        let_go(server, job, "1.4")
        try:
            wait_for("the end", lambda: "attempt 1 ended: finished" in node_log(job))
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        self.check_undisturbed(job, attempt=1)

    def test_a_run_goes_on_through_controllers_that_come_and_go(self):
        job = submit_held("gone", "1.1")
        let_go(server, job, "1.1")
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
        job = submit_held("late", "1.4", "2.9")
        old = token_of(job, 1)
        for pid in pids(job, "node"):
            kill(pid)
        wait_held(server, job, "2.9")
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
        let_go(server, job, "2.9")
        self.check_undisturbed(job, attempt=2)
        self.refused(code.FAILED_PRECONDITION, "has ended", new, self.up(job, 2, hello=hello))


class Leases(Case):
    SHORT = 2

    def restart(self, lease_s=None):
        """With leases that are short, or as long as they usually are, from here on."""
        server.stop()
        server.args = []
        if lease_s:
            path = folder / "lease.yaml"
            path.write_text(f"limits: {{lease_s: {lease_s}}}\n")
            server.args = ["--config", str(path)]
        server.start()

    def tearDown(self):
        self.restart()

    def check_given_up(self, job, words):
        """Of a machine that stands still for so long others are given up, too: no attempt for another
        reason."""
        self.check_undisturbed(job)
        over = {e.attempt for e in server.get(job).events if "lease is over" in e.message}
        self.assertEqual(over, set(range(1, server.get(job).attempt)))
        self.assertIn(words, told(job))

    # (8) A node that can't be reached is given up when its lease is over: killed first, so that it
    # can't come back; its devices are free only then.
    def test_a_node_that_stands_still_is_given_up_and_cannot_come_back(self):
        job = submit_held("stands", "1.4")
        [node] = pids(job, "node")
        old = pids(job)
        kill(node, signal.SIGSTOP)
        ranks = [pid for pid in pids(job, "tandem-rank") if kill(pid, signal.SIGSTOP)]
        server.kill()
        self.restart(self.SHORT)  # to which it isn't attached
        end = time.monotonic() + DEADLINE
        while server.get(job).attempt == 1:
            self.assertLess(time.monotonic(), end, "no second attempt")
            holders = server.holders()
            if set(old) & set(processes(programs)):
                self.assertEqual(holders.count(job), 2)
        for pid in old:
            kill(pid, signal.SIGCONT)  # some may be zombies yet
        self.assertFalse(set(old) & set(processes(programs)))
        self.check_given_up(job, "its lease is over: it is killed")
        self.assertTrue(ranks)

    # (8) The same from the other side: nobody renews, and the gang stops itself.
    def test_a_gang_whose_controller_is_away_for_too_long_stops_itself(self):
        self.restart(self.SHORT)
        for _ in range(10):  # on a machine that stands still it may be given up before
            job = server.submit(make_spec("away", "1.4"))
            wait_for("its hold", lambda: is_held(server, job, "1.4") or server.get(job).attempt > 1)
            if server.get(job).attempt == 1:
                break
        server.kill()
        wait_for("no process", lambda: not pids(job))
        self.assertIn("the lease is over", node_log(job))
        server.start()
        self.check_given_up(job, "the lease is over: no word from the controller")

    # (4) It holds while it is renewed, and as long as it was last said to.
    def test_a_short_absence_is_within_the_lease(self):
        job = submit_held("short", "1.4")
        [node] = pids(job, "node")
        kill(node, signal.SIGSTOP)
        server.kill()
        server.start()
        kill(node, signal.SIGCONT)
        let_go(server, job, "1.4")
        self.check_undisturbed(job, attempt=1)


if __name__ == "__main__":
    unittest.main(verbosity=1)
