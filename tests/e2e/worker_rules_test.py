#!/usr/bin/env python3
"""The rules of the Attach stream, as a real controller holds them: tandem-node is an idle process
that keeps its ticket, and the test speaks for it. The numbers in brackets are those of the scenarios
that other job servers got wrong."""
import contextlib
import os
import pathlib
import queue
import shutil
import signal
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, grpc, link_programs, make_stubs, new_folder,
                               processes, put_away, wait_for)


def setUpModule():
    global folder, m, programs, server
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")
    (programs / "tandem-node").unlink()
    shutil.copy2("/bin/sleep", programs / "idle")
    (programs / "tandem-node").write_text(f"""#!/bin/sh
umask 077
echo $$ >{folder}/pid-$2-$4
cat <&3 >{folder}/part-$2-$4 && mv {folder}/part-$2-$4 {folder}/ticket-$2-$4
exec {programs}/idle 1000
""")
    (programs / "tandem-node").chmod(0o700)
    server = Server(m, folder, programs)


def tearDownModule():
    put_away(server)


def idle():
    return [pid for pid, exe in processes(programs).items() if exe.endswith("/idle")]


class Worker:
    """One stream of an attempt, in the words of the process that was started for it."""

    def __init__(self, job, attempt=1):
        self.job, self.attempt = job, attempt
        path = folder / f"ticket-{job}-{attempt}"
        wait_for("the ticket", path.exists)
        ticket = m.worker.LaunchTicket()
        ticket.ParseFromString(path.read_bytes())
        self.out, self.came = queue.Queue(), queue.Queue()
        self.call = server.worker.Attach(iter(self.out.get, None), timeout=DEADLINE, metadata=(
            ("authorization", f"Bearer {ticket.token}"),))
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        try:
            for down in self.call:
                self.came.put(down)
            self.came.put(None)
        except grpc.RpcError as e:
            self.came.put(e)

    def say(self, **body):
        self.out.put(m.worker.WorkerUp(job_id=self.job, attempt=self.attempt, **body))

    def hello(self, fresh=True):
        pid = int((folder / f"pid-{self.job}-{self.attempt}").read_text())
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        start = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        self.say(hello=m.worker.Hello(fresh=fresh, pid=pid, boot_id=boot, start_time=int(start)))

    def metrics(self, seq, step, loss):
        self.say(seq=seq, metrics=m.jobs.StepMetrics(step=step, loss=loss, grad_norm=1.0))

    def hear(self, kind):
        """The next message of that kind, past others; every one names the attempt [7]."""
        while True:
            down = self.came.get(timeout=DEADLINE)
            if down is None or isinstance(down, grpc.RpcError):
                assert kind == "end", f"the stream ended: {down}"
                return down
            assert down.HasField("attempt") and down.attempt == self.attempt, down
            if down.WhichOneof("body") == kind:
                return getattr(down, kind)

    def hear_ack(self, seq):
        while self.hear("ack").seq < seq:
            pass

    def close(self):
        self.out.put(None)
        self.call.cancel()


class Rules(unittest.TestCase):
    def setUp(self):
        self.job = server.submit(server.spec("rules", steps=10))
        self.open = []
        self.addCleanup(self.clean_up)
        self.worker = self.attach()

    def attach(self, fresh=True):
        w = Worker(self.job)
        self.open.append(w)
        w.hello(fresh)
        w.hear("lease")
        return w

    def clean_up(self):
        for w in self.open:
            w.close()
        server.jobs.Cancel(m.jobs.JobRef(job=str(self.job)), timeout=DEADLINE)
        for pid in idle():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for("free devices", lambda: self.job not in server.holders())

    def check_end(self, worker, code, part):
        e = worker.hear("end")
        self.assertIsInstance(e, grpc.RpcError)
        self.assertEqual(e.code(), code, e.details())
        self.assertIn(part, e.details())

    def rows(self):
        return [(n, loss) for n, _, loss, _ in server.curve(self.job)]

    def test_a_fresh_worker_gets_its_start_and_a_returning_one_does_not(self):
        self.assertEqual(len(self.worker.hear("start").plan.placement), 1)
        again = self.attach(fresh=False)
        again.metrics(1, 1, 5.0)
        again.hear_ack(1)  # past which there was no Start
        wait_for("the row", lambda: self.rows() == [(1, 5.0)])

    # (5) What came before is known by its number; what it says the second time doesn't count.
    def test_a_report_that_comes_twice_counts_once(self):
        w = self.worker
        w.metrics(1, 1, 5.0)
        w.metrics(2, 2, 4.0)
        w.metrics(1, 1, 9.0)
        w.metrics(2, 3, 9.0)
        w.metrics(3, 3, 3.0)
        w.hear_ack(3)
        self.assertEqual(self.rows(), [(1, 5.0), (2, 4.0), (3, 3.0)])

    def test_a_gap_ends_the_stream_and_nothing_behind_it_counts(self):
        w = self.worker
        w.metrics(1, 1, 5.0)
        w.metrics(3, 3, 3.0)
        w.metrics(4, 4, 2.0)
        self.check_end(w, grpc.StatusCode.ABORTED, "seq 3 came, 2 was expected")
        w = self.attach(fresh=False)
        self.assertEqual(w.hear("ack").seq, 1)
        w.metrics(2, 2, 4.0)
        w.hear_ack(2)
        self.assertEqual(self.rows(), [(1, 5.0), (2, 4.0)])

    def test_hello_is_said_once_on_a_stream(self):
        self.worker.hello()
        self.check_end(self.worker, grpc.StatusCode.ABORTED, "hello was said before")

    # A token is not enough: who speaks must be the process that was started for the attempt.
    def test_a_hello_that_does_not_say_which_process_it_is_is_refused(self):
        stranger = Worker(self.job)
        self.open.append(stranger)
        stranger.say(hello=m.worker.Hello(fresh=False))
        self.check_end(stranger, grpc.StatusCode.FAILED_PRECONDITION, "is pid")
        self.worker.metrics(1, 1, 5.0)
        self.worker.hear_ack(1)

    def test_a_newer_stream_replaces_an_older(self):
        newer = self.attach(fresh=False)
        self.check_end(self.worker, grpc.StatusCode.ABORTED, "replaced by a newer connection")
        newer.metrics(1, 1, 5.0)
        newer.hear_ack(1)

    # (5, 7) The first end counts, whatever comes after it.
    def say_id(self, worker, secret):
        worker.say(comm_id=m.worker.CommId(id=secret))

    # Said again, also on a newer stream, it is answered again: the answer may have been lost.
    def test_an_id_for_communicators_comes_back_to_its_attempt_and_is_written_nowhere(self):
        secret = b"known-to-this-gang-alone" * 5
        w = self.worker
        for _ in range(2):
            self.say_id(w, secret)
            self.assertEqual(w.hear("comm_id").id, secret)
        w = self.attach(fresh=False)
        self.say_id(w, secret)
        self.assertEqual(w.hear("comm_id").id, secret)
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                with contextlib.suppress(FileNotFoundError):  # it was for a moment only
                    self.assertNotIn(secret[:24], path.read_bytes(), path)

    def test_a_second_id_for_communicators_is_refused(self):
        self.say_id(self.worker, b"first")
        self.worker.hear("comm_id")
        self.say_id(self.worker, b"other")
        self.check_end(self.worker, grpc.StatusCode.FAILED_PRECONDITION,
                       "has another id for its communicators already")

    def test_an_id_for_communicators_has_a_size(self):
        for secret, size in (b"", 0), (b"x" * 257, 257):
            w = self.attach(fresh=False)
            self.say_id(w, secret)
            self.check_end(w, grpc.StatusCode.INVALID_ARGUMENT,
                           f"an id of {size} bytes for the communicators")
        w = self.attach(fresh=False)
        self.say_id(w, b"x" * 256)
        self.assertEqual(len(w.hear("comm_id").id), 256)

    # [7] Nor may anyone else make one.
    def test_an_id_for_communicators_of_another_attempt_is_refused(self):
        self.worker.out.put(m.worker.WorkerUp(job_id=self.job, attempt=2,
                                              comm_id=m.worker.CommId(id=b"x")))
        self.check_end(self.worker, grpc.StatusCode.INVALID_ARGUMENT, "a message of attempt 2")
        stranger = Worker(self.job)
        self.open.append(stranger)
        self.say_id(stranger, b"x")
        self.check_end(stranger, grpc.StatusCode.ABORTED, "say hello first")

    def test_an_attempt_ends_once(self):
        w = self.worker
        w.metrics(1, 10, 5.0)
        w.say(seq=2, attempt_end=m.worker.AttemptEnd(finished=True))
        w.say(seq=3, attempt_end=m.worker.AttemptEnd(finished=False, message="no, it failed"))
        w.say(seq=4, attempt_end=m.worker.AttemptEnd(cancelled=True))
        w.hear_ack(4)
        got = server.get(self.job)
        self.assertEqual((got.state, got.attempt), (m.jobs.JOB_SUCCEEDED, 1))
        # Its process is there yet: so are its devices.
        self.assertIn(self.job, server.holders())


if __name__ == "__main__":
    unittest.main(verbosity=1)
