#!/usr/bin/env python3
"""Backups of a live tandemd, and what a restored one may not believe. The numbers in brackets are
those of the scenarios."""
import hashlib
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, ServerCase, gang_processes, grpc, link_programs, make_stubs,
                               new_folder, processes, wait_for)
from leftovers import jobs_processes


def setUpModule():
    global folder, m, programs
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")


def tearDownModule():
    shutil.rmtree(folder, ignore_errors=True)


def loss(n):
    return 10.0 / n + 1.0 / 3.0


class Load:
    """Submissions, lists and curves, over and over, until told to stop."""

    def __init__(self, server, job):
        self.s, self.job, self.errors, self.acked = server, job, [], []
        self.going = True
        self.threads = [threading.Thread(target=self.run, args=(call,))
                        for call in (self.submit, self.submit, self.look, self.curve)]
        for t in self.threads:
            t.start()

    def run(self, call):
        while self.going:
            try:
                call()
            except grpc.RpcError as e:
                self.errors.append(f"{e.code()}: {e.details()}")

    def submit(self):
        spec = self.s.spec("load", steps=1)
        request = m.jobs.SubmitRequest(spec=spec)
        self.acked.append(self.s.jobs.Submit(request, timeout=DEADLINE).job.id)

    def look(self):
        self.s.jobs.List(m.jobs.ListJobsRequest(all=True), timeout=DEADLINE)

    def curve(self):
        self.s.runs.GetMetrics(m.runs.GetMetricsRequest(job=str(self.job), points=100),
                               timeout=DEADLINE)

    def stop(self):
        self.going = False
        for t in self.threads:
            t.join()


class Backup(ServerCase):
    def setUp(self):
        self.set_up(m, folder, programs)

    def backup(self, path=None):
        admin = m.admin_rpc.AdminStub(self.s.channel)
        request = m.admin.BackupRequest(path=str(path)) if path else m.admin.BackupRequest()
        return admin.Backup(request, timeout=DEADLINE)

    def restore(self, path):
        return subprocess.run([programs / "tandemd", "--restore", path, "--data-dir", self.s.data],
                              capture_output=True, text=True, timeout=DEADLINE)

    def stop(self, kill=False):
        self.s.kill() if kill else self.s.stop()
        self.running = False

    def start(self):
        self.s.start()
        self.running = True

    # (32) Backups of one moment each while everything is written; "database is locked" reaches
    # nobody; each restores to what it says.
    def test_a_live_backup_during_writes_restores_to_a_consistent_database(self):
        runner = self.s.submit(self.s.spec("runner", steps=100000))
        wait_for("steps", lambda: self.s.get(runner).step > 1500)
        load = Load(self.s, runner)
        copies = []
        for n in range(2 if os.environ.get("TANDEM_SAMPLE") else 3):
            before = len(load.acked)
            wait_for("submissions", lambda: len(load.acked) > before + 20)
            acked = list(load.acked)
            reply = self.backup(self.folder / f"copy-{n}.db" if n else None)
            copies.append((reply, acked))
        load.stop()
        self.assertEqual(load.errors, [])
        for reply, acked in copies:
            path = pathlib.Path(reply.path)
            data = path.read_bytes()
            self.assertEqual(hashlib.sha256(data).hexdigest(), reply.sha256)
            self.assertEqual(len(data), reply.size_bytes)
            self.assertEqual(path.stat().st_mode & 0o777, 0o600)
            self.assertEqual([p.name for p in path.parent.glob("*.partial*")], [])
            db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            ids = {row[0] for row in db.execute("SELECT id FROM jobs")}
            self.assertEqual(len(ids), reply.num_jobs)
            # What was acknowledged before it began is in it.
            self.assertLessEqual(set(acked), ids)
            # One moment: a job's row and its curve are of the same commit.
            step = db.execute("SELECT step FROM jobs WHERE id = ?", (runner,)).fetchone()[0]
            tail = db.execute("SELECT max(step), count(*) FROM metrics WHERE job = ?",
                              (runner,)).fetchone()
            chunks = db.execute("SELECT coalesce(sum(rows), 0), coalesce(max(last_step), 0) "
                                "FROM metric_chunks WHERE job = ?", (runner,)).fetchone()
            self.assertEqual(step, max(tail[0] or 0, chunks[1]))
            self.assertEqual(step, tail[1] + chunks[0])
            db.close()
        self.assertNotIn("locked", (self.folder / "tandemd.log").read_text())
        self.stop()
        reply, acked = copies[-1]
        done = self.restore(reply.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.start()
        for job in acked[:5] + acked[-5:]:
            self.s.get(job)
        steps = [row[0] for row in self.s.curve(runner)]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))

    def test_a_backup_replaces_nothing_and_a_bad_path_is_refused(self):
        path = self.folder / "there.db"
        path.write_text("mine")
        for bad, code in ((path, grpc.StatusCode.ALREADY_EXISTS),
                          ("relative.db", grpc.StatusCode.INVALID_ARGUMENT),
                          (self.folder / "no/such/x.db", grpc.StatusCode.NOT_FOUND)):
            with self.assertRaises(grpc.RpcError) as caught:
                self.backup(bad)
            self.assertEqual(caught.exception.code(), code, caught.exception.details())
        self.assertEqual(path.read_text(), "mine")
        self.assertEqual(list(self.folder.glob("*.partial*")), [])

    # No name is used again, no gang of a time that the database doesn't know goes on, and no device
    # is given away while one does.
    def test_a_restored_server_trusts_nothing_that_came_after_the_backup(self):
        early = self.s.submit(self.s.spec("early", steps=10000000, tags=["ms=5"], interval=10))
        wait_for("steps", lambda: self.s.get(early).step > 25)
        waiting = self.s.submit(self.s.spec("waiting", steps=3, devices=4))
        self.s.jobs.Hold(m.jobs.JobRef(job=str(waiting)), timeout=DEADLINE)
        copy = self.backup(self.folder / "copy.db").path
        # After the backup: a job that is new, one that ends, one that goes on to attempt 2.
        late = self.s.submit(self.s.spec("late", steps=10000000, tags=["ms=5"]))
        wait_for("steps", lambda: self.s.get(late).step > 3)
        node = wait_for("tandem-node", lambda: [
            p for p, exe in processes(programs).items() if exe.endswith("tandem-node")])
        for pid in node:
            os.kill(pid, signal.SIGKILL)
        wait_for("attempt 2", lambda: self.s.get(early).attempt == 2)
        so_far = max(self.s.get(early).step, 30)
        wait_for("its steps", lambda: self.s.get(early).step > so_far + 20)
        refused = self.restore(copy)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("another tandemd", refused.stderr)
        self.stop(kill=True)
        self.assertTrue(gang_processes(programs))
        done = self.restore(copy)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("processes of jobs were stopped", done.stdout)
        self.assertEqual(gang_processes(programs), {})
        self.start()
        # It went further than the backup knows: a person decides.
        job = self.s.get(early)
        self.assertEqual(job.state, m.jobs.JOB_HELD)
        self.assertIn("went on after the backup", job.message)
        self.assertEqual(self.s.state(waiting), "JOB_HELD")
        self.s.jobs.Release(m.jobs.JobRef(job=str(waiting)), timeout=DEADLINE)
        self.s.wait_state(waiting, "SUCCEEDED")
        with self.assertRaises(grpc.RpcError) as caught:
            self.s.get(late)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        again = self.s.submit(self.s.spec("again", steps=3))
        self.assertGreater(again, late)
        self.s.jobs.Release(m.jobs.JobRef(job=str(early)), timeout=DEADLINE)
        wait_for("a new attempt", lambda: self.s.get(early).attempt > 3)
        wait_for("steps", lambda: self.s.get(early).step > 40)
        self.s.jobs.Cancel(m.jobs.JobRef(job=str(early)), timeout=DEADLINE)
        self.s.wait_state(early, "CANCELLED")
        curve = self.s.curve(early)
        self.assertEqual([row[0] for row in curve], list(range(1, len(curve) + 1)))
        self.assertEqual([row[2] for row in curve], [loss(n) for n in range(1, len(curve) + 1)])
        # The old one is kept, and whole.
        kept = list(self.s.data.glob("tandem.db.before-*Z"))
        self.assertEqual(len(kept), 1)
        for path in (kept[0], self.s.data / "tandem.db"):
            self.assertEqual(path.stat().st_mode & 0o777, 0o600, path)
        db = sqlite3.connect(kept[0])
        self.assertEqual(db.execute("SELECT count(*) FROM jobs").fetchone(), (3,))
        db.close()

    # Not even a gang is stopped for a file that can't be used.
    def test_a_damaged_backup_is_refused_and_nothing_is_replaced(self):
        job = self.s.submit(self.s.spec("one", steps=3000))
        self.s.wait_state(job, "SUCCEEDED")
        runs = self.s.submit(self.s.spec("runs", steps=1000000, tags=["ms=20"]))
        wait_for("steps", lambda: self.s.get(runs).step > 10)
        copy = pathlib.Path(self.backup().path)
        self.stop()
        # That of the first job may still be leaving.
        gang = sorted(jobs_processes(programs, runs))
        whole = copy.read_bytes()
        page = 4096
        for name, data in (("cut.db", whole[:len(whole) // 2]),
                           ("page.db", whole[:3 * page] + b"\xa5" * page + whole[4 * page:]),
                           ("text.db", b"hello" * 1000)):
            bad = self.folder / name
            bad.write_bytes(data)
            done = self.restore(bad)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"nothing was replaced: {bad}, copied", done.stderr)
        gone = self.restore(self.folder / "none.db")
        self.assertIn(f"{self.folder}/none.db: No such file", gone.stderr)
        self.assertEqual([name for name, _ in gang], ["tandem-node", "tandem-rank"])
        self.assertEqual(sorted(jobs_processes(programs, runs)), gang)
        self.assertEqual(list(self.s.data.glob("tandem.db.restore*")), [])
        # A restore that was cut short is told, and can be done again.
        (self.s.data / "restoring").write_text("")
        done = subprocess.run([programs / "tandemd", "--dev", "--data-dir", self.s.data],
                              capture_output=True, text=True, timeout=DEADLINE,
                              env={**os.environ, "XDG_CONFIG_HOME": str(self.folder / "c")})
        self.assertEqual(done.returncode, 1)
        self.assertIn("cut short", done.stderr)
        self.assertEqual(self.restore(copy).returncode, 0)
        self.start()
        self.assertEqual(self.s.state(job), "JOB_SUCCEEDED")
        self.assertEqual(len(self.s.curve(job)), 3000)

    def refused_start(self):
        done = subprocess.run([programs / "tandemd", "--dev", "--data-dir", self.s.data],
                              capture_output=True, text=True, timeout=DEADLINE,
                              env={**os.environ, "XDG_CONFIG_HOME": str(self.folder / "c")})
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    # A number that was acknowledged isn't given out again, whatever became of the database: what
    # lies in the folder of a job is another's otherwise.
    def test_a_database_that_is_older_than_the_folder_is_not_served(self):
        first = self.s.submit(self.s.spec("first", steps=3))
        self.s.wait_state(first, "SUCCEEDED")
        copy = pathlib.Path(self.backup().path)
        second = self.s.submit(self.s.spec("second", steps=3))
        self.s.wait_state(second, "SUCCEEDED")
        wait_for("free devices", lambda: self.s.holders() == [0] * 4)
        self.stop()
        for data in (b"", None, copy.read_bytes()):
            for old in self.s.data.glob("tandem.db*"):
                old.unlink()
            if data is not None:
                (self.s.data / "tandem.db").write_bytes(data)
            said = self.refused_start()
            self.assertIn(f"jobs/{second} is there", said)
            self.assertIn("--restore", said)
        self.assertEqual(self.restore(copy).returncode, 0)
        self.start()
        self.assertEqual(self.s.state(first), "JOB_SUCCEEDED")
        self.assertGreater(self.s.submit(self.s.spec("third", steps=3)), second)

    # Also a restore that was killed between the two renames asks the replaced database what must
    # not come back.
    def test_a_restore_that_is_run_again_still_knows_who_was_shut_out(self):
        admin = m.admin_rpc.AdminStub(self.s.channel)
        admin.CreateUser(m.admin.CreateUserRequest(tenant="default", name="ann"), timeout=DEADLINE)
        copy = self.backup().path
        admin.SetUser(m.admin.SetUserRequest(tenant="default", name="ann", disabled=True),
                      timeout=DEADLINE)
        self.stop()
        aside = self.s.data / "tandem.db.before-20260101T000000Z"
        (self.s.data / "tandem.db").rename(aside)
        (self.s.data / "restoring").write_text(str(aside))
        self.assertIn("cut short", self.refused_start())
        self.assertEqual(self.restore(copy).returncode, 0)
        db = sqlite3.connect(self.s.data / "tandem.db")
        self.assertEqual(db.execute("SELECT disabled FROM users WHERE name = 'ann'").fetchone(), (1,))
        db.close()
        self.assertFalse(aside.exists())
        self.start()


if __name__ == "__main__":
    unittest.main(verbosity=2 if "-v" in sys.argv else 1)
