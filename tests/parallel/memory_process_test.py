#!/usr/bin/env python3
"""What ranks take as programs, against the whole of the plan's estimate, program and libraries
included: four layouts through tandemd, tandem-node and tandem-rank. A rank takes what its process
has for itself (RssAnon, RssFile) and its own part of the shared segment; that has to lie within
BOUND of the estimate, also of an attempt that began from a checkpoint, which may keep nothing of
what it was read through. Prints a line for each."""
import array
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from gangs_of import end_gangs  # noqa: E402

BIN = pathlib.Path(os.environ.get("TANDEM_BIN", ROOT / "build/dev/bin")).resolve()
BOUND = 0.10
KEPT = 600 << 10  # bytes; files are hashed through 1 MiB
DEADLINE = 300  # seconds, of any one thing
PLANNED = re.compile(r"memory: planned ([\d.]+) MB a rank, used at most ([\d.]+) MB \(rank \d+\)")

LLAMA = {"model_type": "llama", "hidden_size": 384, "intermediate_size": 1024,
         "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
         "head_dim": 48, "vocab_size": 2003, "max_position_embeddings": 128,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
GPT2 = {"model_type": "gpt2", "n_embd": 384, "n_layer": 4, "n_head": 8, "vocab_size": 2003,
        "n_positions": 128, "activation_function": "gelu_new"}

CASES = [
    ("llama, one rank, background saves", LLAMA, {}, "interval: 2, async: true"),
    ("llama, data 2", LLAMA, {"data": 2}, "interval: 0"),
    ("llama, data 2, tensor 2, sequence parallel, ZeRO-3", LLAMA,
     {"data": 2, "tensor": 2, "sequence_parallel": "true", "zero_stage": 3}, "interval: 0"),
    ("gpt2, data 2, ZeRO-1", GPT2, {"data": 2, "zero_stage": 1}, "interval: 0"),
]

JOB = """name: memory
model: {{config: {config}}}
data: {{order: sequential, train: [{{path: {data}, format: u16}}]}}
training:
  steps: {steps}
  seq_len: 128
  global_batch_size: {batch}
  micro_batch_size: 2
  precision: fp32
  optimizer: {{name: adamw, lr: 0.001}}
parallel: {{{parallel}}}
resources: {{devices: {devices}, type: cpu, backend: cpu}}
checkpoint: {{{checkpoint}, export_at_end: false}}
"""


def cli(env, *args):
    return subprocess.run([BIN / "tandem", *args], env=env, capture_output=True, text=True,
                          timeout=DEADLINE, check=False)


def wait_until_up(process, env):
    end = time.monotonic() + DEADLINE
    while cli(env, "nodes").returncode != 0:
        assert process.poll() is None and time.monotonic() < end, "tandemd didn't come up"
        time.sleep(0.05)


def write_job(folder, number, config, parallel, checkpoint, steps=3):
    (folder / f"{number}.json").write_text(json.dumps(config))
    job = folder / f"{number}.yaml"
    data = parallel.get("data", 1)
    job.write_text(JOB.format(
        config=folder / f"{number}.json", data=folder / "tokens.bin", batch=2 * data, steps=steps,
        parallel=", ".join(f"{k}: {v}" for k, v in parallel.items()),
        devices=data * parallel.get("tensor", 1), checkpoint=checkpoint))
    return job


def measure(env, job_file):
    """What the job's record says: planned and used, of the rank that takes most."""
    job = cli(env, "submit", job_file, "-q")
    assert job.returncode == 0, job.stderr
    number = job.stdout.strip()
    watched = cli(env, "watch", number)
    shown = cli(env, "show", number).stdout
    assert watched.returncode == 0, shown
    found = PLANNED.search(shown)
    assert found, shown
    return float(found.group(1)), float(found.group(2))


def wait_for(what, get):
    end = time.monotonic() + DEADLINE
    while not (got := get()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return got


def descends(pid, from_pid):
    while pid > 1 and pid != from_pid:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
    return pid == from_pid


def rank_of(server):
    """The one rank that runs under this server; 0: none."""
    for proc in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (proc / "comm").read_text().strip() == "tandem-rank" and descends(int(proc.name), server.pid):
                return int(proc.name)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return 0


def measure_attempt(env, job, server, attempt):
    """Behind its first step: planned, used, and what is of no file, in bytes, counted page by page."""
    found = wait_for(f"attempt {attempt}'s memory", lambda: (
        notes := PLANNED.findall(cli(env, "show", job).stdout)) and len(notes) == attempt and notes)[-1]
    rollup = pathlib.Path(f"/proc/{rank_of(server)}/smaps_rollup").read_text()
    return float(found[0]), float(found[1]), int(re.search(r"Anonymous: +(\d+) kB", rollup).group(1)) << 10


def run_resumed(folder, env, server):
    job_file = write_job(folder, len(CASES), LLAMA, {}, "interval: 0", 100000)
    job = cli(env, "submit", job_file, "-q").stdout.strip()
    first = measure_attempt(env, job, server, 1)
    assert cli(env, "pause", job).returncode == 0
    wait_for("paused, and resumed", lambda: cli(env, "resume", job).returncode == 0)
    planned, used, anonymous = measure_attempt(env, job, server, 2)
    cli(env, "cancel", job)
    cli(env, "watch", job)
    wrong = abs(planned - used) / planned > BOUND or anonymous - first[2] > KEPT
    print(f"llama, one rank: planned {planned:.1f} MB, used {first[1]:.1f} MB; resumed {used:.1f} MB, "
          f"{(anonymous - first[2]) / 1e6:+.2f} MB without files{' WRONG' if wrong else ''}", flush=True)
    return wrong


def run_cases(folder, env):
    bad = 0
    for number, (words, config, parallel, checkpoint) in enumerate(CASES):
        planned, used = measure(env, write_job(folder, number, config, parallel, checkpoint))
        off = (planned - used) / planned
        wrong = abs(off) > BOUND
        bad += wrong
        print(f"{words}: planned {planned:.1f} MB a rank, used {used:.1f} MB: {100 * off:+.1f} %"
              f"{' WRONG' if wrong else ''}", flush=True)
    return bad


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-memory-"))
    env = {**os.environ, "TANDEM_SERVER": f"unix:{folder}/data/tandemd.sock",
           "XDG_CONFIG_HOME": str(folder / "config")}
    (folder / "tokens.bin").write_bytes(
        array.array("H", (i * 7919 % 2003 for i in range(40000))).tobytes())
    with open(folder / "tandemd.log", "ab") as log:
        server = subprocess.Popen(
            [BIN / "tandemd", "--dev", "--data-dir", folder / "data", "--devices", "8"],
            stdout=log, stderr=subprocess.STDOUT, env=env)
    try:
        wait_until_up(server, env)
        return 1 if run_cases(folder, env) + run_resumed(folder, env, server) else 0
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        end_gangs(folder / "data")
        if os.environ.get("TANDEM_KEEP"):
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


sys.exit(main())
