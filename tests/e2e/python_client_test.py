#!/usr/bin/env python3
"""An independent client: stubs made by grpc_tools from the .proto files, grpc's own Python library,
against the real tandemd --dev. It submits, watches, reads curves and logs, cancels, and asks what
every gRPC tool asks (health, reflection). TANDEM_BIN: folder of the programs (default
build/dev/bin). Exits 77 where grpc for Python or the programs aren't there."""
import array
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TANDEM_BIN", ROOT / "build/dev/bin")).resolve()
TINY = ROOT / "tests/golden/llama-tiny"
DEADLINE = 120  # seconds, of every call and stream; far above what any should take


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


try:
    import grpc
    import grpc_tools
    from grpc_tools import protoc
    from google.protobuf import descriptor_pb2
except ImportError as missing:
    skip(f"{missing}; script/bootstrap --test installs it")
for program in ("tandemd", "tandem-node", "tandem-rank", "tandem-probe"):
    if not (BIN / program).exists():
        skip(f"{BIN / program} isn't built")


def make_stubs(folder):
    protos = sorted((ROOT / "proto/tandem/v1").glob("*.proto"))
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    status = protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}",
                          f"--python_out={folder}", f"--grpc_python_out={folder}",
                          *map(str, protos)])
    assert status == 0, "protoc refused the .proto files"
    sys.path.insert(0, str(folder))


class Server:
    """A private tandemd --dev: loopback TCP with its token, and the unix socket."""

    def __init__(self, folder):
        self.data = folder / "data"
        self.log_path = folder / "tandemd.log"
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                [BIN / "tandemd", "--dev", "--data-dir", self.data, "--listen",
                 "127.0.0.1:0", "--devices", "4"],
                stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "XDG_CONFIG_HOME": str(folder / "config")})
        self.address = self.wait_for_address()
        # Not by way of a proxy that whoever runs this may have.
        self.channel = grpc.insecure_channel(self.address, [("grpc.enable_http_proxy", 0)])
        try:
            grpc.channel_ready_future(self.channel).result(timeout=DEADLINE)
        except grpc.FutureTimeoutError:
            self.stop()
            sys.exit(f"tandemd did not come up:\n{self.log_path.read_text()}")
        self.token = (self.data / "dev-token").read_text().strip()
        self.auth = (("authorization", f"Bearer {self.token}"),)

    def wait_for_address(self):
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"listening on (127\.0\.0\.1:[0-9]+)\n", self.log_path.read_text())
            if found:
                return found.group(1)
            time.sleep(0.02)
        self.process.kill()
        self.process.wait()
        sys.exit(f"tandemd did not come up:\n{self.log_path.read_text()}")

    def stop(self):
        self.channel.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None


def setUpModule():
    global folder, server, m
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-python-"))
    make_stubs(folder)

    class Stubs:
        from tandem.v1 import checkpoints_pb2 as checkpoints
        from tandem.v1 import checkpoints_pb2_grpc as checkpoints_rpc
        from tandem.v1 import cluster_pb2 as cluster
        from tandem.v1 import cluster_pb2_grpc as cluster_rpc
        from tandem.v1 import health_pb2 as health
        from tandem.v1 import health_pb2_grpc as health_rpc
        from tandem.v1 import jobs_pb2 as jobs
        from tandem.v1 import jobs_pb2_grpc as jobs_rpc
        from tandem.v1 import plans_pb2 as plans
        from tandem.v1 import plans_pb2_grpc as plans_rpc
        from tandem.v1 import reflection_pb2 as reflection
        from tandem.v1 import reflection_pb2_grpc as reflection_rpc
        from tandem.v1 import runs_pb2 as runs
        from tandem.v1 import runs_pb2_grpc as runs_rpc

    m = Stubs
    server = Server(folder)


def cancel_all():
    """A controller that stops leaves its gangs running: a test that failed may have left one."""
    jobs = m.jobs_rpc.JobsStub(server.channel)
    cluster = m.cluster_rpc.ClusterStub(server.channel)
    how = {"metadata": server.auth, "timeout": DEADLINE}
    for job in jobs.List(m.jobs.ListJobsRequest(), **how).jobs:
        jobs.Cancel(m.jobs.JobRef(job=str(job.id)), **how)
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        nodes = cluster.ListNodes(m.cluster.ListNodesRequest(), **how).nodes
        if not any(d.job_id for n in nodes for d in n.devices):
            return
        time.sleep(0.02)


def tearDownModule():
    try:
        cancel_all()
    finally:
        code = server.stop()
    if code != 0:
        print(server.log_path.read_text(), file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    assert code == 0, f"tandemd left with {code} on SIGTERM"


class Case(unittest.TestCase):
    def setUp(self):
        self.jobs = m.jobs_rpc.JobsStub(server.channel)
        self.runs = m.runs_rpc.RunsStub(server.channel)
        self.health = m.health_rpc.HealthStub(server.channel)
        self.how = {"metadata": server.auth, "timeout": DEADLINE}

    def refused(self, code, call, *args, **kwargs):
        with self.assertRaises(grpc.RpcError) as caught:
            reply = call(*args, **kwargs)
            if hasattr(reply, "__next__"):
                next(reply)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception.details()

    def spec(self, **training):
        ref = json.loads((TINY / "train.json").read_text())
        spec = m.jobs.JobSpec(name="py-tiny")
        spec.model.path = str(TINY)
        spec.data.order = "sequential"
        spec.data.train.add(path=str(TINY / "train.bin"), format="u16", window="T+1")
        t = spec.training
        t.steps, t.seq_len, t.global_batch_size = 20, 32, 4
        t.precision, t.clip_grad_norm = "fp64", ref["clip_grad_norm"]
        t.optimizer.lr, t.optimizer.eps = ref["peak_lr"], ref["eps"]
        t.optimizer.betas.extend(ref["betas"])
        t.optimizer.weight_decay = ref["weight_decay"]
        t.lr_schedule.warmup_steps, t.lr_schedule.decay_steps = ref["warmup_steps"], 20
        t.lr_schedule.min_lr_ratio = ref["lr_floor"]
        for key, value in training.items():
            setattr(t, key, value)
        spec.parallel.layout.data = 2
        spec.resources.devices, spec.resources.type, spec.resources.backend = 2, "cpu", "ref"
        return spec

    def submit(self, spec, key=None):
        request = m.jobs.SubmitRequest(spec=spec)
        if key:
            request.idempotency_key = key
        return self.jobs.Submit(request, **self.how).job

    def watch(self, job, until=None):
        """Every reply of a watch from the first event on, to the end of the job (or until says
        so)."""
        replies = []
        stream = self.jobs.Watch(m.jobs.WatchRequest(job=str(job), after_event_id=0), **self.how)
        for reply in stream:
            replies.append(reply)
            if until and until(reply):
                stream.cancel()
                break
        return replies


def read_safetensors(path):
    """-> {name: values}, by the format's text alone. F64 only: the job's precision."""
    raw = pathlib.Path(path).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, t in header.items():
        begin, end = (8 + length + o for o in t["data_offsets"])
        assert t["dtype"] == "F64" and end - begin == 8 * math.prod(t["shape"]), name
        tensors[name] = array.array("d", raw[begin:end])
    return tensors


class ToolsOfGrpc(Case):
    # Load balancers and orchestrators ask for health without a token.
    def test_health_says_serving_to_anyone(self):
        for service in ("", "tandem.v1.Jobs"):
            reply = self.health.Check(m.health.HealthCheckRequest(service=service), timeout=DEADLINE)
            self.assertEqual(reply.status, m.health.HealthCheckResponse.SERVING)
        self.refused(grpc.StatusCode.NOT_FOUND, self.health.Check,
                     m.health.HealthCheckRequest(service="tandem.v1.Nothing"), timeout=DEADLINE)

    # The standard's bytes, not only our copy of its file.
    def test_health_answers_in_the_standards_bytes(self):
        check = server.channel.unary_unary("/grpc.health.v1.Health/Check")
        self.assertEqual(check(b"", timeout=DEADLINE), b"\x08\x01")

    def ask(self, **request):
        stub = m.reflection_rpc.ServerReflectionStub(server.channel)
        one = iter([m.reflection.ServerReflectionRequest(**request)])
        return next(stub.ServerReflectionInfo(one, **self.how))

    def test_reflection_lists_every_service(self):
        names = {s.name for s in self.ask(list_services="").list_services_response.service}
        self.assertLessEqual({"tandem.v1.Jobs", "tandem.v1.Runs", "grpc.health.v1.Health"}, names)

    # A tool without our files must be able to call us: the file and all it imports.
    def test_reflection_gives_descriptors_that_build(self):
        files, wanted = {}, ["tandem/v1/jobs.proto"]
        reply = self.ask(file_containing_symbol="tandem.v1.Jobs")
        for raw in reply.file_descriptor_response.file_descriptor_proto:
            f = descriptor_pb2.FileDescriptorProto.FromString(raw)
            files[f.name] = f
        self.assertIn("tandem/v1/jobs.proto", files)
        while wanted:
            name = wanted.pop()
            if name not in files:
                reply = self.ask(file_by_filename=name)
                for raw in reply.file_descriptor_response.file_descriptor_proto:
                    f = descriptor_pb2.FileDescriptorProto.FromString(raw)
                    files[f.name] = f
            wanted.extend(d for d in files[name].dependency if d not in files)
        services = {s.name: s for s in files["tandem/v1/jobs.proto"].service}
        methods = {r.name: r for r in services["Jobs"].method}
        self.assertEqual(methods["Submit"].input_type, ".tandem.v1.SubmitRequest")
        self.assertTrue(methods["Watch"].server_streaming)
        error = self.ask(file_containing_symbol="tandem.v1.Nothing").error_response
        self.assertEqual(error.error_code, grpc.StatusCode.NOT_FOUND.value[0])


class Doors(Case):
    # On TCP nobody does anything without the token.
    def test_tcp_wants_the_token(self):
        for metadata in ((), (("authorization", "Bearer wrong"),),
                         (("authorization", server.token),),
                         (("authorization", f"Bearer {server.token[:-1]}"),)):
            self.refused(grpc.StatusCode.UNAUTHENTICATED, self.jobs.List,
                         m.jobs.ListJobsRequest(), metadata=metadata, timeout=DEADLINE)

    def test_the_token_file_is_private(self):
        mode = (server.data / "dev-token").stat().st_mode
        self.assertEqual(mode & 0o077, 0)

    # The folder's permissions are the key there.
    def test_the_unix_socket_needs_no_token(self):
        with grpc.insecure_channel(f"unix:{server.data / 'tandemd.sock'}") as channel:
            m.jobs_rpc.JobsStub(channel).List(m.jobs.ListJobsRequest(), timeout=DEADLINE)

    # But what is shown there is looked at: nobody becomes the operator by a token that can't be read.
    def test_the_unix_socket_refuses_what_is_no_token(self):
        good = ("authorization", f"Bearer {server.token}")
        with grpc.insecure_channel(f"unix:{server.data / 'tandemd.sock'}") as channel:
            jobs = m.jobs_rpc.JobsStub(channel)
            for shown in ("Bearer wrong", "Bearer " + "x" * 600, "Bearer ", "Bearer", "",
                          f"bearer {server.token}", server.token, f"Basic {server.token}"):
                self.refused(grpc.StatusCode.UNAUTHENTICATED, jobs.List, m.jobs.ListJobsRequest(),
                             metadata=(("authorization", shown),), timeout=DEADLINE)
            for two in ((good, good), (good, ("authorization", "Bearer wrong"))):
                self.refused(grpc.StatusCode.UNAUTHENTICATED, jobs.List, m.jobs.ListJobsRequest(),
                             metadata=two, timeout=DEADLINE)
            jobs.List(m.jobs.ListJobsRequest(), metadata=(good,), timeout=DEADLINE)

    def test_unknown_methods_and_garbage_get_a_clear_status(self):
        call = server.channel.unary_unary
        self.refused(grpc.StatusCode.UNIMPLEMENTED, call("/tandem.v1.Jobs/Fly"), b"", **self.how)
        self.refused(grpc.StatusCode.INVALID_ARGUMENT, call("/tandem.v1.Jobs/Submit"),
                     b"\xff" * 100, **self.how)
        # A name that isn't UTF-8, and one with a NUL inside.
        for name in (b"\xc3\x28", b"a\x00b"):
            body = b"\x0a" + bytes([len(name)]) + name
            self.refused(grpc.StatusCode.INVALID_ARGUMENT, call("/tandem.v1.Jobs/Get"), body,
                         **self.how)

    def test_the_cluster_shows_its_devices(self):
        nodes = m.cluster_rpc.ClusterStub(server.channel).ListNodes(m.cluster.ListNodesRequest(),
                                                                    **self.how).nodes
        self.assertEqual(sum(len(n.devices) for n in nodes), 4)


class Submitting(Case):
    def test_a_wrong_spec_is_refused_in_words(self):
        for change, words in (
            (lambda s: s.ClearField("name"), "name"),
            (lambda s: setattr(s.training, "global_batch_size", 5), "global_batch_size"),
            (lambda s: setattr(s.training, "steps", -3), "steps"),
            (lambda s: setattr(s.training, "precision", "fp12"), "precision"),
            (lambda s: setattr(s.parallel.layout, "tensor", 2), "tensor"),
            (lambda s: setattr(s.model, "path", "/nowhere/at/all"), "/nowhere/at/all"),
        ):
            spec = self.spec()
            change(spec)
            with self.assertRaises(grpc.RpcError) as caught:
                self.submit(spec)
            self.assertIn(words, caught.exception.details())
            self.assertNotIn(caught.exception.code(),
                             (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL))

    # --dry-run: everything is checked and planned, nothing is stored.
    def test_a_dry_run_plans_and_stores_nothing(self):
        spec = self.spec()
        spec.name = "py-dry"
        reply = self.jobs.Submit(m.jobs.SubmitRequest(spec=spec, dry_run=True), **self.how)
        self.assertFalse(reply.HasField("job"))
        self.assertEqual(reply.plan.total_steps, 20)
        self.assertEqual(reply.plan.devices, 2)
        self.assertEqual(reply.plan.num_params, 109888)
        names = [j.name for j in self.jobs.List(m.jobs.ListJobsRequest(all=True), **self.how).jobs]
        self.assertNotIn("py-dry", names)

    def test_any_layout_is_planned_and_only_submit_refuses_it(self):
        plans = m.plans_rpc.PlansStub(server.channel)
        spec = self.spec()
        spec.parallel.layout.data, spec.parallel.layout.pipeline = 1, 2
        ranked = plans.Plan(m.plans.PlanRequest(spec=spec), **self.how).plans[0]
        mark = "parallel.pipeline: pipeline parallel is not built yet"
        self.assertEqual(list(ranked.plan.unbuilt), [mark])
        self.assertEqual(list(ranked.summary.unbuilt), [mark])
        self.assertEqual([g.size for g in ranked.plan.groups], [2])
        details = self.refused(grpc.StatusCode.INVALID_ARGUMENT, self.jobs.Submit,
                               m.jobs.SubmitRequest(spec=spec, dry_run=True), **self.how)
        self.assertEqual(details, "parallel.pipeline: 2: pipeline parallel is not built yet; use 1")
        spec.parallel.layout.pipeline = 3
        details = self.refused(grpc.StatusCode.INVALID_ARGUMENT, plans.Plan,
                               m.plans.PlanRequest(spec=spec), **self.how)
        self.assertIn("resources.devices: 2: the layout", details)

    def test_a_plan_is_made_on_a_cluster_of_ones_own(self):
        plans = m.plans_rpc.PlansStub(server.channel)
        spec = self.spec(precision="bf16")
        spec.parallel.layout.data, spec.parallel.layout.tensor = 2, 8
        spec.resources.devices, spec.resources.type, spec.resources.backend = 16, "h100", "auto"
        cluster = m.cluster.ClusterSpec()
        cluster.groups.add(name="dgx", count=2, devices=8, type="h100")
        config = json.loads((ROOT / "tests/golden/mixtral-tiny/config.json").read_text())
        (folder / "mixtral.json").write_text(json.dumps({**config, "vocab_size": 256}))
        spec.model.Clear()
        spec.model.config = str(folder / "mixtral.json")
        details = self.refused(grpc.StatusCode.INVALID_ARGUMENT, plans.Plan,
                               m.plans.PlanRequest(spec=spec, cluster=cluster), **self.how)
        self.assertIn("parallel.tensor: 8: has to divide the model's num_attention_heads 4",
                      details)
        spec.parallel.layout.tensor, spec.resources.devices = 4, 8
        plan = plans.Plan(m.plans.PlanRequest(spec=spec, cluster=cluster), **self.how).plans[0].plan
        self.assertEqual(plan.backend, "cuda")
        self.assertTrue(plan.cost.step_s > 0)
        self.assertIn("model.config: model_type mixtral can be planned and not trained yet",
                      plan.unbuilt)
        cluster.groups[0].devices = -1
        details = self.refused(grpc.StatusCode.INVALID_ARGUMENT, plans.Plan,
                               m.plans.PlanRequest(spec=spec, cluster=cluster), **self.how)
        self.assertIn("groups.0.devices", details)

    def test_a_family_that_cannot_be_trained_is_refused_by_name(self):
        spec = self.spec()
        spec.model.Clear()
        spec.model.config = str(ROOT / "tests/golden/mixtral-tiny/config.json")
        details = self.refused(grpc.StatusCode.UNIMPLEMENTED, self.jobs.Submit,
                               m.jobs.SubmitRequest(spec=spec, dry_run=True), **self.how)
        self.assertEqual(details,
                         "model.config: model_type mixtral can be planned and not trained yet")

    def test_a_job_that_is_not_there_is_not_found(self):
        for call, request in ((self.jobs.Get, m.jobs.GetJobRequest(job="999999")),
                              (self.jobs.Cancel, m.jobs.JobRef(job="999999")),
                              (self.runs.GetMetrics, m.runs.GetMetricsRequest(job="999999")),
                              (self.jobs.Watch, m.jobs.WatchRequest(job="999999"))):
            self.refused(grpc.StatusCode.NOT_FOUND, call, request, **self.how)


class Running(Case):
    def curve(self, job, **request):
        reply = self.runs.GetMetrics(m.runs.GetMetricsRequest(job=str(job), **request), **self.how)
        return list(reply.steps), {c.name: list(c.values) for c in reply.columns}

    # One job from its submission to its end, seen from every side.
    def test_a_job_trains_to_the_golden_curve(self):
        spec = self.spec()
        spec.checkpoint.interval = "10"
        job = self.submit(spec, key="python-1")
        again = self.submit(spec, key="python-1")
        self.assertEqual(again.id, job.id)

        replies = self.watch(job.id)
        self.assertEqual(replies[0].job.id, job.id)
        moves = [r.event.to for r in replies if r.HasField("event") and r.event.kind == "state"]
        self.assertEqual(moves[-1], m.jobs.JOB_SUCCEEDED)
        events = [r.event.id for r in replies if r.HasField("event")]
        self.assertEqual(events, sorted(set(events)))
        shown = self.jobs.Get(m.jobs.GetJobRequest(job=str(job.id)), **self.how)
        self.assertEqual((shown.state, shown.step, shown.attempt),
                         (m.jobs.JOB_SUCCEEDED, 20, 1))
        by_name = self.jobs.Get(m.jobs.GetJobRequest(job="py-tiny"), **self.how)
        self.assertEqual(by_name.id, job.id)

        ref = json.loads((TINY / "train.json").read_text())
        steps, columns = self.curve(job.id)
        self.assertEqual(steps, list(range(1, 21)))
        for name, bar in (("loss", 1e-10), ("grad_norm", 1e-10)):
            worst = max(abs(x / y - 1) for x, y in zip(columns[name], ref[name + "_f64"]))
            self.assertLessEqual(worst, bar, name)
        self.assertEqual(columns["tokens"], [128 * s for s in range(1, 21)])
        steps, columns = self.curve(job.id, series=["loss"], **{"from": 5, "to": 9})
        self.assertEqual((steps, list(columns)), ([5, 6, 7, 8, 9], ["loss"]))

        rows = list(self.runs.WatchMetrics(m.runs.WatchMetricsRequest(job=str(job.id)), **self.how))
        self.assertEqual([r.metrics.step for r in rows if r.HasField("metrics")],
                         list(range(1, 21)))

        for rank in (0, 1):
            chunks = list(self.jobs.Logs(m.jobs.LogsRequest(job=str(job.id), rank=rank), **self.how))
            text = b"".join(c.data for c in chunks)
            self.assertTrue(text, f"rank {rank} wrote no log")
            if chunks:
                self.assertEqual(chunks[-1].next_offset, len(text))

        checkpoints = m.checkpoints_rpc.CheckpointsStub(server.channel).List(
            m.checkpoints.ListCheckpointsRequest(job=str(job.id)), **self.how).checkpoints
        self.assertLessEqual({10, 20}, {c.step for c in checkpoints})
        for c in checkpoints:
            self.assertTrue((pathlib.Path(c.path) / "COMPLETE").exists())
        # The trained weights, read by other code, against another implementation's.
        export = pathlib.Path(shown.export_dir)
        self.assertEqual(json.loads((export / "config.json").read_text())["hidden_size"], 64)
        weights = read_safetensors(export / "model.safetensors")
        self.assertEqual(set(weights), set(ref["final_param_l2_f64"]))
        for name, want in ref["final_param_l2_f64"].items():
            norm = math.sqrt(math.fsum(x * x for x in weights[name]))
            self.assertLessEqual(abs(norm / want - 1), 1e-9, name)

    # Cancel means gone: the watch ends, the state stays, and nothing runs on.
    def test_a_running_job_is_cancelled(self):
        spec = self.spec(steps=1000000)
        spec.name = "py-long"
        spec.checkpoint.export_at_end = False
        job = self.submit(spec)
        self.watch(job.id, until=lambda r: r.HasField("metrics") and r.metrics.step >= 3)
        self.jobs.Cancel(m.jobs.JobRef(job=str(job.id)), **self.how)
        replies = self.watch(job.id)
        moves = [r.event.to for r in replies if r.HasField("event") and r.event.kind == "state"]
        self.assertEqual(moves[-1], m.jobs.JOB_CANCELLED)
        again = self.jobs.Cancel(m.jobs.JobRef(job=str(job.id)), **self.how)
        self.assertEqual(again.state, m.jobs.JOB_CANCELLED)
        self.assertGreaterEqual(again.step, 3)
        # The devices are free once the gang's processes are known to be gone.
        cluster, held = m.cluster_rpc.ClusterStub(server.channel), True
        deadline = time.monotonic() + DEADLINE
        while held and time.monotonic() < deadline:
            nodes = cluster.ListNodes(m.cluster.ListNodesRequest(), **self.how).nodes
            held = [d.index for n in nodes for d in n.devices if d.job_id == job.id]
            time.sleep(0.02)
        self.assertFalse(held)

    def test_lists_are_paged_newest_first(self):
        ids = []
        for i in range(3):
            spec = self.spec(steps=1)
            spec.name = f"py-page-{i}"
            spec.checkpoint.export_at_end = False
            ids.append(self.submit(spec).id)
        seen, before = [], 0
        while True:
            page = self.jobs.List(m.jobs.ListJobsRequest(all=True, before_id=before, page_size=1),
                                  **self.how)
            self.assertLessEqual(len(page.jobs), 1)
            seen += [j.id for j in page.jobs]
            before = page.next_before_id
            if not before:
                break
        self.assertEqual(seen, sorted(set(seen), reverse=True))
        self.assertLessEqual(set(ids), set(seen))
        for i in ids:
            self.watch(i)

    # A watcher that goes away is no trouble for the others.
    def test_a_watcher_that_leaves_disturbs_nobody(self):
        spec = self.spec()
        spec.name = "py-watched"
        spec.checkpoint.export_at_end = False
        job = self.submit(spec)
        for _ in range(20):
            stream = self.jobs.Watch(m.jobs.WatchRequest(job=str(job.id)), **self.how)
            next(stream)
            stream.cancel()
        replies = self.watch(job.id)
        moves = [r.event.to for r in replies if r.HasField("event") and r.event.kind == "state"]
        self.assertEqual(moves[-1], m.jobs.JOB_SUCCEEDED)


if __name__ == "__main__":
    unittest.main(verbosity=2)
