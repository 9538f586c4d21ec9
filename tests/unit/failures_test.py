#!/usr/bin/env python3
"""What script/test says at its end of what failed: the script itself in a tree of its own, with
planted failures of tests, builds and programs; and script/failures with more than there is room for."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = 20000  # characters that a keeper of logs may keep of the end

TREE = """cmake_minimum_required(VERSION 3.25)
project(planted NONE)
enable_testing()
if(BROKEN)
  add_custom_target(cusim_tests COMMAND sh -c "echo 'x.c:1:2: error: planted'; exit 1" VERBATIM)
endif()
foreach(name good short long gone killed)
  add_test(NAME ${name}_test COMMAND sh ${CMAKE_SOURCE_DIR}/${name}.sh)
endforeach()
add_test(NAME missing_test COMMAND no-such-program)
set_tests_properties(gone_test PROPERTIES SKIP_RETURN_CODE 77)
"""
TESTS = {
    "good": "echo words of one that passed",
    "short": "printf 'short: \\001 <begins> & \\377\\n100%% tests passed, too\\nshort ends\\n'; exit 1",
    "long": """
        for i in $(seq 900); do echo "[ RUN      ] case $i"; echo "[       OK ] case $i"; done
        echo '[  ERROR   ] --- 1 != 2 planted early'; echo 'long.c:17: error: Failure!'
        for i in $(seq 3000); do echo "noise $i"; done; echo long ends; exit 1""",
    "gone": "echo words of one that is skipped; exit 77",
    "killed": "echo killed soon; kill -KILL $$",
}


class Tree:
    """A tree with script/test, where what it calls is planted."""

    def __init__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tandem-failures-"))
        for name in ("test", "failures"):
            self.write(f"script/{name}", (ROOT / "script" / name).read_text())
        self.write("script/bootstrap", "#!/bin/sh\n")
        self.write("CMakeLists.txt", TREE)
        presets = [{"name": name, "generator": "Ninja", "binaryDir": "${sourceDir}/build/" + name,
                    "cacheVariables": {"BROKEN": "ON" if name == "clang" else "OFF"}}
                   for name in ("release", "clang")]
        self.write("CMakePresets.json", json.dumps({"version": 4, "configurePresets": presets}))
        for name, text in TESTS.items():
            self.write(f"{name}.sh", text)
        self.write("tests/e2e/contract", "#!/bin/sh\necho FAIL a planted case; exit 1\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *args):
        env = {key: value for key, value in os.environ.items() if not key.startswith("TANDEM_")}
        done = subprocess.run([self.root / "script/test", *args], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=300)
        return done.returncode, done.stdout


class Script(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = Tree()
        cls.addClassCleanup(shutil.rmtree, cls.tree.root, ignore_errors=True)
        cls.code, cls.out = cls.tree.run("release", "contract", "clang", "fuzz")
        cls.steps, cls.end = cls.out.split("== summary", 1)

    def test_the_end_is_all_that_has_to_be_kept(self):
        self.assertEqual(self.code, 1, self.out)
        self.assertLess(len(self.end), KEPT * 3 // 4)
        self.assertIn("FAILED: release contract clang fuzz", self.end)

    def test_each_failed_test_has_its_words_and_how_to_run_it(self):
        for name in ("short", "long", "killed", "missing"):
            self.assertIn(f"release: {name}_test (", self.end)
            self.assertIn(f"script/test --only {name}_test release", self.end)
        for words in ("<begins> & ", "100% tests passed, too\nshort ends", "noise 2999\nnoise 3000\nlong ends",
                      "planted early\nlong.c:17", "killed soon", "no-such-program"):
            self.assertIn(words, self.end)

    def test_what_passed_or_was_skipped_is_not_told(self):
        for words in ("good_test", "words of one", "gone_test", "] case "):
            self.assertNotIn(words, self.end)

    def test_other_failures_are_told_with_their_words(self):
        for words in ("clang: build of", "x.c:1:2: error: planted", "-- contract\nFAIL a planted case",
                      "configuring fuzz", "No such preset"):
            self.assertIn(words, self.end)

    def test_a_step_prints_ctests_closing_lines_alone(self):
        self.assertIn("33% tests passed, 4 tests failed out of 6", self.steps)
        self.assertIn("The following tests FAILED:", self.steps)
        for words in ("noise 3000", "killed soon"):
            self.assertNotIn(words, self.steps)

    def test_one_test_is_run_alone(self):
        code, out = self.tree.run("--only", "short_test", "release")
        self.assertEqual(code, 1, out)
        self.assertIn("0% tests passed, 1 tests failed out of 1", out)
        code, out = self.tree.run("--only", "good_test", "release")
        self.assertEqual(code, 0, out)
        self.assertIn("100% tests passed, 0 tests failed out of 1", out)
        code, out = self.tree.run("--only", "no_such_test", "release")
        self.assertEqual(code, 1, out)


class Failures(unittest.TestCase):
    def told(self, cases, limit=14000):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as results:
            results.write("<testsuite>" + "".join(
                f'<testcase name="{name}" time="1" status="fail"><failure message=""/>'
                f"<system-out>{words}</system-out></testcase>" for name, words in cases) + "</testsuite>")
            results.flush()
            return subprocess.run([ROOT / "script/failures", "--limit", str(limit), f"tests:asan:{results.name}"],
                                  check=True, stdout=subprocess.PIPE, text=True).stdout

    def test_no_number_of_failures_breaks_the_bound(self):
        for count in (1, 2, 5, 17, 18, 100, 600):
            cases = [(f"a_test_{i}", f"first {i}\n" + "x" * 5000 + "\n" + "line\n" * 5000 + f"last {i}")
                     for i in range(count)]
            out = self.told(cases)
            self.assertLessEqual(len(out), 14000, count)
            for i in range(min(count, 15)):
                self.assertIn(f"asan: a_test_{i} (", out)
                self.assertIn(f"last {i}\n", out)

    def test_who_has_little_to_say_leaves_its_room_to_the_others(self):
        big = "\n".join(f"line {i} " + "y" * 180 for i in range(45))
        out = self.told([(f"small_{i}", "little") for i in range(10)] + [("big", big)])
        self.assertIn("line 5 ", out)
        self.assertIn("line 44 ", out)
        self.assertEqual(out.count("\nlittle\n"), 10)

    def test_a_sanitizers_report_is_kept_from_its_beginning(self):
        words = "\n".join([f"ok {i}" for i in range(100)] + ["==7==ERROR: AddressSanitizer: planted"] +
                          [f"    #{i} in frame" for i in range(20)] + [f"shadow {i}" for i in range(100)])
        out = self.told([("planted", words)])
        self.assertIn("... (100 lines)\n==7==ERROR: AddressSanitizer: planted\n    #0 in frame", out)
        self.assertIn("#5 in frame", out)
        self.assertIn("shadow 99", out)

    def test_results_that_cant_be_read_are_told(self):
        out = subprocess.run([ROOT / "script/failures", "tests:asan:/no/such/file", "text:fuzz:/no/other"],
                             check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertIn("/no/such/file", out)
        self.assertIn("/no/other", out)


if __name__ == "__main__":
    sys.exit(unittest.main())
