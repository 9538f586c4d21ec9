#!/usr/bin/env python3
"""What ranks take as programs, against the whole of the plan's estimate, program and libraries
included: four layouts through tandemd, tandem-node and tandem-rank. A rank takes what its process
has for itself (RssAnon, RssFile) and its own part of the shared segment; that has to lie within
BOUND of the estimate. Prints a line for each."""
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
BIN = pathlib.Path(os.environ.get("TANDEM_BIN", ROOT / "build/dev/bin")).resolve()
BOUND = 0.10
DEADLINE = 300  # seconds, of any one thing

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
  steps: 3
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


def write_job(folder, number, config, parallel, checkpoint):
    (folder / f"{number}.json").write_text(json.dumps(config))
    job = folder / f"{number}.yaml"
    data = parallel.get("data", 1)
    job.write_text(JOB.format(
        config=folder / f"{number}.json", data=folder / "tokens.bin", batch=2 * data,
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
    found = re.search(r"memory: planned ([\d.]+) MB a rank, used at most ([\d.]+) MB \(rank \d+\)",
                      shown)
    assert found, shown
    return float(found.group(1)), float(found.group(2))


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
        return 1 if run_cases(folder, env) else 0
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        if os.environ.get("TANDEM_KEEP"):
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


sys.exit(main())
