"""Reads a run's metrics.h5 with h5py as FORMAT.md says, and compares it with the journal beside it.

Usage: h5py_metrics_test.py RUN/metrics.h5. Exit code 0 if everything holds. Runs FORMAT.md's own example.
"""

import json
import math
import pathlib
import re
import sys

import h5py
import numpy

FORMAT = pathlib.Path(__file__).resolve().parents[2] / "core" / "store" / "FORMAT.md"


def documented_columns(text):
    table = text.split("## Columns")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def run_example(text, path):
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    found = {}
    example, replaced = re.subn(r'"runs/[^"]*metrics\.h5"', repr(str(path)), example)
    assert replaced == 1, "FORMAT.md's example opens no run"
    exec(example, found)
    return found["tables"], found["loss"]


def number(value):
    return float(value)  # "Infinity" too


def json_lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def check_against_journal(path, tables):
    lines = json_lines(path.with_name("metrics.jsonl"))
    rows = [(columns, row) for columns, table in tables for row in table]
    assert 0 <= len(lines) - len(rows) <= 1, f"{len(lines)} lines, {len(rows)} rows"
    for (columns, row), line in zip(rows, lines):
        said = json.loads(line)
        assert list(said) == [c for c, v in zip(columns, row) if not math.isnan(v)], line
        for column, value in zip(columns, row):
            assert math.isnan(value) or number(said[column]) == value, (column, value, line)


def check_against_sessions(path, tables):
    sessions = [json.loads(line) for line in json_lines(path.with_name("sessions.jsonl"))]
    assert [session["session"] for session in sessions] == list(range(len(tables)))
    ends = [session["first_step"] for session in sessions[1:]] + [math.inf]
    for session, (columns, table), end in zip(sessions, tables, ends):
        assert session.get("columns", columns) == columns
        assert all(session["first_step"] <= step < end for step in table[:, 0]), session


def check_rest(path):
    folder = path.parent
    with h5py.File(path, "r") as f:
        assert f.attrs["format"] == "zerolab-metrics"
        assert f.attrs["format_version"] == 1
        config = f["config"].asstr()[()]
        environment = f["environment"].asstr()[()]
        assert config == (folder / "config.resolved.toml").read_text(encoding="utf-8")
        assert environment == (folder / "environment.json").read_text(encoding="utf-8")
        assert "zerolab_version" in json.loads(environment)
        summary = folder / "summary.json"
        assert ("summary" in f) == summary.exists(), "summary here, but not there"
        if summary.exists():
            said = json.loads(summary.read_text(encoding="utf-8"))
            stored = dict(f["summary"].attrs)
            assert set(said) == set(stored)
            for name, value in stored.items():
                if isinstance(value, str):
                    assert said[name] == value, name
                else:
                    assert math.isnan(value) if said[name] is None else number(said[name]) == value, name


def main():
    path = pathlib.Path(sys.argv[1])
    text = FORMAT.read_text(encoding="utf-8")
    tables, loss = run_example(text, path)
    for columns, rows in tables:
        missing = [c for c in documented_columns(text) if c not in columns]
        assert not missing, f"columns that FORMAT.md names are missing: {missing}"
        assert columns[0] == "step"
        assert rows.dtype == numpy.float64 and rows.shape == (len(rows), len(columns))
    steps = numpy.concatenate([rows[:, 0] for _, rows in tables])
    assert len(steps) == len(loss) > 0, "no rows"
    assert (numpy.diff(steps) > 0).all(), "steps do not rise"
    check_against_journal(path, tables)
    check_against_sessions(path, tables)
    check_rest(path)
    print(f"{path}: {len(steps)} rows in {len(tables)} segments, columns {', '.join(tables[-1][0])}")


if __name__ == "__main__":
    main()
