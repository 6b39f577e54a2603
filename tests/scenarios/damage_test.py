"""Damaged checkpoints: 300 single bits that flip and files that are cut off, at random places of every kind of file, and
what `resume` and `fork` do when a checkpoint turns out to be damaged.

Usage: damage_test.py ZEROLAB [TEST ...]. Exit code 0 if everything holds.
"""

import json
import os
import random
import shutil
import sys

import trial_run
from trial_run import flip

FILES = ("rank-0000.h5", "rank-0001.h5", "manifest.json", "config.resolved.toml", "environment.json")
BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "uint8": 1}
CHECKSUM_BYTES = 4
DAMAGED = 150  # checkpoints of each of two runs

SAVES = """
steps = 12
[model]
dropout = 0.1
[batch]
total_batch_size = 12
[precision]
plugin = "amp_bf16"
[evaluation]
every = 4
[checkpoint]
every = 4
keep_last = 10
"""


def tensors_in(manifest, file):
    """Of a rank's file: name of a tensor as messages have it -> the bytes [begin, end) where it is stored, in one chunk."""
    places = {}
    entry = next(entry for entry in manifest["files"] if entry["name"] == file)
    for number, _, length, chunks in entry["pieces"]:
        tensor = manifest["tensors"][number]
        assert len(chunks) == 1, "larger than this test reckons with"
        name = f"'{tensor['parameter']}' ({tensor['state']})"
        places[name] = (chunks[0], chunks[0] + length * BYTES[tensor["dtype"]] + CHECKSUM_BYTES)
    return places


class Damage:
    """One flipped bit, or one cut, and what has to be said of it."""

    def __init__(self, checkpoint, chance):
        self.file = chance.choice(FILES)
        path = checkpoint / self.file
        size = path.stat().st_size
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        stored = tensors_in(manifest, self.file) if self.file.startswith("rank-") else {}
        if chance.random() < 0.7:
            bit = chance.randrange(8 * size)
            flip(path, bit)
            self.what = f"bit {bit} flipped"
            self.tensors = [name for name, (begin, end) in stored.items() if begin <= bit // 8 < end]
        else:
            length = chance.randrange(size)
            os.truncate(path, length)
            self.what = f"cut off after {length} of {size} bytes"
            self.tensors = [name for name, (_, end) in stored.items() if end > length]

    def problem(self, damage):
        """What is wrong with the sentences that verification has for it."""
        if len(damage) != 1:
            return f"{len(damage)} sentences instead of one: {damage}"
        if self.file not in damage[0]:
            return f"the file is not named: {damage[0]}"
        if self.tensors and not any(name in damage[0] for name in self.tensors):
            return f"none of {self.tensors} is named: {damage[0]}"
        if not self.tensors and self.file.startswith("rank-") and "its tensors are unharmed" not in damage[0]:
            return f"a tensor is blamed that is as it was: {damage[0]}"
        return None


class ThreeHundredDamages(trial_run.TrialRuns):
    def check(self, sharding, seed):
        experiment = self.experiment("[checkpoint]\nevery = 1\n")
        self.zerolab("run", experiment, "--ranks", 2, "--run-dir", "r", f"steps={DAMAGED}", f"sharding.plugin={sharding}",
                     f"checkpoint.keep_last={DAMAGED}", "optimizer.betas=[0.5, 0.5]")
        self.assert_whole("r")
        chance = random.Random(seed)
        damages = {step: Damage(self.checkpoint("r", step), chance) for step in range(1, DAMAGED + 1)}
        out, errors = self.zerolab("checkpoint", "verify", "r", "--all", "--json", expected=4)
        self.assertIn(f"{DAMAGED} of {DAMAGED} checkpoints cannot be trusted", errors)
        verdicts = json.loads(out)["checkpoints"]
        self.assertEqual(len(verdicts), DAMAGED)
        problems = []
        for verdict in verdicts:
            step = int(verdict["folder"].rsplit("-", 1)[1])
            damage = damages.pop(step)
            if problem := damage.problem(verdict["damage"]):
                problems.append(f"step {step}, {damage.file}, {damage.what}: {problem}")
        self.assertEqual(problems, [], f"seed {seed}")
        self.assertEqual(damages, {})

    def test_each_is_refused_by_file_and_tensor_where_states_are_sharded(self):
        self.check("zero2", 5)

    def test_each_is_refused_by_file_and_tensor_where_ranks_hold_copies(self):
        self.check("ddp", 6)


class GoingOnFromDamage(trial_run.TrialRuns):
    def setUp(self):
        super().setUp()
        self.zerolab("run", self.experiment(SAVES), "--ranks", 2, "--run-dir", "alone", "sharding.plugin=zero2")

    def middle_of_a_tensor(self, file, step):
        manifest = json.loads((self.checkpoint("alone", step) / "manifest.json").read_text())
        name, (begin, end) = random.Random(step).choice(sorted(tensors_in(manifest, file).items()))
        return name, (begin + end) // 2

    def assert_falls_back(self, damaged_steps, from_step, words, *resume):
        """The run `r` goes on from `from_step`, loudly, and ends as the one that was left alone."""
        old = {step: self.state_of(self.checkpoint("r", step)) for step in damaged_steps}
        out, errors = self.zerolab("resume", "r", *resume)
        self.assertIn(f"after step {from_step}\n", out)
        lines = errors.splitlines()
        self.assertEqual(len(lines), len(damaged_steps) + 1, errors)
        for line, step in zip(lines, damaged_steps):
            self.assertTrue(line.startswith("zerolab: warning: "), line)
            for word in [f"the checkpoint of step {step} is damaged", f"r/checkpoints/step-{step:09}.damaged", *words]:
                self.assertIn(word, line)
        self.assertIn(f"going on from the checkpoint of step {from_step}", lines[-1])
        for step in damaged_steps:
            aside = self.checkpoint("r", step).with_name(f"step-{step:09}.damaged")
            self.assertEqual(self.state_of(aside), old[step], "what is set aside is kept as it was")
            shutil.rmtree(aside)
        self.assertEqual(self.checkpoints("r"), self.checkpoints("alone"))
        self.assert_whole("r")
        self.assert_equal_runs("r", "alone")

    def test_a_flipped_bit_of_a_tensor(self):
        for file in ("rank-0000.h5", "rank-0001.h5"):
            with self.subTest(file=file):
                self.copy("alone", "r", unfinished=True)
                name, at = self.middle_of_a_tensor(file, 12)
                flip(self.checkpoint("r", 12) / file, 8 * at + 3)
                self.assert_falls_back([12], 8, [file, name])

    def test_a_file_that_was_cut_off(self):
        for file in FILES:
            with self.subTest(file=file):
                self.copy("alone", "r", unfinished=True)
                path = self.checkpoint("r", 12) / file
                os.truncate(path, path.stat().st_size // 3)
                self.assert_falls_back([12], 8, [file])

    def test_a_flipped_bit_of_a_text(self):
        for file in FILES[2:]:
            with self.subTest(file=file):
                self.copy("alone", "r", unfinished=True)
                flip(self.checkpoint("r", 12) / file, 8 * 100 + 1)
                self.assert_falls_back([12], 8, [file])

    def test_a_file_that_is_gone(self):
        self.copy("alone", "r", unfinished=True)
        (self.checkpoint("r", 12) / "rank-0001.h5").unlink()
        self.assert_falls_back([12], 8, ["rank-0001.h5"])

    def test_two_that_are_damaged_and_other_ranks_under_another_strategy(self):
        self.copy("alone", "r", unfinished=True)
        for step in (8, 12):
            os.truncate(self.checkpoint("r", step) / "rank-0000.h5", 5000)
        self.assert_falls_back([12, 8], 4, ["rank-0000.h5"], "--ranks", 1, "sharding.plugin=ddp")

    def test_a_checkpoint_without_its_manifest_is_none(self):
        self.copy("alone", "r", unfinished=True)
        (self.checkpoint("r", 12) / "manifest.json").unlink()
        out, errors = self.zerolab("resume", "r")
        self.assertIn("after step 8\n", out)
        self.assertEqual(errors, "")
        self.assert_equal_runs("r", "alone")

    def test_resume_auto_falls_back_too(self):
        self.copy("alone", "r", unfinished=True)
        flip(self.checkpoint("r", 12) / "manifest.json", 8 * 200)
        out, errors = self.zerolab("run", "trial.toml", "--ranks", 2, "--run-dir", "r", "--resume", "auto",
                                   "sharding.plugin=zero2")
        self.assertIn("after step 8\n", out)
        self.assertIn("manifest.json", errors)
        self.assert_equal_runs("r", "alone")

    def test_if_all_are_damaged_the_run_stays_as_it_is(self):
        for file in FILES:
            for ranks in (1, 2):
                with self.subTest(file=file, ranks=ranks):
                    self.copy("alone", "r", unfinished=True)
                    for step in (4, 8, 12):
                        os.truncate(self.checkpoint("r", step) / file, 600)
                    before = self.state_of("r")
                    _, errors = self.zerolab("resume", "r", "--ranks", ranks, expected=4)
                    self.assertIn(file, errors)
                    self.assertEqual(self.state_of("r"), before)

    def test_a_damaged_one_that_was_asked_for_is_refused_and_nothing_changes(self):
        for file in FILES:
            for verb in ("resume", "fork"):
                with self.subTest(file=file, verb=verb):
                    self.copy("alone", "r", unfinished=True)
                    os.truncate(self.checkpoint("r", 8) / file, 600)
                    before = self.state_of(".")
                    _, errors = self.zerolab(verb, "r@8", expected=4)
                    self.assertIn(file, errors)
                    self.assertEqual(self.state_of("."), before)

    def test_a_fork_takes_nothing_from_a_damaged_one(self):
        self.copy("alone", "r")
        config = self.checkpoint("r", 12) / "config.resolved.toml"
        text = config.read_bytes()
        at = text.index(b"0.01", text.index(b"[scheduler]")) + 3
        flip(config, 8 * at + 1)
        self.assertIn(b"0.03", config.read_bytes(), "one bit makes another learning rate of it")
        before = self.state_of("r")
        out, errors = self.zerolab("fork", "r", "--run-dir", "forked")
        self.assertIn("after step 8\n", out)
        self.assertIn("config.resolved.toml", errors)
        self.assertEqual(self.state_of("r"), before, "a fork leaves the run alone that it comes from")
        self.assertEqual(self.rows("forked"), self.rows("alone")[8:])
        self.zerolab("checkpoint", "diff", "forked", "alone")


if __name__ == "__main__":
    trial_run.main(sys.argv, __doc__)
