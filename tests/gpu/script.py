"""What tests/gpu/run is made of besides its parts: programs with a limit each, rows, the table and the JSON."""
import json
import os
import pathlib
import signal
import subprocess
import time

OK, FAILED, SKIPPED, CUT = "ok", "FAILED", "SKIPPED", "CUT"
TEXT_MAX = 150
TABLE_MAX = 11000
# How many times longer simulated GPUs may take: their parts have little to do, on a machine of any speed.
SLACK = 10


class Cut(Exception):
    """The part's time is over; what it started is gone."""


class Done:
    def __init__(self, rc, out, err):
        self.rc, self.out, self.err = rc, out, err

    def rows(self):
        """Lines of JSON in the output."""
        for line in self.out.splitlines():
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                except ValueError:
                    pass

    def words(self):
        """The last that it said, for a row."""
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        return f"exit status {self.rc}: {lines[-1] if lines else 'no words'}"


class Script:
    def __init__(self, args, scratch):
        self.args, self.sim, self.scratch, self.bin = args, args.sim, scratch, args.bin
        self.slack = SLACK if args.sim else 1
        self.began = time.monotonic()
        self.part, self.part_end = None, 0
        self.parts = {}
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "CUSIM_"))}
        # For our own programs alone: others have libraries of their own.
        self.own_env = {}

    # ---- programs ----

    def left(self):
        return self.part_end - time.monotonic()

    def start(self, command, env=None):
        ours = any(str(c).startswith(f"{self.bin}/") for c in command)
        whole = {**self.env, **(self.own_env if ours else {}), **(env or {})}
        # A group of its own: what it starts ends with it.
        return subprocess.Popen([str(c) for c in command], env=whole, stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace",
                                start_new_session=True)

    def finish(self, process, limit=None):
        limit = min(self.slack * (limit or 1e9), max(self.left(), 0.1))
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.end([process])
            raise Cut(f"{pathlib.Path(process.args[0]).name} took more than {limit:.0f} s") from None
        return Done(process.returncode, out, err)

    def end(self, processes):
        for p in processes:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.communicate()

    def run(self, command, env=None, limit=None):
        return self.finish(self.start(command, env), limit)

    def run_all(self, commands):
        """Side by side: [(command, env)]."""
        started = [self.start(*c) for c in commands]
        try:
            return [self.finish(p) for p in started]
        finally:
            self.end([p for p in started if p.returncode is None])

    # ---- rows ----

    def add(self, name, text="", status=OK, **data):
        row = {"name": name, "status": status, "text": " ".join(str(text).split())[:TEXT_MAX * 4], **data}
        self.parts[self.part]["rows"].append(row)
        print(f"  {self.part}: {name}: {status} {row['text'][:TEXT_MAX]}", flush=True)
        return row

    def run_part(self, name, limit, fn):
        left = self.args.budget - (time.monotonic() - self.began)
        self.part = name
        part = self.parts[name] = {"rows": [], "limit_s": limit}
        start = time.monotonic()
        self.part_end = start + min(limit, left)
        if left < 5:
            self.add(name, f"the {self.args.budget:.0f} s of all parts are used up", SKIPPED)
        else:
            try:
                fn(self)
                if not part["rows"]:
                    self.add(name, "it has nothing to show", FAILED)
            except Cut as e:
                self.add(name, e, CUT)
            except Exception as e:  # a part's own mistake costs no other part
                self.add(name, f"{type(e).__name__}: {e}", FAILED)
        part["seconds"] = round(time.monotonic() - start, 1)
        self.write()

    # ---- what is left behind ----

    def is_ok(self):
        return all(r["status"] in (OK, SKIPPED) for p in self.parts.values() for r in p["rows"])

    def write(self):
        whole = {"ok": self.is_ok(), "simulated": self.sim,
                 "seconds": round(time.monotonic() - self.began, 1), "parts": self.parts}
        part = self.args.out / "gpu.json.part"
        part.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n")
        part.replace(self.args.out / "gpu.json")

    def table(self):
        """Short enough for the tail of a log: where there are many rows each has less to say."""
        for most in (TEXT_MAX, 120, 100, 80, 60, 40, 20):
            lines = []
            for name, part in self.parts.items():
                width = max(len(row["name"][:34]) for row in part["rows"])
                for row in part["rows"]:
                    status = "" if row["status"] == OK else f"{row['status']} "
                    lines.append(f"{name} | {row['name'][:34]:{width}} | {status}{row['text'][:most]}".rstrip())
                lines.append(f"{name} | {part['seconds']} s")
            text = "\n".join(lines)
            if len(text) < TABLE_MAX:
                break
        return text[:TABLE_MAX]
