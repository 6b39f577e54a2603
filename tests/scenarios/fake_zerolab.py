"""Stands in for the program in run_scenarios_test.py: does what its words say, one after the other.

say TEXT, complain TEXT (standard error), make FILE, spoil FILE, finish (a whole run folder), stop (an unfinished one),
linger (leaves a process behind), sleep, exit CODE. `run` is passed over; `--ranks N` makes finish write another loss.
"""

import json
import pathlib
import subprocess
import sys
import time

TEXTS = {"config.resolved.toml": "steps = 2\n", "environment.json": "{}", "metrics.h5": "", "sessions.jsonl": "", "summary.json": '{"steps": 2}'}


def write_run(ranks, finished):
    folder = pathlib.Path("runs/fake-1")
    folder.mkdir(parents=True)
    for name, text in TEXTS.items():
        if finished or name != "summary.json":
            (folder / name).write_text(text)
    rows = [{"step": step, "loss": 3.0 - step / ranks} for step in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def main(words):
    ranks = 1
    if "--ranks" in words:
        at = words.index("--ranks")
        ranks = int(words[at + 1])
        del words[at:at + 2]
    while words:
        word = words.pop(0)
        if word == "say":
            print(words.pop(0))
        elif word == "complain":
            print(words.pop(0), file=sys.stderr)
        elif word == "make":
            pathlib.Path(words.pop(0)).write_text("left")
        elif word == "spoil":
            pathlib.Path(words.pop(0)).write_text("spoiled")
        elif word in ("finish", "stop"):
            write_run(ranks, word == "finish")
        elif word == "linger":
            subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        elif word == "sleep":
            time.sleep(600)
        elif word == "exit":
            sys.exit(int(words.pop(0)))


main(sys.argv[1:])
