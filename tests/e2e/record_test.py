#!/usr/bin/env python3
"""What a real server recorded, run through the controller again, gives the same events: submits, a
cancel, a killed gang, a pause, a preemption; a server that is killed, and one that is stopped in good order."""
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (BIN, DEADLINE, Server, end_processes, link_programs, make_stubs, new_folder,
                               wait_for)

REPLAY = BIN / "tandem-replay"


def setUpModule():
    global folder, m, programs, server, records
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")
    records = folder / "records"
    server = Server(m, folder, programs)
    server.stop()
    server.args = ["--record", str(records), "--scheduler", "min_run_s=0"]
    server.start()


def tearDownModule():
    end_processes(programs)
    shutil.rmtree(folder, ignore_errors=True)


def replay(number, after):
    return subprocess.run([REPLAY, records / f"record-{number}.log", records / f"record-{number}.db",
                           after], capture_output=True, text=True, timeout=DEADLINE)


class Replayed(unittest.TestCase):
    def test_a_killed_and_a_stopped_server(self):
        ref = lambda job: m.jobs.JobRef(job=str(job))
        first = [server.submit(server.spec(f"first-{i}", steps=30), key=f"key-{i}")
                 for i in range(3)]
        self.assertEqual(server.submit(server.spec("first-0", steps=30), key="key-0"), first[0])
        for job in first:
            server.wait_state(job, "SUCCEEDED")
        stays = server.submit(server.spec("stays", steps=10000000, tags=["ms=2"]))
        server.wait_state(stays, "RUNNING")
        server.kill()

        server.start()
        seen = server.get(stays).step
        wait_for("the gang to be attached again", lambda: server.get(stays).step > seen)
        # A drain moves it; a device is left that it can go on with.
        here = server.cluster.ListNodes(m.cluster.ListNodesRequest(), timeout=DEADLINE).nodes[0].name
        for device in range(3):
            server.cluster.Drain(m.cluster.DrainRequest(node=here, device=device), timeout=DEADLINE)
        wait_for("it to run on the last device", lambda: server.holders()[3] == stays)
        server.cluster.Undrain(m.cluster.DrainRequest(node=here), timeout=DEADLINE)
        m.admin_rpc.AdminStub(server.channel).SetQuota(m.admin.SetQuotaRequest(
            tenant="default", devices=2), timeout=DEADLINE)
        server.jobs.Cancel(ref(stays), timeout=DEADLINE)
        paused = server.submit(server.spec("paused", steps=10000000, tags=["ms=2"]))
        server.wait_state(paused, "RUNNING")
        server.jobs.Pause(ref(paused), timeout=DEADLINE)
        server.wait_state(paused, "PAUSED")
        server.wait_state(stays, "CANCELLED")
        low = server.submit(server.spec("low", steps=10000000, tags=["ms=2"], devices=4))
        server.wait_state(low, "RUNNING")
        high = server.spec("high", steps=20, devices=2)
        high.priority = "high"
        server.wait_state(server.submit(high), "SUCCEEDED")
        wait_for("the victim's next attempt", lambda: server.get(low).attempt == 2)
        server.wait_state(low, "RUNNING")
        server.jobs.Cancel(ref(low), timeout=DEADLINE)
        server.wait_state(low, "CANCELLED")
        meets = server.submit(server.spec("meets", steps=5, tags=["id"], devices=2))
        server.wait_state(meets, "SUCCEEDED")
        wait_for("all devices to be free", lambda: not any(server.holders()))
        self.assertEqual(server.stop(), 0)

        killed = replay(1, records / "record-2.db")
        self.assertEqual(killed.returncode, 0, killed.stdout + killed.stderr)
        stopped = replay(2, server.data / "tandem.db")
        self.assertEqual(stopped.returncode, 0, stopped.stdout + stopped.stderr)
        self.assertNotIn("killed", stopped.stdout)
        print(killed.stdout, stopped.stdout, end="")

        # Against another's end it must not be the same.
        wrong = replay(2, records / "record-1.db")
        self.assertEqual(wrong.returncode, 1, wrong.stdout)

        secrets = [p.read_bytes() for p in folder.rglob("dev-token")] + [b"the-secret-of-a-gang"]
        for log in records.glob("*.log"):
            self.assertEqual(log.stat().st_mode & 0o77, 0)
            for secret in secrets:
                self.assertNotIn(secret.strip(), log.read_bytes())


if __name__ == "__main__":
    unittest.main(verbosity=1)
