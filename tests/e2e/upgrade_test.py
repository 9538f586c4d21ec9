#!/usr/bin/env python3
"""Databases of every earlier schema, with rows in every table, under today's tandemd: all of it is
there, and jobs go on. And what retention leaves of old jobs."""
import hashlib
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, ROOT, ServerCase, end_processes, link_programs, make_stubs,
                               new_folder, processes, wait_for)

MIGRATIONS = sorted((ROOT / "migrations").glob("*.sql"))
SERIES = ["loss", "grad_norm", "lr", "tokens", "step_ms", "tokens_per_s", "mfu"]
# A curve's rows are in these from the third schema on; a database of an earlier one has them all in
# table metrics.
CHUNKS = ("metric_chunks", "metric_rollups")


def setUpModule():
    global folder, m, programs
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")


def tearDownModule():
    shutil.rmtree(folder, ignore_errors=True)


def columns(db, table, schema="main"):
    return [row[1] for row in db.execute(f'PRAGMA {schema}.table_info("{table}")')]


def indexes(node, names):
    """[0, 1, 3] of "node:0-1,node:3"."""
    out = []
    for run in filter(None, names.split(",")):
        name, _, numbers = run.rpartition(":")
        assert name == node, names
        first, _, last = numbers.partition("-")
        out += range(int(first), int(last or first) + 1)
    return out


def make_old(path, new, version, curves):
    """A database of the schema `version`, with the rows of `new`."""
    db = sqlite3.connect(path)
    db.executescript("PRAGMA journal_mode = WAL; CREATE TABLE migrations (number INTEGER PRIMARY "
                     "KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, applied_us INTEGER NOT NULL) "
                     "STRICT")
    for number, migration in enumerate(MIGRATIONS[:version], 1):
        text = migration.read_text()
        db.executescript(text)
        db.execute("INSERT INTO migrations VALUES (?, ?, ?, 1)",
                   (number, migration.name, hashlib.sha256(text.encode()).hexdigest()))
    db.commit()
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("ATTACH ? AS new", (str(new),))
    tables = [row[0] for row in db.execute(
        "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
    filled = set()
    for table in tables:
        if table == "migrations" or (table == "metrics" and "metric_chunks" not in tables):
            continue
        both = ", ".join(c for c in columns(db, table) if c in columns(db, table, "new"))
        db.execute(f'DELETE FROM main."{table}"')
        db.execute(f'INSERT INTO main."{table}" ({both}) SELECT {both} FROM new."{table}"')
        if db.execute(f'SELECT count(*) FROM main."{table}"').fetchone()[0]:
            filled.add(table)
    if "drains" not in tables:  # one node's devices, by index
        for job, number, node, names in db.execute(
                "SELECT job, number, node, devices FROM main.attempts").fetchall():
            db.execute("UPDATE main.attempts SET devices = ? WHERE job = ? AND number = ?",
                       (",".join(str(i) for i in indexes(node, names)), job, number))
    if "metric_chunks" not in tables:
        for job, rows in curves.items():
            db.executemany(f"INSERT INTO metrics (job, step, attempt, {', '.join(SERIES)}) VALUES "
                           "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                           [(job, step, attempt, *(None if v != v else v for v in values))
                            for step, attempt, *values in rows])
            filled.add("metrics")
    db.commit()
    db.close()
    return set(tables) - {"migrations"} - filled


class Upgrade(ServerCase):
    def setUp(self):
        self.set_up(m, folder, programs)

    def ref(self, job):
        return m.jobs.JobRef(job=str(job))

    def rows(self, job, attempt=0):
        r = self.s.runs.GetMetrics(m.runs.GetMetricsRequest(job=str(job), attempt=attempt),
                                   timeout=DEADLINE)
        self.assertEqual([c.name for c in r.columns], SERIES)
        return list(zip(r.steps, r.attempts, *(c.values for c in r.columns)))

    def thin(self, job):
        return self.s.runs.GetMetrics(m.runs.GetMetricsRequest(job=str(job), points=200,
                                                               series=["loss"]), timeout=DEADLINE)

    def everything(self):
        """All that a client can read of the jobs, but for what the clock changes."""
        admin = m.admin_rpc.AdminStub(self.s.channel)
        jobs = self.s.jobs.List(m.jobs.ListJobsRequest(all=True), timeout=DEADLINE).jobs
        for j in jobs:
            self.assertEqual(j.device_seconds > 0, j.attempt > 0)
            for field in ("device_seconds", "wait_s"):  # to the last microsecond only since 0005
                j.ClearField(field)
        return {"jobs": jobs,
                "curves": [str(self.rows(j.id)) for j in jobs],
                "attempts": [str(self.rows(j.id, attempt=1)) for j in jobs],
                "thin": [self.thin(j.id) for j in jobs],
                "checkpoints": [self.s.checkpoints.List(m.checkpoints.ListCheckpointsRequest(
                    job=str(j.id)), timeout=DEADLINE) for j in jobs],
                "tenants": admin.ListTenants(m.admin.ListTenantsRequest(), timeout=DEADLINE)}

    def events(self, job):
        stream = self.s.jobs.Watch(m.jobs.WatchRequest(job=str(job), after_event_id=0),
                                   timeout=DEADLINE)
        return [(r.event.kind, r.event.to, r.event.message) for r in stream if r.HasField("event")]

    def fill(self):
        """Rows of every table; ids of an ended job, a paused one and one on hold."""
        self.ended = self.s.submit(self.s.spec("ended", steps=3000, interval=1000), key="k1")
        self.s.wait_state(self.ended, "SUCCEEDED")
        self.paused = self.s.submit(self.s.spec("paused", steps=200, tags=["gate=30"], interval=10))
        wait_for("steps", lambda: self.s.get(self.paused).step == 30)
        self.held = self.s.submit(self.s.spec("held", steps=5, devices=4))  # while one is in use
        self.s.jobs.Hold(self.ref(self.held), timeout=DEADLINE)
        self.s.wait_state(self.held, "HELD")
        self.s.jobs.Pause(self.ref(self.paused), timeout=DEADLINE)
        self.s.wait_state(self.paused, "PAUSED")
        admin = m.admin_rpc.AdminStub(self.s.channel)
        admin.CreateUser(m.admin.CreateUserRequest(name="ann", role="member"), timeout=DEADLINE)
        admin.CreateToken(m.admin.CreateTokenRequest(user="ann"), timeout=DEADLINE)
        wait_for("the peak of a device", lambda: self.sql("SELECT count(*) FROM peaks") != [(0,)])

    def stop_alone(self):
        """A tandem-node that is about to leave would wait for the next server."""
        wait_for("no process of a job", lambda: set(processes(programs)) == {self.s.process.pid})
        self.s.stop()
        self.running = False

    def restart(self, *flags, bin_dir=None):
        self.s.log = open(self.s.folder / "tandemd.log", "ab")
        self.s.process = subprocess.Popen(
            [(bin_dir or programs) / "tandemd", "--dev", "--data-dir", self.s.data, "--devices", "4", *flags],
            stdout=self.s.log, stderr=subprocess.STDOUT,
            env={**os.environ, "XDG_CONFIG_HOME": str(self.folder / "config")})
        self.s.connect()
        self.running = True

    def sql(self, text):
        db = sqlite3.connect(self.s.data / "tandem.db", timeout=30)
        rows = db.execute(text).fetchall()
        db.commit()
        db.close()
        return rows

    def check_old(self, version, files, want, curves, events):
        shutil.rmtree(self.s.data)
        shutil.copytree(files, self.s.data)
        (self.s.data / "tandem.db").unlink()
        empty = make_old(self.s.data / "tandem.db", files / "tandem.db", version, curves)
        # A row in every table of that time, but for rows that only the third schema moves there.
        self.assertLessEqual(empty, {*CHUNKS, "metrics", "drains"})
        self.restart()
        have = self.everything()
        for what in want:
            if what == "tenants" and version == 1:
                continue
            self.assertEqual(have[what], want[what], f"schema {version}: {what}")
        self.assertEqual(self.events(self.ended), events)
        self.assertEqual(self.s.submit(self.s.spec("ended", steps=3000, interval=1000), key="k1"),
                         self.ended)
        # Rows of before there were chunks move in the background; nothing changes.
        wait_for("chunks", lambda: self.sql("SELECT count(*) FROM metrics WHERE job = "
                                            f"{self.ended}") == [(0,)])
        self.assertEqual(str(self.rows(self.ended)), want["curves"][-1])
        self.assertEqual(self.thin(self.ended), want["thin"][-1])
        self.s.jobs.Release(self.ref(self.held), timeout=DEADLINE)
        self.s.wait_state(self.held, "SUCCEEDED")
        self.s.jobs.Resume(self.ref(self.paused), timeout=DEADLINE)
        self.s.wait_state(self.paused, "SUCCEEDED")
        self.assertEqual([row[0] for row in self.rows(self.paused)], list(range(1, 201)))
        self.stop_alone()
        self.assertEqual(self.sql("PRAGMA integrity_check"), [("ok",)])
        self.assertEqual(self.sql("PRAGMA foreign_key_check"), [])
        self.assertEqual(self.sql("SELECT max(number) FROM migrations"), [(len(MIGRATIONS),)])
        devices = self.sql("SELECT node, devices, num_devices FROM attempts")
        self.assertTrue(devices)
        for node, names, num in devices:
            self.assertEqual(len(indexes(node, names)), num)

    def test_databases_of_every_earlier_schema_go_on(self):
        self.fill()
        self.stop_alone()
        self.restart()
        want = self.everything()
        curves = {j: self.rows(j) for j in (self.ended, self.paused)}
        events = self.events(self.ended)
        self.assertEqual(len(curves[self.ended]), 3000)
        self.s.stop()
        self.running = False
        files = self.folder / "as-it-was"
        for leftover in ("tandemd.sock",):
            (self.s.data / leftover).unlink(missing_ok=True)
        shutil.copytree(self.s.data, files)
        for version in range(1, len(MIGRATIONS)):
            with self.subTest(schema=version):
                self.check_old(version, files, want, curves, events)

    def change_spec(self, job, change):
        db = sqlite3.connect(self.s.data / "tandem.db", timeout=30)
        spec = m.jobs.JobSpec.FromString(db.execute("SELECT spec FROM specs WHERE job = ?",
                                                    (job,)).fetchone()[0])
        change(spec)
        packed = spec.SerializeToString()
        db.execute("UPDATE specs SET spec = ?, sha256 = ? WHERE job = ?",
                   (packed, hashlib.sha256(packed).digest(), job))
        db.commit()
        db.close()

    # A spec that was stored before a part of it existed lacks what a rank wants to read; one with a
    # word that is no longer taken is refused in words. A gang that runs isn't touched by either.
    def test_specs_of_older_versions_are_filled_in_or_refused(self):
        runs = self.s.submit(self.s.spec("runs", steps=100000, tags=["ms=20"]))
        self.s.wait_state(runs, "RUNNING")
        held = [self.s.spec(name, steps=5) for name in ("older", "strange")]
        for spec in held:
            spec.hold = True
        older, strange = map(self.s.submit, held)
        self.s.stop()
        self.running = False
        for part in ("spikes", "evaluation", "retry"):
            self.change_spec(older, lambda spec: spec.ClearField(part))
            self.change_spec(runs, lambda spec: spec.ClearField(part))
        self.change_spec(strange, lambda spec: setattr(spec.training, "precision", "fp12"))
        real = link_programs(self.folder / "real", "tandem-rank")  # a fake one reads little of a plan
        self.addCleanup(end_processes, real)
        self.restart(bin_dir=real)
        self.assertEqual(self.s.state(runs), "JOB_RUNNING")
        for job in (older, strange):
            self.s.jobs.Release(self.ref(job), timeout=DEADLINE)
        self.s.wait_state(older, "SUCCEEDED")
        self.s.wait_state(strange, "FAILED")
        self.assertIn('this version doesn\'t take its spec: training.precision: "fp12"',
                      self.s.get(strange).message)
        self.assertEqual(self.s.state(runs), "JOB_RUNNING")
        self.s.jobs.Cancel(self.ref(runs), timeout=DEADLINE)
        self.s.wait_state(runs, "CANCELLED")
        wait_for("no process", lambda: not processes(real / "tandem-node"))

    # Retention: a job of long ago keeps the extremes of its curve, bit for bit, and says that the
    # rest is gone; its logs and events are gone; a younger job loses nothing.
    def test_what_is_old_is_thinned_and_removed_and_says_so(self):
        self.fill()
        young = self.s.submit(self.s.spec("young", steps=3000))
        self.s.wait_state(young, "SUCCEEDED")
        thin, rows = self.thin(self.ended), self.rows(young)
        old, new = (self.s.data / f"jobs/{j}/logs" for j in (self.ended, young))
        self.assertTrue(list(old.iterdir()))
        self.stop_alone()
        # Whose folder it is, its tenant's user, could have put a link there to another's logs.
        linked = self.paused
        shutil.rmtree(self.s.data / f"jobs/{linked}/logs")
        (self.s.data / f"jobs/{linked}/logs").symlink_to(new)
        self.sql(f"UPDATE jobs SET ended_us = 1000 WHERE id = {self.ended}")
        self.sql(f"UPDATE jobs SET logs_going = 1 WHERE id = {linked}")
        config = self.folder / "config.yaml"
        config.write_text(f"data_dir: {self.s.data}\n"
                          "retention: {metrics_full_days: 1, events_days: 1, logs_days: 1}\n")
        self.restart("--config", config)
        got = wait_for("thinned", lambda: next(filter(
            lambda r: r.thinned, [self.s.runs.GetMetrics(m.runs.GetMetricsRequest(
                job=str(self.ended)), timeout=DEADLINE)]), None))
        self.assertLess(len(got.steps), 1000)
        self.assertEqual((got.steps[0], got.steps[-1]), (1, 3000))
        wait_for("no logs", lambda: not list(old.iterdir()))
        wait_for("a whole round", lambda: self.sql(
            f"SELECT logs_going, logs_removed_us FROM jobs WHERE id = {self.ended}") == [(0, 1000)])
        self.assertEqual(self.sql(f"SELECT count(*) FROM events WHERE job = {self.ended}"), [(0,)])
        self.assertEqual(self.sql("SELECT count(*) FROM metric_chunks WHERE thinned = 0 AND "
                                  f"job = {self.ended}"), [(0,)])
        lowest = min(zip(thin.columns[0].values, thin.steps))
        self.assertIn(lowest[1], got.steps)
        self.assertEqual(str(self.rows(young)), str(rows))
        self.assertEqual(self.sql(f"SELECT logs_going FROM jobs WHERE id = {linked}"), [(0,)])
        self.assertTrue(list(new.iterdir()))
        self.assertTrue(self.events(young))


if __name__ == "__main__":
    unittest.main(verbosity=2 if "-v" in sys.argv else 1)
