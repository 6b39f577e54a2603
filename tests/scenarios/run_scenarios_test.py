"""Tests of the runner: a scenario that tells the truth holds, and one that does not fails and says why."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
if sys.version_info < (3, 11):
    print("skipped: Python 3.11 or newer is needed (tomllib)")
    sys.exit(77)

ERROR = 'command = ["complain", "zerolab: error: no such key", "exit", "2"]\n'
RUN = 'command = "run finish"\n'


class RunnerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        program = self.path / "zerolab"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -B "{HERE}/fake_zerolab.py" "$@"\n')
        program.chmod(0o755)

    def run_file(self, text):
        file = self.path / "group.toml"
        file.write_text(text)
        command = [sys.executable, "-B", HERE / "run_scenarios.py", file]
        command += ["--zerolab", self.path / "zerolab", "--plugins", self.path]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def holds(self, scenario):
        done = self.run_file('[[scenario]]\nname = "one"\n' + scenario)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def fails(self, scenario, reason):
        done = self.run_file('[[scenario]]\nname = "one"\n' + scenario)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(reason, done.stdout + done.stderr)

    def test_an_exit_code_is_compared(self):
        self.holds(ERROR + "expect = { exit = 2 }")
        self.fails(ERROR + "expect = { exit = 3 }", "exit code 2 instead of 3")
        self.fails(ERROR, "exit code 2 instead of 0")
        self.fails('command = "say x"\nexpect = { exit = 2 }', "exit code 0 instead of 2")

    def test_texts_and_patterns_are_looked_for(self):
        self.holds(ERROR + 'expect = { exit = 2, error = ["such key"], stderr_lacks = ["Traceback"] }')
        self.holds(ERROR + 'expect = { exit = 2, error_regex = ["no .* key$"] }')
        self.fails(ERROR + 'expect = { exit = 2, error = ["such a key"] }', "lacks: such a key")
        self.fails(ERROR + 'expect = { exit = 2, error_regex = ["^key"] }', "nothing that matches: ^key")
        self.fails(ERROR + 'expect = { exit = 2, stderr_lacks = ["such"] }', "must not: such")
        self.holds('command = "say hello"\nexpect = { stdout = ["hello"], stdout_regex = ["^h"], stdout_lacks = ["x"] }')
        self.fails('command = "say hello"\nexpect = { stdout = ["goodbye"] }', "lacks: goodbye")
        self.fails('command = "say hello"\nexpect = { stdout_lacks = ["hello"] }', "must not: hello")

    def test_an_error_is_one_line_and_there_is_nothing_else(self):
        twice = 'command = ["complain", "zerolab: error: a", "complain", "zerolab: error: a", "exit", "2"]\n'
        self.fails(twice + "expect = { exit = 2 }", "2 lines instead of 1")
        self.fails(twice + "expect = { exit = 2, stderr_lines = 2 }", "more than once")
        noise = 'command = ["complain", "[W123] noise", "complain", "zerolab: error: a", "exit", "2"]\n'
        self.fails(noise + "expect = { exit = 2, stderr_lines = 2 }", "does not begin with")
        self.fails('command = "exit 2"\nexpect = { exit = 2 }', "0 lines instead of 1")
        self.fails('command = "complain noise"', "1 lines instead of 0")

    def test_what_is_left_behind_is_seen(self):
        self.fails('command = "make core"', "left behind: core")
        self.fails(ERROR.replace('["', '["make", "x.partial", "') + "expect = { exit = 2 }", "left behind: x.partial")
        self.fails('command = "spoil tiny.toml"', "tiny.toml was there before and has changed")
        self.fails('command = "linger"', "1 processes were left running")
        self.fails('command = "run finish make runs/fake-1/metrics.h5.partial"', "left behind: runs/fake-1/metrics.h5.partial")
        self.fails('command = "run finish"\nexpect = { leaves = "nothing" }', "left behind: runs")
        self.fails('command = "run stop"', "has no runs/fake-1/summary.json")
        self.holds('command = "run stop"\nexpect = { leaves = "an unfinished run" }')
        self.fails('command = "run finish"\nexpect = { leaves = "an unfinished run" }', "summary.json")
        self.fails('command = "run say x"', "0 run folders instead of one")

    def test_expressions_have_to_be_true(self):
        self.holds(RUN + 'expect = { holds = ["rows == 2", "loss[-1] < 2", "summary[\'steps\'] == 2", "ranks == 1"] }')
        self.fails(RUN + 'expect = { holds = ["loss[-1] < 1"] }', "does not hold: loss[-1] < 1")
        self.fails(RUN + 'expect = { holds = ["lss[-1] < 1"] }', "NameError")
        self.fails(RUN + 'expect = { holds = ["loss"] }', "not a truth value")

    def test_every_variation_and_number_of_ranks_counts(self):
        self.holds('command = "say {word}"\nvary.word = ["a1", "a2"]\nexpect = { stdout = ["a", "{word}"] }')
        self.fails('command = "say {word}"\nvary.word = ["a", "b"]\nexpect = { stdout = ["a"] }', "word b, 1 rank:")
        self.fails(RUN + 'ranks = [1, 2]\nexpect = { holds = ["loss[-1] == 1"] }', "2 ranks: does not hold")

    def test_runs_are_compared_with_each_other(self):
        two = RUN + "ranks = [1, 2]\n"
        self.holds(two + 'together = { holds = ["run[1].columns[\'loss\'] != run[2].columns[\'loss\']"] }')
        self.fails(two + 'together = { holds = ["run[1].columns[\'loss\'] == run[2].columns[\'loss\']"] }', "does not hold")

    def test_what_does_not_end_is_ended(self):
        self.fails('command = "sleep"\ntimeout = 1', "still running after 1 s")
        self.fails('command = "say x"\nduring = [{ after_rows = 1, send = "KILL", to = "launcher" }]', "before it had 1 rows")

    def test_a_mistake_in_a_scenario_is_no_success(self):
        self.fails('command = "say x"\nexpekt = { exit = 0 }', "unknown keys ['expekt']")
        self.fails('command = "say x"\nexpect = { exitt = 0 }', "unknown keys in expect: ['exitt']")
        self.fails('command = "say x"\nprepare = [{ make = "a", txt = "b" }]', "says nothing to put there")
        self.fails('command = "say x"\nprepare = [{ make = "a", text = "b", tims = 2 }]', "unknown keys ['tims']")
        self.assertEqual(self.run_file("about = 'nothing'\n").returncode, 1)
        self.assertEqual(self.run_file('[[scenario]]\ncommand = "say x"\n').returncode, 1)


class ColumnsTest(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(HERE))

    def check(self, together, **losses):
        import types

        import scenario_expect

        results = {(name, 2): types.SimpleNamespace(h5=types.SimpleNamespace(columns={"loss": loss}), columns={"loss": loss})
                   for name, loss in losses.items()}
        return scenario_expect.check_together(together, results)

    def test_equal_means_every_bit(self):
        self.assertEqual(self.check({"equal": ["loss"]}, a=[1.0, 0.1 + 0.2], b=[1.0, 0.1 + 0.2]), [])
        self.assertEqual(self.check({"equal": ["loss"]}, a=[1.0, float("nan")], b=[1.0, float("nan")]), [])
        self.assertIn("not bit-identical", self.check({"equal": ["loss"]}, a=[1.0, 0.1 + 0.2], b=[1.0, 0.3])[0])
        self.assertIn("not bit-identical", self.check({"equal": ["loss"]}, a=[1.0, 2.0], b=[1.0, 2.0, 3.0])[0])

    def test_nothing_to_compare_is_no_equality(self):
        self.assertIn("too little", self.check({"equal": ["loss"]}, a=[1.0, 2.0])[0])
        self.assertIn("too little", self.check({"equal": ["loss"]}, a=[], b=[])[0])

    def test_differ_means_each_from_each(self):
        self.assertEqual(self.check({"differ": ["loss"]}, a=[1.0], b=[2.0], c=[3.0]), [])
        self.assertIn("is the same", self.check({"differ": ["loss"]}, a=[1.0], b=[2.0], c=[1.0])[0])


if __name__ == "__main__":
    unittest.main()
