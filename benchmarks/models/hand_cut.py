"""Stages of Llama- and BERT-like models as users of torch.distributed.pipelining write them: by hand, layer by layer.

`torch.distributed.pipelining.pipeline`, which cuts an exported model, does not run these models. Stages written by hand
do. They leave out what the batches of the benchmark do not need: padding masks and caches.
"""

from typing import Any

import torch
from torch import Tensor, nn


class LlamaStage(nn.Module):
    """Layers of a Llama; the first stage with the embedding, the last with norm and head."""

    def __init__(self, model: Any, layers: range) -> None:
        super().__init__()
        base = model.model
        self.embedding = base.embed_tokens if not layers.start else None
        self.rotary = base.rotary_emb
        self.layers = nn.ModuleList(base.layers[number] for number in layers)
        is_last = layers.stop == len(base.layers)
        self.norm: Any = base.norm if is_last else None
        self.head: Any = model.lm_head if is_last else None

    def forward(self, x: Tensor) -> Tensor:
        """From tokens or activations to activations or logits."""
        hidden = x if self.embedding is None else self.embedding(x)
        positions = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
        rotary = self.rotary(hidden, positions)
        for layer in self.layers:
            hidden = layer(hidden, attention_mask=None, position_ids=positions, position_embeddings=rotary)
        if self.norm is None:
            return hidden
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class BertStage(nn.Module):
    """Layers of a BERT; the first stage with the embeddings, the last with the head."""

    def __init__(self, model: Any, layers: range) -> None:
        super().__init__()
        base = model.bert
        self.embeddings = base.embeddings if not layers.start else None
        self.layers = nn.ModuleList(base.encoder.layer[number] for number in layers)
        self.head = model.cls if layers.stop == len(base.encoder.layer) else None

    def forward(self, x: Tensor) -> Tensor:
        """From tokens or activations to activations or logits."""
        hidden: Any = x if self.embeddings is None else self.embeddings(x)
        for layer in self.layers:
            hidden = layer(hidden)
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        logits: Tensor = hidden if self.head is None else self.head(hidden)
        return logits


STAGES = {"LlamaForCausalLM": LlamaStage, "BertForMaskedLM": BertStage}


def cut_by_hand(name: str, model: Any, cut: int, rank: int) -> nn.Module:
    """Return the stage of one of two ranks, cut before a layer."""
    num = int(model.config.num_hidden_layers)
    return STAGES[name](model, range(cut) if rank == 0 else range(cut, num))
