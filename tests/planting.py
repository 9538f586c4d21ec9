"""What the plant.py of several folders share: a patched source is compiled as BUILD's
compile_commands.json says, and a test is linked with that object before the sound one."""
import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def compile_command(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == str(ROOT / source) and "-fPIC" not in entry["command"]:
            return shlex.split(entry["command"]), entry["directory"]
    sys.exit(f"{source} is not in {build}/compile_commands.json")


def patched_source(patch, source, folder, fuzz):
    """A copy of source in folder with the patch applied."""
    target = folder / source
    target.parent.mkdir(parents=True)
    target.write_text((ROOT / source).read_text())
    subprocess.run(["patch", "-s", "-p1", f"--fuzz={fuzz}", "-d", folder, "-i", patch], check=True)
    return target


def planted_object(build, source, target, folder):
    """target, the patched copy of source, compiled like source."""
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


def planted_test(build, test, planted, folder):
    """The test's program, linked with the planted object."""
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", test], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    line = next(x for x in reversed(lines) if f"-o bin/{test}" in x)
    line = re.sub(r"^: && | && :$", "", line)
    program = folder / test
    subprocess.run(line.replace(f"-o bin/{test}", f"{planted} -o {program}"), cwd=build,
                   shell=True, check=True)
    return program
