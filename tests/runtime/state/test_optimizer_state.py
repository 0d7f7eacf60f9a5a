"""Optimizers of several ranks: one layout, or an error that names the difference; and their restored state."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from penstock.errors import InputError, MismatchError
from penstock.model.blocks import find_blocks
from penstock.runtime.layout.layout import StageView
from penstock.runtime.state.optimizer_state import (
    OptimizerLayout,
    check_fits,
    describe_optimizer,
    merge_layouts,
    param_groups,
    restore_optimizer,
)
from penstock.runtime.state.state_index import holders, state_entries, writers

ORDER = {name: number for number, name in enumerate("abcdef")}


def sgd(*groups: tuple[dict[str, Any], str]) -> OptimizerLayout:
    return OptimizerLayout("torch.SGD", tuple((options, tuple(names)) for options, names in groups))


def test_optimizers_are_described_by_names() -> None:
    one, other, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(0))
    groups: list[dict[str, Any]] = [{"params": [one, unused], "lr": 0.5}, {"params": [other]}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    layout = describe_optimizer(optimizer, {one: "a", other: "b"})
    assert layout.kind == "torch.optim.sgd.SGD"
    assert [(options["lr"], options["momentum"], names) for options, names in layout.groups] == [
        (0.5, 0.9, ("a",)),
        (0.1, 0.9, ("b",)),
    ]
    assert not {"params", "param_names"} & layout.groups[0][0].keys()
    with pytest.raises(InputError, match=r"a parameter of shape \(3,\), which this rank does not train"):
        describe_optimizer(optimizer, {one: "a"})


def test_layouts_of_ranks_are_merged_in_the_order_of_the_model() -> None:
    options = {"lr": 0.1}
    ranks = [[sgd((options, "db"), ({"lr": 0.2}, ""))], [sgd((options, "ca"), ({"lr": 0.2}, "e"))]]
    (merged,) = merge_layouts(ranks, ORDER)
    assert merged == sgd((options, "abcd"), ({"lr": 0.2}, "e"))
    assert param_groups([merged]) == [{"lr": 0.1, "params": [*"abcd"]}, {"lr": 0.2, "params": ["e"]}]
    # A parameter that replicas hold is one parameter.
    assert merge_layouts([[sgd((options, "ab"))], [sgd((options, "bc"))]], ORDER) == (sgd((options, "abc")),)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([sgd(({}, "a"))], []),
        ([sgd(({}, "a"))], [sgd(({}, "b"), ({}, "c"))]),
        ([sgd(({}, "a"))], [OptimizerLayout("torch.Adam", (({}, ("b",)),))]),
        ([sgd(({}, "a")), OptimizerLayout("x", ())], [OptimizerLayout("x", ()), sgd(({}, "a"))]),
    ],
)
def test_ranks_with_other_optimizers_are_named(first: list[OptimizerLayout], second: list[OptimizerLayout]) -> None:
    with pytest.raises(MismatchError, match="rank 0 and rank 2 disagree on the optimizers"):
        merge_layouts([first, first, second], ORDER)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"lr": 0.1}, {"lr": 0.1}, True),
        ({"lr": 0.1}, {"lr": 0.2}, False),
        ({"lr": 0.1}, {}, False),
        ({}, {"lr": 0.1}, False),
        ({"lr": torch.tensor(0.1)}, {"lr": torch.tensor(0.1)}, True),
        ({"lr": torch.tensor(0.1)}, {"lr": torch.tensor(0.2)}, False),
        ({"lr": torch.tensor(0.5)}, {"lr": 0.5}, False),
        ({"lr": 0.5}, {"lr": torch.tensor(0.5)}, False),
    ],
)
def test_options_must_be_equal(one: dict[str, Any], other: dict[str, Any], is_same: bool) -> None:
    ranks = [[sgd((one, "a"))], [sgd((other, "b"))]]
    if is_same:
        merge_layouts(ranks, ORDER)
    else:
        with pytest.raises(MismatchError, match=r"optimizer option 'lr' is .* for 'a', but .* for 'b' on another rank"):
            merge_layouts(ranks, ORDER)
    # A rank without a parameter of the group has no say.
    assert merge_layouts([[sgd((other, ""))], [sgd((one, "a"))]], ORDER) == (sgd((one, "a")),)


def test_a_parameter_has_one_optimizer() -> None:
    with pytest.raises(InputError, match="parameter 'b' is in two optimizers or in two groups"):
        merge_layouts([[sgd(({}, "ab")), sgd(({}, "cb"))]], ORDER)
    with pytest.raises(InputError, match="parameter 'a' is in two optimizers or in two groups"):
        merge_layouts([[sgd(({}, "ab"), ({}, "ba"))]], ORDER)


def test_checkpoints_that_do_not_fit() -> None:
    merged = [sgd(({}, "ab"), ({}, "c"))]
    groups: list[dict[str, Any]] = [{"params": ["b", "a"]}, {"params": ["c"]}]
    check_fits(["torch.SGD"], groups, merged)
    with pytest.raises(MismatchError, match="has the state of Adam, but the pipeline has SGD"):
        check_fits(["torch.Adam"], groups, merged)
    with pytest.raises(MismatchError, match="has the state of no optimizer, but the pipeline has SGD"):
        check_fits([], groups, merged)
    with pytest.raises(MismatchError, match=r"in the checkpoint \(1\) must equal that of the optimizers \(2\)"):
        check_fits(["torch.SGD"], groups[:1], merged)
    with pytest.raises(MismatchError, match="'d' is in group 1 of the checkpoint, but not of the optimizer"):
        check_fits(["torch.SGD"], [groups[0], {"params": ["c", "d"]}], merged)
    with pytest.raises(MismatchError, match="'d' is in group 1 of the checkpoint"):
        check_fits(["torch.SGD"], [groups[0], {"params": ["f", "c", "d", "e"]}], merged)
    with pytest.raises(MismatchError, match="'b' is in group 0 of the optimizer, but not of the checkpoint"):
        check_fits(["torch.SGD"], [{"params": ["a"]}, groups[1]], merged)


def test_a_restored_optimizer_continues() -> None:
    def made() -> tuple[dict[str, nn.Parameter], torch.optim.Optimizer]:
        parameters = {name: nn.Parameter(torch.full((2,), float(number))) for number, name in enumerate("abc")}
        groups: list[dict[str, Any]] = [
            {"params": [parameters["b"], parameters["a"]]},
            {"params": [parameters["c"]], "lr": 0.5},
        ]
        return parameters, torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    def step(parameters: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        for number, name in enumerate("ab"):  # c has no gradient, so it has no state
            parameters[name].grad = torch.full((2,), 1.0 + number)
        optimizer.step()

    parameters, optimizer = made()
    step(parameters, optimizer)
    optimizer.param_groups[1]["lr"] = 0.25
    again, restored = made()
    with torch.no_grad():
        for name, item in again.items():
            item.copy_(parameters[name])
    names: dict[Tensor, str] = {item: name for name, item in again.items()}
    state = {name: deepcopy(optimizer.state[item]) for name, item in parameters.items() if optimizer.state.get(item)}
    groups = param_groups([describe_optimizer(optimizer, {item: name for name, item in parameters.items()})])
    restore_optimizer(restored, names, groups, state)
    assert [group["lr"] for group in restored.param_groups] == [0.1, 0.25]
    assert again["c"] not in restored.state
    for _ in range(2):
        step(parameters, optimizer)
        step(again, restored)
    for name, item in parameters.items():
        assert torch.equal(item, again[name])


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("kept", torch.zeros(3))
        self.register_buffer("left_out", torch.zeros(3), persistent=False)
        self.linear = nn.Linear(2, 2, bias=False)


def test_entries_are_those_of_the_state() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Shared(), nn.Linear(2, 2))
    model[2].weight = model[0].weight
    entries = state_entries(model)
    assert {key for entry in entries for key in entry.keys} == model.state_dict().keys()
    by_name = {entry.name: entry for entry in entries}
    assert by_name["0.weight"].keys == ("0.weight", "2.weight")
    assert {name for name, entry in by_name.items() if entry.is_parameter} == dict(model.named_parameters()).keys()
    for name, entry in by_name.items():
        tensor = model.state_dict()[name]
        assert (entry.shape, entry.dtype, entry.num_bytes) == (tuple(tensor.shape), tensor.dtype, tensor.nbytes)
        assert entry.tensor(model).data_ptr() == tensor.data_ptr()


def stage(start: int, stop: int, forward: tuple[int, ...], backward: tuple[int, ...]) -> StageView:
    return StageView(start, stop, (1 / len(forward),) * len(forward), forward, backward, False, False)


def test_writers_have_the_latest_values_and_share_the_bytes() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(3)))
    blocks = find_blocks(model)
    stages = [stage(0, 1, (0,), (0,)), stage(1, 2, (1,), (2,)), stage(2, 3, (3, 4), (4, 3))]
    entries = state_entries(model)
    chosen = writers(entries, holders(blocks, stages))
    assert chosen.keys() == {entry.name for entry in entries}
    trained, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    assert {chosen[name] for name in trained if name.startswith("0")} == {0}
    # Parameters are up to date where they are trained, buffers where the forward runs.
    assert {chosen[name] for name in trained if name.startswith("1")} == {2}
    assert {chosen[name] for name in buffers if name.startswith("1")} == {1}
    sizes = [sum(entry.num_bytes for entry in entries if chosen[entry.name] == rank) for rank in (3, 4)]
    largest = max(entry.num_bytes for entry in entries if entry.name.startswith("2"))
    assert abs(sizes[0] - sizes[1]) <= largest < min(sizes) + largest
    assert min(sizes) > 0
