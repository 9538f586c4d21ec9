#!/usr/bin/env python3
"""What docs/performance.md predicts of steps on H100 and H200 is what `tandem plan --kernels` says:
every figure of its tables of MFU, of where the time goes, and of operations. No GPU, no server.

    TANDEM_BIN=build/dev/bin python3 tests/e2e/predictions_test.py    # which figures differ, and by what
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TANDEM_BIN", ROOT / "build/dev/bin")).resolve()
sys.path.insert(0, str(ROOT / "tests/gpu"))
sys.dont_write_bytecode = True
import models

TYPES = ("h100", "h200")
ATTENTION = ("own", "auto", "cudnn")
PEAK = 989e12
BYTES_PER_S = {"h100": 3.35e12, "h200": 4.8e12}  # datasheets
UNITS = {"k": 1e3, "M": 1e6, "MB": 1e6, "GB": 1e9, "GFLOP": 1e9, "TFLOP": 1e12, "us": 1e-6, "ms": 1e-3, "": 1}


def steps(model, seq_len, micro, micro_batches, data=1, tensor=1, zero=0):
    return {"model": model, "training.seq_len": seq_len, "training.micro_batch_size": micro,
            "training.global_batch_size": data * micro * micro_batches, "parallel.data": data,
            "parallel.tensor": tensor, "parallel.sequence_parallel": str(tensor > 1).lower(),
            "parallel.zero_stage": zero}


# How a row of the table of MFU begins. Rows of one step follow each other.
GPT2 = "GPT-2 124M, T 1024, micro-batch 16"
LLAMA = "Llama-3-8B, T 8192, 8 GPUs, ZeRO-3, micro-batch 1"
TENSOR = "Llama-3-8B, T 8192, tensor 8 with sequence parallel"
STEPS = {
    GPT2: steps("gpt2", 1024, 16, 32),
    "GPT-2 124M, 8 GPUs, data 8, 4 micro-batches each": steps("gpt2", 1024, 16, 4, data=8),
    LLAMA: steps("8b", 8192, 1, 8, data=8, zero=3),
    "the same, T 4096, micro-batch 2, 8 of them": steps("8b", 4096, 2, 8, data=8, zero=3),
    "Llama-3-8B, T 8192, ZeRO-3 on data 4 x tensor 2": steps("8b", 8192, 2, 8, data=4, tensor=2, zero=3),
    TENSOR: steps("8b", 8192, 1, 8, tensor=8),
}


def number(text):
    """138 MB, 1.52 ms, 4.60M -> what it is."""
    found = re.fullmatch(r"([\d.]+)\s*([A-Za-z]*)", text.strip())
    return float(found[1]) * UNITS[found[2]]


def rows_behind(title):
    """Of the table whose head begins so: a list of cells for each row."""
    text = (ROOT / "docs/performance.md").read_text()
    lines = text[text.index(title):].splitlines()[2:]
    end = next(i for i, line in enumerate(lines) if not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


class Predictions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="predictions_test")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.at = pathlib.Path(cls.folder.name)
        cls.known = {}
        (cls.at / "tokens.bin").write_bytes(bytes(1 << 21))
        for name, config in (("gpt2", models.GPT2), ("8b", models.llama_8b(32))):
            (cls.at / f"{name}.json").write_text(json.dumps(config))
            (cls.at / f"{name}.yaml").write_text(
                f"name: {name}\nmodel: {{config: {name}.json}}\n"
                "data: {train: [{path: tokens.bin, format: u16}]}\n"
                "training: {steps: 10, seq_len: 1024, global_batch_size: 1}\n")
        for kind in TYPES:
            (cls.at / f"{kind}.yaml").write_text(
                f"nodes: [{{name: n, cores: 112, devices: [{{type: {kind}, count: 8}}]}}]\n")

    def plan(self, step, kind, *more):
        step = dict(step)
        words = [BIN / "tandem", "plan", self.at / f"{step.pop('model')}.yaml", "--cluster",
                 self.at / f"{kind}.yaml", *more]
        for item in step.items():
            words += ["--set", "%s=%s" % item]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def predict(self, name, kind, attention):
        key = (name, kind, attention)
        if key not in self.known:
            self.known[key] = json.loads(
                self.plan(STEPS[name], kind, "--kernels", "--attention", attention, "-o", "json"))
        return self.known[key]

    def same(self, what, says, is_so, half):
        """half: of the last digit that is written."""
        if abs(says - is_so) > half * 1.001:
            self.wrong.append(f"{what}: docs/performance.md has {says:.6g}, it is {is_so:.6g}")

    def same_digits(self, what, text, is_so):
        """As exact as it is written."""
        digits = re.match(r"[\d.]+", text)[0]
        last = 10 ** -len(digits.partition(".")[2])
        self.same(what, number(text), is_so, number(text.replace(digits, str(0.5 * last))))

    def setUp(self):
        self.wrong = []

    def tearDown(self):
        self.assertEqual(self.wrong, [])

    def test_mfu_tokens_and_memory(self):
        name, met = None, set()
        for first, attention, *cells in rows_behind("| MFU, predicted"):
            name = next((n for n in STEPS if first.startswith(n)), None if first else name)
            self.assertIsNotNone(name, f"no step is known for {first}")
            met.add(name)
            if memory := re.search(r"\(([\d.]+) GB", first):
                said = re.search(r"^memory +([\d.]+) GB", self.plan(STEPS[name], "h100"), re.M)
                self.same(f"memory of {name}", float(memory[1]), float(said[1]), 0)
            words = [attention] if " / " not in attention else attention.split(" / ")
            which = [next(a for a, w in zip(ATTENTION, ("own", "forward", "both")) if w in word) for word in words]
            for kind, cell in zip(TYPES, cells):
                shares, _, tokens = cell.partition(" %")
                for a, share in zip(which, shares.split(", "), strict=True):
                    got = self.predict(name, kind, a)
                    self.same_digits(f"MFU of {name}, {a}, {kind}", share, 100 * got["mfu"])
                    if tokens:
                        self.same_digits(f"tokens/s of {name}, {a}, {kind}", tokens.strip(" ,"),
                                         got["tokens_per_second"])
        self.assertEqual(met, set(STEPS))

    def test_what_the_script_for_a_gpu_will_hold_itself_against(self):
        said = re.search(r"GPT-2 (\d+) ms\s+a\s+step, ([\d.]+) % MFU; Llama 1B (\d+) ms, ([\d.]+) %; six\s+layers\s+of "
                         r"Llama 8B with its whole vocabulary (\d+) ms, ([\d.]+) %",
                         (ROOT / "docs/performance.md").read_text().replace("\n", " "))
        for i, (config, t, micro) in enumerate(((models.GPT2, 1024, 32), (models.llama_1b(), 4096, 4),
                                                (models.llama_8b(6), 4096, 4))):
            (self.at / "config.json").write_text(json.dumps(config))
            done = subprocess.run(
                [BIN / "gpu_train", "plan=1", f"model={self.at}", f"data={self.at}/tokens.bin", "format=u32",
                 f"t={t}", f"batch={micro}", f"micro={micro}", "steps=2", "precision=bf16", "device=h200",
                 "mem=150000000000"], capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            got = json.loads(done.stdout)["predicted"]
            self.same_digits(f"ms of model {i + 1}", said[2 * i + 1], got["ms"])
            self.same_digits(f"MFU of model {i + 1}", said[2 * i + 2], 100 * got["mfu"])

    def test_where_the_time_goes(self):
        kinds = ("gemm", "attention", "norm", "pointwise", "loss", "optimizer", "memory")
        which = {"GPT-2": (GPT2, "own"), "Llama-3-8B, ZeRO-3": (LLAMA, "auto"),
                 "Llama-3-8B, tensor 8": (TENSOR, "auto")}
        rows = rows_behind("| | products | attention")
        self.assertEqual(len(rows), len(which))
        for first, *cells in rows:
            got = self.predict(*next((v[0], "h100", v[1]) for k, v in which.items() if first.startswith(k)))
            for kind, cell in zip(kinds, cells):
                self.same_digits(f"{kind} of {first}", cell, 100 * got["totals"][kind]["seconds"] / got["step_seconds"])
            communication = got["totals"].get("communication", {"seconds": 0, "beside_seconds": 0})
            if cells[7]:
                where = "beside_seconds" if cells[7].startswith("beside") else "seconds"
                self.same_digits(f"communication of {first}", cells[7].split()[-1],
                                 100 * communication[where] / got["step_seconds"])

    def test_each_operation(self):
        launches = {}
        for kind in TYPES:
            for row in self.predict(LLAMA, kind, "own")["launches"]:
                launches.setdefault(f"{row['op']} {row['what']}".strip(), {})[kind] = row
        rows = rows_behind("| operation | shape | FLOPs")
        self.assertGreater(len(rows), 20)
        for operation, shape, flops, size, ratio, roofline, predicted, bound in rows:
            got = launches[re.sub(r"[ _]forward", "_fwd", re.sub(r"[ _]backward", "_bwd", operation))
                           .replace("attention fwd", "attention_fwd").replace("attention bwd", "attention_bwd")]
            row = got["h100"]
            self.same_digits(f"bytes of {operation}", size, row["bytes"])
            if flops != "-":
                self.same_digits(f"FLOPs of {operation}", flops, row["flops"])
                self.same_digits(f"FLOPs a byte of {operation}", ratio, row["flops"] / row["bytes"])
            elements = [float(x) for x in shape.split(" x ")]
            for says, is_so in zip(elements, row["shape"]):
                self.same(f"shape of {operation}", says, is_so, 1e-3 * is_so)
            least = {k: max(row["flops"] / PEAK, row["bytes"] / BYTES_PER_S[k]) for k in TYPES}
            for what, cell, is_so in (("roofline", roofline, least),
                                      ("time", predicted, {k: got[k]["seconds"] for k in TYPES})):
                for kind, text in zip(TYPES, cell.split(" / ") * 2):
                    self.same_digits(f"{what} of {operation}, {kind}", text, is_so[kind])
            self.assertEqual(bound, row["bound"], operation)


if __name__ == "__main__":
    unittest.main()
