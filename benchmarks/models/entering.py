"""The Python time of entering a model in the middle, by the depth at which it is entered."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.models.batches import language
from benchmarks.models.transformers_models import make
from benchmarks.results import Result
from penstock.model import Block, find_blocks

NUM_LAYERS = 32
DEPTHS = (1, 4, 8, 16, 24, 31, 32)
"""Layers of Llama. A stage that begins with one enters the model there."""
TARGET_S = 2e-4
GROWTH_S = 5e-5
"""The allowed difference between the deepest and the first entry."""


def entering_s(repeats: int, *, is_padded: bool) -> dict[int, float]:
    """CPU seconds of a stage's first block beyond those of its module, by depth; the least of many passes."""
    torch.set_num_threads(1)
    model: Any = make("LlamaForCausalLM", language, num_hidden_layers=NUM_LAYERS)[0]
    batch = language(model.config)
    if not is_padded:
        batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
    blocks = find_blocks(model, None, batch)
    names = [block.name for block in blocks]
    activations: list[Any] = [batch]
    for block in blocks:
        activations.append(block.call(activations[-1], batch))
    found = {}
    with torch.no_grad():
        for depth in DEPTHS:
            number = names.index(f"model.layers.{depth - 1}")
            block = blocks[number]
            # Another dict is another pass, for which the values that follow from the inputs are computed again.
            entered = partial(_enter, block, activations[number], batch)
            args, kwargs = _arguments_of(block.module, model, batch)
            alone = partial(block.module, *args, **kwargs)
            found[depth] = _least_s(entered, repeats) - _least_s(alone, repeats)
    return found


def _arguments_of(module: nn.Module, model: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[Any, Any]:
    """The arguments with which the model calls a module."""
    seen: list[tuple[Any, Any]] = []

    def note(_module: nn.Module, args: Any, kwargs: Any) -> None:
        seen.append((args, kwargs))

    handle = module.register_forward_pre_hook(note, with_kwargs=True)
    model(**batch, use_cache=False)
    handle.remove()
    return seen[0]


def _enter(block: Block, activations: Any, batch: dict[str, torch.Tensor]) -> None:
    block.call(activations, dict(batch))


def _least_s(function: Callable[[], Any], repeats: int) -> float:
    least = float("inf")
    for _ in range(repeats):
        begun = time.process_time_ns()
        function()
        least = min(least, time.process_time_ns() - begun)
    return least * 1e-9


def check_entering(*, quick: bool) -> Iterator[Result]:
    """The targets, and the curves."""
    for is_padded in (False, True):
        found = entering_s(60 if quick else 300, is_padded=is_padded)
        rows = "with a padded row" if is_padded else "without padding"
        curve = ", ".join(f"{depth}: {seconds * 1e3:.3f}" for depth, seconds in found.items())
        print(f"  {rows}, ms by the layer where it enters: {curve}")
        worst, growth = max(found.values()), found[DEPTHS[-1]] - found[DEPTHS[0]]
        what = f"enter a Llama of {NUM_LAYERS} layers, {rows}"
        target = f"<= {TARGET_S * 1e3:g} ms"
        yield Result(f"{what}: per stage and pass", target, f"{worst * 1e3:.3f} ms at most", worst <= TARGET_S, True)
        target = f"<= +{GROWTH_S * 1e3:g} ms"
        yield Result(f"{what}: last layer", target, f"{growth * 1e3:+.3f} ms", growth <= GROWTH_S)
