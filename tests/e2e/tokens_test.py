#!/usr/bin/env python3
"""Tokens from their making to their end, what admins may do to each other, the audit, and the limits
of one caller, against a real tandemd."""
import concurrent.futures
import os
import re
import shutil
import sqlite3
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(__file__))
from access_bench import (DEADLINE, USERS, AccessServer, Code, outcome,  # noqa: E402
                          programs_with_tickets, wait_for)
from bench_of_programs import end_processes, make_stubs, new_folder  # noqa: E402


def setUpModule():
    global folder, m, programs
    folder = new_folder()
    m = make_stubs(folder)
    programs = programs_with_tickets(folder / "bin")


def tearDownModule():
    shutil.rmtree(folder, ignore_errors=True)


class Case(unittest.TestCase):
    limits = "auth_failures_per_min: 100000"

    def setUp(self):
        self.folder = folder / self.id().rsplit(".", 1)[1][:24]
        self.folder.mkdir()
        self.s = AccessServer(m, self.folder, programs, limits=self.limits)
        self.s.make_users()

    def tearDown(self):
        code = self.s.stop()
        end_processes(programs)
        if code != 0:
            print((self.folder / "tandemd.log").read_text()[-4000:], file=sys.stderr)
        self.assertEqual(code, 0)

    def admin(self, who):
        return self.s.as_user(who, "Admin")

    def info(self, who):
        return outcome(lambda: self.admin(who).GetServerInfo(m.admin.ServerInfoRequest()))[0]

    def refused(self, code, call, request):
        got, words = outcome(lambda: call(request))
        self.assertEqual(got, code, words)
        return words

    def audit(self, **fields):
        return self.s.admin.ListAudit(m.admin.ListAuditRequest(limit=1000, **fields),
                                      timeout=DEADLINE).rows

    def tokens(self, **fields):
        return self.s.admin.ListTokens(m.admin.ListTokensRequest(limit=1000, **fields),
                                       timeout=DEADLINE).tokens


class Tokens(Case):
    def test_a_token_survives_a_restart_and_its_end_does_too(self):
        s = self.s
        s.make_token("mia", as_="revoked")
        s.make_token("mia", as_="expired", ttl_s=1)
        s.admin.RevokeToken(m.admin.RevokeTokenRequest(id=s.ids["revoked"]))
        wait_for("it to expire", lambda: self.info("expired") == Code.UNAUTHENTICATED)
        s.kill()
        s.start()
        self.assertEqual(self.info("mia"), Code.OK)
        for name in ("revoked", "expired"):
            self.assertEqual(self.info(name), Code.UNAUTHENTICATED)

    def test_a_token_that_was_seen_to_expire_stays_so_whatever_the_clock_says(self):
        """[34] As if the clock had been set back: the row is younger than its end again."""
        s = self.s
        s.make_token("mia", as_="expired", ttl_s=1)

        def written():
            return [t for t in self.tokens() if t.id == s.ids["expired"]] == []
        wait_for("it to be written down", lambda: self.info("expired") != Code.OK and written())
        s.kill()
        db = sqlite3.connect(s.data / "tandem.db")
        db.execute("UPDATE tokens SET expires_us = expires_us + 3600000000 WHERE id = ?",
                   (s.ids["expired"],))
        db.commit()
        db.close()
        s.start()
        self.assertEqual(self.info("expired"), Code.UNAUTHENTICATED)

    def test_a_rotated_token_is_good_for_its_grace(self):
        s = self.s
        at_once = self.admin("mia").RotateToken(m.admin.RotateTokenRequest(id=s.ids["mia"]))
        self.assertEqual(self.info("mia"), Code.UNAUTHENTICATED)
        s.ids["mia"], s.secrets["mia"] = at_once.token.id, at_once.secret
        self.assertEqual(self.info("mia"), Code.OK)
        for grace_s in (1, 4, 16, 64):  # until it is long enough to be seen
            rotated, s.secrets["old"] = s.ids["mia"], s.secrets["mia"]
            begin = time.monotonic()
            later = self.admin("mia").RotateToken(
                m.admin.RotateTokenRequest(id=rotated, grace_s=grace_s))
            s.ids["mia"], s.secrets["mia"] = later.token.id, later.secret
            old = self.info("old")
            if old == Code.OK or time.monotonic() - begin < grace_s:
                break
        self.assertEqual((old, self.info("mia")), (Code.OK, Code.OK))
        self.assertEqual(later.token.user, "mia")
        wait_for("the grace to end", lambda: self.info("old") == Code.UNAUTHENTICATED)
        self.assertEqual(self.info("mia"), Code.OK)
        words = self.refused(Code.FAILED_PRECONDITION, s.admin.RotateToken,
                             m.admin.RotateTokenRequest(id=rotated))
        self.assertIn("has expired", words)

    def test_secrets_are_written_nowhere(self):
        s = self.s
        for who in USERS:
            if who in s.secrets:
                self.info(who)
        s.secrets["mia"] = self.admin("mia").RotateToken(
            m.admin.RotateTokenRequest(id=s.ids["mia"])).secret
        s.secrets["guess"] = "tnd_" + "ab" * 32
        self.assertEqual(self.info("guess"), Code.UNAUTHENTICATED)
        wait_for("the refusal to be written down",
                 lambda: [r for r in self.audit() if r.result.startswith("denied")])
        s.stop()
        files = [p for p in self.folder.rglob("*") if p.is_file()]
        self.assertTrue([p for p in files if p.name == "tandem.db"])
        for path in files:
            text = path.read_bytes()
            for who, secret in s.secrets.items():
                self.assertNotIn(secret[14:].encode(), text, (path, who))
        s.start()

    def test_lists_show_what_the_caller_may_see(self):
        s = self.s
        own = self.admin("mia").ListTokens(m.admin.ListTokensRequest()).tokens
        self.assertEqual({t.user for t in own}, {"mia"})
        self.assertTrue(s.secrets["mia"].startswith(own[0].prefix) and len(own[0].prefix) == 10)
        red = self.admin("tara").ListTokens(m.admin.ListTokensRequest()).tokens
        self.assertEqual({t.user for t in red}, {"vera", "mia", "max", "tara"})
        every = self.admin("ada").ListTokens(m.admin.ListTokensRequest()).tokens
        self.assertEqual({t.tenant for t in every}, {"red", "blue", "default"})
        named = self.admin("ada").ListTokens(m.admin.ListTokensRequest(user="mia")).tokens
        self.assertEqual({(t.user, t.tenant) for t in named}, {("mia", "red")})
        for method, request in (("ListTokens", m.admin.ListTokensRequest(tenant="rde")),
                                ("ListUsers", m.admin.ListUsersRequest(tenant="rde"))):
            words = self.refused(Code.NOT_FOUND, getattr(self.admin("ada"), method), request)
            self.assertEqual(words, "there is no tenant rde")
        page = self.admin("ada").ListTokens(m.admin.ListTokensRequest(limit=2)).tokens
        rest = self.admin("ada").ListTokens(m.admin.ListTokensRequest(after_id=page[-1].id)).tokens
        self.assertEqual([t.id for t in page] + [t.id for t in rest], [t.id for t in every])
        self.assertEqual([t.name for t in self.admin("tara").ListTenants(
            m.admin.ListTenantsRequest()).tenants], ["red"])
        users = self.admin("tara").ListUsers(m.admin.ListUsersRequest(after="max")).users
        self.assertEqual([u.name for u in users], ["mia", "tara", "vera"])
        words = self.refused(Code.PERMISSION_DENIED, self.admin("mia").ListTokens,
                             m.admin.ListTokensRequest(user="max"))
        self.assertIn("user:", words)

    def test_the_last_use_is_known_to_the_minute(self):
        before = time.time_ns() // 1000
        self.info("mia")
        after = time.time_ns() // 1000
        used = wait_for("the use to be written down", lambda: [
            t.last_used_us for t in self.tokens() if t.id == self.s.ids["mia"] and t.last_used_us])
        minute = 60_000_000
        self.assertIn(used[0], (before // minute * minute, after // minute * minute))


class Admins(Case):
    def test_nobody_gives_more_than_it_has(self):
        a = m.admin
        tara = self.admin("tara")
        s = self.s
        s.admin.CreateUser(a.CreateUserRequest(name="boss", tenant="red", role="admin"))
        s.make_token("boss", tenant="red")
        for call, request in (
                (tara.CreateUser, a.CreateUserRequest(name="up", role="admin")),
                (tara.SetUser, a.SetUserRequest(name="tara", role="admin")),
                (tara.SetUser, a.SetUserRequest(name="boss", disabled=True)),
                (tara.CreateToken, a.CreateTokenRequest(user="boss")),
                (tara.RotateToken, a.RotateTokenRequest(id=s.ids["boss"])),
                (tara.RevokeToken, a.RevokeTokenRequest(id=s.ids["boss"])),
                (self.admin("mia").CreateToken, a.CreateTokenRequest(user="max")),
                (self.admin("mia").CreateToken, a.CreateTokenRequest(ttl_s=0))):
            self.refused(Code.PERMISSION_DENIED, call, request)
        self.refused(Code.NOT_FOUND, self.admin("mia").RevokeToken,
                     a.RevokeTokenRequest(id=s.ids["max"]))
        self.assertEqual((self.info("boss"), self.info("max")), (Code.OK, Code.OK))

    def test_nobody_shuts_itself_out_and_the_operator_always_gets_in(self):
        a = m.admin
        ada, tara = self.admin("ada"), self.admin("tara")
        for call, request in ((ada.SetUser, a.SetUserRequest(name="ada", disabled=True)),
                              (ada.SetUser, a.SetUserRequest(name="ada", role="member")),
                              (ada.SetTenant, a.SetTenantRequest(name="default", disabled=True)),
                              (tara.SetUser, a.SetUserRequest(name="tara", role="viewer"))):
            self.refused(Code.FAILED_PRECONDITION, call, request)
        self.s.admin.SetTenant(a.SetTenantRequest(name="default", disabled=True))
        self.assertEqual(self.info("ada"), Code.UNAUTHENTICATED)
        self.s.admin.SetTenant(a.SetTenantRequest(name="default", disabled=False))
        self.assertEqual(self.info("ada"), Code.OK)

    def test_what_is_wrong_with_a_request_is_said_with_the_field_and_nothing_changes(self):
        a, admin = m.admin, self.s.admin
        before = self.tokens(all=True), admin.ListUsers(a.ListUsersRequest(tenant="red"))
        for field, code, call, request in (
                ("name", Code.INVALID_ARGUMENT, admin.CreateTenant, a.CreateTenantRequest()),
                ("name", Code.INVALID_ARGUMENT, admin.CreateTenant, a.CreateTenantRequest(name="a b")),
                ("name", Code.INVALID_ARGUMENT, admin.CreateTenant, a.CreateTenantRequest(name="../x")),
                ("name", Code.INVALID_ARGUMENT, admin.CreateTenant, a.CreateTenantRequest(name="x" * 65)),
                ("red", Code.ALREADY_EXISTS, admin.CreateTenant, a.CreateTenantRequest(name="red")),
                ("disabled", Code.INVALID_ARGUMENT, admin.SetTenant, a.SetTenantRequest(name="red")),
                ("green", Code.NOT_FOUND, admin.SetTenant, a.SetTenantRequest(name="green", disabled=True)),
                ("name", Code.INVALID_ARGUMENT, admin.CreateUser, a.CreateUserRequest(tenant="red")),
                ("name", Code.INVALID_ARGUMENT, admin.CreateUser, a.CreateUserRequest(name="operator")),
                ("role", Code.INVALID_ARGUMENT, admin.CreateUser, a.CreateUserRequest(name="x", role="god")),
                ("mia", Code.ALREADY_EXISTS, admin.CreateUser, a.CreateUserRequest(name="mia", tenant="red")),
                ("green", Code.NOT_FOUND, admin.CreateUser, a.CreateUserRequest(name="x", tenant="green")),
                ("role", Code.INVALID_ARGUMENT, admin.SetUser, a.SetUserRequest(name="mia", tenant="red")),
                ("role", Code.INVALID_ARGUMENT, admin.SetUser,
                 a.SetUserRequest(name="mia", tenant="red", disabled=True, role="god")),
                ("nobody", Code.NOT_FOUND, admin.SetUser, a.SetUserRequest(name="nobody", disabled=True)),
                ("user", Code.INVALID_ARGUMENT, admin.CreateToken, a.CreateTokenRequest()),
                ("label", Code.INVALID_ARGUMENT, admin.CreateToken,
                 a.CreateTokenRequest(user="mia", tenant="red", label="x" * 65)),
                ("label", Code.INVALID_ARGUMENT, admin.CreateToken,
                 a.CreateTokenRequest(user="mia", tenant="red", label="a\nb")),
                ("ttl_s", Code.INVALID_ARGUMENT, admin.CreateToken,
                 a.CreateTokenRequest(user="mia", tenant="red", ttl_s=-1)),
                ("ttl_s", Code.INVALID_ARGUMENT, admin.CreateToken,
                 a.CreateTokenRequest(user="mia", tenant="red", ttl_s=2 ** 62)),
                ("grace_s", Code.INVALID_ARGUMENT, admin.RotateToken,
                 a.RotateTokenRequest(id=self.s.ids["mia"], grace_s=2 ** 62))):
            with self.subTest(request=str(request)):
                self.assertIn(field, self.refused(code, call, request))
        self.assertEqual(before, (self.tokens(all=True), admin.ListUsers(a.ListUsersRequest(tenant="red"))))

    def test_a_user_has_a_bounded_number_of_tokens(self):
        words = ""
        for _ in range(101):
            code, words = outcome(lambda: self.s.admin.CreateToken(
                m.admin.CreateTokenRequest(user="mia", tenant="red"), timeout=DEADLINE))
            if code != Code.OK:
                self.assertEqual(code, Code.RESOURCE_EXHAUSTED)
                break
        self.assertIn("mia", words)


class Audit(Case):
    def test_every_change_is_a_row(self):
        s, a = self.s, m.admin
        jobs = s.as_user("mia", "Jobs")
        job = jobs.Submit(m.jobs.SubmitRequest(spec=s.spec("one", steps=100000, tags=["ms=1000"]))).job.id
        ref = m.jobs.JobRef(job=str(job))
        s.wait_state(job, "RUNNING")
        s.jobs.SetPriority(m.jobs.SetPriorityRequest(job=str(job), priority=3), timeout=DEADLINE)
        other = jobs.Submit(m.jobs.SubmitRequest(spec=s.spec("two", devices=2))).job.id
        for method in ("Hold", "Release", "Pause", "Resume"):
            getattr(jobs, method)(m.jobs.JobRef(job=str(other)))
        jobs.Cancel(ref)
        tara = self.admin("tara")
        tara.CreateUser(a.CreateUserRequest(name="new"))
        tara.SetUser(a.SetUserRequest(name="new", role="viewer"))
        new = tara.CreateToken(a.CreateTokenRequest(user="new"))
        new = tara.RotateToken(a.RotateTokenRequest(id=new.token.id))
        tara.RevokeToken(a.RevokeTokenRequest(id=new.token.id))
        rows = {(r.method, r.user, r.object, r.result, r.peer, r.token_id) for r in self.audit()}
        mia, tar = s.ids["mia"], s.ids["tara"]
        for want in [("Jobs/Submit", "mia", f"job {job}", "ok", "loopback", mia),
                     ("Jobs/SetPriority", "operator", f"job {job}", "ok", "unix", 0),
                     ("Jobs/Cancel", "mia", f"job {job}", "ok", "loopback", mia),
                     *[(f"Jobs/{w}", "mia", f"job {other}", "ok", "loopback", mia)
                       for w in ("Hold", "Release", "Pause", "Resume")],
                     ("Admin/CreateTenant", "operator", "tenant red", "ok", "unix", 0),
                     ("Admin/CreateUser", "tara", "user red/new: member", "ok", "loopback", tar),
                     ("Admin/SetUser", "tara", "user red/new: viewer", "ok", "loopback", tar),
                     ("Admin/CreateToken", "tara", f"token {new.token.id - 1} of red/new", "ok",
                      "loopback", tar),
                     ("Admin/RotateToken", "tara",
                      f"token {new.token.id - 1} of red/new, now {new.token.id}", "ok", "loopback", tar),
                     ("Admin/RevokeToken", "tara", f"token {new.token.id} of red/new", "ok",
                      "loopback", tar)]:
            self.assertIn(want, rows)

    def test_every_refusal_is_a_row_and_reads_are_not(self):
        s = self.s
        s.as_user("mia", "Jobs").List(m.jobs.ListJobsRequest())
        ref = m.jobs.JobRef(job=str(s.submit(s.spec("one", steps=100000, tags=["ms=1000"]))))
        self.refused(Code.PERMISSION_DENIED, s.as_user("vera", "Jobs").Cancel, ref)
        self.refused(Code.NOT_FOUND, s.as_user("mia", "Jobs").Cancel, ref)
        self.refused(Code.PERMISSION_DENIED, self.admin("mia").ListUsers, m.admin.ListUsersRequest())
        self.refused(Code.PERMISSION_DENIED, self.admin("tara").ListUsers,
                     m.admin.ListUsersRequest(tenant="blue"))

        outside = s.spec("outside")
        outside.data.train[0].path = "/etc/passwd"
        self.refused(Code.PERMISSION_DENIED, s.as_user("max", "Jobs").Submit,
                     m.jobs.SubmitRequest(spec=outside))

        self.refused(Code.NOT_FOUND, s.as_user("mia", "Jobs").Cancel,
                     m.jobs.JobRef(job="\n" + "\u00e9" * 200))

        def seen():
            rows = {(r.method, r.user, r.result) for r in self.audit()}
            return rows >= {("Jobs/Cancel", "vera", "denied"),
                            ("Jobs/Cancel", "mia", f"there is no job {ref.job}"),
                            ("Jobs/Submit", "max", "denied"),
                            ("Admin/ListUsers", "mia", "denied"),
                            ("Admin/ListUsers", "tara",
                             'denied: tenant: you are in red, not in "blue"'),
                            ("Jobs/Cancel", "mia", 'no job is named " ' + "\u00e9" * 70)}
        wait_for("the refusals to be written down", seen)
        self.assertFalse([r for r in self.audit() if r.method == "Jobs/List"])

    def test_a_flood_of_bad_tokens_is_a_row_a_minute(self):
        self.s.secrets["bad"] = "tnd_" + "0" * 64
        begin = time.monotonic()
        for _ in range(300):
            self.assertNotEqual(self.info("bad"), Code.OK)
        took_s = time.monotonic() - begin

        def counted():
            rows = [r for r in self.audit() if r.result.startswith("denied: no good token")]
            times = [re.search(r"\((\d+) times within a minute\)$", r.result) for r in rows]
            return rows if sum(int(t.group(1)) if t else 1 for t in times) == 300 else None
        rows = wait_for("all to be counted", counted)
        self.assertEqual({(r.user, r.tenant, r.peer) for r in rows}, {("", "", "loopback")})
        self.assertLessEqual(len(rows), 1 + took_s // 60)

    def test_it_is_read_by_tenant_user_method_and_time(self):
        a, tara = m.admin, self.admin("tara")
        tara.CreateUser(a.CreateUserRequest(name="new"))
        self.assertEqual({r.tenant for r in tara.ListAudit(a.ListAuditRequest()).rows}, {"red"})
        self.assertEqual({r.method for r in self.audit(method="Admin/CreateTenant")},
                         {"Admin/CreateTenant"})
        self.assertEqual(self.audit(method="admin/createtenant"),
                         self.audit(method="Admin/CreateTenant"))
        self.assertEqual({r.user for r in self.audit(user="operator")}, {"operator"})
        rows = self.audit()
        self.assertEqual([r.id for r in rows], sorted((r.id for r in rows), reverse=True))
        self.assertEqual(self.audit(before_id=rows[1].id)[0].id, rows[2].id)
        self.assertEqual([r.id for r in self.audit(from_us=rows[1].time_us, to_us=rows[1].time_us)],
                         [r.id for r in rows if r.time_us == rows[1].time_us])
        self.assertEqual(len(self.audit(tenant="blue")), 0)


class ManyAtOnce(Case):
    def refused_of_many(self, *users):
        """What is said to those of many calls that are refused: at once, so that no machine is too
        slow to be asked too often."""
        def ask(who):
            return outcome(lambda: self.admin(who).GetServerInfo(m.admin.ServerInfoRequest()))

        def round_of_calls():
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                got = list(pool.map(ask, users * (200 // len(users))))
            self.assertLessEqual({c for c, _ in got}, {Code.OK, Code.RESOURCE_EXHAUSTED})
            return [w for c, w in got if c == Code.RESOURCE_EXHAUSTED]
        return wait_for("a refusal", round_of_calls)


class RequestLimit(ManyAtOnce):
    limits = "user_requests_per_s: 5, auth_failures_per_min: 100000"

    def test_a_user_asks_so_often_a_second_and_is_told_when_to_come_again(self):
        words = self.refused_of_many("vera")
        self.assertRegex(words[0], r"^vera of red may ask 5 times a second; try again in [0-9]+ ms$")
        self.assertEqual(self.info("mia"), Code.OK)
        wait_for("it to be let in again", lambda: self.info("vera") == Code.OK)


class TenantLimit(ManyAtOnce):
    limits = "tenant_requests_per_s: 5, auth_failures_per_min: 100000"

    def test_the_users_of_a_tenant_together_ask_so_often_a_second(self):
        words = self.refused_of_many("vera", "mia")
        self.assertIn("tenant red may ask 5 times a second together", words[0])
        self.assertEqual(self.info("bob"), Code.OK)


class FailureLimit(Case):
    limits = "auth_failures_per_min: 5"

    def test_refused_tokens_of_an_address_are_limited_and_good_ones_get_in(self):
        self.s.secrets["bad"] = "tnd_" + "0" * 64
        got = [outcome(lambda: self.admin("bad").GetServerInfo(m.admin.ServerInfoRequest()))
               for _ in range(7)]
        self.assertEqual([c for c, _ in got], [Code.UNAUTHENTICATED] * 5 + [Code.RESOURCE_EXHAUSTED] * 2)
        self.assertRegex(got[-1][1], r"try again in [0-9]+ s$")
        # The address may be shared.
        self.assertEqual(self.info("max"), Code.OK)


class QueueLimit(Case):
    limits = "tenant_queued_jobs: 3"

    def test_the_waiting_jobs_of_a_tenant_are_limited(self):
        s = self.s
        blocker = s.submit(s.spec("blocker", steps=100000, devices=2, tags=["ms=1000"]))
        s.wait_state(blocker, "RUNNING")
        blue = s.as_user("bob", "Jobs")
        jobs = [blue.Submit(m.jobs.SubmitRequest(spec=s.spec(f"j{i}"))).job.id for i in range(3)]
        blue.Hold(m.jobs.JobRef(job=str(jobs[0])))  # holding it makes no room
        words = self.refused(Code.RESOURCE_EXHAUSTED, blue.Submit, m.jobs.SubmitRequest(spec=s.spec("j3")))
        self.assertIn("tenant blue has 3 jobs waiting", words)
        s.as_user("mia", "Jobs").Submit(m.jobs.SubmitRequest(spec=s.spec("red")))
        blue.Pause(m.jobs.JobRef(job=str(jobs[1])))  # nor does pausing
        self.refused(Code.RESOURCE_EXHAUSTED, blue.Submit, m.jobs.SubmitRequest(spec=s.spec("j3")))
        blue.Cancel(m.jobs.JobRef(job=str(jobs[0])))
        blue.Submit(m.jobs.SubmitRequest(spec=s.spec("j3")))
        # One that has ended doesn't come back beyond the limit either.
        words = self.refused(Code.RESOURCE_EXHAUSTED, blue.Resume, m.jobs.JobRef(job=str(jobs[0])))
        self.assertIn("tenant blue has 3 jobs waiting", words)
        blue.Resume(m.jobs.JobRef(job=str(jobs[1])))


class WatcherLimit(Case):
    limits = "user_watchers: 2"

    def test_the_watchers_of_a_user_are_limited(self):
        s = self.s
        jobs = s.as_user("mia", "Jobs")
        jobs.Submit(m.jobs.SubmitRequest(spec=s.spec("one")))
        request = m.jobs.WatchRequest(after_event_id=0)
        streams = [jobs.Watch(request) for _ in range(2)]
        for stream in streams:
            next(stream)
        words = self.refused(Code.RESOURCE_EXHAUSTED, jobs.Watch, request)
        self.assertIn("mia of red has 2 watchers open", words)
        next(s.as_user("max", "Jobs").Watch(request))
        streams[0].cancel()
        wait_for("room", lambda: outcome(lambda: jobs.Watch(request))[0] == Code.OK)
        streams[1].cancel()

    # Else a tenant with many users has all that there are.
    def test_the_watchers_of_a_tenant_are_limited(self):
        s = self.s
        request = m.jobs.WatchRequest(after_event_id=0)
        for user in ("mia", "bob"):
            s.as_user(user, "Jobs").Submit(m.jobs.SubmitRequest(spec=s.spec("one")))
        streams = []
        for i in range(5):
            s.admin.CreateUser(m.admin.CreateUserRequest(name=f"u{i}", tenant="red"))
            s.make_token(f"u{i}", tenant="red")
            for _ in range(2 if i < 4 else 0):
                streams.append(s.as_user(f"u{i}", "Jobs").Watch(request))
                next(streams[-1])
        words = self.refused(Code.RESOURCE_EXHAUSTED, s.as_user("u4", "Jobs").Watch, request)
        self.assertIn("users of tenant red have 8 watchers open", words)
        next(s.as_user("bob", "Jobs").Watch(request))
        next(s.as_user("ada", "Jobs").Watch(request))
        streams[0].cancel()
        wait_for("room", lambda: outcome(
            lambda: s.as_user("u4", "Jobs").Watch(request))[0] == Code.OK)
        for stream in streams:
            stream.cancel()


if __name__ == "__main__":
    unittest.main()
