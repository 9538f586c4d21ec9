#!/usr/bin/env python3
"""configure_test.py CMAKE SOURCE_DIR: builds without CUDA, and what TANDEM_CUDA says about it.

Without nvcc and CUDA's headers AUTO goes on and says what is missing; ON is an error in words; a
compiler that is there but doesn't work is no more than a missing one; another word is refused.
TANDEM_FULL=1 also builds the loader's test and runs it."""
import os
import pathlib
import subprocess
import sys
import tempfile

cmake, source = sys.argv[1:3]
env = dict(os.environ)
# Where nvcc is in PATH, CMake also looks for headers beside it.
env["PATH"] = ":".join(d for d in env["PATH"].split(":") if not os.path.exists(f"{d}/nvcc"))
env.pop("CUDA_HOME", None)
env.pop("CUDACXX", None)


def configure(folder, *options):
    return subprocess.run([cmake, "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_C_FLAGS=-O1 -g",
                           *options], env=env, capture_output=True, text=True, timeout=600)


def expect(ok, done, *words):
    text = done.stdout + done.stderr
    joined = " ".join(text.split())
    missing = [w for w in words if w not in joined]
    if (done.returncode == 0) != ok or missing:
        print(text[-4000:])
        sys.exit(f"ended with {done.returncode}; missing: {missing}")


if os.path.exists("/usr/include/cuda_runtime_api.h"):
    print("SKIPPED: CUDA's headers are where they can't be hidden")
    sys.exit(77)

nowhere = "-DTANDEM_CUDA_HOME=/nowhere"
with tempfile.TemporaryDirectory() as top:
    done = configure(f"{top}/auto", nowhere)
    expect(True, done, "CUDA plug-in: not built: it lacks", "cuda_runtime_api.h, cublasLt.h, nccl.h",
           "SKIPPED: the CUDA kernels are not tested here: no cuda_runtime_api.h found")
    if os.environ.get("TANDEM_FULL", "0") not in ("", "0"):
        done = subprocess.run([cmake, "--build", f"{top}/auto", "-j", "2", "--target", "plugin_test"],
                              env=env, capture_output=True, text=True, timeout=900)
        expect(True, done)
        done = subprocess.run([f"{top}/auto/bin/plugin_test"], cwd=source, capture_output=True, text=True,
                              timeout=120)
        expect(True, done, "PASSED")

    expect(False, configure(f"{top}/on", nowhere, "-DTANDEM_CUDA=ON"),
           "TANDEM_CUDA=ON, but the CUDA plug-in lacks:", "cuda_runtime_api.h, cublasLt.h, nccl.h",
           "Looked for in /nowhere")
    expect(False, configure(f"{top}/word", nowhere, "-DTANDEM_CUDA=YES"),
           "TANDEM_CUDA=YES: has to be AUTO, ON or OFF")

    fake = pathlib.Path(top) / "home/bin/nvcc"
    fake.parent.mkdir(parents=True)
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    found = [f"-DTANDEM_CUDA_{name}={top}" for name in
             ("INCLUDE", "INCLUDE_cublaslt", "INCLUDE_nccl", "LIBRARY_cudart", "LIBRARY_cublasLt",
              "LIBRARY_nccl")]
    expect(False, configure(f"{top}/broken", nowhere, f"-DTANDEM_NVCC={fake}", "-DTANDEM_CUDA=ON",
                            "-DTANDEM_CUSIM=OFF", *found),
           "TANDEM_CUDA=ON, but the CUDA plug-in lacks: an nvcc that works")
