"""The parts of the loss: who sends to whom, and the order and types in which they are summed."""

import functools
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn

from penstock.dist import Describe
from penstock.dist.consensus.rank_tree import FAN_OUT
from penstock.errors import InputError
from penstock.model.state import eval_mode
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.forward_only import select_forwards
from penstock.runtime.executor.loss import DTYPES, LossExchange, loss_tree, part_tree
from penstock.runtime.layout.layout import Layout, StageView
from tests.support.runtime.assembly import PLAN, build

if TYPE_CHECKING:
    from penstock.runtime.transport.protocol import Transport

FIRST_TAG = 40


class Wires:
    """Messages between ranks, each on a thread of this process."""

    def __init__(self) -> None:
        self.queues: defaultdict[tuple[int, int, int], Queue[Tensor]] = defaultdict(Queue)
        """By sender, receiver and tag."""
        self.sent: list[tuple[int, int, int]] = []

    def of(self, rank: int) -> "Wire":
        return Wire(self, rank)


class Wire:
    """The transport of a rank. A peer is checked before anything is received from it."""

    def __init__(self, wires: Wires, rank: int) -> None:
        self._wires, self._rank = wires, rank
        self.checked: list[int] = []

    def send_tensors(self, tensors: list[Tensor], peer: int, tag: int, describe: Describe) -> None:
        assert describe() == f"rank {self._rank}, step 3, the loss (with rank {peer})"
        (message,) = tensors
        self._wires.sent.append((self._rank, peer, tag))
        self._wires.queues[self._rank, peer, tag].put(message)

    def check_peer(self, peer: int, describe: Describe) -> None:
        self.checked.append(peer)

    def irecv_tensor(self, tensor: Tensor, peer: int, tag: int, describe: Describe) -> Callable[[], Any]:
        assert peer in self.checked
        return lambda: tensor.copy_(self._wires.queues[peer, self._rank, tag].get(timeout=20.0))

    def wait(self, work: Callable[[], Any], describe: Describe) -> None:
        work()


def layout_of(*owners: int, num_microbatches: int = 2) -> Layout:
    last = StageView(0, 1, (1 / len(owners),) * len(owners), owners, owners, recompute=False, needs_sync=False)
    return Layout(tuple(f"d{rank}" for rank in range(1 + max(owners))), (last,), num_microbatches, ())


def exchange(layout: Layout, num_rows: int, parts: dict[int, Tensor], num_ranks: int = 4) -> list[Tensor]:
    """The loss on every rank. Ranks with a part send it."""
    wires = Wires()

    def run(rank: int) -> Tensor:
        batch = torch.zeros(num_rows)
        iteration = Iteration(3, batch, batch, num_rows, layout.rows(num_rows), "form", torch.device("cpu"), FIRST_TAG)
        losses = LossExchange(layout, rank, num_ranks, cast("Transport", wires.of(rank)))
        if rank in parts:
            losses.sender(iteration)(parts[rank])
            assert iteration.own_loss is parts[rank]
        return losses.collect(iteration)

    if any(part.dtype not in DTYPES for part in parts.values()):
        run(*parts)
    with ThreadPoolExecutor(num_ranks) as threads:
        found = list(threads.map(run, range(num_ranks)))
    # Up to the first replica, then down to every rank, also to those that the plan does not use; each once.
    up = {(child, parent) for parent, child in part_tree(layout).edges()}
    expected = up | set(loss_tree(layout, num_ranks).edges())
    assert sorted(wires.sent) == sorted((source, target, FIRST_TAG) for source, target in expected)
    assert all(queue.empty() for queue in wires.queues.values())
    return found


def test_every_rank_has_the_loss() -> None:
    found = exchange(layout_of(2), 6, {2: torch.tensor(1.25)})
    assert [item.item() for item in found] == [1.25] * 4


def test_messages_of_a_rank_do_not_grow_with_the_ranks() -> None:
    """Twenty replicas among forty ranks: parts and sums go through other ranks, in the order of the replicas."""
    owners = tuple(range(3, 23))
    layout = layout_of(*owners, num_microbatches=1)
    parts = {rank: torch.tensor(10.0 ** (rank % 9)) for rank in owners}
    expected = functools.reduce(torch.add, (parts[rank] for rank in owners))
    assert expected != functools.reduce(torch.add, (parts[rank] for rank in reversed(owners)))
    assert [item.item() for item in exchange(layout, 20, parts, 40)] == [expected.item()] * 40
    for tree in (part_tree(layout), loss_tree(layout, 1024)):
        assert max(len(tree.children(parent)) for parent, _ in tree.edges()) == FAN_OUT
    assert loss_tree(layout, 1024).height(owners[0]) == 4


def test_parts_are_summed_in_the_order_of_the_replicas() -> None:
    # In another order, the bits differ.
    parts = {0: torch.tensor(1.0), 1: torch.tensor(1e8), 2: torch.tensor(-1e8)}
    for owners in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        first, second, third = (parts[rank] for rank in owners)
        expected = (first + second) + third
        assert [item.item() for item in exchange(layout_of(*owners), 6, parts)] == [expected.item()] * 4
    assert exchange(layout_of(0, 1, 2), 6, parts)[3].item() != exchange(layout_of(1, 2, 0), 6, parts)[3].item()


def test_replicas_without_rows_have_no_part() -> None:
    # One row in each of two micro-batches: the second replica has none.
    layout = layout_of(0, 1)
    rows = [[part.num for part in parts] for parts in layout.rows(2)[0]]
    (empty,) = [rank for rank in range(2) if not any(row[rank] for row in rows)]
    assert [item.item() for item in exchange(layout, 2, {1 - empty: torch.tensor(3.5)})] == [3.5] * 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_keep_their_type_and_bits(dtype: torch.dtype) -> None:
    part = (torch.tensor(1.0, dtype=torch.float64) / 3).to(dtype)
    for item in exchange(layout_of(1), 6, {1: part}):
        assert item.dtype == dtype
        assert torch.equal(item, part)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_arrives(value: float) -> None:
    for item in exchange(layout_of(1), 6, {1: torch.tensor(value)}):
        assert torch.equal(item.nan_to_num(7.0), torch.tensor(value).nan_to_num(7.0))


def test_a_loss_must_be_a_real_number() -> None:
    with pytest.raises(InputError, match=r"the loss has dtype torch\.complex64"):
        exchange(layout_of(1), 6, {1: torch.tensor(1 + 1j)})
    with pytest.raises(InputError, match=r"the loss has dtype torch\.int64"):
        exchange(layout_of(1), 6, {1: torch.tensor(1)})


def test_evaluation_runs_the_forwards_of_a_program_in_its_order() -> None:
    _, compiled, _ = build("mlp", PLAN, 0)
    actions = list(compiled.proof.program.actions("d0"))
    forwards = [str(item) for item in select_forwards(actions)]
    assert forwards == [str(item) for item in actions if item.kind.name in ("F", "SEND_F", "RECV_F")]
    assert len(forwards) == 6


def test_the_mode_of_every_module_is_restored() -> None:
    inner = nn.Sequential(nn.Dropout(), nn.Linear(1, 1))
    model = nn.Sequential(nn.Dropout(), inner)
    inner.eval()
    inner[1].train()
    before = [module.training for module in model.modules()]
    assert before == [True, True, False, False, True]

    def fail() -> None:
        with eval_mode(model):
            assert not any(module.training for module in model.modules())
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        fail()
    assert [module.training for module in model.modules()] == before
