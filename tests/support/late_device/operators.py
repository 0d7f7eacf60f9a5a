"""Runs operators of torch on the test device and on the CPU, forward and backward, with torch's own samples."""

from collections.abc import Collection
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from tests.support.late_device.device import NAME, Settings, take_inference_failures
from tests.support.late_device.ranks import checked_device

UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
NO_SPARSE_TENSORS = {"sparse.sampled_addmm", "sparse.mm"}
HOST_ARGUMENTS = {"tensor_split"}
"""They require tensors on the CPU beside those on the device."""


def compare_operators(names: Collection[str] | None, num_samples: int, settings: Settings) -> tuple[int, list[str]]:
    """Return how many operators were compared, and those that differ. Without names: all that torch has samples for."""
    from torch.testing._internal.common_methods_invocations import op_db

    num, different = 0, []
    for operator in op_db:
        is_left_out = operator.name in UNINITIALIZED | NO_SPARSE_TENSORS | HOST_ARGUMENTS
        if is_left_out or not operator.supports_dtype(torch.float32, "cpu") or (names and operator.name not in names):
            continue
        with checked_device(settings):
            error = _compare(operator, num_samples)
            take_inference_failures()
        num += 1
        if error:
            different.append(f"{operator.name} {operator.variant_test_name}: {error}")
    return num, different


def _compare(operator: Any, num_samples: int) -> str | None:
    samples = operator.sample_inputs("cpu", torch.float32, requires_grad=operator.supports_autograd)
    for _, sample in zip(range(num_samples), samples, strict=False):
        try:
            expected = _run(operator, sample, "cpu")
        except Exception:  # some samples are not for the CPU
            continue
        try:
            found = _run(operator, sample, NAME)
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:200]}"
        if len(found) != len(expected) or not all(map(_is_equal, found, expected)):
            return "other values"
    return None


def _run(operator: Any, sample: Any, device: str) -> list[torch.Tensor | None]:
    """Results and gradients, on the CPU."""

    def move(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device(device)
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().to(device).requires_grad_(value.requires_grad)

    first, arguments, named = tree_map(move, (sample.input, list(sample.args), dict(sample.kwargs)))
    if "device" in named:
        named["device"] = device
    torch.manual_seed(0)
    outputs = [item for item in tree_flatten(operator(first, *arguments, **named))[0] if isinstance(item, torch.Tensor)]
    leaves = [item for item in tree_flatten((first, arguments, named))[0] if _needs_grad(item)]
    ends = [item for item in outputs if item.requires_grad]
    grads: list[torch.Tensor | None] = []
    if ends and leaves:
        torch.manual_seed(1)
        seeds = [torch.ones_like(item) for item in ends]
        grads = list(torch.autograd.grad(ends, leaves, seeds, allow_unused=True))
    return [None if item is None else item.detach().cpu() for item in [*outputs, *grads]]


def _needs_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    return torch.equal(one.nan_to_num(), other.nan_to_num()) if one.is_floating_point() else torch.equal(one, other)
