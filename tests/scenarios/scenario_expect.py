"""Compares what a scenario did with its [expect] table, and several runs of it with its [together] table."""

import builtins
import json
import math
import pathlib
import re
import subprocess
import sys
import tomllib
import types

from scenario_folder import ScenarioError, fill_in, problems_with_leftovers, run_folders

STOPPED = 75  # on request, and can be gone on with
EXPECT_KEYS = {
    "exit", "error", "error_regex", "stderr_lines", "stderr_lacks", "stdout", "stdout_regex", "stdout_lacks",
    "leaves", "holds", "reads_with_h5py",
}
TOGETHER_KEYS = {"equal", "differ", "holds"}
ERROR = "zerolab: error: "
H5PY_TEST = pathlib.Path(__file__).resolve().parent / "h5py_metrics_test.py"
FUNCTIONS = {name: getattr(builtins, name) for name in (
    "abs", "all", "any", "float", "int", "isinstance", "len", "list", "max", "min", "range", "round", "set", "sorted", "str",
    "sum", "zip")}
FUNCTIONS |= {"isnan": math.isnan, "isfinite": math.isfinite, "isclose": math.isclose, "log": math.log}


def needs_h5py(scenario):
    expect, together = scenario.get("expect", {}), scenario.get("together", {})
    expressions = expect.get("holds", []) + together.get("holds", [])
    return bool(expect.get("reads_with_h5py") or together.get("equal") or together.get("differ")
                or any(re.search(r"\bh5\b", expression) for expression in expressions))


def read_columns(run):
    """Column -> values, of metrics.jsonl; NaN where a row has none."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    names = {name: None for row in rows for name in row}
    return {name: [float(row.get(name, "nan")) for row in rows] for name in names}


def read_h5(run):
    """The same of metrics.h5, and its attributes."""
    import h5py

    with h5py.File(run / "metrics.h5", "r") as f:
        columns = {}
        for number in range(len(f["segments"])):
            rows = f[f"segments/{number}/rows"][:]
            rows = rows[rows[:, 0] > 0]
            for i, name in enumerate(f[f"segments/{number}/columns"].asstr()):
                columns.setdefault(name, []).extend(float(v) for v in rows[:, i])
        stored = dict(f["summary"].attrs) if "summary" in f else None
        summary = stored and {name: v if isinstance(v, str) else float(v) for name, v in stored.items()}
        return types.SimpleNamespace(columns=columns, summary=summary, config=f["config"].asstr()[()])


def read_run(run, outcome, with_h5):
    """What expressions can speak of."""
    def parsed(name, parse):
        path = run / name
        return parse(path.read_text(encoding="utf-8")) if path.exists() else None

    result = types.SimpleNamespace(stdout=outcome.stdout, stderr=outcome.stderr, folder=str(run))
    result.columns = read_columns(run)
    result.checkpoints = sorted(path.name for path in run.glob("checkpoints/*"))
    result.summary = parsed("summary.json", json.loads)
    result.environment = parsed("environment.json", json.loads)
    result.config = parsed("config.resolved.toml", tomllib.loads)
    result.config_text = parsed("config.resolved.toml", str)
    result.h5 = read_h5(run) if with_h5 else None
    result.printed = json.loads(outcome.stdout) if outcome.stdout.startswith("{") else None
    return result


def failing(expressions, names):
    """The expressions that are not true."""
    problems = []
    for expression in expressions:
        try:
            value = eval(expression, {"__builtins__": FUNCTIONS, **names})
        except Exception as error:  # an expression may fail in any way; the scenario then fails
            problems.append(f"{expression}: {type(error).__name__}: {error}")
            continue
        if value is not True:
            problems.append(f"does not hold: {expression}" + ("" if value is False else f" (is {value!r}, not a truth value)"))
    return problems


def found_in(text, where, wanted, lacking, patterns):
    problems = [f"{where} lacks: {part}" for part in wanted if part not in text]
    problems += [f"{where} has what it must not: {part}" for part in lacking if part in text]
    return problems + [f"{where} has nothing that matches: {p}" for p in patterns if not re.search(p, text, re.MULTILINE)]


def check_errors(expect, stderr):
    """Standard error holds the error and nothing else; nothing at all if there is none, or a signal ended the program."""
    fails = 0 < expect.get("exit", 0) < 128 and expect["exit"] != STOPPED
    wanted = expect.get("stderr_lines", int(fails))
    lines = stderr.splitlines()
    problems = []
    if len(lines) != wanted:
        problems.append(f"standard error has {len(lines)} lines instead of {wanted}")
    if fails and not stderr.startswith(ERROR):
        problems.append(f"standard error does not begin with '{ERROR}'")
    if stderr.count(ERROR) > 1:
        problems.append("the error is printed more than once")
    return problems


def check(scenario, outcome, folder, before, names):
    """Problems of one run of a scenario, and what `together` needs of it (None without a run folder)."""
    expect = {key: [fill_in(e, names) for e in value] if isinstance(value, list) else value
              for key, value in scenario.get("expect", {}).items()}
    if unknown := set(expect) - EXPECT_KEYS:
        raise ScenarioError(f"unknown keys in expect: {sorted(unknown)}")
    problems = list(outcome.problems)
    if outcome.exit != expect.get("exit", 0):
        problems.append(f"exit code {outcome.exit} instead of {expect.get('exit', 0)}")
    problems += check_errors(expect, outcome.stderr)
    problems += found_in(outcome.stderr, "standard error", expect.get("error", []), expect.get("stderr_lacks", []),
                         expect.get("error_regex", []))
    problems += found_in(outcome.stdout, "standard output", expect.get("stdout", []), expect.get("stdout_lacks", []),
                         expect.get("stdout_regex", []))
    command = scenario["command"]
    trains = (command.split() if isinstance(command, str) else command)[0] == "run" and expect.get("exit", 0) == 0
    leaves = expect.get("leaves", "a run" if trains else "nothing")
    problems += problems_with_leftovers(folder, before, leaves)
    if problems or leaves == "nothing":
        return problems, None
    run = run_folders(folder, before)[0]
    result = read_run(run, outcome, needs_h5py(scenario))
    words = {**result.columns, **vars(result), "rows": len(result.columns.get("step", [])), "ranks": int(names["ranks"])}
    problems += failing(expect.get("holds", []), words)
    if expect.get("reads_with_h5py"):
        reader = subprocess.run([sys.executable, "-B", H5PY_TEST, run / "metrics.h5"], capture_output=True, text=True,
                                check=False)
        if reader.returncode != 0:
            problems.append(f"{H5PY_TEST.name}: {reader.stderr}")
    return problems, result


def bits(results, column):
    """Each run's column, exactly."""
    return {key: tuple(value.hex() for value in result.h5.columns[column]) for key, result in results.items()}


def check_together(together, results):
    """`results`: (value of each varied word ..., ranks) -> what `check` gave."""
    if unknown := set(together) - TOGETHER_KEYS:
        raise ScenarioError(f"unknown keys in together: {sorted(unknown)}")
    problems = []
    for num_ranks in sorted({key[-1] for key in results}):
        group = {key: result for key, result in results.items() if key[-1] == num_ranks}
        for column in together.get("equal", []):
            columns = bits(group, column)
            first = next(iter(columns.values()))
            if len(columns) < 2 or len(first) < 2:
                problems.append(f"{column}: too little to compare at {num_ranks} ranks")
            problems += [f"{column} of {key} is not bit-identical to {next(iter(columns))}: {results[key].columns[column]} "
                         f"and {results[next(iter(columns))].columns[column]}" for key in columns if columns[key] != first]
        for column in together.get("differ", []):
            columns = bits(group, column)
            if len(set(columns.values())) != len(columns):
                problems.append(f"{column} is the same in several of {sorted(columns)}")
    by_key = {key if len(key) > 1 else key[0]: result for key, result in results.items()}
    return problems + failing(together.get("holds", []), {"run": by_key})
