#!/usr/bin/env python3
"""plant.py BUILD [--faults FOLDER] [--program NAME] [NUMBER...]: plants each fault of FOLDER
(tests/sim/faults) in the sources and looks whether the simulator NAME (tandem-sim) finds it.

A fault is a small patch of the real sources: its files are copied to a temporary folder, patched,
compiled as BUILD/compile_commands.json says and linked before the sound ones. Then seeds run
until one fails. "Profile: NAME" in the patch's head says which faults of the world bring it to
light. Exits 1 if one is not found within SEEDS_MAX seeds; prints the seeds that were needed.

Without numbers: all; with TANDEM_SAMPLE=1 three, others each day (PLANT_DAY=n: those of day n)."""
import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

SEEDS_MAX = 2000
A_DAY = 3
ROOT = pathlib.Path(__file__).resolve().parents[2]


def chosen(folder, numbers):
    faults = sorted((ROOT / folder).glob("*.patch"))
    if numbers:
        return [f for f in faults if f.name.split("-")[0] in numbers]
    if os.environ.get("TANDEM_SAMPLE", "0") == "0":
        return faults
    day = int(os.environ.get("PLANT_DAY", time.time() // 86400))
    return [faults[(day * A_DAY + i) % len(faults)] for i in range(A_DAY)]


def compile_command(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == str(ROOT / source) and "-fPIC" not in entry["command"]:
            return shlex.split(entry["command"]), entry["directory"]
    sys.exit(f"{source} is not in {build}/compile_commands.json")


def link_command(build, program):
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", program], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    line = next(x for x in reversed(lines) if f"-o bin/{program} " in x)
    return re.sub(r"^: && | && :$", "", line)


def build_planted(build, name, patch, folder):
    sources = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)
    objects = []
    for source in sources:
        target = folder / source
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / source).read_text())
    subprocess.run(["patch", "-s", "-p1", "--fuzz=3", "-d", folder, "-i", patch], check=True)
    for source in sources:
        command, where = compile_command(build, source)
        out = folder / (source.replace("/", "_") + ".o")
        command[command.index("-o") + 1] = str(out)
        for flag in ("-MF", "-MT"):
            if flag in command:
                command[command.index(flag) + 1] = str(folder / "deps")
        command[command.index("-c") + 1] = str(folder / source)
        subprocess.run(command, cwd=where, check=True)
        objects.append(str(out))
    program = folder / "planted"
    line = link_command(build, name).replace(f"-o bin/{name} ",
                                             " ".join(objects) + f" -o {program} ")
    subprocess.run(line, cwd=build, shell=True, check=True)
    return program


def look_for(build, name, patch):
    profile = re.search(r"^Profile: (\S+)", patch.read_text(), re.M).group(1)
    with tempfile.TemporaryDirectory() as folder:
        program = build_planted(build, name, patch, pathlib.Path(folder))
        run = subprocess.run([program, profile, "1", str(SEEDS_MAX)], capture_output=True,
                             text=True)
    words = run.stderr.strip().splitlines()
    if run.returncode == 0:
        print(f"{patch.stem}: NOT FOUND within {SEEDS_MAX} seeds of {profile}", flush=True)
        return False
    needed = run.stdout.split()[-1] if run.stdout.strip() else "?"
    print(f"{patch.stem}: found by seed {needed} of {profile}: {words[-1] if words else ''}",
          flush=True)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--faults", default="tests/sim/faults")
    parser.add_argument("--program", default="tandem-sim")
    parser.add_argument("numbers", nargs="*")
    args = parser.parse_intermixed_args()
    build = pathlib.Path(args.build).resolve()
    results = [look_for(build, args.program, patch)
               for patch in chosen(args.faults, args.numbers)]
    return 0 if results and all(results) else 1


sys.exit(main())
