"""The parts of tests/gpu/run, in the order of their worth (PARTS)."""
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

import models
from script import FAILED, OK, SKIPPED

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"
# Dense bf16 of an H100 and H200, FLOP/s: what shares are of.
PEAK = 989e12
LIBRARIES = ("libcudart.so", "libcublasLt.so", "libnccl.so", "libcudnn.so")


# ---- where CUDA is ----

def cuda_folders(python):
    """Folders with CUDA's libraries: the toolkit's, and those that come with PyTorch."""
    folders = sorted(pathlib.Path("/usr/local").glob("cuda*/lib64"))
    try:
        paths = json.loads(subprocess.run([python, "-c", "import json, sys; print(json.dumps(sys.path))"],
                                          capture_output=True, text=True, timeout=30, check=True).stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        paths = sys.path
    for path in paths:
        folders += sorted(pathlib.Path(path or ".").glob("nvidia/*/lib"))
    return [str(f) for f in folders if any(any(f.glob(f"{name}*")) for name in LIBRARIES)]


def prepare(s):
    """The environment of our own programs."""
    lib = s.bin.parent / "lib"
    folders = ([str(lib)] if lib.is_dir() and not s.sim else []) + ([] if s.sim else cuda_folders(s.args.python))
    if folders:
        old = [s.env["LD_LIBRARY_PATH"]] if s.env.get("LD_LIBRARY_PATH") else []
        s.own_env["LD_LIBRARY_PATH"] = ":".join(folders + old)
    s.own_env["TANDEM_CUDA_PLUGIN"] = str(s.bin / ("libtandem_cuda_sim.so" if s.sim else "libtandem_cuda.so"))
    if s.sim:
        s.own_env["TANDEM_CUDA_DRIVER"] = str(s.bin / "libtandem_driver_sim.so")
        s.own_env["CUSIM_DEVICES"] = "1"


def facts(s):
    s.add("host", f"{os.cpu_count()} cores, {platform.platform()}, libc {platform.libc_ver()[1]}, "
                  f"Python {platform.python_version()}")
    missing = [line.split()[0] for line in s.run(["ldd", s.own_env["TANDEM_CUDA_PLUGIN"]]).out.splitlines()
               if "not found" in line]
    if missing:
        s.add("libraries", f"not found: {', '.join(missing)}; looked in {s.env.get('LD_LIBRARY_PATH', '')}", FAILED)
    else:
        s.add("libraries", s.own_env.get("LD_LIBRARY_PATH", "the system's"))
    if shutil.which("nvidia-smi", path=s.env["PATH"]):
        names = ("name,driver_version,compute_cap,memory.total,memory.used,clocks.max.sm,clocks.max.mem,clocks.sm,"
                 "power.limit,temperature.gpu,ecc.mode.current,mig.mode.current")
        done = s.run(["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader"], limit=20)
        values = [v.strip() for v in done.out.strip().split("\n")[0].split(",")]
        s.add("device", ", ".join(f"{n} {v}" for n, v in zip(names.split(","), values))
              if done.rc == 0 else done.words(), OK if done.rc == 0 else FAILED)
    else:
        s.add("device", "a simulated GPU" if s.sim else "no nvidia-smi", OK if s.sim else SKIPPED)
    done = s.run([s.bin / "gpu_bench", "copy", size(s)])
    for row in done.rows():
        s.add("copy on the device", f"{row['tb_per_s']:.3g} TB/s, read and written", **row)
    if done.rc != 0:
        s.add("copy on the device", done.words(), FAILED)


def size(s):
    return "tiny" if s.sim else "full"


# ---- is it right? ----

def layout(s):
    done = s.run([s.bin / ("gpu_layout_sim" if s.sim else "gpu_layout")])
    for row in done.rows():
        s.add(row["name"], "" if row["right"] else "another layout than the kernels take it for",
              OK if row["right"] else FAILED)
    if done.rc != 0:
        s.add("layout", done.words(), FAILED)


def ops_outcome(s, name, done):
    """A row of how many tests passed, one for each that didn't."""
    passed = re.findall(r"\[  PASSED  \] (\d+) test", done.err + done.out)
    words = [line for line in (done.err + done.out).splitlines()
             if re.search(r"error|want|FAILED|fault|differs", line, re.I)]
    if done.rc == 0 and passed:
        return int(passed[0])
    s.add(name, "; ".join(words[:4]) or done.words(), FAILED)
    return 0


def ops(s):
    num = 1 if s.sim else max(1, min(12, (os.cpu_count() or 2) - 2))
    env = {"TANDEM_PARITY_BACKEND": "cuda", "TANDEM_CUDA_ATTENTION": "own",
           "TANDEM_PARITY_STRIDE": "61" if s.sim else str(num)}
    done = s.run_all([([s.bin / "ops_test"], dict(env, TANDEM_PARITY_SEED=str(i))) for i in range(num)])
    passed = [ops_outcome(s, f"ops_test {i + 1} of {num}", d) for i, d in enumerate(done)]
    if all(passed):
        s.add("ops_test", f"{passed[0]} tests against ref, {'some of the' if s.sim else 'all'} cases", tests=passed[0])


# Distances from the fp64 curves that cusim's tests allow: of the loss, of the gradients' norm.
BARS = {"fp32": (2e-6, 5e-6), "bf16": (2e-3, 1.5e-2)}


def curves(s):
    cases = [("llama-tiny", 4, 32), ("gpt2-tiny", 4, 32), ("qwen3-tiny", 4, 32), ("llama-deep", 16, 64),
             ("gpt2-deep", 8, 32)]
    runs = [(c, precision, {}) for precision in BARS for c in cases]
    runs += [(cases[3], "bf16", {"TANDEM_CUDA_ATTENTION": "own"}), (cases[3], "bf16", {"TANDEM_CUDA_GRAPHS": "0"})]
    if s.sim:
        runs = [runs[0], runs[6]]
    steps, at_once = 4 if s.sim else 20, 2 if s.sim else 6
    done = []
    for i in range(0, len(runs), at_once):
        done += s.run_all([(
            [s.bin / "gpu_train", "golden=1", f"model={GOLDEN / name}", f"data={GOLDEN / name}/train.bin",
             "format=u16", f"t={t}", f"batch={batch}", "micro=2", f"steps={steps}", f"precision={precision}"], env)
            for (name, batch, t), precision, env in runs[i:i + at_once]])
    for ((name, _, _), precision, env), done in zip(runs, done):
        folder = GOLDEN / name
        what = " ".join([name, precision, *(f"{k[12:].lower()}={v}" for k, v in env.items())])
        got = next(done.rows(), {})
        if done.rc != 0 or len(got.get("steps", [])) != steps:
            s.add(what, fault_of(done, got), FAILED)
            continue
        want = json.loads((folder / "train.json").read_text())
        loss = max(abs(g["loss"] / w - 1) for g, w in zip(got["steps"], want["loss_f64"]))
        norm = max(abs(g["norm"] / w - 1) for g, w in zip(got["steps"], want["grad_norm_f64"]))
        near = loss <= BARS[precision][0] and norm <= BARS[precision][1]
        s.add(what, f"{steps} steps: loss off by {loss:.1e}, norm by {norm:.1e} (allowed {BARS[precision][0]:.0e}, "
                    f"{BARS[precision][1]:.0e})", OK if near else FAILED, loss=loss, norm=norm)


def fault_of(done, got):
    faults = got.get("faults") or []
    if not faults:
        return done.words()
    log = faults[0]["log"].strip().splitlines()
    return faults[0]["words"] or (log[-1] if log else f"left with status {faults[0]['status']:#x}")


# ---- how fast does it train? ----

class Case:
    def __init__(self, s, name, config, t, micro, steps):
        self.name, self.t, self.micro, self.steps = name, t, micro, steps
        self.config, self.folder = config, s.scratch / name
        self.best, self.seconds = None, 0


def cases(s):
    """The same for all parts of this run."""
    if hasattr(s, "cases"):
        return s.cases
    layers = s.args.layers
    if s.sim:
        s.cases = [Case(s, n, models.tiny(n), 16, 2, s.args.steps) for n in ("gpt2", "1b", "8b")]
    else:
        s.cases = [Case(s, "gpt2", models.GPT2, 1024, 32, 24), Case(s, "1b", models.llama_1b(), 4096, 4, 14),
                   Case(s, "8b", models.llama_8b(layers), 4096, 4, 12)]
    return s.cases


def train_command(s, case, *more):
    return [s.bin / "gpu_train", f"model={case.folder}", f"data={case.folder}/tokens.bin", "format=u32",
            f"t={case.t}", f"batch={case.micro}", f"micro={case.micro}", f"steps={case.steps}", "precision=bf16",
            "device=h200", "mem=150000000000", *more]


def write_case(case):
    if not (case.folder / "config.json").exists():
        models.write_model(case.folder, case.config)
        models.write_tokens(case.folder / "tokens.bin", (case.steps + 2) * case.micro * (case.t + 1) + 1,
                            case.config["vocab_size"])


class Watch:
    """The most memory that the device had in use meanwhile, in MiB; 0 where nobody says."""

    def __init__(self, s):
        self.s, self.most, self.stop = s, 0, threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self):
        while not self.stop.wait(3.0):
            p = self.s.start(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"])
            try:
                out = p.communicate(timeout=10)[0]
                self.most = max(self.most, int(out.split()[0]))
            except Exception:
                self.s.end([p])
                return

    def __enter__(self):
        if shutil.which("nvidia-smi", path=self.s.env["PATH"]):
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        if self.thread.is_alive():
            self.thread.join(15)


def take_times(path):
    """Rows of TANDEM_CUDA_TIMES, by operation, the longest first; and all of them."""
    rows = [json.loads(line) for f in path.parent.glob(path.name + ".*") for line in f.read_text().splitlines()]
    rows = [r for r in rows if r["op"]]
    by_op = {}
    for r in rows:
        op = by_op.setdefault(r["op"], {"ms": 0.0, "count": 0, "flops": 0.0})
        # As if the first call had been like the others.
        op["ms"] += r["ms"] * r["count"] / (r["count"] - 1) if r["count"] > 1 else r["first_ms"]
        op["count"] += r["count"]
        op["flops"] += r["flops"]
    return sorted(by_op.items(), key=lambda x: -x[1]["ms"]), rows


def train_once(s, case, what, env):
    name = f"{case.name} {what}".strip()
    if s.left() < 1.2 * case.seconds:
        s.add(name, f"the one before took {case.seconds:.0f} s, {s.left():.0f} s are left", SKIPPED)
        return None
    write_case(case)
    start = time.monotonic()
    with Watch(s) as watch:
        done = s.run(train_command(s, case), env)
    case.seconds = max(case.seconds, time.monotonic() - start)
    got = next(done.rows(), {})
    if done.rc != 0 or len(got.get("steps", [])) != case.steps:
        s.add(name, fault_of(done, got), FAILED)
        return None
    # The first steps choose algorithms and capture.
    ms = statistics.median(step["ms"] for step in got["steps"][min(4, case.steps - 1):])
    plan, tokens_per_s = got["plan"], case.micro * case.t / ms * 1e3
    mfu = tokens_per_s * plan["flops_per_token"] / PEAK
    planned, used = plan["total_bytes"] - plan["overhead_bytes"], got["used_bytes"]
    text = f"{tokens_per_s:.4g} tokens/s, MFU {100 * mfu:.1f} %, {ms:.4g} ms"
    predicted = got.get("predicted")
    # Of passes in graphs: without them the prediction is another one.
    if predicted and "TANDEM_CUDA_GRAPHS" not in env:
        text += f" (predicted {predicted['ms']:.4g}, MFU {100 * predicted['mfu']:.1f} %)"
    text += f"; {used / 1e9:.4g} GB"
    if used != planned:
        text += f" given out, but {planned / 1e9:.4g} planned"
    if watch.most:
        text += f"; on the device {watch.most * 2**20 / 1e9:.4g}, planned {plan['total_bytes'] / 1e9:.4g}"
    s.add(name, text, OK if used == planned else FAILED, tokens_per_s=tokens_per_s, mfu=mfu, ms=ms, used_bytes=used,
          device_mib=watch.most, plan=plan, predicted=predicted, steps=got["steps"], t=case.t, micro=case.micro)
    case.best = max(case.best or 0, tokens_per_s)
    return got


def train_kernels(s, case):
    path = s.scratch / f"times-{case.name}"
    got = train_once(s, case, "timed", {"TANDEM_CUDA_TIMES": str(path), "TANDEM_CUDA_GRAPHS": "0"})
    if not got:
        return
    by_op, rows = take_times(path)
    all_ms = sum(o["ms"] for _, o in by_op)
    if not by_op:
        s.add(f"{case.name} by kernel", "no times came", FAILED)
        return
    foreseen = (got.get("predicted") or {}).get("by_op_ms", {})
    for _, o in by_op:
        o["ms_a_step"] = o["ms"] / case.steps
    text = ", ".join(f"{op} {o['ms_a_step']:.3g}" + (f" ({foreseen[op]:.3g})" if op in foreseen else "")
                     for op, o in by_op[:8])
    s.add(f"{case.name} by kernel", f"{all_ms / case.steps:.4g} ms a step (predicted): {text}", by_op=dict(by_op),
          rows=rows)


def train(s):
    all_of_them = cases(s)
    if not s.sim:
        for case in all_of_them[2:]:
            fits = fitting_layers(s, case)
            s.add("8b layers", f"{case.config['num_hidden_layers']} of 32 (of which {fits} fit by the plan; more take "
                               "too long to fill)", fitting=fits)
    for case in all_of_them:
        train_once(s, case, "", {})
    for case in all_of_them:
        train_kernels(s, case)
    variants = (("no graphs", {"TANDEM_CUDA_GRAPHS": "0"}), ("own attention", {"TANDEM_CUDA_ATTENTION": "own"}),
                ("cuDNN both ways", {"TANDEM_CUDA_ATTENTION": "cudnn"}))
    for what, env in variants:
        train_once(s, all_of_them[0], what, env)
    if not s.sim:
        train_once(s, all_of_them[1], *variants[1])


def fitting_layers(s, case):
    """By bisection over plans. A folder with a configuration is a model to plan for."""
    low, high = 1, 32
    write_case(case)
    while low < high:
        layers = (low + high + 1) // 2
        folder = s.scratch / "fits"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(dict(case.config, num_hidden_layers=layers)))
        done = s.run([*train_command(s, case, "plan=1")[:1], f"model={folder}",
                      *train_command(s, case, "plan=1")[2:]])
        got = next(done.rows(), None)
        fits = done.rc == 0 and got and got["plan"]["total_bytes"] <= 143771 * 2**20
        low, high = (layers, high) if fits else (low, layers - 1)
    return low


# ---- how fast are its parts? ----

# Own kernels' expectation (docs/performance.md; heads of 64: what predictions assume), and what NVIDIA publishes for
# cuDNN on an H200 (heads 64/8), TFLOP/s forward and backward.
EXPECTED = {64: ("300", "200"), 128: ("330-400", "215-265")}
PUBLISHED = {(128, 2048): (484, 370), (128, 4096): (591, 474), (128, 8192): (644, 541)}


def attention(s):
    done = s.run([s.bin / "gpu_bench", "attention", size(s)])
    for row in done.rows():
        if row["row"] == "attention_values":
            text = "" if row["cudnn_answered"] else "cuDNN didn't answer: the same bits as our own; "
            text += ", ".join(f"{k} {row[k]:.1e}" for k in ("o", "dq", "dk", "dv")) + " apart"
            s.add(f"values t{row['t']} e{row['e']}", text, OK if row["near"] else FAILED, **row)
            continue
        text = (f"forward {row['fwd_ms']:.4g} ms, {row['fwd_tflops']:.0f} TFLOP/s; backward {row['bwd_ms']:.4g} ms, "
                f"{row['bwd_tflops']:.0f}")
        if row["kind"] == "own" and row["e"] in EXPECTED:
            text += " (expected {}, {})".format(*EXPECTED[row["e"]])
        if row["kind"] == "cudnn" and (row["e"], row["t"]) in PUBLISHED:
            text += " (published {}, {})".format(*PUBLISHED[row["e"], row["t"]])
        s.add(f"{row['kind']} b{row['b']} t{row['t']} h{row['h']}/{row['kv']} e{row['e']}", text, **row)
    if done.rc != 0:
        s.add("attention", done.words(), FAILED)


def gemm(s):
    path = s.scratch / "times-gemm"
    done = s.run([s.bin / "gpu_bench", "gemm", size(s)], {"TANDEM_CUDA_TIMES": str(path)})
    how = {}
    for r in take_times(path)[1]:
        what, _, done_how = r["what"].rpartition(" ")
        how[what] = done_how
    shapes = {}
    for row in done.rows():
        row["how"] = how.get(row["what"], "?")
        row["share"] = row["tflops"] * 1e12 / PEAK
        # All products of one layer follow each other.
        if row["name"] == "y":
            shapes[row["what"]] = []
        shapes[next(reversed(shapes))].append(row)
    for what, rows in shapes.items():
        text = ", ".join(f"{r['name']} {r['tflops']:.0f}{'' if r['how'] == 'fused' else ' ' + r['how']}" for r in rows)
        s.add(what, f"TFLOP/s: {text}", products=rows)
    if done.rc != 0 or not shapes:
        s.add("gemm", done.words(), FAILED)


def takes_a_gpu_once(words):
    """Is this how NCCL refuses two ranks on one GPU? Whatever else it says is a failure."""
    return re.search(r"duplicate gpu|given the same gpu|invalid usage", words, re.I) is not None


def comm(s):
    for num in (1, 2):
        done = s.run([s.bin / "gpu_bench", "comm", size(s), num], limit=60)
        rows = list(done.rows())
        calls = [r["call"] for r in rows if r["row"] == "comm"]
        times = "; ".join(f"{r['call']} of {r['bytes']} bytes {r['ms']:.4g} ms" for r in rows if r["row"] == "comm_time")
        name = f"{num} rank{'s on one GPU' if num > 1 else ''}"
        if done.rc == 0:
            s.add(name, f"right: {', '.join(calls)}; {times}", rows=rows)
        elif num > 1 and not s.sim and takes_a_gpu_once(done.err):
            s.add(name, f"refused by NCCL, which takes a GPU once: {done.words()}", SKIPPED)
        else:
            s.add(name, done.words(), FAILED)


def sanitizer(s):
    tool = shutil.which("compute-sanitizer", path=s.env["PATH"])
    for folder in sorted(pathlib.Path("/usr/local").glob("cuda*/bin")) + sorted(
            pathlib.Path("/usr/local").glob("cuda*/compute-sanitizer")):
        tool = tool or shutil.which("compute-sanitizer", path=str(folder))
    if not tool:
        s.add("compute-sanitizer", "not found", SKIPPED)
        return
    env = {"TANDEM_PARITY_BACKEND": "cuda", "TANDEM_CUDA_ATTENTION": "own",
           "TANDEM_PARITY_STRIDE": "97" if s.sim else "29", "TANDEM_PARITY_LARGEST": "140"}
    commands = [([tool, "--tool", t, "--error-exitcode", "9", s.bin / "ops_test"], env)
                for t in ("memcheck", "racecheck")]
    for (command, _), done in zip(commands, s.run_all(commands)):
        passed = ops_outcome(s, command[2], done)
        if passed:
            summary = re.findall(r"=+ ((?:ERROR|RACECHECK) SUMMARY.*)", done.out + done.err)
            s.add(command[2], f"{passed} tests, sampled; {summary[-1] if summary else 'no summary'}")


def peer(s):
    python = s.args.python
    device = "cpu" if s.sim else "cuda"
    done = s.run([python, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"], limit=90)
    if done.rc != 0 or (not s.sim and "True" not in done.out):
        s.add("torch", f"{python} has no PyTorch that sees a GPU: {done.words()}", SKIPPED)
        return
    by_worth = [cases(s)[0], *reversed(cases(s)[1:])]
    order = [(case, mode) for case in by_worth for mode in ([], ["--compile"])]
    for case, mode in order:
        write_case(case)
        name = f"{case.name} {'torch.compile' if mode else 'eager'}"
        done = s.run([python, ROOT / "tests/gpu/peer_torch.py", case.folder / "config.json", "--t", case.t, "--micro",
                      case.micro, "--steps", 12, "--device", device, *mode])
        got = next(done.rows(), None)
        if done.rc != 0 or not got:
            s.add(name, done.words(), FAILED)
            continue
        ratio = case.best / got["tokens_per_s"] if case.best else None
        s.add(name, f"{got['tokens_per_s']:.4g} tokens/s, {got['ms']:.4g} ms a step, {got['memory_bytes'] / 1e9:.3g} GB"
                    + (f"; Tandem's best is {ratio:.2f} times as fast" if ratio else ""), ratio=ratio, **got)


# Name, seconds at most, what it does.
PARTS = (
    ("facts", 40, facts),
    ("layout", 15, layout),
    ("ops", 90, ops),
    ("curves", 75, curves),
    ("train", 210, train),
    ("attention", 45, attention),
    ("gemm", 45, gemm),
    ("torch", 140, peer),
    ("comm", 60, comm),
    ("sanitizer", 70, sanitizer),
)
