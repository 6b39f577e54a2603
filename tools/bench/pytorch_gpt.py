#!/usr/bin/env python3
"""The model and the training loop of an experiment in plain PyTorch, timed step by step.

    pytorch_gpt.py CONFIG.toml [--ranks N] [--parallel KIND] [--threads N] [--compile] [--fused] [--validate]
                               [--weights FILE.safetensors] [--same-batches]

CONFIG.toml is what `zerolab show-config` prints, so that both sides train the same thing. It is the loop that a
PyTorch user writes: torch.nn modules, autograd, torch.optim.AdamW with its default implementation (--fused: with the
fused one), clip_grad_norm_, the loss read and printed at every step. With several ranks, over Gloo, --parallel says
how they share the work: DistributedDataParallel or another kind of pytorch_parallel.py.

Shapes: B sequences, T tokens, C channels, H heads, V vocabulary. Progress goes to standard error; standard output
gets one JSON object: step_seconds (whole iterations, of rank 0), tokens_per_step (of all ranks), parameters, losses
(of each step, the mean over its micro-batches, on rank 0), loss (the last of them), torch (its version), and with
--validate val_loss: over the whole validation part of a text, in windows of T that do not overlap, as zerolab cuts
them. --weights writes the weights that it starts from, under zerolab's names; with --same-batches each step takes the
samples that zerolab's does (one rank): the two curves then differ by rounding alone.
"""
import argparse
import contextlib
import json
import math
import os
import socket
import sys
import time
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import pytorch_parallel
from sample_order import SampleOrder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUPPORTED = {  # what this file knows to train; everything else is refused
    ("model", "plugin"): ("gpt",),
    ("model", "tie_embeddings"): (True,),
    ("model", "vocab_multiple"): (1,),
    ("data", "plugin"): ("text", "synthetic", "token_bin"),
    ("optimizer", "plugin"): ("adamw",),
    ("scheduler", "plugin"): ("cosine", "constant"),
    ("precision", "plugin"): ("fp32", "amp_bf16"),
}


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        C = m["embedding_dim"]
        self.num_heads = m["num_heads"]
        self.dropout, self.attention_dropout = m["dropout"], m["attention_dropout"]
        self.gelu = "tanh" if m["gelu"] == "tanh" else "none"
        self.attention_norm = nn.LayerNorm(C, bias=m["bias"])
        self.qkv = nn.Linear(C, 3 * C, bias=m["bias"])
        self.attention_out = nn.Linear(C, C, bias=m["bias"])
        self.mlp_norm = nn.LayerNorm(C, bias=m["bias"])
        self.mlp_in = nn.Linear(C, 4 * C, bias=m["bias"])
        self.mlp_out = nn.Linear(4 * C, C, bias=m["bias"])

    def attend(self, x_BTC):
        B, T, C = x_BTC.shape
        heads = [t.view(B, T, self.num_heads, C // self.num_heads).transpose(1, 2)
                 for t in self.qkv(x_BTC).chunk(3, dim=-1)]
        dropout = self.attention_dropout if self.training else 0.0
        mixed_BHTD = F.scaled_dot_product_attention(*heads, dropout_p=dropout, is_causal=True)
        return self.attention_out(mixed_BHTD.transpose(1, 2).reshape(B, T, C))

    def forward(self, x_BTC):
        x_BTC = x_BTC + F.dropout(self.attend(self.attention_norm(x_BTC)), self.dropout, self.training)
        hidden = F.gelu(self.mlp_in(self.mlp_norm(x_BTC)), approximate=self.gelu)
        return x_BTC + F.dropout(self.mlp_out(hidden), self.dropout, self.training)


class Gpt(nn.Module):
    def __init__(self, m, vocab_size, sequence_length):
        super().__init__()
        C = m["embedding_dim"]
        self.dropout = m["dropout"]
        self.tokens = nn.Embedding(vocab_size, C)
        self.positions = nn.Embedding(sequence_length, C)
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["num_layers"]))
        self.final_norm = nn.LayerNorm(C, bias=m["bias"])
        self.head = nn.Linear(C, vocab_size, bias=False)
        self.head.weight = self.tokens.weight
        depth = math.sqrt(2 * m["num_layers"]) if m["scaled_residual_init"] else 1
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=m["init_std"] / (depth if "_out." in name else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens_BT, targets_BT):
        positions_T = torch.arange(tokens_BT.shape[1])
        x_BTC = F.dropout(self.tokens(tokens_BT) + self.positions(positions_T), self.dropout, self.training)
        for block in self.blocks:
            x_BTC = block(x_BTC)
        logits_BTV = self.head(self.final_norm(x_BTC))
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


def packed_tokens(data):
    """As load_tokens, of one file that `zerolab tokenize` wrote; the last part validates."""
    [path] = data["path"]
    content = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    if bytes(content[:8]) != b"ZLTOKENS":
        sys.exit(f"pytorch_gpt.py: {path} is not a file that `zerolab tokenize` wrote")
    width, vocab_size = int(content[12:16].view("<u4")[0]), int(content[24:32].view("<u8")[0])
    tokens = torch.from_numpy(content[256:].view(f"<u{width}").astype(numpy.int64))
    train_length = int(len(tokens) * data["train_fraction"])
    return tokens[:train_length], tokens[train_length:], vocab_size


def load_tokens(data, seed, sequence_length):
    """The training tokens and the validation tokens, each in one tensor, and V."""
    if data["plugin"] == "synthetic":
        length = min(data["num_samples"] * sequence_length, 4_000_000)
        generator = torch.Generator().manual_seed(seed)
        tokens, vocab_size = torch.randint(data["vocab_size"], (length,), generator=generator), data["vocab_size"]
        return tokens, tokens, vocab_size
    if data["plugin"] == "token_bin":
        return packed_tokens(data)
    content = Path(data["path"]).read_bytes()
    if data["tokenizer"] == "char":
        text = content.decode()
        number = {character: i for i, character in enumerate(sorted(set(text)))}
        tokens, vocab_size = torch.tensor([number[c] for c in text]), len(number)
    else:
        tokens, vocab_size = torch.tensor(list(content)), 256
    train_length = int(len(tokens) * data["train_fraction"])
    return tokens[:train_length], tokens[train_length:], vocab_size


def random_batch(tokens, B, T):
    starts = torch.randint(len(tokens) - T, (B,)).tolist()
    return (torch.stack([tokens[s : s + T] for s in starts]),
            torch.stack([tokens[s + 1 : s + 1 + T] for s in starts]))


class SameBatches:
    """The samples of each step as zerolab draws them: windows that begin `stride` tokens apart."""

    def __init__(self, tokens, T, stride, seed):
        self.tokens, self.T, self.stride, self.next = tokens, T, stride, 0
        self.order = SampleOrder((len(tokens) - 1 - T) // stride + 1, seed)

    def draw(self, B):
        starts = [self.stride * self.order.index(self.next + i) for i in range(B)]
        self.next += B
        return (torch.stack([self.tokens[s : s + self.T] for s in starts]),
                torch.stack([self.tokens[s + 1 : s + 1 + self.T] for s in starts]))


def zerolab_name(name):
    for ours, theirs in (("tokens.", "wte."), ("positions.", "wpe."), ("attention_out.", "attention.proj."),
                         ("qkv.", "attention.qkv."), ("mlp_in.", "mlp.fc."), ("mlp_out.", "mlp.proj.")):
        name = name.replace(ours, theirs)
    return name


def write_weights(model, path):
    """As safetensors: the length of a header, the header, the values."""
    header, values, end = {}, [], 0
    for name, parameter in model.named_parameters():
        data = parameter.detach().numpy().astype("<f4").tobytes()
        header[zerolab_name(name)] = {"dtype": "F32", "shape": list(parameter.shape),
                                      "data_offsets": [end, end + len(data)]}
        values.append(data)
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(values))


@torch.no_grad()
def validation_loss(model, tokens, B, T):
    model.eval()
    windows = (len(tokens) - 1) // T
    inputs, targets = (tokens[o : o + windows * T].view(windows, T) for o in (0, 1))
    total = sum(model(x, y).item() * len(x) for x, y in zip(inputs.split(B), targets.split(B)))
    model.train()
    return total / windows


def learning_rate(scheduler, step, num_steps):
    lr, warmup = scheduler["lr"], scheduler["warmup_steps"]
    if step < warmup:
        return lr * (step + 1) / warmup
    if scheduler["plugin"] == "constant":
        return lr
    last = (scheduler["decay_steps"] or num_steps) - 1
    share = min(1.0, (step - warmup) / max(1, last - warmup))
    return scheduler["min_lr"] + (lr - scheduler["min_lr"]) * (1 + math.cos(math.pi * share)) / 2


def parameter_groups(model, weight_decay):
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]


def train(rank, config, arguments, port):
    torch.set_num_threads(arguments.threads)
    if arguments.ranks > 1:
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=arguments.ranks)
    B, T = config["batch"]["micro_batch_size"], config["batch"]["sequence_length"]
    accumulation = config["batch"]["gradient_accumulation_steps"]
    tokens, validation_tokens, vocab_size = load_tokens(config["data"], config["seed"], T)
    torch.manual_seed(config["seed"])  # the same initial weights on every rank
    model = Gpt(config["model"], vocab_size, T)
    num_parameters = sum(p.numel() for p in model.parameters())
    if arguments.weights:
        write_weights(model, arguments.weights)
    torch.manual_seed(config["seed"] + rank)
    trained = torch.compile(model) if arguments.compile else model
    adamw = {"betas": tuple(config["optimizer"]["betas"]), "eps": config["optimizer"]["eps"]}
    if arguments.fused:
        adamw["fused"] = True
    decay = config["optimizer"]["weight_decay"]
    if arguments.ranks > 1:
        trained, optimizer = pytorch_parallel.spread(arguments.parallel, trained, arguments.ranks,
                                                     lambda m: parameter_groups(m, decay), **adamw)
    else:
        optimizer = torch.optim.AdamW(parameter_groups(model, decay), **adamw)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=config["precision"]["plugin"] == "amp_bf16")

    if arguments.same_batches:
        # As data/text and data/token_bin cut them: the one has every window, the other those that do not overlap.
        stride = config["data"]["stride"] or T
        same = SameBatches(tokens, T, stride, config["seed"])

    def draw():
        return same.draw(B) if arguments.same_batches else random_batch(tokens, B, T)

    step_seconds, losses = [], []
    batch = draw()
    before = time.perf_counter()
    for step in range(config["steps"]):
        lr = learning_rate(config["scheduler"], step, config["steps"])
        for group in optimizer.param_groups:
            group["lr"] = lr
        total = 0.0
        for micro in range(accumulation):
            quiet = arguments.ranks > 1 and micro + 1 < accumulation
            with pytorch_parallel.without_reduction(arguments.parallel, trained) if quiet else contextlib.nullcontext():
                with autocast:
                    loss = trained(*batch) / accumulation
                batch = draw()
                total += loss.detach()
                loss.backward()
        if config["gradient_clipping"] > 0:
            nn.utils.clip_grad_norm_(model.parameters(), config["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = float(total)
        losses.append(value)
        now = time.perf_counter()
        step_seconds.append(now - before)
        before = now
        if rank == 0:
            print(f"step {step + 1}: loss {value:.4f}, {step_seconds[-1] * 1e3:.1f} ms", file=sys.stderr)

    if rank == 0:
        result = {"step_seconds": step_seconds, "tokens_per_step": B * T * accumulation * arguments.ranks,
                  "parameters": num_parameters, "loss": value, "losses": losses, "torch": torch.__version__}
        if arguments.validate:
            result["val_loss"] = validation_loss(model, validation_tokens, B, T)
        json.dump(result, sys.stdout)
    if arguments.ranks > 1:
        dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description="Trains an experiment in plain PyTorch and times its steps.")
    parser.add_argument("config", help="what `zerolab show-config` prints, in a file")
    parser.add_argument("--ranks", type=int, default=1, help="processes")
    parser.add_argument("--parallel", choices=pytorch_parallel.KINDS, default="ddp",
                        help="how several ranks share the work (default ddp)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each process")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument("--fused", action="store_true", help="the fused implementation of AdamW")
    parser.add_argument("--validate", action="store_true", help="adds the validation loss after the last step")
    parser.add_argument("--weights", metavar="FILE", help="write the weights that it starts from, as safetensors")
    parser.add_argument("--same-batches", action="store_true", help="train on the samples that zerolab trains on")
    arguments = parser.parse_args()
    if arguments.same_batches and arguments.ranks > 1:
        parser.error("--same-batches goes with one rank")
    if arguments.parallel.startswith("fsdp2") and (arguments.compile or arguments.validate):
        parser.error("--compile and --validate go with --parallel ddp and zero1")
    config = tomllib.loads(Path(arguments.config).read_text())
    for (table, key), allowed in SUPPORTED.items():
        value = config[table].get(key, allowed[0])
        if value not in allowed:
            sys.exit(f"pytorch_gpt.py: {table}.{key} is {value!r}; this comparison has only "
                     f"{' or '.join(map(repr, allowed))}")
    port = free_port() if arguments.ranks > 1 else 0
    if arguments.ranks == 1:
        train(0, config, arguments, port)
    else:
        torch.multiprocessing.spawn(train, (config, arguments, port), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
