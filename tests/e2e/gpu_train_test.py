#!/usr/bin/env python3
"""A job on simulated GPUs as a user runs it: submitted to a tandemd whose cluster file has GPUs, its
ranks on the CUDA plug-in's twin; its curve, checkpoints, pause and resume, a killed rank, the export
and a text from it. TANDEM_BIN: folder of the programs, the twin among them. Exits 77 where they
aren't built."""
import contextlib
import csv
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TANDEM_BIN", ROOT / "build/dev/bin")).resolve()
TINY = ROOT / "tests/golden/llama-tiny"
DEADLINE = int(os.environ.get("E2E_DEADLINE", "240"))  # seconds, of every command and wait

for program in ("tandem", "tandemd", "tandem-node", "tandem-rank", "tandem-probe", "tandem-tool",
                "libtandem_cuda_sim.so", "libtandem_driver_sim.so"):
    if not (BIN / program).exists():
        print(f"SKIPPED: {BIN / program} isn't built")
        sys.exit(77)

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="gpu_train_test"))
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "CUSIM_", "CUDA_"))}
ENV.update(XDG_CONFIG_HOME=str(FOLDER / "config"), HOME=str(FOLDER), LC_ALL="C.UTF-8",
           TANDEM_CUDA_PLUGIN=str(BIN / "libtandem_cuda_sim.so"),
           TANDEM_CUDA_DRIVER=str(BIN / "libtandem_driver_sim.so"),
           TANDEM_SERVER=f"unix:{FOLDER}/data/tandemd.sock",
           CUSIM_DEVICES="4", CUSIM_PROTECT="1", CUSIM_SCHEDULE="random,random,5",
           TANDEM_FAKE_NVML="dgx", LD_LIBRARY_PATH=str(BIN / "fake-nvml"), TANDEM_WATCH_MS="200",
           TANDEM_FAKE_NVML_FAULTS=str(FOLDER / "faults"))
CLUSTER = "nodes: [{name: box, cores: 8, devices: [{type: h100, count: 4}]}]\n"
CONFIG = f"""data_dir: {FOLDER}/data
cluster_file: {FOLDER}/cluster.yaml
pass_env: [CUSIM_DEVICES, CUSIM_PROTECT, CUSIM_SCHEDULE]
"""


def job_file(name, steps, data, zero, precision=None):
    path = FOLDER / f"{name}.yaml"
    precision = f"precision: {precision}, " if precision else ""
    path.write_text(f"""name: {name}
model: {{path: {TINY}}}
data: {{order: sequential, train: [{{path: {TINY}/train.bin, format: u16, window: T+1}}]}}
training: {{steps: {steps}, seq_len: 32, global_batch_size: 4, micro_batch_size: 1, {precision}
  clip_grad_norm: 1.0,
  optimizer: {{name: adamw, lr: 0.002, betas: [0.9, 0.95], weight_decay: 0.1}},
  lr_schedule: {{warmup_steps: 5, decay: cosine, decay_steps: 20, min_lr_ratio: 0.1}}}}
parallel: {{data: {data}, zero_stage: {zero}, bucket_mb: 0.05}}
resources: {{devices: {data}}}
checkpoint: {{interval: 4, async: true, export_at_end: true}}
""")
    return path


def tandem(*args):
    return subprocess.run([BIN / "tandem", *args], env=ENV, capture_output=True, text=True,
                          errors="replace", timeout=DEADLINE, check=False)


def ask(*args):
    done = tandem(*args)
    assert done.returncode == 0, f"tandem {args}: {done.returncode}: {done.stderr}{done.stdout}"
    return done.stdout


def wait_for(what, condition):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {DEADLINE} s for {what}")


def show(job):
    return json.loads(ask("show", job, "-o", "json"))


def state(job):
    return show(job)["state"]


def curve(job):
    text = ask("metrics", job, "--series", "loss,grad_norm", "-o", "csv")
    return [(int(row["step"]), float(row["loss"]), float(row["grad_norm"]))
            for row in csv.DictReader(io.StringIO(text))]


def logs(job):
    return "\n".join(p.read_text(errors="replace")[-2500:]
                     for p in sorted((FOLDER / "data/jobs" / job / "logs").glob("*/*.log")))


def rank_pid(job, rank):
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if words and words[0] == str(BIN / "tandem-rank").encode() and words[1:5] == [
                    b"--rank", str(rank).encode(), b"--job", job.encode()]:
                return int(entry.name)
        except OSError:
            pass
    return None


class GpuTrain(unittest.TestCase):
    jobs = []

    @classmethod
    def setUpClass(cls):
        (FOLDER / "cluster.yaml").write_text(CLUSTER)
        (FOLDER / "config.yaml").write_text(CONFIG)
        with open(FOLDER / "tandemd.log", "ab") as log:
            cls.process = subprocess.Popen(
                [BIN / "tandemd", "--config", FOLDER / "config.yaml"], env=ENV, stdout=log,
                stderr=subprocess.STDOUT)
        wait_for("the server", lambda: tandem("nodes").returncode == 0)

    @classmethod
    def tearDownClass(cls):
        for job in cls.jobs:
            tandem("cancel", job)
        cls.process.send_signal(signal.SIGTERM)
        try:
            cls.process.wait(60)
        except subprocess.TimeoutExpired:
            cls.process.kill()
            cls.process.wait()
        shutil.rmtree(FOLDER, ignore_errors=True)

    def submit(self, path):
        self.jobs.append(ask("submit", str(path), "-q").strip())
        return self.jobs[-1]

    def disturbed(self, disturb, *job_words):
        """A job that was disturbed before its end; one that was too fast for that is followed by a
        longer one, which begins as it did."""
        for steps in (20, 100, 500):
            job = self.submit(job_file(f"{job_words[0]}-{steps}", steps, *job_words[1:]))
            if disturb(job):
                return job, steps
            self.assertEqual(state(job), "SUCCEEDED", logs(job))
        raise AssertionError("each job ended before it was disturbed")

    def check_curve(self, job, loss_bar, norm_bar, steps=20):
        want = json.loads((TINY / "train.json").read_text())
        got = curve(job)
        self.assertEqual([step for step, _, _ in got], list(range(1, steps + 1)), logs(job))
        for (step, loss, norm), l, n in zip(got, want["loss_f64"], want["grad_norm_f64"]):
            self.assertLess(abs(loss / l - 1), loss_bar, f"step {step}: loss {loss}, not {l}")
            self.assertLess(abs(norm / n - 1), norm_bar, f"step {step}: norm {norm}, not {n}")

    def end_well(self, job):
        done = tandem("watch", job)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + logs(job))

    # Nobody says cuda or bf16 in the job: the cluster has GPUs. Paused on the way and taken up
    # again, a rank killed and all of it started once more from the newest checkpoint: the curve is
    # that of one run.
    def test_a_job_on_gpus_lives_through_a_pause_and_a_killed_rank(self):
        job, steps = self.disturbed(self.pause_and_kill, "bf16", 2, 2)
        told = show(job)
        self.assertEqual(told["spec"]["resources"]["backend"], "cuda")
        self.assertEqual(told["spec"]["training"]["precision"], "bf16")
        self.check_curve(job, 2e-3, 1.5e-2, steps)
        export = FOLDER / "data/jobs" / job / "export"
        self.assertTrue((export / "model.safetensors").exists())
        text = ask("generate", "--model", str(export), "--prompt", "The ", "--max-tokens", "5")
        self.assertTrue(text.strip())

    def pause_and_kill(self, job):
        wait_for("some steps", lambda: len(curve(job)) >= 5)
        if tandem("pause", job).returncode != 0:
            self.end_well(job)
            return False
        if wait_for("the pause", lambda: {"PAUSED": 1, "SUCCEEDED": 2}.get(state(job))) == 2:
            return False
        paused = curve(job)[-1][0]
        self.assertLess(paused, show(job)["total_steps"])
        self.assertIn(f"step-{paused:08d}-a1", ask("ckpt", "ls", job, "-o", "json"))
        ask("resume", job)
        wait_for("more steps", lambda: curve(job)[-1][0] > paused)
        pid = rank_pid(job, 1)
        with contextlib.suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGKILL)
        self.end_well(job)
        return "rank 1: killed by signal 9" in ask("show", job)

    # The driver tells of memory that failed: the job saves, goes on with other GPUs, and nothing can be
    # seen of it in its curve.
    def test_a_gpu_that_fails_is_left_at_a_checkpoint(self):
        job, steps = self.disturbed(self.fail_a_gpu, "fault", 2, 1, "fp32")
        self.assertEqual(len(show(job)["attempts"]), 2, show(job))
        self.check_curve(job, 2e-6, 5e-6, steps)

    def fail_a_gpu(self, job):
        wait_for("some steps", lambda: len(curve(job)) >= 4)
        device = int(re.search(r"box:(\d)", show(job)["attempts"][0]["devices"]).group(1))
        (FOLDER / "faults").write_text(f"{device} xid 94\n")
        try:
            self.end_well(job)
            told = ask("show", job)
            if len(show(job)["attempts"]) == 1:
                return False
            self.assertIn(f"box:{device} is drained (XID 94: a contained memory error", told)
            self.assertNotIn(f"box:{device}", show(job)["attempts"][1]["devices"])
        finally:
            (FOLDER / "faults").write_text("")
            tandem("undrain", "box")
        return True

    # fp32 where it is asked for, four ranks, each with its slice of everything.
    def test_fp32_follows_the_reference(self):
        job = self.submit(job_file("fp32", 20, 4, 3, "fp32"))
        self.end_well(job)
        self.check_curve(job, 2e-6, 5e-6)
        memory = re.search(r"memory: planned ([0-9.]+) MB; given out ([0-9.]+) MB", logs(job))
        self.assertIsNotNone(memory, logs(job))
        self.assertLessEqual(float(memory.group(2)), float(memory.group(1)))


if __name__ == "__main__":
    unittest.main(verbosity=2 if "-v" in sys.argv else 1)
