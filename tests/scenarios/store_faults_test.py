"""A run's folder that fails while training goes on: the disk is full, nobody may write, the folder vanishes.

A full disk is a small tmpfs in a mount namespace of the test's own, which needs unshare(1) and root or user namespaces;
where neither is there these tests are skipped.

Usage: store_faults_test.py ZEROLAB [TEST ...]. Exit code 0 if everything holds.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import unittest

import trial_run

OWN_MOUNTS = "ZEROLAB_TEST_HAS_OWN_MOUNTS"
PASSED_OVER = ("checkpoint.on_error=continue", "checkpoint.at_end=false")  # the last one is never passed over
PAGE = 4096

SAVES = """
steps = 12
[model]
dropout = 0.1
num_layers = 2
embedding_dim = 32
[batch]
total_batch_size = 12
[evaluation]
every = 4
[checkpoint]
every = 4
keep_last = 10
"""


def take_own_mounts():
    """Goes on as a process whose mounts are its own, if that can be had."""
    words = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
    if OWN_MOUNTS in os.environ or shutil.which("unshare") is None:
        return
    if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        os.execvpe("unshare", [*words, sys.executable, "-B", *sys.argv], {**os.environ, OWN_MOUNTS: "1"})


def pages(folder):
    """Bytes that a folder takes on a tmpfs."""
    return sum(-(-path.stat().st_size // PAGE) * PAGE for path in folder.rglob("*") if path.is_file())


@unittest.skipUnless(OWN_MOUNTS in os.environ, "neither root nor user namespaces: nothing can be mounted")
class AFullDisk(trial_run.TrialRuns):
    """One checkpoint fits, and half of another."""

    def setUp(self):
        super().setUp()
        self.experiment(SAVES.replace("embedding_dim = 32", "embedding_dim = 96"))
        self.zerolab("run", "trial.toml", "--ranks", 2, "--run-dir", "alone", "sharding.plugin=zero1")
        self.one = pages(self.checkpoint("alone", 4))

    @contextlib.contextmanager
    def mounted(self, folder, size):
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "disk", folder], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)

    def make_room(self, folder):
        subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)

    def assert_first_alone_is_there(self, run):
        self.assertEqual(self.checkpoints(run), ["step-000000004"], "no part of another is left")
        self.assert_whole(run)

    def assert_ends_for_want_of_space(self, *words):
        _, errors = self.zerolab(*words, expected=4)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        for part in ("step-000000008.partial", "No space left on device", "free some space"):
            self.assertIn(part, errors)

    def assert_goes_on(self, run):
        out, errors = self.zerolab("resume", run)
        self.assertIn("after step 4\n", out)
        self.assertEqual(errors, "")
        self.assert_whole(run)
        self.assert_equal_runs(run, "alone")

    def test_behind_the_whole_run_stops_it_and_it_goes_on_when_there_is_room(self):
        disk = self.scratch / "disk"
        with self.mounted(disk, pages(self.scratch / "alone") - 3 * self.one + self.one * 3 // 2):
            self.assert_ends_for_want_of_space("run", "trial.toml", "--ranks", 2, "--run-dir", "disk/r", "sharding.plugin=zero1")
            self.assert_first_alone_is_there("disk/r")
            self.assert_ends_for_want_of_space("resume", "disk/r")
            self.assert_first_alone_is_there("disk/r")
            self.make_room(disk)
            self.assert_goes_on("disk/r")

    @contextlib.contextmanager
    def small_disk_for_checkpoints(self):
        """The run "r" after step 4, whose metrics have all the room that they want."""
        shutil.rmtree(self.copy("alone", "r", unfinished=True) / "checkpoints")
        folder = self.scratch / "r" / "checkpoints"
        with self.mounted(folder, self.one * 3 // 2):
            shutil.copytree(self.checkpoint("alone", 4), self.checkpoint("r", 4))
            yield folder

    def test_behind_the_checkpoints_stops_the_run_and_it_goes_on_when_there_is_room(self):
        for asynchronous in ("false", "true"):
            with self.subTest(asynchronous=asynchronous), self.small_disk_for_checkpoints() as folder:
                self.assert_ends_for_want_of_space("resume", "r", f"checkpoint.async={asynchronous}")
                self.assert_first_alone_is_there("r")
                self.make_room(folder)
                self.assert_goes_on("r")

    def test_is_passed_over_if_that_is_wanted(self):
        for asynchronous in ("false", "true"):
            with self.subTest(asynchronous=asynchronous), self.small_disk_for_checkpoints():
                out, errors = self.zerolab("resume", "r", f"checkpoint.async={asynchronous}", *PASSED_OVER)
                warnings = errors.splitlines()
                self.assertEqual(len(warnings), 2, errors)
                for warning, step in zip(warnings, (8, 12)):
                    for words in ("zerolab: warning: ", f"the checkpoint of step {step} is not there", "training goes on",
                                  "No space left on device"):
                        self.assertIn(words, warning)
                self.assertIn("finished 12 steps", out)
                self.assertEqual(self.rows("r"), self.rows("alone"))
                self.assert_first_alone_is_there("r")

    def test_is_told_of_when_metrics_have_no_room_either(self):
        with self.mounted(self.scratch / "disk", 10 * PAGE):
            _, errors = self.zerolab("run", "trial.toml", "--run-dir", "disk/r", "batch.gradient_accumulation_steps=6", expected=4)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertIn("No space left on device", errors)


class AFolderThatNobodyMayWrite(trial_run.TrialRuns):
    def setUp(self):
        super().setUp()
        self.zerolab("run", self.experiment(SAVES), "--ranks", 2, "--run-dir", "alone", "sharding.plugin=zero1")
        self.folder = self.copy("alone", "r", unfinished=True) / "checkpoints"
        shutil.rmtree(self.checkpoint("r", 12))
        self.folder.chmod(0o555)
        self.addCleanup(self.folder.chmod, 0o755)

    def test_stops_the_run_which_goes_on_when_it_may_write(self):
        for asynchronous in ("false", "true"):
            with self.subTest(asynchronous=asynchronous):
                _, errors = self.zerolab("resume", "r", f"checkpoint.async={asynchronous}", expected=4, user="unprivileged")
                self.assertEqual(len(errors.splitlines()), 1, errors)
                for words in ("step-000000012.partial", "Permission denied", "let this user write there"):
                    self.assertIn(words, errors)
                self.assertEqual(self.checkpoints("r"), ["step-000000004", "step-000000008"])
                self.assert_whole("r")
        self.folder.chmod(0o755)
        self.zerolab("resume", "r")
        self.assert_equal_runs("r", "alone")

    def test_is_passed_over_if_that_is_wanted(self):
        _, errors = self.zerolab("resume", "r", *PASSED_OVER, user="unprivileged")
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertIn("the checkpoint of step 12 is not there, and training goes on", errors)
        self.assertEqual(self.rows("r"), self.rows("alone"))
        self.assertEqual(self.checkpoints("r"), ["step-000000004", "step-000000008"])

    def test_ends_a_run_that_would_end_without_what_it_trained(self):
        _, errors = self.zerolab("resume", "r", "checkpoint.on_error=continue", expected=4, user="unprivileged")
        self.assertIn("step-000000012.partial: cannot be made: Permission denied", errors)
        self.assertEqual(self.rows("r"), self.rows("alone"))
        self.assert_whole("r")

    def test_cannot_be_gone_back_in(self):
        _, errors = self.zerolab("resume", "r@4", expected=4, user="unprivileged")
        self.assertIn("Permission denied", errors)
        self.assert_whole("r")
        self.assertTrue(self.checkpoint("r", 4).is_dir())
        self.folder.chmod(0o755)
        self.zerolab("resume", "r")
        self.assert_equal_runs("r", "alone")


class AFolderThatVanishes(trial_run.TrialRuns):
    def start_long(self, *words):
        self.experiment(SAVES)
        process = self.start("run", "trial.toml", "--ranks", 2, "--run-dir", "r", "steps=1000000", "evaluation.every=0", *words)
        self.wait_until("a checkpoint", process, lambda: self.checkpoint("r", 8).is_dir())
        return process

    def test_by_another_name_is_told_of_at_the_next_save(self):
        for asynchronous in ("false", "true"):
            with self.subTest(asynchronous=asynchronous):
                process = self.start_long(f"checkpoint.async={asynchronous}", "checkpoint.keep_last=3")
                (self.scratch / "r").rename(self.scratch / "away")
                _, errors = self.end_of(process, 4)
                self.assertEqual(len(errors.splitlines()), 1, errors)
                self.assertIn("No such file or directory", errors)
                self.assertIn(str(self.scratch / "r"), errors)
                self.assert_whole("away")
                self.assertFalse((self.scratch / "r").exists(), "nothing is made in its place")
                shutil.rmtree(self.scratch / "away")

    def test_deleted_is_told_of_at_the_next_row(self):
        process = self.start_long()
        while (self.scratch / "r").exists():
            shutil.rmtree(self.scratch / "r", ignore_errors=True)
        _, errors = self.end_of(process, 4)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertIn(str(self.scratch / "r"), errors)
        self.assertFalse((self.scratch / "r").exists(), "nothing is made in its place")


if __name__ == "__main__":
    take_own_mounts()
    trial_run.main(sys.argv, __doc__)
