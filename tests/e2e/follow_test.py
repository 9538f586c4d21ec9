#!/usr/bin/env python3
"""What follows a job outlives the controller: the CLI says that the server is away, finds it again,
and shows each event and each line of a log once; a stream is taken up where it broke off."""
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import unittest
from concurrent import futures

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, grpc, link_programs, make_stubs, new_folder,
                               put_away, wait_for)
from google.protobuf import json_format

STEPS = 150


def setUpModule():
    global folder, m, programs, server
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")
    server = Server(m, folder, programs)


def tearDownModule():
    put_away(server)


def restart():
    server.kill()
    server.start()


class Door:
    """A socket that leads to the server's until it has let one whole reply out; then nobody is behind
    it until it is opened again."""

    def __init__(self, target, path):
        self.target, self.path, self.ends, self.threads = target, path, [], []
        self.closed = threading.Event()
        self.listen()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shut()
        for thread in self.threads:
            thread.join()
        for end in self.ends:
            end.close()

    def run(self, what, *args):
        self.threads.append(threading.Thread(target=what, args=args, daemon=True))
        self.threads[-1].start()

    def listen(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen(8)
        self.run(self.accept, self.socket)

    def accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                near, far = listener.accept()[0], socket.socket(socket.AF_UNIX)
                far.connect(self.target)
                self.ends += [near, far]
                self.run(self.carry, near, far)
                self.run(self.carry_replies, far, near)

    def carry(self, here, there):
        with contextlib.suppress(OSError):
            while data := here.recv(65536):
                there.sendall(data)

    def carry_replies(self, here, there):
        """Frame by frame (RFC 9113): the headers that end a stream end the reply."""
        with contextlib.suppress(OSError), here.makefile("rb") as frames:
            while head := frames.read(9):
                there.sendall(head + frames.read(int.from_bytes(head[:3], "big")))
                if head[3] == 1 and head[4] & 1 and not self.closed.is_set():
                    self.shut()

    def shut(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # ends the accept
        self.socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.closed.set()

    def open(self):
        assert self.closed.wait(DEADLINE)
        self.listen()


class Following(unittest.TestCase):
    def start(self, *args, at=None):
        out = open(folder / f"{self.id()[-20:]}-{args[0]}.out", "w+b")
        self.addCleanup(out.close)
        env = {**os.environ, "TANDEM_SERVER": at or f"unix:{server.data}/tandemd.sock",
               "XDG_CONFIG_HOME": str(folder / "config")}
        return subprocess.Popen([programs / "tandem", *map(str, args)], stdout=out,
                                stderr=subprocess.STDOUT, env=env), out

    def finish(self, started):
        process, out = started
        code = process.wait(DEADLINE)
        out.seek(0)
        return code, out.read().decode()

    def shows(self, started, words, times=1):
        """Waits until it has printed that."""
        path = started[1].name
        wait_for(f"{words!r}, {times} times", lambda: started[0].poll() is not None or
                 pathlib.Path(path).read_text().count(words) >= times)

    def submit(self, name, gates, **about):
        """A job that waits after each of these steps until it is allowed to go on."""
        tags = ["say", *(f"gate={at}" for at in gates)]
        return server.submit(server.spec(name, steps=STEPS, tags=tags, **about))

    def test_a_watch_finds_the_server_again(self):
        job = self.submit("watched", (10, 20, 70))
        server.wait_step(job, 10)
        watching = self.start("watch", job)
        self.shows(watching, "RUNNING")
        server.allow(job, "gate-10")
        self.shows(watching, f"step 20/{STEPS} ")  # by its stream alone: this is later
        for at in (20, 70):
            restart()
            self.shows(watching, "the server is back", 1 if at == 20 else 2)
            server.allow(job, f"gate-{at}")
            server.wait_step(job, min(at + 50, STEPS))
        code, text = self.finish(watching)
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("the server is away"), 2, text)
        self.assertEqual(text.count("the server is back"), 2, text)
        self.assertEqual(text.count("SUCCEEDED  finished"), 1, text)
        checkpoints = [line for line in text.splitlines() if "step-00000150" in line]
        self.assertEqual(len(checkpoints), 1, text)

    def test_logs_are_whole_and_without_doubles(self):
        for args, mark in ((("--rank", "0"), ""), ((), "rank 0: ")):
            job = self.submit("logged", (20, 50, 90))
            following = self.start("logs", job, "-f", *args)
            for at in (20, 50, 90):
                self.shows(following, f"{mark}step {at}\n")
                restart()
                server.allow(job, f"gate-{at}")
            code, text = self.finish(following)
            self.assertEqual(code, 0, text)
            self.assertEqual([l for l in text.splitlines() if "step" in l],
                             [f"{mark}step {n}" for n in range(1, STEPS + 1)])
            self.assertIn("the server is away", text)

    # Nothing was written yet when the server went away.
    def test_logs_of_a_job_that_waits(self):
        blocker = server.submit(server.spec("blocker", devices=4, tags=["wait=10000000"]))
        server.wait_state(blocker, "RUNNING")
        job = self.submit("waiting", ())
        following = [self.start("logs", job, "-f", "--rank", "0"),
                     self.start("metrics", job, "-f", "--series", "loss", "-o", "csv")]
        self.shows(following[0], "nothing is written yet")
        self.shows(following[1], "no step yet")
        restart()
        for each in following:
            self.shows(each, "the server is away")
        server.jobs.Cancel(m.jobs.JobRef(job=str(blocker)), timeout=DEADLINE)
        code, text = self.finish(following[0])
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("step "), STEPS, text)
        code, text = self.finish(following[1])
        self.assertEqual(code, 0, text)
        self.assertEqual([l.split(",")[0] for l in text.splitlines() if l[:1].isdigit()],
                         [str(n) for n in range(1, STEPS + 1)], text)

    # Who has had an answer of this server waits for it, also where that was another call's: the
    # list that tells a name's number, or the submission.
    def test_a_server_that_goes_away_before_the_stream_is_waited_for(self):
        job = self.submit("between", ())
        server.wait_state(job, "SUCCEEDED")
        file = folder / "between.yaml"
        spec = json_format.MessageToDict(server.spec("file", steps=3), preserving_proto_field_name=True)
        file.write_text(json.dumps({**spec, "parallel": spec["parallel"]["layout"]}))
        for words in (("watch", "between"), ("logs", "between", "-f"), ("metrics", "between", "-f"),
                      ("submit", file, "--follow")):
            with Door(f"{server.data}/tandemd.sock", f"{folder}/door-{words[0]}.sock") as door:
                following = self.start(*words, at=f"unix:{door.path}")
                self.shows(following, "the server is away")
                door.open()
                code, text = self.finish(following)
                self.assertEqual(code, 0, text)

    # Of one that never answered nobody knows whether it is one: it has the moments of a restart.
    def test_a_server_that_is_just_starting_is_waited_for_a_moment(self):
        job = self.submit("early", ())
        server.wait_state(job, "SUCCEEDED")
        for words in (("watch", job), ("logs", "early", "-f"), ("metrics", "early", "-f")):
            for n in range(10):  # it may have given up before this process gets to it
                path = f"{folder}/early-{words[0]}-{n}.sock"
                following = self.start(*words, at=f"unix:{path}")
                self.shows(following, "no such socket; trying again for 5 s")
                os.symlink(f"{server.data}/tandemd.sock", path)
                code, text = self.finish(following)
                if code != 4:
                    break
            self.assertEqual(code, 0, text)
            self.assertEqual(text.count("trying again for 5 s"), 1, text)
            self.assertNotIn("the server is away", text)

    # One patience for all that a command asks: its name first.
    def test_a_server_that_never_answers_is_tried_once(self):
        started = [self.start(*words, at=f"unix:{folder}/never.sock") for words in (
            ("watch", "absent"), ("logs", "absent", "-f"), ("metrics", "absent", "-f"))]
        for one in started:
            code, text = self.finish(one)
            self.assertEqual(code, 4, text)
            self.assertEqual(text.count("trying again for 5 s"), 1, text)

    # By the contract of the stream itself: after_event_id goes on where a watch broke off.
    def test_a_stream_is_taken_up_without_loss_or_doubles(self):
        gates = (40, 75, 110)
        job = self.submit("streamed", gates, interval=10)
        seen, kills, rows = [], 0, []
        while not seen or server.state(job) != "JOB_SUCCEEDED" or seen[-1] != \
                server.get(job).events[-1].id:
            try:
                for reply in server.jobs.Watch(m.jobs.WatchRequest(
                        job=str(job), after_event_id=seen[-1] if seen else 0), timeout=DEADLINE):
                    if reply.HasField("event"):
                        self.assertEqual(reply.event.dropped, 0)
                        seen.append(reply.event.id)
                    # Of the job itself, in the first reply, where it was there before the stream.
                    step = max(reply.metrics.step, reply.job.step)
                    if kills < 3 and step >= gates[kills] - 5:
                        restart()
                        server.allow(job, f"gate-{gates[kills]}")
                        kills += 1
            except (grpc.RpcError, ValueError):
                pass  # the channel of the server that was killed
        self.assertEqual(kills, 3)
        self.assertEqual(seen, [e.id for e in server.get(job).events])
        last = m.runs.WatchMetricsRequest(job=str(job))
        for reply in server.runs.WatchMetrics(last, timeout=DEADLINE):
            rows.append(reply.metrics.step)
        self.assertEqual(rows, list(range(1, STEPS + 1)))


class SameName(unittest.TestCase):
    """Who only looks gets the newest of several jobs of a name, and is told so; who acts is asked."""

    def test_the_newest_is_shown(self):
        jobs = [server.submit(server.spec("again", steps=n)) for n in (2, 3)]
        for job in jobs:
            server.wait_state(job, "SUCCEEDED")
        for words in (["show", "again"], ["metrics", "again", "-o", "csv"], ["watch", "again"],
                      ["logs", "again", "--rank", "0"], ["why", "again"], ["ckpt", "ls", "again"],
                      ["generate", "again", "--prompt", "x"], ["cancel", "again"]):
            r = subprocess.run([programs / "tandem", *words, "--server",
                                f"unix:{server.data}/tandemd.sock"], capture_output=True, text=True,
                               timeout=DEADLINE)
            if words[0] == "cancel":
                self.assertEqual(r.returncode, 1)
                self.assertIn(f"({jobs[1]}, {jobs[0]})", r.stderr)
                self.assertIn("say which by its number", r.stderr)
            else: # the ranks of this test leave no weights
                self.assertEqual(r.returncode, 1 if words[0] == "generate" else 0, r.stderr)
                self.assertIn(f"tandem: again: job {jobs[1]}, the newest of 2\n", r.stderr)
            if words[0] == "metrics":
                self.assertEqual(len(r.stdout.splitlines()), 4)


class BusyJobs:
    """A server that ends each stream once, after its first message, for its limits."""

    def __init__(self):
        self.streams = {"Watch": 0, "Logs": 0}

    def job(self, ended):
        j = m.jobs
        return j.Job(id=7, name="busy", state=j.JOB_SUCCEEDED if ended else j.JOB_RUNNING, attempt=1,
                     cause="finished" if ended else "started", step=5 if ended else 1, total_steps=5)

    def Get(self, request, context):
        return self.job(self.streams["Watch"] > 1)

    def end_once(self, name, context):
        self.streams[name] += 1
        if self.streams[name] == 1:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "earlier replies wait to be read")

    def Watch(self, request, context):
        yield m.jobs.WatchReply(job=self.job(self.streams["Watch"] > 0))
        self.end_once("Watch", context)

    def Logs(self, request, context):
        yield m.jobs.LogsReply(rank=0, data=b"first\n", next_offset=6)
        self.end_once("Logs", context)
        yield m.jobs.LogsReply(rank=0, data=b"last\n", next_offset=11)


class EndedForLimits(unittest.TestCase):
    """A stream that the server ends because it can't keep up is opened again, too; one that it never
    opened isn't."""

    def setUp(self):
        self.jobs = type("Fake", (BusyJobs, m.jobs_rpc.JobsServicer), {})()

    def serve(self):
        server = grpc.server(futures.ThreadPoolExecutor(4))
        m.jobs_rpc.add_JobsServicer_to_server(self.jobs, server)
        self.address = f"unix:{folder}/{self.id()[-12:]}.sock"
        server.add_insecure_port(self.address)
        server.start()
        self.addCleanup(lambda: server.stop(0).wait())

    def tandem(self, *args):
        r = subprocess.run([programs / "tandem", *args, "--server", self.address], timeout=DEADLINE,
                           capture_output=True, text=True,
                           env={**os.environ, "XDG_CONFIG_HOME": str(folder / "none")})
        return r.returncode, r.stdout + r.stderr

    def test_a_watch_goes_on(self):
        self.serve()
        code, text = self.tandem("watch", "7")
        self.assertEqual(code, 0, text)
        self.assertIn("earlier replies wait to be read; the job goes on, trying again", text)
        self.assertIn("SUCCEEDED", text)
        self.assertEqual(self.jobs.streams["Watch"], 2)

    def test_logs_go_on_where_they_were(self):
        self.serve()
        code, text = self.tandem("logs", "7", "-f", "--rank", "0")
        self.assertEqual(code, 0, text)
        self.assertIn("earlier replies wait to be read; the job goes on, trying again", text)
        self.assertEqual([l for l in text.splitlines() if l in ("first", "last")], ["first", "last"])

    def test_a_stream_that_was_never_opened_is_not_tried_again(self):
        def refuse(request, context):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")
        self.jobs.Watch = self.jobs.Logs = refuse
        self.serve()
        for words in (("watch", "7"), ("logs", "7", "-f")):
            code, text = self.tandem(*words)
            self.assertEqual(code, 1, text)
            self.assertIn("too many streams", text)


if __name__ == "__main__":
    unittest.main(verbosity=1)
