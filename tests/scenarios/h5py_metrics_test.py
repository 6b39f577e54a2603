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
    return found["columns"], found["rows"], found["loss"]


def number(value):
    return float(value)  # "Infinity" too


def check_against_journal(path, columns, rows):
    lines = path.with_name("metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert 0 <= len(lines) - len(rows) <= 1, f"{len(lines)} lines, {len(rows)} rows"
    for row, line in zip(rows, lines):
        said = json.loads(line)
        assert list(said) == [c for c, v in zip(columns, row) if not math.isnan(v)], line
        for column, value in zip(columns, row):
            assert math.isnan(value) or number(said[column]) == value, (column, value, line)


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
    columns, rows, loss = run_example(text, path)
    missing = [c for c in documented_columns(text) if c not in columns]
    assert not missing, f"columns that FORMAT.md names are missing: {missing}"
    assert columns[0] == "step"
    assert rows.dtype == numpy.float64 and rows.shape == (len(loss), len(columns))
    assert len(rows) > 0, "no rows"
    assert (numpy.diff(rows[:, 0]) > 0).all(), "steps do not rise"
    check_against_journal(path, columns, rows)
    check_rest(path)
    print(f"{path}: {len(rows)} rows, columns {', '.join(columns)}")


if __name__ == "__main__":
    main()
