"""model/mini_gpt against a torch.nn.TransformerEncoder between an embedding and a head."""
import torch
from torch import nn

import recorded_model

VOCAB, LENGTH, LAYERS, WIDTH, FEED_FORWARD = 19, 8, 2, 8, 20
SETTINGS = {"causal": (2, True), "one_head": (1, True), "encoder": (2, False)}  # heads, causal


class MiniGpt(nn.Module):
    def __init__(self, heads):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, heads, FEED_FORWARD, dropout=0.0, batch_first=True)
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens, causal):
        length = tokens.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1) if causal else None
        return self.head(self.encoder(self.embedding(tokens), mask=mask))


def generate(group, seed):
    for number, (title, (heads, causal)) in enumerate(SETTINGS.items()):
        generator = torch.Generator().manual_seed(seed + number)
        module = MiniGpt(heads)  # in training, where PyTorch takes no shortcut; there is no dropout
        recorded_model.spread(module, generator)
        recorded_model.record(
            group.create_group(title), module=module, forward=lambda m, tokens, c=causal: m(tokens, c),
            model="mini_gpt", vocab=VOCAB, length=LENGTH, layout="pytorch", generator=generator, causal=causal,
            options={"num_layers": LAYERS, "num_heads": heads, "embedding_dim": WIDTH,
                     "dim_feedforward": FEED_FORWARD, "causal": causal})
