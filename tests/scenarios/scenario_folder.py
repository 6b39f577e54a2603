"""The folder in which one scenario runs: its files, plugin libraries made from built ones, and what a run changed in it."""

import hashlib
import pathlib
import re
import shutil

SHARED = pathlib.Path(__file__).resolve().parent / "shared"
RUN_FILES = {"config.resolved.toml", "environment.json", "metrics.h5", "metrics.jsonl", "sessions.jsonl", "summary.json"}
SESSION_FILES = re.compile(r"(config\.resolved|environment)\.session-\d+\.(toml|json)|metrics\.superseded\.jsonl")
CHECKPOINT = re.compile(r"checkpoints/step-\d{9}")
CHECKPOINT_FILES = re.compile(r"manifest\.json|config\.resolved\.toml|environment\.json|rank-\d{4}\.h5")


class ScenarioError(Exception):
    """The scenario itself is wrong, or its surroundings cannot be made here."""


def fill_in(text, names):
    """Replaces {name} for the known names; other braces stay."""
    for name, value in names.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def prepare(folder, scenario, common_files, names):
    """Writes files of the scenario over those common to its group over shared/*, then makes what `prepare` lists."""
    for file in SHARED.iterdir():
        shutil.copy(file, folder / file.name)
    for name, text in {**common_files, **scenario.get("files", {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(fill_in(text, names), encoding="utf-8")
    for step in scenario.get("prepare", []):
        make(folder, dict(step), names)


def make(folder, step, names):
    path = folder / fill_in(step.pop("make"), names)
    mode = step.pop("mode", None)
    path.parent.mkdir(parents=True, exist_ok=True)
    if step.pop("folder", False):
        path.mkdir(exist_ok=True)
    elif "text" in step:
        path.write_text(step.pop("text") * step.pop("times", 1), encoding="utf-8")
    elif "bytes" in step:
        path.write_bytes(bytes(step.pop("bytes")) * step.pop("times", 1))
    elif "plugin" in step:
        path.write_bytes(changed_plugin(step, names["plugins"]))
    else:
        raise ScenarioError(f"prepare of {path.name}: says nothing to put there")
    if step:
        raise ScenarioError(f"prepare of {path.name}: unknown keys {sorted(step)}")
    if mode is not None:
        path.chmod(int(mode, 8))


def changed_plugin(step, plugins):
    """A built plugin with texts of the same length put in their place, or cut short."""
    built = pathlib.Path(plugins) / ("zerolab_" + step.pop("plugin").replace("/", "_") + ".so")
    content = built.read_bytes()
    for old, new in step.pop("replace", {}).items():
        if len(old) != len(new) or old.encode() not in content:
            raise ScenarioError(f"{built.name}: '{old}' is not there, or not as long as '{new}'")
        content = content.replace(old.encode(), new.encode())
    share = step.pop("keep", 1.0)
    return content[: int(len(content) * share)]


def contents(folder):
    """Path -> what is there, for everything below `folder`."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            found[str(path.relative_to(folder))] = "folder"
        else:
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def run_folders(folder, before):
    """The run folders that were not there before."""
    return sorted(
        path.parent
        for path in folder.rglob("config.resolved.toml*")
        if str(path.parent.relative_to(folder)) not in before and path.parent.parent.name != "checkpoints"
    )


def is_run_file(path):
    """Whether a path inside a run's folder is one that runs may leave besides those that all leave."""
    parent, name = str(path.parent), path.name
    if CHECKPOINT.fullmatch(parent):
        return CHECKPOINT_FILES.fullmatch(name)
    return str(path) == "checkpoints" or CHECKPOINT.fullmatch(str(path)) or (parent == "." and SESSION_FILES.fullmatch(name))


def problems_with_leftovers(folder, before, leaves):
    """`leaves`: "nothing", "a run", "a stopped run" or "an unfinished run" (neither has a summary)."""
    after = contents(folder)
    problems = [f"{path} was there before and is gone" for path in before if path not in after]
    problems += [f"{path} was there before and has changed" for path in before if after.get(path, before[path]) != before[path]]
    new = {path for path in after if path not in before}
    if leaves == "nothing":
        return problems + [f"left behind: {path}" for path in sorted(new)]
    runs = run_folders(folder, before)
    if len(runs) != 1:
        return problems + [f"{len(runs)} run folders instead of one"]
    wanted = RUN_FILES - (set() if leaves == "a run" else {"summary.json"})
    expected = {str((runs[0] / file).relative_to(folder)) for file in wanted}
    expected |= {str(parent) for parent in pathlib.Path(min(expected)).parents} - {"."}
    run = runs[0].relative_to(folder)
    extra = {path for path in new - expected if not (run in pathlib.Path(path).parents
                                                     and is_run_file(pathlib.Path(path).relative_to(run)))}
    problems += [f"left behind: {path}" for path in sorted(extra)]
    for step in runs[0].glob("checkpoints/*"):
        if not (step / "manifest.json").exists():
            problems.append(f"the checkpoint {step.name} has no manifest")
    if leaves == "a stopped run" and not list(runs[0].glob("checkpoints/*")):
        problems.append("the stopped run has no checkpoint")
    return problems + [f"the run folder has no {path}" for path in sorted(expected - set(after))]
