"""What `zerolab checkpoint` says about the checkpoints of real runs, and the files that it makes of them.

Usage: checkpoint_verbs_test.py ZEROLAB PLUGINS. Exit code 0 if everything holds. Consolidated files are read with h5py,
h5dump and the safetensors package, and compared with what FORMAT.md's own example assembles from the ranks' files.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import safetensors
import safetensors.numpy

HERE = pathlib.Path(__file__).resolve().parent
FORMAT = HERE.parents[1] / "core" / "store" / "FORMAT.md"
ZEROLAB, PLUGINS = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
ACCUMULATE = "batch.gradient_accumulation_steps=2"


def zerolab(*arguments, code=0):
    """Standard output and error of a command that must end with `code`."""
    done = subprocess.run([ZEROLAB, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    if code != 0:
        assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("zerolab: error: "), done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def checkpoint(*arguments, code=0):
    return zerolab("checkpoint", *arguments, code=code)


def train(run, *arguments):
    zerolab("run", HERE / "shared" / "tiny.toml", "--plugin-path", PLUGINS, "--run-dir", run, "checkpoint.every=2",
            *arguments)


def example_tensors(pattern):
    """(parameter, state) to tensor, as FORMAT.md's example reads them."""
    examples = re.findall(r"```python\n(.*?)```", FORMAT.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = [text for text in examples if "rank-*.h5" in text]
    example, replaced = re.subn(r'"runs/[^"]*/rank-\*\.h5"', repr(str(pattern)), example)
    assert replaced == 1, "FORMAT.md's example opens no checkpoint"
    found = {}
    exec(example, found)
    return found["tensors"]


def flip_bit(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


class CheckpointVerbs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="zerolab-verbs-")
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.one, cls.two = cls.folder / "one", cls.folder / "two"
        train(cls.two, "--ranks", "2")
        train(cls.one, ACCUMULATE)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def step(self, run, number):
        return run / "checkpoints" / f"step-{number:09}"

    def copy(self, run):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        return shutil.copytree(run, folder / "run")

    # --- inspect

    def test_inspect_says_what_the_manifest_says(self):
        said = json.loads(checkpoint("inspect", f"{self.two}@2", "--json"))
        manifest = json.loads((self.step(self.two, 2) / "manifest.json").read_text(encoding="utf-8"))
        for key in ("ranks", "threads_per_rank", "total_batch_size", "micro_batch_size",
                    "gradient_accumulation_steps"):
            self.assertEqual(said[key], manifest["run"][key], key)
        for key in ("step", "created", "training", "plugins"):
            self.assertEqual(said[key], manifest[key], key)
        self.assertEqual(said["run"], "tiny")
        for file, listed in zip(said["files"], manifest["files"] + manifest["texts"], strict=True):
            self.assertEqual([file["name"], file["bytes"], file["xxh128"]],
                             [listed["name"], listed["bytes"], listed["xxh128"]])
        self.assertEqual(said["file_bytes"], sum(file["bytes"] for file in said["files"]))
        tensors = example_tensors(self.step(self.two, 2) / "rank-*.h5")
        listed = {(t["parameter"], t["state"]): (t["dtype"], t["shape"], t["elements"]) for t in said["tensors"]}
        self.assertEqual(listed,
                         {key: (str(t.dtype), list(t.shape), t.size) for key, t in tensors.items()})
        self.assertEqual(said["tensor_bytes"], sum(t.nbytes for t in tensors.values()))
        self.assertNotIn("checkpoints", said)

    def test_inspect_lists_all_of_a_run_whole_or_not_and_shows_the_newest_that_can_be_read(self):
        run = self.copy(self.two)
        (run / "checkpoints" / "step-000000006.partial").mkdir()
        flip_bit(self.step(run, 4) / "manifest.json", 40)
        said = json.loads(checkpoint("inspect", run, "--json"))
        self.assertEqual([(c["name"], c["step"], c["complete"]) for c in said["checkpoints"]],
                         [("step-000000002", 2, True), ("step-000000004", None, False),
                          ("step-000000006.partial", None, False)])
        self.assertEqual(said["step"], 2)
        text = checkpoint("inspect", run)
        for word in ("step-000000004", "manifest.json", "never finished", "sharding/ddp", "rank-0001.h5",
                     "wte.weight", "exp_avg, exp_avg_sq", "984 elements"):
            self.assertIn(word, text)

    def test_a_checkpoint_is_named_by_run_step_or_folder(self):
        folder = self.step(self.two, 2)
        by_step = json.loads(checkpoint("inspect", f"{self.two}@2", "--json"))
        for name in (folder, f"{folder}/"):
            self.assertEqual(json.loads(checkpoint("inspect", name, "--json"))["training"], by_step["training"])
        best = json.loads(checkpoint("inspect", f"{self.two}@best", "--json"))
        self.assertEqual(best["step"], 4)
        self.assertIn("those of steps 2, 4", checkpoint("inspect", f"{self.two}@3", code=2))
        self.assertIn("no run's folder", checkpoint("inspect", self.folder, code=2))

    # --- verify

    def test_verify_of_whole_checkpoints_is_0(self):
        self.assertRegex(checkpoint("verify", self.two), r"^whole: \S*step-000000004, step 4, 4 files")
        self.assertEqual(len(checkpoint("verify", self.two, "--all").splitlines()), 2)
        said = json.loads(checkpoint("verify", self.two, "--all", "--json"))
        self.assertTrue(said["whole"])
        self.assertEqual([(c["step"], c["whole"], c["tensors"], c["damage"]) for c in said["checkpoints"]],
                         [(4, True, 27, []), (2, True, 27, [])])
        self.assertIn("--all", checkpoint("verify", f"{self.two}@2", "--all", code=2))

    def test_verify_names_file_and_tensor_of_a_flipped_bit(self):
        run = self.copy(self.two)
        manifest = json.loads((self.step(run, 4) / "manifest.json").read_text(encoding="utf-8"))
        for file in manifest["files"]:
            number, _, _, chunks = file["pieces"][-1]
            tensor = manifest["tensors"][number]
            path = self.step(run, 4) / file["name"]
            flip_bit(path, chunks[0] + 5)
            printed = checkpoint("verify", run, code=4)
            self.assertIn(f"damaged: {path}", printed)
            self.assertIn(f"'{tensor['parameter']}' ({tensor['state']})", printed)
            flip_bit(path, chunks[0] + 5)
        checkpoint("verify", run)
        flip_bit(self.step(run, 4) / "rank-0000.h5", 100)
        flip_bit(self.step(run, 4) / "rank-0001.h5", 100)
        printed = checkpoint("verify", run, "--all", code=4)
        self.assertEqual([line.split(":")[0] for line in printed.splitlines()],
                         ["damaged", "damaged", "whole", "zerolab"])
        self.assertIn("1 of 2 checkpoints", printed)
        checkpoint("verify", f"{run}@2")

    def test_verify_names_missing_and_cut_files_and_texts(self):
        for name, spoil in (("rank-0001.h5", pathlib.Path.unlink),
                            ("rank-0001.h5", lambda path: path.write_bytes(path.read_bytes()[:-1])),
                            ("config.resolved.toml", lambda path: flip_bit(path, 10)),
                            ("manifest.json", lambda path: flip_bit(path, 200))):
            run = self.copy(self.one if name.endswith("toml") else self.two)
            spoil(self.step(run, 4) / name)
            printed = checkpoint("verify", run, "--json", code=4)
            self.assertIn(name, printed)
            self.assertFalse(json.loads(printed[:printed.index("zerolab: error")])["whole"])

    # --- diff

    def test_a_checkpoint_is_identical_to_itself_and_to_one_of_other_ranks(self):
        self.assertIn("identical: 27 tensors are bit-identical", checkpoint("diff", self.two, self.two))
        said = json.loads(checkpoint("diff", self.one, self.two, "--json"))
        self.assertTrue(said["bit_identical"])
        self.assertEqual([said["only_a"], said["only_b"], said["counters"]], [[], [], []])
        self.assertEqual(len(said["tensors"]), 27)

    def test_diff_counts_what_numpy_counts(self):
        printed = checkpoint("diff", f"{self.two}@2", self.two, "--json", code=1)
        said = json.loads(printed[:printed.index("zerolab: error")])
        a, b = (example_tensors(self.step(self.two, step) / "rank-*.h5") for step in (2, 4))
        for tensor in said["tensors"]:
            key = tensor["parameter"], tensor["state"]
            bits = a[key].view(numpy.uint32).ravel() != b[key].view(numpy.uint32).ravel()
            self.assertEqual(tensor["differing"], bits.sum(), key)
            self.assertEqual(tensor["first"], bits.argmax(), key)
            self.assertEqual(tensor["largest_difference"],
                             numpy.abs(a[key].astype(float) - b[key].astype(float)).max(), key)
        counters = {c["name"]: (c["a"], c["b"], c["is_state"]) for c in said["counters"]}
        self.assertEqual(counters["step"], ("2", "4", True))
        self.assertEqual(counters["tokens"], ("64", "128", True))
        self.assertFalse(counters["val_loss"][2])

    def test_a_tolerance_accepts_parameters_but_not_another_step(self):
        text = checkpoint("diff", f"{self.two}@2", self.two, "--tolerance", "1", "--parameters")
        self.assertIn("within the tolerance: 9 of 9 tensors differ", text)
        checkpoint("diff", f"{self.two}@2", self.two, "--tolerance", "1", code=1)
        checkpoint("diff", f"{self.two}@2", self.two, "--tolerance", "1e-6", "--parameters", code=1)

    # --- consolidate

    def test_consolidated_hdf5_holds_what_the_ranks_files_hold(self):
        file = self.folder / "whole.h5"
        checkpoint("consolidate", self.two, "-o", file)
        expected, found = (example_tensors(name) for name in (self.step(self.two, 4) / "rank-*.h5", file))
        self.assertEqual(set(found), set(expected))
        for key, tensor in expected.items():
            self.assertEqual((found[key].dtype, found[key].shape), (tensor.dtype, tensor.shape), key)
            self.assertEqual(found[key].tobytes(), tensor.tobytes(), key)
        with h5py.File(file, "r") as f:
            self.assertEqual([f.attrs[name] for name in ("format", "step", "rank", "ranks")],
                             ["zerolab-checkpoint", 4, 0, 1])
        dumped = subprocess.run(["h5dump", file], capture_output=True, text=True, check=True)
        self.assertEqual((dumped.stderr, dumped.stdout.count("DATASET")), ("", 27))
        for rank in (0, 1):
            subprocess.run(["h5dump", self.step(self.two, 4) / f"rank-{rank:04}.h5"], capture_output=True, check=True)
        checkpoint("diff", self.two, file)

    def test_consolidated_safetensors_hold_what_the_ranks_files_hold(self):
        expected = example_tensors(self.step(self.two, 4) / "rank-*.h5")
        for states in (False, True):
            file = self.folder / f"model-{states}.safetensors"
            checkpoint("consolidate", self.two, "-o", file, *(["--states"] if states else []))
            found = safetensors.numpy.load_file(file)
            names = {parameter if state == "parameter" else f"{parameter}.{state}": tensor
                     for (parameter, state), tensor in expected.items() if states or state == "parameter"}
            self.assertEqual(set(found), set(names))
            for name, tensor in names.items():
                self.assertEqual((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape), name)
                self.assertEqual(found[name].tobytes(), tensor.tobytes(), name)
            with safetensors.safe_open(file, "numpy") as f:
                self.assertEqual([f.metadata()[key] for key in ("format", "step", "run")], ["pt", "4", "tiny"])
            checkpoint("diff", self.two, file, "--parameters")
        checkpoint("diff", file, self.two)

    def test_consolidate_refuses_to_overwrite_and_to_guess(self):
        file = self.folder / "mine.h5"
        file.write_text("mine")
        self.assertIn("--force", checkpoint("consolidate", self.two, "-o", file, code=2))
        self.assertEqual(file.read_text(), "mine")
        checkpoint("consolidate", self.two, "-o", file, "--force", "--to", "safetensors")
        self.assertEqual(len(safetensors.numpy.load_file(file)), 9)
        self.assertIn("--to", checkpoint("consolidate", self.two, "-o", self.folder / "model.pt", code=2))
        self.assertFalse((self.folder / "model.pt").exists())

    def test_consolidate_of_a_damaged_checkpoint_names_file_and_tensor_and_leaves_nothing(self):
        run = self.copy(self.two)
        manifest = json.loads((self.step(run, 4) / "manifest.json").read_text(encoding="utf-8"))
        file = manifest["files"][1]
        number = next(piece for piece in file["pieces"] if manifest["tensors"][piece[0]]["state"] == "parameter")
        flip_bit(self.step(run, 4) / file["name"], number[3][0])
        before = set(self.folder.iterdir())
        for name in ("damaged.h5", "damaged.safetensors"):
            printed = checkpoint("consolidate", run, "-o", self.folder / name, code=4)
            self.assertIn("rank-0001.h5", printed)
            self.assertIn(f"'{manifest['tensors'][number[0]]['parameter']}' (parameter)", printed)
            self.assertEqual(set(self.folder.iterdir()), before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
