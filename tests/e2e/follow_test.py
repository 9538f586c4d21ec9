#!/usr/bin/env python3
"""What follows a job outlives the controller: the CLI says that the server is away, finds it again,
and shows each event and each line of a log once; a stream is taken up where it broke off."""
import os
import pathlib
import subprocess
import sys
import unittest
from concurrent import futures

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, grpc, link_programs, make_stubs, new_folder,
                               put_away, wait_for)

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


class Following(unittest.TestCase):
    def start(self, *args):
        out = open(folder / f"{self.id()[-20:]}-{args[0]}.out", "w+b")
        self.addCleanup(out.close)
        env = {**os.environ, "TANDEM_SERVER": f"unix:{server.data}/tandemd.sock",
               "XDG_CONFIG_HOME": str(folder / "config")}
        return subprocess.Popen([programs / "tandem", *map(str, args)], stdout=out,
                                stderr=subprocess.STDOUT, env=env), out

    def finish(self, started):
        process, out = started
        code = process.wait(DEADLINE)
        out.seek(0)
        return code, out.read().decode()

    def submit(self, name, **about):
        return server.submit(server.spec(name, steps=STEPS, tags=["ms=20", "say"], **about))

    def step(self, job, at):
        wait_for(f"step {at}", lambda: server.get(job).step >= at)

    def test_a_watch_finds_the_server_again(self):
        job = self.submit("watched")
        watching = self.start("watch", job)
        for at in (20, 70):
            self.step(job, at)
            restart()
        code, text = self.finish(watching)
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("the server is away"), 2, text)
        self.assertEqual(text.count("the server is back"), 2, text)
        self.assertEqual(text.count("SUCCEEDED  finished"), 1, text)
        checkpoints = [line for line in text.splitlines() if "step-00000150" in line]
        self.assertEqual(len(checkpoints), 1, text)

    def test_logs_are_whole_and_without_doubles(self):
        for args, mark in ((("--rank", "0"), ""), ((), "rank 0: ")):
            job = self.submit("logged")
            following = self.start("logs", job, "-f", *args)
            for at in (20, 50, 90):
                self.step(job, at)
                restart()
            code, text = self.finish(following)
            self.assertEqual(code, 0, text)
            self.assertEqual([l for l in text.splitlines() if "step" in l],
                             [f"{mark}step {n}" for n in range(1, STEPS + 1)])
            self.assertIn("the server is away", text)

    # Nothing was written yet when the server went away.
    def test_logs_of_a_job_that_waits(self):
        blocker = server.submit(server.spec("blocker", devices=4, tags=["wait=10000000"]))
        server.wait_state(blocker, "RUNNING")
        job = self.submit("waiting")
        fds = f"/proc/{server.process.pid}/fd"
        before = len(os.listdir(fds))
        following = self.start("logs", job, "-f", "--rank", "0")
        wait_for("a connection", lambda: len(os.listdir(fds)) > before)
        restart()
        server.jobs.Cancel(m.jobs.JobRef(job=str(blocker)), timeout=DEADLINE)
        code, text = self.finish(following)
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("step "), STEPS, text)

    # By the contract of the stream itself: after_event_id goes on where a watch broke off.
    def test_a_stream_is_taken_up_without_loss_or_doubles(self):
        job = self.submit("streamed", interval=10)
        seen, steps, kills = [], [], 0
        rows = []
        while not seen or server.state(job) != "JOB_SUCCEEDED" or seen[-1] != \
                server.get(job).events[-1].id:
            try:
                for reply in server.jobs.Watch(m.jobs.WatchRequest(
                        job=str(job), after_event_id=seen[-1] if seen else 0), timeout=DEADLINE):
                    if reply.HasField("event"):
                        self.assertEqual(reply.event.dropped, 0)
                        seen.append(reply.event.id)
                    if reply.HasField("metrics") and kills < 3 and \
                            reply.metrics.step > 30 * (kills + 1):
                        kills += 1
                        restart()
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
