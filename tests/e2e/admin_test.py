"""Tenants, users and tokens from the command line against the real tandemd --config: who gets in, who
is kept out from when on, and what is on record afterwards."""
import csv
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import pathlib
import unittest

sys.path.insert(0, os.path.dirname(__file__))
from bench_of_programs import BIN, DEADLINE, TINY, skip, wait_for  # noqa: E402
from gangs_of import end_gangs  # noqa: E402
from own_address import own_address  # noqa: E402

for program in ("tandem", "tandemd", "tandem-node", "tandem-rank", "tandem-probe"):
    if not (BIN / program).exists():
        skip(f"{BIN / program} isn't built")

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="admin_test"))
ENV = {**{k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LC_", "LANG"))},
       "XDG_CONFIG_HOME": str(FOLDER / "config"), "HOME": str(FOLDER), "LC_ALL": "C.UTF-8"}


class Server:
    def __init__(self):
        self.address = own_address()
        self.socket = f"unix:{FOLDER}/data/tandemd.sock"
        for tenant in ("red", "blue"):
            shutil.copytree(TINY, FOLDER / tenant)
        config = FOLDER / "tandemd.yaml"
        config.write_text(f"data_dir: {FOLDER}/data\ndevices: 2\nlisten: ['{self.address}']\nroots:\n"
                          f"  - {{tenant: red, read: [{FOLDER}/red]}}\n"
                          f"  - {{tenant: blue, read: [{FOLDER}/blue]}}\n"
                          f"  - {{tenant: wide, read: [{FOLDER}]}}\n")
        self.start()

    def start(self):
        self.log = open(FOLDER / "tandemd.log", "ab")
        self.process = subprocess.Popen(
            [BIN / "tandemd", "--config", FOLDER / "tandemd.yaml"], env=ENV, stdout=self.log,
            stderr=subprocess.STDOUT)
        wait_for("the server", lambda: self.process.poll() is not None or
                 tandem("operator", "nodes", check=False).returncode == 0)
        assert self.process.poll() is None, (FOLDER / "tandemd.log").read_text()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE)
        self.log.close()


def tandem(who, *args, check=True, code=0):
    """who: the operator, at the server's socket; or whose token is in FOLDER/WHO.token."""
    env = {**ENV, "TANDEM_SERVER": SERVER.socket if who == "operator" else SERVER.address}
    if who != "operator":
        env["TANDEM_TOKEN_FILE"] = str(FOLDER / f"{who}.token")
    done = subprocess.run([BIN / "tandem", *map(str, args)], env=env, capture_output=True,
                          text=True, timeout=DEADLINE, stdin=subprocess.DEVNULL)
    assert not check or done.returncode == code, (who, args, done.returncode, done.stdout,
                                                  done.stderr)
    return done


def listed(who, *args):
    return json.loads(tandem(who, *args, "-o", "json").stdout)


def job_file(name, folder):
    path = FOLDER / f"{name}.yaml"
    path.write_text(json.dumps({
        "name": name, "model": {"path": str(folder)},
        "data": {"train": [{"path": str(folder / "train.bin"), "format": "u16", "window": "T+1"}]},
        "training": {"steps": 3, "seq_len": 32, "global_batch_size": 2}}))
    return path


def make_user(name, tenant, role):
    tandem("operator", "admin", "user", "add", name, "--tenant", tenant, "--role", role)
    tandem("operator", "admin", "token", "create", "--user", name, "--tenant", tenant, "--label",
           "test", "--out", FOLDER / f"{name}.token")


def token_id(user, tenant="red"):
    return [t["id"] for t in listed("operator", "admin", "token", "ls", "--user", user,
                                         "--tenant", tenant)
            if t["user"] == user][-1]


class Admin(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for tenant in ("red", "blue"):
            tandem("operator", "admin", "tenant", "add", tenant)
        make_user("ann", "red", "member")
        make_user("tia", "red", "tenant-admin")
        make_user("bob", "blue", "member")
        make_user("vic", "blue", "viewer")

    def refused(self, who, *args):
        done = tandem(who, *(args or ("ls",)), code=1)
        return done.stderr

    def test_each_gets_in_to_what_its_role_allows(self):
        tenants = {t["name"]: t for t in listed("operator", "admin", "tenant", "ls")}
        self.assertTrue({"red", "blue"} <= set(tenants))
        self.assertEqual(stat.S_IMODE((FOLDER / "ann.token").stat().st_mode), 0o600)
        users = {u["name"]: u["role"] for u in listed("tia", "admin", "user", "ls")}
        self.assertEqual((users["ann"], users["tia"]), ("member", "tenant-admin"))
        self.assertNotIn("bob", users)
        tandem("tia", "admin", "user", "add", "eve", "--role", "viewer")
        self.refused("tia", "admin", "user", "add", "eve", "--tenant", "blue")
        self.refused("tia", "admin", "user", "set", "eve", "--role", "admin")
        self.refused("ann", "admin", "user", "ls")
        self.refused("vic", "submit", job_file("no", FOLDER / "blue"))
        job = tandem("ann", "submit", job_file("hers", FOLDER / "red"), "-q").stdout.strip()
        self.refused("bob", "show", job)
        self.assertEqual(tandem("ann", "watch", job).returncode, 0)
        self.assertNotIn("hers", [j["name"] for j in listed("bob", "ls", "-a")])

    def test_a_tenant_sees_that_devices_are_in_use_and_an_admin_whose_jobs_there_are(self):
        long = "training.steps=40000000"
        red = tandem("ann", "submit", job_file("red1", FOLDER / "red"), "-q", "--set",
                     long).stdout.strip()
        blue = tandem("bob", "submit", job_file("blue1", FOLDER / "blue"), "-q", "--set",
                      long).stdout.strip()
        try:
            wait_for("the job to run", lambda: f"job {red}" in tandem("ann", "nodes").stdout)
            said = tandem("bob", "nodes").stdout
            self.assertIn("in use", said)
            self.assertNotIn("job -1", said)
            self.assertNotIn("TENANT", tandem("ann", "ls").stdout)
            self.assertRegex(tandem("operator", "ls").stdout, r"(?s)TENANT.* blue .* red ")
        finally:
            tandem("ann", "cancel", red)
            tandem("bob", "cancel", blue)

    def test_each_tenant_reads_below_its_own_roots(self):
        said = self.refused("ann", "submit", job_file("theirs", FOLDER / "blue"))
        self.assertIn("theirs.yaml:1:", said)
        self.assertIn(f"outside of what tenant red may read: {FOLDER}/red", said)
        self.assertNotIn(f"{FOLDER}/blue\n", said.replace(f"model.path: {FOLDER}/blue", ""))
        nothing = self.refused("ann", "submit", job_file("theirs", FOLDER / "blue2"))
        self.assertEqual(nothing.replace("blue2", "blue"), said)

    # Not even a root that holds the server's own folder opens that.
    def test_no_tenant_trains_on_the_servers_own_files(self):
        tandem("operator", "admin", "tenant", "add", "wide")
        make_user("wim", "wide", "member")
        job = job_file("steal", FOLDER / "red")
        (FOLDER / "red/aside").symlink_to(FOLDER / "data/tandem.db")
        for path in ("data/tandem.db", "data/jobs/../tandem.db", "red/aside"):
            said = self.refused("wim", "submit", job, "--set",
                                f"data.train.0.path={FOLDER}/{path}", "--set",
                                "data.train.0.format=text")
            self.assertIn("the server's data folder", said)
        done = tandem("wim", "submit", job, "-q").stdout.strip()
        tandem("wim", "watch", done)
        tandem("wim", "submit", job, "--dry-run", "--set",
               f"model.path={FOLDER}/data/jobs/{done}/export")
        (FOLDER / "red/door").symlink_to(FOLDER / "data/jobs" / done / "export")
        self.refused("wim", "submit", job, "--set", f"model.path={FOLDER}/red/door")

    def test_a_token_ends_when_it_is_told_to(self):
        make_user("rot", "red", "viewer")
        shutil.copy(FOLDER / "rot.token", FOLDER / "old.token")
        tandem("operator", "admin", "token", "rotate", token_id("rot"), "--grace", "1h", "--out",
               FOLDER / "rot.token")
        tandem("rot", "ls")
        tandem("old", "ls")
        shutil.copy(FOLDER / "rot.token", FOLDER / "old2.token")
        tandem("operator", "admin", "token", "rotate", token_id("rot"), "--out",
               FOLDER / "rot.token")
        tandem("rot", "ls")
        self.refused("old2")
        tandem("operator", "admin", "token", "revoke", token_id("rot"))
        self.refused("rot")
        rows = list(csv.DictReader(io.StringIO(tandem(
            "operator", "admin", "token", "ls", "-a", "--user", "rot", "--tenant", "red", "-o",
            "csv").stdout)))
        self.assertEqual([r["state"] for r in rows], ["good", "revoked", "revoked"],
                         "the first is in its hour of grace")
        make_user("due", "red", "viewer")
        tandem("due", "admin", "token", "create", "--ttl", "1s", "--out", FOLDER / "short.token")
        wait_for("the token to expire", lambda: tandem("short", "ls", check=False).returncode == 1)
        tandem("due", "ls")

    def test_a_user_or_a_tenant_is_locked_out_and_in_again(self):
        make_user("off", "red", "member")
        tandem("operator", "admin", "user", "disable", "off", "--tenant", "red")
        self.refused("off")
        tandem("operator", "admin", "user", "enable", "off", "--tenant", "red")
        tandem("off", "ls")
        tandem("operator", "admin", "tenant", "add", "green")
        make_user("gil", "green", "member")
        tandem("operator", "admin", "tenant", "disable", "green")
        self.refused("gil")
        tandem("operator", "admin", "tenant", "enable", "green")
        tandem("gil", "ls")
        rows = listed("operator", "admin", "audit", "--method", "admin/settenant")
        self.assertEqual([r["object"] for r in rows],
                         ["tenant green: enabled", "tenant green: disabled"])

    def test_what_was_done_and_refused_is_on_record(self):
        make_user("rec", "red", "viewer")
        self.refused("rec", "cancel", "1")
        rows = wait_for("the refusal on record", lambda: listed(
            "operator", "admin", "audit", "--user", "rec", "--since", "1h"))
        self.assertIn("Jobs/Cancel", {r["method"] for r in rows})
        self.assertNotEqual({r["result"] for r in rows if r["method"] == "Jobs/Cancel"}, {"ok"})
        made = listed("operator", "admin", "audit", "--method", "Admin/CreateUser", "-n", 1000)
        self.assertIn("rec", json.dumps(made))
        secret = (FOLDER / "rec.token").read_text().strip()
        every = tandem("operator", "admin", "audit", "-n", 10000, "-o", "json").stdout
        self.assertNotIn(secret, every)

    # What was taken away since the backup stays away; what was given since is gone.
    def test_a_backup_brings_back_who_there_was(self):
        make_user("bak", "red", "viewer")
        make_user("bad", "red", "viewer")
        copy = FOLDER / "copy.db"
        said = tandem("operator", "admin", "backup", copy).stdout
        self.assertIn(str(copy), said)
        tandem("operator", "admin", "backup", copy, code=1)
        tandem("operator", "admin", "token", "revoke", token_id("bad"))
        make_user("new", "red", "viewer")
        tandem("operator", "admin", "user", "set", "bak", "--tenant", "red", "--role", "member")
        refused = tandem("operator", "admin", "restore", copy, "--data-dir", FOLDER / "data", code=1)
        self.assertIn("tandem", refused.stderr, "a server is there")
        SERVER.stop()
        try:
            tandem("operator", "admin", "restore", copy, "--data-dir", FOLDER / "data")
        finally:
            SERVER.start()
        tandem("bak", "ls")
        self.refused("bad")
        self.refused("new")
        roles = {u["name"]: u["role"] for u in listed("operator", "admin", "user", "ls", "-t", "red")}
        self.assertEqual(roles["bak"], "viewer")
        self.assertNotIn("new", roles)

    def test_tokens_outlive_a_restart(self):
        make_user("res", "red", "viewer")
        SERVER.stop()
        SERVER.start()
        tandem("res", "ls")


if __name__ == "__main__":
    SERVER = object.__new__(Server)
    try:
        SERVER.__init__()
        unittest.main(verbosity=2)
    except SystemExit as leave:
        if leave.code:
            print((FOLDER / "tandemd.log").read_text(errors="replace")[-3000:], file=sys.stderr)
        raise
    finally:
        if SERVER.process.poll() is None:
            SERVER.stop()
        end_gangs(FOLDER / "data")
        shutil.rmtree(FOLDER, ignore_errors=True)
