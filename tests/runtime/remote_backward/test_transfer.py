"""Remote backward within one process: the gradients of autograd, to the bit."""

import gc
import pickle
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.errors import MismatchError
from penstock.model.blocks import find_blocks
from penstock.runtime.remote_backward.transfer import SENT, SavedTensorTransfer, make_recompute_message
from penstock.runtime.stage.stage import ComputeLoss, TorchStage
from penstock.runtime.stage.stage_job import StageJob
from penstock.runtime.tensors.packing import PackedPayload, pack, payload_from_meta
from penstock.runtime.tensors.rows import Rows
from tests.support.runtime import stages
from tests.support.runtime.stages import RECOMPUTED, TRANSFERABLE, Call

torch.set_num_threads(1)


def stage_of(make: Callable[[], nn.Sequential]) -> TorchStage:
    torch.manual_seed(1)
    model = make()
    return TorchStage(find_blocks(model), 0, model, seed=0, is_split=False, device=torch.device("cpu"))


def received(message: PackedPayload) -> PackedPayload:
    """The received payload: metadata unpickled, tensors copied."""
    meta = pickle.loads(pickle.dumps(message.meta))
    return payload_from_meta(meta, [tensor.clone() for tensor in message.tensors])


class Pair:
    """A rank with the forward, one with the backward, and a single process with both."""

    def __init__(self, make: Callable[[], nn.Sequential], *, defer: bool = False, stage: int = 1) -> None:
        self.local, self.remote, self.single = stage_of(make), stage_of(make), stage_of(make)
        self.sender, self.receiver = SavedTensorTransfer(), SavedTensorTransfer()
        self.defer, self.stage = defer, stage
        self.sent_bytes = 0

    def job(self, number: int, x: Tensor, compute_loss: ComputeLoss | None) -> StageJob:
        rows = Rows(number * len(x), (number + 1) * len(x))
        return StageJob(self.stage, 3, rows, compute_loss, self.defer, "signature", [x])

    def forward(
        self, number: int, x: Tensor, compute_loss: ComputeLoss | None = None, *, needs_grad: bool = True
    ) -> PackedPayload:
        """Run a forward; gives the message for its backward."""
        job = self.job(number, x, compute_loss)
        inputs = pack(x.clone().requires_grad_(needs_grad))[0]
        reason = self.sender.reason(self.local, inputs, job)
        if reason:
            again = inputs.with_tensors([tensor.clone() for tensor in inputs.tensors])
            self.local.run(again, 3, job.rows, compute_loss, keep=False, defer=False)
            return make_recompute_message(inputs, reason)
        _, message = self.sender.run(self.local, inputs, job, f"number {number}")
        self.sent_bytes = sum(tensor.numel() for tensor in message.tensors)
        return message

    def compare(
        self, inputs: Sequence[Tensor], compute_loss: ComputeLoss | None = None, *, needs_grad: bool = True
    ) -> None:
        """All forwards, then all backwards in reverse order, then all weight gradients."""
        pairs = []
        for number, x in enumerate(inputs):
            message = received(self.forward(number, x, compute_loss, needs_grad=needs_grad))
            payload, job = pack(x.clone().requires_grad_(needs_grad))[0], self.job(number, x, compute_loss)
            pairs.append(
                (message, job, *self.single.run(payload, 3, job.rows, compute_loss, keep=True, defer=self.defer))
            )
        waiting = []
        for message, job, out, expected in reversed(pairs):
            graph = self.receiver.graph(self.remote, message, job, None)
            grads: list[Tensor | None] = [
                None if index == 1 else torch.randn(tensor.shape).to(tensor)
                for index, (tensor, need) in enumerate(zip(out.tensors, out.needs_grad, strict=True))
                if need
            ]
            if compute_loss is not None:
                grads = [*graph.loss_grads]
            for one, other in zip(
                self.remote.backward(graph, grads), self.single.backward(expected, grads), strict=True
            ):
                assert (one is None) == (other is None)
                assert one is None or other is None or torch.equal(one, other)
            waiting.append((graph, expected))
        for graph, expected in waiting:
            self.remote.backward_weight(graph)
            self.single.backward_weight(expected)
        for name, parameter in self.single.parameters.items():
            actual = self.remote.parameters[name].grad
            assert (actual is None) == (parameter.grad is None)
            assert actual is None or parameter.grad is None or torch.equal(actual, parameter.grad)
        assert all(parameter.grad is None for parameter in self.local.parameters.values())
        for one, other in zip(self.local.buffers(), self.single.buffers(), strict=True):
            assert torch.equal(one, other)


def inputs_of(shape: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(2)
    return [torch.randn(shape) for _ in range(3)]


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("name", list(TRANSFERABLE))
def test_stages_whose_saved_tensors_are_sent(name: str, defer: bool) -> None:
    make, shape = TRANSFERABLE[name]
    pair = Pair(make, defer=defer)
    pair.compare(inputs_of(shape))
    assert pair.sender.mechanisms == pair.receiver.mechanisms == {1: SENT}


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("name", list(RECOMPUTED))
def test_stages_whose_forward_is_recomputed(name: str, defer: bool) -> None:
    make, reason = RECOMPUTED[name]
    pair = Pair(make, defer=defer)
    pair.compare(inputs_of(stages.FLAT))
    assert pair.sender.mechanisms == pair.receiver.mechanisms
    assert pair.sender.mechanisms[1].startswith("forward recomputed: ")
    assert reason in pair.sender.mechanisms[1]


@pytest.mark.parametrize("defer", [False, True])
def test_autocast(defer: bool) -> None:
    make, shape = TRANSFERABLE["attention with dropout"]
    pair = Pair(make, defer=defer)
    with torch.autocast("cpu", torch.bfloat16):
        pair.compare(inputs_of(shape))
    assert pair.receiver.mechanisms == {1: SENT}


@pytest.mark.parametrize("defer", [False, True])
def test_tokens_and_the_loss(defer: bool) -> None:
    def make() -> nn.Sequential:
        torch.manual_seed(1)
        made = nn.Sequential(nn.Embedding(7, 6), nn.Tanh(), nn.Linear(6, 7, bias=False))
        made[2].weight = made[0].weight
        return made

    targets = torch.arange(20) % 7

    def compute_loss(out: Any) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), targets) * 0.25

    pair = Pair(make, defer=defer)
    pair.compare([torch.randint(7, (4, 5)) for _ in range(3)], compute_loss, needs_grad=False)
    assert pair.receiver.mechanisms == {1: SENT}


def test_parameters_change_between_iterations() -> None:
    pair = Pair(TRANSFERABLE["mlp"][0])
    pair.compare(inputs_of(stages.FLAT))
    for runner in (pair.local, pair.remote, pair.single):
        for number, parameter in enumerate(runner.trained.values()):
            parameter.data.add_(0.1 * number)
            parameter.grad = None
    pair.compare(inputs_of(stages.FLAT))


def test_parameters_are_not_sent_and_memory_is_sent_once() -> None:
    pair = Pair(lambda: nn.Sequential(nn.Linear(100, 100), nn.Tanh(), nn.Tanh()))
    pair.forward(0, torch.randn(4, 100))
    # The input and two results, of 1,600 bytes each.
    assert pair.sent_bytes == 3 * 1600
    shared = Pair(lambda: nn.Sequential(Call(lambda x: (x * x.detach()).t() * x[:3, :3].sum())))
    shared.forward(0, torch.randn(100, 100))
    # The input as a whole, the product, and one number.
    assert shared.sent_bytes == 2 * 40_000 + 64


@pytest.mark.parametrize("defer", [False, True])
def test_casts_of_parameters_are_not_sent(defer: bool) -> None:
    pair = Pair(lambda: nn.Sequential(nn.Linear(100, 100)), defer=defer)
    with torch.autocast("cpu", torch.bfloat16):
        pair.forward(0, torch.randn(4, 100))
    assert pair.sent_bytes < 4000


def test_large_tensors_keep_their_offset_in_a_cache_line() -> None:
    pair = Pair(lambda: nn.Sequential(Call(lambda x: (x * 2)[1:].tanh() * (x * 3)[3:, 1:].sum())))
    pair.compare([torch.randn(300, 301) for _ in range(2)])
    message = pair.forward(0, torch.randn(300, 301))
    # The result of tanh begins a cache line. Its input does not, but is not saved.
    assert {ref.offset * 4 % 64 for ref in message.values[0].refs if ref.part > 0} == {0}
    turned = Pair(lambda: nn.Sequential(Call(lambda x: (x + 1)[1:].square() * 2)))
    message = turned.forward(0, torch.randn(300, 301))
    assert [ref.offset * 4 % 64 for ref in message.values[0].refs] == [0, 301 * 4 % 64]


def test_batches_may_lie_anywhere_in_a_larger_memory() -> None:
    local, remote = stage_of(TRANSFERABLE["mlp"][0]), stage_of(TRANSFERABLE["mlp"][0])
    sender, receiver = SavedTensorTransfer(), SavedTensorTransfer()
    samples = torch.randn(20, 6)
    for start in (0, 3, 5, 16):
        batch = samples[start : start + 4]
        job = StageJob(0, 0, Rows(0, 4), None, False, "signature", [batch])
        inputs = pack(batch)[0]
        assert not sender.reason(local, inputs, job)
        _, message = sender.run(local, inputs, job, "")
        remote.backward(receiver.graph(remote, received(message), job, inputs), [torch.ones(4, 6)])
    leaf = stage_of(TRANSFERABLE["mlp"][0])
    for start in (0, 3, 5, 16):
        _, graph = leaf.run(pack(samples[start : start + 4])[0], 0, Rows(0, 4), None, keep=True, defer=False)
        leaf.backward(graph, [torch.ones(4, 6)])
    for name, parameter in leaf.trained.items():
        actual = remote.trained[name].grad
        assert actual is not None
        assert parameter.grad is not None
        assert torch.equal(actual, parameter.grad)


def test_a_graph_that_changes_later_is_refused() -> None:
    pair = Pair(lambda: nn.Sequential(Call(stages.only_when_large)))
    pair.forward(0, torch.randn(4, 6))
    with pytest.raises(MismatchError, match="number 1: the autograd graph of the stage differs from an earlier one"):
        pair.forward(1, torch.full((4, 6), 100.0))
    experts = Pair(lambda: nn.Sequential(Call(_expert, nn.Linear(6, 6), nn.Linear(6, 6))))
    experts.forward(0, torch.randn(4, 6))
    with pytest.raises(MismatchError, match="differs from an earlier one"):
        experts.forward(1, torch.full((4, 6), 100.0))


def _expert(x: Tensor, one: nn.Module, other: nn.Module) -> Tensor:
    actual: Tensor = one(x) if float(x.detach().mean()) < 50 else other(x)
    return actual


def test_other_values_beside_the_tensors_make_another_graph() -> None:
    """The number in the payload is part of the graph: each gets its own."""
    make: Callable[[], nn.Sequential] = lambda: nn.Sequential(Call(lambda carry: carry[0] * carry[1]))  # noqa: E731
    local, remote = stage_of(make), stage_of(make)
    sender, receiver = SavedTensorTransfer(), SavedTensorTransfer()
    for number in (2, 3, 2):
        x = torch.randn(4, 6, requires_grad=True)
        job = StageJob(1, 0, Rows(0, 4), None, False, "signature", [])
        inputs = pack((x, number))[0]
        assert not sender.reason(local, inputs, job)
        _, message = sender.run(local, inputs, job, "")
        graph = receiver.graph(remote, received(message), job, None)
        (grad,) = remote.backward(graph, [torch.ones(4, 6)])
        assert grad is not None
        assert torch.equal(grad, torch.full((4, 6), float(number)))


def test_saved_tensors_changed_in_place_are_not_sent() -> None:
    pair = Pair(lambda: nn.Sequential(Call(stages.save_and_change)))
    pair.forward(0, torch.randn(4, 6))
    assert pair.sender.mechanisms == {1: "forward recomputed: it changes saved tensors in place"}


def test_nothing_is_kept_but_the_graph() -> None:
    make, shape = TRANSFERABLE["mlp"]
    pair = Pair(make, defer=True)
    pair.compare(inputs_of(shape))
    message = pair.forward(0, torch.randn(shape))
    arrived = received(message)
    left: list[weakref.ref[object]] = [weakref.ref(item) for item in (*message.tensors, *arrived.tensors)]
    x = torch.randn(shape)
    graph = pair.receiver.graph(pair.remote, arrived, pair.job(0, x, None), None)
    pair.remote.backward(graph, [torch.randn(4, 6)])
    pair.remote.backward_weight(graph)
    gc.disable()  # a reference cycle counts as a leak
    try:
        del message, arrived, graph
        assert [item() for item in left] == [None] * len(left)
    finally:
        gc.enable()


@pytest.mark.parametrize("defer", [False, True])
def test_the_forward_frees_the_memory_of_its_input(defer: bool) -> None:
    make, shape = TRANSFERABLE["mlp"]
    pair = Pair(make, defer=defer)
    pair.forward(0, torch.randn(shape))
    gc.disable()  # another rank may wait for this memory, so it must not depend on the garbage collector
    try:
        for number in range(3):
            view = memoryview(bytearray(torch.randn(shape).numpy().tobytes()))
            left = weakref.ref(view)
            x = torch.frombuffer(view, dtype=torch.float32).view(shape).requires_grad_()
            made = pair.sender.run(pair.local, pack(x)[0], pair.job(number, x, None), "description")
            del x, view, made
            assert left() is None
    finally:
        gc.enable()
