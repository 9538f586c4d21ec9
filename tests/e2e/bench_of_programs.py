"""What the end-to-end tests of the controller share: a folder of programs in which tandem-rank is
the fake one, a tandemd that can be killed and started again on the same data, stubs, and looking
for processes. Exits 77 where grpc for Python or the programs aren't there."""
import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TANDEM_BIN", ROOT / "build/dev/bin")).resolve()
TINY = ROOT / "tests/golden/llama-tiny"
DEADLINE = int(os.environ.get("E2E_DEADLINE", "180"))  # seconds, of every call and wait; far above what any should take

# Whoever runs the tests may have a proxy, which gRPC would ask for what is on this host, and a server.
for name in ("grpc_proxy", "https_proxy", "http_proxy", "TANDEM_SERVER", "TANDEM_TOKEN_FILE",
             "TANDEM_CA_FILE", "TANDEM_CERT_FILE", "TANDEM_KEY_FILE"):
    os.environ.pop(name, None)


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


try:
    import grpc
    import grpc_tools
    from grpc_tools import protoc
except ImportError as missing:
    skip(f"{missing}; script/bootstrap --test installs it")


def make_stubs(folder):
    protos = sorted((ROOT / "proto/tandem/v1").glob("*.proto"))
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    status = protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}",
                          f"--python_out={folder}", f"--grpc_python_out={folder}",
                          *map(str, protos)])
    assert status == 0, "protoc refused the .proto files"
    sys.path.insert(0, str(folder))

    class Stubs:
        from tandem.v1 import admin_pb2 as admin
        from tandem.v1 import admin_pb2_grpc as admin_rpc
        from tandem.v1 import checkpoints_pb2 as checkpoints
        from tandem.v1 import checkpoints_pb2_grpc as checkpoints_rpc
        from tandem.v1 import cluster_pb2 as cluster
        from tandem.v1 import cluster_pb2_grpc as cluster_rpc
        from tandem.v1 import jobs_pb2 as jobs
        from tandem.v1 import jobs_pb2_grpc as jobs_rpc
        from tandem.v1 import plans_pb2 as plans
        from tandem.v1 import plans_pb2_grpc as plans_rpc
        from tandem.v1 import runs_pb2 as runs
        from tandem.v1 import runs_pb2_grpc as runs_rpc
        from tandem.v1 import worker_pb2 as worker
        from tandem.v1 import worker_pb2_grpc as worker_rpc
    return Stubs


def link_programs(folder, rank):
    """Hard links: tandemd starts its neighbours from its own folder."""
    folder.mkdir()
    for name in ("tandemd", "tandem-node", "tandem-probe", "tandem"):
        if not (BIN / name).exists():
            skip(f"{BIN / name} isn't built")
        try:
            os.link(BIN / name, folder / name)
        except OSError:
            shutil.copy2(BIN / name, folder / name)
    if not (BIN / rank).exists():
        skip(f"{BIN / rank} isn't built")
    shutil.copy2(BIN / rank, folder / "tandem-rank")
    return folder


def wait_for(what, condition, seconds=DEADLINE):
    """Asks ever less often: what it asks, often a server under a sanitizer, needs the processor, too."""
    end, pause = time.monotonic() + seconds, 0.01
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(pause)
        pause = min(1.25 * pause, 0.05)
    raise AssertionError(f"waited {seconds} s for {what}")


def free_port(host="127.0.0.1"):
    """One that stays free until it is listened on, also while its server is away: it is none of those
    that the kernel gives to connections and to whoever listens on port 0, where it leaves any."""
    given = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    low, high = map(int, given)
    choice = [p for p in range(10000, 65536) if not low <= p <= high] or range(10000, 65536)
    for port in random.SystemRandom().sample(choice, min(len(choice), 100)):
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            return port
    raise AssertionError(f"100 ports of {host} are in use")


def program_of(pid):
    """The file that it runs. What guards its memory, as tandemd does, shows that to a root that may trace
    and to nobody else, but to all what it was started as."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except PermissionError:
        return os.fsdecode(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0])


def processes(folder):
    """pid -> program of the living processes whose program lies below folder."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            exe = program_of(entry.name)
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if exe.startswith(str(folder)) and state not in "ZX":
            found[int(entry.name)] = exe
    return found


def gang_processes(programs):
    """Those of jobs: without the controller and its probes, which come and go as they like."""
    return {pid: exe for pid, exe in processes(programs).items()
            if not exe.endswith(("/tandemd", "/tandem-probe"))}


def end_processes(programs):
    """Of a test that is over, whatever is left of it: that is given back."""
    left = {}

    def ended():  # also what one of them has started meanwhile
        found = processes(programs)
        left.update(found)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # it has left by itself meanwhile
                os.kill(pid, signal.SIGKILL)
        return not found
    wait_for("no process", ended)
    return left


def clear_up(folder):
    """For unittest.addModuleCleanup, which comes also after a setUpModule that has failed, where
    tearDownModule doesn't: ends what still runs of it."""
    end_processes(folder)
    shutil.rmtree(folder, ignore_errors=True)


def put_away(server):
    """At a module's end: the server leaves well, and nothing of it stays."""
    code = server.stop()
    end_processes(server.programs)
    if code != 0:
        print((server.folder / "tandemd.log").read_text(errors="replace")[-4000:], file=sys.stderr)
    shutil.rmtree(server.folder, ignore_errors=True)
    assert code == 0, f"tandemd left with {code}"


def run_tests(make_server, tests):
    """make_server(m, folder, programs), with real ranks; then each of tests with it, in order."""
    folder, server = new_folder(), None
    try:
        (folder / "stubs").mkdir()
        m = make_stubs(folder / "stubs")
        server = make_server(m, folder, link_programs(folder / "bin", "tandem-rank"))
        for test in tests:
            test(server)
            print(f"ok {test.__name__}", flush=True)
        # A tandem-node that hasn't heard yet that its last report is stored would wait for the next server.
        wait_for("no process of a job", lambda: not gang_processes(folder))
        assert server.stop() == 0
        wait_for("all processes to be gone", lambda: not processes(folder))
    except BaseException:
        print((folder / "tandemd.log").read_text(errors="replace")[-4000:], file=sys.stderr)
        raise
    finally:
        if server and server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        end_processes(folder)
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    """tandemd --dev on a unix socket; killed and started again at will. devices None: args have a
    cluster file."""

    def __init__(self, m, folder, programs, devices=4, args=()):
        self.m, self.folder, self.programs, self.devices = m, folder, programs, devices
        self.data = folder / "data"
        self.process = None
        self.args = list(args)  # more of the command line, from the next start on
        self.start()

    def start(self):
        self.log = open(self.folder / "tandemd.log", "ab")
        self.process = subprocess.Popen(
            [self.programs / "tandemd", "--dev", "--data-dir", self.data,
             *(["--devices", str(self.devices)] if self.devices else []), *self.args],
            stdout=self.log, stderr=subprocess.STDOUT,
            env={**os.environ, "XDG_CONFIG_HOME": str(self.folder / "config")})
        self.connect()

    def connect(self):
        # A channel of its own: a shared one remembers that the last server is gone.
        self.channel = grpc.insecure_channel(f"unix:{self.data}/tandemd.sock",
                                             options=[("grpc.use_local_subchannel_pool", 1),
                                                      ("grpc.initial_reconnect_backoff_ms", 20),
                                                      ("grpc.max_reconnect_backoff_ms", 100)])
        grpc.channel_ready_future(self.channel).result(timeout=DEADLINE)
        m = self.m
        self.jobs = m.jobs_rpc.JobsStub(self.channel)
        self.runs = m.runs_rpc.RunsStub(self.channel)
        self.cluster = m.cluster_rpc.ClusterStub(self.channel)
        self.checkpoints = m.checkpoints_rpc.CheckpointsStub(self.channel)
        self.worker = m.worker_rpc.WorkerStub(self.channel)

    def kill(self):
        self.channel.close()
        self.process.kill()
        self.process.wait()
        self.log.close()

    def stop(self):
        self.channel.close()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE)
        self.log.close()
        return code

    def spec(self, name, steps=20, tags=(), interval=0, devices=1, **retry):
        spec = self.m.jobs.JobSpec(name=name, tags=list(tags))
        spec.model.path = str(TINY)
        spec.data.order = "sequential"
        spec.data.train.add(path=str(TINY / "train.bin"), format="u16", window="T+1")
        t = spec.training
        t.steps, t.seq_len, t.global_batch_size = steps, 32, 4
        spec.parallel.layout.data = devices
        spec.resources.backend = "ref"
        spec.checkpoint.interval = str(interval)
        for key, value in retry.items():
            setattr(spec.retry, key, value)
        return spec

    def submit(self, spec, key=None):
        request = self.m.jobs.SubmitRequest(spec=spec)
        if key:
            request.idempotency_key = key
        return self.jobs.Submit(request, timeout=DEADLINE).job.id

    def get(self, job):
        return self.jobs.Get(self.m.jobs.GetJobRequest(job=str(job)), timeout=DEADLINE)

    def state(self, job):
        return self.m.jobs.JobState.Name(self.get(job).state)

    def wait_state(self, job, *names):
        names = [f"JOB_{n}" for n in names]
        return wait_for(f"job {job} to be {names}", lambda: self.state(job) in names)

    def allow(self, job, *names):
        """Opens what a fake rank waits at: its gates ("gate-20"), and with the tag late "may-stop"."""
        for name in names:
            (self.data / f"jobs/{job}" / name).touch()

    def wait_step(self, job, step):
        wait_for(f"job {job} to be at step {step}", lambda: self.get(job).step >= step)

    def curve(self, job, attempt=0):
        r = self.runs.GetMetrics(self.m.runs.GetMetricsRequest(
            job=str(job), series=["loss", "grad_norm"], attempt=attempt), timeout=DEADLINE)
        return list(zip(r.steps, r.attempts, r.columns[0].values, r.columns[1].values))

    def holders(self):
        nodes = self.cluster.ListNodes(self.m.cluster.ListNodesRequest(), timeout=DEADLINE).nodes
        return [d.job_id for d in nodes[0].devices]


class ServerCase(unittest.TestCase):
    """Each test has a server of its own, in a folder below the module's."""

    def set_up(self, m, folder, programs):
        self.folder = folder / self.id().rsplit(".", 1)[1][:24]
        self.folder.mkdir()
        self.s = Server(m, self.folder, programs)
        self.running = True

    def tearDown(self):
        result = self._outcome.result if hasattr(self._outcome, "result") else None
        code = self.s.stop() if self.running else 0
        log = (self.folder / "tandemd.log").read_text()
        if code != 0 or (result and (result.failures or result.errors)):
            print(log[-4000:], file=sys.stderr)
        # A tandem-node that has not heard yet that its last report is stored waits for the next
        # server; there will be none.
        end_processes(self.s.programs)
        self.assertEqual(code, 0)
        self.assertNotIn("Sanitizer", log)  # also of servers that were killed


def new_folder():
    """Not too deep for the paths of sockets, which have 107 bytes. What a test module leaves of it, as
    where its setUpModule fails, goes at the module's end."""
    deep = len(tempfile.gettempdir()) > 24
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-e2e-", dir="/tmp" if deep else None))
    unittest.addModuleCleanup(clear_up, folder)
    return folder
