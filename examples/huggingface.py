"""A Hugging Face Llama with its own loss, a DataLoader of dicts that pads each batch, and a scheduler.

penstock profile examples/huggingface.py -b 4 --threads 1 -o llama.json
penstock plan --profile llama.json --cluster examples/clusters/this-machine.toml -m 4 -o plan.json
penstock check plan.json --numerics examples/huggingface.py
penstock train examples/huggingface.py --plan plan.json --steps 20 --checkpoint checkpoints
penstock train examples/huggingface.py --plan plan.json --steps 40 --checkpoint checkpoints

The last command resumes from the checkpoint of the one before. Nothing is downloaded: the weights are random, and the
text is counted in steps of 1 to 5. Needs the extra `hf`: pip install 'penstock[run,hf]'.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

VOCABULARY = 64
PAD = 0
MAX_LENGTH = 48
MICRO_BATCH_SIZE = 4


class Counting(Dataset[list[int]]):
    """Texts that count upwards in steps, each with its own start, step and length."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> list[int]:
        """Return the tokens of a text."""
        step, length = 1 + index % 5, MAX_LENGTH // 2 + index * 7 % (MAX_LENGTH // 2 + 1)
        return [1 + (index + step * position) % (VOCABULARY - 1) for position in range(length)]


def collate(texts: list[list[int]]) -> dict[str, Tensor]:
    """Pad the texts of a batch to the longest. Padding is masked, and its labels are ignored."""
    length = max(map(len, texts))
    ids = torch.tensor([text + [PAD] * (length - len(text)) for text in texts])
    mask = (torch.arange(length) < torch.tensor([[len(text)] for text in texts])).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def make_model() -> tuple[nn.Module, dict[str, Tensor]]:
    """Return the model and the inputs of one micro-batch. The model computes its own loss from the labels."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=PAD,
    )
    return LlamaForCausalLM(config), next(iter(make_batches(MICRO_BATCH_SIZE)))


def make_batches(num_rows: int) -> DataLoader[Any]:
    """Return a DataLoader of the batches."""
    return DataLoader(Counting(), batch_size=num_rows, shuffle=True, collate_fn=collate, drop_last=True)


def make_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer for the parameters that a rank holds."""
    return torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.01)


def make_scheduler(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a scheduler with a warm-up."""
    return get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=5, num_training_steps=200)
