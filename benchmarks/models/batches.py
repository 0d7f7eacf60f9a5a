"""Batches of four rows for small models, drawn from a seed."""

from typing import Any

import torch
from torch import Tensor

from benchmarks.models.small_configs import WORDS

ROWS, LENGTH, LABELS_LENGTH = 4, 12, 9
FIRST_WORD = 5
"""Smaller tokens have a meaning, such as padding."""


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def words(length: int = LENGTH, seed: int = 1, rows: int = ROWS, vocabulary: int = WORDS) -> Tensor:
    """Random tokens."""
    return torch.randint(FIRST_WORD, vocabulary, (rows, length), generator=_generator(seed))


def mask_of(ids: Tensor) -> Tensor:
    """An attention mask in which the last row is padded."""
    mask = torch.ones_like(ids)
    mask[-1, -2:] = 0
    return mask


def numbers(*shape: int, seed: int = 2) -> Tensor:
    """Random numbers for every row."""
    return torch.randn(ROWS, *shape, generator=_generator(seed))


def classes() -> Tensor:
    """One of two classes for every row."""
    return torch.randint(0, 2, (ROWS,), generator=_generator(3))


def language(_config: Any) -> dict[str, Tensor]:
    """Tokens whose labels are the tokens."""
    ids = words()
    return {"input_ids": ids, "attention_mask": mask_of(ids), "labels": ids.clone()}


def text_classes(_config: Any) -> dict[str, Tensor]:
    """Tokens with a class for every row."""
    ids = words()
    return {"input_ids": ids, "attention_mask": mask_of(ids), "labels": classes()}


def answers(_config: Any) -> dict[str, Tensor]:
    """Tokens with the first and the last token of an answer."""
    ids = words()
    return {
        "input_ids": ids,
        "attention_mask": mask_of(ids),
        "start_positions": classes(),
        "end_positions": classes() + 2,
    }


def translation(_config: Any) -> dict[str, Tensor]:
    """Tokens of two languages."""
    ids = words()
    return {"input_ids": ids, "attention_mask": mask_of(ids), "labels": words(LABELS_LENGTH, seed=4)}


def images(config: Any) -> dict[str, Tensor]:
    """Images with a class each."""
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 32
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return {"pixel_values": numbers(getattr(vision, "num_channels", 3), height, width), "labels": classes()}


def sounds(_config: Any) -> dict[str, Tensor]:
    """Sound waves with a class each."""
    return {"input_values": numbers(1000), "labels": classes()}


def speech(_config: Any) -> dict[str, Tensor]:
    """Sound waves with a text."""
    return {"input_values": numbers(4000), "labels": words(5)}


def spectra(config: Any) -> dict[str, Tensor]:
    """Spectra with a text."""
    return {
        "input_features": numbers(config.num_mel_bins, 2 * config.max_source_positions),
        "labels": words(LABELS_LENGTH, seed=4),
    }


def pictures_and_text(config: Any) -> dict[str, Tensor]:
    """A picture in the text of every row. Its tokens are at other positions in other rows."""
    image = config.vision_config
    text = language(config)
    num_tokens = (image.image_size // image.patch_size) ** 2
    token = getattr(config, "image_token_id", None) or config.image_token_index
    ids = torch.cat([text["input_ids"], words(num_tokens, seed=7)], 1)
    for row in range(ROWS):
        ids[row, row + 1 : row + 1 + num_tokens] = token
    labels = words(ids.shape[1], seed=8)
    mask = torch.ones_like(ids)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "pixel_values": numbers(3, image.image_size, image.image_size),
        "labels": labels,
    }


def patches_and_text(config: Any) -> dict[str, Tensor]:
    """A picture of 4 x 4 patches in the text of every row. The patches of all rows are in one tensor."""
    image = config.vision_config
    ids = torch.cat([words(), words(4, seed=7)], 1)
    for row in range(ROWS):
        ids[row, row + 1 : row + 5] = config.image_token_id
    channels = getattr(image, "in_channels", None) or getattr(image, "in_chans", 3)
    patches = numbers(16, channels * image.temporal_patch_size * image.patch_size**2)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == config.image_token_id).long(),
        "pixel_values": patches.flatten(0, 1),
        "image_grid_thw": torch.tensor([[1, 4, 4]] * ROWS),
        "labels": words(ids.shape[1], seed=8),
    }


def series(config: Any) -> dict[str, Tensor]:
    """Time series, and how they continue."""
    channels = config.num_input_channels
    return {
        "past_values": numbers(config.context_length, channels),
        "future_values": numbers(config.prediction_length, channels, seed=3),
    }
