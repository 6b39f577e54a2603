#!/usr/bin/env python3
"""zerolab as a package: installs the build, then does what a stranger would do with it, in a folder of its own.

    package_test.py STEP --build BUILD_DIR --stage DIR [--launcher CCACHE] [--compiler CXX]

Each step builds on those before it.
"""
import argparse
import json
import math
import os
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
        folder = self.stage / "runs" / Path(experiment).parent.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(exist_ok=True)
        self.run(self.tool, "run", experiment, "--plugin-path", plugins, "--run-dir", folder, *flags)
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            assert math.isfinite(row["loss"]), row
        return rows


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
    """A plugin of another project builds with find_package(zerolab) alone, and the tool sees it."""
    shutil.rmtree(package.stage / "outsider", ignore_errors=True)
    shutil.copytree(HERE / "outsider", package.stage / "outsider")
    plugins = package.build_project("outsider")
    assert ("scheduler", "sawtooth") in package.listed("--plugin-path", plugins)
    described = package.run(package.tool, "plugins", "inspect", "scheduler/sawtooth", "--plugin-path", plugins)
    assert "period" in described, described


def outsider_trains(package):
    """It trains beside the bundled plugins, and its learning rates are in the run's metrics."""
    folder = package.stage / "outsider"
    rows = package.train(folder / "experiment.toml", folder / "build")
    assert [row["step"] for row in rows] in ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]), rows
    wanted = [0.01, 0.0075, 0.005, 0.0025, 0.01, 0.0075]
    assert all(math.isclose(row["lr"], lr, rel_tol=1e-12) for row, lr in zip(rows, wanted)), rows


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


STEPS = {step.__name__: step for step in (install, outsider, outsider_trains, templates, templates_train)}


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
