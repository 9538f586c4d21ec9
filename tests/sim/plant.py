#!/usr/bin/env python3
"""plant.py BUILD [--faults FOLDER] [--program NAME] [NUMBER...]: plants each fault of FOLDER
(tests/sim/faults) in the sources and looks whether the simulator NAME (tandem-sim) finds it.

A fault is a small patch of the real sources, without fuzz: its files are copied to a temporary
folder, patched, compiled as BUILD/compile_commands.json says and linked before the sound ones. Then
seeds run until one fails. "Profile: NAME" in the patch's head says which faults of the world bring
it to light. Exits 1 if one is not found within SEEDS_MAX seeds, or no longer applies; prints the
seeds that were needed.

Without numbers: those of the day (tests/planting.py)."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from planting import ROOT, check_all_apply, of_today, planted_objects, planted_program

SEEDS_MAX = 2000


def chosen(folder, numbers):
    faults = sorted((ROOT / folder).glob("*.patch"))
    check_all_apply(faults)
    if not numbers:
        return of_today(faults)
    return [f for f in faults if f.name.split("-")[0] in numbers]


def look_for(build, name, patch):
    profile = re.search(r"^Profile: (\S+)", patch.read_text(), re.M).group(1)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        program = planted_program(build, name, planted_objects(build, patch, folder), folder)
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
