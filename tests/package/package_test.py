#!/usr/bin/env python3
"""zerolab as a package: installs the build, then does what a stranger would do with it, in a folder of its own.

    package_test.py STEP --build BUILD_DIR --stage DIR [--launcher CCACHE] [--compiler CXX]

Each step builds on those before it.
"""
import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KINDS = ("model", "data", "optimizer", "sharding", "precision", "scheduler")


class Package:
    def __init__(self, arguments):
        self.build = Path(arguments.build)
        self.stage = Path(arguments.stage)
        self.prefix = self.stage / "prefix"
        self.run_folder = self.stage / "runs" / arguments.step  # steps run side by side
        self.tool = self.prefix / "bin/zerolab"
        self.cmake_arguments = ["-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}"]
        if arguments.compiler:
            self.cmake_arguments.append(f"-DCMAKE_CXX_COMPILER={arguments.compiler}")
        if arguments.launcher:
            self.cmake_arguments.append(f"-DCMAKE_CXX_COMPILER_LAUNCHER={arguments.launcher}")
        # Nothing may lead back to the source tree but what the installation recorded.
        hidden = ("ZEROLAB_TORCH", "ZEROLAB_PLUGIN_PATH", "LD_LIBRARY_PATH", "CMAKE_PREFIX_PATH")
        self.environment = {k: v for k, v in os.environ.items() if k not in hidden}
        self.environment.update(HOME=str(self.stage / "home"), XDG_DATA_HOME=str(self.stage / "home/share"))

    def run(self, *command, cwd=None):
        result = subprocess.run([str(c) for c in command], cwd=cwd or self.stage, env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, command))}: exit {result.returncode}\n{result.stdout}")
        return result.stdout

    def verify(self, experiment, plugins, ranks, *words):
        """What `zerolab verify` says; the strategy has to give ddp's bits."""
        said = self.run(self.tool, "verify", experiment, *words, "--ranks", ranks, "--plugin-path", plugins)
        assert re.search(fr"^identical: '\w+' gives the same bits as 'ddp' on {ranks} rank", said, re.MULTILINE), said
        return said

    def listed(self, *arguments):
        """(kind, name) of every plugin that the tool lists."""
        rows = [line.split() for line in self.run(self.tool, "plugins", "list", *arguments).splitlines()]
        return {(row[0], row[1]) for row in rows if len(row) > 2 and row[0] in KINDS}

    def build_project(self, name, *arguments):
        folder = self.stage / name
        self.run("cmake", "-S", folder, "-B", folder / "build", *self.cmake_arguments, *arguments)
        self.run("cmake", "--build", folder / "build", "-j", "2")
        return folder / "build"

    def train(self, experiment, plugins, *flags):
        """Rows of metrics.jsonl."""
        shutil.rmtree(self.run_folder, ignore_errors=True)
        self.run_folder.parent.mkdir(exist_ok=True)
        self.run(self.tool, "run", experiment, "--plugin-path", plugins, "--run-dir", self.run_folder, *flags)
        rows = [json.loads(line) for line in (self.run_folder / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            assert math.isfinite(row["loss"]), row
        return rows

    def summary(self, experiment, plugins, *flags):
        """What a run says at its end."""
        self.train(experiment, plugins, *flags)
        return json.loads((self.run_folder / "summary.json").read_text())


def install(package):
    """The build installs, and what is installed works after the folder has moved."""
    shutil.rmtree(package.stage, ignore_errors=True)
    (package.stage / "home").mkdir(parents=True)
    package.run("cmake", "--install", package.build, "--prefix", package.stage / "elsewhere")
    (package.stage / "elsewhere").rename(package.prefix)
    for file in ("include/zerolab/plugin.h", "include/zerolab/version.h", "share/zerolab/template/model.cpp"):
        assert (package.prefix / file).is_file(), f"{file} is not installed"
    for folder in ("include/experiment", "include/host", "include/catch.h"):
        assert not (package.prefix / folder).exists(), f"{folder} is nobody else's business"
    package.run(package.tool, "--version")
    built = sorted(p.name for p in (package.build / "plugins").glob("*.so"))
    installed = sorted(p.name for p in (package.prefix / "lib/zerolab/plugins").glob("*.so"))
    assert built and built == installed, f"built {built}, installed {installed}"
    wanted = {tuple(name[len("zerolab_"):-len(".so")].split("_", 1)) for name in installed}
    assert package.listed() == wanted, package.listed()


def outsider(package):
    """Plugins of another project build with find_package(zerolab) alone, and the tool sees them."""
    shutil.rmtree(package.stage / "outsider", ignore_errors=True)
    shutil.copytree(HERE / "outsider", package.stage / "outsider")
    plugins = package.build_project("outsider")
    missing = {("scheduler", "sawtooth"), ("sharding", "zero2_plain")} - package.listed("--plugin-path", plugins)
    assert not missing, missing
    described = package.run(package.tool, "plugins", "inspect", "scheduler/sawtooth", "--plugin-path", plugins)
    assert "period" in described, described


def outsider_trains(package):
    """It trains beside the bundled plugins, and its learning rates are in the run's metrics."""
    folder = package.stage / "outsider"
    rows = package.train(folder / "experiment.toml", folder / "build")
    assert [row["step"] for row in rows] in ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]), rows
    wanted = [0.01, 0.0075, 0.005, 0.0025, 0.01, 0.0075]
    assert all(math.isclose(row["lr"], lr, rel_tol=1e-12) for row, lr in zip(rows, wanted)), rows


SHARDED = ("sharding.plugin=zero2_plain", "batch.gradient_accumulation_steps=5")


HELD = ("parameters", "gradients", "optimizer", "buckets", "gathered")


def held_key(name):
    return name.removesuffix("s") + "_bytes"


def check_counts(counted):
    """A run's counts are its predictions."""
    for key in (*map(held_key, HELD), "bytes_moved_per_step"):
        assert counted["predicted_" + key] == counted[key], (key, counted)


def outsider_shards(package):
    """Its sharding strategy gives ddp's bits, whether micro-batches are reduced one by one or together."""
    folder = package.stage / "outsider"
    lines = (folder / "zero2_plain.cpp").read_text().splitlines()
    assert len(lines) < 120, f"{len(lines)} lines; a strategy of its own should take less than 120"
    for every in ("micro_batch", "step"):
        for ranks in (1, 2, 3):
            said = package.verify(folder / "experiment.toml", folder / "build", ranks, *SHARDED,
                                  f"batch.reduce_every={every}")
            assert said.startswith("outsider: zero2_plain against ddp"), said


def outsider_resumes(package):
    """A run under it goes on from its checkpoint with the same bits, under ddp too."""
    folder = package.stage / "outsider"
    words = (*SHARDED, "checkpoint.every=3", "checkpoint.keep_last=9", "--ranks", "3")
    whole = package.train(folder / "experiment.toml", folder / "build", *words)
    for strategy in ("zero2_plain", "ddp"):
        package.run(package.tool, "resume", f"{package.run_folder}@3", f"sharding.plugin={strategy}",
                    "--plugin-path", folder / "build", "--ranks", "3")
        rows = [json.loads(line) for line in (package.run_folder / "metrics.jsonl").read_text().splitlines()]
        for column in ("step", "loss", "grad_norm"):
            assert [row[column] for row in rows] == [row[column] for row in whole], (strategy, column)


def outsider_predicts(package):
    """What it says in a plan is what a run of it counts."""
    folder = package.stage / "outsider"
    for every in ("micro_batch", "step"):
        words = (*SHARDED, f"batch.reduce_every={every}")
        planned = json.loads(package.run(package.tool, "plan", folder / "experiment.toml", *words, "--ranks", "1,3,8",
                                         "--plugin-path", folder / "build", "--json"))
        rows = {table["ranks"]: {row["strategy"]: row for row in table["strategies"]} for table in planned["plans"]}
        assert set(rows) == {1, 3, 8}, rows
        for ranks in (1, 3):
            counted = package.summary(folder / "experiment.toml", folder / "build", *words, "--ranks", ranks)
            check_counts(counted)
            row = rows[ranks]["zero2_plain"]
            assert row["own"] is True, row
            assert all(row["held"][name] == counted[held_key(name)] for name in HELD), (row, counted)
            assert row["moved_bytes"] == counted["bytes_moved_per_step"], (row, counted)
            assert (row["moved_bytes"] > 0) == (ranks > 1), row
        assert 0 < rows[8]["zero2_plain"]["held"]["optimizer"] < rows[3]["zero2_plain"]["held"]["optimizer"], rows[8]


def templates(package):
    """The skeletons that are installed with the SDK compile without warnings, one of each kind."""
    shutil.rmtree(package.stage / "template", ignore_errors=True)
    shutil.copytree(package.prefix / "share/zerolab/template", package.stage / "template")
    shutil.copy(HERE / "templates.toml", package.stage / "template")
    plugins = package.build_project("template", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
    missing = {(kind, f"my_{kind}") for kind in KINDS} - package.listed("--plugin-path", plugins)
    assert not missing, missing


def templates_train(package):
    """All six together learn to count, on two ranks."""
    folder = package.stage / "template"
    rows = package.train(folder / "templates.toml", folder / "build", "--ranks", "2")
    assert len(rows) == 40 and rows[0]["loss"] > 2.7, rows[0]
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"], (rows[0], rows[-1])


def templates_predict(package):
    """The skeleton of a strategy gives ddp's bits, and states what it holds and moves."""
    folder = package.stage / "template"
    said = package.verify(folder / "templates.toml", folder / "build", 3)
    assert said.startswith("templates: my_sharding against ddp"), said
    check_counts(package.summary(folder / "templates.toml", folder / "build", "--ranks", "3"))


STEPS = {step.__name__: step for step in (install, outsider, outsider_trains, outsider_shards, outsider_resumes,
                                          outsider_predicts, templates, templates_train, templates_predict)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--build", required=True)
    parser.add_argument("--stage", required=True)
    parser.add_argument("--launcher")
    parser.add_argument("--compiler")
    arguments = parser.parse_args()
    try:
        STEPS[arguments.step](Package(arguments))
    except AssertionError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
