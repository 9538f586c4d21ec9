#!/usr/bin/env python3
"""nvcc_test.py NVCC SOURCE_DIR: nvcc takes every kernel for sm_80 and sm_90 without a warning, and
none spills registers. What the simulator runs must be what a GPU would get."""
import pathlib
import re
import subprocess
import sys
import tempfile

nvcc, root = sys.argv[1], pathlib.Path(sys.argv[2])
sources = sorted((root / "kernels/cuda").glob("*.cu")) + [root / "tests/cusim/right.cu"]
failures = 0
for source in sources:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [nvcc, "-std=c++17", "-O3", "-I", str(root), "-Werror", "all-warnings", "-Xptxas", "-v",
             "-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90",
             "-c", str(source), "-o", f"{folder}/out.o"],
            capture_output=True, text=True, timeout=600)
    report = done.stdout + done.stderr
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill stores", report)]
    ok = done.returncode == 0 and spills and not any(spills)
    print(f"{source.name}: {len(spills)} kernels and architectures, {sum(spills)} bytes spilled"
          f"{'' if ok else ': FAILED'}")
    if not ok:
        print(report[-3000:])
        failures += 1
sys.exit(1 if failures else 0)
