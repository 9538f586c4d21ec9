#!/usr/bin/env python3
"""Who may call what: every method of every service x every kind of caller x jobs of its own, of its
tenant, of another tenant, and such as never were. A method without a line in METHODS fails. The
numbers in brackets are those of the scenarios that other job servers got wrong."""
import os
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(__file__))
from access_bench import (DEADLINE, USERS, AccessServer, Code, grpc, outcome,  # noqa: E402
                          programs_with_tickets, wait_for)
from bench_of_programs import make_stubs, new_folder, put_away  # noqa: E402

BAD = ("none", "bad", "expired", "revoked", "worker")
RANK = {"viewer": 1, "member": 2, "tenant-admin": 3, "admin": 4}
# Callers with a good token; of the jobs that they ask for, mia has those of red.
GOOD = {"vera": "viewer", "mia": "member", "max": "member", "tara": "tenant-admin", "ada": "admin"}
# Every method: who may call it, and what kind of thing it is about.
#   read, change: a job       own: of the caller or its tenant, see special()     public, worker
#   unbuilt: says so to everybody
METHODS = {
    "Jobs/Submit": ("member", "own"), "Jobs/Get": ("viewer", "read"), "Jobs/List": ("viewer", "own"),
    "Jobs/Cancel": ("member", "change"), "Jobs/Pause": ("member", "change"),
    "Jobs/Resume": ("member", "change"), "Jobs/SetPriority": ("member", "change"),
    "Jobs/Hold": ("member", "change"), "Jobs/Release": ("member", "change"),
    "Jobs/Why": ("viewer", "read"), "Jobs/Watch": ("viewer", "read"), "Jobs/Logs": ("viewer", "read"),
    "Runs/GetMetrics": ("viewer", "read"), "Runs/WatchMetrics": ("viewer", "read"),
    "Runs/GetTrace": (None, "unbuilt"), "Runs/Compare": (None, "unbuilt"),
    "Checkpoints/List": ("viewer", "read"), "Checkpoints/Get": ("viewer", "read"),
    "Checkpoints/Verify": (None, "unbuilt"), "Checkpoints/Pin": (None, "unbuilt"),
    "Checkpoints/Unpin": (None, "unbuilt"), "Checkpoints/Delete": (None, "unbuilt"),
    "Checkpoints/Export": (None, "unbuilt"),
    "Cluster/ListNodes": ("viewer", "own"), "Cluster/GetTopology": ("viewer", "own"),
    "Cluster/Drain": ("admin", "own"), "Cluster/Undrain": ("admin", "own"),
    "Plans/Plan": ("member", "own"),
    "Admin/GetServerInfo": ("viewer", "own"),
    "Admin/CreateTenant": ("admin", "own"), "Admin/SetTenant": ("admin", "own"),
    "Admin/SetQuota": ("admin", "own"),
    "Admin/ListTenants": ("tenant-admin", "own"), "Admin/CreateUser": ("tenant-admin", "own"),
    "Admin/SetUser": ("tenant-admin", "own"), "Admin/ListUsers": ("tenant-admin", "own"),
    "Admin/CreateToken": ("viewer", "own"), "Admin/RotateToken": ("viewer", "own"),
    "Admin/RevokeToken": ("viewer", "own"), "Admin/ListTokens": ("viewer", "own"),
    "Admin/ListAudit": ("tenant-admin", "own"),
    "Admin/GetUsage": ("viewer", "own"), "Admin/Backup": ("admin", "own"),
    "Worker/Attach": (None, "worker"),
    "Health/Check": (None, "public"), "Health/Watch": (None, "public"),
    "ServerReflection/ServerReflectionInfo": (None, "public"),
}


def setUpModule():
    global folder, m, s, jobs
    folder = new_folder()
    m = make_stubs(folder)
    s = AccessServer(m, folder, programs_with_tickets(folder / "bin"), devices=4)
    s.make_users()
    jobs = {}
    # Ended ones, with curves, logs and checkpoints; running ones on all devices; ones that wait.
    for tenant, who in (("red", "mia"), ("blue", "bob")):
        jobs[tenant] = submit(who, f"{tenant}-done", interval=5)
    for tenant in ("red", "blue"):
        s.wait_state(jobs[tenant], "SUCCEEDED")
    jobs["blocker"] = s.submit(s.spec("blocker", steps=100000, devices=2, tags=["ms=200", "say"]))
    jobs["runner"] = submit("mia", "runner", steps=100000, devices=2, tags=["ms=200", "say"])
    for name in ("blocker", "runner"):
        s.wait_state(jobs[name], "RUNNING")
    jobs["blue-waits"] = submit("bob", "blue-waits")
    jobs["missing"] = 10 ** 9
    s.secrets["bad"] = "tnd_" + "0" * 64
    s.secrets["worker"] = s.workers_token(jobs["blocker"])
    s.make_token("mia", as_="revoked")
    s.admin.RevokeToken(m.admin.RevokeTokenRequest(id=s.ids["revoked"]))
    s.make_token("mia", as_="expired", ttl_s=1)
    wait_for("a token to expire", lambda: outcome(
        lambda: s.as_user("expired", "Jobs").List(m.jobs.ListJobsRequest()))[0] != Code.OK)


def tearDownModule():
    put_away(s)


def submit(who, name, **fields):
    return s.as_user(who, "Jobs").Submit(m.jobs.SubmitRequest(spec=s.spec(name, **fields))).job.id


def services():
    """Service/Method -> descriptor of everything in the .proto files."""
    from tandem.v1 import health_pb2, reflection_pb2
    found = {}
    for module in (m.admin, m.checkpoints, m.cluster, m.jobs, m.plans, m.runs, m.worker, health_pb2,
                   reflection_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                found[f"{service.name}/{method.name}"] = method
    return found


def message_class(descriptor):
    for module in (m.admin, m.checkpoints, m.cluster, m.jobs, m.plans, m.runs, m.worker):
        if descriptor.file.name == module.DESCRIPTOR.name:
            return getattr(module, descriptor.name)
    from tandem.v1 import health_pb2, reflection_pb2
    module = health_pb2 if descriptor.file.name == health_pb2.DESCRIPTOR.name else reflection_pb2
    return getattr(module, descriptor.name)


STREAMS = {"Jobs/Watch", "Jobs/Logs", "Runs/WatchMetrics", "Health/Watch"}
BIDI = {"Worker/Attach", "ServerReflection/ServerReflectionInfo"}


def list_services():
    from tandem.v1 import reflection_pb2
    return [reflection_pb2.ServerReflectionRequest(list_services="")]


FIRST = {"ServerReflection/ServerReflectionInfo": list_services}


def ask(who, name, request=None, **fields):
    """(code, words) of a call of who: a user, a key of s.secrets, or "none"."""
    method = services()[name]
    request = request or message_class(method.input_type)(**fields)
    kind = "unary_unary"
    if name in BIDI:
        kind, request = "stream_stream", FIRST.get(name, lambda: [])()
    elif name in STREAMS:
        kind = "unary_stream"
    path = f"/{method.containing_service.full_name}/{method.name}"
    return outcome(lambda: s.call(None if who == "none" else who, path, request,
                                  message_class(method.output_type), kind))


def red_waits():
    """A job of mia's that waits."""
    jobs["red-waits"] = submit("mia", "red-waits")
    return jobs["red-waits"]


# What brings a waiting job into the state that the method is for.
BEFORE = {"Jobs/Resume": "Pause", "Jobs/Release": "Hold"}
FIELDS = {"Jobs/SetPriority": {"priority": 400}, "Jobs/Watch": {"after_event_id": 0}}


def ask_job(who, name, job):
    return ask(who, name, job=str(job), **FIELDS.get(name, {}))


class Matrix(unittest.TestCase):
    maxDiff = None

    def test_every_method_has_a_line(self):
        self.assertEqual(sorted(services()), sorted(METHODS))

    def test_without_a_good_token_nothing_but_public_methods_answers(self):
        for name, (_, kind) in METHODS.items():
            for who in BAD:
                want = {"unbuilt": Code.UNIMPLEMENTED, "public": Code.OK}.get(kind, Code.UNAUTHENTICATED)
                if name == "Worker/Attach" and who == "worker":
                    want = Code.INVALID_ARGUMENT  # let in, and nothing was said
                with self.subTest(method=name, caller=who):
                    code, words = ask(who, name)
                    self.assertEqual(code, want, words)

    def test_a_users_token_attaches_no_worker(self):
        for who in GOOD:
            self.assertEqual(ask(who, "Worker/Attach")[0], Code.UNAUTHENTICATED)

    def test_what_is_not_built_says_so_to_everybody(self):
        for name in [n for n, (_, kind) in METHODS.items() if kind == "unbuilt"]:
            for who in GOOD:
                with self.subTest(method=name, caller=who):
                    self.assertEqual(ask(who, name)[0], Code.UNIMPLEMENTED)

    def test_jobs_are_read_within_the_tenant(self):
        for name in [n for n, (_, kind) in METHODS.items() if kind == "read"]:
            for who, role in GOOD.items():
                for target in ("red", "blue", "missing"):
                    seen = target == "red" or (target == "blue" and role == "admin")
                    with self.subTest(method=name, caller=who, target=target):
                        code, words = ask_job(who, name, jobs[target])
                        self.assertEqual(code, Code.OK if seen else Code.NOT_FOUND, words)

    def test_jobs_are_changed_by_their_owner_and_admins(self):
        for name in [n for n, (_, kind) in METHODS.items() if kind == "change"]:
            for who, role in GOOD.items():
                with self.subTest(method=name, caller=who):
                    job = red_waits()
                    if name in BEFORE:
                        getattr(s.jobs, BEFORE[name])(m.jobs.JobRef(job=str(job)), timeout=DEADLINE)
                    before = at_rest(job)
                    code, words = ask_job(who, name, job)
                    allowed = who == "mia" or RANK[role] >= RANK["tenant-admin"]
                    self.assertEqual(code, Code.OK if allowed else Code.PERMISSION_DENIED, words)
                    after = at_rest(job)
                    self.assertEqual(allowed, before != after, "a refusal changes nothing")
                    s.jobs.Cancel(m.jobs.JobRef(job=str(job)), timeout=DEADLINE)

    def test_jobs_of_others_are_changed_by_nobody_but_admins(self):
        for name in [n for n, (_, kind) in METHODS.items() if kind == "change"]:
            for who, role in GOOD.items():
                if role == "admin":
                    continue
                before = at_rest(jobs["blue-waits"])
                want = Code.PERMISSION_DENIED if role == "viewer" else Code.NOT_FOUND
                for target in ("blue-waits", "missing"):
                    with self.subTest(method=name, caller=who, target=target):
                        code, words = ask_job(who, name, jobs[target])
                        self.assertEqual(code, want, words)
                self.assertEqual(before, at_rest(jobs["blue-waits"]))
            self.assertEqual(ask_job("ada", name, jobs["missing"])[0], Code.NOT_FOUND)

    def test_another_tenants_job_and_one_that_never_was_are_the_same_words(self):
        for name in [n for n, (_, kind) in METHODS.items() if kind in ("read", "change")]:
            for who in ("vera", "mia", "tara"):
                for there, never in ((str(jobs["blue"]), str(jobs["missing"])),
                                     ("blue-done", "neverwas")):
                    with self.subTest(method=name, caller=who, job=there):
                        got = [ask_job(who, name, job) for job in (there, never)]
                        self.assertEqual(got[0][0], got[1][0])
                        self.assertEqual(got[0][1].replace(there, "JOB"), got[1][1].replace(never, "JOB"))

    def test_methods_without_a_job_need_their_role(self):
        for name in [n for n, (_, kind) in METHODS.items() if kind == "own"]:
            need = METHODS[name][0]
            for who, role in GOOD.items():
                with self.subTest(method=name, caller=who):
                    code, words = ask(who, name, special(name, who))
                    if RANK[role] < RANK[need]:
                        self.assertEqual(code, Code.PERMISSION_DENIED, words)
                        self.assertIn(need, words)
                    else:
                        self.assertEqual(code, Code.OK, words)

    def test_another_tenant_and_none_are_the_same_words(self):
        a = m.admin
        asks = {"Jobs/List": lambda t: m.jobs.ListJobsRequest(tenant=t),
                "Jobs/Submit": lambda t: with_tenant(m.jobs.SubmitRequest(spec=s.spec("x")), t),
                "Plans/Plan": lambda t: with_tenant(m.plans.PlanRequest(spec=s.spec("x")), t),
                "Admin/CreateUser": lambda t: a.CreateUserRequest(name="new", tenant=t),
                "Admin/SetUser": lambda t: a.SetUserRequest(name="bob", tenant=t, disabled=True),
                "Admin/ListUsers": lambda t: a.ListUsersRequest(tenant=t),
                "Admin/CreateToken": lambda t: a.CreateTokenRequest(user="bob", tenant=t),
                "Admin/ListTokens": lambda t: a.ListTokensRequest(tenant=t),
                "Admin/ListAudit": lambda t: a.ListAuditRequest(tenant=t)}
        for name, make in asks.items():
            with self.subTest(method=name):
                there, never = (ask("tara", name, make(t)) for t in ("blue", "none"))
                self.assertEqual(there[0], Code.PERMISSION_DENIED)
                self.assertEqual(there[1].replace("blue", "T"), never[1].replace("none", "T"))
        for name in ("Admin/RotateToken", "Admin/RevokeToken"):
            for who in ("vera", "tara"):
                there, never = (ask(who, name, id=i) for i in (s.ids["bob"], 10 ** 9))
                self.assertEqual(there[0], Code.NOT_FOUND)
                self.assertEqual(there[1].replace(str(s.ids["bob"]), "ID"),
                                 never[1].replace(str(10 ** 9), "ID"))

    def test_the_socket_of_the_data_folder_alone_needs_no_token(self):
        self.assertEqual(s.admin.GetServerInfo(m.admin.ServerInfoRequest()).user, "operator")
        shared = s.dial(f"unix:{s.folder}/shared.sock")
        stub = m.admin_rpc.AdminStub(shared)
        self.assertEqual(outcome(lambda: stub.GetServerInfo(m.admin.ServerInfoRequest()))[0],
                         Code.UNAUTHENTICATED)
        shared.close()
        # A token is looked at wherever it is shown.
        code, _ = outcome(lambda: s.call("bad", "/tandem.v1.Admin/GetServerInfo",
                                         m.admin.ServerInfoRequest(), m.admin.ServerInfo,
                                         channel=s.channel))
        self.assertEqual(code, Code.UNAUTHENTICATED)


def with_tenant(request, tenant):
    request.spec.tenant = tenant
    return request


counter = 0


def special(name, who):
    """A request that somebody with the role of METHODS is answered OK."""
    global counter
    counter += 1
    a = m.admin
    if name == "Jobs/Submit":
        return m.jobs.SubmitRequest(spec=s.spec(f"dry-{counter}"), dry_run=True)
    if name == "Plans/Plan":
        return m.plans.PlanRequest(spec=s.spec("plan"))
    if name in ("Cluster/Drain", "Cluster/Undrain"):
        return m.cluster.DrainRequest(node=os.uname().nodename, let_finish=True)
    if name == "Admin/CreateTenant":
        return a.CreateTenantRequest(name=f"tenant{counter}")
    if name == "Admin/SetTenant":
        return a.SetTenantRequest(name="blue", disabled=False)
    if name == "Admin/SetQuota":
        return a.SetQuotaRequest(tenant="blue", weight=1)
    if name == "Admin/CreateUser":
        return a.CreateUserRequest(name=f"user{counter}")
    if name == "Admin/SetUser":
        return a.SetUserRequest(name=who, disabled=False)
    if name in ("Admin/RotateToken", "Admin/RevokeToken"):
        s.make_token(who, as_="spare")
        return message_class(services()[name].input_type)(id=s.ids["spare"])
    return None


def at_rest(job):
    """The job without what grows while it waits."""
    j = s.get(job)
    j.ClearField("wait_s")
    return j


class Isolation(unittest.TestCase):
    def test_14_a_tenant_learns_nothing_of_anothers_jobs(self):
        """[14] Lists, watches, curves, logs, checkpoints, names, holders, reasons: not a trace."""
        blue_ids = {jobs["blue"], jobs["blue-waits"], jobs["blocker"]}
        for who in ("vera", "mia", "tara"):
            stub = s.as_user(who, "Jobs")
            listed = stub.List(m.jobs.ListJobsRequest(all=True, page_size=1000)).jobs
            self.assertEqual({j.tenant for j in listed}, {"red"})
            self.assertFalse(blue_ids & {j.id for j in listed})
            nodes = s.as_user(who, "Cluster").ListNodes(m.cluster.ListNodesRequest()).nodes
            self.assertEqual([d.job_id for n in nodes for d in n.devices].count(-1), 2)
            self.assertEqual({d.job_id for n in nodes for d in n.devices}, {-1, jobs["runner"]})
        # Whose job holds the devices, or waits in front, is told to who may see it.
        job = submit("mia", "big", devices=4)
        front = submit("bob", "front", devices=2)
        s.jobs.SetPriority(m.jobs.SetPriorityRequest(job=str(front), priority=900), timeout=DEADLINE)
        why = s.as_user("mia", "Jobs").Why(m.jobs.JobRef(job=str(job)))
        self.assertNotRegex(" ".join(why.reasons), rf"job ({jobs['blocker']}|{front})\b")
        self.assertIn(-1, why.holders)
        self.assertFalse(blue_ids & set(why.holders))
        theirs = s.as_user("bob", "Jobs").Why(m.jobs.JobRef(job=str(front)))
        self.assertTrue(theirs.holders)
        self.assertLessEqual(set(theirs.holders), {-1, jobs["blocker"]})
        for one in (job, front):
            s.jobs.Cancel(m.jobs.JobRef(job=str(one)), timeout=DEADLINE)

    def test_14_paths_into_the_data_folder_lead_to_own_jobs_only(self):
        def ask_path(who, path, method="Submit"):
            spec = s.spec("path")
            spec.model.path = path
            if method == "Plan":
                return outcome(lambda: s.as_user(who, "Plans").Plan(m.plans.PlanRequest(spec=spec)))
            return outcome(lambda: s.as_user(who, "Jobs").Submit(
                m.jobs.SubmitRequest(spec=spec, dry_run=True)))

        data = str(s.data)
        never = ask_path("mia", f"{data}/jobs/{jobs['missing']}/export")
        for path in (f"{data}/jobs/{jobs['blue']}/export", f"{data}/jobs/../jobs/{jobs['blue']}/export",
                     f"{data}//./jobs/{jobs['red']}/../{jobs['blue']}/export", f"{data}/jobs",
                     f"{data}/tandem.db", data, f"{data}/jobs/0{jobs['red']}/export"):
            for method in ("Submit", "Plan"):
                with self.subTest(path=path, method=method):
                    code, words = ask_path("mia", path, method)
                    self.assertEqual(code, Code.PERMISSION_DENIED, words)
                    self.assertEqual(words.replace(path, "P"), never[1].replace(
                        f"{data}/jobs/{jobs['missing']}/export", "P"))
        # Its own, and paths beside the folder, are looked at: by the roots, then by the probe.
        for path in (f"{data}/jobs/{jobs['red']}/export", f"{data}2/x", "/etc"):
            self.assertNotIn("data folder", ask_path("mia", path)[1])

    def test_14_a_watch_of_all_jobs_shows_those_of_the_tenant(self):
        stream = s.as_user("vera", "Jobs").Watch(m.jobs.WatchRequest(after_event_id=0))
        marks = [submit("bob", "quiet"), submit("mia", "heard")]
        seen = set()
        for reply in stream:
            for part in ("job", "event", "metrics"):
                if reply.HasField(part):
                    seen.add(reply.job.id if part == "job" else getattr(reply, part).job_id)
            if marks[1] in seen:
                break
        stream.cancel()
        mine = {j.id for j in s.jobs.List(m.jobs.ListJobsRequest(all=True, tenant="red", page_size=1000),
                                          timeout=DEADLINE).jobs}
        self.assertIn(jobs["red"], seen)
        self.assertFalse(seen - mine)

    def test_two_tenants_may_use_one_name_and_one_key(self):
        ids = []
        for who in ("mia", "bob"):
            stub = s.as_user(who, "Jobs")
            request = m.jobs.SubmitRequest(spec=s.spec("same"), idempotency_key="same")
            ids.append(stub.Submit(request).job.id)
            self.assertEqual(stub.Submit(request).job.id, ids[-1])
            self.assertEqual(stub.Get(m.jobs.GetJobRequest(job="same")).id, ids[-1])
        self.assertNotEqual(*ids)
        code, words = outcome(lambda: s.as_user("ada", "Jobs").Get(m.jobs.GetJobRequest(job="same")))
        self.assertEqual(code, Code.FAILED_PRECONDITION)
        self.assertIn("several", words)

    def test_events_name_an_admin_of_elsewhere_as_admin(self):
        job = red_waits()
        s.as_user("ada", "Jobs").Hold(m.jobs.JobRef(job=str(job)))
        s.as_user("tara", "Jobs").Release(m.jobs.JobRef(job=str(job)))
        events = s.as_user("vera", "Jobs").Get(m.jobs.GetJobRequest(job=str(job))).events
        actors = [e.actor for e in events if e.actor != "scheduler"]
        self.assertEqual(actors, ["mia", "admin", "tara"])
        # Nor do they name what it waits for, where that is another tenant's.
        for e in events:
            self.assertNotRegex(e.message, rf"job ({jobs['blocker']}|{jobs['blue-waits']})\b")


class Streams(unittest.TestCase):
    """An open stream ends as soon as its caller has no right to it any more."""

    def setUp(self):
        self.n = self.id().rsplit("_", 1)[-1]

    def user(self, role="viewer", tenant="red"):
        name = f"s-{self.n}"
        USERS[name] = (tenant, role)
        s.admin.CreateUser(m.admin.CreateUserRequest(name=name, tenant=tenant, role=role))
        s.make_token(name)
        return name

    def begun(self, who):
        """A stream of every kind that has begun to speak or ended: how each ended, and the threads."""
        job = str(jobs["blocker"] if USERS[who][1] == "admin" else jobs["runner"])
        stub, runs = s.as_user(who, "Jobs"), s.as_user(who, "Runs")
        streams = [stub.Watch(m.jobs.WatchRequest(after_event_id=0)),
                   stub.Logs(m.jobs.LogsRequest(job=job, follow=True)),
                   runs.WatchMetrics(m.runs.WatchMetricsRequest(job=job))]
        ends, spoke = [], set()

        def read(i):
            try:
                for _ in streams[i]:
                    spoke.add(i)
                ends.append((Code.OK, ""))
            except grpc.RpcError as e:
                ends.append((e.code(), e.details()))
        threads = [threading.Thread(target=read, args=(i,)) for i in range(len(streams))]
        for t in threads:
            t.start()
        wait_for("every stream to speak", lambda: ends or len(spoke) == len(streams))
        return ends, threads, len(spoke) == len(streams)

    def opened(self, who):
        ends, threads, all_spoke = self.begun(who)
        self.assertTrue(all_spoke and not ends, ends)
        return ends, threads

    def all_end(self, ends, threads, code, words):
        for t in threads:
            t.join(DEADLINE)
        self.assertEqual(ends, [(code, words)] * len(threads))

    def test_a_revoked_token_revoked(self):
        who = self.user()
        ends, threads = self.opened(who)
        s.admin.RevokeToken(m.admin.RevokeTokenRequest(id=s.ids[who]))
        self.all_end(ends, threads, Code.UNAUTHENTICATED, "the token was revoked")

    def test_an_expired_token_expired(self):
        who = self.user()
        for ttl_s in (2, 8, 32, 128):  # until it is long enough for all of them to begin
            s.make_token(who, ttl_s=ttl_s)
            ends, threads, all_spoke = self.begun(who)
            self.all_end(ends, threads, Code.UNAUTHENTICATED, "the token has expired")
            if all_spoke:
                return
        self.fail("the streams never began")

    def test_a_disabled_user_disabled(self):
        who = self.user()
        ends, threads = self.opened(who)
        s.admin.SetUser(m.admin.SetUserRequest(name=who, tenant="red", disabled=True))
        self.all_end(ends, threads, Code.UNAUTHENTICATED, "the token's user or tenant is disabled")
        s.admin.SetUser(m.admin.SetUserRequest(name=who, tenant="red", disabled=False))
        self.assertEqual(ask(who, "Jobs/List")[0], Code.OK)

    def test_a_disabled_tenant_tenant(self):
        who = self.user()
        ends, threads = self.opened(who)
        s.admin.SetTenant(m.admin.SetTenantRequest(name="red", disabled=True))
        self.all_end(ends, threads, Code.UNAUTHENTICATED, "the token's user or tenant is disabled")
        self.assertEqual(s.state(jobs["blocker"]), "JOB_RUNNING")
        s.admin.SetTenant(m.admin.SetTenantRequest(name="red", disabled=False))
        self.assertEqual(ask(who, "Jobs/List")[0], Code.OK)

    def test_an_admin_made_a_member_lowered(self):
        who = self.user("admin", "default")
        ends, threads = self.opened(who)
        s.admin.SetUser(m.admin.SetUserRequest(name=who, tenant="default", role="member"))
        self.all_end(ends, threads, Code.PERMISSION_DENIED, f"{who} is no admin any more")

    def test_others_go_on_others(self):
        who = self.user()
        stream = s.as_user("vera", "Jobs").Watch(m.jobs.WatchRequest())
        next(stream)  # the steps of a job: it watches
        ends, threads = self.opened(who)
        s.admin.RevokeToken(m.admin.RevokeTokenRequest(id=s.ids[who]))
        self.all_end(ends, threads, Code.UNAUTHENTICATED, "the token was revoked")
        job = red_waits()
        for reply in stream:
            if reply.event.job_id == job:
                break
        stream.cancel()


if __name__ == "__main__":
    unittest.main()
