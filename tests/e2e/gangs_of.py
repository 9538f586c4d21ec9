"""What a test leaves running whose programs are not its own: for one that can't wait for the end of
every job, or has failed."""
import contextlib
import os
import pathlib
import signal


def end_gangs(data):
    """A tandem-node without its server waits for the next one; of this data folder there is none."""
    mark = b"@" + os.fsencode(pathlib.Path(data).resolve())
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if any(w.startswith(b"TANDEM_ATTEMPT=") and w.endswith(mark) for w in words):
                os.kill(int(entry.name), signal.SIGKILL)
