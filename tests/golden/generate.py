#!/usr/bin/env python3
"""Records what PyTorch and the like compute, for the tests beside this file. README.md says how to run it.

    generate.py [PART ...] [--seed N] [--out FOLDER]

Each part is a module beside this one with generate(group, seed), which fills the root of PART.h5. The same versions
and seed give the same bytes.
"""
import argparse
import importlib
import platform
import sys
from pathlib import Path

import h5py
import numpy
import torch

HERE = Path(__file__).resolve().parent
PARTS = ("accumulation", "bpe", "clip_norm", "gpt", "interop", "llama", "loss_scale", "mini_gpt", "optimizers",
         "schedules")
SEED = 1337


def record(part, seed, folder):
    module = importlib.import_module(part)
    file = folder / f"{part}.h5"
    with h5py.File(file, "w", libver=("v108", "v110")) as root:
        root.attrs["python"] = platform.python_version()
        root.attrs["torch"] = str(torch.__version__)
        root.attrs["numpy"] = numpy.__version__
        root.attrs["seed"] = seed
        root.attrs["command"] = f"python tests/golden/generate.py {part} --seed {seed}"
        module.generate(root, seed)
    return file


def main():
    parser = argparse.ArgumentParser(description="Records goldens.")
    parser.add_argument("part", nargs="*", metavar="PART", help="one of: " + ", ".join(PARTS) + "; all by default")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (default: beside this script)")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.part) - set(PARTS))
    if unknown:
        parser.error(f"no part is called {unknown[0]!r}; choose from {', '.join(PARTS)}")
    sys.path.insert(0, str(HERE))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for part in arguments.part or PARTS:
        file = record(part, arguments.seed, arguments.out)
        print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
