#!/usr/bin/env python3
"""[12] Numbers that no request should hold: every numeric field of every request message, found by
descriptor, set to values near 2^63, 2^31, below zero, not a number. Never an overflow (run it under
the sanitizers); what a job can't have is refused at submit, by the name of its field."""
import os
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (DEADLINE, Server, end_processes, grpc, link_programs, make_stubs,
                               new_folder)
from google.protobuf.descriptor import FieldDescriptor as F

WHOLE = {F.TYPE_INT32: (-1 << 31, (1 << 31) - 1), F.TYPE_INT64: (-1 << 63, (1 << 63) - 1),
         F.TYPE_UINT32: (0, (1 << 32) - 1), F.TYPE_UINT64: (0, (1 << 64) - 1)}
REAL = (F.TYPE_DOUBLE, F.TYPE_FLOAT)
# Where some large number is a choice like another: a seed, a length that a run never reaches.
TAKEN = {"model.init_seed", "training.seed", "training.steps", "retry.reset_after_steps",
         "training.lr_schedule.warmup_steps", "training.lr_schedule.decay_steps"}
ANSWERS = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED",
           "FAILED_PRECONDITION", "PERMISSION_DENIED", "ALREADY_EXISTS", "UNAUTHENTICATED",
           "ABORTED", "OUT_OF_RANGE"}


def setUpModule():
    global folder, m, server, job
    folder = new_folder()
    m = make_stubs(folder)
    server = Server(m, folder, link_programs(folder / "bin", "fake_rank"))
    job = server.submit(server.spec("one", steps=5))
    server.wait_state(job, "SUCCEEDED")


def tearDownModule():
    code = server.stop()
    log = (folder / "tandemd.log").read_text()
    end_processes(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if code or "runtime error" in log:
        print(log[-4000:], file=sys.stderr)
    assert code == 0 and "runtime error" not in log


def extremes(f):
    if f.type in REAL:
        return [float("nan"), float("inf"), float("-inf"), -1.0, 1e308]
    low, high = WHOLE[f.type]
    return sorted({v for v in (low, -1, high, high // 2 + 1, (1 << 32) - 1, 1 << 31, 1 << 32, 1 << 62)
                   if low <= v <= high})


def numbers(descriptor, path=()):
    """Paths to the numeric fields below a message."""
    for f in descriptor.fields:
        if f.type in WHOLE or f.type in REAL:
            yield path + (f,)
        elif f.type == F.TYPE_MESSAGE and len(path) < 10:
            yield from numbers(f.message_type, path + (f,))


def put(message, path, value):
    for f in path[:-1]:
        message = getattr(message, f.name)
        if f.label == F.LABEL_REPEATED:
            message = message[0] if message else message.add()
    f = path[-1]
    if f.label == F.LABEL_REPEATED:
        getattr(message, f.name).extend([value, value])
    else:
        setattr(message, f.name, value)


def methods():
    files = [m.jobs, m.runs, m.checkpoints, m.cluster, m.plans, m.admin]
    return [(f"/{s.full_name}/{x.name}", x) for f in files
            for s in f.DESCRIPTOR.services_by_name.values() for x in s.methods]


def request_for(method):
    module = getattr(m, method.input_type.file.name.split("/")[-1].removesuffix(".proto"))
    request = getattr(module, method.input_type.name)()
    fields = method.input_type.fields_by_name
    if "spec" in fields:
        request.spec.CopyFrom(server.spec("one"))
    if "node" in fields:
        request.node = os.uname().nodename
    if "job" in fields and fields["job"].type == F.TYPE_STRING:
        request.job = str(job)
    if "dry_run" in fields:
        request.dry_run = True
    return request


def call(path, method, request):
    kind = "unary_stream" if method.server_streaming else "unary_unary"
    stub = getattr(server.channel, kind)(path, request_serializer=lambda r: r.SerializeToString(),
                                         response_deserializer=bytes)
    try:
        if method.server_streaming:
            replies = stub(request, timeout=0.2)
            for _ in replies:
                break
            replies.cancel()
        else:
            stub(request, timeout=DEADLINE)
        return "OK", ""
    except grpc.RpcError as e:
        if method.server_streaming and e.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            return "OK", ""
        return e.code().name, e.details()


class Numbers(unittest.TestCase):
    def submit(self, spec):
        method = m.jobs.DESCRIPTOR.services_by_name["Jobs"].methods_by_name["Submit"]
        return call("/tandem.v1.Jobs/Submit", method, m.jobs.SubmitRequest(spec=spec, dry_run=True))

    def refused(self, name, spec):
        code, words = self.submit(spec)
        self.assertIn(code, ("INVALID_ARGUMENT", "UNIMPLEMENTED"), f"{name}: {words}")
        self.assertIn(name, words)

    def test_of_every_field_of_every_request(self):
        tried = 0
        for path, method in methods():
            if method.client_streaming:
                continue
            for field in numbers(method.input_type):
                for value in extremes(field[-1]):
                    request = request_for(method)
                    put(request, field, value)
                    code, words = call(path, method, request)
                    name = ".".join(f.name for f in field)
                    self.assertIn(code, ANSWERS, f"{path} {name} = {value}: {words}")
                    tried += 1
        self.assertGreater(tried, 500)
        self.assertIsNone(server.process.poll())

    # At submit: below zero, beyond all bounds and not a number are refused by the field's name.
    def test_of_every_field_of_a_job(self):
        taken = set()
        for field in numbers(m.jobs.JobSpec.DESCRIPTOR):
            name = ".".join(f.name for f in field)
            # In the file a choice has no name of its own.
            shown = name.replace("parallel.layout.", "parallel.")
            for value in extremes(field[-1]):
                spec = server.spec("one")
                put(spec, field, value)
                code, words = self.submit(spec)
                if code == "OK" and value >= 0:
                    taken.add(name)
                    continue
                with self.subTest(field=name, value=value):
                    self.assertIn(code, ("INVALID_ARGUMENT", "UNIMPLEMENTED"), words)
                    head = words.split(":")[0]
                    # By its own name, its message's, or that of one beside it which no longer fits.
                    self.assertTrue(shown.startswith(head) or
                                    head.startswith(shown.rsplit(".", 1)[0] + "."), words)
        self.assertLessEqual(taken, TAKEN)

    def test_of_products(self):
        def spec(**training):
            s = server.spec("one")
            for key, value in training.items():
                setattr(s.training, key, value)
            return s
        self.refused("training", spec(steps=1 << 40, seq_len=1 << 20, global_batch_size=1 << 20))
        self.refused("training", spec(steps=(1 << 63) - 1, seq_len=1, global_batch_size=2))
        self.refused("training", spec(seq_len=1 << 62, global_batch_size=4))
        self.refused("training", spec(micro_batch_size=1 << 62, global_batch_size=1 << 62))
        for sizes in [dict(data=1 << 32, tensor=1 << 32), dict(data=(1 << 63) - 1),
                      dict(data=1 << 31, tensor=1 << 31, pipeline=1 << 31, context=1 << 31)]:
            s = server.spec("one")
            for axis, size in sizes.items():
                setattr(s.parallel.layout, axis, size)
            self.refused("parallel", s)
        s = server.spec("one")
        s.resources.devices = (1 << 63) - 1
        self.refused("resources.devices", s)

    def test_of_pages_and_offsets(self):
        listed = server.jobs.List
        for size in (-1, 0, (1 << 31) - 1, -1 << 31):
            self.assertEqual(len(listed(m.jobs.ListJobsRequest(all=True, page_size=size),
                                        timeout=DEADLINE).jobs), 1)
        for before in (-1, -1 << 63):
            listed(m.jobs.ListJobsRequest(all=True, before_id=before), timeout=DEADLINE)
        for low, high, points in [(-1 << 63, (1 << 63) - 1, 0), ((1 << 63) - 1, -1 << 63, 5),
                                  (0, 0, (1 << 63) - 1), (0, 0, -1 << 63), (1, 1 << 62, -1)]:
            request = m.runs.GetMetricsRequest(job=str(job), points=points, to=high)
            setattr(request, "from", low)
            try:
                server.runs.GetMetrics(request, timeout=DEADLINE)
            except grpc.RpcError as e:
                self.assertEqual(e.code(), grpc.StatusCode.INVALID_ARGUMENT, e.details())


if __name__ == "__main__":
    unittest.main(verbosity=1)
