#!/usr/bin/env python3
"""A cluster file at the server: this host as four nodes of four devices. Gangs over several nodes,
drains during a run and over restarts, what a changed file does to jobs. The numbers in brackets are
those of the scenarios that other job servers got wrong."""
import json
import os
import shutil
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

sys.path.insert(0, os.path.dirname(__file__))
from access_bench import AccessServer, programs_with_tickets
from bench_of_programs import (BIN, DEADLINE, Server, end_processes, grpc, link_programs,
                               make_stubs, new_folder, processes, wait_for)

Code = grpc.StatusCode
NODES = ["east0", "east1", "west0", "west1"]


def setUpModule():
    global folder, m, programs, real
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")
    real = link_programs(folder / "real", "tandem-rank")


def tearDownModule():
    shutil.rmtree(folder, ignore_errors=True)


def cluster_text(nodes=NODES, devices=4):
    """Two nodes in each fast domain and under each leaf switch."""
    lines = ["nodes:"]
    for name in nodes:
        side = name[:4]
        lines.append(f"  - {{name: {name}, cores: 4, switches: [{side}, spine], devices: "
                     f"[{{type: cpu, count: {devices}, domain: {side}-fast}}]}}")
    return "\n".join(lines) + "\n"


class ClusterCase(unittest.TestCase):
    def setUp(self):
        self.folder = folder / self.id().rsplit(".", 1)[1][:40]
        self.folder.mkdir()
        self.file = self.folder / "cluster.yaml"
        self.file.write_text(cluster_text())
        self.running = False

    def serve(self, bin_dir=None):
        self.bin = bin_dir or programs
        self.s = Server(m, self.folder, self.bin, devices=None,
                        args=["--cluster", str(self.file), "--scheduler", "min_run_s=0"])
        self.running = True

    def tearDown(self):
        if not self.running:
            return
        code = self.s.stop()
        log = (self.folder / "tandemd.log").read_text()
        end_processes(self.bin)
        self.assertEqual(code, 0, log[-4000:])
        self.assertNotIn("Sanitizer", log)

    def restart(self):
        self.s.stop()
        self.s.start()

    def ref(self, job):
        return m.jobs.JobRef(job=str(job))

    def spec(self, name, nodes=(), **fields):
        spec = self.s.spec(name, **fields)
        spec.resources.nodes.extend(nodes)
        spec.training.global_batch_size = 4 * max(1, spec.parallel.layout.data)
        return spec

    def devices(self):
        """("east0", 0) -> DeviceInfo."""
        c = self.s.cluster.ListNodes(m.cluster.ListNodesRequest(), timeout=DEADLINE)
        return {(n.name, d.index): d for n in c.nodes for d in n.devices}

    def held_by(self, job):
        return sorted(k for k, d in self.devices().items() if d.job_id == job)

    def nodes_of(self, job):
        return {node for node, _ in self.held_by(job)}

    def drain(self, node, **fields):
        return self.s.cluster.Drain(m.cluster.DrainRequest(node=node, **fields), timeout=DEADLINE)

    def undrain(self, node, **fields):
        return self.s.cluster.Undrain(m.cluster.DrainRequest(node=node, **fields), timeout=DEADLINE)

    def run_to(self, job, step):
        wait_for(f"step {step} of job {job}", lambda: self.s.get(job).step >= step)

    def refused(self, code, words, call):
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        self.assertIn(words, caught.exception.details())

    def curve(self, job):
        return [(step, loss, norm) for step, _, loss, norm in self.s.curve(job)]

    def tandem(self, *words):
        r = subprocess.run([BIN / "tandem", *words], capture_output=True, text=True,
                           timeout=DEADLINE,
                           env={**os.environ, "TANDEM_SERVER": f"unix:{self.s.data}/tandemd.sock"})
        return r.returncode, r.stdout + r.stderr


class Cluster(ClusterCase):
    def test_the_file_is_what_there_is(self):
        self.serve()
        c = self.s.cluster.GetTopology(m.cluster.GetTopologyRequest(), timeout=DEADLINE)
        self.assertEqual([n.name for n in c.nodes], NODES)
        self.assertEqual({len(n.devices) for n in c.nodes}, {4})
        self.assertEqual([list(n.switches) for n in c.nodes],
                         [["east", "spine"]] * 2 + [["west", "spine"]] * 2)
        self.assertEqual({d.domain for d in c.nodes[0].devices}, {"east-fast"})
        self.assertTrue(all(n.cpu_model for n in c.nodes))
        self.refused(Code.INVALID_ARGUMENT, 'there is no node "east"; did you mean east',
                     lambda: self.s.submit(self.spec("x", nodes=["east"])))

    def test_a_file_that_is_wrong_is_refused_with_its_line(self):
        self.file.write_text(cluster_text().replace("west0, cores", "west0, coers"))
        r = subprocess.run([BIN / "tandemd", "--dev", "--data-dir", self.folder / "data",
                            "--cluster", self.file], capture_output=True, text=True,
                           timeout=DEADLINE)
        self.assertEqual(r.returncode, 2)
        self.assertIn(f"{self.file}:4:", r.stderr)
        self.assertIn("did you mean cores?", r.stderr)

    # One tandem-node runs all ranks, whatever named nodes they lie on; where is no matter of
    # arithmetic.
    def test_a_gang_over_two_nodes_trains_as_on_one(self):
        self.serve(real)
        one = self.s.submit(self.spec("one", nodes=["west0"], steps=12, devices=4, interval=5))
        self.s.wait_state(one, "SUCCEEDED")
        for node in ("east0", "east1"):
            for device in (0, 3):
                self.drain(node, device=device)
        two = self.s.submit(self.spec("two", nodes=["east0", "east1"], steps=12, devices=4,
                                      interval=5))
        self.s.wait_state(two, "SUCCEEDED")
        self.assertEqual(self.s.get(two).attempts[0].devices, "east0:1-2,east1:1-2")
        long = self.s.submit(self.spec("long", nodes=["east0", "east1"], steps=1000000, devices=4))
        held = wait_for("its devices", lambda: self.held_by(long))
        self.assertEqual(held, [("east0", 1), ("east0", 2), ("east1", 1), ("east1", 2)])
        self.s.jobs.Cancel(self.ref(long), timeout=DEADLINE)
        self.assertEqual(len(self.curve(one)), 12)
        self.assertEqual(self.curve(two), self.curve(one))
        wait_for("free devices", lambda: not self.held_by(two) and not self.held_by(long))

    # (21) Devices of what takes no TERM are free when its processes are gone, not earlier.
    def test_21_devices_are_free_when_processes_are_gone(self):
        self.serve()
        job = self.s.submit(self.spec("stubborn", steps=100000, devices=4,
                                      tags=["ms=20", "stubborn", "deaf"]))
        self.run_to(job, 1)
        held = self.held_by(job)
        self.assertEqual(len(held), 4)
        others = [self.s.submit(self.spec(f"next-{i}", steps=5, devices=4)) for i in range(4)]
        self.s.jobs.Cancel(self.ref(job), timeout=DEADLINE)
        while True:
            devices, alive = self.devices(), [p for p in processes(programs).values()
                                              if p.endswith("tandem-rank")]
            taken = [devices[k].job_id for k in held]
            if job not in taken:
                break
            self.assertEqual(taken, [job] * 4, "all at once")
            self.assertTrue(alive or self.s.state(job) in ("JOB_CANCELLED", "JOB_STOPPING"))
        self.assertIn("JOB_CANCELLED", self.s.state(job))
        for other in others:
            self.s.wait_state(other, "SUCCEEDED")

    # (22) What can never run is refused at submit; what no longer can waits, and says why.
    def test_22_what_fits_is_asked_of_the_empty_cluster_at_submit(self):
        self.serve()
        self.refused(Code.FAILED_PRECONDITION, "parallel.data: 16",
                     lambda: self.s.submit(self.spec("wide", steps=5, devices=32)))
        for node in NODES:
            self.drain(node)
        job = self.s.submit(self.spec("waits", steps=5, devices=16))
        self.assertEqual(self.s.state(job), "JOB_QUEUED")
        why = " ".join(self.s.jobs.Why(self.ref(job), timeout=DEADLINE).reasons)
        self.assertIn("16", why)
        for node in NODES:
            self.undrain(node)
        self.s.wait_state(job, "SUCCEEDED")

    def test_22_a_job_that_fits_no_more_after_the_file_changed_waits_and_says_why(self):
        self.serve()
        self.drain("west0")
        job = self.s.submit(self.spec("wide", steps=5, devices=16))
        pinned = self.s.submit(self.spec("pinned", nodes=["west0"], steps=5))
        self.file.write_text(cluster_text(NODES[:2]))
        self.restart()
        for waits in (job, pinned):
            self.assertEqual(self.s.state(waits), "JOB_QUEUED")
            self.assertTrue(self.s.jobs.Why(self.ref(waits), timeout=DEADLINE).reasons)
        small = self.spec("small", steps=5, devices=8)
        self.s.wait_state(self.s.submit(small), "SUCCEEDED")
        self.assertEqual(self.s.state(job), "JOB_QUEUED")
        # The drain of a node that isn't there is kept, and can be forgotten.
        self.undrain("west0")
        self.file.write_text(cluster_text())
        self.restart()
        self.s.wait_state(job, "SUCCEEDED")
        self.s.wait_state(pinned, "SUCCEEDED")

    # Devices that the file doesn't have any more are held by nobody, and a running job goes on.
    def test_a_running_job_outlives_its_nodes_name(self):
        self.serve()
        job = self.s.submit(self.spec("long", nodes=["west1"], steps=200, devices=4,
                                      tags=["gate=3"], interval=5))
        self.run_to(job, 3)
        self.file.write_text(cluster_text(NODES[:2]))
        self.restart()
        self.assertEqual(self.held_by(job), [])
        self.assertEqual(self.s.state(job), "JOB_RUNNING")
        self.assertEqual(self.s.get(job).attempts[0].devices, "west1:0-3")
        self.s.allow(job, "gate-3")
        self.s.wait_state(job, "SUCCEEDED")
        self.assertEqual(self.s.get(job).attempt, 1)


# As the real one, but: the first that starts once "hold" is there waits until "held" is gone; and what
# GPUs the host has stands in "found".
HELD_PROBE = """#!/bin/sh
cd {where} || exit 1
if mv hold held 2>/dev/null; then
    while [ -e held ]; do sleep 0.02; done
fi
TANDEM_FAKE_NVML=$(cat found) exec ./real-probe "$@"
"""


def programs_with_held_probe(where):
    programs = link_programs(where, "fake_rank")
    os.rename(where / "tandem-probe", where / "real-probe")
    (where / "tandem-probe").write_text(HELD_PROBE.format(where=where))
    (where / "tandem-probe").chmod(0o755)
    return programs


class Hosts(ClusterCase):
    def look(self, found, cpus=None, bin_dir=None):
        """Devices of this host, which has eight GPUs by its cluster file, beside CPU devices."""
        here = os.uname().nodename
        self.file.write_text((cpus or cluster_text(NODES[:1])) + f"  - {{name: {here}, devices: [{{type: "
                             "h100, count: 8}]}\n")
        more = {"TANDEM_FAKE_NVML": found, "LD_LIBRARY_PATH": str(BIN / "fake-nvml")}
        with mock.patch.dict(os.environ, more):
            if self.running:
                self.restart()
            else:
                self.serve(bin_dir)
        return here

    # (23) A node that reports fewer devices than it should is used without them.
    def test_23_what_a_node_does_not_report_is_out_of_use_until_it_does(self):
        here = self.look("lost")
        words = f"node {here} reports 7 of 8 devices"
        wait_for("what is missing", lambda: self.devices()[here, 3].drained)
        drained = {k: d.reason for k, d in self.devices().items() if d.drained}
        self.assertEqual(drained, {(here, 3): words})
        self.assertIn(words, (self.folder / "tandemd.log").read_text())
        code, out = self.tandem("nodes", here)
        self.assertIn(words, out)
        # It isn't brought back by words.
        reply = self.undrain(here, device=3)
        self.assertTrue(reply.nodes[0].devices[3].drained)
        code, out = self.tandem("undrain", here)
        self.assertIn(f"{here}:3 stays out of use: {words}", out)
        self.drain(here, device=5, reason="loose")
        self.look("dgx")
        wait_for("it to be back", lambda: not self.devices()[here, 3].drained)
        self.assertEqual([k for k, d in self.devices().items() if d.drained], [(here, 5)])

    # GPUs that are gone are out of use, the CPU devices of the same file are not.
    def test_the_cpus_of_the_file_are_used_whatever_the_gpus_do(self):
        self.look("none")
        wait_for("what is missing", lambda: sum(d.drained for d in self.devices().values()) == 8)
        self.s.wait_state(self.s.submit(self.spec("cpu", steps=5, devices=4)), "SUCCEEDED")

    def submit(self, backend, **fields):
        spec = self.spec(backend, steps=5, **fields)
        spec.resources.backend = backend
        reply = self.s.jobs.Submit(m.jobs.SubmitRequest(spec=spec), timeout=DEADLINE)
        return reply.job.id, reply.plan

    # Whoever leaves the backend open doesn't wait for GPUs that nobody can have; whoever names it does,
    # and is told what for.
    def test_nobody_waits_for_missing_gpus_who_did_not_ask_for_them(self):
        here = self.look("none")
        wait_for("what is missing", lambda: sum(d.drained for d in self.devices().values()) == 8)
        job, plan = self.submit("auto", devices=4)
        self.assertEqual((plan.backend, plan.precision), ("cpu", "fp32"))
        self.assertIn(f"backend cpu: 8 of the 8 GPUs of node {here} are not there; resources.backend: "
                      "cuda waits for them", list(plan.notes))
        self.s.wait_state(job, "SUCCEEDED")
        job, plan = self.submit("cuda", devices=2)
        words = (f"8 of the 8 devices that suit it are out of use: {here}:0-7 (node {here} reports 0 of "
                 "8 devices)")
        self.assertIn(f"it waits: {words}; resources.backend: cpu takes CPU devices", list(plan.notes))
        why = self.s.jobs.Why(self.ref(job), timeout=DEADLINE)
        self.assertEqual(list(why.reasons), ["needs 2 devices, 0 of 8 are free (8 are drained)", words])

    def notes_of(self, tensor=1, type="any", **fields):
        """What is said of a job that waits for GPUs."""
        spec = self.spec("waits", **fields)
        spec.resources.backend, spec.resources.type = "auto", type
        spec.parallel.layout.tensor = tensor
        request = m.jobs.SubmitRequest(spec=spec, dry_run=True)
        plan = self.s.jobs.Submit(request, timeout=DEADLINE).plan
        self.assertEqual(plan.backend, "cuda")
        notes = [n for n in plan.notes if n.startswith("it waits: ")]
        self.assertEqual(len(notes), 1, plan.notes)
        self.assertIn("devices that suit it are out of use", notes[0])
        return notes[0]

    # Nobody is sent to CPU devices that don't take the job: for their domains, their type, because
    # they are out of use themselves.
    def test_cpu_devices_are_named_only_where_they_take_the_job(self):
        here = self.look("dgx", cluster_text(["east0", "west0"], devices=2))
        self.drain(here, reason="fans")
        hint = "resources.backend: cpu takes CPU devices"
        self.assertIn(hint, self.notes_of(devices=4))
        self.assertIn(hint, self.notes_of(devices=1, tensor=2))
        self.assertNotIn(hint, self.notes_of(devices=1, tensor=4))
        self.assertNotIn(hint, self.notes_of(devices=8))
        self.assertNotIn(hint, self.notes_of(devices=4, type="h100"))
        self.drain("west0", reason="disks")
        self.assertIn(hint, self.notes_of(devices=2))
        self.assertNotIn(hint, self.notes_of(devices=4))

    # The same of a job that was first planned on CPU devices, since the GPUs are gone.
    def test_who_waits_for_missing_gpus_is_not_sent_to_cpus_that_do_not_do(self):
        self.look("none", cluster_text(["east0", "west0"], devices=2))
        wait_for("what is missing", lambda: sum(d.drained for d in self.devices().values()) == 8)
        self.assertNotIn("resources.backend", self.notes_of(devices=1, tensor=4))

    # A plan is made while the job's data is looked at. GPUs that come or go meanwhile count.
    def test_gpus_that_come_or_go_while_a_job_is_planned_count(self):
        held = programs_with_held_probe(self.folder / "bin")
        (held / "found").write_text("none")
        here = self.look("none", bin_dir=held)
        wait_for("what is missing", lambda: sum(d.drained for d in self.devices().values()) == 8)
        for found, missing, backend in (("lost", 1, "cuda"), ("none", 8, "cpu")):
            with self.subTest(found=found):
                (held / "hold").touch()
                with ThreadPoolExecutor(1) as pool:
                    try:
                        reply = pool.submit(self.submit, "auto", devices=4)
                        wait_for("the job to be looked at", (held / "held").exists)
                        (held / "found").write_text(found)
                        self.undrain(here)  # the host is looked at again
                        wait_for("the GPUs that are there", lambda: sum(
                            d.drained for d in self.devices().values()) == missing)
                    finally:
                        (held / "hold").unlink(missing_ok=True)
                        (held / "held").unlink(missing_ok=True)
                    job, plan = reply.result()
                self.assertEqual(plan.backend, backend)
                self.assertEqual([n for n in plan.notes if "are not there" in n], [
                    f"backend cpu: 8 of the 8 GPUs of node {here} are not there; resources.backend: "
                    "cuda waits for them"] if backend == "cpu" else [])
                self.s.wait_state(job, "SUCCEEDED")

    # One predictor for both: a step's launches, of few of its many micro-batches. Only while the host
    # is measured, which a server that is just started does, it is the formula, and said.
    def test_the_server_predicts_a_step_as_the_command_line_does(self):
        held = programs_with_held_probe(self.folder / "bin")
        (held / "found").write_text("dgx")
        (held / "hold").touch()
        self.look("dgx", bin_dir=held)
        spec = self.spec("step", steps=5, devices=2)
        spec.resources.backend, spec.training.global_batch_size = "cuda", 80
        job = {"name": "step", "model": {"path": spec.model.path},
               "data": {"order": "sequential", "train": [
                   {"path": spec.data.train[0].path, "format": "u16", "window": "T+1"}]},
               "training": {"steps": 5, "seq_len": 32, "global_batch_size": 80},
               "parallel": {"data": 2}, "resources": {"backend": "cuda"}}
        (self.folder / "job.yaml").write_text(json.dumps(job))
        r = subprocess.run([BIN / "tandem", "plan", self.folder / "job.yaml", "--cluster", self.file,
                            "-o", "json"], capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(r.returncode, 0, r.stderr)
        by_launches = json.loads(r.stdout)["plans"][0]["step_s"]
        plans = m.plans_rpc.PlansStub(self.s.channel)
        formula_s = json.loads(r.stdout)["plans"][0]["plan"]["cost"]["step_s"]

        def ask():
            reply = plans.Plan(m.plans.PlanRequest(spec=spec), timeout=DEADLINE).plans[0]
            return reply.step_s, any("step_s is by formula" in n for n in reply.summary.notes)

        try:
            wait_for("the host to be measured", (held / "held").exists)
            self.assertEqual(ask(), (formula_s, True))
        finally:
            (held / "held").unlink(missing_ok=True)
        wait_for("the host's peak", lambda: not ask()[1])
        step_s = ask()[0]
        self.assertAlmostEqual(step_s / by_launches, 1, delta=1e-9)
        self.assertGreater(abs(step_s / formula_s - 1), 0.01, "the two can't be told apart")

    # What somebody drained comes back: it is waited for, and submit says so.
    def test_drained_gpus_are_waited_for(self):
        here = self.look("dgx")
        self.drain(here, reason="new disks")
        job, plan = self.submit("auto", devices=2)
        self.assertEqual(plan.backend, "cuda")
        self.assertIn(f"it waits: 8 of the 8 devices that suit it are out of use: {here}:0-7 (new disks); "
                      "resources.backend: cpu takes CPU devices", list(plan.notes))
        self.assertEqual(self.s.state(job), "JOB_QUEUED")
        self.undrain(here)
        self.s.wait_state(job, "SUCCEEDED")
        self.assertFalse([n for n in self.submit("auto", devices=2)[1].notes if "waits" in n])


class Tenants(unittest.TestCase):
    # What others do is not told; what is out of use is.
    def test_a_tenant_sees_what_is_drained_and_not_who_is_where(self):
        where = folder / "tenants"
        where.mkdir()
        (where / "cluster.yaml").write_text(cluster_text())
        s = AccessServer(m, where, programs_with_tickets(where / "bin"), devices=0,
                         args=["--cluster", where / "cluster.yaml"])
        try:
            self.look(s)
        finally:
            code = s.stop()
            end_processes(where)
        self.assertEqual(code, 0)

    def look(self, s):
        s.make_users()
        spec = s.spec("theirs", steps=100000, devices=2, tags=["ms=20"])
        job = s.as_user("bob", "Jobs").Submit(m.jobs.SubmitRequest(spec=spec)).job.id
        s.wait_state(job, "RUNNING")
        ask = m.cluster.DrainRequest(node="west1", reason="new disks")
        for who in ("mia", "tara"):
            for method in ("Drain", "Undrain"):
                with self.assertRaises(grpc.RpcError) as caught:
                    getattr(s.as_user(who, "Cluster"), method)(ask)
                self.assertEqual(caught.exception.code(), Code.PERMISSION_DENIED)
        s.as_user("ada", "Cluster").Drain(ask)
        for who, holder in (("mia", -1), ("bob", job), ("ada", job)):
            c = s.as_user(who, "Cluster").ListNodes(m.cluster.ListNodesRequest())
            devices = [d for n in c.nodes for d in n.devices]
            self.assertEqual(sorted({d.job_id for d in devices}), sorted({0, holder}))
            self.assertEqual({(d.drained, d.reason) for d in c.nodes[3].devices},
                             {(True, "new disks")})
        rows = s.admin.ListAudit(m.admin.ListAuditRequest(method="Cluster/Drain"),
                                 timeout=DEADLINE).rows
        self.assertIn(("ada", "west1: new disks", "ok"),
                      [(r.user, r.object, r.result) for r in rows])
        s.jobs.Cancel(m.jobs.JobRef(job=str(job)), timeout=DEADLINE)
        s.wait_state(job, "CANCELLED")


class Drains(ClusterCase):
    # (18) The gang saves at a step boundary and goes on elsewhere; nothing is lost or counted.
    def test_18_a_drain_moves_the_jobs_on_it(self):
        self.serve(real)
        # It goes on for as long as the test takes; what it has done by then is compared.
        job = self.s.submit(self.steady("moved", 1000000))
        self.run_to(job, 3)
        node = next(iter(self.nodes_of(job)))
        self.drain(node, reason="fan 2 is loud")
        wait_for("a second attempt", lambda: self.s.get(job).attempt == 2 and self.held_by(job))
        self.assertNotIn(node, self.nodes_of(job))
        self.run_to(job, self.s.get(job).attempts[1].start_step + 11)
        self.s.jobs.Cancel(self.ref(job), timeout=DEADLINE)
        self.s.wait_state(job, "CANCELLED")
        got = self.s.get(job)
        self.assertEqual((got.attempt, got.restarts, got.evictions), (2, 0, 0))
        told = [e for e in got.events if e.kind == "state" and e.cause == "drained"]
        self.assertEqual([e.to for e in told], [m.jobs.JOB_STOPPING, m.jobs.JOB_QUEUED])
        self.assertIn(f"gives its 2 devices back: {node} is drained (fan 2 is loud)",
                      told[0].message)
        curve = self.curve(job)
        calm = self.s.submit(self.steady("calm", len(curve)))
        self.s.wait_state(calm, "SUCCEEDED")
        self.assertEqual(curve, self.curve(calm))

    def steady(self, name, steps):
        """A job whose curve is the same however many steps follow."""
        spec = self.spec(name, steps=steps, devices=2, interval=10)
        spec.training.lr_schedule.warmup_steps, spec.training.lr_schedule.decay = 5, "constant"
        return spec

    def test_a_drain_outlives_restarts_and_is_undone_once(self):
        self.serve()
        for _ in range(2):  # done twice is done once
            node = self.drain("east0", reason="disks")
        node = self.drain("east0")  # no reason is no new reason
        self.drain("east1", device=2, reason="ECC errors")
        self.assertEqual([n.name for n in node.nodes], ["east0"])
        self.assertEqual({(d.drained, d.reason) for d in node.nodes[0].devices},
                         {(True, "disks")})
        for _ in range(2):
            devices = self.devices()
            drained = {k: d.reason for k, d in devices.items() if d.drained}
            self.assertEqual(drained, {**{("east0", i): "disks" for i in range(4)},
                                       ("east1", 2): "ECC errors"})
            job = self.s.submit(self.spec("all", nodes=["east0", "east1"], steps=3, devices=3))
            self.s.wait_state(job, "SUCCEEDED")
            self.restart()
        for _ in range(2):
            self.undrain("east0")
        self.undrain("east1")  # with all of its devices
        self.assertFalse([k for k, d in self.devices().items() if d.drained])
        self.restart()
        self.assertFalse([k for k, d in self.devices().items() if d.drained])

    def test_a_job_may_finish_on_what_is_drained(self):
        self.serve()
        job = self.s.submit(self.spec("finishes", steps=30, devices=4, tags=["gate=3"]))
        self.run_to(job, 3)
        node = next(iter(self.nodes_of(job)))
        reply = self.drain(node, let_finish=True)
        self.assertEqual([d.job_id for d in reply.nodes[0].devices], [job] * 4)
        self.s.allow(job, "gate-3")
        self.s.wait_state(job, "SUCCEEDED")
        self.assertEqual(self.s.get(job).attempt, 1)
        self.assertTrue(all(d.drained for (n, _), d in self.devices().items() if n == node))

    # The controller is away while the gang stops: the job goes on elsewhere all the same.
    def test_18_a_drain_is_carried_out_over_a_restart(self):
        self.serve()
        job = self.s.submit(self.spec("moved", steps=200, devices=4, interval=5,
                                      tags=["gate=12", "gate=100"]))
        self.run_to(job, 12)
        node = next(iter(self.nodes_of(job)))
        self.drain(node)
        self.s.kill()
        self.s.start()
        wait_for("a second attempt", lambda: self.s.get(job).attempt == 2 and self.held_by(job))
        self.assertNotIn(node, self.nodes_of(job))
        self.s.allow(job, "gate-100")
        self.s.wait_state(job, "SUCCEEDED")
        self.assertEqual([step for step, _, _ in self.curve(job)], list(range(1, 201)))

    # What doesn't stop is killed after the grace, and goes on from its last checkpoint.
    def test_18_what_does_not_stop_within_the_grace_is_killed(self):
        self.serve()
        self.s.args += ["--scheduler", "grace_s=1"]
        self.restart()
        job = self.s.submit(self.spec("deaf", steps=100000, devices=4, tags=["ms=10", "deaf"],
                                      interval=5))
        self.run_to(job, 12)
        self.drain(next(iter(self.nodes_of(job))))
        wait_for("a second attempt", lambda: self.s.get(job).attempt == 2)
        self.s.jobs.Cancel(self.ref(job), timeout=DEADLINE)
        self.s.wait_state(job, "CANCELLED")
        self.assertEqual(self.s.get(job).restarts, 0)

    def test_what_is_not_there_is_refused_by_name(self):
        self.serve()
        self.refused(Code.NOT_FOUND, "did you mean east0", lambda: self.drain("esat0"))
        self.refused(Code.NOT_FOUND, "has no device 4; it has 0-3",
                     lambda: self.drain("east0", device=4))
        self.refused(Code.INVALID_ARGUMENT, "node: say which", lambda: self.drain(""))
        self.refused(Code.INVALID_ARGUMENT, "device: -1", lambda: self.drain("east0", device=-1))
        self.refused(Code.INVALID_ARGUMENT, "reason: 5000 bytes",
                     lambda: self.drain("east0", reason="x" * 5000))
        self.refused(Code.INVALID_ARGUMENT, "reason: one line",
                     lambda: self.drain("east0", reason="a\nb"))
        self.drain("east0")
        self.refused(Code.FAILED_PRECONDITION, "all of node east0 is drained",
                     lambda: self.undrain("east0", device=1))

    def test_the_commands_say_what_they_do(self):
        self.serve()
        job = self.s.submit(self.spec("mover", steps=100000, devices=4, tags=["ms=10"],
                                      interval=5))
        self.run_to(job, 3)
        node = next(iter(self.nodes_of(job)))
        code, out = self.tandem("drain", f"{node}:1", "--reason", "ECC errors")
        self.assertEqual(code, 0, out)
        self.assertIn(f"{node}:1 is drained (ECC errors): 1 device", out)
        self.assertIn(f"job {job}, on 1 of them, saves at its next step", out)
        self.assertIn(f"`tandem undrain {node}:1`", out)
        code, out = self.tandem("nodes", node)
        self.assertIn("ECC errors", out)
        code, out = self.tandem("undrain", f"{node}:1", "-o", "json")
        self.assertFalse(json.loads(out)["devices"][1].get("drained", False), out)
        for words, want, part in ((["drain", "nowhere"], 1, "there is no node"),
                                  (["drain"], 2, "which node"),
                                  (["drain", f"{node}:x"], 2, "behind the colon"),
                                  (["undrain", f"{node}:9"], 1, "has no device 9")):
            code, out = self.tandem(*words)
            self.assertEqual(code, want, out)
            self.assertIn(part, out)
        self.s.jobs.Cancel(self.ref(job), timeout=DEADLINE)


if __name__ == "__main__":
    unittest.main(verbosity=2 if "-v" in sys.argv else 1)
