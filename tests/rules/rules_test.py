#!/usr/bin/env python3
"""Shows that each rule can fail: a small tree without breaches, broken in one way after the other.

    rules_test.py CXX_COMPILER
"""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import rules

COMPILER = "g++"

GOOD_TREE = {
    "CMakeLists.txt": "project(p)\n",
    "README.md": "Run `tools/run experiments/smoke/a.toml`.\n\n```\nzerolab run a.toml\n```\n",
    "tools/run": "#!/bin/sh\n",
    "tools/zerolab/main.cpp": '#include <CLI/CLI.hpp>\n#include "train/trainer.h"\n#include "verbs.h"\n',
    "tools/zerolab/verbs.h": "#pragma once\n// Verbs.\n",
    "experiments/smoke/a.toml": "name = 'a'\n",
    "sdk/include/zerolab/model.h": "#pragma once\n// A model.\n#include <ATen/core/Tensor.h>\n",
    "sdk/include/zerolab/log.h": "#pragma once\n// Messages.\n#include <string>\n",
    "core/train/trainer.h": '#pragma once\n// Trains.\n#include "store/run.h"\n#include "zerolab/model.h"\n',
    "core/store/run.h": '#pragma once\n// A run.\n#include "experiment/experiment.h"\n#include <hdf5.h>\n',
    "core/store/say.cpp": '#include <spdlog/spdlog.h>\n#include "zerolab/log.h"\n',
    "core/experiment/experiment.h": "#pragma once\n// constant, text: everyday words.\n#include <toml++/toml.h>\n",
    "plugins/data/text/CMakeLists.txt": "zerolab_add_plugin(data/text)\n",
    "plugins/data/text/text.cpp":
        '#include <fcntl.h>\n#include <vector>\n#include <ATen/Tensor.h>\n#include "zerolab/model.h"\n',
    "tests/a_test.cpp": '#include "catch.h"\n',
}

# (rule, file, its content; None removes it): each breaks one rule and no other.
BREACHES = [
    ("arrows", "sdk/src/a.cpp", '#include "train/trainer.h"\n'),
    ("arrows", "sdk/src/a.cpp", '#include "somewhere.h"\n'),
    ("arrows", "core/store/a.cpp", '#include "train/trainer.h"\n'),
    ("arrows", "core/host/a.cpp", '#include "store/run.h"\n'),
    ("arrows", "core/store/a.cpp", '#include "../store/run.h"\n'),
    ("arrows", "plugins/data/text/text.cpp", '#include "experiment/experiment.h"\n'),
    ("arrows", "plugins/data/text/text.cpp", '#include "../other/other.h"\n'),
    ("arrows", "plugins/data/text/text.cpp", "#include <curl/curl.h>\n"),
    ("arrows", "sdk/template/model.cpp", '#include "core/train/trainer.h"\n'),
    ("arrows", "tools/zerolab/a.cpp", '#include "plugins/data/text/text.h"\n'),
    ("doors", "core/store/a.cpp", "#include <toml++/toml.h>\n"),
    ("doors", "core/experiment/a.cpp", "#include <boost/dll.hpp>\n"),
    ("doors", "tools/zerolab/a.cpp", "#include <hdf5.h>\n"),
    ("doors", "core/train/a.cpp", "#include <torch/csrc/distributed/c10d/Store.hpp>\n"),
    ("doors", "core/host/a.cpp", "#  include <gloo/algorithm.h>\n"),
    ("doors", "core/host/a.cpp", "#include <CLI/CLI.hpp>\n"),
    ("formatters", "core/store/a.cpp", '#include <fmt/format.h>\n#include "zerolab/model.h"\n'),
    ("formatters", "core/store/a.h", "#pragma once\n// A.\n#include <spdlog/spdlog.h>\n"),
    ("core-names-no-plugin", "core/README.md", "Faster than zero2.\n"),
    ("core-names-no-plugin", "core/store/a.cpp", "// Not for DDP.\n"),
    ("core-names-no-plugin", "core/store/cosine.cpp", "\n"),
    ("plugin-folders", "plugins/data/text/CMakeLists.txt", "zerolab_add_plugin(data/text)\nset(A 1)\n"),
    ("plugin-folders", "plugins/data/text/CMakeLists.txt", None),
    ("root", "notes.txt", "\n"),
    ("root", "scripts/a.sh", "\n"),
    ("leftovers", "tests/a_test.cpp", "// TODO: more\n"),
    ("leftovers", "core/CMakeLists.txt", "# FIXME\n"),
    ("machine-paths", "tests/a_test.cpp", 'open("/root/a.txt");\n'),
    ("sizes", "core/store/a.cpp", "\n" * 401),
    ("sizes", "tools/zerolab/a.cpp", "//" + "a" * 99 + "\n"),
    ("headers", "core/store/a.h", "// A.\n#pragma once\n"),
    ("headers", "sdk/include/zerolab/a.h", "#pragma once\n#include <vector>\n"),
    ("documents", "README.md", "Run tools/walk now.\n"),
    ("documents", "experiments/README.md", "| `experiments/smoke/b.toml` |\n"),
    ("commands", "README.md", "```\n$ build/bin/zerolab walk a.toml\n```\n"),
]
BREACHES_BUILT = [  # (source of the plugin library, what is said)
    ("int zerolab_plugin() { return 1; }\nint more() { return 2; }\n" + "{section}", "exports more, zerolab_plugin"),
    ("int zerolab_plugin() { return 1; }\n", "no .zerolab section"),
    (None, "is not built"),
]
SECTION = '__attribute__((section(".zerolab"), used)) const char manifest[] = "";\n'
TOOL = '#!/bin/sh\n[ "$1" = run ]\n'


def write(root, file, content):
    path = Path(root, file)
    if content is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


class EachRule(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="zerolab-rules-"))
        self.addCleanup(shutil.rmtree, self.root)
        for file, content in GOOD_TREE.items():
            write(self.root, file, content)
        self.build = self.root / "build"
        write(self.root, "build/bin/zerolab", TOOL)
        (self.build / "bin/zerolab").chmod(0o755)
        self.library = self.build / "plugins/zerolab_data_text.so"
        self.library.parent.mkdir()
        if not hasattr(EachRule, "good_library"):
            EachRule.good_library = self.compile("int zerolab_plugin() { return 1; }\n" + SECTION).read_bytes()
        self.library.write_bytes(EachRule.good_library)

    def compile(self, source):
        code = 'extern "C" {\n' + source + "}\n"
        subprocess.run([COMPILER, "-shared", "-fPIC", "-nostdlib", "-x", "c++", "-", "-o", self.library],
                       input=code, text=True, check=True)
        return self.library

    def breaches(self):
        return rules.breaches(self.root, self.build)

    def test_a_good_tree_breaks_none(self):
        self.assertEqual(self.breaches(), [])

    def test_each_breach_is_found_by_its_rule_alone(self):
        for rule, file, content in BREACHES:
            with self.subTest(rule=rule, file=file, content=(content or "")[:60]):
                write(self.root, file, content)
                found = self.breaches()
                self.assertEqual({breach[0] for breach in found}, {rule}, found)
                self.assertEqual(found[0][1].rstrip("/").split("/")[0], file.split("/")[0])
                if file in GOOD_TREE:
                    write(self.root, file, GOOD_TREE[file])
                else:
                    write(self.root, file, None)

    def test_a_library_with_a_second_symbol_or_no_manifest_is_found(self):
        for source, said in BREACHES_BUILT:
            with self.subTest(said=said):
                self.library.unlink()
                if source is not None:
                    self.compile(source.replace("{section}", SECTION))
                found = self.breaches()
                self.assertEqual([breach[0] for breach in found], ["exports"], found)
                self.assertIn(said, found[0][3])

    def test_no_rule_goes_untested(self):
        tested = {rule for rule, _, _ in BREACHES} | {"exports"}
        self.assertEqual(tested, set(rules.SOURCE_RULES) | set(rules.BUILD_RULES))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        COMPILER = sys.argv.pop(1)
    unittest.main()
