#!/usr/bin/env python3
"""The built tandem against the real tandemd, as a user would run it: every verb, exit codes, csv and
JSON that parse, the terminal's view through a pty. TANDEM_BIN: folder of the programs (default
build/dev/bin). Exits 77 where the programs that train aren't built."""
import csv
import io
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from gangs_of import end_gangs  # noqa: E402
from own_address import own_address  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TANDEM_BIN", ROOT / "build/dev/bin")).resolve()
TINY = ROOT / "tests/golden/llama-tiny"
ENDLESS = 40000000  # steps of a job that is stopped
DEADLINE = int(os.environ.get("E2E_DEADLINE", "180"))  # seconds, of every command; far above what any should take

for program in ("tandem", "tandemd", "tandem-node", "tandem-rank", "tandem-probe"):
    if not (BIN / program).exists():
        print(f"SKIPPED: {BIN / program} isn't built")
        sys.exit(77)

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="cli_test"))
ENV = {k: v for k, v in os.environ.items()
       if not k.startswith(("TANDEM_", "LC_", "LANG", "NO_COLOR"))}
ENV.update(XDG_CONFIG_HOME=str(FOLDER / "config"), LC_ALL="C.UTF-8", TERM="xterm", COLUMNS="100",
           LINES="30", HOME=str(FOLDER))


class Server:
    """A private tandemd --dev with four devices; can be killed and started again."""

    def __init__(self):
        self.address = own_address()
        self.process = None
        self.log = open(FOLDER / "tandemd.log", "a")
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [BIN / "tandemd", "--dev", "--data-dir", FOLDER / "data", "--listen", self.address,
             "--devices", "4"], env=ENV, stderr=self.log)
        until = time.monotonic() + DEADLINE
        while tandem("nodes").returncode != 0:
            assert self.process.poll() is None and time.monotonic() < until, "no server"
            time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE)
        self.log.close()


def tandem(*args, env=None, stdin=""):
    return subprocess.run([BIN / "tandem", *map(str, args)], env={**ENV, **(env or {})},
                          capture_output=True, text=True, errors="replace",
                          timeout=DEADLINE, input=stdin)


def job_spec(name, steps, **more):
    return {
        "name": name, "model": {"path": str(TINY)},
        "data": {"order": "sequential",
                 "train": [{"path": str(TINY / "train.bin"), "format": "u16", "window": "T+1"}]},
        "training": {"steps": steps, "seq_len": 32, "global_batch_size": 4,
                     "optimizer": {"lr": 1e-3}, "lr_schedule": {"warmup_steps": 2}}, **more}


def job_file(name, steps, **more):
    path = FOLDER / f"{name}.yaml"
    path.write_text(json.dumps(job_spec(name, steps, **more)))  # JSON is YAML
    return path


def submit(name, steps, **more):
    done = tandem("submit", job_file(name, steps, **more), "-q")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def wait_for(condition):
    until = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.05)
    return value


def state(job):
    return json.loads(tandem("show", job, "-o", "json").stdout)["state"]


class Terminal:
    """A command on a pseudo terminal."""

    def __init__(self, *args, env=None):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(BIN / "tandem", ["tandem", *map(str, args)], {**ENV, **(env or {})})

    def read_until(self, pattern):
        until = time.monotonic() + DEADLINE
        while not re.search(pattern, self.text):
            assert time.monotonic() < until, self.text
            if not self.read():
                break
        return re.search(pattern, self.text)

    def read(self):
        if not select.select([self.fd], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        self.text += data.decode("utf-8", "replace")
        return bool(data)

    def interrupt(self):
        os.write(self.fd, b"\x03")

    def close(self):
        while self.read():
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


SERVER = None


def setUpModule():
    global SERVER
    SERVER = Server()


def tearDownModule():
    SERVER.stop()
    end_gangs(FOLDER / "data")
    shutil.rmtree(FOLDER, ignore_errors=True)


class Usage(unittest.TestCase):
    """What needs no server."""

    def test_no_arguments_explain_themselves(self):
        self.assertEqual(tandem().returncode, 2)
        shown = tandem("--help")
        self.assertEqual(shown.returncode, 0)
        for verb in ("submit", "watch", "metrics", "generate"):
            self.assertIn(verb, shown.stdout)
            self.assertIn(f"tandem {verb}", tandem(verb, "--help").stdout)
            self.assertEqual(tandem(verb, "--help").stdout, tandem("help", verb).stdout)

    def test_wrong_words_name_the_nearest(self):
        for args, near in ((["sumbit"], "submit"), (["ls", "--sate", "x"], "--state"),
                           (["ls", "--state", "runing"], "RUNNING"),
                           (["metrics", "1", "--series", "los"], "loss")):
            done = tandem(*args)
            self.assertEqual(done.returncode, 2, args)
            self.assertIn(near, done.stderr)

    def test_formats_that_a_verb_lacks_are_refused(self):
        for verb in ("doctor", "version", "init", "logs", "watch", "generate"):
            done = tandem(verb, "-o", "json")
            self.assertEqual((done.returncode, done.stdout), (2, ""), verb)
            self.assertIn("text only", done.stderr)

    def test_missing_words_are_asked_for(self):
        for verb in ("submit", "show", "watch", "metrics", "logs", "cancel", "why", "ckpt", "generate"):
            done = tandem(verb)
            self.assertEqual(done.returncode, 2, verb)
            self.assertIn("--help", done.stderr)
        self.assertEqual(tandem("ls", "-o", "xml").returncode, 2)
        self.assertEqual(tandem("show", "1", "2").returncode, 2)
        self.assertEqual(tandem("metrics", "1", "--points", "0").returncode, 2)
        # A flag is named by its nearest name, a number with its flag and range.
        for flags, words in ((("--max-token", "4"), "did you mean --max-tokens?"),
                             (("--promt", "x"), "did you mean --prompt?"),
                             (("--seed",), "--seed needs a value"),
                             (("--max-tokens", "-1"), "--max-tokens -1: expected a whole number "
                                                      "from 0 to 1000000"),
                             (("--top-k", "x"), "--top-k x: expected a whole number from 0 to"),
                             (("--temperature=-1",), "--temperature -1: expected a number, 0 or")):
            done = tandem("generate", "--model", str(TINY), "--prompt", "a", *flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
        said = tandem("generate", "--model", str(TINY)).stderr
        self.assertIn("Give --prompt TEXT", said)
        self.assertNotIn("tandem-tool", said)

    def test_nobody_there_is_exit_code_4(self):
        for args in (["nodes"], ["ls"], ["show", "1"], ["watch", "1"], ["metrics", "1"],
                     ["logs", "1"], ["doctor"]):
            for address in (own_address(), f"unix:{FOLDER}/none.sock"):
                done = tandem(*args, "--server", address)
                self.assertEqual(done.returncode, 4, args)
                # Who follows a job gives a server that is just starting a moment.
                self.assertEqual("trying again for 5 s" in done.stderr, args[0] == "watch", args)
        done = tandem("ls", env={"XDG_CONFIG_HOME": str(FOLDER / "empty")})
        self.assertEqual(done.returncode, 4)
        self.assertIn("tandemd --dev", done.stderr)

    def test_plain_addresses_and_wrong_tokens_are_refused(self):
        done = tandem("ls", "--server", "http://10.0.0.1:7000")
        self.assertEqual(done.returncode, 1)
        self.assertIn("plain text is not spoken", done.stderr)
        wrong = FOLDER / "wrong-token"
        wrong.write_text("0" * 64)
        done = tandem("ls", env={"TANDEM_TOKEN_FILE": str(wrong)})
        self.assertEqual(done.returncode, 1)
        self.assertIn("TANDEM_TOKEN_FILE", done.stderr)

    def test_init_writes_a_file_once(self):
        path = FOLDER / "started" / "mine.yaml"
        path.parent.mkdir()
        self.assertEqual(tandem("init", path).returncode, 0)
        (path.parent / "corpus.txt").write_text("to be or not to be " * 1000)
        planned = tandem("plan", path)
        self.assertEqual(planned.returncode, 0, planned.stderr)
        self.assertIn("1.25M parameters", planned.stdout)
        before = path.read_text()
        self.assertEqual(tandem("init", path).returncode, 1)
        self.assertEqual(path.read_text(), before)
        self.assertEqual(tandem("init", "-").stdout, before)

    def test_faults_in_a_job_file_have_their_place(self):
        path = FOLDER / "fault.yaml"
        path.write_text("name: x\ntraining:\n  stpes: 3\n")
        done = tandem("submit", path)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"fault\.yaml:3:3: .*steps")
        self.assertEqual(tandem("submit", FOLDER / "nowhere.yaml").returncode, 1)


class OneRun(unittest.TestCase):
    """A job from submission to its curves."""

    @classmethod
    def setUpClass(cls):
        cls.job = submit("one", 30, parallel={"data": 2}, checkpoint={"interval": 10},
                         tags=["first"], hold=True)
        watch = subprocess.Popen([BIN / "tandem", "watch", cls.job], env=ENV, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        cls.watched = watch.stdout.readline()  # it is there before the run begins
        tandem("release", cls.job)
        cls.watched += watch.communicate(timeout=DEADLINE)[0]
        cls.watch_code = watch.returncode

    def test_watch_ends_well_in_plain_lines(self):
        self.assertEqual(self.watch_code, 0, self.watched)
        self.assertIn("SUCCEEDED", self.watched)
        lines = self.watched.splitlines()
        last = [line for line in lines if line.startswith("step 30/30 ")]
        self.assertEqual(len(last), 1, self.watched)
        self.assertRegex(last[0], r"^step 30/30 loss \d")
        self.assertLess(lines.index(last[0]), len(lines) - 2, "the last step comes before the end")
        self.assertRegex(lines[-1], r"^SUCCEEDED after .*; weights in .*/export$")
        self.assertNotIn("\033", self.watched)
        self.assertNotIn("\r", self.watched)
        again = tandem("watch", "one")
        self.assertEqual(again.returncode, 0)

    def test_show_is_a_page_and_json(self):
        page = tandem("show", "one").stdout
        for words in ("one  job", "SUCCEEDED", "step 30 of 30 (100%)", "at step 1", "(median step)",
                      "data 2", "first", "events",
                      "submitted"):
            self.assertIn(words, page)
        self.assertRegex(page, r"checkpoint  step 30 .* and 2 before it")
        job = json.loads(tandem("show", self.job, "-o", "json").stdout)
        self.assertEqual(str(job["id"]), self.job)
        self.assertEqual(job["state"], "SUCCEEDED")
        self.assertEqual((job["attempt"], job["step"]), (1, 30))
        self.assertIn("cause", job)
        self.assertEqual(job["spec"]["training"]["optimizer"]["weight_decay"], 0.1)
        self.assertIn("state: SUCCEEDED", tandem("show", self.job, "-o", "yaml").stdout)

    def test_metrics_csv_is_one_full_row_a_step(self):
        done = tandem("metrics", self.job, "-o", "csv")
        self.assertEqual(done.stdout.splitlines()[0],
                         "step,attempt,loss,grad_norm,lr,tokens,step_ms,tokens_per_s,mfu")
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertEqual([int(r["step"]) for r in rows], list(range(1, 31)))
        asked = tandem("metrics", "one", "--series", "lr,loss", "-o", "csv").stdout
        self.assertEqual(asked.splitlines()[0], "step,attempt,lr,loss")
        for row, line in zip(rows, asked.splitlines()[1:]):
            self.assertEqual(line, f"{row['step']},1,{row['lr']},{row['loss']}")
            self.assertEqual(f"{float(row['loss']):.17g}", row["loss"])

    def test_metrics_come_in_every_format(self):
        rows = json.loads(tandem("metrics", self.job, "-o", "json", "--from", 3, "--to", 5).stdout)
        self.assertEqual([r["step"] for r in rows], [3, 4, 5])
        few = json.loads(tandem("metrics", self.job, "-o", "json", "--points", 5).stdout)
        self.assertLessEqual(len(few), 7)
        table = tandem("metrics", self.job)
        self.assertIn("GRAD_NORM", table.stdout)
        self.assertEqual(len(table.stdout.splitlines()), 21)
        plot = tandem("metrics", self.job, "-o", "plot").stdout
        self.assertRegex(plot, "[\u2801-\u28ff]")
        plain = tandem("metrics", self.job, "-o", "plot", env={"LC_ALL": "C"}).stdout
        self.assertTrue(plain.isascii() and "*" in plain)
        for line in plot.splitlines():
            self.assertLess(len(line), 100)

    def test_metrics_follow_ends_with_the_job(self):
        job = submit("followed", 40)
        done = tandem("metrics", job, "-f", "--series", "loss", "-o", "csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        once = tandem("metrics", job, "--series", "loss", "-o", "csv")
        self.assertEqual(done.stdout, once.stdout)

    def test_ls_lists_by_state(self):
        self.assertIn("one", tandem("ls", "-a").stdout)
        self.assertNotIn("one ", tandem("ls").stdout)
        jobs = json.loads(tandem("ls", "-s", "succeeded", "-o", "json").stdout)
        self.assertIn("one", [j["name"] for j in jobs])
        rows = list(csv.DictReader(io.StringIO(tandem("ls", "-a", "-o", "csv").stdout)))
        row = [r for r in rows if r["name"] == "one"][0]
        self.assertEqual((row["id"], row["state"], row["step"], row["total_steps"]),
                         (self.job, "SUCCEEDED", "30", "30"))
        self.assertEqual(len(json.loads(tandem("ls", "-a", "-n", 1, "-o", "json").stdout)), 1)
        self.assertEqual(json.loads(tandem("ls", "-s", "held", "-o", "json").stdout), [])
        self.assertEqual(tandem("ls", "-s", "held").stdout, "no such jobs\n")

    # What `show` tells of a job, the list tells too: in a bounded column, and whole in csv and json.
    def test_ls_says_why_a_job_waits_or_failed(self):
        hog = submit("hog", ENDLESS, parallel={"data": 4})
        wait_for(lambda: state(hog) == "RUNNING")
        waits = submit("waits", 5, parallel={"data": 4})
        behind = submit("behind", 5, after=[int(waits)])
        words = "needs 4 devices, 0 of 4 are free"
        lines = tandem("ls").stdout.splitlines()
        self.assertTrue(lines[0].endswith("REASON"), lines)
        self.assertTrue([x for x in lines if " waits " in x and x.endswith(words)], lines)
        jobs = {j["name"]: j for j in json.loads(tandem("ls", "-o", "json").stdout)}
        self.assertEqual(jobs["waits"]["message"], words)
        self.assertIn(f"waits for job {waits}", jobs["behind"]["message"])
        self.assertNotIn("message", jobs["hog"])
        more = [submit(f"more{i}", 5, parallel={"data": 4}) for i in range(19)]
        # Of 21 that wait the 20 oldest are asked about.
        asked = {j["id"] for j in json.loads(tandem("ls", "-o", "json").stdout) if "message" in j}
        for job in more:
            tandem("cancel", job)
        self.assertEqual({int(i) for i in asked}, {int(i) for i in [waits, behind, *more[:18]]})
        tandem("cancel", waits)
        wait_for(lambda: state(behind) == "FAILED")
        tandem("cancel", hog)
        rows = csv.DictReader(io.StringIO(tandem("ls", "-s", "failed", "-o", "csv").stdout))
        row = [r for r in rows if r["name"] == "behind"][0]
        shown = json.loads(tandem("show", behind, "-o", "json").stdout)
        self.assertEqual((row["cause"], row["reason"]), ("dependency", shown["message"]))
        self.assertIn(waits, row["reason"])

    def test_logs_have_every_rank_or_one(self):
        every = tandem("logs", self.job).stdout
        self.assertIn("rank 0: ", every)
        self.assertIn("rank 1: ", every)
        first = tandem("logs", self.job, "--rank", 0).stdout
        self.assertTrue(first)
        self.assertNotIn("rank 1: 2", first)
        self.assertEqual(tandem("logs", self.job, "--rank", 9).returncode, 1)
        self.assertEqual(tandem("logs", self.job, "--rank", "x").returncode, 2)
        self.assertEqual(tandem("logs", self.job, "--rank", "node").returncode, 0)

    def test_checkpoints_are_listed_newest_first(self):
        rows = list(csv.DictReader(io.StringIO(tandem("ckpt", "ls", "one", "-o", "csv").stdout)))
        self.assertEqual([int(r["step"]) for r in rows], [30, 20, 10])
        for row in rows:
            self.assertTrue(pathlib.Path(row["path"]).is_dir())
        self.assertEqual(len(json.loads(tandem("ckpt", "ls", "one", "-o", "json").stdout)), 3)

    def test_nodes_and_doctor_tell_of_this_machine(self):
        nodes = json.loads(tandem("nodes", "-o", "json").stdout)
        self.assertEqual(sum(len(n["devices"]) for n in nodes), 4)
        self.assertIn("devices are free", tandem("nodes").stdout)
        done = tandem("doctor", env={"TANDEM_CPU_LEVEL": "avx2"})
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("warn  environment  TANDEM_CPU_LEVEL", done.stdout)
        self.assertIn(SERVER.address, done.stdout)
        # A host without a driver is none to warn of; one whose GPUs can't be used is.
        done = tandem("doctor", env={"TANDEM_CUDA_DRIVER": "/nowhere/libcuda.so"})
        self.assertIn("ok    GPUs         no NVIDIA driver (/nowhere/libcuda.so: cannot open", done.stdout)
        done = tandem("doctor", env={"TANDEM_CUDA_DRIVER": "libc.so.6", "TANDEM_CUDA_PLUGIN": "/nowhere.so"})
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("warn  GPUs         no CUDA plug-in: TANDEM_CUDA_PLUGIN says /nowhere.so", done.stdout)

    def test_unknown_jobs_are_exit_code_1(self):
        for args in (["show", "nobody"], ["watch", "nobody"], ["metrics", "nobody"],
                     ["logs", "nobody"], ["cancel", "nobody"], ["why", "nobody"],
                     ["ckpt", "ls", "nobody"], ["generate", "nobody", "--prompt", "x"],
                     ["show", "99999"]):
            done = tandem(*args)
            self.assertEqual(done.returncode, 1, args)
            self.assertIn("nobody" if "nobody" in args else "99999", done.stderr)

    def test_generate_continues_a_text(self):
        if not (BIN / "tandem-tool").exists():
            self.skipTest("tandem-tool isn't built")
        for model in ("one", f"{self.job}@20", str(TINY)):
            done = tandem("generate", "--model", model, "--prompt", "ab", "--max-tokens", 4)
            self.assertEqual(done.returncode, 0, done.stderr)
        # No further than it was trained: 32 tokens with the prompt; at most 4 bytes a character.
        done = tandem("generate", "--model", "one", "--prompt=ab")
        self.assertLessEqual(len(done.stdout.strip("\n").encode(errors="surrogateescape")), 4 * 32)


class Submission(unittest.TestCase):
    def test_relative_paths_count_from_the_file(self):
        folder = FOLDER / "elsewhere"
        folder.mkdir()
        (folder / "model").symlink_to(TINY)
        spec = job_spec("relative", 2)
        spec["model"]["path"] = "model"
        spec["data"]["train"][0]["path"] = "./model/train.bin"
        (folder / "job.yaml").write_text(json.dumps(spec))
        done = tandem("submit", folder / "job.yaml", "--wait", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        stored = json.loads(tandem("show", done.stdout.strip(), "-o", "json").stdout)["spec"]
        self.assertEqual(stored["model"]["path"], str(folder / "model"))
        self.assertEqual(stored["data"]["train"][0]["path"], str(folder / "model/train.bin"))

    def test_standard_input_is_a_file_too(self):
        done = tandem("submit", "-", "-q", stdin=json.dumps(job_spec("piped", 2)))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_dry_run_submits_nothing(self):
        done = tandem("submit", job_file("dry", 5), "--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nothing was submitted", done.stdout)
        self.assertIn("parameters", done.stdout)
        self.assertNotIn("dry", tandem("ls", "-a").stdout)

    def test_set_changes_a_field(self):
        done = tandem("submit", job_file("set", 5), "--set", "training.steps=7", "--set",
                      "training.optimizer.lr=1e-4", "-q", "--wait")
        self.assertEqual(done.returncode, 0, done.stderr)
        stored = json.loads(tandem("show", done.stdout.strip(), "-o", "json").stdout)["spec"]
        self.assertEqual(stored["training"]["steps"], 7)
        self.assertEqual(stored["training"]["optimizer"]["lr"], 1e-4)

    def test_a_refused_job_is_exit_code_1_in_words(self):
        done = tandem("submit", job_file("refused", 5), "--set", "parallel.pipeline=2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("pipeline parallel is not built yet", done.stderr)

    def test_follow_shows_the_run(self):
        done = tandem("submit", job_file("shown", 20), "--follow")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("step 20/20", done.stdout)


class Endings(unittest.TestCase):
    """Jobs that are stopped, and a server that goes away."""

    def test_cancelled_is_exit_code_3(self):
        job = submit("cancelled", ENDLESS)
        wait_for(lambda: state(job) == "RUNNING")
        watch = subprocess.Popen([BIN / "tandem", "watch", job], env=ENV, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.assertEqual(tandem("cancel", "cancelled").returncode, 0)
        out, err = watch.communicate(timeout=DEADLINE)
        self.assertEqual(watch.returncode, 3)
        self.assertRegex(err, r"CANCELLED: cancelled by \w+\n$")
        self.assertIn("CANCELLED", out)
        self.assertEqual(tandem("cancel", job).returncode, 0)
        self.assertTrue(tandem("why", job).stdout)

    def test_pause_and_resume_lose_no_step(self):
        for steps in (1000, 4000, 16000, 64000):  # it may have ended before it is paused
            job = submit("paused", steps)
            wait_for(lambda: json.loads(tandem("show", job, "-o", "json").stdout)["step"] > 5)
            paused = tandem("pause", job)
            if wait_for(lambda: state(job) in ("PAUSED", "SUCCEEDED") and state(job)) == "PAUSED":
                break
        self.assertEqual(paused.returncode, 0, paused.stderr)
        self.assertEqual(state(job), "PAUSED")
        self.assertEqual(tandem("resume", job).returncode, 0)
        self.assertEqual(tandem("watch", job).returncode, 0)
        rows = csv.DictReader(io.StringIO(tandem("metrics", job, "-o", "csv").stdout))
        self.assertEqual([int(r["step"]) for r in rows], list(range(1, steps + 1)))

    def test_watch_outlives_the_server(self):
        job = submit("outlives", ENDLESS)
        wait_for(lambda: state(job) == "RUNNING")
        watch = subprocess.Popen([BIN / "tandem", "watch", job], env=ENV, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        first = watch.stdout.readline()
        SERVER.kill()
        away = ""
        while "away" not in away:
            away = watch.stdout.readline()
            self.assertTrue(away, "the watch ended with the server")
        SERVER.start()
        tandem("cancel", job)
        out, err = watch.communicate(timeout=DEADLINE)
        self.assertEqual(watch.returncode, 3, first + out + err)
        self.assertIn("connected", out)


class InTheQueue(unittest.TestCase):
    def test_a_waiting_job_is_held_moved_and_released(self):
        blocker = submit("fills-it", ENDLESS, parallel={"data": 4})
        try:
            wait_for(lambda: state(blocker) == "RUNNING")
            job = submit("waits", 1)
            self.assertIn("HELD", tandem("hold", job).stdout)
            self.assertEqual(state(job), "HELD")
            # Whoever watches a job that stands still is told how it goes on.
            watch = subprocess.Popen([BIN / "tandem", "watch", job], env=ENV, text=True,
                                     stdout=subprocess.PIPE)
            self.assertIn(f"until: tandem release {job}", watch.stdout.readline())
            watch.kill()
            watch.communicate()
            self.assertEqual(tandem("priority", job, "high").returncode, 0)
            self.assertEqual(json.loads(tandem("priority", job, 800, "-o", "json").stdout)["priority"],
                             800)
            for words in ((job,), (job, "urgent"), (job, 1001), (job, -1)):
                self.assertEqual(tandem("priority", *words).returncode, 2, words)
            self.assertIn("QUEUED", tandem("release", "waits").stdout)
            page = tandem("show", job).stdout.split("\nevents")[0]
            self.assertEqual(page.count("released by"), 1, page)
            self.assertIn("waits      needs", page)
        finally:
            tandem("cancel", blocker)
        self.assertEqual(tandem("watch", job).returncode, 0)
        self.assertEqual(tandem("hold", job).returncode, 1, "it has ended")

    def test_what_the_server_refuses_is_told_with_its_place(self):
        path = FOLDER / "later.yaml"
        spec = json.loads(job_file("later", 3).read_text())
        path.write_text("# first line\n" + json.dumps(spec, indent=2).replace(
            '"steps": 3', '"steps": 0'))
        line = path.read_text().splitlines()
        number = [i for i, text in enumerate(line, 1) if '"steps": 0' in text][0]
        for verb in (["submit", path], ["submit", path, "--dry-run"], ["plan", path]):
            done = tandem(*verb)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"^tandem: .*later\.yaml:{number}:5: training\.steps: ")
        done = tandem("submit", path, "--set", "training.steps=-4")
        self.assertIn("--set training.steps=-4: training.steps: ", done.stderr)
        done = tandem("submit", path, "--set", "training.steps=1", "--set",
                      "data.train.0.path=/nowhere/x.bin")
        self.assertIn("--set data.train.0.path=/nowhere/x.bin: data.train: /nowhere/x.bin: ",
                      done.stderr)


class OnATerminal(unittest.TestCase):
    def test_ls_fits_a_narrow_one(self):
        job = submit("a-job-with-a-name-that-is-quite-long-for-a-terminal", 1)
        tandem("watch", job)
        for columns in (40, 60):
            shown = Terminal("ls", "-a", env={"COLUMNS": str(columns), "NO_COLOR": "1"})
            self.assertEqual(shown.close(), 0)
            lines = shown.text.splitlines()
            self.assertLessEqual(max(map(len, lines)), columns, shown.text)
            self.assertRegex(shown.text, "a-job-w.*\u2026 +SUCCEEDED")

    def test_watch_draws_one_bar_and_detaches(self):
        job = submit("drawn", ENDLESS)
        watch = Terminal("watch", "drawn")
        self.assertTrue(watch.read_until(rf"\r[^\n]*drawn [^\n]*\d+/{ENDLESS} [^\n]*loss"))
        watch.interrupt()
        self.assertEqual(watch.close(), 130)
        self.assertRegex(watch.text, r"(\n|\r|\033\[K)tandem: detached; the job runs on", "on a line of its own")
        self.assertIn("\033[36m", watch.text)
        self.assertEqual(state(job), "RUNNING")
        tandem("cancel", job)

    def test_generate_sends_no_control_bytes_to_a_terminal(self):
        config = FOLDER / "bytes.json"
        config.write_text(json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256,
            "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2}))
        (FOLDER / "bytes.txt").write_text("to be or not to be " * 100)
        spec = {**job_spec("dreamer", 1), "model": {"config": str(config)},
                "data": {"train": [{"path": str(FOLDER / "bytes.txt"), "format": "text"}]}}
        (FOLDER / "dreamer.yaml").write_text(json.dumps(spec))
        self.assertEqual(tandem("submit", FOLDER / "dreamer.yaml", "--wait").returncode, 0)
        args = ("generate", "--model", "dreamer", "--prompt", "to ", "--max-tokens", "300")
        shown = Terminal(*args)
        shown.close()
        self.assertNotRegex(shown.text.replace("\r\n", "\n"), r"[\0-\x08\x0b-\x1f\x7f]")
        self.assertRegex(tandem(*args).stdout, r"[\0-\x08\x0b-\x1f\x7f]", "a pipe gets every byte")

    def test_no_color_is_honoured(self):
        submit("coloured", 2)
        ENV["NO_COLOR"] = "1"
        try:
            shown = Terminal("ls", "-a")
            shown.read_until("CREATED")
            self.assertEqual(shown.close(), 0)
        finally:
            del ENV["NO_COLOR"]
        self.assertNotIn("\033[", shown.text)
        coloured = Terminal("ls", "-a")
        coloured.read_until("CREATED")
        coloured.close()
        self.assertIn("\033[", coloured.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
