"""The real models of transformers, built without memory for their parameters."""

import re
from collections import Counter
from typing import Any

import pytest
import torch

from penstock.profile.analytic.architectures import ARCHITECTURES


def library() -> Any:
    """The library. A test that needs it is skipped without it."""
    return pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")


def real_config(family: str, config: dict[str, Any]) -> Any:
    """The configuration of transformers from the contents of a config.json."""
    return library().AutoConfig.for_model(family).__class__.from_dict({**config, "model_type": family})


def class_of(family: str, config: dict[str, Any]) -> str:
    names = config.get("architectures") or list(ARCHITECTURES[family].CLASSES)
    return str(names[0])


def real_model(family: str, config: dict[str, Any], device: str = "meta") -> torch.nn.Module:
    """The model of the class that the configuration names, or of the family's usual class."""
    with torch.device(device):
        model = getattr(library(), class_of(family, config))(real_config(family, config))
    assert isinstance(model, torch.nn.Module)
    return model


def count(model: torch.nn.Module) -> int:
    """Parameters, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def block_counts(model: torch.nn.Module) -> Counter[str]:
    """Parameters of every block, by names such as "decoder.block.0"."""
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        match = re.search(r"(?:^|\.)(?:layers?|h|block)\.(\d+)\.", name)
        if match:
            side = re.search(r"(encoder|decoder|vision|text)(?:_model)?\.", name)
            prefix = f"{side[1]}." if side else ""
            counts[f"{prefix}block.{match[1]}"] += parameter.numel()
    return counts
