"""Training runs of a test: started, killed, gone on with, and compared with one that was left alone, to the last bit."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import scenario_process
from scenario_folder import SHARED, contents

COMPARED = ("step", "loss", "lr", "grad_norm", "tokens", "val_loss", "skipped")
SECONDS = 300  # after which a program that still runs is stuck, on a machine however slow
ERROR = "zerolab: error: "


class TrialRuns(unittest.TestCase):
    """Each test has a folder of its own, which holds tiny.toml. `program` is set by the test's main()."""

    program = None

    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="zerolab-trial-"))
        self.addCleanup(shutil.rmtree, self.scratch)
        self.addCleanup(self.end_processes)
        self.scratch.chmod(0o755)
        for file in SHARED.iterdir():
            shutil.copy(file, self.scratch)
        self.environment = scenario_process.environment_for(self.scratch, {})
        self.started = []

    def end_processes(self):
        for pid in scenario_process.processes(self.scratch):
            os.kill(pid, signal.SIGKILL)
        for process in self.started:
            if process.returncode is None:
                process.communicate()

    # ---- programs

    def start(self, *words, user=None):
        before = scenario_process.as_user(user, self.program)
        process = subprocess.Popen([*before, self.program, *map(str, words)], cwd=self.scratch, env=self.environment,
                                   text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.started.append(process)
        return process

    def end_of(self, process, expected=0):
        """What a process printed: standard output, standard error. It has to end with `expected`."""
        out, errors = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, expected, f"{process.args}\n{out}\n{errors}")
        if expected not in (0, 75):
            self.assertEqual(errors.count(ERROR), 1, errors)
            self.assertTrue(errors.splitlines()[-1].startswith(ERROR), errors)
        return out, errors

    def zerolab(self, *words, expected=0, user=None):
        return self.end_of(self.start(*words, user=user), expected)

    def rank_processes(self):
        return sorted(pid for pid, variables in scenario_process.processes(self.scratch).items()
                      if scenario_process.rank_of(variables) is not None)

    def wait_until(self, what, process, condition):
        """Waits for a condition while the process runs; `what` is told if it never comes true."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            if process.poll() is not None or time.monotonic() > deadline:
                out, errors = process.communicate(timeout=SECONDS)
                self.fail(f"ended with {process.returncode} before there was {what}: {out}\n{errors}")
            time.sleep(0.01)

    # ---- runs

    def experiment(self, text, name="trial.toml"):
        (self.scratch / name).write_text('extends = "tiny.toml"\nname = "trial"\n' + text)
        return name

    def copy(self, run, name, unfinished=False):
        """A copy of a run; `unfinished`: as if its process had died just before it was done."""
        other = self.scratch / name
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(self.scratch / run, other)
        if unfinished:
            (other / "summary.json").unlink()
        return other

    def checkpoint(self, run, step):
        return self.scratch / run / "checkpoints" / f"step-{step:09}"

    def checkpoints(self, run):
        """Names of all that is there, whole or not."""
        return sorted(path.name for path in (self.scratch / run / "checkpoints").iterdir())

    def rows(self, run):
        lines = (self.scratch / run / "metrics.jsonl").read_text().splitlines()
        return [[row.get(column) for column in COMPARED] for row in map(json.loads, lines)]

    def num_rows(self, run):
        try:
            return (self.scratch / run / "metrics.jsonl").read_bytes().count(b"\n")
        except OSError:
            return 0

    def assert_whole(self, run):
        """Every published checkpoint is."""
        self.zerolab("checkpoint", "verify", run, "--all")

    def assert_equal_runs(self, run, alone):
        """Their rows, and the tensors and counters that they ended with, bit for bit."""
        self.assertEqual(self.rows(run), self.rows(alone))
        self.zerolab("checkpoint", "diff", run, alone)

    def state_of(self, folder):
        """Everything below it, to see that nothing changed."""
        return contents(self.scratch / folder)


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)



def main(arguments, usage):
    """For a test's own program: ZEROLAB, then unittest's arguments."""
    if len(arguments) < 2:
        raise SystemExit(usage)
    TrialRuns.program = str(pathlib.Path(arguments[1]).resolve())
    os.umask(0o022)  # a plugin that others may write to is refused
    unittest.main(module="__main__", argv=[arguments[0], *arguments[2:]], verbosity=2)
