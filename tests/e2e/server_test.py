#!/usr/bin/env python3
"""The controller over real processes: tandemd, tandem-node and a rank that trains nothing. The
numbers in brackets are those of the scenarios that other job servers got wrong."""
import fcntl
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import h2
from bench_of_programs import (DEADLINE, ServerCase, end_processes, gang_processes, grpc,
                               link_programs, make_stubs, new_folder, processes, wait_for)


def setUpModule():
    global folder, m, programs
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")


def want(steps, attempt=1):
    return [(n, attempt, 10.0 / n + 1.0 / 3.0, 1.0 / (n + 7)) for n in range(1, steps + 1)]


def waits_to_be_read(connection):
    """Bytes."""
    return struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, b"\0" * 4))[0]


class Case(ServerCase):
    def setUp(self):
        self.set_up(m, folder, programs)

    def refused(self, code, call, *args, **kwargs):
        with self.assertRaises(grpc.RpcError) as caught:
            reply = call(*args, **kwargs, timeout=DEADLINE)
            if hasattr(reply, "__next__"):
                for _ in reply:
                    pass
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception.details()

    def ref(self, job):
        return m.jobs.JobRef(job=str(job))

    def nodes_of(self, job):
        """pids of the job's tandem-node and ranks."""
        pids = []
        for pid in processes(programs):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"--job" in words and words[words.index(b"--job") + 1] == str(job).encode():
                pids.append((words[0].decode().rsplit("/", 1)[1], pid))
        return pids

    def pid_of(self, job, name):
        return wait_for(f"{name} of job {job}",
                        lambda: [p for n, p in self.nodes_of(job) if n == name])[0]


class Life(Case):
    def test_a_job_runs_to_its_end_and_its_devices_are_free_again(self):
        job = self.s.submit(self.s.spec("one", devices=2))
        self.s.wait_state(job, "SUCCEEDED")
        self.assertEqual(self.s.curve(job), want(20))
        got = self.s.get(job)
        self.assertEqual((got.step, got.total_steps, got.attempt, got.cause),
                         (20, 20, 1, "finished"))
        moves = [(e.to, e.actor) for e in got.events if e.kind == "state"]
        self.assertEqual([t for t, _ in moves], [m.jobs.JOB_STARTING, m.jobs.JOB_RUNNING,
                                                 m.jobs.JOB_SUCCEEDED])
        wait_for("free devices", lambda: self.s.holders() == [0] * 4)
        wait_for("no process", lambda: not self.nodes_of(job))

    def test_a_watch_shows_every_event_every_step_and_ends_with_the_job(self):
        job = self.s.submit(self.s.spec("one", tags=["ms=5"]))
        replies = list(self.s.jobs.Watch(m.jobs.WatchRequest(job=str(job), after_event_id=0),
                                         timeout=DEADLINE))
        events = [r.event for r in replies if r.HasField("event")]
        self.assertEqual([e.id for e in events], sorted({e.id for e in events}))
        self.assertEqual(events[0].kind, "submitted")
        self.assertEqual(events[-1].to, m.jobs.JOB_SUCCEEDED)
        rows = list(self.s.runs.WatchMetrics(m.runs.WatchMetricsRequest(job=str(job)),
                                             timeout=DEADLINE))
        self.assertEqual([r.metrics.step for r in rows], list(range(1, 21)))

    def test_a_gang_that_does_not_fit_waits_with_a_reason(self):
        first = self.s.submit(self.s.spec("first", devices=4, tags=["gate=0"]))
        second = self.s.submit(self.s.spec("second", devices=4))
        self.s.wait_state(first, "RUNNING")
        why = self.s.jobs.Why(self.ref(second), timeout=DEADLINE)
        self.assertEqual(why.reasons[0], "needs 4 devices, 0 of 4 are free")
        self.assertEqual((list(why.holders), why.place), ([first], 1))
        self.s.jobs.Cancel(self.ref(first), timeout=DEADLINE)
        self.s.wait_state(second, "SUCCEEDED")

    def test_what_can_never_run_is_refused_at_once(self):
        text = self.refused(grpc.StatusCode.INVALID_ARGUMENT, self.s.jobs.Submit,
                            m.jobs.SubmitRequest(spec=self.s.spec("one", steps=-1)))
        self.assertIn("training.steps", text)
        spec = self.s.spec("one")
        spec.model.path = "/nowhere/at/all"
        text = self.refused(grpc.StatusCode.INVALID_ARGUMENT, self.s.jobs.Submit,
                            m.jobs.SubmitRequest(spec=spec))
        self.assertIn("/nowhere/at/all", text)
        spec = self.s.spec("one")
        spec.resources.nodes.append("elsewhere")
        text = self.refused(grpc.StatusCode.INVALID_ARGUMENT, self.s.jobs.Submit,
                            m.jobs.SubmitRequest(spec=spec))
        self.assertIn("elsewhere", text)
        listed = self.s.jobs.List(m.jobs.ListJobsRequest(all=True), timeout=DEADLINE)
        self.assertEqual(len(listed.jobs), 0)

    # A log that nobody can append to is the job's own trouble: no thread of the server or of
    # tandem-node waits for a FIFO's reader, and other jobs are started meanwhile.
    def test_a_fifo_in_place_of_a_log_holds_nobody_up(self):
        for job, name in ((1, "node.log"), (2, "rank-0.log")):
            logs = self.s.data / f"jobs/{job}/logs/attempt-1"
            logs.mkdir(parents=True)
            os.mkfifo(logs / name)
            self.assertEqual(self.s.submit(self.s.spec(f"fifo-{job}", max_restarts=0)), job)
            self.s.wait_state(job, "FAILED")
            self.assertIn(name, self.s.get(job).message)
        job = self.s.submit(self.s.spec("other", steps=3))
        self.s.wait_state(job, "SUCCEEDED")
        wait_for("free devices", lambda: self.s.holders() == [0] * 4)

    # An empty tenant is the caller's own; under a sanitizer the server's end shows what it lost.
    def test_an_empty_tenant_is_the_callers_own(self):
        spec = self.s.spec("one", steps=3)
        spec.tenant = ""
        job = self.s.submit(spec)
        self.s.wait_state(job, "SUCCEEDED")
        self.assertEqual(self.s.get(job).tenant, "default")

    def test_hold_priority_pause_and_resume(self):
        blocker = self.s.submit(self.s.spec("blocker", devices=4, tags=["ms=200"], steps=1000000))
        self.s.wait_state(blocker, "RUNNING")
        low = self.s.submit(self.s.spec("low", devices=4))
        high = self.s.submit(self.s.spec("high", devices=4))
        held = self.s.submit(self.s.spec("held", devices=4))
        self.s.jobs.Hold(self.ref(held), timeout=DEADLINE)
        self.s.jobs.SetPriority(m.jobs.SetPriorityRequest(job=str(high), priority=900),
                                timeout=DEADLINE)
        self.s.jobs.Pause(self.ref(blocker), timeout=DEADLINE)
        self.s.wait_state(blocker, "PAUSED")
        self.s.wait_state(high, "SUCCEEDED")
        self.s.wait_state(low, "SUCCEEDED")
        self.assertLess(self.s.get(high).started_us, self.s.get(low).started_us)
        self.assertEqual(self.s.state(held), "JOB_HELD")
        paused_at = self.s.get(blocker).step
        self.s.jobs.Resume(self.ref(blocker), timeout=DEADLINE)
        wait_for("progress", lambda: self.s.get(blocker).step > paused_at)
        steps = [row[:2] for row in self.s.curve(blocker)]
        self.assertEqual(steps[:paused_at + 1],
                         [(n, 1 if n <= paused_at else 2) for n in range(1, paused_at + 2)])
        self.s.jobs.Cancel(self.ref(blocker), timeout=DEADLINE)
        self.s.jobs.Release(self.ref(held), timeout=DEADLINE)
        self.s.wait_state(held, "SUCCEEDED")
        self.s.wait_state(blocker, "CANCELLED")


class Durable(Case):
    # (1) Acknowledged = on disk, and the key still means the same job.
    def test_an_acknowledged_job_is_there_after_a_kill(self):
        for n in range(5):
            job = self.s.submit(self.s.spec("one", steps=3), key=f"key-{n}")
            self.s.kill()
            self.s.start()
            again = self.s.submit(self.s.spec("one", steps=3), key=f"key-{n}")
            self.assertEqual(again, job)
            self.s.wait_state(job, "SUCCEEDED")
        listed = self.s.jobs.List(m.jobs.ListJobsRequest(all=True), timeout=DEADLINE)
        self.assertEqual(len(listed.jobs), 5)

    # (1) The same key at the same time: one job.
    def test_a_key_that_comes_twice_at_once_is_one_job(self):
        request = m.jobs.SubmitRequest(spec=self.s.spec("one", steps=3), idempotency_key="k")
        calls = [self.s.jobs.Submit.future(request, timeout=DEADLINE) for _ in range(20)]
        self.assertEqual(len({c.result().job.id for c in calls}), 1)

    # (1) The same key with another spec is a mistake that is told, not another job's number.
    def test_a_key_that_comes_with_another_spec_is_refused(self):
        job = self.s.submit(self.s.spec("one", steps=3), key="k")
        for _ in range(2):
            with self.assertRaises(grpc.RpcError) as refused:
                self.s.submit(self.s.spec("one", steps=4), key="k")
            self.assertEqual(refused.exception.code(), grpc.StatusCode.ALREADY_EXISTS)
            self.assertIn(f"job {job} was submitted with it", refused.exception.details())
            self.assertEqual(self.s.submit(self.s.spec("one", steps=3), key="k"), job)
            self.s.kill()
            self.s.start()

    # (4, 5) The gang trains on without the controller; what it had to say comes afterwards.
    def test_a_job_that_finishes_while_the_controller_is_down_is_not_run_again(self):
        job = self.s.submit(self.s.spec("one", steps=30, tags=["gate=3"]))
        self.s.wait_step(job, 3)
        self.s.kill()
        self.s.allow(job, "gate-3")
        log = self.s.data / f"jobs/{job}/logs/attempt-1/node.log"
        wait_for("the end", lambda: "attempt 1 ended: finished" in log.read_text())
        self.s.start()
        self.s.wait_state(job, "SUCCEEDED")
        self.assertEqual(self.s.curve(job), want(30))
        self.assertEqual(self.s.get(job).attempt, 1)

    # (2) Killed again and again, in whatever state the job is.
    def test_a_run_outlives_many_kills_of_the_controller(self):
        gates = [8 * n + 1 for n in range(11)]
        job = self.s.submit(self.s.spec("one", steps=100, tags=[f"gate={n}" for n in gates],
                                        interval=10))
        for n in gates:
            self.s.wait_step(job, max(n - 1, 1))
            self.s.allow(job, f"gate-{n}")  # it may be there, or not yet, or go on
            self.s.kill()
            self.s.start()
        self.s.wait_state(job, "SUCCEEDED")
        self.assertEqual(self.s.curve(job), want(100))
        self.assertEqual(self.s.get(job).attempt, 1)

    # (2) A stop that was asked for stays asked for.
    def test_a_cancel_outlives_the_controller(self):
        job = self.s.submit(self.s.spec("one", steps=1000000, tags=["ms=20", "stubborn"]))
        wait_for("step 1", lambda: self.s.get(job).step >= 1)
        self.s.jobs.Cancel(self.ref(job), timeout=DEADLINE)
        self.s.kill()
        self.s.start()
        self.s.wait_state(job, "CANCELLED")
        wait_for("no process", lambda: not self.nodes_of(job))

    # A clean stop leaves gangs running too, and is quick.
    def test_running_gangs_go_on_through_a_clean_stop(self):
        job = self.s.submit(self.s.spec("one", steps=60, tags=["gate=1"]))
        self.s.wait_step(job, 1)
        node = self.pid_of(job, "tandem-node")
        self.assertEqual(self.s.stop(), 0)
        self.assertIn(node, processes(programs))
        self.s.allow(job, "gate-1")
        self.s.start()
        self.s.wait_state(job, "SUCCEEDED")
        self.assertEqual(self.s.curve(job), want(60))

    # A client that asks for more than its socket holds, and never reads: a write to it is under way
    # for ever. The server leaves all the same, while the client is still there.
    def test_a_client_that_does_not_read_does_not_hold_up_a_stop(self):
        for n in range(100):
            spec = self.s.spec(f"a-name-of-some-length-{n}", tags=["x" * 64])
            spec.hold = True
            self.s.submit(spec)
        ask = m.jobs.ListJobsRequest(all=True, page_size=1000)
        size = len(self.s.jobs.List(ask, timeout=DEADLINE).SerializeToString())
        with h2.connect(self.s.data / "tandemd.sock") as client:
            client.sendall(h2.greeting_of_a_wide_window())
            for stream in range(1, 2 * max(2, (1 << 20) // size), 2):
                client.sendall(
                    h2.frame(h2.HEADERS, h2.END_HEADERS, stream,
                             h2.request_headers(b"/tandem.v1.Jobs/List")) +
                    h2.frame(h2.DATA, h2.END_STREAM, stream, h2.message(ask.SerializeToString())))
            wait_for("answers that fill the socket", lambda: waits_to_be_read(client) > 100000)
            self.assertEqual(self.s.stop(), 0)
            self.assertGreater(waits_to_be_read(client), 100000)
        self.s.start()

    # (3) One unreadable row.
    def test_a_damaged_spec_is_quarantined_and_the_server_boots(self):
        held = self.s.submit(self.s.spec("bad", devices=1, steps=5, tags=["gate=1"]))
        self.s.wait_state(held, "RUNNING")
        self.s.kill()
        import sqlite3
        db = sqlite3.connect(self.s.data / "tandem.db")
        db.execute("UPDATE specs SET spec = x'00' WHERE job = ?", (held,))
        db.commit()
        db.close()
        self.s.start()
        self.s.wait_state(held, "FAILED")
        self.assertEqual(self.s.get(held).cause, "damaged")
        wait_for("no process", lambda: not self.nodes_of(held))
        self.assertIn("quarantined", (self.folder / "tandemd.log").read_text())
        self.s.wait_state(self.s.submit(self.s.spec("good")), "SUCCEEDED")

    def answer_once(self, listener):
        """Until somebody who isn't this process has knocked."""
        own = True
        while own:
            with listener.accept()[0] as end:
                pid = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                own = int.from_bytes(pid[:4], sys.byteorder) == os.getpid()
        listener.shutdown(socket.SHUT_RDWR)

    # A child that the killed server was just starting holds its socket for a moment.
    def test_a_socket_that_is_answered_for_a_moment_longer_is_no_server(self):
        self.s.kill()
        path = self.s.data / "tandemd.sock"
        path.unlink()
        with socket.socket(socket.AF_UNIX) as leftover:
            leftover.bind(str(path))
            leftover.listen(64)
            knocked = threading.Thread(target=self.answer_once, args=(leftover,))
            knocked.start()
            self.s.start()
            knocked.join()
            self.s.wait_state(self.s.submit(self.s.spec("one", steps=3)), "SUCCEEDED")

    def test_a_second_server_on_the_same_folder_is_refused_in_words(self):
        second = subprocess.run([programs / "tandemd", "--dev", "--data-dir", self.s.data],
                                capture_output=True, text=True, timeout=DEADLINE,
                                env={**os.environ, "XDG_CONFIG_HOME": str(self.folder / "c")})
        self.assertEqual(second.returncode, 1)
        self.assertIn(f"another tandemd (pid {self.s.process.pid})", second.stderr)


    # (6) Submissions in flight while the controller is killed: each that was acknowledged is there
    # exactly once, also when it is asked again.
    def test_submissions_in_flight_while_the_controller_restarts(self):
        specs = [self.s.spec(f"j{n}", steps=1, tags=[f"n={n}"]) for n in range(400)]
        for spec in specs:
            spec.resources.type = "cpu"

        def send():
            return [self.s.jobs.Submit.future(
                m.jobs.SubmitRequest(spec=spec, idempotency_key=f"k{n}"), timeout=DEADLINE)
                for n, spec in enumerate(specs)]

        acked = {}
        calls = send()
        wait_for("some replies", lambda: sum(c.done() for c in calls) > 50)
        self.s.process.kill()
        for n, c in enumerate(calls):
            if c.exception() is None:
                acked[n] = c.result().job.id
        self.s.kill()
        self.assertGreater(len(acked), 50)
        self.s.start()
        ids = [c.result().job.id for c in send()]
        for n, job in acked.items():
            self.assertEqual(ids[n], job)
        self.assertEqual(len(set(ids)), 400)
        listed = []
        while True:
            page = self.s.jobs.List(m.jobs.ListJobsRequest(
                all=True, before_id=listed[-1].id if listed else 0), timeout=DEADLINE).jobs
            if not page:
                break
            listed += page
        self.assertEqual(sorted(j.name for j in listed), sorted(f"j{n}" for n in range(400)))

    # (35) A watcher that doesn't read loses samples and is told so; others notice nothing.
    def test_a_watcher_that_does_not_read_is_told_what_it_lost(self):
        steps = 60000
        job = self.s.submit(self.s.spec("one", steps=steps, tags=["gate=0"]))
        slow = self.s.runs.WatchMetrics(m.runs.WatchMetricsRequest(job=str(job)),
                                        timeout=4 * DEADLINE)
        slow.initial_metadata()  # it is open from here on
        self.s.wait_state(job, "RUNNING")
        self.s.allow(job, "gate-0")
        quick = self.s.jobs.Watch(m.jobs.WatchRequest(job=str(job), metrics=False),
                                  timeout=4 * DEADLINE)
        seen = [r.event.to for r in quick if r.HasField("event")]
        self.assertEqual(seen[-1], m.jobs.JOB_SUCCEEDED)
        rows, lost, last = 0, 0, 0
        for reply in slow:
            if reply.HasField("metrics"):
                self.assertGreater(reply.metrics.step, last)
                last = reply.metrics.step
                rows += 1
            lost += reply.dropped
        # What comes after the last notice of a loss may itself be lost at the very end.
        self.assertGreater(lost, 0)
        self.assertLessEqual(rows + lost, steps)
        status = pathlib.Path(f"/proc/{self.s.process.pid}/status").read_text()
        rss = int(status.split("VmRSS:")[1].split()[0])
        self.assertLess(rss, 400 << 10)  # far below what the samples would take, sanitizers included

    def taken(self, spec):
        """The job; None: refused for want of room."""
        try:
            return self.s.submit(spec)
        except grpc.RpcError as e:
            self.assertEqual(e.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, e.details())
            self.assertIn("disk is full", e.details())
            return None

    # (33) A full disk: new work is refused in words, what runs goes on, nothing is lost.
    def test_a_full_disk_refuses_in_words_and_loses_nothing(self):
        self.s.stop()
        mount = self.folder / "small"
        mount.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tandem-test", mount],
                          capture_output=True).returncode != 0:
            self.s.start()
            self.skipTest("SKIPPED: may not mount a tmpfs")
        try:
            self.s.data = mount / "data"
            self.s.start()
            job = self.s.submit(self.s.spec("one", steps=200, tags=["ms=10"]))
            self.s.wait_step(job, 3)
            with open(mount / "ballast", "wb", buffering=0) as f:
                try:
                    while True:
                        f.write(b"x" * 4096)
                except OSError:
                    pass
            wait_for("a refusal", lambda: not self.taken(self.s.spec("two")))
            (mount / "ballast").unlink()
            self.s.wait_state(job, "SUCCEEDED")
            self.assertEqual(self.s.curve(job), want(200))
            self.assertEqual(self.s.get(job).attempt, 1)
            # It looks for room now and then.
            third = wait_for("room", lambda: self.taken(self.s.spec("three", steps=3)))
            self.s.wait_state(third, "SUCCEEDED")
        finally:
            self.s.kill()
            end_processes(programs)
            # Lazily: a process that was killed may hold it for another moment.
            subprocess.run(["umount", "-l", mount], check=True)
            self.s.data = self.folder / "data"
            self.s.start()


class Death(Case):
    # The gang restarts from its newest checkpoint; the curve is that of an undisturbed run (31).
    def test_a_rank_that_dies_is_restarted_from_the_newest_checkpoint(self):
        job = self.s.submit(self.s.spec("one", steps=30, tags=["die=17"], interval=5))
        self.s.wait_state(job, "SUCCEEDED")
        got = self.s.get(job)
        self.assertEqual((got.attempt, got.restarts), (2, 1))
        curve = self.s.curve(job)
        self.assertEqual([(n, loss, norm) for n, _, loss, norm in curve],
                         [(n, loss, norm) for n, _, loss, norm in want(30)])
        self.assertEqual([a for _, a, _, _ in curve], [1] * 15 + [2] * 15)
        self.assertEqual([row[0] for row in self.s.curve(job, attempt=1)], list(range(1, 18)))
        self.assertTrue(any("signal 9" in e.message for e in got.events if e.kind == "rank-exit"))

    # (8, 21) tandem-node itself is killed: the ranks go with it, then the job runs again.
    def test_a_killed_tandem_node_costs_one_restart(self):
        job = self.s.submit(self.s.spec("one", steps=40, tags=["gate=12"], interval=5, devices=2))
        self.s.wait_step(job, 12)
        os.kill(self.pid_of(job, "tandem-node"), signal.SIGKILL)
        self.s.allow(job, "gate-12")
        self.s.wait_state(job, "SUCCEEDED")
        got = self.s.get(job)
        self.assertEqual((got.attempt, got.restarts), (2, 1))
        self.assertEqual([row[0] for row in self.s.curve(job)], list(range(1, 41)))

    # (26) A crash loop ends, with the cause.
    def test_a_crash_loop_spends_its_budget_and_fails_with_the_cause(self):
        spec = self.s.spec("one", steps=40, tags=["gate=0"], max_restarts=2)
        job = self.s.submit(spec)
        for attempt in range(1, 4):
            wait_for(f"attempt {attempt}",
                     lambda: self.s.get(job).attempt == attempt and
                     self.s.state(job) == "JOB_RUNNING")
            os.kill(self.pid_of(job, "tandem-rank"), signal.SIGKILL)
            wait_for("its end", lambda: self.s.get(job).attempt > attempt or
                     self.s.state(job) == "JOB_FAILED")
        self.s.wait_state(job, "FAILED")
        self.assertIn("signal 9", self.s.get(job).message)
        self.assertEqual(self.s.get(job).cause, "restarts-spent")

    # (25) TERM is ignored, a descendant fled into its own session: all are gone, devices are free.
    def test_cancel_leaves_no_descendant(self):
        job = self.s.submit(self.s.spec("one", steps=1000000, devices=2,
                                        tags=["ms=50", "stubborn", "brood"]))
        wait_for("step 1", lambda: self.s.get(job).step >= 1)
        wait_for("descendants", lambda: len(gang_processes(programs)) >= 5)
        self.s.jobs.Cancel(self.ref(job), timeout=DEADLINE)
        self.s.wait_state(job, "CANCELLED")
        wait_for("free devices", lambda: self.s.holders() == [0] * 4)
        self.assertEqual(gang_processes(programs), {})

    # (25) The same where tandem-node can do nothing any more.
    def test_cancel_works_on_a_stopped_tandem_node(self):
        job = self.s.submit(self.s.spec("one", steps=1000000, tags=["ms=50", "brood"]))
        wait_for("step 1", lambda: self.s.get(job).step >= 1)
        os.kill(self.pid_of(job, "tandem-node"), signal.SIGSTOP)
        self.s.jobs.Cancel(self.ref(job), timeout=DEADLINE)
        self.s.wait_state(job, "CANCELLED")
        wait_for("no process", lambda: set(processes(programs)) == {self.s.process.pid})
        wait_for("free devices", lambda: self.s.holders() == [0] * 4)

    # (27) A child that holds stdout open doesn't hold the job.
    def test_a_child_that_holds_stdout_does_not_hold_the_job(self):
        job = self.s.submit(self.s.spec("one", tags=["holder"]))
        self.s.wait_state(job, "SUCCEEDED")
        wait_for("no process", lambda: set(processes(programs)) == {self.s.process.pid})

    # (27) The last line of a killed rank's log says who killed it; follow ends with the job.
    def test_logs_follow_to_the_end_and_say_who_killed_a_rank(self):
        job = self.s.submit(self.s.spec("one", steps=50, tags=["ms=5", "die=20", "say"],
                                        max_restarts=0))
        text = b"".join(r.data for r in self.s.jobs.Logs(
            m.jobs.LogsRequest(job=str(job), rank=0, follow=True), timeout=DEADLINE))
        lines = text.decode().splitlines()
        self.assertEqual(lines[:20], [f"step {n}" for n in range(1, 21)])
        self.assertIn("signal 9", lines[-1])
        part = b"".join(r.data for r in self.s.jobs.Logs(
            m.jobs.LogsRequest(job=str(job), rank=0, from_offset=7), timeout=DEADLINE))
        self.assertEqual(part, text[7:])
        every = b"".join(r.data for r in self.s.jobs.Logs(m.jobs.LogsRequest(job=str(job)),
                                                          timeout=DEADLINE))
        self.assertTrue(every.startswith(b"rank 0: step 1\n"))

    # (7) A worker of an attempt that is over can say nothing.
    def test_a_worker_without_a_token_is_refused(self):
        hello = m.worker.WorkerUp(hello=m.worker.Hello(fresh=True))
        self.refused(grpc.StatusCode.UNAUTHENTICATED, self.s.worker.Attach, iter([hello]))
        self.refused(grpc.StatusCode.UNAUTHENTICATED, self.s.worker.Attach, iter([hello]),
                     metadata=(("authorization", "Bearer " + "0" * 64),))


if __name__ == "__main__":
    unittest.main(verbosity=1)
