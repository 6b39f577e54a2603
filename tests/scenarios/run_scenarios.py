"""Runs the scenarios of a TOML file: whole uses of the program, each in a folder of its own. README.md has the format.

Usage: run_scenarios.py --zerolab build/bin/zerolab --plugins build/plugins FILE.toml [--only WORDS] [--keep] [--verbose]
Exit code 0 if all hold, 1 if one does not, 77 if all hold but some needed h5py and were passed over.
"""

import argparse
import contextlib
import importlib.util
import itertools
import os
import pathlib
import shutil
import sys
import tempfile

try:
    import tomllib
except ImportError:
    print("skipped: Python 3.11 or newer is needed (tomllib)")
    sys.exit(77)

import scenario_expect
import scenario_folder
import scenario_process
from scenario_folder import ScenarioError, fill_in

FILE_KEYS = {"about", "files", "scenario"}
SCENARIO_KEYS = {
    "name", "first", "command", "ranks", "vary", "files", "prepare", "environment", "user", "stdout", "during", "hold_port", "timeout",
    "expect", "together",
}
REPO = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
TIMEOUT_S = 120


def read_scenarios(file):
    """The scenarios of a file and the files that they share."""
    root = tomllib.loads(file.read_text(encoding="utf-8"))
    scenarios = root.get("scenario", [])
    names = [scenario.get("name") for scenario in scenarios]
    if set(root) - FILE_KEYS or not scenarios or None in names or len(set(names)) != len(names):
        raise ScenarioError(f"{file}: needs [[scenario]] tables with a name each, and beside them only {sorted(FILE_KEYS)}")
    for scenario in scenarios:
        if unknown := set(scenario) - SCENARIO_KEYS:
            raise ScenarioError(f"{file}: scenario '{scenario['name']}': unknown keys {sorted(unknown)}")
    return scenarios, root.get("files", {})


def runs_of(scenario):
    """Every combination of the varied words and the numbers of ranks."""
    vary = scenario.get("vary", {})
    for values in itertools.product(*vary.values(), scenario.get("ranks", [1])):
        yield dict(zip(vary, values[:-1])), values[-1], values


def words_of(command, zerolab, names):
    """The words of a command; --ranks is added for more than one, unless it is there."""
    words = fill_in(command, names).split() if isinstance(command, str) else [fill_in(word, names) for word in command]
    return [zerolab] + words + (["--ranks", str(names["ranks"])] if names["ranks"] > 1 and "--ranks" not in words else [])


class Runner:
    def __init__(self, arguments):
        self.zerolab = str(arguments.zerolab.resolve())
        self.plugins = arguments.plugins.resolve()
        self.verbose = arguments.verbose
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="zerolab-scenarios-"))
        self.folder.chmod(0o755)  # unprivileged users have to get through
        self.count = itertools.count(1)

    def run_once(self, scenario, common_files, varied, ranks):
        """One run of a scenario: its problems and, of a training run, its results."""
        folder = self.folder / f"{next(self.count):03}"
        folder.mkdir()
        folder.chmod(0o755)
        with contextlib.ExitStack() as stack:
            names = {**varied, "dir": folder, "plugins": self.plugins, "repo": REPO, "ranks": ranks}
            if scenario.get("hold_port"):
                names["port"] = stack.enter_context(scenario_process.held_port())
            scenario_folder.prepare(folder, scenario, common_files, names)
            before = scenario_folder.contents(folder)
            extra = {name: fill_in(value, names) for name, value in scenario.get("environment", {}).items()}
            environment = scenario_process.environment_for(folder, extra)
            for words in scenario.get("first", []):
                problem = scenario_process.run_first(words_of(words, self.zerolab, names), folder, environment)
                if problem:
                    return [problem], None
            command = words_of(scenario["command"], self.zerolab, names)
            outcome = scenario_process.run(command, folder, before, scenario, environment,
                                           scenario.get("timeout", TIMEOUT_S))
            problems, result = scenario_expect.check(scenario, outcome, folder, before, names)
        if problems or self.verbose:
            self.show(command, outcome)
        return problems, result

    def show(self, command, outcome):
        print("  $ zerolab " + " ".join(command[1:]))
        for line in (outcome.stdout + outcome.stderr).splitlines():
            print("  | " + line)
        print(f"  exit code {outcome.exit}")

    def run(self, scenario, common_files):
        """All runs of a scenario, and what holds between them. Returns the problems."""
        problems, results = [], {}
        for varied, ranks, key in runs_of(scenario):
            words = [f"{word} {value}" for word, value in varied.items()]
            where = ", ".join(words + [f"{ranks} ranks" if ranks > 1 else "1 rank"])
            found, result = self.run_once(scenario, common_files, varied, ranks)
            problems += [f"{where}: {problem}" for problem in found]
            if result is not None:
                results[key] = result
        if "together" in scenario and not problems:
            problems += scenario_expect.check_together(scenario["together"], results)
        return problems


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--zerolab", type=pathlib.Path, required=True)
    parser.add_argument("--plugins", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="scenarios whose name holds this")
    parser.add_argument("--keep", action="store_true", help="keep the folders and say where they are")
    parser.add_argument("--verbose", action="store_true", help="show what every command printed")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    os.umask(0o022)  # a plugin that others may write to is refused
    scenarios, common_files = read_scenarios(arguments.file)
    chosen = [scenario for scenario in scenarios if arguments.only in scenario["name"]]
    if not chosen:
        raise ScenarioError(f"no scenario of {arguments.file} has '{arguments.only}' in its name")
    has_h5py = importlib.util.find_spec("h5py") is not None
    if not has_h5py and "ZEROLAB_TEST_PYTHON" in os.environ:
        raise ScenarioError(f"ZEROLAB_TEST_PYTHON ({sys.executable}) has no h5py; tools/setup --tests makes one that has")
    runner = Runner(arguments)
    failed = skipped = 0
    try:
        for scenario in chosen:
            if scenario_expect.needs_h5py(scenario) and not has_h5py:
                skipped += 1
                print(f"skipped, no h5py: {scenario['name']}")
                continue
            problems = runner.run(scenario, common_files)
            failed += bool(problems)
            print(("FAILED: " if problems else "ok: ") + scenario["name"], flush=True)
            for problem in problems:
                print("  " + problem)
    finally:
        if arguments.keep:
            print(f"folders: {runner.folder}")
        else:
            shutil.rmtree(runner.folder)
    print(f"{len(chosen) - failed - skipped} scenarios hold, {failed} failed, {skipped} skipped")
    return 1 if failed else SKIPPED if skipped else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ScenarioError as error:
        print(f"run_scenarios.py: {error}", file=sys.stderr)
        sys.exit(1)
