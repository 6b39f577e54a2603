"""Runs that begin with the weights of another one, or of a file, and weights that are written for other programs.

Usage: finetune_test.py ZEROLAB. Exit code 0 if everything holds. Files are read with the safetensors package. Parameters
are compared bit for bit: a run whose learning rate rounds to 0 ends with those that it began with.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

import numpy
import safetensors
import safetensors.numpy

import trial_run

STILL = ("scheduler.lr=1e-300", "steps=1")  # which is 0 in float32
MODELS = {  # options under which the model has every layout
    "gpt": ("model.bias=true",),
    "mini_gpt": ("model.plugin=mini_gpt",),
    "llama": ("model.plugin=llama",),
}
CUTS = (("ddp", 2), ("zero1", 2), ("zero2", 3), ("zero3", 3))


class FineTuning(trial_run.TrialRuns):
    kept = None  # a run that many tests begin with, trained by the first of them

    @classmethod
    def setUpClass(cls):
        cls.kept = pathlib.Path(tempfile.mkdtemp(prefix="zerolab-trial-")) / "run"
        cls.addClassCleanup(shutil.rmtree, cls.kept.parent)

    def plain(self, run):
        """A run of tiny.toml with checkpoints of steps 2 and 4."""
        if not self.kept.exists():
            self.train(run, "checkpoint.every=2")
            shutil.copytree(self.scratch / run, self.kept)
        else:
            shutil.copytree(self.kept, self.scratch / run)

    def train(self, run, *words, expected=0):
        return self.zerolab("run", "tiny.toml", "--run-dir", run, *words, expected=expected)

    def assert_same_weights(self, run, other):
        self.zerolab("checkpoint", "diff", run, other, "--parameters")

    def refused(self, *words):
        """The one line of an error of the configuration."""
        return self.zerolab(*words, expected=2)[1]

    def layouts(self, run):
        """Of a run's model, as the error for an unknown one lists them."""
        error = self.refused("export", run, "-o", "x.safetensors", "--layout", "none_of_these")
        return error.split("it has ")[1].split(", and its own names")[0].split(", ")

    # ---- beginning

    def test_a_new_run_begins_with_the_weights_of_another(self):
        self.plain("before")
        self.train("at_end", "init_from=before", *STILL)
        self.assert_same_weights("at_end", "before")
        out, _ = self.train("at_two", "init_from=before@2", *STILL, "seed=5")
        self.assertIn("initialized from before/checkpoints/step-000000002\n", out)
        self.assert_same_weights("at_two", "before@2")
        environment = json.loads((self.scratch / "at_two" / "environment.json").read_text())
        self.assertTrue(environment["init_from"].endswith("before/checkpoints/step-000000002"))

    def test_what_other_verbs_wrote_is_read(self):
        self.plain("before")
        self.zerolab("checkpoint", "consolidate", "before", "-o", "whole.h5")
        self.zerolab("checkpoint", "consolidate", "before", "-o", "whole.safetensors")
        checkpoint = self.checkpoint("before", 4)
        for number, source in enumerate(("whole.h5", "whole.safetensors", checkpoint)):
            self.train(f"run{number}", f"init_from={source}", *STILL)
            self.assert_same_weights(f"run{number}", "before")

    def test_every_strategy_and_number_of_ranks_begins_alike(self):
        self.train("before", "--ranks", "2", "sharding.plugin=zero2")
        first = {}  # losses by the number of ranks: each cuts the batch differently
        for sharding, ranks in CUTS:
            run = f"{sharding}-{ranks}"
            self.train(run, "--ranks", ranks, "batch.micro_batch_size=1", f"sharding.plugin={sharding}",
                       "init_from=before", *STILL)
            self.assert_same_weights(run, "before")
            losses = [row[1] for row in self.rows(run)]
            self.assertEqual(losses, first.setdefault(ranks, losses), run)

    def test_only_parameters_are_taken_over(self):
        self.plain("before")
        self.zerolab("export", "before", "-o", "w.safetensors")
        self.train("with_states", "init_from=before")
        self.train("without", "init_from=w.safetensors")
        self.assert_equal_runs("with_states", "without")
        self.assertEqual(self.rows("without")[0][0], 1)

    def test_a_run_that_goes_on_does_not_read_the_file_again(self):
        self.plain("before")
        self.zerolab("export", "before", "-o", "w.safetensors")
        words = ("init_from=w.safetensors", "checkpoint.every=2")
        self.train("alone", *words)
        self.copy("alone", "cut", unfinished=True)
        (self.scratch / "w.safetensors").unlink()
        self.zerolab("resume", "cut@2")
        self.assert_equal_runs("cut", "alone")

    def test_a_run_that_starts_over_begins_with_the_same_weights(self):
        self.plain("before")
        self.train("alone", "init_from=before", "seed=5")
        cut = self.copy("alone", "cut", unfinished=True)
        shutil.rmtree(cut / "checkpoints")
        out, _ = self.zerolab("resume", "cut")
        self.assertIn("initialized from before/checkpoints/step-000000004\n", out)
        self.assert_equal_runs("cut", "alone")

    def test_a_fork_begins_with_its_checkpoint(self):
        self.plain("before")
        error = self.refused("fork", "before@2", "--run-dir", "forked", "init_from=before")
        self.assertIn("a fork begins with the weights of its checkpoint", error)
        self.assertIn("cannot go on with values that change its results: init_from is ",
                      self.refused("resume", "before@2", "init_from=before"))

    def test_what_does_not_fit_is_told_before_the_first_step(self):
        self.plain("before")
        error = self.refused("run", "tiny.toml", "--run-dir", "r", "init_from=before", "data.vocab_size=18",
                             "model.num_layers=2")
        self.assertIn("does not fit the model: under the model's own names", error)
        self.assertIn("weights are missing", error)
        self.assertIn("'wte.weight' is [16, 8] where the model has [18, 8]", error)
        self.assertFalse((self.scratch / "r").exists())
        self.assertIn("is not there; name a run's folder",
                      self.refused("run", "tiny.toml", "--ranks", "2", "init_from=nowhere"))

    def test_a_tied_head_that_differs_in_the_file_is_refused(self):
        self.train("before", "model.tie_embeddings=false")
        self.zerolab("export", "before", "-o", "w.safetensors")
        self.assertIn("are one weight in the model, and differ there",
                      self.refused("run", "tiny.toml", "init_from=w.safetensors"))

    def test_a_folder_whose_configuration_computes_otherwise_is_refused(self):
        for model, layout, name, other in (("gpt", "huggingface", "n_head", 1),
                                           ("gpt", "huggingface_base", "activation_function", "gelu_new"),
                                           ("llama", "huggingface", "rope_theta", 5.0)):
            with self.subTest(model=model, name=name):
                folder = self.scratch / f"{model}-{layout}"
                if not (self.scratch / model).exists():
                    self.train(model, *MODELS[model])
                self.zerolab("export", model, "-o", f"{folder}/", "--layout", layout)
                config = json.loads((folder / "config.json").read_text())
                config[name] = other
                (folder / "config.json").write_text(json.dumps(config))
                error = self.refused("run", "tiny.toml", f"init_from={folder}", *MODELS[model])
                self.assertIn(f"config.json beside it is of a model that computes otherwise: {name} = "
                              f"{json.dumps(other)} (the model: ", error)
                (folder / "config.json").unlink()
                self.train(f"{model}-{name}", f"init_from={folder}", *MODELS[model], *STILL)

    # ---- freezing

    def test_what_is_frozen_stays_and_the_rest_is_trained(self):
        self.plain("before")
        reference = None
        for sharding, ranks in (("ddp", 1), ("zero1", 2), ("zero2", 2), ("zero3", 2)):
            run = f"{sharding}-{ranks}"
            self.train(run, "--ranks", ranks, "batch.micro_batch_size=1", "batch.total_batch_size=2",
                       f"sharding.plugin={sharding}", "init_from=before", 'freeze=["lm_head.*", "blocks.0.mlp.*"]')
            self.zerolab("export", run, "-o", f"{run}.safetensors")
            weights = safetensors.numpy.load_file(self.scratch / f"{run}.safetensors")
            reference = reference or weights
            for name, values in weights.items():
                self.assertTrue(numpy.array_equal(values, reference[name]), f"{run}: {name}")
        self.zerolab("export", "before", "-o", "before.safetensors")
        before = safetensors.numpy.load_file(self.scratch / "before.safetensors")
        for name, values in reference.items():
            frozen = name.startswith("wte") or ".mlp." in name
            self.assertEqual(numpy.array_equal(values, before[name]), frozen, name)

    def test_a_run_with_frozen_blocks_goes_on_as_if_it_had_not_stopped(self):
        words = ('freeze=["w?e.*", "blocks.0.*"]', "checkpoint.every=2", "model.num_layers=2")
        for sharding in ("ddp", "zero3"):
            run, alone = f"cut-{sharding}", f"alone-{sharding}"
            self.train(alone, *words, f"sharding.plugin={sharding}")
            self.copy(alone, run)
            self.zerolab("resume", f"{run}@2")
            self.assert_equal_runs(run, alone)
        self.assertIn("cannot go on with values that change its results: freeze is ",
                      self.refused("resume", "cut-ddp@2", "freeze=[]"))
        self.zerolab("fork", "cut-ddp@2", "--run-dir", "thawed", "freeze=[]")

    def test_patterns_are_checked(self):
        self.assertIn("no parameter's name is like 'wte.wieght'; the nearest is 'wte.weight'",
                      self.refused("run", "tiny.toml", 'freeze=["wte.wieght"]'))
        self.assertIn("nothing is left to train", self.refused("run", "tiny.toml", 'freeze=["*"]'))
        self.assertIn("has an empty pattern", self.refused("run", "tiny.toml", 'freeze=[""]'))

    def test_plan_counts_what_is_trained(self):
        out, _ = self.zerolab("plan", "tiny.toml", "--json", 'freeze=["blocks.*"]')
        plan = json.loads(out)
        self.assertEqual(plan["trainable_parameters"], 16 * 8 + 8 * 8 + 8)
        self.assertGreater(plan["parameters"], plan["trainable_parameters"])

    # ---- writing

    def test_every_layout_of_every_model_comes_back_bit_for_bit(self):
        for model, options in MODELS.items():
            self.train(model, *options)
            layouts = self.layouts(model)
            self.assertTrue(layouts, model)
            for layout in layouts:
                self.zerolab("export", model, "-o", f"{model}-{layout}/", "--layout", layout)
                run = f"{model}-{layout}-run"
                out, _ = self.train(run, f"init_from={model}-{layout}", *options, *STILL)
                self.assertIn(f"initialized from {model}-{layout}/model.safetensors", out)
                self.assert_same_weights(run, model)

    def test_an_export_is_what_other_programs_read(self):
        self.train("gpt", *MODELS["gpt"])
        out, _ = self.zerolab("export", "gpt", "-o", "hf/", "--layout", "huggingface", "--json")
        self.assertEqual(json.loads(out)["config"], "hf/config.json")
        config = json.loads((self.scratch / "hf" / "config.json").read_text())
        self.assertEqual((config["vocab_size"], config["n_embd"]), (16, 8))
        with safetensors.safe_open(self.scratch / "hf" / "model.safetensors", "numpy") as file:
            self.assertEqual(file.metadata()["format"], "pt")
            own = safetensors.safe_open(self.own_names("gpt"), "numpy")
            theirs = file.get_tensor("transformer.h.0.attn.c_attn.weight")
            self.assertTrue(numpy.array_equal(theirs.T, own.get_tensor("blocks.0.attention.qkv.weight")))

    def own_names(self, run):
        file = self.scratch / f"own-{run}.safetensors"
        self.zerolab("export", run, "-o", file)
        return file

    def test_half_precision_is_rounded_once(self):
        self.plain("gpt")
        self.zerolab("export", "gpt", "-o", "half.safetensors", "--dtype", "fp16")
        whole = safetensors.numpy.load_file(self.own_names("gpt"))
        half = safetensors.numpy.load_file(self.scratch / "half.safetensors")
        for name, values in whole.items():
            self.assertTrue(numpy.array_equal(values.astype(numpy.float16), half[name]), name)

    def test_nothing_is_written_over_unasked(self):
        self.plain("gpt")
        self.zerolab("export", "gpt", "-o", "w.safetensors")
        before = (self.scratch / "w.safetensors").read_bytes()
        self.assertIn("use --force", self.refused("export", "gpt", "-o", "w.safetensors", "--dtype", "bf16"))
        self.assertEqual((self.scratch / "w.safetensors").read_bytes(), before)
        self.zerolab("export", "gpt", "-o", "w.safetensors", "--dtype", "bf16", "--force")
        self.assertLess(len((self.scratch / "w.safetensors").read_bytes()), len(before))
        self.assertIn("--dtype must be fp32, bf16 or fp16",
                      self.refused("export", "gpt", "-o", "v.safetensors", "--dtype", "int8"))
        self.assertIn("-o must name a file that ends in .safetensors",
                      self.refused("export", "gpt", "-o", "v.bin"))
        self.assertIn("there is no folder ", self.refused("export", "gpt", "-o", "none/v.safetensors"))

    def test_what_is_printed_is_json_whatever_the_files_are_called(self):
        self.plain("gpt")
        out, _ = self.zerolab("export", "gpt", "-o", os.fsdecode(b"odd-\xff.safetensors"), "--json")
        self.assertEqual(json.loads(out)["file"], "odd-\ufffd.safetensors")


if __name__ == "__main__":
    trial_run.main(sys.argv, __doc__)
