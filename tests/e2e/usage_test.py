#!/usr/bin/env python3
"""Who had how much: device-seconds of attempts add up to those of jobs, of tenants and of the cluster,
to the microsecond, whatever became of the jobs and the controller meanwhile. Quotas, and who sees
what of all this. The numbers in brackets are those of the scenarios that other job servers got
wrong."""
import os
import sqlite3
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(__file__))
from access_bench import DEADLINE, AccessServer, Code, outcome, wait_for  # noqa: E402
from bench_of_programs import link_programs, make_stubs, new_folder, put_away  # noqa: E402

DAY = 86400 * 1000000
SLOW = ["ms=50"]
TIME = "[0-9][0-9.dhms]*"  # "1.5s", "2m03s"


def micros(seconds):
    """Exact for as long as tests take: a double has 53 bits."""
    return round(seconds * 1e6)


def setUpModule():
    global folder, m, s
    folder = new_folder()
    m = make_stubs(folder)
    # A second section of the config file, behind the limits.
    s = AccessServer(m, folder, link_programs(folder / "bin", "fake_rank"), devices=4,
                     limits="auth_failures_per_min: 100000}\nscheduler: {min_run_s: 0, aging_per_h: 0")
    s.make_users()


def tearDownModule():
    put_away(s)


def submit(who, name, **fields):
    return s.as_user(who, "Jobs").Submit(m.jobs.SubmitRequest(spec=s.spec(name, **fields))).job.id


def usage(who="ada", **fields):
    return s.as_user(who, "Admin").GetUsage(m.admin.GetUsageRequest(**fields))


def by_tenant(**fields):
    return {u.tenant: u for u in usage(**fields).usage}


def set_quota(tenant, who="ada", **fields):
    return s.as_user(who, "Admin").SetQuota(m.admin.SetQuotaRequest(tenant=tenant, **fields))


def rows(sql, *args):
    with sqlite3.connect(f"file:{s.data}/tandem.db?mode=ro", uri=True, timeout=DEADLINE) as db:
        return db.execute(sql, args).fetchall()


def all_ended():
    return rows("SELECT count(*) FROM jobs WHERE state < 7")[0][0] == 0 and \
        rows("SELECT count(*) FROM attempts WHERE condition < 5")[0][0] == 0


def cancel_all():
    for job, in rows("SELECT id FROM jobs WHERE state < 7"):
        s.jobs.Cancel(m.jobs.JobRef(job=str(job)), timeout=DEADLINE)
    wait_for("all jobs to end", all_ended)


def tandem(*args):
    return subprocess.run([s.programs / "tandem", *args, "--server", f"unix:{s.data}/tandemd.sock"],
                          capture_output=True, text=True, timeout=DEADLINE,
                          env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(folder),
                               "XDG_CONFIG_HOME": str(folder / "none")})


class Sums(unittest.TestCase):
    def check_books(self):
        """[10] Attempts, jobs, tenants, the cluster: one sum, from the rows and as it is told."""
        cancel_all()
        attempts = rows("SELECT job, num_devices, created_us, gone_us, device_us, tenant "
                        "FROM attempts")
        of_job, of_tenant = {}, {"default": 0, "red": 0, "blue": 0}
        for job, devices, created, gone, device_us, tenant in attempts:
            self.assertGreaterEqual(gone, created)
            self.assertEqual(device_us, devices * (gone - created))
            of_job[job] = of_job.get(job, 0) + device_us
            of_tenant[tenant] += device_us
        for job in of_job:
            j = s.get(job)
            self.assertEqual(micros(j.device_seconds), of_job[job])
            self.assertEqual(sum(micros(a.device_seconds) for a in j.attempts), of_job[job])
            self.assertEqual(len(j.attempts), j.attempt)
        whole = usage(from_us=0)
        self.assertEqual({u.tenant: micros(u.device_seconds) for u in whole.usage}, of_tenant)
        jobs = usage(from_us=0, by_job=True)
        self.assertEqual({u.job_id: micros(u.device_seconds) for u in jobs.usage}, of_job)
        listed = s.as_user("ada", "Jobs").List(m.jobs.ListJobsRequest(all=True, page_size=1000)).jobs
        self.assertEqual({j.id: micros(j.device_seconds) for j in listed if j.attempt}, of_job)
        self.assertEqual(sum(u.attempts for u in whole.usage), len(attempts))
        self.assertEqual(sum(u.jobs for u in whole.usage), len(of_job))
        # Two times that meet are one.
        middle = (min(a[2] for a in attempts) + max(a[3] for a in attempts)) // 2
        first, second = by_tenant(from_us=0, to_us=middle), by_tenant(from_us=middle)
        for tenant, total in of_tenant.items():
            self.assertEqual(micros(first[tenant].device_seconds) +
                             micros(second[tenant].device_seconds), total)
        return of_tenant

    def test_10_device_seconds_add_up_whatever_becomes_of_jobs(self):
        """[10] Finished, died and restarted, paused and resumed, cancelled while running and queued."""
        done = [submit("mia", "done", devices=2), submit("bob", "done", devices=4)]
        dies = submit("mia", "dies", steps=12, interval=5, tags=["die=7"], max_restarts=2,
                      first_backoff_s=0.01)
        paused = submit("bob", "paused", steps=100000, devices=2, tags=SLOW)
        for job in done:
            s.wait_state(job, "SUCCEEDED")
        s.wait_state(dies, "SUCCEEDED", "FAILED")
        s.wait_state(paused, "RUNNING")
        s.jobs.Pause(m.jobs.JobRef(job=str(paused)), timeout=DEADLINE)
        s.wait_state(paused, "PAUSED")
        s.jobs.Resume(m.jobs.JobRef(job=str(paused)), timeout=DEADLINE)
        s.wait_state(paused, "RUNNING")
        waits = submit("bob", "waits", devices=4)
        s.wait_state(waits, "QUEUED")
        before = s.get(paused).device_seconds
        wait_for("time to count while it runs", lambda: s.get(paused).device_seconds > before)
        self.check_books()
        self.assertGreater(len(s.get(paused).attempts), 1)
        self.assertEqual(s.get(waits).device_seconds, 0)
        self.assertGreater(s.get(waits).wait_s, 0)

    def test_10_device_seconds_survive_a_killed_controller(self):
        """[10][34] Of an attempt that one controller made and another saw end, all is counted, once."""
        runs = submit("mia", "runs-on", steps=100000, devices=2, tags=SLOW)
        s.wait_state(runs, "RUNNING")
        before = self.device_us(runs)
        for kill in (True, False):
            s.kill() if kill else s.stop()
            time.sleep(0.3)  # that passes while there is no controller: it counts all the same
            s.start()
            wait_for("it to be attached again", lambda: s.state(runs) == "JOB_RUNNING")
        self.assertGreaterEqual(self.device_us(runs) - before, 2 * 600000)
        held = {t.name: t.devices_in_use for t in s.admin.ListTenants(
            m.admin.ListTenantsRequest(), timeout=DEADLINE).tenants}
        self.assertEqual(held, {"default": 0, "red": 2, "blue": 0})
        books = self.check_books()
        s.kill()
        s.start()
        self.assertEqual(self.check_books(), books)

    def test_borrowed_time_and_evictions_are_told_apart(self):
        """[10] What was started beyond the quota is borrowed time; who gave way, and how often."""
        for tenant in ("red", "blue"):
            set_quota(tenant, devices=2)
        before = by_tenant(from_us=0)["red"]
        own = submit("mia", "own", steps=100000, devices=2, tags=SLOW)
        s.wait_state(own, "RUNNING")
        more = submit("mia", "more", steps=100000, devices=2, tags=SLOW, interval=5)
        s.wait_state(more, "RUNNING")
        wait_for("a checkpoint", lambda: s.get(more).step > 5)
        self.assertEqual((s.get(own).borrowed, s.get(more).borrowed), (False, True))
        red = by_tenant()["red"]
        self.assertEqual((red.devices_in_use, red.devices_borrowed, red.quota.devices), (4, 2, 2))
        theirs = submit("bob", "theirs", steps=100000, devices=2, tags=SLOW)
        s.wait_state(theirs, "RUNNING")
        j = s.get(more)
        self.assertEqual((j.state, j.evictions), (m.jobs.JOB_QUEUED, 1), j)
        self.assertEqual([(a.borrowed, a.evicted) for a in j.attempts], [(True, True)])
        self.assertIn("evicted", tandem("show", str(more)).stdout)
        self.check_books()
        red = by_tenant(from_us=0)["red"]
        # While all are cancelled it may begin once more, with devices of its own tenant's.
        held = sum(micros(a.device_seconds) for a in s.get(more).attempts if a.borrowed)
        self.assertEqual(red.evictions - before.evictions, 1)
        self.assertEqual(micros(red.borrowed_device_seconds) - micros(before.borrowed_device_seconds),
                         held)
        for tenant in ("red", "blue"):
            set_quota(tenant, devices=-1)

    @staticmethod
    def device_us(job):
        return micros(s.get(job).device_seconds)


class Quotas(unittest.TestCase):
    def tearDown(self):
        for tenant in ("red", "blue"):
            set_quota(tenant, devices=-1, max_devices=-1, weight=1)
        cancel_all()

    def test_quotas_are_kept_audited_and_shown(self):
        t = set_quota("red", devices=3, max_devices=4, weight=2.5)
        self.assertEqual((t.quota.devices, t.quota.max_devices, t.quota.weight), (3, 4, 2.5))
        self.assertEqual(set_quota("red", devices=2).quota.max_devices, 4)
        s.kill()
        s.start()
        t = [t for t in s.admin.ListTenants(m.admin.ListTenantsRequest()).tenants
             if t.name == "red"][0]
        self.assertEqual((t.quota.devices, t.quota.max_devices, t.quota.weight), (2, 4, 2.5))
        audit = s.admin.ListAudit(m.admin.ListAuditRequest(method="Admin/SetQuota")).rows
        self.assertEqual(audit[0].object, "tenant red: quota 2, max 4, weight 2.5")

    def test_what_makes_no_sense_is_refused(self):
        """[12] Sizes near 2^63 or negative, weights that are none."""
        set_quota("red", devices=8, max_devices=8)
        big = 2 ** 63 - 1
        for fields in (dict(), dict(devices=-2), dict(devices=131073), dict(devices=big),
                       dict(max_devices=-big - 1), dict(weight=0), dict(weight=-1), dict(weight=1e-300),
                       dict(weight=float("nan")), dict(weight=float("inf")), dict(weight=1e7),
                       dict(max_devices=7), dict(devices=9)):
            code, words = outcome(lambda: set_quota("red", **fields))
            self.assertEqual(code, Code.INVALID_ARGUMENT, (fields, words))
        self.assertEqual(outcome(lambda: set_quota("nobody", devices=1)),
                         (Code.NOT_FOUND, "there is no tenant nobody"))
        for who in ("vera", "mia", "tara"):
            self.assertEqual(outcome(lambda: set_quota("red", who, devices=1))[0],
                             Code.PERMISSION_DENIED)

    def test_13_a_quota_lowered_under_use_stops_nothing(self):
        """[13] What runs stays; the display says by how much it is over."""
        job = submit("mia", "stays", steps=100000, devices=4, tags=SLOW)
        s.wait_state(job, "RUNNING")
        t = set_quota("red", devices=1, max_devices=1)
        self.assertEqual((t.devices_in_use, t.devices_borrowed), (4, 3))
        self.assertIn("over by 3", tandem("admin", "quota", "ls").stdout)
        step = s.get(job).step
        wait_for("it to go on", lambda: s.get(job).step > step)
        self.assertEqual(s.get(job).attempt, 1)
        shown = tandem("admin", "quota", "set", "red", "--weight", "2").stdout
        self.assertIn("holds 4, over by 3", shown)
        many = tandem("admin", "quota", "set", "blue", "--devices", "4", "--max", "none")
        self.assertIn("the quotas are 5 devices, the cluster has 4", many.stderr)


class Sight(unittest.TestCase):
    """[14]"""

    def test_14_a_tenant_sees_its_own_use_and_no_totals(self):
        submit("bob", "blues", steps=100000, devices=2, tags=SLOW)
        job = submit("mia", "reds", steps=100000, devices=1, tags=SLOW)
        s.wait_state(job, "RUNNING")
        for who in ("vera", "mia", "tara"):
            for by_job in (False, True):
                r = usage(who, by_job=by_job)
                self.assertEqual({u.tenant for u in r.usage}, {"red"})
                self.assertFalse(r.HasField("num_used") or r.HasField("utilisation"))
                self.assertEqual((r.num_devices, r.num_queued), (4, 0))
            asked = [outcome(lambda: usage(who, tenant=t)) for t in ("blue", "none")]
            self.assertEqual([code for code, _ in asked], 2 * [Code.PERMISSION_DENIED])
            self.assertEqual(asked[0][1].replace("blue", "none"), asked[1][1])
        r = usage()
        self.assertEqual(r.num_used, 3)
        self.assertGreater(r.utilisation, 0)
        self.assertEqual(outcome(lambda: usage(tenant="none"))[0], Code.NOT_FOUND)
        cancel_all()

    def test_the_queue_is_listed_by_turn(self):
        holder = submit("mia", "holder", steps=100000, devices=4, tags=SLOW)
        s.wait_state(holder, "RUNNING")
        first, second, third = (submit(who, "waits", devices=4) for who in ("mia", "bob", "mia"))
        s.jobs.SetPriority(m.jobs.SetPriorityRequest(job=str(third), priority=501), timeout=DEADLINE)

        def queue(who, size=100):
            r = s.as_user(who, "Jobs").List(m.jobs.ListJobsRequest(by_turn=True, page_size=size))
            self.assertEqual(r.next_before_id, 0)
            return [j.id for j in r.jobs]
        self.assertEqual(queue("ada"), [third, first, second])
        self.assertEqual(queue("ada", 2), [third, first])
        self.assertEqual(queue("vera"), [third, first])
        self.assertEqual(queue("bob"), [second])
        cancel_all()

    def test_times_that_make_no_sense_are_refused(self):
        now = int(time.time() * 1e6)
        for fields in (dict(from_us=now, to_us=now - 1), dict(from_us=-1), dict(from_us=now + DAY),
                       dict(to_us=-5)):
            self.assertEqual(outcome(lambda: usage(**fields))[0], Code.INVALID_ARGUMENT, fields)
        r = usage(from_us=now - DAY, to_us=now + DAY)
        self.assertLess(r.to_us, now + DAY)

    def test_the_verbs_show_it(self):
        job = submit("mia", "shown", steps=100000, devices=2, tags=SLOW)
        s.wait_state(job, "RUNNING")
        wait_for("a step", lambda: s.get(job).step > 0)
        late = submit("bob", "late", devices=4)
        top = tandem("top", "-n", "1").stdout
        self.assertRegex(top, r"4 devices: 2 in use, 2 free; 1 running, 1 queued")
        # A device that is drained while it is used isn't one less that is free.
        device = s.get(job).device_names[0]
        self.assertIn("(dust)", tandem("drain", device, "--let-finish", "-r", "dust").stdout)
        self.assertRegex(tandem("top", "-n", "1").stdout,
                         r"4 devices: 2 in use, 2 free, 1 drained; 1 running, 1 queued")
        self.assertIn(f"{device} takes jobs: 1 of 1 device", tandem("undrain", device).stdout)
        self.assertRegex(top, rf"{job} +shown +red +RUNNING +2 ")
        self.assertRegex(top, rf"{late} +late +blue +4 ")
        shown = tandem("show", str(job)).stdout
        self.assertRegex(shown, r"devices +2\n .*\[0 1 \. \.\]")
        self.assertRegex(shown, rf"use +{TIME} of device-time, waited")
        self.assertRegex(shown, r"ATTEMPT +STARTED +FOR +WAITED +FROM_STEP +DEVICE_TIME +ON")
        cancel_all()
        table = tandem("usage", "--days", "2").stdout
        self.assertRegex(table, r"from .* to .*; 4 devices, 0 in use now; utilisation [0-9.]+%")
        self.assertRegex(table, rf"red +{TIME} ")
        line = [r.split(",") for r in tandem("usage", "-j", "-o", "csv").stdout.splitlines()]
        self.assertEqual(line[0][:4], ["id", "name", "tenant", "device_time"])
        mine = [r for r in line if r[0] == str(job)][0]
        self.assertEqual(float(mine[3]), round(s.get(job).device_seconds, 6))
        self.assertEqual(tandem("usage", "--days", "0").returncode, 2)


if __name__ == "__main__":
    unittest.main()
