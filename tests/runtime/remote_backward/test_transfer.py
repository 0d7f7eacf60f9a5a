"""Forward here, backward there, in one process: the gradients of autograd, to the bit."""

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
from penstock.runtime.remote_backward.transfer import SHIPPED as TOLD_SHIPPED
from penstock.runtime.remote_backward.transfer import Shipping, input_message
from penstock.runtime.stage.stage import Finish, TorchStage
from penstock.runtime.stage.stage_job import Job
from penstock.runtime.tensors.packing import Packed, from_form, pack
from penstock.runtime.tensors.rows import Rows
from tests.support.runtime import stages
from tests.support.runtime.stages import AGAIN, SHIPPED, Call

torch.set_num_threads(1)


def stage_of(make: Callable[[], nn.Sequential]) -> TorchStage:
    torch.manual_seed(1)
    model = make()
    return TorchStage(find_blocks(model), 0, model, seed=0, is_split=False, device=torch.device("cpu"))


def sent(message: Packed) -> Packed:
    """What arrives: the form as bytes, the tensors as copies."""
    form = pickle.loads(pickle.dumps(message.form))
    return from_form(form, [tensor.clone() for tensor in message.tensors])


class Pair:
    """A rank that has the forward, one that has the backward, and one process that has both."""

    def __init__(self, make: Callable[[], nn.Sequential], *, defer: bool = False, stage: int = 1) -> None:
        self.here, self.there, self.alone = stage_of(make), stage_of(make), stage_of(make)
        self.sender, self.receiver = Shipping(), Shipping()
        self.defer, self.stage = defer, stage
        self.sent_bytes = 0

    def job(self, number: int, x: Tensor, finish: Finish | None) -> Job:
        rows = Rows(number * len(x), (number + 1) * len(x))
        return Job(self.stage, 3, rows, finish, self.defer, "signature", [x])

    def forward(self, number: int, x: Tensor, finish: Finish | None = None, *, moving: bool = True) -> Packed:
        """The message."""
        job = self.job(number, x, finish)
        given = pack(x.clone().requires_grad_(moving))[0]
        reason = self.sender.reason(self.here, given, job)
        if reason:
            again = given.with_tensors([tensor.clone() for tensor in given.tensors])
            self.here.run(again, 3, job.rows, finish, keep=False, defer=False)
            return input_message(given, reason)
        _, message = self.sender.run(self.here, given, job, f"number {number}")
        self.sent_bytes = sum(tensor.numel() for tensor in message.tensors)
        return message

    def compare(self, inputs: Sequence[Tensor], finish: Finish | None = None, *, moving: bool = True) -> None:
        """All forwards, then all backwards from the last to the first, then all weights."""
        pairs = []
        for number, x in enumerate(inputs):
            message = sent(self.forward(number, x, finish, moving=moving))
            given, job = pack(x.clone().requires_grad_(moving))[0], self.job(number, x, finish)
            pairs.append((message, job, *self.alone.run(given, 3, job.rows, finish, keep=True, defer=self.defer)))
        waiting = []
        for message, job, out, wanted in reversed(pairs):
            graph = self.receiver.graph(self.there, message, job, None)
            grads: list[Tensor | None] = [
                None if place == 1 else torch.randn(tensor.shape).to(tensor)
                for place, (tensor, need) in enumerate(zip(out.tensors, out.needs_grad, strict=True))
                if need
            ]
            if finish is not None:
                grads = [*graph.ones]
            for one, other in zip(self.there.backward(graph, grads), self.alone.backward(wanted, grads), strict=True):
                assert (one is None) == (other is None)
                assert one is None or other is None or torch.equal(one, other)
            waiting.append((graph, wanted))
        for graph, wanted in waiting:
            self.there.weights(graph)
            self.alone.weights(wanted)
        for name, parameter in self.alone.parameters.items():
            found = self.there.parameters[name].grad
            assert (found is None) == (parameter.grad is None)
            assert found is None or parameter.grad is None or torch.equal(found, parameter.grad)
        assert all(parameter.grad is None for parameter in self.here.parameters.values())
        for one, other in zip(self.here.buffers(), self.alone.buffers(), strict=True):
            assert torch.equal(one, other)


def inputs_of(shape: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(2)
    return [torch.randn(shape) for _ in range(3)]


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("name", list(SHIPPED))
def test_shipped_stages(name: str, defer: bool) -> None:
    make, shape = SHIPPED[name]
    pair = Pair(make, defer=defer)
    pair.compare(inputs_of(shape))
    assert pair.sender.found == pair.receiver.found == {1: TOLD_SHIPPED}


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("name", list(AGAIN))
def test_stages_whose_forward_runs_again(name: str, defer: bool) -> None:
    make, reason = AGAIN[name]
    pair = Pair(make, defer=defer)
    pair.compare(inputs_of(stages.FLAT))
    assert pair.sender.found == pair.receiver.found
    assert pair.sender.found[1].startswith("forward run again: ")
    assert reason in pair.sender.found[1]


@pytest.mark.parametrize("defer", [False, True])
def test_autocast(defer: bool) -> None:
    make, shape = SHIPPED["attention with dropout"]
    pair = Pair(make, defer=defer)
    with torch.autocast("cpu", torch.bfloat16):
        pair.compare(inputs_of(shape))
    assert pair.receiver.found == {1: TOLD_SHIPPED}


@pytest.mark.parametrize("defer", [False, True])
def test_tokens_and_the_loss(defer: bool) -> None:
    def make() -> nn.Sequential:
        torch.manual_seed(1)
        made = nn.Sequential(nn.Embedding(7, 6), nn.Tanh(), nn.Linear(6, 7, bias=False))
        made[2].weight = made[0].weight
        return made

    targets = torch.arange(20) % 7

    def finish(out: Any) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), targets) * 0.25

    pair = Pair(make, defer=defer)
    pair.compare([torch.randint(7, (4, 5)) for _ in range(3)], finish, moving=False)
    assert pair.receiver.found == {1: TOLD_SHIPPED}


def test_parameters_change_between_iterations() -> None:
    pair = Pair(SHIPPED["mlp"][0])
    pair.compare(inputs_of(stages.FLAT))
    for runner in (pair.here, pair.there, pair.alone):
        for number, parameter in enumerate(runner.trained.values()):
            parameter.data.add_(0.1 * number)
            parameter.grad = None
    pair.compare(inputs_of(stages.FLAT))


def test_parameters_do_not_travel_and_memory_travels_once() -> None:
    pair = Pair(lambda: nn.Sequential(nn.Linear(100, 100), nn.Tanh(), nn.Tanh()))
    pair.forward(0, torch.randn(4, 100))
    # The input and two results, of 1,600 bytes each.
    assert pair.sent_bytes == 3 * 1600
    shared = Pair(lambda: nn.Sequential(Call(lambda x: (x * x.detach()).t() * x[:3, :3].sum())))
    shared.forward(0, torch.randn(100, 100))
    # The input as a whole, the product, and one number.
    assert shared.sent_bytes == 2 * 40_000 + 64


@pytest.mark.parametrize("defer", [False, True])
def test_casts_of_parameters_do_not_travel(defer: bool) -> None:
    pair = Pair(lambda: nn.Sequential(nn.Linear(100, 100)), defer=defer)
    with torch.autocast("cpu", torch.bfloat16):
        pair.forward(0, torch.randn(4, 100))
    assert pair.sent_bytes < 4000


def test_large_tensors_keep_where_they_lie_in_a_line_of_memory() -> None:
    pair = Pair(lambda: nn.Sequential(Call(lambda x: (x * 2)[1:].tanh() * (x * 3)[3:, 1:].sum())))
    pair.compare([torch.randn(300, 301) for _ in range(2)])
    message = pair.forward(0, torch.randn(300, 301))
    # The result of tanh begins a line of memory; its input does not, but is not saved. What is saved as it lies:
    assert {piece.offset * 4 % 64 for piece in message.values[0].pieces if piece.part > 0} == {0}
    turned = Pair(lambda: nn.Sequential(Call(lambda x: (x + 1)[1:].square() * 2)))
    message = turned.forward(0, torch.randn(300, 301))
    assert [piece.offset * 4 % 64 for piece in message.values[0].pieces] == [0, 301 * 4 % 64]


def test_batches_may_lie_anywhere_in_a_larger_memory() -> None:
    here, there = stage_of(SHIPPED["mlp"][0]), stage_of(SHIPPED["mlp"][0])
    sender, receiver = Shipping(), Shipping()
    everything = torch.randn(20, 6)
    for start in (0, 3, 5, 16):
        batch = everything[start : start + 4]
        job = Job(0, 0, Rows(0, 4), None, False, "signature", [batch])
        given = pack(batch)[0]
        assert not sender.reason(here, given, job)
        _, message = sender.run(here, given, job, "")
        there.backward(receiver.graph(there, sent(message), job, given), [torch.ones(4, 6)])
    leaf = stage_of(SHIPPED["mlp"][0])
    for start in (0, 3, 5, 16):
        _, graph = leaf.run(pack(everything[start : start + 4])[0], 0, Rows(0, 4), None, keep=True, defer=False)
        leaf.backward(graph, [torch.ones(4, 6)])
    for name, parameter in leaf.trained.items():
        found = there.trained[name].grad
        assert found is not None
        assert parameter.grad is not None
        assert torch.equal(found, parameter.grad)


def test_a_way_that_changes_later_is_caught() -> None:
    pair = Pair(lambda: nn.Sequential(Call(stages.only_when_large)))
    pair.forward(0, torch.randn(4, 6))
    with pytest.raises(MismatchError, match="number 1: the stage's forward took another way than before"):
        pair.forward(1, torch.full((4, 6), 100.0))
    experts = Pair(lambda: nn.Sequential(Call(_expert, nn.Linear(6, 6), nn.Linear(6, 6))))
    experts.forward(0, torch.randn(4, 6))
    with pytest.raises(MismatchError, match="another way"):
        experts.forward(1, torch.full((4, 6), 100.0))


def _expert(x: Tensor, one: nn.Module, other: nn.Module) -> Tensor:
    found: Tensor = one(x) if float(x.detach().mean()) < 50 else other(x)
    return found


def test_other_values_beside_the_tensors_make_another_graph() -> None:
    """The number in the carry is part of the graph: each gets its own."""
    make: Callable[[], nn.Sequential] = lambda: nn.Sequential(Call(lambda carry: carry[0] * carry[1]))  # noqa: E731
    here, there = stage_of(make), stage_of(make)
    sender, receiver = Shipping(), Shipping()
    for number in (2, 3, 2):
        x = torch.randn(4, 6, requires_grad=True)
        job = Job(1, 0, Rows(0, 4), None, False, "signature", [])
        given = pack((x, number))[0]
        assert not sender.reason(here, given, job)
        _, message = sender.run(here, given, job, "")
        graph = receiver.graph(there, sent(message), job, None)
        (grad,) = there.backward(graph, [torch.ones(4, 6)])
        assert grad is not None
        assert torch.equal(grad, torch.full((4, 6), float(number)))


def test_what_was_saved_and_then_changed_runs_again() -> None:
    pair = Pair(lambda: nn.Sequential(Call(stages.save_and_change)))
    pair.forward(0, torch.randn(4, 6))
    assert pair.sender.found == {1: "forward run again: it changes in place what it has saved"}


def test_nothing_is_kept_but_the_graph() -> None:
    make, shape = SHIPPED["mlp"]
    pair = Pair(make, defer=True)
    pair.compare(inputs_of(shape))
    message = pair.forward(0, torch.randn(shape))
    arrived = sent(message)
    left: list[weakref.ref[object]] = [weakref.ref(item) for item in (*message.tensors, *arrived.tensors)]
    x = torch.randn(shape)
    graph = pair.receiver.graph(pair.there, arrived, pair.job(0, x, None), None)
    pair.there.backward(graph, [torch.randn(4, 6)])
    pair.there.weights(graph)
    gc.disable()  # what is only held in a circle counts as left behind
    try:
        del message, arrived, graph
        assert [item() for item in left] == [None] * len(left)
    finally:
        gc.enable()


@pytest.mark.parametrize("defer", [False, True])
def test_the_forward_lets_go_of_the_memory_of_its_input(defer: bool) -> None:
    make, shape = SHIPPED["mlp"]
    pair = Pair(make, defer=defer)
    pair.forward(0, torch.randn(shape))
    gc.disable()  # another rank may wait for this memory: it must not wait for Python's search for circles
    try:
        for number in range(3):
            view = memoryview(bytearray(torch.randn(shape).numpy().tobytes()))
            left = weakref.ref(view)
            x = torch.frombuffer(view, dtype=torch.float32).view(shape).requires_grad_()
            made = pair.sender.run(pair.here, pack(x)[0], pair.job(number, x, None), "told")
            del x, view, made
            assert left() is None
    finally:
        gc.enable()
