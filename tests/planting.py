"""What the plant.py of several folders share: a patch's sources are compiled as BUILD's
compile_commands.json says, and a program is linked with those objects before the sound ones.

Patches apply without fuzz: one that does with it may have come to mean something else."""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

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
