"""What the jobs of cluster_run_test.py train: recipes of tiny Llamas, and the file of a job. Jobs of one
recipe have the same curve and the same weights, whoever they are of and whatever happens to them."""
import json

from bench_of_programs import ROOT, TINY

ENDLESS = 40000000  # steps of a job that is there to hold devices: it is stopped


class Recipe:
    """seconds in place of steps: as many steps as take so long on this machine."""

    def __init__(self, devices, steps, backend="cpu", optimizer="adamw", precision="fp32", batch=12,
                 interval=0, random_init=False, seq_len=16, seconds=0):
        self.devices, self.steps, self.interval, self.seconds = devices, steps, interval, seconds
        self.backend, self.optimizer, self.precision = backend, optimizer, precision
        self.batch, self.random_init, self.seq_len = batch, random_init, seq_len

    def fields(self, steps=None):
        """Of a job file. The rate depends on no later step, so that a longer run begins the same."""
        weights = {"config": str(TINY / "config.json"), "init_seed": 7} if self.random_init else \
            {"path": str(TINY)}
        return {
            "model": weights,
            "data": {"order": "shuffled",
                     "train": [{"path": str(TINY / "train.bin"), "format": "u16"}]},
            "training": {
                "steps": steps or self.steps, "seq_len": self.seq_len,
                "global_batch_size": self.batch, "precision": self.precision,
                "optimizer": {"name": self.optimizer,
                              "lr": 0.05 if self.optimizer == "sgd" else 0.002},
                "lr_schedule": {"warmup_steps": 10, "decay": "constant"}},
            "parallel": {"data": self.devices},
            "resources": {"backend": self.backend},
            "checkpoint": {"interval": str(self.interval)}}


def recipes(scale, long_s):
    """By name. scale: 1, less for a shorter run, more for a longer one."""
    def s(steps):
        return max(6, int(steps * scale))
    return {
        "one": Recipe(1, s(80), interval=25),
        "one-random": Recipe(1, s(30), backend="ref", precision="fp64", random_init=True, batch=4),
        "two": Recipe(2, s(30), backend="ref", precision="fp64", optimizer="sgd", interval=5),
        "three": Recipe(3, s(80), random_init=True),
        "three-ref": Recipe(3, s(20), backend="ref", precision="fp64", interval=7),
        "four": Recipe(4, s(80), interval=10),
        "four-sgd": Recipe(4, s(100), optimizer="sgd", random_init=True),
        "six": Recipe(6, s(80), interval=20),
        "eight": Recipe(8, s(200), batch=8),
        "twelve": Recipe(12, s(40), interval=10),
        "sixteen": Recipe(16, s(30), batch=16),
        "long": Recipe(8, 0, batch=8, seconds=1.5 * long_s),
        "long-ref": Recipe(8, 0, backend="ref", precision="fp64", optimizer="sgd", batch=8,
                           random_init=True, seconds=0.7 * long_s),
        "long-four": Recipe(4, 0, interval=100, seconds=0.7 * long_s),
    }


class Job:
    """One to be submitted. ends: state and cause at its end. more: further fields of its file."""

    def __init__(self, name, tenant, recipe, priority="normal", steps=None,
                 ends=("SUCCEEDED", "finished"), **more):
        self.name, self.tenant, self.recipe, self.priority = name, tenant, recipe, priority
        self.steps, self.ends, self.more = steps, ends, more
        self.id = None

    def text(self, recipe):
        return json.dumps({"name": self.name, "priority": self.priority, **recipe.fields(self.steps),
                           **self.more}, indent=1)


CLUSTER = ROOT / "examples/cluster-this-host.yaml"
NODES = {"east0": 4, "east1": 4, "west0": 4, "west1": 4}
