"""What a run may not leave behind: processes, segments, socket files, temporary files."""
import os
import pathlib

from bench_of_programs import processes, wait_for


def jobs_processes(programs, job):
    """(name, pid) of the job's tandem-node, its ranks, and nobody else."""
    found = []
    for pid, exe in processes(programs).items():
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--job" in words and words[words.index(b"--job") + 1] == str(job).encode():
            found.append((exe.rsplit("/", 1)[1].removesuffix(" (deleted)"), pid))
    return found


def segments(programs):
    """Names in /dev/shm, and memfds that a process of these programs still holds."""
    found = {name for name in os.listdir("/dev/shm") if "tandem" in name} if os.path.isdir("/dev/shm") else set()
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            targets = [os.readlink(fd) for fd in (entry / "fd").iterdir()]
            exe = os.readlink(entry / "exe")
        except OSError:
            continue
        found |= {f"{t} of {exe}" for t in targets if t.startswith("/memfd:") and exe.startswith(str(programs))}
    return found


def check_no_segments(programs, before):
    """None is left but those of before. A server's probe of a host holds one of its own for a moment."""
    left = set()

    def none():
        left.clear()
        left.update(segments(programs) - before)
        return not left
    try:
        wait_for("no segment", none)
    except AssertionError as e:
        raise AssertionError(f"{e}: {sorted(left)}") from None


def odd_files(data, running):
    """Below a data folder: sockets but the server's own while it runs, and what is half written."""
    found = []
    for path in (pathlib.Path(folder) / name for folder, folders, files in os.walk(data)
                 for name in folders + files):  # unlike rglob, it stumbles over nothing that goes
        if path.is_socket():
            if not (running and path == data / "tandemd.sock"):
                found.append(path)
        elif ".tmp" in path.name or path.name.startswith(".") or path.name.endswith((".partial", ".old")):
            found.append(path)
    return found
