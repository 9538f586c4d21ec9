#!/usr/bin/env python3
"""A job on simulated GPUs as a user runs it: submitted to a tandemd whose cluster file has GPUs, its
ranks on the CUDA plug-in's twin; its curve, checkpoints, pause and resume, a killed rank, the export
and a text from it. They can be held still (helpers/held_rank.c), so that no job ends before it was
disturbed. TANDEM_BIN: folder of the programs, the twin among them: what isn't built is a failure."""
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

for program in ("tandem", "tandemd", "tandem-node", "held_rank", "tandem-probe", "tandem-tool",
                "libtandem_cuda_sim.so", "libtandem_driver_sim.so"):
    if not (BIN / program).exists():
        sys.exit(f"{BIN / program} isn't built")

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="gpu_train_test"))
PROGRAMS = FOLDER / "bin"  # tandemd starts its neighbours from its own folder
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "CUSIM_", "CUDA_"))}
ENV.update(XDG_CONFIG_HOME=str(FOLDER / "config"), HOME=str(FOLDER), LC_ALL="C.UTF-8",
           TANDEM_CUDA_PLUGIN=str(BIN / "libtandem_cuda_sim.so"),
           TANDEM_CUDA_DRIVER=str(BIN / "libtandem_driver_sim.so"),
           TANDEM_SERVER=f"unix:{FOLDER}/data/tandemd.sock",
           CUSIM_DEVICES="4", CUSIM_PROTECT="1", CUSIM_SCHEDULE="random,random,5",
           TANDEM_FAKE_NVML="dgx", LD_LIBRARY_PATH=str(BIN / "fake-nvml"), TANDEM_WATCH_MS="200",
           TANDEM_FAKE_NVML_FAULTS=str(FOLDER / "faults"))
STEPS = 20  # of the reference
CLUSTER = "nodes: [{name: box, cores: 8, devices: [{type: h100, count: 4}]}]\n"
CONFIG = f"""data_dir: {FOLDER}/data
cluster_file: {FOLDER}/cluster.yaml
pass_env: [CUSIM_DEVICES, CUSIM_PROTECT, CUSIM_SCHEDULE]
"""


def link_programs():
    PROGRAMS.mkdir()
    for name in ("tandem", "tandemd", "tandem-node", "tandem-probe", "tandem-tool"):
        try:
            os.link(BIN / name, PROGRAMS / name)
        except OSError:
            shutil.copy2(BIN / name, PROGRAMS / name)
    shutil.copy2(BIN / "held_rank", PROGRAMS / "tandem-rank")


def job_file(name, data, zero, precision=None, hold=()):
    """hold: "A.S" holds attempt A behind step S until it is told to stop, "A.+S" behind its Sth step."""
    path = FOLDER / f"{name}.yaml"
    precision = f"precision: {precision}, " if precision else ""
    path.write_text(f"""name: {name}
tags: [{", ".join(f"hold={moment}" for moment in hold)}]
model: {{path: {TINY}}}
data: {{order: sequential, train: [{{path: {TINY}/train.bin, format: u16, window: T+1}}]}}
training: {{steps: {STEPS}, seq_len: 32, global_batch_size: 4, micro_batch_size: 1, {precision}
  clip_grad_norm: 1.0,
  optimizer: {{name: adamw, lr: 0.002, betas: [0.9, 0.95], weight_decay: 0.1}},
  lr_schedule: {{warmup_steps: 5, decay: cosine, decay_steps: 20, min_lr_ratio: 0.1}}}}
parallel: {{data: {data}, zero_stage: {zero}, bucket_mb: 0.05}}
resources: {{devices: {data}}}
checkpoint: {{interval: 4, async: true, export_at_end: true}}
""")
    return path


def tandem(*args):
    return subprocess.run([PROGRAMS / "tandem", *args], env=ENV, capture_output=True, text=True,
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
            if words and words[0] == str(PROGRAMS / "tandem-rank").encode() and words[1:5] == [
                    b"--rank", str(rank).encode(), b"--job", job.encode()]:
                return int(entry.name)
        except OSError:
            pass
    raise AssertionError(f"rank {rank} of job {job} isn't there")


def wait_held(job, moment):
    """All up to this moment is said, and no more will be before the attempt is stopped."""
    wait_for(f"job {job} to be held at {moment}",
             (FOLDER / "data/jobs" / job / f"held-{moment}").exists)


def end_processes():
    """What a test that has failed leaves running."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "exe").startswith(str(PROGRAMS)):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            pass


class GpuTrain(unittest.TestCase):
    jobs = []

    @classmethod
    def setUpClass(cls):
        (FOLDER / "cluster.yaml").write_text(CLUSTER)
        (FOLDER / "config.yaml").write_text(CONFIG)
        link_programs()
        with open(FOLDER / "tandemd.log", "ab") as log:
            cls.process = subprocess.Popen(
                [PROGRAMS / "tandemd", "--config", FOLDER / "config.yaml"], env=ENV, stdout=log,
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
        end_processes()
        shutil.rmtree(FOLDER, ignore_errors=True)

    def submit(self, path):
        self.jobs.append(ask("submit", str(path), "-q").strip())
        return self.jobs[-1]

    def check_curve(self, job, loss_bar, norm_bar):
        want = json.loads((TINY / "train.json").read_text())
        got = curve(job)
        self.assertEqual([step for step, _, _ in got], list(range(1, STEPS + 1)), logs(job))
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
        job = self.submit(job_file("bf16", 2, 2, hold=("1.5", "2.+2")))
        wait_held(job, "1.5")
        ask("pause", job)
        wait_for("the pause", lambda: state(job) == "PAUSED")
        paused = curve(job)[-1][0]
        self.assertLess(paused, STEPS)
        self.assertIn(f"step-{paused:08d}-a1", ask("ckpt", "ls", job, "-o", "json"))
        ask("resume", job)
        wait_held(job, "2.+2")
        os.kill(rank_pid(job, 1), signal.SIGKILL)
        self.end_well(job)
        self.assertIn("rank 1: killed by signal 9", ask("show", job))
        told = show(job)
        self.assertEqual(len(told["attempts"]), 3, told)
        self.assertEqual(told["spec"]["resources"]["backend"], "cuda")
        self.assertEqual(told["spec"]["training"]["precision"], "bf16")
        self.check_curve(job, 2e-3, 1.5e-2)
        export = FOLDER / "data/jobs" / job / "export"
        self.assertTrue((export / "model.safetensors").exists())
        text = ask("generate", "--model", str(export), "--prompt", "The ", "--max-tokens", "5")
        self.assertTrue(text.strip())

    # The driver tells of memory that failed: the job saves, goes on with other GPUs, and nothing can be
    # seen of it in its curve.
    def test_a_gpu_that_fails_is_left_at_a_checkpoint(self):
        job = self.submit(job_file("fault", 2, 1, "fp32", hold=("1.4",)))
        wait_held(job, "1.4")
        device = int(re.search(r"box:(\d)", show(job)["attempts"][0]["devices"]).group(1))
        (FOLDER / "faults").write_text(f"{device} xid 94\n")
        try:
            self.end_well(job)
            told = ask("show", job)
            self.assertIn(f"box:{device} is drained (XID 94: a contained memory error", told)
            self.assertEqual(len(show(job)["attempts"]), 2, told)
            self.assertNotIn(f"box:{device}", show(job)["attempts"][1]["devices"])
        finally:
            (FOLDER / "faults").write_text("")
            tandem("undrain", "box")
        self.check_curve(job, 2e-6, 5e-6)

    # fp32 where it is asked for, four ranks, each with its slice of everything.
    def test_fp32_follows_the_reference(self):
        job = self.submit(job_file("fp32", 4, 3, "fp32"))
        self.end_well(job)
        self.check_curve(job, 2e-6, 5e-6)
        memory = re.search(r"memory: planned ([0-9.]+) MB; given out ([0-9.]+) MB", logs(job))
        self.assertIsNotNone(memory, logs(job))
        self.assertLessEqual(float(memory.group(2)), float(memory.group(1)))


if __name__ == "__main__":
    unittest.main(verbosity=2 if "-v" in sys.argv else 1)
