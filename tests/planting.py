"""What the plant.py of several folders share: a patch's sources are compiled as BUILD's
compile_commands.json says, and a program is linked with those objects before the sound ones.

By default a fifth of a folder's faults is planted, others each day (PLANT_DAY=n: those of day n),
with TANDEM_SAMPLE=1 three, with TANDEM_FULL=1 all. Patches apply without fuzz: one that does with it
may have come to mean something else."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def compile_command(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == str(ROOT / source) and "-fPIC" not in entry["command"]:
            return shlex.split(entry["command"]), entry["directory"]
    sys.exit(f"{source} is not in {build}/compile_commands.json")


def patched_sources(patch, folder):
    """Copies in folder of the sources that the patch is for, with it applied: their names."""
    sources = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)
    for source in sources:
        target = folder / source
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / source).read_text())
    run = subprocess.run(["patch", "-s", "-p1", "--fuzz=0", "-d", folder, "-i", patch],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{patch.relative_to(ROOT)} no longer applies without fuzz: {run.stdout}")
    return sources


def check_all_apply(patches):
    """Also those that aren't planted today."""
    for patch in patches:
        with tempfile.TemporaryDirectory() as name:
            patched_sources(patch, pathlib.Path(name))


def is_set(name):
    return os.environ.get(name, "0") not in ("", "0")


def of_today(patches):
    """Those that are planted when none is asked for."""
    if is_set("TANDEM_FULL"):
        return patches
    day = int(os.environ.get("PLANT_DAY", time.time() // 86400))
    num = 3 if is_set("TANDEM_SAMPLE") else (len(patches) + 4) // 5
    print(f"PLANT_DAY={day}: {num} of {len(patches)} faults", flush=True)
    return [patches[(day * num + i) % len(patches)] for i in range(num)]


def planted_object(build, source, folder):
    """The patched copy of source in folder, compiled like source."""
    command, where = compile_command(build, source)
    out = folder / (source.replace("/", "_") + ".o")
    command[command.index("-o") + 1] = str(out)
    for flag in ("-MF", "-MT"):
        if flag in command:
            command[command.index(flag) + 1] = str(folder / "deps")
    command[command.index("-c") + 1] = str(folder / source)
    # A fault may leave a function or variable without use.
    subprocess.run(command + ["-Wno-error"], cwd=where, check=True)
    return out


def planted_objects(build, patch, folder):
    """All sources of the patch, compiled."""
    return [planted_object(build, source, folder) for source in patched_sources(patch, folder)]


def planted_program(build, name, objects, folder):
    """The test or program called name, linked with the planted objects."""
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", name], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    line = next(x for x in reversed(lines) if f"-o bin/{name} " in x)
    line = re.sub(r"^: && | && :$", "", line)
    program = folder / name
    planted = " ".join(str(o) for o in objects)
    subprocess.run(line.replace(f"-o bin/{name} ", f"{planted} -o {program} "), cwd=build,
                   shell=True, check=True)
    return program
