"""Planted secrets: whatever happens (jobs that end well and badly, watches, kills, restarts, backups), a
secret is found nowhere but in the 0600 file that is its own: not in the database and its log, in no
journal, log, job folder or temporary file, in no command line and no environment. Markers planted in
the same places show that the search would find them."""
import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(__file__))
from bench_of_programs import (BIN, DEADLINE, TINY, end_processes, free_port, new_folder,  # noqa: E402
                               processes, program_of, skip, wait_for)

PROGRAMS = ("tandem", "tandemd", "tandem-node", "tandem-rank", "tandem-probe")
for program in PROGRAMS:
    if not (BIN / program).exists():
        skip(f"{BIN / program} isn't built")

MARK_IN_JOB, MARK_IN_ENV, SECRET_X, SECRET_Y = (
    f"{word}-{os.urandom(12).hex()}" for word in ("name", "mark", "secretx", "secrety"))

# Keeps what it is shown to the others of the machine, who may be too slow to look, and becomes
# tandem-probe.
RECORD = """#!/bin/sh
for what in cmdline environ; do
    cat /proc/$$/$what > "{shown}/tandem-probe.$$.$what"
done
exec "{real}/tandem-probe" "$@"
"""

# Reads the ticket as tandem-node would, keeps it, and becomes tandem-node with it.
CAPTURE = """#!{python}
import os, sys
ticket = b""
while chunk := os.read(3, 65536):
    ticket += chunk
path = "{tickets}/%d" % os.getpid()
with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
    f.write(ticket)
read, write = os.pipe()
os.write(write, ticket)
os.close(write)
os.dup2(read, 3)
os.close(read)
os.execv("{node}", ["{node}", *sys.argv[1:]])
"""


def forms(secret):
    """The ways in which a secret could be written down."""
    raw = secret.encode()
    found = {raw, base64.b64encode(raw).rstrip(b"=")}
    digits = re.sub(r"^tnd_", "", secret)
    if re.fullmatch(r"[0-9a-f]{64}", digits):
        found |= {digits.encode(), digits.upper().encode(), bytes.fromhex(digits),
                  base64.b64encode(bytes.fromhex(digits)).rstrip(b"=")}
    return found


def parent_of(pid):
    """0 = it is gone."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def words_of(pid):
    """[] = it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


class Bench:
    def __init__(self, dev):
        self.dev = dev
        self.folder = new_folder()
        self.data = self.folder / "data"
        for name in ("bin", "real", "tickets", "shown", "tmp", "keys"):
            (self.folder / name).mkdir()
        for name in PROGRAMS:
            place = self.folder / ("real" if name in ("tandem-node", "tandem-probe") else "bin")
            shutil.copy2(BIN / name, place / name)
        for name, text in (("tandem-node", CAPTURE.format(
                python="/usr/bin/python3", tickets=self.folder / "tickets",
                node=self.folder / "real/tandem-node")), ("tandem-probe", RECORD.format(
                    shown=self.folder / "shown", real=self.folder / "real"))):
            wrapper = self.folder / "bin" / name
            wrapper.write_text(text)
            wrapper.chmod(0o755)
        self.address = f"127.0.0.1:{free_port()}"
        self.secrets = {"SECRET_X": SECRET_X}
        # Whose own each is: there it may be, if the file is for its owner alone.
        self.homes = {"SECRET_X": [], "SECRET_Y": []}
        self.env = {**{k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")},
                    "XDG_CONFIG_HOME": str(self.folder / "config"), "HOME": str(self.folder),
                    "TMPDIR": str(self.folder / "tmp"), "LC_ALL": "C.UTF-8"}
        self.seen = {}  # (program, "cmdline" or "environ") -> bytes, of all processes there were
        self.lock = threading.Lock()  # of seen
        self.stop_looking = threading.Event()
        self.looker = threading.Thread(target=self.look, daemon=True)
        self.looker.start()
        self.process = None
        self.configure()
        self.start()

    def configure(self):
        self.arguments = ["--dev", "--data-dir", self.data, "--listen", self.address, "--devices", "2"]
        if self.dev:
            return
        subprocess.run([self.folder / "bin/tandem", "admin", "init", "--data-dir", self.data, "--out",
                        self.folder / "keys", "--host", "localhost", "--listen", self.address],
                       check=True, capture_output=True, env=self.env)
        for key in (self.folder / "keys").iterdir():
            text = key.read_text()
            if "PRIVATE KEY" in text:
                self.secrets[key.name] = text.splitlines()[1]
                self.homes[key.name] = [key]
        assert len(self.secrets) == 3, "the keys of the CA and of the server"
        config = self.folder / "keys/tandemd.yaml"
        with open(config, "a") as more:
            more.write("devices: 2\npass_env: [SECRET_Y]\n")
        self.arguments = ["--config", config]

    def start(self):
        self.log = open(self.folder / "tandemd.log", "ab")
        self.process = subprocess.Popen(
            [self.folder / "bin/tandemd", *self.arguments], stdout=self.log,
            stderr=subprocess.STDOUT, cwd=self.folder,
            env={**self.env, "SECRET_X": SECRET_X, "SECRET_Y": SECRET_Y,
                 "AWS_SECRET_ACCESS_KEY": SECRET_X, "TANDEM_MARK": MARK_IN_ENV})
        wait_for("the server", lambda: self.tandem("nodes", check=False).returncode == 0)
        if self.dev:
            self.secrets["dev token"] = (self.data / "dev-token").read_text().strip()
            self.homes["dev token"] = [self.data / "dev-token", self.folder / "config/tandem/token"]

    def tandem(self, *args, check=True, code=0, env=None):
        done = subprocess.run(
            [self.folder / "bin/tandem", *map(str, args)], capture_output=True, text=True,
            timeout=DEADLINE, cwd=self.folder, stdin=subprocess.DEVNULL,
            env={**self.env, "TANDEM_SERVER": f"unix:{self.data}/tandemd.sock", **(env or {})})
        assert not check or done.returncode == code, (args, done)
        with open(self.folder / "cli.log", "a") as log:
            log.write(done.stdout + done.stderr)
        return done

    # ---- what happens ----

    def job_file(self, name, **training):
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps({
            "name": name, "model": {"path": str(TINY)},
            "data": {"train": [{"path": str(TINY / "train.bin"), "format": "u16",
                                "window": "T+1"}]},
            "training": {"steps": 20, "seq_len": 32, "global_batch_size": 2, **training},
            "checkpoint": {"interval": 5}, "retry": {"max_restarts": 1}}))
        return path

    def users(self):
        """Tokens of users: made into files, rotated, revoked; the old ones are secrets as well."""
        if self.dev:
            return
        self.tandem("admin", "tenant", "add", "red")
        self.tandem("admin", "user", "add", "ann", "--tenant", "red")
        out = self.folder / "ann.token"
        made = self.tandem("admin", "token", "create", "--user", "ann", "--tenant", "red", "--out",
                           out, "-o", "json")
        self.secrets["token of ann"] = out.read_text().strip()
        self.homes["token of ann"] = [out]
        second = self.folder / "ann2.token"
        self.tandem("admin", "token", "rotate", json.loads(made.stdout)["token"]["id"], "--grace",
                    "1h", "--out", second)
        self.secrets["second token of ann"] = second.read_text().strip()
        self.homes["second token of ann"] = [second]
        trusted = {"TANDEM_SERVER": f"tls://{self.address}", "TANDEM_TOKEN_FILE": str(second),
                   "TANDEM_CA_FILE": str(self.folder / "keys/ca.pem")}
        self.tandem("ls", env=trusted)
        # A wrong one is on record as refused, and its text isn't.
        wrong = self.folder / "wrong.token"
        wrong.write_text("tnd_" + os.urandom(32).hex() + "\n")
        wrong.chmod(0o600)
        self.secrets["wrong token"] = wrong.read_text().strip()
        self.homes["wrong token"] = [wrong]
        self.tandem("ls", code=1, env={**trusted, "TANDEM_TOKEN_FILE": str(wrong)})
        self.tandem("admin", "token", "ls", "-a", "-o", "json")
        self.tandem("admin", "audit", "-n", 1000, "-o", "json")

    def jobs(self):
        good = self.tandem("submit", self.job_file(MARK_IN_JOB), "-q").stdout.strip()
        self.tandem("watch", good)
        # One whose rank is killed, whose tandem-node is killed, then cancelled.
        job = self.tandem("submit", self.job_file("killed", steps=1000000), "-q").stdout.strip()
        last = 0
        for program in ("tandem-rank", "tandem-node"):
            # Of an attempt that trains: the one before may still be about to leave.
            def in_training():
                shown = self.show(job)
                trains = shown["state"] == "RUNNING" and shown["attempt"] > last and shown["step"] > 0
                return shown["attempt"] if trains else None

            last = wait_for("training", in_training)
            pid = self.of_attempt(program, job, last)
            self.check_limits(pid)
            self.watched(job)
            self.look_once()
            os.kill(pid, signal.SIGSEGV)
            wait_for("the attempt's end", lambda: self.show(job)["attempt"] > last
                     or self.show(job)["state"] != "RUNNING")
        self.tandem("cancel", job, check=False)
        wait_for("its end", lambda: self.show(job)["state"] in ("CANCELLED", "FAILED"))
        for verb in (["logs", good], ["show", good, "-o", "json"], ["metrics", good, "-o", "csv"],
                     ["why", job], ["ckpt", "ls", good], ["doctor"]):
            self.tandem(*verb, check=False)
        self.check_limits(self.process.pid)
        self.check_who_looks_into_tandemd()
        self.tandem("submit", self.folder / "none.yaml", code=1)

    def show(self, job):
        return json.loads(self.tandem("show", job, "-o", "json").stdout)

    def of_attempt(self, program, job, attempt):
        """The process of that program in an attempt that trains; those of others may be about to leave."""
        words = ["--job", job, "--attempt", str(attempt)]
        node = next(pid for pid, exe in processes(self.folder).items()
                    if exe.endswith("tandem-node") and words_of(pid)[1:5] == words)
        if program == "tandem-node":
            return node
        return next(pid for pid, exe in processes(self.folder).items() if exe.endswith(program) and
                    parent_of(pid) == node)

    def watched(self, job):
        """Somebody watches a job that goes on, until it was seen what that process shows."""
        watcher = subprocess.Popen([self.folder / "bin/tandem", "watch", job], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, cwd=self.folder, stdin=subprocess.DEVNULL,
                                   env={**self.env, "TANDEM_SERVER": f"unix:{self.data}/tandemd.sock"})
        try:
            wait_for("a look at it", lambda: ("tandem", "environ") in self.seen)
        finally:
            watcher.kill()
            watcher.wait()

    def check_limits(self, pid):
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"Max core file size +[01] ", limits), limits

    def check_who_looks_into_tandemd(self):
        """Only root does, as soon as it has come to its main(); and of root's processes those that may
        trace others, which one in a container often may not."""
        try:
            shown = pathlib.Path(f"/proc/{self.process.pid}/environ").read_bytes()
        except PermissionError:
            return
        assert os.geteuid() == 0 and SECRET_X.encode() in shown

    def restart_and_backup(self):
        self.tandem("admin", "backup", self.folder / "copy.db")
        self.process.kill()  # what lies in the WAL stays there
        self.process.wait()
        self.log.close()
        self.search("after a kill")
        self.start()

    # ---- the search ----

    def look(self):
        """All the time: what any process of ours shows to the others of the machine."""
        while not self.stop_looking.is_set():
            self.look_once()
            time.sleep(0.002)

    def look_once(self):
        for pid in processes(self.folder):
            for what in ("cmdline", "environ"):
                with contextlib.suppress(OSError):  # it has gone, or shows that to nobody
                    exe, data = os.path.basename(program_of(pid)), pathlib.Path(f"/proc/{pid}/{what}").read_bytes()
                    self.note(exe, what, data)
        for path in (self.folder / "shown").iterdir():
            exe, _, what = path.name.split(".")
            self.note(exe, what, path.read_bytes())

    def note(self, exe, what, data):
        with self.lock:
            self.seen.setdefault((exe, what), set()).add(data)

    def tickets(self):
        for path in (self.folder / "tickets").iterdir():
            tokens = re.findall(rb"[0-9a-f]{64}", path.read_bytes())
            assert tokens, "no token in a ticket"
            for i, token in enumerate(tokens):
                name = f"token {i} of the attempt of process {path.name}"
                self.secrets[name] = token.decode()
                self.homes[name] = [path]

    def places(self):
        """Name and content of everything that was left or shown."""
        left = (pathlib.Path(folder) / name for folder, _, files in os.walk(self.folder) for name in files)
        for path in sorted(left):  # unlike rglob, it stumbles over nothing that goes
            if path.is_file() and not path.is_symlink() and path.parent.name not in ("bin", "real",
                                                                                     "shown"):
                with contextlib.suppress(FileNotFoundError):  # it is gone meanwhile
                    yield path, path.read_bytes()
        self.look_once()
        with self.lock:
            shown = [(place, data) for place, texts in sorted(self.seen.items()) for data in texts]
        yield from shown

    def search(self, when):
        self.tickets()
        found, marks = [], set()
        wanted = [(name, form) for name, secret in self.secrets.items() for form in forms(secret)]
        for place, data in self.places():
            for mark in (MARK_IN_JOB, MARK_IN_ENV, SECRET_Y):
                if mark.encode() in data:
                    marks.add((mark, place if isinstance(place, tuple) else place.name))
            for name, form in wanted:
                if form not in data:
                    continue
                if place in self.homes[name]:
                    assert stat.S_IMODE(place.stat().st_mode) == 0o600, place
                elif name == "SECRET_X" and place == ("tandemd", "environ"):
                    pass  # there it was planted
                else:
                    found.append((when, name, str(place)))
        assert not found, found
        return marks

    def check_marks(self, marks):
        places = {place for mark, place in marks if mark == MARK_IN_JOB}
        assert "tandem.db" in places or "tandem.db-wal" in places, places
        assert ("tandem-rank", "environ") in {p for mark, p in marks if mark == MARK_IN_ENV}, marks
        reached = {p for mark, p in marks if mark == SECRET_Y}
        if self.dev:
            assert reached <= {("tandemd", "environ")}, reached
        else:
            assert ("tandem-rank", "environ") in reached, reached
        for exe in ("tandem-node", "tandem-rank", "tandem-probe", "tandem"):
            assert (exe, "environ") in self.seen, f"{exe} was never seen"

    def check_that_a_leak_is_found(self):
        leaks = {self.data / f"jobs/leak-{i}": name for i, name in enumerate(self.secrets)}
        for leak, name in leaks.items():
            leak.write_bytes(b"before" + max(forms(self.secrets[name]), key=len) + b"behind")
        try:
            self.search("a planted leak")
        except AssertionError as found:
            for leak, name in leaks.items():
                assert f"('a planted leak', {name!r}, {str(leak)!r})" in str(found), (name, found)
        else:
            raise AssertionError("secrets were planted and not found")
        for leak in leaks:
            leak.unlink()

    def check_no_cores(self):
        cores = [p for p in self.folder.rglob("core*") if p.is_file()]
        assert not cores, cores

    def close(self):
        self.stop_looking.set()
        self.looker.join()
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        end_processes(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def run(dev):
    bench = Bench(dev)
    try:
        bench.users()
        bench.jobs()
        bench.restart_and_backup()
        bench.process.send_signal(signal.SIGTERM)
        assert bench.process.wait(DEADLINE) == 0
        bench.check_marks(bench.search("at the end"))
        bench.check_that_a_leak_is_found()
        bench.check_no_cores()
        print(f"ok {'--dev' if dev else '--config'}: {len(bench.secrets)} secrets in "
              f"{sum(1 for _ in bench.places())} places", flush=True)
    except BaseException:
        traceback.print_exc()
        print((bench.folder / "tandemd.log").read_text(errors="replace")[-4000:], file=sys.stderr)
        raise
    finally:
        bench.close()


if __name__ == "__main__":
    if not os.environ.get("TANDEM_SAMPLE"):
        run(dev=True)
    run(dev=False)
