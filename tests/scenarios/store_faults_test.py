"""A run's folder that fails while training goes on: the disk is full, nobody may write, the folder vanishes, leftovers
are in the way, two processes want the same run, ranks are killed while a checkpoint is written.

A full disk is a small tmpfs in a mount namespace of the test's own, which needs unshare(1) and root or user namespaces;
where neither is there these tests are skipped.

Usage: store_faults_test.py ZEROLAB [TEST ...]. Exit code 0 if everything holds.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

import trial_run

OWN_MOUNTS = "ZEROLAB_TEST_HAS_OWN_MOUNTS"
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
    """One checkpoint fits beside the metrics, and less than a whole other one."""

    def setUp(self):
        super().setUp()
        self.experiment(SAVES.replace("= 32", "= 96").replace("= 2\n", "= 4\n", 1))
        self.zerolab("run", "trial.toml", "--ranks", 2, "--run-dir", "alone", "sharding.plugin=zero1")
        self.one = pages(self.checkpoint("alone", 4))
        self.size = pages(self.scratch / "alone") - 3 * self.one + self.one * 3 // 2
        self.disk = self.scratch / "disk"
        self.disk.mkdir()

    @contextlib.contextmanager
    def mounted(self, size):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "disk", self.disk], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", self.disk], check=True)

    def make_room(self):
        subprocess.run(["mount", "-o", "remount,size=64m", self.disk], check=True)

    def run_on_it(self, *words, expected=0):
        return self.zerolab("run", "trial.toml", "--ranks", 2, "--run-dir", "disk/r", "sharding.plugin=zero1", *words,
                            expected=expected)

    def assert_first_alone_is_there(self):
        self.assertEqual(self.checkpoints("disk/r"), ["step-000000004"], "no part of another is left")
        self.assert_whole("disk/r")

    def check_stops(self, asynchronous):
        _, errors = self.run_on_it(f"checkpoint.async={asynchronous}", expected=4)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        for words in ("step-000000008.partial", "No space left on device", "free some space"):
            self.assertIn(words, errors)
        self.assert_first_alone_is_there()
        _, errors = self.zerolab("resume", "disk/r", expected=4)
        self.assertIn("No space left on device", errors)
        self.assert_first_alone_is_there()
        self.make_room()
        out, errors = self.zerolab("resume", "disk/r")
        self.assertIn("after step 4\n", out)
        self.assertEqual(errors, "")
        self.assert_whole("disk/r")
        self.assert_equal_runs("disk/r", "alone")

    def test_stops_the_run_which_goes_on_when_there_is_room(self):
        for asynchronous in ("false", "true"):
            with self.subTest(asynchronous=asynchronous), self.mounted(self.size):
                self.check_stops(asynchronous)

    def check_passes_over(self, asynchronous):
        out, errors = self.run_on_it(f"checkpoint.async={asynchronous}", "checkpoint.on_error=continue")
        warnings = errors.splitlines()
        self.assertEqual(len(warnings), 2, errors)
        for warning, step in zip(warnings, (8, 12)):
            for words in ("zerolab: warning: ", f"the checkpoint of step {step} is not there", "training goes on",
                          "No space left on device"):
                self.assertIn(words, warning)
        self.assertIn("finished 12 steps", out)
        self.assertEqual(self.rows("disk/r"), self.rows("alone"))
        self.assert_first_alone_is_there()

    def test_is_passed_over_if_that_is_wanted(self):
        for asynchronous in ("false", "true"):
            with self.subTest(asynchronous=asynchronous), self.mounted(self.size):
                self.check_passes_over(asynchronous)

    def test_is_told_of_when_metrics_have_no_room_either(self):
        with self.mounted(10 * PAGE):
            _, errors = self.run_on_it(expected=4)
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
        _, errors = self.zerolab("resume", "r", "checkpoint.on_error=continue", user="unprivileged")
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertIn("the checkpoint of step 12 is not there, and training goes on", errors)
        self.assertEqual(self.rows("r"), self.rows("alone"))
        self.assertEqual(self.checkpoints("r"), ["step-000000004", "step-000000008"])

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


class ThingsInTheWay(trial_run.TrialRuns):
    def setUp(self):
        super().setUp()
        self.zerolab("run", self.experiment(SAVES), "--ranks", 2, "--run-dir", "alone", "sharding.plugin=zero1")
        self.folder = self.copy("alone", "r", unfinished=True) / "checkpoints"

    def test_a_file_where_the_checkpoints_should_be(self):
        shutil.rmtree(self.folder)
        self.folder.write_text("mine\n")
        _, errors = self.zerolab("resume", "r", expected=4)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertIn(str(self.folder), errors)
        self.assertEqual(self.folder.read_text(), "mine\n")

    def test_what_a_killed_process_left_is_written_over(self):
        shutil.rmtree(self.checkpoint("r", 12))
        partial = self.folder / "step-000000012.partial"
        shutil.copytree(self.checkpoint("r", 8), partial)
        (partial / "manifest.json").unlink()
        (partial / "rank-0001.h5").write_bytes(b"torn")
        out, _ = self.zerolab("resume", "r")
        self.assertIn("after step 8\n", out)
        self.assertEqual(self.checkpoints("r"), self.checkpoints("alone"))
        self.assert_equal_runs("r", "alone")

    def test_a_manifest_that_is_a_folder_makes_no_checkpoint(self):
        manifest = self.checkpoint("r", 12) / "manifest.json"
        manifest.unlink()
        (manifest / "within").mkdir(parents=True)
        out, _ = self.zerolab("resume", "r")
        self.assertIn("after step 8\n", out)
        self.assertTrue(manifest.is_file())
        self.assert_equal_runs("r", "alone")

    def test_files_of_others_are_left_alone(self):
        (self.folder / "notes.txt").write_text("mine\n")
        (self.folder / "step-7").mkdir()
        (self.folder / "step-000000016").symlink_to(self.checkpoint("alone", 12))
        out, _ = self.zerolab("resume", "r")
        self.assertIn("after step 12\n", out)
        self.assertEqual((self.folder / "notes.txt").read_text(), "mine\n")
        self.assertTrue((self.folder / "step-7").is_dir())
        self.assertTrue((self.folder / "step-000000016").is_symlink())
        self.assert_equal_runs("r", "alone")


class TwoProcesses(trial_run.TrialRuns):
    def test_that_go_on_with_one_run_do_not_meet(self):
        self.experiment(SAVES)
        long = ("steps=1000000", "evaluation.every=0", "checkpoint.every=50", "checkpoint.keep_last=2")
        self.zerolab("run", "trial.toml", "--ranks", 2, "--run-dir", "r", *long, "--max-time", "1s", expected=75)
        first = self.start("resume", "r")
        had = self.num_rows("r")
        self.wait_until("a row", first, lambda: self.num_rows("r") > had)
        for words in (["resume", "r"], ["resume", "r", "--ranks", 1], ["run", "trial.toml", "--run-dir", "r", "--resume", "auto",
                                                                        "--ranks", 2, *long]):
            with self.subTest(words=words):
                _, errors = self.zerolab(*words, expected=4)
                self.assertEqual(len(errors.splitlines()), 1, errors)
                self.assertIn(str(self.scratch / "r"), errors)
        self.assertIsNone(first.poll(), "the first one goes on")
        first.send_signal(signal.SIGTERM)
        self.end_of(first, 75)
        self.assertEqual([row[0] for row in self.rows("r")], list(range(1, self.num_rows("r") + 1)))
        self.assertEqual([name for name in self.checkpoints("r") if len(name) != len("step-000000001")], [])
        self.assert_whole("r")

    def test_the_second_sets_nothing_aside(self):
        self.experiment(SAVES)
        long = ("steps=1000000", "evaluation.every=0", "checkpoint.every=0")
        self.zerolab("run", "trial.toml", "--ranks", 2, "--run-dir", "r", *long, "--max-time", "1s", expected=75)
        first = self.start("resume", "r")
        had = self.num_rows("r")
        self.wait_until("a row", first, lambda: self.num_rows("r") > had)
        checkpoints = self.checkpoints("r")
        trial_run.flip(self.scratch / "r" / "checkpoints" / checkpoints[-1] / "rank-0000.h5", 8000)
        self.zerolab("resume", "r", expected=4)
        self.assertEqual(self.checkpoints("r"), checkpoints)


class KilledWhileACheckpointIsWritten(trial_run.TrialRuns):
    KILLS = 4

    EXPERIMENT = """
steps = 8
[model]
num_layers = 4
embedding_dim = 128
dropout = 0.1
[batch]
total_batch_size = 12
[checkpoint]
every = 1
keep_last = 3
"""

    def check(self, sharding, asynchronous, seed):
        chance = random.Random(seed)
        words = ["--ranks", 2, f"sharding.plugin={sharding}", f"checkpoint.async={asynchronous}"]
        self.experiment(self.EXPERIMENT)
        self.zerolab("run", "trial.toml", "--run-dir", "alone", *words)
        checkpoints = self.scratch / "r" / "checkpoints"
        writing = 0
        for _ in range(self.KILLS):
            begun = (self.scratch / "r" / "sessions.jsonl").exists()
            if not begun:
                shutil.rmtree(self.scratch / "r", ignore_errors=True)
            process = self.start(*(["resume", "r"] if begun else ["run", "trial.toml", "--run-dir", "r", *words]))
            self.wait_for_save(process, checkpoints, chance)
            if self.kill_a_rank(chance):
                writing += any(checkpoints.glob("*.partial"))
            _, errors = process.communicate(timeout=trial_run.SECONDS)
            if list(checkpoints.glob("step-*/manifest.json")):
                self.assert_whole("r")
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, 5, errors)
        self.assertGreater(writing, 0, "no kill fell into a save")
        if not (self.scratch / "r" / "summary.json").exists():
            self.zerolab("resume", "r")
        self.assert_whole("r")
        self.assertEqual(self.checkpoints("r"), self.checkpoints("alone"), "what killed processes left is gone")
        self.assert_equal_runs("r", "alone")

    @staticmethod
    def wait_for_save(process, checkpoints, chance):
        """Until a checkpoint is being written some time after the ranks have started, or the process has ended."""
        time.sleep(chance.uniform(0.3, 1.2))
        while process.poll() is None and not any(checkpoints.glob("*.partial")):
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.02))

    def test_training_waits(self):
        for number, sharding in enumerate(("ddp", "zero2")):
            with self.subTest(sharding=sharding):
                self.check(sharding, "false", 10 + number)
                shutil.rmtree(self.scratch / "r")
                shutil.rmtree(self.scratch / "alone")

    def test_training_goes_on_meanwhile(self):
        for number, sharding in enumerate(("ddp", "zero3")):
            with self.subTest(sharding=sharding):
                self.check(sharding, "true", 20 + number)
                shutil.rmtree(self.scratch / "r")
                shutil.rmtree(self.scratch / "alone")


if __name__ == "__main__":
    take_own_mounts()
    trial_run.main(sys.argv, __doc__)
