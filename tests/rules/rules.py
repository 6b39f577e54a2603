#!/usr/bin/env python3
"""Rules of the house that no compiler checks.

    rules.py SOURCE_DIR [--build BUILD_DIR]

Prints one line per breach, "file:line: rule: what is wrong", and exits with 1 if there is one. rules_test.py shows
that each rule can fail.
"""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

PARTS = ("experiment", "host", "train", "distributed", "store", "plan")
ROOT_ENTRIES = {"CMakeLists.txt", "README.md", "core", "plugins", "experiments", "sdk", "tests", "tools",
                ".ci", ".github", ".clang-format", ".clang-tidy", ".editorconfig", ".gitignore"}
NOT_OURS = {".git", ".deps", "data", "runs"}
POSIX_HEADERS = {"fcntl.h", "unistd.h", "sys/mman.h", "sys/stat.h", "immintrin.h"}
DOORS = {  # what may be included, and where alone
    r"toml\+\+/": ("toml++", ("core/experiment/",)),
    r"boost/": ("Boost.DLL", ("core/host/",)),
    r"(hdf5|H5\w+)\.h": ("HDF5", ("core/store/",)),
    r"(gloo/|torch/csrc/distributed/|nccl\.h)": ("Gloo, NCCL and c10d", ("core/distributed/",)),
    r"CLI/": ("CLI11", ("tools/",)),
}
TORCH = re.compile(r"(ATen|c10|torch)/")
FORMATTERS = re.compile(r"(spdlog|fmt)/")
# Plugins that may not exist yet, and must not be named either.
PLANNED_NAMES = {"zero1", "zero2", "zero3", "ddp", "hsdp", "cosine", "adamw", "amp_bf16", "mini_gpt", "llama",
                 "adam", "sgd", "lion", "wsd", "amp_fp16", "bf16_scaled"}
# Dtypes, and words of everyday English or mathematics.
INNOCENT_NAMES = {"fp32", "fp16", "bf16", "text", "constant", "linear"}
MAX_LINES = 400
MAX_COLUMNS = {".h": 100, ".cpp": 100, ".py": 120}
CODE_FOLDERS = ("core/", "sdk/", "plugins/", "tools/")


class Tree:
    """The files of a source tree (what git tracks or would add), and the includes of each."""

    def __init__(self, root):
        self.root = Path(root).resolve()
        self.files = sorted(self._git_files() or self._walked_files())

    def _git_files(self):
        if not (self.root / ".git").exists():
            return None
        command = ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        out = subprocess.run(command, capture_output=True, text=True)
        if out.returncode != 0:
            return None
        return [f for f in out.stdout.split("\0") if f and (self.root / f).exists()]

    def _walked_files(self):
        found = []
        for folder, folders, names in os.walk(self.root):
            if Path(folder) == self.root:
                folders[:] = [f for f in folders if f not in NOT_OURS and not f.startswith("build")]
            found += [str(Path(folder, name).relative_to(self.root)) for name in names]
        return found

    def text(self, file):
        return (self.root / file).read_text(encoding="utf-8", errors="replace")

    def lines(self, file):
        return list(enumerate(self.text(file).splitlines(), start=1))

    def code(self, *folders):
        return [f for f in self.files if f.endswith((".h", ".cpp")) and f.startswith(folders)]

    def includes(self, file):
        """(line, name, whether in quotes) of each include."""
        found = []
        for number, line in self.lines(file):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if match:
                found.append((number, match.group(2), match.group(1) == '"'))
        return found

    def resolve(self, name, includer):
        for folder in (str(Path(includer).parent), "sdk/include", "core", "tools"):
            candidate = os.path.normpath(os.path.join(folder, name))
            if candidate in self.files:
                return candidate
        return None

    def included_by(self, file):
        """Names of everything that `file` includes, through our own headers too."""
        names, waiting, seen = set(), [file], set()
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            for _, name, _ in self.includes(current):
                names.add(name)
                own = self.resolve(name, current)
                if own:
                    waiting.append(own)
        return names

    def plugins(self):
        """(kind, name) of each bundled plugin's folder."""
        found = {tuple(f.split("/")[1:3]) for f in self.files if f.startswith("plugins/") and f.count("/") >= 3}
        return sorted(found)


def beside(tree, file, name):
    return os.path.normpath(os.path.join(os.path.dirname(file), name)) in tree.files and ".." not in name


def allowed_in_core(part, name):
    """Which part of core an include reaches, if it may not; None if all is well."""
    target = name.split("/")[0]
    if target not in PARTS or target in (part, "experiment") or part == "train":
        return None
    return target


def check_arrows(tree):
    for file in tree.code("sdk/"):
        for line, name, quoted in tree.includes(file):
            own = not quoted or name.startswith("zerolab/") or beside(tree, file, name)
            if name.split("/")[0] in PARTS or not own:
                yield file, line, f"the SDK includes {name}; it may include only zerolab/, its own files and libraries"
    for file in tree.code("core/"):
        part = file.split("/")[1]
        for line, name, quoted in tree.includes(file):
            target = allowed_in_core(part, name)
            if target:
                yield file, line, f"core/{part} includes core/{target}; only train may (all may use experiment)"
            elif quoted and name.split("/")[0] not in PARTS + ("zerolab",):
                yield file, line, f'"{name}": core includes "part/file.h" and "zerolab/file.h"'
    for file in tree.code("plugins/", "sdk/template/"):
        for line, name, quoted in tree.includes(file):
            standard = "/" not in name and not name.endswith(".h")
            if quoted and not name.startswith("zerolab/") and not beside(tree, file, name):
                yield file, line, f'a plugin includes "{name}"; it may include only "zerolab/..." and files beside it'
            elif not quoted and not standard and not TORCH.match(name) and name not in POSIX_HEADERS:
                yield file, line, f"a plugin includes <{name}>; it may include only std, ATen, c10 and torch"
    for file in tree.code("tools/"):
        for line, name, quoted in tree.includes(file):
            known = name.split("/")[0] in PARTS + ("zerolab",) or beside(tree, file, name)
            if quoted and not known:
                yield file, line, f'"{name}": tools include core\'s parts, "zerolab/..." and files beside them'


def check_doors(tree):
    for file in tree.code(*CODE_FOLDERS):
        for line, name, _ in tree.includes(file):
            for pattern, (library, homes) in DOORS.items():
                if re.match(pattern, name) and not file.startswith(homes):
                    yield file, line, f"{library} is included only in {', '.join(homes)}"


def check_formatters(tree):
    for file in tree.code(*CODE_FOLDERS):
        for line, name, quoted in tree.includes(file):
            if quoted or not FORMATTERS.match(name):
                continue
            if file.endswith(".h"):
                yield file, line, f"<{name}> belongs in a .cpp file that includes no torch header"
            elif any(TORCH.match(other) for other in tree.included_by(file)):
                yield file, line, f"<{name}> in a file that also includes torch headers, which carry another fmt"


def check_core_names_no_plugin(tree):
    names = ({name for _, name in tree.plugins()} | PLANNED_NAMES) - INNOCENT_NAMES
    word = re.compile(r"(?<![A-Za-z0-9_])(" + "|".join(sorted(names)) + r")(?![A-Za-z0-9_])", re.IGNORECASE)
    for file in tree.files:
        if not file.startswith("core/"):
            continue
        if word.search(file.replace("/", " ").replace(".", " ")):
            yield file, 0, "a file of core is named after a plugin"
        for number, line in tree.lines(file):
            match = word.search(line)
            if match:
                yield file, number, f"core names the plugin '{match.group(1)}'"


def check_plugin_folders(tree):
    for kind, name in tree.plugins():
        folder = f"plugins/{kind}/{name}"
        for wanted in ("CMakeLists.txt", f"{name}.cpp"):
            if f"{folder}/{wanted}" not in tree.files:
                yield folder, 0, f"{wanted} is missing"
        if f"{folder}/CMakeLists.txt" in tree.files:
            lines = [text for _, text in tree.lines(f"{folder}/CMakeLists.txt") if text.strip()]
            if len(lines) != 1 or not lines[0].startswith(f"zerolab_add_plugin({kind}/{name}"):
                yield f"{folder}/CMakeLists.txt", 1, f"must be one line: zerolab_add_plugin({kind}/{name})"


def check_root(tree):
    entries = {f.split("/")[0] for f in tree.files}
    for entry in sorted(entries - ROOT_ENTRIES):
        yield entry, 0, "does not belong at the root; only " + " ".join(sorted(ROOT_ENTRIES)) + " do"


def check_leftovers(tree):
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    for file in tree.files:
        if file.startswith("tests/rules/"):
            continue
        for number, line in tree.lines(file):
            match = words.search(line)
            if match:
                yield file, number, f"{match.group(1)}: finish it, or say it in words that do not promise"


def check_machine_paths(tree):
    for file in tree.files:
        if file.startswith("tests/rules/"):
            continue
        for number, line in tree.lines(file):
            match = re.search(r"(?<![\w.])/(work|root|opt/wheels)/[\w.]+", line)
            if match:
                yield file, number, f"{match.group(0)} is a path of one machine"


def check_sizes(tree):
    for file in tree.files:
        if not file.startswith(CODE_FOLDERS):
            continue
        lines = tree.lines(file)
        if len(lines) > MAX_LINES and not file.endswith((".txt", ".md")):
            yield file, MAX_LINES, f"{len(lines)} lines; at most {MAX_LINES}"
        limit = MAX_COLUMNS.get(Path(file).suffix)
        for number, line in lines:
            if limit and len(line) > limit and "http" not in line:
                yield file, number, f"{len(line)} columns; at most {limit}"


def check_headers(tree):
    for file in tree.code(*CODE_FOLDERS):
        lines = [text for _, text in tree.lines(file)]
        if file.endswith(".h") and (len(lines) < 2 or lines[0] != "#pragma once" or not lines[1].startswith("//")):
            yield file, 1, "a header begins with #pragma once and a line that says what it is"


def check_documents(tree):
    """Every script, folder and experiment that a document names is there."""
    for file in tree.files:
        if Path(file).name != "README.md":
            continue
        for number, line in tree.lines(file):
            for path in re.findall(r"(?<![\w./-])((?:\.ci|tools|experiments|sdk|core|plugins|tests)/[\w./-]*\w)", line):
                if not (tree.root / path).exists():
                    yield file, number, f"{path} does not exist"


def check_commands(tree, build):
    """Every `zerolab VERB` in a document's code block is a command that the tool knows."""
    tool = build / "bin/zerolab"
    known = {}
    for file in tree.files:
        if Path(file).name != "README.md" or not tool.exists():
            continue
        in_block = False
        for number, line in tree.lines(file):
            if line.lstrip().startswith("```"):
                in_block = not in_block
            match = re.match(r"\s*(?:\$ )?(?:build/bin/)?zerolab ([a-z][a-z-]*)", line)
            if in_block and match:
                verb = match.group(1)
                if verb not in known:
                    known[verb] = subprocess.run([tool, verb, "--help"], capture_output=True).returncode == 0
                if not known[verb]:
                    yield file, number, f"'zerolab {verb}' is no command"


def check_exports(tree, build):
    """A built plugin exports zerolab_plugin and nothing else, and carries its manifest."""
    for kind, name in tree.plugins():
        library = build / "plugins" / f"zerolab_{kind}_{name}.so"
        if not library.exists():
            yield f"plugins/{kind}/{name}", 0, f"{library.name} is not built"
            continue
        out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
        symbols = sorted(line.split()[-1] for line in out.splitlines())
        if symbols != ["zerolab_plugin"]:
            exported = ", ".join(symbols[:5]) or "nothing"
            yield f"plugins/{kind}/{name}", 0, f"{library.name} exports {exported}; only zerolab_plugin may be"
        out = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
        if not re.search(r"\] \.zerolab\s", out):
            yield f"plugins/{kind}/{name}", 0, f"{library.name} has no .zerolab section"


SOURCE_RULES = {
    "arrows": check_arrows,
    "doors": check_doors,
    "formatters": check_formatters,
    "core-names-no-plugin": check_core_names_no_plugin,
    "plugin-folders": check_plugin_folders,
    "root": check_root,
    "leftovers": check_leftovers,
    "machine-paths": check_machine_paths,
    "sizes": check_sizes,
    "headers": check_headers,
    "documents": check_documents,
}
BUILD_RULES = {"commands": check_commands, "exports": check_exports}


def breaches(source, build=None):
    """(rule, file, line, what) of every breach."""
    tree = Tree(source)
    found = [(rule, *breach) for rule, check in SOURCE_RULES.items() for breach in check(tree)]
    if build is not None:
        found += [(rule, *breach) for rule, check in BUILD_RULES.items() for breach in check(tree, Path(build))]
    return found


def main():
    parser = argparse.ArgumentParser(description="Checks the rules of the house.")
    parser.add_argument("source")
    parser.add_argument("--build")
    arguments = parser.parse_args()
    found = breaches(arguments.source, arguments.build)
    for rule, file, line, what in found:
        print(f"{file}:{line}: {rule}: {what}")
    print(f"{len(found)} breaches of {len(SOURCE_RULES) + (len(BUILD_RULES) if arguments.build else 0)} rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
