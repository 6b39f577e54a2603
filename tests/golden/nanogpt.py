"""The GPT-2 family in plain torch, with the names that nanoGPT gives to its weights.

Positions can be left out and the head can have a bias, which nanoGPT does not do.
"""
import torch
from torch import nn
from torch.nn import functional


class Norm(nn.Module):
    eps = 1e-5

    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class Attention(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        sequences, length, width = x.shape
        q, k, v = (part.view(sequences, length, self.heads, -1).transpose(1, 2) for part in
                   self.c_attn(x).split(width, dim=2))
        scores = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return self.c_proj(mixed.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    def __init__(self, width, bias, gelu):
        super().__init__()
        self.gelu = "tanh" if gelu == "tanh" else "none"
        self.c_fc = nn.Linear(width, 4 * width, bias=bias)
        self.c_proj = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate=self.gelu))


class Block(nn.Module):
    def __init__(self, width, heads, bias, gelu):
        super().__init__()
        self.ln_1 = Norm(width, bias)
        self.attn = Attention(width, heads, bias)
        self.ln_2 = Norm(width, bias)
        self.mlp = Mlp(width, bias, gelu)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGpt(nn.Module):
    def __init__(self, *, vocab, length, layers, heads, width, bias=True, tied=True, gelu="exact", positions=True,
                 head_bias=False, eps=1e-5):
        super().__init__()
        parts = {"wte": nn.Embedding(vocab, width)}
        if positions:
            parts["wpe"] = nn.Embedding(length, width)
        parts["h"] = nn.ModuleList(Block(width, heads, bias, gelu) for _ in range(layers))
        parts["ln_f"] = Norm(width, bias)
        self.transformer = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(width, vocab, bias=head_bias)
        if tied:
            self.lm_head.weight = self.transformer.wte.weight
        for module in self.modules():
            if isinstance(module, Norm):
                module.eps = eps

    def forward(self, tokens):
        parts = self.transformer
        x = parts.wte(tokens)
        if "wpe" in parts:
            x = x + parts.wpe.weight[:tokens.shape[1]]
        for block in parts.h:
            x = block(x)
        return self.lm_head(parts.ln_f(x))
