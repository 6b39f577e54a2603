#!/usr/bin/env python3
"""Whether other programs load what `zerolab export` writes, and compute the recorded logits from it.

    load_there.py ZEROLAB

ZEROLAB is the program, build/bin/zerolab. Not part of the test suite: needs the packages of requirements.txt. For each
case a run begins with recorded weights (init_from) and takes one step with a learning rate that changes no float32;
its weights are exported under a layout and loaded by the program that the layout is of, with nothing missing and
nothing left over. Prints the largest difference of the logits, relative to the largest logit; exits with 1 above 1e-5.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import safetensors.torch
import torch
import transformers

import mini_gpt
import nanogpt

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-5
EXPERIMENT = """
name = "there"
steps = 1
init_from = "{weights}"
[model]
plugin = "{model}"
{options}
[data]
plugin = "synthetic"
vocab_size = {vocab}
num_samples = 8
num_validation_samples = 8
[batch]
sequence_length = {length}
micro_batch_size = 2
gradient_accumulation_steps = 1
[optimizer]
plugin = "adamw"
weight_decay = 0.0
[scheduler]
plugin = "constant"
lr = 1e-30
[precision]
plugin = "fp32"
[sharding]
plugin = "zero2"
"""


def toml(value):
    if isinstance(value, str):
        return f'"{value}"'
    if str(value) in ("True", "False"):
        return str(value).lower()
    return repr(value.item() if hasattr(value, "item") else value)


def pretrained(loader):
    """Through from_pretrained(), which tells what it did not find or did not know."""
    def load(folder, case):
        del case
        module, told = loader.from_pretrained(folder, output_loading_info=True)
        assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"], told
        return lambda tokens: module.eval()(tokens, use_cache=False).logits
    return load


def strict(make, forward):
    """Through load_state_dict(strict=True) of a module."""
    def load(folder, case):
        module = make(case)
        module.load_state_dict(safetensors.torch.load_file(folder / "model.safetensors"), strict=True)
        return lambda tokens: forward(module.eval(), tokens)
    return load


def nano(case):
    options = case["options"].attrs
    return nanogpt.NanoGpt(vocab=int(case.attrs["vocab_size"]), length=case["tokens"].shape[1],
                           layers=int(options["num_layers"]), heads=int(options["num_heads"]),
                           width=int(options["embedding_dim"]), bias=bool(options["bias"]))


GPT2, LLAMA = pretrained(transformers.GPT2LMHeadModel), pretrained(transformers.LlamaForCausalLM)
NANO = strict(nano, lambda m, tokens: m(tokens))
MINI = strict(lambda case: mini_gpt.MiniGpt(int(case["options"].attrs["num_heads"])),
              lambda m, tokens: m.train()(tokens, True))
CASES = [  # part, its group, model, layout, who loads it
    ("interop", "huggingface", "gpt", "huggingface", GPT2),
    ("interop", "huggingface", "gpt", "huggingface_base", GPT2),
    ("interop", "nanogpt", "gpt", "nanogpt", NANO),
    ("gpt", "untied", "gpt", "huggingface", GPT2),
    ("llama", "grouped", "llama", "huggingface", LLAMA),
    ("llama", "tied", "llama", "huggingface", LLAMA),
    ("mini_gpt", "causal", "mini_gpt", "pytorch", MINI),
]


def recorded_weights(case, folder):
    """The file that a run begins with."""
    if "path" in case.attrs:
        return HERE / case.attrs["path"]
    file = folder / "recorded.safetensors"
    weights = {name: torch.from_numpy(data[...]) for name, data in case["weights"].items()}
    safetensors.torch.save_file(weights, file)
    return file


def exported(zerolab, case, model, layout, folder):
    experiment = folder / "there.toml"
    options = "\n".join(f"{name} = {toml(value)}" for name, value in case["options"].attrs.items())
    experiment.write_text(EXPERIMENT.format(weights=recorded_weights(case, folder), model=model, options=options,
                                            vocab=case.attrs["vocab_size"], length=case["tokens"].shape[1]))
    out = folder / "out"
    subprocess.run([zerolab, "run", experiment, "--run-dir", folder / "run"], check=True, stdout=subprocess.DEVNULL)
    # The slash says that it is a folder, which gets the layout's config.json too.
    subprocess.run([zerolab, "export", folder / "run", "-o", f"{out}/", "--layout", layout], check=True,
                   stdout=subprocess.DEVNULL)
    return out


def difference(zerolab, part, name, model, layout, load):
    with h5py.File(HERE / f"{part}.h5") as golden, tempfile.TemporaryDirectory() as folder:
        case = golden[name]
        logits = load(exported(zerolab, case, model, layout, Path(folder)), case)
        expected = torch.from_numpy(case["logits"][...])
        with torch.no_grad():
            got = logits(torch.from_numpy(case["tokens"][...]))
    return ((got - expected).abs().max() / expected.abs().max()).item()


def main():
    parser = argparse.ArgumentParser(description="Loads exported weights in other programs.")
    parser.add_argument("zerolab", type=Path, help="the program, build/bin/zerolab")
    zerolab = parser.parse_args().zerolab.resolve()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    failed = False
    for part, name, model, layout, load in CASES:
        found = difference(zerolab, part, name, model, layout, load)
        failed = failed or not found <= TOLERANCE
        print(f"model/{model} ({part}/{name}) as {layout}: {found:.1e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
