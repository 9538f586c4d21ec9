#!/usr/bin/env python3
"""[35] A thousand watchers of one job, and hundreds across several: each gets all that it should.
Watchers that don't read lose samples, are told how many, and cost nobody else anything."""
import asyncio
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, grpc, link_programs, make_stubs, new_folder,
                               put_away, wait_for)

SMALL = bool(os.environ.get("TANDEM_SAMPLE"))
WATCHERS = 200 if SMALL else 1000
CHANNELS = 4
STEPS = 25
GROWTH_MAX = (1000 if SMALL else 300) << 20


def setUpModule():
    global folder, m, programs, server
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")
    server = Server(m, folder, programs, devices=8)


def tearDownModule():
    put_away(server)


def rss():
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


class Watchers(unittest.TestCase):
    def submit(self, name, steps=STEPS, tags=()):
        return server.submit(server.spec(name, steps=steps, tags=list(tags)))

    async def watch(self, stub, job, opened):
        """What a watcher of one job saw until the job's end: ids of events, steps, dropped."""
        events, steps, dropped, last = [], [], 0, None
        stream = stub.Watch(m.jobs.WatchRequest(job=str(job), after_event_id=0), timeout=4 * DEADLINE)
        async for reply in stream:
            if not steps and not events:
                opened()
            if reply.HasField("event"):
                dropped += reply.event.dropped
                if reply.event.kind != "dropped":
                    events.append(reply.event.id)
                    last = reply.event.to
            if reply.HasField("metrics"):
                steps.append(reply.metrics.step)
        return job, events, steps, dropped, last

    async def watch_all(self, jobs, watchers):
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(f"unix:{server.data}/tandemd.sock", options=options)
                    for _ in range(CHANNELS)]
        stubs = [m.jobs_rpc.JobsStub(c) for c in channels]
        num_open = 0

        def opened():
            nonlocal num_open
            num_open += 1
        tasks = [asyncio.create_task(self.watch(stubs[n % CHANNELS], jobs[n % len(jobs)], opened))
                 for n in range(watchers)]
        while num_open < watchers and not any(t.done() for t in tasks):
            await asyncio.sleep(0.01)
        print(f"{watchers} watchers are there", flush=True)
        (server.data / "go").touch()
        seen = await asyncio.gather(*tasks)
        for c in channels:
            await c.close()
        return seen

    def check(self, jobs, watchers):
        blocker = server.submit(self.whole("blocker"))
        server.wait_state(blocker, "RUNNING")
        ids = [self.submit(f"{self.id()[-10:]}-{n}", tags=["ms=5"]) for n in range(jobs)]

        async def run():
            loop = asyncio.get_running_loop()
            watching = asyncio.create_task(self.watch_all(ids, watchers))
            await loop.run_in_executor(None, lambda: wait_for(
                "the watchers", lambda: (server.data / "go").exists() or watching.done(),
                seconds=4 * DEADLINE))
            server.jobs.Cancel(m.jobs.JobRef(job=str(blocker)), timeout=DEADLINE)
            return await watching
        seen = asyncio.run(run())
        (server.data / "go").unlink()
        self.assertEqual(len(seen), watchers)
        for job in ids:
            wanted = [e.id for e in server.get(job).events]
            for _, events, steps, dropped, last in (s for s in seen if s[0] == job):
                self.assertEqual(events, wanted)
                self.assertEqual(steps, list(range(1, STEPS + 1)))
                self.assertEqual((dropped, last), (0, m.jobs.JOB_SUCCEEDED))

    def whole(self, name):
        spec = server.spec(name, devices=8, tags=["wait=10000000"])
        spec.training.global_batch_size = 8
        return spec

    def test_a_thousand_of_one_job(self):
        self.check(1, WATCHERS)

    def test_hundreds_across_jobs(self):
        self.check(5, WATCHERS // 4)

    # Two hundred that don't read beside one that does: it sees every step, they are told what they
    # lost to the last sample, and the server holds no more than their queues.
    def test_that_do_not_read(self):
        steps = 20000
        before = rss()
        job = self.submit("slow", steps=steps, tags=["gate=0"])
        metrics = m.runs.WatchMetricsRequest(job=str(job))
        slow = [server.runs.WatchMetrics(metrics, timeout=4 * DEADLINE) for _ in range(200)]
        for stream in slow:
            stream.initial_metadata()  # it is open from here on
        server.wait_state(job, "RUNNING")
        server.allow(job, "gate-0")
        reader = server.jobs.Watch(m.jobs.WatchRequest(job=str(job), metrics=False),
                                   timeout=4 * DEADLINE)
        moves = [r.event.to for r in reader if r.HasField("event")]
        self.assertEqual(moves[-1], m.jobs.JOB_SUCCEEDED)
        self.assertLess(rss() - before, GROWTH_MAX)
        for stream in slow[:3]:
            rows, lost, last = 0, 0, 0
            for reply in stream:
                lost += reply.dropped
                if reply.HasField("metrics"):
                    self.assertGreater(reply.metrics.step, last)
                    last = reply.metrics.step
                    rows += 1
            self.assertGreater(lost, 0)
            self.assertEqual(rows + lost, steps)
        for stream in slow:
            stream.cancel()


if __name__ == "__main__":
    unittest.main(verbosity=1)
