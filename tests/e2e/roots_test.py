"""Roots of the config: what a job may read, held when it is submitted and again when its ranks open
the files; real tandemd, tandem-probe, tandem-node, tandem-rank."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import bench_of_programs as bench  # noqa: E402
from bench_of_programs import TINY, grpc  # noqa: E402


class RootsServer(bench.Server):
    def start(self):
        self.allowed, self.secret = self.folder / "allowed", self.folder / "secret"
        for folder in (self.allowed, self.secret):
            shutil.copytree(TINY, folder / "model", dirs_exist_ok=True)
            shutil.copy(TINY / "train.bin", folder / "train.bin")
        config = self.folder / "tandemd.yaml"
        config.write_text(f"data_dir: {self.data}\ndevices: {self.devices}\nroots:\n"
                          f"  - read: [{self.allowed}]\n")
        self.log = open(self.folder / "tandemd.log", "ab")
        self.process = subprocess.Popen(
            [self.programs / "tandemd", "--dev", "--config", config], stdout=self.log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "XDG_CONFIG_HOME": str(self.folder / "config")})
        self.connect()

    def spec_with(self, name, model, data, **more):
        spec = self.spec(name, **more)
        spec.model.path = str(model)
        spec.data.train[0].path = str(data)
        return spec

    def refusal(self, spec):
        try:
            self.submit(spec)
        except grpc.RpcError as e:
            return e
        raise AssertionError("it was taken")

    def dry_run_allowed(self, spec):
        self.jobs.Submit(self.m.jobs.SubmitRequest(spec=spec, dry_run=True), timeout=bench.DEADLINE)


def outside_is_refused_and_tells_nothing(s):
    model, data = s.allowed / "model", s.allowed / "train.bin"
    texts = []
    for path in (s.secret / "train.bin", s.secret / "not-there"):
        e = s.refusal(s.spec_with("out", model, path))
        assert e.code() == grpc.StatusCode.PERMISSION_DENIED, e
        assert e.details().startswith("data.train: ") and str(s.allowed) in e.details(), e.details()
        texts.append(e.details().replace(str(path), "PATH"))
    assert texts[0] == texts[1], texts
    e = s.refusal(s.spec_with("out", s.secret / "model", data))
    assert e.code() == grpc.StatusCode.PERMISSION_DENIED and e.details().startswith("model.path: ")
    s.dry_run_allowed(s.spec_with("in", model, data))


def a_link_that_is_turned_after_the_probe_gains_nothing(s):
    blocker = s.submit(s.spec_with("blocker", s.allowed / "model", s.allowed / "train.bin",
                                   steps=1000000))
    s.wait_state(blocker, "RUNNING")
    links = {"model-link": "model", "train.bin-link": "train.bin"}
    for link, name in links.items():
        (s.allowed / link).symlink_to(name)
    jobs = [s.submit(s.spec_with("model", s.allowed / "model-link", s.allowed / "train.bin")),
            s.submit(s.spec_with("data", s.allowed / "model", s.allowed / "train.bin-link")),
            s.submit(s.spec_with("fine", s.allowed / "model", s.allowed / "train.bin"))]
    for link, name in links.items():
        (s.allowed / "fresh").symlink_to(s.secret / name)
        os.rename(s.allowed / "fresh", s.allowed / link)
    s.jobs.Cancel(s.m.jobs.JobRef(job=str(blocker)), timeout=bench.DEADLINE)
    for job in jobs[:2]:
        s.wait_state(job, "FAILED")
        message = s.get(job).message
        assert "outside of what tenant default may read" in message, message
    s.wait_state(jobs[2], "SUCCEEDED")


def main():
    bench.run_tests(lambda *args: RootsServer(*args, devices=1),
                    [outside_is_refused_and_tells_nothing,
                     a_link_that_is_turned_after_the_probe_gains_nothing])


if __name__ == "__main__":
    main()
