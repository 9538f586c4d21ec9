"""`tandem admin ...` against a server that is a fake: what it asks for, how it prints, and where a new
token goes. The real server is asked in admin_test.py."""
import csv
import io
import json
import os
import pty
import re
import shutil
import stat
import subprocess
import sys
import time
import unittest
from concurrent import futures

sys.path.insert(0, os.path.dirname(__file__))
import bench_of_programs as bench  # noqa: E402
from bench_of_programs import BIN, DEADLINE, grpc  # noqa: E402

if not (BIN / "tandem").exists():
    bench.skip(f"{BIN / 'tandem'} isn't built")

FOLDER = bench.new_folder()
(FOLDER / "stubs").mkdir()
M = bench.make_stubs(FOLDER / "stubs")
A = M.admin
SECRET = "5ec3e7" * 10 + "beef"
NOW = int(time.time() * 1e6)
DAY = 86400 * 1000000


class FakeAdmin(M.admin_rpc.AdminServicer):
    def __init__(self):
        self.asked, self.before_reply, self.fail = [], None, None

    def note(self, request, context):
        self.asked.append(request)
        if self.fail:
            code, text = self.fail
            self.fail = None
            context.abort(code, text)
        if self.before_reply:
            self.before_reply()

    def CreateTenant(self, r, c):
        self.note(r, c)
        return A.Tenant(name=r.name, created_us=NOW)

    def SetTenant(self, r, c):
        self.note(r, c)
        return A.Tenant(name=r.name, disabled=r.disabled)

    def ListTenants(self, r, c):
        self.note(r, c)
        return A.ListTenantsReply(tenants=[
            A.Tenant(name="red", num_users=2, num_jobs=7, created_us=NOW),
            A.Tenant(name="blue", disabled=True, created_us=NOW - 400 * DAY)])

    def CreateUser(self, r, c):
        self.note(r, c)
        return A.User(name=r.name, tenant=r.tenant or "default", role=r.role)

    def SetUser(self, r, c):
        self.note(r, c)
        return A.User(name=r.name, tenant=r.tenant or "default", role=r.role or "member",
                      disabled=r.disabled)

    def ListUsers(self, r, c):
        self.note(r, c)
        names = [f"u{i:04}" for i in range(450)]
        rest = [n for n in names if n > r.after][:r.limit]
        return A.ListUsersReply(users=[A.User(name=n, tenant="red", role="member") for n in rest])

    def token(self, i, **more):
        return A.Token(**{**dict(id=i, label="laptop", user="ann", tenant="red", created_us=NOW,
                                 expires_us=NOW + 90 * DAY, prefix=SECRET[:6]), **more})

    def CreateToken(self, r, c):
        self.note(r, c)
        return A.NewToken(token=self.token(3), secret=SECRET)

    def RotateToken(self, r, c):
        self.note(r, c)
        return A.NewToken(token=self.token(r.id, expires_us=0), secret=SECRET)

    def RevokeToken(self, r, c):
        self.note(r, c)
        return self.token(r.id, revoked_us=NOW)

    def ListTokens(self, r, c):
        self.note(r, c)
        return A.ListTokensReply(tokens=[
            self.token(1), self.token(2, revoked_us=NOW - 1), self.token(4, expires_us=NOW - 1)])

    def ListAudit(self, r, c):
        self.note(r, c)
        before = r.before_id or 1201
        ids = list(range(before - 1, max(0, before - 1 - r.limit), -1))
        return A.ListAuditReply(rows=[
            A.AuditRow(id=i, time_us=NOW - i, tenant="red", user="ann", method="Jobs/Cancel",
                       object=f"job {i}", result="denied" if i % 2 else "ok", peer="10.0.0.7")
            for i in ids])

    def Backup(self, r, c):
        self.note(r, c)
        return A.BackupReply(path=r.path or "/data/backup/x.db", size_bytes=1200000, num_jobs=3,
                             sha256="ab" * 32)


FAKE = FakeAdmin()
SERVER = grpc.server(futures.ThreadPoolExecutor(2))
M.admin_rpc.add_AdminServicer_to_server(FAKE, SERVER)
SERVER.add_insecure_port(f"unix:{FOLDER}/fake.sock")
ENV = {**{k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LC_", "LANG"))},
       "TANDEM_SERVER": f"unix:{FOLDER}/fake.sock", "XDG_CONFIG_HOME": str(FOLDER / "config"),
       "LC_ALL": "C.UTF-8", "TERM": "xterm", "TZ": "UTC", "COLUMNS": "100"}


def tandem(*args, code=0, cwd=FOLDER):
    FAKE.asked.clear()
    done = subprocess.run([BIN / "tandem", *map(str, args)], env=ENV, capture_output=True,
                          text=True, timeout=DEADLINE, cwd=cwd, stdin=subprocess.DEVNULL)
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
    return done


def on_a_terminal(*args):
    fd, far = pty.openpty()
    # Not pty.fork(): in a process with threads, those of the fake server, its child may not go on.
    process = subprocess.Popen([BIN / "tandem", *args], env=ENV, stdin=far, stdout=far, stderr=far)
    os.close(far)
    text = b""
    while True:
        try:
            chunk = os.read(fd, 4096)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    os.close(fd)
    assert process.wait(DEADLINE) == 0
    return text.decode().replace("\r\n", "\n")


def asked():
    assert len(FAKE.asked) == 1, FAKE.asked
    return FAKE.asked[0]


class Tenants(unittest.TestCase):
    def test_are_made_and_changed(self):
        self.assertEqual(tandem("admin", "tenant", "add", "red").stdout, "tenant red is made\n")
        self.assertEqual(asked(), A.CreateTenantRequest(name="red"))
        out = tandem("admin", "tenant", "disable", "red").stdout
        self.assertIn("tenant red is disabled", out)
        self.assertEqual(asked(), A.SetTenantRequest(name="red", disabled=True))
        tandem("admin", "tenant", "enable", "red")
        self.assertEqual(asked(), A.SetTenantRequest(name="red", disabled=False))
        self.assertTrue(asked().HasField("disabled"))

    def test_are_listed_in_every_format(self):
        table = tandem("admin", "tenant", "ls").stdout.splitlines()
        self.assertEqual(table[0].split(), ["TENANT", "STATE", "USERS", "JOBS", "CREATED"])
        self.assertRegex(table[2], r"blue +disabled +0 +0 +20\d\d-\d\d-\d\d \d\d:\d\d")
        rows = list(csv.DictReader(io.StringIO(tandem("admin", "tenant", "ls", "-o", "csv").stdout)))
        self.assertEqual((rows[0]["tenant"], rows[0]["jobs"], rows[0]["created"]),
                         ("red", "7", str(NOW)))
        self.assertEqual(json.loads(tandem("admin", "tenant", "ls", "-o", "json").stdout)[1]["name"],
                         "blue")
        self.assertIn("- name: red", tandem("admin", "tenant", "ls", "-o", "yaml").stdout)
        made = tandem("admin", "tenant", "add", "red", "-o", "json").stdout
        self.assertEqual(json.loads(made)["name"], "red")


class Users(unittest.TestCase):
    def test_are_made_and_changed(self):
        out = tandem("admin", "user", "add", "ann", "--tenant", "red", "--role", "viewer").stdout
        self.assertEqual(out, "user ann of red is viewer\n")
        self.assertEqual(asked(), A.CreateUserRequest(name="ann", tenant="red", role="viewer"))
        tandem("admin", "user", "add", "bob")
        self.assertFalse(asked().HasField("tenant"), "the server knows whose tenant")
        tandem("admin", "user", "set", "ann", "--role", "admin")
        self.assertEqual(asked(), A.SetUserRequest(name="ann", role="admin"))
        out = tandem("admin", "user", "disable", "ann", "-t", "red").stdout
        self.assertEqual(out, "user ann of red is member, disabled\n")
        self.assertEqual(asked(), A.SetUserRequest(name="ann", tenant="red", disabled=True))
        tandem("admin", "user", "enable", "ann")
        self.assertEqual(asked(), A.SetUserRequest(name="ann", disabled=False))
        tandem("admin", "user", "set", "ann", code=2)
        tandem("admin", "user", "disable", "ann", "--role", "admin", code=2)

    def test_are_listed_page_by_page(self):
        rows = json.loads(tandem("admin", "user", "ls", "--tenant", "red", "-o", "json").stdout)
        self.assertEqual([r["name"] for r in rows], [f"u{i:04}" for i in range(450)])
        self.assertEqual([r.after for r in FAKE.asked], ["", "u0199", "u0399"])
        self.assertEqual({r.tenant for r in FAKE.asked}, {"red"})


class Tokens(unittest.TestCase):
    def test_a_terminal_shows_a_new_one_with_a_word_of_care(self):
        FAKE.asked.clear()
        text = on_a_terminal("admin", "token", "create", "--user", "ann", "--label", "laptop",
                             "--ttl", "12h")
        self.assertEqual(asked(), A.CreateTokenRequest(user="ann", label="laptop", ttl_s=43200))
        self.assertEqual(text.count(SECRET), 1)
        self.assertRegex(text, r"token 3 of ann \(red\), laptop, good until 20")
        self.assertIn("It is shown this once", text)
        self.assertIn("~/.config/tandem/token", text)

    def test_a_pipe_gets_the_token_alone(self):
        done = tandem("admin", "token", "create")
        self.assertEqual(done.stdout, SECRET + "\n")
        self.assertNotIn(SECRET, done.stderr)
        self.assertFalse(asked().HasField("ttl_s"), "the default is the server's")
        self.assertEqual(json.loads(tandem("admin", "token", "create", "-o", "json").stdout)["secret"],
                         SECRET)

    def test_a_file_gets_it_for_its_owner_alone(self):
        out = FOLDER / "ann.token"
        done = tandem("admin", "token", "create", "--out", out)
        self.assertNotIn(SECRET, done.stdout + done.stderr)
        self.assertEqual(out.read_text(), SECRET + "\n")
        self.assertEqual(stat.S_IMODE(out.stat().st_mode), 0o600)
        done = tandem("admin", "token", "create", "--out", out, code=2)
        self.assertEqual(FAKE.asked, [], "no token is made that has nowhere to go")
        tandem("admin", "token", "create", "--out", FOLDER / "none" / "x", code=2)
        self.assertEqual(FAKE.asked, [])
        out.write_text("old\n")
        out.chmod(0o644)
        done = tandem("admin", "token", "rotate", 3, "--grace", "1h", "--out", out, "-o", "json")
        self.assertEqual(asked(), A.RotateTokenRequest(id=3, grace_s=3600))
        self.assertNotIn("secret", json.loads(done.stdout))
        self.assertEqual(out.read_text(), SECRET + "\n")
        self.assertEqual(stat.S_IMODE(out.stat().st_mode), 0o600)
        out.unlink()
        self.assertEqual(list(FOLDER.glob("ann.token*")), [], "nothing else is left")

    def test_one_that_gets_lost_on_the_way_is_said_to_be(self):
        folder = FOLDER / "gone"
        folder.mkdir()
        FAKE.before_reply = lambda: shutil.rmtree(folder)
        done = tandem("admin", "token", "create", "--out", folder / "x", code=1)
        FAKE.before_reply = None
        self.assertIn("tandem admin token revoke 3", done.stderr)
        self.assertNotIn(SECRET, done.stdout + done.stderr)

    def test_are_listed_and_revoked(self):
        rows = list(csv.DictReader(io.StringIO(tandem("admin", "token", "ls", "-a", "-u", "ann", "-o",
                                                      "csv").stdout)))
        self.assertEqual(asked(), A.ListTokensRequest(user="ann", all=True, limit=200, after_id=0))
        self.assertEqual([r["state"] for r in rows], ["good", "revoked", "expired"])
        table = tandem("admin", "token", "ls").stdout
        self.assertIn(SECRET[:6] + "...", table)
        self.assertRegex(table.splitlines()[1], r"never$")
        self.assertEqual(tandem("admin", "token", "revoke", 3).stdout, "token 3 of ann is revoked\n")
        self.assertEqual(asked(), A.RevokeTokenRequest(id=3))
        for word in ("x", "-1", ""):
            tandem("admin", "token", "revoke", word, code=2)
        for ttl in ("90", "1x", "-1d"):
            done = tandem("admin", "token", "create", "--ttl", ttl, code=2)
            self.assertIn("90d, 12h or 30m", done.stderr)


class Audit(unittest.TestCase):
    def test_is_asked_for_page_by_page_as_far_as_wanted(self):
        rows = json.loads(tandem("admin", "audit", "-n", 1100, "-o", "json").stdout)
        self.assertEqual([r["id"] for r in rows], list(range(1200, 100, -1)))
        self.assertEqual([(r.before_id, r.limit) for r in FAKE.asked],
                         [(0, 500), (701, 500), (201, 100)])
        table = tandem("admin", "audit", "--user", "ann", "--tenant", "red", "--method",
                       "Jobs/Cancel", "--since", "2d").stdout
        self.assertEqual(len(table.splitlines()), 101)
        q = asked()
        self.assertEqual((q.user, q.tenant, q.method), ("ann", "red", "Jobs/Cancel"))
        self.assertLess(abs(q.from_us - (time.time() * 1e6 - 2 * DAY)), DAY / 2)
        tandem("admin", "audit", "--since", "2026-03-01", "--until", "2026-03-02")
        self.assertEqual(asked().to_us - asked().from_us, DAY)


class Backup(unittest.TestCase):
    def test_names_the_file_with_its_sum(self):
        out = tandem("admin", "backup", "x.db").stdout
        self.assertEqual(asked().path, str(FOLDER.resolve() / "x.db"))
        self.assertRegex(out, r"x\.db: 1\.2 MB, 3 jobs\nsha256 (ab){32}\n")
        self.assertFalse(tandem("admin", "backup") and asked().HasField("path"))
        rows = list(csv.DictReader(io.StringIO(tandem("admin", "backup", "-o", "csv").stdout)))
        self.assertEqual(rows[0]["size_bytes"], "1200000")


class Faults(unittest.TestCase):
    def test_are_told_once_with_their_exit_code(self):
        FAKE.fail = (grpc.StatusCode.PERMISSION_DENIED, "this needs the role admin; you are member")
        done = tandem("admin", "tenant", "ls", code=1)
        self.assertEqual(done.stderr, "tandem: this needs the role admin; you are member\n")
        FAKE.fail = (grpc.StatusCode.UNAUTHENTICATED, "a token is needed")
        self.assertIn("~/.config/tandem/token", tandem("admin", "tenant", "ls", code=1).stderr)
        for words in (("admin",), ("admin", "token"), ("admin", "tokn"), ("admin", "tenant", "add"),
                      ("admin", "restore", "x"), ("admin", "audit", "--since", "soon")):
            tandem(*words, code=2)

    def test_every_verb_teaches_with_an_example(self):
        def walk(words):
            text = tandem(*words, "--help").stdout
            self.assertRegex(text, rf"\n  (tandem|until tandem) .*{words[-1]}", words)
            for name in re.findall(r"^  ([a-z]+) {2,}[a-z]", text.split("teaches each")[0], re.M) \
                    if "teaches each" in text else ():
                walk((*words, name))
        walk(("admin",))


if __name__ == "__main__":
    SERVER.start()
    try:
        unittest.main(verbosity=2)
    finally:
        SERVER.stop(0)
        shutil.rmtree(FOLDER, ignore_errors=True)
