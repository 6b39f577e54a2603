"""What `generate` and `evaluate` do with a run's checkpoints where one command does not show it: the same text in every way
to make it, damaged files, a user who stops it.

Usage: trained_model_test.py ZEROLAB [TEST ...]. Exit code 0 if everything holds.
"""

import json
import signal
import subprocess
import sys

import trial_run
from damage_test import tensors_in

TEXT = "To be, or not to be: that is the question \u2014 pues s\u00ed.\n" * 40
TRAINS = """
steps = 30
[data]
plugin = "text"
path = "corpus.txt"
tokenizer = "char"
[batch]
total_batch_size = 12
[checkpoint]
every = 10
keep_last = 10
"""


class TrainedModel(trial_run.TrialRuns):
    def setUp(self):
        super().setUp()
        (self.scratch / "corpus.txt").write_text(TEXT, encoding="utf-8")
        self.zerolab("run", self.experiment(TRAINS), "--run-dir", "r")

    def generate(self, *words):
        return self.zerolab("generate", "r", *words)[0]

    def samples(self, *words):
        return [json.loads(line) for line in self.generate("--json", *words).splitlines()]

    def damage(self, step):
        """A bit of a parameter flips."""
        folder = self.checkpoint("r", step)
        places = tensors_in(json.loads((folder / "manifest.json").read_text()), "rank-0000.h5")
        begin, _ = places["'wte.weight' (parameter)"]
        trial_run.flip(folder / "rank-0000.h5", 8 * begin + 3)

    def test_a_text_is_the_same_with_the_cache_and_without_streamed_and_whole(self):
        for words in (("--temperature", "0"), ("--seed", "1"), ("--seed", "2", "--top-k", "3"), ("--top-p", "0.5")):
            common = ("--prompt", "To be", "--max-tokens", "70", *words)
            whole = self.samples(*common)[0]
            self.assertEqual(len(whole["tokens"]), 70)
            self.assertEqual(self.generate(*common), "To be" + whole["text"] + "\n")
            self.assertEqual(self.generate(*common, "--no-cache"), "To be" + whole["text"] + "\n")

    def test_a_run_in_16_bits_speaks_in_float32_with_the_cache_and_without(self):
        for precision in ("amp_bf16", "bf16"):
            run = f"run-{precision}"
            self.zerolab("run", "trial.toml", "--run-dir", run, f"precision.plugin={precision}")
            texts = [self.zerolab("generate", run, "--prompt", "To be", "--max-tokens", "70", *more)[0]
                     for more in ((), ("--no-cache",), ("--dtype", "fp32"))]
            self.assertEqual(texts, [texts[0]] * 3, precision)
            self.zerolab("generate", run, "--prompt", "To be", "--max-tokens", "20", "--dtype", "run")

    def test_samples_are_each_of_their_own_and_stay_when_there_are_more(self):
        three = self.samples("--prompt", "not", "--max-tokens", "30", "--num-samples", "3")
        self.assertEqual([s["sample"] for s in three], [0, 1, 2])
        self.assertEqual(len({s["text"] for s in three}), 3)
        one = self.samples("--prompt", "not", "--max-tokens", "30")
        self.assertEqual(one[0]["text"], three[0]["text"])
        self.assertNotEqual(self.samples("--prompt", "not", "--max-tokens", "30", "--seed", "9")[0]["text"], one[0]["text"])

    def test_a_prompt_comes_from_a_file_from_standard_input_or_as_tokens(self):
        said = self.samples("--prompt", "pues s\u00ed", "--max-tokens", "9")[0]
        (self.scratch / "prompt.txt").write_text("pues s\u00ed", encoding="utf-8")
        read = self.samples("--prompt-file", "prompt.txt", "--max-tokens", "9")[0]
        tokens = ",".join(map(str, said["prompt_tokens"]))
        numbers = self.samples("--prompt-tokens", tokens, "--max-tokens", "9")[0]
        piped = subprocess.run([self.program, "generate", "r", "--prompt-file", "-", "--max-tokens", "9", "--json"],
                               cwd=self.scratch, env=self.environment, input="pues s\u00ed", text=True,
                               capture_output=True, check=True, timeout=trial_run.SECONDS)
        for other in (read, numbers, json.loads(piped.stdout)):
            self.assertEqual({key: other[key] for key in ("prompt", "text")}, {key: said[key] for key in ("prompt", "text")})

    def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(self):
        at_20 = self.zerolab("evaluate", "r@20", "--json")[0]
        self.damage(30)
        out, errors = self.zerolab("evaluate", "r", "--json")
        self.assertEqual(json.loads(out)["loss"], json.loads(at_20)["loss"])
        self.assertIn("the checkpoint of step 30 is damaged and not used", errors)
        self.assertIn("rank-0000.h5", errors)
        for verb in (("evaluate", "r@30"), ("generate", "r@30", "--prompt", "To")):
            self.assertIn("rank-0000.h5", self.zerolab(*verb, expected=4)[1])
        self.damage(20)
        self.damage(10)
        self.assertIn("none of its 3 checkpoints can be read", self.zerolab("generate", "r", expected=4)[1])

    def test_ctrl_c_ends_a_text_after_the_current_token(self):
        process = self.start("generate", "r", "--prompt", "To", "--max-tokens", "100000000")
        self.assertEqual(process.stdout.read(2), "To")
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        out, errors = self.end_of(process)
        self.assertTrue(out.endswith("\n"))
        self.assertIn("tok/s", errors)


if __name__ == "__main__":
    trial_run.main(sys.argv, __doc__)
