"""Casts of parameters under autocast."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.model import find_blocks
from penstock.runtime.stage import TorchStage, keep_casts
from penstock.runtime.stage.cast_cache import cast_once
from penstock.runtime.tensors import Rows, pack

NUM_LAYERS, NUM_MICROBATCHES = 3, 3


class _Casts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the casts of tensors of the shape of a weight."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        is_cast = func is torch.ops.aten._to_copy.default and (kwargs or {}).get("dtype") is torch.bfloat16
        self.num += is_cast and args[0].shape == (16, 16)
        return func(*args, **(kwargs or {}))


def run(*, defer: bool) -> tuple[list[Tensor], int]:
    """Gradients of three micro-batches in flight at the same time, and the number of casts of weights."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(NUM_LAYERS)))
    stage = TorchStage(find_blocks(model), 0, model, seed=0, is_split=False, device=torch.device("cpu"))
    stage.begin()
    # Not as many rows as a weight has.
    batches = torch.randn(NUM_MICROBATCHES, 5, 16).unbind(0)
    with torch.autocast("cpu", torch.bfloat16), keep_casts(), _Casts() as casts:
        graphs = [
            stage.run(pack(x)[0], 0, Rows(0, 5), lambda out: out.float().square().mean(), keep=True, defer=defer)[1]
            for x in batches
        ]
        for graph in graphs:
            stage.backward(graph, graph.loss_grads)
            stage.backward_weight(graph)
    return [item.grad for item in model.parameters() if item.grad is not None], casts.num


def test_a_weight_is_cast_once_for_all_micro_batches() -> None:
    fused, num_fused = run(defer=False)
    split, num_split = run(defer=True)
    assert all(map(torch.equal, split, fused))
    assert len(fused) == 2 * NUM_LAYERS
    assert (num_fused, num_split) == (NUM_LAYERS, NUM_LAYERS)


def test_a_changed_weight_is_cast_again() -> None:
    weight = nn.Parameter(torch.ones(3))
    with keep_casts():
        first = cast_once(weight, torch.bfloat16)
        assert cast_once(weight, torch.bfloat16) is first
        assert cast_once(weight, torch.float16).dtype == torch.float16
        with torch.no_grad():
            weight.mul_(2)
        assert torch.equal(cast_once(weight, torch.bfloat16), torch.full((3,), 2, dtype=torch.bfloat16))
        with keep_casts():
            assert cast_once(weight, torch.bfloat16) is not cast_once(nn.Parameter(weight.clone()), torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_without_the_context_nothing_is_kept(dtype: torch.dtype) -> None:
    weight = nn.Parameter(torch.ones(3))
    assert cast_once(weight, dtype) is not cast_once(weight, dtype)
