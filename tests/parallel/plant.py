#!/usr/bin/env python3
"""plant.py BUILD [NUMBER...]: plants each fault of tests/parallel/faults and looks whether
named_faults_test, or the one that it names, finds it, by the test that is named for it and by no
other than the patch says.

A fault is a small patch of the real sources, without fuzz: where the code has changed it no longer
applies, and that is a failure too. Its head says in words what is wrong, and then
  In: FUNCTION      the function that all of it lies in
  Program: TEST     where it isn't named_faults_test
  Found by: TEST    the named test, then others that can't help failing, one a line
  Rarely            where it is: with TANDEM_FULL=1, or by its number
The file is copied to a temporary folder, patched, compiled as BUILD/compile_commands.json says and
linked before the sound one. Without numbers: those of the day (tests/planting.py)."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from planting import (ROOT, check_all_apply, is_set, of_today, patched_sources, planted_object,
                      planted_program)

FAULTS = sorted((ROOT / "tests/parallel/faults").glob("*.patch"))
USUAL_TEST = "named_faults_test"


class Fault:
    def __init__(self, path):
        self.path, self.text = path, path.read_text()
        head = self.text.split("\n--- ")[0]
        self.functions = re.findall(r"^In: (\S+)$", head, re.M)
        self.found_by = set(re.findall(r"^Found by: (\S+)$", head, re.M))
        program = re.search(r"^Program: (\S+)$", head, re.M)
        self.test = program.group(1) if program else USUAL_TEST
        self.rarely = re.search(r"^Rarely$", head, re.M) is not None
        self.source = re.search(r"^\+\+\+ b/(\S+)", self.text, re.M).group(1)
        assert self.functions and self.found_by, f"{path.name}: In and Found by are missing"


def function_lines(text):
    """Line number -> the function that it lies in: definitions begin in column 0 and end with }."""
    inside, found = None, {}
    for number, line in enumerate(text.splitlines(), 1):
        start = re.match(r"[A-Za-z_][\w \*]*?\b(\w+)\(", line)
        if start and not line.rstrip().endswith(";"):
            inside = start.group(1)
        found[number] = inside
        if line.startswith("}"):
            inside = None
    return found


def check_place(fault, before, after):
    """The lines that changed lie in the functions that the patch names."""
    where = function_lines(after)
    old, new = before.splitlines(), after.splitlines()
    first = next(i for i, (a, b) in enumerate(zip(old, new)) if a != b)
    last = len(new) - next(i for i, (a, b) in enumerate(zip(old[::-1], new[::-1])) if a != b)
    lie_in = {where[n] for n in range(first + 1, max(last, first + 1) + 1)} - {None}
    if not lie_in <= set(fault.functions):
        sys.exit(f"{fault.path.name}: changes {', '.join(sorted(lie_in))}, not "
                 f"{', '.join(fault.functions)}")


def look_for(build, fault):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        patched_sources(fault.path, folder)
        check_place(fault, (ROOT / fault.source).read_text(), (folder / fault.source).read_text())
        planted = planted_object(build, fault.source, folder)
        program = planted_program(build, fault.test, [planted], folder)
        run = subprocess.run([program], cwd=ROOT, capture_output=True, text=True, check=False,
                             env=os.environ | {"TMPDIR": name})
    words = run.stdout + run.stderr
    failed = set(re.findall(r"^\[  FAILED  \] (\w+)$", words, re.M))
    ok = run.returncode != 0 and failed == fault.found_by
    print(f"{fault.path.stem}: {'found by' if failed else 'NOT FOUND'} {', '.join(sorted(failed))}"
          f"{'' if ok else '; wants exactly ' + ', '.join(sorted(fault.found_by))}", flush=True)
    if not ok:
        print(words[-3000:])
    return ok


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    numbers = sys.argv[2:]
    check_all_apply(FAULTS)
    if numbers:
        chosen = [f for f in FAULTS if f.name.split("-")[0] in numbers]
    else:
        chosen = of_today([f for f in FAULTS if is_set("TANDEM_FULL") or not Fault(f).rarely])
    results = [look_for(build, f) for f in map(Fault, chosen)]
    return 0 if results and all(results) else 1


sys.exit(main())
