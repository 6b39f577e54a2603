"""Starts the program of a scenario, does to it what the scenario says, and sees that nothing of it keeps running."""

import contextlib
import ctypes
import dataclasses
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

from scenario_folder import ScenarioError, run_folders

# Taken over from the caller: what finds programs and libraries, and what sanitizers are told. Nothing else, so that the
# caller's plugins, rank variables and language do not decide what a scenario shows.
KEPT = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")
MARK = "ZEROLAB_SCENARIO"


@dataclasses.dataclass
class Outcome:
    exit: int  # as a shell gives it: 128 + the signal that ended the process
    stdout: str
    stderr: str
    problems: list


def environment_for(folder, extra):
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    own = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "no-data"), "LC_ALL": "C.UTF-8", MARK: str(folder)}
    return {**kept, **own, **extra}


def as_user(user, program):
    """The words before a command that make it run as `user`."""
    if user is None or os.geteuid() != 0:
        return []
    if user != "unprivileged":
        raise ScenarioError(f"user = '{user}': only \"unprivileged\" is known")
    # Not another user, who might not get through to the program: root without the right to pass over permissions.
    words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    if subprocess.run(words + ["test", "-x", program], check=False).returncode != 0:
        raise ScenarioError(f"{program} cannot be started without root's capabilities")
    return words


@contextlib.contextmanager
def held_port():
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def processes(folder):
    """Ids of the processes that a scenario started, those of its ranks included."""
    mark = f"{MARK}={folder}".encode()
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            if mark in variables and state != "Z":
                found[int(entry.name)] = variables
    return found


def rank_of(variables):
    return next((int(v.split(b"=")[1]) for v in variables if v.startswith(b"ZEROLAB_RANK=")), None)


def open_stdout(kind, folder):
    """The file for standard output."""
    if kind == "full":
        return open("/dev/full", "wb")
    if kind == "closed pipe":
        reader, writer = os.pipe()
        os.close(reader)
        return os.fdopen(writer, "wb")
    return open(folder.with_name(folder.name + ".out"), "w+b")


def wait_for_rows(process, folder, before, count, deadline):
    """Until the run's journal has so many rows."""
    while process.poll() is None and time.monotonic() < deadline:
        for run in run_folders(folder, before):
            with contextlib.suppress(OSError):
                if (run / "metrics.jsonl").read_bytes().count(b"\n") >= count:
                    return True
        time.sleep(0.02)
    return False


def run_first(command, folder, environment):
    """Runs what comes before the command that is judged. Returns what went wrong."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode in (0, 75):
        return None
    return f"'{' '.join(command[1:])}', which comes first, ended with {done.returncode}: {done.stderr.strip()}"


def interfere(process, folder, before, actions, deadline):
    """Does what `during` lists; returns what went wrong."""
    for action in actions:
        if not wait_for_rows(process, folder, before, action["after_rows"], deadline):
            return [f"ended, or took too long, before it had {action['after_rows']} rows"]
        target = process.pid
        if action["to"] != "launcher":
            rank = int(action["to"].removeprefix("rank "))
            of_rank = [pid for pid, variables in processes(folder).items() if rank_of(variables) == rank]
            if len(of_rank) != 1:
                return [f"{len(of_rank)} processes of rank {rank}"]
            target = of_rank[0]
        os.kill(target, signal.Signals["SIG" + action["send"]])
    return []


def before_start(actions):
    """What the new process does first. It dies with the runner; a crash leaves a core file, and so is seen, unless the
    scenario itself sends the signal of a crash."""
    asked_for = any(action["send"] in ("SEGV", "ABRT", "BUS") for action in actions)
    libc, set_parent_death_signal = ctypes.CDLL(None), 1

    def prepare_process():
        libc.prctl(set_parent_death_signal, signal.SIGKILL)
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0 if asked_for else hard, hard))

    return prepare_process


def run(command, folder, before, scenario, environment, timeout):
    """Runs a command in the scenario's folder."""
    deadline = time.monotonic() + timeout
    actions = scenario.get("during", [])
    with open_stdout(scenario.get("stdout"), folder) as out, open(folder.with_name(folder.name + ".err"), "w+b") as err:
        words = as_user(scenario.get("user"), command[0]) + command
        process = subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   start_new_session=True, preexec_fn=before_start(actions))
        try:
            problems = interfere(process, folder, before, actions, deadline)
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            problems = [f"still running after {timeout} s"]
        problems += end_leftovers(process, folder)
        err.seek(0)
        stderr = err.read().decode(errors="replace")
        stdout = ""
        if out.seekable() and scenario.get("stdout") is None:
            out.seek(0)
            stdout = out.read().decode(errors="replace")
    code = process.returncode
    return Outcome(code if code >= 0 else 128 - code, stdout, stderr, problems)


def end_leftovers(process, folder):
    """Ends what still runs. A rank may need a moment after its launcher, no longer."""
    ended = process.poll() is not None
    for _ in range(20):
        left = processes(folder)
        if not left or not ended:
            break
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    return [f"{len(left)} processes were left running"] if left and ended else []
