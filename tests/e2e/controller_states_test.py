#!/usr/bin/env python3
"""The controller is killed while jobs are in each of their states, and while a thousand submissions
are on their way. Real programs, but for a rank that trains nothing. SUBMIT_SEED=N repeats a run."""
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
                               new_folder, wait_for)
from leftovers import jobs_processes, odd_files

SEED = int(os.environ.get("SUBMIT_SEED", time.time_ns() % 1000000))
SUBMISSIONS = 200 if os.environ.get("TANDEM_SAMPLE") else 1000
KILLS = 2 if os.environ.get("TANDEM_SAMPLE") else 5
CHANNELS = 8
RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
# A gang is STARTING for as long as its tandem-node takes to attach: until it may, here.
SLOW_NODE = """#!/bin/sh
until [ -e "${0%/*}/nodes-may-start" ]; do
  [ -d "${0%/*}" ] || exit 1
  sleep 0.05
done
exec "${0%/*}/tandem-node.real" "$@"
"""


def setUpModule():
    global folder, m, programs
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")
    (programs / "tandem-node").rename(programs / "tandem-node.real")


def tearDownModule():
    shutil.rmtree(folder, ignore_errors=True)


def want(steps):
    return [(n, 10.0 / n + 1.0 / 3.0, 1.0 / (n + 7)) for n in range(1, steps + 1)]


def put_node(text=None):
    path = programs / "tandem-node"
    path.unlink(missing_ok=True)
    if text:
        path.write_text(text)
        path.chmod(0o700)
    else:
        os.link(programs / "tandem-node.real", path)


class Case(unittest.TestCase):
    def setUp(self):
        put_node()
        self.folder = folder / self.id().rsplit(".", 1)[1][:24]
        self.folder.mkdir()
        self.s = Server(m, self.folder, programs, devices=16)

    def tearDown(self):
        code = self.s.stop()
        if code:
            print((self.folder / "tandemd.log").read_text()[-4000:], file=sys.stderr)
        killed = end_processes(programs)
        self.assertEqual(code, 0)
        # A save that was killed leaves a temporary file, which the next attempt would sweep.
        left = [p for p in odd_files(self.s.data, False) if not (killed and "ckpt" in p.parts)]
        self.assertEqual(left, [])

    def ref(self, job):
        return m.jobs.JobRef(job=str(job))

    def whole(self, name, **about):
        """A job that needs every device."""
        spec = self.s.spec(name, devices=16, **about)
        spec.training.global_batch_size = 16
        return spec

    def restart(self):
        self.s.kill()
        self.s.start()

    def check(self, job, state, steps, attempt):
        self.s.wait_state(job, state)
        got = self.s.get(job)
        if attempt is None:
            # A gang that had no ranks yet goes with the controller that was just starting it.
            ranks = self.s.data / f"jobs/{job}/logs/attempt-1/rank-0.log"
            attempt = 1 if ranks.exists() else 2
            self.assertEqual(got.restarts, 0)
        self.assertEqual(got.attempt, attempt, got.message)
        curve = [(step, loss, norm) for step, _, loss, norm in self.s.curve(job)]
        self.assertEqual(curve, want(steps) if state == "SUCCEEDED" else want(len(curve)))
        wait_for("no process", lambda: not jobs_processes(programs, job))


class States(Case):
    # (2) One job in each state that isn't an end; the kill finds all of them at once, and a second
    # one finds them while they are taken up again.
    def test_a_kill_in_every_state(self):
        s = self.s

        def submit(name, *tags, **about):
            return s.submit(s.spec(name, steps=40, tags=[*tags, "ms=20"], interval=5, **about))
        paused = submit("paused", "gate=5")
        backoff = submit("backoff", "gate=7", "die=8", max_restarts=3, first_backoff_s=8,
                         max_backoff_s=8)
        cancelling = submit("cancelling", "stubborn", "ms=60000")
        pausing = submit("pausing", "gate=5", "late")
        running = submit("running", "gate=5")
        for job in (paused, pausing, running):
            s.wait_step(job, 5)
        s.wait_step(backoff, 7)
        s.wait_state(cancelling, "RUNNING")
        s.jobs.Pause(self.ref(paused), timeout=DEADLINE)
        s.wait_state(paused, "PAUSED")
        put_node(SLOW_NODE)
        starting = submit("starting")
        cancelled_in_start = submit("cancelled-in-start")
        queued, held = (s.submit(self.whole(name, steps=40)) for name in ("queued", "held"))
        s.jobs.Hold(self.ref(held), timeout=DEADLINE)
        s.wait_state(starting, "STARTING")
        s.jobs.Cancel(self.ref(cancelled_in_start), timeout=DEADLINE)
        s.jobs.Pause(self.ref(pausing), timeout=DEADLINE)
        s.allow(backoff, "gate-7")
        wait_for("a backoff", lambda: s.get(backoff).restarts == 1 and
                 s.state(backoff) == "JOB_QUEUED")
        # Its ranks are killed after three seconds, but not by a tandem-node that stands still.
        node, = [pid for name, pid in jobs_processes(programs, cancelling) if name == "tandem-node"]
        os.kill(node, signal.SIGSTOP)
        s.jobs.Cancel(self.ref(cancelling), timeout=DEADLINE)
        # First what stays as it is for some seconds only.
        jobs = (cancelling, backoff, queued, held, starting, running, pausing, paused)
        states = {n: s.state(n).removeprefix("JOB_") for n in jobs}
        os.kill(node, signal.SIGCONT)
        self.restart()
        self.assertEqual(list(states.values()),
                         ["STOPPING", "QUEUED", "QUEUED", "HELD", "STARTING", "RUNNING",
                          "STOPPING", "PAUSED"])
        self.restart()
        (programs / "nodes-may-start").touch()
        s.allow(running, "gate-5")
        s.allow(pausing, "may-stop")
        self.check(running, "SUCCEEDED", 40, 1)
        self.check(starting, "SUCCEEDED", 40, None)
        self.check(cancelling, "CANCELLED", 40, 1)
        self.check(cancelled_in_start, "CANCELLED", 40, 1)
        self.check(pausing, "PAUSED", 40, 1)
        self.check(backoff, "SUCCEEDED", 40, 2)
        self.assertEqual(s.get(backoff).restarts, 1)
        self.check(queued, "SUCCEEDED", 40, 1)
        self.assertEqual(s.state(held), "JOB_HELD")
        self.assertEqual(s.state(paused), "JOB_PAUSED")
        put_node()
        s.jobs.Release(self.ref(held), timeout=DEADLINE)
        s.jobs.Resume(self.ref(paused), timeout=DEADLINE)
        self.check(held, "SUCCEEDED", 40, 1)
        self.check(paused, "SUCCEEDED", 40, 2)
        wait_for("free devices", lambda: s.holders() == [0] * 16)

    # (1) The kill follows the acknowledgement at once.
    def test_a_kill_right_after_the_acknowledgement(self):
        for n in range(5):
            spec = self.s.spec(f"j{n}", steps=3)
            job = self.s.submit(spec, key=f"key-{n}")
            self.restart()
            self.assertEqual(self.s.submit(spec, key=f"key-{n}"), job)
            self.check(job, "SUCCEEDED", 3, None)


class Client(threading.Thread):
    """A share of the submissions, all on their way at once over a channel of its own; each is sent
    again, with its key, for as long as nobody acknowledges it."""

    def __init__(self, server, requests, ids):
        super().__init__()
        self.server, self.requests, self.ids = server, requests, ids
        self.error = None

    def send(self, key):
        return self.jobs.Submit.future(self.requests[key], timeout=DEADLINE, wait_for_ready=True)

    def run(self):
        try:
            self.submit_all()
        except Exception as e:  # of a thread: the test looks at it
            self.error = e

    def submit_all(self):
        address = f"unix:{self.server.data}/tandemd.sock"
        with grpc.insecure_channel(address, options=[
                ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0),
                ("grpc.initial_reconnect_backoff_ms", 20),
                ("grpc.max_reconnect_backoff_ms", 100)]) as channel:
            self.jobs = m.jobs_rpc.JobsStub(channel)
            flying = {key: self.send(key) for key in self.requests}
            while flying:
                for key, call in list(flying.items()):
                    if not call.done():
                        continue
                    failed = call.exception()
                    if not failed:
                        self.ids[key] = call.result().job.id
                        del flying[key]
                    elif failed.code() in RETRIED:
                        flying[key] = self.send(key)
                    else:
                        raise failed
                time.sleep(0.005)


class Submissions(Case):
    def send_to_stopped(self, requests):
        """By now all the others may have their answer; these, sent once more, surely get none."""
        pid = self.s.process.pid
        os.kill(pid, signal.SIGSTOP)
        wait_for("it to stand still", lambda: pathlib.Path(f"/proc/{pid}/stat").read_text()
                 .rsplit(")", 1)[1].split()[0] == "T")
        calls = [self.s.jobs.Submit.future(r, timeout=DEADLINE) for r in requests]
        self.s.process.kill()
        for call in calls:
            self.assertIn(call.exception().code(), RETRIED)

    # (6) A thousand on their way while the controller is killed five times: each that was
    # acknowledged is there once, and none that was sent again is there twice.
    def test_a_thousand_in_flight_through_five_kills(self):
        print(f"SUBMIT_SEED={SEED}", flush=True)
        dice = random.Random(SEED)
        blocker = self.s.submit(self.whole("blocker", tags=["wait=10000000"]))
        self.s.wait_state(blocker, "RUNNING")
        requests = [m.jobs.SubmitRequest(spec=self.s.spec(f"j{n}", steps=1), idempotency_key=f"k{n}")
                    for n in range(SUBMISSIONS)]
        ids = {}
        clients = [Client(self.s, {k: requests[k] for k in range(i, SUBMISSIONS, CHANNELS)}, ids)
                   for i in range(CHANNELS)]
        for client in clients:
            client.start()
        at = sorted(dice.sample(range(SUBMISSIONS * 9 // 10), KILLS))
        for enough in at:
            wait_for(f"{enough} acknowledged", lambda: len(ids) >= enough)
            if enough == at[-1]:
                self.send_to_stopped(dice.sample(requests, 10))
            self.restart()
        for client in clients:
            client.join(DEADLINE)
            self.assertFalse(client.is_alive())
            if client.error:
                raise client.error
        self.assertEqual(len(set(ids.values())), SUBMISSIONS)
        listed = []
        while True:
            page = self.s.jobs.List(m.jobs.ListJobsRequest(
                all=True, page_size=1000, before_id=listed[-1].id if listed else 0),
                timeout=DEADLINE).jobs
            if not page:
                break
            listed += page
        self.assertEqual({j.name: j.id for j in listed},
                         {"blocker": blocker, **{f"j{k}": ids[k] for k in range(SUBMISSIONS)}})
        self.assertEqual(len(listed), SUBMISSIONS + 1)
        self.assertEqual(self.s.get(blocker).attempt, 1)
        for job in listed:
            if job.id != blocker:
                self.s.jobs.Cancel.future(self.ref(job.id), timeout=DEADLINE)
        self.s.jobs.Cancel(self.ref(blocker), timeout=DEADLINE)
        self.s.wait_state(blocker, "CANCELLED")


if __name__ == "__main__":
    unittest.main(verbosity=1)
