"""What cluster_run_test.py runs on: a tandemd of the split host with two tenants, the command line, and
one who looks at who holds what meanwhile."""
import csv
import hashlib
import io
import json
import os
import pathlib
import subprocess
import threading

from bench_of_programs import DEADLINE, Server, grpc
from cluster_run_jobs import CLUSTER, NODES

QUOTAS = {"research": (8, "none"), "product": (8, 12)}
USERS = {"research": "rosa", "product": "pat"}
SCHEDULER = ["--scheduler", "min_run_s=0", "--scheduler", "grace_s=60"]


def most_of(tenant):
    return sum(NODES.values()) if QUOTAS[tenant][1] == "none" else QUOTAS[tenant][1]


class Cluster(Server):
    """A tandemd of the split host, and the command line against it."""

    def __init__(self, m, folder, programs, transcript=None):
        folder.mkdir()
        self.transcript = transcript
        super().__init__(m, folder, programs, None, ["--cluster", CLUSTER, *SCHEDULER])

    def tandem(self, *words, user=None, code=0, stdin=None):
        """What it prints. user: whose token it comes with; None: the operator's."""
        env = {**os.environ, "TANDEM_SERVER": f"unix:{self.data}/tandemd.sock", "COLUMNS": "100",
               "XDG_CONFIG_HOME": str(self.folder / "none"), "LC_ALL": "C.UTF-8"}
        if user:
            env["TANDEM_TOKEN_FILE"] = str(self.folder / f"{user}.token")
        words = [str(w) for w in words]
        r = subprocess.run([self.programs / "tandem", *words], capture_output=True, text=True,
                           timeout=DEADLINE, env=env, input=stdin)
        assert r.returncode == code, f"tandem {' '.join(words)}: {r.returncode}: {r.stdout}{r.stderr}"
        if self.transcript and "-o" not in words:
            self.transcript.write(f"$ tandem {' '.join(words)}\n{r.stdout}{r.stderr}\n")
        return r.stdout

    def add_tenants(self):
        for tenant, (own, most) in QUOTAS.items():
            self.tandem("admin", "tenant", "add", tenant)
            self.tandem("admin", "user", "add", USERS[tenant], "--tenant", tenant)
            self.tandem("admin", "token", "create", "--user", USERS[tenant], "--tenant", tenant,
                        "--out", self.folder / f"{USERS[tenant]}.token")
            self.tandem("admin", "quota", "set", tenant, "--devices", own, "--max", most,
                        "--weight", 1)

    def submit_file(self, text, tenant=None):
        file = self.folder / "job.json"
        file.write_text(text)
        return int(self.tandem("submit", file, "-q", user=USERS.get(tenant)))

    def curve_rows(self, job, attempt=0):
        """(step, loss, grad_norm, lr) as printed, which is exact; of all of it or of an attempt."""
        table = csv.DictReader(io.StringIO(self.tandem(
            "metrics", job, "-o", "csv", "--series", "loss,grad_norm,lr", "--attempt", attempt)))
        return [(int(r["step"]), r["loss"], r["grad_norm"], r["lr"]) for r in table]

    def weights(self, job):
        """Of its export: name -> sha256."""
        folder = pathlib.Path(self.get(job).export_dir)
        return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()}

    def why(self, job, user=None):
        return json.loads(self.tandem("why", job, "-o", "json", user=user))

    def devices_now(self):
        """("east0", 0) -> DeviceInfo."""
        nodes = self.cluster.ListNodes(self.m.cluster.ListNodesRequest(), timeout=DEADLINE).nodes
        return {(n.name, d.index): d for n in nodes for d in n.devices}

    def held_by(self, job):
        return [k for k, d in self.devices_now().items() if d.job_id == job]


class Sampler(threading.Thread):
    """Looks at who holds what, all the time, whether the controller is there or not."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.faults, self.samples, self.busy = server, [], 0, 0
        self.jobs, self.done = {}, threading.Event()

    def look(self):
        m = self.server.m
        devices = self.server.devices_now()
        for j in self.server.jobs.List(m.jobs.ListJobsRequest(all=True, page_size=1000),
                                       timeout=DEADLINE).jobs:
            self.jobs[j.id] = j
        held, by_job = dict.fromkeys(QUOTAS, 0), {}
        for d in devices.values():
            if d.job_id:
                by_job[d.job_id] = by_job.get(d.job_id, 0) + 1
        for job, num in by_job.items():
            held[self.jobs[job].tenant] += num
            if num != self.jobs[job].devices:
                self.faults.append(f"job {job} holds {num} of its {self.jobs[job].devices} devices")
        for tenant, num in held.items():
            if num > most_of(tenant):
                self.faults.append(f"{tenant} holds {num} devices: {by_job}")
        self.samples += 1
        self.busy += len([d for d in devices.values() if d.job_id])

    def run(self):
        while not self.done.wait(0.05):
            try:
                self.look()
            except (grpc.RpcError, ValueError):
                pass  # it is dead for a moment, and its channel closed
