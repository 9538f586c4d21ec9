#!/usr/bin/env python3
"""plant.py BUILD [NUMBER...]: plants each fault of tests/place/faults in the placement and looks
whether the tests of tests/place find it.

A fault is a small patch of the real sources, without fuzz. Its file is copied to a temporary
folder, patched, compiled as BUILD/compile_commands.json says and linked before the sound one. Exits
1 if a fault is found by neither test. Without numbers: those of the day (tests/planting.py)."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from planting import ROOT, check_all_apply, of_today, planted_objects, planted_program

FAULTS = sorted((ROOT / "tests/place/faults").glob("*.patch"))
TESTS = ("place_golden_test", "place_brute_test")


def look_for(build, patch):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        planted = planted_objects(build, patch, folder)
        found = []
        for test in TESTS:
            # Fewer cases than usual would say too little.
            run = subprocess.run([planted_program(build, test, planted, folder)], cwd=ROOT,
                                 env=os.environ | {"TANDEM_SAMPLE": "0"}, capture_output=True,
                                 text=True, check=False)
            if run.returncode != 0:
                words = re.search(r"seed \d+: [^\n]+", run.stderr)
                found.append(test + (f" ({words.group(0)[:40]})" if words else ""))
    print(f"{patch.stem}: {'found by ' + ', '.join(found) if found else 'NOT FOUND'}", flush=True)
    return bool(found)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    numbers = sys.argv[2:]
    check_all_apply(FAULTS)
    chosen = [f for f in FAULTS if f.name.split("-")[0] in numbers] if numbers else of_today(FAULTS)
    results = [look_for(build, f) for f in chosen]
    return 0 if results and all(results) else 1


sys.exit(main())
