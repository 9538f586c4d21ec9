#!/usr/bin/env python3
"""Jobs on a cluster that has GPUs: who leaves backend and precision open gets them, and keeps what
was chosen. The ranks are fake ones, so no GPU is needed."""
import os
import shutil
import subprocess
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(__file__))
from bench_of_programs import (BIN, DEADLINE, Server, end_processes, grpc, link_programs,
                               make_stubs, new_folder, wait_for)

CLUSTER = """nodes:
  - {name: box, cores: 8, devices: [{type: h100, count: 4}]}
  - {name: old, cores: 8, devices: [{type: v100, count: 2}]}
  - {name: host, cores: 8, devices: [{type: cpu, count: 4}]}
types: [{name: v100, mem_bytes: 32000000000}]
"""


def setUpModule():
    global folder, m, programs
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")


def tearDownModule():
    shutil.rmtree(folder, ignore_errors=True)


class GpuCase(unittest.TestCase):
    def serve(self, name, cluster, **environment):
        self.folder = folder / name
        self.folder.mkdir()
        file = self.folder / "cluster.yaml"
        file.write_text(cluster)
        with mock.patch.dict(os.environ, environment):
            self.s = Server(m, self.folder, programs, devices=None, args=["--cluster", str(file)])

    def tearDown(self):
        code = self.s.stop()
        end_processes(programs)
        self.assertEqual(code, 0, (self.folder / "tandemd.log").read_text()[-4000:])

    def spec(self, name, backend="auto", precision="", **fields):
        spec = self.s.spec(name, **fields)
        spec.resources.backend = backend
        if precision:
            spec.training.precision = precision
        return spec

    def chosen(self, job):
        spec = self.s.get(job).spec
        return spec.resources.backend, spec.training.precision

    def held_by(self, job):
        c = self.s.cluster.ListNodes(m.cluster.ListNodesRequest(), timeout=DEADLINE)
        return sorted((n.name, d.index) for n in c.nodes for d in n.devices if d.job_id == job)

    def refused(self, spec, words):
        with self.assertRaises(grpc.RpcError) as caught:
            self.s.submit(spec)
        self.assertIn(words, caught.exception.details())


class GpuJobs(GpuCase):
    def test_jobs_get_gpus_and_keep_what_was_chosen(self):
        self.serve("jobs", CLUSTER)
        gpu = self.s.submit(self.spec("gpu", steps=100000, tags=["ms=20"], devices=4))
        self.assertEqual(self.chosen(gpu), ("cuda", "bf16"))
        held = wait_for("its devices", lambda: self.held_by(gpu))
        self.assertEqual(held, [("box", i) for i in range(4)])
        # A second one waits for GPUs that its precision runs on: neither for older ones nor for CPUs.
        waits = self.s.submit(self.spec("waits", steps=5, devices=2))
        self.assertEqual(self.chosen(waits), ("cuda", "bf16"))
        cpu = self.s.submit(self.spec("cpu", backend="cpu", precision="bf16", steps=5))
        self.s.wait_state(cpu, "SUCCEEDED")
        self.assertEqual(self.chosen(cpu), ("cpu", "bf16"))
        ref = self.s.submit(self.spec("ref", precision="fp64", steps=5))
        self.s.wait_state(ref, "SUCCEEDED")
        self.assertEqual(self.chosen(ref), ("ref", "fp64"))
        self.assertEqual(self.s.state(waits), "JOB_QUEUED")
        # fp32 does run on the older ones.
        old = self.s.submit(self.spec("old", precision="fp32", steps=5, devices=2))
        self.s.wait_state(old, "SUCCEEDED")
        self.assertEqual(self.s.get(old).attempts[0].devices, "old:0-1")
        self.s.stop()
        self.s.start()
        self.assertEqual(self.chosen(waits), ("cuda", "bf16"))
        self.s.jobs.Cancel(m.jobs.JobRef(job=str(gpu)), timeout=DEADLINE)
        self.s.wait_state(waits, "SUCCEEDED")
        self.assertEqual(self.s.get(waits).attempts[0].devices, "box:0-1")

        older = self.spec("older", steps=5, devices=2)
        older.resources.type = "v100"
        self.refused(older, "training.precision: bf16 needs GPUs of compute capability 8.0 (A100) or "
                            "newer, type v100 has 7.0; use fp32")
        wide = self.spec("wide", backend="cuda", steps=5, devices=8)
        wide.training.global_batch_size = 8
        self.refused(wide, "resources.devices: 8 wanted")
        self.refused(self.spec("fp64", backend="cuda", precision="fp64"), "with precision fp64 use")

    # A card whose name says nothing: what the driver tells is what counts, from the look at the host
    # to the refusal.
    def test_bf16_is_refused_by_what_the_driver_tells(self):
        driver = {"TANDEM_FAKE_NVML": "volta", "LD_LIBRARY_PATH": str(BIN / "fake-nvml")}
        host = subprocess.run([BIN / "tandem", "nodes", "--host", "-o", "yaml"], check=True, text=True,
                              env={**os.environ, **driver}, capture_output=True, timeout=DEADLINE).stdout
        self.assertIn("compute_capability: 70", host)
        self.serve("facts", f"nodes:\n{host}types: [{{name: graphics-device}}]\n", **driver)
        words = ("training.precision: bf16 needs GPUs of compute capability 8.0 (A100) or newer, type "
                 "graphics-device has 7.0; use fp32")
        self.refused(self.spec("auto", steps=5, devices=2), words)
        self.refused(self.spec("bf16", backend="cuda", precision="bf16", steps=5), words)
        job = self.s.submit(self.spec("fp32", backend="cuda", precision="fp32", steps=5, devices=2))
        self.assertEqual(self.chosen(job), ("cuda", "fp32"))
        self.s.wait_state(job, "SUCCEEDED")


if __name__ == "__main__":
    unittest.main(verbosity=2 if "-v" in sys.argv else 1)
