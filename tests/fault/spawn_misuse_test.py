#!/usr/bin/env python3
"""tandem-spawn as root: what it starts runs as the tenant's user and has nothing of tandemd's or of
root's; whatever else is asked of it is refused. Users are numbers that nobody has."""
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ.get("TANDEM_BUILD",
                                    pathlib.Path(__file__).resolve().parents[2] / "build/dev"))
DAEMON, ANN, BOB, LOW = 70001, 70002, 70003, 70004
DEADLINE = 60


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


if os.geteuid() != 0:
    skip("not root")
if os.environ.get("TANDEM_SAMPLE"):
    skip("a sanitizer's runtime reads the environment of a program with root's rights")


def setUpModule():
    global folder, spawn, programs, jobs, conf
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-spawn-"))
    folder.chmod(0o755)
    programs = folder / "bin"
    programs.mkdir(mode=0o755)
    spawn = programs / "tandem-spawn"
    shutil.copy(BUILD / "bin/tandem-spawn-test", spawn)
    os.chown(spawn, 0, DAEMON)
    spawn.chmod(0o4750)
    for name in ("tandem-node", "tandem-probe"):
        shutil.copy(BUILD / "bin/told", programs / name)
        (programs / name).chmod(0o755)
    jobs = folder / "data/jobs"
    jobs.mkdir(parents=True)
    for path in (jobs.parent, jobs):
        os.chown(path, DAEMON, DAEMON)
        path.chmod(0o711)
    conf = BUILD / "spawn-test/spawn.conf"
    conf.parent.mkdir(exist_ok=True)


def tearDownModule():
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(conf.parent, ignore_errors=True)


def wait_for(what, condition):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"waited {DEADLINE} s for {what}")


def start_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


def dead(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


class Case(unittest.TestCase):
    def setUp(self):
        self.write_conf()

    def write_conf(self, **changed):
        values = {"caller": DAEMON, "min_uid": 70002, "user": f"{ANN}\nuser {BOB}",
                  "programs": programs, "jobs": jobs, **changed}
        conf.unlink(missing_ok=True)
        conf.write_text("".join(f"{k} {v}\n" for k, v in values.items()))
        conf.chmod(0o644)

    def ask(self, *words, user=DAEMON, group=None, ticket=b"", **kwargs):
        """Runs tandem-spawn as tandemd would."""
        read, write = os.pipe()
        os.write(write, ticket)
        os.close(write)

        def as_3():
            os.dup2(read, 3)
        try:
            return subprocess.run([str(spawn), *map(str, words)], capture_output=True, text=True,
                                  user=user, group=group or user, extra_groups=[],
                                  preexec_fn=as_3, pass_fds=(3,), timeout=DEADLINE, **kwargs)
        finally:
            os.close(read)

    def refused(self, part, *words, **kwargs):
        got = self.ask(*words, **kwargs)
        self.assertEqual(got.returncode, 111, got)
        self.assertIn("tandem-spawn: refused: ", got.stderr)
        self.assertIn(part, got.stderr)

    def facts(self, text):
        found = {}
        for line in text.splitlines():
            key, _, value = line.partition(" ")
            found.setdefault(key, []).append(value)
        return found


class Starts(Case):
    def check_facts(self, f, user):
        self.assertEqual(f["uids"], [f"{user} {user} {user}"])
        self.assertEqual(f["gids"], [f"{user} {user} {user}"])
        self.assertEqual((f["groups"], f["no_new_privs"], f["cwd"]), (["0"], ["1"], ["/"]))
        self.assertEqual((f["umask"], f["blocked"], f["ignored"], f["core"]),
                         (["7"], ["0"], ["0"], ["0"]))

    def test_tandem_node_is_the_tenants_and_has_nothing_else(self):
        got = self.ask("node", ANN, 7, 1, env={"LD_PRELOAD": "/x.so", "PATH": "/x", "SECRET": "1",
                                              "TANDEM_ATTEMPT": "another"})
        self.assertEqual((got.returncode, got.stdout), (0, ""), got)
        log = jobs / "7/logs/attempt-1/node.log"
        f = self.facts(log.read_text())
        self.check_facts(f, ANN)
        self.assertEqual(f["arg"], ["--job", "7", "--attempt", "1"])
        self.assertEqual(f["env"], ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8",
                                    f"TANDEM_ATTEMPT=7.1@{jobs.parent}"])
        self.assertEqual(sorted(f["fd"]), ["0", "1", "2", "3"])
        # the job's folder: the user's, readable for tandemd, closed to everybody else
        for path in (jobs / "7", jobs / "7/logs", jobs / "7/ckpt", log.parent, log):
            st = path.stat()
            self.assertEqual((st.st_uid, st.st_gid), (ANN, DAEMON), path)
            self.assertEqual(st.st_mode & 0o007, 0, path)
        self.assertEqual(stat.S_IMODE((jobs / "7").stat().st_mode), 0o2770)
        again = self.ask("node", ANN, 7, 2)
        self.assertEqual(again.returncode, 0, again)
        self.assertTrue((jobs / "7/logs/attempt-2/node.log").exists())

    def test_tandem_probe_keeps_its_streams(self):
        got = self.ask("probe", BOB)
        f = self.facts(got.stdout)
        self.check_facts(f, BOB)
        self.assertEqual(f["env"], ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"])
        self.assertEqual(sorted(f["fd"]), ["0", "1", "2"])

    def test_check_says_where_jobs_are(self):
        got = self.ask("check", ANN)
        self.assertEqual((got.returncode, got.stdout), (0, f"{jobs}\n"))


class Refusals(Case):
    def test_only_its_caller_may_ask(self):
        self.refused("may not ask", "check", ANN, user=ANN, group=DAEMON)
        self.refused("may not ask", "check", ANN, user=0, group=0)
        with self.assertRaises(PermissionError):  # not of the group: can't even be run
            self.ask("check", ANN, user=ANN)

    def test_root_system_users_tandemd_and_strangers_are_not_had(self):
        self.refused("root's", "check", 0)
        self.refused("below uid 70002", "check", 33)
        self.refused("below uid 70002", "check", DAEMON)
        self.refused("not among those", "check", LOW)
        self.refused("unknown", "check", "no-such-user-here")
        self.refused("root's", "node", "root", 7, 1)
        self.write_conf(min_uid=70000, user=f"{DAEMON}\nuser 0")
        self.refused("tandemd's own", "check", DAEMON)
        self.refused("root's", "check", 0)

    def test_words_that_are_not_a_request(self):
        for words in ((), ("sh",), ("node", ANN), ("node", ANN, "../7", 1), ("node", ANN, 7, 1, "-x"),
                      ("node", f"{ANN}\n", 7, 1), ("kill", ANN, 7, 1, -1, 0, 9),
                      ("kill", ANN, 7, 1, 1, 0, 9), ("kill", ANN, 7, 1, 4711, 0, 19),
                      ("probe", ANN, "/etc/shadow"), ("--help",)):
            self.refused("", *words)

    def test_a_configuration_that_others_could_write_counts_for_nothing(self):
        conf.chmod(0o664)
        self.refused("nobody else may write", "check", ANN)
        conf.chmod(0o644)
        os.chown(conf, DAEMON, 0)
        self.refused("nobody else may write", "check", ANN)
        conf.unlink()
        self.refused("No such file", "check", ANN)
        conf.symlink_to("/etc/passwd")
        self.refused("", "check", ANN)
        self.write_conf(shell="/bin/sh")
        self.refused("line 7", "check", ANN)

    def test_programs_that_others_could_write_are_not_run(self):
        node = programs / "tandem-node"
        node.chmod(0o775)
        self.refused("nobody else may write", "node", ANN, 8, 1)
        node.chmod(0o755)
        os.chown(node, DAEMON, 0)
        self.refused("nobody else may write", "node", ANN, 8, 1)
        os.chown(node, 0, 0)
        programs.chmod(0o777)
        self.refused("nobody else may write", "node", ANN, 8, 1)
        programs.chmod(0o755)
        self.assertFalse((jobs / "8").exists())

    # tandemd is root of nothing: what it plants in its own folder is not handed to anybody.
    def test_a_folder_that_was_planted_is_not_given_away(self):
        victim = folder / "victim"
        victim.mkdir()
        (jobs / "20").symlink_to(victim)
        self.refused("20: ", "node", ANN, 20, 1)
        self.assertEqual(victim.stat().st_uid, 0)
        (jobs / "21").mkdir()
        os.chown(jobs / "21", BOB, DAEMON)
        self.refused(f"belongs to uid {BOB}", "node", ANN, 21, 1)
        self.assertEqual(self.ask("node", ANN, 22, 1).returncode, 0)
        self.refused("belongs to uid", "node", BOB, 22, 1)
        shutil.rmtree(jobs / "22/logs")
        (jobs / "22/logs").symlink_to("/etc")
        self.refused("logs: ", "node", ANN, 22, 1)
        (jobs / "22/logs").unlink()
        logs = jobs / "22/logs/attempt-1"
        logs.mkdir(parents=True)
        (logs / "node.log").symlink_to("/etc/passwd")
        os.chown(jobs / "22/logs", ANN, DAEMON)
        os.chown(logs, ANN, DAEMON)
        self.refused("node.log: ", "node", ANN, 22, 1)


class Kills(Case):
    def setUp(self):
        super().setUp()
        self.started = []

    def tearDown(self):
        for pid in self.started:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes if hasattr(self, "processes") else []:
            process.wait(DEADLINE)

    def start(self, user, job):
        read, write = os.pipe()
        os.write(write, b"wait")
        os.close(write)
        process = subprocess.Popen([str(spawn), "node", str(user), str(job), "1"], user=DAEMON,
                                   group=DAEMON, extra_groups=[], preexec_fn=lambda: os.dup2(read, 3),
                                   pass_fds=(3,))
        os.close(read)
        self.processes = getattr(self, "processes", []) + [process]
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_for("its child", lambda: children.read_text().strip())
        child = int(children.read_text())
        self.started += [process.pid, child]
        return process, child

    def test_a_gang_is_found_and_killed_with_and_without_its_node(self):
        node, child = self.start(ANN, 30)
        begin = start_of(node.pid)
        got = self.ask("kill", ANN, 30, 1, node.pid, begin, 0)
        self.assertEqual(got.stdout, f"2 {node.pid}\n", got)
        node.kill()
        node.wait(DEADLINE)
        # its child has fled into a session of its own: the mark tells
        self.assertEqual(self.ask("kill", ANN, 30, 1, node.pid, begin, 0).stdout, f"1 {child}\n")
        self.assertEqual(self.ask("kill", ANN, 30, 2, node.pid, begin, 9).stdout, "0 0\n")
        self.assertFalse(dead(child))
        self.ask("kill", ANN, 30, 1, node.pid, begin, 9)
        wait_for("its end", lambda: dead(child))
        node, child = self.start(ANN, 30)
        self.ask("kill", ANN, 30, 1, node.pid, start_of(node.pid), 9)
        wait_for("the end of all", lambda: dead(node.pid) and dead(child))

    # A gang outlives an upgrade of the programs, and can be stopped after it.
    def test_a_gang_whose_program_was_replaced_is_killed(self):
        node, child = self.start(ANN, 33)
        shutil.copy2(programs / "tandem-node", programs / "new")
        (programs / "new").rename(programs / "tandem-node")
        got = self.ask("kill", ANN, 33, 1, node.pid, start_of(node.pid), 9)
        self.assertEqual((got.returncode, got.stdout), (0, f"2 {node.pid}\n"), got)
        wait_for("the end of all", lambda: dead(node.pid) and dead(child))

    def test_nothing_else_can_be_signalled(self):
        ann, _ = self.start(ANN, 31)
        bob, bobs = self.start(BOB, 32)
        # another user's node; one's own that isn't tandem-node; another's by one's own job
        self.refused("no tandem-node of this user", "kill", ANN, 32, 1, bob.pid, start_of(bob.pid), 9)
        other = subprocess.Popen(["sleep", "1000"], user=ANN, group=ANN, extra_groups=[])
        try:
            self.refused("no tandem-node", "kill", ANN, 31, 1, other.pid, start_of(other.pid), 9)
            self.assertEqual(self.ask("kill", ANN, 31, 1, other.pid, 1, 9).returncode, 0)
            wait_for("ann's end", lambda: dead(ann.pid))
            self.assertFalse(dead(other.pid) or dead(bob.pid) or dead(bobs))
        finally:
            other.kill()
            other.wait(DEADLINE)


if __name__ == "__main__":
    unittest.main(verbosity=1)
