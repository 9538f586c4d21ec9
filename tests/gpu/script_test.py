#!/usr/bin/env python3
"""script_test.py BIN: tests/gpu/run itself, on simulated GPUs: every part has something to show, a part that fails or
hangs is shown and costs no other, and nothing is left behind. TANDEM_SAMPLE=1: the short parts alone."""
import argparse
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import script
from parts import takes_a_gpu_once

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
SAMPLE = os.environ.get("TANDEM_SAMPLE", "") not in ("", "0")
PARTS = ["facts", "layout", "ops", "curves", "train", "attention", "gemm", "torch", "comm", "sanitizer"]
SHORT = ["facts", "layout", "gemm", "torch", "comm"]
DEADLINE = 600

# In the place of a python3 with PyTorch.
PYTHON = """#!/bin/sh
case "$1 $2" in
-c*) echo 2.9.0 True ;;
*) echo '{"torch": "2.9.0", "tokens_per_s": 10.0, "ms": 3.5, "memory_bytes": 0, "loss": 4.5}' ;;
esac
"""
# In the place of CUDA's: runs the program and finds nothing.
SANITIZER = """#!/bin/sh
shift 4
"$@" && echo '========= ERROR SUMMARY: 0 errors'
"""


class ScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpu_script_test")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("python", PYTHON), ("compute-sanitizer", SANITIZER)):
            path = self.folder / name
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self.mark = f"GPU_SCRIPT_TEST={os.getpid()}-{time.monotonic_ns()}"

    def run_script(self, *args):
        env = dict(os.environ, OUT=str(self.folder / "out"), PATH=f"{self.folder}:{os.environ['PATH']}",
                   TMPDIR=str(self.folder))
        name, value = self.mark.split("=")
        env[name] = value
        done = subprocess.run([sys.executable, HERE / "run", "--sim", "--bin", BIN, "--python", self.folder / "python",
                               *args], env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)
        text = (self.folder / "out/gpu.json").read_text()

        def no_number(word):
            raise AssertionError(f"{word} is no JSON")
        return done, json.loads(text, parse_constant=no_number)

    def left_behind(self):
        """What the script started, and what that started, knows its mark."""
        found = []
        for proc in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (proc / "environ").read_bytes().split(b"\0"):
                    found.append((proc / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                pass
        return found

    def assert_nothing_is_left(self):
        end = time.monotonic() + DEADLINE
        while self.left_behind() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.left_behind(), [])
        self.assertEqual(list(self.folder.glob("tandem-gpu-*")), [])

    # All of it works where there is a GPU to see.
    def test_every_part_has_something_to_show(self):
        parts = SHORT if SAMPLE else PARTS
        done, got = self.run_script("--only", ",".join(parts))
        words = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, words)
        self.assertEqual(list(got["parts"]), parts)
        self.assertTrue(got["ok"] and got["simulated"])
        for name, part in got["parts"].items():
            self.assertGreater(len(part["rows"]), 0, name)
            for row in part["rows"]:
                self.assertEqual(row["status"], "ok", row)
        rows = {name: {r["name"]: r for r in part["rows"]} for name, part in got["parts"].items()}
        self.assertEqual(len(rows["layout"]), 4)
        self.assertIn("send and recv", rows["comm"]["2 ranks on one GPU"]["text"])
        hows = {p["how"] for r in rows["gemm"].values() for p in r["products"]}
        self.assertEqual(hows, {"fused", "split"})
        self.assertIn("gpt2 torch.compile", rows["torch"])
        # The table is the last that is printed, and short.
        table = done.stdout[done.stdout.rindex("\n\n"):]
        self.assertLess(len(table), 12000)
        for name in parts:
            self.assertIn(f"\n{name}", table)
        if not SAMPLE:
            self.assertGreater(rows["torch"]["gpt2 torch.compile"]["ratio"], 0)
            self.assertEqual(rows["train"]["8b timed"]["used_bytes"],
                             rows["train"]["8b timed"]["plan"]["total_bytes"]
                             - rows["train"]["8b timed"]["plan"]["overhead_bytes"])
            for name in ("gpt2", "1b", "8b"):
                by_op = rows["train"][f"{name} by kernel"]["by_op"]
                self.assertTrue({"gemm", "attention_fwd", "attention_bwd", "adamw"} <= set(by_op), by_op)
                self.assertGreater(by_op["gemm"]["flops"], 0)
                self.assertGreater(rows["train"][name]["predicted"]["by_op_ms"]["gemm"], 0)
            self.assertIn("ERROR SUMMARY", rows["sanitizer"]["memcheck"]["text"])
        self.assert_nothing_is_left()

    # One that goes wrong is shown, the next goes on, and the exit status says so.
    def test_a_part_that_fails_is_shown(self):
        done, got = self.run_script("--only", "facts,layout", "--fault", "fail")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(list(got["parts"]), ["facts", "failing", "layout"])
        self.assertFalse(got["ok"])
        self.assertEqual(got["parts"]["failing"]["rows"][0]["status"], "FAILED")
        self.assertEqual([r["status"] for r in got["parts"]["layout"]["rows"]], ["ok"] * 4)
        self.assertIn("failing | failing | FAILED", done.stdout)
        self.assertIn("NOT WELL", done.stdout)

    # One that hangs is cut in its time.
    def test_a_part_that_hangs_is_cut(self):
        done, got = self.run_script("--only", "facts,layout", "--fault", "hang")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(got["parts"]["hanging"]["rows"][0]["status"], "CUT")
        self.assertIn("sleep took more than", got["parts"]["hanging"]["rows"][0]["text"])
        self.assertEqual([r["status"] for r in got["parts"]["layout"]["rows"]], ["ok"] * 4)
        self.assert_nothing_is_left()

    # Ranks end with the training that started them, and what was had before it is cut is kept.
    def test_a_training_that_is_cut_leaves_no_rank(self):
        # More steps than any machine does in that time.
        done, got = self.run_script("--only", "train,layout", "--limit", "3", "--steps", "20000")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(got["parts"]["train"]["rows"][-1]["status"], "CUT")
        self.assert_nothing_is_left()

    # Without time nothing is begun, and it is said.
    def test_what_there_is_no_time_for_is_skipped(self):
        done, got = self.run_script("--only", "facts,layout", "--budget", "1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for part in got["parts"].values():
            self.assertEqual([r["status"] for r in part["rows"]], ["SKIPPED"])

    # Two ranks on one GPU may be refused; another failure of theirs is one.
    def test_only_a_gpu_that_is_given_twice_is_no_failure_of_nccl(self):
        for words in ("NCCL: invalid usage (two ranks were given the same GPU: NCCL takes one rank a GPU)",
                      "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000"):
            self.assertTrue(takes_a_gpu_once(words), words)
        for words in ("the making of NCCL's communicator of all ranks: NCCL: unhandled cuda error",
                      "NCCL: internal error", "all-reduce: wrong in 3 of 4096 places", ""):
            self.assertFalse(takes_a_gpu_once(words), words)

    # Of a run with many rows every row is in the table, which fits into the tail of a log.
    def test_a_long_table_stays_short(self):
        s = script.Script(argparse.Namespace(sim=True, bin=BIN), self.folder)
        s.parts = {f"part{p}": {"seconds": 1.5, "rows": [
            {"name": f"row {p}.{r}", "status": script.OK, "text": "much to say " * 30} for r in range(12)]}
            for p in range(10)}
        table = s.table()
        self.assertLess(len(table), 11000)
        self.assertEqual(len(table.splitlines()), 130)

    # Programs that aren't there fail each part by itself.
    def test_without_programs_every_part_fails(self):
        done, got = self.run_script("--bin", self.folder)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(list(got["parts"]), PARTS)
        for name in set(PARTS) - {"torch"}:
            self.assertIn("FAILED", [r["status"] for r in got["parts"][name]["rows"]], name)

    # A plug-in that can't be used is named in every row that needs it.
    def test_a_device_that_cannot_be_had_has_words(self):
        (self.folder / "bin").mkdir()
        for name in ("gpu_train", "tandem-rank", "gpu_bench", "ops_test", "libtandem_cuda_sim.so"):
            (self.folder / "bin" / name).symlink_to(BIN / name)
        done, got = self.run_script("--bin", self.folder / "bin", "--only", "facts,curves,attention,comm")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for name in ("curves", "attention", "comm"):
            row = got["parts"][name]["rows"][-1]
            self.assertEqual(row["status"], "FAILED")
            self.assertIn("no NVIDIA driver", row["text"])


if __name__ == "__main__":
    unittest.main()
