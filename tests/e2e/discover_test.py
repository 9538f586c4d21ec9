#!/usr/bin/env python3
"""The controller looks at its host when it starts: what it finds, and where that isn't what the
cluster file says, stands in its log. A driver that crashes takes nothing with it."""
import os
import pathlib
import shutil
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_of_programs import (BIN, DEADLINE, Server, end_processes, link_programs, make_stubs,
                               new_folder, skip, wait_for)

CLUSTER = """
nodes:
  - {name: %s, devices: [{type: h100, count: 8}]}
  - {name: cpus, cores: 1, devices: [{count: 2}]}
"""


def setUpModule():
    global folder, m, programs
    if not (BIN / "fake-nvml").is_dir():
        skip("the fake management library isn't built")
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")


def tearDownModule():
    end_processes(programs)
    shutil.rmtree(folder, ignore_errors=True)


class Discovery(unittest.TestCase):
    def log_of(self, fake, words, has_file=True):
        """Starts a server on such a host, waits for words in its log, gives the log."""
        home = folder / (fake if has_file else f"{fake}-alone")
        home.mkdir()
        (home / "cluster.yaml").write_text(CLUSTER % socket.gethostname())
        how = {"devices": None, "args": ["--cluster", home / "cluster.yaml"]} if has_file else {"devices": 2}
        os.environ["LD_LIBRARY_PATH"] = str(BIN / "fake-nvml")
        os.environ["TANDEM_FAKE_NVML"] = fake
        server = Server(m, home, programs, **how)
        try:
            wait_for(f"\"{words}\" in the log",
                     lambda: words in (home / "tandemd.log").read_text())
            self.assertEqual(len(server.cluster.ListNodes(m.cluster.ListNodesRequest(),
                                                          timeout=DEADLINE).nodes), 2 if has_file else 1)
        finally:
            del os.environ["LD_LIBRARY_PATH"], os.environ["TANDEM_FAKE_NVML"]
            code = server.stop()
        self.assertEqual(code, 0)
        return (home / "tandemd.log").read_text()

    def test_a_card_that_is_gone_is_told_from_the_file_and_by_the_driver(self):
        log = self.log_of("lost", "device 3 (h100) is not found")
        self.assertIn("7 GPUs of type h100", log)
        self.assertIn("GPU 3 does not answer: GPU is lost", log)

    def test_gpus_that_no_file_offers_are_a_warning(self):
        self.log_of("lost", "its GPUs are offered to no job, since there is no cluster file", has_file=False)

    def test_a_driver_that_crashes_costs_a_line_of_the_log(self):
        self.log_of("crash", "this host could not be looked at")


if __name__ == "__main__":
    unittest.main(verbosity=2)
