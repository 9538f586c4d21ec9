#!/usr/bin/env python3
"""Two tenants on four devices: who borrows, who takes back, and what each is told of it. The numbers
in brackets are those of the scenarios that other job servers got wrong."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
from access_bench import DEADLINE, AccessServer, wait_for  # noqa: E402
from bench_of_programs import link_programs, make_stubs, new_folder, put_away  # noqa: E402


def setUpModule():
    global folder, m, s
    folder = new_folder()
    m = make_stubs(folder)
    s = AccessServer(m, folder, link_programs(folder / "bin", "fake_rank"), devices=4,
                     args=["--scheduler", "min_run_s=0", "--scheduler", "fair_share=0"])
    s.make_users()


def tearDownModule():
    put_away(s)


def submit(who, name, devices, priority="normal", steps=100000):
    spec = s.spec(name, steps=steps, devices=devices, tags=["ms=20"])
    spec.priority = priority
    return s.as_user(who, "Jobs").Submit(m.jobs.SubmitRequest(spec=spec), timeout=DEADLINE).job.id


def set_quota(tenant, **fields):
    s.admin.SetQuota(m.admin.SetQuotaRequest(tenant=tenant, **fields), timeout=DEADLINE)


def why(who, job):
    return s.as_user(who, "Jobs").Why(m.jobs.JobRef(job=str(job)), timeout=DEADLINE)


def wait_steps(job, step=3):
    wait_for(f"job {job} to be past step {step}", lambda: s.get(job).step > step)


class Quotas(unittest.TestCase):
    def tearDown(self):
        live = s.jobs.List(m.jobs.ListJobsRequest(page_size=1000), timeout=DEADLINE).jobs
        for job in live:
            s.jobs.Cancel(m.jobs.JobRef(job=str(job.id)), timeout=DEADLINE)
        for job in live:
            s.wait_state(job.id, "CANCELLED", "SUCCEEDED", "FAILED")
        wait_for("free devices", lambda: set(s.holders()) == {0})
        for tenant in ("red", "blue"):
            set_quota(tenant, devices=-1, max_devices=-1)

    def test_what_was_borrowed_is_taken_back_whatever_its_priority(self):
        """[20] Of the borrower's jobs the one beyond its quota, not the one within."""
        set_quota("red", devices=2)
        set_quota("blue", devices=2)
        own = submit("mia", "own", 2, "low")
        s.wait_state(own, "RUNNING")
        borrowed = submit("mia", "borrowed", 2, "low")
        for job in (own, borrowed):
            wait_steps(job)
        back = submit("bob", "back", 2, "low", steps=20)
        s.wait_state(back, "SUCCEEDED")
        self.assertEqual((0, 1), (s.get(own).evictions, s.get(borrowed).evictions))
        # Whose job it was is the other tenant's alone.
        stop = [e for e in s.get(borrowed).events if e.to == m.jobs.JOB_STOPPING][0]
        self.assertEqual("gives its 2 devices to a job of another tenant", stop.message)
        wait_for("it to borrow again", lambda: s.get(borrowed).attempt == 2)

    def test_who_is_within_its_quota_is_safe_from_others_priority(self):
        set_quota("red", devices=4)
        own = submit("mia", "own", 4, "low")
        wait_steps(own)
        high = submit("bob", "high", 2, "high")
        self.assertEqual([-1], list(why("bob", high).holders))
        wait_steps(own, s.get(own).step + 5)
        self.assertEqual(("JOB_QUEUED", 0), (s.state(high), s.get(own).evictions))
        s.jobs.Cancel(m.jobs.JobRef(job=str(high)), timeout=DEADLINE)
        mine = submit("mia", "mine", 4, "normal", steps=5)
        s.wait_state(mine, "SUCCEEDED")  # of the same tenant: priority decides
        self.assertEqual(1, s.get(own).evictions)

    def test_13_a_quota_lowered_under_use_blocks_starts_and_stops_nothing(self):
        """[13]"""
        first = submit("mia", "first", 2)
        wait_steps(first)
        set_quota("red", devices=1, max_devices=1)
        self.assertRegex(why("mia", first).reasons[0], r"^RUNNING, step \d+ of 100000$")
        second = submit("mia", "second", 1)
        words = why("mia", second).reasons[0]
        # What the tenant may never hold is taken, and told at once.
        r = s.as_user("mia", "Jobs").Submit(m.jobs.SubmitRequest(
            spec=s.spec("large", devices=2), dry_run=True), timeout=DEADLINE)
        self.assertIn("tenant red may hold at most 1 device: it waits until that is raised",
                      list(r.plan.notes))
        self.assertIn("tenant red holds 2 of at most 1 (over by 1)", words)
        other = submit("bob", "other", 2, steps=20)
        s.wait_state(other, "SUCCEEDED")
        self.assertEqual(("JOB_RUNNING", 0), (s.state(first), s.get(first).evictions))
        self.assertEqual("JOB_QUEUED", s.state(second))
        s.kill()
        s.start()
        self.assertIn("over by 1", why("mia", second).reasons[0])
        set_quota("red", devices=-1, max_devices=-1)
        s.wait_state(second, "RUNNING")


if __name__ == "__main__":
    unittest.main(verbosity=1)
