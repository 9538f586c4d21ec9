#!/usr/bin/env python3
"""Tenants' processes under users of their own: a tandemd without rights, tandem-spawn with them, and
two users, numbers that nobody has. Needs root."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (BIN, DEADLINE, TINY, Server, grpc, link_programs, make_stubs,
                               new_folder, processes, put_away, skip, wait_for)

DAEMON, ANN, BOB = 70011, 70012, 70013
if os.geteuid() != 0:
    skip("not root")
if os.environ.get("TANDEM_SAMPLE"):
    skip("a sanitizer's runtime reads the environment of a program with root's rights")


class RunAsServer(Server):
    """tandemd --config as a user of its own; the test speaks to it as its operator."""

    def start(self):
        self.log = open(self.folder / "tandemd.log", "ab")
        self.process = subprocess.Popen(
            [self.programs / "tandemd", "--config", self.folder / "tandemd.yaml"],
            stdout=self.log, stderr=subprocess.STDOUT, user=DAEMON, group=DAEMON, extra_groups=[],
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
        self.connect()

    def spec(self, name, **what):
        spec = super().spec(name, **what)
        spec.model.path = str(self.folder / "model")
        spec.data.train[0].path = str(self.folder / "model/train.bin")
        return spec


def setUpModule():
    global folder, m, programs, server, conf
    umask = os.umask(0o022)  # others are to read what is made here
    unittest.addModuleCleanup(os.umask, umask)
    folder = new_folder()
    folder.chmod(0o755)
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")
    for path in list(programs.iterdir()):  # hard links carry the owner of the build, and its umask
        shutil.copy2(path, programs / "copy")
        (programs / "copy").rename(path)
        os.chown(path, 0, 0)
        path.chmod(0o755)
    shutil.copy2(BIN / "tandem-spawn-test", programs / "tandem-spawn")
    os.chown(programs / "tandem-spawn", 0, DAEMON)
    (programs / "tandem-spawn").chmod(0o4750)
    shutil.copytree(TINY, folder / "model", copy_function=shutil.copyfile)
    (folder / "model").chmod(0o755)
    (folder / "data").mkdir()
    os.chown(folder / "data", DAEMON, DAEMON)
    conf = BIN.parent / "spawn-test/spawn.conf"
    conf.parent.mkdir(exist_ok=True)
    unittest.addModuleCleanup(shutil.rmtree, conf.parent)
    conf.unlink(missing_ok=True)
    conf.write_text(f"caller {DAEMON}\nmin_uid {ANN}\nuser {ANN}\nuser {BOB}\n"
                    f"programs {programs}\njobs {folder}/data/jobs\n")
    conf.chmod(0o644)
    (folder / "tandemd.yaml").write_text(
        f"data_dir: {folder}/data\ndevices: 4\nlimits: {{user_requests_per_s: 0}}\n"
        f"run_as:\n  - {{tenant: default, user: '{ANN}'}}\n  - {{tenant: other, user: '{BOB}'}}\n")
    server = RunAsServer(m, folder, programs)


def tearDownModule():
    put_away(server)


def uids(names=("tandem-node", "tandem-rank")):
    """Of all of the test's processes of those names: {(effective uid, whose group)}."""
    found = set()
    for pid, exe in processes(programs).items():
        if exe.rsplit("/", 1)[1] in names:
            with contextlib.suppress(FileNotFoundError):  # it has left meanwhile
                st = os.stat(f"/proc/{pid}")
                found.add((st.st_uid, st.st_gid))
    return found


def as_user(uid, code):
    """Runs a piece of Python as that user; what it prints."""
    return subprocess.run([sys.executable, "-c", code], user=uid, group=uid, extra_groups=[],
                          cwd="/", capture_output=True, text=True, timeout=DEADLINE)


class RunAs(unittest.TestCase):
    def ref(self, job):
        return m.jobs.JobRef(job=str(job))

    def gone(self):
        return wait_for("no process but tandemd",
                        lambda: set(processes(programs)) == {server.process.pid})

    def cancel(self, job):
        server.jobs.Cancel(self.ref(job), timeout=DEADLINE)
        server.wait_state(job, "CANCELLED")
        self.gone()

    def start(self, **what):
        job = server.submit(server.spec("one", steps=1000000, devices=2,
                                        tags=["ms=20", "say", "brood", "stubborn"], **what))
        wait_for("step 2", lambda: server.get(job).step >= 2)
        return job

    def test_a_job_is_its_tenants_users_from_start_to_end(self):
        job = server.submit(server.spec("whole", steps=10, interval=4, tags=["say"]))
        server.wait_state(job, "SUCCEEDED")
        text = b"".join(r.data for r in server.jobs.Logs(
            m.jobs.LogsRequest(job=str(job), rank=0), timeout=DEADLINE))
        self.assertTrue(text.startswith(b"step 1\n"))
        for path in (folder / f"data/jobs/{job}").rglob("*"):
            st = path.stat()
            self.assertEqual((st.st_uid, st.st_gid), (ANN, DAEMON), path)
            self.assertEqual(st.st_mode & 0o7, 0, path)
            self.assertNotEqual(st.st_mode & 0o040, 0, path)
        self.gone()

    # (25) Another user's processes can only be killed by way of tandem-spawn.
    def test_a_gang_of_another_user_is_cancelled_to_the_last_descendant(self):
        job = self.start()
        self.assertEqual(uids(), {(ANN, ANN)})
        node = [p for p, exe in processes(programs).items() if exe.endswith("/tandem-node")]
        os.kill(node[0], signal.SIGSTOP)  # it can do nothing: tandemd has to
        self.cancel(job)
        self.assertEqual(server.get(job).message, "cancelled by " + server.get(job).user)

    def test_what_a_killed_tandem_node_leaves_behind_goes_too(self):
        job = self.start()
        before = set(processes(programs)) - {server.process.pid}
        server.kill()
        server.start()
        node = [p for p, exe in processes(programs).items() if exe.endswith("/tandem-node")]
        os.kill(node[0], signal.SIGKILL)
        wait_for("the next attempt", lambda: server.get(job).attempt == 2)
        self.assertEqual(before & set(processes(programs)), set())
        self.cancel(job)

    def test_one_tenants_user_reaches_nothing_of_anothers_or_of_tandemd(self):
        job = self.start()
        data = folder / "data"
        for path in (data, data / "jobs", data / f"jobs/{job}", data / f"jobs/{job}/logs"):
            got = as_user(BOB, f"import os; os.listdir({str(path)!r})")
            self.assertIn("PermissionError", got.stderr, path)
        for path in (data / "tandem.db", data / "tandem.db-wal", data / "tandemd.lock",
                     data / f"jobs/{job}/logs/attempt-1/rank-0.log"):
            self.assertTrue(path.exists(), path)
            got = as_user(BOB, f"open({str(path)!r}, 'rb')")
            self.assertIn("PermissionError", got.stderr, path)
        connect = "import socket; socket.socket(socket.AF_UNIX).connect(%r)"
        self.assertIn("PermissionError", as_user(BOB, connect % f"{data}/tandemd.sock").stderr)
        self.assertIn("PermissionError", as_user(ANN, connect % f"{data}/tandemd.sock").stderr)
        self.assertEqual(as_user(BOB, connect % f"{data}/worker.sock").returncode, 0)
        got = as_user(BOB, f"import os; os.kill({server.process.pid}, 0)")
        self.assertIn("PermissionError", got.stderr)
        # worker.sock trusts nobody
        with grpc.insecure_channel(f"unix:{data}/worker.sock") as channel:
            with self.assertRaises(grpc.RpcError) as caught:
                m.jobs_rpc.JobsStub(channel).List(m.jobs.ListJobsRequest(), timeout=DEADLINE)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
        self.cancel(job)

    # A link that a tenant puts into its own folder must not make tandemd read another's files.
    def test_links_in_a_tenants_folder_lead_nowhere(self):
        job = server.submit(server.spec("links", steps=3, tags=["say"]))
        server.wait_state(job, "SUCCEEDED")
        logs = folder / f"data/jobs/{job}/logs"
        secret = folder / "secret"
        (secret / "attempt-1").mkdir(parents=True)
        (secret / "attempt-1/rank-0.log").write_text("secret\n")
        logs.rename(logs.with_name("aside"))
        logs.symlink_to(secret)
        text = b"".join(r.data for r in server.jobs.Logs(
            m.jobs.LogsRequest(job=str(job), rank=0), timeout=DEADLINE))
        self.assertEqual(text, b"")
        self.gone()

    def test_a_model_that_the_tenants_user_may_not_read_is_refused_at_submit(self):
        spec = server.spec("closed")
        closed = folder / "closed"
        shutil.copytree(TINY, closed)
        os.chown(closed, DAEMON, DAEMON)
        closed.chmod(0o700)
        spec.model.path = str(closed)
        with self.assertRaises(grpc.RpcError) as caught:
            server.submit(spec)
        self.assertIn("closed", caught.exception.details())

    def test_another_tenant_has_another_user_and_a_third_has_none(self):
        admin = m.admin_rpc.AdminStub(server.channel)
        for tenant in ("other", "third"):
            admin.CreateTenant(m.admin.CreateTenantRequest(name=tenant), timeout=DEADLINE)
            admin.CreateUser(m.admin.CreateUserRequest(name="bob-" + tenant, tenant=tenant),
                             timeout=DEADLINE)
            secret = admin.CreateToken(m.admin.CreateTokenRequest(
                user="bob-" + tenant, tenant=tenant, label="test"), timeout=DEADLINE).secret
            with grpc.insecure_channel(f"unix:{folder}/data/worker.sock") as channel:
                jobs = m.jobs_rpc.JobsStub(channel)
                call = {"metadata": (("authorization", "Bearer " + secret),), "timeout": DEADLINE}
                request = m.jobs.SubmitRequest(spec=server.spec("two", steps=1000000, tags=["ms=20"]))
                if tenant == "third":
                    with self.assertRaises(grpc.RpcError) as caught:
                        jobs.Submit(request, **call)
                    self.assertEqual(caught.exception.code(),
                                     grpc.StatusCode.FAILED_PRECONDITION)
                    self.assertIn("run_as", caught.exception.details())
                else:
                    job = jobs.Submit(request, **call).job.id
                    wait_for("step 1", lambda: server.get(job).step >= 1)
                    self.assertEqual(uids(), {(BOB, BOB)})
                    self.cancel(job)


if __name__ == "__main__":
    unittest.main(verbosity=1)
