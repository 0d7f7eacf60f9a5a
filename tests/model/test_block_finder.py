"""The blocks of a model: children, named or detected submodules; and errors where a model cannot be split."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from penstock.errors import InputError
from penstock.model.blocks import find_blocks, parameters_of, shared_parameters
from tests.support.model_cases import GPT, VGG


def test_a_sequential_is_its_children() -> None:
    tied = nn.Linear(3, 3)
    model = nn.Sequential(tied, nn.ReLU(), tied, nn.BatchNorm1d(3))
    blocks = find_blocks(model)
    assert [block.name for block in blocks] == ["0", "1", "2", "3"]
    assert [block.module for block in blocks] == list(model)
    assert [list(names) for names in parameters_of(blocks)] == [
        ["0.weight", "0.bias"],
        [],
        ["0.weight", "0.bias"],
        ["3.weight", "3.bias"],
    ]
    assert shared_parameters(blocks) == {"0.weight": (0, 2), "0.bias": (0, 2)}
    assert list(blocks[3].buffers) == ["3.running_mean", "3.running_var", "3.num_batches_tracked"]
    x = torch.randn(4, 3)
    activations = x
    for block in blocks:
        activations = block.call(activations, x)
    model[3].reset_running_stats()  # type: ignore[operator]
    assert torch.equal(activations, model(x))


def test_a_sequential_can_have_coarser_blocks() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU())
    blocks = find_blocks(model, ["0", "2"], torch.ones(3, 2))
    x = torch.randn(5, 2)
    assert torch.equal(blocks[1].call(blocks[0].call(x), x), model(x))


def test_an_empty_sequential() -> None:
    with pytest.raises(InputError, match="empty"):
        find_blocks(nn.Sequential())


def test_another_model_needs_inputs() -> None:
    with pytest.raises(InputError, match=r"GPT is not an nn.Sequential.*sample inputs\n.*inputs="):
        find_blocks(GPT())


def test_detects_items_of_lists_and_modules_beside_them() -> None:
    ids, images = torch.zeros(2, 7, dtype=torch.long), torch.randn(2, 3, 8, 8)
    names = [block.name for block in find_blocks(GPT(), None, ids)]
    assert names == ["embed", "place", "layers.0", "layers.1", "layers.2", "norm", "head"]
    assert [block.name for block in find_blocks(VGG(), None, images)] == [
        "features.0",
        "features.1",
        "features.2",
        "classifier",
    ]


def test_several_lists_in_the_order_of_the_calls() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.after = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
            self.before = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for part in self.before:
                x = part(x)
            result: Tensor = self.after(x)
            return result

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Linear(2, 2)
            self.twice, self.head = nn.Linear(2, 2), nn.Linear(2, 2)
            self.parts = nn.ModuleDict({"inner": Inner(), "stem": nn.Linear(2, 2)})

        def forward(self, x: Tensor) -> Tensor:
            x = self.parts["inner"](self.twice(self.parts["stem"](x)))
            result: Tensor = self.head(self.twice(x))
            return result

    model = Outer()
    blocks = find_blocks(model, None, torch.randn(3, 2))
    assert [block.name for block in blocks] == [
        "parts.stem", "parts.inner.before.0", "parts.inner.before.1", "parts.inner.after.0", "parts.inner.after.2",
        "head",
    ]  # fmt: skip
    # Modules called twice belong to the blocks before them; modules never called, to the last.
    assert shared_parameters(blocks) == {"twice.weight": (0, 4), "twice.bias": (0, 4)}
    assert list(blocks[-1].parameters) == ["head.weight", "head.bias", "unused.weight", "unused.bias"]


class Once(nn.Module):
    """Calls one layer several times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(self.layer(x))
        result: Tensor = self.head(x)
        return result


def test_a_module_that_is_called_again_is_several_blocks() -> None:
    model, x = Once(), torch.randn(4, 3)
    blocks = find_blocks(model, ["layer", "layer", "layer", "head"], x)
    assert [block.name for block in blocks] == ["layer", "layer (2)", "layer (3)", "head"]
    assert shared_parameters(blocks) == {"layer.weight": (0, 1, 2), "layer.bias": (0, 1, 2)}
    activations: Any = x
    for block in blocks:
        activations = block.call(activations, x)
    assert torch.equal(activations, model(x))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["layer", "head"], "calls block 'layer' where block 'head' was expected"),
        (["head", "layer"], "calls block 'layer' where block 'head' was expected"),
        (["layer"] * 4, "did not call block 'layer'"),
        (["layer"] * 2, "calls block 'layer' once more"),
        (["layer", "tail"], "Once has no submodule 'tail'"),
        ([], "the list of blocks is empty"),
        ([""], "Once has no submodule ''"),
    ],
)
def test_names_in_the_wrong_order_are_refused(names: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_blocks(Once(), names, torch.randn(4, 3))


def test_blocks_inside_of_blocks_are_refused() -> None:
    with pytest.raises(InputError, match=r"'layers.0.mlp' is part of block 'layers.0'"):
        find_blocks(GPT(), ["layers.0", "layers.0.mlp"], torch.zeros(2, 7, dtype=torch.long))


def test_without_a_list_the_blocks_are_the_children() -> None:
    assert [block.name for block in find_blocks(Once(), None, torch.ones(2, 3))] == [
        "layer",
        "layer (2)",
        "layer (3)",
        "head",
    ]

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Once()

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.inner(x)
            return result

    assert [block.name for block in find_blocks(Wrapped(), None, torch.ones(2, 3))][::3] == [
        "inner.layer",
        "inner.head",
    ]


def test_a_single_module_has_no_blocks() -> None:
    with pytest.raises(InputError, match="blocks of Linear: forward calls fewer than two modules with parameters"):
        find_blocks(nn.Linear(2, 2), None, torch.ones(2, 2))


def test_an_item_that_all_positions_share() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.groups = nn.ModuleList([nn.Linear(3, 3)])
            self.head = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = torch.tanh(self.groups[0](x))
            result: Tensor = self.head(x)
            return result

    blocks = find_blocks(Shared(), None, torch.ones(2, 3))
    assert [block.name for block in blocks] == ["groups.0", "groups.0 (2)", "groups.0 (3)", "head"]


def test_blocks_in_a_dict() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleDict({name: nn.Linear(3, 3) for name in ("low", "middle", "high")})
            self.head = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers.values():
                x = torch.tanh(layer(x))
            result: Tensor = self.head(x)
            return result

    names = [block.name for block in find_blocks(Named(), None, torch.ones(2, 3))]
    assert names == ["layers.low", "layers.middle", "layers.high", "head"]


def test_the_models_own_plan_names_the_list() -> None:
    class Planned(nn.Module):
        pp_plan: ClassVar = {"layers": (["x"], ["x"])}

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for layer in self.layers:
                x = layer(x)
            return x

    names = [block.name for block in find_blocks(Planned(), None, torch.ones(2, 3))]
    assert names == ["stem", "layers.0", "layers.1"]


def test_a_list_whose_items_are_not_called_one_after_another() -> None:
    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.parts[0].weight + self.parts[1].weight)  # type: ignore[operator]

    with pytest.raises(InputError, match="forward does not call the items of parts"):
        find_blocks(Weights(), None, torch.ones(2, 2))


class Chain(nn.Module):
    """Two blocks."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
        self.register_buffer("count", torch.zeros(()))

    def last(self, x: Tensor) -> Tensor:
        result: Tensor = self.parts[1](x)
        return result


class Replaces(Chain):
    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        return self.last(self.parts[0](x))


class SharesState(Chain):
    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.last(self.parts[0](x)) * self.count


class Adds(nn.Linear):
    hidden: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.hidden


class Hides(Chain):
    """Passes a tensor outside of arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.parts[1] = Adds(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.parts[1].hidden = torch.sin(x)
        return self.last(self.parts[0](x))


class Numbers(Chain):
    """Converts a tensor to Python numbers and back."""

    def forward(self, x: Tensor) -> Tensor:
        numbers = torch.sin(x).tolist()
        return self.last(self.parts[0](x)) + torch.tensor(numbers)


def test_numbers_that_go_through_python_are_handed_on() -> None:
    model, x = Numbers(), torch.randn(2, 2)
    blocks = find_blocks(model, None, x)
    other = torch.randn(3, 2)
    assert torch.equal(blocks[1].call(blocks[0].call(other), other), model(other))


class ByRows(Chain):
    """Takes another path for other rows."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.parts[0](x)
        return self.last(y if len(x) < 3 else torch.sin(y))


class ByValue(Chain):
    """Takes another path for other data of the inputs."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.parts[0](x)
        return self.last(y if x.sum() < 0 else torch.sin(y) * torch.relu(x))


class Square(Chain):
    """A shape that grows with the square of the rows."""

    def forward(self, x: Tensor) -> Tensor:
        pairs = (x @ x.T).flatten()
        return self.last(self.parts[0](x)) + pairs.sum()


class Pairs(Chain):
    """A block whose result grows with the square of the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.parts[0].forward = lambda x: (x @ x.T).flatten()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.parts[0](x)[: 2 * len(x)].view(-1, 2))


class ByMask(Chain):
    """Counts the elements that a mask of the inputs, in the form of a result, selects."""

    def __init__(self, expand: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.expand = expand

    def forward(self, x: Tensor) -> Tensor:
        y = self.parts[0](x)
        mask = self.expand(x[:, :1] > 0, y)
        return self.last(torch.sin(y) if y[mask].numel() > 2 else y)


def test_a_mask_of_the_inputs_in_the_form_of_a_result() -> None:
    for expand in (
        lambda mask, like: mask.expand_as(like),
        lambda mask, like: mask.expand_as(like).to(like).bool(),
        lambda mask, like: mask.repeat(1, 2).view_as(like),
        lambda mask, like: torch.cat([mask, mask], 1).reshape_as(like).type_as(like) > 0,
    ):
        model = ByMask(expand)
        blocks = find_blocks(model, None, torch.ones(3, 2))
        for x in (torch.ones(3, 2), -torch.ones(3, 2), torch.tensor([[1.0, 1.0], [-1.0, 1.0]])):
            assert torch.equal(blocks[1].call(blocks[0].call(x), x), model(x))


@pytest.mark.parametrize("kind", [ByRows, ByValue, Square])
def test_every_kind_of_input_has_a_trace_of_its_own(kind: type[Chain]) -> None:
    model = kind()
    blocks = find_blocks(model, None, torch.randn(2, 2))
    for rows in (1, 2, 3, 5, 2):
        for sign in (1, -1):
            x = sign * torch.rand(rows, 2)
            assert torch.equal(blocks[1].call(blocks[0].call(x), x), model(x))


class Bare(Chain):
    """A block that returns an unsupported type."""

    def __init__(self) -> None:
        super().__init__()
        self.parts[0].forward = lambda x: {1.5: x, "mean": x.mean().item()}

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.parts[0](x)[1.5])


class Reentrant(Chain):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(self.parts[0], x, use_reentrant=True))


class Together(Chain):
    """Recomputes several blocks together."""

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(lambda y: self.last(self.parts[1](self.parts[0](y)) * 2), x, use_reentrant=False)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Reentrant, r"calls block 'parts.0' inside an autograd function, as (.|\n)*Pass use_reentrant=False"),
        (Together, r"checkpoint contains the blocks 'parts.0' and 'parts.1'(.|\n)*Checkpoint each block by itself"),
        (Replaces, "forward replaces buffer 'count'"),
        (SharesState, "changes 'count' near block 'parts.0' and uses it near block 'parts.1'"),
        (Bare, "block 'parts.0' returns a float, which cannot be sent to another stage"),
        (Hides, "block 'parts.1': forward computes aten.add.Tensor with the result of 'sin' near block 'parts.0'"),
    ],
)
def test_models_that_cannot_be_split(model: type[Chain], words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_blocks(model(), None, torch.randn(2, 2))


def test_a_tensor_that_only_looks_as_if_it_had_rows() -> None:
    class Biased(Chain):
        def forward(self, x: Tensor, bias: Tensor) -> Tensor:
            return self.last(self.parts[0](x)) + bias

    with pytest.raises(InputError, match=r"runs on 2 rows but fails on 4: RuntimeError(.|\n)*another number of rows"):
        find_blocks(Biased(), None, (torch.randn(2, 2), torch.randn(2)))
    assert len(find_blocks(Biased(), None, (torch.randn(3, 2), torch.randn(2)))) == 2


def test_a_model_that_gives_other_results_at_every_run_raises() -> None:
    class Counts(Chain):
        """Counts its calls in Python, and every block calls forward again."""

        turn = 0

        def forward(self, x: Tensor) -> Tensor:
            self.turn += 1
            return self.last(self.parts[0](x) * self.turn)

    with pytest.raises(InputError, match=r"Counts is not repeatable: .* differs between two runs"):
        find_blocks(Counts(), None, torch.randn(2, 2))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # torch's, of the sum of a placeholder
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_no_cut_divides_a_checkpointed_part(use_reentrant: bool) -> None:
    """Without the checkpoint, the cut lies behind the mean, which is the smallest value."""

    class Widens(nn.Module):
        def __init__(self, *, is_checkpointed: bool) -> None:
            super().__init__()
            self.is_checkpointed = is_checkpointed
            self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(6, 2), nn.Linear(6, 2)])

        def forward(self, x: Tensor) -> Tensor:
            def widen(y: Tensor) -> Tensor:
                y = y.mean(1, keepdim=True)
                return torch.cat([y * factor for factor in range(6)], 1)

            for number, layer in enumerate(self.layers):
                if number:
                    x = checkpoint(widen, x, use_reentrant=use_reentrant) if self.is_checkpointed else widen(x)
                x = layer(x)
            return x

    found = []
    for is_checkpointed, behind in ((True, 1), (False, 0)):
        torch.manual_seed(0)
        model, x = Widens(is_checkpointed=is_checkpointed), torch.randn(3, 2)
        blocks = find_blocks(model, None, x)
        events = blocks[0].call.traces.find(x).record.events  # type: ignore[attr-defined]
        assert {event.unit for event in events if event.name == "mean"} == {behind, 1 + behind}
        activations = x
        for block in blocks:
            activations = block.call(activations, x)
        activations.sum().backward()  # type: ignore[no-untyped-call]
        found.append([parameter.grad for parameter in model.parameters()])
    assert all(map(torch.equal, *found))


class Selects(nn.Module):
    """Uses Python numbers that follow from how many labels count: before, between or after its layers."""

    def __init__(self, place: str, how: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        self.place, self.how = place, how

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        scale = self.scale(x, labels) if self.place == "before" else 1.0
        y = self.layers[1](self.layers[0](x))
        if self.place == "between":
            scale = self.scale(y, labels)
        y = self.layers[2](y)
        if self.place == "after":
            scale = self.scale(y, labels)
        result: Tensor = y * scale
        return result

    def scale(self, y: Tensor, labels: Tensor) -> float:
        mask = labels >= 0
        size: int = {
            "rows of a result": lambda: len(y[mask]),
            "indices": lambda: len(mask.nonzero()[:, 0]),
            "values": lambda: torch.masked_select(labels, mask).numel(),
            "different values": lambda: torch.unique(labels).numel(),  # type: ignore[no-untyped-call]
            "repeats": lambda: y.repeat_interleave(mask.long(), 0).shape[0],
            "a slice": lambda: len(labels[: mask.sum()]),
            "empty": lambda: 1 if y[mask].numel() else 2,
        }[self.how]()
        return 1 / (size + 1)


@pytest.mark.parametrize("place", ["before", "between", "after"])
@pytest.mark.parametrize(
    "how", ["rows of a result", "indices", "values", "different values", "repeats", "a slice", "empty"]
)
def test_sizes_that_depend_on_data_are_those_of_the_inputs(place: str, how: str) -> None:
    model, x = Selects(place, how), torch.randn(6, 3)
    sample = torch.tensor([-1, -1, 0, 1, 2, 3])
    blocks = find_blocks(model, None, {"x": x, "labels": sample})
    for num in (2, 0, 1, 6, 5, 3, 2):
        inputs = {"x": x, "labels": torch.where(torch.arange(6) < num, -1, torch.arange(6))}
        activations: Any = inputs
        for block in blocks:
            activations = block.call(activations, inputs)
        assert torch.equal(activations, model(**inputs)), num


def test_sizes_that_depend_on_parameters_are_refused() -> None:
    class Nonzero(Chain):
        def forward(self, x: Tensor) -> Tensor:
            y = self.parts[0](x)
            return self.last(y / (1 + len(torch.relu(y).nonzero())))

    with pytest.raises(InputError, match="reads the data of a tensor that depends on parameters"):
        find_blocks(Nonzero(), None, torch.randn(4, 2))
