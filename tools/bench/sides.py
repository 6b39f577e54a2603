"""The two sides of a comparison, each a run in processes of its own: zerolab, and plain PyTorch from a virtual
environment that is made when it is first needed.
"""
import hashlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINARY = ROOT / "build" / "bin" / "zerolab"
VENV = ROOT / ".deps" / "bench-venv"
REQUIREMENTS = HERE / "requirements.txt"
VENV_GIGABYTES = 8  # while pip unpacks; 5 afterwards
COLLECTIVES = ("reduce_scatter", "all_gather", "all_to_all", "broadcast")  # as metrics name them; control apart


def say(text):
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


def fail(text):
    say(text)
    sys.exit(1)


def make_venv():
    """The Python of .deps/bench-venv, set up if it is not, or not as the requirements say."""
    python = VENV / "bin" / "python"
    stamp = VENV / ".stamp"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest() + " " + platform.python_version()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    if not (3, 10) <= sys.version_info[:2] <= (3, 14):
        fail(f"PyTorch needs Python 3.10 to 3.14, this is {platform.python_version()}; start it with another one: "
             f"python3.11 {sys.argv[0]}")
    VENV.parent.mkdir(exist_ok=True)
    free = shutil.disk_usage(VENV.parent).free / 1e9
    if free < VENV_GIGABYTES:
        fail(f"PyTorch needs {VENV_GIGABYTES} GB in {VENV.parent}, {free:.1f} GB are free; make room")
    say(f"putting PyTorch into {VENV}: about 2.5 GB to download (its wheel brings CUDA along), 5 GB on disk ...")
    shutil.rmtree(VENV, ignore_errors=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--only-binary=:all:",
           "--no-cache-dir", "-r", str(REQUIREMENTS)]
    temporary = tempfile.mkdtemp(prefix=".tmp-bench-", dir=VENV.parent)  # pip's own files, on the disk just checked
    try:
        for command in ([sys.executable, "-m", "venv", str(VENV)], pip):
            subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, "TMPDIR": temporary})
    except subprocess.CalledProcessError as error:
        fail(f"could not set PyTorch up ({error.cmd[2]} ended with {error.returncode}, its reason is above); check the "
             "network, pip's settings and, on Debian, that python3-venv is installed, then start this again")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    stamp.write_text(wanted)
    return python


def require_binary(binary):
    """Builds zerolab if it is asked for where a build puts it and is not there."""
    if binary.exists():
        return
    if binary != BINARY:
        fail(f"{binary} does not exist; build it, or leave --zerolab out")
    subprocess.run([ROOT / "tools" / "build"], check=True, stdout=sys.stderr)


def output_of(command, what, environment=None):
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                             env={**os.environ, **(environment or {})})
    if process.returncode != 0:
        sys.stderr.write(process.stderr[-2000:])
        fail(f"{what} ended with {process.returncode}")
    return process.stdout


def run_zerolab(binary, experiment, run_folder, environment=None):
    """Seconds of each step, tokens of a step, and the rest. To each step is added its share of what a run does outside
    of steps: writing metrics, progress lines, the one evaluation at the end."""
    # No checkpoint at the end: the other side writes none.
    command = [binary, "run", *experiment, "checkpoint.at_end=false", "--run-dir", run_folder, "--json"]
    summary = json.loads(output_of(command, "zerolab run", environment))
    rows = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    seconds = [row["step_seconds"] for row in rows]
    outside = max(0, summary["seconds"] - sum(seconds)) / len(seconds)
    return {"step_seconds": [s + outside for s in seconds], "tokens_per_step": rows[0]["tokens"],
            "parameters": summary["parameters"], "loss": summary["loss"], "rows": rows}


def run_pytorch(python, config, options, environment=None):
    return json.loads(output_of([python, HERE / "pytorch_gpt.py", config, *options], "pytorch_gpt.py", environment))


def measured(result, warmup):
    """The figures of a run: the median step after the first `warmup`, and, of zerolab, its collectives' seconds."""
    median = statistics.median(result["step_seconds"][warmup:])
    figures = {"tokens_per_sec": result["tokens_per_step"] / median, "step_milliseconds": median * 1e3,
               "loss": result["loss"], "parameters": result["parameters"], "tokens_per_step": result["tokens_per_step"]}
    rows = result.get("rows", [])[warmup:]
    if rows and "all_gather_seconds" in rows[0]:
        def milliseconds(names, what):
            return 1e3 * statistics.fmean(sum(row[f"{name}_{what}"] for name in names) for row in rows)
        for name, names in (("communication", COLLECTIVES), *((one, (one,)) for one in (*COLLECTIVES, "control"))):
            figures[f"{name}_milliseconds"] = milliseconds(names, "seconds")
            figures[f"{name}_exposed_milliseconds"] = milliseconds(names, "exposed_seconds")
    return figures


def require_same_work(a, b):
    for key in ("parameters", "tokens_per_step"):
        if a[key] != b[key]:
            fail(f"the two sides do not train the same thing: {key} {a[key]} and {b[key]}")


def cores():
    return len(os.sched_getaffinity(0))


def warn_if_unfair(threads):
    """Says so if `threads` in all are too many, or other processes already have the machine."""
    if threads > cores():
        say(f"warning: {threads} threads on {cores()} cores")
    if os.getloadavg()[0] > 0.5 * cores():
        say(f"warning: the machine is busy (load {os.getloadavg()[0]:.1f} on {cores()} cores); both sides are slowed, "
            "and not by the same factor")


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
