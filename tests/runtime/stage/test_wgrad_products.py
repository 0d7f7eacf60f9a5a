"""Deferred weight gradients of matrix products that a model calls itself have the bits of ordinary autograd."""

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from penstock.runtime.rng import RowRng
from penstock.runtime.stage.function_mode import StageFunctionMode
from penstock.runtime.stage.wgrad_products import PRODUCTS
from penstock.runtime.stage.wgrad_queue import WeightGradQueue
from penstock.runtime.tensors.rows import Rows
from tests.support.runtime.split_gradients import check

torch.set_num_threads(1)
RNG = RowRng(0, 0, Rows(0, 4), is_split=False, device=torch.device("cpu"))


class Call(nn.Module):
    """Calls a function of its input, behind an operation, and of its parameters."""

    def __init__(self, function: Callable[..., Tensor], *shapes: Sequence[int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.held = nn.ParameterList(nn.Parameter(torch.randn(*shape)) for shape in shapes)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(torch.tanh(x) if x.requires_grad else x, *self.held)


CALLS: dict[str, tuple[Callable[..., Tensor], Sequence[int], Sequence[Sequence[int]]]] = {
    "addmm": (lambda x, w, b: torch.addmm(b, x, w), (6, 8), [(8, 5), (5,)]),
    "addmm, bias by column": (lambda x, w, b: torch.addmm(b, x, w), (6, 8), [(8, 5), (6, 1)]),
    "addmm, scaled": (lambda x, w, b: torch.addmm(b, x, w, beta=0.5, alpha=3), (6, 8), [(8, 5), (5,)]),
    "addmm of a tensor": (lambda x, w, b: b.addmm(x, w), (6, 8), [(8, 5), (5,)]),
    "addmm of views": (lambda x, w, b: torch.addmm(b, x.view(-1, 8), w).view(3, 2, 5), (3, 2, 8), [(8, 5), (5,)]),
    "addmm, column-major": (lambda x, w, b: torch.addmm(b, x.t(), w), (8, 6), [(8, 5), (5,)]),
    "addmm, parameter first": (lambda x, w, b: torch.addmm(b, w, x), (6, 8), [(5, 6), (8,)]),
    "mm": (torch.mm, (6, 8), [(8, 5)]),
    "mm of a tensor": (lambda x, w: x.mm(mat2=w), (6, 8), [(8, 5)]),
    "mm of one row": (torch.mm, (1, 8), [(8, 5)]),
    "mm of one column": (torch.mm, (7, 1), [(1, 1)]),
    "matmul": (torch.matmul, (3, 6, 8), [(8, 5)]),
    "matmul of a vector": (torch.matmul, (3, 6, 8), [(8,)]),
    "matmul of matrices": (lambda x, w: x.matmul(w), (3, 6, 8), [(3, 8, 5)]),
    "matmul, broadcast": (lambda x, w: x @ w, (3, 1, 6, 8), [(4, 8, 5)]),
    "@": (lambda x, w: x @ w, (3, 6, 8), [(8, 5)]),
    "@, parameter first": (lambda x, w: w @ x, (3, 6, 8), [(5, 6)]),
    "@, not contiguous": (lambda x, w: x.transpose(0, 1) @ w, (3, 6, 8), [(8, 5)]),
    "@ of two parameters": (lambda x, v, w: x @ (v @ w), (3, 6, 8), [(8, 2), (2, 5)]),
    "@, transposed": (lambda x, w: x @ w.T, (3, 6, 8), [(5, 8)]),
    "@, transposed, not contiguous": (lambda x, w: x.transpose(0, 1) @ w.mT, (3, 6, 8), [(5, 8)]),
    "@, low rank": (lambda x, a, b: (x @ a.T) @ b.transpose(0, 1) * 2, (3, 6, 8), [(2, 8), (5, 2)]),
    "mm, transposed": (lambda x, w: torch.mm(x, w.t()), (6, 8), [(8, 8)]),
    "bmm": (torch.bmm, (3, 6, 8), [(3, 8, 5)]),
    "baddbmm": (lambda x, w, b: torch.baddbmm(b, x, w), (3, 6, 8), [(3, 8, 5), (3, 1, 5)]),
    "addbmm": (lambda x, w, b: torch.addbmm(b, x, w), (3, 6, 8), [(3, 8, 5), (6, 5)]),
    "einsum": (lambda x, w: torch.einsum("bsd,dhe->bhse", x, w), (3, 6, 8), [(8, 2, 4)]),
    "einsum of a list": (lambda x, w: torch.einsum("bsd,dhe->bhse", [x, w]), (3, 6, 8), [(8, 2, 4)]),
    "tensordot": (lambda x, w: torch.tensordot(x, w, dims=1), (3, 6, 8), [(8, 5)]),
    "conv_transpose1d": (lambda x, w, b: F.conv_transpose1d(x, w, b, 2), (3, 4, 9), [(4, 6, 3), (6,)]),
    "conv_transpose2d": (F.conv_transpose2d, (3, 4, 5, 5), [(4, 6, 3, 3), (6,)]),
    "bilinear": (lambda x, w, b: F.bilinear(x, x * 2, w, b), (6, 3), [(5, 3, 3), (5,)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_products(name: str) -> None:
    function, shape, shapes = CALLS[name]
    torch.manual_seed(0)
    check(Call(function, *shapes), torch.randn(shape))


@pytest.mark.parametrize("name", ["addmm", "addmm, bias by column", "addmm of views", "mm", "mm of one row"])
def test_products_under_autocast(name: str) -> None:
    function, shape, shapes = CALLS[name]
    torch.manual_seed(0)
    check(Call(function, *shapes), torch.randn(shape), bf16=True)


@pytest.mark.parametrize("name", CALLS)
def test_products_that_are_left_to_autograd_under_autocast(name: str) -> None:
    function, shape, shapes = CALLS[name]
    queue = WeightGradQueue()
    with torch.autocast("cpu", torch.bfloat16):
        expected = Call(function, *shapes)
        torch.manual_seed(1)
        x = torch.randn(shape, requires_grad=True)
        expected(x).float().square().sum().backward()
        found = Call(function, *shapes)
        rng = RowRng(0, 0, Rows(0, shape[0]), is_split=False, device=torch.device("cpu"))
        with StageFunctionMode(rng, queue.defer):
            out = found(x)
        with queue.capture_grads(list(found.parameters())):
            out.float().square().sum().backward()
        queue.run()
    for one, other in zip(expected.parameters(), found.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_the_input_needs_no_gradient() -> None:
    model = Call(lambda x, w: x.float() @ w, (4, 5))
    check(model, torch.randint(5, (3, 2, 4)))
    check(Call(lambda x, w, b: torch.addmm(b, x.float(), w), (4, 5), (5,)), torch.randint(5, (3, 4)))


@pytest.mark.parametrize("times", [2, 3, 4])
@pytest.mark.parametrize("name", ["addmm", "@", "einsum"])
def test_a_parameter_of_several_products_is_summed_in_the_same_order(name: str, times: int) -> None:
    once = {
        "addmm": lambda x, w, b: torch.addmm(b, x, w),
        "@": lambda x, w, b: x @ w + b,
        "einsum": lambda x, w, b: torch.einsum("ij,jk->ik", x, w) + b,
    }[name]

    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        for _ in range(times):
            x = torch.tanh(once(x, w, b))  # type: ignore[no-untyped-call]
        return x

    torch.manual_seed(0)
    num = 2 * times if name == "addmm" else times
    check(Call(function, (32, 32), (32,)), torch.randn(5, 32), num_deferred=num)


def test_gradients_of_an_input_used_elsewhere_have_the_same_bits() -> None:
    torch.manual_seed(0)
    check(Call(lambda x, w: torch.einsum("ij,jk,ij->ik", x, w, x) + x, (32, 32)), torch.randn(5, 32), num_deferred=0)
    check(Call(lambda x, w: x @ w @ w * x + x, (32, 32)), torch.randn(5, 32), num_deferred=2)
    check(Call(lambda x, w: torch.einsum("ij,jk,kl", x, w, w) + x, (32, 32)), torch.randn(5, 32), num_deferred=0)


def test_calls_that_are_left_to_autograd() -> None:
    torch.manual_seed(0)
    scaled = Call(lambda x, w: x @ (w * 2), (8, 8))
    check(scaled, torch.randn(5, 8), num_deferred=0)
    computed_bias = Call(lambda x, w, b: torch.addmm(b * 2, x, w), (8, 8), (8,))
    check(computed_bias, torch.randn(5, 8), num_deferred=1)
    masked = Call(lambda x, w: x @ w, (8, 8))
    masked.held[0].register_hook(lambda grad: grad * torch.eye(8))
    check(masked, torch.randn(5, 8), num_deferred=0)


def test_a_detached_leaf_is_an_input_and_no_parameter() -> None:
    """As the input of a layer that recomputes itself is."""
    weight = nn.Parameter(torch.randn(4, 4))
    for call in PRODUCTS:
        if call not in (torch.mm, torch.matmul, Tensor.__matmul__):
            continue
        x, queue = torch.randn(4, 4, requires_grad=True), WeightGradQueue()
        with StageFunctionMode(RNG, queue.defer):
            out = call(x, weight)
            other = call(x, torch.ones(4, 4))
        with queue.capture_grads([]):
            (out + other).sum().backward()
        assert x.grad is not None
        assert len(queue) == 1


def test_products_with_saved_tensor_hooks() -> None:
    """The graph of another rank can replay those whose operands are saved in the usual way."""
    weight, queue = nn.Parameter(torch.randn(4, 4)), WeightGradQueue()
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    x = torch.randn(4, 4, requires_grad=True) * 1
    with saved_tensors_hooks(pack, lambda tensor: tensor), StageFunctionMode(RNG, queue.defer):
        deferred, plain = torch.mm(x, weight), x @ weight
    assert len(saved) == 4
    assert type(deferred.grad_fn).__name__ == "_AddmmBackward"
    assert type(plain.grad_fn).__name__ == "MmBackward0"


def test_operands_changed_in_place_are_refused_as_torch_does() -> None:
    weight, queue = nn.Parameter(torch.randn(4, 4)), WeightGradQueue()
    for function in (torch.mm, torch.matmul):
        x = torch.randn(4, 4, requires_grad=True) * 1
        with StageFunctionMode(RNG, queue.defer):
            out = function(x, weight)
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"), queue.capture_grads([]):
            out.sum().backward()  # type: ignore[no-untyped-call]
