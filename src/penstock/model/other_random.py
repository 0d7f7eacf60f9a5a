"""Random numbers of numpy and Python, which a forward must not draw: ranks would draw other ones."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from torch import nn

from penstock.errors import InputError


@contextmanager
def other_random_numbers() -> Iterator[list[str]]:
    """Context that finds out which of these libraries draw random numbers. They are in the list at its end."""
    drawn: list[str] = []
    of_numpy, of_python = _numpy_state(), random.getstate()
    yield drawn
    if _numpy_state() != of_numpy:
        drawn.append("numpy")
    if random.getstate() != of_python:
        drawn.append("random")


def _numpy_state() -> tuple[bytes, int]:
    state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return state["key"].tobytes(), int(state["pos"])


def not_repeatable(model: nn.Module, leaf: str, drawn: list[str]) -> InputError:
    """Return the error of a model that gives other results in two runs on the same inputs."""
    what = f"{type(model).__name__} is not repeatable: {leaf} of its output differs between two runs on the same inputs"
    if not drawn:
        return InputError(
            what, hint="Draw random numbers with torch only, and do not keep state in Python between runs."
        )
    masking = [
        f"model.{name}.config" if name else "model.config"
        for name, module in model.named_modules()
        if getattr(module.__dict__.get("config"), "apply_spec_augment", False) is True
    ]
    hint = "Draw them with torch, so that all ranks draw the same."
    if masking:
        hint = (
            f"Set {masking[0]}.apply_spec_augment = False: transformers draws the masks of SpecAugment with numpy. To "
            "train with such masks, mask the batch before it gets to the model."
        )
    return InputError(f"{what}, because it draws random numbers with {' and '.join(drawn)}", hint=hint)
