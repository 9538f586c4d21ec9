#!/usr/bin/env python3
"""What follows a job outlives the controller: the CLI says that the server is away, finds it again,
and shows each event and each line of a log once; a stream is taken up where it broke off."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, grpc, link_programs, make_stubs, new_folder,
                               processes, wait_for)

STEPS = 150


def setUpModule():
    global folder, m, programs, server
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")
    server = Server(m, folder, programs)


def tearDownModule():
    code = server.stop()
    for pid in processes(programs):
        os.kill(pid, signal.SIGKILL)
    wait_for("no process", lambda: not processes(programs))
    shutil.rmtree(folder, ignore_errors=True)
    assert code == 0


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


if __name__ == "__main__":
    unittest.main(verbosity=1)
