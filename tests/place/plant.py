#!/usr/bin/env python3
"""plant.py BUILD [NUMBER...]: plants each fault of tests/place/faults in the placement and looks
whether the tests of tests/place find it.

A fault is a small patch of the real sources. Its file is copied to a temporary folder, patched,
compiled as BUILD/compile_commands.json says and linked before the sound one. Exits 1 if a fault is
found by neither test."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAULTS = sorted((ROOT / "tests/place/faults").glob("*.patch"))
TESTS = ("place_golden_test", "place_brute_test")


def compile_command(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == str(ROOT / source) and "-fPIC" not in entry["command"]:
            return shlex.split(entry["command"]), entry["directory"]
    sys.exit(f"{source} is not in {build}/compile_commands.json")


def build_object(build, patch, folder):
    source = re.search(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M).group(1)
    target = folder / source
    target.parent.mkdir(parents=True)
    target.write_text((ROOT / source).read_text())
    subprocess.run(["patch", "-s", "-p1", "--fuzz=3", "-d", folder, "-i", patch], check=True)
    command, where = compile_command(build, source)
    out = folder / "planted.o"
    command[command.index("-o") + 1] = str(out)
    for flag in ("-MF", "-MT"):
        if flag in command:
            command[command.index(flag) + 1] = str(folder / "deps")
    command[command.index("-c") + 1] = str(target)
    # A fault may leave a function or variable without use.
    subprocess.run(command + ["-Wno-error"], cwd=where, check=True)
    return out


def build_test(build, test, planted, folder):
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", test], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    line = next(x for x in reversed(lines) if f"-o bin/{test}" in x)
    line = re.sub(r"^: && | && :$", "", line)
    program = folder / test
    subprocess.run(line.replace(f"-o bin/{test}", f"{planted} -o {program}"), cwd=build,
                   shell=True, check=True)
    return program


def look_for(build, patch):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        planted = build_object(build, patch, folder)
        found = []
        for test in TESTS:
            # Fewer cases than usual would say too little.
            run = subprocess.run([build_test(build, test, planted, folder)], cwd=ROOT,
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
    results = [look_for(build, f) for f in FAULTS
               if not numbers or f.name.split("-")[0] in numbers]
    return 0 if results and all(results) else 1


sys.exit(main())
