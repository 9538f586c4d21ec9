"""Every test that runs CUDA kernels on the CPU is registered, enabled, built and no stand-in.

CUDA's headers are here when this runs. A test that a change of the build leaves out would not fail:
it would be missing. So for each source below tests/cusim that is a test, for each way to run the
parity suite, and for each test of whole ranks and programs on simulated GPUs there must be a ctest
entry that starts a program of it. None of them may be skipped by what its program says.

    registered_test.py --ctest CTEST --build DIR --variants plain asan tsan [--without nccl]...
                       [--but LABEL]

--but: tests that this build isn't for, which must be registered, but not built.
"""

import argparse
import json
import pathlib
import subprocess
import sys

# Of a package of its own each: they may be missing where its header is.
NEEDS = {
    "cublaslt_test": "cublaslt", "device_test": "cublaslt", "gemm_test": "cublaslt",
    "replay_test": "cublaslt", "times_test": "cublaslt", "nccl_test": "nccl",
    "comm_nccl_test": "nccl", "train_test": "nccl", "cudnn_test": "cudnn",
    "cudnn_graph_test": "cudnn_library",
}
# Against a library as it is: not under a sanitizer.
ONLY_PLAIN = ("cudnn_graph_test",)
# Programs of the build as it is, which has one way of its own.
AS_BUILT = ("train_test",)
# Ranks and programs on simulated GPUs; these need NCCL.
SYSTEMS = ("gpu_train_test", "gpu_script_test", "gpu_sweep_test", "graphs_test", "memory_gpu_test",
           "old_gradients_gpu_test", "quiet_steps_test")
THREADS = ("forward", "reverse", "random")
STREAMS = ("eager", "lazy", "random")


def property_of(test, name, otherwise=None):
    for entry in test.get("properties", []):
        if entry["name"] == name:
            return entry["value"]
    return otherwise


def is_skippable(test):
    return any(property_of(test, name) for name in ("SKIP_RETURN_CODE", "SKIP_REGULAR_EXPRESSION"))


def is_stand_in(test):
    """What cusim_absent leaves where a header is missing."""
    return pathlib.Path((test.get("command") or [""])[0]).name == "sh"


def find_faults(tests, variants, without, but):
    here = pathlib.Path(__file__).resolve().parent
    real = [t for t in tests if "cusim" in property_of(t, "LABELS", [])]
    programs = [pathlib.Path(t["command"][0]).name for t in tests if t.get("command")]
    for source in sorted(here.glob("*_test.c")):
        stem = source.stem
        if NEEDS.get(stem) in without:
            continue
        for variant in variants:
            if stem in ONLY_PLAIN and variant != "plain":
                continue
            name = stem if stem in AS_BUILT else f"{stem}_{variant}"
            if not any(p == name or p.endswith(f"_{name}") for p in programs):
                yield f"{source.name}: no test runs its {variant} program"
    by_name = {t["name"]: t for t in tests}
    if "cublaslt" not in without:
        for threads in THREADS:
            for streams in STREAMS:
                name = f"ops_cuda_{threads}_{streams}"
                test = by_name.get(name)
                environment = property_of(test, "ENVIRONMENT", []) if test else []
                if not test:
                    yield f"{name}: not registered"
                elif not any(e.startswith(f"CUSIM_SCHEDULE={threads},{streams}")
                             for e in environment):
                    yield f"{name}: doesn't take its schedule: {environment}"
                elif "TANDEM_PARITY_BACKEND=cuda" not in environment:
                    yield f"{name}: doesn't run on the plug-in: {environment}"
    named = [f"cusim_faults_{variant}" for variant in variants]
    if "nccl" not in without:
        named += SYSTEMS
    if "plain" in variants and "cublaslt" not in without:
        named.append("launch_kernels_test")
    for name in named:
        if "cusim" not in property_of(by_name.get(name, {}), "LABELS", []):
            yield f"{name}: not registered"
    for test in real:
        if property_of(test, "DISABLED", False):
            yield f"{test['name']}: disabled"
        elif is_skippable(test) and not (without and is_stand_in(test)):
            yield f"{test['name']}: may be skipped"
        elif but not in property_of(test, "LABELS", []) and (
                not test.get("command") or not pathlib.Path(test["command"][0]).exists()):
            yield f"{test['name']}: its program isn't built"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ctest", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--variants", nargs="+", required=True)
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--but")
    args = parser.parse_args()
    shown = subprocess.run([args.ctest, "--test-dir", args.build, "--show-only=json-v1"],
                           check=True, capture_output=True, text=True).stdout
    # What ctest says besides comes before the document.
    tests = json.loads(shown[shown.index("{"):])["tests"]
    faults = list(find_faults(tests, args.variants, args.without, args.but))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
