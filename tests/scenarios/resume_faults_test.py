"""Going on with a run whatever is in its folder: leftovers and things in the way, a second process that wants the same run,
what ranks leave that are killed while a checkpoint is written.

Usage: resume_faults_test.py ZEROLAB [TEST ...]. Exit code 0 if everything holds.
"""

import contextlib
import os
import random
import shutil
import signal
import sys
import time

import trial_run

SAVES = """
steps = 12
[model]
dropout = 0.1
[batch]
total_batch_size = 12
[evaluation]
every = 4
[checkpoint]
every = 4
keep_last = 10
"""


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
steps = 16
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
        in_a_save = 0
        for number in range(self.KILLS):
            process = self.start(*(["resume", "r"] if number else ["run", "trial.toml", "--run-dir", "r", *words]))
            self.kill_in_a_save(process, checkpoints, chance)
            in_a_save += any(checkpoints.glob("*.partial"))
            _, errors = process.communicate(timeout=trial_run.SECONDS)
            self.assert_whole("r")
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, 5, errors)
        self.assertGreater(in_a_save, 0, "no kill fell into a save")
        if process.returncode != 0:
            self.zerolab("resume", "r")
        self.assert_whole("r")
        self.assertEqual(self.checkpoints("r"), self.checkpoints("alone"), "what killed processes left is gone")
        self.assert_equal_runs("r", "alone")

    def kill_in_a_save(self, process, checkpoints, chance):
        """Kills one of the ranks while one of the first checkpoints after the start is being written; one is published before,
        as nothing is left to go on from otherwise."""
        rows = self.num_rows("r") + chance.randint(2, 4)
        self.wait_until("a row", process, lambda: self.num_rows("r") >= rows)
        self.wait_until("a checkpoint", process, lambda: any(checkpoints.glob("step-?????????/manifest.json")))
        ranks = self.rank_processes()
        while process.poll() is None and not any(checkpoints.glob("*.partial")):
            time.sleep(0.001)
        time.sleep(chance.choice([0, chance.uniform(0, 0.02)]))
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(chance.choice(ranks), signal.SIGKILL)

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
    trial_run.main(sys.argv, __doc__)
