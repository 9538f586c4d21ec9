#!/usr/bin/env python3
"""Drawn layouts as real programs against the same layouts with ranks as threads of one process:
tandemd, tandem-node and tandem-rank have to come to the same loss and gradient norm, bit for bit.
Three layouts; TANDEM_FULL=1 thirty, TANDEM_SAMPLE=1 one. TANDEM_SEED=N draws others."""
import csv
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TANDEM_BIN", ROOT / "build/dev/bin")).resolve()
SEED = os.environ.get("TANDEM_SEED", "1")
DEADLINE = 300  # seconds, of any one thing


def is_set(name):
    return os.environ.get(name, "0") not in ("", "0")


class Server:
    def __init__(self, folder):
        self.folder = folder
        self.env = {**os.environ, "TANDEM_SERVER": f"unix:{folder}/data/tandemd.sock",
                    "XDG_CONFIG_HOME": str(folder / "config")}
        with open(folder / "tandemd.log", "ab") as log:
            self.process = subprocess.Popen(
                [BIN / "tandemd", "--dev", "--data-dir", folder / "data", "--devices", "16"],
                stdout=log, stderr=subprocess.STDOUT, env=self.env)

    def cli(self, *args):
        return subprocess.run([BIN / "tandem", *args], env=self.env, capture_output=True,
                              text=True, timeout=DEADLINE, check=False)

    def wait_until_up(self):
        end = time.monotonic() + DEADLINE
        while self.cli("nodes").returncode != 0:
            assert self.process.poll() is None and time.monotonic() < end, "tandemd didn't come up"
            time.sleep(0.05)

    def curve(self, job_file):
        job = self.cli("submit", job_file, "-q")
        assert job.returncode == 0, f"{job_file}: {job.stderr}"
        number = job.stdout.strip()
        watched = self.cli("watch", number)
        assert watched.returncode == 0, f"job {number}: {self.cli('show', number).stdout}"
        columns = self.cli("metrics", number, "--series", "loss,grad_norm", "-o", "csv").stdout
        return read_curve(columns.splitlines())

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def read_curve(lines):
    return [(float(row["loss"]), float(row["grad_norm"])) for row in csv.DictReader(lines)]


def compare(server, folder, num):
    bad = 0
    for i in range(num):
        threads = read_curve((folder / f"{i}.csv").read_text().splitlines())
        processes = server.curve(folder / f"{i}.yaml")
        same = len(threads) == 3 and threads == processes
        bad += not same
        print(f"{i}: {'same bits' if same else f'{processes} as processes, {threads} as threads'}",
              flush=True)
    return bad


def main():
    num = 30 if is_set("TANDEM_FULL") else 1 if is_set("TANDEM_SAMPLE") else 3
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-layouts-"))
    print(f"TANDEM_SEED={SEED}", flush=True)
    server = None
    try:
        subprocess.run([BIN / "layout_curves", folder, SEED, str(num)], check=True)
        server = Server(folder)
        server.wait_until_up()
        return 1 if compare(server, folder, num) else 0
    finally:
        if server:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


sys.exit(main())
